"""What learned features are worth on rows that their training never saw, beside those of simpler models.

The risk that a feature map was trained on is no estimate: a module with more weights than rows can drive it
below the noise.  So the training is done once more without a fifth of the rows, which then judge its
features, the features that it began with, and a linear model.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array, Index, Mask
from onefit.estimators import LogisticLOO, RidgeLOO
from onefit.exceptions import ShortPathWarning, UnreliableWarning
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.losses import HeadLoss
from onefit.torch.features.splits import balanced_splits

FEWEST = 40  # rows below which a fifth of them tells nothing
SHARE = 0.2  # of the rows that judge
LINEAR = 2000  # coefficients of a linear classifier up to which it is fitted for comparison
WORSE = 2.0  # standard errors of the paired difference that are no chance
COLLAPSED = 0.5  # of the least that unseen rows say: a risk below that is no estimate
MATTERS = 0.05  # of the loss: less is not worth a warning


class Check(NamedTuple):
    """Mean losses on rows that were held out of everything.

    Attributes
    ----------
    learned : float
        Of a feature map that was trained in the same way on the other rows.
    initial : float
        Of the features that it began with, with a head on them.
    linear : float
        Of ridge, or logistic regression, tuned by leave-one-out; NaN where that would be large.
    rows : int array
        Those rows.
    """

    learned: float
    initial: float
    linear: float
    rows: Index


def held_rows(n: int, classes: Index | None, seed: int) -> Mask | None:
    """Rows to judge on, None where there are too few."""
    if n < FEWEST:
        return None
    return balanced_splits(n, 1, 1.0 - SHARE, np.random.default_rng(seed), classes)[0]


def checked(
    learned: Tensor,
    initial: Tensor,
    head: ConvexHead,
    loss: HeadLoss,
    X: Array,
    y: Tensor,
    held: Mask,
    risk: float,
) -> Check:
    """Judge features on held-out rows, and warn where a linear model does as well.

    Parameters
    ----------
    learned, initial : (n, d) tensors
        Features of all rows.
    head, loss
        On top of them.
    X : (n, …) array
    y : (n,) or (n, c) tensor
    held : (n,) bool array
    risk : float
        That features of all rows were trained on.
    """
    losses = [_losses(features, head, loss, y, held) for features in (learned, initial)]
    linear = _linear_losses(X.reshape(len(X), -1), y.cpu().numpy(), held, loss)
    means = [float(one.mean()) for one in (*losses, linear)]
    found = Check(means[0], means[1], means[2], np.flatnonzero(held))
    if (
        _is_worse(losses[0], linear)
        or _is_worse(losses[0], losses[1])
        or _has_collapsed(risk, losses[0], linear)
    ):
        warnings.warn(_told(found, risk), UnreliableWarning, stacklevel=4)
    return found


def _is_worse(losses: Array, other: Array) -> bool:
    """Whether losses are larger than others of the same rows, beyond chance and by more than a little."""
    difference = losses - other
    error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    return bool(difference.mean() > max(WORSE * error, MATTERS * other.mean()))


def _has_collapsed(risk: float, losses: Array, linear: Array) -> bool:
    """Whether a risk is far below what unseen rows say, and the features are not clearly worth having."""
    error = float(losses.std(ddof=1)) / np.sqrt(len(losses))
    return risk < COLLAPSED * (losses.mean() - WORSE * error) and not _is_worse(linear, losses)


def _told(found: Check, risk: float) -> str:
    return (
        f"risk_ is {risk:.4g}, which has fallen below the noise: trained without {len(found.rows)} of the "
        f"rows, the features have a mean loss of {found.learned:.4g} on these, those they began with "
        f"{found.initial:.4g}, a linear model {found.linear:.4g}. Lower max_iter, take a smaller module, or "
        "train it end to end with weight decay"
    )


def _losses(features: Tensor, head: ConvexHead, loss: HeadLoss, y: Tensor, held: Mask) -> Array:
    """Losses of the held-out rows by a head on the others."""
    out = torch.as_tensor(held, device=features.device)
    with torch.no_grad():
        theta = head.coefficients(features, y, (~out).double()[None])
        decision = head.decision(theta, features[out])
        eta = decision[..., None] if decision.ndim == 2 else decision
        values = loss.value(loss.coded(y)[out], eta)[0]
    losses: Array = (values if loss.is_classifier else 2.0 * values).cpu().numpy()
    return losses


def _linear_losses(X: Array, y: Array, held: Mask, loss: HeadLoss) -> Array:
    kept = ~held
    spread = X[kept].std(axis=0)
    Z = (X - X[kept].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if not loss.is_classifier:
        model = RidgeLOO().fit(Z[kept], y[kept])
        return ((y[held] - model.predict(Z[held])) ** 2).reshape(int(held.sum()), -1).sum(axis=1)
    if Z.shape[1] * loss.n_outputs > LINEAR:
        return np.full(int(held.sum()), np.nan)
    with warnings.catch_warnings():
        for own in (UnreliableWarning, ShortPathWarning):  # it is a yardstick, which nobody can lengthen
            warnings.simplefilter("ignore", own)
        proba = LogisticLOO(Cs=np.logspace(-3, 2, 6)).fit(Z[kept], y[kept]).predict_proba(Z[held])
    picked = proba[np.arange(len(proba)), y[held]]
    return -np.log(np.maximum(picked, np.finfo(float).tiny))

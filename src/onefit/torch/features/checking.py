"""What learned features are worth on rows that their training never saw, beside those of simpler models.

The risk that a feature map was trained on is no estimate: a module with more weights than rows can drive it
below the noise.  So the training is done once before without a fifth of the rows.  They tell after how many
steps the features are best, and judge them beside the features that it began with, and a linear model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from onefit._typing import Array, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.splits import balanced_splits
from onefit.torch.features.training import features_of, like_weights, losses_by
from onefit.torch.numerics.linear import COLLAPSED, MATTERS, class_probabilities, ridge_predictions

FEWEST = 40  # rows below which a fifth of them tells nothing
SHARE = 0.2  # of the rows that judge
WORSE = 2.0  # standard errors of the paired difference that are no chance


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


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows that a training never sees, and heads on the others judged by them.

    Attributes
    ----------
    head : ConvexHead
        On top of features.
    X : (n, …) array
    y : (n,) or (n, c) tensor
    rows : (n,) bool array
        True where held out.
    """

    head: ConvexHead
    X: Array
    y: Tensor
    rows: Mask

    def judge(self, module: nn.Module) -> float:
        """Mean loss with the features of a module."""
        return float(self.losses(module).mean())

    def losses(self, module: nn.Module) -> Array:
        """Loss of each held-out row by a head on the others: (h,)."""
        out = torch.as_tensor(self.rows, device=self.y.device)
        with torch.no_grad():
            features = features_of(module, like_weights(self.X, module)).double()
            theta = self.head.coefficients(features, self.y, (~out).double()[None])
            return losses_by(self.head, theta, features[out], self.y[out])[0].cpu().numpy()

    def checked(self, learned: nn.Module, initial: nn.Module, risk: float) -> Check:
        """Judge features, and warn where simpler ones do as well.

        Parameters
        ----------
        learned, initial : nn.Module
            After training without the held-out rows, and before.
        risk : float
            That features of all rows were trained on.
        """
        losses, before = self.losses(learned.eval()), self.losses(initial.eval())
        linear = _linear_losses(self.X.reshape(len(self.X), -1), self.y.cpu().numpy(), self.rows)
        learnt, began, simple = (float(one.mean()) for one in (losses, before, linear))
        found = Check(learnt, began, simple, np.flatnonzero(self.rows))
        if _has_collapsed(risk, losses, linear):
            warnings.warn(_told(found, f"risk_ is {risk:.4g}, below the noise"), UnreliableWarning, 4)
        elif _is_worse(losses, linear) or _is_worse(losses, before):
            warnings.warn(_told(found, "the features are worse than simpler ones"), UnreliableWarning, 4)
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


def _told(found: Check, what: str) -> str:
    return (
        f"{what}: trained without {len(found.rows)} of the rows, they have a mean loss of "
        f"{found.learned:.4g} on these, those that the training began with {found.initial:.4g}, a linear "
        f"model {found.linear:.4g}. Leave max_iter to the held-out rows, take a smaller module, train it end "
        "to end with weight decay, or take the linear model"
    )


def _linear_losses(X: Array, y: Array, held: Mask) -> Array:
    kept = ~held
    if np.issubdtype(y.dtype, np.floating):
        found = ridge_predictions(X[kept], y[kept], X[held])
        return ((y[held] - found) ** 2).reshape(int(held.sum()), -1).sum(axis=1)
    proba = class_probabilities(X[kept], y[kept], X[held])
    if proba is None:
        return np.full(int(held.sum()), np.nan)
    picked = proba[np.arange(len(proba)), y[held]]
    return -np.log(np.maximum(picked, np.finfo(float).tiny))

"""What the module that a search came to is worth, beside simpler models.

The joint fit minimises the validation loss itself, and a module with more weights than rows can drive it
below the noise.  So the module that is trained at λ* on the training data alone is judged beside the module
as it was given and a linear model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array
from onefit.exceptions import UnreliableWarning
from onefit.torch.numerics.linear import COLLAPSED, MATTERS, class_probabilities, ridge_predictions


class SearchCheck(NamedTuple):
    """Validation losses.

    Attributes
    ----------
    retrained : float
        Of the module trained at λ* on the training data.
    joint : float
        Of the one fitted jointly with λ*, which has seen the validation data.
    initial : float
        Of the module with the weights it came with; of a linear model of the constant one.
    linear : float
        Of ridge or logistic regression on the training data, tuned by leave-one-out; NaN where the targets
        are of neither kind, where it would be large, and of a linear model, which is one.
    """

    retrained: float
    joint: float
    initial: float
    linear: float

    def warn(self, *, of_round: bool) -> None:
        """Warn where a simpler model is better, or λ* of a round comes from a joint loss below the noise.

        Parameters
        ----------
        of_round : bool
            Whether λ* is that of a joint fit, and not of a check of it.
        """
        simple = np.nanmin([self.initial, self.linear])
        if self.retrained > simple + MATTERS * abs(simple):
            self._tell("the module that was found is worse than a simpler one")
        elif of_round and self._has_collapsed:
            self._tell("the validation loss of the joint fit has fallen below the noise")

    @property
    def _has_collapsed(self) -> bool:
        simpler = not self.retrained < (1.0 - MATTERS) * self.linear
        return self.joint < COLLAPSED * self.retrained and simpler

    def _tell(self, what: str) -> None:
        warnings.warn(
            f"{what}: validation loss {self.retrained:.4g} after training at lambda_, {self.joint:.4g} of "
            f"the joint fit, {self.initial:.4g} of the module as it was given, {self.linear:.4g} of a linear "
            "model. Raise the upper bounds, take a smaller module or the linear model, or leave "
            "check_rounds=True",
            UnreliableWarning,
            stacklevel=5,
        )


def linear_loss(
    train: tuple[Tensor, Tensor],
    held: tuple[Tensor, Tensor],
    output: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> float:
    """Validation loss of a linear model, NaN if there is none for these targets.

    Parameters
    ----------
    train, held : (X, y)
    output : tensor
        Of the module for the validation rows.
    loss : callable
    """
    X, X_new = _flat(train[0]), _flat(held[0])
    if X is None or X_new is None:
        return float("nan")
    y = train[1].cpu().numpy()
    if train[1].is_floating_point() and output.numel() == held[1].numel():
        found = ridge_predictions(X, y.reshape(len(y), -1), X_new)
    elif y.ndim == 1 and output.shape == (len(X_new), int(y.max()) + 1) and y.min() >= 0:
        shares = class_probabilities(X, y, X_new)
        if shares is None or shares.shape != tuple(output.shape):
            return float("nan")
        found = np.log(np.maximum(shares, np.finfo(float).tiny))
    else:
        return float("nan")
    with torch.no_grad():
        return float(loss(torch.as_tensor(found).to(output).reshape(output.shape), held[1]))


def _flat(X: Tensor) -> Array | None:
    if not X.is_floating_point():
        return None
    rows: Array = X.reshape(len(X), -1).double().cpu().numpy()
    return rows

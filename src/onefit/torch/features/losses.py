"""Losses of a convex head, and their derivatives in the linear predictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from onefit.validation import check_choice

LossName: TypeAlias = Literal["squared", "logistic", "multinomial", "squared_hinge"]


@dataclass(frozen=True)
class HeadLoss(ABC):
    """Loss of a head with c outputs, and its derivatives in the linear predictors."""

    n_outputs: int
    is_classifier = True
    ignores_common_shift = False  # of the linear predictors of a row

    @abstractmethod
    def coded(self, y: Tensor) -> Tensor:
        """Targets as a float64 array, one column an output: (n, c).

        Raises
        ------
        ValueError
        """

    @abstractmethod
    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        """Losses of (..., n, c) linear predictors: (..., n)."""

    @abstractmethod
    def gradient(self, y: Tensor, eta: Tensor) -> Tensor:
        """First derivatives: (..., n, c)."""

    @abstractmethod
    def curvature(self, y: Tensor, eta: Tensor) -> Tensor:
        """Second derivatives: (..., n, c, c)."""


@dataclass(frozen=True)
class _Squared(HeadLoss):
    is_classifier = False

    def coded(self, y: Tensor) -> Tensor:
        return y.double().reshape(len(y), -1)

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return 0.5 * (y - eta).square().sum(-1)

    def gradient(self, y: Tensor, eta: Tensor) -> Tensor:
        return eta - y

    def curvature(self, y: Tensor, eta: Tensor) -> Tensor:
        return torch.eye(self.n_outputs, dtype=eta.dtype, device=eta.device).expand(*eta.shape, -1)


@dataclass(frozen=True)
class _Logistic(HeadLoss):
    def coded(self, y: Tensor) -> Tensor:
        return _binary(y, "logistic")

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return nn.functional.softplus((1 - 2 * y) * eta)[..., 0]

    def gradient(self, y: Tensor, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta) - y

    def curvature(self, y: Tensor, eta: Tensor) -> Tensor:
        return (torch.sigmoid(eta) * torch.sigmoid(-eta))[..., None]


@dataclass(frozen=True)
class _SquaredHinge(HeadLoss):
    """max(0, 1 − s η)² with s = 2y − 1: the support vector machine whose coefficients have derivatives."""

    def coded(self, y: Tensor) -> Tensor:
        return _binary(y, "squared_hinge")

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return self._missing(y, eta).square()[..., 0]

    def gradient(self, y: Tensor, eta: Tensor) -> Tensor:
        return -2.0 * (2.0 * y - 1.0) * self._missing(y, eta)

    def curvature(self, y: Tensor, eta: Tensor) -> Tensor:
        return 2.0 * (self._missing(y, eta) > 0).to(eta)[..., None]

    @staticmethod
    def _missing(y: Tensor, eta: Tensor) -> Tensor:
        """What a row lacks of the margin."""
        return nn.functional.relu(1.0 - (2.0 * y - 1.0) * eta)


@dataclass(frozen=True)
class _Multinomial(HeadLoss):
    ignores_common_shift = True

    def coded(self, y: Tensor) -> Tensor:
        if y.ndim != 1 or y.is_floating_point() or not torch.all((y >= 0) & (y < self.n_outputs)):
            raise ValueError(f"a multinomial head needs whole labels from 0 to {self.n_outputs - 1}, (n,)")
        return nn.functional.one_hot(y.long(), self.n_outputs).double()

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return torch.logsumexp(eta, -1) - (y * eta).sum(-1)

    def gradient(self, y: Tensor, eta: Tensor) -> Tensor:
        return torch.softmax(eta, -1) - y

    def curvature(self, y: Tensor, eta: Tensor) -> Tensor:
        share = torch.softmax(eta, -1)
        return torch.diag_embed(share) - share[..., :, None] * share[..., None, :]


LOSSES: dict[str, type[HeadLoss]] = {
    "squared": _Squared,
    "logistic": _Logistic,
    "multinomial": _Multinomial,
    "squared_hinge": _SquaredHinge,
}


def _binary(y: Tensor, name: str) -> Tensor:
    if y.ndim != 1 or not torch.all((y == 0) | (y == 1)):
        raise ValueError(f"a {name} head needs labels 0 and 1, (n,); use loss='multinomial' for more")
    return y.double()[:, None]


def loss_of(name: str, y: Tensor, n_classes: int | None = None) -> HeadLoss:
    """Return the loss of a name, with as many outputs as the targets ask for.

    Raises
    ------
    ValueError
    """
    check_choice("loss", name, LOSSES)
    if name == "multinomial":
        return _Multinomial(n_classes or int(y.max()) + 1)
    return LOSSES[name](y.shape[1] if name == "squared" and y.ndim == 2 else 1)

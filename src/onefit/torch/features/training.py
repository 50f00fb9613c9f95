"""Descent of a feature map on the cross-validation risk of the head."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from onefit._typing import Array
from onefit.exceptions import SolverError
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.losses import loss_of
from onefit.torch.numerics.rows import trained_parameters

Callback: TypeAlias = Callable[[int, float], object]
Judge: TypeAlias = Callable[[nn.Module], float]
Optimizer: TypeAlias = Literal["adam", "sgd"] | Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True, eq=False)
class SplitRisk:
    """Cross-validation risk of a head, as a function of the features: eq. 3 of the 2019 paper.

    Attributes
    ----------
    head : ConvexHead
    y : (n,) or (n, c) tensor
    held : (S, n) float64 tensor
        1 where held out.
    """

    head: ConvexHead
    y: Tensor
    held: Tensor

    def __call__(self, features: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the risk, and the coefficients to start from next time."""
        theta = self.head.coefficients(features, self.y, 1 - self.held, start)
        losses = losses_by(self.head, theta, features, self.y)
        return (losses * self.held).sum() / self.held.sum(), theta.detach()


def losses_by(head: ConvexHead, theta: Tensor, features: Tensor, y: Tensor) -> Tensor:
    """Losses of rows by heads that are solved, log-loss or squared error: (S, n)."""
    loss = loss_of(head.loss, y, head.n_classes)
    losses = loss.value(loss.coded(y), head.predictors(theta, features))
    return losses if loss.is_classifier else 2.0 * losses  # without the ½


@dataclass(frozen=True)
class Trained:
    """A module in evaluation mode with its best weights, and what was seen on the way.

    Attributes
    ----------
    module : nn.Module
    begun : nn.Module
        What it was before.
    risks : tuple of float
        Before each step.
    steps : int
        Steps to the best weights.
    """

    module: nn.Module
    begun: nn.Module
    risks: tuple[float, ...]
    steps: int


@dataclass(frozen=True)
class Training:
    """How to descend on the risk."""

    optimizer: Optimizer
    learning_rate: float
    max_iter: int
    patience: int
    tol: float
    report: Callback

    def run(self, module: nn.Module, X: Tensor, risk_of: SplitRisk, judge: Judge | None = None) -> Trained:
        """Descend until what is judged by no longer falls fast enough: the risk, unless a judge is given.

        Raises
        ------
        SolverError
            If the features are no longer finite.
        """
        descent = self._descent(trained_parameters(module))
        best, begun = copy.deepcopy(module.state_dict()), copy.deepcopy(module)
        risks, start = list[float](), None
        judged = risks if judge is None else list[float]()
        for number in range(self.max_iter):
            if judge is not None:
                judged.append(judge(module.eval()))
            features = features_of(module.train(), X)
            if not torch.isfinite(features).all():
                raise SolverError(f"features are not finite after {number} steps: lower learning_rate")
            risk, start = risk_of(features, start)
            risks.append(risk.item())
            if judged[-1] == min(judged):
                best = copy.deepcopy(module.state_dict())
            if self.report(number, risks[-1]) is True or self._stalls(judged):
                break
            descent.zero_grad()
            risk.backward()  # type: ignore[no-untyped-call]
            descent.step()
        descent.zero_grad()
        module.load_state_dict(best)
        return Trained(module.eval(), begun, tuple(risks), judged.index(min(judged)))

    def _stalls(self, values: list[float]) -> bool:
        """Whether the smallest value fell by less than its share in the last steps."""
        before = values[: -self.patience]
        return bool(before) and min(values) >= (1 - self.tol) * min(before)

    def _descent(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if callable(self.optimizer):
            return self.optimizer(parameters)
        known = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
        if self.optimizer not in known:
            raise ValueError(f"optimizer must be 'adam', 'sgd' or a callable, got {self.optimizer!r}")
        return known[self.optimizer](parameters, lr=self.learning_rate)


def features_of(module: nn.Module, X: Tensor) -> Tensor:
    """Return the output of a feature map, (n, d).

    Raises
    ------
    ValueError
        If the module does not take X, or does not return rows of features.
    """
    try:
        features = module(X)
    except RuntimeError as error:
        raise ValueError(f"module does not take X of shape {tuple(X.shape)}: {error}") from error
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(X):
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"module must return features (n, d) of n = {len(X)} rows, got {shape}")
    return features


def like_weights(X: Array, module: nn.Module) -> Tensor:
    """X with the type and on the device of the parameters of a module."""
    like = trained_parameters(module)[0]
    return torch.tensor(X).to(like.device, like.dtype)  # a copy: X may be read-only

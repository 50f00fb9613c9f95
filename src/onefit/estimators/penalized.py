"""Linear models with a penalty of some strength: what is minimised at each, and which are tried."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from onefit._typing import Array, Index
from onefit.estimators.linear_model import LinearModel, check_determined
from onefit.estimators.sample import Sample
from onefit.estimators.strengths import grid_of
from onefit.losses import CoupledLoss, Loss, Offset
from onefit.penalties import L2, Box, Penalty, SeparablePenalty
from onefit.problem import Balance, Problem
from onefit.readers.conventions import class_weights
from onefit.tuning.grid import Grid
from onefit.validation import check_bounds, check_factors

SHORTEST = 1e-4  # length of an automatic path whose estimator has no ``eps``, before strengths are added


class Penalized(LinearModel):
    """A linear model with a penalty of some strength."""

    eps: float = SHORTEST
    positive: bool
    bounds: Any
    penalty_factors: Any
    class_weight: Any = None
    early_stopping: bool = True
    _strength: ClassVar[str] = "alpha"  # what the strength is called, and sets "<strength>_"
    _mean_scaled: ClassVar[bool] = False  # whether the loss is a mean over rows, not a sum
    _may_be_zero: ClassVar[bool] = False  # whether a strength of zero is allowed

    @abstractmethod
    def _unit_penalty(self, ratio: float) -> Penalty:
        """Penalty of strength one."""

    def _ratios(self, spread: float = 1.0) -> list[float]:
        """Shares of the ℓ1 part that are tried, where the response has this standard deviation."""
        return [0.0]

    def _amount(self, strength: float) -> float:
        """Factor on the penalty at a strength on the estimator's own scale."""
        return 1.0 / strength if self._strength == "C" else strength

    def _problem(self, sample: Sample, strength: float, ratio: float) -> Problem:
        """What is minimised at a strength."""
        weights, balance = self._weights_of_classes(sample)
        outputs = self._outputs(sample.target)
        loss: Loss = self._fitted_loss()
        amount = self._amount(strength) * (weights.sum() if self._mean_scaled else 1.0)
        problem = Problem(
            loss if sample.offset is None else Offset(loss),
            self._penalty_of(amount, ratio, (sample.X.shape[1], *outputs)),
            sample.X,
            sample.response,
            weights,
            np.full(outputs, bool(self.fit_intercept)),
            self._mean_scaled,
            balance,
        )
        check_determined(problem)
        return replace(problem, inner=sample.inner) if self._is_in_rows(sample, ratio) else problem

    def _weights_of_classes(self, sample: Sample) -> tuple[Array, Balance | None]:
        if self.class_weight is None:
            return sample.weights, None
        numbers: Index = sample.target.astype(np.intp)
        weights = sample.weights * class_weights(self.class_weight, numbers, sample.weights, self.classes_)
        return weights, Balance(numbers, sample.weights) if self.class_weight == "balanced" else None

    def _penalty_of(self, amount: float, ratio: float, shape: tuple[int, ...]) -> Penalty:
        unit, factors = self._unit_penalty(ratio), self.penalty_factors
        bounds = check_bounds(self.bounds, positive=self.positive, p=shape[0])
        own: Any = amount
        if (factors is not None or bounds is not None) and not isinstance(unit, SeparablePenalty):
            raise ValueError(
                f"penalty_factors, bounds and positive are for L1, L2 and ElasticNet, not for "
                f"{type(unit).__name__}, whose own parameters say how columns differ"
            )
        if factors is not None:
            own = amount * check_factors(factors, shape[0])
        scaled = unit.scaled(own)
        if bounds is None:
            return scaled
        if len(shape) > 1:
            raise ValueError("bounds and positive are for one output: fit one model a class or target")
        return scaled + Box(*bounds)

    def _is_in_rows(self, sample: Sample, ratio: float) -> bool:
        """Whether the inner products of the rows are all that a fit needs of X."""
        return self._is_plain_ridge(ratio) and sample.X.shape[1] > sample.X.shape[0]

    def _is_plain_ridge(self, ratio: float) -> bool:
        """Whether the penalty is α ‖β‖² with one α for all columns, and the loss of one smooth output."""
        unit, loss = self._unit_penalty(ratio), self._fitted_loss()
        alike = self.penalty_factors is None and self.bounds is None and not self.positive
        of_one = not isinstance(loss, CoupledLoss) and not loss.has_kinks
        return unit == L2(1.0) and alike and of_one

    def _grid(self, sample: Sample, ratio: float) -> Grid:
        name = f"{self._strength}s"
        shape = (sample.X.shape[1], *self._outputs(sample.target))
        return grid_of(
            name,
            getattr(self, name),
            self._problem(sample, 1.0, ratio),
            kinked=self._unit_penalty(ratio).has_kinks(shape),
            eps=self.eps,
            inverse=self._strength == "C",
            positive=not self._may_be_zero,
        )

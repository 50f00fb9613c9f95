"""Linear models with a penalty of some strength: what is minimised at each, and which are tried.

Automatic strengths go from where a penalty starts to matter in these data to where it stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from onefit import _linalg
from onefit._linalg import FewerColumns
from onefit._typing import Array, Index
from onefit.balance import Balance
from onefit.estimators.linear_model import LinearModel, check_determined, takes_middle
from onefit.estimators.sample import Sample
from onefit.fit import Fit
from onefit.leave_out.vertex import copies
from onefit.losses import CoupledLoss, Squared
from onefit.penalties import L1, L2, Box, ElasticNet, Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.readers.translation import class_weights
from onefit.solvers.null_model import null_strength
from onefit.tuning.grid import APART, SMOOTH, Grid
from onefit.validation import check_bounds, check_factors, check_strengths, is_count

SHORTEST = 1e-4  # length of an automatic path whose estimator has no ``eps``, before strengths are added
RIDGE_DECADES = (1.0, -7.0)  # automatic strengths, relative to the largest eigenvalue


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

    def _unit_penalty(self, ratio: float) -> Penalty:
        """Penalty of strength one, with this share of ℓ1."""
        return mixed(ratio)

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
        amount = self._amount(strength) * (weights.sum() if self._mean_scaled else 1.0)
        problem = Problem(
            sample.loss_of_response(self._fitted_loss()),
            self._penalty_of(amount, ratio, (sample.X.shape[1], *outputs)),
            sample.X,
            sample.response,
            weights,
            np.full(outputs, bool(self.fit_intercept)),
            self._mean_scaled,
            balance,
            takes_middle=takes_middle,
        )
        check_determined(problem)
        return replace(problem, inner=sample.inner)

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
            own = amount * check_factors(factors, shape[0], getattr(self, "feature_names_in_", None))
        scaled = unit.scaled(own)
        if bounds is None:
            return scaled
        if len(shape) > 1:
            raise ValueError("bounds and positive are for one output: fit one model a class or target")
        return scaled + Box(*bounds)

    def _is_in_dual(self, sample: Sample, ratio: float) -> bool:
        """Whether a ridge of more columns than rows knows X best by its Gram matrix: unless X is sparser."""
        (n, p), X = sample.X.shape, sample.X
        is_wide = p > n and not isinstance(self._fitted_loss(), Squared)  # squares go by columns
        return is_wide and self._is_plain_ridge(ratio) and _linalg.as_columns(X).n_stored > n**2

    def _fewer_columns(self, sample: Sample, ratio: float) -> FewerColumns | None:
        """Coordinates of a fit, where they are fewer than the columns.

        Those of coupled outputs in the span of the rows beside a ridge; beside a penalty that leaves open how
        copies of a column share, columns without their copies, to which most methods are not used.
        """
        coupled, (n, p) = isinstance(self._fitted_loss(), CoupledLoss), sample.X.shape
        if coupled and n < p and isinstance(sample.X, np.ndarray) and self._is_ridge(ratio):
            return sample.inner.span
        problem = self._problem(sample, 1.0, ratio)
        if not isinstance(problem.penalty, SeparablePenalty):
            return None
        spare = copies(Fit.at_start(problem))
        return _linalg.SomeOfThem.of(sample.X, np.flatnonzero(~spare)) if spare.any() else None

    def _is_plain_ridge(self, ratio: float) -> bool:
        """Whether the penalty is α ‖β‖² with one α for all columns, and the loss of one smooth output."""
        loss = self._fitted_loss()
        return self._is_ridge(ratio) and not isinstance(loss, CoupledLoss) and not loss.has_kinks

    def _is_ridge(self, ratio: float) -> bool:
        """Whether the penalty is α ‖β‖² with one α for all columns."""
        alike = self.penalty_factors is None and self.bounds is None and not self.positive
        unit = self._unit_penalty(ratio)
        return alike and isinstance(unit, L2) and np.ndim(unit.alpha) == 0 and unit.alpha == 1.0

    def _grid(self, sample: Sample, ratio: float) -> Grid:
        """Strengths that were given, or so many between ends from the data."""
        problem = self._problem(sample, 1.0, ratio)
        shape = problem.coef_shape
        if not self._unit_penalty(ratio).has_growing_kinks(shape):
            total = float(problem.weights.sum()) if problem.mean_scaled else 1.0
            start = Fit.at_start(problem)
            grid = self._grid_between(lambda: decades(float(curvature_of_columns(start).sum()) / total))
            return self._apart(grid, SMOOTH)
        null = cache(lambda: null_strength(problem))

        def held() -> tuple[Array, Array]:
            ridge = problem.penalty.ridge(shape).reshape(shape[0], -1).mean(axis=1)
            return curvature_of_columns(Fit.at_start(problem)), ridge

        return self._apart(self._grid_of_kinked(null, held), APART)

    def _grid_of_kinked(self, null: Callable[[], float], held: Callable[[], tuple[Array, Array]]) -> Grid:
        """Strengths of a penalty with kinks: ``null`` makes all coefficients zero.

        ``held`` are the curvature of the loss along each column and the ℓ2 part there, as ``ends_of_kinked``
        takes them.  Neither is asked for strengths that were given.
        """
        eps: Any = self.eps
        if isinstance(eps, str) or not 0 < eps < 1:
            raise ValueError(f"eps must lie in (0, 1), got {eps!r}")
        return self._grid_between(lambda: ends_of_kinked(null(), eps, *held()), null)

    def _apart(self, grid: Grid, decades: float) -> Grid:
        """The grid of which some strengths are passed over, where they were not given.

        None is where a loss has kinks.
        """
        through_all = self._fitted_loss().has_kinks or not grid.automatic
        return grid if through_all else replace(grid, apart=decades)

    def _grid_between(
        self, ends: Callable[[], tuple[float, float]], strongest: Callable[[], float] | None = None
    ) -> Grid:
        """Strengths that were given, or so many between ends, and none added beyond the strongest.

        Ends and strongest are of factors on the penalty, which a larger ``C`` makes smaller.
        """
        name, inverse = f"{self._strength}s", self._strength == "C"
        automatic = is_count(getattr(self, name))

        def between() -> tuple[float, float]:
            high, low = ends()
            return (1.0 / low, 1.0 / high) if inverse else (high, low)

        strengths = check_strengths(name, getattr(self, name), between, positive=not self._may_be_zero)
        grid = Grid(strengths[::-1] if inverse else strengths, automatic)
        if automatic and strongest is not None:
            return replace(grid, strongest=self._amount(strongest()))
        return grid


def ends_of_kinked(null: float, eps: float, curvature: Array, ridge: Array) -> tuple[float, float]:
    """Range of automatic strengths of a penalty with kinks, and perhaps an ℓ2 part.

    From the smallest strength that makes all coefficients zero, or that at which the ℓ2 part has shrunk them
    to about a tenth, if it comes later: down to ``eps`` times that.  An ℓ2 part does not know the units of
    the response, as the ℓ1 part does: with large numbers it is the one that matters, and the null model is
    many decades away.

    Parameters
    ----------
    null : float
        Strength that makes all coefficients zero.
    eps : float
    curvature : (p,) array
        Of the loss along each column, Σ w d (x − x̄)².
    ridge : (p,) array
        Strength of the ℓ2 part at strength one.
    """
    held = (curvature > 0) & np.isfinite(ridge)
    shrinks = float(np.mean(ridge[held])) if held.any() else 0.0
    if shrinks <= 0:
        return null, eps * null
    high, usual = float(curvature[held].sum()), float(np.median(curvature[held]))
    reach = 10.0 ** RIDGE_DECADES[0] / shrinks
    return min(null, reach * high), eps * min(null, reach * usual)


def curvature_of_columns(start: Fit) -> Array:
    """Σ w d (x − x̄)² of each column at the constant model: (p,); with d = 1 where the loss is straight."""
    problem = start.problem
    bends = _linalg.row_diagonals(start.hessian).reshape(problem.n, -1).mean(axis=1)
    rows = bends if np.any(bends > 0) else problem.weights
    return _linalg.column_norms(problem.X, rows, centred=bool(np.all(problem.intercept))) ** 2


def decades(largest: float) -> tuple[float, float]:
    """Range of automatic ridge strengths."""
    high, low = RIDGE_DECADES
    scale = largest if largest > 0 else 1.0
    return scale * 10.0**high, scale * 10.0**low


def mixed(ratio: float) -> SeparablePenalty:
    """A penalty of strength one with this share of ℓ1."""
    if ratio in (0.0, 1.0):
        return L1(1.0) if ratio else L2(1.0)
    return ElasticNet(1.0, ratio)

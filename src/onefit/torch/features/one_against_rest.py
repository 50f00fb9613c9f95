"""Logistic regression of each class against the rest, all of them fitted together on dense features.

The outputs share the features and the strength, so that a product with the features serves all of them.
Strengths are told apart by rough fits on all rows, and one Newton step with about the curvature for each of
some rows; the chosen one is fitted to the end and judged on all rows, with the curvature and with bounds.

K of an output is nearly known at a fraction of what its factor costs.  Logistic losses are curved where a
row is uncertain: for one class against the rest in few rows.  Of each output the rows with the largest
weights d_i are summed as they are and the others with the mean d̄ of theirs,

    Σ_i d_i z_i z_iᵀ  ≈  Σ_largest (d_i − d̄) z_i z_iᵀ + d̄ Σ_i z_i z_iᵀ,

the last sum being that of all outputs.  It is exact where all weights are equal, as at the constant model,
and where few rows have any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction, Independent, factor
from onefit.curvature.primal import Primal
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.step import one_step
from onefit.losses import Logistic
from onefit.metrics import LogLoss
from onefit.penalties import L2
from onefit.problem import Moments, Problem
from onefit.risk.estimate import RiskEstimate
from onefit.risk.judging import estimate, yardstick
from onefit.torch.features.lockstep import HeadState, Regressions, Solve
from onefit.torch.features.splits import some_of_each

FACTOR = 6.0  # between neighbouring strengths
MOVES = 8  # along the strengths, at most
CONTEST = 1000  # rows whose left-out losses tell strengths apart
ROUGH, NEAR = 1e-2, 1e-11  # root of the relative decrement at which they are told apart, and at the end

SHARE = 5  # one row in so many is summed as it is
PER_FEATURE = 2  # and at least so many rows a feature


@dataclass(frozen=True, eq=False)
class OneClass:
    """One class against the rest, as it was fitted.

    Attributes
    ----------
    C_ : float
    coef_ : (1, d) array
    intercept_ : (1,) array
    loo_ : RiskEstimate
        Leave-one-out of its own log-loss.
    """

    C_: float
    coef_: Array
    intercept_: Array
    loo_: RiskEstimate


class Near(NamedTuple):
    """About the fit at a strength, and the sums over the rows there."""

    C: float
    state: HeadState
    moments: list[Moments]


@dataclass(frozen=True, eq=False)
class OneAgainstRest:
    """The features and which class each row has.

    Attributes
    ----------
    X : (n, d) array
    targets : (n, c) array
        1 where the row has the class, else 0.
    weights : (n,) array
    """

    X: Array
    targets: Array
    weights: Array

    def tuned(self, first: float, loss: Callable[[Array, Index], float]) -> tuple[OneClass, ...]:
        """Fit at the best strength, climbing from the first guess.

        Parameters
        ----------
        first : float
            Inverse strength to begin with.
        loss : callable
            From left-out linear predictors (m, c) of some rows, and their numbers, to the risk.
        """
        near = self._climbed(first, loss)
        C, regressions = near.C, self._regressions(near.C)
        state = regressions.descended(near.state.theta, self._nearly(C, near), NEAR)
        curvature = factor(self._fit(C, state))
        state = regressions.descended(state.theta, lambda _: solving(curvature), NEAR)
        return self._judged(C, self._fit(C, state), curvature)

    def _climbed(self, first: float, loss: Callable[[Array, Index], float]) -> Near:
        """About the fit at the best strength."""
        rows = some_of_each(self.targets.argmax(axis=1), CONTEST)
        found = {0: self._near(first, None)}
        risks = {0: loss(self._left_out(found[0], rows), rows)}
        best, step = 0, 1
        for _ in range(MOVES):
            sides = [best + step, best - step]
            move = next((j for j in sides if j not in risks), None)
            if move is None:
                break
            found[move] = self._near(first * FACTOR**move, found[best])
            risks[move] = loss(self._left_out(found[move], rows), rows)
            if risks[move] < risks[best]:
                step, best = move - best, move
            found = {best: found[best]}
        return found[best]

    def _near(self, C: float, last: Near | None) -> Near:
        """About the fit at a strength, from that at another one."""
        start = np.zeros((self.X.shape[1] + 1, self.targets.shape[1])) if last is None else last.state.theta
        state = self._regressions(C).descended(start, self._nearly(C, last), ROUGH)
        return Near(C, state, self._sums.moments(state.d))

    def _left_out(self, near: Near, rows: Index) -> Array:
        """About the left-out predictors of some rows: one step each."""
        some = self._fit(near.C, near.state).of_rows(rows)
        return one_step(some, self._sums.curvature(near.moments, 1.0 / near.C, rows)).eta

    def _regressions(self, C: float) -> Regressions:
        return Regressions(self.X, self.targets, self.weights, 1.0 / C)

    def _fit(self, C: float, state: HeadState) -> Fit:
        outputs = np.ones(self.targets.shape[1], dtype=bool)
        problem = Problem(Logistic(), L2(1.0 / C), self.X, self.targets, self.weights, outputs)
        return Fit(problem, state.theta[:-1], state.theta[-1]).known(eta=state.eta)

    def _nearly(self, C: float, last: Near | None = None) -> Callable[[HeadState], Solve]:
        """K⁻¹ nearly; the sums of the last fit serve where that is the start."""

        def preconditioned(state: HeadState) -> Solve:
            known = last is not None and state.theta is last.state.theta
            moments = last.moments if last is not None and known else self._sums.moments(state.d)
            return solving(self._sums.curvature(moments, 1.0 / C))

        return preconditioned

    @cached_property
    def _sums(self) -> NearCurvature:
        return NearCurvature(self.X)

    def _judged(self, C: float, fit: Fit, curvature: Curvature) -> tuple[OneClass, ...]:
        assert isinstance(curvature, Independent)  # the loss does not tie the outputs together
        metric, judged = LogLoss(np.array([False, True])), list[OneClass]()
        for k, target in enumerate(self.targets.T):
            own = Fit(
                Problem(Logistic(), fit.problem.penalty, self.X, np.ascontiguousarray(target), self.weights),
                fit.coef[:, k],
                fit.intercept[k],
            ).known(eta=fit.eta[:, k])
            judge = yardstick(metric, own.problem.y, self.weights)
            left_out: LeftOut = leave_out(
                own, curvature=curvature.of_output(k), yardstick=judge, affordable=0.0
            )
            loo = estimate(left_out, metric, target == 1.0, target=target, classes=np.array([False, True]))
            judged.append(OneClass(C, own.coef[None], own.intercept[None], loo))
        return tuple(judged)


def solving(curvature: Curvature) -> Solve:
    """K⁻¹ times gradients whose last row is that of the intercepts."""

    def solve(gradient: Array) -> Array:
        found = curvature.solve(Direction(gradient[:-1], gradient[-1]))
        return np.vstack([found.coef, found.intercept])

    return solve


@dataclass(frozen=True, eq=False)
class NearCurvature:
    """What serves the curvatures of all outputs of all fits on the same rows.

    Attributes
    ----------
    X : (n, p) array
    """

    X: Array

    @cached_property
    def _means(self) -> Array:
        return np.asarray(self.X.mean(axis=0))

    @cached_property
    def _gram(self) -> Array:
        """Of all rows, centred: the lower triangle."""
        return _linalg.as_columns(self.X).weighted_gram(self._means, np.ones(len(self.X)))

    def moments(self, d: Array) -> list[Moments]:
        """Sums over the rows for each column of weights (n, c)."""
        means = _linalg.product(self.X.T, d) / np.maximum(d.sum(axis=0), np.finfo(float).tiny)
        return [
            Moments(self.X, own, middle, self._summed(own, middle))
            for own, middle in zip(d.T, means.T, strict=True)
        ]

    def curvature(self, moments: list[Moments], alpha: float, judged: Index | None = None) -> Independent:
        """Curvature of outputs with intercepts and a ridge penalty.

        Parameters
        ----------
        moments : list of Moments
        alpha : float
        judged : array of row numbers, optional
            Those whose quadratic forms are asked for; all if not given.
        """
        rows, ridge = (self.X if judged is None else self.X[judged]), np.full(self.X.shape[1], alpha)
        factors = [Primal(rows, None, len(ridge), ridge, own.weights, True, own) for own in moments]
        return Independent(factors, np.arange(len(factors)))

    def _summed(self, d: Array, means: Array) -> Array:
        """Σ d (x − m)(x − m)ᵀ, nearly: the lower triangle."""
        most = max(len(d) // SHARE, PER_FEATURE * self.X.shape[1])
        if most >= len(d):
            return _linalg.as_columns(self.X).weighted_gram(means, d)
        largest = np.sort(np.argpartition(-d, most)[:most])
        rest = max(0.0, (d.sum() - d[largest].sum()) / (len(d) - most))
        away = self._means - means
        gram = np.asfortranarray(rest * (self._gram + len(d) * np.outer(away, away)))
        block = self.X[largest]
        block -= means
        block *= np.sqrt(np.maximum(d[largest] - rest, 0.0))[:, None]
        return _linalg.add_gram(gram, block)

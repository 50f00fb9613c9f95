"""The exact active-set method for squared loss with an l1 or elastic net penalty.

It solves, for row weights ``w`` and column strengths ``l1`` and ``l2``,

    minimise over (beta, b):
        1/2 sum_i w_i (y_i - x_i' beta - b)^2 + sum_j l1_j |beta_j| + 1/2 sum_j l2_j beta_j^2.

On a support with known signs the optimum is linear algebra (`support`); the method finds them.
"""

from __future__ import annotations

import warnings
from typing import Any, final

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.exceptions import NotOptimalWarning
from onefit.numerics import TINY
from onefit.solvers.support import Support

# Relative excess of a correlation over its strength that still counts as optimal; the duality gap
# inherits it.
_EXCESS = 1e-12
# Violators that may join at once, however small the support.
_BLOCK = 64
# Rounds without progress, in single steps, after which rounding is all that is left.
_PATIENCE = 5
# Duality gap, relative to the objective, from which on the method has stopped short of the optimum.
_SHORT = 1e-8
# How often the way from one set of strengths to the next may be halved when the method cycles.
_HALVINGS = 6
# Condition number beyond which the normal equations alone are too coarse to choose the next pivot,
# and the most steps of refinement.
_ILL_CONDITIONED = 1e6
_REFINEMENTS = 4
# Strengths this near to one another, relatively, are not worth halving.
_CLOSE = 0.02


@final
class ActiveSet(Support):
    """State of the exact active-set method, warm-started from one set of strengths to the next.

    Each call of `solve` ends at the exact optimum, up to rounding: the normal equations hold on
    the support, its signs agree, and every correlation ``|x_j' W r|`` elsewhere is at most
    ``l1_j``.  Violators join in blocks, largest first; coordinates whose sign comes out wrong
    leave.  A violator that is a linear combination of the support enters by exchange: it rises
    along the direction that leaves ``X beta`` unchanged until another coordinate reaches zero.

    Parameters
    ----------
    X : array or sparse matrix, shape (n, p)
        Never copied when dense and contiguous, never densified when sparse.
    y : array, shape (n,)
        Response.
    weights : array, shape (n,), optional
        Non-negative row weights with a positive sum.
    fit_intercept : bool
        Whether to fit the unpenalised ``b``.  It is profiled out by weighted centring.
    nonnegative : bool
        Whether coefficients are held at zero or above: then only columns that would raise theirs join.
    """

    def __init__(
        self,
        X: Any,
        y: Array,
        weights: Array | None = None,
        *,
        fit_intercept: bool = True,
        nonnegative: bool = False,
    ) -> None:
        super().__init__(X, y, weights, fit_intercept=fit_intercept)
        self._nonnegative = nonnegative
        self._barred, self._set_aside = np.zeros((2, self._l1.size), dtype=np.bool_)
        self._unresolved = 0

    def start_at(self, coef: Array, l1: Array) -> None:
        """Begin on the support of coefficients that are near the optimum for some strengths."""
        columns = np.flatnonzero(coef)
        slots = self._store.slots(columns)
        varies = ~self._store.constant(slots)
        columns, self.slots, self._l1 = columns[varies], slots[varies], l1
        self.signs, self._beta = np.sign(coef[columns]), coef[columns]
        self._refactor()
        self._forget_residual()

    def solve(self, l1: float | Array, l2: float | Array = 0.0) -> bool:
        """Move to the optimum for new strengths.

        Parameters
        ----------
        l1 : float or array, shape (p,)
            Strengths of the absolute values; 0 leaves a column unpenalised, infinity excludes it.
        l2 : float or array, shape (p,)
            Strengths of the squares, finite.

        Returns
        -------
        bool
            Whether it is there: rounding or a degenerate design may have stopped the method short of it.
        """
        p = self._l1.size
        self._take_ridge(np.full(p, l2) if np.ndim(l2) == 0 else np.array(l2, dtype=np.float64))
        self._approach(np.full(p, l1) if np.ndim(l1) == 0 else np.array(l1, dtype=np.float64))
        self._refine()
        return not (self._unresolved and self.relative_gap() > _SHORT)

    def warn(self) -> None:
        """Say that the method stopped short of the optimum."""
        warnings.warn(
            f"a lasso stopped short of its optimum by {self.relative_gap():.2g} of its objective: columns "
            "depend on one another to rounding; drop some, or add an l2 part",
            NotOptimalWarning,
            stacklevel=3,
        )

    def _approach(self, target: Array, halvings: int = _HALVINGS) -> None:
        """Go to the optimum for ``target``, by way of one half-way there if need be."""
        origin, state = self._l1, (self.slots, self.signs, self._beta)
        self._take_strengths(target)
        if self._pivot(careful=False):
            return
        # The method cycled: its state is worth less than the one it came from.
        self.slots, self.signs, self._beta = state
        self._refactor()
        self._forget_residual()
        halfway = _halfway(origin if state[0].size else self._emptying(target), target)
        if halvings == 0 or halfway is None:
            self._take_strengths(target)
            self._pivot(careful=True)
            return
        self._approach(halfway, halvings - 1)
        self._approach(target, halvings - 1)

    def _emptying(self, target: Array) -> Array:
        """Multiple of ``target`` at which no correlation with the response exceeds its strength."""
        proper = np.isfinite(target) & (target > 0)
        correlations = np.abs(_linalg.transposed_times(self._X, self._weights * self._response))
        ratio = (correlations[proper] / target[proper]).max(initial=1.0)
        return target * float(ratio)

    def _take_strengths(self, l1: Array) -> None:
        self._l1 = l1
        self._barred = np.isinf(l1)
        self._set_aside = np.zeros_like(self._barred)
        excluded = self._barred[self.support]
        if excluded.any():
            self._drop(excluded)
        # An unpenalised coordinate may have crossed zero.
        self.signs = np.where(self._beta == 0, self.signs, np.sign(self._beta))

    def _take_ridge(self, l2: Array) -> None:
        if np.array_equal(l2, self._l2):
            return
        self._l2 = l2
        self._known_leverages = None
        self._refactor()

    def _pivot(self, *, careful: bool) -> bool:
        """Let violators join and wrong signs leave until neither is left.

        Dropping several coordinates at once may cycle, and the objective then fails to fall.
        Careful single steps, each of which lowers it, cannot.

        Returns
        -------
        bool
            False if the objective failed to fall; never when ``careful``.
        """
        previous, stalled = np.inf, 0
        for _ in range(100 + 10 * sum(self._X.shape)):
            self._settle(one_at_a_time=careful)
            entering = self._violators()
            objective = self._objective()
            stalled = 0 if objective < previous else stalled + 1
            if entering.size == 0 or stalled > _PATIENCE:
                return True
            if stalled and not careful:
                return False
            previous = objective
            self._enter(entering)
        return True

    def _settle(self, *, one_at_a_time: bool) -> None:
        """Solve on the support, dropping coordinates until the signs agree."""
        while True:
            target, residual = self._stationary_point()
            wrong = (target * self.signs <= 0) & self._keeps_sign
            if not wrong.any():
                break
            if one_at_a_time:
                wrong = self._step_to_crossing(target, wrong)
            self._drop(wrong)
        self._beta, self._residual, self._correlation = target, residual, None

    def _stationary_point(self) -> tuple[Array, Array | None]:
        """``beta_S`` that solves the normal equations, and its residual if that was needed."""
        slope = self._l1[self.support] * self.signs
        beta = self.factor.solve(self._store.targets[self.slots] - slope)
        if self.factor.condition() > _ILL_CONDITIONED:
            return self._polished(beta)
        return beta, None

    def _step_to_crossing(self, target: Array, wrong: Mask) -> Mask:
        """Move towards ``target`` up to the first coordinate that changes sign; say which do."""
        share = np.full(target.size, np.inf)
        # A coordinate that just joined sits at zero and leaves at once if it heads the wrong way.
        held, beyond = np.abs(self._beta[wrong]), np.abs(target[wrong])
        share[wrong] = held / np.maximum(held + beyond, TINY)
        step = share.min()
        self._beta = self._beta + step * (target - self._beta)
        return share <= step

    @property
    def _keeps_sign(self) -> Mask:
        """Coordinates of the support that leave where their sign would change: (k,)."""
        return self._nonnegative | (self._l1[self.support] > 0)

    def _pulls(self) -> Array:
        """Correlations in the direction in which a coordinate may leave zero: (p,)."""
        correlations = self._current_correlations()
        return correlations if self._nonnegative else np.abs(correlations)

    def _violators(self) -> Index:
        """Columns outside the support whose correlation exceeds their strength, worst first."""
        allowed = self._l1 * (1 + _EXCESS) + self._rounding(self._beta)
        excess = self._pulls() - allowed
        excess[self.support] = -1.0
        excess[self._barred] = -1.0
        self._unresolved = int(np.count_nonzero(excess > 0))
        excess[self._set_aside] = -1.0
        found = np.flatnonzero(excess > 0)
        found = found[np.argsort(-excess[found], kind="stable")]
        # A support that at most doubles does not fill up with columns that must leave again.
        return found[: max(_BLOCK, self.slots.size)]

    def _enter(self, columns: Index) -> None:
        """Let independent violators join; if there is none, exchange the worst."""
        slots = self._store.slots(columns)
        constant = self._store.constant(slots)
        self._barred[columns[constant]] = True
        slots = slots[~constant]
        if slots.size and not self._join(slots, 0.0):
            self._exchange(slots[:1])

    def _exchange(self, slot: Index) -> None:
        """Bring in a violator that is nearly, or quite, dependent on the support.

        With ``a_j ~ A_S v``, raising ``s_j beta_j`` by ``t`` and taking ``t s_j v`` off ``beta_S``
        keeps the fit and lowers the penalty at the rate ``|c_j| - l1_j``, until a coordinate of
        the support reaches zero.  That one leaves.  A column at a small distance ``d`` from the
        span that has its optimum before, at ``(|c_j| - l1_j) / d^2``, joins instead.
        """
        column = int(self._store.owner[slot[0]])
        correlation = self._current_correlations()[column]
        sign = float(np.sign(correlation))
        fit, squared_distance = self._projection(slot)
        shrinking = (sign * fit * self.signs > 0) & self._keeps_sign
        share = np.full(fit.size, np.inf)  # of the penalised coordinates to zero
        share[shrinking] = self._beta[shrinking] / (sign * fit)[shrinking]
        step = float(share.min(initial=np.inf))
        if abs(correlation) - self._l1[column] < step * max(squared_distance, TINY):
            joined = self._join(slot, 0.0, squared_distance)
        else:
            self._beta = self._beta - step * sign * fit
            self._drop(np.arange(share.size) == share.argmin())
            joined = self._join(slot, step)
        self._set_aside[column] = not joined

    def _projection(self, slot: Index) -> tuple[Array, float]:
        """Fit of a column by the support, and its squared distance without cancellation."""
        fit = self.factor.solve(self._store.gram[self.slots, slot[0]])
        apart = self._store.times(slot, np.ones(1)) - self._store.times(self.slots, fit)
        ridge = self._l2[self._store.owner[slot[0]]] + fit @ (self._ridge() * fit)
        return fit, float(apart @ (self._weights * apart) + ridge)

    def _refine(self) -> None:
        """End on correlations of the support that are right to the last digits."""
        beta, self._residual = self._polished(self._beta)
        # A coordinate within rounding of zero must not end on the wrong side of it.
        wrong = (beta * self.signs < 0) & self._keeps_sign
        self._beta = np.where(wrong, 0.0, beta)
        self._correlation = None

    def _polished(self, beta: Array) -> tuple[Array, Array]:
        """Newton steps with the gradient of the residual itself; ``beta_S`` and the residual.

        The normal equations lose what forming ``A' W y - K beta`` cancels; the residual does not.
        One step is enough unless the support is close to dependent.
        """
        residual = self._residual_at(beta)
        rounding = self._rounding(beta)[self.support]
        slope = self._l1[self.support] * self.signs
        for _ in range(_REFINEMENTS):
            c = self._store.correlations(self._weights * residual)[self.slots]
            gradient = c - slope - self._ridge() * beta
            step = self.factor.solve(gradient)
            beta = beta + step
            # Taken off the residual rather than formed from ``y`` again, the step leaves
            # correlations right to rounding in the residual, which may be far smaller than ``y``.
            residual = residual - self.design_times(step)
            if bool((np.abs(gradient) <= rounding).all()):
                break
        return beta, residual


def _halfway(origin: Array, target: Array) -> Array | None:
    """Geometric mean of two sets of strengths where that is proper; None if they are close."""
    proper = np.isfinite(origin) & np.isfinite(target) & (origin > 0) & (target > 0)
    middle = target.copy()
    middle[proper] = np.sqrt(origin[proper] * target[proper])
    apart = np.abs(middle[proper] - target[proper]) > _CLOSE * target[proper]
    return middle if apart.any() else None

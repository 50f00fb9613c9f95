"""The exact active-set method for squared loss with an l1 or elastic net penalty.

It solves, for row weights ``w`` and column strengths ``l1`` and ``l2``,

    minimise over (beta, b):
        1/2 sum_i w_i (y_i - x_i' beta - b)^2 + sum_j l1_j |beta_j| + 1/2 sum_j l2_j beta_j^2.

On the support ``S`` with signs ``s`` the optimum is linear algebra,
``K_SS beta_S = A_S' W y - l1_S s``, with centred columns ``A`` and ``K = A' W A + diag(l2)``.
One Cholesky factor of ``K_SS``, updated as columns join and leave, serves the solver, the
leverages and every later solve.
"""

from __future__ import annotations

import warnings
from typing import Any, final

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cholesky import UpdatableCholesky
from onefit.solvers.column_store import ColumnStore
from onefit.solvers.leverages import Leverages, directions_since

# A column whose squared distance from the span of the support is below this share of its squared
# length counts as dependent: rounding in the Gram matrix, amplified by an ill-conditioned support,
# stays below it.
_DEPENDENT = 1e-10
# The same where the ridge part keeps K positive definite: only rounding in K itself is left.
_DEPENDENT_WITH_RIDGE = 1e-13
# Relative excess of a correlation over its strength that still counts as optimal; the duality gap
# inherits it.
_EXCESS = 1e-12
# Violators that may join at once, however small the support.
_BLOCK = 64
# Rounds without progress, in single steps, after which rounding is all that is left.
_PATIENCE = 5
# How often the way from one set of strengths to the next may be halved when the method cycles.
_HALVINGS = 6
# Condition number beyond which the normal equations alone are too coarse to choose the next pivot,
# and the most steps of refinement.
_ILL_CONDITIONED = 1e6
_REFINEMENTS = 4
# Strengths this near to one another, relatively, are not worth halving.
_CLOSE = 0.02
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


@final
class ActiveSet:
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

    Attributes
    ----------
    rounds : int
        Number of rounds (one product ``X' r`` each) since construction.
    """

    def __init__(self, X: Any, y: Array, weights: Array | None = None, *, fit_intercept: bool = True) -> None:
        self._X = _linalg.by_column(X)
        self._fit_intercept = fit_intercept
        n, p = self._X.shape
        self._lengths = _linalg.column_norms(self._X, np.ones(n), centred=False)
        self._l1: Array = np.zeros(p)
        self._l2: Array = np.zeros(p)
        self._factor = UpdatableCholesky(min(p, 32))
        self._barred: Mask = np.zeros(p, dtype=np.bool_)
        self._set_aside: Mask = np.zeros(p, dtype=np.bool_)
        self.rounds = 0
        self._unresolved = 0
        self._slots: Index = np.empty(0, dtype=np.intp)
        self._signs: Array = np.empty(0)
        self._beta: Array = np.empty(0)
        self._residual: Array | None = None
        self._correlation: Array | None = None
        self._set_response(y, weights)

    # --- the problem ----------------------------------------------------------------------------

    def reweight(self, y: Array, weights: Array | None = None) -> None:
        """Exchange response and weights; support and signs stay as the warm start.

        Call `solve` next: until then the coefficients are those of the old problem.
        """
        columns = self.support
        self._set_response(y, weights)
        self._slots = self._store.slots(columns)
        self._refactor()

    def _set_response(self, y: Array, weights: Array | None) -> None:
        self._weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        self._mass = float(y.size if self._weights is None else self._weights.sum())
        if not self._mass > 0:
            msg = "weights must have a positive sum"
            raise ValueError(msg)
        y = np.asarray(y, dtype=np.float64)
        self._mean = self._average(y) if self._fit_intercept else 0.0
        self._response = y - self._mean
        self._store = ColumnStore(self._X, self._response, self._weights, centre=self._fit_intercept)
        # What rounding in a response of unit length does to each correlation.
        largest = 1.0 if self._weights is None else float(self._weights.max())
        self._noise = 8 * _EPS * largest * self._lengths
        self._spread = float(np.linalg.norm(self._response))
        self._leverages = Leverages(self._response.size, self.intercept_leverage)
        self._forget_residual()

    def _weigh(self, v: Array) -> Array:
        return v if self._weights is None else self._weights * v

    def _average(self, v: Array) -> float:
        return float(self._weigh(v).sum()) / self._mass

    @property
    def intercept_leverage(self) -> float:
        """Leverage of the intercept, 1 / sum(w) times each weight, or 0 without one."""
        return 1.0 / self._mass if self._fit_intercept else 0.0

    # --- the solution ---------------------------------------------------------------------------

    @property
    def support(self) -> Index:
        """Active columns of ``X``, shape (k,), in the order of the factor."""
        return self._store.owner[self._slots]

    @property
    def coef(self) -> Array:
        """``beta``, shape (p,)."""
        coef = np.zeros(self._l1.size)
        coef[self.support] = self._beta
        return coef

    @property
    def intercept(self) -> float:
        """``b``."""
        return self._mean - float(self._store.means[self._slots] @ self._beta)

    @property
    def eta(self) -> Array:
        """Linear predictor ``X beta + b``, shape (n,)."""
        return self._mean + self._response - self._current_residual()

    @property
    def signs(self) -> Array:
        """Signs of ``beta`` on the support, shape (k,)."""
        return self._signs

    def relative_gap(self) -> float:
        """Duality gap at the current strengths, relative to the objective.

        The dual point is the residual, scaled by ``t <= 1`` until every column without a ridge
        part is feasible.  As a sum of non-negative terms the gap suffers no cancellation:

            (1 - t)^2 |r|^2 / 2
            + sum_j l1_j |beta_j| + l2_j beta_j^2 / 2 - t c_j beta_j
                    + (t |c_j| - l1_j)_+^2 / (2 l2_j)

        An unpenalised column needs ``c_j = 0``: the gap is infinite unless that holds to rounding.
        """
        c = self._current_correlations()
        free = (self._l1 == 0) & (self._l2 == 0)
        if (np.abs(c) > 100 * self._rounding(self._beta))[free].any():
            return np.inf
        used = np.isfinite(self._l1) & ~free
        slack, t = _slack(c[used], self.coef[used], self._l1[used], self._l2[used])
        residual = self._current_residual()
        loss = 0.5 * float(residual @ self._weigh(residual))
        null = float(self._response @ self._weigh(self._response))
        return ((1 - t) ** 2 * loss + slack) / max(self._objective(), _EPS * null, _TINY)

    # --- the factor -----------------------------------------------------------------------------

    def solve_factor(self, rhs: Array) -> Array:
        """``K_SS^-1 rhs`` for ``rhs`` of shape (k,) or (k, r), with the intercept profiled out."""
        return self._factor.solve(rhs)

    @property
    def condition(self) -> float:
        """Condition of the factor, scaled to a unit diagonal, about."""
        return _linalg.condition(self._factor.upper.T)

    def design_times(self, v: Array) -> Array:
        """``A_S v``, shape (n,), with the centred columns of the support."""
        return self._store.times(self._slots, v)

    @property
    def means(self) -> Array:
        """Weighted means of the support's columns, shape (k,); zeros without an intercept."""
        return self._store.means[self._slots]

    @property
    def columns(self) -> Array:
        """Centred columns ``A_S`` of the support, shape (n, k), Fortran-ordered; a copy."""
        return self._store.matrix.T[self._slots].T

    def quadratic_forms(self) -> Array:
        """``h_i = z_i' K^-1 z_i``, shape (n,), with ``Z = [X_S, 1]``.

        Profiling the intercept out turns this into ``a_i' K_SS^-1 a_i + 1 / sum(w)``, the last
        term only with an intercept.  The leverages follow the support from one call to the next
        where that is cheaper than computing them afresh.
        """
        return self._leverages.at(self._store, self._slots, self._factor, self._l2)

    @property
    def slots(self) -> Index:
        """Places of the support's columns in the store, shape (k,)."""
        return self._slots

    def directions_since(self, slots: Index) -> tuple[Array, Array, bool]:
        """By which directions leverages change, from those of an earlier support to those of this one.

        Parameters
        ----------
        slots : (j,) int array
            Of the earlier support.

        Returns
        -------
        directions : (p, m) array
        signs : (m,) array
            Whether the square along a direction is added or taken off.
        afresh : bool
            Whether they are to be added to nothing.
        """
        afresh = False
        changed = directions_since(slots, self._store, self._slots, self._factor, self._l2)
        if changed is None:
            k, afresh = self._slots.size, True
            own = np.zeros((self._l1.size, k))
            own[self.support], joined = self._factor.back_solve(np.eye(k)), k
        else:
            own = np.zeros((self._l1.size, changed[0].shape[1]))
            own[self._store.owner[: self._store.count]], joined = changed
        signs = np.where(np.arange(own.shape[1]) < joined, 1.0, -1.0)
        return own, signs, afresh

    # --- the method -----------------------------------------------------------------------------

    def solve(self, l1: float | Array, l2: float | Array = 0.0) -> None:
        """Move to the optimum for new strengths.

        Parameters
        ----------
        l1 : float or array, shape (p,)
            Strengths of the absolute values; 0 leaves a column unpenalised, infinity excludes it.
        l2 : float or array, shape (p,)
            Strengths of the squares, finite.

        Warns
        -----
        RuntimeWarning
            If rounding or a degenerate design stopped the method short of the optimum.
        """
        p = self._l1.size
        self._take_ridge(np.full(p, l2) if np.ndim(l2) == 0 else np.array(l2, dtype=np.float64))
        self._approach(np.full(p, l1) if np.ndim(l1) == 0 else np.array(l1, dtype=np.float64))
        self._refine()
        if self._unresolved and self.relative_gap() > 1e-8:
            msg = f"stopped with {self._unresolved} correlations above their strength"
            warnings.warn(msg, RuntimeWarning, stacklevel=2)

    def _approach(self, target: Array, halvings: int = _HALVINGS) -> None:
        """Go to the optimum for ``target``, by way of one half-way there if need be."""
        origin, state = self._l1, (self._slots, self._signs, self._beta)
        self._take_strengths(target)
        if self._pivot(careful=False):
            return
        # The method cycled: its state is worth less than the one it came from.
        self._slots, self._signs, self._beta = state
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
        correlations = np.abs(_linalg.transposed_times(self._X, self._weigh(self._response)))
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
        self._signs = np.where(self._beta == 0, self._signs, np.sign(self._beta))

    def _take_ridge(self, l2: Array) -> None:
        if np.array_equal(l2, self._l2):
            return
        self._l2 = l2
        self._leverages.invalidate()
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
            wrong = (target * self._signs <= 0) & (self._l1[self.support] > 0)
            if not wrong.any():
                break
            if one_at_a_time:
                wrong = self._step_to_crossing(target, wrong)
            self._drop(wrong)
        self._beta, self._residual, self._correlation = target, residual, None

    def _stationary_point(self) -> tuple[Array, Array | None]:
        """``beta_S`` that solves the normal equations, and its residual if that was needed."""
        slope = self._l1[self.support] * self._signs
        beta = self._factor.solve(self._store.targets[self._slots] - slope)
        if self._factor.condition() > _ILL_CONDITIONED:
            return self._polished(beta)
        return beta, None

    def _step_to_crossing(self, target: Array, wrong: Mask) -> Mask:
        """Move towards ``target`` up to the first coordinate that changes sign; say which do."""
        share = np.full(target.size, np.inf)
        # A coordinate that just joined sits at zero and leaves at once if it heads the wrong way.
        held, beyond = np.abs(self._beta[wrong]), np.abs(target[wrong])
        share[wrong] = held / np.maximum(held + beyond, _TINY)
        step = share.min()
        self._beta = self._beta + step * (target - self._beta)
        return share <= step

    def _violators(self) -> Index:
        """Columns outside the support whose correlation exceeds their strength, worst first."""
        self.rounds += 1
        allowed = self._l1 * (1 + _EXCESS) + self._rounding(self._beta)
        excess = np.abs(self._current_correlations()) - allowed
        excess[self.support] = -1.0
        excess[self._barred] = -1.0
        self._unresolved = int(np.count_nonzero(excess > 0))
        excess[self._set_aside] = -1.0
        found = np.flatnonzero(excess > 0)
        found = found[np.argsort(-excess[found], kind="stable")]
        # A support that at most doubles does not fill up with columns that must leave again.
        return found[: max(_BLOCK, self._slots.size)]

    def _rounding(self, beta: Array) -> Array:
        """Error to expect in each correlation, from the terms that cancel in the residual; (p,)."""
        squares = self._store.gram[self._slots, self._slots]  # of the centred columns: only they are fitted
        fitted = float(np.sqrt(squares @ beta**2))
        return (self._spread + fitted) * self._noise

    def _objective(self) -> float:
        residual = self._current_residual()
        penalty = self._l1[self.support] @ np.abs(self._beta)
        loss = residual @ self._weigh(residual) + self._beta @ (self._ridge() * self._beta)
        return float(penalty + 0.5 * loss)

    def _enter(self, columns: Index) -> None:
        """Let independent violators join; if there is none, exchange the worst."""
        slots = self._store.slots(columns)
        constant = self._store.constant(slots)
        self._barred[columns[constant]] = True
        slots = slots[~constant]
        if slots.size and not self._join(slots, 0.0):
            self._exchange(slots[:1])

    def _join(self, slots: Index, beta: float, distance: float = 0.0) -> bool:
        """Append columns, as far as they are independent; say whether any was.

        The squared ``distance`` of a single column, where known better than from its pivot, may
        vouch for its independence.
        """
        gram = self._store.gram
        block = gram[np.ix_(slots, slots)]
        ridge = self._l2[self._store.owner[slots]]
        block[np.diag_indices_from(block)] += ridge
        cross = gram[np.ix_(slots, self._slots)].T
        if distance > _EPS * block[0, 0]:
            accepted = self._factor.append_at(cross, distance)
        else:
            floor = _pivot_floor(block.diagonal(), ridge)
            accepted = self._factor.append(cross, block.T, floor)
        joined = slots[accepted]
        signs = np.sign(self._current_correlations()[self._store.owner[joined]])
        self._slots = np.concatenate([self._slots, joined])
        self._signs = np.concatenate([self._signs, signs])
        self._beta = np.concatenate([self._beta, beta * signs])
        return joined.size > 0

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
        share = self._steps_to_zero(sign * fit)
        step = float(share.min(initial=np.inf))
        if abs(correlation) - self._l1[column] < step * max(squared_distance, _TINY):
            joined = self._join(slot, 0.0, squared_distance)
        else:
            self._beta = self._beta - step * sign * fit
            self._drop(np.arange(share.size) == share.argmin())
            joined = self._join(slot, step)
        self._set_aside[column] = not joined

    def _projection(self, slot: Index) -> tuple[Array, float]:
        """Fit of a column by the support, and its squared distance without cancellation."""
        fit = self._factor.solve(self._store.gram[self._slots, slot[0]])
        apart = self._store.times(slot, np.ones(1)) - self._store.times(self._slots, fit)
        ridge = self._l2[self._store.owner[slot[0]]] + fit @ (self._ridge() * fit)
        return fit, float(apart @ self._weigh(apart) + ridge)

    def _steps_to_zero(self, direction: Array) -> Array:
        """Step against ``direction`` at which each penalised coordinate is zero, or infinity."""
        shrinking = (direction * self._signs > 0) & (self._l1[self.support] > 0)
        share = np.full(direction.size, np.inf)
        share[shrinking] = self._beta[shrinking] / direction[shrinking]
        return share

    def _refine(self) -> None:
        """End on correlations of the support that are right to the last digits."""
        beta, self._residual = self._polished(self._beta)
        # A coordinate within rounding of zero must not end on the wrong side of it.
        wrong = (beta * self._signs < 0) & (self._l1[self.support] > 0)
        self._beta = np.where(wrong, 0.0, beta)
        self._correlation = None

    def _polished(self, beta: Array) -> tuple[Array, Array]:
        """Newton steps with the gradient of the residual itself; ``beta_S`` and the residual.

        The normal equations lose what forming ``A' W y - K beta`` cancels; the residual does not.
        One step is enough unless the support is close to dependent.
        """
        residual = self._residual_at(beta)
        rounding = self._rounding(beta)[self.support]
        slope = self._l1[self.support] * self._signs
        for _ in range(_REFINEMENTS):
            c = self._store.correlations(self._weigh(residual))[self._slots]
            gradient = c - slope - self._ridge() * beta
            step = self._factor.solve(gradient)
            beta = beta + step
            # Taken off the residual rather than formed from ``y`` again, the step leaves
            # correlations right to rounding in the residual, which may be far smaller than ``y``.
            residual = residual - self.design_times(step)
            if bool((np.abs(gradient) <= rounding).all()):
                break
        return beta, residual

    # --- support and caches ---------------------------------------------------------------------

    def _ridge(self) -> Array:
        return self._l2[self.support]

    def _drop(self, leaving: Mask) -> None:
        self._factor.delete(np.flatnonzero(leaving))
        self._keep(~leaving)

    def _keep(self, which: Mask | Index) -> None:
        self._slots = self._slots[which]
        self._signs = self._signs[which]
        self._beta = self._beta[which]

    def _refactor(self) -> None:
        """Factor ``K_SS`` from the Gram matrix, shedding columns that have become dependent."""
        self._factor.clear()
        ridge = self._ridge()
        block = self._store.gram[np.ix_(self._slots, self._slots)] + np.diag(ridge)
        cross = np.empty((0, ridge.size))
        if ridge.size:
            floor = _pivot_floor(block.diagonal(), ridge)
            self._keep(self._factor.append(cross, block.T, floor))

    def _forget_residual(self) -> None:
        self._residual = None
        self._correlation = None

    def _current_residual(self) -> Array:
        if self._residual is None:
            self._residual = self._residual_at(self._beta)
        return self._residual

    def _residual_at(self, beta: Array) -> Array:
        """``y - eta``, shape (n,)."""
        residual = self._response - self.design_times(beta)
        if self._fit_intercept:
            # Rounding only, but a column far from zero would magnify it.
            residual -= self._average(residual)
        return residual

    def _current_correlations(self) -> Array:
        """``X' W r``, shape (p,); weighted residuals sum to zero, so ``X`` needs no centring."""
        if self._correlation is None:
            self._correlation = _linalg.transposed_times(self._X, self._weigh(self._current_residual()))
        return self._correlation


def _slack(c: Array, beta: Array, l1: Array, l2: Array) -> tuple[float, float]:
    """Penalty's part of the duality gap, and the factor ``t`` that makes the residual feasible."""
    hard = (l2 == 0) & (np.abs(c) > l1)
    t = float((l1[hard] / np.abs(c[hard])).min(initial=1.0))
    excess = np.maximum(t * np.abs(c) - l1, 0.0) ** 2
    conjugate = np.divide(excess, 2 * l2, out=np.zeros_like(c), where=l2 > 0)
    terms = l1 * np.abs(beta) + 0.5 * l2 * beta**2 - t * c * beta + conjugate
    return float(np.abs(terms).sum()), t


def _halfway(origin: Array, target: Array) -> Array | None:
    """Geometric mean of two sets of strengths where that is proper; None if they are close."""
    proper = np.isfinite(origin) & np.isfinite(target) & (origin > 0) & (target > 0)
    middle = target.copy()
    middle[proper] = np.sqrt(origin[proper] * target[proper])
    apart = np.abs(middle[proper] - target[proper]) > _CLOSE * target[proper]
    return middle if apart.any() else None


def _pivot_floor(diagonal: Array, ridge: Array) -> Array:
    """Squared distance from the span of the support below which a column is dependent.

    A ridge part bounds the distance from below by itself, whatever the columns.
    """
    floor = _DEPENDENT * diagonal
    vouched = np.clip(0.5 * ridge, _DEPENDENT_WITH_RIDGE * diagonal, floor)
    return np.where(ridge > 0, vouched, floor)

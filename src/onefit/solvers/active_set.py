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
from typing import Any, Protocol, final

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas, lapack

from onefit._cholesky import UpdatableCholesky
from onefit._typing import Array, Index, Mask

# A column whose squared distance from the span of the support is below this share of its squared
# length counts as dependent: rounding in the Gram matrix, amplified by an ill-conditioned support,
# stays below it.
_DEPENDENT = 1e-10
# The same where the ridge part keeps K positive definite: only rounding in K itself is left.
_DEPENDENT_WITH_RIDGE = 1e-13
# A column shorter than this after centring, relative to its length before, is constant.
_CONSTANT = 1e-13
# Relative excess of a correlation over its strength that still counts as optimal; the duality gap
# inherits it.
_EXCESS = 1e-12
# Relative rounding that following the leverages may gather before they are computed afresh, and the
# relative squared length below which a direction that joined or left is not followed at all.
_DRIFT = 1e-12
_UNSAFE = 1e-4
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


class _Design(Protocol):
    """What the method asks of ``X``: a product with every column, and a few columns."""

    shape: tuple[int, int]

    def correlations(self, v: Array) -> Array:
        """``X' v``, shape (p,)."""

    def columns(self, which: Index) -> Array:
        """Columns of ``X`` as rows, shape (len(which), n)."""

    def lengths(self) -> Array:
        """Euclidean length of each column, shape (p,)."""


@final
class _DenseDesign:
    def __init__(self, X: Array) -> None:
        X = np.asarray(X, dtype=np.float64)
        contiguous = X.flags.f_contiguous or X.flags.c_contiguous
        self._X = X if contiguous else np.asfortranarray(X)
        self.shape = X.shape

    def correlations(self, v: Array) -> Array:
        # The BLAS wrapper reads Fortran order in place; a row-major X is its own transpose.
        if self._X.flags.f_contiguous:
            return blas.dgemv(1.0, self._X, v, trans=1)
        return blas.dgemv(1.0, self._X.T, v)

    def columns(self, which: Index) -> Array:
        return self._X.T[which]

    def lengths(self) -> Array:
        return np.sqrt(np.einsum("ij,ij->j", self._X, self._X))


@final
class _SparseDesign:
    def __init__(self, X: Any) -> None:
        self._X = sp.csc_array(X, dtype=np.float64)
        self._rows_by_column = self._X.T
        self.shape = self._X.shape

    def correlations(self, v: Array) -> Array:
        return self._rows_by_column @ v

    def columns(self, which: Index) -> Array:
        return self._rows_by_column[which].toarray()

    def lengths(self) -> Array:
        return np.sqrt(np.asarray(self._X.power(2).sum(axis=0)).ravel())


@final
class _ColumnStore:
    """Every column that was ever active, centred, with its inner products.

    A stored column has a *slot*, its place in the growable buffers; slots never move.

    Attributes
    ----------
    count : int
        Number ``m`` of stored columns.
    owner : array, shape (m or more,)
        Column of ``X`` in each slot.
    means : array, shape (m or more,)
        Weighted means that the centring took off.
    gram : array, shape (m or more, m or more)
        ``A' W A``.
    targets : array, shape (m or more,)
        ``A' W y`` for the centred response ``y``.
    """

    def __init__(self, design: _Design, response: Array, weights: Array | None, *, centre: bool) -> None:
        n, p = design.shape
        self._design = design
        self._response = response
        self._weights = weights
        self._centre = centre
        self._slot_of = np.full(p, -1, dtype=np.intp)
        self.count = 0
        capacity = min(p, 32)
        self._columns: Array = np.empty((capacity, n))
        self.gram: Array = np.zeros((capacity, capacity))
        self.owner: Index = np.empty(capacity, dtype=np.intp)
        self.means: Array = np.zeros(capacity)
        self.targets: Array = np.zeros(capacity)

    @property
    def matrix(self) -> Array:
        """``A``, shape (n, m), Fortran-ordered."""
        return self._columns[: self.count].T

    def slots(self, columns: Index) -> Index:
        """Slots of the given columns of ``X``, storing those that are new."""
        new = columns[self._slot_of[columns] < 0]
        if new.size:
            self._store(new)
        return self._slot_of[columns]

    def times(self, slots: Index, v: Array) -> Array:
        """``A_slots v``, shape (n,)."""
        if slots.size == 0:
            return np.zeros(self._response.size)
        # Zeros for the stored but idle columns cost less than gathering the others.
        scattered = np.zeros(self.count)
        scattered[slots] = v
        return blas.dgemv(1.0, self.matrix, scattered)

    def correlations(self, weighted_residual: Array) -> Array:
        """Correlations ``A' (W r)`` of the stored columns, shape (m,)."""
        if self.count == 0:
            return np.zeros(0)
        return blas.dgemv(1.0, self.matrix, weighted_residual, trans=1)

    def constant(self, slots: Index) -> Mask:
        """Whether centring left nothing of a column."""
        scale = self.gram[slots, slots]
        mass = self._response.size if self._weights is None else self._weights.sum()
        return scale <= _CONSTANT**2 * (scale + mass * self.means[slots] ** 2)

    def _store(self, new: Index) -> None:
        start, stop = self.count, self.count + new.size
        self._reserve(stop)
        fresh = self._columns[start:stop]
        fresh[:] = self._design.columns(new)
        if self._centre:
            self.means[start:stop] = _weighted_means(fresh, self._weights)
            fresh -= self.means[start:stop, None]
        self.owner[start:stop] = new
        self._slot_of[new] = np.arange(start, stop)
        self.count = stop
        weighted = fresh if self._weights is None else fresh * self._weights
        products = blas.dgemm(1.0, self.matrix, weighted.T, trans_a=1)
        self.gram[start:stop, :stop] = products.T
        self.gram[:start, start:stop] = products[:start]
        self.targets[start:stop] = blas.dgemv(1.0, weighted.T, self._response, trans=1)

    def _reserve(self, size: int) -> None:
        capacity = self.owner.size
        if size <= capacity:
            return
        capacity = min(max(2 * capacity, size), self._slot_of.size)
        m = self.count
        columns, gram = self._columns, self.gram
        self._columns = np.empty((capacity, columns.shape[1]))
        self._columns[:m] = columns[:m]
        self.gram = np.zeros((capacity, capacity))
        self.gram[:m, :m] = gram[:m, :m]
        self.owner = np.resize(self.owner, capacity)
        self.means = np.concatenate([self.means, np.zeros(capacity - self.means.size)])
        self.targets = np.concatenate([self.targets, np.zeros(capacity - self.targets.size)])


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
        self._design: _Design = _SparseDesign(X) if sp.issparse(X) else _DenseDesign(X)
        self._fit_intercept = fit_intercept
        self._lengths = self._design.lengths()
        p = self._design.shape[1]
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
        self._store = _ColumnStore(self._design, self._response, self._weights, centre=self._fit_intercept)
        # What rounding in a response of unit length does to each correlation.
        largest = 1.0 if self._weights is None else float(self._weights.max())
        self._noise = 8 * _EPS * largest * self._lengths
        self._spread = float(np.linalg.norm(self._response))
        self._leverages = _Leverages(self._response.size, self.intercept_leverage)
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
        correlations = np.abs(self._design.correlations(self._weigh(self._response)))
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
        for _ in range(100 + 10 * sum(self._design.shape)):
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
        fitted = float(np.linalg.norm(self._lengths[self.support] * beta))
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
            self._correlation = self._design.correlations(self._weigh(self._current_residual()))
        return self._correlation


@final
class _Leverages:
    """Leverages that follow the support.

    Between supports ``S0`` and ``S1`` with intersection ``I``, only the directions that left and
    those that joined matter:

        h(S1) = h(S0) - rowsums(P_left^2) + rowsums(P_joined^2),

    where ``P`` holds the columns outside ``I``, made orthogonal to ``A_I`` and to one another in
    the metric of ``K``.
    """

    def __init__(self, n: int, base: float) -> None:
        self._base = base
        self._slots: Index | None = None
        self._value: Array = np.full(n, base)
        self._drift = 0.0

    def invalidate(self) -> None:
        """Weights or ridge strengths changed: start afresh at the next call."""
        self._slots = None

    def at(self, store: _ColumnStore, slots: Index, factor: UpdatableCholesky, l2: Array) -> Array:
        """Leverages on the columns in ``slots``, in the order of ``factor``; shape (n,)."""
        value = self._follow(store, slots, factor, l2)
        # Rounding was relative to leverages that may have been larger than these.
        if value is None or self._drift > _DRIFT * value.max():
            value = self._base + _afresh(store, slots, factor)
            self._drift = 0.0
        self._drift += _EPS * factor.condition() * float(value.max())
        self._value, self._slots = value, slots
        return value.copy()

    def _follow(
        self, store: _ColumnStore, slots: Index, factor: UpdatableCholesky, l2: Array
    ) -> Array | None:
        """Leverages by way of those of the last call; None where afresh is cheaper or safer."""
        if self._slots is None:
            return None
        before, now = np.zeros((2, store.count), dtype=np.bool_)
        before[self._slots] = now[slots] = True
        joined = np.flatnonzero(~before[slots])
        left = np.flatnonzero(before & ~now)
        changed = joined.size + left.size
        if changed == 0:
            return self._value
        if 2 * changed > slots.size:
            return None
        directions = _exchanged_directions(store, slots, factor, l2, joined, left)
        if directions is None:
            return None
        squares = blas.dgemm(1.0, store.matrix, directions).T ** 2
        return self._value + squares[: joined.size].sum(axis=0) - squares[joined.size :].sum(axis=0)


def _afresh(store: _ColumnStore, slots: Index, factor: UpdatableCholesky) -> Array:
    """``a_i' K_SS^-1 a_i`` as the squared rows of ``A_S R^-1``, shape (n,)."""
    columns = store.matrix.T[slots].T
    if slots.size:
        columns = _divide(columns, factor.upper)
    return np.square(columns.T).sum(axis=0)


def _exchanged_directions(
    store: _ColumnStore,
    slots: Index,
    factor: UpdatableCholesky,
    l2: Array,
    joined: Index,
    left: Index,
) -> Array | None:
    """Coefficients, on the stored columns, of the directions that joined, then of those that left.

    For the joined coordinates ``J`` let ``T = K^-1 E_J`` and ``M = T_J``: the joined directions are
    ``A_S T M^-1/2``.  Eliminating ``J`` from the present factor projects what left, ``L``, on the
    common columns ``I``: with ``Y = K^-1 K_IL``, ``V = Y - T M^-1 Y_J`` equals ``K_II^-1 K_IL``.
    Then ``N = K_LL - K_LI V``, and the directions that left are ``(A_L - A_I V) N^-1/2``.

    Returns
    -------
    array, shape (m, number of directions), or None
        None if a direction is too short to be told from rounding.
    """
    count = joined.size
    rhs = np.zeros((slots.size, count + left.size), order="F")
    rhs[joined, np.arange(count)] = 1.0
    common = store.gram[np.ix_(slots, left)]
    common[joined] = 0.0
    rhs[:, count:] = common
    solved = factor.solve(rhs)
    gained, fit = solved[:, :count], solved[:, count:]
    root = _root(gained[joined], gained[joined].diagonal())
    if root is None:
        return None
    gained = _divide(gained, root)
    fit = fit - blas.dgemm(1.0, gained, _divide(fit[joined].T, root), trans_b=1)
    lost = store.gram[np.ix_(left, left)] + np.diag(l2[store.owner[left]])
    root = _root(lost - blas.dgemm(1.0, common, fit, trans_a=1), lost.diagonal())
    if root is None:
        return None
    directions = np.zeros((store.count, rhs.shape[1]), order="F")
    directions[slots, :count] = gained
    directions[slots, count:] = _divide(-fit, root)
    directions[left, count:] = _divide(np.eye(left.size), root)
    return directions


def _root(block: Array, scale: Array) -> Array | None:
    """Upper Cholesky factor, or None where a pivot is too small a share of its ``scale``."""
    if block.size == 0:
        return block
    root, info = lapack.dpotrf(block, lower=0, clean=1)
    if info != 0 or bool((root.diagonal() ** 2 <= _UNSAFE * scale).any()):
        return None
    return root


def _divide(rows: Array, upper: Array) -> Array:
    """``rows R^-1`` for an upper triangular ``R``."""
    return blas.dtrsm(1.0, upper, rows, side=1) if rows.size else rows


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


def _weighted_means(rows: Array, weights: Array | None) -> Array:
    """Weighted mean of each row."""
    if weights is None:
        return rows.mean(axis=1)
    return blas.dgemv(1.0 / weights.sum(), rows.T, weights, trans=1)

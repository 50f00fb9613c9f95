"""A support of a squared loss with an l1 or elastic net penalty, its factor, and what is read from them.

On the support ``S`` with signs ``s`` the optimum is linear algebra,
``K_SS beta_S = A_S' W y - l1_S s``, with centred columns ``A`` and ``K = A' W A + diag(l2)``.
One Cholesky factor of ``K_SS``, updated as columns join and leave, serves the solver, the
leverages and every later solve.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cholesky import UpdatableCholesky
from onefit.numerics import EPS, TINY
from onefit.solvers.column_store import ColumnStore
from onefit.solvers.leverages import afresh, followed

# A column whose squared distance from the span of the support is below this share of its squared
# length counts as dependent: rounding in the Gram matrix, amplified by an ill-conditioned support,
# stays below it.
_DEPENDENT = 1e-10
# The same where the ridge part keeps K positive definite: only rounding in K itself is left.
_DEPENDENT_WITH_RIDGE = 1e-13
# Relative rounding that following the leverages may gather before they are computed afresh.
_DRIFT = 1e-12


class Support:
    """Columns that are in, their signs and coefficients, and the factor of their normal equations.

    ``ActiveSet`` says what it is made of.

    Attributes
    ----------
    slots : (k,) int array
        Places of the support's columns in the store, in the order of the factor.
    signs : (k,) array
        Signs of ``beta`` on the support.
    factor : UpdatableCholesky
        Of ``K_SS``, with the intercept profiled out.
    """

    def __init__(self, X: Any, y: Array, weights: Array | None = None, *, fit_intercept: bool = True) -> None:
        self._X = _linalg.as_columns(X).by_column()
        self._fit_intercept = fit_intercept
        n, p = self._X.shape
        self._l1: Array = np.zeros(p)
        self._l2: Array = np.zeros(p)
        self.factor = UpdatableCholesky(min(p, 32))
        self.slots: Index = np.empty(0, dtype=np.intp)
        self.signs: Array = np.empty(0)
        self._beta: Array = np.empty(0)
        self._weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
        self._mass = float(self._weights.sum())
        if not self._mass > 0:
            raise ValueError("weights must have a positive sum")
        y = np.asarray(y, dtype=np.float64)
        self._mean = self._average(y) if self._fit_intercept else 0.0
        self._response = y - self._mean
        self._store = ColumnStore(self._X, self._response, self._weights, centre=self._fit_intercept)
        # What rounding in a response of unit length does to each correlation.
        lengths = _linalg.column_lengths(self._X)
        self._noise = 8 * EPS * float(self._weights.max()) * lengths
        self._spread = float(np.linalg.norm(self._response))
        self._known_leverages: tuple[Index, Array] | None = None
        self._drift = 0.0
        self._forget_residual()

    def _average(self, v: Array) -> float:
        return float(self._weights @ v) / self._mass

    # --- the solution ---------------------------------------------------------------------------

    @property
    def support(self) -> Index:
        """Active columns of ``X``, shape (k,), in the order of the factor."""
        return self._store.owner[self.slots]

    @property
    def coef(self) -> Array:
        """``beta``, shape (p,)."""
        coef = np.zeros(self._l1.size)
        coef[self.support] = self._beta
        return coef

    @property
    def intercept(self) -> float:
        """``b``."""
        return self._mean - float(self._store.means[self.slots] @ self._beta)

    @property
    def eta(self) -> Array:
        """Linear predictor ``X beta + b``, shape (n,)."""
        return self._mean + self._response - self._current_residual()

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
        loss = 0.5 * float(residual @ (self._weights * residual))
        null = float(self._response @ (self._weights * self._response))
        return ((1 - t) ** 2 * loss + slack) / max(self._objective(), EPS * null, TINY)

    def _objective(self) -> float:
        residual = self._current_residual()
        penalty = self._l1[self.support] @ np.abs(self._beta)
        loss = residual @ (self._weights * residual) + self._beta @ (self._ridge() * self._beta)
        return float(penalty + 0.5 * loss)

    # --- the factor -----------------------------------------------------------------------------

    def design_times(self, v: Array) -> Array:
        """``A_S v``, shape (n,), with the centred columns of the support."""
        return self._store.times(self.slots, v)

    @property
    def means(self) -> Array:
        """Weighted means of the support's columns, shape (k,); zeros without an intercept."""
        return self._store.means[self.slots]

    def quadratic_forms(self) -> Array:
        """``h_i = z_i' K^-1 z_i``, shape (n,), with ``Z = [X_S, 1]``.

        Profiling the intercept out turns this into ``a_i' K_SS^-1 a_i + 1 / sum(w)``, the last
        term only with an intercept.  The leverages follow the support from one call to the next
        where that is cheaper than computing them afresh.
        """
        known, value = self._known_leverages, None
        if known is not None:
            value = followed(*known, self._store, self.slots, self.factor, self._l2)
        # Rounding was relative to leverages that may have been larger than these.
        if value is None or self._drift > _DRIFT * value.max():
            value = self._fit_intercept / self._mass + afresh(self._store, self.slots, self.factor)
            self._drift = 0.0
        self._drift += EPS * self.factor.condition() * float(value.max())
        self._known_leverages = self.slots, value
        return value.copy()

    # --- support and caches ---------------------------------------------------------------------

    def _join(self, slots: Index, beta: float, distance: float = 0.0) -> bool:
        """Append columns, as far as they are independent; say whether any was.

        The squared ``distance`` of a single column, where known better than from its pivot, may
        vouch for its independence.
        """
        gram = self._store.gram
        block = gram[np.ix_(slots, slots)]
        ridge = self._l2[self._store.owner[slots]]
        block[np.diag_indices_from(block)] += ridge
        cross = gram[np.ix_(slots, self.slots)].T
        if distance > EPS * block[0, 0]:
            accepted = self.factor.append_at(cross, distance)
        else:
            floor = _pivot_floor(block.diagonal(), ridge)
            accepted = self.factor.append(cross, block.T, floor)
        joined = slots[accepted]
        signs = np.sign(self._current_correlations()[self._store.owner[joined]])
        self.slots = np.concatenate([self.slots, joined])
        self.signs = np.concatenate([self.signs, signs])
        self._beta = np.concatenate([self._beta, beta * signs])
        return joined.size > 0

    def _ridge(self) -> Array:
        return self._l2[self.support]

    def _drop(self, leaving: Mask) -> None:
        self.factor.delete(np.flatnonzero(leaving))
        self._keep(~leaving)

    def _keep(self, which: Mask | Index) -> None:
        self.slots = self.slots[which]
        self.signs = self.signs[which]
        self._beta = self._beta[which]

    def _refactor(self) -> None:
        """Factor ``K_SS`` from the Gram matrix, shedding columns that have become dependent."""
        self.factor.clear()
        ridge = self._ridge()
        if ridge.size:
            block = self._store.gram[np.ix_(self.slots, self.slots)] + np.diag(ridge)
            floor = _pivot_floor(block.diagonal(), ridge)
            self._keep(self.factor.append(np.empty((0, ridge.size)), block.T, floor))

    def _forget_residual(self) -> None:
        self._residual: Array | None = None
        self._correlation: Array | None = None

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
            self._correlation = _linalg.transposed_times(self._X, self._weights * self._current_residual())
        return self._correlation

    def _rounding(self, beta: Array) -> Array:
        """Error to expect in each correlation, from the terms that cancel in the residual; (p,)."""
        squares = self._store.gram[self.slots, self.slots]  # of the centred columns: only they are fitted
        fitted = float(np.sqrt(squares @ beta**2))
        return (self._spread + fitted) * self._noise


def _slack(c: Array, beta: Array, l1: Array, l2: Array) -> tuple[float, float]:
    """Penalty's part of the duality gap, and the factor ``t`` that makes the residual feasible."""
    hard = (l2 == 0) & (np.abs(c) > l1)
    t = float((l1[hard] / np.abs(c[hard])).min(initial=1.0))
    excess = np.maximum(t * np.abs(c) - l1, 0.0) ** 2
    conjugate = np.divide(excess, 2 * l2, out=np.zeros_like(c), where=l2 > 0)
    terms = l1 * np.abs(beta) + 0.5 * l2 * beta**2 - t * c * beta + conjugate
    return float(np.abs(terms).sum()), t


def _pivot_floor(diagonal: Array, ridge: Array) -> Array:
    """Squared distance from the span of the support below which a column is dependent.

    A ridge part bounds the distance from below by itself, whatever the columns.
    """
    floor = _DEPENDENT * diagonal
    vouched = np.clip(0.5 * ridge, _DEPENDENT_WITH_RIDGE * diagonal, floor)
    return np.where(ridge > 0, vouched, floor)

"""The curvature K = Zᵀ D Z + C of a fit on its tangent, factored once.

Z holds the free columns of X and a column of ones for the intercept, D the second derivatives of the loss
in the linear predictor, C the penalty's curvature.  Leave-one-out, degrees of freedom, certificates,
Newton steps and hyperparameter gradients all come from two methods:

* ``quadratic_forms()``: h_i = z_iᵀ K⁻¹ z_i,
* ``solve(...)``: K⁻¹ times directions.

``factor`` picks the side: k × k (``Primal``), n × n when there are more free columns than rows and all of
them are curved by the penalty (``Dual``), and one block matrix for coupled outputs (``Block``).  The
intercept is profiled out by D-weighted centring: with ã = a − ā, K is block diagonal in (β, b + āᵀβ).
Free directions that are not coordinates are made so (``Along``), and rows in a corner of the loss are held
there (``Pinned``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.penalties import Coordinates, Subspace, Tangent
from onefit.problem import Fit, Moments, Problem

LOOSE = 1e-9  # tension of a pinned row, relative to ρ, that is rounding


class Direction(NamedTuple):
    """A direction in parameter space, or a gradient there."""

    coef: Array  # of the shape of the coefficients
    level: Array  # of the shape of the intercepts


class Sandwich(NamedTuple):
    """Q = K⁻¹ Zᵀ E Z K⁻¹, by which Σ_i ⟨E_i, h_i⟩ falls as K grows.

    Attributes
    ----------
    rows : (n,), (n, t) or (n, c, c) array
        q_i = z_iᵀ Q z_i.
    free : array
        Q on the free directions: (k, k), or its diagonal in the shape of the coefficients.
    """

    rows: Array
    free: Array


class Curvature(ABC):
    """K, ready to be solved with."""

    @abstractmethod
    def sandwich(self, middle: Array) -> Sandwich:
        """Q for weights E of the rows: (n,), (n, t), or symmetric (n, c, c) of coupled outputs."""

    @abstractmethod
    def quadratic_forms(self) -> Array:
        """h_i = z_iᵀ K⁻¹ z_i: (n,) shared by all outputs, (n, t) one an output, or (n, c, c)."""

    @abstractmethod
    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``, zero off the tangent; both parts may have one more axis, of several gradients."""

    @abstractmethod
    def predict(self, direction: Direction) -> Array:
        """Z θ, the change of the linear predictor along a direction on the tangent: (n,) or (n, c).

        As in ``solve``, one more axis stands for several directions.
        """

    @abstractmethod
    def carry(self, new: Design, slopes: Array) -> Array:
        """X̃ K⁻¹ z_i c_i: what each row's own slope c_i, (n,) or (n, c), does to each new row.

        Parameters
        ----------
        new : (m, p) design
            New rows; for a kernel model their kernel with the rows of the fit, (m, n).
        slopes : (n,) or (n, c) array

        Returns
        -------
        (m, n) or (m, n, c) array
        """

    def respond(self, gradient: Direction) -> Array:
        """Z K⁻¹ ``gradient``: the linear predictor's answer to a gradient, (n,) or (n, c)."""
        return self.predict(self.solve(gradient))

    @abstractmethod
    def hat(self, rows: Array) -> Array:
        """Z K⁻¹ Zᵀ times columns of one number a row and output: (n, r), or (n, c, r)."""

    def leave(self, rows: Index, gradients: Direction) -> Direction:
        """K⁻¹ z_i c_i for some rows i that leave, given z_i c_i, along the last axis."""
        return self.solve(gradients)


class ScalarCurvature(Curvature):
    """K of a single output."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows."""

    @abstractmethod
    def responses(self) -> Direction:
        """K⁻¹ Zᵀ on the k free directions: coef (k, n) and level (n,)."""

    @abstractmethod
    def hat_matrix(self) -> Array:
        """Z K⁻¹ Zᵀ: (n, n)."""

    def hat_columns(self, rows: Index) -> Array:
        """Some columns of Z K⁻¹ Zᵀ: (n, r)."""
        unit = np.zeros((self.n, len(rows)))
        unit[rows, np.arange(len(rows))] = 1.0
        return self.hat(unit)

    @abstractmethod
    def cross(self, new: Design) -> Array:
        """X̃ K⁻¹ Zᵀ: (m, n)."""

    def carry(self, new: Design, slopes: Array) -> Array:
        return self.cross(new) * slopes


def factor(fit: Fit, tangent: Tangent | None = None, shrink: float = 1.0) -> Curvature:
    """Factor the curvature of a fit.

    Parameters
    ----------
    fit : Fit
    tangent : Tangent, optional
        Another smooth piece than the one through the coefficients.
    shrink : float, default 1.0
        Factor on the penalty's curvature: (n − 1)/n for refits that shrink their penalty.
    """
    tangent = fit.tangent if tangent is None else tangent
    if fit.coef.ndim == 1:
        return factor_scalar(fit, tangent, shrink)
    tangent = replace(tangent, hessian=tangent.hessian * shrink)
    if fit.problem.loss.coupled:
        return Block(fit.problem, tangent, fit.bend)
    return _several_outputs(fit.problem, tangent, fit.bend)


def factor_scalar(fit: Fit, tangent: Tangent, shrink: float = 1.0) -> ScalarCurvature:
    """Factor the curvature of a fit with a single output."""
    tangent = replace(tangent, hessian=tangent.hessian * shrink)
    intercept = bool(fit.problem.intercept)
    if not fit.pinned.any():
        return _one_output(fit.problem, tangent, fit.bend, intercept)
    held = float(fit.bend.max()) or 1.0
    K = _one_output(fit.problem, tangent, np.where(fit.pinned, held, fit.bend), intercept)
    return Pinned(K, fit.problem.X, np.flatnonzero(fit.pinned), held)


def _one_output(problem: Problem, tangent: Tangent, d: Array, intercept: bool) -> ScalarCurvature:
    if isinstance(tangent, Subspace):
        along = _linalg.project(problem.X, tangent.basis)
        K = Primal(along, None, tangent.size, tangent.hessian, d, intercept)
        return Along(K, problem.X, tangent.basis)
    support = np.flatnonzero(tangent.support)
    curved = tangent.hessian[support]
    n, p = problem.X.shape
    in_dual = isinstance(problem.X, _linalg.RowGram) or len(support) > n
    if in_dual and np.all(curved > 0) and d.min() >= 0:
        return Dual(problem.X, None if len(support) == p else support, p, curved, d, intercept)
    columns = None if len(support) == p else support
    return Primal(problem.X, columns, p, curved, d, intercept, problem.known_moments)


def _several_outputs(problem: Problem, tangent: Tangent, d: Array) -> Curvature:
    """Independent outputs: one factor for all those with the same support and strengths."""
    columns = np.vstack([tangent.hessian, tangent.support, problem.intercept[None], d])
    _, first, group = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    factors = [
        _one_output(
            problem,
            Coordinates(tangent.support[:, j], tangent.gradient[:, j], tangent.hessian[:, j]),
            d[:, j],
            bool(problem.intercept[j]),
        )
        for j in first
    ]
    return Independent(factors, group.ravel())


def _total(d: Array, intercept: bool) -> float:
    """Σ d, by which an intercept is curved; infinite where there is none to move."""
    if not intercept:
        return np.inf
    total = float(d.sum())
    return total if total > 0 else np.inf


@dataclass(frozen=True)
class Primal(ScalarCurvature):
    """k × k: Cholesky, or a generalised inverse where K has no factor.

    Several right-hand sides are columns of the direction.
    """

    X: Design
    support: Index | None  # None: all columns
    p: int
    hessian: Array  # (k,), or (k, k) where it is not diagonal
    d: Array  # (n,)
    intercept: bool
    moments: Moments | None = None  # with which K need not be summed over the rows

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def _active(self) -> Design:
        return _linalg.active_columns(self.X, self.support)

    @cached_property
    def _means(self) -> Array | None:
        if not self.intercept or not np.isfinite(_total(self.d, True)):
            return None
        if self.moments is not None:
            return self.moments.means if self.support is None else self.moments.means[self.support]
        return _linalg.column_means(self._active, self.d)

    @cached_property
    def _gram(self) -> Array:
        if self.moments is not None:
            gram = self.moments.gram
            K = gram.copy() if self.support is None else gram[np.ix_(self.support, self.support)]
        else:
            K = _linalg.weighted_gram(self._active, self._means, self.d)
        if self._means is not None:  # a constant column says nothing beside an intercept: only rounding
            rounding = _linalg.centring_error(self._active) * np.abs(self.d.sum()) * self._means**2
            constant = K.diagonal() <= rounding
            K[constant], K[:, constant] = 0.0, 0.0
        if self.hessian.ndim == 2:
            return K + self.hessian
        K[np.diag_indices_from(K)] += self.hessian
        return K

    @property
    def _is_wide(self) -> bool:
        """Whether more columns than rows, without curvature of the penalty, make K singular for sure."""
        return len(self.hessian) > self.X.shape[0] and not np.any(self.hessian)

    @cached_property
    def _cholesky(self) -> Array | None:
        return None if self._is_wide else _linalg.cholesky(self._gram)

    @cached_property
    def _pseudo(self) -> Array:
        if self._is_wide:
            return _linalg.wide_pseudo_factor(self._active, self._means, self.d)
        return _linalg.pseudo_factor(self._gram)

    def quadratic_forms(self) -> Array:
        offset = 1.0 / _total(self.d, self.intercept)
        L = self._cholesky
        if L is not None:
            return _linalg.row_quadratic_forms(self._active, self._means, L) + offset
        forms = np.empty(self.X.shape[0])
        for rows, block in _linalg.centred_blocks(self._active, self._means):
            forms[rows] = np.sum((block @ self._pseudo) ** 2, axis=1)
        return forms + offset

    def _inverse_times(self, rhs: Array) -> Array:
        if self._cholesky is not None:
            return _linalg.factor_solve(self._cholesky, rhs)
        return self._pseudo @ (self._pseudo.T @ rhs)

    def solve(self, gradient: Direction) -> Direction:
        rhs = gradient.coef if self.support is None else gradient.coef[self.support]
        means = np.zeros(len(rhs)) if self._means is None else self._means
        free = self._inverse_times(rhs - _outer(means, gradient.level))
        level = gradient.level / _total(self.d, self.intercept) - means @ free
        if self.support is None:
            return Direction(free, level)
        coef = np.zeros_like(gradient.coef)
        coef[self.support] = free
        return Direction(coef, level)

    def predict(self, direction: Direction) -> Array:
        coef = direction.coef if self.support is None else direction.coef[self.support]
        return _linalg.times(self._active, coef) + direction.level

    def hat(self, rows: Array) -> Array:
        total = rows.sum(axis=0)
        gradient = _linalg.transposed_times(self._active, rows)
        means = np.zeros(len(gradient)) if self._means is None else self._means
        free = self._inverse_times(gradient - np.outer(means, total))
        return _linalg.times(self._active, free) - means @ free + total / _total(self.d, self.intercept)

    def hat_matrix(self) -> Array:
        offset = 1.0 / _total(self.d, self.intercept)
        Z = np.vstack([block for _, block in _linalg.centred_blocks(self._active, self._means)])
        half = Z @ self._pseudo if self._cholesky is None else _linalg.half_solve(self._cholesky, Z)
        return _linalg.product(half, half.T) + offset

    def sandwich(self, middle: Array) -> Sandwich:
        offset = 1.0 / _total(self.d, self.intercept)
        k = len(self.hessian)
        inner = np.zeros((k, k))
        for rows, block in _linalg.centred_blocks(self._active, self._means):
            inner += _linalg.product(block.T, block * middle[rows, None])
        Q = self._inverse_times(self._inverse_times(inner).T)
        means = np.zeros(k) if self._means is None else self._means
        side = self._inverse_times(_linalg.transposed_times(self._active, middle) - middle.sum() * means)
        forms = np.empty(self.n)
        for rows, block in _linalg.centred_blocks(self._active, self._means):
            along = _linalg.product(block, Q) + 2.0 * offset * side
            forms[rows] = np.einsum("ij,ij->i", along, block)
        return Sandwich(
            forms + offset**2 * middle.sum(), Q if self.hessian.ndim == 2 else self._spread(Q.diagonal())
        )

    def _spread(self, free: Array) -> Array:
        """Values of the free columns among all columns: (p,)."""
        if self.support is None:
            return free.copy()
        full = np.zeros(self.p)
        full[self.support] = free
        return full

    def cross(self, new: Design) -> Array:
        columns = _linalg.rows_as_columns(new)
        return self.respond(Direction(columns, np.ones(columns.shape[1]))).T

    def responses(self) -> Direction:
        blocks = _linalg.centred_blocks(self._active, self._means)
        free = np.hstack([self._inverse_times(block.T) for _, block in blocks])
        level = np.full(free.shape[1], 1.0 / _total(self.d, self.intercept))
        return Direction(free, level if self._means is None else level - self._means @ free)


def _outer(means: Array, level: Array) -> Array:
    """Means · level, with a column for each right-hand side."""
    return means.reshape(-1, *(1,) * np.ndim(level)) * level


@dataclass(frozen=True)
class Dual(ScalarCurvature):
    """n × n, for more free columns than rows: M = I + D^½ G D^½ with G = X C⁻¹ Xᵀ, centred.

    h = G − G D^½ M⁻¹ D^½ G and, where d > 0, d h = 1 − diag M⁻¹ (Woodbury).
    """

    X: Design
    support: Index | None
    p: int
    hessian: Array  # (k,), all positive
    d: Array  # (n,), all at least 0
    intercept: bool

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def _bent(self) -> Index | slice:
        """Rows with d > 0: the others have no part in M."""
        return slice(None) if self.d.min() > 0 else np.flatnonzero(self.d > 0)

    @cached_property
    def _root(self) -> Array:
        """√d of the rows that bend."""
        return np.sqrt(self.d[self._bent])

    @cached_property
    def _share(self) -> Array:
        """Weights of the centring: d / Σd, or zeros."""
        return self.d / _total(self.d, self.intercept)

    @cached_property
    def _gram(self) -> Array:
        G = _linalg.row_gram(_linalg.active_columns(self.X, self.support), 1.0 / self.hessian)
        return _linalg.centred_gram(G, self._share)

    @cached_property
    def _cholesky(self) -> Array:
        own = self._gram if isinstance(self._bent, slice) else self._gram[np.ix_(self._bent, self._bent)]
        M = np.asarray(own * np.outer(self._root, self._root), order="F")
        M[np.diag_indices_from(M)] += 1.0
        L = _linalg.cholesky(M)
        if L is None:  # cannot be: M ≥ I, unless the data are not finite
            raise np.linalg.LinAlgError("the n x n curvature is not positive definite")
        return L

    def quadratic_forms(self) -> Array:
        offset = 1.0 / _total(self.d, self.intercept)
        if self.d.min() > 1e-4 * self.d.max():  # accurate also where the leverage is nearly 1
            half = _linalg.half_solve(self._cholesky, np.eye(len(self.d)))
            return (1.0 - np.einsum("ij,ij->i", half, half)) / self.d + offset
        half = _linalg.half_solve(
            self._cholesky, np.ascontiguousarray(self._gram[:, self._bent] * self._root)
        )
        return self._gram.diagonal() - np.einsum("ij,ij->i", half, half) + offset

    def solve(self, gradient: Direction) -> Direction:
        profiled = gradient.coef - _outer(self._transposed(self._share), gradient.level)
        rows = _linalg.times(self.X, self._scaled(profiled))
        dual = self._explained(rows - self._share @ rows)
        coef = self._scaled(profiled - self._transposed(dual - _outer(self._share, dual.sum(axis=0))))
        shift = self._share @ _linalg.times(self.X, coef)
        return Direction(coef, gradient.level / _total(self.d, self.intercept) - shift)

    def cross(self, new: Design) -> Array:
        """G̃ − G̃ D^½ M⁻¹ D^½ G for the kernel G̃ of the new rows with the old ones, centred as those are."""
        inverse = np.zeros(self.p)
        inverse[slice(None) if self.support is None else self.support] = 1.0 / self.hessian
        kernel = _linalg.cross_gram(new, self.X, inverse)
        centre = _linalg.cross_gram(self.X, self.X, inverse) @ self._share
        kernel += self._share @ centre - centre - (kernel @ self._share)[:, None]
        return kernel - self._fitted(kernel.T).T + 1.0 / _total(self.d, self.intercept)

    def predict(self, direction: Direction) -> Array:
        return _linalg.times(self.X, direction.coef) + direction.level

    def hat(self, rows: Array) -> Array:
        along = _linalg.product(self._gram, rows)
        return along - self._fitted(along) + rows.sum(axis=0) / _total(self.d, self.intercept)

    def sandwich(self, middle: Array) -> Sandwich:
        free = np.zeros(self.p)
        free[slice(None) if self.support is None else self.support] = self.responses().coef ** 2 @ middle
        return Sandwich(self.hat_matrix() ** 2 @ middle, free)

    def hat_matrix(self) -> Array:
        return self._gram - self._fitted(self._gram) + 1.0 / _total(self.d, self.intercept)

    def hat_columns(self, rows: Index) -> Array:
        along = self._gram[:, rows]
        return along - self._fitted(along) + 1.0 / _total(self.d, self.intercept)

    def responses(self) -> Direction:
        dual = np.eye(len(self.d)) - self._explained(self._gram)  # C⁻¹ X̃ᵀ times this is K⁻¹ Zᵀ
        centred = dual - np.outer(self._share, dual.sum(axis=0))
        rows = self._transposed(centred)
        free = (rows if self.support is None else rows[self.support]) / self.hessian[:, None]
        if isinstance(self.X, _linalg.RowGram):  # of dual coordinates: means are those of G's columns
            means = _linalg.times(self.X, self._share)
        else:
            means = self._restrict(self._transposed(self._share))
        return Direction(free, 1.0 / _total(self.d, self.intercept) - means @ free)

    def _explained(self, rows: Array) -> Array:
        """D^½ M⁻¹ D^½ times values of the rows, (n,) or (n, r)."""
        bent = np.asfortranarray((self._root * rows[self._bent].T).T)
        inner = (self._root * _linalg.factor_solve(self._cholesky, bent).T).T
        if isinstance(self._bent, slice):
            return inner
        explained = np.zeros_like(rows)
        explained[self._bent] = inner
        return explained

    def _fitted(self, rows: Array) -> Array:
        """G D^½ M⁻¹ D^½ times values of the rows: (n, r)."""
        return _linalg.product(self._bent_gram, self._explained(rows)[self._bent])

    @cached_property
    def _bent_gram(self) -> Array:
        return self._gram[:, self._bent]

    def _transposed(self, rows: Array) -> Array:
        return _linalg.transposed_times(self.X, rows)

    def _restrict(self, coef: Array) -> Array:
        return coef if self.support is None else coef[self.support]

    def _scaled(self, coef: Array) -> Array:
        """C⁻¹ times coefficients, zero off the support."""
        free = (self._restrict(coef).T / self.hessian).T
        if self.support is None:
            return free
        scaled = np.zeros_like(coef)
        scaled[self.support] = free
        return scaled


@dataclass(frozen=True)
class Along(ScalarCurvature):
    """K along the columns of a basis B: that of the design X B."""

    inner: ScalarCurvature
    X: Design
    basis: Design  # (p, k)

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    def quadratic_forms(self) -> Array:
        return self.inner.quadratic_forms()

    def solve(self, gradient: Direction) -> Direction:
        free = _linalg.transposed_times(self.basis, gradient.coef)
        coef, level = self.inner.solve(Direction(free, gradient.level))
        return Direction(_linalg.times(self.basis, coef), level)

    def predict(self, direction: Direction) -> Array:
        return _linalg.times(self.X, direction.coef) + direction.level

    def hat(self, rows: Array) -> Array:
        return self.inner.hat(rows)

    def sandwich(self, middle: Array) -> Sandwich:
        return self.inner.sandwich(middle)

    def hat_matrix(self) -> Array:
        return self.inner.hat_matrix()

    def cross(self, new: Design) -> Array:
        return self.inner.cross(_linalg.project(new, self.basis))

    def responses(self) -> Direction:
        return self.inner.responses()


@dataclass(frozen=True)
class Pinned(ScalarCurvature):
    """K on the directions that leave some rows V where they are: those in a corner of the loss.

    With any curvature ρ > 0 on these rows, K_ρ = K + ρ Z_Vᵀ Z_V, S = Z_V K_ρ⁻¹ Z_Vᵀ and R = K_ρ⁻¹ Z_Vᵀ S⁻¹,

        K⁻¹ on {Z_V θ = 0}  =  K_ρ⁻¹ − R S Rᵀ,        T = S⁻¹ − ρ I  (= (Z_V K⁻¹ Z_Vᵀ)⁻¹ where K has one)

    whatever ρ is (Wang et al. 2018, section 4.2: the limit of ever sharper smooth corners).  A pinned row i
    that leaves is released: its form is then z_iᵀ K⁻¹ z_i = 1 / T_ii and K⁻¹ z_i = R e_i / T_ii, infinite
    where nothing but that row held the fit in its place.
    """

    inner: ScalarCurvature
    X: Design
    pins: Index  # (v,)
    held: float  # ρ

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def _columns(self) -> Array:
        """Z K_ρ⁻¹ Z_Vᵀ: (n, v)."""
        return self.inner.hat_columns(self.pins)

    @cached_property
    def _pin_inverse(self) -> Array:
        """S⁻¹, or its generalised inverse where rows pin the same direction."""
        S = self._columns[self.pins]
        S = 0.5 * (S + S.T)
        L = _linalg.cholesky(S)
        if L is not None:
            return _linalg.factor_solve(L, np.eye(len(S)))
        W = _linalg.pseudo_factor(S)
        return W @ W.T

    @cached_property
    def lift(self) -> Direction:
        """R: what moves each pinned row by one and the others not, (p, v) and (v,)."""
        columns = _linalg.rows_as_columns(self.X, self.pins)
        coef, level = self.inner.solve(Direction(columns, np.ones(columns.shape[1])))
        return Direction(coef @ self._pin_inverse, level @ self._pin_inverse)

    @cached_property
    def released(self) -> Array:
        """1 / T_ii, infinite where the row alone holds a direction: (v,)."""
        tension = self._pin_inverse.diagonal() - self.held
        loose = tension <= LOOSE * self.held
        return np.where(loose, np.inf, 1.0 / np.where(loose, 1.0, tension))

    @cached_property
    def _steps(self) -> Array:
        """The same where finite; a pinned row without which the fit is undetermined does not move: (v,)."""
        return np.where(np.isfinite(self.released), self.released, 0.0)

    def quadratic_forms(self) -> Array:
        moved = np.einsum("iv,iv->i", self.lifted_rows, self._columns)
        forms = np.maximum(self.inner.quadratic_forms() - moved, 0.0)
        forms[self.pins] = self.released
        return forms

    def solve(self, gradient: Direction) -> Direction:
        coef, level = self.inner.solve(gradient)
        moved = self.inner.predict(Direction(coef, level))[self.pins]
        return Direction(coef - self.lift.coef @ moved, level - self.lift.level @ moved)

    def leave(self, rows: Index, gradients: Direction) -> Direction:
        coef, level = self.solve(gradients)
        for place in np.flatnonzero(np.isin(rows, self.pins)):
            pin = int(np.searchsorted(self.pins, rows[place]))
            step = self._steps[pin] * gradients.level[place]
            coef[..., place], level[place] = self.lift.coef[:, pin] * step, self.lift.level[pin] * step
        return Direction(coef, level)

    def hold(self, gradient: Direction) -> Array:
        """Duals with which the pinned rows hold against a gradient: (v,)."""
        return self._pin_inverse @ self.inner.respond(gradient)[self.pins]

    def duals(self, rows: Index, slopes: Array) -> Array:
        """Change of the duals of the pinned rows when each of some rows leaves, with slope c_i: (v, r).

        That of a pinned row that leaves is minus what it was.
        """
        change = self._pin_inverse @ (self._columns[rows].T * slopes)
        for place in np.flatnonzero(np.isin(rows, self.pins)):
            pin = int(np.searchsorted(self.pins, rows[place]))
            change[:, place] = -self._pin_inverse[:, pin] * self._steps[pin] * slopes[place]
            change[pin, place] = -slopes[place]
        return change

    def predict(self, direction: Direction) -> Array:
        return self.inner.predict(direction)

    def hat(self, rows: Array) -> Array:
        pulled = self._pin_inverse @ (self._columns.T @ rows)
        return self.inner.hat(rows) - self._columns @ pulled

    def sandwich(self, middle: Array) -> Sandwich:
        raise TypeError(
            "rows in a corner of the loss answer to the weights of no row: Q says nothing of them"
        )

    def hat_matrix(self) -> Array:
        return self.inner.hat_matrix() - _linalg.product(self.lifted_rows, self._columns.T)

    def hat_columns(self, rows: Index) -> Array:
        return self.inner.hat_columns(rows) - _linalg.product(self.lifted_rows, self._columns[rows].T)

    @cached_property
    def lifted_rows(self) -> Array:
        """Z R, what moving each pinned row by one does to all rows: (n, v)."""
        return _linalg.product(self._columns, self._pin_inverse)

    @cached_property
    def tension(self) -> Array:
        """T: (v, v)."""
        return self._pin_inverse - self.held * np.eye(len(self.pins))

    def cross(self, new: Design) -> Array:
        crossed = self.inner.cross(new)
        lifted = crossed[:, self.pins] @ self._pin_inverse
        crossed = crossed - lifted @ self._columns.T
        crossed[:, self.pins] = lifted * self._steps
        return crossed

    def responses(self) -> Direction:
        coef, level = self.inner.responses()
        lifted, raised = coef[:, self.pins] @ self._pin_inverse, level[self.pins] @ self._pin_inverse
        coef, level = coef - lifted @ self._columns.T, level - raised @ self._columns.T
        coef[:, self.pins], level[self.pins] = lifted * self._steps, raised * self._steps
        return Direction(coef, level)


@dataclass(frozen=True)
class Independent(Curvature):
    """Several outputs, each with a curvature of its own; ``group[j]`` is that of output j."""

    factors: Sequence[Curvature]
    group: Index

    def quadratic_forms(self) -> Array:
        forms = [K.quadratic_forms() for K in self.factors]
        return forms[0] if len(forms) == 1 else np.stack(forms, axis=1)[:, self.group]

    def solve(self, gradient: Direction) -> Direction:
        coef, level = np.zeros_like(gradient.coef), np.zeros_like(gradient.level)
        for j, which in enumerate(self.group):
            one = Direction(gradient.coef[:, j], gradient.level[j])
            coef[:, j], level[j] = self.factors[which].solve(one)
        return Direction(coef, level)

    def predict(self, direction: Direction) -> Array:
        columns = [
            self.factors[which].predict(Direction(direction.coef[:, j], direction.level[j]))
            for j, which in enumerate(self.group)
        ]
        return np.stack(columns, axis=1)

    def carry(self, new: Design, slopes: Array) -> Array:
        columns = [self.factors[which].carry(new, slopes[:, j]) for j, which in enumerate(self.group)]
        return np.stack(columns, axis=-1)

    def hat(self, rows: Array) -> Array:
        columns = [self.factors[which].hat(rows[:, j]) for j, which in enumerate(self.group)]
        return np.stack(columns, axis=1)

    def sandwich(self, middle: Array) -> Sandwich:
        parts = [self.factors[which].sandwich(middle[:, j]) for j, which in enumerate(self.group)]
        return Sandwich(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Block(Curvature):
    """Outputs tied together by the loss: one matrix over all free coordinates of all outputs.

    Output a has its own free columns S_a and perhaps an intercept.  Where adding a constant to all
    outputs changes neither loss nor penalty (symmetric multinomial models), K is singular in a direction
    that no prediction depends on; it is made definite there, which changes nothing that is read.
    """

    problem: Problem
    tangent: Tangent
    d: Array  # (n, c, c)

    @cached_property
    def _means(self) -> Array | None:
        """Plain centring, for conditioning; allowed where every output has an intercept."""
        if isinstance(self.problem.X, _linalg.RowGram) or not np.all(self.problem.intercept):
            return None
        return _linalg.column_means(self.problem.X, self.problem.weights)

    @cached_property
    def _free(self) -> list[Index]:
        """Free coordinates of each output among the p columns and, as number p, the intercept."""
        free = np.vstack([self.tangent.support, self.problem.intercept[None]])
        return [np.flatnonzero(column) for column in free.T]

    @cached_property
    def _ends(self) -> Index:
        return np.concatenate([[0], np.cumsum([len(f) for f in self._free])])

    def _rows(self) -> list[tuple[slice, Array]]:
        blocks = _linalg.centred_blocks(self.problem.X, self._means)
        return [(rows, np.hstack([block, np.ones((len(block), 1))])) for rows, block in blocks]

    def _weighted(self, middle: Array) -> Array:
        """Zᵀ E Z, blocks on and below the diagonal."""
        ends, free = self._ends, self._free
        K = np.zeros((ends[-1], ends[-1]), order="F")
        for rows, Z in self._rows():
            for a in range(len(free)):
                Za = Z[:, free[a]].T
                for b in range(a + 1):
                    Zb = Z[:, free[b]] * middle[rows, a, b][:, None]
                    K[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] += _linalg.product(Za, Zb)
        return K

    @cached_property
    def _gram(self) -> Array:
        free, K = self._free, self._weighted(self.d)
        curved = np.vstack([self.tangent.hessian, np.zeros((1, len(free)))])
        K[np.diag_indices_from(K)] += np.concatenate([curved[f, a] for a, f in enumerate(free)])
        return self._pinned(K)

    def _pinned(self, K: Array) -> Array:
        """Add curvature along shifts common to all outputs where there is none."""
        n_outputs = len(self._free)
        shift_free = np.abs(self.d.sum(axis=2)).max() <= 1e-10 * np.abs(self.d).max()
        if not shift_free:
            return K
        position = np.full((self.problem.X.shape[1] + 1, n_outputs), -1)
        for a, f in enumerate(self._free):
            position[f, a] = self._ends[a] + np.arange(len(f))
        flat = np.append(self.tangent.hessian.max(axis=1) == 0, True)
        for common in position[flat & (position >= 0).all(axis=1)]:
            K[np.ix_(common, common)] += K[common, common].mean() + np.finfo(float).tiny
        return K

    @cached_property
    def _cholesky(self) -> Array | None:
        return _linalg.cholesky(self._gram)

    @cached_property
    def _pseudo(self) -> Array:
        return _linalg.pseudo_factor(self._gram)

    def _half(self, columns: Array) -> Array:
        """Rows (r, K) times a square root of K⁻¹."""
        if self._cholesky is not None:
            return _linalg.half_solve(self._cholesky, np.ascontiguousarray(columns))
        return _linalg.product(columns, self._pseudo)

    def quadratic_forms(self) -> Array:
        ends, n_outputs = self._ends, len(self._free)
        forms = np.empty((self.problem.n, n_outputs, n_outputs))
        size = max(16, _linalg.BLOCK_SIZE // max(1, int(ends[-1]) * n_outputs))
        for rows, Z in self._rows():
            for start in range(0, len(Z), size):
                part = Z[start : start + size]
                spread = np.zeros((len(part), n_outputs, ends[-1]))
                for a, f in enumerate(self._free):
                    spread[:, a, ends[a] : ends[a + 1]] = part[:, f]
                half = self._half(spread.reshape(-1, ends[-1])).reshape(len(part), n_outputs, -1)
                inside = slice(rows.start + start, rows.start + start + len(part))
                forms[inside] = half @ half.transpose(0, 2, 1)
        return forms

    def sandwich(self, middle: Array) -> Sandwich:
        ends, n_outputs = self._ends, len(self._free)
        inner = self._weighted(middle)
        inner = np.tril(inner) + np.tril(inner, -1).T
        Q = self._inverse(self._inverse(inner).T)
        forms = np.empty_like(middle)
        for rows, Z in self._rows():
            for a, b in np.ndindex(n_outputs, n_outputs):
                part = Q[ends[a] : ends[a + 1], ends[b] : ends[b + 1]]
                along = _linalg.product(Z[:, self._free[a]], part)
                forms[rows, a, b] = np.einsum("ij,ij->i", along, Z[:, self._free[b]])
        free, diagonal = np.zeros((self.problem.X.shape[1] + 1, n_outputs)), Q.diagonal()
        for a, f in enumerate(self._free):
            free[f, a] = diagonal[ends[a] : ends[a + 1]]
        return Sandwich(forms, free[:-1])

    def _inverse(self, stacked: Array) -> Array:
        if self._cholesky is not None:
            return _linalg.factor_solve(self._cholesky, stacked)
        return self._pseudo @ (self._pseudo.T @ stacked)

    def _inverse_times(self, rhs: Array) -> Array:
        """K⁻¹ rhs, both with p + 1 rows, one column an output, and perhaps a third axis."""
        stacked = np.concatenate([rhs[f, a] for a, f in enumerate(self._free)])
        flat = self._inverse(stacked)
        full = np.zeros_like(rhs)
        for a, f in enumerate(self._free):
            full[f, a] = flat[self._ends[a] : self._ends[a + 1]]
        return full

    def solve(self, gradient: Direction) -> Direction:
        means = np.zeros(len(gradient.coef)) if self._means is None else self._means
        profiled = gradient.coef - np.multiply.outer(means, gradient.level)
        step = self._inverse_times(np.concatenate([profiled, gradient.level[None]]))
        return Direction(step[:-1], step[-1] - np.tensordot(means, step[:-1], 1))

    def predict(self, direction: Direction) -> Array:
        return self.problem.linear_predictor(*direction)

    def carry(self, new: Design, slopes: Array) -> Array:
        columns = _linalg.rows_as_columns(new)
        n_outputs = len(self._free)
        carried = np.empty((columns.shape[1], *slopes.shape))
        for a in range(n_outputs):
            coef = np.zeros((len(columns), n_outputs, columns.shape[1]))
            level = np.zeros(coef.shape[1:])
            coef[:, a], level[a] = columns, 1.0
            carried[:, :, a] = np.einsum("nbm,nb->mn", self.respond(Direction(coef, level)), slopes)
        return carried

    def hat(self, rows: Array) -> Array:
        gradient = sum(np.tensordot(Z, rows[part], (0, 0)) for part, Z in self._rows())
        full = self._inverse_times(np.asarray(gradient))
        return np.concatenate([np.tensordot(Z, full, (1, 0)) for _, Z in self._rows()])

"""Fewer coordinates that tell K of coupled outputs, where a ridge alone curves the rest.

Where the loss sees only differences of outputs and the ridge Λ is the same for all c of them, what is common
to all outputs is curved by Λ alone.  Differences to their mean have c − 1 coordinates, one for each output
but one: β = V z with V the columns of I − 11ᵀ/c that are kept.  Since D 1 = 0 the curvature of the loss in z
is that of the kept outputs as it stands, and the ridge is (I − 11ᵀ/c) ⊗ Λ.

Where there are more columns than rows and Λ = λ I, coefficients that are orthogonal to all rows are curved by
λ alone, and with X = T Qᵀ the others are told by Qᵀ β, one coordinate a row.

K⁻¹ is that of the coordinates, and Λ⁻¹ on what they leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onefit import _linalg
from onefit._linalg import RowSpan
from onefit._typing import Array, Design, Index, Mask
from onefit.curvature.base import Direction
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.penalties import Coordinates, Tangent
from onefit.problem import Problem


def centred(values: Array) -> Array:
    """Less the mean over outputs, the second axis."""
    return values - _linalg.row_means(values)


@dataclass(frozen=True, eq=False)
class Reduction:
    """The coordinates of K, and the way there and back.

    Attributes
    ----------
    X : design
        The rows in these coordinates: (n, r).
    free : (r + 1, o) bool array
        Which of them are free, and as the last which output has an intercept.
    ridge : (r, o) array
        Curvature of the penalty, of each output.
    span : RowSpan or None
        That of Q; None where the coordinates are the columns.
    kept : (c − 1,) int array or None
        Outputs that have coordinates; None where all do.
    outputs : int
        c.
    beside : (p,) array
        Λ, by which what has no coordinates is curved; 0 where nothing has none.
    """

    X: Design
    free: Mask
    ridge: Array
    span: RowSpan | None
    kept: Index | None
    outputs: int
    beside: Array

    @classmethod
    def of(cls, fit: Fit, tangent: Tangent) -> Reduction:
        """As few coordinates as a fit has on a smooth piece."""
        problem, d = fit.problem, fit.hessian
        free, kept = np.vstack([tangent.support, problem.intercept[None]]), None
        is_separable = isinstance(tangent, Coordinates) and _linalg.has_columns(problem.X)
        if is_separable and has_common(fit, tangent):
            curved = np.einsum("naa->a", d)
            kept = np.delete(np.arange(len(curved)), curved.argmax())  # the others keep their digits
            free = free[:, kept]
        span = span_of(problem, tangent) if _are_alike(free) else None
        if span is not None:
            free = np.vstack([np.ones((problem.n, free.shape[1]), dtype=bool), free[-1:]])
        X, without = problem.X if span is None else span.X, np.empty(0)
        return cls(X, free, without, span, kept, d.shape[1], without).at(tangent)

    def at(self, tangent: Tangent) -> Reduction:
        """The same coordinates with a penalty of the same support, as it is curved at a fit."""
        ridge, own = tangent.hessian, tangent.hessian[:, 0]
        if self.span is not None:
            ridge = np.full(self.free[:-1].shape, own[0])
        elif self.kept is not None:
            ridge = ridge[:, self.kept]
        return replace(self, ridge=ridge, beside=np.where(tangent.support[:, 0], own, 0.0))

    @property
    def is_smaller(self) -> bool:
        """Whether anything is left out."""
        return self.span is not None or self.kept is not None

    def curved(self, d: Array) -> Array:
        """Second derivatives of the rows, (n, c, c), in the outputs that are kept."""
        return d if self.kept is None else d[:, self.kept[:, None], self.kept]

    def weighted(self, middle: Array) -> Array:
        """Any symmetric matrices of the rows, (n, c, c), in the coordinates of the outputs."""
        if self.kept is None:
            return middle
        return self.curved(centred(centred(middle).transpose(0, 2, 1)))

    def gradient(self, whole: Direction) -> Direction:
        """Vᵀ and Qᵀ times it."""
        coef = whole.coef if self.span is None else self.span.coordinates(whole.coef)
        return Direction(self.rows(coef), self.rows(whole.intercept[None])[0])

    def rows(self, values: Array) -> Array:
        """Vᵀ times what each row or coefficient has: (n, c, …) to (n, o, …)."""
        return values if self.kept is None else centred(values)[:, self.kept]

    def spread(self, own: Array) -> Array:
        """V times what each row or coefficient has in the coordinates: (n, o, …) to (n, c, …)."""
        if self.kept is None:
            return own
        whole = np.zeros((len(own), self.outputs, *own.shape[2:]))
        whole[:, self.kept] = own
        return centred(whole)

    def direction(self, own: Direction) -> Direction:
        """From coordinates to all."""
        coef = own.coef if self.span is None else self.span.coefficients(own.coef)
        return Direction(self.spread(coef), self.spread(own.intercept[None])[0])

    def outside(self, gradient: Array) -> Array:
        """What gradients, in columns less their means, are answered by where there are no coordinates."""
        if not self.is_smaller:
            return np.zeros_like(gradient)
        scale = np.divide(1.0, self.beside, out=np.zeros_like(self.beside), where=self.beside > 0)
        return _linalg.with_axes(scale, gradient) * self._left_out(gradient)

    def _left_out(self, coef: Array) -> Array:
        """The part that has no coordinates: what is common is the same for all outputs to the last digit."""
        level = 0.0 if self.kept is None else _linalg.row_means(coef)
        common = np.zeros_like(coef) + level
        if self.span is None:
            return common
        apart = coef - level
        return coef - self.span.coefficients(self.span.coordinates(apart))

    def matrices(self, own: Array) -> Array:
        """V times matrices (n, o, o) times Vᵀ: (n, c, c)."""
        return own if self.kept is None else self.spread(self.spread(own).transpose(0, 2, 1))

    def diagonal(self, Q: Array) -> Array:
        """Diagonal of V times a matrix over all free coordinates times Vᵀ, without intercepts: (p, c)."""
        outputs, free = self.free.shape[1], np.flatnonzero(self.free[:, 0])
        columns = free[free < len(self.free) - 1]
        blocks = Q.reshape(outputs, len(free), outputs, len(free))[:, : len(columns), :, : len(columns)]
        whole = np.zeros((len(self.beside), self.outputs))
        if self.span is None:
            own = np.einsum("ajbj->jab", blocks)
        else:
            columns = np.arange(len(self.beside))
            basis = self.span.coefficients(np.eye(len(self.X)))
            turned = [[_forms(basis, blocks[a, :, b]) for b in range(outputs)] for a in range(outputs)]
            own = np.moveaxis(np.array(turned), -1, 0)
        whole[columns] = np.einsum("jaa->ja", self.matrices(own))
        return whole


def is_wide(X: Design, tangent: Tangent) -> bool:
    """Whether coordinates in the span of the rows are fewer, and as good: one strength for all columns."""
    n, p = X.shape
    return n < p and tangent.has_one_ridge and _linalg.has_columns(X)


def has_common(fit: Fit, tangent: Tangent) -> bool:
    """Whether what is common to all outputs is curved by a ridge alone."""
    alike = isinstance(tangent, Coordinates) and _are_alike(tangent.support) and _are_alike(tangent.hessian)
    return alike and fit.problem.loss.ignores_shifts and len(set(fit.problem.intercept.tolist())) == 1


def coordinates(fit: Fit) -> int:
    """How many K of coupled outputs has."""
    c = fit.problem.n_outputs
    outputs = c - has_common(fit, fit.tangent)
    if is_wide(fit.problem.X, fit.tangent):
        return fit.problem.n * outputs
    return fit.tangent.size * outputs // c


def span_of(problem: Problem, tangent: Tangent) -> RowSpan | None:
    """The span of the rows, where it has fewer coordinates."""
    if not is_wide(problem.X, tangent):
        return None
    return (problem.known_inner or InnerProducts(problem.X)).span


def _are_alike(values: Array | Mask) -> bool:
    """Whether all outputs have the same."""
    return bool(np.all(values == values[:, :1]))


def _forms(basis: Array, Q: Array) -> Array:
    """q_jᵀ Q q_j for each row of a basis: (p,)."""
    return np.einsum("jr,jr->j", _linalg.product(basis, Q), basis)

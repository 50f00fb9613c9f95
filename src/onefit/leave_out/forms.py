"""H_GG = Z_G K⁻¹ Z_Gᵀ of sets of rows that leave together, and curvatures without them by Woodbury."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction, has_common
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.leave_out.chords import squares
from onefit.leave_out.step import largest_share
from onefit.problem import Problem

Hat: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Batch:
    """Folds of one size that share a curvature."""

    which: Index  # (f,) fold numbers
    rows: Index  # (f, b) the rows that they remove, sorted
    curvature: Curvature
    shrink: float

    def places(self, own: Index, rows: Index) -> Index:
        """Where rows, (t,), stand among those that their sets ``own`` remove."""
        return np.asarray((self.rows[own] == rows[:, None]).argmax(axis=1))


class Forms(NamedTuple):
    """H_GG and D_G of the folds of a batch.

    A separable loss has one matrix for each output, (f, c, b, b); a coupled one has one over rows and
    outputs, (f, 1, b c, b c).  Values at the rows are stacked likewise: (f, c, b) or (f, 1, b c).
    """

    H: Array
    D: Array
    rows: Index
    coupled: bool

    def stack(self, values: Array) -> Array:
        """(f, b, …outputs) to the shape of the matrices."""
        f, b = self.rows.shape
        if self.coupled:
            return values.reshape(f, 1, -1)
        return values.reshape(f, b, -1).transpose(0, 2, 1)

    def unstack(self, values: Array, outputs: tuple[int, ...]) -> Array:
        """Back to (f, b, …outputs)."""
        f, b = self.rows.shape
        if not self.coupled:
            values = values.transpose(0, 2, 1)
        return values.reshape(f, b, *outputs)

    @property
    def kept(self) -> Array:
        """I − D H."""
        return np.eye(self.H.shape[-1]) - self.D @ self.H

    @property
    def slack(self) -> Array:
        """Smallest eigenvalue of I − D H; smallest singular value where some bend is negative: (f,)."""
        if not self.coupled and self.D.min() >= 0:
            root = np.sqrt(np.einsum("fcbb->fcb", self.D))
            inner = root[..., None] * self.H * root[..., None, :]
            return np.asarray(1.0 - np.linalg.eigvalsh(inner)[..., -1].max(axis=1))
        if self.coupled:
            return 1.0 - largest_share(self.D, self.H)[:, 0]
        return np.asarray(np.linalg.svd(self.kept, compute_uv=False)[..., -1].min(axis=1))

    def left_out(self, kept: Array) -> Array:
        """Squared norms of the rows in A⁻¹, as ``prove.widest_form`` has them: (f, b), over all outputs."""
        f, b = self.rows.shape
        inverse = self.H @ np.linalg.inv(kept)
        if not self.coupled:
            return np.asarray(np.einsum("fcbb->fbc", inverse).max(axis=2))
        c = self.H.shape[-1] // b
        own = np.einsum("fbabd->fbad", inverse.reshape(f, b, c, b, c))
        return prove.widest_form(own.reshape(f * b, c, c)).reshape(f, b)


def times(matrices: Array, vectors: Array) -> Array:
    """Each matrix times its vector."""
    return (matrices @ vectors[..., None])[..., 0]


def forms_of(fit: Fit, batch: Batch, free: int) -> Forms:
    """H_GG and D_G of a batch, from products with columns or with rows, whichever are fewer.

    ``free`` coordinates are in a factor.
    """
    rows = batch.rows
    f, b = rows.shape
    bend = fit.hessian[rows]
    if fit.problem.is_coupled:
        c = fit.problem.n_outputs
        D = np.zeros((f, b, c, b, c))
        D[:, np.arange(b), :, np.arange(b)] = bend.transpose(1, 0, 2, 3)
        return Forms(_coupled_forms(fit, batch), D.reshape(f, 1, b * c, b * c), rows, True)
    bend = bend.reshape(f, b, -1).transpose(0, 2, 1)
    H = _forms_by_rows(fit, batch) if free < fit.problem.n else _forms_by_hat(fit, batch)
    return Forms(H, bend[..., None] * np.eye(b), rows, False)


def _forms_by_hat(fit: Fit, batch: Batch) -> Array:
    """H_GG from Z K⁻¹ Zᵀ times unit columns: for curvatures that live in the rows."""
    f, b = batch.rows.shape
    columns = batch.curvature.hat_columns(batch.rows.ravel()).reshape(fit.problem.n, -1, f, b)
    own = columns[batch.rows, :, np.arange(f)[:, None]]  # (f, row, c, column)
    return own.transpose(0, 2, 1, 3)


def _forms_by_rows(fit: Fit, batch: Batch) -> Array:
    """H_GG = Z_G (K⁻¹ Z_Gᵀ), for every output."""
    f, b = batch.rows.shape
    columns = _linalg.as_design(fit.problem.X).basis_of_rows(batch.rows.ravel())
    shape = (*fit.problem.outputs, columns.shape[1])
    spread = _linalg.with_axes(columns, fit.coef[..., None], last=1)
    gradient = np.broadcast_to(spread, (len(columns), *shape))
    answer = batch.curvature.solve(Direction(gradient, np.ones(shape)))
    support = fit.tangent.support.reshape(len(columns), -1).any(axis=1)
    left = columns[support].T.reshape(f, 1, b, int(support.sum()))
    right = answer.coef[support].reshape(left.shape[-1], fit.problem.n_outputs, f, b).transpose(2, 1, 0, 3)
    level = answer.intercept.reshape(-1, f, b).transpose(1, 0, 2)
    return left @ right + level[:, :, None, :]


def _coupled_forms(fit: Fit, batch: Batch) -> Array:
    """H_GG over rows and outputs, (f, 1, b c, b c).

    Of differences of outputs alone, where a ridge is all that holds what these have in common.
    """
    f, b = batch.rows.shape
    c = fit.problem.n_outputs
    columns = _linalg.as_design(fit.problem.X).basis_of_rows(batch.rows.ravel())
    p, r = columns.shape
    coef, level = np.zeros((p, c, r, c)), np.zeros((c, r, c))
    for a in range(c):
        coef[:, a, :, a], level[a, :, a] = columns, 1.0
    gradient = Direction(coef.reshape(p, c, -1), level.reshape(c, -1))
    if has_common(fit, fit.tangent):
        gradient = Direction(*fit.problem.of_losses(*gradient))
    answer = batch.curvature.solve(gradient)
    support = fit.tangent.support.any(axis=1)
    right = answer.coef[support].reshape(int(support.sum()), c, f, b * c).transpose(2, 0, 1, 3)
    left = columns[support].T.reshape(f, b, int(support.sum()))
    forms = (left @ right.reshape(f, left.shape[-1], c * b * c)).reshape(f, b, c, b * c)
    forms += answer.intercept.reshape(c, f, b * c).transpose(1, 0, 2)[:, None]
    return forms.reshape(f, 1, b * c, b * c)


@dataclass(frozen=True, eq=False)
class WithoutFolds:
    """K_G⁻¹ = K⁻¹ + K⁻¹ Z_Gᵀ (I − D H)⁻¹ D Z_G K⁻¹ for each of some folds of a batch."""

    curvature: Curvature
    problem: Problem
    forms: Forms
    inner: Array  # (I − D H)⁻¹ D
    hat: Hat  # Z K⁻¹ Zᵀ times columns

    def of(self, which: Index) -> WithoutFolds:
        """Some of the folds."""
        forms = self.forms
        few = Forms(forms.H[which], forms.D[which], forms.rows[which], forms.coupled)
        found = WithoutFolds(self.curvature, self.problem, few, self.inner[which], self.hat)
        if "_columns" in self.__dict__:
            found.__dict__["_columns"] = self._columns[:, which]
        return found

    @cached_property
    def _columns(self) -> Array:
        """Z K⁻¹ Z_Gᵀ of a single output: (n, f, b)."""
        f, b = self.forms.rows.shape
        return self.curvature.hat_columns(self.forms.rows.ravel()).reshape(-1, f, b)

    def respond(self, rows: Array) -> Array:
        """Z K_G⁻¹ Zᵀ times one column a fold: (n, f), or (n, c, f)."""
        first = self.hat(rows)
        inside = times(self.inner, self._at(first))
        if self.problem.has_one_output:
            return first + np.einsum("nfb,fb->nf", self._columns, inside[:, 0])
        return first + self.hat(self._scattered(inside, first.shape))

    def _scattered(self, inside: Array, shape: tuple[int, ...]) -> Array:
        """Values of the rows that leave where they stand among all rows, zero elsewhere: ``shape``."""
        scattered, rows = np.zeros(shape), self.forms.rows
        scattered[rows, ..., np.arange(len(rows))[:, None]] = self.forms.unstack(inside, shape[1:-1])
        return scattered

    def _at(self, predicted: Array) -> Array:
        """Of values of all rows those of the rows that leave, as vectors of H_GG."""
        rows = self.forms.rows
        return self.forms.stack(predicted[rows, ..., np.arange(len(rows))[:, None]])

    def parameters(self, rows: Array) -> Direction:
        """K_G⁻¹ Zᵀ times one column a fold, as K⁻¹ Zᵀ times another."""
        told = rows + self._scattered(times(self.inner, self._at(self.hat(rows))), rows.shape)
        return self.curvature.solve(Direction(*self.problem.of_losses(*self.problem.gradient_of(told))))

    def solve(self, gradient: Direction) -> Direction:
        first = self.curvature.solve(gradient)
        second = self.curvature.solve(self.gradient_of(times(self.inner, self._moved(first))))
        return Direction(first.coef + second.coef, first.intercept + second.intercept)

    def squares(self, gradient: Direction) -> Array:
        """gᵀ K_G⁻¹ g: (f,)."""
        step = self.curvature.solve(gradient)
        at = self._moved(step)
        more = np.sum(at * times(self.inner, at), axis=(1, 2))
        return squares(self.problem, gradient, step) + more

    def _moved(self, direction: Direction) -> Array:
        """What a direction of each fold does to the rows that leave, as vectors of H_GG."""
        f, b = self.forms.rows.shape
        rows = _linalg.as_design(self.problem.X).dense_rows(self.forms.rows.ravel()).reshape(f, b, -1)
        moved = np.einsum("fbp,p...f->fb...", rows, direction.coef)
        return self.forms.stack(
            moved + np.moveaxis(direction.intercept, -1, 0).reshape(f, 1, *moved.shape[2:])
        )

    def gradient_of(self, inside: Array) -> Direction:
        """Z_Gᵀ times vectors of H_GG, one a fold."""
        f, b = self.forms.rows.shape
        columns = _linalg.as_design(self.problem.X).basis_of_rows(self.forms.rows.ravel()).reshape(-1, f, b)
        rows = self.forms.unstack(inside, self.problem.outputs)
        level = np.moveaxis(rows.sum(axis=1), 0, -1)
        free = _linalg.with_axes(self.problem.intercept, level)
        coef = np.einsum("pfb,fb...->p...f", columns, rows)
        return Direction(*self.problem.of_losses(coef, np.where(free, level, 0.0)))

"""Leaving out sets of rows from one fit: groups, K folds, splits in time.

With H_GG = Z_G K⁻¹ Z_Gᵀ for the rows G that leave together, and ``s`` for what a refit rescales besides,

    η̃_G = η_G + s_G + H_GG (I − D_G H_GG)⁻¹ (g_G + D_G s_G)

(Woodbury's formula in the place of Sherman–Morrison's; leave-one-out is the case of one row).  Sets with
more rows than there are free coordinates are not downdated: the curvature without them is factored, which
is then cheaper and better conditioned.

For a quadratic loss and a fixed pattern this is the refit.  For others it is the first of several steps
(``left_out_steps``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, factor
from onefit.fit import Fit
from onefit.problem import Problem
from onefit.risk.folds import Folds, removed_share
from onefit.risk.left_out_steps import MAX_STEPS, End, FactoredAnew, Refits, newton, repeat_steps
from onefit.risk.one_fit import SAFE_SLACK, is_wide_ridge, residual_form

MAX_SHRINKS = 16  # factors of a curved penalty that shrinks with the rows, at most
NEGLIGIBLE = 1e-4  # second-order effect of a fold, relative to its share of the risk
THOROUGH = 1e9  # multiplications up to which all folds are refined without asking


@dataclass(frozen=True, eq=False)
class SetsLeftOut:
    """The linear predictor of every tested row when its fold is left out.

    Attributes
    ----------
    fit : Fit
    folds : Folds
    eta : (t,) or (t, c) array
        Left-out linear predictors of ``folds.rows``, in their order.
    slack : (folds,) array
        Smallest singular value of I − D_G H_GG: 1 − leverage for one row.  1 where the curvature was
        factored without the fold, and needs none.
    settled : (folds,) bool array
        Folds whose values solve the problem without the fold on the pattern of the fit.
    exact : (folds,) bool array
        Those whose pattern stays, too: they are refits, to rounding for a quadratic loss, else to about
        1e-6 in ``eta``.
    """

    fit: Fit
    folds: Folds
    eta: Array
    slack: Array
    settled: Mask
    exact: Mask


def leave_out(fit: Fit, curvature: Curvature | None, folds: Folds, *, refine: bool = True) -> SetsLeftOut:
    """Leave sets of rows out of a fit that is optimal on its pattern.

    Parameters
    ----------
    fit : Fit
    curvature : Curvature or None
        That of the fit, if it is at hand.
    folds : Folds
    refine : bool, default True
        Whether to repeat the step until it settles, where one is not exact, and to check patterns.

    Raises
    ------
    ValueError
        If a fold removes all rows of positive weight.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Squared
    >>> from onefit.penalties import L2
    >>> from onefit.risk.folds import by_group
    >>> from onefit.solvers.solve import solve
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 2.0, 3.0, 9.0, 9.0])
    >>> solution = solve(Fit.at_start(Problem(Squared(), L2(0.0), X, y, np.ones(6))))
    >>> left_out = leave_out(*solution, by_group([0, 0, 0, 0, 1, 1], 6))
    >>> left_out.eta.round(6), left_out.exact
    (array([9., 9., 9., 9., 4., 5.]), array([ True,  True]))
    """
    share = removed_share(folds, fit.problem.weights)
    in_dual = _leave_out_in_dual(fit, folds) if is_wide_ridge(fit) else None
    if in_dual is not None:
        return in_dual
    ledger = _Ledger.of(fit, curvature, folds, share, refine=refine)
    for batch in ledger.batches():
        _downdate(ledger, batch)
    for some in ledger.chunks(np.flatnonzero(~ledger.reached), ledger.free * fit.problem.n):
        _factor_anew(ledger, some)
    return SetsLeftOut(fit, folds, ledger.eta, ledger.slack, ledger.settled, ledger.exact)


# --- bookkeeping -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Batch:
    """Folds of one size that share a curvature."""

    which: Index  # (f,) fold numbers
    rows: Index  # (f, b) the rows that they remove, sorted
    curvature: Curvature


@dataclass(frozen=True, eq=False)
class _Ledger:
    """What is asked, and what is known of each fold so far (filled in place)."""

    fit: Fit
    base: Curvature
    folds: Folds
    share: Array  # (folds,) share of the weights that leaves
    refine: bool
    eta: Array
    slack: Array
    settled: Mask
    exact: Mask
    reached: Mask  # folds that a downdate is enough for

    @classmethod
    def of(
        cls, fit: Fit, curvature: Curvature | None, folds: Folds, share: Array, *, refine: bool
    ) -> _Ledger:
        base = factor(fit) if curvature is None else curvature
        eta = np.empty((len(folds.rows), *fit.eta.shape[1:]))
        masks = (np.zeros(len(folds), dtype=bool) for _ in range(3))
        return cls(fit, base, folds, share, refine, eta, np.ones(len(folds)), *masks)

    @cached_property
    def start(self) -> Index:
        """Where the tested rows of each fold begin in ``eta``."""
        return np.cumsum([0] + [len(rows) for rows in self.folds.tested])

    @cached_property
    def growth(self) -> Array | None:
        """By how much the weights of each class grow without each fold: (folds, c)."""
        balance = self.fit.problem.balance
        if balance is None:
            return None
        return np.stack([balance.growth_without(rows) for rows in self.folds.removed])

    @property
    def coupled(self) -> int:
        """Number of outputs that the loss ties together, 1 for a separable one."""
        return self.fit.eta.shape[1] if self.fit.problem.loss.coupled else 1

    @cached_property
    def free(self) -> int:
        """Number of free coordinates in one factor, with the intercepts."""
        support = self.fit.tangent.support.reshape(len(self.fit.coef), -1)
        free = support.sum(axis=0) + self.fit.problem.intercept
        return int(free.sum() if self.coupled > 1 else free.max())

    @cached_property
    def shrinks_curvature(self) -> bool:
        return self.fit.problem.mean_scaled and self.fit.tangent.is_curved

    @cached_property
    def shrink(self) -> Array:
        """Factor on the penalty's curvature that each fold is given: few different ones."""
        if not self.shrinks_curvature:
            return np.ones(len(self.folds))
        levels = np.unique(self.share.round(12))
        if len(levels) > MAX_SHRINKS:
            levels = np.unique(np.quantile(self.share, (np.arange(MAX_SHRINKS) + 0.5) / MAX_SHRINKS))
        return 1.0 - levels[np.abs(self.share[:, None] - levels).argmin(axis=1)]

    @cached_property
    def one_step_is_exact(self) -> Mask:
        """Folds for which one step is the refit, whatever it comes to."""
        problem = self.fit.problem
        if not problem.has_flat_pieces or problem.balance is not None or self.fit.is_kinked:
            return np.zeros(len(self.folds), dtype=bool)
        return (
            np.abs(1.0 - self.share - self.shrink) < 1e-9
            if self.shrinks_curvature
            else np.ones(len(self.folds), dtype=bool)
        )

    def chunks(self, which: Index, numbers: int) -> Iterator[Index]:
        """Folds in chunks for which arrays of so many numbers a fold, and of η and β, fit a block."""
        n, p = self.fit.problem.X.shape
        outputs = self.fit.eta[0].size
        count = max(1, 2 * _linalg.BLOCK_SIZE // max(numbers, max(n, p) * outputs))
        for first in range(0, len(which), count):
            yield which[first : first + count]

    def batches(self) -> Iterator[_Batch]:
        """Folds to be downdated: those that remove no more rows than there are free coordinates."""
        sizes = np.array([len(rows) for rows in self.folds.removed])
        curvatures: dict[float, Curvature] = {}
        if not self.shrinks_curvature:
            curvatures[1.0] = self.base
        small = np.flatnonzero(sizes * self.coupled <= self.free)
        _, kind = np.unique(np.stack([sizes[small], self.shrink[small]]), axis=1, return_inverse=True)
        for number in range(int(kind.max(initial=-1)) + 1):
            which = small[kind.ravel() == number]
            size, shrink = int(sizes[which[0]]), float(self.shrink[which[0]])
            if shrink not in curvatures:
                curvatures[shrink] = factor(self.fit, shrink=shrink)
            per_row = len(self.fit.coef) * self.fit.eta[0].size * self.coupled
            for some in self.chunks(which, size * per_row):
                rows = np.stack([np.sort(self.folds.removed[k]) for k in some])
                yield _Batch(some, rows, curvatures[shrink])

    def refits(self, which: Index) -> Refits:
        return Refits.without(self.fit, self.base, [self.folds.removed[k] for k in which])

    def tested(self, k: int) -> slice:
        """Where the values of fold k stand in ``eta``."""
        return slice(self.start[k], self.start[k + 1])

    def settle(self, which: Index, refits: Refits, end: End) -> None:
        """Take over the values of some folds."""
        for j, k in enumerate(which):
            self.eta[self.tested(k)] = end.point.eta[self.folds.tested[k], ..., j]
        self.settled[which] = end.settled
        self.exact[which] = end.settled & refits.pattern_stays(end.point)


# --- the block formula -----------------------------------------------------------------------------


class _Forms(NamedTuple):
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


def _downdate(ledger: _Ledger, batch: _Batch) -> None:
    """One step for each fold of a batch, and more where that is not enough."""
    fit, which = ledger.fit, batch.which
    forms = _forms(ledger, batch)
    kept = forms.kept
    slack = np.linalg.svd(kept, compute_uv=False)[..., -1].min(axis=1)
    ledger.slack[which] = slack
    possible = slack >= SAFE_SLACK
    kept[~possible] = np.eye(kept.shape[-1])
    slope, shift = _rescaled(ledger, batch)
    inside = np.linalg.solve(kept, (forms.stack(slope) + _times(forms.D, forms.stack(shift)))[..., None])
    change = forms.unstack((forms.H @ inside)[..., 0], fit.eta.shape[1:]) + shift
    eta = fit.eta[batch.rows] + change
    for j, k in enumerate(which):
        ledger.eta[ledger.tested(k)] = eta[j, np.searchsorted(batch.rows[j], ledger.folds.tested[k])]
    exact = ledger.one_step_is_exact[which]
    ledger.settled[which] = ledger.exact[which] = exact
    ledger.reached[which] = possible
    more = possible & ~exact & ledger.refine
    if more.any() and _cost(ledger) > THOROUGH and not fit.problem.loss.jumps and not fit.is_kinked:
        more &= _bends(ledger, forms, eta, change)
    if more.any():
        refits = ledger.refits(which[more])
        inner = np.linalg.solve(kept[more], forms.D[more])
        step = _Downdated(batch.curvature, fit.problem, forms, inner, more)
        end = repeat_steps(refits, step.solve, refits.at_fit(), MAX_STEPS)
        ledger.settle(which[more], refits, end)
        ledger.reached[which[more]] = end.settled


def _times(matrices: Array, vectors: Array) -> Array:
    return (matrices @ vectors[..., None])[..., 0]


def _cost(ledger: _Ledger) -> float:
    """Multiplications that the refinement of all folds takes beyond what a factor costs anyway."""
    n, outputs = ledger.fit.problem.n, ledger.fit.eta[0].size
    free = min(ledger.free, n)
    return 16.0 * n * free * outputs * len(ledger.folds) - 2.0 * n * free**2


def _bends(ledger: _Ledger, forms: _Forms, eta: Array, change: Array) -> Mask:
    """Folds whose second-order effect shows in the risk: (f,)."""
    problem, rows = ledger.fit.problem, forms.rows
    flat = eta.reshape(-1, *eta.shape[2:])
    slope = problem.loss.gradient(problem.y[rows.ravel()], flat).reshape(eta.shape)
    slope = slope * problem.weights[rows].reshape(*rows.shape, *(1,) * (eta.ndim - 2))
    there = forms.stack(slope)
    bent = there - forms.stack(ledger.fit.gradient[rows]) - _times(forms.D, forms.stack(change))
    effect = np.abs(np.sum(there * _times(forms.H, bent), axis=(1, 2)))
    risk = problem.per_row(problem.loss.value(problem.y, ledger.fit.eta)).sum()
    return effect > NEGLIGIBLE * risk / len(ledger.folds)


def _forms(ledger: _Ledger, batch: _Batch) -> _Forms:
    fit, rows = ledger.fit, batch.rows
    f, b = rows.shape
    bend = fit.hessian[rows]
    if ledger.coupled > 1:
        c = ledger.coupled
        D = np.zeros((f, b, c, b, c))
        D[:, np.arange(b), :, np.arange(b)] = bend.transpose(1, 0, 2, 3)
        return _Forms(_coupled_forms(fit, batch), D.reshape(f, 1, b * c, b * c), rows, True)
    bend = bend.reshape(f, b, -1).transpose(0, 2, 1)
    H = _forms_by_rows(fit, batch) if ledger.free < fit.problem.n else _forms_by_hat(fit, batch)
    return _Forms(H, bend[..., None] * np.eye(b), rows, False)


def _forms_by_hat(fit: Fit, batch: _Batch) -> Array:
    """H_GG from Z K⁻¹ Zᵀ times unit columns: for curvatures that live in the rows."""
    f, b = batch.rows.shape
    flat = batch.rows.ravel()
    unit = np.zeros((*fit.eta.shape, flat.size))
    unit[flat, ..., np.arange(flat.size)] = 1.0
    columns = batch.curvature.hat(unit).reshape(fit.problem.n, -1, f, b)
    own = columns[batch.rows, :, np.arange(f)[:, None]]  # (f, row, c, column)
    return own.transpose(0, 2, 1, 3)


def _forms_by_rows(fit: Fit, batch: _Batch) -> Array:
    """H_GG = Z_G (K⁻¹ Z_Gᵀ), for every output."""
    f, b = batch.rows.shape
    outputs = fit.eta.shape[1:]
    columns = _linalg.rows_as_columns(fit.problem.X, batch.rows.ravel())
    shape = (*outputs, columns.shape[1])
    gradient = np.broadcast_to(
        columns.reshape(len(columns), *(1,) * len(outputs), -1), (len(columns), *shape)
    )
    answer = batch.curvature.solve(Direction(gradient, np.ones(shape)))
    support = fit.tangent.support.reshape(len(columns), -1).any(axis=1)
    left = columns[support].T.reshape(f, 1, b, -1)
    right = answer.coef[support].reshape(left.shape[-1], -1, f, b).transpose(2, 1, 0, 3)
    level = answer.intercept.reshape(-1, f, b).transpose(1, 0, 2)
    return left @ right + level[:, :, None, :]


def _coupled_forms(fit: Fit, batch: _Batch) -> Array:
    """H_GG over rows and outputs, (f, 1, b c, b c)."""
    f, b = batch.rows.shape
    c = fit.eta.shape[1]
    columns = _linalg.rows_as_columns(fit.problem.X, batch.rows.ravel())
    p, r = columns.shape
    coef, level = np.zeros((p, c, r, c)), np.zeros((c, r, c))
    for a in range(c):
        coef[:, a, :, a], level[a, :, a] = columns, 1.0
    answer = batch.curvature.solve(Direction(coef.reshape(p, c, -1), level.reshape(c, -1)))
    support = fit.tangent.support.any(axis=1)
    right = answer.coef[support].reshape(-1, c, f, b * c).transpose(2, 0, 1, 3)
    left = columns[support].T.reshape(f, b, -1)
    forms = (left @ right.reshape(f, left.shape[-1], -1)).reshape(f, b, c, b * c)
    forms += answer.intercept.reshape(c, f, b * c).transpose(1, 0, 2)[:, None]
    return forms.reshape(f, 1, b * c, b * c)


def _rescaled(ledger: _Ledger, batch: _Batch) -> tuple[Array, Array]:
    """What leaves with the rows of each fold, grown, and what else a refit changes there.

    Returns
    -------
    slope, shift : (f, b, …outputs) arrays
        g_G, and s_G = −Z_G K⁻¹ (gradient of all that the refit adds to the objective).
    """
    fit, rows, curvature = ledger.fit, batch.rows, batch.curvature
    problem = fit.problem
    slope, shift = fit.gradient[rows], np.zeros_like(fit.eta[rows])
    one_a_fold = (-1, *(1,) * (shift.ndim - 1))
    if problem.mean_scaled:
        penalty = Direction(fit.tangent.gradient, np.zeros_like(fit.intercept))
        shift += curvature.respond(penalty)[rows] * ledger.share[batch.which].reshape(one_a_fold)
    if problem.balance is None or ledger.growth is None:
        return slope, shift
    growth, classes = ledger.growth[batch.which], problem.balance.classes
    for k in range(growth.shape[1]):
        own = (fit.gradient.T * (classes == k)).T
        gradient = Direction(
            np.where(fit.tangent.support, _linalg.transposed_times(problem.X, own), 0.0),
            np.where(problem.intercept, own.sum(axis=0), 0.0),
        )
        shift -= curvature.respond(gradient)[rows] * growth[:, k].reshape(one_a_fold)
    grown = np.take_along_axis(growth, classes[rows], axis=1)
    return slope * (1.0 + grown.reshape(*rows.shape, *(1,) * (shift.ndim - 2))), shift


# --- more steps -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Downdated:
    """K_G⁻¹ = K⁻¹ + K⁻¹ Z_Gᵀ (I − D H)⁻¹ D Z_G K⁻¹ for each of some folds of a batch."""

    curvature: Curvature
    problem: Problem
    forms: _Forms
    inner: Array  # (I − D H)⁻¹ D
    which: Mask

    def solve(self, gradient: Direction) -> Direction:
        first = self.curvature.solve(gradient)
        forms = self.forms._replace(rows=self.forms.rows[self.which])
        rows, own = forms.rows, np.arange(len(forms.rows))[:, None]
        predicted = self.curvature.predict(first)
        outputs = predicted.shape[1:-1]
        inside = _times(self.inner, forms.stack(predicted[rows, ..., own]))
        scattered = np.zeros_like(predicted)
        scattered[rows, ..., own] = forms.unstack(inside, outputs)
        coef = _linalg.transposed_times(self.problem.X, scattered)
        second = self.curvature.solve(Direction(coef, scattered.sum(axis=0)))
        return Direction(first.coef + second.coef, first.intercept + second.intercept)


def _factor_anew(ledger: _Ledger, which: Index) -> None:
    """Solve without folds that are large beside the free coordinates, or that a downdate does not reach."""
    refits = ledger.refits(which)
    quadratic = ledger.fit.problem.loss.quadratic
    point = refits.at_zero() if quadratic else refits.at_fit()
    max_steps = MAX_STEPS if ledger.refine or quadratic else 1
    end = repeat_steps(refits, FactoredAnew.at(refits, point).solve, point, max_steps)
    if ledger.refine and not quadratic:
        for j in np.flatnonzero(~end.settled).tolist():
            end.put(j, newton(refits.only(j), end.point.only(slice(j, j + 1))))
    ledger.slack[which] = 1.0
    ledger.settle(which, refits, end)


# --- in the dual -----------------------------------------------------------------------------------


def _leave_out_in_dual(fit: Fit, folds: Folds) -> SetsLeftOut | None:
    """Wide ridge and its limit, the interpolating fit of minimum norm: y_G − η̃_G = Q_GG⁻¹ (Q y)_G.

    ``Q`` is that of ``one_fit``.  None where it is, and where rows without weight are judged, on which Q
    is silent.
    """
    problem = fit.problem
    if np.any(problem.weights[folds.rows] == 0):
        return None
    Q = residual_form(fit)
    if Q is None:
        return None
    held = np.flatnonzero(problem.weights)
    position = np.full(problem.n, -1)
    position[held] = np.arange(len(held))
    eta = np.empty((len(folds.rows), *fit.eta.shape[1:]))
    residual = _linalg.product(Q, problem.y[held])
    ends = np.cumsum([len(rows) for rows in folds.tested])
    for k, (removed, tested) in enumerate(zip(folds.removed, folds.tested, strict=True)):
        rows = np.sort(removed[problem.weights[removed] > 0])
        own = Q[np.ix_(position[rows], position[rows])]
        left_out = problem.y[rows] - np.linalg.solve(own, residual[position[rows]])
        eta[ends[k] - len(tested) : ends[k]] = left_out[np.searchsorted(rows, tested)]
    exact = np.ones(len(folds), dtype=bool)
    # nothing was divided by a vanishing slack, so none is left to be wary of
    return SetsLeftOut(fit, folds, eta, np.ones(len(folds)), exact, exact.copy())

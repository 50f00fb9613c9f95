"""How far the ends of iterations of kinked, curved fits may be from the solutions without a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.leave_out import prove
from onefit.numerics import LEAST_SLACK, ON_BOUND, length_of

if TYPE_CHECKING:
    from onefit.leave_out.proximal import RowProblems

OPEN = 1e-5  # share of the gradients of the rows from which an end is none: steps end below a tenth of it
PIECES = 8  # of the rows, by how far they may be off: of most few columns are asked


@dataclass(eq=False)
class Proof:
    """What is known of the ends of a run.

    Attributes
    ----------
    run : RowProblems
    eligible : (p,) bool array
        Columns that may enter.
    joining : (p,) bool array
        Columns off the working set that should join it.
    fine : (m,) bool array
        Problems that have settled without them.
    bounds : (m,) array
        How far each row's own predictor may be off.
    """

    run: RowProblems
    eligible: Mask

    def __post_init__(self) -> None:
        run, m = self.run, len(self.run.rows)
        self.joining, violated = np.zeros(len(self.eligible), dtype=bool), np.zeros(m, dtype=bool)
        unsure = ~np.isfinite(self._drift) & self._off.any()
        drift = np.where(np.isfinite(self._drift), self._drift, 0.0)
        for which, asked, excess, bound in self._excesses(drift):
            beyond = excess > ON_BOUND * bound
            violated[which] = beyond.any(axis=0)
            self.joining[asked] |= (beyond & run.settled[which]).any(axis=1)
            unsure[which] |= np.any(excess > -np.multiply.outer(self._norms[asked], drift[which]), axis=0)
        self.joining[run.table.columns] = False
        self.fine = run.settled & ~violated
        with np.errstate(invalid="ignore"):
            found = self._lengths[3] * self._lengths[0]
        self.bounds = np.where(np.isfinite(found) & ~unsure & self.fine, found, np.inf)

    def _excesses(self, drift: Array) -> Iterator[tuple[Index, Index, Array, Array]]:
        """Some problems, columns that they might want, what these have beyond their bounds, and those."""
        l1, _ = self.run.table.fit.strengths
        sizes, keep = np.abs(self._correlations), self.run.keep
        for which in np.array_split(np.argsort(drift), min(PIECES, len(drift))):
            some = sizes[:, which]
            far = some.max(axis=1) + drift[which].max() * self._norms
            asked = np.flatnonzero(self._off & ~(far <= l1 * keep[which].min()))
            bound = np.multiply.outer(l1[asked], keep[which])
            yield which, asked, some[asked] - bound, bound

    @cached_property
    def used(self) -> Mask:
        """Coordinates that some problem has or would have a little further on, or that the fit has: (q,)."""
        run = self.run
        further = np.any(self._left[:, run.settled] != 0, axis=1)
        return np.asarray(np.any(run.stacked != 0, axis=1) | further | run.table.inside)

    @cached_property
    def _off(self) -> Mask:
        """Columns that no problem has: what the others leave is in the lengths of errors."""
        off, columns = self.eligible.copy(), self.run.table.columns
        off[columns[self.used[: len(columns)]]] = False
        return off

    @cached_property
    def _norms(self) -> Array:
        fit = self.run.table.fit
        return _linalg.column_norms(fit.problem.X, fit.hessian, centred=False)

    @cached_property
    def _slopes(self) -> Array:
        """Slopes at the ends: (n, m)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.run.slopes(np.arange(len(self.run.rows)))

    @cached_property
    def _correlations(self) -> Array:
        """Products of all columns with them: (p, m)."""
        return _linalg.transposed_times(self.run.table.fit.problem.X, self._slopes)

    @cached_property
    def _left(self) -> Array:
        """Smallest subgradients at the ends: (q, m)."""
        run, table = self.run, self.run.table
        x, l1 = run.stacked, table.l1[:, None] * run.keep
        gradient = table.transposed_times(self._slopes) + (table.l2[:, None] * run.keep) * x
        excess = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
        return np.where(x != 0, gradient + l1 * np.sign(x), excess)

    @property
    def is_stationary(self) -> Mask:
        """Whether an end leaves next to nothing of the gradients of its rows: (m,).

        A model that has no curvature along a row that is all that held it settles anywhere.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            sizes = (np.linalg.norm(a, axis=0) for a in (self.run.table.Z, self._slopes))
            return np.asarray(np.all(np.abs(self._left) <= OPEN * np.multiply.outer(*sizes), axis=0))

    @cached_property
    def _drift(self) -> Array:
        R = self.run.table.fit.problem.self_concordance()
        length, travelled, widest, _ = self._lengths
        return prove.drift(float(R or 0.0), length, travelled, widest)

    @cached_property
    def _lengths(self) -> tuple[Array, Array, Array, Array]:
        """Radius of the error, ρ, M, and the row's own norm in A⁻¹, over the columns in use: (m,) each."""
        run, table, fit = self.run, self.run.table, self.run.table.fit
        problem, m, used = fit.problem, len(run.rows), self.used
        Z = table.Z[:, used]
        L = _linalg.cholesky(np.asfortranarray(table.K[np.ix_(used, used)]))
        if L is None or problem.loss.jumps:
            nothing = np.full(m, np.inf)
            return nothing, nothing, nothing, nothing
        half = _linalg.half_solve(L, np.array(Z, order="C"))
        forms = np.einsum("ij,ij->i", half, half)
        left, own = self._left[used], forms[run.rows]
        slack = 1.0 - fit.hessian[run.rows] * own
        solved = _linalg.factor_solve(L, left)
        along = np.einsum("qm,qm->m", Z[run.rows].T, solved)
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = np.einsum("qm,qm->m", left, solved) + fit.hessian[run.rows] * along**2 / slack
            norm = length_of(squares)
            widest = np.sqrt(forms[problem.weights > 0].max() / slack)
            travelled = run.travelled(run.eta, np.arange(m))
            low = _lowest(run, curved=bool(np.any(table.l2)))
            R = float(problem.self_concordance() or 0.0)
            length = prove.radius(R, norm, travelled, widest, low)
            length = np.where(run.settled & (slack >= LEAST_SLACK), length, np.inf)
            return length, travelled, widest, np.sqrt(own / slack)


def entering(run: RowProblems, eligible: Mask) -> Mask:
    """Columns off the working set that should join it where the problems are: (p,).

    Those that pull most, where there are more than the set has already: on the way of rows that move far
    nearly all columns pull, of which hardly any stay.
    """
    fit, which = run.table.fit, np.flatnonzero(np.isfinite(run.eta).all(axis=0))
    l1, _ = fit.strengths
    sizes = np.abs(_linalg.transposed_times(fit.problem.X, run.slopes(which)))
    excess = sizes - (1.0 + ON_BOUND) * np.multiply.outer(l1, run.keep[which])
    most = excess.max(axis=1, initial=0.0)
    most[~eligible] = most[run.table.columns] = 0.0
    found = np.argsort(-most, kind="stable")[: len(run.table.columns)]
    joining = np.zeros(len(eligible), dtype=bool)
    joining[found[most[found] > 0]] = True
    return joining


def _lowest(run: RowProblems, *, curved: bool) -> Array:
    """Least factor of the Hessians on that of the fit: (m,)."""
    problem = run.table.fit.problem
    low = np.minimum(run.keep / problem.usual_shrink, 1.0) if curved else 1.0
    if run.weights is None:
        return np.broadcast_to(low, run.keep.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.where(run.weights > 0, run.weights / problem.weights[:, None], 1.0).min(axis=0)
    return np.minimum(low, grown)

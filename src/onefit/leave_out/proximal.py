"""All rows whose pattern changes, solved together: chord proximal Newton on every left-out problem at once.

One row of B (m × k) is a problem, its predictors are a row of E = B Zᵀ, and each has its own row masked.  A
round minimises the quadratic model of every problem with the common K less the row's own rank-one term,

    ½ xᵀ (K − d_i z_i z_iᵀ) x − f_iᵀ x + Σ_j l1_j |x_j|,

by a primal–dual active-set method on one tableau: with the support S of the fit eliminated, a problem whose
pattern differs from it in Q coordinates takes a system of |Q| + 1 equations (as in ``follow_lasso``).  Steps
that the common K makes slow are mixed with those before, and the true objective is asked for their length.
Columns off the working set are looked at in one product; those that should enter join it.

At the end every problem is bounded (``prove``) over the columns of the working set, and what is off it is
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.leave_out.exchange import QuadraticModels
from onefit.leave_out.proximal_proof import gradients_left, measure
from onefit.leave_out.tableau import Tableau, Watched, WorkingSet
from onefit.numerics import ON_BOUND
from onefit.penalties import SeparablePenalty
from onefit.solvers.line_search import CALM, falling
from onefit.solvers.mixing import MIXED, ChordStep, mixed

ROUNDS, USUAL_ROUNDS = 30, 3  # of steps: at most, and those that a row is costed at
JOINED = 4  # times that columns may join
SETTLED = 1e-10  # last change of a linear predictor, relative to their size, at full precision
OPEN = 1e-5  # share of the gradients of the rows from which an end is none: steps end below a tenth of it
AT_ONCE = 2**18  # numbers in an array of rows by problems, which stays in the cache


class Ends(NamedTuple):
    """Where the iterations of some rows ended."""

    eta: Array  # (m,), the row's own predictor
    bounds: Array  # (m,)
    coef: Array  # (m, p)
    intercept: Array  # (m,)
    settled: Mask  # (m,)


def applies(fit: Fit) -> bool:
    """Whether single rows of this fit can be iterated: one output, and kinks in single coefficients."""
    problem = fit.problem
    if not (isinstance(problem.penalty, SeparablePenalty) and problem.has_one_output and fit.is_kinked):
        return False
    curved = problem.self_concordance() is not None and not problem.loss.is_kinked
    return curved and not isinstance(problem.X, _linalg.RowGram) and bool(fit.hessian.min() >= 0)


def cost(fit: Fit) -> Work:
    """What a row takes, about."""
    return cost_of_look(fit).times(USUAL_ROUNDS)


def cost_of_look(fit: Fit) -> Work:
    """What a row takes in the first round, about."""
    n, k = fit.problem.n, fit.tangent.size + 1.0
    stored = _linalg.as_columns(fit.problem.X).n_stored  # for correlations; masks and sums are as functions
    return Work(2.0 * n * k + 3.0 * k * k + 4.0 * stored, 0.0, 15.0 * n)


def look(watched: Watched, rows: Index) -> Iterator[tuple[int, float, float]]:
    """Rows after one round from the fit: row, its own predictor and how far that may be off.

    Bounds are infinite where columns off the working set should enter.
    """
    table, n = watched.table(), watched.fit.problem.n
    if table is None:
        return
    for some in _in_chunks(rows, n):
        run = RowProblems.at_fit(table, some)
        run.go(np.inf)
        fine = run.judge(watched.eligible)[1]
        eta, bounds = run.eta[some, np.arange(some.size)], np.where(fine, run.bounds(), np.inf)
        known = run.settled & np.isfinite(eta)
        yield from zip(some[known].tolist(), eta[known].tolist(), bounds[known].tolist(), strict=True)


def _in_chunks(rows: Index, n: int) -> list[Index]:
    return np.array_split(rows, max(1, rows.size * n // AT_ONCE))


def iterate(watched: Watched, rows: Index, tol: float, starts: Sequence[Direction] = ()) -> Ends:
    """Left-out solutions of some rows, each on its own.

    Parameters
    ----------
    watched : Watched
        Columns that join are watched from then on.
    rows : (m,) int array
    tol : float
        1 is full precision; more is so many times as loose.
    starts : sequence of Direction, optional
        Coefficients and intercept from where to go on, a row each; by default those of the fit.
    """
    fit, m = watched.fit, len(rows)
    ends = Ends(
        fit.eta[rows],
        np.full(m, np.inf),
        np.array([start.coef for start in starts] or [fit.coef] * m),
        np.array([start.intercept for start in starts] or [fit.intercept] * m, dtype=np.float64),
        settled=np.zeros(m, dtype=bool),
    )
    part, moved = np.arange(m), bool(starts)
    for _ in range(JOINED):
        table = watched.table()
        if table is None:
            break
        joining, missed = np.zeros(len(fit.coef), dtype=bool), []
        for some in _in_chunks(part, fit.problem.n):
            which = rows[some]
            run = RowProblems.of(table, which, ends, some) if moved else RowProblems.at_fit(table, which)
            run.go(SETTLED * max(tol, 1.0))
            own, fine = run.judge(watched.eligible)
            run.hand_over(ends, some, fine)
            joining |= own
            missed.append(some[run.settled & ~fine])
        part = np.concatenate(missed)
        if part.size == 0 or not joining.any():
            break
        watched.join(joining)
        moved = True
    return ends


@dataclass(eq=False)
class RowProblems:
    """The problems without each of some rows, one a column."""

    table: WorkingSet
    rows: Index  # (m,)
    weights: Array | None  # (n, m), where those of other rows change, too
    keep: Array  # (m,), factor on the penalty
    beta: Array  # (k, m)
    intercept: Array  # (m,), of centred columns
    eta: Array  # (n, m)
    is_fresh: bool  # whether all problems are at the fit
    settled: Mask = field(init=False)
    failed: Mask = field(init=False)
    seen: list[ChordStep] = field(default_factory=list)  # the last steps, oldest first
    seen_of: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))  # and of which problems

    @classmethod
    def at_fit(cls, table: WorkingSet, rows: Index) -> RowProblems:
        """Start from the fit."""
        fit, m = table.fit, len(rows)
        beta = np.repeat(fit.coef[table.columns, None], m, axis=1)
        run = cls._at(table, rows, beta, np.full(m, float(fit.intercept)))
        run.eta, run.is_fresh = np.repeat(fit.eta[:, None], m, axis=1), True
        return run

    @classmethod
    def of(cls, table: WorkingSet, rows: Index, ends: Ends, part: Index) -> RowProblems:
        """Start where the iterations have come to."""
        beta = np.ascontiguousarray(ends.coef[np.ix_(part, table.columns)].T)
        run = cls._at(table, rows, beta, ends.intercept[part])
        run.eta = run.predict(run.stacked)
        return run

    @classmethod
    def _at(cls, table: WorkingSet, rows: Index, beta: Array, intercept: Array) -> RowProblems:
        problem, weights = table.fit.problem, None
        if problem.is_balanced:
            weights = np.stack([problem.without(int(i)).weights for i in rows], axis=1)
        keep, level = 1.0 - problem.lost_shares(rows), intercept + table.means @ beta
        return cls(table, rows, weights, keep, beta, level, np.empty(0), is_fresh=False)

    def __post_init__(self) -> None:
        self.settled = np.zeros(len(self.rows), dtype=bool)
        self.failed = np.zeros(len(self.rows), dtype=bool)

    @property
    def stacked(self) -> Array:
        """All parameters: (q, m)."""
        return np.vstack([self.beta, self.intercept]) if self.table.fit.problem.intercept else self.beta

    def predict(self, x: Array) -> Array:
        """Linear predictors, (n, m)."""
        level = 0.0 if self.table.fit.problem.intercept else float(self.table.fit.intercept)
        return _linalg.product(self.table.Z, x) + level

    def weighted(self, values: Array, active: Index) -> Array:
        """Values by row times the weights of some problems, each without its own row: (n, a)."""
        weights = self.table.fit.problem.weights
        if self.weights is not None:
            return np.where(self.weights[:, active] > 0, self.weights[:, active] * values, 0.0)
        values = values * weights[:, None]
        values[weights == 0] = 0.0
        values[self.rows[active], np.arange(active.size)] = 0.0
        return values

    @property
    def is_model(self) -> bool:
        """Whether the quadratic model is the problem itself, so that its minimum is the end."""
        problem, table = self.table.fit.problem, self.table
        straight = problem.self_concordance() == 0 and not problem.loss.jumps
        return straight and self.weights is None and (problem.usual_shrink == 1.0 or not np.any(table.l2))

    def go(self, tol: float) -> None:
        """Iterate until every problem has settled, or does not."""
        unit = float(np.max(np.abs(self.table.fit.eta), initial=0.0)) + 1e-3
        for _ in range(ROUNDS):
            active = np.flatnonzero(~self.settled & ~self.failed)
            if active.size == 0:
                break
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                moved = self._round(active)
            self.settled[active] |= moved <= tol * unit
        self.failed |= ~self.settled

    def slopes(self, active: Index) -> Array:
        """Derivatives of the weighted losses: (n, a)."""
        return self.weighted(self.table.fit.problem.loss_at("gradient", self.eta[:, active]), active)

    def gradient(self, active: Index, slopes: Array | None = None) -> Array:
        """Gradient of loss and ℓ2 part: (q, a)."""
        table, fit = self.table, self.table.fit
        if slopes is None and self.is_fresh and self.weights is None:
            own = self.rows[active]
            along = (table.Z.T @ fit.gradient)[:, None] - table.Z[own].T * fit.gradient[own]
        else:
            along = _linalg.product(table.Z.T, self.slopes(active) if slopes is None else slopes)
        return along + (table.l2[:, None] * self.keep[active]) * self.stacked[:, active]

    def _round(self, active: Index) -> Array:
        """One step of some problems; by how much their predictors moved."""
        x = self.stacked[:, active]
        target, found = self._model_minimum(active, x, self.gradient(active))
        bad = ~np.isfinite(target).all(axis=0)
        target[:, bad] = x[:, bad]
        target = self._mixed(active, x, target)
        ahead = self.predict(target)
        here = self.eta[:, active]
        length = self._lengths(active, x, target, ahead)
        self.failed[active] |= bad | ~found | (length == 0.0)
        change = ahead - here
        moved = length * np.abs(change).max(axis=0)
        new = x + length * (target - x)
        self.beta[:, active] = new[: len(self.beta)]
        if self.table.fit.problem.intercept:
            self.intercept[active] = new[-1]
        self.eta[:, active] = np.where(length == 1.0, ahead, here + length * change)
        self.is_fresh = False
        moved[found & self.is_model] = 0.0
        return np.where(length == 1.0, moved, np.inf)

    def _mixed(self, active: Index, x: Array, target: Array) -> Array:
        """Where these steps and those before lead together, unless that has other signs: (q, a)."""
        step = target - x
        own = ChordStep(target, step, _linalg.product(self.table.K, step))
        still = np.isin(self.seen_of, active)  # none that has settled moves again
        before = (ChordStep(*(part[:, still] for part in one)) for one in self.seen)
        self.seen, self.seen_of = [*before, own][-MIXED:], active
        found = mixed(self.seen)
        return np.where(np.sign(found) == np.sign(target), found, target)

    def _objective(self, active: Index, x: Array, eta: Array) -> Array:
        problem, table = self.table.fit.problem, self.table
        losses = self.weighted(problem.loss_at("value", eta), active)
        penalty = table.l1 @ np.abs(x) + 0.5 * (table.l2 @ x**2)
        return losses.sum(axis=0) + self.keep[active] * penalty

    def travelled(self, eta: Array, active: Index) -> Array:
        """How far any row with weight is from the fit: (a,)."""
        moved = np.abs(eta - self.table.fit.eta[:, None])
        if self.weights is not None:
            return np.where(self.weights[:, active] > 0, moved, 0.0).max(axis=0)
        moved[self.table.fit.problem.weights == 0] = 0.0
        moved[self.rows[active], np.arange(active.size)] = 0.0
        return moved.max(axis=0)

    def _lengths(self, active: Index, x: Array, target: Array, ahead: Array) -> Array:
        """Halve the steps along which the objective does not fall: (a,), 0 where none is short enough.

        Up to ``CALM`` it must, as the model has at least half of the curvature on the way.  Mixed steps that
        short are taken, too: where they lead is judged at the end.
        """
        problem = self.table.fit.problem
        length, far = np.ones(len(active)), np.arange(len(active))
        R = problem.self_concordance()
        if R is not None and not problem.loss.jumps and self.weights is None:
            reach = np.maximum(self.travelled(ahead, active), self.travelled(self.eta[:, active], active))
            far = np.flatnonzero(~(R * reach <= CALM))
        if far.size == 0:
            return length

        def objective(todo: Index, share: Array) -> Array:
            which = far[todo]
            own = active[which]
            between = self.eta[:, own] + share * (ahead[:, which] - self.eta[:, own])
            return self._objective(own, x[:, which] + share * (target[:, which] - x[:, which]), between)

        length[far] = falling(objective, far.size)
        return length

    # --- the quadratic model -------------------------------------------------------------------------

    def _model_minimum(self, active: Index, x: Array, gradient: Array) -> tuple[Array, Mask]:
        """Minimum of each model, by changes of the pattern from that of x: (q, a), and whether it is one."""
        table, own = self.table, self.rows[active]
        z, d = table.Z[own].T, table.d[own]  # (q, a), (a,)
        f = _linalg.product(table.K, x) - z * (d * np.einsum("qa,qa->a", z, x)) - gradient
        keep = self.keep[active]
        tableau, bound = Tableau.of(table, f, keep, z, d), np.multiply.outer(table.l1, keep)
        models = QuadraticModels(tableau=tableau, start=x, bound=bound)
        found = models.minima()
        return found.x, found.settled

    # --- the end -------------------------------------------------------------------------------------

    def hand_over(self, ends: Ends, part: Index, fine: Mask) -> None:
        """Write where the problems have come to, and whether they need no other columns there."""
        table, finite = self.table, np.isfinite(self.eta).all(axis=0)
        there, which = part[finite], np.flatnonzero(finite)
        ends.coef[np.ix_(there, table.columns)] = self.beta.T[which]
        ends.intercept[there] = (self.intercept - table.means @ self.beta)[which]
        ends.eta[there] = self.eta[self.rows[which], which]
        ends.settled[part] = fine & finite & self._is_stationary
        ends.bounds[part] = np.where(fine & finite, self.bounds(), np.inf)

    @property
    def used(self) -> Mask:
        """Coordinates that some problem has, or that the fit has: (q,)."""
        return np.asarray(np.any(self.stacked != 0, axis=1) | self.table.inside)

    def judge(self, eligible: Mask) -> tuple[Mask, Mask]:
        """Columns off the working set that should join, and problems that have settled without them."""
        fit, problem, table = self.table.fit, self.table.fit.problem, self.table
        l1, _ = problem.separable.strengths(fit.coef.shape)
        used = table.columns[self.used[: len(table.columns)]]  # what these leave is in the lengths of errors
        correlations = _linalg.transposed_times(problem.X, self.end)
        np.abs(correlations, out=correlations)
        drift, off = self._drift(), eligible.copy()
        off[used] = False
        known = np.isfinite(drift) | ~off.any()
        norms = _linalg.column_norms(problem.X, fit.hessian, centred=False)
        farthest = float(np.max(drift, where=np.isfinite(drift), initial=0.0))
        asked = off & ~(correlations.max(axis=1) + farthest * norms <= l1 * self.keep.min())
        own, bound = correlations[asked], np.multiply.outer(l1[asked], self.keep)
        violated = own > bound * (1.0 + ON_BOUND)
        slack = np.multiply.outer(norms[asked], np.where(np.isfinite(drift), drift, 0.0))
        self._unsure = ~known | (own + slack > bound).any(axis=0)
        joining = np.zeros(len(off), dtype=bool)
        joining[asked] = (violated & self.settled).any(axis=1)
        joining[table.columns] = False
        return joining, self.settled & ~violated.any(axis=0)

    @cached_property
    def end(self) -> Array:
        """Slopes at the ends: (n, m)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.slopes(np.arange(len(self.rows)))

    @cached_property
    def left(self) -> Array:
        """Gradients that the ends leave: (q, m)."""
        return gradients_left(self)

    @property
    def _is_stationary(self) -> Mask:
        """Whether an end leaves next to nothing of the gradients of its rows: (m,).

        A model that has no curvature along a row that is all that held it settles anywhere.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            most = np.multiply.outer(*(np.linalg.norm(a, axis=0) for a in (self.table.Z, self.end)))
            return np.asarray(np.all(np.abs(self.left) <= OPEN * most, axis=0))

    @cached_property
    def _lengths_of_errors(self) -> tuple[Array, Array, Array, Array]:
        """Radius, ρ, M, and the row's own norm in A⁻¹, over the columns in use: (m,) each."""
        return measure(self)

    def _drift(self) -> Array:
        R = self.table.fit.problem.self_concordance()
        length, travelled, widest, _ = self._lengths_of_errors
        return prove.drift(float(R or 0.0), length, travelled, widest)

    def bounds(self) -> Array:
        """How far each row's own predictor may be off: (m,)."""
        with np.errstate(invalid="ignore"):
            found = self._lengths_of_errors[3] * self._lengths_of_errors[0]
        return np.where(np.isfinite(found) & ~self._unsure, found, np.inf)

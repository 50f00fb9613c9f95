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
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out.exchange import QuadraticModels
from onefit.leave_out.proximal_proof import Proof, entering
from onefit.leave_out.tableau import JOINED, Tableau, Watched, WorkingSet
from onefit.penalties import SeparablePenalty
from onefit.solvers.line_search import CALM, falling
from onefit.solvers.mixing import MIXED, ChordStep, mixed

ROUNDS, USUAL_ROUNDS = 30, 3  # of steps: at most, and those that a row is costed at
GOING_ROUND, NEAR_THE_SAMPLE = 15.0, 10.0  # times longer (60 to 200 rows, 200 to 2000 columns)
SETTLED = 1e-10  # last change of a linear predictor, relative to their size, at full precision
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
    """What a row takes, about: many times as long where as many columns are free as rows that bend."""
    going_round = GOING_ROUND * fit.saturation**NEAR_THE_SAMPLE
    return cost_of_look(fit).times(USUAL_ROUNDS * (1.0 + going_round))


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
        eta, bounds = run.eta[some, np.arange(some.size)], Proof(run, watched.eligible).bounds
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
    if not moved:
        moved = _join_first(watched, rows, ends)
    for _ in range(JOINED):
        table = watched.table()
        if table is None:
            break
        joining, missed = np.zeros(len(fit.coef), dtype=bool), []
        for some in _in_chunks(part, fit.problem.n):
            which = rows[some]
            run = RowProblems.of(table, which, ends, some) if moved else RowProblems.at_fit(table, which)
            run.go(SETTLED * max(tol, 1.0))
            proof = Proof(run, watched.eligible)
            run.hand_over(ends, some, proof)
            joining |= proof.joining
            missed.append(some[run.settled & ~proof.fine])
        part = np.concatenate(missed)
        if part.size == 0 or not joining.any():
            break
        watched.join(joining)
        moved = True
    return ends


def _join_first(watched: Watched, rows: Index, ends: Ends) -> bool:
    """Take a round from the fit, and watch the columns that should enter there; whether one was taken.

    Most that enter at all do so at once: rounds up to an end without them would be lost.
    """
    table = watched.table()
    if table is None:
        return False
    joining = np.zeros(len(watched.eligible), dtype=bool)
    for some in _in_chunks(np.arange(len(rows)), watched.fit.problem.n):
        run = RowProblems.at_fit(table, rows[some])
        if run.is_model:  # a round leads to the end
            return False
        run.go(np.inf)
        joining |= entering(run, watched.eligible)
        run.move(ends, some)
    watched.join(joining)
    return True


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
    goes_on: bool = field(init=False, default=True)  # with more than one round
    seen: list[ChordStep] = field(default_factory=list)  # the last steps, oldest first
    seen_of: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))  # and of which problems

    @classmethod
    def at_fit(cls, table: WorkingSet, rows: Index) -> RowProblems:
        """Start from the fit."""
        fit, m = table.fit, len(rows)
        beta = np.repeat(fit.coef[None, table.columns], m, axis=0).T  # columns stay together, as in products
        run = cls._at(table, rows, beta, np.full(m, float(fit.intercept)))
        run.eta, run.is_fresh = np.repeat(fit.eta[None], m, axis=0).T, True
        return run

    @classmethod
    def of(cls, table: WorkingSet, rows: Index, ends: Ends, part: Index) -> RowProblems:
        """Start where the iterations have come to."""
        beta = ends.coef[np.ix_(part, table.columns)].T
        run = cls._at(table, rows, beta, ends.intercept[part])
        run.eta = run.predict(run.stacked)
        return run

    @classmethod
    def _at(cls, table: WorkingSet, rows: Index, beta: Array, intercept: Array) -> RowProblems:
        problem, weights = table.fit.problem, None
        if problem.is_balanced:
            weights = np.stack([problem.without(int(i)).weights for i in rows], axis=1)
        keep, level = problem.kept_alone(rows), intercept + table.means @ beta
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
        eta = self.table.times(x)
        return eta if self.table.fit.problem.intercept else eta + float(self.table.fit.intercept)

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
        self.goes_on = tol < np.inf
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

    def gradient(self, active: Index) -> Array:
        """Gradient of loss and ℓ2 part: (q, a)."""
        table = self.table
        along = table.transposed_times(self.slopes(active))
        return along + (table.l2[:, None] * self.keep[active]) * self.stacked[:, active]

    def _round(self, active: Index) -> Array:
        """One step of some problems; by how much their predictors moved."""
        x, all_of_them = self.stacked[:, active], active.size == len(self.rows)
        target, found = self._model_minimum(active, x)
        bad = ~np.isfinite(target).all(axis=0)
        target[:, bad] = x[:, bad]
        if self.goes_on:
            target = self._mixed(active, x, target)
        ahead, here = self.predict(target), self.eta if all_of_them else self.eta[:, active]
        length = self._lengths(active, x, target, ahead)
        self.failed[active] |= bad | ~found | (length == 0.0)
        short = np.flatnonzero(length != 1.0)
        target[:, short] = x[:, short] + length[short] * (target - x)[:, short]
        ahead[:, short] = here[:, short] + length[short] * (ahead - here)[:, short]
        self.beta[:, active] = target[: len(self.beta)]
        if self.table.fit.problem.intercept:
            self.intercept[active] = target[-1]
        moved, self.is_fresh = farthest(ahead, here), False
        if all_of_them:
            self.eta = ahead
        else:
            self.eta[:, active] = ahead
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
        moved = eta - self.table.fit.eta[:, None]
        np.abs(moved, out=moved)
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
            reach = self.travelled(ahead, active)
            if not self.is_fresh:
                reach = np.maximum(reach, self.travelled(self.eta[:, active], active))
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

    def _model_minimum(self, active: Index, x: Array) -> tuple[Array, Mask]:
        """Minimum of each model, by changes of the pattern from that of x: (q, a), and whether it is one."""
        found = self._models(active, x).minima()
        return found.x, found.settled

    def _models(self, active: Index, x: Array) -> QuadraticModels:
        table, own, keep = self.table, self.rows[active], self.keep[active]
        if self.is_fresh and self.weights is None:
            return QuadraticModels.at_fit(table, own)
        z, d = table.Z[own].T, table.d[own]  # (q, a), (a,)
        f = _linalg.product(table.K, x) - z * (d * np.einsum("qa,qa->a", z, x)) - self.gradient(active)
        tableau, bound = Tableau.of(table, f, keep, z, d), np.multiply.outer(keep, table.l1).T
        return QuadraticModels(tableau=tableau, start=x, bound=bound)

    def hand_over(self, ends: Ends, part: Index, proof: Proof) -> None:
        """Write where the problems have come to, and whether they need no other columns there."""
        finite = self.move(ends, part)
        ends.settled[part] = proof.fine & finite & proof.is_stationary
        ends.bounds[part] = np.where(finite, proof.bounds, np.inf)

    def move(self, ends: Ends, part: Index) -> Mask:
        """Write where the problems have come to; those that are anywhere."""
        table, finite = self.table, np.asarray(np.isfinite(self.eta).all(axis=0))
        there, which = part[finite], np.flatnonzero(finite)
        ends.coef[np.ix_(there, table.columns)] = self.beta.T[which]
        ends.intercept[there] = (self.intercept - table.means @ self.beta)[which]
        ends.eta[there] = self.eta[self.rows[which], which]
        return finite


def farthest(one: Array, other: Array) -> Array:
    """Largest distance of two columns, each: (a,)."""
    apart = one - other
    return np.abs(apart, out=apart).max(axis=0)

"""How the models of a path are judged: which rows leave together, and by what loss or score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onefit._typing import Array, Index
from onefit.cost import UNNOTICED, newton_step
from onefit.curvature import Curvature
from onefit.curvature.base import OfColumns
from onefit.curvature.iterated import takes_far_less
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.averaged import among_others, has_some_steps, step_by_average, step_of_rows
from onefit.leave_out.bracket import bracket_cost, has_bracket, left_out_between
from onefit.leave_out.draws import alike, drawn_by
from onefit.leave_out.engine import (
    affords_all,
    cost_of_some,
    cost_of_telling,
    in_passing,
    leave_some_out,
    told_by_bounds,
)
from onefit.leave_out.factor_free import (
    PARTS,
    TENTHS,
    FitsWithout,
    go_together,
    goes_by_column,
    is_dear_to_factor,
    parts_of,
    rough_cost,
    take_less_than_bounds,
)
from onefit.leave_out.fold_fits import have_to_be_solved, pay_roughly, sets_left_out_roughly
from onefit.leave_out.leads import Leads
from onefit.leave_out.sets import Folds
from onefit.leave_out.stages import State
from onefit.leave_out.yardstick import Yardstick
from onefit.metrics import LinearMetric, SquaredError
from onefit.numerics import EXACT, KNOWN, resolution
from onefit.risk.judging import yardstick
from onefit.risk.means import clustered, mean_and_error
from onefit.solvers.newton import Solution
from onefit.tuning.from_below import from_below, is_bounded_from_below
from onefit.tuning.sample import Stepped, Verdict, from_sample

FULL = 0.1  # parameters a row that bends from which on steps are too long for rows that change the pattern
FIRST = 48  # rows by which a strength is judged first
ALONE = 0.1  # seconds that rows on their own may take: a race between ten strengths takes one then
NEARLY_ALL = 0.8  # of the rows: what few others may hide is dearer than to solve them
MORE = 3.0  # times as many rows as a sample that they must hold


Score: TypeAlias = Callable[[Index, Array], Array]  # of judged rows and their linear predictors: losses


@dataclass(frozen=True, eq=False)
class Judgement:
    """What left-out predictions are held against.

    Attributes
    ----------
    metric : LinearMetric
        The loss that leaving out is done for: its error bounds say when it is exact enough.
    target : array
        The response in the terms of ``metric``.
    weights : (n,) array
        Of the rows in the mean.
    sets : Folds or None
        Rows that leave together; None where every row leaves alone.
    clusters : (n,) int array or None
        Rows that count as one, as those of a group do; by default every row counts.
    score : callable or None
        Losses of rows from their left-out linear predictors, in place of those of ``metric``.
    """

    metric: LinearMetric
    target: Array
    weights: Array
    sets: Folds | None = None
    clusters: Index | None = None
    score: Score | None = None

    @cached_property
    def yardstick(self) -> Yardstick:
        """By which the engine says what is exact enough."""
        return yardstick(self.metric, self.target, self.weights)

    @cached_property
    def near(self) -> FitsWithout:
        """Where fits without tenths or sets went at strengths near by."""
        return FitsWithout()

    @property
    def is_of_squares(self) -> bool:
        """Whether it is single rows that are judged, by their squared errors."""
        return self.sets is None and self.score is None and isinstance(self.metric, SquaredError)

    @cached_property
    def unit_weights(self) -> Array:
        """Weights of what counts as one: (u,)."""
        if self.sets is None and self.clusters is None:
            return self.weights
        rows = self._rows
        return clustered(np.zeros(len(rows)), self.weights[rows], self._units)[1]

    @property
    def _rows(self) -> Index:
        return np.arange(len(self.weights)) if self.sets is None else self.sets.rows

    @cached_property
    def _units(self) -> Index:
        """What each judged value counts towards, in ascending order of rows: (t,)."""
        rows = self._rows
        own = rows if self.clusters is None else self.clusters[rows]
        return np.unique(own, return_inverse=True)[1]

    def losses(self, left_out: LeftOut) -> Array:
        """Loss of what counts as one, a row or a group: (u,)."""
        return self.losses_of(left_out.rows, left_out.eta)

    def losses_in(self, fit: Fit) -> Array:
        """The same in a fit with all rows: (u,)."""
        return self.losses_of(self._rows, fit.eta[self._rows])

    def losses_of(self, rows: Index, eta: Array) -> Array:
        """The same, from the left-out predictors of all judged rows."""
        own = self.metric.losses(self.target[rows], eta) if self.score is None else self.score(rows, eta)
        if self.sets is None and self.clusters is None:
            return own
        return clustered(own, self.weights[rows], self._units)[0]

    def stepped(self, solution: Solution, leads: Leads | None = None) -> Stepped:
        """What is known of the rows at first, from which samples and all rows may go on."""
        state = in_passing(*solution, self.yardstick, leads)
        return Stepped(state, self.losses(state.found))

    def thoroughly(
        self,
        solution: Solution,
        max_error: float = KNOWN,
        apart: Array | None = None,
        begun: State | None = None,
    ) -> LeftOut:
        """Left-out predictors to a fraction of the standard error of the risk.

        ``apart`` are those of a verdict by tenths, ``begun`` what samples have left.
        """
        fit, curvature = solution
        return leave_out(
            fit,
            self.sets,
            max_error,
            curvature=curvature,
            yardstick=self.yardstick,
            for_bounds=cost_of_telling(fit, self.sets),
            apart=apart,
            begun=begun,
        )

    # --- what a strength is worth -----------------------------------------------------------------------

    @cached_property
    def order(self) -> Index:
        """Rows as samples take them where all are alike."""
        return np.random.default_rng(0).permutation(len(self.weights))

    def is_sampled(self, fit: Fit) -> bool:
        """Whether strengths are told apart by samples of rows that are solved without themselves."""
        return self.is_by_row and (fit.is_kinked or affords_all(fit))

    def leave_together(self, fit: Fit) -> bool:
        """Whether strengths are told apart by tenths of a fit without kinks: rows on their own are dear."""
        return self.is_by_row and go_together(fit) and cost_of_some(fit, len(self.order)) > ALONE

    @property
    def is_by_row(self) -> bool:
        """Whether it is single rows that are judged, each for itself."""
        return self.sets is None and self.clusters is None and self.score is None

    def is_full(self, fit: Fit) -> bool:
        """Whether a fit has so many parameters that steps for rows that change the pattern tell little."""
        return fit.is_kinked and fit.saturation > FULL and self.is_sampled(fit)

    def takes_more(self, fit: Fit) -> bool:
        """Whether strengths are judged apart from each other, since that takes more than their fits."""
        return self.is_full(fit) or (self.sets is not None and have_to_be_solved(fit, self.sets))

    def bracket(self, solution: Solution) -> Verdict | None:
        """Between what its risk lies, if some bracket takes less than a factor, and every row is bounded."""
        (fit, K), problem = solution, solution.fit.problem
        if self._begins_by_steps(solution) and is_bounded_from_below(solution, self.metric, self.target):
            return from_below(*self._covariates(fit, self._of_rows(self._everyone, step_by_average(fit))).T)
        if not self.is_by_row or not isinstance(K, OfColumns) or K.is_factored or not has_bracket(fit):
            return None
        factored = newton_step(problem.n, 0, min(fit.tangent.size, problem.n))
        if bracket_cost(fit).seconds >= factored.seconds:
            return None
        verdict = self.verdict(left_out_between(fit))
        return verdict if np.isfinite(verdict.error) else None

    def first(self, solution: Solution, leads: Leads | None = None) -> Verdict:
        """What is known of a strength at little cost, with what is known of rows near by."""
        if self._begins_by_tenths(solution.fit):
            return self.by_tenths(*solution, FIRST)
        if not self.is_full(solution.fit) and self._begins_by_steps(solution):
            return self.by_some_steps(solution)
        if self.sets is not None:
            return self._by_sets(solution, self.sets)
        begun = self.stepped(Solution(solution.fit, among_others(*solution)), leads)
        if self.is_full(solution.fit):
            verdict = self.sample(solution, FIRST, stepped=begun)
        else:
            verdict = self.verdict(begun.state.found)._replace(begun=begun)
        return verdict._replace(leads=Leads.of(begun.state.found, leads))

    def _begins_by_steps(self, solution: Solution) -> bool:
        """Whether a strength is judged by the steps of some rows before anything else."""
        return self.is_by_row and self._has_large_tenths and has_some_steps(*solution)

    def asks_little(self, fit: Fit) -> bool:
        """Whether a fit is judged without its curvature, by others that are near their optimum, not at it."""
        return self._begins_by_tenths(fit) and (goes_by_column(fit) or go_together(fit))

    def _begins_by_tenths(self, fit: Fit) -> bool:
        """Whether a strength is judged by tenths before anything else."""
        takes_less = is_dear_to_factor(fit, TENTHS) or (self._has_large_tenths and take_less_than_bounds(fit))
        if self.is_by_row and takes_less and not takes_far_less(fit):  # by probes, which tell more
            return True
        if not self.is_full(fit):
            return False
        least = 0.0 if fit.problem.loss.is_quadratic else ALONE  # tenths of nearly separated rows tell less
        dear = self.seconds(fit, FIRST) > max(least, self.seconds_by_tenths(fit, count=FIRST))
        return self._has_large_tenths or dear

    @property
    def _has_large_tenths(self) -> bool:
        """Whether two tenths hold more rows than a sample does: then they tell more of a fit that is full."""
        return TENTHS * len(self.order) >= PARTS * MORE * FIRST

    def _pays_by_tenths(
        self, fit: Fit, count: int, before: Verdict | None = None, *, alike: bool = False
    ) -> bool:
        """Whether so many rows are judged by tenths: where single rows take longer, or tenths tell more.

        Few rows that leave in tenths tell less than as many alone, unless others were judged ``alike``.
        """
        seen, solved = (0, 0) if before is None else (before.seen, before.solved)
        if seen and (self._has_large_tenths or is_dear_to_factor(fit, TENTHS)):
            return True
        if not fit.is_kinked or (solved and not alike):
            return not solved and self.leave_together(fit)
        takes_less = cost_of_some(fit, count) > max(UNNOTICED, self.seconds_by_tenths(fit, before, count))
        return takes_less and (seen > 0 or alike or self._has_large_tenths)

    def seconds_by_tenths(self, fit: Fit, before: Verdict | None = None, count: float = np.inf) -> float:
        """About what it takes to leave out so many rows in tenths, or all, but those a verdict has seen."""
        n, seen = len(self.order), 0 if before is None else before.seen
        parts = max(TENTHS, PARTS * min(count, n) / n) - PARTS * seen / n
        return rough_cost(fit) * max(parts, 0.0)

    def seconds_at_first(self, fit: Fit) -> float:
        """About what it takes to judge a strength before others: by some rows, or in tenths."""
        return min(self.seconds(fit, FIRST), self.seconds_by_tenths(fit))

    def by_tenths(
        self, fit: Fit, curvature: Curvature | None, count: int = 0, before: Verdict | None = None
    ) -> Verdict:
        """Judge by some tenths of the rows, each left out at once: enough to see what cannot be the choice.

        A refit that leaves out a tenth takes about as long as one that leaves out a row, and judges many.  It
        knows less, so that nothing is claimed of the error.  There are as many tenths as hold ``count`` rows,
        or two, or all of them where they go together; those of a verdict ``before`` are not left out again.
        """
        least, apart = max(TENTHS, -(-PARTS * count // len(self.order))), np.full(fit.eta.shape, np.nan)
        if before is not None and before.apart is not None:
            apart = before.apart.copy()
        parts = parts_of(len(self.order))[: PARTS if go_together(fit) else least]
        self.near.complete(apart, fit, curvature, parts, least)
        rows = np.concatenate([part for part in parts if not np.isnan(apart[part]).any()])
        covariates = self._of_rows(self._everyone, fit.eta)[:, None]
        known, chance = self._of_rows(rows, apart[rows]), alike(self.weights, rows)
        verdict = from_sample(known, rows, chance, covariates, self.weights)
        return verdict._replace(error=np.inf, solved=0, seen=len(rows), apart=apart)

    def _by_sets(self, solution: Solution, sets: Folds) -> Verdict:
        """Judge by fits without each set: near their optima, where that takes far less."""
        if not pay_roughly(solution.fit, sets):
            return self.verdict(self.thoroughly(solution))
        losses = self.losses_of(sets.rows, sets_left_out_roughly(*solution, sets, self.near))
        return Verdict(losses, np.zeros(len(losses)), np.inf, seen=len(self.order))

    def by_some_steps(self, solution: Solution) -> Verdict:
        """Judge by the steps of a tenth of the rows, and about those of the others."""
        stepped = self._of_rows(self._everyone, step_by_average(solution.fit))
        covariates = self._covariates(solution.fit, stepped)
        rows, chance = drawn_by(covariates, self.weights, self.order, len(self.order) // PARTS)
        known = self._of_rows(rows, step_of_rows(*solution, rows))
        verdict = from_sample(known, rows, chance, covariates, self.weights)
        return verdict._replace(error=np.inf, solved=0)

    def verdict(self, left_out: LeftOut, count: int = 0) -> Verdict:
        """What left-out predictors of all rows say, and how far that may be off."""
        losses, off = self.losses(left_out), self.spread(left_out.rows, left_out.eta, left_out.bounds)
        if left_out.correction is not None and self.score is None:
            losses, off = losses + left_out.correction.difference, left_out.correction.error
        off = off if np.isfinite(off) else np.inf
        proven = off < np.inf and left_out.correction is None
        return Verdict(losses, np.zeros(len(losses)), off, count, proven=proven)

    def spread(self, rows: Index, eta: Array, bounds: Array) -> float:
        """How far the risk may be off where left-out predictors are by no more than bounds."""
        weights, target = self.weights[rows], self.target[rows]
        held = weights > 0
        off = float(weights[held] @ self.metric.spread(target[held], eta[held], bounds[held]) / weights.sum())
        if self.score is not None:  # known where the values themselves are, whatever the loss
            risk = float(weights @ self.metric.losses(target, eta) / weights.sum())
            off = 0.0 if off <= EXACT * abs(risk) else np.inf
        return off

    def sample(
        self,
        solution: Solution,
        count: int,
        before: Verdict | None = None,
        stepped: Stepped | None = None,
    ) -> Verdict:
        """Judge by so many rows or more that are solved without themselves; only where ``is_sampled``.

        Those of a smaller sample ``before`` are not solved again; ``stepped`` is what they go on from, where
        that is at hand.
        """
        begun, losses = self.stepped(solution) if stepped is None else stepped
        n, covariates = len(self.order), self._covariates(solution.fit, losses)
        count = max(count, int(UNNOTICED / cost_of_some(solution.fit, 1)))
        count = count if count < NEARLY_ALL * n else n
        rows, chance = drawn_by(covariates, self.weights, self.order, count)
        off, known, proven = np.full(n, np.nan), np.full(n, np.nan), True
        if before is not None and before.off is not None:
            off, known, proven = before.off.copy(), before.losses.copy(), before.proven
        todo = rows[np.isnan(off[rows])]
        anew = leave_some_out(begun, todo, self.yardstick)
        off[todo], known[todo] = anew.off, self._of_rows(todo, anew.eta)
        known[np.isinf(off)] = np.nan
        change = np.abs(np.diff(covariates)[:, 0])
        found = from_sample(known[rows], rows, chance, covariates, self.weights, change, off[rows])
        proven = proven and anew.proven
        finest = 0.0 if proven else resolution(*mean_and_error(found.losses, self.weights))
        bounded = not np.any(np.isinf(off) & (self.weights > 0))  # nothing bounds a row that has no refit
        error = max(found.error, finest) if bounded else np.inf
        return found._replace(error=error, proven=proven, off=off)

    @property
    def _everyone(self) -> Index:
        return np.arange(len(self.weights))

    def _covariates(self, fit: Fit, stepped: Array) -> Array:
        """Losses of all rows in the fit, and after a step: (n, 2)."""
        return np.column_stack([self._of_rows(self._everyone, fit.eta), stepped])

    def better(
        self,
        fit: Fit,
        count: int,
        before: Verdict | None,
        solved: Callable[[], Solution],
        stepped: Callable[[], Stepped],
        *,
        by_tenths: bool = False,
    ) -> Verdict:
        """Judge by so many rows: by tenths what began so, else by rows that are solved without themselves.

        Where bounds of all rows take no longer than these, and are close enough, none is solved.
        ``solved`` is the fit to machine precision with its curvature, which tenths may do without.
        ``by_tenths`` says whether what a strength is held against was judged so.
        """
        by_tenths = self._pays_by_tenths(fit, count, before, alike=by_tenths)
        is_open = not fit.is_kinked and (before is None or not before.left_out)
        tries_bounds = is_open and not (by_tenths and take_less_than_bounds(fit))
        within = max(UNNOTICED, cost_of_some(fit, count))
        if tries_bounds and (bounded := told_by_bounds(stepped().state, within)):
            return self.verdict(bounded)._replace(settled=True)
        if by_tenths:
            alone = goes_by_column(fit) or go_together(fit)
            at_hand = None if before is None or before.begun is None else before.begun.at_hand
            return self.by_tenths(fit, at_hand if alone else solved().curvature, count, before)
        return self.sample(solved(), count, before, stepped())

    def seconds(self, fit: Fit, count: int, before: Verdict | None = None) -> float:
        """About what it takes to judge by so many rows."""
        if self._pays_by_tenths(fit, count, before):
            return self.seconds_by_tenths(fit, before, count)
        return cost_of_some(fit, min(count, len(self.order)))

    def _of_rows(self, rows: Index, eta: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):  # of missing predictors
            return self.metric.losses(self.target[rows], eta)

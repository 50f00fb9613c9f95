"""How strengths are told apart before one is judged thoroughly: a look at each, at little cost.

By tenths of the rows that leave together, by a step of some rows or of all, by a sample of rows that are
solved without themselves, or between bounds: whichever tells enough and takes least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit._typing import Array, Index
from onefit.cost import UNNOTICED, newton_step
from onefit.curvature import Curvature
from onefit.curvature.base import OfColumns
from onefit.curvature.iterated import takes_far_less
from onefit.fit import Fit
from onefit.leave_out.averaged import among_others, has_some_steps, step_by_average, step_of_rows
from onefit.leave_out.bracket import bracket_cost, has_bracket, left_out_between
from onefit.leave_out.draws import alike, drawn_by
from onefit.leave_out.engine import affords_all, cost_of_some, in_passing, leave_some_out, told_by_bounds
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
from onefit.leave_out.row_order import random_order
from onefit.leave_out.sets import Folds
from onefit.numerics import resolution
from onefit.risk.means import mean_and_error
from onefit.solvers.newton import Solution
from onefit.tuning.from_below import from_below, is_bounded_from_below
from onefit.tuning.judgement import Judgement
from onefit.tuning.sample import Stepped, Verdict, from_sample

FULL = 0.1  # parameters a row that bends from which on steps are too long for rows that change the pattern
FIRST_ROWS = 48  # rows by which a strength is judged first
ALONE = 0.15  # seconds that all rows on their own may take, which no order changes: a path takes few then
NEARLY_ALL = 0.8  # of the rows: what few others may hide is dearer than to solve them
MORE = 3.0  # times as many rows as a sample that they must hold


@dataclass(frozen=True, eq=False)
class Looks:
    """Looks at the strengths of a path, from the first to those that tell the choice from its neighbours.

    Attributes
    ----------
    judgement : Judgement
        What left-out predictions are held against.
    """

    judgement: Judgement

    @cached_property
    def near(self) -> FitsWithout:
        """Where fits without tenths or sets went at strengths near by."""
        return FitsWithout()

    def stepped(self, solution: Solution, leads: Leads | None = None) -> Stepped:
        """What is known of the rows at first, from which samples and all rows may go on."""
        state = in_passing(*solution, self.judgement.yardstick, leads)
        return Stepped(state, self.judgement.losses(state.found))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.judgement.weights)

    def order(self, fit: Fit) -> Index:
        """Rows as samples take them where all are alike: the same at every strength."""
        if not self._known_order:
            self._known_order.append(random_order(fit))
        return self._known_order[0]

    @cached_property
    def _known_order(self) -> list[Index]:
        return []

    def is_sampled(self, fit: Fit) -> bool:
        """Whether strengths are told apart by samples of rows that are solved without themselves."""
        return self.judgement.is_by_row and (fit.is_kinked or affords_all(fit))

    def leave_together(self, fit: Fit) -> bool:
        """Whether strengths are told apart by tenths of a fit without kinks: rows on their own are dear."""
        return self.judgement.is_by_row and go_together(fit) and not self._leave_alone(fit)

    def _leave_alone(self, fit: Fit) -> bool:
        """Whether all rows on their own take so little that nothing is told by tenths."""
        return cost_of_some(fit, self.n) <= ALONE

    def tells_little(self, fit: Fit) -> bool:
        """Whether a step for each row tells little: of many parameters for few rows, and of rows on kinks.

        The former come and go with a row.  A row on a kink of its loss holds the fit until others do, and a
        step, which knows nothing of these, takes it far out wherever the penalty is weak.
        """
        if fit.problem.loss.is_kinked:
            return self.judgement.is_by_row
        return fit.is_kinked and fit.saturation > FULL and self.is_sampled(fit)

    def takes_more(self, fit: Fit) -> bool:
        """Whether strengths are judged apart from each other, since that takes more than their fits."""
        return self.tells_little(fit) or (
            self.judgement.sets is not None and have_to_be_solved(fit, self.judgement.sets)
        )

    def bracket(self, solution: Solution) -> Verdict | None:
        """Between what its risk lies, if some bracket takes less than a factor, and every row is bounded."""
        (fit, K), problem = solution, solution.fit.problem
        if self._begins_by_steps(solution) and is_bounded_from_below(
            solution, self.judgement.metric, self.judgement.target
        ):
            return from_below(*self._covariates(fit, self._of_rows(self._everyone, step_by_average(fit))).T)
        if (
            not self.judgement.is_by_row
            or not isinstance(K, OfColumns)
            or K.is_factored
            or not has_bracket(fit)
        ):
            return None
        factored = newton_step(problem.n, 0, min(fit.tangent.size, problem.n))
        if bracket_cost(fit).seconds >= factored.seconds:
            return None
        verdict = self.judgement.verdict(left_out_between(fit))
        return verdict if np.isfinite(verdict.error) else None

    def first(self, solution: Solution, leads: Leads | None = None) -> Verdict:
        """What is known of a strength at little cost, with what is known of rows near by."""
        if self._begins_by_tenths(solution.fit):
            return self.by_tenths(*solution, FIRST_ROWS)
        if not self.tells_little(solution.fit) and self._begins_by_steps(solution):
            return self.by_some_steps(solution)
        if self.judgement.sets is not None:
            return self._by_sets(solution, self.judgement.sets)
        begun = self.stepped(Solution(solution.fit, among_others(*solution)), leads)
        if self.tells_little(solution.fit):
            is_kinked, count = solution.fit.problem.loss.is_kinked, FIRST_ROWS
            if is_kinked and self._leave_alone(solution.fit):  # no draw says then where a path ends
                count = self.n
            verdict = self.sample(solution, count, stepped=begun)
        else:
            verdict = self.judgement.verdict(begun.state.found, losses=begun.losses)._replace(begun=begun)
        return verdict._replace(leads=Leads.of(begun.state.found, leads))

    def _begins_by_steps(self, solution: Solution) -> bool:
        """Whether a strength is judged by the steps of some rows before anything else."""
        return self.judgement.is_by_row and self._has_large_tenths and has_some_steps(*solution)

    def asks_little(self, fit: Fit) -> bool:
        """Whether a fit is judged without its curvature, by others that are near their optimum, not at it."""
        return self._begins_by_tenths(fit) and (goes_by_column(fit) or go_together(fit))

    def _begins_by_tenths(self, fit: Fit) -> bool:
        """Whether a strength is judged by tenths before anything else."""
        takes_less = is_dear_to_factor(fit, TENTHS) or (self._has_large_tenths and take_less_than_bounds(fit))
        if self.judgement.is_by_row and takes_less and not takes_far_less(fit):  # by probes, which tell more
            return True
        if not self.tells_little(fit):
            return False
        takes_less = self.seconds_by_tenths(fit, count=FIRST_ROWS) < self.seconds(fit, FIRST_ROWS)
        return self._has_large_tenths or (takes_less and not self._leave_alone(fit))

    @property
    def _has_large_tenths(self) -> bool:
        """Whether two tenths hold more rows than a sample does: then they tell more of a fit that is full."""
        return TENTHS * self.n >= PARTS * MORE * FIRST_ROWS

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
        n, seen = self.n, 0 if before is None else before.seen
        parts = max(TENTHS, PARTS * min(count, n) / n) - PARTS * seen / n
        return rough_cost(fit) * max(parts, 0.0)

    def seconds_at_first(self, fit: Fit) -> float:
        """About what it takes to judge a strength before others: by some rows, or in tenths."""
        return min(self.seconds(fit, FIRST_ROWS), self.seconds_by_tenths(fit))

    def by_tenths(
        self, fit: Fit, curvature: Curvature | None, count: int = 0, before: Verdict | None = None
    ) -> Verdict:
        """Judge by some tenths of the rows, each left out at once: enough to see what cannot be the choice.

        A refit that leaves out a tenth takes about as long as one that leaves out a row, and judges many.  It
        knows less, so that nothing is claimed of the error.  There are as many tenths as hold ``count`` rows,
        or two, or all of them where they go together; those of a verdict ``before`` are not left out again.
        """
        least, apart = max(TENTHS, -(-PARTS * count // self.n)), np.full(fit.eta.shape, np.nan)
        if before is not None and before.apart is not None:
            apart = before.apart.copy()
        parts = parts_of(self.order(fit))[: PARTS if go_together(fit) else least]
        self.near.complete(apart, fit, curvature, parts, least)
        rows = np.concatenate([part for part in parts if not np.isnan(apart[part]).any()])
        covariates = self._of_rows(self._everyone, fit.eta)[:, None]
        known, chance = self._of_rows(rows, apart[rows]), alike(self.judgement.weights, rows)
        verdict = from_sample(known, rows, chance, covariates, self.judgement.weights)
        return verdict._replace(error=np.inf, solved=0, seen=len(rows), apart=apart)

    def _by_sets(self, solution: Solution, sets: Folds) -> Verdict:
        """Judge by fits without each set: near their optima, where that takes far less."""
        if not pay_roughly(solution.fit, sets):
            return self.judgement.verdict(self.judgement.thoroughly(solution))
        losses = self.judgement.losses_of(sets.rows, sets_left_out_roughly(*solution, sets, self.near))
        return Verdict(losses, np.zeros(len(losses)), np.inf, seen=self.n)

    def by_some_steps(self, solution: Solution) -> Verdict:
        """Judge by the steps of a tenth of the rows, and about those of the others."""
        stepped = self._of_rows(self._everyone, step_by_average(solution.fit))
        covariates = self._covariates(solution.fit, stepped)
        rows, chance = drawn_by(covariates, self.judgement.weights, self.order(solution.fit), self.n // PARTS)
        known = self._of_rows(rows, step_of_rows(*solution, rows))
        verdict = from_sample(known, rows, chance, covariates, self.judgement.weights)
        return verdict._replace(error=np.inf, solved=0)

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
        n, covariates = self.n, self._covariates(solution.fit, losses)
        count = max(count, int(UNNOTICED / cost_of_some(solution.fit, 1)))
        count = count if count < NEARLY_ALL * n else n
        rows, chance = drawn_by(covariates, self.judgement.weights, self.order(solution.fit), count)
        off, known, proven = np.full(n, np.nan), np.full(n, np.nan), True
        if before is not None and before.off is not None:
            off, known, proven = before.off.copy(), before.losses.copy(), before.proven
        todo = rows[np.isnan(off[rows])]
        anew = leave_some_out(begun, todo, self.judgement.yardstick)
        off[todo], known[todo] = anew.off, self._of_rows(todo, anew.eta)
        known[np.isinf(off)] = np.nan
        change = np.abs(np.diff(covariates)[:, 0])
        found = from_sample(known[rows], rows, chance, covariates, self.judgement.weights, change, off[rows])
        proven = proven and anew.proven
        finest = 0.0 if proven else resolution(*mean_and_error(found.losses, self.judgement.weights))
        bounded = not np.any(
            np.isinf(off) & (self.judgement.weights > 0)
        )  # nothing bounds a row that has no refit
        error = max(found.error, finest) if bounded else np.inf
        return found._replace(error=error, proven=proven, off=off)

    @property
    def _everyone(self) -> Index:
        return np.arange(len(self.judgement.weights))

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
            return self.judgement.verdict(bounded)._replace(settled=True)
        if by_tenths:
            alone = goes_by_column(fit) or go_together(fit)
            at_hand = None if before is None or before.begun is None else before.begun.at_hand
            return self.by_tenths(fit, at_hand if alone else solved().curvature, count, before)
        return self.sample(solved(), count, before, stepped())

    def seconds(self, fit: Fit, count: int, before: Verdict | None = None) -> float:
        """About what it takes to judge by so many rows."""
        if self._pays_by_tenths(fit, count, before):
            return self.seconds_by_tenths(fit, before, count)
        return cost_of_some(fit, min(count, self.n))

    def _of_rows(self, rows: Index, eta: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):  # of missing predictors
            return self.judgement.metric.losses(self.judgement.target[rows], eta)

"""What is known of the values without each set, and the stages that refine it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.curvature import Curvature, Direction, Iterated, in_single
from onefit.curvature.iterated import PROBES
from onefit.fit import Fit
from onefit.leave_out import dual, led_rows, proximal
from onefit.leave_out.blocks import Blocks, sets_left_out
from onefit.leave_out.chords import MAX_STEPS, USUAL_STEPS, chord_by_products
from onefit.leave_out.follow import Paths
from onefit.leave_out.leads import Leads
from onefit.leave_out.patterns import bound_of_patterns, leaves_nothing, step_is_exact
from onefit.leave_out.probed import estimate_of
from onefit.leave_out.prove import is_blind
from onefit.leave_out.refit import Progress, refit_cost, refit_sets, without_nothing
from onefit.leave_out.remainder import off_besides_bounds
from onefit.leave_out.result import LeftOut, SolvedWithout, joined
from onefit.leave_out.sets import Folds
from onefit.leave_out.step import Step, leave_kinks_out
from onefit.leave_out.step_bounds import bound_steps, bound_steps_closely, cost_of_closer_bounds
from onefit.leave_out.tableau import Watched
from onefit.leave_out.ways import Stage, Wanting, Way, cost_of_chords, looking_pays, ways
from onefit.leave_out.yardstick import Measured, Yardstick, allowed, errors, far_off
from onefit.numerics import LEAST_SLACK

FINER = 1e-4  # times the precision where nothing bounds an end
FROM_AN_END = 0.4  # share of a refit that one takes from where a row has settled
LOOSELY = 1e5  # times full precision, where a bound is all that is asked for
LEFT_LOOSE = 0.1  # share of the room for steps that are not bounded any closer


@dataclass(eq=False)
class State:
    """What is known so far."""

    fit: Fit
    sets: Folds | None
    curvature: Curvature | None
    yardstick: Yardstick | None
    max_error: float
    found: LeftOut
    blocks: Blocks | None = None
    step: Step | None = None
    progress: Progress | None = None
    starts: dict[int, Direction] = field(default_factory=dict)
    finer: set[int] = field(default_factory=set)  # sets that were iterated further
    looked_at: set[int] = field(default_factory=set)  # rows whose steps were bounded closely
    measured: Measured | None = None
    leads: Leads | None = None  # where rows went without themselves at a strength near by

    @classmethod
    def of(
        cls,
        fit: Fit,
        sets: Folds | None,
        curvature: Curvature | None,
        yardstick: Yardstick | None,
        max_error: float,
        probes: int = PROBES,
    ) -> State:
        """Take the first step."""
        blocks, step = None, None
        found = dual.left_out(fit, sets)
        if found is None and sets is None:
            if fit.problem.loss.has_kinks:
                found = leave_kinks_out(fit)
            else:
                samples = yardstick is not None and 0 < max_error < np.inf  # what is estimated, then
                step = Step.first(fit, curvature, probes if samples else 0)
                found = step.taken(fit)
        elif found is None and sets is not None:
            found, blocks = sets_left_out(fit, sets, curvature)
        assert found is not None
        return cls(fit, sets, curvature, yardstick, max_error, found, blocks, step)

    @property
    def estimate(self) -> Iterated | None:
        """The curvature whose forms are estimates, so that nothing is proven of the first steps."""
        return estimate_of(self.step)

    def take_factor(self) -> None:
        """Begin again with a factor, where what estimates leave open is too much."""
        assert self.estimate is not None
        anew = State.of(self.fit, None, in_single(self.estimate.inner), None, self.max_error)
        self.found, self.step = anew.found, anew.step
        for known in ("_ways", "_off", "_singles"):  # with a factor there are others
            self.__dict__.pop(known, None)
        for done in (self.starts, self.finer, self.looked_at):  # without it
            done.clear()
        self.prove()

    @property
    def is_asked_for_all(self) -> bool:
        """Whether every set is to be as exact as can be, none sampled."""
        return self.max_error == 0

    @property
    def room(self) -> float:
        """Error that all sets together may leave."""
        return self._still_open.room

    def errors(self) -> Array:
        """How far off each set may make the mean, 0 where nothing can be done: (f,)."""
        return self._still_open.errors.copy()

    @property
    def _still_open(self) -> Measured:
        """Both, as long as no more is known."""
        known = self.measured
        if known is None or known.found is not self.found or known.max_error != self.max_error:
            room = 0.0 if self.is_asked_for_all else allowed(self.found, self.yardstick, self.max_error)
            known = self.measured = Measured(self.found, self.max_error, room, self._errors())
        return known

    def _errors(self) -> Array:
        found = self.found
        own = np.zeros(found.count)
        if self.sets is None:
            off = found.bounds if self.is_asked_for_all else errors(found, self.yardstick)
            own = np.where(found.certified, 0.0, off)
        elif self.is_asked_for_all:
            np.maximum.at(own, found.fold, np.where(found.certified, 0.0, found.bounds))
        else:
            np.add.at(own, found.fold, np.where(found.certified, 0.0, errors(found, self.yardstick)))
        own[found.failed] = 0.0
        own[self._without_weight()] = 0.0
        return own

    def wanting(self, share: float = 1.0) -> Wanting:
        """Sets to refine, those of the largest possible error first: others have a share of the room."""
        own = self.errors()
        order = np.argsort(own, kind="stable")
        enough = np.cumsum(own[order]) <= share * self.room
        done = np.isin(order, self.found.anew)
        left = order[~done & ~(enough & ~self._far_off()[order])]
        return Wanting(left[::-1], int(np.count_nonzero(~enough & ~done)))

    def _far_off(self) -> Mask:
        """Sets with a value that may be off by a share of the spread that users would want to know of."""
        found = self.found
        if self.yardstick is None or self.is_asked_for_all:
            return np.zeros(found.count, dtype=bool)
        far = far_off(found, self.yardstick)
        far[[*found.failed, *found.anew, *self._without_weight()]] = False
        return far

    def _without_weight(self) -> list[int]:
        """Sets of rows that have no weight at all."""
        return [] if self.sets is not None else np.flatnonzero(leaves_nothing(self.fit)).tolist()

    def prove(self) -> None:
        """Exact patterns, and bounds of the first step."""
        fit, found, bounds = self.fit, self.found, self.found.bounds.copy()
        if self.sets is None:
            if self.step is not None and not self._is_blind and self.estimate is None:
                bounds = np.minimum(bounds, bound_steps(fit, self.step, found.eta, found.slack))
            if step_is_exact(fit) and not np.isfinite(bounds).all() and looking_pays(fit):
                sure = found.slack >= LEAST_SLACK
                own = bound_of_patterns(fit, np.where(sure, found.eta.T, np.nan).T, self._known)
                bounds[sure] = np.minimum(bounds, own)[sure]
            gone = np.flatnonzero(leaves_nothing(fit))
            found, bounds[gone] = without_nothing(found, gone)
        self.found = replace(found, bounds=bounds + self._off)

    def prove_closely(self, affordable: float) -> float:
        """Bound steps by what they do to each of the other rows, if wanted and affordable; its seconds."""
        step = self.step
        if step is None or self.is_asked_for_all or self._is_blind or self.errors().sum() <= self.room:
            return 0.0
        which = self.wanting(LEFT_LOOSE).which
        rows = which[~np.isin(which, [*self.looked_at, *self.starts])]
        seconds = cost_of_closer_bounds(self.fit, step.curvature, rows.size).seconds
        if rows.size == 0 or np.isinf(seconds) or seconds > affordable:
            return 0.0
        self.looked_at.update(rows.tolist())
        found, bounds = self.found, self.found.bounds.copy()
        closer = bound_steps_closely(self.fit, step, found.eta, found.slack, rows)
        bounds[rows] = np.minimum(bounds[rows], closer + self._off[rows])
        self.found = replace(found, bounds=bounds)
        return seconds

    @cached_property
    def _is_blind(self) -> bool:
        """Whether the curvature of the fit does not see some direction that rows have a say in."""
        return self._known is not None and is_blind(self.fit, self._known)

    @property
    def _known(self) -> Curvature | None:
        """The curvature of the first steps, if there is one."""
        return self.step.curvature if self.step is not None else self.blocks.base if self.blocks else None

    @cached_property
    def _off(self) -> Array:
        """How far values one step from the fit are off whatever bounds the step: (t,)."""
        step = self.step if self.estimate is None else None
        return off_besides_bounds(self.found, self._known, step)

    def refine(self, affordable: float, few: int = 0) -> float:
        """Take the stages whose bounds are enough for the mean within some seconds; returns what is left.

        Where no sample can follow, or all sets are asked for, they go as far as that lasts; where sets have
        settled, up to what refits of a ``few`` tell sooner.
        """
        partly = self.yardstick is None or self.is_asked_for_all
        for stage in self.stages():
            which, needed = self.wanting()
            if which.size == 0 or self._is_told_by(few, which, stage.each.seconds, affordable):
                break
            count = which.size
            if count * stage.each.seconds > affordable:
                count = int(max(affordable, 0.0) / stage.each.seconds)
            if count >= (1 if partly else max(1, needed)):
                stage.act(which[:count])
                affordable -= stage.each.times(count).seconds
        return affordable

    def _is_told_by(self, few: int, which: Index, each: float, affordable: float) -> bool:
        """Whether a few refits tell sooner than a stage what ends are worth that cannot all be checked."""
        anew = self.stages()[-1].each.seconds
        if which.size * anew <= affordable or np.setdiff1d(which, list(self.found.solved)).size > few:
            return False
        return few * (each + FROM_AN_END * anew) < which.size * each

    def shorten(self, shares: Array) -> None:
        """Take these shares, (f,), of the steps of which nothing is known."""
        found = self.found
        self.found = replace(found, eta=found.shortened(np.where(self.rough, shares[found.fold], 1.0)))

    @property
    def rough(self) -> Mask:
        """Values after a step, of which nothing is known: (t,)."""
        return self.found.stepped_once(self.starts) & ~np.isfinite(self.found.bounds)

    def settle(self, which: Index, limits: Array | float, *, proven: bool = True) -> None:
        """Solve some sets, until none may make the mean wrong by more than its limit.

        Where it need not be ``proven``, rows whose steps have settled at an optimum are done.
        """
        for stage in self.stages():
            found, own = self.found, self.errors()[which]
            ended = [] if proven else list(found.solved)
            done = np.concatenate([found.anew, found.failed, ended])
            rest = which[(own > limits) & ~np.isin(which, done)]
            if rest.size == 0:
                break
            stage.act(rest)

    @cached_property
    def _ways(self) -> list[tuple[Work, Way]]:
        is_open = (self.step is not None or self.blocks is not None) and not self._is_blind
        closed = () if is_open else (Way.ITERATE, Way.LEAD, Way.FINER, Way.REPEAT)
        by_products = None if self.estimate is None else chord_by_products(self.fit, self.estimate)
        return [one for one in ways(self.fit, self.sets, by_products) if one[1] not in closed]

    def stages(self) -> list[Stage]:
        """What can be done for a set, the cheapest first: none that takes longer than solving it anew."""
        acts = {
            Way.ITERATE: self._iterate,
            Way.FINER: self._go_further,
            Way.REPEAT: self.repeat_steps,
            Way.LEAD: self._iterate,
            Way.FOLLOW: self.follow,
            Way.ANEW: self._refit,
        }
        return [Stage(work, way, acts[way]) for work, way in self._ways]

    @property
    def _tol(self) -> float:
        return 1.0 if self.is_asked_for_all else LOOSELY

    @property
    def _most_steps(self) -> int:
        """Steps with one factor beyond which solving anew is cheaper."""
        worth = USUAL_STEPS * refit_cost(self.fit).seconds / cost_of_chords(self.fit, self.sets).seconds
        return int(np.clip(worth, USUAL_STEPS, MAX_STEPS))

    @cached_property
    def _singles(self) -> Blocks:
        single = np.arange(self.fit.problem.n)[:, None]
        folds = Folds(single, single, self.fit.problem.n)
        blocks = Blocks.of(self.fit, self._known, folds, self.fit.curvature_shrink)
        blocks.reached[:] = self.found.slack >= LEAST_SLACK
        return replace(blocks, leads=self.leads)

    @cached_property
    def _watched(self) -> Watched:
        return Watched.of(self.fit)

    @cached_property
    def _paths(self) -> Paths:
        return Paths(self.fit)

    def _take(
        self, place: Index | slice, eta: Any, bounds: Any, solved: Mapping[int, SolvedWithout], **known: Any
    ) -> None:
        """Put in values and bounds at some places, and what else is known now."""
        found, alone = self.found, solved if self.sets is None else {}
        known |= {"eta": found.eta.copy(), "bounds": found.bounds.copy()}
        known["eta"][place], known["bounds"][place] = eta, bounds
        self.found = replace(found, solved={**found.solved, **alone}, **known)

    def repeat_steps(self, which: Index) -> None:
        """Repeat steps with one factor, on the pattern of the fit, all sets together."""
        blocks = self.blocks if self.blocks is not None else self._singles
        self._repeat(blocks, np.setdiff1d(which, list(self.starts)), self._tol)  # once is enough

    def _repeat(self, blocks: Blocks, which: Index, tol: float) -> None:
        blocks.iterate(which, tol, self._most_steps)
        which = np.array([k for k in which.tolist() if k in blocks.ends], dtype=np.intp)
        self.starts |= {k: blocks.ends[k] for k in which.tolist()}
        folds, better = blocks.folds, blocks.bounds <= np.maximum(self.found.bounds, 0.0)
        which = folds.of_which_all(which, better)
        finite = folds.of_which_all(which, np.isfinite(blocks.bounds))
        ended = finite if self.fit.is_kinked else which  # others may have left the pattern that steps know
        ends = {k: SolvedWithout(blocks.eta[folds.place(k)][0], *blocks.ends[k]) for k in ended.tolist()}
        place, stepped = folds.judged(which)[2], joined(self.found.stepped, finite)
        self._take(place, blocks.eta[place], blocks.bounds[place], ends, stepped=stepped)

    def look(self, affordable: float) -> float:
        """Take one round of the iterations for sets that are wanting, if affordable; its seconds."""
        which = self.wanting().which
        seconds = proximal.cost_of_look(self.fit).times(which.size).seconds
        if self._ways[0][1] is not Way.ITERATE or not 0 < seconds <= affordable:
            return 0.0
        rows, eta, bounds = np.array(list(proximal.look(self._watched, which))).reshape(-1, 3).T
        self._take(rows.astype(np.intp), eta, bounds, {})
        return seconds

    def _iterate(self, which: Index) -> None:
        known = self.found.solved if self.fit.problem.is_coupled else self.starts
        if (which := np.setdiff1d(which, list(known))).size:  # once is enough
            led = led_rows.iterate(self.fit, self._known, which, self._tol)
            self._take_ends(which, led or proximal.iterate(self._watched, which, self._tol))

    def _go_further(self, which: Index) -> None:
        """Take sets that have settled nearer to their ends: where others moved far, bounds ask for that."""
        ready = self.starts.keys() & self.found.solved.keys() - self.finer  # once is enough
        ended = np.array([] if self.is_asked_for_all else [k for k in which.tolist() if k in ready], np.intp)
        self.finer.update(ended.tolist())
        if ended.size and self.fit.is_kinked:
            starts, tol = [self.starts[k] for k in ended.tolist()], FINER * self._tol
            self._take_ends(ended, proximal.iterate(self._watched, ended, tol, starts))
        elif ended.size:
            blocks = replace(self._singles, leads=Leads.of(self.found, self.leads))  # from where they ended
            self._repeat(blocks, ended, 1.0)

    def _take_ends(self, which: Index, ends: proximal.Ends) -> None:
        self.starts |= {k: Direction(ends.coef[j], ends.intercept[j]) for j, k in enumerate(which.tolist())}
        settled = zip(which[ends.settled].tolist(), ends.eta[ends.settled], strict=True)
        solved = {k: SolvedWithout(eta, *self.starts[k]) for k, eta in settled}
        known = which[ends.settled & np.isfinite(ends.bounds)]
        self._take(which, ends.eta, ends.bounds, solved, stepped=joined(self.found.stepped, known))

    def follow(self, which: Index) -> None:
        """Follow rows along exact paths; where one ends without a proof, a refit starts."""
        solved, near = self._paths.follow(which, self.leads)
        self.starts |= {i: Direction(one.coef, one.intercept) for i, one in near.items()}
        rows = np.array([*solved, *near], dtype=np.intp)
        eta = [one.eta for one in (*solved.values(), *near.values())]
        self._take(
            rows,
            eta,
            [0.0] * len(solved) + [np.inf] * len(near),
            solved,
            pivoted=joined(self.found.pivoted, list(solved)),
        )

    def _refit(self, which: Index) -> None:
        found, numbers = self.found, which.tolist()
        removed = {k: np.array([k]) if self.sets is None else self.sets.removed[k] for k in numbers}
        judged = {k: np.array([k]) if self.sets is None else self.sets.tested[k] for k in numbers}
        led = {} if self.leads is None else self.leads.points(self.fit, which)
        anew = refit_sets(self.fit, removed, judged, led | self.starts, self.progress, self._known)
        failed = [k for k in numbers if k not in anew]
        eta, bounds = found.eta.copy(), found.bounds.copy()
        for k, one in anew.items():
            eta[found.values_of(k)], bounds[found.values_of(k)] = one.eta, one.bounds
        bounds[np.isin(found.fold, failed)] = np.inf
        solved = {k: SolvedWithout(one.eta[0], one.coef, one.intercept) for k, one in anew.items()}
        self._take(
            slice(None),
            eta,
            bounds,
            solved,
            anew=joined(found.anew, list(anew)),
            stepped=np.setdiff1d(found.stepped, list(anew)),
            pivoted=np.setdiff1d(found.pivoted, list(anew)),
            failed=joined(found.failed, failed),
            several=joined(found.several, [k for k, one in anew.items() if one.several]),
        )

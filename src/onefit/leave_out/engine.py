"""What rows would be predicted without themselves: one engine for rows, groups, folds and splits.

Stages, each with a proof of how far its values may be off: one Newton step for all sets (``step``,
``blocks``, ``dual``), bounds and exact patterns (``prove``, ``patterns``), repeated steps for all sets that
need them (``chords``, ``proximal``), exact paths (``follow``), and solving anew (``refit``).  It goes on,
largest possible error first, until the risk is known to ``max_error`` of its standard errors; what is too
dear for that is sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.curvature import Curvature, Direction
from onefit.fit import Fit
from onefit.leave_out import dual, proximal
from onefit.leave_out.blocks import Blocks
from onefit.leave_out.follow import cost as following
from onefit.leave_out.follow import follow, has_paths
from onefit.leave_out.patterns import leaves_nothing, pattern_stays, step_is_exact
from onefit.leave_out.prove import bound_steps
from onefit.leave_out.refit import Progress, refit_cost, refit_sets
from onefit.leave_out.rescaling import curvature_of_refits
from onefit.leave_out.result import LeftOut, Solved
from onefit.leave_out.sets import Folds, removed_share
from onefit.leave_out.step import Step, leave_corners_out
from onefit.leave_out.yardstick import Yardstick, allowed, errors, far_off
from onefit.losses import CoupledLoss
from onefit.numerics import LEAST_SLACK, rounding_of_slack
from onefit.pieces import Pieces

AFFORDABLE = 20.0  # fits whose time leaving rows out may take before the rest is sampled
AT_LEAST = 2.0  # seconds that it may always take
COLUMNS_A_STEP = 10.0  # that a curved fit with kinks takes in or lets go in a fit's worth of steps
IN_PASSING = 0.02  # the same for a strength on a path
IN_A_RACE = 1.0  # standard errors that strengths are told apart by
LITTLE_SLACK = 0.2  # slack below which one step may be far off where nothing checks it
STEPS = 8.0  # with one factor, in which a set settles
LOOSELY = 1e5  # times full precision, where a bound is all that is asked for


def leave_out(
    fit: Fit,
    sets: Folds | None = None,
    max_error: float = 0.1,
    *,
    curvature: Curvature | None = None,
    yardstick: Yardstick | None = None,
    affordable: float | None = None,
    progress: Progress | None = None,
) -> LeftOut:
    """Linear predictors of rows without their sets, and bounds of their errors.

    Parameters
    ----------
    fit : Fit
        Optimal, to machine precision.
    sets : Folds, optional
        Rows that leave together, and those judged there; every row alone if missing.
    max_error : float, default 0.1
        Standard errors of the risk by which it may be off.  0 is numerical precision, whatever that costs;
        infinity takes one step and asks for nothing.
    curvature : Curvature, optional
        That of the fit, if it is at hand.
    yardstick : Yardstick, optional
        How errors are judged; without one they are to be right to ``max_error`` of their spread in the
        mean.
    affordable : float, optional
        Seconds after which the rest is sampled; by default some fits' worth, without end for ``max_error`` 0.
    progress : callable, optional
        Called with the number of sets solved anew and their total.
    """
    state = _State.of(fit, sets, curvature, yardstick, max_error)
    if np.isinf(max_error):
        return state.found
    state.prove()
    if affordable is None:
        affordable = np.inf if max_error == 0 else _affordable(fit)
    for stage in (state.iterate, state.follow, state.refit):
        which = state.wanting()
        if which.size == 0:
            break
        affordable -= stage(which, affordable, progress)
    return state.found


def in_passing(fit: Fit, curvature: Curvature, yardstick: Yardstick) -> LeftOut:
    """One step, and more for the rows that it is too long for, where that is cheap: for races along a path.

    Patterns are not checked.
    """
    state = _State.of(fit, None, curvature, yardstick, IN_A_RACE)
    found = state.found
    if step_is_exact(fit) or fit.problem.loss.is_kinked:
        strained = np.flatnonzero((found.slack < LITTLE_SLACK) & (fit.problem.weights > 0))
        if strained.size and has_paths(fit) and following(fit, strained.size).seconds < IN_PASSING:
            state.follow(strained, np.inf, None)
    elif not fit.is_kinked:
        state.prove()
        which = state.wanting()
        if which.size and state.cost_of_chords().times(which.size).seconds < IN_PASSING:
            state.iterate(which, IN_PASSING, None)
    else:  # as if no row had less slack than a little
        damped = np.minimum(found.slack / LITTLE_SLACK, 1.0).reshape(-1, *(1,) * (fit.eta.ndim - 1))
        state.found = replace(found, eta=fit.eta + np.maximum(damped, 0.0) * (found.eta - fit.eta))
    return state.found


def _affordable(fit: Fit) -> float:
    n, p = fit.problem.X.shape
    one = cost.fit(n, p, max(1, fit.tangent.size), quadratic=fit.problem.loss.is_quadratic)
    if fit.is_kinked and not fit.problem.loss.is_quadratic:  # its pattern is found a few columns at a time
        one = one.times(max(1.0, fit.tangent.size / COLUMNS_A_STEP))
    return max(AT_LEAST, AFFORDABLE * one.seconds)


@dataclass(eq=False)
class _State:
    """What is known so far."""

    fit: Fit
    sets: Folds | None
    curvature: Curvature | None
    yardstick: Yardstick | None
    max_error: float
    found: LeftOut
    blocks: Blocks | None = None
    step: Step | None = None
    tried: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    starts: dict[int, Direction] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fit: Fit,
        sets: Folds | None,
        curvature: Curvature | None,
        yardstick: Yardstick | None,
        max_error: float,
    ) -> _State:
        """Take the first step."""
        blocks, step = None, None
        found = _in_dual(fit, sets)
        if found is None and sets is None:
            if fit.problem.loss.is_kinked:
                found = leave_corners_out(fit)
            else:
                step = Step.of(fit, curvature_of_refits(fit, curvature))
                found = step.taken(fit)
        elif found is None and sets is not None:
            found, blocks = _sets_left_out(fit, sets, curvature)
        assert found is not None
        state = cls(fit, sets, curvature, yardstick, max_error, found, blocks, step)
        state.tried = np.zeros(found.count, dtype=bool)
        return state

    # --- what is wanting -----------------------------------------------------------------------------

    def wanting(self) -> Index:
        """Sets to refine, those of the largest possible error first."""
        found = self.found
        own = np.zeros(found.count)
        if self.max_error == 0:
            np.maximum.at(own, found.fold, np.where(found.certified, 0.0, found.bounds))
            room = 0.0
        else:
            np.add.at(own, found.fold, np.where(found.certified, 0.0, errors(found, self.yardstick)))
            room = allowed(found, self.yardstick, self.max_error)
        own[found.failed] = 0.0
        own[self._without_weight()] = 0.0
        order = np.argsort(own, kind="stable")
        left = (np.cumsum(own[order]) <= room) & ~self._far_off()[order]
        return order[~left][::-1]

    def _far_off(self) -> Mask:
        """Sets with a value that may be off by a share of the spread that users would want to know of."""
        found = self.found
        if self.yardstick is None or self.max_error == 0:
            return np.zeros(found.count, dtype=bool)
        far = far_off(found, self.yardstick)
        far[np.concatenate([found.failed, found.anew, self._without_weight()]).astype(np.intp)] = False
        return far

    def _without_weight(self) -> Index:
        """Sets of rows that have no weight at all."""
        if self.sets is not None:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(leaves_nothing(self.fit))

    # --- stages --------------------------------------------------------------------------------------

    def prove(self) -> None:
        """Exact patterns, and bounds of the first step."""
        fit, found = self.fit, self.found
        bounds = found.bounds.copy()
        if self.sets is None:
            if self.step is not None:
                bounds = np.minimum(bounds, bound_steps(fit, self.step, found.eta, found.slack))
            if step_is_exact(fit) and not np.isfinite(bounds).all():
                sure = found.slack >= LEAST_SLACK
                known = self.step.curvature if self.step is not None else None
                sure &= pattern_stays(fit, np.where(sure, found.eta.T, np.nan).T, known)
                bounds[sure] = 0.0
            bounds[leaves_nothing(fit)] = 0.0
        self.found = replace(found, bounds=bounds + self._rounding(bounds))

    def _rounding(self, bounds: Array) -> Array:
        """What the condition of K leaves of a bound of nothing: (t,)."""
        if self.step is None and self.blocks is None:
            return np.zeros(len(bounds))
        moved = np.abs(self.found.eta - self.fit.eta[self.found.rows]).reshape(len(bounds), -1).max(axis=1)
        curvature = self.step.curvature if self.step is not None else self.blocks.base  # type: ignore[union-attr]
        rounding = rounding_of_slack(curvature.condition)
        return rounding * moved / np.maximum(self.found.slack, LEAST_SLACK)[self.found.fold]

    def iterate(self, which: Index, affordable: float, progress: Progress | None) -> float:
        """Repeat steps, all sets together."""
        fit = self.fit
        if fit.problem.loss.is_kinked or fit.problem.self_concordance() is None:
            return 0.0
        if self.step is None and self.blocks is None:  # nothing to repeat in the dual
            return 0.0
        tol = 1.0 if self.max_error == 0 else LOOSELY
        if self.sets is None and proximal.applies(fit):
            return self._take_iterated(which, tol, affordable)
        if fit.is_kinked and fit.problem.penalty.pieces is not Pieces.QUADRATIC:
            return 0.0
        which, work = _within(which, self.cost_of_chords(), affordable)
        self._take_chords(which, tol)
        return work.seconds

    def cost_of_chords(self) -> Work:
        """What a set takes, about."""
        n, k, outputs = self.fit.problem.n, max(1, self.fit.tangent.size), self.fit.eta[0].size
        factors = 1 if isinstance(self.fit.problem.loss, CoupledLoss) else outputs
        sizes = 1 if self.sets is None else max(len(rows) for rows in self.sets.removed)
        anew = cost.newton_step(n, k, k).seconds / cost.PER_FLOP if sizes > k else 0.0
        X = self.fit.problem.X
        stored = _linalg.n_stored(X) if _linalg.has_columns(X) else n * n
        step = cost.steps(n, stored, min(k // factors, n), outputs)
        return step.times(STEPS)._replace(flops=STEPS * step.flops + anew)

    @cached_property
    def _singles(self) -> Blocks:
        single = tuple(np.arange(self.fit.problem.n)[:, None])
        blocks = Blocks.of(self.fit, self.curvature, Folds(single, single, self.fit.problem.n))
        blocks.reached[:] = self.found.slack >= LEAST_SLACK
        return blocks

    def _take_chords(self, which: Index, tol: float) -> None:
        if which.size == 0:
            return
        blocks = self.blocks if self.blocks is not None else self._singles
        blocks.iterate(which, tol)
        found = self.found
        eta, bounds, solved = found.eta.copy(), found.bounds.copy(), dict(found.solved)
        done = []
        for k in which.tolist():
            if k not in blocks.ends:
                continue
            own = blocks.tested(k)
            self.starts[k] = blocks.ends[k]
            if not np.all(blocks.bounds[own] <= np.maximum(bounds[own], 0.0)):
                continue
            eta[own], bounds[own] = blocks.eta[own], blocks.bounds[own]
            done.append(k)
            if self.sets is None:
                solved[k] = Solved(eta[k], *blocks.ends[k])
        finite = [k for k in done if np.isfinite(bounds[blocks.tested(k)]).all()]
        stepped = np.union1d(found.stepped, np.array(finite, dtype=np.intp)).astype(np.intp)
        self.found = replace(found, eta=eta, bounds=bounds, solved=solved, stepped=stepped)

    def _take_iterated(self, which: Index, tol: float, affordable: float) -> float:
        ends, seconds = proximal.iterate(self.fit, which, tol, affordable)
        found = self.found
        eta, bounds, solved = found.eta.copy(), found.bounds.copy(), dict(found.solved)
        for place, k in enumerate(which.tolist()):
            self.starts[k] = Direction(ends.coef[place], ends.intercept[place])
            eta[k], bounds[k] = ends.eta[place], ends.bounds[place]
            if not ends.settled[place]:
                continue
            solved[k] = Solved(eta[k], *self.starts[k])
        known = ends.settled & np.isfinite(ends.bounds)
        stepped = np.union1d(found.stepped, which[known]).astype(np.intp)
        self.found = replace(found, eta=eta, bounds=bounds, solved=solved, stepped=stepped)
        return seconds

    def follow(self, which: Index, affordable: float, progress: Progress | None) -> float:
        """Follow rows along exact paths."""
        fit = self.fit
        if self.sets is not None or not has_paths(fit):
            return 0.0
        first, second = following(fit, 1), following(fit, 2)
        each = Work(*(b - a for a, b in zip(first, second, strict=True)))
        which, work = _within(which, each, affordable - first.seconds)
        solved = follow(fit, which)
        found = self.found
        eta, bounds = found.eta.copy(), found.bounds.copy()
        for i, one in solved.items():
            eta[i], bounds[i] = one.eta, 0.0
        self.found = replace(
            found,
            eta=eta,
            bounds=bounds,
            solved=found.solved | solved,
            pivoted=np.array(sorted(solved), dtype=np.intp),
        )
        return work.seconds + first.seconds

    def refit(self, which: Index, affordable: float, progress: Progress | None) -> float:
        """Solve anew."""
        which, work = _within(which, refit_cost(self.fit), affordable)
        if which.size:
            self._take_refits(which, progress)
        return work.seconds

    def _take_refits(self, which: Index, progress: Progress | None) -> None:
        found, numbers = self.found, which.tolist()
        removed = {k: np.array([k]) if self.sets is None else self.sets.removed[k] for k in numbers}
        judged = {k: np.array([k]) if self.sets is None else self.sets.tested[k] for k in numbers}
        anew = refit_sets(self.fit, removed, judged, self.starts, progress)
        eta, bounds, solved = found.eta.copy(), found.bounds.copy(), dict(found.solved)
        for k, one in anew.items():
            own = found.values_of(k)
            eta[own], bounds[own] = one.eta, one.bounds
            if self.sets is None:
                solved[k] = Solved(eta[k], one.coef, one.intercept)
        failed = np.array([k for k in numbers if k not in anew], dtype=np.intp)
        for k in failed:
            bounds[found.values_of(k)] = np.inf
        done = np.array(sorted(anew), dtype=np.intp)
        several = np.array([k for k in done.tolist() if anew[k].several], dtype=np.intp)
        self.found = replace(
            found,
            eta=eta,
            bounds=bounds,
            solved=solved,
            anew=np.union1d(found.anew, done).astype(np.intp),
            stepped=np.setdiff1d(found.stepped, done),
            pivoted=np.setdiff1d(found.pivoted, done),
            failed=np.union1d(found.failed, failed).astype(np.intp),
            several=np.union1d(found.several, several).astype(np.intp),
        )


def _within(which: Index, each: Work, affordable: float) -> tuple[Index, Work]:
    """As many sets as can be afforded, and what they cost."""
    count = len(which) if np.isinf(affordable) else int(min(len(which), max(affordable, 0.0) / each.seconds))
    return which[:count], each.times(count)


def _in_dual(fit: Fit, sets: Folds | None) -> LeftOut | None:
    if not dual.is_wide_ridge(fit):
        return None
    return dual.leave_rows_out(fit) if sets is None else dual.leave_sets_out(fit, sets)


def _sets_left_out(fit: Fit, sets: Folds, curvature: Curvature | None) -> tuple[LeftOut, Blocks | None]:
    """One step for every set; none where rows in a corner and rows that are not leave together."""
    removed_share(sets, fit.problem.weights)
    if fit.problem.loss.is_kinked:
        leverages = leave_corners_out(fit).leverages
        nothing = np.full(len(sets.rows), np.inf)
        return LeftOut(fit, fit.eta[sets.rows], nothing, leverages, np.zeros(len(sets)), sets), None
    blocks = Blocks.of(fit, curvature, sets)
    blocks.step()
    leverages = _leverages(fit, blocks.forms)
    return LeftOut(fit, blocks.eta.copy(), blocks.bounds.copy(), leverages, blocks.slack, sets), blocks


def _leverages(fit: Fit, forms: Array) -> Array:
    """d_i h_i of single rows, as ``step`` has them."""
    if forms.ndim == 3:
        return np.maximum(np.einsum("nab,nba->n", fit.hessian, forms), 0.0)
    forms = forms.reshape(len(forms), -1) if fit.hessian.ndim == 2 else forms
    leverages = fit.hessian * forms
    return np.clip(leverages.mean(axis=1) if leverages.ndim == 2 else leverages, 0.0, 1.0)

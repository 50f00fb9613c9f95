"""What rows would be predicted without themselves: one engine for rows, groups, folds and splits.

Stages, each with a proof of how far its values may be off: one Newton step for all sets (``step``,
``blocks``, ``dual``), bounds and exact patterns (``step_bounds``, ``prove``, ``patterns``), repeated steps
for all sets that need them (``chords``, ``proximal``, ``led_rows``), exact paths (``follow``), and solving
anew (``refit``).  They are taken until the risk is known to ``max_error`` of its standard errors.  Where no
stage affords that, or where no pattern can change and a few sets take less time, a sample of the sets is
solved instead, and corrects the mean (``sample``).  To compare strengths, some of the rows do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import UNMINDED, UNNOTICED
from onefit.curvature import Curvature, in_single
from onefit.curvature.iterated import FEW_PROBES, fit_cost, takes_far_less
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.draws import NEGLIGIBLE
from onefit.leave_out.follow import cost as following
from onefit.leave_out.follow import has_paths
from onefit.leave_out.frame import FEWEST, Frame
from onefit.leave_out.leads import Leads
from onefit.leave_out.parts import tell_by_parts
from onefit.leave_out.patterns import step_is_exact
from onefit.leave_out.probed import as_close_as_asked
from onefit.leave_out.refit import Progress
from onefit.leave_out.result import LeftOut
from onefit.leave_out.sample import sample
from onefit.leave_out.sets import Folds
from onefit.leave_out.stages import State
from onefit.leave_out.step_bounds import cost_of_closer_bounds
from onefit.leave_out.ways import Way, cost_of_chords, usual_way
from onefit.leave_out.without_factor import told_without_factor
from onefit.leave_out.yardstick import Yardstick, allowed, allowed_by_all
from onefit.numerics import KNOWN, LITTLE_SLACK
from onefit.solvers.far_columns import in_columns_near_zero
from onefit.solvers.truncated import Seconds

AFFORDABLE = 3.0  # fits whose time a proof may take; what takes longer is sampled
ERROR_IN_A_RACE = 1.0  # standard errors that strengths are told apart by
WORTH = 0.1  # share of the values that are not exact below which refining so few would change little
LOOKS_AT_ERRORS = 2  # at what standard errors of the mean are
HARDER = 3.0  # times as long as a usual row takes, where those of the largest losses are among them
LAST_FEW = 0.03  # seconds of the iterations for the last few rows, however many there are


def leave_out(
    fit: Fit,
    sets: Folds | None = None,
    max_error: float = KNOWN,
    *,
    curvature: Curvature | None = None,
    yardstick: Yardstick | None = None,
    affordable: float | None = None,
    for_bounds: float | None = None,
    apart: Array | None = None,
    progress: Progress | None = None,
    begun: State | None = None,
    known: LeftOut | None = None,
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
        mean, and nothing is sampled.
    affordable : float, optional
        Seconds that bounds and samples may take.  By default some fits' worth, without end for
        ``max_error`` 0.
    for_bounds : float, optional
        Seconds of these that bounds may take where a sample can follow: all of them by default.  Where it is
        given the mean is what matters, and fits with kinks are told by fits without parts of the rows where
        that takes less than single rows.
    apart : (n,) or (n, c) array, optional
        Predictors without parts of the rows, by ``factor_free.parts_of``, that are at hand; NaN elsewhere.
    progress : callable, optional
        Called with the number of sets solved anew and their total.
    begun : State, optional
        Of ``begin``, which may have left out some of the rows.
    known : LeftOut, optional
        Rows without themselves, and bounds, of another way: taken where these are the closer ones.
    """
    refined = partial(
        _refined,
        max_error=max_error,
        yardstick=yardstick,
        affordable=affordable,
        for_bounds=for_bounds,
        apart=apart,
        progress=progress,
        known=known,
    )
    if begun is not None:
        return refined(begun)
    near = in_columns_near_zero(fit)
    curvature = curvature if near.fit is fit else None
    found = None
    if sets is None:
        found = told_without_factor(near.fit, yardstick, max_error, apart, of_mean=for_bounds is not None)
    found = found or refined(State.of(near.fit, sets, curvature, yardstick, max_error))
    return found if near.fit is fit else found.in_far_columns(fit, near.means)


def _refined(
    state: State,
    max_error: float,
    yardstick: Yardstick | None,
    affordable: float | None,
    for_bounds: float | None,
    apart: Array | None,
    progress: Progress | None,
    known: LeftOut | None,
) -> LeftOut:
    """Take the stages that are needed."""
    state.max_error, fit = max_error, state.fit
    if np.isinf(max_error):
        return state.found
    affordable = affordable_for(fit, max_error) if affordable is None else affordable
    may_sample = yardstick is not None and max_error > 0
    later = 0.0 if for_bounds is None or not may_sample else max(0.0, affordable - for_bounds)
    affordable -= later
    state.prove()
    if known is not None:
        _take_closer(state, known)
    affordable -= state.prove_closely(affordable)
    of_mean = for_bounds is not None and may_sample
    if of_mean and yardstick is not None and tell_by_parts(state, yardstick, apart):
        return state.found
    state.progress = progress
    may_end_unbounded = may_sample and fit.is_kinked and not fit.problem.loss.is_quadratic
    if may_end_unbounded:
        state.shorten(state.found.trusted)
        affordable -= state.look(affordable)
    left = later + state.refine(affordable, FEWEST if may_end_unbounded else 0)
    if may_end_unbounded:
        _take_all_cheaper_than(state, FEWEST)
    if yardstick is not None and max_error > 0:
        _take_probes(state, yardstick)
        sample(state, yardstick, left)
        is_known = of_mean and state.errors().sum() <= allowed(state.found, yardstick, KNOWN)
        _tighten(state, UNNOTICED, 1.0 if is_known else WORTH)  # a few values change little of what is known
    return state.found


def _take_closer(state: State, known: LeftOut) -> None:
    """Take values of another way for rows that it bounds closer."""
    found, closer = state.found, known.bounds < state.found.bounds
    # bounds of steps are not for values of another way
    state.looked_at.update(np.flatnonzero(closer).tolist())
    eta = np.where(_linalg.with_axes(closer, known.eta), known.eta, found.eta)
    state.found = replace(found, eta=eta, bounds=np.where(closer, known.bounds, found.bounds))


def _take_probes(state: State, yardstick: Yardstick) -> None:
    """Take as many probes as what may be left open asks for, unless a sample asks for a factor anyway."""
    if state.step is None or state.estimate is None:
        return
    frame = Frame.of(state, yardstick, state.room)
    if frame.asks_for_factor(frame.fewest):
        state.take_factor()
        return
    room = allowed_by_all(state.found, yardstick, state.max_error)
    try:
        state.step, state.found = as_close_as_asked(state.fit, state.step, state.found, yardstick, room)
    except SolverError:
        state.take_factor()


def _take_all_cheaper_than(state: State, count: int) -> None:
    """Take the stages that cost less for all sets that are wanting than solving so many of them anew.

    A sample of so many then has less to correct, even where these stages end without a bound.
    """
    *before, anew = state.stages()
    for stage in before:
        which, needed = state.wanting()
        which = np.setdiff1d(which, list(state.found.solved))
        if needed and which.size * stage.each.seconds <= count * anew.each.seconds:
            stage.act(which)


def _tighten(state: State, affordable: float, least: float) -> None:
    """Refine sets that are not certified, the worst first, for some seconds that do for such a share."""
    once = {Way.ITERATE: state.starts, Way.REPEAT: state.starts, Way.FINER: state.finer}
    for stage in state.stages() if state.found.correction is None else ():
        if affordable < least * np.count_nonzero(~state.found.certified) * stage.each.seconds:
            break
        own = state.errors()
        own[[*state.found.anew, *once.get(stage.way, ())]] = 0.0
        count = min(int(np.count_nonzero(own)), int(affordable / stage.each.seconds))
        if count > 0:
            stage.act(np.argsort(-own, kind="stable")[:count])
            affordable -= stage.each.times(count).seconds


def _refine_needed(state: State, affordable: float) -> None:
    """Take the stages for the sets that the mean asks for, where these can be afforded, and no others."""
    for stage in state.stages():
        which, needed = state.wanting()
        seconds = stage.each.times(needed).seconds
        if not needed or seconds > affordable:
            break
        stage.act(which[:needed])
        affordable -= seconds


def in_passing(fit: Fit, curvature: Curvature, yardstick: Yardstick, leads: Leads | None = None) -> State:
    """One step and its bounds, and more for rows that it is too long for, where all rows are cheap.

    For races along a path: patterns are not checked.  Whoever goes on is asked for ``KNOWN``.
    """
    known = in_single(curvature) if _is_dear_to_factor(fit) else curvature
    state = State.of(fit, None, known, yardstick, ERROR_IN_A_RACE, FEW_PROBES)
    state.leads, found = leads, state.found
    if step_is_exact(fit) and not fit.is_kinked:
        state.prove()
    elif step_is_exact(fit) or fit.problem.loss.has_kinks:
        strained = np.flatnonzero((found.slack < LITTLE_SLACK) & (fit.problem.weights > 0))
        if strained.size and has_paths(fit) and following(fit, strained.size).seconds < UNNOTICED:
            state.follow(strained)
    elif not fit.is_kinked:
        repeats = cost_of_chords(fit, None).times(fit.problem.n).seconds < UNNOTICED
        state.max_error = KNOWN if repeats else ERROR_IN_A_RACE
        state.prove()
        if cost_of_closer_bounds(fit, curvature, fit.problem.n).seconds < UNNOTICED:
            state.prove_closely(UNNOTICED)
        if repeats and (wanting := state.wanting()).needed:
            state.repeat_steps(wanting.which[: wanting.needed])
    else:
        state.shorten(state.found.trusted)
    state.max_error = KNOWN
    return state


def _is_dear_to_factor(fit: Fit) -> bool:
    """Whether a factor takes so long that one in single precision had better tell the forms of the rows."""
    problem = fit.problem
    if not (problem.has_one_output and problem.refits_keep_the_rest):
        return False
    return Seconds.of(fit).factored > UNNOTICED and not takes_far_less(fit)


def affordable_for(fit: Fit, max_error: float = KNOWN) -> float:
    """Seconds that making left-out values of a fit exact may take, where a sample could do."""
    return np.inf if max_error == 0 else max(UNMINDED, AFFORDABLE * fit_cost(fit).seconds)


def cost_of_telling(fit: Fit, sets: Folds | None) -> float:
    """Seconds of a sample that tells the risk, where no pattern can change, about; else without end."""
    return max(UNNOTICED, FEWEST * cost_of_chords(fit, sets).seconds) if fit.is_smooth else np.inf


def affords_all(fit: Fit) -> bool:
    """Whether making left-out values of all rows exact takes no longer than a fit, or not long."""
    work, _ = usual_way(fit)
    return AFFORDABLE * work.times(fit.problem.n).seconds <= affordable_for(fit)


def cost_of_some(fit: Fit, count: int) -> float:
    """Seconds that so many rows take, about."""
    work, way = usual_way(fit)
    return HARDER * count * work.seconds + LAST_FEW * (way is Way.ITERATE)


class SomeLeftOut(NamedTuple):
    """Some rows without themselves.

    Attributes
    ----------
    eta : (m,) or (m, c) array
        Linear predictors; NaN where there is no refit.
    off : (m,) array
        How far their losses may be off: by their bounds, or where steps have settled at an optimum without a
        proof, by what was asked for; infinite where there is no refit.
    proven : bool
        Whether all of it is proven.
    """

    eta: Array
    off: Array
    proven: bool


def begin(fit: Fit, curvature: Curvature | None, yardstick: Yardstick) -> State:
    """What is known at first, for one sample of the rows after another."""
    state = State.of(fit, None, curvature, yardstick, KNOWN, FEW_PROBES)
    if not fit.is_kinked:  # patterns are looked at where the rows end
        state.prove()
    return state


def told_by_bounds(state: State, affordable: float) -> LeftOut | None:
    """Steps for all rows, and more for those of which these tell too little, within some seconds.

    None where that is not enough for the mean.
    """
    affordable -= state.prove_closely(affordable)
    _refine_needed(state, affordable)
    return state.found if state.errors().sum() <= state.room else None


def leave_some_out(state: State, rows: Index, yardstick: Yardstick) -> SomeLeftOut:
    """Leave some rows out, those of a sample that has begun.

    They are refined by the stages of the engine until what they leave is negligible beside an error of the
    mean that such a sample tells.
    """
    stand_for = np.zeros(state.found.count)
    stand_for[rows] = 1.0
    limit = 0.0
    for _ in range(LOOKS_AT_ERRORS):  # what the first has solved tells the spread of the losses better
        limit = NEGLIGIBLE * allowed(state.found, yardstick, KNOWN, stand_for) / state.found.count
        state.settle(rows, limit, proven=False)
    found, weights = state.found, yardstick.weights[rows]
    eta, failed = found.eta.copy(), np.isin(rows, found.failed)
    eta[found.failed] = np.nan
    off = yardstick.spread(rows, found.eta[rows], found.bounds[rows])
    proven = np.isfinite(off)
    asked = limit * yardstick.weights.sum() / np.where(weights > 0, weights, 1.0)
    off = np.where(failed, np.inf, np.where(proven, off, asked))
    return SomeLeftOut(eta[rows], off, bool(np.all(proven | (weights == 0))))

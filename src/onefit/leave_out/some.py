"""Some rows left out, each as well as a comparison of risks needs: samples of the rows of a strength."""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.curvature import Curvature
from onefit.fit import Fit
from onefit.leave_out import proximal
from onefit.leave_out.blocks import Blocks, chord_cost
from onefit.leave_out.follow import cost as following
from onefit.leave_out.follow import follow, has_paths, paths_are_surer
from onefit.leave_out.refit import refit_cost, refit_sets
from onefit.leave_out.sets import Folds
from onefit.solvers import coordinate_descent
from onefit.solvers.path import approached
from onefit.solvers.solve import solve
from onefit.solvers.truncated import Seconds

NEARLY = 1e7  # times full precision: iterations end at a thousandth of the largest linear predictor
DEARER = 20.0  # times that a factor must take longer than fits without one: what these tell is rougher
LITTLE = 0.02  # of the way of predictors, that may be left
SHARPEST = 1e-8  # error of steps that they may still wait for
ROUNDS = 2.0  # times what a row takes that settles at once


def cost_of_some(fit: Fit, count: int) -> float:
    """Seconds that so many rows take, about."""
    if paths_are_surer(fit):
        return min(following(fit, count).seconds, refit_cost(fit).times(count).seconds)
    iterated, anew = _iteration_cost(fit), refit_cost(fit)
    return count * min(anew.seconds, np.inf if iterated is None else iterated.seconds)


def _iteration_cost(fit: Fit) -> Work | None:
    """What a row takes whose steps are repeated; None where they are not."""
    if proximal.applies(fit):
        n, k = fit.problem.n, 1.3 * fit.tangent.size + 1
        stored = _linalg.n_stored(fit.problem.X)
        return Work(8.0 * (2.0 * n * k + 3.0 * k * k) + 2.0 * stored, 2.0, 16.0 * n).times(ROUNDS)
    bends = fit.problem.self_concordance() is not None and not fit.problem.loss.is_kinked
    return chord_cost(fit) if bends and not fit.is_kinked else None


def rows_within(fit: Fit, seconds: float) -> int:
    """How many rows take so many seconds, about."""
    one, two = cost_of_some(fit, 1), cost_of_some(fit, 2)
    return max(0, 1 + int((seconds - one) / (two - one)))


def leave_some_out(fit: Fit, curvature: Curvature | None, rows: Index) -> Array:
    """Linear predictors of some rows without themselves, (m,) or (m, c); NaN where there is no refit.

    Rows of a lasso are followed along the exact path; others are iterated, which with an ℓ2 part settles
    on the exact value for least squares; what is left is solved anew.
    """
    eta = np.full((len(rows), *fit.eta.shape[1:]), np.nan)
    iterated, anew = _iteration_cost(fit), refit_cost(fit).seconds
    if iterated is not None and iterated.seconds < anew and not paths_are_surer(fit):
        eta = _nearly(fit, rows) if fit.is_kinked else _after_steps(fit, curvature, rows)
    left = np.asarray(np.isnan(eta.reshape(len(rows), -1)).any(axis=1))
    if has_paths(fit) and left.any() and following(fit, int(left.sum())).seconds < anew * left.sum():
        for i, one in follow(fit, rows[left]).items():
            place = np.flatnonzero(rows == i)[0]
            eta[place], left[place] = one.eta, False
    which = {int(i): np.array([i]) for i in rows[left]}
    solved = refit_sets(fit, which, which)
    for place in np.flatnonzero(left):
        if int(rows[place]) in solved:
            eta[place] = solved[int(rows[place])].eta[0]
    return eta


def is_dear_to_factor(fit: Fit, fits: int) -> bool:
    """Whether a factor of K, and with it a step for every row, takes far longer than so many fits without."""
    takes = Seconds.of(fit)
    return takes.factored > DEARER * fits * takes.singly


def rough_cost(fit: Fit) -> float:
    """Seconds that ``left_out_roughly`` takes, about."""
    takes, by_column = Seconds.of(fit), coordinate_descent.is_possible(fit)
    return coordinate_descent.work(fit, fit.tangent.size).seconds if by_column else min(takes)


def left_out_roughly(fit: Fit, curvature: Curvature | None, rows: Index) -> Array:
    """Linear predictors of rows that leave together, by a fit without a factor where there is a way."""
    start = Fit(fit.problem.without(rows), fit.coef, fit.intercept)
    if coordinate_descent.is_possible(start):
        return _moved_by_column(start, rows)
    near = approached(start, curvature).fit
    return (solve(start).fit if near is start else near).eta[rows]


def _moved_by_column(start: Fit, rows: Index) -> Array:
    """Predictors of rows by sharper and sharper steps, until little of their way is left, as steps shrink."""
    here = start.eta[rows]
    before, last = here, 0.0
    for _, fit in coordinate_descent.nearer(start, SHARPEST):
        way, here = fit.eta[rows] - here, fit.eta[rows]
        step = float(np.linalg.norm(way))
        left = step * step / (last - step) if last > step else np.inf  # a geometric series
        if step > 0 and left <= LITTLE * np.linalg.norm(here - before):
            return here
        last = step
    return solve(Fit(start.problem, fit.coef, fit.intercept)).fit.eta[rows]


def _nearly(fit: Fit, rows: Index) -> Array:
    """Predictors of a kinked fit's rows that settle."""
    ends, _ = proximal.iterate(proximal.Watched.of(fit), rows, NEARLY, np.inf)
    return np.where(ends.settled, ends.eta, np.nan)


def _after_steps(fit: Fit, curvature: Curvature | None, rows: Index) -> Array:
    """Predictors of a smooth fit's rows after some steps with one factor."""
    single = tuple(rows[:, None])
    blocks = Blocks.of(fit, curvature, Folds(single, single, fit.problem.n))
    blocks.step()
    blocks.iterate(np.arange(len(rows)), NEARLY)
    ended = np.array([k in blocks.ends for k in range(len(rows))])
    return np.where(ended.reshape(-1, *(1,) * (blocks.eta.ndim - 1)), blocks.eta, np.nan)

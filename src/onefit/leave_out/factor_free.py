"""Rows that leave together, by fits without a factor: rough values, where a factor takes far longer."""

from __future__ import annotations

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Curvature
from onefit.fit import Fit
from onefit.solvers import coordinate_descent
from onefit.solvers.path import approached
from onefit.solvers.solve import solve
from onefit.solvers.truncated import Seconds

DEARER = 20.0  # times that a factor must take longer than fits without one: what these tell is rougher
LITTLE = 0.05  # of the way of predictors, that may be left: in the mean loss it is far less than rows differ
SHARPEST = 1e-8  # error of steps that they may still wait for
SWEEPS = 100  # of a step, at most, where the next one has a better model
PARTS = 10  # of the rows, each of which leaves together


def parts_of(n: int) -> list[Index]:
    """Tenths of the rows, drawn at random: the same ones for all fits."""
    return np.array_split(np.random.default_rng(0).permutation(n), PARTS)


def is_dear_to_factor(fit: Fit, fits: int) -> bool:
    """Whether a factor of K, and with it a step for every row, takes far longer than so many fits without."""
    takes = Seconds.of(fit)
    return takes.factored > DEARER * fits * takes.singly


def goes_by_column(fit: Fit) -> bool:
    """Whether ``left_out_roughly`` goes by coordinate descent, which asks for no curvature."""
    return coordinate_descent.is_possible(fit)


def rough_cost(fit: Fit) -> float:
    """Seconds that ``left_out_roughly`` takes, about."""
    takes = Seconds.of(fit)
    return coordinate_descent.work(fit, fit.tangent.size).seconds if goes_by_column(fit) else min(takes)


def left_out_roughly(fit: Fit, curvature: Curvature | None, rows: Index) -> Array:
    """Linear predictors of rows that leave together, by a fit without a factor where there is a way."""
    start = Fit(fit.problem.without(rows), fit.coef, fit.intercept).known(eta=fit.eta)
    if goes_by_column(start):
        return _moved_by_column(start, rows)
    near = approached(start, curvature).fit
    return (solve(start).fit if near is start else near).eta[rows]


def _moved_by_column(start: Fit, rows: Index) -> Array:
    """Predictors of rows by sharper and sharper steps, until little of their way is left, as steps shrink.

    That tells once they are nearer to the optimum than to the start, by the duality gap: beside a weak
    penalty the first steps are too blunt to move at all.
    """
    start = coordinate_descent.levelled(start)
    here = start.eta[rows]
    before, last, near = here, 0.0, 0.5 * coordinate_descent.gap(start)
    sweeps = coordinate_descent.MOST_SWEEPS if start.problem.loss.is_quadratic else SWEEPS
    for _, fit in coordinate_descent.nearer(start, SHARPEST, sweeps):
        way, here = fit.eta[rows] - here, fit.eta[rows]
        step = float(np.linalg.norm(way))
        left = step * step / (last - step) if last > step else np.inf  # a geometric series
        if left <= LITTLE * np.linalg.norm(here - before) and coordinate_descent.gap(fit) <= near:
            return here
        last = step
    return solve(Fit(start.problem, fit.coef, fit.intercept)).fit.eta[rows]

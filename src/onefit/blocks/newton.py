"""Newton's method for several strengths at once: one pass over the rows a step, whatever their number.

A pass sums losses and gradients at the current point of every strength, which is cheap, and where it is
asked for the curvature, which is not: p/3 times as dear.  The steps begin at the solutions on a sample of m
rows, which are off by about √(p/m); so is the curvature there, so that each step by it takes the error down
by as much (chord steps; Dennis and Schnabel 1983, section 5.4).  Near the solution the curvature is summed
over all rows, once, for the last step and for what rows are judged by; before, only where steps fall short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from onefit import cost
from onefit._typing import Array, Index
from onefit.blocks.models import Knots, Models, Points, Quadratic, RemovedRows, summed
from onefit.blocks.rows import Rows
from onefit.exceptions import SolverError
from onefit.numerics import TINY
from onefit.penalties import SeparablePenalty
from onefit.solvers.mixing import ChordStep, mixed

MOST_PASSES = 60
MOST_PASSES_WITHOUT = 30  # without single rows, whose solutions are near, or have no end
# Newton decrement, relative to the loss, that may be left after the last step.  The error of the coefficients
# is about its root, and of a risk at most that, by its slope along the gradient of the penalty.
SETTLED = 1e-18
# Share of a risk by which strengths are compared that it may be off: of the curvature, n/p times as much.
ALIKE = 1e-7
FARTHEST = 1e-3  # of the curvature, at most
SLOW = 0.2  # of the last decrement: by steps that leave more the curvature is wrong, and summed again
BENT = 10.0  # times p and the decrement: a larger share of it than a Newton step leaves
ROUNDING = 1e-13  # of the objective: it may rise by that and not have risen


class Start(NamedTuple):
    """Where steps begin.

    Attributes
    ----------
    points : Points
    quadratics : tuple of Quadratic or None
        The curvature there, if anything is known of it.
    knots : Knots
        Strengths whose curvature is wanted at their solutions, and which serve the others.
    single : bool
        Whether it may come from products in single precision.
    is_model_there : bool
        Whether the first step needs no pass: what is known is the second-order model at the points, and near
        enough to that at the solutions.
    """

    points: Points
    quadratics: tuple[Quadratic | None, ...]
    knots: Knots
    single: bool = False
    is_model_there: bool = False

    @classmethod
    def at(cls, points: Points) -> Self:
        """Start where nothing else is known."""
        J = len(points.coefs)
        return cls(points, (None,) * J, Knots.all(J))


class SolvedStrengths(NamedTuple):
    """Solutions of all strengths, with the model of the loss at each."""

    points: Points
    quadratics: tuple[Quadratic, ...]


@dataclass
class _Strength:
    """Where one strength is on its way."""

    penalty: SeparablePenalty
    coef: Array
    level: float
    quadratic: Quadratic | None
    curved: bool  # whether the next pass sums its curvature
    is_knot: bool  # whether it must have been summed near the solution
    objective: float = np.inf  # of the last point that was no rise
    at: tuple[Array, float] | None = None
    trail: list[ChordStep] = field(default_factory=list)  # steps by this curvature
    decrement: float = np.inf
    near: bool = False
    done: bool = False

    def take(self, found: Quadratic, scale: float, aim: Aim, *, fresh: bool) -> None:
        """Go on from the point that was summed at, or half-way back if the objective rose there."""
        objective = found.value + self.penalty.value(self.coef)
        if self.at is not None and not objective <= self.objective + ROUNDING * abs(self.objective):
            coef, level = self.at
            self.coef, self.level = 0.5 * (self.coef + coef), 0.5 * (self.level + level)
            self.curved = True
            return
        if not np.isfinite(objective):
            raise SolverError("the loss of the model to start from is not finite: scale the columns")
        change, level = found.step(self.coef, self.penalty)
        here, step = np.append(self.coef, self.level), np.append(change, level)
        metric = found.metric(self.penalty.strengths(self.coef.shape)[1])
        own = ChordStep(*(part[:, None] for part in (here + step, step, metric @ step)))
        decrement = float(step @ own.image[:, 0]) / scale
        self.near = self.near or (fresh and decrement <= aim.near)
        self._look_ahead(decrement, aim)
        self.at, self.objective, self.quadratic = (self.coef, self.level), objective, found.moved(change)
        self.trail = [*([] if fresh else self.trail), own]
        there = here + step if self.done else mixed(self.trail)[:, 0]
        self.coef, self.level = there[:-1], float(there[-1])

    def _look_ahead(self, decrement: float, aim: Aim) -> None:
        """Decide whether this step is the last, and whether the next pass sums the curvature."""
        rate = decrement / self.decrement if 0.0 < self.decrement < np.inf else SLOW
        if self.curved:  # a Newton step
            rate = min(rate, BENT * len(self.coef) * decrement)
        self.done = aim.is_quadratic or (self.near and min(rate, 1.0) * decrement <= aim.settled)
        self.decrement = decrement
        arrives = self.is_knot and not self.near and rate * decrement <= aim.near
        self.curved = arrives or (rate > SLOW and decrement > aim.settled)


class Aim(NamedTuple):
    """How near to the solution is near enough: decrements relative to the loss.

    Attributes
    ----------
    near : float
        Where curvature counts as that of the solution.
    settled : float
        After the last step.
    is_quadratic : bool
        Whether one step arrives.
    """

    near: float
    settled: float
    is_quadratic: bool


def solve_all(
    rows: Rows,
    models: Models,
    start: Start,
    *,
    n: int,
    settled: float = SETTLED,
    removed: RemovedRows | None = None,
) -> tuple[SolvedStrengths, Array]:
    """Minimise the objectives of all strengths, in passes over the rows.

    Parameters
    ----------
    rows : Rows
    models : Models
    start : Start
    n : int
        Rows that each pass must see.
    settled : float
        Newton decrement, relative to the loss, that may be left.
    removed : RemovedRows, optional
        A row for each strength, which its objective is without.

    Returns
    -------
    SolvedStrengths
    (J,) array
        Newton decrement of the last step, relative to the loss; infinite where steps did not become small.

    Raises
    ------
    SolverError
        If the loss is not finite, or the rows are not the same in each pass.
    """
    points, knots = start.points, start.knots
    scale, passes = float(np.finfo(float).tiny), 0
    aim = Aim(min(ALIKE * n / len(points.centre), FARTHEST) ** 2, settled, models.loss.is_quadratic)
    strengths = _started(models, start, aim)
    most = MOST_PASSES if removed is None else MOST_PASSES_WITHOUT
    while (active := np.flatnonzero([not one.done for one in strengths])).size and passes < most:
        own = [strengths[j] for j in active]
        curved = _curved(own, len(own) if removed is None else _most_curved(len(own), n, len(points.centre)))
        here = _points(own, points.centre)
        sums = rows.total(
            partial(summed, models=models.some(active), points=here, curved=curved, single=start.single)
        )
        check_rows(sums.rows, n)
        if removed is not None:
            sums = sums.less(models.some(active), here, curved, removed.some(active))
        scale, passes = max(scale, float(np.nanmin(sums.losses))), passes + 1
        fresh = {
            int(active[j]): Quadratic.of(sums, int(j), place, intercept=models.intercept)
            for place, j in enumerate(curved)
        }
        for place in np.argsort([not one.is_knot for one in own], kind="stable"):  # knots come first
            one, j = own[place], int(active[place])
            knot = int(knots.nearest[j])
            found = fresh.get(j)
            of_knot = strengths[knot].quadratic if strengths[knot].near else None
            if found is None and not one.near and of_knot is not None:  # whenever that came to be known
                one.near, found = True, of_knot.at(sums, place)
            is_fresh = found is not None
            if found is None:
                assert one.quadratic is not None
                found = one.quadratic.at(sums, place)
            one.take(found, scale, aim, fresh=is_fresh)
    quadratics = tuple(one.quadratic for one in strengths if one.quadratic is not None)
    last = np.array([max(one.decrement, 0.0) if one.done else np.inf for one in strengths])  # rounding
    return SolvedStrengths(_points(strengths, points.centre), quadratics), last


def _most_curved(m: int, n: int, p: int) -> int:
    """Problems without a row whose curvature takes no longer to sum than the gradients of all m."""
    return max(1, m // max(p, 1), int(cost.UNNOTICED / cost.gram(n, max(p, 1)).seconds))


def _curved(strengths: Sequence[_Strength], most: int) -> Index:
    """Those whose curvature the next pass sums, at most so many: others go on by what they have."""
    wanted = np.flatnonzero([one.curved for one in strengths])
    for j in wanted[most:]:
        strengths[j].curved = False
    return wanted[:most]


def _started(models: Models, start: Start, aim: Aim) -> list[_Strength]:
    points, is_there = start.points, start.is_model_there
    strengths = [
        _Strength(
            penalty,
            points.coefs[j],
            float(points.levels[j]),
            known,
            known is None or (aim.is_quadratic and not is_there),
            j in start.knots.at,
            near=is_there,
        )
        for j, (penalty, known) in enumerate(zip(models.penalties, start.quadratics, strict=True))
    ]
    for one in strengths:
        if is_there and one.quadratic is not None:
            one.take(one.quadratic, max(one.quadratic.value, TINY), aim, fresh=True)
    return strengths


def _points(strengths: Sequence[_Strength], centre: Array) -> Points:
    coefs = np.stack([one.coef for one in strengths])
    return Points(coefs, np.array([one.level for one in strengths]), centre)


def check_rows(seen: int, n: int) -> None:
    """Refuse a source that does not give the same rows in each pass.

    Raises
    ------
    ValueError
    """
    if seen != n:
        raise ValueError(
            f"a pass over the rows saw {seen} of them where the first saw {n}: a source must give the same "
            "rows each time"
        )

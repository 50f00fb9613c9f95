"""Rows that are followed out of the fit, from one active pattern to the next.

Where loss and penalty are quadratic in pieces, the minimum on each pattern takes a small system in what has
changed.  Three models have such patterns: the lasso, what is a lasso in other coordinates (the augmented
problem of Wang et al. 2018, eq. 11), and losses with kinks and a ridge penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import Work, pivots_of_a_row
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out import follow_kinks, follow_lasso, kink_program
from onefit.leave_out.leads import Leads
from onefit.leave_out.result import SolvedWithout
from onefit.leave_out.tableau import Watched
from onefit.penalties import SeparablePenalty
from onefit.problem import Problem
from onefit.solvers.lasso_coordinates import LassoCoordinates

PIVOTS = 10.0  # that a row takes
IN_A_PIVOT = 40.0  # calls, for all rows that are followed together
# The same beside losses with kinks; for each row calls, and numbers of each of all rows that are read and
# written, as multiplications; and multiplications of each pair of rows at the end.
IN_A_KINK, OF_A_ROW, NUMBERS, AT_THE_END = 300.0, 10.0, 600.0, 6.0
# Calls of a row of a lasso, and of each exchange, and products with the watched columns where the support is
# as large as the sample: with a high power of that share, patterns go round (``benchmarks/follow_cost.py``).
IN_A_ROW, IN_AN_EXCHANGE, GOING_ROUND = 20.0, 10.0, 400.0
ROUNDS = 2.0  # of watching more columns
JOINING = 2.0  # columns that a row of the lasso watches, relative to the support


class Followed(NamedTuple):
    """Rows that arrived, and those of which it could not be shown: their ends are where a solver starts."""

    solved: dict[int, SolvedWithout]
    near: dict[int, SolvedWithout]


@dataclass(eq=False)
class Paths:
    """Paths out of a fit, and the columns that those which have been followed had to watch."""

    fit: Fit

    @cached_property
    def _outputs(self) -> list[Paths]:
        return [Paths(one) for one in self.fit.apart] if self.fit.problem.is_apart else []

    @cached_property
    def _coordinates(self) -> LassoCoordinates | Problem | None:
        return _lasso(self.fit.problem)

    @cached_property
    def _watched(self) -> Watched:
        lasso = self._coordinates
        return Watched.of(lasso.restate(self.fit) if isinstance(lasso, LassoCoordinates) else self.fit)

    def follow(self, rows: Index, leads: Leads | None = None) -> Followed:
        """Follow some rows; those without an end are left out of the answer.

        ``leads`` are where they went at a strength near by, which only the lasso itself makes use of.
        """
        if rows.size == 0:
            return Followed({}, {})
        if self._outputs:
            own = [None if leads is None else leads.of_output(k) for k in range(len(self._outputs))]
            each = zip(self._outputs, own, strict=True)
            return _together(rows, [paths.follow(rows, lead) for paths, lead in each])
        if self.fit.problem.loss.is_kinked:
            return _off_kinks(self.fit, rows)
        lasso = self._coordinates
        if not isinstance(lasso, LassoCoordinates):
            changes = pivots_of_a_row(self.fit.problem.n, self.fit.tangent.size)
            ends = {} if leads is None else leads.ends(self.fit, rows, changes)
            return _along_lasso(self._watched, rows, ends)
        found = _along_lasso(self._watched, rows, {})

        def back(ends: dict[int, SolvedWithout]) -> dict[int, SolvedWithout]:
            return {
                i: SolvedWithout(one.eta, *lasso.parameters(one.coef, one.intercept))
                for i, one in ends.items()
            }

        return Followed(*map(back, found))


def has_paths(fit: Fit) -> bool:
    """Whether rows can be followed out of this fit."""
    problem = fit.problem
    if problem.is_apart:
        return problem.loss.is_quadratic and not problem.loss.is_kinked and has_paths(fit.apart[0])
    if not problem.has_one_output or not problem.loss.is_quadratic:
        return False
    if problem.loss.is_kinked:
        return problem.penalty.is_ridge(fit.coef.shape) or kink_program.applies(fit)
    return fit.is_kinked and not problem.is_balanced and _lasso(problem) is not None


def paths_share(fit: Fit) -> bool:
    """Whether the paths of all rows begin with one tableau, so that nothing is quicker: see ``has_paths``."""
    lost = fit.problem.lost_shares(np.flatnonzero(fit.problem.weights > 0))
    return has_paths(fit) and not (np.any(fit.tangent.hessian) and np.ptp(lost) > 0)


def cost(fit: Fit, rows: int) -> Work:
    """What following so many rows takes, about."""
    n = fit.problem.n
    if fit.problem.is_apart:
        return reduce(Work.plus, [cost(one, rows) for one in fit.apart])
    if fit.problem.loss.is_kinked:
        if not fit.problem.penalty.is_ridge(fit.coef.shape):
            n += fit.coef.size  # rows of the penalty, about
        each = Work(NUMBERS * n, OF_A_ROW).times(PIVOTS).plus(Work(AT_THE_END * float(n) ** 2))
        return each.times(rows).plus(Work(0.0, IN_A_KINK).times(PIVOTS))
    k, p = fit.tangent.size, fit.problem.X.shape[1]
    share, watched = min(k / n, (n / max(k, 1)) ** 2), min(JOINING * k, p)
    check = 2.0 * _linalg.as_columns(fit.problem.X).n_stored
    tableau = Work(watched**2 * (n + watched), ROUNDS * PIVOTS * IN_A_PIVOT)
    exchanges = pivots_of_a_row(n, k)
    each = Work(GOING_ROUND * watched**2 * share**12 + check, IN_A_ROW + IN_AN_EXCHANGE * exchanges)
    return tableau.times(1 if paths_share(fit) else rows).plus(each.times(rows))


def cost_of_a_row(fit: Fit) -> Work:
    """What one more row takes, about."""
    return cost(fit, 2).plus(cost(fit, 1).times(-1.0))


def _lasso(problem: Problem) -> LassoCoordinates | Problem | None:
    """The problem itself where its penalty is separable, or its lasso coordinates where it has some."""
    return problem if isinstance(problem.penalty, SeparablePenalty) else LassoCoordinates.of(problem)


def _along_lasso(watched: Watched, rows: Index, leads: Mapping[int, Direction]) -> Followed:
    fit, ends = watched.fit, follow_lasso.leave_out_by_exchange(watched, rows, leads)

    def by_row(which: Index) -> dict[int, SolvedWithout]:
        coef = np.zeros((which.size, fit.coef.size))
        coef[:, ends.columns] = ends.coef[which]
        return _by_row(rows[which], ends.own[which], coef, ends.intercept[which])

    return Followed(by_row(np.flatnonzero(ends.solved)), by_row(np.flatnonzero(ends.came & ~ends.solved)))


def _together(rows: Index, outputs: list[Followed]) -> Followed:
    """Rows that arrived in all outputs, and those that did not in some."""
    solved, near = dict[int, SolvedWithout](), dict[int, SolvedWithout]()
    for i in rows.tolist():
        ends = [one.solved.get(i) or one.near.get(i) for one in outputs]
        known = [end for end in ends if end is not None]
        if len(known) < len(outputs):
            continue
        eta, level = (np.array([float(end[part]) for end in known]) for part in (0, 2))
        arrived = all(i in one.solved for one in outputs)
        (solved if arrived else near)[i] = SolvedWithout(eta, np.stack([end.coef for end in known], 1), level)
    return Followed(solved, near)


def _off_kinks(fit: Fit, rows: Index) -> Followed:
    ends = follow_kinks.leave_out_along_path(fit, rows)
    done = ends.solved
    solved = _by_row(rows[done], ends.eta[done], ends.coef[:, done].T, ends.intercept[done])
    return Followed(solved, {})


def _by_row(rows: Index, own: Array, coef: Array, level: Array) -> dict[int, SolvedWithout]:
    return {
        int(i): SolvedWithout(value, one, np.asarray(base))
        for i, value, one, base in zip(rows, own, coef, level, strict=True)
    }

"""In which ways a set can be refined, and what each takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from onefit._typing import Index
from onefit.cost import Work, pivots_of_a_row
from onefit.fit import Fit, once
from onefit.leave_out import proximal
from onefit.leave_out.chords import chord_cost
from onefit.leave_out.follow import cost_of_a_row, has_paths, paths_share
from onefit.leave_out.patterns import cost_of_patterns
from onefit.leave_out.refit import refit_cost
from onefit.leave_out.sets import Folds
from onefit.pieces import Pieces
from onefit.solvers import on_pattern

FURTHER = 4.0  # rounds that it takes from the end of an iteration to one that can be bounded


class Way(Enum):
    """How a set is refined."""

    ITERATE = auto()  # steps with one tableau, patterns included
    LEAD = auto()  # steps by the factor of the fit, each set on its own, patterns included
    FINER = auto()  # more of them, where nothing bounds what is left
    REPEAT = auto()  # steps with one factor
    FOLLOW = auto()  # along the exact path
    ANEW = auto()


class Wanting(NamedTuple):
    """Sets to refine."""

    which: Index
    needed: int  # so many of the first for the mean; the others for their own sake


class Stage(NamedTuple):
    """Something that can be done for sets that are not bounded well enough."""

    each: Work  # that a set takes, about
    way: Way
    act: Callable[[Index], None]  # on some sets


def ways(fit: Fit, sets: Folds | None = None, by_products: Work | None = None) -> list[tuple[Work, Way]]:
    """How a set can be refined, and what that takes: none that takes longer than solving it anew.

    ``by_products`` is what steps without a factor take, where there is none.
    """
    found, anew = list[tuple[Work, Way]](), refit_cost(fit)
    along = sets is None and paths_share(fit)
    if not fit.problem.loss.is_kinked and fit.problem.self_concordance() is not None:
        if sets is None and proximal.applies(fit):
            if not along:
                found.append((proximal.cost(fit), Way.ITERATE))
                found.append((proximal.cost_of_look(fit).times(FURTHER), Way.FINER))
        elif not fit.is_kinked or (fit.problem.penalty.pieces is Pieces.QUADRATIC and not along):
            found.append((by_products or cost_of_chords(fit, sets), Way.REPEAT))
            if sets is None and not fit.is_kinked:
                found.append((by_products or cost_of_chords(fit, sets), Way.FINER))
    if sets is None and on_pattern.pays(fit):
        found.append((on_pattern.cost_of_steps(fit), Way.LEAD))
    if sets is None and has_paths(fit):
        found.append((cost_of_a_row(fit), Way.FOLLOW))
    return [*(one for one in found if one[0].seconds < anew.seconds), (anew, Way.ANEW)]


@once
def usual_way(fit: Fit) -> tuple[Work, Way]:
    """The way that a row takes first, and what the row takes with what follows.

    Steps on the pattern of a fit with kinks are in vain for rows that change it, which are solved anew.
    """
    (work, way), *rest = ways(fit)
    if way is Way.REPEAT and fit.is_kinked and rest:
        changing = 1.0 - math.exp(-pivots_of_a_row(fit.problem.n, fit.tangent.size))  # pivots come by chance
        work = work.plus(rest[-1][0].times(changing))
    return work, way


def looking_pays(fit: Fit) -> bool:
    """Whether looking at the patterns without all rows takes less than following those that keep theirs."""
    if fit.problem.loss.is_kinked or not paths_share(fit):
        return True
    n, k = fit.problem.n, fit.tangent.size
    kept = n * math.exp(-pivots_of_a_row(n, k))  # pivots come by chance
    return cost_of_patterns(fit).seconds < kept * cost_of_a_row(fit).seconds


def cost_of_chords(fit: Fit, sets: Folds | None) -> Work:
    """What a set takes by steps with one factor, about."""
    return chord_cost(fit, 1 if sets is None else max(len(rows) for rows in sets.removed))

"""A path, judged in a pass, and the strength that is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onefit import cost
from onefit._typing import Array, Index
from onefit.blocks.left_out_path import LeftOutPath, joined
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.paths import net_path, net_path_exactly, ridge_path
from onefit.blocks.rows import Rows
from onefit.blocks.sums import RowSums
from onefit.tuning.contest import Contest
from onefit.tuning.grid import CLEARLY_WORSE, PATIENCE, Grid
from onefit.tuning.path import JudgedPath
from onefit.tuning.selection import BAGGINGS, Selection, choose, smallest


@dataclass(frozen=True, eq=False)
class TunedPath(JudgedPath):
    """A path that was judged in passes, which keep no losses; where they solve every row, risks are exact.

    Attributes
    ----------
    contest : Contest
    """

    contest: Contest


class Resolved(NamedTuple):
    """Strengths at which all rows whose pattern changes are solved anew, and those with little slack only."""

    all: Index
    strained: Index


def tune_ridge(rows: Rows, sums: RowSums, grid: Grid, selection: Selection = "bagged_se") -> TunedPath:
    """Ridge of one response: judge every strength, and more while the risk falls at an end, and choose."""
    return _tuned(rows, [grid], [lambda alphas: ridge_path(sums, alphas)], selection, False)[0]


def tune_net(
    rows: Rows,
    sums: RowSums,
    grids: Sequence[tuple[float, Grid]],
    selection: Selection = "bagged_se",
    *,
    early_stopping: bool = True,
    nonnegative: bool = False,
) -> tuple[float, TunedPath]:
    """Lasso or elastic net, with several shares of the ℓ1 part: the chosen one and its path.

    Parameters
    ----------
    rows : Rows
    sums : RowSums
        Over them; about zero for models without an intercept.
    grids : sequence of (float, Grid)
        ``l1_ratio``, and its strengths.
    selection : "bagged_se", "bagged", "min" or "1se"
    early_stopping : bool, default True
        End each path where its risk is clearly past the minimum.
    nonnegative : bool, default False
        Whether no coefficient goes below zero.
    """

    def along(ratio: float) -> Callable[[Array], LeftOutPath]:
        return lambda alphas: net_path(sums, alphas, ratio, nonnegative=nonnegative)

    def exactly(paths: list[LeftOutPath], strengths: list[Array], anew: list[Resolved]) -> list[LeftOutPath]:
        own = zip(paths, strengths, (ratio for ratio, _ in grids), anew, strict=True)
        return [
            net_path_exactly(path, sums, alphas, ratio, *at, nonnegative=nonnegative)
            for path, alphas, ratio, at in own
        ]

    paths = [along(ratio) for ratio, _ in grids]
    found = _tuned(rows, [grid for _, grid in grids], paths, selection, early_stopping, exactly)
    best = min(range(len(found)), key=lambda k: float(found[k].risks[found[k].best]))
    return grids[best][0], found[best]


def _tuned(
    rows: Rows,
    grids: list[Grid],
    along: list[Callable[[Array], LeftOutPath]],
    selection: Selection,
    early_stopping: bool,
    exactly: Callable[[list[LeftOutPath], list[Array], list[Resolved]], list[LeftOutPath]] | None = None,
) -> list[TunedPath]:
    strengths, paths = [grid.values for grid in grids], list[LeftOutPath]()
    while not paths:
        paths = [solve(alphas) for solve, alphas in zip(along, strengths, strict=True)]
        strengths, paths = _longer(grids, strengths, [path.guessed_risks for path in paths], paths)
        if paths:
            losses = rows.total(joined(paths).judge)
            ends = np.cumsum([len(alphas) for alphas in strengths])[:-1]
            strengths, paths = _longer(grids, strengths, np.split(losses.risks, ends), paths)
    places = np.split(np.arange(len(losses.risks)), ends)
    known: list[Resolved] | None = None
    while exactly is not None:
        known = _to_solve_anew([losses.of_some(at) for at in places], known, len(paths[0].coefs))
        if known is None:
            break
        paths = exactly(paths, strengths, known)
        losses = rows.total(joined(paths).judge)
    seen = [
        at[0] + visited(grid, alphas, losses.of_some(at), early_stopping)
        for grid, alphas, at in zip(grids, strengths, places, strict=True)
    ]
    path = joined(paths)
    return chosen_of(np.concatenate(strengths), (path.coefs.T, path.intercepts), losses, seen, selection)


def _longer(
    grids: list[Grid], strengths: list[Array], risks: list[Array], paths: list[LeftOutPath]
) -> tuple[list[Array], list[LeftOutPath]]:
    """Longer grids, whose paths are to be solved, where a risk falls at an end; else all as it is."""
    more = [longer(*each) for each in zip(grids, strengths, risks, strict=True)]
    as_long = all(len(a) == len(b) for a, b in zip(more, strengths, strict=True))
    return (strengths, paths) if as_long else (more, [])


def _to_solve_anew(losses: list[LossSums], known: list[Resolved] | None, p: int) -> list[Resolved] | None:
    """Strengths at which rows whose pattern changes are solved, more than are known; None where all is told.

    All strengths, if that takes no longer than folds would.  Else those whose risk hangs on rows with little
    slack; then those that may be the choice, as many as a race affords, or, where they may be too many for
    one, all of them or none.
    """
    n, counts = losses[0].count, [len(own.first) for own in losses]
    each = cost.patterns(n, p, 1).seconds
    if sum(counts) * each <= cost.IN_A_PATH:
        return [Resolved(np.arange(count), np.arange(0)) for count in counts] if known is None else None
    known = [Resolved(np.arange(0), np.arange(0)) for _ in losses] if known is None else known
    strained = [np.union1d(one.strained, own.in_doubt()) for one, own in zip(known, losses, strict=True)]
    if any(at.size > one.strained.size for at, one in zip(strained, known, strict=True)):
        return [Resolved(one.all, at) for one, at in zip(known, strained, strict=True)]
    races = not cost.is_tall(n, p) and cost.NEAR * sum(counts) * each <= cost.IN_A_RACE
    near = [
        np.setdiff1d(own.near(), one.all, assume_unique=True) for one, own in zip(known, losses, strict=True)
    ]
    held, wanted = (sum(at.size for at in some) for some in ([one.all for one in known], near))
    most = (cost.IN_A_RACE if races else cost.IN_A_PATH) / each - held
    if wanted == 0 or (wanted > most and (held or not races)):
        return None
    share = min(1.0, most / wanted)
    return [
        Resolved(np.union1d(one.all, at[: int(np.ceil(share * at.size))]), one.strained)
        for one, at in zip(known, near, strict=True)
    ]


def longer(grid: Grid, strengths: Array, risks: Array) -> Array:
    """Strengths with a decade more at an end where the risk falls."""
    above = _added_above(grid, strengths)
    below = len(strengths) - len(grid.values) - above
    on = grid.decade * np.array([grid.falls_above(risks), grid.falls_below(risks)])
    return grid.reaching(above + on[0], below + on[1])


def _added_above(grid: Grid, strengths: Array) -> int:
    """How many strengths are beyond the strongest of the grid."""
    return int(np.argmax(strengths == grid.values[0]))


def visited(grid: Grid, strengths: Array, losses: LossSums, early_stopping: bool) -> Index:
    """Positions that count: none that were added past where the risk ceased to fall, or is clearly worse."""
    risks, first = losses.risks, _added_above(grid, strengths)
    stop = first + len(grid.values)
    while stop < len(strengths) and grid.falls_below(risks[first:stop]):
        stop += 1
    if early_stopping:
        stop = _past_minimum(losses, first, stop)
    while first > 0 and grid.falls_above(risks[first:stop]):
        first -= 1
    return np.arange(first, stop)


def _past_minimum(losses: LossSums, first: int, stop: int) -> int:
    """Where a path ends that stops once its risk is clearly past the minimum."""
    risks = losses.risks
    for j in range(first + PATIENCE, stop):
        best = first + smallest(risks[first : j + 1])
        if j - best >= PATIENCE and risks[j] - risks[best] > CLEARLY_WORSE * losses.paired_errors(best)[j]:
            return j + 1
    return stop


def chosen_of(
    strengths: Array,
    solved: tuple[Array, Array],
    losses: LossSums,
    seen: list[Index],
    selection: Selection,
) -> list[TunedPath]:
    """Choose on one path after the other, each first in its own contest.

    Parameters
    ----------
    strengths : (J,) array
        Of all paths.
    solved : (J, p) and (J,) arrays
        Coefficients and intercepts.
    losses : LossSums
    seen : list of int arrays
        Positions of the strengths of each path that count.
    selection : "bagged_se", "bagged", "min" or "1se"
    """
    found = []
    for own in seen:
        rest = [other for other in seen if other is not own]
        at = np.concatenate([own, *rest])
        paths = np.repeat(np.arange(len(seen)), [len(own), *map(len, rest)])
        contest = losses.of_some(at).contest(paths, selection)
        risks = losses.risks[own]
        paired = losses.paired_errors(int(own[smallest(risks)]))[own]
        best = contest.bagged() if selection in BAGGINGS else int(choose(risks, paired, selection))
        found.append(
            TunedPath(
                strengths[own],
                risks,
                losses.std_errors[own],
                paired,
                np.where(losses.exact[own], 0.0, np.inf),  # nothing is proven of other rows
                solved[0][own],
                solved[1][own],
                best,
                contest,
            )
        )
    return found

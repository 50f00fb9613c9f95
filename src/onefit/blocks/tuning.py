"""A path, judged in a pass, and the strength that is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index
from onefit.blocks.left_out_path import LeftOutPath, joined
from onefit.blocks.losses import LossSums
from onefit.blocks.paths import net_path, ridge_path
from onefit.blocks.rows import Rows
from onefit.blocks.sums import RowSums
from onefit.tuning.contest import Contest
from onefit.tuning.grid import CLEARLY_WORSE, PATIENCE, Grid
from onefit.tuning.selection import BAGGINGS, Selection, choose, smallest


@dataclass(frozen=True, eq=False)
class TunedPath:
    """A path and its leave-one-out risks, from the strongest penalty to the weakest.

    Attributes
    ----------
    strengths, risks, std_errors, paired_errors : (J,) arrays
    coefs : (J, p) array
    levels : (J,) array
    best : int
        Position of the chosen strength.
    contest : Contest
    strained : int
        Pairs of a row and a strength at which the row all but determines its own fit.
    """

    strengths: Array
    risks: Array
    std_errors: Array
    paired_errors: Array
    coefs: Array
    levels: Array
    best: int
    contest: Contest
    strained: int

    @property
    def approx_errors(self) -> Array:
        """How far each risk may be off: passes over rows prove nothing, (J,)."""
        return np.full(len(self.risks), np.inf)


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
    """

    def along(ratio: float) -> Callable[[Array], LeftOutPath]:
        return lambda alphas: net_path(sums, alphas, ratio)

    paths = [along(ratio) for ratio, _ in grids]
    found = _tuned(rows, [grid for _, grid in grids], paths, selection, early_stopping)
    best = min(range(len(found)), key=lambda k: float(found[k].risks[found[k].best]))
    return grids[best][0], found[best]


def _tuned(
    rows: Rows,
    grids: list[Grid],
    along: list[Callable[[Array], LeftOutPath]],
    selection: Selection,
    early_stopping: bool,
) -> list[TunedPath]:
    strengths = [grid.values for grid in grids]
    while True:
        paths = [solve(alphas) for solve, alphas in zip(along, strengths, strict=True)]
        guessed = [path.guessed_risks for path in paths]
        more = [longer(*each) for each in zip(grids, strengths, guessed, strict=True)]
        if all(len(a) == len(b) for a, b in zip(more, strengths, strict=True)):
            losses = rows.total(joined(paths).judge)
            ends = np.cumsum([len(alphas) for alphas in strengths])[:-1]
            risks = np.split(losses.risks, ends)
            more = [longer(*each) for each in zip(grids, strengths, risks, strict=True)]
            if all(len(a) == len(b) for a, b in zip(more, strengths, strict=True)):
                seen = [
                    start
                    + visited(grid, alphas, losses.of_some(start + np.arange(len(alphas))), early_stopping)
                    for grid, alphas, start in zip(grids, strengths, [0, *ends], strict=True)
                ]
                path = joined(paths)
                solved = path.coefs.T, path.intercepts
                return chosen_of(np.concatenate(strengths), solved, losses, seen, selection)
        strengths = more


def longer(grid: Grid, strengths: Array, risks: Array) -> Array:
    """Strengths with a decade more at an end where the risk falls."""
    decade = max(int(np.ceil(grid.step)), 1)
    below = int(np.count_nonzero(strengths < grid.values[-1]))
    above = len(strengths) - len(grid.values) - below
    if below < grid.room_below and grid.falls_below(risks):
        more = grid.below(min(grid.room_below, below + decade))[below:]
        strengths = np.append(strengths, more)
    if above < grid.room_above and grid.falls_above(risks):
        more = grid.above(min(grid.room_above, above + decade))[above:]
        strengths = np.append(more[::-1], strengths)
    return strengths


def visited(grid: Grid, strengths: Array, losses: LossSums, early_stopping: bool) -> Index:
    """Positions that count: none that were added past where the risk ceased to fall, or is clearly worse."""
    risks, below = losses.risks, int(np.count_nonzero(strengths < grid.values[-1]))
    first, stop = len(strengths) - len(grid.values) - below, len(strengths) - below
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
                solved[0][own],
                solved[1][own],
                best,
                contest,
                losses.strained,
            )
        )
    return found

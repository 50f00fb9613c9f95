"""A path, judged in a pass, and the strength that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onefit import cost
from onefit._typing import Array, Index, Mask
from onefit.blocks.guessed import SURELY
from onefit.blocks.left_out_path import KnownRefits
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.passes import Passes
from onefit.blocks.path_models import NetModels, OutputModels, P, PathModels, Places, RidgeModels
from onefit.blocks.paths import Spectrum
from onefit.blocks.rows import ArrayRows, Rows
from onefit.blocks.sums import RowSums
from onefit.exceptions import SolverError
from onefit.tuning.contest import Contests
from onefit.tuning.grid import CLEARLY_WORSE, PATIENCE, WORTH_STOPPING, Grid
from onefit.tuning.path import JudgedPath
from onefit.tuning.pulls import largest_by_chance, usual_by_chance
from onefit.tuning.selection import BAGGINGS, Selection, choose, smallest


@dataclass(frozen=True, eq=False)
class TunedPath(JudgedPath):
    """A path that was judged in passes, which keep no losses; where they solve every row, risks are exact.

    Attributes
    ----------
    refits : KnownRefits or None
        At the choice, where every row was solved anew.
    """

    refits: KnownRefits | None = None


def tune_ridge(rows: Rows, spectrum: Spectrum, grid: Grid, selection: Selection = "bagged_se") -> TunedPath:
    """Ridge of one response: judge every strength, and more while the risk falls at an end, and choose."""
    return _tuned(rows, [grid], RidgeModels(spectrum), selection, early_stopping=False)[0]


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
        Over them; about zero for models without an intercept.  Several responses share a strength.
    grids : sequence of (float, Grid)
        ``l1_ratio``, and its strengths.
    selection : "bagged_se", "bagged", "min" or "1se"
    early_stopping : bool, default True
        End each path where its risk is clearly past the minimum.
    nonnegative : bool, default False
        Whether no coefficient goes below zero.
    """
    ratios = tuple(ratio for ratio, _ in grids)
    models, own = NetModels(sums, ratios, nonnegative), [grid for _, grid in grids]
    if len(sums.squares) == 1:
        found = _tuned(rows, own, models, selection, early_stopping=early_stopping)
    else:
        found = _tuned(rows, own, OutputModels.of(models), selection, early_stopping=early_stopping)
    best = min(range(len(found)), key=lambda k: float(found[k].risks[found[k].best]))
    return ratios[best], found[best]


def _tuned(
    rows: Rows, grids: list[Grid], models: PathModels[P], selection: Selection, *, early_stopping: bool
) -> list[TunedPath]:
    # other rows are not gone over again for a guess
    may_end: bool = early_stopping and isinstance(rows, ArrayRows)
    attempts = (
        _tuned_along(rows, grids, models, selection, surely, early_stopping=early_stopping)
        for surely in (*(SURELY if may_end else ()), np.inf)
    )
    return next(found for found in attempts if found is not None)


def _tuned_along(
    rows: Rows,
    grids: list[Grid],
    models: PathModels[P],
    selection: Selection,
    surely: float,
    *,
    early_stopping: bool,
) -> list[TunedPath] | None:
    """Tune on what a guess leaves of paths: None where left-out losses do not end them there."""
    passes, strengths, paths = Passes(rows), [grid.values for grid in grids], list[P]()
    while not paths:
        paths = models.paths(strengths, surely)
        strengths, paths = _longer(models, grids, strengths, [path.guessed_risks for path in paths], paths)
        if paths:
            held = [alphas[: path.coefs.shape[1]] for alphas, path in zip(strengths, paths, strict=True)]
            known = _at_first(models, held)
            path = models.anew(models.joined(paths), paths, held, known)
            passes.begin()
            losses = passes.total(path)
            ends = np.cumsum([len(alphas) for alphas in held])[:-1]
            strengths, paths = _longer(models, grids, strengths, np.split(losses.risks, ends), paths)
    places = np.split(np.arange(len(losses.risks)), ends)
    while more := _to_solve_anew(models, rows, [losses.of_some(at) for at in places], known):
        if (further := models.anew(path, paths, held, more)) is path:
            break
        path, known = further, [one.plus(new) for one, new in zip(known, more, strict=True)]
        losses = passes.total(path)
    own = list(zip(grids, held, [losses.of_some(at) for at in places], strict=True))
    pulls, p = models.pulls(path, losses.risks), len(path.coefs)
    may_end = [(pulls[at] <= largest_by_chance(p)) & early_stopping for at in places]
    pulled = [pulls[at] > usual_by_chance(p) for at in places]
    told = zip(held, strengths, own, may_end, strict=True)
    if any(len(a) < len(b) and not _ends(*one, there) for a, b, one, there in told):
        return None
    ways = zip(places, own, may_end, pulled, strict=True)
    seen = [at[0] + visited(*one, there, on) for at, one, there, on in ways]
    solved = np.swapaxes(path.coefs, 0, 1), path.intercepts
    found = chosen_of(np.concatenate(held), solved, losses, seen, selection)
    chosen = (int(at[one.best]) for at, one in zip(seen, found, strict=True))
    return [replace(one, refits=passes.refits(at)) for one, at in zip(found, chosen, strict=True)]


def _longer(
    models: PathModels[P],
    grids: list[Grid],
    strengths: list[Array],
    risks: list[Array],
    paths: list[P],
) -> tuple[list[Array], list[P]]:
    """Longer grids, whose paths are to be solved, where there is more to find at an end; else as it is."""
    chance = usual_by_chance(len(models.sums.means))
    pulled = [models.pulls(path, one) > chance for path, one in zip(paths, risks, strict=True)]
    more = [longer(*each) for each in zip(grids, strengths, risks, pulled, strict=True)]
    as_long = all(len(a) == len(b) for a, b in zip(more, strengths, strict=True))
    return (strengths, paths) if as_long else (more, [])


def _at_first(models: PathModels[P], strengths: list[Array]) -> list[Places]:
    """Strengths at which rows are solved anew before anything is known: all, if that takes little."""
    counts = [len(alphas) for alphas in strengths]
    at_once = models.seconds_anew(sum(counts)) <= cost.IN_A_PATH  # no longer than folds would take
    return [Places(np.arange(at_once * count), np.arange(0)) for count in counts]


def _to_solve_anew(
    models: PathModels[P], rows: Rows, losses: list[LossSums], known: list[Places]
) -> list[Places]:
    """More strengths at which rows whose pattern changes are to be solved; empty where all is told.

    First those whose risk hangs on rows with little slack; then those that may be the choice, as many as a
    race affords, or, where they may be too many for one, all of them or none.
    """
    none, each = np.arange(0), models.seconds_anew(1)
    strained = [
        np.setdiff1d(own.in_doubt(), np.union1d(*one)) for own, one in zip(losses, known, strict=True)
    ]
    if any(at.size for at in strained):
        if isinstance(rows, ArrayRows) and _are_told_sooner_in_memory(models):
            raise SolverError(
                "risks hang on columns of few rows: these are told sooner one by one, in memory"
            )
        return [Places(none, at) for at in strained]
    is_tall = cost.is_tall(models.sums.count, len(models.sums.means))
    races = not is_tall and cost.NEAR * sum(len(own.first) for own in losses) * each <= cost.IN_A_RACE
    near = [
        np.setdiff1d(own.near(), one.all, assume_unique=True) for one, own in zip(known, losses, strict=True)
    ]
    held, wanted = (sum(at.size for at in some) for some in ([one.all for one in known], near))
    most = (cost.IN_A_RACE if races else cost.IN_A_PATH) / each - held
    if wanted == 0 or (wanted > most and (held or not races)):
        return []
    share = min(1.0, most / wanted)
    return [Places(at[: int(np.ceil(share * at.size))], none) for at in near]


def _are_told_sooner_in_memory(models: PathModels[P]) -> bool:
    """Whether rows with little slack, as those are that alone have a level of a factor, take too long here.

    Each strength has columns of its own to eliminate, which rows in memory need not.
    """
    n, p = models.sums.count, len(models.sums.means)
    return models.seconds_anew(1) > 0.0 and cost.elimination(p).seconds > n * cost.ROW_OF_A_PATH


def longer(grid: Grid, strengths: Array, risks: Array, pulled: Mask | bool = False) -> Array:
    """Strengths with a decade more at an end where the risk falls, or columns have more to say.

    ``pulled`` says where these have, at all strengths or each.
    """
    above = _added_above(grid, strengths)
    below = len(strengths) - len(grid.values) - above
    is_whole = len(risks) == len(strengths)  # else more are known at the weak end
    more = np.broadcast_to(pulled, risks.shape)[-1] and grid.has_more_below(risks)
    below_too = is_whole and (grid.falls_below(risks) or more)
    on = grid.decade * np.array([grid.falls_above(risks), below_too])
    return grid.reaching(above + on[0], below + on[1])


def _added_above(grid: Grid, strengths: Array) -> int:
    """How many strengths are beyond the strongest of the grid."""
    return int(np.argmax(strengths == grid.values[0]))


def visited(
    grid: Grid, strengths: Array, losses: LossSums, may_end: Mask | bool, pulled: Mask | bool = False
) -> Index:
    """Positions that count: none that were added past where the risk ceased to fall, or is clearly worse.

    ``may_end`` says where a path may, and ``pulled`` where columns have more to say, all or each.
    """
    risks, first = losses.risks, _added_above(grid, strengths)
    stop, pulled = min(first + len(grid.values), len(strengths)), np.broadcast_to(pulled, risks.shape)
    while stop < len(strengths):
        so_far = risks[first:stop]
        if not grid.falls_below(so_far) and not (pulled[stop - 1] and grid.has_more_below(so_far)):
            break
        stop += 1
    stop = _past_minimum(losses, first, stop, may_end) or stop
    while first > 0 and grid.falls_above(risks[first:stop]):
        first -= 1
    return np.arange(first, stop)


def _ends(grid: Grid, strengths: Array, losses: LossSums, may_end: Mask) -> bool:
    """Whether a path stops before its last strength, or there."""
    return _past_minimum(losses, _added_above(grid, strengths), len(strengths), may_end) is not None


def _past_minimum(losses: LossSums, first: int, stop: int, may_end: Mask | bool) -> int | None:
    """Where a path ends that stops once its risk is clearly past the minimum.

    As in memory that matters once something better than the strongest penalty was found, or by a share.
    """
    risks = losses.risks
    there = np.broadcast_to(may_end, risks.shape)
    for j in (first + PATIENCE + np.flatnonzero(there[first + PATIENCE : stop])).tolist():
        best = first + smallest(risks[first : j + 1])
        if j - best < PATIENCE:
            continue
        rises = risks - risks[best]
        is_clear = rises > CLEARLY_WORSE * losses.paired_errors(best)
        if is_clear[j] and (is_clear[first] or rises[j] > WORTH_STOPPING * risks[best]):
            return j + 1
    return None


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
    solved : (J, p) and (J,) arrays, or (J, p, t) and (J, t)
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
                contests=Contests.of_one(contest),
            )
        )
    return found

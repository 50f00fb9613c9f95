"""Ridge at every strength, and at more while the risk falls: one choice for all responses, or one each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.tuning.contest import Chosen, Contests, choose_each
from onefit.tuning.grid import Grid
from onefit.tuning.path import SearchResult
from onefit.tuning.ridge import RidgeSpectrum, Shrinkage
from onefit.tuning.selection import Selection
from onefit.tuning.spread import means

Judge: TypeAlias = Callable[[Index, Array], Array]  # of responses and strengths: losses (t, J, n)


@dataclass(frozen=True)
class EachTarget:
    """Risks of t responses at every strength, and a choice for each.

    Attributes
    ----------
    strengths : (J,) array
        All that were visited, strongest penalty first.
    risks, std_errors, paired_errors, approx_errors : (J, t) arrays
        Missing (NaN) where a response was not judged: its risk fell no longer.
    best : (t,) int array
    contests : Contests
    coefs, levels : None
        Of the chosen strengths only they are kept.
    """

    strengths: Array
    risks: Array
    std_errors: Array
    paired_errors: Array
    best: Index
    contests: Contests
    coefs: None = None
    levels: None = None

    @property
    def approx_errors(self) -> Array:
        """Zero: the formula is exact."""
        return 0.0 * self.risks


class Tried(NamedTuple):
    """Responses that were judged at the same strengths.

    Attributes
    ----------
    targets : (t,) int array
    above : int
        How many of the strengths are beyond the strongest of the grid.
    strengths : (J,) array
    losses : (t, J, n) array
    """

    targets: Index
    above: int
    strengths: Array
    losses: Array

    def of(self, which: Mask) -> Tried:
        """Some of the responses."""
        return self if which.all() else self._replace(targets=self.targets[which], losses=self.losses[which])


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The strengths of a grid, and what they do to the residuals of a ridge problem."""

    spectrum: RidgeSpectrum
    grid: Grid
    selection: Selection
    known: dict[bytes, Shrinkage]

    @property
    def weights(self) -> Array:
        return self.spectrum.problem.weights

    def losses(self, targets: Index, alphas: Array) -> Array:
        """Left-out losses of some responses: (t, J, n)."""
        key = alphas.tobytes()
        if key not in self.known:
            self.known[key] = self.spectrum.shrinkage(alphas)
        return self.spectrum.losses(targets, alphas, self.known[key])

    def mean_losses(self, targets: Index, alphas: Array) -> Array:
        """Their mean over all responses, as one response: (1, J, n)."""
        total = np.zeros((1, len(alphas), len(self.weights)))
        for part in self.spectrum.blocks(len(alphas)):
            total[0] += self.losses(np.arange(part.start, part.stop), alphas).sum(axis=0)
        return total / self.spectrum.n_targets

    def tried(self, targets: Index, judge: Judge) -> Iterator[Tried]:
        """Judge responses at the strengths of the grid, then on at either end while the risk falls."""
        grid = self.grid
        whole = Tried(targets, 0, grid.values, judge(targets, grid.values))
        below = self._extended([whole], grid.below(grid.room_below), judge, weaker=True)
        yield from self._extended(below, grid.above(grid.room_above), judge, weaker=False)

    def _extended(
        self, tried: Iterable[Tried], room: Array, judge: Judge, *, weaker: bool
    ) -> Iterator[Tried]:
        """Go a decade further at a time with those whose risk falls at an end."""
        decade = max(int(np.ceil(self.grid.step)), 1)
        falls = self.grid.falls_below if weaker else self.grid.falls_above
        for some in tried:
            for start in range(0, len(room), decade):
                on = falls(means(some.losses, self.weights))
                if not on.any():
                    break
                if not on.all():
                    yield some.of(~on)
                some = self._further(some.of(on), room[start : start + decade], judge, weaker=weaker)
            yield some

    def _further(self, some: Tried, more: Array, judge: Judge, *, weaker: bool) -> Tried:
        """The same at more strengths, which go on from the end."""
        if weaker:
            parts = [some.losses, judge(some.targets, more)]
            return Tried(
                some.targets, some.above, np.append(some.strengths, more), np.concatenate(parts, axis=1)
            )
        parts = [judge(some.targets, more[::-1]), some.losses]
        strengths = np.append(more[::-1], some.strengths)
        return Tried(some.targets, some.above + len(more), strengths, np.concatenate(parts, axis=1))


def search_ridge(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> SearchResult:
    """Judge every strength by the mean loss over the responses, and choose one for all."""
    path = RidgePath(spectrum, grid, selection, {})
    (tried,) = path.tried(np.zeros(1, dtype=np.intp), path.mean_losses)
    chosen = choose_each(tried.losses.copy(), path.weights, selection)
    shape = spectrum.problem.y.shape[1:]
    coefs = spectrum.coefficients(tried.strengths)
    levels = spectrum.levels(coefs).T.reshape(len(tried.strengths), *shape)
    return SearchResult(
        tried.strengths,
        tried.losses[0].T,
        chosen.risks[0],
        chosen.std_errors[0],
        chosen.paired_errors[0],
        np.zeros(len(tried.strengths)),
        np.moveaxis(coefs, 2, 0).reshape(len(tried.strengths), -1, *shape),
        levels,
        int(chosen.best[0]),
        next(chosen.contests.each()),
    )


def search_ridge_each(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> EachTarget:
    """Judge every strength by the loss of each response, block by block, and choose one for each."""
    path, found = RidgePath(spectrum, grid, selection, {}), list[tuple[Index, int, int, Chosen]]()
    for part in spectrum.blocks(len(grid.values)):
        for tried in path.tried(np.arange(part.start, part.stop), path.losses):
            below = len(tried.strengths) - len(grid.values) - tried.above
            found.append(
                (tried.targets, tried.above, below, choose_each(tried.losses, path.weights, selection))
            )
    return _joined(grid, found)


def _joined(grid: Grid, found: list[tuple[Index, int, int, Chosen]]) -> EachTarget:
    """All responses on the strengths that any of them was judged at."""
    above, below = max(part[1] for part in found), max(part[2] for part in found)
    strengths = np.concatenate([grid.above(above)[::-1], grid.values, grid.below(below)])
    targets = np.concatenate([part[0] for part in found])
    paths = np.full((3, len(strengths), len(targets)), np.nan)
    best, held = np.empty(len(targets), dtype=np.intp), list[Contests]()
    for own, more, _, chosen in found:
        first = above - more
        at = slice(first, first + chosen.risks.shape[1])
        for path, values in zip(paths, chosen[:3], strict=True):
            path[at, own] = values.T
        best[own] = chosen.best + first
        held.append(chosen.contests.moved(first))
    risks, errors, paired = paths
    return EachTarget(strengths, risks, errors, paired, best, Contests.joined(held, np.argsort(targets)))

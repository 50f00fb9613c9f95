"""Paths of ridge at every strength from one eigendecomposition, of one response or of many.

Responses are gone through in blocks, so that left-out values of all of them at all strengths are never held.
A path goes on beyond its grid while the risk falls, and ends in one choice for all responses, or one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.risk.means import means
from onefit.tuning.contest import Chosen, Contests, choose_each
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import JudgedPath, SearchResult
from onefit.tuning.ridge_spectrum import RidgeSpectrum, Shrinkage
from onefit.tuning.selection import Selection

Judge: TypeAlias = Callable[[Index, Array], Array]  # of responses and strengths: losses (t, J, n)


@dataclass(frozen=True, eq=False)
class EachTarget(JudgedPath):
    """Risks of t responses at every strength, and a choice for each.

    Risks and their errors are (J, t) arrays, missing (NaN) where a response was not judged: its risk fell no
    longer.  Of the chosen strengths only, coefficients and intercepts are kept, and not here.

    Attributes
    ----------
    best : (t,) int array
    contests : Contests
    """

    contests: Contests


class Tried(NamedTuple):
    """Responses that were judged at the same strengths.

    Attributes
    ----------
    targets : (t,) int array
    above, below : int
        How many of the strengths are beyond those of the grid, at either end.
    losses : (t, J, n) array
    """

    targets: Index
    above: int
    below: int
    losses: Array

    def of(self, which: Mask) -> Tried:
        """Some of the responses."""
        return self if which.all() else self._replace(targets=self.targets[which], losses=self.losses[which])


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The strengths of a grid, and what they do to the residuals of a ridge problem."""

    spectrum: RidgeSpectrum
    grid: Grid
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

    def rounding(self, alphas: Array) -> Array:
        """What rounding leaves of each squared error, as a share, at strengths that were judged: (J, n)."""
        slack = dict[float, Array]()
        for key, known in self.known.items():
            slack |= zip(np.frombuffer(key).tolist(), known.slack, strict=True)
        share = self.spectrum.rounding(alphas, np.array([slack[alpha] for alpha in alphas.tolist()]))
        return np.where(self.weights > 0, (2.0 + share) * share, 0.0)

    def mean_losses(self, targets: Index, alphas: Array) -> Array:
        """Their mean over all responses, as one response: (1, J, n)."""
        total = np.zeros((1, len(alphas), len(self.weights)))
        for part in self.spectrum.blocks(len(alphas)):
            total[0] += self.losses(np.arange(part.start, part.stop), alphas).sum(axis=0)
        return total / self.spectrum.n_targets

    def tried(self, targets: Index, judge: Judge) -> Iterator[Tried]:
        """Judge responses at the strengths of the grid, then on at either end while the risk falls."""
        whole = Tried(targets, 0, 0, judge(targets, self.grid.values))
        below = self._extended([whole], self.grid.weaker, judge, weaker=True)
        yield from self._extended(below, self.grid.stronger, judge, weaker=False)

    def _extended(
        self, tried: Iterable[Tried], room: Array, judge: Judge, *, weaker: bool
    ) -> Iterator[Tried]:
        """Go a decade further at a time with those whose risk falls at an end."""
        falls = self.grid.falls_below if weaker else self.grid.falls_above
        decades = np.split(room, range(self.grid.decade, len(room), self.grid.decade)) if room.size else []
        for some in tried:
            for more in decades:
                on = falls(means(some.losses, self.weights))
                if not on.any():
                    break
                if not on.all():
                    yield some.of(~on)
                some = self._further(some.of(on), more, judge, weaker=weaker)
            yield some

    def _further(self, some: Tried, more: Array, judge: Judge, *, weaker: bool) -> Tried:
        """The same at more strengths, which go on from the end."""
        added = judge(some.targets, more if weaker else more[::-1])
        losses = np.concatenate([some.losses, added] if weaker else [added, some.losses], axis=1)
        above, below = (0, len(more)) if weaker else (len(more), 0)
        return Tried(some.targets, some.above + above, some.below + below, losses)


def search_ridge(
    spectrum: RidgeSpectrum, grid: Grid, judgement: Judgement, selection: Selection
) -> SearchResult:
    """Judge every strength by the mean loss over the responses, and choose one for all.

    For judgements by squared errors of single rows.
    """
    assert judgement.is_of_squares
    path = RidgePath(spectrum, grid, {})
    (tried,) = path.tried(np.zeros(1, dtype=np.intp), path.mean_losses)
    chosen = choose_each(tried.losses.copy(), path.weights, selection)
    strengths, shape = grid.reaching(tried.above, tried.below), spectrum.problem.outputs
    coefs = spectrum.coefficients(strengths)
    return SearchResult(
        strengths,
        chosen.risks[0],
        chosen.std_errors[0],
        chosen.paired_errors[0],
        means(tried.losses * path.rounding(strengths), path.weights)[0],
        np.moveaxis(coefs, 2, 0).reshape(len(strengths), -1, *shape),
        spectrum.levels(coefs).T.reshape(len(strengths), *shape),
        int(chosen.best[0]),
        tried.losses[0].T,
        next(chosen.contests.each()),
    )


def search_ridge_each(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> EachTarget:
    """Judge every strength by the loss of each response, block by block, and choose one for each."""
    path, found = RidgePath(spectrum, grid, {}), list[tuple[Index, int, int, Array, Chosen]]()
    for part in spectrum.blocks(len(grid.values)):
        for tried in path.tried(np.arange(part.start, part.stop), path.losses):
            chosen = choose_each(tried.losses, path.weights, selection)
            most = path.rounding(grid.reaching(tried.above, tried.below)).max(axis=1)  # of any row
            found.append((*tried[:3], most * chosen.risks, chosen))
    return _joined(grid, found)


def _joined(grid: Grid, found: list[tuple[Index, int, int, Array, Chosen]]) -> EachTarget:
    """All responses on the strengths that any of them was judged at."""
    above = max(part[1] for part in found)
    strengths = grid.reaching(above, max(part[2] for part in found))
    t = sum(len(part[0]) for part in found)
    paths, best, contests = np.full((4, len(strengths), t), np.nan), np.empty(t, dtype=np.intp), []
    for own, more, _, off, chosen in found:
        first = above - more
        at = slice(first, first + chosen.risks.shape[1])
        for path, values in zip(paths, (*chosen[:3], off), strict=True):
            path[at, own] = values.T
        best[own] = chosen.best + first
        contests.append(chosen.contests.shifted(first))
    risks, errors, paired, off = paths
    held = Contests.joined(contests, np.concatenate([part[0] for part in found]))
    return EachTarget(strengths, risks, errors, paired, off, None, None, best, held)

"""Paths of ridge at every strength from one eigendecomposition, of one response or of many.

Responses, or strengths, are gone through in blocks, so that left-out values of all responses at all strengths
are never held.  A path goes on beyond its grid while the risk falls, and ends in one choice for all
responses, or one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.risk.means import means
from onefit.tuning.contest import Chosen, Contests, choose_each
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import JudgedPath, SearchResult
from onefit.tuning.ridge_spectrum import ALL, RidgeSpectrum, Shrinkage, in_blocks
from onefit.tuning.ridge_without import RidgeWithoutSets
from onefit.tuning.selection import Selection

Judge: TypeAlias = Callable[[Index, Array], Array]  # of responses and strengths: losses (t, J, n)
Pulls: TypeAlias = Callable[[Index, float], Mask]  # of responses at a strength: (t,)


@dataclass(frozen=True, eq=False)
class EachTarget(JudgedPath):
    """Risks of t responses at every strength, and a choice for each.

    Risks and their errors are (J, t) arrays, missing (NaN) where a response was not judged: its risk fell no
    longer.  Of the chosen strengths only, coefficients and intercepts are kept, and not here.

    Attributes
    ----------
    best : (t,) int array
    """


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
class _GridWalk:
    """Judges responses along a grid, and on beyond it.

    Attributes
    ----------
    grid : Grid
    weights : array
        Of what counts in a risk.
    judge : callable
    pulls : callable
        Whether a column has more to say than by chance.
    stride : int
        Strengths that are added at a time.
    """

    grid: Grid
    weights: Array
    judge: Judge
    pulls: Pulls
    stride: int

    def tried(self, targets: Index) -> Iterator[Tried]:
        """Judge responses at the strengths of the grid, then on at either end while there is more to find."""
        whole = Tried(targets, 0, 0, self.judge(targets, self.grid.values))
        below = self._extended([whole], self.grid.weaker, weaker=True)
        yield from self._extended(below, self.grid.stronger, weaker=False)

    def _extended(self, tried: Iterable[Tried], room: Array, *, weaker: bool) -> Iterator[Tried]:
        """Go a stride further at a time with those whose risk falls at an end."""
        falls = self.grid.falls_below if weaker else self.grid.falls_above
        strides = np.split(room, range(self.stride, len(room), self.stride)) if room.size else []
        for some in tried:
            for more in strides:
                risks = means(some.losses, self.weights)
                on = falls(risks)
                if weaker and not on.all():
                    at = float(self.grid.reaching(0, some.below)[-1])
                    on = on | (self.pulls(some.targets, at) & self.grid.has_more_below(risks))
                if not on.any():
                    break
                if not on.all():
                    yield some.of(~on)
                some = self._further(some.of(on), more, weaker=weaker)
            yield some

    def _further(self, some: Tried, more: Array, *, weaker: bool) -> Tried:
        """The same at more strengths, which go on from the end."""
        added = self.judge(some.targets, more if weaker else more[::-1])
        losses = np.concatenate([some.losses, added] if weaker else [added, some.losses], axis=1)
        above, below = (0, len(more)) if weaker else (len(more), 0)
        return Tried(some.targets, some.above + above, some.below + below, losses)


@dataclass(frozen=True, eq=False)
class _MeanSquares:
    """Squared left-out errors of single rows, the mean over all responses."""

    spectrum: RidgeSpectrum
    off: dict[float, float] = field(default_factory=dict)

    @property
    def weights(self) -> Array:
        return self.spectrum.problem.weights

    def losses(self, _: Index, alphas: Array) -> Array:
        """As of one response, (1, J, n), some rows at a time."""
        spectrum, J, (n, t) = self.spectrum, len(alphas), (len(self.weights), self.spectrum.n_targets)
        found, off, lost = np.empty((J, n)), np.zeros(J), np.zeros(J, dtype=bool)
        for rows in in_blocks(n, J):
            known, total = spectrum.shrinkage(alphas, rows), found[:, rows]
            parts = in_blocks(t, total.size)
            total[:] = sum(spectrum.losses(known, part, rows).sum(axis=0) for part in parts) / t
            off += (total * _of_squares(spectrum.rounding(alphas, known.slack))) @ self.weights[rows]
            lost |= np.isnan(known.factors).any(axis=1)
        for j, losses in zip(np.flatnonzero(lost), spectrum.refitted_losses(ALL, alphas[lost]), strict=True):
            found[j] = losses.mean(axis=0)
        self.off.update(zip(alphas.tolist(), (off / self.weights.sum()).tolist(), strict=True))
        return found[None]


def _of_squares(share: Array) -> Array:
    """Share of a square that may be off where that of its root is this."""
    return (2.0 + share) * share


@dataclass(frozen=True, eq=False)
class _Squares:
    """Squared left-out errors of single rows and responses, and which share of any of them may be off."""

    spectrum: RidgeSpectrum
    known: dict[bytes, Shrinkage] = field(default_factory=dict)
    off: dict[float, float] = field(default_factory=dict)

    @property
    def weights(self) -> Array:
        return self.spectrum.problem.weights

    def losses(self, targets: Index, alphas: Array) -> Array:
        """Left-out losses of some responses: (t, J, n)."""
        shrinkage = self._shrinkage(alphas)
        losses = self.spectrum.losses(shrinkage, targets)
        lost = np.isnan(shrinkage.factors).any(axis=1)
        for j, own in zip(
            np.flatnonzero(lost), self.spectrum.refitted_losses(targets, alphas[lost]), strict=True
        ):
            losses[:, j] = own
        return losses

    def _shrinkage(self, alphas: Array) -> Shrinkage:
        key = alphas.tobytes()
        if key not in self.known:
            self.known[key] = self.spectrum.shrinkage(alphas)
            share = self.spectrum.rounding(alphas, self.known[key].slack)[:, self.weights > 0].max(axis=1)
            self.off.update(zip(alphas.tolist(), _of_squares(share).tolist(), strict=True))
        return self.known[key]


@dataclass(frozen=True, eq=False)
class _JudgedPredictors:
    """Losses by any judgement, of all responses at once."""

    rows: RidgeSpectrum | RidgeWithoutSets
    judgement: Judgement
    off: dict[float, float] = field(default_factory=dict)

    @property
    def weights(self) -> Array:
        return self.judgement.unit_weights

    def losses(self, _: Index, alphas: Array) -> Array:
        """Losses of what counts as one, as of one response: (1, J, u)."""
        parts = in_blocks(len(alphas), self.judgement.target[self.rows.rows].size)
        return np.array([loss for part in parts for loss in self._judged(alphas[part])])[None]

    def _judged(self, alphas: Array) -> Iterator[Array]:
        rows, judgement = self.rows.rows, self.judgement
        shape = -1, *judgement.target.shape[1:]
        for alpha, eta, bounds in zip(alphas.tolist(), *self.rows.predictors(alphas), strict=True):
            if np.isnan(eta).any():  # what leaves fixes a direction
                found = judgement.verdict(self.rows.left_out(alpha))
                loss, self.off[alpha] = found.losses, found.error
            else:
                own = eta.reshape(shape)
                loss, self.off[alpha] = judgement.losses_of(rows, own), judgement.spread(rows, own, bounds)
            yield loss


def search_ridge(
    rows: RidgeSpectrum | RidgeWithoutSets, grid: Grid, judgement: Judgement, selection: Selection
) -> SearchResult:
    """Judge every strength by what leaves rows or sets of them out, and choose one for all responses."""
    spectrum = rows if isinstance(rows, RidgeSpectrum) else rows.spectrum
    in_decades = judgement.is_of_squares  # others take a while
    judged = _MeanSquares(spectrum) if in_decades else _JudgedPredictors(rows, judgement)
    stride = grid.decade if in_decades else 1

    def pulls(_: Index, alpha: float) -> Mask:
        return np.array([spectrum.are_pulled_at(np.arange(spectrum.n_targets), alpha).any()])

    walk = _GridWalk(grid, judged.weights, judged.losses, pulls, stride)
    (tried,) = walk.tried(np.zeros(1, dtype=np.intp))
    chosen = choose_each(tried.losses.copy(), judged.weights, selection)
    strengths, shape = grid.reaching(tried.above, tried.below), spectrum.problem.outputs
    coefs = spectrum.coefficients(strengths)
    return SearchResult(
        strengths,
        chosen.risks[0],
        chosen.std_errors[0],
        chosen.paired_errors[0],
        np.array([judged.off[alpha] for alpha in strengths.tolist()]),
        np.moveaxis(coefs, 2, 0).reshape(len(strengths), -1, *shape),
        spectrum.levels(coefs).T.reshape(len(strengths), *shape),
        int(chosen.best[0]),
        tried.losses[0].T,
        contests=chosen.contests,
    )


def search_ridge_each(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> EachTarget:
    """Judge every strength by the loss of each response, block by block, and choose one for each."""
    judged, found = _Squares(spectrum), list[tuple[Index, int, int, Array, Chosen]]()
    walk = _GridWalk(grid, judged.weights, judged.losses, spectrum.are_pulled_at, grid.decade)
    for part in in_blocks(spectrum.n_targets, spectrum.problem.n * len(grid.values)):
        for tried in walk.tried(np.arange(part.start, part.stop)):
            chosen = choose_each(tried.losses, judged.weights, selection)
            strengths = grid.reaching(tried.above, tried.below)
            off = np.array([judged.off[alpha] for alpha in strengths.tolist()])
            found.append((*tried[:3], off * chosen.risks, chosen))
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
    return EachTarget(strengths, risks, errors, paired, off, None, None, best, contests=held)

"""Strengths within reach of the best, on one path or several, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.tuning.selection import (
    BAGGINGS,
    Selection,
    bagged,
    choose,
    confidence_set,
    corrected_risk,
    roots_of,
    smallest,
    smallest_of_each,
)
from onefit.tuning.spread import (
    covariance_of_means,
    covariances_of_means,
    errors_of_means,
    held,
    means,
)

OUT_OF_REACH = 5.0  # paired standard errors above the smallest risk, where a strength cannot be the best
LONGEST_TAIL = 3.0  # how much more than any row speaks for a strength one may speak against it


def choose_strength(
    losses: Array,
    weights: Array,
    risks: Array,
    paired: Array,
    selection: Selection,
    misses: Array | None = None,
) -> tuple[int, Contest | None]:
    """Position of the chosen strength, and the contest that it was chosen in, if there was one.

    Parameters
    ----------
    losses : (n, J) array
        Strongest penalty first.
    weights : (n,) array
    risks, paired : (J,) arrays
        Their means, and the standard errors of the differences to the smallest.
    selection : "bagged_se", "bagged", "min" or "1se"
        See ``bagged`` and ``choose``.
    misses : (n, J) array, optional
        Shares of sampled rows in the errors of the differences to the smallest risk.
    """
    if selection in BAGGINGS and not np.all(np.isnan(risks)):
        found = contest([(losses, risks, paired)], weights, selection, misses)
        return found.bagged(), found
    return int(choose(risks, paired, selection)), None


class Contest(NamedTuple):
    """Strengths that may be the best, of one path or of several, and how their risks err together.

    Those out of reach, five paired standard errors above the smallest risk of their path, take no part.
    A plain tuple of arrays, so that saved models need no type of ours to hold one.

    Attributes
    ----------
    positions, paths : (c,) int arrays
        Place of each strength on its path, and number of the path.
    risks : (c,) array
    covariance : (c, c) array
    n : int
        Rows with weight.
    selection : "bagged_se", "bagged", "min" or "1se"
    """

    positions: Index
    paths: Index
    risks: Array
    covariance: Array
    n: int
    selection: Selection

    @property
    def _first(self) -> tuple[Index, Array, Array]:
        """Positions, risks and covariance of the first path."""
        on_first = np.flatnonzero(self.paths == 0)
        return self.positions[on_first], self.risks[on_first], self.covariance[np.ix_(on_first, on_first)]

    def bagged(self) -> int:
        """Mean position of the choice on the first path, by a bagged selection: ``bagged``."""
        positions, risks, covariance = self._first
        roots = roots_of(covariance[None])
        return int(bagged(risks[None], roots, positions, BAGGINGS[self.selection])[0])

    def confidence_set(self) -> Index:
        """Positions of the strengths that cannot be told from the best of the first path, without gaps.

        The risk of a lasso jumps from one strength to the next, so that single strengths drop out among
        others that do not.  Risks that rise on either side of the best have no gaps.  A bagged choice, which
        may lie among strengths that drop out, is in the set.
        """
        positions, risks, covariance = self._first
        members = positions[confidence_set(risks, covariance, self.n)]
        chosen = self.bagged() if self.selection in BAGGINGS else members[0]
        return np.arange(min(members.min(), chosen), max(members.max(), chosen) + 1)

    def corrected_risk(self) -> float:
        """Risk of the choice among all paths, corrected for having been chosen."""
        return corrected_risk(self.risks, self.covariance, self.selection, self.paths)


def contest(
    paths: Sequence[tuple[Array, Array, Array]],
    weights: Array,
    selection: Selection = "min",
    misses: Array | None = None,
) -> Contest:
    """Strengths within reach of the best, from the (losses, risks, paired errors) of each path."""
    within = [np.flatnonzero(within_reach(risks, paired)) for _, risks, paired in paths]
    losses = np.hstack([path[0][:, at] for path, at in zip(paths, within, strict=True)])
    risks = np.concatenate([path[1][at] for path, at in zip(paths, within, strict=True)])
    best = smallest(risks)
    losses, weights = held(losses, weights)
    losses -= losses[:, [best]]
    differences = _without_tail(losses.T).T
    covariance = covariance_of_means(differences, weights)
    if misses is not None and np.any(misses):  # of samples, for a single path
        covariance = covariance + misses[:, within[0]].T @ misses[:, within[0]]
    return Contest(
        positions=np.concatenate(within),
        paths=np.repeat(np.arange(len(paths)), [len(at) for at in within]),
        risks=risks[best] + np.maximum(_linalg.column_means(differences, weights), 0.0),
        covariance=covariance,
        n=len(weights),
        selection=selection,
    )


def _without_tail(differences: Array) -> Array:
    """Differences to the best (..., n), none more than three times as high as the largest gain of a row.

    One row that is far out (of a leverage near 1, say) raises the risk of a strength and the error of that
    risk alike, which would hide that the strength is bad.  A mean without its upper tail is smaller: what
    is found worse by it is worse.
    """
    gain = -differences.min(axis=-1, keepdims=True)
    return np.minimum(differences, np.where(gain > 0, LONGEST_TAIL * gain, np.inf), out=differences)


def within_reach(risks: Array, paired: Array) -> Mask:
    """Strengths, along the last axis, that may be the best; the first one if nothing is known."""
    best = smallest_of_each(risks)[..., None]
    within = np.isfinite(risks) & ~(risks > np.take_along_axis(risks, best, axis=-1) + OUT_OF_REACH * paired)
    np.put_along_axis(within, best, values=True, axis=-1)
    return within


class Contests(NamedTuple):
    """One contest for each of several responses, one after the other; a plain tuple of arrays, too.

    Attributes
    ----------
    sizes, ranks : (t,) int arrays
        Strengths in each, and the ranks of their covariances.
    positions, paths, risks : (Σ c,) arrays
    roots : (Σ c k,) array
        B (c, k) with B Bᵀ their covariance, row by row: many strengths err in few ways.
    n : int
    selection : "bagged_se", "bagged", "min" or "1se"
    """

    sizes: Index
    ranks: Index
    positions: Index
    paths: Index
    risks: Array
    roots: Array
    n: int
    selection: Selection

    @classmethod
    def of_one(cls, held: Contest) -> Contests:
        """The contest of a single response."""
        root = roots_of(held.covariance[None])[0]
        sizes, ranks = np.array(root.shape)[:, None]
        return cls(sizes, ranks, *held[:3], root.ravel(), held.n, held.selection)

    def moved(self, by: int) -> Contests:
        """The same with every position so much further on."""
        return self._replace(positions=self.positions + by)

    @classmethod
    def joined(cls, parts: Sequence[Contests], order: Index) -> Contests:
        """Several, one after the other, in another order."""
        sizes, ranks, *arrays = (np.concatenate([part[k] for part in parts]) for k in range(6))
        numbers = _stretches(sizes, order)
        positions, paths, risks = (values[numbers] for values in arrays[:3])
        roots = arrays[3][_stretches(sizes * ranks, order)]
        n, selection = parts[0].n, parts[0].selection
        return cls(sizes[order], ranks[order], positions, paths, risks, roots, n, selection)

    def each(self) -> Iterator[Contest]:
        """The contest of each response."""
        ends, lasts = np.cumsum(self.sizes), np.cumsum(self.sizes * self.ranks)
        for size, rank, end, last in zip(self.sizes, self.ranks, ends, lasts, strict=True):
            own, root = slice(end - size, end), self.roots[last - size * rank : last].reshape(size, rank)
            yield Contest(
                self.positions[own], self.paths[own], self.risks[own], root @ root.T, self.n, self.selection
            )


def _stretches(sizes: Index, order: Index) -> Index:
    """Indices that put stretches of these sizes, one after the other, into another order."""
    ends, own = np.cumsum(sizes)[order], sizes[order]
    return np.arange(own.sum()) + np.repeat(ends - np.cumsum(own), own)


class Chosen(NamedTuple):
    """Risks of several responses at J strengths, and the strength chosen for each.

    Attributes
    ----------
    risks, std_errors : (t, J) arrays
    paired_errors : (t, J) array
        Standard errors of the differences to the smallest risk.
    best : (t,) int array
        Position of the strength that was chosen.
    contests : Contests
    """

    risks: Array
    std_errors: Array
    paired_errors: Array
    best: Index
    contests: Contests


def choose_each(losses: Array, weights: Array, selection: Selection) -> Chosen:
    """Choose a strength for each of several responses.

    Parameters
    ----------
    losses : (t, J, n) array
        Strongest penalty first.  Overwritten.
    weights : (n,) array
    selection : "bagged_se", "bagged", "min" or "1se"
    """
    counts = weights > 0
    if not counts.all():
        losses, weights = losses[..., counts], weights[counts]
    risks = means(losses, weights)
    errors = errors_of_means(losses, weights, risks)
    best = smallest_of_each(risks)[:, None]
    least = np.take_along_axis(risks, best, axis=1)
    losses -= losses[np.arange(len(best)), best[:, 0]][:, None]
    paired = errors_of_means(losses, weights, risks - least)
    rivals = _rivals(losses, weights, least, within_reach(risks, paired))
    if selection in BAGGINGS:
        chosen = bagged(rivals.risks, rivals.roots, rivals.positions, BAGGINGS[selection])
    else:
        chosen = choose(risks, paired, selection)
    return Chosen(risks, errors, paired, chosen, rivals.contests(len(weights), selection))


class Rivals(NamedTuple):
    """Strengths within reach of the best of each response, and others between them.

    Attributes
    ----------
    positions : (c,) int array
    risks : (t, c) array
        Infinite where a strength is out of reach of a response.
    roots : (t, c, k) array
        Of the covariances of the errors of differences to the best; zero there.
    """

    positions: Index
    risks: Array
    roots: Array

    def contests(self, n: int, selection: Selection) -> Contests:
        """One for each response."""
        reach, used = self.risks < np.inf, (self.roots != 0).any(axis=1)
        own = np.nonzero(reach)[1]
        return Contests(
            reach.sum(axis=1),
            used.sum(axis=1),
            self.positions[own],
            np.zeros_like(own),
            self.risks[reach],
            self.roots[reach[:, :, None] & used[:, None, :]],
            n,
            selection,
        )


def _rivals(differences: Array, weights: Array, least: Array, reach: Mask) -> Rivals:
    """How the risks of strengths within reach (t, J) err, from differences to the best (t, J, n)."""
    positions = np.flatnonzero(reach.any(axis=0))
    some = slice(positions[0], positions[-1] + 1)
    differences, reach = _without_tail(differences[:, some]), reach[:, some]
    rises = means(differences, weights)
    covariances = covariances_of_means(differences, weights, rises)
    return Rivals(
        np.arange(some.start, some.stop),
        np.where(reach, least + np.maximum(rises, 0.0), np.inf),
        roots_of(np.where(reach[:, :, None] & reach[:, None, :], covariances, 0.0)),
    )

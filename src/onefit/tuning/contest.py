"""Strengths within reach of the best, on one path or several, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.risk.means import (
    covariance_of_means,
    covariances_of_means,
    errors_of_means,
    held,
    means,
)
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

IN_REACH = 2.0  # errors of a difference above the smallest risk, where a strength may be the choice
OUT_OF_REACH = 5.0  # paired standard errors above the smallest risk, where a strength cannot be the best
LONGEST_TAIL = 3.0  # how much more than any row speaks for a strength one may speak against it


def choose_strength(
    losses: Array,
    weights: Array,
    risks: Array,
    paired: Array,
    selection: Selection,
    misses: Array | None = None,
    unseen: Array | None = None,
) -> tuple[int, Contest | None]:
    """Position of the chosen strength, and the contest that it was chosen in, if there was one.

    Parameters
    ----------
    losses : (n, J) array
        Strongest penalty first.
    weights : (n,) array
    risks, paired : (J,) arrays
        What they are chosen by, and the standard errors of the differences to the smallest.
    selection : "bagged_se", "bagged", "min" or "1se"
        See ``bagged`` and ``choose``.
    misses : (n, J) array, optional
        Shares of sampled rows in the errors of the differences to the smallest risk.
    unseen : (J,) array, optional
        What there is of that beside means.
    """
    if selection in BAGGINGS and not np.all(np.isnan(risks)):
        held = None if unseen is None else [unseen]
        found = contest([(losses, risks, paired)], weights, selection, misses, held)
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
    root : (c, k) array
        B with B Bᵀ the covariance of their errors: many strengths err in few ways.
    n : int
        Rows with weight.
    selection : "bagged_se", "bagged", "min" or "1se"
    unseen : (c,) array
        What a bagged choice adds to the risks: ``Judgement.unseen``.
    """

    positions: Index
    paths: Index
    risks: Array
    root: Array
    n: int
    selection: Selection
    unseen: Array

    @property
    def covariance(self) -> Array:
        """Of the errors of the risks: (c, c)."""
        return self.root @ self.root.T

    @property
    def _first(self) -> tuple[Index, Array, Array, Array]:
        """Positions and risks of the first path, the root of their covariance, and what is unseen."""
        own = self.paths == 0
        root = self.root if own.all() else roots_of(self.covariance[np.ix_(own, own)][None])[0]
        return self.positions[own], self.risks[own], root, self.unseen[own]

    def bagged(self) -> int:
        """Mean position of the choice on the first path, by a bagged selection: ``bagged``."""
        positions, risks, root, unseen = self._first
        return int(bagged((risks + unseen)[None], root[None], positions, BAGGINGS[self.selection])[0])

    def confidence_set(self) -> Index:
        """Positions of the strengths that cannot be told from the best of the first path, without gaps.

        The risk of a lasso jumps from one strength to the next, so that single strengths drop out among
        others that do not.  Risks that rise on either side of the best have no gaps.  A bagged choice, which
        may lie among strengths that drop out, is in the set.
        """
        positions, risks, root, _ = self._first
        members = positions[confidence_set(risks, root @ root.T, self.n)]
        chosen = self.bagged() if self.selection in BAGGINGS else members[0]
        return np.arange(min(members.min(), chosen), max(members.max(), chosen) + 1)

    def corrected_risk(self) -> float:
        """Risk of the choice among all paths, corrected for having been chosen."""
        return corrected_risk(self.risks, self.covariance, self.selection, self.paths, self.unseen)


def contest(
    paths: Sequence[tuple[Array, Array, Array]],
    weights: Array,
    selection: Selection = "min",
    misses: Array | None = None,
    unseen: Sequence[Array] | None = None,
) -> Contest:
    """Strengths within reach of the best, from the (losses, criterion, paired errors) of each path.

    The criterion is their risk, with what is ``unseen`` on each path.
    """
    within = [np.flatnonzero(within_reach(criterion, paired)) for _, criterion, paired in paths]
    losses = np.hstack([path[0][:, at] for path, at in zip(paths, within, strict=True)])
    criterion = np.concatenate([path[1][at] for path, at in zip(paths, within, strict=True)])
    parts = [np.zeros(len(path[1])) for path in paths] if unseen is None else unseen
    added = np.concatenate([own[at] for own, at in zip(parts, within, strict=True)])
    best = smallest(criterion)
    losses, weights = held(losses, weights)
    losses -= losses[:, [best]]
    differences = without_tail(losses.T).T
    rises = _linalg.column_means(differences, weights) + added - added[best]
    covariance = covariance_of_means(differences, weights)
    if misses is not None and np.any(misses):  # of samples, for a single path
        covariance = covariance + misses[:, within[0]].T @ misses[:, within[0]]
    return Contest(
        positions=np.concatenate(within),
        paths=np.repeat(np.arange(len(paths)), [len(at) for at in within]),
        risks=criterion[best] + np.maximum(rises, 0.0) - added,
        root=roots_of(covariance[None])[0],
        n=len(weights),
        selection=selection,
        unseen=added,
    )


def without_tail(differences: Array) -> Array:
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
    positions, paths, risks, unseen : (Σ c,) arrays
    roots : (Σ c k,) array
        Row by row.
    n : int
    selection : "bagged_se", "bagged", "min" or "1se"
    """

    sizes: Index
    ranks: Index
    positions: Index
    paths: Index
    risks: Array
    roots: Array
    unseen: Array
    n: int
    selection: Selection

    @classmethod
    def of_one(cls, held: Contest) -> Contests:
        """That of a single response."""
        sizes, ranks = np.array(held.root.shape)[:, None]
        return cls(sizes, ranks, *held[:3], held.root.ravel(), held.unseen, held.n, held.selection)

    @classmethod
    def of_rivals(
        cls, positions: Index, rivals: Array, roots: Array, n: int, selection: Selection
    ) -> Contests:
        """From risks (t, c), infinite where a strength takes no part, and roots (t, c, k) of their errors."""
        inside, used = rivals < np.inf, (roots != 0).any(axis=1)
        sizes, ranks = inside.sum(axis=1), used.sum(axis=1)
        own = np.broadcast_to(positions, rivals.shape)[inside]
        flat = roots[inside[:, :, None] & used[:, None, :]]
        nothing = np.zeros(len(own))
        return cls(sizes, ranks, own, np.zeros_like(own), rivals[inside], flat, nothing, n, selection)

    def shifted(self, by: int) -> Contests:
        """The same on a path with so many strengths before the first."""
        return self._replace(positions=self.positions + by)

    @classmethod
    def joined(cls, parts: Sequence[Contests], order: Index) -> Contests:
        """Those of all parts, of which the k-th in a row belongs to response ``order[k]``."""
        whole = (np.concatenate(arrays) for arrays in zip(*(part[:7] for part in parts), strict=True))
        sizes, ranks, positions, paths, risks, roots, unseen = whole
        at = np.argsort(order)
        own, flat = _in_order(sizes, at), _in_order(sizes * ranks, at)
        known = sizes[at], ranks[at], positions[own], paths[own], risks[own], roots[flat], unseen[own]
        return cls(*known, parts[0].n, parts[0].selection)

    def each(self) -> Iterator[Contest]:
        """The contest of each response."""
        ends, lasts = np.cumsum(self.sizes), np.cumsum(self.sizes * self.ranks)
        for size, rank, end, last in zip(self.sizes, self.ranks, ends, lasts, strict=True):
            own, root = slice(end - size, end), self.roots[last - size * rank : last].reshape(size, rank)
            known = self.positions[own], self.paths[own], self.risks[own], root
            yield Contest(*known, self.n, self.selection, self.unseen[own])


def _in_order(counts: Index, order: Index) -> Index:
    """Where the numbers of responses are that hold so many each, of the responses in this order."""
    first = np.cumsum(counts) - counts
    held = counts[order]
    return np.repeat(first[order] - (np.cumsum(held) - held), held) + np.arange(held.sum())


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
    positions, rivals, roots = _rivals(losses, weights, least, within_reach(risks, paired))
    if selection in BAGGINGS:
        chosen = bagged(rivals, roots, positions, BAGGINGS[selection])
    else:
        chosen = choose(risks, paired, selection)
    contests = Contests.of_rivals(positions, rivals, roots, len(weights), selection)
    return Chosen(risks, errors, paired, chosen, contests)


def _rivals(differences: Array, weights: Array, least: Array, reach: Mask) -> tuple[Index, Array, Array]:
    """Strengths within reach of the best of each response, and others between them, and how they err.

    Parameters
    ----------
    differences : (t, J, n) array
        Losses less those at the best strength.
    weights : (n,) array
    least : (t, 1) array
        The smallest risks.
    reach : (t, J) bool array

    Returns
    -------
    positions : (c,) int array
    risks : (t, c) array
        Infinite where a strength is out of reach of a response.
    roots : (t, c, k) array
        Of the covariances of the errors of the differences; zero there.
    """
    places = np.flatnonzero(reach.any(axis=0))
    some = slice(places[0], places[-1] + 1)
    differences, reach = without_tail(differences[:, some]), reach[:, some]
    rises = means(differences, weights)
    covariances = covariances_of_means(differences, weights, rises)
    return (
        np.arange(some.start, some.stop),
        np.where(reach, least + np.maximum(rises, 0.0), np.inf),
        roots_of(np.where(reach[:, :, None] & reach[:, None, :], covariances, 0.0)),
    )

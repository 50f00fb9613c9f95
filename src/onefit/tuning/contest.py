"""Strengths within reach of the best, on one path or several, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
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
    covariance_of_means,
    held,
    smallest,
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
    return choose(risks, paired, selection), None


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
        return bagged(risks, covariance, positions, BAGGINGS[self.selection])

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
    differences = _without_tail(losses)
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
    """Differences to the best (n, J), none more than three times as high as the largest gain of a row.

    One row that is far out (of a leverage near 1, say) raises the risk of a strength and the error of that
    risk alike, which would hide that the strength is bad.  A mean without its upper tail is smaller: what
    is found worse by it is worse.
    """
    gain = -differences.min(axis=0)
    return np.minimum(differences, np.where(gain > 0, LONGEST_TAIL * gain, np.inf), out=differences)


def within_reach(risks: Array, paired: Array) -> Mask:
    """Strengths that may be the best; the first one if nothing is known."""
    best = smallest(risks)
    within = np.isfinite(risks) & ~(risks > risks[best] + OUT_OF_REACH * paired)
    within[best] = True
    return within

"""Sums over rows of the left-out losses of a path: risks, and how they and their differences err."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from onefit._linalg import add_gram, mirrored
from onefit._typing import Array, Index, Mask
from onefit.blocks.rows import Added
from onefit.numerics import KNOWN, TINY
from onefit.tuning.contest import IN_REACH, Contest, within_reach, without_tail
from onefit.tuning.selection import BAGGINGS, Selection, roots_of, smallest

KEPT = 1000  # rows whose losses differ most: a tail that is cut is mostly of a few


@dataclass(frozen=True, eq=False)
class FarthestRows:
    """Rows with weight whose losses differ most along a path: what it wins or loses most is theirs."""

    differences: Array  # (J, m)
    weights: Array  # (m,)

    @classmethod
    def of(cls, differences: Array, weights: Array) -> FarthestRows:
        """The farthest of some rows."""
        held = np.flatnonzero(weights)
        if held.size > KEPT:
            held = held[np.argpartition(np.ptp(differences, axis=0)[held], -KEPT)[-KEPT:]]
        return cls(differences[:, held], weights[held])

    def __add__(self, other: FarthestRows) -> FarthestRows:
        both = np.hstack([self.differences, other.differences])
        return FarthestRows.of(both, np.concatenate([self.weights, other.weights]))


class _RiseSums(NamedTuple):
    """Sums of differences to one strength."""

    first: Array  # Σ w d, (J,)
    second: Array  # Σ w² d, (J,)
    pairs: Array  # Σ w² d dᵀ, (J, J)

    @classmethod
    def of(cls, differences: Array, weights: Array) -> _RiseSums:
        weighted = differences * weights
        return cls(differences @ weights, weighted @ weights, _pairs(weighted))

    def in_place_of(self, others: _RiseSums, all_rows: _RiseSums) -> _RiseSums:
        """Those of all rows, where some have these in place of others."""
        return _RiseSums(*(a - o + s for a, o, s in zip(all_rows, others, self, strict=True)))


@dataclass(frozen=True, eq=False)
class LossSums(Added):
    """Sums over rows.

    Attributes
    ----------
    count : int
        Rows with weight.
    weight : float
        Σ w.
    level : (3,) array
        Σ w l⁰, Σ w² l⁰ and Σ w² (l⁰)².
    first, second : (J,) arrays
        Σ w d and Σ w² d.
    mixed : (J,) array
        Σ w² l⁰ d.
    pairs : (J, J) array
        Σ w² d dᵀ.
    square_weight : float
        Σ w².
    rough : (J,) bool array
        Strengths at which some loss may not be that of a refit.
    doubtful : (J,) array
        Σ w l of rows that a formula may take for far too much.
    far : FarthestRows
        Whose differences contests cut.
    contradicted : (J,) array
        Σ w of what losses would be more were labels others; zero of responses that are no labels.
    """

    count: int
    weight: float
    square_weight: float
    level: Array
    first: Array
    second: Array
    mixed: Array
    pairs: Array
    rough: Mask
    doubtful: Array
    far: FarthestRows
    contradicted: Array

    @classmethod
    def of(
        cls,
        losses: Array,
        differences: Array,
        weights: Array | None,
        exact: Mask | None = None,
        doubtful: Array | None = None,
        contradicted: Array | None = None,
    ) -> LossSums:
        """Sum over some rows.

        Parameters
        ----------
        losses : (b,) array
            l⁰.
        differences : (J, b) array
        weights : (b,) array or None
        exact : (J,) bool array or None
            None where no loss is known to be that of a refit.
        doubtful : (J,) array or None
            None where no loss is in doubt.
        contradicted : (J, b) array or None
            Losses were labels others; of rows that are told wrong none is more.
        """
        doubtful = np.zeros(len(differences)) if doubtful is None else doubtful
        exact = np.zeros(len(differences), dtype=bool) if exact is None else exact
        differences = np.asarray(differences, dtype=np.float64)  # their covariance must stay definite
        weights = np.ones(len(losses)) if weights is None else weights
        squares = weights**2
        weighted = differences * weights
        more = np.zeros(len(differences))
        if contradicted is not None:
            rises = contradicted - losses - differences
            more = np.where(np.isfinite(rises), np.maximum(rises, 0.0), 0.0) @ weights
        moments = differences @ np.stack([weights, squares, squares * losses], axis=1)
        return cls(
            int(np.count_nonzero(weights)),
            float(weights.sum()),
            float(squares.sum()),
            np.array([weights @ losses, squares @ losses, squares @ losses**2]),
            moments[:, 0],
            moments[:, 1],
            moments[:, 2],
            _pairs(weighted),
            ~exact,
            doubtful,
            FarthestRows.of(differences, weights),
            more,
        )

    @property
    def unseen(self) -> Array:
        """What labels that were not seen may add to the risks: (J,), as ``Judgement.unseen``."""
        return self.contradicted / (self.weight * self.count)

    @property
    def exact(self) -> Mask:
        """Strengths at which every loss is that of a refit: (J,)."""
        return ~self.rough

    @property
    def risks(self) -> Array:
        """Weighted mean loss of each strength: (J,)."""
        return (self.level[0] + self.first) / self.weight

    @property
    def _spread(self) -> float:
        """From Σ w² (l − mean)² to the variance of the weighted mean."""
        n = self.count
        return n / (n - 1) / self.weight**2 if n > 1 else float("nan")

    @property
    def std_errors(self) -> Array:
        """Standard error of each risk: (J,)."""
        means = self.risks
        squares = self.level[2] + 2.0 * self.mixed + self.pairs.diagonal()
        sums = self.level[1] + self.second
        total = squares - 2.0 * means * sums + means**2 * self.square_weight
        return np.sqrt(np.maximum(total, 0.0) * self._spread)

    def covariance(self, best: int) -> Array:
        """Covariance of the errors of the differences to the risk at ``best``: (J, J)."""
        return self._covariance(self._to(best))

    def _to(self, best: int) -> _RiseSums:
        to_best = self.pairs[best]
        pairs = self.pairs - to_best - to_best[:, None] + to_best[best]
        return _RiseSums(self.first - self.first[best], self.second - self.second[best], pairs)

    def _covariance(self, sums: _RiseSums) -> Array:
        means = sums.first / self.weight
        cross = np.outer(means, sums.second)
        return (sums.pairs - cross - cross.T + self.square_weight * np.outer(means, means)) * self._spread

    def _without_tail(self, best: int) -> _RiseSums:
        """Sums of the differences to the best, as contests cut them, of the rows that are farthest."""
        weights, apart = self.far.weights, self.far.differences - self.far.differences[best]
        cut = _RiseSums.of(without_tail(apart.copy()), weights)
        return cut.in_place_of(_RiseSums.of(apart, weights), self._to(best))

    def paired_errors(self, best: int) -> Array:
        """Standard errors of the differences to the risk at ``best``: (J,), 0 there."""
        return np.sqrt(np.maximum(self.covariance(best).diagonal(), 0.0))

    def of_some(self, which: Index) -> LossSums:
        """Return the sums of some strengths."""
        return LossSums(
            self.count,
            self.weight,
            self.square_weight,
            self.level,
            self.first[which],
            self.second[which],
            self.mixed[which],
            self.pairs[np.ix_(which, which)],
            self.rough[which],
            self.doubtful[which],
            replace(self.far, differences=self.far.differences[which]),
            self.contradicted[which],
        )

    def within_reach(self, added: Array | float = 0.0) -> Index:
        """Strengths within reach of the smallest risk, with what is added to each."""
        criterion = self.risks + added
        return np.flatnonzero(within_reach(criterion, self.paired_errors(smallest(criterion))))

    def in_doubt(self) -> Index:
        """Strengths whose risk may hang on rows that a formula may take for far too much."""
        return np.flatnonzero(self.doubtful > KNOWN * self.std_errors * self.weight)

    def near(self) -> Index:
        """Strengths that may be the choice, the nearest to the smallest risk first, and its neighbours."""
        risks = self.risks
        least = smallest(risks)
        off = (risks - risks[least]) / np.maximum(self.paired_errors(least), TINY)
        off[max(least - 1, 0) : least + 2] = 0.0
        order = np.argsort(off, kind="stable")
        return order[off[order] <= IN_REACH]

    def contest(self, paths: Index, selection: Selection) -> Contest:
        """Strengths within reach of the smallest risk of their path.

        Parameters
        ----------
        paths : (J,) int array
            Which path a strength belongs to; the first one is number 0.
        selection : "bagged_se", "bagged", "min" or "1se"
        """
        reached, positions = list[Index](), list[Index]()
        added = self.unseen if selection in BAGGINGS else np.zeros_like(self.contradicted)
        for path in np.unique(paths):
            at = np.flatnonzero(paths == path)
            positions.append(self.of_some(at).within_reach(added[at]))
            reached.append(at[positions[-1]])
        at = np.concatenate(reached)
        own, added = self.of_some(at), added[at]
        criterion = own.risks + added
        best = smallest(criterion)
        differences = own._without_tail(best)
        rises = differences.first / self.weight + added - added[best]
        risks = criterion[best] + np.maximum(rises, 0.0) - added
        root = roots_of(own._covariance(differences)[None])[0]
        return Contest(np.concatenate(positions), paths[at], risks, root, self.count, selection, added)


def _pairs(differences: Array) -> Array:
    """D Dᵀ."""
    J = len(differences)
    return mirrored(add_gram(np.zeros((J, J), order="F"), differences.T))

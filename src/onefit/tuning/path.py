"""The risk along a path of strengths, judged while the path is solved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature
from onefit.risk.judging import guarantees
from onefit.risk.means import means_and_errors, paired_errors
from onefit.solvers.newton import Solution
from onefit.tuning.contest import Contests, choose_strength
from onefit.tuning.judgement import Judgement
from onefit.tuning.sample import Verdict, between, judged
from onefit.tuning.selection import BAGGINGS, Selection, smallest


@dataclass(frozen=True, eq=False)
class JudgedPath:
    """A path of fits and their left-out risks, from the strongest penalty to the weakest, and the choice.

    Attributes
    ----------
    strengths : (J,) array
        Those that were visited.
    risks, std_errors : (J,) arrays
    paired_errors : (J,) array
        Standard errors of the differences to the smallest risk, with what the choice adds.
    approx_errors : (J,) array
        How far each risk may be off; infinite where that is not known.
    coefs : (J, p) or (J, p, c) array
    levels : (J,) or (J, c) array
    best : int
        Position of the strength that was chosen.
    contests : Contests or None
        Of these strengths and of those of other paths, which the choice passed over: one for each choice.
    """

    strengths: Array
    risks: Array
    std_errors: Array
    paired_errors: Array
    approx_errors: Array
    coefs: Any
    levels: Any
    best: Any
    contests: Contests | None = field(default=None, kw_only=True)

    @property
    def places(self) -> Index:
        """Where the strengths are in their contest: (J,)."""
        return np.arange(len(self.strengths))

    @property
    def criterion(self) -> Array:
        """What strengths are chosen by: the risks."""
        return self.risks

    @property
    def guarantees(self) -> Any:
        """What each error is, "exact", "bounded", "sampled" or "rough": an array like that of the risks."""
        return guarantees(self._sampled, self.risks, self.approx_errors)

    @property
    def _sampled(self) -> Mask:
        """Where an error holds at 95 %."""
        return np.zeros(self.risks.shape, dtype=bool)


@dataclass(frozen=True, eq=False)
class SearchResult(JudgedPath):
    """A path of which the losses of all rows are known.

    Coefficients of strengths that were passed over are missing: NaN.

    Attributes
    ----------
    losses : (n, J) array
        Left-out loss of each row at each strength.
    verdicts : sequence
        What is known of each strength; None where its neighbours speak for it.
    solved : dict
        By place, solutions whose factors may be kept: of the smallest risk, and all that are small beside X.
    last : Curvature or None
        By which a strength that was left near its optimum is soon solved.
    walked : (J,) int array or None
        Places on the path that was walked, where others were passed over.
    unseen : (J,) array or None
        What the choice adds to the risks, if anything: ``Judgement.unseen``.
    """

    losses: Array
    verdicts: Sequence[Verdict | None] = ()
    solved: Mapping[int, Solution] = field(default_factory=dict)
    last: Curvature | None = None
    walked: Index | None = None
    unseen: Array | None = None

    @property
    def criterion(self) -> Array:
        """What strengths are chosen by: the risks, with what is unseen."""
        return self.risks if self.unseen is None else self.risks + self.unseen

    @property
    def places(self) -> Index:
        return super().places if self.walked is None else self.walked

    @cached_property
    def is_visited(self) -> Mask:
        """Strengths that were solved: (J,)."""
        return ~np.isnan(self.levels.reshape(len(self.levels), -1)).any(axis=1)

    def visited(self) -> SearchResult:
        """The path of those alone; the places in its contest stay."""
        own = np.flatnonzero(self.is_visited)
        if own.size == len(self.strengths):
            return self
        new = np.searchsorted(own, np.arange(len(self.strengths)))
        of_each = "strengths", "risks", "std_errors", "paired_errors", "approx_errors", "coefs", "levels"
        return replace(
            self,
            **{name: getattr(self, name)[own] for name in of_each},
            best=int(new[self.best]),
            losses=self.losses[:, own],
            verdicts=[self.verdicts[j] for j in own.tolist()],
            solved={int(new[j]): solution for j, solution in self.solved.items()},
            walked=own,
            unseen=None if self.unseen is None else self.unseen[own],
        )

    @property
    def _sampled(self) -> Mask:
        if not self.verdicts:
            return super()._sampled
        return np.array([verdict is not None and verdict.is_sampled for verdict in self.verdicts])


def of_verdicts(
    strengths: Array,
    verdicts: Sequence[Verdict | None],
    judgement: Judgement,
    coefs: Array,
    levels: Array,
    selection: Selection,
) -> SearchResult:
    """Risks of a solved path from what is known of each strength, and the choice."""
    filled, weights = list(_filled_in(verdicts)), judgement.unit_weights
    losses = np.stack([verdict.losses for verdict in filled]).T
    risks, errors = means_and_errors(losses, weights)
    unseen = _between(judgement, losses, verdicts) if selection in BAGGINGS else np.zeros_like(risks)
    criterion = risks + unseen
    best = smallest(criterion)
    misses = np.stack([verdict.misses for verdict in filled]).T
    misses = misses - misses[:, [best]]
    paired = np.hypot(paired_errors(losses, weights, best), np.linalg.norm(misses, axis=0))
    chosen, contest = choose_strength(losses, weights, criterion, paired, selection, misses, unseen)
    off = np.array([verdict.error for verdict in filled])
    held = None if contest is None else Contests.of_one(contest)
    known = strengths, risks, errors, paired, off, coefs, levels, chosen, losses
    return SearchResult(*known, tuple(verdicts), contests=held, unseen=unseen)


def _between(judgement: Judgement, losses: Array, verdicts: Sequence[Verdict | None]) -> Array:
    """What is unseen of strengths that were judged, and on a line between them, as risks are: (J,)."""
    places = list(judged(verdicts))
    return np.interp(np.arange(losses.shape[1]), places, judgement.unseen(losses[:, places]))


def _filled_in(verdicts: Sequence[Verdict | None]) -> Iterator[Verdict]:
    """Strengths that were not judged, from those on either side; the first and the last one were."""
    known = judged(verdicts)
    for (left, one), (right, other) in pairwise(known.items()):
        yield one
        for j in range(left + 1, right):
            yield between(one, other, (j - left) / (right - left))
    yield known[len(verdicts) - 1]

"""Lasso and elastic-net paths without sets of rows, solved on sums over the rows that stay.

What stays without a set has sums of its own, and the refits at all strengths are exact solutions of them.
Where columns are few, the refits of all sets at all strengths are solved together, each from the pattern of
the fit to all rows at its strength (``leave_out.exchange``); else each set has a path of its own, as the fit
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from operator import add

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.optima import ModelsOfSums, optima
from onefit.blocks.rows import Block
from onefit.blocks.sums import RowSums
from onefit.blocks.tuning import longer, visited
from onefit.cost import Work
from onefit.leave_out.sets import Folds
from onefit.numerics import EXACT, ON_BOUND, rounding_of_slack
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import SearchResult, of_verdicts
from onefit.tuning.pulls import usual_by_chance
from onefit.tuning.sample import Verdict
from onefit.tuning.selection import Selection, smallest

AT_HAND = 2**17  # numbers of the matrices of problems that are solved at once
ROUNDS = 3.0  # in which patterns are exchanged, about, and of which the first is of all problems
CALLS_OF_A_STEP = 80.0  # from one strength of a path to the next


@dataclass(frozen=True, eq=False)
class NetWithoutSets:
    """A lasso or an elastic net of one response, and the same without each of some sets of rows.

    Attributes
    ----------
    rows : Block
        All of them.
    sets : Folds
    l1_ratio : float
    has_intercept : bool
    nonnegative : bool
    """

    rows: Block
    sets: Folds
    l1_ratio: float
    has_intercept: bool
    nonnegative: bool = False

    @cached_property
    def stays(self) -> list[RowSums]:
        """Sums over what stays without each set."""
        sums = list(_sums_of_disjoint(self.rows, self.sets) or _sums_one_by_one(self.rows, self.sets))
        return sums if self.has_intercept else [own.about_zero() for own in sums]

    @cached_property
    def whole(self) -> RowSums:
        """Sums over all rows."""
        sums = RowSums.of(self.rows)
        return sums if self.has_intercept else sums.about_zero()

    def strengths(self, sums: RowSums, alphas: Array) -> tuple[Array, Array]:
        """Strengths on the scale of the sum; the penalty goes with the weight of the rows."""
        return sums.weight * self.l1_ratio * alphas, sums.weight * (1.0 - self.l1_ratio) * alphas

    def path(self, sums: RowSums, alphas: Array) -> Array:
        """Coefficients at each strength, one after the other: (J, p)."""
        coefs = np.zeros((len(alphas), len(sums.means)))
        solved = optima(sums, *self.strengths(sums, alphas), nonnegative=self.nonnegative)
        for own, found in zip(coefs, solved, strict=True):
            own[found.support] = found.beta
        return coefs

    def levels(self, coefs: Array) -> Array:
        """Intercepts of fits to all rows: (J,)."""
        return np.asarray(self.whole.y_means[0] - coefs @ self.whole.means)

    def left_out(self, coefs: Array, alphas: Array) -> tuple[Array, Mask]:
        """Left-out linear predictors of the tested rows, by fits (J, p): (J, t), and whether ``told``."""
        p, found, sure = coefs.shape[1], [], np.ones(len(alphas), dtype=bool)
        together = exchange_work(p).seconds < path_work(p).seconds
        without = self._by_exchange(coefs, alphas) if together else (self.path(s, alphas) for s in self.stays)
        for tested, sums, own in zip(self.sets.tested, self.stays, without, strict=True):
            X = _linalg.as_design(self.rows.X).dense_rows(tested)
            found.append(_linalg.product(own, (X - sums.means).T) + sums.y_means[0])
            sure &= told(sums, own, *self.strengths(sums, alphas), nonnegative=self.nonnegative)
        return np.hstack(found), sure

    def _by_exchange(self, coefs: Array, alphas: Array) -> Iterator[Array]:
        """Coefficients without each set, all strengths together: (J, p) each."""
        size = max(1, AT_HAND // (coefs.shape[1] ** 2 * len(alphas)))
        for first in range(0, len(self.stays), size):
            some = self.stays[first : first + size]
            x, sure = self._models(some, coefs, alphas).solved()
            solved = x.T.reshape(len(some), *coefs.shape)
            for sums, own, known in zip(some, solved, sure.reshape(len(some), -1), strict=True):
                yield own if known.all() else self.path(sums, alphas)

    def _models(self, some: Sequence[RowSums], coefs: Array, alphas: Array) -> ModelsOfSums:
        p, J = coefs.shape[1], len(alphas)
        gram, cross = np.stack([own.gram for own in some]), np.stack([own.cross[:, 0] for own in some])
        l1, l2 = np.stack([self.strengths(own, alphas) for own in some], axis=1)
        varies = np.einsum("fqq->fq", gram) > 0
        start = np.where(varies[:, None], coefs, 0.0).reshape(-1, p).T
        K = gram[:, None] + l2[..., None, None] * np.eye(p)
        bound = np.broadcast_to(l1.ravel(), (p, l1.size))
        return ModelsOfSums(
            start=start,
            bound=bound,
            nonnegative=self.nonnegative,
            K=K.reshape(-1, p, p),
            f=np.repeat(cross, J, axis=0).T,
        )


def told(sums: RowSums, coefs: Array, l1: Array, l2: Array, *, nonnegative: bool = False) -> Mask:
    """Strengths whose solutions (J, p) are the only ones, and known to what counts as exact: (J,).

    A zero whose correlation is on its bound may join at no cost.  There is one solution if such columns and
    those of the support do not depend on one another; how nearly they do tells how many digits sums leave.
    """
    gram = sums.gram
    on = coefs != 0
    pull = sums.cross[:, 0] - coefs @ gram - l2[:, None] * coefs
    on |= (pull if nonnegative else np.abs(pull)) >= (1.0 - ON_BOUND) * l1[:, None]
    patterns, at = np.unique(on, axis=0, return_inverse=True)
    sure = np.zeros(len(on), dtype=bool)
    for k, pattern in enumerate(patterns):
        own = np.flatnonzero(at.ravel() == k)
        K = np.array(gram[np.ix_(pattern, pattern)], order="F")
        K[np.diag_indices_from(K)] += l2[own].min()
        L = _linalg.cholesky(K)
        sure[own] = L is not None and rounding_of_slack(_linalg.condition(L)) <= EXACT
    return sure


def exchange_work(p: int) -> Work:
    """What a problem of p columns takes among many."""
    return Work(flops=ROUNDS * 0.7 * p**3 + 60.0 * p**2, calls=4.0)


def path_work(p: int) -> Work:
    """What a strength of a path on p columns takes."""
    return Work(flops=p**3 / 3.0 + p**2, calls=CALLS_OF_A_STEP)


def _sums_of_disjoint(rows: Block, sets: Folds) -> list[RowSums]:
    """Sums without sets that share no row, added up from those over each set; empty if some share one."""
    leaves = np.concatenate(sets.removed)
    if len(np.unique(leaves)) < leaves.size:
        return []
    parts = [RowSums.of(_some(rows, removed)) for removed in sets.removed]
    stays = np.setdiff1d(np.arange(sets.n), leaves)
    rest = [RowSums.of(_some(rows, stays))] if stays.size else []
    before, after = list(accumulate(parts, add)), list(accumulate(parts[::-1], add))[::-1]
    beside = [[*before[k - 1 : k][: k > 0], *after[k + 1 : k + 2], *rest] for k in range(len(parts))]
    return [reduce(add, own) for own in beside]


def _sums_one_by_one(rows: Block, sets: Folds) -> Iterator[RowSums]:
    everyone = np.arange(sets.n)
    return (RowSums.of(_some(rows, np.delete(everyone, removed))) for removed in sets.removed)


def _some(rows: Block, which: Index) -> Block:
    X, y, weights = rows
    return Block(_linalg.some_rows(X, which), y[which], None if weights is None else weights[which])


def search_net_without_sets(
    models: NetWithoutSets,
    grid: Grid,
    judgement: Judgement,
    otherwise: Callable[[float, Array, float], Verdict],
    selection: Selection = "bagged_se",
    *,
    early_stopping: bool = True,
) -> SearchResult:
    """Judge every strength by exact refits without the sets, and more while the risk falls at an end.

    Parameters
    ----------
    models : NetWithoutSets
    grid : Grid
        On the scale of ``sklearn.linear_model.ElasticNet``.
    judgement : Judgement
        Of the same sets.
    otherwise : callable
        Judges a strength, with its coefficients and intercept, that sums do not tell.
    selection : "bagged_se", "bagged", "min" or "1se"
    early_stopping : bool, default True
        End the path where its risk is clearly past the minimum.
    """
    weights, known = judgement.unit_weights, dict[float, tuple[Array, Verdict]]()
    more = grid.values
    while len(more) > len(known):
        anew = np.array([one for one in more.tolist() if one not in known])
        known |= zip(anew.tolist(), _judged(models, anew, judgement, otherwise), strict=True)
        strengths = more
        sums = _sums_of_losses(np.stack([known[one][1].losses for one in strengths.tolist()]), weights)
        coefs = np.stack([known[one][0] for one in strengths.tolist()])
        pull = models.whole.largest_pull(coefs.T, sums.risks, nonnegative=models.nonnegative)
        pulled = pull > usual_by_chance(coefs.shape[1])
        more = longer(grid, strengths, sums.risks, pulled)
    at = visited(grid, strengths, sums, early_stopping, pulled)
    seen, coefs = strengths[at], coefs[at]
    verdicts = [known[one][1] for one in seen.tolist()]
    return of_verdicts(seen, verdicts, judgement, coefs, models.levels(coefs), selection)


def _judged(
    models: NetWithoutSets,
    alphas: Array,
    judgement: Judgement,
    otherwise: Callable[[float, Array, float], Verdict],
) -> Iterator[tuple[Array, Verdict]]:
    """Coefficients of strengths, and what they are worth."""
    coefs = models.path(models.whole, alphas)
    predictors, sure = models.left_out(coefs, alphas)
    for alpha, coef, level, eta, is_told in zip(
        alphas.tolist(), coefs, models.levels(coefs).tolist(), predictors, sure, strict=True
    ):
        if is_told:
            losses = judgement.losses_of(models.sets.rows, eta)
            yield coef, Verdict(losses, np.zeros_like(losses), 0.0, proven=True)
        else:
            yield coef, otherwise(alpha, coef, level)


def _sums_of_losses(losses: Array, weights: Array) -> LossSums:
    reference = losses[smallest(losses @ weights)]
    return LossSums.of(reference, losses - reference, weights)

"""Losses of all rows from those of a sample: what a strength that is judged by some of its rows is worth.

With covariates that are known for all rows (the loss in the fit, the loss after one step) the left-out losses
of the sample are predicted by least squares; the mean of the predictions, corrected by the mean of what they
miss in the sample, is the regression estimator (Särndal, Swensson and Wretman 1992, section 6.4): right
up to O(1/m) whatever the covariates are worth.  Rows that were not drawn take the residual of one that was,
the same one at every strength, so that differences between strengths keep their spread over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.numerics import RESOLUTION

WIDTH = 1.96  # standard errors in half of a 95 % interval
ENOUGH = 10  # rows a covariate


class Verdict(NamedTuple):
    """What is known of a strength.

    Attributes
    ----------
    losses : (n,) array
        Left-out losses, those of rows that were not solved as the sample suggests.
    misses : (n,) array
        Share of each sampled row in the error of the mean: its norm is the error's standard deviation, and
        its product with that of another strength their covariance.
    error : float
        How far the mean may be off: proven, or at 95 % from the sample, or infinite.
    solved : int
        Rows that were solved; 0 where a step was taken for all of them.
    seen : int
        Rows that were left out together with others, which fewer single rows do not overrule.
    proven : bool
        Whether what is known of the rows is proven, where it is known at all.
    off : (n,) array or None
        How far losses of single rows that were solved may be off; infinite where there is no refit.
    """

    losses: Array
    misses: Array
    error: float
    solved: int = 0
    seen: int = 0
    proven: bool = False
    off: Array | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether the error holds at 95 %, by some of the rows or by refits without a proof."""
        return not self.proven or 0 < self.left_out < len(self.losses)

    @property
    def left_out(self) -> int:
        """Rows that were left out, alone or with others."""
        return max(self.solved, self.seen)


def judged(verdicts: Sequence[Verdict | None]) -> dict[int, Verdict]:
    """What is known, by place, of the strengths of a path of which anything is."""
    return {j: verdict for j, verdict in enumerate(verdicts) if verdict is not None}


def from_sample(
    known: Array,
    rows: Index,
    order: Index,
    covariates: Array,
    weights: Array,
    certain: int = 0,
    off: Array | None = None,
) -> Verdict:
    """Complete the losses of a sample.

    Parameters
    ----------
    known : (m,) array
        Losses of ``rows``, the first of ``order``; NaN where a row has no refit.
    rows : (m,) int array
    order : (n,) int array
        All rows, as they are drawn.
    covariates : (n, q) array
    weights : (n,) array
    certain : int, default 0
        So many of the first rows were not drawn but picked: they say nothing about the others.
    off : (m,) array, optional
        How far each of what is known may be off.
    """
    picked, off = rows[:certain], np.zeros(len(rows)) if off is None else off
    others = weights.copy()
    others[picked] = 0.0
    if certain == 0 or not others.any():
        return _from_random_rows(known, rows, order, covariates, weights, off)
    rest = _from_random_rows(known[certain:], rows[certain:], order, covariates, others, off[certain:])
    share = float(others.sum() / weights.sum())
    losses, seen = rest.losses.copy(), np.isfinite(known[:certain])
    losses[picked[seen]] = known[:certain][seen]
    error = share * rest.error + float((weights[picked] @ np.where(seen, off[:certain], 0.0)) / weights.sum())
    return Verdict(losses, share * rest.misses, error, len(rows))


def _from_random_rows(
    known: Array, rows: Index, order: Index, covariates: Array, weights: Array, off: Array
) -> Verdict:
    n, m = len(weights), len(rows)
    kept = np.isfinite(known) & (weights[rows] > 0)
    losses, misses = np.empty(n), np.zeros(n)
    if kept.sum() < 2:
        return Verdict(covariates[:, -1].copy(), misses, np.inf, m)
    own, held = rows[kept], known[kept]
    predicted = _predicted(held, own, covariates)
    share = weights[own] / weights[own].sum()
    missed = held - predicted[own]
    shift = float(share @ missed)
    donors = np.resize(missed - shift, n)
    losses[order] = predicted[order] + shift + donors
    losses[own] = held
    rest = np.ones(n, dtype=bool)
    rest[own] = False
    rest &= weights > 0
    wanted = weights @ (predicted + shift) - weights[own] @ held
    if rest.any():
        losses[rest] += (wanted - weights[rest] @ losses[rest]) / weights[rest].sum()
        left = 1.0 - float(weights[own].sum() / weights.sum())
        misses[own] = share * (missed - shift) * np.sqrt(left * len(own) / max(len(own) - 3, 1))
    losses[weights == 0] = predicted[weights == 0]
    unseen = RESOLUTION * abs(float(weights @ losses / weights.sum())) if rest.any() else 0.0
    error = max(WIDTH * float(np.linalg.norm(misses)), unseen) + float(share @ off[kept])
    return Verdict(losses, misses, error, m)


def _predicted(known: Array, rows: Index, covariates: Array) -> Array:
    """Least squares on the covariates, up to twice the largest of what is known: (n,)."""
    inside = np.clip(np.nan_to_num(covariates, nan=0.0), 0.0, 2.0 * known.max())
    used = inside[:, : max(len(rows) // ENOUGH, 0)]
    scale = np.linalg.norm(used[rows], axis=0)  # of losses, whose unit may be anything
    A = np.column_stack([np.ones(len(inside)), used / np.where(scale > 0, scale, 1.0)])
    solved = np.linalg.lstsq(A[rows], known, rcond=1e-10)[0]
    return np.asarray(np.clip(A @ solved, 0.0, 2.0 * known.max()), dtype=np.float64)


def between(left: Verdict, right: Verdict, share: float) -> Verdict:
    """A strength between two that were judged: its losses may lie between theirs, and nothing bounds them."""
    losses = (1.0 - share) * left.losses + share * right.losses
    return Verdict(losses, (1.0 - share) * left.misses + share * right.misses, np.inf)

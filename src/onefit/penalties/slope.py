"""The sorted ℓ1 norm, and the largest coefficient, which is one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import isotonic_regression

from onefit._typing import Array, Mask
from onefit.penalties.base import ZERO, OfOneStrength, check_one_each, size_of
from onefit.penalties.programs import PiecewiseRows, Polyhedral, absolute
from onefit.pieces import Subspace


class SortedNorm(OfOneStrength, Polyhedral):
    """Σ_k s_k |β|_(k) with strengths that fall, of the sizes |β|_(1) ≥ |β|_(2) ≥ … of the coefficients.

    Coefficients that are equal but for their sign form clusters, which move together.
    """

    @abstractmethod
    def falling(self, p: int) -> Array:
        """What the largest, second largest, … of p coefficients is multiplied with: (p,)."""

    def rows(self, p: int) -> PiecewiseRows:
        """With thresholds t_k where the weights fall, by f_k after the k-th: Σ_k f_k · (the k largest).

        The k largest |β_j| sum to the least over t of k t + Σ_j max(0, β_j − t) + Σ_j max(0, −β_j − t).
        """
        falls = -np.diff(np.append(self.falling(p), 0.0))
        ranks = np.flatnonzero(falls[:-1] > 0)
        eye, one = sp.csr_array(sp.eye_array(p)), sp.csr_array((1, p))
        together = absolute(eye, np.full(p, falls[-1]))
        r, size = len(ranks), 2 * p + 1  # rows of a threshold
        block, every = sp.vstack([eye, -eye, one], format="csr"), np.arange(r)
        columns, kinks, ends = np.zeros((r, size, r)), np.zeros((r, size, 1)), np.zeros((r, size, 2))
        columns[every, :, every], kinks[:, -1] = np.append(-np.ones(2 * p), 1.0), np.inf
        ends[:, :-1, 1], ends[:, -1] = falls[ranks, None], ((ranks + 1) * falls[ranks])[:, None]
        return PiecewiseRows.of(
            sp.vstack([together.X, *[block] * r], format="csr"),
            np.concatenate([together.kinks, kinks.reshape(r * size, 1)]),
            np.concatenate([together.ends, ends.reshape(r * size, 2)]),
            np.concatenate([np.zeros((len(together.kinks), r)), columns.reshape(r * size, r)]),
        )

    def thresholds(self, coef: Array) -> Array:
        return np.sort(np.abs(coef))[::-1][np.flatnonzero(np.diff(self.falling(len(coef))) < 0)]

    def value(self, coef: Array) -> float:
        return float(self.falling(len(coef)) @ np.sort(np.abs(coef))[::-1])

    def prox(self, coef: Array, step: float) -> Array:
        """Isotonic regression of the sorted sizes less the weights (Bogdan et al. 2015, Algorithm 3)."""
        order = np.argsort(-np.abs(coef), kind="stable")
        sizes = np.abs(coef)[order] - step * self.falling(len(coef))
        z = np.empty_like(coef)
        z[order] = np.maximum(isotonic_regression(sizes, increasing=False).x, 0.0)
        return np.sign(coef) * z

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """One direction a cluster, sign(β_j) on its members; none for those at zero.

        Where a cluster's weights are all equal there is no kink between its members, and each is free.
        """
        size, weights = np.abs(coef), self.falling(len(coef))
        order = np.argsort(-size, kind="stable")
        begins = _starts(size[order])
        first = np.flatnonzero(begins)
        sizes = np.diff(first, append=len(coef))
        begins |= np.repeat(weights[first] == weights[first + sizes - 1], sizes)  # no kink: all apart
        first = np.flatnonzero(begins)
        sizes = np.diff(first, append=len(coef))
        moves = (size[order[first]] > ZERO * size.max(initial=0.0)) | (weights[first] == 0)
        signs = np.where(moves, 1.0, 0.0).repeat(sizes) * np.where(coef < 0, -1.0, 1.0)[order]
        held, k = np.flatnonzero(signs), int(np.count_nonzero(moves))
        column = (np.cumsum(moves) - 1).repeat(sizes)
        entries = signs / np.sqrt(sizes).repeat(sizes)
        basis = sp.csc_array((entries[held], (order[held], column[held])), shape=(len(coef), k))
        gradient = np.zeros_like(coef)
        gradient[order] = (np.add.reduceat(weights, first) / sizes).repeat(sizes) * signs
        return Subspace.along(basis, gradient)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return bool(np.any(self.falling(shape[0]) > 0))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        return not self.has_kinks(shape)  # weights_1 · |β|_(1) is in the sum

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        """Whether the slopes in a cluster are majorised by its weights, for r problems at once.

        Sorted, their sums must not exceed those of the weights, and must equal them at the end of a
        cluster that is not at zero.  There the sums of the others must not fall short of theirs, which
        is the same but for what is known of it: that of small columns beside large ones is not lost.
        """
        p, column = len(coef), np.arange(coef.shape[1])
        extent = np.abs(coef)
        order = np.argsort(-extent, axis=0, kind="stable")
        sizes = extent[order, column]
        begins = _starts(sizes)
        at_zero = sizes <= ZERO * extent.max(axis=0, initial=0.0)
        slope = -loss_gradient[order, column]
        slope = np.where(at_zero, np.abs(slope), np.sign(coef[order, column]) * slope)
        by_slope = np.lexsort((-slope, np.cumsum(begins, axis=0)), axis=0)
        size = np.broadcast_to(size_of(loss_gradient, size), coef.shape)
        rank, ends = np.arange(p)[:, None], np.vstack([begins[1:], np.ones((1, len(column)), dtype=bool)])
        first = np.maximum.accumulate(np.where(begins, rank, 0), axis=0)  # rank at which its cluster begins
        after = np.minimum.accumulate(np.where(ends, rank + 1, p)[::-1], axis=0)[::-1]  # and ends
        own = np.stack(
            [slope[by_slope, column] - self.falling(p)[:, None], size[order, column][by_slope, column]]
        )
        sums = np.concatenate([np.zeros((2, 1, len(column))), np.cumsum(own, axis=1)], axis=1)
        excess, allowed = sums[:, 1:] - sums[:, first, column]
        lacking, left = sums[:, 1:] - sums[:, after, column]
        too_much = np.where(ends & ~at_zero, np.abs(excess), excess) > rtol * allowed
        too_little = ~at_zero & (lacking > -rtol * left)
        return ~np.any(too_much | too_little, axis=0)


@dataclass(frozen=True, eq=False)
class Slope(SortedNorm):
    """alpha Σ_k weights_k |β|_(k), where |β|_(1) ≥ |β|_(2) ≥ …: SLOPE, the sorted ℓ1 norm.

    Coefficients that are equal but for their sign form clusters, which move together.

    Parameters
    ----------
    weights : (p,) array
        Weights of the largest, second largest, … coefficient: non-increasing and at least 0.
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Bogdan, van den Berg, Sabatti, Su and Candès (2015), SLOPE: adaptive variable selection via convex
    optimization.

    Examples
    --------
    >>> import numpy as np
    >>> Slope([3.0, 2.0, 1.0]).value(np.array([1.0, -5.0, 0.0]))
    17.0
    """

    weights: Any
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_each(
            "weights", self.weights, np.size(self.weights), "one a feature, in non-increasing order"
        )
        rises = np.flatnonzero(np.diff(np.asarray(self.weights, dtype=np.float64)) > 0)
        if rises.size:
            raise ValueError(
                f"weights must be sorted in non-increasing order, but weights[{rises[0] + 1}] is above "
                f"weights[{rises[0]}]: give np.sort(weights)[::-1]"
            )

    @property
    def strengths(self) -> Array:
        """What the largest, second largest, … coefficient is multiplied with: (p,)."""
        return self.alpha * np.asarray(self.weights, dtype=np.float64)

    def falling(self, p: int) -> Array:
        return self.strengths

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        if shape[0] != np.size(self.weights):
            raise ValueError(
                f"weights are {np.size(self.weights)}, but the coefficients are {shape[0]}: one each"
            )


@dataclass(frozen=True, eq=False)
class LInfinity(SortedNorm):
    """alpha max_j |β_j|, the ℓ∞ norm: the largest coefficients are equal but for their sign.

    It is the sorted ℓ1 norm with the weights 1, 0, …, 0, and shares the pattern of ``Slope``.

    Parameters
    ----------
    alpha : float, default 1.0
        Strength.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), section 6 and appendix A.

    Examples
    --------
    >>> import numpy as np
    >>> LInfinity(2.0).value(np.array([1.0, -5.0, 0.0]))
    10.0
    >>> LInfinity(2.0).prox(np.array([1.0, -5.0, 4.0]), 1.0)
    array([ 1. , -3.5,  3.5])
    """

    alpha: float = 1.0

    def falling(self, p: int) -> Array:
        return self.alpha * np.eye(1, p).ravel()


def _starts(sizes: Array) -> Mask:
    """Where a new cluster starts in sorted sizes; the remnants at the end are the cluster at zero."""
    top = sizes[:1]
    drop = np.ones(sizes.shape, dtype=bool)
    drop[1:] = sizes[:-1] - sizes[1:] > ZERO * top
    zero = sizes <= ZERO * top
    drop[1:] = np.where(zero[1:], ~zero[:-1], drop[1:])
    return drop

"""What is fitted in passes over the rows, where it stands, the rows as such passes take them, and knots.

Along a path the leverages h of a row change smoothly with the strength, and those of all rows in the same
few ways.  On a sample of rows, a column-pivoted QR of h (rows times strengths) finds strengths, the knots,
whose columns span the others to a tolerance: an interpolative decomposition (Cheng, Gimbutas, Martinsson and
Rokhlin 2005).  Only at the knots is the curvature summed over all rows, and h computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import numpy as np
import scipy.linalg

from onefit._linalg import product
from onefit._typing import Array, Index
from onefit.blocks.rows import Block
from onefit.losses import Loss
from onefit.metrics import LinearMetric
from onefit.penalties import SeparablePenalty


@final
@dataclass(frozen=True)
class Models:
    """What is fitted: one loss, and a penalty for each of J strengths.

    Attributes
    ----------
    loss : Loss
        With two derivatives and one output.
    metric : LinearMetric
        By which left-out predictions are judged; reads the response.
    penalties : tuple of SeparablePenalty
        Strongest first.
    intercept : bool
    mean_scaled : bool
        Whether the penalty shrinks when a row leaves.
    """

    loss: Loss
    metric: LinearMetric
    penalties: tuple[SeparablePenalty, ...]
    intercept: bool
    mean_scaled: bool

    def some(self, which: Index) -> Models:
        """Return those of some strengths."""
        return replace(self, penalties=tuple(self.penalties[j] for j in which))


class Points(NamedTuple):
    """Coefficients and intercepts of J strengths, for columns less ``centre``."""

    coefs: Array  # (J, p)
    levels: Array  # (J,)
    centre: Array  # (p,)

    def some(self, which: Index) -> Points:
        """Return those of some strengths."""
        return Points(self.coefs[which], self.levels[which], self.centre)

    def predictors(self, X: Array) -> Array:
        """η of some rows, whose columns are centred: (J, r)."""
        return product(X, self.coefs.T).T + self.levels[:, None]

    @property
    def intercepts(self) -> Array:
        """Intercepts for columns as they are: (J,)."""
        return self.levels - self.coefs @ self.centre


def pieces(block: Block, metric: LinearMetric, centre: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Cut a block into pieces that stay in cache: X less the centre, y as the loss takes it, and weights."""
    for part in block.parts():
        target = np.asarray(metric.target(part.y), dtype=np.float64)
        weights = np.ones(len(target)) if part.weights is None else part.weights
        yield np.subtract(part.X, centre, dtype=np.float64), target, weights


def null_points(models: Models, centre: Array, level: float) -> Points:
    """The constant model, for each strength."""
    J = len(models.penalties)
    return Points(np.zeros((J, len(centre))), np.full(J, level if models.intercept else 0.0), centre)


class Knots(NamedTuple):
    """Strengths that stand for all.

    Attributes
    ----------
    at : (K,) int array
        Their positions among J.
    shares : (J, K) array
        What makes the h of all strengths of those of the knots.
    nearest : (J,) int array
        Position of the knot that is nearest to each strength.
    """

    at: Index
    shares: Array
    nearest: Index

    @classmethod
    def all(cls, J: int) -> Self:
        """Every strength is one."""
        every = np.arange(J)
        return cls(every, np.eye(J), every)

    @classmethod
    def of(cls, forms: Array, tolerance: float) -> Self:
        """Choose as few as the tolerance allows.

        Parameters
        ----------
        forms : (r, J) array
            h of some rows.
        tolerance : float
            Root mean square of the error of h, relative to what a row has at the average strength.
        """
        relative = forms / forms.mean(axis=1, keepdims=True)
        R, order = scipy.linalg.qr(relative, mode="r", pivoting=True)
        J = relative.shape[1]
        left = [float(np.linalg.norm(R[k:, k:], axis=0).max(initial=0.0)) for k in range(J)]
        enough = [k for k in range(1, J) if left[k] <= tolerance * np.sqrt(len(forms))]
        K = enough[0] if enough else J
        shares = np.zeros((J, K))
        shares[order[:K]] = np.eye(K)
        shares[order[K:]] = scipy.linalg.solve_triangular(R[:K, :K], R[:K, K:]).T
        at = order[:K]
        sort = np.argsort(at)
        at, shares = at[sort], shares[:, sort]
        nearest = at[np.abs(np.arange(J)[:, None] - at).argmin(axis=1)]
        return cls(at, shares, nearest)

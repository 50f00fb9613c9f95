"""The first pass: sums over the rows, of which every squared-loss path is solved.

Each block is centred by its own means, and two sums are joined by the update of Chan, Golub and LeVeque
(1983), "Algorithms for computing the sample variance": with δ the difference of the means,

    S = S_a + S_b + W_a W_b / (W_a + W_b) δ δᵀ,

so that columns far from zero lose no digits, in whatever order blocks are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._linalg import add_gram, product
from onefit._typing import Array
from onefit.blocks.rows import Block


@dataclass(frozen=True, eq=False)
class RowSums:
    """Weighted sums over rows.

    Attributes
    ----------
    count : int
        Rows with weight.
    weight, square_weight : float
        Σ w and Σ w².
    largest_weight : float
    means : (p,) array
    y_means : (t,) array
    gram : (p, p) array
        Σ w (x − x̄)(x − x̄)ᵀ, symmetric.
    cross : (p, t) array
        Σ w (x − x̄)(y − ȳ)ᵀ.
    squares : (t,) array
        Σ w (y − ȳ)².
    has_intercept : bool
        Whether they are about the means; else about zero, with x̄ and ȳ in the formulas above zero.
    """

    count: int
    weight: float
    square_weight: float
    largest_weight: float
    means: Array
    y_means: Array
    gram: Array
    cross: Array
    squares: Array
    has_intercept: bool = True

    @classmethod
    def of(cls, block: Block) -> RowSums:
        """Sum over the rows of a block of any size."""
        total: RowSums | None = None
        for part in block.parts():
            own = _of_part(part)
            total = own if total is None else total + own
        if total is None:
            raise ValueError("a block has no rows: leave it out")
        return total

    def __add__(self, other: RowSums) -> RowSums:
        weight = self.weight + other.weight
        if not other.weight > 0 or not self.weight > 0:
            return other if other.weight > 0 else self
        share, both = other.weight / weight, self.weight * other.weight / weight
        x, y = other.means - self.means, other.y_means - self.y_means
        return RowSums(
            self.count + other.count,
            weight,
            self.square_weight + other.square_weight,
            max(self.largest_weight, other.largest_weight),
            self.means + share * x,
            self.y_means + share * y,
            self.gram + other.gram + both * np.outer(x, x),
            self.cross + other.cross + both * np.outer(x, y),
            self.squares + other.squares + both * y**2,
        )

    def about_zero(self) -> RowSums:
        """Return the sums of squares and products about zero, for models without an intercept."""
        x, y, weight = self.means, self.y_means, self.weight
        return RowSums(
            self.count,
            weight,
            self.square_weight,
            self.largest_weight,
            np.zeros_like(x),
            np.zeros_like(y),
            self.gram + weight * np.outer(x, x),
            self.cross + weight * np.outer(x, y),
            self.squares + weight * y**2,
            has_intercept=False,
        )

    @property
    def spread(self) -> float:
        """Root mean square of the responses, about their means or about zero."""
        return float(np.sqrt(np.mean(self.squares) / self.weight))

    @property
    def base_leverage(self) -> float:
        """Leverage of the intercept, relative to a row's weight: 1/W, or 0."""
        return 1.0 / self.weight if self.has_intercept else 0.0

    @property
    def has_equal_weights(self) -> bool:
        """Whether all rows that count have the same weight, to rounding."""
        mean = self.weight / self.count
        return self.largest_weight <= mean * (1.0 + 1e-12)


def _of_part(part: Block) -> RowSums:
    weights = part.weights
    y = np.asarray(part.y, dtype=np.float64).reshape(len(part.y), -1)
    if weights is None:
        total, squares, largest, count = float(len(y)), float(len(y)), 1.0, len(y)
        means, y_means = part.X.mean(axis=0, dtype=np.float64), y.mean(axis=0)
    else:
        total, squares = float(weights.sum()), float(weights @ weights)
        largest, count = float(weights.max(initial=0.0)), int(np.count_nonzero(weights))
        held = total if total > 0 else 1.0
        means, y_means = product(np.asarray(part.X, np.float64).T, weights) / held, y.T @ weights / held
    X = np.subtract(part.X, means, dtype=np.float64)
    y = y - y_means
    if weights is not None:
        root = np.sqrt(weights)[:, None]
        X *= root
        y *= root
    p = X.shape[1]
    lower = add_gram(np.zeros((p, p), order="F"), X)
    gram = np.tril(lower) + np.tril(lower, -1).T
    return RowSums(
        count, total, squares, largest, means, y_means, gram, product(X.T, y), np.einsum("it,it->t", y, y)
    )

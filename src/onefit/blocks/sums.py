"""The first pass: sums over the rows, of which every squared-loss path is solved.

Each block is centred by means of its own, and two sums are joined by the update of Chan, Golub and LeVeque
(1983), "Algorithms for computing the sample variance": with δ the difference of the means,

    S = S_a + S_b + W_a W_b / (W_a + W_b) δ δᵀ,

so that columns far from zero lose no digits, in whatever order blocks are joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onefit._linalg import add_gram, beyond_rounding, mirrored, product
from onefit._typing import Array
from onefit.blocks.rows import Block
from onefit.exceptions import SolverError
from onefit.tuning.pulls import in_errors

FAR = 1000.0  # spreads from zero: what tells such columns apart has six of sixteen digits less


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

    def largest_pull(self, coef: Array, risk: Array | float, *, nonnegative: bool = False) -> Array:
        """Largest product of a column with residuals of such a variance, in standard errors.

        As ``tuning.pulls`` tells of a fit.

        Parameters
        ----------
        coef : (p,) or (p, J) array
            Of the first response.
        risk : float or (J,) array
        nonnegative : bool, default False
            Whether no coefficient goes below zero, wherever it is pulled.
        """
        own = coef.reshape(len(coef), -1)
        pull = self.cross[:, :1] - product(self.gram, own)
        if nonnegative:
            pull = np.where(own == 0, np.maximum(pull, 0.0), pull)
        squares = np.multiply.outer(self.gram.diagonal() * (self.square_weight / self.weight), risk)
        t = in_errors(np.abs(pull), squares.reshape(pull.shape))
        return np.asarray(t.max(axis=0, initial=0.0).reshape(coef.shape[1:]))

    @classmethod
    def of(cls, block: Block) -> RowSums:
        """Sum over the rows of a block of any size."""
        pile = _Pile.about(next(block.parts()))
        for part in block.parts():
            pile.add(part)
        return pile.sums()

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
        """Return the sums of squares and products about zero, for models without an intercept.

        Raises
        ------
        SolverError
            If two columns lie so far from zero, beside their spread, that these do not tell them apart.
        """
        x, y, weight = self.means, self.y_means, self.weight
        far = np.flatnonzero(weight * x**2 > FAR**2 * self.gram.diagonal())
        if far.size > 1:
            raise SolverError(
                f"columns {far[0]} and {far[1]}{' and others' * (far.size > 2)} lie more than {FAR:.0f} "
                "times their spread from zero, and without an intercept sums over the rows do not tell them "
                "apart: fit an intercept, or subtract their means"
            )
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

    def of_response(self, k: int) -> RowSums:
        """Return the sums of one of several responses."""
        cross, squares, means = self.cross[:, [k]], self.squares[[k]], self.y_means[[k]]
        return replace(self, cross=cross, squares=squares, y_means=means)

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


@dataclass(eq=False)
class _Pile:
    """Sums over the pieces of a block about the means of the first one, which are near those of all."""

    means: Array
    y_means: Array
    gram: Array
    cross: Array
    squares: Array
    firsts: Array
    y_firsts: Array
    count: int = 0
    weight: float = 0.0
    square_weight: float = 0.0
    largest_weight: float = 0.0

    @classmethod
    def about(cls, part: Block) -> _Pile:
        p, y = part.X.shape[1], _responses(part)
        own = part.weights if part.weights is not None and np.any(part.weights) else np.ones(len(y))
        shares, t = own / own.sum(), y.shape[1]
        means = product(np.asarray(part.X, dtype=np.float64).T, shares)
        sums = np.zeros((p, p), order="F"), np.zeros((p, t)), np.zeros(t), np.zeros(p), np.zeros(t)
        return cls(means, shares @ y, *sums)

    def add(self, part: Block) -> None:
        X, y = np.subtract(part.X, self.means, dtype=np.float64), _responses(part) - self.y_means
        weights = part.row_weights
        self.count += int(np.count_nonzero(weights))
        self.weight += float(weights.sum())
        self.square_weight += float(weights @ weights)
        self.largest_weight = max(self.largest_weight, float(weights.max(initial=0.0)))
        self.firsts += product(X.T, weights)
        self.y_firsts += weights @ y
        if part.weights is not None:
            root = np.sqrt(weights)[:, None]
            X *= root
            y *= root
        add_gram(self.gram, X)  # in place
        self.cross += product(X.T, y)
        self.squares += np.einsum("it,it->t", y, y)

    def sums(self) -> RowSums:
        """Move them to the means of all pieces."""
        weight = self.weight or 1.0
        x, y = self.firsts / weight, self.y_firsts / weight
        means, gram = self.means + x, mirrored(self.gram) - self.weight * np.outer(x, x)
        varies = beyond_rounding(self.gram.diagonal(), self.firsts, means, self.weight) > 0
        y_varies = beyond_rounding(self.squares, self.y_firsts, self.y_means + y, self.weight) > 0
        return RowSums(
            self.count,
            self.weight,
            self.square_weight,
            self.largest_weight,
            means,
            self.y_means + y,
            gram * np.outer(varies, varies),
            (self.cross - self.weight * np.outer(x, y)) * np.outer(varies, y_varies),
            (self.squares - self.weight * y**2) * y_varies,
        )


def _responses(part: Block) -> Array:
    """One column a response: (b, t)."""
    return np.asarray(part.y, dtype=np.float64).reshape(len(part.y), -1)

"""The covariance of rows, diagonalised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit._linalg.blas import eigh, mirrored
from onefit._linalg.columns import as_columns, column_means
from onefit._typing import Array, Design


@dataclass(frozen=True, eq=False)
class Covariance:
    """S = V diag(s) Vᵀ of rows that count by shares, with their means or about zero.

    Attributes
    ----------
    X : (n, r) design
    means : (r,) array
        Zero where none are taken off.
    spread : (r,) array
        s, at least 0.
    directions : (r, r) array
        V.
    """

    X: Design
    means: Array
    spread: Array
    directions: Array

    @classmethod
    def of(cls, X: Design, shares: Array, *, centred: bool) -> Covariance:
        """That of the rows of a design, with shares (n,) that sum to 1."""
        means = column_means(X, shares) if centred else np.zeros(X.shape[1])
        spread, V = eigh(mirrored(as_columns(X).weighted_gram(means if centred else None, shares)))
        return cls(X, means, np.maximum(spread, 0.0), V)

    @cached_property
    def squares(self) -> Array:
        """Squares of the coordinates of all rows: (n, r)."""
        return (as_columns(self.X).times(self.directions) - self.means @ self.directions) ** 2

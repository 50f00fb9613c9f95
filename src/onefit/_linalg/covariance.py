"""The covariance of rows, diagonalised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit._linalg.blas import eigh, mirrored
from onefit._linalg.columns import as_columns, column_means
from onefit._typing import Array, Design

Scale = Callable[[Array], Array]  # of columns, by their variances


@dataclass(frozen=True, eq=False)
class Covariance:
    """S = V diag(s) Vᵀ of rows that count by shares, with their means or about zero, in scaled columns.

    Attributes
    ----------
    X : (n, r) design
    means : (r,) array
        Zero where none are taken off.
    spread : (r,) array
        s, at least 0.
    directions : (r, r) array
        V, by which unscaled columns are multiplied.
    """

    X: Design
    means: Array
    spread: Array
    directions: Array

    @classmethod
    def of(
        cls, X: Design, shares: Array | None = None, scale: Scale = np.ones_like, *, centred: bool
    ) -> Covariance:
        """That of the rows of a design, with shares (n,) that sum to 1: by default all count alike."""
        shares = np.full(X.shape[0], 1.0 / X.shape[0]) if shares is None else shares
        means = column_means(X, shares) if centred else np.zeros(X.shape[1])
        S = mirrored(as_columns(X).weighted_gram(means if centred else None, shares))
        by = scale(S.diagonal())
        spread, V = eigh(by[:, None] * S * by)
        return cls(X, means, np.maximum(spread, 0.0), by[:, None] * V)

    @cached_property
    def squares(self) -> Array:
        """Squares of the coordinates of all rows: (n, r)."""
        return (as_columns(self.X).times(self.directions) - self.means @ self.directions) ** 2

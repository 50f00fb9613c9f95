"""A design that is known only through its Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._linalg.blas import product
from onefit._linalg.design import Design
from onefit._typing import Array, Index


@dataclass(frozen=True)
class RowGram(Design):
    """A design known only through G = X Xᵀ (n, n): a kernel model.

    Its coefficients are the dual ones, a (n,), with η = G a and ‖β‖² = aᵀ G a; a gradient is held as the
    rows c of Xᵀ c.
    """

    gram: Array

    has_columns = False
    is_full = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.gram.shape[0], self.gram.shape[0]

    def times(self, coef: Array) -> Array:
        return product(self.gram, coef)

    def transposed_times(self, rows: Array) -> Array:
        return rows

    def sum_of_rows(self, weights: Array) -> Array:
        return product(self.gram, weights)

    def pairing(self, gradient: Array, coef: Array) -> float:
        return float(np.sum(gradient * product(self.gram, coef)))

    def some_rows(self, which: Index) -> RowGram:
        return RowGram(self.gram[np.ix_(which, which)])

    def dense_rows(self, which: Index | slice = slice(None)) -> Array:
        return self.gram[which]

    def basis_of_rows(self, which: Index | slice = slice(None)) -> Array:
        return np.eye(self.shape[0])[:, which]

    def squared_lengths(self, which: Index) -> Array:
        return self.gram.diagonal()[which]

    def row_gram(self, column_weights: Array) -> Array:
        return self.gram * column_weights[0]

    def gram_with(self, new: Any, column_weights: Array) -> Array:
        """``new`` is X̃ Xᵀ itself, or a RowGram too."""
        return (new.gram if isinstance(new, RowGram) else np.asarray(new)) * column_weights[0]

    def same_as(self, other: Design) -> bool:
        return isinstance(other, RowGram) and bool(np.array_equal(self.gram, other.gram))

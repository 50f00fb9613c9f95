"""Rows less their mean, by their weights, as ridge sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design


@dataclass(frozen=True, eq=False)
class CentredDesign:
    """X̃ = W^½ (X − 1 x̄ᵀ), never formed; x̄ is the mean of the rows, or 0."""

    X: Design
    weights: Array
    centred: bool

    @cached_property
    def root(self) -> Array:
        return np.sqrt(self.weights)

    @cached_property
    def means(self) -> Array:
        """x̄: (p,)."""
        return _linalg.column_means(self.X, self.weights) if self.centred else np.zeros(self.X.shape[1])

    @cached_property
    def share(self) -> Array:
        """Leverage of the intercept: w_i / Σw, or 0."""
        return self.weights / self.weights.sum() if self.centred else np.zeros(len(self.weights))

    def level(self, y: Array) -> Array:
        """Mean of each response, or 0: (...) for (n, ...)."""
        return np.average(y, axis=0, weights=self.weights) if self.centred else np.zeros(y.shape[1:])

    def times(self, coef: Array) -> Array:
        """X̃ coef, for (p, m) coefficients: (n, m)."""
        return self.root[:, None] * (_linalg.times(self.X, coef) - self.means @ coef)

    def transposed_times(self, rows: Array) -> Array:
        """X̃ᵀ rows, for (n, m) rows: (p, m)."""
        rows = self.root[:, None] * rows
        product = _linalg.transposed_times(self.X, rows)
        return product - np.outer(self.means, rows.sum(axis=0)) if self.centred else product

    def gram(self) -> Array:
        """X̃ᵀX̃: (p, p)."""
        lower = _linalg.as_columns(self.X).weighted_gram(self.means if self.centred else None, self.weights)
        return np.asfortranarray(_linalg.mirrored(lower))

    def row_gram(self, column_weights: Array) -> Array:
        """X̃ diag(column_weights) X̃ᵀ: (n, n)."""
        return self.from_products(_linalg.as_design(self.X).row_gram(column_weights))

    def from_products(self, gram: Array) -> Array:
        """The same from the inner products of the rows of X as they are."""
        if self.centred:
            gram = _linalg.centred_gram(gram, self.share)
        return gram * np.outer(self.root, self.root) if np.any(self.weights != 1.0) else gram

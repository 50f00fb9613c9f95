"""Ridge at every strength from sums over rows: one eigendecomposition (Golub, Heath and Wahba 1979)."""

from __future__ import annotations

from dataclasses import dataclass

from onefit._linalg import positive_eigenpairs, product
from onefit._typing import Array
from onefit.blocks.left_out_path import Directions
from onefit.blocks.sums import RowSums


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of Σ w z zᵀ above rounding, and their vectors.

    Attributes
    ----------
    sums : RowSums
    values : (r,) array
    vectors : (p, r) array
    """

    sums: RowSums
    values: Array
    vectors: Array

    @classmethod
    def of(cls, sums: RowSums) -> Spectrum:
        """Decompose."""
        return cls(sums, *positive_eigenpairs(sums.gram))

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values.max(initial=0.0))

    def coefs(self, alphas: Array) -> Array:
        """Coefficients at every strength: (p, t, J)."""
        along = product(self.vectors.T, self.sums.cross)
        shrunk = along[:, :, None] / (self.values[:, None] + alphas)[:, None, :]
        return product(self.vectors, shrunk.reshape(len(shrunk), -1)).reshape(
            len(self.vectors), -1, len(alphas)
        )

    def leverages(self, alphas: Array) -> Directions:
        """Leverages at every strength."""
        return Directions(slice(0, len(alphas)), self.vectors, 1.0 / (self.values[:, None] + alphas))

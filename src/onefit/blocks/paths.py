"""From sums over rows to what rows are judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onefit._linalg import positive_eigenpairs, product
from onefit._typing import Array, Index
from onefit.blocks.left_out_path import Directions, LeftOutPath
from onefit.blocks.net import solve_net
from onefit.blocks.patterns import Patterns
from onefit.blocks.sums import RowSums
from onefit.numerics import EPS_SINGLE

# What single precision may take off a residual of usual size, relatively: the mean of n squares is right to
# about twice that over √n, and never worse than twice that.
SINGLE = 2e-5


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of Σ w z zᵀ above rounding, and their vectors (Golub, Heath and Wahba 1979).

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


def ridge_path(sums: RowSums, alphas: Array) -> LeftOutPath:
    """Ridge of one response at every strength.

    Parameters
    ----------
    sums : RowSums
        Of all rows; about zero for models without an intercept.
    alphas : (J,) array
        On the scale of ``sklearn.linear_model.Ridge``.
    """
    spectrum = Spectrum.of(sums)
    coefs = spectrum.coefs(alphas)[:, 0]
    path = _path(sums, coefs, np.zeros_like(coefs), (spectrum.leverages(alphas),))
    return replace(path, is_smooth=True)


def net_path(sums: RowSums, alphas: Array, l1_ratio: float = 1.0) -> LeftOutPath:
    """Lasso or elastic net at every strength, exactly.

    Parameters
    ----------
    sums : RowSums
        Of all rows; about zero for models without an intercept.
    alphas : (J,) array
        On the scale of ``sklearn.linear_model.ElasticNet``, strongest first.
    l1_ratio : float
        In (0, 1].
    """
    return _path(sums, *solve_net(sums, alphas, l1_ratio))


def net_path_exactly(
    path: LeftOutPath, sums: RowSums, alphas: Array, l1_ratio: float, which: Index
) -> LeftOutPath:
    """Solve rows whose pattern changes anew, at some strengths of a path.

    Where rows of unequal weights keep unequal shares of an ℓ2 part, nothing is gained.
    """
    if which.size == 0 or (l1_ratio < 1.0 and not sums.has_equal_weights):
        return path
    own = sums.weight * alphas[which]
    kept = (1.0 - l1_ratio) * (1.0 - 1.0 / sums.count) * own
    patterns = Patterns.of(sums, path.coefs[:, which], path.drifts[:, which], l1_ratio * own, kept)
    return replace(path, exactly=((which, patterns),), single=False)


def _path(sums: RowSums, coefs: Array, drifts: Array, leverages: tuple[Directions, ...]) -> LeftOutPath:
    left = _left(sums, coefs)
    guessed = left / sums.weight / np.maximum(1.0 - _freedom(sums, leverages) / sums.count, 1e-8) ** 2
    reference = int(guessed.argmin())
    spread = np.sqrt(sums.gram.diagonal())
    apart = spread @ np.abs(coefs - coefs[:, [reference]])
    off = EPS_SINGLE * apart / np.sqrt(np.maximum(left, np.finfo(float).tiny))
    return LeftOutPath(
        means=sums.means,
        y_mean=float(sums.y_means[0]),
        base=sums.base_leverage,
        coefs=coefs,
        drifts=drifts,
        leverages=leverages,
        reference=reference,
        weight=sums.largest_weight if sums.has_equal_weights else None,
        single=bool(off.max(initial=0.0) <= SINGLE),
        guessed_risks=guessed,
    )


def _left(sums: RowSums, coefs: Array) -> Array:
    """Σ w r² of each fit: (J,)."""
    fitted = np.einsum("pj,pj->j", coefs, sums.gram @ coefs) - 2.0 * sums.cross[:, 0] @ coefs
    return np.maximum(sums.squares[0] + fitted, 0.0)


def _freedom(sums: RowSums, leverages: tuple[Directions, ...]) -> Array:
    """Degrees of freedom of each fit beside the intercept: (J,)."""
    own = [np.einsum("pm,pm->m", T, sums.gram @ T) @ shares for _, T, shares in leverages]
    return np.concatenate(own)

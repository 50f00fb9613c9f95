"""Ridge of many responses at every strength, after one decomposition of the smaller Gram matrix.

X̃ is that of ``CentredDesign``, which is never formed.  With more rows than columns X̃ᵀX̃ is diagonalised; with
more columns than rows X̃X̃ᵀ is made tridiagonal, which is exact for every strength too, and cheaper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal, lapack

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.inner_products import InnerProducts
from onefit.risk.permutation import PermutationCriterion, value_of_norms

GRID = (1e-6, 1e3)  # strengths of the test and of a start, relative to the largest eigenvalue
GRID_SIZE = 60


def flat(responses: Array) -> Array:
    """All outputs of all targets beside one another: (n, T + 1, t) as (n, (T + 1) t)."""
    rows, count, outputs = responses.shape
    return responses.reshape(rows, count * outputs)


@dataclass(frozen=True, eq=False)
class CentredDesign:
    """X̃ = W^½ (X − 1 x̄ᵀ), as ridge sees the rows, never formed; x̄ is their mean, or 0."""

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

    def rows(self) -> Array:
        """X̃ itself: (n, p)."""
        return np.asarray(self.root[:, None] * (_linalg.dense(self.X) - self.means))

    def times(self, coef: Array) -> Array:
        """X̃ coef, for (p, m) coefficients: (n, m)."""
        return self.root[:, None] * (_linalg.times(self.X, coef) - self.means @ coef)

    def transposed_times(self, rows: Array) -> Array:
        """X̃ᵀ rows, for (n, m) rows: (p, m)."""
        rows = self.root[:, None] * rows
        product = _linalg.transposed_times(self.X, rows)
        return product - np.outer(self.means, rows.sum(axis=0)) if self.centred else product

    def column_squares(self) -> Array:
        """Squared lengths of the columns of X̃: (p,)."""
        return np.asarray(_linalg.column_norms(self.X, self.weights, centred=self.centred) ** 2)

    def gram(self) -> Array:
        """X̃ᵀX̃, 0 where columns are constant but for rounding: (p, p)."""
        lower = _linalg.as_columns(self.X).weighted_gram(self.means if self.centred else None, self.weights)
        constant = _linalg.column_norms(self.X, self.weights, centred=self.centred) == 0
        lower[constant], lower[:, constant] = 0.0, 0.0
        return _linalg.mirrored(lower)

    def row_gram(self, column_weights: Array) -> Array:
        """X̃ diag(column_weights) X̃ᵀ: (n, n)."""
        return self._weighted(_linalg.as_design(self.X).centred_row_gram(column_weights, self.share))

    def from_products(self, known: InnerProducts) -> Array:
        """The same, with column weights of one, from the inner products of the rows."""
        own = _linalg.centred_gram(known.about_mean, self.share) if self.centred else known.gram
        return self._weighted(own)

    def _weighted(self, gram: Array) -> Array:
        return gram * np.outer(self.root, self.root) if np.any(self.weights != 1.0) else gram


@dataclass(frozen=True, eq=False)
class RidgeCoordinates(ABC):
    """Orthonormal coordinates of the rows in which (X̃X̃ᵀ + λI)⁻¹ is cheap for every λ, and the targets there.

    Attributes
    ----------
    design : CentredDesign
    targets : (n, T + 1, t) array
        As ``risk.permutation.permuted_targets`` returns them.
    """

    design: CentredDesign
    targets: Array

    @property
    @abstractmethod
    def criterion(self) -> PermutationCriterion:
        """The criterion in these coordinates: (r, T + 1, t)."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """Largest eigenvalue of X̃ᵀX̃; 1 if all columns are constant."""

    @abstractmethod
    def unexplained(self, strength: float, along: Array) -> Array:
        """λ (X̃X̃ᵀ + λI)⁻¹ a, what ridge leaves of a response, in these coordinates: the shape of a."""

    @abstractmethod
    def columns(self, along: Array) -> Array:
        """X̃ᵀ a, for a in these coordinates: (p, t)."""

    @property
    def stacked(self) -> Array:
        """All targets of all outputs: (n, (T + 1) t)."""
        return flat(self.targets)

    @property
    def grid(self) -> Array:
        """Strengths that depend on X only: (J,)."""
        return self.scale * np.geomspace(*GRID, GRID_SIZE)

    @cached_property
    def grid_norms(self) -> Array:
        """‖e‖ of every target at every strength of the grid: (J, T + 1)."""
        inside = self.criterion.targets
        left = (self.unexplained(strength, inside) for strength in self.grid)
        return np.array([self.criterion.norms(inside - rest) for rest in left])

    def next_to_the_null_model(self) -> float:
        """The strongest strength of the grid from which the criterion falls in neither direction."""
        values = np.array([value_of_norms(norms) for norms in self.grid_norms])[::-1]
        weaker_is_worse = np.append(values[1:] > values[:-1], True)
        return float(self.grid[::-1][np.argmax(weaker_is_worse)])


@dataclass(frozen=True, eq=False)
class ColumnCoordinates(RidgeCoordinates):
    """Those of the left singular vectors, from the eigendecomposition of X̃ᵀX̃ (p, p): for p ≤ n."""

    @cached_property
    def gram(self) -> Array:
        """X̃ᵀX̃: (p, p)."""
        return self.design.gram()

    @cached_property
    def correlations(self) -> Array:
        """X̃ᵀ targets: (p, (T + 1) t)."""
        return self.design.transposed_times(self.stacked)

    @cached_property
    def eigenpairs(self) -> tuple[Array, Array]:
        """Eigenvalues of X̃ᵀX̃ above rounding, (r,), and their vectors (p, r)."""
        return _linalg.positive_eigenpairs(self.gram)

    @cached_property
    def projected(self) -> Array:
        """The targets in these coordinates: (r, (T + 1) t)."""
        values, vectors = self.eigenpairs
        return _linalg.product(vectors.T, self.correlations) / np.sqrt(values)[:, None]

    @cached_property
    def criterion(self) -> PermutationCriterion:
        _, count, outputs = self.targets.shape
        inside = self.projected.reshape(-1, count, outputs)
        if len(inside) >= len(self.targets) - int(self.design.centred):  # nothing is out of reach
            return PermutationCriterion(inside)
        whole = np.einsum("imt,imt->m", self.targets, self.targets)
        return PermutationCriterion(inside, np.maximum(whole - np.einsum("imt,imt->m", inside, inside), 0.0))

    @cached_property
    def scale(self) -> float:
        return float(self.eigenpairs[0].max(initial=0.0)) or 1.0

    def unexplained(self, strength: float, along: Array) -> Array:
        return _linalg.row_times(strength / (self.eigenpairs[0] + strength), along)

    def columns(self, along: Array) -> Array:
        values, vectors = self.eigenpairs
        return _linalg.product(vectors, np.sqrt(values)[:, None] * along)

    @cached_property
    def grid_norms(self) -> Array:  # all strengths in one product
        shrink = self.grid[:, None] / (self.eigenpairs[0] + self.grid[:, None])
        squares = np.einsum("rmt,rmt->rm", self.criterion.targets, self.criterion.targets)
        return np.sqrt(_linalg.product(shrink**2, squares) + self.criterion.beyond)


@dataclass(frozen=True, eq=False)
class RowCoordinates(RidgeCoordinates):
    """Those in which X̃X̃ᵀ (n, n) is tridiagonal: for p > n.

    The first half of an eigendecomposition, at a third of its price or less: X̃X̃ᵀ = H T Hᵀ with H a
    product of n reflections, which are applied to the targets and never multiplied out.  After that every λ
    costs one tridiagonal solve, O(n) a target.
    """

    @cached_property
    def _reduction(self) -> tuple[Array, Array, Array, Array]:
        """Diagonal and subdiagonal of T, the vectors of the reflections and their factors."""
        gram = np.asfortranarray(self.design.row_gram(np.ones(self.design.X.shape[1])))
        size = int(lapack.dsytrd_lwork(len(gram), lower=1)[0])
        reflected, diagonal, beside, factors, _ = lapack.dsytrd(gram, lower=1, lwork=size, overwrite_a=1)
        return diagonal, beside, np.asfortranarray(reflected[1:, :-1]), factors

    def _reflect(self, rows: Array, transposed: bool) -> Array:
        """Hᵀ rows or H rows, for rows (n, ...)."""
        flat = np.array(rows.reshape(len(rows), -1), order="F")
        _, _, vectors, factors = self._reduction
        size = 64 * max(1, flat.shape[1])
        part = lapack.dormqr("L", "T" if transposed else "N", vectors, factors, flat[1:], size)[0]
        flat[1:] = part
        return flat.reshape(rows.shape)

    def to_rows(self, along: Array) -> Array:
        """H a: (n, ...)."""
        return self._reflect(along, transposed=False)

    def from_rows(self, rows: Array) -> Array:
        """Hᵀ rows: (n, ...)."""
        return self._reflect(rows, transposed=True)

    @cached_property
    def criterion(self) -> PermutationCriterion:
        return PermutationCriterion(self.from_rows(self.targets))

    @cached_property
    def scale(self) -> float:
        diagonal, beside = self._reduction[:2]
        last = len(diagonal) - 1
        top = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(last, last))
        return float(top[0]) if top[0] > np.finfo(float).tiny else 1.0

    def unexplained(self, strength: float, along: Array) -> Array:
        diagonal, beside = self._reduction[:2]
        solved = lapack.dptsv(diagonal + strength, beside, along.reshape(len(along), -1))[2]
        return strength * solved.reshape(along.shape)

    def columns(self, along: Array) -> Array:
        return self.design.transposed_times(self.to_rows(along))


def coordinates(design: CentredDesign, targets: Array) -> ColumnCoordinates | RowCoordinates:
    """Those of the smaller side."""
    n, p = design.X.shape
    return RowCoordinates(design, targets) if p > n else ColumnCoordinates(design, targets)

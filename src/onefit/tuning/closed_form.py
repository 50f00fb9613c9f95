"""The closed-form families of Lounici, Meziani and Riu (2020): all T + 1 fits at once, with derivatives.

With X̃ = W^½ (X − 1 x̄ᵀ) and all T + 1 targets as the columns of Y, ridge (eq. 8), the quasi-sparse family
(definition 1, eq. 9) and their aggregate (definition 2, eq. 10) predict

    F_R = X̃ (X̃ᵀX̃ + λI)⁻¹ X̃ᵀ Y,    F_S = X̃ S (S X̃ᵀX̃ S + λI)⁻¹ S X̃ᵀ Y,    F_A = σ(μ) F_R + (1 − σ(μ)) F_S

with S = diag(s) and s_j = σ(κ (Σ_k (γ_k − γ̄)² + 10⁻²)(γ_j − γ̄)), σ the logistic sigmoid.  Given
D = ∂R/∂F, the derivatives need one more solve with the same factor: with α = (S X̃ᵀX̃ S + λI)⁻¹ S X̃ᵀY, v the
same of D, and E = Y − F_S,

    ∂R/∂λ = −⟨v, α⟩,      ∂R/∂s_j = Σ_t [ (X̃ᵀD)_jt α_jt + v_jt (X̃ᵀE)_jt − (X̃ᵀX̃ S v)_jt α_jt ];

on the side of the rows, with M = X̃ S² X̃ᵀ + λI, A = M⁻¹Y (so that E = λA) and B = M⁻¹D,

    ∂R/∂λ = −⟨D, A⟩ + λ⟨B, A⟩,      ∂R/∂s_j = 2 s_j λ Σ_t (X̃ᵀB)_jt (X̃ᵀA)_jt.

All three maps Y ↦ Y − F are symmetric with eigenvalues in (0, 1], so no target is fitted worse than by the
null model, 1 − ‖e‖ never changes sign, and the criterion is smooth in the parameters wherever no fit is
perfect.

Positive parameters are moved in their logarithm, as the steps of the paper's table 1 ask for: from λ = 10³,
steps of 0.5 in λ itself would take more than its 1000 iterations to arrive anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.special import expit

from onefit import _linalg
from onefit._typing import Array
from onefit.risk.permutation import PermutationCriterion
from onefit.tuning.ridge_coordinates import ColumnCoordinates, RidgeCoordinates, RowCoordinates, flat

Pullback: TypeAlias = Callable[[Array], Array]

START_KAPPA = 0.1  # the paper's table 1
START_MU = 0.0
FLOOR = 1e-2  # what is added to the spread of gamma in definition 1
WEAKEST, STRONGEST = 1e-10, 1e15  # bounds of lambda, relative to the largest eigenvalue
KAPPA_BOUNDS = (1e-6, 1e6)
GAMMA_UNIT = 30.0  # at the start s changes by κ 10⁻²/4 with γ: in units of 1 a search would move λ only


class Family(ABC):
    """Closed-form fits of all targets, as functions of parameters theta.

    ``theta`` is log λ; then, where S is, log κ and γ; then, for the aggregate, μ.
    """

    @property
    @abstractmethod
    def criterion(self) -> PermutationCriterion:
        """The criterion in the coordinates of the predictions."""

    @abstractmethod
    def fits(self, theta: Array) -> tuple[Array, Pullback]:
        """Predictions of all targets, and the map from a slope in them to the gradient in theta."""

    @abstractmethod
    def coefficients(self, theta: Array) -> Array:
        """Coefficients for the response, in its scaled form: (p, t)."""

    @abstractmethod
    def selection(self, theta: Array) -> Array:
        """Share of each column that is let through, in [0, 1]: (p,)."""

    @abstractmethod
    def start(self, strength: float) -> Array:
        """The paper's start (table 1), from a strength λ."""

    @abstractmethod
    def bounds(self) -> Array:
        """Least and greatest value of each parameter: (m, 2)."""

    def units(self) -> Array:
        """What counts as a step of one in each parameter, where steps are not scaled one by one: (m,)."""
        return np.ones(len(self.bounds()))

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """The criterion and its gradient in theta."""
        predictions, pullback = self.fits(theta)
        value, slope = self.criterion.value_and_slope(predictions)
        return value, pullback(slope)


@dataclass(frozen=True, eq=False)
class Ridge(Family):
    """Ridge, eq. 8: after one decomposition, at a cost of O(r (T + 1)) an evaluation.

    With E = λ (X̃X̃ᵀ + λI)⁻¹ Y, F = Y − E and dE/d log λ = E − λ (X̃X̃ᵀ + λI)⁻¹ E.
    """

    space: RidgeCoordinates

    @property
    def criterion(self) -> PermutationCriterion:
        return self.space.criterion

    def fits(self, theta: Array) -> tuple[Array, Pullback]:
        strength, targets = float(np.exp(theta[0])), self.space.criterion.targets
        error = self.space.unexplained(strength, targets)

        def pullback(slope: Array) -> Array:
            return np.array([np.vdot(slope, self.space.unexplained(strength, error) - error)])

        return targets - error, pullback

    def coefficients(self, theta: Array) -> Array:
        strength = float(np.exp(theta[0]))
        return self.space.columns(self.space.unexplained(strength, self.criterion.targets[:, 0]) / strength)

    def selection(self, theta: Array) -> Array:
        return np.ones(self.space.design.X.shape[1])

    def start(self, strength: float) -> Array:
        return np.array([np.log(strength)])

    def bounds(self) -> Array:
        return _strengths(self.space)


def _strengths(space: RidgeCoordinates) -> Array:
    """Bounds of log λ: (1, 2)."""
    return np.log(space.scale * np.array([[WEAKEST, STRONGEST]]))


def _factor(gram: Array, strength: float) -> Array:
    """Cholesky factor of gram + λI; the gram is overwritten."""
    gram[np.diag_indices_from(gram)] += strength
    L = _linalg.cholesky(gram)
    if L is None:  # the bound on λ keeps the pivots far above rounding
        raise np.linalg.LinAlgError(f"the ridge equations are singular at strength {strength:.3g}")
    return L


@dataclass(frozen=True, eq=False)
class ColumnSide:
    """Ridge on X̃S for all targets at once, and its derivatives in λ and s; see the head of this module.

    By the p × p matrix S X̃ᵀX̃ S + λI; predictions in those coordinates.
    """

    space: ColumnCoordinates

    @property
    def criterion(self) -> PermutationCriterion:
        """The criterion in the coordinates of the predictions."""
        return self.space.criterion

    @cached_property
    def _R(self) -> Array:
        """Qᵀ X̃ = S^½ Vᵀ: (r, p)."""
        values, vectors = self.space.eigenpairs
        return np.sqrt(values)[:, None] * vectors.T

    @cached_property
    def _correlations(self) -> Array:
        """X̃ᵀ targets, without the rounding in columns that are constant: (p, (T + 1) t)."""
        return _linalg.product(self._R.T, self.space.projected)

    def _solve(self, strength: float, s: Array, rhs: Array) -> tuple[Array, Array]:
        L = _factor(self.space.gram * np.outer(s, s), strength)
        return L, _linalg.factor_solve(L, s[:, None] * rhs)

    def fits(self, strength: float, s: Array) -> tuple[Array, Callable[[Array], tuple[float, Array]]]:
        """Predictions, and the map from a slope in them to ∂/∂λ and ∂/∂s."""
        L, alpha = self._solve(strength, s, self._correlations)
        shape = self.criterion.targets.shape
        predictions = _linalg.product(self._R, s[:, None] * alpha)

        def pullback(slope: Array) -> tuple[float, Array]:
            back = _linalg.product(self._R.T, flat(slope))
            v = _linalg.factor_solve(L, s[:, None] * back)
            errors = _linalg.product(self._R.T, self.space.projected - predictions)
            fitted = _linalg.product(self.space.gram, s[:, None] * v)
            in_s = np.einsum("jm,jm->j", back - fitted, alpha) + np.einsum("jm,jm->j", v, errors)
            return -float(np.vdot(v, alpha)), in_s

        return predictions.reshape(shape), pullback

    def coefficients(self, strength: float, s: Array) -> Array:
        """S (S X̃ᵀX̃ S + λI)⁻¹ S X̃ᵀ y for the response: (p, t)."""
        outputs = self.space.targets.shape[2]
        return s[:, None] * self._solve(strength, s, self._correlations[:, :outputs])[1]

    def beside(self, predictions: Array, pullback: Pullback) -> tuple[Array, Pullback]:
        """Fits in the coordinates of the space, in those of the predictions here."""
        return predictions, pullback


@dataclass(frozen=True, eq=False)
class RowSide:
    """The same by the n × n matrix X̃ S² X̃ᵀ + λI; predictions for the rows."""

    space: RowCoordinates

    @cached_property
    def criterion(self) -> PermutationCriterion:
        return PermutationCriterion(self.space.targets)

    def _solve(self, strength: float, s: Array, rhs: Array) -> tuple[Array, Array]:
        L = _factor(self.space.design.row_gram(s**2), strength)
        return L, _linalg.factor_solve(L, rhs)

    def fits(self, strength: float, s: Array) -> tuple[Array, Callable[[Array], tuple[float, Array]]]:
        design, targets = self.space.design, self.space.targets
        L, dual = self._solve(strength, s, self.space.stacked)

        def pullback(slope: Array) -> tuple[float, Array]:
            along = flat(slope)
            back = _linalg.factor_solve(L, along)
            pairs = np.einsum("jm,jm->j", design.transposed_times(back), design.transposed_times(dual))
            in_strength = strength * float(np.vdot(back, dual)) - float(np.vdot(along, dual))
            return in_strength, 2.0 * strength * s * pairs

        return targets - (strength * dual).reshape(targets.shape), pullback

    def coefficients(self, strength: float, s: Array) -> Array:
        _, dual = self._solve(strength, s, self.space.targets[:, 0])
        return (s**2)[:, None] * self.space.design.transposed_times(dual)

    def beside(self, predictions: Array, pullback: Pullback) -> tuple[Array, Pullback]:
        return self.space.to_rows(predictions), lambda slope: pullback(self.space.from_rows(slope))


def quasi_sparsifier(kappa: float, gamma: Array) -> tuple[Array, Pullback]:
    """S of definition 1, (p,), and the map from a slope in it to the gradient in (log κ, γ)."""
    apart = gamma - gamma.mean()
    spread = float(apart @ apart) + FLOOR
    s = expit(kappa * spread * apart)

    def pullback(slope: Array) -> Array:
        inner = slope * s * (1.0 - s) * kappa  # slope in spread · apart
        along = float(inner @ apart)
        in_gamma = spread * inner + 2.0 * along * apart
        return np.append(spread * along, in_gamma - in_gamma.mean())

    return s, pullback


@dataclass(frozen=True, eq=False)
class Sparse(Family):
    """The quasi-sparse family, definition 1: p + 2 parameters.

    Attributes
    ----------
    side : ColumnSide or RowSide
    """

    side: ColumnSide | RowSide

    @property
    def criterion(self) -> PermutationCriterion:
        return self.side.criterion

    def fits(self, theta: Array) -> tuple[Array, Pullback]:
        strength = float(np.exp(theta[0]))
        s, to_parameters = quasi_sparsifier(float(np.exp(theta[1])), theta[2:])
        predictions, to_scaled = self.side.fits(strength, s)

        def pullback(slope: Array) -> Array:
            in_strength, in_s = to_scaled(slope)
            return np.append(strength * in_strength, to_parameters(in_s))

        return predictions, pullback

    def coefficients(self, theta: Array) -> Array:
        return self.side.coefficients(float(np.exp(theta[0])), self.selection(theta))

    def selection(self, theta: Array) -> Array:
        return quasi_sparsifier(float(np.exp(theta[1])), theta[2:])[0]

    def start(self, strength: float) -> Array:
        start = np.zeros(2 + self.side.space.design.X.shape[1])
        start[:2] = np.log([strength, START_KAPPA])
        return start

    def bounds(self) -> Array:
        p = self.side.space.design.X.shape[1]
        return np.vstack(
            [_strengths(self.side.space), np.log(KAPPA_BOUNDS), np.tile([-np.inf, np.inf], (p, 1))]
        )

    def units(self) -> Array:
        return np.append([1.0, 1.0], np.full(self.side.space.design.X.shape[1], GAMMA_UNIT))


@dataclass(frozen=True, eq=False)
class Aggregate(Family):
    """Between ridge and the quasi-sparse family, definition 2: p + 3 parameters, μ the last.

    Attributes
    ----------
    ridge : Ridge
    sparse : Sparse
        In whose coordinates the predictions are.
    """

    ridge: Ridge
    sparse: Sparse

    @property
    def criterion(self) -> PermutationCriterion:
        return self.sparse.criterion

    def fits(self, theta: Array) -> tuple[Array, Pullback]:
        share = float(expit(theta[-1]))
        plain, to_strength = self.sparse.side.beside(*self.ridge.fits(theta[:1]))
        scaled, to_theta = self.sparse.fits(theta[:-1])

        def pullback(slope: Array) -> Array:
            gradient = np.empty(len(theta))
            gradient[:-1] = (1.0 - share) * to_theta(slope)
            gradient[0] += share * to_strength(slope)[0]
            gradient[-1] = share * (1.0 - share) * np.vdot(slope, plain - scaled)
            return gradient

        return share * plain + (1.0 - share) * scaled, pullback

    def coefficients(self, theta: Array) -> Array:
        share = float(expit(theta[-1]))
        return share * self.ridge.coefficients(theta) + (1.0 - share) * self.sparse.coefficients(theta[:-1])

    def selection(self, theta: Array) -> Array:
        share = float(expit(theta[-1]))
        return share + (1.0 - share) * self.sparse.selection(theta[:-1])

    def start(self, strength: float) -> Array:
        return np.append(self.sparse.start(strength), START_MU)

    def bounds(self) -> Array:
        return np.vstack([self.sparse.bounds(), [-np.inf, np.inf]])

    def units(self) -> Array:
        return np.append(self.sparse.units(), 1.0)


def _sparse(space: ColumnCoordinates | RowCoordinates) -> Sparse:
    return Sparse(RowSide(space) if isinstance(space, RowCoordinates) else ColumnSide(space))


def _aggregate(space: ColumnCoordinates | RowCoordinates) -> Aggregate:
    return Aggregate(Ridge(space), _sparse(space))


FAMILIES: dict[str, Callable[[ColumnCoordinates | RowCoordinates], Family]] = {
    "ridge": Ridge,
    "sparse": _sparse,
    "aggregate": _aggregate,
}

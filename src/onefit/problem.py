"""What was minimised (Problem) and what came out (Fit), whoever computed it.

    minimise over (β, b):   Σ_i w_i ℓ(y_i, η_i) + P(β),      η = X β + b

The loss is a sum, never a mean; other conventions are translated once, in the adapters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.losses import Loss, PiecewiseLinear, Squared
from onefit.penalties import Penalty, SeparablePenalty, Tangent

IN_CORNER = 1e-7  # distance from a corner of the loss, relative to 1 + |η|, that is none


@dataclass(frozen=True)
class Balance:
    """Classes whose weights a refit computes anew, ω_k = W / (c W_k) (``class_weight="balanced"``).

    Attributes
    ----------
    classes : (n,) int array
        Class of each row, 0 … c − 1.
    raw_weights : (n,) array
        Weights before balancing; W_k is their sum over class k.
    """

    classes: Index
    raw_weights: Array

    def growth(self, k: int) -> Array:
        """By how much the weights of class k grow, relatively, when row i is not there: (n,)."""
        raw, own = self.raw_weights, self.classes == k
        share_of_class = np.where(own, raw / raw[own].sum(), 0.0)
        return (1.0 - raw / raw.sum()) / np.maximum(1.0 - share_of_class, 1e-8) - 1.0

    def growth_without(self, rows: int | Index) -> Array:
        """By how much the weights of each class grow, relatively, when these rows are not there: (c,).

        0 for a class that leaves as a whole: no weight of it is left to grow.
        """
        held = self.raw_weights.copy()
        held[rows] = 0.0
        whole, left = np.bincount(self.classes, self.raw_weights), np.bincount(self.classes, held)
        stays = left > 0
        shares = np.divide(left, whole, out=np.ones_like(left), where=stays)
        return np.where(stays, held.sum() / self.raw_weights.sum() / shares - 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted sums over the rows, for one who solves many problems with the same columns and weights.

    Attributes
    ----------
    X, weights
        Those they were taken over.
    means : (p,) array
        Weighted means of the columns; zero without an intercept.
    gram : (p, p) array
        Σ w (x − m)(x − m)ᵀ.
    """

    X: Design
    weights: Array
    means: Array
    gram: Array  # its lower triangle

    @classmethod
    def of(cls, problem: Problem) -> Moments:
        """Sum over the rows of a problem with one output."""
        X, weights = problem.X, problem.weights
        means = _linalg.column_means(X, weights) if problem.intercept else None
        gram = _linalg.weighted_gram(X, means, weights)
        return cls(X, weights, np.zeros(X.shape[1]) if means is None else means, gram)


@dataclass(frozen=True)
class Problem:
    """A regularised linear model and its data.

    Attributes
    ----------
    loss : Loss
    penalty : Penalty
    X : (n, p) array, SciPy sparse matrix or array, or RowGram
    y : (n,) or (n, c) array
    weights : (n,) array
        Weight of each row in the sum, at least 0.
    intercept : bool array of shape () or (c,)
        Which outputs have an intercept.
    mean_scaled : bool
        Whether a refit without row i shrinks the penalty by w_i / Σw, as estimators do that minimise a
        mean.
    balance : Balance or None
        Set when the weights are balanced over classes, so that they change when a row leaves.
    moments : Moments or None
        Sums over the rows, where somebody has them; see ``known_moments``.
    """

    loss: Loss
    penalty: Penalty
    X: Design
    y: Array
    weights: Array
    intercept: Mask = field(default_factory=lambda: np.array(True))
    mean_scaled: bool = False
    balance: Balance | None = None
    moments: Moments | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def known_moments(self) -> Moments | None:
        """Sums over the rows, if they were given and are still those of these columns and weights."""
        own = self.moments
        if own is None or own.X is not self.X or own.weights is not self.weights:
            return None
        return own if isinstance(self.loss, Squared) else None

    @property
    def separable(self) -> SeparablePenalty:
        """The penalty, where it treats every coefficient on its own.

        Raises
        ------
        TypeError
        """
        if not isinstance(self.penalty, SeparablePenalty):
            raise TypeError(f"{type(self.penalty).__name__} does not treat every coefficient on its own")
        return self.penalty

    def linear_predictor(self, coef: Array, intercept: Array) -> Array:
        """Return η: (n,) or (n, c)."""
        return _linalg.times(self.X, coef) + intercept

    def objective(self, coef: Array, eta: Array) -> float:
        """Return Σ w ℓ + P."""
        losses = self.loss.value(self.y, eta)
        return float(self.weights @ losses.reshape(self.n, -1).sum(axis=1)) + self.penalty_value(coef)

    def penalty_value(self, coef: Array) -> float:
        """Return P(β); a kernel model's is ½ α aᵀ G a."""
        if isinstance(self.X, _linalg.RowGram):
            root = np.sqrt(np.maximum(np.sum(coef * _linalg.times(self.X, coef), axis=0), 0.0))
            return self.penalty.value(np.broadcast_to(root, coef.shape[1:]).reshape(1, *coef.shape[1:]))
        return self.penalty.value(coef)

    @property
    def usual_shrink(self) -> float:
        """Factor on a mean-scaled penalty when one of the rows leaves, if their weights are equal."""
        return 1.0 - 1.0 / int(np.count_nonzero(self.weights))

    def per_row(self, weights_times: Array) -> Array:
        """Multiply an array whose first axis is the rows by the weights."""
        return weights_times * self.weights.reshape(-1, *(1,) * (weights_times.ndim - 1))

    def without(self, rows: int | Index) -> Problem:
        """What a refit on the other rows minimises: these have no weight, and what depends on it moves.

        Parameters
        ----------
        rows : int or int array
            The row, or the rows, that leave together.
        """
        weights = self.weights.copy()
        if self.balance is not None:
            weights *= 1.0 + self.balance.growth_without(rows)[self.balance.classes]
        weights[rows] = 0.0
        return replace(self, weights=weights, penalty=self.penalty.scaled(self.kept_share(rows)))

    def kept_share(self, rows: int | Index) -> float:
        """Share of the penalty that a refit without these rows keeps."""
        return 1.0 - float(self.weights[rows].sum() / self.weights.sum()) if self.mean_scaled else 1.0

    def at_start(self) -> Fit:
        """Return the constant model that solvers start from."""
        level = np.where(self.intercept, self.loss.start(self.y, self.weights), 0.0)
        outputs = self.intercept.shape
        eta = np.broadcast_to(level, (self.n, *outputs)).copy()
        return Fit(self, np.zeros((self.X.shape[1], *outputs)), level).known(eta=eta)


@dataclass(frozen=True)
class Fit:
    """A problem and coefficients that are meant to solve it.

    Attributes
    ----------
    problem : Problem
    coef : (p,) or (p, c) array
        For a RowGram the dual coefficients, (n,) or (n, c).
    level : array of shape () or (c,)
        Intercepts, zero where there is none.
    """

    problem: Problem
    coef: Array
    level: Array

    @cached_property
    def eta(self) -> Array:
        """Linear predictor of each row: (n,) or (n, c)."""
        return self.problem.linear_predictor(self.coef, self.level)

    @cached_property
    def pinned(self) -> Mask:
        """Rows that sit in a corner of their loss: (n,).  Solvers say which; for others it is told by η."""
        problem = self.problem
        if not isinstance(problem.loss, PiecewiseLinear):
            return np.zeros(problem.n, dtype=bool)
        distance = np.abs(self.eta[:, None] - problem.loss.corners(problem.y)).min(axis=1)
        return (distance <= IN_CORNER * (1.0 + np.abs(self.eta))) & (problem.weights > 0)

    @cached_property
    def slope(self) -> Array:
        """g_i = w_i ∂ℓ/∂η: the shape of ``eta``.

        In a corner of the loss it is the dual variable, which solvers know.
        """
        return self.problem.per_row(self.problem.loss.gradient(self.problem.y, self.eta))

    @cached_property
    def bend(self) -> Array:
        """d_i = w_i ∂²ℓ/∂η²: the shape of ``eta``, or (n, c, c) for a coupled loss."""
        return self.problem.per_row(self.problem.loss.hessian(self.problem.y, self.eta))

    @cached_property
    def tangent(self) -> Tangent:
        """Smooth piece of the penalty through the coefficients."""
        penalty = self.problem.penalty
        return penalty.tangent(self.coef, self.loss_gradient if penalty.bends_with_subgradient else None)

    @cached_property
    def is_kinked(self) -> bool:
        """Whether the penalty has kinks, which make an active pattern."""
        return self.problem.penalty.has_kinks(self.coef.shape)

    @cached_property
    def has_free_directions(self) -> bool:
        """Whether a direction has no penalty: it may lose its only row, and refits then start from zero."""
        return self.problem.penalty.has_free_directions(self.coef.shape)

    @cached_property
    def loss_gradient(self) -> Array:
        """Xᵀ g: the shape of the coefficients."""
        return _linalg.transposed_times(self.problem.X, self.slope)

    @cached_property
    def objective(self) -> float:
        """Σ w ℓ + P."""
        return self.problem.objective(self.coef, self.eta)

    def of_rows(self, rows: Index) -> Fit:
        """Return the fit of a few rows, where the others have neither slope nor bend."""
        problem = self.problem
        few = replace(
            problem, X=_linalg.some_rows(problem.X, rows), y=problem.y[rows], weights=problem.weights[rows]
        )
        coef = self.coef[rows] if isinstance(problem.X, _linalg.RowGram) else self.coef
        known = {"eta": self.eta[rows], "slope": self.slope[rows], "pinned": self.pinned[rows]}
        return Fit(few, coef, self.level).known(**known)

    def known(self, **values: Any) -> Self:
        """Take values of ``eta`` and the like that a solver has at hand, instead of computing them."""
        self.__dict__.update(values)
        return self

    def moved(self, coef: Array, level: Array) -> Fit:
        """Return the same problem at other coefficients."""
        return replace(self, coef=coef, level=level)

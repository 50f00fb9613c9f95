"""What is minimised.

    minimise over (β, b):   Σ_i w_i ℓ(y_i, η_i) + P(β),      η = X β + b

The loss is a sum, never a mean; other conventions are translated once, in the readers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask, Sets
from onefit.balance import Balance
from onefit.inner_products import InnerProducts
from onefit.losses import CoupledLoss, Loss, Squared
from onefit.numerics import TINY
from onefit.penalties import Penalty, SeparablePenalty, Strengths
from onefit.pieces import Pieces


def members(sets: Sets) -> tuple[Index, Index]:
    """Number of the set of each row, one set after the other, and these rows: (t,) each."""
    if isinstance(sets, np.ndarray):
        return np.repeat(np.arange(len(sets)), sets.shape[1]), sets.ravel()
    rows = np.concatenate([np.empty(0, dtype=np.intp), *sets])
    return np.repeat(np.arange(len(sets)), [len(one) for one in sets]), rows.astype(np.intp)


def some_sets(sets: Sets, which: Index) -> Sets:
    """Those with these numbers."""
    return sets[which] if isinstance(sets, np.ndarray) else [sets[k] for k in which]


class Reweighed(NamedTuple):
    """A part of the objective whose weight a refit changes.

    Attributes
    ----------
    rows : (n,) bool array or None
        Rows whose losses the part is the sum of; None for the penalty.
    changes : (f,) array
        By how much its weight grows, relatively, in each refit.
    """

    rows: Mask | None
    changes: Array


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
        gram = _linalg.as_columns(X).weighted_gram(means, weights)
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
    inner : InnerProducts or None
        Of the rows, where somebody shares them; see ``known_inner``.
    takes_middle : callable or None
        Whether the model's own solver takes the middle intercept, where several are as good: asked with the
        problem, the middle, and how far the others are.
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
    inner: InnerProducts | None = None
    takes_middle: Callable[[Problem, float, float], bool] | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of what each row and each column has: () for one output, (c,) for several."""
        return self.intercept.shape

    @property
    def n_outputs(self) -> int:
        """Number of linear predictors of a row."""
        return self.intercept.size

    @property
    def has_one_output(self) -> bool:
        """Whether there is no axis of outputs."""
        return not self.outputs

    @property
    def is_coupled(self) -> bool:
        """Whether the loss ties the outputs of a row together: its second derivatives are (n, c, c)."""
        return isinstance(self.loss, CoupledLoss)

    @property
    def is_apart(self) -> bool:
        """Whether there are several outputs that neither loss nor penalty ties together."""
        separable = isinstance(self.penalty, SeparablePenalty)
        return separable and not self.has_one_output and not self.is_coupled

    def of_output(self, k: int) -> Problem:
        """One of several outputs that nothing ties together."""
        penalty = self.separable
        if len(penalty.shape_of_strengths) > 1:
            l1, l2 = penalty.strengths(self.coef_shape)
            penalty = Strengths(l1=l1[:, k], l2=l2[:, k])
        y = np.ascontiguousarray(self.y[:, k])
        return replace(self, penalty=penalty, y=y, intercept=self.intercept[k])

    @property
    def n_coupled(self) -> int:
        """Outputs of a row that the loss ties together: 1 where each is on its own."""
        return self.n_outputs if self.is_coupled else 1

    def moved(self, change: Array) -> Array:
        """How far predictors (n, c, …) of each row move, for coupled outputs from one another: (n, …)."""
        return np.ptp(change, axis=1) if self.is_coupled else np.abs(change).max(axis=1)

    @property
    def coef_shape(self) -> tuple[int, ...]:
        """Of the coefficients: (p,) or (p, c)."""
        return (self.X.shape[1], *self.outputs)

    @property
    def known_moments(self) -> Moments | None:
        """Sums over the rows, if they were given and are still those of these columns and weights."""
        own = self.moments
        if own is None or own.X is not self.X or own.weights is not self.weights:
            return None
        return own if isinstance(self.loss, Squared) else None

    @property
    def has_free_shift(self) -> bool:
        """Whether a constant added to all intercepts changes nothing."""
        return self.loss.ignores_shifts and bool(self.intercept.all())

    @property
    def known_inner(self) -> InnerProducts | None:
        """Inner products of the rows, if they were given and are still those of these rows."""
        return self.inner if self.inner is not None and self.inner.X is self.X else None

    @property
    def has_flat_pieces(self) -> bool:
        """Whether the objective is quadratic as long as the active pattern stays."""
        return self.loss.is_quadratic and self.penalty.pieces is Pieces.QUADRATIC

    def self_concordance(self) -> float | None:
        """R with |D³F| ≤ R · D²F along a direction, per unit of change of η; None where nothing is known.

        That of the loss: a penalty whose pieces are quadratic has no third derivative, and of any other
        nothing is known.
        """
        return self.loss.self_concordance() if self.penalty.pieces is Pieces.QUADRATIC else None

    @property
    def unit(self) -> float:
        """Change of η over which the loss bends by itself, 1/R; beside it rounding is none where η is 0."""
        R = self.loss.self_concordance()
        return 1.0 / R if R else TINY

    @cached_property
    def centre(self) -> Array | None:
        """Means of the columns, where every output has an intercept that takes them up: (p,).

        Where a gradient is paired with a step as they are, columns far from zero lose the digits of these.
        """
        if not _linalg.has_columns(self.X) or not np.all(self.intercept):
            return None
        return _linalg.column_means(self.X, self.weights)

    def squared_lengths(self, rows: Index) -> Array:
        """‖x‖² of some rows, less what an intercept takes up: (r,)."""
        if self.centre is None:
            return _linalg.as_design(self.X).squared_lengths(rows)
        near, _ = _linalg.as_columns(_linalg.some_rows(self.X, rows)).near_zero(self.centre)
        return near.squared_lengths(np.arange(len(rows)))

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
        eta = _linalg.times(self.X, coef)
        return np.add(eta, intercept, out=eta if eta.dtype == np.float64 else None)

    def gradient_of(self, rows: Array) -> tuple[Array, Array]:
        """Zᵀ times what the rows have, or several along one more axis: for coefficients and intercepts."""
        return _linalg.transposed_times(self.X, rows), self.levels_of(rows)

    def levels_of(self, rows: Array) -> Array:
        """The same for intercepts alone."""
        return np.where(_linalg.with_axes(self.intercept, rows[0]), rows.sum(axis=0), 0.0)

    def of_losses(self, coef: Array, level: Array) -> tuple[Array, Array]:
        """Gradients of sums of losses: what all outputs share where these see differences alone is rounding.

        A ridge that is all that holds it would make much of it.
        """
        return self.coef_of_losses(coef), self.levels_of_losses(level)

    def coef_of_losses(self, coef: Array) -> Array:
        """The same for coefficients."""
        return coef - _linalg.row_means(coef) if self.loss.ignores_shifts else coef

    def levels_of_losses(self, level: Array) -> Array:
        """The same for intercepts."""
        return level - level.mean(axis=0) if self.has_free_shift else level

    def loss_at(self, name: str, eta: Array) -> Array:
        """Values or derivatives of the losses at several η of each row, which stay the last axis."""
        function, f = getattr(self.loss, name), eta.shape[-1]
        if not self.is_coupled:
            return function(self.y[..., None], eta)
        values = function(np.tile(self.y, f), np.moveaxis(eta, -1, 0).reshape(f * self.n, -1))
        return np.moveaxis(values.reshape(f, self.n, *values.shape[1:]), 0, -1)

    def objective(self, coef: Array, eta: Array) -> float:
        """Return Σ w ℓ + P."""
        losses = self.loss.value(self.y, eta).reshape(self.n, -1).sum(axis=1)
        # losses of rows without weight may be infinite
        weighted = np.multiply(self.weights, losses, out=np.zeros_like(losses), where=self.weights > 0)
        return float(weighted.sum()) + self.penalty_value(coef)

    def penalty_value(self, coef: Array) -> float:
        """Return P(β); a kernel model's is ½ α aᵀ G a."""
        if not _linalg.has_columns(self.X):
            root = np.sqrt(np.maximum(np.sum(coef * _linalg.times(self.X, coef), axis=0), 0.0))
            return self.penalty.value(np.broadcast_to(root, coef.shape[1:]).reshape(1, *coef.shape[1:]))
        return self.penalty.value(coef)

    @property
    def refits_keep_the_rest(self) -> bool:
        """Whether a refit only drops rows: neither penalty nor weights of the others change."""
        return not self.mean_scaled and self.balance is None

    @property
    def is_balanced(self) -> bool:
        """Whether refits weigh the other rows anew."""
        return self.balance is not None

    @property
    def never_counts(self) -> Mask:
        """Rows without weight, in this problem or any refit: (n,)."""
        return self.weights == 0 if self.balance is None else self.balance.raw_weights == 0

    @property
    def usual_shrink(self) -> float:
        """Factor on the penalty when one of the rows leaves, if their weights are equal."""
        return 1.0 - 1.0 / int(np.count_nonzero(self.weights)) if self.mean_scaled else 1.0

    def lost_shares(self, rows: Index | slice = slice(None)) -> Array:
        """Share of the penalty that leaves with each of some rows, when it leaves alone."""
        return self.weights[rows] / self.weights.sum() * self.mean_scaled

    def reweighed(self, removed: Sets | None = None) -> list[Reweighed]:
        """List the parts of the objective that refits weigh anew, beside the rows that leave.

        Parameters
        ----------
        removed : Sets, optional
            Rows that leave together, one array a refit; by default every row alone.
        """
        parts = []
        if self.mean_scaled:
            lost = self.lost_shares() if removed is None else 1.0 - self.kept_shares(removed)
            parts.append(Reweighed(None, -lost))
        if self.balance is not None:
            growth = self.balance.growths(removed)
            parts.extend(Reweighed(self.balance.classes == k, one) for k, one in enumerate(growth))
        return parts

    def per_row(self, weights_times: Array) -> Array:
        """Multiply an array whose first axis is the rows by the weights: 0 times what is infinite is 0."""
        return _linalg.weighted_rows(self.weights, weights_times)

    def without(self, rows: int | Index) -> Problem:
        """What a refit on the other rows minimises: these have no weight, and what depends on it moves.

        Parameters
        ----------
        rows : int or int array
            The row, or the rows, that leave together.
        """
        removed = [np.atleast_1d(rows)]
        weights = self.weights_without(removed)[:, 0]
        penalty = self.penalty.scaled(self.kept_share(rows)) if self.mean_scaled else self.penalty
        left = replace(self, weights=weights, penalty=penalty)
        left.__dict__["centre"] = self.centre  # which serves as well as their own
        return left

    def weights_without(self, removed: Sets) -> Array:
        """Weights of all rows in the refit without each of some sets: (n, f)."""
        weights = np.repeat(self.weights[:, None], len(removed), axis=1)
        if self.balance is not None:
            weights *= 1.0 + self.balance.growths(removed)[self.balance.classes]
        numbers, rows = members(removed)
        weights[rows, numbers] = 0.0
        return weights

    def attains_levels(self, weights: Array) -> Mask:
        """Whether all intercepts have finite optima under each of f weightings, (n, f): (f,).

        They have none without all rows of a class.
        """
        attained = self.loss.has_constant(self.y, weights)
        return ~np.any(self.intercept & ~(attained if attained.ndim == 2 else attained[:, None]), axis=1)

    def kept_share(self, rows: int | Index) -> float:
        """Share of the penalty that a refit without these rows keeps."""
        return float(self.kept_shares([np.atleast_1d(rows)])[0])

    def kept_shares(self, removed: Sets) -> Array:
        """Share of the penalty that refits without each of some sets keep: (f,)."""
        numbers, rows = members(removed)
        kept = 1.0 - np.bincount(numbers, self.lost_shares(rows), len(removed))
        for k in np.flatnonzero(kept < 0.5).tolist():  # a difference of two near one has lost digits
            kept[k] = np.delete(self.weights, removed[k]).sum() / self.weights.sum()
        return np.asarray(kept, dtype=np.float64)

    def kept_alone(self, rows: Index) -> Array:
        """Share of the penalty that refits without each of some rows alone keep."""
        return self.kept_shares(np.atleast_1d(rows)[:, None])

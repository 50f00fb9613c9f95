"""Generalisation measured on the training rows: do not find a pattern where there is none.

Lounici, Meziani and Riu (2020) fit a model to the response and, at the same regularisation, to T random
permutations of it, in which nothing is to be found.  With Y centred and scaled so that ‖Y‖ = 1, where ‖·‖ is
the root of the (weighted) mean square, their criterion (eq. 5) is

    BKK = ‖Y − Ŷ‖ + (1/T) Σ_t | 1 − ‖π_t(Y) − Ŷ_t‖ |:

fit the response as well as possible, and explain nothing of the permuted ones.  It is a function of the
predictions of T + 1 fits, whatever made them, and so is everything here.

With eᵗ = π_t(Y) − Ŷ_t, its slope in the predictions is −e/‖e‖ for the response and
sign(1 − ‖eᵗ‖)/T · eᵗ/‖eᵗ‖ for a permuted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, permutations
from math import factorial

import numpy as np

from onefit._typing import Array, Index, Mask

FEW_ROWS = 12  # more rows have more permutations than anybody asks for


def permutation_count(n: int) -> float:
    """How many permutations of n rows there are besides leaving them as they are: n! − 1."""
    return factorial(n) - 1 if n <= FEW_ROWS else np.inf


def draw_permutations(n: int, count: int, rng: np.random.Generator) -> Index:
    """Different permutations of n rows, none of which leaves all in place: (count, n).

    All n! − 1 of them, without a draw, where no more than ``count`` exist: then the criterion is the mean
    over the whole group, not an estimate of it.
    """
    if permutation_count(n) <= count:
        every = islice(permutations(range(n)), 1, None)
        return np.array(list(every), dtype=np.intp).reshape(-1, n)
    drawn: dict[bytes, Index] = {}
    in_place = np.arange(n)
    while len(drawn) < count:
        order = rng.permutation(n)
        if not np.array_equal(order, in_place):
            drawn.setdefault(order.tobytes(), order)
    return np.array(list(drawn.values()), dtype=np.intp).reshape(-1, n)


def permuted_targets(y: Array, weights: Array, orders: Index, *, centred: bool) -> Array:
    """The response and its permutations, each of norm 1: (n, T + 1, t).

    A row of several outputs moves as a whole, and each output has the same share of the norm.  Weights
    stay with the rows of X.  Each permuted output is centred and scaled anew, since its weighted mean and
    norm are others; for equal weights they are those of the response.  An output that is constant (or
    zero, if it is not centred) stays zero.

    Parameters
    ----------
    y : (n, t) array
    weights : (n,) array
        Positive.
    orders : (T, n) array
        Permutations.
    centred : bool
        Whether the null model is the mean of the rows (an intercept), or zero.

    Returns
    -------
    (n, T + 1, t) array
        Rows multiplied by (w_i / Σw)^½: the squares of each target add up to 1.
    """
    share = weights / weights.sum()
    varies = varying_outputs(y, weights, centred=centred)
    stacked = np.concatenate([y[None], y[orders]]).transpose(1, 0, 2)
    if centred:
        stacked = stacked - np.einsum("i,imt->mt", share, stacked)
    stacked = np.sqrt(share)[:, None, None] * stacked
    norms = np.sqrt(np.einsum("imt,imt->mt", stacked, stacked)) * np.sqrt(max(1, varies.sum()))
    return stacked * np.where(varies, 1.0 / np.where(varies, norms, 1.0), 0.0)


def varying_outputs(y: Array, weights: Array, *, centred: bool) -> Mask:
    """Which outputs a model can say anything about: (t,)."""
    rest = y - np.average(y, axis=0, weights=weights) if centred else y
    scale = np.abs(y).max(axis=0, initial=0.0)
    return np.abs(rest).max(axis=0, initial=0.0) > 16 * np.finfo(float).eps * scale


@dataclass(frozen=True, eq=False)
class PermutationCriterion:
    """The BKK criterion of T + 1 fits (Lounici, Meziani and Riu 2020, eq. 5).

    Attributes
    ----------
    targets : (n, T + 1, t) array
        The response first, then its permutations, each with squares that add up to 1: the rows of
        ``permuted_targets``, or the same in any other orthonormal coordinates.  For T = 0 the criterion is
        the training error alone, which nothing keeps from overfitting.
    beyond : (T + 1,) array or 0
        Squared length of each target outside these coordinates, which no prediction reaches.

    Examples
    --------
    >>> import numpy as np
    >>> y, orders = np.array([[1.0], [2.0], [4.0]]), np.array([[1, 0, 2], [2, 1, 0]])
    >>> targets = permuted_targets(y, np.ones(3), orders, centred=True)
    >>> criterion = PermutationCriterion(targets)
    >>> round(criterion.value(np.zeros((3, 3, 1))), 12)  # the null model: error 1, and nothing explained
    1.0
    >>> round(criterion.value(targets), 12)              # the training error is 0, that of noise too
    1.0
    """

    targets: Array
    beyond: Array | float = 0.0

    @property
    def n_permutations(self) -> int:
        """T, without the response itself."""
        return self.targets.shape[1] - 1

    def norms(self, predictions: Array) -> Array:
        """Norms ‖e‖ of what each fit leaves unexplained: (T + 1,)."""
        return self._norms(self.targets - predictions)

    def _norms(self, residual: Array) -> Array:
        return np.sqrt(np.einsum("imt,imt->m", residual, residual) + self.beyond)

    def value(self, predictions: Array) -> float:
        """The criterion at predictions of the shape of ``targets``."""
        return value_of_norms(self.norms(predictions))

    def value_and_slope(self, predictions: Array) -> tuple[float, Array]:
        """The criterion and its derivative in each prediction.

        It has a corner where a fit leaves nothing unexplained, and where it explains exactly nothing; there
        this is a subgradient.
        """
        residual = self.targets - predictions
        norms = self._norms(residual)
        signs = np.full(len(norms), -1.0)
        signs[1:] = np.sign(1.0 - norms[1:]) / max(1, self.n_permutations)
        factors = np.divide(signs, norms, out=np.zeros_like(norms), where=norms > 0)
        return value_of_norms(norms), residual * factors[:, None]


def value_of_norms(norms: Array) -> float:
    """The criterion from ‖e‖ of the response and of each permuted one, (T + 1,)."""
    noise = float(np.mean(np.abs(1.0 - norms[1:]))) if len(norms) > 1 else 0.0
    return float(norms[0]) + noise


def gains(norms: Array) -> Array:
    """How much better each target is explained than the others: (T + 1,).

    For target t it is max over strengths of (mean of ‖e‖ over all T + 1 targets − ‖eᵗ‖).  As no fit is worse
    than the null model, it is T/(T + 1) times 1 − the smallest criterion that the strengths reach with
    target t in the place of the response and all others in the place of its permutations.

    Parameters
    ----------
    norms : (J, T + 1) array
        ‖e‖ at J strengths that were chosen without regard to which target is the response.
    """
    return np.max(norms.mean(axis=1, keepdims=True) - norms, axis=0)


def p_value(statistics: Array) -> float:
    """Share of the targets whose statistic is at least that of the response, itself included.

    (1 + #{t : s_t ≥ s_0}) / (T + 1).  If the rows of y are exchangeable given X, and the statistics treat the
    response and its permutations alike, then P(p ≤ a) ≤ a for every a.  Ties count against the response.

    Parameters
    ----------
    statistics : (T + 1,) array
        That of the response first.
    """
    least = statistics[0] - 1e-9 * max(1e-3, abs(statistics[0]))
    return float(np.count_nonzero(statistics >= least)) / len(statistics)

"""A lasso or an elastic net of squared errors, by coordinate descent over the products of its columns.

The quadratic model of a squared loss is the problem itself, wherever it is taken: products of columns that
have been in a step are those of all later ones, and only new columns are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.problem import Problem
from onefit.solvers.sweeps import swept


@dataclass(eq=False)
class NetOnProducts:
    """A problem, and its columns so far, each in the unit in which its ℓ1 strength is one.

    Attributes
    ----------
    problem : Problem
    columns : (k,) int array
        In the order in which they came.
    means : (k,) array
        By the weights, zero without an intercept.
    gram : (k, k) array
        Weighted products of the columns less their means.
    cross : (k,) array
        The same with the response.
    """

    problem: Problem
    columns: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    means: Array = field(default_factory=lambda: np.empty(0))
    gram: Array = field(default_factory=lambda: np.empty((0, 0), order="F"))
    cross: Array = field(default_factory=lambda: np.empty(0))
    _stored: list[Array] = field(default_factory=list)  # (b, n) each: columns that came together, one a row
    _weighted: list[Array] = field(default_factory=list)  # the same less their means, times the roots

    @cached_property
    def _root(self) -> Array:
        return np.sqrt(self.problem.weights)

    @cached_property
    def _l1(self) -> Array:
        return self.problem.separable.strengths(self.problem.coef_shape)[0]

    @cached_property
    def _ridge(self) -> float:
        """ℓ2 beside an ℓ1 of one, which all columns share."""
        l1, l2 = self.problem.separable.strengths(self.problem.coef_shape)
        return float(l2[0] / l1[0] ** 2)

    @cached_property
    def _level(self) -> float:
        """Mean of the response."""
        weights = self.problem.weights
        return float(weights @ self.problem.y / weights.sum()) if self.problem.intercept else 0.0

    @cached_property
    def _response(self) -> Array:
        return self._root * (self.problem.y - self._level)

    @cached_property
    def _has_come(self) -> Mask:
        return np.zeros(len(self._l1), dtype=bool)

    def join(self, which: Index) -> None:
        """Take in columns that have not come yet."""
        new = which[~self._has_come[which]]
        if new.size == 0:
            return
        rows = _linalg.as_columns(self.problem.X).columns_as_rows(new) / self._l1[new, None]
        shares = self.problem.weights / self.problem.weights.sum() * bool(self.problem.intercept)
        means = _linalg.product(rows, shares)
        weighted = rows - means[:, None]
        weighted *= self._root
        across = [np.empty((0, new.size)), *(_linalg.product(old, weighted.T) for old in self._weighted)]
        none = np.zeros((new.size, new.size), order="F")
        own = _linalg.mirrored(_linalg.add_gram(none, weighted.T))
        self.gram = _linalg.bordered(self.gram, np.concatenate(across), own)
        self.cross = np.append(self.cross, _linalg.product(weighted, self._response))
        self.means, self.columns = np.append(self.means, means), np.append(self.columns, new)
        self._stored.append(rows)
        self._weighted.append(weighted)
        self._has_come[new] = True

    def minimum(self, start: Fit, error: float, sweeps: int) -> Fit:
        """Minimum on the columns that have come, with the best intercept.

        Parameters
        ----------
        start : Fit
            Whose coefficients are zero off these columns.
        error, sweeps
            As ``swept`` takes them.
        """
        own, n = self.columns, self.problem.n
        if own.size == 0:
            return self._fit(start, np.empty(0))
        shape = np.broadcast_to(0.0, (n, own.size))
        begun = start.coef[own] * self._l1[own]
        gram = self.gram.T  # symmetric, in the order of C
        x = swept(shape, self._response, begun, self._ridge, error, sweeps, precompute=gram, Xy=self.cross)
        return self._fit(start, x)

    def _fit(self, start: Fit, x: Array) -> Fit:
        """That of coefficients in these units."""
        coef = np.zeros_like(start.coef)
        coef[self.columns] = x / self._l1[self.columns]
        level = self._level - float(self.means @ x)
        eta, first = np.full(self.problem.n, level), 0
        for rows in self._stored:
            eta += _linalg.product(rows.T, x[first : first + len(rows)])
            first += len(rows)
        return Fit(self.problem, coef, np.asarray(level)).known(eta=eta)

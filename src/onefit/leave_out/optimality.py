"""Whether ends on some columns solve the lasso without single rows, on all columns.

With s⁽ⁱ⁾ = W (y − η⁽ⁱ⁾) without the entry of row i, a column of a coefficient that is zero must have
|x_jᵀ s⁽ⁱ⁾| ≤ (1 − f_i) l1_j.  Most need not be asked (safe screening, as in El Ghaoui et al. 2012): with s
the slopes of the fit and a_j = x_j − m_j a column less its mean, by Cauchy and Schwarz

    |x_jᵀ s⁽ⁱ⁾| ≤ |x_jᵀ s| + |a_ij s_i| + ‖W^½ a_j‖ ‖W^½ (η⁽ⁱ⁾ − η)‖ + |m_j 1ᵀ(s⁽ⁱ⁾ − s)|,

where the second norm is without row i.  Rows that move about as far are looked at together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.leave_out.tableau import Watched
from onefit.numerics import ON_BOUND

STATIONARY = 1e-8  # relative error of a correlation on the support that is none
TOGETHER = 96  # rows for which collecting columns takes less than a product with them
MARGIN = 1e-6  # relative room of a bound that needs no look: rounding, and more than ties


class EndsJudged(NamedTuple):
    """What all columns say about ends.

    Attributes
    ----------
    solved : (r,) bool array
        Rows whose coefficients solve the problem without them.
    joining : (p,) bool array
        Columns that should have been among those of the ends.
    own : (r,) array
        Linear predictors of the rows.
    """

    solved: Mask
    joining: Mask
    own: Array


class _Block(NamedTuple):
    """Some ends, one a column."""

    rows: Index  # (b,)
    keep: Array  # (b,), factor on the penalty
    slope: Array  # (n, b), s⁽ⁱ⁾

    def of(self, which: Index) -> _Block:
        return _Block(self.rows[which], self.keep[which], self.slope[:, which])


@dataclass(frozen=True, eq=False)
class Optimality:
    """The conditions of optimality of least squares with a separable ℓ1 part, without single rows.

    Attributes
    ----------
    watched : Watched
    columns : (k,) int array
        Those that ends have coefficients of, ascending.
    """

    watched: Watched
    columns: Index

    @cached_property
    def _strengths(self) -> tuple[Array, Array]:
        return self.watched.fit.strengths

    @cached_property
    def _active(self) -> Any:
        return _linalg.active_columns(self.watched.fit.problem.X, self.columns)

    @cached_property
    def _open_to_ties(self) -> Mask:
        return self.watched.may_be_tied

    @cached_property
    def _unit(self) -> float:
        return STATIONARY * float(np.abs(self.watched.fit.loss_gradient).max() + np.finfo(float).tiny)

    def of(self, rows: Index, coef: Array, level: Array) -> EndsJudged:
        """Judge the ends (r, k) of some rows."""
        fit, problem = self.watched.fit, self.watched.fit.problem
        solved, joining = np.ones(len(rows), dtype=bool), np.zeros(len(fit.coef), dtype=bool)
        own, size = np.empty(len(rows)), max(1, _linalg.BLOCK_SIZE // max(problem.X.shape))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            beta, here = coef[part].T, rows[part]
            slope = _linalg.times(self._active, beta)
            slope += level[part]
            place = here, np.arange(len(here))
            own[part] = slope[place]
            np.subtract(problem.y[:, None], slope, out=slope)
            slope *= problem.weights[:, None]
            slope[place] = 0.0
            block = _Block(here, problem.kept_alone(here), slope)
            solved[part] = self._on(block, beta, joining) & self._off(block, joining)
        return EndsJudged(solved, joining, own)

    def _on(self, block: _Block, beta: Array, joining: Mask) -> Mask:
        """Ends that are stationary on their columns; says which of them should have joined: (b,)."""
        l1, l2 = (part[self.columns, None] for part in self._strengths)
        gamma = _linalg.transposed_times(self._active, block.slope)
        if np.any(l2):
            gamma -= block.keep * l2 * beta
        bound, on = block.keep * l1, beta != 0
        off_target = np.where(on, np.abs(gamma - bound * np.sign(beta)), 0.0)
        fine = np.all(off_target <= self._unit, axis=0)
        if self.watched.fit.problem.intercept:
            scale = STATIONARY * np.abs(self.watched.fit.gradient).sum()
            fine &= np.abs(block.slope.sum(axis=0)) <= scale
        gamma[on] = 0.0
        return fine & self._held(block.keep, gamma, np.where(on, 1.0, bound), self.columns, joining)

    def _off(self, block: _Block, joining: Mask) -> Mask:
        """Ends that hold all other columns at zero: (b,)."""
        X, fine = self.watched.fit.problem.X, np.ones(len(block.rows), dtype=bool)
        for which, near in self._screened(block):
            some = block if which.size == len(fine) else block.of(which)
            columns = X if near.size == X.shape[1] else _linalg.active_columns(X, near)
            gamma = _linalg.transposed_times(columns, some.slope)
            most = some.keep * self._strengths[0][near, None]
            fine[which] = self._held(some.keep, gamma, most, near, joining)
        return fine

    def _held(self, keep: Array, gamma: Array, most: Array, columns: Index, joining: Mask) -> Mask:
        """Ends whose correlations (l, b) with columns of zeros are within what is held of them: (b,)."""
        excess = np.abs(gamma, out=gamma)
        excess -= most
        fine = np.ones(len(keep), dtype=bool)
        j, i = np.nonzero(excess >= -ON_BOUND * most)  # few
        tie = ON_BOUND * most[j, i]
        beyond = (excess[j, i] > tie + 1e-3 * self._unit) & self.watched.eligible[columns[j]]  # not copies
        fine[i[beyond | ((excess[j, i] >= -tie) & self._open_to_ties[columns[j]])]] = (
            False  # as good, or better
        )
        joining[columns[j[beyond]]] = True
        return fine

    # --- columns that need not be asked --------------------------------------------------------------

    def _screened(self, block: _Block) -> Iterator[tuple[Index, Index]]:
        """Ends by how far they have moved, and the columns that these might have left their bounds."""
        others = np.isfinite(self._strengths[0])
        others[self.columns] = False
        if not others.any():
            return
        if len(block.rows) <= TOGETHER:
            yield np.arange(len(block.rows)), np.flatnonzero(others)
            return
        problem, (size, norm, means) = self.watched.fit.problem, self._sizes
        l1, correlations = self._strengths[0], np.abs(self.watched.fit.loss_gradient)
        here = block.rows, np.arange(len(block.rows))
        change = block.slope + self.watched.fit.gradient[:, None]  # s⁽ⁱ⁾ − s
        drift, own = np.abs(change.sum(axis=0)), np.abs(change[here])
        change[here] = 0.0
        root = np.sqrt(problem.weights)[:, None]
        change = np.divide(change, root, out=change, where=root > 0)
        reach = np.sqrt(np.einsum("ia,ia->a", change, change))
        order = np.argsort(reach)
        for which in np.array_split(order, -(-len(order) // TOGETHER)):
            far = size * own[which].max() + norm * reach[which].max() + means * drift[which].max()
            near = far >= (block.keep[which].min() - MARGIN) * l1 - correlations
            yield which, np.flatnonzero(near & others)

    @cached_property
    def _sizes(self) -> tuple[Array, Array, Array]:
        """Largest entries and norms of the columns less their means, and the sizes of these: (p,)."""
        fit, problem = self.watched.fit, self.watched.fit.problem
        X, weights = _linalg.as_columns(problem.X), problem.weights
        means = _linalg.column_means(problem.X, weights) if problem.intercept else np.zeros(len(fit.coef))
        norms = np.sqrt(X.column_squares(weights, means if problem.intercept else None))
        return X.column_sizes() + np.abs(means), norms, np.abs(means)

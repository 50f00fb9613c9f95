"""How hard columns pull at a fit that the penalty holds: whether some have their say yet to come.

A ridge, and an ℓ1 part too, lie the heavier on a column the smaller its unit.  Where columns have very
different units a path that is laid by the largest ends long before the others may move, and its risk rises
on the way without telling anything of these.  What they have to say shows in their products with the
gradient of the fit: in standard errors it is no larger than chance makes it where there is nothing left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.fit import Fit
from onefit.numerics import TINY
from onefit.penalties import Box, Penalty, SeparablePenalty, Sum


def usual_by_chance(columns: int) -> float:
    """Largest product with residuals, in standard errors, of columns that have no more to say, about.

    While one is beyond it a path goes on past the end of its strengths.
    """
    return max(float(np.sqrt(2.0 * np.log(max(columns, 1)))), 1.0)


def largest_by_chance(columns: int) -> float:
    """The same with something to spare: while one is beyond it no path ends, however its risk has risen."""
    return usual_by_chance(columns) + 1.0


def largest_pull(fit: Fit, share: float = 1.0) -> float:
    """Largest product of a column with the gradient of a fit, in standard errors.

    Parameters
    ----------
    fit : Fit
    share : float
        Root of its own loss relative to that of left-out rows: as much larger are their gradients.
    """
    problem = fit.problem
    if not _linalg.has_columns(problem.X):
        return 0.0
    means = _linalg.column_means(problem.X, problem.weights) if problem.intercept.any() else None
    sizes = squares_of_products(problem.X, means, fit.gradient.reshape(problem.n, -1) ** 2)
    pull = held(fit.loss_gradient, fit.coef, problem.penalty).reshape(sizes.shape)
    return share * float(in_errors(pull, sizes).max(initial=0.0))


def in_errors(pull: Array, squares: Array) -> Array:
    """Products in standard errors, from the sums of the squares of their terms; 0 where there are none."""
    return np.divide(pull, np.sqrt(np.maximum(squares, TINY)), out=np.zeros_like(pull), where=squares > TINY)


def squares_of_products(X: object, means: Array | None, squares: Array) -> Array:
    """Σ_i (x_ij − m_j)² v_ik for squares v of the rows, (n, k): (p, k); 0 for constants beside means."""
    columns = _linalg.as_columns(X)
    if not columns.is_full:
        return np.stack([_of_sparse(columns, means, each) for each in squares.T], axis=1)
    found, sums = np.zeros((2, columns.shape[1], squares.shape[1]))
    for rows, block in columns.blocks(means):
        if means is not None:
            sums += _linalg.product(block.T, squares[rows])
        block *= block
        found += _linalg.product(block.T, squares[rows])
    if means is None:
        return found
    return np.where(_linalg.beyond_rounding(found, sums, means[:, None], squares.sum(axis=0)) > 0, found, 0.0)


def _of_sparse(columns: Any, means: Array | None, squares: Array) -> Array:
    """The same of one output: about the means that belong to these squares, and from there."""
    total = float(squares.sum())
    if means is None or total == 0.0:
        return np.asarray(columns.column_squares(squares, None))
    own = columns.transposed_times(squares) / total
    spread = columns.column_squares(squares, own)
    return np.where(spread > 0, spread + total * (own - means) ** 2, 0.0)


def held(gradient: Array, coef: Array, penalty: Penalty) -> Array:
    """Size of a gradient of the loss, as far as a penalty holds it that grows with its strength.

    Bounds hold what pulls beyond them, whatever the strength.
    """
    pull, rest = np.abs(gradient), penalty.rest if isinstance(penalty, Sum) else penalty
    if isinstance(rest, Box):
        lower, upper = rest.bounds(coef.shape)
        up, down = np.where(coef < upper, -gradient, 0.0), np.where(coef > lower, gradient, 0.0)
        return np.where(np.isfinite(rest.l1), np.maximum(np.maximum(up, down), 0.0), 0.0)
    if not isinstance(penalty, SeparablePenalty):
        return pull
    l1, l2 = penalty.strengths(coef.shape)
    finite = np.isfinite(l1) & np.isfinite(l2)
    return np.minimum(pull, np.where(finite, l1, 0.0) + np.where(finite, l2, 0.0) * np.abs(coef))

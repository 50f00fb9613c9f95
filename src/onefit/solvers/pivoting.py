"""Exact leave-one-out of least squares with an ℓ1 part, along the path on which a row's pull fades away.

Row i pulls on the coefficients through its slope g_i.  Let that pull fade in proportion to 1 − s, and the
penalty with it from P to (1 − f_i) P.  With K = Aᵀ W A + (1 − f) diag(l2) of all rows (A: the centred
columns of X), the solution at share s obeys

    K β + c = Aᵀ W y + t a_i − f (1 − s) l2 β⁰,     w_i (η_i − y_i) − t = (1 − s) g_i,
    c_j = (1 − f_i s) l1_j sign β_j where β_j ≠ 0,  |c_j| ≤ (1 − f_i s) l1_j elsewhere,

which is the fit at s = 0 and the refit without row i at s = 1: the augmented problem of Wang et al. (2018,
eq. 11), followed exactly.  β and c are piecewise linear in s, and a coordinate is exchanged, β_j for c_j or
back, where β_j reaches zero or c_j its bound.  K is that of *all* rows: it serves every row and stays
regular where the row determines its own fit; then s rests and t moves until a coordinate leaves.

All rows go in lockstep.  What they share is one tableau H, the response of the output of each coordinate (β
on the support of the fit, c off it) to its input (c, or β).  The q exchanges Q of a row need no more than
F = H_QQ⁻¹, bordered or reduced by one row and column at each pivot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index, Mask, Sparse
from onefit.problem import Fit

TIE = 1e-9  # relative excess of a correlation that is none: copies of an active column sit on the bound
STATIONARY = 1e-10  # relative error of a correlation on the support that is none
DEPENDENT = 1e-11  # distance from the span of the support, relative to its length, of a column inside it
FLAT = 1e-12  # the same for one that would join, squared
NEARBY = 0.8  # share of its bound from which on a correlation is watched along the path
LITTLE_SLACK = 0.05  # slack 1 − w_i h_i from which on the first step says little about the path
POLISHING = 6  # Newton steps at the end of the path, at most
EXTENSIONS = 4  # times that more columns may be watched
BLOCK_SIZE = 2**23  # numbers in the largest array of a block of rows: 64 MiB
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Pivoted:
    """Refits without single rows, had by pivots.

    Attributes
    ----------
    rows : (r,) int array
        Rows that were left out.
    coef : (r, p) sparse array
        Coefficients without each of them.
    level : (r,) array
        Intercepts, zero where there is none.
    pivots : (r,) int array
        Changes of the active pattern on the way.
    solved : (r,) bool array
        Whether the conditions of optimality of the refit were checked and hold: a proof, up to rounding.
        Where not, the coefficients mean nothing.
    """

    rows: Index
    coef: Sparse
    level: Array
    pivots: Index
    solved: Mask


def leave_out_by_pivots(fit: Fit, rows: Index) -> Pivoted:
    """Leave single rows out of a least-squares fit with a separable ℓ1 part, exactly.

    Parameters
    ----------
    fit : Fit
        Optimal to machine precision, of one output, with a quadratic loss and weights that do not
        depend on one another.
    rows : (r,) int array
        Rows to leave out, each on its own.

    Notes
    -----
    A row costs a pivot for each change of the active pattern, none of them a factorisation, and a check of
    all its correlations.  Rows that end without a proof of optimality (no minimum, a degenerate path) are
    reported as not solved.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Squared
    >>> from onefit.penalties import L1
    >>> from onefit.problem import Problem
    >>> from onefit.solvers.solve import solve
    >>> X, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 3.0, 2.0, 5.0])
    >>> fit = solve(Problem(Squared(), L1(2.0), X, y, np.ones(4)).at_start()).fit
    >>> without_last = leave_out_by_pivots(fit, np.array([3]))
    >>> without_last.coef.toarray(), without_last.level, without_last.pivots
    (array([[0.]]), array([2.]), array([1]))
    """
    rows = np.asarray(rows, dtype=np.intp)
    f = _shares(fit)
    curved = bool(np.any(fit.tangent.hessian))
    usual = float(np.median(f[rows])) if rows.size else 0.0
    result = _empty(fit, rows)
    for block in _blocks(fit, np.arange(rows.size)):
        result.take(block, _leave_out(fit, usual, rows[block]))
    # A curved penalty that shrinks differently with each row has a curvature for each of them; the usual
    # one leads to the right pattern but for a few.
    unequal = ~result.solved & curved & (f[rows] != usual)
    for block in np.flatnonzero(unequal):
        result.take(np.array([block]), _leave_out(fit, float(f[rows[block]]), rows[[block]]))
    return result.frozen(rows)

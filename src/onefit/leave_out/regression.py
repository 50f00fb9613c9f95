"""The regression estimator of the mean loss: exact losses of some rows beside what is known of all.

Where covariates of all rows are at hand (the loss in the fit, after a step, without a tenth of the rows) the
left-out losses of those drawn are predicted by least squares.  The mean of the predictions, corrected by what
they miss in the sample, is right up to O(1/m) whatever the covariates are worth (Särndal, Swensson and
Wretman 1992, §6.4).  Its error is that of residuals without the row itself, which few rows and one that is
far out would hide (the jackknife).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.leave_out.draws import AT_A_LOOK, Draw, spread

ENOUGH = 10  # rows a covariate
DEPENDENT = 1e-10  # share of the largest singular value below which covariates say the same
FARTHEST = 1e3  # leverage of a row that was not drawn, from which on those drawn by chance tell nothing of it
LEAST_REST = 0.05  # of a residual that is left beside a row's own pull: less is hardly told


def regression_estimate(
    known: Array, drawn: Draw, covariates: Array, shares: Array
) -> tuple[float, float, float]:
    """The mean by one look at a sample, its standard error, and how many of these an interval reaches.

    Rows count in the mean by shares, (n,), which sum to 1.
    """
    predicted, residuals = regressed(known, drawn, covariates, shares)
    expansion = shares[drawn.rows] / drawn.probabilities
    error, reach = spread(expansion * residuals, 1.0 - drawn.probabilities, AT_A_LOOK)
    return float(shares @ predicted + expansion @ (known - predicted[drawn.rows])), error, reach


def regressed(known: Array, drawn: Draw, covariates: Array, weights: Array) -> tuple[Array, Array]:
    """Least squares on the covariates, (n,), and residuals of those drawn without themselves, (m,).

    Predictions reach up to twice the largest of what is known.  What is least is the error of the mean: each
    row counts for all that it stands for, and one that was certain to be drawn for none.  But where those
    drawn by chance tell nothing of some row, certain ones may: of a rare class most are such.
    """
    counts = weights[drawn.rows] / drawn.probabilities
    counts, by_chance = counts / counts.max(), drawn.probabilities < 1.0
    by_chance = by_chance | ~by_chance.any()
    top = 2.0 * known.max()
    inside = np.clip(np.nan_to_num(covariates, nan=0.0), 0.0, top)
    used = inside[:, : np.count_nonzero(by_chance) // ENOUGH]
    scale = np.linalg.norm(used[drawn.rows], axis=0)  # of losses, whose unit may be anything
    A = np.column_stack([np.ones(len(inside)), used / np.where(scale > 0, scale, 1.0)])
    found = _least_squares(A, drawn.rows, np.where(by_chance, counts, 0.0), known)
    if found.reach(np.delete(A, drawn.rows, axis=0)) > FARTHEST:
        found = _least_squares(A, drawn.rows, counts, known)
    predicted = np.clip(A @ found.coef, 0.0, top)
    missed = known - predicted[drawn.rows]
    return predicted, missed / np.maximum(1.0 - found.leverages, LEAST_REST)


class _Regression(NamedTuple):
    """Coefficients, leverages of the rows that told them, and a root of the inverse of AᵀA."""

    coef: Array
    leverages: Array
    root: Array

    def reach(self, A: Array) -> float:
        """Largest leverage that any of other rows would have beside those that told, at most."""
        return float(np.max(np.sum((A @ self.root) ** 2, axis=1), initial=0.0))


def _least_squares(A: Array, rows: Index, counts: Array, known: Array) -> _Regression:
    U, s, Vt = np.linalg.svd(counts[:, None] * A[rows], full_matrices=False)
    told = s > DEPENDENT * s[0]
    root = Vt[told].T / s[told]
    return _Regression(root @ (U[:, told].T @ (counts * known)), np.sum(U[:, told] ** 2, axis=1), root)

"""Left-out values of rows that leave together, in the terms in which single rows are judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.risk import blocks, one_fit
from onefit.risk.folds import Folds
from onefit.risk.one_fit import SAFE_SLACK, Refinement
from onefit.risk.refit import Progress, without


@dataclass(frozen=True, eq=False)
class LeftTogether:
    """The linear predictor of every tested row when its set of rows is left out.

    Attributes
    ----------
    fit : Fit
    rows : (t,) int array
        The tested row that each value is for: in the order of the data where every row is tested once.
    fold : (t,) int array
        The set that it left with.
    removed : tuple of int arrays
        The rows of each set.
    eta : (t,) or (t, c) array
    leverages : (t,) array
        Those of single rows, d_i h_i.
    effective_df : float
        Their sum over all rows.
    certified, strained : (t,) bool arrays
        Values that solve the problem without their set; values that no step reached.
    skipped : int
        How many sets have no refit, where that was asked for.
    refinement : Refinement or None
    """

    fit: Fit
    rows: Index
    fold: Index
    removed: tuple[Index, ...]
    eta: Array
    leverages: Array
    effective_df: float
    certified: Mask
    strained: Mask
    skipped: int = 0
    refinement: Refinement | None = None

    @property
    def changing(self) -> Mask:
        """Values that are not those of the refit, for all that can be said."""
        return ~self.certified


def leave_sets_out(
    fit: Fit,
    curvature: Curvature | None,
    folds: Folds,
    *,
    exact: bool = False,
    progress: Progress | None = None,
) -> LeftTogether:
    """Leave sets of rows out by the block formula, and solve anew where that does not end on the refit.

    Parameters
    ----------
    fit, curvature
        Optimal on its pattern, and its curvature if at hand.
    folds : Folds
    exact : bool, default False
        Whether to solve anew without every set whose steps did not end on its refit; else only without
        those whose steps did not settle at all.
    progress : callable, optional
    """
    if fit.problem.loss.has_corners:  # rows in a corner and rows that are not leave together: solve anew
        eta = fit.eta[folds.rows]
        exactly, settled = np.zeros((2, len(folds)), dtype=bool)
    else:
        found = blocks.leave_out(fit, curvature, folds)
        eta, exactly = found.eta.copy(), found.exact.copy()
        settled = found.settled & (found.slack >= SAFE_SLACK)
    anew = np.flatnonzero(~(exactly & settled) if exact else ~settled)
    failed = np.zeros(len(folds), dtype=bool)
    for done, k in enumerate(anew, start=1):
        try:
            refit = without(fit, folds.removed[k], warm=not fit.has_free_directions)
        except SolverError:
            failed[k] = True
            continue
        eta[folds.fold == k] = refit.eta[folds.tested[k]]
        exactly[k] = settled[k] = True
        if progress is not None:
            progress(done, len(anew))
    single = one_fit.loo(fit, curvature, thorough=False).leverages
    order = np.argsort(folds.rows, kind="stable") if folds.is_partition else np.arange(len(folds.rows))
    rows, fold = folds.rows[order], folds.fold[order]
    n_failed = int(failed.sum())
    refined = Refinement(len(folds) - anew.size, refitted=anew.size - n_failed, failed=n_failed)
    return LeftTogether(
        fit,
        rows,
        fold,
        folds.removed,
        eta[order],
        single[rows],
        float(single.sum()),
        certified=exactly[fold],
        strained=(failed | ~settled)[fold],
        skipped=n_failed,
        refinement=refined if exact else None,
    )

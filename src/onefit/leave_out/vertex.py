"""Coefficients of columns that depend on each other, moved until the columns left are independent.

Where columns of the support are dependent, as copies are, an ℓ1 penalty leaves open how they share: along a
null vector v of them Xv and Σ l1 sign(β) v vanish, so that neither predictors nor objective change until a
coefficient is zero.  There the next one starts, and in the end the support has full rank.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.fit import Fit
from onefit.numerics import CERTIFIED, ON_BOUND

SAME = 0.1 * CERTIFIED  # relative distance of projections of a column from a copy's: predictors do not tell
DEPENDENT = 1e-10  # eigenvalue of the correlations of columns that is none
INDEPENDENT = 1e8  # condition of the correlations up to which no eigenvalue is asked for


def at_vertex(fit: Fit) -> Fit:
    """The fit itself, or as good a one on fewer columns, which are independent.

    Parameters
    ----------
    fit : Fit
        With a separable penalty and one output.
    """
    problem = fit.problem
    l1, l2 = fit.strengths
    free = np.flatnonzero((fit.coef != 0) & (l1 > 0) & (l2 == 0))
    if free.size == 0:
        return fit
    X = np.ascontiguousarray(_linalg.as_columns(problem.X).columns_as_rows(free)).T
    held = problem.weights > 0
    means = X[held].mean(axis=0) if problem.intercept else np.zeros(free.size)
    centred = (X - means)[held]
    norms = np.maximum(np.sqrt(np.einsum("ij,ij->j", centred, centred)), np.finfo(float).tiny)
    centred /= norms
    correlations = _linalg.product(centred.T, centred)
    L = _linalg.cholesky(np.asfortranarray(correlations))
    if L is not None and _linalg.condition(L) < INDEPENDENT:
        return fit
    values, vectors = np.linalg.eigh(correlations)
    null = vectors[:, values < DEPENDENT] / norms[:, None]
    if null.shape[1] == 0:
        return fit
    coef = fit.coef.copy()
    while null.shape[1]:
        v = null[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.where(np.abs(v) > DEPENDENT * np.abs(v).max(), coef[free] / v, np.inf)
        j = int(np.argmin(np.abs(until)))
        coef[free] -= until[j] * v
        coef[free[j]] = 0.0
        null = null[:, 1:] - np.outer(v, null[j, 1:] / v[j])
    level = fit.intercept + means @ (fit.coef - coef)[free]
    return fit.moved(coef, level).known(eta=fit.eta, gradient=fit.gradient)


def copies(fit: Fit) -> Mask:
    """Columns that are another one, or minus it, in units of their strengths: (p,), all but one of each kind.

    A few digits may differ, as those of a column that was rounded in other units do; beside intercepts a
    constant, too.

    The one that stays is in the support where any is; columns that share an ℓ2 part are none.
    """
    p = len(fit.coef)
    l1, l2 = (part.reshape(p, -1) for part in fit.strengths)
    inside = np.asarray(np.any(fit.coef.reshape(p, -1) != 0, axis=1))
    flat: Mask = np.asarray(np.all((l2 == 0) & (l1 > 0) & np.isfinite(l1), axis=1))
    if not flat.any():
        return flat
    probes = np.random.default_rng(0).normal(size=(fit.problem.n, 2))
    if fit.problem.intercept.all():
        probes -= probes.mean(axis=0)
    lengths = np.abs(_linalg.transposed_times(fit.problem.X, probes))
    marks = np.repeat(lengths, l1.shape[1], axis=1) / np.where(flat[:, None], np.tile(l1, 2), 1.0)
    order = np.lexsort((*marks.T, ~flat))
    apart, sizes = np.abs(np.diff(marks[order], axis=0)), marks[order][1:]
    same = np.all(apart <= SAME * sizes, axis=1) & flat[order][1:] & flat[order][:-1]
    kind = np.zeros(p, dtype=np.intp)
    kind[order[1:]] = np.cumsum(~same)
    by_kind = np.lexsort((~inside, kind))
    found = np.zeros(p, dtype=bool)
    found[by_kind[1:]] = np.diff(kind[by_kind]) == 0
    return found & ~inside


def may_be_tied(fit: Fit) -> Mask:
    """Coefficients that would be as good as others if they came onto their bound: of their shape.

    Nothing but an ℓ1 part is on them, and no other column is the same in every row.
    """
    l1, l2 = fit.strengths
    own = _linalg.with_axes(~copies(fit), fit.coef)
    return np.asarray((l2 == 0) & (l1 > 0) & np.isfinite(l1) & own)


def held_up_to(fit: Fit) -> Array:
    """Shares of their bounds up to which correlations leave a zero as it is, and alone: of their shape.

    A column on its bound may be as good as another one, where it is not the same.
    """
    return np.where(may_be_tied(fit), 1.0 - ON_BOUND, 1.0 + ON_BOUND)

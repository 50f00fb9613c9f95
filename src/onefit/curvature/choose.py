"""Which curvature a fit has: the side by size, the constraints by kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature.base import Curvature, ScalarCurvature
from onefit.curvature.constrained import Along, Pinned
from onefit.curvature.dual import Dual
from onefit.curvature.outputs import CoupledBlock, Independent
from onefit.curvature.primal import Primal
from onefit.fit import Fit
from onefit.penalties import Coordinates, Subspace, Tangent
from onefit.problem import Problem


def factor(fit: Fit, tangent: Tangent | None = None, shrink: float = 1.0) -> Curvature:
    """Factor the curvature of a fit.

    Parameters
    ----------
    fit : Fit
    tangent : Tangent, optional
        Another smooth piece than the one through the coefficients.
    shrink : float, default 1.0
        Factor on the penalty's curvature: (n − 1)/n for refits that shrink their penalty.
    """
    tangent = fit.tangent if tangent is None else tangent
    if fit.problem.has_one_output:
        return factor_scalar(fit, tangent, shrink)
    tangent = replace(tangent, hessian=tangent.hessian * shrink)
    if fit.problem.is_coupled:
        return CoupledBlock(fit, tangent)
    return _several_outputs(fit.problem, tangent, fit.hessian)


def factor_scalar(fit: Fit, tangent: Tangent, shrink: float = 1.0) -> ScalarCurvature:
    """Factor the curvature of a fit with a single output."""
    tangent = tangent if shrink == 1.0 else replace(tangent, hessian=tangent.hessian * shrink)
    intercept = bool(fit.problem.intercept)
    if not fit.pinned.any():
        return _one_output(fit.problem, tangent, fit.hessian, intercept)
    held = float(fit.hessian.max()) or _balanced(fit, tangent)
    K = _one_output(fit.problem, tangent, np.where(fit.pinned, held, fit.hessian), intercept)
    return Pinned(K, fit.problem.X, np.flatnonzero(fit.pinned), held)


def _balanced(fit: Fit, tangent: Tangent) -> float:
    """ρ for rows on kinks where no other row is curved: as stiff as the penalty is along them.

    Results do not depend on it, but both K and T lose digits where one of the two terms swamps the other.
    """
    stiffness = float(np.abs(tangent.hessian).mean()) if tangent.is_curved else 0.0
    pins = np.flatnonzero(fit.pinned)
    size = float(fit.problem.squared_lengths(pins).mean())
    return stiffness / size if stiffness > 0 and size > 0 else 1.0


def _one_output(problem: Problem, tangent: Tangent, d: Array, intercept: bool) -> ScalarCurvature:
    if isinstance(tangent, Subspace):
        along = _linalg.as_columns(problem.X).along(tangent.basis)
        K = Primal(along, None, tangent.size, tangent.hessian, d, intercept)
        return Along(K, problem.X, tangent.basis)
    support = np.flatnonzero(tangent.support)
    curved = tangent.hessian[support]
    n, p = problem.X.shape
    columns = None if len(support) == p else support
    in_dual = not _linalg.has_columns(problem.X) or len(support) > n
    if in_dual and np.all(curved > 0) and d.min() >= 0:
        return Dual(problem.X, columns, p, curved, d, intercept, problem.known_inner)
    return Primal(problem.X, columns, p, curved, d, intercept, problem.known_moments)


def _several_outputs(problem: Problem, tangent: Tangent, d: Array) -> Curvature:
    """Independent outputs: one factor for all those with the same support and strengths."""
    columns = np.vstack([tangent.hessian, tangent.support, problem.intercept[None], d]) + 0.0  # no −0
    kinds = dict[bytes, int]()
    group = np.array([kinds.setdefault(column.tobytes(), len(kinds)) for column in columns.T])
    _, first = np.unique(group, return_index=True)
    factors = [
        _one_output(
            problem,
            Coordinates(tangent.support[:, j], tangent.gradient[:, j], tangent.hessian[:, j]),
            d[:, j],
            bool(problem.intercept[j]),
        )
        for j in first
    ]
    return Independent(factors, group)

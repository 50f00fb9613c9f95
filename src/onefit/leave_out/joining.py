"""Whether kinks of a conic penalty hold a fit, or groups and singular values may join it at no cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Curvature, Pinned, factor
from onefit.fit import Fit
from onefit.leave_out.loose_programs import penalty_ridge
from onefit.leave_out.optima import Optima, null_space
from onefit.leave_out.straight_rows import held_rows, interval_of_duals
from onefit.losses import PiecewiseLinear
from onefit.numerics import INSIDE, ON_BOUND, TINY
from onefit.penalties import Conic, Coordinates, Tangent
from onefit.solvers.kinks import size_of_duals

STRAIGHT = 1e-12  # curvature of a penalty, relative to its largest, that is none
ALIKE = 1e-6  # share of a move of rows that is none: directions of what just joins are known to ``ON_BOUND``


def is_held(fit: Fit, K: Curvature | None = None) -> bool:
    """Whether kinks strictly hold a fit of straight pieces beside a conic penalty: it is then the only one.

    Rows inside their kinks have to determine what is free, and no group or singular value may join at no
    cost.  Others, whose optima are found, or whose ℓ2 part leaves one optimum, are not asked.
    """
    penalty, gradient = fit.problem.penalty, fit.gradient
    if not isinstance(fit.problem.loss, PiecewiseLinear) or not isinstance(penalty.without_ridge(), Conic):
        return True
    if np.all(penalty_ridge(fit) > 0) or not fit.problem.has_one_output:
        return True
    K = factor(fit) if K is None else K
    K = K.inner if isinstance(K, Pinned) else K  # with any curvature on the rows that kinks hold
    (least, most), tie = interval_of_duals(fit), ON_BOUND * max(size_of_duals(fit), TINY)
    inside = (gradient > least + tie) & (gradient < most - tie)
    if not K.is_definite or not inside[fit.pinned].all():
        return False
    return _with_what_joins(fit, INSIDE).size == fit.tangent.size


def _with_what_joins(fit: Fit, near: float) -> Tangent:
    """The smooth piece along which groups or singular values may join that are so near to doing it."""
    penalty, slope = fit.problem.penalty, fit.loss_gradient
    size = float(np.abs(fit.coef).max(initial=0.0)) / max(float(np.abs(slope).max()), TINY)
    beyond = penalty.prox(fit.coef - size * (1.0 + near) * slope, size)
    return penalty.tangent(beyond, slope if penalty.turns else None)


@dataclass(frozen=True, eq=False)
class StraightFace(Optima):
    """The optima of a loss that curves and a penalty with a proximal operator: moves without a curve.

    A group lasso is straight along the groups as they are, a rounded loss along the pieces that its rows are
    on.  How far the moves go is not known.
    """

    fit: Fit
    along: Array  # (p + 1, m) moves of coefficients and intercept along which the penalty is straight

    @classmethod
    def of(cls, fit: Fit) -> StraightFace:
        """Moves of what is free, or may join at no cost."""
        tangent = _with_what_joins(fit, ON_BOUND)
        curved = tangent.hessian if tangent.hessian.ndim == 2 else np.diag(tangent.hessian)
        values, vectors = np.linalg.eigh(curved)
        straight = vectors[:, values <= STRAIGHT * values.max(initial=0.0)]
        own = np.reshape([*tangent.directions], (-1, len(fit.coef))).T @ straight
        return cls(fit, block_diag(own, np.ones((1, int(np.any(fit.problem.intercept))))))

    @cached_property
    def directions(self) -> Array:
        held = self.moves(np.flatnonzero(held_rows(self.fit)))[0]
        return self.along @ null_space(held @ self.along, ALIKE)

    @property
    def is_point(self) -> bool:
        """Whether all optima have the same predictors."""
        return self.directions.shape[1] == 0 or not self.is_felt(np.arange(self.fit.problem.n)).any()

    def moves(self, rows: Index) -> Array:
        X = _linalg.as_columns(_linalg.some_rows(self.fit.problem.X, rows)).dense()
        return np.hstack([X, np.ones((len(X), len(self.along) - X.shape[1]))])[None]

    def limits(self) -> tuple[Array, Array]:
        return np.empty((0, len(self.along))), np.empty(0)


def straight_faces(fit: Fit) -> list[Optima]:
    """The optima of a loss without kinks beside a conic penalty, if there may be several."""
    problem = fit.problem
    curves = problem.has_one_output and not problem.loss.has_kinks
    if not curves or not isinstance(problem.penalty.without_ridge(), Conic):
        return []
    if not (fit.coef.any() or problem.loss.jumps) or not columns_depend(fit):
        return []
    return [StraightFace.of(fit)]


def columns_depend(fit: Fit) -> bool:
    """Whether some move of all coefficients changes no row that is held."""
    held, p = held_rows(fit), len(fit.coef)
    if p + int(bool(fit.problem.intercept)) > np.count_nonzero(held):
        return True
    counted = Fit(fit.problem, fit.coef, fit.intercept)
    counted.known(hessian=held.astype(np.float64), pinned=np.zeros_like(held))
    return not factor(counted, Coordinates(np.ones(p, dtype=bool), np.zeros(p), np.zeros(p))).is_definite

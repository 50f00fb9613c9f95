"""Piecewise linear losses with norms of groups and singular values: a conic program, by Clarabel.

    minimise over (β, b, u, t):   Σ_i w_i (s_i0 η_i + Σ_k δ_ik u_ik) + ½ Σ_j l2_j β_j² + cᵀt
    such that                     u_ik ≥ 0,   u_ik ≥ η_i − κ_ik,   A β + E t in a product of cones,

with the slopes s_i0 of the first pieces, the rises δ_ik at the kinks κ_ik, and the conic form of the penalty.
Rounded kinks (Huber) have η_i − v_i in place of η_i, and w_i v_i² / (2 rounding) in the objective; where a
slope has no end (squared hinge) the kink bounds η_i − v_i.
Clarabel (Goulart and Chen 2024) is an interior-point method: its answer is near, and ``curved_program`` goes
on from there to the solution on its pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.losses import PiecewiseLinear
from onefit.losses.rounded import RoundedKinks
from onefit.penalties import Cone, Conic, ConicForm
from onefit.problem import Problem

TOLERANCE = 1e-10  # of Clarabel's gap and residuals; it accepts a little more where rounding stops it
SOLVED = ("Solved", "AlmostSolved")


def solve(problem: Problem) -> Fit:
    """Minimise the objective to the accuracy of an interior-point method.

    Parameters
    ----------
    problem : Problem
        Of one output, a loss of straight pieces, with or without rounded kinks, and a penalty with a conic
        form.

    Returns
    -------
    Fit
        With ``gradient``, the duals of the rows, known.

    Raises
    ------
    ImportError
        If Clarabel is not installed.
    SolverError
        If it finds no solution.
    """
    clarabel = _clarabel(problem)
    rows = np.flatnonzero(problem.weights > 0)
    program = _Program(problem, rows)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    found = clarabel.DefaultSolver(
        sp.csc_matrix(program.quadratic),
        program.cost,
        sp.csc_matrix(-program.matrix),
        program.offset,
        [_cone(clarabel, *one) for one in program.cones],
        settings,
    ).solve()
    if str(found.status) not in SOLVED:
        raise SolverError(
            f"Clarabel found no solution ({found.status}): the problem may have no finite minimum; give "
            "every column a penalty, and scale the columns"
        )
    return program.fit(np.asarray(found.x), np.asarray(found.z))


def _clarabel(problem: Problem) -> Any:
    """Clarabel's own API, which is an optional package."""
    try:
        import clarabel
    except ImportError as error:
        raise ImportError(
            f"{type(problem.loss).__name__} with {type(problem.penalty.without_ridge()).__name__} is a conic "
            "program and needs Clarabel: pip install clarabel"
        ) from error
    return clarabel


def _cone(clarabel: Any, cone: Cone, size: int) -> Any:
    made = {
        Cone.NONNEGATIVE: clarabel.NonnegativeConeT,
        Cone.SECOND_ORDER: clarabel.SecondOrderConeT,
        Cone.SEMIDEFINITE: clarabel.PSDTriangleConeT,
    }
    return made[cone](size)


class _Program:
    """The conic program of a problem, on the rows that have weight; its variables are β, b, u and t."""

    def __init__(self, problem: Problem, rows: Index) -> None:
        loss, penalty = problem.loss, problem.penalty.without_ridge()
        if not isinstance(loss, PiecewiseLinear | RoundedKinks) or not isinstance(penalty, Conic):
            raise TypeError(f"{type(loss).__name__} with {type(penalty).__name__} is no conic program")
        self.problem, self.rows, p = problem, rows, problem.X.shape[1]
        self.form: ConicForm = penalty.conic_form(p)
        kinks = loss.kinks(problem.y[rows])
        self.unit = float(np.abs(kinks).max(initial=0.0)) or 1.0  # of linear predictors, and all variables
        self.kinks = kinks / self.unit
        self.slopes = problem.weights[rows, None] * loss.slopes(problem.y[rows])
        n = len(rows)
        ones = np.ones((n, int(bool(problem.intercept))))
        self.design = sp.hstack([sp.csr_array(problem.X)[rows], sp.csr_array(ones)], format="csr")
        p_all, m = self.design.shape[1], len(self.form.cost)
        ridge, moves, bends = problem.penalty.ridge((p,)), sp.csr_array((n, 0)), np.empty(0)
        if isinstance(loss, RoundedKinks):
            moves, bends = -sp.eye_array(n, format="csr"), problem.weights[rows] / loss.rounding
        shifted = sp.hstack([self.design, moves], format="csr")
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            rises = np.diff(self.slopes, axis=1)
        self.soft, self.floor = np.nonzero(np.isfinite(rises)), np.flatnonzero(np.isneginf(self.slopes[:, 0]))
        self.ceiling = np.flatnonzero(np.isposinf(self.slopes[:, -1]))
        self.quadratic = sp.diags_array(
            self.unit * np.concatenate([ridge, np.zeros(p_all - p), bends, np.zeros(len(self.soft[0]) + m)])
        )
        self.cost = np.concatenate([shifted.T @ self._first, rises[self.soft], self.form.cost])
        eye, r = sp.eye_array(len(self.soft[0])), self.form.coef.shape[0]
        coef = sp.hstack([self.form.coef, sp.csr_array((r, shifted.shape[1] - p))])
        blocks = [
            [None, eye, None],
            [-shifted[self.soft[0]], eye, None],
            [shifted[self.floor], None, None],
            [-shifted[self.ceiling], None, None],
            [coef, None, self.form.extra],
        ]
        self.matrix = sp.block_array(blocks, format="csr")
        bounds = -self.kinks[self.floor, 0], self.kinks[self.ceiling, -1]
        self.offset = np.concatenate([np.zeros(eye.shape[0]), self.kinks[self.soft], *bounds, np.zeros(r)])
        self.cones = [(Cone.NONNEGATIVE, len(self.offset) - r), *self.form.cones]

    @property
    def _first(self) -> Array:
        """Slope of the first piece that has one: (n,)."""
        return np.where(np.isfinite(self.slopes[:, 0]), self.slopes[:, 0], self.slopes[:, 1])

    def fit(self, x: Array, z: Array) -> Fit:
        """Read the solution: g_i is the slope of the first piece plus the duals of u_ik ≥ η_i − κ_ik."""
        problem, p, soft = self.problem, self.problem.X.shape[1], len(self.soft[0])
        x = self.unit * x
        level = np.asarray(x[p] if bool(problem.intercept) else 0.0)
        parts = np.split(z, np.cumsum([soft, soft, len(self.floor), len(self.ceiling)]))
        duals = self._first + np.bincount(self.soft[0], parts[1], minlength=len(self.rows))
        duals[self.floor] -= parts[2]
        duals[self.ceiling] += parts[3]
        gradient = np.zeros(problem.n)
        gradient[self.rows] = np.clip(duals, self.slopes[:, 0], self.slopes[:, -1])
        return Fit(problem, x[:p].copy(), level).known(gradient=gradient)

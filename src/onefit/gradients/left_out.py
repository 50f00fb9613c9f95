"""Gradients of leave-one-out from one fit, and of effective degrees of freedom."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Along, Curvature, Direction, Independent, Pinned, ScalarCurvature, factor
from onefit.fit import Fit
from onefit.gradients.adjoint import Cotangent, OfGram, OfLoss
from onefit.gradients.solution import as_columns, implicit, of_rows, through_solution
from onefit.leave_out.rescaling import curvature_of_refits
from onefit.leave_out.result import LeftOut
from onefit.leave_out.step import Step
from onefit.penalties import Coordinates, Subspace, Tangent


class _Owed(NamedTuple):
    """Derivatives of a risk in what the step is made of, with matrices for each row: c outputs."""

    eta: Array  # (n, c), beside what goes through the others
    gradient: Array  # (n, c)
    hessian: Array  # (n, c, c)
    form: Array  # (n, c, c)
    shift: Array  # (n, c)


def leave_one_out(
    fit: Fit, by_row: Callable[[LeftOut], Array], curvature: Curvature | None = None
) -> tuple[LeftOut, Cotangent]:
    """One step for every row, and the exact gradient of a risk of it, for about two more factorisations.

    With η̃ = η + H (I − D H)⁻¹ (g + D s) + s, and the derivative r of the risk in η̃,

        ρ = (I − H D)⁻¹ H r,   owed to g: ρ;   to H: (r + D ρ)(…)ᵀ;   to D: ρ (s + H …)ᵀ;   to s: r + D ρ,

    where … = (I − D H)⁻¹ (g + D s).  What is owed to H goes through Q = K⁻¹ Zᵀ E Z K⁻¹ to bends and C.

    Parameters
    ----------
    fit : Fit
        Optimal, of a smooth loss.
    by_row : callable
        From the left-out values to the derivative of the risk in them, of the shape of ``eta``.
    curvature : Curvature, optional
        That of the fit, if it is at hand.
    """
    if curvature is None or not _is_along(fit.tangent, curvature):
        curvature = factor(fit)
    _check_linear_pattern(fit)
    if fit.problem.loss.is_kinked:
        return _off_kinks(fit, by_row, curvature)
    of_refits = curvature_of_refits(fit, curvature)
    step = Step.of(fit, of_refits)
    left_out = step.taken(fit)
    owed = _owed(fit, step, by_row(left_out))
    through = _through_forms(fit, of_refits, _as_given(fit, owed.form))
    pulled = _through_shift(fit, of_refits, step, owed.shift)
    bends = owed.hessian - _linalg.row_matrices(through.rows, owed.eta.shape[1]) - pulled.hessian
    slopes = owed.gradient + pulled.gradient
    D = _linalg.row_matrices(fit.hessian, slopes.shape[1])
    by_eta = owed.eta + np.einsum("nab,na->nb", D, slopes) + _contracted(_third(fit), bends)
    v = of_rows(fit, by_eta.reshape(fit.eta.shape))
    curved = -fit.problem.usual_shrink * (through.free + pulled.free)
    v = Direction(v.coef + pulled.parameters + fit.problem.penalty.third(fit.coef, curved), v.intercept)
    implied = implicit(fit, curvature, v)
    loss = OfLoss(slopes.reshape(fit.eta.shape), _as_given(fit, bends))
    return left_out, implied + Cotangent(pulled.penalty, curved, loss, through.gram)


def _is_along(tangent: Tangent, curvature: Curvature) -> bool:
    """Whether a curvature has the free directions as the tangent has them, not as lasso coordinates do."""
    return not isinstance(curvature, Along) or (
        isinstance(tangent, Subspace) and curvature.basis is tangent.basis
    )


def _third(fit: Fit) -> Array:
    return fit.problem.per_row(fit.problem.loss.third(fit.problem.y, fit.eta))


def _check_linear_pattern(fit: Fit) -> None:
    """Refuse penalties whose free directions turn, and refits that rescale what has no such formula."""
    problem = fit.problem
    if problem.penalty.turns:
        name = type(problem.penalty).__name__
        raise TypeError(
            f"the free directions of {name} turn with the coefficients: take differences of the risk"
        )
    if problem.loss.has_kinks and not problem.loss.is_kinked:
        raise TypeError(
            "curved pieces with kinks have no gradient of leave-one-out from one fit: take that of each refit"
        )
    special = problem.loss.is_kinked or not _linalg.has_columns(problem.X)
    ridge = problem.penalty.is_ridge(fit.coef.shape)
    if special and not (ridge and problem.refits_keep_the_rest):
        raise TypeError(
            "kernel models and losses with kinks have gradients of leave-one-out where the "
            "penalty is ridge and refits keep it and the weights as they are: take differences of the risk"
        )


class _PulledForms(NamedTuple):
    """What is owed through the forms h_i = z_iᵀ K⁻¹ z_i."""

    rows: Array  # q_i, as in ``Sandwich``
    free: Array  # to −C
    gram: OfGram | None


def _through_forms(fit: Fit, curvature: Curvature, middle: Array) -> _PulledForms:
    """Pull back Σ_i ⟨e_i, h_i⟩.

    In the dual coordinates R of K⁻¹ Zᵀ, h_i changes by α r_iᵀ dG r_i as G moves, and by −r_iᵀ G r_i dα.
    """
    if _linalg.has_columns(fit.problem.X):
        return _PulledForms(*curvature.sandwich(middle), gram=None)
    by_output, alpha = as_columns(middle), as_columns(fit.tangent.hessian)
    rows, free = np.empty_like(by_output), np.empty_like(by_output)
    left, right = [], []
    for j, e in enumerate(by_output.T):
        K = curvature.factors[curvature.group[j]] if isinstance(curvature, Independent) else curvature
        assert isinstance(K, ScalarCurvature)
        R = K.responses().coef
        rows[:, j], free[:, j] = K.hat_matrix() ** 2 @ e, (_linalg.times(fit.problem.X, R) * R) @ e
        left.append(R * e)
        right.append(R * alpha[:, [j]])
    gram = OfGram(np.hstack(left), np.hstack(right))
    return _PulledForms(rows.reshape(middle.shape), free.reshape(fit.coef.shape), gram)


def _off_kinks(
    fit: Fit, by_row: Callable[[LeftOut], Array], curvature: Curvature
) -> tuple[LeftOut, Cotangent]:
    """One step for every row of a piecewise linear loss, on the pattern of the fit, and its gradient.

    A row on a piece leaves η̃_i = η_i + h_i g_i; one on a kink η̃_i = κ_i + g_i / T_ii, with
    dg_V = −Rᵀ d(∇P) and d(1/T_ii) = −R_iᵀ dC R_i / T_ii², where R = ``Pinned.lift``.
    """
    h = curvature.quadratic_forms()
    h = np.where(np.isinf(h), 0.0, h)
    nothing = np.full(fit.problem.n, np.inf)
    left_out = LeftOut(
        fit, fit.eta + h * fit.gradient, nothing, fit.pinned.astype(np.float64), np.ones(fit.problem.n)
    )
    r = by_row(left_out)
    v = of_rows(fit, r)
    u, held = curvature.solve(v), None
    if isinstance(curvature, Pinned):
        duals = (r * h)[curvature.pins]
        u = Direction(u.coef + curvature.lift.coef @ duals, u.intercept + curvature.lift.intercept @ duals)
        held = curvature.hold(v) - curvature.tension @ duals
    implied, e = through_solution(fit, u, held), r * fit.gradient
    free, gram = np.zeros_like(fit.coef), None
    if _linalg.has_columns(fit.problem.X):
        assert isinstance(curvature, ScalarCurvature)
        free[fit.tangent.support] = curvature.responses().coef ** 2 @ e
    else:
        _, free, gram = _through_forms(fit, curvature, e)
    direct = OfLoss(np.where(fit.pinned, 0.0, r * h))
    return left_out, implied + Cotangent(np.zeros_like(fit.coef), -free, direct, gram)


def _owed(fit: Fit, step: Step, r: Array) -> _Owed:
    n = fit.problem.n
    c = r[0].size
    H, D = _linalg.row_matrices(step.forms, c), _linalg.row_matrices(fit.hessian, c)
    g, s, r = step.gradient.reshape(n, c), step.shift.reshape(n, c), r.reshape(n, c)
    eye = np.eye(c)
    inside = np.linalg.solve(eye - D @ H, (g + np.einsum("nab,nb->na", D, s))[:, :, None])[:, :, 0]
    rho = np.linalg.solve(eye - H @ D, np.einsum("nab,nb->na", H, r)[:, :, None])[:, :, 0]
    grown = (1.0 + step.rescaled.own_growth())[:, None]
    onward = r + np.einsum("nab,nb->na", D, rho)
    form = onward[:, :, None] * inside[:, None, :]
    along = s + np.einsum("nab,nb->na", H, inside)
    bend = rho[:, :, None] * along[:, None, :]
    return _Owed(r, rho * grown, _symmetric(bend), _symmetric(form), onward)


class _Shifted(NamedTuple):
    """What is owed through s, the part of the step that refits rescale."""

    gradient: Array
    hessian: Array
    penalty: Array  # to ∇P
    parameters: Array  # to the coefficients, through ∇P
    free: Array  # to −C, as Q is


def _through_shift(fit: Fit, curvature: Curvature, step: Step, owed: Array) -> _Shifted:
    """Pull back s_i = Σ_t a_ti z_iᵀ x_t, x_t = K⁻¹ ∇_t: gradients of the penalty, or slopes of a class."""
    n, c = owed.shape
    slope, bend, free = np.zeros((n, c)), np.zeros((n, c, c)), np.zeros_like(fit.tangent.hessian)
    gradient, parameters = np.zeros_like(fit.coef), np.zeros_like(fit.coef)
    moved = zip(step.rescaled.directions, step.rescaled.amounts, fit.problem.reweighed(), strict=True)
    for x, amount, part in moved:
        y = curvature.solve(of_rows(fit, (owed * amount[:, None]).reshape(fit.eta.shape)))
        zx, zy = (curvature.predict(one).reshape(n, c) for one in (x, y))
        bend = bend + _symmetric(zx[:, :, None] * zy[:, None, :])
        free = free + _free_product(fit.tangent, x.coef, y.coef)
        if part.rows is None:
            gradient = gradient + y.coef
            parameters = parameters + fit.tangent.curve(y.coef)
        else:
            slope = slope + zy * part.rows[:, None]
    return _Shifted(slope, bend, gradient, parameters, free)


def _free_product(tangent: Tangent, x: Array, y: Array) -> Array:
    """Symmetric part of x yᵀ, as C has it: on the free directions, or its diagonal."""
    if not isinstance(tangent, Subspace):
        return x * y
    along_x, along_y = (_linalg.transposed_times(tangent.basis, one) for one in (x, y))
    outer = np.multiply.outer(along_x, along_y)
    return 0.5 * (outer + outer.T)


def gradient_2017(fit: Fit, by_row: Callable[[LeftOut], Array], rows: Index | None = None) -> Cotangent:
    """Return the gradient that Beirami et al. (2017, eq. 16) step along: of refits, at left-out parameters.

        g⁽ⁱ⁾ = −∇r(θ̃⁽ⁱ⁾)ᵀ H₋ᵢ⁻¹ ∇ℓ(z_i; θ̃⁽ⁱ⁾),

    with the Hessian of the other rows at the fit.  Their Algorithm 1 averages over all rows, Algorithm 2
    takes one at random.

    Parameters
    ----------
    fit : Fit
        Of one output, with free directions that are coordinates.
    by_row : callable
        As for ``leave_one_out``.
    rows : int array, optional
        Rows to sum over; all by default.
    """
    problem = fit.problem
    if not problem.has_one_output or not isinstance(fit.tangent, Coordinates) or problem.is_balanced:
        raise TypeError(
            "the gradient of the 2017 paper is for one output, penalties on single coefficients, and weights "
            "that stay as they are"
        )
    curvature = curvature_of_refits(fit)
    step = Step.of(fit, curvature)
    left_out = step.taken(fit)
    rows = np.arange(fit.problem.n) if rows is None else rows
    r = by_row(left_out)[rows]
    columns = _linalg.as_design(fit.problem.X).basis_of_rows(rows)
    reach = curvature.solve(Direction(columns, np.ones(len(rows)))).coef  # K⁻¹ z_i: (p, r)
    slack = np.maximum(left_out.slack[rows], np.finfo(float).tiny)
    own = step.gradient[rows] + fit.hessian[rows] * (left_out.eta[rows] - fit.eta[rows])
    moved = reach * own  # θ̃ − θ
    for direction, amount in zip(step.rescaled.directions, step.rescaled.amounts, strict=True):
        moved = moved + np.outer(direction.coef, amount[rows])
    owed = -reach * (problem.kept_alone(rows) * r / slack)
    return Cotangent(owed.sum(axis=1), np.sum(owed * moved, axis=1))


# --- effective degrees of freedom ------------------------------------------------------------------


def degrees_of_freedom(fit: Fit, curvature: Curvature, owed: float, by_eta: Array) -> Cotangent:
    """Cotangent of a risk with derivative ``owed`` in Σ d_i h_i, and ``by_eta`` in the linear predictors.

    One output and a smooth loss; GCV and its kind.
    """
    _check_linear_pattern(fit)
    if isinstance(fit.tangent, Subspace):  # Q is asked for in its basis, and a solution may have another one
        curvature = factor(fit)
    h, middle = curvature.quadratic_forms(), owed * fit.hessian
    through = _through_forms(fit, curvature, middle)
    bends = owed * h - through.rows
    v = of_rows(fit, by_eta + _third(fit) * bends)
    v = Direction(v.coef + fit.problem.penalty.third(fit.coef, -through.free), v.intercept)
    implied = implicit(fit, curvature, v)
    direct = OfLoss(np.zeros_like(fit.eta), bends)
    return implied + Cotangent(np.zeros_like(fit.coef), -through.free, direct, through.gram)


# --- shapes ----------------------------------------------------------------------------------------


def _symmetric(matrices: Array) -> Array:
    return 0.5 * (matrices + matrices.transpose(0, 2, 1))


def _as_given(fit: Fit, matrices: Array) -> Array:
    """Matrices of the rows in the shape of the second derivatives of the loss."""
    own = matrices if fit.problem.is_coupled else _linalg.row_diagonals(matrices)
    return own.reshape(fit.hessian.shape)


def _contracted(third: Array, owed: Array) -> Array:
    """Σ_ab owed_ab ∂³ℓ/∂η_a∂η_b∂η_c: (n, c)."""
    n, c = len(owed), owed.shape[1]
    if third.ndim == 4:
        return np.einsum("nab,nabc->nc", owed, third)
    return np.einsum("naa->na", owed) * third.reshape(n, c)

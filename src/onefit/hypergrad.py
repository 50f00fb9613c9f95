"""Gradients of a risk in the hyperparameters: the implicit function theorem, once.

At a fit the parameters answer to a change of the penalty by dθ = −K⁻¹ d(∇P) on the tangent, with the same K
that leave-one-out has.  So a risk is pulled back in two steps:

1. from its left-out predictors to the fit: what it owes to the slopes and bends of the loss, to the leverages
   and to the penalty's curvature C;
2. from the parameters to the penalty, by one solve u = K⁻¹ v, whatever the number of hyperparameters.

What is left is a ``Cotangent``: the derivative of the risk in ∇P and in C on the tangent.  With it,

    ∂R/∂λ_m = ⟨∂R/∂∇P, ∂_m ∇P⟩ + ⟨∂R/∂C, ∂_m C⟩

for every λ_m (Beirami et al. 2017, section 4; Wang et al. 2019, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.curvature import Curvature, Direction, factor
from onefit.penalties import Coordinates, Penalty, Subspace, Tangent
from onefit.problem import Fit
from onefit.risk.one_fit import LeftOut, Step
from onefit.risk.rescaling import curvature_of_refits
from onefit.risk.response import Response

STEP = 1e-3  # of a five-point difference, in the scale of the hyperparameter
NEARBY = 1e-4  # the same along the tangent, relative to the largest coefficient
CENTRAL = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([1.0, -8.0, 8.0, -1.0]) / 12.0  # error of order STEP⁴
ONE_SIDED = np.arange(5.0), np.array([-25.0, 48.0, -36.0, 16.0, -3.0]) / 12.0


@dataclass(frozen=True, eq=False)
class Cotangent:
    """Derivative of a risk in the penalty's gradient and curvature on the tangent of a fit.

    Attributes
    ----------
    gradient : array of the shape of the coefficients
        ∂R/∂∇P, zero off the tangent.
    hessian : array of the shape of the tangent's, or None
        ∂R/∂C; None where the risk does not depend on it.
    """

    gradient: Array
    hessian: Array | None = None

    def __add__(self, other: Cotangent) -> Cotangent:
        parts = [part for part in (self.hessian, other.hessian) if part is not None]
        return Cotangent(self.gradient + other.gradient, np.sum(parts, axis=0) if parts else None)

    def along(self, change: TangentChange) -> float:
        """Derivative of the risk along a change of the penalty."""
        total = float(np.sum(self.gradient * change.gradient))
        return total if self.hessian is None else total + float(np.sum(self.hessian * change.hessian))

    def by_coordinate(self, change: TangentChange) -> Array:
        """The same as a sum over features: (p,).  For a penalty that treats each on its own."""
        parts = self.gradient * change.gradient
        parts = parts if self.hessian is None else parts + self.hessian * change.hessian
        return parts.reshape(len(parts), -1).sum(axis=1)


class TangentChange(NamedTuple):
    """∂_m ∇P and ∂_m C at fixed coefficients, in the shapes that the tangent has."""

    gradient: Array
    hessian: Array


class Stencil(NamedTuple):
    """Points of a difference, and their weights in the derivative."""

    places: Array
    weights: Array


def stencil(below: float = np.inf, above: float = np.inf, width: float = 1.0) -> Stencil:
    """Five points around 0, or on one side where there is no room on the other.

    Parameters
    ----------
    below, above : float
        Room on either side.
    width : float
        Scale of the number; the points are ``STEP`` of it apart.
    """
    h = min(STEP * min(width, 1.0), max(below, above) / 4.0)
    if below >= 2 * h and above >= 2 * h:
        return Stencil(h * CENTRAL[0], CENTRAL[1] / h)
    sign = 1.0 if above >= below else -1.0
    return Stencil(sign * h * ONE_SIDED[0], sign * ONE_SIDED[1] / h)


def tangent_change(penalties: Sequence[Penalty], points: Stencil, fit: Fit) -> TangentChange:
    """Derivative of the tangent of a penalty that depends on a number, with the pattern held.

    A five-point difference: exact for whatever is linear in the number, as strengths are.

    Parameters
    ----------
    penalties : sequence
        The penalty at each point of the stencil.
    points : Stencil
    fit : Fit
    """
    factors = _factors(penalties, fit.problem.penalty)
    if factors is not None:
        rate = float(points.weights @ factors)
        return TangentChange(rate * fit.tangent.gradient, rate * fit.tangent.hessian)
    gradient, hessian = np.zeros_like(fit.tangent.gradient), np.zeros_like(fit.tangent.hessian)
    slope = fit.loss_gradient if fit.problem.penalty.bends_with_subgradient else None
    for penalty, weight in zip(penalties, points.weights, strict=True):
        there = penalty.tangent(fit.coef, slope)
        gradient += weight * there.gradient
        hessian += weight * there.hessian
    return TangentChange(gradient, hessian)


def _factors(penalties: Sequence[Penalty], own: Penalty) -> Array | None:
    """Factors on the penalty of the fit that the others are, where they differ in one overall strength."""
    params = own.get_params(deep=False)
    alpha = params.pop("alpha", None)
    if alpha is None or np.ndim(alpha) or not alpha > 0:
        return None
    factors = np.empty(len(penalties))
    for place, penalty in enumerate(penalties):
        others = penalty.get_params(deep=False)
        factors[place] = np.ravel(others.pop("alpha", np.nan))[0] / alpha
        if type(penalty) is not type(own) or not all(_equal(others[name], params[name]) for name in params):
            return None
    return factors


def _equal(one: object, other: object) -> bool:
    return one is other or (not callable(one) and bool(np.array_equal(np.asarray(one), np.asarray(other))))


# --- from the parameters to the penalty ------------------------------------------------------------


class Solves(Protocol):
    """What a gradient needs of a curvature."""

    def solve(self, gradient: Direction) -> Direction:
        """K⁻¹ ``gradient``."""


class Answer(NamedTuple):
    """What the fit answers to a derivative v of the risk in its parameters: u = K⁻¹ v, and ∂R/∂∇P = −u."""

    u: Direction
    cotangent: Cotangent


def implicit(curvature: Solves, of_parameters: Direction) -> Answer:
    """Pull a derivative in (β, b) back to the penalty, by one solve."""
    u = curvature.solve(of_parameters)
    return Answer(u, Cotangent(-u.coef))


def of_rows(fit: Fit, by_row: Array) -> Direction:
    """Zᵀ c: a derivative in the linear predictors as one in the parameters."""
    level = np.where(fit.problem.intercept, by_row.sum(axis=0), 0.0)
    return Direction(_linalg.transposed_times(fit.problem.X, by_row), level)


def held_out(fit: Fit, tested: Index, by_row: Array, curvature: Solves | None = None) -> Cotangent:
    """Cotangent of a risk that is judged on rows without weight in the fit: one split of the data.

    Parameters
    ----------
    fit : Fit
        Of the training rows; the others have no weight.
    tested : (t,) int array
    by_row : (t,) or (t, c) array
        Derivative of the risk in their linear predictors, weights and the mean included.
    """
    return _answer_to_held_out(fit, tested, by_row, curvature).cotangent


def _answer_to_held_out(fit: Fit, tested: Index, by_row: Array, curvature: Solves | None) -> Answer:
    everywhere = np.zeros_like(fit.eta)
    everywhere[tested] = by_row
    answer = implicit(factor(fit) if curvature is None else curvature, of_rows(fit, everywhere))
    if not isinstance(fit.problem.X, _linalg.RowGram):
        return answer
    return Answer(answer.u, Cotangent(-_linalg.times(fit.problem.X, answer.u.coef)))  # ⟨u, v⟩ is uᵀ G v


# --- leave-one-out ---------------------------------------------------------------------------------


class _Owed(NamedTuple):
    """Derivatives of a risk in what the step is made of, with matrices for each row: c outputs."""

    eta: Array  # (n, c), beside what goes through the others
    slope: Array  # (n, c)
    bend: Array  # (n, c, c)
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
    curvature = factor(fit) if curvature is None else curvature
    of_refits = curvature_of_refits(fit, curvature)
    _check_linear_pattern(fit)
    step = Step.of(fit, of_refits)
    left_out = step.taken(fit)
    owed = _owed(fit, step, by_row(left_out))
    through_forms = of_refits.sandwich(_as_given(fit, owed.form))
    shrink = fit.problem.usual_shrink if fit.problem.mean_scaled else 1.0
    pulled = _through_shift(fit, of_refits, step, owed.shift)
    bends = owed.bend - _linalg.row_matrices(through_forms.rows, owed.eta.shape[1]) - pulled.bend
    third = fit.problem.per_row(fit.problem.loss.third(fit.problem.y, fit.eta))
    by_eta = owed.eta + pulled.eta
    by_eta = by_eta + np.einsum(
        "nab,na->nb", _linalg.row_matrices(fit.bend, by_eta.shape[1]), owed.slope + pulled.slope
    )
    by_eta = by_eta + _contracted(third, bends)
    v = of_rows(fit, by_eta.reshape(fit.eta.shape))
    v = Direction(v.coef + pulled.parameters, v.level)
    curved = -shrink * (through_forms.free + pulled.free)
    v = Direction(v.coef + _bent_curvature(fit, curved), v.level)
    implied = implicit(curvature, v).cotangent
    return left_out, implied + Cotangent(pulled.gradient, curved)


def _check_linear_pattern(fit: Fit) -> None:
    """Refuse penalties whose free directions turn, and parameters that are no coefficients."""
    name = type(fit.problem.penalty).__name__
    if fit.problem.penalty.bends_with_subgradient:
        raise TypeError(
            f"the free directions of {name} turn with the coefficients: take differences of the risk"
        )
    if isinstance(fit.problem.X, _linalg.RowGram):
        raise TypeError("a kernel model has no coefficients of its own: take differences of the risk")


def _owed(fit: Fit, step: Step, r: Array) -> _Owed:
    n = fit.problem.n
    c = r[0].size
    H, D = _linalg.row_matrices(step.forms, c), _linalg.row_matrices(fit.bend, c)
    g, s, r = step.slope.reshape(n, c), step.shift.reshape(n, c), r.reshape(n, c)
    eye = np.eye(c)
    inside = np.linalg.solve(eye - D @ H, (g + np.einsum("nab,nb->na", D, s))[:, :, None])[:, :, 0]
    rho = np.linalg.solve(eye - H @ D, np.einsum("nab,nb->na", H, r)[:, :, None])[:, :, 0]
    grown = (1.0 + step.rescaled.growth)[:, None]
    onward = r + np.einsum("nab,nb->na", D, rho)
    form = onward[:, :, None] * inside[:, None, :]
    along = s + np.einsum("nab,nb->na", H, inside)
    bend = rho[:, :, None] * along[:, None, :]
    return _Owed(r, rho * grown, _symmetric(bend), _symmetric(form), onward)


class _Shifted(NamedTuple):
    """What is owed through s, the part of the step that refits rescale."""

    eta: Array
    slope: Array
    bend: Array
    gradient: Array  # to ∇P
    parameters: Array  # to the coefficients, through ∇P
    free: Array  # to −C, as Q is


def _through_shift(fit: Fit, curvature: Curvature, step: Step, owed: Array) -> _Shifted:
    """Pull back s_i = Σ_t a_ti z_iᵀ x_t, x_t = K⁻¹ ∇_t: gradients of the penalty, or slopes of a class."""
    n, c = owed.shape
    none = _Shifted(
        np.zeros((n, c)),
        np.zeros((n, c)),
        np.zeros((n, c, c)),
        np.zeros_like(fit.coef),
        np.zeros_like(fit.coef),
        np.zeros_like(fit.tangent.hessian),
    )
    eta, slope, bend, gradient, parameters, free = none
    for t, (x, amount) in enumerate(zip(step.rescaled.directions, step.rescaled.amounts, strict=True)):
        y = curvature.solve(of_rows(fit, (owed * amount[:, None]).reshape(fit.eta.shape)))
        zx, zy = (curvature.predict(one).reshape(n, c) for one in (x, y))
        bend = bend + _symmetric(zx[:, :, None] * zy[:, None, :])
        free = free + _free_product(fit.tangent, x.coef, y.coef)
        if fit.problem.mean_scaled and t == 0:
            gradient = gradient + y.coef
            parameters = parameters + fit.tangent.curve(y.coef)
        else:
            assert fit.problem.balance is not None
            own = fit.problem.balance.classes == t - int(fit.problem.mean_scaled)
            slope = slope + zy * own[:, None]
    return _Shifted(eta, slope, bend, gradient, parameters, free)


def _free_product(tangent: Tangent, x: Array, y: Array) -> Array:
    """Symmetric part of x yᵀ, as C has it: on the free directions, or its diagonal."""
    if not isinstance(tangent, Subspace):
        return x * y
    along_x, along_y = (_linalg.transposed_times(tangent.basis, one) for one in (x, y))
    outer = np.multiply.outer(along_x, along_y)
    return 0.5 * (outer + outer.T)


def _bent_curvature(fit: Fit, owed: Array) -> Array:
    """Derivative of ⟨owed, C(β)⟩ in β, for penalties whose curvature depends on where they are: (p,)."""
    tangent = fit.tangent
    result = np.zeros_like(fit.coef)
    if not isinstance(tangent, Subspace) or fit.problem.penalty.polyhedral:
        return result
    penalty = fit.problem.penalty
    basis = tangent.basis.toarray() if _linalg.is_sparse(tangent.basis) else np.asarray(tangent.basis)
    lengths = np.abs(tangent.hessian) > 0
    # each direction in the size of those it bends with: a group that has just entered is short
    sizes = np.sqrt(lengths @ (basis.T @ fit.coef) ** 2)
    for b, size in zip(basis.T[sizes > 0], sizes[sizes > 0], strict=True):
        slope = sum(
            weight * float(np.sum(owed * penalty.tangent(fit.coef + place * NEARBY * size * b).hessian))
            for place, weight in zip(*CENTRAL, strict=True)
        )
        result += slope / (NEARBY * size) * b
    return result


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
    if fit.coef.ndim == 2 or not isinstance(fit.tangent, Coordinates) or problem.balance is not None:
        raise TypeError(
            "the gradient of the 2017 paper is for one output, penalties on single coefficients, and weights "
            "that stay as they are"
        )
    curvature = curvature_of_refits(fit)
    step = Step.of(fit, curvature)
    left_out = step.taken(fit)
    rows = np.arange(fit.problem.n) if rows is None else rows
    r = by_row(left_out)[rows]
    columns = _linalg.rows_as_columns(fit.problem.X, rows)
    reach = curvature.solve(Direction(columns, np.ones(len(rows)))).coef  # K⁻¹ z_i: (p, r)
    slack = np.maximum(left_out.slack[rows], np.finfo(float).tiny)
    own = step.slope[rows] + fit.bend[rows] * (left_out.eta[rows] - fit.eta[rows])
    moved = reach * own  # θ̃ − θ
    for direction, amount in zip(step.rescaled.directions, step.rescaled.amounts, strict=True):
        moved = moved + np.outer(direction.coef, amount[rows])
    share = problem.weights[rows] / problem.weights.sum() if problem.mean_scaled else 0.0
    owed = -reach * ((1.0 - share) * r / slack)
    return Cotangent(owed.sum(axis=1), np.sum(owed * moved, axis=1))


# --- effective degrees of freedom ------------------------------------------------------------------


def degrees_of_freedom(fit: Fit, curvature: Curvature, owed: float, by_eta: Array) -> Cotangent:
    """Cotangent of a risk with derivative ``owed`` in Σ d_i h_i, and ``by_eta`` in the linear predictors.

    One output and a smooth loss; GCV and its kind.
    """
    _check_linear_pattern(fit)
    h = curvature.quadratic_forms()
    through = curvature.sandwich(owed * fit.bend)
    third = fit.problem.per_row(fit.problem.loss.third(fit.problem.y, fit.eta))
    by_eta = by_eta + third * (owed * h - through.rows)
    v = of_rows(fit, by_eta)
    v = Direction(v.coef + _bent_curvature(fit, -through.free), v.level)
    return implicit(curvature, v).cotangent + Cotangent(np.zeros_like(fit.coef), -through.free)


# --- data ------------------------------------------------------------------------------------------


class DataGradient(NamedTuple):
    """Derivatives of a risk in the data."""

    X: Array  # (n, p)
    y: Array  # (n,)


def held_out_in_data(fit: Fit, tested: Index, response: Response, weights: Array) -> DataGradient:
    """Derivative of a held-out risk in X and y, of training and test rows (Wang et al. 2019, section 3).

    Parameters
    ----------
    fit : Fit
        Of the training rows, of one output; the others have no weight.
    tested : (t,) int array
    response : Response
        How the tested rows are judged.
    weights : (t,) array
        Share of each in the risk.
    """
    problem = fit.problem
    if fit.pinned.any() or isinstance(problem.X, _linalg.RowGram):
        raise TypeError("derivatives in the data are for smooth losses and explicit columns")
    y, eta = problem.y[tested], fit.eta[tested]
    by_row = weights * response.slopes(y, eta)
    u = _answer_to_held_out(fit, tested, by_row, None).u
    along = problem.linear_predictor(*u)
    X = -np.outer(fit.slope, u.coef) - np.outer(fit.bend * along, fit.coef)
    X[tested] += np.outer(by_row, fit.coef)
    mixed = problem.per_row(_difference(lambda t: problem.loss.gradient(problem.y + t, fit.eta)))
    by_y = -mixed * along
    by_y[tested] += weights * _difference(lambda t: response.losses(y + t, eta))
    return DataGradient(X, by_y)


def _difference(function: Callable[[float], Array]) -> Array:
    """Derivative at 0 by five points."""
    places, weights = stencil()
    return np.sum([weight * function(place) for place, weight in zip(places, weights, strict=True)], axis=0)


# --- shapes ----------------------------------------------------------------------------------------


def _symmetric(matrices: Array) -> Array:
    return 0.5 * (matrices + matrices.transpose(0, 2, 1))


def _as_given(fit: Fit, matrices: Array) -> Array:
    """Matrices of the rows in the shape of the second derivatives of the loss."""
    if fit.bend.ndim == 3:
        return matrices
    return np.einsum("naa->na", matrices).reshape(fit.bend.shape)


def _contracted(third: Array, owed: Array) -> Array:
    """Σ_ab owed_ab ∂³ℓ/∂η_a∂η_b∂η_c: (n, c)."""
    n, c = len(owed), owed.shape[1]
    if third.ndim == 4:
        return np.einsum("nab,nabc->nc", owed, third)
    return np.einsum("naa->na", owed) * third.reshape(n, c)

"""How far a candidate is from the solution of a left-out problem, at most: proofs, checked and never assumed.

A loss with |ℓ‴| ≤ R ℓ″ has Hessians that change by at most e^{±Rρ} within a move that changes no linear
predictor by more than ρ (generalised self-concordance: Bach 2010; Sun and Tran-Dinh 2019).  Let A be the
Hessian of the problem without set G at the fit, K − Z_Gᵀ D_G Z_G, and let that of the refit lie between
``low`` and ``high`` times A (penalties that shrink with the rows, balanced weights).  A candidate θ̃ with
left-out gradient r, ν = ‖r‖ in A⁻¹, ρ = max_j |z_jᵀ(θ̃ − θ̂)| and M ≥ max_j ‖z_j‖ in A⁻¹, has

    q = R M e^{Rρ} ν / low < 1   ⇒   ‖θ̃ − θ⁽ᴳ⁾‖_A ≤ −log(1 − q) / (R M).

Derivation: with δ the error, δᵀ∫H(θ̃ + tδ)δ dt = −δᵀr, and H(θ̃ + tδ) ≥ low e^{−Rρ} e^{−tRM‖δ‖} A.  A penalty
with kinks is convex, so that its subgradients only help: r is then the smallest subgradient, and the bound
holds among the columns over which A is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature, Direction, curved_along
from onefit.fit import Fit
from onefit.leave_out.joining import is_held
from onefit.leave_out.loose import is_straight, open_faces, reach_of_optima, starts_from_zero
from onefit.leave_out.optima import Optima
from onefit.losses import PiecewiseLinear
from onefit.numerics import CERTIFIED, EPS, LARGEST_EXPONENT, ON_BOUND, SNAP, TINY, length_of
from onefit.penalties import SeparablePenalty, Subspace
from onefit.solvers.kinks import size_of_duals
from onefit.solvers.newton import Solution
from onefit.solvers.stationary import ROUNDING, STATIONARY, least_sizes, sizes_of_gradients
from onefit.solvers.truncated import answered, preconditioner

CLOSELY = 1e-3  # error of a step that is left, relative, where products with K tell it
SATURATED = 1e-10  # curvature of a row, relative to the largest, below which rounding may hide it
SEEN = 1e-5  # part of a row that K does not give back, relative to its columns, that is rounding


def radius(R: float, residual: Array | float, travelled: Array, widest: Array | float, low: Array) -> Array:
    """Bound of ‖θ̃ − θ⁽ᴳ⁾‖_A: (f,), infinite where there is none.

    Parameters
    ----------
    R : float
        The constant of the loss.
    residual, travelled, widest, low : (f,) arrays, or numbers
        ν, ρ, M and the least factor on A.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = residual * np.exp(np.minimum(R * travelled, LARGEST_EXPONENT)) / low
        q = R * widest * own
        found = np.where(q > 1e-8, -np.log1p(-np.minimum(q, 1.0)) / (R * widest), own)
        possible = (low > 0) & (q < 1.0) & (R * travelled < LARGEST_EXPONENT)
    return np.where(possible, found, np.inf)


def drift(R: float, length: Array, travelled: Array, widest: Array) -> Array:
    """How far xᵀ(gradient of the loss) may be off for a column with ‖D^½ x‖ = 1, if ‖error‖_A ≤ length: (f,).

    At most e^{Rρ} (e^a − 1)/a times the length, where a = R M length bounds the move of any row.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        a = np.minimum(R * widest * length, LARGEST_EXPONENT)
        grown = np.where(a > 1e-8, np.expm1(a) / a, 1.0)
        found = np.exp(np.minimum(R * travelled, LARGEST_EXPONENT)) * grown * length
    return np.where(np.isfinite(found), found, np.inf)


def widest_form(H: Array) -> Array:
    """Largest squared norm of each row's z: (n,); for coupled outputs that of a difference of two of them."""
    if H.ndim < 3:
        return np.asarray(H.reshape(len(H), -1).max(axis=1))
    diagonal = np.einsum("naa->na", H)
    between = diagonal[:, :, None] + diagonal[:, None, :] - H - H.transpose(0, 2, 1)
    return np.asarray(between.max(axis=(1, 2)))


def largest_form(fit: Fit, forms: Array) -> float:
    """Largest squared norm among the rows that have weight."""
    return float(widest_form(forms)[fit.problem.weights > 0].max(initial=0.0))


def concordance(fit: Fit) -> float | None:
    """R, where steps of smooth problems can be bounded by it."""
    return None if fit.problem.loss.jumps or fit.is_kinked else fit.problem.self_concordance()


class Widths(NamedTuple):
    """How far rows reach in A⁻¹ of left-out problems, and what of A those that reach farthest are: (f,) each.

    With T these rows, A without them is at least (1 − Σ_T d_j ‖z_j‖²) A: a bound that counts on the curvature
    of the others alone has their M, and the gradients of T besides.
    """

    all: Array  # M of all rows
    near: Array  # M of those that are not in T
    share: Array  # Σ_T d_j ‖z_j‖²
    far: Index  # T

    @classmethod
    def of(cls, widest: Array) -> Widths:
        """With no row in T."""
        return cls(widest, widest, np.zeros(len(widest)), np.empty(0, dtype=np.intp))

    def of_some(self, which: Index) -> Widths:
        """Those of some of the problems."""
        return Widths(self.all[which], self.near[which], self.share[which], self.far)

    @property
    def kept(self) -> Array:
        """Share of A that is left without T: (f,)."""
        return 1.0 - self.share


class FarRows(NamedTuple):
    """Rows that reach far in K⁻¹ and hardly bend, as those of a dummy do of which all rows are of one class.

    Attributes
    ----------
    rows : (t,) int array
    form : float
        Largest squared norm in K⁻¹ of the others.
    share : float
        Σ d_j ‖z_j‖² in K⁻¹ of the rows.
    largest : float
        Largest squared norm of all rows.
    """

    rows: Index
    form: float
    share: float
    largest: float

    def widths(self, slack: Array, shrink: float = 1.0) -> Widths:
        """In A⁻¹ of problems with such a slack, whose penalty is a share of that in K: A ≥ slack · K."""
        with np.errstate(divide="ignore", invalid="ignore"):
            grown = 1.0 / (slack * min(1.0, shrink))
            return Widths(
                np.sqrt(self.largest * grown), np.sqrt(self.form * grown), self.share * grown, self.rows
            )


def far_rows(fit: Fit, forms: Array) -> FarRows:
    """The rows without whose curvature bounds are closest where rows that leave have a slack of a half."""
    largest = largest_form(fit, forms)
    none = FarRows(np.empty(0, dtype=np.intp), largest, 0.0, largest)
    if not concordance(fit) or not fit.problem.has_one_output:
        return none
    held = np.flatnonzero(fit.problem.weights > 0)
    order = held[np.argsort(-forms[held], kind="stable")]
    share = np.cumsum((fit.hessian * forms)[order])
    within = int(np.searchsorted(share, 0.5))  # of the first so many rows
    form = forms[order[: within + 1]]
    before = np.concatenate([[0.0], share[: len(form) - 1]])
    count = int(np.argmin(np.sqrt(form) / (1.0 - 2.0 * before)))
    return none if count == 0 else FarRows(order[:count], float(form[count]), float(before[count]), largest)


def bound_at(
    solution: Solution, rows: Index, faces: Sequence[Optima] | None = None, room: float | None = None
) -> Array:
    """Bounds of some rows' predictors at what should solve a problem: (r,), by its own curvature.

    Parameters
    ----------
    solution : Solution
        A fit and the curvature there.
    rows : (r,) int array
    faces : sequence of Optima, optional
        What ``open_faces`` says of the fit, where it is at hand.
    room : float, optional
        How far other intercepts may be, where nothing holds it.

    Notes
    -----
    Losses and penalties without a constant have no proof: there a Newton step that is short beside
    everything counts as twice the error, and a longer one as none.
    """
    fit, K = solution
    problem = fit.problem
    gradient = Direction(fit.free_gradient, fit.intercept_gradient)
    if not _holds_off_its_pattern(fit) or not _kinks_hold(fit, gradient):
        return np.full(len(rows), np.inf)
    faces = open_faces(fit, is_definite=K.is_definite) if faces is None else faces
    far = reach_of_optima(fit, rows, faces)
    if faces and is_straight(fit):
        return far
    if room is not None:
        return np.full(len(rows), room)
    if not is_held(fit, K):
        return np.full(len(rows), np.inf)
    step, change = _step_left(solution, gradient)
    removed = K.is_definite or _is_removed(fit, gradient, step)
    if not removed or not np.isfinite(change).all() or not np.isfinite(fit.eta).all():
        return np.full(len(rows), np.inf)
    far = far + rounding_of_predictors(fit)
    if problem.self_concordance() == 0.0 and not problem.loss.jumps:
        found = np.asarray(change[rows]) + far
    else:
        size = float(np.max(np.abs(fit.eta), initial=0.0)) + problem.unit
        short = change.max(initial=0.0) <= CERTIFIED * size
        found = (2.0 * change[rows] if short else _bound_by_curvature(solution, gradient, step, rows)) + far
    if not faces and _may_be_blind(fit, K) and not starts_from_zero(fit):
        found[_off_the_range(fit, K, rows)] = np.inf
    return found


def _step_left(solution: Solution, gradient: Direction) -> tuple[Direction, Array]:
    """The step that is left at a solution, and how far it moves predictors: (n,).

    By products with K, where these take less than a factor that nobody has made: as near as does for a step
    that counts twice.
    """
    fit, K = solution
    solve = None if K.is_at_hand else preconditioner(fit, None)
    step, is_near = gradient, False
    if solve is not None:
        step, is_near = answered(fit, gradient, solve, CLOSELY)
    if not is_near:
        step = K.solve(gradient)
    change = np.abs(K.predict(step)).reshape(fit.problem.n, -1).max(axis=1)
    return step, change + CLOSELY * is_near * change.max(initial=0.0)


def _bound_by_curvature(solution: Solution, gradient: Direction, step: Direction, rows: Index) -> Array:
    """Bounds where the step that is left is long beside rounding, as with rows that are all saturated: (r,).

    Where a coefficient is on a kink the bound holds on the pattern alone, which may change: infinite there.
    """
    fit, K = solution
    problem, R = fit.problem, fit.problem.self_concordance()
    served = problem.has_one_output or problem.is_coupled
    if not R or problem.loss.jumps or not served or not K.is_definite or not fit.tangent.support.all():
        return np.full(len(rows), np.inf)
    forms, norm = K.quadratic_forms(), length_of(step.inner(problem, gradient))
    off = radius(R, norm, np.zeros(1), np.sqrt(largest_form(fit, forms)), np.ones(1))
    return np.sqrt(widest_form(forms)[rows]) * off


def rounding_of_predictors(fit: Fit) -> float:
    """What rounding leaves of sums over the rows of a kernel, whose terms are large beside a weak penalty."""
    X = fit.problem.X
    if not isinstance(X, _linalg.RowGram):
        return 0.0
    return 2.0 * EPS * float(np.max(np.abs(X.gram) @ np.abs(fit.coef), initial=0.0))


def is_blind(fit: Fit, K: Curvature) -> bool:
    """Whether some row has a say along a direction that K takes for flat: then nothing is known by K.

    That is so where all rows that have a say are saturated, their curvature below what rounding leaves of K.
    """
    if not _may_be_blind(fit, K) or fit.problem.loss.is_quadratic:
        return False
    bends = np.abs(fit.hessian).reshape(fit.problem.n, -1).max(axis=1)
    faint = np.flatnonzero((fit.problem.weights > 0) & (bends <= SATURATED * bends.max(initial=0.0)))
    return faint.size > 0 and bool(np.any(_off_the_range(fit, K, faint)))


def _may_be_blind(fit: Fit, K: Curvature) -> bool:
    """Whether K takes some direction for flat that no row on a kink holds."""
    return not K.is_definite and not fit.pinned.any() and _linalg.has_columns(fit.problem.X)


def _off_the_range(fit: Fit, K: Curvature, rows: Index) -> Mask:
    """Rows with a part along directions that K takes for flat, which leave their predictors open: (r,)."""
    problem = fit.problem
    norms, of_ones = _linalg.column_lengths(problem.X), float(np.sqrt(problem.n))
    columns = _linalg.as_design(problem.X).basis_of_rows(rows)
    seen = np.ones(len(rows), dtype=bool)
    for output in np.ndindex(problem.outputs):
        along = np.zeros(problem.outputs)
        along[output] = 1.0
        if problem.is_coupled:
            along -= along.mean()  # what all classes have in common counts for nothing
        own = np.moveaxis(np.multiply.outer(columns, along), 1, -1)
        level = np.multiply.outer(np.where(problem.intercept, along, 0.0), np.ones(len(rows)))
        row = Direction(fit.tangent.part_along(own), level)
        back = _given_back(fit, K.solve(row))
        for known, whole, part in ((norms, row.coef, back.coef), (of_ones, row.intercept, back.intercept)):
            seen &= (SEEN * known >= np.abs(whole - part).T).reshape(len(rows), -1).all(axis=1)
    return ~seen


def _given_back(fit: Fit, step: Direction) -> Direction:
    """What K makes of a step on the free directions, or of several along one more axis."""
    coef, level = curved_along(fit, step)
    return Direction(fit.tangent.part_along(coef), level)


def _is_removed(fit: Fit, gradient: Direction, step: Direction) -> bool:
    """Whether a step takes the whole gradient with it: none is left along which K does not curve."""
    if fit.pinned.any() or not _linalg.has_columns(fit.problem.X):
        return True
    norms = _linalg.column_lengths(fit.problem.X)
    terms = float(np.abs(fit.gradient).sum()) * float(norms.max(initial=0.0))
    back = _given_back(fit, step)
    left = np.abs(gradient.coef - back.coef).max(initial=0.0)
    level = float(np.abs(gradient.intercept - back.intercept).max(initial=0.0))
    return bool(left <= STATIONARY * terms and level <= STATIONARY * float(np.abs(fit.gradient).sum()))


def _kinks_hold(fit: Fit, gradient: Direction) -> bool:
    """Whether the duals of rows on a kink of the loss are between its slopes, and balance the penalty."""
    problem = fit.problem
    if not isinstance(problem.loss, PiecewiseLinear) and not fit.pinned.any():
        return True
    within = _duals_hold(fit)
    # in the dual coordinates of a kernel a gradient is one of rows
    norms = _linalg.column_lengths(problem.X) if _linalg.has_columns(problem.X) else 1.0
    sizes = max(float(np.abs(fit.gradient).sum()), size_of_duals(fit))
    terms = ON_BOUND * sizes * max(1.0, float(np.max(norms, initial=0.0)))
    tangent = fit.tangent
    free = gradient.coef
    if isinstance(tangent, Subspace):  # across the free directions a kink holds it
        free = _linalg.transposed_times(tangent.basis, free)
    left = max(float(np.abs(free).max(initial=0.0)), float(np.abs(gradient.intercept).max()))
    return bool(within and left <= terms)


def _duals_hold(fit: Fit) -> bool:
    """Whether duals are between the slopes of their kink; losses that tell none have looked at it."""
    problem = fit.problem
    if not isinstance(problem.loss, PiecewiseLinear):
        return True
    slopes = fit.slopes
    tie = ON_BOUND * max(size_of_duals(fit), TINY)
    low, high = slopes.min(axis=1) - tie, slopes.max(axis=1) + tie
    return bool(np.all((fit.gradient >= low) & (fit.gradient <= high)))


def _holds_off_its_pattern(fit: Fit) -> bool:
    """Whether minus the gradient of the loss is a subgradient of the penalty, off the free directions.

    What is left along those the Newton step tells, unless rows on kinks hide some of it.
    """
    if not fit.is_kinked:
        return True
    slope = fit.loss_gradient
    if fit.problem.has_one_output and not fit.pinned.any():
        slope = slope - fit.tangent.part_along(slope + fit.tangent.gradient)
    if _holds_by_slopes(fit, slope):
        return True
    norms = _linalg.column_lengths(fit.problem.X)
    steepest, least = float(np.linalg.norm(fit.gradient)), least_sizes(fit)
    if fit.problem.has_one_output:
        sizes = sizes_of_gradients(fit.problem, slope[:, None], np.array([steepest]))
        sizes = np.maximum(sizes, (least + _owed_by_remnants(fit, norms))[:, None])
        found = fit.problem.penalty.is_stationary(fit.coef[:, None], slope[:, None], STATIONARY, size=sizes)
        return bool(found[0])
    terms = np.maximum(ROUNDING * steepest * norms, least)
    size = max(float(np.abs(slope).max(initial=0.0)), float(terms.max(initial=0.0)))
    l1, l2 = fit.strengths
    free = np.isfinite(l1) & np.isfinite(l2)
    slope = slope + np.where(free, l2, 0.0) * fit.coef
    excess = np.maximum(np.abs(slope) - l1, 0.0)
    wrong = np.where(fit.coef != 0, np.abs(slope + l1 * np.sign(fit.coef)), excess)
    return bool(np.all(wrong[free] <= CERTIFIED * size))


def _holds_by_slopes(fit: Fit, slope: Array) -> bool:
    """Whether it is one beside its own slopes, which are no larger than sizes of gradients ever are.

    Those take passes over all entries of X.
    """
    problem, coef = fit.problem, fit.coef[:, None]
    if not isinstance(problem.penalty, SeparablePenalty) or not problem.has_one_output:
        return False
    found = problem.penalty.is_stationary(coef, slope[:, None], STATIONARY, size=np.abs(slope)[:, None])
    return bool(found[0])


def _owed_by_remnants(fit: Fit, norms: Array) -> Array:
    """What the ridge part owes where solvers take a coefficient for zero, as ``STATIONARY`` counts: (p,)."""
    largest = float(np.abs(fit.coef * norms).max(initial=0.0))
    owed = SNAP / STATIONARY * largest * fit.problem.penalty.ridge(fit.coef.shape)
    with np.errstate(over="ignore"):  # where a column is next to nothing; one of zeros owes none
        return np.divide(owed, norms, out=np.zeros_like(norms), where=norms > 0)


def travelled(fit: Fit, eta: Array, held: Array) -> Array:
    """ρ of several candidates, along the last axis: (f,).

    Parameters
    ----------
    eta : array
        Linear predictors at the candidates.
    held : (n, f) array
        Weights of the left-out problems.
    """
    change = (eta - fit.eta[..., None]).reshape(len(held), fit.problem.n_outputs, -1)
    return np.asarray(np.where(held > 0, fit.problem.moved(change), 0.0).max(axis=0, initial=0.0))

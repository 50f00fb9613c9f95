"""Leave-one-out of a convex program that was written in cvxpy.

The program is split where the data enter, at the linear predictor:

    minimise over (β, b, u):   L(u) + P(β)    subject to   u = X β + b,   β in the constraints,

and everything that leave-one-out needs is read off this form, whatever the atoms are:

* g, the slope of each row, is minus the dual variable of u = X β + b, in corners of the loss too;
* d, its second derivative, is a difference of the derivative of L;
* the tangent of P and its curvature C come from the proximal operator of P.  On the tangent its Jacobian at
  β − t ∇loss is (I + t C)⁻¹, and off it zero (Wang et al. 2018, section 3, read backwards), so its
  eigenvectors of eigenvalue λ > 0 span the tangent, with the curvature (1/λ − 1)/t.

Refits solve the same program with the linear predictor of the row held where it is, which makes its loss a
constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from onefit._typing import Array, Design, Index, Mask
from onefit._validation import check_new_rows, class_numbers
from onefit.adapters import Reading, as_fit
from onefit.clones import reference
from onefit.curvature import Direction, ScalarCurvature, factor, factor_scalar
from onefit.exceptions import NotFittedToDataError, SolverError
from onefit.losses import Loss
from onefit.penalties import Penalty
from onefit.penalties.base import Subspace
from onefit.problem import Fit, Problem
from onefit.risk.response import Margin, Response, Value
from onefit.solvers.newton import Solution

try:
    import cvxpy as cp
    from cvxpy.atoms.affine.add_expr import AddExpression
    from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
    from cvxpy.atoms.affine.promote import Promote
    from cvxpy.atoms.affine.sum import Sum
    from cvxpy.atoms.affine.unary_operators import NegExpression
except ImportError as error:
    raise ImportError("onefit.from_cvxpy needs cvxpy: pip install 'onefit[cvxpy]'") from error

Kind = Literal["regressor", "classifier"]

TIGHT, LOOSE = (1e-12, 1e-9), 1e-8  # tolerances asked of the solver in turn, and what is still accepted
STEP = 1e-5  # of a difference quotient of the loss, relative to the size of the linear predictors
NEAR = 1e-6  # the same on both sides of a corner
PROX_STEP = 1e-4  # of a difference quotient of the proximal operator, relative to the coefficients
FLAT = 1e-4  # eigenvalue of its Jacobian below which a direction is held
STRAIGHT = 1e-5  # t C that is an error of the differences
ALIKE = 1e-6  # relative difference of two slopes that is none
PROBES = (-2.0, -0.5, 0.5, 2.0)  # where the shape of the loss is looked at, in sizes of the predictors
LINEAR = (NegExpression, DivExpression, MulExpression, multiply, Promote, Sum)  # f(a + b) = f(a) + f(b)


def from_cvxpy(
    problem: cp.Problem,
    eta: cp.Expression,
    coef: cp.Variable,
    intercept: cp.Variable | None = None,
    kind: Kind = "regressor",
) -> ConvexProgram:
    """Make a model for ``onefit.loo`` of a convex program, a sum of losses over rows plus a penalty.

    What leaves with a row is its term of the loss; the rest of the program stays as it is, a factor 1/n
    included.  The program itself is not touched: a copy of it is solved to high accuracy (by Clarabel).

    Parameters
    ----------
    problem : cvxpy.Problem
        Minimises loss(eta) + penalty(coef), with constraints on the coefficients alone.  The loss is any
        convex sum over rows, the penalty anything convex.  Parameters must have values.
    eta : cvxpy.Expression of shape (n,) or (n, 1)
        The linear predictor X @ coef + intercept: the very object that the objective was written with.
    coef : cvxpy.Variable
        Of shape (p,), or a matrix: then columns of X are its entries in C order.
    intercept : scalar cvxpy.Variable, optional
        Neither penalised nor constrained.
    kind : {"regressor", "classifier"}, default "regressor"
        Regressors are judged by squared error.  Classifiers have two classes, the larger of which has positive
        margins eta, and are judged by the hinge loss.

    Returns
    -------
    ConvexProgram

    Raises
    ------
    ValueError
        If the program is not of this form, or not convex by cvxpy's rules; the message names the term.
    SolverError
        If it is infeasible, unbounded, or cannot be solved accurately.

    Notes
    -----
    The local model is numerical, from 2p solutions of the penalty's proximal operator, so no row is
    certified.  ``audit`` and ``exact`` work as for every model.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), Approximate leave-one-out for fast parameter tuning in
    high dimensions, section 3.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import numpy as np
    >>> import onefit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 6))
    >>> y = X @ [0.0, 0.0, 1.0, 1.0, 1.0, 0.0] + 0.5 * rng.normal(size=50)
    >>> beta, b = cp.Variable(6), cp.Variable()
    >>> eta = X @ beta + b
    >>> loss = 0.5 * cp.sum_squares(y - eta)
    >>> problem = cp.Problem(cp.Minimize(loss + 3 * cp.tv(beta)), [beta >= 0])
    >>> model = onefit.from_cvxpy(problem, eta, coef=beta, intercept=b)
    >>> est = onefit.loo(model, X, y)
    >>> print(f"{est.value:.3f}, {est.effective_df:.1f} degrees of freedom")
    """
    if kind not in ("regressor", "classifier"):
        raise ValueError(f"kind must be 'regressor' or 'classifier', got {kind!r}")
    model = ConvexProgram(_split(problem, eta, coef, intercept), kind)
    return model._fitted(model.program.solution)


# --- the program, split at the linear predictor ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SplitProgram:
    """L(u) + P(β) subject to u = X β + b, in variables of its own.

    Attributes
    ----------
    predictor : cvxpy.Variable
        u, of the shape of the linear predictor.
    coef : cvxpy.Variable
    loss : cvxpy.Expression
        L, of u alone.
    penalty : cvxpy.Expression or None
        P, of the coefficients alone.
    constraints : list of cvxpy.Constraint
        On the coefficients.
    X : (n, p) array
        Columns are the entries of the coefficients in C order.
    intercept : bool
    """

    predictor: cp.Variable
    coef: cp.Variable
    loss: cp.Expression
    penalty: cp.Expression | None
    constraints: list[cp.Constraint]
    X: Array
    intercept: bool

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def is_smooth(self) -> bool:
        """Whether penalty and constraints make no kinks: there is at most a quadratic."""
        if self.constraints or _attributes(self.coef):
            return False
        return self.penalty is None or bool(self.penalty.is_quadratic())

    @cached_property
    def _vector(self) -> cp.Expression:
        """The coefficients in the order of the columns of X."""
        return self.coef if self.coef.ndim == 1 else cp.vec(self.coef, order="C")

    # The values of the loss

    def losses_at(self, u: Array) -> float:
        """Return L(u), infinite or NaN outside its domain."""
        self.predictor.save_value(u.reshape(self.predictor.shape))
        with np.errstate(all="ignore"):
            return float(self.loss.value)

    def slopes_at(self, u: Array) -> Array:
        """Derivative of L, one of them in a corner: (n,), NaN outside the domain."""
        self.predictor.save_value(u.reshape(self.predictor.shape))
        with np.errstate(all="ignore"):
            slope = self.loss.grad[self.predictor]
        if slope is None:
            return np.full(self.n, np.nan)
        return np.asarray(slope.todense() if hasattr(slope, "todense") else slope, dtype=np.float64).ravel()

    # The programs to solve

    @cached_property
    def _whole(self) -> _Whole:
        shape = self.predictor.shape
        u, level = cp.Variable(shape), cp.Variable() if self.intercept else cp.Constant(0.0)
        kept = cp.Parameter(shape, nonneg=True)
        offset = cp.Parameter(shape)
        loss = _replaced(self.loss, {id(self.predictor): cp.multiply(kept, u) + offset})
        link = (u if len(shape) == 1 else cp.vec(u, order="C")) == self.X @ self._vector + level
        objective = loss if self.penalty is None else loss + self.penalty
        problem = cp.Problem(cp.Minimize(objective), [link, *self.constraints])
        return _Whole(problem, link, level, kept, offset)

    def solve(self, kept: Mask, held: Array) -> Solved:
        """Solve with some rows only, the linear predictors of the others held where they are.

        Parameters
        ----------
        kept : (n,) bool array
        held : (n,) array

        Raises
        ------
        SolverError
        """
        whole, shape = self._whole, self.predictor.shape
        whole.kept.value = kept.astype(np.float64).reshape(shape)
        whole.offset.value = np.where(kept, 0.0, held).reshape(shape)
        _solve(whole.problem)
        coef = np.asarray(self.coef.value, dtype=np.float64).ravel()
        level = np.asarray(float(whole.level.value))
        slope = np.where(kept, -np.asarray(whole.link.dual_value, dtype=np.float64).ravel(), 0.0)
        return Solved(coef, level, self.X @ coef + level, slope)

    @cached_property
    def _proximal(self) -> tuple[cp.Problem, cp.Parameter, cp.Parameter]:
        centre, step = cp.Parameter(self.X.shape[1]), cp.Parameter(nonneg=True)
        objective = 0.5 * cp.sum_squares(self._vector - centre)
        objective = objective if self.penalty is None else objective + step * self.penalty
        return cp.Problem(cp.Minimize(objective), self.constraints), centre, step

    def prox(self, coef: Array, step: float) -> Array:
        """Argmin over z of ½‖z − coef‖² + step · P(z)."""
        problem, centre, length = self._proximal
        centre.value, length.value = coef, step
        _solve(problem)
        return np.asarray(self.coef.value, dtype=np.float64).ravel()

    @cached_property
    def solution(self) -> Fit:
        """The fit with all rows."""
        found = self.solve(np.ones(self.n, dtype=bool), np.zeros(self.n))
        loss = _local_loss(self, found)
        problem = Problem(
            loss,
            ProgramPenalty(self),
            self.X,
            np.arange(self.n, dtype=np.float64),
            np.ones(self.n),
            np.array(self.intercept),
        )
        pinned = loss.local.pinned
        bend = loss.hessian(problem.y, found.eta)
        return found.fit(problem).known(pinned=pinned, bend=np.where(pinned, 0.0, bend))


@dataclass(frozen=True, eq=False)
class _Whole:
    problem: cp.Problem
    link: cp.Constraint
    level: cp.Expression
    kept: cp.Parameter
    offset: cp.Parameter


@dataclass(frozen=True, eq=False)
class Solved:
    """What solves the program on some rows: coefficients, intercept, η and the slopes of the rows."""

    coef: Array
    level: Array
    eta: Array
    slope: Array

    def fit(self, problem: Problem) -> Fit:
        """Return it as the solution of a problem."""
        return Fit(problem, self.coef, self.level).known(eta=self.eta, slope=self.slope)


def _solve(problem: cp.Problem) -> None:
    """Solve a program to the highest accuracy that the solver reaches.

    Raises
    ------
    SolverError
    """
    status = ""
    for tol in TIGHT:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a less accurate solution is judged by LOOSE
                problem.solve(
                    solver=cp.CLARABEL,
                    ignore_dpp=not problem.is_dcp(dpp=True),
                    **{f"tol_{what}": tol for what in ("gap_abs", "gap_rel", "feas")},
                    **{f"reduced_tol_{what}": LOOSE for what in ("gap_abs", "gap_rel", "feas")},
                )
        except cp.error.SolverError as error:
            status = str(error)
            continue
        status = problem.status
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return
        if status in _HOPELESS:
            raise SolverError(_HOPELESS[status])
    raise SolverError(
        f"the program could not be solved to an accuracy of {LOOSE} ({status}): scale the columns of X and the "
        "response to a size of about one, or penalise more"
    )


_NO_POINT = "the program is infeasible: no coefficients satisfy its constraints; loosen them"
_NO_BOUND = "the program is unbounded: its objective has no finite minimum; add a penalty or constraints"
_HOPELESS = {
    cp.INFEASIBLE: _NO_POINT,
    cp.INFEASIBLE_INACCURATE: _NO_POINT,
    cp.UNBOUNDED: _NO_BOUND,
    cp.UNBOUNDED_INACCURATE: _NO_BOUND,
    cp.INFEASIBLE_OR_UNBOUNDED: f"{_NO_POINT}; or {_NO_BOUND}",
}


# --- how a program is split --------------------------------------------------------------------------


def _split(
    problem: cp.Problem, eta: cp.Expression, coef: cp.Variable, intercept: cp.Variable | None
) -> SplitProgram:
    """Check the form of a program, and split it."""
    _check_program(problem, eta, coef, intercept)
    constants = {id(given): cp.Constant(given.value) for given in [*problem.parameters(), *eta.parameters()]}
    own_coef = cp.Variable(coef.shape, **_attributes(coef))
    u = cp.Variable(eta.shape)
    objective = problem.objective.args[0]
    objective = objective if isinstance(problem.objective, cp.Minimize) else -objective
    swaps = {**constants, id(coef): own_coef}
    X = _design(eta, coef, intercept, swaps)
    outside = _replaced(objective, {id(eta): u}, flattened=eta)
    if not _has(outside, u):
        raise ValueError(
            "eta does not occur in the objective: write the loss with the very object that is passed as eta, "
            "and not with a second X @ coef + intercept"
        )
    _check_rest(problem, outside, u, coef, intercept)
    loss, penalty = _terms_by_variable(_replaced(outside, swaps), u, own_coef)
    constraints = [_replaced(constraint, swaps) for constraint in problem.constraints]
    return SplitProgram(u, own_coef, loss, penalty, constraints, X, intercept is not None)


def _check_program(
    problem: cp.Problem, eta: cp.Expression, coef: cp.Variable, intercept: cp.Variable | None
) -> None:
    for name, given in (("coef", coef), *([] if intercept is None else [("intercept", intercept)])):
        if not isinstance(given, cp.Variable) or given.is_complex():
            raise ValueError(f"{name} must be a real cvxpy.Variable, got {given!r}")
    if intercept is not None and (intercept.size != 1 or _attributes(intercept)):
        raise ValueError(
            f"intercept must be a scalar variable without attributes, got shape {intercept.shape}: it is "
            "neither penalised nor constrained"
        )
    if problem.is_mixed_integer():
        raise ValueError("the program has integer or boolean variables: a refit is no small step from the fit")
    if not problem.is_dcp():
        raise ValueError(
            "the program is not convex by cvxpy's rules (not DCP): write objective and constraints with "
            "convex atoms, see problem.is_dcp() of its parts"
        )
    for parameter in problem.parameters():
        if parameter.value is None:
            raise ValueError(f"parameter {parameter.name()} has no value: set it before")
    if not isinstance(eta, cp.Expression) or eta is coef or eta.size != max(eta.shape, default=0):
        raise ValueError("eta must be the expression X @ coef + intercept of shape (n,) or (n, 1)")


def _check_rest(
    problem: cp.Problem,
    outside: cp.Expression,
    u: cp.Variable,
    coef: cp.Variable,
    intercept: cp.Variable | None,
) -> None:
    """Refuse variables beside eta and the coefficients."""
    for part in [outside, *problem.constraints]:
        for variable in part.variables():
            if variable is intercept:
                raise ValueError(
                    f"the intercept occurs outside eta, in {part}: it cannot be penalised or constrained; make "
                    "it a coefficient, with a column of ones in X"
                )
            if variable is not coef and variable is not u:
                raise ValueError(
                    f"the variable {variable.name()} in {part} is neither coef nor intercept: write the program "
                    "without it, with atoms in its place"
                )


def _design(
    eta: cp.Expression, coef: cp.Variable, intercept: cp.Variable | None, swaps: Mapping[int, cp.Expression]
) -> Array:
    """X of eta = X β + b, in the order of the coefficients' entries: (n, p).

    Raises
    ------
    ValueError
        If eta is another function.
    """
    others = [v.name() for v in eta.variables() if v is not coef and v is not intercept]
    if others:
        raise ValueError(f"eta contains the variables {', '.join(others)} beside coef and intercept")
    if not eta.is_affine():
        raise ValueError("eta is not affine in the coefficients: it must be X @ coef + intercept")
    own = swaps[id(coef)]
    level = cp.Variable(() if intercept is None else intercept.shape)
    eta = _replaced(eta, swaps if intercept is None else {**swaps, id(intercept): level})
    own.save_value(np.zeros(own.shape))
    level.save_value(np.zeros(level.shape))
    if np.any(eta.value):
        raise ValueError("eta has a constant part: move it into the loss, loss(eta + constant)")
    by_variable = eta.grad
    order = np.arange(own.size).reshape(own.shape, order="F").ravel()
    X = np.asarray(by_variable[own].todense()).T[:, order] if own in by_variable else None
    if X is None:
        raise ValueError("eta does not contain coef")
    if intercept is not None:
        ones = by_variable.get(level)
        if ones is None or not np.array_equal(np.asarray(_dense(ones)).ravel(), np.ones(eta.size)):
            raise ValueError("eta must contain the intercept once for each row: X @ coef + intercept")
    return np.ascontiguousarray(X, dtype=np.float64)


def _dense(matrix: Any) -> Any:
    return matrix.todense() if hasattr(matrix, "todense") else matrix


def _attributes(variable: cp.Variable) -> dict[str, Any]:
    """Attributes of a variable that are set, such as nonneg."""
    return {name: value for name, value in variable.attributes.items() if value is not None and value is not False}


def _has(expression: cp.Expression, variable: cp.Variable) -> bool:
    return any(found is variable for found in expression.variables())


def _replaced(
    part: Any, swaps: Mapping[int, cp.Expression], flattened: cp.Expression | None = None
) -> Any:
    """Return an expression, or constraint, with some parts, told by their identity, in place of others.

    A sum within a sum is not kept as an object by cvxpy, only its terms are; ``flattened`` is such a sum.
    """
    if id(part) in swaps:
        return swaps[id(part)]
    old = part.args
    if isinstance(part, AddExpression) and isinstance(flattened, AddExpression):
        old = _unflattened(old, flattened)
    new = [_replaced(one, swaps, flattened) for one in old]
    if all(one is other for one, other in zip(part.args, new, strict=False)) and len(new) == len(part.args):
        return part
    return part.copy(new)


def _unflattened(terms: Sequence[cp.Expression], inner: cp.Expression) -> list[cp.Expression]:
    """Put a sum in the place of its terms in a sum."""
    wanted, k = [id(term) for term in inner.args], len(inner.args)
    rest, found = list(terms), list[cp.Expression]()
    while rest:
        if [id(term) for term in rest[:k]] == wanted:
            found, rest = [*found, inner], rest[k:]
        else:
            found, rest = [*found, rest[0]], rest[1:]
    return found


def _terms_by_variable(
    objective: cp.Expression, u: cp.Variable, coef: cp.Variable
) -> tuple[cp.Expression, cp.Expression | None]:
    """Terms of the objective that contain the linear predictor, and those that contain the coefficients."""
    loss, penalty = list[cp.Expression](), list[cp.Expression]()
    for term in _terms(objective, u, coef):
        if _has(term, u) and _has(term, coef):
            raise ValueError(
                f"the term {term} mixes the linear predictor and the coefficients: the objective must be "
                "loss(eta) + penalty(coef)"
            )
        if _has(term, u):
            loss.append(term)
        elif _has(term, coef):
            penalty.append(term)
    return sum(loss[1:], loss[0]), sum(penalty[1:], penalty[0]) if penalty else None


def _terms(expression: cp.Expression, u: cp.Variable, coef: cp.Variable) -> Iterator[cp.Expression]:
    """Terms of a sum, also of a multiple of a sum, as far as they have to be told apart."""
    if not (_has(expression, u) and _has(expression, coef)):
        yield expression
    elif isinstance(expression, AddExpression):
        for term in expression.args:
            yield from _terms(term, u, coef)
    else:
        yield from _spread(expression, u, coef)


def _spread(expression: cp.Expression, u: cp.Variable, coef: cp.Variable) -> Iterator[cp.Expression]:
    """Terms of a linear function of a sum."""
    varying = [k for k, arg in enumerate(expression.args) if not arg.is_constant()]
    if not isinstance(expression, LINEAR) or len(varying) != 1:
        yield expression
        return
    k = varying[0]
    inner = list(_terms(expression.args[k], u, coef))
    if len(inner) == 1 or any(term.shape != expression.args[k].shape for term in inner):
        yield expression
        return
    for term in inner:
        yield expression.copy([*expression.args[:k], term, *expression.args[k + 1 :]])


# --- the loss ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LocalLoss:
    """Where the derivatives of a loss are taken, and what is known there.

    Attributes
    ----------
    eta : (n,) array
    size : (n,) array
        Of the linear predictor of each row: the unit of difference quotients.
    pinned : (n,) bool array
        Rows in a corner.
    """

    eta: Array
    size: Array
    pinned: Mask


@dataclass(frozen=True, eq=False)
class ProgramLoss(Loss):
    """The loss of a program; its ``y`` are numbers of rows.

    Each row's value includes an equal share of the whole loss at the fit, since a sum is all that a program
    tells.  A loss with rows in a corner counts as quadratic: it is followed on its piece.
    """

    program: SplitProgram
    local: LocalLoss
    quadratic: bool = False
    jumps: bool = False
    has_corners: bool = False

    def minimise(self, start: Fit) -> Solution:
        """Solve the program on the rows that have weight, whatever the start."""
        problem, whole = start.problem, self.program.solution
        if np.all(problem.weights > 0) and problem.penalty is whole.problem.penalty:
            return Solution(whole, factor(whole))
        program = self.program
        if isinstance(problem.penalty, ProgramPenalty):
            program = problem.penalty.program
        found = program.solve(problem.weights > 0, self.local.eta)
        fit = found.fit(problem).known(pinned=np.zeros(problem.n, dtype=bool))
        return Solution(fit, _Deferred(fit))

    @cached_property
    def _total(self) -> float:
        return self.program.losses_at(self.local.eta)

    def value(self, y: Array, eta: Array) -> Array:
        rows = y.astype(np.intp)
        total = self._total
        values = np.full(len(rows), total / self.program.n)
        for place in np.flatnonzero(eta != self.local.eta[rows]):
            u = self.local.eta.copy()
            u[rows[place]] = eta[place]
            values[place] += self.program.losses_at(u) - total
        return values

    def gradient(self, y: Array, eta: Array) -> Array:
        """Derivative, on one side of a corner in a corner."""
        rows = y.astype(np.intp)
        slopes = np.empty(len(rows))
        for places in _blocks(rows):
            slopes[places] = self._slopes(rows[places], eta[places])
        return slopes

    def _slopes(self, rows: Index, eta: Array) -> Array:
        """Derivatives of different rows, one by one where some are outside the domain."""
        u = self.local.eta.copy()
        u[rows] = eta
        slopes = self.program.slopes_at(u)[rows]
        if len(rows) > 1 and not np.all(np.isfinite(slopes)):
            return np.array([self._slopes(rows[k : k + 1], eta[k : k + 1])[0] for k in range(len(rows))])
        return slopes

    def hessian(self, y: Array, eta: Array) -> Array:
        """Central difference quotient; next to a corner the one on the other side of it."""
        h = STEP * self.local.size[y.astype(np.intp)]
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        left, right = (here - before) / h, (after - here) / h
        same = np.abs(right - left) <= 0.1 * (np.abs(right) + np.abs(left))
        return np.maximum(np.where(same, 0.5 * (left + right), np.fmin(left, right)), 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        h = np.sqrt(STEP) * self.local.size[y.astype(np.intp)]
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        return (after - 2.0 * here + before) / h**2

    def start(self, y: Array, weights: Array) -> Array:  # noqa: ARG002
        return np.asarray(self.local.eta.mean())


def _blocks(rows: Index) -> Iterator[Index]:
    """Places of an array of row numbers in blocks that have every number at most once."""
    order = np.argsort(rows, kind="stable")
    _, first, count = np.unique(rows, return_index=True, return_counts=True)
    number = np.empty(len(rows), dtype=np.intp)
    number[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    del first
    for k in range(int(count.max(initial=0))):
        yield np.flatnonzero(number == k)


def _local_loss(program: SplitProgram, found: Solved) -> ProgramLoss:
    """Look at the loss around the fit."""
    eta = found.eta
    sizes = np.abs(eta)
    size = np.maximum(sizes, np.median(sizes))
    size = np.where(size > 0, size, sizes.max() if sizes.any() else 1.0)
    _check_sum_over_rows(program, eta, size)
    plain = ProgramLoss(program, LocalLoss(eta, size, np.zeros(len(eta), dtype=bool)))
    pinned = _in_corner(plain, found.slope)
    if pinned.any():
        return replace(plain, local=LocalLoss(eta, size, pinned), quadratic=True, has_corners=True)
    straight = _is_straight(plain)
    rows = np.arange(len(eta), dtype=np.float64)
    bends = np.abs(plain.third(rows, eta)) * size
    jumps = not straight and bool(np.all(bends <= 1e-5 * plain.hessian(rows, eta).max()))
    return replace(plain, quadratic=straight, jumps=jumps)


def _check_sum_over_rows(program: SplitProgram, eta: Array, size: Array) -> None:
    """Refuse a loss in which the slope of some row depends on another row.

    Half of the rows are moved, by chance, and the slopes of the others must stay.
    """
    rng = np.random.default_rng(0)
    base = program.slopes_at(eta)
    for reach in (1.0, 0.1, 1e-2):
        for _ in range(4):
            moved = rng.permutation(len(eta)) < len(eta) // 2
            slopes = program.slopes_at(np.where(moved, eta + reach * size * rng.uniform(-1, 1, len(eta)), eta))
            change = np.abs(slopes - base)[~moved]
            if np.any(change > ALIKE * np.abs(base).max()):
                raise ValueError(
                    "the loss is not a sum over rows, the slope of a row depends on others: use a sum, such "
                    "as sum_squares in place of norm, so that there is a term for each row to leave out"
                )


def _in_corner(loss: ProgramLoss, slope: Array) -> Mask:
    """Rows around which the derivative jumps, with the dual variable between both sides."""
    eta, size = loss.local.eta, loss.local.size
    rows = np.arange(len(eta), dtype=np.float64)
    before, after = loss.gradient(rows, eta - NEAR * size), loss.gradient(rows, eta + NEAR * size)
    wide = loss.gradient(rows, eta + 10 * NEAR * size) - loss.gradient(rows, eta - 10 * NEAR * size)
    jump = after - before
    sharp = (jump > 0.5 * wide) & (jump > ALIKE * np.abs(slope).max())
    return sharp & (slope > before + ALIKE * jump) & (slope < after - ALIKE * jump)


def _is_straight(loss: ProgramLoss) -> bool:
    """Whether the derivative is linear, as far as one can see."""
    eta, size = loss.local.eta, loss.local.size
    rows = np.arange(len(eta), dtype=np.float64)
    slope, bend = loss.gradient(rows, eta), loss.hessian(rows, eta)
    tie = ALIKE * (np.abs(slope).max() + np.max(bend * size))
    return all(
        bool(np.all(np.abs(loss.gradient(rows, eta + t * size) - slope - t * bend * size) <= tie)) for t in PROBES
    )


# --- the penalty -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ProgramPenalty(Penalty):
    """The terms and constraints of a program that the coefficients alone are in.

    Parameters
    ----------
    program : SplitProgram
    """

    program: SplitProgram

    @property
    def bends_with_subgradient(self) -> bool:
        return True

    def value(self, coef: Array) -> float:
        """Penalty at ``coef``, infinite where that violates the constraints."""
        variable = self.program.coef
        variable.save_value(coef.reshape(variable.shape))
        room = 1e-6 * max(1.0, float(np.abs(coef).max(initial=0.0)))
        if not all(np.all(constraint.violation() <= room) for constraint in self.program.constraints):
            return float("inf")
        return 0.0 if self.program.penalty is None else float(self.program.penalty.value)

    def prox(self, coef: Array, step: float) -> Array:
        return self.program.prox(coef, step)

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """Range of the Jacobian of the proximal operator, and (J⁻¹ − I)/t there as the curvature.

        Raises
        ------
        ValueError
            Without the gradient of the loss.
        """
        if loss_gradient is None:
            raise ValueError("the tangent of a program depends on the gradient of the loss")
        if self.program.penalty is None and self.program.is_smooth:
            return Subspace.along(np.eye(len(coef)), -loss_gradient)
        step = _balanced(coef, loss_gradient)
        J = self._jacobian(coef - step * loss_gradient, PROX_STEP * _size(coef, step * loss_gradient))
        shares, vectors = np.linalg.eigh(0.5 * (J + J.T))
        free = shares > FLAT
        bent = 1.0 / np.minimum(shares[free], 1.0) - 1.0
        bent[bent < STRAIGHT] = 0.0
        return Subspace.along(vectors[:, free], -loss_gradient, np.diag(bent / step))

    def _jacobian(self, at: Array, h: float) -> Array:
        columns = [self.prox(at + h * e, self._step) - self.prox(at - h * e, self._step) for e in np.eye(len(at))]
        return np.column_stack(columns) / (2.0 * h)

    def scaled(self, factor: float) -> Self:
        if factor == 1 or self.program.penalty is None:
            return self
        return replace(self, program=replace(self.program, penalty=factor * self.program.penalty))

    def has_kinks(self, shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        return not self.program.is_smooth

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        return False  # refits do not start from anywhere

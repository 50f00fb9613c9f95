"""Leave-one-out of a convex program that was written in cvxpy.

The program is split where the data enter, at the linear predictor:

    minimise over (β, b, u):   L(u) + P(β)    subject to   u = X β + b,   β in the constraints,

and everything that leave-one-out needs is read off this form, whatever the atoms are:

* g, the slope of each row, is the derivative of L, in corners of the loss minus the dual variable of u = X β + b;
* d, its second derivative, is a difference of the derivative of L;
* the tangent of P and its curvature come from the proximal operator of P without its quadratic terms.  On the
  tangent its Jacobian at β − t ∇ is (I + t C)⁻¹, and off it zero (Wang et al. 2018, section 3, read backwards),
  so its eigenvectors of eigenvalue λ > 0 span the tangent, with the curvature (1/λ − 1)/t.

Refits solve the same program with the linear predictor of the row held where it is, which makes its loss a
constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit._validation import check_new_rows, check_rows, class_numbers
from onefit.adapters import Reading, as_fit
from onefit.curvature import Curvature, Direction, factor
from onefit.exceptions import NotFittedToDataError, SolverError
from onefit.losses import Loss
from onefit.penalties import Penalty, Subspace
from onefit.problem import Fit, Problem
from onefit.risk.response import Margin, Value
from onefit.solvers.newton import Solution
from onefit.solvers.solve import SelfSolved

if TYPE_CHECKING:
    import cvxpy as cp

Kind = Literal["regressor", "classifier"]

TIGHT, LOOSE = 1e-12, 1e-8  # tolerance asked of the solver, and what is still accepted
STEP = 1e-5  # of a difference quotient of the loss, relative to the spread of the linear predictors
NEAR = 1e-6  # the same on both sides of a corner
ALIKE = 1e-6  # relative difference of two slopes that is none
PROBES = (-2.0, -0.5, 0.5, 2.0)  # where the shape of the loss is looked at, in spreads of the predictors
PROX_STEP = 1e-3  # of a difference quotient of the proximal operator, relative to the coefficients
NOISE = 1e-4  # of its Jacobian: eigenvalues below it are 0, above one minus it 1


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
        convex sum over rows, the penalty anything convex.  Parameters must have values, which are taken over.
    eta : cvxpy.Expression of shape (n,) or (n, 1)
        The linear predictor X @ coef + intercept: the very object that the objective was written with.
    coef : cvxpy.Variable
        Of shape (p,), or a matrix: then columns of X are its entries in C order.
    intercept : scalar cvxpy.Variable, optional
        Neither penalised nor constrained.
    kind : {"regressor", "classifier"}, default "regressor"
        How ``onefit.loo(model, X, y)`` judges left-out predictions: of regressors by squared error; classifiers
        have two classes, the larger of which has positive margins eta, and are judged by the hinge loss.

    Returns
    -------
    ConvexProgram

    Raises
    ------
    ValueError
        If the program is not of this form, or not convex by cvxpy's rules; the message names the term.
    SolverError
        If it is infeasible, unbounded, or cannot be solved accurately.
    ImportError
        If cvxpy is not installed.

    Notes
    -----
    The local model is numerical, from 2p solutions of the penalty's proximal operator, so that no row is
    certified but those that have no slope.  ``exact=True`` refits for the others; ``audit`` refits too, and
    needs rows of X that are all different.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), Approximate leave-one-out for fast parameter tuning in
    high dimensions, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> try:
    ...     import cvxpy as cp
    ... except ImportError:
    ...     raise SystemExit
    """
    if kind not in ("regressor", "classifier"):
        raise ValueError(f"kind must be 'regressor' or 'classifier', got {kind!r}")
    model = ConvexProgram(_split(problem, eta, coef, intercept), kind)
    return model._take(model.program.solution)


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("onefit.from_cvxpy needs cvxpy: pip install 'onefit[cvxpy]'") from error
    return cvxpy


# --- the model ---------------------------------------------------------------------------------------


class ConvexProgram(BaseEstimator):
    """A solved convex program, as ``onefit.from_cvxpy`` makes it.

    Parameters
    ----------
    program : SplitProgram
    kind : {"regressor", "classifier"}

    Attributes
    ----------
    coef_ : (p,) array
        Entries of the coefficients in C order.
    intercept_ : float
    X_ : (n, p) array
        The design that was read off eta: what ``onefit.loo`` expects as X.
    n_features_in_ : int
    """

    def __init__(self, program: SplitProgram, kind: Kind = "regressor") -> None:
        self.program = program
        self.kind = kind

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.program, self.kind)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self.kind
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Solve the program on some of its rows.

        Parameters
        ----------
        X : (m, p) array
            Rows of the program, told by their values.
        y : ignored
            The program knows the responses.

        Raises
        ------
        NotFittedToDataError
            If a row is not one of the program, or if it cannot be told which one.
        """
        program = self.program
        kept = np.zeros(program.n, dtype=bool)
        kept[program.numbers_of(X)] = True
        return self._take(program.refit(program.solution.problem, kept))

    def _take(self, fit: Fit) -> Self:
        self.coef_, self.intercept_, self.X_ = fit.coef, float(fit.level), self.program.X
        self.n_features_in_ = len(fit.coef)
        return self

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (m,)."""
        return _linalg.times(check_new_rows(self, X), self.coef_) + self.intercept_

    @available_if(lambda model: model.kind == "regressor")
    def predict(self, X: Any) -> Array:
        """Linear predictors: (m,)."""
        return self.decision_function(X)


@as_fit.register(ConvexProgram)
def _read(model: ConvexProgram, X: Any, y: Any, sample_weight: Any) -> Reading:
    if sample_weight is not None:
        raise ValueError("a convex program has its weights in the loss: leave sample_weight out")
    program = model.program
    if len(y) != program.n:
        raise ValueError(f"y has {len(y)} values, but eta has {program.n}: one for each row")
    is_classifier = model.kind == "classifier"
    X, y = check_rows(model, X, y, numeric=not is_classifier)
    dense = X.toarray() if _linalg.is_sparse(X) else X
    if not np.allclose(dense, program.X, rtol=1e-9, atol=1e-9 * np.abs(program.X).max(initial=0.0)):
        raise NotFittedToDataError(
            "X is not the matrix that eta was written with: pass that one, or the copy in model.X_"
        )
    if not is_classifier:
        return Reading(program.solution, Value(), y)
    classes = np.unique(y)
    if len(classes) != 2:
        raise ValueError(f"a classifier of margins has 2 classes, but y has {len(classes)}")
    return Reading(
        program.solution, Margin(classes), class_numbers(y, classes).astype(float), classes=classes
    )


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
    smooth, rough : cvxpy.Expression
        Quadratic terms of P, and the others: of the coefficients alone.
    constraints : tuple of cvxpy.Constraint
        On the coefficients.
    X : (n, p) array
        Columns are the entries of the coefficients in C order.
    intercept : bool
    """

    predictor: Any
    coef: Any
    loss: Any
    smooth: Any
    rough: Any
    constraints: tuple[Any, ...]
    X: Array
    intercept: bool

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def is_smooth(self) -> bool:
        """Whether penalty and constraints make no kinks: there are at most quadratic terms."""
        return self.rough.is_constant() and not self.constraints and not _attributes(self.coef)

    @cached_property
    def solution(self) -> Fit:
        """The fit with all rows."""
        coef, level, dual = self._solve(np.ones(self.n, dtype=bool), np.zeros(self.n))
        eta = self.X @ coef + level
        loss, pinned = _local_loss(self, eta, -dual)
        rows, ones = np.arange(self.n, dtype=np.float64), np.ones(self.n)
        penalty = ProgramPenalty(self, kinked=loss.has_corners or not self.is_smooth)
        problem = Problem(loss, penalty, self.X, rows, ones, np.array(self.intercept))
        slope = np.where(pinned, -dual, loss.gradient(rows, eta))
        return Fit(problem, coef, level).known(eta=eta, slope=slope, pinned=pinned)

    def refit(self, problem: Problem, kept: Mask) -> Fit:
        """Solve a problem with some rows only.

        Raises
        ------
        SolverError
        """
        coef, level, _ = self._solve(kept, self.solution.eta)
        return Fit(problem, coef, level)

    def numbers_of(self, X: Any) -> Index:
        """Tell rows by their values.

        Raises
        ------
        NotFittedToDataError
        """
        own = {row.tobytes(): i for i, row in enumerate(self.X + 0.0)}  # no negative zeros
        given = np.ascontiguousarray(X.toarray() if _linalg.is_sparse(X) else X, dtype=np.float64) + 0.0
        if len(own) < self.n:
            raise NotFittedToDataError(
                "some rows of X are equal, so that a refit cannot be told which of them left: use exact=True"
            )
        try:
            return np.array([own[row.tobytes()] for row in given], dtype=np.intp)
        except KeyError:
            raise NotFittedToDataError("X has rows that eta was not written with") from None

    # The values of loss and penalty

    def loss_at(self, u: Array) -> float:
        """Return L(u), infinite outside its domain."""
        self.predictor.save_value(u.reshape(self.predictor.shape))
        with np.errstate(all="ignore"):
            value = float(self.loss.value)
        return np.inf if np.isnan(value) else value

    def slopes_at(self, u: Array) -> Array:
        """Derivative of L, one of them in a corner: (n,), NaN outside the domain."""
        return _gradient(self.loss, self.predictor, u)

    def penalty_at(self, coef: Array) -> float:
        """Return P(β), infinite where that violates the constraints."""
        self.coef.save_value(coef.reshape(self.coef.shape))
        room = 1e-6 * max(1.0, float(np.abs(coef).max(initial=0.0)))
        if not all(np.all(constraint.violation() <= room) for constraint in self.constraints):
            return np.inf
        return float(self.smooth.value) + float(self.rough.value)

    def smooth_slope(self, coef: Array) -> Array:
        """Gradient of the quadratic terms of P: (p,)."""
        return _gradient(self.smooth, self.coef, coef)

    # The programs to solve

    @cached_property
    def _vector(self) -> Any:
        """The coefficients in the order of the columns of X."""
        return self.coef if self.coef.ndim == 1 else _cvxpy().vec(self.coef, order="C")

    @cached_property
    def _whole(self) -> _Whole:
        cp, shape = _cvxpy(), self.predictor.shape
        u, level = cp.Variable(shape), cp.Variable() if self.intercept else cp.Constant(0.0)
        kept, held = cp.Parameter(shape, nonneg=True), cp.Parameter(shape)
        loss = _replaced(self.loss, {id(self.predictor): cp.multiply(kept, u) + held})
        link = (u if len(shape) == 1 else cp.vec(u, order="C")) == self.X @ self._vector + level
        objective = cp.Minimize(loss + self.smooth + self.rough)
        return _Whole(cp.Problem(objective, [link, *self.constraints]), link, level, kept, held)

    def _solve(self, kept: Mask, held: Array) -> tuple[Array, Array, Array]:
        """Coefficients, intercept, and dual variables of the rows, with some rows held where they are."""
        whole, shape = self._whole, self.predictor.shape
        whole.kept.value = kept.astype(np.float64).reshape(shape)
        whole.held.value = np.where(kept, 0.0, held).reshape(shape)
        _solve(whole.problem)
        dual = np.asarray(whole.link.dual_value, dtype=np.float64).ravel()
        return np.ravel(self.coef.value).astype(np.float64), np.asarray(float(whole.level.value)), dual

    @cached_property
    def _proximal(self) -> _Proximal:
        return _Proximal.of(self, self.smooth + self.rough)

    @cached_property
    def _proximal_rough(self) -> _Proximal:
        return _Proximal.of(self, self.rough)

    def prox(self, coef: Array, step: float) -> Array:
        """Argmin over z of ½‖z − coef‖² + step · P(z)."""
        return self._proximal.solve(coef, step)

    def prox_rough(self, coef: Array, step: float) -> Array:
        """Return the same without the quadratic terms of P."""
        return self._proximal_rough.solve(coef, step)


@dataclass(frozen=True, eq=False)
class _Whole:
    problem: Any
    link: Any
    level: Any
    kept: Any
    held: Any


@dataclass(frozen=True, eq=False)
class _Proximal:
    problem: Any
    coef: Any
    centre: Any
    step: Any

    @classmethod
    def of(cls, program: SplitProgram, penalty: Any) -> _Proximal:
        cp = _cvxpy()
        centre, step = cp.Parameter(program.X.shape[1]), cp.Parameter(nonneg=True)
        objective = 0.5 * cp.sum_squares(program._vector - centre) + step * penalty
        return cls(cp.Problem(cp.Minimize(objective), list(program.constraints)), program.coef, centre, step)

    def solve(self, coef: Array, step: float) -> Array:
        self.centre.value, self.step.value = coef, step
        _solve(self.problem)
        return np.ravel(self.coef.value).astype(np.float64)


def _solve(problem: Any) -> None:
    """Solve a program to the highest accuracy that the solver reaches.

    Raises
    ------
    SolverError
    """
    cp = _cvxpy()
    tolerances = {f"tol_{what}": TIGHT for what in ("gap_abs", "gap_rel", "feas")}
    accepted = {f"reduced_tol_{what}": LOOSE for what in ("gap_abs", "gap_rel", "feas")}
    try:
        with warnings.catch_warnings():  # here a solution is inaccurate that only reaches LOOSE
            warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
            problem.solve(solver=cp.CLARABEL, **tolerances, **accepted)
        status = problem.status
    except cp.error.SolverError as error:
        status = str(error)
    if "infeasible" in status:
        raise SolverError("the program is infeasible: no coefficients satisfy its constraints; loosen them")
    if "unbounded" in status:
        raise SolverError(
            "the program is unbounded: its objective has no finite minimum; penalise or constrain"
        )
    if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise SolverError(
            f"the program could not be solved to an accuracy of {LOOSE} ({status}): scale the columns of X and "
            "the response to a size of about one, or penalise more"
        )


def _gradient(expression: Any, variable: Any, at: Array) -> Array:
    """Gradient of a scalar expression in the C order of the entries, NaN outside the domain: (p,)."""
    if expression.is_constant():
        return np.zeros(len(at))
    variable.save_value(at.reshape(variable.shape))
    with np.errstate(all="ignore"):
        slope = expression.grad[variable]
    if slope is None:
        return np.full(len(at), np.nan)
    dense = np.asarray(slope.toarray() if hasattr(slope, "toarray") else slope, dtype=np.float64)
    return dense.ravel().reshape(variable.shape, order="F").ravel()


# --- how a program is split --------------------------------------------------------------------------


def _split(problem: Any, eta: Any, coef: Any, intercept: Any) -> SplitProgram:
    """Check the form of a program, and split it."""
    cp = _cvxpy()
    _check_variables(problem, eta, coef, intercept)
    constants = {id(given): cp.Constant(given.value) for given in [*problem.parameters(), *eta.parameters()]}
    own = cp.Variable(coef.shape, name=coef.name(), **_attributes(coef))
    u = cp.Variable(eta.shape, name="eta")
    swaps = {**constants, id(coef): own}
    X = _design(_replaced(eta, swaps), own, intercept)
    parts = [
        _replaced(part, {**swaps, id(eta): u}, eta)
        for part in (problem.objective.args[0], *problem.constraints)
    ]
    sign = 1.0 if isinstance(problem.objective, cp.Minimize) else -1.0
    terms = [term for term in _terms(parts[0], sign) if not term.is_constant()]
    loss, smooth, rough = _sorted_terms(terms, u, own, intercept)
    for constraint in parts[1:]:
        if any(variable is not own for variable in constraint.variables()):
            raise ValueError(
                f"the constraint {_shown(constraint)} is not on the coefficients alone: nothing else "
                "can be constrained"
            )
        if not constraint.is_dcp():
            raise ValueError(f"the constraint {_shown(constraint)} is not convex by cvxpy's rules (not DCP)")
    return SplitProgram(u, own, loss, smooth, rough, tuple(parts[1:]), X, intercept is not None)


def _check_variables(problem: Any, eta: Any, coef: Any, intercept: Any) -> None:
    cp = _cvxpy()
    if not isinstance(problem, cp.Problem):
        raise TypeError(f"problem must be a cvxpy.Problem, got {type(problem).__name__}")
    if not isinstance(coef, cp.Variable) or not coef.is_real() or coef.attributes["diag"]:
        raise ValueError("coef must be a real cvxpy.Variable, without the attribute diag")
    if intercept is not None and (
        not isinstance(intercept, cp.Variable) or intercept.size != 1 or _attributes(intercept)
    ):
        raise ValueError(
            "intercept must be a scalar cvxpy.Variable without attributes: it is neither penalised nor constrained"
        )
    if not isinstance(eta, cp.Expression) or eta is coef or eta.size != max(eta.shape, default=0):
        raise ValueError("eta must be the expression X @ coef + intercept of shape (n,) or (n, 1)")
    if problem.is_mixed_integer():
        raise ValueError("the program has integer or boolean variables: it is not convex")
    for parameter in [*problem.parameters(), *eta.parameters()]:
        if parameter.value is None:
            raise ValueError(f"parameter {parameter.name()} has no value: set it before")


def _design(eta: Any, coef: Any, intercept: Any) -> Array:
    """X of eta = X β + b, in the order of the coefficients' entries: (n, p).

    Raises
    ------
    ValueError
        If eta is another function.
    """
    others = [v.name() for v in eta.variables() if v is not coef and v is not intercept]
    if others:
        raise ValueError(f"eta contains the variables {', '.join(others)} beside coef and intercept")
    if not any(v is coef for v in eta.variables()):
        raise ValueError("eta does not contain coef")
    if not eta.is_affine():
        raise ValueError("eta is not affine in the coefficients: it must be X @ coef + intercept")
    level = _cvxpy().Variable(() if intercept is None else intercept.shape)
    eta = eta if intercept is None else _replaced(eta, {id(intercept): level})

    def at(values: Array, constant: float) -> Array:
        coef.save_value(values.reshape(coef.shape))
        level.save_value(np.full(level.shape, constant))
        return np.asarray(eta.value, dtype=np.float64).ravel()

    zero = np.zeros(coef.size)
    if np.any(at(zero, 0.0)):
        raise ValueError("eta has a constant part: move it into the loss, loss(eta + constant)")
    if intercept is not None and np.any(at(zero, 1.0) != 1.0):
        raise ValueError("eta must contain the intercept once for each row: X @ coef + intercept")
    return np.column_stack([at(unit, 0.0) for unit in np.eye(coef.size)])


def _attributes(variable: Any) -> dict[str, Any]:
    """Attributes of a variable that are set, such as nonneg."""
    return {
        name: value for name, value in variable.attributes.items() if value is not None and value is not False
    }


def _shown(part: Any) -> str:
    shown = " ".join(str(part).split())
    return shown if len(shown) <= 100 else f"{shown[:100]} …"


def _replaced(part: Any, swaps: Mapping[int, Any], flattened: Any = None) -> Any:
    """Return an expression, or constraint, with some parts, told by their identity, in place of others.

    A sum within a sum is not kept as an object by cvxpy, only its terms are; ``flattened`` is such a sum.
    """
    from cvxpy.atoms.affine.add_expr import AddExpression

    if id(part) in swaps:
        return swaps[id(part)]
    old = list(part.args)
    if isinstance(part, AddExpression) and isinstance(flattened, AddExpression):
        old = _unflattened(old, flattened)
    new = [_replaced(one, swaps, flattened) for one in old]
    if len(new) == len(part.args) and all(one is other for one, other in zip(part.args, new, strict=True)):
        return part
    return part.copy(new)


def _unflattened(terms: list[Any], inner: Any) -> list[Any]:
    """Put a sum in the place of its terms in a sum."""
    wanted = [id(term) for term in inner.args]
    for first in range(len(terms) - len(wanted) + 1):
        after = first + len(wanted)
        if [id(term) for term in terms[first:after]] == wanted:
            return [*terms[:first], inner, *_unflattened(terms[after:], inner)]
    return terms


def _terms(expression: Any, times: float) -> Iterator[Any]:
    """Terms of a sum, also within multiples of sums, each with its factor."""
    from cvxpy.atoms.affine import binary_operators as binary
    from cvxpy.atoms.affine.add_expr import AddExpression
    from cvxpy.atoms.affine.unary_operators import NegExpression

    args = expression.args
    varying = [arg for arg in args if not arg.is_constant()]
    if isinstance(expression, AddExpression):
        for arg in args:
            yield from _terms(arg, times)
    elif isinstance(expression, NegExpression):
        yield from _terms(args[0], -times)
    elif isinstance(expression, binary.DivExpression) and args[1].is_constant() and args[1].size == 1:
        yield from _terms(args[0], times / args[1].value.item())
    elif (
        isinstance(expression, binary.MulExpression) and len(varying) == 1 and all(a.size == 1 for a in args)
    ):
        other = args[0] if varying[0] is args[1] else args[1]
        yield from _terms(varying[0], times * other.value.item())
    else:
        yield expression if times == 1.0 else times * expression


def _sorted_terms(terms: list[Any], u: Any, coef: Any, intercept: Any) -> tuple[Any, Any, Any]:
    """Sums of the terms that contain the linear predictor, of the quadratic ones in the coefficients, of others."""
    loss, smooth, rough = [], [], []
    for term in terms:
        found = term.variables()
        if any(v is intercept for v in found):
            raise ValueError(
                f"the intercept occurs outside eta, in {_shown(term)}: it cannot be penalised; make it a coefficient, "
                "with a column of ones in X"
            )
        others = [v.name() for v in found if v is not u and v is not coef]
        if others:
            raise ValueError(
                f"the term {_shown(term)} contains {', '.join(others)}, which is neither coef nor intercept: write "
                "the program without it, with atoms in its place"
            )
        if len(found) > 1:
            raise ValueError(
                f"the term {_shown(term)} mixes the linear predictor and the coefficients: the objective must be "
                "loss(eta) + penalty(coef)"
            )
        if not term.is_convex():
            raise ValueError(
                f"the term {_shown(term)} is not convex by cvxpy's rules (not DCP): write it with convex atoms"
            )
        (loss if found[0] is u else smooth if term.is_quadratic() else rough).append(term)
    if not loss:
        raise ValueError(
            "eta does not occur in the objective: write the loss with the very object that is passed as eta, and not "
            "with a second X @ coef + intercept"
        )
    zero = _cvxpy().Constant(0.0)
    return sum(loss[1:], loss[0]), sum(smooth, zero), sum(rough, zero)


# --- the loss ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ProgramLoss(Loss, SelfSolved):
    """The loss of a program; its ``y`` are numbers of rows.

    Each row's value includes an equal share of the whole loss at the fit, since a sum is all that a program
    tells.  A loss with rows in a corner counts as quadratic: it is followed on its piece.

    Parameters
    ----------
    program : SplitProgram
    eta : (n,) array
        Linear predictors of the fit, around which each row is moved.
    size : float
        Their spread: the unit of difference quotients.
    quadratic, jumps, has_corners : bool
    """

    program: SplitProgram
    eta: Array
    size: float
    quadratic: bool = False
    jumps: bool = False
    has_corners: bool = False

    def minimise(self, start: Fit) -> Solution:
        """Solve the program on the rows that have weight, whatever the start."""
        problem = start.problem
        if problem is self.program.solution.problem:
            return Solution(self.program.solution, Deferred(self.program.solution))
        assert isinstance(problem.penalty, ProgramPenalty)
        fit = problem.penalty.program.refit(problem, problem.weights > 0)
        return Solution(fit, Deferred(fit))

    @cached_property
    def _total(self) -> float:
        return self.program.loss_at(self.eta)

    def value(self, y: Array, eta: Array) -> Array:
        rows = np.broadcast_to(y, eta.shape).astype(np.intp)
        values = np.full(eta.shape, self._total / self.program.n)
        for place in zip(*np.nonzero(eta != self.eta[rows]), strict=True):
            u = self.eta.copy()
            u[rows[place]] = eta[place]
            values[place] += self.program.loss_at(u) - self._total
        return values

    def gradient(self, y: Array, eta: Array) -> Array:
        """Derivative, on one side of a corner in a corner.

        As many linear predictors of all rows are made as one row has values.
        """
        rows = np.broadcast_to(y, eta.shape).astype(np.intp).ravel()
        order = np.argsort(rows, kind="stable")
        place = np.arange(rows.size)
        first = np.diff(rows[order], prepend=-1) > 0
        layer = np.empty_like(place)
        layer[order] = place - np.maximum.accumulate(np.where(first, place, 0))
        table = np.tile(self.eta, (int(layer.max(initial=-1)) + 1, 1))
        table[layer, rows] = eta.ravel()
        slopes = np.array([self.program.slopes_at(u) for u in table]).reshape(table.shape)
        return slopes[layer, rows].reshape(eta.shape)

    def hessian(self, y: Array, eta: Array) -> Array:
        """Central difference quotient; next to a corner the one on the other side of it."""
        h = STEP * self.size
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        left, right = (here - before) / h, (after - here) / h
        same = np.abs(right - left) <= 0.1 * (np.abs(right) + np.abs(left))
        return np.maximum(np.where(same, 0.5 * (left + right), np.fmin(left, right)), 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        h = np.sqrt(STEP) * self.size
        before, here, after = (self.gradient(y, eta + t * h) for t in (-1.0, 0.0, 1.0))
        return (after - 2.0 * here + before) / h**2

    def start(self, y: Array, weights: Array) -> Array:  # noqa: ARG002
        return np.asarray(self.eta.mean())


def _local_loss(program: SplitProgram, eta: Array, dual: Array) -> tuple[ProgramLoss, Mask]:
    """Look at the loss around the fit: what it is like, and which rows are in a corner."""
    size = max(float(eta.std()), 1e-3 * float(np.abs(eta).max())) or 1.0
    _check_sum_over_rows(program, eta, size)
    loss, rows = ProgramLoss(program, eta, size), np.arange(len(eta), dtype=np.float64)
    pinned = _in_corner(loss, dual)
    if pinned.any():
        return replace(loss, quadratic=True, has_corners=True), pinned
    slope, bend = loss.gradient(rows, eta), loss.hessian(rows, eta)
    tie = ALIKE * (np.abs(slope).max() + bend.max() * size)
    moved = [loss.gradient(rows, eta + t * size) - slope - t * bend * size for t in PROBES]
    straight = bool(np.max(np.abs(moved)) <= tie)  # false, too, outside the domain
    jumps = not straight and bool(np.all(np.abs(loss.third(rows, eta)) * size <= 1e-5 * bend.max()))
    return replace(loss, quadratic=straight, jumps=jumps), pinned


def _check_sum_over_rows(program: SplitProgram, eta: Array, size: float) -> None:
    """Refuse a loss in which the slope of some row depends on another row.

    Half of the rows are moved, by chance, and the slopes of the others must stay.
    """
    rng = np.random.default_rng(0)
    base = program.slopes_at(eta)
    for reach in (1.0, 0.1, 0.01) * 3:
        moved = rng.permutation(len(eta)) < len(eta) // 2
        slopes = program.slopes_at(eta + np.where(moved, reach * size * rng.uniform(-1, 1, len(eta)), 0.0))
        if np.any(np.abs(slopes - base)[~moved] > ALIKE * np.abs(base).max()):
            raise ValueError(
                f"the loss {_shown(program.loss)} is not a sum over rows, the slope of a row depends on others: use "
                "a sum, such as sum_squares in place of norm, so that there is a term for each row to leave out"
            )


def _in_corner(loss: ProgramLoss, dual: Array) -> Mask:
    """Rows around which the derivative jumps, with the dual variable between both sides."""
    rows = np.arange(len(loss.eta), dtype=np.float64)
    far, low, high, beyond = (
        loss.gradient(rows, loss.eta + t * NEAR * loss.size) for t in (-10.0, -1.0, 1.0, 10.0)
    )
    jump = high - low
    sharp = (jump > 0.5 * (beyond - far)) & (jump > ALIKE * np.abs(dual).max())
    return sharp & (dual > low + ALIKE * jump) & (dual < high - ALIKE * jump)


# --- the penalty -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ProgramPenalty(Penalty):
    """The terms and constraints of a program that the coefficients alone are in.

    Parameters
    ----------
    program : SplitProgram
    kinked : bool
        Whether there is an active pattern; corners of the loss make one, too.
    """

    program: SplitProgram
    kinked: bool

    @property
    def bends_with_subgradient(self) -> bool:
        return True

    def value(self, coef: Array) -> float:
        return self.program.penalty_at(coef)

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
        known = self._known
        if (
            known
            and np.array_equal(known[-1][0], coef)
            and np.allclose(known[-1][1], loss_gradient, rtol=1e-9)
        ):
            return known[-1][2]
        basis, curved = self._piece(coef, loss_gradient)
        slope, unit = self.program.smooth_slope, float(np.abs(coef).max(initial=0.0)) or 1.0
        bent = [slope(coef + unit * e) - slope(coef - unit * e) for e in np.eye(len(coef))]
        smooth = basis.T @ np.column_stack(bent) @ basis / (2.0 * unit)
        piece = Subspace.along(basis, -loss_gradient, curved + smooth)
        known[:] = [(coef, loss_gradient, piece)]
        return piece

    @cached_property
    def _known(self) -> list[tuple[Array, Array, Subspace]]:
        """The last tangent: its 2p programs are not solved twice."""
        return []

    def _piece(self, coef: Array, loss_gradient: Array) -> tuple[Array, Array]:
        """Tangent of the terms that are not quadratic, and their curvature: (p, k) and (k, k)."""
        p = len(coef)
        if self.program.is_smooth:
            return np.eye(p), np.zeros((p, p))
        gradient = loss_gradient + self.program.smooth_slope(coef)
        extent, force = np.abs(coef).max(), np.abs(gradient).max()
        t = float(extent / force) if extent > 0 and force > 0 else 1.0
        h = PROX_STEP * max(float(extent), t * float(force), np.finfo(float).tiny)
        prox, at = self.program.prox_rough, coef - t * gradient
        J = np.column_stack([prox(at + h * e, t) - prox(at - h * e, t) for e in np.eye(p)]) / (2.0 * h)
        shares, vectors = np.linalg.eigh(0.5 * (J + J.T))
        free = shares > NOISE
        shares = np.where(shares[free] > 1.0 - NOISE, 1.0, shares[free])
        return vectors[:, free], np.diag((1.0 / shares - 1.0) / t)

    def scaled(self, factor: float) -> Self:
        if factor == 1.0:
            return self
        program = self.program
        scaled = replace(program, smooth=factor * program.smooth, rough=factor * program.rough)
        return replace(self, program=scaled)

    def has_kinks(self, shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        return self.kinked

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        return False  # refits do not start from anywhere


@dataclass(frozen=True, eq=False)
class Deferred(Curvature):
    """The curvature of a fit, factored when something is asked of it: refits are asked nothing."""

    fit: Fit

    @cached_property
    def _factored(self) -> Curvature:
        return factor(self.fit)

    def quadratic_forms(self) -> Array:
        return self._factored.quadratic_forms()

    def solve(self, gradient: Direction) -> Direction:
        return self._factored.solve(gradient)

    def predict(self, direction: Direction) -> Array:
        return self._factored.predict(direction)

    def carry(self, new: Design, slopes: Array) -> Array:
        return self._factored.carry(new, slopes)

    def hat(self, rows: Array) -> Array:
        return self._factored.hat(rows)

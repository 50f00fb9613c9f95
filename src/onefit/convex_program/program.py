"""A convex program in the form that rows can leave, and its solutions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.exceptions import NotFittedToDataError, SolverError

ACCEPTED = 1e-8  # residuals and duality gap, relative, of a solution that is still one
ATTEMPTS = ((1e-12, 1e-11), (1e-10, 1e-8), (1e-10, 1e-10), (1e-9, 1e-12), (1e-8, 1e-8))
# those asked for, and the regularisation of the linear systems: which one stalls early is a matter of chance


def cvxpy_module() -> Any:
    """Import cvxpy.

    Raises
    ------
    ImportError
    """
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("onefit.from_cvxpy needs cvxpy: pip install cvxpy clarabel") from error
    return cvxpy


class SolvedProgram(NamedTuple):
    """What solves the program on some of its rows.

    Attributes
    ----------
    coef : (p,) array
    intercept : () array
    dual : (n,) array
        Dual variables of u = X β + b: minus the slopes of the rows.
    """

    coef: Array
    intercept: Array
    dual: Array


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

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nothing in it changes

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse: cvxpy tells variables by numbers, which mean others in another process.

        Raises
        ------
        TypeError
        """
        raise TypeError("a convex program cannot be pickled: make it again with onefit.from_cvxpy")

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def is_smooth(self) -> bool:
        """Whether penalty and constraints make no kinks: there are at most quadratic terms."""
        return self.rough.is_constant() and not self.constraints and not attributes(self.coef)

    def numbers_of(self, X: Any) -> Index:
        """Tell rows by their values.

        Raises
        ------
        NotFittedToDataError
            If a row is not one of the program, or if it cannot be told which one.
        """
        own = {row.tobytes(): i for i, row in enumerate(self.X + 0.0)}  # no negative zeros
        given = np.ascontiguousarray(_linalg.as_columns(X).dense(), dtype=np.float64) + 0.0
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
        """Derivative of L, one of them on a kink: (n,), NaN outside the domain."""
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
        return self.coef if self.coef.ndim == 1 else cvxpy_module().vec(self.coef, order="C")

    @cached_property
    def _by_rows(self) -> _ByRows:
        cp, shape = cvxpy_module(), self.predictor.shape
        u, level = cp.Variable(shape), cp.Variable() if self.intercept else cp.Constant(0.0)
        kept, held = cp.Parameter(shape, nonneg=True), cp.Parameter(shape)
        loss = replaced(self.loss, {id(self.predictor): cp.multiply(kept, u) + held})
        link = (u if len(shape) == 1 else cp.vec(u, order="C")) == self.X @ self._vector + level
        objective = cp.Minimize(loss + self.smooth + self.rough)
        return _ByRows(cp.Problem(objective, [link, *self.constraints]), u, link, level, kept, held)

    def by_rows(self, kept: Mask, held: Array | float = 0.0) -> Any:
        """The program, a cvxpy.Problem, with the losses of some rows, the predictors of the others held."""
        whole, shape = self._by_rows, self.predictor.shape
        whole.kept.value = kept.astype(np.float64).reshape(shape)
        whole.held.value = np.where(kept, 0.0, held).reshape(shape)
        return whole.problem

    def places(self, data: dict[str, Any]) -> Index:
        """Where the linear predictors are among the variables of what a solver takes."""
        first = data["param_prob"].var_id_to_col[self._by_rows.predictor.id]
        return first + np.arange(self.n)

    def solve(self, kept: Mask, held: Array) -> SolvedProgram:
        """Solve with some rows only, the linear predictors of the others held where they are.

        Parameters
        ----------
        kept : (n,) bool array
        held : (n,) array

        Raises
        ------
        SolverError
        """
        solved_data(self.by_rows(kept, held), again=True)
        whole = self._by_rows
        coef, level = np.ravel(self.coef.value).astype(np.float64), np.asarray(float(whole.level.value))
        return SolvedProgram(coef, level, np.asarray(whole.link.dual_value, dtype=np.float64).ravel())

    @cached_property
    def proximal(self) -> Callable[[Array, float], Array]:
        """Proximal operator of P."""
        return _proximal(self._vector, self.smooth + self.rough, self.constraints)

    @cached_property
    def proximal_rough(self) -> Callable[[Array, float], Array]:
        """Proximal operator of P without its quadratic terms."""
        return _proximal(self._vector, self.rough, self.constraints)


@dataclass(frozen=True, eq=False)
class _ByRows:
    """The program with ``kept`` and ``held`` as parameters."""

    problem: Any
    predictor: Any
    link: Any
    level: Any
    kept: Any
    held: Any


def _proximal(coef: Any, penalty: Any, constraints: tuple[Any, ...]) -> Callable[[Array, float], Array]:
    """Return the proximal operator of P, argmin over z of ½‖z − centre‖² + step · P(z): one program."""
    cp = cvxpy_module()
    at, times = cp.Parameter(coef.shape), cp.Parameter(nonneg=True)
    objective = cp.Minimize(0.5 * cp.sum_squares(coef - at) + times * penalty)
    problem = cp.Problem(objective, list(constraints))

    def proximal(centre: Array, step: float) -> Array:
        at.value, times.value = centre, step
        solved_data(problem, again=True)
        return np.asarray(coef.value, dtype=np.float64)

    return proximal


def solved_data(problem: Any, *, again: bool = False) -> tuple[dict[str, Any], Any]:
    """Solve a program to the highest accuracy that Clarabel reaches, and keep the solution in its variables.

    Parameters
    ----------
    problem : cvxpy.Problem
    again : bool
        Whether the memory of the last solution is used again, with other values of the parameters.

    Returns
    -------
    data : dict
        The program as Clarabel takes it.
    raw : object
        Its solution there, with slacks and duals.

    Raises
    ------
    SolverError
    """
    data, chain, inverse = problem.get_problem_data(cvxpy_module().CLARABEL, solver_opts={})
    for tol, regularisation in ATTEMPTS:
        wanted = {f"tol_{what}": tol for what in ("gap_abs", "gap_rel", "feas")}
        wanted |= {f"reduced_tol_{what}": ACCEPTED for what in ("gap_abs", "gap_rel", "feas")}
        wanted["static_regularization_constant"] = regularisation
        raw = chain.solve_via_data(problem, data, warm_start=again, verbose=False, solver_opts=wanted)
        status = str(raw.status)
        if status in ("Solved", "AlmostSolved"):
            with warnings.catch_warnings():  # cvxpy calls inaccurate what is merely accepted
                warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
                problem.unpack_results(raw, chain, inverse)
            return data, raw
        if "PrimalInfeasible" in status:
            raise SolverError(
                "the program is infeasible: no coefficients satisfy its constraints; loosen them"
            )
        if "DualInfeasible" in status:
            raise SolverError("the program is unbounded, its objective has no minimum: penalise or constrain")
    raise SolverError(
        f"the program could not be solved to an accuracy of {ACCEPTED} ({status}): scale the columns of "
        "X and the response to a size of about one, or penalise more"
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


def attributes(variable: Any) -> dict[str, Any]:
    """Attributes of a variable that are set, such as nonneg."""
    return {
        name: value for name, value in variable.attributes.items() if not (value is None or value is False)
    }


def replaced(part: Any, swaps: dict[int, Any], inner_sum: Any = None) -> Any:
    """Return an expression, or constraint, with some parts, told by their identity, in place of others.

    A sum within a sum is not kept as an object by cvxpy, only its terms are; ``inner_sum`` is such a sum.
    """
    from cvxpy.atoms.affine.add_expr import AddExpression

    if id(part) in swaps:
        return swaps[id(part)]
    args = list(part.args)
    if isinstance(part, AddExpression) and isinstance(inner_sum, AddExpression):
        args = _unflattened(args, inner_sum)
    new = [replaced(arg, swaps, inner_sum) for arg in args]
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

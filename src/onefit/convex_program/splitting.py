"""How a program that a user wrote is checked and split into loss, penalty and constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.convex_program.program import SplitProgram, attributes, cvxpy_module, replaced


@dataclass(frozen=True, eq=False)
class WrittenProgram:
    """A program as its user wrote it: the arguments of ``from_cvxpy``."""

    problem: Any
    eta: Any
    coef: Any
    intercept: Any

    def values(self) -> dict[str, Any]:
        """Values of the parameters by name, as they are now.

        Raises
        ------
        ValueError
            If a parameter has none, or two have one name.
        """
        given = {id(one): one for one in [*self.problem.parameters(), *self.eta.parameters()]}
        found = dict[str, Any]()
        for one in given.values():
            if one.value is None:
                raise ValueError(f"parameter {one.name()} has no value: set it before")
            if one.name() in found:
                raise ValueError(f"two parameters are called {one.name()!r}: give them different names")
            found[one.name()] = np.array(one.value)
        return {name: value.item() if value.ndim == 0 else value for name, value in found.items()}

    def at(self, values: Mapping[str, Any]) -> SplitProgram:
        """Split the program, with variables of its own and values of its parameters.

        Raises
        ------
        TypeError, ValueError
            If the program is not of the form of ``SplitProgram``; the message names the term.
        """
        problem, eta, coef, intercept = self.problem, self.eta, self.coef, self.intercept
        cp = cvxpy_module()
        own, u = (
            cp.Variable(coef.shape, name=coef.name(), **attributes(coef)),
            cp.Variable(eta.shape, name="eta"),
        )
        given = {*problem.parameters(), *eta.parameters()}
        swaps = {
            id(coef): own,
            **{id(parameter): cp.Constant(values[parameter.name()]) for parameter in given},
        }
        X = _design(replaced(eta, swaps), own, intercept)
        written = (problem.objective.args[0], *problem.constraints)
        objective, *constraints = (replaced(part, {**swaps, id(eta): u}, eta) for part in written)
        sign = 1.0 if isinstance(problem.objective, cp.Minimize) else -1.0
        terms = [term for term in _terms(objective, sign) if not term.is_constant()]
        for term in terms:
            _check_term(term, u, own, intercept)
        for constraint in constraints:
            _check_constraint(constraint, own)
        loss = [term for term in terms if term.variables()[0] is u]
        if not loss:
            raise ValueError(
                "eta does not occur in the objective: write the loss with the very object that is passed as "
                "eta, and not with a second X @ coef + intercept"
            )
        penalty, zero = [term for term in terms if term.variables()[0] is own], cp.Constant(0.0)
        smooth = sum((term for term in penalty if term.is_quadratic()), zero)
        rough = sum((term for term in penalty if not term.is_quadratic()), zero)
        return SplitProgram(
            u, own, sum(loss, zero), smooth, rough, tuple(constraints), X, intercept is not None
        )


def shown(part: Any) -> str:
    """Return an expression as text that fits a message."""
    text = " ".join(str(part).split())
    return text if len(text) <= 100 else f"{text[:100]} …"


def check_form(problem: Any, eta: Any, coef: Any, intercept: Any) -> None:
    """Refuse what is no program with a linear predictor."""
    cp = cvxpy_module()
    if not isinstance(problem, cp.Problem):
        raise TypeError(f"problem must be a cvxpy.Problem, got {type(problem).__name__}")
    if not isinstance(coef, cp.Variable) or not coef.is_real() or coef.attributes["diag"]:
        raise ValueError("coef must be a real cvxpy.Variable, without the attribute diag")
    if not (intercept is None or (isinstance(intercept, cp.Variable) and intercept.size == 1)):
        raise ValueError("intercept must be a scalar cvxpy.Variable")
    if intercept is not None and attributes(intercept):
        raise ValueError("intercept must not have attributes, such as nonneg: it cannot be constrained")
    if not isinstance(eta, cp.Expression) or eta is coef or eta.size != max(eta.shape, default=0):
        raise ValueError("eta must be the expression X @ coef + intercept of shape (n,) or (n, 1)")
    if problem.is_mixed_integer():
        raise ValueError("the program has integer or boolean variables: it is not convex")


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
    level = cvxpy_module().Variable(() if intercept is None else intercept.shape)
    eta = eta if intercept is None else replaced(eta, {id(intercept): level})

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


def _terms(expression: Any, times: float) -> Iterator[Any]:
    """Terms of a sum, also within multiples of sums, each with its factor."""
    from cvxpy.atoms.affine.add_expr import AddExpression

    multiple = _multiple(expression)
    if isinstance(expression, AddExpression):
        for arg in expression.args:
            yield from _terms(arg, times)
    elif multiple is not None:
        yield from _terms(multiple[1], times * multiple[0])
    else:
        yield expression if times == 1.0 else times * expression


def _multiple(expression: Any) -> tuple[float, Any] | None:
    """Return the factor and the rest of a multiple of a scalar."""
    from cvxpy.atoms.affine import binary_operators as binary
    from cvxpy.atoms.affine.unary_operators import NegExpression

    if isinstance(expression, NegExpression):
        return -1.0, expression.args[0]
    if not isinstance(expression, binary.MulExpression | binary.DivExpression):
        return None
    left, right = expression.args
    if left.size > 1 or right.size > 1 or left.is_constant() == right.is_constant():
        return None
    if isinstance(expression, binary.DivExpression):
        return (1.0 / right.value.item(), left) if right.is_constant() else None
    return (left.value.item(), right) if left.is_constant() else (right.value.item(), left)


def _check_term(term: Any, u: Any, coef: Any, intercept: Any) -> None:
    """Refuse a term that is not one of the linear predictor, or of the coefficients, alone."""
    found = term.variables()
    others = [v.name() for v in found if v is not u and v is not coef]
    if any(v is intercept for v in found):
        raise ValueError(
            f"the intercept occurs outside eta, in {shown(term)}: it cannot be penalised; make it a "
            "coefficient, with a column of ones in X"
        )
    if others:
        raise ValueError(
            f"the term {shown(term)} contains {', '.join(others)}, which is neither coef nor intercept: "
            "write the program without it, with atoms in its place"
        )
    if len(found) > 1:
        raise ValueError(
            f"the term {shown(term)} mixes eta and the coefficients: the objective must be loss(eta) + "
            "penalty(coef)"
        )
    if not term.is_convex():
        raise ValueError(f"the term {shown(term)} is not convex by cvxpy's rules (not DCP)")


def _check_constraint(constraint: Any, coef: Any) -> None:
    others = [v.name() for v in constraint.variables() if v is not coef]
    if others:
        raise ValueError(
            f"the constraint {shown(constraint)} contains {', '.join(others)}: only the coefficients can be "
            "constrained"
        )
    if not constraint.is_dcp():
        raise ValueError(f"the constraint {shown(constraint)} is not convex by cvxpy's rules (not DCP)")

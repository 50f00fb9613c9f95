"""What the checks share: differences, parameters, and refits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from onefit._typing import Array
from onefit.api import loo
from onefit.estimators import GeneralizedLinear
from onefit.fit import Fit
from onefit.gradients import Cotangent, stencil, tangent_change
from onefit.losses import PiecewiseLoss
from onefit.penalties import Penalty
from onefit.pieces import PLACES, WEIGHTS
from onefit.problem import Problem
from onefit.solvers.solve import solve


def same(found: Any, expected: Any, what: str, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    """Assert that two arrays agree."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def holds(truth: Any, what: str) -> None:
    """Assert a statement, or one for each entry."""
    if not np.all(truth):
        raise AssertionError(what)


def difference(function: Callable[[float], Any], step: float) -> Any:
    """Derivative at 0 by five points."""
    return sum(w * function(k * step) for k, w in zip(PLACES, WEIGHTS, strict=True)) / step


def check_parameters(one: Any) -> None:
    """Parameters can be read and set; clones, copies and pickles have the same."""
    name, params = type(one).__name__, one.get_params(deep=False)
    for again in (clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), type(one)(**params)):
        found = again.get_params(deep=False)
        holds(
            type(again) is type(one) and found.keys() == params.keys(), f"a copy of {name} is another thing"
        )
        for key, value in params.items():
            holds(_alike(found[key], value), f"a copy of {name} has another {key}")
    try:
        clone(one).set_params(not_a_parameter=1.0)
    except ValueError:
        return
    raise AssertionError(f"{name}.set_params must refuse a name that is no parameter")


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(np.array_equal(np.asarray(one, dtype=float), np.asarray(other, dtype=float)))
    except (TypeError, ValueError):
        return repr(one) == repr(other)


def some_rows(n: int, most: int, rng: np.random.Generator) -> Array:
    """Row numbers to be left out one by one."""
    return np.sort(rng.permutation(n)[:most])


def check_refits(problem: Problem, most: int, rng: np.random.Generator) -> None:
    """Exact leave-one-out of some rows is what solving without them gives."""
    X, y, weights = problem.X, problem.y, problem.weights
    model: Any = GeneralizedLinear(problem.loss, problem.penalty).fit(X, y, weights)
    found = loo(model, X, y, weights, exact=True).decision
    for i in some_rows(len(y), most, rng):
        refit = solve(Fit.at_start(problem.without(int(i)))).fit
        scale = 1e-5 * (1.0 + np.abs(refit.eta).max())
        same(found[i], refit.eta[i], f"the left-out predictor of row {i} is not that of a refit", 1e-5, scale)


def check_gradient(
    problem: Problem,
    penalty_at: Callable[[float], Penalty],
    judged: Callable[[Fit], tuple[Array, Cotangent]],
    step: float,
    what: str,
) -> None:
    """The gradient of a sum of squares along penalties is what differences say, where it has no kink.

    ``judged`` goes from a fit to what is squared, and to the cotangent of half the sum.
    """

    def at(t: float) -> Fit:
        return solve(Fit.at_start(replace(problem, penalty=penalty_at(t)))).fit

    fit, points = at(0.0), stencil()
    if not all(_on_same_pieces(fit, at(k * step)) for k in PLACES):
        return

    def risk(t: float) -> float:
        return 0.5 * float(np.sum(judged(at(t))[0] ** 2))

    change = tangent_change([penalty_at(t) for t in points.places], points, fit)
    same(judged(fit)[1].along(change), difference(risk, step), what, 1e-4, 1e-6)


def _on_same_pieces(one: Fit, other: Fit) -> bool:
    """Whether the penalty and all rows keep to their piece."""
    if one.tangent.size != other.tangent.size or np.any(one.tangent.support != other.tangent.support):
        return False
    loss, y = one.problem.loss, one.problem.y
    if not isinstance(loss, PiecewiseLoss):
        return True
    stays = loss.interval(y, one.eta).contains(other.eta) | (one.pinned & other.pinned)
    return bool(np.all(stays) and np.array_equal(one.pinned, other.pinned))

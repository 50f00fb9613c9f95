"""Refits with several optima beside penalties that are sums over more than single coefficients."""

from __future__ import annotations

from itertools import pairwise, permutations, product

import numpy as np
import pytest
from scipy.optimize import linprog

import onefit
from onefit.fit import Fit
from onefit.leave_out.engine import leave_out
from onefit.leave_out.loose import _of_program
from onefit.losses import Huber, Quantile
from onefit.penalties import Box, FusedLasso, Slope
from onefit.problem import Problem
from onefit.solvers.solve import solve

P = 3
SAME = 1e-6


def pieces(name):
    """Linear functions of (β, level) of which the penalty is the largest sum: each part a list of rows."""
    unit = np.eye(P, P + 1)
    if name == "box":
        return [], [(-1.0, 1.0)] * P
    if name == "fused":
        return [[unit[j] - unit[k], unit[k] - unit[j]] for j, k in pairwise(range(P))], [(None, None)] * P
    signs = product([1.0, -1.0], repeat=P)
    turned = [np.array(s) * w for s in signs for w in permutations([2.0, 1.0, 0.5])]
    return [[np.append(row, 0.0) for row in turned]], [(None, None)] * P


PENALTIES = {"box": Box(-1.0, 1.0), "fused": FusedLasso(2.0), "slope": Slope([2.0, 1.0, 0.5], 2.0)}
STRENGTHS = {"box": 0.0, "fused": 2.0, "slope": 2.0}


def range_of_optima(name, Z, y, weights, row):
    """Least and largest predictor of a row over all minima of Σ w |y − Zθ| + P(β), by linear programs."""
    parts, bounds = pieces(name)
    n, f, k = *Z.shape, len(parts)
    A = [np.hstack([s * Z, -np.eye(n), np.zeros((n, k))]) for s in (1.0, -1.0)]
    b = [y, -y]
    for j, part in enumerate(parts):
        below = np.hstack([np.array(part), np.zeros((len(part), n + k))])
        below[:, f + n + j] = -1.0
        A.append(below)
        b.append(np.zeros(len(part)))
    cost = np.concatenate([np.zeros(f), weights, np.full(k, STRENGTHS[name])])
    free = [*bounds, *[(None, None)] * (1 + n + k)]
    least = linprog(cost, np.vstack(A), np.concatenate(b), bounds=free).fun
    A, b = np.vstack([*A, cost]), np.concatenate([*b, [least + 1e-9]])
    move = np.concatenate([row, np.zeros(n + k)])
    return [sign * linprog(sign * move, A, b, bounds=free).fun for sign in (1.0, -1.0)]


@pytest.mark.parametrize("name", PENALTIES)
def test_bounds_reach_to_all_optima_and_no_further(name):
    """Whole numbers tie: without some rows there is more than one minimum."""
    n, widest = 10, 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.integers(-2, 3, size=(n, P)).astype(float)
        y = np.round(X @ [1.0, -1.0, 0.5] + rng.normal(size=n))
        problem = Problem(Quantile(0.5), PENALTIES[name], X, y, np.ones(n))
        found = leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)
        Z = np.hstack([X, np.ones((n, 1))])
        ends = [range_of_optima(name, Z, y, 0.5 * (np.arange(n) != i), Z[i]) for i in range(n)]
        reach = np.abs(np.array(ends) - found.eta[:, None]).max(axis=1)
        np.testing.assert_allclose(found.bounds, reach, atol=SAME)
        widest = max(widest, reach.max())
    assert widest > 0.3


def test_rows_on_straight_pieces_beside_bounds():
    """Without row 9 Huber's loss is as small at either of two predictors."""
    rng = np.random.default_rng(2)
    X = rng.integers(-2, 3, size=(14, 6)).astype(float)
    y = np.round(X[:, 0] + X[:, 1] - X[:, 2] + 2.0 * rng.standard_t(2, size=14))
    problem = Problem(Huber(1.0), Box(lower=0.0, l1=3.0), X, y, np.ones(14))
    found = leave_out(solve(Fit.at_start(problem)).fit, max_error=0.0)
    refits = [solve(Fit.at_start(problem.without(i))).fit for i in range(14)]
    off = np.abs([refit.eta[i] - found.eta[i] for i, refit in enumerate(refits)])
    assert off[9] > 1.0
    assert np.all(off <= found.bounds + SAME)


def test_what_rounding_leaves_beyond_a_bound_is_on_it():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(14, 6)), rng.normal(size=14)
    fit = solve(Fit.at_start(Problem(Huber(1.0), Box(lower=0.0, upper=1.0), X, y, np.ones(14)))).fit
    (zero, *_), coef = np.flatnonzero(fit.coef == 0), fit.coef.copy()
    coef[zero] = -1e-6
    beyond = fit.moved(coef, fit.intercept).known(eta=fit.eta)
    held = [_of_program(one).held for one in (fit, beyond)]
    assert held[0].any(axis=0)[zero]
    np.testing.assert_array_equal(*held)


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")
def test_a_nuclear_norm_beside_straight_pieces_is_not_called_exact_where_rows_do_not_hold_it():
    """Without row 3 its predictor may be anything from 1 to 1.824 (by a conic program)."""
    rows = (
        "-1 1 1 1  2 -1 2 0  1 0 2 1  2 -1 0 2  -2 1 -1 0  -2 -1 2 0  2 2 -1 -2  2 2 0 1  1 -1 0 -2  2 0 0 -2"
    )
    X = np.array(f"{rows}  -2 2 0 0".split(), dtype=float).reshape(11, 4)
    y = np.array([-1, 1, 2, 3, -2, 0, 1, 2, 2, 2, -3], dtype=float)
    penalty = onefit.penalties.NuclearNorm((2, 2), 2.0)
    model = onefit.GeneralizedLinear("absolute", penalty, fit_intercept=False).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    assert est.guarantee == "rough"
    assert np.isinf(est.bounds[3])
    assert np.isfinite(est.bounds).sum() == 10

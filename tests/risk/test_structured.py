"""Leave-one-out of every loss with every penalty against refits, by our solvers and by Clarabel."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC, SVR

import clarabel_route
import onefit
from builders import without
from onefit import GeneralizedLinear
from onefit.leave_out.patterns import bound_of_patterns
from onefit.leave_out.step import one_step
from onefit.losses import EpsilonInsensitive, Hinge, Logistic, Quantile, Squared
from onefit.penalties import (
    L1,
    L2,
    Box,
    ElasticNet,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    NuclearNorm,
    Slope,
    SparseGroupLasso,
    TrendFilter,
)
from onefit.problem import Problem
from onefit.readers import read
from onefit.solvers.null_model import null_strength
from onefit.solvers.solve import solve

N, P = 60, 16
GROUPS = np.repeat(np.arange(4), 4)
GRID = [(i, i + 1) for i in range(P) if i % 4 < 3] + [(i, i + 4) for i in range(P - 4)]
SOME_ROWS = np.random.default_rng(3).normal(size=(10, P))
MANY_ROWS = np.vstack([np.eye(P), np.diff(np.eye(P), axis=0)])  # sparse fused lasso
SORTED = np.linspace(1.0, 0.2, P)
PENALTIES = {
    "l1": L1(),
    "elastic net": ElasticNet(l1_ratio=0.6),
    "group": GroupLasso(GROUPS),
    "sparse group": SparseGroupLasso(GROUPS, l1_ratio=0.4),
    "generalised": GeneralizedLasso(SOME_ROWS),
    "generalised, dependent rows": GeneralizedLasso(MANY_ROWS),
    "chain": FusedLasso(),
    "graph": FusedLasso(edges=GRID),
    "trend": TrendFilter(1),
    "slope": Slope(SORTED),
    "nuclear": NuclearNorm((4, 4)),
    "box": Box(-0.4, 0.6),
    "ridge and chain": L2(0.3) + FusedLasso(),
}
LOSSES = {"squared": Squared(), "logistic": Logistic()}
CORNERS = {"hinge": Hinge(), "quantile": Quantile(0.3), "epsilon": EpsilonInsensitive(0.4)}
every = pytest.mark.parametrize("name", PENALTIES)
either = pytest.mark.parametrize(
    ("weighted", "fit_intercept"), [(False, True), (True, False)], ids=["intercept", "weighted"]
)
smooth = pytest.mark.parametrize("loss", LOSSES)


def _data(loss, n=N, p=P, seed=0):
    """Piecewise constant coefficients, which every structure can make something of."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.2
    coef = np.repeat([1.0, 0.0, -0.5, 0.0], p // 4)
    eta = X @ coef
    if loss in ("logistic", "hinge"):
        return X, (eta + rng.logistic(size=n) > 0).astype(float)
    return X, eta + 1.5 * rng.normal(size=n) + 2.0


def _weights(n=N):
    weights = np.random.default_rng(7).uniform(0.3, 2.0, n)
    weights[5] = 0.0
    return weights


@cache
def _unit(loss, name):
    """Strength that leaves nothing but the null space; bounds have none."""
    if name == "box":
        return 1.0
    X, y = _data(loss)
    return null_strength(Problem(LOSSES[loss], PENALTIES[name], X, y, np.ones(N)))


def _model(loss, name, share=0.1, fit_intercept=True):
    penalty = PENALTIES[name].scaled(share * _unit(loss, name))
    return GeneralizedLinear(loss, penalty, fit_intercept=fit_intercept)


def _refits(model, X, y, weights=None, rows=None):
    """Left-out linear predictors by solving without each row; cold, so that no start can help."""
    fit = read(model, X, y, weights).fit
    rows = range(len(y)) if rows is None else rows
    return np.array([without(fit, i, warm=False).eta[i] for i in rows])


def _risk(loss, y, eta):
    return np.mean((y - eta) ** 2) if loss == "squared" else np.mean(LOSSES[loss].value(y, eta))


@pytest.mark.costly
@every
@smooth
def test_the_best_strength_of_a_path(name, loss):
    X, y = _data(loss)
    shares = [1.0] if name == "box" else [0.25, 0.1]
    estimates = [onefit.loo(_model(loss, name, share).fit(X, y), X, y) for share in shares]
    best = int(np.argmin([estimate.value for estimate in estimates]))
    est, model = estimates[best], _model(loss, name, shares[best]).fit(X, y)
    rows = np.arange(0, N, 2)
    refitted = _refits(model, X, y, rows=rows)
    ours, theirs = np.mean(est.losses[rows]), _risk(loss, y[rows], refitted)
    np.testing.assert_allclose(ours, theirs, rtol=0.02)
    sure = est.certified[rows]
    np.testing.assert_allclose(est.decision[rows][sure], refitted[sure], atol=1e-6 * np.std(refitted))


@pytest.mark.costly
@every
@smooth
def test_refits_by_an_independent_solver(name, loss):
    X, y = _data(loss)
    fit = read(_model(loss, name).fit(X, y), X, y, None).fit
    for i in (3, 31):
        coef, level, _ = clarabel_route.minimum(fit.problem.without(i))
        np.testing.assert_allclose(without(fit, i).eta, X @ coef + level, atol=2e-4 * np.std(fit.eta))


@pytest.mark.costly
@every
@smooth
@either
def test_exact_is_the_refits(name, loss, weighted, fit_intercept):
    X, y = _data(loss, n=40)
    weights = _weights(40) if weighted else None
    model = _model(loss, name, fit_intercept=fit_intercept).fit(X, y, weights)
    est = onefit.loo(model, X, y, weights, exact=True)
    rows = np.arange(weighted, 40, 4)
    refitted = _refits(model, X, y, weights, rows)
    np.testing.assert_allclose(est.decision[rows], refitted, atol=1e-5 * np.std(refitted))
    assert est.certified.all()


@pytest.mark.costly
@every
@smooth
def test_sparse_columns_are_columns(name, loss):
    X, y = _data(loss)
    X[np.abs(X) < 0.5] = 0.0
    thin = sp.csr_array(X)
    dense, sparse = _model(loss, name).fit(X, y), _model(loss, name).fit(thin, y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-8 * np.abs(dense.coef_).max())
    if loss == "squared":
        one, other = onefit.loo(dense, X, y), onefit.loo(sparse, thin, y)
        np.testing.assert_allclose(other.decision, one.decision, atol=1e-7 * np.std(one.decision))
        np.testing.assert_array_equal(other.certified, one.certified)


@pytest.mark.parametrize("ridge", [0.0, 2.0])
def test_bounds_that_do_not_bind_are_not_there(ridge):
    X, y = _data("squared")
    wide = Box(-1e3, 1e3) if ridge == 0 else L2(ridge) + Box(-1e3, 1e3)
    bounded = onefit.loo(GeneralizedLinear(penalty=wide).fit(X, y), X, y)
    free = onefit.loo(GeneralizedLinear(penalty=L2(ridge)).fit(X, y), X, y)
    np.testing.assert_allclose(bounded.decision, free.decision, atol=1e-9)
    assert bounded.certified.all()


# --- losses with kinks ---------------------------------------------------------------------------

OF_CORNERS = {"ridge": L2(2.0), "l1": L1(2.0), "chain": FusedLasso(2.0)}


@pytest.mark.costly
@pytest.mark.parametrize("name", OF_CORNERS)
@pytest.mark.parametrize("loss", CORNERS)
@either
def test_kinks_and_penalties(name, loss, weighted, fit_intercept):
    X, y = _data(loss, n=40)
    weights = _weights(40) if weighted else None
    model = GeneralizedLinear(CORNERS[loss], OF_CORNERS[name], fit_intercept=fit_intercept)
    est = onefit.loo(model.fit(X, y, weights), X, y, weights, exact=True)
    rows = np.arange(weighted, 40, 4)
    refitted = _refits(model, X, y, weights, rows)
    np.testing.assert_allclose(est.decision[rows], refitted, atol=1e-5 * np.std(refitted))
    fit = solve(read(model, X, y, weights).fit).fit  # duals and all
    step = one_step(fit)
    sure = rows[np.isfinite(bound_of_patterns(fit, step.eta))[rows]]
    assert sure.size > 0 or name != "ridge"  # kinks on both sides leave few patterns as they are
    np.testing.assert_allclose(step.eta[sure], est.decision[sure], atol=1e-6 * np.std(refitted))
    coef, level, _ = clarabel_route.minimum(fit.problem.without(3))
    np.testing.assert_allclose(est.decision[3], X[3] @ coef + level, atol=1e-3 * np.std(refitted))


@pytest.mark.parametrize("machine", [SVC(C=1.5, gamma=0.05), SVR(C=1.5, gamma=0.05, epsilon=0.2)], ids=repr)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_kernel_machines(machine, weighted):
    X, y = _data("hinge" if isinstance(machine, SVC) else "epsilon", n=80)
    weights = _weights(80) if weighted else None
    machine = machine.set_params(tol=1e-9).fit(X, y, weights)
    est = onefit.loo(machine, X, y, weights, exact=True)
    out = machine.decision_function if isinstance(machine, SVC) else machine.predict
    assert np.std(out(X)) > 0
    for i in range(0, 80, 4):
        kept = np.arange(80) != i
        refit = type(machine)(**machine.get_params())
        refit.fit(X[kept], y[kept], None if weights is None else weights[kept])
        judge = refit.decision_function if isinstance(machine, SVC) else refit.predict
        np.testing.assert_allclose(est.decision[i], judge(X[[i]])[0], atol=1e-5 * np.std(out(X)))

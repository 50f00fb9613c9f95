"""In-sample criteria against their textbook formulas and derivatives."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR, LinearSVC

import onefit
from onefit.penalties import L2
from onefit.readers import read
from onefit.risk.criteria import first_order_change
from onefit.risk.permutation import draw_permutations
from onefit.solvers.solve import solve
from onefit.sources import ArraySource


def _data(n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ rng.normal(size=p) + rng.normal(size=n)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_gcv_and_cp_of_ridge(storage, fit_intercept, weigh):
    X, y = _data()
    weights = weigh(60)
    unit = np.ones(60) if weights is None else weights
    Z = np.column_stack([X, np.ones(60)]) if fit_intercept else X
    C = np.diag([3.0] * 6 + [0.0] * fit_intercept)
    hat = Z @ np.linalg.solve(Z.T @ (unit[:, None] * Z) + C, Z.T * unit)
    n, df = np.count_nonzero(unit), np.trace(hat)
    training = unit @ (y - hat @ y) ** 2 / unit.sum()
    model = Ridge(3.0, fit_intercept=fit_intercept, tol=1e-12).fit(storage(X), y, weights)
    gcv = onefit.evaluate(model, storage(X), y, onefit.risk.GCV(), weights)
    np.testing.assert_allclose(gcv.value, training / (1 - df / n) ** 2, rtol=1e-8)
    assert gcv.effective_df == pytest.approx(df)
    assert gcv.training == pytest.approx(training)
    sure = onefit.evaluate(model, storage(X), y, onefit.risk.SURE(2.0), weights)
    np.testing.assert_allclose(sure.value, training + 2 * 2.0 * df / n, rtol=1e-8)
    estimated = onefit.evaluate(model, storage(X), y, onefit.risk.SURE(), weights)
    np.testing.assert_allclose(estimated.value, training * (1 + 2 * df / (n - df)), rtol=1e-8)


def test_degrees_of_freedom_of_a_lasso_are_its_support():
    X, y = _data()
    model = Lasso(0.3, tol=1e-10).fit(X, y)
    criterion = onefit.evaluate(model, X, y, onefit.risk.SURE())
    assert criterion.effective_df == pytest.approx(np.count_nonzero(model.coef_) + 1)
    assert "SURE" in str(criterion)


@pytest.mark.theory
def test_sure_is_unbiased():
    X, _ = _data(n=50)
    rng, truth = np.random.default_rng(1), X @ np.ones(6)
    gaps = []
    for _ in range(300):
        y = truth + 1.5 * rng.normal(size=50)
        model = Ridge(5.0).fit(X, y)
        in_sample = np.mean((model.predict(X) - truth) ** 2) + 1.5**2
        gaps.append(onefit.evaluate(model, X, y, onefit.risk.SURE(1.5**2)).value - in_sample)
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / np.sqrt(300)


@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["ridge", "logistic", "multinomial"])
def test_the_influence_function_is_the_derivative_in_the_weight(n_classes):
    X, y = _data()
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = (LogisticRegression(C=0.5) if n_classes else Ridge(2.0)).fit(X, y)
    fit = solve(read(model, X, y).fit).fit
    change = first_order_change(fit)
    for i in (0, 11, 40):
        moved = []
        for step in (-1e-4, 1e-4):
            weights = fit.problem.weights.copy()
            weights[i] += step
            moved.append(solve(replace(fit, problem=replace(fit.problem, weights=weights))).fit.eta[i])
        np.testing.assert_allclose(-(moved[1] - moved[0]) / 2e-4, change[i], rtol=1e-5, atol=1e-8)


WITH_KINKS = {
    "median": QuantileRegressor(alpha=0.01),
    "absolute": onefit.GeneralizedLinear("absolute", L2(1.0)),
    "ε-insensitive": SVR(kernel="linear", epsilon=0.3, tol=1e-8),
    "hinge": LinearSVC(loss="hinge", tol=1e-8, max_iter=1_000_000),
}


@pytest.mark.parametrize("name", WITH_KINKS)
def test_the_influence_function_of_rows_on_a_kink_is_none(name):
    X, y = _data()
    y = y > 0 if name == "hinge" else y
    model = clone(WITH_KINKS[name]).fit(X, y)
    fit = solve(read(model, X, y).fit).fit
    change = first_order_change(fit)
    assert fit.pinned.any()
    assert not change[fit.pinned].any()
    for i in (*np.flatnonzero(fit.pinned)[:2], *np.flatnonzero(~fit.pinned & (fit.gradient != 0))[:3]):
        weights = fit.problem.weights.copy()
        weights[i] -= 1e-5
        moved = solve(replace(fit, problem=replace(fit.problem, weights=weights))).fit.eta[i]
        np.testing.assert_allclose((moved - fit.eta[i]) / 1e-5, change[i], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", WITH_KINKS)
@pytest.mark.parametrize(
    "risk",
    [onefit.risk.GCV(), onefit.risk.ALO(), onefit.risk.LinearizedALO(), onefit.risk.InfluenceFunction()],
    ids=lambda risk: type(risk).__name__,
)
def test_one_step_of_a_loss_with_kinks_is_warned_of(name, risk):
    X, y = _data()
    y = y > 0 if name == "hinge" else y
    model = clone(WITH_KINKS[name]).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match=r"has kinks: take onefit\.loo, or LeaveOneOut"):
        assert np.isfinite(onefit.evaluate(model, X, y, risk).value)


@pytest.mark.parametrize("name", WITH_KINKS)
def test_fits_of_permutations_are_no_steps(name):
    X, y = _data()
    y = y > 0 if name == "hinge" else y
    model = clone(WITH_KINKS[name]).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = onefit.evaluate(model, X, y, onefit.risk.Permutation())
    with pytest.warns(onefit.UnreliableWarning):
        other = onefit.evaluate(model, X, y, onefit.risk.GCV())
    assert (found.training, found.effective_df) == pytest.approx((other.training, other.effective_df))


def test_it_underestimates_overfitting():
    X, y = _data(n=40, p=15)
    model = Ridge(0.1).fit(X, y)
    jackknife = onefit.evaluate(model, X, y, onefit.risk.InfluenceFunction())
    assert jackknife.training < jackknife.value < onefit.loo(model, X, y).value


@pytest.mark.parametrize(
    "risk",
    [
        onefit.risk.GCV(),
        onefit.risk.SURE(),
        onefit.risk.ALO(),
        onefit.risk.LinearizedALO(),
        onefit.risk.InfluenceFunction(),
        onefit.risk.Permutation(2, random_state=0),
        onefit.risk.LeaveOneOut(),
    ],
    ids=lambda risk: type(risk).__name__,
)
def test_steps_that_learn_from_y_are_warned_of(risk):
    """A selection of 4 among 100 columns of noise: the risk looks half of what it is."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 100)), rng.normal(size=40)
    model = make_pipeline(SelectKBest(f_regression, k=4), Ridge()).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match=r"learn from y \(selectkbest\)"):
        onefit.evaluate(model, X, y, risk)


def test_of_a_source_leave_one_out_is_known():
    X, y = _data()
    model = Ridge(0.1).fit(X, y)
    found = onefit.evaluate(model, ArraySource(X, y), None, onefit.risk.LeaveOneOut())
    assert found.value == pytest.approx(onefit.loo(model, X, y).value, rel=1e-9)
    with pytest.raises(ValueError, match=r"KFold needs all rows at once, .* LeaveOneOut\(\) alone"):
        onefit.evaluate(model, ArraySource(X, y), None, onefit.risk.KFold(5))


@pytest.mark.parametrize("n_classes", [3, 8])
def test_gcv_of_classes_is_by_all_their_free_outputs(n_classes):
    """The trace of D H over n (c − 1), which it does not exceed without a penalty."""
    X, y = _data(n=80, p=10)
    y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = LogisticRegression(C=3.0, tol=1e-9, max_iter=10_000).fit(X, y)
    gcv = onefit.evaluate(model, X, y, onefit.risk.GCV())
    P, Z, C = model.predict_proba(X), np.column_stack([X, np.ones(80)]), np.diag([*np.full(10, 1 / 3), 0.0])
    D = np.einsum("na,ab->nab", P, np.eye(n_classes)) - np.einsum("na,nb->nab", P, P)
    G = np.einsum("ni,nab,nj->aibj", Z, D, Z).reshape(11 * n_classes, -1)
    df = np.trace(np.linalg.pinv(G + np.kron(np.eye(n_classes), C)) @ G)
    assert gcv.effective_df == pytest.approx(df, rel=1e-6)
    assert gcv.value == pytest.approx(gcv.training / (1 - df / (80 * (n_classes - 1))) ** 2, rel=1e-6)
    assert gcv.training < gcv.value < 2.0 * onefit.loo(model, X, y).value


def test_gcv_of_targets_is_by_their_mean():
    X, _ = _data(n=30)
    Y = X @ np.random.default_rng(3).normal(size=(6, 4)) + np.random.default_rng(4).normal(size=(30, 4))
    both = onefit.evaluate(Ridge(2.0).fit(X, Y), X, Y, onefit.risk.GCV())
    each = [onefit.evaluate(Ridge(2.0).fit(X, y), X, y, onefit.risk.GCV()) for y in Y.T]
    assert both.effective_df == pytest.approx(each[0].effective_df)
    assert both.value == pytest.approx(np.mean([one.value for one in each]))


def test_what_has_no_criterion():
    X, y = _data()
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="squared error"):
        onefit.evaluate(LogisticRegression().fit(X, labels), X, labels, onefit.risk.SURE())
    wide, response = _data(n=10, p=40)
    with pytest.raises(ValueError, match="noise_variance"):
        onefit.evaluate(LinearRegression().fit(wide, response), wide, response, onefit.risk.SURE())
    flat = onefit.evaluate(LinearRegression().fit(wide, response), wide, response, onefit.risk.GCV())
    assert flat.value == np.inf


@pytest.mark.parametrize("weighted", [False, True])
def test_the_permutation_criterion_of_a_ridge_is_its_closed_form(weighted):
    X, y = _data(n=30, p=4)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 30) if weighted else None
    model = Ridge(2.0).fit(X, y, weights)
    found = onefit.evaluate(model, X, y, onefit.risk.Permutation(7, random_state=3), weights)
    share = np.full(30, 1.0 / 30) if weights is None else weights / weights.sum()
    orders = draw_permutations(30, 7, np.random.default_rng(3))

    def unexplained(order):
        response = y[order] - share @ y[order]
        fit = Ridge(2.0).fit(X, y[order], weights).predict(X)
        return np.sqrt(share @ (y[order] - fit) ** 2 / (share @ response**2))

    expected = unexplained(np.arange(30)) + np.mean([abs(1.0 - unexplained(order)) for order in orders])
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.name == "permutation criterion"


def test_the_permutation_criterion_is_what_the_search_minimises():
    X, y = _data()
    risk = onefit.risk.Permutation(5, random_state=0)
    search = onefit.GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e3)}, risk=risk).fit(X, y)
    assert onefit.evaluate(search.best_estimator_, X, y, risk).value == pytest.approx(
        -search.best_score_, rel=1e-8
    )


def test_permutations_are_not_for_balanced_classes():
    X, y = _data()
    model = LogisticRegression(class_weight="balanced").fit(X, y > 0)
    with pytest.raises(onefit.UnsupportedModelError, match="Permutation"):
        onefit.evaluate(model, X, y > 0, onefit.risk.Permutation(3))


@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["ridge", "logistic", "multinomial"])
def test_lemma_3_is_the_loss_followed_along_its_slope(n_classes):
    """Σ over rows of ℓ_i + ∇ℓ_iᵀ (H without row i)⁻¹ ∇ℓ_i / n, with the Hessian of all other rows."""
    X, y = _data(n=40)
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = (LogisticRegression(C=0.5) if n_classes else Ridge(2.0)).fit(X, y)
    step = onefit.evaluate(model, X, y, onefit.risk.ALO())
    lemma = onefit.evaluate(model, X, y, onefit.risk.LinearizedALO())
    jackknife = onefit.evaluate(model, X, y, onefit.risk.InfluenceFunction())
    assert lemma.training < lemma.value < step.value  # a convex loss is above its tangent
    assert lemma.value != pytest.approx(jackknife.value, rel=1e-6)
    if n_classes == 2:
        fit = solve(read(model, X, y).fit).fit
        Z = np.column_stack([X, np.ones(len(X))])
        hessian = Z.T * fit.hessian @ Z + np.diag([*np.full(X.shape[1], 2.0), 0.0])
        changes = [
            fit.gradient[i] ** 2 * z @ np.linalg.solve(hessian - fit.hessian[i] * np.outer(z, z), z)
            for i, z in enumerate(Z)
        ]
        assert lemma.value == pytest.approx(lemma.training + np.mean(changes), rel=1e-8)


@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_degrees_of_freedom_are_those_of_the_fit(alpha):
    """A penalty beside a mean loss is weaker in refits, not in the fit: as a ridge of these coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))
    y = X @ rng.normal(size=4) + rng.normal(size=12)
    scaled, plain = ElasticNet(alpha, l1_ratio=0.0, tol=1e-12, max_iter=100_000), Ridge(12 * alpha)
    for criterion in (onefit.risk.GCV(), onefit.risk.SURE(), onefit.risk.LeaveOneOut()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coordinate descent without an ℓ1 part
            found = onefit.evaluate(scaled.fit(X, y), X, y, criterion)
        expected = onefit.evaluate(plain.fit(X, y), X, y, criterion)
        assert found.effective_df == pytest.approx(expected.effective_df, rel=1e-6)
        if criterion != onefit.risk.LeaveOneOut():  # whose refits do have less of the penalty
            assert found.value == pytest.approx(expected.value, rel=1e-6)


@pytest.mark.parametrize("repeat", [False, True], ids=["", "repeated"])
def test_degrees_of_freedom_are_the_trace_of_the_hat_matrix(repeat):
    """Of means over weighted rows, which are those over as many rows without weights."""
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(12, 4)), rng.integers(1, 4, size=12)
    y = rng.poisson(3, 12).astype(float)
    model = PoissonRegressor(alpha=1.0, tol=1e-11, max_iter=100_000).fit(X, y, counts)
    Z, D = np.column_stack([np.ones(12), X]), counts * model.predict(X)
    G = Z.T @ (D[:, None] * Z)
    K = G + counts.sum() * np.diag([0.0, *np.ones(4)])
    leverages = D * np.einsum("ni,ni->n", Z, np.linalg.solve(K, Z.T).T)
    if repeat:
        X, y, given = np.repeat(X, counts, axis=0), np.repeat(y, counts), None
        leverages = np.repeat(leverages / counts, counts)
    else:
        given = counts.astype(float)
    est = onefit.loo(model, X, y, given)
    np.testing.assert_allclose(est.leverages, leverages, rtol=1e-6)
    pairs = onefit.loo(model, X, y, given, groups=np.arange(len(y)) // 2)
    for found in (est, pairs, onefit.loo(model, ArraySource(X, y, given))):
        assert found.effective_df == pytest.approx(leverages.sum(), rel=1e-6)
    assert est.influence().leverages == pytest.approx(leverages, rel=1e-6)
    gcv = onefit.evaluate(model, X, y, onefit.risk.GCV(), given)
    assert gcv.effective_df == pytest.approx(leverages.sum(), rel=1e-6)

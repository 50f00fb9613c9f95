"""Rows in blocks: sums, left-out losses of all strengths, and bounds, beside refits and whole arrays."""

import warnings
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, Lasso, Ridge

import onefit
from onefit.blocks import (
    ArrayRows,
    Block,
    ChosenStrength,
    RowSums,
    RowValues,
    Spectrum,
    net_path,
    ridge_path,
)
from onefit.blocks.paths import solved_anew
from onefit.risk.means import covariance_of_means, mean_and_error, paired_errors

ALPHAS = np.geomspace(2.0, 0.02, 6)
REFITS = {
    "ridge": lambda alpha, **kw: Ridge(alpha, **kw),
    "lasso": lambda alpha, **kw: Lasso(alpha, tol=1e-13, max_iter=100_000, **kw),
    "net": lambda alpha, **kw: ElasticNet(alpha, l1_ratio=0.4, tol=1e-13, max_iter=100_000, **kw),
}
RATIOS = {"lasso": 1.0, "net": 0.4}


def data(n=80, p=6, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.4 * rng.normal(size=(p, p))) + 5.0
    y = X @ np.where(np.arange(p) % 2, 1.5, 0.0) + 2.0 * rng.normal(size=n) + 3.0
    weights = rng.integers(0, 4, n).astype(float) if weighted else None
    return X, y, weights


def sums_of(X, y, weights, fit_intercept):
    sums = RowSums.of(Block(X, y, weights))
    return sums if fit_intercept else sums.about_zero()


def path_of(kind, sums, alphas=ALPHAS):
    return ridge_path(Spectrum.of(sums), alphas) if kind == "ridge" else net_path(sums, alphas, RATIOS[kind])


def left_out_by_refits(kind, alpha, X, y, weights, fit_intercept):
    held = np.ones(len(y)) if weights is None else weights
    found = np.empty(len(y))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        model = REFITS[kind](alpha, fit_intercept=fit_intercept)
        found[i] = model.fit(X[rest], y[rest], sample_weight=held[rest]).predict(X[[i]])[0]
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_do_not_depend_on_how_rows_are_cut(weighted):
    X, y, weights = data(weighted=weighted)
    w = np.ones(len(y)) if weights is None else weights
    cuts = [slice(0, 1), slice(1, 30), slice(30, 31), slice(31, 80)]
    parts = [RowSums.of(Block(X[c], y[c], None if weights is None else weights[c])) for c in cuts]
    for total in (
        reduce(add, parts),
        parts[0] + (parts[1] + (parts[2] + parts[3])),
        RowSums.of(Block(X, y, w)),
    ):
        Z, r = X - np.average(X, axis=0, weights=w), y - np.average(y, weights=w)
        np.testing.assert_allclose(total.gram, (Z.T * w) @ Z, rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(total.cross[:, 0], (Z.T * w) @ r, rtol=1e-11, atol=1e-10)
        np.testing.assert_allclose(total.squares, w @ r**2, rtol=1e-12)
        assert total.count == np.count_nonzero(w)
        np.testing.assert_allclose(total.about_zero().gram, (X.T * w) @ X, rtol=1e-11)
        np.testing.assert_allclose(total.about_zero().cross[:, 0], (X.T * w) @ y, rtol=1e-11)


def test_columns_far_from_zero_lose_no_digits_in_sums():
    X, y, _ = data()
    parts = [RowSums.of(Block(X[c] + 1e7, y[c] - 1e7)) for c in (slice(0, 40), slice(40, 80))]
    plain = RowSums.of(Block(X, y))
    np.testing.assert_allclose((parts[0] + parts[1]).gram, plain.gram, rtol=1e-7)
    np.testing.assert_allclose((parts[0] + parts[1]).cross, plain.cross, rtol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["ridge", "lasso", "net"])
def test_left_out_predictions_are_those_of_refits_within_their_bounds(kind, weighted, fit_intercept):
    X, y, weights = data(weighted=weighted)
    sums = sums_of(X, y, weights, fit_intercept)
    path = replace(path_of(kind, sums), single=False)
    residuals, _ = path.left_out_residuals(Block(X, y, weights))
    unequal = kind == "net" and weighted  # shares of the ℓ2 part
    for j in (0, 3, 5):
        ratio = RATIOS.get(kind, 0.0)
        total = ALPHAS[j] * (1.0 if kind == "ridge" else sums.weight)
        chosen = ChosenStrength.of_squares(
            sums, path.coefs[:, j], ratio * total, (1.0 - ratio) * total, mean_scaled=kind != "ridge"
        )
        values = chosen.left_out(Block(X, y, weights))
        truth = left_out_by_refits(kind, ALPHAS[j], X, y, weights, fit_intercept)
        held = np.ones(len(y), dtype=bool) if weights is None else weights > 0
        if kind == "ridge" or unequal:
            np.testing.assert_allclose(values.left_out[held], (y - residuals[j])[held], atol=1e-9)
        off = np.abs(values.left_out - truth)
        assert np.all(off <= values.bounds + 1e-7)
        if not unequal:
            np.testing.assert_allclose(values.left_out, truth, atol=1e-7)
            assert np.all(values.bounds < 1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("ratio", "n", "p"), [(1.0, 40, 12), (1.0, 26, 24), (0.5, 40, 12)])
def test_rows_whose_pattern_changes_are_solved_at_every_strength(ratio, n, p, weighted, fit_intercept):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.3 * rng.normal(size=(p, p))) + 2.0
    y = X[:, :3] @ [1.0, -1.0, 0.5] + 2.0 * rng.normal(size=n)
    weights = rng.uniform(0.3, 3.0, n) if weighted else None
    sums = sums_of(X, y, weights, fit_intercept)
    alphas = np.abs(sums.cross).max() / sums.weight / ratio * np.geomspace(1.0, 1e-3, 12)
    plain = net_path(sums, alphas, ratio)
    exactly = solved_anew(plain, sums, alphas, ratio, np.arange(1, 12))
    shares_differ = ratio < 1 and weighted  # of the ℓ2 part
    assert exactly.is_exact is not shares_differ
    path = plain.anew([exactly])
    judged = ArrayRows(X, y, weights).total(path.judge)
    assert not judged.exact[0]
    assert np.all(judged.exact[1:] == exactly.is_exact)
    w = np.ones(n) if weights is None else weights
    for j in (2, 5, 8, 10):
        truth = np.empty(n)
        for i in range(n):
            rest = np.arange(n) != i
            model = ElasticNet(
                alphas[j], l1_ratio=ratio, fit_intercept=fit_intercept, tol=1e-13, max_iter=10**6
            )
            truth[i] = model.fit(X[rest], y[rest], sample_weight=w[rest]).predict(X[[i]])[0]
        np.testing.assert_allclose(
            judged.risks[j], w @ (y - truth) ** 2 / w.sum(), rtol=1e-2 if shares_differ else 1e-6
        )
        support = np.count_nonzero(path.coefs[:, j])
        formula = ArrayRows(X, y, weights).total(plain.judge).risks[j]
        assert support == 0 or formula != pytest.approx(judged.risks[j], rel=1e-9) or j < 5


@pytest.mark.parametrize("kind", ["ridge", "lasso", "net"])
def test_coefficients_are_those_of_fits(kind):
    X, y, weights = data(weighted=True)
    path = path_of(kind, sums_of(X, y, weights, True))
    for j, alpha in enumerate(ALPHAS):
        model = REFITS[kind](alpha).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(path.coefs[:, j], model.coef_, atol=1e-8)
        np.testing.assert_allclose(path.intercepts[j], model.intercept_, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["ridge", "lasso", "net"])
def test_sums_of_losses_are_those_of_the_rows(kind, weighted):
    X, y, weights = data(n=900, p=9, weighted=weighted)
    path = replace(path_of(kind, sums_of(X, y, weights, True)), single=False)
    losses = path.left_out_residuals(Block(X, y, weights))[0].T ** 2
    w = np.ones(len(y)) if weights is None else weights
    rows = ArrayRows(X, y, weights)
    for total in (rows.total(path.judge), ArrayRows(X, y, weights, n_jobs=2).total(path.judge)):
        expected = np.array([mean_and_error(column, w) for column in losses.T]).T
        np.testing.assert_allclose([total.risks, total.std_errors], expected, rtol=1e-10)
        for best in (0, 4):
            np.testing.assert_allclose(
                total.paired_errors(best), paired_errors(losses, w, best), rtol=1e-7, atol=1e-10
            )
            covariance = covariance_of_means(losses - losses[:, [best]], w)
            np.testing.assert_allclose(total.covariance(best), covariance, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", ["ridge", "lasso", "net"])
def test_single_precision_moves_no_risk(kind):
    X, y, _ = data(n=3000, p=9)
    path = path_of(kind, sums_of(X, y, None, True))
    assert path.single
    rows = ArrayRows(X, y)
    single, double = rows.total(path.judge), rows.total(replace(path, single=False).judge)
    np.testing.assert_allclose(single.risks, double.risks, rtol=1e-7)
    np.testing.assert_allclose(single.std_errors, double.std_errors, rtol=1e-6)


def test_risks_far_smaller_than_the_response_are_right():
    X, y, _ = data(n=3000, p=9)
    fitted = X @ np.linalg.lstsq(X, y)[0]
    y = fitted + 1e-6 * np.random.default_rng(1).normal(size=len(y))
    sums = sums_of(X, y, None, True)
    path = net_path(sums, np.array([1.0, 1e-7, 1e-9]))
    risks = ArrayRows(X, y).total(path.judge).risks
    truth = ArrayRows(X, y).total(replace(path, single=False).judge).risks
    np.testing.assert_allclose(risks, truth, rtol=1e-6)
    assert truth[-1] < 2e-12


def test_many_strengths_share_directions():
    X, y, _ = data(n=600, p=12, seed=3)
    alphas = np.geomspace(3.0, 1e-3, 60)
    sums = sums_of(X, y, None, True)
    for ratio in (1.0, 0.9, 0.2):
        path = replace(net_path(sums, alphas, ratio), single=False)
        assert sum(part.directions.shape[1] for part in path.leverages) < 12 * 60 / 3
        Z = X - X.mean(axis=0)
        slack = path._slack(Z.T[path._order], np.ones(len(y)))
        for j in (0, 7, 20, 41, 59):
            S = np.flatnonzero(path.coefs[:, j])
            K = Z[:, S].T @ Z[:, S] + len(y) * (1 - ratio) * alphas[j] * (1 - 1 / len(y)) * np.eye(len(S))
            h = np.einsum("ij,ji->i", Z[:, S], np.linalg.solve(K, Z[:, S].T)) + 1 / len(y)
            np.testing.assert_allclose(slack[j], 1.0 - h, atol=1e-10)


@pytest.mark.costly
@pytest.mark.parametrize("model", [onefit.LassoLOO(), onefit.ElasticNetLOO(l1_ratio=[0.3, 0.9])])
@pytest.mark.parametrize("case", ["plain", "weights", "no intercept", "sparse"])
def test_estimators_find_the_same_in_blocks(monkeypatch, model, case):
    X, y, _ = data(n=2000, p=10, seed=1)
    weights = np.random.default_rng(2).integers(0, 3, len(y)).astype(float) if case == "weights" else None
    X = sp.csr_array(np.where(np.abs(X - 5.0) > 0.7, X - 5.0, 0.0)) if case == "sparse" else X
    model = model.set_params(alphas=30, fit_intercept=case != "no intercept", early_stopping=False)
    found = {}
    for tall in (False, True):
        monkeypatch.setattr("onefit.estimators.self_tuned.goes_in_passes", lambda *_, tall=tall: tall)
        fitted = model.fit(X, y, sample_weight=weights)
        found[tall] = dict(vars(fitted))
    whole, blocks = found[False], found[True]
    are_as_good = (
        abs(blocks["loo_"].value - whole["loo_"].value) < 0.1 * whole["loo_"].std_error
    )  # as well as risks of a path are known
    if not np.isclose(blocks.get("l1_ratio_", 1.0), whole.get("l1_ratio_", 1.0)):
        assert are_as_good
        return
    J = min(len(blocks["alphas_"]), len(whole["alphas_"]))
    np.testing.assert_allclose(blocks["coef_path_"][:J], whole["coef_path_"][:J], atol=1e-9)
    np.testing.assert_allclose(blocks["intercept_path_"][:J], whole["intercept_path_"][:J], atol=1e-8)
    apart = np.abs(blocks["risk_path_"][:J] - whole["risk_path_"][:J])
    stated = blocks["approx_error_path_"][:J] + whole["approx_error_path_"][:J]  # infinite where one is rough
    off = apart / whole["risk_path_"][:J]
    assert np.all(apart <= stated + 1e-6 * whole["risk_path_"][:J])
    assert off.max() < 1e-2  # of what few rows tell
    assert np.median(off) < 2e-3  # where one solves rows anew, the other only if they may change the choice
    steps = np.log(blocks["alpha_"] / whole["alpha_"]) / np.log(whole["alphas_"][0] / whole["alphas_"][1])
    assert are_as_good or abs(steps) <= 1.1
    exact = onefit.loo(fitted, X, y, sample_weight=weights, exact=True)
    assert abs(blocks["loo_"].value - exact.value) <= blocks["loo_"].approx_error + 1e-7
    assert np.all(np.abs(blocks["loo_"].predictions - exact.predictions) <= blocks["loo_"].bounds + 1e-6)


def test_values_of_blocks_are_joined_in_order():
    X, y, _ = data(n=3000, p=500, seed=5)
    sums = sums_of(X, y, None, True)
    path = net_path(sums, np.array([0.5]))
    chosen = ChosenStrength.of_squares(sums, path.coefs[:, 0], 0.5 * 3000, 0.0, mean_scaled=True)
    whole = RowValues.joined(list(ArrayRows(X, y).each(chosen.left_out)))
    np.testing.assert_allclose(whole.fitted, X @ path.coefs[:, 0] + path.intercepts[0])


@pytest.mark.parametrize("l2", [0.0, 3.0])
def test_rows_whose_pattern_changes_are_within_their_bounds_before_they_are_solved(l2):
    X, y, _ = data(n=60, p=12, seed=7)
    sums = sums_of(X, y, None, True)
    path = net_path(sums, np.array([(5.0 + l2) / sums.weight]), 5.0 / (5.0 + l2))
    chosen = ChosenStrength.of_squares(sums, path.coefs[:, 0], 5.0, l2, mean_scaled=True)
    solved = chosen.left_out(Block(X, y))
    stepped = replace(chosen, patterns=None).left_out(Block(X, y))
    off = np.abs(stepped.left_out - solved.left_out)
    assert off.max() > 1e-6
    assert np.all(off <= stepped.bounds + 1e-9)


@pytest.mark.parametrize(
    ("columns", "y"),
    [
        # without the fourth row the second column is the first less one, and both are inside
        ([[1, 1, 2, 0, 2, 2], [0, 0, 1, 0, 1, 1]], [3.0, 3.0, 10.5, 0.0, 10.5, 10.5]),
        # without the first the third column is two less the first, and reaches its bound with it
        ([[1, 0, 0, 1], [1, 0, 2, 2], [0, 2, 2, 1]], [-2.0, -3.0, -8.0, -4.0]),
        # copies, of which a fit takes one: no row tells them apart
        ([[1, 0, 3, 1, 2], [1, 0, 3, 1, 2]], [-2.0, -3.0, 5.0, -4.0, 1.0]),
    ],
)
def test_refits_with_several_optima_are_within_their_bounds(columns, y):
    X, y, alpha = np.array(columns, dtype=float).T, np.array(y), 0.06
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)
        found = onefit.LassoLOO(alphas=[alpha]).fit(X, y).loo_
    for i in range(len(y)):
        own = np.arange(len(y)) != i
        orders = (np.arange(X.shape[1]), np.arange(X.shape[1])[::-1])  # coordinate descent ends at several
        fits = [Lasso(alpha, tol=1e-14, max_iter=100_000).fit(X[own][:, order], y[own]) for order in orders]
        left_out = [fit.predict(X[[i]][:, order])[0] for fit, order in zip(fits, orders, strict=True)]
        assert np.all(np.abs(left_out - found.predictions[i]) <= found.bounds[i] + 1e-8)


def test_rows_of_a_block_may_lie_far_from_those_before():
    rng = np.random.default_rng(0)
    X = 1e6 + np.sort(rng.normal(size=(9000, 3)), axis=0) + np.repeat([0.0, 50.0, 100.0], 3000)[:, None]
    y, weights = X[:, 0] - X[:, 2] + rng.normal(size=9000), rng.uniform(size=9000)
    weights[:2000] = 0.0
    found = RowSums.of(Block(X, y, weights))
    means = np.average(X, axis=0, weights=weights)
    Z, t = X - means, y - np.average(y, weights=weights)
    np.testing.assert_allclose(found.means, means, rtol=1e-14)
    np.testing.assert_allclose(found.gram, Z.T @ (weights[:, None] * Z), rtol=1e-11)
    np.testing.assert_allclose(found.cross[:, 0], Z.T @ (weights * t), rtol=1e-9, atol=1e-5)
    assert found.squares[0] == pytest.approx(weights @ t**2, rel=1e-9)


def test_an_empty_block_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        RowSums.of(Block(np.zeros((0, 3)), np.zeros(0)))

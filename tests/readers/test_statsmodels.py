"""Results of statsmodels against refits by statsmodels; skipped where it is not installed."""

from __future__ import annotations

import numpy as np
import pytest

import onefit
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.testing import check_reader

sm = pytest.importorskip("statsmodels.api")
RegularizedResults = pytest.importorskip("statsmodels.base.elastic_net").RegularizedResults

N, P = 40, 5


def _sample():
    rng = np.random.default_rng(0)
    X = sm.add_constant(rng.normal(size=(N, P)))
    eta = X @ [1.0, 1.0, -0.5, 0.3, 0.0, 0.0]
    return X, {
        "numbers": eta + rng.normal(size=N),
        "zero or one": (eta - 1.0 + rng.logistic(size=N) > 0).astype(float),
        "shares": rng.binomial(7, 1.0 / (1.0 + np.exp(1.0 - eta))) / 7.0,
        "counts": rng.poisson(np.exp(eta / 2)).astype(float),
        "positive": np.exp(eta / 3) * rng.gamma(3, 1 / 3, size=N),
    }


X, RESPONSES = _sample()
WEIGHTS = np.linspace(0.3, 2.0, N)
FREE_CONSTANT = np.array([0.0, *[0.1] * P])
FAMILIES = {
    "Gaussian": (sm.families.Gaussian(), "numbers"),
    "Gaussian, log": (sm.families.Gaussian(sm.families.links.Log()), "positive"),
    "Binomial": (sm.families.Binomial(), "zero or one"),
    "Binomial of shares": (sm.families.Binomial(), "shares"),
    "Poisson": (sm.families.Poisson(), "counts"),
    "Gamma": (sm.families.Gamma(sm.families.links.Log()), "positive"),
    "Tweedie": (sm.families.Tweedie(sm.families.links.Log(), 1.5), "positive"),
}
PENALTIES = {
    "lasso": {"alpha": 0.1},
    "elastic net": {"alpha": 0.1, "L1_wt": 0.4},
    "ridge": {"alpha": 0.2, "L1_wt": 0.0},
    "elastic net, free constant": {"alpha": FREE_CONSTANT, "L1_wt": 0.4},
    "ridge, free constant": {"alpha": FREE_CONSTANT, "L1_wt": 0.0},
}
PROBIT = sm.families.Binomial(sm.families.links.Probit())
OF_GLM = ["lasso", "elastic net", "elastic net, free constant"]


def _least_squares(X, y, weights):
    return sm.OLS(y, X) if weights is None else sm.WLS(y, X, weights=weights)


def _of_family(family):
    return lambda X, y, weights: sm.GLM(y, X, family=family, var_weights=weights)


def _fitted(make, X, y, weights, penalty):
    """Results, with the penalty that they do not keep told to them."""
    model = make(X, y, weights)
    if not penalty:
        return model.fit(**({"tol": 1e-13, "maxiter": 1000} if isinstance(model, sm.GLM) else {}))
    ridge = penalty.get("L1_wt", 1.0) == 0
    results = model.fit_regularized(**penalty, **({} if ridge else {"maxiter": 10_000, "zero_tol": 0.0}))
    for name, value in penalty.items():
        setattr(results, name, value)
    return results


def _check(make, y, weights=None, penalty=None, tol=1e-6):
    results = _fitted(make, X, y, weights, penalty)
    found = onefit.loo(results, X, y, weights, exact=True, audit=3, rng=0)
    rows, wanted = np.arange(0, N, 3), np.empty(N)
    for i in rows:
        kept = np.arange(N) != i
        refit = _fitted(make, X[kept], y[kept], None if weights is None else weights[kept], penalty)
        wanted[i] = make(X, y, weights).predict(refit.params, X[[i]])[0]
    np.testing.assert_allclose(found.predictions[rows], wanted[rows], rtol=0, atol=tol * np.abs(y).max())
    assert found.audit.value == pytest.approx(found.value, rel=tol)
    assert onefit.loo(results, X, y, weights).value == pytest.approx(found.value, rel=0.1)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["OLS", "WLS"])
@pytest.mark.parametrize("penalty", [None, *PENALTIES])
def test_least_squares(penalty, weights):
    _check(_least_squares, RESPONSES["numbers"], weights, PENALTIES.get(penalty))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("name", FAMILIES)
def test_generalised_linear_models(name, weights):
    family, kind = FAMILIES[name]
    _check(_of_family(family), RESPONSES[kind], weights)


@pytest.mark.costly
@pytest.mark.parametrize("penalty", OF_GLM)
@pytest.mark.parametrize("name", ["Gaussian", "Binomial", "Poisson", "Gamma"])
def test_penalised_generalised_linear_models(name, penalty):
    family, kind = FAMILIES[name]
    _check(_of_family(family), RESPONSES[kind], None, PENALTIES[penalty], tol=1e-5)


@pytest.mark.parametrize("name", ["Binomial", "Poisson"])
def test_ridge_of_families_without_a_dispersion(name):
    family, kind = FAMILIES[name]
    _check(_of_family(family), RESPONSES[kind], None, PENALTIES["ridge"], tol=1e-4)


def test_frequencies_leave_with_their_row():
    y, times = RESPONSES["counts"], np.tile([1.0, 2.0], N // 2)
    results = sm.GLM(y, X, family=sm.families.Poisson(), freq_weights=times).fit()
    found = onefit.loo(results, X, y, times, exact=True)
    kept = np.arange(N) != 1
    refit = sm.GLM(y[kept], X[kept], family=sm.families.Poisson(), freq_weights=times[kept]).fit()
    assert found.predictions[1] == pytest.approx(refit.predict(X[[1]])[0], rel=1e-6)


def test_leave_one_out_of_least_squares_is_press():
    y = RESPONSES["numbers"]
    results = sm.OLS(y, X).fit()
    found = onefit.loo(results, X, y)
    np.testing.assert_allclose(y - found.predictions, results.get_influence().resid_press)


def test_influence_on_least_squares():
    y = RESPONSES["numbers"].copy()
    y[7] += 10.0
    results = sm.OLS(y, X).fit()
    found, wanted = onefit.loo(results, X, y).influence(), results.get_influence()
    np.testing.assert_allclose(found.cooks_distance, wanted.cooks_distance[0])
    np.testing.assert_allclose(found.dfbetas, wanted.dfbetas)
    assert np.abs(found.dfbetas[7]).max() > 1.0


def test_tables_and_formulas_are_read():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X[:, 1:], columns=list("abcde")).assign(y=RESPONSES["numbers"])
    results = sm.OLS.from_formula("y ~ a + b + c + d + e", table).fit()
    plain = onefit.loo(sm.OLS(table["y"].to_numpy(), X).fit(), X, table["y"].to_numpy())
    found = onefit.loo(results, results.model.exog, results.model.endog)
    np.testing.assert_allclose(found.predictions, plain.predictions)
    assert found.coef_table().names == ("Intercept", *"abcde")
    design = pandas.DataFrame(X, columns=["const", *"abcde"], index=range(100, 100 + N))
    found = onefit.loo(sm.OLS(RESPONSES["numbers"], design).fit(), design, RESPONSES["numbers"])
    np.testing.assert_allclose(found.predictions, plain.predictions)
    assert found.labels[0] == 100
    assert found.coef_table().names == ("const", *"abcde")


def test_the_readers_pass_the_checks_of_readers():
    check_reader(sm.OLS(RESPONSES["numbers"], X).fit(), X, RESPONSES["numbers"])
    counts = RESPONSES["counts"]
    poisson = sm.GLM(counts, X, family=sm.families.Poisson(), var_weights=WEIGHTS).fit(tol=1e-12)
    check_reader(poisson, X, counts, WEIGHTS)
    lasso = _fitted(_least_squares, X, RESPONSES["numbers"], None, PENALTIES["lasso"])
    check_reader(lasso, X, RESPONSES["numbers"])


# --- what is refused ---------------------------------------------------------------------------------


def test_a_penalty_that_was_not_told():
    y = RESPONSES["numbers"]
    with pytest.raises(UnsupportedModelError, match=r"write results\.alpha"):
        onefit.loo(sm.OLS(y, X).fit_regularized(alpha=0.1), X, y)


def test_a_penalty_that_was_told_wrong():
    y = RESPONSES["numbers"]
    results = sm.OLS(y, X).fit_regularized(alpha=0.1)
    results.alpha = 1.0
    with pytest.raises(NotFittedToDataError):
        onefit.loo(results, X, y)


def test_columns_without_the_constant():
    y = RESPONSES["numbers"]
    with pytest.raises(NotFittedToDataError, match=r"pass results\.model\.exog"):
        onefit.loo(sm.OLS(y, X).fit(), X[:, 1:], y)


def test_weights_must_be_those_of_the_model():
    y = RESPONSES["numbers"]
    with pytest.raises(ValueError, match=r"results\.model\.weights"):
        onefit.loo(sm.WLS(y, X, weights=WEIGHTS).fit(), X, y)
    with pytest.raises(ValueError, match=r"results\.model\.weights"):
        onefit.loo(sm.OLS(y, X).fit(), X, y, WEIGHTS)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda y: sm.GLS(y, X).fit(), "supported are OLS, WLS, GLM"),
        (lambda y: sm.GLM(y, X, family=sm.families.Poisson(), offset=np.ones(N)).fit(), "offset"),
        (lambda y: sm.GLM(y, X, family=sm.families.NegativeBinomial(alpha=1.0)).fit(), "NegativeBinomial"),
        (
            lambda y: sm.GLM(np.stack([y, y + 1], axis=1), X, family=sm.families.Binomial()).fit(),
            "var_weights",
        ),
        (lambda y: sm.Logit((y > 1).astype(float), X).fit(disp=0), "no leave-one-out formula"),
        (lambda y: sm.RLM(y, X).fit(), "no leave-one-out formula"),
        (lambda y: sm.GLM((y > 1).astype(float), X, family=PROBIT).fit(), "link Probit"),
        (lambda y: sm.OLS(y, X).fit_regularized(alpha=0.1), "do not keep its penalty"),
    ],
    ids=[
        "GLS",
        "offset",
        "negative binomial",
        "successes and failures",
        "Logit",
        "RLM",
        "probit",
        "no alpha",
    ],
)
@pytest.mark.parametrize("refits", [{}, {"audit": 5}, {"exact": True}], ids=["formula", "audit", "exact"])
def test_other_models_say_why(make, why, refits):
    """And nothing can clone them, so that no refits are offered, nor asked for in vain."""
    y = RESPONSES["counts"]
    with pytest.raises(UnsupportedModelError, match=why) as refusal:
        onefit.loo(make(y), X, y, **refits)
    assert "refit" not in str(refusal.value).replace("fit_regularized", "")


def test_ridge_with_an_estimated_dispersion():
    y = RESPONSES["positive"]
    model = sm.GLM(y, X, family=sm.families.Gamma(sm.families.links.Log()))
    results = RegularizedResults(model, np.zeros(P + 1))
    results.alpha, results.L1_wt = 0.1, 0.0
    with pytest.raises(UnsupportedModelError, match="dispersion"):
        onefit.loo(results, X, y)


def test_models_that_were_not_fitted():
    y = RESPONSES["numbers"]
    with pytest.raises(TypeError, match="fitted"):
        onefit.loo(sm.OLS(y, X), X, y)


@pytest.mark.filterwarnings("ignore:The Identity link function")
@pytest.mark.parametrize("seed", range(3))
def test_linear_means_of_counts(seed):
    """The constant is a column, and without coefficients the mean is zero: outside of the family."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(40), rng.uniform(0.0, 1.0, size=(40, 2))])
    y = rng.poisson(X @ [2.0, 1.5, 1.0]).astype(float)
    family = sm.families.Poisson(sm.families.links.Identity())
    results = sm.GLM(y, X, family).fit(tol=1e-13, maxiter=500)
    est = onefit.loo(results, X, y, exact=True)
    kept = [np.delete(np.arange(40), i) for i in range(40)]
    refits = [sm.GLM(y[rows], X[rows], family).fit(tol=1e-13, maxiter=500).params for rows in kept]
    expected = np.einsum("ij,ij->i", X, np.array(refits))
    np.testing.assert_allclose(est.predictions, expected, rtol=1e-4)
    assert est.guarantee == "exact"

"""Estimators of other libraries against refits by those libraries; skipped where one is not installed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError

N, P = 40, 10
GROUPS = [[0, 4, 5], [1, 2, 3], [6, 7], [8, 9]]
STARTS, SIZES = np.array([0, 3, 6, 8]), np.array([3, 3, 2, 2])


def _sample():
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.normal(size=(N, P)))
    eta = X[:, :3] @ [1.0, 2.0, -1.0]
    return X, {
        "numbers": eta + 1.0 + rng.normal(size=N),
        "classes": np.array(["no", "yes"])[(eta + rng.normal(size=N) > 0).astype(int)],
        "zero or one": (eta + rng.normal(size=N) > 0).astype(float),
        "counts": rng.poisson(np.exp(eta / 3)).astype(float),
        "positive": np.exp(eta / 3) * rng.gamma(3, 1 / 3, size=N),
    }


X, RESPONSES = _sample()
FACTORS = np.linspace(0.5, 2.0, P)
WEIGHTS = np.linspace(0.3, 2.0, N)
OF_GROUPS = np.array([1.0, 0.5, 2.0, 1.0])
MEANS = {"classes": expit, "zero or one": expit, "counts": np.exp, "positive": np.exp}


def _any_skglm(datafit, penalty, solver="AndersonCD", **params):
    """A GeneralizedLinearEstimator; of datafit and penalty, name and arguments."""
    skglm = pytest.importorskip("skglm")
    from skglm import datafits, penalties, solvers

    settings = {"tol": 1e-9, "max_iter": 100_000 if solver == "FISTA" else 500} | params
    return skglm.GeneralizedLinearEstimator(
        getattr(datafits, datafit[0])(*datafit[1:]),
        getattr(penalties, penalty[0])(*penalty[1:]),
        getattr(solvers, solver)(**settings),
    )


def _grouped():
    return np.cumsum([0, *SIZES], dtype=np.int32), np.concatenate(GROUPS).astype(np.int32)


def _of(library, name, *args, **params):
    """Make an unfitted estimator, once its library is known to be there."""

    def make():
        return getattr(pytest.importorskip(library), name)(*args, **params)

    return make


def _glum(**params):
    tight = {"gradient_tol": 1e-8, "max_iter": 1000}
    return _of("glum", "GeneralizedLinearRegressor", **tight, **params)


TIGHT = {"tol": 1e-10}
OF_SKGLM = {
    "Lasso": (_of("skglm", "Lasso", 0.1, **TIGHT), "numbers"),
    "Lasso, no intercept": (_of("skglm", "Lasso", 0.1, fit_intercept=False, **TIGHT), "numbers"),
    "Lasso, positive": (_of("skglm", "Lasso", 0.05, positive=True, **TIGHT), "numbers"),
    "WeightedLasso": (_of("skglm", "WeightedLasso", 0.1, FACTORS, **TIGHT), "numbers"),
    "ElasticNet": (_of("skglm", "ElasticNet", 0.1, 0.6, **TIGHT), "numbers"),
}
SLOW_OF_SKGLM = {  # numba compiles each for many seconds
    "GroupLasso": (_of("skglm", "GroupLasso", GROUPS, 0.1, OF_GROUPS, **TIGHT), "numbers"),
    "GroupLasso, groups of one size": (_of("skglm", "GroupLasso", 2, 0.1, **TIGHT), "numbers"),
    "GroupLasso, sizes": (_of("skglm", "GroupLasso", [3, 3, 2, 2], 0.1, **TIGHT), "numbers"),
    "LinearSVC": (_of("skglm", "LinearSVC", 0.5, tol=1e-10, max_iter=500), "classes"),
    "SparseLogisticRegression": (
        _of("skglm", "SparseLogisticRegression", 0.03, 0.7, tol=1e-9, max_iter=200),
        "classes",
    ),
    "Huber, L1": (lambda: _any_skglm(("Huber", 1.0), ("L1", 0.05)), "numbers"),
    "Logistic, L1": (lambda: _any_skglm(("Logistic",), ("L1", 0.03), "ProxNewton"), "classes"),
    "Poisson, L1_plus_L2": (
        lambda: _any_skglm(("Poisson",), ("L1_plus_L2", 0.05, 0.5), "ProxNewton"),
        "counts",
    ),
    "Gamma, WeightedL1": (
        lambda: _any_skglm(("Gamma",), ("WeightedL1", 0.05, FACTORS), "ProxNewton", fit_intercept=False),
        "positive",
    ),
    "Quadratic, SLOPE": (
        lambda: _any_skglm(
            ("Quadratic",), ("SLOPE", np.linspace(0.3, 0.05, P)), "FISTA", opt_strategy="fixpoint"
        ),
        "numbers",
    ),
    "Quadratic, PositiveConstraint": (
        lambda: _any_skglm(("Quadratic",), ("PositiveConstraint",)),
        "numbers",
    ),
    "Logistic, WeightedGroupL2": (
        lambda: _any_skglm(
            ("LogisticGroup", *_grouped()),
            ("WeightedGroupL2", 0.03, OF_GROUPS, *_grouped()),
            "GroupProxNewton",
            fit_intercept=True,
        ),
        "classes",
    ),
    "Quadratic, WeightedL1GroupL2": (
        lambda: _any_skglm(
            ("QuadraticGroup", *_grouped()),
            ("WeightedL1GroupL2", 0.1, OF_GROUPS, np.full(P, 0.7), *_grouped()),
            "GroupBCD",
            ws_strategy="fixpoint",
        ),
        "numbers",
    ),
}
TIGHTER = {"tol": 1e-13}
OF_CELER = {
    "Lasso": (_of("celer", "Lasso", 0.1, **TIGHTER), "numbers"),
    "Lasso, positive": (_of("celer", "Lasso", 0.1, positive=True, **TIGHTER), "numbers"),
    "Lasso, weights": (_of("celer", "Lasso", 0.1, weights=FACTORS, **TIGHTER), "numbers"),
    "ElasticNet, weights": (
        _of("celer", "ElasticNet", 0.1, l1_ratio=0.5, weights=FACTORS, **TIGHTER),
        "numbers",
    ),
    "GroupLasso": (_of("celer", "GroupLasso", GROUPS, 0.1, weights=OF_GROUPS, **TIGHTER), "numbers"),
    "GroupLasso, no intercept": (
        _of("celer", "GroupLasso", 2, 0.1, fit_intercept=False, **TIGHTER),
        "numbers",
    ),
    "LogisticRegression": (_of("celer", "LogisticRegression", 1.0, **TIGHTER), "classes"),
}
OF_GLUM = {
    "normal": (_glum(alpha=0.1), "numbers"),
    "normal, no penalty": (_glum(), "numbers"),
    "normal, no intercept": (_glum(alpha=0.1, l1_ratio=0.5, fit_intercept=False), "numbers"),
    "normal, P1 and P2": (_glum(alpha=0.1, l1_ratio=0.5, P1=FACTORS, P2=FACTORS[::-1].copy()), "numbers"),
    "normal, bounds": (
        _glum(alpha=0.05, l1_ratio=0.5, lower_bounds=np.full(P, -0.3), upper_bounds=np.full(P, 0.9)),
        "numbers",
    ),
    "normal, log": (_glum(alpha=0.1, link="log"), "positive"),
    "poisson": (_glum(alpha=0.05, l1_ratio=0.5, family="poisson"), "counts"),
    "gamma": (_glum(alpha=0.05, family="gamma"), "positive"),
    "inverse.gaussian": (_glum(alpha=0.05, family="inverse.gaussian"), "positive"),
    "tweedie": (_glum(alpha=0.05, family="tweedie (1.7)"), "counts"),
    "binomial": (_glum(alpha=0.02, l1_ratio=0.7, family="binomial"), "zero or one"),
}
OF_ADELIE = {  # family, response, arguments of fit
    "lasso": ("gaussian", "numbers", {"lmda_path": [0.1]}),
    "lasso, no intercept": ("gaussian", "numbers", {"lmda_path": [0.1], "intercept": False}),
    "group elastic net": ("gaussian", "numbers", {"lmda_path": [0.1], "groups": STARTS, "alpha": 0.6}),
    "group penalties": ("gaussian", "numbers", {"lmda_path": [0.1], "groups": STARTS, "penalty": OF_GROUPS}),
    "ridge": ("gaussian", "numbers", {"lmda_path": [0.1], "groups": STARTS, "alpha": 0.0}),
    "binomial": ("binomial", "zero or one", {"lmda_path": [0.03], "groups": STARTS, "irls_tol": 1e-13}),
    "poisson": ("poisson", "counts", {"lmda_path": [0.03], "groups": STARTS, "irls_tol": 1e-13}),
}
OF_SORTEDL1 = {
    "quadratic": (_of("sortedl1", "Slope", alpha=0.03, **TIGHT), "numbers"),
    "quadratic, no intercept": (
        _of("sortedl1", "Slope", alpha=0.03, lambda_type="oscar", fit_intercept=False, **TIGHT),
        "numbers",
    ),
    "quadratic, own sequence": (
        _of("sortedl1", "Slope", np.linspace(2.0, 0.1, P), 0.05, **TIGHT),
        "numbers",
    ),
    "logistic": (_of("sortedl1", "Slope", alpha=0.01, loss="logistic", **TIGHT), "zero or one"),
    "poisson": (_of("sortedl1", "Slope", alpha=0.02, loss="poisson", tol=1e-7, max_iter=1000), "counts"),
}


def _coefficients(model):
    coef = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_
    return np.ravel(coef), float(np.ravel(model.intercept_)[0])


def _refits(make, y, sample_weight=None, **given):
    """Linear predictors of refits by the library, each of a new estimator."""
    left_out = np.empty(N)
    for i in range(N):
        kept = np.arange(N) != i
        weights = {} if sample_weight is None else {"sample_weight": sample_weight[kept]}
        refit = make().fit(np.asfortranarray(X[kept]), y[kept], **weights, **given)
        coef, level = _coefficients(refit)
        left_out[i] = X[i] @ coef + level
    return left_out


def _check(make, kind, *, identity=False, sample_weight=None, **given):
    """Exact left-out predictions, the approximate risk, and the audit against refits by the library.

    Warnings are errors here: polishing takes what the library found for the optimum.
    """
    y = RESPONSES[kind]
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    model = make().fit(X, y, **weights, **given)
    assert np.any(_coefficients(model)[0])
    exact = onefit.loo(model, X, y, sample_weight, exact=True, audit=3, rng=0)
    eta = _refits(make, y, sample_weight, **given)
    wanted = eta if identity else MEANS.get(kind, np.asarray)(eta)
    found = exact.predictions[:, 1] if exact.predictions.ndim == 2 else exact.predictions
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    assert exact.audit.value == pytest.approx(exact.value, rel=1e-6)
    assert onefit.loo(model, X, y, sample_weight).value == pytest.approx(exact.value, rel=0.1)


@pytest.mark.costly
@pytest.mark.parametrize("name", OF_SKGLM)
def test_skglm(name):
    _check(*OF_SKGLM[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'@' is faster on contiguous arrays")  # numba's advice to skglm
@pytest.mark.parametrize("name", SLOW_OF_SKGLM)
def test_skglm_compiled_for_long(name):
    _check(*SLOW_OF_SKGLM[name], identity=name == "LinearSVC")


@pytest.mark.slow
def test_probabilities_are_those_of_the_likelihood():
    y = RESPONSES["classes"]
    model = SLOW_OF_SKGLM["SparseLogisticRegression"][0]().fit(X, y)
    eta = model.decision_function(X)
    result = onefit.loo(model, X, y)
    assert any("doubles the log-odds" in note for note in result.notes)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expit(2.0 * eta))  # what the note says


@pytest.mark.slow
def test_weights_in_the_datafit_of_skglm():
    def make(weights=WEIGHTS):
        return _any_skglm(("WeightedQuadratic", weights), ("L1", 0.05))

    y = RESPONSES["numbers"]
    model = make().fit(X, y)
    with pytest.raises(ValueError, match="the weights that it was fitted with"):
        onefit.loo(model, X, y)
    exact = onefit.loo(model, X, y, WEIGHTS, exact=True, audit=3, rng=0)
    for i in (0, 7, 31):
        kept = np.arange(N) != i
        refit = make(WEIGHTS[kept]).fit(X[kept], y[kept])
        assert exact.predictions[i] == pytest.approx(refit.predict(X[[i]])[0], rel=1e-6)
    assert exact.audit.value == pytest.approx(exact.value, rel=1e-6)


@pytest.mark.slow
def test_tuned_estimator_of_skglm_keeps_its_choice():
    skglm = pytest.importorskip("skglm")
    from skglm import datafits, penalties, solvers

    parts = datafits.Quadratic(), penalties.L1(1.0), solvers.AndersonCD(tol=1e-9)
    y = RESPONSES["numbers"]
    tuned = skglm.GeneralizedLinearEstimatorCV(*parts, alphas=[0.3, 0.1], cv=3, random_state=0).fit(X, y)
    chosen = skglm.Lasso(tuned.alpha_, tol=1e-10).fit(X, y)
    found, wanted = onefit.loo(tuned, X, y, exact=True, audit=3, rng=0), onefit.loo(chosen, X, y, exact=True)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-7)
    assert found.audit.value == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize("name", OF_CELER)
def test_celer(name):
    _check(*OF_CELER[name])


@pytest.mark.parametrize(
    ("name", "plain", "chosen"),
    [
        ("LassoCV", "Lasso", {"alpha": 0.1}),
        ("ElasticNetCV", "ElasticNet", {"alpha": 0.1, "l1_ratio": 0.5}),
        ("GroupLassoCV", "GroupLasso", {"alpha": 0.1}),
    ],
)
def test_tuned_estimators_of_celer_keep_their_choice(name, plain, chosen):
    """Some versions of scikit-learn do not let celer's CV classes be built: they are put together here."""
    celer, y = pytest.importorskip("celer"), RESPONSES["numbers"]
    groups = {"groups": 2} if plain == "GroupLasso" else {}
    fitted = getattr(celer, plain)(**chosen, **groups, **TIGHTER).fit(X, y)
    tuned = object.__new__(getattr(celer, name))
    defaults = {key: value.default for key, value in inspect.signature(type(tuned)).parameters.items()}
    values = {f"{key}_": value for key, value in chosen.items()}
    tuned.__dict__.update(defaults | groups | values)
    tuned.coef_, tuned.intercept_, tuned.n_iter_ = fitted.coef_, fitted.intercept_, fitted.n_iter_
    found = onefit.loo(tuned, X, y, exact=True, audit=3, rng=0)
    wanted = onefit.loo(fitted, X, y, exact=True)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-9)
    assert found.audit.value == pytest.approx(found.value, rel=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("name", OF_GLUM)
def test_glum(name):
    _check(*OF_GLUM[name])


@pytest.mark.parametrize("name", ["normal, P1 and P2", "poisson", "binomial"])
def test_glum_with_weights(name):
    _check(*OF_GLUM[name], sample_weight=WEIGHTS)


def test_tuned_estimator_of_glum_keeps_its_choice():
    glum = pytest.importorskip("glum")
    y = RESPONSES["counts"]
    given = {"family": "poisson", "gradient_tol": 1e-8}
    tuned = glum.GeneralizedLinearRegressorCV(alphas=[0.5, 0.05], l1_ratio=[0.5, 0.9], cv=3, **given).fit(
        X, y
    )
    chosen = glum.GeneralizedLinearRegressor(alpha=tuned.alpha_, l1_ratio=tuned.l1_ratio_, **given).fit(X, y)
    found, wanted = onefit.loo(tuned, X, y, audit=3, rng=0), onefit.loo(chosen, X, y, audit=3, rng=0)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-6)
    assert found.audit.value == pytest.approx(wanted.audit.value, rel=1e-6)


def _fitted_by_adelie(family, y, **given):
    estimators = pytest.importorskip("adelie.sklearn")
    settings = {"tol": 1e-14, "progress_bar": False} | given
    return estimators.GroupElasticNet(family=family).fit(X, y, **settings)


@pytest.mark.parametrize("name", OF_ADELIE)
def test_adelie(name):
    family, kind, given = OF_ADELIE[name]
    make = _of("adelie.sklearn", "GroupElasticNet", family=family)
    _check(make, kind, tol=1e-14, progress_bar=False, **given)


def test_strength_that_adelie_chose():
    estimators = pytest.importorskip("adelie.sklearn")
    y = RESPONSES["numbers"]
    tuned = estimators.GroupElasticNet("cv_grpnet").fit(X, y, tol=1e-13, progress_bar=False)
    chosen = _fitted_by_adelie("gaussian", y, lmda_path=tuned.lambda_)
    found, wanted = onefit.loo(tuned, X, y), onefit.loo(chosen, X, y)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-7)


@pytest.mark.costly
@pytest.mark.parametrize("name", OF_SORTEDL1)
def test_sortedl1(name):
    _check(*OF_SORTEDL1[name])


def test_sequence_that_depends_on_the_rows_is_held():
    sortedl1 = pytest.importorskip("sortedl1")
    y = RESPONSES["numbers"]
    model = sortedl1.Slope(alpha=0.03, lambda_type="gaussian", tol=1e-10).fit(X, y)
    held = sortedl1.Slope(model.lambda_, 0.03, tol=1e-10).fit(X, y)
    found = onefit.loo(model, X, y, exact=True)
    np.testing.assert_allclose(found.predictions, onefit.loo(held, X, y, exact=True).predictions, rtol=1e-7)
    assert any("held" in note for note in found.notes)


@pytest.mark.parametrize(
    ("library", "name", "params"),
    [("celer", "Lasso", {"alpha": 0.1, **TIGHTER}), ("sortedl1", "Slope", {"alpha": 0.03, **TIGHT})],
    ids=["celer", "sortedl1"],
)
def test_sparse_rows(library, name, params):
    make, y = _of(library, name, **params), RESPONSES["numbers"]
    thin = np.asfortranarray(np.where(np.abs(X) > 0.5, X, 0.0))
    dense, sparse = make().fit(thin, y), make().fit(sp.csc_array(thin), y)
    found = onefit.loo(sparse, sp.csc_array(thin), y, exact=True, audit=3, rng=0)
    wanted = onefit.loo(dense, thin, y, exact=True)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-7)
    assert found.audit.value == pytest.approx(found.value, rel=1e-6)


def test_at_the_end_of_a_pipeline():
    celer = pytest.importorskip("celer")
    y = RESPONSES["numbers"]
    scaled = np.asfortranarray(StandardScaler().fit_transform(X))
    pipeline = make_pipeline(StandardScaler(), celer.Lasso(0.1, tol=1e-12)).fit(X, y)
    alone = celer.Lasso(0.1, tol=1e-12).fit(scaled, y)
    np.testing.assert_allclose(
        onefit.loo(pipeline, X, y).predictions, onefit.loo(alone, scaled, y).predictions, rtol=1e-9
    )


# --- what is refused ---------------------------------------------------------------------------------


def _many(y):
    return np.where(y == "yes", np.where(np.arange(N) % 2, "more", "yes"), "no")


REFUSED = {
    "scaling": (_of("sortedl1", "Slope", alpha=0.03, scaling="sd"), "numbers", "StandardScaler"),
    "centering": (
        _of("sortedl1", "Slope", alpha=0.03, centering="mean", fit_intercept=False),
        "numbers",
        "centres",
    ),
    "scale_predictors": (_glum(alpha=0.1, scale_predictors=True), "numbers", "StandardScaler"),
    "alpha_search": (_glum(alpha=[0.2, 0.1], alpha_search=True), "numbers", "path"),
    "P2": (_glum(alpha=0.1, P2=np.eye(P)), "numbers", "matrix"),
    "negative.binomial": (_glum(alpha=0.1, family="negative.binomial"), "counts", "supported are"),
    "cloglog": (_glum(alpha=0.1, family="binomial", link="cloglog"), "zero or one", "supported are"),
    "A_ineq": (_glum(alpha=0.1, A_ineq=np.eye(P)[:1], b_ineq=np.ones(1)), "numbers", "constraints"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    make, kind, why = REFUSED[name]
    model = make().fit(X, RESPONSES[kind])
    with pytest.raises(UnsupportedModelError, match=why):
        onefit.loo(model, X, RESPONSES[kind])


@pytest.mark.parametrize(
    ("name", "why"),
    [("MCPRegression", "not convex"), ("CoxEstimator", "ties the rows"), ("MultiTaskLasso", "an output")],
)
def test_classes_of_skglm_that_are_refused(name, why):
    model = _of("skglm", name)()
    model.coef_ = np.ones(P)  # as if it were fitted, which would be compiled first
    with pytest.raises(UnsupportedModelError, match=why):
        onefit.loo(model, X, RESPONSES["numbers"])


@pytest.mark.parametrize(
    ("datafit", "penalty", "why"),
    [
        (("Quadratic",), ("MCPenalty", 0.1, 3.0), "not convex"),
        (("Quadratic",), ("SCAD", 0.1, 3.0), "not convex"),
        (("Quadratic",), ("L0_5", 0.1), "not convex"),
        (("Quadratic",), ("L2_1", 0.1), "outputs together"),
        (("Cox",), ("L1", 0.1), "ties the rows"),
        (("QuadraticSVC",), ("IndicatorBox", 0.1), "LinearSVC"),
    ],
)
def test_parts_of_skglm_that_are_refused(datafit, penalty, why):
    model = _any_skglm(datafit, penalty)
    model.coef_ = np.ones(P)
    with pytest.raises(UnsupportedModelError, match=why):
        onefit.loo(model, X, RESPONSES["numbers"])


def test_outputs_tied_together_are_refused():
    y = RESPONSES["numbers"]
    model = _of("celer", "MultiTaskLasso", 0.1)()
    model.coef_ = np.ones((2, P))  # as if it were fitted, which fails with some versions of scikit-learn
    with pytest.raises(UnsupportedModelError, match="one Lasso an output"):
        onefit.loo(model, X, np.stack([y, y**2], axis=1))


def test_more_than_two_classes_are_refused():
    celer = pytest.importorskip("celer")
    y = _many(RESPONSES["classes"])
    model = celer.LogisticRegression(1.0).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="OneVsRestClassifier"):
        onefit.loo(model, X, y)


def test_path_of_adelie_is_refused():
    y = RESPONSES["numbers"]
    with pytest.raises(UnsupportedModelError, match="lmda_path"):
        onefit.loo(_fitted_by_adelie("gaussian", y, lmda_path=[0.2, 0.1]), X, y)


def test_offsets_of_adelie_are_refused():
    y = RESPONSES["numbers"]
    with pytest.raises(UnsupportedModelError, match="offsets"):
        onefit.loo(_fitted_by_adelie("gaussian", y, lmda_path=[0.1], offsets=np.ones(N)), X, y)


def test_categories_that_glum_expands_are_refused():
    glum, pandas = pytest.importorskip("glum"), pytest.importorskip("pandas")
    y = RESPONSES["numbers"]
    table = pandas.DataFrame({"x": X[:, 0], "kind": pandas.Categorical(RESPONSES["classes"])})
    model = glum.GeneralizedLinearRegressor(alpha=0.1).fit(table, y)
    with pytest.raises(UnsupportedModelError, match="numeric design matrix"):
        onefit.loo(model, table, y)


def test_numeric_tables_are_read():
    glum, pandas = pytest.importorskip("glum"), pytest.importorskip("pandas")
    y, table = RESPONSES["numbers"], pandas.DataFrame(X, columns=[f"x{j}" for j in range(P)])
    of_table = glum.GeneralizedLinearRegressor(alpha=0.1).fit(table, y)
    plain = glum.GeneralizedLinearRegressor(alpha=0.1).fit(X, y)
    found, wanted = onefit.loo(of_table, table, y), onefit.loo(plain, X, y)
    np.testing.assert_allclose(found.predictions, wanted.predictions, rtol=1e-9)


def test_weights_where_a_library_has_none_are_refused():
    celer = pytest.importorskip("celer")
    y = RESPONSES["numbers"]
    with pytest.raises(ValueError, match="leave it out"):
        onefit.loo(celer.Lasso(0.1).fit(X, y), X, y, WEIGHTS)


def test_other_columns_are_refused():
    y = RESPONSES["numbers"]
    with pytest.raises(NotFittedToDataError, match="columns"):
        onefit.loo(_fitted_by_adelie("gaussian", y, lmda_path=[0.1]), X[:, :4], y)


def test_libraries_are_not_imported_before_one_of_their_estimators_comes():
    asked = """
import sys, onefit
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso

X, y = load_diabetes(return_X_y=True)
onefit.loo(Lasso(1.0).fit(X, y), X, y)
libraries = {"skglm", "celer", "glum", "adelie", "sortedl1", "statsmodels", "onefit.readers.celer"}
print(libraries & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

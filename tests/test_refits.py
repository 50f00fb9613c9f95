"""Refits of the estimator itself, beside scikit-learn's own cross-validation."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn import config_context, linear_model
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, scale
from sklearn.tree import DecisionTreeClassifier

import onefit
from onefit.metrics import LogLoss
from onefit.refits import left_out_predictions, reference

N = 40


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:N]), y[:N]


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:N, :5]), np.array(["benign", "malignant"])[y[:N]]


def each(n):
    """Every row on its own."""
    return [np.array([i]) for i in range(n)]


def one_by_one(model, X, y, **options):
    rows = each(len(y))
    return np.concatenate(left_out_predictions(model, X, y, rows, rows, **options).predictions)


# --- refits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        linear_model.Ridge(2.0, tol=1e-12),
        RandomForestRegressor(3, max_depth=2, random_state=0),
        make_pipeline(StandardScaler(), SelectKBest(f_regression, k=3), linear_model.Ridge(1.0)),
    ],
    ids=["ridge", "forest", "selection inside"],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_they_are_those_of_cross_val_predict(diabetes, model, grouped):
    X, y = diabetes
    folds = GroupKFold(5) if grouped else LeaveOneOut()
    groups = {"groups": np.arange(N) // 4} if grouped else {}
    tested = [test for _, test in folds.split(X, y, **groups)]
    refits = left_out_predictions(clone(model).fit(X, y), X, y, tested, tested)
    wanted = cross_val_predict(model, X, y, cv=folds, **groups)
    np.testing.assert_allclose(np.concatenate(refits.predictions), wanted[np.concatenate(tested)], rtol=1e-9)
    assert refits.failures == ()


def test_rows_may_be_removed_without_being_tested_and_tested_without_being_removed(diabetes):
    X, y = diabetes
    model = linear_model.Ridge().fit(X, y)
    removed, tested = [np.arange(10)], [np.array([3, 30, 3])]
    found = left_out_predictions(model, X, y, removed, tested).predictions[0]
    wanted = linear_model.Ridge().fit(X[10:], y[10:]).predict(X[[3, 30, 3]])
    np.testing.assert_allclose(found, wanted)


def test_a_pipeline_takes_a_data_frame_as_it_is(diabetes):
    X, y = diabetes
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"], index=np.arange(N)[::-1])
    frame["d"] = np.resize(["x", "y", "z"], N)
    encode = make_column_transformer((OneHotEncoder(), ["d"]), remainder="passthrough")
    model = make_pipeline(encode, linear_model.Ridge()).fit(frame, pd.Series(y))
    wanted = cross_val_predict(clone(model), frame, y, cv=LeaveOneOut())
    np.testing.assert_allclose(one_by_one(model, frame, pd.Series(y)), wanted)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix])
def test_x_may_be_sparse(diabetes, kind):
    X, y = diabetes
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    found = one_by_one(linear_model.Ridge().fit(kind(X), y), kind(X), y)
    np.testing.assert_allclose(found, cross_val_predict(linear_model.Ridge(), X, y, cv=N), rtol=1e-8)


def test_a_precomputed_kernel_loses_rows_and_columns(diabetes):
    X, y = diabetes
    gram = X @ X.T
    found = one_by_one(KernelRidge(kernel="precomputed").fit(gram, y), gram, y)
    np.testing.assert_allclose(found, cross_val_predict(KernelRidge(), X, y, cv=N), rtol=1e-8)


@pytest.mark.parametrize("piped", [False, True])
def test_weights_go_with_their_rows(diabetes, refits, piped):
    X, y = diabetes
    weights = np.random.default_rng(0).integers(0, 4, N).astype(float)
    model = linear_model.Ridge().fit(X, y, sample_weight=weights)
    wanted = refits(model, X, y, sample_weight=weights)
    if piped:
        step = {"ridge__sample_weight": weights}
        model = make_pipeline(StandardScaler(with_std=False), linear_model.Ridge()).fit(X, y, **step)
    np.testing.assert_allclose(one_by_one(model, X, y, sample_weight=list(weights)), wanted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_weights_are_routed_as_scikit_learn_is_told_to(diabetes, n_jobs):
    X, y = diabetes
    weights, rows = np.linspace(0.5, 2.0, N), [np.array([row]) for row in range(4)]
    with config_context(enable_metadata_routing=True):
        asking = (
            StandardScaler().set_fit_request(sample_weight=True),
            Ridge().set_fit_request(sample_weight=True),
        )
        model = make_pipeline(*asking).fit(X, y, sample_weight=weights)
        found = left_out_predictions(model, X, y, rows, rows, sample_weight=weights, n_jobs=n_jobs)
        for row in range(4):
            kept = np.arange(N) != row
            refit = clone(model).fit(X[kept], y[kept], sample_weight=weights[kept])
            assert found.predictions[row] == pytest.approx(refit.predict(X[[row]])[0])


def test_several_outputs_stay_apart(diabetes):
    X, y = diabetes
    Y = np.stack([y, y**2], axis=1)
    found = one_by_one(linear_model.Ridge().fit(X, Y), X, Y)
    np.testing.assert_allclose(found, cross_val_predict(linear_model.Ridge(), X, Y, cv=N))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_classes_may_be_words(cancer, method):
    X, y = cancer
    model = linear_model.LogisticRegression(solver="newton-cholesky", tol=1e-10)
    found = one_by_one(clone(model).fit(X, y), X, y, method=method)
    wanted = cross_val_predict(model, X, y, cv=LeaveOneOut(), method=method)
    if method == "predict":
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_two_jobs_give_the_same_numbers(cancer):
    X, y = cancer
    model = RandomForestClassifier(3, random_state=0).fit(X, y)
    alone = one_by_one(model, X, y, method="predict_proba")
    shared = one_by_one(model, X, y, method="predict_proba", n_jobs=2)
    np.testing.assert_array_equal(alone, shared)


def test_no_refit_starts_from_another(diabetes):
    X, y = diabetes
    model = RandomForestRegressor(2, max_depth=2, random_state=0)
    wanted = one_by_one(clone(model).fit(X, y), X, y)
    np.testing.assert_array_equal(one_by_one(model.set_params(warm_start=True).fit(X, y), X, y), wanted)


WARM = [
    linear_model.Lasso(2.0),
    linear_model.ElasticNet(0.5, fit_intercept=False),
    linear_model.HuberRegressor(),
    linear_model.PoissonRegressor(alpha=0.1, solver="lbfgs"),
]


@pytest.mark.parametrize("model", WARM, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("piped", [False, True])
def test_where_a_refit_starts_changes_nothing_but_the_time(diabetes, model, piped):
    X, y = diabetes
    fitted = clone(make_pipeline(StandardScaler(), model) if piped else model).fit(X, y)
    before = np.copy(fitted[-1].coef_ if piped else fitted.coef_)
    cold = [clone(reference(fitted)).fit(np.delete(X, i, 0), np.delete(y, i)) for i in range(6)]
    expected = [one.predict(X[[i]])[0] for i, one in enumerate(cold)]
    rows = each(6)
    found = left_out_predictions(fitted, X, y, rows, rows)
    np.testing.assert_allclose(np.concatenate(found.predictions), expected, rtol=1e-4)
    np.testing.assert_array_equal(fitted[-1].coef_ if piped else fitted.coef_, before)


@pytest.mark.parametrize("solver", ["saga", "newton-cholesky"])
def test_a_refit_starts_at_the_fit(cancer, solver):
    X, y = cancer
    ratio = float(solver == "saga")
    model = linear_model.LogisticRegression(l1_ratio=ratio, solver=solver, tol=1e-8, max_iter=100_000).fit(
        X, y
    )
    cold = clone(reference(model)).fit(X[1:], y[1:])
    rows = each(1)
    found = left_out_predictions(model, X, y, rows, rows, method="decision_function")
    np.testing.assert_allclose(found.predictions[0], cold.decision_function(X[:1]), rtol=1e-5)


def test_a_refit_without_a_class_starts_anew(cancer):
    X, y = cancer
    y = np.where(np.arange(len(y)) == 0, "rare", y)
    model = linear_model.LogisticRegression().fit(X, y)
    rows = each(1)
    found = left_out_predictions(model, X, y, rows, rows, method="predict_proba")
    assert not found.failures
    expected = clone(reference(model)).fit(X[1:], y[1:]).predict_proba(X[:1])
    np.testing.assert_allclose(found.predictions[0], np.hstack([expected, [[0.0]]]), rtol=1e-6)


def test_progress_is_told(diabetes):
    X, y = diabetes
    told = []
    rows = each(7)
    left_out_predictions(linear_model.Ridge().fit(X, y), X, y, rows, rows, progress=told.append)
    assert told == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_it(diabetes, n_jobs):
    X, y = diabetes
    told = []

    def stop(done):
        told.append(done)
        raise KeyboardInterrupt

    rows = each(N)
    with warnings.catch_warnings(), parallel_config("threading"):
        warnings.simplefilter("ignore")  # joblib tells of workers that it stopped
        with pytest.raises(KeyboardInterrupt):
            left_out_predictions(
                linear_model.Ridge().fit(X, y), X, y, rows, rows, n_jobs=n_jobs, progress=stop
            )
    assert told == [1]


def test_a_refit_that_fails_is_told_and_leaves_the_others(cancer):
    X, y = cancer
    y = np.where(np.arange(N) == 5, "rare", "usual")
    model = linear_model.LogisticRegression().fit(X, y)
    rows = each(N)
    refits = left_out_predictions(model, X, y, rows, rows, method="predict_proba")
    (failure,) = refits.failures
    assert failure.fold == 5
    np.testing.assert_array_equal(failure.removed, [5])
    assert failure.error.startswith("ValueError")
    assert "2 classes" in failure.error
    predictions = np.concatenate(refits.predictions)
    assert predictions.shape == (N, 2)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(predictions[:, 0])), [5])
    metric = LogLoss(model.classes_)
    losses = metric.of_predictions(metric.target(y), predictions)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(losses)), [5])


def test_all_refits_failing_is_an_error(diabetes):
    X, y = diabetes
    model = KernelRidge().fit(X, y)
    rows = each(3)
    with pytest.raises(
        ValueError, match=r"all 3 refits failed, the first with AttributeError: .*predict_proba"
    ):
        left_out_predictions(model, X, y, rows, rows, method="predict_proba")


def test_a_class_that_a_refit_has_not_seen_has_probability_zero():
    X, y = load_iris(return_X_y=True)
    y = np.array(["a", "b", "c"])[y]
    model = DecisionTreeClassifier(random_state=0).fit(X, y)
    middle = np.flatnonzero(y == "b")
    (found,) = left_out_predictions(model, X, y, [middle], [middle], method="predict_proba").predictions
    assert found.shape == (50, 3)
    np.testing.assert_array_equal(found[:, 1], 0.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_a_decision_function_without_all_classes_counts_as_failed():
    X, y = load_iris(return_X_y=True)
    model = linear_model.RidgeClassifier().fit(X, y)
    rows = [np.flatnonzero(y == 1), np.array([0])]
    refits = left_out_predictions(model, X, y, rows, rows, method="decision_function")
    assert [failure.fold for failure in refits.failures] == [0]
    assert "only the classes 0, 2" in refits.failures[0].error
    assert refits.predictions[0].shape == (50, 3)
    assert np.all(np.isnan(refits.predictions[0]))
    assert np.all(np.isfinite(refits.predictions[1]))


def test_warnings_of_refits_are_not_shown(cancer):
    X, y = cancer
    model = linear_model.SGDClassifier(max_iter=1, tol=None, random_state=0)
    model.set_params(tol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    rows = each(4)
    refits = left_out_predictions(model, X, y, rows, rows)
    assert refits.failures == ()


# --- the reference ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tuned", "plain", "chosen"),
    [
        (linear_model.RidgeCV([0.3, 3.0], fit_intercept=False), linear_model.Ridge, {"alpha": "alpha_"}),
        (linear_model.LassoCV(cv=3, positive=True), linear_model.Lasso, {"alpha": "alpha_"}),
        (linear_model.LassoLarsCV(cv=3), linear_model.LassoLars, {"alpha": "alpha_"}),
        (linear_model.LassoLarsIC(), linear_model.LassoLars, {"alpha": "alpha_"}),
        (
            linear_model.ElasticNetCV(l1_ratio=[0.2, 0.9], cv=3, selection="random", random_state=1),
            linear_model.ElasticNet,
            {"alpha": "alpha_", "l1_ratio": "l1_ratio_"},
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_a_regressor_that_tunes_itself_keeps_its_choice(diabetes, tuned, plain, chosen):
    X, y = diabetes
    model = tuned.fit(X, y)
    unfitted = reference(model)
    assert type(unfitted) is plain
    for parameter, attribute in chosen.items():
        assert unfitted.get_params()[parameter] == getattr(model, attribute)
    for parameter in {"fit_intercept", "positive", "selection", "random_state"} & set(model.get_params()):
        assert unfitted.get_params()[parameter] == model.get_params()[parameter]
    np.testing.assert_allclose(unfitted.fit(X, y).predict(X), model.predict(X), rtol=1e-2)


def test_an_array_of_choices_is_kept(diabetes):
    X, y = diabetes
    Y = np.stack([y, X[:, 0]], axis=1)
    model = linear_model.RidgeCV([0.1, 100.0], alpha_per_target=True).fit(X, Y)
    np.testing.assert_array_equal(reference(model).alpha, model.alpha_)


@pytest.mark.parametrize("l1_ratios", [(0.0,), (1.0,)], ids=["ridge", "lasso"])
def test_a_logistic_regression_that_tunes_itself_keeps_its_choice(cancer, l1_ratios):
    X, y = cancer
    model = linear_model.LogisticRegressionCV(
        Cs=[0.01, 0.5],
        l1_ratios=l1_ratios,
        cv=3,
        solver="saga" if l1_ratios[0] else "lbfgs",
        class_weight="balanced",
        max_iter=5000,
        use_legacy_attributes=False,
        scoring="neg_log_loss",
    ).fit(X, y)
    unfitted = reference(model)
    assert type(unfitted) is linear_model.LogisticRegression
    assert unfitted.C == model.C_
    assert unfitted.l1_ratio == l1_ratios[0]
    assert unfitted.class_weight == "balanced"
    np.testing.assert_allclose(unfitted.fit(X, y).decision_function(X), model.decision_function(X), atol=0.02)


def test_coefficients_averaged_over_folds_have_no_plain_model(cancer):
    X, y = cancer
    options = {"Cs": 2, "l1_ratios": (0.0,), "cv": 3, "use_legacy_attributes": False}
    model = linear_model.LogisticRegressionCV(**options, refit=False, scoring="accuracy").fit(X, y)
    assert type(reference(model)) is linear_model.LogisticRegressionCV


def test_a_ridge_classifier_that_tunes_itself_keeps_its_choice(cancer):
    X, y = cancer
    model = linear_model.RidgeClassifierCV([0.5, 50.0], class_weight={"benign": 3.0}).fit(X, y)
    unfitted = reference(model)
    assert (type(unfitted), unfitted.alpha) == (linear_model.RidgeClassifier, model.alpha_)
    assert unfitted.class_weight == {"benign": 3.0}


def test_the_last_step_of_a_pipeline_keeps_its_choice_and_the_others_are_fitted_anew(diabetes):
    X, y = diabetes
    model = make_pipeline(StandardScaler(), linear_model.LassoCV(cv=3)).fit(X, y)
    unfitted = reference(model)
    assert list(unfitted.named_steps) == ["standardscaler", "lassocv"]
    assert unfitted[-1].alpha == model[-1].alpha_
    assert not hasattr(unfitted[0], "mean_")
    assert hasattr(model[-1], "alpha_")  # what was given is as it was


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(2),
        linear_model.SGDRegressor(tol=1e-2),
        linear_model.BayesianRidge(),
        KernelRidge(alpha=3.0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_others_are_cloned_as_they_are(diabetes, model):
    unfitted = reference(clone(model).fit(*diabetes))
    assert type(unfitted) is type(model)
    assert unfitted.get_params() == model.get_params()


def test_a_tolerance_that_is_tighter_than_ours_stays(diabetes):
    unfitted = reference(linear_model.Lasso(tol=1e-14, max_iter=2_000_000).fit(*diabetes))
    assert (unfitted.tol, unfitted.max_iter) == (1e-14, 2_000_000)


@pytest.mark.parametrize(
    ("loose", "digits"),
    [
        (linear_model.Lasso(2.0, tol=1e-2), 1e-6),
        (linear_model.ElasticNet(2.0, tol=1e-2), 1e-6),
        (linear_model.HuberRegressor(tol=1e-2, max_iter=10_000), 2e-4),  # its solver gets no further
        (linear_model.PoissonRegressor(tol=1e-2), 1e-6),
        (linear_model.GammaRegressor(tol=1e-3), 1e-6),
        (linear_model.Ridge(solver="sparse_cg", tol=1e-3), 1e-6),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_refits_are_at_the_optimum(diabetes, loose, digits):
    """At which the formulas are: they polish what was fitted."""
    X, y = diabetes
    X = np.column_stack([X, X[:, 0] + 0.1 * X[:, 1]])  # columns that are much alike
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = loose.fit(X, y)
        polished = onefit.loo(model, X, y)
    fitted = reference(model).fit(X, y).predict(X)
    log_link = isinstance(model, linear_model.PoissonRegressor | linear_model.GammaRegressor)
    np.testing.assert_allclose(np.log(fitted) if log_link else fitted, polished.fitted, rtol=digits)


def test_a_wide_logistic_regression_reaches_its_optimum():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 400)), np.resize([0, 1], 40)
    model = linear_model.LogisticRegression(C=10.0).fit(X, y)
    unfitted = reference(model)
    assert unfitted.solver == "newton-cg"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        polished = onefit.loo(model, X, y)
    np.testing.assert_allclose(unfitted.fit(X, y).decision_function(X), polished.fitted, rtol=1e-5)


@pytest.mark.parametrize("solver", ["liblinear", "saga"])
def test_solvers_with_a_problem_of_their_own_stay(cancer, solver):
    model = linear_model.LogisticRegression(solver=solver, max_iter=5000).fit(*cancer)
    unfitted = reference(model)
    assert (unfitted.solver, unfitted.tol) == (solver, 1e-10)

"""onefit.loo with groups and audits, onefit.evaluate, and models without a formula."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold, f_regression
from sklearn.linear_model import (
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import mean_pinball_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_val_predict,
)
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder, scale
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import onefit


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:120], y[:120]


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:150]), y[:150]


GROUPS = np.random.default_rng(0).integers(0, 15, 120)


# --- rows that leave together ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [list(GROUPS), pd.Series(GROUPS), GROUPS.astype(str)], ids=["list", "Series", "str"]
)
def test_groups_leave_as_scikit_learn_leaves_them_out(diabetes, given):
    X, y = diabetes
    est = onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=given)
    expected = cross_val_predict(Ridge(0.1), X, y, groups=GROUPS, cv=LeaveOneGroupOut())
    np.testing.assert_allclose(est.predictions, expected, rtol=1e-8)
    assert est.certified.all()
    assert est.flagged.size == 0


def test_the_standard_error_is_that_of_groups(diabetes):
    X, y = diabetes
    est = onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=GROUPS)
    totals = np.bincount(GROUPS, est.losses - est.value)
    used = len(np.unique(GROUPS))
    np.testing.assert_allclose(est.std_error, np.sqrt(np.sum(totals**2) * used / (used - 1)) / 120)


@pytest.mark.parametrize("cv", [KFold(10), GroupKFold(4), KFold(3, shuffle=True, random_state=0)], ids=repr)
def test_splitters(diabetes, cv):
    X, y = diabetes
    splits = list(cv.split(X, y, GROUPS if isinstance(cv, GroupKFold) else None))
    given = splits if isinstance(cv, GroupKFold) else cv
    est = onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=given)
    np.testing.assert_allclose(est.predictions, cross_val_predict(Ridge(0.1), X, y, cv=splits), rtol=1e-8)


def test_splits_that_leave_rows_out_more_or_less_than_once(diabetes):
    X, y = diabetes
    model = Ridge(0.1).fit(X, y)
    for cv in (TimeSeriesSplit(4), ShuffleSplit(6, random_state=0)):
        est = onefit.loo(model, X, y, groups=cv)
        rows = np.concatenate([test for _, test in cv.split(X)])
        expected = [clone(model).fit(X[train], y[train]).predict(X[test]) for train, test in cv.split(X)]
        np.testing.assert_array_equal(est.rows, rows)
        np.testing.assert_allclose(est.predictions, np.concatenate(expected), rtol=1e-8)
        np.testing.assert_allclose(est.value, np.mean((y[rows] - est.predictions) ** 2))
        assert est.score("r2") == pytest.approx(1 - est.value / np.var(y[rows]))


def test_folds_of_a_lasso_are_exact_when_asked(diabetes):
    X, y = diabetes
    model = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(X, y)
    est = onefit.loo(model, X, y, groups=KFold(6), exact=True)
    np.testing.assert_allclose(est.predictions, cross_val_predict(model, X, y, cv=KFold(6)), rtol=1e-7)
    assert est.refinement.refitted > 0
    assert est.certified.all()


def test_folds_of_a_classifier(cancer):
    X, y = cancer
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X, y)
    expected = cross_val_predict(model, X, y, cv=KFold(5), method="predict_proba")
    est = onefit.loo(model, X, y, groups=KFold(5), exact=True)
    np.testing.assert_allclose(est.predictions, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(120), "group"),
        (np.arange(7), "7"),
        ([(np.arange(120), np.arange(3))], "train"),
        (3, "groups"),
    ],
)
def test_groups_that_make_no_sense(diabetes, groups, message):
    X, y = diabetes
    with pytest.raises((ValueError, TypeError), match=message):
        onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=groups)


def test_a_class_that_leaves_as_a_whole_is_said():
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = np.repeat([0, 1, 2], 10)
    model = LogisticRegression().fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match="no other of their class"):
        est = onefit.loo(model, X, y, groups=np.repeat([0, 1, 2, 3, 4, 4], 5))
    assert set(np.arange(20, 30)) <= set(est.flagged)


def test_splitters_that_need_groups_say_how_to_give_them(diabetes):
    X, y = diabetes
    with pytest.raises(ValueError, match=r"list\(cv.split"):
        onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=GroupKFold(3))


@pytest.mark.parametrize("audit", [-1, 1, True, 2.5, "ten", None])
def test_audits_of_no_sensible_size(diabetes, audit):
    X, y = diabetes
    with pytest.raises(ValueError, match="audit must be"):
        onefit.loo(Ridge(0.1).fit(X, y), X, y, audit=audit)


def test_risks_and_lengths_that_make_no_sense(diabetes):
    X, y = diabetes
    with pytest.raises(TypeError, match="must be one of"):
        onefit.evaluate(Ridge(0.1).fit(X, y), X, y, "kfold")
    with pytest.raises(ValueError, match="inconsistent"):
        onefit.loo(DecisionTreeRegressor().fit(X, y), X, y[:7], audit=5)


# --- named risks -----------------------------------------------------------------------------------------


def test_named_splits(diabetes):
    X, y = diabetes
    model = Ridge(0.1).fit(X, y)
    assert onefit.evaluate(model, X, y, onefit.risk.LeaveOneOut()).value == onefit.loo(model, X, y).value
    folds = onefit.evaluate(model, X, y, onefit.risk.KFold(4))
    np.testing.assert_allclose(folds.predictions, cross_val_predict(model, X, y, cv=KFold(4)))
    again = onefit.evaluate(model, X, y, onefit.risk.KFold(4, approximate=False))
    np.testing.assert_allclose(again.predictions, folds.predictions)
    shuffled = onefit.evaluate(model, X, y, onefit.risk.KFold(4, shuffle=True, random_state=1))
    assert not np.allclose(shuffled.predictions, folds.predictions)
    groups = onefit.evaluate(model, X, y, onefit.risk.LeaveGroupOut(GROUPS))
    np.testing.assert_allclose(groups.value, onefit.loo(model, X, y, groups=GROUPS).value)
    assert len(onefit.evaluate(model, X, y, onefit.risk.MonteCarlo(7, 0.9, random_state=0)).rows) == 7 * 12
    assert len(onefit.evaluate(model, X, y, onefit.risk.LeaveQOut(5, 8, random_state=0)).rows) == 40
    assert len(onefit.evaluate(model, X, y, onefit.risk.HeldOut(0.25, random_state=0)).rows) == 30
    timed = onefit.evaluate(model, X, y, onefit.risk.Split(TimeSeriesSplit(4)))
    assert timed.value == onefit.loo(model, X, y, groups=TimeSeriesSplit(4)).value


def test_named_criteria_are_near_leave_one_out(diabetes):
    X, y = diabetes
    model = Ridge(0.1).fit(X, y)
    reference = onefit.loo(model, X, y)
    for risk in (onefit.risk.GCV(), onefit.risk.SURE(), onefit.risk.InfluenceFunction()):
        criterion = onefit.evaluate(model, X, y, risk)
        assert abs(criterion.value / reference.value - 1) < 0.05
        assert criterion.training < criterion.value
        assert criterion.effective_df == pytest.approx(reference.effective_df)


# --- audits ----------------------------------------------------------------------------------------------


def test_an_audit_of_every_row_is_the_exact_risk(diabetes):
    X, y = diabetes
    model = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(X, y)
    est = onefit.loo(model, X, y, audit=500, rng=0)
    expected = np.mean((y - cross_val_predict(model, X, y, cv=LeaveOneOut())) ** 2)
    np.testing.assert_allclose(est.audit.value, expected, rtol=1e-9)
    assert est.audit.std_error == 0
    assert est.audit.interval == (est.audit.value, est.audit.value)
    assert "audited" in str(est)


@pytest.mark.parametrize(
    "model",
    [QuantileRegressor(quantile=0.3, alpha=0.1), HuberRegressor(max_iter=1000), PoissonRegressor()],
    ids=lambda model: type(model).__name__,
)
def test_an_audit_of_every_row_is_the_mean_loss_of_the_refits(diabetes, model):
    """The loss is the model's own: pinball, squared error of the location, deviance."""
    X, y = diabetes[0][:40], diabetes[1][:40]
    X = scale(X)
    est = onefit.loo(model.fit(X, y), X, y, audit=40)
    tight = clone(model).set_params(**({} if isinstance(model, QuantileRegressor) else {"tol": 1e-10}))
    predicted = cross_val_predict(tight, X, y, cv=LeaveOneOut())
    metric = {
        "pinball loss at 0.3": lambda: mean_pinball_loss(y, predicted, alpha=0.3),
        "squared error": lambda: mean_squared_error(y, predicted),
        "deviance": lambda: mean_poisson_deviance(y, predicted),
    }[est.loss_name]
    assert est.audit.value == pytest.approx(metric(), rel=1e-4)
    assert est.audit.interval == (est.audit.value, est.audit.value)


def test_audits_take_a_seed(diabetes):
    X, y = diabetes
    model = Lasso(0.05).fit(X, y)
    first, again, other = (onefit.loo(model, X, y, audit=10, rng=seed).audit for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.rows, again.rows)
    assert first.value == again.value
    assert not np.array_equal(first.rows, other.rows)
    assert first.m == 10


def test_an_audit_sees_the_optimism_of_a_selection():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 500)), rng.normal(size=80)
    model = make_pipeline(StandardScaler(), SelectKBest(f_regression, k=10), Ridge(1.0)).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match="lies outside of what 30 refits of the whole model"):
        est = onefit.loo(model, X, y, audit=30, rng=0)
    exact = np.mean((y - cross_val_predict(model, X, y, cv=LeaveOneOut())) ** 2)
    low, high = est.audit.interval
    assert est.value < 0.8 * exact
    assert low < exact < high
    assert repr(est).endswith(f"audited {est.audit.value:.4g} [{low:.4g}, {high:.4g}]>")


@pytest.mark.parametrize("m", [15, 50])
def test_a_risk_that_its_audit_contradicts_is_warned_of(m):
    """Components learned from all rows: the formula holds them fixed, refits learn them anew."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 8))
    y = X[:, :3].sum(axis=1) + rng.normal(size=50)
    model = make_pipeline(StandardScaler(), PCA(3), Ridge()).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match=r"give est\.audit\.value with est\.audit\.interval"):
        est = onefit.loo(model, X, y, audit=m, rng=0)
    assert est.audit.excludes(est.value, est.std_error)
    assert est.value == pytest.approx(onefit.loo(model, X, y).value)


@pytest.mark.parametrize("model", [Ridge(1.0), Lasso(0.3), LogisticRegression(C=0.1)], ids=str)
def test_audits_that_agree_say_nothing(diabetes, cancer, model):
    """Warnings are errors here: scaling on all rows is no reason for one, whatever is drawn."""
    X, y = cancer if isinstance(model, LogisticRegression) else diabetes
    for seed in range(5):
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
        est = onefit.loo(pipeline, X, y, audit=10, rng=seed)
        assert not est.audit.excludes(est.value, est.std_error)


@pytest.mark.parametrize(
    ("step", "learns"),
    [
        (SelectKBest(f_regression, k=2), True),
        (FeatureUnion([("all", PCA(2)), ("some", SelectKBest(f_regression, k=2))]), True),
        (ColumnTransformer([("chosen", SelectFromModel(Ridge()), [0, 1, 2])]), True),
        (VarianceThreshold(), False),
        (make_pipeline(StandardScaler(), PCA(2)), False),
    ],
    ids=["selection", "union", "selection of some", "variance", "components"],
)
def test_steps_that_learn_from_y_are_warned_of_where_no_audit_refits_them(diabetes, step, learns):
    X, y = diabetes
    model = make_pipeline(step, Ridge(1.0)).fit(X, y)
    for options in ({}, {"exact": True}):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", onefit.UnreliableWarning)
            est = onefit.loo(model, X, y, **options)
        assert [f"learn from y ({model.steps[0][0]})" in str(one.message) for one in said] == [True] * learns
        assert any("learned from the responses" in note for note in est.notes) == learns
        assert str(est).count("exact: what refitting without each would give (see note)") == 1
    onefit.loo(model, X, y, audit=5, rng=0)


def test_an_audit_of_groups_and_weights(diabetes):
    X, y = diabetes
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 120)
    model = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(X, y, weights)
    est = onefit.loo(model, X, y, weights, groups=GROUPS, audit=100)
    exact = onefit.loo(model, X, y, weights, groups=GROUPS, exact=True)
    np.testing.assert_allclose(est.audit.value, exact.value, rtol=1e-8)


def test_groups_of_mixed_labels_and_weights_that_make_no_sense(diabetes):
    X, y = diabetes
    mixed = np.array([f"{g}" if g % 2 else g for g in GROUPS], dtype=object)
    est = onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=mixed)
    same = onefit.loo(Ridge(0.1).fit(X, y), X, y, groups=GROUPS)
    np.testing.assert_allclose(est.std_error, same.std_error)
    tree = DecisionTreeRegressor(max_depth=2).fit(X, y)
    for weights in (-np.ones(120), np.zeros(120), np.full(120, np.nan)):
        with pytest.raises(ValueError, match="weight"):
            onefit.loo(tree, X, y, weights, audit=5)
    with pytest.raises(ValueError, match="noise_variance"):
        onefit.risk.SURE(-1.0)
    with pytest.raises(ValueError, match="n_splits"):
        onefit.evaluate(Ridge(0.1).fit(X, y), X, y, onefit.risk.KFold(5.5))


# --- models without a formula ----------------------------------------------------------------------------


def test_without_a_formula_refits_are_offered(diabetes):
    X, y = diabetes
    model = DecisionTreeRegressor(max_depth=2).fit(X, y)
    with pytest.raises(onefit.UnsupportedModelError, match="audit=30"):
        onefit.loo(model, X, y)


def test_exact_without_a_formula_is_leave_one_out(diabetes, cancer):
    X, y = diabetes
    model = DecisionTreeRegressor(max_depth=2, random_state=0).fit(X, y)
    est = onefit.loo(model, X, y, exact=True)
    np.testing.assert_allclose(est.predictions, cross_val_predict(model, X, y, cv=LeaveOneOut()))
    assert est.refinement.refitted == 120
    assert est.certified.all()
    assert est.plot().ax_ is not None
    with pytest.raises(ValueError, match="no formula"):
        est.interval(X)
    X, y = cancer
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    est = onefit.loo(tree, X, y, groups=KFold(5), exact=True)
    expected = cross_val_predict(tree, X, y, cv=KFold(5), method="predict_proba")
    np.testing.assert_allclose(est.predictions, expected)
    assert est.score("accuracy") == pytest.approx(np.mean(expected.argmax(axis=1) == y))


def test_audit_without_a_formula(diabetes):
    X, y = diabetes
    model = DecisionTreeRegressor(max_depth=6, random_state=0).fit(X, y)
    exact = onefit.loo(model, X, y, exact=True).value
    est = onefit.loo(model, X, y, audit=40, rng=0)
    low, high = est.audit.interval
    assert low < exact < high
    assert est.value == est.audit.value
    assert est.certified.sum() == 40
    assert "no formula" in str(est)


def test_predictions_supplied_for_the_audit(diabetes):
    X, y = diabetes
    model = DecisionTreeRegressor(max_depth=6, random_state=0).fit(X, y)
    ten_fold = cross_val_predict(model, X, y, cv=10)
    est = onefit.loo(model, X, y, audit=20, rng=0, predictions=ten_fold)
    alone = onefit.loo(model, X, y, audit=20, rng=0)
    assert est.audit.std_error < alone.audit.std_error
    with pytest.raises(ValueError, match="without a formula"):
        onefit.loo(Ridge().fit(X, y), X, y, audit=5, predictions=ten_fold)
    with pytest.raises(ValueError, match="predictions"):
        onefit.loo(model, X, y, audit=5, predictions=ten_fold[:7])


def test_tables_with_names_and_labels_with_words(cancer):
    X, y = cancer
    table, words = pd.DataFrame(X).add_prefix("c"), np.where(y, "benign", "malignant")
    model = RandomForestClassifier(10, random_state=0).fit(table, words)
    est = onefit.loo(model, table, words, audit=10, rng=0)
    assert est.loss_name == "log-loss"
    assert np.isfinite(est.value)


def test_refits_that_fail_are_said():
    X = np.arange(12.0)[:, None]
    y = np.r_[np.zeros(11), 1]
    model = LogisticRegression().fit(X, y)
    lone = pytest.warns(onefit.UnreliableWarning, match="no other of their class")
    with lone, pytest.warns(onefit.UnreliableWarning, match="without rows"):
        est = onefit.loo(model, X, y, audit=12)
    assert list(est.audit.failed) == [11]


def test_a_target_encoder_has_no_formula_and_is_refitted():
    rng = np.random.default_rng(0)
    X = rng.choice(list("abcd"), size=(60, 1)).astype(object)
    y = (X[:, 0] == "a") + 0.3 * rng.normal(size=60)
    encoder = ColumnTransformer([("letters", TargetEncoder(), [0])])
    model = make_pipeline(encoder, Ridge()).fit(X, y)
    with pytest.raises(onefit.UnsupportedModelError, match=r"columntransformer.*TargetEncoder.*audit=30"):
        onefit.loo(model, X, y)
    exact = onefit.loo(model, X, y, exact=True)
    assert np.corrcoef(exact.predictions, X[:, 0] == "a")[0, 1] > 0.9


def test_a_search_is_told_to_hand_over_what_it_chose(diabetes):
    X, y = diabetes
    search = GridSearchCV(Ridge(), {"alpha": [1.0, 10.0]}).fit(X, y)
    with pytest.raises(onefit.UnsupportedModelError, match="best_estimator_"):
        onefit.loo(search, X, y)


@pytest.mark.costly
@pytest.mark.parametrize("leaving", ["groups", "time", "often"])
@pytest.mark.parametrize("classes", [2, 3])
def test_paths_are_judged_by_groups_and_cuts(classes, leaving):
    """What a path ends by is of what counts as one, of which there are fewer than rows, or more."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 8))
    y = np.digitize(X[:, 0] - X[:, 1] + rng.normal(size=60), [0.0] if classes == 2 else [-0.7, 0.7])
    cv = {"time": TimeSeriesSplit(4), "often": RepeatedKFold(n_splits=5, n_repeats=2, random_state=0)}
    groups = rng.integers(0, 9, 60) if leaving == "groups" else None
    model = onefit.LogisticLOO(cv=cv.get(leaving)).fit(X, y, groups=groups)
    same = LogisticRegression(C=model.C_, tol=1e-12, max_iter=10_000).fit(X, y)
    est = onefit.loo(same, X, y, groups=cv.get(leaving, groups), exact=True)
    assert model.loo_.value == pytest.approx(est.value, rel=1e-3)

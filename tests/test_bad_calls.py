"""A table of bad calls: each is refused in words that name what is wrong, or is right."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge, TweedieRegressor
from sklearn.model_selection import GroupKFold, KFold
from sklearn.svm import LinearSVC

import onefit
from onefit import ElasticNetLOO, GeneralizedLinearLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO, losses
from onefit.sources import ArraySource

N = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.abs(X[:, 0] + RNG.normal(size=N)) + 0.1
LABELS = np.where(np.median(Y) < Y, "high", "low")
TABLE = pd.DataFrame(X, columns=list("abc"))
SOURCE = ArraySource(X, Y)
DAYS = pd.date_range("2020-01-01", periods=N)
ESTIMATORS = {
    "ridge": RidgeLOO(alphas=[1.0]),
    "lasso": LassoLOO(alphas=[0.1]),
    "elastic net": ElasticNetLOO(alphas=[0.1]),
    "logistic": LogisticLOO(Cs=[1.0]),
    "poisson": PoissonLOO(alphas=[1.0]),
    "generalised": GeneralizedLinearLOO("huber", alphas=[1.0]),
}


def _with(row, column, value):
    changed = X.copy()
    changed[row, column] = value
    return changed


ROWS = {  # what stands for X, and what must be said
    "none": (None, "X is None"),
    "text": (TABLE.assign(c="red"), "column 'c' of X holds text such as 'red'"),
    "an array of text": (np.array([["1", "a", "2"]] * N), "column 1 of X holds text such as 'a'"),
    "dates": (TABLE.assign(b=DAYS), "column 'b' of X holds datetime64.* not numbers"),
    "durations": (TABLE.assign(b=DAYS - DAYS[0]), "column 'b' of X holds timedelta64.* not numbers"),
    "an array of dates": (np.arange(3 * N).astype("M8[D]").reshape(N, 3), "X holds datetime64"),
    "one name twice": (pd.concat([TABLE, TABLE], axis=1), "more than one column named 'a'"),
    "masked": (np.ma.masked_greater(X, 1.0), "X is a masked array .* first in row"),
    "nan": (_with(2, 1, np.nan), "X contains NaN"),
    "infinity": (_with(2, 1, np.inf), "X contains infinity"),
    "huge": (X * 1e300, "column 0 of X .* scale it"),
    "tiny": (X * 1e-300, "column 0 of X .* scale it"),
    "one dimension": (X[:, 0], "Expected 2D array"),
    "three dimensions": (X[None], "dim 3"),
    "complex": (X * 1j, "Complex data not supported"),
    "too few": (X[:-1], "inconsistent numbers of samples"),
    "no column": (X[:, :0], "0 feature"),
    "a missing text": (TABLE.assign(c=["x", *[None] * (N - 1)]), "column 'c' of X holds text"),
}
RESPONSES = {
    "none": (None, "y .*None"),
    "masked": (np.ma.masked_greater(Y, 1.0), "y is a masked array"),
    "too few": (Y[:-1], "inconsistent numbers of samples"),
    "nan": (np.where(np.arange(N) == 3, np.nan, Y), "y contains NaN"),
}
NUMBERS = {
    "text": (LABELS, "y holds text such as '(high|low)'"),
    "dates": (DAYS.to_numpy(), "y holds datetime64"),
    "huge": (Y * 1e300, "y has entries .* scale it"),
    "tiny": (Y * 1e-300, "y has entries .* scale it"),
}
WEIGHTS = {
    "huge": (np.full(N, 1e300), "sample_weight has entries .* scale it"),
    "negative": (-np.ones(N), "[Nn]egative"),
    "zero": (np.zeros(N), "at least one non-zero number|zero for every row"),
    "too few": (np.ones(N - 1), "sample_weight.shape"),
    "masked": (np.ma.masked_greater(Y, 1.0), "sample_weight is a masked array"),
}
SETTINGS = [
    (LassoLOO(fit_intercept="no"), "fit_intercept must be True or False"),
    (RidgeLOO(fit_intercept="no"), "fit_intercept must be True or False"),
    (PoissonLOO(fit_intercept=None), "fit_intercept must be True or False"),
    (LassoLOO(selection="cyclic"), "selection must be .* not the order of a solver"),
    (LassoLOO(cv=1), "cv must be from 2 folds"),
    (LassoLOO(cv=1000), "cv must be from 2 folds"),
    (LassoLOO(cv="five"), "cv must be None, a number of folds"),
    (LassoLOO(cv=True), "cv must be None, a number of folds"),
    (LassoLOO(cv=[1, 2]), "expected groups, a splitter|groups must have one value"),
    (LassoLOO(cv=[]), "there is no fold: give at least one split"),
    (LassoLOO(cv=KFold), "expected groups, a splitter .* got <class"),
    (LassoLOO(scoring="acc"), "scoring='acc' is not known"),
    (LassoLOO(scoring=3), "scoring must be the name of a scorer"),
    (LassoLOO(scoring=["r2", "mae"]), "scoring must be the name of a scorer"),
    (LassoLOO(alphas=[1.0], scoring="accuracy"), "'accuracy' scores classes, .* take 'r2'"),
    (LassoLOO(alphas=[1.0], scoring="auc"), "scores classes"),
    (LassoLOO(alphas=[1.0], scoring="f1"), "scores classes"),
    (LassoLOO(penalty_factors=[1, 2]), "penalty_factors must have one number a column"),
    (LassoLOO(penalty_factors=[1, 2, -1]), "penalty_factors must be at least 0"),
    (LassoLOO(penalty_factors=[0, 0, 0]), "not all of them 0"),
    (LassoLOO(penalty_factors="equal"), "penalty_factors must be 3 numbers"),
    (LassoLOO(bounds=(1, -1)), "lower must not be above upper"),
    (LassoLOO(bounds=3), "bounds must be"),
    (LassoLOO(bounds=np.array(3.0)), "bounds must be"),
    (LassoLOO(bounds=np.zeros((3, 2))), "bounds must be"),
    (LassoLOO(bounds=("a", 1)), "lower bounds must be numbers"),
    (LassoLOO(bounds=([0, 0], 1)), "one a column"),
    (LassoLOO(positive="yes"), "positive must be True or False"),
    (GeneralizedLinearLOO(class_weight="balanced"), "class_weight is for classifiers"),
    (GeneralizedLinearLOO(class_weight={1: 2.0}), "class_weight is for classifiers"),
    (GeneralizedLinearLOO(penalty="fused_lasso", penalty_factors=[1, 1, 2]), "penalty_factors, bounds and"),
    (LassoLOO(max_iter=0), "max_iter must be a whole number"),
    (LassoLOO(max_iter=2.5), "max_iter must be a whole number"),
    (LassoLOO(tol="x"), "tol must be a number"),
    (LassoLOO(tol=-1.0), "tol must be a number"),
    (LassoLOO(n_jobs="all"), "n_jobs must be None or a whole number"),
    (LassoLOO(n_jobs=0), "n_jobs must be None or a whole number"),
    (LassoLOO(eps="small"), "eps must lie"),
    (LassoLOO(early_stopping="late"), "early_stopping must be True or False"),
    (LassoLOO(alphas=[np.nan]), "alphas must be"),
    (LassoLOO(alphas=-3), "alphas must be at least 1"),
    (ElasticNetLOO(l1_ratio=[0.5, 2.0]), "l1_ratio must lie"),
    (GeneralizedLinearLOO("cauchy"), "loss must be one of"),
    (GeneralizedLinearLOO(penalty="l3"), "penalty must be one of"),
]
OF_CLASSES = [
    (LogisticLOO(class_weight="even"), "class_weight must be None, 'balanced' or a dict"),
    (LogisticLOO(class_weight={"middle": 1.0}), "class_weight names 'middle'"),
    (LogisticLOO(class_weight={"high": -1.0}), "class_weight of 'high' must be"),
    (LogisticLOO(Cs=[1.0], scoring="r2"), "'r2' scores numbers, .* take 'accuracy'"),
    (LogisticLOO(l1_ratio=[0.5, 2.0]), "l1_ratio must be a number in"),
    (LogisticLOO(Cs=[0.0]), "Cs must be"),
]
CALLS = [
    (lambda: onefit.loo(X, Y, RIDGE), "model must be a fitted .* ndarray of shape .* order is model, X, y"),
    (lambda: onefit.loo(RIDGE, Y, X), "are they swapped.* The order is model, X, y"),
    (lambda: LassoLOO().fit(Y, X), r"are they swapped.* The order is fit\(X, y\)"),
    (lambda: onefit.GradientSearchCV(Ridge(), {"alpha": [1, 2]}).fit(Y, X), r"The order is fit\(X, y\)"),
    (lambda: LassoLOO(cv=GroupKFold(3)).fit(X, Y), r"cannot split .*: give fit\(X, y, groups=g\), a group"),
    (lambda: onefit.loo(RIDGE, X, Y, groups=GroupKFold(3)), r"give list\(cv\.split\(X, y, groups\)\), its"),
    (lambda: LassoLOO(cv=KFold(500)).fit(X, Y), f"cannot split .* n_samples={N}$"),
    (lambda: onefit.loo(RIDGE, None, Y), "X is None"),
    (lambda: onefit.loo(RIDGE, X, None), "y .*None"),
    (lambda: onefit.loo(RIDGE, X, LABELS), "y holds text"),
    (lambda: onefit.loo(RIDGE, X, Y, exact="no"), "exact must be True or False"),
    (lambda: onefit.loo(RIDGE, X, Y, rng="a"), "rng must be"),
    (lambda: onefit.loo(RIDGE, X, Y, rng=0.5), "rng must be"),
    (lambda: onefit.loo(RIDGE, X, Y, rng=-1), "rng must be"),
    (lambda: onefit.loo(RIDGE, X, Y).score("accuracy"), "scores classes"),
    (lambda: onefit.loo(LOGISTIC, X, LABELS).score("r2"), "scores numbers"),
    (lambda: onefit.loo(THREE, X, np.arange(N) % 3).score("roc_auc"), "take 'roc_auc_ovr'"),
    (lambda: onefit.loo(RIDGE, X, Y).score("nothing"), "is not known"),
    (lambda: onefit.loo(RIDGE, X, Y).confidence_interval(2), "coverage must be a number between 0"),
    (lambda: onefit.loo(RIDGE, X, Y).plot(kind="roc"), "probabilities of two classes"),
    (lambda: onefit.risk.KFold("3"), "n_splits must be a whole number, at least 2, got '3'"),
    (lambda: onefit.risk.KFold(None), "n_splits must be a whole number"),
    (lambda: onefit.risk.KFold(2.5), "n_splits must be a whole number"),
    (lambda: onefit.risk.KFold(shuffle="no"), "shuffle must be True or False"),
    (lambda: onefit.risk.KFold(random_state="a"), "random_state must be None, a whole number"),
    (lambda: onefit.risk.MonteCarlo(2.5), "n_splits must be a whole number, at least 1, got 2.5"),
    (lambda: onefit.risk.MonteCarlo(train_size="most"), "train_size must be a number between 0 and 1"),
    (lambda: onefit.risk.MonteCarlo(random_state="a"), "random_state must be None, a whole number"),
    (lambda: onefit.risk.LeaveQOut(2.5), "q must be a whole number, at least 1, got 2.5"),
    (lambda: onefit.risk.LeaveQOut(2, n_draws="all"), "n_draws must be a whole number"),
    (lambda: onefit.risk.LeaveQOut(2, random_state=-1), "random_state must be a whole number from 0"),
    (lambda: onefit.risk.HeldOut(None), "test_size must be a number between 0 and 1"),
    (lambda: onefit.risk.HeldOut(random_state="a"), "random_state must be None, a whole number"),
    (lambda: onefit.risk.Permutation("3"), "n_permutations must be a whole number"),
    (lambda: onefit.risk.Permutation(random_state="a"), "random_state must be None, a whole number"),
    (lambda: onefit.evaluate(RIDGE, Y, X, onefit.risk.GCV()), "are they swapped"),
    (lambda: onefit.evaluate(Ridge(), X, Y, onefit.risk.GCV()), "not fitted"),
    (lambda: onefit.evaluate(RIDGE, SOURCE, None, onefit.risk.GCV()), "GCV needs all rows at once, .* Leave"),
    (lambda: onefit.evaluate(RIDGE, SOURCE, None, onefit.risk.KFold(4)), "KFold needs all rows at once"),
    (lambda: onefit.compare(RIDGE, LOGISTIC), r"write onefit\.loo\(model, X, y\)"),
    (lambda: onefit.compare(onefit.loo(RIDGE, X, Y)), "at least two models"),
    (lambda: onefit.compare(onefit.loo(RIDGE, X, Y), onefit.loo(LOGISTIC, X, LABELS)), "judged by"),
    (lambda: onefit.compare(LassoLOO().fit(X, Y), LassoLOO().fit(X[1:], Y[1:])), "judged on other rows"),
    (lambda: onefit.loo(TRANSFORMED, X, Y), r"onefit\.loo\(model\.regressor_"),
    (lambda: PoissonLOO(alphas=[1.0]).fit(X, Y, offset=np.log(np.zeros(N) + 0.0)), r"offset\[0\] = -inf"),
    (lambda: PoissonLOO(alphas=[1.0]).fit(X, Y, offset=[1.0, 2.0]), "offset must have one number a row"),
    (lambda: PoissonLOO(alphas=[1.0]).fit(X, Y, offset="log"), "offset must be"),
    (lambda: LogisticLOO(Cs=[1.0], positive=True).fit(X, np.arange(N) % 3), "for one output"),
    (lambda: LassoLOO(alphas=[1.0]).fit(X, Y, groups=np.zeros(N)), "all rows are in one group"),
    (lambda: LassoLOO(alphas=[1.0]).fit(X, Y, groups=[1, 2]), "groups must have one value a row"),
    (lambda: LogisticLOO(Cs=[1.0]).fit(X, LABELS, groups=LABELS), "no training row of class"),
    (lambda: LassoLOO(alphas=[1.0]).fit(TABLE, Y).predict(TABLE[["b", "a", "c"]]), "same order"),
    (lambda: LassoLOO(alphas=[1.0]).fit(X, Y).predict(None), "X is None"),
    (lambda: onefit.loo(QUANTILE, X, Y, np.arange(N) == 3), "at least 2 rows with weight, there are 1"),
    (
        lambda: onefit.loo(WITHOUT_A_CLASS, X, np.arange(N) % 3, TWO_CLASSES),
        "rows all have weight zero",
    ),
    (lambda: onefit.GradientSearchCV(Ridge(), [(0.1, 10.0)]).fit(X, Y), "param_bounds must be a dictionary"),
    (lambda: onefit.GradientSearchCV(Ridge, {"alpha": (0.1, 10.0)}).fit(X, Y), "estimator must be a model"),
    (lambda: onefit.GradientSearchCV(None, {"alpha": (0.1, 10.0)}).fit(X, Y), "estimator must be a model"),
    (lambda: onefit.loo(RIDGE, X, Y, groups=KFold), "expected groups, a splitter .* got <class"),
    (lambda: onefit.loo(RIDGE, X, Y, groups=5), r"got 5: for 5 folds KFold\(5, shuffle=True\)"),
    (lambda: onefit.loo(RIDGE, X, Y).plot(kind="bar"), "kind must be one of left-out, calibration"),
    (lambda: onefit.loo(RIDGE, TABLE, "y"), "y is 'y', a name.* pass frame.drop"),
    (lambda: LassoLOO().fit(TABLE, "y"), "y is 'y', a name.* pass frame.drop"),
    (lambda: LogisticLOO().fit(TABLE, "y"), "y is 'y', a name.* pass frame.drop"),
    (lambda: onefit.CoefficientPathDisplay.from_estimator(RIDGE), "this Ridge has no path of strengths"),
    (
        lambda: onefit.RiskPathDisplay.from_estimator(LassoLOO()),
        "this LassoLOO has no path .* once it is fitted",
    ),
    (lambda: losses.Quantile(1.0), "level must be a number between 0 and 1"),
    (lambda: losses.Huber(-1.0), "delta must be a positive number"),
    (lambda: losses.ConcomitantHuber(0.0), "epsilon must be a positive number"),
    (lambda: losses.EpsilonInsensitive(-0.1), "epsilon must be a finite number that is at least 0"),
    (lambda: losses.SquaredEpsilonInsensitive(np.nan), "epsilon must be a finite number"),
]
RIDGE = Ridge().fit(X, Y)
LOGISTIC = LogisticRegression().fit(X, LABELS)
THREE = LogisticRegression().fit(X, np.arange(N) % 3)
QUANTILE = QuantileRegressor(alpha=0.01).fit(X, Y, np.arange(N) == 3)
TWO_CLASSES = (np.arange(N) % 3 != 1).astype(float)
WITHOUT_A_CLASS = LinearSVC().fit(X, np.arange(N) % 3, TWO_CLASSES)
TRANSFORMED = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp).fit(X, Y)
REFUSED = (ValueError, TypeError, onefit.UnsupportedModelError)


def _response(name):
    return LABELS if name == "logistic" else Y


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("bad", ROWS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_rows(name, bad):
    rows, said = ROWS[bad]
    with pytest.raises(REFUSED, match=said):
        clone(ESTIMATORS[name]).fit(rows, _response(name))


@pytest.mark.parametrize("bad", RESPONSES)
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "logistic"])
def test_responses(name, bad):
    response, said = RESPONSES[bad]
    with pytest.raises(REFUSED, match=said):
        clone(ESTIMATORS[name]).fit(X, response)


@pytest.mark.parametrize("bad", NUMBERS)
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "logistic"])
def test_responses_that_are_no_numbers(name, bad):
    response, said = NUMBERS[bad]
    with pytest.raises(REFUSED, match=said):
        clone(ESTIMATORS[name]).fit(X, response)


@pytest.mark.parametrize("bad", WEIGHTS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_weights(name, bad):
    weights, said = WEIGHTS[bad]
    with pytest.raises(REFUSED, match=said):
        clone(ESTIMATORS[name]).fit(X, _response(name), weights)


@pytest.mark.parametrize("given", [(0.1, 10.0), [0.1, 1.0, 10.0]], ids=["bounds", "grid"])
@pytest.mark.parametrize("bad", WEIGHTS)
def test_weights_of_a_search(bad, given):
    """As elsewhere, before anything is fitted."""
    weights, said = WEIGHTS[bad]
    with pytest.raises(REFUSED, match=said) as refusal:
        onefit.GradientSearchCV(Ridge(), {"alpha": given}).fit(X, Y, weights)
    assert "fitted in the middle" not in str(refusal.value)


@pytest.mark.parametrize(("model", "said"), SETTINGS, ids=lambda value: repr(value)[:60])
def test_settings(model, said):
    with pytest.raises(REFUSED, match=said):
        model.fit(X, Y)


@pytest.mark.parametrize(("model", "said"), OF_CLASSES, ids=lambda value: repr(value)[:60])
def test_settings_of_classifiers(model, said):
    with pytest.raises(REFUSED, match=said):
        model.fit(X, LABELS)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("k", range(len(CALLS)))
def test_calls(k):
    call, said = CALLS[k]
    with pytest.raises(REFUSED, match=said):
        call()


GOOD = {
    "objects": X.astype(object),
    "whole numbers": np.round(X * 10).astype(int),
    "lists": X.tolist(),
    "a mask that hides nothing": np.ma.array(X, mask=False),
    "single precision": X.astype(np.float32),
    "sparse": sp.csr_array(X),
    "numbers in text": X.round(3).astype(str),
}


@pytest.mark.parametrize("kind", GOOD)
def test_what_looks_bad_and_is_right(kind):
    rows = GOOD[kind]
    plain = rows.toarray() if kind == "sparse" else np.asarray(rows, dtype=np.float64)
    found, expected = LassoLOO(alphas=[0.1]).fit(rows, Y), LassoLOO(alphas=[0.1]).fit(plain, Y)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)


@pytest.mark.parametrize("model", [LassoLOO(n_jobs=2, max_iter=0), LassoLOO(n_jobs=0)], ids=repr)
def test_what_is_refused_leaves_no_setting_of_joblib_behind(model):
    before = effective_n_jobs()
    with pytest.raises(ValueError, match="must be"):
        model.fit(X, Y)
    assert effective_n_jobs() == before


def test_a_search_names_its_bounds_and_what_is_given_by_name():
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30.0)
    with pytest.raises(ValueError, match="middle of param_bounds"):
        onefit.GradientSearchCV(Ridge(), {"alpha": (-10.0, 1.0)}).fit(X, y)
    model = onefit.GeneralizedLinear("huber", "elasticnet")
    with pytest.raises(ValueError, match="penalty is given by name, 'elasticnet': pass an object"):
        onefit.GradientSearchCV(model, {"penalty__alpha": (0.1, 1.0)}).fit(X, y)


@pytest.mark.parametrize("power", [0.5, np.nan, np.inf])
def test_powers_that_no_family_has(power):
    with pytest.raises(ValueError, match=r"power must be a number outside of \(0, 1\)"):
        losses.Tweedie(power)
    model = TweedieRegressor().fit(X, np.abs(Y))
    model.power = power
    with pytest.raises(ValueError, match="power must be"):
        onefit.loo(model, X, np.abs(Y))


def test_no_ratio_at_all():
    with pytest.raises(
        ValueError, match=r"l1_ratio must be a number in \[0, 1\] or a list of some, got \[\]"
    ):
        onefit.LogisticLOO(l1_ratio=[]).fit(X, np.median(Y) < Y)

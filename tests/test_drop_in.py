"""What people pass to the ``*CV`` classes: left-out values are those of refits of the same problem."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import d2_tweedie_score, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RepeatedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import (
    ElasticNetLOO,
    GeneralizedLinearLOO,
    GradientSearchCV,
    LassoLOO,
    LogisticLOO,
    PoissonLOO,
    RidgeLOO,
)
from onefit.losses import Offset, Poisson

N, P = 30, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, P)) * (RNG.random((N, P)) < 0.7)
ETA = X @ np.array([0.8, -0.6, 0.0, 0.3])
GROUPS = np.repeat(np.arange(10), 3)
OFFSET = 0.5 * RNG.normal(size=N)
WEIGHTS = RNG.integers(1, 4, size=N).astype(float)
FACTORS = np.array([0.0, 1.0, 2.0, 0.5])
TARGETS = {
    "numbers": ETA + 0.5 * RNG.normal(size=N) + 1.0,
    "classes": np.where(ETA + RNG.logistic(size=N) > 0, "yes", "no"),
    "three": np.array(["a", "b", "c"])[np.digitize(ETA + 0.7 * RNG.normal(size=N), [-0.4, 0.4])],
    "counts": RNG.poisson(np.exp(ETA)).astype(float),
}
MODELS = {
    "ridge": (RidgeLOO(alphas=[2.0]), "numbers"),
    "lasso": (LassoLOO(alphas=[0.05]), "numbers"),
    "elastic net": (ElasticNetLOO(alphas=[0.1]), "numbers"),
    "logistic": (LogisticLOO(Cs=[0.7]), "classes"),
    "logistic lasso": (LogisticLOO(Cs=[0.7], l1_ratio=1.0), "classes"),
    "multinomial": (LogisticLOO(Cs=[0.7]), "three"),
    "poisson": (PoissonLOO(alphas=[0.1]), "counts"),
    "huber": (GeneralizedLinearLOO("huber", alphas=[1.0]), "numbers"),
}
OF_ONE = [name for name in MODELS if name != "multinomial"]
OF_CLASSES = ["logistic", "logistic lasso", "multinomial"]
WITH_OFFSET = ["logistic", "logistic lasso", "poisson"]
GIVEN = {
    "factors": {"penalty_factors": FACTORS},
    "positive": {"positive": True},
    "bounds": {"bounds": (-0.3, [0.5, np.inf, 1.0, 0.1])},
    "balanced": {"class_weight": "balanced"},
    "class weights": {"class_weight": "given"},
    "offset": {"offset": OFFSET},
    "groups": {"groups": GROUPS},
    "cv": {"cv": 4},
    "positive groups": {"penalty_factors": FACTORS, "positive": True, "groups": GROUPS},
    "offset in folds": {"offset": OFFSET, "cv": KFold(5), "penalty_factors": FACTORS},
}
CASES = (
    [(name, given) for given in ("factors", "groups", "cv") for name in MODELS]
    + [(name, "positive") for name in OF_ONE]
    + [(name, given) for name in OF_CLASSES for given in ("balanced", "class weights")]
    + [(name, "offset") for name in WITH_OFFSET]
    + [("ridge", "bounds"), ("ridge", "positive groups"), ("poisson", "offset in folds")]
)
VARIANTS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "weights": {"sample_weight": WEIGHTS},
    "sparse": {"store": sp.csr_array},
}


def _folds(settings, y):
    """What leaves, as scikit-learn would split."""
    if "groups" in settings:
        return [np.flatnonzero(g == GROUPS) for g in np.unique(GROUPS)]
    cv = settings.get("cv")
    if cv is None:
        return list(np.arange(N)[:, None])
    splitter = cv if not isinstance(cv, int) else (StratifiedKFold if y.dtype.kind == "U" else KFold)(cv)
    return [test for _, test in splitter.split(X, y)]


def _case(name, given, variant):
    model, kind = MODELS[name]
    y, given = TARGETS[kind], dict(GIVEN[given])
    if given.get("class_weight") == "given":
        given["class_weight"] = dict(zip(np.unique(y), (2.0, 0.5, 1.5), strict=False))
    in_fit = {key: given.pop(key) for key in ("offset", "groups") if key in given}
    variant = dict(VARIANTS[variant])
    store, weights = variant.pop("store", np.asarray), variant.pop("sample_weight", None)
    return clone(model).set_params(**given, **variant), y, in_fit, store, weights


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("name", "given"), CASES)
def test_left_out_values_are_those_of_refits(name, given, variant):
    model, y, in_fit, store, weights = _case(name, given, variant)
    by_row = {} if weights is None else {"sample_weight": weights}
    model.fit(store(X), y, **in_fit, **by_row)
    found = model.loo_
    assert np.isfinite(found.approx_error)
    assert found.approx_error <= 0.11 * found.std_error  # what max_error allows, and a rounding
    np.testing.assert_array_equal(found.rows, np.arange(N))
    folds = _folds(GIVEN[given], y)
    for rows in folds[:: max(1, len(folds) // 5)]:  # a few of them
        kept = np.setdiff1d(np.arange(N), rows)
        own = {key: value[kept] for key, value in by_row.items()}
        offset = in_fit.get("offset")
        shifted = {} if offset is None else {"offset": offset[kept]}
        refit = clone(model).set_params(cv=2).fit(store(X[kept]), y[kept], **own, **shifted)
        expected = refit._eta(store(X[rows]), None if offset is None else offset[rows])
        difference = found.decision[rows] - expected
        if name == "multinomial":  # up to what all scores of a row have in common
            difference = difference - difference.mean(axis=1, keepdims=True)
        off = np.abs(difference).reshape(len(rows), -1).max(axis=1)
        assert np.all(off <= 2.0 * found.bounds[rows] + 2e-6 * np.abs(found.decision).max())


# --- the fits themselves, by other means -----------------------------------------------------------------


def test_factors_are_columns_in_other_units():
    factors = np.array([0.5, 1.0, 2.0, 4.0])
    ours = LassoLOO(alphas=[0.05], penalty_factors=factors).fit(X, TARGETS["numbers"])
    theirs = Lasso(0.05, tol=1e-12).fit(X / factors, TARGETS["numbers"])
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / factors, atol=1e-7)


def test_factors_by_name_are_those_of_their_columns():
    pd = pytest.importorskip("pandas")
    table, y = pd.DataFrame(X, columns=list("abcd")), TARGETS["numbers"]
    named = LassoLOO(alphas=[0.05], penalty_factors={"c": 0.0, "a": 2.0}).fit(table, y)
    ordered = LassoLOO(alphas=[0.05], penalty_factors=[2.0, 1.0, 0.0, 1.0]).fit(X, y)
    np.testing.assert_array_equal(named.coef_, ordered.coef_)
    with pytest.raises(ValueError, match=r"name columns that X has not: \['z'\]; it has"):
        LassoLOO(penalty_factors={"z": 0.0}).fit(table, y)
    with pytest.raises(ValueError, match="an X with names of columns"):
        LassoLOO(penalty_factors={"a": 0.0}).fit(X, y)


def test_columns_of_factor_zero_are_not_penalised_and_of_infinity_left_out():
    y = TARGETS["numbers"]
    factors = np.array([0.0, np.inf, 0.0, 1e9])
    ours = RidgeLOO(alphas=[1.0], penalty_factors=factors).fit(X, y)
    design = np.column_stack([X[:, [0, 2]], np.ones(N)])
    np.testing.assert_allclose(ours.coef_[[0, 2]], np.linalg.lstsq(design, y)[0][:2], atol=1e-6)
    assert ours.coef_[1] == 0.0
    strongest = LassoLOO(penalty_factors=[0.0, 1.0, 1.0, 1.0]).fit(X, y).coef_path_[0]
    assert strongest[0] != 0.0
    assert not strongest[1:].any()


def test_positive_is_that_of_scikit_learn():
    ours = LassoLOO(alphas=[0.02], positive=True).fit(X, TARGETS["numbers"])
    theirs = Lasso(0.02, positive=True, tol=1e-12).fit(X, TARGETS["numbers"])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)


@pytest.mark.parametrize("weight", ["balanced", {"no": 3.0, "yes": 0.5}])
def test_class_weights_are_those_of_scikit_learn(weight):
    ours = LogisticLOO(Cs=[0.7], class_weight=weight).fit(X, TARGETS["classes"], WEIGHTS)
    theirs = LogisticRegression(C=0.7, class_weight=weight, tol=1e-10, solver="newton-cholesky")
    np.testing.assert_allclose(ours.coef_, theirs.fit(X, TARGETS["classes"], WEIGHTS).coef_, atol=1e-6)
    again = onefit.loo(theirs, X, TARGETS["classes"], WEIGHTS)
    np.testing.assert_allclose(ours.loo_.losses, again.losses, rtol=1e-5)


def test_an_offset_is_added_to_the_linear_predictor():
    y = TARGETS["counts"]

    def objective(theta):
        eta = X @ theta[:-1] + theta[-1] + OFFSET
        return np.mean(np.exp(eta) - y * eta) + 0.05 * theta[:-1] @ theta[:-1]

    best = minimize(objective, np.zeros(P + 1), tol=1e-12).x
    ours = PoissonLOO(alphas=[0.1]).fit(X, y, offset=OFFSET)
    np.testing.assert_allclose(np.append(ours.coef_, ours.intercept_), best, atol=1e-5)
    np.testing.assert_allclose(
        ours.predict(X, offset=OFFSET), np.exp(X @ best[:-1] + best[-1] + OFFSET), rtol=1e-4
    )
    with pytest.raises(onefit.UnsupportedModelError, match=r"model\.loo_"):
        onefit.loo(ours, X, y)


def test_an_offset_is_scored_and_cross_validated():
    counts = PoissonLOO(alphas=[0.1]).fit(X, TARGETS["counts"], offset=OFFSET)
    wanted = d2_tweedie_score(TARGETS["counts"], counts.predict(X, OFFSET), power=1.0)
    assert counts.score(X, TARGETS["counts"], offset=OFFSET) == pytest.approx(wanted)
    classes = LogisticLOO(Cs=[0.7]).fit(X, TARGETS["classes"], offset=OFFSET)
    odds = classes.decision_function(X, OFFSET)
    np.testing.assert_allclose(odds, X @ classes.coef_[0] + classes.intercept_[0] + OFFSET)
    np.testing.assert_allclose(classes.predict_log_proba(X, OFFSET)[:, 1], -np.logaddexp(0.0, -odds))
    with config_context(enable_metadata_routing=True):
        model = PoissonLOO(alphas=[0.1]).set_fit_request(offset=True).set_score_request(offset=True)
        found = cross_validate(model, X, TARGETS["counts"], cv=KFold(3), params={"offset": OFFSET})
    train, test = next(iter(KFold(3).split(X)))
    first = clone(model).fit(X[train], TARGETS["counts"][train], offset=OFFSET[train])
    own = d2_tweedie_score(TARGETS["counts"][test], first.predict(X[test], OFFSET[test]), power=1.0)
    assert found["test_score"][0] == pytest.approx(own)


def test_the_offset_of_a_constant_model():
    exposure = np.exp(OFFSET)
    y = np.stack([TARGETS["counts"], OFFSET], axis=1)
    rate = float(Offset(Poisson()).start(y, WEIGHTS))
    assert np.exp(rate) == pytest.approx(WEIGHTS @ TARGETS["counts"] / (WEIGHTS @ exposure))
    with pytest.raises(ValueError, match="subtract it from y"):
        GeneralizedLinearLOO("hinge").fit(X, TARGETS["classes"], offset=OFFSET)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@pytest.mark.parametrize("model", [LassoLOO(alphas=[0.05]), ElasticNetLOO(alphas=[0.1])], ids=repr)
def test_several_targets_have_one_strength_and_are_otherwise_alone(model):
    Y = np.stack([TARGETS["numbers"], -2.0 * TARGETS["numbers"] + X[:, 2], X[:, 1] ** 2], axis=1)
    together = clone(model).fit(X, Y)
    alone = [clone(model).fit(X, y) for y in Y.T]
    np.testing.assert_allclose(together.coef_, [one.coef_ for one in alone], atol=1e-8)
    np.testing.assert_allclose(together.predict(X), np.stack([one.predict(X) for one in alone], axis=1))
    for i in range(0, N, 7):
        kept = np.arange(N) != i
        refit = clone(model).fit(X[kept], Y[kept])
        off = np.abs(together.loo_.predictions[i] - refit.predict(X[[i]])[0]).max()
        assert off <= together.loo_.bounds[i] + 1e-6
    path = clone(model).set_params(alphas=12).fit(X, Y)
    assert path.coef_path_.shape[1:] == (P, 3)
    assert path.loo_.value == pytest.approx(path.risk_path_[list(path.alphas_).index(path.alpha_)], rel=0.05)


# --- scores ----------------------------------------------------------------------------------------------


SCORES = ["neg_mean_squared_error", "neg_mean_absolute_error", "neg_root_mean_squared_error", "r2"]


@pytest.mark.filterwarnings("ignore::onefit.ShortPathWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scoring", [*SCORES, "mae", "neg_max_error", "explained_variance"])
def test_risks_are_minus_the_scores_of_left_out_predictions(scoring, weighted):
    if scoring == "neg_max_error" and weighted:
        pytest.skip("max_error takes no weights")
    y, weights = TARGETS["numbers"], {"sample_weight": WEIGHTS} if weighted else {}
    tuned = RidgeLOO(alphas=[100.0, 3.0, 0.1], scoring=scoring, selection="min").fit(X, y, **weights)
    for alpha, risk in zip(tuned.alphas_, tuned.risk_path_, strict=True):
        est = RidgeLOO(alphas=[alpha]).fit(X, y, **weights).loo_
        sign = 1.0 if scoring == "mae" else -1.0
        assert risk == pytest.approx(sign * est.score(scoring), rel=1e-9)
    assert tuned.alpha_ == tuned.alphas_[tuned.risk_path_.argmin()]
    assert set(tuned.guarantee_path_) == {"exact"}


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore::onefit.ShortPathWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "neg_log_loss", "neg_brier_score", "f1_macro"])
def test_risks_of_classifiers_are_minus_the_scores(scoring, weighted):
    y, weights = TARGETS["classes"], {"sample_weight": WEIGHTS} if weighted else {}
    tuned = LogisticLOO(Cs=[0.01, 1.0], scoring=scoring, selection="min").fit(X, y, **weights)
    for C, risk in zip(tuned.Cs_, tuned.risk_path_, strict=True):
        est = LogisticLOO(Cs=[C]).fit(X, y, **weights).loo_
        assert risk == pytest.approx(-est.score(scoring), rel=1e-3)


@pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
@pytest.mark.parametrize(
    ("classes", "scoring"),
    [(2, "roc_auc"), (2, "balanced_accuracy"), (3, "roc_auc_ovr"), (3, "roc_auc_ovo")],
)
def test_predictions_that_differ_by_rounding_are_ties(classes, scoring):
    """A constant model of balanced classes knows nothing; rounding could seem to tell everything."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(0, classes, 60)
    model = onefit.LogisticLOO([1e-4, 1e-3], l1_ratio=1, class_weight="balanced", scoring=scoring)
    model.fit(X, y)
    assert not model.coef_.any()
    np.testing.assert_allclose(model.risk_path_, -0.5, rtol=1e-12)
    assert model.loo_.score(scoring) == pytest.approx(0.5)


def test_the_error_of_an_area_is_that_of_delong():
    rng = np.random.default_rng(1)
    areas, errors = [], []
    for _ in range(200):
        truth = rng.random(80) < 0.4
        scores = rng.normal(size=80) + truth
        labels = truth.astype(int)
        probabilities = np.stack([1 - scores, scores], axis=1)
        pooled = onefit._scoring.Pooled(labels, probabilities, scores, "predict_proba", np.array([0, 1]))
        losses = onefit._scoring.row_losses("auc", pooled)
        areas.append(roc_auc_score(labels, scores))
        assert -losses.mean() == pytest.approx(areas[-1])
        errors.append(losses.std(ddof=1) / np.sqrt(80))
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.12)


@pytest.mark.slow
def test_a_jackknife_over_blocks_knows_the_error_of_any_score():
    rng = np.random.default_rng(2)
    found, errors = [], []
    for _ in range(200):
        y = rng.normal(size=100)
        predictions = y + 0.5 * rng.normal(size=100)
        pooled = onefit._scoring.Pooled(y, predictions, predictions, "predict")
        losses = onefit._scoring.row_losses("explained_variance", pooled)
        found.append(-losses.mean())
        errors.append(losses.std(ddof=1) / 10.0)
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.2)


# --- folds and routing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, KFold(3), list(KFold(3).split(X))], ids=["int", "splitter", "splits"])
def test_ways_to_name_folds(cv):
    tuned = RidgeLOO(alphas=[5.0, 0.5], cv=cv, selection="min").fit(X, TARGETS["numbers"])
    losses = np.empty(N)
    for train, test in KFold(3).split(X):
        refit = RidgeLOO(alphas=[tuned.alpha_]).fit(X[train], TARGETS["numbers"][train])
        losses[test] = (refit.predict(X[test]) - TARGETS["numbers"][test]) ** 2
    assert tuned.loo_.value == pytest.approx(losses.mean())


@pytest.mark.parametrize("model", [LassoLOO(alphas=[0.05, 0.02]), LogisticLOO(Cs=[0.3, 3.0])], ids=str)
@pytest.mark.parametrize("scored", [False, True])
def test_weights_of_folds_whose_rows_are_mixed(model, scored):
    folds = [KFold(3, shuffle=True, random_state=0), StratifiedKFold(3, shuffle=True, random_state=0)]
    of_classes = isinstance(model, LogisticLOO)
    y, weights = TARGETS["classes" if of_classes else "numbers"], np.linspace(0.1, 3.0, N)
    scoring = ("log-loss" if of_classes else "mae") if scored else None
    tuned = clone(model).set_params(cv=folds[of_classes], scoring=scoring, selection="min")
    tuned.fit(X, y, weights)
    for risk, strength in zip(tuned.risk_path_, tuned.Cs_ if of_classes else tuned.alphas_, strict=True):
        losses = np.empty(N)
        for train, test in folds[of_classes].split(X, y):
            if of_classes:
                refit = LogisticRegression(C=strength, tol=1e-10).fit(X[train], y[train], weights[train])
                chances = refit.predict_proba(X[test])
                losses[test] = -np.log(
                    chances[np.arange(len(test)), np.searchsorted(refit.classes_, y[test])]
                )
            else:
                refit = Lasso(strength, tol=1e-12).fit(X[train], y[train], weights[train])
                off = np.abs(refit.predict(X[test]) - y[test])
                losses[test] = off if scored else off**2
        assert risk == pytest.approx(np.average(losses, weights=weights), rel=1e-5)


def test_rows_that_are_judged_often_or_never():
    often = RidgeLOO(alphas=[5.0, 0.5], cv=RepeatedKFold(n_splits=4, n_repeats=2, random_state=0))
    assert often.fit(X, TARGETS["numbers"]).loo_.losses.shape == (2 * N,)
    later = LassoLOO(alphas=5, cv=TimeSeriesSplit(4)).fit(X, TARGETS["numbers"])
    assert later.loo_.rows.min() > 0


def test_groups_reach_a_splitter_and_a_pipeline():
    tuned = RidgeLOO(alphas=[1.0], cv=GroupKFold(5)).fit(X, TARGETS["numbers"], groups=GROUPS)
    whole = tuned.loo_._left_out.sets.removed
    assert all(len(np.unique(GROUPS[rows])) == 2 for rows in whole)
    alone = RidgeLOO(alphas=[1.0]).fit(X, TARGETS["numbers"], groups=GROUPS)
    assert len(alone.loo_._left_out.sets) == 10
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(StandardScaler(), RidgeLOO(alphas=[1.0]).set_fit_request(groups=True))
        steps.fit(X, TARGETS["numbers"], groups=GROUPS)
        assert len(steps[-1].loo_._left_out.sets) == 10


BOUNDS, LISTS = {"alpha": (1e-2, 1e3)}, {"alpha": [0.1, 1.0, 10.0]}


@pytest.mark.parametrize("given", [BOUNDS, LISTS], ids=["bounds", "grid"])
def test_groups_leave_together_in_a_search(given):
    y = TARGETS["numbers"]
    found = GradientSearchCV(Ridge(), given).fit(X, y, groups=GROUPS)
    expected = GradientSearchCV(Ridge(), given, risk=onefit.risk.LeaveGroupOut(GROUPS)).fit(X, y)
    assert found.best_params_ == expected.best_params_
    assert found.best_risk_.value == expected.best_risk_.value
    assert found.best_risk_.std_error == expected.best_risk_.std_error  # over groups, not rows
    by_row = GradientSearchCV(Ridge(), given).fit(X, y)
    assert found.best_risk_.value != by_row.best_risk_.value


def test_groups_reach_the_splitter_of_a_search():
    y = TARGETS["numbers"]
    grid = GridSearchCV(Ridge(), LISTS, cv=GroupKFold(5), scoring="neg_mean_squared_error")
    grid.fit(X, y, groups=GROUPS)
    found = GradientSearchCV(Ridge(), LISTS, cv=GroupKFold(5)).fit(X, y, groups=GROUPS)
    assert found.best_params_ == grid.best_params_
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], grid.cv_results_["mean_test_score"])
    with config_context(enable_metadata_routing=True):
        search = GradientSearchCV(Ridge(), BOUNDS).set_fit_request(groups=True)
        steps = make_pipeline(StandardScaler(), search).fit(X, y, groups=GROUPS)
        own = GradientSearchCV(Ridge(), BOUNDS).fit(StandardScaler().fit_transform(X), y, groups=GROUPS)
        assert steps[-1].best_params_ == own.best_params_


@pytest.mark.parametrize(
    "risk",
    [onefit.risk.KFold(3), onefit.risk.GCV(), onefit.risk.LeaveGroupOut(np.arange(N))],
    ids=lambda risk: type(risk).__name__,
)
def test_groups_and_another_risk_of_a_search(risk):
    with pytest.raises(ValueError, match="groups and risk both say which rows are left out"):
        GradientSearchCV(Ridge(), BOUNDS, risk=risk).fit(X, TARGETS["numbers"], groups=GROUPS)
    with pytest.raises(ValueError, match="groups must have one value a row"):
        GradientSearchCV(Ridge(), BOUNDS).fit(X, TARGETS["numbers"], groups=GROUPS[1:])


def test_weights_reach_the_steps_that_ask_for_them():
    y, weights = TARGETS["numbers"], np.linspace(0.2, 2.0, len(X))
    with config_context(enable_metadata_routing=True):
        steps = [step.set_fit_request(sample_weight=True) for step in (StandardScaler(), Ridge())]
        search = GradientSearchCV(make_pipeline(*steps), {"ridge__alpha": (1e-2, 1e3)})
        search.fit(X, y, sample_weight=weights)
        best = clone(search.estimator).set_params(**search.best_params_).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(search.predict(X), best.predict(X))
        exact = onefit.loo(best, X, y, sample_weight=weights, exact=True)
        assert search.best_risk_.value == pytest.approx(exact.value)


# --- sparse rows as products and concatenations leave them --------------------------------------------------


def _in_any_order(rows, kind, *, write):
    """The same entries, of which some are stored twice and none in order, in memory of its own."""
    whole = kind(rows)
    pieces = [np.arange(whole.indptr[k], whole.indptr[k + 1])[::-1] for k in range(len(whole.indptr) - 1)]
    order = np.concatenate([np.r_[piece, piece[:1]] for piece in pieces])
    halved = np.concatenate([np.r_[0.5, np.ones(len(p) - 1), 0.5] if len(p) else np.ones(0) for p in pieces])
    ends = np.cumsum([0, *(len(piece) + bool(len(piece)) for piece in pieces)])
    parts = [whole.data[order] * halved, whole.indices[order], ends.astype(np.int32)]
    for part in parts:
        part.setflags(write=write)
    return kind(tuple(parts), shape=rows.shape)


@pytest.mark.costly
@pytest.mark.parametrize("write", [True, False], ids=["writable", "read-only"])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix])
@pytest.mark.parametrize("name", MODELS)
def test_entries_of_sparse_rows_stay_as_they_are(name, kind, write):
    model, target = MODELS[name]
    given = _in_any_order(X, kind, write=write)
    before = [part.copy() for part in (given.data, given.indices, given.indptr)]
    found = clone(model).fit(given, TARGETS[target])
    judged = onefit.loo(found, given, TARGETS[target])
    found.predict(given)
    for part, own in zip(before, (given.data, given.indices, given.indptr), strict=True):
        np.testing.assert_array_equal(part, own)
    wanted = clone(model).fit(kind(X), TARGETS[target])
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-8)
    np.testing.assert_allclose(judged.value, onefit.loo(wanted, kind(X), TARGETS[target]).value)

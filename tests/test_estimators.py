"""The self-tuning estimators: scikit-learn's checks, and their truths."""

import pickle
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeCV,
)
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import parametrize_with_checks

import onefit
from builders import slow_where
from onefit import ElasticNetLOO, GeneralizedLinearLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO, penalties
from onefit.leave_out.step import one_step
from onefit.risk.means import mean_and_error

SEVERAL = [RidgeLOO(), LassoLOO(), ElasticNetLOO(), LogisticLOO(), PoissonLOO()]
FEW = [  # a path is as long as it may be only where its length is what is tested
    RidgeLOO(alphas=6),
    LassoLOO(alphas=6),
    ElasticNetLOO(alphas=6),
    LogisticLOO(Cs=6),
    PoissonLOO(alphas=6),
]
PER_TARGET = [RidgeLOO(alphas=6, alpha_per_target=True)]
ONE_STRENGTH = [
    RidgeLOO(alphas=[1.0]),
    LassoLOO(alphas=[0.1]),
    ElasticNetLOO(alphas=[0.1]),
    LogisticLOO(Cs=[1.0]),
    LogisticLOO(Cs=[1.0], l1_ratio=1.0),
    PoissonLOO(alphas=[1.0]),
]


def _stands_for_another(estimator, check):
    """Whether the same check runs for a model that tells it as much.

    One strength runs what a path runs, but for weights, and for the sparse data of scikit-learn's checks,
    which three classes separate: there a path of multinomial regression is long.
    """
    is_long = "check_estimator_sparse" in check and isinstance(estimator, LogisticLOO)
    if estimator in PER_TARGET:
        return "multioutput" not in check and "clone" not in check and "no_attributes" not in check
    if estimator in FEW:
        return is_long or "check_regressor_multioutput" in check
    is_plain = getattr(estimator, "l1_ratio", 0.0) != 1.0
    return is_plain and not is_long and "sample_weight" not in check and "multioutput" not in check


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@slow_where(
    _stands_for_another,
    parametrize_with_checks(FEW + ONE_STRENGTH + PER_TARGET),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return 10 * X[:90], y[:90]


def _weights(n):
    return np.random.default_rng(3).integers(0, 3, n).astype(float)


def _refit_losses(model, X, y, loss, **fit_params):
    """Losses of real refits, each without one row; a model that goes on does so from the whole fit."""
    whole, losses = clone(model), []
    if getattr(model, "warm_start", False):
        whole.fit(X, y, **fit_params)
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        weights = {k: v[kept] for k, v in fit_params.items()}
        refit = deepcopy(whole).fit(X[kept], y[kept], **weights)
        losses.append(loss(refit, X[[i]], y[i]))
    return np.array(losses)


def _squared(model, row, value):
    return float((model.predict(row)[0] - value) ** 2)


def _deviance(model, row, value):
    mean = model.predict(row)[0]
    return float(2 * ((value * np.log(value / mean) if value else 0.0) - value + mean))


def _log_loss(model, row, value):
    return float(-np.log(model.predict_proba(row)[0, list(model.classes_).index(value)]))


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_ridge_risks_are_those_of_refits(diabetes, weighted, fit_intercept, wide):
    X, y = diabetes[0][:40], diabetes[1][:40]
    X = np.hstack([X, np.random.default_rng(0).normal(size=(40, 50))]) if wide else X
    params = {"sample_weight": _weights(40)} if weighted else {}
    alphas = [100.0, 1.0, 1e-3]
    model = RidgeLOO(alphas=alphas, fit_intercept=fit_intercept).fit(X, y, **params)
    for alpha, risk, coef in zip(model.alphas_, model.risk_path_, model.coef_path_, strict=True):
        ridge = Ridge(alpha, fit_intercept=fit_intercept)
        losses = _refit_losses(ridge, X, y, _squared, **params)
        assert risk == pytest.approx(np.average(losses, weights=params.get("sample_weight")), rel=1e-6)
        np.testing.assert_allclose(coef, ridge.fit(X, y, **params).coef_, rtol=1e-6, atol=1e-8)
    chosen = list(model.alphas_).index(model.alpha_)
    assert model.loo_.value == pytest.approx(model.risk_path_[chosen], rel=1e-10)


def test_ridge_agrees_with_ridge_cv_and_onefit_loo(diabetes):
    X, y = diabetes
    ours = RidgeLOO(alphas=np.logspace(-3, 3, 13), selection="min").fit(X, y)
    theirs = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(X, y)
    assert ours.alpha_ == theirs.alpha_
    assert ours.loo_.value == pytest.approx(-theirs.best_score_, rel=1e-9)
    again = onefit.loo(Ridge(ours.alpha_).fit(X, y), X, y)
    np.testing.assert_allclose(ours.loo_.predictions, again.predictions, rtol=1e-9)
    np.testing.assert_allclose(ours.loo_.leverages, again.leverages, atol=1e-10)


def test_ridge_with_several_outputs(diabetes):
    X, y = diabetes
    Y = np.stack([y, y**2 / 100, -y], axis=1)
    model = RidgeLOO(alphas=[1.0, 10.0]).fit(X, Y)
    ridge = Ridge(model.alpha_).fit(X, Y)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), ridge.predict(X), rtol=1e-8)
    left_out = cross_val_predict(ridge, X, Y, cv=LeaveOneOut())
    np.testing.assert_allclose(model.loo_.predictions, left_out, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_elastic_net_path(diabetes, weighted, fit_intercept, l1_ratio):
    X, y = diabetes
    params = {"sample_weight": _weights(90)} if weighted else {}
    settings = {"fit_intercept": fit_intercept, "early_stopping": False, "alphas": 12}
    tuned = LassoLOO(**settings) if l1_ratio == 1 else ElasticNetLOO(l1_ratio=l1_ratio, **settings)
    tuned.fit(X, y, **params)
    share = getattr(tuned, "l1_ratio_", 1.0)  # in the terms of scikit-learn
    for alpha, coef in zip(tuned.alphas_, tuned.coef_path_, strict=True):
        reference = ElasticNet(
            alpha, l1_ratio=share, fit_intercept=fit_intercept, tol=1e-10, max_iter=100_000
        )
        np.testing.assert_allclose(coef, reference.fit(X, y, **params).coef_, atol=1e-3)
    assert not tuned.coef_path_[0].any()
    reference = ElasticNet(
        tuned.alpha_, l1_ratio=share, fit_intercept=fit_intercept, tol=1e-10, max_iter=100_000
    )
    losses = _refit_losses(reference, X, y, _squared, **params)
    risk = np.average(losses, weights=params.get("sample_weight"))
    # rows whose pattern changes are not exact; the others are
    assert tuned.loo_.value == pytest.approx(risk, rel=0.03)
    certified = tuned.loo_.certified
    assert certified.any()
    np.testing.assert_allclose(tuned.loo_.losses[certified], losses[certified], rtol=1e-4, atol=1e-3)


def test_lasso_path_judges_like_onefit_loo(diabetes):
    X, y = diabetes
    tuned = LassoLOO(alphas=6, early_stopping=False).fit(X, y)
    path = zip(tuned.alphas_, tuned.risk_path_, tuned.approx_error_path_, strict=True)
    for alpha, risk, off in list(path)[1:]:
        est = onefit.loo(Lasso(alpha, tol=1e-10, max_iter=100_000).fit(X, y), X, y)
        steps = np.mean((y - one_step(est._left_out.fit).eta) ** 2)
        # near the choice rows are solved anew, all of them or a sample; elsewhere along the path they are not
        assert risk == pytest.approx(steps, rel=1e-6) or abs(risk - est.value) <= off + 1e-3 * risk
    assert tuned.loo_.value == tuned.risk_path_[list(tuned.alphas_).index(tuned.alpha_)]


@pytest.mark.parametrize("model", [LassoLOO(), ElasticNetLOO(), RidgeLOO(), LassoLOO(cv=3)], ids=repr)
def test_a_response_of_one_column_is_one_response(diabetes, model):
    X, y = diabetes
    one, column = clone(model).fit(X[:80], y[:80]), clone(model).fit(X[:80], y[:80, None])
    assert column.coef_.shape == (X.shape[1],)
    np.testing.assert_array_equal(column.coef_, one.coef_)
    np.testing.assert_array_equal(column.predict(X), one.predict(X))
    assert column.loo_.value == one.loo_.value


def test_a_share_of_one_is_a_lasso_whatever_the_spread_of_y():
    """Shares are of a response divided by its spread, which may not round."""
    for spread in np.random.default_rng(0).uniform(0.0, 3.0, 200):
        assert ElasticNetLOO(l1_ratio=1.0)._ratios(float(spread)) == [1.0]


def test_lassos_of_several_targets_pass_over_no_strength():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 15)), rng.normal(size=(60, 2))
    model = LassoLOO(alphas=30).fit(X, X[:, :2] + Y)
    steps = np.diff(np.log(model.alphas_))
    assert steps == pytest.approx(np.full(len(steps), np.log(1e-3) / 29))  # of eps
    assert len(steps) >= 10


def test_several_l1_ratios_keep_the_best(diabetes):
    X, y = diabetes
    risks = {r: ElasticNetLOO(20, l1_ratio=r).fit(X, y).risk_path_.min() for r in (0.3, 0.9)}
    both = ElasticNetLOO(20, l1_ratio=[0.3, 0.9]).fit(X, y)
    share = min(risks, key=risks.get) * y.std()
    assert both.l1_ratio_ == pytest.approx(share / (share + 1 - min(risks, key=risks.get)))
    assert both.risk_path_.min() == pytest.approx(min(risks.values()))


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_logistic_path(weighted, l1_ratio):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = scale(X)[:80, :8], np.where(y[:80] > 0, "benign", "malignant")
    params = {"sample_weight": 1.0 + _weights(80)} if weighted else {}
    tuned = LogisticLOO(Cs=[0.02, 0.2, 2.0], l1_ratio=l1_ratio, early_stopping=False, selection="min").fit(
        X, y, **params
    )
    solver = "saga" if l1_ratio else "newton-cholesky"  # the only one for an ℓ1 part, and slow
    for C, coef in zip(tuned.Cs_, tuned.coef_path_, strict=True):
        reference = LogisticRegression(
            C=C, l1_ratio=l1_ratio, solver=solver, tol=1e-8, max_iter=50_000, random_state=0
        )
        np.testing.assert_allclose(coef, reference.fit(X, y, **params).coef_[0], atol=2e-3)
    at_best = LogisticRegression(
        C=tuned.C_,
        l1_ratio=l1_ratio,
        solver=solver,
        tol=1e-5,
        max_iter=50_000,
        random_state=0,
        warm_start=True,
    )
    risk = np.average(_refit_losses(at_best, X, y, _log_loss, **params), weights=params.get("sample_weight"))
    assert tuned.loo_.value == pytest.approx(risk, rel=0.01)
    assert tuned.risk_path_.min() == pytest.approx(tuned.loo_.value)
    assert set(tuned.predict(X)) == {"benign", "malignant"}
    at_best.fit(X, y, **params)
    np.testing.assert_allclose(tuned.predict_proba(X), at_best.predict_proba(X), atol=1e-3)


@pytest.mark.filterwarnings("ignore::onefit.exceptions.ShortPathWarning")
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_multinomial_path(l1_ratio):
    X, y = load_wine(return_X_y=True)
    X, y = scale(X)[::2], y[::2]
    tuned = LogisticLOO(Cs=[0.1, 1.0], l1_ratio=l1_ratio).fit(X, y)
    reference = LogisticRegression(
        C=tuned.C_,
        l1_ratio=l1_ratio,
        solver="saga",
        tol=1e-6,
        max_iter=50_000,
        random_state=0,
        warm_start=True,
    )
    losses = _refit_losses(reference, X, y, _log_loss)
    assert tuned.loo_.value == pytest.approx(losses.mean(), rel=0.01)
    assert tuned.coef_.shape == (3, 13)
    assert tuned.decision_function(X).shape == (89, 3)
    np.testing.assert_allclose(tuned.predict_proba(X), reference.fit(X, y).predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_poisson_path(diabetes, weighted):
    X, y = diabetes[0][:50], diabetes[1][:50]
    y = np.random.default_rng(0).poisson(y / 40)
    params = {"sample_weight": 1.0 + _weights(50)} if weighted else {}
    tuned = PoissonLOO(alphas=[10.0, 0.1], early_stopping=False).fit(X, y, **params)
    for alpha, risk in zip(tuned.alphas_, tuned.risk_path_, strict=True):
        reference = PoissonRegressor(alpha=alpha, tol=1e-7, max_iter=10_000)
        losses = _refit_losses(reference, X, y, _deviance, **params)
        assert risk == pytest.approx(np.average(losses, weights=params.get("sample_weight")), rel=5e-3)
    assert tuned.score(X, y) == pytest.approx(
        PoissonRegressor(alpha=tuned.alpha_, tol=1e-9, max_iter=10_000).fit(X, y, **params).score(X, y),
        abs=1e-4,
    )


@cache
def _fitted_to_dense_rows(model):
    X, y = load_diabetes(return_X_y=True)
    X = np.where(np.abs(10 * X[:90]) > 0.3, 10 * X[:90], 0.0)
    y = y[:90] > 150 if isinstance(model, LogisticLOO) else np.round(y[:90])
    return clone(model).fit(X, y), X, y


@pytest.mark.parametrize(
    "storage", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array, np.asfortranarray]
)
@pytest.mark.parametrize("model", FEW, ids=lambda model: type(model).__name__)
def test_storage_does_not_matter(storage, model):
    dense, X, y = _fitted_to_dense_rows(model)
    other = clone(model).fit(storage(X), y)
    np.testing.assert_allclose(other.risk_path_, dense.risk_path_, rtol=1e-7)
    np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(other.loo_.predictions, dense.loo_.predictions, rtol=1e-5, atol=1e-7)


def _target_for(model, y):
    return y > 150 if isinstance(model, LogisticLOO) else np.round(y / 30)


def _strengths(tuned):
    """Strengths that were visited, and the chosen one's position among them."""
    strengths, chosen = (tuned.Cs_, tuned.C_) if hasattr(tuned, "Cs_") else (tuned.alphas_, tuned.alpha_)
    return strengths, int(np.flatnonzero(strengths == chosen)[0])


@cache
def _tuned(model, selection, weighted=False):
    X, y = load_diabetes(return_X_y=True)
    params = {"sample_weight": 1.0 + _weights(90)} if weighted else {}
    return clone(model).set_params(selection=selection).fit(10 * X[:90], _target_for(model, y[:90]), **params)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_one_standard_error(model, weighted):
    """The strongest penalty whose risk exceeds the smallest by at most one error of the paired difference."""
    tuned = _tuned(model, "1se", weighted)
    _, at = _strengths(tuned)
    rise = tuned.risk_path_ - tuned.risk_path_.min()
    assert rise[at] <= tuned.paired_error_path_[at]
    assert np.all(rise[:at] > tuned.paired_error_path_[:at])  # all stronger penalties are worse
    best = int(tuned.risk_path_.argmin())
    assert tuned.paired_error_path_[best] == 0
    assert at <= best


@pytest.mark.parametrize("weighted", [False, True])
def test_paired_error_is_that_of_two_models(diabetes, weighted):
    X, y = diabetes
    params = {"sample_weight": _weights(90)} if weighted else {}
    alphas = np.array([1000.0, 10.0, 0.1])
    tuned = RidgeLOO(alphas=alphas).fit(X, y, **params)
    losses = [RidgeLOO(alphas=[alpha]).fit(X, y, **params).loo_.losses for alpha in alphas]
    best = int(tuned.risk_path_.argmin())
    for j in range(3):
        _, error = mean_and_error(losses[j] - losses[best], params.get("sample_weight", np.ones(90)))
        assert tuned.paired_error_path_[j] == pytest.approx(error, rel=1e-8, abs=1e-12)


@pytest.mark.costly
@pytest.mark.parametrize("selection", ["min", "1se"])
@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_what_the_choice_is_worth(model, selection):
    tuned = _tuned(model, selection)
    strengths, _ = _strengths(tuned)
    members = np.isin(strengths, tuned.confidence_set_)
    assert members[tuned.risk_path_.argmin()]
    np.testing.assert_array_equal(tuned.confidence_set_, strengths[members])  # in the order of the path
    assert np.count_nonzero(np.diff(np.r_[0, members, 0])) == 2  # without gaps
    assert tuned.best_score_ == -tuned.corrected_risk_
    spread = tuned.std_error_path_[tuned.risk_path_.argmin()]
    assert abs(tuned.corrected_risk_ - tuned.loo_.value) < spread
    if selection == "min":
        assert tuned.corrected_risk_ >= tuned.risk_path_.min()


@pytest.mark.parametrize("model", FEW, ids=lambda model: type(model).__name__)
def test_what_the_choice_is_worth_is_repeatable_and_survives_saving(diabetes, model):
    X, y = diabetes
    tuned = clone(model).fit(X, _target_for(model, y))
    again = clone(tuned).fit(X, _target_for(model, y))
    loaded = pickle.loads(pickle.dumps(tuned))
    for other in (again, loaded):
        assert other.corrected_risk_ == tuned.corrected_risk_
        np.testing.assert_array_equal(other.confidence_set_, tuned.confidence_set_)
    before = tuned.corrected_risk_
    assert tuned.set_params(selection="1se").corrected_risk_ == before  # that of the fit
    assert not hasattr(clone(model), "confidence_set_")
    assert not hasattr(clone(model), "best_score_")


def test_rows_without_weight_do_not_count(diabetes):
    X, y = diabetes
    weights = 1.0 + _weights(90)
    dropped = np.arange(90) % 7 == 0
    whole = RidgeLOO(alphas=np.logspace(3, -3, 20)).fit(X, y, np.where(dropped, 0.0, weights))
    kept = RidgeLOO(alphas=np.logspace(3, -3, 20)).fit(X[~dropped], y[~dropped], weights[~dropped])
    np.testing.assert_allclose(whole.paired_error_path_, kept.paired_error_path_, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(whole.confidence_set_, kept.confidence_set_)
    assert whole.corrected_risk_ == pytest.approx(kept.corrected_risk_, rel=1e-8)


GROUPS = [[0, 1], [2, 3, 4], [5]]


@pytest.mark.costly
@pytest.mark.parametrize(
    "model",
    [
        RidgeLOO(),
        LogisticLOO(),
        LogisticLOO(l1_ratio=1.0),
        PoissonLOO(),
        GeneralizedLinearLOO(penalty=penalties.GroupLasso(GROUPS), selection="min", alphas=12),
        GeneralizedLinearLOO("quantile", penalties.L1(), alphas=[10.0, 3.0, 1.0]),
    ],
    ids=["ridge", "logistic", "logistic l1", "poisson", "group lasso", "quantile l1"],
)
def test_rows_without_weight_change_neither_path_nor_choice(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = X @ rng.normal(size=6) * 0.4 + rng.normal(size=80)
    y = y > 0 if isinstance(model, LogisticLOO) else np.round(np.exp(y))
    held = np.sort(rng.permutation(80)[:20])
    weights = np.zeros(80)
    weights[held] = rng.uniform(0.5, 2.0, 20)
    whole = clone(model).fit(X, y, weights)
    kept = clone(model).fit(X[held], y[held], weights[held])
    for name in ("coef_", "risk_path_", "std_error_path_", "paired_error_path_", "guarantee_path_"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(kept, name))
    np.testing.assert_array_equal(whole.loo_.losses[held], kept.loo_.losses)
    assert whole.loo_.value == pytest.approx(kept.loo_.value, rel=1e-12)
    assert whole.loo_.guarantee == kept.loo_.guarantee
    assert len(whole.loo_.predictions) == 80  # without a row of no weight the fit stays
    idle, known = weights == 0, whole.loo_.decision
    np.testing.assert_allclose(known[idle], X[idle] @ whole.coef_.ravel() + whole.intercept_, atol=1e-8)


@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_rows_without_weight_have_no_leverage(diabetes, model):
    X, y = diabetes
    X, y, weights = X[:90], _target_for(model, y[:90]), (np.arange(90) % 3 > 0) * 1.0
    est = clone(model).fit(X, y, sample_weight=weights).loo_
    assert not est.leverages[weights == 0].any()
    alone = clone(model).fit(X[weights > 0], y[weights > 0]).loo_
    np.testing.assert_allclose(est.leverages[weights > 0], alone.leverages, rtol=1e-3, atol=1e-5)
    assert est.effective_df == pytest.approx(alone.effective_df, rel=1e-3)


def test_a_choice_among_more_ratios_is_corrected_for_more(diabetes):
    X, y = diabetes
    noise = np.random.default_rng(5).normal(size=y.shape)  # nothing to be found: all that is won is luck
    one, several = ElasticNetLOO(l1_ratio=0.5), ElasticNetLOO(l1_ratio=[0.02, 0.5, 1.0])
    alone, among = one.fit(X, noise), several.fit(X, noise)
    ratio = min(several.l1_ratio, key=lambda one: abs(one - among.l1_ratio_))  # the noise has variance 1
    chosen = ElasticNetLOO(l1_ratio=ratio).fit(X, noise)
    np.testing.assert_array_equal(among.confidence_set_, chosen.confidence_set_)
    assert among.risk_path_.min() <= alone.risk_path_.min()
    assert among.corrected_risk_ > chosen.corrected_risk_


def test_one_strength_leaves_nothing_to_correct(diabetes):
    X, y = diabetes
    tuned = RidgeLOO(alphas=[1.0]).fit(X, y)
    assert tuned.corrected_risk_ == pytest.approx(tuned.loo_.value)
    np.testing.assert_array_equal(tuned.confidence_set_, [1.0])
    np.testing.assert_array_equal(tuned.paired_error_path_, [0.0])


@pytest.mark.theory
@pytest.mark.slow
def test_the_correction_removes_the_optimism_of_ridge():
    rng = np.random.default_rng(0)
    raw, corrected, truth = [], [], []
    for _ in range(300):
        X = rng.normal(size=(40, 20))
        tuned = RidgeLOO(alphas=30).fit(X, rng.normal(size=40))
        raw.append(tuned.risk_path_.min())
        corrected.append(tuned.corrected_risk_)
        truth.append(1.0 + np.sum(tuned.coef_**2) + tuned.intercept_**2)
    bias = np.subtract(raw, truth).mean(), np.subtract(corrected, truth).mean()
    error = np.subtract(raw, truth).std() / np.sqrt(300)
    assert bias[0] < -2.0 * error
    assert abs(bias[1]) < 2.0 * error
    assert abs(bias[1]) < 0.5 * abs(bias[0])


def test_early_stopping_keeps_the_minimum(diabetes):
    X, y = diabetes
    X = np.hstack([X, np.random.default_rng(1).normal(size=(90, 60))])
    whole = LassoLOO(50, early_stopping=False, selection="min").fit(X, y)
    stopped = LassoLOO(50, selection="min").fit(X, y)
    assert len(stopped.alphas_) < len(whole.alphas_) == 50
    same = slice(len(stopped.alphas_))  # where they are known; others lie between some that are
    known = (stopped.approx_error_path_ < 1e-6) & (whole.approx_error_path_[same] < 1e-6)
    assert known[stopped.risk_path_.argmin()]
    np.testing.assert_allclose(stopped.risk_path_[known], whole.risk_path_[same][known], rtol=1e-8)
    assert stopped.alpha_ == whole.alpha_


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RidgeLOO(alphas=[-1.0]), "alphas must be .* non-negative numbers"),
        (RidgeLOO(alphas=[]), "alphas must be"),
        (RidgeLOO(alphas=0), "at least 1"),
        (RidgeLOO(selection="best"), "selection must be"),
        (LassoLOO(alphas=[0.0]), "alphas must be .* positive numbers"),
        (LassoLOO(eps=2.0), "eps must lie"),
        (ElasticNetLOO(l1_ratio=0.0), "l1_ratio must lie .* RidgeLOO"),
        (LogisticLOO(l1_ratio=2.0), "l1_ratio must be a number in"),
        (LogisticLOO(l1_ratio=[0.5, 2.0]), "l1_ratio must be a number in"),
        (ElasticNetLOO(l1_ratio="half"), "l1_ratio must be a number or a list"),
        (RidgeLOO(alphas="auto"), "alphas must be a whole number or a list"),
        (RidgeLOO(alphas=1.0), r"write \[1.0\]"),
        (LogisticLOO(), "only one class|one class"),
        (PoissonLOO(), "zero for every row"),
    ],
)
def test_bad_settings(model, message):
    X, y = np.random.default_rng(0).normal(size=(10, 2)), np.zeros(10)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_bad_inverse_strengths():
    X = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(ValueError, match=r"Cs must be .* positive numbers"):
        LogisticLOO(Cs=[1.0, np.nan]).fit(X, np.arange(10) % 2)


def test_more_classes_than_rows():
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match="class of its own"):
        LogisticLOO().fit(X, [f"name {i}" for i in range(6)])


def test_negative_counts():
    X = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match=r"y\[2\] = -1"):
        PoissonLOO().fit(X, [1, 0, -1, 2, 0, 1])


@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_unfitted(model):
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 2)))


@pytest.mark.parametrize("model", [RidgeLOO(), LassoLOO(), ElasticNetLOO()], ids=lambda m: type(m).__name__)
def test_a_constant_target_is_predicted(model):
    X = np.random.default_rng(0).normal(size=(12, 3))
    tuned = clone(model).fit(X, np.full(12, 5.0))
    np.testing.assert_allclose(tuned.predict(X), 5.0)
    assert tuned.loo_.value == pytest.approx(0.0, abs=1e-20)


def _copied_table(store):
    """Columns, each beside a copy of itself: as it is, turned round, moved or in another unit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    y = X @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=90)
    copied = np.column_stack([X[:, 0], -X[:, 0], X[:, 1:], X[:, 1] + 7.0, 2.0 * X[:, 2]])
    return store(X), store(copied), y


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("classes", [None, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_copies_of_columns_change_nothing_beside_an_l1_penalty(store, classes, weighted):
    X, copied, y = _copied_table(store)
    if classes is not None:
        y = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 90) if weighted else None
    factors = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])  # on what is twice as long: as strong as once

    def fitted(table, **given):
        model = LassoLOO(20, **given) if classes is None else LogisticLOO(10, l1_ratio=1.0, **given)
        return model.fit(table, y, sample_weight=weights)

    alone, found = fitted(X), fitted(copied, penalty_factors=factors)
    strength = "alpha_" if classes is None else "C_"
    assert getattr(found, strength) == pytest.approx(getattr(alone, strength), rel=1e-9)
    assert found.loo_.value == pytest.approx(alone.loo_.value, rel=1e-6)
    np.testing.assert_allclose(
        found.decision_function(copied) if classes else found.predict(copied),
        alone.decision_function(X) if classes else alone.predict(X),
        atol=1e-6,
    )
    coef = np.atleast_2d(found.coef_)
    assert coef.shape[1] == 7
    assert not coef[:, [1, 5]].any()
    np.testing.assert_allclose(coef[:, [0, 2, 3, 4]], np.atleast_2d(alone.coef_), atol=1e-5)
    assert not coef[:, 6].any()


def test_a_copy_with_a_ridge_takes_its_share():
    _, copied, y = _copied_table(np.asarray)
    coef = ElasticNetLOO(10, l1_ratio=0.5).fit(copied, y).coef_
    assert coef[0] == pytest.approx(-coef[1], rel=1e-6)


@pytest.mark.parametrize("storage", [tuple, np.array], ids=["numbers", "arrays"])
def test_bounds_may_be_an_array(diabetes, storage):
    X, y = diabetes
    one, each = (-5.0, 20.0), (np.full(X.shape[1], -5.0), np.full(X.shape[1], 20.0))
    expected = LassoLOO([0.5], bounds=one).fit(X, y).coef_
    assert np.ptp(expected) == pytest.approx(25.0)  # both are reached
    for bounds in (one, each):
        found = clone(LassoLOO([0.5], bounds=storage(bounds))).fit(X, y)
        np.testing.assert_allclose(found.coef_, expected, rtol=1e-9, atol=1e-9)

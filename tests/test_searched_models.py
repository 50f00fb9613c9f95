"""Searches and risks where models leave the beaten track: flat stretches, kinks in the second derivative."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor
from sklearn.svm import SVC

import onefit
from onefit.losses import Huber, SquaredHinge
from onefit.penalties import L1

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
COIN = np.repeat([0, 1], 20)  # says nothing about X


@pytest.mark.filterwarnings(
    "ignore:the hinge loss:onefit.UnreliableWarning"
)  # its intercept is not determined
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_machine_without_rows_in_a_kink_is_judged_by_its_refits(kernel):
    """With equal classes and a small C any intercept of an interval will do, until a row leaves."""
    model = SVC(kernel=kernel, C=1e-3).fit(X, COIN)
    quick, exact = onefit.loo(model, X, COIN), onefit.loo(model, X, COIN, exact=True)
    assert quick.value == pytest.approx(exact.value, rel=1e-6)
    search = onefit.GradientSearchCV(SVC(kernel=kernel), {"C": (1e-3, 10.0)}).fit(X, COIN)
    assert -search.best_score_ == pytest.approx(search.best_risk_.value, rel=0.02)
    assert search.best_risk_.value < 0.7 * exact.value


@pytest.mark.parametrize("C", [1.0, 3.0])
def test_balanced_machines_are_judged_by_their_refits(C):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 2))
    labels = (rows[:, 0] + 0.7 * rng.normal(size=50) > 0.6).astype(int)
    model = SVC(C=C, class_weight="balanced").fit(rows, labels)
    quick, exact = onefit.loo(model, rows, labels), onefit.loo(model, rows, labels, exact=True)
    assert quick.value == pytest.approx(exact.value, rel=1e-4)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_a_hyperparameter_without_effect_at_the_start_is_not_given_up():
    y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
    bounds = {"alpha": (1e-3, 10.0), "gamma": (1e-3, 1e4)}
    search = onefit.GradientSearchCV(
        KernelRidge(kernel="rbf"), bounds, start={"gamma": 1e4}, n_starts=4, random_state=0
    ).fit(X, y)
    tried = {round(np.log10(params["gamma"]), 2) for params in search.cv_results_["params"]}
    assert len(tried) > 10
    assert search.best_params_["gamma"] < 10


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@pytest.mark.parametrize("loss", [SquaredHinge(), Huber()], ids=repr)
@pytest.mark.slow
def test_losses_whose_second_derivative_jumps_take_differences_with_an_l1_penalty(loss):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 10))
    y = rows[:, 0] - rows[:, 1] + 0.5 * rng.standard_t(3, size=100)
    y = (y > 0).astype(int) if isinstance(loss, SquaredHinge) else y
    search = onefit.GradientSearchCV(
        onefit.GeneralizedLinear(loss, L1()), {"penalty__alpha": (0.5, 10.0)}, refit=False
    ).fit(rows, y)
    grid = [
        onefit.loo(onefit.GeneralizedLinear(loss, L1(alpha)).fit(rows, y), rows, y).value
        for alpha in np.geomspace(0.5, 10.0, 12)
    ]
    assert -search.best_score_ < 1.02 * min(grid)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_folds_of_a_model_with_two_outputs_or_several_strengths():
    y = X[:, 0] + RNG.normal(size=40)
    folds = onefit.risk.KFold(5)
    assert (
        onefit.GradientSearchCV(HuberRegressor(), {"alpha": (1e-2, 10.0)}, risk=folds).fit(X, y).best_score_
    )
    several = KernelRidge(alpha=np.array([0.1, 1.0]), kernel="rbf")
    found = onefit.GradientSearchCV(several, {"gamma": (1e-2, 1.0)}, risk=folds).fit(X, np.c_[y, X[:, 1]])
    assert found.best_score_ < 0


@pytest.mark.parametrize("alpha", [0.1, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_rare_columns_under_a_robust_loss(alpha, seed):
    """All rows of a column may be where the loss is straight: the objective is linear along it."""
    rng = np.random.default_rng(seed)
    rows = np.c_[(rng.random((40, 10)) < 0.08).astype(float), rng.normal(size=(40, 4))]
    y = rows[:, 10] - rows[:, 11] + 2 * rows[:, 2:5].sum(axis=1) + rng.standard_t(2, size=40)
    model = onefit.GeneralizedLinear(Huber(), L1(alpha)).fit(rows, y)
    slope = Huber().gradient(y, model.predict(rows))
    assert abs(slope.sum()) < 1e-6
    assert np.abs(rows.T @ slope).max() <= alpha * (1 + 1e-6)


@pytest.mark.filterwarnings("ignore")  # of a fit to a singular matrix
@pytest.mark.parametrize(
    "model", [SVC(kernel="sigmoid", gamma=1.0), KernelRidge(kernel="sigmoid", gamma=1.0)]
)
def test_indefinite_kernels_are_refused(model):
    with pytest.raises(onefit.UnsupportedModelError, match="indefinite on these rows"):
        onefit.GradientSearchCV(model, {"coef0": (0.5, 1.0)}).fit(X, COIN)


def test_an_indefinite_machine_is_refused_by_loo():
    with pytest.raises(onefit.UnsupportedModelError, match="'sigmoid' is indefinite"):
        onefit.loo(SVC(kernel="sigmoid", gamma=1.0).fit(X, COIN), X, COIN)


def test_a_hyperparameter_without_effect_is_named():
    labels = (X[:, 0] > 0).astype(int)
    search = onefit.GradientSearchCV(
        KernelRidge(kernel="linear"), {"alpha": (1e-2, 1e2), "gamma": (0.1, 1.0)}, risk=onefit.risk.KFold(4)
    )
    with pytest.warns(onefit.UnreliableWarning, match="gamma changes nothing in this model"):
        search.fit(X, labels)


def test_a_function_as_kernel_on_a_table():
    pandas = pytest.importorskip("pandas")
    table, labels = pandas.DataFrame(X, columns=list("abc")), (X[:, 0] > 0).astype(int)
    model = SVC(kernel=RBF(np.ones(3)))
    judged = onefit.loo(model.fit(table, labels), table, labels)
    assert judged.value == pytest.approx(onefit.loo(model.fit(X, labels), X, labels).value)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_on_few_rows_the_choice_of_a_lasso_is_that_of_the_refits():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(40, 8))
        y = rows[:, 0] + rng.normal(size=40)
        model = onefit.LassoLOO(30, selection="min").fit(rows, y)
        refits = [onefit.LassoLOO([alpha]).fit(rows, y).loo_.value for alpha in model.alphas_]
        place = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
        assert model.risk_path_[place] == pytest.approx(model.loo_.value)
        assert model.loo_.value <= 1.01 * min(refits)

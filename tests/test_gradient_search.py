"""GradientSearchCV: gradients against differences, optima against grids, and what it refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

import onefit
from onefit import GeneralizedLinear, GradientSearchCV, PerFeature, PerGroup, Simplex, losses, penalties, risk
from onefit._linalg import is_same
from onefit.estimators.searched import SearchedModel
from onefit.gradients import same_penalty
from onefit.penalties import L1, L2, FusedLasso, GroupLasso
from onefit.readers import read
from onefit.readers.kernels import in_length_scales
from onefit.tuning.objective import RiskObjective

N, P = 40, 5
STRENGTH = {"alpha": (1e-2, 1e3)}


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@parametrize_with_checks([GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e2)}, max_iter=5)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- data ------------------------------------------------------------------------------------------


def _data(kind="numbers", n=N, p=P, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    eta = X[:, 0] - X[:, 1]
    y = eta + rng.normal(size=n)
    if kind == "labels":
        return X, (y > 0).astype(int)
    if kind == "three labels":
        return X, np.digitize(y, [-0.5, 0.5])
    if kind == "counts":
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float)
    return X, y


def _objective(search, X, y, weights=None):
    """The function that a search minimises."""
    model = SearchedModel.of(search.estimator, search.param_bounds, X, y, weights)
    judge = search._judge(search.risk, model, X, y, weights)
    return RiskObjective(model.space, model.problem_at, judge, in_length_scales)


def _slope_error(objective, t, gradient, step):
    """Difference between a slope and five-point differences of the value, relative to the gradient.

    Along one way in which no component is zero: an error in any of them is one in the slope.
    """
    way = np.linspace(1.0, 0.5, len(t)) * (-1.0) ** np.arange(len(t))
    slope = _by_five_points(objective, t, step * way) / step
    return abs(way @ gradient - slope) / np.abs(gradient).max()


def _worst(objective, share=0.45, step=1e-3):
    """Error of the gradient at a share of the way between the bounds."""
    low, high = objective.space.bounds
    t = low + share * (high - low)
    _, gradient = objective.value_and_gradient(t)
    assert np.abs(gradient).max() > 1e-5  # else there is nothing to compare
    return _slope_error(objective, t, gradient, step)


def _general(loss, penalty, **bounds):
    named = {f"penalty__{name.replace('_in_', '__')}": given for name, given in bounds.items()}
    return GeneralizedLinear(loss, penalty), named


RISKS = {
    "loo": "loo",
    "k-fold": risk.KFold(4),
    "Monte-Carlo": risk.MonteCarlo(6, 0.8, random_state=0),
    "held-out": risk.HeldOut(0.3, random_state=0),
    "groups": risk.LeaveGroupOut(np.arange(N) % 4),
    "stratified": risk.Split(StratifiedKFold(3)),
    "gcv": risk.GCV(),
    "permuted": risk.Permutation(4, random_state=0),
}
EACH, SCALES = PerFeature(1e-2, 1e2), PerFeature(1.0, 30.0)
SMOOTH = {
    "Ridge": (Ridge(), STRENGTH, "numbers"),
    "Ridge without intercept": (Ridge(fit_intercept=False), STRENGTH, "numbers"),
    "Lasso": (Lasso(), {"alpha": (1e-3, 1.0)}, "numbers"),
    "ElasticNet": (ElasticNet(), {"alpha": (1e-3, 1.0), "l1_ratio": (0.1, 0.9)}, "numbers"),
    "LogisticRegression": (LogisticRegression(), {"C": (1e-2, 1e2)}, "labels"),
    "LogisticRegression, l1": (
        LogisticRegression(solver="liblinear", l1_ratio=1.0),
        {"C": (1e-1, 1e2)},
        "labels",
    ),
    "multinomial": (LogisticRegression(), {"C": (1e-2, 1e2)}, "three labels"),
    "PoissonRegressor": (PoissonRegressor(tol=1e-6), {"alpha": (1e-3, 1e1)}, "counts"),
    "pipeline": (make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": (1e-2, 1e3)}, "numbers"),
    "ridge, one a feature": (*_general("squared", L2(), alpha=EACH), "numbers"),
    "lasso, one a group": (*_general("squared", L1(), alpha=PerGroup(list("aabbb"), 1e-1, 1e1)), "numbers"),
    "poisson elastic net, one a feature": (
        *_general(
            "poisson", penalties.ElasticNet(1.0, 0.5), alpha=PerFeature(1e-2, 1e1), l1_ratio=(0.1, 0.9)
        ),
        "counts",
    ),
    "group lasso": (*_general("logistic", GroupLasso(np.arange(P) // 2), alpha=(1e-1, 1e1)), "labels"),
    "ridge and fused lasso": (
        *_general("squared", L2() + FusedLasso(), quadratic_in_alpha=(1e-2, 1e2), rest_in_alpha=(1e-2, 1e2)),
        "numbers",
    ),
    "huber": (*_general("huber", L2(), alpha=(1e-2, 1e2)), "numbers"),
    "squared hinge": (*_general("squared_hinge", L2(), alpha=(1e-2, 1e2)), "labels"),
    "huber, width": (
        GeneralizedLinear(losses.Huber(), L2()),
        {"penalty__alpha": (1e-2, 1e2), "loss__delta": (0.8, 2.0)},
        "numbers",
    ),
    "KernelRidge": (KernelRidge(kernel="rbf"), {"alpha": (1e-2, 1e2), "gamma": (1e-3, 1.0)}, "numbers"),
    "KernelRidge, polynomial": (
        KernelRidge(kernel="poly", degree=2),
        {"alpha": (1e-2, 1e2), "gamma": (1e-2, 1.0), "coef0": (0.1, 3.0)},
        "numbers",
    ),
    "KernelRidge, one scale a feature": (
        KernelRidge(kernel=RBF()),
        {"alpha": (1e-2, 1e2), "kernel__length_scale": SCALES},
        "numbers",
    ),
    "KernelRidge, one scale a group": (
        KernelRidge(kernel=ConstantKernel() * Matern(nu=1.5)),
        {
            "kernel__k1__constant_value": (0.1, 10.0),
            "kernel__k2__length_scale": PerGroup(list("aabbb"), 1, 30),
        },
        "numbers",
    ),
    "KernelRidge, scales without a formula": (
        KernelRidge(kernel=Matern(nu=0.5)),
        {"alpha": (1e-2, 1e2), "kernel__length_scale": PerGroup(list("aabbb"), 1, 30)},
        "numbers",
    ),
    "KernelRidge in a pipeline": (
        make_pipeline(StandardScaler(), KernelRidge(kernel="laplacian")),
        {"kernelridge__alpha": (1e-2, 1e2), "kernelridge__gamma": (1e-2, 1.0)},
        "numbers",
    ),
}
# models whose risk is smooth in pieces
CORNERS = {
    "SVC": (SVC(), {"C": (1e-2, 1e2), "gamma": (1e-3, 1.0)}, "labels"),
    "SVC, linear": (SVC(kernel="linear"), {"C": (1e-2, 1e1)}, "labels"),
    "SVC, polynomials": (
        SVC(kernel="poly", degree=2),
        {"C": (1e-2, 1e1), "gamma": (1e-3, 1e-1), "coef0": (0.1, 0.5)},
        "labels",
    ),
    "SVC, one scale a feature": (
        SVC(kernel=RBF()),
        {"C": (1e-1, 1e2), "kernel__length_scale": SCALES},
        "labels",
    ),
    "SVC, balanced": (SVC(class_weight="balanced"), {"C": (1e-2, 1e2), "gamma": (1e-3, 1.0)}, "labels"),
    "SVR": (SVR(), {"C": (1e-2, 1e2), "gamma": (1e-3, 1.0), "epsilon": (0.05, 0.5)}, "numbers"),
    "SVR, one scale a feature": (
        SVR(kernel=RBF()),
        {"C": (1e-1, 1e1), "kernel__length_scale": SCALES},
        "numbers",
    ),
    "hinge": (*_general("hinge", L2(), alpha=(1e-2, 1e2)), "labels"),
    "quantile": (*_general("quantile", L2(), alpha=(1e-2, 1e2)), "numbers"),
    "absolute": (*_general("absolute", L2(), alpha=(1.0, 1e3)), "numbers"),
}


# --- gradients -------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("how", RISKS)
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_those_of_the_risk(name, how):
    model, bounds, kind = SMOOTH[name]
    if how == "stratified" and kind in ("numbers", "counts"):
        how = "k-fold"
    X, y = _data(kind)
    objective = _objective(GradientSearchCV(model, bounds, risk=RISKS[how]), X, y)
    step = 1e-4 if name == "group lasso" else 1e-3  # shorter than the distance to a group that comes or goes
    step = 1e-5 if name == "huber, width" else step
    assert _worst(objective, step=step) < (1e-4 if (name, how) == ("huber, width", "permuted") else 1e-6)
    unknown = {("multinomial", "gcv"), ("huber, width", "permuted")}
    assert all(objective.exact.values()) or (name, how) in unknown


@pytest.mark.costly
@pytest.mark.parametrize(
    ("how", "weighted"),
    [("loo", True), ("k-fold", False), ("Monte-Carlo", True), ("held-out", False), ("permuted", True)],
)
@pytest.mark.parametrize("name", CORNERS)
def test_gradients_in_corners_are_those_of_the_pieces(name, how, weighted):
    """Differences are of points so near that no row comes to a corner or leaves one."""
    if name == "SVC, balanced" and how in ("loo", "permuted"):
        pytest.skip("refits compute weights anew")
    model, bounds, kind = CORNERS[name]
    X, y = _data(kind)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, N) if weighted else None
    objective = _objective(GradientSearchCV(model, bounds, risk=RISKS[how]), X, y, weights)
    assert any(_matches(objective, share) for share in (0.45, 0.6, 0.35, 0.5, 0.7))
    inexact = {domain.name for m, domain in enumerate(objective.space.domains) if not objective.exact[m]}
    assert inexact == ({"epsilon"} & set(bounds) if how == "permuted" else set())


def _matches(objective, share):
    """Whether the gradient could be compared, and then that it is right.

    It cannot at a vertex of the problem, where the risk is flat, and where an intercept is not unique, as
    where no row is left in a corner: the risk then depends on where the solver started.
    """
    low, high = objective.space.bounds
    t = low + share * (high - low)
    value, gradient = objective.value_and_gradient(t)
    size = np.abs(gradient).max()
    objective.fits = []
    if size < 1e-5 or objective.value(t) != pytest.approx(value, rel=1e-9):
        return False
    errors = []
    for step in (1e-5, 1e-6, 1e-4):
        errors.append(_slope_error(objective, t, gradient, step))
        if errors[-1] < 1e-6:
            return True
    return pytest.fail(f"off by {min(errors)} of the gradient")


MACHINES = {
    "SVC": (SVC(kernel="linear"), {"C": (1e-3, 0.3)}, "labels"),
    "SVC, gamma": (SVC(), {"C": (1e-2, 1.0), "gamma": (1e-2, 1.0)}, "labels"),
    "SVR": (SVR(), {"C": (1e-3, 0.1), "gamma": (1e-2, 1.0), "epsilon": (0.05, 0.5)}, "numbers"),
    "hinge": (*_general("hinge", L2(), alpha=PerFeature(1e-1, 1e2)), "labels"),
}


@pytest.mark.costly
@pytest.mark.parametrize("how", ["loo", "k-fold"])
@pytest.mark.parametrize("name", MACHINES)
def test_where_no_row_holds_the_intercept_it_stays_in_the_middle(name, how):
    """Of weak machines all rows are inside the margin, and the ends of good intercepts move with them."""
    model, bounds, kind = MACHINES[name]
    found = []
    for seed in range(3):
        X, y = _data(kind, n=20, p=2, seed=seed)
        objective = _objective(GradientSearchCV(model, bounds, risk=RISKS[how]), X, y)
        low, high = objective.space.bounds
        t = low + np.linspace(0.15, 0.5, len(low)) * (high - low)
        _, gradient = objective.value_and_gradient(t)
        assert all(objective.exact.values())
        found.append(min(_slope_error(objective, t, gradient, step) for step in (1e-5, 1e-6, 1e-4)))
    assert np.sum(np.array(found) < 1e-5) >= 2  # one may be at a corner


@pytest.mark.filterwarnings("ignore:the search ended with:onefit.UnreliableWarning")
def test_the_risk_of_folds_is_that_of_refits_where_no_row_holds_the_intercept():
    rng = np.random.default_rng(46)
    X = rng.normal(size=(24, 1))
    y = (X[:, 0] + rng.normal(size=24) > 0.5).astype(int)
    search = GradientSearchCV(SVC(kernel="linear"), {"C": (0.02, 0.3, "log")}, cv=StratifiedKFold(4)).fit(
        X, y
    )
    losses = []
    for training, rows in StratifiedKFold(4).split(X, y):
        refit = SVC(kernel="linear", tol=1e-8, **search.best_params_).fit(X[training], y[training])
        losses.extend(np.maximum(1.0 - (2 * y[rows] - 1) * refit.decision_function(X[rows]), 0.0))
    assert -search.best_score_ == pytest.approx(np.mean(losses), rel=1e-6)
    assert search.best_risk_.value == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("how", ["loo", "gcv"])
@pytest.mark.parametrize("penalty", [FusedLasso(), penalties.TrendFilter(1)], ids=repr)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_gradients_of_penalties_with_coordinates_of_their_own(loss, penalty, how):
    X, y = _data("numbers" if loss == "squared" else "labels")
    search = GradientSearchCV(*_general(loss, penalty, alpha=(0.3, 30.0)), risk=RISKS[how])
    assert _worst(_objective(search, X, y), step=1e-5) < 1e-5


def _by_five_points(objective, t, step):
    near, far = (objective.value(t + k * step) - objective.value(t - k * step) for k in (1, 2))
    return (8 * near - far) / 12


@pytest.mark.parametrize("how", ["loo", "k-fold", "held-out"])
def test_gradients_of_kernels_with_several_outputs(how):
    X, y = _data()
    y = np.column_stack([y, np.sin(X[:, 2]), X[:, 3] ** 2])
    bounds = {"alpha": (1e-2, 1e1), "gamma": (1e-3, 1.0)}
    objective = _objective(GradientSearchCV(KernelRidge(kernel="rbf"), bounds, risk=RISKS[how]), X, y)
    assert _worst(objective) < 1e-6
    assert all(objective.exact.values())


@pytest.mark.parametrize("model", [SVC(), KernelRidge(kernel="rbf")])
def test_gradients_of_kernels_of_sparse_rows(model):
    X, y = _data("labels")
    X = sp.csr_array(np.where(np.random.default_rng(1).random(X.shape) < 0.6, X, 0.0))
    strength = "C" if isinstance(model, SVC) else "alpha"
    bounds = {strength: (1e-1, 1e1), "gamma": (1e-2, 1.0)}
    objective = _objective(GradientSearchCV(model, bounds, risk=risk.KFold(4)), X, y)
    assert any(_matches(objective, share) for share in (0.45, 0.6, 0.35))
    assert all(objective.exact.values())


@pytest.mark.parametrize(
    ("name", "how"), [("SVC", "gcv"), ("SVC, balanced", "loo"), ("SVR", "gcv"), ("quantile", "gcv")]
)
def test_differences_serve_where_there_is_no_formula(name, how):
    model, bounds, kind = CORNERS[name]
    X, y = _data(kind)
    objective = _objective(GradientSearchCV(model, bounds, risk=RISKS[how]), X, y)
    assert _worst(objective, step=1e-4) < 1e-4
    assert not any(objective.exact.values())


@pytest.mark.parametrize("how", ["loo", "k-fold", "gcv"])
def test_components_at_both_bounds_have_gradients(how):
    """Those of them that point inwards, or where the risk goes down beyond."""
    X, y = _data()
    objective = _objective(GradientSearchCV(*SMOOTH["ridge, one a feature"][:2], risk=RISKS[how]), X, y)
    low, high = objective.space.bounds
    t = np.array([low[0], high[1], low[2], high[3], 0.0])
    _, gradient = objective.value_and_gradient(t)
    wider = _objective(
        GradientSearchCV(*_general("squared", L2(), alpha=PerFeature(1e-4, 1e4)), risk=RISKS[how]), X, y
    )
    np.testing.assert_allclose(gradient, wider.value_and_gradient(t)[1], rtol=1e-5)
    assert np.abs(gradient).min() > 0


@pytest.mark.parametrize("how", ["loo", "k-fold", "gcv"])
@pytest.mark.parametrize("name", ["Ridge", "Lasso", "LogisticRegression", "ridge, one a feature"])
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_with_weights_and_sparse_rows(name, how, sparse):
    model, bounds, kind = SMOOTH[name]
    X, y = _data(kind)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.2, 3.0, N)
    if sparse:
        X = sp.csr_array(np.where(rng.random(X.shape) < 0.5, X, 0.0))
    assert _worst(_objective(GradientSearchCV(model, bounds, risk=RISKS[how]), X, y, weights)) < 1e-6


@pytest.mark.parametrize("how", ["loo", "k-fold", "Monte-Carlo", "gcv"])
def test_the_risk_is_that_of_evaluate(how):
    X, y = _data()
    weights = np.random.default_rng(1).uniform(0.2, 3.0, N)
    search = GradientSearchCV(Ridge(), STRENGTH, risk=RISKS[how])
    value = _objective(search, X, y, weights).value(np.log([3.0]))
    model = Ridge(3.0).fit(X, y, weights)
    named = risk.LeaveOneOut() if how == "loo" else RISKS[how]
    assert value == pytest.approx(onefit.evaluate(model, X, y, named, weights).value, rel=1e-9)


# --- optima ----------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:the search ended with:onefit.UnreliableWarning")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(
            (name, how)
            for name in ("Ridge", "LogisticRegression", "KernelRidge")
            for how in ("loo", "k-fold", "gcv")
        ),
        ("ElasticNet, one", "k-fold"),
        ("huber", "Monte-Carlo"),
        ("SVC", "k-fold"),
    ],
)
def test_one_hyperparameter_matches_a_fine_grid(name, how):
    model, bounds, kind = {
        **SMOOTH,
        "ElasticNet, one": (ElasticNet(l1_ratio=0.01), {"alpha": (1e-3, 1e1)}, "numbers"),
        "KernelRidge": (KernelRidge(kernel="rbf", gamma=0.05), {"alpha": (1e-2, 1e2)}, "numbers"),
        "SVC": (SVC(gamma=0.05), {"C": (1e-2, 1e2)}, "labels"),
    }[name]
    X, y = _data(kind, seed=3)
    search = GradientSearchCV(model, bounds, risk=RISKS[how], refit=False).fit(X, y)
    objective = _objective(search, X, y)
    low, high = objective.space.bounds[:, 0]
    grid = min(objective.value(np.array([t])) for t in np.linspace(low, high, 25))
    assert -search.best_score_ <= grid * (1 + 1e-3)
    again = objective.value(np.log([search.best_params_[next(iter(bounds))]]))
    assert again == pytest.approx(-search.best_score_, rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_chance_dips_of_a_rough_risk_do_not_win(seed):
    """One step a row jumps where a coefficient of the lasso comes or goes; refits do not."""
    X, y = _data(n=60, p=10, seed=seed)
    search = GradientSearchCV(Lasso(), {"alpha": (1e-3, 1.0)}).fit(X, y)
    best, grid = (
        min(onefit.loo(Lasso(alpha, tol=1e-10).fit(X, y), X, y, exact=True).value for alpha in alphas)
        for alphas in ([search.best_params_["alpha"]], np.geomspace(1e-3, 1.0, 40))
    )
    assert best <= grid * 1.01
    assert search.best_risk_.value == pytest.approx(best, rel=0.01)


@pytest.mark.filterwarnings("ignore:the search ended with:onefit.UnreliableWarning")
@pytest.mark.parametrize("seed", range(2))
def test_two_hyperparameters_match_a_grid(seed):
    X, y = _data(n=40, p=4, seed=seed)
    bounds = {"alpha": (1e-2, 1e2), "gamma": (1e-3, 1.0)}
    search = GradientSearchCV(KernelRidge(kernel="rbf"), bounds, risk=risk.KFold(5)).fit(X, y)
    objective = _objective(search, X, y)
    grid = np.stack(np.meshgrid(*(np.linspace(*b, 8) for b in objective.space.bounds.T)), -1).reshape(-1, 2)
    assert -search.best_score_ <= min(objective.value(t) for t in grid) * (1 + 1e-3)


@pytest.mark.costly
@pytest.mark.parametrize("units", [1e-6, 1e6])
@pytest.mark.parametrize("optimizer", ["lbfgs", "projected", "adam"])
@pytest.mark.parametrize("how", ["loo", risk.KFold(5)], ids=["loo", "k-fold"])
def test_the_units_of_the_response_do_not_matter(how, optimizer, units):
    X, y = _data()
    search = GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e4)}, risk=how, optimizer=optimizer)
    plain, scaled = (clone(search).fit(X, factor * y) for factor in (1.0, units))
    assert scaled.best_params_["alpha"] == pytest.approx(plain.best_params_["alpha"], rel=1e-4)
    assert plain.n_iter_ > 0
    assert scaled.n_iter_ == pytest.approx(plain.n_iter_, abs=2)


@pytest.mark.costly
@pytest.mark.parametrize(
    "of",
    [GroupLasso, lambda groups: penalties.SparseGroupLasso(groups, l1_ratio=0.3)],
    ids=["whole", "sparse"],
)
@pytest.mark.parametrize(
    "lists", [[[0, 1], [2, 3, 4]], ((0, 1), np.array([2, 3, 4]))], ids=["lists", "arrays"]
)
def test_groups_of_unequal_size_may_be_lists(of, lists):
    X, y = _data("labels")
    bounds = {"penalty__alpha": (1e-2, 1e2)}
    found, expected = (
        GradientSearchCV(GeneralizedLinear("logistic", of(groups)), bounds).fit(X, y)
        for groups in (lists, [0, 0, 1, 1, 1])
    )
    assert found.best_params_ == expected.best_params_
    assert found.best_risk_.value == expected.best_risk_.value


def test_ridge_agrees_with_ridge_loo():
    X, y = _data(seed=1)
    search = GradientSearchCV(Ridge(), STRENGTH).fit(X, y)
    grid = onefit.RidgeLOO(alphas=np.geomspace(*STRENGTH["alpha"], 2000), selection="min").fit(X, y)
    assert search.best_params_["alpha"] == pytest.approx(grid.alpha_, rel=5e-3)
    assert search.best_risk_.value == pytest.approx(grid.loo_.value, rel=1e-5)


def test_k_fold_agrees_with_cross_val_score():
    X, y = _data()
    model, bounds = LogisticRegression(tol=1e-10), {"C": (1e-2, 1e2)}
    X, y = _data("labels")
    search = GradientSearchCV(model, bounds, risk=risk.KFold(4)).fit(X, y)
    best = model.set_params(**search.best_params_)
    theirs = -cross_val_score(best, X, y, cv=KFold(4), scoring="neg_log_loss").mean()
    assert -search.best_score_ == pytest.approx(theirs, rel=1e-6)
    assert search.best_risk_.value == pytest.approx(theirs, rel=1e-6)


def _per_feature(**settings):
    model, bounds = GeneralizedLinear(penalty=L2()), {"penalty__alpha": PerFeature(1e-2, 1e4)}
    return GradientSearchCV(model, bounds, **settings)


def test_ways_down_meet():
    X, y = _data(n=60, p=8, seed=2)
    best = _per_feature(tol=1e-7).fit(X, y)
    for settings, tolerance in (
        ({"optimizer": "lbfgs"}, 1e-9),
        ({"optimizer": "projected", "max_iter": 500}, 1e-7),
        ({"optimizer": "adam", "max_iter": 250}, 1e-3),
        ({"gradient": "2017"}, 1e-7),  # for ridge the 2017 gradient is that of the risk
    ):
        found = _per_feature(**settings).fit(X, y)
        assert -found.best_score_ == pytest.approx(-best.best_score_, rel=tolerance), settings
    assert np.abs(best.gradient_).max() < 1e-6
    assert -best.best_score_ < -GradientSearchCV(Ridge(), STRENGTH).fit(X, y).best_score_


def test_constant_steps_are_those_of_the_paper():
    """λ ← max(λ − length ∇, bound) on the scale of λ itself; ∇ by differences of the risk."""
    X, y = _data()
    folds, low, length, start = risk.KFold(4), 1e-3, 5.0, 30.0

    def value(alpha):
        return onefit.evaluate(Ridge(alpha).fit(X, y), X, y, folds).value

    expected, step = [start], 1e-4
    for _ in range(6):
        here = expected[-1]
        slope = (value(here + step) - value(here - step)) / (2 * step)
        expected.append(max(here - length * slope, low))
    search = GradientSearchCV(
        Ridge(),
        {"alpha": (low, 1e3, "linear")},
        risk=folds,
        optimizer="constant",
        learning_rate=length,
        max_iter=6,
        start={"alpha": start},
    ).fit(X, y)
    taken = [params["alpha"] for params in search.cv_results_["params"]]
    np.testing.assert_allclose(taken, expected, rtol=1e-6)
    assert len(set(taken)) == 7


def test_the_2017_gradient_is_the_risks_for_ridge_only():
    X, y = _data("labels")
    model, bounds = GeneralizedLinear("logistic", L2()), {"penalty__alpha": (1e-1, 1e2)}
    ours, theirs = (
        _objective(GradientSearchCV(model, bounds, gradient=which), X, y) for which in ("exact", "2017")
    )
    t = np.array([2.0])
    (value, exact), (same, approximate) = ours.value_and_gradient(t), theirs.value_and_gradient(t)
    assert value == pytest.approx(same, rel=1e-12)
    assert 1e-5 < np.abs(exact - approximate).max() < 0.5 * np.abs(exact).max()
    X, y = _data()
    ours, theirs = (_objective(_per_feature(gradient=which), X, y) for which in ("exact", "2017"))
    t = np.linspace(-1.0, 2.0, P)
    np.testing.assert_allclose(ours.value_and_gradient(t)[1], theirs.value_and_gradient(t)[1], rtol=1e-6)


def test_stochastic_steps_lower_the_risk_and_repeat():
    X, y = _data(n=60, p=12)
    settings = {"optimizer": "stochastic", "max_iter": 100, "learning_rate": 1.0}
    one, two, other = (_per_feature(**settings, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    start = one.cv_results_["mean_test_score"][0]
    assert one.best_score_ > start + 0.01
    assert other.best_score_ > start + 0.01
    np.testing.assert_array_equal(one.best_params_["penalty__alpha"], two.best_params_["penalty__alpha"])
    assert np.any(one.best_params_["penalty__alpha"] != other.best_params_["penalty__alpha"])


@pytest.mark.parametrize("seed", [5, 13, 25])
def test_the_search_of_a_lasso_finds_the_lowest_of_its_valleys(seed):
    """Each column that enters may leave a valley behind: they lie closer than a factor of two."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([30, 50, 80])), int(rng.choice([5, 15, 40]))
    X = rng.normal(size=(n, p))
    size = rng.choice([0.3, 1.0])
    y = size * (X[:, 0] + 0.5 * X[:, 1]) + rng.normal(size=n)
    found = GradientSearchCV(Lasso(), {"alpha": (1e-3, 3.0)}).fit(X, y)
    grid = np.geomspace(0.02, 3.0, 40)
    lowest = min(onefit.loo(Lasso(alpha, tol=1e-8).fit(X, y), X, y).value for alpha in grid)
    assert -found.best_score_ <= 1.001 * lowest


def test_more_starts_are_no_worse():
    X, y = _data(n=60, p=8, seed=1)
    one, three = (_per_feature(n_starts=k, random_state=0).fit(X, y) for k in (1, 3))
    assert three.best_score_ >= one.best_score_
    assert len(three.cv_results_["params"]) > len(one.cv_results_["params"])


def test_scales_of_a_kernel_find_the_features_that_count():
    X, y = _data(n=150, p=6)
    y = np.sin(2.0 * X[:, 0]) + np.cos(2.0 * X[:, 1]) + 0.1 * np.random.default_rng(5).normal(size=150)
    bounds = {"alpha": (1e-5, 1e1), "kernel__length_scale": PerFeature(0.3, 1e2)}
    each = GradientSearchCV(KernelRidge(kernel=RBF()), bounds).fit(X[:100], y[:100])
    one = GradientSearchCV(KernelRidge(kernel="rbf"), {"alpha": (1e-5, 1e1), "gamma": (1e-3, 1e1)})
    one.fit(X[:100], y[:100])
    assert set(np.argsort(each.best_params_["kernel__length_scale"])[:2]) == {0, 1}
    error = [np.mean((search.predict(X[100:]) - y[100:]) ** 2) for search in (each, one)]
    assert error[0] < 0.5 * error[1]
    assert each.best_risk_.value < 0.5 * one.best_risk_.value


# --- mixtures of losses ----------------------------------------------------------------------------

MIXED = losses.Mixture(
    [losses.Exponential(), losses.SquaredHinge(), losses.Logistic(), losses.SmoothedHinge()]
)
OF_NUMBERS = losses.Mixture([losses.Squared(), losses.Huber(0.5), losses.SquaredEpsilonInsensitive(0.3)])
WITH_HINGE = losses.Mixture([losses.Hinge(), losses.Logistic(), losses.Exponential()])
WITH_KINKS = losses.Mixture([losses.Quantile(0.3), losses.Squared(), losses.EpsilonInsensitive(0.4)])
WEIGHTS = {"loss__weights": Simplex(), "penalty__alpha": (1e-1, 1e2)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mixed", [MIXED, OF_NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("how", RISKS)
def test_gradients_in_the_weights_of_a_mixture(how, mixed, weighted):
    """Along the simplex, and in the strength beside it."""
    if how == "stratified":
        how = "k-fold"
    X, y = _data("labels" if mixed.of_two_classes else "numbers")
    weights = np.random.default_rng(1).uniform(0.2, 3.0, N) if weighted else None
    search = GradientSearchCV(GeneralizedLinear(mixed, L2()), WEIGHTS, risk=RISKS[how])
    objective, k = _objective(search, X, y, weights), len(mixed.losses)
    way = np.append((-1.0) ** np.arange(k) / np.arange(1.0, k + 1), 0.5)  # in which no component is zero
    way[:k] -= way[:k].mean()
    exact = how != "permuted"  # there the constant model depends on the weights too

    def is_right(strength, step):
        t = np.append(np.arange(1.0, k + 1) / (k * (k + 1) / 2), strength)
        _, gradient = objective.value_and_gradient(t)
        size = np.abs(gradient - np.append(np.full(k, gradient[:k].mean()), 0.0)).max()
        error = abs(_by_five_points(objective, t, step * way) / step - way @ gradient) / size
        return error < (1e-6 if exact else 1e-3)

    # no row should come to the corner of the hinge, by which classes are judged
    assert any(is_right(strength, step) for strength in (1.0, 0.5) for step in (1e-3, 1e-4))
    assert objective.exact == {0: exact, 1: True}


@pytest.mark.costly
@pytest.mark.parametrize("how", ["loo", "k-fold", "held-out"])
@pytest.mark.parametrize("mixed", [WITH_HINGE, WITH_KINKS], ids=["hinge", "kinks"])
@pytest.mark.parametrize("penalty", [L2(), penalties.ElasticNet(1.0, 0.3)], ids=["ridge", "elastic net"])
def test_gradients_in_the_weights_of_a_mixture_with_kinks(how, mixed, penalty):
    """Differences are of points so near that no row comes to a kink or leaves one."""
    X, y = _data("labels" if mixed.of_two_classes else "numbers", n=16, p=3)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 16)
    search = GradientSearchCV(GeneralizedLinear(mixed, penalty), WEIGHTS, risk=RISKS[how])
    objective, t = _objective(search, X, y, weights), np.array([0.5, 0.2, 0.3, 1.0])
    _, gradient = objective.value_and_gradient(t)
    assert objective.exact == {0: True, 1: True}
    direction = np.array([0.7, -0.2, -0.5, 0.6])
    found = _by_five_points(objective, t, 1e-5 * direction) / 1e-5
    assert np.all(gradient != 0)
    assert found == pytest.approx(direction @ gradient, abs=1e-6 * np.abs(gradient).max())


@pytest.mark.parametrize("mixed", [WITH_HINGE, WITH_KINKS], ids=["hinge", "kinks"])
def test_mixtures_with_kinks_are_left_out_as_their_refits(mixed):
    X, y = _data("labels" if mixed.of_two_classes else "numbers", n=20, p=3)
    weights, groups = np.random.default_rng(1).uniform(0.2, 3.0, 20), np.arange(20) % 5
    model = GeneralizedLinear(mixed, L2(1.5)).fit(X, y, weights)
    rows, sets = onefit.loo(model, X, y, weights), onefit.loo(model, X, y, weights, groups=groups)
    for found, removed in ((rows, np.eye(20) > 0), (sets, groups == np.arange(5)[:, None])):
        for gone in removed:
            refit = clone(model).fit(X[~gone], y[~gone], weights[~gone])
            expected = X[gone] @ refit.coef_.ravel() + np.squeeze(refit.intercept_)
            np.testing.assert_allclose(found.decision[gone], expected, atol=1e-9)


def test_the_hinge_and_two_more_losses_are_mixed_by_gradient():
    """The first loss that Wang et al. (2019, appendix B) learn."""
    X, y = _data("labels", n=32, p=3)
    folds = risk.KFold(4)
    bounds = {"loss__weights": Simplex()}
    search = GradientSearchCV(GeneralizedLinear(WITH_HINGE, L2(3.0)), bounds, risk=folds).fit(X, y)
    weights = search.best_params_["loss__weights"]
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    single = [GeneralizedLinear(losses.Mixture(WITH_HINGE.losses, one), L2(3.0)) for one in np.eye(3)]
    values = [onefit.evaluate(one.fit(X, y), X, y, folds).value for one in single]
    assert search.best_risk_.value <= min(values) * (1 + 1e-9)


@pytest.mark.parametrize("penalty", [L2(), L1()])
def test_mixtures_with_kinks_choose_their_strength_along_a_path(penalty):
    X, y = _data("labels", n=24, p=3)
    model = onefit.GeneralizedLinearLOO(WITH_HINGE, penalty, alphas=5, early_stopping=False).fit(X, y)
    for k in (0, len(model.alphas_) // 2):
        one = GeneralizedLinear(WITH_HINGE, penalty.scaled(model.alphas_[k])).fit(X, y)
        np.testing.assert_allclose(model.coef_path_[k], one.coef_.ravel(), atol=1e-9)
    chosen = GeneralizedLinear(WITH_HINGE, penalty.scaled(model.alpha_)).fit(X, y)
    assert model.loo_.value == pytest.approx(onefit.loo(chosen, X, y).value, rel=1e-9)


def test_mixtures_with_kinks_name_the_penalties_that_they_take():
    X, y = _data("labels")
    with pytest.raises(TypeError, match=r"ridge and polyhedral .* not GroupLasso: take SmoothedH"):
        GeneralizedLinear(WITH_HINGE, GroupLasso(np.arange(P) // 2)).fit(X, y)


@pytest.mark.costly
@pytest.mark.parametrize("optimizer", ["auto", "projected", "constant", "adam"])
def test_weights_stay_on_the_simplex_and_are_no_worse_than_a_single_loss(optimizer):
    X, y = _data("labels", n=60)
    folds = risk.KFold(4)
    model = GeneralizedLinear(MIXED, L2(3.0))
    search = GradientSearchCV(
        model, {"loss__weights": Simplex()}, risk=folds, optimizer=optimizer, max_iter=30
    )
    search.fit(X, y)
    for params in search.cv_results_["params"]:
        assert params["loss__weights"].min() >= 0
        assert params["loss__weights"].sum() == pytest.approx(1.0, abs=1e-12)
    single = [GeneralizedLinear(losses.Mixture(MIXED.losses, weights), L2(3.0)) for weights in np.eye(4)]
    values = [onefit.evaluate(one.fit(X, y), X, y, folds).value for one in single]
    assert search.best_risk_.value <= min(values) * (1 + 1e-9)
    assert search.best_risk_.value == pytest.approx(-search.best_score_, rel=1e-8)
    assert not hasattr(search, "predict_proba")
    np.testing.assert_array_equal(search.decision_function(X) > 0, search.predict(X) == 1)


@pytest.mark.filterwarnings("ignore:the search ended with penalty__alpha:onefit.UnreliableWarning")
@pytest.mark.parametrize("how", ["k-fold", "loo"])
def test_contaminated_labels_leave_the_exponential_loss_without_weight(how):
    """Rows far out on the wrong side cost it exponentially; the smoothed hinge hardly minds."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 4))
    y = (X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=120) > 0).astype(int)
    far = rng.choice(120, 8, replace=False)
    X[far], y[far] = 6.0 * X[far], 1 - y[far]
    search = GradientSearchCV(GeneralizedLinear(MIXED, L2()), WEIGHTS, risk=RISKS[how]).fit(X, y)
    weights = search.best_params_["loss__weights"]
    assert weights[0] == pytest.approx(0.0, abs=1e-6)  # the bound is reached
    assert weights[3] > 0.99


def test_a_mixture_of_one_loss_is_that_loss():
    X, y = _data("labels")
    mixed = GeneralizedLinear(losses.Mixture([losses.SquaredHinge()]), L2(2.0)).fit(X, y)
    plain = GeneralizedLinear("squared_hinge", L2(2.0)).fit(X, y)
    np.testing.assert_allclose(mixed.coef_, plain.coef_, rtol=1e-9)
    assert onefit.loo(mixed, X, y).value == pytest.approx(onefit.loo(plain, X, y).value, rel=1e-9)
    assert mixed.score(X, y) == plain.score(X, y)
    assert not hasattr(mixed, "predict_proba")
    assert onefit.loo(mixed, X, y).loss_name == "hinge loss"


def test_mixtures_of_numbers_are_judged_by_squared_error():
    X, y = _data()
    model = GeneralizedLinear(OF_NUMBERS, L2()).fit(X, y)
    assert onefit.loo(model, X, y).loss_name == "squared error"
    with pytest.raises(ValueError, match="Only binary classification"):
        GeneralizedLinear(MIXED).fit(X, np.arange(N) % 3)


def test_weights_of_a_mixture_and_other_bounds():
    model = GeneralizedLinear(MIXED, L2())
    labels = _data("labels")[1]
    _refused("knows bounds, not the simplex", WEIGHTS, model, y=labels, optimizer="lbfgs")
    _refused("Simplex is for the weights", {"penalty__alpha": Simplex()}, model, y=labels)
    _refused("Simplex is for the weights", {"alpha": Simplex()})


# --- where to start --------------------------------------------------------------------------------


def test_a_start_is_where_the_search_begins():
    X, y = _data("labels")
    start = {"loss__weights": [0.1, 0.2, 0.3, 0.4], "penalty__alpha": 0.7}
    search = GradientSearchCV(
        GeneralizedLinear(MIXED, L2()), WEIGHTS, risk=risk.KFold(3), start=start, max_iter=3
    )
    first = search.fit(X, y).cv_results_["params"][0]
    assert first["penalty__alpha"] == pytest.approx(0.7)
    np.testing.assert_allclose(first["loss__weights"], start["loss__weights"])
    assert search.best_score_ > search.cv_results_["mean_test_score"][0]


@pytest.mark.parametrize(
    ("bounds", "start", "expected"),
    [
        (EACH, {"penalty__alpha": 2.0}, np.full(P, 2.0)),
        (EACH, {"penalty__alpha": np.arange(1.0, P + 1)}, np.arange(1.0, P + 1)),
        (EACH, {}, np.ones(P)),
        (PerGroup(list("bbaaa"), 1e-2, 1e2), {"penalty__alpha": [3.0, 4.0]}, [4.0, 4.0, 3.0, 3.0, 3.0]),
    ],
)
def test_starts_of_vectors(bounds, start, expected):
    X, y = _data()
    model = GeneralizedLinear(penalty=L2())
    search = GradientSearchCV(model, {"penalty__alpha": bounds}, start=start, max_iter=1).fit(X, y)
    np.testing.assert_allclose(search.cv_results_["params"][0]["penalty__alpha"], expected)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"beta": 1.0}, "start names 'beta', but the search is over alpha"),
        ({"alpha": 1e4}, "start of 'alpha' must be a number from 0.01 to 1000, got 10000"),
        ({"alpha": np.nan}, "must be a number from 0.01"),
        ({"alpha": "small"}, "must be a number, got 'small'"),
        ({"alpha": [1.0, 2.0]}, "must be a number, got"),
    ],
)
def test_starts_that_are_none(start, message):
    _refused(message, start=start)


def test_starts_of_weights_that_are_none():
    model, labels = GeneralizedLinear(MIXED, L2()), _data("labels")[1]
    start = {"loss__weights": [0.5, 0.5, 0.5, 0.5]}
    _refused("must be 4 numbers at least 0, with sum 1", WEIGHTS, model, y=labels, start=start)


# --- the problem at other hyperparameters ----------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "bounds", "params"),
    [
        (
            GeneralizedLinear(OF_NUMBERS, penalties.ElasticNet()),
            {"penalty__alpha": EACH, "penalty__l1_ratio": (0.1, 0.9), "loss__weights": Simplex()},
            {
                "penalty__alpha": np.arange(1.0, P + 1),
                "penalty__l1_ratio": 0.3,
                "loss__weights": [0.2, 0.3, 0.5],
            },
        ),
        (
            make_pipeline(StandardScaler(), SVR(kernel=RBF())),
            {"svr__C": (0.1, 10.0), "svr__kernel__length_scale": (0.5, 5.0)},
            {"svr__C": 0.4, "svr__kernel__length_scale": 2.0},
        ),
    ],
)
def test_problems_are_those_of_a_model_with_the_hyperparameters(model, bounds, params):
    X, y = _data()
    searched = SearchedModel.of(model, bounds, X, y, None)
    before = clone(searched.fitted)
    ours = searched.problem_at(params)
    theirs = read(clone(model).set_params(**params).fit(X, y), X, y).fit.problem
    assert ours.loss == theirs.loss
    assert same_penalty(ours.penalty, theirs.penalty)
    assert is_same(ours.X, theirs.X)
    for name, value in before.get_params(deep=False).items():  # which stays as it was fitted
        assert repr(getattr(searched.fitted, name)) == repr(value)


# --- a citizen of scikit-learn ---------------------------------------------------------------------


def test_results_are_consistent():
    X, y = _data()
    for model, bounds in ((Ridge(), STRENGTH), (Lasso(), {"alpha": (1e-3, 1.0)})):
        search = GradientSearchCV(model, bounds).fit(X, y)
        results = search.cv_results_
        assert results["params"][search.best_index_] == search.best_params_
        assert results["mean_test_score"][search.best_index_] == search.best_score_
        assert sorted(results["rank_test_score"]) == list(range(1, len(results["params"]) + 1))
        assert [one["alpha"] for one in results["params"]] == results["param_alpha"].tolist()
        assert search.best_risk_.value == pytest.approx(-search.best_score_, rel=1e-8)
        assert search.best_estimator_.alpha == search.best_params_["alpha"]


def test_predictions_are_those_of_the_best_model():
    X, y = _data("labels")
    search = GradientSearchCV(LogisticRegression(), {"C": (1e-2, 1e2)}).fit(X, y)
    best = LogisticRegression(C=search.best_params_["C"]).fit(X, y)
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_allclose(getattr(search, method)(X), getattr(best, method)(X))
    assert search.score(X, y) == best.score(X, y)
    np.testing.assert_array_equal(search.classes_, [0, 1])
    assert not hasattr(GradientSearchCV(Ridge(), STRENGTH), "predict_proba")


def test_scoring_judges_left_out_predictions():
    X, y = _data()
    plain = GradientSearchCV(Ridge(), STRENGTH).fit(X, y)
    scored = GradientSearchCV(Ridge(), STRENGTH, scoring="r2").fit(X, y)
    assert scored.best_params_ == plain.best_params_
    assert scored.best_score_ == pytest.approx(plain.best_risk_.score("r2"))
    assert scored.score(X, y) == pytest.approx(scored.best_estimator_.score(X, y))


def test_clone_pickle_and_names():
    pandas = pytest.importorskip("pandas")
    X, y = _data()
    search = GradientSearchCV(Ridge(), STRENGTH, risk=risk.KFold(3), max_iter=7)
    copied = clone(search)
    assert copied.get_params()["max_iter"] == 7
    assert copied.set_params(estimator__fit_intercept=False).estimator.fit_intercept is False
    frame = pandas.DataFrame(X, columns=list("abcde"))
    search.fit(frame, y)
    assert list(search.feature_names_in_) == list("abcde")
    assert search.n_features_in_ == P
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(frame), search.predict(frame))


def test_without_refit_there_is_no_model():
    X, y = _data()
    search = GradientSearchCV(Ridge(), STRENGTH, refit=False).fit(X, y)
    assert search.best_params_ == GradientSearchCV(Ridge(), STRENGTH).fit(X, y).best_params_
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(AttributeError, match="refit=True"):
        search.predict(X)


def test_jobs_do_not_matter():
    X, y = _data()
    one, two = (
        GradientSearchCV(Ridge(), STRENGTH, risk=risk.KFold(3), n_jobs=jobs).fit(X, y) for jobs in (1, 2)
    )
    assert one.best_params_ == two.best_params_
    assert one.best_score_ == two.best_score_


@pytest.mark.filterwarnings("ignore:the search ended with")
def test_the_best_risk_is_on_the_splits_of_the_search():
    """Without a seed too: splits are drawn once (and some draws are best at a bound, which is said)."""
    X, y = _data()
    Z = np.hstack([X, np.random.default_rng(1).normal(size=(N, 15))])
    for how in (risk.HeldOut(0.3), risk.MonteCarlo(5, 0.8), RISKS["groups"]):
        search = GradientSearchCV(ElasticNet(l1_ratio=0.1), {"alpha": (1e-4, 1e2)}, risk=how).fit(Z, y)
        assert search.best_risk_.value == pytest.approx(-search.best_score_, rel=1e-8)


def test_pipelines():
    X, y = _data()
    alone = GradientSearchCV(make_pipeline(Ridge()), {"ridge__alpha": (1e-2, 1e3)}).fit(X, y)
    assert (
        alone.best_params_["ridge__alpha"]
        == GradientSearchCV(Ridge(), STRENGTH).fit(X, y).best_params_["alpha"]
    )
    model = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), GeneralizedLinear())
    model.set_params(generalizedlinear__penalty=L2())
    bounds = {"generalizedlinear__penalty__alpha": PerFeature(1e-1, 1e4)}  # one for each of 20, not of 5
    search = GradientSearchCV(model, bounds, risk=risk.KFold(4)).fit(X, y)
    assert search.best_params_["generalizedlinear__penalty__alpha"].shape == (20,)
    assert search.best_estimator_.predict(X).shape == (N,)


def test_weights_reach_the_last_step():
    X, y = _data()
    weights = np.random.default_rng(1).uniform(0.2, 3.0, N)
    Z = StandardScaler().fit_transform(X)
    inside = GradientSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": (1e-2, 1e3)})
    outside = GradientSearchCV(Ridge(), STRENGTH)
    inside.fit(X, y, weights)
    outside.fit(Z, y, weights)
    assert inside.best_params_["ridge__alpha"] == pytest.approx(outside.best_params_["alpha"], rel=1e-8)


# --- interruptions ---------------------------------------------------------------------------------


def test_callbacks_hear_of_every_step():
    X, y = _data()
    heard = []
    search = GradientSearchCV(Ridge(), STRENGTH, callback=lambda params, value: heard.append((params, value)))
    search.fit(X, y)
    assert min(value for _, value in heard) == -search.best_score_
    assert any(params == search.best_params_ for params, _ in heard)


@pytest.mark.parametrize("optimizer", ["lbfgs", "projected", "constant", "adam", "stochastic"])
def test_an_interruption_ends_with_the_best_so_far(optimizer):
    X, y = _data()
    heard = []

    def interrupt(_, value):
        heard.append(value)
        if len(heard) == 4:
            raise KeyboardInterrupt

    search = _per_feature(optimizer=optimizer, callback=interrupt, random_state=0).fit(X, y)
    assert search.message_ == "interrupted"
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert -search.best_score_ == min(heard)
    assert search.best_risk_.value == pytest.approx(min(heard), rel=1e-8)


# --- what is refused -------------------------------------------------------------------------------


def _refused(message, bounds=None, model=None, X=None, y=None, error=ValueError, **settings):
    data = _data()
    search = GradientSearchCV(
        Ridge() if model is None else model, STRENGTH if bounds is None else bounds, **settings
    )
    with pytest.raises(error, match=message):
        search.fit(data[0] if X is None else X, data[1] if y is None else y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((1e2, 1e-2), "the lower one first"),
        ((1.0, 1.0), "the lower one first"),
        ((0.0, 1.0, "log"), "must be positive in the scale 'log'"),
        ((-1.0, 1.0), "'alpha' cannot be searched from -1 to 1: .* in the range \\[0.0, inf\\)"),
        (PerFeature(-1.0, 1.0), "must be positive in the scale 'log'"),
        ((np.nan, 1.0), "finite"),
        ((1.0, np.inf), "finite"),
        ((None, 1.0), "finite"),
        (("a", "b"), "finite"),
        (PerFeature(np.nan, 1.0), "finite"),
        ((1.0,), "must be \\(low, high\\)"),
        (3.0, "must be \\(low, high\\)"),
        ((1.0, 2.0, "cube"), "must be one of log, linear"),
        (PerGroup([0, 1], 1.0, 2.0), "has 2 labels, but X has 5 columns"),
        (PerFeature(1.0, 2.0), "Ridge does not take one value a feature"),
    ],
)
def test_bounds_that_are_none(given, message):
    _refused(message, {"alpha": given})


def test_an_end_that_the_model_does_not_take():
    labels = (_data()[1] > 0).astype(int)
    _refused("'C' cannot be searched from 0 to 10", {"C": (0.0, 10.0)}, LogisticRegression(), y=labels)


def test_data_that_are_none_are_not_blamed_on_the_bounds():
    X, y = _data()
    _refused("^Input y contains NaN.$", y=np.where(np.arange(len(y)) == 3, np.nan, y))
    text = np.where(np.arange(X.shape[1]) == 1, "a", X.astype(object))
    _refused("column 1 of X holds text such as 'a'", X=text)


def test_hyperparameters_that_are_not_there():
    _refused("no hyperparameter 'beta'; it has alpha", {"beta": (1.0, 2.0)})
    _refused("at least one hyperparameter", {})
    steps = make_pipeline(PCA(2), Ridge())
    _refused("a step before the last", {"pca__tol": (0.1, 0.2)}, steps)


@pytest.mark.parametrize("penalty", [GroupLasso(np.arange(P) // 2), FusedLasso()])
def test_one_value_a_feature_is_for_separable_penalties(penalty):
    _refused(
        "does not take one value a feature", {"penalty__alpha": EACH}, GeneralizedLinear(penalty=penalty)
    )


def test_models_without_gradients():
    forest, bounds = RandomForestRegressor(2), {"min_impurity_decrease": (0.0, 1.0)}
    _refused("no gradients for RandomForest", bounds, forest, error=onefit.UnsupportedModelError)
    _refused("lists of values with cv=5", bounds, forest, error=onefit.UnsupportedModelError)
    _refused(
        r"pipelines that end in one of them\. On a grid cv=5 judges any model, by refits",
        {"max_depth": [1, 2]},
        forest,
        error=onefit.UnsupportedModelError,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "newton"}, "optimizer must be one of"),
        ({"gradient": "2018"}, "gradient must be"),
        ({"risk": risk.KFold}, r"risk must be .*Permutation\(\)"),
        ({"risk": risk.SURE()}, "risk must be"),
        ({"n_starts": 0}, "n_starts"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0.0}, "tol"),
        ({"learning_rate": np.nan}, "learning_rate"),
        ({"scoring": "r22"}, "r22"),
        ({"scoring": "r2", "refit": False}, "refit=True"),
        ({"scoring": "r2", "risk": risk.GCV()}, "other than GCV"),
        ({"gradient": "2017", "risk": risk.KFold(3)}, "gradient='2017' is for"),
        ({"optimizer": "stochastic", "risk": risk.KFold(3)}, "one row at a time"),
    ],
)
def test_settings_that_are_none(settings, message):
    _refused(message, **settings)


def test_data_that_cannot_be_searched():
    X, _ = _data()
    _refused("NaN", X=np.where(X > 2, np.nan, X))
    _refused("Reshape your data", X=X[:, 0])
    sorted_labels = np.repeat([0, 1], N // 2)
    model, bounds = LogisticRegression(), {"C": (1e-2, 1e2)}
    _refused(
        "split 0 has no training row of class number 0", bounds, model, y=sorted_labels, risk=risk.KFold(2)
    )


def test_a_risk_that_is_nowhere_finite():
    wide = np.random.default_rng(0).normal(size=(10, 30))  # no slack: as many degrees of freedom as rows
    model, bounds = Ridge(fit_intercept=False), {"alpha": (1e-18, 1e-17, "log")}
    _refused("not finite for any", bounds, model, X=wide, y=wide[:, 0], risk=risk.GCV())


@pytest.mark.parametrize(("bounds", "which"), [((1e-4, 1e-2), "upper"), ((1e4, 1e6), "lower")])
def test_ends_at_a_bound_are_told(bounds, which):
    X, y = _data()
    with pytest.warns(onefit.UnreliableWarning, match=f"alpha at its {which} bound"):
        search = GradientSearchCV(Ridge(), {"alpha": bounds}).fit(X, y)
    assert search.best_params_["alpha"] == pytest.approx(bounds[which == "upper"], rel=1e-6)
    np.testing.assert_allclose(search.gradient_, 0.0, atol=1e-6)  # projected onto the bounds


@pytest.mark.parametrize("optimizer", ["lbfgs", "projected", "constant", "adam"])
def test_flat_risks_end_at_once(optimizer):
    X, y = _data()
    for model, bounds, response in (
        (Ridge(), STRENGTH, np.full(N, 2.0)),
        (Lasso(), {"alpha": (1e2, 1e4)}, y),
        (GeneralizedLinear(penalty=L1()), {"penalty__alpha": PerFeature(1e3, 1e5)}, y),
    ):
        search = GradientSearchCV(model, bounds, optimizer=optimizer).fit(X, response)
        expected = np.mean((response - response.mean()) ** 2) * (N / (N - 1)) ** 2
        assert -search.best_score_ == pytest.approx(expected, abs=1e-12)
        np.testing.assert_array_equal(search.gradient_, 0.0)


def test_three_numbers_go_on_from_a_kink():
    """L-BFGS-B stopped 1 % above, in a kink, from either start."""
    rng = np.random.default_rng(0)
    X, y = load_diabetes(return_X_y=True)
    rows = rng.choice(442, 80, replace=False)
    X, y = 20.0 * X[rows], y[rows]
    bounds = {"C": (0.1, 1e6), "gamma": (1e-5, 1e2), "epsilon": (0.1, 80.0)}
    search = GradientSearchCV(SVR(), bounds, risk=onefit.risk.KFold(5), refit=False)
    ended = clone(search).set_params(optimizer="lbfgs").fit(X, y)
    assert search.fit(X, y).best_score_ > 0.995 * ended.best_score_


def test_a_search_by_gcv_is_by_that_of_evaluate_for_several_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 10))
    y = (X[:, :3] + rng.gumbel(size=(80, 3))).argmax(axis=1)
    search = GradientSearchCV(LogisticRegression(), {"C": (1e-3, 1e2)}, risk=risk.GCV()).fit(X, y)
    told = -search.best_score_
    model = LogisticRegression(C=search.best_params_["C"], tol=1e-8).fit(X, y)
    assert told == pytest.approx(onefit.evaluate(model, X, y, risk.GCV()).value, rel=1e-3)
    others = [
        onefit.evaluate(LogisticRegression(C=C, tol=1e-8).fit(X, y), X, y, risk.GCV()).value
        for C in np.geomspace(1e-3, 1e2, 7)
    ]
    assert told <= min(others) * 1.001

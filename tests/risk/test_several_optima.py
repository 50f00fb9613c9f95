"""Refits with several optima, columns that share a coefficient, and what must not be called proven there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, LogisticRegression, QuantileRegressor, Ridge, TweedieRegressor
from sklearn.svm import SVC, SVR, LinearSVR

import clarabel_route
import onefit
from onefit.exceptions import NotOptimalWarning, UnreliableWarning
from onefit.fit import Fit
from onefit.leave_out.loose import (
    is_determined,
    reach_of_optima,
    room_of_intercept,
    with_middle_intercept,
)
from onefit.leave_out.refit import solution_without
from onefit.leave_out.vertex import at_vertex, copies
from onefit.losses import Hinge, Huber, Logistic, Quantile, SquaredHinge
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve


def balanced_classes(n_first=10, n_second=5):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], [n_first, n_second])
    return rng.normal(size=(len(y), 3)), y


def test_an_undetermined_intercept_is_said_and_bounded():
    X, y = balanced_classes()
    model = SVC(C=1e-3, kernel="linear", class_weight="balanced").fit(X, y)
    with pytest.warns(UnreliableWarning):
        est = onefit.loo(model, X, y)
    assert est.guarantee == "bounded"
    assert any("several optima" in note for note in est.notes)
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        refit = SVC(C=1e-3, kernel="linear", class_weight="balanced", tol=1e-10).fit(X[kept], y[kept])
        assert abs(refit.decision_function(X[i : i + 1])[0] - est.decision[i]) <= est.bounds[i] + 1e-6


@pytest.mark.parametrize(("kind", "kernel"), [(SVC, "linear"), (SVR, "linear"), (SVR, "rbf")])
def test_where_no_row_is_inside_its_box_libsvm_takes_the_middle(kind, kernel):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(31, 3))
    y = (X[:, 0] > 0.5).astype(int) if kind is SVC else X[:, 0] + rng.normal(size=31)
    options = {"C": 0.01, "kernel": kernel, "gamma": 0.3}
    est = onefit.loo(kind(**options).fit(X, y), X, y)
    assert est.guarantee == "exact"
    assert est.flagged.size == 0
    found = np.empty(31)
    for i in range(31):
        refit = kind(**options, tol=1e-10).fit(np.delete(X, i, 0), np.delete(y, i))
        found[i] = (refit.decision_function if kind is SVC else refit.predict)(X[i : i + 1])[0]
    np.testing.assert_allclose(est.decision, found, atol=1e-6)
    refits = [solution_without(est._left_out.fit, i).fit for i in range(31)]
    assert sum(max(room_of_intercept(refit)) > 1e-3 for refit in refits) > 5


def test_rounding_may_leave_libsvm_a_row_inside_its_box():
    """Sums of weights that cancel, but for rounding: what libsvm takes then is not the middle."""
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(40, 2)), rng.normal(size=40), rng.integers(1, 4, size=40).astype(float)
    model = SVR(C=1e-6, kernel="linear").fit(X, y, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model, X, y, weights)
    assert est._left_out.several.size > 0
    for i in range(40):
        refit = SVR(C=1e-6, kernel="linear", tol=1e-10)
        refit.fit(np.delete(X, i, 0), np.delete(y, i), np.delete(weights, i))
        assert abs(refit.predict(X[i : i + 1])[0] - est.decision[i]) <= est.bounds[i] + 1e-6


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_estimators_of_ours_take_the_middle_intercept(loss):
    X, y = balanced_classes(10, 10)
    model = onefit.GeneralizedLinear(loss=loss, penalty=L2(1e4)).fit(X, y)
    est = onefit.loo(model, X, y)
    assert est.guarantee == "exact"
    fit = est._left_out.fit
    assert max(room_of_intercept(fit)) > 0.5
    assert float(np.ravel(model.intercept_)[0]) == pytest.approx(
        float(with_middle_intercept(fit)[0].intercept)
    )
    for i in range(len(y)):
        refit = onefit.GeneralizedLinear(loss=loss, penalty=L2(1e4)).fit(np.delete(X, i, 0), np.delete(y, i))
        own = refit.predict if loss == "absolute" else refit.decision_function
        assert own(X[i : i + 1])[0] == pytest.approx(est.decision[i], abs=1e-9)


@pytest.mark.parametrize("level", [-0.3, 0.0, 0.8])
def test_the_room_of_an_intercept_ends_where_the_objective_rises(level):
    X, y = np.zeros((4, 1)), np.array([0.0, 0.0, 1.0, 1.0])
    problem = Problem(Hinge(), L2(1.0), X, y, np.ones(4))
    fit = Fit(problem, np.zeros(1), np.array(level))
    down, up = room_of_intercept(fit)
    assert (level - down, level + up) == pytest.approx((-1.0, 1.0))
    for at in (level - down, level + up, 0.0):
        assert fit.moved(fit.coef, np.array(at)).objective == pytest.approx(fit.objective)
    for at in (level - down - 0.1, level + up + 0.1):
        assert fit.moved(fit.coef, np.array(at)).objective > fit.objective + 0.1
    assert float(with_middle_intercept(fit)[0].intercept) == pytest.approx(0.0)


def with_copies(n=60):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 6))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0).astype(float)
    return np.column_stack([X, X[:, 0], -X[:, 1]]), y


def test_copies_give_up_their_share():
    X, y = with_copies()
    fit = solve(Fit.at_start(Problem(Logistic(), L1(2.0), X[:, :6], y, np.ones(len(y))))).fit
    shared = np.append(fit.coef, [0.25 * fit.coef[0], -0.5 * fit.coef[1]])
    shared[:2] *= (0.75, 0.5)
    whole = Fit(Problem(Logistic(), L1(2.0), X, y, np.ones(len(y))), shared, fit.intercept)
    found = at_vertex(whole)
    assert np.count_nonzero(found.coef) == np.count_nonzero(fit.coef)
    assert found.objective == pytest.approx(whole.objective, rel=1e-12)
    np.testing.assert_allclose(
        found.problem.linear_predictor(found.coef, found.intercept), whole.eta, atol=1e-12
    )
    assert copies(found).sum() == 2
    assert not copies(found)[found.coef != 0].any()


def test_copies_change_no_left_out_value():
    X, y = with_copies()
    few, all_ = (
        LogisticRegression(C=0.5, l1_ratio=1, solver="saga", tol=1e-8, max_iter=20000).fit(A, y)
        for A in (X[:, :6], X)
    )
    known = onefit.loo(few, X[:, :6], y, exact=True)
    est = onefit.loo(all_, X, y, exact=True)
    assert est.guarantee == known.guarantee == "exact"
    np.testing.assert_allclose(est.decision, known.decision, atol=1e-5)


def test_a_column_that_leaves_with_its_rows_is_not_proven_by_a_singular_factor():
    rng = np.random.default_rng(0)
    x = np.where(np.arange(20) < 4, rng.normal(size=20), 0.0)
    y = (x + 0.3 * rng.normal(size=20) > 0).astype(int)
    X, groups = x[:, None], np.repeat(np.arange(5), 4)
    model = onefit.GeneralizedLinear(loss="squared_hinge", penalty=onefit.penalties.L1(0.002)).fit(X, y)
    est = onefit.loo(model, X, y, groups=groups)
    assert est.guarantee == "exact"
    for group in range(5):
        own = groups == group
        refit = onefit.GeneralizedLinear(loss="squared_hinge", penalty=onefit.penalties.L1(0.002))
        refit.fit(X[~own], y[~own])
        np.testing.assert_allclose(est.decision[own], refit.decision_function(X[own]), atol=1e-7)


def test_where_every_row_is_in_the_tube_the_intercept_is_the_middle_as_libsvm_has_it():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 3)), rng.normal(size=24)
    est = onefit.loo(SVR(epsilon=100.0, gamma=1.0).fit(X, y), X, y)
    assert est.guarantee == "exact"
    for i in range(4):
        refit = SVR(epsilon=100.0, gamma=1.0).fit(np.delete(X, i, 0), np.delete(y, i))
        assert est.predictions[i] == pytest.approx(refit.predict(X[i : i + 1])[0], abs=1e-8)
    none = LinearSVR(C=3.0, epsilon=100.0, random_state=0).fit(X, y)
    np.testing.assert_array_equal(onefit.loo(none, X, y).predictions, 0.0)


def test_a_fit_that_hardly_moves_flags_no_rows():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(32, 2)), 1e4 + rng.normal(size=32)
    assert onefit.loo(Ridge(alpha=1e9).fit(X, y), X, y).flagged.size == 0


# --- what once broke ---------------------------------------------------------------------------------


def test_exact_without_active_columns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 4)), rng.normal(size=20)
    est = onefit.loo(Lasso(alpha=100.0).fit(X, y), X, y, exact=True)
    np.testing.assert_allclose(est.predictions, (y.sum() - y) / 19)
    labels = (y > 0).astype(int)
    model = LogisticRegression(C=1e-2, l1_ratio=1, solver="saga", max_iter=20000, tol=1e-10).fit(X, labels)
    with pytest.warns(NotOptimalWarning):
        assert onefit.loo(model, X, labels, exact=True).guarantee == "exact"


def test_a_row_of_zeros_without_an_intercept():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    X[4] = 0.0
    est = onefit.loo(TweedieRegressor(power=0, fit_intercept=False, tol=1e-9).fit(X, y), X, y)
    assert est.predictions[4] == 0.0
    assert est.guarantee != "rough"


def test_a_kernel_ridge_near_rounding_is_not_called_exact():
    X = np.linspace(0.0, 1.0, 20)[:, None]
    y = np.sin(X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KernelRidge(alpha=1e-14, kernel="rbf").fit(X, y)
    est = onefit.loo(model, X, y)
    assert est.guarantee == "bounded"


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_columns_out_of_range_are_refused_by_name(scale):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="column"):
        onefit.RidgeLOO().fit(scale * rng.normal(size=(20, 3)), rng.normal(size=20))


def test_groups_of_a_support_vector_machine():
    X, y = balanced_classes(20, 20)
    est = onefit.loo(SVC(C=1.0).fit(X, y), X, y, groups=np.arange(40) // 4)
    assert est.guarantee == "exact"


def test_folds_are_not_called_leave_one_out():
    X, y = balanced_classes(20, 20)
    est = onefit.evaluate(Ridge().fit(X, y), X, y, onefit.risk.KFold(5))
    assert "leave-one-out" not in str(est)
    assert "made exact" not in str(est)


# --- linear programs: nothing curves --------------------------------------------------------------------


def test_other_optima_of_a_linear_program_are_bounded():
    """Two rows on one axis that the hinge holds between them: every coefficient there is as good."""
    X = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    y = np.array([1, 1, 0, 0, 1, 0])
    fit = solve(Fit.at_start(Problem(Hinge(), L1(2.0), X, y.astype(float), np.ones(6)))).fit
    assert not is_determined(fit)
    far = reach_of_optima(fit, np.arange(6))
    program = conic_ends(fit)
    np.testing.assert_allclose(far, program, atol=1e-6)


def conic_ends(fit):
    """Largest move of each predictor among all points with the objective of the fit, by a linear program."""
    problem = fit.problem
    n, p = problem.X.shape
    sign = 2 * problem.y - 1

    # variables: β⁺, β⁻, b, losses
    def row(i):
        return np.concatenate([problem.X[i], -problem.X[i], [1.0], np.zeros(n)])

    cost = np.concatenate([np.full(2 * p, problem.penalty.alpha), [0.0], problem.weights])
    A = [np.concatenate([-sign[i] * row(i)[: 2 * p + 1], -np.eye(n)[i]]) for i in range(n)]
    A, b = np.vstack([*A, cost]), np.append(-np.ones(n), fit.objective + 1e-9)
    bounds = [(0, None)] * (2 * p) + [(None, None)] + [(0, None)] * n
    ends = []
    for i in range(n):
        low, high = (linprog(s * row(i), A, b, bounds=bounds) for s in (1.0, -1.0))
        assert low.status == high.status == 0
        ends.append(max(fit.eta[i] - low.fun, -high.fun - fit.eta[i]))
    return np.array(ends)


@pytest.mark.parametrize("strength", [0.5, 50.0])
def test_a_linear_program_of_ours_whose_intercept_alone_is_open_is_exact(strength):
    """With copies of a column, too, which open coefficients that change no predictor."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(31, 2))
    X, y = np.column_stack([X, X[:, 0]]), X[:, 0] + rng.normal(size=31)
    model = onefit.GeneralizedLinear(Quantile(0.5), L1(strength))
    est = onefit.loo(model.fit(X, y), X, y)
    assert strength == 0.5 or not model.coef_.any()
    assert est.guarantee == "exact"
    assert est.flagged.size == 0
    for i in range(31):
        refit = model.fit(np.delete(X, i, axis=0), np.delete(y, i))
        assert refit.predict(X[i : i + 1])[0] == pytest.approx(est.predictions[i], abs=1e-9)


def test_a_determined_linear_program_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = X[:, 0] + rng.normal(size=40)
    fit = solve(Fit.at_start(Problem(Quantile(0.3), L1(2.0), X, y, np.ones(40)))).fit
    assert is_determined(fit)
    np.testing.assert_array_equal(reach_of_optima(fit, np.arange(40)), 0.0)


def test_what_exact_cannot_settle_is_not_sent_to_exact():
    """Every row is solved anew already: the message does not ask for it again."""
    X = np.repeat(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 3, axis=0)
    y = np.tile([1, 0], 6)
    model = onefit.GeneralizedLinear("hinge", L1(1e-3)).fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est = onefit.loo(model, X, y, exact=True)
    said = " ".join(str(one.message) for one in caught) + str(est)
    assert "ask for exact=True" not in said
    assert any("several optima" in note for note in est.notes)


@pytest.mark.parametrize("reference", [1, 2], ids=["row", "group"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_dummies_that_depend_on_each_other_without_a_level(loss, reference):
    """Without the rows of neither level one dummy is one minus the other: both may stand for the two."""
    rng = np.random.default_rng(4)
    n = 40
    level = np.concatenate([np.zeros(reference, int), 1 + np.arange(n - reference) % 2])
    X = np.column_stack([level == 1, level == 2, rng.normal(size=n)]).astype(float)
    eta = 1.5 * X[:, 0] - 1.5 * X[:, 1] + X[:, 2]
    y = eta + rng.normal(size=n) if loss == "squared" else (eta + rng.logistic(size=n) > 0).astype(int)
    model = onefit.GeneralizedLinear(loss, L1(0.05)).fit(X, y)
    groups = np.concatenate([np.zeros(reference, int), 1 + np.arange(n - reference)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model, X, y, groups=groups)
    assert any("several optima" in note for note in est.notes)
    refit = onefit.GeneralizedLinear(loss, L1(0.05)).fit(X[groups > 0], y[groups > 0])
    coef, level = np.ravel(refit.coef_), float(np.ravel(refit.intercept_)[0])
    for dummy in coef[:2]:  # taken to zero, the intercept makes up for it
        assert abs(level + dummy + X[0, 2] * coef[2] - est.decision[0]) <= est.bounds[0] + 1e-5
    assert abs(coef[0] - coef[1]) / 2 - 1e-5 <= est.bounds[0] <= abs(coef[0] - coef[1]) + 1e-5


# --- a loss whose curvature vanishes ---------------------------------------------------------------------


def test_a_gradient_that_no_step_removes_is_no_optimum():
    """Squared hinge, where few rows are inside: the solver goes on along what nothing curves."""
    for seed in range(6):
        own = np.random.default_rng(seed)
        X = own.normal(size=(24, 10))
        y = (X[:, 0] + 0.3 * own.normal(size=24) > 0).astype(float)
        alpha = 1e-2
        start = Fit.at_start(Problem(SquaredHinge(), L1(alpha), X, y, np.ones(24)))
        whole = solve(start).fit
        for i in range(0, 24, 6):
            fit = solution_without(whole, i).fit
            slope = np.abs(fit.loss_gradient)
            assert np.all(slope <= alpha * (1 + 1e-6))
            np.testing.assert_allclose(slope[fit.coef != 0], alpha, rtol=1e-6)


# --- columns that only the removed row tells apart ------------------------------------------------------


@pytest.mark.parametrize("kind", ["squares", "two classes", "three classes"])
def test_a_column_that_only_the_removed_row_tells_from_another(kind):
    """Without row 0 the second column is a copy of the first: nothing says which of them predicts row 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:, 1] = X[:, 0]
    X[0, :2] = 1.5, -1.5
    eta = X[:, 0] + rng.logistic(size=40)
    several = kind == "three classes"
    if kind == "squares":
        y, model = eta, Lasso(alpha=0.1, tol=1e-12, max_iter=100_000)
    else:
        y = np.digitize(eta, [-0.5, 0.5] if several else [0.0])
        model = LogisticRegression(l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model.fit(X, y), X, y, exact=True)
    assert 0 in est._left_out.several
    assert est.guarantee != "exact"
    assert est.bounds[0] > 0.1
    assert np.all(np.delete(est.bounds, 0) < 1e-5)
    refit = solve(Fit.at_start(est._left_out.fit.problem.without(np.array([0])))).fit
    both = refit.coef[0] + refit.coef[1]
    for on_first in (1.0, 0.0):  # all of the weight on the one column, or on the other
        eta = X[0, 0] * on_first * both + X[0, 1] * (1 - on_first) * both + X[0, 2] * refit.coef[2]
        off = np.ravel(eta + refit.intercept - est._left_out.eta[0])
        assert (np.ptp(off) if several else abs(off[0])) <= est._left_out.bounds[0] * (1 + 1e-6) + 1e-9
    assert est.bounds[0] < 20.0


def test_copies_in_every_row_leave_nothing_open():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:, 1] = -X[:, 0]
    y = (X[:, 0] + rng.logistic(size=40) > 0).astype(int)
    model = LogisticRegression(l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000, random_state=0)
    est = onefit.loo(model.fit(X, y), X, y, exact=True)
    assert est.guarantee == "exact"
    assert not est._left_out.several.size


def test_rows_without_weight_have_the_intercept_that_a_refit_takes():
    """Without them the fit is the same, in the middle of its intercepts, at an end of which it may be."""
    rng = np.random.default_rng(513)
    X, weights = rng.normal(size=(60, 5)), rng.integers(0, 3, 60).astype(float)
    y = X[:, :3].sum(1) + rng.normal(size=60)
    model = SVR(C=1e-4, kernel="linear", tol=1e-10).fit(X, y, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model, X, y, sample_weight=weights)
    for i in np.flatnonzero(weights == 0)[:5]:
        kept = np.arange(60) != i
        refit = SVR(C=1e-4, kernel="linear", tol=1e-10).fit(X[kept], y[kept], weights[kept])
        assert refit.predict(X[[i]])[0] == pytest.approx(est.decision[i], abs=1e-6)


@pytest.mark.parametrize("loss", ["multinomial", "huber", "poisson"])
@pytest.mark.parametrize("seed", range(6))
def test_dummies_without_the_rows_that_have_neither(loss, seed):
    """Their coefficients may move together when the reference row leaves, and with them its predictor."""
    rng = np.random.default_rng(seed)
    level = np.r_[0, 1 + np.arange(39) % 2]
    X = np.column_stack([level == 1, level == 2, rng.normal(size=40)]).astype(float)
    eta = X @ np.array([2.0, -1.5, 0.8])
    if loss == "multinomial":
        y = np.argmax(np.column_stack([eta, -eta, 0 * eta]) + rng.gumbel(size=(40, 3)), axis=1)
    else:
        y = rng.poisson(np.exp(eta)) if loss == "poisson" else np.round(eta + rng.normal(size=40))
    model = onefit.GeneralizedLinear(loss, L1(1.0 if loss == "huber" else 0.05)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        est = onefit.loo(model, X, y, exact=True)
    assert not est.certified[0]
    assert est.bounds[0] > 0.05
    assert any("optima" in note for note in est.notes)


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_along_a_straight_piece_of_the_loss_may_move(seed):
    """Huber's straight rows hold nothing: optima reach to the ends of their pieces."""
    rng = np.random.default_rng(seed)
    level, some = np.r_[0, 1 + np.arange(40) % 2], np.arange(41) < 4
    X = np.column_stack([level == 1, level == 2, some, rng.normal(size=41)]).astype(float)
    y = 2 * X[:, 0] - 2 * X[:, 1] + X[:, 3] + 0.7 * rng.normal(size=41)
    y[:4] += [5, 30, 30, -30]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        model = onefit.GeneralizedLinear(Huber(1.0), L1(1.0)).fit(X, y)
        est = onefit.loo(model, X, y, exact=True)
    coef, level, _ = clarabel_route.minimum(est._left_out.fit.problem.without(0))
    assert 0.1 < abs(X[0] @ coef + level - est._left_out.eta[0]) <= est.bounds[0] < 60.0


@pytest.mark.parametrize("dependent", [False, True])
def test_what_all_classes_have_in_common_is_no_other_optimum(dependent):
    """As many coefficients of a column above zero as below: all may grow alike, no probability changes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 10))
    if dependent:
        X = np.hstack([X, np.eye(4)[rng.integers(0, 4, 160)]])
    y = (X @ rng.normal(size=(X.shape[1], 4)) + rng.gumbel(size=(160, 4))).argmax(axis=1)
    model = LogisticRegression(C=1.0, l1_ratio=1.0, solver="saga", tol=1e-8, max_iter=100_000).fit(X, y)
    fit = onefit.loo(model, X, y)._left_out.fit
    refits, moving = [solution_without(fit, i).fit for i in range(8)], 0
    for refit in refits:
        flat = np.all(refit.coef != 0, axis=1) & (np.sign(refit.coef).sum(axis=1) == 0)
        room = 0.5 * np.where(flat, np.abs(refit.coef).min(axis=1), 0.0)
        moved = Fit(refit.problem, refit.coef + room[:, None], refit.intercept)
        assert moved.objective == pytest.approx(refit.objective, rel=1e-9)
        assert is_determined(refit)
        moving += room.max() > 1e-3
    assert moving
    est = onefit.loo(model, X, y, exact=True)
    assert not any("several optima" in note for note in est.notes)
    assert est.guarantee == "exact"


@pytest.mark.parametrize(
    ("kind", "n", "p", "seeds"),
    [
        (SVR, 25, 5, [2, 5, 10, 11]),
        (SVR, 50, 2, [1, 3, 12]),
        (SVC, 25, 5, [7, 9, 25, 29, 33]),
        (SVC, 50, 2, [12]),
    ],
)
def test_a_row_that_alone_held_the_intercept(kind, n, p, seeds):
    """Tables of few values: a row without a slope may be at a kink, one that leaves between two slopes."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 3, (n, p)).astype(float)
        z = X @ rng.normal(size=p) + rng.normal(size=n)
        y, options = (np.round(z), {"epsilon": 0.5}) if kind is SVR else ((z > z.mean()).astype(int), {})
        model = kind(C=0.01, kernel="linear", tol=1e-12, **options)
        est = onefit.loo(model.fit(X, y), X, y)
        for i in range(n):
            refit = clone(model).fit(np.delete(X, i, 0), np.delete(y, i))
            found = (refit.decision_function if kind is SVC else refit.predict)(X[i : i + 1])[0]
            assert abs(found - est.decision[i]) <= est.bounds[i] + 1e-5


@pytest.mark.parametrize("quantile", [0.5, 0.25])
def test_nothing_holds_coefficients_without_a_penalty(quantile):
    """Without a row a whole face of the linear program may be as good: bounds reach to its ends."""
    several = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 3, (40, 2)).astype(float)
        y = np.round(X @ rng.normal(size=2) + rng.normal(size=40))
        model = QuantileRegressor(quantile=quantile, alpha=0.0, solver="highs").fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreliableWarning)
            est = onefit.loo(model, X, y, exact=True)
        several += est._left_out.several.size
        for i in range(40):
            refit = clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0]
            assert abs(refit - est.predictions[i]) <= est.bounds[i] + 1e-7
    assert several


@pytest.mark.parametrize(("power", "link", "said"), [(0, "log", True), (3, "log", True), (1.5, "log", False)])
def test_a_loss_that_may_have_other_minima_says_so(power, link, said):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(16, 3))
    y = np.exp(0.3 * X[:, 0] + 1.0) * rng.gamma(5.0, 0.2, 16)
    est = onefit.loo(TweedieRegressor(power=power, link=link, alpha=0.03, tol=1e-8).fit(X, y), X, y)
    assert any("not convex" in note for note in est.notes) == said


@pytest.mark.parametrize("seed", [0, 4, 8, 16])
def test_rows_on_flat_pieces_do_not_depend_on_their_order_but_by_their_bounds(seed):
    """Classes that can be separated leave a squared hinge without a penalty many optima, all of them zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(16, 3))
    y = (X[:, 0] > 0).astype(int)
    order, model = rng.permutation(16), onefit.GeneralizedLinear("squared_hinge", L2(0.0))
    for rows in (np.arange(16), order):
        with pytest.warns(UnreliableWarning, match="several optima may differ"):
            est = onefit.loo(model.fit(X[rows], y[rows]), X[rows], y[rows])
        assert est.guarantee == "rough"
        assert not np.isfinite(est.bounds).any()

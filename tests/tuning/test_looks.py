"""What is known of a strength at little cost: steps, or some tenths of the rows left out at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binomtest
from sklearn import linear_model
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import onefit
from builders import tenths, tenths_of
from onefit.curvature import factor
from onefit.exceptions import UnreliableWarning
from onefit.fit import Fit
from onefit.leave_out import factor_free, leave_out
from onefit.leave_out.engine import begin, leave_some_out
from onefit.leave_out.factor_free import FitsWithout, is_dear_to_factor
from onefit.losses import Logistic, Multinomial, Poisson, Squared
from onefit.metrics import Deviance, LogLoss, SquaredError
from onefit.penalties import L1, L2, Box, ElasticNet
from onefit.problem import Problem
from onefit.risk.means import paired_errors
from onefit.solvers import coordinate_descent, sweeps
from onefit.solvers.solve import solve
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import FIRST_ROWS, TENTHS, Looks
from onefit.tuning.sample import Verdict


def _problem(n, p, penalty, density=1.0, loss=None, store=np.asarray):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    eta = X[:, :5].sum(axis=1)
    y = (eta + rng.logistic(size=n) > 0).astype(float)
    if isinstance(loss, Poisson):
        y = rng.poisson(np.exp(0.3 * eta)).astype(float)
    weights = rng.uniform(0.5, 2.0, n)
    return Problem(loss or Logistic(), penalty, store(X), y, weights)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Squared()])
@pytest.mark.parametrize(
    ("n", "p", "penalty"),
    [(60, 200, L1(0.5)), (200, 40, L1(0.5)), (200, 350, L1(0.1)), (60, 200, L2(0.5))],
)
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_rows_that_leave_together_are_as_refits_have_them(n, p, penalty, loss, store):
    problem = _problem(n, p, penalty, 0.2, loss, store)
    solution = solve(Fit.at_start(problem))
    rows = np.arange(0, n, 10)
    refit = solve(Fit.at_start(problem.without(rows))).fit.eta[rows]
    found = FitsWithout().left_out_roughly(*solution, [rows])[0]
    assert np.linalg.norm(found - refit) <= 0.15 * np.linalg.norm(refit - solution.fit.eta[rows])


@pytest.mark.costly
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_along_a_path_rows_leave_from_where_they_left_before(ratio, store, loss, monkeypatch):
    """As near to their refits as from the fit with all rows, by fewer sweeps where the penalty is weak."""
    problem = _problem(120, 300, ElasticNet(1.0, ratio), 0.2, loss, store)
    strengths, parts = np.geomspace(3.0, 0.02 if loss.is_quadratic else 0.2, 8), tenths(120)[:2]
    near, counted, some = FitsWithout(), [], sweeps._some
    monkeypatch.setattr(sweeps, "_some", lambda *given: counted.append(given[5]) or some(*given))
    taken = {"along": 0, "anew": 0}
    for strength in strengths:
        fit = solve(Fit.at_start(replace(problem, penalty=ElasticNet(strength, ratio)))).fit
        refits = [solve(Fit.at_start(fit.problem.without(rows))).fit.eta[rows] for rows in parts]
        for kind, fits in (("along", near), ("anew", FitsWithout())):
            counted.clear()
            found = fits.left_out_roughly(fit, None, parts)
            taken[kind] += sum(counted)
            for one, refit, rows in zip(found, refits, parts, strict=True):
                assert np.linalg.norm(one - refit) <= 0.15 * np.linalg.norm(refit - fit.eta[rows])
    if loss.is_quadratic and ratio < 1.0:  # the others are too few sweeps, or those of scikit-learn's gap
        assert taken["along"] < 0.7 * taken["anew"]


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_tenths_of_a_model_without_columns_move_its_intercept(ratio):
    problem = _problem(120, 30, ElasticNet(1e3, ratio), 0.5, Logistic())
    fit, parts = solve(Fit.at_start(problem)).fit, tenths(120)[:2]
    assert not np.any(fit.coef)
    for found, rows in zip(FitsWithout().left_out_roughly(fit, None, parts), parts, strict=True):
        refit = solve(Fit.at_start(problem.without(rows))).fit
        assert np.linalg.norm(refit.eta[rows] - fit.eta[rows]) > 0.0
        np.testing.assert_allclose(found, refit.eta[rows], atol=1e-6)


def test_what_leaves_in_other_columns_begins_anew():
    """As on a path in the span of the rows after one in columns: coefficients have another shape."""
    problem = _problem(120, 300, ElasticNet(0.5, 0.5), 0.2, Squared())
    fit, parts, near = solve(Fit.at_start(problem)).fit, tenths(120)[:2], FitsWithout()
    near.left_out_roughly(fit, None, parts)
    few = solve(Fit.at_start(replace(problem, X=problem.X[:, :40]))).fit
    found = near.left_out_roughly(few, None, parts)
    for one, other in zip(found, FitsWithout().left_out_roughly(few, None, parts), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("penalty", [L2(1.0), ElasticNet(0.5, 0.5)])
def test_without_all_rows_of_a_class_no_fit_begins_where_another_ran_off_to(penalty):
    problem = _problem(120, 30, penalty, 0.5, Logistic())
    rows = np.flatnonzero(problem.y == 1.0)
    near = FitsWithout()
    for strength in np.geomspace(1.0, 0.1, 4):
        weaker = replace(penalty, alpha=penalty.alpha * strength)
        fit = solve(Fit.at_start(replace(problem, penalty=weaker))).fit
        found = near.left_out_roughly(fit, None, [rows])[0]
        np.testing.assert_array_equal(found, FitsWithout().left_out_roughly(fit, None, [rows])[0])


def test_rows_leave_in_tenths_where_what_they_are_held_against_did(monkeypatch):
    """Though two tenths hold fewer rows than a sample, if they take less."""
    fit = solve(Fit.at_start(_problem(120, 300, L1(0.3), 0.2, Logistic()))).fit
    looks = Looks(Judgement(SquaredError(), fit.problem.y, np.ones(120)))
    monkeypatch.setattr("onefit.tuning.looks.cost_of_some", lambda *_: 1e3)
    assert not looks._pays_by_tenths(fit, 120)
    assert looks._pays_by_tenths(fit, 120, alike=True)


def test_fits_without_parts_are_kept_while_they_take_little_room(monkeypatch):
    fit = solve(Fit.at_start(_problem(120, 300, L1(0.5), 0.2, Squared()))).fit
    parts, near = tenths(120), FitsWithout()
    found = near.left_out_roughly(fit, None, parts)
    sizes = [len(shift.values) for shift in near.last.values()]
    assert len(sizes) == len(parts)
    near.left_out_roughly(fit, None, parts)  # takes the places of the same
    assert len(near.last) == len(parts)
    monkeypatch.setattr(factor_free, "MOST_HELD", sum(sizes[:3]))
    few = FitsWithout()
    for one, other in zip(few.left_out_roughly(fit, None, parts), found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 3 <= len(few.last) < len(parts)


@pytest.mark.parametrize("strength", [10.0, 0.1, 1e-3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kind", ["classes", "counts", "mean-scaled"])
def test_parts_of_tall_tables_leave_together(kind, store, intercept, strength, monkeypatch):
    """Their predictors are those of refits, by steps with the fit's factor or by fits of their own."""
    monkeypatch.setattr("onefit.leave_out.chords.IN_CACHE", 1)  # single outputs of few rows, too
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 5)) * (rng.random((240, 5)) < 0.7)
    eta = 1.5 * X @ rng.normal(size=(5, 3))
    y = (eta + rng.gumbel(size=(240, 3))).argmax(axis=1).astype(float)
    weights, loss, level = rng.uniform(0.0, 2.0, 240), Multinomial(3), np.full(3, intercept)
    if kind == "counts":
        loss, level = Poisson(), np.array(intercept)
    problem = Problem(loss, L2(strength), store(X), y, weights, level, mean_scaled=kind == "mean-scaled")
    solution, parts = solve(Fit.at_start(problem)), tenths(240)
    assert factor_free.go_together(solution.fit)
    for found, rows in zip(FitsWithout().left_out_roughly(*solution, parts), parts, strict=True):
        refit = solve(Fit.at_start(problem.without(rows))).fit.eta[rows]
        assert np.linalg.norm(found - refit) <= 0.02 * np.linalg.norm(refit - solution.fit.eta[rows])
    monkeypatch.setattr(factor_free, "MAX_STEPS", 1)  # in which none of them settles
    for found, rows in zip(FitsWithout().left_out_roughly(*solution, parts[:2]), parts, strict=False):
        refit = solve(Fit.at_start(problem.without(rows))).fit.eta[rows]
        assert np.linalg.norm(found - refit) <= 1e-3 * np.linalg.norm(refit - solution.fit.eta[rows])


@pytest.mark.costly
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kind", ["classes", "counts", "mean-scaled"])
def test_parts_leave_from_where_they_were_at_the_strength_before(kind, store, monkeypatch):
    """What is left at the end is as small, and there are fewer passes."""
    monkeypatch.setattr("onefit.leave_out.chords.IN_CACHE", 1)  # single outputs of few rows, too
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 5))
    eta = 1.5 * X @ rng.normal(size=(5, 3))
    y = (eta + rng.gumbel(size=(240, 3))).argmax(axis=1).astype(float)
    weights, loss, level = rng.uniform(0.0, 2.0, 240), Multinomial(3), np.ones(3, dtype=bool)
    if kind == "counts":
        loss, level = Poisson(), np.array(True)
    problem = Problem(loss, L2(1.0), store(X), y, weights, level, mean_scaled=kind == "mean-scaled")
    steps, passes = factor_free.steps_in_coefficients, []

    def counted(*given, **how):
        end = steps(*given, **how)
        passes.append(sum(end.passes))
        return end

    monkeypatch.setattr(factor_free, "steps_in_coefficients", counted)
    near, parts = FitsWithout(), tenths(240)
    for strength in np.geomspace(3.0, 0.5, 6):
        solution = solve(Fit.at_start(replace(problem, penalty=L2(strength))))
        for found, rows in zip(near.left_out_roughly(*solution, parts), parts, strict=True):
            refit = solve(Fit.at_start(solution.fit.problem.without(rows))).fit.eta[rows]
            way = np.linalg.norm(refit - solution.fit.eta[rows])
            assert np.linalg.norm(found - refit) <= 0.005 * way
        FitsWithout().left_out_roughly(*solution, parts)
    following, from_fits = passes[2::2], passes[3::2]
    assert sum(following) <= 0.75 * sum(from_fits)


def test_parts_without_which_a_class_is_gone_leave_from_the_fit(monkeypatch):
    """Without its only row a class has no optimum: where steps ended says nothing of the next strength."""
    monkeypatch.setattr(factor_free, "go_together", lambda _: True)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(240, 5)), rng.integers(0, 3, 240).astype(float)
    parts, near = tenths(240), FitsWithout()
    y[parts[4][0]] = 3.0
    problem = Problem(Multinomial(4), L2(1.0), X, y, np.ones(240), np.ones(4, dtype=bool))
    near.left_out_roughly(*solve(Fit.at_start(problem)), parts)
    assert set(near.last) == {part.tobytes() for k, part in enumerate(parts) if k != 4}


@pytest.mark.parametrize("n", [100, 150])
def test_fits_as_large_as_the_sample_begin_by_tenths(n):
    """Without one of their rows columns come and go a hundred times: a tenth takes less than a row."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 4 * n))
    y = X[:, :5].sum(axis=1) + rng.normal(size=n)
    looks = Looks(Judgement(SquaredError(), y, np.ones(n)))
    top = np.abs(X.T @ (y - y.mean())).max()
    weak, strong = (
        solve(Fit.at_start(Problem(Squared(), L1(share * top), X, y, np.ones(n)))) for share in (1e-3, 0.5)
    )
    assert weak.fit.tangent.size >= 0.95 * n
    assert looks.first(strong).seen == 0
    found = looks.first(weak)
    assert FIRST_ROWS <= found.seen < FIRST_ROWS + n / 10
    parts = [rows for rows in tenths_of(X, y) if not np.isnan(found.apart[rows]).any()]
    assert sum(map(len, parts)) == found.seen
    exact = np.concatenate(
        [solve(Fit.at_start(weak.fit.problem.without(rows))).fit.eta[rows] for rows in parts]
    )
    seen = np.concatenate(parts)
    assert np.linalg.norm(found.apart[seen] - exact) <= 0.2 * np.linalg.norm(exact - weak.fit.eta[seen])
    assert found.losses[seen].mean() == pytest.approx(np.mean((exact - y[seen]) ** 2), rel=0.1)


def test_strengths_of_several_classes_whose_rows_are_dear_are_told_apart_by_all_tenths(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 12))
    y = (0.5 * X @ rng.normal(size=(12, 6)) + rng.gumbel(size=(600, 6))).argmax(axis=1).astype(float)
    monkeypatch.setattr("onefit.tuning.looks.ALONE", 0.0)
    path = onefit.LogisticLOO(Cs=[1e-3, 0.1, 10.0], selection="min").fit(X, y)
    risks = []
    for C in path.Cs_:
        probabilities = np.zeros((600, 6))
        for part in tenths_of(X, y):
            rest = np.setdiff1d(np.arange(600), part)
            model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000).fit(X[rest], y[rest])
            probabilities[part] = model.predict_proba(X[part])
        risks.append(-np.log(probabilities[np.arange(600), y.astype(int)]).mean())
    judged = path.guarantee_path_ == "rough"
    assert judged.any()
    near = np.argsort(risks)[:2]  # those are left out in tenths, the others by a step
    np.testing.assert_allclose(path.risk_path_[near], np.array(risks)[near], rtol=2e-3)
    assert path.Cs_[np.argmin(risks)] == path.C_
    assert path.loo_.guarantee != "rough"


@pytest.mark.parametrize("strength", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("intercept", [True, False])
def test_beside_a_weak_penalty_steps_that_hardly_move_are_no_end(strength, ratio, store, intercept):
    problem = _problem(60, 300, ElasticNet(strength, ratio), 0.2, Squared(), store)
    problem = replace(problem, intercept=np.array(intercept))
    solution = solve(Fit.at_start(problem))
    rows = np.arange(0, 60, 10)
    refit = solve(Fit.at_start(problem.without(rows))).fit.eta[rows]
    found = FitsWithout().left_out_roughly(*solution, [rows])[0]
    assert np.linalg.norm(found - refit) <= 0.15 * np.linalg.norm(refit - solution.fit.eta[rows])


@pytest.mark.parametrize("strength", [0.3, 300.0])
def test_single_precision_judges_a_strength_where_a_factor_is_dear(strength):
    """And says how far it may be off: bounds hold; the factor in double precision is for the choice alone."""
    problem = replace(_problem(1000, 3000, L2(strength), 0.01, store=sp.csr_array), weights=np.ones(1000))
    metric = LogLoss(np.array([0, 1]))
    looks = Looks(Judgement(metric, problem.y, np.ones(1000)))
    solution = solve(Fit.at_start(problem))
    rough = looks.stepped(solution)
    assert not solution.curvature.is_factored
    exact = leave_out(solution.fit, max_error=np.inf)
    np.testing.assert_allclose(rough.losses, looks.judgement.losses(exact), rtol=1e-3, atol=1e-5)
    known = rough.state.found
    assert np.isfinite(known.bounds).all() == (strength > 1)
    for i in np.flatnonzero(np.isfinite(known.bounds))[::200]:
        refit = solve(Fit.at_start(problem.without(np.array([i])))).fit.eta[i]
        assert abs(refit - known.eta[i]) <= known.bounds[i]


def test_steps_towards_rows_that_leave_together_stop_sweeping_early(monkeypatch):
    """A step that is not there after many sweeps is left to the next one, which has a better model."""
    problem, most, sweep = (
        _problem(200, 400, L1(0.05), 0.1, store=sp.csr_array),
        [],
        sweeps.enet_path,
    )
    solution = solve(Fit.at_start(problem))

    def watched(*args, **known):
        most.append(known["max_iter"])
        return sweep(*args, **known)

    monkeypatch.setattr(sweeps, "enet_path", watched)
    rows = np.arange(0, 200, 10)
    found = FitsWithout().left_out_roughly(*solution, [rows])[0]
    assert most
    assert max(most) < coordinate_descent.MOST_SWEEPS
    refit = solve(Fit.at_start(problem.without(rows))).fit.eta[rows]
    assert np.linalg.norm(found - refit) <= 0.15 * np.linalg.norm(refit - solution.fit.eta[rows])


@pytest.mark.parametrize("penalty", [L1(0.02), L2(0.02)])
def test_a_look_by_tenths_is_near_to_the_risk_of_refits_without_a_tenth(penalty):
    problem = _problem(750, 900, penalty, 0.05, store=sp.csr_array)
    metric = LogLoss(np.array([0, 1])) if isinstance(problem.loss, Logistic) else Deviance(problem.loss)
    looks = Looks(Judgement(metric, problem.y, np.ones(750)))
    solution = solve(Fit.at_start(problem))
    found = looks.by_tenths(*solution)
    exact = np.empty(750)
    for part in np.array_split(looks.order(solution.fit), 10):
        refit = solve(Fit.at_start(problem.without(part))).fit.eta[part]
        exact[part] = np.logaddexp(0.0, refit) - problem.y[part] * refit
    assert abs(found.losses.mean() - exact.mean()) <= 3.0 * np.linalg.norm(found.misses)
    assert found.error == np.inf
    assert found.solved == 0
    seen = np.concatenate(np.array_split(looks.order(solution.fit), 10)[:TENTHS])
    assert found.losses[seen].mean() == pytest.approx(exact[seen].mean(), rel=0.03)
    whole = looks.better(solution.fit, 750, found, lambda: solution, lambda: looks.stepped(solution))
    assert whole.seen == 750
    assert not whole.misses.any()
    np.testing.assert_array_equal(whole.losses[seen], found.losses[seen])
    assert whole.losses.mean() == pytest.approx(exact.mean(), rel=0.03)
    assert np.sqrt(np.mean((whole.losses - exact) ** 2)) <= 0.1 * exact.std()


def test_a_factor_is_dear_where_rows_and_columns_are_many_and_numbers_few():
    large = _problem(3000, 4000, L2(1.0), 0.005, store=sp.csr_array)
    small = _problem(100, 200, L2(1.0))
    assert is_dear_to_factor(Fit.at_start(large), TENTHS)
    assert not is_dear_to_factor(Fit.at_start(small), TENTHS)
    y = np.arange(3000.0) % 10
    classes = Problem(Multinomial(10), L2(1.0), large.X, y, np.ones(3000), np.ones(10, dtype=bool))
    assert is_dear_to_factor(Fit.at_start(classes), TENTHS)


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (Squared(), L1(4.0)),
        (Squared(), Box(np.zeros(24), np.full(24, np.inf), l1=4.0)),
        (Squared(), L2(0.5)),
        (Logistic(), L1(0.3)),
        (Logistic(), L2(0.3)),
        (Logistic(), Box(np.zeros(24), np.full(24, np.inf), l1=0.3)),
        (Poisson(), L1(0.5)),
    ],
)
def test_rows_of_a_sample_are_as_refits_have_them(loss, penalty):
    problem = _problem(30, 24, penalty, loss=loss)
    metrics = {Logistic: LogLoss(np.array([0, 1])), Squared: SquaredError(), Poisson: Deviance(Poisson())}
    metric = metrics[type(loss)]
    looks = Looks(Judgement(metric, problem.y, problem.weights))
    solution = solve(Fit.at_start(problem))
    rows = np.arange(1, 30, 3)
    found = leave_some_out(begin(*solution, looks.judgement.yardstick), rows, looks.judgement.yardstick).eta
    refits = [float(solve(Fit.at_start(problem.without(int(i)))).fit.eta[i]) for i in rows]
    np.testing.assert_allclose(found, refits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("strength", [0.3, 3.0])
def test_samples_hold_the_exact_risk_in_95_per_cent(strength):
    """Over problems and orders of the rows; few rows are off, and these by much."""
    held, metric = [], LogLoss(np.array([0, 1]))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, weights = rng.standard_t(3, size=(120, 6)), rng.integers(1, 4, 120).astype(float)
        y = (X[:, 0] - X[:, 1] + rng.logistic(size=120) > 0).astype(float)
        solution = solve(Fit.at_start(Problem(Logistic(), L1(strength), X, y, weights)))
        exact = metric.losses(y, leave_out(solution.fit, max_error=0.0).eta)
        for order in range(10):
            looks = Looks(Judgement(metric, y, weights))
            looks.__dict__["_known_order"] = [np.random.default_rng(order).permutation(120)]
            found = looks.sample(solution, 48)
            assert found.solved < 120
            held.append(abs(np.average(found.losses - exact, weights=weights)) <= found.error)
    assert binomtest(int(np.sum(held)), len(held), 0.95, alternative="less").pvalue > 0.01


@pytest.mark.parametrize("loss", [Logistic(), Poisson()])
def test_where_closer_bounds_tell_the_risk_no_row_is_solved(loss):
    problem = _problem(400, 10, L2(1.0), loss=loss)
    solution = solve(Fit.at_start(problem))
    metric = LogLoss(np.array([0, 1])) if isinstance(loss, Logistic) else Deviance(loss)
    looks = Looks(Judgement(metric, problem.y, problem.weights))
    found = looks.better(solution.fit, 48, None, lambda: solution, lambda: looks.stepped(solution))
    assert (found.solved, found.proven) == (0, True)
    assert not found.misses.any()
    exact = looks.judgement.losses(leave_out(solution.fit, max_error=0, curvature=solution.curvature))
    off = abs(np.average(found.losses - exact, weights=problem.weights))
    deviation = np.sqrt(np.cov(exact, aweights=problem.weights) / 400)
    assert off <= found.error <= 0.1 * deviation * 1.1


@pytest.mark.parametrize("loss", ["exponential", "squared_hinge"])
def test_the_race_ends_where_separated_rows_lose_nothing(loss):
    """Losses of zero have no standard error that what is left open could be small beside."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    y = X[:, 0] - 0.5 * X[:, 2] + 0.7 * rng.normal(size=6) > -0.2
    model = onefit.GeneralizedLinearLOO(loss).fit(X, y)
    for i in range(6):
        keep = np.arange(6) != i
        refit = onefit.GeneralizedLinear(loss, model.penalty_).fit(X[keep], y[keep])
        margin = refit.decision_function(X[[i]])[0]
        assert model.loo_.decision[i] == pytest.approx(margin, abs=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_the_race_ends_where_a_row_leaves_no_other_of_its_class(several):
    """Nothing bounds the risk then, whatever is done for the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    y = np.where(np.arange(40) == 0, 2, X[:, 0] > 0 if several else 0)
    model = onefit.LogisticLOO() if several else onefit.GeneralizedLinearLOO("exponential")
    with pytest.warns(UnreliableWarning, match="leave no other of their class.*: 0"):
        model.fit(X, y)
    assert np.all(model.loo_.bounds[1:] < 1e-3)


def test_the_race_ends_beside_a_row_far_from_all_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    y = X[:, 0] - 0.5 * X[:, -1] + 0.7 * rng.normal(size=40)
    X[3] *= 1e4
    model = onefit.LogisticLOO().fit(X, y > np.median(y))
    refit = LogisticRegression(C=model.C_, tol=1e-10, max_iter=10_000)
    for i in (0, 3, 20):
        keep = np.arange(40) != i
        margin = refit.fit(X[keep], (y > np.median(y))[keep]).decision_function(X[[i]])[0]
        assert abs(model.loo_.decision[i] - margin) <= model.loo_.bounds[i] + 1e-4 * (1.0 + abs(margin))


@pytest.mark.parametrize("seed", [0, 3, 8, 11])
def test_strengths_that_are_held_against_each_other_are_judged_alike(seed):
    """Tenths of a small table miss other things than its rows do: the choice is the best by refits."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2.5, size=(25, 25))
    y = X[:, :3].sum(axis=1) + 0.5 * rng.normal(size=25)
    y /= y.std()
    tuned = onefit.ElasticNetLOO(12, l1_ratio=0.9, positive=True, selection="min").fit(X, y)
    losses = np.stack([_squares_of_refits(alpha, X, y) for alpha in tuned.alphas_]).T
    risks, place = losses.mean(axis=0), int(np.abs(tuned.alphas_ - tuned.alpha_).argmin())
    best = int(risks.argmin())
    np.testing.assert_allclose(tuned.loo_.value, risks[place], rtol=1e-6)
    assert risks[place] - risks[best] <= 0.1 * paired_errors(losses, np.ones(25), best)[place]


def _squares_of_refits(alpha, X, y):
    settings = {"l1_ratio": 0.9, "positive": True, "tol": 1e-10, "max_iter": 10**5}
    model, rows = linear_model.ElasticNet(alpha, **settings), np.arange(len(y))
    refits = [model.fit(X[rows != i], y[rows != i]).predict(X[[i]])[0] for i in rows]
    return (y - refits) ** 2


def test_rivals_of_fits_that_left_in_tenths_leave_so_too_though_some_left_alone_before(monkeypatch):
    fit = solve(Fit.at_start(_problem(120, 300, L1(0.3), 0.2, Logistic()))).fit
    looks = Looks(Judgement(SquaredError(), fit.problem.y, np.ones(120)))
    alone = Verdict(np.zeros(120), np.zeros(120), 0.1, solved=48)
    monkeypatch.setattr("onefit.tuning.looks.cost_of_some", lambda *_: 1e3)
    assert not looks._pays_by_tenths(fit, 120, alone)
    assert looks._pays_by_tenths(fit, 120, alone, alike=True)
    monkeypatch.setattr("onefit.tuning.looks.cost_of_some", lambda *_: 0.0)  # single rows take less
    assert not looks._pays_by_tenths(fit, 120, alone, alike=True)


def test_parts_that_steps_do_not_bring_there_are_taken_alone_if_they_are_asked_for(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 6))
    y = (X[:, 0] + rng.logistic(size=1500) > 0).astype(float)
    solution, parts = (
        solve(Fit.at_start(Problem(Logistic(), L2(), X, y, np.ones(1500)))),
        tenths(1500),
    )
    assert factor_free.go_together(solution.fit)
    for steps, taken in ((factor_free.MAX_STEPS, 10), (1, 3)):
        monkeypatch.setattr(factor_free, "MAX_STEPS", steps)
        apart = np.full(1500, np.nan)
        apart[parts[1]] = 0.5  # known before
        FitsWithout().complete(apart, *solution, parts, 3)
        known = [not np.isnan(apart[part]).any() for part in parts]
        assert known == [True] * taken + [False] * (10 - taken)
        np.testing.assert_array_equal(apart[parts[1]], 0.5)
        for rows in (parts[0], parts[2]):
            refit = solve(Fit.at_start(solution.fit.problem.without(rows))).fit.eta[rows]
            off = np.linalg.norm(apart[rows] - refit)
            assert off <= 0.02 * np.linalg.norm(refit - solution.fit.eta[rows])


def test_a_path_that_only_bounds_say_falls_is_judged_on_the_way_and_ends():
    """Classes that are nearly separated: losses in weak fits are small, those of left-out rows are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 120))
    y = (2.0 * X @ rng.normal(size=(120, 5)) / 6.0 + rng.gumbel(size=(1000, 5))).argmax(axis=1)
    Cs = np.geomspace(1e-5, 1e4, 28)
    path = onefit.LogisticLOO(Cs=Cs, selection="min").fit(X, y)
    assert path.Cs_.max() < Cs[-3]
    assert path.Cs_.max() > path.C_
    best, beyond = (
        cross_val_score(LogisticRegression(C=C, max_iter=10_000), X, y, cv=10, scoring="neg_log_loss").mean()
        for C in (path.C_, 10.0 * path.Cs_.max())
    )
    assert best > beyond


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=["two classes", "three classes"])
def test_parts_of_tall_tables_leave_by_the_factor_of_another_strength(loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 6)) * (rng.random((1500, 6)) < 0.7)
    eta = 1.5 * X @ rng.normal(size=(6, 3))
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    one = isinstance(loss, Logistic)
    y, level = (np.minimum(y, 1.0), np.array(True)) if one else (y, np.ones(3, bool))
    problem = Problem(loss, L2(), X, y, np.ones(1500), level)
    near, parts, made = FitsWithout(), tenths(1500), 0
    for strength in (30.0, 10.0, 3.0, 1.0):
        fit = solve(Fit.at_start(replace(problem, penalty=L2(strength)))).fit
        K = factor(fit)
        assert factor_free.go_together(fit)
        for found, rows in zip(near.left_out_roughly(fit, K, parts), parts, strict=True):
            refit = solve(Fit.at_start(fit.problem.without(rows))).fit.eta[rows]
            assert np.linalg.norm(found - refit) <= 0.02 * np.linalg.norm(refit - fit.eta[rows])
        made += K.is_factored
    assert 1 <= made < 4


@pytest.mark.costly
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_strengths_of_tall_tables_are_told_by_fits_without_each_tenth(classes, weighted, store, monkeypatch):
    monkeypatch.setattr("onefit.tuning.looks.take_less_than_bounds", lambda _: True)
    rng = np.random.default_rng(0)
    n, p = 1900, 30
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.5)
    eta = X @ rng.normal(size=(p, classes)) / 2.0
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
    weights = rng.uniform(0.2, 2.0, n) if weighted else None
    Cs = np.geomspace(1e-3, 1.0, 8)
    path = onefit.LogisticLOO(Cs=Cs, selection="min", early_stopping=False).fit(store(X), y, weights)
    held = np.ones(n) if weights is None else weights
    for j in (0, 3, 7):
        if path.guarantee_path_[j] not in ("rough", "unknown"):
            continue
        losses = np.zeros(n)
        for part in tenths_of(store(X), y, weights):
            rest = np.setdiff1d(np.arange(n), part)
            model = LogisticRegression(C=Cs[j], tol=1e-8, max_iter=10_000)
            model.fit(X[rest], y[rest], held[rest])
            losses[part] = -model.predict_log_proba(X[part])[np.arange(len(part)), y[part]]
        assert path.risk_path_[j] == pytest.approx(np.average(losses, weights=held), rel=2e-3)
    model = LogisticRegression(C=path.C_, tol=1e-9, max_iter=10_000).fit(X, y, weights)
    np.testing.assert_allclose(path.coef_, model.coef_, atol=1e-4 * np.abs(model.coef_).max())


def test_what_strengths_began_with_stands_where_the_best_one_moved_little(monkeypatch):
    """Judged thoroughly it is where it was, beside the error of differences: the others are left alone."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 900)) / 10.0
    y = (X[:, :20].sum(axis=1) * 3.0 + rng.logistic(size=800) > 0).astype(int)
    counted, thoroughly = [], Judgement.thoroughly
    monkeypatch.setattr(Judgement, "thoroughly", lambda *a: counted.append(1) or thoroughly(*a))
    models, calls = [], []
    for known in (0.1, 0.0):  # of the error of a difference
        monkeypatch.setattr("onefit.tuning.race.KNOWN", known)
        counted.clear()
        models.append(onefit.LogisticLOO(Cs=np.geomspace(1e-2, 10.0, 13), selection="min").fit(X, y))
        calls.append(len(counted))
    assert calls[0] < calls[1]
    assert models[0].C_ == models[1].C_
    assert models[0].loo_.value == pytest.approx(models[1].loo_.value, rel=1e-9)

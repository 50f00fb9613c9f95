"""What is too dear to bound is sampled: the mean is right within its 95 % error, loose bounds or none."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

import onefit
from onefit import losses, penalties
from onefit._scoring import score
from onefit.cost import Work
from onefit.exceptions import UnreliableWarning
from onefit.fit import Fit
from onefit.leave_out import Folds, leave_out
from onefit.leave_out.draws import NEGLIGIBLE, Draw, expected_spread, unseen
from onefit.leave_out.frame import FEWEST, Frame
from onefit.leave_out.regression import regression_estimate
from onefit.leave_out.sample import sample
from onefit.leave_out.stages import State
from onefit.metrics import LogLoss, SquaredError
from onefit.problem import Problem
from onefit.risk.judging import estimate, yardstick
from onefit.solvers.solve import solve


def two_classes(rng, n=120, p=12, strength=0.05):
    """Bounds of one step are loose, and infinite for some rows."""
    X = rng.normal(size=(n, p))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(losses.Logistic(), penalties.L2(strength), X, y, np.ones(n)))).fit
    return fit, yardstick(LogLoss(np.array([0, 1])), y, None)


def rare_class(rng, n=150, p=10):
    """Steps of a few rows are off by far more than those of all others, and nothing bounds most of them."""
    X, y = rng.normal(size=(n, p)), rng.integers(0, 2, n).astype(float)
    y[:4], X[:4] = 2.0, 2.0 * X[:4]
    X[:, 0] += y
    weights = np.where(y == 2, n / 12, 1.0)
    problem = Problem(losses.Multinomial(3), penalties.L2(5.0), X, y, weights, np.ones(3, dtype=bool))
    return solve(Fit.at_start(problem)).fit, yardstick(LogLoss(np.arange(3)), y, None)


def groups(rng, n=60, p=12):
    """A penalty that is curved on its pattern, of which nothing is proven."""
    X = rng.normal(size=(n, p))
    y = X[:, 0] + rng.normal(size=n)
    penalty = penalties.GroupLasso(np.arange(p) // 3, 20.0)
    fit = solve(Fit.at_start(Problem(losses.Squared(), penalty, X, y, np.ones(n)))).fit
    return fit, yardstick(SquaredError(), y, None)


def started(fit, judge, sets=None, max_error=0.1):
    state = State.of(fit, sets, None, judge, max_error)
    state.prove()
    return state


def mean(found, judge):
    by = 0.0 if found.correction is None else found.correction.difference
    return float(np.average(judge.losses(found.rows, found.eta), weights=judge.weights[found.rows])) + by


@pytest.mark.parametrize(
    ("make", "seeds", "least"), [(two_classes, 40, 36), (rare_class, 40, 36), (groups, 8, 6)]
)
def test_errors_cover_the_exact_mean(make, seeds, least):
    fit, judge = make(np.random.default_rng(1))
    exact = mean(leave_out(fit, max_error=0.0, yardstick=judge), judge)
    held, off, left = 0, [], NEGLIGIBLE * started(fit, judge).room  # by sets of which none is drawn
    for seed in range(seeds):
        state = started(fit, judge)
        sample(state, judge, 0.0, seed)
        off.append(mean(state.found, judge) - exact)
        held += abs(off[-1]) <= state.found.correction.error
        assert len(np.union1d(state.found.stepped, state.found.anew)) == FEWEST
    assert held >= least  # at 95 %, fewer have a chance of some 5 %
    assert abs(np.mean(off)) <= 4 * np.std(off) / np.sqrt(seeds) + left


def wide_and_sparse(rng, n=200, p=400):
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.2)
    y = (X[:, :4].sum(axis=1) + rng.logistic(size=n) > 0).astype(float)
    penalty = penalties.L1(float(rng.uniform(0.1, 1.0)))
    fit = solve(Fit.at_start(Problem(losses.Logistic(), penalty, X, y, np.ones(n)))).fit
    return fit, yardstick(LogLoss(np.array([0, 1])), y, None)


def test_a_mean_is_as_right_as_asked_where_that_is_affordable():
    fit, judge = two_classes(np.random.default_rng(2), n=400)
    state = started(fit, judge, max_error=0.02)
    sample(state, judge, 200 * state.stages()[0].each.seconds)
    assert state.found.correction.error <= 0.02 * np.std(judge.losses(state.found.rows, state.found.eta)) / 20


def test_few_sets_are_solved_and_not_sampled():
    fit, judge = two_classes(np.random.default_rng(3))
    folds = tuple(np.array_split(np.random.default_rng(0).permutation(120), FEWEST))
    found = leave_out(fit, Folds(folds, folds, 120), yardstick=judge, affordable=0.0)
    assert found.correction is None
    assert np.isfinite(found.bounds).all()


def test_sets_of_rows_are_sampled():
    fit, judge = two_classes(np.random.default_rng(4), n=200)
    folds = tuple(np.array_split(np.random.default_rng(0).permutation(200), 80))
    sets = Folds(folds, folds, 200)
    exact = mean(leave_out(fit, sets, 0.0, yardstick=judge), judge)
    found = leave_out(fit, sets, yardstick=judge, affordable=0.0)
    assert found.correction is not None
    assert abs(mean(found, judge) - exact) <= found.correction.error


def test_bounds_that_are_enough_need_no_sample():
    fit, judge = two_classes(np.random.default_rng(5), strength=1000.0)
    assert leave_out(fit, yardstick=judge, affordable=0.0).correction is None


def test_rows_without_weight_are_never_drawn():
    fit, _ = two_classes(np.random.default_rng(6))
    weights = np.ones(120)
    weights[:40] = 0.0
    fit = solve(
        Fit.at_start(Problem(losses.Logistic(), penalties.L2(0.05), fit.problem.X, fit.problem.y, weights))
    )
    judge = yardstick(LogLoss(np.array([0, 1])), fit.fit.problem.y, weights)
    state = started(fit.fit, judge)
    sample(state, judge, 0.0)
    assert np.union1d(state.found.stepped, state.found.anew).min() >= 40
    exact = mean(leave_out(fit.fit, max_error=0.0, yardstick=judge), judge)
    assert abs(mean(state.found, judge) - exact) <= state.found.correction.error


def kinked(rng, n=300, p=60):
    """A curved loss with an ℓ1 part: steps go too far, and nothing bounds them."""
    X = rng.normal(size=(n, p))
    y = (X[:, :3].sum(axis=1) + rng.logistic(size=n) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(losses.Logistic(), penalties.L1(0.3), X, y, np.ones(n)))).fit
    return fit, yardstick(LogLoss(np.array([0, 1])), y, None)


@pytest.mark.slow
@pytest.mark.parametrize("make", [kinked, wide_and_sparse, two_classes])
def test_intervals_hold_the_exact_mean_in_95_per_cent(make, monkeypatch):
    """Over problems and draws; fewer than that has a chance of one per cent."""
    monkeypatch.setattr("onefit.leave_out.sample.UNRELIABLE", np.inf)
    held = []
    for problem in range(12):
        fit, judge = make(np.random.default_rng(problem))
        exact = mean(leave_out(fit, max_error=0.0, yardstick=judge), judge)
        for seed in range(12):
            state = started(fit, judge)
            state.shorten(state.found.trusted)
            sample(state, judge, 50 * state.stages()[0].each.seconds, seed)
            if state.found.correction is not None:
                held.append(abs(mean(state.found, judge) - exact) <= state.found.correction.error)
    assert len(held) >= 100
    assert binomtest(int(np.sum(held)), len(held), 0.95, alternative="less").pvalue > 0.01


def lots() -> np.ndarray:
    return np.random.default_rng(0).random(300)


def test_a_sample_without_any_bound_knows_the_standard_error():
    """It asks for no more than it must, where no row but those drawn says how far losses spread."""
    fit, judge = kinked(np.random.default_rng(7))
    losses_of_refits = judge.losses(np.arange(300), leave_out(fit, max_error=0.0, yardstick=judge).eta)
    wanted = 0.1 * np.std(losses_of_refits) / np.sqrt(300)
    state = started(fit, judge)
    assert state.room == 0.0
    frame = Frame.of(state, judge, 0.0)
    _, drawn, room = frame.drawn(60, lots(), np.inf)
    assert 0.4 * wanted <= room <= 2.5 * wanted
    assert len(np.union1d(state.found.stepped, state.found.anew)) == len(drawn.rows) == 60


def test_steps_that_go_too_far_are_shortened_by_what_a_sample_says():
    fit, judge = kinked(np.random.default_rng(8))
    exact = judge.losses(np.arange(300), leave_out(fit, max_error=0.0, yardstick=judge).eta)
    state = started(fit, judge)
    state.found = replace(state.found, eta=fit.eta + 3.0 * (state.found.eta - fit.eta))
    frame = Frame.of(state, judge, 0.0)
    frame, drawn, _ = frame.drawn(40, lots(), np.inf)
    share = frame.best_share(drawn)
    assert 0.1 <= share <= 0.7
    rest = np.flatnonzero(state.rough)
    before = np.linalg.norm(judge.losses(rest, state.found.eta[rest]) - exact[rest])
    known = state.found.eta[drawn.rows].copy()
    state.shorten(np.full(300, share))
    assert np.linalg.norm(judge.losses(rest, state.found.eta[rest]) - exact[rest]) < 0.7 * before
    np.testing.assert_array_equal(state.found.eta[drawn.rows], known)  # of these more is known


def test_the_next_sample_is_as_large_as_it_must_be():
    fit, judge = kinked(np.random.default_rng(9))
    state = started(fit, judge)
    frame = Frame.of(state, judge, 0.0)
    frame, drawn, _ = frame.drawn(FEWEST, lots(), np.inf)
    error = frame.correction(drawn).error
    off = frame.off(drawn, 1.0)
    sizes = [frame.enough(off, factor * error) for factor in (10.0, 0.5, 0.1, 0.0)]
    assert sizes[0] == FEWEST
    assert sizes[-1] == frame.size
    assert np.all(np.diff(sizes) >= 0)
    spreads = [expected_spread(frame.effect, frame.weights, m) for m in (30, 100, 299, 300)]
    assert np.all(np.diff(spreads) < 0)
    assert spreads[-1] == 0.0


def test_no_less_is_claimed_than_was_asked_for_where_nothing_bounds_a_row():
    fit, judge = kinked(np.random.default_rng(9))
    state = started(fit, judge, max_error=3.0)
    asked = 3.0 * np.std(judge.losses(np.arange(300), state.found.eta)) / np.sqrt(300)
    sample(state, judge, 0.0)
    assert not np.isfinite(state.errors()).all()
    assert 0.5 * asked <= state.found.correction.error <= 2.0 * asked
    frame = Frame.of(started(fit, judge, max_error=3.0), judge, 0.0)
    frame, drawn, _ = frame.drawn(FEWEST, lots(), np.inf)
    assert frame.correction(drawn).error < 0.2 * asked


def test_lengths_of_steps_are_found_where_they_take_less_than_more_rows(monkeypatch):
    fit, judge = two_classes(np.random.default_rng(0), n=600, p=700, strength=0.01)
    exact = mean(leave_out(fit, max_error=0.0, yardstick=judge), judge)
    begun, asked, measured = started(fit, judge), [], Frame.measured
    monkeypatch.setattr("onefit.leave_out.frame.SPARED", 0)  # not before a look
    monkeypatch.setattr(Frame, "measured", lambda frame: asked.append(1) or measured(frame))
    monkeypatch.setattr(Frame, "enough", lambda *_: 120)
    monkeypatch.setattr("onefit.leave_out.frame.cost_of_lengths", lambda *_: Work(np.inf))
    sample(begun, judge, 0.0)
    assert not asked
    monkeypatch.setattr("onefit.leave_out.frame.cost_of_lengths", lambda *_: Work())
    state = started(fit, judge)
    sample(state, judge, 0.0)
    assert asked == [1]
    assert abs(mean(state.found, judge) - exact) <= state.found.correction.error
    assert not np.array_equal(state.found.correction.drawn.before, begun.found.correction.drawn.before)


def test_a_sample_that_would_need_a_warning_is_not_the_end(monkeypatch):
    fit, judge = kinked(np.random.default_rng(10))
    monkeypatch.setattr("onefit.leave_out.sample.UNRELIABLE", 0.0)
    state = started(fit, judge)
    sample(state, judge, 0.0)
    assert state.found.correction is None
    assert np.isfinite(state.found.bounds).all()


def test_ten_classes_say_that_they_were_sampled(monkeypatch):
    """Bounds are finite, and too wide: without a sample this result would be of no use."""
    monkeypatch.setattr("onefit.leave_out.engine.UNMINDED", 0.0)
    monkeypatch.setattr("onefit.leave_out.engine.AFFORDABLE", 0.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = (X @ rng.normal(size=(6, 10)) + rng.gumbel(size=(400, 10))).argmax(axis=1)
    model = LogisticRegression(C=0.02, tol=1e-8, max_iter=1000).fit(X, y)
    est = onefit.loo(model, X, y)
    assert est.guarantee == "sampled"
    assert est.approx_error <= 0.2 * est.std_error
    assert np.isfinite(est.bounds).all()
    assert abs(est.value - onefit.loo(model, X, y, exact=True).value) <= est.approx_error
    assert est.flagged.size <= 4  # bounds are loose: a sample tells by how much


def test_what_nobody_notices_is_done_beyond_what_is_asked(monkeypatch):
    """On few rows bounds are as tight as steps make them, whatever error is allowed."""
    fit, judge = two_classes(np.random.default_rng(8), n=60, p=4, strength=2.0)
    asked = leave_out(fit, max_error=1.0, yardstick=judge)
    assert asked.stepped.size > 50
    monkeypatch.setattr("onefit.leave_out.engine.UNNOTICED", 0.0)
    assert leave_out(fit, max_error=1.0, yardstick=judge).stepped.size < asked.stepped.size


def test_what_was_not_drawn_is_as_wrong_as_the_worst_and_never_overflows():
    effect = np.array([0.0, 5e-324, 2.0, 4.0])
    some = Draw(np.array([0, 1, 2]), np.array([0.5, 0.5, 0.5]))
    share = 1.0 - 0.05 ** (1.0 / 3.0)
    with np.errstate(all="raise"):
        assert unseen(np.array([1e300, 1e300, 0.0]), effect, some, 0.95) == pytest.approx(share * 4.0)
        assert unseen(np.array([0.0, 0.0, -1.0]), effect, some, 0.95) == pytest.approx(share * 0.5 * 4.0)
        assert unseen(np.zeros(3), effect, Draw(some.rows, np.ones(3)), 0.95) == 0.0


def test_rows_that_others_move_far_for_are_taken_nearer_before_they_are_solved_anew():
    """A step that is small enough for most bounds is not where the curvature falls a lot on the way."""
    rng = np.random.default_rng(0)
    words = rng.poisson(0.03, size=(120, 300)).astype(float)
    y = (words @ rng.normal(size=300) + 0.5 * rng.logistic(size=120) > 0).astype(float)
    fit = solve(Fit.at_start(Problem(losses.Logistic(), penalties.L2(0.02), words, y, np.ones(120)))).fit
    state = started(fit, yardstick(LogLoss(np.array([0, 1])), y, None))
    state.settle(np.arange(120), 1e-6)
    nearer = np.array(sorted(state.finer))
    assert nearer.size > 2
    assert state.found.anew.size == 0
    for i in nearer:
        refit = solve(Fit.at_start(fit.problem.without(np.array([i])))).fit.eta[i]
        assert abs(state.found.eta[i] - refit) <= state.found.bounds[i] + 1e-7 * abs(refit)
        assert state.found.bounds[i] < 1e-3


def judged(found, y, c, weights=None):
    classes, target = np.arange(c), y.astype(float)
    return estimate(found, LogLoss(classes), y, target=target, classes=classes, sample_weight=weights)


@pytest.mark.parametrize(("make", "c"), [(two_classes, 2), (rare_class, 3)])
def test_a_score_that_is_a_mean_is_corrected_as_the_mean(make, c):
    fit, judge = make(np.random.default_rng(5))
    state = started(fit, judge)
    sample(state, judge, 0.0)
    weights = judge.weights
    est = judged(state.found, fit.problem.y.astype(int), c, weights)
    assert est.guarantee == "sampled"
    assert est.score("log-loss") == pytest.approx(est.value, rel=1e-9)
    assert np.average(est.losses, weights=weights) != pytest.approx(est.value, rel=1e-6)


@pytest.mark.parametrize("name", ["auc", "log-loss", "average_precision"])
def test_scores_of_samples_are_those_of_refits_in_the_mean(name):
    fit, judge = two_classes(np.random.default_rng(1), n=400, p=40)
    y = fit.problem.y.astype(int)
    exact = judged(leave_out(fit, max_error=0.0, yardstick=judge), y, 2).score(name)
    rough, off = [], []
    for seed in range(20):
        state = started(fit, judge)
        sample(state, judge, 0.0, seed)
        est = judged(state.found, y, 2)
        rough.append(score(name, est._pooled) - exact)
        off.append(est.score(name) - exact)
    assert abs(np.mean(off)) <= 0.3 * abs(np.mean(rough))


def test_scores_that_a_sample_leaves_open_warn():
    fit, judge = two_classes(np.random.default_rng(6))
    state = started(fit, judge)
    sample(state, judge, 0.0)
    y = fit.problem.y.astype(int)
    est = judged(state.found, y, 2)
    apart = est.sampled.decision + 3.0 * np.random.default_rng(0).normal(size=len(y))
    doubtful = replace(est, sampled=replace(est.sampled, decision=apart))
    with pytest.warns(UnreliableWarning, match=r"'auc'.*exact=True"):
        doubtful.score("auc")
    saved = pickle.loads(pickle.dumps(est))
    assert saved.score("auc") == est.score("auc")


def test_rows_of_a_rare_class_are_told_by_those_that_were_certain_to_be_drawn():
    """By chance only rows of the other class are drawn, of which losses tell nothing of the rare ones."""
    rng = np.random.default_rng(0)
    rare = np.arange(1200) < 80
    known = np.where(rare, 2.7, 0.07) + 1e-3 * rng.normal(size=1200)
    without = known + np.where(rare, 0.1, 0.005) * rng.normal(size=1200)
    covariates = np.column_stack([known.round(2), known.round(2), np.abs(without)])
    certain, by_chance = np.arange(70), np.arange(100, 1200, 25)
    drawn = Draw(np.concatenate([certain, by_chance]), np.append(np.ones(70), np.full(len(by_chance), 0.04)))
    found, _, _ = regression_estimate(known[drawn.rows], drawn, covariates, np.full(1200, 1 / 1200))
    assert found == pytest.approx(known.mean(), rel=1e-2)

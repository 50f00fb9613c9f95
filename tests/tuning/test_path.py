"""The search along a path: what is visited, what is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from builders import tenths_of
from onefit import LassoLOO, LogisticLOO
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out import leave_out
from onefit.losses import EpsilonInsensitive, Logistic, Poisson, Squared
from onefit.metrics import Deviance, LogLoss, SquaredError
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers.solve import solve
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks
from onefit.tuning.path import of_verdicts
from onefit.tuning.path_end import PathEnd
from onefit.tuning.race import _Entrant, _Race, race
from onefit.tuning.sample import Verdict, between, from_sample
from onefit.tuning.seen_path import SeenPath
from onefit.tuning.walk import search_path

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = X[:, 0] + RNG.normal(size=60)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)


def _lasso(strength):
    return Problem(Squared(), L1(strength), X, Y, np.ones(60), mean_scaled=True)


def _poisson(strength):
    return Problem(Poisson(), L2(strength), X, COUNTS, np.ones(60), mean_scaled=True)


def _text(n, seed):
    """Words by Zipf's law, the rare ones weighted up: many rows are held up by a word of their own."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=n)
    words = np.exp(np.outer(topics, 0.7 * rng.normal(size=1500))) / np.arange(3, 1503)
    counts = rng.poisson(40 * words / words.sum(axis=1, keepdims=True)).astype(float)
    counts = counts[:, counts.sum(axis=0) > 0]
    counts *= np.log(n / (counts > 0).sum(axis=0))
    return counts / np.linalg.norm(counts, axis=1, keepdims=True), topics + 0.3 * rng.normal(size=n)


def _raced(problem_at, strengths, looks, selection="min"):
    walked = search_path(Grid(strengths), problem_at, looks, selection=selection, early_stopping=False)
    return walked, race(walked, problem_at, looks, selection)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rise_that_only_the_steps_see_does_not_end_the_path(seed):
    words, y = _text(60, seed)
    ones = np.ones(len(y))

    def problem_at(strength):
        return Problem(Squared(), L1(strength), words, y, ones, mean_scaled=True)

    null = np.abs(Fit.at_start(problem_at(1.0)).loss_gradient).max()
    strengths = np.geomspace(null, 0.04 * null, 20)
    looks = Looks(Judgement(SquaredError(), y, ones))
    result = search_path(Grid(strengths), problem_at, looks)
    result, left_out = race(result, problem_at, looks, "min")
    refits = [
        np.mean((y - leave_out(solve(Fit.at_start(problem_at(s))).fit, max_error=0.0).eta) ** 2)
        for s in strengths
    ]
    assert np.isfinite(left_out.bounds).all()
    assert refits[result.best] < 1.05 * min(refits)
    assert result.risks[result.best] == pytest.approx(refits[result.best], rel=0.05)


@pytest.mark.parametrize(
    ("problem_at", "metric", "target"), [(_lasso, SquaredError(), Y), (_poisson, Deviance(Poisson()), COUNTS)]
)
def test_each_point_is_a_fit_and_its_risk(problem_at, metric, target):
    strengths, ones = np.geomspace(40.0, 0.5, 6), np.ones(60)
    looks = Looks(Judgement(metric, target, ones))
    walked, (result, left_out) = _raced(problem_at, strengths, looks)
    leads = None  # rows go on where they were at the strength before
    for j, strength in enumerate(strengths):
        solution = solve(Fit.at_start(problem_at(strength)))
        np.testing.assert_allclose(walked.coefs[j], solution.fit.coef, atol=1e-8)
        verdict = looks.first(solution, leads)
        leads = verdict.leads
        np.testing.assert_allclose(walked.losses[:, j], verdict.losses, rtol=1e-6, atol=1e-10)
        expected = mean_and_error(verdict.losses, ones)
        assert (walked.risks[j], walked.std_errors[j]) == pytest.approx(expected)
    np.testing.assert_allclose(left_out.fit.coef, result.coefs[result.best], atol=1e-8)
    assert metric.losses(target, left_out.eta).mean() == pytest.approx(result.risks[result.best], rel=0.02)


def _wide(strength):
    # few rows, many columns, a logistic lasso: steps on the pattern of the fit go far off
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 100))
    labels = (Z[:, :3].sum(axis=1) + 0.5 * rng.normal(size=40) > 0).astype(float)
    return Problem(Logistic(), L1(strength), Z, labels, np.ones(40))


@pytest.fixture(scope="module")
def refits():
    strengths, labels = np.geomspace(8.0, 0.2, 6), _wide(1.0).y
    eta = [[solve(Fit.at_start(_wide(s).without(i))).fit.eta[i] for i in range(40)] for s in strengths]
    return strengths, np.array([LogLoss(np.arange(2)).losses(labels, np.array(own)) for own in eta]).T


@pytest.mark.costly
@pytest.mark.parametrize("selection", ["min", "1se", "bagged", "bagged_se"])
def test_the_choice_of_a_race_is_that_of_refits_at_every_strength(selection, refits):
    strengths, losses = refits
    metric, ones, labels = LogLoss(np.arange(2)), np.ones(40), _wide(1.0).y
    judgement = Judgement(metric, labels, ones)
    _, (result, left_out) = _raced(_wide, strengths, Looks(judgement), selection)
    verdicts = [Verdict(column, np.zeros(len(ones)), 0.0, len(ones)) for column in losses.T]
    exact = of_verdicts(strengths, verdicts, judgement, result.coefs, result.levels, selection)
    assert result.best == exact.best
    assert result.risks[result.best] == pytest.approx(exact.risks[exact.best], rel=0.01)
    assert metric.losses(labels, left_out.eta).mean() == pytest.approx(exact.risks[exact.best], rel=0.01)
    known = np.isfinite(result.approx_errors)
    assert np.all(np.abs(result.risks - exact.risks)[known] <= result.approx_errors[known] + 0.02)


def _rough(strength):
    labels = (Y > 0).astype(float)
    return Problem(Logistic(), L1(strength), X, labels, np.ones(60))


def _rough_path():
    """Strengths of an ℓ1 logistic path, judged by steps, and the place of the best."""
    looks = Looks(Judgement(LogLoss(np.array([0, 1])), (Y > 0).astype(float), np.ones(60)))
    strengths = np.geomspace(20.0, 0.1, 9)
    walked, (raced, _) = _raced(_rough, strengths, looks)
    return looks, walked, raced.best


def _with_verdict(walked, looks, place, verdict, selection="min"):
    verdicts = list(walked.verdicts)
    verdicts[place] = verdict
    of = walked.strengths, verdicts, looks.judgement, walked.coefs, walked.levels, selection
    return of_verdicts(*of)


def test_a_rough_risk_beside_the_choice_is_judged_before_the_choice_stands():
    looks, walked, best = _rough_path()
    known = walked.verdicts[best]
    misled = known._replace(losses=10.0 * known.losses, error=np.inf, solved=0, seen=0)
    result = _with_verdict(walked, looks, best, misled)
    assert result.best != best
    assert race(result, _rough, looks, "min")[0].best == best


def test_a_choice_between_judged_strengths_is_judged_like_these_first(monkeypatch):
    looks, walked, best = _rough_path()
    between = best + 1  # of which nothing is known but what the strengths on either side say
    result = replace(_with_verdict(walked, looks, between, None), best=between)
    thorough = []
    monkeypatch.setattr(_Race, "_judge_thoroughly", _recorded(_Race._judge_thoroughly, thorough))
    running = _running(result, looks)
    running.finish()
    assert running.result.verdicts[between] is not None
    assert thorough == [best]


def test_a_choice_between_strengths_that_all_rows_judged_is_judged_once():
    looks, walked, best = _rough_path()
    between = best + 1
    known = walked.verdicts[best]
    whole = _with_verdict(walked, looks, best, known._replace(solved=looks.n))
    result = replace(_with_verdict(whole, looks, between, None), best=between)
    running = _running(result, looks)
    running._looked_at(between)
    assert between in running.finished
    assert running.verdicts[between].left_out == looks.n


def test_beside_strengths_that_all_tenths_judged_another_is_judged_so():
    rng = np.random.default_rng(0)
    words = sp.csr_array(rng.normal(size=(750, 900)) * (rng.random((750, 900)) < 0.02))
    y, ones = words[:, :9].sum(axis=1) + rng.normal(size=750), np.ones(750)

    def problem_at(strength):
        return Problem(Squared(), L1(strength), words, y, ones)

    looks = Looks(Judgement(SquaredError(), y, ones))
    fits = [solve(Fit.at_start(problem_at(strength))).fit for strength in (4.0, 3.0, 2.0)]
    verdicts = [looks.by_tenths(fits[0], None, 750), None, looks.by_tenths(fits[2], None, 750)]
    coefs, levels = (
        np.stack(part) for part in zip(*((fit.coef, fit.intercept) for fit in fits), strict=True)
    )
    result = of_verdicts(np.array([4.0, 3.0, 2.0]), verdicts, looks.judgement, coefs, levels, "min")
    entrants = [_Entrant(j, result, problem_at, looks) for j in range(3)]
    running = _Race(result, looks, "min", verdicts, entrants)
    running._looked_at(1)
    assert running.verdicts[1].seen == 750  # alone they know a tenth more, and would look better


def _running(result, looks):
    entrants = [_Entrant(j, result, _rough, looks) for j in range(len(result.verdicts))]
    return _Race(result, looks, "min", list(result.verdicts), entrants)


@pytest.mark.parametrize("alike", [True, False])
def test_a_choice_by_tenths_is_compared_anew_unless_all_near_it_were_judged_so(alike, monkeypatch):
    """Tenths and single rows miss different things: what all rows say of the choice takes their place."""
    ones, rows = np.ones(60), np.random.default_rng(0).exponential(size=60)
    lower, other = (Verdict(rows + off, np.zeros(60), np.inf, seen=60) for off in (-0.2, 0.0))
    other = other if alike else Verdict(rows, np.zeros(60), 0.0, 60)
    judgement = Judgement(LogLoss(np.arange(2)), (Y > 0).astype(float), ones)
    result = of_verdicts(
        np.array([2.0, 1.0]), [other, lower], judgement, np.zeros((2, 8)), np.zeros(2), selection="min"
    )
    running = _running(result, Looks(judgement))
    thorough = Verdict(rows + 0.1, np.zeros(60), 0.0, 60)
    monkeypatch.setattr(_Race, "_near", property(lambda _: np.ones(2, dtype=bool)))
    monkeypatch.setattr(_Race, "_thorough", lambda *_: thorough)
    running._judge_thoroughly(1)
    assert running.result.best == (1 if alike else 0)


def _recorded(method, places):
    def recorded(race, place):
        places.append(place)
        return method(race, place)

    return recorded


def test_a_sample_of_rows_has_the_mean_of_all_within_its_error():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        cheap = rng.exponential(size=200)
        exact = 0.7 * cheap + 0.2 * rng.exponential(size=200)
        weights = rng.uniform(0.5, 1.5, size=200)
        rows = rng.permutation(200)[:60]
        found = from_sample(exact[rows], rows, np.full(200, 0.3), cheap[:, None], weights)
        np.testing.assert_allclose(found.losses[rows], exact[rows])
        off = np.average(found.losses, weights=weights) - np.average(exact, weights=weights)
        inside += abs(off) <= found.error
    assert 0.9 <= inside / 300 <= 0.99
    order = rng.permutation(200)
    whole = from_sample(exact[order], order, np.ones(200), cheap[:, None], weights)
    np.testing.assert_allclose(whole.losses, exact)
    assert whole.error == 0.0


def test_samples_keep_the_spread_of_differences_and_missing_rows_take_no_part():
    rng = np.random.default_rng(1)
    n, order = 400, rng.permutation(400)
    first = rng.exponential(size=n)
    second = first + 0.1 * rng.normal(size=n)
    rows, nothing = order[:100], np.zeros((n, 1))
    known = first[rows].copy()
    known[3] = np.nan
    chance = np.full(n, 0.25)
    a = from_sample(known, rows, chance, nothing, np.ones(n))
    b = from_sample(np.where(np.isnan(known), np.nan, second[rows]), rows, chance, nothing, np.ones(n))
    assert np.isfinite(a.losses).all()
    assert np.std(b.losses - a.losses) == pytest.approx(0.1, rel=0.2)
    assert np.linalg.norm(b.misses - a.misses) < 0.2 * np.linalg.norm(a.misses)


def test_a_strength_that_was_not_judged_lies_between_its_neighbours():
    left = Verdict(np.array([1.0, 3.0]), np.zeros(2), 0.1, 2)
    right = Verdict(np.array([2.0, 6.0]), np.zeros(2), 0.2, 2)
    middle = between(left, right, 0.5)
    np.testing.assert_allclose(middle.losses, [1.5, 4.5])
    assert middle.error == np.inf  # nothing bounds it


def _seen(n, *strengths):
    return SeenPath(Looks(Judgement(SquaredError(), np.zeros(n), np.ones(n))), list(strengths))


def _of_fifty():
    return Fit.at_start(Problem(Squared(), L1(1.0), X[:50], Y[:50], np.ones(50), mean_scaled=True))


def _end(grid, seen):
    """Of a path of which more is known than bounds."""
    return PathEnd(grid, seen, judge=lambda places: pytest.fail(f"{places} are no bounds"))


def test_the_path_stops_only_when_it_is_clearly_worse():
    rows = np.random.default_rng(1).normal(size=50)
    rows += 0.05 - rows.mean()
    seen, nothing = _seen(50, *10.0 ** (-0.1 * np.arange(9))), np.zeros(50)
    end = _end(Grid(np.ones(1)), seen)
    fit = _of_fifty()
    for rise in [0.0, 0.01, 0.01, 0.01, 0.01]:  # within the noise, and not yet far enough
        seen.add(fit, Verdict(rows**2 + rise * rows, nothing, 0.0))
        assert not end.is_past_minimum()
    seen.add(fit, Verdict(rows**2 + 0.5 * rows, nothing, 0.0))
    assert not end.is_past_minimum()  # far enough, and a rise that the rows disagree on
    seen.add(fit, Verdict(rows**2 + 1.0, np.full(50, 1.0), 14.0))
    assert not end.is_past_minimum()  # a rise that may be that of the sample
    seen.add(fit, Verdict(rows**2 + 1.0, nothing, 0.0))
    assert end.is_past_minimum()


@pytest.mark.parametrize(("strengths", "stops_at"), [(9, 9), (11, 11), (13, 6), (100, 6)])
def test_a_path_is_seen_to_an_end_nearer_than_what_was_waited(monkeypatch, strengths, stops_at):
    monkeypatch.setattr(Looks, "seconds_at_first", lambda *_: 1.0)
    seen = _seen(50)
    end = _end(Grid(np.geomspace(1.0, 0.1, strengths)), seen)
    fit, losses = _of_fifty(), np.random.default_rng(1).normal(size=50) ** 2
    for strength, rise in zip(end.grid.values.tolist(), [0.0, *[1.0] * strengths], strict=False):
        seen.strengths.append(strength)
        seen.add(fit, Verdict(losses + rise, np.zeros(50), 0.0))
        if end.is_past_minimum():
            break
    assert len(seen.fits) == stops_at


def test_a_path_whose_rest_takes_next_to_nothing_is_seen_to_its_end():
    seen = _seen(50)
    end = _end(Grid(np.geomspace(1.0, 0.1, 30)), seen)
    fit, losses = _of_fifty(), np.random.default_rng(1).normal(size=50) ** 2
    assert seen.looks.seconds_at_first(fit) < 0.01
    for strength, rise in zip(end.grid.values.tolist(), [0.0, *[1.0] * 28, -0.1], strict=True):
        seen.strengths.append(strength)
        seen.add(fit, Verdict(losses + rise, np.zeros(50), 0.0))
        assert not end.is_past_minimum()


def test_a_path_that_tenths_judge_goes_near_and_the_choice_to_the_optimum():
    """Fits that nothing but other fits start from are not polished: Newton steps are for the choice."""
    rng = np.random.default_rng(0)
    words = sp.random(750, 900, density=0.05, format="csr", random_state=0)
    y = (words.toarray()[:, :20].sum(axis=1) * 4.0 - 2.0 + rng.logistic(size=750) > 0).astype(float)
    looks = Looks(Judgement(LogLoss(np.array([0, 1])), y, np.ones(750)))

    def problem_at(strength):
        return Problem(Logistic(), L1(strength), words, y, np.ones(750))

    walked, (result, left_out) = _raced(problem_at, np.geomspace(0.5, 0.05, 4), looks)
    optima = [solve(Fit.at_start(problem_at(strength))).fit for strength in result.strengths]
    near = [looks.asks_little(fit) for fit in optima]
    off = [np.linalg.norm(coef - fit.coef) for coef, fit in zip(walked.coefs, optima, strict=True)]
    assert sum(near) >= 2
    assert max(np.array(off)[near]) > 1e-9
    for fit, coef, level in zip(optima, walked.coefs, walked.levels, strict=True):
        assert Fit(fit.problem, coef, level).objective <= fit.objective * (1.0 + 1e-5)
    np.testing.assert_allclose(result.coefs[result.best], optima[result.best].coef, atol=1e-9)
    np.testing.assert_allclose(left_out.fit.coef, optima[result.best].coef, atol=1e-9)


def _no_solution_below(monkeypatch, limit, of_rows):
    """There is no solution below a limit, or there is, but not without some rows."""
    first = Looks.first

    def check(problem):
        if problem.penalty.alpha < limit:
            raise SolverError("no minimum")

    def solve_path(problems, _):
        for problem in problems:
            check(problem)
            yield solve(Fit.at_start(problem))

    def without_rows(self, solution, leads=None):
        check(solution.fit.problem)
        return first(self, solution, leads)

    if of_rows:
        monkeypatch.setattr(Looks, "first", without_rows)
    else:
        monkeypatch.setattr("onefit.tuning.walk.solve_path", solve_path)


def test_the_strength_before_one_without_refits_is_judged(monkeypatch):
    _no_solution_below(monkeypatch, 0.01, of_rows=True)
    noiseless = X.sum(axis=1)  # all columns have a say, so that not every strength is judged
    looks = Looks(Judgement(SquaredError(), noiseless, np.ones(60)))
    grid = Grid(np.geomspace(0.1, 0.03, 9), automatic=True)
    result = search_path(grid, lambda strength: replace(_lasso(strength), y=noiseless), looks)
    assert any(verdict is None for verdict in result.verdicts)
    assert result.verdicts[-1] is not None
    assert 0.01 <= result.strengths[-1] < grid.values[-1]


@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("limit", [0.05, 0.5])
def test_a_path_ends_before_a_strength_that_is_added_and_cannot_be_solved(monkeypatch, limit, of_rows):
    _no_solution_below(monkeypatch, limit, of_rows)

    noiseless = X[:, 0]  # the risk falls to the end of any path
    looks, grid = (
        Looks(Judgement(SquaredError(), noiseless, np.ones(60))),
        Grid(np.geomspace(1.0, 0.1, 6), True),
    )

    def found():
        return search_path(grid, lambda strength: replace(_lasso(strength), y=noiseless), looks)

    if limit > grid.values[-1]:  # one of those that were asked for
        with pytest.raises(SolverError, match="no minimum"):
            found()
    else:
        result = found()
        added = grid.weaker[grid.weaker >= limit]
        np.testing.assert_allclose(result.strengths, [*grid.values, *added])
        assert result.best == len(result.risks) - 1


def _rise_that_two_tenths_leave_open(steps):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 120))
    y = X[:, :3].sum(axis=1) + rng.normal(size=800)
    looks = Looks(Judgement(SquaredError(), y, np.ones(800)))
    seen = SeenPath(looks, [30.0, 29.0, 1e-9])
    for strength in (30.0, 1e-9):  # nearly the best fit, and one without a penalty
        fit = solve(Fit.at_start(Problem(Squared(), L1(strength), X, y, np.ones(800)))).fit
        seen.add(fit, looks.by_tenths(fit, None))
        if strength == 30.0:  # its neighbour is not judged
            seen.add(fit, None)
    seen.verdicts[2] = seen.verdicts[2]._replace(misses=0.1 * np.ones(800))
    return _end(Grid(np.ones(steps)), seen)


def test_a_rise_that_two_tenths_leave_open_is_looked_at_by_all_rows():
    end = _rise_that_two_tenths_leave_open(10_000)
    seen = end.seen
    X, y = seen.fits[0].problem.X, seen.fits[0].problem.y
    assert end.is_past_minimum()
    assert seen.risks[0] == seen.risks[1]
    assert [seen.verdicts[j].seen for j in (0, 2)] == [800, 800]
    refits = [
        solve(Fit.at_start(Problem(Squared(), L1(s), X, y, np.ones(800)).without(part))).fit.eta[part]
        for s in (30.0, 1e-9)
        for part in tenths_of(X, y)
    ]
    exact = (np.concatenate(refits).reshape(2, -1) - y[np.concatenate(tenths_of(X, y))]) ** 2
    np.testing.assert_allclose([seen.risks[0], seen.risks[2]], exact.mean(axis=1), rtol=0.01)


def test_a_rise_is_not_looked_at_where_the_rest_of_the_path_takes_less():
    end = _rise_that_two_tenths_leave_open(4)
    assert not end.is_past_minimum()
    assert [end.seen.verdicts[j].seen for j in (0, 2)] == [160, 160]


def test_a_coarse_path_stops_a_decade_past_its_minimum():
    seen, nothing = _seen(50, 1.0, 0.3, 0.1), np.zeros(50)
    end = _end(Grid(np.ones(1)), seen)
    fit, losses = _of_fifty(), np.random.default_rng(1).normal(size=50) ** 2
    for rise, past in [(0.0, False), (1.0, False), (1.0, True)]:
        seen.add(fit, Verdict(losses + rise, nothing, 0.0))
        assert end.is_past_minimum() == past


def test_strengths_out_of_reach_are_told_without_leverages(monkeypatch):
    words, topics = _text(600, 0)
    problem = Problem(Logistic(), L2(1.0), sp.csr_array(words), (topics > 0).astype(float), np.ones(600))
    looks = Looks(Judgement(LogLoss(np.arange(2)), problem.y, problem.weights))
    strengths = np.logspace(3, -2, 6)

    def at(strength):
        return replace(problem, penalty=L2(strength))

    factored = []
    first = Looks.first
    monkeypatch.setattr(
        Looks, "first", lambda own, one, *leads: factored.append(one) or first(own, one, *leads)
    )
    _, (result, _) = _raced(at, strengths, looks, "bagged_se")
    assert 1 <= len(factored) < 6
    told = {float(one.fit.problem.penalty.alpha) for one in factored}
    loose = [j for j, strength in enumerate(strengths) if strength not in told]
    monkeypatch.setattr(Looks, "bracket", lambda *_: None)
    _, (other, _) = _raced(at, strengths, looks, "bagged_se")
    assert len(factored) >= 6
    assert result.best == other.best
    # which factors are at hand decides how fits are solved, to rounding
    assert result.risks[result.best] == pytest.approx(other.risks[other.best], rel=1e-10)
    for j in loose:
        assert result.approx_errors[j] > other.approx_errors[j]
        exact = leave_out(solve(Fit.at_start(at(strengths[j]))).fit, max_error=0.0)
        assert abs(looks.judgement.losses(exact).mean() - result.risks[j]) <= result.approx_errors[j]
        assert result.guarantees[j] == "bounded"


def test_a_choice_stands_only_beside_strengths_that_were_judged(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 6))
    y = X[:, 0] + rng.standard_t(3, size=30)
    looks, strengths = Looks(Judgement(SquaredError(), y, np.ones(30))), np.array([300.0, 30.0, 0.3, 0.01])

    def at(strength):
        return Problem(EpsilonInsensitive(0.0), L2(strength), X, y, np.ones(30))

    def left_out(fit):
        return [(solve(Fit.at_start(fit.problem.without(i))).fit.eta[i] - y[i]) ** 2 for i in range(30)]

    fits = [solve(Fit.at_start(at(strength))).fit for strength in strengths]
    exact = np.array([left_out(fit) for fit in fits])
    assert exact.mean(axis=1).argsort()[0] == 1
    known = [Verdict(losses, np.zeros(30), 0.0, proven=True) for losses in exact]
    known[1] = Verdict(exact[1] + 100.0, np.zeros(30), np.inf)  # a step that is far off
    known[3] = Verdict(exact[3] - 100.0, np.zeros(30), 100.0, solved=20)  # and so is a sample
    coefs, levels = np.stack([fit.coef for fit in fits]), np.stack([fit.intercept for fit in fits])
    walked = of_verdicts(strengths, known, looks.judgement, coefs, levels, "min")
    assert walked.best == 3
    monkeypatch.setattr("onefit.tuning.race.UNMINDED", 0.0)
    monkeypatch.setattr("onefit.tuning.race.FITS", 0.0)
    result, _ = race(walked, at, looks, "min")
    assert result.best == 1
    np.testing.assert_allclose(result.risks[1], exact[1].mean(), rtol=1e-6)


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_paths_go_on_while_small_columns_have_not_had_their_say(seed, loss):
    """Columns of a large scale that say nothing enter first, and the risk rises clearly before it falls."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 60))
    signal = X[:, :5] @ rng.normal(size=5)
    X, signal = X * 10 ** rng.uniform(-1.5, 1.5, 60), signal / signal.std()
    if loss == "squared":
        model, y = LassoLOO(), 0.7 * signal + rng.normal(size=400)
    else:
        model, y = LogisticLOO(l1_ratio=1.0), (2.0 * signal + rng.logistic(size=400) > 0).astype(int)
    whole = clone(model).set_params(early_stopping=False).fit(X, y)
    assert model.fit(X, y).loo_.value <= 1.03 * whole.loo_.value

"""The audit: unbiased by enumeration, honest intervals, and what it does at its borders."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from onefit.leave_out.draws import chances, draw_alike, spread, unseen
from onefit.numerics import RESOLUTION
from onefit.risk.audit import Draw, audit, draw


class Dealt:
    """Stands for a generator: takes rows in a given order, from a given start."""

    def __init__(self, rank, start):
        self.rank, self.start = np.asarray(rank), start

    def permutation(self, rows):
        return rows[np.argsort(self.rank[rows])]

    def random(self):
        return self.start


def all_draws(correction, weights, m, rank):
    """Each draw that some start gives, with its probability: the length of the starts that give it."""
    probabilities = np.full(len(weights), np.nan)
    for start in np.linspace(0.0, 0.99, 40):
        seen = draw(correction, weights, m, Dealt(rank, start))
        probabilities[seen.rows] = seen.probabilities
    held = probabilities[weights > 0]
    assert not np.any(np.isnan(held))
    ends = np.cumsum(held[np.argsort(rank)][held[np.argsort(rank)] < 1.0])
    starts = np.unique(np.concatenate([[0.0, 1.0], -ends % 1.0]))
    for low, high in pairwise(starts):
        yield draw(correction, weights, m, Dealt(rank, 0.5 * (low + high))), high - low


@pytest.mark.costly
@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_over_all_draws_is_the_exact_risk(m, weighted):
    rng = np.random.default_rng(m)
    n = 5
    weights = np.array([1.0, 2.0, 0.0, 0.5, 3.0]) if weighted else np.ones(n)
    exact, approximate = rng.exponential(size=n), 5.0 * rng.exponential(size=n)
    correction = np.array([9.0, 0.1, 5.0, 0.0, 0.4])  # row 0 is certain for m = 3
    risk = np.average(exact, weights=weights)
    n_held = np.count_nonzero(weights)
    total, ways = 0.0, 0
    for rank in permutations(range(n_held)):
        for drawn, probability in all_draws(correction, weights, m, np.array(rank)):
            total += probability * audit(approximate, drawn, exact[drawn.rows], weights).value
        ways += 1
    np.testing.assert_allclose(total / ways, risk, rtol=1e-12)


def test_a_draw_has_m_distinct_rows_and_none_without_weight():
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, 200).astype(float)
    for seed in range(50):
        drawn = draw(rng.standard_cauchy(200), weights, 30, np.random.default_rng(seed))
        assert len(np.unique(drawn.rows)) == 30
        assert np.all(np.diff(drawn.rows) > 0)
        assert np.all(weights[drawn.rows] > 0)
        assert np.all((drawn.probabilities > 0) & (drawn.probabilities <= 1))


def test_rows_are_drawn_as_often_as_their_probability_says():
    rng = np.random.default_rng(1)
    correction, weights = rng.standard_cauchy(40), rng.uniform(0.5, 2.0, 40)
    times, probabilities = np.zeros(40), np.zeros(40)
    for _ in range(4000):
        drawn = draw(correction, weights, 8, rng)
        times[drawn.rows] += 1
        probabilities[drawn.rows] = drawn.probabilities
    np.testing.assert_allclose(probabilities.sum(), 8.0)
    error = np.sqrt(probabilities * (1 - probabilities) / 4000)
    assert np.all(np.abs(times / 4000 - probabilities) <= 4 * error)
    assert np.any(probabilities == 1.0)


@pytest.mark.parametrize("m", [8, 30])
def test_draws_by_lots_have_the_probabilities_of_others_and_most_rows_in_common(m):
    rng, sizes = np.random.default_rng(2), (m, 2 * m)
    correction, weights = rng.exponential(size=200), rng.integers(0, 3, 200) * rng.uniform(0.5, 2.0, 200)
    correction[:3], weights[:4] = 300.0, [1.0, 1.0, 1.0, 0.0]
    times, probabilities, common = np.zeros(200), np.zeros(200), []
    for _ in range(4000):
        lots = rng.random(200)
        drawn, larger = (draw_alike(correction, weights, size, lots) for size in sizes)
        near = draw_alike(correction * rng.uniform(0.9, 1.1, 200), weights, m, lots)
        times[drawn.rows] += 1
        probabilities[drawn.rows] = drawn.probabilities
        common.append([len(np.intersect1d(drawn.rows, other.rows)) / m for other in (larger, near)])
    assert len(drawn.rows) == m
    np.testing.assert_allclose(probabilities.sum(), m)
    error = np.sqrt(probabilities * (1 - probabilities) / 4000)
    assert np.all(np.abs(times / 4000 - probabilities) <= 4 * error + 0.15 * probabilities / m)
    assert times[3] == 0
    assert np.all(times[:3] == 4000)
    assert np.all(np.mean(common, axis=0) > 0.9)


def test_no_row_counts_much_more_than_in_a_uniform_draw():
    correction = np.concatenate([np.zeros(995), np.full(5, 50.0)])
    drawn = draw(correction, np.ones(1000), 30, np.random.default_rng(0))
    assert drawn.probabilities.min() > 0.4 * 30 / 1000
    assert np.all(np.isin(np.arange(995, 1000), drawn.rows))


def test_each_of_several_reasons_has_its_share_of_the_draws_beside_what_is_certain():
    first, second, weights = np.zeros((3, 100))
    first[0], first[1:11], second[11:21] = 1e9, 1.0, 1.0
    weights[:] = 1.0
    weights[50:60] = 0.0
    found = chances((first, second, np.ones(100)), weights, 13)
    np.testing.assert_allclose(found.sum(), 13.0)
    assert found[0] == 1.0
    assert not found[50:60].any()
    np.testing.assert_allclose(found[1:11], 4.0 / 10.0 + 4.0 / 89.0)  # a third of the twelve that are left
    np.testing.assert_allclose(found[1:21], found[1])
    np.testing.assert_allclose(found[60:], 4.0 / 89.0)
    np.testing.assert_array_equal(chances((first,), weights, 90), weights)


def test_differences_of_any_size_have_a_spread():
    free = np.full(20, 0.5)
    differences = np.random.default_rng(0).normal(size=20)
    error, quantile = spread(differences, free, 0.95)
    for unit in (1e-120, 1e120):
        np.testing.assert_allclose(spread(unit * differences, free, 0.95), (unit * error, quantile))


def test_rows_that_were_not_drawn_may_be_as_wrong_as_those_that_were():
    drawn = Draw(np.arange(30), np.full(30, 0.3))
    effect = np.full(100, 0.01)
    off = np.zeros(30)
    assert unseen(off, effect, drawn, 0.95) == 0.0
    off[3] = 0.005
    np.testing.assert_allclose(unseen(off, effect, drawn, 0.95), (1 - 0.05 ** (1 / 30)) * 0.5 * 0.7)


def test_as_many_rows_as_there_are_make_it_exact():
    rng = np.random.default_rng(0)
    exact, approximate, weights = rng.uniform(size=(3, 20))
    weights[:4] = 0.0
    for m in (16, 20, 100):
        drawn = draw(approximate, weights, m, rng)
        result = audit(approximate, drawn, exact[drawn.rows], weights)
        np.testing.assert_array_equal(result.rows, np.arange(4, 20))
        np.testing.assert_allclose(result.value, np.average(exact, weights=weights))
        assert result.std_error == 0.0
        assert result.interval == (result.value, result.value)
        assert result.unseen == 0.0


def test_a_correction_of_zero_everywhere_draws_uniformly():
    drawn = draw(np.zeros(50), np.ones(50), 10, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.probabilities, 0.2)


def test_a_right_approximation_leaves_only_the_resolution():
    losses = np.random.default_rng(0).exponential(size=100)
    drawn = draw(losses, np.ones(100), 30, np.random.default_rng(1))
    result = audit(losses, drawn, losses[drawn.rows], np.ones(100))
    np.testing.assert_allclose(result.value, losses.mean())
    assert result.std_error == 0.0
    assert result.difference == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(np.diff(result.interval), 2 * RESOLUTION * result.value)
    np.testing.assert_allclose((1.0 - result.unseen) ** 30, 0.05)
    assert "every refit agreed" in str(result)
    assert "\n" not in str(result)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_interval_of_losses_that_are_positive_begins_below_those_that_were_refitted(sign):
    rng = np.random.default_rng(0)
    exact, nothing = sign * rng.exponential(size=100), np.zeros(100)
    drawn = draw(nothing, np.ones(100), 3, rng)
    result = audit(nothing, drawn, exact[drawn.rows], np.ones(100))
    made_up = exact[drawn.rows].sum() / 100
    assert result.interval[0] == pytest.approx(made_up) if sign > 0 else result.interval[0] < made_up


def test_the_interval_widens_when_few_draws_make_the_variance():
    """At the same standard error: all draws differ, or one."""
    drawn = Draw(np.arange(30), np.full(30, 0.1))
    weights, losses = np.ones(300), np.zeros(300)
    spread = np.resize([1.0, -1.0], 30)
    lone = np.zeros(30)
    lone[0] = np.sqrt(30.0)
    even, rare = (audit(losses + 10.0, drawn, 10.0 + e, weights) for e in (spread, lone - lone.mean()))
    width = [np.ptp(result.interval) / result.std_error for result in (even, rare)]
    assert width[0] < 2 * 2.1
    assert width[1] > 2 * 4.0


def test_a_refit_that_failed_leaves_its_row_as_it_was():
    drawn = Draw(np.array([1, 3]), np.array([1.0, 1.0]))
    result = audit(np.array([1.0, 2.0, 3.0, 4.0]), drawn, np.array([np.nan, 8.0]), np.ones(4))
    assert result.value == 3.5
    np.testing.assert_array_equal(result.failed, [1])
    assert "1 refits failed" in str(result)


def test_a_row_without_a_finite_loss_is_drawn_and_corrected():
    losses = np.random.default_rng(0).exponential(size=100)
    exact = losses.copy()
    losses[[7, 60]] = np.inf, np.nan
    for seed in range(20):
        drawn = draw(losses, np.ones(100), 10, np.random.default_rng(seed))
        assert np.all(np.isin([7, 60], drawn.rows))
        result = audit(losses, drawn, exact[drawn.rows], np.ones(100))
        np.testing.assert_allclose(result.value, exact.mean())


def test_rows_that_are_known_exactly_need_not_be_drawn():
    rng = np.random.default_rng(0)
    exact = rng.exponential(size=60)
    wrong = rng.uniform(size=60) < 0.3
    approximate = np.where(wrong, 2.0 * exact, exact)
    drawn = draw(approximate, np.where(wrong, 1.0, 0.0), 30, rng)
    result = audit(approximate, drawn, exact[drawn.rows], np.ones(60))
    np.testing.assert_allclose(result.value, exact.mean())
    assert result.std_error == 0.0


def test_a_single_draw_by_chance_still_tells_an_error():
    correction = np.array([0.0, 0.0, 0.0, 1e3, 1e3])
    drawn = draw(correction, np.ones(5), 3, np.random.default_rng(0))
    assert np.count_nonzero(drawn.probabilities < 1) == 1
    result = audit(np.zeros(5), drawn, np.ones(3), np.ones(5))
    assert result.std_error > 0.0
    assert np.all(np.isfinite(result.interval))


def test_the_scale_of_weights_changes_nothing():
    rng = np.random.default_rng(0)
    exact, approximate, weights = rng.exponential(size=(3, 50))
    first, second = (
        audit(approximate, drawn, exact[drawn.rows], w)
        for w in (weights, 9.0 * weights)
        for drawn in [draw(approximate, w, 10, np.random.default_rng(3))]
    )
    np.testing.assert_allclose(first.value, second.value)
    np.testing.assert_allclose(first.interval, second.interval)


def test_fewer_than_two_rows_are_refused():
    with pytest.raises(ValueError, match="at least 2 rows"):
        draw(np.ones(5), np.ones(5), 1, np.random.default_rng(0))


def _nearest_mean_losses(k=3):
    """Training and left-out losses of the mean of the k nearest rows: no formula is known, refits fast."""
    X, y = load_diabetes(return_X_y=True)
    X = scale(X)
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    order = np.argsort(distances, axis=1)
    return (y - y[order[:, :k]].mean(axis=1)) ** 2, (y - y[order[:, 1 : k + 1]].mean(axis=1)) ** 2


def _ridge_losses_after_selection():
    """Losses with the selection of columns held fixed, and with the selection done anew without each row."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 400))
    y = X[:, 0] + rng.normal(size=120)

    def fit(rows):
        inside = X[rows] - X[rows].mean(axis=0)
        target = y[rows] - y[rows].mean()
        best = np.argsort(-np.abs(inside.T @ target) / np.sqrt((inside**2).sum(axis=0)))[:15]
        gram = inside[:, best].T @ inside[:, best] + np.eye(15)
        return best, inside[:, best], gram, np.linalg.solve(gram, inside[:, best].T @ target)

    best, inside, gram, coef = fit(np.arange(120))
    residual = y - y.mean() - inside @ coef
    leverage = 1 / 120 + np.einsum("ij,ij->i", inside, np.linalg.solve(gram, inside.T).T)
    exact = []
    for i in range(120):
        rows = np.delete(np.arange(120), i)
        best, _, _, coef = fit(rows)
        exact.append(y[i] - y[rows].mean() - (X[i, best] - X[rows][:, best].mean(axis=0)) @ coef)
    return residual**2, (residual / (1 - leverage)) ** 2, np.array(exact) ** 2


@pytest.mark.theory
@pytest.mark.parametrize("case", ["nearest rows", "selection of columns", "right but for a few"])
def test_thirty_refits_are_unbiased_and_their_intervals_cover(case):
    if case == "nearest rows":
        approximate, exact = _nearest_mean_losses()
        correction = approximate
    elif case == "selection of columns":
        training, approximate, exact = _ridge_losses_after_selection()
        correction = approximate - training
    else:
        rng = np.random.default_rng(2)
        correction, exact = rng.exponential(size=(2, 400))
        exact = exact + correction
        approximate = exact - 0.5 * correction * (rng.uniform(size=400) < 0.15)
    weights = np.ones(len(exact))
    results = []
    for seed in range(400):
        drawn = draw(correction, weights, 30, np.random.default_rng(seed))
        results.append(audit(approximate, drawn, exact[drawn.rows], weights))
    values = np.array([result.value for result in results])
    spread = values.std(ddof=1)
    assert abs(values.mean() - exact.mean()) < 3 * spread / np.sqrt(len(values))
    claimed = np.sqrt(np.mean([result.std_error**2 for result in results]))
    assert 0.85 < claimed / spread < 1.15
    covered = np.mean([low <= exact.mean() <= high for low, high in (r.interval for r in results)])
    assert 0.90 <= covered <= 0.985


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_intervals_reach_farther_where_differences_are_skewed(sign):
    """A few large differences, most of which are not drawn: the mean lies on their side."""
    rng = np.random.default_rng(0)
    approximate = np.full(400, 50.0)
    exact = approximate + sign * rng.lognormal(0.0, 1.2, 400)
    weights, leaning, even = np.ones(400), 0, 0
    for _ in range(400):
        drawn = draw(np.ones(400), weights, 20, rng)
        found = audit(approximate, drawn, exact[drawn.rows], weights)
        low, high = found.interval
        near, far = sorted((found.value - low, high - found.value))
        assert (high - found.value == far) == (sign > 0) or far == pytest.approx(near)
        leaning += low <= exact.mean() <= high
        even += abs(exact.mean() - found.value) <= near
    assert even < 0.92 * 400
    assert leaning > even + 0.02 * 400

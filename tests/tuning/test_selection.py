"""What follows from the losses of rows at all strengths: the choice, its rivals, its optimism."""

from __future__ import annotations

import numpy as np
import pytest

from onefit.risk.means import covariance_of_means, mean_and_error, paired_errors
from onefit.tuning.contest import choose_strength, contest
from onefit.tuning.selection import (
    Bagging,
    bagged,
    choose,
    confidence_set,
    corrected_risk,
    roots_of,
    smallest,
)


def _losses(rng, means, n, correlation=0.95):
    """Losses of n rows whose strengths are correlated like an autoregression, with known risks."""
    J = len(means)
    root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(J), np.arange(J))))
    return means + rng.normal(size=(n, J)) @ root.T


def test_a_few_rows_do_not_choose_a_penalty_that_is_clearly_too_weak():
    """Where they make the errors of weak penalties huge, any of them is the smallest in many draws."""
    rng = np.random.default_rng(0)
    grid = np.arange(12)
    losses = 1.0 + 0.05 * np.abs(grid - 4) + 0.01 * rng.normal(size=(200, 12))
    losses[:, 5] += 0.2
    losses[:2, 6:] += np.array([[60.0], [-8.0]]) * np.arange(2, 8)
    risks, paired = losses.mean(axis=0), paired_errors(losses, np.ones(200), 4)
    found = _contest(losses, selection="bagged_se")
    assert risks.argmin() == found.bagged() == 4
    without_a_limit = bagged(
        found.risks[None], roots_of(found.covariance[None]), found.positions, Bagging(2.0, 0.5)
    )[0]
    assert risks[without_a_limit] > risks[4] + paired[without_a_limit]


def _contest(losses, weights=None, selection="min"):
    weights = np.ones(len(losses)) if weights is None else weights
    risks = np.average(losses, axis=0, weights=weights)
    return contest([(losses, risks, paired_errors(losses, weights, smallest(risks)))], weights, selection)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("weighted", [False, True])
def test_paired_errors_are_those_of_the_differences(rng, weighted):
    losses = _losses(rng, np.linspace(2, 1, 7), 40)
    weights = rng.integers(0, 3, 40).astype(float) if weighted else np.ones(40)
    losses[weights == 0] = np.nan  # rows without weight do not count, whatever they hold
    errors = paired_errors(losses, weights, 4)
    covariance = covariance_of_means(losses, weights)
    for j in range(7):
        _, expected = mean_and_error(losses[:, j] - losses[:, 4], weights)
        assert errors[j] == pytest.approx(expected, rel=1e-12, abs=1e-15)
        paired = covariance[j, j] + covariance[4, 4] - 2 * covariance[j, 4]
        assert paired == pytest.approx(expected**2, abs=1e-12)
        assert covariance[j, j] == pytest.approx(mean_and_error(losses[:, j], weights)[1] ** 2)


@pytest.mark.parametrize(("selection", "expected"), [("min", 3), ("1se", 2)])
def test_choose(selection, expected):
    risks = np.array([2.0, 1.25, 1.1, 1.0, 1.1])
    assert choose(risks, np.array([0.5, 0.2, 0.15, 0.0, 0.15]), selection) == expected


@pytest.mark.parametrize("selection", ["min", "1se"])
def test_choose_passes_over_what_is_unknown(selection):
    assert choose(np.array([np.nan, 1.0, 2.0]), np.array([np.nan, 0.0, 0.1]), selection) == 1
    assert choose(np.full(3, np.nan), np.full(3, np.nan), selection) == 0


def test_doubled_weights_change_nothing_and_repeated_rows_know_more(rng):
    losses = _losses(rng, np.linspace(2, 1, 6), 60, correlation=0.5)
    once, doubled = _contest(losses), _contest(losses, np.full(60, 2.0))
    np.testing.assert_allclose(doubled.covariance, once.covariance)
    assert doubled.corrected_risk() == pytest.approx(once.corrected_risk())
    repeated = _contest(np.repeat(losses, 2, axis=0))
    at = [int(np.flatnonzero(once.positions == j)[0]) for j in repeated.positions]
    expected = once.covariance[np.ix_(at, at)] / 2 * (59 / 60) / (119 / 120)
    np.testing.assert_allclose(repeated.covariance, expected)


def test_the_set_is_that_of_plain_draws(rng):
    # the test written out: a multiplier bootstrap of the rows, every comparison drawn
    n, J = 60, 8
    losses = _losses(rng, np.linspace(1.5, 1.0, J), n, correlation=0.8)
    risks = losses.mean(axis=0)
    centred = losses - risks
    drawn = rng.normal(size=(20_000, n)) @ centred / np.sqrt(n * (n - 1))
    expected = []
    for m in range(J):
        others = np.arange(J) != m
        errors = np.array([mean_and_error(losses[:, m] - losses[:, k], np.ones(n))[1] for k in range(J)])
        statistic = ((risks[m] - risks) / errors.clip(1e-12))[others].max()
        highest = ((drawn[:, [m]] - drawn) / errors.clip(1e-12))[:, others].max(axis=1)
        expected.append(np.mean(highest > statistic))
    members = confidence_set(risks, covariance_of_means(losses, np.ones(n)), n)
    clear = np.abs(np.array(expected) - 0.05) > 0.02  # further from the edge than the draws are coarse
    assert 0 < np.count_nonzero(members[clear]) < np.count_nonzero(clear)
    np.testing.assert_array_equal(members[clear], np.array(expected)[clear] > 0.05)


def test_the_smallest_risk_is_always_in_the_set(rng):
    for n in (2, 3, 10):
        losses = rng.exponential(size=(n, 5)) ** 3
        assert losses.mean(axis=0).argmin() in _contest(losses).confidence_set()


def test_equal_strengths_stay_together(rng):
    losses = np.repeat(rng.normal(size=(30, 1)) ** 2, 4, axis=1)
    found = _contest(losses)
    np.testing.assert_array_equal(found.confidence_set(), np.arange(4))
    assert found.corrected_risk() == pytest.approx(losses[:, 0].mean())


def test_gaps_are_closed(rng):
    losses = _losses(rng, np.array([3.0, 1.0, 1.0, 1.0, 3.0]), 200)
    losses[:, 2] = losses[:, 1] + 0.05 + 0.01 * rng.normal(size=200)  # worse than its neighbour for certain
    losses[:, 3] = losses[:, 1] + rng.normal(size=200)
    risks = losses.mean(axis=0)
    members = confidence_set(risks, covariance_of_means(losses, np.ones(200)), 200)
    np.testing.assert_array_equal(members, [False, True, False, True, False])
    np.testing.assert_array_equal(_contest(losses).confidence_set(), [1, 2, 3])


def test_one_row_far_out_does_not_hide_a_bad_strength(rng):
    losses = _losses(rng, np.array([1.0, 1.0, 2.0]), 100)
    losses[7, 2] += 1e10  # raises the risk and its error alike
    found = _contest(losses)
    assert 2 in found.positions
    assert 2 not in found.confidence_set()
    assert found.corrected_risk() == pytest.approx(_contest(losses[:, :2]).corrected_risk(), abs=0.01)


def test_a_row_alone_tells_nothing():
    losses, weights = np.array([[1.0, 2.0], [5.0, 5.0]]), np.array([1.0, 0.0])
    found = _contest(losses, weights)
    np.testing.assert_array_equal(found.confidence_set(), [0, 1])
    assert np.isnan(found.corrected_risk())


@pytest.mark.costly
@pytest.mark.parametrize("selection", ["bagged_se", "bagged", "min", "1se"])
def test_the_correction_is_that_of_resampled_rows(rng, selection):
    """Bootstrap bias corrected cross-validation, with rows drawn and rows left over."""
    n, J = 100, 12
    losses = _losses(rng, 1.0 + 0.02 * np.arange(J), n, correlation=0.7)
    judged = []
    for _ in range(1500):
        rows = rng.integers(n, size=n)
        drawn, left = losses[rows], np.setdiff1d(np.arange(n), rows)
        risks = drawn.mean(axis=0)
        paired = paired_errors(drawn, np.ones(n), smallest(risks))
        j, _ = choose_strength(drawn, np.ones(n), risks, paired, selection)
        judged.append(losses[left, j].mean())
    found = _contest(losses, selection=selection).corrected_risk()
    optimism = np.mean(judged) - losses.mean(axis=0).min()
    assert found - losses.mean(axis=0).min() == pytest.approx(optimism, rel=0.2)


def test_several_paths_choose_like_one_that_holds_them_all(rng):
    # if the smallest risk is chosen, it does not matter how strengths are spread over paths
    losses = _losses(rng, np.ones(9), 50, correlation=0.5)
    risks, covariance = losses.mean(axis=0), covariance_of_means(losses, np.ones(50))
    together = corrected_risk(risks, covariance, "min")
    assert corrected_risk(risks, covariance, "min", np.repeat([0, 1, 2], 3)) == together
    assert corrected_risk(risks, covariance, "1se", np.repeat([0, 1, 2], 3)) != together


@pytest.mark.costly
@pytest.mark.theory
@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("shape", ["flat", "valley"])
def test_the_set_holds_the_best_strength(rng, n, shape):
    j = np.arange(15)
    risks = np.ones(15) if shape == "flat" else 1.0 + 0.5 * ((j - 5) / 5) ** 2 / np.sqrt(n)
    risks = np.r_[risks, 3.0]  # a bad one
    sets = [_contest(_losses(rng, risks, n)).confidence_set() for _ in range(400)]
    assert np.mean([5 in members for members in sets]) >= 0.93
    assert np.mean([15 in members for members in sets]) <= 0.01


@pytest.mark.theory
@pytest.mark.parametrize("weighted", [False, True])
def test_the_correction_removes_the_optimism_of_a_choice_by_luck(rng, weighted):
    """All strengths have risk 1: the smallest estimate is below it, the corrected one is not."""
    raw, corrected = [], []
    for _ in range(400):
        weights = rng.integers(1, 4, 50).astype(float) if weighted else np.ones(50)
        losses = _losses(rng, np.ones(20), 50, correlation=0.8)
        found = _contest(losses, weights)
        raw.append(found.risks.min())
        corrected.append(found.corrected_risk())
    error = np.std(corrected) / np.sqrt(400)
    assert np.mean(raw) < 1.0 - 10.0 * error
    assert abs(np.mean(corrected) - 1.0) < 3.0 * error


# --- bagged choices ---------------------------------------------------------------------------------------


def _path_of_losses(rng, n, count=15):
    """Losses whose risk has its minimum in the middle of the path, flat enough to be uncertain."""
    place = np.linspace(-1.0, 1.0, count)
    return 0.3 * place**2 + 0.5 * rng.normal(size=(n, 1)) * place + rng.normal(size=(n, 1)) ** 2


def test_a_bagged_choice_is_the_mean_position_under_resampled_rows(rng):
    losses = _path_of_losses(rng, 80)
    weights = rng.exponential(size=(4000, 80))
    positions = (weights @ losses).argmin(axis=1)
    assert abs(_contest(losses, selection="bagged").bagged() - positions.mean()) < 0.75


def test_a_choice_bagged_within_errors_is_the_mean_of_the_strongest_within_them(rng):
    """Written out: weights of twice the spread, and half of each paired error."""
    losses = _path_of_losses(rng, 80)
    risks = losses.mean(axis=0)
    weights = 1.0 + 2.0 * rng.normal(size=(4000, 80))
    drawn = risks + (weights - 1.0) @ (losses - risks) / 80
    positions = []
    for one in drawn:
        errors = paired_errors(losses, np.ones(80), int(one.argmin()))
        positions.append(np.flatnonzero(one <= one.min() + 0.5 * errors)[0])
    assert abs(_contest(losses, selection="bagged_se").bagged() - np.mean(positions)) < 0.75


def test_a_choice_bagged_within_errors_is_no_weaker(rng):
    for _ in range(20):
        losses = _path_of_losses(rng, 40)
        assert (
            _contest(losses, selection="bagged_se").bagged() <= _contest(losses, selection="bagged").bagged()
        )


@pytest.mark.parametrize("selection", ["bagged_se", "bagged"])
def test_a_bagged_choice_moves_less_than_the_minimum(rng, selection):
    minima, choices = [], []
    for _ in range(60):
        losses = _losses(rng, 1.0 + 0.2 * np.linspace(-1.0, 1.0, 15) ** 2, 40, correlation=0.8)
        minima.append(losses.mean(axis=0).argmin())
        choices.append(_contest(losses, selection=selection).bagged())
    assert np.std(choices) < 0.8 * np.std(minima)
    assert np.mean(choices) < 8.0
    assert np.mean(choices) > (3.0 if selection == "bagged_se" else 6.0)


@pytest.mark.parametrize("selection", ["bagged_se", "bagged"])
def test_a_bagged_choice_knows_neither_the_order_of_rows_nor_units(rng, selection):
    losses = _path_of_losses(rng, 50)
    chosen = _contest(losses, selection=selection).bagged()
    assert _contest(losses[rng.permutation(50)], selection=selection).bagged() == chosen
    assert _contest(1e9 * losses, selection=selection).bagged() == chosen
    assert _contest(1e-9 * losses, selection=selection).bagged() == chosen


@pytest.mark.parametrize("bagging", [Bagging(2.0, 0.5), Bagging(1.0, 0.0)])
def test_a_bagged_choice_does_not_hang_on_the_last_pivots(rng, bagging):
    """How many there are depends on rounding: repeated rows and whole weights have the same choice."""
    for _ in range(20):
        losses = _losses(rng, 1.0 + 0.2 * np.linspace(-1.0, 1.0, 15) ** 2, 40, correlation=0.8)
        risks, root = losses.mean(axis=0)[None], roots_of(covariance_of_means(losses, np.ones(40))[None])
        longer = np.concatenate([root, np.full((1, root.shape[1], 1), 1e-12 * np.abs(root).max())], axis=2)
        places = np.arange(losses.shape[1])
        assert bagged(risks, longer, places, bagging) == bagged(risks, root, places, bagging)


@pytest.mark.parametrize("selection", ["bagged_se", "bagged"])
def test_a_bagged_choice_among_equal_strengths_is_the_strongest(rng, selection):
    losses = np.repeat(rng.normal(size=(30, 1)) ** 2, 6, axis=1)
    assert _contest(losses, selection=selection).bagged() == 0
    clear = losses + np.array([9.0, 9.0, 0.0, 9.0, 9.0, 9.0])
    assert _contest(clear, selection=selection).bagged() == 2


@pytest.mark.parametrize("selection", ["bagged_se", "bagged"])
def test_a_bagged_choice_is_in_its_confidence_set(rng, selection):
    for _ in range(20):
        found = _contest(_path_of_losses(rng, 30), selection=selection)
        assert found.bagged() in found.confidence_set()


@pytest.mark.parametrize("selection", ["bagged_se", "bagged"])
def test_a_bagged_choice_of_a_single_row_is_the_smallest_risk(selection):
    losses = np.array([[3.0, 1.0, 2.0]])
    assert _contest(losses, selection=selection).bagged() == 1

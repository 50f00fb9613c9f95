"""The permutation criterion: the paper's formula, its slope, and a test that keeps its level."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from onefit.risk.permutation import (
    PermutationCriterion,
    draw_permutations,
    gains,
    p_value,
    permuted_targets,
    value_of_norms,
    varying_outputs,
)


def _targets(n=12, count=5, outputs=1, weights=None, centred=True):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(n, outputs)) + 1.0
    weights = np.ones(n) if weights is None else weights
    orders = draw_permutations(n, count, rng)
    return y, orders, permuted_targets(y, weights, orders, centred=centred)


@pytest.mark.parametrize(("n", "count"), [(2, 1), (3, 5), (4, 7), (6, 100), (40, 30)])
def test_permutations_are_different_and_none_leaves_all_rows_in_place(n, count):
    orders = draw_permutations(n, count, np.random.default_rng(0))
    assert orders.shape == (count, n)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (count, 1)))
    together = np.vstack([np.arange(n), orders])
    assert len(np.unique(together, axis=0)) == count + 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_permutations_are_taken_where_there_are_no_more(n):
    orders = draw_permutations(n, 30, np.random.default_rng(0))
    every = np.array(list(permutations(range(n))))
    assert np.array_equal(np.unique(np.vstack([np.arange(n), orders]), axis=0), every)


def test_no_permutations():
    assert draw_permutations(7, 0, np.random.default_rng(0)).shape == (0, 7)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_target_is_centred_and_of_norm_one(centred, outputs, weighted):
    weights = np.random.default_rng(1).uniform(0.1, 2.0, 12) if weighted else np.ones(12)
    _, _, targets = _targets(outputs=outputs, weights=weights, centred=centred)
    np.testing.assert_allclose(np.einsum("imt,imt->m", targets, targets), 1.0)
    np.testing.assert_allclose(np.einsum("imt,imt->mt", targets, targets), 1.0 / outputs)
    if centred:
        np.testing.assert_allclose(np.einsum("i,imt->mt", np.sqrt(weights), targets), 0.0, atol=1e-14)


def test_targets_are_the_permuted_response():
    y, orders, targets = _targets(outputs=2)
    scaled = (y - y.mean(axis=0)) / y.std(axis=0) / np.sqrt(2 * len(y))
    np.testing.assert_allclose(targets[:, 0], scaled)
    for t, order in enumerate(orders):
        np.testing.assert_allclose(targets[:, t + 1], scaled[order])


def test_a_constant_output_stays_out():
    rng = np.random.default_rng(0)
    y = np.column_stack([rng.normal(size=9), np.full(9, 0.1)])
    targets = permuted_targets(y, np.ones(9), draw_permutations(9, 4, rng), centred=True)
    assert np.all(targets[:, :, 1] == 0.0)
    np.testing.assert_allclose(np.einsum("im,im->m", targets[:, :, 0], targets[:, :, 0]), 1.0)
    assert varying_outputs(y, np.ones(9), centred=True).tolist() == [True, False]
    assert varying_outputs(y, np.ones(9), centred=False).tolist() == [True, True]
    assert varying_outputs(0 * y, np.ones(9), centred=False).tolist() == [False, False]


def test_value_is_equation_five():
    rng = np.random.default_rng(3)
    y, orders, targets = _targets(n=20, count=6)
    scaled = ((y - y.mean()) / y.std())[:, 0]
    fits = 0.3 * rng.normal(size=(20, 7))
    error = np.sqrt(np.mean((scaled - fits[:, 0]) ** 2))
    noise = [
        abs(1 - np.sqrt(np.mean((scaled[order] - fits[:, t + 1]) ** 2))) for t, order in enumerate(orders)
    ]
    ours = PermutationCriterion(targets).value(fits[:, :, None] / np.sqrt(20))
    assert ours == pytest.approx(error + np.mean(noise), rel=1e-13)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("size", [0.02, 2.0], ids=["norms below 1", "norms above 1"])
def test_slope_against_finite_differences(count, outputs, size):
    _, _, targets = _targets(count=count, outputs=outputs)
    criterion = PermutationCriterion(targets, np.full(count + 1, 0.01))
    rng = np.random.default_rng(5)
    at = (0.3 if size < 1 else 0.0) * targets + size * rng.normal(size=targets.shape)
    value, slope = criterion.value_and_slope(at)
    assert value == criterion.value(at)
    if count:
        assert np.all((criterion.norms(at)[1:] > 1) == (size > 1))
    for _ in range(5):
        along = rng.normal(size=at.shape)
        step = 1e-6
        rise = (criterion.value(at + step * along) - criterion.value(at - step * along)) / (2 * step)
        assert np.vdot(slope, along) == pytest.approx(rise, abs=1e-7)


def test_slope_is_finite_at_a_perfect_fit():
    _, _, targets = _targets()
    value, slope = PermutationCriterion(targets).value_and_slope(targets)
    assert value == 1.0
    assert np.all(slope == 0.0)


def test_other_coordinates_give_the_same():
    _, _, targets = _targets(n=12, count=5)
    rng = np.random.default_rng(2)
    Q, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    inside = rng.normal(size=(4, 6))
    rotated = np.einsum("ir,imt->rmt", Q, targets)
    part = PermutationCriterion(rotated[:4], np.sum(rotated[4:] ** 2, axis=(0, 2)))
    whole = PermutationCriterion(targets)
    assert part.value(inside[:, :, None]) == pytest.approx(whole.value((Q[:, :4] @ inside)[:, :, None]))


def test_gain_is_the_smallest_criterion_with_each_target_as_the_response():
    norms = np.random.default_rng(0).uniform(0.2, 1.0, (8, 5))
    for t, gain in enumerate(gains(norms)):
        swapped = np.column_stack([norms[:, t], np.delete(norms, t, axis=1)])
        smallest = min(value_of_norms(row) for row in swapped)
        assert gain == pytest.approx(4 / 5 * (1 - smallest))


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [([1.0], 1.0), ([3.0, 1.0, 2.0], 1 / 3), ([2.0, 3.0, 1.0, 2.0], 3 / 4), ([0.0, 0.0], 1.0)],
)
def test_p_value_counts_ties_against_the_response(statistics, expected):
    assert p_value(np.array(statistics)) == expected

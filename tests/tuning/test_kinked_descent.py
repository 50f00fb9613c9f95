"""Ways down functions with kinks."""

import numpy as np
import pytest

from onefit.tuning.kinked_descent import bfgs_in_kinks
from onefit.tuning.optimizers import lbfgs, never


def bent_valley(t):
    """Rosenbrock's, with a kink along its bottom: 8 |t₂ − t₁²| + (1 − t₁)², zero at (1, 1)."""
    off = t[1] - t[0] ** 2
    side = 8.0 * np.sign(off)
    return 8.0 * abs(off) + (1.0 - t[0]) ** 2, np.array([-2.0 * t[0] * side - 2.0 * (1.0 - t[0]), side])


def highest(t):
    """The largest of three planes and a parabola, with its minimum, 0, where four pieces meet."""
    pieces = [(t[0] + t[1] + t[2], np.ones(3)), (-t[0], -np.eye(3)[0]), (-t[1], -np.eye(3)[1])]
    pieces.append((-t[2] + t @ t, 2.0 * t - np.eye(3)[2]))
    return max(pieces, key=lambda piece: piece[0])


def box(m, low=-3.0, high=3.0):
    return np.tile([low, high], (m, 1))


@pytest.mark.parametrize("start", [(-1.0, 1.5), (-2.0, -2.0), (2.5, -1.0)])
def test_it_follows_a_kink_to_its_lowest_point(start):
    found = bfgs_in_kinks(bent_valley, np.array(start), box(2), 300, never, 0.05)
    assert found.value < 1e-4
    np.testing.assert_allclose(found.t, 1.0, atol=0.02)


def test_it_goes_on_where_a_search_for_a_small_slope_ends():
    start = np.array([-1.0, 1.5])
    ended = lbfgs(bent_valley, start, box(2), {"maxiter": 300, "gtol": 0.0, "ftol": 1e-10, "maxls": 10})
    found = bfgs_in_kinks(bent_valley, start, box(2), 300, never, 0.05)
    assert found.value < 0.01 * ended.value


def test_it_ends_where_pieces_meet():
    found = bfgs_in_kinks(highest, np.array([1.0, -2.0, 0.5]), box(3), 300, never, 0.05)
    assert found.value < 1e-3
    assert np.all(np.diff(found.values) <= 0.0)


def test_it_stays_between_bounds_and_ends_at_them():
    def function(t):
        assert np.all((t >= 0.5) & (t <= 2.0))
        return abs(t[0] + t[1]) + t[2] ** 2, np.array([np.sign(t.sum() - t[2])] * 2 + [2.0 * t[2]])

    found = bfgs_in_kinks(function, np.array([1.7, 0.9, 1.2]), box(3, 0.5, 2.0), 100, never, 0.05)
    np.testing.assert_array_equal(found.t, 0.5)
    assert found.converged


def test_values_that_are_infinite_shorten_the_step():
    def function(t):
        return (np.inf, np.zeros(1)) if t[0] < 0.0 else (abs(t[0] - 0.1), np.sign(t - 0.1))

    found = bfgs_in_kinks(function, np.array([2.0]), box(1), 100, never, 0.9)
    assert found.value < 1e-5


def test_a_smooth_function_is_minimised_too():
    H = np.diag([1.0, 30.0, 900.0])
    found = bfgs_in_kinks(
        lambda t: (0.5 * t @ H @ t, H @ t), np.array([1.0, -1.0, 0.3]), box(3), 200, never, 0.05
    )
    assert found.value < 1e-8

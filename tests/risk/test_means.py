"""Means of losses and their errors, of one column and of many."""

import numpy as np
import pytest

from onefit.risk.means import mean_and_error, means_and_errors


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_together_are_as_each_alone(weighted):
    rng = np.random.default_rng(0)
    losses, weights = rng.exponential(size=(40, 5)), np.ones(40)
    losses[3, 2], losses[7, 4] = np.inf, 1e200
    if weighted:
        weights = rng.integers(0, 3, size=40).astype(float)
        weights[3] = 2.0
        losses[weights == 0] = np.inf
    together = np.array(means_and_errors(losses, weights)).T
    np.testing.assert_allclose(together, [mean_and_error(column, weights) for column in losses.T], rtol=1e-13)


def test_one_row_has_no_error():
    middle, errors = means_and_errors(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.0, 2.0]))
    np.testing.assert_array_equal(middle, [3.0, 4.0])
    assert np.isnan(errors).all()

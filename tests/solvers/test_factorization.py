"""Factors of symmetric matrices."""

import numpy as np
import pytest

from onefit import _linalg


@pytest.mark.parametrize(("k", "rank"), [(40, 25), (12, 12), (6, 1), (3, 0)])
def test_a_pseudo_inverse_in_any_units(k, rank):
    rng = np.random.default_rng(k)
    A = rng.normal(size=(k, max(rank, 1))) * (rank > 0)
    units = 10.0 ** rng.uniform(-3, 3, k)
    K = (A @ A.T) * np.outer(units, units)
    W = _linalg.pseudo_factor(np.tril(K))
    assert W.shape == (k, rank)
    inverse = W @ W.T
    np.testing.assert_allclose(K @ inverse @ K, K, atol=1e-9 * np.abs(K).max())
    np.testing.assert_allclose(inverse @ K @ inverse, inverse, atol=1e-7 * np.abs(inverse).max(initial=0.0))


def test_it_is_the_pseudo_inverse_of_moore_and_penrose():
    A = np.random.default_rng(0).normal(size=(40, 25))
    W = _linalg.pseudo_factor(np.tril(A @ A.T))
    np.testing.assert_allclose(W @ W.T, np.linalg.pinv(A @ A.T, hermitian=True), atol=1e-10)

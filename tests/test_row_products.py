"""Products of rows over pairs of outputs, written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.curvature.row_products import OwnColumns, SharedColumns, row_products

N, P, C = 700, 6, 3
ALL = np.arange(P + 1)
FREE = {
    "all": [ALL] * C,
    "without an intercept": [ALL[:-1]] * C,
    "nearly all": [ALL, ALL[1:], ALL[:-1]],
    "few": [np.array([0, 6]), np.array([4]), np.array([1, 6])],
    "none of one": [np.array([0]), np.array([], dtype=int), np.array([0, 6])],
    "none": [np.array([], dtype=int)] * C,
}


def _written_out(X, means, free):
    Z = np.hstack([X - (0.0 if means is None else means), np.ones((N, 1))])
    size = sum(len(own) for own in free)
    rows, first = np.zeros((N, C, size)), 0  # of no columns, where all are shrunk to zero
    for a, own in enumerate(free):
        rows[:, a, first : first + len(own)] = Z[:, own]
        first += len(own)
    return rows


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("name", FREE)
def test_both_ways_are_the_sums_over_rows(name, store, centred):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) + 1.0
    means = X.mean(axis=0) if centred else None
    rows = _written_out(X, means, FREE[name])
    E = rng.normal(size=(N, C, C))
    E = E + E.transpose(0, 2, 1)
    Q = rng.normal(size=(rows.shape[2],) * 2)
    Q = Q + Q.T
    weighted = np.tril(np.einsum("nak,nab,nbl->kl", rows, E, rows, optimize=True))
    forms = np.einsum("nak,kl,nbl->nab", rows, Q, rows, optimize=True)
    shared = np.unique(np.concatenate(FREE[name]))
    own = OwnColumns(store(X), means, FREE[name])
    for way in (own, SharedColumns(store(X), means, FREE[name], shared)):
        np.testing.assert_allclose(np.tril(way.weighted(E)), weighted, atol=1e-9)
        np.testing.assert_allclose(way.forms(Q), forms, atol=1e-9)


def test_the_way_of_fewer_multiplications():
    X = np.zeros((N, P))
    assert isinstance(row_products(X, None, FREE["all"]), SharedColumns)
    assert isinstance(row_products(X, None, FREE["few"]), OwnColumns)

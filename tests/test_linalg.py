"""Every product with X, for every way of storing it, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit import _linalg
from onefit._linalg import RowGram, design

N, P = 150, 7
COLUMNS = np.array([5, 0, 3])
subsets = pytest.mark.parametrize("columns", [None, COLUMNS, np.array([], int)], ids=["all", "some", "none"])


@pytest.fixture(params=[64 * P, 2**21], ids=["many blocks", "one block"])
def block_size(request, monkeypatch):
    monkeypatch.setattr(design, "OF_ROWS", request.param)


@pytest.fixture
def dense():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) + 2.0
    X[rng.random((N, P)) < 0.4] = 0.0
    return X


@pytest.fixture
def d():
    d = np.random.default_rng(1).uniform(0.1, 2.0, N)
    d[::7] = 0.0
    return d


def taken(X, columns):
    return X if columns is None else X[:, columns]


def close(one, other, rtol=1e-12):
    np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12 * max(1.0, np.abs(other).max(initial=0)))


def test_products(store, dense):
    X, rng = store(dense), np.random.default_rng(2)
    for shape in ((P,), (P, 2)):
        coef = rng.normal(size=shape)
        close(_linalg.times(X, coef), dense @ coef)
    for shape in ((N,), (N, 2)):
        rows = rng.normal(size=shape)
        close(_linalg.transposed_times(X, rows), dense.T @ rows)
    assert type(_linalg.times(X, coef)) is np.ndarray


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_in_single_precision_are_rounded_and_no_more(dense, order):
    X = np.array(dense, order=order)
    rows = design.RowsInSingle.of(X)
    for made, exact, side in ((rows.times, X, 1), (rows.transposed_times, X.T, 0)):
        other = np.random.default_rng(1).normal(size=(X.shape[side], 3))
        for given in (other, np.asfortranarray(other)):
            found = made(given)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, exact @ given, atol=1e-5 * np.abs(X).max())


@pytest.mark.usefixtures("block_size")
def test_means_and_norms(store, dense, d):
    X = store(dense)
    means = d @ dense / d.sum()
    close(_linalg.column_means(X, d), means)
    close(_linalg.column_norms(X, d, centred=True), np.sqrt(d @ (dense - means) ** 2))
    close(_linalg.column_norms(X, d, centred=False), np.sqrt(d @ dense**2))


def test_norms_leave_the_data_alone(store, dense, d):
    X = store(dense)
    _linalg.column_norms(X, d, centred=True)
    close(_linalg.times(X, np.eye(P)), dense)


def test_weighted_cross(store, dense, d):
    support = np.zeros(P, bool)
    support[[1, 4]] = True
    cross, level = _linalg.as_columns(store(dense)).cross(COLUMNS, support, d)
    close(cross, dense[:, COLUMNS].T @ (d[:, None] * dense[:, support]))
    close(level, dense[:, COLUMNS].T @ d)


@pytest.mark.usefixtures("block_size")
@subsets
@pytest.mark.parametrize("centred", [True, False])
def test_blocks_are_dense_centred_copies(store, dense, columns, centred):
    X, part = store(dense), taken(dense, columns)
    means = part.mean(axis=0) if centred else None
    blocks = []
    for rows, block in _linalg.as_columns(_linalg.active_columns(X, columns)).blocks(means):
        expected = part[rows] - (0 if means is None else means)
        close(block, expected)
        block[:] = np.nan  # must be a copy
        blocks.append(rows)
    np.testing.assert_array_equal(np.concatenate([np.arange(N)[rows] for rows in blocks]), np.arange(N))
    close(_linalg.times(X, np.eye(P)), dense)


def test_small_blocks_are_many(dense, monkeypatch):
    monkeypatch.setattr(design, "OF_ROWS", 64 * P)
    sizes = [len(block) for _, block in _linalg.as_columns(dense).blocks(None)]
    assert sizes == [64, 64, 22]


@pytest.mark.usefixtures("block_size")
@subsets
@pytest.mark.parametrize("kind", ["ones", "zeros among them", "negative too"])
@pytest.mark.parametrize("centred", [True, False])
def test_weighted_gram(store, dense, d, columns, kind, centred):
    weights = {"ones": np.ones(N), "zeros among them": d, "negative too": d - 0.2}[kind]
    part = taken(dense, columns)
    means = weights @ part / weights.sum() if centred else None
    gram = _linalg.as_columns(_linalg.active_columns(store(dense), columns)).weighted_gram(means, weights)
    Z = part - (0 if means is None else means)
    close(np.tril(gram), np.tril(Z.T @ (weights[:, None] * Z)), rtol=1e-10)
    assert gram.flags.f_contiguous


@pytest.mark.parametrize("share", [0.02, 0.3], ids=["few stored", "many stored"])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("centred", [True, False])
def test_weighted_gram_of_sparse_numbers_that_are_no_doubles(share, kind, centred, d):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, P)) < share, rng.integers(1, 5, (N, P)), 0).astype(kind)
    means = d @ X / d.sum() if centred else None
    for weights in (d, d - 0.2, np.ones(N)):
        gram = _linalg.full_gram(sp.csr_array(X), means, weights)
        Z = X - (np.zeros(P) if means is None else means)
        close(gram, Z.T @ (weights[:, None] * Z), rtol=1e-10)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_scaled_columns_stay_in_the_format_of_the_table(dense, layout):
    factors = np.array([2.0, 3.0, -1.0])
    scaled = _linalg.as_columns(sp.csr_array(dense).asformat(layout)).scaled_columns(COLUMNS, factors)
    assert scaled.format == layout
    close(scaled.toarray(), dense[:, COLUMNS] * factors)


@subsets
def test_row_gram(store, dense, columns):
    part = taken(dense, columns)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, part.shape[1])
    close(
        _linalg.as_design(_linalg.active_columns(store(dense), columns)).row_gram(weights),
        (part * weights) @ part.T,
    )


@pytest.mark.parametrize("share", ["equal", "unequal", "none"])
def test_inner_products_of_rows_less_their_mean(store, dense, d, share):
    own = {"equal": np.full(N, 1.0 / N), "unequal": d / d.sum(), "none": np.zeros(N)}[share]
    weights, new = np.random.default_rng(3).uniform(0.5, 2.0, P), dense[:4] + 1.0
    Z, means = dense - own @ dense, own @ dense
    X = _linalg.as_design(store(dense))
    close(X.centred_row_gram(weights, own), (Z * weights) @ Z.T)
    close(X.centred_gram_with(store(new), weights, own), ((new - means) * weights) @ Z.T)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_columns_far_from_zero_lose_no_digit(store, dense, d, far):
    """Those of sparse X are stored in full, and the other columns are as they were."""
    near = np.where(np.arange(P) < 2, np.round(64 * np.random.default_rng(5).normal(size=(N, P))) / 64, dense)
    X = near + far * (np.arange(P) < 2)
    own, weights = d / d.sum(), np.ones(P)
    means, centred = own @ X, near - own @ near
    stored = _linalg.as_columns(store(X))
    rtol, size = 1e-14 * far, np.abs(centred @ centred.T).max()
    np.testing.assert_allclose(stored.centred_row_gram(weights, own), centred @ centred.T, atol=rtol * size)
    np.testing.assert_allclose(
        stored.centred_gram_with(store(X[:4]), weights, own), (centred @ centred.T)[:4], atol=rtol * size
    )
    np.testing.assert_allclose(stored.column_squares(d, means), d @ centred**2, rtol=rtol)
    gram = np.tril(centred.T @ (d[:, None] * centred))
    np.testing.assert_allclose(np.tril(stored.weighted_gram(means, d)), gram, atol=rtol * np.abs(gram).max())


@pytest.mark.usefixtures("block_size")
@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["all", "some"])
@pytest.mark.parametrize("centred", [True, False])
def test_row_quadratic_forms(store, dense, columns, centred):
    part = taken(dense, columns)
    means = part.mean(axis=0) if centred else None
    A = np.random.default_rng(4).normal(size=(part.shape[1], 20))
    K = A @ A.T
    Z = part - (0 if means is None else means)
    expected = np.einsum("ij,jk,ik->i", Z, np.linalg.inv(K), Z)
    forms = _linalg.Factorization.of(K).row_forms(_linalg.active_columns(store(dense), columns), means)
    close(forms, expected, rtol=1e-10)


def test_a_kernel_model_is_a_design_in_dual_coordinates(dense):
    G = dense @ dense.T
    X, dual = RowGram(G), np.random.default_rng(0).normal(size=(N, 2))
    assert X.shape == (N, N)
    close(_linalg.times(X, dual), G @ dual)
    assert _linalg.transposed_times(X, dual) is dual
    close(_linalg.as_design(X).row_gram(np.full(N, 0.25)), G / 4)
    close(_linalg.as_design(X).dense_rows(np.arange(3)), G[:3])
    close(_linalg.as_design(X).sum_of_rows(dual[:, 0]), G @ dual[:, 0])
    assert not _linalg.has_columns(X)
    with pytest.raises(TypeError, match="no columns"):
        _linalg.column_norms(X, np.ones(N), centred=True)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix], ids=["dense", "array", "matrix"])
def test_operations_agree_with_those_of_the_dense_array(dense, form):
    X, rng = form(dense), np.random.default_rng(1)
    d, left, right = rng.normal(size=N), np.array([3, 1, 4]), np.array([1, 5])
    centre = rng.normal(size=P)
    close(_linalg.as_columns(X).dense(), dense)
    close(_linalg.as_columns(X).row_squares(), (dense**2).sum(axis=1))
    weights = np.linspace(0.5, 2.0, dense.shape[1])
    close(_linalg.as_columns(X).row_squares(weights), dense**2 @ weights)
    close(_linalg.as_columns(X).column_sizes(), np.abs(dense).max(axis=0))
    close(_linalg.as_columns(X).among(left, right), dense[left] @ dense[right].T)
    close(_linalg.as_columns(_linalg.some_rows(X, left)).dense(), dense[left])
    close(_linalg.as_design(X).dense_rows(left), dense[left])
    close(
        _linalg.as_columns(_linalg.as_columns(X).scaled_columns(right, np.array([2.0, 3.0]))).dense(),
        dense[:, right] * [2, 3],
    )
    close(
        _linalg.as_columns(_linalg.as_columns(X).with_column(2.0)).dense(),
        np.hstack([dense, np.full((N, 1), 2.0)]),
    )
    close(_linalg.as_columns(_linalg.stacked([dense, X])).dense(), np.vstack([dense, dense]))
    close(_linalg.full_gram(X, centre, d), (dense - centre).T @ ((dense - centre) * d[:, None]))
    assert _linalg.is_same(X, dense)
    assert not _linalg.is_same(X, 2.0 * dense)
    assert _linalg.is_full(_linalg.densified(X, N * P))


def test_cholesky_and_solves():
    A = np.random.default_rng(5).normal(size=(P, 30))
    K = np.asfortranarray(A @ A.T)
    L = _linalg.cholesky(K)
    close(L, np.linalg.cholesky(K))
    for shape in ((P,), (P, 1), (P, 3)):
        rhs = np.random.default_rng(6).normal(size=shape)
        for factor, rtol in ((L, 1e-9), (L.astype(np.float32, order="F"), 1e-3)):
            before, found = rhs.copy(), _linalg.factor_solve(factor, rhs)
            close(found, np.linalg.solve(K, rhs), rtol=rtol)
            assert found.shape == shape
            assert found.dtype == np.float64
            np.testing.assert_array_equal(rhs, before)
    for order in "CF":
        block = np.array(A.T, order=order)
        close(_linalg.half_solve(L, block.copy(order="K")), np.linalg.solve(L, A).T, rtol=1e-9)


def test_only_the_lower_triangle_is_read():
    A = np.random.default_rng(5).normal(size=(P, 30))
    K = np.asfortranarray(np.tril(A @ A.T) + np.triu(np.full((P, P), np.nan), 1))
    close(_linalg.cholesky(K.copy(order="F")), np.linalg.cholesky(A @ A.T))
    W = _linalg.pseudo_factor(K)
    close(W @ W.T, np.linalg.inv(A @ A.T), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_singular_matrix_has_no_factor_in_any_unit(scale):
    A = np.random.default_rng(7).normal(size=(4, 30))
    A = np.vstack([A, A[:1] * scale])
    assert _linalg.cholesky(np.asfortranarray(A @ A.T)) is None
    A[-1, 0] += 1e-3 * scale
    assert _linalg.cholesky(np.asfortranarray(A @ A.T)) is not None


def test_an_indefinite_matrix_has_no_factor():
    assert _linalg.cholesky(np.asfortranarray(np.diag([1.0, -1.0]))) is None


def test_nothing_to_factor():
    empty = np.zeros((0, 0), order="F")
    L = _linalg.cholesky(empty)
    assert L.shape == (0, 0)
    assert _linalg.factor_solve(L, np.zeros(0)).shape == (0,)
    assert _linalg.half_solve(L, np.zeros((4, 0))).shape == (4, 0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_pseudo_factor_is_a_generalised_inverse(scale):
    A = np.random.default_rng(8).normal(size=(4, 30)) * np.array([1.0, scale, 1.0, 1.0])[:, None]
    A = np.vstack([A, A[:1] + A[2:3], np.zeros((1, 30))])
    K = A @ A.T
    W = _linalg.pseudo_factor(np.asfortranarray(K))
    assert W.shape == (6, 4)
    unit = np.sqrt(np.outer(K.diagonal(), K.diagonal()))
    unit[unit == 0] = 1.0
    np.testing.assert_allclose(K @ (W @ W.T) @ K / unit, K / unit, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_root_has_no_more_columns_than_the_rank(scale):
    A = scale * np.random.default_rng(11).normal(size=(9, 4)) * [1.0, 3.0, 0.1, 1.0]
    A = np.vstack([A, A[:2], np.zeros((1, 4))])
    several = np.stack([A, np.zeros_like(A), A * [1.0, 0.0, 1.0, 0.0]])
    several = several @ several.transpose(0, 2, 1)
    roots = _linalg.low_rank_roots(several, 1e-10)
    assert roots.shape == (3, 12, 4)
    np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1), several, atol=1e-9 * scale**2)
    assert not roots[1].any()
    assert not roots[2, :, 2:].any()
    np.testing.assert_array_equal(_linalg.low_rank_roots(several[:1], 1e-10), roots[:1])
    assert _linalg.low_rank_roots(np.zeros((2, 3, 3)), 1e-10).shape == (2, 3, 0)


@pytest.mark.parametrize("nearly", [1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("seed", range(6))
def test_a_dependent_column_is_seen_in_any_order(nearly, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(200, 20))
    A[:, 0] = A[:, 1:19] @ rng.normal(size=18) + nearly * A[:, 19]
    y = rng.normal(size=200)
    wanted = np.linalg.lstsq(A, y, rcond=1e-12)[0]
    for order in (np.arange(20), np.arange(20)[::-1], rng.permutation(20)):
        K = np.asfortranarray(A[:, order].T @ A[:, order])
        found = _linalg.Factorization.of(K)
        assert not found.is_definite
        assert found.factor.shape == (20, 19)
        np.testing.assert_allclose(found.solve(A[:, order].T @ y), wanted[order], atol=1e-3)


def test_nearly_dependent_columns_are_definite():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 20))
    A[:, 0] = A[:, 1:] @ rng.normal(size=19) + 1e-4 * rng.normal(size=200)
    y = rng.normal(size=200)
    found = _linalg.Factorization.of(np.asfortranarray(A.T @ A))
    assert found.is_definite
    wanted = np.linalg.lstsq(A, y, rcond=None)[0]
    np.testing.assert_allclose(found.solve(A.T @ y), wanted, rtol=1e-5)


def test_pseudo_factor_gives_the_solution_of_minimum_norm():
    # a generalised inverse that is not the Moore-Penrose one gives other coefficients
    # the least-squares solution that scikit-learn and LAPACK choose has the smallest norm of all
    A = np.random.default_rng(9).normal(size=(3, 30))
    A = np.vstack([A, 2 * A[:1], A[1:2] + 3 * A[2:3]])
    W = _linalg.pseudo_factor(np.asfortranarray(A @ A.T))
    y = np.random.default_rng(10).normal(size=30)
    np.testing.assert_allclose(W @ (W.T @ (A @ y)), np.linalg.lstsq(A.T, y, rcond=None)[0], atol=1e-10)


def test_matrices_of_rows_in_any_shape():
    rng = np.random.default_rng(11)
    whole = rng.normal(size=(6, 3, 3))
    for matrices in (whole, whole[:, 0], whole[:, 0, 0]):
        full = _linalg.row_matrices(matrices, 3)
        for change in rng.normal(size=(6, 3)), rng.normal(size=(6, 3, 4)):
            by_hand = np.einsum("nab,nb...->na...", full, change)
            np.testing.assert_allclose(_linalg.row_times(matrices, change), by_hand, atol=1e-12)
        diagonals = _linalg.with_axes(_linalg.row_diagonals(matrices), full[:, 0])
        np.testing.assert_array_equal(np.broadcast_to(diagonals, (6, 3)), np.einsum("naa->na", full))


def test_axes_of_length_one_go_where_outputs_are():
    values, like = np.ones((6, 4)), np.ones((6, 3, 4))
    assert _linalg.with_axes(values[:, 0], like).shape == (6, 1, 1)
    assert _linalg.with_axes(values, like, last=1).shape == (6, 1, 4)
    assert _linalg.with_axes(values, values, last=1).shape == (6, 4)
    assert _linalg.with_axes(np.array(2.0), np.float64(1.0)).shape == ()


@pytest.mark.parametrize("size", [1, 30, 128, 300])
def test_a_mirrored_matrix_is_that_of_its_lower_triangle(size):
    lower = np.random.default_rng(0).normal(size=(size, size))
    expected = np.tril(lower) + np.tril(lower, -1).T
    for stored in (lower, np.asfortranarray(lower)):
        found = _linalg.mirrored(stored)
        np.testing.assert_array_equal(found, expected)
        assert found.flags.f_contiguous


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_a_product_of_mostly_zeros_is_that_of_all(share):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 60)) * (rng.random((40, 60)) < share)
    B = rng.normal(size=(60, 7))
    np.testing.assert_allclose(_linalg.thin_product(A, B), A @ B, atol=1e-13)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, sp.csc_matrix])
def test_rows_in_coordinates_of_their_span(store):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 30)) * (rng.random((7, 30)) < 0.5)
    span = _linalg.row_span(store(X))
    own, coef = rng.normal(size=(7, 3, 2)), rng.normal(size=(30, 3))
    whole = np.einsum("ij,jab->iab", X, span.coefficients(own))
    np.testing.assert_allclose(np.einsum("ij,jab->iab", span.X, own), whole, atol=1e-9)
    np.testing.assert_allclose(span.X @ span.coordinates(coef), X @ coef, atol=1e-9)
    np.testing.assert_allclose(span.coordinates(span.coefficients(own)), own, atol=1e-9)


def test_rows_that_depend_on_one_another_have_a_span():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 20))
    X[3], X[4] = X[0], 0.0
    for store in (np.asarray, sp.csr_array):
        span = _linalg.row_span(store(X))
        coef = rng.normal(size=(20, 2))
        np.testing.assert_allclose(span.X @ span.coordinates(coef), X @ coef, atol=1e-5)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("value", [1.0, 7.3, 2.0**0.5])
def test_constants_of_many_rows_do_not_vary(value, store):
    """Rounding in a mean grows with the rows."""
    n = 20_000
    X = np.full((n, 3), value)
    X[:, 2] *= 1.0 + 1e-9 * np.random.default_rng(0).normal(size=n)
    norms = _linalg.column_norms(store(X), np.full(n, 0.2496), centred=True)
    np.testing.assert_array_equal(norms[:2], 0.0)
    assert norms[2] == pytest.approx(1e-9 * value * np.sqrt(0.2496 * n), rel=0.02)

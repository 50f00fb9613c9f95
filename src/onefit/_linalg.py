"""Every product with X.  Dense, sparse, or known only through its Gram matrix: decided here and nowhere else.

Rows are visited in blocks of dense, centred columns, so no centred copy of X is ever made and a sparse
X is never densified as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg import blas, lapack
from threadpoolctl import ThreadpoolController

from onefit._typing import Array, Design, Index, Mask, Sparse

LARGE = 1e8  # multiplications from which on several threads pay
BLOCK_SIZE = 2**20  # numbers in a block of rows: 8 MiB


@dataclass(frozen=True)
class RowGram:
    """A design known only through G = X Xᵀ (n, n): a kernel model.

    Its coefficients are the dual ones, a (n,), with η = G a and ‖β‖² = aᵀ G a.
    """

    gram: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and (dual) columns: (n, n)."""
        return self.gram.shape[0], self.gram.shape[0]


def is_sparse(X: Design) -> TypeGuard[Sparse]:
    """Whether X is a SciPy sparse matrix or array."""
    return sp.issparse(X)


def one_thread_if_small(X: Design) -> AbstractContextManager[Any]:
    """Context in which BLAS keeps to one thread where waking a second one costs more than it saves."""
    n, p = X.shape
    if float(n) * p * min(n, p) > LARGE:
        return nullcontext()
    return _blas().limit(limits=1)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def product(A: Array, B: Array) -> Array:
    """A @ B for a dense matrix A, without copies for contiguous arrays.

    NumPy and SciPy each bring a BLAS with threads of its own, which wait for work by spinning: used in
    turns, they take the cores from one another.  So everything large goes through SciPy's.
    """
    if A.size == 0 or B.size == 0:
        return A @ B
    a, trans_a = _fortran(A)
    if B.ndim == 1:
        return blas.dgemv(1.0, a, B, trans=trans_a)
    b, trans_b = _fortran(B)
    return blas.dgemm(1.0, a, b, trans_a=trans_a, trans_b=trans_b)


def _fortran(A: Array) -> tuple[Array, int]:
    """A or its transpose, whichever is in Fortran order, and whether it is the transpose."""
    return (A.T, 1) if A.flags.c_contiguous else (A, 0)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix (lower triangle read)."""
    if A.shape[0] == 0:
        return np.empty(0), np.empty((0, 0))
    return scipy.linalg.eigh(A, lower=True, driver="evd", check_finite=False)


def times(X: Design, coef: Array) -> Array:
    """X @ coef: (n,), (n, c) or (n, c, r)."""
    if coef.ndim == 3:
        return times(X, coef.reshape(len(coef), -1)).reshape(-1, *coef.shape[1:])
    if isinstance(X, RowGram):
        return product(X.gram, coef)
    return np.asarray(X @ coef) if is_sparse(X) else product(X, coef)


def transposed_times(X: Design, rows: Array) -> Array:
    """Xᵀ @ rows: (p,), (p, c) or (p, c, r); in the dual coordinates of a RowGram it is ``rows`` itself."""
    if isinstance(X, RowGram):
        return rows
    if rows.ndim == 3:
        return transposed_times(X, rows.reshape(len(rows), -1)).reshape(-1, *rows.shape[1:])
    return np.asarray(X.T @ rows) if is_sparse(X) else product(X.T, rows)


def pairing(X: Design, gradient: Array, coef: Array) -> float:
    """Inner product of a gradient and a direction: aᵀ b, or aᵀ G b in the dual coordinates of a RowGram."""
    return float(np.sum(gradient * (product(X.gram, coef) if isinstance(X, RowGram) else coef)))


def column_means(X: Design, weights: Array) -> Array:
    """Weighted mean of each column: (p,).  Weights may be of either sign but not sum to zero."""
    return transposed_times(X, weights) / weights.sum()


def column_norms(X: Design, weights: Array, *, centred: bool) -> Array:
    """√(Σ_i w_i (x_ij − x̄_j)²) of each column, or without the mean: (p,)."""
    means = column_means(X, weights) if centred else None
    if is_sparse(X):
        squares = X.copy()
        squares.data = squares.data**2
        second = transposed_times(squares, weights)
        if means is not None:
            second = second - weights.sum() * means**2
        return np.sqrt(np.maximum(second, 0.0))
    total = np.zeros(X.shape[1])
    for rows, block in centred_blocks(X, means):
        total += np.einsum("i,ij,ij->j", weights[rows], block, block)
    return np.sqrt(total)


def weighted_cross(X: Design, columns: Index, support: Mask, d: Array) -> tuple[Array, Array]:
    """X_Lᵀ diag(d) X_S and X_Lᵀ d, for some columns L and a support S."""
    left = X[:, columns]
    if is_sparse(X):
        right = sp.diags_array(d) @ X[:, np.flatnonzero(support)]
        return np.asarray((left.T @ right).toarray()), np.asarray(left.T @ d)
    return product((left * d[:, None]).T, X[:, support]), left.T @ d


def centred_blocks(X: Design, means: Array | None) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, dense block of X[rows] − means), each in the memory order of X; None centres nothing."""
    n, k = X.shape
    size = max(64, BLOCK_SIZE // max(k, 1))
    source = X.tocsr() if is_sparse(X) else X
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        block = source[rows].toarray() if is_sparse(X) else source[rows].copy(order="K")
        if means is not None:
            block -= means
        yield rows, block


def active_columns(X: Design, support: Index | None) -> Design:
    """X[:, support], or X itself for all columns; a dense copy keeps the memory order of X."""
    if support is None:
        return X
    if is_sparse(X):
        return X[:, support]
    tall = X.strides[0] < X.strides[1]
    return np.take(X.T, support, axis=0).T if tall else np.take(X, support, axis=1)


def by_column(X: Any) -> Design:
    """X in float64, stored so that single columns are had without looking for them; not copied if it is."""
    if is_sparse(X):
        return sp.csc_array(X, dtype=np.float64)
    dense = np.asarray(X, dtype=np.float64)
    return dense if dense.flags.c_contiguous else np.asfortranarray(dense)


def row_matrices(values: Array, c: int) -> Array:
    """One matrix a row, (n, c, c): diagonal where the outputs do not depend on each other."""
    if values.size == len(values) * c * c:
        return values.reshape(-1, c, c)
    return np.broadcast_to(values.reshape(len(values), -1), (len(values), c))[:, :, None] * np.eye(c)


def n_stored(X: Design) -> int:
    """Numbers that one product with X takes."""
    return int(X.nnz) if is_sparse(X) else int(np.prod(X.shape))


def is_same(one: Design, other: Design) -> bool:
    """Whether two designs have the same entries."""
    if one is other:
        return True
    if isinstance(one, RowGram) and isinstance(other, RowGram):
        return bool(np.array_equal(one.gram, other.gram))
    if isinstance(one, RowGram) or isinstance(other, RowGram) or one.shape != other.shape:
        return False
    if is_sparse(one) or is_sparse(other):
        return bool((one != other).nnz == 0)
    return bool(np.shares_memory(one, other) or np.array_equal(one, other))


def project(X: Design, basis: Any) -> Array:
    """X B for the columns of a basis, dense: (n, k)."""
    if is_sparse(X):
        along = X @ basis
        return np.asarray(along.toarray() if sp.issparse(along) else along)
    return np.asarray(X @ basis) if sp.issparse(basis) else product(X, basis)


def some_rows(X: Design, rows: Index) -> Design:
    """X[rows]; of a kernel model the Gram matrix of these rows."""
    if isinstance(X, RowGram):
        return RowGram(X.gram[np.ix_(rows, rows)])
    return X.tocsr()[rows] if is_sparse(X) else X[rows]


def columns_as_rows(X: Design, which: Index) -> Array:
    """Some columns of X, dense, one a row: (len(which), n)."""
    return X.T[which].toarray() if is_sparse(X) else X.T[which]


def rows_as_columns(X: Design, which: Index | slice = slice(None)) -> Array:
    """Some rows of X, dense, one a column: (p, r); unit vectors in the dual coordinates of a RowGram."""
    if isinstance(X, RowGram):
        return np.eye(X.shape[0])[:, which]
    return np.asarray((X.tocsr()[which].toarray() if is_sparse(X) else X[which]).T)


def own_products(X: Design, rows: Index, coef: Array) -> Array:
    """x_iᵀ β⁽ⁱ⁾ for some rows i, each with coefficients of its own, (r, p): (r,)."""
    if is_sparse(X):
        return np.asarray(X.tocsr()[rows].multiply(coef).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X[rows], coef)


def centring_error(X: Design) -> float:
    """Rounding in the centred sum of squares of a column, relative to n times its squared mean.

    Dense columns are centred before they are squared, sparse ones after.
    """
    return 1e-13 if is_sparse(X) else 1e-28


def weighted_gram(X: Design, means: Array | None, d: Array) -> Array:
    """(X − 1 meansᵀ)ᵀ diag(d) (X − 1 meansᵀ): (k, k), lower triangle valid, Fortran order.

    ``means`` must be the d-weighted ones (or None), so that a sparse X needs no centred product.
    """
    if is_sparse(X):
        gram = np.asarray((X.T @ sp.diags_array(d) @ X).toarray(), order="F")
        if means is not None:
            gram -= d.sum() * np.outer(means, means)
        return gram
    k = X.shape[1]
    gram = np.zeros((k, k), order="F")
    if k == 0:
        return gram
    root = np.sqrt(d) if d.min() >= 0 else None
    unit = root is not None and bool(np.all(d == 1.0))
    for rows, block in centred_blocks(X, means):
        if root is None:  # a loss that is not convex in eta: the observed curvature may be negative
            gram += product(block.T, block * d[rows, None])
            continue
        if not unit:
            block *= root[rows, None]
        tall = block.flags.f_contiguous
        gram = blas.dsyrk(
            1.0, block if tall else block.T, beta=1.0, c=gram, trans=tall, lower=1, overwrite_c=1
        )
    return gram


def row_gram(X: Design, column_weights: Array) -> Array:
    """X diag(column_weights) Xᵀ: (n, n), full."""
    if isinstance(X, RowGram):
        return X.gram * column_weights[0]
    if is_sparse(X):
        return np.asarray((X @ sp.diags_array(column_weights) @ X.T).toarray())
    scaled = X * np.sqrt(column_weights)
    return product(scaled, scaled.T)


def cross_gram(new: Design, X: Design, column_weights: Array) -> Array:
    """X̃ diag(column_weights) Xᵀ: (m, n); for a RowGram X, ``new`` is X̃ Xᵀ itself, or a RowGram too."""
    if isinstance(X, RowGram):
        return (new.gram if isinstance(new, RowGram) else np.asarray(new)) * column_weights[0]
    scaled = X @ sp.diags_array(column_weights) if is_sparse(X) else X * column_weights
    if is_sparse(new) and is_sparse(X):
        return np.asarray((new @ scaled.T).toarray())
    return times(new, np.asarray(scaled.T.toarray() if is_sparse(X) else scaled.T))


def centred_gram(G: Array, share: Array) -> Array:
    """(I − 1 shareᵀ) G (I − share 1ᵀ): the Gram matrix of rows less their mean with weights ``share``."""
    along = G @ share
    return G - along - along[:, None] + share @ along


def cholesky(K: Array) -> Array | None:
    """Lower Cholesky factor of a symmetric matrix (lower triangle read), or None if it has none.

    A factor whose smallest squared pivot is below rounding, relative to the diagonal it came from,
    counts as none: what is read from it would be noise.
    """
    if K.shape[0] == 0:
        return K
    diagonal = K.diagonal().copy()
    factor, failed = lapack.dpotrf(K, lower=1, clean=1)
    if failed != 0 or not np.all(factor.diagonal() ** 2 > 1e-13 * diagonal):
        return None
    return factor


def factor_solve(L: Array, rhs: Array) -> Array:
    """(L Lᵀ)⁻¹ rhs."""
    if L.shape[0] == 0:
        return rhs.copy()
    return np.asarray(lapack.dpotrs(L, rhs, lower=1)[0]).reshape(rhs.shape)


def half_solve(L: Array, block: Array) -> Array:
    """Block @ L⁻ᵀ for a block of rows (r, k), in the block's memory order; the block is overwritten."""
    if block.size == 0:
        return block
    if block.flags.c_contiguous:
        return blas.dtrsm(1.0, L, block.T, side=0, lower=1, overwrite_b=1).T
    return blas.dtrsm(1.0, L, block, side=1, lower=1, trans_a=1, overwrite_b=1)


def row_quadratic_forms(X: Design, means: Array | None, L: Array) -> Array:
    """z_iᵀ (L Lᵀ)⁻¹ z_i for the centred rows z_i = X[i] − means: (n,)."""
    forms = np.empty(X.shape[0])
    for rows, block in centred_blocks(X, means):
        half = half_solve(L, block)
        forms[rows] = np.einsum("ij,ij->i", half, half)
    return forms


def pseudo_factor(K: Array, rtol: float = 1e-11) -> Array:
    """W (k, r) with W Wᵀ = K⁺, for a positive semi-definite K (lower triangle read).

    The rank is judged after scaling K to a unit diagonal, so that units of measurement do not matter:
    K = B diag(λ) Bᵀ with B = S V; with B = Q R, K⁺ = Q (R diag(λ) Rᵀ)⁻¹ Qᵀ.
    """
    full = np.tril(K) + np.tril(K, -1).T
    root = np.sqrt(np.maximum(full.diagonal(), 0.0))
    inverse_scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, vectors = eigh(full * np.outer(inverse_scale, inverse_scale))
    keep = values > rtol * max(float(values.max(initial=0.0)), 1e-300)
    Q, R = np.linalg.qr(root[:, None] * vectors[:, keep])
    return Q @ np.linalg.inv(R).T / np.sqrt(values[keep])


def wide_pseudo_factor(X: Design, means: Array | None, d: Array, rtol: float = 1e-11) -> Array:
    """W (k, r) with W Wᵀ = (Zᵀ diag(d) Z)⁺ for the centred rows Z, from their n × n Gram matrix."""
    root = np.sqrt(np.maximum(d, 0.0))[:, None]
    Z = np.vstack([block for _, block in centred_blocks(X, means)]) * root
    values, vectors = eigh(product(Z, Z.T))
    keep = values > rtol * max(float(values.max(initial=0.0)), 1e-300)
    return product(Z.T, vectors[:, keep] / values[keep])

"""Products and spectra of dense matrices, all through one BLAS."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import blas
from threadpoolctl import ThreadpoolController

from onefit._typing import Array

TILE = 128  # rows and columns of a square that fits a fast cache
LARGE = 1e8  # multiplications from which on several threads pay


def one_thread_if_small(X: Any) -> AbstractContextManager[Any]:
    """Context in which BLAS keeps to one thread where waking a second one costs more than it saves."""
    n, p = X.shape
    if float(n) * p * min(n, p) > LARGE:
        return nullcontext()
    return one_thread()


def one_thread() -> AbstractContextManager[Any]:
    """Context in which BLAS keeps to one thread: many small products wait for a second one."""
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
    single = A.dtype == B.dtype == np.float32
    a, trans_a = _fortran(A)
    if B.ndim == 1:
        return (blas.sgemv if single else blas.dgemv)(1.0, a, B, trans=trans_a)
    b, trans_b = _fortran(B)
    return (blas.sgemm if single else blas.dgemm)(1.0, a, b, trans_a=trans_a, trans_b=trans_b)


def few_times(B: Array, A: Array) -> Array:
    """Aᵀ @ B in single precision, for few columns in C order: turned, in half the time of ``product``."""
    a, trans_a = _fortran(A)
    return blas.sgemm(1.0, B.T, a, trans_b=trans_a).T


def _fortran(A: Array) -> tuple[Array, int]:
    """A or its transpose, whichever is in Fortran order, and whether it is the transpose."""
    return (A.T, 1) if A.flags.c_contiguous else (A, 0)


def add_gram(gram: Array, block: Array) -> Array:
    """Add blockᵀ block to a matrix in Fortran order, in its lower triangle."""
    tall = block.flags.f_contiguous
    syrk = blas.ssyrk if block.dtype == np.float32 else blas.dsyrk
    return syrk(1.0, block if tall else block.T, beta=1.0, c=gram, trans=tall, lower=1, overwrite_c=1)


def times_upper(block: Array, R: Array) -> Array:
    """Block @ R for a block of rows, which is overwritten, and R upper triangular in C order."""
    trmm = blas.strmm if block.dtype == np.float32 else blas.dtrmm
    if block.flags.c_contiguous:
        return trmm(1.0, R.T, block.T, lower=1, overwrite_b=1).T
    return trmm(1.0, R.T, block, side=1, lower=1, trans_a=1, overwrite_b=1)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix (lower triangle read)."""
    if A.shape[0] == 0:
        return np.empty(0), np.empty((0, 0))
    return scipy.linalg.eigh(A, lower=True, driver="evd", check_finite=False)


def mirrored(lower: Array) -> Array:
    """A symmetric matrix, full, of which the lower triangle is read, in Fortran order."""
    full = np.array(lower, order="F")
    for start in range(0, len(full), TILE):
        own, below = slice(start, start + TILE), slice(start + TILE, None)
        corner = np.tril(full[own, own])
        full[own, own] = corner + np.tril(corner, -1).T
        full[own, below] = full[below, own].T
    return full


def bordered(A: Array, side: Array, corner: Array) -> Array:
    """A symmetric matrix (k, k) with more rows and columns, (k, e) and (e, e), in Fortran order."""
    k, size = len(A), len(A) + len(corner)
    larger = np.empty((size, size), order="F")
    larger[:k, :k], larger[k:, k:] = A, corner
    larger[:k, k:], larger[k:, :k] = side, side.T
    return larger


def scaled_gram(G: Array, root: Array) -> Array:
    """diag(root) G diag(root), a new matrix."""
    scaled = G * root
    scaled *= root[:, None]
    return scaled


def less_outer_products(G: Array, one: Array, other: Array) -> Array:
    """G − one otherᵀ − other oneᵀ in the lower triangle of a matrix in Fortran order: overwritten."""
    syr2 = blas.ssyr2 if G.dtype == np.float32 else blas.dsyr2
    return np.asarray(syr2(-1.0, one, other, lower=1, a=G, overwrite_a=1))


def centred_gram(G: Array, share: Array) -> Array:
    """(I − 1 shareᵀ) G (I − share 1ᵀ): the Gram matrix of rows less their mean with weights ``share``."""
    along = G @ share
    centred = G - along
    centred -= (along - share @ along)[:, None]
    return centred


def centred_kernel(kernel: Array, gram: Array, share: Array) -> Array:
    """A kernel of new rows with those of G, and all of them less the mean of the latter: (m, n)."""
    centre = gram @ share
    return kernel + (share @ centre - centre) - (kernel @ share)[:, None]

"""Gram matrices of scikit-learn's kernels, and their derivatives in one length scale a feature."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, Exponentiation, Matern, Product, Sum

from onefit import _linalg
from onefit._linalg import RowGram
from onefit._typing import Array, Design
from onefit.exceptions import UnsupportedModelError

SEMIDEFINITE = frozenset({"linear", "rbf", "laplacian", "cosine"})  # whatever their parameters
INDEFINITE = 1e-9  # smallest eigenvalue, relative to the trace, that is no rounding


class KernelGram(RowGram):
    """The Gram matrix of a kernel, evaluated when it is first asked for.

    A search asks for many problems of which it needs the penalty alone.

    Parameters
    ----------
    function : callable
        The kernel of two sets of rows: (m, n).
    rows : (n, p) array or sparse matrix
    kernel : object
        What the estimator was given as its kernel: a name, or a function.
    checked : bool, default False
        Whether to refuse a Gram matrix that is indefinite: there is no minimum then, only stationary points.
    """

    function: Callable[[Design, Design], Array]
    rows: Design
    kernel: Any
    checked: bool

    def __init__(
        self, function: Callable[[Design, Design], Array], rows: Design, kernel: Any, *, checked: bool = False
    ) -> None:
        self.__dict__.update(function=function, rows=rows, kernel=kernel, checked=checked)

    @cached_property
    def gram(self) -> Array:
        gram = np.asarray(self.function(self.rows, self.rows), dtype=np.float64)
        if self.checked:
            check_semidefinite(gram, self.kernel)
        return gram

    @property
    def shape(self) -> tuple[int, int]:
        n = int(self.rows.shape[0])
        return n, n

    def __reduce__(self) -> tuple[type[RowGram], tuple[Array]]:
        return RowGram, (self.gram,)


def check_semidefinite(gram: Array, kernel: Any) -> None:
    """Refuse a kernel that is indefinite on these rows.

    Raises
    ------
    UnsupportedModelError
    """
    if type(kernel) in (RBF, Matern) or (isinstance(kernel, str) and kernel in SEMIDEFINITE):
        return
    raised = np.array(gram, order="F")
    raised[np.diag_indices_from(raised)] += INDEFINITE * max(float(np.trace(gram)), np.finfo(float).tiny)
    if _linalg.cholesky(raised) is None:
        raise UnsupportedModelError(
            f"the kernel {kernel!r} is indefinite on these rows: what is minimised has no minimum then, and "
            "refits differ from one solver to the next. Take a positive definite kernel, such as 'rbf'"
        )


def in_length_scales(X: Design, name: str, owed: Array) -> Array | None:
    """Pull a derivative in the Gram matrix back to the length scales of scikit-learn's RBF or Matérn kernel.

    Of k(x, x′) = κ(r), r² = Σ_j (x_j − x′_j)²/ℓ_j², with W ∘ (−κ′(r)/r) = M,

        Σ_ik W_ik ∂G_ik/∂ℓ_j = ℓ_j⁻³ Σ_ik M_ik (x_ij − x_kj)²

    costs one product M X for all features.  Sums, products and powers of kernels hand W on by the chain rule.

    Parameters
    ----------
    X : design
    name : str
        Of the hyperparameter, as ``kernel__length_scale`` or ``kernel__k1__length_scale``.
    owed : (n, n) array
        W.

    Returns
    -------
    (p,) array or None
        None where the kernel, or the hyperparameter, is another one.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> rows, kernel = np.array([[0.0, 0.0], [1.0, 0.0]]), RBF([1.0, 2.0])
    >>> in_length_scales(KernelGram(kernel, rows, kernel), "kernel__length_scale", np.ones((2, 2))).round(3)
    array([1.213, 0.   ])
    """
    head, _, path = name.partition("__")
    if not isinstance(X, KernelGram) or head != "kernel" or not _linalg.is_full(X.rows):
        return None
    return _through(X.kernel, path, X.rows, owed)


def _through(kernel: Any, path: str, rows: Array, owed: Array) -> Array | None:
    head, _, rest = path.partition("__")
    if isinstance(kernel, Sum | Product) and head in ("k1", "k2"):
        own, other = (kernel.k1, kernel.k2) if head == "k1" else (kernel.k2, kernel.k1)
        return _through(own, rest, rows, owed * other(rows, rows) if isinstance(kernel, Product) else owed)
    if isinstance(kernel, Exponentiation) and head == "kernel":
        slope = kernel.exponent * kernel.kernel(rows, rows) ** (kernel.exponent - 1)
        return _through(kernel.kernel, rest, rows, owed * slope)
    bend = _relative_slope(kernel, rows) if path == "length_scale" else None
    if bend is None:
        return None
    M, centred = owed * bend, rows - rows.mean(axis=0)
    ends = M.sum(axis=0) + M.sum(axis=1)
    squares = ends @ centred**2 - 2.0 * np.einsum("ij,ij->j", centred, _linalg.product(M, centred))
    return squares / np.broadcast_to(kernel.length_scale, rows.shape[1:]) ** 3


def _relative_slope(kernel: Any, rows: Array) -> Array | None:
    """−κ′(r)/r of a stationary kernel: (n, n)."""
    if type(kernel) is RBF or (type(kernel) is Matern and kernel.nu == np.inf):
        return np.asarray(kernel(rows, rows))
    if type(kernel) is not Matern or kernel.nu not in (1.5, 2.5):
        return None
    scaled = rows / kernel.length_scale
    r = np.sqrt(2.0 * kernel.nu) * cdist(scaled, scaled)
    return 3.0 * np.exp(-r) if kernel.nu == 1.5 else 5.0 / 3.0 * (1.0 + r) * np.exp(-r)

"""Gram matrices of kernels: evaluated late, and their derivatives in length scales."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.svm import SVC

import onefit
from onefit._linalg import RowGram
from onefit.readers.kernels import KernelGram, in_length_scales

N, P = 25, 4
RNG = np.random.default_rng(0)
ROWS, OWED = RNG.normal(size=(N, P)) + 3.0, RNG.normal(size=(N, N))
SCALES = np.array([0.7, 1.5, 3.0, 20.0])
SCALED = {
    "kernel__length_scale": [
        RBF(SCALES),
        Matern(SCALES, nu=1.5),
        Matern(SCALES, nu=2.5),
        Matern(SCALES, nu=np.inf),
    ],
    "kernel__k1__length_scale": [RBF(SCALES) + WhiteKernel(), Matern(SCALES) * DotProduct()],
    "kernel__k1__k2__length_scale": [ConstantKernel(3.0) * RBF(SCALES) + RationalQuadratic()],
    "kernel__kernel__length_scale": [RBF(SCALES) ** 3, (2.0 + RBF(1.0)) ** 2],
}
CASES = [
    (name, kernel)
    for name, kernels in SCALED.items()
    for kernel in kernels
    if name in {f"kernel__{own}" for own in kernel.get_params()}
]


def _value(kernel, name, scales):
    changed = kernel.__class__(**kernel.get_params(deep=False)).set_params(
        **{name.removeprefix("kernel__"): scales}
    )
    return np.sum(OWED * changed(ROWS, ROWS))


@pytest.mark.parametrize(("name", "kernel"), CASES, ids=str)
def test_derivatives_in_length_scales(name, kernel):
    ours = in_length_scales(KernelGram(kernel, ROWS, kernel), name, OWED)
    for j, step in enumerate(np.eye(P) * 1e-3 * SCALES):
        near, far = (
            _value(kernel, name, SCALES + k * step) - _value(kernel, name, SCALES - k * step) for k in (1, 2)
        )
        expected = (8 * near - far) / (12 * step[j])
        assert ours[j] == pytest.approx(expected, rel=1e-7, abs=1e-9)
    kernel.set_params(**{name.removeprefix("kernel__"): SCALES})


@pytest.mark.parametrize("nu", [1.5, 2.5, np.inf])
def test_derivatives_are_those_of_scikit_learn(nu):
    """Theirs, in the logarithm, take an array of n × n × p."""
    kernel = Matern(SCALES, nu=nu)
    _, gradient = kernel(ROWS, eval_gradient=True)
    expected = np.einsum("ik,ikj->j", OWED, gradient) / SCALES
    ours = in_length_scales(KernelGram(kernel, ROWS, kernel), "kernel__length_scale", OWED)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("X", "name"),
    [
        (KernelGram(RBF(), ROWS, RBF()), "gamma"),
        (KernelGram(RBF(), ROWS, RBF()), "kernel__alpha"),
        (KernelGram(RBF(), ROWS, RBF()), "kernel__k1__length_scale"),
        (KernelGram(Matern(nu=0.5), ROWS, Matern(nu=0.5)), "kernel__length_scale"),
        (KernelGram(ExpSineSquared(), ROWS, ExpSineSquared()), "kernel__length_scale"),
        (KernelGram(lambda a, b: (a @ b.T).toarray(), sp.csr_array(ROWS), "linear"), "kernel__length_scale"),
        (RowGram(np.eye(N)), "kernel__length_scale"),
        (ROWS, "kernel__length_scale"),
    ],
)
def test_other_kernels_and_parameters_have_no_formula(X, name):
    assert in_length_scales(X, name, OWED) is None


def test_gram_matrices_are_evaluated_when_they_are_needed():
    calls = []

    def kernel(left, right):
        calls.append(1)
        return left @ right.T

    gram = KernelGram(kernel, ROWS, kernel)
    assert gram.shape == (N, N)
    assert not calls
    np.testing.assert_array_equal(gram.gram, ROWS @ ROWS.T)
    assert gram.gram is gram.gram
    assert len(calls) == 1


def test_pickles_keep_the_values_alone():
    gram = KernelGram(lambda left, right: left @ right.T, ROWS, None)
    copied = pickle.loads(pickle.dumps(gram))
    assert type(copied) is RowGram
    np.testing.assert_array_equal(copied.gram, ROWS @ ROWS.T)


def test_leave_one_out_of_a_kernel_object_is_that_of_its_name():
    y = (ROWS[:, 0] + RNG.normal(size=N) > 3.0).astype(int)
    named = onefit.loo(SVC(gamma=0.5 / 4.0).fit(ROWS, y), ROWS, y)
    kernel = onefit.loo(SVC(kernel=RBF(2.0)).fit(ROWS, y), ROWS, y)
    np.testing.assert_allclose(kernel.decision, named.decision, atol=1e-7)


@pytest.mark.filterwarnings("ignore:Singular matrix")  # the only sign that scikit-learn gives
def test_a_kernel_in_single_precision_beside_a_weak_penalty_is_not_called_other_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)).astype(np.float32)
    y = rng.normal(size=50)
    model = KernelRidge(alpha=1e-6, kernel="linear").fit(X, y)
    with pytest.warns(onefit.NotOptimalWarning):
        polished = onefit.loo(model, X, y)
    in_double = onefit.loo(model.fit(X.astype(float), y), X.astype(float), y)
    np.testing.assert_allclose(polished.value, in_double.value, rtol=1e-2)
    strong = KernelRidge(alpha=1.0, kernel="linear").fit(X, y)
    with pytest.raises(onefit.NotFittedToDataError, match="far from optimal"):
        onefit.loo(strong, X, y[::-1])


@pytest.mark.filterwarnings("ignore::onefit.NotOptimalWarning")
@pytest.mark.parametrize("alpha", [1e-4, 1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("seed", [0, 2])
def test_bounds_of_a_linear_kernel_hold_beside_the_same_ridge(alpha, seed):
    """Whose few columns know nothing of the rounding that a kernel divides by its penalty."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 6)) * np.array([1.0, 1.0, 1.0, 10.0, 0.1, 1.0])
    y = X[:, 0] + rng.normal(size=50)
    own = onefit.loo(KernelRidge(alpha=alpha).fit(X, y), X, y)
    ridge = onefit.loo(Ridge(alpha, fit_intercept=False, solver="svd").fit(X, y), X, y)
    assert own.guarantee in ("exact", "bounded")
    assert np.all(np.abs(own.predictions - ridge.predictions) <= own.bounds)


def test_rows_without_weight_are_told_up_to_the_rounding_of_the_kernel():
    """Of rank 3 and all but unpenalised: sums of terms of 1e13 leave nothing of a predictor's digits."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(40, 2)), np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    y = 1e3 * rng.normal(size=40)
    model = KernelRidge(alpha=1e-10, kernel="poly", degree=1, gamma=1.0).fit(X, y, weights)
    est = onefit.loo(model, X, y, sample_weight=weights)
    for row in np.flatnonzero(weights == 0):
        kept = np.arange(40) != row
        refit = KernelRidge(alpha=1e-10, kernel="poly", degree=1, gamma=1.0)
        refit.fit(X[kept], y[kept], weights[kept])
        assert abs(refit.predict(X[[row]])[0] - est.decision[row]) <= est.bounds[row]

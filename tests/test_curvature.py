"""K against an explicit inverse: every side, every loss, with and without an intercept."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag, null_space

from onefit import _linalg
from onefit._linalg import RowGram
from onefit.curvature import (
    Along,
    CoupledBlock,
    Direction,
    Dual,
    Independent,
    Pinned,
    Primal,
    factor,
    factor_scalar,
    in_single,
)
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.losses import ConcomitantHuber, Huber, Logistic, Multinomial, Poisson, Squared
from onefit.numerics import rounding_of_slack
from onefit.penalties import (
    L1,
    L2,
    ElasticNet,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    LInfinity,
    NuclearNorm,
    Slope,
    TrendFilter,
)
from onefit.problem import Problem
from onefit.solvers.path import ActiveSetCurvature, least_squares_path

N = 90
einsum = partial(np.einsum, optimize=True)
rows_of_weight_zero = slice(0, 90, 11)


def _weights(weighted):
    weights = np.random.default_rng(1).uniform(0.2, 2.0, N) if weighted else np.ones(N)
    if weighted:
        weights[rows_of_weight_zero] = 0.0
    return weights


def _fit(loss, penalty, p, outputs=(), fit_intercept=True, weighted=True, store=np.asarray, seed=0):
    """A point, not a solution: the curvature is defined at any."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p)) + 1.0
    coef = 0.3 * rng.normal(size=(p, *outputs))
    coef[1::3] = 0.0
    level = np.where(np.full(outputs, fit_intercept), 0.5, 0.0)
    y = rng.normal(size=(N, *outputs))
    if isinstance(loss, Multinomial):
        y = rng.integers(0, loss.n_classes, N).astype(float)
    elif isinstance(loss, ConcomitantHuber):
        coef[:, 1], level, y = 0.0, np.array([level[0], 1.3]), rng.normal(size=N) * 2
    elif isinstance(loss, Logistic | Poisson):
        y = rng.integers(0, 2, N).astype(float)
    intercept = np.full(outputs, fit_intercept)
    if isinstance(loss, ConcomitantHuber):
        intercept[1] = True
    problem = Problem(loss, penalty, store(X), y, _weights(weighted), intercept)
    return Fit(problem, coef, level), X


def _explicit(fit, X, shrink=1.0):
    """Z (n, c, k), D (n, c, c), K (k, k) and the places of the free coordinates, outputs kept apart."""
    outputs = fit.coef.shape[1:]
    c = int(np.prod(outputs, dtype=int))
    support = fit.tangent.support.reshape(-1, c)
    hessian = fit.tangent.hessian.reshape(-1, c) * shrink
    intercept = fit.problem.intercept.reshape(c)
    places = [
        (j, a) for a in range(c) for j in [*np.flatnonzero(support[:, a]), *([-1] if intercept[a] else [])]
    ]
    Z = np.zeros((N, c, len(places)))
    for k, (j, a) in enumerate(places):
        Z[:, a, k] = 1.0 if j < 0 else X[:, j]
    bend = fit.hessian
    D = bend if bend.ndim == 3 else einsum("na,ab->nab", bend.reshape(N, c), np.eye(c))
    C = np.diag([0.0 if j < 0 else hessian[j, a] for j, a in places])
    return Z, D, einsum("nak,nab,nbl->kl", Z, D, Z) + C, places


def _check(fit, X, curvature, shrink=1.0, tol=1e-8):
    """Compare all four products; predictions are compared where K has a free direction."""
    Z, D, K, places = _explicit(fit, X, shrink)
    inverse = np.linalg.pinv(K, rcond=1e-11, hermitian=True)
    H = einsum("nak,kl,nbl->nab", Z, inverse, Z)
    forms = curvature.quadratic_forms()
    c = Z.shape[1]
    if forms.ndim == 3:  # up to what the outputs share, which no derivative of the loss sees
        np.testing.assert_allclose(D @ forms @ D, D @ H @ D, atol=tol * np.abs(D @ H @ D).max())
    else:
        expected = np.diagonal(H, axis1=1, axis2=2)
        forms = np.broadcast_to(forms.reshape(N, -1), (N, c))
        np.testing.assert_allclose(forms, expected, rtol=tol, atol=tol * np.abs(expected).max())
    # degrees of freedom: Σ tr(D_i H_i) = tr(K⁻¹ ZᵀDZ)
    total = np.trace(inverse @ einsum("nak,nab,nbl->kl", Z, D, Z))
    ours = einsum("nab,nba->", D, forms) if forms.ndim == 3 else np.sum(fit.hessian.reshape(N, c) * forms)
    np.testing.assert_allclose(ours, total, rtol=tol)
    _check_solve(fit, Z, D, K, places, curvature, tol)
    _check_hat(fit, Z, D, inverse, curvature, tol)
    _check_carry(fit, X, Z, D, inverse, places, curvature, tol)
    _check_sandwich(fit, Z, D, inverse, places, curvature, tol)


def _check_sandwich(fit, Z, D, inverse, places, curvature, tol):
    """Q = K⁻¹ Zᵀ E Z K⁻¹ on the rows and on the free coordinates, for weights E of either sign."""
    c = Z.shape[1]
    E = np.random.default_rng(7).normal(size=(N, c, c))
    E = D @ (E + E.transpose(0, 2, 1)) @ D if fit.hessian.ndim == 3 else E * np.eye(c)
    Q = inverse @ einsum("nak,nab,nbl->kl", Z, E, Z) @ inverse
    rows, free = einsum("nak,kl,nbl->nab", Z, Q, Z), np.zeros((fit.coef.shape[0], c))
    for value, (j, a) in zip(Q.diagonal(), places, strict=True):
        if j >= 0:
            free[j, a] = value
    given = E if fit.hessian.ndim == 3 else np.einsum("naa->na", E).reshape(fit.eta.shape)
    ours = curvature.sandwich(given)
    assert ours.rows.shape == given.shape
    assert ours.free.shape == fit.coef.shape
    if fit.hessian.ndim == 3:  # up to what the outputs share
        np.testing.assert_allclose(D @ ours.rows @ D, D @ rows @ D, atol=tol * np.abs(rows).max())
    else:
        expected = np.einsum("naa->na", rows).reshape(fit.eta.shape)
        np.testing.assert_allclose(ours.rows, expected, atol=tol * np.abs(expected).max())
    np.testing.assert_allclose(ours.free.reshape(-1, c), free, atol=tol * np.abs(Q).max())


def _check_carry(fit, X, Z, D, inverse, places, curvature, tol):
    """What slopes of the rows do to other rows, here to the first five and their mirror images."""
    c = Z.shape[1]
    new = np.vstack([X[:5], -X[:5]])
    Z_new = np.zeros((10, c, len(places)))
    for k, (j, a) in enumerate(places):
        Z_new[:, a, k] = 1.0 if j < 0 else new[:, j]
    slopes = einsum("nab,nb->na", D, np.random.default_rng(6).normal(size=(N, c)))
    expected = einsum("mak,kl,nbl,nb->mna", Z_new, inverse, Z, slopes)
    if isinstance(fit.problem.X, RowGram):
        new = new @ X.T
    ours = curvature.carry(new, slopes.reshape(fit.eta.shape)).reshape(10, N, c)
    if fit.hessian.ndim == 3:  # up to what all outputs share
        expected, ours = expected - expected.mean(2, keepdims=True), ours - ours.mean(2, keepdims=True)
    np.testing.assert_allclose(ours, expected, atol=tol * np.abs(expected).max())


def _check_solve(fit, Z, D, K, places, curvature, tol):
    """K times the answer is the question, for a gradient in the range of K."""
    rng = np.random.default_rng(4)
    c = Z.shape[1]
    asked = K @ rng.normal(size=len(places))
    gradient = Direction(np.zeros((fit.coef.shape[0], c)), np.zeros(c))
    for value, (j, a) in zip(asked, places, strict=True):
        (gradient.intercept if j < 0 else gradient.coef[j])[a] = value
    outputs = fit.coef.shape[1:]
    shaped = Direction(gradient.coef.reshape(-1, *outputs), gradient.intercept.reshape(outputs))
    answer = curvature.solve(shaped)
    assert answer.coef.shape == fit.coef.shape
    coef, level = answer.coef.reshape(-1, c), np.reshape(answer.intercept, c)
    theta = np.array([level[a] if j < 0 else coef[j, a] for j, a in places])
    np.testing.assert_allclose(K @ theta, asked, atol=tol * np.abs(asked).max())
    assert not np.any(coef[~fit.tangent.support.reshape(-1, c)])
    several = Direction(np.stack([shaped.coef] * 2, axis=-1), np.stack([shaped.intercept] * 2, axis=-1))
    both = curvature.solve(several)
    np.testing.assert_allclose(both.coef[..., 1], answer.coef, atol=tol * np.abs(answer.coef).max())
    np.testing.assert_allclose(
        both.intercept[..., 0], answer.intercept, atol=tol * (1 + np.abs(answer.intercept).max())
    )
    twice = curvature.predict(both)
    np.testing.assert_allclose(twice[..., 0], curvature.predict(answer), atol=tol * np.abs(twice).max())
    responded = np.asarray(curvature.respond(shaped)).reshape(N, c)
    np.testing.assert_allclose(
        einsum("nab,nb->na", D, responded), einsum("nab,nbk,k->na", D, Z, theta), atol=tol * 10
    )


def _check_hat(fit, Z, D, inverse, curvature, tol):
    c = Z.shape[1]
    # rows in the range of D, as slopes and remainders are: constants cancel in multinomial models
    rows = einsum("nab,nbr->nar", D, np.random.default_rng(5).normal(size=(N, c, 3)))
    expected = einsum("nak,kl,mbl,mbr->nar", Z, inverse, Z, rows)
    expected = einsum("nab,nbr->nar", D, expected)
    shaped = rows if fit.eta.ndim == 2 else rows[:, 0]
    ours = np.asarray(curvature.hat(shaped)).reshape(N, c, 3)
    ours = einsum("nab,nbr->nar", D, ours)
    np.testing.assert_allclose(ours, expected, atol=tol * np.abs(expected).max())


SCALAR = [Squared(), Logistic(), Poisson(), Huber()]
PENALTIES = [L2(0.7), L1(0.5), ElasticNet(0.8, 0.4), L2(0.0)]


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_primal(loss, penalty, weighted, fit_intercept):
    fit, X = _fit(loss, penalty, 8, fit_intercept=fit_intercept, weighted=weighted)
    curvature = factor(fit)
    assert isinstance(curvature, Primal)
    _check(fit, X, curvature)


def test_primal_in_every_storage(store, fit_intercept, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 64)
    for penalty in (L2(0.7), L1(0.5)):
        fit, X = _fit(Logistic(), penalty, 8, fit_intercept=fit_intercept, store=store)
        _check(fit, X, factor(fit))
        steps = factor(fit).responses()
        _check_responses(fit, X, steps)


def _check_responses(fit, X, steps):
    Z, _, K, places = _explicit(fit, X)
    inverse = np.linalg.pinv(K, rcond=1e-11, hermitian=True)
    expected = inverse @ Z[:, 0].T
    free = len(places) - bool(fit.problem.intercept)
    np.testing.assert_allclose(steps.coef, expected[:free], atol=1e-9)
    if fit.problem.intercept:
        np.testing.assert_allclose(steps.intercept, expected[free], atol=1e-9)
    else:
        np.testing.assert_allclose(steps.intercept, 0.0, atol=1e-12)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Poisson()], ids=repr)
@pytest.mark.parametrize(
    "penalty",
    [L2(0.7), L2(np.linspace(0.3, 2.0, 140)), ElasticNet(0.8, 0.4)],
    ids=["L2", "per feature", "net"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_dual(loss, penalty, weighted, fit_intercept):
    fit, X = _fit(loss, penalty, 140, fit_intercept=fit_intercept, weighted=weighted)
    curvature = factor(fit)
    assert isinstance(curvature, Dual)
    _check(fit, X, curvature)
    _check_responses(fit, X, curvature.responses())


def test_dual_in_every_storage(store, fit_intercept):
    fit, X = _fit(Squared(), L2(0.7), 140, fit_intercept=fit_intercept, store=store)
    curvature = factor(fit)
    assert isinstance(curvature, Dual)
    _check(fit, X, curvature)


@pytest.mark.parametrize("p", [8, 140])
@pytest.mark.parametrize("weighted", [False, True])
def test_primal_and_dual_agree(p, weighted, fit_intercept):
    fit, X = _fit(Logistic(), L2(np.linspace(0.3, 2.0, p)), p, fit_intercept=fit_intercept, weighted=weighted)
    parts = (X, None, p, fit.tangent.hessian, fit.hessian, fit_intercept)
    primal, dual = Primal(*parts), Dual(*parts)
    np.testing.assert_allclose(primal.quadratic_forms(), dual.quadratic_forms(), rtol=1e-8)
    gradient = Direction(np.random.default_rng(0).normal(size=p), np.array(0.7 * fit_intercept))
    for one, other in zip(primal.solve(gradient), dual.solve(gradient), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    for one, other in zip(primal.responses(), dual.responses(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    rows = np.random.default_rng(1).normal(size=(N, 4))
    np.testing.assert_allclose(primal.hat(rows), dual.hat(rows), atol=1e-8)


def test_what_rows_do_to_a_kernel_model_and_its_intercept(fit_intercept):
    fit, X = _fit(Logistic(), L2(0.7), 8, fit_intercept=fit_intercept)
    kernel = Fit(replace(fit.problem, X=RowGram(X @ X.T)), np.zeros(N), fit.intercept).known(eta=fit.eta)
    ours, explicit = factor(kernel).responses(), factor(fit).responses()
    np.testing.assert_allclose(ours.intercept, explicit.intercept, atol=1e-9)
    np.testing.assert_allclose(X.T @ ours.coef, explicit.coef, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [8, 140])
def test_a_gram_matrix_is_as_good_as_the_columns(p, weighted):
    fit, X = _fit(Squared(), L2(0.7), p, fit_intercept=False, weighted=weighted)
    kernel = Fit(
        replace(fit.problem, X=RowGram(X @ X.T)), np.random.default_rng(0).normal(size=N), np.zeros(())
    )
    ours, explicit = factor(kernel), Primal(X, None, p, fit.tangent.hessian, fit.hessian, False)
    np.testing.assert_allclose(ours.quadratic_forms(), explicit.quadratic_forms(), rtol=1e-7)
    rows = np.random.default_rng(1).normal(size=(N, 4))
    np.testing.assert_allclose(ours.hat(rows), explicit.hat(rows), atol=1e-8)
    np.testing.assert_allclose(ours.sandwich(rows[:, 0]).rows, explicit.sandwich(rows[:, 0]).rows, atol=1e-8)
    dual = rows[:, 0]  # the gradient Xᵀ rows in both coordinates
    eta = kernel.problem.X.gram @ ours.solve(Direction(dual, np.zeros(()))).coef
    np.testing.assert_allclose(eta, X @ explicit.solve(Direction(X.T @ dual, np.zeros(()))).coef, atol=1e-8)


@pytest.mark.parametrize("strength", [0.7, np.array([[0.5, 2.0, 0.5]])], ids=["shared", "one an output"])
@pytest.mark.parametrize("penalty", [L2, L1])
@pytest.mark.parametrize("p", [8, 140])
def test_independent_outputs(strength, penalty, p, fit_intercept):
    if penalty is L1 and p > N:
        pytest.skip("more free columns than rows")
    fit, X = _fit(Squared(), penalty(strength), p, (3,), fit_intercept)
    curvature = factor(fit)
    assert isinstance(curvature, Independent)
    _check(fit, X, curvature)
    alike = np.ndim(strength) == 0
    assert len(curvature.factors) == (1 if alike else 2 if penalty is L2 else 1)


def test_outputs_with_patterns_of_their_own(fit_intercept):
    fit, X = _fit(Squared(), L1(0.5), 8, (3,), fit_intercept)
    coef = fit.coef.copy()
    coef[0, 1] = 0.0
    fit = fit.moved(coef, fit.intercept)
    curvature = factor(fit)
    assert len(curvature.factors) == 2
    _check(fit, X, curvature)


@pytest.mark.parametrize("loss", [Multinomial(3), ConcomitantHuber()], ids=repr)
@pytest.mark.parametrize("penalty", ["l2", "l1", "net", "some free"])
@pytest.mark.parametrize("weighted", [False, True])
def test_coupled_outputs(loss, penalty, weighted, fit_intercept):
    c = 3 if isinstance(loss, Multinomial) else 2
    strength = np.full((6, c), 0.6)
    if penalty == "some free":
        strength[:2] = 0.0
    if isinstance(loss, ConcomitantHuber):
        strength[:, 1] = np.inf
    family = {"l1": L1, "net": ElasticNet}.get(penalty, L2)
    fit, X = _fit(loss, family(strength), 6, (c,), fit_intercept, weighted)
    curvature = factor(fit)
    assert isinstance(curvature, CoupledBlock)
    _check(fit, X, curvature)


@pytest.mark.parametrize("strength", [0.6, np.geomspace(0.1, 5.0, 140)[:, None] * np.ones(3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_coupled_outputs_of_more_columns_than_rows(strength, weighted, shared, fit_intercept):
    """A ridge of one strength leaves a coordinate a row; one that all outputs share, one output less."""
    fit, X = _fit(Multinomial(3), L2(strength), 140, (3,), fit_intercept, weighted)
    inner = InnerProducts(fit.problem.X) if shared else None
    fit = Fit(replace(fit.problem, inner=inner), fit.coef, fit.intercept)
    curvature = factor(fit)
    coordinates = (N if np.ndim(strength) == 0 else 140) + fit_intercept
    assert curvature.own.free.shape == (coordinates + (not fit_intercept), 2)
    _check(fit, X, curvature)


def test_outputs_with_strengths_of_their_own_all_have_coordinates(fit_intercept):
    fit, X = _fit(Multinomial(3), L2(0.6 * np.ones((8, 1)) * [1.0, 1.0, 2.0]), 8, (3,), fit_intercept)
    curvature = factor(fit)
    assert not curvature.own.is_smaller
    _check(fit, X, curvature)


def test_coordinates_of_outputs_keep_the_digits_of_the_faintest():
    """Classes of next to no weight beside others bend K by next to nothing, which is told all the same."""
    fit, X = _fit(Multinomial(3), L2(1e-7), 5, (3,))
    share = np.where(fit.problem.y == 0, 1.0, 1e-9)
    fit = Fit(replace(fit.problem, weights=share), fit.coef, fit.intercept)
    own = factor(fit).own
    curved = np.einsum("naa->a", fit.hessian)
    assert set(own.kept) == set(range(3)) - {int(curved.argmax())}
    Z, D, K, _ = _explicit(fit, X)
    H = einsum("nak,kl,nbl->nab", Z, np.linalg.pinv(K, rcond=1e-16, hermitian=True), Z)
    np.testing.assert_allclose(D @ factor(fit).quadratic_forms() @ D, D @ H @ D, atol=1e-6)


def test_coupled_outputs_in_every_storage(store, fit_intercept, monkeypatch):
    monkeypatch.setattr(_linalg, "BLOCK_SIZE", 64)
    fit, X = _fit(Multinomial(3), L2(0.6), 6, (3,), fit_intercept, store=store)
    _check(fit, X, factor(fit))


def test_no_penalty_leaves_a_shift_common_to_all_classes(fit_intercept):
    # K has a null direction for each column: forms and solutions must not blow up along it
    fit, X = _fit(Multinomial(3), L2(0.0), 5, (3,), fit_intercept)
    curvature = factor(fit)
    assert curvature.is_definite
    _check(fit, X, curvature)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("weighted", [False, True])
def test_rank_deficient(scale, weighted, fit_intercept):
    fit, X = _fit(Squared(), L2(0.0), 6, fit_intercept=fit_intercept, weighted=weighted)
    wide = np.column_stack([X, scale * X[:, 0], scale * (X[:, 1] + X[:, 2]), np.zeros(N)])
    deficient = Fit(replace(fit.problem, X=wide), np.zeros(9), fit.intercept)
    curvature = factor(deficient)
    assert not curvature.is_definite
    # the same column space: the same forms and the same hat matrix
    full = factor(Fit(replace(fit.problem, X=X), np.zeros(6), fit.intercept))
    np.testing.assert_allclose(curvature.quadratic_forms(), full.quadratic_forms(), rtol=1e-8)
    rows = np.random.default_rng(0).normal(size=(N, 2))
    np.testing.assert_allclose(curvature.hat(rows), full.hat(rows), atol=1e-8)
    np.testing.assert_allclose(curvature.sandwich(rows[:, 0]).rows, full.sandwich(rows[:, 0]).rows, atol=1e-8)
    df = fit.hessian @ curvature.quadratic_forms()
    np.testing.assert_allclose(df, 6 + fit_intercept, rtol=1e-9)


@pytest.mark.parametrize("constant", [1.0, 3.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_column_besides_an_intercept(constant, weighted):
    # the pivot of a centred column must be judged by its uncentred size
    # centred it is rounding noise, which must not count as a direction
    fit, X = _fit(Squared(), L2(0.0), 4, weighted=weighted)
    wide = Fit(replace(fit.problem, X=np.column_stack([X, np.full(N, constant)])), np.zeros(5), fit.intercept)
    forms = factor(Fit(replace(fit.problem, X=X), np.zeros(4), fit.intercept)).quadratic_forms()
    np.testing.assert_allclose(factor(wide).quadratic_forms(), forms, rtol=1e-9)


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
def test_the_intercept_makes_the_location_of_columns_irrelevant(mean):
    fit, X = _fit(Logistic(), L2(0.3), 5)
    centred = X - X.mean(axis=0)
    moved = Fit(replace(fit.problem, X=centred + mean), fit.coef, fit.intercept - mean * fit.coef.sum())
    there = Fit(replace(fit.problem, X=centred), fit.coef, fit.intercept)
    np.testing.assert_allclose(
        factor(moved).quadratic_forms(), factor(there).quadratic_forms(), rtol=1e-12 + 1e-14 * mean
    )


@pytest.mark.parametrize("shrink", [1.0, 0.9])
@pytest.mark.parametrize("p", [8, 140])
def test_shrinking_the_penalty(shrink, p, fit_intercept):
    fit, X = _fit(Squared(), L2(0.7), p, fit_intercept=fit_intercept)
    _check(fit, X, factor(fit, shrink=shrink), shrink=shrink)
    scalar = factor_scalar(fit, fit.tangent, shrink)
    np.testing.assert_allclose(scalar.quadratic_forms(), factor(fit, shrink=shrink).quadratic_forms())


def test_ridge_on_all_columns_has_the_textbook_hat_matrix():
    fit, X = _fit(Squared(), L2(2.0), 5, weighted=False)
    centred = X - X.mean(axis=0)
    hat = centred @ np.linalg.solve(centred.T @ centred + 2 * np.eye(5), centred.T) + 1 / N
    np.testing.assert_allclose(factor(fit).hat(np.eye(N)), hat, atol=1e-12)
    np.testing.assert_allclose(factor(fit).quadratic_forms(), hat.diagonal(), rtol=1e-10)


def test_nothing_free(fit_intercept):
    fit, _ = _fit(Squared(), L1(1.0), 5, fit_intercept=fit_intercept)
    empty = fit.moved(np.zeros(5), fit.intercept)
    curvature = factor(empty)
    expected = fit_intercept / fit.problem.weights.sum()
    np.testing.assert_allclose(curvature.quadratic_forms(), np.full(N, expected), rtol=1e-12)
    answer = curvature.solve(Direction(np.ones(5), np.array(1.0 * fit_intercept)))
    np.testing.assert_array_equal(answer.coef, 0.0)
    np.testing.assert_allclose(answer.intercept, expected)
    np.testing.assert_allclose(curvature.hat(np.eye(N)), np.full((N, N), expected), rtol=1e-12)


# --- one output: every product of every curvature, rows on kinks included -------------------------


def _free_directions(fit):
    """Z (n, k + 1) along the basis of the tangent and the intercept, C of that shape, and the basis."""
    tangent, X = fit.tangent, fit.problem.X
    if hasattr(tangent, "basis"):
        B = tangent.basis.toarray() if sp.issparse(tangent.basis) else tangent.basis
        C = tangent.hessian
    else:
        B, C = np.eye(len(tangent.support))[:, tangent.support], np.diag(tangent.hessian[tangent.support])
    B = block_diag(B, np.eye(int(fit.problem.intercept)))
    C = block_diag(C, np.zeros((int(fit.problem.intercept),) * 2))
    ones = np.ones((N, int(fit.problem.intercept)))
    return np.hstack([X, ones]) @ B, C, B


def _constrained_inverse(K, held):
    """K⁻¹ on the directions that the rows ``held`` leave where they are."""
    free = null_space(held, rcond=1e-10) if len(held) else np.eye(len(K))
    inner = np.linalg.pinv(free.T @ K @ free, rcond=1e-12, hermitian=True)
    return free @ inner @ free.T


def _steps_of(Z, K, pins):
    """K⁻¹ z_i of every row, a pinned one being released: (k, n), and which are determined."""
    steps, known = _constrained_inverse(K, Z[pins]) @ Z.T, np.ones(N, dtype=bool)
    for i in pins:
        others = pins[pins != i]
        steps[:, i] = _constrained_inverse(K, Z[others]) @ Z[i]
        left = null_space(np.vstack([K, Z[others]]), rcond=1e-10)
        known[i] = np.abs(Z[i] @ left).max(initial=0.0) < 1e-9
    return steps, known


def _close(ours, expected, tol):
    np.testing.assert_allclose(ours, expected, atol=tol * (1e-3 + np.abs(expected).max(initial=0.0)))


def _check_products(fit, curvature, tol=1e-8):
    Z, C, B = _free_directions(fit)
    pins = np.flatnonzero(fit.pinned)
    K = Z.T @ (np.where(fit.pinned, 0.0, fit.hessian)[:, None] * Z) + C
    P, (steps, known) = _constrained_inverse(K, Z[pins]), _steps_of(Z, K, pins)
    assert curvature.n == N
    forms = curvature.quadratic_forms()
    _close(forms[known], np.einsum("ik,ki->i", Z, steps)[known], tol)
    assert np.all(np.isinf(forms[~known]))
    _check_hats(curvature, Z @ P @ Z.T, np.array([3, 0, 40, *pins[:2]]), tol)
    _check_solutions(fit, curvature, Z, P, B, tol)
    _check_steps(fit, curvature, Z, B, np.where(known, steps, np.nan), tol)
    _check_middle(fit, curvature, Z, P, tol)


def _check_hats(curvature, hat, some, tol):
    before = curvature.quadratic_forms()
    _close(curvature.hat_matrix(), hat, tol)
    _close(curvature.hat_columns(some), hat[:, some], tol)
    rows = np.random.default_rng(8).normal(size=(N, 3))
    _close(curvature.hat(rows), hat @ rows, tol)
    np.testing.assert_array_equal(curvature.quadratic_forms(), before)  # nothing was written over


def _check_solutions(fit, curvature, Z, P, B, tol):
    rng, p = np.random.default_rng(9), fit.coef.size
    gradient = B @ rng.normal(size=B.shape[1])
    asked = Direction(gradient[:p], gradient[p:].sum())
    answer, expected = curvature.solve(asked), B @ (P @ B.T @ gradient)
    _close(answer.coef, expected[:p], tol)
    _close(answer.intercept, expected[p:].sum(), tol)
    _close(curvature.predict(answer), Z @ P @ B.T @ gradient, tol)
    _close(curvature.respond(asked), Z @ P @ B.T @ gradient, tol)


def _check_middle(fit, curvature, Z, P, tol):
    """Q = K⁻¹ Zᵀ E Z K⁻¹, whole along a basis, its diagonal on coordinates; rows on kinks have none."""
    middle = np.random.default_rng(11).normal(size=N)
    if fit.pinned.any():
        with pytest.raises(TypeError, match="on a kink"):
            curvature.sandwich(middle)
        return
    Q = P @ (Z.T * middle) @ Z @ P
    ours = curvature.sandwich(middle)
    _close(ours.rows, np.einsum("ik,kl,il->i", Z, Q, Z), tol)
    k = Z.shape[1] - int(fit.problem.intercept)
    if hasattr(fit.tangent, "basis"):
        _close(ours.free, Q[:k, :k], tol)
    else:
        _close(ours.free[fit.tangent.support], Q.diagonal()[:k], tol)
        np.testing.assert_array_equal(ours.free[~fit.tangent.support], 0.0)


def _check_steps(fit, curvature, Z, B, steps, tol):
    """K⁻¹ z_i along the basis, for new rows, and for rows that leave; those that are known."""
    rng, p = np.random.default_rng(10), fit.coef.size
    known, extra = np.isfinite(steps).all(axis=0), np.ones((4, int(fit.problem.intercept)))
    new = rng.normal(size=(4, p))
    expected = np.hstack([new, extra]) @ B @ steps
    _close(curvature.cross(new)[:, known], expected[:, known], tol)
    responses = curvature.responses()
    k = Z.shape[1] - extra.shape[1]
    order = np.argsort(curvature.support) if isinstance(curvature, ActiveSetCurvature) else slice(None)
    _close(responses.coef[order][:, known], steps[:k, known], tol)
    _close(responses.intercept[known], steps[k:, known].sum(axis=0), tol)
    pins = np.flatnonzero(fit.pinned & known)
    leaving = np.concatenate([[1, 5], pins[:3]])
    slopes = rng.normal(size=leaving.size)
    left = curvature.leave(leaving, Direction(fit.problem.X[leaving].T * slopes, slopes))
    expected = B @ (steps[:, leaving] * slopes)
    _close(left.coef, expected[:p], tol)
    _close(left.intercept, expected[p:].sum(axis=0), tol)


def _point(penalty, p=12, fit_intercept=True, bend="weights", pins=0, seed=0):
    """A point on a piece of the penalty, with a bend of its own for each row, and rows on kinks."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, p)) + 0.5
    start, kinked = rng.normal(size=p), penalty.without_ridge()
    coef = kinked.prox(start, 0.4)
    tangent = penalty.tangent(coef, (coef - start) / 0.4)  # as if the loss had that gradient
    d = {"weights": _weights(True), "ones": np.ones(N), "none": np.zeros(N)}[bend]
    pinned = np.zeros(N, dtype=bool)
    pinned[rng.choice(N, pins, replace=False)] = True
    problem = Problem(Squared(), penalty, X, rng.normal(size=N), np.ones(N), np.array(fit_intercept))
    fit = Fit(problem, coef, np.asarray(0.3 * fit_intercept))
    return fit.known(hessian=np.where(pinned, 0.0, d), pinned=pinned, tangent=tangent)


GROUPS = np.repeat(np.arange(4), 3)
ALONG = {
    "group": GroupLasso(GROUPS, 1.0),
    "slope": Slope(np.linspace(2.0, 0.5, 12)),
    "largest": LInfinity(3.0),
    "nuclear": NuclearNorm((3, 4), 2.0),
    "generalised": GeneralizedLasso(np.random.default_rng(3).normal(size=(7, 12))),
    "chain": FusedLasso(1.0),
    "lines": TrendFilter(1, 1.0),
    "ridge and chain": L2(0.5) + FusedLasso(1.0),
    "ridge a feature and some rows": L2(np.linspace(0.1, 2.0, 12)) + GeneralizedLasso(np.eye(12)[:5]),
}


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("bend", ["weights", "ones"])
def test_along_a_basis(name, bend, fit_intercept):
    fit = _point(ALONG[name], fit_intercept=fit_intercept, bend=bend)
    curvature = factor(fit)
    assert isinstance(curvature, Along)
    _check_products(fit, curvature)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("pins", [1, 3])
def test_rows_in_kinks_along_a_basis(name, pins, fit_intercept):
    fit = _point(ALONG[name], fit_intercept=fit_intercept, pins=pins)
    if pins > fit.tangent.size + fit_intercept:
        pytest.skip("more kinks than directions")
    curvature = factor(fit)
    assert isinstance(curvature, Pinned)
    assert isinstance(curvature.inner, Along)
    _check_products(fit, curvature, tol=1e-7)


@pytest.mark.parametrize("penalty", [L2(0.7), L1(0.5), ElasticNet(0.8, 0.4)], ids=repr)
@pytest.mark.parametrize("pins", [0, 1, 4])
@pytest.mark.parametrize("bend", ["weights", "ones"])
def test_every_product_of_every_curvature(penalty, pins, bend, fit_intercept):
    fit = _point(penalty, fit_intercept=fit_intercept, bend=bend, pins=pins)
    curvature = factor(fit)
    assert isinstance(curvature, Pinned if pins else Primal)
    _check_products(fit, curvature, tol=1e-7)


@pytest.mark.parametrize("pins", [0, 1, 30])
@pytest.mark.parametrize("bend", ["weights", "ones", "none"])
def test_every_product_in_the_dual(pins, bend, fit_intercept):
    """Rows without a bend have no part in the n x n matrix; with none at all the pins carry the intercept."""
    if bend == "none" and fit_intercept and not pins:
        pytest.skip("nothing holds the intercept")
    penalty = L2(np.linspace(0.3, 2.0, 140))
    fit = _point(penalty, p=140, fit_intercept=fit_intercept, bend=bend, pins=pins)
    curvature = factor(fit)
    assert isinstance(curvature.inner if pins else curvature, Dual)
    _check_products(fit, curvature, tol=1e-7)


@pytest.mark.parametrize("bend", ["weights", "ones"])
def test_forms_in_single_precision_are_as_near_as_their_condition_says(bend, fit_intercept):
    fit = _point(L2(np.linspace(0.3, 2.0, 140)), p=140, fit_intercept=fit_intercept, bend=bend)
    curvature = factor(fit)
    rough = in_single(curvature)
    assert rough is not curvature
    assert not curvature.is_factored
    off = np.abs(rough.quadratic_forms() - factor(fit).quadratic_forms()) * fit.hessian
    assert 0.0 < off.max() <= rounding_of_slack(rough.condition)
    _check_hats(rough, factor(fit).hat_matrix(), np.array([3, 0, 40]), 1e-7)  # whatever else is in double
    assert in_single(curvature) is curvature  # now it has a factor


def test_what_single_precision_does_not_tell_is_told_in_double():
    fit = _point(L2(1e-6), p=140, fit_intercept=False)
    X = fit.problem.X.copy()
    X[1] = X[0]  # what is left of the second one beside the first is next to nothing
    curvature = factor(Fit(replace(fit.problem, X=X), fit.coef, fit.intercept).known(tangent=fit.tangent))
    assert in_single(curvature) is curvature
    assert np.isfinite(curvature.quadratic_forms()).all()


@pytest.mark.parametrize("p", [12, 140])
def test_flat_losses_with_a_ridge(p, fit_intercept):
    """Support vector machines: no bend but on the kinks."""
    fit = _point(L2(0.7), p=p, fit_intercept=fit_intercept, bend="none", pins=8)
    _check_products(fit, factor(fit), tol=1e-7)


def test_the_only_row_that_holds_a_direction_has_an_infinite_form():
    fit = _point(L2(0.7), bend="none", pins=1)  # it alone holds the intercept
    curvature = factor(fit)
    assert np.isinf(curvature.quadratic_forms()[fit.pinned]).all()
    _check_products(fit, curvature, tol=1e-7)


@pytest.mark.parametrize("penalty", [L2(0.7), FusedLasso(1.0)], ids=repr)
def test_what_rows_in_kinks_do_when_others_leave(penalty, fit_intercept):
    """K Δ + Z_Vᵀ δ = z_i c_i, and the rows on kinks stay; one of them that leaves gives up its dual."""
    fit = _point(penalty, fit_intercept=fit_intercept, pins=2)
    curvature, pins = factor(fit), np.flatnonzero(fit.pinned)
    Z, C, B = _free_directions(fit)
    K = Z.T @ (fit.hessian[:, None] * Z) + C
    p, rng = fit.coef.size, np.random.default_rng(0)
    rows, slopes = np.array([1, 5, *pins]), rng.normal(size=4)
    duals = curvature.duals(rows, slopes)
    left = curvature.leave(rows, Direction(fit.problem.X[rows].T * slopes, slopes))
    for place, i in enumerate(rows):
        step = B.T @ np.append(left.coef[:, place], left.intercept[place])[: len(B)]
        own = 0.0 if i in pins else Z[i] * slopes[place]
        np.testing.assert_allclose(K @ step + Z[pins].T @ duals[:, place], own, atol=1e-8)
        np.testing.assert_allclose(
            np.delete(Z[pins], np.flatnonzero(pins == i), axis=0) @ step, 0.0, atol=1e-9
        )
        if i in pins:
            np.testing.assert_allclose(duals[pins == i, place], -slopes[place])
    gradient = rng.normal(size=len(B))
    asked = Direction(gradient[:p], gradient[p:].sum())
    held, step = curvature.hold(asked), curvature.solve(asked)
    along = B.T @ np.append(step.coef, step.intercept)[: len(B)]
    np.testing.assert_allclose(K @ along + Z[pins].T @ held, B.T @ gradient, atol=1e-8)


def test_lifts_and_tensions(fit_intercept):
    fit = _point(L2(0.7), fit_intercept=fit_intercept, pins=5)
    curvature, pins = factor(fit), np.flatnonzero(fit.pinned)
    Z, C, _ = _free_directions(fit)
    K = Z.T @ (fit.hessian[:, None] * Z) + C
    tension = np.linalg.inv(Z[pins] @ np.linalg.solve(K, Z[pins].T))
    np.testing.assert_allclose(curvature.tension, tension, atol=1e-8 * np.abs(tension).max())
    lift = np.linalg.solve(K, Z[pins].T) @ tension
    np.testing.assert_allclose(curvature.lift.coef, lift[:12], atol=1e-9)
    np.testing.assert_allclose(curvature.lifted_rows, Z @ lift, atol=1e-9)
    np.testing.assert_allclose(curvature.released, 1.0 / tension.diagonal(), rtol=1e-8)


def test_the_curvature_of_an_active_set(fit_intercept):
    fit = _point(L1(4.0), fit_intercept=fit_intercept)
    problem = replace(fit.problem, weights=_weights(True))
    solution = next(least_squares_path([problem]))
    assert isinstance(solution.curvature, ActiveSetCurvature)
    assert 0 < np.count_nonzero(solution.fit.coef) < 12
    _check_products(solution.fit, solution.curvature)


def test_dual_forms_of_rows_that_hardly_bend():
    """By leverages where rows bend, by the factor where they do not: z K⁻¹ zᵀ both times."""
    rng = np.random.default_rng(0)
    X, d = rng.normal(size=(12, 30)), np.geomspace(1e-9, 1.0, 12)
    d[3] = 0.0
    dual = Dual(X, None, 30, np.full(30, 0.5), d, intercept=True)
    Z = np.column_stack([X, np.ones(12)])
    K = Z.T @ (d[:, None] * Z) + np.diag([*np.full(30, 0.5), 0.0])
    np.testing.assert_allclose(
        dual.quadratic_forms(), np.einsum("ij,ij->i", Z @ np.linalg.inv(K), Z), rtol=1e-7
    )


@pytest.mark.parametrize("strength", [1e9, 1e14])
def test_hat_values_beside_a_strong_penalty_keep_their_digits(strength):
    fit, X = _fit(Logistic(), L2(strength), 200, fit_intercept=False, weighted=False)
    K, kernel = factor(fit), X @ X.T / strength
    kernel = kernel - kernel @ np.linalg.solve(np.diag(1.0 / fit.hessian) + kernel, kernel)
    np.testing.assert_allclose(K.quadratic_forms(), kernel.diagonal(), rtol=1e-9)
    np.testing.assert_allclose(K.hat_matrix(), kernel, rtol=1e-9, atol=1e-9 * kernel.max())
    np.testing.assert_allclose(K.hat(np.eye(N)), kernel, rtol=1e-9, atol=1e-9 * kernel.max())


@pytest.mark.parametrize(("intercept", "far"), [(False, 0.0), (True, 0.0), (True, 30.0)])
def test_rows_in_single_precision_are_those_of_a_kernel_that_nobody_shares(intercept, far):
    """Whatever the means of the rows, which would take the digits of single precision with them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 70)) + far
    d, curved = rng.uniform(0.01, 0.25, 40), np.full(70, 0.3)
    alone = Dual(X, None, 70, curved, d, intercept)
    shared = Dual(X, None, 70, curved, d, intercept, InnerProducts(X))
    rows = np.array([3, 17])
    np.testing.assert_allclose(shared._rows.columns(rows), alone._rows.gram[:, rows], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(shared._rows.diagonal, alone._rows.gram.diagonal(), rtol=1e-9)
    assert "gram" not in shared._rows.__dict__
    rough = shared._rows.weighted_in_single()
    assert rough.dtype == np.float32
    exact, size = alone._rows.weighted(), float(np.abs(alone._rows.weighted()).max())
    np.testing.assert_allclose(np.tril(rough), np.tril(exact), atol=3e-6 * size)
    forms = shared.in_single.quadratic_forms()
    np.testing.assert_allclose(d * forms, d * alone.quadratic_forms(), atol=1e-4)

"""Losses: three derivatives by finite differences, convexity, and the constant model."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_tweedie_deviance

from onefit.losses import ConcomitantHuber, Gamma, Huber, Logistic, Multinomial, Poisson, Squared, Tweedie

N, STEP = 40, 1e-3


def _case(loss, seed=0):
    """Responses in the range of the loss and linear predictors away from its kinks."""
    rng = np.random.default_rng(seed)
    if isinstance(loss, Multinomial):
        return rng.integers(0, loss.n_classes, N).astype(float), 2 * rng.normal(size=(N, loss.n_classes))
    if isinstance(loss, Logistic):
        return rng.integers(0, 2, N).astype(float), 3 * rng.normal(size=N)
    if isinstance(loss, Tweedie):
        y = rng.gamma(2.0, 1.0, N)
        y = np.where(np.arange(N) % 5 == 0, 0.0, y) if loss.power < 2 else y
        return y, rng.normal(size=N) if loss.link == "log" else rng.uniform(0.5, 3.0, N)
    if isinstance(loss, ConcomitantHuber):
        y, eta = 3 * rng.normal(size=N), np.stack([rng.normal(size=N), rng.uniform(0.5, 2, N)], axis=1)
        distance = np.abs(y - eta[:, 0]) - loss.epsilon * eta[:, 1]
        y = np.where(np.abs(distance) < 0.05, y + 0.2, y)
        return y, eta
    y, eta = 3 * rng.normal(size=N), rng.normal(size=N)
    if isinstance(loss, Huber):
        y = np.where(np.abs(np.abs(y - eta) - loss.delta) < 0.05, y + 0.2, y)
    return y, eta


SEPARABLE = [
    Squared(),
    Logistic(),
    Poisson(),
    Gamma(),
    Huber(),
    Huber(0.3),
    Tweedie(0.0),
    Tweedie(0.0, "identity"),
    Tweedie(1.0, "identity"),
    Tweedie(1.5),
    Tweedie(1.5, "identity"),
    Tweedie(2.0, "identity"),
    Tweedie(3.0),
    Tweedie(3.0, "identity"),
]
COUPLED = [Multinomial(2), Multinomial(4), ConcomitantHuber(), ConcomitantHuber(3.0)]
CONVEX = [
    *COUPLED,
    Squared(),
    Logistic(),
    Poisson(),
    Gamma(),
    Huber(),
    Tweedie(0.0, "identity"),
    Tweedie(1.0),
    Tweedie(1.3),
    Tweedie(2.0),
]


def five_point(f, eta, direction, step=STEP):
    """Derivative of f along a direction, with an error of step⁴."""
    moved = [f(eta + k * step * direction) for k in (-2, -1, 1, 2)]
    return (moved[0] - 8 * moved[1] + 8 * moved[2] - moved[3]) / (12 * step)


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("loss", SEPARABLE, ids=repr)
def test_three_derivatives_of_separable_losses(loss):
    y, eta = _case(loss)
    unit = np.ones(N)
    close(loss.gradient(y, eta), five_point(lambda e: loss.value(y, e), eta, unit))
    close(loss.hessian(y, eta), five_point(lambda e: loss.gradient(y, e), eta, unit))
    close(loss.third(y, eta), five_point(lambda e: loss.hessian(y, e), eta, unit))


@pytest.mark.parametrize("loss", COUPLED, ids=repr)
def test_three_derivatives_of_coupled_losses(loss):
    y, eta = _case(loss)
    for b in range(eta.shape[1]):
        unit = np.zeros_like(eta)
        unit[:, b] = 1.0
        close(loss.gradient(y, eta)[:, b], five_point(lambda e: loss.value(y, e), eta, unit))
        close(loss.hessian(y, eta)[:, :, b], five_point(lambda e: loss.gradient(y, e), eta, unit))
        close(loss.third(y, eta)[..., b], five_point(lambda e: loss.hessian(y, e), eta, unit))


@pytest.mark.parametrize("loss", [*SEPARABLE, *COUPLED], ids=repr)
def test_shapes_follow_the_linear_predictor(loss):
    y, eta = _case(loss)
    c = eta.shape[1:]
    assert loss.value(y, eta).shape == (N,)
    assert loss.gradient(y, eta).shape == eta.shape
    assert loss.hessian(y, eta).shape == (N, *c, *c)
    assert loss.third(y, eta).shape == (N, *c, *c, *c)
    assert np.shape(loss.start(y, np.ones(N))) == c
    assert loss.coupled == bool(c)


@pytest.mark.parametrize("loss", CONVEX, ids=repr)
@pytest.mark.parametrize("seed", [1, 2])
def test_convex_where_it_is_claimed(loss, seed):
    y, eta = _case(loss, seed)
    other = _case(loss, seed + 10)[1]
    middle = loss.value(y, 0.5 * (eta + other))
    assert np.all(middle <= 0.5 * (loss.value(y, eta) + loss.value(y, other)) + 1e-12)
    curvature = loss.hessian(y, eta).reshape(N, *(eta.shape[1:] or (1,)), -1)
    assert np.linalg.eigvalsh(curvature).min() > -1e-12


@pytest.mark.parametrize("loss", [*SEPARABLE, *COUPLED], ids=repr)
def test_quadratic_is_claimed_only_where_the_third_derivative_vanishes(loss):
    y, eta = _case(loss)
    assert not (loss.quadratic and np.any(loss.third(y, eta)))


@pytest.mark.parametrize(
    "loss",
    [loss for loss in [*SEPARABLE, *COUPLED] if not isinstance(loss, Huber | ConcomitantHuber)]
    + [ConcomitantHuber(50.0), Huber(50.0)],
    ids=repr,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_start_is_the_best_constant(loss, weighted):
    y, _ = _case(loss)
    weights = np.random.default_rng(3).uniform(0, 2, N) if weighted else np.ones(N)
    level = np.asarray(loss.start(y, weights), dtype=float)
    slope = loss.gradient(y, np.broadcast_to(level, (N, *level.shape)).copy())
    np.testing.assert_allclose(weights @ slope, 0.0, atol=1e-9)


@pytest.mark.parametrize("loss", [Huber(), Huber(0.3), ConcomitantHuber()], ids=repr)
def test_start_of_robust_losses_has_a_finite_value(loss):
    y, _ = _case(loss)
    level = np.asarray(loss.start(y, np.ones(N)))
    assert np.all(np.isfinite(loss.value(y, np.broadcast_to(level, (N, *level.shape)))))


def test_start_for_several_outputs():
    y = np.random.default_rng(0).normal(size=(20, 3))
    weights = np.random.default_rng(1).uniform(0, 1, 20)
    np.testing.assert_allclose(Squared().start(y, weights), weights @ y / weights.sum())


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0, 3.0])
def test_twice_the_tweedie_loss_is_the_deviance_of_scikit_learn(power):
    loss = Tweedie(power)
    y, eta = _case(loss)
    expected = mean_tweedie_deviance(y, np.exp(eta), power=power)
    np.testing.assert_allclose(2 * loss.value(y, eta).mean(), expected, rtol=1e-12)


def test_named_families_are_tweedie_families():
    y, eta = _case(Gamma())
    np.testing.assert_array_equal(Poisson().value(y, eta), Tweedie(1.0).value(y, eta))
    np.testing.assert_array_equal(Gamma().value(y, eta), Tweedie(2.0).value(y, eta))


def test_log_losses_are_those_of_scikit_learn():
    y, eta = _case(Multinomial(4))
    shares = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(Multinomial(4).value(y, eta).mean(), log_loss(y, shares), rtol=1e-12)
    y, eta = _case(Logistic())
    np.testing.assert_allclose(
        Logistic().value(y, eta).mean(), log_loss(y, 1 / (1 + np.exp(-eta))), rtol=1e-12
    )


def test_two_classes_are_logistic():
    y, eta = _case(Logistic())
    pair = np.stack([np.zeros(N), eta], axis=1)
    np.testing.assert_allclose(
        Multinomial(2).value(y, pair), Logistic().value(y, eta), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("size", [50.0, 800.0, 1e5])
def test_confident_predictions_do_not_overflow(size):
    y, eta = np.array([0.0, 1.0, 0.0, 1.0]), size * np.array([1.0, -1.0, -1.0, 1.0])
    for loss, linear in ((Logistic(), eta), (Multinomial(2), np.stack([-eta / 2, eta / 2], axis=1))):
        np.testing.assert_allclose(loss.value(y, linear)[:2], size, rtol=1e-12)
        for part in (loss.gradient(y, linear), loss.hessian(y, linear), loss.third(y, linear)):
            assert np.all(np.isfinite(part))


def test_huber_is_quadratic_inside_and_linear_outside():
    loss, eta = Huber(1.5), np.zeros(2)
    np.testing.assert_allclose(loss.value(np.array([1.0, -4.0]), eta), [0.5, 1.5 * 4 - 0.5 * 1.5**2])
    np.testing.assert_allclose(loss.gradient(np.array([1.0, -4.0]), eta), [-1.0, 1.5])


def test_a_scale_that_is_not_positive_is_outside():
    value = ConcomitantHuber().value(np.ones(2), np.array([[0.0, 1.0], [0.0, -1.0]]))
    assert np.isfinite(value[0])
    assert np.isinf(value[1])


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_counts_that_are_all_zero_have_a_finite_start(power):
    start = Tweedie(power).start(np.zeros(3), np.ones(3))
    assert np.isfinite(start)
    assert start < -10

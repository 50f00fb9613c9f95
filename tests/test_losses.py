"""Losses: three derivatives by finite differences, convexity, and the constant model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.metrics import hinge_loss, log_loss, mean_pinball_loss, mean_tweedie_deviance

from onefit.losses import (
    ConcomitantHuber,
    CoupledLoss,
    EpsilonInsensitive,
    Exponential,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Mixture,
    Multinomial,
    PiecewiseLinear,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)
from onefit.losses.composed import straight_part
from onefit.pieces import Pieces

N, STEP = 40, 1e-3


def _case(loss, seed=0):
    """Responses in the range of the loss and linear predictors away from its kinks."""
    rng = np.random.default_rng(seed)
    if isinstance(loss, Multinomial):
        return rng.integers(0, loss.n_classes, N).astype(float), 2 * rng.normal(size=(N, loss.n_classes))
    if isinstance(loss, Logistic):
        return rng.integers(0, 2, N).astype(float), 3 * rng.normal(size=N)
    if isinstance(loss, Exponential | Mixture) and loss.of_two_classes:
        return rng.integers(0, 2, N).astype(float), rng.normal(size=N)
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
    Exponential(),
    Mixture([Logistic(), Exponential()], [0.3, 0.7]),
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
    Exponential(),
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
    assert isinstance(loss, CoupledLoss) == bool(c)


@pytest.mark.parametrize("loss", COUPLED, ids=repr)
def test_the_rank_of_the_second_derivatives_of_coupled_losses(loss):
    y, eta = _case(loss)
    values = np.linalg.eigvalsh(loss.hessian(y, eta))
    assert loss.rank(eta.shape[1]) == np.count_nonzero(values > 1e-9 * values.max(), axis=1).max()


@pytest.mark.parametrize("loss", CONVEX, ids=repr)
@pytest.mark.parametrize("seed", [1, 2])
def test_convex_where_it_is_claimed(loss, seed):
    y, eta = _case(loss, seed)
    other = _case(loss, seed + 10)[1]
    middle = loss.value(y, 0.5 * (eta + other))
    assert np.all(middle <= 0.5 * (loss.value(y, eta) + loss.value(y, other)) + 1e-12)
    curvature = loss.hessian(y, eta).reshape(N, *(eta.shape[1:] or (1,)), -1)
    assert np.linalg.eigvalsh(curvature).min() > -1e-12


@pytest.mark.parametrize("power", [-1.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("link", ["log", "identity"])
def test_convexity_is_claimed_where_no_curvature_is_negative(power, link):
    loss = Tweedie(power, link)
    eta = np.linspace(-4.0, 4.0, 81) if link == "log" else np.geomspace(0.05, 60.0, 99)
    curvatures = np.array([loss.hessian(np.full(len(eta), y), eta) for y in (0.5, 1.0, 4.0, 20.0)])
    assert loss.is_convex == (curvatures.min() > -1e-12)


@pytest.mark.parametrize("loss", [*SEPARABLE, *COUPLED], ids=repr)
def test_quadratic_is_claimed_only_where_the_third_derivative_vanishes(loss):
    y, eta = _case(loss)
    assert not (loss.is_quadratic and np.any(loss.third(y, eta)))


@pytest.mark.parametrize(
    "loss",
    [loss for loss in [*SEPARABLE, *COUPLED] if not isinstance(loss, Huber | ConcomitantHuber | Mixture)]
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


@pytest.mark.parametrize(
    "loss", [Squared(), Logistic(), Exponential(), Multinomial(3), Poisson(), Gamma(), Tweedie(1.5)], ids=repr
)
def test_a_constant_attains_the_smallest_loss_if_moving_from_it_does_not_help(loss):
    y, _ = _case(loss)
    held = np.random.default_rng(2).uniform(size=(N, 60)) < np.linspace(0.02, 0.3, 60)
    held = held[:, held.any(axis=0)].astype(float)
    found = loss.has_constant(y, held).reshape(held.shape[1], -1).all(axis=1)
    for weights, attained in zip(held.T, found, strict=True):
        level = np.asarray(loss.start(y, weights), dtype=float)
        moves = np.vstack([np.eye(level.size), -np.eye(level.size)]).reshape(-1, *level.shape)
        here, *there = (
            weights @ loss.value(y, np.broadcast_to(level + move, (N, *level.shape)).copy())
            for move in [np.zeros_like(level), *moves]
        )
        assert attained == (min(there) >= here)


# --- kinks, and jumps of the second derivative ---------------------------------------------------

WITH_CORNERS = [
    Hinge(),
    Quantile(),
    Quantile(0.9),
    EpsilonInsensitive(0.0),
    EpsilonInsensitive(0.1),
    EpsilonInsensitive(0.7),
]
OF_CLASSES = Hinge | SquaredHinge | SmoothedHinge
WITH_JUMPS = [
    SquaredHinge(),
    SmoothedHinge(0.3),
    SmoothedHinge(1.5),
    SquaredEpsilonInsensitive(0.0),
    SquaredEpsilonInsensitive(0.7),
]


def _away_from_kinks(loss, seed=0):
    """Responses, and linear predictors at least 0.05 from where a derivative jumps."""
    rng = np.random.default_rng(seed)
    of_classes = isinstance(loss, OF_CLASSES)
    y = rng.integers(0, 2, N).astype(float) if of_classes else 2 * rng.normal(size=N)
    eta = 2 * rng.normal(size=N)
    if of_classes:
        at = (2 * y - 1)[:, None] * np.array([1.0, 1.0 - getattr(loss, "width", 0.0)])
    else:
        reach = getattr(loss, "epsilon", 0.0)
        at = np.stack([y - reach, y + reach], axis=1)
    near = np.abs(eta[:, None] - at).min(axis=1) < 0.05
    return y, np.where(near, eta + 0.1003, eta)


def _by_hand(loss, y, eta):
    match loss:
        case Hinge():
            return np.maximum(0.0, 1.0 - (2 * y - 1) * eta)
        case Quantile(level=level):
            return np.maximum(level * (y - eta), (level - 1.0) * (y - eta))
        case EpsilonInsensitive(epsilon=epsilon):
            return np.maximum(np.abs(y - eta) - epsilon, 0.0)
        case SquaredHinge():
            return np.maximum(0.0, 1.0 - (2 * y - 1) * eta) ** 2
        case SmoothedHinge(width=width):  # the mean of hinges with kinks spread over the width
            kinks = 1.0 - width * (np.arange(2000) + 0.5) / 2000
            return np.maximum(0.0, kinks - ((2 * y - 1) * eta)[:, None]).mean(axis=1)
        case SquaredEpsilonInsensitive(epsilon=epsilon):
            return np.maximum(np.abs(y - eta) - epsilon, 0.0) ** 2
    raise TypeError(loss)


@pytest.mark.parametrize("loss", [*WITH_CORNERS, *WITH_JUMPS], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_values_by_their_definition(loss, seed):
    y, eta = _away_from_kinks(loss, seed)
    rounding = 1e-7 if isinstance(loss, SmoothedHinge) else 1e-14
    np.testing.assert_allclose(loss.value(y, eta), _by_hand(loss, y, eta), atol=rounding)


@pytest.mark.parametrize("loss", [*WITH_CORNERS, *WITH_JUMPS], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_three_derivatives_away_from_kinks(loss, seed):
    y, eta = _away_from_kinks(loss, seed)
    unit = np.ones(N)
    close(loss.gradient(y, eta), five_point(lambda e: loss.value(y, e), eta, unit))
    close(loss.hessian(y, eta), five_point(lambda e: loss.gradient(y, e), eta, unit))
    close(loss.third(y, eta), five_point(lambda e: loss.hessian(y, e), eta, unit))
    for part in (loss.value, loss.gradient, loss.hessian, loss.third):
        assert part(y, eta).shape == (N,)


@pytest.mark.parametrize("loss", [*WITH_CORNERS, *WITH_JUMPS], ids=repr)
def test_convex_across_kinks(loss):
    y, eta = _away_from_kinks(loss)
    other = _away_from_kinks(loss, 5)[1]
    middle = loss.value(y, 0.5 * (eta + other))
    assert np.all(middle <= 0.5 * (loss.value(y, eta) + loss.value(y, other)) + 1e-12)
    assert np.all(loss.hessian(y, eta) >= 0)


@pytest.mark.parametrize("loss", WITH_CORNERS, ids=repr)
def test_kinks_are_where_the_slope_changes(loss):
    y, _ = _away_from_kinks(loss)
    kinks, slopes = loss.kinks(y), loss.slopes(y)
    assert slopes.shape == (N, kinks.shape[1] + 1)
    assert np.all(np.diff(slopes, axis=1) > 0)
    assert np.all(np.diff(kinks, axis=1) > 0)
    np.testing.assert_allclose(loss.value(y, kinks[:, 0]), 0.0, atol=1e-14)
    for k, kink in enumerate(kinks.T):
        for side, which in ((-1.0, k), (1.0, k + 1)):
            ahead = kink + side * np.array([[1e-3], [2e-3]])
            rise = loss.value(y, ahead[1]) - loss.value(y, ahead[0])
            np.testing.assert_allclose(rise / (side * 1e-3), slopes[:, which], atol=1e-9)
            np.testing.assert_array_equal(loss.piece(y, ahead[0]), which)
            np.testing.assert_array_equal(loss.gradient(y, ahead[0]), slopes[:, which])
        np.testing.assert_array_equal(loss.piece(y, kink), k)  # the one before


@pytest.mark.parametrize("loss", WITH_CORNERS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_the_piece_is_the_steepest_line_below(loss, seed):
    """A convex piecewise linear function is the largest of its lines."""
    y, eta = _away_from_kinks(loss, seed)
    kinks, slopes = loss.kinks(y), loss.slopes(y)
    joints = np.column_stack([kinks[:, :1], kinks])  # a point on every piece
    heights = np.column_stack([loss.value(y, joint) for joint in joints.T])
    pieces = heights + slopes * (eta[:, None] - joints)
    np.testing.assert_allclose(loss.value(y, eta), pieces.max(axis=1), atol=1e-13)
    np.testing.assert_array_equal(loss.piece(y, eta), pieces.argmax(axis=1))


@pytest.mark.parametrize("loss", [*WITH_CORNERS, *WITH_JUMPS, *SEPARABLE], ids=repr)
def test_what_a_loss_says_of_itself(loss):
    assert loss.is_kinked == isinstance(loss, PiecewiseLinear)
    smoothed = Huber | SquaredHinge | SmoothedHinge | SquaredEpsilonInsensitive
    assert (loss.pieces is Pieces.JUMPING) == isinstance(loss, smoothed)
    assert loss.of_two_classes == isinstance(loss, Logistic | Exponential | Mixture | OF_CLASSES)
    assert loss.is_quadratic == isinstance(loss, PiecewiseLinear | Squared)


@pytest.mark.parametrize("loss", WITH_JUMPS, ids=repr)
def test_the_slope_is_continuous_where_the_curvature_jumps(loss):
    y, _ = _away_from_kinks(loss)
    at = 2 * y - 1 if isinstance(loss, OF_CLASSES) else y + loss.epsilon
    np.testing.assert_allclose(loss.gradient(y, at - 1e-9), loss.gradient(y, at + 1e-9), atol=1e-8)
    jump = np.abs(loss.hessian(y, at - 1e-9) - loss.hessian(y, at + 1e-9))
    expected = 1.0 / loss.width if isinstance(loss, SmoothedHinge) else 2.0
    np.testing.assert_allclose(jump, 0.0 if getattr(loss, "epsilon", 1.0) == 0 else expected)


@pytest.mark.parametrize("loss", [*WITH_CORNERS, SquaredEpsilonInsensitive(0.0), SquaredHinge()], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_start_of_losses_with_kinks_is_the_best_constant(loss, weighted):
    y, _ = _away_from_kinks(loss)
    weights = np.random.default_rng(3).uniform(0, 2, N) if weighted else np.ones(N)

    def total(level):
        return float(weights @ loss.value(y, np.full(N, level)))

    best = min(minimize_scalar(total, bracket=(a, a + 0.5), tol=1e-12).fun for a in (-2.0, -0.5, 0.0, 1.0))
    start = total(float(loss.start(y, weights)))
    exact = not (isinstance(loss, EpsilonInsensitive) and loss.epsilon > 0)  # there only near it
    assert start <= best * (1 + 1e-9) + 1e-9 if exact else start <= 1.2 * best


def test_margin_and_pinball_losses_are_those_of_scikit_learn():
    y, eta = _away_from_kinks(Hinge())
    np.testing.assert_allclose(Hinge().value(y, eta).mean(), hinge_loss(2 * y - 1, eta), rtol=1e-12)
    y, eta = _away_from_kinks(Quantile())
    expected = mean_pinball_loss(y, eta, alpha=0.3)
    np.testing.assert_allclose(Quantile(0.3).value(y, eta).mean(), expected, rtol=1e-12)


# --- smoothed hinge, and mixtures ------------------------------------------------------------------


@pytest.mark.parametrize("width", [0.05, 0.5])
def test_the_smoothed_hinge_is_the_hinge_outside_its_kink(width):
    y, eta = _away_from_kinks(Hinge())
    np.testing.assert_allclose(SmoothedHinge(width).value(y, eta), Hinge().value(y, eta), atol=width)
    margin = 1.0 - (2.0 * y - 1.0) * eta
    outside = (margin < 0) | (margin > width)
    slopes = SmoothedHinge(width).gradient(y, eta)
    np.testing.assert_array_equal(slopes[outside], Hinge().gradient(y, eta)[outside])


@pytest.mark.parametrize("width", [0.01, 0.0, -1.0, np.nan, np.inf])
def test_widths_that_are_none(width):
    with pytest.raises(ValueError, match=r"width must be a number from 0\.05 on"):
        SmoothedHinge(width)


CLASSES = (Logistic(), Exponential(), SquaredHinge(), SmoothedHinge())
NUMBERS = (Squared(), Huber(), SquaredEpsilonInsensitive(0.2))


@pytest.mark.parametrize("losses", [CLASSES, NUMBERS], ids=["classes", "numbers"])
@pytest.mark.parametrize("part", ["value", "gradient", "hessian", "third"])
def test_mixtures_are_weighted_sums(losses, part):
    weights = np.random.default_rng(0).dirichlet(np.ones(len(losses)))
    mixed = Mixture(losses, weights)
    y, eta = _case(mixed)
    expected = sum(w * getattr(loss, part)(y, eta) for w, loss in zip(weights, losses, strict=True))
    np.testing.assert_allclose(getattr(mixed, part)(y, eta), expected, rtol=1e-13)
    np.testing.assert_array_equal(mixed.shares, weights)


@pytest.mark.parametrize("loss", [*CLASSES, *NUMBERS], ids=repr)
def test_a_vertex_is_the_loss_itself(loss):
    of_kind = CLASSES if loss.of_two_classes else NUMBERS
    mixed = Mixture(of_kind, np.array([1.0 if loss == one else 0.0 for one in of_kind]))
    y, eta = _case(mixed)
    weights = np.linspace(0.5, 2.0, len(y))
    for part in ("value", "gradient", "hessian", "third"):
        np.testing.assert_array_equal(getattr(mixed, part)(y, eta), getattr(loss, part)(y, eta))
    assert mixed.start(y, weights) == loss.start(y, weights)


def test_what_a_mixture_says_of_itself():
    assert Mixture(CLASSES).of_two_classes
    assert not Mixture(NUMBERS).of_two_classes
    assert Mixture([Squared(), Squared()]).pieces is Pieces.QUADRATIC
    assert Mixture(NUMBERS).pieces is Pieces.UNKNOWN
    assert Mixture([Logistic(), Exponential()]).is_smooth
    assert Mixture(CLASSES) == Mixture(list(CLASSES), [0.25] * 4)
    assert hash(Mixture(CLASSES)) == hash(Mixture(list(CLASSES), [0.25] * 4))
    assert Mixture(CLASSES) != Mixture(CLASSES, [1.0, 0.0, 0.0, 0.0])
    assert Mixture(CLASSES) != Logistic()


@pytest.mark.parametrize(
    ("losses", "weights"),
    [
        ([Hinge(), Logistic()], [0.3, 0.7]),
        ([Quantile(0.2), Quantile(0.6), Squared()], [0.2, 0.3, 0.5]),
        ([EpsilonInsensitive(0.1), Quantile(0.4), EpsilonInsensitive(0.7)], [0.2, 0.3, 0.5]),
        ([Hinge(), Logistic()], [0.0, 1.0]),
    ],
)
def test_mixtures_with_kinks_are_a_straight_part_and_a_curved_one(losses, weights):
    mixed = Mixture(losses, weights)
    y, eta = _away_from_kinks(losses[0])
    assert mixed.pieces is Pieces.KINKED
    assert mixed.self_concordance() is None
    straight = straight_part(mixed)
    total = mixed.curved_gradient(y, eta) + (0.0 if straight is None else straight.gradient(y, eta))
    np.testing.assert_allclose(total, mixed.gradient(y, eta), atol=1e-14)
    if straight is not None:
        kinks = straight.kinks(y)
        assert np.all(np.diff(kinks, axis=1) > 0)  # those that coincide are one
        assert straight.slopes(y).shape[1] == kinks.shape[1] + 1
        parts = [(w, loss) for w, loss in zip(weights, losses, strict=True) if loss.is_kinked]
        lifted = straight.value(y, eta) - sum(w * loss.value(y, eta) for w, loss in parts)
        at_kink = sum(w * loss.value(y, kinks[:, 0]) for w, loss in parts)
        np.testing.assert_allclose(lifted, -at_kink, atol=1e-13)  # zero at its first kink


def test_an_overflow_without_weight_does_no_harm():
    mixed = Mixture([Logistic(), Exponential()], [1.0, 0.0])
    np.testing.assert_allclose(mixed.value(np.ones(1), np.array([-1e4])), 1e4)


@pytest.mark.parametrize(
    ("losses", "weights", "error", "message"),
    [
        ([], None, ValueError, "at least one loss"),
        ([Logistic(), Squared()], None, TypeError, "not both: Logistic, Squared"),
        ([Multinomial(3)], None, TypeError, "not Multinomial"),
        ([Poisson()], None, TypeError, "not Poisson"),
        ([Mixture([Squared()])], None, TypeError, "not Mixture"),
        (["logistic"], None, TypeError, "losses of onefit.losses, got 'logistic'"),
        ([Squared(), Huber()], [0.5], ValueError, "must be 2 numbers"),
        ([Squared(), Huber()], [1.5, -0.5], ValueError, "at least 0 and with sum 1"),
        ([Squared(), Huber()], [0.5, 0.6], ValueError, "at least 0 and with sum 1"),
        ([Squared(), Huber()], [0.5, np.nan], ValueError, "at least 0 and with sum 1"),
    ],
)
def test_mixtures_that_are_none(losses, weights, error, message):
    with pytest.raises(error, match=message):
        Mixture(losses, weights)


# --- parameters ------------------------------------------------------------------------------------


def test_parameters_are_got_and_set_as_in_scikit_learn():
    assert Huber(2.0).get_params() == {"delta": 2.0}
    mixed = Mixture(list(CLASSES))
    copied = clone(mixed)
    assert copied == mixed
    assert copied is not mixed
    copied.set_params(losses=list(NUMBERS), weights=[1.0, 0.0, 0.0])
    assert not copied.of_two_classes  # what follows from the parameters follows them
    assert mixed == Mixture(CLASSES)
    with pytest.raises(ValueError, match="Huber has no parameter 'width'"):
        Huber().set_params(width=1.0)
    with pytest.raises(ValueError, match="width must be"):
        SmoothedHinge().set_params(width=-1.0)


# --- at the ends of the range ----------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_tweedie_far_out_is_infinite_without_a_word(power):
    loss, y = Tweedie(power), np.array([2.0, 2.0])
    eta = np.array([-2000.0, 2000.0])
    assert np.all(loss.value(y, eta) >= 1000.0)
    assert not np.isnan(loss.gradient(y, eta)).any()
    assert not np.isnan(loss.hessian(y, eta)).any()
    assert not np.isnan(loss.third(y, eta)).any()


def test_poisson_without_counts_is_finite_where_the_mean_vanishes():
    loss, y, eta = Poisson(), np.zeros(1), np.array([-2000.0])
    for derivative in (loss.value, loss.gradient, loss.hessian, loss.third):
        assert derivative(y, eta) == 0.0


def test_normal_family_at_a_mean_of_zero():
    """As a row without features has without an intercept."""
    loss, y, eta = Tweedie(0.0, "identity"), np.array([3.0]), np.zeros(1)
    assert loss.gradient(y, eta) == -3.0
    assert loss.hessian(y, eta) == 1.0
    assert loss.third(y, eta) == 0.0


@pytest.mark.parametrize("name", ["value", "gradient", "hessian"])
def test_classes_may_be_laid_out_one_after_the_other(name):
    loss, rng = Multinomial(3), np.random.default_rng(0)
    y, eta = rng.integers(0, 3, N).astype(float), rng.normal(size=(N, 3))
    eta[:2] = [[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]]  # classes that are as likely
    found = getattr(loss, name)(y, np.asfortranarray(eta))
    np.testing.assert_array_equal(found, getattr(loss, name)(y, eta))
    assert np.moveaxis(found, 0, -1).flags.c_contiguous  # nothing was copied to and fro


@pytest.mark.parametrize("y", [0.0, 0.3, 1.0])
def test_logistic_slopes_keep_their_digits_where_rows_lose_next_to_nothing(y):
    eta = np.array([-1000.0, -200.0, -40.0, -3.0, 0.0, 3.0, 40.0, 200.0, 1000.0])
    own, mirrored = Logistic().gradient(y, eta), Logistic().gradient(1.0 - y, -eta)
    np.testing.assert_allclose(own, -mirrored, rtol=1e-14, atol=1e-120)
    if y == 1.0:
        np.testing.assert_allclose(own[6:8], -np.exp(-eta[6:8]), rtol=1e-14)


@pytest.mark.parametrize("eta", [-40.0, -3.0, 3.0, 40.0])
def test_logistic_losses_keep_their_digits_where_rows_lose_next_to_nothing(eta):
    y = float(eta > 0)
    np.testing.assert_allclose(Logistic().value(y, np.array(eta)), np.log1p(np.exp(-abs(eta))), rtol=1e-14)


@pytest.mark.parametrize("power", [-1.0, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("link", ["log", "identity"])
def test_deviances_keep_their_digits_near_the_response(power, link):
    """Of a mean μ = y (1 + t) half the deviance is ½ t² y^(2 − power), but for terms in t³."""
    y, t = np.array([1e-3, 1.0, 1e9]), 1e-7
    mean = y * (1.0 + t)
    found = Tweedie(power, link).value(y, np.log(mean) if link == "log" else mean)
    np.testing.assert_allclose(found, 0.5 * t**2 * y ** (2.0 - power), rtol=1e-5)

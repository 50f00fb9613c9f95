"""What must hold for every loss, penalty, factor and check, on inputs that hypothesis thinks up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from onefit import losses, penalties, validation
from onefit.cholesky import UpdatableCholesky

settings.register_profile(
    "onefit",
    max_examples=40,
    deadline=None,  # other processes may run
    derandomize=True,  # the same examples everywhere
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("onefit")

N, P = 5, 6


def _numbers(low: float, high: float):
    return st.floats(low, high, allow_nan=False).map(lambda number: 0.0 if abs(number) < 1e-6 else number)


def _vectors(shape, low: float = -20.0, high: float = 20.0):
    return arrays(np.float64, shape, elements=_numbers(low, high))


# --- losses ------------------------------------------------------------------------------------------

REAL, CLASSES, COUNTS = (
    _vectors(N),
    _vectors(N).map(lambda y: (y > 0) * 1.0),
    _vectors(N, 0.0, 30.0).map(np.floor),
)
SHARES = st.floats(0.02, 0.98)
POSITIVE = st.floats(0.05, 5.0)
LOSSES = {
    "squared": (st.just(losses.Squared()), REAL, 50.0),
    "huber": (st.builds(losses.Huber, POSITIVE), REAL, 50.0),
    "quantile": (st.builds(losses.Quantile, SHARES), REAL, 50.0),
    "epsilon-insensitive": (st.builds(losses.EpsilonInsensitive, POSITIVE), REAL, 50.0),
    "squared epsilon-insensitive": (st.builds(losses.SquaredEpsilonInsensitive, POSITIVE), REAL, 50.0),
    "logistic": (st.just(losses.Logistic()), CLASSES, 800.0),
    "hinge": (st.just(losses.Hinge()), CLASSES, 50.0),
    "squared hinge": (st.just(losses.SquaredHinge()), CLASSES, 50.0),
    "smoothed hinge": (st.just(losses.SmoothedHinge()), CLASSES, 50.0),
    "exponential": (st.just(losses.Exponential()), CLASSES, 20.0),
    "poisson": (st.just(losses.Poisson()), COUNTS, 20.0),
    "gamma": (st.just(losses.Gamma()), _vectors(N, 0.1, 30.0), 20.0),
    "tweedie": (st.builds(losses.Tweedie, st.floats(1.1, 1.9)), COUNTS, 20.0),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", LOSSES)
@given(data=st.data())
def test_a_loss_lies_above_its_tangents(name, data):
    some_loss, responses, reach = LOSSES[name]
    loss, y = data.draw(some_loss), data.draw(responses)
    here, there = data.draw(_vectors(N, -reach, reach)), data.draw(_vectors(N, -reach, reach))
    low, gradient = loss.value(y, here), loss.gradient(y, here)
    high = loss.value(y, there)
    line = low + gradient * (there - here)
    scale = 1 + np.abs(low) + np.abs(high) + np.abs(gradient * (there - here))
    assert (high - line >= -1e-10 * scale).all()
    assert (loss.hessian(y, here) >= 0).all()


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared hinge", "smoothed hinge", "exponential"])
@given(data=st.data())
def test_two_classes_are_alike(name, data):
    some_loss, responses, reach = LOSSES[name]
    loss, y, eta = data.draw(some_loss), data.draw(responses), data.draw(_vectors(N, -reach, reach))
    assert_allclose(loss.value(1 - y, -eta), loss.value(y, eta), rtol=1e-12, atol=1e-13)
    y, eta = (part[np.abs(eta) != 1.0] for part in (y, eta))  # on a kink it is that of the piece before
    assert_allclose(loss.gradient(1 - y, -eta), -loss.gradient(y, eta), rtol=1e-9, atol=1e-15)


@given(
    eta=_vectors((N, 3), -300, 300),
    shift=_vectors((N, 1), -100, 100),
    y=arrays(int, N, elements=st.integers(0, 2)),
)
def test_multinomial_knows_only_differences(eta, shift, y):
    loss, y = losses.Multinomial(3), y.astype(float)
    assert_allclose(loss.value(y, eta + shift), loss.value(y, eta), rtol=1e-9, atol=1e-9)
    assert_allclose(loss.gradient(y, eta).sum(axis=1), 0, atol=1e-12)
    assert np.linalg.eigvalsh(loss.hessian(y, eta)).min() >= -1e-12


# --- penalties ---------------------------------------------------------------------------------------

PAIRS = [[0, 3], [1, 2], [4, 5]]
PENALTIES = {
    "l1": st.builds(penalties.L1, POSITIVE),
    "l1, each its own": st.builds(penalties.L1, _vectors(P, 0.0, 3.0)),
    "l2": st.builds(penalties.L2, POSITIVE),
    "elastic net": st.builds(penalties.ElasticNet, POSITIVE, SHARES),
    "groups": st.builds(lambda alpha: penalties.GroupLasso(PAIRS, alpha), POSITIVE),
    "sparse groups": st.builds(lambda *given: penalties.SparseGroupLasso(PAIRS, *given), POSITIVE, SHARES),
    "fused": st.builds(penalties.FusedLasso, POSITIVE),
    "trend": st.builds(penalties.TrendFilter, st.sampled_from([0, 1, 2]), POSITIVE),
    "slope": st.builds(
        lambda weights, alpha: penalties.Slope(np.sort(weights)[::-1] + 0.1, alpha),
        _vectors(P, 0.0, 2.0),
        POSITIVE,
    ),
    "nuclear": st.builds(lambda alpha: penalties.NuclearNorm((2, 3), alpha), POSITIVE),
    "box": st.builds(lambda low, size: penalties.Box(low, low + size), _numbers(-2, 2), POSITIVE),
    "ridge plus fused": st.builds(
        lambda *given: penalties.L2(given[0]) + penalties.FusedLasso(given[1]), POSITIVE, POSITIVE
    ),
}


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data())
def test_a_proximal_point_leaves_a_subgradient(name, data):
    """With x = prox_tP(v), (v − x) / t is a subgradient at x: P(z) ≥ P(x) + (v − x)ᵀ(z − x) / t for all z."""
    penalty, step = data.draw(PENALTIES[name]), data.draw(st.floats(0.1, 3.0))
    v, z = data.draw(_vectors(P)), data.draw(_vectors(P))
    x = penalty.prox(v, step)
    below = penalty.value(x) + (v - x) @ (z - x) / step
    assert penalty.value(z) >= below - 1e-7 * (1 + abs(below))
    assert np.isfinite(penalty.value(x))  # a proximal point is allowed


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data())
def test_proximal_points_are_firmly_nonexpansive(name, data):
    penalty, step = data.draw(PENALTIES[name]), data.draw(st.floats(0.1, 3.0))
    v, w = data.draw(_vectors(P)), data.draw(_vectors(P))
    moved = penalty.prox(v, step) - penalty.prox(w, step)
    assert moved @ moved <= moved @ (v - w) + 1e-7 * (1 + np.abs(v - w).max() ** 2)


@pytest.mark.parametrize("name", [name for name in PENALTIES if name != "box"])
@given(data=st.data())
def test_a_step_scales_a_penalty(name, data):
    penalty, factor, v = data.draw(PENALTIES[name]), data.draw(st.floats(0.1, 3.0)), data.draw(_vectors(P))
    scaled = penalty.scaled(factor)
    assert scaled.value(v) == pytest.approx(factor * penalty.value(v), rel=1e-10, abs=1e-10)
    assert_allclose(scaled.prox(v, 1.0), penalty.prox(v, factor), atol=1e-6)


@pytest.mark.parametrize("name", PENALTIES)
@given(data=st.data())
def test_parameters_survive_a_round(name, data):
    penalty, v = data.draw(PENALTIES[name]), data.draw(_vectors(P))
    again = type(penalty)(**penalty.get_params(deep=False))
    assert again.value(v) == penalty.value(v)


# --- the factor that is updated ----------------------------------------------------------------------


@given(
    X=arrays(np.float64, (9, 7), elements=st.integers(-2, 2).map(float)),
    changes=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=14),
    rhs=_vectors(7),
)
def test_a_factor_after_any_changes_is_that_of_what_is_in(X, changes, rhs):
    gram, factor, inside = X.T @ X + 0.1 * np.eye(7), UpdatableCholesky(2), []
    for joins, column in changes:
        if joins and column not in inside:
            kink = np.asfortranarray(gram[np.ix_([column], [column])])
            joined = factor.append(np.asfortranarray(gram[np.ix_(inside, [column])]), kink, np.array([1e-9]))
            assert joined.tolist() == [0]
            inside.append(column)
        elif not joins and inside:
            position = column % len(inside)
            factor.delete(np.array([position]))
            del inside[position]
    assume(inside)
    wanted = np.linalg.solve(gram[np.ix_(inside, inside)], rhs[inside])
    assert_allclose(factor.solve(rhs[inside]), wanted, rtol=1e-9, atol=1e-9)
    assert_allclose(np.triu(factor.upper), np.linalg.cholesky(gram[np.ix_(inside, inside)]).T, atol=1e-9)


@given(X=arrays(np.float64, (6, 5), elements=st.integers(-2, 2).map(float)))
def test_dependent_columns_do_not_join(X):
    """Of X and a copy of it, as many columns join as X has independent ones."""
    both = np.hstack([X, X])
    gram, floor = np.asfortranarray(both.T @ both), np.full(10, 1e-6)
    assume(np.linalg.matrix_rank(X) > 0)
    values = np.linalg.svd(X, compute_uv=False)
    assume(values[values > 1e-9].min() > 0.05)
    joined = UpdatableCholesky().append(np.zeros((0, 10)), gram, floor)
    assert len(joined) == np.linalg.matrix_rank(X)
    assert np.linalg.matrix_rank(both[:, joined]) == len(joined)


# --- checks of what users give -----------------------------------------------------------------------


@given(given=st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=9))
def test_strengths_come_back_in_decreasing_order(given):
    found = validation.check_strengths("alphas", given, lambda: (1.0, 0.1))
    assert sorted(given, reverse=True) == found.tolist()


@given(count=st.integers(2, 50), high=st.floats(1.0, 1e6), ratio=st.floats(1e-6, 0.5))
def test_strengths_on_an_automatic_path(count, high, ratio):
    found = validation.check_strengths("alphas", count, lambda: (high, high * ratio))
    assert len(found) == count
    assert (np.diff(found) < 0).all()
    assert_allclose(found[[0, -1]], [high, high * ratio], rtol=1e-12)


NO_STRENGTHS = st.one_of(
    st.integers(max_value=0),
    st.just(True),
    st.text(max_size=4),
    st.floats(allow_nan=True),
    st.just([]),
    st.lists(st.floats(max_value=0.0), min_size=1),
    st.just([np.nan]),
    st.just([np.inf]),
    st.just([[1.0, 2.0]]),
    st.none(),
)


@given(given=NO_STRENGTHS)
def test_what_are_no_strengths_is_refused_by_name(given):
    with pytest.raises(ValueError, match=r"^alphas must be"):
        validation.check_strengths("alphas", given, lambda: (1.0, 0.1))


@given(given=st.one_of(st.floats(), st.text(max_size=3), st.none(), st.integers(), st.just([0.5, 0.5])))
def test_shares(given):
    if isinstance(given, float | int) and 0 <= given <= 1:
        validation.check_share("l1_ratio", given)
    else:
        with pytest.raises((ValueError, TypeError), match="l1_ratio must be a number in"):
            validation.check_share("l1_ratio", given)


@given(labels=st.lists(st.integers(-5, 5), min_size=1, max_size=20), stranger=st.integers(6, 99))
def test_class_numbers(labels, stranger):
    classes = np.unique(labels)
    numbers = validation.class_numbers(labels, classes)
    assert classes[numbers].tolist() == labels
    with pytest.raises(ValueError, match=rf"y\[{len(labels)}\] = {stranger} is not among the classes"):
        validation.class_numbers([*labels, stranger], classes)

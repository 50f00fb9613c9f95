"""Penalties: prox by optimality, the tangent by finite differences, infinite strengths."""

from __future__ import annotations

import numpy as np
import pytest

from onefit.penalties import L1, L2, Box, ElasticNet, LInfinity

P, C = 6, 3
PER_FEATURE = np.array([0.2, 1.0, 0.0, 3.0, 0.5, 1.5])
PER_COEFFICIENT = np.random.default_rng(5).uniform(0.1, 2.0, (P, C))
FAMILIES = {
    "L2": L2,
    "L1": L1,
    "ElasticNet": ElasticNet,
    "ElasticNet(1)": lambda alpha: ElasticNet(alpha, 1.0),
    "ElasticNet(0)": lambda alpha: ElasticNet(alpha, 0.0),
    "ElasticNet(0.1)": lambda alpha: ElasticNet(alpha, 0.1),
}
CASES = [
    pytest.param(family(alpha), shape, id=f"{name}-{kind}-{len(shape)}d")
    for name, family in FAMILIES.items()
    for kind, alpha, shapes in [
        ("number", 0.7, [(P,), (P, C)]),
        ("zero", 0.0, [(P,)]),
        ("per feature", PER_FEATURE, [(P,), (P, C)]),
        ("per coefficient", PER_COEFFICIENT, [(P, C)]),
    ]
    for shape in shapes
]


def _coef(shape, seed=0):
    coef = np.random.default_rng(seed).normal(size=shape)
    coef[1] = 0.0
    coef[2] = 0.0
    return coef


def _unit(shape, where):
    unit = np.zeros(shape)
    unit[where] = 1.0
    return unit


@pytest.mark.parametrize(("penalty", "shape"), CASES)
@pytest.mark.parametrize("step", [0.3, 2.0])
def test_prox_is_a_minimum(penalty, shape, step):
    start = 2 * _coef(shape)
    z = penalty.prox(start, step)

    def objective(at):
        return 0.5 * np.sum((at - start) ** 2) + step * penalty.value(at)

    best = objective(z)
    for where in np.ndindex(shape):  # separable and strongly convex: ½ δ² is gained along each coordinate
        for change in (-0.3, -1e-3, 1e-3, 0.3):
            assert objective(z + change * _unit(shape, where)) >= best + 0.4999 * change**2


@pytest.mark.parametrize(("penalty", "shape"), CASES)
def test_tangent_by_differences(penalty, shape):
    coef = _coef(shape)
    tangent = penalty.tangent(coef)
    step = 1e-3
    for where in np.ndindex(shape):
        unit = _unit(shape, where)
        if not tangent.support[where]:
            assert coef[where] == 0
            assert tangent.gradient[where] == 0
            assert tangent.hessian[where] == 0
            # a kink: both one-sided slopes point upwards
            assert penalty.value(coef + step * unit) > penalty.value(coef)
            assert penalty.value(coef - step * unit) > penalty.value(coef)
            continue
        values = [penalty.value(coef + k * step * unit) for k in (-2, -1, 1, 2)]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        np.testing.assert_allclose(tangent.gradient[where], slope, atol=1e-9)
        slopes = [penalty.tangent(coef + k * step * unit).gradient[where] for k in (-1, 1)]
        np.testing.assert_allclose(tangent.hessian[where], (slopes[1] - slopes[0]) / (2 * step), atol=1e-9)


@pytest.mark.parametrize(("penalty", "shape"), CASES)
def test_value_is_convex_even_and_zero_at_zero(penalty, shape):
    one, other = _coef(shape, 1), _coef(shape, 2)
    assert penalty.value(np.zeros(shape)) == 0.0
    assert penalty.value(-one) == penalty.value(one)
    assert penalty.value((one + other) / 2) <= (penalty.value(one) + penalty.value(other)) / 2 + 1e-12


@pytest.mark.parametrize(("penalty", "shape"), CASES)
def test_scaled_scales_everything(penalty, shape):
    coef, twice = _coef(shape), penalty.scaled(2.5)
    np.testing.assert_allclose(twice.value(coef), 2.5 * penalty.value(coef))
    np.testing.assert_allclose(twice.tangent(coef).gradient, 2.5 * penalty.tangent(coef).gradient)
    np.testing.assert_allclose(twice.tangent(coef).hessian, 2.5 * penalty.tangent(coef).hessian)
    np.testing.assert_allclose(twice.prox(coef, 1.0), penalty.prox(coef, 2.5))
    assert type(twice) is type(penalty)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_an_infinite_strength_fixes_a_coefficient_at_zero(family):
    alpha = np.array([np.inf, 1.0, 0.0])
    for penalty in (family(alpha), family(alpha).scaled(0.5)):
        coef = np.array([0.0, 2.0, -1.0])
        assert np.isfinite(penalty.value(coef))
        assert penalty.value(np.array([1e-9, 2.0, -1.0])) == np.inf
        z = penalty.prox(np.array([5.0, 5.0, 5.0]), 1.0)
        assert z[0] == 0.0
        assert z[2] == 5.0
        tangent = penalty.tangent(coef)
        np.testing.assert_array_equal(tangent.support, [False, True, True])
        assert np.all(np.isfinite(tangent.gradient))
        assert np.all(np.isfinite(tangent.hessian))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_number_is_the_same_strength_for_all(family):
    coef = _coef((P,))
    np.testing.assert_allclose(family(0.7).value(coef), family(np.full(P, 0.7)).value(coef))
    np.testing.assert_allclose(family(0.7).prox(coef, 0.4), family(np.full(P, 0.7)).prox(coef, 0.4))


def test_closed_forms():
    coef = np.array([1.0, -2.0, 0.0])
    assert L2(3.0).value(coef) == 7.5
    assert L1(3.0).value(coef) == 9.0
    np.testing.assert_allclose(ElasticNet(2.0, 0.25).value(coef), 2 * (0.25 * 3 + 0.5 * 0.75 * 5))
    np.testing.assert_allclose(L1(1.0).prox(coef, 1.5), [0.0, -0.5, 0.0])
    np.testing.assert_allclose(L2(1.0).prox(coef, 1.0), coef / 2)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_ends_of_the_elastic_net_are_ridge_and_lasso(ratio):
    coef, end = _coef((P,)), L1(PER_FEATURE) if ratio else L2(PER_FEATURE)
    mixed = ElasticNet(PER_FEATURE, ratio)
    np.testing.assert_allclose(mixed.value(coef), end.value(coef))
    np.testing.assert_array_equal(mixed.tangent(coef).support, end.tangent(coef).support)
    np.testing.assert_allclose(mixed.tangent(coef).hessian, end.tangent(coef).hessian)


def test_orthant_admits_the_coordinates_that_violate_optimality():
    penalty = L1(np.array([1.0, 1.0, 1.0, 1.0, 0.0]))
    coef = np.array([0.5, -0.5, 0.0, 0.0, 0.0])
    signs = penalty.orthant(coef, np.array([9.0, 9.0, 1.5, 0.5, 9.0]))
    np.testing.assert_array_equal(signs, [1.0, -1.0, -1.0, 0.0, 0.0])
    np.testing.assert_array_equal(
        penalty.orthant(coef, np.array([0, 0, 1.05, -1.2, 0.0]), slack=0.1), [1, -1, 0, 1, 0]
    )
    piece = penalty.piece(coef, signs)
    np.testing.assert_array_equal(piece.support, [True, True, True, False, True])
    np.testing.assert_array_equal(piece.gradient, [1.0, -1.0, -1.0, 0.0, 0.0])


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_an_infinite_strength_holds_beside_bounds(family):
    alpha, coef = np.array([np.inf, 1.0, 1.0]), np.array([0.0, 2.0, 0.5])
    for penalty in (family(alpha) + Box(-1.0, [3.0, 3.0, 0.5]), Box(-1.0, [3.0, 3.0, 0.5]) + family(alpha)):
        alone = family(1.0).value(coef[1:])
        assert penalty.scaled(2.0).value(coef) == pytest.approx(2.0 * alone)
        assert penalty.value(np.array([1e-9, 2.0, 0.5])) == np.inf
        np.testing.assert_array_equal(penalty.prox(np.full(3, -9.0), 0.0), [0.0, -1.0, -1.0])
        np.testing.assert_array_equal(penalty.tangent(coef).support, [False, True, False])
    with pytest.raises(ValueError, match="lower must not be above upper, as it is for feature 0"):
        family(alpha) + Box(0.5, 1.0)


def test_kinks_of_bounds_do_not_grow():
    positive, held = Box(lower=0.0), L1(np.array([np.inf, 0.0]))
    for penalty in (positive, L2() + positive, L1(0.0) + Box(), L2() + held, L2() + held + positive):
        assert not penalty.has_growing_kinks((2,))
    for penalty in (L1(), ElasticNet() + positive, L1(np.array([np.inf, 1.0])), L2() + LInfinity()):
        assert penalty.has_growing_kinks((2,))

"""The paper's families in closed form, and their minimisation by Adam and L-BFGS."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from onefit.risk.permutation import draw_permutations, permuted_targets
from onefit.tuning.closed_form import FAMILIES, ColumnSide, RowSide, Sparse, quasi_sparsifier
from onefit.tuning.permutation_descent import bounded_bfgs, papers_adam
from onefit.tuning.ridge_coordinates import CentredDesign, ColumnCoordinates, RowCoordinates, coordinates

SHAPES = [(25, 6), (12, 30), (10, 10), (20, 1)]


def _space(shape, *, centred=True, weighted=False, outputs=1, store=np.asarray, count=7, route=coordinates):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) + 0.5
    y = X[:, :1] + rng.normal(size=(shape[0], outputs))
    weights = rng.uniform(0.3, 2.0, shape[0]) if weighted else np.ones(shape[0])
    orders = draw_permutations(shape[0], count, rng)
    targets = permuted_targets(y, weights, orders, centred=centred)
    return route(CentredDesign(store(X), weights, centred), targets)


def _explicit(space):
    """X̃, formed."""
    X = space.design.X.toarray() if sp.issparse(space.design.X) else space.design.X
    return space.design.root[:, None] * (X - space.design.means)


def _point(family):
    start = family.start(3.0)
    return start + 0.7 * np.random.default_rng(4).normal(size=start.shape)


def _gradient(family, theta, step=1e-5):
    rise = [family.value_and_gradient(theta + step * e)[0] for e in np.eye(len(theta))]
    fall = [family.value_and_gradient(theta - step * e)[0] for e in np.eye(len(theta))]
    return (np.array(rise) - np.array(fall)) / (2 * step)


# --- the families -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
def test_gradient_against_finite_differences(structure, shape, centred, weighted, outputs):
    space = _space(shape, centred=centred, weighted=weighted, outputs=outputs)
    family = FAMILIES[structure](space)
    theta = _point(family)
    np.testing.assert_allclose(
        family.value_and_gradient(theta)[1], _gradient(family, theta), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("structure", FAMILIES)
def test_gradient_with_few_permutations(structure, count):
    family = FAMILIES[structure](_space((25, 6), count=count))
    theta = _point(family)
    np.testing.assert_allclose(
        family.value_and_gradient(theta)[1], _gradient(family, theta), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("store", [np.asarray, sp.csr_array, sp.csc_matrix], ids=["dense", "csr", "csc"])
def test_families_are_equations_eight_to_ten(shape, centred, store):
    space = _space(shape, centred=centred, weighted=True, store=store)
    X, Y = _explicit(space), space.stacked
    p = shape[1]

    def ridge(scaled, strength, rhs):
        return np.linalg.solve(scaled.T @ scaled + strength * np.eye(p), scaled.T @ rhs)

    aggregate = FAMILIES["aggregate"](space)
    theta = _point(aggregate)
    strength, kappa, gamma, mu = np.exp(theta[0]), np.exp(theta[1]), theta[2:-1], theta[-1]
    apart = gamma - gamma.mean()
    s = 1.0 / (1.0 + np.exp(-kappa * (np.sum(apart**2) + 1e-2) * apart))
    plain, scaled = ridge(X, strength, Y), s[:, None] * ridge(X * s, strength, Y)
    expected = {
        "ridge": (theta[:1], plain),
        "sparse": (theta[:-1], scaled),
        "aggregate": (theta, expit(mu) * plain + (1 - expit(mu)) * scaled),
    }
    for structure, (parameters, coefficients) in expected.items():
        family = FAMILIES[structure](space)
        np.testing.assert_allclose(family.coefficients(parameters), coefficients[:, :1], atol=1e-12)
        norms = family.criterion.norms(family.fits(parameters)[0])
        np.testing.assert_allclose(norms, np.linalg.norm(Y - X @ coefficients, axis=0), atol=1e-12)
        assert np.all(norms <= 1.0)  # never worse than the null model: the criterion has no kink


@pytest.mark.parametrize("shape", [(25, 6), (12, 30), (10, 10)])
def test_both_sides_agree(shape):
    columns, rows = _space(shape, route=ColumnCoordinates), _space(shape, route=RowCoordinates)
    assert columns.scale == pytest.approx(rows.scale)
    np.testing.assert_allclose(columns.grid_norms, rows.grid_norms, atol=1e-7)
    pairs = [
        (FAMILIES["ridge"](columns), FAMILIES["ridge"](rows)),
        (Sparse(ColumnSide(columns)), Sparse(RowSide(rows))),
    ]
    for by_columns, by_rows in pairs:
        theta = _point(by_columns)
        value, gradient = by_columns.value_and_gradient(theta)
        other, slope = by_rows.value_and_gradient(theta)
        assert value == pytest.approx(other, rel=1e-10)
        np.testing.assert_allclose(gradient, slope, atol=1e-9)
        np.testing.assert_allclose(by_columns.coefficients(theta), by_rows.coefficients(theta), atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 1), (2, 5), (3, 2), (3, 4)])
@pytest.mark.parametrize("structure", FAMILIES)
def test_tiny_data(shape, structure):
    family = FAMILIES[structure](_space(shape))
    theta = _point(family)
    np.testing.assert_allclose(
        family.value_and_gradient(theta)[1], _gradient(family, theta), rtol=1e-6, atol=1e-8
    )


def test_quasi_sparsifier_starts_in_the_middle_and_keeps_its_sum_of_logits():
    s, pullback = quasi_sparsifier(0.1, np.zeros(4))
    assert np.all(s == 0.5)
    gamma = np.array([3.0, -1.0, 0.5, 2.0])
    s, pullback = quasi_sparsifier(0.1, gamma)
    assert np.sum(np.log(s / (1 - s))) == pytest.approx(0.0, abs=1e-12)
    gradient = pullback(np.array([1.0, 2.0, -1.0, 0.5]))
    assert gradient[1:].sum() == pytest.approx(0.0, abs=1e-14)  # a common shift of γ changes nothing


# --- minimisation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", FAMILIES)
def test_adam_takes_the_steps_of_table_one(structure):
    family = FAMILIES[structure](_space((25, 6)))
    start = family.start(1e3)
    assert start[0] == pytest.approx(np.log(1e3))
    thetas, gradients = [start], []
    first = second = np.zeros_like(start)
    for k in (1, 2):
        gradients.append(family.value_and_gradient(thetas[-1])[1])
        first = 0.5 * first + 0.5 * gradients[-1]
        second = 0.9 * second + 0.1 * gradients[-1] ** 2
        step = first / (1 - 0.5**k) / (np.sqrt(second / (1 - 0.9**k)) + 1e-8)
        thetas.append(thetas[-1] - 0.5 * step)
    found = papers_adam(family, start, max_iter=2, tol=1e-30)
    values = [family.value_and_gradient(theta)[0] for theta in thetas]
    np.testing.assert_allclose(found.values, values, rtol=1e-12)
    np.testing.assert_allclose(found.t, thetas[int(np.argmin(values))], rtol=1e-12)
    assert not found.converged
    assert found.n_iter == 2


def test_adam_stops_by_the_change_of_the_criterion():
    family = FAMILIES["ridge"](_space((60, 6)))
    found = papers_adam(family, family.start(1e3))
    changes = np.abs(np.diff(found.values))
    assert found.converged
    assert changes[-1] < 1e-4
    assert found.n_iter < 50


def test_adam_does_not_stop_on_its_way_down_from_a_flat_start():
    space = _space((25, 6))
    family = FAMILIES["ridge"](space)
    far = papers_adam(family, family.start(1e8 * space.scale))
    near = papers_adam(family, family.start(space.scale))
    assert abs(far.values[1] - far.values[0]) < 1e-4  # the paper's rule alone would stop here
    assert far.values.min() == pytest.approx(near.values.min(), abs=1e-3)


@pytest.mark.parametrize("shape", [(40, 5), (30, 60), (30, 25)])
def test_adam_and_lbfgs_find_the_same_ridge(shape):
    family = FAMILIES["ridge"](_space(shape, count=30))
    start = family.start(family.space.next_to_the_null_model())
    by_adam = papers_adam(family, start, learning_rate=0.02, tol=1e-14, max_iter=5000)
    by_lbfgs = bounded_bfgs(family, start, tol=1e-15)
    assert by_lbfgs.converged
    assert by_adam.values.min() == pytest.approx(by_lbfgs.values.min(), abs=1e-9)
    assert abs(family.value_and_gradient(by_lbfgs.t)[1][0]) < 1e-7


@pytest.mark.parametrize("structure", ["sparse", "aggregate"])
def test_adam_and_lbfgs_find_the_same_where_there_is_one_basin(structure):
    """With two columns γ has one direction; with more, the two may end in different minima."""
    space = _space((40, 2), count=30)
    family = FAMILIES[structure](space)
    start = family.start(space.scale)
    by_lbfgs = bounded_bfgs(family, start, tol=1e-14)
    by_adam = papers_adam(family, start, learning_rate=0.05, tol=1e-13, max_iter=4000)
    assert by_adam.values.min() == pytest.approx(by_lbfgs.values[-1], abs=1e-8)
    assert by_lbfgs.values[-1] < by_lbfgs.values[0] - 0.01


@pytest.mark.parametrize("structure", FAMILIES)
@pytest.mark.parametrize("shape", [(40, 5), (20, 60)])
def test_lbfgs_does_not_end_above_its_start(structure, shape):
    space = _space(shape, count=30)
    family = FAMILIES[structure](space)
    found = bounded_bfgs(family, family.start(space.scale))
    assert np.all(np.diff(found.values) <= 1e-12)
    assert found.values[-1] == pytest.approx(family.value_and_gradient(found.t)[0], rel=1e-12)


def test_without_permutations_ridge_overfits():
    family = FAMILIES["ridge"](_space((30, 60), count=0))
    found = bounded_bfgs(family, family.start(1.0))
    assert found.values[-1] < 1e-3  # nothing stands against a perfect fit


def test_grid_of_strengths_follows_the_scale_of_X():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 1))
    targets = permuted_targets(y, np.ones(30), draw_permutations(30, 5, rng), centred=True)
    one, other = (coordinates(CentredDesign(scale * X, np.ones(30), True), targets) for scale in (1.0, 100.0))
    np.testing.assert_allclose(other.grid, 1e4 * one.grid)
    np.testing.assert_allclose(other.grid_norms, one.grid_norms, atol=1e-10)

"""Hyperparameters in the scale of the search: intervals, vectors, and weights on a simplex."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onefit.tuning.space import Domain, Shares, Space

SPACE = Space(
    (
        Domain("a", 1e-2, 1e2, "log"),
        Domain("b", 1.0, 3.0, "log", np.array([0, 1, 1, 0, 2])),
        Domain("c", -1.0, 2.0, "linear"),
    )
)
MIXED = Space((Domain("a", 1e-2, 1e2, "log"), Shares("w", 3)))


def test_spaces_name_the_parts_of_a_vector():
    t = np.array([0.0, *np.log([1.0, 2.0, 3.0]), 0.5])
    values = SPACE.values(t)
    assert values["a"] == 1.0
    np.testing.assert_allclose(values["b"], [1.0, 2.0, 2.0, 1.0, 3.0])
    assert values["c"] == 0.5
    np.testing.assert_allclose(SPACE.bounds[:, 0], np.log([1e-2, 1e2]))
    np.testing.assert_allclose(SPACE.bounds[:, -1], [-1.0, 2.0])
    assert [s.stop - s.start for s in SPACE.slices] == [1, 3, 1]
    np.testing.assert_allclose(SPACE.middle, SPACE.bounds.mean(axis=0))
    assert SPACE.is_box
    assert not MIXED.is_box


def test_components_are_the_adjoint_of_values():
    domain = replace(SPACE.domains[1], low=-1e3, scale="linear", high=1e3)
    rng = np.random.default_rng(0)
    t, by_feature = rng.normal(size=3), rng.normal(size=5)
    assert domain.value(t) @ by_feature == pytest.approx(t @ domain.components(by_feature))


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_rates_are_derivatives_of_values(scale):
    domain, t = replace(SPACE.domains[1], scale=scale), np.array([0.3, 0.7, 0.9])
    t = t if scale == "log" else 1.0 + t
    for j, unit in enumerate(np.eye(3) * 1e-6):
        change = (domain.value(t + unit) - domain.value(t - unit)) / 2e-6
        np.testing.assert_allclose(change, domain.rate(t) * (domain.groups == j), rtol=1e-8)


def test_rounding_does_not_leave_the_bounds():
    domain = Domain("a", 0.1, 0.7, "log")
    low, high = domain.ends
    assert domain.value(np.array([high + 1e-12])) <= 0.7
    assert domain.value(np.array([low - 1e-12])) >= 0.1


@pytest.mark.parametrize("domain", [*SPACE.domains, MIXED.domains[1]], ids=lambda domain: domain.name)
def test_values_come_back(domain):
    t = domain.spread(np.random.default_rng(0).random((1, domain.size)))[0]
    values = domain.value(t)
    if getattr(domain, "groups", None) is not None:
        values = values[np.unique(domain.groups, return_index=True)[1]]
    values = np.atleast_1d(values)
    assert domain.holds(values)
    np.testing.assert_allclose(domain.at(values), t, rtol=1e-12)
    assert not domain.holds(values + 1e3)


# --- the simplex -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_projections_are_the_nearest_points(seed):
    """t − P(t) makes no sharp angle with any direction into the simplex, which has these vertices."""
    rng = np.random.default_rng(seed)
    shares = Shares("w", 6)
    t = rng.normal(size=6) * 10.0 ** rng.integers(-2, 3)
    nearest = shares.project(t)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.max((t - nearest) @ (np.eye(6) - nearest).T) <= 1e-9 * np.abs(t).max()
    np.testing.assert_allclose(shares.project(nearest), nearest, atol=1e-14)


def test_projections_take_each_part_on_its_own():
    t = np.array([99.0, 2.0, 0.0, 0.0])
    np.testing.assert_allclose(MIXED.project(t), [np.log(1e2), 1.0, 0.0, 0.0])
    np.testing.assert_allclose(MIXED.project(-t), [np.log(1e-2), 0.0, 0.5, 0.5])


def test_draws_are_uniform_on_the_simplex():
    draws = Shares("w", 3).spread(np.random.default_rng(0).random((4000, 3)))
    assert draws.min() >= 0
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    np.testing.assert_allclose(draws.mean(axis=0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), 1 / 18, atol=0.005)  # of a Dirichlet(1, 1, 1)


def test_bases_are_the_middle_and_the_vertices():
    bases = np.array(MIXED.bases)
    np.testing.assert_allclose(bases[:, 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(bases[:, 1:], [np.full(3, 1 / 3), *np.eye(3)])
    assert len(SPACE.bases) == 1

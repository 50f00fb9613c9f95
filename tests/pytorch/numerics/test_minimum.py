"""Minima are minima: saddles are left, and what has no minimum is refused."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from onefit.exceptions import SolverError  # noqa: E402
from onefit.torch import FunctionalProblem, L1Norm  # noqa: E402
from onefit.torch.numerics import newton  # noqa: E402
from onefit.torch.numerics.backtracking import backtracked  # noqa: E402


def factorisation(kinked=False):
    """A matrix of rank 2 as the product of two factors: zeros are a saddle."""
    rng = np.random.default_rng(0)
    cells = np.array([(i, j) for i in range(6) for j in range(5)])
    y = (rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5)))[cells[:, 0], cells[:, 1]]

    def loss(theta, x, y):
        return (theta[:12].reshape(6, 2)[x[0]] @ theta[12:].reshape(5, 2)[x[1]] - y) ** 2

    penalties = [lambda theta: (theta**2).sum(), *([L1Norm([1.0, 1.0] + [0.0] * 20)] if kinked else [])]
    return FunctionalProblem(loss, penalties, start=22), cells, y


@pytest.mark.parametrize("by_products", [False, True])
def test_a_saddle_is_left(by_products, monkeypatch):
    if by_products:
        monkeypatch.setattr(newton, "DENSE", 5)
    problem, cells, y = factorisation()
    fit = problem.fit(cells, y, [0.3])
    assert float(fit.theta.abs().max()) > 0.1
    values = torch.linalg.eigvalsh(fit.objective.curvature(fit.theta))
    assert float(values[0]) > -1e-8 * float(values[-1])  # one direction is flat: the factors may turn
    assert float(fit.objective.gradient(fit.theta).abs().max()) < 1e-5


def test_a_saddle_on_the_support_of_an_l1_norm_is_left():
    problem, cells, y = factorisation(kinked=True)
    fit = problem.fit(cells, y, [0.1, 0.5])
    free = fit.theta != 0
    assert int(free.sum()) > 4
    part = fit.objective.restricted(fit.theta, torch.nonzero(free)[:, 0])
    values = torch.linalg.eigvalsh(part.curvature(fit.theta[free]))
    assert float(values[0]) > -1e-8 * float(values[-1])


def test_the_lowest_curvature_by_products_is_that_of_the_matrix(monkeypatch):
    problem, cells, y = factorisation()
    objective, zero = problem.fit(cells, y, [0.3]).objective, torch.zeros(22, dtype=torch.float64)
    exact, _ = newton.lowest_curvature(objective, zero)
    monkeypatch.setattr(newton, "DENSE", 5)
    found, direction = newton.lowest_curvature(objective, zero)
    assert exact < -1
    assert found == pytest.approx(exact, rel=1e-6)
    assert float(direction @ objective.product(zero, direction)) == pytest.approx(exact, rel=1e-6)


def test_what_falls_for_ever_is_refused():
    problem = FunctionalProblem(lambda theta, x, y: -(theta[0] ** 2) * x * y, start=[1.0])
    with pytest.raises(SolverError, match="no minimum was reached"):
        problem.fit(np.ones(4), np.ones(4))


def test_each_step_is_halved_as_often_as_it_needs():
    start, step = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([-1.0, -8.0, 1.0])
    lengths, values = backtracked(
        lambda t: (start + t * step) ** 2,
        start**2,
        torch.tensor([-2.0, -16.0, -1.0]),
        torch.ones(3),
        slack=0.0,
    )
    np.testing.assert_array_equal(lengths, [1.0, 0.125, 0.0])  # the third was promised what does not come
    np.testing.assert_array_equal(values, [0.0, 0.0, 0.0])

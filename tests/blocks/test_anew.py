"""Rows that are solved without themselves in passes, beside refits, and what a sample of them says."""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor

import onefit
from onefit import ElasticNetLOO, LogisticLOO, PoissonLOO
from onefit.blocks.anew import DoubtfulRows, most_rows
from onefit.blocks.rows import Block
from onefit.exceptions import UnreliableWarning
from onefit.sources import ArraySource

N, P = 240, 30


def table(kind: str, *, n: int = N, p: int = P, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some columns of numbers, and dummies of which most are rare."""
    rng = np.random.default_rng(seed)
    levels = np.minimum(rng.zipf(1.6, n) - 1, p - 6)
    X = np.hstack([rng.normal(size=(n, 5)) + 3.0, np.eye(p - 5)[levels]])
    eta = (X[:, :5] - 3.0) @ rng.normal(size=5) + X[:, 5:] @ rng.normal(size=p - 5)
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int)
    return X, y if kind == "classes" else rng.poisson(np.exp(0.4 * eta)), rng.integers(1, 4, n).astype(float)


def logistic(l1_ratio: float, C: float, *, fit_intercept: bool = True) -> LogisticRegression:
    solver = "saga" if l1_ratio else "lbfgs"
    tight = {"tol": 1e-9, "max_iter": 200_000, "fit_intercept": fit_intercept}
    return LogisticRegression(C=C, l1_ratio=l1_ratio, solver=solver, **tight)


MODELS = {
    "ridge": (logistic(0.0, 10.0), "classes"),
    "no intercept": (logistic(0.0, 10.0, fit_intercept=False), "classes"),
    "lasso": (logistic(1.0, 1.0), "classes"),
    "elastic net": (logistic(0.5, 2.0), "classes"),
    "counts": (PoissonRegressor(alpha=1e-3, tol=1e-10, max_iter=10_000), "counts"),
}


@pytest.mark.costly
@pytest.mark.filterwarnings(
    "ignore::onefit.NotOptimalWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", list(MODELS))
def test_every_row_is_its_refit(name, sparse, weighted, tmp_path):
    """Where rows and columns are few all are solved, and none is warned of."""
    model, kind = MODELS[name]
    X, y, w = table(kind)
    X, w = sp.csr_array(X) if sparse else X, w if weighted else None
    if name in {"lasso", "elastic net"} and sparse:
        pytest.skip("saga is slow on it, and the rows are the same")
    model.fit(X, y, sample_weight=w)
    exact = onefit.loo(model, X, y, sample_weight=w, exact=True)
    found = onefit.loo(model, ArraySource(X, y, w, rows=100))
    assert found.value == pytest.approx(exact.value, rel=1e-6)
    assert found.std_error == pytest.approx(exact.std_error, rel=1e-6)
    assert found.approx_error <= 1e-5 * found.value
    found.rows_to(tmp_path / "rows.parquet")
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    np.testing.assert_allclose(rows["loss"], exact.losses, rtol=1e-5, atol=1e-7)
    assert rows["bound"].max() < 1e-4


def test_without_them_the_steps_are_off(monkeypatch):
    """What the tests above would miss, were no row solved."""
    X, y, _ = table("classes")
    model = logistic(0.0, 10.0).fit(X, y)
    exact = onefit.loo(model, X, y, exact=True)
    monkeypatch.setattr("onefit.blocks.mean_over_rows.most_rows", lambda *_: 1)
    with pytest.warns(UnreliableWarning):
        found = onefit.loo(model, ArraySource(X, y, rows=100))
    assert abs(found.value - exact.value) > 0.02 * exact.std_error
    assert found.guarantee == "rough"


@pytest.mark.slow
def test_a_sample_tells_its_error(monkeypatch):
    """Few rows are solved, of many whose bounds are too wide: the mean is within the error that is stated."""
    monkeypatch.setattr("onefit.blocks.mean_over_rows.most_rows", lambda *_: 60)
    inside, kinds = [], set()
    for seed in range(10):
        X, y, _ = table("classes", n=700, p=60, seed=seed)
        model = logistic(0.0, 100.0).fit(X, y)
        exact = onefit.loo(model, X, y, exact=True)
        found = onefit.loo(model, ArraySource(X, y, rows=150))
        kinds.add(found.guarantee)
        assert found.approx_error < 0.5 * exact.std_error
        inside.append(abs(found.value - exact.value) <= found.approx_error)
    assert "sampled" in kinds
    assert sum(inside) >= 9


def test_estimators_tuned_in_passes_rest_on_them():
    X, y, _ = table("classes")
    in_memory = LogisticLOO(Cs=[10.0]).fit(X, y)
    found = LogisticLOO(Cs=[10.0]).fit(ArraySource(X, y, rows=80))
    assert found.loo_.value == pytest.approx(onefit.loo(in_memory, X, y, exact=True).value, rel=1e-6)
    assert found.loo_.guarantee == "exact"


def test_equal_rows_are_solved_once_and_all_known():
    X, y, _ = table("classes", n=120)
    X, y = np.vstack([X, X[:60]]), np.append(y, y[:60])
    model = logistic(0.0, 10.0).fit(X, y)
    exact, found = onefit.loo(model, X, y, exact=True), onefit.loo(model, ArraySource(X, y, rows=50))
    assert found.value == pytest.approx(exact.value, rel=1e-6)


def test_columns_that_depend_on_one_another():
    """All levels of a factor beside an intercept, no penalty: coefficients are open, predictors are not."""
    rng = np.random.default_rng(0)
    levels = np.minimum(rng.zipf(1.7, 300) - 1, 7)
    X = np.hstack([rng.normal(size=(300, 3)), np.eye(8)[levels]])
    y = rng.poisson(np.exp(0.3 * X @ rng.normal(size=11)))
    model = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=10_000).fit(X, y)
    exact, found = onefit.loo(model, X, y, exact=True), onefit.loo(model, ArraySource(X, y, rows=70))
    assert found.value == pytest.approx(exact.value, rel=1e-6)
    assert found.guarantee == "exact"


@pytest.mark.parametrize(("seed", "several"), [(0, 0), (1, 3), (11, 6)])
def test_rows_with_several_optima_are_not_called_known(seed, several):
    """As many levels above zero as below: they and the intercept may move, and a row alone in its level."""
    rng = np.random.default_rng(seed)
    levels = np.minimum(rng.zipf(1.5, 120) - 1, 15)
    X = np.hstack([rng.normal(size=(120, 2)), np.eye(16)[levels]])
    y = (rng.uniform(size=120) < 1 / (1 + np.exp(-X @ rng.normal(size=18)))).astype(int)
    model = logistic(1.0, 20.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        exact, found = onefit.loo(model, X, y, exact=True), onefit.loo(model, ArraySource(X, y, rows=50))
    assert len(exact._left_out.several) == found.n_unknown == several
    assert abs(found.value - exact.value) <= exact.approx_error + 1e-6
    assert found.guarantee == ("rough" if several else "exact")


def test_rows_without_an_optimum_stay_unknown():
    """A level whose rows but one are of one class: without that one its coefficient has no end."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), np.arange(200) < 20])
    y = (rng.uniform(size=200) < 0.5).astype(int)
    y[:20] = np.arange(20) == 0
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y)
    with pytest.warns(UnreliableWarning, match="1 row of whose refits nothing is known"):
        found = onefit.loo(model, ArraySource(X, y, rows=64))
    assert found.n_unknown == 1
    assert found.guarantee == "rough"


def holds(model, X, y, w=None) -> bool:
    """Whether the risk in passes is as near to the exact one as it says."""
    model.fit(X, y, sample_weight=w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        exact = onefit.loo(model, X, y, sample_weight=w, exact=True)
        found = onefit.loo(model, ArraySource(X, y, w, rows=50))
    return bool(abs(found.value - exact.value) <= found.approx_error + 1e-7)


@pytest.mark.parametrize("most", [1, 1000])
class TestBounds:
    """Of rows that are not solved anew, and of those that are."""

    @pytest.fixture(autouse=True)
    def _few(self, most, monkeypatch):
        monkeypatch.setattr("onefit.blocks.mean_over_rows.most_rows", lambda *_: most)

    @pytest.mark.parametrize("alpha", [0.01, 0.02])
    def test_rows_beside_the_support(self, alpha):
        """Levels whose coefficient is zero, and no intercept: the step moves nothing, a refit may."""
        rng = np.random.default_rng(0)
        X, y = np.eye(20)[rng.integers(0, 20, 200)], rng.normal(size=200)
        assert holds(Lasso(alpha, fit_intercept=False, tol=1e-14), X, y)

    def test_coefficients_that_are_put_back_to_zero(self):
        """The row that leaves takes its own curvature along."""
        held = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            X, y = rng.integers(0, 2, (20, 1)).astype(float), rng.normal(size=20)
            model = Lasso(0.03 + 0.1 * rng.uniform(), tol=1e-14)
            held.append(holds(model, X, y, np.where(np.arange(20) == 0, 6.0, 1.0)))
        assert all(held)

    def test_columns_that_enter_beside_a_ridge(self):
        """The null model has no curvature of its own, and columns that enter have some."""
        for seed in range(12):
            rng = np.random.default_rng(seed)
            X, y = rng.normal(size=(30, 10)), rng.normal(size=30)
            found = ElasticNetLOO(fit_intercept=False).fit(ArraySource(X, y))
            ratio = {"l1_ratio": found.l1_ratio_, "fit_intercept": False}
            model = ElasticNet(found.alpha_, tol=1e-14, max_iter=100_000, **ratio).fit(X, y)
            off = abs(found.loo_.value - onefit.loo(model, X, y, exact=True).value)
            assert off <= found.loo_.approx_error + 1e-8

    @pytest.mark.parametrize("weighted", [False, True])
    def test_rows_of_zeros(self, weighted):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 2, (30, 3)).astype(float)
        w = rng.integers(1, 4, 30).astype(float) if weighted else None
        assert np.any(~X.any(axis=1))
        for model, y in (
            (LogisticLOO(fit_intercept=False, selection="min"), rng.integers(0, 2, 30)),
            (PoissonLOO(fit_intercept=False), rng.poisson(1.0, 30)),
            (ElasticNetLOO(fit_intercept=False), rng.normal(size=30)),
        ):
            in_memory = clone(model).fit(X, y, sample_weight=w)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnreliableWarning)
                found = model.fit(ArraySource(X, y, w))
            assert found.loo_.value == pytest.approx(in_memory.loo_.value, abs=0.1 * in_memory.loo_.std_error)


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_a_null_model_is_optimal(alpha):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    model = Lasso(alpha).fit(X, y)
    assert not model.coef_.any()
    found = onefit.loo(model, ArraySource(X, y))
    assert found.value == pytest.approx(onefit.loo(model, X, y, exact=True).value, rel=1e-9)


class TestSample:
    @staticmethod
    def parts(rng, size=1.0):
        blocks = []
        for _ in range(6):
            sizes = rng.exponential(size=50) ** 2 * size
            block = Block(rng.normal(size=(50, 3)), rng.normal(size=50), None)
            blocks.append(DoubtfulRows.of(21, block, np.zeros(3), np.zeros(50), sizes))
        return blocks

    def test_any_order_of_blocks_draws_the_same(self):
        blocks = self.parts(np.random.default_rng(0))
        one, two = reduce(add, blocks), reduce(add, blocks[::-1])
        np.testing.assert_array_equal(one.X, two.X)
        assert one.total == pytest.approx(two.total)
        drawn, chances = one.drawn()
        assert len(drawn.y) == len(chances) == 20

    def test_sums_are_right_on_average(self):
        """Of what each row may change, and of any other value of it."""
        totals, others, truth = [], [], []
        for seed in range(400):
            rng = np.random.default_rng(seed)
            every = reduce(add, self.parts(rng))
            drawn, chances = every.drawn()
            totals.append(np.sum(drawn.sizes / chances) / every.total)
            others.append(np.sum(drawn.sizes * drawn.y / chances))
            truth.append(0.0)
        assert np.mean(totals) == pytest.approx(1.0, abs=4 * np.std(totals) / 20)
        assert np.mean(others) == pytest.approx(0.0, abs=4 * np.std(others) / 20)

    def test_all_are_drawn_where_they_are_few(self):
        block = Block(np.ones((5, 2)), np.arange(5.0), None)
        drawn, chances = DoubtfulRows.of(6, block, np.zeros(2), np.zeros(5), np.arange(5.0)).drawn()
        assert len(drawn.y) == 4  # those that may change
        assert np.all(chances == 1.0)

    def test_how_many(self):
        assert most_rows(300, 40) >= 300
        assert most_rows(10**7, 100) == 100
        assert most_rows(10**7, 5) == 64
        assert most_rows(10**6, 6000) == 1

"""Curved losses in passes over many rows: the curvature of few strengths gives the risks of all."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import onefit
from onefit import LogisticLOO, PoissonLOO
from onefit.blocks import curved
from onefit.blocks.models import Knots
from onefit.blocks.newton import Start, solve_all
from onefit.sources import ArraySource

N, P = 30_000, 40  # more numbers than the sample of rows holds


def table(kind: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, P))
    X = Z + 1.5
    X[:, 1:] += 0.8 * Z[:, :-1]
    eta = (X - 1.5) @ (rng.normal(size=P) * (np.arange(P) < 10) / 5)
    y = (
        np.where(rng.uniform(size=N) < 1 / (1 + np.exp(-eta)), "yes", "no")
        if kind == "classes"
        else rng.poisson(np.exp(eta)).astype(float)
    )
    return X, y, rng.uniform(0.5, 2.0, N)


MODELS = {
    "classes": LogisticLOO(Cs=np.logspace(-4, 3, 12), early_stopping=False),
    "counts": PoissonLOO(alphas=np.logspace(1, -4, 12), early_stopping=False),
}
pytestmark = pytest.mark.filterwarnings("ignore::onefit.ShortPathWarning")


@pytest.mark.costly
@pytest.mark.parametrize(("intercept", "weighted"), [(True, False), (False, True)])
@pytest.mark.parametrize("kind", list(MODELS))
def test_few_knots_give_the_risks_of_all(kind, intercept, weighted, monkeypatch):
    X, y, w = table(kind)
    X = X if intercept else X - 1.5
    source = ArraySource(X, y, w if weighted else None)
    model = clone(MODELS[kind]).set_params(fit_intercept=intercept)
    seen: list[Start] = []

    def noted(rows, models, start, **settings):
        seen.append(start)
        return solve_all(rows, models, start, **settings)

    monkeypatch.setattr(curved, "solve_all", noted)
    few = clone(model).fit(source)
    assert len(seen[0].knots.at) < 10
    assert seen[0].single
    monkeypatch.setattr(curved, "prepared", lambda _, start, __: start)
    every = clone(model).fit(source)
    assert len(seen[2].knots.at) == 12
    assert not seen[2].single
    np.testing.assert_allclose(few.risk_path_, every.risk_path_, rtol=3e-7)
    np.testing.assert_allclose(few.coef_path_, every.coef_path_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(few.paired_error_path_, every.paired_error_path_, rtol=1e-3, atol=1e-9)
    assert few.loo_.value == pytest.approx(every.loo_.value, rel=1e-9)


@pytest.mark.parametrize("kind", list(MODELS))
def test_in_memory_they_are_the_passes_and_the_engine(kind):
    X, y, w = table(kind)
    model = clone(MODELS[kind]).fit(X, y, w)
    strength = model._strength
    amount = getattr(model, f"{strength}_")
    plain = (
        LogisticRegression(C=amount, tol=1e-10, max_iter=1000)
        if kind == "classes"
        else PoissonRegressor(alpha=amount, tol=1e-10, max_iter=1000)
    )
    there = onefit.loo(plain.fit(X, y, w), X, y, w)
    assert model.loo_.value == pytest.approx(there.value, rel=1e-7)
    assert model.loo_.effective_df == pytest.approx(there.effective_df, rel=1e-5)
    np.testing.assert_allclose(model.loo_.decision, there.decision, rtol=1e-5, atol=1e-6)
    streamed = clone(MODELS[kind]).fit(ArraySource(X, y, w, rows=7000))
    assert getattr(streamed, f"{strength}_") == amount
    np.testing.assert_allclose(streamed.risk_path_, model.risk_path_, rtol=1e-7)
    assert streamed.coef_.shape == model.coef_.shape
    np.testing.assert_allclose(streamed.coef_, model.coef_, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("error::onefit.exceptions.UnreliableWarning")
def test_rows_that_passes_tell_nothing_of_are_told_by_the_engine():
    """More of them than the time of some fits would solve: a sample of them does."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12_000, 100))
    eta = X @ (rng.normal(size=100) * (rng.random(100) < 0.5)) / 7.0
    y = (eta + rng.logistic(size=len(X)) > 0).astype(int)
    model = LogisticLOO(l1_ratio=1.0, Cs=[0.052]).fit(X, y)
    assert model.loo_.approx_error <= 0.1 * model.loo_.std_error


def test_strengths_that_miss_the_curvature_of_their_knot_take_it_later():
    """Of few rows of a class the start is bad, and some sum their own while their knot has it first."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(60_000, 20)), np.zeros(60_000, dtype=bool)
    y[rng.choice(len(y), 20, replace=False)] = True
    model = LogisticLOO().fit(ArraySource(X, y))
    assert model.loo_.value == pytest.approx(model.risk_path_.min(), rel=1e-3)


def test_kinks_are_measured_at_every_strength():
    X, y, _ = table("classes")
    model = LogisticLOO(Cs=[0.001, 0.01, 0.1], l1_ratio=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)
        streamed = clone(model).fit(ArraySource(X, y))
    for coef, C in zip(streamed.coef_path_, streamed.Cs_, strict=True):
        plain = LogisticRegression(C=C, l1_ratio=1.0, solver="saga", tol=1e-6, max_iter=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain.fit(X - X.mean(axis=0), y)
        np.testing.assert_allclose(coef, plain.coef_[0], atol=2e-6)
        assert np.count_nonzero(coef) == np.count_nonzero(plain.coef_[0])


def test_knots_are_few_where_columns_are_alike_and_all_where_they_are_not():
    rng = np.random.default_rng(0)
    rows = rng.uniform(1.0, 2.0, (300, 3))
    smooth = rows @ rng.uniform(0.5, 1.0, (3, 8))
    found = Knots.of(smooth, 1e-8)
    assert len(found.at) == 3
    np.testing.assert_allclose(smooth[:, found.at] @ found.shares.T, smooth, rtol=1e-8)
    assert np.all(np.isin(found.nearest, found.at))
    np.testing.assert_array_equal(found.nearest[found.at], found.at)
    assert len(Knots.of(rng.uniform(1.0, 2.0, (300, 5)), 1e-8).at) == 5
    assert len(Knots.of(np.ones((4, 1)), 1e-8).at) == 1


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_where_the_constant_model_is_the_solution_nothing_is_left_to_fall():
    """Of as many rows of each class its gradients add up to zero without rounding."""
    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], 20)
    X = rng.normal(size=(40, 5)) + 0.5 * (y == "yes")[:, None]
    streamed = LogisticLOO(Cs=[1e-3, 1e-2, 1.0], l1_ratio=1.0).fit(ArraySource(X, y))
    assert not streamed.coef_path_[np.array(streamed.Cs_) < 0.1].any()
    plain = LogisticLOO(Cs=[streamed.C_], l1_ratio=1.0).fit(X, y)
    np.testing.assert_allclose(streamed.coef_, plain.coef_, rtol=1e-7)
    np.testing.assert_allclose(streamed.intercept_, plain.intercept_, rtol=1e-7)


def test_a_path_goes_on_where_columns_tell_only_together():
    rng = np.random.default_rng(3)
    signal, noise = rng.normal(size=1500), 100 * rng.normal(size=1500)
    X = np.column_stack([noise, noise + signal, 300 * rng.normal(size=(1500, 3))])
    y = signal + 0.5 * rng.normal(size=1500) > 0
    in_memory, in_blocks = (LogisticLOO(l1_ratio=1.0).fit(*own) for own in ((X, y), (ArraySource(X, y),)))
    assert in_blocks.loo_.value == pytest.approx(in_memory.loo_.value, rel=5e-3)  # a strength apart


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@pytest.mark.parametrize("intercept", [True, False])
def test_a_level_of_few_rows_of_one_class_is_judged_at_every_strength(intercept):
    """No row of a sample tells how its leverage goes with the strength."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(N, P))
    rare = rng.choice(N, 3, replace=False)
    X[:, 4] = 0.0
    X[rare, 4] = 1.0
    y = (0.5 * X[:, 0] - 4.0 * intercept + rng.logistic(size=N) > 0).astype(int)
    y[rare] = 0
    Cs = np.logspace(-6, 2, 9)
    found = LogisticLOO(Cs, fit_intercept=intercept, early_stopping=False, selection="min").fit(X, y)
    for C, risk in zip(Cs[::2], found.risk_path_[::2], strict=True):
        plain = LogisticRegression(C=C, fit_intercept=intercept, tol=1e-10, max_iter=1000).fit(X, y)
        assert risk == pytest.approx(onefit.loo(plain, X, y).value, rel=1e-5)
    assert found.corrected_risk_ == pytest.approx(found.loo_.value, rel=1e-2)

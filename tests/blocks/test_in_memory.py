"""Values of all rows that came in blocks, as those of a table in memory: scores, comparisons, files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge

import onefit
from onefit import LassoLOO, LogisticLOO, RidgeLOO, cost
from onefit.blocks import tuning
from onefit.estimators import self_tuned
from onefit.exceptions import SolverError
from onefit.sources import ArraySource, GeneratedSource

CURVES = {"tol": 1e-10, "max_iter": 10_000}


def table(kind: str, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    eta = X[:, 0] - 0.5 * X[:, 1]
    noisy = eta + rng.logistic(size=n)
    y = {"numbers": noisy, "labels": np.where(noisy > 0, "yes", "no"), "counts": rng.poisson(np.exp(eta))}
    return X, y[kind], rng.integers(0, 3, n).astype(float)


MODELS = [
    (Ridge(3.0), "numbers", ("r2", "mae", "rmse")),
    (LogisticRegression(**CURVES), "labels", ("auc", "brier", "accuracy")),
    (PoissonRegressor(**CURVES), "counts", ("mae", "neg_mean_poisson_deviance")),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("model", "kind", "scores"), MODELS)
def test_they_are_those_of_arrays(model, kind, scores, weighted):
    X, y, w = table(kind)
    w = w if weighted else None
    model.fit(X, y, sample_weight=w)
    arrays = onefit.loo(model, X, y, sample_weight=w, exact=True)
    source = onefit.loo(model, ArraySource(X, y, w, rows=90))
    held = source.in_memory()
    assert (held.value, held.std_error) == (source.value, source.std_error)
    near = 1e-6 if kind == "numbers" else 5e-3  # one step for each row, where a loss is curved
    for name in ("losses", "predictions", "decision", "fitted", "leverages"):
        np.testing.assert_allclose(getattr(held, name), getattr(arrays, name), rtol=10 * near, atol=near)
    assert np.all(np.abs(held.decision - arrays.decision) <= held.bounds + 1e-6)
    assert held.certified.all() == (kind == "numbers")
    assert held.flagged.size <= (2 if kind == "counts" else 0)
    for name in scores:
        assert source.score(name, error=True) == pytest.approx(arrays.score(name, error=True), rel=near)
    assert held.confidence_interval() == pytest.approx(arrays.confidence_interval(), rel=near)
    assert "leave-one-out" in str(held)


def test_rows_that_may_be_off_say_so():
    X, y, _ = table("numbers")
    model = ElasticNet(0.05, tol=1e-10).fit(X, y)
    exact, held = onefit.loo(model, X, y, exact=True), onefit.loo(model, ArraySource(X, y)).in_memory()
    assert held.guarantee == "bounded"
    assert 0 < np.count_nonzero(~held.certified) < 100
    assert np.all(np.abs(held.decision - exact.decision) <= held.bounds + 1e-6)
    np.testing.assert_allclose(held.decision[held.certified], exact.decision[held.certified], rtol=1e-5)
    assert set(held.flagged) <= set(np.flatnonzero(~held.certified))
    assert held.score("mse") == pytest.approx(exact.score("mse"), abs=held.approx_error)


def test_what_needs_X_is_refused():
    X, y, _ = table("numbers")
    held = RidgeLOO().fit(ArraySource(X, y)).loo_.in_memory()
    for ask in (held.coef, held.influence, lambda: held.interval(X)):
        with pytest.raises(ValueError, match=r"nor of blocks: call onefit.loo\(model, X, y\)"):
            ask()


def test_scores_of_a_sample_are_corrected(monkeypatch):
    """Rows that few refits speak for: a score is as near to that of all refits as the risk is."""
    monkeypatch.setattr("onefit.blocks.mean_over_rows.most_rows", lambda *_: 60)
    missed, rough = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.hstack([rng.normal(size=(700, 5)), np.eye(55)[np.minimum(rng.zipf(1.6, 700) - 1, 54)]])
        y = (X @ rng.normal(size=60) + rng.logistic(size=700) > 0).astype(int)
        model = LogisticRegression(C=100.0, **CURVES).fit(X, y)
        exact = onefit.loo(model, X, y, exact=True)
        found = onefit.loo(model, ArraySource(X, y, rows=150))
        assert found.guarantee == "sampled"
        held = found.in_memory()
        assert np.count_nonzero(held.sampled.draw >= 0) == 60
        assert held.score("log-loss") == pytest.approx(found.value, rel=1e-9)
        assert held.approx_error == found.approx_error
        missed.append(held.score("brier") - exact.score("brier"))
        plain = np.mean((held.sampled.predictions[:, 1] - y) ** 2)
        rough.append(plain - exact.score("brier"))
    assert np.abs(missed).mean() < 0.5 * np.abs(rough).mean()


def test_models_of_sources_are_compared():
    X, y, _ = table("numbers")
    source = ArraySource(X, y, rows=70)
    found = onefit.compare(lasso=LassoLOO().fit(source), mean=RidgeLOO([1e9]).fit(source))
    arrays = onefit.compare(lasso=LassoLOO().fit(X, y), mean=RidgeLOO([1e9]).fit(X, y))
    assert found.names == arrays.names
    np.testing.assert_allclose(found.std_error, arrays.std_error, rtol=1e-6)
    np.testing.assert_allclose(found.difference_error, arrays.difference_error, rtol=1e-6)
    with pytest.raises(ValueError, match="leave the same ones"):
        onefit.compare(LassoLOO().fit(source), RidgeLOO().fit(ArraySource(X[:300], y[:300])))


def test_small_sources_are_held_as_they_are():
    X, y, w = table("labels")
    found = LogisticLOO().fit(ArraySource(X, y, w, rows=90)).loo_
    arrays = LogisticLOO().fit(X, y, sample_weight=w).loo_
    assert found.score("auc") == pytest.approx(arrays.score("auc"), rel=1e-3)
    assert found.in_memory().sample_weight is not None


def test_a_saved_estimate_has_left_its_rows():
    X, y, _ = table("numbers")
    saved = pickle.loads(pickle.dumps(RidgeLOO().fit(ArraySource(X, y)).loo_))
    with pytest.raises(ValueError, match="leaves its rows behind"):
        saved.score("r2")


def test_a_file_is_whole_or_as_it_was(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    X, y, _ = table("numbers")
    calls = []

    def blocks():
        calls.append(None)
        for k, start in enumerate(range(0, 400, 100)):
            if len(calls) > last and k == 2:
                raise KeyboardInterrupt
            yield X[start : start + 100], y[start : start + 100]

    last, path = np.inf, tmp_path / "rows.parquet"
    estimate = RidgeLOO().fit(GeneratedSource(blocks)).loo_
    path.write_text("as it was")
    last = len(calls)
    with pytest.raises(KeyboardInterrupt):
        estimate.rows_to(path)
    assert path.read_text() == "as it was"
    assert [one.name for one in tmp_path.iterdir()] == ["rows.parquet"]


def dummies(n, levels, seed=0):
    rng = np.random.default_rng(seed)
    places = np.column_stack([start + rng.integers(0, levels, n) for start in (0, levels, 2 * levels)])
    X = sp.csr_array((np.ones(3 * n), places.ravel(), np.arange(0, 3 * n + 1, 3)), shape=(n, 3 * levels))
    return X, X @ (rng.normal(size=3 * levels) * (rng.random(3 * levels) < 0.1)) + rng.normal(size=n)


def test_a_ridge_of_a_sparse_table_stays_sparse(monkeypatch):
    """Blocks are dense: what they take goes with the number of columns, of which each row has three."""
    X, y = dummies(20_000, 600)
    monkeypatch.setattr(self_tuned, "tune_rows", None)
    assert RidgeLOO().fit(X, y).loo_.value == pytest.approx(1.0, rel=0.2)


def test_rows_that_alone_have_a_level_are_told_in_memory_where_columns_are_many(monkeypatch):
    X, y = dummies(700, 20)
    X = X.toarray()
    X[:, 0], X[:, 20] = 0.0, 0.0
    X[3, 0] = X[5, 20] = 1.0  # rows that alone have a level
    y[[3, 5]] = 30.0
    monkeypatch.setattr(cost, "IN_A_PATH", 0.0)  # nothing is solved anew at first
    asked = []
    monkeypatch.setattr(tuning, "SolverError", lambda text: asked.append(text) or SolverError(text))
    model = LassoLOO(alphas=[0.05, 0.03, 0.02, 0.01], selection="min")
    in_passes = clone(model).fit(X, y)
    monkeypatch.setattr(cost, "ROW_OF_A_PATH", 0.0)
    in_memory, source = clone(model).fit(X, y), clone(model).fit(ArraySource(X, y))
    assert in_memory.loo_.value == pytest.approx(in_passes.loo_.value, rel=1e-6)
    assert source.alpha_ == in_memory.alpha_
    assert len(asked) == 1  # a source has nowhere else to go

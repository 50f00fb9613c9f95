"""Estimators and loo on sources of rows: what they find on arrays in memory."""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import ElasticNetLOO, GeneralizedLinearLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit._whole_file import BEGUN
from onefit.blocks import Block, block_length
from onefit.blocks.curved import CurvedSolver
from onefit.blocks.models import Models
from onefit.blocks.rows import RowSample, SampledRows, rows_of_sample, summarise
from onefit.blocks.written import write_rows
from onefit.cost import is_tall
from onefit.losses import Gamma, Logistic, Poisson, Tweedie
from onefit.metrics import Deviance, LogLoss
from onefit.penalties import L2
from onefit.penalties import ElasticNet as Net
from onefit.sources import ArraySource, GeneratedSource
from onefit.sources.base import LocalSource
from onefit.sources.checks import Layout

N, P = 12_000, 10  # enough for passes over the rows in memory, too


def table(kind: str = "numbers", n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, P)) + 2.0
    eta = (X - 2.0) @ (rng.normal(size=P) * (np.arange(P) < 6) / 3)
    y = {
        "numbers": lambda: eta + rng.normal(size=n),
        "classes": lambda: np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-eta)), "yes", "no"),
        "counts": lambda: rng.poisson(np.exp(eta)).astype(float),
        "times": lambda: rng.gamma(2.0, np.exp(eta)),
    }[kind]()
    return X, y, rng.uniform(0.5, 2.0, n)


def expect_same(streamed, here, rtol: float = 1e-8) -> None:
    strength = here._strength
    for name in (f"{strength}s_", "risk_path_", "std_error_path_", "coef_path_", "intercept_path_"):
        assert np.allclose(getattr(streamed, name), getattr(here, name), rtol=rtol, atol=1e-10), name
    assert getattr(streamed, f"{strength}_") == pytest.approx(getattr(here, f"{strength}_"))
    assert streamed.coef_.shape == here.coef_.shape
    assert np.shape(streamed.intercept_) == np.shape(here.intercept_)
    assert streamed.loo_.value == pytest.approx(here.loo_.value, rel=1e-8)
    assert streamed.loo_.std_error == pytest.approx(here.loo_.std_error, rel=1e-8)
    assert streamed.loo_.effective_df == pytest.approx(here.loo_.effective_df, rel=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "model", [RidgeLOO(30), LassoLOO(30), ElasticNetLOO(20, l1_ratio=[0.3, 0.9])], ids=repr
)
def test_squared_loss(model, weighted):
    X, y, w = table()
    w = w if weighted else None
    single = 1e-6 if isinstance(model, RidgeLOO) else 1e-8  # precision of passes, where arrays take none
    expect_same(clone(model).fit(ArraySource(X, y, w, rows=5000)), clone(model).fit(X, y, w), single)


@pytest.mark.parametrize("intercept", [False, True])
def test_every_source_of_the_same_rows(tmp_path, intercept):
    pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    import pyarrow.parquet as pq

    X, y, _ = table()
    X[X < 1.0] = 0.0
    here = LassoLOO(20, fit_intercept=intercept).fit(X, y)
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    names = [f"x{j}" for j in range(P)]
    for k in range(3):
        own = slice(4000 * k, 4000 * k + 4000)
        columns = dict(zip(names, X[own].T, strict=True)) | {"price": y[own]}
        pq.write_table(pa.table(columns), tmp_path / f"part{k}.parquet")
    model = LassoLOO(20, fit_intercept=intercept)
    for source in (
        ArraySource(np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="r", shape=X.shape), y, rows=3000),
        ArraySource(sp.csr_array(X), y, rows=5000),
        GeneratedSource(lambda: iter([(X[:7000], y[:7000]), (X[7000:], y[7000:])])),
    ):
        expect_same(clone(model).fit(source), here)
    (tmp_path / "X.bin").unlink()
    from_folder = clone(model).fit(str(tmp_path), "price")
    expect_same(from_folder, here)
    assert from_folder.feature_names_in_.tolist() == names


CURVED = {
    "classes": LogisticLOO(Cs=[0.01, 0.1, 1.0], selection="min"),
    "counts": PoissonLOO(alphas=[1.0, 0.1, 0.01], selection="min"),
}


@pytest.mark.parametrize(("intercept", "weighted"), [(True, False), (False, True)])
@pytest.mark.parametrize("kind", list(CURVED))
def test_curved_losses(kind, intercept, weighted):
    X, y, w = table(kind)
    X = X - 2.0
    w = w if weighted else None
    model = clone(CURVED[kind]).set_params(fit_intercept=intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.ShortPathWarning)
        expect_same(clone(model).fit(ArraySource(X, y, w, rows=5000)), clone(model).fit(X, y, w))


def test_automatic_strengths_are_those_in_memory():
    X, y, _ = table("classes")
    here, streamed = LogisticLOO(8).fit(X, y), LogisticLOO(8).fit(ArraySource(X, y))
    assert np.allclose(streamed.Cs_, here.Cs_, rtol=1e-9)
    assert np.allclose(streamed.coef_path_, here.coef_path_, rtol=1e-6, atol=1e-8)
    assert np.allclose(streamed.risk_path_, here.risk_path_, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_automatic_strengths_with_an_l1_part():
    X, y, _ = table("classes", n=1000)
    model = LogisticLOO(8, l1_ratio=0.5, early_stopping=False)
    here, streamed = clone(model).fit(X, y), clone(model).fit(ArraySource(X, y))
    shared = min(len(here.Cs_), len(streamed.Cs_))
    assert np.allclose(streamed.Cs_[:shared], here.Cs_[:shared], rtol=1e-9)
    assert np.allclose(streamed.coef_path_[:shared], here.coef_path_[:shared], rtol=1e-6, atol=1e-8)


# --- one step, and how far it may be off -------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ratio", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["classes", "counts"])
def test_bounds_hold_against_refits(kind, ratio, weighted):
    X, y, w = table(kind, n=120)
    w = w if weighted else np.ones(len(X))
    if kind == "classes":
        y = (y == "yes").astype(float)
        metric, loss = LogLoss(np.array([0.0, 1.0])), Logistic()
    else:
        metric, loss = Deviance(Poisson()), Poisson()
    mean_scaled, scale = kind == "counts", w.sum() if kind == "counts" else 1.0
    rows = ArraySource(X, y, w, rows=50)
    summary = rows.total(partial(summarise, classes=kind == "classes"))
    models = Models(loss, metric, (), True, mean_scaled)
    solver = CurvedSolver(rows, summary, models, lambda a: Net(a * scale, ratio) if ratio else L2(a * scale))
    strength = 2.0 if kind == "classes" else 0.05
    solver.path(np.array([strength]))
    chosen = solver.chosen(strength)
    parts = list(rows.each(chosen.left_out))
    found = np.concatenate([part.left_out for part in parts])
    bounds = np.concatenate([part.bounds for part in parts])
    penalty = onefit.penalties.ElasticNet(strength, ratio) if ratio else onefit.penalties.L2(strength)
    exact = refitted(X, y, w, loss, penalty, mean_scaled=mean_scaled)
    assert np.all(np.abs(found - exact) <= bounds + 1e-8)
    assert np.median(bounds) < 0.2


def refitted(X, y, w, loss, penalty, *, mean_scaled) -> np.ndarray:
    """Linear predictor of each row by the model that was fitted without it."""
    from onefit.fit import Fit
    from onefit.problem import Problem
    from onefit.solvers.solve import solve

    eta = np.empty(len(X))
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        own = penalty.scaled(w[kept].sum()) if mean_scaled else penalty
        fit = solve(Fit.at_start(Problem(loss, own, X[kept], y[kept], w[kept]))).fit
        eta[i] = X[i] @ fit.coef + fit.intercept
    return eta


# --- onefit.loo --------------------------------------------------------------------------------------------

FITTED = [
    (Ridge(3.0), "numbers"),
    (LinearRegression(), "numbers"),
    (Lasso(0.02, tol=1e-10), "numbers"),
    (ElasticNet(0.05, tol=1e-10), "numbers"),
    (LogisticRegression(C=0.1, tol=1e-8), "classes"),
    (PoissonRegressor(alpha=0.1, tol=1e-8), "counts"),
    (GammaRegressor(alpha=0.1, tol=1e-8), "times"),
    (TweedieRegressor(power=1.5, alpha=0.1, tol=1e-8), "counts"),
    (make_pipeline(StandardScaler(), Ridge(3.0)), "numbers"),
    (LassoLOO([0.1, 0.05]), "numbers"),
]


@pytest.mark.parametrize(("model", "kind"), FITTED, ids=lambda given: type(given).__name__)
def test_loo_of_a_fitted_model(model, kind):
    X, y, _ = table(kind, n=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.ShortPathWarning)
        model = clone(model).fit(X, y)
    here, streamed = onefit.loo(model, X, y), onefit.loo(model, ArraySource(X, y, rows=1000))
    assert abs(streamed.value - here.value) <= streamed.approx_error + here.approx_error + 1e-8 * here.value
    assert streamed.std_error == pytest.approx(here.std_error, rel=1e-3)
    assert streamed.effective_df == pytest.approx(here.effective_df, rel=1e-6)
    assert streamed.n_rows == 3000
    assert streamed.guarantee in ("exact", "bounded")
    assert streamed.approx_error <= 0.02 * streamed.std_error


def test_pipelines_see_the_names_of_columns():
    """In any order, where they choose by name; models alone in the order that they were fitted on."""
    X, y, _ = table("numbers", n=600)
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    chosen = ColumnTransformer([("scaled", StandardScaler(), ["c", "a"])])
    model = make_pipeline(chosen, Ridge(3.0)).fit(frame, y)
    exact = onefit.loo(model, frame, y)
    for columns in (["a", "b", "c"], ["c", "b", "a"]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = onefit.loo(model, ArraySource(frame[columns], y, rows=200))
        assert found.value == pytest.approx(exact.value, rel=1e-9)
    with pytest.raises(ValueError, match="column 0 of the source is 'c', where this Ridge was fitted on 'a'"):
        onefit.loo(Ridge().fit(frame, y), ArraySource(frame[["c", "b", "a"]], y))


def test_steps_that_learn_from_y_are_warned_of():
    X, y, _ = table("numbers", n=3000)
    model = make_pipeline(SelectKBest(f_regression, k=2), Ridge()).fit(X, y)
    with pytest.warns(onefit.UnreliableWarning, match=r"learn from y \(selectkbest\)"):
        streamed = onefit.loo(model, ArraySource(X, y))
    assert str(streamed).count("exact: what refitting without each would give (see note)") == 1


def test_weights_of_a_fitted_model():
    X, y, w = table(n=3000)
    model = Ridge(3.0).fit(X, y, w)
    streamed = onefit.loo(model, ArraySource(X, y, w, rows=1000))
    assert streamed.value == pytest.approx(onefit.loo(model, X, y, w).value, rel=1e-9)


def test_what_blocks_are_not_enough_for():
    X, y, _ = table(n=500)
    labels = np.where(y > 0, "a", "b")
    with pytest.raises(onefit.UnsupportedModelError, match="which this HuberRegressor is not"):
        onefit.loo(HuberRegressor().fit(X, y), ArraySource(X, y))
    balanced = LogisticRegression(class_weight="balanced").fit(X, labels)
    with pytest.raises(onefit.UnsupportedModelError, match="without balanced classes"):
        onefit.loo(balanced, ArraySource(X, labels))
    model = Ridge().fit(X, y)
    with pytest.raises(ValueError, match="groups needs all rows at once"):
        onefit.loo(model, ArraySource(X, y), groups=np.arange(500))
    with pytest.raises(ValueError, match="audit needs all rows at once"):
        onefit.loo(model, ArraySource(X, y), audit=30)
    for given in (0, 0.01, 1.0):
        with pytest.raises(ValueError, match="max_error needs all rows at once: leave it out"):
            onefit.loo(model, ArraySource(X, y), max_error=given)
        with pytest.raises(ValueError, match="max_error needs all rows at once: leave it out"):
            onefit.evaluate(model, ArraySource(X, y), None, onefit.risk.LeaveOneOut(), max_error=given)
    with pytest.raises(TypeError, match="max_error must be a number of standard errors"):
        onefit.loo(model, ArraySource(X, y), max_error="small")
    assert onefit.loo(model, ArraySource(X, y), max_error=0.1).n_rows == 500
    with pytest.raises(onefit.NotFittedToDataError, match="far from optimal on these data"):
        onefit.loo(model, ArraySource(X, y[::-1] + 5.0))


# --- what is kept, and what is refused ---------------------------------------------------------------------


def test_rows_go_to_a_file(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    X, y, _ = table("classes", n=2000)
    model = LogisticLOO(Cs=[0.1]).fit(ArraySource(X, y, rows=700))
    model.loo_.rows_to(tmp_path / "rows.parquet")
    found, here = pq.read_table(tmp_path / "rows.parquet"), LogisticLOO(Cs=[0.1]).fit(X, y).loo_
    assert found["y"].to_pylist() == y.tolist()
    assert np.allclose(found["decision"], here.decision, rtol=1e-5)
    assert np.allclose(found["probability_yes"], here.predictions[:, 1], rtol=1e-5)
    assert np.allclose(found["leverage"], here.leverages, rtol=1e-8)
    assert np.mean(found["loss"]) == pytest.approx(model.loo_.value, rel=1e-10)
    assert np.all(np.asarray(found["bound"]) >= 0)


def test_rows_of_a_pass_that_fails_leave_the_file_as_it_was(tmp_path):
    pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    path, during = tmp_path / "rows.parquet", []
    path.write_bytes(b"old")
    (abandoned := tmp_path / f"{BEGUN}x.part").touch()
    os.utime(abandoned, (0, 0))

    def parts(fails):
        yield {"y": [1.0, 2.0]}
        during.extend(one.name for one in tmp_path.iterdir())
        if fails:
            raise ValueError("no more")
        yield {"y": [3.0]}

    with pytest.raises(ValueError, match="no more"):
        write_rows(path, parts(True))
    assert path.read_bytes() == b"old"
    assert sum(name.startswith(BEGUN) for name in during) == 2
    assert {one.name for one in tmp_path.iterdir()} == {"rows.parquet", abandoned.name}
    write_rows(path, parts(False))
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_model_leaves_its_source_behind(tmp_path):
    X, y, _ = table(n=2000)
    model = pickle.loads(pickle.dumps(LassoLOO(5).fit(ArraySource(X, y))))
    assert model.predict(X).shape == (2000,)
    assert "leave-one-out squared error" in str(model.loo_)
    with pytest.raises(ValueError, match="leaves its rows behind"):
        model.loo_.rows_to(tmp_path / "rows.parquet")


class Shrinking(LocalSource):
    """A source that does not look at what it gives."""

    names = None

    def __init__(self, make, X):
        self._make, self._layout = make, Layout.of("block 0", X)

    def named_blocks(self):
        for X, y in self._make():
            yield self._layout.named("a block", X, y, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Shrinking, "saw 2000 of them where the first saw 3000"),
        (lambda make, _: GeneratedSource(make), "saw 2000 of them where the first saw 3000"),
    ],
    ids=["any", "generated"],
)
def test_a_source_must_give_the_same_rows_each_time(source, message):
    X, y, _ = table(n=3000)
    for model, own in ((LassoLOO(5), y), (LogisticLOO(Cs=[1.0, 0.1]), y > 0)):
        calls = []

        def make(own=own, calls=calls):
            calls.append(None)
            yield X[:2000], own[:2000]
            if len(calls) < 3:
                yield X[2000:], own[2000:]

        with pytest.raises(ValueError, match=message):
            model.fit(source(make, X))


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (PoissonLOO(), -1.0, r"block 1 .*: this model \(Poisson\) needs y >= 0, but y\[3\] = -1"),
        (
            GeneralizedLinearLOO(Gamma(), L2(1.0)),
            0.0,
            r"block 1 .*: this model \(gamma\) needs y > 0, but y\[3\] = 0",
        ),
        (GeneralizedLinearLOO(Tweedie(0.0), L2(1.0)), -1e6, "the mean of y is -5e.03, and only means above"),
        (LassoLOO(), "a", r"block 1 .* could not convert"),
        (LogisticLOO(), "a", "rows in blocks are for two classes, y has"),
        (LassoLOO(cv=5), 0.0, "cv needs all rows at once"),
        (LassoLOO(positive=True), 0.0, "positive needs all rows at once"),
        (LogisticLOO(class_weight="balanced"), 0.0, "class_weight needs all rows at once"),
    ],
)
def test_bad_responses_and_parameters(model, y, message):
    X, own, _ = table("counts", n=200)
    own = own + 1.0
    if isinstance(y, str):
        own = own.astype(int).astype(str)
        own[103] = y
    else:
        own[103] = y
    with pytest.raises(ValueError, match=message):
        model.fit(ArraySource(X, own, rows=100))


def test_a_single_class_and_a_single_row():
    X, _, _ = table(n=200)
    with pytest.raises(ValueError, match=r"at least 2 classes .* only one class: 'x'"):
        LogisticLOO().fit(ArraySource(X, np.full(200, "x")))
    with pytest.raises(ValueError, match="at least 2 rows with weight, there are 1"):
        LogisticLOO().fit(ArraySource(X[:1], np.zeros(1)))
    with pytest.raises(ValueError, match="at least 2 rows with weight, there are 1"):
        RidgeLOO().fit(ArraySource(X, np.arange(200.0), np.eye(200)[0]))


def test_a_column_out_of_range_is_named():
    X, y, _ = table("counts", n=200)
    X[:, 3] *= 1e150
    with pytest.raises(ValueError, match="column 3 of X has entries of up to"):
        PoissonLOO().fit(ArraySource(X, y))


@pytest.mark.parametrize("model", [RidgeLOO(30), LassoLOO(30), LogisticLOO(Cs=[0.01, 1.0])], ids=repr)
def test_single_precision_is_read_as_it_is_and_judged_in_double(model, tmp_path):
    X, y, _ = table("classes" if isinstance(model, LogisticLOO) else "numbers")
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="w+", shape=X.shape)
    mapped[:] = X
    source = ArraySource(mapped, y, rows=5000)
    assert {block.X.dtype for block in source.each(lambda block: block)} == {np.dtype(np.float32)}
    found = clone(model).fit(source)
    assert found.coef_.dtype == found.risk_path_.dtype == np.float64
    expect_same(found, clone(model).fit(ArraySource(mapped.astype(np.float64), y, rows=5000)))
    pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    import pyarrow.parquet as pq

    columns = {f"x{j}": np.array(mapped[:, j]) for j in range(P)} | {"y": y}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    expect_same(clone(model).fit(tmp_path / "table.parquet", "y"), found)


@pytest.mark.parametrize("model", [LassoLOO(30), LogisticLOO(Cs=[0.01, 1.0])], ids=repr)
def test_threads_share_the_blocks_of_a_pass(model, monkeypatch):
    X, y, w = table("classes" if isinstance(model, LogisticLOO) else "numbers")
    source = ArraySource(X, y, w, rows=1000)
    alone = clone(model).fit(source)
    seen: set[int] = set()
    parts = Block.parts

    def noted(block):
        seen.add(threading.get_ident())
        return parts(block)

    monkeypatch.setattr(Block, "parts", noted)
    shared = clone(model).set_params(n_jobs=3).fit(source)
    assert len(seen - {threading.get_ident()}) > 1
    assert shared.loo_.value == alone.loo_.value
    assert np.array_equal(shared.risk_path_, alone.risk_path_)
    X[4500, 3] = np.nan
    with pytest.raises(ValueError, match=r"block 4 \(rows 4000 to 4999\) has NaN in column 3, row 4500:"):
        shared.fit(ArraySource(X, y, w, rows=1000))


def test_samples_are_evenly_spaced_however_blocks_are_joined():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 600))

    def part(rows: slice) -> RowSample:
        own = X[rows]
        return RowSample((SampledRows(own, np.arange(9000)[rows], np.ones(len(own))),)).thinned()

    joined = part(slice(0, 1000)) + (part(slice(1000, 5000)) + part(slice(5000, 9000)))
    one = joined.rows
    assert len(one.X) == len(one.y) == len(one.weights) <= rows_of_sample(600)
    assert len(one.X) >= 0.5 * rows_of_sample(600)
    assert np.all(np.diff(one.y) <= joined.stride)
    assert np.array_equal(one.X, X[one.y])


@pytest.mark.parametrize("p", [1, 10, 300, 500, 5000])
def test_blocks_have_as_many_rows_as_columns_and_samples_far_more(p):
    assert block_length(p) >= p
    assert is_tall(rows_of_sample(p), p)


def test_refits_go_to_a_cluster_by_joblib():
    distributed = pytest.importorskip("distributed", reason="joblib's backend for Dask needs distributed")
    from joblib import parallel_config
    from sklearn.ensemble import RandomForestRegressor

    X, y, _ = table(n=100)
    forest = RandomForestRegressor(2, random_state=0).fit(X, y)
    here = onefit.loo(forest, X, y, audit=4, rng=0).audit
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
        parallel_config(backend="dask"),
    ):
        there = onefit.loo(forest, X, y, audit=4, rng=0).audit
    assert here.value == there.value

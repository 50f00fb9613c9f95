"""Dask collections as sources of rows: the same answers wherever the partitions are, and whoever dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask.dataframe", reason="partitions on a cluster need dask")
pytest.importorskip("distributed", reason="partitions on a cluster need distributed")
import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

from blocks.two_workers import PARTS, N, P, as_dask, expect_same, table
from onefit import LassoLOO
from onefit.dask import DaskSource
from onefit.sources import as_source

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of sockets that distributed leaves open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def frame(X: np.ndarray, y: np.ndarray) -> dd.DataFrame:
    return dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(price=y), npartitions=PARTS)


def test_arrays_and_data_frames_on_threads():
    X, y = table()
    here = LassoLOO().fit(as_source(lambda: iter([(X, y)])))
    expect_same(LassoLOO().fit(as_dask(X), as_dask(y)), here)
    model = LassoLOO().fit(frame(X, y), "price")
    expect_same(model, here)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_weights_by_name_and_beside():
    X, y = table()
    w = np.random.default_rng(1).uniform(0.5, 2.0, N)
    here = LassoLOO().fit(as_source(lambda: iter([(X, y, w)])))
    expect_same(LassoLOO().fit(as_dask(X), as_dask(y), as_dask(w)), here)
    expect_same(LassoLOO().fit(frame(X, y).assign(w=frame(X, w)["price"]), "price", "w"), here)


def test_columns_in_several_chunks_are_joined():
    X, y = table()
    source = DaskSource(da.from_array(X, chunks=(100, 2)), da.from_array(y, chunks=100))
    assert source.total(lambda block: block.X.shape[1]) == P * PARTS


def test_two_workers_and_one_that_dies(tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("two_workers.py")), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("onefit.dask.WAIT", 0.5)
    X, y = table()
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        DaskSource(as_dask(X), as_dask(y), scheduler="tcp://127.0.0.1:9")


def nan_at_7(part: pd.DataFrame, partition_info: dict | None = None) -> pd.DataFrame:
    if partition_info is None or partition_info["number"] != 7:
        return part
    part = part.copy()
    part.iloc[2, 3] = np.nan
    return part


def empty_at_4(part: pd.DataFrame, partition_info: dict | None = None) -> pd.DataFrame:
    return part if partition_info is None or partition_info["number"] != 4 else part[:0]


def test_partitions_that_a_filter_leaves_empty_are_passed_over():
    X, y = table()
    found = LassoLOO().fit(frame(X, y).map_partitions(empty_at_4), "price")
    size = len(y) // PARTS
    held = np.delete(np.arange(len(y)), np.arange(4 * size, 5 * size))
    whole = LassoLOO().fit(X[held], y[held])
    assert found.alpha_ == pytest.approx(whole.alpha_)
    np.testing.assert_allclose(found.coef_, whole.coef_, atol=1e-9)
    with pytest.raises(ValueError, match="the source has no rows"):
        LassoLOO().fit(frame(X, y).map_partitions(lambda part: part[:0]), "price")


def test_bad_partitions_are_named():
    X, y = table()
    table_ = frame(X, y)
    with pytest.raises(ValueError, match="partition 7 has NaN in column 'd', row 2"):
        LassoLOO().fit(table_.map_partitions(nan_at_7), "price")
    with pytest.raises(ValueError, match="target of partition 7 is missing"):
        LassoLOO().fit(table_.map_partitions(nan_at_7), "d")
    ragged = da.concatenate(
        [
            da.from_delayed(dask.delayed(np.ones)((100, 3 if k == 5 else P)), (100, P), float)
            for k in range(PARTS)
        ]
    )
    with pytest.raises(ValueError, match="partition 5 has 3 columns, X has 4"):
        LassoLOO().fit(ragged, as_dask(y))


def test_bad_collections_are_refused():
    X, y = table()
    with pytest.raises(ValueError, match="y has 4 partitions, X has 8: they must be partitioned alike"):
        DaskSource(as_dask(X), da.from_array(y, chunks=200))
    with pytest.raises(ValueError, match="y='cost' is no column of the table: it has a, b, c, d, price"):
        DaskSource(frame(X, y), "cost")
    with pytest.raises(TypeError, match="y must be a Dask collection like X, got ndarray"):
        DaskSource(as_dask(X), y)
    with pytest.raises(TypeError, match="X must be a Dask array or DataFrame, got ndarray"):
        DaskSource(X, y)

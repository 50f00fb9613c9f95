"""Data, storage formats and the slow reference: refits without each row."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from threadpoolctl import threadpool_limits

FEW = 8  # cases of a test that all run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a product of three parameters or more, run cases in which every pair of values occurs.

    The others are slow.  Nearly every fault that depends on parameters depends on one or two of them (Kuhn,
    Wallace and Gallo 2004, "Software fault interactions and implications for software testing").  Of a costly
    test, cases in which every value occurs.
    """
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            cases[item.nodeid.split("[")[0]].append(item)
    for own in cases.values():
        is_costly = own[0].get_closest_marker("costly") is not None
        if is_costly or (len(own) > FEW and len(own[0].callspec.params) > 2):
            kept = _covering([_values(item) for item in own], 1 if is_costly else 2)
            for number, item in enumerate(own):
                if number not in kept:
                    item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What draws from the generators that all share draws the same in every run, in whatever order."""
    np.random.seed(0)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


def _values(item) -> set[tuple[str, Any]]:
    return {
        (name, value if isinstance(value, str | float | int | None) else id(value))
        for name, value in item.callspec.params.items()
    }


def _covering(cases: list[set[tuple[str, Any]]], size: int) -> set[int]:
    """Cases in which every combination of so many values occurs, each the one that has most new ones."""
    parts = [{frozenset(part) for part in combinations(case, size)} for case in cases]
    missing, kept = set().union(*parts), set()
    while missing:
        best = max(range(len(parts)), key=lambda number: len(parts[number] & missing))
        missing -= parts[best]
        kept.add(best)
    return kept


def _read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def _every_other_column(X):
    wide = np.zeros((X.shape[0], 2 * X.shape[1]))
    wide[:, ::2] = X
    return wide[:, ::2]


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "C order": np.ascontiguousarray,
    "F order": np.asfortranarray,
    "read-only": _read_only,
    "strided": _every_other_column,
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Small problems in many threads are slow, above all where other processes run."""
    with threadpool_limits(1):
        yield


@pytest.fixture(params=STORAGES, ids=str)
def store(request):
    """Every way in which X may be stored."""
    return STORAGES[request.param]


def _weights(kind: str, n: int):
    rng = np.random.default_rng(11)
    if kind == "unweighted":
        return None
    if kind == "integers and zeros":
        return rng.integers(0, 4, n).astype(float)
    return rng.uniform(0.2, 3.0, n)


@pytest.fixture(params=["unweighted", "integers and zeros", "real weights"])
def weigh(request):
    """Weights of n rows, or None: a function of n."""
    return lambda n: _weights(request.param, n)


@pytest.fixture(params=[True, False], ids=["intercept", "no intercept"])
def fit_intercept(request):
    return request.param


@pytest.fixture
def refits():
    """Left-out predictions by refitting, row after row."""
    return _refits


def _refits(model, X, y, method="predict", sample_weight=None, rows=None):
    n = X.shape[0]
    X = X.tocsr() if sp.issparse(X) else np.asarray(X)
    y, precomputed = np.asarray(y), getattr(model, "kernel", None) == "precomputed"
    out = []
    for i in range(n) if rows is None else rows:
        kept = np.flatnonzero(np.arange(n) != i)
        weights = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)[kept]}
        inside = X[np.ix_(kept, kept)] if precomputed else X[kept]
        outside = X[[i]][:, kept] if precomputed else X[[i]]
        out.append(getattr(clone(model).fit(inside, y[kept], **weights), method)(outside)[0])
    return np.array(out)


@pytest.fixture
def data_folder() -> Path:
    """Folder of the real data sets: ONEFIT_DATA, or ``shared/data`` beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ONEFIT_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}: set ONEFIT_DATA")
    return folder

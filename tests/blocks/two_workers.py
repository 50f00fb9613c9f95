"""Fits on two processes of Dask, one of which dies: a program of its own, which ends whatever Dask does.

A LocalCluster gives up a worker that is not back 15 seconds after its death, and begins no other: on a
machine with more to do than it can, all may be lost so, and Dask waits for ever.  Here it waits longer, and
the test ends this program if it does not end by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from onefit import LassoLOO, LogisticLOO
from onefit.dask import DaskSource
from onefit.sources import as_source

N, P, PARTS = 800, 4, 8
WAIT = 240  # seconds for workers to come or to answer


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=N)


def partition(X: np.ndarray, k: int, folder: str | None = None) -> np.ndarray:
    """One partition; the worker that makes number 3 for the first time dies of it."""
    if folder is not None and k == 3 and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os._exit(1)
    return X[k * N // PARTS : (k + 1) * N // PARTS]


def as_dask(X: np.ndarray, folder: str | None = None) -> da.Array:
    parts = [
        da.from_delayed(dask.delayed(partition)(X, k, folder), (N // PARTS, *X.shape[1:]), X.dtype)
        for k in range(PARTS)
    ]
    return da.concatenate(parts)


def expect_same(model, other) -> None:
    assert np.allclose(model.risk_path_, other.risk_path_, rtol=1e-8, atol=0)
    assert np.allclose(model.coef_path_, other.coef_path_, rtol=1e-8, atol=1e-10)
    assert np.isclose(model.loo_.value, other.loo_.value, rtol=1e-8)


def main(folder: str) -> None:
    X, y = table()
    makers = {LassoLOO: y, LogisticLOO: (y > 0).astype(int)}
    here = {kind: kind(5).fit(as_source(lambda own=own: iter([(X, own)]))) for kind, own in makers.items()}
    limits = {
        f"distributed.{name}": f"{WAIT}s"
        for name in ("deploy.lost-worker-timeout", "comm.timeouts.connect", "comm.timeouts.tcp")
    }
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with dask.config.set(limits), LocalCluster(**options) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=WAIT)
        for kind, own in makers.items():
            expect_same(kind(5).fit(as_dask(X), as_dask(own)), here[kind])
        pids = set(client.run(os.getpid).values())
        died = LassoLOO(5).fit(as_dask(X, folder), as_dask(y))
        assert (Path(folder) / "died").exists()
        expect_same(died, here[LassoLOO])
        client.wait_for_workers(2, timeout=WAIT)
        assert set(client.run(os.getpid).values()) != pids
        by_address = DaskSource(as_dask(X), as_dask(y), scheduler=cluster.scheduler_address)
        expect_same(LassoLOO(5).fit(by_address), here[LassoLOO])


if __name__ == "__main__":
    main(sys.argv[1])

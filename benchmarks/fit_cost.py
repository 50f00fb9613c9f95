"""Fit the constants of the cost model on this machine: python benchmarks/fit_cost.py.

Each operation is timed at several sizes, the fastest of many runs in process time on one thread, and
a + b · (multiply-adds or entries) is fitted to the times in relative error: a is what a call costs, b what
one more multiply-add costs.  The table has a line an operation; below it stand the constants, each the
median over the operations it is for, beside those that ``onefit.cost`` has.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import blas, lapack
from scipy.optimize import nnls
from scipy.special import expit
from threadpoolctl import threadpool_limits

SECONDS = 0.05  # that each size is measured for, at least
SMALL, LARGE = (2, 8, 20, 50), (100, 200, 400)


@dataclass(frozen=True)
class Operation:
    """A routine, and how much of it there is at a size.

    Attributes
    ----------
    name, kind : str
        The kind says which constant it helps to fit: "flop", "memory" or "function".
    make : callable
        From the size to what is to be timed.
    amount : callable
        From the size to multiply-adds, or entries for a function.
    """

    name: str
    kind: str
    make: Callable[[np.random.Generator, int], Callable[[], object]]
    amount: Callable[[int], float]


@dataclass(frozen=True)
class Rate:
    """Seconds a call, and seconds a multiply-add or an entry; ``misfit`` is the largest relative error."""

    name: str
    kind: str
    per_call: float
    per_unit: float
    misfit: float


def _matrix(rng, rows, columns):
    return np.asfortranarray(rng.normal(size=(rows, columns)))


def _syrk(rng, k):
    A = _matrix(rng, k, 4 * k)
    return lambda: blas.dsyrk(1.0, A)


def _gemm(rng, k):
    A, B = _matrix(rng, k, k), _matrix(rng, k, k)
    return lambda: A @ B


def _potrf(rng, k):
    A = _matrix(rng, k, k)
    K = np.asfortranarray(A @ A.T + k * np.eye(k))
    return lambda: lapack.dpotrf(K, lower=1)


def _trsm(rng, k):
    L = np.asfortranarray(np.tril(_matrix(rng, k, k)) + k * np.eye(k))
    B = _matrix(rng, k, 4 * k)
    return lambda: blas.dtrsm(1.0, L, B, lower=1)


def _gemv(rng, k):
    A, v = _matrix(rng, 4 * k, k), rng.normal(size=k)
    return lambda: A @ v


def _elementwise(rng, k):
    a, b = rng.normal(size=k * k), rng.normal(size=k * k)
    return lambda: a * b


def _exponential(rng, k):
    a = rng.normal(size=k * k)
    return lambda: np.exp(a)


def _logistic(rng, k):
    a = rng.normal(size=k * k)
    return lambda: expit(a)


OPERATIONS = (
    Operation("syrk", "flop", _syrk, lambda k: 2.0 * k**3),
    Operation("gemm", "flop", _gemm, lambda k: 1.0 * k**3),
    Operation("potrf", "flop", _potrf, lambda k: k**3 / 6.0),
    Operation("trsm", "flop", _trsm, lambda k: 2.0 * k**3),
    Operation("gemv", "memory", _gemv, lambda k: 4.0 * k**2),
    Operation("product of entries", "memory", _elementwise, lambda k: 1.0 * k**2),
    Operation("exp", "function", _exponential, lambda k: 1.0 * k**2),
    Operation("logistic", "function", _logistic, lambda k: 1.0 * k**2),
)
CONSTANTS = {"PER_FLOP": "flop", "PER_ENTRY": "memory", "PER_FUNCTION": "function"}


def fastest(run: Callable[[], object]) -> float:
    """Process time of a call: the fastest of batches that are long enough for the clock."""
    run()
    batch, best, spent = 1, np.inf, 0.0
    while spent < SECONDS:
        start = time.process_time()
        for _ in range(batch):
            run()
        took = time.process_time() - start
        spent += took
        if took < 1e-3:
            batch *= 2
            continue
        best = min(best, took / batch)
    return best if np.isfinite(best) else took / batch


def rate(operation: Operation, rng: np.random.Generator) -> Rate:
    """Fit a + b · amount to the times, in relative error and with both at least 0."""
    sizes = SMALL + LARGE
    times = np.array([fastest(operation.make(rng, k)) for k in sizes])
    design = np.stack([np.ones(len(sizes)), [operation.amount(k) for k in sizes]], axis=1)
    scaled = design / times[:, None]
    size = scaled.max(axis=0)
    (call, unit), _ = nnls(scaled / size, np.ones(len(sizes)))
    call, unit = call / size[0], unit / size[1]
    misfit = float(np.abs(design @ [call, unit] / times - 1.0).max())
    return Rate(operation.name, operation.kind, call, unit, misfit)


def constants(rates: list[Rate]) -> dict[str, float]:
    """Medians over the operations of a kind."""
    found = {
        name: float(np.median([one.per_unit for one in rates if one.kind == kind]))
        for name, kind in CONSTANTS.items()
    }
    return found | {"PER_CALL": float(np.median([one.per_call for one in rates]))}


def ours() -> dict[str, float]:
    """The constants that the library has, where it has them."""
    try:
        cost = import_module("onefit.cost")
    except ImportError:
        return {}
    return {name: getattr(cost, name) for name in (*CONSTANTS, "PER_CALL") if hasattr(cost, name)}


def as_text(rates: list[Rate], found: dict[str, float], known: dict[str, float]) -> str:
    """A line an operation, then a line a constant."""
    lines = [f"{'operation':<20} {'s a call':>10} {'s a unit':>10} {'misfit':>7}"]
    lines += [f"{r.name:<20} {r.per_call:>10.2g} {r.per_unit:>10.2g} {r.misfit:>7.0%}" for r in rates]
    lines += ["", f"{'constant':<20} {'here':>10} {'onefit':>10}"]
    for name, value in found.items():
        have = f"{known[name]:.2g}" if name in known else "-"
        lines.append(f"{name:<20} {value:>10.2g} {have:>10}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write what was measured as JSON")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        rates = [rate(operation, rng) for operation in OPERATIONS]
    found = constants(rates)
    print(as_text(rates, found, ours()))
    if given.out:
        versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
        measured = {"versions": versions, "machine": platform.platform(), "constants": found}
        given.out.write_text(json.dumps(measured | {"rates": [asdict(one) for one in rates]}, indent=1))


if __name__ == "__main__":
    main()

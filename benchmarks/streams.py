"""Tables larger than memory: time and peak memory against the number of rows, each run in its own process.

    python benchmarks/streams.py               # 10^4 to 10^7 rows of 50 columns, generated block by block
    python benchmarks/streams.py --most 1e6    # a minute

Times are those of the processor.  They should grow with n at a log-log slope of at most 1.05, and the peak of
memory should stay where it is from 10^6 to 10^7 rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

COLUMNS = 50
BLOCK = 20_000
MIB = 1024.0


def blocks(n: int, kind: str) -> Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Rows that are cheap to make: those of one block with other signs, and fresh noise."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(BLOCK, COLUMNS)) + 1.0
    coef = rng.normal(size=COLUMNS) * (np.arange(COLUMNS) % 3 == 0) / 4

    def make() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number, start in enumerate(range(0, n, BLOCK)):
            own = np.random.default_rng(number)
            rows = min(BLOCK, n - start)
            X = base[:rows] * own.choice([-1.0, 1.0], (rows, 1))
            eta = X @ coef
            if kind == "logistic":
                yield X, (own.uniform(size=rows) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
            else:
                yield X, eta + own.normal(size=rows)

    return make


def models() -> dict[str, Callable[[], object]]:
    import onefit

    return {
        "ridge": lambda: onefit.RidgeLOO(100),
        "lasso": lambda: onefit.LassoLOO(50),
        "elasticnet": lambda: onefit.ElasticNetLOO(50),
        "logistic": lambda: onefit.LogisticLOO(10),
    }


def source_of(place: str, n: int, kind: str) -> object:
    """Rows from a function, or from a file that was written before."""
    from onefit.sources import ArraySource, GeneratedSource, TableSource

    if place == "generated":
        return GeneratedSource(blocks(n, kind))
    if place.endswith(".parquet"):
        return TableSource(place, "y")
    X = np.memmap(place, mode="r", dtype=np.float64).reshape(-1, COLUMNS + 1)
    return ArraySource(X[:, :-1], X[:, -1])


def once(kind: str, n: int, place: str) -> dict[str, float | str]:
    """One fit: seconds of the processor, and how much the peak of memory grew, in MiB."""
    model = models()[kind]()
    models()[kind]().fit(source_of("generated", 1000, kind))  # imports
    source = source_of(place, n, kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    model.fit(source)  # type: ignore[attr-defined]
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loo = model.loo_  # type: ignore[attr-defined]
    return {"seconds": seconds, "peak": peak / MIB, "grown": (peak - before) / MIB, "trust": loo.guarantee}


def apart(kind: str, n: int, place: str) -> dict[str, float]:
    """Run the same in a process of its own."""
    command = [sys.executable, __file__, "--once", kind, str(n), place]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{kind:<12}{n:>12,}{Path(place).suffix or place:>12}{found['seconds']:>10.2f}"
        f"{found['grown']:>9.0f}{found['peak']:>9.0f}  {found['trust']}",
        flush=True,
    )
    return found


def write_files(folder: str, n: int) -> tuple[str, str]:
    """The same rows as a memory map and as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(COLUMNS)] + ["y"]
    mapped, table = f"{folder}/rows.bin", f"{folder}/rows.parquet"
    writer = pq.ParquetWriter(table, pa.schema([(name, pa.float64()) for name in names]))
    with Path(mapped).open("wb") as file:
        for X, y in blocks(n, "lasso")():
            rows = np.column_stack([X, y])
            rows.tofile(file)
            writer.write_table(pa.table(dict(zip(names, rows.T, strict=True))))
    writer.close()
    return mapped, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=1e7)
    parser.add_argument("--models", nargs="*", default=["ridge", "lasso", "logistic"])
    parser.add_argument("--once", nargs=3)
    asked = parser.parse_args()
    if asked.once:
        kind, n, place = asked.once
        print(json.dumps(once(kind, int(n), place)))
        return
    sizes = [n for n in (10**4, 10**5, 10**6, 10**7) if n <= asked.most]
    print(f"{'model':<12}{'rows':>12}{'from':>12}{'seconds':>10}{'+MiB':>9}{'peak':>9}  trust")
    for kind in asked.models:
        found = [apart(kind, n, "generated") for n in sizes]
        slope = np.polyfit(np.log(sizes), np.log([one["seconds"] for one in found]), 1)[0]
        growth = found[-1]["peak"] / found[-2]["peak"]
        print(
            f"{kind}: slope {slope:.2f}, peak memory from {sizes[-2]:,} to {sizes[-1]:,} rows x {growth:.2f}"
        )
    with tempfile.TemporaryDirectory() as folder:
        for place in write_files(folder, min(10**6, int(asked.most))):
            apart("lasso", min(10**6, int(asked.most)), place)


if __name__ == "__main__":
    main()

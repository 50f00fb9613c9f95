"""``onefit tune`` on a CSV of a million rows of 13 numbers: processor time and peak of memory.

python benchmarks/million_rows.py              # a regression, and two classes of which 10 % are yes
python benchmarks/million_rows.py --rows 1e5
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

FEATURES = 12  # and the target
YES = 0.1  # share of the rarer class


def write(path: Path, rows: int, kind: str) -> None:
    """A table with normal features, half of which have a say, and noise as large as that."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.normal(size=(rows, FEATURES)).round(4), columns=[f"x{j}" for j in range(FEATURES)]
    )
    signal = frame.to_numpy()[:, : FEATURES // 2].sum(axis=1)
    noisy = signal + signal.std() * rng.normal(size=rows)
    frame["y"] = (
        noisy.round(4)
        if kind == "regression"
        else np.where(noisy > np.quantile(noisy, 1.0 - YES), "yes", "no")
    )
    frame.to_csv(path, index=False)


def tuned(folder: Path, rows: int, kind: str) -> tuple[float, float]:
    """Seconds of the processor, and GiB of memory at the peak, of a process of its own."""
    path = folder / f"{kind}.csv"
    write(path, rows, kind)
    command = [
        sys.executable,
        "-m",
        "onefit",
        "tune",
        str(path),
        "--target",
        "y",
        "--out",
        str(folder / kind),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 2**20


def main() -> None:
    """Print a line for each kind of target; the peak is that of the largest process so far."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e6)
    rows = int(parser.parse_args().rows)
    print("| | processor time | peak memory |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("two classes, 10 % yes", "regression"):  # the larger peak comes last
            seconds, peak = tuned(Path(folder), rows, kind.split(",")[0])
            print(f"| {kind} | {seconds:.0f} s | {peak:.1f} GiB |", flush=True)


if __name__ == "__main__":
    main()

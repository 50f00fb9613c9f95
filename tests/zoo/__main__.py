"""Run the zoo: ``python -m zoo --problems 2100 --out zoo.json``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import onefit
from zoo.record import Record
from zoo.run import run
from zoo.tables import MOST_COLUMNS, ROWS
from zoo.verdicts import as_text, verdicts

PROBLEMS = 2100
PACKAGES = ("numpy", "scipy", "scikit-learn")


def main() -> int:
    """Run, write, print; 1 if a verdict fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("zoo.json"))
    parser.add_argument("--rows", type=int, nargs=2, default=ROWS, help="fewest and most rows of a table")
    parser.add_argument("--columns", type=int, default=MOST_COLUMNS)
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.problems)
    size = {"rows": tuple(given.rows), "columns": given.columns}
    records = _collected(run(numbers, given.jobs, size), len(numbers), given.out)
    found = verdicts(records)
    versions = {name: version(name) for name in PACKAGES} | {"onefit": onefit.__version__}
    result = {
        "versions": versions | {"python": platform.python_version()},
        "machine": platform.platform(),
        "size": size,
        "verdicts": [one.__dict__ for one in found],
        "records": [one.as_dict() for one in records],
    }
    given.out.write_text(json.dumps(result, indent=1))
    print(as_text(records))
    return int(not all(one.holds for one in found))


def _collected(found: Iterator[Record], total: int, out: Path) -> list[Record]:
    """Records in order; each is also a line of a file beside ``out`` as soon as it is there."""
    records: list[Record] = []
    with out.with_suffix(".jsonl").open("w") as file:
        for record in found:
            records.append(record)
            file.write(json.dumps(record.as_dict()) + "\n")
            file.flush()
            if sys.stderr.isatty():
                print(f"\r{len(records)}/{total} {record.family:<40}", end="", file=sys.stderr)
    return sorted(records, key=lambda one: one.number)


if __name__ == "__main__":
    sys.exit(main())

"""Render the papers' figures and tables: all, or those of the scripts that are named.

``python papers/render.py`` runs everything at the papers' size, for hours; ``--quick`` at reduced sizes, in
about a quarter of an hour.  ``python papers/render.py --quick 2018_alo/figure_2.py`` runs one script.
Results go to ``papers/results/full`` or ``papers/results/quick``, and at the end the pages are drawn from
them.  Every script is a process of its own, on one BLAS thread, so that its seconds mean something.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LATE = ("2020_erg/figure_4.py", "2020_erg/table_1.py")  # they read what others write


def scripts() -> list[Path]:
    """All scripts, in the order in which they can be run."""
    found = [s for pattern in ("*/figure_*.py", "*/table_*.py") for s in HERE.glob(pattern)]
    late = [HERE / name for name in LATE]
    return [*sorted(set(found) - set(late)), *late]


def environment(size: str, out: Path) -> dict[str, str]:
    """What a script is run with."""
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    told = {"MPLBACKEND": "Agg", "PAPERS_SIZE": size, "PAPERS_OUT": str(out)}
    return {**threads, **os.environ, **told, "PYTHONPATH": os.pathsep.join(paths)}


def main(arguments: list[str]) -> int:
    """Run the scripts one after the other; the first that fails ends it."""
    parser = argparse.ArgumentParser(description="Render the papers' figures and tables.")
    parser.add_argument("names", nargs="*", help="scripts, such as 2018_alo/figure_2.py; all by default")
    parser.add_argument("--quick", action="store_true", help="reduced sizes")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where results go")
    given = parser.parse_args(arguments)
    told = environment("quick" if given.quick else "full", given.out.resolve())
    for script in [HERE / name for name in given.names] or scripts():
        start = time.perf_counter()
        print(f"== {script.relative_to(HERE)}", flush=True)
        code = subprocess.run([sys.executable, str(script)], env=told, check=False).returncode
        print(f"== {script.relative_to(HERE)}: {time.perf_counter() - start:.0f} s", flush=True)
        if code:
            return code
    if given.out.resolve() == HERE / "results":
        return subprocess.run([sys.executable, str(HERE / "pages.py")], env=told, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Render the papers' figures and tables: all, or those of the scripts that are named.

``python papers/render.py`` runs everything at the papers' size, for hours; ``--quick`` at reduced sizes, in
about a quarter of an hour.  ``python papers/render.py --quick 2018_alo/figure_2.py`` runs one script.
Results go to ``papers/results/full`` or ``papers/results/quick``, and at the end the pages are drawn from
them.  Every script is a process of its own, on one BLAS thread, so that its seconds mean something; two quick
ones run at a time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_A_TIME = 2  # scripts at reduced sizes
LATE = (  # they read what others write, in this order
    "2020_erg/figure_4.py",
    "2020_erg/table_1.py",
    "2020_pvm/figure_5_6.py",
    "2020_pvm/table_2.py",
)


def scripts() -> list[Path]:
    """All scripts."""
    return sorted(s for pattern in ("*/figure_*.py", "*/table_*.py") for s in HERE.glob(pattern))


def environment(size: str, out: Path) -> dict[str, str]:
    """What a script is run with."""
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    told = {"MPLBACKEND": "Agg", "PAPERS_SIZE": size, "PAPERS_OUT": str(out)}
    return {**threads, **os.environ, **told, "PYTHONPATH": os.pathsep.join(paths)}


def divided(chosen: list[Path]) -> tuple[list[Path], list[Path]]:
    """Those that can be run at any time, and those that read what others write."""
    late = [HERE / name for name in LATE]
    return [one for one in chosen if one not in late], [one for one in chosen if one in late]


def run(told: dict[str, str], script: Path) -> int:
    """Run a script: its exit status."""
    start = time.perf_counter()
    print(f"== {script.relative_to(HERE)}", flush=True)
    code = subprocess.run([sys.executable, str(script)], env=told, check=False).returncode
    print(f"== {script.relative_to(HERE)}: {time.perf_counter() - start:.0f} s", flush=True)
    return code


def main(arguments: list[str]) -> int:
    """Run the scripts; after one that fails no more are begun."""
    parser = argparse.ArgumentParser(description="Render the papers' figures and tables.")
    parser.add_argument("names", nargs="*", help="scripts, such as 2018_alo/figure_2.py; all by default")
    parser.add_argument("--quick", action="store_true", help="reduced sizes")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where results go")
    given = parser.parse_args(arguments)
    told = environment("quick" if given.quick else "full", given.out.resolve())
    early, late = divided([HERE / name for name in given.names] or scripts())
    at_a_time = AT_A_TIME if given.quick else 1
    for part, workers in ((early, at_a_time), (late, 1)):
        with ThreadPoolExecutor(workers) as pool:
            for code in pool.map(partial(run, told), part):
                if code:
                    pool.shutdown(cancel_futures=True)
                    return code
    if given.out.resolve() == HERE / "results":
        return subprocess.run([sys.executable, str(HERE / "pages.py")], env=told, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

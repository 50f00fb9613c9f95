"""Render the papers' figures and tables: all, or those of the scripts that are named.

``python papers/render.py`` runs everything; ``python papers/render.py 2018_alo/figure_2.py`` one script.
Every script is a process of its own, on one BLAS thread, so that its seconds mean something.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATTERNS = ("*/figure_*.py", "*/table_*.py")


def main(names: list[str]) -> int:
    """Run the scripts one after the other; the first that fails ends it."""
    scripts = [HERE / name for name in names] or sorted(s for p in PATTERNS for s in HERE.glob(p))
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "Agg"}
    for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        environment.setdefault(threads, "1")
    for script in scripts:
        start = time.perf_counter()
        print(f"== {script.relative_to(HERE)}", flush=True)
        code = subprocess.run([sys.executable, str(script)], env=environment, check=False).returncode
        print(f"== {script.relative_to(HERE)}: {time.perf_counter() - start:.0f} s", flush=True)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

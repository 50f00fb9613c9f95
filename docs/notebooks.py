"""Run the tutorials and write them as notebooks: ``python docs/notebooks.py [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

from tutorials import write  # noqa: E402

if __name__ == "__main__":
    for page in write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "tutorials" / "generated"):
        print(page.with_suffix(".ipynb"))

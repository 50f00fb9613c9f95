"""Results as files: one JSON file a table, with what it was made by, and what it rests on.

A result carries its numbers, the commit, the versions, the machine, and a hash of every module of onefit and
of ``papers/`` that the script had loaded, so that ``changed`` can say what has changed since.  ``pick``
chooses between the paper's size and a reduced one, and notes the difference for the caption.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import tables

T = TypeVar("T")
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIZE = os.environ.get("PAPERS_SIZE", "full")  # or "quick"
OUT = Path(os.environ.get("PAPERS_OUT", HERE / "results")) / SIZE
PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "cvxpy", "optuna")
REDUCED: dict[str, tuple[Any, Any]] = {}  # by name: what is run, and what the full size is


def pick(name: str, full: T, quick: T) -> T:
    """The full or the reduced size of something, by the name that captions give it."""
    if SIZE == "full":
        return full
    REDUCED[name] = (_shown(quick), _shown(full))
    return quick


def _shown(size: Any) -> Any:
    counted = isinstance(size, Sequence | Mapping) and not isinstance(size, str)
    return len(size) if counted else size


def save(
    paper: str,
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str = "",
    seeds: str = "",
    numbers: Mapping[str, float] | None = None,
    timings: Mapping[str, float] | None = None,
    shown: bool = True,
) -> None:
    """Write a table.

    Parameters
    ----------
    paper, name : str
        Folder of the script, and what the table is called.
    head, rows : sequences
    caption : str
        What it shows; the reduced sizes are added to it.
    seeds : str
        Which seeds were used.
    numbers, timings : dict of str to float
        What claims are judged by.  Numbers come out alike when they are computed again, timings need not.
    shown : bool
        Whether the table is for readers, and not only for other scripts.
    """
    found = {
        "paper": paper,
        "name": name,
        "script": Path(sys.argv[0]).name,
        "size": SIZE,
        "caption": caption,
        "reduced": {key: list(pair) for key, pair in REDUCED.items()},
        "seeds": seeds,
        "head": list(head),
        "rows": [list(row) for row in rows],
        "numbers": dict(numbers or {}),
        "timings": dict(timings or {}),
        "shown": shown,
        "made": made(),
        "sources": sources(),
    }
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{paper}.{name}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if shown:
        print(tables.markdown(head, [[str(cell) for cell in row] for row in rows]), flush=True)
    print(path, flush=True)


def load(paper: str, name: str) -> dict[str, Any]:
    """Read a table of this size.

    Raises
    ------
    SystemExit
        If its script has not been run.
    """
    path = OUT / f"{paper}.{name}.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run the script of {paper} that makes {name} first")
    return dict(json.loads(path.read_text()))


def every(folder: Path = HERE / "results") -> list[dict[str, Any]]:
    """All stored results, the full size in place of the reduced one where both are stored."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for size in ("quick", "full"):
        for path in sorted((folder / size).glob("*.json")):
            one = json.loads(path.read_text())
            found[one["paper"], one["name"]] = one
    return [found[key] for key in sorted(found)]


# --- what a result was made by -----------------------------------------------------------------------


def made() -> dict[str, Any]:
    """Commit, date, versions, machine, and seconds of processor time so far, child processes included."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), **dict(_versions())},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "seconds": round(_processor_time(), 1),
    }


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def commit() -> str:
    """The commit of the working tree, with a plus sign where code differs from it."""
    head = _git("rev-parse", "--short=10", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "*.py")
    return head + ("+" if dirty else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _versions() -> list[tuple[str, str]]:
    found = []
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


# --- what it rests on --------------------------------------------------------------------------------


def sources() -> dict[str, str]:
    """Hash of each module of onefit and of ``papers/`` that is loaded, by its path in the repository."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = sorted({Path(file).resolve() for file in files if file})
    return {str(path.relative_to(ROOT)): hash_of(path) for path in paths if _is_ours(path)}


def _is_ours(path: Path) -> bool:
    return path.suffix == ".py" and any(path.is_relative_to(ROOT / part) for part in ("src", "papers"))


def hash_of(path: Path) -> str:
    """Hash of the code of a module: comments and docstrings do not count."""
    return _hash(path.read_text())


@cache
def _hash(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]


@cache
def digest(*folders: str) -> str:
    """One hash of all modules in some folders when a script first asks: what is kept is that of this code."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return hashlib.sha256("".join(map(hash_of, files)).encode()).hexdigest()[:12]


def changed(result: Mapping[str, Any]) -> list[str]:
    """Modules that a result rests on and whose code has changed since, or is gone."""
    current = {name: ROOT / name for name in result["sources"]}
    return [
        name
        for name, path in current.items()
        if not path.exists() or hash_of(path) != result["sources"][name]
    ]

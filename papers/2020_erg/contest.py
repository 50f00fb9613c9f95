"""The procedures, their score and seconds on splits, and which of them are the best by a test."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tables
from scipy.stats import mannwhitneyu
from settings import Array, Split
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNetCV, LassoCV, RidgeCV

import onefit

RATIOS = (0.1, 0.5, 0.9)  # of ℓ1 in the elastic nets
STRENGTHS = np.geomspace(1e-3, 1e5, 100)  # of RidgeCV; the others choose theirs
LEVEL = 0.05  # of the test
HEAD = ("setting", "procedure", "draw", "r2", "seconds", "iterations")

PROCEDURES: dict[str, Callable[[int], Any]] = {
    "BKK": lambda seed: onefit.PermutationRegressor("ridge", random_state=seed),
    "SBKK": lambda seed: onefit.PermutationRegressor("sparse", random_state=seed),
    "ABKK": lambda seed: onefit.PermutationRegressor("aggregate", random_state=seed),
    "RidgeLOO": lambda _: onefit.RidgeLOO(),
    "LassoLOO": lambda _: onefit.LassoLOO(),
    "ElasticNetLOO": lambda _: onefit.ElasticNetLOO(l1_ratio=RATIOS),
    "RidgeCV": lambda _: RidgeCV(STRENGTHS),
    "LassoCV": lambda _: LassoCV(),
    "ElasticNetCV": lambda _: ElasticNetCV(l1_ratio=RATIOS),
}
PERMUTED, LEFT_OUT, FOLDED = np.reshape(list(PROCEDURES), (3, 3)).tolist()


@dataclass(frozen=True)
class Run:
    """One procedure on one split."""

    setting: str
    procedure: str
    draw: int
    r2: float
    seconds: float
    iterations: int


def score(y: Array, predicted: Array) -> float:
    """R² of the paper's eq. 11: one less a ratio of norms, not of their squares."""
    return float(1.0 - np.linalg.norm(y - predicted) / np.linalg.norm(y - y.mean()))


def measure(setting: str, name: str, draw: int, split: Split, model: Any) -> Run:
    """Fit, with its seconds, and predict."""
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, onefit.NotOptimalWarning, onefit.UnreliableWarning):
            warnings.simplefilter("ignore", kind)  # all run as they come; their scores tell
        start = time.perf_counter()
        model.fit(split.X, split.y)
        seconds = time.perf_counter() - start
    iterations = model.n_iter_ if isinstance(model, onefit.PermutationRegressor) else 0
    return Run(setting, name, draw, score(split.y_test, model.predict(split.X_test)), seconds, iterations)


def contest(setting: str, splits: Iterable[Split]) -> list[Run]:
    """All procedures on all splits; the first split is fitted twice, as a first fit also loads code."""
    runs = []
    start = time.perf_counter()
    for draw, split in enumerate(splits):
        for name, make in PROCEDURES.items():
            if draw == 0:
                measure(setting, name, draw, split, make(draw))
            runs.append(measure(setting, name, draw, split, make(draw)))
    print(f"{setting}: {time.perf_counter() - start:.0f} s", flush=True)
    return runs


def save(path: Path, runs: list[Run]) -> None:
    """Write a CSV with one line a run."""
    rows = [(r.setting, r.procedure, r.draw, f"{r.r2:.5f}", f"{r.seconds:.5f}", r.iterations) for r in runs]
    tables.save(path, HEAD, rows)


def load(path: Path) -> list[Run]:
    """Read what ``save`` wrote."""
    if not path.exists():
        raise SystemExit(f"{path} is missing: run the scripts of figures 1 and 2 first")
    with path.open(newline="") as file:
        return [
            Run(r["setting"], r["procedure"], int(r["draw"]), float(r["r2"]), float(r["seconds"]),
                int(r["iterations"]))
            for r in csv.DictReader(file)
        ]  # fmt: skip


def settings_of(runs: list[Run]) -> list[str]:
    """Names of the settings, in the order of the runs."""
    return list(dict.fromkeys(run.setting for run in runs))


def values(runs: list[Run], setting: str, what: str) -> dict[str, Array]:
    """Scores, seconds or iterations of one setting, by procedure."""
    return {
        name: np.array([getattr(r, what) for r in runs if (r.setting, r.procedure) == (setting, name)])
        for name in PROCEDURES
    }


def best(found: dict[str, Array], *, largest: bool) -> set[str]:
    """The procedure with the best median, and those that a Mann–Whitney test does not find worse."""
    sign = 1.0 if largest else -1.0
    first = max(found, key=lambda name: sign * np.median(found[name]))
    return {
        name
        for name, one in found.items()
        if name == first or mannwhitneyu(sign * one, sign * found[first], alternative="less").pvalue > LEVEL
    }


def report(path: Path, runs: list[Run]) -> None:
    """Print mean R² and median milliseconds, those of the best in bold; write them as CSV."""
    rows, plain = [], []
    for setting in settings_of(runs):
        for what, label, middle in (("r2", "R²", mean), ("seconds", "ms", milliseconds)):
            found = values(runs, setting, what)
            winners = best(found, largest=what == "r2")
            cells = {name: middle(one) for name, one in found.items()}
            marked = [f"**{cell}**" if name in winners else cell for name, cell in cells.items()]
            rows.append((setting, label, *marked))
            plain.append((setting, label, *cells.values()))
    head = ("setting", "", *PROCEDURES)
    print(tables.markdown(head, rows), flush=True)
    tables.save(path, head, plain)


def mean(scores: Array) -> str:
    """Mean of scores, as text."""
    return f"{scores.mean():.3f}"


def milliseconds(seconds: Array) -> str:
    """Median as text: single fits wait for other programs now and then."""
    middle = 1000 * float(np.median(seconds))
    return f"{middle:.1f}" if middle < 10 else f"{middle:.0f}"

"""The procedures, their score and seconds on splits, and which of them are the best by a test."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import results
import settings
from scipy.stats import mannwhitneyu
from settings import Array, Split
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNetCV, LassoCV, RidgeCV

import onefit

RATIOS = (0.1, 0.5, 0.9)  # of ℓ1 in the elastic nets
STRENGTHS = np.geomspace(1e-3, 1e5, 100)  # of RidgeCV; the others choose theirs
LEVEL = 0.05  # of the test
FEW = 20  # rows that are fitted before anything is timed
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
        start = time.process_time()  # one BLAS thread each: of a shared machine the clock would tell the load
        model.fit(split.X, split.y)
        seconds = time.process_time() - start
    iterations = model.n_iter_ if isinstance(model, onefit.PermutationRegressor) else 0
    return Run(setting, name, draw, score(split.y_test, model.predict(split.X_test)), seconds, iterations)


def contest(setting: str, splits: Iterable[Split]) -> list[Run]:
    """All procedures on all splits; a few rows are fitted first, as a first fit also loads code."""
    runs = []
    start = time.perf_counter()
    for draw, split in enumerate(splits):
        for name, make in PROCEDURES.items():
            if draw == 0:
                few = replace(split, X=split.X[:FEW], y=split.y[:FEW])
                measure(setting, name, draw, few, make(draw))
            runs.append(measure(setting, name, draw, split, make(draw)))
    print(f"{setting}: {time.perf_counter() - start:.0f} s", flush=True)
    return runs


def save(name: str, runs: list[Run]) -> None:
    """Keep all runs, for the scripts that count or compare them."""
    rows = [(r.setting, r.procedure, r.draw, round(r.r2, 5), round(r.seconds, 5), r.iterations) for r in runs]
    results.save(settings.FOLDER, name, HEAD, rows, caption="Single runs.", shown=False)


def load(name: str) -> list[Run]:
    """Read what ``save`` wrote."""
    return [Run(*row) for row in results.load(settings.FOLDER, name)["rows"]]


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


def report(name: str, runs: list[Run], caption: str, draws: int) -> None:
    """Mean R² and median milliseconds, those of the best in bold."""
    rows = []
    for setting in settings_of(runs):
        for what, label, middle in (("r2", "R²", mean), ("seconds", "ms", milliseconds)):
            found = values(runs, setting, what)
            winners = best(found, largest=what == "r2")
            cells = {name: middle(one) for name, one in found.items()}
            marked = [f"**{cell}**" if name in winners else cell for name, cell in cells.items()]
            rows.append((setting, label, *marked))
    head = ("setting", "", *PROCEDURES)
    given = {
        "caption": caption,
        "seeds": f"0 to {draws - 1}",
        "numbers": scores(runs),
        "timings": times(runs),
    }
    results.save(settings.FOLDER, name, head, rows, **given)


def scores(runs: list[Run]) -> dict[str, float]:
    """What the paper claims of scores: how far its procedures are behind the best of the others."""
    behind, worse = {}, 0
    for setting in settings_of(runs):
        found = values(runs, setting, "r2")
        rivals = {name: found[name] for name in FOLDED}
        ahead = max(one.mean() for one in rivals.values()) - max(found[name].mean() for name in PERMUTED)
        behind[setting] = ahead
        worse += not any(name in best({**rivals, name: found[name]}, largest=True) for name in PERMUTED)
    each = {
        f"{name} behind, most": max(
            max(values(runs, s, "r2")[rival].mean() for rival in FOLDED) - values(runs, s, "r2")[name].mean()
            for s in behind
        )
        for name in PERMUTED
    }
    return {"settings": len(behind), "behind, most": max(behind.values()), "all worse": worse, **each}


def times(runs: list[Run]) -> dict[str, float]:
    """What the paper claims of seconds: its procedures against those by folds, and BKK against RidgeLOO."""
    shares = {}
    for setting in settings_of(runs):
        found = {name: float(np.median(one)) for name, one in values(runs, setting, "seconds").items()}
        theirs = [found[name] for name in PERMUTED]
        shares[setting] = [
            np.mean([found[name] for name in FOLDED]) / np.mean(theirs),
            min(found[name] for name in FOLDED) / max(theirs),
            found["RidgeLOO"] / found["BKK"],
            found["LassoLOO"] / found["SBKK"],
        ]
    average, least, ridge, lasso = np.array(list(shares.values())).T
    return {
        "speed-up, mean": average.mean(),
        "speed-up, most": average.max(),
        "speed-up, least of any pair": least.min(),
        "RidgeLOO / BKK": ridge.mean(),
        "LassoLOO / SBKK": lasso.mean(),
    }


def mean(scores: Array) -> str:
    """Mean of scores, as text."""
    return f"{scores.mean():.3f}"


def milliseconds(seconds: Array) -> str:
    """Median as text: single fits wait for other programs now and then."""
    middle = 1000 * float(np.median(seconds))
    return f"{middle:.1f}" if middle < 10 else f"{middle:.0f}"

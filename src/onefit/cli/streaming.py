"""``onefit tune`` on tables larger than memory: a folder of Parquet files, or a file above --memory-limit.

The rows are passed over a few times, some thousand at once.  That takes columns of numbers without gaps; all
that needs the whole table at once is refused by name.
"""

from __future__ import annotations

import copy
import csv
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_numeric_dtype
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import cost
from onefit.blocks.fitted import PreparedRows
from onefit.cli import families, files, results, saved, words
from onefit.cli.choices import COMPARED
from onefit.cli.coefficients import TOP
from onefit.cli.dataset import Passed, open_passes
from onefit.cli.errors import TableError, naming
from onefit.cli.files import ResultFolder
from onefit.cli.meaning import Format
from onefit.cli.printed import say
from onefit.cli.progress import Progress
from onefit.cli.seen import Amounts, Classes, Seen
from onefit.cli.table import Roles, none_left
from onefit.cli.target import (
    IF_AMOUNTS,
    guess_task,
    one_value,
    refuse_infinity,
    refuse_strays,
    without_target,
)
from onefit.cli.tuning import Told
from onefit.risk.presentation import with_error
from onefit.sources.table import TableSource
from onefit.wording import to_digits

# Errors that name block, column and row, but not the table.
PASSES = (pa.ArrowException, csv.Error, OSError, ValueError)
SHARE = 0.25  # of the memory there is: a table takes some times what its file does
SCORED = 10**6  # rows whose left-out values are held to be scored, at most: some hundred bytes each
OF_CLASSES = {"AUC": "auc", "Brier": "brier", "accuracy": "accuracy"}
OF_NUMBERS = {"R²": "r2", "RMSE": "rmse", "MAE": "mae"}
PLAIN = {"binary": COMPARED["binary"], "regression": COMPARED["regression"], "counts": ("poisson",)}


def streams(path: Path, limit: int | None) -> bool:
    """Whether a table is read in passes: a folder of Parquet files, or a file above the limit in bytes."""
    if path.is_dir():
        return any(path.rglob("*.parquet"))
    if not path.is_file():
        return False
    return path.stat().st_size > (SHARE * cost.memory() if limit is None else limit)


@dataclass(frozen=True, eq=False)
class Tuned:
    """Models of one table, the best one first.

    Attributes
    ----------
    task : str
    names : list of str
        Features.
    scaler : StandardScaler
    models : dict of str to estimator
    count : int
        Rows.
    """

    task: str
    names: list[str]
    scaler: StandardScaler
    models: dict[str, Any]
    count: int

    @property
    def best(self) -> Any:
        """The model with the smallest risk."""
        return next(iter(self.models.values()))

    @cached_property
    def scores(self) -> dict[str, tuple[float, float]]:
        """Scores of the best model's left-out predictions with their errors; none of very many rows."""
        if self.count > SCORED:
            return {}
        held = self.best.loo_.in_memory()
        scores = OF_CLASSES if self.task == "binary" else OF_NUMBERS
        return {name: held.score(scoring, error=True) for name, scoring in scores.items()}

    @property
    def coefficients(self) -> pd.DataFrame:
        """In the units of the table, the largest effect of a standard deviation first."""
        effect = np.ravel(self.best.coef_)
        coef = effect / self.scaler.scale_
        frame = pd.DataFrame({"feature": self.names, "coefficient": coef, "effect": effect})
        return frame.iloc[np.argsort(-np.abs(effect), kind="stable")].reset_index(drop=True)


def tune_stream(path: Path, roles: Roles, asked: Format, wish: Any) -> None:
    """Tune on a table in passes over its rows.

    Parameters
    ----------
    path : Path
    roles : Roles
    asked : Format
    wish : Wish

    Raises
    ------
    TableError
        Something was asked for, or is in the table, that needs all rows at once.
    """
    families.refuse_unsuited(wish.model, wish.task)
    _refuse(roles, wish)
    with files.folder(wish.out, files.IN_PASSES, force=wish.force) as folder, naming(path, PASSES):
        table = open_passes(path, roles, asked)
        task = _task(table, roles.target, wish)
        chosen = PLAIN[task] if wish.model == "auto" else (wish.model,)
        progress = Progress({"preparing": 1.0, **{f"tuning {name}": 4.0 for name in chosen}, "writing": 1.0})
        with progress.stage("preparing"):
            seen, labels, skipped = _seen(table, roles, task)
            names, left_out = _divided(seen, roles)
            scaler = seen.scaler_of(names)
        rows = PreparedRows(_rows(table, names, roles), scaler.transform, labels=labels)
        tuned = Tuned(task, names, scaler, _models(rows, chosen, seen.count, progress), seen.count)
        _tell(tuned, path.name, (*table.notes, *skipped), left_out)
        if folder is not None:
            with progress.stage("writing"):
                _write(folder, tuned, path.name, roles)
            say(f"wrote {', '.join(folder.written)} to {folder.place}")


def _refuse(roles: Roles, wish: Any) -> None:
    given = {
        "--groups": roles.groups,
        "--time": roles.time,
        "--category": roles.category,
        "--audit": wish.audit,
    }
    for option, value in given.items():
        if value:
            raise TableError(
                f"{option} needs the whole table in memory: leave it out, take a sample of the rows, or "
                "raise --memory-limit"
            )
    if wish.task == "multiclass":
        raise TableError("tables larger than memory are for two classes: take a sample of the rows")


def _task(table: Passed, target: str, wish: Any) -> str:
    """By the model, by --task, or by what the first rows of the target look like."""
    suited = {name: task for task, names in PLAIN.items() for name in names}
    if wish.model != "auto" and wish.task == "auto":
        return suited.get(wish.model, "regression")
    if wish.task != "auto":
        return str(wish.task)
    head = table.target
    if head.nunique() == 1:
        raise _about_one_value(target, head, is_whole=table.is_whole)
    task = guess_task(head)[0]
    if task == "multiclass":
        refuse_strays(head)
        counts = head.value_counts()
        amounts = IF_AMOUNTS if is_numeric_dtype(head) else ""
        raise TableError(
            f"target {target!r} has {len(counts)} classes, the rarest {str(counts.index[-1])!r}, and tables "
            f"larger than memory are for two: {amounts}correct it, or take a sample of the rows"
        )
    return task


def _about_one_value(target: str, head: pd.Series, *, is_whole: bool) -> TableError:
    if is_whole:
        return one_value(target, head.iloc[0])
    other = "regression or counts" if is_numeric_dtype(head) else "regression"
    return TableError(
        f"target {target!r} is {str(head.iloc[0])!r} in the first {len(head):,} rows, and no others were "
        f"looked at: say --task binary if there are two classes, else --task {other}"
    )


def _rows(table: Passed, names: list[str], roles: Roles) -> TableSource:
    return TableSource(
        table.dataset,
        roles.target,
        roles.weights,
        columns=names,
        skip_missing=True,
        encoding=table.encoding or "utf-8",
    )


def _seen(table: Passed, roles: Roles, task: str) -> tuple[Seen, Any, list[str]]:
    """What a pass over all rows tells: of the columns, how labels are read, and which rows leave."""
    seen = Seen(table.names, roles.keep)
    is_text, is_binary = table.encoding is not None, task == "binary"
    target = Classes(roles.target, strip=is_text) if is_binary else Amounts(roles.target, task)
    rows = _rows(table, table.names, roles)
    for name, block, numbers in rows.numbered_blocks():
        if len(block.y):
            with naming(name):
                target.add(block.y, numbers)
                seen.add(np.asarray(block.X, dtype=np.float64), numbers)
                if block.weights is not None:
                    own = pd.Series(block.weights, index=numbers, name=roles.weights)
                    refuse_infinity(own, block.weights, gaps="")
    notes = [without_target(rows.skipped, roles.target)] if rows.skipped else []
    return seen, target.labels(), notes


def _divided(seen: Seen, roles: Roles) -> tuple[list[str], list[tuple[str, str]]]:
    """Features, and the columns that are none with what keeps them from it."""
    left_out = roles.left_out(seen.unusable())
    names = [name for name in seen.names if name not in dict(left_out)]
    if not names:
        raise none_left(roles.target, left_out)
    return names, left_out


def _models(rows: PreparedRows, names: tuple[str, ...], count: int, progress: Progress) -> dict[str, Any]:
    """Tune each family; the smallest risk comes first."""
    told, fitted = Told(), {}
    strengths = families.n_strengths(count * (rows.shape[1] or 1))
    for name in names:
        with progress.stage(f"tuning {name}"), told.about(name):
            fitted[name] = families.make(name, strengths).fit(rows)
    return dict(sorted(fitted.items(), key=lambda one: one[1].loo_.value))


def _tell(tuned: Tuned, source: str, notes: tuple[str, ...], left_out: list[tuple[str, str]]) -> None:
    best = tuned.best.loo_
    size = f"{tuned.count:,} rows, {len(tuned.names)} columns"
    say(f"{source}: {size}, {tuned.task}; read in passes over the rows")
    for note in notes:
        say(f"note: {note}")
    for name, why in left_out:
        say(f"left out column {name}: {why}")
    lines = [
        (name, families.chosen(model), with_error(model.loo_.value, model.loo_.std_error))
        for name, model in tuned.models.items()
    ]
    say("\n" + words.aligned(("model", "chosen", f"left-out {best.loss_name}"), lines, left=2) + "\n")
    if tuned.scores:
        own = ", ".join(f"{name} {with_error(*score)}" for name, score in tuned.scores.items())
        say(f"{next(iter(tuned.models))}, left out: {own}.\n")
    found = tuned.coefficients.head(TOP)
    shown = [(str(name), to_digits(coef, 4), to_digits(effect, 4)) for name, coef, effect in found.to_numpy()]
    say(words.aligned(("feature", "coefficient", "per sd"), shown, left=1) + "\n")
    say(str(best))


def _write(folder: ResultFolder, tuned: Tuned, source: str, roles: Roles) -> None:
    """The model before all else; predictions row by row, in one more pass."""
    named = copy.copy(tuned.scaler)
    named.feature_names_in_ = np.array(tuned.names, dtype=object)
    pipeline = Pipeline([("preprocessing", named), ("model", tuned.best)])
    card = {
        "onefit": onefit.__version__,
        "source": source,
        "target": roles.target,
        "task": tuned.task,
        "together": None,
        "passes": True,
    }
    summary = _summary(tuned, source, roles)  # before anything is written: it may fail
    folder.write("model.skops", saved.dumps(pipeline, card))
    folder.write("coefficients.csv", results.csv_bytes(tuned.coefficients))
    folder.fill("predictions.parquet", tuned.best.loo_.rows_to)
    folder.write("summary.json", summary)


def _summary(tuned: Tuned, source: str, roles: Roles) -> bytes:
    best = tuned.best.loo_
    found = {
        "onefit": onefit.__version__,
        "source": source,
        "target": roles.target,
        "task": tuned.task,
        "rows": tuned.count,
        "features": len(tuned.names),
        "left_out": "rows",
        "loss": best.loss_name,
        "best": next(iter(tuned.models)),
        "models": [
            {"name": name, "chosen": families.chosen(model), "risk": [model.loo_.value, model.loo_.std_error]}
            for name, model in tuned.models.items()
        ],
        "scores": tuned.scores,
        "approx_error": best.approx_error if np.isfinite(best.approx_error) else None,
        "guarantee": best.guarantee,
    }
    return (json.dumps(found, indent=2, allow_nan=False) + "\n").encode()

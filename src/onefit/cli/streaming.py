"""``onefit tune`` on tables larger than memory: a folder of Parquet files, or a file above --memory-limit.

The rows are passed over a few times, some thousand at once.  That takes columns of numbers without gaps; all
that needs the whole table at once is refused by name.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import cost
from onefit.blocks.fitted import PreparedRows
from onefit.cli import families, files, results, saved, words
from onefit.cli.choices import COMPARED
from onefit.cli.coefficients import TOP
from onefit.cli.encodings import known_encoding
from onefit.cli.errors import TableError, listed, naming, require_column
from onefit.cli.meaning import Format
from onefit.cli.numerals import MISSING_MARKS, are_codes
from onefit.cli.printed import say
from onefit.cli.progress import Progress
from onefit.cli.reading import PARQUET, head_of, separator_of
from onefit.cli.table import Roles
from onefit.cli.target import guess_task
from onefit.cli.tuning import Told
from onefit.risk.presentation import with_error
from onefit.sources.table import TableSource, is_number

FILES = ("model.skops", "coefficients.csv", "predictions.parquet", "summary.json")
PASSES = (pa.ArrowException, OSError, ValueError)  # errors that name block, column and row, but not the table
SHARE = 0.25  # of the memory there is: a table takes some times what its file does
HEAD = 100_000  # rows that tell what kind of target it is
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
    _refuse(roles, wish)
    if asked.encoding:
        known_encoding(asked.encoding)
    with files.folder(wish.out, FILES, force=wish.force) as folder, naming(path, PASSES):
        dataset = _dataset(path, asked)
        names = _features(dataset.schema, roles)
        _refuse_codes(path, asked, [*names, roles.target])
        task = _task(dataset, roles.target, wish)
        rows = TableSource(dataset, roles.target, roles.weights, columns=names)
        chosen = PLAIN[task] if wish.model == "auto" else (wish.model,)
        progress = Progress({"preparing": 1.0, **{f"tuning {name}": 4.0 for name in chosen}, "writing": 1.0})
        with progress.stage("preparing"):
            scaler, count = _scaled(rows)
        models = _models(PreparedRows(rows, scaler.transform), chosen, count, progress)
        tuned = Tuned(task, names, scaler, models, count)
        _tell(tuned, path.name)
        if folder is not None:
            with progress.stage("writing"):
                _write(folder, tuned, path.name, roles)
            say(f"wrote {', '.join(FILES)} to {folder}")


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


def _is_text(path: Path) -> bool:
    return not (path.is_dir() or path.suffix.lower() in PARQUET)


def _separator(path: Path, asked: Format) -> str:
    return asked.separator or separator_of(head_of(path, asked.encoding or "utf-8"))


def _dataset(path: Path, asked: Format) -> ds.Dataset:
    parquet = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not _is_text(path):
        return ds.dataset([str(file) for file in parquet], format="parquet")
    text = ds.CsvFileFormat(
        parse_options=pyarrow.csv.ParseOptions(delimiter=_separator(path, asked)),
        convert_options=pyarrow.csv.ConvertOptions(
            decimal_point=asked.decimal or ".", null_values=["", *MISSING_MARKS], strings_can_be_null=True
        ),
        read_options=pyarrow.csv.ReadOptions(encoding=asked.encoding or "utf8"),
    )
    return ds.dataset(str(path), format=text)


def _features(schema: pa.Schema, roles: Roles) -> list[str]:
    """Columns of numbers that are no target and no weight."""
    for name in (roles.target, roles.weights, *roles.drop):
        if name is not None:
            require_column(schema.names, name)
    own = [name for name in schema.names if name not in roles.special]
    other = [name for name in own if not is_number(schema.field(name).type)]
    if other:
        raise TableError(
            f"tables larger than memory are of numbers alone, which {listed(list(map(repr, other)), 6)} "
            f"{'is' if len(other) == 1 else 'are'} not: leave out by --drop, write as numbers, or raise "
            "--memory-limit"
        )
    if not own:
        raise TableError("there is no column beside the target")
    return own


def _refuse_codes(path: Path, asked: Format, names: list[str]) -> None:
    """Refuse digits with leading zeros: codes in a table in memory, of which numbers lose the zeros."""
    if not _is_text(path):
        return
    how = {"sep": _separator(path, asked), "encoding": asked.encoding or "utf-8"}
    head = pd.read_csv(path, dtype=str, nrows=HEAD, usecols=names, **how)
    if codes := [name for name in names if are_codes(head[name])]:
        raise TableError(
            f"tables larger than memory are of numbers alone, and {listed(list(map(repr, codes)), 6)} with "
            "leading zeros would be codes: leave out by --drop, write without these zeros, or raise "
            "--memory-limit"
        )


def _task(dataset: ds.Dataset, target: str, wish: Any) -> str:
    """By the model, by --task, or by what the first rows of the target look like."""
    suited = {name: task for task, names in PLAIN.items() for name in names}
    if wish.model != "auto" and wish.task == "auto":
        return suited.get(wish.model, "regression")
    head = dataset.head(HEAD, columns=[target], use_threads=False)[target].to_pandas()
    task = guess_task(head.dropna())[0] if wish.task == "auto" else str(wish.task)
    if task == "multiclass":
        raise TableError(
            f"target {target!r} has {head.nunique()} classes, and tables larger than memory are for two: use "
            "--task regression, or take a sample of the rows"
        )
    return task


def _scaled(rows: TableSource) -> tuple[StandardScaler, int]:
    """Means and standard deviations of all columns, and how many rows there are."""
    scaler = StandardScaler()
    for X in rows.each(lambda block: np.asarray(block.X, dtype=np.float64)):
        scaler.partial_fit(X)
    return scaler, int(np.max(scaler.n_samples_seen_))


def _models(rows: PreparedRows, names: tuple[str, ...], count: int, progress: Progress) -> dict[str, Any]:
    """Tune each family; the smallest risk comes first."""
    told, fitted = Told(), {}
    strengths = families.n_strengths(count * (rows.shape[1] or 1))
    for name in names:
        with progress.stage(f"tuning {name}"), told.about(name):
            fitted[name] = families.make(name, strengths).fit(rows)
    return dict(sorted(fitted.items(), key=lambda one: one[1].loo_.value))


def _tell(tuned: Tuned, source: str) -> None:
    best = tuned.best.loo_
    size = f"{tuned.count:,} rows, {len(tuned.names)} columns"
    say(f"{source}: {size}, {tuned.task}; read in passes over the rows")
    lines = [
        (name, families.chosen(model), with_error(model.loo_.value, model.loo_.std_error))
        for name, model in tuned.models.items()
    ]
    say("\n" + words.aligned(("model", "chosen", f"left-out {best.loss_name}"), lines, left=2) + "\n")
    if tuned.scores:
        own = ", ".join(f"{name} {with_error(*score)}" for name, score in tuned.scores.items())
        say(f"{next(iter(tuned.models))}, left out: {own}.\n")
    found = tuned.coefficients.head(TOP)
    shown = [(str(name), f"{coef:.4g}", f"{effect:.4g}") for name, coef, effect in found.to_numpy()]
    say(words.aligned(("feature", "coefficient", "per sd"), shown, left=1) + "\n")
    say(str(best))


def _write(folder: Path, tuned: Tuned, source: str, roles: Roles) -> None:
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
    }
    files.write(folder / "model.skops", saved.dumps(pipeline, card))
    files.write(folder / "coefficients.csv", results.csv_bytes(tuned.coefficients))
    tuned.best.loo_.rows_to(folder / "predictions.parquet")
    files.write(folder / "summary.json", _summary(tuned, source, roles))


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

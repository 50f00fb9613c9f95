"""``onefit tune``: read, tune, tell, write, audit, report; the model first."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

import onefit
from onefit.cli import families, files, report, results, saved, structure, trust, tuning, words
from onefit.cli.choices import CLASSES, SUITED
from onefit.cli.coefficients import TOP
from onefit.cli.comparison import Ranking
from onefit.cli.errors import naming, require_column
from onefit.cli.files import ResultFolder
from onefit.cli.intervals import keep
from onefit.cli.meaning import Format, Source
from onefit.cli.printed import say
from onefit.cli.progress import Progress
from onefit.cli.reading import read_table
from onefit.cli.table import Roles, Table, split


@dataclass(frozen=True)
class Wish:
    """What was asked for on the command line.

    Attributes
    ----------
    model, task : str
        "auto" or a name.
    audit : int or None
        Number of refits; None for as many as make sense.
    out : str or None
    force : bool
    """

    model: str = "auto"
    task: str = "auto"
    audit: int | None = None
    out: str | None = None
    force: bool = False


def tune_file(file: str, roles: Roles, asked: Format, wish: Wish) -> None:
    """Tune on a file."""
    with files.folder(wish.out, files.IN_MEMORY, force=wish.force) as folder:
        with Progress({"reading": 1.0}).stage("reading"):
            source = read_table(file, asked, roles.target)
        with naming(file):
            tune_frame(source, Path(file).name, roles, wish, folder)


def tune_frame(source: Source, name: str, roles: Roles, wish: Wish, folder: ResultFolder | None) -> None:
    """Tune on a table that was read."""
    task = _task(wish, source.frame, roles.target)
    table = split(source.frame, roles, task)
    m = tuning.audit_size(table, wish.audit)
    progress, told = tuning.progress_of(table, wish.model, m), tuning.Told()
    with progress.stage("preparing"):
        prepared = tuning.prepare(table)
    comparison = tuning.tuned(prepared, name, wish.model, progress, told)
    comparison = replace(comparison, read=source.notes)
    pipeline = Pipeline([("preprocessing", prepared.columns), ("model", comparison.best.model)])
    if folder is not None:
        with progress.stage("writing"):
            _write_first(folder, comparison, pipeline, source.format)
    with progress.stage("second look"):
        suspects = _suspects(source.frame, table, roles)
        comparison = tuning.together(comparison, suspects, source.frame)
    tell(comparison)
    with progress.stage("audit", talks=m > 0):
        comparison = replace(comparison, audit=tuning.audited(pipeline, comparison, m, told))
    for line in (*trust.about_audit(comparison), *trust.first_cautions(comparison)):
        say(line)
    if folder is not None:
        with progress.stage("report"):
            folder.write("summary.json", results.summary(comparison, onefit.__version__))
            folder.write("report.html", report.render(comparison, onefit.__version__).encode())
        say(f"wrote {', '.join(folder.written)} to {folder.place}")


def _task(wish: Wish, frame: pd.DataFrame, target: str) -> str:
    """Let a model that was asked for decide the task."""
    if wish.task != "auto" or wish.model == "auto":
        families.refuse_unsuited(wish.model, wish.task)
        return wish.task
    tasks = SUITED[wish.model]
    if tasks != CLASSES:
        return tasks[0]
    require_column(frame.columns, target)
    return "binary" if frame[target].nunique() <= 2 else "multiclass"


def _suspects(frame: pd.DataFrame, table: Table, roles: Roles) -> list[tuple[str, str]]:
    """Columns that look as if rows belonged together, where nothing was said about that."""
    if roles.groups or roles.time or table.is_small:
        return []
    known = np.isin(np.arange(len(frame)), table.rows)
    return structure.suspects(frame, known, [roles.target, *([roles.weights] if roles.weights else [])])


# --- telling ---------------------------------------------------------------------------------------


def tell(comparison: Ranking) -> None:
    """What was found, as soon as the models are tuned."""
    lines = [
        words.describe(comparison),
        *(f"note: {note}" for note in comparison.read),
        *(f"left out column {name}: {why}" for name, why in comparison.table.dropped),
        *(f"note: {note}" for note in comparison.table.notes),
    ]
    if comparison.n_strengths < families.STRENGTHS:
        lines.append(f"note: {comparison.n_strengths} strengths a path, enough for so many rows")
    lines.append("\n" + words.aligned(words.columns(comparison), words.lines(comparison)) + "\n")
    header, largest = words.coefficient_lines(comparison, TOP)
    if largest:
        lines.append(words.aligned(header, largest, left=2 if "class" in header else 1))
        lines.append(
            f"largest effects, of one standard deviation of the column; ± is the jackknife error, "
            f"{comparison.coefficients.by}; same sign, selected: share of these fits\n"
        )
    say("\n".join([*lines, words.in_units(comparison), words.verdict(comparison)]))


# --- writing ---------------------------------------------------------------------------------------


def _write_first(folder: ResultFolder, comparison: Ranking, pipeline: Pipeline, format_: Format) -> None:
    """The model before all else, then what is cheap."""
    best, table = comparison.best, comparison.table
    card = {
        "onefit": onefit.__version__,
        "source": comparison.source,
        "target": table.target,
        "task": table.task,
        "together": None if comparison.cuts is None else comparison.cuts.words,
        "format": asdict(format_),
        "missing": {name: int(count) for name, count in table.features.isna().sum().items()},
        "intervals": keep(best.estimate, best.judged, table.y, len(comparison.feature_names)),
    }
    rows = results.predictions(table, best.judged, best.estimate, together=best.judged.together)
    folder.write("model.skops", saved.dumps(pipeline, card))
    folder.write("coefficients.csv", results.csv_bytes(comparison.coefficients.frame))
    folder.write("predictions.csv", results.csv_bytes(rows))


def demo(place: str) -> None:
    """Tune on two data sets of scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_diabetes

    loaders: dict[str, Any] = {"diabetes": load_diabetes, "breast_cancer": load_breast_cancer}
    for name, loader in loaders.items():
        bunch = loader(as_frame=True)
        frame = bunch.frame
        if hasattr(bunch, "target_names"):
            frame = frame.assign(target=bunch.target_names[bunch.target])
        with files.folder(str(Path(place) / name), files.IN_MEMORY, force=True) as folder:
            source = Source(frame, Format(), ())
            tune_frame(source, f"scikit-learn's {name}", Roles("target"), Wish(), folder)
        say()

"""``onefit predict``: every row predicted, and everything that had to be made up counted by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from onefit._typing import Array
from onefit.cli import dates, files, intervals, saved
from onefit.cli.errors import RowError, TableError, cited, columns_listed, listed, naming, suggest
from onefit.cli.meaning import Format, Source
from onefit.cli.numerals import NO_SIGN
from onefit.cli.preprocessing import MISSING_LEVEL, as_levels
from onefit.cli.printed import say
from onefit.cli.reading import read_table
from onefit.cli.results import csv_bytes, predicted
from onefit.cli.table import kind_of
from onefit.cli.target import not_numbers
from onefit.cli.tuning import Told, warn
from onefit.wording import counted


def predict_file(
    model_file: str, file: str, asked: Format, coverage: float | None, out: str | None, *, force: bool
) -> None:
    """Predict every row of a file, and write CSV."""
    with files.writable(out, force=force) as path:
        pipeline = saved.load(model_file)
        card = saved.card_of(pipeline)
        source = read_like(file, asked, card)
        with naming(file), Told().about("predict"):
            frame = features_of(pipeline, source.frame)
            warnings.filterwarnings("ignore", message="Found unknown categories")  # they were counted by name
            table = _predictions(pipeline, card, frame, coverage)
            for line in source.notes:
                warn(line, "note")
            for line in (*other_units(source, card), *_made_up(pipeline, frame, card)):
                warn(line)
        content = csv_bytes(table)
        if path is None:
            say(content, nl=False)
        else:
            files.write(path, content)


def read_like(file: str | Path, asked: Format, card: dict[str, Any], target: str | None = None) -> Source:
    """Read a table in the way that the model's own was written, where the file leaves it open."""
    known = card.get("format", {})
    codes, text = tuple(known.get("codes", ())), tuple(known.get("text", ()))
    asked = replace(asked, columns=known.get("columns", {}), codes=codes, text=text)
    source = read_table(file, asked, target)
    silent = source.format.decimal is None and asked.decimal is None
    if silent and known.get("decimal") == ",":
        source = read_table(file, replace(asked, decimal=",", thousands=known.get("thousands")), target)
    return source


def other_units(source: Source, card: dict[str, Any]) -> Iterator[str]:
    """Say which numbers are written with other signs than where the model was fitted."""
    there, here = card.get("format", {}).get("units"), source.format.units
    if there is None:  # written by an earlier version
        return
    used = [name for name in (*card["missing"], card["target"]) if name in source.frame]
    pairs = {
        name: (here.get(name, NO_SIGN), there.get(name, NO_SIGN))
        for name in used
        if kind_of(source.frame[name]) == "number" and source.frame[name].fillna(0).any()
    }
    for new, old in dict.fromkeys(pair for pair in pairs.values() if pair[0] != pair[1]):
        names = columns_listed([name for name in pairs if pairs[name] == (new, old)])
        yield (
            f"{names} with {new} here, and with {old} where the model was fitted: the numbers were taken as "
            "they stand; write both alike"
        )


def features_of(pipeline: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that the model was fitted on, in its order.

    Raises
    ------
    TableError
        Naming all that are missing.
    """
    names = getattr(pipeline, "feature_names_in_", None)
    if names is None:
        return frame
    missing = [name for name in names if name not in frame.columns]
    if missing:
        hint = suggest(missing[0], list(frame.columns))
        raise TableError(
            f"there is no column {listed(list(map(repr, missing)), 8)} ({len(missing)} of the {len(names)} "
            f"that the model needs){hint or f': add it, {_fills(pipeline)}'}"
        )
    frame = frame[list(names)]
    _check_dates(pipeline, frame)
    if saved.card_of(pipeline).get("passes"):
        _check_numbers(frame)
    return frame


def _fills(pipeline: Any) -> str:
    """What stands in a column that is not known."""
    in_passes = saved.card_of(pipeline).get("passes")
    return "with a number in every row" if in_passes else "empty if it is unknown"


def _check_dates(pipeline: Any, frame: pd.DataFrame) -> None:
    """Refuse what is no date where the model was fitted on dates."""
    formats = saved.card_of(pipeline).get("format", {}).get("columns", {})
    made = _transformer(pipeline, "date")
    for name in [] if made is None else made.feature_names_in_:
        if kind_of(frame[name]) != "date" and frame[name].notna().any():
            raise dates.refusal(frame[name], formats.get(name, dates.ISO))


def _check_numbers(frame: pd.DataFrame) -> None:
    """Refuse gaps and text where the model was tuned in passes, over columns of numbers without gaps."""
    for name, column in frame.items():
        strange = not_numbers(column)
        wrong = strange if len(strange) else column[column.isna()]
        if len(wrong):
            what = f"holds no number, but {strange.iloc[0]!r}," if len(strange) else "is missing"
            raise RowError(
                f"column {name!r} {what} in row {wrong.index[0]}: the model was tuned in passes, on numbers "
                "without gaps, and cannot fill any: fill it in, or leave out such rows"
            )


def _transformer(pipeline: Any, kind: str) -> Any | None:
    """What reads columns of a kind; None if there are none, or the model is not of ``onefit tune``."""
    try:
        return pipeline.named_steps["preprocessing"].named_transformers_[kind]
    except (AttributeError, KeyError):
        return None


def _predictions(pipeline: Any, card: dict[str, Any], frame: pd.DataFrame, coverage: float | None) -> Any:
    classes = getattr(pipeline, "classes_", None)
    by_probability = classes is not None and hasattr(pipeline, "predict_proba")
    values = pipeline.predict_proba(frame) if by_probability else pipeline.predict(frame)
    columns = predicted(values, classes if by_probability else None, "prediction")
    if coverage is not None:
        low, high = _interval(pipeline, card, frame, values, coverage).T
        columns |= {"lower": low, "upper": high}
    return pd.DataFrame({"row": np.arange(len(frame)), **columns})


def _interval(
    pipeline: Any, card: dict[str, Any], frame: pd.DataFrame, values: Array, coverage: float
) -> Array:
    kept = card.get("intervals", {})
    if getattr(pipeline, "classes_", None) is not None:
        raise TableError("--interval is for numbers: a class has probabilities instead")
    if card.get("passes"):
        raise TableError(
            "--interval needs left-out fits, which a model that was tuned in passes does not keep: tune on a "
            "table in memory (a sample of the rows, or a larger --memory-limit)"
        )
    if not kept:
        raise TableError(
            "--interval needs a model that onefit tune --out DIR has written: it keeps left-out fits"
        )
    found = intervals.bounds(kept, pipeline[:-1].transform(frame), values, coverage)
    if np.isinf(found).any():
        groups = kept.get("groups")
        few = f"{len(kept['residuals'])} left-out rows" if groups is None else f"{len(set(groups))} groups"
        warn(f"{few} are too few for intervals of {100 * coverage:.12g}%: they are infinite")
    return np.maximum(found, 0.0) if card.get("task") == "counts" else found


# --- what had to be made up ------------------------------------------------------------------------


def _made_up(pipeline: Any, frame: pd.DataFrame, card: dict[str, Any]) -> Iterator[str]:
    """One line each for missing values, and for levels of text that the model has never seen."""
    trained = card.get("missing", {})
    texts = {name for name in frame.columns if kind_of(frame[name]) == "text" and trained.get(name)}
    counts = frame.drop(columns=list(texts)).isna().sum()  # in text a gap is a level of its own
    gaps = {name: int(count) for name, count in counts.items() if count}
    if gaps:
        new = [name for name in gaps if trained and not trained.get(name)]
        never = f"; never missing where the model was fitted: {columns_listed(new, 8)}" if new else ""
        named = listed([f"{cited(name)} ({count})" for name, count in gaps.items()], 8)
        yield f"missing values were filled in {named}{never}"
    unseen = _unseen(pipeline, frame)
    if unseen:
        named = listed(
            [f"{cited(name)} ({counted(count, 'row')}, such as {level!r})" for name, count, level in unseen],
            8,
        )
        yield f"levels that the model has never seen count as rare ones in {named}"


def _unseen(pipeline: Any, frame: pd.DataFrame) -> list[tuple[str, int, str]]:
    """Column, number of rows and an example of levels that the encoder does not know."""
    text = _transformer(pipeline, "text")
    if text is None:
        return []
    found = []
    for column, known in zip(text.feature_names_in_, text.named_steps["encode"].categories_, strict=True):
        levels = as_levels(frame[[column]]).ravel()
        new = ~np.isin(levels.astype(str), known.astype(str)) & (levels != MISSING_LEVEL)
        if new.any():
            found.append((str(column), int(new.sum()), str(levels[np.argmax(new)])))
    return found

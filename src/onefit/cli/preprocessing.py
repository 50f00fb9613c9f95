"""From columns as they were read to features: medians, scales, calendars, levels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from onefit._typing import Array
from onefit.cli.dates import Calendar
from onefit.cli.errors import RowError
from onefit.cli.numerals import read_numbers
from onefit.cli.table import MOST_LEVELS, kind_of, rare_below
from onefit.cli.target import not_numbers, refuse_infinity

MISSING_LEVEL = "(missing)"
OTHER_LEVEL = "other"


def preprocessing(features: pd.DataFrame) -> ColumnTransformer:
    """Make the preprocessing that suits each column.

    Numbers: the median where missing, with an extra 0/1 column that says so (one for all columns that are
    missing in the same rows); then standardised.
    Dates: days, season, day of the week and hour, then as numbers.  Text, true/false and categories: one 0/1
    column a level, missing being a level of its own; rare levels, those beyond the 100 most frequent and
    those never seen are one.

    Parameters
    ----------
    features : (n, q) DataFrame

    Returns
    -------
    ColumnTransformer
        Not fitted.
    """
    groups: dict[str, list[str]] = {"number": [], "filled": [], "date": [], "text": []}
    patterns: set[bytes] = set()
    for name in features.columns:
        kind = kind_of(features[name])
        if kind == "number":
            pattern = np.packbits(features[name].isna().to_numpy()).tobytes()
            kind = "filled" if pattern in patterns else kind
            patterns.add(pattern)
        groups[kind].append(name)
    made: dict[str, Callable[[], Pipeline]] = {
        "number": lambda: _numeric(_reader(as_numbers), indicator=True),
        "filled": lambda: _numeric(_reader(as_numbers), indicator=False),
        "date": lambda: _numeric(Calendar(), indicator=True),
        "text": lambda: _one_hot(len(features)),
    }
    steps = [(group, made[group](), names) for group, names in groups.items() if names]
    return ColumnTransformer(steps, sparse_threshold=0.0)


def _reader(function: Any) -> FunctionTransformer:
    return FunctionTransformer(function, feature_names_out="one-to-one")


def _numeric(reader: Any, *, indicator: bool) -> Pipeline:
    return Pipeline(
        [
            ("read", reader),
            ("impute", SimpleImputer(strategy="median", add_indicator=indicator)),
            ("scale", StandardScaler()),
        ]
    )


def _one_hot(n: int) -> Pipeline:
    encoder = OneHotEncoder(
        drop="if_binary",
        handle_unknown="infrequent_if_exist",
        min_frequency=rare_below(n),
        max_categories=MOST_LEVELS,
        sparse_output=False,
        feature_name_combiner=level_name,
    )
    return Pipeline([("read", _reader(as_levels)), ("encode", encoder)])


def as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns as floats, nan where missing; refuse text and infinity."""
    return frame.apply(_as_number)


def _as_number(column: pd.Series) -> pd.Series:
    if types.is_numeric_dtype(column):
        values = column.astype(np.float64)
    else:
        found = read_numbers(column) if column.notna().any() else (None, column.astype(np.float64))
        if found is None:
            wrong = not_numbers(column)
            raise RowError(
                f"column {column.name!r} must hold numbers, but row {wrong.index[0]} has {wrong.iloc[0]!r}"
            )
        values = found[1]
    refuse_infinity(column, values.to_numpy())
    return values


def as_levels(frame: pd.DataFrame) -> Any:
    """Return text, true/false and categories as text, missing as a level of its own: (n, q) of str."""
    levels = frame.astype(object).where(frame.notna(), MISSING_LEVEL)
    return levels.astype(str).to_numpy(object)


def level_name(column: str, level: str) -> str:
    """Name the 0/1 column of a level."""
    return f"{column}={OTHER_LEVEL if level == 'infrequent_sklearn' else level}"


def feature_names(fitted: ColumnTransformer) -> list[str]:
    """Names of the columns that a fitted preprocessing makes, for people."""
    names = [name.split("__", 1)[1] for name in fitted.get_feature_names_out()]
    return [re.sub(r"^missingindicator_(.*)$", r"\1 missing", name) for name in names]


def units(fitted: ColumnTransformer) -> tuple[Array, Array]:
    """Scale and centre of each feature: what was taken off, and what it was divided by."""
    parts = []
    for name, pipeline, columns in fitted.transformers_:
        if name == "text":
            width = len(pipeline.named_steps["encode"].get_feature_names_out(columns))
            parts.append(np.stack([np.ones(width), np.zeros(width)]))
        elif name != "remainder":
            scaler = pipeline.named_steps["scale"]
            parts.append(np.stack([scaler.scale_, scaler.mean_]))
    scale, centre = np.concatenate(parts, axis=1)
    return scale, centre

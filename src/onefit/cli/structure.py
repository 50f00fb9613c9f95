"""Columns that look as if rows belonged together: repeated identifiers, panels, dates."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from pandas.api import types

from onefit._typing import Mask
from onefit.cli.dates import as_days
from onefit.cli.table import kind_of

FEWEST_ROWS = 30
FEWEST_GROUPS = 5
FEWEST_TIMES = 10
NAMED = re.compile(
    r"(?:.*[_ .])?(?:id|subject|patient|person|participant|user|customer|client|member|group|family|"
    r"household|school|class|teacher|site|station|sensor|plot|batch|lot|run|session|account|store|shop|company|firm|"
    r"country|state|county|region|district|city|village|animal|sample|device|vehicle|machine|engine)"
    r"(?:[_ .]?(?:id|no|nr|number|code|name))?#?",
    re.IGNORECASE,
)


def looks_grouped(column: pd.Series) -> bool:
    """Whether the values of a column repeat as names of groups do.

    They must be text or whole numbers, with 5 values or more that occur twice or more on average; and either
    be named like a group, or (text alone) stand in blocks, as the rows of a panel do.
    """
    n = len(column)
    if n < FEWEST_ROWS or column.isna().any() or kind_of(column) == "date" or types.is_bool_dtype(column):
        return False
    if types.is_float_dtype(column) and not np.all(column.to_numpy() == np.round(column.to_numpy())):
        return False
    codes = pd.factorize(column)[0]
    distinct = int(codes.max()) + 1
    if not FEWEST_GROUPS <= distinct <= n // 2:
        return False
    runs = 1 + int(np.count_nonzero(np.diff(codes)))
    named = NAMED.fullmatch(str(column.name)) is not None
    return named or (not types.is_numeric_dtype(column) and runs <= 2 * distinct)


def looks_timed(column: pd.Series) -> bool:
    """Whether a column holds dates that rise with the rows, or so many that time passes between them."""
    if len(column) < FEWEST_ROWS or kind_of(column) != "date" or column.isna().any():
        return False
    if column.nunique() < FEWEST_TIMES:
        return False
    rises = np.mean(np.diff(as_days(column).to_numpy(np.float64)) >= 0.0) > 0.99
    return bool(rises) or column.nunique() > len(column) // 2


def suspects(frame: pd.DataFrame, known: Mask, special: list[str]) -> list[tuple[str, str]]:
    """Columns that look like groups or time, and which of the two: at most one of each."""
    found: dict[str, str] = {}
    for name in frame.columns:
        if name in special:
            continue
        column = frame.loc[known, name]
        if "groups" not in found and looks_grouped(column):
            found["groups"] = str(name)
        if "time" not in found and looks_timed(column):
            found["time"] = str(name)
    return [(name, kind) for kind, name in found.items()]

"""Dates as people write them, and the calendar features that a model can use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta, timezone
from typing import Any, Self

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from onefit._typing import Array
from onefit.cli.errors import RowError, columns_listed
from onefit.cli.numerals import MISSING_MARKS, distinct

ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}.*)?"
ISO = "ISO8601"
# after a time
ZONE = r"(?P<clock>\d{2}:\d{2}[^+Z-]*)(?:Z|(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?)$"
TIME = r"(?P<time>[T ]\d{1,2}:\d{2}(?P<seconds>:\d{2})?)?"
NUMERIC = rf"(?P<first>\d{{1,2}})(?P<mark>[./-])(?P<second>\d{{1,2}})[./-](?P<year>\d{{4}}|\d{{2}}){TIME}"
WRITTEN = {  # in one way only
    ISO_DATE: ISO,
    r"\d{1,2} [A-Za-z]{3} \d{4}": "%d %b %Y",
    r"\d{1,2}-[A-Za-z]{3}-\d{4}": "%d-%b-%Y",
    r"[A-Za-z]{3} \d{1,2}, \d{4}": "%b %d, %Y",
    r"\d{1,2} [A-Za-z]{4,} \d{4}": "%d %B %Y",
    r"\d{4}/\d{1,2}/\d{1,2}": "%Y/%m/%d",
    r"\d{4}\.\d{1,2}\.\d{1,2}": "%Y.%m.%d",
}
YEAR, WEEK = 365.2425, 7.0
SECONDS = 86_400.0  # of a day
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SEASONS = 1.5  # years that must be covered before a season can be told from a trend
WEEKS = 4  # the same for days of the week


def date_format(column: pd.Series, day_first: bool | None = None) -> tuple[str, bool] | None:
    """Format of a column of text that holds dates, and whether day and month might be the other way round.

    Parameters
    ----------
    column : Series of text
    day_first : bool, optional
        Decides what the column leaves open; if missing, days come first before dots, months before slashes.
    """
    cells = distinct(column).astype(str).str.strip()
    if not len(cells):
        return None
    for pattern, format_ in WRITTEN.items():
        if cells.str.fullmatch(pattern).all():
            return format_, False
    parts = cells.str.extract(f"^{NUMERIC}$")
    if parts["first"].isna().any() or parts["mark"].nunique() != 1 or parts["year"].str.len().nunique() != 1:
        return None
    first, second = parts["first"].astype(int).max(), parts["second"].astype(int).max()
    if min(first, second) > 12 or max(first, second) > 31:
        return None
    unsure = max(first, second) <= 12
    mark = parts["mark"].iloc[0]
    days_lead = (mark == "." if day_first is None else day_first) if unsure else first > 12
    return _numeric_format(parts, mark, days_lead), unsure and mark != "." and day_first is None


def _numeric_format(parts: pd.DataFrame, mark: str, days_lead: bool) -> str:
    order = ("%d", "%m") if days_lead else ("%m", "%d")
    year = "%Y" if len(parts["year"].iloc[0]) == 4 else "%y"
    time = parts["time"].dropna()
    if len(time) < len(parts):
        return mark.join([*order, year])
    clock = " %H:%M:%S" if parts["seconds"].notna().all() else " %H:%M"
    return mark.join([*order, year]) + (clock.replace(" ", "T") if time.iloc[0][0] == "T" else clock)


def dates(column: pd.Series, format_: str) -> pd.Series | None:
    """A column of text as dates; None if some cell is not such a date."""
    cells = column.where(~column.isin(MISSING_MARKS))
    try:
        moments = pd.to_datetime(cells, format=format_, utc=format_ == ISO)
    except (ValueError, TypeError):
        return None
    return moments if format_ != ISO else _local(cells, moments)


def _local(cells: pd.Series, moments: pd.Series) -> pd.Series:
    """Moments in the zone that the cells are written in; the cells themselves where they differ in it."""
    text = cells.dropna().astype(str).str.strip()
    if not text.str.contains(":.*[Z+-]").any():
        return moments
    parts = text.str.extract(ZONE)
    offsets = {
        timedelta(hours=int(f"{sign}{hours}"), minutes=int(f"{sign}{minutes}"))
        for sign, hours, minutes in parts[["sign", "hours", "minutes"]]
        .fillna({"sign": "+", "hours": "0", "minutes": "0"})
        .drop_duplicates()
        .itertuples(index=False)
    }
    if len(offsets) > 1:  # as of a clock that is put forward in summer
        return cells
    return moments.dt.tz_convert(timezone(offsets.pop())) if any(offsets) else moments


def strays(column: pd.Series, format_: str) -> list[str]:
    """Distinct cells that are no such dates."""
    return [str(cell) for cell in _strange(column, format_).unique()]


def _strange(column: pd.Series, format_: str) -> pd.Series:
    present = column.dropna()
    present = present[~present.isin(MISSING_MARKS)]
    found = pd.to_datetime(present.astype(str), format=format_, utc=format_ == ISO, errors="coerce")
    return present[found.isna()]


def refusal(column: pd.Series, format_: str = ISO) -> RowError:
    """What is wrong with a column that ought to hold dates."""
    written = "such as 2024-01-31" if format_ == ISO else f"written {format_}"
    strange = _strange(column, format_)
    cells = strange if len(strange) else column.dropna()
    form = None if types.is_numeric_dtype(column) else date_format(column)
    settled = "; --day-first or --month-first says how they are to be read" if form and form[1] else ""
    return RowError(
        f"column {column.name!r} must hold dates {written}, but row {cells.index[0]} has "
        f"{str(cells.iloc[0])!r}{settled}"
    )


def told(formats: dict[str, tuple[str, bool]]) -> Iterator[str]:
    """Say which columns of text were read as dates, and how they are written."""
    for found in dict.fromkeys(formats.values()):
        which = columns_listed([name for name, one in formats.items() if one == found])
        doubt = "; no day is above 12, so check whether day and month are the right way round (--day-first)"
        if found[0] != ISO:
            yield f"read as dates written {found[0]}: {which}{doubt if found[1] else ''}"


def as_days(column: pd.Series) -> pd.Series:
    """Days since 1970, nan where missing; moments of several time zones are in their order."""
    try:
        is_date = types.is_datetime64_any_dtype(column)
        moments = pd.to_datetime(column, format=None if is_date else ISO, utc=True)
    except (ValueError, TypeError) as error:
        raise refusal(column) from error
    return (moments - pd.to_datetime(0, utc=True)) / pd.to_timedelta(1, unit="D")


def local_days(column: pd.Series) -> Array:
    """The same by the calendar and the clock of the time zone that each moment is written in."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_localize(None)
    elif not types.is_datetime64_any_dtype(column):
        text = column.dropna().astype(str).str.strip().str.replace(ZONE, r"\g<clock>", regex=True)
        column = text.str.strip().reindex(column.index)
    return as_days(column).to_numpy(np.float64)


class Calendar(TransformerMixin, BaseEstimator):
    """Dates as numbers: days, and where the data cover enough of them season, day of the week and hour.

    Attributes
    ----------
    feature_names_in_ : list of str
    parts_ : list of list of str
        Of each column, what stands for it beside the days.
    """

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """See what the dates cover."""
        self.feature_names_in_ = list(X.columns)
        self.n_features_in_ = X.shape[1]
        self.parts_ = [_covered(local_days(X[name])) for name in X.columns]
        self.clock_ = "local"  # of earlier versions it was that of UTC
        return self

    def transform(self, X: pd.DataFrame) -> Array:
        """Return (n, k) floats; days are nan where missing, all else is 0 there."""
        check_is_fitted(self)
        made = []
        for name, parts in zip(self.feature_names_in_, self.parts_, strict=True):
            days = as_days(X[name])
            local = local_days(X[name]) if hasattr(self, "clock_") else days.to_numpy(np.float64)
            made += [days, *(np.nan_to_num(PARTS[part](local)) for part in parts)]
        return np.column_stack(made)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name of the column, and of what was made of it."""
        names = [
            name
            for column, parts in zip(self.feature_names_in_, self.parts_, strict=True)
            for name in [f"{column} (days)", *(f"{column}: {part}" for part in parts)]
        ]
        return np.asarray(names, dtype=object)


def _covered(days: Array) -> list[str]:
    parts: list[str] = []
    days = days[~np.isnan(days)]
    if not len(days):
        return parts
    span = np.ptp(days)
    if span >= SEASONS * YEAR:
        parts += ["season, winter", "season, spring"]
    weekdays = np.unique(np.floor(days + 3) % WEEK)
    if span >= WEEKS * WEEK and len(days) >= WEEKS * WEEK and len(weekdays) > 1:
        parts += [WEEKDAYS[int(day)] for day in weekdays]
    if len(np.unique(_clock(days))) > 1:
        parts += ["hour, night", "hour, morning"]
    return parts


def _clock(days: Array) -> Array:
    """Time of day as a share of it, to the second: what is less may be rounding."""
    return np.round(days * SECONDS) % SECONDS / SECONDS


def _wave(period: float, shift: float) -> Any:
    return lambda days: np.cos(2.0 * np.pi * (days / period - shift))


def _hour(shift: float) -> Any:
    return lambda days: np.cos(2.0 * np.pi * (_clock(days) - shift))


def _weekday(number: int) -> Any:
    return lambda days: np.where(np.isnan(days), np.nan, np.floor(days + 3) % WEEK == number)


PARTS = {  # 1970 began on a Thursday in winter
    "season, winter": _wave(YEAR, 0.0),
    "season, spring": _wave(YEAR, 0.25),
    "hour, night": _hour(0.0),
    "hour, morning": _hour(0.25),
    **{name: _weekday(number) for number, name in enumerate(WEEKDAYS)},
}

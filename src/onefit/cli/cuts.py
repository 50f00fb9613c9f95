"""Rows that leave together: whole groups, or all later rows; judged by refits of the whole pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, TimeSeriesSplit

from onefit._typing import Array, Index
from onefit.cli.coefficients import GroupRefit
from onefit.cli.dates import as_days
from onefit.cli.errors import TableError, listed
from onefit.cli.judged import METRICS, LeftOutTable, class_numbers, constant_losses, response
from onefit.cli.preprocessing import feature_names, preprocessing, units
from onefit.cli.table import Table, kind_of
from onefit.displays.strengths import strengths_of
from onefit.exceptions import ShortPathWarning

MOST_FOLDS = 10  # of groups
WINDOWS = 5  # in time


@dataclass(frozen=True, eq=False)
class Cuts:
    """Splits into rows to fit and rows to judge.

    Attributes
    ----------
    column : str
        That says what leaves together.
    kind : {"groups", "time"}
    splits : tuple of (train, test)
        Row positions.
    clusters : (n,) int array or None
        Group of each row.
    """

    column: str
    kind: str
    splits: tuple[tuple[Index, Index], ...]
    clusters: Index | None

    @property
    def rows(self) -> Index:
        """Rows that are judged, in the order of the splits."""
        return np.concatenate([test for _, test in self.splits])

    @property
    def parts(self) -> Index | None:
        """Number of the split of each judged row, in the same order; None for time."""
        if self.clusters is None:
            return None
        return np.repeat(np.arange(len(self.splits)), [len(test) for _, test in self.splits])

    @property
    def words(self) -> str:
        """What is new in the rows that are judged."""
        n = len(self.splits)
        if self.kind == "groups":
            assert self.clusters is not None
            count = len(np.unique(self.clusters))
            how = "each left out in turn" if count == n else f"left out in {n} parts"
            return f"new {self.column} ({count} of them, {how})"
        return f"later rows by {self.column} ({n} windows, each predicted from what came before)"


def group_cuts(table: Table, groups: pd.Series) -> Cuts:
    """Leave whole groups out: each in turn if they are few, else in ten parts of about the same size.

    Raises
    ------
    TableError
        If rows to fit lack a class.
    """
    clusters = pd.factorize(groups)[0]
    n_splits = min(MOST_FOLDS, len(np.unique(clusters)))
    numbers = class_numbers(table.y) if table.is_classification else np.zeros(len(table.y))
    stratified = table.is_classification and np.bincount(numbers.astype(np.intp)).min() >= n_splits
    splitter: Any = (
        StratifiedGroupKFold(n_splits, shuffle=True, random_state=0) if stratified else GroupKFold(n_splits)
    )
    splits = [split for split in splitter.split(clusters, numbers, clusters) if len(split[1])]
    for label, rows, _ in _lost_classes(table, splits):
        where = listed([repr(str(one)) for one in groups.iloc[rows].unique()], 6)
        raise TableError(
            f"groups {groups.name!r}: class {label!r} is in {where} alone, and no row of it stays when these "
            "rows leave; merge classes, or use another column"
        )
    return Cuts(str(groups.name), "groups", tuple(splits), clusters)


def time_cuts(table: Table, time: pd.Series) -> Cuts:
    """Predict five windows in time, each from all rows before it; equal times stay together.

    Raises
    ------
    TableError
        If rows to fit lack a class.
    """
    values = as_days(time) if kind_of(time) == "date" else time
    moments = np.unique(values, return_inverse=True)[1]
    count = int(moments.max()) + 1
    windows = TimeSeriesSplit(min(WINDOWS, count - 1)).split(np.zeros((count, 1)))
    splits = [
        (np.flatnonzero(moments <= before.max()), np.flatnonzero(np.isin(moments, window)))
        for before, window in windows
    ]
    for label, rows, train in _lost_classes(table, splits):
        first, last = time.iloc[rows[np.argmin(moments[rows])]], time.iloc[train[np.argmax(moments[train])]]
        raise TableError(
            f"time {time.name!r}: class {label!r} first occurs at {_moment(first)}, and the rows up to "
            f"{_moment(last)}, which the next window is predicted from, have none; merge classes, or use "
            "another column"
        )
    return Cuts(str(time.name), "time", tuple(splits), None)


def _moment(value: Any) -> str:
    """A number, or a date without the zone and the midnight that it was given."""
    return str(value).removesuffix("+00:00").removesuffix(" 00:00:00")


def _lost_classes(table: Table, splits: list[tuple[Index, Index]]) -> Iterator[tuple[str, Index, Index]]:
    """Each class that training rows lack: its name, its rows and these training rows."""
    if table.is_classification:
        for train, _ in splits:
            for label in np.setdiff1d(table.y, table.y[train]):
                yield str(label), np.flatnonzero(table.y == label), train


def cuts_of(table: Table) -> Cuts | None:
    """The cuts that a table asks for; None where its rows are independent."""
    if table.groups is not None:
        return group_cuts(table, table.groups)
    return None if table.time is None else time_cuts(table, table.time)


@dataclass(frozen=True, eq=False)
class PathJudgement:
    """Left-out predictors of all strengths of a path.

    Attributes
    ----------
    strengths : (J,) array
    eta : (m, J) or (m, J, c) array
    baseline : (m,) array
        Losses of the constant that each training part suggests.
    fits : list of GroupRefit
        Of each training part, with coefficients (J, p) or (J, c, p).
    """

    cuts: Cuts
    table: Table
    strengths: Array
    eta: Array
    baseline: Array
    loss_name: str
    fits: list[GroupRefit]

    def at(self, position: int) -> LeftOutTable:
        """Left-out predictions at a strength."""
        rows, groups, metric = self.cuts.rows, self.cuts.clusters, METRICS[self.loss_name]
        return LeftOutTable(
            rows,
            metric.predictions(self.eta[:, position]),
            metric.losses(response(self.table)[rows], self.eta[:, position]),
            self.baseline,
            self.loss_name,
            self.table.row_weights[rows],
            None if groups is None else groups[rows],
            self.cuts.parts,
            together=True,
        )

    def risks(self) -> Array:
        """Weighted mean loss at each strength: (J,)."""
        return np.array(
            [np.average(one.losses, weights=one.weights) for one in map(self.at, range(len(self.strengths)))]
        )


def judge_path(model: Any, table: Table, cuts: Cuts, strengths: Array) -> PathJudgement:
    """Refit preprocessing and path on each training part, and predict what was left out.

    Parameters
    ----------
    model : fitted estimator that tunes itself
        Its clones try ``strengths``, at its chosen ``l1_ratio``.
    table : Table
    cuts : Cuts
    strengths : (J,) array
    """
    loss_name = model.loo_.loss_name
    eta, fits = zip(*(_path_on(model, table, *split, strengths) for split in cuts.splits), strict=True)
    baseline = np.concatenate([constant_losses(table, loss_name, split) for split in cuts.splits])
    return PathJudgement(cuts, table, strengths, np.concatenate(eta), baseline, loss_name, list(fits))


def _path_on(
    model: Any, table: Table, train: Index, test: Index, strengths: Array
) -> tuple[Array, GroupRefit]:
    """Linear predictors of test rows along a path of training rows, (t, J) or (t, J, c), and the path."""
    columns = preprocessing(table.features)
    X = columns.fit_transform(table.features.iloc[train])
    weights = None if table.weights is None else table.weights[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortPathWarning)  # where the path ends was found on all rows
        path = with_strengths(model, strengths).fit(X, table.y[train], sample_weight=weights)
    each = np.moveaxis(path.coef_path_, 1, -1)
    eta = np.moveaxis(each @ columns.transform(table.features.iloc[test]).T, -1, 0) + path.intercept_path_
    return eta, GroupRefit(feature_names(columns), each / units(columns)[0])


def with_strengths(model: Any, strengths: Array) -> Any:
    """The unfitted estimator, to try these strengths and no others, at the mix that was chosen."""
    options: dict[str, Any] = {f"{strengths_of(model)[0]}s": strengths}
    known = model.get_params()
    if "l1_ratio" in known and hasattr(model, "l1_ratio_"):
        options["l1_ratio"] = model.l1_ratio_
    if "early_stopping" in known:
        options["early_stopping"] = False
    return clone(model).set_params(**options)

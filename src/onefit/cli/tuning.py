"""From a table to tuned and compared models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from onefit._typing import Array
from onefit.api import loo
from onefit.cli import families
from onefit.cli.choices import COMPARED
from onefit.cli.coefficients import Coefficients, GroupRefit, by_parts, coefficients
from onefit.cli.comparison import Ranking, Suspicion, TunedModel
from onefit.cli.cuts import (
    Cuts,
    PathJudgement,
    cuts_of,
    group_cuts,
    judge_path,
    time_cuts,
    with_strengths,
)
from onefit.cli.errors import TableError
from onefit.cli.judged import METRICS, one_by_one, response, with_common_loss
from onefit.cli.preprocessing import feature_names, preprocessing, units
from onefit.cli.printed import say
from onefit.cli.progress import Progress
from onefit.cli.table import Table
from onefit.displays.strengths import strengths_of
from onefit.exceptions import OnefitWarning, ShortPathWarning, SolverError
from onefit.refitted import GivenSample, audited_folds
from onefit.risk.audit import Audit
from onefit.risk.folds import as_folds
from onefit.risk.judging import DISAGREES

AUDITED = 10  # refits of the chosen pipeline: enough to see an approximation that misleads, and soon done
AUDITED_CELLS = 5_000_000  # of a table that is audited unasked: leaving one row of more out changes nothing
MOST_STRENGTHS = 25  # of a path that is refitted for every part of the groups
COST = {"ridge": 1.0, "lasso": 2.0, "elasticnet": 9.0, "logistic": 9.0, "logistic-l1": 8.0, "poisson": 6.0}


@dataclass(frozen=True)
class Told:
    """Warnings that were shown already, so that none is shown twice."""

    texts: set[str] = field(default_factory=set)

    @contextmanager
    def about(self, what: str) -> Iterator[None]:
        """Show each new warning as one line."""
        with warnings.catch_warnings(record=True) as caught:
            for category in (UserWarning, RuntimeWarning, OnefitWarning):
                warnings.simplefilter("always", category)
            warnings.filterwarnings("ignore", message=f".* {DISAGREES} ")  # a caution says so
            yield
        for text in dict.fromkeys(str(one.message) for one in caught):
            if text not in self.texts:
                warn(f"{what}: {text}")
            self.texts.add(text)


def warn(message: str, kind: str = "warning") -> None:
    """One line on standard error: a warning, or a note."""
    say(f"onefit: {kind}: {' '.join(message.split())}", err=True)


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table and its features.

    Attributes
    ----------
    table : Table
    columns : ColumnTransformer
        Fitted on all rows.
    X : (n, p) array
    """

    table: Table
    columns: Any
    X: Array


def prepare(table: Table) -> PreparedTable:
    """Fit the preprocessing on all rows."""
    columns = preprocessing(table.features)
    return PreparedTable(table, columns, columns.fit_transform(table.features))


def progress_of(table: Table, model: str, audit: int) -> Progress:
    """The stages of tuning, and what they may cost relative to each other."""
    names = COMPARED[table.task] if model == "auto" else (model,)
    refits = 10.0 if table.groups is not None or table.time is not None else 1.0
    tuned = {f"tuning {name}": COST[name] * refits for name in names}
    share = sum(COST[name] for name in names) / len(names)
    audits = {"audit": 0.3 * audit * share} if audit else {}
    return Progress(
        {"preparing": 1.0, **tuned, "writing": 1.0, "second look": share, **audits, "report": 1.0}
    )


def tuned(prepared: PreparedTable, source: str, model: str, progress: Progress, told: Told) -> Ranking:
    """Tune every family that suits, and compare them.

    Parameters
    ----------
    prepared : PreparedTable
    source : str
        Where the table came from.
    model : str
        A family, or "auto" for all that suit the task.
    progress : Progress
    told : Told

    Raises
    ------
    TableError
        If no family can be fitted.
    """
    table = prepared.table
    names = COMPARED[table.task] if model == "auto" else (model,)
    cuts = cuts_of(table)
    fitted: dict[str, tuple[Any, PathJudgement | None, int]] = {}
    for name in names:
        with progress.stage(f"tuning {name}"):
            try:
                with told.about(name):
                    fitted[name] = _fit(name, prepared, cuts)
            except (SolverError, ValueError) as error:
                if len(names) == 1:
                    raise
                progress.clear()
                warn(f"{name} was left out: {error}")
    if not fitted:
        raise TableError("none of the models could be fitted")
    return _compared(prepared, source, fitted, cuts)


def _fit(name: str, prepared: PreparedTable, cuts: Cuts | None) -> tuple[Any, PathJudgement | None, int]:
    """A family tuned on all rows; with cuts, at the strength that is best for them."""
    table, X = prepared.table, prepared.X
    model = families.make(name, families.n_strengths(X.size))
    model.fit(X, table.y, sample_weight=table.weights)
    if cuts is None:
        return model, None, 0
    strengths = strengths_of(model)[1]
    some = strengths[np.unique(np.linspace(0, len(strengths) - 1, MOST_STRENGTHS).round().astype(int))]
    path = judge_path(model, table, cuts, some)
    best = int(np.nanargmin(path.risks()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortPathWarning)
        chosen = with_strengths(model, some[[best]]).fit(X, table.y, sample_weight=table.weights)
    return chosen, path, best


def _compared(
    prepared: PreparedTable,
    source: str,
    fitted: dict[str, tuple[Any, PathJudgement | None, int]],
    cuts: Cuts | None,
) -> Ranking:
    table = prepared.table
    judged = [
        one_by_one(model.loo_, table) if path is None else path.at(best)
        for model, path, best in fitted.values()
    ]
    candidates = [
        TunedModel(name, model, one)
        for (name, (model, _, _)), one in zip(fitted.items(), with_common_loss(judged, table), strict=True)
    ]
    ranked = sorted(candidates, key=lambda one: one.risk[0])
    names = tuple(feature_names(prepared.columns))
    found = coefficients_of(ranked[0].model, names, prepared, *fitted[ranked[0].name][1:])
    tried = families.n_strengths(prepared.X.size)
    return Ranking(table, source, tuple(ranked), names, tried, found, cuts)


def coefficients_of(
    model: Any, names: Sequence[str], prepared: PreparedTable, path: PathJudgement | None, position: int
) -> Coefficients:
    """Coefficients of the best model in the units of the table."""
    scale, centre = units(prepared.columns)
    spread = prepared.X.std(axis=0) * scale
    if path is None or path.cuts.kind == "time":
        return coefficients(model.loo_, list(names), scale, centre, spread)
    coef = np.asarray(model.coef_) / scale
    several = coef.ndim == 2 and len(coef) > 1
    full = GroupRefit(list(names), coef if several else coef.reshape(-1))
    words = f"refits without a part of the {path.cuts.column}"
    parts = [GroupRefit(one.names, one.coef[position]) for one in path.fits]
    return by_parts(parts, full, spread, list(map(str, model.classes_)) if several else None, words)


# --- after tuning ----------------------------------------------------------------------------------


def audit_size(table: Table, asked: int | None) -> int:
    """How many refits audit the result: those asked for, else ten where they may show anything."""
    if asked is not None:
        return asked
    together = table.groups is not None or table.time is not None
    return 0 if together or table.features.size > AUDITED_CELLS else AUDITED


def audited(pipeline: Pipeline, comparison: Ranking, m: int, told: Told) -> Audit | None:
    """Refit the chosen pipeline m times, without what left together in tuning, single rows by default.

    That it cannot be is told, and no reason to lose the rest.
    """
    if m == 0:
        return None
    table, cuts = comparison.table, comparison.cuts
    try:
        with told.about("audit"):
            if cuts is None:
                return loo(pipeline, table.features, table.y, table.weights, audit=m, rng=0).audit
            sample = GivenSample(pipeline, table.features, table.y, table.weights)
            folds, judged = as_folds(cuts.splits, table.features), comparison.best.judged
            metric = METRICS[judged.loss_name]
            return audited_folds(sample, folds, judged.losses, metric, response(table), (m, 0))
    except (SolverError, ValueError) as error:
        warn(f"there is no audit: {error}")
        return None


def suspicion(comparison: Ranking, table: Table, column: Any, kind: str) -> Suspicion | None:
    """Judge the best model with the rows of a column together, at the strength that it has."""
    best, left = comparison.best, [column.name] if kind == "groups" else []
    features = table.features.drop(columns=left, errors="ignore")
    if features.shape[1] == 0:
        return None
    without = replace(table, features=features)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about refits that are shown in one number alone
            cuts = group_cuts(without, column) if kind == "groups" else time_cuts(without, column)
            judged = judge_path(best.model, without, cuts, np.array([strengths_of(best.model)[2]])).at(0)
    except (SolverError, ValueError):
        return None
    return Suspicion(cuts, judged, comparison.scores_of(judged))


def together(comparison: Ranking, names: Sequence[tuple[str, str]], frame: Any) -> Ranking:
    """Add what happens if the rows of some columns belong together."""
    known = frame.iloc[comparison.table.rows]
    found = [suspicion(comparison, comparison.table, known[name], kind) for name, kind in names]
    return replace(comparison, suspicions=tuple(one for one in found if one is not None))

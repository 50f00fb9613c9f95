"""What ``onefit tune`` finds on fifteen tables, beside a scikit-learn pipeline; printed for docs/tables.md.

    python benchmarks/tune_tables.py [--tables NAME ...] [--draws N] [--model NAME]   # a minute a draw

The command sees two thirds of the lines of a file, drawn at random, of whole groups where there are any, and
predicts the last third.  The pipeline is given the same rows and the columns that onefit has kept, as it has
read them, in random order, so that its folds are random.  The tables show the first draw, and of all draws
the mean gain and the smallest and the largest one.  Ten tables are read from the folder in ONEFIT_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import written_tables
from choice.tables import data_folder
from onefit.cli import run
from onefit.cli.dates import as_days
from onefit.cli.preprocessing import as_levels
from onefit.cli.reading import read_table
from onefit.cli.table import Roles, kind_of, split
from onefit.cli.target import target_values
from onefit.risk.means import clustered, mean_and_error

Array = np.ndarray
# lines about this very table begin so, beside those on groups and time
TOLD = ("left out column", "note:", "No model", "Only", "The approximation", "onefit: warning")
SAYS = ("table", "rows", "task", "chosen", "left out", "last third")
BESIDE = ("table", "last third", "of the peer", "gain", "all draws")
NUMBERS = ("rows", "gain", "all draws")
FOLDS = 5
ITERATIONS = 10_000  # of the peers: more than they take


@dataclass(frozen=True)
class Case:
    """A file and what is asked of it.

    Attributes
    ----------
    file, target : str
    content : function
        Returns the bytes of the file.
    groups : str
        Column whose rows stay together; none where empty.
    dropped : tuple of str
        Columns that hold the answer.
    written : str
        How it is written, for the table.
    model : str
        Of the command.
    """

    file: str
    target: str
    content: Callable[[], bytes]
    groups: str = ""
    dropped: tuple[str, ...] = ()
    written: str = ""
    model: str = "auto"

    @property
    def name(self) -> str:
        marks = (f" ({self.written})" if self.written else "", ", groups" if self.groups else "")
        return self.file.removesuffix(".csv.gz") + "".join(marks)

    @property
    def roles(self) -> Roles:
        return Roles(self.target, groups=self.groups or None, drop=self.dropped)


# --- the tables ----------------------------------------------------------------------------------------


def kept(file: str) -> bytes:
    """A file of the folder of real data."""
    return gzip.decompress((data_folder() / file).read_bytes())


def real(name: str, target: str, groups: str = "", dropped: tuple[str, ...] = ()) -> Case:
    """A table that is in wide use."""
    return Case(f"{name}.csv.gz", target, partial(kept, f"{name}.csv.gz"), groups, dropped)


CASES = (
    real("auto_mpg", "mpg"),
    real("prostate", "lpsa"),
    real("heart_disease", "chd"),
    real("forest_fires", "area"),
    real("student_math", "G3"),
    real("communities_crime", "ViolentCrimesPerPop"),
    real("abalone", "rings"),
    real("wine_quality", "quality"),
    real("parkinsons_telemonitoring", "total_UPDRS", "subject#", ("motor_UPDRS",)),
    real("bike_sharing_hour", "cnt", "", ("casual", "registered")),
    Case("mieten.csv", "Jahresmiete", written_tables.rents, written="Latin-1, `68.045,57`"),
    Case("sales.csv", "revenue", written_tables.sales, written="`$1,234.50`, `12%`, `02/28/2024`"),
    Case("besucher.tsv", "Besucher", written_tables.visitors, written="`01.02.2024`, tabs"),
    Case("patients.csv", "pressure", written_tables.patients, "patient"),
    Case("fraud.csv", "fraud", written_tables.fraud, written="2 % yes"),
)


# --- both sides on the last third ----------------------------------------------------------------------


class Parts(NamedTuple):
    """All rows as onefit reads them, and the numbers of those that are seen and of the last third."""

    frame: pd.DataFrame
    seen: Array
    last: Array


class Found(NamedTuple):
    """What came of a case: the summary of the command, losses and scores on the last third, what was said."""

    rows: int
    summary: dict[str, Any]
    losses: tuple[Array, Array]  # ours and the peer's
    scores: tuple[str, str]
    groups: Array  # of the rows of the last third
    said: list[str]

    @property
    def gain(self) -> tuple[float, float]:
        """By how much our loss is below the peer's, as a share of it, and the standard error of that."""
        ours, theirs = self.losses
        gain, error = mean_of(theirs - ours, self.groups)
        return gain / theirs.mean(), error / theirs.mean()


def mean_of(values: Array, groups: Array) -> tuple[float, float]:
    """Mean over rows and its standard error, of which each group is one draw."""
    return mean_and_error(*clustered(values, np.ones(len(values)), groups))


def divide(case: Case, folder: Path, seed: int = 0) -> Parts:
    """Write two thirds of the lines of a file, and the others."""
    whole, ending = folder / case.file.removesuffix(".gz"), Path(case.file.removesuffix(".gz")).suffix
    whole.write_bytes(case.content())
    frame = read_table(whole).frame
    groups = frame[case.groups].to_numpy() if case.groups else np.arange(len(frame))
    names = np.random.default_rng(seed).permutation(np.unique(groups))
    is_seen = np.isin(groups, names[: round(2 * len(names) / 3)])
    header, *lines = whole.read_bytes().splitlines(keepends=True)
    for name, some in (("seen", is_seen), ("last", ~is_seen)):
        held = [line for line, is_held in zip(lines, some, strict=True) if is_held]
        (folder / f"{name}{ending}").write_bytes(b"".join([header, *held]))
    return Parts(frame, np.flatnonzero(is_seen), np.flatnonzero(~is_seen))


def onefit(*words: str) -> list[str]:
    """Run the command and return the lines that it prints, warnings last."""
    printed, warned = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(warned):
        status = run(words)
    if status:
        raise RuntimeError(f"onefit {' '.join(words)}: {warned.getvalue()}")
    return [*printed.getvalue().splitlines(), *warned.getvalue().splitlines()]


def tuned(case: Case, folder: Path) -> tuple[dict[str, Any], pd.DataFrame, list[str]]:
    """Summary of the command on two thirds, its predictions of the last third, and what it said."""
    seen, last = (next(map(str, folder.glob(f"{name}.*"))) for name in ("seen", "last"))
    out, predicted = str(folder / "results"), folder / "predicted.csv"
    words = ["tune", seen, "--target", case.target, "--model", case.model]
    words += [word for name in case.dropped for word in ("--drop", name)]
    grouped = ["--groups", case.groups] if case.groups else []
    said = list(told(onefit(*words, *grouped, "--out", out)))
    if case.groups:
        said += [f"without --groups: {line}" for line in told(onefit(*words))]
    onefit("predict", out, last, "--out", str(predicted))
    return json.loads((folder / "results" / "summary.json").read_text()), pd.read_csv(predicted), said


def told(lines: list[str]) -> Iterator[str]:
    """Those that are about this very table."""
    return (line for line in lines if line.startswith(TOLD) or " looks like " in line)


def plain(features: pd.DataFrame, name: str) -> Any:
    """A column with dates as days and missing text as a level."""
    kind = kind_of(features[name])
    if kind == "text":
        return as_levels(features[[name]]).ravel()
    return as_days(features[name]) if kind == "date" else features[name]


def peer(features: pd.DataFrame, folds: Any, *, of_classes: bool) -> Any:
    """The pipeline that is usual in scikit-learn."""
    numbers = [name for name in features if kind_of(features[name]) == "number"]
    levels = [name for name in features if name not in numbers]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), levels),
        sparse_threshold=0.0,
    )
    if not of_classes:
        return make_pipeline(columns, LassoCV(cv=folds, max_iter=ITERATIONS))
    settings = {"scoring": "neg_log_loss", "max_iter": ITERATIONS, "use_legacy_attributes": False}
    return make_pipeline(columns, LogisticRegressionCV(Cs=20, cv=folds, **settings))


def predictions_of_peer(case: Case, parts: Parts, task: str) -> Array:
    """Predictions of the last third, or probabilities of the classes in their order."""
    rows = np.random.default_rng(0).permutation(parts.seen)
    columns = split(parts.frame.iloc[parts.seen], case.roles, task).features.columns
    features = pd.DataFrame({name: plain(parts.frame, name) for name in columns})
    y = target_values(parts.frame[case.target], task)
    groups = parts.frame[case.groups].to_numpy()[rows] if case.groups else None
    folds = FOLDS if groups is None else list(GroupKFold(FOLDS).split(rows, y[rows], groups))
    model = peer(features, folds, of_classes=task == "binary").fit(features.iloc[rows], y[rows])
    last = features.iloc[parts.last]
    return model.predict_proba(last) if task == "binary" else model.predict(last)


def judged(y: Array, predicted: Array, groups: Array, task: str) -> tuple[Array, str]:
    """Losses of rows, and the score that is shown, with its standard error."""
    if task == "binary":
        positive = y == np.unique(y)[1]
        losses = -np.log(np.where(positive, predicted[:, 1], predicted[:, 0]))
        area = roc_auc_score(positive, predicted[:, 1])
        return losses, f"{signed(*mean_of(losses, groups))}, AUC {area:.3f}"
    losses, around = (y - predicted) ** 2, (y - y.mean()) ** 2
    unexplained = losses.mean() / around.mean()
    error = mean_of((losses - unexplained * around) / around.mean(), groups)[1]
    return losses, signed(1.0 - unexplained, error)


def compared(case: Case, seed: int = 0) -> Found:
    """Both sides on the last third of a case."""
    with tempfile.TemporaryDirectory() as place:
        parts = divide(case, Path(place), seed)
        summary, predicted, said = tuned(case, Path(place))
    task = summary["task"]
    y = target_values(parts.frame[case.target], task)[parts.last]
    names = [f"prediction_{label}" for label in np.unique(y)] if task == "binary" else "prediction"
    groups = parts.frame[case.groups].to_numpy()[parts.last] if case.groups else parts.last
    both = predicted[names].to_numpy(), predictions_of_peer(case, parts, task)
    (ours, our_score), (theirs, their_score) = (judged(y, one, groups, task) for one in both)
    return Found(len(parts.frame), summary, (ours, theirs), (our_score, their_score), groups, said)


# --- the page ------------------------------------------------------------------------------------------


def signed(value: float, error: float) -> str:
    """0.778 ± 0.020."""
    return f"{value:z.3f} ± {error:.3f}".replace("-", "−")


def percent(share: float) -> str:
    """+0.64, of a share."""
    return f"{100.0 * share:+z.2f}".replace("-", "−")


def lines(case: Case, draws: list[Found]) -> tuple[str, str]:
    """A row of either table: what the command says in the first draw; both sides, and the gains of all."""
    found = draws[0]
    scores, task = found.summary["scores"], found.summary["task"]
    name = "log-loss" if task == "binary" else "R²"
    gain, error = found.gain
    gains = [one.gain[0] for one in draws]
    among = f"{percent(float(np.mean(gains)))} ({percent(min(gains))} to {percent(max(gains))})"
    left_out, sure = f"{name} {signed(*scores[name])}", f"{percent(gain)} ± {100.0 * error:.2f} %"
    says = case.name, found.rows, task, found.summary["best"], left_out, found.scores[0]
    beside = case.name.split(" (")[0], *found.scores, sure, among
    return row(says), row(beside)


def row(cells: tuple[Any, ...]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def head(titles: tuple[str, ...]) -> str:
    """The title row of a table, numbers to the right."""
    return f"{row(titles)}\n|{'|'.join('---:' if one in NUMBERS else '---' for one in titles)}|"


def main() -> None:
    """Print both tables, and below them what was said."""
    names = [case.file.split(".")[0] for case in CASES]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=names, default=names)
    parser.add_argument("--model", default="auto", help="that the command is asked for")
    parser.add_argument("--draws", type=int, default=10, help="of two thirds of the rows")
    asked = parser.parse_args()
    said, besides = list[str](), list[str]()
    print(head(SAYS))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the peers; the command shows its own
        for case in CASES:
            if case.file.split(".")[0] in asked.tables:
                draws = [compared(replace(case, model=asked.model), seed) for seed in range(asked.draws)]
                says, beside = lines(case, draws)
                print(says, flush=True)
                besides.append(beside)
                said += [f"- {case.file.removesuffix('.csv.gz')}: {one}" for one in draws[0].said]
    print("\n".join(["", head(BESIDE), *besides, "", *said]))


if __name__ == "__main__":
    main()

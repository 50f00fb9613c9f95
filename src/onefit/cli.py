"""The command line: a table in; a table, a saved model, predictions and a report out."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import skops.io
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from skops.io.exceptions import UnsupportedTypeException, UntrustedTypesFoundException

import onefit
from onefit import report
from onefit.api import loo as leave_one_out
from onefit.estimators import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit.exceptions import OnefitWarning, SolverError, UnsupportedModelError
from onefit.report import Candidate, Comparison
from onefit.risk.audit import Audit
from onefit.table import (
    TASKS,
    Table,
    TableError,
    feature_names,
    preprocessing,
    read_table,
    require_column,
    split,
)

MIXES = (0.1, 0.5, 0.9)
AUDITED = 10  # refits of the chosen pipeline: enough to see an approximation that misleads, and soon done
NUMBERS, CLASSES, COUNTS = ("regression",), ("binary", "multiclass"), ("counts",)
FAMILIES: dict[str, tuple[tuple[str, ...], Callable[[], BaseEstimator]]] = {
    "ridge": (NUMBERS + COUNTS, RidgeLOO),
    "lasso": (NUMBERS + COUNTS, LassoLOO),
    "elasticnet": (NUMBERS + COUNTS, lambda: ElasticNetLOO(l1_ratio=MIXES)),
    "logistic": (CLASSES, LogisticLOO),
    "logistic-l1": (CLASSES, lambda: LogisticLOO(l1_ratio=1.0)),
    "poisson": (COUNTS, PoissonLOO),
}
COMPARED = {
    "regression": ("ridge", "lasso", "elasticnet"),
    "binary": ("logistic", "logistic-l1"),
    "multiclass": ("logistic", "logistic-l1"),
    "counts": ("poisson", "ridge"),  # compared by squared error, which both can be judged by
}

TRUSTED = frozenset(  # what our own files hold beside what skops trusts by itself
    [
        *(
            f"{cls.__module__}.{cls.__name__}"
            for cls in (ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO)
        ),
        "onefit.risk.estimate.RiskEstimate",
        "onefit.table.as_days",
        "onefit.table.as_levels",
        "onefit.table.as_numbers",
        "onefit.table.level_name",
        "numpy.dtype",
    ]
)
UNREADABLE = (
    zipfile.BadZipFile,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ImportError,
    UnsupportedTypeException,
    UntrustedTypesFoundException,
)
BAD_INPUT = (ValueError, UnsupportedModelError, SolverError, NotFittedError, OSError, MemoryError)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process if missing.

    Returns
    -------
    int
        0, 2 for bad usage or bad data, 130 after Ctrl-C.
    """
    try:
        return _invoke(list(sys.argv[1:] if arguments is None else arguments))
    except (KeyboardInterrupt, click.Abort):
        below = "\n" if sys.stderr.isatty() else ""  # the line with the terminal's own ^C
        click.echo(f"{below}onefit: interrupted", err=True)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough; nothing is left to be flushed to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BAD_INPUT as error:
        return _fail(str(error) or type(error).__name__)


def _invoke(arguments: list[str]) -> int:
    """Run a command of click, whose own errors become one line too."""
    try:
        with main.make_context("onefit", arguments) as context:
            main.invoke(context)
    except click.exceptions.Exit as done:  # --help and --version
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as usage:
        click.echo(usage.ctx.get_help(), err=True)
        return 2
    except click.ClickException as error:
        return _fail(error.format_message())
    return 0


def _fail(message: str) -> int:
    click.echo(f"onefit: error: {' '.join(message.split())}", err=True)
    return 2


def _several(_context: click.Context, _option: click.Parameter, m: int) -> int:
    """See that an audit can tell its error."""
    if m == 1:
        raise click.BadParameter("an audit needs at least 2 refits to tell its error (0 for none)")
    return m


def _audit_option(default: int, what: str) -> Callable[..., Any]:
    return click.option(
        "--audit",
        default=default,
        type=click.IntRange(min=0),
        callback=_several,
        metavar="M",
        show_default=True,
        help=f"Check {what} by M refits, preprocessing and all; 0 for none.",
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(onefit.__version__, prog_name="onefit")
def main() -> None:
    """Leave-one-out accuracy for the price of one fit."""


# --- commands --------------------------------------------------------------------------------------


@main.command()
@click.argument("file")
@click.option("--target", required=True, metavar="COLUMN", help="Column to predict.")
@click.option("--model", default="auto", type=click.Choice(["auto", *FAMILIES]), show_default=True)
@click.option("--task", default="auto", type=click.Choice(["auto", *TASKS]), show_default=True)
@click.option("--weights", metavar="COLUMN", help="Column of sample weights.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Column to leave out; may be repeated.")
@click.option(
    "--keep", multiple=True, metavar="COLUMN", help="Column to keep though it looks like an identifier."
)
@_audit_option(AUDITED, "the chosen model")
@click.option("--out", metavar="DIR", help="Folder for model.skops, predictions.csv and report.html.")
def tune(
    file: str,
    target: str,
    model: str,
    task: str,
    weights: str | None,
    drop: tuple[str, ...],
    keep: tuple[str, ...],
    audit: int,
    out: str | None,
) -> None:
    """Tune and compare models on a table.

    FILE is CSV (also ; or tab separated, also .gz) or Parquet.  With --model auto every family that suits
    the target is tuned, and the one with the smallest left-out risk is taken: ridge, lasso and elasticnet for
    numbers; logistic and logistic-l1 for classes; poisson and ridge, by squared error, for counts.
    """
    with _folder(out) as folder:
        frame = read_table(file)
        with _naming(file):
            task = _task(task, model, frame, target)
            table = split(frame, target, task=task, weights=weights, drop=drop, keep=keep)
            _tune(table, Path(file).name, model, folder, audit)


@main.command()
@click.argument("model_file", metavar="MODEL")
@click.argument("file")
@click.option("--target", required=True, metavar="COLUMN", help="Column that the model predicts.")
@click.option("--weights", metavar="COLUMN", help="Column of the weights that the model was fitted with.")
@_audit_option(0, "the result")
@click.option("--exact", is_flag=True, help="Make every value that of its refit.")
@click.option("--out", metavar="FILE", help="CSV file for the left-out predictions.")
def loo(
    model_file: str, file: str, target: str, weights: str | None, audit: int, exact: bool, out: str | None
) -> None:
    """Leave rows out of a saved MODEL.

    FILE is the table that it was fitted on.  A model without a formula needs --audit or --exact.
    """
    with _writable(out) as path:
        pipeline = load(model_file)
        frame = read_table(file)
        with _naming(file):
            table = _as_fitted(pipeline, frame, target, weights)
        with _naming(file), _our_warnings("loo"):
            features = _features(pipeline, table.features)
            est = leave_one_out(pipeline, features, table.y, table.weights, exact=exact, audit=audit, rng=0)
            est.flagged  # noqa: B018  (proofs are made, and warned of, when asked for: here, once)
        click.echo(est)
        for line in [] if est.audit is None else report.audited(est.audit, est.loss_name):
            click.echo(line)
        if path is not None:
            _write(path, report.predictions(table, est).to_csv(index=False).encode())


@main.command()
@click.argument("model_file", metavar="MODEL")
@click.argument("file")
@click.option("--out", metavar="FILE", help="CSV file for the predictions instead of standard output.")
def predict(model_file: str, file: str, out: str | None) -> None:
    """Predict with a saved MODEL.

    Every row of FILE is predicted, and written as CSV.
    """
    with _writable(out) as path:
        pipeline = load(model_file)
        frame = read_table(file)
        classes = getattr(pipeline, "classes_", None)
        by_probability = classes is not None and hasattr(pipeline, "predict_proba")
        with _naming(file), _our_warnings("predict"):
            features = _features(pipeline, frame)
            values = pipeline.predict_proba(features) if by_probability else pipeline.predict(features)
        columns = report.predicted(values, classes if by_probability else None, "prediction")
        text = pd.DataFrame({"row": np.arange(len(features)), **columns}).to_csv(index=False)
        if path is None:
            click.echo(text, nl=False)
        else:
            _write(path, text.encode())


@main.command()
@click.option("--out", metavar="DIR", help="Folder for the results; a temporary one if missing.")
def demo(out: str | None) -> None:
    """Tune on two data sets of scikit-learn."""
    place = out or tempfile.mkdtemp(prefix="onefit-demo-")
    for name, loader in (("diabetes", load_diabetes), ("breast_cancer", load_breast_cancer)):
        bunch = loader(as_frame=True)
        frame = bunch.frame
        if hasattr(bunch, "target_names"):
            frame = frame.assign(target=bunch.target_names[bunch.target])
        with _folder(str(Path(place) / name)) as folder:
            _tune(split(frame, "target"), f"scikit-learn's {name}", "auto", folder, AUDITED)
        click.echo()


# --- tuning ----------------------------------------------------------------------------------------


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{file}: {error}") from error


def _task(task: str, model: str, frame: pd.DataFrame, target: str) -> str:
    """Let a model that was asked for decide the task."""
    if task != "auto" or model == "auto":
        if model != "auto" and task not in FAMILIES[model][0]:
            suited = [name for name, (tasks, _) in FAMILIES.items() if task in tasks]
            raise TableError(f"{model} does not suit {task}: use --model {' or '.join(suited)}")
        return task
    tasks, _ = FAMILIES[model]
    if tasks != CLASSES:
        return tasks[0]
    require_column(frame, target)
    return "binary" if frame[target].nunique() <= 2 else "multiclass"


def _tune(table: Table, source: str, model: str, folder: Path | None, audit: int) -> None:
    """Fit, compare, audit, tell and write."""
    columns = preprocessing(table.features)
    X = columns.fit_transform(table.features)
    names = COMPARED[table.task] if model == "auto" else (model,)
    told: set[str] = set()
    fitted = _fit_all(names, X, table, told)
    loss_name, losses = report.common_loss([one.loo_ for one in fitted.values()], table.y)
    candidates = [
        Candidate(name, one, each) for (name, one), each in zip(fitted.items(), losses, strict=True)
    ]
    candidates.sort(key=lambda candidate: float(np.average(candidate.losses, weights=table.weights)))
    comparison = Comparison(
        table,
        source,
        tuple(candidates),
        loss_name,
        report.constant_losses(table, loss_name),
        tuple(feature_names(columns)),
    )
    pipeline = Pipeline([("preprocessing", columns), ("model", comparison.best.model)])
    comparison = replace(comparison, audit=_audit(pipeline, table, audit, told))
    _tell(comparison)
    if folder is not None:
        _save(folder, comparison, pipeline)


def _audit(pipeline: Pipeline, table: Table, m: int, told: set[str]) -> Audit | None:
    """Refit the chosen pipeline m times; that it cannot be is told, and no reason to lose the rest."""
    if m == 0:
        return None
    try:
        with _our_warnings("audit", told):
            est = leave_one_out(pipeline, table.features, table.y, table.weights, audit=m, rng=0)
    except (SolverError, ValueError) as error:
        _warn(f"there is no audit: {error}")
        return None
    return est.audit


def _fit_all(names: Sequence[str], X: Any, table: Table, told: set[str]) -> dict[str, Any]:
    """Fit families one after the other; one that fails is told and left out, unless it is the only one."""
    fitted: dict[str, Any] = {}
    with _progress(names) as steps:
        for name in steps:
            try:
                with _our_warnings(name, told):
                    model = FAMILIES[name][1]()
                    fitted[name] = model.fit(X, table.y, sample_weight=table.weights)
                    fitted[name].loo_.flagged  # noqa: B018  (warns when asked for: here, once)
            except (SolverError, ValueError) as error:
                if len(names) == 1:
                    raise
                _warn(f"{name} was left out: {error}")
    if not fitted:
        raise TableError("none of the models could be fitted")
    return fitted


@contextmanager
def _progress(names: Sequence[str]) -> Iterator[Any]:
    """Iterate with a bar on a terminal, and silently elsewhere."""
    if not sys.stderr.isatty():
        yield names
        return
    with click.progressbar(
        names, label="tuning", item_show_func=lambda name: name or "", file=sys.stderr
    ) as bar:
        yield bar


@contextmanager
def _our_warnings(about: str, told: set[str] | None = None) -> Iterator[None]:
    """Show each warning as one line, unless it was told before."""
    with warnings.catch_warnings(record=True) as caught:
        for category in (UserWarning, RuntimeWarning, OnefitWarning):
            warnings.simplefilter("always", category)
        yield
    told = set() if told is None else told
    for text in dict.fromkeys(str(one.message) for one in caught):
        if text not in told:
            _warn(f"{about}: {text}")
        told.add(text)


def _warn(message: str) -> None:
    click.echo(f"onefit: warning: {' '.join(message.split())}", err=True)


def _tell(comparison: Comparison) -> None:
    click.echo(report.describe(comparison))
    for name, why in comparison.table.dropped:
        click.echo(f"left out column {name}: {why}")
    for note in comparison.table.notes:
        click.echo(f"note: {note}")
    click.echo("\n" + report.aligned(comparison.columns, comparison.lines) + "\n")
    click.echo(report.verdict(comparison))
    for line in (*report.about_audit(comparison), *report.first_cautions(comparison)):
        click.echo(line)


def _save(folder: Path, comparison: Comparison, pipeline: Pipeline) -> None:
    best = comparison.best
    table = report.predictions(comparison.table, best.estimate, best.losses)
    made = {
        "model.skops": skops.io.dumps(pipeline),
        "predictions.csv": table.to_csv(index=False).encode(),
        "report.html": report.render(comparison, onefit.__version__).encode(),
    }
    for name, content in made.items():
        _write(folder / name, content)
    click.echo(f"wrote {', '.join(made)} to {folder}")


# --- saved models ----------------------------------------------------------------------------------


def load(path: str) -> Any:
    """Load a saved model that holds nothing but types of onefit, scikit-learn and NumPy.

    Raises
    ------
    TableError
        If there is no such file, or it holds anything else.
    """
    content = _model_bytes(Path(path))
    try:
        foreign = sorted(set(skops.io.get_untrusted_types(data=content)) - TRUSTED)
        model = None if foreign else skops.io.loads(content, trusted=sorted(TRUSTED))
    except UNREADABLE as error:
        raise TableError(f"{path} is not a model saved by skops: {error}") from error
    if foreign:
        raise TableError(
            f"{path} holds types that are neither scikit-learn's nor onefit's: {', '.join(foreign)}. They "
            "could run any code, so it was not loaded; save a pipeline without them"
        )
    if not hasattr(model, "predict"):
        raise TableError(f"{path} holds a {type(model).__name__}, which cannot predict")
    return model


def _model_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise TableError(
            f"{path}: no such file; a model is the model.skops that onefit tune --out DIR writes"
        )
    return path.read_bytes()


def _features(pipeline: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that the model was fitted on, in its order."""
    names = getattr(pipeline, "feature_names_in_", None)
    if names is None:
        return frame
    for name in names:
        require_column(frame, name)
    return frame[list(names)]


def _as_fitted(pipeline: Any, frame: pd.DataFrame, target: str, weights: str | None) -> Table:
    """Rows and target as a saved model takes them."""
    require_column(frame, target)
    if target in getattr(pipeline, "feature_names_in_", ()):
        raise TableError(f"{target!r} is a feature of the model, not what it predicts")
    classes = getattr(pipeline, "classes_", None)
    task = "regression" if classes is None else ("binary" if len(classes) == 2 else "multiclass")
    used = [name for name in _features(pipeline, frame).columns if name not in (target, weights)]
    wanted = [*used, target, *([weights] if weights else [])]
    return split(frame[wanted], target, task=task, weights=weights, keep=used)


# --- files -----------------------------------------------------------------------------------------


def _write(path: Path, content: bytes) -> None:
    """Write a whole file or none: into a neighbour first, which then takes the name."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _folder(out: str | None) -> Iterator[Path | None]:
    """Make a folder and see that it takes files, before any work; leave no empty one behind."""
    if out is None:
        yield None
        return
    folder = Path(out)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_folder(folder)
    except OSError as error:
        raise TableError(f"cannot write into {folder}: {error.strerror}") from error
    try:
        yield folder
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def _writable(out: str | None) -> Iterator[Path | None]:
    """See that a file can be written, before any work."""
    if out is None:
        yield None
        return
    path = Path(out)
    if path.is_dir():
        raise TableError(f"cannot write {path}: it is a folder")
    try:
        _check_folder(path.parent)
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
    yield path


def _check_folder(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        return

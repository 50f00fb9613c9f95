"""The commands and their options; the work is imported when it is asked for, and help is quick."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click

from onefit import __version__
from onefit.cli.choices import SUITED, TASKS
from onefit.cli.config import read_config
from onefit.cli.errors import Interrupted, one_line
from onefit.cli.printed import mute, say, take_failure
from onefit.exceptions import SolverError, UnsupportedModelError

COLUMN = "COLUMN"
BAD_INPUT = (ValueError, UnsupportedModelError, SolverError, OSError, MemoryError)


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
        status = _invoke(list(sys.argv[1:] if arguments is None else arguments))
    except (KeyboardInterrupt, click.Abort, Interrupted) as stop:
        below = "\n" if sys.stderr.isatty() else ""  # the line with the terminal's own ^C
        what = f": {stop}" if isinstance(stop, Interrupted) else ""
        say(f"{below}onefit: interrupted{what}", err=True)
        status = 130
    except BrokenPipeError:  # of a help text: nothing is left to be flushed to a reader that has seen enough
        mute(sys.stdout)
        status = 0
    except BAD_INPUT as error:
        status = _fail(str(error) or type(error).__name__)
    lost = take_failure()
    return status if lost is None else _fail(f"not all could be printed: {one_line(lost)}")


def _invoke(arguments: list[str]) -> int:
    """Run a command of click, whose own errors become one line too."""
    try:
        with main.make_context("onefit", arguments) as context:
            main.invoke(context)
    except click.exceptions.Exit as done:  # --help and --version
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as usage:
        say(usage.ctx.get_help(), err=True)
        return 2
    except click.ClickException as error:
        return _fail(error.format_message() + _where_it_belongs(error))
    return 0


def _where_it_belongs(error: click.ClickException) -> str:
    """What to do with a word too many: it may be the name of a column."""
    if "unexpected extra argument" not in error.format_message() or getattr(error, "ctx", None) is None:
        return ""
    command = error.ctx.command  # type: ignore[attr-defined]
    takes = any(option.name == "target" for option in command.params)
    column = "name the column to predict with --target; " if takes else ""
    return f": {column}'onefit {command.name} --help' tells what it takes"


def _fail(message: str) -> int:
    say(f"onefit: error: {' '.join(message.split())}", err=True)
    return 2


# --- options that several commands share -----------------------------------------------------------


def _several(_context: click.Context, _option: click.Parameter, m: int | None) -> int | None:
    """See that an audit can tell its error."""
    if m == 1:
        raise click.BadParameter("an audit needs at least 2 refits to tell its error (0 for none)")
    return m


def _audit_option(default: int | None, text: str) -> Callable[..., Any]:
    return click.option(
        "--audit", default=default, type=click.IntRange(min=0), callback=_several, metavar="M", help=text
    )


def _all(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Several options as one decorator, in their order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def _mark(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "point": ".", "none": ""}
    mark = named.get(value, value) if value is not None else None
    if mark is not None and len(mark) > 1:
        raise click.BadParameter(f"{value!r} is no single character; names are {', '.join(named)}")
    return mark


def _size(_context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Bytes of a size such as 500M."""
    if value is None:
        return None
    number = value.upper().removesuffix("B")
    unit = number[-1:] if number[-1:].isalpha() else ""
    try:
        size = float(number.removesuffix(unit)) * 1024 ** ("", "K", "M", "G", "T").index(unit)
    except ValueError:
        size = -1.0
    if not 0.0 <= size < math.inf:
        raise click.BadParameter(f"{value!r} is no size such as 500M or 2G")
    return int(size)


READING = _all(
    click.option("--sep", metavar="CHAR", callback=_mark, help="What separates columns."),
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal mark."),
    click.option("--thousands", metavar="CHAR", callback=_mark, help="Mark between thousands."),
    click.option("--encoding", metavar="NAME", help="Encoding of the text."),
    click.option("--day-first/--month-first", "day_first", default=None, help="How 1/2/2024 is read."),
)
CONFIG = click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="TOML file with these options, in a table for each command.",
)
FORCE = click.option("--force", is_flag=True, help="Overwrite what is there.")
TARGET = click.option(
    "--target",
    default="",
    metavar=COLUMN,
    help="Column to predict (required; if missing, columns are listed).",
)
WEIGHTS = click.option("--weights", metavar=COLUMN, help="Column of sample weights.")
GROUPS = click.option("--groups", metavar=COLUMN, help="Column whose rows of the same value leave together.")


def _format(
    sep: str | None,
    decimal: str | None,
    thousands: str | None,
    encoding: str | None,
    day_first: bool | None,
    codes: tuple[str, ...] = (),
) -> Any:
    from onefit.cli.meaning import Format

    return Format(sep, decimal, thousands, encoding, day_first, codes=codes)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onefit")
def main() -> None:
    """Leave-one-out accuracy for the price of one fit."""


# --- commands --------------------------------------------------------------------------------------


@main.command()
@click.argument("file")
@TARGET
@click.option("--model", default="auto", type=click.Choice(["auto", *SUITED]), show_default=True)
@click.option("--task", default="auto", type=click.Choice(["auto", *TASKS]), show_default=True)
@WEIGHTS
@GROUPS
@click.option(
    "--time",
    "time_",
    metavar=COLUMN,
    help="Column of dates or numbers: later rows are predicted from earlier ones.",
)
@click.option("--drop", multiple=True, metavar=COLUMN, help="Column to leave out; may be repeated.")
@click.option(
    "--keep", multiple=True, metavar=COLUMN, help="Column to keep though it looks like an identifier."
)
@click.option(
    "--category",
    multiple=True,
    metavar=COLUMN,
    help="Column of whole numbers that are codes, not quantities: each is a level; may be repeated.",
)
@_audit_option(
    None,
    "Check the chosen model by M refits, preprocessing and all; 0 for none; if missing, 10, or none where "
    "--groups or --time refit it anyway.",
)
@click.option("--out", metavar="DIR", help="Folder for the model, coefficients, predictions and report.")
@click.option(
    "--memory-limit",
    metavar="SIZE",
    callback=_size,
    help="Size of a file, such as 500M or 2G, above which its rows are never all in memory; if missing, a "
    "quarter of what there is.",
)
@FORCE
@READING
@CONFIG
def tune(
    file: str,
    target: str,
    model: str,
    task: str,
    weights: str | None,
    groups: str | None,
    time_: str | None,
    drop: tuple[str, ...],
    keep: tuple[str, ...],
    category: tuple[str, ...],
    audit: int | None,
    out: str | None,
    memory_limit: int | None,
    force: bool,
    **reading: Any,
) -> None:
    """Tune and compare models on a table.

    FILE is CSV (also ; or tab separated, also .gz) or Parquet; how it is written is found out, and said. A
    folder of Parquet files, and a file above --memory-limit, is never held in memory: its columns must be
    numbers.
    With --model auto every family that suits the target is tuned, and the one with the smallest left-out
    risk is taken: ridge, lasso and elasticnet for numbers; logistic and logistic-l1 for classes; poisson and
    ridge, by squared error, for counts.
    """
    from onefit.cli.streaming import streams, tune_stream
    from onefit.cli.table import Roles
    from onefit.cli.tune import Wish, tune_file

    roles = Roles(target, weights, groups, time_, drop, keep, category)
    wish, asked = Wish(model, task, audit, out, force), _format(**reading, codes=category)
    if streams(Path(file), memory_limit):
        tune_stream(Path(file), roles, asked, wish)
    else:
        tune_file(file, roles, asked, wish)


@main.command()
@click.argument("model_file", metavar="MODEL")
@click.argument("file")
@click.option("--target", required=True, metavar=COLUMN, help="Column that the model predicts.")
@click.option("--weights", metavar=COLUMN, help="Column of the weights that the model was fitted with.")
@GROUPS
@_audit_option(0, "Check the result by M refits, preprocessing and all; 0 for none.")
@click.option("--exact", is_flag=True, help="Make every value that of its refit.")
@click.option("--out", metavar="FILE", help="CSV file for the left-out predictions.")
@FORCE
@READING
@CONFIG
def loo(
    model_file: str,
    file: str,
    target: str,
    weights: str | None,
    groups: str | None,
    audit: int,
    exact: bool,
    out: str | None,
    force: bool,
    **reading: Any,
) -> None:
    """Leave rows out of a saved MODEL.

    FILE is the table that it was fitted on.  A model without a formula needs --audit or --exact.
    """
    from onefit.cli.leave import loo_file
    from onefit.cli.table import Roles

    roles = Roles(target, weights, groups)
    loo_file(model_file, file, roles, _format(**reading), audit=audit, exact=exact, out=out, force=force)


@main.command()
@click.argument("model_file", metavar="MODEL")
@click.argument("file")
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="COVERAGE",
    help="Also bounds that hold so large a share of new values, such as 0.9.",
)
@click.option("--out", metavar="FILE", help="CSV file for the predictions instead of standard output.")
@FORCE
@READING
@CONFIG
def predict(
    model_file: str, file: str, interval: float | None, out: str | None, force: bool, **reading: Any
) -> None:
    """Predict with a saved MODEL.

    Every row of FILE is predicted, and written as CSV.
    """
    from onefit.cli.predict import predict_file

    predict_file(model_file, file, _format(**reading), interval, out, force=force)


@main.command()
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True)
def compare(folders: tuple[str, ...]) -> None:
    """Compare results of onefit tune --out DIR, row by row."""
    from onefit.cli.compare import compare_folders

    compare_folders(folders)


@main.command()
@click.option("--out", metavar="DIR", help="Folder for the results; a temporary one if missing.")
def demo(out: str | None) -> None:
    """Tune on two data sets of scikit-learn."""
    from onefit.cli.tune import demo as show

    show(out or tempfile.mkdtemp(prefix="onefit-demo-"))

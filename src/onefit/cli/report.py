"""The report: one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2
import numpy as np

from onefit.cli import rows, trust, words
from onefit.cli.comparison import Ranking
from onefit.cli.judged import class_numbers
from onefit.cli.pictures import pictures
from onefit.displays import curves
from onefit.risk.presentation import with_error
from onefit.wording import counted

MOST_COEFFICIENTS = 40  # that are listed; all are in coefficients.csv


class ReportTable(NamedTuple):
    """A table of the report.

    Attributes
    ----------
    header : list of str
    lines : list of list of str
    n_words : int
        How many of the first columns are words.
    note : str
    last : bool
        Whether the last column is words too.
    """

    header: list[str]
    lines: list[list[str]]
    n_words: int = 0
    note: str = ""
    last: bool = False


def render(comparison: Ranking, version: str) -> str:
    """Return the report as one HTML page that needs nothing else.

    Parameters
    ----------
    comparison : Ranking
    version : str
        Of the library.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefit.cli"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    script = (files("onefit.cli") / "templates" / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        table=comparison.table,
        version=version,
        how="by leave-one-out" if comparison.cuts is None else f"for {comparison.cuts.words}",
        sentence=words.describe(comparison),
        verdict=words.verdict(comparison),
        doubts=list(trust.doubts(comparison)),
        tiles=_tiles(comparison),
        models=_models(comparison),
        coefficients=_coefficients(comparison),
        thresholds=_thresholds(comparison),
        pictures=pictures(comparison),
        strengths=list(trust.strengths(comparison)),
        cautions=list(trust.cautions(comparison)),
        of_rows=_of_rows(comparison),
        read=comparison.read,
        script=script,
        digest=digest,
    )


def _tiles(comparison: Ranking) -> list[tuple[str, str]]:
    best = comparison.best
    scores = [score for score in comparison.scores if score.name != comparison.loss_name]
    return [
        ("best model", f"{best.name}, {best.chosen}"),
        *((f"left-out {score.name}", words.scored(score)) for score in scores),
        (f"left-out {comparison.loss_name}", with_error(*best.risk)),
        *_share(comparison),
        *_checked(comparison),
        ("effective df", f"{best.estimate.effective_df:.1f}"),
    ]


def _share(comparison: Ranking) -> list[tuple[str, str]]:
    """How often the rarer of two classes, or the most frequent of several, occurs."""
    if not comparison.table.is_classification:
        return []
    several = len(comparison.classes) > 2
    shown = int(np.argmax(comparison.prevalence)) if several else comparison.rarest
    name = f"{comparison.table.target} = {comparison.classes[shown]}"
    most = ", the most frequent class" if several else ""
    return [(f"share of {name}{most}", f"{comparison.prevalence[shown]:.1%}")]


def _checked(comparison: Ranking) -> list[tuple[str, str]]:
    """The risk after the correction for the choice, and as the audit has it."""
    best, audit, loss_name = comparison.best, comparison.audit, comparison.audited_loss[0]
    found = []
    if comparison.cuts is None and trust.is_raised(best):
        found.append((f"left-out {loss_name}, corrected for the choice", trust.corrected(best)))
    if audit is not None:
        sure = ", 95 %" if audit.interval[0] < audit.interval[1] else ""
        found.append((f"left-out {loss_name} by {counted(audit.m, 'refit')}{sure}", trust.interval(audit)))
    return found


def _models(comparison: Ranking) -> ReportTable:
    over = "rows" if comparison.cuts is None or comparison.cuts.clusters is None else comparison.cuts.column
    note = (
        f"± is one standard error over {over}; “above the best” has that of the paired difference.  df: "
        "effective degrees of freedom."
    )
    return ReportTable(words.columns(comparison), words.lines(comparison), 3, note)


def _coefficients(comparison: Ranking) -> ReportTable | None:
    found = comparison.coefficients
    if not len(found.kept):
        return None
    header, lines = words.coefficient_lines(comparison, MOST_COEFFICIENTS)
    more = len(found.kept) - len(lines)
    of_what = comparison.table.target
    if comparison.table.is_classification:
        own = f" of {of_what} = {comparison.classes[1]}" if len(comparison.classes) == 2 else ""
        of_what = f"log-odds{own}, which a number above zero makes more likely,"
    rest = f" {more} smaller ones are in coefficients.csv." if more > 0 else ""
    note = (
        f"{of_what} by unit of the column, ± jackknife error, {found.by}. Of one sd: effect of one standard "
        f"deviation of the column. Same sign, selected: share of these fits.{rest}"
    )
    return ReportTable(header, lines, 2 if "class" in header else 1, note)


def _thresholds(comparison: Ranking) -> ReportTable | None:
    """What happens at a threshold on the probability of the second of two classes."""
    if comparison.table.task != "binary":
        return None
    judged = comparison.best.judged
    positive = class_numbers(comparison.table.y)[judged.rows] == 1
    found = curves.thresholds(curves.counts(positive, judged.predictions[:, 1], judged.weights))
    name = comparison.classes[1]
    rates = ("precision", "recall", "specificity", "F1", "accuracy")
    header = ["threshold", f"called {name}", *rates, "TP", "FP", "FN", "TN"]
    lines = [
        [
            f"{one.threshold:.3g}",
            f"{one.flagged:.1%}",
            *(f"{getattr(one, name.lower()):.3f}".replace("nan", "–") for name in rates),
            *(f"{count:.6g}" for count in one[1:]),
        ]
        for one in found
    ]
    note = (
        f"Rows whose left-out probability of {name} is at least the threshold are called {name}; one of the "
        "lines has the largest F1."
    )
    return ReportTable(header, lines, 0, note)


def _of_rows(comparison: Ranking) -> list[tuple[str, ReportTable]]:
    """Tables of rows; those that have nothing to say are not there."""
    target, loss, n = comparison.table.target, comparison.loss_name, len(comparison.table.y)
    flagged, deciding = rows.flagged(comparison), rows.deciding(comparison)
    n_flagged = len(comparison.best.estimate.flagged)
    head = ["row", target, "left-out prediction"]
    alone = "left-out prediction" if comparison.cuts is None else "without this row alone"
    found: list[tuple[str, Any]] = [
        (
            "Rows that decide most",
            ReportTable(
                ["row", target, "fitted", alone, "leverage", "Cook’s distance", "moves most"],
                deciding,
                note="Cook’s distance: how far all fitted values move when the row is left out, in units of "
                f"their uncertainty. Above 1 a single row decides the fit; above 4/n = {4 / n:.2g} it "
                f"deserves a look: is it an error of the table?{words.alone(comparison)}",
                last=True,
            ),
        ),
        (
            "Flagged rows",
            ReportTable(
                [*head, "leverage", loss, "why"],
                flagged,
                note=f"The {len(flagged)} of highest leverage; all {n_flagged} are marked in predictions.csv."
                if n_flagged > len(flagged)
                else "",
                last=True,
            ),
        ),
        ("Rows that are predicted worst", ReportTable([*head, loss], rows.worst(comparison))),
    ]
    return [(title, grid) for title, grid in found if grid.lines]

"""The report: one HTML page that needs nothing else."""

from __future__ import annotations

import jinja2

from onefit.cli import rows, words
from onefit.cli.comparison import Comparison
from onefit.cli.pictures import pictures


def render(comparison: Comparison, version: str) -> str:
    """Return the report as one HTML page that needs nothing else.

    Parameters
    ----------
    comparison : Comparison
    version : str
        Of the library.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefit.cli"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    est = comparison.best.estimate
    return environment.get_template("report.html.j2").render(
        comparison=comparison,
        table=comparison.table,
        version=version,
        sentence=words.describe(comparison),
        verdict=words.verdict(comparison),
        tiles=_tiles(comparison),
        columns=words.columns(comparison),
        lines=words.lines(comparison),
        pictures=pictures(comparison),
        flagged=rows.flagged(comparison),
        n_flagged=len(est.flagged),
        worst=rows.worst(comparison),
        deciding=rows.deciding(comparison),
        strengths=words.strengths(comparison),
        cautions=words.cautions(comparison),
    )


def _tiles(comparison: Comparison) -> list[tuple[str, str]]:
    best = comparison.best
    risk = words.with_error(*comparison.risk(best.judged, best.judged.losses))
    return [
        ("best model", f"{best.name}, {best.chosen}"),
        (f"left-out {comparison.loss_name}", risk),
        *_checked(comparison),
        *((f"left-out {score.name}", words.scored(score)) for score in comparison.scores),
        ("effective df", f"{best.estimate.effective_df:.1f}"),
    ]


def _checked(comparison: Comparison) -> list[tuple[str, str]]:
    """The same risk after the correction for the choice, and by the audit."""
    if comparison.cuts is not None:
        return []
    best, audit = comparison.best, comparison.audit
    of_which = "" if best.estimate.loss_name == comparison.loss_name else f" {best.estimate.loss_name}"
    corrected = (f"corrected{of_which} for the choice", words.corrected(best))
    return [corrected] if audit is None else [corrected, (f"audited{of_which}, 95 %", words.interval(audit))]

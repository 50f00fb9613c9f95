"""What the zoo has to show, and whether it does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from zoo.record import Record

ROUNDING = 1e-6  # of a reference, relative: what proofs are held to
COVERAGE, LEVEL = 0.95, 0.01  # of the error of sampled risks, and of the test that it is not less
SILENT = 0.02  # error, relative, that may pass without a warning
PROVEN = 0.8  # share of the problems
TIGHTNESS = 10.0  # of the error that is stated, in errors that are made
FLAGGED = 0.01  # share of the rows


@dataclass(frozen=True)
class Verdict:
    """One requirement, and what was found.

    Attributes
    ----------
    name, found : str
    holds : bool
    numbers : tuple of int
        Problems that break it.
    """

    name: str
    found: str
    holds: bool
    numbers: tuple[int, ...] = ()


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge all records."""
    return [rule(records) for rule in RULES]


def judged(records: Sequence[Record]) -> list[Record]:
    """Records with a reference."""
    return [one for one in records if one.status == "judged"]


def _none(name: str, breaks: Callable[[Record], bool]) -> Callable[[Sequence[Record]], Verdict]:
    def rule(records: Sequence[Record]) -> Verdict:
        numbers = tuple(one.number for one in records if breaks(one))
        return Verdict(name, f"{len(numbers)} of {len(records)}", not numbers, numbers)

    return rule


def _is_proven(one: Record) -> bool:
    return one.status == "judged" and one.guarantee in ("exact", "bounded")


def stated(one: Record) -> float:
    """Error that is stated, 0 where there is none."""
    return one.approx_error if np.isfinite(one.approx_error) else 0.0


def _rounding(one: Record) -> float:
    return ROUNDING * max(abs(one.reference), one.std_error if np.isfinite(one.std_error) else 0.0)


def _is_beyond(one: Record) -> bool:
    return _is_proven(one) and one.error > stated(one) + _rounding(one)


def is_silent(one: Record) -> bool:
    """Whether a risk is off without a word."""
    if one.status != "judged" or one.warned or one.said:
        return False
    return one.error > max(SILENT * abs(one.reference), stated(one)) + _rounding(one)


def _coverage(records: Sequence[Record]) -> Verdict:
    sampled = [one for one in judged(records) if one.guarantee == "sampled"]
    missed = tuple(one.number for one in sampled if one.error > one.approx_error + _rounding(one))
    name = f"sampled errors cover {COVERAGE:.0%}, by a test at {LEVEL:.0%}"
    if not sampled:
        return Verdict(name, "none sampled", holds=True)
    held = len(sampled) - len(missed)
    p = binomtest(held, len(sampled), COVERAGE, alternative="less").pvalue
    return Verdict(name, f"{held} of {len(sampled)}, p = {p:.2g}", bool(p >= LEVEL), missed)


def _share_proven(records: Sequence[Record]) -> Verdict:
    kept = judged(records)
    proven = [one for one in kept if _is_proven(one)]
    share = len(proven) / max(len(kept), 1)
    counts = ", ".join(f"{n} {name}" for name, n in Counter(one.guarantee for one in kept).most_common())
    return Verdict(f"at least {PROVEN:.0%} exact or bounded", f"{share:.1%}: {counts}", bool(share >= PROVEN))


def _tightness(records: Sequence[Record]) -> Verdict:
    ratios = [
        one.approx_error / one.error
        for one in judged(records)
        if np.isfinite(one.approx_error) and one.error > 1e-6 * abs(one.reference)
    ]
    name = f"median stated error at most {TIGHTNESS:g} errors, where above 1e-6"
    if not ratios:
        return Verdict(name, "none above", holds=True)
    median = float(np.median(ratios))
    return Verdict(name, f"{median:.3g} over {len(ratios)}", bool(median <= TIGHTNESS))


def _few_flags(records: Sequence[Record]) -> Verdict:
    rows = sum(one.n for one in judged(records))
    flagged = sum(one.flagged for one in judged(records))
    share = flagged / max(rows, 1)
    return Verdict(f"under {FLAGGED:.0%} of the rows flagged", f"{flagged} of {rows}", share < FLAGGED)


def _true_flags(records: Sequence[Record]) -> Verdict:
    flagged = sum(one.flagged for one in judged(records))
    off = sum(one.flagged_off for one in judged(records))
    return Verdict("half of the flags off by 0.5 %", f"{off} of {flagged}", 2 * off >= flagged)


def _true_warnings(records: Sequence[Record]) -> Verdict:
    warned = [one for one in judged(records) if one.warned]
    off = [max(one.error, one.reach) for one in warned]  # other optima count
    idle = tuple(
        one.number for one, far in zip(warned, off, strict=True) if far <= SILENT * abs(one.reference)
    )
    holds = 4 * len(idle) <= len(warned)
    return Verdict("at most a quarter of the warnings idle", f"{len(idle)} of {len(warned)}", holds, idle)


RULES: tuple[Callable[[Sequence[Record]], Verdict], ...] = (
    _none("no crash", lambda one: one.status == "crash"),
    _none("none too slow", lambda one: one.status == "too slow"),
    _none("no warning of others leaks", lambda one: bool(one.leaked)),
    _none("no bound is false", lambda one: one.status == "judged" and one.false_bounds > 0),
    _none("no certificate is false", lambda one: one.status == "judged" and one.false_certificates > 0),
    _none("proven risks within their error", _is_beyond),
    _coverage,
    _none(f"none off by {SILENT:.0%} in silence", is_silent),
    _share_proven,
    _tightness,
    _few_flags,
    _true_flags,
    _true_warnings,
)


# --- tables for people -------------------------------------------------------------------------------


def as_text(records: Sequence[Record]) -> str:
    """Verdicts, then one line a family."""
    lines = [f"{len(records)} problems, {len(judged(records))} with a reference", ""]
    for one in verdicts(records):
        shown = ", ".join(map(str, one.numbers[:12])) + (", …" if len(one.numbers) > 12 else "")
        lines.append(
            f"{'ok  ' if one.holds else 'FAIL'}  {one.name}: {one.found}" + (f"  [{shown}]" if shown else "")
        )
    return "\n".join([*lines, "", *_by_family(records)])


def _by_family(records: Sequence[Record]) -> list[str]:
    head = ("family", "problems", "proven", "false", "silent", "crash", "refused", "error", "/ fit")
    rows = [head, *(_family_row(name, own) for name, own in _sorted(records).items())]
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    return [
        "  ".join(
            cell.ljust(w) if k == 0 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _sorted(records: Sequence[Record]) -> dict[str, list[Record]]:
    families = defaultdict(list)
    for one in records:
        families[one.family].append(one)
    return dict(families)


def _family_row(name: str, own: list[Record]) -> tuple[str, ...]:
    kept = judged(own)
    errors = [one.error / max(abs(one.reference), 1e-300) for one in kept]
    times = [one.seconds / one.fit_seconds for one in kept if one.fit_seconds > 0]
    counts = (
        len(own),
        sum(map(_is_proven, own)),
        sum(one.false_bounds > 0 for one in kept),
        sum(map(is_silent, own)),
        sum(one.status == "crash" for one in own),
        sum(one.status == "refused" for one in own),
    )
    worst = f"{max(errors):.1g}" if errors else "-"
    return (name, *map(str, counts), worst, f"{np.median(times):.2g}" if times else "-")

"""What may be trusted about a tuned model, and what not, in sentences."""

from __future__ import annotations

import numpy as np

from onefit.cli.comparison import Ranking, Suspicion, TunedModel
from onefit.cli.families import strength_name, strengths_of
from onefit.cli.words import new_rows, number, scored, with_error
from onefit.risk.audit import RESOLUTION, Audit
from onefit.risk.estimate import RiskEstimate

HIGH_LEVERAGE = 0.8  # a row that determines most of its own fit
SUSPICIOUS_R2 = 0.999
RARE = 0.1  # share of a class below which accuracy says little


def strengths(comparison: Ranking) -> list[str]:
    """Say what may be trusted."""
    est, n = comparison.best.estimate, len(comparison.table.y)
    name = comparison.best.name
    if comparison.cuts is not None:
        said = [
            f"The risk is that of {comparison.cuts.words}: preprocessing and {name} were refitted without "
            "them, at every strength."
        ]
    else:
        proven = f"for {int(est.certified.sum())} of {n} rows that is proven."
        computed = f"for the {est.loss_name} it is computed, not proven, row by row."
        said = [
            f"The risk is what refitting {name} without each row in turn gives, at the chosen strength; "
            f"{proven if est.loss_name == 'squared error' else computed}"
        ]
    if not _about_audit(comparison):
        said += about_audit(comparison)
    if len(comparison.candidates) > 1:
        said.append(
            "Differences between models carry the standard error of the paired difference, row by row: "
            "below about two of these they are a tie."
        )
    return said


def cautions(comparison: Ranking) -> list[str]:
    """Say what may not be trusted, most important first."""
    said = first_cautions(comparison)
    if comparison.cuts is None:
        said.append(
            "Rows are taken as independent: if some belong together (one person, one place, neighbours in "
            "time), the risk for a new group is larger; --groups COLUMN or --time COLUMN leaves them out "
            "together."
        )
    return [*said, *(note[:1].upper() + note[1:] + "." for note in comparison.best.estimate.notes)]


def first_cautions(comparison: Ranking) -> list[str]:
    """Say what may not be trusted in this very case, and what was held fixed."""
    but = "" if comparison.audit is None else "; only the refits of the audit repeat it"
    fixed = f"The preprocessing (medians, scales, levels of text) was fitted on all rows and held fixed{but}."
    return [
        *_about_size(comparison),
        *(suspected(comparison, one) for one in comparison.suspicions),
        *_about_audit(comparison),
        *_suspicions(comparison),
        *_about_rare_classes(comparison),
        *(_about_flagged(comparison.best.estimate) if comparison.cuts is None else []),
        *_about_ties(comparison),
        *_about_counts(comparison),
        *([fixed] if comparison.cuts is None else []),
        *([_about_sureness(comparison)] if comparison.cuts is None else []),
        _about_choice(comparison),
    ]


def suspected(comparison: Ranking, one: Suspicion) -> str:
    """Say what happens if the rows of a column belong together: both numbers side by side."""
    main = one.scores[0]
    mine = comparison.scores[0]
    kind = "rows of the same value may belong together" if one.cuts.kind == "groups" else "rows have an order"
    return (
        f"{one.cuts.column} looks like {'groups' if one.cuts.kind == 'groups' else 'time'} ({kind}): "
        f"{mine.name} is {scored(mine)} with rows left out one by one, {scored(main)} for {new_rows(one)}; "
        f"if new rows are such, tune with --{one.cuts.kind} {_quoted(one.cuts.column)}."
    )


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"'{name}'"


def _about_size(comparison: Ranking) -> list[str]:
    n = len(comparison.table.y)
    return [f"There are only {n} rows: every number here may be chance."] if comparison.table.is_small else []


def audited(audit: Audit, loss_name: str) -> list[str]:
    """Say that the approximation is off, where the interval of an audit excludes it."""
    low, high = audit.interval
    slack = RESOLUTION * abs(audit.value)  # an audit of all rows has an interval of no width
    if low - slack <= audit.approximate <= high + slack:
        return []
    return [
        f"The approximation of the left-out {loss_name} is off by {audit.difference:+.2g}: trust the audited "
        f"value, {interval(audit)}."
    ]


def interval(audit: Audit) -> str:
    """Write an audit to the precision that its interval, to two digits, allows; of all rows it has none."""
    low, high = audit.interval
    half = 0.5 * (high - low)
    if not half > 0:
        return f"{audit.value:.5g}"
    decimals = max(1 - int(np.floor(np.log10(half))), 0)
    return f"{audit.value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def about_audit(comparison: Ranking) -> list[str]:
    """Say what an audit of the best candidate has found, if there was one."""
    audit = comparison.audit
    if audit is None:
        return []
    failed = f", {len(audit.failed)} of which failed" if audit.failed.size else ""
    name, loss_name = comparison.best.name, comparison.best.estimate.loss_name
    sure = " at 95 %" if audit.interval[0] < audit.interval[1] else ""
    return [
        f"Audit of {name}: left-out {loss_name} {interval(audit)}{sure} by {number(audit.m, 'refit')} of the "
        f"model with its preprocessing{failed}; the approximation gave {audit.approximate:.4g}."
    ]


def _about_audit(comparison: Ranking) -> list[str]:
    audit = comparison.audit
    return [] if audit is None else audited(audit, comparison.best.estimate.loss_name)


def _about_sureness(comparison: Ranking) -> str:
    """How sure the choice of the strength is."""
    best, tried = comparison.best, strengths_of(comparison.best.model)
    held, name = best.model.confidence_set_, strength_name(best.model)
    if len(held) == 1:
        return f"Of {len(tried)} strengths of {best.name} the chosen one is better than any other at 95 %."
    return (
        f"{len(held)} of {len(tried)} strengths of {best.name}, {name} from {held.min():.3g} to "
        f"{held.max():.3g}, cannot be told from the best by these rows; the chosen one is among them."
    )


def _about_choice(comparison: Ranking) -> str:
    """The price of having chosen by the same risk."""
    best, loss_name = comparison.best, comparison.best.estimate.loss_name
    models = "" if len(comparison.candidates) == 1 else "; the choice among models is not corrected for"
    if comparison.cuts is not None:
        return f"The strength was chosen by the same risk, which is therefore a little optimistic{models}."
    among = (
        "all strengths and mixes" if best.name == "elasticnet" else f"{len(best.model.risk_path_)} strengths"
    )
    return (
        "The strength was chosen by the same risk, which is therefore optimistic: the left-out "
        f"{loss_name} of {best.name}, corrected for having chosen the best of {among}, is "
        f"{corrected(best)}{models}."
    )


def corrected(candidate: TunedModel) -> str:
    """Corrected risk to the precision of the standard error of the risk."""
    text = with_error(candidate.corrected_risk, candidate.estimate.std_error)
    return text.split(" ±")[0]


def _suspicions(comparison: Ranking) -> list[str]:
    value = comparison.score("R²")
    if not value >= SUSPICIOUS_R2:
        return []
    sizes = np.abs(np.atleast_2d(comparison.best.model.coef_)).max(axis=0)
    names = np.asarray(comparison.feature_names)[np.argsort(-sizes)]
    return [
        f"R² is {value:.4f}: too good for most data. Does a column contain the target? The "
        f"largest coefficients are those of {', '.join(names[:3])}; --drop COLUMN leaves a column out."
    ]


def _about_rare_classes(comparison: Ranking) -> list[str]:
    if not comparison.table.is_classification or comparison.prevalence.min() >= RARE:
        return []
    shares = comparison.prevalence
    rarest, usual = (comparison.classes[int(pick(shares))] for pick in (np.argmin, np.argmax))
    return [
        f"Only {shares.min():.1%} of rows are {rarest}: an accuracy of {comparison.score('accuracy'):.3f} "
        f"says little, as always {usual} has {shares.max():.3f}; look at average precision and thresholds."
    ]


def _about_flagged(est: RiskEstimate) -> list[str]:
    rows = est.flagged
    if rows.size == 0:
        return []
    share = float(est.losses[rows].sum() / max(est.losses.sum(), np.finfo(float).tiny))
    return [
        f"{rows.size} of {len(est.losses)} rows are flagged ({share:.0%} of the risk): "
        f"{_reason_in_short(est)}; their values are one step from the fit, not proven equal to a refit."
    ]


def _reason_in_short(est: RiskEstimate) -> str:
    high = int(np.count_nonzero(est.leverages[est.flagged] >= HIGH_LEVERAGE))
    changes = len(est.flagged) - high
    parts = [
        f"{high} determine most of their own fit" if high else "",
        f"leaving one of {changes} out may change which coefficients are zero" if changes else "",
    ]
    return ", ".join(part for part in parts if part)


def _about_ties(comparison: Ranking) -> list[str]:
    tied = []
    for candidate in comparison.candidates[1:]:
        above, error = comparison.above_best(candidate.judged.losses)
        if above < 2.0 * error:
            tied.append(candidate.name)
    if not tied:
        return []
    return [
        f"{comparison.best.name} has the smallest risk, but {' and '.join(tied)} cannot be told apart from "
        "it by these data."
    ]


def _about_counts(comparison: Ranking) -> list[str]:
    if comparison.table.task != "counts" or comparison.best.estimate.loss_name == "deviance":
        return []
    below = int(np.count_nonzero(comparison.best.judged.predictions < 0))
    return [
        f"{comparison.best.name} may predict negative counts (here for {below} rows); --model poisson never "
        "does."
    ]

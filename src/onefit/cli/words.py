"""What to tell about tuned models, in sentences and in lines of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onefit.cli.comparison import Ranking, Suspicion, TunedModel
from onefit.cli.scores import Score
from onefit.cli.table import FEW_ROWS
from onefit.risk.audit import RESOLUTION, Audit
from onefit.risk.estimate import RiskEstimate

HIGH_LEVERAGE = 0.8  # a row that determines most of its own fit
SUSPICIOUS_R2 = 0.999
RARE = 0.1  # share of a class below which accuracy says little
UNEXPLAINED = 1e-12  # share of the baseline below which a gain is rounding


# --- numbers and tables ----------------------------------------------------------------------------


def with_error(value: float, error: float) -> str:
    """Write a number to the precision that its standard error, to two digits, allows."""
    if not np.isfinite(error) or error <= 0 or not np.isfinite(value):
        return f"{value:.4g}"
    decimals = 1 - int(np.floor(np.log10(error)))
    if decimals > 6:
        return f"{value:.4g} ± {error:.2g}"
    if decimals < -2:  # 65077165 ± 2388208 says no more than 65100000 ± 2400000
        value, error = round(value, decimals), round(error, decimals)
    return f"{value:.{max(decimals, 0)}f} ± {error:.{max(decimals, 0)}f}"


def scored(score: Score) -> str:
    """A score and its error."""
    return with_error(score.value, score.std_error)


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]], left: int = 3) -> str:
    """Lay cells out in columns for a terminal; the first few are words."""
    every = [header, *lines]
    widths = [max(len(line[k]) for line in every) for k in range(len(header))]
    rows = (
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in every
    )
    return "\n".join(row.rstrip() for row in rows)


def number(count: int, noun: str) -> str:
    """A count and its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def columns(comparison: Ranking) -> list[str]:
    """Header of ``lines``."""
    main = [score.name for score in shown_scores(comparison)]
    return ["", "model", "strength", comparison.loss_name, "above the best", *main, "df", "coefficients"]


def shown_scores(comparison: Ranking) -> list[Score]:
    """Scores of the table of models: those that are not its loss."""
    return [score for score in comparison.scores if score.name != comparison.loss_name][:3]


def lines(comparison: Ranking) -> list[list[str]]:
    """One line of text cells for each candidate, and one for no features."""
    shown = [_line(comparison, candidate) for candidate in comparison.candidates]
    baseline = comparison.best.judged.baseline
    risk = with_error(*comparison.risk(comparison.best.judged, baseline))
    above = ("+" + with_error(*comparison.gain)).replace("+-", "-")
    blank = [""] * (len(columns(comparison)) - 5)
    return [*shown, ["", constant_name(comparison)[4:], "", risk, above, *blank]]


def _line(comparison: Ranking, candidate: TunedModel) -> list[str]:
    best = candidate is comparison.best
    names = [score.name for score in shown_scores(comparison)]
    found = comparison.scores if best else comparison.scores_of(candidate.judged)
    values = {score.name: score.value for score in found}
    return [
        "*" if best else "",
        candidate.name,
        candidate.chosen,
        with_error(*comparison.risk(candidate.judged, candidate.judged.losses)),
        "" if best else "+" + with_error(*comparison.above_best(candidate.judged.losses)),
        *(f"{values[name]:.4g}" for name in names),
        f"{candidate.estimate.effective_df:.1f}",
        f"{candidate.n_nonzero}/{len(comparison.feature_names)}",
    ]


def constant_name(comparison: Ranking) -> str:
    """What a model has to be better than."""
    return "the class frequencies" if comparison.table.is_classification else "the mean only"


# --- sentences -------------------------------------------------------------------------------------


def describe(comparison: Ranking) -> str:
    """Say in one sentence what was done."""
    table, names = comparison.table, [candidate.name for candidate in comparison.candidates]
    models = f"{', '.join(names[:-1])} and {names[-1]}, each" if len(names) > 1 else names[0]
    how = "leave-one-out" if comparison.cuts is None else f"{comparison.cuts.kind}, left out together"
    return (
        f"{table.target} of {comparison.source}: {table.task} ({table.reason}), {len(table.y)} rows, "
        f"{number(table.features.shape[1], 'column')} turned into "
        f"{number(len(comparison.feature_names), 'feature')}; "
        f"{models} tuned by {how}."
    )


def verdict(comparison: Ranking) -> str:
    """Say in one sentence whether the features help at all."""
    above, error = comparison.gain
    constant = constant_name(comparison).removesuffix(" only")
    gain = f"{with_error(above, error)} in {comparison.loss_name}"
    baseline, _ = comparison.risk(comparison.best.judged, comparison.best.judged.baseline)
    if abs(above) <= UNEXPLAINED * abs(baseline):
        return f"No model is better than predicting {constant}: do not read anything into its coefficients."
    new = "" if comparison.cuts is None else f" for {comparison.cuts.words}"
    if comparison.table.is_small:
        return (
            f"{comparison.best.name} gains {gain} over predicting {constant}{new}, but on "
            f"{number(len(comparison.table.y), 'row')} nothing is certain: it takes {FEW_ROWS} at least to "
            "judge."
        )
    if not comparison.is_clear:
        return (
            f"No model is clearly better than predicting {constant}{new} (the best gains {gain}): do not "
            "read anything into its coefficients."
        )
    said = f"{comparison.best.name} is clearly better than predicting {constant}{new}: it gains {gain}."
    without = [_new(one) for one in comparison.suspicions if not comparison.helps(one)]
    return said + (f" But for {' and '.join(without)} it is not, see below." if without else "")


def in_units(comparison: Ranking) -> str:
    """The scores of the best model, in one line."""
    parts = [f"{score.name} {scored(score)}" for score in comparison.scores]
    if comparison.table.is_classification:
        shares = comparison.prevalence
        rarest = int(np.argmin(shares))
        always = f"always {comparison.classes[int(np.argmax(shares))]} is right in {shares.max():.1%}"
        parts.append(f"{comparison.classes[rarest]} is {shares[rarest]:.1%} of rows ({always})")
    return f"{comparison.best.name}, left out: {', '.join(parts)}."


def suspected(comparison: Ranking, one: Suspicion) -> str:
    """Say what happens if the rows of a column belong together: both numbers side by side."""
    main = one.scores[0]
    mine = comparison.scores[0]
    kind = "rows of the same value may belong together" if one.cuts.kind == "groups" else "rows have an order"
    return (
        f"{one.cuts.column} looks like {'groups' if one.cuts.kind == 'groups' else 'time'} ({kind}): "
        f"{mine.name} is {scored(mine)} with rows left out one by one, {scored(main)} for {_new(one)}; "
        f"if new rows are such, tune with --{one.cuts.kind} {_quoted(one.cuts.column)}."
    )


def _new(one: Suspicion) -> str:
    return f"new {one.cuts.column}" if one.cuts.kind == "groups" else f"later {one.cuts.column}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"'{name}'"


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
        _about_choice(comparison),
    ]


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
    text = with_error(candidate.model.corrected_risk_, candidate.estimate.std_error)
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


# --- coefficients ----------------------------------------------------------------------------------


def coefficient_lines(comparison: Ranking, most: int) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the largest coefficients."""
    found = comparison.coefficients
    if found is None:
        return [], []
    with_class = "class" in found.frame
    header = [
        "feature",
        *(["class"] if with_class else []),
        "coefficient",
        "of one sd",
        "same sign",
        "selected",
    ]
    shown = found.kept.head(most).to_dict("records")
    return header, [
        [
            str(one["feature"]),
            *([str(one["class"])] if with_class else []),
            with_error(one["coefficient"], one["std_error"]),
            f"{one['effect']:.3g}",
            f"{one['same_sign']:.0%}",
            f"{one['selected']:.0%}",
        ]
        for one in shown
    ]

"""What may be trusted about a tuned model, and what not, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onefit.cli.comparison import Ranking, Suspicion, TunedModel
from onefit.cli.errors import cited, columns_listed
from onefit.cli.words import constant_name, new_rows, scored
from onefit.displays.strengths import strengths_of
from onefit.numerics import EXACT
from onefit.risk.audit import Audit
from onefit.risk.presentation import to_the_error
from onefit.wording import MOST_DIGITS, counted, to_digits

HIGH_LEVERAGE = 0.8  # a row that determines most of its own fit
SUSPICIOUS = 0.999  # share of the loss of a constant that a model explains
TELLING = 0.1  # of the largest effect: columns below it do not contain the target by themselves
RARE = 0.1  # share of rows in all but one class, below which accuracy says little


def strengths(comparison: Ranking) -> Iterator[str]:
    """Say what may be trusted."""
    est, name = comparison.best.estimate, comparison.best.name
    if comparison.cuts is not None:
        yield (
            f"The risk is that of {comparison.cuts.words}: preprocessing and {name} were refitted without "
            "them, at every strength."
        )
    else:
        proven = f"for {int(est.certified.sum())} of {len(est.losses)} rows that is proven."
        computed = f"for the {est.loss_name} it is computed, not proven, row by row."
        yield (
            f"The risk is what refitting {name} without each row in turn gives, at the chosen strength; "
            f"{proven if est.loss_name == 'squared error' else computed}"
        )
    if not any(_about_audit(comparison)):
        yield from about_audit(comparison)
    if len(comparison.candidates) > 1:
        yield (
            "Differences between models carry the standard error of the paired difference, row by row: "
            "below about two of these they are a tie."
        )


def cautions(comparison: Ranking) -> Iterator[str]:
    """Say what may not be trusted, most important first."""
    yield from first_cautions(comparison)
    if comparison.cuts is None:
        yield (
            "Rows are taken as independent: if some belong together (one person, one place, neighbours in "
            "time), the risk for a new group is larger; --groups COLUMN or --time COLUMN leaves them out "
            "together."
        )
    for note in comparison.best.estimate.notes:
        yield note[:1].upper() + note[1:] + "."


def first_cautions(comparison: Ranking) -> Iterator[str]:
    """Say what may not be trusted in this very case, and what was held fixed."""
    if comparison.table.is_small:
        yield f"There are only {len(comparison.table.y)} rows: every number here may be chance."
    yield from doubts(comparison)
    yield from _about_audit(comparison)
    yield from _about_the_best(comparison)
    yield from _about_ties(comparison)
    yield from _about_counts(comparison)
    if comparison.cuts is None:
        but = "" if comparison.audit is None else "; only the refits of the audit repeat it"
        fixed = "The preprocessing (medians, scales, levels of text) was fitted on all rows and held fixed"
        yield f"{fixed}{but}."
        yield _about_sureness(comparison)
    yield _about_choice(comparison)


def doubts(comparison: Ranking) -> Iterator[str]:
    """Say what may make all numbers meaningless: the target as a column, rows that belong together."""
    if comparison.best.risk[0] <= (1.0 - SUSPICIOUS) * comparison.constant_risk[0]:
        yield _about_too_good(comparison)
    yield from (suspected(comparison, one) for one in comparison.suspicions)


def suspected(comparison: Ranking, one: Suspicion) -> str:
    """Say what happens if the rows of a column belong together: both numbers side by side."""
    main, mine = one.scores[0], comparison.scores[0]
    column = cited(one.cuts.column)
    kind = "rows of the same value may belong together" if one.cuts.kind == "groups" else "rows have an order"
    return (
        f"{column} looks like {'groups' if one.cuts.kind == 'groups' else 'time'} ({kind}): "
        f"{mine.name} is {scored(mine)} with rows left out one by one, {scored(main)} for {new_rows(one)}; "
        f"if new rows are such, tune with --{one.cuts.kind} {column}."
    )


def audited(audit: Audit, loss_name: str, std_error: float) -> Iterator[str]:
    """Say that the approximation is off, where the interval of an audit excludes it by what may matter."""
    if audit.excludes(audit.approximate, std_error):
        yield (
            f"The approximation of the left-out {loss_name} is off by {audit.difference:+.2g}: trust the "
            f"audited value, {interval(audit)}."
        )


def interval(audit: Audit) -> str:
    """Write an audit to the precision that its interval, to two digits, allows; of all rows it has none."""
    low, high = audit.interval
    half = 0.5 * (high - low)
    if not half > 0:
        return to_digits(audit.value, 5)
    decimals = 1 - int(np.floor(np.log10(half)))
    form = f".{max(decimals, 0)}f"
    if decimals < -MOST_DIGITS:
        form = f".{decimals + int(np.log10(max(abs(low), abs(high))))}e"
    return f"{audit.value:{form}} [{low:{form}}, {high:{form}}]"


def about_audit(comparison: Ranking) -> Iterator[str]:
    """Say what an audit of the best candidate has found, if there was one."""
    audit, best, cuts = comparison.audit, comparison.best, comparison.cuts
    if audit is not None:
        new = "" if cuts is None else f" for {cuts.words}"
        before = "the approximation" if cuts is None else "tuning"
        failed = f", {len(audit.failed)} of which failed" if audit.failed.size else ""
        is_sample = audit.interval[0] < audit.interval[1]
        sure = " at 95 %" if is_sample else ""
        how = "The interval is for refits without every row in turn; how" if is_sample else "How"
        yield (
            f"Audit of {best.name}: left-out {comparison.audited_loss[0]} {interval(audit)}{sure}{new} by "
            f"{counted(audit.m, 'refit')} of the model with its preprocessing{failed}; {before} gave "
            f"{to_digits(audit.approximate, 4)}. {how} far new data may be from that is the ± of the table."
        )


def _about_audit(comparison: Ranking) -> Iterator[str]:
    if comparison.audit is not None:
        yield from audited(comparison.audit, *comparison.audited_loss)


def _about_sureness(comparison: Ranking) -> str:
    """How sure the choice of the strength is; what is rounding beside the risk tells nothing."""
    best = comparison.best
    name, tried, _ = strengths_of(best.model)
    path = best.model.risk_path_
    level = path <= np.nanmin(path) + EXACT * abs(np.nanmin(path))
    held = tried[level | np.isin(tried, best.model.confidence_set_)]
    if len(held) == 1:
        return f"Of {len(tried)} strengths of {best.name} the chosen one is better than any other at 95 %."
    return (
        f"{len(held)} of {len(tried)} strengths of {best.name}, {name} from {to_digits(held.min(), 3)} to "
        f"{to_digits(held.max(), 3)}, cannot be told from the best by these rows; the chosen one is among "
        "them."
    )


def _about_choice(comparison: Ranking) -> str:
    """The price of having chosen by the same risk."""
    best, loss_name = comparison.best, comparison.best.estimate.loss_name
    models = "" if len(comparison.candidates) == 1 else "; the choice among models is not corrected for"
    if comparison.cuts is not None:
        return f"The strength was chosen by the same risk, which is therefore a little optimistic{models}."
    of_many = f"The strength was chosen among {len(best.model.risk_path_)}"
    chosen = "Strength and mix were chosen" if best.name == "elasticnet" else of_many
    if not is_raised(best):
        return (
            f"{chosen} by the same risk: correcting the left-out {loss_name} for that does not raise it"
            f"{models}."
        )
    return (
        f"{chosen} by the same risk, which is therefore optimistic: the left-out {loss_name} of {best.name}, "
        f"corrected for the choice, is {corrected(best)}{models}."
    )


def is_raised(candidate: TunedModel) -> bool:
    """Whether the correction for the choice raises the risk, in the digits that are shown."""
    plain, _ = to_the_error(candidate.estimate.value, candidate.estimate.std_error)
    return candidate.corrected_risk > candidate.estimate.value and corrected(candidate) != plain


def corrected(candidate: TunedModel) -> str:
    """Corrected risk to the precision of the standard error of the risk."""
    return to_the_error(candidate.corrected_risk, candidate.estimate.std_error)[0]


def _about_the_best(comparison: Ranking) -> Iterator[str]:
    """Classes that are rare, rows that were flagged."""
    shares = comparison.prevalence if comparison.table.is_classification else np.zeros(1)
    if shares.max() > 1.0 - RARE:
        rarest, usual = comparison.classes[comparison.rarest], comparison.classes[int(shares.argmax())]
        yield (
            f"Only {shares.min():.1%} of rows are {rarest}: an accuracy of "
            f"{comparison.score('accuracy'):.3f} says little, as always {usual} has {shares.max():.3f}; "
            "look at average precision and thresholds."
        )
    if comparison.cuts is None and len(comparison.classes) > 1:
        yield from _about_ranks(comparison)
    if comparison.cuts is None and comparison.best.estimate.flagged.size:
        yield _about_flagged(comparison.best)


def _about_too_good(comparison: Ranking) -> str:
    best, loss_name = comparison.best, comparison.loss_name
    kept = comparison.coefficients.kept
    telling = np.abs(kept["effect"]) >= TELLING * np.abs(kept["effect"]).max()
    columns = [_column_of(str(name), comparison.table.features.columns) for name in kept["feature"][telling]]
    names = list(dict.fromkeys(columns))[:3]
    which = f"coefficient is that of {cited(names[0])}"
    if len(names) > 1:
        which = f"coefficients are those of {columns_listed(names)}"
    left = 100.0 * best.risk[0] / comparison.constant_risk[0]
    return (
        f"The {loss_name} is {left:.2g} % of that of {constant_name(comparison)}: too good for most data. "
        f"Does a column contain the target? The largest {which}; --drop COLUMN leaves a column out."
    )


def _column_of(feature: str, columns: Iterable[str]) -> str:
    """The column that a feature is made of: itself, one of its levels, or whether it is missing."""
    made = (
        name for name in columns if feature == name or feature.startswith((f"{name}=", f"{name} missing"))
    )
    return next(made, feature)


def _about_ranks(comparison: Ranking) -> Iterator[str]:
    """Say what leaving out does to ranks: a row lacks itself where the others have it."""
    area = next(score for score in comparison.scores if score.name == "AUC")
    alike = comparison.alike
    if area.value < 0.5 and not comparison.is_clear:
        yield (
            "An AUC below 0.5 is what leaving out makes of a model that tells nothing: without a row its "
            "class is a little rarer, and the row is ranked the wrong way."
        )
    elif len(comparison.classes) == 2 and 0.5 * alike > area.std_error:
        yield (
            f"In {alike:.0%} of the pairs of a row of each class both have the same features. Leaving one "
            f"out may rank them the wrong way, which takes up to {0.5 * alike:.2g} off the AUC."
        )


def _about_flagged(best: TunedModel) -> str:
    est, rows = best.estimate, best.estimate.flagged
    share = float(est.losses[rows].sum() / max(est.losses.sum(), np.finfo(float).tiny))
    high = int(np.count_nonzero(est.leverages[rows] >= HIGH_LEVERAGE))
    changes = len(rows) - high
    if est.guarantee == "sampled":
        return (
            f"The mean of the {est.loss_name} is known from refits of some rows, to within "
            f"{est.approx_error:.2g} at 95 %; of {counted(rows.size, 'row')} the values one by one are "
            "approximate."
        )
    parts = [
        f"{high} determine most of their own fit" if high else "",
        _about_changes(changes, best) if changes else "",
    ]
    return (
        f"{rows.size} of {len(est.losses)} rows are flagged ({share:.0%} of the risk): "
        f"{', '.join(part for part in parts if part)}; their values are one step from the fit, not "
        "proven equal to a refit."
    )


def _about_changes(count: int, best: TunedModel) -> str:
    if np.any(best.model.coef_ == 0):
        return f"leaving one of {count} out may change which coefficients are zero"
    return f"leaving one of {count} out moves the fit farther than one step tells"


def _about_ties(comparison: Ranking) -> Iterator[str]:
    others = {one.name: comparison.above_best(one.judged) for one in comparison.candidates[1:]}
    tied = [name for name, one in others.items() if one[0] < 2.0 * one[1] or comparison.is_level(one)]
    if tied:
        yield (
            f"{comparison.best.name} has the smallest risk, but {' and '.join(tied)} cannot be told apart "
            "from it by these data."
        )


def _about_counts(comparison: Ranking) -> Iterator[str]:
    best = comparison.best
    below = int(np.count_nonzero(best.judged.predictions < 0))
    if comparison.table.task == "counts" and best.estimate.loss_name != "deviance" and below:
        yield f"{best.name} predicts negative counts for {counted(below, 'row')}; --model poisson never does."

"""What to tell about tuned models, in sentences and in lines of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onefit.cli.comparison import PRECISION, Ranking, Score, Suspicion, TunedModel
from onefit.cli.errors import cited
from onefit.cli.table import FEW_ROWS
from onefit.risk.presentation import with_error
from onefit.wording import counted, to_digits

WAYS = {"groups": "groups, left out together", "time": "predicting later rows from earlier ones"}
KNOWN = {"groups": " of the other rows", "time": " of the rows before"}  # what a constant is made of


# --- numbers and tables ----------------------------------------------------------------------------


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


def columns(comparison: Ranking) -> list[str]:
    """Header of ``lines``."""
    return [
        *("", "model", "strength", comparison.loss_name, "above the best"),
        *(score.name for score in shown_scores(comparison)),
        *("df", "coefficients"),
    ]


def shown_scores(comparison: Ranking) -> list[Score]:
    """Scores of the table of models: those that are not its loss."""
    return [score for score in comparison.scores if score.name != comparison.loss_name][:3]


def lines(comparison: Ranking) -> list[list[str]]:
    """One line of text cells for each candidate, and one for no features."""
    shown = [_line(comparison, candidate) for candidate in comparison.candidates]
    risk = with_error(*comparison.constant_risk)
    above = _above(comparison, comparison.gain)
    blank = [""] * (len(columns(comparison)) - 5)
    return [*shown, ["", constant_name(comparison)[4:], "", risk, above, *blank]]


def _above(comparison: Ranking, above: tuple[float, float]) -> str:
    """A difference from the best; what is rounding beside the risks is none."""
    return "+0" if comparison.is_level(above) else ("+" + with_error(*above)).replace("+-", "-")


def _line(comparison: Ranking, candidate: TunedModel) -> list[str]:
    best = candidate is comparison.best
    names = [score.name for score in shown_scores(comparison)]
    found = comparison.scores if best else comparison.scores_of(candidate.judged)
    values = {score.name: score.value for score in found}
    return [
        "*" if best else "",
        candidate.name,
        candidate.chosen,
        with_error(*candidate.risk),
        "" if best else _above(comparison, comparison.above_best(candidate.judged)),
        *(to_digits(values[name], 4) for name in names),
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
    how = "leave-one-out" if comparison.cuts is None else WAYS[comparison.cuts.kind]
    return (
        f"{cited(table.target)} of {comparison.source}: {table.task} ({table.reason}), {len(table.y)} rows, "
        f"{counted(table.features.shape[1], 'column')} turned into "
        f"{counted(len(comparison.feature_names), 'feature')}; "
        f"{models} tuned by {how}."
    )


def verdict(comparison: Ranking) -> str:
    """Say in one sentence whether the features help at all."""
    above, error = comparison.gain
    rest = "" if comparison.cuts is None else KNOWN[comparison.cuts.kind]
    constant = constant_name(comparison).removesuffix(" only") + rest
    gain = f"{with_error(above, error)} in {comparison.loss_name}"
    if comparison.is_level(comparison.gain):
        return f"No model is better than predicting {constant}: do not read anything into its coefficients."
    new = "" if comparison.cuts is None else f" for {comparison.cuts.words}"
    if comparison.table.is_small:
        return (
            f"{comparison.best.name} gains {gain} over predicting {constant}{new}, but on "
            f"{counted(len(comparison.table.y), 'row')} nothing is certain: it takes {FEW_ROWS} at least to "
            "judge."
        )
    if not comparison.is_clear:
        return (
            f"No model is clearly better than predicting {constant}{new} (the best gains {gain}): do not "
            "read anything into its coefficients."
        )
    said = f"{comparison.best.name} is clearly better than predicting {constant}{new}: it gains {gain}."
    without = [new_rows(one) for one in comparison.suspicions if not comparison.helps(one)]
    return said + (f" But for {' and '.join(without)} it is not, see below." if without else "")


def in_units(comparison: Ranking) -> str:
    """The scores of the best model, in one line."""
    two, names = len(comparison.classes) == 2, comparison.classes
    rare = f" of class {names[comparison.rarest]}" if two else ""
    parts = [
        f"{score.name}{rare if score.name == PRECISION else ''} {scored(score)}"
        for score in comparison.scores
    ]
    if comparison.table.is_classification:
        shares, rarest = comparison.prevalence, comparison.rarest
        usual, most = names[int(np.argmax(shares))], f"{shares.max():.1%}"
        parts.append(
            f"{names[rarest]} is {shares[rarest]:.1%} of rows (always {usual} is right in {most})"
            if two
            else f"{usual} is {most} of rows, the most of {len(names)} classes"
        )
    return f"{comparison.best.name}, left out: {', '.join(parts)}."


def new_rows(one: Suspicion) -> str:
    """Rows that belong together, or come later, as a user would call them."""
    return f"{'new' if one.cuts.kind == 'groups' else 'later'} {cited(one.cuts.column)}"


def alone(comparison: Ranking) -> str:
    """Say of what single rows change that it is not what the risk is of, where rows left together."""
    if comparison.cuts is None:
        return ""
    return f" Each row is left out alone here, all others stay; the risk is that of {comparison.cuts.words}."


# --- coefficients ----------------------------------------------------------------------------------


def coefficient_lines(comparison: Ranking, most: int) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the largest coefficients."""
    found = comparison.coefficients
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
            to_digits(one["effect"], 3),
            f"{one['same_sign']:.0%}",
            f"{one['selected']:.0%}",
        ]
        for one in shown
    ]

"""What to tell about tuned models: the table, what to trust, predictions row by row, an HTML report."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import pandas as pd
from scipy.special import expit, softmax, xlogy

from onefit._typing import Array, Index
from onefit.displays import CoefficientPathDisplay, LeftOutDisplay, RiskPathDisplay
from onefit.risk.audit import RESOLUTION, Audit
from onefit.risk.estimate import RiskEstimate, mean_and_error
from onefit.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HIGH_LEVERAGE = 0.8  # a row that determines most of its own fit
SUSPICIOUS_R2 = 0.999
MOST_ROWS = 20  # of one table in the report
MOST_DECIDING = 8  # of the rows that decide most
MOST_CHANGES = 20_000_000  # changes of coefficients, rows by columns, that are held in memory for these rows
SCORES = {
    "regression": {"R²": "r2"},
    "counts": {"R²": "r2"},
    "binary": {"accuracy": "accuracy", "AUC": "roc_auc"},
    "multiclass": {"accuracy": "accuracy", "AUC": "roc_auc_ovr"},
}


@dataclass(frozen=True)
class Candidate:
    """A model that has tuned itself.

    Attributes
    ----------
    name : str
    model : fitted estimator
        One of ``onefit.estimators``.
    losses : (n,) array
        Left-out losses, the same loss for every candidate of a comparison.
    """

    name: str
    model: Any
    losses: Array

    @property
    def estimate(self) -> RiskEstimate:
        """Leave-one-out at the chosen strength."""
        return self.model.loo_

    @property
    def chosen(self) -> str:
        """The chosen hyperparameters."""
        name = "C" if hasattr(self.model, "C_") else "alpha"
        text = f"{name}={getattr(self.model, name + '_'):.4g}"
        mixes = np.size(getattr(self.model, "l1_ratio", 0.0)) > 1
        return f"{text} l1_ratio={self.model.l1_ratio_:.3g}" if mixes else text

    @property
    def n_strengths(self) -> int:
        """How many strengths were tried."""
        return len(self.model.risk_path_)

    @property
    def n_nonzero(self) -> int:
        """How many columns have a coefficient other than zero."""
        return int(np.any(np.atleast_2d(self.model.coef_) != 0, axis=0).sum())


@dataclass(frozen=True)
class Comparison:
    """Candidates on the same rows, compared by left-out risk.

    Attributes
    ----------
    table : Table
    source : str
        Where the table came from.
    candidates : tuple of Candidate
        In rising order of risk.
    loss_name : str
    baseline : (n,) array
        Left-out losses without features: the mean, or the class frequencies, of the other rows.
    feature_names : tuple of str
        Names after preprocessing.
    audit : Audit or None
        Of the best candidate, in its own loss, by refits with all of its preprocessing.
    """

    table: Table
    source: str
    candidates: tuple[Candidate, ...]
    loss_name: str
    baseline: Array
    feature_names: tuple[str, ...]
    audit: Audit | None = None

    @property
    def best(self) -> Candidate:
        """The candidate of smallest risk."""
        return self.candidates[0]

    @property
    def weights(self) -> Array:
        """Weight of each row: (n,)."""
        return np.ones(len(self.table.y)) if self.table.weights is None else self.table.weights

    @cached_property
    def scores(self) -> dict[str, float]:
        """Scores of the best candidate on its pooled left-out predictions."""
        return self.scores_of(self.best)

    def scores_of(self, candidate: Candidate) -> dict[str, float]:
        """Scores of a candidate on its pooled left-out predictions."""
        names = SCORES[self.table.task]
        return {name: candidate.estimate.score(scoring) for name, scoring in names.items()}

    def above_best(self, losses: Array) -> tuple[float, float]:
        """Risk above that of the best, and the standard error of the paired difference."""
        return mean_and_error(losses - self.best.losses, self.weights)

    @property
    def columns(self) -> list[str]:
        """Header of ``lines``."""
        scores = list(SCORES[self.table.task])
        counts = ["df", "coefficients", *scores, "proven", "flagged"]
        return ["", "model", "strength", self.loss_name, "above the best", *counts]

    @property
    def lines(self) -> list[list[str]]:
        """One line of text cells for each candidate, and one for no features."""
        shown = [self._line(candidate) for candidate in self.candidates]
        risk = with_error(*mean_and_error(self.baseline, self.weights))
        above = "+" + with_error(*self.above_best(self.baseline))
        constant = "class frequencies" if self.table.is_classification else "mean only"
        blank = [""] * (len(self.columns) - 5)
        return [*shown, ["", constant, "", risk, above.replace("+-", "-"), *blank]]

    def _line(self, candidate: Candidate) -> list[str]:
        est, best = candidate.estimate, candidate is self.best
        return [
            "*" if best else "",
            candidate.name,
            candidate.chosen,
            with_error(*mean_and_error(candidate.losses, self.weights)),
            "" if best else "+" + with_error(*self.above_best(candidate.losses)),
            f"{est.effective_df:.1f}",
            f"{candidate.n_nonzero}/{len(self.feature_names)}",
            *(f"{score:.3f}" for score in self.scores_of(candidate).values()),
            f"{int(est.certified.sum())}" if est.loss_name == "squared error" else "-",
            f"{len(est.flagged)}",
        ]


def common_loss(estimates: Sequence[RiskEstimate], y: Any) -> tuple[str, list[Array]]:
    """Left-out losses that may be compared: their own if all have the same, else squared errors."""
    names = {est.loss_name for est in estimates}
    if len(names) == 1:
        return names.pop(), [est.losses for est in estimates]
    return "squared error", [(y - est.predictions) ** 2 for est in estimates]


def constant_losses(table: Table, loss_name: str) -> Array:
    """Losses of the constant that the other rows suggest: their mean, or their class frequencies.

    With S = Σ w y, row i is predicted by (S − w_i y_i) / (Σ w − w_i).  Where all other counts are zero, half
    a count is put among them, since a Poisson mean of zero would make the deviance infinite.
    """
    w = np.ones(len(table.y)) if table.weights is None else table.weights
    others = np.maximum(w.sum() - w, np.finfo(float).tiny)
    if loss_name == "log-loss":
        _, numbers = np.unique(table.y, return_inverse=True)
        share = (np.bincount(numbers, w)[numbers] - w) / others
        return -np.log(np.maximum(share, np.finfo(float).tiny))
    mean = (w @ table.y - w * table.y) / others
    if loss_name == "deviance":
        mean = np.maximum(mean, 0.5 / others)
        return 2.0 * (xlogy(table.y, table.y / mean) - table.y + mean)
    return (table.y - mean) ** 2


# --- text ------------------------------------------------------------------------------------------


def with_error(value: float, error: float) -> str:
    """Write a number to the precision that its standard error, to two digits, allows."""
    if not np.isfinite(error) or error <= 0 or not np.isfinite(value):
        return f"{value:.4g}"
    decimals = 1 - int(np.floor(np.log10(error)))
    if decimals > 6:
        return f"{value:.4g} ± {error:.2g}"
    return f"{value:.{max(decimals, 0)}f} ± {error:.{max(decimals, 0)}f}"


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Lay cells out in columns for a terminal."""
    every = [header, *lines]
    widths = [max(len(line[k]) for line in every) for k in range(len(header))]
    left = 3  # the mark, the model and the strength are words
    rows = (
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in every
    )
    return "\n".join(row.rstrip() for row in rows)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def describe(comparison: Comparison) -> str:
    """Say in one sentence what was done."""
    table, names = comparison.table, [candidate.name for candidate in comparison.candidates]
    models = f"{', '.join(names[:-1])} and {names[-1]}, each" if len(names) > 1 else names[0]
    return (
        f"{table.target} of {comparison.source}: {table.task} ({table.reason}), {len(table.y)} rows, "
        f"{_number(table.features.shape[1], 'column')} turned into "
        f"{_number(len(comparison.feature_names), 'feature')}; "
        f"{models} tuned by leave-one-out."
    )


def verdict(comparison: Comparison) -> str:
    """Say in one sentence whether the features help at all."""
    above, error = comparison.above_best(comparison.baseline)
    constant = "the class frequencies" if comparison.table.is_classification else "the mean"
    gain = with_error(above, error)
    if not above > 2.0 * error:
        return (
            f"No model is clearly better than predicting {constant} (the best gains {gain} in "
            f"{comparison.loss_name}): do not read anything into its coefficients."
        )
    return (
        f"{comparison.best.name} is clearly better than predicting {constant}: it gains {gain} in "
        f"{comparison.loss_name}."
    )


def strengths(comparison: Comparison) -> list[str]:
    """Say what may be trusted."""
    est, n = comparison.best.estimate, len(comparison.table.y)
    if est.loss_name == "squared error":
        proof = f"for {int(est.certified.sum())} of {n} rows that is proven."
    else:
        proof = f"for the {est.loss_name} it is computed, not proven, row by row."
    said = [
        f"The risk is what refitting {comparison.best.name} without each row in turn gives, at the chosen "
        f"strength; {proof}",
    ]
    if not _about_audit(comparison):
        said += about_audit(comparison)
    if len(comparison.candidates) > 1:
        said.append(
            "Differences between models carry the standard error of the paired difference, row by row: "
            "below about two of these they are a tie."
        )
    return said


def cautions(comparison: Comparison) -> list[str]:
    """Say what may not be trusted, most important first."""
    said = [
        *first_cautions(comparison),
        "Rows are taken as independent: if some belong together (one person, one place, neighbours in time), "
        "the risk for a new group is larger.",
    ]
    return [*said, *(note[:1].upper() + note[1:] + "." for note in comparison.best.estimate.notes)]


def first_cautions(comparison: Comparison) -> list[str]:
    """Say what may not be trusted in this very case, and what was held fixed."""
    but = "" if comparison.audit is None else "; only the refits of the audit repeat it"
    return [
        *_about_audit(comparison),
        *_suspicions(comparison),
        *_about_flagged(comparison.best.estimate),
        *_about_ties(comparison),
        *_about_counts(comparison),
        f"The preprocessing (medians, scales, levels of text) was fitted on all rows and held fixed{but}.",
        _about_choice(comparison),
    ]


def audited(audit: Audit, loss_name: str) -> list[str]:
    """Say that the approximation is off, where the interval of an audit excludes it."""
    low, high = audit.interval
    slack = RESOLUTION * abs(audit.value)  # an audit of all rows has an interval of no width
    if low - slack <= audit.approximate <= high + slack:
        return []
    return [
        f"The approximation of the left-out {loss_name} is off by {audit.difference:+.2g}: trust the audited "
        f"value, {_interval(audit)}."
    ]


def _interval(audit: Audit) -> str:
    """Write an audit to the precision that its interval, to two digits, allows; of all rows it has none."""
    low, high = audit.interval
    half = 0.5 * (high - low)
    if not half > 0:
        return f"{audit.value:.5g}"
    decimals = max(1 - int(np.floor(np.log10(half))), 0)
    return f"{audit.value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def about_audit(comparison: Comparison) -> list[str]:
    """Say what an audit of the best candidate has found, if there was one."""
    audit = comparison.audit
    if audit is None:
        return []
    failed = f", {len(audit.failed)} of which failed" if audit.failed.size else ""
    name, loss_name = comparison.best.name, comparison.best.estimate.loss_name
    refits = _number(audit.m, "refit")
    sure = " at 95 %" if audit.interval[0] < audit.interval[1] else ""
    return [
        f"Audit of {name}: left-out {loss_name} {_interval(audit)}{sure} by {refits} of the model with its "
        f"preprocessing{failed}; the approximation gave {audit.approximate:.4g}."
    ]


def _about_audit(comparison: Comparison) -> list[str]:
    audit = comparison.audit
    return [] if audit is None else audited(audit, comparison.best.estimate.loss_name)


def _about_choice(comparison: Comparison) -> str:
    """The price of having chosen by the same risk."""
    best, loss_name = comparison.best, comparison.best.estimate.loss_name
    several = np.size(getattr(best.model, "l1_ratio", 0.0)) > 1
    among = "all strengths and mixes" if several else f"{best.n_strengths} strengths"
    models = "" if len(comparison.candidates) == 1 else "; the choice among models is not corrected for"
    return (
        "The strength was chosen by the same risk, which is therefore optimistic: the left-out "
        f"{loss_name} of {best.name}, corrected for having chosen the best of {among}, is "
        f"{_corrected(best)}{models}."
    )


def _corrected(candidate: Candidate) -> str:
    """Corrected risk to the precision of the standard error of the risk."""
    text = with_error(candidate.model.corrected_risk_, candidate.estimate.std_error)
    return text.split(" ±")[0]


def _suspicions(comparison: Comparison) -> list[str]:
    if comparison.scores.get("R²", 0.0) < SUSPICIOUS_R2:
        return []
    names = np.asarray(comparison.feature_names)[
        np.argsort(-np.abs(np.atleast_2d(comparison.best.model.coef_)).max(axis=0))
    ]
    return [
        f"R² is {comparison.scores['R²']:.4f}: too good for most data. Does a column contain the target? The "
        f"largest coefficients are those of {', '.join(names[:3])}; --drop COLUMN leaves a column out."
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
    strained = int(np.count_nonzero(est.leverages[est.flagged] >= HIGH_LEVERAGE))
    changes = len(est.flagged) - strained
    parts = [
        f"{strained} determine most of their own fit" if strained else "",
        f"leaving one of {changes} out may change which coefficients are zero" if changes else "",
    ]
    return ", ".join(part for part in parts if part)


def _about_ties(comparison: Comparison) -> list[str]:
    tied = []
    for candidate in comparison.candidates[1:]:
        above, error = comparison.above_best(candidate.losses)
        if above < 2.0 * error:
            tied.append(candidate.name)
    if not tied:
        return []
    return [
        f"{comparison.best.name} has the smallest risk, but {' and '.join(tied)} cannot be told apart from "
        "it by these data."
    ]


def _about_counts(comparison: Comparison) -> list[str]:
    if comparison.table.task != "counts" or comparison.best.estimate.loss_name == "deviance":
        return []
    below = int(np.count_nonzero(comparison.best.estimate.predictions < 0))
    return [
        f"{comparison.best.name} may predict negative counts (here for {below} rows); --model poisson never "
        "does."
    ]


# --- row by row ------------------------------------------------------------------------------------


def predictions(table: Table, est: RiskEstimate, losses: Array | None = None) -> pd.DataFrame:
    """Left-out predictions row by row.

    Parameters
    ----------
    table : Table
    est : RiskEstimate
    losses : (n,) array, optional
        Those of ``est`` if missing.

    Returns
    -------
    (n, ·) DataFrame
        row (counted from 0 below the header of the file), y, left_out (and one column a class), loss,
        leverage, flagged, certified.
    """
    flagged = np.zeros(len(table.y), dtype=bool)
    flagged[est.flagged] = True
    return pd.DataFrame(
        {
            "row": table.rows,
            "y": table.y,
            **predicted(est.predictions, est.classes, "left_out"),
            "loss": est.losses if losses is None else losses,
            "leverage": est.leverages,
            "flagged": flagged,
            "certified": est.certified,
        }
    )


def predicted(values: Array, classes: Any | None, name: str) -> dict[str, Any]:
    """Columns of predictions: a number; or the class, and a column for each class if there are several."""
    if classes is None:
        outputs = values.reshape(len(values), -1).T
        return {name: outputs[0]} if len(outputs) == 1 else {f"{name}_{k}": o for k, o in enumerate(outputs)}
    labels = np.asarray(classes)
    if values.ndim == 1:
        return {name: labels[(values > 0).astype(int)], "decision": values}
    each = {f"{name}_{label}": values[:, k] for k, label in enumerate(labels)}
    return {name: labels[values.argmax(axis=1)], **each}


def _row_table(comparison: Comparison, rows: Index) -> list[list[str]]:
    """Cells of row number, y, left-out prediction, leverage and reason."""
    est = comparison.best.estimate
    return [
        [
            *_observed(comparison, i),
            _predicted(est, est.predictions[i]),
            f"{est.leverages[i]:.3f}",
            f"{comparison.best.losses[i]:.4g}",
        ]
        for i in rows
    ]


def _observed(comparison: Comparison, i: int) -> list[str]:
    """Cells of the number of a row and of its y."""
    table = comparison.table
    y = str(table.y[i]) if comparison.best.estimate.classes is not None else f"{table.y[i]:.5g}"
    return [str(table.rows[i]), y]


def _predicted(est: RiskEstimate, value: Any) -> str:
    """Cell of a prediction: a number, or the likeliest class and its probability."""
    if est.classes is None:
        return f"{value:.5g}"
    return f"{np.asarray(est.classes)[value.argmax()]} ({value.max():.2f})"


def _fitted(est: RiskEstimate) -> Array:
    """Predictions with all rows in, on the scale of the left-out ones."""
    if est.classes is None:
        return np.exp(est.fitted) if est.loss_name == "deviance" else est.fitted
    if est.fitted.ndim == 1:
        return np.column_stack([expit(-est.fitted), expit(est.fitted)])
    return softmax(est.fitted, axis=1)


def deciding(comparison: Comparison) -> list[list[str]]:
    """Rows that decide most, the highest Cook's distance first.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    list of list of str
        Cells of row number, y, fitted value, left-out prediction, leverage and Cook's distance; none where
        the influence cannot be had, or would take too much memory.
    """
    est = comparison.best.estimate
    outputs = 1 if est.fitted.ndim == 1 else est.fitted.shape[1]
    if len(est.losses) * len(comparison.feature_names) * outputs > MOST_CHANGES:
        return []
    try:
        influence = est.influence()
    except ValueError:  # the fits without each row are not kept with every result
        return []
    fitted, distance = _fitted(est), influence.cooks_distance
    rows = influence.rows[np.isfinite(distance[influence.rows])][:MOST_DECIDING]
    return [
        [
            *_observed(comparison, i),
            _predicted(est, fitted[i]),
            _predicted(est, est.predictions[i]),
            f"{influence.leverages[i]:.3f}",
            f"{distance[i]:.3g}",
        ]
        for i in rows
    ]


def _flagged_table(comparison: Comparison) -> list[list[str]]:
    est = comparison.best.estimate
    rows = est.flagged[np.argsort(-est.leverages[est.flagged], kind="stable")][:MOST_ROWS]
    why = [
        "determines most of its own fit (leverage near 1)"
        if est.leverages[i] >= HIGH_LEVERAGE
        else "without it other coefficients may be zero"
        for i in rows
    ]
    return [[*cells, reason] for cells, reason in zip(_row_table(comparison, rows), why, strict=True)]


# --- HTML ------------------------------------------------------------------------------------------


def render(comparison: Comparison, version: str) -> str:
    """Return the report as one HTML page that needs nothing else.

    Parameters
    ----------
    comparison : Comparison
    version : str
        Of the library.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefit"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    est = comparison.best.estimate
    worst = np.argsort(-comparison.best.losses, kind="stable")[:10]
    return environment.get_template("report.html.j2").render(
        comparison=comparison,
        table=comparison.table,
        version=version,
        sentence=describe(comparison),
        verdict=verdict(comparison),
        tiles=_tiles(comparison),
        pictures=_pictures(comparison),
        flagged=_flagged_table(comparison),
        n_flagged=len(est.flagged),
        worst=_row_table(comparison, worst),
        deciding=deciding(comparison),
        strengths=strengths(comparison),
        cautions=cautions(comparison),
    )


def _tiles(comparison: Comparison) -> list[tuple[str, str]]:
    est, best = comparison.best.estimate, comparison.best
    risk = with_error(*mean_and_error(best.losses, comparison.weights))
    scores = [(f"left-out {name}", f"{value:.3f}") for name, value in comparison.scores.items()]
    return [
        ("best model", f"{best.name}, {best.chosen}"),
        (f"left-out {comparison.loss_name}", risk),
        *_checked(comparison),
        *scores,
        ("effective df", f"{est.effective_df:.1f}"),
    ]


def _checked(comparison: Comparison) -> list[tuple[str, str]]:
    """The same risk after the correction for the choice, and by the audit."""
    best, audit = comparison.best, comparison.audit
    of_which = "" if best.estimate.loss_name == comparison.loss_name else f" {best.estimate.loss_name}"
    corrected = (f"corrected{of_which} for the choice", _corrected(best))
    return [corrected] if audit is None else [corrected, (f"audited{of_which}, 95 %", _interval(audit))]


def _pictures(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Title, caption and data address of each plot."""
    best, names = comparison.best, comparison.feature_names
    paths = RiskPathDisplay.from_estimator(best.model)
    coefs = CoefficientPathDisplay.from_estimator(best.model, names)
    shown: list[tuple[str, str, Callable[[Axes], object], float]] = [
        (
            "Risk along the path",
            "Left-out risk at every penalty strength that was tried, and its standard error.",
            paths.plot,
            4.0,
        ),
        (
            "Coefficients along the path",
            "Of the standardised columns; the largest at the chosen strength are named.",
            coefs.plot,
            4.0,
        ),
        (
            "What leaving a row out changes",
            "Far from the zero line: rows that pull the fit to themselves.",
            _left_out(comparison).plot,
            4.6,
        ),
    ]
    return [(title, caption, _data_address(draw, height)) for title, caption, draw, height in shown]


def _left_out(comparison: Comparison) -> LeftOutDisplay:
    """Display of the best model; rings only where the leverage itself is the trouble."""
    est = comparison.best.estimate
    several = est.decision.ndim == 2
    return LeftOutDisplay(
        fitted=est.fitted,
        left_out=est.decision,
        leverages=est.leverages,
        flagged=est.flagged[est.leverages[est.flagged] >= HIGH_LEVERAGE],
        quantity=_quantity(comparison),
        output_names=list(map(str, np.asarray(est.classes))) if several else None,
    )


def _quantity(comparison: Comparison) -> str:
    est, target = comparison.best.estimate, comparison.table.target
    if est.decision.ndim == 2:
        return "log-odds (up to a constant)"
    if est.classes is not None:
        return f"log-odds of {target} = {np.asarray(est.classes)[1]}"
    return f"log of the mean {target}" if est.loss_name == "deviance" else target


def _data_address(draw: Callable[[Axes], object], height: float) -> str:
    """Draw into an SVG and return it as a data address, which cannot reach outside itself."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "onefit", "font.size": 10.0}):
        figure = Figure(figsize=(7.6, height), layout="constrained")
        draw(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, dpi=160, metadata={"Date": None})
    svg = re.sub(rb"(?s)<metadata>.*?</metadata>", b"", buffer.getvalue())
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")

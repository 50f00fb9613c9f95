"""The plots of the report."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree as ET

import numpy as np

from onefit.cli.comparison import Ranking
from onefit.cli.judged import class_numbers
from onefit.cli.trust import HIGH_LEVERAGE
from onefit.cli.words import alone
from onefit.displays import (
    CoefficientPathDisplay,
    LeftOutDisplay,
    PredictionDisplay,
    ResidualDisplay,
    RiskPathDisplay,
)
from onefit.displays.probabilities import curve

SIZE = (5.4, 4.3)  # inches: small enough for a telephone, so that two stand side by side on a desk
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"

Plot = tuple[str, str, Callable[[Any], Any]]  # title, caption, from axes to a display
ONE_CLASS = 2  # of so many classes a curve for the second tells all
MOST_CLASSES = 4  # that get curves of their own


class Picture(NamedTuple):
    """A plot that is ready for a page."""

    title: str
    caption: str
    svg: str


def pictures(comparison: Ranking) -> list[Picture]:
    """All plots of the best model."""
    predicted = _of_classes if comparison.table.is_classification else _of_numbers
    plots = [*predicted(comparison), *_of_paths(comparison)]
    return [Picture(title, caption, drawn(draw, f"p{k}")) for k, (title, caption, draw) in enumerate(plots)]


def _of_numbers(comparison: Ranking) -> list[Plot]:
    table, judged = comparison.table, comparison.best.judged
    rows, y = table.rows[judged.rows], np.asarray(table.y)[judged.rows]
    given: Any = (y, judged.predictions, rows, table.target)
    return [
        (
            "Predicted and observed",
            "Left-out predictions; on the line they are right.",
            PredictionDisplay(*given).plot,
        ),
        ("Residuals", "A trend or a funnel is what the model does not see.", ResidualDisplay(*given).plot),
    ]


def _of_classes(comparison: Ranking) -> list[Plot]:
    judged = comparison.best.judged
    y = class_numbers(comparison.table.y)[judged.rows]
    c = judged.predictions.shape[1]
    shares = comparison.prevalence
    shown = [1] if c == ONE_CLASS else list(np.argsort(-shares)[:MOST_CLASSES])
    plots: list[Plot] = []
    for k in (k for k in shown if 0.0 < shares[k] < 1.0):  # later rows may be of some classes alone
        plots += _of_class(y == k, judged.predictions[:, k], judged.weights, comparison.classes[k])
    return plots


def _of_class(positive: Any, p: Any, w: Any, name: str) -> list[Plot]:
    share = float(np.average(positive, weights=w))
    guessing = f"The line is the share of {name}, {share:.1%}: what guessing gives."
    tenths = "Tenths of the rows by predicted probability; bars are one standard error."
    told = {
        "roc": ("ROC curve", "From left-out probabilities; the diagonal is chance."),
        "precision-recall": ("Precision and recall", guessing),
        "calibration": ("Calibration", tenths),
    }
    return [
        (f"{title}, {name}", caption, curve(kind, positive, p, w, name).plot)
        for kind, (title, caption) in told.items()
    ]


def _of_paths(comparison: Ranking) -> list[Plot]:
    best, names = comparison.best, comparison.feature_names
    plots: list[Plot] = []
    if len(best.model.risk_path_) > 1:
        plots = [
            (
                "Risk along the path",
                "Left-out risk at every penalty strength that was tried, and its standard error.",
                RiskPathDisplay.from_estimator(best.model).plot,
            ),
            (
                "Coefficients along the path",
                "Of the standardised columns; the largest at the chosen strength are named.",
                CoefficientPathDisplay.from_estimator(best.model, names).plot,
            ),
        ]
    caption = f"Far from the zero line: rows that pull the fit to themselves.{alone(comparison)}"
    return [*plots, ("What leaving a row out changes", caption, _left_out(comparison).plot)]


def _left_out(comparison: Ranking) -> LeftOutDisplay:
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
        rows=comparison.table.rows,
    )


def _quantity(comparison: Ranking) -> str:
    est, target = comparison.best.estimate, comparison.table.target
    if est.decision.ndim == 2:
        return "log-odds (up to a constant)"
    if est.classes is not None:
        return f"log-odds of {target} = {np.asarray(est.classes)[1]}"
    return f"log of the mean {target}" if est.loss_name == "deviance" else target


# --- plots as SVG that stands inside a page and tells its numbers when it is pointed at ---


def drawn(draw: Callable[[Any], Any], name: str) -> str:
    """Draw into an SVG element whose identifiers all begin with a name.

    Parameters
    ----------
    draw : callable
        From axes to a display, whose ``hover_``, if it has one, says what is known of its points.
    name : str
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "onefit", "font.size": 10.0}):
        figure = Figure(figsize=SIZE, layout="constrained")
        display = draw(figure.subplots())
        hover = getattr(display, "hover_", [])
        for k, (artist, _) in enumerate(hover):
            artist.set_gid(f"hover-{k}")
        svg = _saved(figure)
    ET.register_namespace("", SVG[1:-1])
    ET.register_namespace("xlink", LINK[1:-5])
    root = ET.fromstring(svg)
    for k, (_, texts) in enumerate(hover):
        _say(root, f"hover-{k}", texts)
    return _inline(root, name)


def _saved(figure: Any) -> bytes:
    """A figure as SVG: letters are shapes, or text for the reader's fonts where ours lacks some of them."""
    from matplotlib import rc_context

    ways: tuple[tuple[str, Literal["error", "ignore"]], ...] = (("path", "error"), ("none", "ignore"))
    for letters, missing in ways:
        buffer = io.BytesIO()
        with rc_context({"svg.fonttype": letters}), warnings.catch_warnings():
            warnings.filterwarnings(missing, "Glyph .* missing from", UserWarning)
            with suppress(UserWarning):
                figure.savefig(buffer, format="svg", transparent=True, dpi=160, metadata={"Date": None})
                break
    return buffer.getvalue()


def _say(root: ET.Element, gid: str, texts: Sequence[str]) -> None:
    """Give each mark of a group its text, as a title."""
    group = next((one for one in root.iter(f"{SVG}g") if one.get("id") == gid), None)
    if group is None:
        return
    hidden = {id(one) for defs in group.iter(f"{SVG}defs") for one in defs.iter()}
    marks = [one for one in group.iter() if one.tag in (f"{SVG}use", f"{SVG}path") and id(one) not in hidden]
    for mark, text in zip(marks, texts, strict=False):
        ET.SubElement(mark, f"{SVG}title").text = text


def _inline(root: ET.Element, name: str) -> str:
    """The element alone, sized by its box, with identifiers that no other picture has."""
    for one in [*root.iter(f"{SVG}metadata")]:
        root.remove(one)
    root.attrib.pop("width", None)
    root.attrib.pop("height", None)
    text = ET.tostring(root, encoding="unicode")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)

"""The plots of the report."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from onefit.cli import words
from onefit.cli.comparison import Comparison
from onefit.displays import CoefficientPathDisplay, LeftOutDisplay, RiskPathDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pictures(comparison: Comparison) -> list[tuple[str, str, str]]:
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
        flagged=est.flagged[est.leverages[est.flagged] >= words.HIGH_LEVERAGE],
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

"""What left-out probabilities of two classes are worth: curves by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array
from onefit.displays import curves
from onefit.displays.base import Display
from onefit.displays.rates import RateDisplay
from onefit.displays.style import BLUE, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES = ("calibration", "roc", "precision-recall", "thresholds")


@dataclass(eq=False, repr=False)
class ThresholdDisplay(Display):
    """Precision, recall and accuracy of calling a row positive from a probability on.

    Parameters
    ----------
    found : list of Confusion
        From the lowest threshold to the highest.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays.probabilities import curve
    >>> positive = np.array([True, True, False, False])
    >>> display = curve("thresholds", positive, np.array([0.9, 0.4, 0.6, 0.1]), np.ones(4))
    >>> [round(one.recall, 1) for one in display.found][:3]
    [1.0, 1.0, 1.0]
    """

    size = (5.4, 4.4)

    found: list[curves.Confusion]

    def _draw(self, ax: Axes) -> None:
        at = [one.threshold for one in self.found]
        ax.plot(at, [one.recall for one in self.found], color=BLUE, label="recall")
        ax.plot(at, [one.precision for one in self.found], color=BLUE, linestyle="--", label="precision")
        ax.plot(at, [one.accuracy for one in self.found], color=GREY, label="accuracy")
        ax.set(xlabel="threshold", ylabel="share of rows", ylim=(0, 1.02))
        ax.legend(frameon=False)


def curve(
    kind: str, positive: Any, probabilities: Array, weights: Array, name: str = "positive rows"
) -> Display:
    """A curve of two classes.

    Parameters
    ----------
    kind : "calibration", "roc", "precision-recall" or "thresholds"
    positive : (n,) bool array
    probabilities, weights : (n,) arrays
    name : str
        Of the rows that are positive.

    Raises
    ------
    ValueError
        For another kind.
    """
    if kind not in CURVES:
        raise ValueError(f"kind must be one of left-out, {', '.join(CURVES)}, got {kind!r}")
    found, diagonal = curves.counts(positive, probabilities, weights), [(0, 0), (1, 1)]
    if kind == "thresholds":
        return ThresholdDisplay(curves.thresholds(found))
    if kind == "roc":
        names = "false positive rate", "true positive rate"
        return RateDisplay(*curves.roc(found), *names, reference=diagonal, label="chance")
    if kind == "precision-recall":
        names, share = ("recall", "precision"), float(np.average(positive, weights=weights))
        rates = curves.precision_recall(found)
        return RateDisplay(*rates, *names, reference=[(0, share), (1, share)], label="guessing")
    expected, seen, error, _ = curves.calibration(positive, probabilities, weights)
    names = "left-out probability", f"share of {name}"
    return RateDisplay(expected, seen, *names, error=error, reference=diagonal, label="calibrated")

"""What left-out probabilities of two classes are worth: ROC, precision, calibration, thresholds."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.displays import curves
from onefit.displays.base import Display
from onefit.displays.style import BLUE, DASHED, GREY, Axes, legend_above, plain

CURVES = ("calibration", "roc", "precision-recall", "thresholds")


@dataclass(eq=False, repr=False)
class RateDisplay(Display):
    """One rate against another, such as precision against recall, with a line of reference.

    Parameters
    ----------
    x, y : (k,) array
        Rates in [0, 1].
    x_name, y_name : str
    error : (k,) array, optional
        Standard errors of ``y``, drawn as bars.
    reference : tuple of (x, y) pairs, optional
        Ends of a grey line: what a prediction without features would give, or a perfect one.
    label : str, default ""
        What the reference means.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import RateDisplay
    >>> x = np.linspace(0, 1, 5)
    >>> display = RateDisplay(x, np.sqrt(x), "false positive rate", "true positive rate")
    """

    size = (5.4, 4.4)

    x: Array
    y: Array
    x_name: str
    y_name: str
    _: KW_ONLY
    error: Array | None = None
    reference: Any = None
    label: str = ""

    def _draw(self, ax: Axes) -> None:
        if self.reference is not None:
            ax.plot(*np.transpose(self.reference), color=GREY, lw=1.0, ls=DASHED, label=self.label)
        if self.error is not None:
            ax.errorbar(self.x, self.y, yerr=self.error, color=BLUE, lw=0, elinewidth=1.2)
        ax.plot(self.x, self.y, color=BLUE, lw=1.8)
        dots = ax.scatter(
            self.x,
            self.y,
            s=14 if self.error is None else 30,
            color=BLUE,
            linewidths=0,
            alpha=0.25 if self.error is None else 1.0,
        )
        self.hover_ = [(dots, [self._say(i) for i in range(len(self.x))])]
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=plain(self.x_name), ylabel=plain(self.y_name))
        if self.label:
            legend_above(ax)

    def _say(self, i: int) -> str:
        error = "" if self.error is None else f" ± {self.error[i]:.3f}"
        return f"{self.x_name} {self.x[i]:.3f}, {self.y_name} {self.y[i]:.3f}{error}"


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

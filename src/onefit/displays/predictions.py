"""How good left-out predictions of numbers are: against what was observed, and their residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.displays.base import Display
from onefit.displays.cloud import cloud
from onefit.displays.style import BLUE, GREY, Axes, plain


@dataclass(eq=False, repr=False)
class _OfPredictions(Display):
    size = (5.4, 4.4)

    y: Array
    predictions: Array
    rows: Any = None
    quantity: str = "response"


class PredictionDisplay(_OfPredictions):
    """Observed against left-out predicted values; on the line a prediction is right.

    Parameters
    ----------
    y, predictions : (n,) array
    rows : (n,) array, optional
        Names of the rows; their numbers if missing.
    quantity : str, default "response"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import PredictionDisplay
    >>> display = PredictionDisplay(np.arange(5.0), np.arange(5.0) + 0.1)
    """

    def _draw(self, ax: Axes) -> None:
        y, predictions = np.asarray(self.y, dtype=np.float64), np.asarray(self.predictions)
        self.hover_ = cloud(ax, predictions, y, self._say, BLUE, np.abs(y - predictions))
        low, high = max(y.min(), predictions.min()), min(y.max(), predictions.max())
        ax.plot([low, high], [low, high], color=GREY, lw=1.0)
        ax.set(xlabel=f"left-out prediction of {plain(self.quantity)}", ylabel=plain(self.quantity))

    def _say(self, i: int) -> str:
        return f"row {_name(self.rows, i)}: {self.y[i]:.5g}, predicted {self.predictions[i]:.5g}"


class ResidualDisplay(_OfPredictions):
    """Residuals of left-out predictions against these; a trend or a funnel is what the model does not see.

    Parameters
    ----------
    y, predictions : (n,) array
    rows : (n,) array, optional
        Names of the rows; their numbers if missing.
    quantity : str, default "response"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import ResidualDisplay
    >>> display = ResidualDisplay(np.arange(5.0), np.arange(5.0) + 0.1)
    """

    def _draw(self, ax: Axes) -> None:
        predictions = np.asarray(self.predictions)
        residuals = np.asarray(self.y, dtype=np.float64) - predictions
        self.hover_ = cloud(
            ax,
            predictions,
            residuals,
            lambda i: f"row {_name(self.rows, i)}: residual {residuals[i]:.4g} at {predictions[i]:.4g}",
            BLUE,
            np.abs(residuals),
        )
        ax.axhline(0.0, color=GREY, lw=1.0)
        ax.set(xlabel=f"left-out prediction of {plain(self.quantity)}", ylabel="residual")


def _name(rows: Any, i: int) -> Any:
    return i if rows is None else rows[i]

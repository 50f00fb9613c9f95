"""How good left-out predictions of numbers are: against what was observed, and their residuals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.displays.base import Display
from onefit.displays.cloud import cloud, row_name
from onefit.displays.style import GREY, Axes, plain
from onefit.wording import to_digits


@dataclass(eq=False, repr=False)
class _OfPredictions(Display):
    """Left-out predictions, and above them what they are held against."""

    size = (5.4, 4.4)

    y: Array
    predictions: Array
    rows: Any = None
    quantity: str = "response"

    def _cloud(self, ax: Axes, heights: Array, name: str, say: Callable[[int], str]) -> None:
        """A point a row; those of the largest residuals stand out."""
        predictions = np.asarray(self.predictions)
        missed = np.abs(np.asarray(self.y, dtype=np.float64) - predictions)
        self.hover_ = cloud(
            ax, predictions, heights, lambda i: f"row {row_name(self.rows, i)}: {say(i)}", missed
        )
        ax.set(xlabel=f"left-out prediction of {plain(self.quantity)}", ylabel=name)


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
        self._cloud(
            ax,
            y,
            plain(self.quantity),
            lambda i: f"{to_digits(y[i], 5)}, predicted {to_digits(predictions[i], 5)}",
        )
        low = max(np.nanmin(y), np.nanmin(predictions))
        high = min(np.nanmax(y), np.nanmax(predictions))
        ax.plot([low, high], [low, high], color=GREY, lw=1.0)


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
        self._cloud(
            ax,
            residuals,
            "residual",
            lambda i: f"residual {to_digits(residuals[i], 4)} at {to_digits(predictions[i], 4)}",
        )
        ax.axhline(0.0, color=GREY, lw=1.0)

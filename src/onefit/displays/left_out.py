"""What leaving each row out changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.displays.base import Display
from onefit.displays.cloud import MOST_POINTS, SINGLED_OUT, Hover, density, row_name
from onefit.displays.style import (
    GREY,
    MANY_POINTS,
    MARKERS,
    NUMBERED,
    VERMILLION,
    Axes,
    colour_bar,
    legend_above,
    leverage_colours,
    number,
    plain,
)
from onefit.wording import to_digits


@dataclass(eq=False, repr=False)
class LeftOutDisplay(Display):
    """What leaving each row out changes: left-out minus fitted against fitted, coloured by leverage.

    Points on the zero line are rows that the model would predict alike without having seen them; the
    further from it, the more a row pulls the fit to itself.  (Left-out against fitted itself is a
    diagonal on which the differences cannot be seen.)

    Parameters
    ----------
    fitted, left_out : (n,) or (n, c) array
        Linear predictors with the row in and out.  With c columns there is a mark for each of them.
    leverages : (n,) array
    flagged : (r,) array of int
        Row numbers to ring; those with the highest leverage are numbered.
    quantity : str, default "linear predictor"
        What is on both axes.
    output_names : sequence of str, optional
        Names of the c columns.
    rows : (n,) array, optional
        Names of the rows; their numbers if missing.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import LeftOutDisplay
    >>> display = LeftOutDisplay(np.arange(5.0), np.arange(5.0) + 0.1, np.full(5, 0.2), np.array([4]))
    """

    size = (6.4, 5.4)

    fitted: Array
    left_out: Array
    leverages: Array
    flagged: Index
    _: KW_ONLY
    quantity: str = "linear predictor"
    output_names: Sequence[Any] | None = None
    rows: Any = None

    def _draw(self, ax: Axes) -> None:
        fitted = np.reshape(self.fitted, (len(self.leverages), -1))
        change = np.reshape(self.left_out, fitted.shape) - fitted
        points, self.hover_ = self._marks(ax, fitted, change)
        ax.axhline(0.0, color=GREY, lw=1.0, zorder=0)
        rows = np.asarray(self.flagged, dtype=np.intp)
        self._ring(ax, fitted, change, rows[np.argsort(-self.leverages[rows], kind="stable")])
        colour_bar(ax, points, "leverage")
        ax.set(xlabel=f"fitted {plain(self.quantity)}", ylabel="left out − fitted")
        if ax.get_legend_handles_labels()[0]:
            legend_above(ax, ncols=3, markerscale=1.4)

    def _marks(self, ax: Axes, fitted: Array, change: Array) -> tuple[Any, Hover]:
        """Every row, or the density of all and the rows of the highest leverage."""
        names, hover = self._names(fitted.shape[1]), []
        order = np.argsort(self.leverages, kind="stable")
        if fitted.size > MOST_POINTS:
            hover += density(ax, fitted.ravel(), change.ravel())
            order = order[-SINGLED_OUT:]
        points = [  # one mark for each output, the highest leverages on top
            ax.scatter(
                fitted[order, k],
                change[order, k],
                c=self.leverages[order],
                **leverage_colours(self.leverages),
                s=24 if len(order) < MANY_POINTS else 9,
                marker=MARKERS[k % len(MARKERS)],
                linewidths=0,
                label=name if len(names) > 1 else None,
            )
            for k, name in enumerate(names)
        ]
        said = ([self._say(int(i), fitted[i, k], change[i, k]) for i in order] for k in range(len(points)))
        return points[-1], [*hover, *zip(points, said, strict=True)]

    def _ring(self, ax: Axes, fitted: Array, change: Array, rows: Index) -> None:
        """Ring rows where they moved most, and name the first few."""
        if rows.size == 0:
            return
        furthest = np.abs(change[rows]).argmax(axis=1)
        ax.scatter(
            fitted[rows, furthest],
            change[rows, furthest],
            s=90,
            facecolors="none",
            edgecolors=VERMILLION,
            linewidths=1.4,
            label="not to be trusted blindly",
        )
        for row, k in zip(rows[:NUMBERED].tolist(), furthest, strict=False):
            name = row_name(self.rows, row)
            number(ax, name, fitted[row, k], change[row, k], (7, 4), color=VERMILLION)

    def _say(self, i: int, fitted: float, change: float) -> str:
        values = f"fitted {to_digits(fitted, 4)}, left out {to_digits(fitted + change, 4)}"
        return f"row {row_name(self.rows, i)}: {values}, leverage {self.leverages[i]:.3f}"

    def _names(self, c: int) -> list[str]:
        if self.output_names is not None:
            return [plain(name) for name in self.output_names]
        return ["one row"] if c == 1 else [f"output {k}" for k in range(c)]

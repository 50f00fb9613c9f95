"""How much each row decides the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.displays.base import Display
from onefit.displays.cloud import MOST_POINTS, largest
from onefit.displays.style import (
    DASHED,
    MANY_POINTS,
    NUMBERED,
    VERMILLION,
    Axes,
    colour_bar,
    legend_above,
    leverage_colours,
    number,
)


@dataclass(eq=False, repr=False)
class InfluenceDisplay(Display):
    """How much each row decides the fit: its Cook's distance by row number, coloured by leverage.

    The largest are numbered.  A high bar of dark colour is a row of unusual features, one of light colour a
    row of unusual response.  The line at 4/n is where rows begin to deserve a look (Bollen and Jackman
    1985); above 1 a single row decides the fit.

    Parameters
    ----------
    cooks_distance : (n,) array
        A row without a finite value is left blank.
    leverages : (n,) array
        Grey where not finite; no colour bar if none is.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import InfluenceDisplay
    >>> display = InfluenceDisplay(np.array([0.1, 0.02, 0.4]), np.array([0.2, 0.1, 0.7]))
    """

    size = (7.6, 4.2)

    cooks_distance: Array
    leverages: Array

    def _draw(self, ax: Axes) -> None:
        distance, leverages = np.asarray(self.cooks_distance), np.asarray(self.leverages)
        limit = 4.0 / len(distance)
        points = _bars(ax, distance, leverages)
        ax.axhline(limit, color=VERMILLION, lw=1.1, ls=DASHED, label=f"4/n = {limit:.2g}")
        top = largest(distance, NUMBERED)
        _number_tops(ax, distance, top[distance[top] > limit])
        if np.isfinite(leverages).any():
            colour_bar(ax, points, "leverage")
        ax.set_ylim(bottom=0.0)
        ax.margins(x=0.02)
        ax.set(xlabel="row", ylabel="Cook's distance")
        legend_above(ax, ncols=2)


def _bars(ax: Axes, heights: Array, leverages: Array) -> Any:
    """A point on a bar for each row, the largest on top; returns what a colour bar needs."""
    order = largest(heights, MOST_POINTS)[::-1]  # of more rows the others are too low to be seen
    many = len(order) > MANY_POINTS
    colours = leverage_colours(leverages)
    shades = colours["cmap"](colours["norm"](np.ma.masked_invalid(leverages[order])))
    ax.vlines(order, 0.0, heights[order], colors=shades, lw=0.6 if many else 1.1, rasterized=many)
    return ax.scatter(
        order,
        heights[order],
        c=leverages[order],
        **colours,
        plotnonfinite=True,
        s=9 if many else 24,
        linewidths=0,
        rasterized=many,
        zorder=3,
    )


def _number_tops(ax: Axes, heights: Array, rows: Index) -> None:
    """Write row numbers above points; beside a higher one close by, on the side away from it."""
    for k, row in enumerate(rows):
        close = [other for other in rows[:k] if abs(other - row) < 0.04 * len(heights)]
        side = "center" if not close else ("left" if row > close[-1] else "right")
        number(ax, row, row, heights[row], (0, 5), ha=side)

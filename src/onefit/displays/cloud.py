"""Many points: each drawn as long as they are few, counted in cells where they are more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.displays.style import BLUE, Axes, colour_bar

MOST_POINTS = 3000  # that are drawn one by one
CELLS = 45  # across a plot, where points are counted
SINGLED_OUT = 150  # points that are drawn on top of the counts

Hover = list[tuple[Any, Sequence[str]]]  # artists, and a text for each of their points


def density(ax: Axes, x: Array, y: Array) -> Hover:
    """Number of points in each cell, on a logarithmic ramp; returns what to say about the cells."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    ramp = LinearSegmentedColormap.from_list("count", ["#d7e3ec", "#8fb4cf", "#3f6f95"])
    cells = ax.hexbin(x, y, gridsize=CELLS, mincnt=1, cmap=ramp, norm=LogNorm(vmin=1), linewidths=0.1)
    counts = np.asarray(cells.get_array(), dtype=np.int64)
    colour_bar(ax, cells, "rows in a cell")
    return [(cells, [f"{count} row{'s' if count > 1 else ''}" for count in counts])]


def cloud(ax: Axes, x: Array, y: Array, say: Callable[[int], str], most: Array) -> Hover:
    """Points, or their density and the few that stand out.

    Parameters
    ----------
    x, y : (n,) array
    say : callable
        From the number of a point to what is known of it.
    most : (n,) array
        The largest of it are singled out where there are too many points.
    """
    are_few = len(x) <= MOST_POINTS
    counted = [] if are_few else density(ax, x, y)
    which = np.arange(len(x)) if are_few else largest(most, SINGLED_OUT)
    size = 16 if len(which) < MOST_POINTS // 4 else 8
    points = ax.scatter(x[which], y[which], s=size, color=BLUE, alpha=0.65, linewidths=0)
    return [*counted, (points, [say(int(i)) for i in which])]


def largest(values: Array, count: int) -> Index:
    """Numbers of the largest finite values, in falling order."""
    ranked = np.where(np.isfinite(values), values, -np.inf)
    top = np.argpartition(-ranked, min(count, len(ranked)) - 1)[:count]
    return top[np.argsort(-ranked[top], kind="stable")]


def row_name(rows: Any, i: int) -> Any:
    """Name of a row; its number where rows have none."""
    if rows is None:
        return i
    return rows.iloc[i] if hasattr(rows, "iloc") else rows[i]

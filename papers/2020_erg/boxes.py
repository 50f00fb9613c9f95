"""Boxplots as in the paper: a green triangle is the mean, a yellow band one of the best by the test."""

from __future__ import annotations

import numpy as np
from contest import best
from matplotlib.axes import Axes

WINNER, OTHER, MEAN = "#fff0a0", "#c9d6e3", "#2ca02c"


def draw_boxes(ax: Axes, found: dict[str, np.ndarray], *, largest: bool, names: bool = True) -> None:
    """One lying box a procedure, the first on top."""
    labels = list(found)
    winners = best(found, largest=largest)
    drawn = ax.boxplot(
        list(found.values()), orientation="horizontal", widths=0.65, patch_artist=True, showmeans=True,
        tick_labels=labels if names else [""] * len(labels),
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": "#888888"},
        medianprops={"color": "black"},
        meanprops={"marker": "^", "markerfacecolor": MEAN, "markeredgecolor": MEAN, "markersize": 5},
    )  # fmt: skip
    for place, (name, box) in enumerate(zip(labels, drawn["boxes"], strict=True), start=1):
        box.set_facecolor(OTHER)
        box.set_linewidth(0.7)
        if name in winners:
            ax.axhspan(place - 0.42, place + 0.42, color=WINNER, lw=0, zorder=0)
    ax.invert_yaxis()
    if largest:
        ax.locator_params(axis="x", nbins=3)
    else:
        ax.set_xscale("log")

"""What all plots share: colours, axes, text that is shown as it stands.

Colours are those of Okabe and Ito, and one ramp of falling lightness: both survive colour blindness and a
black-and-white printer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # matplotlib is imported only when something is drawn

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8a8a8a"
PALETTE = (BLUE, VERMILLION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#8c6d31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHED = (0, (4, 3))
NUMBERED = 8  # rows that carry their number: more would hide the points
BELOW = 0.5  # inches that the numbers and the name of an axis take
MANY_POINTS = 2000  # from here on points are small


def plain_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure, without frame and with a light grid."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.grid(visible=True, color="#d9d9d9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    _no_factor_above(ax)
    return ax


def _no_factor_above(ax: Axes) -> None:
    """Have large numbers written out: a common factor of theirs stands above the axis, where legends are."""
    from matplotlib.ticker import FuncFormatter, ScalarFormatter

    if type(ax.yaxis.get_major_formatter()) is ScalarFormatter:
        ax.yaxis.set_major_formatter(FuncFormatter(_written_out))


def _written_out(value: float, _: int | None = None) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def legend_above(ax: Axes, **how: Any) -> None:
    """Say what is drawn, above the axes."""
    _legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), **how)


def legend_below(ax: Axes, **how: Any) -> None:
    """Say what is drawn, below the name of the axis."""
    from matplotlib.transforms import ScaledTranslation

    below = ax.transAxes + ScaledTranslation(0.0, -BELOW, ax.figure.dpi_scale_trans)
    _legend(ax, loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=below, **how)


def _legend(ax: Axes, **how: Any) -> None:
    """Outside the axes where the figure makes room for it and there is no title, else inside."""
    if ax.figure.get_layout_engine() is not None and not ax.get_title():
        ax.legend(frameon=False, **how)
    else:
        ax.legend(loc="best", fontsize="small", framealpha=0.8)


def number(ax: Axes, row: Any, x: float, y: float, offset: tuple[int, int], **how: Any) -> None:
    """Write the number or the name of a row beside its point."""
    ax.annotate(
        plain(row), (float(x), float(y)), xytext=offset, textcoords="offset points", fontsize="small", **how
    )


def plain(text: Any) -> str:
    """Text as it stands: a name from a table may hold the sign that starts a formula."""
    return str(text).replace("$", r"\$")


def shortened(text: Any, width: int = 28) -> str:
    """Text as it stands, of a width at most."""
    text = str(text)
    return plain(text if len(text) <= width else text[: width - 1] + "…")


def leverage_colours(leverages: Array) -> dict[str, Any]:
    """Ramp of falling lightness from 0 to the highest leverage; grey where there is none."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    ramp = LinearSegmentedColormap.from_list("leverage", ["#a9cfe5", "#2f7fb8", "#0b2545"])
    highest = np.max(leverages, initial=1e-12, where=np.isfinite(leverages))
    return {"cmap": ramp.with_extremes(bad=GREY), "norm": Normalize(0.0, float(highest))}


def colour_bar(ax: Axes, points: Any, label: str) -> None:
    """Explain the colours of points."""
    bar = ax.figure.colorbar(points, ax=ax, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)

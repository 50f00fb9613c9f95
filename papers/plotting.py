"""How risks over strengths are drawn, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl

mpl.use("Agg")  # figures are files here, never windows

import matplotlib.pyplot as plt
import numpy as np
import results
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

REFITS, PLAIN, OURS = "black", "#d95f02", "#1b6ca8"
DOTS_AN_INCH = 100
MOST_COLUMNS = 4  # of a legend
SHORT = 300.0  # ratio of strengths below which powers of ten are too few labels
ROOM = 1.3  # how far the axis goes after a curve that bends away, in ranges of the refits

plt.rcParams.update({"font.size": 9, "axes.titlesize": 9})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})


def panels(rows: int, columns: int, *, width: float = 3.1, height: float = 2.7) -> tuple[Figure, np.ndarray]:
    """Return an empty figure and its axes: (rows, columns)."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows + 0.4), squeeze=False, layout="constrained"
    )
    return figure, axes


def draw_risks(
    ax: Axes,
    strengths: ArrayLike,
    refits: ArrayLike,
    plain: ArrayLike,
    ours: ArrayLike,
) -> None:
    """Three risks over the strength: refits as rings, the plain formula dashed, ours as a line.

    The axis follows the refits; a plain curve that bends far away leaves it through the top.
    """
    ax.plot(strengths, refits, "o", color=REFITS, mfc="none", ms=6, label="refits", zorder=3)
    ax.plot(strengths, plain, "x--", color=PLAIN, lw=1.2, ms=5, label="plain ALO", zorder=2)
    ax.plot(strengths, ours, "-", color=OURS, lw=1.6, label="ours, exact", zorder=1)
    logarithmic(ax)
    low, high = float(np.min(refits)), float(np.max(refits))
    middle = np.asarray(plain)[np.isfinite(plain)]
    margin = 0.08 * (high - low)
    ceiling = min(max(high, float(middle.max(initial=high))), high + ROOM * (high - low))
    floor = max(min(low, float(middle.min(initial=low))), low - ROOM * (high - low))
    ax.set_ylim(floor - margin, ceiling + margin)


def logarithmic(ax: Axes) -> None:
    """Powers of ten on the axis of strengths, and three times them where the range is short."""
    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    low, high = ax.dataLim.intervalx
    if high < SHORT * low:
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def label(axes: np.ndarray, *, strength: str, risk: str) -> None:
    """Name the axes of a grid: the strength below the last row, the risk left of the first column."""
    for ax in axes[-1]:
        ax.set_xlabel(strength)
    for ax in axes[:, 0]:
        ax.set_ylabel(risk)


def legend_below(figure: Figure, ax: Axes | Sequence[Axes]) -> None:
    """One legend under all panels, so that it never covers a curve."""
    handles: dict[str, object] = {}
    for one in [ax] if isinstance(ax, Axes) else ax:
        for handle, name in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    columns = -(-len(handles) // -(-len(handles) // MOST_COLUMNS))  # as even as they can be
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False
    )


def save(figure: Figure, paper: str, name: str) -> None:
    """Write a PNG beside the results, without a date, so that the same curves make the same file."""
    path = results.OUT / f"{paper}.{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_AN_INCH, metadata={"Software": None})
    plt.close(figure)
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)", flush=True)

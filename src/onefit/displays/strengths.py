"""The axis of penalty strengths, and how it is read off estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit._typing import Array
from onefit.displays.style import DASHED, VERMILLION, Axes


def last_step(estimator: Any) -> Any:
    """Return the estimator itself, or the last step of a pipeline."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def strengths_of(model: Any, *wanted: str) -> tuple[str, Array, float]:
    """Name, path and chosen value of the penalty strength of a model that has what is ``wanted`` along it.

    Raises
    ------
    TypeError
        If there is no path.
    ValueError
        If there are several.
    """
    has_path = hasattr(model, "Cs_") or hasattr(model, "alphas_")
    if not has_path or not all(hasattr(model, name) for name in wanted):
        raise TypeError(
            f"this {type(model).__name__} has no path of strengths: draw that of a RidgeLOO, LassoLOO or "
            "another model that chooses its strength, once it is fitted"
        )
    if hasattr(model, "Cs_"):
        return "C", np.asarray(model.Cs_), float(np.ravel(model.C_)[0])
    if np.size(model.alpha_) > 1:
        raise ValueError("each target has a path of its own: draw that of a model of one target")
    return "alpha", np.asarray(model.alphas_), float(np.ravel(model.alpha_)[0])


def strength_axis(ax: Axes, strengths: Array, name: str) -> None:
    """Logarithmic, linear below the smallest positive strength if there is a zero."""
    positive = strengths[strengths > 0]
    if positive.size == len(strengths):
        ax.set_xscale("log")
        _few_labels(ax, strengths)
    elif positive.size:
        ax.set_xscale("symlog", linthresh=float(positive.min()))
    ax.margins(x=0.02)
    if len(strengths) == 1 and positive.size:
        ax.set_xlim(0.1 * strengths[0], 10.0 * strengths[0])
    direction = "weaker" if name == "C" else "stronger"
    ax.set_xlabel(f"{name}   ({direction} penalty →)")


def _few_labels(ax: Axes, strengths: Array) -> None:
    """Label decades; on a short path 1, 2 and 5 times them, written plainly."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.xaxis.set_minor_formatter(NullFormatter())
    if strengths.max() < 1000.0 * strengths.min():
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda strength, _: f"{strength:g}"))


def chosen_line(ax: Axes, chosen: float) -> None:
    """Mark the chosen strength."""
    ax.axvline(chosen, color=VERMILLION, lw=1.1, ls=DASHED)

"""Plots.  A Display takes computed arrays, draws in ``plot`` and keeps its artists.

Colours are those of Okabe and Ito, and one ramp of falling lightness: both survive colour blindness and a
black-and-white printer.  matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array, Index, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8a8a8a"
PALETTE = (BLUE, VERMILLION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#8c6d31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
NUMBERED = 8  # rings that carry their row number: more would hide the points
MANY_POINTS = 2000  # from here on points are drawn as pixels, which keeps SVG and PDF small


class LeftOutDisplay:
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

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import LeftOutDisplay
    >>> display = LeftOutDisplay(np.arange(5.0), np.arange(5.0) + 0.1, np.full(5, 0.2), np.array([4]))
    """

    ax_: Axes
    figure_: Figure

    def __init__(
        self,
        fitted: Array,
        left_out: Array,
        leverages: Array,
        flagged: Index,
        *,
        quantity: str = "linear predictor",
        output_names: Sequence[Any] | None = None,
    ) -> None:
        self.fitted = fitted
        self.left_out = left_out
        self.leverages = leverages
        self.flagged = flagged
        self.quantity = quantity
        self.output_names = output_names

    def plot(self, ax: Axes | None = None) -> LeftOutDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if missing.

        Returns
        -------
        LeftOutDisplay
            Itself, with ``ax_`` and ``figure_``.
        """
        self.ax_ = ax = _axes(ax, (6.4, 5.4))
        self.figure_ = ax.figure  # type: ignore[assignment]
        fitted = np.reshape(self.fitted, (len(self.leverages), -1))
        change = np.reshape(self.left_out, fitted.shape) - fitted
        points = _scatter(ax, fitted, change, self.leverages, self._names(fitted.shape[1]))
        ax.axhline(0.0, color=GREY, lw=1.0, zorder=0)
        _rings(ax, fitted, change, self._numbered_first())
        _leverage_bar(ax, points)
        ax.set_xlabel(f"fitted {_plain(self.quantity)}")
        ax.set_ylabel("left out − fitted")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, markerscale=1.4)
        return self

    def _names(self, c: int) -> list[str]:
        if self.output_names is not None:
            return [_plain(name) for name in self.output_names]
        return ["one row"] if c == 1 else [f"output {k}" for k in range(c)]

    def _numbered_first(self) -> Index:
        rows = np.asarray(self.flagged, dtype=np.intp)
        return rows[np.argsort(-self.leverages[rows], kind="stable")]


class InfluenceDisplay:
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

    ax_: Axes
    figure_: Figure

    def __init__(self, cooks_distance: Array, leverages: Array) -> None:
        self.cooks_distance = cooks_distance
        self.leverages = leverages

    def plot(self, ax: Axes | None = None) -> InfluenceDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if missing.

        Returns
        -------
        InfluenceDisplay
            Itself, with ``ax_`` and ``figure_``.
        """
        self.ax_ = ax = _axes(ax, (7.6, 4.2))
        self.figure_ = ax.figure  # type: ignore[assignment]
        distance, leverages = np.asarray(self.cooks_distance), np.asarray(self.leverages)
        limit = 4.0 / len(distance)
        points = _bars(ax, distance, leverages)
        ax.axhline(limit, color=VERMILLION, lw=1.1, ls=(0, (4, 3)), label=f"4/n = {limit:.2g}")
        _number_tops(ax, distance, self._numbered(limit))
        if np.isfinite(leverages).any():
            _leverage_bar(ax, points)
        ax.set_ylim(bottom=0.0)
        ax.margins(x=0.02)
        ax.set_xlabel("row")
        ax.set_ylabel("Cook's distance")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        return self

    def _numbered(self, limit: float) -> Index:
        """The highest rows above the line, highest first."""
        distance = np.where(np.isfinite(self.cooks_distance), self.cooks_distance, 0.0)
        top = np.argsort(-distance, kind="stable")[:NUMBERED]
        return top[distance[top] > limit]


class RiskPathDisplay:
    """Left-out risk along a path of penalty strengths, with its standard error.

    A bar on the axis marks the strengths that cannot be told from the best: where it is long, the risk says
    little about the choice.

    Parameters
    ----------
    strengths : (J,) array
        In any order.
    risk, std_error : (J,) array
    chosen : float
        The strength that was chosen.
    strength_name : str, default "alpha"
        "C" is read as an inverse strength.
    loss_name : str, default "risk"
    confidence_set : array, optional
        Those of the strengths that cannot be told from the best.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import RiskPathDisplay
    >>> display = RiskPathDisplay(np.logspace(-2, 2, 3), np.ones(3), np.full(3, 0.1), chosen=1.0)
    """

    ax_: Axes
    figure_: Figure

    def __init__(
        self,
        strengths: Array,
        risk: Array,
        std_error: Array,
        chosen: float,
        strength_name: str = "alpha",
        loss_name: str = "risk",
        confidence_set: Array | None = None,
    ) -> None:
        self.strengths = strengths
        self.risk = risk
        self.std_error = std_error
        self.chosen = chosen
        self.strength_name = strength_name
        self.loss_name = loss_name
        self.confidence_set = confidence_set

    @classmethod
    def from_estimator(cls, estimator: Any) -> RiskPathDisplay:
        """Read the path of a fitted ``RidgeLOO``, ``LassoLOO``, … or of a pipeline that ends in one.

        Parameters
        ----------
        estimator : fitted estimator
            With ``risk_path_``, ``std_error_path_``, ``loo_`` and ``alphas_`` or ``Cs_``;
            ``confidence_set_`` is drawn if there is one.

        Returns
        -------
        RiskPathDisplay
            Not drawn yet: call ``plot``.
        """
        model = _last_step(estimator)
        name, strengths, chosen = _strengths(model)
        return cls(
            strengths,
            np.asarray(model.risk_path_),
            np.asarray(model.std_error_path_),
            chosen,
            strength_name=name,
            loss_name=f"left-out {model.loo_.loss_name}",
            confidence_set=getattr(model, "confidence_set_", None),
        )

    def plot(self, ax: Axes | None = None) -> RiskPathDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if missing.

        Returns
        -------
        RiskPathDisplay
            Itself, with ``ax_`` and ``figure_``.
        """
        self.ax_ = ax = _axes(ax, (6.4, 4.2))
        self.figure_ = ax.figure  # type: ignore[assignment]
        order = np.argsort(self.strengths)
        strengths, risk = np.asarray(self.strengths)[order], np.asarray(self.risk)[order]
        error = np.asarray(self.std_error)[order]
        ax.fill_between(
            strengths, risk - error, risk + error, color=BLUE, alpha=0.16, lw=0, label="± 1 std. error"
        )
        ax.plot(strengths, risk, color=BLUE, lw=1.8)
        _mark_choice(ax, strengths, risk, float(self.chosen), self.strength_name)
        if self.confidence_set is not None:
            _bar_on_axis(ax, strengths, np.isin(strengths, self.confidence_set))
        _strength_axis(ax, strengths, self.strength_name)
        _zoom_on_minimum(ax, risk, error)
        ax.set_ylabel(_plain(self.loss_name))
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        return self


class CoefficientPathDisplay:
    """Coefficients along a path of penalty strengths.

    The largest at the chosen strength are coloured and named, the others grey.

    Parameters
    ----------
    strengths : (J,) array
    coef_path : (J, p) or (J, p, c) array
    chosen : float
    feature_names : sequence of str, optional
        p names.
    strength_name : str, default "alpha"
    output_names : sequence of str, optional
        c names.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import CoefficientPathDisplay
    >>> display = CoefficientPathDisplay(np.logspace(-2, 2, 3), np.eye(3), chosen=1.0)
    """

    ax_: Axes
    figure_: Figure

    def __init__(
        self,
        strengths: Array,
        coef_path: Array,
        chosen: float,
        feature_names: Sequence[Any] | None = None,
        strength_name: str = "alpha",
        output_names: Sequence[Any] | None = None,
    ) -> None:
        self.strengths = strengths
        self.coef_path = coef_path
        self.chosen = chosen
        self.feature_names = feature_names
        self.strength_name = strength_name
        self.output_names = output_names

    @classmethod
    def from_estimator(
        cls, estimator: Any, feature_names: Sequence[Any] | None = None
    ) -> CoefficientPathDisplay:
        """Read the path of a fitted ``RidgeLOO``, ``LassoLOO``, … or of a pipeline that ends in one.

        Parameters
        ----------
        estimator : fitted estimator
            With ``coef_path_`` and ``alphas_`` or ``Cs_``.
        feature_names : sequence of str, optional
            p names; ``feature_names_in_`` of the estimator if missing.

        Returns
        -------
        CoefficientPathDisplay
            Not drawn yet: call ``plot``.
        """
        model = _last_step(estimator)
        name, strengths, chosen = _strengths(model)
        path = np.asarray(model.coef_path_)
        return cls(
            strengths,
            path,
            chosen,
            getattr(model, "feature_names_in_", None) if feature_names is None else feature_names,
            strength_name=name,
            output_names=getattr(model, "classes_", None) if path.ndim == 3 else None,
        )

    def plot(self, ax: Axes | None = None) -> CoefficientPathDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if missing.

        Returns
        -------
        CoefficientPathDisplay
            Itself, with ``ax_`` and ``figure_``.
        """
        self.ax_ = ax = _axes(ax, (7.6, 4.2))
        self.figure_ = ax.figure  # type: ignore[assignment]
        order = np.argsort(self.strengths)
        strengths = np.asarray(self.strengths)[order]
        path = np.asarray(self.coef_path)[order].reshape(len(order), -1)
        names = self._names()
        named = _largest(path, strengths, float(self.chosen))
        quiet = np.setdiff1d(np.arange(path.shape[1]), named)
        ax.axhline(0.0, color=GREY, lw=0.8)
        ax.plot(strengths, path[:, quiet], color=GREY, lw=0.8, alpha=0.45)
        for colour, j in zip(PALETTE, named, strict=False):
            ax.plot(strengths, path[:, j], color=colour, lw=1.7, label=names[j])
        _chosen_line(ax, float(self.chosen))
        _strength_axis(ax, strengths, self.strength_name)
        ax.set_ylabel("coefficient")
        if named.size:
            ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        return self

    def _names(self) -> list[str]:
        shape = np.shape(self.coef_path)
        features = self.feature_names if self.feature_names is not None else range(shape[1])
        plain = [_shortened(name) if isinstance(name, str) else f"column {name}" for name in features]
        if len(shape) == 2:
            return plain
        outputs = self.output_names if self.output_names is not None else range(shape[2])
        return [f"{name}, {_shortened(output)}" for name in plain for output in outputs]


# --- what is read from estimators ------------------------------------------------------------------


def _last_step(estimator: Any) -> Any:
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _strengths(model: Any) -> tuple[str, Array, float]:
    """Name, path and chosen value of the penalty strength."""
    if hasattr(model, "Cs_"):
        return "C", np.asarray(model.Cs_), float(np.ravel(model.C_)[0])
    return "alpha", np.asarray(model.alphas_), float(np.ravel(model.alpha_)[0])


# --- what all plots share --------------------------------------------------------------------------


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure, without frame and with a light grid."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax.grid(visible=True, color="#d9d9d9", lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    return ax


def _plain(text: Any) -> str:
    """Text as it stands: a name from a table may hold the sign that starts a formula."""
    return str(text).replace("$", r"\$")


def _shortened(text: Any, width: int = 28) -> str:
    text = str(text)
    return _plain(text if len(text) <= width else text[: width - 1] + "…")


def _strength_axis(ax: Axes, strengths: Array, name: str) -> None:
    """Logarithmic, linear below the smallest positive strength if there is a zero."""
    positive = strengths[strengths > 0]
    if positive.size == len(strengths):
        ax.set_xscale("log")
        _few_labels(ax, strengths)
    elif positive.size:
        ax.set_xscale("symlog", linthresh=float(positive.min()))
    ax.margins(x=0.02)
    direction = "weaker" if name == "C" else "stronger"
    ax.set_xlabel(f"{name}   ({direction} penalty →)")


def _few_labels(ax: Axes, strengths: Array) -> None:
    """Label decades; on a short path 1, 2 and 5 times them, written plainly."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.xaxis.set_minor_formatter(NullFormatter())
    if strengths.max() < 1000.0 * strengths.min():
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda strength, _: f"{strength:g}"))


# --- leverages as colours --------------------------------------------------------------------------


def _leverage_colours(leverages: Array) -> dict[str, Any]:
    """Ramp of falling lightness from 0 to the highest leverage; grey where there is none."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    ramp = LinearSegmentedColormap.from_list("leverage", ["#a9cfe5", "#2f7fb8", "#0b2545"])
    highest = np.max(leverages, initial=1e-12, where=np.isfinite(leverages))
    return {"cmap": ramp.with_extremes(bad=GREY), "norm": Normalize(0.0, float(highest))}


def _leverage_bar(ax: Axes, points: Any) -> None:
    bar = ax.figure.colorbar(points, ax=ax, pad=0.02)
    bar.set_label("leverage")
    bar.outline.set_visible(False)


# --- influence -------------------------------------------------------------------------------------


def _bars(ax: Axes, heights: Array, leverages: Array) -> Any:
    """A point on a bar for each row, the largest on top; returns what a colour bar needs."""
    order = np.argsort(heights, kind="stable")
    many = len(order) > MANY_POINTS
    colours = _leverage_colours(leverages)
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
        ax.annotate(
            str(row),
            (float(row), float(heights[row])),
            xytext=(0, 5),
            textcoords="offset points",
            ha=side,
            fontsize="small",
        )


# --- left-out against fitted -----------------------------------------------------------------------


def _scatter(ax: Axes, fitted: Array, change: Array, leverages: Array, names: list[str]) -> Any:
    """One mark for each output, the highest leverages on top; returns what a colour bar needs."""
    order = np.argsort(leverages, kind="stable")
    for k, name in enumerate(names):
        points = ax.scatter(
            fitted[order, k],
            change[order, k],
            c=leverages[order],
            **_leverage_colours(leverages),
            s=24 if len(order) < MANY_POINTS else 9,
            marker=MARKERS[k % len(MARKERS)],
            linewidths=0,
            rasterized=len(order) * len(names) > MANY_POINTS,
            label=name if len(names) > 1 else None,
        )
    return points


def _rings(ax: Axes, fitted: Array, change: Array, rows: Index) -> None:
    """Ring rows where they moved most, and number the first few."""
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
    for row, k in zip(rows[:NUMBERED], furthest, strict=False):
        ax.annotate(
            str(row),
            (float(fitted[row, k]), float(change[row, k])),
            xytext=(7, 4),
            textcoords="offset points",
            fontsize="small",
            color=VERMILLION,
        )


# --- paths -----------------------------------------------------------------------------------------


def _chosen_line(ax: Axes, chosen: float) -> None:
    ax.axvline(chosen, color=VERMILLION, lw=1.1, ls=(0, (4, 3)))


def _mark_choice(ax: Axes, strengths: Array, risk: Array, chosen: float, name: str) -> None:
    """Mark the chosen strength, and the minimum where it is another one."""
    at, lowest = int(np.argmin(np.abs(strengths - chosen))), int(np.nanargmin(risk))
    _chosen_line(ax, chosen)
    label = f"chosen, {name} = {chosen:.3g}"
    ax.plot(chosen, risk[at], "o", color=VERMILLION, ms=7, label=label)
    if lowest != at:
        ax.plot(strengths[lowest], risk[lowest], "D", mfc="white", mec=BLUE, ms=6, label="minimum")


def _bar_on_axis(ax: Axes, strengths: Array, members: Mask) -> None:
    """Mark some of the strengths along the lower edge, neighbours joined."""
    ax.plot(
        strengths,
        np.where(members, 0.02, np.nan),
        transform=ax.get_xaxis_transform(),
        color=GREEN,
        lw=4.5,
        marker="o",
        ms=4.5,
        mew=0,
        solid_capstyle="butt",
        label="cannot be told from the best (95 %)",
    )


def _zoom_on_minimum(ax: Axes, risk: Array, error: Array) -> None:
    """Let a risk that explodes at one end leave the axes, so that the minimum can be seen."""
    lowest = int(np.nanargmin(risk))
    ordinary = max(np.nanquantile(risk + error, 0.8), risk[lowest] + 4.0 * error[lowest])
    if np.nanmax(risk) > risk[lowest] + 4.0 * (ordinary - risk[lowest]):
        margin = 0.08 * (ordinary - risk[lowest])
        ax.set_ylim(np.nanmin(risk - error) - margin, ordinary + margin)


def _largest(path: Array, strengths: Array, chosen: float) -> Index:
    """Columns of the largest coefficients at the chosen strength, in falling order of value."""
    row = path[int(np.argmin(np.abs(strengths - chosen)))]
    top = np.argsort(-np.abs(row), kind="stable")[: len(PALETTE)]
    top = top[row[top] != 0]
    return top[np.argsort(-row[top], kind="stable")]

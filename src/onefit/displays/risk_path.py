"""Left-out risk along a path of penalty strengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._scoring import risk_name
from onefit._typing import Array, Mask
from onefit.displays.base import Display
from onefit.displays.strengths import chosen_line, last_step, strength_axis, strengths_of
from onefit.displays.style import BLUE, GREEN, VERMILLION, Axes, legend_above, plain
from onefit.wording import to_digits


@dataclass(eq=False, repr=False)
class RiskPathDisplay(Display):
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
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import RiskPathDisplay
    >>> display = RiskPathDisplay(np.logspace(-2, 2, 3), np.ones(3), np.full(3, 0.1), chosen=1.0)
    """

    size = (6.4, 4.2)

    strengths: Array
    risk: Array
    std_error: Array
    chosen: float
    strength_name: str = "alpha"
    loss_name: str = "risk"
    confidence_set: Array | None = None

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
        model = last_step(estimator)
        name, strengths, chosen = strengths_of(model, "risk_path_")
        scoring = getattr(model, "scoring", None)
        loss = model.loo_.loss_name if scoring is None else risk_name(scoring)
        return cls(
            strengths,
            np.asarray(model.risk_path_),
            np.asarray(model.std_error_path_),
            chosen,
            strength_name=name,
            loss_name=f"left-out {loss}",
            confidence_set=getattr(model, "confidence_set_", None),
        )

    def _draw(self, ax: Axes) -> None:
        order = np.argsort(self.strengths)
        strengths, risk, error = (
            np.asarray(one, dtype=np.float64)[order] for one in (self.strengths, self.risk, self.std_error)
        )
        risk = np.where(np.isfinite(risk), risk, np.nan)
        if np.isnan(risk).all():
            raise ValueError("risk has no finite value: there is nothing to draw")
        if len(strengths) > 1:
            band = strengths, risk - error, risk + error
            ax.fill_between(*band, color=BLUE, alpha=0.16, lw=0, label="± 1 std. error")
            ax.plot(strengths, risk, color=BLUE, lw=1.8)
        else:
            ax.errorbar(strengths, risk, yerr=error, color=BLUE, lw=1.8, capsize=4, label="± 1 std. error")
        ax.plot(strengths, np.zeros(len(strengths)), transform=ax.get_xaxis_transform(), alpha=0.0)
        dots = ax.scatter(strengths, risk, s=10, color=BLUE, linewidths=0, alpha=0.5)
        said = [
            f"{self.strength_name} = {to_digits(strength, 4)}: {to_digits(value, 5)} ± {to_digits(se, 2)}"
            for strength, value, se in zip(strengths, risk, error, strict=True)
        ]
        self.hover_ = [(dots, said)]
        _mark_choice(ax, strengths, risk, float(self.chosen), self.strength_name)
        if self.confidence_set is not None:
            _bar_on_axis(ax, strengths, np.isin(strengths, self.confidence_set))
        strength_axis(ax, strengths, self.strength_name)
        _zoom_on_minimum(ax, risk, np.where(np.isfinite(error), error, 0.0))
        ax.set_ylabel(plain(self.loss_name))
        legend_above(ax, ncols=2)


def _mark_choice(ax: Axes, strengths: Array, risk: Array, chosen: float, name: str) -> None:
    """Mark the chosen strength, and the minimum where it is another one."""
    at, lowest = int(np.argmin(np.abs(strengths - chosen))), int(np.nanargmin(risk))
    chosen_line(ax, chosen)
    ax.plot(chosen, risk[at], "o", color=VERMILLION, ms=7, label=f"chosen, {name} = {to_digits(chosen, 3)}")
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

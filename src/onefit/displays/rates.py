"""Curves of a two-class prediction: ROC, precision and recall, calibration."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array
from onefit.displays.base import Display
from onefit.displays.style import BLUE, GREY, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class RateDisplay(Display):
    """One rate against another, such as precision against recall, with a line of reference.

    Parameters
    ----------
    x, y : (k,) array
        Rates in [0, 1].
    x_name, y_name : str
    error : (k,) array, optional
        Standard errors of ``y``, drawn as bars.
    reference : tuple of (x, y) pairs, optional
        Ends of a grey line: what a prediction without features would give, or a perfect one.
    label : str, default ""
        What the reference means.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.displays import RateDisplay
    >>> x = np.linspace(0, 1, 5)
    >>> display = RateDisplay(x, np.sqrt(x), "false positive rate", "true positive rate")
    """

    size = (5.4, 4.4)

    x: Array
    y: Array
    x_name: str
    y_name: str
    _: KW_ONLY
    error: Array | None = None
    reference: Any = None
    label: str = ""

    def _draw(self, ax: Axes) -> None:
        if self.reference is not None:
            ax.plot(*np.transpose(self.reference), color=GREY, lw=1.0, ls=(0, (4, 3)), label=self.label)
        if self.error is not None:
            ax.errorbar(self.x, self.y, yerr=self.error, color=BLUE, lw=0, elinewidth=1.2)
        ax.plot(self.x, self.y, color=BLUE, lw=1.8)
        dots = ax.scatter(
            self.x,
            self.y,
            s=14 if self.error is None else 30,
            color=BLUE,
            linewidths=0,
            alpha=0.25 if self.error is None else 1.0,
        )
        self.hover_ = [(dots, [self._say(i) for i in range(len(self.x))])]
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(-0.02, 1.02)
        ax.set_xlabel(plain(self.x_name))
        ax.set_ylabel(plain(self.y_name))
        if self.label:
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)

    def _say(self, i: int) -> str:
        error = "" if self.error is None else f" ± {self.error[i]:.3f}"
        return f"{self.x_name} {self.x[i]:.3f}, {self.y_name} {self.y[i]:.3f}{error}"

"""What every display has: axes to draw on, its own or somebody's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self, final

from onefit.displays.cloud import Hover
from onefit.displays.style import Axes, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Display(ABC):
    """A picture of a result, drawn when asked for.

    Attributes
    ----------
    size : (width, height)
        Of a figure of its own, in inches.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    hover_ : list of (artist, texts)
        What can be said about each point, where there are points.
    """

    size: ClassVar[tuple[float, float]]
    ax_: Axes
    figure_: Figure
    hover_: Hover

    @final
    def plot(self, ax: Axes | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if missing.

        Returns
        -------
        Display
            Itself, with ``ax_`` and ``figure_``.
        """
        self.ax_ = plain_axes(ax, self.size)
        self.figure_ = self.ax_.figure  # type: ignore[assignment]
        self._draw(self.ax_)
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw on these axes."""

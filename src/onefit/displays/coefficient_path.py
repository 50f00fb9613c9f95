"""Coefficients along a path of penalty strengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.displays.base import Display
from onefit.displays.strengths import chosen_line, last_step, strength_axis, strengths_of
from onefit.displays.style import GREY, PALETTE, Axes, legend_below, shortened


@dataclass(eq=False, repr=False)
class CoefficientPathDisplay(Display):
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

    size = (7.6, 4.2)

    strengths: Array
    coef_path: Array
    chosen: float
    feature_names: Sequence[Any] | None = None
    strength_name: str = "alpha"
    output_names: Sequence[Any] | None = None

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
        model = last_step(estimator)
        name, strengths, chosen = strengths_of(model, "coef_path_")
        path = np.asarray(model.coef_path_)
        return cls(
            strengths,
            path,
            chosen,
            getattr(model, "feature_names_in_", None) if feature_names is None else feature_names,
            strength_name=name,
            output_names=getattr(model, "classes_", None) if path.ndim == 3 else None,
        )

    def _draw(self, ax: Axes) -> None:
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
        chosen_line(ax, float(self.chosen))
        strength_axis(ax, strengths, self.strength_name)
        ax.set_ylabel("coefficient")
        if named.size:
            legend_below(ax, ncols=2)

    def _names(self) -> list[str]:
        shape = np.shape(self.coef_path)
        features = self.feature_names if self.feature_names is not None else range(shape[1])
        if len(features) != shape[1]:
            raise ValueError(f"feature_names must hold one name a column, {shape[1]}, got {len(features)}")
        plain = [shortened(name) if isinstance(name, str) else f"column {name}" for name in features]
        if len(shape) == 2:
            return plain
        outputs = self.output_names if self.output_names is not None else range(shape[2])
        return [f"{name}, {shortened(output)}" for name in plain for output in outputs]


def _largest(path: Array, strengths: Array, chosen: float) -> Index:
    """Columns of the largest coefficients at the chosen strength, in falling order of value."""
    row = path[int(np.argmin(np.abs(strengths - chosen)))]
    top = np.argsort(-np.abs(row), kind="stable")[: len(PALETTE)]
    top = top[row[top] != 0]
    return top[np.argsort(-row[top], kind="stable")]

"""Pictures of a feature map in training: the plane with its probabilities, and the learned features."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotting
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from rings import Sample
from scipy.special import expit
from torch import nn

Array = np.ndarray
COLOURS = ("#d95f02", "#1b6ca8")  # of the two classes
SHADES = LinearSegmentedColormap.from_list("classes", [COLOURS[0], "white", COLOURS[1]])
SHOWN = 1000  # of the new rows
KEY = (
    "above: training rows,\nboundary (line),\nBayes's (dotted)\n\n"
    "below: new rows as\nfeatures, ours\n\n%: of new rows right"
)
POINTS = 160  # a side of the grid on which probabilities are drawn


@dataclass(frozen=True)
class Snapshot:
    """A model after some steps, and its accuracy on new rows."""

    steps: int
    model: Any
    accuracy: float


def snapshots(make: Callable[[int], Any], sample: Sample, seed: int, steps: Sequence[int]) -> list[Snapshot]:
    """Models after given numbers of steps: the same training, stopped there."""
    found = []
    for count in steps:
        model = make(seed).set_params(max_iter=count + 1).fit(sample.X, sample.y)
        found.append(Snapshot(count, model, sample.accuracy(model.predict(sample.X_new))))
    return found


def weights(network: Callable[[int], nn.Module]) -> int:
    """Number of weights of a network on the plane."""
    return sum(one.numel() for one in copy.deepcopy(network(2)).parameters())


def draw_plane(ax: Axes, sample: Sample, model: Any, truth: Callable[[Array], Array]) -> None:
    """Log-odds, or the margin, as shades, the boundary as a line, Bayes's dotted, and the training rows."""
    reach = 1.1 * np.abs(sample.X).max()
    side = np.linspace(-reach, reach, POINTS)
    across, up = np.meshgrid(side, side)
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    shades = expit(model.decision_function(grid)).reshape(across.shape)
    ax.contourf(across, up, shades, levels=np.linspace(0.0, 1.0, 11), cmap=SHADES, alpha=0.5)
    ax.contour(across, up, shades, levels=[0.5], colors="black", linewidths=1.3)
    ax.contour(across, up, truth(grid).reshape(across.shape), levels=[0.5], colors="black", linestyles=":")
    for label, colour in enumerate(COLOURS):
        at = sample.y == label
        ax.plot(*sample.X[at].T, "o", color=colour, mec="white", mew=0.5, ms=5)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])


def draw_features(ax: Axes, sample: Sample, snapshot: Snapshot) -> None:
    """New rows in the space of the learned features, and the boundary of the head."""
    features = snapshot.model.transform(sample.X_new[:SHOWN])
    for label, colour in enumerate(COLOURS):
        ax.plot(*features[sample.y_new[:SHOWN] == label].T, ".", color=colour, ms=2.5, alpha=0.6)
    low, high = features.min(axis=0), features.max(axis=0)
    margin = 0.05 * (high - low)
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    (a, b), c = snapshot.model.coef_[0], snapshot.model.intercept_[0]
    side = np.linspace(*ax.get_xlim(), 2), np.linspace(*ax.get_ylim(), 2)
    line = (side[0], -(a * side[0] + c) / b) if abs(b) > abs(a) else (-(b * side[1] + c) / a, side[1])
    ax.plot(*line, color="black", lw=1.2)
    ax.set_title(f"{snapshot.steps} step{'s' * (snapshot.steps > 1)}: {100.0 * snapshot.accuracy:.1f} %")
    ax.set_xticks([])
    ax.set_yticks([])


def picture(
    sample: Sample,
    models: dict[str, Any],
    along: list[Snapshot],
    truth: Callable[[Array], Array],
) -> Figure:
    """Planes of some models above, the learned features of one of them below."""
    figure, axes = plotting.panels(2, len(along), width=2.4, height=2.5)
    for ax in axes[0]:
        ax.set_axis_off()
    for ax, (name, model) in zip(axes[0], models.items(), strict=False):
        ax.set_axis_on()
        draw_plane(ax, sample, model, truth)
        ax.set_title(f"{name}: {100.0 * sample.accuracy(model.predict(sample.X_new)):.1f} %")
    axes[0, -1].text(0.0, 0.5, KEY, va="center", transform=axes[0, -1].transAxes)
    for ax, snapshot in zip(axes[1], along, strict=True):
        draw_features(ax, sample, snapshot)
    return figure

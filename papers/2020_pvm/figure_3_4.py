"""Figures 3 and 4: test loss of the best point so far over inner solves, one and two strengths."""

from __future__ import annotations

import numpy as np
import plotting
import settings
from contest import NAMES, OURS, PRINTED, SCRATCH, course, end
from settings import Case

COLOURS = {
    "grid": "black",
    "random": "#7a3e9d",
    "Bayesian": "#4d9221",
    OURS: plotting.OURS,
    SCRATCH: "#d95f02",
    PRINTED: "#d6006d",
}
LABELS = {"Bayesian": "Bayesian (TPE)", SCRATCH: "from scratch"}


def draw(strengths: int, file: str) -> None:
    """One panel a number of rows; the mean over the seeds."""
    kinds = [kind for kind in settings.SIZES if kind[1] == strengths]
    figure, axes = plotting.panels(1, len(kinds), width=4.2 if len(kinds) > 1 else 7.8, height=2.8)
    for ax, kind in zip(axes[0], kinds, strict=True):
        seeds = range(settings.SIZES[kind].seeds)
        for name in NAMES:
            runs = [course(Case(*kind, seed), name) for seed in seeds]
            most = max(map(len, runs))
            mean = np.mean([np.pad(one, (0, most - len(one)), mode="edge") for one in runs], axis=0)
            steps, label = np.arange(1, most + 1), LABELS.get(name, name)
            if name == "grid":
                ax.axhline(mean[-1], color=COLOURS[name], lw=1, ls="--", label=f"grid, after {most}")
                continue
            ax.plot(steps, mean, color=COLOURS[name], lw=1.5, label=label)
            ax.plot(steps[-1], mean[-1], "o", color=COLOURS[name], ms=4)
            if name.startswith("PVM"):
                left = np.mean([end(Case(*kind, seed), name).test for seed in seeds])
                ax.plot(steps[-1], left, "*", color=COLOURS[name], ms=10, label=f"{label}, own weights")
        ax.set_xlabel("inner solves")
        ax.set_title(f"{kind[0]} rows, {len(seeds)} seeds")
        low = ax.get_lines()[0].get_ydata()[0]
        ax.set_ylim(0.88 * low, 1.25 * low)
    axes[0, 0].set_ylabel("test loss at the best ξ so far")
    plotting.legend_below(figure, list(axes[0]))
    plotting.save(figure, settings.FOLDER, file)


def main() -> None:
    """Both figures."""
    draw(1, "figure_3")
    draw(2, "figure_4")


if __name__ == "__main__":
    main()

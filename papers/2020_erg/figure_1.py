"""Figure 1: scores and seconds of all procedures on the synthetic data."""

from __future__ import annotations

import contest
import plotting
import results
import settings
from boxes import draw_boxes

DRAWS = results.pick("draws", full=100, quick=3)
WORST = -0.4  # score at which panels end


def name(scenario: str, noise: float) -> str:
    """How a setting is called."""
    return f"{scenario}, σ = {noise:g}"


def draw(runs: list[contest.Run], what: str, label: str, file: str) -> None:
    """One panel a scenario and noise."""
    figure, axes = plotting.panels(2, 3, width=3.3, height=2.5)
    for row, noise in zip(axes, settings.NOISES, strict=True):
        for ax, scenario in zip(row, settings.SCENARIOS, strict=True):
            found = contest.values(runs, name(scenario, noise), what)
            draw_boxes(ax, found, largest=what == "r2", names=ax is row[0])
            ax.set_title(f"scenario {name(scenario, noise)}")
            if what == "r2" and noise == max(settings.NOISES):
                ax.set_xlim(left=max(ax.get_xlim()[0], WORST))
                ax.axvline(0.0, color="black", lw=0.6, ls=":")
    for ax in axes[-1]:
        ax.set_xlabel(label)
    plotting.save(figure, settings.FOLDER, file)


def main() -> None:
    """Run, draw and report."""
    runs = []
    for noise in settings.NOISES:
        for scenario in settings.SCENARIOS:
            splits = (settings.synthetic(scenario, noise, seed) for seed in range(DRAWS))
            runs += contest.contest(name(scenario, noise), splits)
    contest.save("figure_1_rows", runs)
    contest.report("figure_1", runs, "Figure 1: synthetic data, n = 100, p = 80.", DRAWS)
    draw(runs, "seconds", "seconds", "figure_1_seconds")
    draw(runs, "r2", "R² (eq. 11)", "figure_1_r2")


if __name__ == "__main__":
    main()

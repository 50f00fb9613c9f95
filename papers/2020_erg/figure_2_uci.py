"""Figure 2, left: scores and seconds of all procedures on the UCI sets."""

from __future__ import annotations

import contest
import plotting
import settings
from boxes import draw_boxes

DRAWS = 20
COLUMNS = 5


def draw(runs: list[contest.Run], what: str, label: str, file: str) -> None:
    """One panel a set."""
    sets = contest.settings_of(runs)
    figure, axes = plotting.panels(-(-len(sets) // COLUMNS), COLUMNS, width=2.25, height=2.1)
    for one, ax in zip(sets, axes.flat, strict=True):
        found = contest.values(runs, one, what)
        draw_boxes(ax, found, largest=what == "r2", names=ax in axes[:, 0])
        ax.set_title(one.replace(" (", "\n("))
    for ax in axes[-1]:
        ax.set_xlabel(label)
    plotting.save(figure, settings.FIGURES / file)


def main() -> None:
    """Run, draw and report."""
    runs = []
    for one in settings.RESPONSES:
        X, y = settings.uci(one)
        splits = (settings.split(X, y, seed) for seed in range(DRAWS))
        runs += contest.contest(f"{one} ({len(y)} × {X.shape[1]})", splits)
    contest.save(settings.FIGURES / "figure_2_uci_rows.csv", runs)
    contest.report(settings.FIGURES / "figure_2_uci.csv", runs)
    draw(runs, "seconds", "seconds", "figure_2_uci_seconds.png")
    draw(runs, "r2", "R² (eq. 11)", "figure_2_uci_r2.png")


if __name__ == "__main__":
    main()

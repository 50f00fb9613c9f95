"""Figure 2, left: scores and seconds of all procedures on the UCI sets."""

from __future__ import annotations

import contest
import plotting
import results
import settings
from boxes import draw_boxes

DRAWS = results.pick("draws", full=100, quick=4)  # fewer and no test at 5 % can tell
SETS = results.pick(
    "sets",
    full=tuple(settings.RESPONSES),
    quick=("yacht", "auto_mpg", "forest_fires", "energy"),
)
COLUMNS = min(5, len(SETS))


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
    plotting.save(figure, settings.FOLDER, file)


def main() -> None:
    """Run, draw and report."""
    runs = []
    for one in SETS:
        X, y = settings.uci(one)
        splits = (settings.split(X, y, seed) for seed in range(DRAWS))
        runs += contest.contest(f"{one} ({len(y)} × {X.shape[1]})", splits)
    contest.save("figure_2_uci_rows", runs)
    contest.report("figure_2_uci", runs, "Figure 2, left: UCI sets, 80 % of the rows to fit.", DRAWS)
    draw(runs, "seconds", "seconds", "figure_2_uci_seconds")
    draw(runs, "r2", "R² (eq. 11)", "figure_2_uci_r2")


if __name__ == "__main__":
    main()

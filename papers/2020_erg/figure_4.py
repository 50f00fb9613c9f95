"""Figure 4: iterations of Adam, from the runs of figures 1 and 2."""

from __future__ import annotations

import contest
import numpy as np
import plotting
import results
import settings

SOURCES = {"synthetic": "figure_1_rows", "UCI": "figure_2_uci_rows", "text": "figure_2_text_rows"}


def main() -> None:
    """One panel a source; every setting counts alike."""
    figure, axes = plotting.panels(1, 3, width=3.0, height=2.6)
    rows = []
    for ax, (source, file) in zip(axes[0], SOURCES.items(), strict=True):
        runs = contest.load(file)
        found = {
            name: np.array([r.iterations for r in runs if r.procedure == name]) for name in contest.PERMUTED
        }
        ax.boxplot(
            list(found.values()), tick_labels=list(found), showmeans=True, widths=0.6,
            medianprops={"color": "black"}, flierprops={"marker": ".", "markersize": 3},
            meanprops={"marker": "^", "markerfacecolor": "#2ca02c", "markeredgecolor": "#2ca02c"},
        )  # fmt: skip
        ax.set_title(f"{source} ({len(runs) // len(contest.PROCEDURES)} fits each)")
        ax.set_ylim(bottom=0)
        for name, one in found.items():
            quantiles = np.quantile(one, (0.0, 0.25, 0.5, 0.75, 1.0))
            rows.append((source, name, *(f"{q:g}" for q in quantiles)))
    axes[0, 0].set_ylabel("iterations of Adam")
    plotting.save(figure, settings.FOLDER, "figure_4")
    head = ("data", "procedure", "least", "lower quartile", "median", "upper quartile", "most")
    most = {f"{row[0]}, {row[1]}: most": float(row[-1]) for row in rows}
    caption = "Figure 4: iterations of Adam, from the runs of figures 1 and 2."
    results.save(settings.FOLDER, "figure_4", head, rows, caption=caption, numbers=most)


if __name__ == "__main__":
    main()

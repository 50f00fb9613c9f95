"""Figure 3: what the number T of permutations does to score, iterations and seconds."""

from __future__ import annotations

import contest
import numpy as np
import plotting
import results
import settings
from figure_1 import name

import onefit

PERMUTATIONS = (0, 1, 10, 30, 100)
DRAWS = results.pick("draws", full=100, quick=4)
KINDS = {"BKK": ("ridge", "#1b6ca8"), "SBKK": ("sparse", "#d95f02"), "ABKK": ("aggregate", "#4d9221")}
WHAT = {"r2": "R² (eq. 11)", "iterations": "iterations of Adam", "seconds": "seconds"}


def runs_of(scenario: str, noise: float) -> dict[tuple[str, int], list[contest.Run]]:
    """All procedures and numbers of permutations, on the same draws."""
    found: dict[tuple[str, int], list[contest.Run]] = {}
    for seed in range(DRAWS):
        one = settings.synthetic(scenario, noise, seed)
        for kind, (structure, _) in KINDS.items():
            for T in PERMUTATIONS:
                model = onefit.PermutationRegressor(structure, T, random_state=seed)
                run = contest.measure(name(scenario, noise), kind, seed, one, model)
                found.setdefault((kind, T), []).append(run)
    return found


def draw(axes: np.ndarray, found: dict[tuple[str, int], list[contest.Run]]) -> None:
    """Medians, with bars from quartile to quartile: one panel for each of what is shown."""
    for ax, what in zip(axes, WHAT, strict=True):
        for shift, (kind, (_, colour)) in zip((-0.12, 0.0, 0.12), KINDS.items(), strict=True):
            shown = [[getattr(run, what) for run in found[kind, T]] for T in PERMUTATIONS]
            low, middle, high = np.quantile(shown, (0.25, 0.5, 0.75), axis=1)
            bars, places = (middle - low, high - middle), np.arange(len(middle)) + shift
            ax.errorbar(
                places, middle, bars, fmt="o-", color=colour, ms=3, lw=1.1, elinewidth=0.8, label=kind
            )
        ax.set_xticks(range(len(PERMUTATIONS)), PERMUTATIONS)


def means(found: dict[tuple[str, int], list[contest.Run]]) -> list[tuple[str, ...]]:
    """One line of the table for each procedure and number of permutations."""
    rows = []
    for (kind, T), runs in found.items():
        r2, iterations, seconds = (np.mean([getattr(run, what) for run in runs]) for what in WHAT)
        rows.append(
            (runs[0].setting, kind, str(T), f"{r2:.3f}", f"{iterations:.1f}", f"{1000 * seconds:.1f}")
        )
    return rows


def label(axes: np.ndarray) -> None:
    """One scale for all counts and one for all seconds; scores have their own."""
    for row, text in zip(axes, WHAT.values(), strict=True):
        row[0].set_ylabel(text)
    for row in axes[1:]:
        top = max(ax.get_ylim()[1] for ax in row)
        for ax in row:
            ax.set_ylim(0.0, top)
            ax.label_outer()
    for ax in axes[-1]:
        ax.set_xlabel("permutations T")


def main() -> None:
    """Columns are the six settings."""
    pairs = [(scenario, noise) for noise in settings.NOISES for scenario in settings.SCENARIOS]
    figure, axes = plotting.panels(len(WHAT), len(pairs), width=1.75, height=1.7)
    rows = []
    for column, (scenario, noise) in zip(axes.T, pairs, strict=True):
        found = runs_of(scenario, noise)
        draw(column, found)
        column[0].set_title(name(scenario, noise))
        rows += means(found)
    label(axes)
    plotting.legend_below(figure, axes[0, 0])
    plotting.save(figure, settings.FOLDER, "figure_3")
    head = ("setting", "procedure", "T", "R²", "iterations", "milliseconds")
    numbers: dict[str, float] = {}
    for kind in KINDS:
        for T in PERMUTATIONS:
            own = [row for row in rows if row[1:3] == (kind, str(T))]
            numbers |= {f"{kind}, T = {T}: R²": float(np.mean([float(row[3]) for row in own]))}
            numbers |= {f"{kind}, T = {T}: iterations": float(np.mean([float(row[4]) for row in own]))}
    caption = "Figure 3: the number T of permutations."
    results.save(
        settings.FOLDER, "figure_3", head, rows, caption=caption, seeds=f"0 to {DRAWS - 1}", numbers=numbers
    )


if __name__ == "__main__":
    main()

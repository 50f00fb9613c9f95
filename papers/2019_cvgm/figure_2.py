"""Figure 2: test accuracy on the rings over the number of rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import plotting
import results
import rings
import settings
import tables
from matplotlib.axes import Axes

Array = np.ndarray
SIZES = results.pick("sizes", full=(8, 12, 20, 30, 40, 60, 100, 200), quick=(8, 20, 60))
SEEDS = results.pick("seeds", full=25, quick=2)
OURS, PAPER, NETWORK, SHORT, DECAY, SVM = (
    "ours", "CVGM, as in the paper", "network, as in the paper", "network, Adam, 30 steps",
    "network, Adam, decay by 5 folds", "kernel SVM, grid search",
)  # fmt: skip
LINEAR, RADIUS, BAYES = "logistic regression", "logistic, on the true radius", "Bayes"
STYLES: dict[str, dict[str, Any]] = {
    BAYES: {"color": "black", "ls": "--"},
    RADIUS: {"color": "black", "ls": ":"},
    OURS: {"color": plotting.OURS, "marker": "o"},
    PAPER: {"color": plotting.PLAIN, "marker": "s"},
    NETWORK: {"color": "#b0b0b0", "marker": "v"},
    SHORT: {"color": "#c994c7", "marker": "<"},
    DECAY: {"color": "#7a3e9d", "marker": "^"},
    SVM: {"color": "#4d9221", "marker": "D"},
    LINEAR: {"color": "#b0b0b0", "ls": "--"},
}


def accuracies(n: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Test accuracy, and seconds of processor time, of each on the same rows."""
    sample = rings.rings(n, seed)

    def fitted(model: Any) -> float:
        return sample.accuracy(model.fit(sample.X, sample.y).predict(sample.X_new))

    def network(optimizer: str, steps: int) -> float:
        return sample.accuracy(
            rings.end_to_end(sample.X, sample.y, seed, optimizer, steps=steps)(sample.X_new)
        )

    runs = {
        BAYES: lambda: sample.accuracy(rings.rings_bayes(sample.X_new)),
        RADIUS: lambda: rings.on_the_radius(sample),
        OURS: lambda: fitted(rings.ours(seed)),
        PAPER: lambda: fitted(rings.paper_cvgm(seed, rate=0.01)),
        NETWORK: lambda: network("sgd", rings.END_TO_END_STEPS),
        SHORT: lambda: network("adam", rings.OUR_STEPS),
        DECAY: lambda: rings.end_to_end_decay(sample, seed),
        SVM: lambda: fitted(rings.kernel_svm(n)),
        LINEAR: lambda: rings.logistic(sample),
    }
    found, seconds = {}, {}
    for name, run in runs.items():
        start = time.process_time()
        found[name] = run()
        seconds[name] = time.process_time() - start
    return found, seconds


def draw(found: dict[str, Array]) -> None:
    """Means over the seeds left, how far ours is above the others right; standard errors as bands."""
    figure, axes = plotting.panels(1, 2, width=4.6, height=3.4)
    left, right = axes[0]
    for name, style in STYLES.items():
        draw_mean(left, found[name], style, name)
    for name in (PAPER, SHORT, DECAY, SVM):
        draw_mean(right, 100.0 * (found[OURS] - found[name]), STYLES[name], name)
    right.axhline(0.0, color=plotting.OURS, lw=1.5)
    left.set_ylabel("test accuracy")
    right.set_ylabel("ours less theirs, points")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xticks(SIZES, [str(n) for n in SIZES])
        ax.minorticks_off()
        ax.set_xlabel("rows")
    plotting.legend_below(figure, left)
    plotting.save(figure, settings.FOLDER, "figure_2")


def draw_mean(ax: Axes, values: Array, style: dict[str, Any], name: str) -> None:
    """Mean over the seeds (columns) and, for what was learned, its standard error."""
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    ax.plot(SIZES, mean, lw=1.5, ms=4, label=name, **style)
    if "marker" in style:
        ax.fill_between(SIZES, mean - error, mean + error, color=style["color"], alpha=0.15, lw=0)


def paired(found: dict[str, Array], name: str, column: int) -> str:
    """Mean difference from ours over the seeds, and its standard error, in points."""
    return tables.mean_and_error(list(100.0 * (found[OURS][column] - found[name][column])), 1)


def main() -> None:
    """Figure and tables over all seeds."""
    report(*measured())


def measured() -> tuple[dict[str, Array], dict[str, Array]]:
    """Accuracies and seconds of each: (sizes, seeds)."""
    runs = [[accuracies(n, seed) for seed in range(SEEDS)] for n in SIZES]
    found = {name: np.array([[one[name] for one, _ in row] for row in runs]) for name in STYLES}
    seconds = {name: np.array([[one[name] for _, one in row] for row in runs]) for name in STYLES}
    return found, seconds


def report(found: dict[str, Array], seconds: dict[str, Array]) -> None:
    """Picture and tables."""
    draw(found)
    at_60 = SIZES.index(60)
    rows = []
    for name, values in found.items():
        means = [f"{100.0 * one.mean():.1f}" for one in values]
        rows.append((name, *means, f"{seconds[name][at_60].mean():.2f}"))
    results.save(
        settings.FOLDER,
        "figure_2",
        (f"%, mean of {SEEDS} seeds", *map(str, SIZES), "seconds at 60"),
        rows,
        caption="Figure 2: test accuracy on the rings over the number of rows.",
        seeds=f"0 to {SEEDS - 1}",
        numbers={
            f"{name}: {n}": 100.0 * one.mean()
            for name, v in found.items()
            for n, one in zip(SIZES, v, strict=True)
        },
        timings={name: one[at_60].mean() for name, one in seconds.items()},
    )
    names = [name for name in STYLES if name != OURS]
    rows = [(name, *(paired(found, name, k) for k in range(len(SIZES)))) for name in names]
    head = ("ours less, points", *map(str, SIZES))
    caption = "Figure 2: differences on the same rows."
    results.save(settings.FOLDER, "figure_2_gain", head, rows, caption=caption, seeds=f"0 to {SEEDS - 1}")


if __name__ == "__main__":
    main()

"""Figure 4: what 100 rows of the two-dimensional XOR teach a network of 4482 weights."""

from __future__ import annotations

from typing import Any

import maps
import plotting
import results
import rings
import settings
from rings import OVERLAP, REACH

ROWS, SEED = 100, 0
SEEDS = results.pick("seeds", full=25, quick=2)
STEPS = (1, 2, 5, 29)  # of ours; the last is the default


def bayes_accuracy() -> float:
    """Both coordinates outside the overlap, or else a guess."""
    outside = 1.0 - 2.0 * OVERLAP / (REACH + OVERLAP)
    return outside**2 + 0.5 * (1.0 - outside**2)


def main() -> None:
    """The picture of one seed and the accuracies of all."""
    sample = rings.xor(ROWS, SEED)
    models: dict[str, Any] = {
        "as in the paper": rings.paper_cvgm(SEED, rings.two_layers),
        "ours": rings.ours(SEED, rings.two_layers),
        "kernel SVM": rings.kernel_svm(ROWS),
    }
    models = {name: model.fit(sample.X, sample.y) for name, model in models.items()}
    along = maps.snapshots(lambda seed: rings.ours(seed, rings.two_layers), sample, SEED, STEPS)
    plotting.save(maps.picture(sample, models, along, rings.xor_bayes), settings.FOLDER, "figure_4")
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        one = rings.xor(ROWS, seed)
        found.setdefault("Bayes", []).append(one.accuracy(rings.xor_bayes(one.X_new)))
        for name, model in (
            ("CVGM, as in the paper", rings.paper_cvgm(seed, rings.two_layers)),
            ("ours", rings.ours(seed, rings.two_layers)),
            ("kernel SVM, grid search", rings.kernel_svm(ROWS)),
        ):
            found.setdefault(name, []).append(one.accuracy(model.fit(one.X, one.y).predict(one.X_new)))
    paper = {"Bayes": "85.1", "CVGM, as in the paper": "72"}
    caption = (
        f"Figure 4: XOR, {ROWS} rows, 4482 weights; Bayes is {100.0 * bayes_accuracy():.1f} %, computed."
    )
    rings.report_accuracies("figure_4", caption, found, paper, SEED)


if __name__ == "__main__":
    print(f"{maps.weights(rings.two_layers)} weights")
    main()

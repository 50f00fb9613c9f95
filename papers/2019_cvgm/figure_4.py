"""Figure 4: what 100 rows of the two-dimensional XOR teach a network of 4482 weights."""

from __future__ import annotations

from typing import Any

import maps
import plotting
import rings
import settings
from rings import OVERLAP, REACH

ROWS, SEED, SEEDS = 100, 0, 25
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
    plotting.save(maps.picture(sample, models, along, rings.xor_bayes), settings.FIGURES / "figure_4.png")
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
    rings.report_accuracies(settings.FIGURES / "figure_4.csv", found, paper, SEED)
    print(f"Bayes, computed: {100.0 * bayes_accuracy():.2f} %")


if __name__ == "__main__":
    print(f"{maps.weights(rings.two_layers)} weights")
    main()

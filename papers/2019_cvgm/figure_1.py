"""Figure 1: what 60 rows of the rings teach a network of 322 weights."""

from __future__ import annotations

from typing import Any

import maps
import plotting
import results
import rings
import settings

ROWS, SEED = 60, 0
SEEDS = results.pick("seeds", full=25, quick=5)
STEPS = (1, 5, 10, 29)  # of ours; the last is the default


def main() -> None:
    """The picture of one seed and the accuracies of all."""
    sample = rings.rings(ROWS, SEED)
    models: dict[str, Any] = {
        "as in the paper": rings.paper_cvgm(SEED),
        "ours": rings.ours(SEED),
        "kernel SVM": rings.kernel_svm(ROWS),
    }
    models = {name: model.fit(sample.X, sample.y) for name, model in models.items()}
    along = maps.snapshots(rings.ours, sample, SEED, STEPS)
    plotting.save(maps.picture(sample, models, along, rings.rings_bayes), settings.FOLDER, "figure_1")
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        one = rings.rings(ROWS, seed)
        found.setdefault("Bayes", []).append(one.accuracy(rings.rings_bayes(one.X_new)))
        for name, model in (("CVGM, as in the paper", rings.paper_cvgm(seed)), ("ours", rings.ours(seed))):
            found.setdefault(name, []).append(one.accuracy(model.fit(one.X, one.y).predict(one.X_new)))
    paper = {"Bayes": "89.4", "CVGM, as in the paper": "89.8"}
    rings.report_accuracies("figure_1", f"Figure 1: rings, {ROWS} rows, 322 weights.", found, paper, SEED)


if __name__ == "__main__":
    print(f"{maps.weights(rings.one_layer)} weights")
    main()

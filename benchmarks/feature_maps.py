"""Feature maps beside the same network trained end to end, and a linear model, on small tables.

    python benchmarks/feature_maps.py [rows]

Each table is split once a seed: at most ``rows`` (300) to train on, the others to judge.  The network (32
hidden units, 8 features) trained end to end has its weight decay and its number of steps chosen on a fifth of
the training rows, then is trained on all of them.  The score is R² or accuracy, the time that of the process.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from onefit import LogisticLOO, RidgeLOO
from onefit.torch import FeatureMapClassifier, FeatureMapRegressor

DATA = Path(os.environ.get("ONEFIT_DATA", "../shared/data"))
TABLES = {
    "auto_mpg": "mpg",
    "concrete": "strength",
    "energy": "heating_load",
    "yacht": "residuary_resistance",
    "airfoil": "sound_pressure",
    "abalone": "rings",
    "prostate": "lpsa",
    "power_plant": "PE",
    "wine_quality": "quality",
}
SHIPPED = {
    "diabetes": load_diabetes,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
}
DECAYS = (0.0, 1e-3, 1e-2, 1e-1)
STEPS = 400


def tables():
    """Name, X, y, whether y is a class."""
    for name, load in SHIPPED.items():
        yield name, *load(return_X_y=True), name != "diabetes"
    for name, column in TABLES.items():
        table = pd.read_csv(DATA / f"{name}.csv.gz").dropna()
        y = table.pop(column).to_numpy(dtype=float)
        yield name, table.select_dtypes("number").to_numpy(dtype=float), y, False
    heart = pd.read_csv(DATA / "heart_disease.csv.gz")
    y = heart.pop("chd").to_numpy()
    yield "heart_disease", heart.select_dtypes("number").to_numpy(dtype=float), y, True
    yield "digits", *load_digits(return_X_y=True), True


def network(p, c=None):
    parts = [nn.Linear(p, 32), nn.ReLU(), nn.Linear(32, 8)]
    return nn.Sequential(*parts, *([] if c is None else [nn.Linear(8, c)]))


def end_to_end(X, y, classes, seed):
    """Predictions of a network with the decay and steps that a fifth of the rows chose."""
    kept, held = train_test_split(np.arange(len(X)), test_size=0.2, random_state=seed)
    loss = nn.functional.cross_entropy if classes else nn.functional.mse_loss
    X, y = torch.tensor(X).float(), torch.tensor(y if classes else y[:, None])
    y = y.long() if classes else y.float()

    def trained(rows, decay, steps):
        torch.manual_seed(seed)
        net = network(X.shape[1], classes or 1)
        descent, losses = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=decay), []
        for _ in range(steps):
            with torch.no_grad():
                losses.append(float(loss(net(X[held]), y[held])))
            descent.zero_grad()
            loss(net(X[rows]), y[rows]).backward()
            descent.step()
        return net, losses

    found = {decay: trained(kept, 100 * decay, STEPS)[1] for decay in DECAYS}
    best = min(found, key=lambda decay: min(found[decay]))
    return trained(np.arange(len(X)), 100 * best, int(np.argmin(found[best])) + 1)[0]


def scored(make, score):
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = make()
    return score(model), time.process_time() - begun, len([w for w in told if "the rows" in str(w.message)])


def one_table(X, y, classes, rows, seed):
    split = train_test_split(
        X, y, train_size=min(rows, int(0.7 * len(X))), random_state=seed, stratify=y if classes else None
    )
    scale = StandardScaler().fit(split[0])
    A, B, a, b = scale.transform(split[0]), scale.transform(split[1]), split[2], split[3]
    if not classes:
        middle, spread = a.mean(), a.std()
        a, b = (a - middle) / spread, (b - middle) / spread
    metric = accuracy_score if classes else r2_score
    kind, linear = (FeatureMapClassifier, LogisticLOO) if classes else (FeatureMapRegressor, RidgeLOO)

    def feature_map(**settings):
        torch.manual_seed(seed)
        return kind(network(X.shape[1]), random_state=seed, **settings).fit(A, a)

    def predicted(net):
        with torch.no_grad():
            out = net(torch.tensor(B).float())
        return out.argmax(1).numpy() if classes else out[:, 0].numpy()

    def of_estimator(model):
        return metric(b, model.predict(B))

    return {
        "feature map": scored(feature_map, of_estimator),
        "fixed steps": scored(lambda: feature_map(max_iter=30 if classes else 200), of_estimator),
        "end to end": scored(
            lambda: end_to_end(A, a, len(np.unique(a)) if classes else 0, seed),
            lambda net: metric(b, predicted(net)),
        ),
        "linear": scored(lambda: linear().fit(A, a), of_estimator),
    }


def main(rows=300, seeds=2, first=0):
    torch.set_num_threads(1)
    print("| table | feature map | fixed steps | end to end | linear | seconds of each | warned |")
    print("|---|---|---|---|---|---|---|")
    for name, X, y, classes in list(tables())[first:]:
        found = [one_table(X, y, classes, rows, seed) for seed in range(seeds)]
        means = {key: np.mean([one[key] for one in found], axis=0) for key in found[0]}
        scores = " | ".join(f"{means[key][0]:.3f}" for key in means)
        seconds = ", ".join(f"{means[key][1]:.1f}" for key in means)
        warned = ", ".join(f"{means[key][2]:.1f}" for key in ("feature map", "fixed steps"))
        print(f"| {name} | {scores} | {seconds} | {warned} |", flush=True)


if __name__ == "__main__":
    main(*(int(one) for one in sys.argv[1:]))

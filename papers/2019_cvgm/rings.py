"""The classification data of section 5.2 and appendix E of the 2019 paper, who learns from it, how well."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import results
import settings
import tables
import torch
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from torch import nn

from onefit.torch import FeatureMapClassifier

torch.set_num_threads(1)
warnings.simplefilter("ignore", ConvergenceWarning)

Array = np.ndarray
N_NEW, NEW_SEED = 10_000, 10_000  # rows of a test set, and what is added to the seed of the training set
DEVIATION = 0.4
REACH, OVERLAP = 3.0, 0.6
PAPER_SPLITS = results.pick("splits of CVGM as in the paper", full=256, quick=128)
PAPER = {"C": 10.0, "n_splits": PAPER_SPLITS, "train_size": 0.95, "tol": 0.0, "max_iter": 101}
DECAYS = (0.0, 0.01, 0.1, 1.0)  # of the network trained end to end
END_TO_END_STEPS, END_TO_END_RATE = 100, 0.01
OUR_STEPS = 30  # by default


@dataclass(frozen=True)
class Sample:
    """Rows to learn from and new ones."""

    X: Array
    y: Array
    X_new: Array
    y_new: Array

    def accuracy(self, predicted: Array) -> float:
        """Share of the new rows that are predicted."""
        return float(np.mean(predicted == self.y_new))


def rings(n: int, seed: int) -> Sample:
    """Radii N(1, 0.4²) and N(2, 0.4²), as many rows of each."""
    return Sample(*_rings(n, seed), *_rings(N_NEW, NEW_SEED + seed))


def _rings(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    radius, angle = rng.normal(1.0 + y, DEVIATION), rng.uniform(-np.pi, np.pi, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), y


def rings_bayes(X: Array) -> Array:
    """The more probable class.  A negative radius comes out on the other side."""
    radius = np.linalg.norm(X, axis=1)
    inner, outer = (norm.pdf(radius, m, DEVIATION) + norm.pdf(-radius, m, DEVIATION) for m in (1.0, 2.0))
    return (outer > inner).astype(int)


def xor(n: int, seed: int) -> Sample:
    """Class 1 where both coordinates come from the same of U[-3, 0.6] and U[-0.6, 3]."""
    return Sample(*_xor(n, seed), *_xor(N_NEW, NEW_SEED + seed))


def _xor(n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y, first = rng.permutation(np.arange(n) % 2), rng.integers(0, 2, n)
    upper = np.stack([first, np.where(y == 1, first, 1 - first)], axis=1)
    low = np.where(upper == 1, -OVERLAP, -REACH)
    return low + (REACH + OVERLAP) * rng.random((n, 2)), y


def xor_bayes(X: Array) -> Array:
    """The sign of the product: a coordinate in the overlap is as likely to come from either side."""
    return (X[:, 0] * X[:, 1] > 0).astype(int)


def one_layer(p: int) -> nn.Module:
    """2–64–2: 322 weights."""
    return nn.Sequential(nn.Linear(p, 64), nn.ReLU(), nn.Linear(64, 2))


def two_layers(p: int) -> nn.Module:
    """2–64–64–2: 4482 weights."""
    return nn.Sequential(nn.Linear(p, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def paper_cvgm(seed: int, network: Callable[[int], nn.Module] = one_layer, rate: float = 0.1) -> Any:
    """A hundred plain gradient steps on 256 splits, C = 10, no intercept; the smallest risk is kept."""
    return FeatureMapClassifier(
        network, optimizer="sgd", learning_rate=rate, fit_intercept=False, random_state=seed, **PAPER
    )


def ours(seed: int, network: Callable[[int], nn.Module] = one_layer) -> Any:
    """The defaults."""
    return FeatureMapClassifier(network, random_state=seed)


def kernel_svm(n: int) -> Any:
    """RBF kernel, C and gamma from 54 pairs by stratified five-fold cross-validation."""
    grid = {"C": np.logspace(-1, 3, 6), "gamma": np.logspace(-2, 2, 9)}
    return GridSearchCV(SVC(), grid, cv=min(5, n // 2))


def end_to_end(
    X: Array, y: Array, seed: int, optimizer: str, decay: float = 0.0, steps: int = END_TO_END_STEPS
) -> Callable[[Array], Array]:
    """The same network and a linear layer, some steps of 0.01 on the cross-entropy; returns predict.

    ``sgd`` is the paper's, ``adam`` goes further in as many steps.  ``decay`` times ½‖weights‖² is added.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(one_layer(X.shape[1]), nn.Linear(2, 1))
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    descent = make(network.parameters(), lr=END_TO_END_RATE, weight_decay=decay)
    rows, goal = torch.tensor(X).float(), torch.tensor(y).float()
    for _ in range(steps):
        descent.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(network(rows)[:, 0], goal).backward()
        descent.step()

    def predict(new: Array) -> Array:
        with torch.no_grad():
            return (network(torch.tensor(new).float())[:, 0] > 0).numpy().astype(int)

    return predict


def end_to_end_decay(sample: Sample, seed: int, folds: int = 5) -> float:
    """Test accuracy of the network by Adam, with the weight decay that five folds choose."""
    n = len(sample.y)
    fold = np.empty(n, dtype=int)
    fold[np.argsort(sample.y, kind="stable")] = np.arange(n) % min(folds, n // 2)
    right = np.zeros(len(DECAYS))
    for number in range(fold.max() + 1):
        kept = fold != number
        for k, decay in enumerate(DECAYS):
            predict = end_to_end(sample.X[kept], sample.y[kept], seed, "adam", decay)
            right[k] += np.sum(predict(sample.X[~kept]) == sample.y[~kept])
    decay = DECAYS[len(DECAYS) - 1 - int(np.argmax(right[::-1]))]  # of equals the largest
    return sample.accuracy(end_to_end(sample.X, sample.y, seed, "adam", decay)(sample.X_new))


def logistic(sample: Sample) -> float:
    """Test accuracy of a logistic regression on the coordinates."""
    return sample.accuracy(LogisticRegression().fit(sample.X, sample.y).predict(sample.X_new))


def on_the_radius(sample: Sample) -> float:
    """Test accuracy of a logistic regression on the true radius: what a perfect feature would give."""
    radius, radius_new = (np.linalg.norm(X, axis=1)[:, None] for X in (sample.X, sample.X_new))
    return sample.accuracy(LogisticRegression(C=10.0).fit(radius, sample.y).predict(radius_new))


def report_accuracies(
    name: str, caption: str, found: Mapping[str, Sequence[float]], paper: Mapping[str, str], seed: int
) -> None:
    """Table of what each learner reaches over seeds, one of them drawn, beside the paper's one run."""
    rows = []
    numbers: dict[str, float] = {}
    for kind, values in found.items():
        percent = 100.0 * np.array(values)
        spread = f"{percent.min():.1f} to {percent.max():.1f}"
        mean = tables.mean_and_error(list(percent), 1)
        rows.append((kind, paper.get(kind, ""), f"{percent[seed]:.1f}", mean, spread))
        numbers |= {kind: percent.mean(), f"{kind}: error": percent.std(ddof=1) / len(percent) ** 0.5}
        numbers |= {f"{kind}: worst": percent.min()}
    seeds = len(next(iter(found.values())))
    head = ("test accuracy, %", "paper, one run", f"seed {seed}", f"mean of {seeds}", "from … to")
    given = {"caption": caption, "seeds": f"0 to {seeds - 1}", "numbers": numbers}
    results.save(settings.FOLDER, name, head, rows, **given)

"""What onefit.torch costs and finds: torch_networks.py loo | audit | stream [N …] | labels | heads | wide

loo     leave-one-out of 10⁴ parameters and 1000 rows, without training on: seconds and peak memory
audit   the same network, and 30 rows retrained without by the recipe it was trained by: in trainings
stream  a ridge head on 1000 features of 20,000 and 100,000 rows, or of N, never held at once: seconds and
        peak memory
labels  10 % flipped labels on three sets: area under the ROC curve of the ranking by left-out loss of a head
        on the features of a small network, beside the losses of 5 folds and of the training
heads   a head on frozen features of digits beside LogisticRegressionCV and SGD: accuracy and seconds
wide    the same on 10⁴ rows × 512 features of MNIST, five draws
"""

from __future__ import annotations

import os
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from torch import nn
from torch.utils.data import TensorDataset

from onefit import RidgeLOO
from onefit.torch import LeaveOneOutHead, embedded_rows, loo

DATA = Path(os.environ.get("ONEFIT_DATA", "../shared/data"))


def clocked(f):
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = f()
    return found, time.process_time() - begun


def trained(X, y, width, classes, steps=300, decay=1e-3, seed=0):
    """A perceptron trained by Adam with weight decay."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(X.shape[1], width), nn.ReLU(), nn.Linear(width, classes))
    descent = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(steps):
        descent.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        descent.step()
    return net.eval()


def whole_networks():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(1000, 90))).float()
    y = torch.tensor(rng.integers(0, 3, 1000))
    y[X[:, 0] > 0] = 0
    net = trained(X, y, 108, 3)
    k = sum(p.numel() for p in net.parameters())
    risk, seconds = clocked(
        lambda: loo(net, nn.CrossEntropyLoss(), (X, y), weight_decay=1e-3, train_on=False)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{k} parameters, 1000 rows, {risk.by}: {seconds:.1f} s, peak {peak:.2f} GB, {risk.value:.3f}")


def audited():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(1000, 90))).float()
    y = torch.tensor(rng.integers(0, 3, 1000))
    y[X[:, 0] > 0] = 0
    net, each = trained(X, y, 108, 3), list[float]()

    def recipe(rows):
        module, taken = clocked(lambda: trained(X[rows], y[rows], 108, 3))
        each.append(taken)
        return module

    risk, seconds = clocked(
        lambda: loo(
            net,
            nn.CrossEntropyLoss(),
            (X, y),
            weight_decay=1e-3,
            train_on=False,
            audit=30,
            retrain=recipe,
            rng=0,
        )
    )
    mean = float(np.mean(each))
    print(f"formula and {len(each)} audits {seconds:.1f} s = {seconds / mean:.1f} trainings of {mean:.2f} s")
    print(f"formula {risk.value:.3f}, audit {risk.audit}")


def streamed():
    for n in [int(rows) for rows in sys.argv[2:]] or (20_000, 100_000):
        torch.manual_seed(0)
        X = torch.randn(n, 32)
        y = X[:, :4].sin().sum(1) + 0.5 * torch.randn(n)
        backbone = nn.Sequential(nn.Linear(32, 1000), nn.Tanh())
        rows = embedded_rows(backbone, TensorDataset(X, y), batch_size=2048)
        seconds = clocked(lambda rows=rows: RidgeLOO().fit(rows))[1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        held = 4e3 * n / 2**30
        print(f"{n} × 1000: {seconds:.1f} s, peak {peak:.2f} GB, features {held:.2f} GB", flush=True)


def images():
    with np.load(DATA / "mnist.npz") as found:
        X, y = found["X_train"].reshape(-1, 784) / 255.0, found["y_train"].astype(int)
    return X[:2000], y[:2000], X[2000:4000], y[2000:4000]


def halves(X, y):
    return train_test_split(scale(X), y, test_size=0.5, random_state=0, stratify=y)


def label_sets():
    """Rows to judge, and others, with clean labels, to train a backbone on."""
    X, y = load_digits(return_X_y=True)
    A, B, a, b = halves(X, y)
    yield "digits", A, a, B, b
    X, y = load_breast_cancer(return_X_y=True)
    A, B, a, b = halves(X, y)
    yield "breast cancer", A, a, B, b
    B, b, A, a = images()
    yield "MNIST, 2000 rows", A, a, B, b


def labels():
    print("| set | left-out loss | 5 folds | training loss | seconds |")
    print("|---|---|---|---|---|")
    for name, X, y, other, known in label_sets():
        rng, c = np.random.default_rng(0), int(y.max()) + 1
        wrong = rng.random(len(y)) < 0.1
        given = np.where(wrong, (y + rng.integers(1, c, len(y))) % c, y)
        net = trained(torch.tensor(other).float(), torch.tensor(known), 64, c)[:2]
        with torch.no_grad():
            features = net(torch.tensor(X).float()).double().numpy()
        head, ours = clocked(lambda F=features, g=given: LeaveOneOutHead().fit(F, g))
        C = np.median([one.C_ for one in head.estimators_])
        peer = make_pipeline(StandardScaler(), LogisticRegression(C=float(C), max_iter=1000))
        folds, fold_time = clocked(
            lambda F=features, g=given, p=peer: cross_val_predict(p, F, g, cv=5, method="predict_proba")
        )
        seen, fit_time = clocked(lambda F=features, g=given, p=peer: p.fit(F, g).predict_proba(F))
        areas = [
            roc_auc_score(wrong, -np.log(np.maximum(share[np.arange(len(y)), given], 1e-300)))
            for share in (folds, seen)
        ]
        first = roc_auc_score(wrong, head.losses_)
        print(
            f"| {name} | {first:.4f} | {areas[0]:.4f} | {areas[1]:.4f} | "
            f"{ours:.1f}, {fold_time:.1f}, {fit_time:.1f} |",
            flush=True,
        )


def heads():
    X, y = load_digits(return_X_y=True)
    net = trained(torch.tensor(X[:600] / 16).float(), torch.tensor(y[:600]), 64, 10)[:2]
    with torch.no_grad():
        features = net(torch.tensor(X[600:] / 16).float()).double().numpy()
    compared(*train_test_split(scale(features), y[600:], test_size=0.4, random_state=0))


def wide(draws=5):
    """10⁴ rows × 512 features of ten classes; LogisticRegressionCV (minutes) on the first draw."""
    with np.load(DATA / "mnist.npz") as found:
        X = np.concatenate([found["X_train"], found["X_test"]]).reshape(-1, 784) / 255.0
        y = np.concatenate([found["y_train"], found["y_test"]]).astype(int)
    for seed in range(draws):
        rows = np.random.default_rng(seed).permutation(len(X))
        own, train, new = rows[:5000], rows[5000:15000], rows[15000:]
        net = trained(torch.tensor(X[own]).float(), torch.tensor(y[own]), 512, 10, steps=60, seed=seed)[:2]
        with torch.no_grad():
            A, B = (net(torch.tensor(X[some]).float()).double().numpy() for some in (train, new))
        scaler = StandardScaler().fit(A)
        print(f"draw {seed}: {A.shape}, {len(B)} new rows")
        compared(scaler.transform(A), scaler.transform(B), y[train], y[new], folds=seed == 0)


def compared(A, B, a, b, folds=True):
    peers = {
        "LeaveOneOutHead, logistic": lambda: LeaveOneOutHead().fit(A, a),
        "LeaveOneOutHead, ridge": lambda: LeaveOneOutHead(head="ridge").fit(A, a),
        "SGD, 50 epochs": lambda: SGDClassifier("log_loss", max_iter=50, tol=None, random_state=0).fit(A, a),
    }
    if folds:
        peers["LogisticRegressionCV(cv=5)"] = lambda: LogisticRegressionCV(cv=5, max_iter=500).fit(A, a)
    for name, fit in peers.items():
        model, seconds = clocked(fit)
        print(f"| {name} | {np.mean(model.predict(B) == b):.4f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {
        "loo": whole_networks,
        "audit": audited,
        "stream": streamed,
        "labels": labels,
        "heads": heads,
        "wide": wide,
    }[sys.argv[1]]()

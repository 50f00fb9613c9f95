"""
Two rings: features learned through a convex head
=================================================

A small network maps the plane to two features, on which a logistic regression is solved exactly on every split of the
data; the network follows the gradient of the held-out loss through these solutions.  60 points are enough.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_circles
from sklearn.svm import SVC

import onefit.torch

X, y = make_circles(60, noise=0.15, factor=0.45, random_state=0)
new, truth = make_circles(2000, noise=0.15, factor=0.45, random_state=1)
_ = torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
learned = onefit.torch.FeatureMapClassifier(net, n_splits=32, random_state=0).fit(X, y)
print(f"learned features: {learned.score(new, truth):.3f} of 2000 new points")
print(f"radial SVM:       {SVC().fit(X, y).score(new, truth):.3f}")

side = np.linspace(-1.6, 1.6, 80)
plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
share = learned.predict_proba(plane)[:, 1].reshape(80, 80)
left.contourf(side, side, share, levels=10, cmap="RdBu", vmin=0, vmax=1, alpha=0.8)
for ring, colour, marker in [(0, "darkred", "s"), (1, "navy", "o")]:
    left.scatter(
        *X[y == ring].T, color=colour, marker=marker, edgecolor="white", label=["outer", "inner"][ring]
    )
left.legend(loc="upper left", fontsize="small")
left.set_aspect("equal")
right.plot(learned.risk_path_)
right.set(xlabel="step", ylabel="held-out log-loss")
plt.show()

"""
A network's left-out loss, from its weights
===========================================

A trained network on digits: what would its loss on each row be, had it not seen it?  One Gauss–Newton step a row, and
an audit by a few real trainings without a row, always.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import onefit.torch

X, y = load_digits(return_X_y=True)
rows = np.random.default_rng(0).permutation(np.flatnonzero((y == 4) | (y == 9)))
X = torch.tensor(X[rows] / 16, dtype=torch.float64)
y = torch.tensor((y[rows] == 9).astype(int))
train, test = slice(0, 120), slice(120, None)

decay, loss = 1e-2, nn.CrossEntropyLoss()
_ = torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 2)).double()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=500, line_search_fn="strong_wolfe")


def objective():
    optimizer.zero_grad()
    value = loss(net(X[train]), y[train]) + decay / 2 * sum((p**2).sum() for p in net.parameters())
    value.backward()
    return value


optimizer.step(objective)
est = onefit.torch.loo(net, loss, (X[train], y[train]), weight_decay=decay, audit=4, rng=0)
print(est)
with torch.no_grad():
    inside = loss(net(X[train]), y[train]).item()
    others = nn.functional.cross_entropy(net(X[test]), y[test], reduction="none").numpy()
outside, error = others.mean(), others.std() / np.sqrt(len(others))
print(
    f"training loss {inside:.4f}, left-out {est.value:.4f}, on {len(others)} other rows {outside:.4f} ± {error:.4f}"
)

# %%
# A few of the other rows are misread with confidence, and carry most of their mean: log-losses of so few rows have
# wide errors, on both sides.

fig, ax = plt.subplots(figsize=(6, 3.4))
ax.bar(["training", "left out", "other rows"], [inside, est.value, outside], color=["gray", "C0", "C1"])
ax.errorbar([1, 2], [est.value, outside], [est.std_error, error], color="black", capsize=4, fmt="none")
ax.set_ylabel("log-loss")
plt.show()

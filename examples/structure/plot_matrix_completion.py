"""
Matrix completion: rentals by hour and day of the week
======================================================

24 hours × 7 days; two thirds of the cells are seen, one noisy hour each.  The nuclear norm makes the matrix of
coefficients low in rank, and leave-one-out says how strongly: every seen cell is predicted from the others.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import onefit
from onefit.penalties import NuclearNorm

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "bike_sharing_hour.csv.gz")
table["root"] = np.sqrt(table["cnt"])
truth = table.pivot_table(index="hr", columns="weekday", values="root").to_numpy()
one_week = table.sample(frac=1, random_state=3).drop_duplicates(["hr", "weekday"])
noisy = one_week.pivot_table(index="hr", columns="weekday", values="root").to_numpy()

rng = np.random.default_rng(0)
seen = np.flatnonzero(rng.random(truth.size) < 0.66)
X = np.eye(truth.size)[seen]  # each row of X picks a cell
y = noisy.ravel()[seen]

strengths = np.geomspace(1, 60, 6)
fits = [
    onefit.GeneralizedLinear("squared", NuclearNorm(truth.shape, strength)).fit(X, y)
    for strength in strengths
]
risks = [onefit.loo(fit, X, y).value for fit in fits]
unseen = np.setdiff1d(np.arange(truth.size), seen)
errors = [np.mean((noisy.ravel()[unseen] - fit.predict(np.eye(truth.size)[unseen])) ** 2) for fit in fits]
best = int(np.argmin(risks))
completed = (fits[best].coef_ + fits[best].intercept_).reshape(truth.shape)
print(f"rank {np.linalg.matrix_rank(fits[best].coef_.reshape(truth.shape), tol=1e-6)}")

fig, axes = plt.subplots(1, 4, figsize=(11, 4), width_ratios=[1, 1, 1, 2])
shown = np.full(truth.size, np.nan)
shown[seen] = y
pictures = {"seen": shown.reshape(truth.shape), "completed": completed, "mean of two years": truth}
for ax, (name, picture) in zip(axes, pictures.items(), strict=False):
    ax.imshow(picture, aspect="auto", vmin=0, vmax=truth.max())
    ax.set(title=name, xlabel="weekday")
axes[0].set_ylabel("hour")
axes[3].plot(strengths, risks, "o-", label="left-out risk of seen cells")
axes[3].plot(strengths, errors, "s--", label="error on unseen cells")
axes[3].set(xscale="log", xlabel="strength")
axes[3].legend()
plt.show()

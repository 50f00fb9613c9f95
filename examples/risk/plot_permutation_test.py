"""
Is there anything to be found?
==============================

``PermutationRegressor`` holds no row out: its strength fits the data well and permuted responses badly.  The same
permutations give a p-value.  Forest fires are nearly unpredictable: the test finds a trace at most; diabetes is
plain.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import onefit

fires = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "forest_fires.csv.gz")
area = np.log1p(fires.pop("area").to_numpy())
fires = scale(pd.get_dummies(fires, dtype=float))
X, y = load_diabetes(return_X_y=True)

rng = np.random.default_rng(0)
cases = {
    "diabetes": (scale(X), y),
    "diabetes, y permuted": (scale(X), rng.permutation(y)),
    "forest fires": (fires, area),
}
fits = {
    name: onefit.PermutationRegressor(n_permutations=60, random_state=0).fit(*data)
    for name, data in cases.items()
}
for name, fit in fits.items():
    print(f"{name:22s} p = {fit.p_value_:.3f}   lambda = {fit.lambda_:.3g}")

fig, ax = plt.subplots()
for name, fit in fits.items():
    ax.plot(fit.criterion_path_, label=f"{name}, p = {fit.p_value_:.2f}")
ax.set(xlabel="step of Adam", ylabel="criterion")
ax.legend()
plt.show()

"""
Automatic relevance: a kernel width for each column
===================================================

Kernel ridge with one length scale a column, all tuned by the exact gradient of the left-out risk.  Long scales mean
that a column does not matter for the strength of concrete.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import scale

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "concrete.csv.gz").sample(160, random_state=0)
y = table.pop("strength").to_numpy()
X = scale(table)

one = onefit.GradientSearchCV(KernelRidge(kernel="rbf"), {"alpha": (1e-5, 10.0), "gamma": (1e-3, 10)}).fit(
    X, y
)
kernel = KernelRidge(kernel=RBF(np.ones(X.shape[1])))
bounds = {"alpha": (1e-5, 10.0), "kernel__length_scale": onefit.PerFeature(0.1, 1000)}
each = onefit.GradientSearchCV(kernel, bounds).fit(X, y)
for name, search in [("one width", one), ("a width for each column", each)]:
    print(f"{name:24s} left-out R² {search.best_risk_.score('r2'):.3f}, {search.n_iter_} steps")

fig, ax = plt.subplots()
ax.barh(table.columns, 1 / each.best_params_["kernel__length_scale"])
ax.set(xscale="log", xlabel="relevance, 1 / length scale")
plt.show()

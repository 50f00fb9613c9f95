"""
A support vector machine, tuned by gradient
===========================================

C and gamma of a radial kernel by the exact gradient of the left-out hinge loss, beside the grid that it replaces.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.preprocessing import scale
from sklearn.svm import SVC

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "heart_disease.csv.gz")[:100]
y = table.pop("chd").to_numpy()
X = scale(pd.get_dummies(table, drop_first=True, dtype=float))

search = onefit.GradientSearchCV(SVC(), {"C": (0.05, 50), "gamma": (1e-3, 1.0)}).fit(X, y)
print(search.best_params_, f"{len(search.cv_results_['params'])} evaluations")
print(
    f"left-out hinge loss {search.best_risk_.value:.4f}, accuracy {search.best_risk_.score('accuracy'):.3f}"
)

# %%
# The surface: left-out hinge loss of 5 × 5 machines.

Cs, gammas = np.geomspace(0.05, 50, 5), np.geomspace(1e-3, 1.0, 5)
surface = [[onefit.loo(SVC(C=C, gamma=gamma).fit(X, y), X, y).value for C in Cs] for gamma in gammas]
fig, ax = plt.subplots()
filled = ax.contourf(Cs, gammas, np.minimum(surface, 1.0), levels=14, cmap="viridis_r")
fig.colorbar(filled, label="left-out hinge loss")
ax.plot(search.best_params_["C"], search.best_params_["gamma"], "*", color="red", ms=14)
ax.set(xscale="log", yscale="log", xlabel="C", ylabel="gamma")
plt.show()

"""
Choosing among curves: the group lasso on splines
=================================================

Every measurement of a prostate cancer study becomes five spline columns, which are kept or dropped together.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.preprocessing import SplineTransformer, scale

import onefit
from onefit.penalties import GroupLasso

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "prostate.csv.gz").drop(columns="train")
y = table.pop("lpsa").to_numpy()
curved = [name for name in table if table[name].nunique() > 10]
columns, groups = [], []
for name in curved:
    basis = SplineTransformer(4, knots="quantile").fit_transform(table[[name]])[:, :-1]
    groups.append(list(range(len(columns), len(columns) + basis.shape[1])))
    columns.extend(scale(basis).T)
X = np.array(columns).T

model = onefit.GeneralizedLinearLOO(penalty=GroupLasso(groups), alphas=25).fit(X, y)
print(f"alpha {model.alpha_:.3g}, left-out R² {model.loo_.score('r2'):.3f}")
size = [np.linalg.norm(model.coef_[group]) for group in groups]
for name, norm in zip(curved, size, strict=True):
    print(f"  {name:8s} {'kept' if norm > 1e-9 else 'dropped'}")

kept = [k for k, norm in enumerate(size) if norm > 1e-9]
fig, axes = plt.subplots(1, len(kept), figsize=(2.4 * len(kept), 2.8), sharey=True, squeeze=False)
for ax, k in zip(axes[0], kept, strict=True):
    order = np.argsort(table[curved[k]].to_numpy())
    ax.plot(table[curved[k]].to_numpy()[order], (X[:, groups[k]] @ model.coef_[groups[k]])[order])
    ax.set_xlabel(curved[k])
axes[0, 0].set_ylabel("part of log PSA")
plt.show()

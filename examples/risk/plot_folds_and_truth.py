"""
Leave-one-out, five folds and the truth
=======================================

Fifty draws of 80 rows from the 9568 hours of a power plant's log, with all products of its four sensors; the truth
is the error on the other rows.  Five folds judge a model that was fitted on a fifth less, and their answer changes
with the folds; leave-one-out is nearly unbiased and has no folds to draw.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler, scale

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "power_plant.csv.gz")
y = table.pop("PE").to_numpy()
X = make_pipeline(StandardScaler(), PolynomialFeatures(4, include_bias=False)).fit_transform(table)
X = scale(X)
print(X.shape)

# %%
# Each draw: fit, judge without refits, judge by folds, and look at the other rows.

rng = np.random.default_rng(0)
found = {"leave-one-out": [], "5 folds": [], "truth": []}
for draw in range(50):
    rows = rng.choice(len(y), 80, replace=False)
    others = np.setdiff1d(np.arange(len(y)), rows)
    model = Ridge(1.0).fit(X[rows], y[rows])
    folds = KFold(5, shuffle=True, random_state=draw)
    found["leave-one-out"].append(onefit.loo(model, X[rows], y[rows]).value)
    found["5 folds"].append(
        -cross_val_score(model, X[rows], y[rows], cv=folds, scoring="neg_mean_squared_error").mean()
    )
    found["truth"].append(np.mean((y[others] - model.predict(X[others])) ** 2))

table = pd.DataFrame(found)
print(table.agg(["median", "mean", "std"]).round(1).to_string())

fig, ax = plt.subplots()
ax.boxplot(table, orientation="horizontal", tick_labels=table.columns, showfliers=False)
ax.axvline(table["truth"].median(), color="gray", linestyle=":")
ax.set_xlabel("mean squared error, MW²")
plt.show()

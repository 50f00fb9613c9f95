"""
Intervals for new rows: the jackknife+
======================================

No assumption on the noise, no refit: left-out coefficients give jackknife+ intervals, here around a smooth curve of a
bike-sharing log (rentals over the hour of the day, on working days).
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.preprocessing import SplineTransformer

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "bike_sharing_hour.csv.gz")
table = table[(table["workingday"] == 1) & (table["yr"] == 1)]
rng = np.random.default_rng(0)
order = rng.permutation(len(table))
train, test = table.iloc[order[:400]], table.iloc[order[400:1400]]

splines = SplineTransformer(12, extrapolation="periodic", knots=np.linspace(0, 24, 12)[:, None])
X = splines.fit_transform(train[["hr"]].to_numpy())
y = np.sqrt(train["cnt"].to_numpy())
model = Ridge(0.1).fit(X, y)
est = onefit.loo(model, X, y)

# %%
# How often are new hours inside?

new = splines.transform(test[["hr"]].to_numpy())
inside = est.interval(new, coverage=0.9)
target = np.sqrt(test["cnt"].to_numpy())
print(f"{np.mean((target >= inside[:, 0]) & (target <= inside[:, 1])):.1%} of 1000 new hours lie inside")

hours = np.linspace(0, 23, 200)[:, None]
band = est.interval(splines.transform(hours), coverage=0.9)
fig, ax = plt.subplots()
ax.plot(train["hr"] + rng.uniform(-0.3, 0.3, len(train)), y, ".", color="gray", markersize=3)
ax.plot(hours, model.predict(splines.transform(hours)))
ax.fill_between(hours[:, 0], *band.T, alpha=0.2, label="jackknife+, 90 %")
ax.set(xlabel="hour", ylabel="√ rentals")
ax.legend()
plt.show()

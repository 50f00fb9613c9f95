"""
A table on a cluster: the lasso on Dask partitions
==================================================

Two hundred thousand rows in twenty partitions, which no process holds together.  With a ``distributed.Client`` the
same lines run on the machines of a cluster.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import onefit

n, p, rows = 200_000, 30, 10_000
coef = np.zeros(p)
coef[:8] = np.linspace(1.0, 0.02, 8)
X = da.random.default_rng(0).normal(size=(n, p), chunks=(rows, p))
y = X @ coef + 2.0 * da.random.default_rng(1).normal(size=n, chunks=rows)

# %%
# Two passes over the partitions: sums, of which the whole path is solved, and the left-out losses of all strengths.
# A third judges the chosen one.

model = onefit.LassoLOO(40).fit(X, y)
print(model.loo_)
print("found:", np.flatnonzero(model.coef_))

onefit.RiskPathDisplay.from_estimator(model).plot()
plt.show()

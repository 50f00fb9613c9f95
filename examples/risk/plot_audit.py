"""
An audit: thirty refits say whether to believe it
=================================================

The one-step formula is an approximation where the active set changes.  An audit refits the model itself without
30 rows, drawn with probabilities that follow the size of the correction, and returns an unbiased risk with an
interval.  It needs no formula: a forest is judged the same way.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Lasso
from sklearn.preprocessing import PolynomialFeatures, scale

import onefit

X, y = load_diabetes(return_X_y=True)
Z = scale(PolynomialFeatures(2, include_bias=False).fit_transform(X))
lasso = Lasso(1.0, tol=1e-8, max_iter=100_000).fit(Z, y)
est = onefit.loo(lasso, Z, y, audit=30, rng=0)
exact = onefit.loo(lasso, Z, y, exact=True)
print(est)
print(f"\nall 442 refits: {exact.value:.1f}")

# %%
# The forest has no formula: the audit corrects its training error, which is far too small.

forest = RandomForestRegressor(30, min_samples_leaf=5, random_state=0).fit(X, y)
judged = onefit.loo(forest, X, y, audit=30, rng=0)
print(judged)

fig, ax = plt.subplots(figsize=(7, 2.4))
for height, (name, result) in enumerate([("lasso", est), ("forest", judged)]):
    low, high = result.audit.interval
    ax.plot([low, high], [height, height], linewidth=3, label=f"{name}: 95 % interval of the audit")
    ax.plot(result.audit.value, height, "o", color="black")
ax.plot(exact.value, 0, "x", color="red", markersize=10, label="lasso, exact")
ax.plot(np.mean((y - forest.predict(X)) ** 2), 1, "s", color="gray", label="forest, training error")
ax.set(yticks=[], ylim=(-0.6, 1.6), xlabel="squared error")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

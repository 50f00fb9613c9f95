"""
Any model: a forest against a lasso, both left out
==================================================

What has no formula is judged by refits of a few rows that are drawn at random.  The interval says how far to believe
it; more refits make it shorter.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import onefit

X, y = load_diabetes(return_X_y=True)
forest = RandomForestRegressor(20, min_samples_leaf=10, random_state=0).fit(X, y)
lasso = onefit.LassoLOO().fit(X, y)

audits = {m: onefit.loo(forest, X, y, audit=m, rng=1).audit for m in (10, 30, 60)}
fig, ax = plt.subplots(figsize=(7, 2.8))
for k, (m, audit) in enumerate(audits.items()):
    print(f"{m:3d} refits: {audit}")
    ax.plot(audit.interval, [k, k], color="C0", linewidth=3)
    ax.plot(audit.value, k, "o", color="black")
ax.axvline(lasso.loo_.value, color="C1", label="lasso, left out")
ax.set(yticks=range(3), yticklabels=[f"forest, {m} refits" for m in audits], xlabel="squared error")
ax.legend()
plt.show()

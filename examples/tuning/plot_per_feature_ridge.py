"""
A ridge strength for each feature
=================================

Ten strengths at once, by the gradient of the left-out risk: a grid of ten values each would have 10¹⁰ points.  What
does not help gets a strength that puts it out.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import onefit
from onefit.penalties import L2

data = load_diabetes()
rng = np.random.default_rng(0)
X = scale(np.hstack([data.data, rng.normal(size=(442, 10))]))  # ten columns of noise beside
names = [*data.feature_names, *(f"noise {k}" for k in range(10))]
y = data.target

ridge = onefit.GeneralizedLinear("squared", L2())
one = onefit.GradientSearchCV(ridge, {"penalty__alpha": (1e-1, 1e5)}).fit(X, y)
each = onefit.GradientSearchCV(ridge, {"penalty__alpha": onefit.PerFeature(1e-1, 1e6)}).fit(X, y)
print(f"one strength:   {one.best_risk_.value:.0f} ± {one.best_risk_.std_error:.0f}")
print(f"twenty of them: {each.best_risk_.value:.0f} ± {each.best_risk_.std_error:.0f}")
print(f"{len(each.cv_results_['params'])} evaluations with their gradients")

strengths = each.best_params_["penalty__alpha"]
fig, ax = plt.subplots(figsize=(7, 4.6))
ax.barh(names, strengths, left=0.1, color=["C0"] * 10 + ["C1"] * 10)
ax.set(xscale="log", xlabel="strength")
ax.invert_yaxis()
plt.show()

# %%
# The tuned risk is optimistic: twenty strengths were fitted to it.  Rows that took no part tell how much.

half = rng.permutation(442)
train, test = half[:300], half[300:]
for name, bounds in [("one", (1e-1, 1e5)), ("each", onefit.PerFeature(1e-1, 1e6))]:
    search = onefit.GradientSearchCV(ridge, {"penalty__alpha": bounds}).fit(X[train], y[train])
    error = np.mean((y[test] - search.predict(X[test])) ** 2)
    print(f"{name:4s}: left-out risk {search.best_risk_.value:.0f}, on 142 other rows {error:.0f}")

"""
The way down: elastic net in two hyperparameters
================================================

The left-out risk over strength and share of ℓ1, and the points that a gradient search looks at.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, scale

import onefit
from onefit.penalties import ElasticNet

X, y = load_diabetes(return_X_y=True)
X = scale(PolynomialFeatures(2, include_bias=False, interaction_only=True).fit_transform(X))
X, y = X[:150], y[:150]
net = onefit.GeneralizedLinear("squared", ElasticNet())
search = onefit.GradientSearchCV(net, {"penalty__alpha": (30, 1e4), "penalty__l1_ratio": (0.02, 1.0)}).fit(
    X, y
)
print(
    search.best_params_,
    f"risk {search.best_risk_.value:.0f}, {len(search.cv_results_['params'])} evaluations",
)

# %%
# The surface, for the picture only: 8 × 8 fits.

alphas, ratios = np.geomspace(30, 1e4, 8), np.linspace(0.02, 1.0, 8)
surface = np.array(
    [
        [
            onefit.loo(onefit.GeneralizedLinear("squared", ElasticNet(a, r)).fit(X, y), X, y).value
            for a in alphas
        ]
        for r in ratios
    ]
)
fig, ax = plt.subplots()
levels = surface.min() * np.array([1, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0])
lines = ax.contourf(alphas, ratios, surface, levels=levels, cmap="viridis_r", extend="max")
fig.colorbar(lines, label="left-out risk")
seen = search.cv_results_["params"]
ax.plot(
    [p["penalty__alpha"] for p in seen],
    [p["penalty__l1_ratio"] for p in seen],
    "o",
    color="white",
    ms=4,
    mec="k",
)
ax.plot(
    search.best_params_["penalty__alpha"], search.best_params_["penalty__l1_ratio"], "*", color="red", ms=14
)
ax.set(xscale="log", xlabel="strength", ylabel="share of ℓ1")
plt.show()

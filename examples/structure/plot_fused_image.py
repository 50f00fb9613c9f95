"""
Coefficients that form regions: a fused lasso over pixels
=========================================================

Which pixels tell a 3 from an 8?  Neighbouring pixels share a coefficient unless the data object.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import onefit
from onefit.penalties import L2, FusedLasso

X, y = load_digits(return_X_y=True)
rows = np.flatnonzero((y == 3) | (y == 8))[:80]
X, y = X[rows] / 16, (y[rows] == 8).astype(int)
cells = np.arange(64).reshape(8, 8)
edges = [*zip(cells[:, :-1].ravel(), cells[:, 1:].ravel()), *zip(cells[:-1].ravel(), cells[1:].ravel())]

models = {
    "ridge": onefit.GeneralizedLinear("logistic", L2(1.0)),
    "fused + ridge": onefit.GeneralizedLinear("logistic", FusedLasso(0.5, edges=edges) + L2(0.1)),
}
fig, axes = plt.subplots(1, 2, figsize=(7, 3.2))
for ax, (name, model) in zip(axes, models.items(), strict=True):
    est = onefit.loo(model.fit(X, y), X, y)
    image = np.ravel(model.coef_).reshape(8, 8)
    limit = np.abs(image).max()
    ax.imshow(image, cmap="RdBu", vmin=-limit, vmax=limit)
    ax.set(title=f"{name}\nleft-out log-loss {est.value:.3f} ± {est.std_error:.3f}", xticks=[], yticks=[])
    print(f"{name:14s} {len(np.unique(image.round(6)))} levels, accuracy {est.score('accuracy'):.3f}")
plt.show()

"""
The lasso's risk path and the one-standard-error rule
=====================================================

What glmnet draws from ten folds, from one path: the left-out risk of every strength, its standard error, the
smallest, and the sparsest model that cannot be told apart from it.  The crosses are what n refits say.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import onefit

X, y = load_diabetes(return_X_y=True, as_frame=True)
X = X / X.std(ddof=0)
best = onefit.LassoLOO(alphas=60, selection="min").fit(X, y)
sparse = onefit.LassoLOO(alphas=60, selection="1se").fit(X, y)
for rule, model in [("smallest risk", best), ("one standard error", sparse)]:
    print(f"{rule}: alpha {model.alpha_:.3g}, {np.count_nonzero(model.coef_)} coefficients")

# %%
# The same by brute force, at some of the strengths: 442 refits each.

some = best.alphas_[5::14]
refits = []
for alpha in some:
    left_out = cross_val_predict(Lasso(alpha, tol=1e-8), X.to_numpy(), y, cv=LeaveOneOut())
    refits.append(np.mean((y - left_out) ** 2))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4))
onefit.RiskPathDisplay.from_estimator(best).plot(left)
left.plot(some, refits, "x", color="black", label="442 refits each")
left.axvline(sparse.alpha_, color="gray", linestyle=":", label="one standard error")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
onefit.CoefficientPathDisplay.from_estimator(best).plot(right)
plt.show()

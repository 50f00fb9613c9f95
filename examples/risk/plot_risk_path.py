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
from sklearn.preprocessing import scale

import onefit

X, y = load_diabetes(return_X_y=True)
X = scale(X)
best = onefit.LassoLOO(alphas=60, selection="min").fit(X, y)
sparse = onefit.LassoLOO(alphas=60, selection="1se").fit(X, y)
print(f"smallest risk: alpha {best.alpha_:.3g}, {np.count_nonzero(best.coef_)} coefficients")
print(f"one standard error: alpha {sparse.alpha_:.3g}, {np.count_nonzero(sparse.coef_)} coefficients")

# %%
# The same by brute force, at some of the strengths: 442 refits each.

some = best.alphas_[5::14]
refits = [
    np.mean((y - cross_val_predict(Lasso(alpha, tol=1e-8), X, y, cv=LeaveOneOut())) ** 2) for alpha in some
]

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
onefit.RiskPathDisplay.from_estimator(best).plot(left)
left.plot(some, refits, "x", color="black", label="442 refits each")
left.axvline(sparse.alpha_, color="gray", linestyle=":", label="one standard error")
left.legend()
onefit.CoefficientPathDisplay.from_estimator(best).plot(right)
plt.show()

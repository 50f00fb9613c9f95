"""
Which rows decide
=================

Cook's distance of a penalised model, and what becomes of its coefficients without each row: from the same
factorisation as the risk.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso
from sklearn.preprocessing import scale

import onefit

data = load_diabetes()
X, y = scale(data.data), data.target
model = Lasso(2.0, tol=1e-10).fit(X, y)
est = onefit.loo(model, X, y)
influence = est.influence()
print("most influential rows:", influence.rows[:5])

# %%
# Left: distance over leverage.  Right: the coefficients without each row, less those of the fit.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
influence.plot(left)
changes = est.coef() - model.coef_
right.boxplot(changes, orientation="horizontal", tick_labels=data.feature_names, flierprops={"markersize": 3})
right.set_xlabel("change of the coefficient without a row")
plt.show()

# %%
# Without the row that decides most:

row = influence.rows[0]
without = Lasso(2.0, tol=1e-10).fit(np.delete(X, row, axis=0), np.delete(y, row))
print(np.abs(without.coef_ - est.coef()[row]).max().round(9))

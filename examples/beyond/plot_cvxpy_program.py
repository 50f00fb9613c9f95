"""
A convex program of your own
============================

A curve that never falls and has few steps, written in cvxpy with a penalty and a constraint.  onefit reads the program,
leaves rows out of it, a tenth at a time, and so chooses its strength.  Here the constraint regularises enough: the less
penalty, the better.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold

import onefit

data = load_diabetes(scaled=False)
bmi, y = data.data[:120, 2], data.target[:120] / 100
edges = np.quantile(bmi, np.linspace(0, 1, 13)[1:-1])
X = (bmi[:, None] >= edges).astype(float)  # a step at each of eleven places


def model_of(strength):
    steps, base = cp.Variable(X.shape[1]), cp.Variable()
    eta = X @ steps + base
    objective = cp.sum_squares(y - eta) / 2 + strength * cp.norm1(steps)
    program = cp.Problem(cp.Minimize(objective), [steps >= 0])  # the curve never falls
    return onefit.from_cvxpy(program, eta, coef=steps, intercept=base)


# %%
# No formula knows an arbitrary program: rows that leave are solved for anew, so ten folds are ten solutions.

strengths = np.geomspace(0.05, 5, 5)
models = [model_of(strength) for strength in strengths]
left_out = [onefit.loo(model, X, y, groups=KFold(10, shuffle=True, random_state=0)) for model in models]
risks = [est.value for est in left_out]
best = int(np.argmin(risks))
print(f"strength {strengths[best]:.2g}, left-out R² {left_out[best].score('r2'):.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
left.plot(strengths, risks, "o-")
left.set(xscale="log", xlabel="strength", ylabel="left-out squared error")
order = np.argsort(bmi)
right.plot(bmi, y, ".", color="gray")
right.step(bmi[order], models[best].predict(X)[order], where="post")
right.set(xlabel="body mass index", ylabel="progression / 100")
plt.show()

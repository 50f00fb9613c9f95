"""
Which loss? A mixture whose weights are tuned
=============================================

Logistic, squared hinge and exponential loss, mixed with weights on a simplex that a search sets by the gradient of a
five-fold risk.  A tenth of the labels is wrong: what counts is how a loss takes that.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import onefit
from onefit.losses import Exponential, Logistic, Mixture, SquaredHinge
from onefit.penalties import L2

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)[:200]
y = y[:200]
rng = np.random.default_rng(0)
labels = np.where(rng.random(200) < 0.1, 1 - y, y)  # a tenth of the labels is wrong

losses = [Logistic(), SquaredHinge(), Exponential()]
blend = onefit.GeneralizedLinear(Mixture(losses), L2())
risk = onefit.risk.KFold(5)
bounds = {"loss__weights": onefit.Simplex(), "penalty__alpha": (1e-2, 1e3)}
mixed = onefit.GradientSearchCV(blend, bounds, risk=risk).fit(X, labels)
print(mixed.best_params_)

singles = {}
for loss in losses:
    model = onefit.GeneralizedLinear(Mixture([loss]), L2())
    singles[type(loss).__name__] = onefit.GradientSearchCV(
        model, {"penalty__alpha": (1e-2, 1e3)}, risk=risk
    ).fit(X, labels)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
left.bar([type(loss).__name__ for loss in losses], mixed.best_params_["loss__weights"])
left.set(ylabel="weight", title="the mixture that is chosen")
right.bar([*singles, "mixture"], [*(-s.best_score_ for s in singles.values()), -mixed.best_score_])
right.set(title="risk, each judged by its own loss")
plt.show()

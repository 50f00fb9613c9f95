"""
A trend filter on a year of bike rentals
========================================

Piecewise linear, with its breaks where the data want them: 365 coefficients, one a day, whose second differences are
penalised by their sizes.  The strength is chosen by leave-one-out, from one fit a strength.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import onefit
from onefit.penalties import TrendFilter

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "bike_sharing_hour.csv.gz")
daily = table[table["yr"] == 0].groupby("dteday")["cnt"].sum().to_numpy() / 1000
days = np.arange(0, len(daily), 3)
y = daily[days]
identity = np.eye(len(y))  # a coefficient for every day

model = onefit.GeneralizedLinearLOO(penalty=TrendFilter(1, 1.0), alphas=20, fit_intercept=False).fit(
    identity, y
)
bends = np.count_nonzero(np.abs(np.diff(model.coef_, 2)) > 1e-6)
print(
    f"alpha {model.alpha_:.3g}, {bends} bends, left-out risk {model.loo_.value:.3f} ± {model.loo_.std_error:.3f}"
)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=[2, 1])
left.plot(days, y, ".", color="gray")
left.plot(days, model.coef_)
left.set(xlabel="day of 2011", ylabel="thousand rentals")
onefit.RiskPathDisplay.from_estimator(model).plot(right)
plt.show()

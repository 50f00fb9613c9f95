"""
Quantile curves, judged by the pinball loss
===========================================

The 10 %, 50 % and 90 % quantiles of bike rentals over the temperature, with a ridge penalty on splines that
leave-one-out chooses for each quantile: losses with kinks are judged like any other.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.preprocessing import SplineTransformer

import onefit
from onefit.losses import Quantile
from onefit.penalties import L2

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "bike_sharing_hour.csv.gz")
table = table[table["hr"] == 17].sample(120, random_state=0)
temperature, y = table[["temp"]].to_numpy(), table["cnt"].to_numpy() / 100
splines = SplineTransformer(6).fit(temperature)
X = splines.transform(temperature)

grid = np.linspace(temperature.min(), temperature.max(), 100)[:, None]
fig, ax = plt.subplots()
ax.plot(temperature, y, ".", color="gray")
for share in (0.1, 0.5, 0.9):
    fits = [
        onefit.GeneralizedLinear(Quantile(share), L2(strength)).fit(X, y)
        for strength in np.geomspace(0.3, 30, 6)
    ]
    risks = [onefit.loo(fit, X, y, exact=True).value for fit in fits]
    best = fits[int(np.argmin(risks))]
    print(f"{share:.0%}: strength {best.penalty.alpha:.3g}, left-out pinball loss {min(risks):.4f}")
    ax.plot(grid, best.predict(splines.transform(grid)), label=f"{share:.0%}")
ax.set(xlabel="temperature (scaled)", ylabel="rentals at 5 pm, hundreds")
ax.legend()
plt.show()

"""
Rows that come in groups: leave whole patients out
==================================================

42 patients, 140 recordings of each.  Leaving out one recording leaves the others of the same patient in, and the
model looks useful; leaving out the patient shows that it is not.  Both from the same fit.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.preprocessing import scale

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "parkinsons_telemonitoring.csv.gz")
patient = table.pop("subject#").to_numpy()
y = table.pop("total_UPDRS").to_numpy()
X = scale(table.drop(columns="motor_UPDRS"))

strengths = np.geomspace(1, 1e5, 16)
by_row, by_patient = [], []
for strength in strengths:
    model = Ridge(strength).fit(X, y)
    by_row.append(onefit.loo(model, X, y))
    by_patient.append(onefit.loo(model, X, y, groups=patient))

best = int(np.argmin([est.value for est in by_row]))
print(f"a recording left out: {by_row[best].value:.1f} ± {by_row[best].std_error:.1f}")
print(f"a patient left out:   {by_patient[best].value:.1f} ± {by_patient[best].std_error:.1f}")
print(f"the mean for everyone: {np.var(y):.1f}")

# %%
# The standard error for groups is that of the 42 patients, not of 5875 recordings.

fig, ax = plt.subplots()
for name, path in [("one recording left out", by_row), ("one patient left out", by_patient)]:
    value, error = (np.array([getattr(est, key) for est in path]) for key in ("value", "std_error"))
    ax.plot(strengths, value, label=name)
    ax.fill_between(strengths, value - error, value + error, alpha=0.2)
ax.axhline(np.var(y), color="gray", linestyle=":", label="the mean for everyone")
ax.set(xscale="log", xlabel="alpha", ylabel="squared error")
ax.legend()
plt.show()

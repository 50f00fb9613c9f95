"""
Any score from one fit: a left-out ROC curve
============================================

``cross_val_score(cv=LeaveOneOut(), scoring="roc_auc")`` cannot work: a single row has no ROC curve.  Pooled left-out
predictions have one, and so have R², calibration and every other score that needs many rows.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import RocCurveDisplay
from sklearn.preprocessing import scale

import onefit

table = pd.read_csv(Path(os.environ["ONEFIT_DATA"]) / "heart_disease.csv.gz")
y = table.pop("chd").to_numpy()
X = scale(pd.get_dummies(table, drop_first=True, dtype=float))
model = LogisticRegression(C=100.0).fit(X, y)
est = onefit.loo(model, X, y)
for score in ("roc_auc", "accuracy", "neg_log_loss", "neg_brier_score"):
    print(f"{score:16s} {est.score(score):.3f}")

fig, ax = plt.subplots(figsize=(4.6, 4.2))
RocCurveDisplay.from_predictions(y, model.predict_proba(X)[:, 1], ax=ax, name="training rows")
RocCurveDisplay.from_predictions(y, est.predictions[:, 1], ax=ax, name="left out")
plt.show()

"""celer: all minimise a mean but LogisticRegression, a sum."""

from __future__ import annotations

from functools import partial
from typing import Any

import celer

from onefit.losses import Logistic
from onefit.penalties import L1
from onefit.readers.lasso import group_lasso, lasso
from onefit.readers.reading import Reading
from onefit.readers.refitting import chosen, tightly
from onefit.readers.translation import TIED_OUTPUTS, checked, present, reading_of, refused


def _logistic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ logistic loss + ‖β‖₁: a sum, without intercept."""
    data = checked(model, X, y, sample_weight, Logistic(), classes=model.classes_)
    return reading_of(model, data, Logistic(), L1(1.0 / float(model.C)), intercept=False, mean_scaled=False)


_tight = partial(tightly, tol=1e-13)

READINGS = present(
    celer,
    {
        "Lasso": lasso,
        "LassoCV": lasso,
        "ElasticNet": lasso,
        "ElasticNetCV": lasso,
        "GroupLasso": group_lasso,
        "GroupLassoCV": group_lasso,
        "LogisticRegression": _logistic,
    },
)
REFUSALS = present(
    celer, dict.fromkeys(("MultiTaskLasso", "MultiTaskLassoCV"), partial(refused, why=TIED_OUTPUTS))
)
REFERENCES = present(
    celer,
    {
        "Lasso": _tight,
        "ElasticNet": _tight,
        "GroupLasso": _tight,
        "LogisticRegression": _tight,
        "LassoCV": partial(chosen, target="Lasso", attributes=["alpha_"], tol=1e-13),
        "ElasticNetCV": partial(chosen, target="ElasticNet", attributes=["alpha_", "l1_ratio_"], tol=1e-13),
        "GroupLassoCV": partial(chosen, target="GroupLasso", attributes=["alpha_"], tol=1e-13),
    },
)

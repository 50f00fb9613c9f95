"""The lasso and the group lasso, which skglm and celer parametrise alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from onefit.losses import Squared
from onefit.readers.reading import Reading, refuse
from onefit.readers.translation import (
    alpha_of,
    checked,
    elastic_net,
    group_penalty,
    library_of,
    membership_of,
    mix_of,
    reading_of,
    with_signs,
)


def lasso(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ mean r² + alpha Σ w_j (l1_ratio |β_j| + ½ (1 − l1_ratio) β_j²)."""
    data = checked(model, X, y, sample_weight, Squared())
    weights = getattr(model, "weights", None)
    penalty = with_signs(elastic_net(data.total * alpha_of(model), mix_of(model), weights), model)
    return reading_of(model, data, Squared(), penalty, intercept=model.fit_intercept)


def group_lasso(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ mean r² + alpha Σ_g w_g ‖β_g‖: weights are ones by default, not roots of sizes."""
    if getattr(model, "positive", False) and library_of(type(model)) == "skglm":  # celer ignores it
        refuse(model, "positive", "signs of groups have no formula yet; refit with positive=False")
    data = checked(model, X, y, sample_weight, Squared())
    membership, given = membership_of(model.groups, data.X.shape[1]), getattr(model, "weights", None)
    weights = np.ones(membership.max() + 1) if given is None else np.asarray(given, dtype=np.float64)
    penalty = group_penalty(membership, data.total * alpha_of(model) * weights)
    return reading_of(model, data, Squared(), penalty, intercept=model.fit_intercept)

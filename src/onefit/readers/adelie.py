"""adelie: a mean, and an elastic net of groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import adelie.sklearn
import numpy as np

from onefit.exceptions import UnsupportedModelError
from onefit.losses import Logistic, Loss, Poisson, Squared
from onefit.readers.reading import Reading, refuse
from onefit.readers.refitting import Refit
from onefit.readers.translation import (
    AS_CONSTRAINT,
    checked,
    group_penalty,
    present,
    reading_of,
)

LOSSES: dict[str, Loss] = {"gaussian": Squared(), "binomial": Logistic(), "poisson": Poisson()}


def _group_elastic_net(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean loss + lambda Σ_g w_g (alpha ‖β_g‖ + ½ (1 − alpha) ‖β_g‖²); w_g is √size by default."""
    _refuse(model, X)
    loss, state = LOSSES[model.family], model.state_
    classes = np.array([0, 1]) if model.family == "binomial" else None
    data = checked(model, X, y, sample_weight, loss, classes=classes)
    sizes = np.asarray(state.group_sizes, dtype=np.intp)
    strengths = data.total * float(np.ravel(model.lambda_)[0]) * np.asarray(state.penalty, dtype=np.float64)
    alpha = float(state.alpha)
    penalty = group_penalty(
        np.repeat(np.arange(len(sizes)), sizes), alpha * strengths, (1.0 - alpha) * strengths
    )
    reading = reading_of(model, data, loss, penalty, intercept=bool(state.intercept))
    note = "predictions are means; adelie's predict returns linear predictors"
    return replace(reading, notes=(note,)) if model.family == "poisson" else reading


def _refuse(model: Any, X: Any) -> None:
    if model.family not in LOSSES:
        refuse(model, "family", f"supported are {', '.join(LOSSES)}")
    if np.size(model.lambda_) != 1:
        refuse(
            model,
            "solver",
            f"it holds a path of {np.size(model.lambda_)} strengths: fit it with lmda_path=[one], or with "
            "solver='cv_grpnet'",
        )
    if type(X).__module__.startswith("adelie"):
        raise UnsupportedModelError("matrices of adelie have no rows that could be left out: pass an array")
    if np.any(model.state_._offsets):
        raise UnsupportedModelError("offsets have no formula yet: refit without")
    if any(constraint is not None for constraint in model.state_.constraints):
        raise UnsupportedModelError(AS_CONSTRAINT)


def _refit(model: Any) -> Refit:
    """Its hyperparameters are arguments of ``fit``, which a clone forgets."""
    state = model.state_
    given = {
        "groups": np.array(state.groups),
        "penalty": np.array(state.penalty),
        "alpha": float(state.alpha),
        "intercept": bool(state.intercept),
        "lmda_path": np.ravel(model.lambda_),
        "tol": 1e-13,
        "progress_bar": False,
    }
    if model.family != "gaussian":
        given["irls_tol"] = 1e-13
    fitted = partial(_fitted, type(model), model.family, given)
    return Refit(fitted, np.exp if model.family == "poisson" else None)


def _fitted(make: Any, family: str, given: dict[str, Any], X: Any, y: Any, _: Any) -> Any:
    X, y = np.asfortranarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return make(family=family).fit(X, y, **given)


READINGS = present(adelie.sklearn, {"GroupElasticNet": _group_elastic_net})
REFERENCES = present(adelie.sklearn, {"GroupElasticNet": _refit})

"""glum: a mean of weighted unit deviances."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import glum
import numpy as np

from onefit.exceptions import UnsupportedModelError
from onefit.losses import Logistic, Loss, Squared, Tweedie
from onefit.metrics import ShareLogLoss
from onefit.penalties import Box, Penalty, Strengths
from onefit.readers.reading import Reading, refuse
from onefit.readers.refitting import chosen, tightly
from onefit.readers.translation import (
    AS_CONSTRAINT,
    CheckedData,
    alpha_of,
    checked,
    mix_of,
    present,
    reading_of,
)


def _generalized_linear(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ Σ w deviance / Σ w + alpha (l1_ratio ‖P1 β‖₁ + ½ (1 − l1_ratio) βᵀ P2 β)."""
    _refuse(model, X)
    loss = _loss(model)
    data = checked(model, X, y, sample_weight, loss, weighted=True)
    reading = reading_of(model, data, loss, _penalty(model, data), intercept=model.fit_intercept)
    return replace(reading, metric=ShareLogLoss()) if isinstance(loss, Logistic) else reading


def _refuse(model: Any, X: Any) -> None:
    for name in ("A_ineq", "monotonic_constraints"):
        if getattr(model, name, None) is not None:
            refuse(model, name, AS_CONSTRAINT)
    if model.scale_predictors:
        refuse(model, "scale_predictors", "a refit scales anew; put a StandardScaler before it in a pipeline")
    if getattr(model, "alpha_search", False):
        refuse(model, "alpha_search", "it holds a path of strengths; refit with one alpha")
    kinds = getattr(X, "dtypes", ())
    expanded = [kind for kind in np.atleast_1d(kinds) if getattr(kind, "kind", "O") not in "biuf"]
    if model.formula is not None or expanded or type(X).__module__.startswith("tabmat"):
        raise UnsupportedModelError(
            "glum expands formulas and categories on its own: fit it on the numeric design matrix instead"
        )


def _loss(model: Any) -> Loss:
    family, link = model.family_instance, type(model.link_instance).__name__
    links: dict[str, Literal["log", "identity"]] = {"LogLink": "log", "IdentityLink": "identity"}
    if type(family).__name__ == "BinomialDistribution" and link == "LogitLink":
        return Logistic()
    as_tweedie = family.to_tweedie(safe=False)
    if as_tweedie is None or link not in links:
        refuse(
            model,
            "family",
            f"with {link}; supported are normal, poisson, gamma, inverse.gaussian and tweedie with the log "
            "or the identity, and binomial with the logit",
        )
    power = float(as_tweedie.power)
    return Squared() if power == 0 and links[link] == "identity" else Tweedie(power, links[link])


def _penalty(model: Any, data: CheckedData) -> Penalty:
    ratio, factors = mix_of(model), []
    for name in ("P1", "P2"):
        given = getattr(model, name)
        if given is None or (isinstance(given, str) and given == "identity"):
            given = 1.0
        if np.ndim(given) > 1:
            refuse(model, name, "a matrix has no formula yet; give one number a feature")
        factors.append(np.asarray(given, dtype=np.float64))
    penalty = Strengths(data.total * alpha_of(model), l1=ratio * factors[0], l2=(1.0 - ratio) * factors[1])
    lower, upper = model.lower_bounds, model.upper_bounds
    if lower is None and upper is None:
        return penalty
    return penalty + Box(-np.inf if lower is None else lower, np.inf if upper is None else upper)


_CLOSER = {"gradient_tol": 1e-7, "max_iter": 1000}

READINGS = present(
    glum,
    {
        "GeneralizedLinearRegressor": _generalized_linear,
        "GeneralizedLinearRegressorCV": _generalized_linear,
    },
)
REFERENCES = present(
    glum,
    {
        "GeneralizedLinearRegressor": partial(tightly, **_CLOSER),
        "GeneralizedLinearRegressorCV": partial(
            chosen, target="GeneralizedLinearRegressor", attributes=["alpha_", "l1_ratio_"], **_CLOSER
        ),
    },
)

"""sortedl1: a mean, and a sorted ℓ1 norm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import sortedl1
from sklearn.base import clone

from onefit.losses import Logistic, Loss, Poisson, Squared
from onefit.penalties import Slope
from onefit.readers.reading import Reading, refuse
from onefit.readers.refitting import Refit
from onefit.readers.translation import checked, present, reading_of

LOSSES: dict[str, Loss] = {"quadratic": Squared(), "logistic": Logistic(), "poisson": Poisson()}


def _slope(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean loss + alpha Σ_k lambda_k |β|_(k)."""
    if model.loss not in LOSSES:
        refuse(model, "loss", f"supported are {', '.join(LOSSES)}")
    if model.scaling != "none":
        refuse(model, "scaling", "a refit scales anew; put a StandardScaler before it in a pipeline")
    if model.centering != "none" and not model.fit_intercept:
        refuse(model, "centering", "a refit centres anew; fit an intercept instead")
    loss = LOSSES[model.loss]
    classes = np.array([0.0, 1.0]) if model.loss == "logistic" else None
    data = checked(model, X, y, sample_weight, loss, classes=classes)
    penalty = Slope(np.ravel(model.lambda_), data.total * float(model.alpha_))
    reading = reading_of(model, data, loss, penalty, intercept=model.fit_intercept)
    held = model.lam is None and model.lambda_type == "gaussian"  # they depend on the number of rows
    return (
        replace(reading, notes=("the gaussian lambda_ are held at those for all rows",)) if held else reading
    )


def _refit(model: Any) -> Any:
    """Keep the sequence, and for a classifier show its linear predictors, which it hides."""
    closer = {"tol": min(model.tol, 1e-10)}
    if model.loss == "poisson":  # whose duality gap stays above that, whatever the number of iterations
        closer = {"tol": min(model.tol, 1e-7), "max_iter": min(model.max_iter, 1000)}
    tight = clone(model).set_params(lam=np.ravel(model.lambda_), alpha=float(model.alpha_), **closer)
    return Refit(partial(_fitted, tight)) if model.loss == "logistic" else tight


def _fitted(model: Any, X: Any, y: Any, _: Any) -> Any:
    return clone(model).fit(X, y)


READINGS = present(sortedl1, {"Slope": _slope})
REFERENCES = present(sortedl1, {"Slope": _refit})

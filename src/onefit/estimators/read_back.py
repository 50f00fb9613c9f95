"""``onefit.loo`` of the estimators here: refits of a model that tuned itself keep its strength."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import Ridge

from onefit.estimators.generalized import GeneralizedLinear
from onefit.estimators.linear_model import LinearModel, has_classes
from onefit.estimators.penalized import Sample
from onefit.estimators.self_tuned import SelfTuned
from onefit.exceptions import UnsupportedModelError
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.validation import check_rows, check_weights, class_numbers


@reference.register(SelfTuned)
def _with_its_choice(model: SelfTuned) -> Any:
    """Return the unfitted estimator that keeps what was chosen: a refit must not choose anew."""
    if np.ndim(getattr(model, f"{model._strength}_")):
        return Ridge(model.alpha_, fit_intercept=model.fit_intercept)
    chosen: dict[str, Any] = {f"{model._strength}s": [getattr(model, f"{model._strength}_")]}
    chosen |= {"cv": None, "scoring": None}
    if "l1_ratio" in model.get_params():
        chosen["l1_ratio"] = model.l1_ratio_
    return clone(model).set_params(**chosen)


@as_fit.register(SelfTuned)
def _read(model: SelfTuned, X: Any, y: Any, sample_weight: Any) -> Reading:
    if model.offset_given_:
        raise UnsupportedModelError(
            f"this {type(model).__name__} was fitted with an offset, which onefit.loo is not given: its own "
            "leave-one-out is in model.loo_"
        )
    strength = getattr(model, f"{model._strength}_")
    if np.ndim(strength):  # one a target
        strength = np.broadcast_to(strength, (model.n_features_in_, len(strength)))
    ratio = getattr(model, "l1_ratio_", model._ratios()[0])
    return _reading(model, X, y, sample_weight, lambda sample: model._problem(sample, strength, ratio))


@as_fit.register(GeneralizedLinear)
def _read_of_one_strength(model: GeneralizedLinear, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _reading(
        model, X, y, sample_weight, lambda sample: model._problem(sample.X, sample.target, sample.weights)
    )


def _reading(
    model: LinearModel, X: Any, y: Any, sample_weight: Any, problem_of: Callable[[Sample], Problem]
) -> Reading:
    """A fitted model on its rows, and what it minimised."""
    of_classes = has_classes(model)
    X, y = check_rows(model, X, y, numeric=not of_classes, several_outputs=model._several_targets)
    target = class_numbers(y, model.classes_).astype(np.float64) if of_classes else y
    problem = problem_of(Sample(X, y, target, check_weights(sample_weight, X)))
    reading = Reading(model._as_fit(problem), model._metric(), target, solved=isinstance(model, SelfTuned))
    return replace(reading, classes=model.classes_) if of_classes else reading

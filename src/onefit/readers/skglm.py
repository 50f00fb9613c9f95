"""skglm: all minimise a mean but LinearSVC, a sum."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import skglm

from onefit._typing import Index
from onefit.exceptions import UnsupportedModelError
from onefit.losses import Gamma, Hinge, Huber, Logistic, Loss, Poisson, Squared, Tweedie
from onefit.penalties import L1, L2, Box, Penalty, Slope, SparseGroupLasso
from onefit.readers.lasso import group_lasso, lasso
from onefit.readers.reading import Reading
from onefit.readers.refitting import Refit, tightly
from onefit.readers.translation import (
    TIED_OUTPUTS,
    TIED_ROWS,
    checked,
    elastic_net,
    group_penalty,
    placed,
    present,
    reading_of,
    refuse_weights,
    refused,
    with_signs,
)

NOT_CONVEX = (
    "its penalty is not convex, so that the fit is one of many stationary points and a refit without a row "
    "may end at another; take a convex one (L1, WeightedL1, L1_plus_L2)"
)


def _logistic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean logistic loss + alpha (…)."""
    data = checked(model, X, y, sample_weight, Logistic(), classes=model.classes_)
    penalty = elastic_net(data.total * float(model.alpha), float(model.l1_ratio))
    reading = reading_of(model, data, Logistic(), penalty, intercept=model.fit_intercept)
    note = "probabilities are those of the likelihood; skglm's predict_proba doubles the log-odds"
    return replace(reading, notes=(note,))


def _svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ hinge + ½ ‖β‖², a sum; never an intercept, whatever fit_intercept says."""
    data = checked(model, X, y, sample_weight, Hinge(), classes=model.classes_)
    penalty = L2(1.0 / float(model.C))
    return reading_of(model, data, Hinge(), penalty, intercept=False, mean_scaled=False)


DATAFITS: dict[str, Callable[[Any], Loss]] = {  # all are means
    "Quadratic": lambda _: Squared(),
    "QuadraticGroup": lambda _: Squared(),
    "WeightedQuadratic": lambda _: Squared(),
    "Huber": lambda datafit: Huber(float(datafit.delta)),
    "Logistic": lambda _: Logistic(),
    "LogisticGroup": lambda _: Logistic(),
    "Poisson": lambda _: Poisson(),
    "PoissonGroup": lambda _: Poisson(),
    "Gamma": lambda _: Gamma(),
}
REFUSED_DATAFITS = {
    "Cox": TIED_ROWS,
    "QuadraticMultiTask": TIED_OUTPUTS,
    "QuadraticSVC": "take skglm.LinearSVC, which is the same",
    "QuadraticHessian": "it has no rows to leave out",
}
PENALTIES: dict[str, Callable[[Any, float], Penalty]] = {  # from the penalty and the number of rows
    "L1": lambda penalty, n: with_signs(L1(n * penalty.alpha), penalty),
    "L1_plus_L2": lambda penalty, n: with_signs(elastic_net(n * penalty.alpha, penalty.l1_ratio), penalty),
    "WeightedL1": lambda penalty, n: with_signs(
        elastic_net(n * penalty.alpha, 1.0, penalty.weights), penalty
    ),
    "PositiveConstraint": lambda _, __: Box(lower=0.0),
    "SLOPE": lambda penalty, n: Slope(np.asarray(penalty.alphas), n * float(penalty.alpha)),
    "WeightedGroupL2": lambda penalty, n: group_penalty(
        _groups(penalty), n * penalty.alpha * np.asarray(penalty.weights)
    ),
    "WeightedL1GroupL2": lambda penalty, n: _sparse_group_lasso(penalty, n),
}
REFUSED_PENALTIES = {
    "MCPenalty": NOT_CONVEX,
    "WeightedMCPenalty": NOT_CONVEX,
    "SCAD": NOT_CONVEX,
    "L0_5": NOT_CONVEX,
    "L2_3": NOT_CONVEX,
    "LogSumPenalty": NOT_CONVEX,
    "L2_05": NOT_CONVEX,
    "BlockMCPenalty": NOT_CONVEX,
    "BlockSCAD": NOT_CONVEX,
    "L2_1": TIED_OUTPUTS,
    "IndicatorBox": "only as the dual of a support vector machine: take skglm.LinearSVC",
}


def _groups(penalty: Any) -> Index:
    return placed(np.asarray(penalty.grp_indices, dtype=np.intp), np.diff(penalty.grp_ptr))


def _sparse_group_lasso(penalty: Any, n: float) -> Penalty:
    features = np.asarray(penalty.weights_features, dtype=np.float64)
    if np.ptp(features) > 0:
        raise UnsupportedModelError(
            "WeightedL1GroupL2 with weights_features that differ has no formula yet: give all the same"
        )
    groups = np.asarray(penalty.weights_groups, dtype=np.float64)
    if features[0] == 0:
        return group_penalty(_groups(penalty), n * penalty.alpha * groups)
    alpha = 2.0 * n * float(penalty.alpha) * features[0]  # half of it for each part
    return SparseGroupLasso(_groups(penalty), alpha, weights=groups / features[0])


def _known(model: Any, part: Any, known: dict[str, Any], reasons: dict[str, str], kind: str) -> Any:
    """Look up how a datafit or a penalty is read."""
    name = type(part).__name__
    if not type(part).__module__.startswith("skglm.") or name not in known:
        why = reasons.get(name, f"supported are {', '.join(known)}")
        raise UnsupportedModelError(
            f"{type(model).__name__} with {kind} {name} has no leave-one-out formula: {why}"
        )
    return known[name]


def _any(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Any datafit, which is a mean, and any penalty."""
    model = getattr(model, "best_estimator_", model)
    loss = _known(model, model.datafit, DATAFITS, REFUSED_DATAFITS, "datafit")(model.datafit)
    convert = _known(model, model.penalty, PENALTIES, REFUSED_PENALTIES, "penalty")
    if getattr(model.penalty, "positive", False) and type(model.penalty).__name__ == "WeightedGroupL2":
        raise UnsupportedModelError(f"{type(model.penalty).__name__}(positive=True) has no formula yet")
    classes = model.classes_ if isinstance(loss, Logistic) else None
    _check_datafit_weights(model, sample_weight)
    data = checked(model, X, y, sample_weight, loss, classes=classes, weighted=True)
    intercept = bool(getattr(model.solver, "fit_intercept", False))
    return reading_of(model, data, loss, convert(model.penalty, data.total), intercept=intercept)


def _check_datafit_weights(model: Any, sample_weight: Any) -> None:
    """Refuse other weights of the rows than skglm keeps in its datafit."""
    own = getattr(model.datafit, "sample_weights", None)
    if own is None:
        refuse_weights(model, sample_weight)
    elif sample_weight is None or not np.array_equal(sample_weight, own):
        raise ValueError(
            "pass sample_weight=model.datafit.sample_weights, the weights that it was fitted with"
        )


def _refit(model: Any) -> Refit:
    """GeneralizedLinearEstimator cannot be cloned: its parameters are not those of its constructor.

    Nor can its parts be copied: what a copy leaves on their class, numba does not compile.
    """
    model = getattr(model, "best_estimator_", model)
    solver = copy.copy(model.solver)
    solver.tol = min(solver.tol, 1e-9)
    solver.max_iter = max(solver.max_iter, 100_000 if type(solver).__name__ == "FISTA" else 1000)
    datafit, penalty = ((type(part), part.params_to_dict()) for part in (model.datafit, model.penalty))
    has_log = isinstance(DATAFITS[type(model.datafit).__name__](model.datafit), Tweedie)
    return Refit(partial(_fitted, type(model), datafit, penalty, solver), np.exp if has_log else None)


def _fitted(make: Any, datafit: Any, penalty: Any, solver: Any, X: Any, y: Any, weights: Any) -> Any:
    own = {} if weights is None else {"sample_weights": np.asarray(weights, dtype=np.float64)}
    parts = datafit[0](**(datafit[1] | own)), penalty[0](**penalty[1])
    return make(*parts, copy.copy(solver)).fit(X, y)


_tight = partial(tightly, tol=1e-10, max_iter=1000)

READINGS = present(
    skglm,
    {
        "Lasso": lasso,
        "WeightedLasso": lasso,
        "ElasticNet": lasso,
        "GroupLasso": group_lasso,
        "SparseLogisticRegression": _logistic,
        "LinearSVC": _svc,
        "GeneralizedLinearEstimator": _any,
        "GeneralizedLinearEstimatorCV": _any,
    },
)
REFUSALS = present(
    skglm,
    {
        "MCPRegression": partial(refused, why=NOT_CONVEX),
        "CoxEstimator": partial(refused, why=TIED_ROWS),
        "MultiTaskLasso": partial(refused, why=TIED_OUTPUTS),
    },
)
REFERENCES = present(
    skglm,
    {
        "Lasso": _tight,
        "WeightedLasso": _tight,
        "ElasticNet": _tight,
        "GroupLasso": _tight,
        "SparseLogisticRegression": _tight,
        "LinearSVC": _tight,
        "GeneralizedLinearEstimator": _refit,
        "GeneralizedLinearEstimatorCV": _refit,
    },
)

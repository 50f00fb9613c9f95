"""Estimators of skglm, celer, glum, adelie and sortedl1, none of which is imported unless one comes.

All minimise a mean, so that the total penalty shrinks when a row leaves; but for celer's
LogisticRegression and skglm's LinearSVC, which minimise a sum.  None of their intercepts is penalised.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import Gamma, Hinge, Huber, Logistic, Loss, Poisson, Squared, Tweedie
from onefit.metrics import Deviance, HingeLoss, LinearMetric, LogLoss, ShareLogLoss, SquaredError
from onefit.penalties import (
    L1,
    L2,
    Box,
    ElasticNet,
    GroupLasso,
    Penalty,
    SeparablePenalty,
    Slope,
    SparseGroupLasso,
    Strengths,
)
from onefit.problem import Problem
from onefit.readers.reading import Reading, as_fit, read, refuse
from onefit.refits import reference, untuned
from onefit.validation import check_new_rows, check_range, check_rows, check_weights, class_numbers

Reader: TypeAlias = Callable[[Any, Any, Any, Any], Reading]

# --- what is common --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Data:
    """Checked data, the response in the terms of the loss."""

    X: Design
    y: Array
    weights: Array
    classes: Any | None = None

    @property
    def total(self) -> float:
        """What the strength of a penalty on a mean is multiplied with."""
        return float(self.weights.sum())


def _data(model: Any, X: Any, y: Any, loss: Loss, *, classes: Any = None) -> _Data:
    """Check data of a model that was fitted without weights."""
    X, y = check_rows(model, _unnamed(model, X), y, numeric=classes is None)
    if classes is not None:
        _refuse_many(model, classes)
        y = class_numbers(y, classes).astype(np.float64)
    if isinstance(loss, Tweedie):
        check_range(y, loss.power)
    if np.size(_coefficients(model)) != X.shape[1]:
        raise NotFittedToDataError(
            f"the model has {np.size(_coefficients(model))} coefficients, but X has {X.shape[1]} columns: "
            "pass the data it was fitted on"
        )
    return _Data(X, y, np.ones(X.shape[0]), classes)


def _unnamed(model: Any, X: Any) -> Any:
    """Rows without names of columns, where the estimator keeps none itself."""
    return np.asarray(X) if hasattr(X, "columns") and not hasattr(model, "feature_names_in_") else X


def _new_rows(model: Any, X: Any) -> Design:
    return check_new_rows(model, _unnamed(model, X))


def _refuse_many(model: Any, classes: Any) -> None:
    if len(classes) > 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} with {len(classes)} classes is one model a class: take "
            "sklearn.multiclass.OneVsRestClassifier and one of its models"
        )


def _refuse_weights(model: Any, sample_weight: Any) -> None:
    if sample_weight is not None:
        raise ValueError(
            f"{type(model).__name__} of {_library(model)} knows no sample_weight, and was fitted without: "
            "leave it out"
        )


def _library(model: Any) -> str:
    return type(model).__module__.partition(".")[0]


def _coefficients(model: Any) -> Array:
    coef = model.coef_.toarray() if _linalg.is_sparse(model.coef_) else model.coef_
    return np.ravel(np.asarray(coef, dtype=np.float64))


def _reading(
    model: Any, data: _Data, loss: Loss, penalty: Penalty, *, intercept: bool, mean_scaled: bool = True
) -> Reading:
    level = np.asarray(float(np.ravel(model.intercept_)[0]))
    problem = Problem(loss, penalty, data.X, data.y, data.weights, np.array(intercept), mean_scaled)
    fit = Fit(problem, _coefficients(model), level)
    metric = _metric(loss, data.classes)
    return Reading(fit, metric, data.y, data.classes, design=partial(_new_rows, model))


def _metric(loss: Loss, classes: Any) -> LinearMetric:
    if isinstance(loss, Logistic):
        return LogLoss(np.asarray(classes))
    if isinstance(loss, Hinge):
        return HingeLoss(np.asarray(classes))
    return Deviance(loss) if isinstance(loss, Tweedie) else SquaredError()


def _elastic_net(total: float, ratio: float, weights: Any = None) -> SeparablePenalty:
    """Weights, one a feature, of both parts."""
    alpha = total if weights is None else total * np.asarray(weights, dtype=np.float64)
    if ratio in (0.0, 1.0):
        return L1(alpha) if ratio else L2(alpha)
    return ElasticNet(alpha, ratio)


def _membership(groups: Any, p: int) -> Index:
    """Group of each feature, from the size of all groups, the sizes, or the columns of each."""
    if isinstance(groups, int | np.integer):
        return np.arange(p) // int(groups)
    if np.ndim(groups[0]) == 0:
        return np.repeat(np.arange(len(groups)), groups)
    columns, sizes = np.concatenate([np.asarray(g) for g in groups]), [len(g) for g in groups]
    return _placed(columns.astype(np.intp), sizes)


def _placed(columns: Index, sizes: Any) -> Index:
    """Group of each feature, from the columns of all groups one after another."""
    membership = np.empty(len(columns), dtype=np.intp)
    membership[columns] = np.repeat(np.arange(len(sizes)), sizes)
    return membership


def _of_groups(membership: Index, strengths: Array, ridge: Array | None = None) -> Penalty:
    """Σ_g s_g ‖β_g‖ + ½ Σ_g r_g ‖β_g‖²; groups of one feature are an ℓ1 penalty."""
    l2 = np.zeros(len(membership)) if ridge is None else ridge[membership]
    if len(strengths) == len(membership):
        return Strengths(l1=strengths[membership], l2=l2)
    if not np.any(strengths):
        return L2(l2)
    kinked = GroupLasso(membership, weights=strengths)
    return L2(l2) + kinked if np.any(l2) else kinked


def _refused(model: Any, X: Any, y: Any, sample_weight: Any, *, why: str) -> NoReturn:
    raise UnsupportedModelError(
        f"no leave-one-out formula for {_library(model)}'s {type(model).__name__}: {why}"
    )


NOT_CONVEX = (
    "its penalty is not convex, so that the fit is one of many stationary points and a refit without a row "
    "may end at another; take a convex one (L1, WeightedL1, L1_plus_L2)"
)
TIED_ROWS = "the partial likelihood ties the rows together, so that no row has a loss of its own"
TIED_OUTPUTS = "its penalty ties the outputs together; fit one Lasso an output"
AS_CONSTRAINT = "constraints have no formula here; refit without"

# --- refits of what cannot be cloned -----------------------------------------------------------------


class Refit(BaseEstimator):
    """An estimator that a function fits, for those that cannot be cloned or hide their linear predictor.

    Parameters
    ----------
    fitted : callable
        From X, y and weights (or None) to a fitted estimator with ``coef_`` and ``intercept_``.
    mean : callable, optional
        From linear predictors to predictions.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> model = Refit(lambda X, y, sample_weight: Ridge(0.0).fit(X, y, sample_weight))
    >>> float(model.fit([[0.0], [1.0]], [0.0, 2.0]).predict([[2.0]])[0].round(6))
    4.0
    """

    def __init__(self, fitted: Any, mean: Any = None) -> None:
        self.fitted = fitted
        self.mean = mean

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Refit:
        """Fit."""
        self.model_ = self.fitted(X, y, sample_weight)
        if hasattr(self.model_, "classes_"):
            self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,)."""
        X = X if _linalg.is_sparse(X) else np.asarray(X)
        return np.asarray(X @ _coefficients(self.model_) + np.ravel(self.model_.intercept_)[0])

    def predict(self, X: Any) -> Array:
        """Predicted means: (n,)."""
        eta = self.decision_function(X)
        return eta if self.mean is None else self.mean(eta)


def _tightly(model: Any, **closer: float) -> Any:
    """Clone, and solve to the optimum: a smaller tolerance, more iterations."""
    given = model.get_params(deep=False)
    bound = {name: max if name.startswith("max_") else min for name in closer}
    changes = {
        name: limit if given[name] is None else bound[name](given[name], limit)
        for name, limit in closer.items()
    }
    return clone(model).set_params(**changes)


def _chosen(model: Any, target: str, attributes: Sequence[str], **closer: float) -> Any:
    """Return what a class that tunes itself has chosen."""
    values = {name.rstrip("_"): float(getattr(model, name)) for name in attributes}
    return _tightly(untuned(model, getattr(import_module(_library(model)), target), **values), **closer)


# --- lasso and group lasso, of skglm and celer alike ---------------------------------------------------


def _lasso(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ mean r² + alpha Σ w_j (l1_ratio |β_j| + ½ (1 − l1_ratio) β_j²)."""
    _refuse_weights(model, sample_weight)
    data = _data(model, X, y, Squared())
    ratio = float(getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 1.0)))
    penalty = _elastic_net(data.total * _alpha(model), ratio, getattr(model, "weights", None))
    signed = _with_signs(penalty, model)
    return _reading(model, data, Squared(), signed, intercept=model.fit_intercept)


def _group_lasso(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ mean r² + alpha Σ_g w_g ‖β_g‖: weights are ones by default, not roots of sizes."""
    _refuse_weights(model, sample_weight)
    if getattr(model, "positive", False) and _library(model) == "skglm":  # celer ignores it
        refuse(model, "positive", "signs of groups have no formula yet; refit with positive=False")
    data = _data(model, X, y, Squared())
    membership, given = _membership(model.groups, data.X.shape[1]), getattr(model, "weights", None)
    weights = np.ones(membership.max() + 1) if given is None else np.asarray(given, dtype=np.float64)
    penalty = _of_groups(membership, data.total * _alpha(model) * weights)
    return _reading(model, data, Squared(), penalty, intercept=model.fit_intercept)


def _alpha(model: Any) -> float:
    """The strength that was chosen, where the class tunes itself."""
    alpha = getattr(model, "alpha_", None)
    return float((model.alpha if alpha is None else alpha) or 0.0)


def _with_signs(penalty: SeparablePenalty, given: Any) -> Penalty:
    """``positive=True`` is a bound at zero."""
    return penalty + Box(lower=0.0) if getattr(given, "positive", False) else penalty


# --- skglm -----------------------------------------------------------------------------------------


def _skglm_logistic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean logistic loss + alpha (…)."""
    _refuse_weights(model, sample_weight)
    data = _data(model, X, y, Logistic(), classes=model.classes_)
    penalty = _elastic_net(data.total * float(model.alpha), float(model.l1_ratio))
    reading = _reading(model, data, Logistic(), penalty, intercept=model.fit_intercept)
    note = "probabilities are those of the likelihood; skglm's predict_proba doubles the log-odds"
    return replace(reading, notes=(note,))


def _skglm_svc(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ hinge + ½ ‖β‖², a sum; never an intercept, whatever fit_intercept says."""
    _refuse_weights(model, sample_weight)
    data = _data(model, X, y, Hinge(), classes=model.classes_)
    penalty = L2(1.0 / float(model.C))
    return _reading(model, data, Hinge(), penalty, intercept=False, mean_scaled=False)


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
    "L1": lambda penalty, n: _with_signs(L1(n * penalty.alpha), penalty),
    "L1_plus_L2": lambda penalty, n: _with_signs(_elastic_net(n * penalty.alpha, penalty.l1_ratio), penalty),
    "WeightedL1": lambda penalty, n: _with_signs(
        _elastic_net(n * penalty.alpha, 1.0, penalty.weights), penalty
    ),
    "PositiveConstraint": lambda _, __: Box(lower=0.0),
    "SLOPE": lambda penalty, n: Slope(np.asarray(penalty.alphas), n * float(penalty.alpha)),
    "WeightedGroupL2": lambda penalty, n: _of_groups(
        _skglm_membership(penalty), n * penalty.alpha * np.asarray(penalty.weights)
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


def _skglm_membership(penalty: Any) -> Index:
    return _placed(np.asarray(penalty.grp_indices, dtype=np.intp), np.diff(penalty.grp_ptr))


def _sparse_group_lasso(penalty: Any, n: float) -> Penalty:
    features = np.asarray(penalty.weights_features, dtype=np.float64)
    if np.ptp(features) > 0:
        raise UnsupportedModelError(
            "WeightedL1GroupL2 with weights_features that differ has no formula yet: give all the same"
        )
    groups = np.asarray(penalty.weights_groups, dtype=np.float64)
    if features[0] == 0:
        return _of_groups(_skglm_membership(penalty), n * penalty.alpha * groups)
    alpha = 2.0 * n * float(penalty.alpha) * features[0]  # half of it for each part
    return SparseGroupLasso(_skglm_membership(penalty), alpha, weights=groups / features[0])


def _of_skglm(model: Any, part: Any, known: dict[str, Any], reasons: dict[str, str], kind: str) -> Any:
    """Look up how a datafit or a penalty is read."""
    name = type(part).__name__
    if not type(part).__module__.startswith("skglm.") or name not in known:
        why = reasons.get(name, f"supported are {', '.join(known)}")
        raise UnsupportedModelError(
            f"{type(model).__name__} with {kind} {name} has no leave-one-out formula: {why}"
        )
    return known[name]


def _skglm_any(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Any datafit, which is a mean, and any penalty."""
    loss = _of_skglm(model, model.datafit, DATAFITS, REFUSED_DATAFITS, "datafit")(model.datafit)
    convert = _of_skglm(model, model.penalty, PENALTIES, REFUSED_PENALTIES, "penalty")
    if getattr(model.penalty, "positive", False) and type(model.penalty).__name__ == "WeightedGroupL2":
        raise UnsupportedModelError(f"{type(model.penalty).__name__}(positive=True) has no formula yet")
    classes = model.classes_ if isinstance(loss, Logistic) else None
    data = _data(model, X, y, loss, classes=classes)
    data = replace(data, weights=_datafit_weights(model, data, sample_weight))
    intercept = bool(getattr(model.solver, "fit_intercept", False))
    return _reading(model, data, loss, convert(model.penalty, data.total), intercept=intercept)


def _datafit_weights(model: Any, data: _Data, sample_weight: Any) -> Array:
    """Weights of the rows, which skglm keeps in its datafit."""
    own = getattr(model.datafit, "sample_weights", None)
    if own is None:
        _refuse_weights(model, sample_weight)
        return data.weights
    given = None if sample_weight is None else check_weights(sample_weight, data.X)
    if given is None or not np.array_equal(given, own):
        raise ValueError(
            "pass sample_weight=model.datafit.sample_weights, the weights that it was fitted with"
        )
    return given


def _skglm_tuned(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    return read(model.best_estimator_, X, y, sample_weight)


def _skglm_refit(model: Any) -> Refit:
    """GeneralizedLinearEstimator cannot be cloned: its parameters are not those of its constructor.

    Nor can its parts be copied: what a copy leaves on their class, numba does not compile.
    """
    model = getattr(model, "best_estimator_", model)
    solver = copy.copy(model.solver)
    solver.tol = min(solver.tol, 1e-9)
    solver.max_iter = max(solver.max_iter, 100_000 if type(solver).__name__ == "FISTA" else 1000)
    datafit, penalty = ((type(part), part.params_to_dict()) for part in (model.datafit, model.penalty))
    has_log = isinstance(DATAFITS[type(model.datafit).__name__](model.datafit), Tweedie)
    return Refit(partial(_skglm_fitted, type(model), datafit, penalty, solver), np.exp if has_log else None)


def _skglm_fitted(make: Any, datafit: Any, penalty: Any, solver: Any, X: Any, y: Any, weights: Any) -> Any:
    own = {} if weights is None else {"sample_weights": np.asarray(weights, dtype=np.float64)}
    parts = datafit[0](**(datafit[1] | own)), penalty[0](**penalty[1])
    return make(*parts, copy.copy(solver)).fit(X, y)


# --- celer -----------------------------------------------------------------------------------------


def _celer_logistic(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """C Σ logistic loss + ‖β‖₁: a sum, without intercept."""
    _refuse_weights(model, sample_weight)
    data = _data(model, X, y, Logistic(), classes=model.classes_)
    return _reading(model, data, Logistic(), L1(1.0 / float(model.C)), intercept=False, mean_scaled=False)


# --- glum ------------------------------------------------------------------------------------------


def _glum(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """½ Σ w deviance / Σ w + alpha (l1_ratio ‖P1 β‖₁ + ½ (1 − l1_ratio) βᵀ P2 β)."""
    _refuse_of_glum(model, X)
    loss = _glum_loss(model)
    data = _data(model, X, y, loss)
    data = replace(data, weights=check_weights(sample_weight, data.X))
    reading = _reading(model, data, loss, _glum_penalty(model, data), intercept=model.fit_intercept)
    return replace(reading, metric=ShareLogLoss()) if isinstance(loss, Logistic) else reading


def _refuse_of_glum(model: Any, X: Any) -> None:
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


def _glum_loss(model: Any) -> Loss:
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


def _glum_penalty(model: Any, data: _Data) -> Penalty:
    ratio = float(getattr(model, "l1_ratio_", model.l1_ratio))
    factors = []
    for name in ("P1", "P2"):
        given = getattr(model, name)
        if given is None or (isinstance(given, str) and given == "identity"):
            given = 1.0
        if np.ndim(given) > 1 or _linalg.is_sparse(given):
            refuse(model, name, "a matrix has no formula yet; give one number a feature")
        factors.append(np.asarray(given, dtype=np.float64))
    penalty = Strengths(data.total * _alpha(model), l1=ratio * factors[0], l2=(1.0 - ratio) * factors[1])
    if model.lower_bounds is None and model.upper_bounds is None:
        return penalty
    lower, upper = model.lower_bounds, model.upper_bounds
    return penalty + Box(-np.inf if lower is None else lower, np.inf if upper is None else upper)


# --- adelie ----------------------------------------------------------------------------------------

ADELIE_LOSSES: dict[str, Loss] = {"gaussian": Squared(), "binomial": Logistic(), "poisson": Poisson()}


def _adelie(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean loss + lambda Σ_g w_g (alpha ‖β_g‖ + ½ (1 − alpha) ‖β_g‖²); w_g is √size by default."""
    _refuse_weights(model, sample_weight)
    _refuse_of_adelie(model, X)
    loss, state = ADELIE_LOSSES[model.family], model.state_
    classes = np.array([0, 1]) if model.family == "binomial" else None
    data = _data(model, X, y, loss, classes=classes)
    sizes = np.asarray(state.group_sizes, dtype=np.intp)
    strengths = data.total * float(np.ravel(model.lambda_)[0]) * np.asarray(state.penalty, dtype=np.float64)
    alpha = float(state.alpha)
    penalty = _of_groups(
        np.repeat(np.arange(len(sizes)), sizes), alpha * strengths, (1.0 - alpha) * strengths
    )
    reading = _reading(model, data, loss, penalty, intercept=bool(state.intercept))
    note = "predictions are means; adelie's predict returns linear predictors"
    return replace(reading, notes=(note,)) if model.family == "poisson" else reading


def _refuse_of_adelie(model: Any, X: Any) -> None:
    if model.family not in ADELIE_LOSSES:
        refuse(model, "family", f"supported are {', '.join(ADELIE_LOSSES)}")
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


def _adelie_refit(model: Any) -> Refit:
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
    fitted = partial(_adelie_fitted, type(model), model.family, given)
    return Refit(fitted, np.exp if model.family == "poisson" else None)


def _adelie_fitted(make: Any, family: str, given: dict[str, Any], X: Any, y: Any, _: Any) -> Any:
    X, y = np.asfortranarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return make(family=family).fit(X, y, **given)


# --- sortedl1 --------------------------------------------------------------------------------------

SLOPE_LOSSES: dict[str, Loss] = {"quadratic": Squared(), "logistic": Logistic(), "poisson": Poisson()}


def _slope(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Mean loss + alpha Σ_k lambda_k |β|_(k)."""
    _refuse_weights(model, sample_weight)
    if model.loss not in SLOPE_LOSSES:
        refuse(model, "loss", f"supported are {', '.join(SLOPE_LOSSES)}")
    if model.scaling != "none":
        refuse(model, "scaling", "a refit scales anew; put a StandardScaler before it in a pipeline")
    if model.centering != "none" and not model.fit_intercept:
        refuse(model, "centering", "a refit centres anew; fit an intercept instead")
    loss = SLOPE_LOSSES[model.loss]
    data = _data(model, X, y, loss, classes=np.array([0.0, 1.0]) if model.loss == "logistic" else None)
    penalty = Slope(np.ravel(model.lambda_), data.total * float(model.alpha_))
    reading = _reading(model, data, loss, penalty, intercept=model.fit_intercept)
    held = model.lam is None and model.lambda_type == "gaussian"  # they depend on the number of rows
    return (
        replace(reading, notes=("the gaussian lambda_ are held at those for all rows",)) if held else reading
    )


def _slope_refit(model: Any) -> Any:
    """Keep the sequence, and for a classifier show its linear predictors, which it hides."""
    closer = {"tol": min(model.tol, 1e-10)}
    if model.loss == "poisson":  # whose duality gap stays above that, whatever the number of iterations
        closer = {"tol": min(model.tol, 1e-7), "max_iter": min(model.max_iter, 1000)}
    tight = clone(model).set_params(lam=np.ravel(model.lambda_), alpha=float(model.alpha_), **closer)
    return Refit(partial(_slope_fitted, tight)) if model.loss == "logistic" else tight


def _slope_fitted(model: Any, X: Any, y: Any, _: Any) -> Any:
    return clone(model).fit(X, y)


# --- the register ------------------------------------------------------------------------------------

_tight_skglm = partial(_tightly, tol=1e-10, max_iter=1000)
_tight_celer = partial(_tightly, tol=1e-13)
_tight_glum = partial(_tightly, gradient_tol=1e-7, max_iter=1000)

READINGS: dict[str, dict[str, Reader]] = {  # by module and class
    "skglm": {
        "Lasso": _lasso,
        "WeightedLasso": _lasso,
        "ElasticNet": _lasso,
        "GroupLasso": _group_lasso,
        "SparseLogisticRegression": _skglm_logistic,
        "LinearSVC": _skglm_svc,
        "GeneralizedLinearEstimator": _skglm_any,
        "GeneralizedLinearEstimatorCV": _skglm_tuned,
        "MCPRegression": partial(_refused, why=NOT_CONVEX),
        "CoxEstimator": partial(_refused, why=TIED_ROWS),
        "MultiTaskLasso": partial(_refused, why=TIED_OUTPUTS),
    },
    "celer": {
        "Lasso": _lasso,
        "LassoCV": _lasso,
        "ElasticNet": _lasso,
        "ElasticNetCV": _lasso,
        "GroupLasso": _group_lasso,
        "GroupLassoCV": _group_lasso,
        "LogisticRegression": _celer_logistic,
        "MultiTaskLasso": partial(_refused, why=TIED_OUTPUTS),
        "MultiTaskLassoCV": partial(_refused, why=TIED_OUTPUTS),
    },
    "glum": {"GeneralizedLinearRegressor": _glum, "GeneralizedLinearRegressorCV": _glum},
    "adelie.sklearn": {"GroupElasticNet": _adelie},
    "sortedl1": {"Slope": _slope},
}

REFERENCES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "skglm": {
        "Lasso": _tight_skglm,
        "WeightedLasso": _tight_skglm,
        "ElasticNet": _tight_skglm,
        "GroupLasso": _tight_skglm,
        "SparseLogisticRegression": _tight_skglm,
        "LinearSVC": _tight_skglm,
        "GeneralizedLinearEstimator": _skglm_refit,
        "GeneralizedLinearEstimatorCV": _skglm_refit,
    },
    "celer": {
        "Lasso": _tight_celer,
        "ElasticNet": _tight_celer,
        "GroupLasso": _tight_celer,
        "LogisticRegression": _tight_celer,
        "LassoCV": partial(_chosen, target="Lasso", attributes=["alpha_"], tol=1e-13),
        "ElasticNetCV": partial(_chosen, target="ElasticNet", attributes=["alpha_", "l1_ratio_"], tol=1e-13),
        "GroupLassoCV": partial(_chosen, target="GroupLasso", attributes=["alpha_"], tol=1e-13),
    },
    "glum": {
        "GeneralizedLinearRegressor": _tight_glum,
        "GeneralizedLinearRegressorCV": partial(
            _chosen,
            target="GeneralizedLinearRegressor",
            attributes=["alpha_", "l1_ratio_"],
            gradient_tol=1e-7,
            max_iter=1000,
        ),
    },
    "adelie.sklearn": {"GroupElasticNet": _adelie_refit},
    "sortedl1": {"Slope": _slope_refit},
}


@cache
def register(library: str) -> None:
    """Register how a library's estimators are read and refitted.

    Parameters
    ----------
    library : str
        One of ``reading.FOREIGN``; it must be installed.
    """
    for functions, table in ((as_fit, READINGS), (reference, REFERENCES)):
        for module, entries in table.items():
            if module.partition(".")[0] != library:
                continue
            for name, function in entries.items():
                if hasattr(import_module(module), name):  # not every version has every class
                    functions.register(getattr(import_module(module), name), function)

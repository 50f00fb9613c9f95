"""What readers share: checks of the data, scales of penalties.

All losses are means unless a reader says otherwise, so that the total penalty shrinks when a row leaves.  No
intercept is penalised, unless liblinear fits it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.balance import Balance
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import Loss, Tweedie
from onefit.metrics import metric_of_loss
from onefit.penalties import L1, L2, Box, ElasticNet, GroupLasso, Penalty, SeparablePenalty, Strengths
from onefit.problem import Problem
from onefit.readers.reading import Reading
from onefit.validation import check_new_rows, check_range, check_rows, check_weights, class_numbers


@dataclass(frozen=True, eq=False)
class CheckedData:
    """Checked data, the response in the terms of the loss."""

    X: Design
    y: Array
    weights: Array
    classes: Any | None = None
    balance: Balance | None = None

    @property
    def total(self) -> float:
        """What the strength of a penalty on a mean is multiplied with."""
        return float(self.weights.sum())


def checked(
    model: Any, X: Any, y: Any, sample_weight: Any, loss: Loss, *, classes: Any = None, weighted: bool = False
) -> CheckedData:
    """Check data, of a model that was fitted without weights unless it is said to know them."""
    if not weighted:
        refuse_weights(model, sample_weight)
    X, y = check_rows(model, _unnamed(model, X), y, numeric=classes is None)
    if classes is not None:
        if len(classes) > 2:
            raise UnsupportedModelError(
                f"{type(model).__name__} with {len(classes)} classes is one model a class: take "
                "sklearn.multiclass.OneVsRestClassifier and one of its models"
            )
        y = class_numbers(y, classes).astype(np.float64)
    if isinstance(loss, Tweedie):
        check_range(y, loss.power)
    if np.size(coefficients(model)) != X.shape[1]:
        raise NotFittedToDataError(
            f"the model has {np.size(coefficients(model))} coefficients, but X has {X.shape[1]} columns: "
            "pass the data it was fitted on"
        )
    return CheckedData(X, y, check_weights(sample_weight, X), classes)


def _unnamed(model: Any, X: Any) -> Any:
    """Rows without names of columns, where the estimator of another library keeps none itself."""
    keeps_names = hasattr(model, "feature_names_in_") or library_of(type(model)) == "sklearn"
    return np.asarray(X) if hasattr(X, "columns") and not keeps_names else X


def new_rows(model: Any, X: Any) -> Design:
    """Check new rows, which come as those of the fit did."""
    return check_new_rows(model, _unnamed(model, X))


def refuse_weights(model: Any, sample_weight: Any) -> None:
    """Refuse weights of rows, which the library does not know."""
    if sample_weight is not None:
        raise ValueError(
            f"{type(model).__name__} of {library_of(type(model))} knows no sample_weight, and was fitted "
            "without: leave it out"
        )


def library_of(kind: type) -> str:
    """Name of the package that a class of estimators comes from."""
    return kind.__module__.partition(".")[0]


def coefficients(model: Any) -> Array:
    """Coefficients: (p,)."""
    return np.ravel(dense(model.coef_))


def reading_of(
    model: Any, data: CheckedData, loss: Loss, penalty: Penalty, *, intercept: bool, mean_scaled: bool = True
) -> Reading:
    """Put a model's coefficients and checked data together."""
    level = np.asarray(float(np.ravel(model.intercept_)[0]))
    problem = Problem(
        loss, penalty, data.X, data.y, data.weights, np.array(intercept), mean_scaled, data.balance
    )
    fit = Fit(problem, coefficients(model), level)
    metric = metric_of_loss(loss, data.classes)
    return Reading(fit, metric, data.y, data.classes, design=partial(new_rows, model))


# --- scikit-learn: weights of classes, penalised intercepts ---


def class_weights(class_weight: Any, numbers: Index, weights: Array, classes: Any) -> Array:
    """Return the factor of each row's class: (n,)."""
    if class_weight is None:
        return np.ones(len(numbers))
    if class_weight == "balanced":
        in_class = np.bincount(numbers, weights, len(classes))
        return (weights.sum() / (len(classes) * in_class))[numbers]
    return np.array([class_weight.get(label, 1.0) for label in classes], dtype=np.float64)[numbers]


def checked_labels(model: Any, X: Any, y: Any, sample_weight: Any, *, by_weight: bool = False) -> CheckedData:
    """Rows, class numbers, weights times those of the classes, and what a refit balances anew.

    Parameters
    ----------
    model : fitted classifier with ``class_weight``
    X, y, sample_weight : arrays
    by_weight : bool
        Whether balanced classes are those of equal weight, not of equal numbers of rows.
    """
    X, y = check_rows(model, X, y, numeric=False)
    numbers, weights = class_numbers(y, model.classes_), check_weights(sample_weight, X)
    counted = weights if by_weight else np.ones(len(numbers))
    balance = Balance(numbers, counted) if model.class_weight == "balanced" else None
    weights = weights * class_weights(model.class_weight, numbers, counted, model.classes_)
    return CheckedData(X, numbers.astype(np.float64), weights, np.asarray(model.classes_), balance)


def checked_numbers(
    model: Any, X: Any, y: Any, sample_weight: Any, *, several_outputs: bool = False
) -> CheckedData:
    """Rows, responses and weights of a regression."""
    X, y = check_rows(model, X, y, several_outputs=several_outputs)
    return CheckedData(X, y, check_weights(sample_weight, X))


def with_constant(X: Design, scale: float) -> Design:
    """Return the design with a last column of ``scale``, which stands for the intercept."""
    return _linalg.as_columns(X).with_column(scale)


def dense(values: Any) -> Array:
    """Return coefficients as a dense array of floats, however they are kept."""
    return np.asarray(_linalg.as_columns(values).dense(), dtype=np.float64)


def ridge_penalty(model: Any, y: Array) -> L2:
    """One strength, that was chosen or given, or one for each output: (1, t)."""
    strengths = np.asarray(model.alpha_ if hasattr(model, "alpha_") else model.alpha, dtype=np.float64)
    return L2(
        strengths.reshape(1, -1) if y.ndim == 2 and strengths.size > 1 else float(strengths.reshape(-1)[0])
    )


# --- penalties ---------------------------------------------------------------------------------


def elastic_net(total: float, ratio: float, weights: Any = None) -> SeparablePenalty:
    """Weights, one a feature, of both parts."""
    alpha = total if weights is None else total * np.asarray(weights, dtype=np.float64)
    if ratio in (0.0, 1.0):
        return L1(alpha) if ratio else L2(alpha)
    return ElasticNet(alpha, ratio)


def membership_of(groups: Any, p: int) -> Index:
    """Group of each feature, from the size of all groups, the sizes, or the columns of each."""
    if isinstance(groups, int | np.integer):
        return np.arange(p) // int(groups)
    if np.ndim(groups[0]) == 0:
        return np.repeat(np.arange(len(groups)), groups)
    columns, sizes = np.concatenate([np.asarray(g) for g in groups]), [len(g) for g in groups]
    return placed(columns.astype(np.intp), sizes)


def placed(columns: Index, sizes: Any) -> Index:
    """Group of each feature, from the columns of all groups one after another."""
    membership = np.empty(len(columns), dtype=np.intp)
    membership[columns] = np.repeat(np.arange(len(sizes)), sizes)
    return membership


def group_penalty(membership: Index, strengths: Array, ridge: Array | None = None) -> Penalty:
    """Σ_g s_g ‖β_g‖ + ½ Σ_g r_g ‖β_g‖²; groups of one feature are an ℓ1 penalty."""
    l2 = np.zeros(len(membership)) if ridge is None else ridge[membership]
    if len(strengths) == len(membership):
        return Strengths(l1=strengths[membership], l2=l2)
    if not np.any(strengths):
        return L2(l2)
    kinked = GroupLasso(membership, weights=strengths)
    return L2(l2) + kinked if np.any(l2) else kinked


def alpha_of(model: Any) -> float:
    """The strength that was chosen, where the class tunes itself."""
    alpha = getattr(model, "alpha_", None)
    return float((model.alpha if alpha is None else alpha) or 0.0)


def mix_of(model: Any) -> float:
    """Share of the ℓ1 norm, 1 where the class has no other."""
    return float(getattr(model, "l1_ratio_", getattr(model, "l1_ratio", 1.0)))


def with_signs(penalty: SeparablePenalty, given: Any) -> Penalty:
    """``positive=True`` is a bound at zero."""
    return penalty + Box(lower=0.0) if getattr(given, "positive", False) else penalty


# --- refusals ----------------------------------------------------------------------------------


def refused(model: Any, X: Any, y: Any, sample_weight: Any, *, why: str) -> NoReturn:
    """Refuse every model of a class."""
    raise UnsupportedModelError(
        f"no leave-one-out formula for {library_of(type(model))}'s {type(model).__name__}: {why}"
    )


TIED_ROWS = "the partial likelihood ties the rows together, so that no row has a loss of its own"
TIED_OUTPUTS = "its penalty ties the outputs together; fit one Lasso an output"
AS_CONSTRAINT = "constraints have no formula here; refit without"


# --- tables ------------------------------------------------------------------------------------


def present(library: Any, table: dict[str, Any]) -> dict[type, Any]:
    """Return a table by class, of those classes that this version of the library has."""
    return {getattr(library, name): entry for name, entry in table.items() if hasattr(library, name)}

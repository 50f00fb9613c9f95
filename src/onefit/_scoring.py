"""scikit-learn's scorers, and losses by name, on predictions that are already there.

A score that is no mean over rows (the area under the ROC curve, R², F1) still has a value for each row: by
how much the row moves it, to first order.  The mean of these values is the score and their spread its
standard error: exactly so for means, by the delta method for R² and the root of a mean, by DeLong, DeLong and
Clarke-Pearson (1988) for the area, and by a jackknife over blocks of rows (Quenouille 1956) for any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.special import xlogy
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.metrics import get_scorer_names as scorer_names

from onefit._typing import Array, Index

Scoring: TypeAlias = str | Callable[..., float]

BLOCKS = 25  # of rows, whose scores without each tell the error of a score without a formula
# losses by the names that people write, positive; scorers are larger where a model is better
LOSSES = {
    "mse": "neg_mean_squared_error",
    "squared": "neg_mean_squared_error",
    "rmse": "neg_root_mean_squared_error",
    "mae": "neg_mean_absolute_error",
    "absolute": "neg_mean_absolute_error",
    "log-loss": "neg_log_loss",
    "log_loss": "neg_log_loss",
    "brier": "neg_brier_score",
    "poisson": "neg_mean_poisson_deviance",
    "gamma": "neg_mean_gamma_deviance",
}
SCORES = {"auc": "roc_auc"}
OF_CLASSES = (
    "accuracy",
    "balanced_accuracy",
    "average_precision",
    "matthews_corrcoef",
    "neg_log_loss",
    "neg_brier_score",
)
OF_CLASSES_FROM = (
    "roc_auc",
    "f1",
    "precision",
    "recall",
    "jaccard",
    "top_k",
    "positive_",
    "d2_log",
    "d2_brier",
)


@dataclass(frozen=True, eq=False)
class Pooled:
    """Left-out predictions of some rows, and what they are held against.

    Attributes
    ----------
    y : (r,) or (r, t) array
        As the user gave it.
    predictions, decision : (r,) or (r, c) arrays
    method : str
        Whose outputs the predictions are.
    classes : array or None
    weights : (r,) array or None
    """

    y: Any
    predictions: Array
    decision: Array
    method: str
    classes: Any | None = None
    weights: Array | None = None

    def some(self, rows: Index) -> Pooled:
        """Those of some rows."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self,
            y=self.y[rows],
            predictions=self.predictions[rows],
            decision=self.decision[rows],
            weights=weights,
        )

    @property
    def shares(self) -> Array:
        """Weights with sum one: (r,)."""
        weights = np.ones(len(self.predictions)) if self.weights is None else self.weights
        return np.asarray(weights / weights.sum())

    @property
    def number(self) -> Index:
        """Number of each row's class."""
        return np.searchsorted(np.asarray(self.classes), np.asarray(self.y))


def check_scoring(scoring: Any) -> None:
    """Refuse what is no scorer.

    Raises
    ------
    ValueError, TypeError
    """
    if callable(scoring) or scoring in LOSSES or scoring in SCORES:
        return
    if not isinstance(scoring, str):
        raise TypeError(f"scoring must be the name of a scorer, or scorer(estimator, X, y), got {scoring!r}")
    if scoring not in scorer_names():
        raise ValueError(
            f"scoring={scoring!r} is not known: take one of {', '.join(LOSSES)}, auc, or a name from "
            "sklearn.metrics.get_scorer_names()"
        )


def _check_kind(name: str, pooled: Pooled) -> None:
    of_classes = name in OF_CLASSES or name.startswith(OF_CLASSES_FROM)
    if of_classes and pooled.classes is None:
        raise ValueError(
            f"{name!r} scores classes, and this model predicts numbers: take 'r2', 'mae', 'rmse' or another "
            "score of a regressor"
        )
    if pooled.classes is None:
        return
    if name in ("r2", *(LOSSES[short] for short in ("mse", "rmse", "mae", "poisson", "gamma"))):
        raise ValueError(
            f"{name!r} scores numbers, and this model predicts classes: take 'accuracy', 'log-loss', 'auc' "
            "or another score of a classifier"
        )
    if name in ("roc_auc", "average_precision") and len(pooled.classes) > 2:
        other = "'roc_auc_ovr' or 'roc_auc_ovo'" if name == "roc_auc" else "'roc_auc_ovr'"
        raise ValueError(
            f"{name!r} is for two classes, and this model has {len(pooled.classes)}: take {other}"
        )
    needs = name in ("neg_log_loss", "neg_brier_score") or name.startswith("roc_auc_ov")
    if needs and pooled.method != "predict_proba":
        raise ValueError(f"{name!r} needs class probabilities, which this model does not predict")


def score(scoring: Scoring, pooled: Pooled) -> float:
    """Score of all left-out predictions together.

    Scores that do not average over rows (R², the area under the ROC curve) are right only this way.

    Parameters
    ----------
    scoring : str or callable
        "mae", "mse", "rmse", "log-loss", "brier", "auc"; a name that ``sklearn.metrics.get_scorer`` knows; or
        ``scorer(estimator, X, y)``.
    pooled : Pooled
    """
    check_scoring(scoring)
    sign, name = _scorer(scoring)
    by_row = _formula(name, pooled)
    found = _by_scorer(name, pooled) if by_row is None else -float(pooled.shares @ by_row(pooled))
    return sign * found


def _scorer(scoring: Scoring) -> tuple[float, Scoring]:
    """Sign, and scikit-learn's scorer."""
    if not isinstance(scoring, str):
        return 1.0, scoring
    return (-1.0, LOSSES[scoring]) if scoring in LOSSES else (1.0, SCORES.get(scoring, scoring))


def _by_scorer(scoring: Scoring, pooled: Pooled) -> float:
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = np.arange(len(pooled.predictions))[:, None]
    weights = {} if pooled.weights is None else {"sample_weight": pooled.weights}
    return float(scorer(_stand_in(pooled), rows, pooled.y, **weights))


def row_losses(scoring: Scoring, pooled: Pooled) -> Array:
    """Losses whose mean is minus the score, or the loss, and whose spread is its error: (r,)."""
    check_scoring(scoring)
    _, name = _scorer(scoring)
    by_row = _formula(name, pooled)
    return _by_blocks(name, pooled) if by_row is None else by_row(pooled)


def _formula(name: Scoring, pooled: Pooled) -> Callable[[Pooled], Array] | None:
    """Values of each row, where there is a formula for them."""
    if not isinstance(name, str):
        return None
    _check_kind(name, pooled)
    of_one = pooled.classes is not None or pooled.predictions.ndim == 1
    return BY_ROW.get(name) if of_one else None


# --- values of each row --------------------------------------------------------------------------------


def _squared(pooled: Pooled) -> Array:
    return np.asarray((pooled.y - pooled.predictions) ** 2)


def _absolute(pooled: Pooled) -> Array:
    return np.abs(pooled.y - pooled.predictions)


def _root(pooled: Pooled) -> Array:
    squares = _squared(pooled)
    mean = float(pooled.shares @ squares)
    root = np.sqrt(mean)
    return root + (squares - mean) / (2.0 * root) if root > 0 else squares


def _unexplained(pooled: Pooled) -> Array:
    """Minus R²: with the variance V of the response, e²/V − (1 − R²) (y − ȳ)²/V − R²."""
    shares, y = pooled.shares, np.asarray(pooled.y, dtype=np.float64)
    apart, squares = (y - shares @ y) ** 2, _squared(pooled)
    variance = float(shares @ apart)
    ratio = float(shares @ squares) / variance
    return ratio - 1.0 + (squares - ratio * apart) / variance


def _own_probability(pooled: Pooled) -> Array:
    return np.take_along_axis(pooled.predictions, pooled.number[:, None], axis=1)[:, 0]


def _log_loss(pooled: Pooled) -> Array:
    eps = float(np.finfo(pooled.predictions.dtype).eps)
    return -np.log(np.clip(_own_probability(pooled), eps, 1.0))


def _brier(pooled: Pooled) -> Array:
    if pooled.predictions.shape[1] == 2:
        return (1.0 - _own_probability(pooled)) ** 2
    own = np.eye(pooled.predictions.shape[1])[pooled.number]
    return np.sum((pooled.predictions - own) ** 2, axis=1)


def _poisson(pooled: Pooled) -> Array:
    y, mean = np.asarray(pooled.y, dtype=np.float64), _positive(pooled.predictions)
    return 2.0 * (xlogy(y, y / mean) - y + mean)


def _gamma(pooled: Pooled) -> Array:
    y, mean = np.asarray(pooled.y, dtype=np.float64), _positive(pooled.predictions)
    return 2.0 * (np.log(mean / y) + y / mean - 1.0)


def _positive(predictions: Array) -> Array:
    if np.any(predictions <= 0):
        raise ValueError("a deviance needs positive predictions, and some are not: take 'mse' or 'mae'")
    return predictions


def _missed(pooled: Pooled) -> Array:
    return -(_labels(pooled.decision) == pooled.number).astype(np.float64)


def _area(pooled: Pooled) -> Array:
    """Minus the area under the ROC curve, by the placements of DeLong et al. (1988), with weights."""
    positive, shares = pooled.number == 1, pooled.shares
    held = shares > 0
    if not np.any(positive & held) or not np.any(~positive & held):
        return np.full(len(shares), np.nan)
    placed = np.zeros(len(shares))
    totals = [float(shares[side].sum()) for side in (~positive, positive)]
    placed[positive] = _share_below(pooled.decision[positive], pooled.decision[~positive], shares[~positive])
    placed[~positive] = 1.0 - _share_below(
        pooled.decision[~positive], pooled.decision[positive], shares[positive]
    )
    area = float(shares[positive] @ placed[positive]) / totals[1]
    return -area - (placed - area) / np.where(positive, totals[1], totals[0])


def _share_below(at: Array, values: Array, weights: Array) -> Array:
    """Share of the weight of ``values`` below each of ``at``, ties by half."""
    order = np.argsort(values, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    below, upto = (np.searchsorted(values[order], at, side=side) for side in ("left", "right"))
    return (total[below] + total[upto]) / (2.0 * total[-1])


BY_ROW: dict[str, Callable[[Pooled], Array]] = {
    "neg_mean_squared_error": _squared,
    "neg_mean_absolute_error": _absolute,
    "neg_root_mean_squared_error": _root,
    "r2": _unexplained,
    "neg_log_loss": _log_loss,
    "neg_brier_score": _brier,
    "neg_mean_poisson_deviance": _poisson,
    "neg_mean_gamma_deviance": _gamma,
    "accuracy": _missed,
    "roc_auc": _area,
}


def _by_blocks(scoring: Scoring, pooled: Pooled) -> Array:
    """Minus the score, and what leaving out each block of rows does to it, on the scale of single rows."""
    whole, n = _by_scorer(scoring, pooled), len(pooled.predictions)
    keys = np.asarray(pooled.y) if pooled.classes is not None else np.zeros(n)
    order = np.argsort(rankdata(pooled.number if pooled.classes is not None else keys), kind="stable")
    block = np.empty(n, dtype=np.intp)
    count = min(BLOCKS, n // 2)
    if count < 2:
        return np.full(n, -whole)
    block[order] = np.arange(n) % count  # as many of each class in every block
    without = np.array([_by_scorer(scoring, pooled.some(np.flatnonzero(block != g))) for g in range(count)])
    rise = (count - 1) * np.sqrt(n / count) * without[block]
    return np.asarray(-whole + rise - pooled.shares @ rise)


# --- what scorers are given ----------------------------------------------------------------------------


def _labels(decision: Array) -> Index:
    return decision.argmax(axis=1) if decision.ndim == 2 else (decision > 0).astype(np.intp)


def _stand_in(pooled: Pooled) -> BaseEstimator:
    if pooled.classes is None:
        return _PooledRegressor(pooled.predictions)
    if pooled.method == "predict_proba":
        return _PooledProbabilities(pooled.predictions, pooled.decision, np.asarray(pooled.classes))
    return _PooledClassifier(pooled.predictions, pooled.decision, np.asarray(pooled.classes))


class _PooledRegressor(RegressorMixin, BaseEstimator):
    """Stands for a fitted estimator that predicts what it was given, by row number."""

    def __init__(self, response: Array) -> None:
        self.response = response

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]


class _PooledClassifier(ClassifierMixin, BaseEstimator):
    def __init__(self, response: Array, decision: Array, classes: Array) -> None:
        self.response = response
        self.decision = decision
        self.classes = classes

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def classes_(self) -> Array:
        return self.classes

    def decision_function(self, rows: Array) -> Array:
        return self.decision[rows[:, 0]]

    def predict(self, rows: Array) -> Array:
        return self.classes[_labels(self.decision[rows[:, 0]])]


class _PooledProbabilities(_PooledClassifier):
    def predict_proba(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]

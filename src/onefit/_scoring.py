"""scikit-learn's scorers, and losses by name, on predictions that are already there.

A score that is no mean over rows (the area under the ROC curve, R², F1) still has a value for each row: by
how much the row moves it, to first order.  The mean of these values is the score and their spread its
standard error: exactly so for means, by the delta method for R² and the root of a mean, by DeLong, DeLong and
Clarke-Pearson (1988) for the area, and by a jackknife over blocks of rows (Quenouille 1956) for any other.
The first of these are one thing, the infinitesimal jackknife (Jaeckel 1972; Efron 1982, chapter 6): with the
shares s of the rows in all weight, the value of row i is the score and its derivative in s_i.
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
from sklearn.utils.metaestimators import available_if

from onefit._typing import Array, Index, Mask

Scoring: TypeAlias = str | Callable[..., float]

TINY = float(np.finfo(np.float64).tiny)
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
# scorers of classes, by name and by how their names begin
OF_CLASSES = ("accuracy", "balanced_accuracy", "average_precision", "matthews_corrcoef")
OF_CLASSES_FROM = (
    "roc_auc",
    "f1",
    "precision",
    "recall",
    "jaccard",
    "top_k",
    "positive_",
    "d2_brier",
    "d2_log",
)
OF_PROBABILITIES = ("neg_log_loss", "neg_brier_score")


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
        return replace(
            self,
            y=self.y[rows],
            predictions=self.predictions[rows],
            decision=self.decision[rows],
            weights=None if self.weights is None else self.weights[rows],
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
    if callable(scoring):
        home = str(getattr(scoring, "__module__", ""))
        if home.startswith("sklearn.metrics") and not home.startswith("sklearn.metrics._scorer"):
            name = getattr(scoring, "__name__", scoring)
            raise ValueError(f"{name} is a metric of y and predictions: take make_scorer({name}), or a name")
        return
    if not isinstance(scoring, str):
        raise TypeError(f"scoring must be the name of a scorer, or scorer(estimator, X, y), got {scoring!r}")
    if not (scoring in LOSSES or scoring in SCORES or scoring in scorer_names()):
        raise ValueError(
            f"scoring={scoring!r} is not known: take one of {', '.join(LOSSES)}, auc, or a name from "
            "sklearn.metrics.get_scorer_names()"
        )


def _check_kind(name: str, pooled: Pooled) -> None:
    of_classes = name in OF_CLASSES + OF_PROBABILITIES or name.startswith(OF_CLASSES_FROM)
    if of_classes and pooled.classes is None:
        raise ValueError(
            f"{name!r} scores classes, and this model predicts numbers: take 'r2', 'mae', 'rmse' or another "
            "score of a regressor"
        )
    if pooled.classes is None:
        return
    if name in (
        "r2",
        "d2_absolute_error_score",
        *(LOSSES[short] for short in ("mse", "rmse", "mae", "poisson", "gamma")),
    ):
        raise ValueError(
            f"{name!r} scores numbers, and this model predicts classes: take 'accuracy', 'log-loss', 'auc' "
            "or another score of a classifier"
        )
    if name in ("roc_auc", "average_precision") and len(pooled.classes) > 2:
        other = "'roc_auc_ovr' or 'roc_auc_ovo'" if name == "roc_auc" else "'roc_auc_ovr'"
        raise ValueError(
            f"{name!r} is for two classes, and this model has {len(pooled.classes)}: take {other}"
        )
    needs = name in OF_PROBABILITIES or name.startswith("roc_auc_ov")
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


def is_of_means(scoring: Scoring) -> bool:
    """Whether a score is a mean over the rows, or goes like one: neither ranks nor the root of a mean do."""
    name = _scorer(scoring)[1]
    return isinstance(name, str) and name in BY_ROW and name not in ("roc_auc", LOSSES["rmse"])


def as_scorer(scoring: Scoring) -> Scoring:
    """scikit-learn's name for a score that people write otherwise: larger is better."""
    check_scoring(scoring)
    return _scorer(scoring)[1]


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


def squared(pooled: Pooled) -> Array:
    """Squared error."""
    return np.asarray((pooled.y - pooled.predictions) ** 2)


def absolute(pooled: Pooled) -> Array:
    """Absolute error."""
    return np.abs(pooled.y - pooled.predictions)


def root(pooled: Pooled) -> Array:
    """Root of the mean squared error."""
    squares = squared(pooled)
    mean = float(pooled.shares @ squares)
    size = np.sqrt(mean)
    return size + (squares - mean) / (2.0 * size) if size > 0 else squares


def unexplained(pooled: Pooled) -> Array:
    """Minus R²: with the variance V of the response, e²/V − (1 − R²) (y − ȳ)²/V − R²."""
    shares, y = pooled.shares, np.asarray(pooled.y, dtype=np.float64)
    apart, squares = (y - shares @ y) ** 2, squared(pooled)
    variance = max(float(shares @ apart), TINY)
    ratio = float(shares @ squares) / variance
    return ratio - 1.0 + (squares - ratio * apart) / variance


def _own_probability(pooled: Pooled) -> Array:
    return np.take_along_axis(pooled.predictions, pooled.number[:, None], axis=1)[:, 0]


def _log_loss(pooled: Pooled) -> Array:
    eps = float(np.finfo(pooled.predictions.dtype).eps)
    return -np.log(np.clip(_own_probability(pooled), eps, 1.0))


def brier(pooled: Pooled) -> Array:
    """Squared error of the probability of the second of two classes, or summed over those of several."""
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


def missed(pooled: Pooled) -> Array:
    """Minus whether the likeliest class of each row is its own."""
    return -(decided(pooled.decision) == pooled.number).astype(np.float64)


def area(pooled: Pooled) -> Array:
    """Minus the area under the ROC curve; of several classes the mean over one against the rest."""
    return _one_against_rest(pooled, _placements)


def precision(pooled: Pooled) -> Array:
    """Minus the average precision; of several classes the mean over one against the rest."""
    return _one_against_rest(pooled, _average_precision)


def _one_against_rest(pooled: Pooled, of_one: Callable[[Mask, Array, Array], Array]) -> Array:
    decision, number = pooled.decision, pooled.number
    if decision.ndim == 1:
        return of_one(number == 1, decision, pooled.shares)
    c = decision.shape[1]
    each = [of_one(number == k, decision[:, k], pooled.shares) for k in ([1] if c == 2 else range(c))]
    return np.asarray(np.mean(each, axis=0))


def _placements(positive: Mask, decision: Array, shares: Array) -> Array:
    """Minus the area under the ROC curve, by the placements of DeLong et al. (1988), with weights."""
    totals = [float(shares[side].sum()) for side in (~positive, positive)]
    if not min(totals) > 0:
        return np.full(len(shares), np.nan)
    placed = np.zeros(len(shares))
    placed[positive] = _share_below(decision[positive], decision[~positive], shares[~positive])
    placed[~positive] = 1.0 - _share_below(decision[~positive], decision[positive], shares[positive])
    whole = float(shares[positive] @ placed[positive]) / totals[1]
    return -whole - (placed - whole) / np.where(positive, totals[1], totals[0])


def _share_below(at: Array, values: Array, weights: Array) -> Array:
    """Share of the weight of ``values`` below each of ``at``, ties by half."""
    order = np.argsort(values, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    below, upto = (np.searchsorted(values[order], at, side=side) for side in ("left", "right"))
    return (total[below] + total[upto]) / (2.0 * total[-1])


def _average_precision(positive: Mask, decision: Array, shares: Array) -> Array:
    """Minus T = Σ_k (p_k/P) TP_k/N_k over distinct thresholds k, p_k being the positive weight at k.

    In the weight of a row of block b and label l its derivative is
    l TP_b/(N_b P) + Σ_{k ≥ b} p_k (l − TP_k/N_k)/(N_k P) − l T/P.
    """
    distinct, block = np.unique(-decision, return_inverse=True)
    at = np.bincount(block, shares * positive, len(distinct))
    total = at.sum()
    if not total > 0:
        return np.full(len(shares), np.nan)
    true, called = np.cumsum(at), np.maximum(np.cumsum(np.bincount(block, shares, len(distinct))), TINY)
    precise, each = true / called, at / called
    whole = float(at @ precise / total)
    later, later_precise = (np.cumsum(part[::-1])[::-1] for part in (each, each * precise))
    moved = positive * (precise[block] + later[block] - whole) - later_precise[block]
    return -whole - moved / total


BY_ROW: dict[str, Callable[[Pooled], Array]] = {
    "neg_mean_squared_error": squared,
    "neg_mean_absolute_error": absolute,
    "neg_root_mean_squared_error": root,
    "r2": unexplained,
    "neg_log_loss": _log_loss,
    "neg_brier_score": brier,
    "neg_mean_poisson_deviance": _poisson,
    "neg_mean_gamma_deviance": _gamma,
    "accuracy": missed,
    "roc_auc": area,
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


def decided(decision: Array) -> Index:
    """Number of the class that decision functions, (n,) of two classes or (n, c), speak for: (n,)."""
    return decision.argmax(axis=1) if decision.ndim == 2 else (decision > 0).astype(np.intp)


def _stand_in(pooled: Pooled) -> BaseEstimator:
    if pooled.classes is None:
        return _PooledRegressor(pooled.predictions)
    probabilities = pooled.predictions if pooled.method == "predict_proba" else None
    return _PooledClassifier(probabilities, pooled.decision, np.asarray(pooled.classes))


@dataclass(eq=False, repr=False)
class _PooledRegressor(RegressorMixin, BaseEstimator):
    """Stands for a fitted estimator that predicts what it was given, by row number."""

    response: Array

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, rows: Array) -> Array:
        return self.response[rows[:, 0]]


@dataclass(eq=False, repr=False)
class _PooledClassifier(ClassifierMixin, BaseEstimator):
    probabilities: Any
    decision: Array
    classes_: Array

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, rows: Array) -> Array:
        return self.decision[rows[:, 0]]

    def predict(self, rows: Array) -> Array:
        return self.classes_[decided(self.decision[rows[:, 0]])]

    @available_if(lambda self: self.probabilities is not None)
    def predict_proba(self, rows: Array) -> Array:
        return self.probabilities[rows[:, 0]]

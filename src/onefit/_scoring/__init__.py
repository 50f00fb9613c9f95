"""scikit-learn's scorers, and losses by name, on predictions that are already there.

A score that is no mean over rows (the area under the ROC curve, R², F1) still has a value for each row: by
how much the row moves it, to first order.  The mean of these values is the score and their spread its
standard error: exactly so for means, by the delta method for R² and the root of a mean, by DeLong, DeLong and
Clarke-Pearson (1988) for the area, and by a jackknife over blocks of rows (Quenouille 1956) for any other.
The first of these are one thing, the infinitesimal jackknife (Jaeckel 1972; Efron 1982, chapter 6): with the
shares s of the rows in all weight, the value of row i is the score and its derivative in s_i.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer
from sklearn.metrics import get_scorer_names as scorer_names

from onefit._scoring import by_row
from onefit._scoring.pooled import Pooled, decided, stand_in
from onefit._typing import Array, Index

__all__ = [
    "LOSSES",
    "SCORES",
    "Pooled",
    "Scoring",
    "as_scorer",
    "by_row",
    "check_scoring",
    "decided",
    "is_of_means",
    "mean_loss",
    "risk_name",
    "row_losses",
    "score",
    "score_or_none",
    "scorer_names",
]

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
    return -_scorer(scoring)[0] * mean_loss(scoring, pooled)


def mean_loss(scoring: Scoring, pooled: Pooled) -> float:
    """Mean of ``row_losses``, for what one score takes."""
    name = _scorer(scoring)[1]
    formula = _formula(name, pooled)
    return -_by_scorer(name, pooled) if formula is None else float(pooled.shares @ formula(pooled))


def score_or_none(scoring: Scoring, pooled: Pooled) -> float:
    """The same, NaN where rows are too few or too much alike, as those of one class for an area."""
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        try:
            return score(scoring, pooled)
        except ValueError:
            return np.nan


def is_of_means(scoring: Scoring) -> bool:
    """Whether a score is a mean over the rows, or goes like one: neither ranks nor the root of a mean do."""
    name = _scorer(scoring)[1]
    return isinstance(name, str) and name in by_row.BY_ROW and name not in ("roc_auc", LOSSES["rmse"])


def as_scorer(scoring: Scoring) -> Scoring:
    """scikit-learn's name for a score that people write otherwise: larger is better."""
    check_scoring(scoring)
    return _scorer(scoring)[1]


def risk_name(scoring: Scoring) -> str:
    """What a risk by some scoring is called: a loss, or minus a score."""
    if not isinstance(scoring, str):
        return "minus score"
    if scoring in LOSSES:
        return scoring
    return scoring[4:].replace("_", " ") if scoring.startswith("neg_") else f"minus {scoring}"


def _scorer(scoring: Scoring) -> tuple[float, Scoring]:
    """Sign, and scikit-learn's scorer."""
    if not isinstance(scoring, str):
        return 1.0, scoring
    return (-1.0, LOSSES[scoring]) if scoring in LOSSES else (1.0, SCORES.get(scoring, scoring))


def _by_scorer(scoring: Scoring, pooled: Pooled) -> float:
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    rows = np.arange(len(pooled.predictions))[:, None]
    weights = {} if pooled.weights is None else {"sample_weight": pooled.weights}
    return float(scorer(stand_in(pooled), rows, pooled.y, **weights))


def row_losses(scoring: Scoring, pooled: Pooled, units: Any | None = None) -> Array:
    """Losses whose mean is minus the score, or the loss, and whose spread is its error: (r,).

    Where entries count as one, as those of a group, ``units`` (r,) says which: then means of units.
    """
    check_scoring(scoring)
    _, name = _scorer(scoring)
    formula = _formula(name, pooled)
    return _by_blocks(name, pooled, units) if formula is None else formula(pooled)


def _formula(name: Scoring, pooled: Pooled) -> Callable[[Pooled], Array] | None:
    """Values of each row, where there is a formula for them."""
    if not isinstance(name, str):
        return None
    _check_kind(name, pooled)
    of_one = pooled.classes is not None or pooled.predictions.ndim == 1
    return by_row.BY_ROW.get(name) if of_one else None


def _by_blocks(scoring: Scoring, pooled: Pooled, units: Any | None) -> Array:
    """Minus the score, and what leaving out each block of units does to it, on the scale of single ones.

    What the score of all rows has checked is not checked again for each block.
    """
    whole, n = _by_scorer(scoring, pooled), len(pooled.predictions)
    own = np.arange(n) if units is None else np.unique(units, return_inverse=True)[1]
    number = pooled.number if pooled.classes is not None else np.zeros(n)
    sizes = np.bincount(own)
    order = np.argsort(rankdata(np.bincount(own, number) / sizes), kind="stable")
    n_units = len(sizes)
    block, count = np.empty(n_units, dtype=np.intp), min(BLOCKS, n_units // 2)
    if count < 2:
        return np.full(n, -whole)
    block[order] = np.arange(n_units) % count  # as many of each class in every block
    of_entry = block[own]
    with config_context(assume_finite=True, skip_parameter_validation=True):
        without = np.array(
            [_by_scorer(scoring, pooled.some(np.flatnonzero(of_entry != g))) for g in range(count)]
        )
    totals = np.bincount(own, pooled.row_weights).astype(np.float64)
    return np.asarray(-whole + _spread_over_units(without, block, totals)[own])


def _spread_over_units(without: Array, block: Index, sizes: Array) -> Array:
    """Values of units whose weighted mean is zero, and errs as scores without each block say (jackknife)."""
    count, n = len(without), np.count_nonzero(sizes)
    variance = (count - 1) / count * np.sum((without - without.mean()) ** 2)
    apart = without[block] - sizes @ without[block] / sizes.sum()
    told = np.sum((sizes * apart) ** 2) / sizes.sum() ** 2 * n / max(n - 1, 1)
    return apart * np.sqrt(variance / told) if told > 0 else apart

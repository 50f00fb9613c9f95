"""A grid of hyperparameters: each point fitted once, and judged by leaving rows out of that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from onefit._typing import Array
from onefit.estimators.searched import check_names, fit_weighted
from onefit.risk.criteria import Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.tuning.space import Scale

DIGITS = 12  # of a score: those that differ by rounding alone are ties, of which the first is taken


def is_grid(bounds: Mapping[str, Any]) -> bool:
    """Whether hyperparameters are given as lists of three values or more, as ``GridSearchCV`` takes them.

    Raises
    ------
    ValueError
        If some are, and others are bounds.
    """
    lists = [name for name, given in bounds.items() if _is_list(given)]
    if lists and len(lists) < len(bounds):
        other = next(name for name in bounds if name not in lists)
        raise ValueError(
            f"{lists[0]!r} is a list of values and {other!r} is not: give each a list of three values or "
            "more for a grid, or each a pair (low, high) for a search by gradients"
        )
    return bool(lists)


def _is_list(given: Any) -> bool:
    if not isinstance(given, list | tuple | np.ndarray) or len(given) < 3:
        return False
    return not isinstance(given[2], str) or (isinstance(given, list) and given[2] not in get_args(Scale))


def judge_grid(
    estimator: Any,
    grid: Mapping[str, Any],
    risk_of: Callable[[Any], RiskEstimate | Criterion],
    sample: tuple[Any, Any, Any],
    scoring: Any = None,
    heard: Callable[[dict[str, Any], float], Any] | None = None,
) -> tuple[list[dict[str, Any]], Array, int, Any, RiskEstimate | Criterion]:
    """Fit every point of a grid and judge it: points, scores (larger is better), and the best with its risk.

    Parameters
    ----------
    estimator : estimator
    grid : dict of name to values
    risk_of : callable
        From a fitted model to its risk.
    sample : X, y and weights or None
    scoring : str or callable, optional
        Of the left-out predictions, all pooled; minus the risk if None.
    heard : callable, optional
        Called with the hyperparameters and the risk after every point.

    Raises
    ------
    ValueError
        If no point has a score that is a number.
    """
    check_names(estimator, grid)
    points, scores, kept = list(ParameterGrid(dict(grid))), list[float](), None
    for params in points:
        model = clone(estimator).set_params(**params)
        fit_weighted(model, *sample)
        risk = risk_of(model)
        score = -risk.value if scoring is None or isinstance(risk, Criterion) else risk.score(scoring)
        score = float(f"{score:.{DIGITS}g}")
        if np.isfinite(score) and (kept is None or score > scores[kept[0]]):
            kept = len(scores), model, risk
        scores.append(score)
        if heard is not None:
            heard(params, risk.value)
    if kept is None:
        raise ValueError(f"no point of the grid has a finite score, the first is {scores[0]} at {points[0]}")
    return points, np.array(scores), *kept

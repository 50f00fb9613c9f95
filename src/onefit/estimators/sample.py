"""What ``fit`` was given, checked: rows, responses, weights, offsets, and which rows leave together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneOut, check_cv

from onefit._typing import Array, Design, Index
from onefit.leave_out.sets import Folds
from onefit.metrics import LinearMetric
from onefit.problem import InnerProducts
from onefit.risk.estimate import RiskEstimate
from onefit.risk.folds import as_folds, by_group


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows and what is known of them.

    Attributes
    ----------
    X : (n, p) array or sparse
    y : array
        As it was given.
    target : (n,) or (n, t) array
        Numbers, or class numbers.
    weights : (n,) array
        Of the rows in the risk.
    weighted : bool
        Whether weights were given.
    offset : (n,) array or None
        Added to the linear predictors.
    sets : Folds or None
        Rows that leave together; None where every row leaves alone.
    clusters : (n,) array or None
        Group of each row, where groups leave together.
    labels : array or None
        Of the rows, where X or y had them.
    """

    X: Design
    y: Any
    target: Array
    weights: Array
    weighted: bool = False
    offset: Array | None = None
    sets: Folds | None = None
    clusters: Index | None = None
    labels: Any | None = None

    @cached_property
    def inner(self) -> InnerProducts:
        """Inner products of the rows, formed once for all strengths."""
        return InnerProducts.of(self.X)

    @property
    def response(self) -> Array:
        """The target, and the offset as a second column where there is one."""
        return self.target if self.offset is None else np.stack([self.target, self.offset], axis=1)

    @property
    def spread(self) -> float:
        """Standard deviation of the target, over all of several."""
        means = self.weights @ self.target / self.weights.sum()
        squares = self.weights @ (self.target - means) ** 2 / self.weights.sum()
        return float(np.sqrt(np.mean(squares)))


def leaving(
    cv: Any, groups: Any, sample: tuple[Design, Any], *, classifier: bool
) -> tuple[Folds | None, Index | None]:
    """Sets of rows that leave together, and clusters of rows that are no independent ones.

    Parameters
    ----------
    cv : None, int, splitter or iterable of (train, test)
        None is leave-one-out, or leave-one-group-out where there are groups; a number is that of folds,
        stratified for classifiers, as everywhere in scikit-learn.
    groups : (n,) array-like or None
    sample : X and y
    classifier : bool

    Raises
    ------
    ValueError
    """
    X, y = sample
    if cv is None or isinstance(cv, LeaveOneOut):
        if groups is None:
            return None, None
        sets = by_group(groups, X.shape[0])
        clusters = np.empty(sets.n, dtype=np.intp)
        clusters[sets.rows] = sets.fold
        return sets, clusters
    if isinstance(cv, bool | str | float):
        raise TypeError(f"cv must be None, a number of folds, a splitter or pairs of rows, got {cv!r}")
    if isinstance(cv, int | np.integer):
        if cv < 2 or cv > X.shape[0]:
            raise ValueError(
                f"cv must be from 2 folds to the number of rows, {X.shape[0]}, got {cv}; None is "
                "leave-one-out"
            )
        cv = check_cv(int(cv), y, classifier=classifier)
    return as_folds(cv, X, y, groups), None


def with_offset(found: RiskEstimate, metric: LinearMetric, offset: Array) -> RiskEstimate:
    """Predictions of rows with their offsets in."""
    decision = found.decision + offset[found.rows]
    return replace(
        found,
        decision=decision,
        predictions=metric.predictions(decision),
        fitted=found.fitted + offset[found.rows],
    )

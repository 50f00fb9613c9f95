"""Rows that an estimator is fitted to: their weights, their offsets, and which of them leave together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneOut, check_cv

from onefit import _linalg
from onefit._linalg import RowGram, column_means, transposed_times
from onefit._typing import Array, Design, Index
from onefit.balance import Balance
from onefit.inner_products import InnerProducts
from onefit.leave_out import LeftOut
from onefit.leave_out.idle_rows import among_idle_rows
from onefit.leave_out.sets import Folds
from onefit.losses import Loss, Offset
from onefit.metrics import LinearMetric, WithOffset
from onefit.risk.estimate import RiskEstimate
from onefit.risk.folds import as_folds, by_group, numbers_of


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
    everyone : Sample or None
        These and rows without weight, where such were left aside.
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
    everyone: Sample | None = None

    @property
    def held(self) -> Sample:
        """The rows with weight: others say nothing, and would be drawn and waited for.

        Where sets leave, rows without weight stay: they have predictions of their own.
        """
        rows = np.flatnonzero(self.weights > 0)
        if self.sets is not None or len(rows) == len(self.weights):
            return self
        X, offset = _linalg.some_rows(self.X, rows), None if self.offset is None else self.offset[rows]
        y, target, weights = np.asarray(self.y)[rows], self.target[rows], self.weights[rows]
        return Sample(X, y, target, weights, self.weighted, offset, everyone=self)

    def of_everyone(self, left_out: LeftOut) -> tuple[Sample, LeftOut]:
        """All rows, and what is known of them from those with weight."""
        if self.everyone is None:
            return self, left_out
        whole, few = self.everyone, left_out.fit.problem
        rows, balance = np.flatnonzero(whole.weights > 0), few.balance
        weights = np.zeros(len(whole.weights))
        weights[rows] = few.weights
        problem = replace(
            few,
            X=whole.X,
            y=whole.response,
            weights=weights,
            balance=None if balance is None else Balance(whole.target.astype(np.intp), whole.weights),
            moments=None,
            inner=whole.inner,
        )
        return whole, among_idle_rows(left_out, problem, rows)

    @cached_property
    def inner(self) -> InnerProducts:
        """Inner products of the rows, formed once for all strengths."""
        return InnerProducts(self.X)

    def in_dual(self, centred: bool) -> RowGram:
        """The rows by their inner products, with an intercept those of rows less their mean."""
        return RowGram(self.inner.about_mean if centred else self.inner.gram)

    def in_columns(self, duals: Array, levels: Array, centred: bool) -> tuple[Array, Array]:
        """Coefficients (J, p) and intercepts (J,) from those of ``in_dual``: (J, n) and (J,)."""
        if not centred:
            return transposed_times(self.X, duals.T).T, levels
        coefs = transposed_times(self.X, (duals - duals.mean(axis=1, keepdims=True)).T).T
        return coefs, levels - coefs @ column_means(self.X, np.ones(self.X.shape[0]))

    @property
    def given_weights(self) -> Array | None:
        """The weights, None where none were given."""
        return self.weights if self.weighted else None

    @property
    def response(self) -> Array:
        """The target, and the offset as a second column where there is one."""
        return self.target if self.offset is None else np.stack([self.target, self.offset], axis=1)

    def loss_of_response(self, loss: Loss) -> Loss:
        """The loss of ``response``, by that of a target."""
        return loss if self.offset is None else Offset(loss)

    def metric_of_response(self, metric: LinearMetric) -> LinearMetric:
        """The metric that judges ``response``, by that of a target."""
        return metric if self.offset is None else WithOffset(metric)

    def with_offset(self, found: RiskEstimate, metric: LinearMetric) -> RiskEstimate:
        """An estimate of the risk with the offsets in its predictions, which ``metric`` makes."""
        if self.offset is None:
            return found
        own = self.offset[found.rows]
        decision = found.decision + own
        return replace(
            found,
            decision=decision,
            predictions=metric.predictions(decision),
            fitted=found.fitted + own,
        )

    @property
    def spread(self) -> float:
        """Standard deviation of the target, over all of several."""
        means = self.weights @ self.target / self.weights.sum()
        squares = self.weights @ (self.target - means) ** 2 / self.weights.sum()
        return float(np.sqrt(np.mean(squares)))


def leaves_rows(cv: Any) -> bool:
    """Whether ``cv`` is leave-one-out, of rows or of groups."""
    return cv is None or isinstance(cv, LeaveOneOut)


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
    if leaves_rows(cv):
        if groups is None:
            return None, None
        sets = by_group(groups, X.shape[0])
        return sets, numbers_of(sets)
    if isinstance(cv, bool | str | float):
        raise TypeError(f"cv must be None, a number of folds, a splitter or pairs of rows, got {cv!r}")
    if isinstance(cv, int | np.integer):
        if cv < 2 or cv > X.shape[0]:
            raise ValueError(
                f"cv must be from 2 folds to the number of rows, {X.shape[0]}, got {cv}; None is "
                "leave-one-out"
            )
        cv = check_cv(int(cv), y, classifier=classifier)
    return as_folds(cv, X, y, groups, with_groups="fit(X, y, groups=g), a group for each row"), None

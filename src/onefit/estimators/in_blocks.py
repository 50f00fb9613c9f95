"""Estimators of squared loss that tune themselves in passes over rows in blocks, in memory or from a source.

Two passes for a path and a third for every row.  Nothing of the size of the rows is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from onefit import cost
from onefit._linalg import times
from onefit._typing import Array
from onefit.blocks import (
    ArrayRows,
    ChosenStrength,
    Rows,
    RowSums,
    RowValues,
    Spectrum,
    tune_net,
    tune_ridge,
)
from onefit.blocks.estimate import BlocksEstimate, estimate_rows
from onefit.blocks.left_out_path import KnownRefits
from onefit.blocks.rows import is_large
from onefit.estimators.penalized import decades, mixed
from onefit.estimators.sample import leaves_rows
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.yardstick import allowed, errors
from onefit.losses import Squared
from onefit.metrics import LinearMetric, LogLoss, SquaredError
from onefit.numerics import KNOWN
from onefit.penalties import L1, L2, ElasticNet
from onefit.problem import Problem
from onefit.solvers.null_model import strength_of_single_coefficients
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import JudgedPath
from onefit.validation import is_count

if TYPE_CHECKING:
    from onefit.estimators.sample import Sample
    from onefit.estimators.self_tuned import SelfTuned

DENSE = 64.0  # bytes of memory for each number of a sparse X that two dense copies may take a quarter of


@dataclass(frozen=True, eq=False)
class TunedOnRows:
    """What passes over the rows found.

    Attributes
    ----------
    ratio : float
        Chosen share of the ℓ1 part.
    path : JudgedPath
        Its strengths as the estimator calls them.
    judges : tuple of ChosenStrength
        By which single rows are judged, one for each response.
    metric : LinearMetric
    count : int
        Rows with weight.
    refits : KnownRefits or None
        At the choice, where every row was solved anew.
    told : BlocksEstimate or None
        At the choice, where all rows are in memory.
    """

    ratio: float
    path: JudgedPath
    judges: tuple[ChosenStrength, ...]
    metric: LinearMetric
    count: int
    refits: KnownRefits | None = None
    told: BlocksEstimate | None = None

    @property
    def classes(self) -> Any | None:
        """Labels of the two classes, if it is classes."""
        return self.metric.classes if isinstance(self.metric, LogLoss) else None

    @property
    def coefficients(self) -> tuple[Array, Any]:
        """Coefficients and intercept of the choice, in the shapes of scikit-learn."""
        coef, level = self.path.coefs[self.path.best], self.path.levels[self.path.best]
        if np.ndim(level):
            return coef.T, level
        return (coef, float(level)) if self.classes is None else (coef[None], np.array([level]))

    def estimate(self, rows: Rows) -> BlocksEstimate:
        """Risk of the choice, and how far it may be off, in one more pass."""
        if self.told is not None:
            return self.told
        (judge,) = self.judges
        return estimate_rows(rows, judge, self.metric, count=self.count, classes=self.classes)

    def left_out(self, problem: Problem, rows: ArrayRows, judgement: Judgement) -> LeftOut:
        """Left-out predictors of one more pass; where their bounds tell too little, by the engine."""
        best, values, own = self.path.best, self._values(rows), judgement.yardstick
        fit = Fit(problem, self.path.coefs[best], self.path.levels[best]).known(eta=values.fitted)
        found = LeftOut(fit, values.left_out, values.bounds, values.leverages, values.slack)
        if errors(found, own).sum() <= allowed(found, own, KNOWN):
            return found
        return leave_out(fit, max_error=KNOWN, yardstick=own, known=found)

    def _values(self, rows: ArrayRows) -> RowValues:
        """Left-out values of all rows, in a pass for each response where refits are not known."""
        n, best, refits = len(rows.y), self.path.best, self.refits
        weights = np.ones(n) if rows.weights is None else rows.weights
        fitted = times(rows.X, self.path.coefs[best]) + self.path.levels[best]
        each = list[RowValues]()
        for k, judge in enumerate(self.judges):
            y = _of_response(rows.y, k)
            if refits is None:
                each.append(RowValues.joined(list(replace(rows, y=y).each(judge.left_out))))
            else:
                known = KnownRefits(*(_of_response(own, k) for own in refits))
                each.append(judge.of_refits(_of_response(fitted, k), y, weights, known))
        return each[0] if rows.y.ndim == 1 else RowValues.of_responses(each)


def _of_response(values: Array, k: int) -> Array:
    """Those of one response, where there are several."""
    return values if values.ndim == 1 else values[:, k]


# Parameters that need all rows at once, as ``positive`` does.
IN_MEMORY = ("scoring", "class_weight", "bounds", "penalty_factors")


def needing_all_rows(model: SelfTuned) -> list[str]:
    """Names of parameters that are set and need all rows at once."""
    names = [name for name in IN_MEMORY if getattr(model, name) is not None]
    besides = {"cv": not leaves_rows(model.cv), "positive": model.positive}
    return [*names, *(name for name, is_set in besides.items() if is_set)]


def has_passes(model: SelfTuned) -> bool:
    """Whether two passes over the rows tune a model: squared loss, and a penalty that columns share alike."""
    kinked = model._mean_scaled
    return _treats_alike(model, {"positive"} if kinked else set()) and _is_of_squares(model, kinked=kinked)


def _treats_alike(model: SelfTuned, besides: set[str]) -> bool:
    """Whether no parameter is set that needs all rows at once, besides some."""
    return besides.issuperset(needing_all_rows(model))


def _is_of_squares(model: SelfTuned, *, kinked: bool) -> bool:
    """Whether it is a mean of squares with an ℓ1 part, or a sum with an ℓ2 part alone."""
    if not isinstance(model._fitted_loss(), Squared) or model._mean_scaled != kinked:
        return False
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return all(isinstance(unit, L1 | ElasticNet if kinked else L2) for unit in units)


def goes_in_passes(model: SelfTuned, sample: Sample) -> bool:
    """Whether passes over the rows, for which ``has_passes`` holds, are cheaper than a fit at a time.

    Ridge takes one eigendecomposition, which is as fast where rows are few.  A table with kinks has passes
    where these can afford to follow patterns at strengths that may be the choice, or where it is tall.
    """
    X = sample.X
    if sp.issparse(X) and _is_better_sparse(model, *X.shape):
        return False
    return passes_pay(model, X.shape, sample.target[0].size)


def _is_better_sparse(model: SelfTuned, n: int, p: int) -> bool:
    """Whether dense blocks take longer than sparse products.

    They do for a ridge, whose last product is dense, too: there has to be room for it.
    """
    return not model._mean_scaled and DENSE * n * p <= cost.memory()


def passes_pay(model: SelfTuned, shape: tuple[int, int], targets: int) -> bool:
    """The same of rows of some shape, with so many targets."""
    n, p = shape
    if not model._mean_scaled:
        return cost.is_tall(n, p) and is_large(n, p)
    strengths = int(model.alphas) if is_count(model.alphas) else np.size(model.alphas)
    count = strengths * len(model._ratios()) * targets
    if p < n and cost.patterns(n, p, cost.NEAR * count).seconds <= cost.IN_A_RACE:
        return True
    return cost.is_tall(n, p) and cost.patterns(n, p, count).seconds > cost.IN_A_PATH


def goes_on_sums(model: SelfTuned, sample: Sample) -> bool:
    """Whether refits without sets of rows are solved on sums over the rows that stay.

    They are where columns are fewer than these rows, and share the penalty alike.
    """
    alike = _treats_alike(model, {"cv", "scoring", "positive"})
    of_one = sample.target.ndim == 1 and sample.offset is None
    if sample.sets is None or not alike or not of_one or not _is_of_squares(model, kinked=True):
        return False
    leaving = max(len(removed) for removed in sample.sets.removed)
    return sample.X.shape[1] < np.count_nonzero(sample.weights) - leaving


def tune_rows(model: SelfTuned, rows: Rows, about_means: RowSums) -> TunedOnRows:
    """Tune in a second pass over the rows.

    Parameters
    ----------
    model : SelfTuned
        For which ``has_passes`` holds.
    rows : Rows
        With several responses, which share their strengths, only where they have an ℓ1 part.
    about_means : RowSums
        Those of a first pass.
    """
    sums = about_means if model.fit_intercept else about_means.about_zero()
    ratio, alpha = 0.0, 1.0
    if model._mean_scaled:
        ratios = model._ratios(about_means.spread)
        grids = [(ratio, kinked_grid(model, sums, ratio)) for ratio in ratios]
        ratio, path = tune_net(
            rows,
            sums,
            grids,
            model.selection,
            early_stopping=model.early_stopping,
            nonnegative=model.positive,
        )
        alpha = sums.weight
    else:
        spectrum = Spectrum.of(sums)
        grid = model._grid_between(lambda: decades(spectrum.largest))
        path = tune_ridge(rows, spectrum, grid, model.selection)
    alpha *= float(path.strengths[path.best])
    chosen_of = partial(
        ChosenStrength.of_squares,
        l1=ratio * alpha,
        l2=(1.0 - ratio) * alpha,
        mean_scaled=model._mean_scaled,
        nonnegative=model.positive,
    )
    coefs = path.coefs[path.best].reshape(len(sums.means), -1).T
    judges = tuple(chosen_of(sums.of_response(k), own) for k, own in enumerate(coefs))
    return TunedOnRows(ratio, path, judges, SquaredError(), sums.count, path.refits)


def kinked_grid(model: SelfTuned, sums: RowSums, ratio: float) -> Grid:
    """Strengths of a mean of squares and a penalty with an ℓ1 part, from sums over the rows."""
    pull = np.maximum(sums.cross, 0.0) if model.positive else sums.cross
    null = strength_of_single_coefficients(mixed(ratio), pull / sums.weight)
    curvature = sums.gram.diagonal()
    ridge = np.full(len(curvature), (1.0 - ratio) * sums.weight)
    return model._grid_of_kinked(lambda: null, lambda: (curvature, ridge))

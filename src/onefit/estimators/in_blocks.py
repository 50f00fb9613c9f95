"""Estimators of squared loss on rows that come in blocks: two passes for a path, a third for every row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit import cost
from onefit._typing import Array, Index
from onefit.blocks import (
    ChosenStrength,
    Rows,
    RowSums,
    RowValues,
    Spectrum,
    TunedPath,
    tune_net,
    tune_ridge,
)
from onefit.blocks.estimate import BlocksEstimate, RowJudge, estimate_rows
from onefit.blocks.summary import SAMPLE
from onefit.estimators.strengths import check_eps, decades, ends_of_kinked, grid_between
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.sets import Folds
from onefit.leave_out.yardstick import Yardstick
from onefit.losses import Squared
from onefit.metrics import LinearMetric, LogLoss, SquaredError
from onefit.numerics import KNOWN
from onefit.penalties import L1, L2, ElasticNet
from onefit.risk.means import mean_and_error
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.validation import is_count

if TYPE_CHECKING:
    from onefit.estimators.sample import Sample
    from onefit.estimators.self_tuned import SelfTuned

MANY = 20  # times so many rows, at least, are not left out again


@dataclass(frozen=True, eq=False)
class TunedOnRows:
    """What passes over the rows found.

    Attributes
    ----------
    ratio : float
        Chosen share of the ℓ1 part.
    path : TunedPath
        Its strengths as the estimator calls them.
    judge : RowJudge
        By which single rows are judged.
    metric : LinearMetric
    count : int
        Rows with weight.
    """

    ratio: float
    path: TunedPath
    judge: RowJudge
    metric: LinearMetric
    count: int

    @property
    def classes(self) -> Any | None:
        """Labels of the two classes, if it is classes."""
        return self.metric.classes if isinstance(self.metric, LogLoss) else None

    @property
    def coefficients(self) -> tuple[Array, Any]:
        """Coefficients and intercept of the choice, in the shapes of scikit-learn."""
        coef, level = self.path.coefs[self.path.best], float(self.path.levels[self.path.best])
        return (coef, level) if self.classes is None else (coef[None], np.array([level]))

    def estimate(self, rows: Rows) -> BlocksEstimate:
        """Risk of the choice, and how far it may be off, in one more pass."""
        return estimate_rows(rows, self.judge, self.metric, count=self.count, classes=self.classes)

    def left_out(self, fit: Fit, values: RowValues, judgement: Judgement) -> LeftOut:
        """Left-out predictors of the pass; rows are left out anew, worst first, until bounds are enough."""
        own, weights = judgement.yardstick, judgement.weights
        rows = np.arange(len(weights))
        off = np.where(weights > 0, weights * own.spread(rows, values.left_out, values.bounds), 0.0)
        _, error = mean_and_error(own.losses(rows, values.left_out), weights)
        order = np.argsort(off, kind="stable")
        far = order[~(np.cumsum(off[order]) <= KNOWN * error * weights.sum())]
        found = LeftOut(fit, values.left_out, values.bounds, values.leverages, values.slack)
        return _left_out_anew(found, np.sort(far), own) if far.size else found


def _left_out_anew(found: LeftOut, far: Index, yardstick: Yardstick) -> LeftOut:
    """Leave some rows out by the engine: alone, if they are few."""
    if MANY * far.size > len(found.eta):
        return leave_out(found.fit, max_error=KNOWN, yardstick=yardstick)
    alone = tuple(np.array([row]) for row in far)
    anew = leave_out(found.fit, Folds(alone, alone, len(found.eta)), max_error=KNOWN)
    eta, bounds, slack = found.eta.copy(), found.bounds.copy(), found.slack.copy()
    eta[far], bounds[far], slack[far] = anew.eta, anew.bounds, anew.slack
    return replace(found, eta=eta, bounds=bounds, slack=slack)


def has_passes(model: SelfTuned) -> bool:
    """Whether two passes over the rows tune a model: squared loss, and a penalty that columns share alike."""
    plain = model.penalty_factors is None and model.bounds is None and not model.positive
    if not plain or not isinstance(model._fitted_loss(), Squared) or model.cv is not None:
        return False
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return model.scoring is None and all(
        (isinstance(unit, L1 | ElasticNet) and model._mean_scaled)
        or (isinstance(unit, L2) and not model._mean_scaled)
        for unit in units
    )


def goes_in_passes(model: SelfTuned, sample: Sample) -> bool:
    """Whether passes over the rows, for which ``has_passes`` holds, are cheaper than a fit at a time.

    Ridge takes one eigendecomposition, which is as fast where rows are few.  A small table with kinks has
    passes where they are exact; a larger one where it is tall.
    """
    n, p = sample.X.shape
    if not model._mean_scaled:
        return cost.is_tall(n, p) and n * p > SAMPLE
    strengths = int(model.alphas) if is_count(model.alphas) else np.size(model.alphas)
    if cost.patterns(n, p, strengths * len(model._ratios())).seconds > cost.IN_A_PATH:
        return cost.is_tall(n, p)
    return p < n and not (sample.weighted and any(ratio < 1 for ratio in model._ratios()))


def check_count(count: int) -> None:
    """Refuse a single row: nothing is left without it."""
    if count < 2:
        raise ValueError(f"leave-one-out needs at least 2 rows with weight, there are {count}")


def tune_rows(model: SelfTuned, rows: Rows) -> TunedOnRows:
    """Tune in two passes over the rows.

    Parameters
    ----------
    model : SelfTuned
        For which ``has_passes`` holds.
    rows : Rows
        With one response.
    """
    about_means = rows.total(RowSums.of)
    check_count(about_means.count)
    sums = about_means if model.fit_intercept else about_means.about_zero()
    ratio, alpha = 0.0, 1.0
    if model._mean_scaled:
        ratios = model._ratios(about_means.spread)
        grids = [(ratio, _kinked_grid(model, sums, ratio)) for ratio in ratios]
        ratio, path = tune_net(rows, sums, grids, model.selection, early_stopping=model.early_stopping)
        alpha = sums.weight
    else:
        path = tune_ridge(rows, sums, _ridge_grid(model, sums), model.selection)
    alpha *= float(path.strengths[path.best])
    chosen = ChosenStrength.of(
        sums,
        path.coefs[path.best],
        ratio * alpha,
        (1.0 - ratio) * alpha,
        mean_scaled=model._mean_scaled,
    )
    return TunedOnRows(ratio, path, chosen, SquaredError(), sums.count)


def _kinked_grid(model: SelfTuned, sums: RowSums, ratio: float) -> Grid:
    check_eps(model.eps)
    highest = float(np.abs(sums.cross).max(initial=0.0)) / sums.weight / ratio
    null = highest * (1 + 1e-12) if highest > float(np.finfo(float).tiny) else 1.0
    curvature = sums.gram.diagonal()
    ridge = np.full(len(curvature), (1.0 - ratio) * sums.weight)
    return grid_between(
        "alphas",
        model.alphas,
        lambda: ends_of_kinked(null, model.eps, curvature, ridge),
        lambda: null,
    )


def _ridge_grid(model: SelfTuned, sums: RowSums) -> Grid:
    return grid_between("alphas", model.alphas, lambda: decades(Spectrum.of(sums).largest), positive=False)

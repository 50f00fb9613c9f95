"""Estimators that tune themselves in passes over rows that come in blocks, from memory or from a source.

Squared loss takes two passes for a path and a third for every row, a curved loss one a Newton step.  Nothing
of the size of the rows is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit import cost
from onefit._linalg import times
from onefit._typing import Array, Index
from onefit.blocks import (
    ArrayRows,
    ChosenStrength,
    Rows,
    RowSums,
    RowValues,
    Spectrum,
    TunedPath,
    tune_net,
    tune_ridge,
)
from onefit.blocks.curved import CurvedSolver, centre_of
from onefit.blocks.estimate import BlocksEstimate, estimate_rows
from onefit.blocks.left_out_path import KnownRefits
from onefit.blocks.models import Models, Quadratic, null_points, summed
from onefit.blocks.rows import SAMPLE, Summary, summarise
from onefit.estimators.penalized import check_eps, decades, ends_of_kinked, leaves_rows, mixed
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.sets import Folds
from onefit.leave_out.yardstick import Yardstick
from onefit.losses import Logistic, Loss, Squared, Tweedie
from onefit.metrics import LinearMetric, LogLoss, SquaredError, metric_of_loss
from onefit.numerics import KNOWN
from onefit.penalties import L1, L2, ElasticNet, Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.risk.means import mean_and_error
from onefit.solvers.null_model import strength_of_single_coefficients
from onefit.tuning.contest import Contest
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import JudgedPath
from onefit.validation import check_column_sizes, check_several_rows, is_count

if TYPE_CHECKING:
    from onefit.estimators.penalized import Sample
    from onefit.estimators.self_tuned import SelfTuned

MANY = 20  # times so many rows, at least, are not left out again


@dataclass(frozen=True, eq=False)
class TunedOnRows:
    """What passes over the rows found.

    Attributes
    ----------
    ratio : float
        Chosen share of the ℓ1 part.
    path : JudgedPath
        Its strengths as the estimator calls them.
    contest : Contest
        Of the strengths.
    judges : tuple of ChosenStrength
        By which single rows are judged, one for each response.
    metric : LinearMetric
    count : int
        Rows with weight.
    refits : KnownRefits or None
        At the choice, where every row was solved anew.
    """

    ratio: float
    path: JudgedPath
    contest: Contest
    judges: tuple[ChosenStrength, ...]
    metric: LinearMetric
    count: int
    refits: KnownRefits | None = None

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
        (judge,) = self.judges
        return estimate_rows(rows, judge, self.metric, count=self.count, classes=self.classes)

    def left_out(self, problem: Problem, rows: ArrayRows, judgement: Judgement) -> LeftOut:
        """Left-out predictors of one more pass; those of the worst rows anew, until bounds are enough."""
        best, values = self.path.best, self._values(rows)
        fit = Fit(problem, self.path.coefs[best], self.path.levels[best]).known(eta=values.fitted)
        own, weights = judgement.yardstick, judgement.weights
        every = np.arange(len(weights))
        off = np.where(weights > 0, weights * own.spread(every, values.left_out, values.bounds), 0.0)
        _, error = mean_and_error(own.losses(every, values.left_out), weights)
        order = np.argsort(off, kind="stable")
        far = order[~(np.cumsum(off[order]) <= KNOWN * error * weights.sum())]
        found = LeftOut(fit, values.left_out, values.bounds, values.leverages, values.slack)
        return _left_out_anew(found, np.sort(far), own) if far.size else found

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


def _left_out_anew(found: LeftOut, far: Index, yardstick: Yardstick) -> LeftOut:
    """Leave some rows out by the engine: alone, if they are few."""
    if MANY * far.size > len(found.eta):
        return leave_out(found.fit, max_error=KNOWN, yardstick=yardstick)
    alone = tuple(np.array([row]) for row in far)
    anew = leave_out(found.fit, Folds(alone, alone, len(found.eta)), max_error=KNOWN)
    eta, bounds, slack = found.eta.copy(), found.bounds.copy(), found.slack.copy()
    eta[far], bounds[far], slack[far] = anew.eta, anew.bounds, anew.slack
    return replace(found, eta=eta, bounds=bounds, slack=slack)


# Parameters that need all rows at once, as ``positive`` does.
IN_MEMORY = ("scoring", "class_weight", "bounds", "penalty_factors")


def _needing_all_rows(model: SelfTuned) -> list[str]:
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
    return besides.issuperset(_needing_all_rows(model))


def _is_of_squares(model: SelfTuned, *, kinked: bool) -> bool:
    """Whether it is a mean of squares with an ℓ1 part, or a sum with an ℓ2 part alone."""
    if not isinstance(model._fitted_loss(), Squared) or model._mean_scaled != kinked:
        return False
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return all(isinstance(unit, L1 | ElasticNet if kinked else L2) for unit in units)


def goes_in_passes(model: SelfTuned, sample: Sample) -> bool:
    """Whether passes over the rows, for which ``has_passes`` holds, are cheaper than a fit at a time.

    Ridge takes one eigendecomposition, which is as fast where rows are few.  A table with kinks has passes
    where these are exact at strengths that may be the choice, or where it is tall.
    """
    n, p = sample.X.shape
    if not model._mean_scaled:
        return cost.is_tall(n, p) and n * p > SAMPLE
    strengths = int(model.alphas) if is_count(model.alphas) else np.size(model.alphas)
    count = strengths * len(model._ratios()) * sample.target[0].size
    counting = sample.weights[sample.weights > 0]  # an ℓ2 part shrinks by unequal shares of unequal weights
    can_be_exact = p < n and (np.ptp(counting) == 0 or all(ratio == 1 for ratio in model._ratios()))
    if can_be_exact and cost.patterns(n, p, cost.NEAR * count).seconds <= cost.IN_A_RACE:
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


def tune_rows(model: SelfTuned, rows: Rows) -> TunedOnRows:
    """Tune in two passes over the rows.

    Parameters
    ----------
    model : SelfTuned
        For which ``has_passes`` holds.
    rows : Rows
        With several responses, which share their strengths, only where they have an ℓ1 part.
    """
    about_means = rows.total(RowSums.of)
    check_several_rows(about_means.count)
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
        grid = model._grid_between(lambda: decades(Spectrum.of(sums).largest))
        path = tune_ridge(rows, sums, grid, model.selection)
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
    return TunedOnRows(ratio, path, path.contest, judges, SquaredError(), sums.count, path.refits)


def kinked_grid(model: SelfTuned, sums: RowSums, ratio: float) -> Grid:
    """Strengths of a mean of squares and a penalty with an ℓ1 part, from sums over the rows."""
    check_eps(model.eps)
    pull = np.maximum(sums.cross, 0.0) if model.positive else sums.cross
    null = strength_of_single_coefficients(mixed(ratio), pull / sums.weight)
    curvature = sums.gram.diagonal()
    ridge = np.full(len(curvature), (1.0 - ratio) * sums.weight)
    return model._grid_between(lambda: ends_of_kinked(null, model.eps, curvature, ridge), lambda: null)


# --- curved losses, and rows from a source -----------------------------------------------------------


def tune_source(model: SelfTuned, rows: Rows, groups: Any, offset: Any) -> TunedOnRows:
    """Tune in passes over the rows of a source.

    Raises
    ------
    ValueError
        A parameter needs all rows at once, or the rows are not what the model takes.
    """
    given = [name for name, value in (("groups", groups), ("offset", offset)) if value is not None]
    needing = given + _needing_all_rows(model)
    if needing:
        raise ValueError(
            f"{needing[0]} needs all rows at once: leave it out where rows come in blocks, or fit arrays in "
            "memory"
        )
    if has_passes(model):
        return tune_rows(model, rows)
    if not _is_curved(model, model._loss(2)):
        raise ValueError(
            "rows in blocks are for squared, logistic and Tweedie losses with a ridge, lasso or elastic net "
            f"penalty, not for {model._loss(2)!r} with {model._unit_penalty(model._ratios()[0])!r}: "
            "fit arrays in memory"
        )
    return tune_curved(model, rows)


def has_curved_passes(model: SelfTuned) -> bool:
    """Whether passes over the rows tune a model of a curved loss, as far as its parameters tell."""
    return not _needing_all_rows(model) and _is_curved(model, model._fitted_loss())


def _is_curved(model: SelfTuned, loss: Loss) -> bool:
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return isinstance(loss, Logistic | Tweedie) and all(isinstance(unit, SeparablePenalty) for unit in units)


def tune_curved(model: SelfTuned, rows: Rows) -> TunedOnRows:
    """Tune a model of a curved loss in passes over the rows."""
    summary = _summary(model, rows)
    metric = _metric(model, summary)
    if is_held(rows, summary):
        with suppress(SolverError):  # passes may not settle at a choice with hardly a penalty
            return _tune_held(model, rows, summary, metric)
    paths = [_along(model, rows, summary, metric, ratio) for ratio in model._ratios()]
    ratio, path, judge = min(paths, key=lambda one: float(one[1].risks[one[1].best]))
    return TunedOnRows(ratio, path, path.contest, (judge,), metric, summary.count)


def is_held(rows: Rows, summary: Summary) -> bool:
    """Whether a source is so small that the sample of its rows holds all of them."""
    return not isinstance(rows, ArrayRows) and summary.sample.stride == 1 and summary.size <= SAMPLE


def _tune_held(model: SelfTuned, rows: Rows, summary: Summary, metric: LinearMetric) -> TunedOnRows:
    """Choose in memory, where strengths are told by more than one step for each row."""
    sample = model._sample(*summary.sample.rows, groups=None, offset=None).held
    ratio, path, contest, left_out = model._tuned(sample, model._judgement(sample))
    strength = float(path.strengths[path.best])
    solver = _solver(model, rows, summary, metric, ratio)
    solver.path(np.array([strength]))
    coefs, levels = path.coefs.copy(), path.levels.copy()
    coefs[path.best], levels[path.best] = left_out.fit.coef, left_out.fit.intercept
    path = replace(path, coefs=coefs, levels=levels)
    return TunedOnRows(ratio, path, contest, (solver.chosen(strength),), metric, summary.count)


def _solver(
    model: SelfTuned, rows: Rows, summary: Summary, metric: LinearMetric, ratio: float
) -> CurvedSolver:
    unit, scale = model._unit_penalty(ratio), _scale(model, summary)
    assert isinstance(unit, SeparablePenalty)
    models = Models(model._loss(2), metric, (), bool(model.fit_intercept), model._mean_scaled)
    return CurvedSolver(rows, summary, models, lambda strength: unit.scaled(model._amount(strength) * scale))


def _scale(model: SelfTuned, summary: Summary) -> float:
    """Of penalties beside a mean of losses."""
    return summary.weight if model._mean_scaled else 1.0


def _along(
    model: SelfTuned, rows: Rows, summary: Summary, metric: LinearMetric, ratio: float
) -> tuple[float, TunedPath, ChosenStrength]:
    """Tune along the path of one share of ℓ1."""
    solver = _solver(model, rows, summary, metric, ratio)
    grid = _grid(model, solver, model._unit_penalty(ratio), _scale(model, summary))
    found, judge = solver.tuned(grid, model.selection, early_stopping=model.early_stopping)
    return ratio, found, judge


def _grid(model: SelfTuned, solver: CurvedSolver, unit: Penalty, scale: float) -> Grid:
    """Strengths as the estimator chooses them in memory."""
    summary, loss = solver.summary, model._loss(2)
    start = _constant(model, summary)
    squares = summary.squares + (0.0 if model.fit_intercept else summary.weight * summary.means**2)
    target = np.array([summary.response if model._mean_scaled else 0.0])
    curvature = float(loss.hessian(target, np.array([start]))[0]) * squares / scale
    if not unit.has_growing_kinks(curvature.shape):
        return model._grid_between(lambda: decades(float(curvature.sum())))
    assert isinstance(unit, SeparablePenalty)
    null, ridge = _null(solver, start, unit) / scale, unit.ridge(curvature.shape)
    return model._grid_between(lambda: ends_of_kinked(null, model.eps, curvature, ridge), lambda: null)


def _null(solver: CurvedSolver, start: float, unit: SeparablePenalty) -> float:
    """Smallest factor on the penalty that makes all coefficients zero."""
    models = replace(solver.models, penalties=(L2(0.0),))
    points = null_points(models, centre_of(models, solver.summary), start)
    sums = solver.rows.total(partial(summed, models=models, points=points, curved=np.arange(1)))
    slope = Quadratic.of(sums, 0, 0, intercept=models.intercept).slope
    return strength_of_single_coefficients(unit, slope)


def _constant(model: SelfTuned, summary: Summary) -> float:
    """Linear predictor of the constant model."""
    loss = model._loss(2)
    if not model.fit_intercept:
        return 0.0
    if isinstance(loss, Logistic):
        return float(loss.start(np.arange(2.0), summary.shares))
    return float(loss.start(np.array([summary.response]), np.ones(1)))


def _summary(model: SelfTuned, rows: Rows) -> Summary:
    """First pass, and what it tells of the data as a whole."""
    loss = model._loss(2)
    least = 0.0 if isinstance(loss, Tweedie) and loss.power >= 1 else -np.inf
    summary: Summary = rows.total(partial(summarise, classes=isinstance(loss, Logistic), least=least))
    check_several_rows(summary.count)
    check_column_sizes(summary.sizes, rows.names)
    if isinstance(loss, Tweedie) and loss.link == "log" and not summary.response > 0:
        raise ValueError("y is zero for every row: a mean of zero has no logarithm")
    return summary


def _metric(model: SelfTuned, summary: Summary) -> LinearMetric:
    loss, labels = model._loss(2), summary.labels
    if isinstance(loss, Tweedie):
        return metric_of_loss(loss, None)
    if np.count_nonzero(summary.shares) < 2:
        raise ValueError(
            f"{type(model).__name__} needs samples of at least 2 classes in the data, but the data contains "
            f"only one class: {labels[summary.shares > 0].tolist()[0]!r}"
        )
    if len(labels) > 2:
        raise ValueError(
            f"rows in blocks are for two classes, y has {len(labels)}: fit one class against the others, or "
            "arrays in memory"
        )
    return metric_of_loss(loss, labels)

"""Estimators that tune themselves on rows from a source, and those of curved losses in passes over the rows.

A curved loss takes a pass for each Newton step.  A source that fits into memory tells its strengths there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from onefit import _linalg
from onefit.blocks import (
    ArrayRows,
    Block,
    BlocksEstimate,
    ChosenStrength,
    Rows,
    RowSums,
    TunedPath,
)
from onefit.blocks.curved import CurvedSolver, centre_of
from onefit.blocks.models import Models, Quadratic, null_points, summed
from onefit.blocks.rows import Summary, is_large, summarise
from onefit.estimators.in_blocks import TunedOnRows, has_passes, needing_all_rows, passes_pay, tune_rows
from onefit.estimators.in_memory import tuned_in_memory
from onefit.estimators.penalized import decades
from onefit.exceptions import SolverError
from onefit.losses import Logistic, Loss, Tweedie
from onefit.metrics import LinearMetric, SquaredError, metric_of_loss
from onefit.penalties import L2, Penalty, SeparablePenalty
from onefit.risk.judging import warn_if_unreliable
from onefit.solvers.null_model import strength_of_single_coefficients
from onefit.tuning.grid import Grid
from onefit.validation import check_column_sizes, check_several_rows

if TYPE_CHECKING:
    from onefit.estimators.self_tuned import SelfTuned


def tune_source(model: SelfTuned, rows: Rows, groups: Any, offset: Any) -> TunedOnRows:
    """Tune in passes over the rows of a source.

    Raises
    ------
    ValueError
        A parameter needs all rows at once, or the rows are not what the model takes.
    """
    given = [name for name, value in (("groups", groups), ("offset", offset)) if value is not None]
    needing = given + needing_all_rows(model)
    if needing:
        raise ValueError(
            f"{needing[0]} needs all rows at once: leave it out where rows come in blocks, or fit arrays in "
            "memory"
        )
    if has_passes(model):
        sums = rows.total(RowSums.of)
        check_several_rows(sums.count)
        shape = sums.count, len(sums.means)
        if not fits_into_memory(rows, shape):
            return tune_rows(model, rows, sums)
        held = _held(rows)
        if passes_pay(model, shape, len(sums.squares)):
            with suppress(SolverError):
                return tune_rows(model, held, held.total(RowSums.of))
        return _tune_held(model, held, SquaredError(), sums.count)
    if not _is_curved(model, model._loss(2)):
        raise ValueError(
            "rows in blocks are for squared, logistic and Tweedie losses with a ridge, lasso or elastic net "
            f"penalty, not for {model._loss(2)!r} with {model._unit_penalty(model._ratios()[0])!r}: "
            "fit arrays in memory"
        )
    return tune_curved(model, rows)


def has_curved_passes(model: SelfTuned) -> bool:
    """Whether passes over the rows tune a model of a curved loss, as far as its parameters tell."""
    return not needing_all_rows(model) and _is_curved(model, model._fitted_loss())


def _is_curved(model: SelfTuned, loss: Loss) -> bool:
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return isinstance(loss, Logistic | Tweedie) and all(isinstance(unit, SeparablePenalty) for unit in units)


def tune_curved(model: SelfTuned, rows: Rows) -> TunedOnRows:
    """Tune a model of a curved loss in passes over the rows."""
    summary = _summary(model, rows)
    metric = _metric(model, summary)
    if fits_into_memory(rows, summary.shape):
        return _tune_held(model, _held(rows), metric, summary.count)
    paths = [_along(model, rows, summary, metric, ratio) for ratio in model._ratios()]
    ratio, path, judge = min(paths, key=lambda one: float(one[1].risks[one[1].best]))
    return TunedOnRows(ratio, path, (judge,), metric, summary.count)


def fits_into_memory(rows: Rows, shape: tuple[int, int]) -> bool:
    """Whether a source of so many rows and columns is tuned as arrays are."""
    return not isinstance(rows, ArrayRows) and not is_large(*shape)


def _held(rows: Rows) -> ArrayRows:
    """All rows, in memory and in their order."""
    return ArrayRows(*map(_joined, zip(*rows.each(_as_it_is), strict=True)))


def _tune_held(model: SelfTuned, rows: ArrayRows, metric: LinearMetric, count: int) -> TunedOnRows:
    """Choose in memory, where strengths are told by more than one step for each row, as the rows are."""
    sample = model._sample(rows.X, rows.y, rows.weights, groups=None, offset=None).held
    ratio, path, left_out = tuned_in_memory(model, sample, model._judgement(sample))
    coefs, levels = path.coefs.copy(), path.levels.copy()
    coefs[path.best], levels[path.best] = left_out.fit.coef, left_out.fit.intercept
    path = replace(path, coefs=coefs, levels=levels)
    found = model._estimate(sample, left_out)
    warn_if_unreliable(found)
    told = BlocksEstimate.of_held(found)
    return TunedOnRows(ratio, path, (), metric, count, told=told)


def _as_it_is(block: Block) -> Block:
    return block._replace(X=_linalg.dense(block.X))


def _joined(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


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
    null = cache(lambda: _null(solver, start, unit) / scale)
    return model._grid_of_kinked(null, lambda: (curvature, unit.ridge(curvature.shape)))


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
    power = loss.power if isinstance(loss, Tweedie) else None
    summary: Summary = rows.total(partial(summarise, classes=isinstance(loss, Logistic), power=power))
    check_several_rows(summary.count)
    check_column_sizes(summary.sizes, rows.names)
    if isinstance(loss, Tweedie) and loss.link == "log" and not summary.response > 0:
        raise ValueError(
            f"the mean of y is {summary.response:.3g}, and only means above zero have a logarithm"
        )
    return summary


def _metric(model: SelfTuned, summary: Summary) -> LinearMetric:
    loss, labels = model._loss(2), summary.labels
    if isinstance(loss, Tweedie):
        return metric_of_loss(loss, None)
    check_classification_targets(labels)
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

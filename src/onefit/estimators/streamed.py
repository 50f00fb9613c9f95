"""Estimators that tune themselves on a source of rows: nothing of the size of the rows is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit.blocks import Rows, TunedPath
from onefit.blocks.curvature import Quadratic, Summed
from onefit.blocks.curved import CurvedSolver, centre_of
from onefit.blocks.estimate import RowJudge
from onefit.blocks.models import Models, null_points
from onefit.blocks.summary import Summarise, Summary
from onefit.estimators.in_blocks import TunedOnRows, check_count, has_passes, tune_rows
from onefit.estimators.strengths import decades, ends_of_kinked, grid_between
from onefit.losses import Logistic, Loss, Tweedie
from onefit.metrics import Deviance, LinearMetric, LogLoss
from onefit.penalties import L2, SeparablePenalty
from onefit.tuning.grid import Grid
from onefit.validation import MAGNITUDES

if TYPE_CHECKING:
    from onefit.estimators.self_tuned import SelfTuned

# Parameters that need all rows at once, and what they are where rows come in blocks.
IN_MEMORY = {
    "cv": None,
    "scoring": None,
    "class_weight": None,
    "bounds": None,
    "penalty_factors": None,
    "positive": False,
}


def tune_source(model: SelfTuned, rows: Rows, groups: Any, offset: Any) -> TunedOnRows:
    """Tune in passes over the rows of a source.

    Raises
    ------
    ValueError
        A parameter needs all rows at once, or the rows are not what the model takes.
    """
    given = {"groups": groups, "offset": offset} | {name: getattr(model, name) for name in IN_MEMORY}
    for name, value in given.items():
        if _is_set(name, value):
            raise ValueError(
                f"{name} needs all rows at once: leave it out where rows come in blocks, or fit "
                "arrays in memory"
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
    plain = not any(_is_set(name, getattr(model, name)) for name in IN_MEMORY)
    return plain and _is_curved(model, model._fitted_loss())


def _is_set(name: str, value: Any) -> bool:
    plain = IN_MEMORY.get(name)
    return value is not plain and not (isinstance(plain, bool) and value == plain)


def _is_curved(model: SelfTuned, loss: Loss) -> bool:
    units = [model._unit_penalty(ratio) for ratio in model._ratios()]
    return isinstance(loss, Logistic | Tweedie) and all(isinstance(unit, SeparablePenalty) for unit in units)


def tune_curved(model: SelfTuned, rows: Rows) -> TunedOnRows:
    """Tune a model of a curved loss in passes over the rows."""
    summary = _summary(model, rows)
    metric = _metric(model, summary)
    paths = [_along(model, rows, summary, metric, ratio) for ratio in model._ratios()]
    ratio, path, judge = min(paths, key=lambda one: float(one[1].risks[one[1].best]))
    own = replace(path, strengths=1.0 / path.strengths) if model._strength == "C" else path
    return TunedOnRows(ratio, own, judge, metric, summary.count)


def _along(
    model: SelfTuned, rows: Rows, summary: Summary, metric: LinearMetric, ratio: float
) -> tuple[float, TunedPath, RowJudge]:
    """Tune along the path of one share of ℓ1."""
    unit, scale = model._unit_penalty(ratio), _scale(model, summary)
    assert isinstance(unit, SeparablePenalty)
    models = Models(_loss(model), metric, (), bool(model.fit_intercept), model._mean_scaled)
    solver = CurvedSolver(rows, summary, models, lambda strength: unit.scaled(strength * scale))
    grid = _grid(model, solver, unit)
    found, judge = solver.tuned(grid, model.selection, early_stopping=model.early_stopping)
    return ratio, found, judge


def _scale(model: SelfTuned, summary: Summary) -> float:
    """Factor on a strength, for penalties beside a mean of losses."""
    return summary.weight if model._mean_scaled else 1.0


def _loss(model: SelfTuned) -> Loss:
    return model._loss(2)


def _grid(model: SelfTuned, solver: CurvedSolver, unit: SeparablePenalty) -> Grid:
    """Strengths as factors on the penalty, as the estimator chooses them in memory."""
    summary, loss = solver.summary, _loss(model)
    scale, start = _scale(model, summary), _constant(model, summary)
    squares = summary.squares + (0.0 if model.fit_intercept else summary.weight * summary.means**2)
    target = np.array([summary.response if model._mean_scaled else 0.0])
    curvature = float(loss.hessian(target, np.array([start]))[0]) * squares / scale
    null: Callable[[], float] | None = None
    ends = lambda: decades(float(curvature.sum()))  # noqa: E731
    if unit.has_kinks(curvature.shape):
        least = _null(solver, start, unit) / scale
        null = lambda: least  # noqa: E731
        ridge = unit.ridge(curvature.shape)
        ends = lambda: ends_of_kinked(least, model.eps, curvature, ridge)  # noqa: E731
    name, inverse = f"{model._strength}s", model._strength == "C"
    grid = grid_between(name, getattr(model, name), ends, null, inverse=inverse)
    if not inverse:
        return grid
    return replace(
        grid, values=1.0 / grid.values, strongest=None if grid.strongest is None else 1.0 / grid.strongest
    )


def _null(solver: CurvedSolver, start: float, unit: SeparablePenalty) -> float:
    """Smallest factor on the penalty that makes all coefficients zero."""
    models = replace(solver.models, penalties=(L2(0.0),))
    points = null_points(models, centre_of(models, solver.summary), start)
    sums = solver.rows.total(Summed(models, points, np.arange(1)))
    slope = Quadratic.of(sums, 0, 0, intercept=models.intercept).slope
    l1 = unit.strengths(slope.shape)[0]
    highest = float(np.max(np.abs(slope) / l1, initial=0.0))
    return highest * (1 + 1e-12) if highest > float(np.finfo(float).tiny) else 1.0


def _constant(model: SelfTuned, summary: Summary) -> float:
    """Linear predictor of the constant model."""
    loss = _loss(model)
    if not model.fit_intercept:
        return 0.0
    if isinstance(loss, Logistic):
        return float(loss.start(np.arange(2.0), summary.shares))
    return float(loss.start(np.array([summary.response]), np.ones(1)))


def _summary(model: SelfTuned, rows: Rows) -> Summary:
    """First pass, and what it tells of the data as a whole."""
    loss = _loss(model)
    least = 0.0 if isinstance(loss, Tweedie) and loss.power >= 1 else -np.inf
    summary: Summary = rows.total(Summarise(isinstance(loss, Logistic), least))
    check_count(summary.count)
    low, high = MAGNITUDES
    outside = (summary.sizes > high) | ((summary.sizes > 0) & (summary.sizes < low))
    if np.any(outside):
        column = int(np.flatnonzero(outside)[0])
        name = column if rows.names is None else repr(rows.names[column])
        raise ValueError(
            f"column {name} has entries of up to {summary.sizes[column]:.1g}, whose squares leave the range "
            f"of float64: scale it to between {low:g} and {high:g}"
        )
    if isinstance(loss, Tweedie) and loss.link == "log" and not summary.response > 0:
        raise ValueError("y is zero for every row: a mean of zero has no logarithm")
    return summary


def _metric(model: SelfTuned, summary: Summary) -> LinearMetric:
    loss, labels = _loss(model), summary.labels
    if isinstance(loss, Tweedie):
        return Deviance(loss)
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
    return LogLoss(labels)

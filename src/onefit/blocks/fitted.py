"""Leave-one-out of models that were fitted elsewhere, on rows that come in blocks.

The estimator is read on a sample of the rows, weighted so that it stands for all of them; from there on its
coefficients are those that Newton's method starts from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, final

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from onefit.blocks.curved import CurvedSolver, centre_of
from onefit.blocks.estimate import BlocksEstimate, estimate_rows
from onefit.blocks.models import Models, Points, Quadratic, null_points, summed
from onefit.blocks.newton import Start
from onefit.blocks.rows import Block, Rows, Summary, summarise
from onefit.exceptions import UnsupportedModelError
from onefit.metrics import LogLoss
from onefit.optimum import say_if_far
from onefit.penalties import SeparablePenalty
from onefit.readers import Reading, held_fixed, read, warn_if_supervised
from onefit.validation import check_fitted

NOTHING = 1e-6  # of the objective, which is no decrease: the model may be the constant one

Part = TypeVar("Part")


def _prepared(
    block: Block,
    transform: Callable[[Any], Any],
    columns: tuple[str, ...] | None,
    labels: Callable[[Any], Any] | None,
    of: Callable[[Block], Part],
) -> Part:
    """What is made of a block after the first steps of a pipeline."""
    X: Any = np.asarray(block.X, dtype=np.float64)
    if columns is not None:
        X = import_module("pandas").DataFrame(X, columns=list(columns))  # an optional package
    X = transform(X)
    y = block.y if labels is None else labels(block.y)
    return of(block._replace(X=np.asarray(X, dtype=np.float64), y=y))


@final
@dataclass(frozen=True)
class PreparedRows(Rows):
    """Rows after the first steps of a fitted pipeline, block by block.

    Attributes
    ----------
    rows : Rows
    transform : callable
    columns : tuple of str or None
        Names of the columns, where the steps are to see a table with them.
    labels : callable or None
        What is made of y.
    """

    rows: Rows
    transform: Callable[[Any], Any]
    columns: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    labels: Callable[[Any], Any] | None = None

    @property
    def shape(self) -> tuple[int | None, int]:  # type: ignore[override]
        return self.rows.shape

    def total(self, of: Callable[[Block], Any]) -> Any:
        return self.rows.total(self._of_prepared(of))

    def each(self, of: Callable[[Block], Part]) -> Iterator[Part]:
        return self.rows.each(self._of_prepared(of))

    def _of_prepared(self, of: Callable[[Block], Part]) -> Callable[[Block], Part]:
        return partial(_prepared, transform=self.transform, columns=self.columns, labels=self.labels, of=of)


def loo_in_blocks(model: Any, rows: Rows) -> BlocksEstimate:
    """Leave-one-out of a fitted model over rows in blocks.

    Parameters
    ----------
    model : fitted estimator
        Of one output or two classes, with a smooth loss and a ridge, lasso or elastic net penalty; or a
        pipeline that ends in one.
    rows : Rows

    Raises
    ------
    UnsupportedModelError
    NotFittedToDataError

    Warns
    -----
    NotOptimalWarning, UnreliableWarning
    """
    check_fitted(model)
    columns = _columns(model, rows)
    notes: tuple[str, ...] = ()
    if isinstance(model, Pipeline):
        warn_if_supervised(model, stacklevel=5)
        notes = (held_fixed(model),)
        rows, model = PreparedRows(rows, model[:-1].transform, columns), model[-1]
    summary = rows.total(partial(summarise, classes=is_classifier(model)))
    reading = _read(model, summary)
    models, penalty = _models(model, reading)
    solver = CurvedSolver(rows, summary, models, lambda _: penalty)
    start = _point(reading, models, summary)
    _check_optimal(solver, start, reading, type(model).__name__)
    solver.solve([1.0], Start.at(start))
    chosen = solver.chosen(1.0)
    classes = models.metric.classes if isinstance(models.metric, LogLoss) else None
    return estimate_rows(rows, chosen, models.metric, count=summary.count, classes=classes, notes=notes)


def _columns(model: Any, rows: Rows) -> tuple[str, ...] | None:
    """Names of the columns, where the model was fitted on a table and the source has them, too.

    Pipelines compare them on their own: those that choose columns by name take them in any order.
    """
    fitted = getattr(model, "feature_names_in_", None)
    if fitted is None or rows.names is None:
        return None
    if isinstance(model, Pipeline):
        return tuple(rows.names)
    for place, (own, name) in enumerate(zip(fitted, rows.names, strict=False)):
        if own != name:
            raise ValueError(
                f"column {place} of the source is {name!r}, where this {type(model).__name__} was fitted on "
                f"{own!r}: give the same columns in the same order"
            )
    return tuple(rows.names)


def _read(model: Any, summary: Summary) -> Reading:
    """Read an estimator on the sample, whose weights sum to those of all rows."""
    sample = summary.sample.rows
    weights = sample.weights * (summary.weight / float(sample.weights.sum()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return read(model, sample.X, sample.y, weights)


def _models(model: Any, reading: Reading) -> tuple[Models, SeparablePenalty]:
    """What the estimator minimises, where blocks are enough to judge it."""
    problem, penalty, name = reading.fit.problem, reading.fit.problem.penalty, type(model).__name__
    smooth = problem.loss.is_smooth and not problem.is_coupled
    same = problem.has_one_output and np.array_equal(problem.y, reading.target)
    plain = smooth and same and not reading.constant and not problem.is_balanced
    if not plain or not isinstance(penalty, SeparablePenalty):
        raise UnsupportedModelError(
            "rows in blocks are for a smooth loss of one output or two classes with a ridge, lasso or "
            f"elastic net penalty and without balanced classes, which this {name} is not: take a sample of "
            "the rows into memory"
        )
    intercept = bool(problem.intercept)
    return Models(problem.loss, reading.metric, (penalty,), intercept, problem.mean_scaled), penalty


def _point(reading: Reading, models: Models, summary: Summary) -> Points:
    """The coefficients of the estimator, for centred columns."""
    centre, coef = centre_of(models, summary), reading.fit.coef
    level = np.array([float(reading.fit.intercept) + float(coef @ centre)])
    return Points(coef[None].copy(), level, centre)


def _check_optimal(solver: CurvedSolver, start: Points, reading: Reading, name: str) -> None:
    """Warn where the coefficients were not optimal, refuse those of other data."""
    models, (penalty,) = solver.models, solver.models.penalties
    null = null_points(models, start.centre, _constant(models, solver.summary))
    coefs, levels = (np.concatenate([one, two]) for one, two in zip(start[:2], null[:2], strict=True))
    points = Points(coefs, levels, start.centre)
    both = replace(models, penalties=(penalty, penalty))
    sums = solver.rows.total(partial(summed, models=both, points=points, curved=np.arange(2)))
    here, constant = (Quadratic.of(sums, j, j, intercept=models.intercept) for j in range(2))
    change, level = here.step(start.coefs[0], penalty)
    l2 = penalty.strengths(change.shape)[1]
    step = np.append(change, level)
    left = 0.5 * float(step @ here.metric(l2) @ step)
    won = constant.value - here.value - penalty.value(start.coefs[0])
    achievable = max(won + left, NOTHING * abs(constant.value), np.finfo(float).tiny)
    say_if_far(left / achievable, achievable, reading, name)


def _constant(models: Models, summary: Summary) -> float:
    """Linear predictor of the constant model, on the sample."""
    sample = summary.sample.rows
    target = models.metric.target(sample.y)
    return float(models.loss.start(target, sample.weights)) if models.intercept else 0.0

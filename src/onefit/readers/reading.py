"""Fitted estimators in our terms, and the door through which every library comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
from sklearn.pipeline import Pipeline

from onefit._typing import Array, Design
from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.metrics import LinearMetric
from onefit.validation import (
    check_fitted,
    check_new_rows,
)

FOREIGN = {"adelie", "celer", "glum", "skglm", "sortedl1"}  # read by adapters.foreign, when one comes


@dataclass(frozen=True)
class Reading:
    """A fitted estimator in our terms.

    Attributes
    ----------
    fit : Fit
        As the estimator left it, polished or not.
    metric : LinearMetric
        How its predictions come from linear predictors, and are judged.
    target : array
        The response in the terms of ``metric``: numbers, or class numbers.
    classes : array or None
    tol : float
        Tolerance that its solver was asked for.
    converged : bool
        Whether the solver stopped before its limit of iterations.
    iterates : bool
        Whether it iterates at all.
    notes : tuple of str
    design : callable
        From new rows, as the estimator takes them, to rows of the fit's X.
    constant : float
        Value of the last column of the fit's X where that stands for the intercept, else 0.
    """

    fit: Fit
    metric: LinearMetric
    target: Array
    classes: Any | None = None
    tol: float = 1e-4
    converged: bool = True
    iterates: bool = False
    notes: tuple[str, ...] = ()
    design: Callable[[Any], Design] | None = None
    constant: float = 0.0


def read(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Reading:
    """Read a fitted estimator and the data it was fitted on.

    Raises
    ------
    UnsupportedModelError
        For an estimator, or a parameter of one, without a formula.
    NotFittedError
        For an estimator that was not fitted.
    """
    check_fitted(model)
    reading = _reader(type(model))(model, X, y, sample_weight)
    if isinstance(model, Pipeline):  # what its last step says of its solver holds
        return reading
    limit, steps = getattr(model, "max_iter", None), getattr(model, "n_iter_", None)
    reached = limit is not None and steps is not None and np.max(steps) >= limit
    tol = float(getattr(model, "tol", 1e-4))
    design = reading.design or partial(check_new_rows, model)
    return replace(reading, tol=tol, converged=not reached, iterates=steps is not None, design=design)


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def has_reading(kind: type) -> bool:
    """Whether models of a class can be read, for some of their parameters at least."""
    return _reader(kind) is not as_fit.dispatch(object)


def _reader(kind: type) -> Callable[[Any, Any, Any, Any], Reading]:
    """Find the function that reads models of a class.

    A library's own subclasses (LassoLarsIC, MultiTaskLasso) solve other problems than their parents, so what
    is registered for these is not for them.
    """
    for library in FOREIGN & {_library(cls) for cls in kind.__mro__}:
        import_module("onefit.readers.foreign").register(library)
    stranger = _library(kind) in FOREIGN | {"sklearn"} and kind not in as_fit.registry
    return as_fit.dispatch(object if stranger else kind)


@singledispatch
def as_fit(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Translate a fitted estimator; register a function here for a new class."""
    names = sorted(cls.__name__ for cls in as_fit.registry if cls is not object)
    raise UnsupportedModelError(
        f"no leave-one-out formula for {type(model).__name__}; supported are {', '.join(names)}, and "
        "pipelines that end in one of them"
    )


def refuse(model: Any, parameter: str, why: str) -> NoReturn:
    """Refuse a value of a parameter, and say why.

    Raises
    ------
    UnsupportedModelError
    """
    raise UnsupportedModelError(
        f"{type(model).__name__}({parameter}={getattr(model, parameter)!r}) is not supported: {why}"
    )


@as_fit.register(Pipeline)
def _pipeline(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    prepared = X if len(model.steps) == 1 else model[:-1].transform(X)
    reading = read(model[-1], prepared, y, sample_weight)
    if len(model.steps) == 1:
        return reading
    note = "the preprocessing steps of the pipeline were fitted on all rows and held fixed"
    inner = reading.design

    def design(new: Any) -> Design:
        return inner(model[:-1].transform(new)) if inner is not None else new

    return replace(reading, notes=(*reading.notes, note), design=design)

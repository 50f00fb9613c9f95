"""The door through which every library's estimators come in.

A new library is one file with two tables, ``READINGS`` (class to reader) and ``REFERENCES`` (class to the
unfitted estimator that refits clone), and one line in ``LIBRARIES``.  A third, ``REFUSALS``, has the classes
that are never read, with functions that say why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial, singledispatch
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import TargetEncoder

from onefit._typing import Design
from onefit.exceptions import UnreliableWarning, UnsupportedModelError
from onefit.losses import Tweedie
from onefit.readers.reading import Reader, Reading
from onefit.readers.translation import library_of
from onefit.refits import reference
from onefit.validation import check_fitted, check_new_rows, check_range

LIBRARIES = {  # where the estimators of each are read; imported when the first of them comes
    "sklearn": "onefit.readers.scikit_learn",
    "skglm": "onefit.readers.skglm",
    "celer": "onefit.readers.celer",
    "glum": "onefit.readers.glum",
    "adelie": "onefit.readers.adelie",
    "sortedl1": "onefit.readers.sortedl1",
    "statsmodels": "onefit.readers.statsmodels",
}
REFUSED = set[type]()  # classes that are never read, of the libraries that were loaded


@singledispatch
def as_fit(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Translate a fitted estimator; register a function here for a new class."""
    if hasattr(model, "best_estimator_"):
        raise UnsupportedModelError(
            f"{type(model).__name__} chose among models: pass its best_estimator_, whose risk leaves out "
            "that it was chosen"
        )
    read = [cls for cls in as_fit.registry if cls is not object and cls not in REFUSED]
    names = sorted({cls.__name__ for cls in read if cls.__module__.partition(".")[0] != "onefit"})
    raise UnsupportedModelError(
        f"no leave-one-out formula for {type(model).__name__}; supported are {', '.join(names)}, the "
        "estimators of onefit, and pipelines that end in one of them"
    )


@cache
def load(library: str) -> None:
    """Register how a library's estimators are read and refitted.

    Parameters
    ----------
    library : str
        One of ``LIBRARIES``; it must be installed.
    """
    module = import_module(LIBRARIES[library])
    refusals = getattr(module, "REFUSALS", {})
    REFUSED.update(refusals)
    for cls, reader in (module.READINGS | refusals).items():
        as_fit.register(cls, reader)
    for cls, unfitted in module.REFERENCES.items():
        reference.register(cls, unfitted)


def read(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Reading:
    """Read a fitted estimator and the data it was fitted on.

    Raises
    ------
    UnsupportedModelError
        For an estimator, or a parameter of one, without a formula.
    NotFittedError
        For an estimator that was not fitted.
    ValueError
        For responses that its loss does not know.
    """
    check_fitted(model)
    reading = _reader(type(model))(model, X, y, sample_weight)
    if isinstance(model, Pipeline):  # what its last step says of its solver holds
        return reading
    problem = reading.fit.problem
    if isinstance(problem.loss, Tweedie):
        check_range(problem.y, problem.loss.power)
    limit, steps = getattr(model, "max_iter", None), getattr(model, "n_iter_", None)
    reached = limit is not None and steps is not None and np.max(steps) >= limit
    tol = getattr(model, "tol", None)
    design = reading.design or partial(check_new_rows, model)
    iterates = steps is not None or getattr(model, "solver_", None) == "lbfgs"  # Ridge does not count steps
    return replace(
        reading,
        tol=1e-4 if tol is None else float(tol),
        converged=not reached,
        iterates=iterates and not reading.solved,
        design=design,
    )


def has_reading(kind: type) -> bool:
    """Whether something is known of models of a class: how they are read, or why they are not."""
    return _reader(kind) is not as_fit.dispatch(object)


def _reader(kind: type) -> Reader:
    """Find the function that reads models of a class.

    A library's own subclasses (LassoLarsIC, MultiTaskLasso) solve other problems than their parents, so what
    is registered for these is not for them.
    """
    for library in LIBRARIES.keys() & {library_of(cls) for cls in kind.__mro__}:
        load(library)
    stranger = library_of(kind) in LIBRARIES and kind not in as_fit.registry
    return as_fit.dispatch(object if stranger else kind)


@as_fit.register(Pipeline)
def _pipeline(model: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    if len(model.steps) == 1:
        return read(model[-1], X, y, sample_weight)
    for name, step in model.steps[:-1]:
        if any(isinstance(part, TargetEncoder) for part in _parts(step)):
            raise UnsupportedModelError(
                f"step {name!r} encodes the rows it is fitted on by folds (TargetEncoder), so that X and y "
                "do not tell what the last step was fitted on"
            )
    reading = read(model[-1], model[:-1].transform(X), y, sample_weight)
    inner: Callable[[Any], Design] | None = reading.design

    def design(new: Any) -> Design:
        return inner(model[:-1].transform(new)) if inner is not None else new

    return replace(reading, notes=(*reading.notes, held_fixed(model)), design=design)


def held_fixed(model: Pipeline) -> str:
    """What was assumed of the steps before the last, for a note."""
    note = "the preprocessing steps of the pipeline were fitted on all rows and held fixed"
    supervised = supervised_steps(model)
    return f"{note}; {' and '.join(supervised)} learned from the responses left out" if supervised else note


def warn_if_supervised(model: Any, stacklevel: int = 2) -> None:
    """Warn of steps that learn from y, where nothing refits them."""
    if supervised := supervised_steps(model):
        warnings.warn(
            f"steps of the pipeline that learn from y ({', '.join(supervised)}) are held fixed, but have "
            "seen the rows that the model is judged by: the risk may be far too small. onefit.loo(..., "
            "audit=30), on rows in memory, refits whole pipelines and corrects it",
            UnreliableWarning,
            stacklevel=stacklevel,
        )


def supervised_steps(model: Any) -> list[str]:
    """Names of the steps of a pipeline before its last that learn from y, as far as scikit-learn tells."""
    steps = model.steps[:-1] if isinstance(model, Pipeline) else []
    return [name for name, step in steps if any(map(_learns_from_y, _parts(step)))]


def _parts(step: Any) -> Iterator[Any]:
    """A step, or what it is made of: those of a pipeline, a union or a transformer of columns."""
    inner = getattr(step, "steps", getattr(step, "transformers", getattr(step, "transformer_list", None)))
    if inner is None:
        yield step
    for part in inner or ():
        yield from _parts(part[1])


def _learns_from_y(step: Any) -> bool:
    if not hasattr(step, "__sklearn_tags__"):  # "passthrough", or no estimator of scikit-learn's kind
        return False
    from sklearn.feature_selection import SelectorMixin, VarianceThreshold  # slow to import

    # selectors need no y by their tags, because their scores may do without; a variance needs none
    selects = isinstance(step, SelectorMixin) and not isinstance(step, VarianceThreshold)
    return (
        selects or is_classifier(step) or is_regressor(step) or step.__sklearn_tags__().target_tags.required
    )

"""A model as a function of its hyperparameters.

On a grid of them each point is fitted once, and judged by leaving rows out of that fit.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline

from onefit._typing import Array
from onefit.estimators.search_settings import domain_of
from onefit.exceptions import UnsupportedModelError
from onefit.problem import Problem
from onefit.readers import Reading, has_reading, read
from onefit.readers.kernels import KernelGram, check_semidefinite
from onefit.refits import weight_name
from onefit.risk.criteria import Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.tuning.space import Domain, Scale, Space
from onefit.validation import check_table

ANY_MODEL = "GridSearchCV searches over any estimator, and so does this class over lists of values with cv=5"
DIGITS = 12  # of a score: those that differ by rounding alone are ties, of which the first is taken


@dataclass(frozen=True, eq=False)
class SearchedModel:
    """A model that was fitted once, and what it minimises at other hyperparameters.

    Of a pipeline it is the last step, on what the others make of the rows; ``prefix`` is how the names of its
    hyperparameters begin.
    """

    fitted: Any
    X: Any
    y: Any
    sample_weight: Any
    space: Space
    reading: Reading
    prefix: str = ""

    @classmethod
    def of(
        cls, estimator: Any, bounds: Mapping[str, Any], X: Any, y: Any, sample_weight: Any
    ) -> SearchedModel:
        """Fit in the middle of the bounds, to learn what the estimator makes of the data."""
        check_names(estimator, bounds)
        last, prepared, prefix = _last_step(estimator, X, y)
        check_table(prepared)
        if not has_reading(type(last)):
            raise UnsupportedModelError(
                f"no gradients for {type(last).__name__}: onefit.loo has no formula for it. {ANY_MODEL}"
            )
        space = Space(tuple(domain_of(name, given, prepared, estimator) for name, given in bounds.items()))
        middle = space.values(space.middle)
        fitted = clone(last)
        try:
            with warnings.catch_warnings():  # where it starts from need not be exact
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit_weighted(fitted.set_params(**_without(prefix, middle)), prepared, y, sample_weight)
            reading = read(fitted, prepared, y, sample_weight)
            if isinstance(reading.fit.problem.X, KernelGram):
                check_semidefinite(reading.fit.problem.X.gram, reading.fit.problem.X.kernel)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                f"no gradients for {type(last).__name__}: {error}. {ANY_MODEL}"
            ) from error
        except ValueError as error:
            raise _explained(error, space, last, middle) from error
        return cls(fitted, prepared, y, sample_weight, space, reading, prefix)

    def problem_at(self, values: dict[str, Any]) -> Problem:
        """What the estimator minimises for these hyperparameters."""
        own = _without(self.prefix, values)
        if all(name.partition("__")[0] in self._handed_over and "__" in name for name in own):
            return self._with_other(own)
        return self._read_with(own).fit.problem

    def _read_with(self, own: dict[str, Any]) -> Reading:
        """What is read of the estimator with other hyperparameters."""
        model = copy.copy(self.fitted)
        nested = {name.partition("__")[0] for name in own if "__" in name}
        model.set_params(**{name: clone(getattr(model, name), safe=False) for name in nested})
        with config_context(assume_finite=True):  # these rows were checked in ``of``
            return read(model.set_params(**own), self.X, self.y, self.sample_weight)

    def check_ends(self) -> None:
        """Refuse bounds that the estimator does not take, or between which rows are judged by several losses.

        Raises
        ------
        ValueError
        """
        for domain in self.space.domains:
            if not isinstance(domain, Domain):
                continue
            names = [self._at_end(domain, end).metric.loss_name for end in domain.ends]
            if len(set(names)) > 1:
                raise ValueError(_another_loss(domain.name, names, "give a list of values, and "))

    def _at_end(self, domain: Domain, end: float) -> Reading:
        value = domain.value(np.full(domain.size, end))
        own = _without(self.prefix, {domain.name: value})
        try:
            if hasattr(self.fitted, "_parameter_constraints"):  # what scikit-learn asks of them
                clone(self.fitted).set_params(**own)._validate_params()
            return self._read_with(own)
        except (ValueError, UnsupportedModelError) as error:
            raise ValueError(f"{domain.name!r} cannot be searched {domain.range}: {error}") from error

    @cached_property
    def _handed_over(self) -> set[str]:
        """Penalty and loss, where the problem has the estimator's own: then nothing else depends on them."""
        problem = self.reading.fit.problem
        parts = {"penalty": problem.penalty, "loss": problem.loss}
        return {name for name, part in parts.items() if getattr(self.fitted, name, None) is part}

    def _with_other(self, values: dict[str, Any]) -> Problem:
        """The problem with other parameters of its penalty and loss, and the data as they were read."""
        problem = self.reading.fit.problem
        parts = dict[str, dict[str, Any]]()
        for name, value in values.items():
            part, _, parameter = name.partition("__")
            parts.setdefault(part, {})[parameter] = value
        changed: dict[str, Any] = {
            part: clone(getattr(problem, part)).set_params(**own) for part, own in parts.items()
        }
        problem = replace(problem, **changed)
        problem.penalty.check(problem.coef_shape)
        return problem


def fit_weighted(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a model, or a pipeline whose last step takes the weights."""
    model.fit(X, y, **({} if sample_weight is None else {weight_name(model): sample_weight}))


def _without(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items()}


def check_names(estimator: Any, bounds: Mapping[str, Any]) -> None:
    """Refuse hyperparameters that an estimator, or the last step of a pipeline, does not have.

    Raises
    ------
    TypeError
        If it is no estimator.
    ValueError
    """
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        raise TypeError(f"estimator must be a model such as Ridge(), got {estimator!r}")
    if not len(bounds):
        raise ValueError(f"param_bounds must name at least one hyperparameter and its bounds, got {bounds!r}")
    known = estimator.get_params(deep=True)
    for name in bounds:
        if name not in known:
            raise ValueError(
                f"{type(estimator).__name__} has no hyperparameter {name!r}; it has "
                f"{', '.join(sorted(known))}{_by_name(name, known)}"
            )
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    for name in bounds:
        if not name.startswith(prefix):
            raise ValueError(
                f"{name!r} belongs to a step before the last, which is held fixed: only hyperparameters that "
                f"begin with {prefix!r} are searched over"
            )


def _by_name(name: str, known: Mapping[str, Any]) -> str:
    """What to pass in place of a string, where parameters of what it names are searched over."""
    part = name.rpartition("__")[0]
    if not isinstance(known.get(part), str):
        return ""
    return f". {part} is given by name, {known[part]!r}: pass an object, whose parameters have names"


def _explained(error: ValueError, space: Space, model: Any, middle: Mapping[str, Any]) -> ValueError:
    """Add where the values came from, or what is likely where a model is given one value a feature."""
    several = [
        repr(domain.name)
        for domain in space.domains
        if isinstance(domain, Domain) and domain.groups is not None
    ]
    if not several:
        named = any(name.rpartition("__")[2] in str(error) for name in middle)  # others are of the data
        at = f" (fitted in the middle of param_bounds, at {middle})" if named else ""
        return ValueError(f"{error}{at}")
    return ValueError(
        f"{type(model).__name__} does not take one value a feature for {', '.join(several)} ({error}): "
        "PerFeature and PerGroup are for strengths of GeneralizedLinear with a penalty on single "
        "coefficients, and for length scales of a kernel object; give a pair of numbers"
    )


def is_grid(bounds: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bool:
    """Whether hyperparameters are given as lists, as ``GridSearchCV`` takes them: no pairs (low, high).

    Of several grids in a list each has names of its own.

    Raises
    ------
    TypeError
        If there are no names.
    ValueError
        If some are, and others are bounds, or one is empty.
    """
    if isinstance(bounds, list | tuple) and len(bounds):
        return _are_grids(bounds)
    if not isinstance(bounds, Mapping):
        raise TypeError(
            f"param_bounds must be a dictionary of names and bounds, or lists of values, got {bounds!r}"
        )
    for name, given in bounds.items():
        if isinstance(given, list | tuple | np.ndarray) and len(given) == 0:
            raise ValueError(
                f"param_bounds names no value of {name!r}: give a list of values for a grid, or a pair "
                "(low, high) for a search by gradients"
            )
    lists = [name for name, given in bounds.items() if _is_list(given)]
    if lists and len(lists) < len(bounds):
        other = next(name for name in bounds if name not in lists)
        raise ValueError(
            f"{lists[0]!r} is a list of values and {other!r} is not: give each a list for a grid, or each a "
            "pair (low, high) for a search by gradients"
        )
    return bool(lists)


def _are_grids(grids: Sequence[Mapping[str, Any]]) -> bool:
    for k, grid in enumerate(grids):
        if not is_grid(grid):
            raise ValueError(
                f"param_bounds[{k}] must give each hyperparameter a list of values, got {grid!r}: of several "
                "dictionaries each is a grid"
            )
    return True


def _is_list(given: Any) -> bool:
    """Whether it is a list of values; a pair of numbers, and one with a scale, are bounds."""
    if not isinstance(given, list | tuple | np.ndarray):
        return False
    is_pair = isinstance(given, tuple)
    if len(given) < 3:
        return not is_pair
    return not isinstance(given[2], str) or (not is_pair and given[2] not in get_args(Scale))


def _last_step(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, str]:
    """Of pipelines, one in another, the last step, what the others make of X, and how its names begin."""
    last, prepared, prefix = estimator, X, ""
    while isinstance(last, Pipeline):
        if len(last.steps) > 1:
            prepared = clone(last[:-1]).fit(prepared, y).transform(prepared)
        name, last = last.steps[-1]
        prefix += f"{name}__"
    return last, prepared, prefix


def judge_grid(
    estimator: Any,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    risk_of: Callable[[Any], RiskEstimate | Criterion],
    sample: tuple[Any, Any, Any],
    scoring: Any = None,
    heard: Callable[[dict[str, Any], float], Any] | None = None,
) -> tuple[list[dict[str, Any]], Array, int, Any, RiskEstimate | Criterion]:
    """Fit every point of a grid and judge it: points, scores (larger is better), and the best with its risk.

    Parameters
    ----------
    estimator : estimator
    grid : dict of name to values, or list of them
    risk_of : callable
        From a fitted model to its risk.
    sample : X, y and weights or None
    scoring : str or callable, optional
        Of the left-out predictions, all pooled; minus the risk if None.
    heard : callable, optional
        Called with the hyperparameters and the risk after every point.

    Returns
    -------
    points : list of dict
    scores : array
        Of the first points only, where an interruption ended the search.
    best : int
    model, risk
        Of the best.

    Raises
    ------
    ValueError
        If no point has a score that is a number, or points are judged by other losses.
    """
    points, scores, kept = _points(estimator, grid), list[float](), None
    try:
        for params in points:
            model = clone(estimator).set_params(**params)
            fit_weighted(model, *sample)
            risk = risk_of(model)
            if kept is not None and scoring is None:
                _check_alike(kept[2], risk, params)
            score = _score(risk, scoring)
            if np.isfinite(score) and (kept is None or score > scores[kept[0]]):
                kept = len(scores), model, risk
            scores.append(score)
            if heard is not None:
                heard(params, risk.value)
    except KeyboardInterrupt:
        if kept is None:
            raise
    if kept is None:
        raise ValueError(f"no point of the grid has a finite score, the first is {scores[0]} at {points[0]}")
    return points, np.array(scores), *kept


def _points(estimator: Any, grid: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    grids = [dict(one) for one in ([grid] if isinstance(grid, Mapping) else grid)]
    for one in grids:
        check_names(estimator, one)
    return list(ParameterGrid(grids))


def _score(risk: RiskEstimate | Criterion, scoring: Any) -> float:
    score = -risk.value if scoring is None or isinstance(risk, Criterion) else risk.score(scoring)
    return float(f"{score:.{DIGITS}g}")


def _check_alike(one: RiskEstimate | Criterion, other: RiskEstimate | Criterion, params: Any) -> None:
    names = [getattr(risk, "loss_name", "") for risk in (one, other)]
    if names[0] != names[1]:
        raise ValueError(_another_loss(", ".join(params), names, "pass "))


def _another_loss(name: str, losses: Sequence[str], do: str) -> str:
    return (
        f"{name} changes the loss by which left-out rows are judged, from {losses[0]} to {losses[1]}: "
        f"risks cannot be compared, so {do}scoring='mae', or another that is the same for all"
    )

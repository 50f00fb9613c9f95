"""What a search through the value function was given, checked."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onefit.estimators import GeneralizedLinear
from onefit.torch.numerics.optimizers import Adam, Descent, Lbfgs
from onefit.torch.numerics.rows import as_device, check_counts, trained_parameters
from onefit.torch.value_function.levels import Levels, SearchBox
from onefit.torch.value_function.linear_levels import LinearLevels
from onefit.torch.value_function.module_levels import (
    BilevelProblem,
    ModuleLevels,
    SumOfSquares,
    as_data,
    state_of,
)

if TYPE_CHECKING:
    from onefit.torch.value_function.search import ValueFunctionSearch

OF_MODULES = ("loss", "penalties", "validation_loss", "batch_size", "dtype")


def check_settings(search: ValueFunctionSearch) -> None:
    """Refuse settings out of their range."""
    check_counts(n_rounds=search.n_rounds, max_iter=search.max_iter)
    for name in ("n_samples", "batch_size"):
        if getattr(search, name) is not None:
            check_counts(**{name: getattr(search, name)})
    if search.n_samples is not None and search.n_samples < 3:
        raise ValueError(f"n_samples must be at least 3 to interpolate, got {search.n_samples}")
    for name in ("weight", "multiplier", "growth"):
        if not getattr(search, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(search, name)!r}")


def levels_of(search: ValueFunctionSearch, *data: Any) -> Levels:
    """Both levels of the search: those of a linear model are solved exactly."""
    model: Any = search.module
    if isinstance(model, GeneralizedLinear):
        return _linear(search, model, data)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module or a GeneralizedLinear, got {type(model).__name__}"
        )
    return _modular(search, *data)


def _linear(search: ValueFunctionSearch, model: GeneralizedLinear, data: tuple[Any, ...]) -> LinearLevels:
    """Check what was given for a linear model."""
    for name in OF_MODULES:
        if getattr(search, name) is not None:
            raise ValueError(
                f"{name} is for modules: a GeneralizedLinear has its own loss and penalty, and is solved "
                "on all rows"
            )
    plan = {"max_iter": search.max_iter, "tol": search.tol}
    return LinearLevels.of(model, data, search.bounds, search.scale, **plan)


def _modular(search: ValueFunctionSearch, X: Any, y: Any, X_val: Any, y_val: Any) -> ModuleLevels:
    """Check what was given for a module."""
    trained_parameters(search.module)
    if search.loss is None:
        raise ValueError("loss must be given for a module")
    if not isinstance(search.penalties, Mapping) or not search.penalties:
        raise ValueError("penalties must be a dictionary of names and penalties, at least one")
    space, device = SearchBox.of(search.penalties, search.bounds, search.scale), as_device(search.device)
    like = trained_parameters(search.module)[0].dtype
    dtype = search.dtype or (torch.float64 if search.batch_size is None else like)
    penalties = tuple(SumOfSquares(one) if isinstance(one, str) else one for one in search.penalties.values())
    problem = BilevelProblem(
        copy.deepcopy(search.module).to(device, dtype).eval(),
        search.loss,
        search.validation_loss or search.loss,
        penalties,
        space,
        as_data("X and y", X, y, device, dtype),
        as_data("X_val and y_val", X_val, y_val, device, dtype),
    )
    problem.check()
    return ModuleLevels(problem, _descent(search, problem), state_of(problem.module))


def _descent(search: ValueFunctionSearch, problem: BilevelProblem) -> Descent:
    if search.batch_size is None:
        return Lbfgs(search.max_iter, search.tol)
    sizes = len(problem.train.X), len(problem.held.X)
    return Adam(search.max_iter, search.batch_size, search.learning_rate, sizes)

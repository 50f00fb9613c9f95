"""Weight decay of each parameter: a number, numbers by name or pattern, or those of an optimiser."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from onefit.exceptions import UnreliableWarning

Decay: TypeAlias = float | Mapping[str, float] | torch.optim.Optimizer


def read_decay(given: Any, module: nn.Module, shapes: Mapping[str, torch.Size], theta: Tensor) -> Tensor:
    """Weight decay of each trainable parameter: (k,).

    Parameters
    ----------
    given : float, dict of float, or torch.optim.Optimizer
        Names of a dict may be patterns, as in a shell; the last that matches a parameter holds.  One that
        several modules share has the names of all of them.
    module : nn.Module
        That was trained: an optimiser knows its parameters.
    shapes : dict of shapes
        Of the trainable parameters.
    theta : (k,) tensor

    Raises
    ------
    TypeError, ValueError
    """
    if isinstance(given, torch.optim.Optimizer):
        by_name = _of_optimizer(given, module, shapes)
    elif isinstance(given, Mapping):
        by_name = _of_patterns(given, _names_of(module, shapes))
    else:
        by_name = dict.fromkeys(shapes, given)
    try:
        values = [float(by_name.get(name, 0.0)) for name in shapes]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"weight_decay must be a number, a dictionary of numbers by name, or an optimizer, got {given!r}"
        ) from error
    if not np.all(np.isfinite(values)) or min(values) < 0:
        raise ValueError(f"weight_decay must be finite and at least 0, got {given!r}")
    parts = [theta.new_full((shape.numel(),), v) for v, shape in zip(values, shapes.values(), strict=True)]
    return torch.cat(parts)


def _names_of(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """The name of a parameter by each name that it has, more than one where modules share it."""
    first = {id(p): name for name, p in module.named_parameters()}
    named = {name: first[id(p)] for name, p in module.named_parameters(remove_duplicate=False)}
    held = set(names)
    return {name: own for name, own in named.items() if own in held}


def _of_patterns(given: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    by_name: dict[str, float] = {}
    for pattern, value in given.items():
        matching = [own for name, own in names.items() if fnmatchcase(name, pattern)]
        if not matching:
            raise ValueError(f"weight_decay names {pattern!r}, which is none of {', '.join(names)}")
        by_name |= dict.fromkeys(matching, value)
    return by_name


def _of_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, names: Iterable[str]
) -> dict[str, float]:
    """Read ``param_groups``."""
    is_adamw = isinstance(optimizer, torch.optim.AdamW)
    if any(g["weight_decay"] for g in optimizer.param_groups if g.get("decoupled_weight_decay", is_adamw)):
        warnings.warn(
            f"{type(optimizer).__name__} shrinks weights apart from the loss (decoupled weight decay), which "
            "is no penalty: what follows is for the minimum of the loss with the same decay as a penalty; "
            "see that training on moves the weights little",
            UnreliableWarning,
            stacklevel=5,
        )
    held = {
        id(p): group.get("weight_decay", 0.0) for group in optimizer.param_groups for p in group["params"]
    }
    own = {name: p for name, p in module.named_parameters() if name in set(names)}
    missing = [name for name, p in own.items() if id(p) not in held]
    if missing:
        raise ValueError(
            f"weight_decay is an optimizer that does not train {missing[0]!r}: give that of this module, or "
            "a number or dict"
        )
    return {name: held[id(p)] for name, p in own.items()}

"""Modules, rows, weights: what comes from the user, as tensors and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onefit.exceptions import SolverError
from onefit.torch.numerics.devices import on_host
from onefit.torch.numerics.objective import PenalisedSum


def as_rows(name: str, given: Any, device: torch.device, least: int = 2) -> Tensor:
    """Rows as a tensor: numbers in float64, whole numbers (labels, tokens) as they are.

    Raises
    ------
    ValueError
        If there are fewer than ``least`` rows, 2 where they are to be left out, or a value is not finite.
    """
    rows = given.detach() if isinstance(given, Tensor) else torch.as_tensor(np.array(given))
    if rows.is_complex():
        raise TypeError(
            f"{name} holds complex numbers: give real and imaginary parts as columns of their own"
        )
    kind = torch.float64 if rows.is_floating_point() else torch.int64
    rows = rows.to(device=device, dtype=rows.dtype if rows.dtype == torch.bool else kind)
    if rows.ndim == 0 or len(rows) < least:
        needs = "leave-one-out needs at least 2 rows" if least == 2 else "at least 1 row is needed"
        raise ValueError(f"{needs}, got {name} of shape {tuple(rows.shape)}")
    wrong = torch.nonzero(~torch.isfinite(rows.reshape(len(rows), -1)).all(1))
    if len(wrong):
        raise ValueError(f"{name} has values that are not finite, the first in row {int(wrong[0])}")
    return rows


def as_weights(given: Any, n: int, device: torch.device) -> Tensor:
    """Weights of the rows: all ones if None."""
    if given is None:
        return torch.ones(n, dtype=torch.float64, device=device)
    weights = np.asarray(on_host(given), dtype=np.float64)
    if weights.shape != (n,) or not np.all(np.isfinite(weights)) or np.any(weights < 0) or not weights.any():
        raise ValueError(
            f"sample_weight must be {n} finite numbers of at least 0, not all 0, got {weights.shape}"
        )
    return torch.as_tensor(weights, device=device)


def check_objective(objective: PenalisedSum, theta: Tensor) -> None:
    """Refuse a loss that is not one finite number a row, and penalties that are not one finite number."""
    try:
        of_one = objective.loss(theta, objective.X[0], objective.y[0])
    except RuntimeError as error:  # shapes that do not go together, as PyTorch says it
        shape = tuple(objective.X[0].shape)
        raise ValueError(
            f"the loss of one row, of shape {shape}, fails at the start, which has {len(theta)} numbers: "
            f"{error}"
        ) from error
    check_scalar("the loss of one row", of_one)
    for m, term in enumerate(objective.penalties):
        check_scalar(f"penalty {m}", term(theta))
        if not bool(torch.isfinite(term(theta))):
            raise ValueError(f"penalty {m} is not finite at the start")
    wrong = torch.nonzero(~torch.isfinite(objective.losses(theta)))
    if len(wrong):
        raise ValueError(
            f"the loss is not finite at the start in {len(wrong)} rows, the first row {int(wrong[0])}"
        )
    if not bool(torch.isfinite(objective.gradient(theta)).all()):
        raise SolverError("the gradient of the objective is not finite at the start: begin elsewhere")


def check_scalar(what: str, value: Any) -> None:
    """Refuse what is not one number."""
    if not isinstance(value, Tensor) or value.shape != ():
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"{what} must be one number, a tensor of shape (), got {shape}")


def trained_parameters(module: Any) -> list[nn.Parameter]:
    """Return the parameters of a module that are to be trained.

    Raises
    ------
    TypeError
        If it is no module.
    ValueError
        If there are none.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(f"{type(module).__name__} has no parameters to train")
    return parameters


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A module in evaluation mode for a while, then each of its parts in that in which it was."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        module.train(before[0][1])  # which a module may have given a sense of its own
        for part, mode in before:
            part.training = mode


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of a seed for a while, on the host and a device, which leaves those of others alone."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every device
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        yield

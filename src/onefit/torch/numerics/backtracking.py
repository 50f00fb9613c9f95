"""Steps that are halved until a function decreases by its share (Armijo 1966), of many functions at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SHARE = 1e-4  # of the decrease that the slope promises
HALVINGS = 40
SLACK = 1e-13  # of the value: what rounding may add to it


def backtracked(
    reach: Callable[[Tensor], Tensor],
    value: Tensor,
    slope: Tensor,
    length: Tensor,
    *,
    slack: float = SLACK,
    halvings: int = HALVINGS,
) -> tuple[Tensor, Tensor]:
    """Halve lengths until each value is at most ``value + SHARE · length · slope``, rounding allowed for.

    Parameters
    ----------
    reach : callable
        From lengths to values, tensors of the shape of ``value``.
    value, slope, length : tensors of one shape
        Where the steps begin, derivative along them, and how far they go at first.

    Returns
    -------
    length, value : tensors
        0 and the value at the start where no length was short enough.

    Examples
    --------
    >>> start = torch.tensor([1.0, 1.0])
    >>> step = torch.tensor([-1.0, -8.0])
    >>> lengths, _ = backtracked(
    ...     lambda t: (start + t * step) ** 2, start**2, 2 * start * step, torch.ones(2)
    ... )
    >>> lengths
    tensor([1.0000, 0.1250])
    """
    room = slack * (1.0 + value.abs())
    for _ in range(halvings):
        reached = reach(length)
        rising = ~(reached <= value + SHARE * length * slope + room)
        if not bool(rising.any()):
            return length, reached
        length = torch.where(rising, length / 2, length)
    return torch.where(rising, 0.0, length), torch.where(rising, value, reached)

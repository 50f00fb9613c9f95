"""Devices: which are there, and what comes back from them to the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def as_device(device: Any) -> torch.device:
    """Read a device, and refuse one that is not there.

    Raises
    ------
    ValueError
    """
    try:
        found = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=found).cpu()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]  # more lines tell how to debug kernels
        raise ValueError(f"device {device!r} cannot be used here: {why}; take device='cpu'") from error
    return found


def on_host(given: Any) -> Any:
    """What a user gave, as NumPy can read it: a tensor, from wherever it is, as an array, else as it is."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given

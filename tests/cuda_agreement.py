"""Data, devices and comparisons of the tests that a CUDA device is needed for.

In double precision it differs from the CPU by the order of sums only, about 1e-15, which the conditioning of
these small problems leaves far below 1e-6.  In single precision the same argument from 1e-7 gives 1e-3.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

needs_cuda = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::onefit.exceptions.OnefitWarning"),  # few rows, and untrained modules
]
N, CPU, CUDA = 40, torch.device("cpu"), torch.device("cuda")
DOUBLE = {"rtol": 1e-6, "atol": 1e-9}
SINGLE = {"rtol": 1e-3, "atol": 1e-4}
on_each = pytest.mark.parametrize("place", [CPU, CUDA], ids=["given on the CPU", "given on the GPU"])


def moved(tree, place):
    return tree_map(lambda leaf: leaf.to(place) if isinstance(leaf, torch.Tensor) else leaf, tree)


def agree(found, expected, **tolerance):
    """Arrays and numbers on the host, near those that are expected."""
    for one in found:
        assert isinstance(one, np.ndarray | float)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **(tolerance or DOUBLE))


def unchanged(module, before, place):
    """Whether a module is where it was, its parameters the same objects with the same values."""
    for name, own in module.named_parameters():
        assert own.device.type == place.type, name
        assert own.grad is None
        torch.testing.assert_close(own.detach().cpu(), before[name], rtol=0, atol=0)


def weights_of(module):
    return {name: own.detach().cpu().clone() for name, own in module.named_parameters()}


def numbers(n=N):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    noise = 0.2 * torch.randn(n, 1, dtype=torch.float64, generator=generator)
    return X, torch.sin(X[:, :1]) + 0.3 * X[:, 1:2] + noise


def row_weights(n=N):
    return torch.linspace(0.5, 2.0, n, dtype=torch.float64)


def perceptron(c=1):
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, c))

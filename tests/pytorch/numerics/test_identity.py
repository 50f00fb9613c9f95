"""What is kept of a module serves that module, those rows and those functions only."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from onefit.torch.numerics.identity import digest_of  # noqa: E402
from onefit.torch.numerics.loaders import in_order  # noqa: E402


def shrunk(share):
    return lambda module: share * module.weight.abs().sum()


def linear(scale=1.0):
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.fill_(scale)
        layer.bias.fill_(0.0)
    return layer


class Squared(nn.Module):
    def forward(self, x):
        return x**2


class Cubed(nn.Module):
    def forward(self, x):
        return x**3


DIFFERENT = [
    linear(),
    linear(2.0),
    nn.Sequential(linear(), nn.ReLU()),
    nn.Sequential(linear(), nn.Tanh()),
    nn.MSELoss(),
    nn.MSELoss(reduction="sum"),
    nn.HuberLoss(delta=2.0),
    nn.HuberLoss(delta=3.0),
    nn.Sequential(Squared()),
    nn.Sequential(Cubed()),
    shrunk(1.0),
    shrunk(2.0),
    partial(torch.add, alpha=1),
    partial(torch.add, alpha=2),
    lambda module: module.weight.sum(),
    lambda module: module.bias.sum(),
    np.arange(3),
    np.arange(3.0),
    torch.zeros(2, 3),
    torch.zeros(3, 2),
    {"a": 1},
    {"a": 2},
]


def test_other_things_have_other_digests():
    assert len({digest_of(one) for one in DIFFERENT}) == len(DIFFERENT)


def test_the_same_things_have_the_same():
    for make in (linear, lambda: nn.HuberLoss(delta=2.0), lambda: shrunk(3.0), lambda: {"x": torch.ones(2)}):
        assert digest_of(make(), 1.0) == digest_of(make(), 1.0)
    copied = pickle.loads(pickle.dumps(linear()))
    assert digest_of(copied) == digest_of(linear())


def test_another_process_has_the_same():
    code = (
        "import torch\nfrom torch import nn\nfrom onefit.torch.numerics.identity import digest_of\n"
        "net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Tanh())\n"
        "with torch.no_grad():\n    net[0].weight.fill_(1.0)\n"
        "print(digest_of(net, nn.MSELoss(), lambda x: x in {'a', 'b', 'c', 'd'}))"
    )
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout != b""


ROWS = TensorDataset(torch.arange(10.0)[:, None], torch.arange(10.0))


def read(loader):
    return torch.cat([X for X, _ in in_order(loader, 4)])[:, 0].tolist()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "batch_size": 3, "drop_last": True},
        {"sampler": SequentialSampler(ROWS)},
        {"sampler": RandomSampler(ROWS)},
        {"batch_sampler": BatchSampler(RandomSampler(ROWS), 4, drop_last=False)},
    ],
)
def test_all_rows_are_read_in_order(how):
    assert read(DataLoader(ROWS, **how)) == list(range(10))


@pytest.mark.parametrize(
    "how",
    [
        {"sampler": SubsetRandomSampler([7, 2, 5])},
        {"sampler": [5, 2, 7]},
        {"batch_sampler": BatchSampler(SubsetRandomSampler([2, 5, 7]), 2, drop_last=False)},
        {"batch_sampler": [[7], [5, 2]]},
    ],
)
def test_rows_that_a_loader_does_not_draw_are_left_alone(how):
    assert read(DataLoader(ROWS, **how)) == [2.0, 5.0, 7.0]


@pytest.mark.parametrize("sampler", [WeightedRandomSampler(torch.ones(10), 30), [1, 1, 2]])
def test_rows_that_come_twice_are_refused(sampler):
    with pytest.raises(ValueError, match="draws rows more than once"):
        read(DataLoader(ROWS, sampler=sampler))

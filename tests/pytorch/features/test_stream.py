"""Embeddings block by block are those in memory, and so are the heads on them."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from onefit import RidgeLOO  # noqa: E402
from onefit.torch import embedded_rows  # noqa: E402
from onefit.torch.features import embedding  # noqa: E402

N = 300


class Counting(nn.Module):
    """A backbone that counts the rows that went through it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.rows = nn.Linear(4, 6), 0

    def forward(self, X):
        self.rows += len(X)
        return torch.tanh(self.layer(X))


class Stream(IterableDataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __iter__(self):
        yield from zip(self.X, self.y, strict=True)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(N, 4))).float()
    return X, (X[:, 0].sin() + 0.1 * torch.tensor(rng.normal(size=N)).float()).double()


@pytest.mark.parametrize("kind", ["data set", "shuffled loader", "stream"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_head_on_blocks_is_the_head_in_memory(rows, kind, kept, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "block_length", lambda _width: 64)
    X, y = rows
    data = {
        "data set": TensorDataset(X, y),
        "shuffled loader": DataLoader(TensorDataset(X, y), batch_size=10, shuffle=True),
        "stream": DataLoader(Stream(X, y), batch_size=7),
    }[kind]
    backbone = Counting()
    source = embedded_rows(backbone, data, keep=tmp_path if kept else None, batch_size=50)
    alphas = np.logspace(-3, 3, 13)
    found = RidgeLOO(alphas=alphas, selection="min").fit(source)
    passes = backbone.rows / N
    with torch.no_grad():
        features = backbone(X).double().numpy()
    whole = RidgeLOO(alphas=alphas, selection="min").fit(features, y.numpy())
    assert found.alpha_ == whole.alpha_
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.risk_path_, whole.risk_path_, rtol=1e-6)
    assert passes < 1.5 if kept else passes >= 2


def test_what_is_no_row_is_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match="no targets"):
        embedded_rows(Counting(), TensorDataset(X))
    X[70, 0] = torch.nan
    with pytest.raises(ValueError, match="row 70 are not finite"):
        list(embedded_rows(Counting(), TensorDataset(X, y), batch_size=32).each(len))


def test_a_folder_serves_one_module_and_its_rows(rows, tmp_path):
    X, y = rows
    kept = embedded_rows(Counting(), TensorDataset(X, y), keep=tmp_path)
    first = RidgeLOO(alphas=[1.0]).fit(kept).coef_
    again = Counting()
    found = RidgeLOO(alphas=[1.0]).fit(embedded_rows(again, TensorDataset(X, y), keep=tmp_path)).coef_
    np.testing.assert_array_equal(found, first)
    assert again.rows == 0
    again.rows = 5  # a counter is no other module
    embedded_rows(again, TensorDataset(X, y), keep=tmp_path)
    others = [
        (nn.Linear(4, 6), TensorDataset(X, y)),
        (Counting(), TensorDataset(X[:-1], y[:-1])),
        (Counting(), TensorDataset(2 * X, y)),
        (Counting(), TensorDataset(X, -y)),
        (Counting(), DataLoader(TensorDataset(X, y), sampler=range(200))),
    ]
    for module, data in others:
        with pytest.raises(ValueError, match="features of another module or of other rows"):
            embedded_rows(module, data, keep=tmp_path)

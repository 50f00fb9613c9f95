"""Networks and functions on a CUDA device are what they are on the CPU."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from cuda_agreement import (  # noqa: E402
    CPU,
    CUDA,
    N,
    agree,
    moved,
    needs_cuda,
    numbers,
    on_each,
    perceptron,
    row_weights,
    unchanged,
    weights_of,
)
from onefit.torch import (  # noqa: E402
    FeatureMapClassifier,
    FeatureMapRegressor,
    FunctionalProblem,
    L1Norm,
    LeaveOneOutHead,
    ValueFunctionSearch,
    embedded_rows,
    influence,
    loo,
)

pytestmark = needs_cuda


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


# --- networks ------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Tokens, an embedding and an LSTM."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layer, self.head = (
            nn.Embedding(5, 3),
            nn.LSTM(3, 4, batch_first=True),
            nn.Linear(4, 1),
        )

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens))[0][:, -1])


class Named(nn.Module):
    """Two inputs by name, one of them by attention."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
        self.head = nn.Linear(4 + 3, 1)

    def forward(self, words, numbers):
        return self.head(torch.cat([self.layer(words).mean(1), numbers], 1))


def convolution():
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 1))


def case(name):
    """A module, a loss and rows."""
    X, y = numbers()
    generator = torch.Generator().manual_seed(2)
    if name == "classes":
        loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]))
        return perceptron(3), loss, (X, (y[:, 0] > 0).long() + (y[:, 0] > 1).long())
    if name == "images":
        return convolution(), nn.MSELoss(), (torch.randn(N, 1, 3, 3, generator=generator).double(), y)
    if name == "tokens":
        return Recurrent(), nn.MSELoss(), (torch.randint(0, 5, (N, 4), generator=generator), y)
    if name == "inputs by name":
        words = torch.randn(N, 3, 4, generator=generator).double()
        return Named(), nn.MSELoss(), ({"words": words, "numbers": X}, y)
    return perceptron(), nn.MSELoss(reduction="sum"), (X, y)


def facts(risk):
    return risk.losses, risk.leverages, risk.training, risk.decision, risk.value, risk.std_error


@on_each
@pytest.mark.parametrize(
    ("name", "curvature"),
    [
        *product(
            ("numbers", "classes", "images", "inputs by name"), ("gauss_newton", "kronecker", "last_layer")
        ),
        ("tokens", "gauss_newton"),  # the others need a module that maps over rows
    ],
)
def test_loo_of_weights_as_they_are(name, curvature, place):
    module, loss, rows = case(name)
    how = {"weight_decay": 0.3, "curvature": curvature, "train_on": False}
    expected = loo(module, loss, rows, sample_weight=row_weights(), **how)
    before = weights_of(module)
    module, loss, rows, weights = (
        module.to(place),
        loss.to(place),
        moved(rows, place),
        row_weights().to(place),
    )
    agree(facts(loo(module, loss, rows, sample_weight=weights, device="cuda", **how)), facts(expected))
    unchanged(module, before, place)


@on_each
@pytest.mark.parametrize("curvature", ["gauss_newton", "kronecker"])
def test_loo_trains_on_and_audits(curvature, place):
    module, loss, rows = case("numbers")
    how = {"weight_decay": 1.0, "curvature": curvature, "audit": 3, "rng": 0}
    expected = loo(module, loss, rows, **how)
    before = weights_of(module)
    found = loo(module.to(place), loss, moved(rows, place), device="cuda", **how)
    agree(facts(found), facts(expected))
    agree([found.audit.value], [expected.audit.value])
    assert found.retrained.keys() == expected.retrained.keys()
    for row, own in found.retrained.items():
        for name, part in weights_of(expected.retrained[row]).items():
            torch.testing.assert_close(own.get_parameter(name).detach().cpu(), part, rtol=1e-6, atol=1e-8)
    unchanged(module, before, place)


def test_loo_takes_modules_from_a_recipe_on_either_device():
    """And goes back to the CPU for a module and rows on the GPU, where the CPU is asked for."""
    module, loss, (X, y) = case("numbers")

    def values(place, device):
        def retrain(kept):
            torch.manual_seed(0)
            with torch.no_grad():
                own = perceptron().double()
                own[2].bias.copy_(y[kept].mean(0))
            return own.to(place)

        own, rows = copy.deepcopy(module).to(place), moved((X, y), place)
        risk = loo(
            own, loss, rows, weight_decay=1.0, train_on=False, audit=4, retrain=retrain, rng=0, device=device
        )
        return [risk.value, risk.audit.value, risk.losses]

    expected = values(CPU, "cpu")
    for place, device in ((CUDA, "cpu"), (CPU, "cuda"), (CUDA, "cuda:0")):
        agree(values(place, device), expected)


def test_loo_of_many_parameters_goes_by_products():
    """More parameters than a Newton step factors a matrix of, a loader, and decays by name."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 150), nn.Tanh(), nn.Linear(150, 1))
    loader = DataLoader(TensorDataset(*numbers()), batch_size=16)
    how = {"weight_decay": {"*.weight": 0.5, "*.bias": 0.1}, "curvature": "kronecker", "audit": 2, "rng": 0}
    expected, found = (loo(module, nn.MSELoss(), loader, device=one, **how) for one in ("cpu", "cuda"))
    # L-BFGS ends at a gain of 1e-10 of the objective: 1e-5 in the weights
    agree(facts(found), facts(expected), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("curvature", ["gauss_newton", "kronecker"])
def test_memory_of_many_rows(curvature):
    X, y = numbers(20_000)
    torch.cuda.reset_peak_memory_stats()
    loo(
        perceptron(),
        nn.MSELoss(),
        (X, y),
        weight_decay=0.1,
        curvature=curvature,
        train_on=False,
        device="cuda",
    )
    assert torch.cuda.max_memory_allocated() < 2**31


@on_each
def test_influence(place):
    module, loss, (X, y) = case("numbers")
    train, test = (X[:30], y[:30]), (X[30:], y[30:])
    how = {"weight_decay": 0.3, "sample_weight": row_weights(30)}
    expected = influence(module, loss, train, test, **how)
    before = weights_of(module)
    how["sample_weight"] = how["sample_weight"].to(place)
    found = influence(module.to(place), loss, moved(train, place), moved(test, place), device="cuda", **how)
    agree(
        [found.values, found.mean, found.test_losses], [expected.values, expected.mean, expected.test_losses]
    )
    labels = torch.arange(30) % 4
    for groups in ([[0], [3, 5]], labels):
        removed = found.remove(moved(groups, place))
        for one, other in zip(removed, expected.remove(groups), strict=True):
            agree([one.losses, one.change], [other.losses, other.change])
    unchanged(module, before, place)


# --- functions -----------------------------------------------------------------------------------------


def predict(theta, x):
    return theta[0] + torch.tanh(x @ theta[1:])


def problem(place=CPU):
    weights = torch.tensor([0.0, 1.0, 1.0, 1.0], device=place)
    penalties = [lambda theta: (theta[1:] ** 2).sum(), L1Norm(weights)]
    return FunctionalProblem.of_predictor(predict, lambda out, y: (out - y[0]) ** 2, penalties, start=4)


@on_each
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"method": "influence", "solver": "matrix_free"},
        {"method": "linear", "curvature": "gauss_newton"},
        {"exact": True},
        {"groups": torch.arange(N) % 8, "audit": 3, "rng": 0},
    ],
    ids=str,
)
def test_a_functional_problem(how, place):
    (X, y), strengths = numbers(), torch.tensor([0.1, 0.5])
    expected = problem().fit(X, y, strengths, sample_weight=row_weights())
    found = problem(place).fit(
        *moved((X, y, strengths), place), sample_weight=row_weights().to(place), device="cuda"
    )
    agree([found.theta.cpu().numpy(), found.strengths], [expected.theta.numpy(), expected.strengths])
    np.testing.assert_array_equal(found.support, expected.support)
    risk, other = found.loo(**moved(how, place)), expected.loo(**how)
    agree([risk.losses, risk.leverages, risk.value], [other.losses, other.leverages, other.value])
    if other.parameters is not None:
        agree([risk.parameters.cpu().numpy()], [other.parameters.numpy()])


@pytest.mark.parametrize("method", ["exact", "paper", "refits"])
def test_gradients_in_the_strengths(method):
    X, y = numbers()
    expected, found = (
        problem().fit(X, y, [0.1, 0.5], device=one).gradient(method) for one in ("cpu", "cuda")
    )
    agree([found], [expected])


@on_each
@pytest.mark.parametrize("algorithm", [1, 2])
def test_tuning_of_strengths(algorithm, place):
    X, y = numbers()
    how = {"algorithm": algorithm, "n_steps": 5, "rng": 0}
    expected = problem().tune(X, y, [0.3, 0.3], **how)
    found = problem().tune(*moved((X, y), place), [0.3, 0.3], device="cuda", **how)
    agree([found.path, found.risks, found.strengths], [expected.path, expected.risks, expected.strengths])


# --- a device that is not there ------------------------------------------------------------------------

ELSEWHERE = {
    "loo": lambda X, y, d: loo(perceptron(), nn.MSELoss(), (X, y), train_on=False, device=d),
    "influence": lambda X, y, d: influence(perceptron(), nn.MSELoss(), (X, y), (X, y), device=d),
    "fit": lambda X, y, d: problem().fit(X, y, [1.0, 1.0], device=d),
    "tune": lambda X, y, d: problem().tune(X, y, [1.0, 1.0], device=d),
    "head": lambda X, y, d: LeaveOneOutHead(perceptron(), head="ridge", device=d).fit(X, y),
    "rows": lambda X, y, d: embedded_rows(perceptron(), TensorDataset(X, y), device=d),
    "classes": lambda X, y, d: FeatureMapClassifier(perceptron(), device=d).fit(X, y[:, 0] > 0),
    "numbers": lambda X, y, d: FeatureMapRegressor(perceptron(), device=d).fit(X, y),
    "search": lambda X, y, d: ValueFunctionSearch(
        perceptron(), nn.MSELoss(), {"all": "*"}, {"all": (0.1, 1.0)}, device=d
    ).fit(X, y, X, y),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(ValueError, match=r"device 'cuda:99' cannot be used here: .*; take device='cpu'$"):
        ELSEWHERE[name](*numbers(), "cuda:99")
    assert torch.zeros(1, device="cuda").item() == 0  # those that are there go on

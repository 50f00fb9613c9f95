"""Heads, learned features and searches on a CUDA device are what they are on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits, load_iris  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import onefit  # noqa: E402
from cuda_agreement import (  # noqa: E402
    CPU,
    CUDA,
    DOUBLE,
    SINGLE,
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
    ConvexHead,
    FeatureMapClassifier,
    FeatureMapRegressor,
    LeaveOneOutHead,
    ValueFunctionSearch,
    embedded_rows,
)

pytestmark = needs_cuda


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


# --- features ------------------------------------------------------------------------------------------


def digits(n=150):
    X, y = load_digits(n_class=3, return_X_y=True)
    return torch.tensor(X[:n] / 16), torch.tensor(y[:n])


class Parts(nn.Module):
    """Features of two layers, of bags of tokens."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.EmbeddingBag(5, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        low = self.low(tokens)
        return {"low": low, "high": torch.tanh(self.high(low))}


def head_facts(head, X):
    return (
        head.losses_,
        head.predictions_,
        head.value_,
        head.decision_function(X),
        head.linear_.weight.detach().numpy(),
    )


@on_each
@pytest.mark.parametrize("name", ["logistic", "ridge"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)])
def test_a_head_on_frozen_features(dtype, tolerance, name, place):
    (X, y), weights = digits(), row_weights(150)
    backbone = nn.Sequential(nn.Linear(64, 6), nn.Dropout(0.5), nn.Tanh()).to(dtype)
    expected = LeaveOneOutHead(backbone, head=name, batch_size=64).fit(X, y, weights)
    before = weights_of(backbone)
    own, backbone = moved((X, y, weights), place), backbone.to(place)
    head = LeaveOneOutHead(backbone, head=name, batch_size=64, device="cuda").fit(*own)
    agree(head_facts(head, own[0]), head_facts(expected, X), **tolerance)
    assert head.linear_.weight.device == CPU
    assert backbone.training
    unchanged(backbone, before, place)
    np.testing.assert_array_equal(head.predict(own[0]), expected.predict(X))
    with torch.no_grad():
        whole = head.as_module().eval()(own[0].to(dtype))
    assert whole.device.type == place.type
    agree([whole.double().cpu().numpy()], [head.decision_function(X)], **SINGLE)


@on_each
def test_heads_on_bags_of_tokens_and_on_features(place):
    tokens, (_, y) = torch.randint(0, 5, (N, 6)), numbers()
    backbone, rows = Parts().double(), TensorDataset(tokens, y[:, 0])
    expected = LeaveOneOutHead(backbone, head="ridge").fit(rows)
    rows = TensorDataset(*moved(rows.tensors, place))
    agree(
        head_facts(LeaveOneOutHead(backbone, head="ridge", device="cuda").fit(rows), tokens),
        head_facts(expected, tokens),
    )
    X, _ = numbers()
    agree(
        head_facts(LeaveOneOutHead(head="ridge", device="cuda").fit(*moved((X, y), place)), X),
        head_facts(LeaveOneOutHead(head="ridge").fit(X, y), X),
    )


def test_features_in_mixed_precision():
    X, y = digits()
    backbone = nn.Sequential(nn.Linear(64, 6), nn.Tanh())
    how = {"head": "ridge", "device": "cuda"}
    exact, mixed = (
        LeaveOneOutHead(backbone, autocast=one, **how).fit(X, y) for one in (None, torch.bfloat16)
    )
    agree([mixed.predictions_], [exact.predictions_], rtol=0, atol=0.1)  # 8 bits of a number of order 1
    assert not np.array_equal(mixed.predictions_, exact.predictions_)


@on_each
def test_embedded_rows(place, tmp_path):
    (X, _), (_, y) = digits(N), numbers()
    backbone = nn.Sequential(nn.Linear(64, 6), nn.Tanh()).double()
    expected = onefit.RidgeLOO().fit(embedded_rows(backbone, TensorDataset(X, y[:, 0])))
    before, rows = weights_of(backbone), TensorDataset(*moved((X, y[:, 0]), place))
    for keep in (None, tmp_path / "kept"):
        own = embedded_rows(backbone.to(place), rows, device="cuda", keep=keep, batch_size=16)
        found = onefit.RidgeLOO().fit(own)
        # blocks are held in single precision
        agree([found.coef_, found.loo_.value], [expected.coef_, expected.loo_.value], **SINGLE)
    unchanged(backbone, before, place)


def solved_head(place, feature_place, loss, c):
    """Predictors, and their gradients in the features and in C."""
    features, _ = numbers()
    features = features.to(feature_place).requires_grad_()
    y = torch.arange(N, device=place) % c
    C = torch.tensor(2.0, dtype=torch.float64, device=place, requires_grad=True)
    weights = row_weights() * (torch.arange(N) % 4 != torch.arange(4)[:, None])
    eta = ConvexHead(loss, C=C)(features, y, weights.to(place), features)
    (eta**2).mean().backward()
    assert features.grad.device.type == feature_place.type
    assert C.grad.device.type == place.type
    return [one.detach().cpu().numpy() for one in (eta, features.grad, C.grad)]


@on_each
@pytest.mark.parametrize(
    ("loss", "c"), [("logistic", 2), ("squared", 2), ("multinomial", 3), ("squared_hinge", 2)]
)
def test_a_convex_head(loss, c, place):
    agree(solved_head(place, CUDA, loss, c), solved_head(CPU, CPU, loss, c))


def map_of(kind, dtype, **given):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    return kind(module, n_splits=16, max_iter=15, random_state=0, **given)


@on_each
@pytest.mark.parametrize("kind", [FeatureMapClassifier, FeatureMapRegressor])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, DOUBLE), (torch.float32, SINGLE)])
def test_feature_maps(dtype, tolerance, kind, place):
    X, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    expected = map_of(kind, dtype).fit(X, y)
    found = map_of(kind, dtype, device="cuda")
    found.module.to(place)
    before = weights_of(found.module)
    found.fit(*moved((X, y), place))
    agree([found.risk_path_, found.coef_], [expected.risk_path_, expected.coef_], **tolerance)
    # a shift of all rows is the intercept's to undo: Adam moves it by what rounding says, in single precision
    features, others = (one - one.mean(0) for one in (found.transform(X.to(place)), expected.transform(X)))
    agree([features], [others], **tolerance)
    agree(found.check_[:2], expected.check_[:2], **tolerance)
    unchanged(found.module, before, place)


def test_steps_that_held_out_rows_choose():
    X, y = load_iris(return_X_y=True)
    expected, found = (map_of(FeatureMapClassifier, torch.float64, device=one) for one in ("cpu", "cuda"))
    expected.set_params(max_iter=None, patience=3).fit(X, y)
    found.set_params(max_iter=None, patience=3).fit(X, y)
    assert found.n_iter_ == expected.n_iter_
    agree([found.risk_path_], [expected.risk_path_])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_random_numbers_of_others_go_on(device):
    X, y = load_iris(return_X_y=True)
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Tanh())
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    models = [
        FeatureMapClassifier(module, n_splits=8, max_iter=3, n_starts=2, random_state=0, device=device).fit(
            X, y
        )
        for _ in range(2)
    ]
    agree([models[0].risk_path_], [models[1].risk_path_], rtol=1e-12)
    for one, other in zip((torch.get_rng_state(), torch.cuda.get_rng_state()), before, strict=True):
        assert torch.equal(one, other)


# --- penalties of a module -----------------------------------------------------------------------------


def search_of(module, device, **given):
    penalties = {"first": "0.*", "last": "2.*"}
    bounds = dict.fromkeys(penalties, (1e-2, 1e2))
    settings = {"n_samples": 5, "n_rounds": 2, "validation_loss": nn.MSELoss(), "device": device} | given
    return ValueFunctionSearch(module, nn.MSELoss(reduction="sum"), penalties, bounds, **settings)


def parts_of(place):
    X, y = numbers()
    return moved((X[:25], y[:25], X[25:], y[25:]), place)


@on_each
@pytest.mark.parametrize(
    "how", [{}, {"n_jobs": 2}, {"batch_size": 10, "max_iter": 20, "dtype": torch.float64}], ids=str
)
# joblib starts workers anew that grew by a CUDA context, and a warning as an error ends its own thread
@pytest.mark.filterwarnings("ignore:A worker stopped:UserWarning")
def test_a_search_for_penalties(how, place):
    module = perceptron()
    expected = search_of(module, "cpu", **how).fit(*parts_of(CPU))
    before = weights_of(module)
    found = search_of(module.to(place), "cuda", **how).fit(*parts_of(place))
    unchanged(module, before, place)
    agree([found.strengths_[:5]], [expected.strengths_[:5]])
    # L-BFGS ends at a gradient of 1e-8: values to twice its digits, what is found by them to as many
    agree(
        [found.values_[:5], found.validation_losses_[:5]],
        [expected.values_[:5], expected.validation_losses_[:5]],
    )
    agree([*found.lambda_.values()], [*expected.lambda_.values()], rtol=1e-3)
    X, y = numbers()
    agree([found.predict(X.to(place))], [expected.predict(X)], rtol=1e-3, atol=1e-4)
    agree(list(found.losses(*moved((X, y), place))), list(expected.losses(X, y)), rtol=1e-3)


def test_a_search_goes_on_where_it_was_saved(tmp_path):
    """On another device."""
    module = perceptron()
    found = search_of(module, "cuda", checkpoint=tmp_path).fit(*parts_of(CPU))
    again = search_of(module, "cpu", checkpoint=tmp_path).fit(*parts_of(CUDA))
    np.testing.assert_array_equal(again.values_, found.values_)
    agree([*again.lambda_.values()], [*found.lambda_.values()])


@on_each
def test_a_search_for_the_penalty_of_a_linear_model(place):
    model = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    X, y, X_val, y_val = parts_of(CPU)
    data = X, y[:, 0], X_val, y_val[:, 0]

    def search(device):
        return ValueFunctionSearch(model, bounds={"penalty__alpha": (1e-2, 1e3)}, n_samples=5, device=device)

    expected, found = search("cpu").fit(*data), search("cuda").fit(*moved(data, place))
    agree([*found.lambda_.values()], [*expected.lambda_.values()])
    agree([found.predict(X.to(place))], [expected.predict(X)])
    agree(list(found.losses(*moved(data[:2], place))), list(expected.losses(*data[:2])))

"""Modules, losses and data as people have them, each against retraining."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from onefit.exceptions import UnreliableWarning, UnsupportedModelError  # noqa: E402
from onefit.torch.networks.data import read_rows  # noqa: E402
from onefit.torch.networks.loo import loo  # noqa: E402
from onefit.torch.networks.mapping import plain_kernels  # noqa: E402
from onefit.torch.networks.network import Network  # noqa: E402
from onefit.torch.networks.training import TrainingLoss  # noqa: E402

N, CPU = 24, torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Sequence(nn.Module):
    """A layer over a sequence, and a head on its mean."""

    def __init__(self, layer, width, takes_tokens=False):
        super().__init__()
        self.embedding = nn.Embedding(7, 3) if takes_tokens else nn.Identity()
        self.layer, self.head = layer, nn.Linear(width, 1)

    def forward(self, x):
        out = self.layer(self.embedding(x))
        return self.head((out[0] if isinstance(out, tuple) else out).mean(1))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(7, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.bag(x)))


class Two(nn.Module):
    """Two inputs, and a dict for an output."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(3, 3), nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, a, b):
        hidden = torch.tanh(self.left(a) + self.right(b))
        return {"logits": self.head(hidden), "hidden": hidden}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.up.weight = self.down.weight

    def forward(self, x):
        return self.head(torch.tanh(self.up(torch.tanh(self.down(x)))))


def attention():
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=True, activation="gelu")
    return Sequence(nn.Sequential(nn.Linear(3, 4), layer), 4)


MODULES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), "table"),
    "norm and dropout": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)
        ),
        "table",
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 1)),
        "images",
    ),
    "embedding": (lambda: Sequence(nn.Tanh(), 3, takes_tokens=True), "tokens"),
    "embedding bag": (Bag, "tokens"),
    "lstm": (lambda: Sequence(nn.LSTM(3, 3, batch_first=True), 3), "sequences"),
    "attention": (attention, "sequences"),
    "two inputs": (Two, "two"),
    "tied": (Tied, "table"),
}


def inputs_of(kind):
    generator = torch.Generator().manual_seed(3)
    shapes = {"table": (N, 3), "images": (N, 1, 4, 4), "sequences": (N, 5, 3)}
    if kind == "tokens":
        return torch.randint(0, 7, (N, 4), generator=generator)
    if kind == "two":
        return tuple(torch.randn(N, k, dtype=torch.float64, generator=generator) for k in (3, 2))
    return torch.randn(shapes[kind], dtype=torch.float64, generator=generator)


def given(name):
    """A module, its rows, and a loss of what it returns."""
    make, kind = MODULES[name]
    torch.manual_seed(0)
    module = make().double().eval()
    X = inputs_of(kind)
    first = X[0] if isinstance(X, tuple) else X
    y = torch.sin(first.reshape(N, -1)[:, :1].double()) + 0.3 * first.reshape(N, -1)[:, 1:2].double()
    loss = (lambda out, y: nn.functional.mse_loss(out["logits"], y)) if kind == "two" else nn.MSELoss()
    return module, loss, (X, y)


def train(module, loss, X, y, decay, steps=400):
    """L-BFGS of PyTorch on all rows, as a user would."""
    with plain_kernels():
        optimiser = torch.optim.LBFGS(
            module.parameters(),
            max_iter=steps,
            tolerance_grad=1e-10,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        )

        def closure():
            optimiser.zero_grad()
            out = module(*X) if isinstance(X, tuple) else module(X)
            value = loss(out, y) + decay * sum((p**2).sum() for p in module.parameters()) / 2
            value.backward()
            return value

        optimiser.step(closure)
    return module


@pytest.mark.costly
@pytest.mark.parametrize("name", [name for name in MODULES if name != "attention"])
def test_the_formula_is_near_to_retraining(name):
    module, loss, (X, y) = given(name)
    decay = 0.1
    train(module, loss, X, y, decay)

    def retrain(rows):
        own = tuple(part[rows] for part in X) if isinstance(X, tuple) else X[rows]
        return train(copy.deepcopy(module), loss, own, y[rows], decay)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)  # six rows of 24 do not confirm everything
        risk = loo(module, loss, (X, y), weight_decay=decay, train_on=False, retrain=retrain, audit=6, rng=0)
    gap = np.abs(risk.audit.refitted_losses - risk.training[risk.audit.rows])
    assert np.abs(risk.audit.errors).sum() < 0.3 * gap.sum()
    assert risk.by == "all layers, Gauss-Newton curvature"
    assert sorted(risk.retrained) == sorted(risk.audit.rows)


def test_a_formula_that_is_wrong_for_attention_is_told():
    module, loss, (X, y) = given("attention")
    train(module, loss, X, y, 0.1, steps=60)

    def retrain(rows):
        return train(copy.deepcopy(module), loss, X[rows], y[rows], 0.1, steps=60)

    with pytest.warns(UnreliableWarning, match="the formula"):
        risk = loo(module, loss, (X, y), weight_decay=0.1, train_on=False, retrain=retrain, audit=2, rng=0)
    assert 0 <= risk.audit.interval[0] <= risk.audit.value


@pytest.mark.parametrize("name", MODULES)
def test_jacobians_by_rows_are_differences(name):
    module, loss, data = given(name)
    with plain_kernels():
        network = Network.read(module, loss, read_rows(data, CPU), 0.1)
        J = network.jacobian(torch.arange(2))
        direction, few = torch.randn_like(network.theta), network.rows.take(torch.arange(2))
        ends = [
            network.layout.flat(network.outputs(network.theta + h * direction, few)) for h in (1e-6, -1e-6)
        ]
        gradients = network.gradients(torch.arange(N))
    np.testing.assert_allclose(J @ direction, (ends[0] - ends[1]).detach() / 2e-6, rtol=1e-6, atol=1e-8)
    total = TrainingLoss(network).gradient(network.theta)
    expected = (network.shares[:, None] * gradients).sum(0) + network.total * network.decay * network.theta
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-12)


# --- losses --------------------------------------------------------------------------------------------

SOFTMAX = {
    "weights": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0])),
    "ignored": nn.CrossEntropyLoss(ignore_index=2),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.2, weight=torch.tensor([1.0, 2.0, 5.0])),
    "summed": nn.CrossEntropyLoss(reduction="sum", weight=torch.tensor([1.0, 2.0, 5.0])),
    "likelihoods": nn.NLLLoss(weight=torch.tensor([1.0, 2.0, 5.0])),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", SOFTMAX)
def test_losses_with_weights_are_refits(name):
    """A linear module, whose Gauss–Newton matrix is its Hessian: the audit refits every row."""
    X, loss = inputs_of("table"), SOFTMAX[name]
    y = torch.arange(N) % 3
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 3), *([nn.LogSoftmax(1)] if name == "likelihoods" else [])).double()
    exact, curvature = copy.deepcopy(loss).double(), "last_layer" if name == "likelihoods" else "auto"
    train(module, exact, X, y, 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableWarning)
        risk = loo(module, loss, (X, y), weight_decay=0.3, audit=N, rng=0, curvature=curvature)
    held = y != (2 if name == "ignored" else -1)
    assert len(risk.audit.rows) == int(held.sum())
    for row in (1, 3):
        kept = torch.arange(N) != row
        own = train(copy.deepcopy(module), exact, X[kept], y[kept], 0.3)
        alone = float(exact(own(X[[row]]), y[[row]]).detach())
        place = list(risk.audit.rows).index(row)
        assert risk.audit.refitted_losses[place] == pytest.approx(alone, rel=1e-6)
        assert risk.losses[row] == pytest.approx(alone, rel=0.05)
    weights = torch.tensor([1.0, 2.0, 5.0])[y] if name != "ignored" else held.double()
    if name != "summed":
        assert risk.value == pytest.approx(np.average(risk.losses, weights=weights))


@pytest.mark.parametrize("curvature", ["gauss_newton", "kronecker"])
def test_a_loss_without_curvature_names_what_has_some(curvature):
    module = nn.Sequential(nn.Linear(3, 3), nn.LogSoftmax(1))
    data = (inputs_of("table"), torch.arange(N) % 3)
    with pytest.raises(UnsupportedModelError, match=r"return logits and take nn\.CrossEntropyLoss"):
        loo(module, nn.NLLLoss(), data, weight_decay=0.1, train_on=False, curvature=curvature)


def test_weights_of_rows_are_repeated_rows():
    X, y = inputs_of("table"), torch.arange(N) % 2
    torch.manual_seed(0)
    module = nn.Linear(3, 2).double()
    twice = torch.cat([torch.arange(N), torch.tensor([0, 1, 2])])
    weights = np.where(np.arange(N) < 3, 2.0, 1.0)
    given = {"weight_decay": 0.2, "audit": 2, "rng": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = loo(module, nn.CrossEntropyLoss(), (X, y), sample_weight=weights, **given)
        repeated = loo(module, nn.CrossEntropyLoss(), (X[twice], y[twice]), **given)
    np.testing.assert_allclose(weighted.training, repeated.training[:N], rtol=1e-7)
    np.testing.assert_allclose(weighted.losses[3:], repeated.losses[3:N], rtol=2e-3)  # the share of the decay


# --- data ----------------------------------------------------------------------------------------------


class Dicts(Dataset):
    """Inputs by argument name."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"a": self.X[0][i], "b": self.X[1][i]}, self.y[i]


class Stream(IterableDataset):
    def __init__(self, X, y):
        super().__init__()
        self.X, self.y = X, y

    def __iter__(self):
        yield from zip(*self.X, self.y, strict=True)


def test_every_form_of_the_data_is_the_same():
    module, loss, (X, y) = given("two inputs")
    train(module, loss, X, y, 0.1)
    forms = {
        "pair": (X, y),
        "by name": ({"a": X[0], "b": X[1]}, y),
        "arrays": (tuple(part.numpy() for part in X), y.numpy()),
        "tensors": TensorDataset(*X, y),
        "pairs": [((a, b), t) for a, b, t in zip(*X, y, strict=True)],
        "dicts": Dicts(X, y),
        "loader": DataLoader(TensorDataset(*X, y), batch_size=5, shuffle=True),
        "stream": DataLoader(Stream(X, y), batch_size=5),
    }
    found = [loo(module, loss, data, weight_decay=0.1, train_on=False).losses for data in forms.values()]
    for losses in found[1:]:
        np.testing.assert_array_equal(losses, found[0])


def test_decay_by_any_name_of_a_weight_that_modules_share():
    torch.manual_seed(0)
    module = Tied().double()
    others = {"*.bias": 0.1, "head.*": 0.2}
    kinds = [{name: 0.3} | others for name in ("down.weight", "up.weight", "up.weigh?")]
    found = [loo(module, nn.MSELoss(), ROWS, weight_decay=kind, train_on=False).losses for kind in kinds]
    for losses in found[1:]:
        np.testing.assert_array_equal(losses, found[0])
    with pytest.raises(ValueError, match=r"names 'side.weight', which is none of .*up\.weight"):
        loo(module, nn.MSELoss(), ROWS, weight_decay={"side.weight": 0.3}, train_on=False)
    module.down.weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"names 'up.weight', which is none of down\.bias"):
        loo(module, nn.MSELoss(), ROWS, weight_decay={"up.weight": 0.3}, train_on=False)


def test_decay_of_an_optimiser_and_by_pattern():
    module, loss, data = given("perceptron")
    weights = [p for name, p in module.named_parameters() if name.endswith("weight")]
    biases = [p for name, p in module.named_parameters() if name.endswith("bias")]
    groups = [{"params": weights, "weight_decay": 0.3}, {"params": biases, "weight_decay": 0.1}]
    kinds = (
        torch.optim.SGD(groups, lr=0.1),
        {"*": 0.1, "*.weight": 0.3},
        {"0.weight": 0.3, "2.weight": 0.3, "0.bias": 0.1, "2.bias": 0.1},
    )
    found = [loo(module, loss, data, weight_decay=kind, train_on=False).losses for kind in kinds]
    for losses in found[1:]:
        np.testing.assert_array_equal(losses, found[0])
    with pytest.warns(UnreliableWarning, match="AdamW shrinks weights apart from the loss"):
        loo(module, loss, data, weight_decay=torch.optim.AdamW(module.parameters()), train_on=False)
    decoupled = torch.optim.Adam(module.parameters(), weight_decay=0.1, decoupled_weight_decay=True)
    with pytest.warns(UnreliableWarning, match="Adam shrinks weights apart from the loss"):
        loo(module, loss, data, weight_decay=decoupled, train_on=False)


@pytest.mark.parametrize("curvature", ["gauss_newton", "kronecker", "last_layer"])
def test_one_number_a_row_is_a_column_of_one(curvature):
    """``forward`` may end in ``squeeze(-1)``, and y be (n,)."""
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(30, 3, generator=generator), torch.randn(30, 1, generator=generator)
    torch.manual_seed(0)
    module = Returns(lambda out: out)
    flat = copy.deepcopy(module)
    flat.of = lambda out: out.squeeze(-1)
    for loss, target in ((nn.MSELoss(), y), (nn.BCEWithLogitsLoss(), (y > 0).float())):
        settings = {"weight_decay": 0.3, "train_on": False, "curvature": curvature}
        column = loo(module, loss, (X, target), **settings)
        row = loo(flat, loss, (X, target[:, 0]), **settings)
        np.testing.assert_allclose(row.losses, column.losses, rtol=1e-10)
        np.testing.assert_allclose(row.predictions, column.predictions, rtol=1e-10)


# --- what is refused -----------------------------------------------------------------------------------


class Returns(nn.Module):
    """What forward returns, from a linear layer."""

    def __init__(self, of):
        super().__init__()
        self.layer, self.of = nn.Linear(3, 1), of

    def forward(self, x):
        return self.of(self.layer(x))


ROWS = (torch.randn(6, 3), torch.randn(6, 1))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"data": (*ROWS, ROWS[1])}, ValueError, r"got 3 parts: several inputs go into a tuple of their own"),
        (
            {"data": [(ROWS[0][i],) for i in range(6)]},
            ValueError,
            r"where pairs \(input, target\) are needed",
        ),
        (
            {"data": [(torch.zeros(i + 1), 0.0) for i in range(6)]},
            ValueError,
            "rows 0 to 5 cannot be stacked",
        ),
        (
            {"data": [{"x": 1.0, "y": 2.0}]},
            ValueError,
            r"yield dict, where pairs \(input, target\) are needed",
        ),
        ({"data": {"X": ROWS[0], "y": ROWS[1]}}, TypeError, r"data is a dict of 'X', 'y': give \(X, y\)"),
        ({"data": (ROWS[0].to(torch.complex64), ROWS[1])}, TypeError, "X holds complex numbers"),
        ({"module": Returns(lambda out: out - out.mean(0))}, ValueError, "for row 0 without the others"),
        ({"module": Returns(lambda out: out.cumsum(0))}, ValueError, "for row 5 without the others"),
        ({"module": Returns(lambda out: out + torch.rand(1))}, ValueError, "dropout that is on in eval"),
        (
            {"module": nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1, track_running_stats=False))},
            ValueError,
            "takes all rows and not row 0 alone",
        ),
        (
            {"loss": lambda out, y: (torch.ones(6, 6) @ (out - y) ** 2).mean()},
            TypeError,
            r"outputs are in float64 here, as tensors of its own must be",
        ),
        (
            {
                "module": nn.Linear(3, 2),
                "loss": nn.MultiMarginLoss(),
                "data": (ROWS[0], torch.zeros(6).long()),
            },
            UnsupportedModelError,
            "the loss cannot be differentiated twice",
        ),
        ({"data": ((ROWS[0], ROWS[0][:5]), ROWS[1])}, ValueError, r"X\[1\] has 5 rows, y has 6"),
        ({"data": (ROWS[0][:, :2], ROWS[1])}, ValueError, r"does not take these inputs \(\(6, 2\)"),
        ({"data": ((ROWS[0], ROWS[0]), ROWS[1])}, ValueError, r"does not take these inputs"),
        ({"data": ({"z": ROWS[0]}, ROWS[1])}, ValueError, r"does not take these inputs"),
        (
            {"data": DataLoader(TensorDataset(ROWS[0]))},
            ValueError,
            r"where pairs \(input, target\) are needed",
        ),
        ({"module": Returns(lambda out: out.mean())}, ValueError, "one entry a row"),
        ({"module": Returns(lambda out: out.T)}, ValueError, "batch_first"),
        ({"module": Returns(lambda out: (out, "text"))}, ValueError, "one entry a row .* got str"),
        ({"module": nn.LazyLinear(1)}, ValueError, "lazy layers"),
        ({"weight_decay": {"*.nothing": 0.1}}, ValueError, r"names '\*\.nothing', which is none of"),
        ({"weight_decay": torch.optim.SGD(nn.Linear(3, 1).parameters())}, ValueError, "does not train"),
        ({"weight_decay": [0.1, 0.2]}, TypeError, "weight_decay must be a number, a dictionary"),
        ({"sample_weight": np.ones(5)}, ValueError, "sample_weight must be 6 finite numbers"),
        ({"audit": 3}, ValueError, "needs your own recipe"),
        ({"train_on": True, "audit": 0}, ValueError, "always audited"),
        ({"max_seconds": -1}, ValueError, "max_seconds must be positive"),
        (
            {"retrain": lambda _: "a module", "audit": 2},
            TypeError,
            "retrain must return a torch.nn.Module",
        ),
        ({"loss": lambda out, y: ((out - y) ** 2).mean().sqrt()}, ValueError, "neither the mean"),
        ({"loss": lambda out: out.mean()}, TypeError, "argument"),
        ({"loss": lambda _, y: (y**2).mean()}, ValueError, "does not depend on what the module returns"),
        ({"data": (torch.full((6, 3), torch.inf), ROWS[1])}, ValueError, "X has values that are not finite"),
    ],
)
def test_what_cannot_be_used_is_refused(change, error, message):
    arguments = {"module": nn.Linear(3, 1), "loss": nn.MSELoss(), "data": ROWS, "weight_decay": 0.1}
    with pytest.raises(error, match=message):
        loo(**({"train_on": False} | arguments | change))


@pytest.mark.parametrize("curvature", ["kronecker", "last_layer"])
def test_a_module_that_cannot_be_mapped_names_what_can(curvature):
    module, loss, data = given("lstm")
    with pytest.raises(UnsupportedModelError, match="take curvature='gauss_newton'"):
        loo(module, loss, data, weight_decay=0.1, train_on=False, curvature=curvature)

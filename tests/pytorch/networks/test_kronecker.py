"""Kronecker factors against matrices formed whole, against closed forms and against retraining."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.func import functional_call, jacrev, vmap  # noqa: E402

from onefit.exceptions import (  # noqa: E402
    NotOptimalWarning,
    SolverError,
    UnreliableWarning,
    UnsupportedModelError,
)
from onefit.torch.networks import kronecker, rules  # noqa: E402
from onefit.torch.networks import layers as kronecker_layers  # noqa: E402
from onefit.torch.networks.data import read_rows  # noqa: E402
from onefit.torch.networks.kronecker import KroneckerCurvature  # noqa: E402
from onefit.torch.networks.layers import Tracer  # noqa: E402
from onefit.torch.networks.loo import loo  # noqa: E402
from onefit.torch.networks.network import Network  # noqa: E402
from onefit.torch.networks.training import Clock, finished, trained  # noqa: E402

N = 12
DECAYS = [(0.3, 0.3), (0.3, 0.7), (0.3, 0.0)]  # of weights and of biases


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def kron(a, b):
    """Kronecker product; PyTorch 2.11 takes none of transposed matrices."""
    return torch.kron(a.contiguous(), b.contiguous())


def parts_of(module):
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def jacobians(module, X):
    """Of every row in each parameter: (n, c, m) by name."""

    def outputs(parts, x):
        return functional_call(module, parts, (x[None],))[0].reshape(-1)

    found = vmap(jacrev(outputs), in_dims=(None, 0))(parts_of(module), X)
    return {name: part.flatten(2) for name, part in found.items()}


def curvature_of(module, X, decays=(0.3, 0.3)):
    """Kronecker factors with random derivatives of the loss, and those derivatives."""
    parts = parts_of(module)
    c = module(X[:1]).numel()
    slopes = torch.randn(len(X), c, dtype=X.dtype)
    roots = torch.randn(len(X), c, c, dtype=X.dtype)
    bends = roots @ roots.mT
    by_name = {name: torch.full_like(part, decays[name.endswith("bias")]) for name, part in parts.items()}
    leaving = {name: 0.1 * torch.randn_like(part) for name, part in parts.items()}
    found = KroneckerCurvature.of(module, parts, X, slopes, bends, by_name, leaving)
    return found, slopes, bends, by_name, leaving


def dense(block, decay):
    """A ⊗ S / nT + D of a layer and its decay, in the order of its weights and then its biases."""
    inner = np.linalg.inv(block.X[0].T)  # XᵀAX = μ
    A = inner @ np.diag(block.mu[0]) @ inner.T
    S = (block.U[0] * block.sigma[0]) @ block.U[0].T
    return A, S.numpy(), block.layer.joined(decay)[0].numpy()


def perceptron():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


# --- the matrix ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decays", DECAYS)
def test_solves_are_those_of_the_whole_matrix(decays):
    module, X = perceptron(), torch.randn(N, 3, dtype=torch.float64)
    K, _, bends, decay, _ = curvature_of(module, X, decays)
    hidden = torch.tanh(module[0](X)).detach()
    ones = torch.ones(N, 1, dtype=X.dtype)
    weight = module[2].weight.detach()
    slopes = {"0": (1 - hidden**2)[:, None, :] * weight, "2": torch.eye(2).double().expand(N, 2, 2)}
    inputs = {"0": torch.cat([X, ones], 1), "2": torch.cat([hidden, ones], 1)}
    for block in K.blocks:
        a, g = inputs[block.layer.name], slopes[block.layer.name]
        S = torch.einsum("ncq,ncd,ndk->qk", g, bends, g)
        D = block.layer.joined(decay)[0].reshape(-1)
        whole = kron(S, a.T @ a) / N + torch.diag(D)  # by rows of the weights
        v = {name: torch.randn_like(part) for name, part in decay.items()}
        flat = block.layer.joined(v)[0].reshape(-1)
        found = block.layer.joined(
            {
                name: p.reshape(v[name].shape)
                for name, p in block.lifted((block.projected(v) * block.inverse)[None]).items()
            }
        )
        expected = torch.linalg.solve(whole, flat)
        np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("decays", DECAYS)
def test_steps_without_a_row_minimise_over_their_span(decays):
    module, X = perceptron(), torch.randn(N, 3, dtype=torch.float64)
    K, slopes, bends, decay, leaving = curvature_of(module, X, decays)
    steps, leverages = K.left_out(torch.arange(N))
    traces = K.tracer.trace(X)
    names = list(parts_of(module))
    J = torch.cat([jacobians(module, X)[name] for name in names], -1)
    pull = torch.cat([leaving[name].reshape(-1) for name in names])

    def matrix(kept):
        """Of the rows kept, formed whole in the order of the parameters."""
        blocks, order, first = [], [], 0
        for layer in K.tracer.layers:
            a, g = traces.inputs[layer.name][kept, 0, 0], traces.slopes[layer.name][kept, :, 0, 0]
            S = torch.einsum("ncq,ncd,ndk->qk", g, bends[kept], g)
            D = layer.joined(decay)[0].reshape(-1)
            blocks.append(kron(S, a.T @ a) / len(kept) + torch.diag(D))
            numbers = torch.arange(first, first + len(D)).reshape(len(S), -1)
            order += [numbers[:, :-1].reshape(-1), numbers[:, -1]]
            first += len(D)
        own = torch.cat(order)
        return torch.block_diag(*blocks)[own][:, own]

    every = matrix(torch.arange(N))
    for row in range(N):
        others = matrix(torch.tensor([i for i in range(N) if i != row]))
        W = torch.linalg.solve(every, torch.cat([J[row], pull[None]]).T)
        slope = J[row].T @ slopes[row] + pull
        expected = W @ torch.linalg.solve(W.T @ others @ W, W.T @ slope)
        np.testing.assert_allclose(steps[row], expected, rtol=1e-8, atol=1e-10)
        own = torch.linalg.eigvals(bends[row] @ J[row] @ W[:, :-1]).real.max()
        assert float(leverages[row]) == pytest.approx(min(float(own), 1.0), rel=1e-8)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 2),
        nn.Linear(3, 2, bias=False),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.LayerNorm(4), nn.Linear(4, 2)),
    ],
)
def test_factors_give_the_jacobian(module):
    module, X = module.double(), torch.randn(5, 3, dtype=torch.float64)
    tracer = Tracer.of(module, parts_of(module), X)
    traces = tracer.trace(X)
    expected = jacobians(module, X)
    found = dict(traces.jacobians)
    for layer in tracer.layers:
        found |= traces.jacobian(layer)
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        np.testing.assert_allclose(found[name], part, rtol=1e-10, atol=1e-12)
    assert set(tracer.others) == ({"2"} if isinstance(module, nn.Sequential) else set())


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"bias": False},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": (2, 1), "padding_mode": "circular"},
        {"groups": 2, "padding": 1},
    ],
)
def test_factors_of_a_convolution_are_sums_over_patches(given):
    conv = nn.Conv2d(4, 6, (3, 2), **given).double()
    module = nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    X = torch.randn(3, 4, 6, 5, dtype=torch.float64)
    module(X)
    tracer = Tracer.of(module, parts_of(module), X)
    assert [layer.name for layer in tracer.layers] == ["0", "3"]
    traces = tracer.trace(X)
    a, g = traces.inputs["0"], traces.slopes["0"]
    groups = conv.groups
    before = conv(X)
    assert a.shape[1] == g.shape[2] == before[0, 0].numel()
    # a position at a time: what the convolution returns there, and how that moves the outputs
    weights = torch.cat(
        [conv.weight.reshape(groups, 6 // groups, -1)]
        + ([conv.bias.reshape(groups, -1, 1)] if conv.bias is not None else []),
        -1,
    )
    values = torch.einsum("btgp,gqp->bgqt", a, weights).reshape(before.shape)
    np.testing.assert_allclose(values.detach(), before.detach(), rtol=1e-10, atol=1e-12)
    after = vmap(jacrev(lambda s: module[3](torch.tanh(s).reshape(1, -1))[0]))(before.detach())
    by_position = after.reshape(3, 2, groups, 6 // groups, -1).permute(0, 1, 4, 2, 3)
    np.testing.assert_allclose(g, by_position.detach(), rtol=1e-10, atol=1e-12)
    for name, part in traces.jacobian(tracer.layers[0]).items():
        np.testing.assert_allclose(part, jacobians(module, X)[name], rtol=1e-9, atol=1e-11)


def test_the_matrix_of_a_convolution_sums_over_rows_and_positions():
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)).double()
    X = torch.randn(N, 2, 3, 3, dtype=torch.float64)
    K, _, bends, decay, _ = curvature_of(module, X)
    block = K.blocks[0]
    patches = [X[:, :, i : i + 2, j : j + 2].reshape(N, -1) for i in range(2) for j in range(2)]
    A = sum(torch.cat([p, torch.ones(N, 1)], 1).T @ torch.cat([p, torch.ones(N, 1)], 1) for p in patches)
    found = module[0](X).detach()
    g = vmap(jacrev(lambda s: module[3](torch.tanh(s).reshape(1, -1))[0]))(found).detach().flatten(3)
    S = torch.einsum("ncqt,ncd,ndkt->qk", g, bends, g)
    whole = kron(S, A) / (4 * N) + torch.diag(block.layer.joined(decay)[0].reshape(-1))
    flat = torch.randn(1, 1, 3, 9, dtype=torch.float64)
    parts = {name: p.reshape(decay[name].shape) for name, p in block.layer.parted(flat[0]).items()}
    moved = block.lifted((block.projected(parts) * block.inverse)[None])
    expected = torch.linalg.solve(whole, flat.reshape(-1)).reshape(3, 9)
    np.testing.assert_allclose(moved["0.weight"][0].reshape(3, 8), expected[:, :8], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved["0.bias"][0], expected[:, 8], rtol=1e-9, atol=1e-12)


def test_batches_change_nothing(monkeypatch):
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 2))
    X = torch.randn(N, 1, 3, 3, dtype=torch.float64)
    module = module.double()
    torch.manual_seed(1)
    K, *_ = curvature_of(module, X)
    steps, leverages = K.left_out(torch.arange(N))
    monkeypatch.setattr(kronecker, "BUDGET", 3000)
    torch.manual_seed(1)
    again, *_ = curvature_of(module, X)
    assert again.size < N / 2
    found = [again.left_out(rows) for rows in torch.split(torch.arange(len(again.slopes)), again.size)]
    np.testing.assert_allclose(torch.cat([part for part, _ in found]), steps, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(torch.cat([part for _, part in found]), leverages, rtol=1e-9)


class Twice(nn.Module):
    """One layer applied twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(input=torch.tanh(self.inner(x)))))


class Shared(nn.Module):
    """A weight that is also used outside its layer."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)) @ self.inner.weight)


class Sequences(nn.Module):
    """A layer that is given rows along its second axis."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 2), nn.Linear(2, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x.T[..., None])).mean(0))


@pytest.mark.parametrize(
    ("module", "layers"),
    [(Twice(), ["inner", "outer"]), (Shared(), ["outer"]), (Sequences(), ["inner", "outer"])],
)
def test_layers_are_those_whose_calls_explain_the_jacobian(module, layers):
    module, X = module.double(), torch.randn(5, 3, dtype=torch.float64)
    tracer = Tracer.of(module, parts_of(module), X)
    assert [layer.name for layer in tracer.layers] == layers
    traces = tracer.trace(X)
    found = dict(traces.jacobians)
    for layer in tracer.layers:
        found |= traces.jacobian(layer)
    for name, part in jacobians(module, X).items():
        np.testing.assert_allclose(found[name], part, rtol=1e-10, atol=1e-12)


# --- leave-one-out -------------------------------------------------------------------------------------


def problem(n, classes=0, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    if classes:
        cuts = np.quantile(y, np.arange(1, classes) / classes)
        return torch.tensor(X), torch.tensor(np.digitize(y, cuts))
    return torch.tensor(X), torch.tensor(y)[:, None]


def quietly(module, loss, data, **given):
    """Leave-one-out where it is known that little was trained, and that few rows are audited."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotOptimalWarning)
        warnings.simplefilter("ignore", UnreliableWarning)
        return loo(module, loss, data, rng=0, **given)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("decay", [{"weight": 0.3, "bias": 0.3}, {"weight": 0.3}])
def test_a_linear_module_is_ridge(reduction, decay):
    X, y = problem(24)
    risk = quietly(
        nn.Linear(3, 1).double(),
        nn.MSELoss(reduction=reduction),
        (X, y),
        weight_decay=decay,
        curvature="kronecker",
        audit=2,
    )
    Z, target = np.column_stack([X, np.ones(24)]), y[:, 0].numpy()
    expected = []
    for row in range(24):
        kept = np.arange(24) != row
        ridge = np.diag([0.3] * 3 + [decay.get("bias", 0.0)]) / 2 * (23 if reduction == "mean" else 1)
        theta = np.linalg.solve(Z[kept].T @ Z[kept] + ridge, Z[kept].T @ target[kept])
        expected.append((target[row] - Z[row] @ theta) ** 2)
    np.testing.assert_allclose(risk.losses, expected, rtol=1e-8)
    assert risk.by == "all layers, Kronecker-factored curvature"


def test_several_outputs_of_a_linear_module_are_ridges():
    X, _ = problem(24)
    Y = torch.stack([X[:, 0] ** 2, X[:, 1] * X[:, 2]], 1)
    given = {"weight_decay": 0.2, "audit": 2}
    found = quietly(nn.Linear(3, 2).double(), nn.MSELoss(), (X, Y), curvature="kronecker", **given)
    expected = quietly(nn.Linear(3, 2).double(), nn.MSELoss(), (X, Y), curvature="gauss_newton", **given)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-8)
    np.testing.assert_allclose(found.leverages, expected.leverages, rtol=1e-8)


def test_parameters_of_other_modules_have_their_gauss_newton_block():
    X, y = problem(24)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1)).double()
    for frozen in (0, 3):
        module[frozen].requires_grad_(False)
    given = {"weight_decay": 0.1, "audit": 2}
    found = quietly(module, nn.MSELoss(), (X, y), curvature="kronecker", **given)
    expected = quietly(module, nn.MSELoss(), (X, y), curvature="gauss_newton", **given)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-8)


@pytest.mark.parametrize(("decay", "classes"), [(0.05, 0), (0.02, 3)])
def test_kronecker_is_within_a_factor_of_two_of_retraining(decay, classes):
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, classes or 1)).double()
    loss = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    network = Network.read(module, loss, read_rows(problem(80, classes), torch.device("cpu")), decay)
    with pytest.warns(NotOptimalWarning):
        network, notes = finished(network, 2000, Clock(None))
    assert notes == ()
    rows = torch.arange(0, 80, 3)
    points = [trained(network.without(row[None]), 2000, lambda: False).theta for row in rows]
    training = network.row_values(network.theta)[rows].numpy()
    moved = network.values_of(network.outputs_at(torch.stack(points), rows), rows).numpy() - training
    found = {
        name: rule(network).left_out()[0].detach().numpy()[rows] - training
        for name, rule in rules.RULES.items()
    }
    whole, factored, last = (found[name] for name in ("gauss_newton", "kronecker", "last_layer"))
    assert 0.5 < factored.mean() / moved.mean() < 2.0
    assert 0.5 < factored.mean() / whole.mean() < 2.0
    assert np.corrcoef(factored, moved)[0, 1] > 0.7
    assert np.linalg.norm(factored - moved) < 0.7 * np.linalg.norm(moved)
    assert np.linalg.norm(factored - moved) < np.linalg.norm(last - moved)


def test_more_parameters_than_rows_still_have_finite_steps():
    X, y = problem(20)
    module = nn.Sequential(
        nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 1)
    ).double()
    risk = quietly(
        module, nn.MSELoss(), (X, y), weight_decay=1e-3, curvature="kronecker", audit=2, max_steps=200
    )
    assert np.all(np.isfinite(risk.losses))
    assert risk.leverages.max() <= 1.0
    assert risk.training.mean() < risk.value < 10 * float(y.var())


# --- the choice ----------------------------------------------------------------------------------------


def test_kronecker_is_chosen_where_the_jacobian_does_not_fit(monkeypatch):
    X, y = problem(24)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    given = {"weight_decay": 0.1, "audit": 2}
    small = quietly(module, nn.MSELoss(), (X, y), **given)
    assert small.by == rules.GaussNewton.name
    assert small.notes == ()
    monkeypatch.setattr(rules, "ROOM", 8 * 24 * 21)
    large = quietly(module, nn.MSELoss(), (X, y), **given)
    assert large.by == rules.Kronecker.name
    assert large.notes == (
        "Kronecker factors were taken: the Gauss-Newton matrix of 24 outputs in 21 parameters would take "
        "0.0 GB",
    )
    assert large.notes[0] in str(large)
    asked = quietly(module, nn.MSELoss(), (X, y), curvature="kronecker", **given)
    np.testing.assert_array_equal(asked.losses, large.losses)
    with pytest.raises(
        ValueError, match=r"24 outputs in 21 parameters would take 0.0 GB: take curvature='kronecker'"
    ):
        quietly(module, nn.MSELoss(), (X, y), curvature="gauss_newton", **given)


def test_what_has_no_factors_and_is_too_large_is_named(monkeypatch):
    X, y = problem(24)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)).double()
    monkeypatch.setattr(kronecker_layers, "SMALL", 7)
    with pytest.raises(UnsupportedModelError, match=r"'1' \(LayerNorm, 8 parameters\) .* freeze it"):
        quietly(module, nn.MSELoss(), (X, y), weight_decay=0.1, curvature="kronecker", audit=2)
    module[1].requires_grad_(False)
    risk = quietly(module, nn.MSELoss(), (X, y), weight_decay=0.1, curvature="kronecker", audit=2)
    assert np.all(np.isfinite(risk.losses))


def test_without_decay_a_singular_factor_is_an_error():
    X, y = problem(24)
    X = torch.cat([X, X[:, :1]], 1)
    with pytest.raises(SolverError, match="the curvature of 'the module itself' is singular"):
        quietly(nn.Linear(4, 1).double(), nn.MSELoss(), (X, y), curvature="kronecker", audit=2)


def test_kronecker_factors_are_audited():
    X, y = problem(24)
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    with (
        pytest.warns(NotOptimalWarning),
        pytest.warns(UnreliableWarning, match="retraining without rows .* the formula"),
    ):
        risk = loo(module, nn.MSELoss(), (X, y), weight_decay=0.01, curvature="kronecker", audit=6, rng=0)
    low, high = risk.audit.interval
    assert len(risk.audit.rows) == 6
    assert abs(risk.value - risk.audit.value) > 0.05 * risk.audit.value or high - low > risk.audit.value

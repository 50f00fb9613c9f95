"""Leave-one-out of trained modules against retraining, and against closed forms where they are linear."""

from __future__ import annotations

import copy
import warnings
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from onefit.exceptions import (  # noqa: E402
    NotOptimalWarning,
    SolverError,
    UnreliableWarning,
    UnsupportedModelError,
)
from onefit.risk.audit import audit, draw  # noqa: E402
from onefit.torch.functional.problem import FunctionalProblem  # noqa: E402
from onefit.torch.networks.auditing import warn_if_wrong  # noqa: E402
from onefit.torch.networks.data import read_rows  # noqa: E402
from onefit.torch.networks.gauss_newton import ByOutputs, ByParameters  # noqa: E402
from onefit.torch.networks.loo import loo  # noqa: E402
from onefit.torch.networks.network import Network  # noqa: E402
from onefit.torch.networks.rules import GaussNewton  # noqa: E402
from onefit.torch.networks.training import Clock, finished  # noqa: E402

N = 24


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def rows():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 3))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=N)
    return torch.tensor(X), torch.tensor(y)[:, None]


def train(module, loss, X, y, decay):
    """Full-batch L-BFGS of PyTorch on the loss of the batch and the decay, as a user would."""
    optimiser = torch.optim.LBFGS(
        module.parameters(),
        max_iter=1000,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = loss(module(X), y) + decay * sum((p**2).sum() for p in module.parameters()) / 2
        value.backward()
        return value

    optimiser.step(closure)
    return module


@cache
def trained(decay=0.02, width=3, reduction="mean"):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1)).double()
    return train(net, nn.MSELoss(reduction=reduction), *rows(), decay)


def retrained_without(net, loss, row, decay):
    X, y = rows()
    kept = torch.arange(N) != row
    own = train(copy.deepcopy(net), loss, X[kept], y[kept], decay)
    return float(loss(own(X[[row]]), y[[row]]).detach())


@pytest.mark.parametrize("p", [3, 40])  # factored on the side of the parameters, and of the outputs
@pytest.mark.parametrize("curvature", ["last_layer", "gauss_newton"])
def test_of_a_weighted_mean_each_row_takes_its_share_of_the_decay(curvature, p):
    rng = np.random.default_rng(p)
    X, y, weights = rng.normal(size=(N, p)), rng.normal(size=N), rng.uniform(0.1, 4.0, N)
    Z = np.column_stack([X, np.ones(N)])

    def refit(kept):
        A, w = Z[kept], weights[kept] / weights[kept].sum()
        return np.linalg.solve(2 * (A.T * w) @ A + 0.3 * np.eye(p + 1), 2 * (A.T * w) @ y[kept])

    module, whole = nn.Linear(p, 1).double(), refit(np.arange(N))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(whole[None, :p]))
        module.bias.copy_(torch.tensor(whole[p:]))
    data = torch.tensor(X), torch.tensor(y)[:, None]
    found = loo(
        module,
        nn.MSELoss(),
        data,
        weight_decay=0.3,
        sample_weight=weights,
        curvature=curvature,
        train_on=False,
    )
    exact = [(y[i] - Z[i] @ refit(np.delete(np.arange(N), i))) ** 2 for i in range(N)]
    np.testing.assert_allclose(found.losses, exact, rtol=1e-7)


# --- linear modules: closed forms ----------------------------------------------------------------------


@pytest.mark.parametrize("curvature", ["last_layer", "gauss_newton"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_linear_module_is_ridge(curvature, reduction):
    X, y = rows()
    torch.manual_seed(0)
    net = train(nn.Linear(3, 1).double(), nn.MSELoss(reduction=reduction), X, y, 0.3)
    risk = loo(
        net,
        nn.MSELoss(reduction=reduction),
        (X, y),
        weight_decay=0.3,
        curvature=curvature,
        audit=N,
        rng=0,
    )
    Z, target = np.column_stack([X, np.ones(N)]), y[:, 0].numpy()
    expected = []
    for row in range(N):
        kept = np.arange(N) != row
        ridge = 0.3 / 2 * (N - 1 if reduction == "mean" else 1)
        theta = np.linalg.solve(Z[kept].T @ Z[kept] + ridge * np.eye(4), Z[kept].T @ target[kept])
        expected.append((target[row] - Z[row] @ theta) ** 2)
    np.testing.assert_allclose(risk.losses, expected, rtol=1e-8)
    np.testing.assert_allclose(risk.audit.refitted_losses, expected, rtol=1e-7)
    assert risk.audit.value == pytest.approx(np.mean(expected), rel=1e-8)
    assert 0 < risk.leverages.max() < 1
    assert "largest leverage" in str(risk)


@pytest.mark.parametrize("curvature", ["last_layer", "gauss_newton"])
def test_softmax_is_that_of_the_functional_problem(curvature):
    X, _ = rows()
    labels = torch.arange(N) % 3
    torch.manual_seed(0)
    loss = nn.CrossEntropyLoss(reduction="sum")
    net = train(nn.Linear(3, 3).double(), loss, X, labels, 0.5)

    def own(theta, x, y):
        eta = theta[:9].reshape(3, 3) @ x + theta[9:]
        return nn.functional.cross_entropy(eta[None], y[None])

    problem = FunctionalProblem(own, [lambda theta: (theta**2).sum() / 2], start=12)
    expected = problem.fit(X, labels, [0.5]).loo()
    risk = loo(net, loss, (X, labels), weight_decay=0.5, curvature=curvature, audit=2, rng=0)
    np.testing.assert_allclose(risk.losses, expected.losses, rtol=1e-8)
    assert risk.value == pytest.approx(expected.value)


# --- networks ------------------------------------------------------------------------------------------


def test_gauss_newton_is_explicit():
    X, y = rows()
    network = Network.read(trained(), nn.MSELoss(), read_rows((X, y), torch.device("cpu")), 0.02)
    network, _ = finished(network, 500, Clock(None))
    theta, decay = network.theta, 0.02
    J = network.jacobian(torch.arange(N))[:, 0]
    outputs = network.outputs(theta, network.rows)[:, 0]
    losses, _, moved = GaussNewton(network).left_out()
    for row in (0, 9):
        kept = torch.arange(N) != row
        H = 2 * J[kept].T @ J[kept] + (N - 1) * decay * torch.eye(len(theta), dtype=torch.float64)
        g = 2 * (outputs[row] - y[row, 0]) * J[row] + decay * theta  # the row's decay leaves with it
        point = theta + torch.linalg.solve(H, g)
        own = (network.predict(point, X[row]) - y[row]) ** 2
        assert float(losses[row]) == pytest.approx(float(own), rel=1e-8)
        assert float(moved[row, 0]) == pytest.approx(float(network.predict(point, X[row])), rel=1e-8)


@pytest.mark.parametrize("width", [2, 30])  # more outputs than parameters, and fewer
def test_rows_with_a_slope_and_no_curvature_move_the_weights_too(width):
    """Huber's loss is straight beyond 0.1: such a row adds nothing to K and leaves its slope behind."""
    X, y = rows()
    network = Network.read(
        trained(width=width),
        nn.HuberLoss(reduction="sum", delta=0.1),
        read_rows((X, y), torch.device("cpu")),
        0.5,
    )
    theta, everywhere = network.theta, torch.arange(N)
    J, left = network.jacobian(everywhere)[:, 0], network.outputs(theta, network.rows)[:, 0] - y[:, 0]
    inside = (left.abs() <= 0.1).double()
    assert 0 < inside.sum() < N
    _, _, moved = GaussNewton(network).left_out()
    for row in range(N):
        kept = inside * (everywhere != row)
        H = J.T @ (kept[:, None] * J) + 0.5 * torch.eye(len(theta), dtype=torch.float64)
        point = theta + torch.linalg.solve(H, left[row].clamp(-0.1, 0.1) * J[row])
        assert float(moved[row, 0]) == pytest.approx(float(network.predict(point, X[row])), rel=1e-7)


@pytest.mark.parametrize("size", [1, 2])
def test_both_sides_of_woodbury_are_the_matrix(size):
    generator = torch.Generator().manual_seed(0)
    J = torch.randn(4, 2, 11, dtype=torch.float64, generator=generator)
    ridge = torch.linspace(0.5, 2.0, 11, dtype=torch.float64)
    sets = torch.tensor([[0], [2], [3]]) if size == 1 else torch.tensor([[0, 3], [1, 2]])
    slopes = torch.randn(4, 2, dtype=torch.float64, generator=generator)
    decayed, shares = torch.linspace(-1.0, 1.0, 11, dtype=torch.float64), torch.linspace(0.0, 0.5, len(sets))
    for kind in (ByParameters, ByOutputs):
        steps, leverages = kind(J, slopes, ridge, decayed).left_out(sets, shares.double())
        for own, step, leverage, share in zip(sets, steps, leverages, shares.double(), strict=True):
            rhs = torch.einsum("qr,qrk->k", slopes[own], J[own]) + share * decayed
            rows, kept = J.flatten(0, 1), J[[i for i in range(4) if i not in own]].flatten(0, 1)
            K = torch.diag(ridge) + kept.T @ kept
            np.testing.assert_allclose(step, torch.linalg.solve(K, rhs), rtol=1e-9)
            whole = torch.diag(ridge) + rows.T @ rows
            H = J[own].flatten(0, 1) @ torch.linalg.solve(whole, J[own].flatten(0, 1).T)
            assert float(leverage) == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]))


def test_the_audit_is_of_retrained_networks():
    net = trained(0.05)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    risk = loo(net, nn.MSELoss(), rows(), weight_decay=0.05, audit=6, rng=0)
    for row, loss in zip(risk.audit.rows, risk.audit.refitted_losses, strict=True):
        assert loss == pytest.approx(retrained_without(net, nn.MSELoss(), row, 0.05), rel=1e-5)
    low, high = risk.audit.interval
    assert low < risk.audit.value < high
    assert risk.guarantee == "sampled"
    assert risk.approx_error == max(abs(low - risk.value), abs(high - risk.value))
    assert not risk.certified.any()
    assert risk.value > 1.2 * risk.training.mean()
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    again = loo(net, nn.MSELoss(), rows(), weight_decay=0.05, audit=6, rng=0)
    np.testing.assert_array_equal(again.losses, risk.losses)
    np.testing.assert_array_equal(again.audit.refitted_losses, risk.audit.refitted_losses)


class Ordered(nn.Module):
    """A hidden layer and a head, which is registered before it or after."""

    def __init__(self, first):
        super().__init__()
        names = ("head", "body") if first == "head" else ("body", "head")
        for name in names:
            self.add_module(name, nn.Linear(3, 1) if name == "head" else nn.Linear(2, 3))

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def test_the_last_layer_is_the_one_that_is_called_last():
    X, y = torch.randn(N, 2, generator=torch.Generator().manual_seed(0)), torch.randn(N, 1)
    last, first = Ordered("body"), Ordered("head")
    first.load_state_dict(last.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"weight_decay": 0.05, "curvature": "last_layer", "train_on": False}
        one, other = (loo(net, nn.MSELoss(), (X, y), **given) for net in (last, first))
    np.testing.assert_allclose(one.losses, other.losses, rtol=1e-10)


class Tied(nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.inner, self.outer, self.twice = nn.Linear(2, 2), nn.Linear(2, 2), twice
        self.outer.weight = self.inner.weight

    def forward(self, x):
        low = torch.tanh(self.inner(x))
        return (self.inner if self.twice else self.outer)(low)


@pytest.mark.parametrize("twice", [False, True])
def test_a_last_layer_that_moves_its_features_is_refused(twice):
    X = torch.randn(N, 2)
    with pytest.raises(UnsupportedModelError, match="shares its weights with what is below"):
        loo(Tied(twice), nn.MSELoss(), (X, X), weight_decay=0.1, curvature="last_layer", train_on=False)


def test_gauss_newton_is_nearer_to_retraining_than_the_last_layer():
    net = trained()
    exact = np.array([retrained_without(net, nn.MSELoss(), row, 0.02) for row in range(N)])
    found = {}
    for curvature in ("gauss_newton", "last_layer"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreliableWarning)
            found[curvature] = loo(
                net, nn.MSELoss(), rows(), weight_decay=0.02, curvature=curvature, audit=2, rng=0
            )
    errors = {name: abs(risk.value - exact.mean()) for name, risk in found.items()}
    gap = exact.mean() - found["gauss_newton"].training.mean()
    assert errors["gauss_newton"] < 0.3 * gap
    assert errors["gauss_newton"] < 0.5 * errors["last_layer"]


def test_a_formula_that_retraining_contradicts_is_warned_of():
    net = trained(0.005, 4)
    with pytest.warns(UnreliableWarning, match="retraining without rows .* the formula"):
        risk = loo(net, nn.MSELoss(), rows(), weight_decay=0.005, curvature="last_layer", audit=6, rng=0)
    assert risk.audit.value > 1.05 * risk.value


def test_what_the_audit_has_to_say_decides_the_warning():
    losses, weights = np.linspace(1.0, 2.0, 50), np.ones(50)
    drawn = draw(losses, weights, 10, np.random.default_rng(0))
    result = type("Result", (), {"value": losses.mean()})
    warn_if_wrong(result, audit(losses, drawn, 1.001 * losses[drawn.rows], weights))
    for factor, words in ((1.5, "contradicts"), (np.nan, "does not confirm")):
        with pytest.warns(UnreliableWarning, match=words):
            warn_if_wrong(result, audit(losses, drawn, factor * losses[drawn.rows], weights))
    noisy = losses[drawn.rows] * np.where(np.arange(10) % 2, 0.0, 9.0)
    with pytest.warns(UnreliableWarning, match="the formula"):
        warn_if_wrong(result, audit(losses, drawn, noisy, weights))


def test_an_unfinished_network_is_finished():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with pytest.warns(NotOptimalWarning, match="was not trained to a minimum"):
        found = loo(net, nn.MSELoss(), rows(), weight_decay=0.2, audit=2, rng=0)
    finished = train(net, nn.MSELoss(), *rows(), 0.2)
    expected = loo(finished, nn.MSELoss(), rows(), weight_decay=0.2, audit=2, rng=0)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)


def _of_relu():
    """A net that plain gradient descent has brought to a minimum, which is in kinks; and its data."""
    torch.manual_seed(0)
    X = torch.randn(60, 5)
    y = torch.sin(2 * X[:, :1]) + X[:, 1:2] + 0.3 * torch.randn(60, 1)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 3000)
    for _ in range(3000):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(X), y).backward()
        optimiser.step()
        schedule.step()
    return net, X, y, optimiser


def test_a_minimum_in_kinks_is_one():
    net, X, y, optimiser = _of_relu()
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotOptimalWarning)
        warnings.simplefilter("ignore", UnreliableWarning)
        found = loo(net, nn.MSELoss(), (X, y), weight_decay=optimiser, audit=2, rng=0)
    assert not any("did not converge" in note or "no minimum" in note for note in found.notes)


@pytest.mark.parametrize("steps", [10, 2000])
def test_retrainings_whose_steps_are_used_up_are_no_refits(steps):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 10, dtype=torch.float64, generator=generator)
    y = (
        torch.sin(2 * X[:, :1])
        + X[:, 1:2]
        + 0.3 * torch.randn(30, 1, dtype=torch.float64, generator=generator)
    )
    torch.manual_seed(0)
    net = train(
        nn.Sequential(nn.Linear(10, 60), nn.Tanh(), nn.Linear(60, 1)).double(), nn.MSELoss(), X, y, 0.05
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = loo(net, nn.MSELoss(), (X, y), weight_decay=0.05, audit=6, rng=0, max_steps=steps)
    unfinished = [note for note in found.notes if "had not come to a minimum" in note]
    assert bool(unfinished) == (steps == 10)
    assert [str(one.message) for one in heard if "minimum when" in str(one.message)] == unfinished


def test_dropout_is_named_where_it_may_be_why_a_network_is_unfinished():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1)).double()
    with pytest.warns(NotOptimalWarning, match="without dropout, which is off here"):
        found = loo(net, nn.MSELoss(), rows(), weight_decay=0.2, audit=2, rng=0)
    plain = nn.Sequential(net[0], net[1], net[3])
    with pytest.warns(NotOptimalWarning) as heard:
        other = loo(plain, nn.MSELoss(), rows(), weight_decay=0.2, audit=2, rng=0)
    assert not any("dropout" in str(one.message) for one in heard)
    np.testing.assert_allclose(found.losses, other.losses, rtol=1e-6)


def test_data_sets_and_loaders_are_read_in_order():
    expected = loo(trained(), nn.MSELoss(), rows(), weight_decay=0.02, audit=2, rng=0)
    stored = TensorDataset(*rows())
    for data in (stored, DataLoader(stored, batch_size=5, shuffle=True)):
        found = loo(trained(), nn.MSELoss(), data, weight_decay=0.02, audit=2, rng=0)
        np.testing.assert_array_equal(found.losses, expected.losses)


def test_decay_by_name_and_frozen_layers():
    X, y = rows()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    net[0].requires_grad_(False)
    loss, by_name = nn.MSELoss(reduction="sum"), {"2.weight": 0.4}
    with pytest.warns(NotOptimalWarning):
        risk = loo(net, loss, (X, y), weight_decay=by_name, curvature="last_layer", audit=N, rng=0)
    features = torch.tanh(net[0](X)).detach().numpy()
    Z, target = np.column_stack([features, np.ones(N)]), y[:, 0].numpy()
    ridge = np.diag([0.2] * 4 + [0.0])
    H = Z @ np.linalg.solve(Z.T @ Z + ridge, Z.T)
    expected = ((target - H @ target) / (1 - np.diag(H))) ** 2
    np.testing.assert_allclose(risk.losses, expected, rtol=1e-8)
    np.testing.assert_allclose(risk.audit.refitted_losses, expected, rtol=1e-6)


def test_batch_norm_holds_and_single_precision_is_taken():
    X, y = rows()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, 1))
    with pytest.warns(NotOptimalWarning):
        risk = loo(net, nn.MSELoss(), (X.float(), y.float()), weight_decay=0.1, audit=2, rng=0)
    assert np.all(np.isfinite(risk.losses))
    assert net.training
    assert next(net.parameters()).dtype == torch.float32


# --- bad input -----------------------------------------------------------------------------------------


def _not_finite():
    net = nn.Linear(3, 1)
    with torch.no_grad():
        net.bias[0] = torch.nan
    return net


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"module": nn.Tanh()}, "no parameters to train"),
        ({"module": nn.Linear(3, 1).requires_grad_(False)}, "no parameters to train"),
        ({"module": _not_finite()}, "parameters of the module are not all finite"),
        ({"loss": nn.MSELoss(reduction="none")}, "the loss of a batch .* must be one number"),
        ({"loss": lambda out, y: ((out - y) ** 2).sum().sqrt()}, "neither the mean"),
        ({"loss": lambda out, y: (out / y.clamp(max=0)).mean()}, "is not finite at the given weights"),
        ({"weight_decay": {"nothing": 1.0}}, "names 'nothing', which is none of weight, bias"),
        ({"weight_decay": -1.0}, "weight_decay must be finite"),
        ({"weight_decay": np.inf}, "weight_decay must be finite"),
        ({"audit": 0}, "always audited"),
        ({"audit": 1}, "audit must be"),
        ({"curvature": "kfac"}, "curvature must be one of"),
        ({"data": (torch.full((5, 3), torch.nan), torch.zeros(5, 1))}, "X has values that are not finite"),
        ({"data": (torch.zeros(5, 3), torch.zeros(4, 1))}, "X has 5 rows, y has 4"),
        ({"data": (torch.zeros(5, 3),)}, "data must be"),
        ({"device": "no such device"}, "cannot be used here"),
    ],
)
def test_bad_input_is_refused(given, message):
    arguments = {"module": nn.Linear(3, 1), "loss": nn.MSELoss(), "data": rows(), "weight_decay": 0.1}
    with pytest.raises(ValueError, match=message):
        loo(**(arguments | given))


def test_wrong_types_are_refused():
    for arguments in (
        (3, nn.MSELoss(), rows()),
        (nn.Linear(3, 1), 3, rows()),
        (nn.Linear(3, 1), nn.MSELoss(), 3),
    ):
        with pytest.raises(TypeError, match="must be"):
            loo(*arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_absent_is_refused():
    with pytest.raises(ValueError, match="'cuda' cannot be used here"):
        loo(nn.Linear(3, 1), nn.MSELoss(), rows(), device="cuda")


def test_a_singular_curvature_is_an_error():
    X, y = rows()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 20), nn.Linear(20, 1)).double()
    with (
        pytest.warns(NotOptimalWarning),
        pytest.raises(SolverError, match="give all parameters a weight decay"),
    ):
        loo(net, nn.MSELoss(), (X, y), audit=2)


def test_a_response_that_broadcasts_against_the_outputs_is_refused():
    X, y = torch.randn(12, 3).double(), torch.randn(12).double()
    with pytest.raises(ValueError, match=r"returns \(12, 1\) and y is \(12,\); give both one shape"):
        loo(nn.Linear(3, 1).double(), nn.MSELoss(), (X, y), weight_decay=0.1)


TWO = np.arange(N) % 2


@pytest.mark.parametrize(
    ("outputs", "loss", "y", "said"),
    [
        (2, nn.CrossEntropyLoss(), TWO.astype(float), r"y holds torch.float64.*pass y.astype\(int\)"),
        (2, nn.CrossEntropyLoss(), TWO > 0, r"y holds torch.bool.*pass y.astype\(int\)"),
        (2, nn.CrossEntropyLoss(), TWO[:, None], r"shape \(24, 1\).*one number a row: pass y\[:, 0\]"),
        (1, nn.CrossEntropyLoss(), TWO, "the module has one output.*take BCEWithLogitsLoss"),
        (2, nn.CrossEntropyLoss(), np.append(TWO[:-1], 5), "y is 5 in row 23, and the module has 2 outputs"),
        (1, nn.BCEWithLogitsLoss(), TWO[:, None], r"y holds torch.int64.*pass y.astype\(float\)"),
        (1, nn.BCEWithLogitsLoss(), 3.0 * TWO[:, None], "takes y from 0 to 1, and row 1 has 3"),
        (1, nn.HuberLoss(), TWO[:, None], r"y holds torch.int64, and HuberLoss .*pass y.astype\(float\)"),
        (1, nn.HuberLoss(), TWO[:, None] > 0, r"y holds torch.bool, and HuberLoss .*y.astype\(float\)"),
        (1, nn.SmoothL1Loss(), TWO[:, None] > 0, r"y holds torch.bool, and SmoothL1Loss .*astype\(float\)"),
        (
            1,
            nn.SoftMarginLoss(),
            TWO[:, None] > 0,
            r"y holds torch.bool, and SoftMarginLoss .*astype\(float\)",
        ),
        (1, nn.functional.huber_loss, TWO[:, None], r"y holds torch.int64, and the loss takes floats"),
        (
            2,
            nn.GaussianNLLLoss(),
            TWO.astype(float),
            r"'var'.*lambda out, y: loss\(out\[:, 0\], y, out\[:, 1\]",
        ),
        (2, nn.functional.cross_entropy, TWO + 1, "the loss fails on the outputs and y, Target 2"),
    ],
)
def test_targets_that_a_loss_does_not_take_are_named(outputs, loss, y, said):
    X = np.random.default_rng(0).normal(size=(N, 3))
    with pytest.raises((TypeError, ValueError), match=said):
        loo(nn.Linear(3, outputs).double(), loss, (X, y), weight_decay=0.1)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.SmoothL1Loss(), nn.SoftMarginLoss()])
def test_whole_numbers_that_a_loss_takes_are_taken(loss):
    X, y = np.random.default_rng(0).normal(size=(N, 3)), 2 * TWO[:, None] - 1
    torch.manual_seed(0)
    net, given = nn.Linear(3, 1).double(), {"weight_decay": 0.1, "train_on": False}
    whole, floats = (loo(net, loss, (X, target), **given) for target in (y, y.astype(float)))
    np.testing.assert_allclose(whole.losses, floats.losses, rtol=1e-12)


def test_a_loss_of_more_arguments_is_a_function_of_two():
    X, y = rows()
    torch.manual_seed(0)
    net, of_three = nn.Linear(3, 2).double(), nn.GaussianNLLLoss()
    given = {"weight_decay": 0.1, "train_on": False}

    def loss(out, y):
        return of_three(out[:, 0], y, out[:, 1].exp())

    def written_out(out, y):
        return (out[:, 1] + (out[:, 0] - y) ** 2 / out[:, 1].exp()).mean() / 2

    found = loo(net, loss, (X, y[:, 0]), **given)
    np.testing.assert_allclose(found.losses, loo(net, written_out, (X, y[:, 0]), **given).losses, rtol=1e-6)
    with pytest.raises(UnsupportedModelError, match=r"a loss that torch.func.vmap can map .*'gauss_newton'"):
        loo(net, loss, (X, y[:, 0]), curvature="last_layer", **given)


def test_batch_norm_is_told_of():
    X = np.random.default_rng(0).normal(size=(N, 3))
    module = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    with pytest.warns(NotOptimalWarning, match="batch norm goes by its running means"):
        loo(module, nn.MSELoss(), (X, X[:, :1]), weight_decay=0.1)

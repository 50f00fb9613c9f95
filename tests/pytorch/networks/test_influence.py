"""Influence of rows on others, and what taking groups of them away does, against retraining."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from onefit.exceptions import UnsupportedModelError  # noqa: E402
from onefit.torch import influence, loo  # noqa: E402
from onefit.torch.networks.data import read_rows  # noqa: E402
from onefit.torch.networks.network import Network  # noqa: E402
from onefit.torch.networks.training import Clock, finished, trained  # noqa: E402

N, CPU = 40, torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def data():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N + 15, 3, dtype=torch.float64, generator=generator)
    noise = 0.2 * torch.randn(N + 15, 1, dtype=torch.float64, generator=generator)
    return X, torch.sin(X[:, :1]) + 0.3 * X[:, 1:2] + noise


def at_a_minimum(module, decay):
    X, y = data()
    network = Network.read(module, nn.MSELoss(), read_rows((X[:N], y[:N]), CPU), decay)
    with pytest.warns(UserWarning, match="was not trained to a minimum"):
        network, _ = finished(network, 2000, Clock(None))
    return network


def retrained(network, rows):
    X, y = data()
    theta = trained(network.without(torch.as_tensor(rows)), 2000, lambda: False).theta
    with torch.no_grad():
        return ((network.as_module(theta)(X[N:]) - y[N:]) ** 2)[:, 0].numpy()


def test_a_linear_module_without_groups_is_refits():
    torch.manual_seed(0)
    network, (X, y) = at_a_minimum(nn.Linear(3, 1).double(), 0.1), data()
    module = network.as_module(network.theta)
    found = influence(module, nn.MSELoss(), (X[:N], y[:N]), (X[N:], y[N:]), weight_decay=0.1)
    removed = found.remove([[0], [1, 5], [2, 3, 4], list(range(30))])
    for one in removed:
        np.testing.assert_allclose(one.losses, retrained(network, one.rows), rtol=1e-6)
    with torch.no_grad():
        after = ((removed[1].module(X[N:]) - y[N:]) ** 2)[:, 0].numpy()
    np.testing.assert_allclose(after, removed[1].losses, rtol=1e-10)
    assert removed[0].change == pytest.approx(removed[0].losses.mean() - found.test_losses.mean())


@pytest.mark.parametrize("curvature", ["gauss_newton", "kronecker"])
def test_influence_of_a_network_is_near_to_retraining(curvature):
    torch.manual_seed(1)
    network, (X, y) = (
        at_a_minimum(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), 0.05),
        data(),
    )
    module = network.as_module(network.theta)
    given = {"weight_decay": 0.05, "curvature": curvature}
    found = influence(module, nn.MSELoss(), (X[:N], y[:N]), (X[N:], y[N:]), **given)
    assert found.values.shape == (15, N)
    rows = range(0, N, 4)
    exact = np.array([retrained(network, [row]) - found.test_losses for row in rows]).T
    wanted = 0.95 if curvature == "gauss_newton" else 0.7
    assert np.corrcoef(found.values[:, ::4].ravel(), exact.ravel())[0, 1] > wanted
    if curvature == "kronecker":
        with pytest.raises(UnsupportedModelError, match="leave out one row at a time"):
            found.remove([[0, 1]])
    else:
        group = found.remove([[0, 1, 2]])[0]
        expected = retrained(network, [0, 1, 2]).mean() - found.test_losses.mean()
        assert group.change == pytest.approx(expected, rel=0.5, abs=2e-3)


def test_wrong_targets_are_the_most_harmful():
    X, y = data()
    y = y.clone()
    y[[3, 11, 30]] += 4.0
    torch.manual_seed(0)
    network = Network.read(nn.Linear(3, 1).double(), nn.MSELoss(), read_rows((X[:N], y[:N]), CPU), 0.1)
    module = network.as_module(trained(network, 2000, lambda: False).theta)
    clean = data()[1]
    found = influence(module, nn.MSELoss(), (X[:N], y[:N]), (X[N:], clean[N:]), weight_decay=0.1)
    assert len({3, 11, 30} & set(found.ranking()[:5].tolist())) >= 2
    labels = np.repeat(np.arange(10), 4)
    groups = found.remove(labels)
    assert [one.rows.tolist() for one in groups] == np.arange(N).reshape(10, 4).tolist()


@pytest.mark.parametrize("groups", [[[0, 0]], [[-1]], [[N]], [[0.5]], [[]]])
def test_groups_are_row_numbers(groups):
    X, y = data()
    torch.manual_seed(0)
    found = influence(nn.Linear(3, 1), nn.MSELoss(), (X[:N], y[:N]), (X[N:], y[N:]), weight_decay=0.1)
    with pytest.raises(ValueError, match="each group must be distinct row numbers from 0 to 39"):
        found.remove(groups)


@pytest.mark.parametrize("curvature", ["gauss_newton", "last_layer", "kronecker"])
@pytest.mark.parametrize("weighted", [5, N])
def test_a_group_with_all_the_weight_is_refused(curvature, weighted):
    X, y = data()
    torch.manual_seed(0)
    train, test = (X[:N], y[:N]), (X[N:], y[N:])
    given = {"weight_decay": 0.1, "curvature": curvature, "sample_weight": np.arange(N) < weighted}
    found = influence(nn.Linear(3, 1), nn.MSELoss(), train, test, **given)
    with pytest.raises(ValueError, match=r"the group of rows 0, 1, 2, 3, 4.* nothing is left to fit"):
        found.remove([[7], range(weighted)])


@pytest.mark.parametrize("curvature", ["gauss_newton", "last_layer"])
def test_the_decay_of_a_sum_takes_weights_to_zero(curvature):
    X, y = data()
    torch.manual_seed(0)
    loss, rows = nn.MSELoss(reduction="sum"), read_rows((X[:N], y[:N]), CPU)
    network = Network.read(nn.Linear(3, 1).double(), loss, rows, 0.1)
    module = network.as_module(trained(network, 2000, lambda: False).theta)
    given = {"weight_decay": 0.1, "curvature": curvature}
    found = influence(module, loss, (X[:N], y[:N]), (X[N:], y[N:]), **given)
    np.testing.assert_allclose(found.remove([range(N)])[0].losses, y[N:, 0] ** 2, rtol=1e-6)
    free = influence(module, loss, (X[:N], y[:N]), (X[N:], y[N:]), curvature=curvature)
    with pytest.raises(ValueError, match="nothing is left to fit"):
        free.remove([range(N)])


def test_a_single_row_with_weight_leaves_nothing_to_train_on():
    X, y = data()
    rows, only = (X[:N], y[:N]), np.arange(N) == 3
    with pytest.raises(ValueError, match=r"at least 2 rows with weight .*, there are 1: see sample_weight"):
        influence(nn.Linear(3, 1), nn.MSELoss(), rows, rows, weight_decay=0.1, sample_weight=only)
    with pytest.raises(ValueError, match=r"at least 2 rows with weight .*, there are 1: see sample_weight"):
        loo(nn.Linear(3, 1), nn.MSELoss(), rows, weight_decay=0.1, sample_weight=only)


@pytest.mark.parametrize(
    ("outputs", "loss", "change", "said"),
    [
        (
            1,
            nn.MSELoss(),
            lambda X, y: (X, y[:, 0]),
            r"returns \(15, 1\) and y is \(15,\); give both one shape",
        ),
        (1, nn.MSELoss(), lambda X, y: (X[:, :2], y), r"does not take these inputs \(\(15, 2\)"),
        (1, nn.MSELoss(), lambda X, y: (X, y[:5]), "X has 15 rows, y has 5"),
        (1, nn.MSELoss(), lambda X, y: (X[:0], y[:0]), r"at least 1 row is needed, got X of shape \(0, 3\)"),
        (1, nn.MSELoss(), lambda X, y: (X, y.log()), "y has values that are not finite"),
        (1, nn.MSELoss(), lambda X, y: (1e200 * X, y), "the loss of row 0 is not finite"),
        (1, lambda out, y: ((out - y) ** 2).mean(), lambda X, _: (X, X[:4, 0]), "X has 15 rows, y has 4"),
        (1, lambda out, y: ((out - y) ** 2).mean(), lambda X, _: (X, X[:, :, None]), "the loss fails on"),
        (
            2,
            nn.CrossEntropyLoss(),
            lambda X, y: (X, y + 5),
            "y is [56] in row 0, and the module has 2 outputs",
        ),
        (2, nn.CrossEntropyLoss(), lambda X, y: (X, y.double()), r"y holds torch.float64.*y.astype\(int\)"),
        (2, nn.CrossEntropyLoss(), lambda X, y: (X, y[:, None]), r"shape \(15, 1\).*pass y\[:, 0\]"),
        (2, nn.functional.cross_entropy, lambda X, y: (X, y + 5), "the loss fails on the outputs and y"),
    ],
)
def test_test_rows_are_checked_as_those_of_training(outputs, loss, change, said):
    X, y = data()
    y = y if outputs == 1 else (y[:, 0] > 0).long()
    torch.manual_seed(0)
    with pytest.raises((TypeError, ValueError), match=f"^of the test rows: .*{said}"):
        influence(nn.Linear(3, outputs), loss, (X[:N], y[:N]), change(X[N:], y[N:]), weight_decay=0.1)


@pytest.mark.parametrize("curvature", ["gauss_newton", "last_layer", "kronecker"])
def test_a_single_test_row_is_one_of_several(curvature):
    X, y = data()
    torch.manual_seed(0)
    module, train = nn.Linear(3, 1), (X[:N], y[:N])
    given = {"weight_decay": 0.1, "curvature": curvature}
    several = influence(module, nn.MSELoss(), train, (X[N:], y[N:]), **given)
    one = influence(module, nn.MSELoss(), train, (X[-1:], y[-1:]), **given)
    np.testing.assert_allclose(one.values, several.values[-1:], rtol=1e-10)
    np.testing.assert_allclose(one.test_losses, several.test_losses[-1:], rtol=1e-12)
    assert one.remove([[3]])[0].losses == pytest.approx(several.remove([[3]])[0].losses[-1:])

"""Heads on frozen features against refits of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_diabetes, load_digits  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge  # noqa: E402
from sklearn.model_selection import ShuffleSplit  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset  # noqa: E402

import onefit  # noqa: E402
from onefit.torch import LeaveOneOutHead, embedded_rows  # noqa: E402
from onefit.torch.features import embedding, heads  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_torch_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layers(nn.Module):
    """Two layers of features."""

    def __init__(self, p, d):
        super().__init__()
        self.first, self.second = nn.Linear(p, d), nn.Linear(d, 2)

    def forward(self, x):
        low = torch.tanh(self.first(x))
        return low, torch.tanh(self.second(low))


def digits(n_class=3, n=120):
    X, y = load_digits(n_class=n_class, return_X_y=True)
    return torch.tensor(X[:n] / 16).float(), y[:n]


def backbone(d=6):
    torch.manual_seed(0)
    return Layers(64, d)


def features_of(module, X):
    with torch.no_grad():
        return torch.cat(module(X), 1).double().numpy()


def scaled(F):
    return (F - F.mean(0)) / F.std(0)


def test_a_ridge_head_is_refits():
    X, y = load_diabetes(return_X_y=True)
    X = torch.tensor(20 * X[:80]).float()
    torch.manual_seed(0)
    module = Layers(10, 4)
    head = LeaveOneOutHead(module, head="ridge").fit(X, y[:80])
    F, target = scaled(features_of(module, X)), y[:80]
    for row in (0, 17, 79):
        kept = np.arange(80) != row
        refit = Ridge(head.estimators_[0].alpha_, tol=1e-12).fit(F[kept], target[kept])
        assert head.losses_[row] == pytest.approx((target[row] - refit.predict(F[[row]])[0]) ** 2, rel=1e-8)
    np.testing.assert_array_equal(head.layers_, [0, 0, 0, 0, 1, 1])
    interval = head.interval(X[:5], coverage=0.8)
    assert interval.shape == (5, 2)
    assert np.all(interval[:, 0] < head.predict(X[:5]))
    assert np.all(head.predict(X[:5]) < interval[:, 1])


@pytest.mark.parametrize("joint", [True, False])
def test_a_logistic_head_is_refits(joint, monkeypatch):
    """Few coefficients: one multinomial fit; many: one against the rest."""
    if not joint:
        monkeypatch.setattr(heads, "JOINT", 10)
    X, y = digits(3, 90)
    module = backbone()
    head = LeaveOneOutHead(module, exact=True, n_strengths=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head.fit(X, y)
    F = scaled(features_of(module, X))
    assert len(head.estimators_) == (1 if joint else 3)
    for row in (0, 41):
        kept = np.arange(90) != row
        probabilities = []
        for k, one in enumerate(head.estimators_):
            label = y if joint else y == k
            refit = LogisticRegression(C=one.C_, tol=1e-12, solver="newton-cg", max_iter=1000)
            refit.fit(F[kept], label[kept])
            probabilities.append(refit.predict_proba(F[[row]])[0])
        expected = probabilities[0] if joint else np.array([p[1] for p in probabilities])
        np.testing.assert_allclose(head.predictions_[row], expected / expected.sum(), rtol=1e-6, atol=1e-8)


def test_the_linear_layer_is_the_head_on_its_backbone():
    X, y = digits()
    module = backbone()
    head = LeaveOneOutHead(module, head="ridge").fit(X, y)
    scores = head.linear_(torch.as_tensor(features_of(module, X))).detach().numpy()
    np.testing.assert_allclose(scores, head.decision_function(X), rtol=1e-10)
    F = scaled(features_of(module, X))
    np.testing.assert_allclose(scores, head.estimators_[0].predict(F), rtol=1e-8, atol=1e-10)
    assert (head.predict(X) == y).mean() > 0.9
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Linear(64, 20), nn.ReLU())
    whole = LeaveOneOutHead(flat, head="ridge").fit(X, y).as_module()
    assert whole(X).dtype == torch.float32
    assert float((whole(X).argmax(1).numpy() == y).mean()) > 0.85
    assert flat.training


def test_every_form_of_the_data_is_the_same():
    X, y = digits()
    module, rows = backbone(), TensorDataset(X, torch.tensor(y))
    expected = LeaveOneOutHead(module, head="ridge").fit(X, y)
    for data in (rows, DataLoader(rows, batch_size=7, shuffle=True)):
        found = LeaveOneOutHead(module, head="ridge", batch_size=11).fit(data)
        np.testing.assert_allclose(found.losses_, expected.losses_, rtol=1e-4)
    given = LeaveOneOutHead(head="ridge").fit(features_of(module, X), y)
    np.testing.assert_allclose(given.losses_, expected.losses_, rtol=1e-6)
    low = LeaveOneOutHead(module, head="ridge", autocast=torch.bfloat16).fit(X, y)
    assert low.value_ == pytest.approx(expected.value_, rel=0.1)


def test_wrong_labels_come_first():
    X, y = digits(5, 300)
    rng = np.random.default_rng(0)
    flipped = rng.choice(300, 30, replace=False)
    wrong = y.copy()
    wrong[flipped] = (wrong[flipped] + rng.integers(1, 5, 30)) % 5
    head = LeaveOneOutHead(head="ridge").fit(X, wrong)
    assert np.isin(head.suspects()[:30], flipped).mean() > 0.8


def test_layers_may_have_strengths_of_their_own():
    X, y = load_diabetes(return_X_y=True)
    X = torch.tensor(20 * X[:100])
    module = Layers(10, 4).double()
    layers = LeaveOneOutHead(module, head="ridge").fit(X, y[:100]).layers_
    search = onefit.GradientSearchCV(
        onefit.GeneralizedLinear("squared", onefit.penalties.L2()),
        {"penalty__alpha": onefit.PerGroup(layers, 1e-2, 1e3)},
    )
    head = LeaveOneOutHead(module, head=search).fit(X, y[:100])
    alone = LeaveOneOutHead(module, head="ridge").fit(X, y[:100])
    assert head.value_ < 1.02 * alone.value_
    assert head.linear_.weight.shape == (1, 6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"head": "svm"}, ValueError, "head must be one of logistic, ridge or an estimator"),
        ({"head": 3}, TypeError, "head must be one of"),
        ({"y": None}, ValueError, "there are no targets"),
        ({"y": np.zeros(7)}, ValueError, "X has 6 rows, y has 7"),
        ({"y": np.zeros(6, dtype=int), "head": "logistic"}, ValueError, "at least 2 classes, got 1"),
        ({"y": np.linspace(0, 1, 6), "head": "logistic"}, ValueError, "Unknown label type: continuous"),
        ({"X": torch.full((6, 3), torch.nan)}, ValueError, "features of row 0 are not finite"),
        ({"X": (torch.zeros(6, 3), torch.zeros(5, 3))}, ValueError, r"different numbers of rows: \[6, 5\]"),
        ({"module": nn.Flatten(0)}, ValueError, "one entry for each of 6 rows"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number"),
        ({"device": "nowhere"}, ValueError, "cannot be used here"),
    ],
)
def test_what_cannot_be_used_is_refused(change, error, message):
    given = {"X": torch.randn(6, 3), "y": np.arange(6.0), "module": None, "head": "ridge"} | change
    X, y = given.pop("X"), given.pop("y")
    with pytest.raises(error, match=message):
        LeaveOneOutHead(**given).fit(X, y)


@pytest.mark.parametrize("kind", ["array", "data set", "loader"])
def test_features_that_do_not_fit_into_memory_name_what_streams(kind, monkeypatch):
    X, y = digits()
    rows = TensorDataset(X, torch.tensor(y))
    data = {"array": (X, y), "data set": (rows,), "loader": (DataLoader(rows, batch_size=7),)}[kind]
    monkeypatch.setattr(embedding.cost, "memory", lambda: 3.0 * 8 * 120 * 64 - 1.0)
    with pytest.raises(ValueError, match=r"120 rows of 64 features take .* onefit.torch.embedded_rows"):
        LeaveOneOutHead(head="ridge").fit(*data)
    monkeypatch.setattr(embedding.cost, "memory", lambda: 3.0 * 8 * 120 * 64)
    LeaveOneOutHead(head="ridge").fit(*data)


def test_a_source_of_blocks_is_for_other_estimators():
    X, y = digits()
    source = embedded_rows(backbone(), TensorDataset(X, torch.tensor(y)))
    with pytest.raises(TypeError, match="fit RidgeLOO or LogisticLOO"):
        LeaveOneOutHead(head="ridge").fit(source)


def test_probabilities_need_a_head_that_has_some():
    X, y = digits()
    with pytest.raises(ValueError, match="take head='logistic'"):
        LeaveOneOutHead(head="ridge").fit(X, y).predict_proba(X)


def newton_steps(model, F, y, weights):
    """One step a row, written out."""
    weights = np.ones(len(y)) if weights is None else weights
    Z, eta = np.hstack([F, np.ones((len(F), 1))]), model.decision_function(F)
    share = 1.0 / (1.0 + np.exp(-eta))
    g, d = weights * (share - y), weights * share * (1.0 - share)
    K = (Z.T * d) @ Z + np.diag([*np.full(F.shape[1], 1.0 / model.C), 0.0])
    h = np.einsum("ij,ij->i", Z, np.linalg.solve(K, Z.T).T)
    return eta + h * g / (1.0 - d * h)


@pytest.mark.parametrize("weighted", [False, True])
def test_classes_that_are_fitted_together_are_those_fitted_one_by_one(monkeypatch, weighted):
    monkeypatch.setattr(heads, "JOINT", 10)
    X, y = digits(n_class=4, n=200)
    F = X.double().numpy()[:, 20:40]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.exceptions.OnefitWarning)
        head = LeaveOneOutHead(scale=False).fit(F, y, weights)
    assert len({one.C_ for one in head.estimators_}) == 1
    for k, one in enumerate(head.estimators_):
        model = LogisticRegression(C=one.C_, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
        model.fit(F, y == k, weights)
        np.testing.assert_allclose(one.coef_, model.coef_, atol=1e-6)
        exact = onefit.loo(model, F, y == k, sample_weight=weights, exact=True)
        step = np.abs(newton_steps(model, F, y == k, weights) - exact.decision).max()
        assert np.abs(one.loo_.decision - exact.decision).max() <= step + 1e-5
        assert np.all(np.abs(one.loo_.decision - exact.decision) <= one.loo_.bounds + 1e-6)


def test_the_strength_of_classes_together_is_better_than_its_neighbours(monkeypatch):
    monkeypatch.setattr(heads, "JOINT", 10)
    X, y = digits(n_class=3, n=150)
    F = X.double().numpy()[:, 20:36]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.exceptions.OnefitWarning)
        head = LeaveOneOutHead(scale=False).fit(F, y)
    C, rows = head.estimators_[0].C_, np.arange(len(y))

    def risk(C):
        """By one step a row, which tells strengths apart."""
        models = [LogisticRegression(C=C, tol=1e-12, max_iter=10_000).fit(F, y == k) for k in range(3)]
        scores = np.stack([newton_steps(one, F, y == k, None) for k, one in enumerate(models)])
        return np.mean(-np.log(heads.one_against_rest(scores.T)[rows, y]))

    assert risk(C) <= min(risk(C / 6.0), risk(C * 6.0))


def test_a_module_of_several_parts_is_one_with_its_head():
    X, y = digits()
    head = LeaveOneOutHead(backbone(), head="ridge").fit(X, y)
    with torch.no_grad():
        np.testing.assert_allclose(head.as_module()(X).numpy(), head.decision_function(X), atol=1e-4)


def test_losses_of_a_head_without_probabilities_are_its_own():
    X, y = digits(2, 60)
    head = LeaveOneOutHead(backbone(), head=onefit.GeneralizedLinearLOO("hinge", alphas=[0.1])).fit(X, y)
    sign = np.where(y == head.classes_[1], 1.0, -1.0)
    np.testing.assert_allclose(head.losses_, np.maximum(0.0, 1.0 - sign * head.predictions_))
    assert set(head.predict(X)) <= {0, 1}
    with pytest.raises(ValueError, match="no probabilities"):
        head.predict_proba(X)


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({}, {"sample_weight": np.ones(3)}, "sample_weight"),
        ({}, {"sample_weight": -np.ones(120)}, "sample_weight"),
        ({"module": len}, {}, "module must be"),
        ({"head": RandomForestClassifier(2)}, {}, "head must be"),
        ({"head": onefit.LogisticLOO(cv=ShuffleSplit(2, random_state=0))}, {}, "each row once"),
    ],
)
def test_a_call_that_cannot_be_meant_says_why(settings, given, message):
    X, y = digits()
    with pytest.raises((TypeError, ValueError), match=message):
        LeaveOneOutHead(**settings).fit(X, y, **given)


def test_new_rows_have_to_be_like_those_it_was_fitted_on():
    X, y = digits()
    with pytest.raises(NotFittedError):
        LeaveOneOutHead().predict_proba(X)
    head = LeaveOneOutHead(head="ridge").fit(X, y)
    with pytest.raises(ValueError, match="3 features a row"):
        head.predict(X[:, :3])
    with pytest.raises(ValueError, match="no rows"):
        head.predict(X[:0])


@pytest.mark.parametrize(
    "model", [PoissonRegressor(alpha=0.01, tol=1e-8), GammaRegressor(alpha=0.01, tol=1e-8)]
)
def test_a_head_with_a_link_predicts_means(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = rng.poisson(np.exp(1 + X[:, 0])) + 1.0
    head = LeaveOneOutHead(None, head=model, scale=False).fit(X, y)
    np.testing.assert_allclose(head.predict(X[:5]), model.fit(X, y).predict(X[:5]), rtol=1e-5)
    np.testing.assert_allclose(head.predict(X), head.predictions_, rtol=0.2)
    np.testing.assert_allclose(np.exp(head.decision_function(X[:5])[:, 0]), head.predict(X[:5]), rtol=1e-9)


@pytest.mark.parametrize("head", ["ridge", "logistic", Ridge(2.0), LogisticRegression()])
def test_targets_of_one_column_are_those_of_none(head):
    """As losses of PyTorch take them, (n, 1)."""
    X, y = digits(2)
    y = y.astype(float) if isinstance(head, Ridge) or head == "ridge" else y
    flat, column = (LeaveOneOutHead(None, head=head).fit(X, own) for own in (y, y[:, None]))
    np.testing.assert_array_equal(flat.losses_, column.losses_)
    assert column.value_ < 0.3


def test_one_label_is_no_classification():
    X, _ = digits()
    with pytest.raises(ValueError, match="a ridge head needs labels of at least 2 classes, got 1"):
        LeaveOneOutHead(None, head="ridge").fit(X, np.zeros(len(X), dtype=int))


def test_whole_numbers_are_taken_for_labels_unless_they_are_many():
    X, _ = digits()
    with pytest.warns(onefit.UnreliableWarning, match=r"a class of its own to a ridge head: .* floats"):
        LeaveOneOutHead(None, head="ridge").fit(X, np.arange(len(X)) // 4)
    with pytest.raises(ValueError, match=r"a class of its own to a ridge head: .* floats; .* as text"):
        LeaveOneOutHead(None, head="ridge").fit(X, np.arange(len(X)))


@pytest.mark.parametrize("module", [None, nn.Flatten()])
def test_a_head_without_weights_below_has_the_default_precision(module):
    X, y = digits()
    head = LeaveOneOutHead(module, head="ridge").fit(X, y.astype(float))
    found = head.as_module()(X[:4])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.detach().numpy()[:, 0], head.predict(X[:4]), atol=1e-5)


def test_rows_that_a_loader_leaves_alone_are_not_fitted():
    X, y = digits()
    loader = DataLoader(TensorDataset(X, torch.tensor(y)), sampler=SubsetRandomSampler(range(80)))
    some = LeaveOneOutHead(None).fit(loader)
    np.testing.assert_allclose(some.losses_, LeaveOneOutHead(None).fit(X[:80], y[:80]).losses_, rtol=1e-6)


@pytest.mark.parametrize("of", ["head", "rows"])
def test_frozen_parts_of_a_backbone_stay_frozen(of):
    module = nn.Sequential(nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    module[1].eval()
    X, y = digits()
    if of == "head":
        LeaveOneOutHead(module, head="ridge").fit(X, y)
    else:
        onefit.RidgeLOO().fit(embedded_rows(module, TensorDataset(X, torch.tensor(y).float())))
    assert [part.training for part in module.modules()] == [True, True, False, True]


def test_a_head_leaves_random_numbers_alone():
    X, y = digits()
    before = torch.random.get_rng_state()
    LeaveOneOutHead(head="ridge").fit(X.numpy(), y)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_only_row_of_a_class_is_told_of(n_classes):
    X = torch.tensor(np.random.default_rng(0).normal(size=(60, 5)))
    y = np.r_[n_classes - 1, np.arange(59) % (n_classes - 1)]
    with pytest.warns(onefit.UnreliableWarning, match="no other of their class"):
        LeaveOneOutHead(None).fit(X, y)


def test_a_grid_that_is_moved_says_nothing_of_its_ends():
    X, y = digits()
    with warnings.catch_warnings():
        warnings.simplefilter("error", onefit.exceptions.ShortPathWarning)
        LeaveOneOutHead(None).fit(X, y)

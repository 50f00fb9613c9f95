"""Learned features: splits, the gradient of the risk in the weights, and the scikit-learn API."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from onefit.exceptions import SolverError, UnreliableWarning  # noqa: E402
from onefit.torch import FeatureMapClassifier, FeatureMapRegressor  # noqa: E402
from onefit.torch.features.splits import balanced_splits  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rings(n, seed, n_rings=2):
    """Rings around the origin, as in section 5.2 of the paper."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_rings)
    radius, angle = rng.normal(1.0 + y, 0.4 if n_rings == 2 else 0.2), rng.uniform(-np.pi, np.pi, n)
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)], y


def network(p=2, d=2):
    return nn.Sequential(nn.Linear(p, 64), nn.ReLU(), nn.Linear(64, d))


@pytest.mark.parametrize(("n", "n_splits", "train_size"), [(60, 256, 0.95), (8, 16, 0.95), (17, 40, 0.5)])
def test_splits_hold_every_row_out_equally_often(n, n_splits, train_size):
    held = balanced_splits(n, n_splits, train_size, np.random.default_rng(0))
    assert np.all(held.sum(axis=1) == max(1, round(n * (1 - train_size))))
    assert np.ptp(held.sum(axis=0)) <= 1


def test_splits_keep_a_row_of_each_class():
    classes = np.array([0, 1, 1, *([2] * 9)])
    held = balanced_splits(12, 50, 0.6, np.random.default_rng(0), classes)
    assert not held[:, 0].any()
    assert all(set(classes[~split]) == {0, 1, 2} for split in held)
    assert held[:, 1].any()


def test_small_classes_leave_fewer_rows_to_hold_out():
    classes = np.array([0, 0, 0, 1, 1, 2])
    held = balanced_splits(6, 12, 0.1, np.random.default_rng(0), classes)
    assert all(set(classes[~split]) == {0, 1, 2} for split in held)
    assert np.all(held.sum(axis=1) == 3)  # one row stays of each class


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("counts", [(2, 1), (4, 4), (7, 1)])
def test_a_handful_of_rows_is_enough(counts, seed):
    y = np.repeat([0, 1], counts)
    X = np.random.default_rng(seed).normal(size=(len(y), 2)) + 3.0 * y[:, None]
    torch.manual_seed(seed)
    model = FeatureMapClassifier(network(), random_state=seed).fit(X, y)
    assert np.all(np.isfinite(model.risk_path_))
    assert np.all(np.isfinite(model.predict_proba(X)))
    assert model.risk_ < model.risk_path_[0]


def test_the_number_of_steps_is_that_of_the_task_unless_given():
    X, y = rings(30, 0)
    settings = {"n_splits": 8, "tol": 0.0, "patience": 200, "random_state": 0}
    assert FeatureMapClassifier(network(), **settings).fit(X, y).n_iter_ == 30
    assert FeatureMapRegressor(network(), **settings).fit(X, y.astype(float)).n_iter_ == 200
    assert FeatureMapClassifier(network(), max_iter=7, **settings).fit(X, y).n_iter_ == 7


def test_the_risk_is_that_of_scikit_learn():
    X, y = rings(30, 0)
    model = FeatureMapClassifier(network(), n_splits=20, max_iter=1, C=2.0, random_state=0).fit(X, y)
    rng = np.random.default_rng(
        int(np.random.RandomState(0).randint(2**31 - 1))
    )  # the draw of random_state=0
    held, features = balanced_splits(30, 20, 0.5, rng, y), model.transform(X)
    risks = []
    for split in held:
        head = LogisticRegression(C=2.0, tol=1e-12, max_iter=1000).fit(features[~split], y[~split])
        risks.append(log_loss(y[split], head.predict_proba(features[split]), labels=[0, 1]))
    assert model.risk_ == pytest.approx(np.mean(risks), abs=1e-6)
    assert model.risk_path_.tolist() == [model.risk_]


def test_the_descent_follows_the_gradient_of_the_risk():
    """One gradient step lowers the risk by the step size times the squared slope, to first order."""
    X, y = rings(30, 0)
    torch.manual_seed(0)
    start, size = network().double(), 1e-4
    model = FeatureMapClassifier(
        start, n_splits=10, max_iter=2, optimizer="sgd", learning_rate=size, random_state=0
    ).fit(X, y)
    moved = [
        (one - other).detach().square().sum()
        for one, other in zip(start.parameters(), model.module_.parameters(), strict=True)
    ]
    slope_squared = float(sum(moved)) / size**2
    assert model.risk_path_[0] - model.risk_path_[1] == pytest.approx(size * slope_squared, rel=1e-2)


def test_it_learns_what_a_linear_classifier_cannot():
    (X, y), (X_new, y_new) = rings(60, 0), rings(2000, 1)
    torch.manual_seed(0)
    model = FeatureMapClassifier(network(), random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.8 > 0.65 > LogisticRegression().fit(X, y).score(X_new, y_new)
    assert model.risk_ < 0.5 * model.risk_path_[0]


@pytest.mark.slow
def test_several_classes():
    (X, y), (X_new, y_new) = rings(90, 0, 3), rings(600, 1, 3)
    torch.manual_seed(0)
    names = np.array(["inner", "middle", "outer"])
    model = FeatureMapClassifier(network(d=4), n_splits=32, random_state=0).fit(X, names[y])
    assert model.score(X_new, names[y_new]) > 0.8
    assert model.coef_.shape == (3, 4)
    np.testing.assert_allclose(model.predict_proba(X_new).sum(axis=1), 1.0)


@pytest.mark.parametrize("columns", [None, 2])
def test_regression(columns):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 1))
    y = X[:, 0] ** 2 + 0.1 * rng.normal(size=60)
    y = y if columns is None else np.c_[y, 10 - y]
    torch.manual_seed(0)
    model = FeatureMapRegressor(network(1, 4), n_splits=16, tol=0.05, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.predict(X).shape == y.shape


def test_a_seed_repeats_everything_and_leaves_other_random_numbers_alone():
    X, y = rings(30, 0)
    settings = {"n_splits": 16, "max_iter": 5, "n_starts": 2, "random_state": 3}
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one = FeatureMapClassifier(network, **settings).fit(X, y)
    assert torch.rand(1) == expected
    torch.manual_seed(2)
    np.testing.assert_array_equal(
        one.transform(X), FeatureMapClassifier(network, **settings).fit(X, y).transform(X)
    )


def test_the_smallest_risk_of_several_starts_is_kept():
    X, y = rings(30, 0)
    torch.manual_seed(0)
    settings = {"n_splits": 16, "max_iter": 10, "random_state": 0}
    one = FeatureMapClassifier(network(), **settings).fit(X, y)
    three = FeatureMapClassifier(network(), n_starts=3, **settings).fit(X, y)
    assert three.risk_ <= one.risk_
    assert three.risk_ == three.risk_path_.min()


def test_clone_pickle_and_parameters():
    X, y = rings(30, 0)
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = FeatureMapClassifier(module, n_splits=16, max_iter=5, random_state=0).fit(X, y)
    for name, value in module.state_dict().items():
        assert torch.equal(before[name], value)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    twin = clone(model)
    assert twin.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(twin.fit(X, y).predict_proba(X), model.predict_proba(X))


class Narrow(nn.Module):
    """A module class with arguments."""

    def __init__(self, inputs, hidden=4):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, hidden), nn.Linear(hidden, 2)

    def forward(self, X):
        return self.last(torch.tanh(self.first(X)))


def test_arguments_of_a_module_class_are_parameters():
    X, y = rings(30, 0)
    settings = {"n_splits": 8, "max_iter": 3, "random_state": 0}
    model = FeatureMapClassifier(Narrow, module__inputs=2, module__hidden=6, **settings)
    assert model.get_params()["module__hidden"] == 6
    assert "module__hidden=6" in repr(model)
    assert model.fit(X, y).module_.first.weight.shape == (6, 2)
    twin = clone(model).fit(X, y)
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    again = pickle.loads(pickle.dumps(model))
    assert again.get_params()["module__inputs"] == 2
    assert twin.set_params(module__hidden=3, C=2.0).fit(X, y).module_.first.weight.shape == (3, 2)
    assert model.module__hidden == 6
    search = GridSearchCV(model, {"module__hidden": [2, 5]}, cv=2).fit(X, y)
    assert search.best_params_["module__hidden"] in (2, 5)


def test_arguments_that_no_class_takes_are_refused():
    X, y = rings(30, 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'hidden'"):
        FeatureMapClassifier(Narrow, hidden=3)
    with pytest.raises(TypeError, match=r"could not be made.*width"):
        FeatureMapClassifier(Narrow, module__inputs=2, module__width=3).fit(X, y)
    with pytest.raises(TypeError, match="give the class, not a module"):
        FeatureMapClassifier(network(), module__hidden=3).fit(X, y)


def test_held_out_rows_choose_the_steps():
    """More rows than 40: as many steps as were best for those held out, whose loss is what the check says."""
    X, y = rings(60, 0)
    model = FeatureMapClassifier(network(), n_splits=8, random_state=0).fit(X, y)
    twin = FeatureMapClassifier(network(), n_splits=8, max_iter=model.n_iter_, random_state=0)
    assert 1 <= model.n_iter_ <= 301
    assert model.check_.learned <= model.check_.initial
    assert twin.fit(X, y).n_iter_ <= model.n_iter_


def test_a_callback_sees_the_risks_and_can_stop():
    X, y = rings(30, 0)
    seen = []

    def callback(step, risk):
        seen.append(risk)
        return step == 3

    model = FeatureMapClassifier(network(), n_splits=16, callback=callback, random_state=0).fit(X, y)
    assert model.n_iter_ == 4
    assert seen == model.risk_path_.tolist()


def test_dead_features_stop_the_training():
    X, y = rings(30, 0)
    module = network()
    nn.init.constant_(module[0].bias, -100.0)
    nn.init.zeros_(module[2].bias)
    model = FeatureMapClassifier(module, n_splits=16, patience=3, random_state=0).fit(X, y)
    assert model.n_iter_ < 200
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=1e-3)


def test_separable_data_stay_finite():
    X = np.r_[np.full((10, 2), -50.0), np.full((10, 2), 50.0)]
    y = np.repeat(["a", "b"], 10)
    model = FeatureMapClassifier(network(), C=1e4, n_splits=16, max_iter=20, random_state=0).fit(X, y)
    assert np.all(np.isfinite(model.risk_path_))
    assert model.score(X, y) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_separable_splits_and_dead_units_give_no_nan(seed):
    """Rings without overlap, half of the hidden units dead, a head without much penalty, for long."""
    rng = np.random.default_rng(seed)
    y, angle = np.arange(24) % 2, rng.uniform(-np.pi, np.pi, 24)
    X = (1.0 + 4.0 * y[:, None]) * np.c_[np.cos(angle), np.sin(angle)]
    torch.manual_seed(seed)
    module = network()
    with torch.no_grad():
        module[0].bias[:32] = -1e3
    model = FeatureMapClassifier(
        module, C=1e6, n_splits=24, max_iter=60, learning_rate=0.1, tol=0.0, random_state=seed
    ).fit(X, y)
    assert np.all(np.isfinite(model.risk_path_))
    assert np.all(np.isfinite(model.predict_proba(100.0 * X)))
    assert model.score(X, y) == 1.0


def test_a_divergent_training_says_so():
    X, y = rings(30, 0)
    model = FeatureMapClassifier(network(), n_splits=4, optimizer="sgd", learning_rate=1e30, random_state=0)
    with pytest.raises(SolverError, match="lower learning_rate"):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"module": nn.ReLU()}, "no parameters to train"),
        ({"module": nn.Linear(3, 2)}, "does not take X"),
        ({"module": nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))}, "must return features"),
        ({"device": "cuda:99"}, "cannot be used here"),
        ({"device": "nowhere"}, "cannot be used here"),
        ({"train_size": 1.0}, "train_size"),
        ({"n_splits": 0}, "n_splits"),
        ({"tol": 1.0}, "tol"),
        ({"optimizer": "newton"}, "optimizer"),
        ({"C": -1.0}, "C must be"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    X, y = rings(20, 0)
    with pytest.raises(ValueError, match=message):
        FeatureMapClassifier(**{"module": network(), **settings}).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"), [([0] * 6, "one class"), ([0, 1, 2, 3, 4, 5], "alone in its class")]
)
def test_wrong_targets_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        FeatureMapClassifier(network()).fit(rings(6, 0)[0], y)


class Small:
    """A network whose features do not depend on how many rows are transformed at a time."""

    def __call__(self, p):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(p, 8), nn.Tanh(), nn.Linear(8, 4)).double()

    def __repr__(self):
        return "small"  # without its address, for the name of the test


SMALL = {"module": Small(), "n_splits": 8, "max_iter": 12, "tol": 0.02, "random_state": 0}


def takes_any_keyword(_estimator):
    """The check gives the name of ``**module_arguments`` itself, which is refused as any unknown name is."""
    return {"check_do_not_raise_errors_in_init_or_set_params": "arguments other than module__* are refused"}


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:the features are worse than simpler ones")  # a few steps learn little
@parametrize_with_checks(
    [FeatureMapClassifier(**{**SMALL, "max_iter": 5}), FeatureMapRegressor(**SMALL)],
    expected_failed_checks=takes_any_keyword,
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.theory
@pytest.mark.slow
def test_few_rows_favour_the_cross_validation_gradient():
    """Figure 2 of the paper at N = 20: above the same network trained end to end, over 25 seeds."""
    ours, theirs = [], []
    for seed in range(25):
        (X, y), (X_new, y_new) = rings(20, seed), rings(1000, 1000 + seed)
        model = FeatureMapClassifier(network, n_splits=32, random_state=seed).fit(X, y)
        ours.append(model.score(X_new, y_new))
        theirs.append(end_to_end(X, y, seed, X_new, y_new))
    gain = np.array(ours) - np.array(theirs)
    assert gain.mean() > 0.1


@pytest.mark.theory
@pytest.mark.slow
def test_the_defaults_predict_probabilities_better_than_the_settings_of_the_paper():
    """Log-loss on new rows at N = 30, over 25 seeds, after as many steps as the paper makes."""
    gain = []
    for seed in range(25):
        (X, y), (X_new, y_new) = rings(30, seed), rings(1000, 1000 + seed)
        paper = {"C": 10.0, "n_splits": 32, "train_size": 0.95, "max_iter": 100}
        losses = [
            log_loss(
                y_new,
                FeatureMapClassifier(network, random_state=seed, **one).fit(X, y).predict_proba(X_new)[:, 1],
            )
            for one in (paper, {})
        ]
        gain.append(losses[0] - losses[1])
    assert np.mean(gain) > 3.0 * np.std(gain, ddof=1) / np.sqrt(25)


def end_to_end(X, y, seed, X_new, y_new):
    """Accuracy of the paper's network: 100 gradient steps of 0.01 on the cross-entropy."""
    torch.manual_seed(seed)
    net = nn.Sequential(network(), nn.Linear(2, 1)).double()
    descent = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(100):
        descent.zero_grad()
        output = net(torch.tensor(X))[:, 0]
        nn.functional.binary_cross_entropy_with_logits(output, torch.tensor(y).double()).backward()
        descent.step()
    with torch.no_grad():
        return float(((net(torch.tensor(X_new))[:, 0] > 0).numpy() == y_new).mean())


# --- what learned features are worth -------------------------------------------------------------------


def test_a_criterion_below_the_noise_is_told():
    X, y = load_diabetes(return_X_y=True)
    X, y = 20 * X[:200], (y[:200] - 150) / 77
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 16))
    with pytest.warns(UnreliableWarning, match="below the noise"):
        model = FeatureMapRegressor(module, n_splits=16, max_iter=120, random_state=0).fit(X, y)
    assert model.risk_ < 0.5 * model.initial_risk_
    assert model.check_.learned > model.check_.linear
    assert model.check_.learned > 10 * model.risk_
    assert len(model.check_.rows) == 40


def test_features_that_are_worth_it_are_not_warned_of():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100)
    radius, angle = rng.normal(1.0 + y, 0.2), rng.uniform(-np.pi, np.pi, 100)
    X = np.c_[radius * np.cos(angle), radius * np.sin(angle)]
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    model = FeatureMapClassifier(module, n_splits=16, random_state=0).fit(X, y)
    assert model.check_.learned < 0.7 * model.check_.linear
    assert model.risk_ < model.initial_risk_
    assert FeatureMapClassifier(module, max_iter=1, random_state=0).fit(X[:30], y[:30]).check_ is None

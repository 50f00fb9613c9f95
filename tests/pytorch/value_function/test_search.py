"""Search by the optimal value: Kriging, both levels against closed forms, checkpoints, refusals."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from joblib import parallel_config
from scipy.optimize import approx_fprime
from sklearn.base import clone

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import onefit  # noqa: E402
from onefit.exceptions import UnreliableWarning  # noqa: E402
from onefit.torch import ValueFunctionSearch  # noqa: E402
from onefit.torch.numerics.optimizers import Adam, Lbfgs  # noqa: E402
from onefit.torch.value_function.kriging import Correlation, Kriging, Likelihood, warped  # noqa: E402
from onefit.torch.value_function.levels import Lagrangian, SearchBox, Solved  # noqa: E402
from onefit.torch.value_function.module_levels import Data, ModuleLevels, Penalised, SumOfSquares  # noqa: E402
from onefit.torch.value_function.rounds import lowest  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Kriging


def wave(x):
    return np.sin(2 * x[:, 0]) + np.exp(-x[:, 1]) * x[:, 0]


def slopes_of_wave(x):
    return np.c_[2 * np.cos(2 * x[:, 0]) + np.exp(-x[:, 1]), -np.exp(-x[:, 1]) * x[:, 0]]


POINTS = np.random.default_rng(0).uniform(-1, 2, (30, 2))


@pytest.fixture(params=["values", "slopes"])
def surrogate(request):
    if request.param == "values":
        return Kriging.fit(POINTS, wave(POINTS))
    return Kriging.fit(POINTS, wave(POINTS), slopes_of_wave(POINTS))


def test_kriging_interpolates(surrogate):
    predicted = [surrogate.value(x) for x in POINTS]
    np.testing.assert_allclose(predicted, wave(POINTS), atol=1e-6)


def test_kriging_predicts_between(surrogate):
    new = np.random.default_rng(1).uniform(-0.5, 1.5, (40, 2))
    predicted = [surrogate.value(x) for x in new]
    allowed = 0.03 if surrogate.correlation.shift is None else 1e-4
    np.testing.assert_allclose(predicted, wave(new), atol=allowed)


def test_the_gradient_is_that_of_the_prediction(surrogate):
    for at in np.random.default_rng(2).uniform(-0.9, 1.9, (5, 2)):
        difference = [
            (surrogate.value(at + step) - surrogate.value(at - step)) / 2e-5 for step in 1e-5 * np.eye(2)
        ]
        np.testing.assert_allclose(surrogate.gradient(at), difference, rtol=1e-5, atol=1e-6)


def test_the_likelihood_has_the_right_gradient():
    likelihood = Likelihood(POINTS, wave(POINTS))
    at = np.array([0.3, -0.5, 1.7, 1.4, -5.0])
    value, slope = likelihood.deviance_and_gradient(at)
    numeric = approx_fprime(at, lambda x: likelihood.deviance_and_gradient(x)[0], 1e-7)
    np.testing.assert_allclose(slope, numeric, rtol=1e-4, atol=1e-4)
    theta, power, nugget = np.exp(at[:2]), at[2:4], np.exp(at[4])
    R = np.array([[np.exp(-np.sum(theta * abs(x - z) ** power)) for x in POINTS] for z in POINTS])
    R += nugget * np.eye(30)
    ones = np.ones(30)
    mean = ones @ np.linalg.solve(R, wave(POINTS)) / (ones @ np.linalg.solve(R, ones))
    rest = wave(POINTS) - mean
    density = 30 * np.log(rest @ np.linalg.solve(R, rest) / 30) + np.linalg.slogdet(R)[1]
    assert value == pytest.approx(density, rel=1e-9)


def test_correlations_of_slopes_are_derivatives_of_those_of_values():
    x, theta = POINTS[:4], np.array([0.7, 1.3])
    R = Correlation(theta, np.full(2, 2.0), None, 0.0).between(x[:, None] - x[None], slopes=True)

    def correlation(a, b):
        return np.exp(-(theta * (a - b) ** 2).sum())

    h = 1e-4
    for k, step in enumerate(h * np.eye(2)):
        one = (correlation(x[0], x[1] + step) - correlation(x[0], x[1] - step)) / (2 * h)
        assert R[0, 0, 1 + k, 1] == pytest.approx(one, rel=1e-5)
        assert R[1 + k, 1, 0, 0] == pytest.approx(one, rel=1e-5)
        for m, other in enumerate(h * np.eye(2)):
            four = [correlation(x[0] + s * step, x[1] + t * other) * s * t for s in (-1, 1) for t in (-1, 1)]
            assert R[1 + k, 0, 1 + m, 1] == pytest.approx(sum(four) / (4 * h * h), rel=1e-4, abs=1e-6)


def test_warped_variables_keep_their_ends():
    for shift in (1e-3, 1.0, 20.0):
        values, slopes = warped(np.array([0.0, 0.3, 1.0]), np.full(3, shift))
        assert values[[0, 2]] == pytest.approx([0.0, 1.0], abs=1e-12)
        numeric = (warped(np.full(1, 0.3 + 1e-7), np.full(1, shift))[0][0] - values[1]) / 1e-7
        assert slopes[1] == pytest.approx(numeric, rel=1e-4)


def test_a_slope_without_bound_is_left_out():
    x = np.linspace(0, 1, 8)[:, None]
    slopes = 0.5 / np.sqrt(np.maximum(x, 1e-300))
    model = Kriging.fit(x, np.sqrt(x[:, 0]), slopes)
    assert model.value(np.array([0.4])) == pytest.approx(np.sqrt(0.4), abs=1e-4)


@pytest.mark.parametrize("slopes", [None, np.zeros((2, 1))])
def test_kriging_refuses_too_few_points(slopes):
    with pytest.raises(ValueError, match="at least 3"):
        Kriging.fit(np.zeros((2, 1)), np.zeros(2), slopes)


# The search


class Ridge:
    """Data, and the closed forms of both levels."""

    def __init__(self, seed=0, n=60, p=12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3 * n, p)) @ (np.eye(p) + 0.5)
        y = X @ rng.normal(size=p) + 8.0 * rng.normal(size=3 * n)
        self.train, self.held, self.test = ((X[k::3], y[k::3, None]) for k in range(3))

    def coef(self, strength):
        X, y = self.train
        return np.linalg.solve(X.T @ X + strength * np.eye(X.shape[1]), X.T @ y)

    def optimal_value(self, strength):
        X, y = self.train
        return ((y - X @ self.coef(strength)) ** 2).sum() + strength * (self.coef(strength) ** 2).sum()

    def validation(self, strength):
        X, y = self.held
        return ((y - X @ self.coef(strength)) ** 2).mean()

    def search(self, **settings):
        torch.manual_seed(0)
        given = {
            "module": nn.Linear(12, 1, bias=False),
            "penalties": {"ridge": "weight"},
            "bounds": {"ridge": (1.0, 3000.0)},
            "validation_loss": nn.MSELoss(),
            "loss": nn.MSELoss(reduction="sum"),
            **settings,
        }
        return ValueFunctionSearch(**given)

    def fitted(self, **settings):
        return self.search(**settings).fit(*self.train, *self.held)


RIDGE = Ridge()


@pytest.fixture(scope="module")
def found():
    return RIDGE.fitted()


def test_the_samples_are_solved_exactly(found):
    strengths = found.strengths_[:, 0]
    np.testing.assert_allclose(strengths[:10], np.geomspace(1.0, 3000.0, 10))
    np.testing.assert_allclose(found.values_, [RIDGE.optimal_value(s) for s in strengths], rtol=1e-9)
    np.testing.assert_allclose(found.validation_losses_, [RIDGE.validation(s) for s in strengths], rtol=1e-5)


def test_the_optimal_value_is_interpolated(found):
    units = np.linspace(0.02, 0.98, 25)
    exact = [RIDGE.optimal_value(3000.0**unit) for unit in units]
    np.testing.assert_allclose([found.surrogate_.value(np.array([u])) for u in units], exact, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_the_strength_is_that_of_a_fine_grid(seed):
    ridge = Ridge(seed)
    grid = np.geomspace(1.0, 3000.0, 400)
    risks = np.array([ridge.validation(s) for s in grid])
    search = ridge.fitted()
    assert ridge.validation(search.lambda_["ridge"]) <= risks.min() + 0.01 * np.ptp(risks)
    assert abs(np.log(search.lambda_["ridge"] / grid[risks.argmin()])) < 0.15


def test_both_modules_are_reported(found):
    strength = found.lambda_["ridge"]
    X, y = RIDGE.test
    np.testing.assert_allclose(found.module_.weight.detach().numpy().T, RIDGE.coef(strength), atol=1e-5)
    test = found.losses(X, y)
    assert test.retrained == pytest.approx(((y - X @ RIDGE.coef(strength)) ** 2).mean(), rel=1e-5)
    assert test.joint != test.retrained
    assert found.validation_loss_.retrained == pytest.approx(RIDGE.validation(strength), rel=1e-5)
    assert found.validation_loss_.joint < found.validation_loss_.retrained  # it has seen these rows
    np.testing.assert_allclose(found.predict(X), X @ RIDGE.coef(strength), atol=1e-4)


def test_the_rounds_follow_the_update_rule(found):
    assert len(found.rounds_) == 4
    for number, (one, after) in enumerate(zip(found.rounds_, found.rounds_[1:], strict=False)):
        assert one.weight == pytest.approx(2.0 * 1.5**number)
        assert after.multiplier == pytest.approx(
            one.multiplier + one.weight * (one.training - one.optimal_value)
        )


def test_the_penalised_loss_is_that_of_the_paper_with_its_gradient(found):
    module = nn.Linear(12, 1, bias=False).double()
    space = SearchBox(("ridge",), (1.0,), (3000.0,), logarithmic=True)
    train, held = (Data(*map(torch.as_tensor, rows)) for rows in (RIDGE.train, RIDGE.held))
    total = nn.MSELoss(reduction="sum")
    both = ModuleLevels(
        module, total, nn.MSELoss(), (SumOfSquares("*"),), space, train, held, Lbfgs(1, 0.0), {}
    )

    def value(unit):
        return Penalised(both, Lagrangian(found.surrogate_, 3.0, 5.0), unit)(None)

    at = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    (X, y), (X_val, y_val), w = RIDGE.train, RIDGE.held, module.weight.detach().numpy().T
    f = ((y - X @ w) ** 2).sum() + 3000.0**0.3 * (w**2).sum()
    excess = f - found.surrogate_.value(np.array([0.3]))
    F = ((y_val - X_val @ w) ** 2).mean()
    assert value(at).item() == pytest.approx(F + 1.5 * excess**2 + 5 * excess, rel=1e-9)
    (slope,) = torch.autograd.grad(value(at), at)
    moved = [value(torch.tensor([0.3 + s], dtype=torch.float64)).item() for s in (-1e-5, 1e-5)]
    assert slope.item() == pytest.approx((moved[1] - moved[0]) / 2e-5, rel=1e-6)


def test_batches_have_the_gradient_of_the_whole_on_average(found):
    module, rows = nn.Linear(12, 1, bias=False).double(), RIDGE.train
    space = SearchBox(("ridge",), (1.0,), (3000.0,), logarithmic=True)
    train, held = (Data(*map(torch.as_tensor, rows)) for rows in (RIDGE.train, RIDGE.held))
    loss, descent = nn.MSELoss(), Lbfgs(1, 0.0)
    both = ModuleLevels(module, loss, loss, (SumOfSquares("*"),), space, train, held, descent, {})
    at = torch.full((1,), 0.3, dtype=torch.float64)
    goal = Penalised(both, Lagrangian(found.surrogate_, 3.0, 5.0), at)
    goal.begin()
    (whole,) = torch.autograd.grad(goal(None), module.weight)
    batches = np.arange(len(rows[0])).reshape(6, -1)
    slopes = [torch.autograd.grad(goal((batch, batch)), module.weight)[0] for batch in batches]
    torch.testing.assert_close(torch.stack(slopes).mean(0), whole)


def test_communities_and_crime(data_folder):
    """Section 4.1 of the paper: λ* on [0, 10] is that of the grid of step 0.1, from 10 + 4 solves."""
    pd = pytest.importorskip("pandas")
    table = pd.read_csv(data_folder / "communities_crime.csv.gz")
    y = table.pop("ViolentCrimesPerPop").to_numpy()
    X = table.iloc[:, 5:].fillna(table.iloc[:, 5:].mean()).to_numpy(dtype=float)
    order = np.random.default_rng(5).permutation(len(y))
    train, held, _ = np.split(order, [int(0.55 * len(y)), int(0.75 * len(y))])
    centre = X[train].mean(axis=0)

    def validation(strength):
        Z = X[train] - centre
        coef = np.linalg.solve(Z.T @ Z + strength * np.eye(Z.shape[1]), Z.T @ (y[train] - y[train].mean()))
        return np.mean((y[held] - y[train].mean() - (X[held] - centre) @ coef) ** 2)

    grid = np.arange(1, 101) / 10
    torch.manual_seed(0)
    search = ValueFunctionSearch(
        nn.Linear(X.shape[1], 1),
        nn.MSELoss(reduction="sum"),
        {"ridge": "weight"},
        {"ridge": (0.0, 10.0)},
        scale="linear",
        validation_loss=nn.MSELoss(),
    ).fit(X[train], y[train, None], X[held], y[held, None])
    assert len(search.rounds_) == 4
    assert search.n_solves_ <= 10 + 4 + 2  # λ of the first rounds is checked, then it hardly moves
    assert abs(search.lambda_["ridge"] - grid[np.argmin([validation(s) for s in grid])]) <= 0.1


def test_two_strengths():
    """Two groups of columns, one of them noise: its penalty comes out larger."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 20))
    y = X[:, :5].sum(axis=1, keepdims=True) + 2.0 * rng.normal(size=(120, 1))

    def first(module):
        return module.weight[:, :5].square().sum()

    def second(module):
        return module.weight[:, 5:].square().sum()

    torch.manual_seed(0)
    search = ValueFunctionSearch(
        nn.Linear(20, 1),
        nn.MSELoss(reduction="sum"),
        {"signal": first, "noise": second},
        {"signal": (0.1, 1e3), "noise": (0.1, 1e3)},
        validation_loss=nn.MSELoss(),
        n_samples=20,
    ).fit(X[:60], y[:60], X[60:], y[60:])
    assert search.strengths_[:20].shape == (20, 2)
    assert search.lambda_["noise"] > 5 * search.lambda_["signal"]
    assert search.validation_loss_.retrained <= 1.02 * search.validation_losses_.min()


def test_a_constraint_that_is_too_loose_is_told():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 40)), rng.normal(size=(60, 1))
    torch.manual_seed(0)
    data = X[:30], y[:30], X[30:], y[30:]
    search = ValueFunctionSearch(
        nn.Linear(40, 1),
        nn.MSELoss(),
        {"ridge": "weight"},
        {"ridge": (1e-6, 10.0)},
        multiplier=1e-3,
        weight=1e-3,
        check_rounds=False,
    )
    with pytest.warns(UnreliableWarning, match="raise multiplier and weight"):
        search.fit(*data)
    assert search.validation_loss_.retrained > 1.05 * search.validation_losses_[:10].min()
    checked = clone(search).set_params(check_rounds=True).fit(*data)
    assert checked.validation_loss_.retrained <= search.validation_losses_[:10].min()
    assert checked.rounds_[-1].retrained > 1.05 * search.validation_losses_[:10].min()  # where it gave up
    assert checked.n_solves_ == len(checked.strengths_) + len(checked.rounds_) + (checked.origin_ != "round")


class Interrupted(Exception):
    """Stands for a power cut."""


@pytest.mark.parametrize("when", [("solve", 4), ("round", 2)])
def test_a_search_goes_on_where_it_was_interrupted(tmp_path, when, found):
    def cut(stage, done, total):  # noqa: ARG001
        if (stage, done) == when:
            raise Interrupted

    with pytest.raises(Interrupted):
        RIDGE.fitted(checkpoint=tmp_path, callback=cut)
    saved = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    stages = [file.name.split("-")[0] for file in saved]
    assert stages.count("solve") >= (4 if when[0] == "solve" else 10)
    again = RIDGE.fitted(checkpoint=tmp_path)
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in saved.items())  # nothing was done twice
    assert again.lambda_ == found.lambda_
    assert torch.equal(again.module_.weight, found.module_.weight)


def test_a_checkpoint_of_another_search_is_refused(tmp_path):
    RIDGE.fitted(checkpoint=tmp_path, n_samples=3, n_rounds=1)
    with pytest.raises(ValueError, match="belongs to a search with other data"):
        RIDGE.fitted(checkpoint=tmp_path, n_samples=4, n_rounds=1)


@pytest.mark.parametrize("content", [b"", b"PK not what was saved"])
def test_a_damaged_checkpoint_is_named(tmp_path, content):
    RIDGE.fitted(checkpoint=tmp_path, n_samples=3, n_rounds=1)
    file = sorted(tmp_path.glob("*.pt"))[0]
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file.name} is damaged: remove this file"):
        RIDGE.fitted(checkpoint=tmp_path, n_samples=3, n_rounds=1)


@pytest.mark.costly
@pytest.mark.parametrize(
    "other",
    [
        {"loss": nn.MSELoss()},
        {"loss": nn.L1Loss(reduction="sum")},
        {"validation_loss": nn.L1Loss()},
        {"penalties": {"ridge": "*"}},
        {"penalties": {"ridge": lambda module: module.weight.abs().sum()}},
    ],
)
def test_a_checkpoint_knows_losses_and_penalties(tmp_path, other):
    few = {"n_samples": 3, "n_rounds": 1, "checkpoint": tmp_path}
    first = RIDGE.fitted(**few)
    assert RIDGE.fitted(**few).lambda_ == first.lambda_
    with pytest.raises(ValueError, match="belongs to a search with other data, settings or weights"):
        RIDGE.fitted(**few, **other)


def test_shapes_that_do_not_go_together_are_refused():
    (X, y), (X_val, y_val) = RIDGE.train, RIDGE.held
    with pytest.raises(
        ValueError, match=r"every output against every target of X and y of shapes \(60, 12\)"
    ):
        RIDGE.search().fit(X, y[:, 0], X_val, y_val[:, 0])
    with pytest.raises(ValueError, match=r"do not take X_val and y_val of shapes \(60, 3\)"):
        RIDGE.search().fit(X, y, X_val[:, :3], y_val)
    with pytest.raises(TypeError, match="must be numbers, got <U1: write classes as 0, 1, 2"):
        RIDGE.search().fit(X, np.full(60, "a"), X_val, y_val)


def test_several_solves_at_a_time():
    with parallel_config(backend="threading"):
        search = RIDGE.fitted(n_jobs=2, n_rounds=1)
    exact = [RIDGE.optimal_value(s) for s in search.strengths_[:, 0]]
    np.testing.assert_allclose(search.values_, exact, rtol=1e-9)


def classes(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(np.int64)


def network_search(**settings):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    given = {
        "penalties": {"first": "0.weight", "last": "3.weight"},
        "bounds": {"first": (1e-5, 1e-1), "last": (1e-5, 1e-1)},
        "n_samples": 5,
        "n_rounds": 2,
        "max_iter": 15,
        "batch_size": 50,
        "learning_rate": 1e-2,
        **settings,
    }
    return ValueFunctionSearch(module, nn.CrossEntropyLoss(), **given)


def test_a_network_on_batches_is_deterministic():
    data = *classes(150, 0), *classes(60, 1)
    torch.manual_seed(7)
    expected = torch.rand(1)
    one, again = network_search(), network_search()
    one.fit(*data)
    torch.manual_seed(7)
    two = again.fit(*data)
    assert torch.rand(1) == expected  # the search leaves other random numbers alone
    assert one.lambda_ == two.lambda_
    assert one.losses(*classes(200, 2)) == two.losses(*classes(200, 2))
    assert all(1e-5 * 0.999 <= strength <= 1e-1 * 1.001 for strength in one.lambda_.values())
    assert one.losses(*classes(500, 3)).retrained < np.log(2)
    assert one.validation_loss_.retrained == one.validation_losses_.min()
    assert next(one.module_.parameters()).dtype == torch.float32


def test_the_lowest_validation_loss_is_found_among_noise():
    """Losses of a parabola with noise, and a plateau of useless penalties that dwarfs it."""
    rng = np.random.default_rng(0)

    def at(unit):
        loss = min(0.35 + (unit - 0.37) ** 2, 2.3) if unit < 0.7 else 2.3
        return Solved(np.array([unit]), 0.0, loss + 1e-3 * rng.normal(), np.zeros(1), {})

    assert lowest([at(unit) for unit in np.linspace(0, 1, 12)])[0] == pytest.approx(0.37, abs=0.06)


def test_clone_pickle_and_parameters(found):
    again = pickle.loads(pickle.dumps(found))
    assert again.lambda_ == found.lambda_
    np.testing.assert_array_equal(again.predict(RIDGE.test[0]), found.predict(RIDGE.test[0]))
    twin = clone(found)
    assert twin.get_params().keys() == found.get_params().keys()
    assert not hasattr(twin, "lambda_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalties": {}}, "at least one"),
        ({"penalties": {"ridge": "bias"}}, "no parameter that is trained is called .bias"),
        ({"penalties": {"ridge": lambda module: module.weight}}, "must return one number"),
        ({"penalties": {"ridge": lambda module: 1.0}}, "must return one number"),  # noqa: ARG005
        (
            {"penalties": {"ridge": lambda module: module.weight.detach().sum()}},
            "any parameter that is trained",
        ),
        ({"validation_loss": nn.MSELoss(reduction="none")}, "validation_loss must return one number"),
        ({"bounds": {"ridge": (10.0, 1.0)}}, "lower < upper"),
        ({"bounds": {"ridge": 1.0}}, "must be two numbers"),
        ({"bounds": {"ridge": (1.0, 2.0, "log")}}, "must be two numbers"),
        ({"penalties": {"ridge": 1.0}}, "penalties.'ridge'. must be a function"),
        ({"loss": "mse"}, "loss must be a function"),
        ({"bounds": {"ridge": (0.0, 1.0)}}, "0 only with scale"),
        ({"bounds": {"other": (1.0, 2.0)}}, "same names"),
        ({"scale": "cubic"}, "scale must be"),
        ({"device": "cuda:99"}, "cannot be used here"),
        ({"dtype": "float32"}, "dtype must be one of torch"),
        ({"n_samples": 2}, "at least 3"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"multiplier": 0.0}, "multiplier must be a positive number"),
        ({"batch_size": 8, "learning_rate": 0}, "learning_rate must be a positive number"),
        ({"batch_size": 1.5}, "batch_size"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        RIDGE.fitted(**settings)


def test_a_module_without_parameters_is_refused():
    search = RIDGE.search().set_params(module=nn.Flatten())
    with pytest.raises(ValueError, match="no parameters to train"):
        search.fit(*RIDGE.train, *RIDGE.held)
    frozen = nn.Linear(12, 1).requires_grad_(requires_grad=False)
    with pytest.raises(ValueError, match="no parameters to train"):
        RIDGE.search().set_params(module=frozen).fit(*RIDGE.train, *RIDGE.held)


def frozen_below():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 1))
    module[0].requires_grad_(requires_grad=False)
    return module


@pytest.mark.parametrize(
    ("penalty", "message"),
    [
        ("0.*", r"no parameter that is trained is called '0.\*'; there are \['2.weight', '2.bias'\]"),
        (lambda module: module[0].weight.square().sum(), "'ridge' does not depend on any parameter that is"),
    ],
)
def test_a_penalty_of_frozen_parameters_alone_is_refused(penalty, message):
    with pytest.raises(ValueError, match=message):
        RIDGE.fitted(module=frozen_below(), penalties={"ridge": penalty})


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")  # few samples, rough features
def test_frozen_parameters_are_in_no_penalty():
    few = {"n_samples": 3, "n_rounds": 1, "module": frozen_below(), "bounds": {"ridge": (0.1, 10.0)}}
    every, trained = (RIDGE.fitted(penalties={"ridge": name}, **few) for name in ("*", "2.*"))
    np.testing.assert_array_equal(every.values_, trained.values_)
    assert every.training_loss_ == trained.training_loss_


def test_read_only_arrays_are_taken_without_a_warning():
    data = [part.copy() for part in (*RIDGE.train, *RIDGE.held)]
    for part in data:
        part.setflags(write=False)
    search = RIDGE.search(n_samples=3, n_rounds=1).fit(*data)
    np.testing.assert_array_equal(search.predict(data[0]), search.predict(RIDGE.train[0]))


@pytest.mark.parametrize("wrong", ["rows", "values"])
def test_wrong_data_are_refused(wrong):
    X, y = RIDGE.train
    given = (X, y[:-1]) if wrong == "rows" else (np.full_like(X, np.nan), y)
    with pytest.raises(ValueError, match="same number of rows" if wrong == "rows" else "NaN"):
        RIDGE.search().fit(*given, *RIDGE.held)


def test_penalties_to_zero_do_not_hold_later_solutions_there():
    """At λ = 1 both layers are zero, a saddle: solutions at weaker penalties are not found from there."""
    data = *classes(100, 0), *classes(60, 1)
    search = network_search(
        penalties={"all": "*weight"}, bounds={"all": (1e-5, 1.0)}, batch_size=None, n_rounds=1, max_iter=100
    ).fit(*data)
    assert np.all(np.diff(search.values_) >= -1e-6)  # φ increases with λ
    assert search.values_[0] < 0.3


def test_a_module_needs_a_loss_and_penalties():
    module = nn.Linear(12, 1)
    for given, message in (((), "loss must be given"), ((nn.MSELoss(),), "penalties must be a dictionary")):
        with pytest.raises(ValueError, match=message):
            ValueFunctionSearch(module, *given, bounds={"ridge": (1.0, 2.0)}).fit(*RIDGE.train, *RIDGE.held)


@pytest.mark.slow
def test_solves_from_the_first_weights_do_not_see_the_others():
    """Such a solve depends on λ and its batches alone; a warm one on what was solved before."""
    data = *classes(150, 0), *classes(60, 1)
    fewer, cold = (network_search(warm_start=False, n_rounds=1).fit(*data) for _ in range(2))
    np.testing.assert_array_equal(fewer.values_, cold.values_)
    warm = network_search(n_rounds=1).fit(*data)
    assert warm.values_[0] == cold.values_[0]
    assert warm.values_[-1] < cold.values_[-1] or np.all(warm.values_[1:5] < cold.values_[1:5])


def normalised(max_iter=2, **settings):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    plan = {"n_samples": 3, "n_rounds": 1, "max_iter": max_iter, **settings}
    return ValueFunctionSearch(module, nn.MSELoss(), {"r": "*weight"}, {"r": (0.01, 1.0)}, **plan)


@pytest.mark.parametrize(
    ("n", "sizes"), [(33, [8, 8, 8, 9]), (34, [8, 8, 8, 8, 2]), (9, [9]), (3, [3]), (1, [1])]
)
def test_a_single_row_that_is_left_goes_with_the_batch_before_it(n, sizes):
    batches = Adam(1, 8, 1e-3, (n, 20))._batches(np.random.default_rng(0))
    assert [len(rows) for rows, _ in batches] == sizes
    assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(n))
    assert Adam(1, 8, 1e-3, (n, 20)).smallest == min(sizes)
    assert Adam(1, 1, 1e-3, (n, 20)).smallest == 1


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
def test_batch_normalisation_is_trained_on_two_rows_or_more():
    X, y = torch.randn(33, 4), torch.randn(33, 1)
    search = normalised(batch_size=8).fit(X, y, X[:9], y[:9])
    assert 0.01 <= search.lambda_["r"] <= 1.0
    for settings, n in (({"batch_size": 1}, 33), ({"batch_size": 8}, 1)):
        with pytest.raises(
            ValueError, match=r"does not train on a batch of 1 row .*: raise batch_size, or give"
        ):
            normalised(**settings).fit(X[:n], y[:n], X, y)


@pytest.mark.filterwarnings("ignore::onefit.UnreliableWarning")
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("training", [True, False])
def test_the_module_that_was_given_stays_as_it_is(batch_size, training):
    search, (X, y) = normalised(batch_size=batch_size), (torch.randn(33, 4), torch.randn(33, 1))
    search.module.train(training)[0].eval()
    before = copy.deepcopy(search.module)
    search.fit(X, y, X[:9], y[:9])
    pairs = zip(search.module.modules(), before.modules(), strict=True)
    assert all(one.training == other.training for one, other in pairs)
    own, old = search.module.state_dict(), before.state_dict()
    assert all(torch.equal(own[name], old[name]) for name in old)


@pytest.mark.parametrize(
    "module", [nn.Linear(4, 1), onefit.GeneralizedLinear("squared", onefit.penalties.L2())]
)
@pytest.mark.parametrize("held", [(), (None, None), (torch.zeros(0, 4), torch.zeros(0))])
def test_a_search_without_validation_rows_is_refused(module, held):
    with pytest.raises(
        ValueError, match=r"X_val has no rows: give validation data, .*: fit\(X, y, X_val, y_val\)"
    ):
        ValueFunctionSearch(module).fit(torch.zeros(9, 4), torch.zeros(9), *held)

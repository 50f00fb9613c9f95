"""Hyperparameters by gradient beside grids, random search, TPE and sparse-ho: seconds to the same risk.

Every contender minimises the mean squared error over the same five folds, without an intercept.  What it
has visited is judged afterwards by one referee, solved to 1e-8, and its time is when it first came within
0.1 % of the best risk that any of them found.  A grid is given the smallest of three sizes that gets there.
Those that do not get there in their budget are listed with all of it: their ratio is a lower bound.

Optuna and sparse-ho (from QB3/sparse-ho) are named and left out where they are not installed.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, Ridge
from sklearn.model_selection import GridSearchCV, KFold

import onefit
from onefit.losses import Logistic, Squared
from onefit.metrics import LogLoss, SquaredError
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.tuning.descent import DescentPlan, descend
from onefit.tuning.judges import LeaveOneOutJudge
from onefit.tuning.objective import RiskObjective
from onefit.tuning.space import Domain, Space
from searches import random, tpe
from timing import Row, paired

CLOSE = 1e-3  # relative distance from the best risk known
FOLDS = KFold(5)
Visit = tuple[float, np.ndarray]  # seconds since the start, hyperparameters


@dataclass(frozen=True)
class Task:
    """A model with hyperparameters to find: what scikit-learn makes of them, and our search.

    ``solve(X, y, theta, tol)`` returns coefficients; ``bounds`` are in the logarithm unless ``linear``.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    bounds: np.ndarray
    solve: Callable[..., np.ndarray]
    ours: Callable[[Callable], onefit.GradientSearchCV]
    read: Callable[[dict], np.ndarray]
    linear: frozenset[int] = frozenset()

    def judged(self, theta: np.ndarray, tol: float = 1e-4) -> float:
        """Mean squared error over the folds."""
        errors = [
            np.mean((self.y[test] - self.X[test] @ self.solve(self.X[train], self.y[train], theta, tol)) ** 2)
            for train, test in FOLDS.split(self.X)
        ]
        return float(np.mean(errors))

    def at(self, share: np.ndarray) -> np.ndarray:
        """Hyperparameters at shares of the way between the bounds."""
        low, high = self.bounds
        theta = low * (high / np.where(low > 0, low, 1.0)) ** share
        for j in self.linear:
            theta[j] = low[j] + share[j] * (high[j] - low[j])
        return theta

    def drawn(self, number: Callable[[str], float]) -> np.ndarray:
        """Hyperparameters from numbers between 0 and 1 that are asked for by name."""
        return self.at(np.array([number(f"t{j}") for j in range(self.bounds.shape[1])]))


# --- the tasks -------------------------------------------------------------------------------------


def sample(n: int, p: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return k coefficients of one among p, noise of standard deviation 2."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, :k].sum(axis=1) + 2.0 * rng.normal(size=n)


def _search(model: object, bounds: dict, callback: Callable) -> onefit.GradientSearchCV:
    risk = onefit.risk.Split(FOLDS)
    return onefit.GradientSearchCV(model, bounds, risk=risk, refit=False, callback=callback)


def _lasso(X: np.ndarray, y: np.ndarray, theta: np.ndarray, tol: float) -> np.ndarray:
    return Lasso(theta[0], fit_intercept=False, tol=tol, max_iter=100_000, precompute=True).fit(X, y).coef_


def _net(X: np.ndarray, y: np.ndarray, theta: np.ndarray, tol: float) -> np.ndarray:
    model = ElasticNet(theta[0], l1_ratio=theta[1], fit_intercept=False, tol=tol, max_iter=100_000)
    return model.set_params(precompute=True).fit(X, y).coef_


def _weighted_lasso(X: np.ndarray, y: np.ndarray, theta: np.ndarray, tol: float) -> np.ndarray:
    return _lasso(X / theta, y, np.ones(1), tol) / theta


def _weighted_ridge(X: np.ndarray, y: np.ndarray, theta: np.ndarray, _: float) -> np.ndarray:
    return Ridge(1.0, fit_intercept=False).fit(X / np.sqrt(theta), y).coef_ / np.sqrt(theta)


def tasks(quick: bool) -> list[Task]:
    """One, two and p hyperparameters."""
    X, y = sample(200, 40, 5) if quick else sample(500, 200, 20)
    p, train = X.shape[1], 0.8 * len(y)
    top = float(np.abs(X.T @ y).max()) / len(y)
    low, high = 1e-3 * top, top
    free = {"fit_intercept": False}
    lasso, net = Lasso(**free), ElasticNet(**free)
    weighted = onefit.GeneralizedLinear(penalty=L1(), **free)
    ridge = onefit.GeneralizedLinear(penalty=L2(), **free)
    each = onefit.PerFeature(low * train, high * train)
    return [
        Task(
            "lasso",
            X,
            y,
            np.array([[low], [high]]),
            _lasso,
            lambda told: _search(lasso, {"alpha": (low, high)}, told),
            lambda params: np.array([params["alpha"]]),
        ),
        Task(
            "elastic net",
            X,
            y,
            np.array([[low, 0.05], [high, 1.0]]),
            _net,
            lambda told: _search(net, {"alpha": (low, high), "l1_ratio": (0.05, 1.0)}, told),
            lambda params: np.array([params["alpha"], params["l1_ratio"]]),
            frozenset({1}),
        ),
        Task(
            f"lasso, {p} weights",
            X,
            y,
            np.tile([[low], [high]], p),
            _weighted_lasso,
            lambda told: _search(weighted, {"penalty__alpha": each}, told),
            lambda params: params["penalty__alpha"] / train,
        ),
        Task(
            f"ridge, {p} weights",
            X,
            y,
            np.tile([[1e-1], [1e5]], p),
            _weighted_ridge,
            lambda told: _search(ridge, {"penalty__alpha": onefit.PerFeature(1e-1, 1e5)}, told),
            lambda params: params["penalty__alpha"],
        ),
    ]


# --- contenders: what they visit, and when ---------------------------------------------------------


def ours(task: Task, _: float) -> list[Visit]:
    """``GradientSearchCV``; what the coarse grid finds counts when the search tells of it."""
    visits: list[Visit] = []
    start = time.process_time()
    search = task.ours(lambda params, _: visits.append((time.process_time() - start, task.read(params))))
    search.fit(task.X, task.y)
    return [*visits, (time.process_time() - start, task.read(search.best_params_))]


def grid(task: Task, _: float, size: int) -> list[Visit]:
    """``GridSearchCV`` with so many points for each of one or two hyperparameters; its end is its time."""
    sides = [task.at(np.full(len(task.bounds.T), share)) for share in np.linspace(0, 1, size)]
    names = ("alpha", "l1_ratio")[: task.bounds.shape[1]]
    model = (Lasso, ElasticNet)[len(names) - 1](fit_intercept=False, precompute=True)
    start = time.process_time()
    points = {name: [side[j] for side in sides] for j, name in enumerate(names)}
    search = GridSearchCV(model, points, cv=FOLDS, scoring="neg_mean_squared_error", refit=False)
    search.fit(task.X, task.y)
    return [(time.process_time() - start, np.array([search.best_params_[name] for name in names]))]


def path(task: Task, _: float, size: int) -> list[Visit]:
    """``LassoCV``: the grid along the path of each fold."""
    alphas = [task.at(np.array([share]))[0] for share in np.linspace(0, 1, size)]
    start = time.process_time()
    model = LassoCV(alphas=alphas, cv=FOLDS, fit_intercept=False).fit(task.X, task.y)
    return [(time.process_time() - start, np.array([model.alpha_]))]


def sparse_ho(task: Task, budget: float, way: str) -> list[Visit]:
    """sparse-ho's implicit forward differentiation with one of its optimizers; compiled beforehand."""
    from celer import Lasso as Celer
    from sparse_ho import ImplicitForward, grad_search, models, optimizers
    from sparse_ho.criterion import CrossVal, HeldOutMSE
    from sparse_ho.utils import Monitor

    vars(np).setdefault("float", float)  # an alias of old that sparse-ho relies on
    free = {"fit_intercept": False, "warm_start": True, "max_iter": 100_000}
    p = task.bounds.shape[1]
    model = {
        1: lambda: models.Lasso(Lasso(**free)),
        2: lambda: models.ElasticNet(ElasticNet(**free)),
    }.get(p, lambda: models.WeightedLasso(Celer(**{**free, "max_iter": 100})))()
    first = 0.1 * task.bounds[1, 0] * (np.ones(p) if p > 1 else 1.0)

    def run(steps: int) -> list[Visit]:
        visits: list[Visit] = []
        start = time.process_time()

        def told(_obj: object, _grad: object, _mask: object, _dense: object, alpha: object) -> None:
            now = time.process_time() - start
            visits.append((now, np.array(alpha, dtype=float).reshape(-1)))
            if now > budget:
                raise TimeoutError

        with suppress(TimeoutError):  # the budget is spent
            grad_search(
                ImplicitForward(),
                CrossVal(HeldOutMSE(None, None), cv=FOLDS),
                model,
                getattr(optimizers, way)(n_outer=steps, tol=1e-8),
                task.X,
                task.y,
                first,
                Monitor(told),
            )
        return visits

    run(2)
    visits = run(200)
    if p == 2:  # theirs are α ρ and α (1 − ρ)
        visits = [(t, np.array([a.sum(), a[0] / a.sum()])) for t, a in visits]
    return visits


def contenders(task: Task) -> dict[str, Callable[[Task, float], list[Visit]]]:
    """Who takes part; a grid with several sizes has several names."""
    one, two = task.bounds.shape[1] == 1, task.bounds.shape[1] == 2
    sizes = (10, 30, 100) if one else (6, 12, 24)
    found: dict[str, Callable] = {}
    if one or two:
        found |= {f"GridSearchCV, {size} a side": partial(grid, size=size) for size in sizes}
    if one:
        found |= {f"LassoCV, {size} alphas": partial(path, size=size) for size in sizes}
    found["random search"] = random
    if importlib.util.find_spec("optuna") is not None:
        found["Optuna TPE"] = tpe
    if importlib.util.find_spec("sparse_ho") is not None and "ridge" not in task.name:
        found |= {
            f"sparse-ho {way}": partial(sparse_ho, way=way) for way in ("LineSearch", "GradientDescent")
        }
    return found


# --- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Race:
    """How a contender did: seconds and the referee's risk of each visit, the end of the run last."""

    visits: list[tuple[float, float]]

    @property
    def spent(self) -> float:
        return self.visits[-1][0]

    @property
    def best(self) -> float:
        return min(risk for _, risk in self.visits)

    def reached(self, goal: float) -> float:
        """Seconds until the risk was no more than this."""
        return next((seconds for seconds, risk in self.visits if risk <= goal), np.inf)


def race(task: Task, run: Callable[[Task, float], list[Visit]], budget: float) -> Race:
    """Let a contender run, then judge what it visited."""
    visits = run(task, budget)
    thinned = visits if len(visits) < 200 else [*visits[:100], *visits[100::5], visits[-1]]
    return Race([(seconds, task.judged(theta, 1e-8)) for seconds, theta in thinned])


def _smallest(races: dict[str, Race], goal: float) -> dict[str, Race]:
    """Of a grid in several sizes the smallest that gets there, or the largest."""
    chosen: dict[str, Race] = {}
    kinds: dict[str, str] = {}
    for name, found in races.items():
        kind = name.partition(",")[0]
        if kind in kinds and chosen[kinds[kind]].reached(goal) < np.inf:
            continue
        chosen.pop(kinds.get(kind, ""), None)
        kinds[kind], chosen[name] = name, found
    return chosen


def to_the_same_risk(quick: bool) -> Iterator[Row]:
    """Seconds to within 0.1 % of the best risk known."""
    budget = 1.0 if quick else 10.0
    for name, place in {"optuna": "PyPI", "sparse_ho": "github.com/QB3/sparse-ho"}.items():
        if importlib.util.find_spec(name) is None:
            print(f"({name} is not installed: left out; from {place})")
    for task in tasks(quick):
        races = {name: race(task, run, budget) for name, run in contenders(task).items()}
        runs = [race(task, ours, budget) for _ in range(4)][1:]
        own = sorted(runs, key=lambda found: found.spent)[1]
        best = min(own.best, *(found.best for found in races.values()))
        goal = best * (1.0 + CLOSE)
        note = "" if own.reached(goal) < np.inf else f"ours ends {own.best / best - 1:.2%} above; "
        for name, found in _smallest(races, goal).items():
            seconds = found.reached(goal)
            missed = f"not there, {found.best / best - 1:.2%} above" if np.isinf(seconds) else ""
            theirs = found.spent if np.isinf(seconds) else seconds
            mine = min(own.reached(goal), own.spent)
            yield Row(f"{task.name} / {name}", mine, theirs, ">= 1", f"{note}{missed}")


def _per_feature(X: np.ndarray, y: np.ndarray, loss: object, bounds: tuple[float, float]) -> RiskObjective:
    """Leave-one-out risk as a function of one strength a feature."""
    n, p = X.shape
    response = SquaredError() if isinstance(loss, Squared) else LogLoss(np.array([0, 1]))
    problem = Problem(loss, L2(np.ones(p)), X, y, np.ones(n))
    space = Space((Domain("alpha", *bounds, "log", np.arange(p)),))
    return RiskObjective(
        space,
        lambda values: replace(problem, penalty=L2(values["alpha"])),
        LeaveOneOutJudge(response, y.astype(int) if response != SquaredError() else y, np.full(n, 1.0 / n)),
    )


def ridge_2017(quick: bool) -> Iterator[Row]:
    """Fifty strengths for 150 rows (the ridge problem of the 2017 paper) beside 800 plain gradient steps."""
    X, y = sample(150, 50, 5)
    steps = 80 if quick else 800
    found = []

    def search() -> None:
        plan = DescentPlan("lbfgs", 500, 1e-6, 0.1, 1, np.random.default_rng(0))
        objective = _per_feature(X, y, Squared(), (1e-3, 1e5))
        found.append((descend(objective, plan), len(objective.visited)))

    def plain(length: float) -> float:
        objective = _per_feature(X, y, Squared(), (1e-3, 1e5))
        low, high = objective.space.bounds
        t = 0.5 * (low + high)
        for _ in range(steps):
            value, gradient = objective.value_and_gradient(t)
            t = np.clip(t - length * gradient, low, high)
        return value

    risks = {length: plain(length) for length in (1.0, 10.0, 100.0)}
    length = min(risks, key=risks.__getitem__)
    seconds = paired(search, lambda: plain(length), 1)
    best, evaluations = found[-1]
    note = (
        f"risk {best.value:.4f} at |projected gradient| {np.abs(best.gradient).max():.0e} in "
        f"{evaluations} evaluations, theirs {risks[length]:.4f} with the best of three lengths"
    )
    yield Row(f"ridge 150 x 50, 50 strengths / {steps} plain gradient steps", *seconds, ">= 1", note)


def price_of_a_gradient(quick: bool) -> Iterator[Row]:
    """A gradient in 500 strengths beside the value alone, each solved anew from a point nearby."""
    n, p = (400, 100) if quick else (2000, 500)
    X, y = sample(n, p, p // 10)
    objective = _per_feature(X, (y > 0).astype(float), Logistic(), (1e-1, 1e4))
    low, high = objective.space.bounds
    t = 0.5 * (low + high)
    rng = np.random.default_rng(0)
    objective.value_and_gradient(t)

    def value() -> None:
        objective.value(t + 0.01 * rng.normal(size=p))

    def both() -> None:
        objective.value_and_gradient(t + 0.01 * rng.normal(size=p))

    mine, theirs = paired(both, value, 3)
    note = f"value and gradient for {mine / theirs:.2f} times the value"
    yield Row(f"logistic {n} x {p}, gradient in {p} strengths / value", mine, theirs, ">= 0.33", note)


def new_rows(quick: bool) -> Iterator[Row]:
    """Error on new rows with one strength a feature beside the best single one: 90 % of 50 are irrelevant."""
    seeds = 3 if quick else 20
    errors = np.empty((seeds, 2))
    for seed in range(seeds):
        X, y = sample(2150, 50, 5, seed)
        train, test = slice(150), slice(150, None)
        for k, bounds in enumerate((onefit.PerFeature(1e-2, 1e5), (1e-2, 1e5))):
            model = onefit.GeneralizedLinear(penalty=L2())
            search = onefit.GradientSearchCV(model, {"penalty__alpha": bounds}).fit(X[train], y[train])
            errors[seed, k] = np.mean((y[test] - search.predict(X[test])) ** 2) - 4.0
    each, one = errors.mean(axis=0)
    won = np.count_nonzero(errors[:, 0] < errors[:, 1])
    note = f"excess error on new rows, not seconds; smaller in {won} of {seeds} samples"
    yield Row("ridge 150 x 50, a strength a feature / the best single one", each, one, ">= 1", note)


def gradient_search(quick: bool) -> Iterator[Row]:
    """All of the above."""
    for part in (ridge_2017, price_of_a_gradient, new_rows, to_the_same_risk):
        yield from part(quick)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    warnings.simplefilter("ignore")
    print(f"{'':<58}{'ours s':>9}{'theirs s':>9}{'ratio':>8}  goal")
    for row in gradient_search(parser.parse_args().quick):
        print(row, flush=True)

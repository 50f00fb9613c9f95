"""Estimators with several hyperparameters: ``GradientSearchCV`` beside TPE and random search.

    python benchmarks/searches.py [--models NAME ...] [--budget SECONDS]

Everyone minimises the same loss over the same five folds.  What a contender has visited is judged afterwards
by one referee, scikit-learn's estimators at a fine tolerance, and its time is when it first came within 0.1 %
of the best loss that any of them found.  Ours with leave-one-out, its default, is on a line of its own: it
minimises another criterion, whose choice the referee judges, too.  Optuna is left out where it is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import hinge_loss, log_loss, mean_squared_error
from sklearn.model_selection import KFold
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import onefit

CLOSE = 1e-3  # relative distance from the best loss that is no longer looked at
FOLDS = KFold(5)
Params = dict[str, Any]
Visits = list[tuple[float, Params]]


@dataclass(frozen=True)
class Task:
    """A model with hyperparameters to find, all but the shares between bounds in the logarithm."""

    model: Any
    X: np.ndarray
    y: np.ndarray
    bounds: dict[str, Any]
    loss: Callable[[Any, np.ndarray, np.ndarray], float]
    referee: Params

    def judged(self, params: Params, **exact: Any) -> float:
        """Mean loss over the folds."""
        losses = []
        for train, test in FOLDS.split(self.X):
            model = clone(self.model).set_params(**params, **exact).fit(self.X[train], self.y[train])
            losses.append(self.loss(model, self.X[test], self.y[test]))
        return float(np.mean(losses))

    def drawn(self, number: Callable[[str], float]) -> Params:
        """Hyperparameters from numbers between 0 and 1 that are asked for by name."""
        params: Params = {}
        for name, bound in self.bounds.items():
            if isinstance(bound, onefit.PerFeature):
                shares = np.array([number(f"{name}{j}") for j in range(self.X.shape[1])])
                params[name] = bound.low * (bound.high / bound.low) ** shares
            elif "linear" in bound:
                params[name] = bound[0] + number(name) * (bound[1] - bound[0])
            else:
                params[name] = bound[0] * (bound[1] / bound[0]) ** number(name)
        return params


# --- the tasks ---------------------------------------------------------------------------------------


def labels(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by a tenth of the columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, (X[:, : p // 10] @ rng.normal(size=p // 10) + rng.logistic(size=n) > 0).astype(int)


def logistic_net() -> Task:
    """Strength and share of an elastic net."""
    model = LogisticRegression(solver="saga", l1_ratio=0.5, max_iter=5000)
    bounds = {"C": (1e-3, 1e2), "l1_ratio": (0.0, 1.0, "linear")}
    loss = lambda fitted, X, y: log_loss(y, fitted.predict_proba(X))  # noqa: E731
    return Task(model, *labels(400, 80), bounds, loss, {"tol": 1e-8, "max_iter": 50_000})


def support_vectors() -> Task:
    """C and the width of a Gaussian kernel, by the hinge loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.normal(size=400) > 1.0).astype(int)
    loss = lambda fitted, X, y: hinge_loss(y, fitted.decision_function(X))  # noqa: E731
    return Task(SVC(), X, y, {"C": (1e-2, 1e3), "gamma": (1e-3, 1e1)}, loss, {"tol": 1e-8})


def relevance() -> Task:
    """The strength and a length scale a feature, of which three of ten count."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=300)
    bounds = {"alpha": (1e-3, 1e1), "kernel__length_scale": onefit.PerFeature(0.5, 1e2)}
    loss = lambda fitted, X, y: mean_squared_error(y, fitted.predict(X))  # noqa: E731
    return Task(KernelRidge(kernel=RBF(np.ones(10))), X, y, bounds, loss, {})


TASKS = {
    "logistic elastic net 400 x 80": logistic_net,
    "SVC(C, gamma) 400 x 5": support_vectors,
    "KernelRidge, 10 length scales 300 x 10": relevance,
}


# --- contenders: what they visit, and when -----------------------------------------------------------


def ours(task: Task, risk: Any) -> Visits:
    """What the search tells of; its start counts when its first gradient is known."""
    visits: Visits = []
    start = time.process_time()
    search = onefit.GradientSearchCV(
        task.model,
        task.bounds,
        risk=risk,
        refit=False,
        callback=lambda params, _: visits.append((time.process_time() - start, dict(params))),
    )
    search.fit(task.X, task.y)
    return [*visits, (time.process_time() - start, search.best_params_)]


def tried(task: Task, budget: float, ask: Callable[[], Params], tell: Callable[[float], None]) -> Visits:
    """Evaluate one draw after the other, and keep those better than all before."""
    visits: Visits = []
    best, start = np.inf, time.process_time()
    while time.process_time() - start < budget:
        params = ask()
        value = task.judged(params)
        tell(value)
        if value < best:
            best = value
            visits.append((time.process_time() - start, params))
    return [*visits, (time.process_time() - start, visits[-1][1])]


def random(task: Task, budget: float) -> Visits:
    """Uniform draws."""
    rng = np.random.default_rng(0)
    return tried(task, budget, lambda: task.drawn(lambda _: float(rng.random())), lambda _: None)


def tpe(task: Task, budget: float) -> Visits:
    """Optuna's tree-structured Parzen estimator."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    trials: list[Any] = []

    def ask() -> Params:
        trials.append(study.ask())
        return task.drawn(lambda name: trials[-1].suggest_float(name, 0.0, 1.0))

    return tried(task, budget, ask, lambda value: study.tell(trials[-1], value))


def report(name: str, task: Task, budget: float) -> None:
    """Run everyone, judge what they visited, and print when they came near the best."""
    visits = {"ours, 5 folds": ours(task, onefit.risk.Split(FOLDS)), "ours, leave-one-out": ours(task, "loo")}
    visits["random search"] = random(task, budget)
    if importlib.util.find_spec("optuna") is not None:
        visits["Optuna TPE"] = tpe(task, budget)
    losses = {
        who: [task.judged(params, **task.referee) for _, params in found] for who, found in visits.items()
    }
    goal = (1.0 + CLOSE) * min(min(found) for found in losses.values())
    print(f"{name}: within 0.1 % of {goal / (1.0 + CLOSE):.5g}")
    for who, found in visits.items():
        near = [seconds for (seconds, _), loss in zip(found, losses[who], strict=True) if loss <= goal]
        when = f"{near[0]:8.2f} s" if near else "   never"
        print(f"    {who:<22}{when}   ends at {losses[who][-1]:.5g} after {found[-1][0]:.1f} s", flush=True)


def main() -> None:
    """Print a block a model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=TASKS, default=list(TASKS), help="models to tune")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of random search and of TPE")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name in asked.models:
            report(name, TASKS[name](), asked.budget)


if __name__ == "__main__":
    main()

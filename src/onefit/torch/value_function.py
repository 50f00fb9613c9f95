"""Penalties of any module tuned through the optimal value of its training problem."""

from __future__ import annotations

import copy
import hashlib
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from onefit._progress import progress_line
from onefit._typing import Array
from onefit.exceptions import SolverError, UnreliableWarning
from onefit.torch.bilevel import (
    Data,
    Loss,
    Penalised,
    Penalty,
    Problem,
    Solved,
    Space,
    State,
    SumOfSquares,
    descend,
    solve,
    state_of,
)
from onefit.torch.descent import Adam, Descent, Lbfgs
from onefit.torch.feature_map import check_counts, device_of, trained_parameters
from onefit.torch.kriging import Kriging, TangentKriging

WORSE = 1.05  # a ratio of validation losses that is not chance

Report: TypeAlias = Callable[[str, int, int], object]


class Round(NamedTuple):
    """A round of the augmented Lagrangian.

    Attributes
    ----------
    strengths : tuple of float
        λ at its end.
    validation, training, optimal_value : float
        F(w), f(λ, w) and φ̂(λ) at its end.
    multiplier, weight : float
        μ and R with which it was run.
    """

    strengths: tuple[float, ...]
    validation: float
    training: float
    optimal_value: float
    multiplier: float
    weight: float


class Losses(NamedTuple):
    """Losses on some data.

    Attributes
    ----------
    joint : float
        Of the weights that were fitted jointly with λ*.
    retrained : float
        Of the weights retrained at λ* on the training data alone.
    """

    joint: float
    retrained: float


@dataclass(frozen=True)
class _Store:
    """A folder with what was solved already, each in a file of its own; none keeps nothing.

    Attributes
    ----------
    folder : Path or None
    key : str
        Of the search that it belongs to.
    """

    folder: Path | None
    key: str

    @classmethod
    def opened(cls, folder: str | Path | None, key: str) -> Self:
        """Open or begin a folder.

        Raises
        ------
        ValueError
            If it belongs to another search.
        """
        if folder is None:
            return cls(None, key)
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        store = cls(path, key)
        if store.load("search", lambda: {"key": key})["key"] != key:
            raise ValueError(
                f"checkpoint {path} belongs to a search with other data, settings or weights: choose another "
                "folder, or remove it"
            )
        return store

    def load(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what was saved under a name, or compute and save it."""
        if self.folder is None:
            return compute()
        file = self.folder / f"{name}.pt"
        if file.exists():
            return cast("dict[str, Any]", torch.load(file, map_location="cpu", weights_only=True))
        result = compute()
        partial = file.with_suffix(".partial")
        torch.save(result, partial)
        partial.replace(file)  # whole or not at all
        return result

    def has(self, name: str) -> bool:
        return self.folder is not None and (self.folder / f"{name}.pt").exists()


class ValueFunctionSearch(BaseEstimator):
    """Search for the strengths of the penalties of a module, without gradients of the training in them.

    φ(λ) = min_w f(λ, w), the optimal value of the training problem, is computed at a few λ and interpolated
    by Kriging.  Then λ and w are found together: minimise the validation loss F(w) subject to
    f(λ, w) = φ̂(λ), by an augmented Lagrangian.  No second derivatives, and the training may have many optima.
    Source: A gradient-based bilevel optimization approach for tuning hyperparameters in machine learning
    (2020), algorithm 1, eqs 2 to 4.

    Parameters
    ----------
    module : torch.nn.Module
        It is copied, not changed.
    loss : callable(output, target) -> scalar tensor
        Training loss.  With batches, a mean over rows.
    penalties : dict of str to callable(module) -> scalar tensor, or to str
        R_k by name; f = loss + Σ λ_k R_k.  A text stands for the sum of squares of the parameters whose names
        match it: "*" for all, "0.*" for those of the first layer, "*weight" without biases.
    bounds : dict of str to (float, float)
        Range of each λ_k.
    scale : {"log", "linear"}, default "log"
        λ = exp(ξ) with ξ in a box, or λ itself.
    validation_loss : callable(output, target) -> scalar tensor, optional
        ``loss`` if not given.  How tightly the constraint holds depends on the scale of f beside that of F: a
        training loss that is a sum over rows holds it tighter than a mean does, and λ* is then closer to the
        best λ for weights that see training data only.
    n_samples : int, optional
        Inner solves: by default 10 for one strength (a grid), 25 for each of several (a Latin hypercube).
    n_rounds : int, default 4
    weight, multiplier, growth : float, defaults 2.0, 2.0, 1.5
        R₀, μ₀ and η: μ grows by R (f − φ̂) and R by the factor η after each round.  The defaults are those of
        the paper.
    slopes : bool, default True
        Interpolate φ with its slopes R_k(w(λ)), which come for free; False is the Kriging of the paper.
    max_iter : int, default 2000
        Iterations of L-BFGS on all rows, or epochs of Adam on batches, in each solve and each round.
    tol : float, default 1e-8
        Largest entry of the gradient at which L-BFGS stops.
    batch_size : int, optional
        Rows in a batch; all at once if not given.  Needed where the module has dropout, which L-BFGS
        evaluates without.  Solves on batches are inexact, and φ̂ and λ* with them.
    learning_rate : float, default 1e-3
        Of Adam; it falls to zero.
    dtype : torch.dtype, optional
        float64 without batches, else that of the module.
    checkpoint : str or Path, optional
        Folder in which each inner solve and each round is saved.  The same search goes on from there.
    n_jobs : int, optional
        Inner solves at a time (joblib).
    callback : callable(stage, done, total), optional
        Stage is "solve", "round" or "retrain".
    device : str or torch.device, default "cpu"
    random_state : int or RandomState, default 0
        Of the design, the batches and dropout.

    Attributes
    ----------
    lambda_ : dict of str to float
        λ*.
    module_ : torch.nn.Module
        Retrained at λ* on the training data.
    joint_module_ : torch.nn.Module
        Fitted jointly with λ*.  It has seen the validation data: its validation loss is not comparable.
    strengths_ : (L, m) array
        Where φ was computed.
    values_, validation_losses_ : (L,) arrays
        φ and F there.
    surrogate_ : Kriging or TangentKriging
        φ̂ on the unit cube.
    rounds_ : tuple of Round
    training_loss_, validation_loss_ : Losses
        f(λ*, w) and F(w) of both modules.

    Examples
    --------
    >>> import torch
    >>> from onefit.torch import ValueFunctionSearch
    >>> _ = torch.manual_seed(0)
    >>> X, coef = torch.randn(60, 5), torch.tensor([[1.0], [0.5], [0.0], [0.0], [0.0]])
    >>> y = X @ coef + torch.randn(60, 1)
    >>> search = ValueFunctionSearch(
    ...     torch.nn.Linear(5, 1),
    ...     torch.nn.MSELoss(reduction="sum"),
    ...     penalties={"ridge": "weight"},
    ...     bounds={"ridge": (1e-2, 1e3)},
    ...     validation_loss=torch.nn.MSELoss(),
    ... )
    >>> search = search.fit(X[:30], y[:30], X[30:], y[30:])
    >>> bool(1.0 < search.lambda_["ridge"] < 100.0)
    True
    >>> bool(search.validation_loss_.retrained <= search.validation_losses_.min() + 1e-3)
    True
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        penalties: Mapping[str, Penalty | str],
        bounds: Mapping[str, tuple[float, float]],
        *,
        scale: Literal["log", "linear"] = "log",
        validation_loss: Loss | None = None,
        n_samples: int | None = None,
        n_rounds: int = 4,
        weight: float = 2.0,
        multiplier: float = 2.0,
        growth: float = 1.5,
        slopes: bool = True,
        max_iter: int = 2000,
        tol: float = 1e-8,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        dtype: torch.dtype | None = None,
        checkpoint: str | Path | None = None,
        n_jobs: int | None = None,
        callback: Report | None = None,
        device: str | torch.device = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.module = module
        self.loss = loss
        self.penalties = penalties
        self.bounds = bounds
        self.scale = scale
        self.validation_loss = validation_loss
        self.n_samples = n_samples
        self.n_rounds = n_rounds
        self.weight = weight
        self.multiplier = multiplier
        self.growth = growth
        self.slopes = slopes
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.callback = callback
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> Self:
        """Search.

        Parameters
        ----------
        X, y : tensors or arrays with n rows
            Training data.
        X_val, y_val : tensors or arrays
            Validation data.
        """
        problem = self._problem(X, y, X_val, y_val)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        store = _Store.opened(self.checkpoint, self._key(problem, seed))
        design = problem.space.design(self.n_samples, seed)
        run = _Run(problem, store, self._descent(problem), seed, self.n_jobs, self._reporter(len(design)))
        solved = run.solutions(design)
        x, values = np.array([one.unit for one in solved]), np.array([one.value for one in solved])
        slopes = np.array([one.slopes for one in solved])
        self.surrogate_ = TangentKriging.fit(x, values, slopes) if self.slopes else Kriging.fit(x, values)
        weights = [self.weight * self.growth**number for number in range(self.n_rounds)]
        rounds = run.rounds(self.surrogate_, solved, weights, self.multiplier)
        self._keep(problem, solved, rounds, run.retrained(rounds[-1]["unit"].numpy(), solved))
        return self

    def _problem(self, X: Any, y: Any, X_val: Any, y_val: Any) -> Problem:
        """Check everything that was given."""
        check_counts(n_rounds=self.n_rounds, max_iter=self.max_iter)
        for name in ("n_samples", "batch_size"):
            if getattr(self, name) is not None:
                check_counts(**{name: getattr(self, name)})
        if self.n_samples is not None and self.n_samples < 3:
            raise ValueError(f"n_samples must be at least 3 to interpolate, got {self.n_samples}")
        trained_parameters(self.module)
        space, device = Space.of(self.penalties, self.bounds, self.scale), device_of(self.device)
        like = trained_parameters(self.module)[0].dtype
        dtype = self.dtype or (torch.float64 if self.batch_size is None else like)
        penalties = tuple(
            SumOfSquares(one) if isinstance(one, str) else one for one in self.penalties.values()
        )
        problem = Problem(
            copy.deepcopy(self.module).to(device, dtype).eval(),
            self.loss,
            self.validation_loss or self.loss,
            penalties,
            space,
            _data("X and y", X, y, device, dtype),
            _data("X_val and y_val", X_val, y_val, device, dtype),
        )
        problem.check()
        return problem

    @property
    def _settings(self) -> list[Any]:
        """What the results depend on, besides module and data."""
        numbers = [self.n_rounds, self.weight, self.multiplier, self.growth, self.slopes, self.max_iter]
        return [*numbers, self.tol, self.batch_size, self.learning_rate, self.n_samples, self.n_jobs]

    def _key(self, problem: Problem, seed: int) -> str:
        digest = hashlib.sha256(repr((problem.space, self._settings, seed)).encode())
        for tensor in (*problem.train, *problem.held, *problem.module.state_dict().values()):
            digest.update(pickle.dumps((str(tensor.dtype), tensor.detach().cpu().numpy())))
        return digest.hexdigest()

    def _descent(self, problem: Problem) -> Descent:
        if self.batch_size is None:
            return Lbfgs(self.max_iter, self.tol)
        sizes = len(problem.train.X), len(problem.held.X)
        return Adam(self.max_iter, self.batch_size, self.learning_rate, sizes)

    def _reporter(self, n_samples: int) -> Report:
        show, total = progress_line(type(self).__name__), n_samples + self.n_rounds + 1
        before = {"solve": 0, "round": n_samples, "retrain": total - 1}

        def report(stage: str, done: int, of: int) -> object:
            show(before[stage] + done, total)
            return self.callback(stage, done, of) if self.callback is not None else None

        return report

    def _keep(
        self, problem: Problem, solved: list[Solved], rounds: list[dict[str, Any]], again: Solved
    ) -> None:
        names = problem.space.names
        self.strengths_ = np.array([problem.listed(one.unit) for one in solved])
        self.values_ = np.array([one.value for one in solved])
        self.validation_losses_ = np.array([one.validation for one in solved])
        self.rounds_ = tuple(
            Round(tuple(problem.listed(one["unit"].numpy())), *(one[name] for name in Round._fields[1:]))
            for one in rounds
        )
        last = self.rounds_[-1]
        self.lambda_ = dict(zip(names, last.strengths, strict=True))
        self.training_loss_ = Losses(last.training, again.value)
        self.validation_loss_ = Losses(last.validation, again.validation)
        self._warn_if_loose()
        self.module_, self.joint_module_ = problem.copy(again.state), problem.copy(rounds[-1]["state"])

    def _warn_if_loose(self) -> None:
        """Warn if weights trained at λ* do worse on the validation data than those of a sample."""
        best = int(self.validation_losses_.argmin())
        if self.validation_loss_.retrained > WORSE * self.validation_losses_[best]:
            warnings.warn(
                "retrained at lambda_, the module has validation loss "
                f"{self.validation_loss_.retrained:.4g}, but {self.validation_losses_[best]:.4g} at "
                f"strengths_[{best}] = {self.strengths_[best].tolist()}: solve more accurately (max_iter, "
                "no batches), or raise multiplier and weight",
                UnreliableWarning,
                stacklevel=3,
            )

    def losses(self, X: Any, y: Any) -> Losses:
        """Validation loss on other data, as of a test, of the jointly fitted and of the retrained weights.

        Parameters
        ----------
        X, y : tensors or arrays
        """
        check_is_fitted(self)
        like = trained_parameters(self.module_)[0]
        data, loss = _data("X and y", X, y, like.device, like.dtype), self.validation_loss or self.loss
        with torch.no_grad():
            joint, again = (loss(one(data.X), data.y).item() for one in (self.joint_module_, self.module_))
        return Losses(joint, again)

    def predict(self, X: Any) -> Array:
        """Output of the retrained module."""
        check_is_fitted(self)
        like = trained_parameters(self.module_)[0]
        with torch.no_grad():
            return self.module_(_tensor(X, like.device, like.dtype)).double().cpu().numpy()


def _tensor(values: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor on a device; whole numbers, such as class labels, stay whole."""
    tensor = values if isinstance(values, Tensor) else torch.tensor(np.asarray(values))
    tensor = tensor.to(device)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _data(names: str, X: Any, y: Any, device: torch.device, dtype: torch.dtype) -> Data:
    data = Data(_tensor(X, device, dtype), _tensor(y, device, dtype))
    if data.X.ndim == 0 or data.y.ndim == 0 or len(data.X) != len(data.y) or len(data.X) == 0:
        raise ValueError(
            f"{names} must have the same number of rows, got {tuple(data.X.shape)} and {tuple(data.y.shape)}"
        )
    for tensor in data:
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{names} hold NaN or infinity")
    return data


@dataclass(frozen=True, eq=False)
class _Run:
    """One search, which saves what it has done."""

    problem: Problem
    store: _Store
    descent: Descent
    seed: int
    n_jobs: int | None
    report: Report

    def solutions(self, design: Array) -> list[Solved]:
        """Solve at each λ, weakest penalties first: weights that were penalised to zero are a poor start."""
        first, solved = state_of(self.problem.module), list[Solved]()
        parallel = Parallel(n_jobs=self.n_jobs)
        at_once = effective_n_jobs(self.n_jobs)
        for begin in range(0, len(design), at_once):
            numbers = range(begin, min(begin + at_once, len(design)))
            missing = [number for number in numbers if not self.store.has(f"solve-{number}")]
            starts = [first, *(one.state for one in solved)]
            jobs = [
                delayed(solve)(self.problem, design[number], starts, self.descent, self.seed + number)
                for number in missing
            ]
            found = dict(zip(missing, parallel(jobs), strict=True))
            for number in numbers:
                solved.append(self._stored(f"solve-{number}", found.get(number)))
                self.report("solve", len(solved), len(design))
        return solved

    def _stored(self, name: str, found: Solved | None) -> Solved:
        """Save a solution that was found, or load the one that was saved."""
        return Solved.loaded(self.store.load(name, lambda: found.saved() if found is not None else {}))

    def rounds(
        self,
        surrogate: Kriging | TangentKriging,
        solved: list[Solved],
        weights: list[float],
        multiplier: float,
    ) -> list[dict[str, Any]]:
        """Minimise over λ and w together, from the solution with the smallest validation loss."""
        best = min(solved, key=lambda one: one.validation)
        last: dict[str, Any] = {"unit": torch.as_tensor(best.unit), "state": best.state}
        done = list[dict[str, Any]]()
        for number, weight in enumerate(weights):
            at = self.problem.at(last["unit"].numpy())
            goal = Penalised(self.problem, surrogate, at, weight, multiplier)
            compute = partial(self._round, goal, last["state"], number)
            last = self.store.load(f"round-{number}", compute)
            multiplier += weight * (last["training"] - last["optimal_value"])
            done.append(last)
            self.report("round", len(done), len(weights))
        return done

    def _round(self, goal: Penalised, state: State, number: int) -> dict[str, Any]:
        """Minimise Z.

        Raises
        ------
        SolverError
        """
        self.problem.module.load_state_dict(state)
        goal.unit.requires_grad_()
        descend(self.problem, goal, self.descent, goal.unit, self.seed - 1 - number)
        unit = goal.unit.detach()
        with torch.no_grad():
            training, validation = self.problem.training(unit).item(), self.problem.validation().item()
        if not np.isfinite(training + validation):
            raise SolverError("the loss is not finite after a round: lower learning_rate")
        at = unit.cpu().double()
        return {
            "unit": at,
            "state": state_of(self.problem.module),
            "validation": validation,
            "training": training,
            "optimal_value": goal.surrogate.value(at.numpy()),
            "multiplier": goal.multiplier,
            "weight": goal.weight,
        }

    def retrained(self, unit: Array, solved: list[Solved]) -> Solved:
        """Train at λ* on the training data alone."""
        starts = [one.state for one in solved]

        def compute() -> dict[str, Any]:
            return solve(self.problem, unit, starts, self.descent, self.seed + len(solved)).saved()

        result = Solved.loaded(self.store.load("retrained", compute))
        self.report("retrain", 1, 1)
        return result

"""What feature maps have in common: training on the cross-validation risk, the head, and the check."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from onefit._progress import progress_line
from onefit._typing import Array, Index
from onefit.torch.features.checking import Check, HeldOutRows, held_rows
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.losses import LossName
from onefit.torch.features.splits import balanced_splits
from onefit.torch.features.training import (
    Callback,
    Judge,
    Optimizer,
    SplitRisk,
    Trained,
    Training,
    features_of,
    like_weights,
)
from onefit.torch.numerics.devices import as_device, on_host
from onefit.torch.numerics.rows import seeded, trained_parameters
from onefit.validation import check_count

MOST = 300  # steps that held-out rows choose from
WAIT = 5  # times the patience, for what held-out rows say is noisy

PREFIX = "module__"  # of arguments of the module class


class HasModuleArguments(BaseEstimator):
    """Estimators with parameters ``module__*``: they are set, read, cloned and searched like the others."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, those of the module class among them."""
        given = {name: value for name, value in vars(self).items() if name.startswith(PREFIX)}
        own: dict[str, Any] = super().get_params(deep)
        return own | given

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the module class among them."""
        self._take_arguments({name: value for name, value in params.items() if name.startswith(PREFIX)})
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(PREFIX)})
        return self

    def _take_arguments(self, given: Mapping[str, Any]) -> None:
        """Keep arguments of the module class.

        Raises
        ------
        TypeError
            For names that are no parameter.
        """
        for name, value in given.items():
            if not name.startswith(PREFIX) or name == PREFIX:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
            setattr(self, name, value)

    def _made(self, module: Any, p: int) -> nn.Module:
        """A module from its class and arguments, or from a function of the number of features.

        Raises
        ------
        TypeError
            If the class does not take the arguments.
        """
        given = {
            name.removeprefix(PREFIX): value for name, value in vars(self).items() if name.startswith(PREFIX)
        }
        is_class = isinstance(module, type)
        try:
            made: nn.Module = module(**given) if is_class else module(p, **given)
        except TypeError as error:
            how = f"{PREFIX}* are its arguments" if is_class else "it is called with the number of features"
            raise TypeError(f"module could not be made ({how}): {error}") from error
        return made


class FeatureMap(TransformerMixin, HasModuleArguments, ABC):
    """Fit of a feature map and its head; the subclasses know about targets and predictions."""

    _several_targets = False
    _steps: int  # where there are too few rows to choose them

    def __init__(
        self,
        module: nn.Module | type[nn.Module] | Callable[..., nn.Module],
        *,
        C: float = 1.0,
        n_splits: int = 64,
        train_size: float = 0.5,
        fit_intercept: bool = True,
        optimizer: Optimizer = "adam",
        learning_rate: float = 0.01,
        max_iter: int | None = None,
        patience: int = 10,
        tol: float = 0.01,
        n_starts: int = 1,
        callback: Callback | None = None,
        device: str | torch.device = "cpu",
        random_state: Any = None,
        **module_arguments: Any,
    ) -> None:
        self.module = module
        self.C = C
        self.n_splits = n_splits
        self.train_size = train_size
        self.fit_intercept = fit_intercept
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.patience = patience
        self.tol = tol
        self.n_starts = n_starts
        self.callback = callback
        self.device = device
        self.random_state = random_state
        self._take_arguments(module_arguments)

    @abstractmethod
    def _targets(self, y: Any) -> Array | Index:
        """Check the targets; class numbers for a classifier."""

    @abstractmethod
    def _loss(self) -> LossName:
        """Name of the loss of the head, once the targets are known."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train the feature map on the cross-validation risk, then the head on all rows.

        Parameters
        ----------
        X : array-like of shape (n, ...)
            What the module takes.
        y : array-like of shape (n,)
        """
        self._check_parameters()
        X, y = validate_data(
            self,
            on_host(X),
            on_host(y),
            dtype=np.float64,
            allow_nd=True,
            multi_output=self._several_targets,
            ensure_min_samples=2,
        )
        targets = self._targets(y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes = targets.astype(np.intp) if self._loss() != "squared" else None
        goal = torch.tensor(targets, device=as_device(self.device))
        risk_of = self._risk(goal, classes, seed)
        trial = self._trial(X, goal, classes, seed)
        steps = self._most() if trial is None or self.max_iter is not None else trial[1].steps + 1
        self._keep(self._best(X, risk_of, seed, steps), X, risk_of)
        self.check_: Check | None = None
        if trial is not None:
            held, trained = trial
            self.check_ = held.checked(trained.module, trained.begun, self.risk_)
        return self

    def _risk(self, y: Tensor, classes: Index | None, seed: int) -> SplitRisk:
        """Draw splits of some rows."""
        held = balanced_splits(len(y), self.n_splits, self.train_size, np.random.default_rng(seed), classes)
        c = None if classes is None else int(classes.max()) + 1
        head = ConvexHead(self._loss(), C=self.C, fit_intercept=self.fit_intercept, n_classes=c)
        return SplitRisk(head, y, torch.as_tensor(held, device=y.device).double())

    def _trial(
        self, X: Array, y: Tensor, classes: Index | None, seed: int
    ) -> tuple[HeldOutRows, Trained] | None:
        """Train without a fifth of the rows, which judge; and choose the steps unless they are given."""
        out = held_rows(len(X), classes, seed)
        if out is None:
            return None
        kept = ~out
        risk_of = self._risk(y[torch.as_tensor(kept)], None if classes is None else classes[kept], seed)
        held = HeldOutRows(risk_of.head, X, y, out)
        chooses = self.max_iter is None
        training = self._training(self._most(), lambda _step, _risk: None)
        if chooses:
            training = replace(training, max_iter=MOST, patience=WAIT * self.patience)
        judge = held.judge if chooses else None
        return held, self._trained(0, X[kept], risk_of, seed, training, judge)

    def _trained(
        self,
        number: int,
        X: Array,
        risk_of: SplitRisk,
        seed: int,
        training: Training,
        judge: Judge | None = None,
    ) -> Trained:
        """Train from a start."""
        with seeded(seed + number, risk_of.y.device):
            module = self._start(number, X.shape[1]).to(risk_of.y.device)
            return training.run(module, like_weights(X, module), risk_of, judge)

    def _training(self, steps: int, report: Callback) -> Training:
        return Training(self.optimizer, self.learning_rate, steps, self.patience, self.tol, report)

    def _check_parameters(self) -> None:
        for name in ("n_splits", "patience", "n_starts"):
            check_count(name, getattr(self, name))
        check_count("max_iter", self._most())
        if not 0 < self.train_size < 1:
            raise ValueError(f"train_size must lie between 0 and 1, got {self.train_size!r}")
        if not 0 <= self.tol < 1:
            raise ValueError(f"tol must be in [0, 1), got {self.tol!r}")

    def _most(self) -> int:
        """Steps at most."""
        return self._steps if self.max_iter is None else self.max_iter

    def _best(self, X: Array, risk_of: SplitRisk, seed: int, steps: int) -> Trained:
        """Train from each start and return what has the smallest risk."""
        show, found = progress_line(type(self).__name__), list[Trained]()
        for number in range(self.n_starts):
            training = self._training(steps, self._reporting(show, number, steps))
            found.append(self._trained(number, X, risk_of, seed, training))
        show(self.n_starts * steps, self.n_starts * steps)
        return min(found, key=lambda trained: min(trained.risks))

    def _reporting(self, show: Callable[[int, int], None], number: int, steps: int) -> Callback:
        def report(step: int, risk: float) -> object:
            show(number * steps + step, self.n_starts * steps)
            return self.callback(step, risk) if self.callback is not None else None

        return report

    def _start(self, number: int, p: int) -> nn.Module:
        """Module to start from: as it was given, then with weights drawn anew."""
        if not isinstance(self.module, nn.Module) and callable(self.module):
            made = self._made(self.module, p)
            trained_parameters(made)
            return made
        if len(self.get_params(deep=False)) > len(self._get_param_names()):
            raise TypeError("module__* are arguments of a module class: give the class, not a module")
        trained_parameters(self.module)
        module = copy.deepcopy(self.module)
        if number > 0:
            for part in module.modules():
                reset = getattr(part, "reset_parameters", None)
                if callable(reset):
                    reset()
        return module

    def _keep(self, trained: Trained, X: Array, risk_of: SplitRisk) -> None:
        self.module_ = trained.module
        self.risk_path_ = np.array(trained.risks)
        self.risk_, self.initial_risk_ = float(self.risk_path_.min()), float(self.risk_path_[0])
        self.n_iter_ = len(trained.risks)
        features = torch.as_tensor(self._features(X), device=risk_of.y.device)
        with torch.no_grad():
            theta = risk_of.head.coefficients(features, risk_of.y, features.new_ones(1, len(X)))[0]
        theta_ = theta.cpu().numpy()
        d = features.shape[1]
        self.coef_, self.intercept_ = (
            theta_[:d].T,
            theta_[d] if self.fit_intercept else np.zeros(theta_.shape[1]),
        )

    def _features(self, X: Array) -> Array:
        self.module_.eval()
        with torch.no_grad():
            return features_of(self.module_, like_weights(X, self.module_)).double().cpu().numpy()

    def transform(self, X: Any) -> Array:
        """Learned features: (n, d)."""
        check_is_fitted(self)
        return self._features(validate_data(self, on_host(X), reset=False, dtype=np.float64, allow_nd=True))

    def _predictors(self, X: Any) -> Array:
        """Linear predictors: (n, c)."""
        return self.transform(X) @ self.coef_.T + self.intercept_

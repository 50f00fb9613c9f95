"""Feature maps that are trained through the cross-validation risk of the convex head on top of them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from onefit._progress import progress_line
from onefit._typing import Array, Index
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.losses import LossName, loss_of
from onefit.torch.features.splits import balanced_splits
from onefit.torch.features.training import (
    Callback,
    Optimizer,
    SplitRisk,
    Trained,
    Training,
    features_of,
    like_weights,
)
from onefit.torch.numerics.rows import as_device, check_counts, trained_parameters


class _FeatureMap(TransformerMixin, BaseEstimator, ABC):
    """Fit of a feature map and its head; the subclasses know about targets and predictions."""

    _several_targets = False
    _steps: int  # at most, unless told otherwise

    def __init__(
        self,
        module: nn.Module | Callable[[int], nn.Module],
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
            X,
            y,
            dtype=np.float64,
            allow_nd=True,
            multi_output=self._several_targets,
            ensure_min_samples=2,
        )
        targets, device = self._targets(y), as_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes = targets.astype(np.intp) if self._loss() != "squared" else None
        held = balanced_splits(len(X), self.n_splits, self.train_size, np.random.default_rng(seed), classes)
        head = ConvexHead(self._loss(), C=self.C, fit_intercept=self.fit_intercept)
        goal = torch.tensor(targets, device=device)
        risk_of = SplitRisk(
            head, loss_of(head.loss, goal), goal, torch.as_tensor(held, device=device).double()
        )
        self._keep(self._best(X, risk_of, seed, device), X, risk_of)
        return self

    def _check_parameters(self) -> None:
        check_counts(
            n_splits=self.n_splits, max_iter=self._most(), patience=self.patience, n_starts=self.n_starts
        )
        if not 0 < self.train_size < 1:
            raise ValueError(f"train_size must lie between 0 and 1, got {self.train_size!r}")
        if not 0 <= self.tol < 1:
            raise ValueError(f"tol must be in [0, 1), got {self.tol!r}")

    def _most(self) -> int:
        """Steps at most."""
        return self._steps if self.max_iter is None else self.max_iter

    def _best(self, X: Array, risk_of: SplitRisk, seed: int, device: torch.device) -> Trained:
        """Train from each start and return what has the smallest risk."""
        show = progress_line(type(self).__name__)
        best: Trained | None = None
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for number in range(self.n_starts):
                torch.manual_seed(seed + number)
                module = self._start(number, X.shape[1]).to(device)
                report = self._reporting(show, number)
                training = Training(
                    self.optimizer, self.learning_rate, self._most(), self.patience, self.tol, report
                )
                trained = training.run(module, like_weights(X, module), risk_of)
                if best is None or min(trained.risks) < min(best.risks):
                    best = trained
        show(self.n_starts * self._most(), self.n_starts * self._most())
        return cast("Trained", best)

    def _reporting(self, show: Callable[[int, int], None], number: int) -> Callback:
        def report(step: int, risk: float) -> object:
            show(number * self._most() + step, self.n_starts * self._most())
            return self.callback(step, risk) if self.callback is not None else None

        return report

    def _start(self, number: int, p: int) -> nn.Module:
        """Module to start from: as it was given, then with weights drawn anew."""
        if not isinstance(self.module, nn.Module) and callable(self.module):
            made = self.module(p)
            trained_parameters(made)
            return made
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
        self.risk_ = float(self.risk_path_.min())
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
        return self._features(validate_data(self, X, reset=False, dtype=np.float64, allow_nd=True))

    def _predictors(self, X: Any) -> Array:
        """Linear predictors: (n, c)."""
        return self.transform(X) @ self.coef_.T + self.intercept_


class FeatureMapClassifier(ClassifierMixin, _FeatureMap):
    """Classifier whose features are learned through the cross-validation risk of a logistic regression.

    The weights of the module are the hyperparameters of the head, ℓ2 logistic regression, which is solved
    exactly on every one of the Monte-Carlo splits; the log-loss of the held-out rows is differentiated
    through these solutions.  Source: Optimizing for generalization in machine learning with cross-validation
    gradients (2019), algorithm 1, eq. 3 and section 5.2.

    Parameters
    ----------
    module : torch.nn.Module, or callable(n_features) -> torch.nn.Module
        Takes (n, p) and returns (n, d).  It is copied, not changed.  Batch normalisation would let held-out
        rows into the features of the others.
    C : float, default 1.0
        The head minimises ½‖β‖² + C Σ log-loss.  The paper has 10, which overfits sooner.
    n_splits : int, default 64
        The paper has 256, with a larger ``train_size``.
    train_size : float, default 0.5
        Share of the rows that each split trains on.  Every row is held out equally often, within one; a class
        is never without a training row.  Features on which half of the rows are enough generalise at least
        as well as with the 0.95 of the paper, and each row is held out more often.
    fit_intercept : bool, default True
        Intercept of the head, which is not penalised.
    optimizer : {"adam", "sgd"} or callable(parameters) -> torch.optim.Optimizer, default "adam"
    learning_rate : float, default 0.01
    max_iter : int, optional
        Steps at most; 30 if not given.  It is the main protection against overfitting: a module with more
        weights than there are rows can drive the risk to zero, long after it has learned what there is to
        learn.  What is best depends on the data (between 10 and 60 on rings, moons, circles and real data of
        20 to 60 rows), and on ``learning_rate``, with which it should be scaled.
    patience : int, default 10
        Steps in which the risk has to fall by ``tol``, or the training stops.
    tol : float, default 0.01
        A share of the risk.
    n_starts : int, default 1
        The first start has the weights of the module as they are, the others draw them anew; the smallest
        risk is kept.
    callback : callable(step, risk), optional
        Called before each step; stops the training if it returns True.
    device : str or torch.device, default "cpu"
    random_state : int, RandomState or None

    Attributes
    ----------
    module_ : torch.nn.Module
    coef_ : (1, d) or (c, d) array
        Head on the learned features, fitted to all rows.
    intercept_ : (1,) or (c,) array
    classes_ : (c,) array
    risk_path_ : (n_iter_,) array
        Cross-validation risk, mean log-loss, before each step.
    risk_ : float
        The smallest of them, that of ``module_``.  The features were fitted to it: it is no estimate of the
        risk on new rows.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from torch import nn
    >>> from onefit.torch import FeatureMapClassifier
    >>> _ = torch.manual_seed(0)
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 60)
    >>> radius, angle = rng.normal(1.0 + y, 0.2), rng.uniform(-np.pi, np.pi, 60)
    >>> X = np.c_[radius * np.cos(angle), radius * np.sin(angle)]  # two rings
    >>> module = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))
    >>> model = FeatureMapClassifier(module, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.transform(X).shape
    (60, 2)
    """

    _steps = 30

    def _targets(self, y: Any) -> Array | Index:
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"FeatureMapClassifier needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {self.classes_.tolist()[0]!r}"
            )
        return numbers

    def _loss(self) -> LossName:
        return "logistic" if len(self.classes_) == 2 else "multinomial"

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,) for two classes, else (n, c)."""
        eta = self._predictors(X)
        return eta[:, 0] if len(self.classes_) == 2 else eta

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: (n, c)."""
        eta = self.decision_function(X)
        both = np.c_[np.zeros(len(eta)), eta] if eta.ndim == 1 else eta
        powers = np.exp(both - both.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """Most probable class of each row: (n,)."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]


class FeatureMapRegressor(RegressorMixin, _FeatureMap):
    """Regressor whose features are learned through the cross-validation risk of a ridge regression.

    As ``FeatureMapClassifier``, with a head that minimises ½‖β‖² + C Σ ½(y − η)² and the squared error of
    the held-out rows.  Source: Optimizing for generalization in machine learning with cross-validation
    gradients (2019), algorithm 1 and eq. 3.

    Parameters
    ----------
    module : torch.nn.Module, or callable(n_features) -> torch.nn.Module
        Takes (n, p) and returns (n, d).  It is copied, not changed.
    C : float, default 1.0
        1 / C is the alpha of ``sklearn.linear_model.Ridge``.
    n_splits, train_size, fit_intercept, optimizer, learning_rate
        As in ``FeatureMapClassifier``.
    max_iter : int, optional
        Steps at most; 200 if not given: squared error punishes overfitting less than log-loss does.
    patience, tol, n_starts, callback, device, random_state
        As in ``FeatureMapClassifier``.

    Attributes
    ----------
    module_ : torch.nn.Module
    coef_ : (c, d) array
        c is 1, or the number of columns of y.
    intercept_ : (c,) array
    risk_path_ : (n_iter_,) array
        Cross-validation risk, mean squared error, before each step.
    risk_ : float
        The smallest of them; no estimate of the risk on new rows.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from torch import nn
    >>> from onefit.torch import FeatureMapRegressor
    >>> _ = torch.manual_seed(0)
    >>> x = np.linspace(-3, 3, 50)[:, None]
    >>> module = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 4))
    >>> model = FeatureMapRegressor(module, n_splits=50, random_state=0).fit(x, np.sin(x[:, 0]))
    >>> bool(model.risk_ < 0.1 * model.risk_path_[0])
    True
    """

    _several_targets = True
    _steps = 200

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: Any) -> Array | Index:
        targets = np.asarray(y, dtype=np.float64)
        self._one_column = targets.ndim == 1
        return targets

    def _loss(self) -> LossName:
        return "squared"

    def predict(self, X: Any) -> Array:
        """Predictions: (n,), or (n, c) if y had c columns."""
        eta = self._predictors(X)
        return eta[:, 0] if self._one_column else eta

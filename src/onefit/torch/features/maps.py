"""Feature maps that are trained through the cross-validation risk of the convex head on top of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from onefit._typing import Array, Index
from onefit.torch.features.feature_map import FeatureMap
from onefit.torch.features.heads import of_one_head
from onefit.torch.features.losses import LossName


class FeatureMapClassifier(ClassifierMixin, FeatureMap):
    """Classifier whose features are learned through the cross-validation risk of a logistic regression.

    The weights of the module are the hyperparameters of the head, ℓ2 logistic regression, which is solved
    exactly on every one of the Monte-Carlo splits; the log-loss of the held-out rows is differentiated
    through these solutions.  Source: Optimizing for generalization in machine learning with
    cross-validation gradients (2019), algorithm 1, eq. 3 and section 5.2.  It is for few rows: with some
    hundreds the same network trained end to end with tuned weight decay does as well or better, and sooner.

    Parameters
    ----------
    module : torch.nn.Module, class of modules, or callable(n_features) -> torch.nn.Module
        Takes (n, p) and returns (n, d).  A module is copied, not changed; a class is called with the
        arguments ``module__*``.  Batch normalisation would let held-out rows into the features of the others.
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
        Steps at most.  If not given, a training without a fifth of the rows tells after how many steps the
        features are best for these, and all rows are trained for as many; with fewer than 40 rows there are
        30.  It is the main protection against overfitting: a module with more weights than there are rows
        can drive the risk to zero, long after it has learned what there is to learn.
    patience : int, default 10
        Steps in which the risk, or the loss of the held-out rows where these choose, has to fall by ``tol``,
        or the training stops.
    tol : float, default 0.01
        A share of it.
    n_starts : int, default 1
        The first start has the weights of the module as they are, the others draw them anew; the smallest
        risk is kept.
    callback : callable(step, risk), optional
        Called before each step; stops the training if it returns True.
    device : str or torch.device, default "cpu"
    random_state : int, RandomState or None
    **module_arguments
        ``module__hidden=32`` and the like: arguments of a module class, as skorch has them.  They are cloned,
        set and searched like other parameters.

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
    initial_risk_ : float
        The first of them: that of the features as they were.
    check_ : Check or None
        Mean losses on a fifth of the rows by features that were trained without them (``learned``; where the
        steps were chosen by these rows it is the least of as many), by those that the training began with
        (``initial``) and by logistic regression (``linear``): an estimate for new rows, if a rough one.  A
        warning tells where the learned features are clearly worse, or ``risk_`` is far below.  None for fewer
        than 40 rows.
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
        return of_one_head(self._predictors(X))

    def predict(self, X: Any) -> Any:
        """Most probable class of each row: (n,)."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]


class FeatureMapRegressor(RegressorMixin, FeatureMap):
    """Regressor whose features are learned through the cross-validation risk of a ridge regression.

    As ``FeatureMapClassifier``, with a head that minimises ½‖β‖² + C Σ ½(y − η)² and the squared error of
    the held-out rows.  Source: Optimizing for generalization in machine learning with cross-validation
    gradients (2019), algorithm 1 and eq. 3.

    Parameters
    ----------
    module, **module_arguments
        As in ``FeatureMapClassifier``.
    C : float, default 1.0
        1 / C is the alpha of ``sklearn.linear_model.Ridge``.
    n_splits, train_size, fit_intercept, optimizer, learning_rate
        As in ``FeatureMapClassifier``.
    max_iter : int, optional
        As in ``FeatureMapClassifier``, but for 200 steps with fewer than 40 rows.
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
    initial_risk_, check_
        As in ``FeatureMapClassifier``, with ridge for a linear model.
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

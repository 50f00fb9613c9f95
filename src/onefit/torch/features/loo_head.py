"""A linear head on frozen features, tuned and judged by leave-one-out: where that is exact for networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from onefit._typing import Array, Index
from onefit.torch.features.embedding import Features, FlatParts, embedded, read_features
from onefit.torch.features.heads import JudgedHead, head_of, logistic_head, ridge_head
from onefit.torch.numerics.devices import as_device, on_host
from onefit.validation import check_count, check_weights


@dataclass(eq=False, repr=False)
class LeaveOneOutHead(BaseEstimator):
    """A linear head on the features of a frozen module: tuned by leave-one-out, which says how good it is.

    The features are computed once, in batches, and scaled; what is fitted on them is a convex problem, whose
    leave-one-out risk onefit has exactly.  The result is an ``nn.Linear`` on top of the module.

    Parameters
    ----------
    module : nn.Module, optional
        The frozen backbone: what it returns for a batch, (b, d), or a tuple or dict of such, which are put
        side by side.  None: X holds the features.
    head : {"logistic", "ridge"} or scikit-learn estimator, default "logistic"
        ``LogisticLOO``; of several classes with many features one against the rest, fitted together at the
        strength that is best for all by one Newton step a row (with ``n_strengths`` or ``exact`` each has its
        own); ``RidgeLOO``, of labels a regression of 0 and 1 for each class.  An estimator is cloned and has
        to have ``coef_``, ``intercept_`` and a ``loo_`` (``RiskEstimate`` of all rows, each once), or be one
        that ``onefit.loo`` reads; with
        ``onefit.GradientSearchCV`` the parts of a tuple have strengths of their own by
        ``onefit.PerGroup(layers, …)``.
    n_strengths : int, optional
        On the path of each logistic head, over six decades.  None: three around the strength that suits least
        squares, moved until the best is in the middle.  A ridge head has 100 from one decomposition.
    exact : bool, default False
        Whether every left-out value of the head that was chosen is made that of a refit, to solver accuracy
        (of classes that are fitted together they are those of a step or two, with bounds in ``loo_``);
        those of a ridge head are anyway.
    scale : bool, default True
        Whether features are centred and divided by their standard deviation first, that of all rows.
    batch_size : int, default 256
    device : str or torch.device, default "cpu"
        Where the module runs.  Heads are fitted on the host, in float64.
    autocast : torch.dtype, optional
        Mixed precision of the features, such as ``torch.bfloat16``.

    Attributes
    ----------
    linear_ : nn.Linear
        The head on the features as the module returns them, in float64: the scaling is folded into it.
    estimators_ : tuple
        One, or one a class: estimators, or for classes that are fitted together what they came to (``C_``,
        ``coef_``, ``intercept_``, ``loo_``).
    classes_ : (c,) array
        Of a classifier.
    layers_ : (d,) int array
        Which part of a tuple or dict each feature comes from.
    losses_ : (n,) array
        Left-out loss of each row: −log of the probability of its own label, or the squared error; of a
        classifier without probabilities its own loss, the hinge for instance.
    predictions_ : (n, c), (n, t) or (n,) array
        Left-out probabilities, scores of a ridge head or of a classifier without probabilities, or
        predictions.
    value_, std_error_ : float
        Mean of ``losses_`` and its standard error.
    n_features_in_ : int

    Notes
    -----
    The features are held fixed: a backbone that was trained on the same rows and labels knows them, and then
    the risk is too small.  Take features of a backbone that was trained on other data.  One head against the
    rest makes each left-out linear predictor that of a refit; probabilities are the heads' own, scaled to sum
    to 1.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from onefit.torch import LeaveOneOutHead
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> _ = torch.manual_seed(0)
    >>> backbone = torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.ReLU())
    >>> head = LeaveOneOutHead(backbone, head="ridge").fit(torch.tensor(X).float() / 16, y)
    >>> head.linear_
    Linear(in_features=20, out_features=3, bias=True)
    >>> bool((head.predictions_.argmax(1) == y).mean() > 0.95)
    True
    >>> head.suspects()[:5].shape
    (5,)
    """

    module: nn.Module | None = None
    _: KW_ONLY
    head: Any = "logistic"
    n_strengths: int | None = None
    exact: bool = False
    scale: bool = True
    batch_size: int = 256
    device: str | torch.device = "cpu"
    autocast: torch.dtype | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Compute the features, tune and judge the head.

        Parameters
        ----------
        X : array, tensor, Dataset or DataLoader
            What the module takes; a data set or loader brings its targets with it.  Of a loader the rows that
            it draws are taken, in the order of its data set.  Features are held in memory: of more rows fit
            ``RidgeLOO`` or ``LogisticLOO`` on ``onefit.torch.embedded_rows``.
        y : (n,) or (n, t) array
            Labels, or real numbers.
        sample_weight : (n,) array, optional
        """
        check_count("batch_size", self.batch_size)
        if self.n_strengths is not None:
            check_count("n_strengths", self.n_strengths)
        if not (self.module is None or isinstance(self.module, nn.Module)):
            raise TypeError(f"module must be a torch.nn.Module or None, got {self.module!r}")
        fitted = self._head()
        data = read_features(self.module, X, y, self._embedding())
        if sample_weight is not None:
            sample_weight = check_weights(on_host(sample_weight), data.X)
        middle, spread = self._scaling(data.X)
        judged = fitted((data.X - middle) / spread, data.y, sample_weight)
        self._keep(judged, data, middle, spread)
        return self

    def _embedding(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "device": as_device(self.device),
            "autocast": self.autocast,
        }

    def _head(self) -> Callable[[Array, Any, Any], JudgedHead]:
        """What is fitted to features, targets and weights."""
        if isinstance(self.head, str) and self.head == "ridge":
            return ridge_head
        if isinstance(self.head, str) and self.head == "logistic":
            return partial(logistic_head, n_strengths=self.n_strengths, exact=self.exact)
        if not (hasattr(self.head, "fit") and hasattr(self.head, "get_params")):
            kind = ValueError if isinstance(self.head, str) else TypeError
            raise kind(f"head must be one of logistic, ridge or an estimator, got {self.head!r}")
        return partial(head_of, clone(self.head), exact=self.exact)

    def _scaling(self, X: Array) -> tuple[Array, Array]:
        if not self.scale:
            return np.zeros(X.shape[1]), np.ones(X.shape[1])
        spread = X.std(axis=0)
        return X.mean(axis=0), np.where(spread > 1e-12 * np.abs(X).max(axis=0), spread, 1.0)

    def _keep(self, judged: JudgedHead, data: Features, middle: Array, spread: Array) -> None:
        weight = judged.coef / spread
        bias = judged.intercept - weight @ middle
        # on "meta" no first weights are drawn from random numbers that are the user's
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta", dtype=torch.float64)
        linear = linear.to_empty(device="cpu")
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(weight))
            linear.bias.copy_(torch.as_tensor(bias))
        self.linear_, self.estimators_, self.layers_ = linear, judged.estimators, data.layers
        self.losses_, self.predictions_ = judged.losses, judged.predictions
        self.value_, self.std_error_ = judged.value, judged.std_error
        self.n_features_in_, self._judged = data.X.shape[1], judged
        self._scaled = middle, spread
        if judged.classes is not None:
            self.classes_ = judged.classes

    # --- what it says ----------------------------------------------------------------------------------

    def suspects(self) -> Index:
        """Row numbers by their left-out loss, the largest first: wrong labels come early."""
        check_is_fitted(self)
        return np.argsort(-self.losses_, kind="stable")

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (m, c)."""
        return self._scores(self._features(X))

    def _scores(self, features: Array) -> Array:
        with torch.no_grad():
            scores: Array = self.linear_(torch.as_tensor(features)).numpy()
        return scores

    def _features(self, X: Any) -> Array:
        check_is_fitted(self)
        features = embedded(self.module, X, **self._embedding()).X
        if features.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{features.shape[1]} features a row, and the head was fitted on {self.n_features_in_}"
            )
        return features

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: (m, c)."""
        scores = self.decision_function(X)
        return self._judged.probabilities(scores)

    def predict(self, X: Any) -> Any:
        """Classes, or predictions: (m,) or (m, t)."""
        features = self._features(X)
        if self._judged.estimator_answers:
            middle, spread = self._scaled
            return self.estimators_[0].predict((features - middle) / spread)
        return self._judged.answers(self._scores(features))

    def interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Jackknife+ intervals of a regression (Barber, Candès, Ramdas and Tibshirani 2021): (m, 2)."""
        features = self._features(X)
        middle, spread = self._scaled
        found: Array = self.estimators_[0].loo_.interval((features - middle) / spread, coverage)
        return found

    def as_module(self) -> nn.Module:
        """The head on its backbone, in the precision of the backbone: linear predictors.

        Without a backbone, or with one that has no parameters, in the default precision of PyTorch.
        """
        check_is_fitted(self)
        like: Tensor | None = None if self.module is None else next(self.module.parameters(), None)
        linear = copy.deepcopy(self.linear_).to(torch.get_default_dtype() if like is None else like)
        return linear if self.module is None else nn.Sequential(self.module, FlatParts(), linear)

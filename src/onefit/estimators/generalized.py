"""Linear models with any loss and any penalty, fitted and tuned by leave-one-out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.estimators.self_tuned import (
    SelfTuned,
    automatic_or_given,
    curvature_of_columns,
    decades,
    ends_of_kinked,
)
from onefit.fit import Fit
from onefit.losses import (
    LOSSES,
    CoupledLoss,
    Logistic,
    Loss,
    Multinomial,
    Quantile,
    Tweedie,
)
from onefit.metrics import Deviance, HingeLoss, LinearMetric, LogLoss, PinballLoss, SquaredError
from onefit.penalties import L2, PENALTIES, AnalysisPenalty, Penalty, SeparablePenalty
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.solvers.null_model import null_strength
from onefit.solvers.solve import solve
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import search_path, settle
from onefit.tuning.selection import Selection
from onefit.validation import check_magnitude, check_range, check_rows, check_weights, class_numbers

WITH_PROBABILITIES = (Logistic, Multinomial)

Data: TypeAlias = tuple[Design, Array, Array]


def _has_classes(model: _LinearModel) -> bool:
    loss = model._find_loss(2)
    return loss.of_two_classes or isinstance(loss, Multinomial)


def _has_probabilities(model: _LinearModel) -> bool:
    return isinstance(model._find_loss(2), WITH_PROBABILITIES)


class _LinearModel(BaseEstimator):
    """Data in, predictions out, for every loss."""

    loss: str | Loss
    penalty: str | Penalty | None
    fit_intercept: bool

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        try:
            loss, has_classes = self._find_loss(2), _has_classes(self)
        except (TypeError, ValueError):  # what is wrong with the loss is for fit to say
            return tags
        if has_classes:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=isinstance(loss, Multinomial))
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            tags.target_tags.positive_only = isinstance(loss, Tweedie) and loss.power >= 1
        return tags

    def _find_loss(self, n_classes: int) -> Loss:
        if isinstance(self.loss, Loss):
            return self.loss
        if self.loss not in tuple(LOSSES):
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or a Loss, got {self.loss!r}")
        return LOSSES[self.loss](n_classes)

    def _find_penalty(self) -> Penalty:
        if self.penalty is None:
            return L2(1.0)
        if isinstance(self.penalty, str):
            return _named_penalty(self.penalty)
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty must be one of onefit.penalties, or a sum of two, got {self.penalty!r}")
        return self.penalty

    def _check_X(self, X: Any) -> Design:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse=("csr", "csc"), dtype=np.float64)

    def _check(self, X: Any, y: Any, sample_weight: Any) -> tuple[Data, Any]:
        """Return checked data with the response in the terms of the loss, and as it was given."""
        has_classes = _has_classes(self)
        X, given = validate_data(
            self,
            X,
            y,
            accept_sparse=("csr", "csc"),
            dtype=np.float64,
            ensure_min_samples=2,
            y_numeric=not has_classes,
        )
        check_magnitude(X)
        weights = check_weights(sample_weight, X)
        if has_classes:
            target = self._class_numbers(given, weights)
        else:
            target, loss = np.asarray(given, dtype=np.float64), self._find_loss(0)
            if isinstance(loss, Tweedie):
                check_range(target, loss.power)
        return (X, target, weights), given

    def _class_numbers(self, labels: Any, weights: Array) -> Array:
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        held, name = len(np.unique(numbers[weights > 0])), type(self).__name__
        if held < 2:
            only = np.asarray(labels)[weights > 0].tolist()[0]
            raise ValueError(
                f"{name} needs samples of at least 2 classes in the data, but the data contains only one "
                f"class: {only!r}"
            )
        if len(self.classes_) > 2 and self._find_loss(2).of_two_classes:
            shown = ", ".join(map(repr, self.classes_.tolist()[:6]))
            raise ValueError(
                f"Only binary classification is supported by loss={self.loss!r}, but y has "
                f"{len(self.classes_)} classes ({shown}): take loss='multinomial', or "
                "sklearn.multiclass.OneVsRestClassifier"
            )
        return numbers.astype(np.float64)

    def _problem(self, data: Data, penalty: Penalty) -> Problem:
        X, target, weights = data
        loss = self._find_loss(len(getattr(self, "classes_", ())))
        outputs = (len(self.classes_),) if isinstance(loss, CoupledLoss) else ()
        if outputs and not isinstance(penalty, SeparablePenalty):
            raise ValueError(
                f"{type(penalty).__name__} is for models with one output, not for a {self.loss!r} loss of "
                f"{outputs[0]} classes: take L1, L2 or ElasticNet"
            )
        penalty.check((X.shape[1], *outputs))
        _check_determined(X, weights, penalty, bool(self.fit_intercept))
        return Problem(loss, penalty, X, target, weights, np.full(outputs, bool(self.fit_intercept)))

    def _metric(self) -> LinearMetric:
        """How predictions are judged."""
        loss = self._find_loss(2)
        if isinstance(loss, WITH_PROBABILITIES):
            return LogLoss(self.classes_)
        if loss.of_two_classes:
            return HingeLoss(self.classes_)
        if isinstance(loss, Tweedie):
            return Deviance(loss)
        return PinballLoss(loss.level) if isinstance(loss, Quantile) else SquaredError()

    def _take(self, fit: Fit) -> None:
        if fit.coef.ndim == 2:
            self.coef_, self.intercept_ = fit.coef.T, fit.intercept - fit.intercept.mean()
        elif _has_classes(self):
            self.coef_, self.intercept_ = fit.coef[None], np.atleast_1d(fit.intercept)
        else:
            self.coef_, self.intercept_ = fit.coef, float(fit.intercept)

    def _as_fit(self, problem: Problem) -> Fit:
        """Return the fitted coefficients as a fit."""
        if problem.intercept.ndim:
            return Fit(problem, self.coef_.T, np.asarray(self.intercept_))
        return Fit(problem, np.ravel(self.coef_), np.asarray(np.ravel(self.intercept_)[0]))

    def _eta(self, X: Any) -> Array:
        eta = _linalg.times(self._check_X(X), np.atleast_2d(self.coef_).T) + self.intercept_
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict(self, X: Any) -> Array:
        """Predicted response, mean or class: (n,)."""
        eta = self._eta(X)
        if not _has_classes(self):
            return self._metric().predictions(eta)
        return self.classes_[(eta > 0).astype(np.intp) if eta.ndim == 1 else eta.argmax(axis=1)]

    @available_if(_has_classes)
    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,) for two classes, else (n, c)."""
        eta = self._eta(X)
        return eta[:, 1] - eta[:, 0] if eta.ndim == 2 and eta.shape[1] == 2 else eta

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: (n, c)."""
        return self._metric().predictions(self._eta(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor."""
        judge = accuracy_score if _has_classes(self) else r2_score
        return float(judge(y, self.predict(X), sample_weight=sample_weight))


def _named_penalty(name: str) -> Penalty:
    if name not in PENALTIES:
        raise ValueError(f"penalty must be one of {', '.join(PENALTIES)}, or a Penalty, got {name!r}")
    return PENALTIES[name]()


def _check_determined(X: Design, weights: Array, penalty: Penalty, intercept: bool) -> None:
    """Refuse a generalised lasso that leaves directions to the data which these do not determine."""
    if not isinstance(penalty, AnalysisPenalty):
        return
    nothing = np.zeros(X.shape[1])
    free = penalty.tangent(nothing)
    along = _linalg.project(X, free.basis)[weights > 0]
    if intercept:
        along = along - along.mean(axis=0)
    rank = int(np.linalg.matrix_rank(along)) if along.size else 0
    if rank < free.size:
        raise ValueError(
            f"{type(penalty).__name__} leaves {free.size} directions of the coefficients free, of which X "
            f"determines {rank}: add rows to D, or an L2 penalty"
        )


class GeneralizedLinear(_LinearModel):
    """Linear model with any loss and any penalty, solved to machine precision.

    Minimises Σ w_i ℓ(y_i, η_i) + P(β), η = X β + b: the sum over rows, not the mean, and the intercept is not
    penalised.

    Parameters
    ----------
    loss : str or Loss, default "squared"
        "squared", "huber", "absolute", "quantile", "epsilon_insensitive", "squared_epsilon_insensitive",
        "poisson", "gamma" for numbers, "logistic", "hinge", "squared_hinge", "exponential" for two classes,
        "multinomial" for more; or one of ``onefit.losses`` with parameters of its own, such as
        ``Quantile(0.9)`` or a ``Mixture``.
    penalty : str or Penalty, optional
        One of ``onefit.penalties``, or the sum of an ``L2`` and another; "l2", "l1", "elasticnet" or
        "fused_lasso" of strength 1; ``L2(1.0)`` if None.
    fit_intercept : bool, default True

    Attributes
    ----------
    coef_ : (p,), for classifiers (1, p) or (c, p) array
    intercept_ : float, for classifiers (1,) or (c,) array
    classes_ : (c,) array
        Only of classifiers.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Raises
    ------
    ValueError
        If the penalty does not fit the number of columns, or the labels do not fit the loss.
    SolverError
        If the problem has no finite minimum.

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> from onefit.penalties import FusedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 20))
    >>> y = X[:, 5:10].sum(axis=1) + 0.1 * rng.normal(size=60)
    >>> model = onefit.GeneralizedLinear(penalty=FusedLasso(5.0)).fit(X, y)
    >>> model.coef_.round(1)[3:12]
    array([0., 0., 1., 1., 1., 1., 1., 0., 0.])
    >>> round(onefit.loo(model, X, y).value, 2)
    0.02
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        penalty: str | Penalty | None = None,
        *,
        fit_intercept: bool = True,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        data, _ = self._check(X, y, sample_weight)
        with _linalg.one_thread_if_small(data[0]):
            self._take(solve(Fit.at_start(self._problem(data, self._find_penalty()))).fit)
        return self


class GeneralizedLinearLOO(_LinearModel, SelfTuned):
    """Linear model with any loss and any penalty that chooses its strength by leave-one-out.

    Minimises Σ w_i ℓ(y_i, η_i) + alpha P(β), η = X β + b, along a path of strengths, each solved from the
    last and judged by leave-one-out from the same factor.

    Parameters
    ----------
    loss : str or Loss, default "squared"
        As for ``GeneralizedLinear``.
    penalty : str or Penalty, optional
        What each strength is multiplied with, as for ``GeneralizedLinear``; ``L2(1.0)`` if None.
    alphas : int or array-like, default 30
        So many strengths, evenly spaced in the logarithm, from the smallest that leaves only what is not
        penalised down to ``eps`` times it (for a ridge penalty eight decades around the curvature of the
        data), and more at either end while the risk falls there; or the strengths themselves.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows, the smallest risk, or the strongest
        penalty whose risk exceeds it by no more than one standard error of the paired difference.
    eps : float, default 1e-3
        Length of the automatic path before strengths are added.
    early_stopping : bool, default True
        Stop the path once its risk is clearly past the minimum.
    fit_intercept : bool, default True

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    penalty_ : Penalty
        ``penalty`` times ``alpha_``.
    risk_path_, std_error_path_, paired_error_path_ : (J,) arrays
        Leave-one-out risk at each strength, its standard error, and that of the difference to the smallest.
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice.
    best_score_ : float
        Minus ``corrected_risk_``.
    coef_path_ : (J, p) or (J, p, c) array
    intercept_path_ : (J,) or (J, c) array
    coef_, intercept_, classes_
        As for ``GeneralizedLinear``.
    loo_ : RiskEstimate
        Leave-one-out at the chosen strength.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> from onefit.penalties import GroupLasso
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(80, 12)), np.repeat([0, 1, 2, 3], 3)
    >>> y = X[:, :3].sum(axis=1) + rng.normal(size=80)
    >>> model = onefit.GeneralizedLinearLOO(penalty=GroupLasso(groups)).fit(X, y)
    >>> bool(np.all(model.coef_[:3] > 0.5))
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        penalty: str | Penalty | None = None,
        alphas: int | ArrayLike = 30,
        *,
        selection: Selection = "bagged",
        eps: float = 1e-3,
        early_stopping: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alphas = alphas
        self.selection = selection
        self.eps = eps
        self.early_stopping = early_stopping
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit along the path and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        self._check_choice()
        data, given = self._check(X, y, sample_weight)
        penalty, weights, metric = self._find_penalty(), data[2], self._metric()

        judgement = Judgement(metric, data[1], weights)

        def problem_at(alpha: float) -> Problem:
            return self._problem(data, penalty.scaled(alpha))

        with _linalg.one_thread_if_small(data[0]):
            path = search_path(
                self._grid(problem_at(1.0)),
                problem_at,
                judgement,
                selection=self.selection,
                early_stopping=self.early_stopping,
            )
            result, fit, left_out = settle(path, problem_at, judgement, self.selection)
        self._take_path(result, weights)
        self.penalty_ = penalty.scaled(self.alpha_)
        self._take(fit)
        details = {"target": data[1], "classes": self.classes_} if _has_classes(self) else {}
        self._judge(left_out, metric, given, sample_weight, **details)
        return self

    def _grid(self, problem: Problem) -> Grid:
        """Strengths to visit, from the problem at strength one."""
        shape = (problem.X.shape[1], *problem.intercept.shape)
        start = Fit.at_start(problem)
        if not problem.penalty.has_kinks(shape):
            return automatic_or_given(
                "alphas", self.alphas, lambda: decades(float(curvature_of_columns(start).sum()))
            )
        null = cache(lambda: null_strength(problem))

        def ends() -> tuple[float, float]:
            ridge = problem.penalty.ridge(shape).reshape(shape[0], -1).mean(axis=1)
            return ends_of_kinked(null(), self.eps, curvature_of_columns(start), ridge)

        return automatic_or_given("alphas", self.alphas, ends, strongest=null)


# --- read back -------------------------------------------------------------------------------------


@reference.register(GeneralizedLinearLOO)
def _with_its_choice(model: GeneralizedLinearLOO) -> GeneralizedLinear:
    return GeneralizedLinear(model.loss, clone(model.penalty_), fit_intercept=model.fit_intercept)


@as_fit.register(GeneralizedLinear)
def _read_chosen(model: GeneralizedLinear, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _read(model, model._find_penalty(), X, y, sample_weight)


@as_fit.register(GeneralizedLinearLOO)
def _read_tuned(model: GeneralizedLinearLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _read(model, model.penalty_, X, y, sample_weight)


def _read(model: _LinearModel, penalty: Penalty, X: Any, y: Any, sample_weight: Any) -> Reading:
    has_classes = _has_classes(model)
    X, target = check_rows(model, X, y, numeric=not has_classes)
    if has_classes:
        target = class_numbers(target, model.classes_).astype(np.float64)
    problem = model._problem((X, target, check_weights(sample_weight, X)), penalty)
    reading = Reading(model._as_fit(problem), model._metric(), target)
    return replace(reading, classes=model.classes_) if has_classes else reading

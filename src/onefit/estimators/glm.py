"""Logistic and Poisson regression that tune themselves by leave-one-out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.estimators.self_tuned import (
    PenalisedPath,
    automatic_or_given,
    curvature_of_columns,
    decades,
    ends_of_kinked,
    with_its_choice,
)
from onefit.fit import Fit
from onefit.losses import Logistic, Loss, Multinomial, Poisson
from onefit.metrics import Deviance, LogLoss
from onefit.penalties import L2, ElasticNet
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.tuning.selection import Selection
from onefit.validation import (
    check_range,
    check_rows,
    check_share,
    check_weights,
    class_numbers,
)

SHORTEST = 1e-4  # length of an automatic path with an ℓ1 part, before strengths are added


class LogisticLOO(ClassifierMixin, PenalisedPath):
    """Logistic regression that chooses its strength by leave-one-out.

    Minimises C Σ w log-loss + (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.LogisticRegression``; more than two classes are multinomial.

    Parameters
    ----------
    Cs : int or array-like, default 30
        So many inverse strengths, evenly spaced in the logarithm: for ridge over eight decades around the
        curvature of the constant model, and with an ℓ1 part from the largest that makes all coefficients zero
        up to 1e4 times it; more at either end while the risk falls there; or the values themselves.
    l1_ratio : float, default 0.0
        Share of the ℓ1 penalty: 0 is ridge, 1 the lasso.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows (1000 draws with a fixed seed, whatever the
        order of the rows), which moves less from sample to sample than the smallest itself; the smallest
        risk; or the strongest penalty whose risk exceeds it by no more than one standard error of the paired
        difference (``paired_error_path_``; Yates et al. 2021).
    early_stopping : bool, default True
        Stop the path once its risk is clearly past the minimum: by two standard errors of the paired
        difference, and five strengths on.
    fit_intercept : bool, default True

    Attributes
    ----------
    C_ : float
        Inverse strength that was chosen.
    Cs_ : (J,) array
        Inverse strengths that were visited, strongest penalty first.
    risk_path_, std_error_path_ : (J,) arrays
        Leave-one-out risk (mean log-loss) at each strength, and its standard error.  Rows that no step from
        the fit reaches are solved anew only at a few strengths, on the way to the choice; with an ℓ1 penalty
        on few rows the others are rough, and too large where the penalty is weak.
    paired_error_path_ : (J,) array
        Standard error of the difference between each risk and the smallest one.  Losses of a row at two
        strengths move together, so it is smaller than the error of either risk near the best.  An ℓ1 penalty
        makes risks jump for all rows at once, which the rows do not show: there it is too small, by a factor
        of two or so on few rows (Bayle, Janson and Mackey 2025).
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %, all comparisons taken together (Lei 2020), and
        those between them; strongest penalty first.  Strengths that were not visited are not judged.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice: the smallest of many estimates is too small
        (Tsamardinos, Greasidou and Borboudakis 2018).  Computed when asked for, as is the set, without
        refits and from draws with a fixed seed.  With an ℓ1 penalty only about half of the optimism is
        removed.
    best_score_ : float
        Minus ``corrected_risk_``: larger is better.
    coef_path_ : (J, p) or (J, p, c) array
    intercept_path_ : (J,) or (J, c) array
    classes_ : (c,) array
    coef_ : (1, p) or (c, p) array
    intercept_ : (1,) or (c,) array
    loo_ : RiskEstimate
        Leave-one-out at the chosen strength.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from onefit import LogisticLOO
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticLOO(Cs=[0.01, 0.1, 1.0, 10.0]).fit(scale(X), y)
    >>> model.C_, round(model.loo_.score("accuracy"), 2)
    (1.0, 0.98)
    """

    _strength = "C"

    def __init__(
        self,
        Cs: int | ArrayLike = 30,
        *,
        l1_ratio: float = 0.0,
        selection: Selection = "bagged",
        early_stopping: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.Cs = Cs
        self.l1_ratio = l1_ratio
        self.selection = selection
        self.early_stopping = early_stopping
        self.fit_intercept = fit_intercept

    def _problem(self, X: Design, y: Array, weights: Array, strength: float, ratio: float) -> Problem:
        n_classes = len(self.classes_)
        loss: Loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
        outputs = () if n_classes == 2 else (n_classes,)
        penalty = L2(1.0 / strength) if ratio == 0 else ElasticNet(1.0 / strength, ratio)
        return Problem(loss, penalty, X, y, weights, np.full(outputs, bool(self.fit_intercept)))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit along the path and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
            Class labels.
        sample_weight : array-like of shape (n,), optional
        """
        check_share("l1_ratio", self.l1_ratio)
        X, labels, weights = self._check_data(X, y, sample_weight)
        data = X, self._class_numbers(labels, weights), weights
        given = automatic_or_given("Cs", self.Cs, lambda: self._range(data)[::-1])
        null = self._null(data)
        grid = replace(given, values=given.values[::-1], strongest=null if given.automatic else None)
        metric = LogLoss(self.classes_)
        result = self._walk(data, grid, self.l1_ratio, metric)
        result = replace(result, levels=self._without_common(result.levels))
        result, fit, left_out = self._settle(data, result, self.l1_ratio, metric)
        self._take_path(result, weights)
        self.coef_, self.intercept_ = (
            np.atleast_2d(fit.coef.T),
            np.atleast_1d(self._without_common(fit.intercept)),
        )
        details = {"target": data[1], "classes": self.classes_}
        self._judge(left_out, metric, labels, sample_weight, **details)
        return self

    def _without_common(self, levels: Array) -> Array:
        """Intercepts of more than two classes, whose common level means nothing, with mean zero."""
        return levels - levels.mean(axis=-1, keepdims=True) if len(self.classes_) > 2 else levels

    def _class_numbers(self, labels: Any, weights: Array) -> Array:
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        held = len(np.unique(numbers[weights > 0]))
        if held < 2:
            raise ValueError(
                f"LogisticLOO needs samples of at least 2 classes in the data, but the data contains only "
                f"one class: {np.asarray(labels)[weights > 0].tolist()[0]!r}"
            )
        if held == len(labels):
            raise ValueError(f"every one of the {held} rows has a class of its own: is y a class label?")
        return numbers.astype(np.float64)

    def _range(self, data: tuple[Design, Array, Array]) -> tuple[float, float]:
        """Smallest and largest of the automatic inverse strengths."""
        start = Fit.at_start(self._problem(*data, 1.0, self.l1_ratio))
        curvature = curvature_of_columns(start)
        if self.l1_ratio == 0:
            high, low = decades(float(curvature.sum()))
            return 1.0 / high, 1.0 / low
        null = self._null(data)
        assert null is not None  # there is an ℓ1 part
        strongest, weakest = ends_of_kinked(
            1.0 / null, SHORTEST, curvature, start.problem.penalty.ridge(curvature.shape)
        )
        return 1.0 / strongest, 1.0 / weakest

    def _null(self, data: tuple[Design, Array, Array]) -> float | None:
        """Largest inverse strength that makes all coefficients zero; None for ridge, which has none."""
        if self.l1_ratio == 0:
            return None
        start = Fit.at_start(self._problem(*data, 1.0, self.l1_ratio))
        highest = float(np.abs(start.loss_gradient).max(initial=0.0)) / self.l1_ratio
        return 1.0 / highest if highest > np.finfo(float).tiny else 1.0

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,) for two classes, else (n, c)."""
        eta = _linalg.times(self._check_X(X), self.coef_.T) + self.intercept_
        return eta[:, 0] if len(self.classes_) == 2 else eta

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: (n, c)."""
        eta = self.decision_function(X)
        return LogLoss(self.classes_).predictions(eta)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities: (n, c)."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Array:
        """Most probable class of each row: (n,)."""
        eta = self.decision_function(X)
        return self.classes_[(eta > 0).astype(np.intp) if eta.ndim == 1 else eta.argmax(axis=1)]


class PoissonLOO(RegressorMixin, PenalisedPath):
    """Poisson regression with a ridge penalty that chooses its strength by leave-one-out.

    Minimises ½ mean deviance + ½ alpha ‖β‖², the scale of ``sklearn.linear_model.PoissonRegressor``.

    Parameters
    ----------
    alphas : int or array-like, default 30
        So many strengths, evenly spaced in the logarithm from ten times the mean curvature of the constant
        model down eight decades, and more at either end while the risk falls there; or the strengths
        themselves.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows (1000 draws with a fixed seed, whatever the
        order of the rows), which moves less from sample to sample than the smallest itself; the smallest
        risk; or the strongest penalty whose risk exceeds it by no more than one standard error of the paired
        difference (``paired_error_path_``; Yates et al. 2021).
    early_stopping : bool, default True
        Stop the path once its risk is clearly past the minimum: by two standard errors of the paired
        difference, and five strengths on.
    fit_intercept : bool, default True

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    risk_path_, std_error_path_ : (J,) arrays
        Leave-one-out risk (mean Poisson deviance) at each strength, and its standard error.
    paired_error_path_ : (J,) array
        Standard error of the difference between each risk and the smallest one.  Losses of a row at two
        strengths move together, so it is smaller than the error of either risk near the best.
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %, all comparisons taken together (Lei 2020), and
        those between them; strongest penalty first.  Strengths that were not visited are not judged.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice: the smallest of many estimates is too small
        (Tsamardinos, Greasidou and Borboudakis 2018).  Computed when asked for, as is the set, without
        refits and from draws with a fixed seed.
    best_score_ : float
        Minus ``corrected_risk_``: larger is better.
    coef_path_ : (J, p) array
    intercept_path_ : (J,) array
    coef_ : (p,) array
    intercept_ : float
    loo_ : RiskEstimate
        Leave-one-out at the chosen strength.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit import PoissonLOO
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = rng.poisson(np.exp(X[:, 0]))
    >>> model = PoissonLOO().fit(X, y)
    >>> model.predict(X).shape
    (200,)
    """

    def __init__(
        self,
        alphas: int | ArrayLike = 30,
        *,
        selection: Selection = "bagged",
        early_stopping: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.alphas = alphas
        self.selection = selection
        self.early_stopping = early_stopping
        self.fit_intercept = fit_intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _problem(self, X: Design, y: Array, weights: Array, strength: float, ratio: float) -> Problem:
        intercept = np.array(bool(self.fit_intercept))
        penalty = L2(strength * weights.sum())
        return Problem(Poisson(), penalty, X, y, weights, intercept, mean_scaled=True)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit along the path and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
            Counts, or other numbers that are not negative.
        sample_weight : array-like of shape (n,), optional
        """
        X, y, weights = self._check_data(X, y, sample_weight, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        check_range(y, 1.0)
        if not np.any(y[weights > 0] > 0):
            raise ValueError("y is zero for every row: a Poisson mean of zero has no logarithm")
        data = X, y, weights
        grid = automatic_or_given("alphas", self.alphas, lambda: self._range(data))
        metric = Deviance(Poisson())
        result = self._walk(data, grid, 0.0, metric)
        result, fit, left_out = self._settle(data, result, 0.0, metric)
        self._take_path(result, weights)
        self.coef_, self.intercept_ = fit.coef, float(fit.intercept)
        self._judge(left_out, metric, y, sample_weight)
        return self

    def _range(self, data: tuple[Design, Array, Array]) -> tuple[float, float]:
        """Range of automatic strengths, from the trace of the constant model's mean curvature."""
        start = Fit.at_start(self._problem(*data, 1.0, 0.0))
        return decades(float(curvature_of_columns(start).sum()) / float(data[2].sum()))

    def predict(self, X: Any) -> Array:
        """Predicted mean: (n,)."""
        return np.exp(_linalg.times(self._check_X(X), self.coef_) + self.intercept_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D², the share of the Poisson deviance that is explained."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))


# --- onefit.loo of a model that tuned itself: the refits keep its strength -------------------------------


reference.register(LogisticLOO, with_its_choice)
reference.register(PoissonLOO, with_its_choice)


@as_fit.register(LogisticLOO)
def _read_logistic(model: LogisticLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, labels = check_rows(model, X, y, numeric=False)
    target = class_numbers(labels, model.classes_).astype(np.float64)
    problem = model._problem(X, target, check_weights(sample_weight, X), model.C_, model.l1_ratio)
    binary = len(model.classes_) == 2
    coef, level = (model.coef_[0], model.intercept_[0]) if binary else (model.coef_.T, model.intercept_)
    fit = Fit(problem, coef, np.asarray(level))
    return Reading(fit, LogLoss(model.classes_), target, model.classes_)


@as_fit.register(PoissonLOO)
def _read_poisson(model: PoissonLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y)
    check_range(y, 1.0)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_, 0.0)
    return Reading(Fit(problem, model.coef_, np.asarray(model.intercept_)), Deviance(Poisson()), y)

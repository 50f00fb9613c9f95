"""Estimators that tune themselves by leave-one-out: scikit-learn classes, thin clients of ``search``.

They take the scale of their scikit-learn namesake and can stand in for its ``CV`` class.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin, clone
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from onefit import _linalg
from onefit._typing import Array, Design
from onefit._validation import (
    check_range,
    check_rows,
    check_share,
    check_strengths,
    check_weights,
    class_numbers,
)
from onefit.adapters import Reading, as_fit
from onefit.clones import reference
from onefit.losses import Logistic, Loss, Multinomial, Poisson, Squared
from onefit.penalties import L1, L2, ElasticNet, SeparablePenalty
from onefit.problem import Fit, Problem
from onefit.risk.estimate import estimate, warn_if_strained
from onefit.risk.one_fit import LeftOut
from onefit.risk.response import Mean, Probability, Response, Value
from onefit.search.path import SearchResult, search_path, settle
from onefit.search.ridge import RidgeSpectrum, search_ridge
from onefit.search.selection import Contest, Selection, contest

RIDGE_DECADES = (1.0, -7.0)  # automatic strengths, relative to the largest eigenvalue


class _SelfTuned(BaseEstimator):
    """What all self-tuning estimators share: checked data in, fitted attributes out."""

    selection: Selection
    _strength: ClassVar[str] = "alpha"  # what the strength is called, and sets "<strength>_"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_X(self, X: Any) -> Design:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse=("csr", "csc"), dtype=np.float64)

    def _check_data(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[Design, Any, Array]:
        if self.selection not in ("min", "1se"):
            raise ValueError(f"selection must be 'min' or '1se', got {self.selection!r}")
        X, y = validate_data(
            self, X, y, accept_sparse=("csr", "csc"), dtype=np.float64, ensure_min_samples=2, **checks
        )
        return X, y, check_weights(sample_weight, X)

    def _take_path(
        self, result: SearchResult, strengths: Array, weights: Array, *others: SearchResult
    ) -> None:
        """Set the fitted attributes of a path, with strengths on the estimator's own scale.

        Other paths, which the choice passed over, take part in the correction of the chosen risk.
        """
        visited = strengths[: len(result.risks)]
        setattr(self, f"{self._strength}s_", visited)
        setattr(self, f"{self._strength}_", float(visited[result.best]))
        self.risk_path_ = result.risks
        self.std_error_path_ = result.std_errors
        self.paired_error_path_ = result.paired_errors
        self.coef_path_ = result.coefs
        self.intercept_path_ = result.levels
        paths = [(path.losses, path.risks, path.paired_errors) for path in (result, *others)]
        self._contest: tuple[Any, ...] = tuple(contest(paths, weights, self.selection))

    @property
    def confidence_set_(self) -> Array:
        """Strengths that cannot be told from the best at 95 %, strongest penalty first."""
        check_is_fitted(self)
        return getattr(self, f"{self._strength}s_")[Contest(*self._contest).confidence_set()]

    @property
    def corrected_risk_(self) -> float:
        """Leave-one-out risk of the tuned model, corrected for the choice among many."""
        check_is_fitted(self)
        return Contest(*self._contest).corrected_risk()

    @property
    def best_score_(self) -> float:
        """Minus ``corrected_risk_``: larger is better, as in scikit-learn."""
        return -self.corrected_risk_

    def _judge(self, left_out: Any, response: Response, y: Any, sample_weight: Any, **details: Any) -> None:
        """Set ``loo_``, and warn when it should not be trusted."""
        weights = None if sample_weight is None else left_out.fit.problem.weights
        self.loo_ = estimate(left_out, response, y, sample_weight=weights, design=self._check_X, **details)
        warn_if_strained(self.loo_)


class RidgeLOO(MultiOutputMixin, RegressorMixin, _SelfTuned):
    """Ridge regression that chooses its strength by exact leave-one-out.

    Minimises Σ w (y − Xβ − b)² + alpha ‖β‖², the scale of ``sklearn.linear_model.Ridge``, for every
    strength from one eigendecomposition (Golub, Heath and Wahba 1979).

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from ten times the largest eigenvalue of XᵀX down
        eight decades; or the strengths themselves.
    selection : {"min", "1se"}, default "min"
        The smallest risk, or the strongest penalty whose risk exceeds it by no more than one standard error
        of the paired difference (``paired_error_path_``; Yates et al. 2021).
    fit_intercept : bool, default True

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were tried, strongest first.
    risk_path_, std_error_path_ : (J,) arrays
        Leave-one-out risk (mean squared error) at each strength, and its standard error.
    paired_error_path_ : (J,) array
        Standard error of the difference between each risk and the smallest one.  Losses of a row at two
        strengths move together, so it is smaller than the error of either risk near the best.
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %, all comparisons taken together (Lei 2020), and
        those between them; strongest penalty first.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice: the smallest of many estimates is too small
        (Tsamardinos, Greasidou and Borboudakis 2018).  Computed when asked for, as is the set, without
        refits and from draws with a fixed seed.
    best_score_ : float
        Minus ``corrected_risk_``: larger is better.
    coef_path_ : (J, p) or (J, p, t) array
    intercept_path_ : (J,) or (J, t) array
    coef_ : (p,) or (t, p) array
    intercept_ : float or (t,) array
    loo_ : RiskEstimate
        Leave-one-out at the chosen strength.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import RidgeLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RidgeLOO(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> model.alpha_, round(model.loo_.value)
    (0.01, 3000)
    """

    def __init__(
        self, alphas: int | ArrayLike = 100, *, selection: Selection = "min", fit_intercept: bool = True
    ) -> None:
        self.alphas = alphas
        self.selection = selection
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit at every strength and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,) or (n, t)
        sample_weight : array-like of shape (n,), optional
        """
        X, y, weights = self._check_data(X, y, sample_weight, multi_output=True, y_numeric=True)
        with _linalg.one_thread_if_small(X):
            self._fit(self._problem(X, np.asarray(y, dtype=np.float64), weights, 1.0), sample_weight)
        return self

    def _problem(self, X: Design, y: Array, weights: Array, strength: float) -> Problem:
        return Problem(Squared(), L2(strength), X, y, weights, np.full(y.shape[1:], bool(self.fit_intercept)))

    def _fit(self, problem: Problem, sample_weight: Any) -> None:
        spectrum = RidgeSpectrum(problem)
        alphas = check_strengths("alphas", self.alphas, lambda: _decades(spectrum.largest), positive=False)
        result = search_ridge(spectrum, alphas, self.selection)
        self._take_path(result, alphas, problem.weights)
        self.coef_ = result.coefs[result.best].T
        level = result.levels[result.best]
        self.intercept_ = level if level.ndim else float(level)
        self._judge(spectrum.left_out(self.alpha_), Value(), problem.y, sample_weight)

    def predict(self, X: Any) -> Array:
        """Predicted response: (n,) or (n, t)."""
        return _linalg.times(self._check_X(X), self.coef_.T) + self.intercept_


def _decades(largest: float) -> tuple[float, float]:
    """Range of automatic ridge strengths."""
    high, low = RIDGE_DECADES
    scale = largest if largest > 0 else 1.0
    return scale * 10.0**high, scale * 10.0**low


class _PenalisedPath(_SelfTuned):
    """Estimators whose path is solved strength by strength."""

    early_stopping: bool

    @abstractmethod
    def _problem(self, X: Design, y: Array, weights: Array, strength: float, ratio: float) -> Problem:
        """Return the problem at a strength on the estimator's own scale."""

    def _walk(
        self, data: tuple[Design, Array, Array], strengths: Array, ratio: float, response: Response
    ) -> SearchResult:
        X, y, weights = data
        with _linalg.one_thread_if_small(X):
            in_dual = ratio == 0 and X.shape[1] > X.shape[0]
            in_dual = in_dual and not self._problem(*data, 1.0, ratio).loss.coupled
            # ridge with more columns than rows knows X only through its Gram matrix
            design = _linalg.RowGram(_linalg.row_gram(X, np.ones(X.shape[1]))) if in_dual else X
            result = search_path(
                strengths,
                lambda strength: self._problem(design, y, weights, strength, ratio),
                response,
                y,
                weights,
                selection=self.selection,
                early_stopping=self.early_stopping,
            )
            return replace(result, coefs=_linalg.transposed_times(X, result.coefs.T).T) if in_dual else result

    def _settle(
        self, data: tuple[Design, Array, Array], result: SearchResult, ratio: float, response: Response
    ) -> tuple[SearchResult, Fit, LeftOut]:
        _, y, weights = data
        return settle(
            result,
            lambda strength: self._problem(*data, strength, ratio),
            response,
            y,
            weights,
            self.selection,
        )


class ElasticNetLOO(RegressorMixin, _PenalisedPath):
    """Elastic net that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.ElasticNet``.  The path is solved by active sets, to machine precision, and each
    point is judged with the factor that solved it.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero
        down to ``eps`` times it; or the strengths themselves.
    l1_ratio : float or array-like, default 0.5
        Share of the ℓ1 penalty, in (0, 1]; of several, the one with the smallest risk is chosen.
    selection : {"min", "1se"}, default "min"
        The smallest risk, or the strongest penalty whose risk exceeds it by no more than one standard error
        of the paired difference (``paired_error_path_``; Yates et al. 2021).
    eps : float, default 1e-3
        Length of the automatic path.
    early_stopping : bool, default True
        Stop the path once its risk is clearly past the minimum: by two standard errors of the paired
        difference, and five strengths on.
    fit_intercept : bool, default True

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        What was chosen; the path attributes below are those of the chosen ``l1_ratio_``.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    risk_path_, std_error_path_ : (J,) arrays
        Leave-one-out risk (mean squared error) at each strength, and its standard error.
    paired_error_path_ : (J,) array
        Standard error of the difference between each risk and the smallest one.  Losses of a row at two
        strengths move together, so it is smaller than the error of either risk near the best.  An ℓ1 penalty
        makes risks jump for all rows at once, which the rows do not show: there it is too small, by a factor
        of two or so on few rows (Bayle, Janson and Mackey 2025).
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %, all comparisons taken together (Lei 2020), and
        those between them; strongest penalty first.  Strengths that were not visited are not judged.  Of
        several ``l1_ratio``, this is the path of the chosen one.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice: the smallest of many estimates is too small
        (Tsamardinos, Greasidou and Borboudakis 2018).  Computed when asked for, as is the set, without
        refits and from draws with a fixed seed; over the paths of all ``l1_ratio``.  With an ℓ1 penalty
        only about half of the optimism is removed.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import ElasticNetLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ElasticNetLOO(l1_ratio=[0.5, 0.9]).fit(X, y)
    >>> model.l1_ratio_
    0.9
    """

    def __init__(
        self,
        alphas: int | ArrayLike = 100,
        *,
        l1_ratio: float | ArrayLike = 0.5,
        selection: Selection = "min",
        eps: float = 1e-3,
        early_stopping: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.alphas = alphas
        self.l1_ratio = l1_ratio
        self.selection = selection
        self.eps = eps
        self.early_stopping = early_stopping
        self.fit_intercept = fit_intercept

    def _problem(self, X: Design, y: Array, weights: Array, strength: float, ratio: float) -> Problem:
        total = strength * weights.sum()
        penalty: SeparablePenalty = L1(total) if ratio == 1 else ElasticNet(total, ratio)
        intercept = np.array(bool(self.fit_intercept))
        return Problem(Squared(), penalty, X, y, weights, intercept, mean_scaled=True)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit along the path and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        X, y, weights = self._check_data(X, y, sample_weight, y_numeric=True)
        data = X, np.asarray(y, dtype=np.float64), weights
        paths = [(ratio, *self._path(data, ratio)) for ratio in _ratios(self._l1_ratio())]
        ratio, alphas, found = min(paths, key=lambda path: path[2].risks[path[2].best])
        result, fit, left_out = self._settle(data, found, ratio, Value())
        self._take_path(result, alphas, weights, *(path for _, _, path in paths if path is not found))
        self.l1_ratio_ = ratio
        self.coef_, self.intercept_ = fit.coef, float(fit.level)
        self._judge(left_out, Value(), data[1], sample_weight)
        return self

    def _l1_ratio(self) -> float | ArrayLike:
        return self.l1_ratio

    def _path(self, data: tuple[Design, Array, Array], ratio: float) -> tuple[Array, SearchResult]:
        start = self._problem(*data, 1.0, ratio).at_start()
        alphas = check_strengths("alphas", self.alphas, lambda: _down_from_null(start, ratio, self.eps))
        return alphas, self._walk(data, alphas, ratio, Value())

    def predict(self, X: Any) -> Array:
        """Predicted response: (n,)."""
        return _linalg.times(self._check_X(X), self.coef_) + self.intercept_


def _ratios(l1_ratio: float | ArrayLike) -> list[float]:
    try:
        ratios = np.atleast_1d(np.asarray(l1_ratio, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"l1_ratio must be a number or a list of numbers, got {l1_ratio!r}") from None
    if ratios.ndim != 1 or ratios.size == 0 or np.any(ratios <= 0) or np.any(ratios > 1):
        raise ValueError(f"l1_ratio must lie in (0, 1] (0 is ridge: use RidgeLOO), got {l1_ratio!r}")
    return [float(ratio) for ratio in ratios]


def _down_from_null(start: Fit, ratio: float, eps: float) -> tuple[float, float]:
    """From the strength that makes all coefficients zero down to ``eps`` times it."""
    if not 0 < eps < 1:
        raise ValueError(f"eps must lie in (0, 1), got {eps!r}")
    total = float(start.problem.weights.sum())
    highest = float(np.abs(start.loss_gradient).max(initial=0.0)) / total / ratio
    highest = highest * (1 + 1e-12) if highest > float(np.finfo(float).tiny) else 1.0
    return highest, eps * highest


class LassoLOO(ElasticNetLOO):
    """Lasso that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha ‖β‖₁, the scale of ``sklearn.linear_model.Lasso``.  The path is
    solved by active sets, to machine precision; leverages follow the support from one strength to the next
    (Wang et al. 2018, section 3.1).

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero
        down to ``eps`` times it; or the strengths themselves.
    selection : {"min", "1se"}, default "min"
        The smallest risk, or the strongest penalty whose risk exceeds it by no more than one standard error
        of the paired difference (``paired_error_path_``; Yates et al. 2021).
    eps : float, default 1e-3
        Length of the automatic path.
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
        Leave-one-out risk (mean squared error) at each strength, and its standard error.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import LassoLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LassoLOO(selection="1se").fit(X, y)
    >>> int((model.coef_ != 0).sum())
    7
    """

    def __init__(
        self,
        alphas: int | ArrayLike = 100,
        *,
        selection: Selection = "min",
        eps: float = 1e-3,
        early_stopping: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.alphas = alphas
        self.selection = selection
        self.eps = eps
        self.early_stopping = early_stopping
        self.fit_intercept = fit_intercept

    def _l1_ratio(self) -> float:
        return 1.0


class LogisticLOO(ClassifierMixin, _PenalisedPath):
    """Logistic regression that chooses its strength by leave-one-out.

    Minimises C Σ w log-loss + (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.LogisticRegression``; more than two classes are multinomial.

    Parameters
    ----------
    Cs : int or array-like, default 30
        So many inverse strengths, evenly spaced in the logarithm: from 1e-4 to 1e4 for ridge, and from the
        largest that makes all coefficients zero up to 1e4 times it with an ℓ1 part; or the values themselves.
    l1_ratio : float, default 0.0
        Share of the ℓ1 penalty: 0 is ridge, 1 the lasso.
    selection : {"min", "1se"}, default "min"
        The smallest risk, or the strongest penalty whose risk exceeds it by no more than one standard error
        of the paired difference (``paired_error_path_``; Yates et al. 2021).
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
        selection: Selection = "min",
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
        Cs = check_strengths("Cs", self.Cs, lambda: self._range(data))[::-1]
        response = Probability(self.classes_)
        result = self._walk(data, Cs, self.l1_ratio, response)
        result = replace(result, levels=self._without_common(result.levels))
        result, fit, left_out = self._settle(data, result, self.l1_ratio, response)
        self._take_path(result, Cs, weights)
        self.coef_, self.intercept_ = (
            np.atleast_2d(fit.coef.T),
            np.atleast_1d(self._without_common(fit.level)),
        )
        details = {"target": data[1], "classes": self.classes_}
        self._judge(left_out, response, labels, sample_weight, **details)
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
        """Largest and smallest of the automatic inverse strengths."""
        if self.l1_ratio == 0:
            return 1e4, 1e-4
        start = self._problem(*data, 1.0, self.l1_ratio).at_start()
        highest = float(np.abs(start.loss_gradient).max(initial=0.0)) / self.l1_ratio
        lowest = 1.0 / highest if highest > np.finfo(float).tiny else 1.0
        return 1e4 * lowest, lowest

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (n,) for two classes, else (n, c)."""
        eta = _linalg.times(self._check_X(X), self.coef_.T) + self.intercept_
        return eta[:, 0] if len(self.classes_) == 2 else eta

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities: (n, c)."""
        eta = self.decision_function(X)
        return Probability(self.classes_).predictions(eta)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities: (n, c)."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Array:
        """Most probable class of each row: (n,)."""
        eta = self.decision_function(X)
        return self.classes_[(eta > 0).astype(np.intp) if eta.ndim == 1 else eta.argmax(axis=1)]


class PoissonLOO(RegressorMixin, _PenalisedPath):
    """Poisson regression with a ridge penalty that chooses its strength by leave-one-out.

    Minimises ½ mean deviance + ½ alpha ‖β‖², the scale of ``sklearn.linear_model.PoissonRegressor``.

    Parameters
    ----------
    alphas : int or array-like, default 30
        So many strengths, evenly spaced in the logarithm from ten times the mean curvature of the constant
        model down eight decades; or the strengths themselves.
    selection : {"min", "1se"}, default "min"
        The smallest risk, or the strongest penalty whose risk exceeds it by no more than one standard error
        of the paired difference (``paired_error_path_``; Yates et al. 2021).
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
        selection: Selection = "min",
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
        alphas = check_strengths("alphas", self.alphas, lambda: self._range(data))
        response = Mean(Poisson())
        result = self._walk(data, alphas, 0.0, response)
        result, fit, left_out = self._settle(data, result, 0.0, response)
        self._take_path(result, alphas, weights)
        self.coef_, self.intercept_ = fit.coef, float(fit.level)
        self._judge(left_out, response, y, sample_weight)
        return self

    def _range(self, data: tuple[Design, Array, Array]) -> tuple[float, float]:
        """Range of automatic strengths, from the trace of the constant model's mean curvature."""
        X, y, weights = data
        mean = float(np.average(y, weights=weights))
        norms = _linalg.column_norms(X, weights * mean, centred=bool(self.fit_intercept))
        return _decades(float(np.sum(norms**2)) / float(weights.sum()))

    def predict(self, X: Any) -> Array:
        """Predicted mean: (n,)."""
        return np.exp(_linalg.times(self._check_X(X), self.coef_) + self.intercept_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D², the share of the Poisson deviance that is explained."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))


# --- onefit.loo of a model that tuned itself: the refits keep its strength -------------------------------


@reference.register(RidgeLOO)
@reference.register(ElasticNetLOO)
@reference.register(LogisticLOO)
@reference.register(PoissonLOO)
def _with_its_choice(model: _SelfTuned) -> Any:
    chosen: dict[str, Any] = {f"{model._strength}s": [getattr(model, f"{model._strength}_")]}
    if "l1_ratio" in model.get_params() and hasattr(model, "l1_ratio_"):
        chosen["l1_ratio"] = model.l1_ratio_
    return clone(model).set_params(**chosen)


@as_fit.register(RidgeLOO)
def _read_ridge(model: RidgeLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y, several_outputs=True)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_)
    return Reading(Fit(problem, model.coef_.T, np.asarray(model.intercept_)), Value(), y)


@as_fit.register(LassoLOO)
@as_fit.register(ElasticNetLOO)
def _read_elastic_net(model: ElasticNetLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_, model.l1_ratio_)
    return Reading(Fit(problem, model.coef_, np.asarray(model.intercept_)), Value(), y)


@as_fit.register(LogisticLOO)
def _read_logistic(model: LogisticLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, labels = check_rows(model, X, y, numeric=False)
    target = class_numbers(labels, model.classes_).astype(np.float64)
    problem = model._problem(X, target, check_weights(sample_weight, X), model.C_, model.l1_ratio)
    binary = len(model.classes_) == 2
    coef, level = (model.coef_[0], model.intercept_[0]) if binary else (model.coef_.T, model.intercept_)
    fit = Fit(problem, coef, np.asarray(level))
    return Reading(fit, Probability(model.classes_), target, model.classes_)


@as_fit.register(PoissonLOO)
def _read_poisson(model: PoissonLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y)
    check_range(y, 1.0)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_, 0.0)
    return Reading(Fit(problem, model.coef_, np.asarray(model.intercept_)), Mean(Poisson()), y)

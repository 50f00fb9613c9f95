"""The lasso and the elastic net, which tune themselves by leave-one-out."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.estimators.self_tuned import (
    PenalisedPath,
    automatic_or_given,
    curvature_of_columns,
    ends_of_kinked,
    with_its_choice,
)
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.penalties import L1, ElasticNet, SeparablePenalty
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.tuning.path import SearchResult
from onefit.tuning.selection import Selection
from onefit.validation import check_rows, check_weights


class ElasticNetLOO(RegressorMixin, PenalisedPath):
    """Elastic net that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.ElasticNet``.  The path is solved by active sets, to machine precision, and each
    point is judged with the factor that solved it.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero,
        or at which the ℓ2 part has shrunk them to a tenth, if that is smaller, down to ``eps`` times it, and
        more at either end while the risk falls there; or the strengths themselves.
    l1_ratio : float or array-like, default 0.5
        Share of the ℓ1 penalty, in (0, 1]; of several, the one with the smallest risk is chosen.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows (1000 draws with a fixed seed, whatever the
        order of the rows), which moves less from sample to sample than the smallest itself; the smallest
        risk; or the strongest penalty whose risk exceeds it by no more than one standard error of the paired
        difference (``paired_error_path_``; Yates et al. 2021).
    eps : float, default 1e-3
        Length of the automatic path before strengths are added.
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
    0.5
    """

    def __init__(
        self,
        alphas: int | ArrayLike = 100,
        *,
        l1_ratio: float | ArrayLike = 0.5,
        selection: Selection = "bagged",
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
        paths = [(ratio, self._path(data, ratio)) for ratio in _ratios(self._l1_ratio())]
        ratio, found = min(paths, key=lambda path: path[1].risks[path[1].best])
        result, fit, left_out = self._settle(data, found, ratio, SquaredError())
        self._take_path(result, weights, *(path for _, path in paths if path is not found))
        self.l1_ratio_ = ratio
        self.coef_, self.intercept_ = fit.coef, float(fit.intercept)
        self._judge(left_out, SquaredError(), data[1], sample_weight)
        return self

    def _l1_ratio(self) -> float | ArrayLike:
        return self.l1_ratio

    def _path(self, data: tuple[Design, Array, Array], ratio: float) -> SearchResult:
        start = Fit.at_start(self._problem(*data, 1.0, ratio))
        null = _null_strength(start, ratio)

        def ends() -> tuple[float, float]:
            curvature = curvature_of_columns(start)
            return ends_of_kinked(null, self.eps, curvature, start.problem.penalty.ridge(curvature.shape))

        grid = automatic_or_given("alphas", self.alphas, ends, strongest=lambda: null)
        return self._walk(data, grid, ratio, SquaredError())

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


def _null_strength(start: Fit, ratio: float) -> float:
    """Smallest strength that makes all coefficients zero."""
    total = float(start.problem.weights.sum())
    highest = float(np.abs(start.loss_gradient).max(initial=0.0)) / total / ratio
    return highest * (1 + 1e-12) if highest > float(np.finfo(float).tiny) else 1.0


class LassoLOO(ElasticNetLOO):
    """Lasso that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha ‖β‖₁, the scale of ``sklearn.linear_model.Lasso``.  The path is
    solved by active sets, to machine precision; leverages follow the support from one strength to the next
    (Wang et al. 2018, section 3.1).

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero
        down to ``eps`` times it, and on while the risk falls; or the strengths themselves.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows (1000 draws with a fixed seed, whatever the
        order of the rows), which moves less from sample to sample than the smallest itself; the smallest
        risk; or the strongest penalty whose risk exceeds it by no more than one standard error of the paired
        difference (``paired_error_path_``; Yates et al. 2021).
    eps : float, default 1e-3
        Length of the automatic path before strengths are added.
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
        selection: Selection = "bagged",
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


# --- onefit.loo of a model that tuned itself: the refits keep its strength -------------------------------


reference.register(ElasticNetLOO, with_its_choice)


@as_fit.register(LassoLOO)
@as_fit.register(ElasticNetLOO)
def _read_elastic_net(model: ElasticNetLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_, model.l1_ratio_)
    return Reading(Fit(problem, model.coef_, np.asarray(model.intercept_)), SquaredError(), y)

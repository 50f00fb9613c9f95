"""Ridge regression that tunes itself by leave-one-out."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.estimators.self_tuned import (
    SelfTuned,
    automatic_or_given,
    decades,
    with_its_choice,
)
from onefit.fit import Fit
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.tuning.ridge import RidgeSpectrum, search_ridge
from onefit.tuning.selection import Selection
from onefit.validation import check_rows, check_weights


class RidgeLOO(MultiOutputMixin, RegressorMixin, SelfTuned):
    """Ridge regression that chooses its strength by exact leave-one-out.

    Minimises Σ w (y − Xβ − b)² + alpha ‖β‖², the scale of ``sklearn.linear_model.Ridge``, for every
    strength from one eigendecomposition (Golub, Heath and Wahba 1979).

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from ten times the largest eigenvalue of XᵀX down
        eight decades, and more at either end while the risk falls there; or the strengths themselves.
    selection : {"bagged", "min", "1se"}, default "bagged"
        The mean position of the smallest risk over resampled rows (1000 draws with a fixed seed, whatever the
        order of the rows), which moves less from sample to sample than the smallest itself; the smallest
        risk; or the strongest penalty whose risk exceeds it by no more than one standard error of the paired
        difference (``paired_error_path_``; Yates et al. 2021).
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
        self, alphas: int | ArrayLike = 100, *, selection: Selection = "bagged", fit_intercept: bool = True
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
        grid = automatic_or_given("alphas", self.alphas, lambda: decades(spectrum.largest), positive=False)
        result = search_ridge(spectrum, grid, self.selection)
        self._take_path(result, problem.weights)
        self.coef_ = result.coefs[result.best].T
        level = result.levels[result.best]
        self.intercept_ = level if level.ndim else float(level)
        self._judge(spectrum.left_out(self.alpha_), SquaredError(), problem.y, sample_weight)

    def predict(self, X: Any) -> Array:
        """Predicted response: (n,) or (n, t)."""
        return _linalg.times(self._check_X(X), self.coef_.T) + self.intercept_


reference.register(RidgeLOO, with_its_choice)


@as_fit.register(RidgeLOO)
def _read_ridge(model: RidgeLOO, X: Any, y: Any, sample_weight: Any) -> Reading:
    X, y = check_rows(model, X, y, several_outputs=True)
    problem = model._problem(X, y, check_weights(sample_weight, X), model.alpha_)
    return Reading(Fit(problem, model.coef_.T, np.asarray(model.intercept_)), SquaredError(), y)

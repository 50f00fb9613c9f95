"""onefit.loo: leave-one-out of a fitted model, without refitting."""

from __future__ import annotations

import warnings
from typing import Any

from onefit._linalg import one_thread_if_small
from onefit._validation import check_weights
from onefit.adapters import Reading, read
from onefit.exceptions import NotFittedToDataError, NotOptimalWarning
from onefit.risk import one_fit
from onefit.risk.estimate import RiskEstimate, estimate, warn_if_strained
from onefit.solvers.newton import Solution
from onefit.solvers.polish import polish

# share of the objective that no solver misses which calls itself converged, or which does not iterate
OTHER_DATA, OTHER_DATA_EXACT = 0.05, 1e-3


def loo(model: Any, X: Any, y: Any, sample_weight: Any = None) -> RiskEstimate:
    """Leave-one-out of a fitted model, for about the price of one fit.

    What ``cross_val_predict(model, X, y, cv=LeaveOneOut())`` would return, and the risk that follows, are
    computed from the fit: by one Newton step for each row, all with the same factor (Wang et al. 2018,
    Theorem 3.1; Beirami et al. 2017, Theorem 1).  The reference is the refit of a clone with the same
    hyperparameters, with its own scaling of the penalty, its intercept and its weights; classes that tune
    themselves (``RidgeCV``, ``LassoCV``, …) keep what they have chosen.

    Parameters
    ----------
    model : fitted scikit-learn estimator
        ``LinearRegression``, ``Ridge``, ``RidgeCV``, ``RidgeClassifier``, ``Lasso``, ``LassoCV``,
        ``LassoLars``, ``ElasticNet``, ``ElasticNetCV``, ``LogisticRegression``, ``LogisticRegressionCV``,
        ``PoissonRegressor``, ``GammaRegressor``, ``TweedieRegressor``, ``HuberRegressor``,
        ``KernelRidge``, or a ``Pipeline`` that ends in one of them (its preprocessing is held fixed).
    X : array-like, sparse matrix or sparse array of shape (n, p)
        The data that the model was fitted on.
    y : array-like of shape (n,) or (n, t)
    sample_weight : array-like of shape (n,), optional
        The weights that the model was fitted with.  A row leaves with its whole weight, and the risk is
        the weighted mean.

    Returns
    -------
    RiskEstimate

    Raises
    ------
    UnsupportedModelError
        If there is no formula for the model; the message names those that have one.
    NotFittedToDataError
        If the coefficients are far from optimal on X and y.
    SolverError
        If the model's objective has no finite minimum on these data.

    Warns
    -----
    NotOptimalWarning
        If polishing moved the coefficients by more than the solver's tolerance explains.
    UnreliableWarning
        If rows that determine their own fit carry a large share of the risk.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> est = onefit.loo(Lasso(alpha=0.1).fit(X, y), X, y)
    >>> print(f"{est.value:.0f} ± {est.std_error:.0f}")
    3020 ± 182
    """
    reading = read(model, X, y, sample_weight)
    with one_thread_if_small(reading.fit.problem.X):
        solution = _optimum(reading, type(model).__name__)
        left_out = one_fit.loo(*solution)
    result = estimate(
        left_out,
        reading.response,
        y,
        target=reading.target,
        sample_weight=None if sample_weight is None else check_weights(sample_weight, left_out.fit.problem.X),
        classes=reading.classes,
        notes=reading.notes,
    )
    warn_if_strained(result)
    return result


def _optimum(reading: Reading, name: str) -> Solution:
    """Polish what was fitted; refuse what was fitted on other data."""
    solution, missed, moved = polish(reading.fit)
    if missed > (OTHER_DATA if reading.iterates else OTHER_DATA_EXACT) and reading.converged:
        raise NotFittedToDataError(
            f"the coefficients of this {name} are far from optimal on X and y (they miss {missed:.1%} of the "
            "achievable decrease of its objective): pass the X, y and sample_weight that it was fitted on"
        )
    if missed > max(reading.tol, 1e-6):
        warnings.warn(
            f"the fitted coefficients of this {name} were not optimal: polishing moved them by {moved:.2g} "
            f"(relative) and the objective by {missed:.2g} of its achievable decrease. The result is for the "
            "polished model; refit with a smaller tol or a larger max_iter, and see that X and y are "
            "the data it was fitted on",
            NotOptimalWarning,
            stacklevel=3,
        )
    return solution

"""Ridge regression that tunes itself by leaving rows out."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike

from onefit.estimators.documented import documented
from onefit.estimators.self_tuned import SelfTuned
from onefit.estimators.strengths import mixed
from onefit.losses import Loss, Squared
from onefit.penalties import Penalty
from onefit.tuning.selection import Selection


@documented
class RidgeLOO(SelfTuned):
    """Ridge regression that chooses its strength by exact leave-one-out.

    Minimises Σ w (y − Xβ − b)² + alpha ‖β‖², the scale of ``sklearn.linear_model.Ridge``, for every
    strength from one eigendecomposition (Golub, Heath and Wahba 1979); with ``cv``, ``scoring``, groups, or
    columns that are treated differently, strength by strength.

    Stands in for ``RidgeCV``.  What differs: ``alphas`` may be a number; the default choice is not the
    smallest risk (``selection``); several targets have one strength; ``loo_`` holds what ``store_cv_results``
    would.  ``gcv_mode`` is not taken.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from ten times the largest eigenvalue of XᵀX down
        eight decades, and more at either end while the risk falls there; or the strengths themselves.
    <selection>
    fit_intercept : bool, default True
    <judged>
    <columns>
    <solver>

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were tried, strongest first.
    <paths>
    coef_path_ : (J, p) or (J, p, t) array
    intercept_path_ : (J,) or (J, t) array
    coef_ : (p,) or (t, p) array
    intercept_ : float or (t,) array
    <loo_>

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import RidgeLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RidgeLOO(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> model.alpha_, round(model.loo_.value)
    (0.1, 3005)
    """

    _several_targets = True
    _may_be_zero = True

    def __init__(
        self,
        alphas: int | ArrayLike = 100,
        *,
        selection: Selection = "bagged_se",
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: Any = None,
        positive: bool = False,
        bounds: Any = None,
        penalty_factors: ArrayLike | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.alphas = alphas
        self.selection = selection
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.positive = positive
        self.bounds = bounds
        self.penalty_factors = penalty_factors
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    def _loss(self, n_classes: int) -> Loss:
        return Squared()

    def _unit_penalty(self, ratio: float) -> Penalty:
        return mixed(ratio)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit at every strength and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,) or (n, t)
        sample_weight : array-like of shape (n,), optional
            A row leaves with its whole weight, and the risk is the weighted mean.
        groups : array-like of shape (n,), optional
            Rows that leave together; with ``cv`` they are for the splitter.
        """
        self._tune(X, y, sample_weight, groups)
        return self

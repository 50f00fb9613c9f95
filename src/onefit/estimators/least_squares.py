"""Ridge, lasso and elastic net, which tune themselves by leaving rows out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from onefit.estimators.documented import documented
from onefit.estimators.self_tuned import SelfTuned
from onefit.losses import Loss, Squared
from onefit.validation import is_count


@dataclass(eq=False, repr=False)
class _LeastSquares(SelfTuned):
    """Squared errors and a penalty."""

    _several_targets = True

    alphas: int | ArrayLike = 100

    def _loss(self, n_classes: int) -> Loss:
        return Squared()

    def fit(  # type: ignore[override]  # an offset is subtracted from y
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Fit at every strength and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,) or (n, t)
            Several targets have one strength, unless ``alpha_per_target`` is set.
        sample_weight : array-like of shape (n,), optional
            A row leaves with its whole weight, and the risk is the weighted mean.
        groups : array-like of shape (n,), optional
            Rows that leave together; with ``cv`` they are for the splitter.
        """
        return super().fit(X, y, sample_weight, groups)


@dataclass(eq=False, repr=False, kw_only=True)
class _AlongKinks(_LeastSquares):
    """A mean of squared errors and a penalty with an ℓ1 part, which is solved along its kinks."""

    _mean_scaled = True

    eps: float = 1e-3
    early_stopping: bool = True


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class RidgeLOO(_LeastSquares):
    """Ridge regression that chooses its strength by exact leave-one-out.

    Minimises Σ w (y − Xβ − b)² + alpha ‖β‖², the scale of ``sklearn.linear_model.Ridge``, for every
    strength from one eigendecomposition (Golub, Heath and Wahba 1979); with ``cv``, ``scoring``, groups, or
    columns that are treated differently, strength by strength.

    Stands in for ``RidgeCV``.  What differs: ``alphas`` may be a number; the default choice is not the
    smallest risk (``selection``); ``best_score_`` is corrected for the choice; ``loo_`` holds what
    ``store_cv_results`` would.  ``gcv_mode`` is not taken.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from ten times the largest eigenvalue of XᵀX down
        eight decades, and more at either end while the risk falls there; or the strengths themselves.
    alpha_per_target : bool, default False
        Whether each of t > 1 targets gets a strength of its own, the one that a fit to it alone would
        choose.  X is decomposed once, and targets are gone through in blocks: beside the data, a few arrays
        of shapes (n, t), (p, t) and (J, t) are held.  Only for single rows left out and squared errors.
    <selection>
    fit_intercept : bool, default True
    <judged>
    <columns>
    <solver>

    Attributes
    ----------
    alpha_ : float, or (t,) array with ``alpha_per_target``
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were tried, strongest first.
    <paths>
    coef_path_ : (J, p) or (J, p, t) array
    intercept_path_ : (J,) or (J, t) array
        With ``alpha_per_target`` these two are None, the other paths have the shape (J, t) and are NaN at
        strengths beyond those given where the risk of a target fell no longer; ``corrected_risk_`` and
        ``best_score_`` have the shape (t,), and take some milliseconds a target; ``confidence_set_`` is a
        list of t arrays.
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

    A strength for each of several targets:

    >>> import numpy as np
    >>> Y = np.column_stack([y, np.random.default_rng(0).normal(size=len(y))])
    >>> model = RidgeLOO(alphas=[0.01, 0.1, 1.0, 10.0], alpha_per_target=True).fit(X, Y)
    >>> model.alpha_, model.coef_.shape
    (array([0.1, 1. ]), (2, 10))
    """

    _may_be_zero = True

    alpha_per_target: bool = False


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ElasticNetLOO(_AlongKinks):
    """Elastic net that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.ElasticNet``.  The path is solved by active sets, to machine precision, and each
    point is judged with the factor that solved it.  On sparse columns, where a factor takes longer than
    coordinate descent, an automatic path visits three strengths a decade far from the smallest risk, whose
    objective is known to a millionth; the one that is chosen is solved to machine precision, too.

    Stands in for ``ElasticNetCV``.  What differs is what differs in ``LassoLOO``; and, on an automatic path,
    what ``l1_ratio`` is a share of.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero,
        or at which the ℓ2 part has shrunk them to a tenth, if that is smaller, down to ``eps`` times it, and
        more at either end while the risk falls there; or the strengths themselves.
    l1_ratio : float or array-like, default 0.5
        Share of the ℓ1 penalty, in (0, 1]; of several, the one with the smallest risk is chosen.  Beside an
        automatic path it is the share where y has standard deviation 1, so that the units of y change
        nothing, as in glmnet (Friedman, Hastie and Tibshirani 2010); beside strengths that are given it is
        scikit-learn's, of y as it is.  The units of X count, as in both: standardise the columns, or
        coefficients of columns in thousands are held by the ℓ1 part alone.
    <selection>
    <eps>
    <early_stopping>
    fit_intercept : bool, default True
    <judged>
    <columns>
    <solver>

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        What was chosen, both for y as it is: ``ElasticNet(alpha=alpha_, l1_ratio=l1_ratio_)`` is this model.
        Where y has standard deviation s and the path is automatic, ``l1_ratio_`` is s ρ / (s ρ + 1 − ρ) for
        the ρ that was given.  The path attributes below are those of the chosen ``l1_ratio_``.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    <paths>
    coef_path_ : (J, p) or (J, p, t) array
    intercept_path_ : (J,) or (J, t) array
    coef_ : (p,) or (t, p) array
    intercept_ : float or (t,) array
    <loo_>

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import ElasticNetLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ElasticNetLOO(l1_ratio=0.5).fit(X, y)  # y has standard deviation 77
    >>> round(model.l1_ratio_, 3)
    0.987
    """

    l1_ratio: float | ArrayLike = 0.5

    def _ratios(self, spread: float = 1.0) -> list[float]:
        try:
            ratios = np.atleast_1d(np.asarray(self.l1_ratio, dtype=np.float64))
        except (TypeError, ValueError):
            raise ValueError(
                f"l1_ratio must be a number or a list of numbers, got {self.l1_ratio!r}"
            ) from None
        if ratios.ndim != 1 or ratios.size == 0 or not np.all((ratios > 0) & (ratios <= 1)):
            raise ValueError(f"l1_ratio must lie in (0, 1] (0 is ridge: use RidgeLOO), got {self.l1_ratio!r}")
        # y and β divided by s: ρ ‖β/s‖₁ + ½ (1 − ρ) ‖β/s‖² = (ρ s ‖β‖₁ + ½ (1 − ρ) ‖β‖²) / s²
        unit = spread if is_count(self.alphas) and spread > 0 else 1.0
        return [float(ratio * unit / (ratio * unit + (1.0 - ratio))) for ratio in ratios]


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class LassoLOO(_AlongKinks):
    """Lasso that chooses its strength by leave-one-out along an exact path.

    Minimises ½ Σ w (y − Xβ − b)² / Σw + alpha ‖β‖₁, the scale of ``sklearn.linear_model.Lasso``.  The path is
    solved by active sets, to machine precision; leverages follow the support from one strength to the next
    (Wang et al. 2018, section 3.1).

    Stands in for ``LassoCV``.  What differs: ``cv=None`` is leave-one-out, not five folds; the default choice
    is not the smallest risk (``selection``); ``alphas`` is the number of strengths, too; ``risk_path_`` has
    one risk a strength where ``mse_path_`` has one a fold; several targets need no class of their own.
    ``precompute``, ``copy_X`` and ``random_state`` are not taken.

    Parameters
    ----------
    alphas : int or array-like, default 100
        So many strengths, evenly spaced in the logarithm from the smallest that makes all coefficients zero
        down to ``eps`` times it, and on while the risk falls; or the strengths themselves.
    <selection>
    <eps>
    <early_stopping>
    fit_intercept : bool, default True
    <judged>
    <columns>
    <solver>

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    <paths>
    coef_path_ : (J, p) or (J, p, t) array
    intercept_path_ : (J,) or (J, t) array
    coef_ : (p,) or (t, p) array
    intercept_ : float or (t,) array
    <loo_>

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit import LassoLOO
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LassoLOO(selection="1se").fit(X, y)
    >>> int((model.coef_ != 0).sum())
    7
    """

    def _ratios(self, spread: float = 1.0) -> list[float]:
        return [1.0]

"""Logistic and Poisson regression, which tune themselves by leaving rows out."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from onefit.estimators.documented import documented
from onefit.estimators.self_tuned import SelfTuned
from onefit.losses import Logistic, Loss, Multinomial, Poisson
from onefit.validation import check_share


@documented
@dataclass(eq=False, repr=False)
class LogisticLOO(SelfTuned):
    """Logistic regression that chooses its strength by leave-one-out.

    Minimises C Σ w log-loss + (l1_ratio ‖β‖₁ + ½ (1 − l1_ratio) ‖β‖²), the scale of
    ``sklearn.linear_model.LogisticRegression``; more than two classes are multinomial.

    Stands in for ``LogisticRegressionCV``.  What differs: ``cv=None`` is leave-one-out, not five folds; the
    choice goes by log-loss, not accuracy, unless ``scoring`` says otherwise, and is not the smallest risk
    (``selection``); ``l1_ratio`` takes several values (there ``l1_ratios``); ``C_`` is one number for all
    classes.  ``solver``, ``penalty``, ``dual``, ``intercept_scaling``, ``refit`` and ``random_state`` are not
    taken.

    Parameters
    ----------
    Cs : int or array-like, default 30
        So many inverse strengths, evenly spaced in the logarithm: for ridge over eight decades around the
        curvature of the constant model, and with an ℓ1 part from the largest that makes all coefficients zero
        up to 1e4 times it; more at either end while the risk falls there; or the values themselves.
    l1_ratio : float or array-like, default 0.0
        Share of the ℓ1 penalty: 0 is ridge, 1 the lasso; of several, the one with the smallest risk is
        chosen.
    <selection>
    <early_stopping>
    fit_intercept : bool, default True
    <judged>
    <class_weight>
    <columns>
    <solver>

    Attributes
    ----------
    C_, l1_ratio_ : float
        What was chosen; the path attributes below are those of the chosen ``l1_ratio_``.
    Cs_ : (J,) array
        Inverse strengths that were visited, strongest penalty first.
    <paths>
    coef_path_ : (J, p) or (J, p, c) array
        Those of strengths that are not the choice may be rounded to a millionth of the objective.
    intercept_path_ : (J,) or (J, c) array
    classes_ : (c,) array
    coef_ : (1, p) or (c, p) array
    intercept_ : (1,) or (c,) array
    <loo_>

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

    Cs: int | ArrayLike = 30
    _: KW_ONLY
    l1_ratio: float | ArrayLike = 0.0
    early_stopping: bool = True
    class_weight: Any = None

    def _loss(self, n_classes: int) -> Loss:
        return Multinomial(n_classes) if n_classes > 2 else Logistic()

    def _ratios(self, spread: float = 1.0) -> list[float]:
        given: list[Any] = [self.l1_ratio] if np.ndim(self.l1_ratio) == 0 else list(np.ravel(self.l1_ratio))
        if not given:
            raise ValueError(f"l1_ratio must be a number in [0, 1] or a list of some, got {self.l1_ratio!r}")
        for ratio in given:
            check_share("l1_ratio", ratio)
        return [float(ratio) for ratio in given]


@documented
@dataclass(eq=False, repr=False)
class PoissonLOO(SelfTuned):
    """Poisson regression with a ridge penalty that chooses its strength by leave-one-out.

    Minimises ½ mean deviance + ½ alpha ‖β‖², the scale of ``sklearn.linear_model.PoissonRegressor``.

    Stands in for ``GridSearchCV(PoissonRegressor(), {"alpha": ...})``; there is no CV class.  What differs:
    it takes an ``offset``, and goes by the left-out deviance.

    Parameters
    ----------
    alphas : int or array-like, default 30
        So many strengths, evenly spaced in the logarithm from ten times the mean curvature of the constant
        model down eight decades, and more at either end while the risk falls there; or the strengths
        themselves.
    <selection>
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
    coef_path_ : (J, p) array
        Those of strengths that are not the choice may be rounded to a millionth of the objective.
    intercept_path_ : (J,) array
    coef_ : (p,) array
    intercept_ : float
    <loo_>

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

    _mean_scaled = True

    alphas: int | ArrayLike = 30
    _: KW_ONLY
    early_stopping: bool = True

    def _loss(self, n_classes: int) -> Loss:
        return Poisson()

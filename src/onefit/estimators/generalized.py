"""Linear models with any loss and any penalty, fitted and tuned by leave-one-out, and how they are read back.

``onefit.loo`` reads what was fitted here; refits of a model that tuned itself keep its strength.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.linear_model import Ridge

from onefit import _linalg
from onefit._typing import Array
from onefit.estimators.documented import documented
from onefit.estimators.linear_model import LinearModel, check_determined, has_classes, takes_middle
from onefit.estimators.sample import Sample
from onefit.estimators.self_tuned import SelfTuned
from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.losses import LOSSES, Loss
from onefit.penalties import L2, PENALTIES, Penalty
from onefit.problem import Problem
from onefit.readers import Reading, as_fit
from onefit.refits import reference
from onefit.solvers.solve import solve
from onefit.validation import check_rows, check_weights, class_numbers


def _named_loss(loss: Any, n_classes: int) -> Loss:
    if isinstance(loss, Loss):
        return loss
    if loss not in tuple(LOSSES):
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or a Loss, got {loss!r}")
    return LOSSES[loss](n_classes)


def _named_penalty(penalty: Any) -> Penalty:
    if penalty is None:
        return L2(1.0)
    if isinstance(penalty, Penalty):
        return penalty
    if not isinstance(penalty, str):
        raise TypeError(f"penalty must be one of onefit.penalties, or a sum of two, got {penalty!r}")
    if penalty not in PENALTIES:
        raise ValueError(f"penalty must be one of {', '.join(PENALTIES)}, or a Penalty, got {penalty!r}")
    return PENALTIES[penalty]()


@dataclass(eq=False, repr=False)
class GeneralizedLinear(LinearModel):
    """Linear model with any loss and any penalty, solved to machine precision.

    Minimises Σ w_i ℓ(y_i, η_i) + P(β), η = X β + b: the sum over rows, not the mean, and the intercept is not
    penalised.

    Stands in for ``Ridge``, ``Lasso``, ``LogisticRegression``, ``QuantileRegressor`` and others where their
    loss or penalty is not enough.  What differs is the scale: the losses are summed, so
    that ``Lasso(alpha=a)`` on n rows is ``L1(n * a)`` here, and ``LogisticRegression(C=c)`` is ``L2(1 / c)``.

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

    loss: str | Loss = "squared"
    penalty: str | Penalty | None = None
    _: KW_ONLY
    fit_intercept: bool = True

    def _loss(self, n_classes: int) -> Loss:
        return _named_loss(self.loss, n_classes)

    def _find_penalty(self) -> Penalty:
        return _named_penalty(self.penalty)

    def _problem(self, X: Any, target: Array, weights: Array) -> Problem:
        outputs = self._outputs(target)
        intercept = np.full(outputs, bool(self.fit_intercept))
        loss, penalty = self._fitted_loss(), self._find_penalty()
        problem = Problem(loss, penalty, X, target, weights, intercept, takes_middle=takes_middle)
        check_determined(problem)
        return problem

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        """
        X, _, target, weights = self._check(X, y, sample_weight)
        with _linalg.one_thread_if_small(X):
            self._take(solve(Fit.at_start(self._problem(X, target, weights))).fit)
        return self


@documented
@dataclass(eq=False, repr=False)
class GeneralizedLinearLOO(SelfTuned):
    """Linear model with any loss and any penalty that chooses its strength by leave-one-out.

    Minimises Σ w_i ℓ(y_i, η_i) + alpha P(β), η = X β + b, along a path of strengths, each solved from the
    last and judged by leave-one-out from the same factor.

    Stands in for ``GridSearchCV(GeneralizedLinear(loss, penalty), {"penalty__alpha": ...})``, without refits.

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
    <selection>
    eps : float, default 1e-3
        Length of the automatic path before strengths are added.
    <early_stopping>
    fit_intercept : bool, default True
    <judged>
    <class_weight>
    <columns>
        For penalties on single columns: L1, L2, ElasticNet.
    <solver>

    Attributes
    ----------
    alpha_ : float
        Strength that was chosen.
    alphas_ : (J,) array
        Strengths that were visited, strongest first.
    penalty_ : Penalty
        ``penalty`` times ``alpha_``.
    <paths>
    coef_path_ : (J, p) or (J, p, c) array
    intercept_path_ : (J,) or (J, c) array
    coef_, intercept_, classes_
        As for ``GeneralizedLinear``.
    <loo_>

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

    loss: str | Loss = "squared"
    penalty: str | Penalty | None = None
    alphas: int | ArrayLike = 30
    _: KW_ONLY
    eps: float = 1e-3
    early_stopping: bool = True
    class_weight: Any = None

    def _loss(self, n_classes: int) -> Loss:
        return _named_loss(self.loss, n_classes)

    def _unit_penalty(self, ratio: float) -> Penalty:
        return _named_penalty(self.penalty)

    @property
    def penalty_(self) -> Penalty:
        """The penalty times ``alpha_``."""
        return self._unit_penalty(0.0).scaled(self.alpha_)


@reference.register(SelfTuned)
def _with_its_choice(model: SelfTuned) -> Any:
    """Return the unfitted estimator that keeps what was chosen: a refit must not choose anew."""
    if np.ndim(getattr(model, f"{model._strength}_")):
        return Ridge(model.alpha_, fit_intercept=model.fit_intercept)
    chosen: dict[str, Any] = {f"{model._strength}s": [getattr(model, f"{model._strength}_")]}
    chosen |= {"cv": None, "scoring": None}
    if "l1_ratio" in model.get_params():
        chosen["l1_ratio"] = model.l1_ratio_
    return clone(model).set_params(**chosen)


@as_fit.register(SelfTuned)
def _read(model: SelfTuned, X: Any, y: Any, sample_weight: Any) -> Reading:
    if model.offset_given_:
        raise UnsupportedModelError(
            f"this {type(model).__name__} was fitted with an offset, which onefit.loo is not given: its own "
            "leave-one-out is in model.loo_"
        )
    strength = getattr(model, f"{model._strength}_")
    if np.ndim(strength):  # one a target
        strength = np.broadcast_to(strength, (model.n_features_in_, len(strength)))
    ratio = getattr(model, "l1_ratio_", model._ratios()[0])
    return _reading(model, X, y, sample_weight, lambda sample: model._problem(sample, strength, ratio))


@as_fit.register(GeneralizedLinear)
def _read_of_one_strength(model: GeneralizedLinear, X: Any, y: Any, sample_weight: Any) -> Reading:
    return _reading(
        model, X, y, sample_weight, lambda sample: model._problem(sample.X, sample.target, sample.weights)
    )


def _reading(
    model: LinearModel, X: Any, y: Any, sample_weight: Any, problem_of: Callable[[Sample], Problem]
) -> Reading:
    """A fitted model on its rows, and what it minimised."""
    of_classes = has_classes(model)
    X, y = check_rows(model, X, y, numeric=not of_classes, several_outputs=model._several_targets)
    target = class_numbers(y, model.classes_).astype(np.float64) if of_classes else y
    problem = problem_of(Sample(X, y, target, check_weights(sample_weight, X)))
    reading = Reading(model._as_fit(problem), model._metric(), target, solved=isinstance(model, SelfTuned))
    return replace(reading, classes=model.classes_) if of_classes else reading

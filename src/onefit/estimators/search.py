"""``GradientSearchCV``: any number of hyperparameters by the gradient of a cross-validated risk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.metrics import get_scorer
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from onefit._scoring import as_scorer
from onefit._typing import Array
from onefit.api import evaluate, loo
from onefit.estimators.search_results import cv_results
from onefit.estimators.search_settings import (
    PerFeature,
    PerGroup,
    Simplex,
    check_combination,
    check_settings,
    risk_of,
    starting_point,
    warn_at_bounds,
    warn_if_misjudged,
    warn_without_effect,
)
from onefit.estimators.searched import SearchedModel, fit_weighted, is_grid, judge_grid
from onefit.exceptions import UnsupportedModelError
from onefit.leave_out.sets import Folds
from onefit.readers.kernels import in_length_scales
from onefit.risk.criteria import GCV, Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.risk.folds import as_folds
from onefit.risk.named import LeaveGroupOut, LeaveOneOut, Permutation, Splits
from onefit.tuning import judges
from onefit.tuning.descent import DescentPlan, Optimizer, descend
from onefit.tuning.held_out import HeldOutJudge
from onefit.tuning.judges import Judge
from onefit.tuning.objective import Objective, objective_of
from onefit.tuning.optimizers import Minimum
from onefit.validation import check_classes_stay, check_order, check_weights

Gradient: TypeAlias = Literal["exact", "2017"]
OF_THE_BEST = ("n_features_in_", "feature_names_in_", "classes_")  # attributes that a search takes over
__all__ = ["GradientSearchCV", "PerFeature", "PerGroup", "Simplex"]


@dataclass(eq=False, repr=False)
class GradientSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Search over hyperparameters by the gradient of a leave-one-out or cross-validated risk.

    Stands in for ``GridSearchCV`` where there are several hyperparameters, or hundreds: the implicit function
    theorem gives the gradient in all of them for about the price of one more solve.  At every step the
    problem is solved to machine precision from the last solution.

    Parameters
    ----------
    estimator : estimator
        ``GeneralizedLinear``, or a scikit-learn model that ``onefit.loo`` has a formula for, or a pipeline
        that ends in one.  The steps of a pipeline before it are fitted once, on all rows.
    param_bounds : dict, or list of dicts
        For each hyperparameter ``(low, high)``, ``(low, high, "log" | "linear")``, ``PerFeature``,
        ``PerGroup`` or ``Simplex``.  Pairs are searched in the logarithm where high/low is 50 or more.  Or
        for each a list of values: a grid, of which every point is judged by the risk, with no gradients,
        starts or bounds; or several of these grids in a list.
    risk : "loo", or one of onefit.risk, default "loo"
        ``KFold(5)``, ``MonteCarlo(128)``, ``HeldOut(0.25)``, ``LeaveGroupOut(groups)``, ``Split(cv)``: solved
        without each set.  ``GCV()``; ``Permutation()``, which holds nothing out.  "loo" is the formula of one
        Newton step a row.
    cv : int, splitter or iterable of (train, test), optional
        In place of ``risk``, as ``Split(cv)``; so many folds, stratified for classifiers.
    optimizer : {"auto", "lbfgs", "projected", "constant", "adam", "stochastic"}, default "auto"
        L-BFGS-B; projected gradient with Barzilai–Borwein steps; the same with steps of one length, as in the
        2019 paper; Adam; steps along the gradient of one row.
        L-BFGS-B takes bounds and no ``Simplex``: with one of these "auto" is "projected".  Else it is
        "lbfgs", or BFGS with the line search of Lewis and Overton (2013) where loss or metric have kinks,
        as those of support vector machines, in which L-BFGS-B ends too early.
    gradient : {"exact", "2017"}, default "exact"
        That of the risk, or the approximate one of Beirami et al. (2017, eq. 16).
    n_starts : int, default 1
        The first is up to three valleys of a coarse grid for one or two numbers; for more of them the lowest
        of 25 points and the middle of the bounds; for vectors the middle.  Each is gone down.  Further starts
        are random.
    start : dict, optional
        Hyperparameters to start from instead, by name; what it does not name starts in the middle.  A vector
        has one value a component: a feature, a group in sorted order, or a loss; or one for all.
    max_iter : int, default 100
    tol : float, default 1e-6
        Largest component of the projected gradient, as a share of the risk, at which to stop.
    learning_rate : float, default 0.1
        Of "adam" and "stochastic", and the length of "constant" steps relative to the gradient, all in the
        scale of the search: the logarithm, but for bounds that are "linear".
    scoring : str or callable, optional
        "mae", "mse", "rmse", "log-loss", "brier", "auc"; a name that ``sklearn.metrics.get_scorer`` knows; or
        ``scorer(estimator, X, y)``.  What ``best_score_`` reports, with its sign such that larger is better,
        and what a grid is chosen by: of all left-out predictions pooled.  Between bounds the search minimises
        the risk, which has a gradient.  Minus the risk if None.
    refit : bool, default True
        Whether to fit ``best_estimator_`` on all rows.
    callback : callable, optional
        Called with the hyperparameters and the risk after every step; ``KeyboardInterrupt`` in it, or at any
        time, ends the search with the best so far.
    n_jobs : int, optional
        Splits that are solved in parallel, as in joblib.
    random_state : int, RandomState instance or None, default None
        Of further starts and of "stochastic".

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        Larger is better.
    best_estimator_ : estimator
        Fitted on all rows; only if ``refit``.
    best_risk_ : RiskEstimate or Criterion
        Of ``best_estimator_``: its ``value`` is the risk, judged thoroughly (for ``Permutation`` that of
        leave-one-out).  Only if ``refit``.
    best_index_ : int
        Into ``cv_results_``.  Where the risk jumps, as the leave-one-out formula of a lasso does, the best
        points are judged thoroughly, and others may keep a better score that is not to be trusted.
    cv_results_ : dict
        "params", "param_<name>", "mean_test_score" and "rank_test_score" of every evaluation; with folds or
        splits also "split<k>_test_score" and "std_test_score".  Means are over rows, of all sets together.
    gradient_ : (m,) array
        Projected gradient at the best point, in the scale of the search; not for a grid.
    n_splits_ : int
        Sets that were left out: all rows for "loo"; not for ``GCV`` and ``Permutation``.
    n_iter_ : int
    message_ : str
        Why the search stopped.
    n_features_in_ : int

    Raises
    ------
    UnsupportedModelError
        For an estimator without gradients.
    ValueError
        For bounds that are none, an unknown hyperparameter, splits that lack a class, or a risk that is not
        finite anywhere.

    References
    ----------
    Beirami, Razaviyayn, Shahrampour and Tarokh (2017), On optimal generalizability in parametric learning;
    Wang et al. (2019), see ``onefit.gradients``.

    Notes
    -----
    Gradients are exact in what changes the penalty, in parameters of a loss, and in those of a kernel: the
    width of ``SVC``, ``SVR`` and ``KernelRidge``, or one length scale a feature where their kernel is an
    object of ``sklearn.gaussian_process.kernels`` (``kernel__length_scale``).  What changes the columns
    themselves goes by differences of the risk, as does leave-one-out of kernels and of losses with kinks
    whose weights are balanced or whose penalty shrinks with the rows, and GCV of losses with kinks.

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 20))
    >>> y = X[:, 0] - X[:, 1] + rng.normal(size=80)
    >>> model = onefit.GeneralizedLinear(penalty=onefit.penalties.ElasticNet())
    >>> search = onefit.GradientSearchCV(
    ...     model, {"penalty__alpha": (1e-2, 1e3), "penalty__l1_ratio": (0.05, 1.0, "linear")}
    ... ).fit(X, y)
    >>> bool(search.best_risk_.value < 1.7)
    True
    >>> weights = onefit.GradientSearchCV(
    ...     onefit.GeneralizedLinear(penalty=onefit.penalties.L2()),
    ...     {"penalty__alpha": onefit.PerFeature(1e-2, 1e4)},
    ... ).fit(X, y)
    >>> bool(weights.best_risk_.value < search.best_risk_.value)  # a strength for each of 20 features
    True
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> bounds = {"alpha": (1e-3, 1e1), "kernel__length_scale": onefit.PerFeature(1.0, 1e2)}
    >>> scales = onefit.GradientSearchCV(KernelRidge(kernel=RBF()), bounds, max_iter=20).fit(X, y)
    >>> bool(scales.best_params_["kernel__length_scale"].argmin() in (0, 1))  # the features that count
    True
    """

    estimator: Any
    param_bounds: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    _: KW_ONLY
    risk: Any = "loo"
    cv: Any = None
    optimizer: Optimizer = "auto"
    gradient: Gradient = "exact"
    n_starts: int = 1
    start: Mapping[str, Any] | None = None
    max_iter: int = 100
    tol: float = 1e-6
    learning_rate: float = 0.1
    scoring: str | Callable[..., float] | None = None
    refit: bool = True
    callback: Callable[[dict[str, Any], float], Any] | None = None
    n_jobs: int | None = None
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Search, and fit the best model.

        Parameters
        ----------
        X : (n, p) array-like or sparse matrix
        y : (n,) array-like
        sample_weight : (n,) array-like, optional
        groups : (n,) array-like, optional
            Rows that leave together, as with ``risk=LeaveGroupOut(groups)``; with ``cv`` they are for the
            splitter.
        """
        check_order(X, y, "fit(X, y)")
        if sample_weight is not None:
            check_weights(sample_weight, X)
        how = risk_of(self, X, y, groups)
        check_settings(self)
        self.multimetric_ = False
        grid = is_grid(self.param_bounds)
        check_combination(self, how, grid=grid)
        if grid:
            return self._fit_grid(how, X, y, sample_weight)
        bounds = cast("Mapping[str, Any]", self.param_bounds)
        model = SearchedModel.of(self.estimator, bounds, X, y, sample_weight)
        model.check_ends()
        judge = self._judge(how, model, X, y, sample_weight)
        if self.optimizer == "lbfgs" and not model.space.is_box:
            raise ValueError(
                "optimizer='lbfgs' knows bounds, not the simplex that weights of a mixture lie on: take "
                "'auto', 'projected' or 'adam'"
            )
        objective = objective_of(model.fitted, model.space, model.problem_at, judge, in_length_scales)
        plan = DescentPlan(
            self.optimizer,
            self.max_iter,
            self.tol,
            self.learning_rate,
            self.n_starts,
            np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1)),
            self.callback,
            None if self.start is None else starting_point(model.space, self.start),
        )
        found = descend(objective, plan)
        self._take(found, objective, how)
        self._finish(how, X, y, sample_weight, judge)
        warn_at_bounds(model.space, found.t)
        warn_without_effect(objective)
        return self

    def _judge(self, how: Any, model: SearchedModel, X: Any, y: Any, sample_weight: Any) -> Judge:
        reading = model.reading
        metric, target = reading.metric, reading.target
        n = reading.fit.problem.n
        weights = np.ones(n) if sample_weight is None else check_weights(sample_weight, X)
        shares = weights / weights.sum()
        splits = how.splits(n) if isinstance(how, Splits) else None
        if isinstance(how, Permutation):
            return judges.PermutedJudge.of(how, reading, shares)
        if isinstance(how, GCV):
            return judges.GeneralisedJudge(metric, target, shares)
        self.n_splits_ = n
        if splits is None or isinstance(how, LeaveOneOut):
            return judges.LeaveOneOutJudge(metric, target, shares, self.gradient == "exact")
        folds = as_folds(splits, X, y)
        self.n_splits_ = len(folds)
        if reading.classes is not None:
            check_classes_stay(folds.removed, target, weights)
        return HeldOutJudge(metric, target, weights, folds, self.n_jobs)

    def _take(self, found: Minimum, objective: Objective, how: Any) -> None:
        points, values, by_set = zip(*objective.visited, strict=True)
        best = next(
            i for i, t in enumerate(points) if values[i] == found.value and np.array_equal(t, found.t)
        )
        of_sets = [None if own is None or isinstance(how, LeaveGroupOut) else -own for own in by_set]
        self._keep([objective.space.values(t) for t in points], -np.asarray(values), best, of_sets)
        self.gradient_, self.n_iter_, self.message_ = found.gradient, found.n_iter, found.message

    def _keep(
        self, params: list[dict[str, Any]], scores: Array, best: int, by_set: Sequence[Array | None]
    ) -> None:
        for name in ("gradient_", "best_estimator_", "best_risk_", *OF_THE_BEST):  # of a search before
            self.__dict__.pop(name, None)
        self.cv_results_ = cv_results(params, scores, by_set)
        self.best_params_, self.best_index_, self.best_score_ = params[best], best, float(scores[best])

    def _fit_grid(self, how: Any, X: Any, y: Any, sample_weight: Any) -> Self:
        by_set = isinstance(how, Splits) and not isinstance(how, LeaveOneOut)
        folds = as_folds(how.splits(_num_samples(X)), X, y) if by_set else None
        if not isinstance(how, GCV):
            self.n_splits_ = _num_samples(X) if folds is None else len(folds)
        scorer, of_sets = None if self.scoring is None else as_scorer(self.scoring), list[Array | None]()

        def judged(model: Any) -> RiskEstimate | Criterion:
            risk = _thorough(model, how, folds, (X, y, sample_weight))
            known = None
            if folds is not None and isinstance(risk, RiskEstimate) and not isinstance(how, LeaveGroupOut):
                known = risk._by_set(folds, scorer)
            of_sets.append(known)
            return risk

        sample = X, y, sample_weight
        params, scores, best, model, risk = judge_grid(
            self.estimator, self.param_bounds, judged, sample, scorer, self.callback
        )
        m = len(scores)
        self._keep(params[:m], scores, best, of_sets[:m])
        self.n_iter_ = m
        self.message_ = "every point of the grid was judged" if m == len(params) else "interrupted"
        if self.refit:
            self._show(model)
            self.best_risk_ = risk
        return self

    def _finish(self, how: Any, X: Any, y: Any, sample_weight: Any, judge: Judge) -> None:
        """Fit the best model and judge it."""
        if not self.refit:
            return
        best = clone(self.estimator).set_params(**self.best_params_)
        fit_weighted(best, X, y, sample_weight)
        self._show(best)
        folds = judge.folds if isinstance(judge, HeldOutJudge) else None
        self.best_risk_ = _thorough(best, how, folds, (X, y, sample_weight))
        if isinstance(judge, judges.LeaveOneOutJudge):
            warn_if_misjudged(-self.best_score_, self.best_risk_)
        if isinstance(self.best_risk_, RiskEstimate) and self.scoring is not None:
            self.best_score_ = self.best_risk_.score(as_scorer(self.scoring))

    def _show(self, best: Any) -> None:
        self.best_estimator_ = best
        for name in OF_THE_BEST:
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))

    def _best(self) -> Any:
        if not self.refit:
            raise AttributeError(
                "refit=False fits no best estimator, which this needs: set refit=True, or fit "
                "estimator.set_params(**search.best_params_)"
            )
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any) -> Array:
        """What the best estimator predicts."""
        return self._best().predict(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities of the best estimator."""
        return self._best().predict_proba(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_log_proba"))
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities of the best estimator."""
        return self._best().predict_log_proba(X)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> Array:
        """Decision function of the best estimator."""
        return self._best().decision_function(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score of the best estimator on other data, by ``scoring`` or its own."""
        if self.scoring is None:
            return float(self._best().score(X, y, sample_weight))
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(get_scorer(as_scorer(self.scoring))(self._best(), X, y, **given))


def _thorough(
    best: Any, how: Any, folds: Folds | None, sample: tuple[Any, Any, Any]
) -> RiskEstimate | Criterion:
    """Judge a fitted model, on the very sets of the search where there are some, solved without each."""
    X, y, sample_weight = sample
    if folds is not None:
        own = how.groups if isinstance(how, LeaveGroupOut) else folds
        return loo(best, X, y, sample_weight, groups=own, exact=True)
    try:
        if how == "loo" or isinstance(how, Permutation):
            return loo(best, X, y, sample_weight)
        return evaluate(best, X, y, how, sample_weight)
    except UnsupportedModelError as error:
        why = error.__cause__ or error  # without what onefit.loo offers
        raise UnsupportedModelError(f"{why}. On a grid cv=5 judges any model, by refits") from error

"""onefit.loo and onefit.evaluate: the out-of-sample risk of a fitted model, without refitting it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples, check_consistent_length

from onefit._linalg import one_thread_if_small
from onefit._progress import progress_line
from onefit._typing import Array
from onefit.blocks import Rows
from onefit.blocks.fitted import loo_in_blocks
from onefit.exceptions import UnsupportedModelError
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.sets import Folds
from onefit.numerics import KNOWN
from onefit.optimum import optimum
from onefit.readers import Reading, read, warn_if_supervised
from onefit.refitted import GivenSample, audited, by_refits
from onefit.risk.audit import Lottery
from onefit.risk.criteria import Criterion, at_fit
from onefit.risk.estimate import RiskEstimate
from onefit.risk.folds import as_folds, is_grouping, numbers_of
from onefit.risk.judging import estimate, warn_if_unreliable, yardstick
from onefit.risk.named import InSample, LeaveOneOut, Permutation, Splits
from onefit.risk.readout import Readout
from onefit.sources import as_source
from onefit.tuning.judges import PermutedJudge
from onefit.validation import (
    check_audit,
    check_fitted,
    check_flag,
    check_given,
    check_max_error,
    check_rng,
    check_several_rows,
    check_unnamed,
    check_weights,
    columns_of,
    labels_of,
)


def loo(
    model: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    exact: bool = False,
    audit: int = 0,
    rng: int | np.random.Generator | None = None,
    *,
    max_error: float = KNOWN,
    predictions: Any = None,
) -> RiskEstimate:
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
        ``QuantileRegressor``, ``KernelRidge``, ``SVC``, ``SVR``, ``LinearSVC``, ``LinearSVR``, an estimator
        of onefit, or a ``Pipeline`` that ends in one of them (its preprocessing is held fixed); those of
        skglm, celer, glum, adelie and sortedl1; and results of ``OLS``, ``WLS`` and ``GLM`` of
        statsmodels, where X is ``results.model.exog``, with its constant.  Any
        other classifier or regressor that can be cloned, with ``audit`` or ``exact``.
    X : array-like, sparse matrix or sparse array of shape (n, p)
        The data that the model was fitted on.  Or a table that may be larger than memory, see
        ``onefit.sources``: then the result is a ``BlocksEstimate``, which keeps no row.
    y : array-like of shape (n,) or (n, t)
    sample_weight : array-like of shape (n,), optional
        The weights that the model was fitted with.  A row leaves with its whole weight, and the risk is
        the weighted mean.
    groups : array-like of shape (n,), scikit-learn splitter, or iterable of (train, test), optional
        Rows that leave together, one set a group; or the splits themselves, K folds for instance.  By the
        block formula, from the same fit (Wang et al. 2018; Woodbury).
    exact : bool, default False
        Make every left-out value that of its refit: certified rows are free, the others are followed along
        the exact path, get more steps, or are solved anew; ``refinement`` says what it took.  A model without
        a formula is refitted for every row.  ``joblib.parallel_config(n_jobs=…)`` makes refits parallel.
    audit : int, default 0
        So many rows (or sets), drawn at random, are left out by refitting clones of the estimator,
        pipelines with all their steps: ``audit.value`` of the result is unbiased whatever the approximation,
        ``audit.interval`` says how far it may be off, and ``value`` stays what the formula says.  30 is a
        good number.  Linear models start at their coefficients where they can, and
        ``joblib.parallel_config`` makes these refits parallel, too.
    rng : int or numpy Generator, optional
        For the draw.
    max_error : float, default 0.1
        How far the risk may be off, in its standard errors: rows are refined, those that may matter most
        first, until it is known to be that close.  0 is ``exact=True``.  Rows of a source take the default.
    predictions : array-like, optional
        Approximate left-out predictions for the audit of a model without a formula, in place of those of the
        model on its own training rows.

    Returns
    -------
    RiskEstimate

    Raises
    ------
    UnsupportedModelError
        If there is no formula for the model and neither ``audit`` nor ``exact`` asks for refits, or nothing
        can clone it, as the results of statsmodels.
    NotFittedToDataError
        If the coefficients are far from optimal on X and y.
    SolverError
        If the model's objective has no finite minimum on these data.

    Warns
    -----
    NotOptimalWarning
        If polishing moved the coefficients by more than the solver's tolerance explains.
    UnreliableWarning
        If the risk by a formula may be off by more than half of its standard error, is not finite, or rests
        on rows without which a class has none; if it lies outside of its audit's interval; or if steps of a
        pipeline before its last learn from y, as the selection of columns does, and no audit refits them.
        Of a model without a formula ``audit.interval`` tells how far it may be off.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Lasso(alpha=0.1).fit(X, y)
    >>> est = onefit.loo(model, X, y)
    >>> print(f"{est.value:.0f} ± {est.std_error:.0f}")
    3020 ± 182
    >>> weak = Lasso(alpha=0.05).fit(X, y)
    >>> print(onefit.loo(weak, X, y, exact=True).refinement)
    430 certified, 12 pivoted
    """
    audit = check_audit(audit)
    check_flag("exact", exact)
    check_rng(rng)
    source = _source_of(model, X, y, sample_weight)
    if source is not None:
        asked = {"groups": groups, "exact": exact or None, "audit": audit or None, "predictions": predictions}
        finer = None if check_max_error(max_error) == KNOWN else max_error
        return _in_blocks(model, source, **asked, max_error=finer)
    sample = GivenSample(model, X, y, sample_weight)
    folds = None if groups is None else as_folds(groups, X, y)
    try:
        reading = read(model, X, y, sample_weight)
    except UnsupportedModelError as error:
        if not hasattr(model, "get_params"):  # results of statsmodels, which nothing can clone
            raise
        if not (exact or audit):
            raise UnsupportedModelError(
                f"{error}. For any model that can be cloned, audit=30 estimates the risk from 30 refits, and "
                "exact=True refits for every row"
            ) from error
        return _without_formula(sample, folds, None if exact else (audit, rng), predictions)
    if predictions is not None:
        raise ValueError("predictions are for models without a formula: leave them out for this one")
    clusters = None if folds is None or not is_grouping(groups) else numbers_of(folds)
    result = _by_formula(sample, reading, folds, clusters, 0.0 if exact else check_max_error(max_error))
    if audit:
        result = replace(result, audit=audited(sample, reading, folds or _singles(X), result, audit, rng))
    else:
        warn_if_supervised(model, stacklevel=3)
    warn_if_unreliable(result)
    names = columns_of(model) if reading.names is None else reading.names
    return replace(result, labels=labels_of(X, y), columns=names)


def _source_of(model: Any, X: Any, y: Any, sample_weight: Any) -> Rows | None:
    """Check what every risk is asked of; the rows as a source, where they may not be held in memory."""
    check_fitted(model)
    source = as_source(X, y, sample_weight)
    if source is None:
        check_given(X)
        check_unnamed(y)
        check_consistent_length(X, y)
    return source


def _in_blocks(model: Any, source: Rows, **asked: Any) -> Any:
    """Leave-one-out over rows that are not held in memory: a ``BlocksEstimate``."""
    for name, value in asked.items():
        if value is not None:
            raise ValueError(
                f"{name} needs all rows at once: leave it out where rows come in blocks, or pass "
                "arrays in memory"
            )
    return loo_in_blocks(model, source)


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    risk: Splits | InSample | Permutation,
    sample_weight: Any = None,
    *,
    max_error: float = KNOWN,
) -> RiskEstimate | Criterion:
    """Estimate the risk of a fitted model by a named method.

    Parameters
    ----------
    model, X, y, sample_weight
        As for ``loo``.
    risk : Splits, InSample or Permutation
        One of ``onefit.risk``: ``LeaveOneOut()``, ``LeaveGroupOut(groups)``, ``KFold(5)``,
        ``MonteCarlo(128)``, ``LeaveQOut(5)``, ``HeldOut(0.25)``, ``Split(cv)``, ``GCV()``, ``SURE()``,
        ``ALO()``, ``LinearizedALO()``, ``InfluenceFunction()``, ``Permutation()``.
    max_error : float, default 0.1
        As for ``loo``, where rows leave; other risks are what their formulas say.

    Returns
    -------
    RiskEstimate or Criterion
        The former for what leaves rows out.

    Raises
    ------
    UnsupportedModelError, NotFittedToDataError, SolverError
        As ``loo`` does.
    TypeError
        If ``risk`` is none.
    ValueError
        If the risk is not for this model, as its class says; or if rows come as a source, of which
        ``LeaveOneOut()`` alone is known.

    Warns
    -----
    NotOptimalWarning, UnreliableWarning
        As ``loo`` does.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(0.1).fit(X, y)
    >>> round(onefit.evaluate(model, X, y, onefit.risk.KFold(10)).value)
    3000
    >>> round(onefit.evaluate(model, X, y, onefit.risk.GCV()).value)
    3007
    """
    if isinstance(risk, type) or not (isinstance(risk, Splits | Permutation) or hasattr(risk, "of")):
        raise TypeError(f"risk must be one of onefit.risk, such as onefit.risk.KFold(5), got {risk!r}")
    source = _source_of(model, X, y, sample_weight)
    if source is not None and not isinstance(risk, LeaveOneOut):
        raise ValueError(
            f"{type(risk).__name__} needs all rows at once, and a source is judged by LeaveOneOut() alone: "
            "take that, or pass arrays in memory"
        )
    if isinstance(risk, Splits):
        exact, groups = not risk.approximate, risk.splits(_num_samples(X)) if source is None else None
        return loo(model, X, y, sample_weight, groups=groups, exact=exact, max_error=max_error)
    warn_if_supervised(model, stacklevel=3)
    reading = read(model, X, y, sample_weight)
    with one_thread_if_small(reading.fit.problem.X):
        solution = optimum(reading, type(model).__name__)
        left_out = leave_out(solution.fit, max_error=np.inf, curvature=solution.curvature)
    weights = None if sample_weight is None else check_weights(sample_weight, left_out.fit.problem.X)
    if isinstance(risk, Permutation):
        return _permuted(risk, reading, left_out, weights)
    return risk.of(left_out, reading.metric, reading.target, weights)


def _permuted(risk: Permutation, reading: Reading, left_out: LeftOut, weights: Array | None) -> Criterion:
    """Judge by permutations: fits of the response and of T permutations of it."""
    shares = np.ones(left_out.fit.problem.n) if weights is None else weights
    judge = PermutedJudge.of(risk, reading, shares / shares.sum())
    value = judge.judge(left_out.fit.problem, [], gradient=False).value
    own, training = at_fit(left_out, reading.metric, reading.target, shares)
    return Criterion("permutation criterion", value, training, own.effective_df)


def _singles(X: Any) -> Folds:
    rows = tuple(np.arange(_num_samples(X))[:, None])
    return Folds(rows, rows, len(rows))


def _without_formula(
    sample: GivenSample, folds: Folds | None, lottery: Lottery | None, predictions: Any
) -> RiskEstimate:
    if sample.sample_weight is not None:
        check_weights(sample.sample_weight, sample.X)
    found = by_refits(sample, folds or _singles(sample.X), lottery, predictions)
    return replace(found, labels=labels_of(sample.X, sample.y))


def _by_formula(
    sample: GivenSample, reading: Reading, folds: Folds | None, clusters: Any, max_error: float
) -> RiskEstimate:
    with one_thread_if_small(reading.fit.problem.X):
        solution = optimum(reading, type(sample.model).__name__)
        weights = sample.sample_weight
        weights = None if weights is None else check_weights(weights, solution.fit.problem.X)
        if folds is None:
            check_several_rows(int(np.count_nonzero(solution.fit.problem.weights)))
        judge = yardstick(reading.metric, reading.target, weights)
        left_out = leave_out(
            solution.fit,
            folds,
            max_error,
            curvature=solution.curvature,
            yardstick=judge,
            progress=progress_line("solved anew"),
        )
    return estimate(
        left_out,
        reading.metric,
        sample.y,
        target=reading.target,
        sample_weight=weights,
        classes=reading.classes,
        notes=reading.notes,
        clusters=clusters,
        readout=None if reading.design is None else Readout(reading.metric, reading.design, reading.constant),
    )

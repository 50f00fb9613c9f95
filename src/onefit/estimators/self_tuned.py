"""What estimators that tune themselves by leave-one-out share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from onefit import _linalg
from onefit._typing import Array, Design
from onefit.fit import Fit
from onefit.leave_out import LeftOut
from onefit.losses import CoupledLoss
from onefit.metrics import LinearMetric
from onefit.problem import Problem
from onefit.risk.estimate import estimate, warn_if_unreliable
from onefit.tuning.grid import Grid, warn_if_short
from onefit.tuning.judgement import Judgement
from onefit.tuning.path import SearchResult, search_path, settle
from onefit.tuning.selection import SELECTIONS, Contest, Selection, contest
from onefit.validation import check_magnitude, check_strengths, check_weights, is_count

RIDGE_DECADES = (1.0, -7.0)  # automatic strengths, relative to the largest eigenvalue


class SelfTuned(BaseEstimator):
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

    def _check_choice(self) -> None:
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection must be 'bagged', 'min' or '1se', got {self.selection!r}")

    def _check_data(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[Design, Any, Array]:
        self._check_choice()
        X, y = validate_data(
            self, X, y, accept_sparse=("csr", "csc"), dtype=np.float64, ensure_min_samples=2, **checks
        )
        check_magnitude(X)
        return X, y, check_weights(sample_weight, X)

    def _take_path(self, result: SearchResult, weights: Array, *others: SearchResult) -> None:
        """Set the fitted attributes of a path, and warn where the strengths given were too few.

        Other paths, which the choice passed over, take part in the correction of the chosen risk.
        """
        visited, name = result.strengths, f"{self._strength}s"
        if not is_count(getattr(self, name)):
            warn_if_short(name, visited, result.risks, result.paired_errors)
        setattr(self, f"{self._strength}s_", visited)
        setattr(self, f"{self._strength}_", float(visited[result.best]))
        self.risk_path_ = result.risks
        self.std_error_path_ = result.std_errors
        self.paired_error_path_ = result.paired_errors
        self.coef_path_ = result.coefs
        self.intercept_path_ = result.levels
        held = result.contest
        if held is None or others:
            paths = [(path.losses, path.risks, path.paired_errors) for path in (result, *others)]
            held = contest(paths, weights, self.selection)
        self._contest: tuple[Any, ...] = tuple(held)

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

    def _judge(self, left_out: Any, metric: LinearMetric, y: Any, sample_weight: Any, **details: Any) -> None:
        """Set ``loo_``, and warn when it should not be trusted."""
        weights = None if sample_weight is None else left_out.fit.problem.weights
        self.loo_ = estimate(left_out, metric, y, sample_weight=weights, design=self._check_X, **details)
        warn_if_unreliable(self.loo_)


class PenalisedPath(SelfTuned):
    """Estimators whose path is solved strength by strength."""

    early_stopping: bool

    @abstractmethod
    def _problem(self, X: Design, y: Array, weights: Array, strength: float, ratio: float) -> Problem:
        """Return the problem at a strength on the estimator's own scale."""

    def _walk(
        self, data: tuple[Design, Array, Array], grid: Grid, ratio: float, metric: LinearMetric
    ) -> SearchResult:
        X, y, weights = data
        with _linalg.one_thread_if_small(X):
            in_dual = ratio == 0 and X.shape[1] > X.shape[0]
            in_dual = in_dual and not isinstance(self._problem(*data, 1.0, ratio).loss, CoupledLoss)
            # ridge with more columns than rows knows X only through its Gram matrix
            design = _linalg.RowGram(_linalg.row_gram(X, np.ones(X.shape[1]))) if in_dual else X
            result = search_path(
                grid,
                lambda strength: self._problem(design, y, weights, strength, ratio),
                Judgement(metric, y, weights),
                selection=self.selection,
                early_stopping=self.early_stopping,
            )
            return replace(result, coefs=_linalg.transposed_times(X, result.coefs.T).T) if in_dual else result

    def _settle(
        self, data: tuple[Design, Array, Array], result: SearchResult, ratio: float, metric: LinearMetric
    ) -> tuple[SearchResult, Fit, LeftOut]:
        _, y, weights = data
        return settle(
            result,
            lambda strength: self._problem(*data, strength, ratio),
            Judgement(metric, y, weights),
            self.selection,
        )


def automatic_or_given(
    name: str,
    given: Any,
    ends: Callable[[], tuple[float, float]],
    *,
    positive: bool = True,
    strongest: Callable[[], float] | None = None,
) -> Grid:
    """Strengths that were given, or so many between the ends, and beyond them where the risk falls."""
    automatic = is_count(given)
    values = check_strengths(name, given, ends, positive=positive)
    return Grid(values, automatic, strongest() if automatic and strongest is not None else None)


def ends_of_kinked(null: float, eps: float, curvature: Array, ridge: Array) -> tuple[float, float]:
    """Range of automatic strengths of a penalty with kinks, and perhaps an ℓ2 part.

    From the smallest strength that makes all coefficients zero, or that at which the ℓ2 part has shrunk them
    to about a tenth, if it comes later: down to ``eps`` times that.  An ℓ2 part does not know the units of
    the response, as the ℓ1 part does: with large numbers it is the one that matters, and the null model is
    many decades away.

    Parameters
    ----------
    null : float
        Strength that makes all coefficients zero.
    eps : float
    curvature : (p,) array
        Of the loss along each column, Σ w d (x − x̄)².
    ridge : (p,) array
        Strength of the ℓ2 part at strength one.
    """
    if not 0 < eps < 1:
        raise ValueError(f"eps must lie in (0, 1), got {eps!r}")
    held = (curvature > 0) & np.isfinite(ridge)
    shrinks = float(np.mean(ridge[held])) if held.any() else 0.0
    if shrinks <= 0:
        return null, eps * null
    high, usual = float(curvature[held].sum()), float(np.median(curvature[held]))
    reach = 10.0 ** RIDGE_DECADES[0] / shrinks
    return min(null, reach * high), eps * min(null, reach * usual)


def curvature_of_columns(start: Fit) -> Array:
    """Σ w d (x − x̄)² of each column at the constant model: (p,); with d = 1 where the loss is straight."""
    problem, hessian = start.problem, start.hessian
    if hessian.ndim > 1:  # one output like another
        hessian = np.einsum("icc->i", hessian) / hessian.shape[1]
    rows = hessian if np.any(hessian > 0) else problem.weights
    return _linalg.column_norms(problem.X, rows, centred=bool(np.all(problem.intercept))) ** 2


def decades(largest: float) -> tuple[float, float]:
    """Range of automatic ridge strengths."""
    high, low = RIDGE_DECADES
    scale = largest if largest > 0 else 1.0
    return scale * 10.0**high, scale * 10.0**low


def with_its_choice(model: SelfTuned) -> Any:
    """Return the unfitted estimator that keeps what was chosen: a refit must not choose anew."""
    chosen: dict[str, Any] = {f"{model._strength}s": [getattr(model, f"{model._strength}_")]}
    if "l1_ratio" in model.get_params() and hasattr(model, "l1_ratio_"):
        chosen["l1_ratio"] = model.l1_ratio_
    return clone(model).set_params(**chosen)

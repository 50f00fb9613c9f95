"""What estimators that tune themselves by leaving rows out share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from joblib import parallel_config
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from onefit import _linalg
from onefit._scoring import Pooled, check_scoring, mean_loss, row_losses
from onefit._typing import Array, Index
from onefit.blocks import ArrayRows, Rows, RowSums
from onefit.blocks.rows import SAMPLE, is_large, rows_of_sample
from onefit.cost import is_tall
from onefit.estimators.in_blocks import TunedOnRows, goes_in_passes, has_passes, tune_rows
from onefit.estimators.in_memory import spectrum_of, tuned_in_memory
from onefit.estimators.linear_model import has_classes
from onefit.estimators.of_sources import has_curved_passes, tune_curved, tune_source
from onefit.estimators.penalized import Penalized
from onefit.estimators.sample import Sample, leaving
from onefit.exceptions import SolverError, UnreliableWarning
from onefit.leave_out import LeftOut
from onefit.metrics import LinearMetric
from onefit.numerics import UNRELIABLE
from onefit.risk.estimate import RiskEstimate
from onefit.risk.judging import estimate, warn_if_unreliable
from onefit.risk.readout import Readout
from onefit.sources import as_source
from onefit.tuning.contest import Contests
from onefit.tuning.grid import warn_if_short
from onefit.tuning.judgement import Judgement, ScoredLosses
from onefit.tuning.path import JudgedPath
from onefit.tuning.ridge import search_ridge_each
from onefit.tuning.selection import SELECTIONS, Selection
from onefit.validation import (
    check_class_weight,
    check_classes_stay,
    check_flag,
    check_offset,
    check_several_rows,
    check_solver,
    columns_of,
    is_count,
    labels_of,
)

LITTLE = 0.01  # of the largest risk of a path: a smaller rise makes no other choice


@dataclass(eq=False, repr=False, kw_only=True)
class SelfTuned(Penalized):
    """A path of penalties, judged by what leaves rows out, and the best of it; with the parameters of all."""

    selection: Selection = "bagged_se"
    fit_intercept: bool = True
    cv: Any = None
    scoring: Any = None
    positive: bool = False
    bounds: Any = None
    penalty_factors: ArrayLike | Mapping[str, float] | None = None
    max_iter: int | None = None
    tol: float | None = None
    n_jobs: int | None = None
    alpha_per_target = False  # only of ridge
    loo_: Any = field(init=False)  # a RiskEstimate, or a BlocksEstimate of rows that are not in memory

    # --- fitting -------------------------------------------------------------------------------------

    def _sample(self, X: Any, y: Any, sample_weight: Any, groups: Any, offset: Any) -> Sample:
        labels = labels_of(X, y)
        X, given, target, weights = self._check(X, y, sample_weight)
        check_several_rows(int(np.count_nonzero(weights)))
        of_classes = has_classes(self)
        check_class_weight(self.class_weight, getattr(self, "classes_", None))
        sets, clusters = leaving(self.cv, groups, (X, given), classifier=of_classes)
        if of_classes and sets is not None:
            check_classes_stay(sets.removed, target, weights)
        known = None if offset is None else check_offset(offset, X.shape[0])
        return Sample(X, given, target, weights, sample_weight is not None, known, sets, clusters, labels)

    def _check_settings(self) -> None:
        if self.selection not in SELECTIONS:
            raise ValueError(
                f"selection must be one of {', '.join(map(repr, SELECTIONS))}, got {self.selection!r} (it is "
                "how the strength is chosen, not the order of a solver's coordinates)"
            )
        if self.scoring is not None:
            check_scoring(self.scoring)
        check_solver(self.max_iter, self.tol, self.n_jobs)
        check_flag("early_stopping", self.early_stopping)
        check_flag("alpha_per_target", self.alpha_per_target)
        self._ratios()

    def _judgement(self, sample: Sample) -> Judgement:
        metric: LinearMetric = self._metric()
        score = None if self.scoring is None else self._by_score(sample, metric)
        own = sample.metric_of_response(metric)
        return Judgement(own, sample.response, sample.weights, sample.sets, sample.clusters, score)

    def _by_score(self, sample: Sample, metric: LinearMetric) -> ScoredLosses:
        """Losses by ``scoring`` from left-out linear predictors."""
        pooled = partial(self._pooled, sample, metric)
        return ScoredLosses(
            lambda rows, eta: row_losses(self.scoring, pooled(rows, eta)),
            lambda rows, eta: mean_loss(self.scoring, pooled(rows, eta)),
        )

    def _pooled(self, sample: Sample, metric: LinearMetric, rows: Index, eta: Array) -> Pooled:
        eta = eta if sample.offset is None else eta + sample.offset[rows]
        return Pooled(
            np.asarray(sample.y)[rows],
            metric.predictions(eta),
            metric.decision(eta),
            metric.method,
            getattr(self, "classes_", None),
            sample.weights[rows] if sample.weighted else None,
        )

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, offset: Any = None
    ) -> Self:
        """Fit along the path and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
            Numbers or class labels.
        sample_weight : array-like of shape (n,), optional
            A row leaves with its whole weight, and the risk is the weighted mean.
        groups : array-like of shape (n,), optional
            Rows that leave together; with ``cv`` they are for the splitter.
        offset : array-like of shape (n,), optional
            Added to the linear predictors, for smooth losses of one output: to the log-odds of two classes
            those of a base model, for instance, and to the logarithm of a mean that of an exposure,
            ``np.log(exposure)``.
        """
        self._check_settings()
        source = as_source(X, y, sample_weight)
        if source is not None:
            with self._jobs():
                self._tune_source(source, groups, offset)
            return self
        sample = self._sample(X, y, sample_weight, groups, offset).held
        judgement = self._judgement(sample)
        if self._goes_in_blocks(sample, judgement):
            with self._jobs(), _linalg.one_thread(), suppress(SolverError):
                self._tune_in_blocks(sample, judgement)
                return self
        if self.alpha_per_target and sample.target[0].size > 1:
            self._tune_each(sample, judgement)
            return self
        with self._jobs(), _linalg.one_thread_if_small(sample.X):
            found = tuned_in_memory(self, sample, judgement)
        self._take_path(found.path, found.ratio)
        self._take_choice(sample, found.left_out)
        return self

    def _tune_each(self, sample: Sample, judgement: Judgement) -> None:
        """Choose a strength for each target, from one eigendecomposition."""
        if not (judgement.is_of_squares and self._is_plain_ridge(0.0)):
            raise ValueError(
                "alpha_per_target=True leaves out single rows and judges by squared errors: it goes with "
                "neither cv, scoring, groups, bounds, positive nor penalty_factors. Fit one model a target"
            )
        with self._jobs(), _linalg.one_thread_if_small(sample.X):
            spectrum, grid = spectrum_of(self, sample)
            result = search_ridge_each(spectrum, grid, self.selection)
            left_out = spectrum.left_out(result.strengths[result.best])
        self._take_path(result)
        self._take_choice(sample, left_out)

    def _take_choice(self, sample: Sample, left_out: LeftOut) -> None:
        """Set what the fit at the choice says."""
        self._take(left_out.fit)
        self.n_iter_ = len(getattr(self, f"{self._strength}s_"))
        self.offset_given_ = sample.offset is not None
        self._judge(sample, left_out)

    def _jobs(self) -> AbstractContextManager[Any]:
        """Threads and processes as ``n_jobs`` asks for them, from the moment it is made."""
        return nullcontext() if self.n_jobs is None else parallel_config(n_jobs=self.n_jobs)

    def _tune_source(self, rows: Rows, groups: Any, offset: Any) -> None:
        """Tune on rows that are not held in memory."""
        with _linalg.one_thread():
            found = tune_source(self, rows, groups, offset)
        self.n_features_in_ = rows.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        if rows.names is not None:
            self.feature_names_in_ = np.array(rows.names, dtype=object)
        if found.classes is not None:
            self.classes_ = found.classes
        self._take_rows(found)
        self.loo_ = found.estimate(rows)
        self._take_risk(found.path.best, "arrays in memory have rows that move far solved")

    def _goes_in_blocks(self, sample: Sample, judgement: Judgement) -> bool:
        """Whether passes over the rows are cheaper than a fit at a time."""
        one_output = sample.target.ndim == 1
        if not (judgement.is_by_row and sample.offset is None):
            return False
        if not one_output and (self.positive or not self._mean_scaled):
            return False
        if has_passes(self):
            return goes_in_passes(self, sample)
        if not one_output:
            return False
        (n, p), large = sample.X.shape, isinstance(sample.X, np.ndarray) and is_large(*sample.X.shape)
        starts_near = rows_of_sample(p) * p <= SAMPLE  # passes begin at the solutions on a sample of rows
        return large and is_tall(n, p) and starts_near and has_curved_passes(self)

    def _tune_in_blocks(self, sample: Sample, judgement: Judgement) -> None:
        y = sample.y if has_classes(self) else sample.target
        rows = ArrayRows(sample.X, y, sample.given_weights, n_jobs=self.n_jobs)
        found = tune_rows(self, rows, rows.total(RowSums.of)) if has_passes(self) else tune_curved(self, rows)
        self._take_rows(found)
        problem = self._problem(sample, float(found.path.strengths[found.path.best]), found.ratio)
        self._judge(sample, found.left_out(problem, rows, judgement))
        self._take_risk(found.path.best, "compare it with onefit.loo of models at strengths near by")

    def _take_risk(self, best: int, remedy: str) -> None:
        """Tell the path what is known of the choice, of which it knows less.

        Warns
        -----
        UnreliableWarning
            Where it knew so little that another strength may be the better choice.
        """
        thought = float(self.risk_path_[best])
        matters = max(UNRELIABLE * self.loo_.std_error, LITTLE * float(np.nanmax(self.risk_path_)))
        if self.loo_.value - thought > matters:
            warnings.warn(
                f"at the strength that was chosen the {self.loo_.loss_name} is {self.loo_.value:.4g}, where "
                f"one step for each row told {thought:.4g}: others, which are known by such steps, may be "
                f"better; {remedy}",
                UnreliableWarning,
                stacklevel=4,
            )
        self.risk_path_[best], self.std_error_path_[best] = self.loo_.value, self.loo_.std_error
        self.approx_error_path_[best] = self.loo_.approx_error
        self.guarantee_path_[best] = self.loo_.guarantee

    def _take_rows(self, found: TunedOnRows) -> None:
        """Set what passes over the rows found."""
        path = found.path
        self._take_path(path, found.ratio)
        self.coef_, self.intercept_ = found.coefficients
        self.n_iter_ = len(path.strengths)
        self.offset_given_ = False

    # --- what was found ------------------------------------------------------------------------------

    def _take_path(self, result: JudgedPath, ratio: float = 0.0) -> None:
        """Set the fitted attributes of a path and its share of ℓ1, and warn where its strengths were too few.

        Other paths, which the choice passed over, take part in the contest that corrects the chosen risk.
        """
        visited, name = result.strengths, f"{self._strength}s"
        self._places = result.places
        if not is_count(getattr(self, name)):
            warn_if_short(name, visited, result.criterion, result.paired_errors)
        setattr(self, f"{self._strength}s_", visited)
        chosen = visited[result.best]  # one for all targets, or one each
        setattr(self, f"{self._strength}_", chosen if np.ndim(chosen) else float(chosen))
        self.risk_path_ = result.risks
        self.std_error_path_ = result.std_errors
        self.paired_error_path_ = result.paired_errors
        self.approx_error_path_, self.guarantee_path_ = result.approx_errors, result.guarantees
        self.coef_path_ = result.coefs
        self.intercept_path_ = None if result.levels is None else self._without_common(result.levels)
        if hasattr(self, "l1_ratio"):
            self.l1_ratio_ = ratio
        assert result.contests is not None
        self._contests: tuple[Any, ...] = tuple(result.contests)

    @property
    def confidence_set_(self) -> Any:
        """Strengths that cannot be told from the best at 95 %, strongest penalty first; of each target."""
        check_is_fitted(self)
        visited = getattr(self, f"{self._strength}s_")
        within = (one.confidence_set() for one in Contests(*self._contests).each())
        sets = [visited[np.isin(self._places, places)] for places in within]
        return sets if np.ndim(getattr(self, f"{self._strength}_")) else sets[0]

    @property
    def corrected_risk_(self) -> Any:
        """Risk of the tuned model, or of each target, corrected for the choice among many."""
        check_is_fitted(self)
        risks = np.array([one.corrected_risk() for one in Contests(*self._contests).each()])
        return risks if np.ndim(getattr(self, f"{self._strength}_")) else float(risks[0])

    @property
    def best_score_(self) -> Any:
        """Minus ``corrected_risk_``: larger is better, as in scikit-learn."""
        return -self.corrected_risk_

    def _judge(self, sample: Sample, left_out: LeftOut) -> None:
        """Set ``loo_``, and warn when it should not be trusted."""
        self.loo_ = self._estimate(sample, left_out)
        warn_if_unreliable(self.loo_)

    def _estimate(self, sample: Sample, left_out: LeftOut) -> RiskEstimate:
        """The risk of all rows, as they were given."""
        sample, left_out = sample.of_everyone(left_out)
        metric = self._metric()
        found = estimate(
            left_out,
            sample.metric_of_response(metric),
            sample.y,
            target=sample.response,
            sample_weight=sample.given_weights,
            classes=getattr(self, "classes_", None),
            clusters=sample.clusters,
            readout=Readout(metric, self._check_X, 0.0, 0.0 if sample.offset is None else sample.offset),
        )
        found = sample.with_offset(found, metric)
        return replace(found, labels=sample.labels, columns=columns_of(self))

    def plot(self, ax: Any = None) -> Any:
        """Risk along the path with its errors, and the choice: a ``RiskPathDisplay``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        """
        from onefit.displays import RiskPathDisplay

        check_is_fitted(self)
        return RiskPathDisplay.from_estimator(self).plot(ax)

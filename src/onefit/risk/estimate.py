"""The result: a risk, its error, the value of every row, and which rows not to trust."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onefit._scoring import Pooled, score
from onefit._typing import Array, Design, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.leave_out import LeftOut, Refinement
from onefit.leave_out.departure import Departures
from onefit.leave_out.engine import Yardstick
from onefit.leave_out.sets import Folds
from onefit.metrics import LinearMetric
from onefit.numerics import EXACT, FLAGGED, TINY
from onefit.risk.audit import Audit
from onefit.risk.coefficients import CoefficientTable, coefficient_table
from onefit.risk.influence import Influence, influence
from onefit.risk.interval import Method, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onefit.displays import LeftOutDisplay

LONE_SHARE = 0.1  # share of the risk that rows may carry whose refits would not know their class
UNRELIABLE = 0.5  # standard errors by which a risk may be off before we warn


class Readout(NamedTuple):
    """How the linear predictors of new rows are had, and what they mean."""

    response: LinearMetric
    design: Callable[[Any], Design]
    constant: float


@dataclass(frozen=True, eq=False)
class RiskEstimate:
    """Out-of-sample risk of a fitted model by leave-one-out.

    Attributes
    ----------
    value : float
        Weighted mean of ``losses``.
    std_error : float
        Its sampling standard error: standard deviation of ``losses`` over √n.
    losses : (n,) array
        Loss of each row when that row is left out.
    predictions : (n,) or (n, c) array
        What ``predict``, ``predict_proba`` or ``decision_function`` of each refit returns.
    decision : (n,) or (n, c) array
        Left-out linear predictors.
    fitted : (n,) or (n, c) array
        Linear predictors with all rows in.
    leverages : (n,) array
        d_i h_i; the trace of D_i H_i for several classes, the mean over several independent outputs.
    effective_df : float
        Their sum, the effective degrees of freedom.
    y : array
        The response that was given.
    sample_weight : (n,) array or None
    classes : array or None
        Class labels, for classifiers.
    loss_name, method : str
        What ``losses`` and ``predictions`` are.
    approx_error : float
        ``value`` is within this of the mean over exact refits; infinite where that is not known.
    guarantee : {"exact", "bounded", "sampled", "rough"}
        How that is known: to numerical precision, proven, at 95 % confidence from refits of a few rows, or
        not at all.
    bounds : (n,) array
        How far each left-out linear predictor may be off: 0 where it is exact, infinite where nothing is
        known.  For class scores, their differences.
    notes : tuple of str
        What was held fixed or assumed.
    rows : (n,) int array
        The row that each entry of the arrays above is for: 0 … n − 1, unless splits leave rows out more or
        less often than once.
    audit : Audit or None
        Unbiased estimate from a few refits of the estimator, where asked for.
    refinement : Refinement or None
        What it took to make every value exact, where asked for.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> est = onefit.loo(Ridge(alpha=0.1).fit(X, y), X, y)
    >>> print(f"{est.value:.0f} ± {est.std_error:.0f}, {est.guarantee}, R² {est.score('r2'):.2f}")
    3005 ± 182, exact, R² 0.49
    >>> est.predictions.shape, est.losses.shape, est.flagged.size
    ((442,), (442,), 0)
    """

    value: float
    std_error: float
    losses: Array
    predictions: Array
    decision: Array
    fitted: Array
    leverages: Array
    effective_df: float
    y: Any
    sample_weight: Array | None
    classes: Any | None
    loss_name: str
    method: str
    approx_error: float
    guarantee: str
    bounds: Array
    certified: Mask
    rows: Index
    notes: tuple[str, ...] = ()
    audit: Audit | None = None
    refinement: Refinement | None = None
    _by_row: bool = field(default=True, repr=False)
    _lone: Mask | None = field(default=None, repr=False)  # whose refit would not know all classes
    _readout: Readout | None = field(default=None, repr=False)
    _left_out: LeftOut | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the data behind: a saved result holds one value a row, never X."""
        return {**self.__dict__, "_left_out": None, "_readout": None}

    @property
    def flagged(self) -> Index:
        """Row numbers that may be off by more than 1 % of the spread of the linear predictors.

        Also those without which a class has no row left.
        """
        spread = float(np.max(np.std(np.asarray(self.fitted), axis=0), initial=0.0))
        off = ~(self.bounds <= FLAGGED * max(spread, TINY)) & ~self.certified
        return np.flatnonzero(off if self._lone is None else off | self._lone)

    def _share(self, rows: Mask) -> float:
        """Share of the risk that some rows carry."""
        weights = np.ones(len(self.losses)) if self.sample_weight is None else self.sample_weight[self.rows]
        carried = weights * self.losses
        return float(carried[rows].sum() / max(carried.sum(), TINY))

    def score(self, scoring: str | Callable[..., float]) -> float:
        """Score of all left-out predictions pooled, by any scikit-learn scorer.

        Parameters
        ----------
        scoring : str or callable
            A name that ``sklearn.metrics.get_scorer`` knows, or ``scorer(estimator, X, y)``.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True)
        >>> round(onefit.loo(Ridge(0.1).fit(X, y), X, y).score("r2"), 3)
        0.493
        """
        return score(scoring, self._pooled)

    @property
    def _pooled(self) -> Pooled:
        return Pooled(
            np.asarray(self.y)[self.rows],
            self.predictions,
            self.decision,
            self.method,
            self.classes,
            None if self.sample_weight is None else self.sample_weight[self.rows],
        )

    def coef(self) -> Array:
        """Coefficients without each row: (n, p), or (n, c, p) as in ``coef_`` of several outputs.

        For a kernel model the dual ones.  Computed when asked for, from one more factorisation; they are
        those of the refits where ``certified``, and to the order of the formula elsewhere.  With a curved
        loss and ``exact=True`` they take a refit of each row.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True)
        >>> onefit.loo(Ridge(0.1).fit(X, y), X, y).coef().shape
        (442, 10)
        """
        departures, readout = self._departures("coef()")
        p = departures.fit.coef.shape[0] - bool(readout.constant)
        parts = [departures.changes(rows).coef for rows in departures.blocks()]
        coef = np.concatenate(parts, axis=-1) + departures.fit.coef[..., None]
        coef = coef[:, 0] if self._has_scale(departures) else coef
        return np.moveaxis(coef[:p], -1, 0) if coef.ndim == 2 else coef[:p].transpose(2, 1, 0)

    def intercept(self) -> Array:
        """Intercepts without each row: (n,) or (n, c)."""
        departures, readout = self._departures("intercept()")
        changes = [departures.changes(rows) for rows in departures.blocks()]
        if readout.constant:
            last = [departures.fit.coef[-1, ..., None] + change.coef[-1] for change in changes]
            return readout.constant * np.concatenate(last, axis=-1).T
        level = np.concatenate(
            [departures.fit.intercept[..., None] + change.intercept for change in changes], -1
        ).T
        return level[:, 0] if self._has_scale(departures) else level

    def _has_scale(self, departures: Departures) -> bool:
        """Whether a scale was estimated along, which is no coefficient."""
        return self.decision.ndim < departures.fit.eta.ndim

    def coef_table(
        self, names: Sequence[str] | None = None, *, scale: Any = 1.0, centre: Any = 0.0
    ) -> CoefficientTable:
        """Coefficients with their jackknife errors, from the fits without each row: ``CoefficientTable``.

        Parameters
        ----------
        names : sequence of str, optional
            p names; column numbers if missing.
        scale, centre : float or (p,) array
            Where X holds (x − centre) / scale, the table is in the units of x.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> table = onefit.loo(Ridge(0.1).fit(X, y), X, y).coef_table(list(X))
        >>> print(f"{table.names[2]}: {table.coef[2]:.0f} ± {table.std_error[2]:.0f}")
        bmi: 490 ± 59
        """
        departures, readout = self._departures("coef_table()")
        return coefficient_table(
            departures, names, constant=readout.constant, scale=scale, centre=centre, ndim=self.decision.ndim
        )

    def interval(self, X: Any, coverage: float = 0.9, method: Method = "plus") -> Array:
        """Predictive intervals for new rows by the jackknife+, without a refit.

        They need no assumption on the noise: if rows are exchangeable, a new response lies inside with
        probability at least 2 · coverage − 1 (in practice about ``coverage``); with ``method="minmax"``,
        which is wider, with at least ``coverage`` (Barber, Candès, Ramdas and Tibshirani 2021, Theorems 1
        and 2).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (m, p)
            New rows, as the model takes them.
        coverage : float, default 0.9
        method : {"plus", "minmax"}, default "plus"

        Returns
        -------
        (m, 2) array, or (m, t, 2) for several outputs
            In the units of the response; infinite where n rows are too few for the coverage.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True)
        >>> est = onefit.loo(Ridge(0.1).fit(X[10:], y[10:]), X[10:], y[10:])
        >>> est.interval(X[:2], coverage=0.8).round()
        array([[129., 273.],
               [  2., 145.]])
        """
        if self.classes is not None:
            raise ValueError("interval() is for regressors: a class has no interval")
        if method not in ("plus", "minmax"):
            raise ValueError(f"method must be 'plus' or 'minmax', got {method!r}")
        if not 0 < float(coverage) < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        departures, readout = self._departures("interval()")
        y = np.asarray(self.y, dtype=np.float64).reshape(self.predictions.shape)
        return interval(departures, readout.response, y, readout.design(X), coverage, method)

    def influence(self, top: int | None = None) -> Influence:
        """How much each row moves the fit: Cook's distance and DFBETAS.

        Parameters
        ----------
        top : int, optional
            DFBETAS of so many rows only, the most influential ones: with many rows and columns the matrix
            of all of them would not fit into memory.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Lasso
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True)
        >>> onefit.loo(Lasso(0.1).fit(X, y), X, y).influence().rows[:3]
        array([...])
        """
        departures, readout = self._departures("influence()")
        found = influence(departures, self.effective_df, constant=bool(readout.constant), top=top)
        return replace(found, dfbetas=found.dfbetas[:, 0]) if self._has_scale(departures) else found

    def _what_is_missing(self) -> str:
        if np.isnan(self.effective_df):
            return "there is no formula for this model"
        if self._left_out is None:
            return "they are not kept with a saved result: call onefit.loo(model, X, y) again"
        return "rows left together: call onefit.loo(model, X, y) without groups"

    def _departures(self, asked: str) -> tuple[Departures, Readout]:
        if self._left_out is None or self._left_out.sets is not None or self._readout is None:
            raise ValueError(f"{asked} needs the fits without each row, and {self._what_is_missing()}")
        return Departures(self._left_out), self._readout

    def plot(self, ax: Axes | None = None) -> LeftOutDisplay:
        """Left-out against fitted values, coloured by leverage."""
        from onefit.displays import LeftOutDisplay

        return LeftOutDisplay(
            fitted=self.fitted,
            left_out=self.decision,
            leverages=np.nan_to_num(self.leverages),
            flagged=self.flagged,
        ).plot(ax)

    def __str__(self) -> str:
        name = "leave-one-out " if self._by_row else "left-out "
        rows = [
            (name + self.loss_name, f"{self.value:.6g} ± {self.std_error:.2g}"),
            ("rows", f"{len(self.losses)}"),
        ]
        if np.isfinite(self.effective_df):
            rows.append(("effective df", f"{self.effective_df:.4g}"))
            rows.append(("largest leverage", f"{self.leverages.max():.3g}"))
        if self.audit is not None:
            rows.append(("audited, 95 %", str(self.audit)))
        if self.refinement is not None:
            rows.append(("made exact", str(self.refinement)))
        rows.append(("trust", self._trust()))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def _trust(self) -> str:
        """What the value is worth, in a line."""
        if self.guarantee == "exact":
            return "exact: what refitting without each would give"
        if self.guarantee == "rough":
            return "rough: some rows could not be checked; exact=True or audit=30 tells"
        how = "proven" if self.guarantee == "bounded" else "95 %, from refits of a few rows"
        return f"within {self.approx_error:.2g} of refitting without each ({how})"


def estimate(
    left_out: LeftOut,
    response: LinearMetric,
    y: Any,
    *,
    target: Array | None = None,
    sample_weight: Array | None = None,
    classes: Any | None = None,
    notes: tuple[str, ...] = (),
    clusters: Any | None = None,
    design: Callable[[Any], Design] | None = None,
    constant: float = 0.0,
) -> RiskEstimate:
    """Judge left-out linear predictors.

    Parameters
    ----------
    left_out : LeftOut
    response : LinearMetric
    y : array
        Response in the user's terms.
    target : array, optional
        Response in the terms of ``response`` (class numbers for classifiers), if other than ``y``.
    sample_weight : (n,) array, optional
    classes : array, optional
    notes : tuple of str
    clusters : (n,) array, optional
        Rows of the same cluster are not independent, and the standard error is that of the clusters.
    design : callable, optional
        From new rows, as the model takes them, to rows of the fit's X.
    constant : float
        Value of the last column of the fit's X where that stands for the intercept, else 0.
    """
    order = left_out.order
    rows, eta, bounds = left_out.rows[order], left_out.eta[order], left_out.bounds[order]
    target = np.asarray(y) if target is None else target
    losses = response.losses(target[rows], eta)
    weights = np.ones(len(losses)) if sample_weight is None else sample_weight[rows]
    clusters = rows if clusters is None else np.asarray(clusters)[rows]
    value, std_error = mean_and_error(*clustered(losses, weights, clusters))
    lone = class_lost(y, classes, sample_weight, left_out)[order]
    spread = np.where(weights > 0, weights * response.spread(target[rows], eta, bounds), 0.0)
    error, guarantee = float(spread.sum() / weights.sum()), "bounded"
    if left_out.correction is not None:
        value, error = value + left_out.correction.difference, left_out.correction.error
        guarantee = "sampled"
    elif not error < np.inf:
        error, guarantee = float("inf"), "rough"
    elif error <= EXACT * max(abs(value), TINY):
        guarantee = "exact"
    return RiskEstimate(
        value=value,
        std_error=std_error,
        losses=losses,
        predictions=response.predictions(eta),
        decision=response.decision(eta),
        fitted=response.decision(left_out.fit.eta)[rows],
        leverages=left_out.leverages[rows],
        effective_df=left_out.effective_df,
        y=y,
        sample_weight=sample_weight,
        classes=classes,
        loss_name=response.loss_name,
        method=response.method,
        approx_error=error,
        guarantee=guarantee,
        bounds=bounds,
        certified=left_out.certified[order] & ~lone,
        rows=rows,
        notes=(*notes, *_about(left_out, rows[lone])),
        refinement=left_out.refinement,
        _by_row=left_out.sets is None,
        _lone=lone,
        _left_out=left_out,
        _readout=None if design is None else Readout(response, design, constant),
    )


def yardstick(response: LinearMetric, target: Array, weights: Array | None) -> Yardstick:
    """How the engine judges errors: by the loss that is reported."""
    return Yardstick(
        losses=lambda rows, eta: response.losses(target[rows], eta),
        spread=lambda rows, eta, bounds: response.spread(target[rows], eta, bounds),
        weights=np.ones(len(target)) if weights is None else weights,
    )


def estimate_by_refits(
    losses: Array,
    predictions: Array,
    fitted: Array,
    *,
    y: Any,
    sample_weight: Array | None,
    folds: Folds,
    done: Mask,
    audit: Audit | None,
    classes: Any | None,
    loss_name: str,
    method: str,
) -> RiskEstimate:
    """Judge predictions of refits, and of the model itself where there was none.

    Parameters
    ----------
    losses, predictions : arrays
        Of each of ``folds.rows``.
    fitted : array
        Predictions of the model for all rows.
    done : bool array
        Which of ``folds.rows`` were refitted.
    audit : Audit or None
        Then its value is the risk, and the mean of the losses of no meaning.
    """
    order = np.argsort(folds.rows, kind="stable") if folds.is_partition else np.arange(len(folds.rows))
    rows = folds.rows[order]
    weights = (np.ones(folds.n) if sample_weight is None else sample_weight)[rows]
    value, std_error = mean_and_error(*clustered(losses[order], weights, rows))
    notes: tuple[str, ...] = ("there is no formula for this model: every value is that of a refit",)
    if audit is not None:
        # rows with large losses are drawn more often, so this errs on the large side
        value, std_error = audit.value, float(np.nanstd(audit.refitted_losses) / np.sqrt(len(folds)))
        notes = (
            f"there is no formula for this model: the risk is that of the audit, from {audit.m} refits; "
            "other rows keep predictions that have seen them",
        )
    unknown = np.full(len(rows), np.nan)
    return RiskEstimate(
        value=value,
        std_error=std_error,
        losses=losses[order],
        predictions=predictions[order],
        decision=_as_decision(predictions[order], method),
        fitted=_as_decision(fitted, method)[rows],
        leverages=unknown,
        effective_df=float("nan"),
        y=y,
        sample_weight=sample_weight,
        classes=classes,
        loss_name=loss_name,
        method=method,
        approx_error=0.0 if audit is None else 0.5 * (audit.interval[1] - audit.interval[0]),
        guarantee="exact" if audit is None else "sampled",
        bounds=np.where(done[order], 0.0, np.inf),
        certified=done[order],
        rows=rows,
        notes=notes,
        audit=audit,
        refinement=None if audit is not None else Refinement(0, refitted=len(folds)),
        _by_row=len(folds) == folds.n,
    )


def _as_decision(predictions: Array, method: str) -> Array:
    """Scores whose sign, or whose largest, tells the class: log-odds for probabilities."""
    if method != "predict_proba":
        return predictions
    with np.errstate(divide="ignore"):
        scores = np.log(predictions)
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def clustered(losses: Array, weights: Array, clusters: Any) -> tuple[Array, Array]:
    """Mean loss and total weight of each cluster."""
    _, numbers = np.unique(clusters, return_inverse=True)
    if len(numbers) == numbers.max(initial=-1) + 1:
        return losses, weights
    totals = np.bincount(numbers, weights).astype(np.float64)
    sums = np.bincount(numbers, np.where(weights > 0, weights * losses, 0.0))
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0), totals


def class_lost(y: Any, classes: Any | None, sample_weight: Array | None, left_out: LeftOut) -> Mask:
    """Values whose refit would not know all classes, since what left was all there is of one."""
    if classes is None:
        return np.zeros(len(left_out.rows), dtype=bool)
    _, numbers = np.unique(np.ravel(y), return_inverse=True)
    held = np.ones(len(numbers), dtype=bool) if sample_weight is None else sample_weight > 0
    count = np.bincount(numbers, held)
    if left_out.removed is None:
        return (count[numbers] == 1) & held
    gone = np.array([np.bincount(numbers[rows], held[rows], len(count)) for rows in left_out.removed])
    return np.any((gone == count) & (count > 0), axis=1)[left_out.fold]


def _about(left_out: LeftOut, lone: Index) -> tuple[str, ...]:
    """What a reader of the result should know."""
    notes = []
    if lone.size:
        notes.append(
            f"no row of some class is left without row {_shown(lone)}: a refit would not know the class"
        )
    if left_out.failed.size:
        notes.append(
            f"{left_out.failed.size} refits have no solution: steps from the fit stand in their place, "
            "flagged"
        )
    if left_out.several.size:
        notes.append(
            f"{left_out.several.size} refits have several optima, since their intercept is undetermined: the "
            "middle one stands for them, and the bounds reach to the others"
        )
    return tuple(notes)


def mean_and_error(losses: Array, weights: Array) -> tuple[float, float]:
    """Weighted mean over rows and its standard error, √(Σ w² (l − mean)² n/(n − 1)) / Σ w."""
    held = weights > 0
    n, total = int(held.sum()), weights.sum()
    mean = float(weights[held] @ losses[held] / total)
    if n < 2:
        return mean, float("nan")
    spread = np.sum((weights[held] * (losses[held] - mean)) ** 2) * n / (n - 1)
    return mean, float(np.sqrt(spread) / total)


def warn_if_unreliable(result: RiskEstimate) -> None:
    """Warn when the risk may be off by more than half of its standard error."""
    if result._lone is not None and result._share(result._lone) > LONE_SHARE:
        warnings.warn(
            f"rows {_shown(result.rows[result._lone])} leave no other of their class: a refit without "
            "them would not know it",
            UnreliableWarning,
            stacklevel=3,
        )
        return
    if result.guarantee == "exact" or not result.approx_error > UNRELIABLE * result.std_error:
        return
    rows = np.flatnonzero(~np.isfinite(result.bounds))
    shown = _shown(result.rows[rows])
    known = (
        f"may be off by {result.approx_error:.2g}, with a standard error of {result.std_error:.2g}"
        if np.isfinite(result.approx_error)
        else f"rests on {rows.size} rows of whose refits nothing is known (rows {shown})"
    )
    warnings.warn(
        f"the {result.loss_name} of {result.value:.4g} {known}: ask for exact=True, which solves without "
        "every such row, or for audit=30, or regularise more",
        UnreliableWarning,
        stacklevel=3,
    )


def _shown(rows: Index) -> str:
    return ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")

"""The result: a risk, its error, the value of every row, and which rows not to trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._typing import Array, Index, Mask, Sets
from onefit.leave_out import LeftOut, Refinement
from onefit.leave_out.departure import Departures, RowDepartures
from onefit.leave_out.set_departures import SetDepartures
from onefit.numerics import TINY
from onefit.risk.base import LeftOutLosses
from onefit.risk.coefficients import CoefficientTable, coefficient_table
from onefit.risk.influence import RowInfluence, influence
from onefit.risk.interval import Method, interval
from onefit.risk.presentation import by_column, frame
from onefit.risk.readout import Readout
from onefit.validation.options import check_choice, check_inside, check_offset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onefit.displays.base import Display


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RiskEstimate(LeftOutLosses):
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
        d_i h_i of the fit; the trace of D_i H_i for several classes, the mean over independent outputs.
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
    certified : (n,) bool array
        Entries whose bound is within numerical precision: what the refit says.
    notes : tuple of str
        What was held fixed or assumed.
    rows : (n,) int array
        The row that each entry of the arrays above is for: 0 … n − 1, unless splits leave rows out more or
        less often than once.
    flagged : (f,) int array
        Entries whose prediction may be off by more than 1 % of the spread of responses (1 for probabilities,
        2 between margins), after all that was affordable; and those without which a class has no row left.
    audit : Audit or None
        Unbiased estimate from a few refits of the estimator, where asked for.
    labels : array or None
        Labels of all rows, where X or y had them.
    sampled : SampledPredictions or None
        Which rows a "sampled" value rests on.
    columns : array or None
        Names of the columns of X, or of what a pipeline made of them, where they have names.
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

    predictions: Array
    decision: Array
    fitted: Array
    effective_df: float
    approx_error: float
    guarantee: str
    bounds: Array
    certified: Mask
    flagged: Index
    refinement: Refinement | None = None
    labels: Any | None = None
    columns: Any | None = None
    _by_row: bool = field(default=True, repr=False)
    _removed: Sets | None = field(default=None, repr=False)  # rows that leave together, if they do
    _lone: Mask | None = field(default=None, repr=False)  # whose refit would not know all classes
    _remedy: str = field(default="", repr=False)
    _readout: Readout | None = field(default=None, repr=False)
    _left_out: LeftOut | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the data behind: a saved result holds one value a row, never X."""
        kept = {name: value for name, value in self.__dict__.items() if name != "_without_sets"}
        return {**kept, "_left_out": None, "_readout": None}

    def _share(self, rows: Mask) -> float:
        """Share of the risk that some rows carry."""
        carried = self._row_weights * self.losses
        return float(carried[rows].sum() / max(carried.sum(), TINY))

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each judged row, under the labels that X or y came with.

        Columns: response, left-out prediction (one for each class or target), loss, leverage, bound, and
        whether the row is flagged.
        """
        rows = self.rows
        classes = None if self.classes is None else list(self.classes)
        columns: dict[str, Any] = by_column("y", np.asarray(self.y)[rows])
        columns |= by_column("prediction", self.predictions, classes)
        columns |= {"loss": self.losses, "leverage": self.leverages, "bound": self.bounds}
        columns["flagged"] = np.isin(np.arange(len(rows)), self.flagged)
        return frame(columns, rows if self.labels is None else np.asarray(self.labels)[rows])

    def coef(self) -> Array:
        """Coefficients without each row: (n, p), or (n, c, p) as in ``coef_`` of several outputs.

        Of groups or folds without each of these, in the sorted order of their labels, or that of the splits:
        (g, p) or (g, c, p); NaN where there is no refit.

        For a kernel model the dual ones.  Computed when asked for, from one more factorisation; they are
        those of the refits where ``certified``, and to the order of the formula elsewhere.  With a curved
        loss and ``exact=True`` they take a refit of each row.  Groups that no single step describes are
        refitted, once.

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
        return coef[:p].T

    def intercept(self) -> Array:
        """Intercepts without each row, or each group or fold: (n,) or (n, c)."""
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

        Of groups, from the fits without each group: errors that hold whatever ties the rows of a group.

        Parameters
        ----------
        names : sequence of str, optional
            p names; those that the model was fitted with, or else column numbers, if missing.
        scale, centre : float or (p,) array
            Where X holds (x − centre) / scale, the table is in the units of x.

        Raises
        ------
        ValueError
            If rows left in other sets than two or more groups or folds that each leave once.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> table = onefit.loo(Ridge(0.1).fit(X, y), X, y).coef_table()
        >>> print(f"{table.names[2]}: {table.coef[2]:.0f} ± {table.std_error[2]:.0f}")
        bmi: 490 ± 59
        """
        departures, readout = self._departures("coef_table()")
        departures.check_left_once("coef_table()", least=2)
        p = departures.fit.coef.shape[0] - bool(readout.constant)
        if names is None and self.columns is not None and len(self.columns) == p:  # not of a kernel
            names = self.columns
        return coefficient_table(
            departures,
            names,
            constant=readout.constant,
            scale=scale,
            centre=centre,
            has_scale=self._has_scale(departures),
        )

    def interval(
        self, X: Any, coverage: float = 0.9, method: Method = "plus", *, offset: Any = None
    ) -> Array:
        """Predictive intervals for new rows by the jackknife+, without a refit; by CV+ of folds.

        They need no assumption on the noise: if rows are exchangeable, a new response lies inside with
        probability at least 2 · coverage − 1 (in practice about ``coverage``); with ``method="minmax"``,
        which is wider, with at least ``coverage`` (Barber, Candès, Ramdas and Tibshirani 2021, Theorems 1
        and 2).  Of folds the first is a little less (their Theorem 4).  Where groups left, the new rows are
        of groups that are not among them, and groups are exchangeable (Lee, Barber and Willett 2023).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (m, p)
            New rows, as the model takes them.
        coverage : float, default 0.9
        method : {"plus", "minmax"}, default "plus"
        offset : (m,) array, optional
            Of the new rows, as ``predict`` takes it; 0 if missing.

        Returns
        -------
        (m, 2) array, or (m, t, 2) for several outputs
            In the units of the response; infinite where n rows, or groups, are too few for the coverage.

        Raises
        ------
        ValueError
            Of a classifier, or if rows left in other sets than groups or folds that each leave once: rows
            of a time series are not exchangeable.

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
        check_inside("coverage", coverage)
        departures, readout = self._departures("interval()")
        departures.check_left_once("interval()")
        y = np.asarray(self.y, dtype=np.float64).reshape(-1, *self.predictions.shape[1:])
        new, response = readout.design(X), readout.response
        added = 0.0 if offset is None else check_offset(offset, new.shape[0])
        offsets = readout.offset, added
        return interval(departures, response, y, new, float(coverage), method, self._groups, offsets)

    def influence(self, top: int | None = None) -> RowInfluence:
        """How much each row moves the fit: Cook's distance and DFBETAS.

        Both measure moves by the curvature of the loss.  For least squares DFBETAS are in units of the
        standard errors that the other rows tell, as those of ``OLSInfluence`` in statsmodels; for other
        losses in those of all rows.

        Parameters
        ----------
        top : int, optional
            DFBETAS of so many rows only, the most influential ones: with many rows and columns the matrix
            of all of them would not fit into memory.

        Raises
        ------
        ValueError
            If the loss has kinks, as that of quantile regression and of support vector machines, and so no
            curvature: ``coef()`` tells what becomes of their coefficients.

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
        if not isinstance(departures, RowDepartures):
            raise ValueError(  # noqa: TRY004
                "influence() is of single rows, but rows left together: call onefit.loo(model, X, y) without "
                "groups; coef() tells what becomes of the coefficients without each group"
            )
        found = influence(departures, self.effective_df, constant=bool(readout.constant), top=top)
        return replace(found, dfbetas=found.dfbetas[:, 0]) if self._has_scale(departures) else found

    def _what_is_missing(self) -> str:
        if np.isnan(self.effective_df):
            return "there is no formula for this model"
        if self._left_out is None:
            return "they are not kept with a saved result, nor of blocks: call onefit.loo(model, X, y)"
        return "nothing tells how this model takes new rows"

    def _departures(self, asked: str) -> tuple[Departures, Readout]:
        if self._left_out is None or self._readout is None:
            raise ValueError(f"{asked} needs the fits without each row, and {self._what_is_missing()}")
        alone = self._left_out.sets is None
        return RowDepartures(self._left_out) if alone else self._without_sets, self._readout

    @cached_property
    def _without_sets(self) -> SetDepartures:
        """Fits without each set, of which some are refits."""
        assert self._left_out is not None
        return SetDepartures(self._left_out)

    @property
    def _groups(self) -> Index | None:
        """Number of each row's group, (n,), where groups left; rows that left alone or in folds are alike."""
        if self._clusters is None or np.array_equal(self._clusters, self.rows):
            return None
        numbers = np.empty(len(self.rows), dtype=np.intp)
        numbers[self.rows] = self._clusters
        return numbers

    def plot(self, ax: Axes | None = None, *, kind: str = "left-out") -> Display:
        """Draw what left-out values say.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"left-out", "calibration", "roc", "precision-recall", "thresholds"}, default "left-out"
            Left-out against fitted values, coloured by leverage; or a curve of the left-out probabilities of
            two classes.
        """
        from onefit.displays import LeftOutDisplay
        from onefit.displays.probabilities import CURVES, curve

        check_choice("kind", kind, ("left-out", *CURVES))
        if kind != "left-out":
            if self.method != "predict_proba" or self.predictions.shape[1] != 2:
                raise ValueError(
                    f"kind={kind!r} draws probabilities of two classes, which this model has not"
                )
            positive = np.asarray(self.y)[self.rows] == np.asarray(self.classes)[1]
            return curve(kind, positive, self.predictions[:, 1], self._row_weights).plot(ax)
        return LeftOutDisplay(
            fitted=self.fitted,
            left_out=self.decision,
            leverages=np.nan_to_num(self.leverages),
            flagged=self.flagged,
            output_names=self.classes if np.ndim(self.decision) > 1 else None,
            rows=self.rows if self.labels is None else np.asarray(self.labels)[self.rows],
        ).plot(ax)

    @property
    def _title(self) -> str:
        return ("leave-one-out " if self._by_row else "left-out ") + self.loss_name

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        if np.isfinite(self.effective_df):
            facts += [
                ("effective df", f"{self.effective_df:.4g}"),
                ("largest leverage", f"{self.leverages.max():.3g}"),
            ]
        if self.refinement is not None:
            facts.append(("how known", str(self.refinement)))
        return facts

    def _standing(self) -> tuple[str, float, str]:
        return self.guarantee, self.approx_error, self._remedy

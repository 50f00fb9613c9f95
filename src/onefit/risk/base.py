"""What every risk by leaving out has in common, whatever the model is: values, a score of them, a summary."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, overload

import numpy as np

from onefit._scoring import Pooled, Scoring, is_of_means, row_losses, score, score_or_none
from onefit._typing import Array, Index
from onefit.exceptions import UnreliableWarning
from onefit.leave_out.sets import Folds
from onefit.numerics import UNRELIABLE
from onefit.risk.audit import Audit
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.presentation import FEW, confidence_interval, effective_rows, table, trust, with_error
from onefit.risk.sampled import SampledPredictions
from onefit.validation.options import check_inside


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LeftOutLosses(ABC):
    """Out-of-sample risk by leaving rows out: ``RiskEstimate`` of a linear model, ``LeftOutRisk`` of others.

    Attributes
    ----------
    value : float
        Weighted mean of ``losses``.
    std_error : float
        Its sampling standard error.
    losses : (t,) array
        Loss of each of ``rows`` where it is left out.
    rows : (t,) int array
        0 … n − 1, unless splits leave rows out more or less often than once.
    leverages : (t,) array
        Share of the curvature at the row that it brings itself.
    predictions, decision : arrays or None
        What the model without a row says of it, as ``method`` has it, and its linear predictors or outputs.
    y : array or None
        The response that was given.
    sample_weight : (n,) array or None
    classes : array or None
        Class labels, for classifiers.
    method : str
        What ``predictions`` are: ``"predict"``, ``"predict_proba"`` or ``"decision_function"``.
    loss_name : str
    notes : tuple of str
        What was held fixed or assumed.
    audit : Audit or None
        Unbiased estimate from a few refits, where asked for.
    sampled : SampledPredictions or None
        Which rows a mean rests on that is known from a sample of them.
    """

    value: float
    std_error: float
    losses: Array
    rows: Index
    leverages: Array
    predictions: Any = None
    decision: Any = None
    y: Any = None
    sample_weight: Any = None
    classes: Any = None
    method: str = "predict"
    loss_name: str = "loss"
    notes: tuple[str, ...] = ()
    audit: Audit | None = None
    sampled: SampledPredictions | None = None
    _clusters: Any = field(default=None, repr=False)  # (t,), what each entry counts towards: else itself

    @property
    @abstractmethod
    def _title(self) -> str:
        """What ``value`` is."""

    @abstractmethod
    def _facts(self) -> list[tuple[str, str]]:
        """Lines of the summary between the number of rows and the audit."""

    @abstractmethod
    def _standing(self) -> tuple[str, float, str]:
        """How the value is known, what it may be off by, and what to do where that is not known."""

    @overload
    def score(self, scoring: str | Callable[..., float], *, error: Literal[False] = False) -> float: ...
    @overload
    def score(self, scoring: str | Callable[..., float], *, error: Literal[True]) -> tuple[float, float]: ...
    def score(
        self, scoring: str | Callable[..., float], *, error: bool = False
    ) -> float | tuple[float, float]:
        """Score of all left-out predictions pooled, by name or by any scikit-learn scorer.

        Where the risk was "sampled", predictions of most rows are rough.  The score is then corrected by the
        rows that were left out, as the risk is: by what each of them changes of the score, over the
        probability with which it was drawn.  ``onefit.loo(model, X, y, exact=True)`` leaves out all rows.  Of
        a model without a formula scores that are no means come from the rows of the audit alone.

        Parameters
        ----------
        scoring : str or callable
            "mae", "mse", "rmse", "log-loss", "brier", "auc"; a name that ``sklearn.metrics.get_scorer``
            knows; or ``scorer(estimator, X, y)``.
        error : bool, default False
            Whether to return the standard error as well: from the rows for a mean, by the delta method for
            the root of one and R², by placements for the area under the ROC curve (DeLong et al. 1988), by
            a jackknife over blocks of rows otherwise.

        Raises
        ------
        ValueError
            If there are no predictions of rows by the model without them.

        Warns
        -----
        UnreliableWarning
            Where what a sample leaves open is more than half of the standard error.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import Ridge
        >>> import onefit
        >>> X, y = load_diabetes(return_X_y=True)
        >>> round(onefit.loo(Ridge(0.1).fit(X, y), X, y).score("r2"), 3)
        0.493
        """
        if self.predictions is None or self.y is None:
            raise ValueError("there are left-out losses only, no predictions that could be scored")
        if self.sampled is None and not error:
            return score(scoring, self._pooled)
        known = self._known(scoring)
        whole = len(known.predictions) == len(self.rows)
        losses = row_losses(scoring, known, self._clusters if whole else None)
        units = self._units(losses) if len(losses) == len(self.rows) else (losses, known.row_weights)
        found, std_error = self._corrected(scoring, mean_and_error(*units)[1])
        return (found, std_error) if error else found

    def _known(self, scoring: str | Callable[..., float]) -> Pooled:
        """Predictions of rows without them, or about that; without weights where a scorer takes none."""
        if self.sampled is None or not self.sampled.has_seen:
            return self._pooled
        known = self.sampled.drawn(self._pooled)
        try:
            score(scoring, known)
        except (TypeError, ValueError):
            return replace(known, weights=None)
        return known

    def _corrected(self, scoring: str | Callable[..., float], std_error: float) -> tuple[float, float]:
        """The score, corrected by the rows of a sample where there is one, and its standard error."""
        if self.sampled is None:
            return score(scoring, self._pooled), std_error
        if self.sampled.has_seen and not is_of_means(scoring):
            return score(scoring, self._known(scoring)), std_error
        found, off = self.sampled.corrected(partial(score, scoring), self._pooled)
        if off > UNRELIABLE * std_error and not self.sampled.has_seen:  # there its rows tell the error
            warnings.warn(
                f"the score {scoring!r} of {found:.4g} is known from a sample of the rows, and may be off by "
                f"{off:.2g}, with a standard error of {std_error:.2g}: ask for onefit.loo(model, X, y, "
                "exact=True), which leaves out every row",
                UnreliableWarning,
                stacklevel=3,
            )
        return found, std_error

    def _by_set(self, folds: Folds, scoring: Scoring | None) -> Array:
        """Score of each set that was left out, by its own rows; minus their mean loss if None: (f,)."""
        entries, known = folds.entries(self.rows), self._pooled
        places = [entries[folds.place(k)] for k in range(len(folds))]
        if scoring is not None:
            return np.array([score_or_none(scoring, known.some(own)) for own in places])
        weights = self._row_weights
        with np.errstate(invalid="ignore"):  # of rows that all have no weight
            return np.array([-mean_and_error(self.losses[own], weights[own])[0] for own in places])

    def confidence_interval(self, coverage: float = 0.95) -> tuple[float, float]:
        """Where the risk lies, from the losses of these rows; wider, and lopsided, where they are few.

        Student's t on the logarithm of the risk.  On few rows ± two standard errors cover too little, since
        losses are skewed: 83 % for squared errors of ten rows, of which this covers 91 %.  That rows have
        trained one another's models is not counted (Bates, Hastie and Tibshirani 2024).

        Parameters
        ----------
        coverage : float, default 0.95
        """
        check_inside("coverage", coverage)
        positive = bool(np.all(self.losses >= 0))
        n = effective_rows(*self._counted)
        return confidence_interval(self.value, self.std_error, n, float(coverage), positive=positive)

    @property
    def _weights(self) -> Array | None:
        """Weight of each of ``rows``."""
        return None if self.sample_weight is None else self.sample_weight[self.rows]

    @property
    def _row_weights(self) -> Array:
        """The same, one where none were given."""
        return np.ones(len(self.rows)) if self._weights is None else self._weights

    def _units(self, losses: Array) -> tuple[Array, Array]:
        """Means and weights of what counts as one: rows, or groups of them that leave together."""
        weights = self._row_weights
        return (losses, weights) if self._clusters is None else clustered(losses, weights, self._clusters)

    @property
    def _counted(self) -> tuple[int, Array | None]:
        """How many these are, and their weights where there are any."""
        if self._clusters is None:
            return len(self.losses), self._weights
        weights = self._units(self.losses)[1]
        return len(weights), weights

    @property
    def _pooled(self) -> Pooled:
        return Pooled(
            np.asarray(self.y)[self.rows],
            self.predictions,
            self.decision,
            self.method,
            self.classes,
            self._weights,
        )

    def __repr__(self) -> str:
        audited = "" if self.audit is None else f", audited {self.audit.short}"
        return (
            f"<{type(self).__name__}: {self.loss_name} {with_error(self.value, self.std_error)}, "
            f"{len(self.losses)} rows, {self._standing()[0]}{audited}>"
        )

    def _repr_html_(self) -> str:
        return table(self._summary(), self.notes)

    def __str__(self) -> str:
        rows = self._summary()
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def _summary(self) -> list[tuple[str, str]]:
        """Names and values of a table."""
        guarantee, error, remedy = self._standing()
        rows = [
            (self._title, with_error(self.value, self.std_error)),
            ("rows", f"{len(self.losses)}"),
            *self._facts(),
        ]
        if self.audit is not None:
            rows.append(("audited" if self.audit.agrees else "audited, 95 %", str(self.audit)))
        said = trust(guarantee, error, remedy, noted=bool(self.notes))
        if self.audit is not None and self.audit.excludes(self.value, self.std_error):
            said = f"do not use this value: refits of the whole model say {self.audit.short}"
        rows.append(("beside refits", said))
        if effective_rows(*self._counted) < FEW:
            low, high = self.confidence_interval()
            rows.append(("95 %, few rows", f"{low:.3g} … {high:.3g}"))
        return rows

"""Leave-one-out of rows in blocks: the risk, how far it may be off, and every row in a file on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Self, final

import numpy as np

from onefit.blocks.chosen import ChosenStrength
from onefit.blocks.left_out_rows import LeftOutRows
from onefit.blocks.mean_over_rows import MeanOverRows
from onefit.blocks.rows import Rows
from onefit.blocks.written import write_rows
from onefit.exceptions import UnreliableWarning
from onefit.metrics import LinearMetric
from onefit.numerics import UNRELIABLE
from onefit.risk.estimate import RiskEstimate
from onefit.risk.presentation import trust, with_error
from onefit.wording import counted

LEFT_BEHIND = "a saved estimate leaves its rows behind: fit again, or call onefit.loo"


@final
@dataclass(frozen=True, eq=False, repr=False)
class BlocksEstimate:
    """Leave-one-out risk of a model whose rows come in blocks; no row is kept.

    What needs values of single rows passes over them once more: ``rows_to`` writes them to a file, ``score``
    takes what a scorer needs, and ``in_memory`` makes them the ``RiskEstimate`` of a table in memory.

    Attributes
    ----------
    value : float
        Weighted mean loss, each row left out in its turn.
    std_error : float
        Its sampling standard error.
    n_rows : int
    effective_df, largest_leverage : float
        Sum of the leverages d_i h_i of the fit, and the largest.
    approx_error : float
        ``value`` is within this of the mean over exact refits; infinite where that is not known.
    guarantee : {"exact", "bounded", "sampled", "rough"}
        To numerical precision, proven, at 95 % by refits of some rows, or not known of ``n_unknown`` rows.
    n_unknown : int
        Rows of whose refits nothing is known.
    loss_name : str
    classes : array or None

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X[:, 0] + rng.normal(size=1000)
    >>> source = onefit.sources.ArraySource(X, y, rows=300)
    >>> print(onefit.loo(Ridge(1.0).fit(X, y), source))
    leave-one-out squared error  1.019 ± 0.044
    rows                         1000
    effective df                 3.997
    largest leverage             0.0177
    beside refits                exact: what refitting without each would give
    """

    value: float
    std_error: float
    n_rows: int
    effective_df: float
    largest_leverage: float
    approx_error: float
    guarantee: str
    n_unknown: int
    loss_name: str
    classes: Any | None
    notes: tuple[str, ...]
    _parts: Callable[[], Iterator[LeftOutRows]] | None  # of the rows, in their order
    _joined: Callable[[], RiskEstimate] | None  # of all of them

    @classmethod
    def of_held(cls, found: RiskEstimate) -> Self:
        """That of rows that are all in memory, in their order."""
        unknown = ~np.isfinite(found.bounds)
        if found.sample_weight is not None:
            unknown &= found.sample_weight > 0
        rows = (LeftOutRows.of_held(found),)
        return cls(
            found.value,
            found.std_error,
            len(found.losses),
            found.effective_df,
            float(found.leverages.max(initial=0.0)),
            found.approx_error,
            found.guarantee,
            int(np.count_nonzero(unknown)),
            found.loss_name,
            found.classes,
            found.notes,
            partial(iter, rows),
            partial(replace, found, _left_out=None, _readout=None),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rows behind."""
        return {**self.__dict__, "_parts": None, "_joined": None}

    def rows_to(self, path: str | PathLike[str]) -> None:
        """Write every row without itself to a Parquet file, in one more pass over the rows.

        Its columns are ``y``, ``prediction`` (or ``probability_…`` of each class), ``decision``, ``loss``,
        ``leverage`` and ``bound``, how far ``decision`` may be off; its rows are in the order of the source.

        Parameters
        ----------
        path : path
            Of the file, which is replaced where all rows were written.

        Raises
        ------
        ValueError
            The estimate was saved and loaded: it has left its rows behind.
        """
        if self._parts is None:
            raise ValueError(LEFT_BEHIND)
        write_rows(path, (part.columns(self.classes) for part in self._parts()))

    def in_memory(self) -> RiskEstimate:
        """The risk with the values of all rows, in one more pass over them.

        It holds some ten numbers a row, and can be scored, drawn and compared as that of a table in memory.
        X is not held, so that ``interval``, ``influence`` and the coefficients without a row are not had.

        Raises
        ------
        ValueError
            The estimate was saved and loaded: it has left its rows behind.

        Examples
        --------
        >>> import numpy as np
        >>> import onefit
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 3))
        >>> source = onefit.sources.ArraySource(X, X[:, 0] + rng.normal(size=1000), rows=300)
        >>> est = onefit.RidgeLOO().fit(source).loo_.in_memory()
        >>> est.predictions.shape, round(est.score("r2"), 2)
        ((1000,), 0.46)
        """
        if self._joined is None:
            raise ValueError(LEFT_BEHIND)
        return self._joined()

    def score(self, scoring: str | Callable[..., float], *, error: bool = False) -> Any:
        """Score of all left-out predictions pooled, in one more pass: ``RiskEstimate.score``."""
        rows: Any = self.in_memory()
        return rows.score(scoring, error=error)

    def __repr__(self) -> str:
        return (
            f"<BlocksEstimate: {self.loss_name} {with_error(self.value, self.std_error)}, "
            f"{self.n_rows} rows, {self.guarantee}>"
        )

    def __str__(self) -> str:
        lines = [
            (f"leave-one-out {self.loss_name}", with_error(self.value, self.std_error)),
            ("rows", f"{self.n_rows}"),
            ("effective df", f"{self.effective_df:.4g}"),
            ("largest leverage", f"{self.largest_leverage:.3g}"),
            ("beside refits", self._trust()),
        ]
        width = max(len(name) for name, _ in lines)
        return "\n".join(
            [f"{name:<{width}}  {text}" for name, text in lines] + [f"note: {one}" for one in self.notes]
        )

    def _trust(self) -> str:
        if self.guarantee == "rough":
            return f"rough: {self.n_unknown} of the rows could not be checked"
        return trust(self.guarantee, self.approx_error, "", noted=bool(self.notes))


def estimate_rows(
    rows: Rows,
    judge: ChosenStrength,
    metric: LinearMetric,
    *,
    count: int,
    classes: Any | None = None,
    notes: tuple[str, ...] = (),
) -> BlocksEstimate:
    """Judge all rows at one strength in a pass, and say how far the mean may be off.

    Parameters
    ----------
    rows : Rows
    judge : ChosenStrength
    metric : LinearMetric
    count : int
        Rows with weight that the first pass saw.
    classes : array, optional
    notes : tuple of str

    Warns
    -----
    UnreliableWarning
        If the risk may be off by more than half of its standard error.
    """
    found = MeanOverRows.of(rows, judge, metric, count)
    value, off, guarantee, total, judge, _ = found
    error = total.std_error
    if guarantee != "exact" and not off <= UNRELIABLE * error:
        known = f"may be off by {off:.2g}, with a standard error of {error:.2g}"
        warnings.warn(
            f"the {metric.loss_name} of {value:.4g} "
            + (
                f"rests on {counted(total.unknown, 'row')} of whose refits nothing is known"
                if off == np.inf
                else known
            )
            + ": regularise more, or judge a sample of the rows in memory",
            UnreliableWarning,
            stacklevel=4,
        )
    return BlocksEstimate(
        value,
        error,
        total.rows,
        total.df,
        total.largest.value,
        off,
        guarantee,
        total.unknown,
        metric.loss_name,
        classes,
        notes,
        parts := partial(rows.each, partial(LeftOutRows.of, judge=judge, metric=metric)),
        partial(_in_memory, found, parts, metric, classes, notes),
    )


def _in_memory(
    found: MeanOverRows,
    parts: Callable[[], Iterator[LeftOutRows]],
    metric: LinearMetric,
    classes: Any | None,
    notes: tuple[str, ...],
) -> RiskEstimate:
    """The mean with the values of all rows."""
    rows = LeftOutRows.joined(parts())
    return RiskEstimate(
        value=found.value,
        std_error=found.total.std_error,
        losses=rows.losses,
        rows=np.arange(len(rows.y)),
        leverages=rows.leverages,
        predictions=rows.predictions,
        decision=rows.decision,
        fitted=rows.fitted,
        effective_df=found.total.df,
        y=rows.y,
        sample_weight=None if np.all(rows.weights == 1.0) else rows.weights,
        classes=classes,
        method=metric.method,
        loss_name=metric.loss_name,
        notes=notes,
        approx_error=found.off,
        guarantee=found.guarantee,
        bounds=rows.bounds,
        certified=rows.certified(),
        flagged=rows.flagged(metric),
        sampled=rows.sampled(metric, found.chances),
    )

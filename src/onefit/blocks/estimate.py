"""Leave-one-out of rows in blocks: the risk, how far it may be off, and every row in a file on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, NamedTuple, Self, final

import numpy as np

from onefit._typing import Array
from onefit.blocks.anew import DoubtfulRows, most_rows
from onefit.blocks.chosen import ChosenStrength
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.newton import check_rows
from onefit.blocks.rows import Added, Block, Largest, Rows
from onefit.blocks.written import write_rows
from onefit.exceptions import UnreliableWarning
from onefit.leave_out.draws import NEGLIGIBLE, Draw, spread, unseen
from onefit.metrics import LinearMetric
from onefit.numerics import CONFIDENCE, EXACT, KNOWN, TINY, UNRELIABLE, resolution
from onefit.risk.estimate import RiskEstimate
from onefit.risk.presentation import trust, with_error


@final
@dataclass(frozen=True)
class RowSum(Added):
    """Sums over the rows at one strength.

    Attributes
    ----------
    rows : int
    losses : LossSums
    off : float
        Σ w times how far a loss may be off.
    unknown : int
        Rows of whose refits nothing is known.
    df : float
        Sum of the leverages.
    largest : Largest
        Of them.
    doubtful : DoubtfulRows
        Some of those that may be off.
    """

    rows: int
    losses: LossSums
    off: float
    unknown: int
    df: float
    largest: Largest
    doubtful: DoubtfulRows

    @property
    def value(self) -> float:
        """Weighted mean of the losses."""
        return float(self.losses.risks[0])

    @property
    def std_error(self) -> float:
        """Its sampling standard error."""
        return float(self.losses.std_errors[0])

    @property
    def error(self) -> float:
        """How far the mean may be off."""
        return np.inf if self.unknown else self.off / self.losses.weight


def _sum_of_rows(block: Block, judge: ChosenStrength, metric: LinearMetric, most: int) -> RowSum:
    values = judge.left_out(block)
    target, weights = _read(block, metric)
    held = weights > 0
    losses = np.where(held, metric.losses(target, values.left_out), 0.0)
    spread = np.where(held, metric.spread(target, values.left_out, values.bounds), 0.0)
    known = np.isfinite(spread)
    change = np.abs(losses - np.where(held, metric.losses(target, values.fitted), 0.0))
    total = max(float(weights.sum()), TINY)
    usual = (weights @ change or weights @ losses) / total
    change = np.maximum(change, NEGLIGIBLE * usual)  # a step may not see what a refit does
    return RowSum(
        len(target),
        LossSums.of(losses, np.zeros((1, len(losses))), weights),
        float(weights[known] @ spread[known]),
        int(np.count_nonzero(~known)),
        float(values.leverages.sum()),
        Largest(float(values.leverages.max(initial=0.0))),
        judge.drawn(block, losses, weights * np.minimum(spread, change), most + 1),
    )


def _columns_of_rows(
    block: Block, judge: ChosenStrength, metric: LinearMetric, classes: Any | None
) -> dict[str, Any]:
    """The rows of a block in the columns of a file."""
    values = judge.left_out(block)
    target, _ = _read(block, metric)
    return _written(
        classes,
        y=block.y,
        predictions=metric.predictions(values.left_out),
        decision=metric.decision(values.left_out),
        loss=metric.losses(target, values.left_out),
        leverage=values.leverages,
        bound=values.bounds,
    )


def _written(classes: Any | None, *, y: Any, predictions: Array, **others: Array) -> dict[str, Any]:
    """Rows in the columns of a file."""
    columns = {"y": np.asarray(y)}
    if predictions.ndim == 1:
        columns["prediction"] = predictions
    else:
        assert classes is not None
        columns |= {f"probability_{name}": part for name, part in zip(classes, predictions.T, strict=True)}
    return columns | others


def _read(block: Block, metric: LinearMetric) -> tuple[Array, Array]:
    """Target and weights of a block."""
    target = np.asarray(metric.target(block.y), dtype=np.float64)
    return target, block.row_weights


@final
@dataclass(frozen=True, eq=False, repr=False)
class BlocksEstimate:
    """Leave-one-out risk of a model whose rows come in blocks; no row is kept.

    Attributes
    ----------
    value : float
        Weighted mean loss, each row left out in its turn.
    std_error : float
        Its sampling standard error.
    n_rows : int
    effective_df, largest_leverage : float
        Sum of the leverages d_i h_i, and the largest.
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
    _parts: Callable[[], Iterator[dict[str, Any]]] | None  # of the rows, as they are written

    @classmethod
    def of_held(cls, found: RiskEstimate) -> Self:
        """That of rows that are all in memory, in their order."""
        unknown = ~np.isfinite(found.bounds)
        if found.sample_weight is not None:
            unknown &= found.sample_weight > 0
        columns = _written(
            found.classes,
            y=found.y,
            predictions=found.predictions,
            decision=found.decision,
            loss=found.losses,
            leverage=found.leverages,
            bound=found.bounds,
        )
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
            partial(iter, (columns,)),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rows behind."""
        return {**self.__dict__, "_parts": None}

    def rows_to(self, path: str | PathLike[str]) -> None:
        """Write every row without itself to a Parquet file, in one more pass over the rows.

        Its columns are ``y``, ``prediction`` (or ``probability_…`` of each class), ``decision``, ``loss``,
        ``leverage`` and ``bound``, how far ``decision`` may be off; its rows are in the order of the source.

        Parameters
        ----------
        path : path
            Of the file, which is replaced.

        Raises
        ------
        ValueError
            The estimate was saved and loaded: it has left its rows behind.
        """
        if self._parts is None:
            raise ValueError("a saved estimate leaves its rows behind: fit again, or call onefit.loo")
        write_rows(path, self._parts())

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


class MeanOverRows(NamedTuple):
    """A mean over all rows, how far it may be off, and what is behind that."""

    value: float
    off: float
    guarantee: str
    total: RowSum
    judge: ChosenStrength

    @classmethod
    def of(cls, rows: Rows, judge: ChosenStrength, metric: LinearMetric, count: int) -> Self:
        """Judge all rows in a pass, and solve some of them anew if that may be off by too much."""
        most = most_rows(count, rows.shape[1])
        total = rows.total(partial(_sum_of_rows, judge=judge, metric=metric, most=most))
        check_rows(total.losses.count, count)
        can_tell = judge.solves_anew and total.doubtful.is_worth_solving
        if can_tell and not total.error <= KNOWN * total.std_error:
            before, (some, chances) = total, total.doubtful.drawn()
            judge = judge.solved_anew(rows, some, n=total.rows)
            total = rows.total(partial(_sum_of_rows, judge=judge, metric=metric, most=0))
            value, off = _sampled(before, some, chances, judge, metric)
            if off < total.error and not total.error <= KNOWN * total.std_error:
                return cls(value, off, "sampled", total, judge)
        is_exact = total.error <= EXACT * max(abs(total.value), TINY)
        guarantee = "rough" if total.unknown else "exact" if is_exact else "bounded"
        return cls(total.value, total.error, guarantee, total, judge)


def _sampled(
    before: RowSum, some: DoubtfulRows, chances: Array, judge: ChosenStrength, metric: LinearMetric
) -> tuple[float, float]:
    """Correct a mean by the difference estimator (``leave_out.draws``); how far it may be off, at 95 %."""
    found, weight = judge.anew, before.losses.weight
    if found is None or len(found.y) < len(some.y) or not np.isfinite(found.bounds).all():
        return before.value, np.inf
    rest = max(some.total - float(some.sizes.sum()), 0.0)
    if rest > 0 and not np.any(chances < 1.0):  # none that tells of the others
        return before.value, np.inf
    off = found.weights * (metric.losses(found.y, found.left_out) - found.losses) / weight
    error, quantile = spread(off / chances, 1.0 - chances, CONFIDENCE)
    draw, effect = Draw(np.arange(len(off)), chances), np.append(some.sizes, rest) / weight
    left = unseen(off, effect, draw, CONFIDENCE)
    least = resolution(before.value, before.std_error)
    return before.value + float(np.sum(off / chances)), max(quantile * error + left, least)


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
    value, off, guarantee, total, judge = MeanOverRows.of(rows, judge, metric, count)
    error = total.std_error
    if guarantee != "exact" and not off <= UNRELIABLE * error:
        known = f"may be off by {off:.2g}, with a standard error of {error:.2g}"
        warnings.warn(
            f"the {metric.loss_name} of {value:.4g} "
            + (f"rests on {total.unknown} rows of whose refits nothing is known" if off == np.inf else known)
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
        partial(rows.each, partial(_columns_of_rows, judge=judge, metric=metric, classes=classes)),
    )

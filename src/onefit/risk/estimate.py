"""The result: a risk, its error, the value of every row, and which rows not to trust."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onefit._scoring import score_pooled
from onefit._typing import Array, Index, Mask
from onefit.exceptions import UnreliableWarning
from onefit.risk.certificate import is_patterned
from onefit.risk.one_fit import LeftOut
from onefit.risk.response import Response

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onefit.displays import LeftOutDisplay

FLAGGED_SHARE = 0.5  # share of the risk that flagged rows may carry before we warn
STRAINED_SHARE = 0.1  # the same for rows of a leverage near 1


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
    strained : (n,) bool array
        Rows of a leverage too near 1 for a step, or the last of their class.
    notes : tuple of str
        What was held fixed or assumed.
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
    strained: Mask
    notes: tuple[str, ...] = ()
    _patterned: bool = field(default=False, repr=False)
    _warned: list[bool] = field(default_factory=list, repr=False)
    _left_out: LeftOut | None = field(default=None, repr=False)
    _proofs: list[tuple[Mask, Mask]] = field(default_factory=list, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the data behind: a saved result holds one value a row, never X."""
        return {**self.__dict__, "_left_out": None}

    @property
    def certified(self) -> Mask:
        """Rows whose value is proven equal to the refit: (n,) bool, computed when asked for.

        Proofs exist for quadratic losses with ℓ2, ℓ1 and elastic-net penalties (signs and dual
        feasibility of the left-out solution, checked for every row); elsewhere only rows without weight
        are certified, and the few that were solved anew.
        """
        return self._proof()[0]

    def _proof(self) -> tuple[Mask, Mask]:
        """Certified rows, and those whose pattern changes."""
        if not self._proofs:
            if self._left_out is None:
                raise ValueError(
                    "the certificates of a saved result cannot be computed: the data were not saved with it; "
                    "call onefit.loo(model, X, y) again, or read .certified before saving"
                )
            lone = last_of_class(self.y, self.classes, self.sample_weight)
            self._proofs.append((self._left_out.certified & ~lone, self._left_out.changing))
        return self._proofs[0]

    @property
    def flagged(self) -> Index:
        """Row numbers not to trust blindly: leverage near 1, or an active pattern that changes.

        Warns with ``UnreliableWarning`` when they carry more than half of the risk.
        """
        flags = self._flags()
        changing = np.flatnonzero(flags & ~self.strained)  # of the others loo() has warned already
        share = self._share(changing)
        if share > FLAGGED_SHARE and not self._warned:
            self._warned.append(True)
            warnings.warn(
                f"{changing.size} of {len(self.losses)} rows are not proven to equal their refits and carry "
                f"{share:.0%} of the risk, so it is an approximation (their errors cancel in part): "
                "check it by refits, or regularise more",
                UnreliableWarning,
                stacklevel=2,
            )
        return np.flatnonzero(flags)

    def _share(self, rows: Index) -> float:
        """Share of the risk that some rows carry."""
        weights = np.ones(len(self.losses)) if self.sample_weight is None else self.sample_weight
        carried = weights * self.losses
        return float(carried[rows].sum() / max(carried.sum(), np.finfo(float).tiny))

    def _flags(self) -> Mask:
        return self.strained | self._proof()[1] if self._patterned else self.strained

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
        return score_pooled(
            scoring,
            self.y,
            self.predictions,
            self.decision,
            self.method,
            self.classes,
            self.sample_weight,
        )

    def plot(self, ax: Axes | None = None) -> LeftOutDisplay:
        """Left-out against fitted values, coloured by leverage."""
        from onefit.displays import LeftOutDisplay

        return LeftOutDisplay(
            fitted=self.fitted,
            left_out=self.decision,
            leverages=self.leverages,
            flagged=np.flatnonzero(self.strained),
        ).plot(ax)

    def __str__(self) -> str:
        rows = [
            ("leave-one-out " + self.loss_name, f"{self.value:.6g} ± {self.std_error:.2g}"),
            ("rows", f"{len(self.losses)}"),
            ("effective df", f"{self.effective_df:.4g}"),
            ("largest leverage", f"{self.leverages.max():.3g}"),
        ]
        if self._proofs:
            rows.append(("proven equal to the refit", f"{int(self.certified.sum())} rows"))
            rows.append(("not to be trusted blindly", f"{int(self._flags().sum())} rows"))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def estimate(
    left_out: LeftOut,
    response: Response,
    y: Any,
    *,
    target: Array | None = None,
    sample_weight: Array | None = None,
    classes: Any | None = None,
    notes: tuple[str, ...] = (),
) -> RiskEstimate:
    """Judge left-out linear predictors.

    Parameters
    ----------
    left_out : LeftOut
    response : Response
    y : array
        Response in the user's terms.
    target : array, optional
        Response in the terms of ``response`` (class numbers for classifiers), if other than ``y``.
    sample_weight : (n,) array, optional
    classes : array, optional
    notes : tuple of str
    """
    losses = response.losses(np.asarray(y) if target is None else target, left_out.eta)
    weights = np.ones(len(losses)) if sample_weight is None else sample_weight
    value, std_error = mean_and_error(losses, weights)
    lone = last_of_class(y, classes, sample_weight)
    return RiskEstimate(
        value=value,
        std_error=std_error,
        losses=losses,
        predictions=response.predictions(left_out.eta),
        decision=response.linear(left_out.eta),
        fitted=response.linear(left_out.fit.eta),
        leverages=left_out.leverages,
        effective_df=left_out.effective_df,
        y=y,
        sample_weight=sample_weight,
        classes=classes,
        loss_name=response.loss_name,
        method=response.method,
        strained=left_out.strained | lone,
        notes=(*notes, *_about(left_out, y, np.flatnonzero(lone))),
        _patterned=is_patterned(left_out.fit),
        _left_out=left_out,
    )


def last_of_class(y: Any, classes: Any | None, sample_weight: Array | None) -> Mask:
    """Rows without which a classifier would not know their class: (n,)."""
    labels = np.asarray(y)
    if classes is None:
        return np.zeros(len(labels), dtype=bool)
    held = np.ones(len(labels), dtype=bool) if sample_weight is None else sample_weight > 0
    _, numbers = np.unique(labels, return_inverse=True)
    return (np.bincount(numbers, held)[numbers] == 1) & held


def _about(left_out: LeftOut, y: Any, lone: Index) -> tuple[str, ...]:
    """What a reader of the result should know."""
    notes = []
    if lone.size:
        labels = ", ".join(repr(label) for label in np.asarray(y)[lone[:8]].tolist())
        notes.append(f"only one row is of class {labels}: a refit without it would not know the class")
    if left_out.skipped:
        notes.append(
            f"{left_out.skipped} influential rows were too many to be solved anew: steps from the fit stand "
            "for their refits"
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


def warn_if_strained(result: RiskEstimate) -> None:
    """Warn when rows of too high a leverage carry a large share of the risk."""
    rows = np.flatnonzero(result.strained)
    share = result._share(rows)
    if rows.size == 0 or not share > STRAINED_SHARE:
        return
    shown = ", ".join(map(str, rows[:8])) + (", …" if rows.size > 8 else "")
    warnings.warn(
        f"{rows.size} rows have a leverage near 1, or no other of their class, and carry {share:.0%} of the "
        f"risk: one Newton step is not to be trusted there. Rows {shown}; refit without them to check, or "
        "regularise more",
        UnreliableWarning,
        stacklevel=3,
    )

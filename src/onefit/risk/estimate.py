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
from onefit.risk.certificate import step_is_exact
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
    leverages : (n,) array
        d_i h_i.
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
        Rows of a leverage too near 1 for a step.
    provable : bool
        Whether the loss and the penalty allow certificates.
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
    provable: bool
    notes: tuple[str, ...] = ()
    _left_out: LeftOut | None = field(default=None, repr=False)
    _certified: list[Mask] = field(default_factory=list, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the data behind: a saved result holds one value a row, never X."""
        return {**self.__dict__, "_left_out": None}

    @property
    def certified(self) -> Mask:
        """Rows whose value is proven equal to the refit: (n,) bool, computed when asked for.

        Proofs exist for quadratic losses with ℓ2, ℓ1 and elastic-net penalties (signs and dual
        feasibility of the left-out solution, checked for every row); elsewhere only rows without weight
        are certified.
        """
        if not self._certified:
            if self._left_out is None:
                raise ValueError(
                    "the certificates of a saved result cannot be computed: the data were not saved with it; "
                    "call onefit.loo(model, X, y) again, or read .certified before saving"
                )
            self._certified.append(self._left_out.certified)
        return self._certified[0]

    @property
    def flagged(self) -> Index:
        """Row numbers not to trust blindly: leverage near 1, or an active pattern that changes.

        Warns with ``UnreliableWarning`` when they carry more than half of the risk.
        """
        flags = self._flags()
        changing = np.flatnonzero(flags & ~self.strained)  # of the others loo() has warned already
        share = self._share(changing)
        if share > FLAGGED_SHARE:
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
        return self.strained | ~self.certified if self.provable else self.strained

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
        if self._certified:
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
        strained=left_out.strained,
        provable=step_is_exact(left_out.fit),
        notes=notes,
        _left_out=left_out,
    )


def mean_and_error(losses: Array, weights: Array) -> tuple[float, float]:
    """Weighted mean over rows and its standard error, √(Σ w² (l − mean)² n/(n − 1)) / Σ w."""
    held = weights > 0
    n, total = int(held.sum()), weights.sum()
    mean = float(weights[held] @ losses[held] / total)
    if n < 2:
        return mean, float("nan")
    spread = np.sum((weights[held] * (losses[held] - mean)) ** 2) * n / (n - 1)
    return mean, float(np.sqrt(spread) / total)


def warn_if_strained(left_out: LeftOut, result: RiskEstimate) -> None:
    """Warn when rows of too high a leverage carry a large share of the risk."""
    rows = np.flatnonzero(left_out.strained)
    share = result._share(rows)
    if rows.size == 0 or not share > STRAINED_SHARE:
        return
    shown = ", ".join(map(str, rows[:8])) + (", …" if rows.size > 8 else "")
    warnings.warn(
        f"{rows.size} rows have a leverage near 1 and carry {share:.0%} of the risk: one Newton step is not "
        f"to be trusted there. Rows {shown}; refit without them to check, or regularise more",
        UnreliableWarning,
        stacklevel=3,
    )

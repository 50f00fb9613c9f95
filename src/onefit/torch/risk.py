"""The result: the risk of leaving rows out of a problem that is not linear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor, nn

from onefit._typing import Array, Index, Mask
from onefit.risk.base import LeftOutLosses

REFITS = "refits"
STRAINED = 0.8  # leverage above which one step is not to be trusted where it is not exact


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOutRisk(LeftOutLosses):
    """Out-of-sample risk by leaving out rows, or sets of rows.

    Attributes
    ----------
    value, std_error, losses, rows, notes, audit
        As of ``onefit.RiskEstimate``.
    training : (t,) array
        Losses with all rows in.
    leverages : (t,) array
        Share of the left-out curvature along the step that the row (or its set) brings itself; the
        d_i h_i of a generalised linear model.
    flagged : int array
        Entries that are not to be trusted blindly: a leverage near 1.
    by : str
        How they were left out.
    parameters : (s, k) tensor or None
        θ̃ of each set; None where they are too large to be kept.
    refitted : int
        Number of sets that were solved anew.
    retrained : dict of nn.Module
        Of a network: what the audit trained, by the row that it was trained without.
    decision : (n,) or (n, c) array, or None
        Of a network: its outputs for each row that is left out; the difference of two classes.
    predictions : array or None
        The same, or class probabilities where the loss is one of classes: what ``score`` judges.
    y, classes, method
        As of ``onefit.RiskEstimate``; of a network with one response a row.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> from onefit.torch import FunctionalProblem
    >>> X, y = load_diabetes(return_X_y=True)
    >>> def squared(theta, x, y):
    ...     return (y - theta[0] - x @ theta[1:]) ** 2
    >>> def ridge(theta):
    ...     return (theta[1:] ** 2).sum()
    >>> fit = FunctionalProblem(squared, [ridge], start=11).fit(X, y, [0.1])
    >>> risk = fit.loo()
    >>> print(f"{risk.value:.0f} ± {risk.std_error:.0f}, training {risk.training.mean():.0f}")
    3005 ± 182, training 2890
    """

    training: Array
    flagged: Index
    by: str
    parameters: Tensor | None = field(default=None, repr=False)
    refitted: int = 0
    retrained: Mapping[int, nn.Module] = field(default_factory=dict, repr=False)

    @property
    def effective_df(self) -> float:
        """Sum of the leverages, the effective degrees of freedom; NaN where they are not known."""
        return float(self.leverages.sum())

    @property
    def certified(self) -> Mask:
        """Values that are those of refits, to the accuracy of the optimiser: (t,) bool."""
        return np.isfinite(self.losses) & (self.by == REFITS)

    @property
    def bounds(self) -> Array:
        """How far the loss of each row may be off: 0 where it is certified, infinite elsewhere, (t,)."""
        return np.where(self.certified, 0.0, np.inf)

    @property
    def approx_error(self) -> float:
        """Say how far ``value`` is from the risk by refits of all rows; infinite where that is not known.

        With an audit this holds at 95 % confidence.
        """
        if np.all(self.certified):
            return 0.0
        return np.inf if self.audit is None else max(abs(end - self.value) for end in self.audit.interval)

    @property
    def guarantee(self) -> Literal["exact", "sampled", "rough"]:
        """How that is known: by refits of all rows, of some, or not at all."""
        if np.all(self.certified):
            return "exact"
        return "rough" if self.audit is None else "sampled"

    @property
    def _title(self) -> str:
        return f"leave-one-out {self.loss_name}"

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("training loss", f"{self.training.mean():.6g}"), ("by", self.by)]
        if np.all(np.isfinite(self.leverages)):
            facts.append(("largest leverage", f"{self.leverages.max():.3g}"))
        if self.refitted:
            facts.append(("solved anew", f"{self.refitted}"))
        facts.append(("high leverage", f"{len(self.flagged)} rows"))
        return facts

    def _standing(self) -> tuple[str, float, str]:
        return self.guarantee, self.approx_error, "an audit tells"

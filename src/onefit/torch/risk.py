"""The result: the risk of leaving rows out of a problem that is not linear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor, nn

from onefit._typing import Array, Index, Mask
from onefit.risk.audit import Audit

REFITS = "refits"
STRAINED = 0.8  # leverage above which one step is not to be trusted where it is not exact


@dataclass(frozen=True, eq=False)
class LeftOutRisk:
    """Out-of-sample risk by leaving out rows, or sets of rows.

    Attributes
    ----------
    value : float
        Weighted mean of ``losses``.
    std_error : float
        Its sampling standard error.
    losses : (t,) array
        Loss of each of ``rows`` where it is left out.
    rows : (t,) int array
        0 … n − 1, unless sets leave rows out more or less often than once.
    training : (t,) array
        Losses with all rows in.
    leverages : (t,) array
        Share of the left-out curvature along the step that the row (or its set) brings itself; the
        d_i h_i of a generalised linear model.
    flagged : int array
        Entries that are not to be trusted blindly: a leverage near 1.
    method : str
        How they were left out.
    parameters : (s, k) tensor or None
        θ̃ of each set; None where they are too large to be kept.
    audit : Audit or None
        Unbiased estimate from a few refits.
    refitted : int
        Number of sets that were solved anew.
    retrained : dict of nn.Module
        Of a network: what the audit trained, by the row that it was trained without.
    predictions : (n, c) array or None
        Of a network: its outputs for each row that is left out.
    notes : tuple of str

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

    value: float
    std_error: float
    losses: Array
    rows: Index
    training: Array
    leverages: Array
    flagged: Index
    method: str
    parameters: Tensor | None = field(default=None, repr=False)
    audit: Audit | None = None
    refitted: int = 0
    retrained: Mapping[int, nn.Module] = field(default_factory=dict, repr=False)
    predictions: Array | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def effective_df(self) -> float:
        """Sum of the leverages, the effective degrees of freedom; NaN where they are not known."""
        return float(self.leverages.sum())

    @property
    def certified(self) -> Mask:
        """Values that are those of refits, to the accuracy of the optimiser: (t,) bool."""
        return np.isfinite(self.losses) & (self.method == REFITS)

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

    def __str__(self) -> str:
        rows = [
            ("leave-one-out loss", f"{self.value:.6g} ± {self.std_error:.2g}"),
            ("training loss", f"{self.training.mean():.6g}"),
            ("rows", f"{len(self.losses)}"),
            ("by", self.method),
        ]
        if np.all(np.isfinite(self.leverages)):
            rows.append(("largest leverage", f"{self.leverages.max():.3g}"))
        if self.audit is not None:
            rows.append(("audited, 95 %", str(self.audit)))
        if self.refitted:
            rows.append(("solved anew", f"{self.refitted}"))
        rows.append(("not to be trusted blindly", f"{len(self.flagged)} rows"))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

"""What is said of a search by gradients that may have missed the best."""

from __future__ import annotations

import warnings

from onefit._typing import Array
from onefit.exceptions import UnreliableWarning
from onefit.risk.criteria import Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.tuning.objective import Objective
from onefit.tuning.space import Domain, Space

NATURAL = {"l1_ratio": (0.0, 1.0)}  # bounds beyond which nothing lies
MISJUDGED = 0.1  # relative error of the risk of the search that is worth a warning
AT_BOUND = 1e-6  # distance from a bound, relative to the width, that is none


def warn_if_misjudged(found: float, thorough: RiskEstimate | Criterion) -> None:
    """Say so where the search went down a risk that is not that of the refits."""
    if not isinstance(thorough, RiskEstimate):
        return
    if abs(found - thorough.value) > max(MISJUDGED * abs(thorough.value), thorough.std_error):
        warnings.warn(
            f"the search took the risk of the best hyperparameters for {found:.4g}; judged thoroughly it is "
            f"{thorough.value:.4g}, so that others may be better: search with risk=onefit.risk.KFold(5)",
            UnreliableWarning,
            stacklevel=4,
        )


def warn_without_effect(objective: Objective) -> None:
    """Say so where a hyperparameter changes nothing."""
    for name in objective.without_effect():
        warnings.warn(
            f"{name} changes nothing in this model: its value is arbitrary", UnreliableWarning, stacklevel=3
        )


def warn_at_bounds(space: Space, t: Array) -> None:
    """Say so where a search ended at a bound beyond which the best may lie."""
    for domain, s in zip(space.domains, space.slices, strict=True):
        if not isinstance(domain, Domain) or domain.groups is not None:
            continue
        low, high = domain.ends
        share = float((t[s][0] - low) / (high - low))
        ends = NATURAL.get(domain.name.rpartition("__")[2], ())
        if min(share, 1.0 - share) < AT_BOUND and (domain.low if share < 0.5 else domain.high) not in ends:
            which, bound = ("lower", domain.low) if share < AT_BOUND else ("upper", domain.high)
            warnings.warn(
                f"the search ended with {domain.name} at its {which} bound, {bound:g}: the best value may "
                "lie beyond it",
                UnreliableWarning,
                stacklevel=3,
            )

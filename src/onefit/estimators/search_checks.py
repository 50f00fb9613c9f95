"""What a search by gradients was asked for, checked, and what is said where it may have missed the best."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer

from onefit._typing import Array
from onefit.estimators.penalized import leaving
from onefit.exceptions import UnreliableWarning
from onefit.risk.criteria import GCV, Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.risk.named import LeaveOneOut, Permutation, Split, Splits
from onefit.tuning.descent import WAYS
from onefit.tuning.objective import Objective
from onefit.tuning.space import Domain, Space

if TYPE_CHECKING:
    from onefit.estimators.search import GradientSearchCV

NATURAL = {"l1_ratio": (0.0, 1.0)}  # bounds beyond which nothing lies
MISJUDGED = 0.1  # relative error of the risk of the search that is worth a warning
AT_BOUND = 1e-6  # distance from a bound, relative to the width, that is none


def risk_of(search: GradientSearchCV, X: Any, y: Any) -> Any:
    """``risk``, or what ``cv`` says in its place."""
    if search.cv is None:
        return search.risk
    if search.risk != "loo":
        raise ValueError(f"cv and risk both say which rows are left out, {search.risk!r} as well: give one")
    X = X if hasattr(X, "shape") else np.asarray(X)
    sets, _ = leaving(search.cv, None, (X, y), classifier=is_classifier(search.estimator))
    return "loo" if sets is None else Split(sets)


def check_settings(search: GradientSearchCV) -> None:
    """Refuse settings that are none of those there are."""
    if search.optimizer not in WAYS:
        raise ValueError(f"optimizer must be one of {', '.join(WAYS)}, got {search.optimizer!r}")
    if search.gradient not in ("exact", "2017"):
        raise ValueError(f"gradient must be 'exact' or '2017', got {search.gradient!r}")
    if search.risk != "loo" and not isinstance(search.risk, Splits | GCV | Permutation):
        raise ValueError(
            "risk must be 'loo', onefit.risk.GCV(), onefit.risk.Permutation(), or splits such as "
            f"onefit.risk.KFold(5), got {search.risk!r}"
        )
    for name in ("n_starts", "max_iter"):
        if not getattr(search, name) >= 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(search, name)!r}")
    for name in ("tol", "learning_rate"):
        if not getattr(search, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(search, name)!r}")


def check_combination(search: GradientSearchCV, how: Any, *, grid: bool) -> None:
    """Refuse settings that do not go together."""
    by_row = how == "loo" or isinstance(how, LeaveOneOut)
    if grid and isinstance(how, Permutation):
        raise ValueError("risk=Permutation() is gone down by its gradient: give bounds (low, high)")
    if search.gradient == "2017" and not by_row:
        raise ValueError(f"gradient='2017' is for risk='loo', got risk={how!r}")
    if search.optimizer == "stochastic" and not by_row:
        raise ValueError(
            f"optimizer='stochastic' takes one row at a time, and is for risk='loo', got {how!r}"
        )
    if search.scoring is not None:
        get_scorer(search.scoring)
        if not (search.refit or grid) or isinstance(how, GCV):
            raise ValueError(
                "scoring judges left-out predictions of the best model: it needs refit=True, and a risk "
                "other than GCV()"
            )


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

"""What a search by gradients was asked for, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer

from onefit.estimators.sample import leaving
from onefit.risk.criteria import GCV
from onefit.risk.named import LeaveOneOut, Permutation, Split, Splits
from onefit.tuning.descent import WAYS

if TYPE_CHECKING:
    from onefit.estimators.search import GradientSearchCV


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

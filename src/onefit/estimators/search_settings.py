"""What a search was asked for, checked: bounds of hyperparameters, and how they are gone through.

And what is said of a search that may have missed the best.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from sklearn.base import is_classifier

from onefit._scoring import check_scoring
from onefit._typing import Array, Index
from onefit.estimators.sample import leaving
from onefit.exceptions import UnreliableWarning
from onefit.losses import Mixture
from onefit.risk.criteria import GCV, Criterion
from onefit.risk.estimate import RiskEstimate
from onefit.risk.named import LeaveGroupOut, LeaveOneOut, Permutation, Split, Splits
from onefit.tuning.descent import WAYS
from onefit.tuning.objective import Objective
from onefit.tuning.space import Domain, Hyperparameter, Scale, Shares, Space
from onefit.validation import check_choice, check_count, check_positive

WIDE = 50.0  # ratio of the bounds from which on the search takes steps in the logarithm
if TYPE_CHECKING:
    from onefit.estimators.search import GradientSearchCV

NATURAL = {"l1_ratio": (0.0, 1.0)}  # bounds beyond which nothing lies
MISJUDGED = 0.1  # relative error of the risk of the search that is worth a warning
AT_BOUND = 1e-6  # distance from a bound, relative to the width, that is none


@dataclass(frozen=True)
class PerFeature:
    """A hyperparameter with one value a feature.

    Parameters
    ----------
    low, high : float
        Bounds of each, positive for the scale "log".
    scale : "log" or "linear", default "log"

    Examples
    --------
    >>> import onefit
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    >>> bounds = {"penalty__alpha": onefit.PerFeature(1e-4, 1e4)}  # a strength for each of the ten columns
    >>> search = onefit.GradientSearchCV(model, bounds).fit(X, y)
    >>> search.best_params_["penalty__alpha"].shape
    (10,)
    """

    low: float
    high: float
    scale: Scale = "log"


@dataclass(frozen=True, eq=False)
class PerGroup:
    """A hyperparameter with one value for each group of features.

    Parameters
    ----------
    groups : (p,) labels
        Group of each feature.
    low, high : float
        Bounds of each, positive for the scale "log".
    scale : "log" or "linear", default "log"

    Examples
    --------
    >>> import onefit
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> of_column = ["person"] * 4 + ["serum"] * 6
    >>> model = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    >>> bounds = {"penalty__alpha": onefit.PerGroup(of_column, 1e-4, 1e4)}  # two strengths
    >>> search = onefit.GradientSearchCV(model, bounds).fit(X, y)
    >>> len(set(search.best_params_["penalty__alpha"]))  # one a column, of its group
    2
    """

    groups: Any
    low: float
    high: float
    scale: Scale = "log"


@dataclass(frozen=True)
class Simplex:
    """Weights of a mixture of losses: at least 0, with sum 1 (Wang et al. 2019, appendix B).

    For ``loss__weights`` of a ``GeneralizedLinear`` whose loss is an ``onefit.losses.Mixture``.

    Examples
    --------
    >>> import onefit
    >>> from onefit.losses import Exponential, Mixture, SquaredHinge
    >>> model = onefit.GeneralizedLinear(Mixture([Exponential(), SquaredHinge()]), onefit.penalties.L2())
    >>> bounds = {"loss__weights": onefit.Simplex(), "penalty__alpha": (1e-2, 1e2)}
    >>> search = onefit.GradientSearchCV(model, bounds, risk=onefit.risk.KFold(5))
    """


def domain_of(name: str, given: Any, X: Any, estimator: Any) -> Hyperparameter:
    """Return the hyperparameter that is searched over, from its name and what was given as its bounds."""
    if isinstance(given, Simplex):
        return _shares(name, estimator)
    p = _columns(X)
    if isinstance(given, PerFeature):
        return _checked(Domain(name, given.low, given.high, given.scale, np.arange(p)))
    if isinstance(given, PerGroup):
        groups: Index = np.unique(np.asarray(given.groups), return_inverse=True)[1].ravel()
        if len(groups) != p:
            raise ValueError(f"PerGroup of {name!r} has {len(groups)} labels, but X has {p} columns")
        return _checked(Domain(name, given.low, given.high, given.scale, groups))
    return _interval(name, given)


def _shares(name: str, estimator: Any) -> Shares:
    owner, _, parameter = name.rpartition("__")
    mixed = estimator.get_params(deep=True).get(owner)
    if not isinstance(mixed, Mixture) or parameter != "weights":
        raise ValueError(
            f"Simplex is for the weights of an onefit.losses.Mixture, as in {{'loss__weights': Simplex()}}; "
            f"{name!r} is another hyperparameter"
        )
    return Shares(name, len(mixed.losses))


def _interval(name: str, given: Any) -> Domain:
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise ValueError(
            f"bounds of {name!r} must be (low, high), PerFeature, PerGroup or Simplex, got {given!r}: for "
            "the values of a grid give the smallest and the largest, between which gradients lead"
        )
    domain = _checked(Domain(name, given[0], given[1], given[2] if len(given) == 3 else "linear"))
    wide = domain.low > 0 and domain.high / domain.low >= WIDE
    return replace(domain, scale="log") if len(given) == 2 and wide else domain


def _checked(domain: Domain) -> Domain:
    check_choice(f"the scale of {domain.name!r}", domain.scale, get_args(Scale))
    try:
        low, high = float(domain.low), float(domain.high)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(
            f"bounds of {domain.name!r} must be finite numbers, the lower one first, got {domain.low!r}, "
            f"{domain.high!r}"
        )
    if domain.scale == "log" and low <= 0:
        raise ValueError(
            f"bounds of {domain.name!r} must be positive in the scale 'log', got {low}: take a small "
            "positive number, or the scale 'linear'"
        )
    return replace(domain, low=low, high=high)


def starting_point(space: Space, given: Mapping[str, Any]) -> Array:
    """Return where to start, in the scale of the search: (m,)."""
    known = {domain.name: domain for domain in space.domains}
    for name in given:
        if name not in known:
            raise ValueError(f"start names {name!r}, but the search is over {', '.join(known)}")
    return np.concatenate(
        [
            domain.middle if domain.name not in given else _started(domain, given[domain.name])
            for domain in space.domains
        ]
    )


def _started(domain: Hyperparameter, given: Any) -> Array:
    wanted = "a number" if domain.size == 1 else f"{domain.size} numbers"
    try:
        values = np.broadcast_to(np.asarray(given, dtype=np.float64), domain.size)
    except (TypeError, ValueError):
        raise ValueError(f"start of {domain.name!r} must be {wanted}, got {given!r}") from None
    if not domain.holds(values):
        raise ValueError(f"start of {domain.name!r} must be {wanted} {domain.range}, got {given!r}")
    return domain.at(values)


def _columns(X: Any) -> int:
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) != 2:
        raise ValueError(
            f"X must have one row a sample and one column a feature, got shape {shape}. Reshape your data"
        )
    return int(shape[1])


def risk_of(search: GradientSearchCV, X: Any, y: Any, groups: Any = None) -> Any:
    """``risk``, or what ``cv`` and groups of rows say in its place."""
    if search.cv is None and groups is None:
        return search.risk
    if search.risk != "loo":
        other = "groups" if search.cv is None else "cv"
        raise ValueError(
            f"{other} and risk both say which rows are left out, {search.risk!r} as well: give one of them "
            "(whole groups leave with risk='loo', and by folds with a cv that takes groups)"
        )
    X = X if hasattr(X, "shape") else np.asarray(X)
    sets, clusters = leaving(search.cv, groups, (X, y), classifier=is_classifier(search.estimator))
    if clusters is not None:
        return LeaveGroupOut(groups)
    return "loo" if sets is None else Split(sets)


def check_settings(search: GradientSearchCV) -> None:
    """Refuse settings that are none of those there are."""
    check_choice("optimizer", search.optimizer, WAYS)
    check_choice("gradient", search.gradient, ("exact", "2017"))
    if search.risk != "loo" and not isinstance(search.risk, Splits | GCV | Permutation):
        raise ValueError(
            "risk must be 'loo', onefit.risk.GCV(), onefit.risk.Permutation(), or splits such as "
            f"onefit.risk.KFold(5), got {search.risk!r}"
        )
    for name in ("n_starts", "max_iter"):
        check_count(name, getattr(search, name))
    for name in ("tol", "learning_rate"):
        check_positive(name, getattr(search, name))


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
        check_scoring(search.scoring)
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
    for domain, s in space.parts():
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

"""Bounds of hyperparameters as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onefit._typing import Array, Index
from onefit.losses import Mixture
from onefit.tuning.space import Domain, Hyperparameter, Scale, Shares, Space

DECADES = 50.0  # ratio of the bounds from which on the search takes steps in the logarithm


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
    wide = domain.low > 0 and domain.high / domain.low >= DECADES
    return replace(domain, scale="log") if len(given) == 2 and wide else domain


def _checked(domain: Domain) -> Domain:
    if domain.scale not in ("log", "linear"):
        raise ValueError(f"the scale of {domain.name!r} must be 'log' or 'linear', got {domain.scale!r}")
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

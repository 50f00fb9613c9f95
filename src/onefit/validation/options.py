"""Checks of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

import numpy as np

from onefit._typing import Array, Sets
from onefit.wording import shown


def is_count(given: Any) -> TypeGuard[int]:
    """Whether something, as strengths may be, is given as a whole number."""
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def is_number(given: Any) -> bool:
    """Whether it is a number, and no bool."""
    return isinstance(given, int | float | np.number) and not isinstance(given, bool)


def _numbers_of(name: str, given: Any, n: int, each: str) -> Array:
    """One number for each of n things, as an array."""
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {n} numbers, got {shown(given)}") from None
    if found.shape != (n,):
        raise ValueError(f"{name} must have one number a {each}, shape ({n},), got shape {found.shape}")
    return found


def check_strengths(
    name: str, given: Any, automatic: Callable[[], tuple[float, float]], *, positive: bool = True
) -> Array:
    """Strengths in decreasing order: those given, or so many between the automatic ends."""
    if isinstance(given, int | np.integer):
        count = int(given)
        if count < 1 or given is True:
            raise ValueError(f"{name} must be at least 1 strength, got {given}")
        high, low = automatic()
        return np.geomspace(high, low, count) if count > 1 else np.array([np.sqrt(high * low)])
    try:
        strengths = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a whole number or a list of numbers, got {given!r}") from None
    if given is None:
        raise ValueError(f"{name} must be a whole number or a list, got None: leave it out for the default")
    if strengths.ndim == 0:
        raise ValueError(f"{name} must be a whole number or a list, got {given!r}: write [{given!r}]")
    wrong = strengths.ndim != 1 or strengths.size == 0 or not np.all(np.isfinite(strengths))
    if wrong or np.any(strengths <= 0 if positive else strengths < 0):
        kind = "positive" if positive else "non-negative"
        raise ValueError(f"{name} must be a whole number or a list of {kind} numbers, got {given!r}")
    return np.sort(strengths)[::-1].copy()


def check_max_error(max_error: Any) -> float:
    """Return how many standard errors the risk may be off, a number from 0 on."""
    if not is_number(max_error):
        raise TypeError(f"max_error must be a number of standard errors, got {max_error!r}")
    if not max_error >= 0:
        raise ValueError(f"max_error must be at least 0, got {max_error!r}: 0 makes every value exact")
    return float(max_error)


def check_audit(given: Any) -> int:
    """Return how many rows to audit: 0 for none, else at least 2."""
    if not is_count(given) or given < 0 or given == 1:
        raise ValueError(
            f"audit must be 0 or a whole number of rows to refit, at least 2 (30 is good), got {given!r}"
        )
    return int(given)


# --- one number, one word ----------------------------------------------------------------------------


def _check_number(name: str, given: Any, what: str, holds: Callable[[Any], Any]) -> None:
    """Refuse what is not one number of which something holds."""
    number = np.asarray(given)
    if number.ndim or number.dtype.kind not in "fiu" or not holds(number):
        raise ValueError(f"{name} must be {what}, got {given!r}")


def check_share(name: str, given: Any) -> None:
    """Refuse what is not one number between 0 and 1."""
    _check_number(name, given, "a number in [0, 1]", lambda number: 0 <= number <= 1)


def check_inside(name: str, given: Any) -> None:
    """Refuse what is not one number strictly between 0 and 1."""
    _check_number(name, given, "a number between 0 and 1", lambda number: 0 < number < 1)


def check_strength(name: str, given: Any) -> None:
    """Refuse what is not one finite number that is at least 0."""
    _check_number(name, given, "a finite number that is at least 0", lambda number: 0 <= number < np.inf)


def check_positive(name: str, given: Any) -> None:
    """Refuse what is not one finite number above 0."""
    _check_number(name, given, "a positive number", lambda number: 0 < number < np.inf)


def check_count(name: str, given: Any, least: int = 1) -> None:
    """Refuse what is not a whole number, at least so large."""
    if not is_count(given) or given < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {given!r}")


def check_choice(name: str, given: Any, choices: Iterable[str]) -> None:
    """Refuse what is none of some words."""
    words = list(choices)
    if given not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got {given!r}")


# --- settings ----------------------------------------------------------------------------------------


def check_flag(name: str, given: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(given, bool | np.bool_) and not (isinstance(given, int) and given in (0, 1)):
        raise ValueError(f"{name} must be True or False, got {given!r}")


def check_rng(rng: Any, name: str = "rng") -> np.random.Generator:
    """Return a generator from a seed, or from None."""
    if not (rng is None or isinstance(rng, int | np.integer | np.random.Generator)) or isinstance(rng, bool):
        raise TypeError(f"{name} must be None, a whole number or a numpy Generator, got {rng!r}")
    if isinstance(rng, int | np.integer) and rng < 0:
        raise ValueError(f"{name} must be a whole number from 0 on, got {rng}")
    return np.random.default_rng(rng)


def check_solver(max_iter: Any, tol: Any, n_jobs: Any = None) -> None:
    """Refuse limits of a solver that are none, and numbers of jobs."""
    if n_jobs is not None and not (is_count(n_jobs) and n_jobs != 0):
        raise ValueError(f"n_jobs must be None or a whole number other than 0 (-1 is all), got {n_jobs!r}")
    if max_iter is not None and not (is_count(max_iter) and max_iter >= 1):
        raise ValueError(f"max_iter must be a whole number from 1 on, got {max_iter!r}")
    if tol is not None and not (is_number(tol) and tol >= 0):
        raise ValueError(f"tol must be a number that is at least 0, got {tol!r}")


def check_factors(given: Any, p: int, names: Any = None) -> Array:
    """Factors on the penalty of each column, by their order or by name: (p,), at least 0."""
    own = _by_name(given, names) if isinstance(given, Mapping) else given
    factors = _numbers_of("penalty_factors", own, p, "column")
    if not np.all(factors >= 0) or not np.any(np.isfinite(factors) & (factors > 0)):
        raise ValueError(
            f"penalty_factors must be at least 0 (0 is unpenalised, infinity leaves a column out), and not "
            f"all of them 0 or infinite, got {given!r}"
        )
    return factors


def _by_name(given: Mapping[Any, Any], names: Any) -> list[Any]:
    """Factors of columns that are named; those of others are 1."""
    if names is None:
        raise ValueError(
            "penalty_factors by name are for an X with names of columns, a DataFrame: in a pipeline after "
            '.set_output(transform="pandas")'
        )
    known = list(names)
    if unknown := [name for name in given if name not in known]:
        raise ValueError(
            f"penalty_factors name columns that X has not: {shown(unknown)}; it has {shown(known)}"
        )
    return [given.get(name, 1.0) for name in known]


def check_bounds(given: Any, *, positive: Any, p: int) -> tuple[Array, Array] | None:
    """Lower and upper bounds of the coefficients, ``positive=True`` among them; None if there are none."""
    check_flag("positive", positive)
    if given is None and not positive:
        return None
    pair: Any = (None, None) if given is None else given
    if not (isinstance(pair, tuple | list) or (isinstance(pair, np.ndarray) and pair.ndim)) or len(pair) != 2:
        raise ValueError(f"bounds must be (lower, upper), two numbers or two arrays, got {given!r}")
    ends = []
    for name, end, none in zip(("lower", "upper"), pair, (-np.inf, np.inf), strict=True):
        try:
            values = np.asarray(none if end is None else end, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"the {name} bounds must be numbers, got {end!r}") from None
        if values.shape not in ((), (p,)):
            raise ValueError(
                f"the {name} bounds must be one number, or one a column ({p}), got {values.shape}"
            )
        ends.append(np.broadcast_to(values, (p,)))
    lower, upper = ends
    return (np.maximum(lower, 0.0) if positive else lower), upper


def check_class_weight(given: Any, classes: Any) -> None:
    """Refuse weights of classes that are none, or of classes that there are not."""
    if given is None:
        return
    if classes is None:
        raise ValueError("class_weight is for classifiers: pass sample_weight")
    if isinstance(given, str) and given == "balanced":
        return
    if not isinstance(given, dict):
        raise TypeError(f"class_weight must be None, 'balanced' or a dict of class to weight, got {given!r}")
    known = np.asarray(classes).tolist()
    for label, weight in given.items():
        if label not in known:
            raise ValueError(f"class_weight names {label!r}, which is not among the classes {known}")
        if not isinstance(weight, int | float | np.number) or not 0 <= float(weight) < np.inf:
            raise ValueError(f"class_weight of {label!r} must be a number that is at least 0, got {weight!r}")


def check_offset(given: Any, n: int) -> Array:
    """Return what is added to the linear predictors: (n,), finite."""
    offset = _numbers_of("offset", given, n, "row")
    wrong = np.flatnonzero(~np.isfinite(offset))
    if wrong.size:
        raise ValueError(
            f"offset[{wrong[0]}] = {offset[wrong[0]]}: leave out rows without exposure, which has no "
            "logarithm"
        )
    return offset


def check_classes_stay(removed: Sets, target: Array, weights: Array) -> None:
    """Refuse splits whose training rows lack a class."""
    classes = np.unique(target[weights > 0])
    for k, rows in enumerate(removed):
        held = weights.copy()
        held[rows] = 0.0
        missing = np.setdiff1d(classes, target[held > 0])
        if missing.size:
            raise ValueError(
                f"split {k} has no training row of class number {int(missing[0])}: take fewer splits, "
                "stratified ones (StratifiedKFold(5), StratifiedGroupKFold(5)), or another random_state"
            )

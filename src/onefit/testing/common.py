"""What the checks share: differences, parameters, and refits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from onefit._typing import Array

PLACES = np.array([-2.0, -1.0, 1.0, 2.0])  # of a five-point difference
WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / 12.0


def same(found: Any, expected: Any, what: str, rtol: float = 1e-6, atol: float = 1e-8) -> None:
    """Assert that two arrays agree."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def holds(truth: Any, what: str) -> None:
    """Assert a statement, or one for each entry."""
    if not np.all(truth):
        raise AssertionError(what)


def difference(function: Callable[[float], Any], step: float) -> Any:
    """Derivative at 0 by five points."""
    return sum(w * function(k * step) for k, w in zip(PLACES, WEIGHTS, strict=True)) / step


def check_parameters(one: Any) -> None:
    """Parameters can be read and set; clones, copies and pickles have the same."""
    name, params = type(one).__name__, one.get_params(deep=False)
    for again in (clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), type(one)(**params)):
        found = again.get_params(deep=False)
        holds(
            type(again) is type(one) and found.keys() == params.keys(), f"a copy of {name} is another thing"
        )
        for key, value in params.items():
            holds(_alike(found[key], value), f"a copy of {name} has another {key}")
    try:
        clone(one).set_params(not_a_parameter=1.0)
    except ValueError:
        return
    raise AssertionError(f"{name}.set_params must refuse a name that is no parameter")


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(np.array_equal(np.asarray(one, dtype=float), np.asarray(other, dtype=float)))
    except (TypeError, ValueError):
        return repr(one) == repr(other)


def some_rows(n: int, most: int, rng: np.random.Generator) -> Array:
    """Row numbers to be left out one by one."""
    return np.sort(rng.permutation(n)[:most])

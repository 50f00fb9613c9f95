"""Fitted estimators in our terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

from onefit._typing import Array, Design
from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.metrics import LinearMetric


@dataclass(frozen=True)
class Reading:
    """A fitted estimator in our terms.

    Attributes
    ----------
    fit : Fit
        As the estimator left it, polished or not.
    metric : LinearMetric
        How its predictions come from linear predictors, and are judged.
    target : array
        The response in the terms of ``metric``: numbers, or class numbers.
    classes : array or None
    tol : float
        Tolerance that its solver was asked for.
    converged : bool
        Whether the solver stopped before its limit of iterations.
    iterates : bool
        Whether it iterates at all.
    solved : bool
        Whether it is known to end at machine precision, as ours do.
    gap : float
        How far the objective may have been from its minimum where the solver stopped, by its own dual gap;
        inf where it kept none.
    notes : tuple of str
    design : callable
        From new rows, as the estimator takes them, to rows of the fit's X.
    constant : float
        Value of the last column of the fit's X where that stands for the intercept, else 0.
    names : sequence of str or None
        Of the columns, where the model keeps them otherwise than as ``feature_names_in_``.
    """

    fit: Fit
    metric: LinearMetric
    target: Array
    classes: Any | None = None
    tol: float = 1e-4
    converged: bool = True
    iterates: bool = False
    solved: bool = False
    gap: float = np.inf
    notes: tuple[str, ...] = ()
    design: Callable[[Any], Design] | None = None
    constant: float = 0.0
    names: Sequence[str] | None = None


Reader: TypeAlias = Callable[[Any, Any, Any, Any], Reading]  # of a model, X, y and weights or None
Refusal: TypeAlias = Callable[[Any, Any, Any, Any], NoReturn]  # of the same


def refuse(model: Any, parameter: str, why: str) -> NoReturn:
    """Refuse a value of a parameter, and say why.

    Raises
    ------
    UnsupportedModelError
    """
    raise UnsupportedModelError(
        f"{type(model).__name__}({parameter}={getattr(model, parameter)!r}) is not supported: {why}"
    )

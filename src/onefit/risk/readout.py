"""How a model takes new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onefit._typing import Array, Design
from onefit.metrics import LinearMetric


class Readout(NamedTuple):
    """How the linear predictors of new rows are had, and what they mean."""

    response: LinearMetric
    design: Callable[[Any], Design]  # from new rows, as the model takes them, to rows of the fit's X
    constant: float  # last column of the fit's X where that stands for the intercept, else 0
    offset: Array | float = 0.0  # of the rows, (n,)

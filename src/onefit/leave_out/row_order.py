"""A random order of the rows that depends on what they hold, and not on where they are in a table.

Samples and tenths are drawn in this order, so that a table whose rows are permuted has the same draws, and
with them the same choice.
"""

from __future__ import annotations

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.fit import Fit, once
from onefit.numerics import TINY


@once
def random_order(fit: Fit) -> Index:
    """Rows in an order that is random but for their own values: (n,).

    They are sorted by a random combination of their columns, in units of these, then by response and weight;
    rows that agree in all of that are alike.
    """
    problem, rng = fit.problem, np.random.default_rng(0)
    responses = np.reshape(problem.y, (problem.n, -1)).T
    by_content = np.lexsort((problem.weights, *responses, _combined(fit, rng)))
    return by_content[rng.permutation(problem.n)]


def _combined(fit: Fit, rng: np.random.Generator) -> Array:
    """A number a row: of a kernel, what the responses of all rows weigh there."""
    X, y = fit.problem.X, fit.problem.y
    if not _linalg.has_columns(X):
        return _linalg.times(X, np.reshape(y, (fit.problem.n, -1))[:, 0] - np.mean(y))
    lengths = _linalg.column_lengths(X)
    return _linalg.times(X, rng.normal(size=len(lengths)) / np.maximum(lengths, TINY))

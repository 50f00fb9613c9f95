"""What is fitted in passes over the rows, where it stands, and the rows as such passes take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from onefit._linalg import product
from onefit._typing import Array, Index
from onefit.blocks.rows import Block
from onefit.losses import Loss
from onefit.metrics import LinearMetric
from onefit.penalties import SeparablePenalty


@final
@dataclass(frozen=True)
class Models:
    """What is fitted: one loss, and a penalty for each of J strengths.

    Attributes
    ----------
    loss : Loss
        With two derivatives and one output.
    metric : LinearMetric
        By which left-out predictions are judged; reads the response.
    penalties : tuple of SeparablePenalty
        Strongest first.
    intercept : bool
    mean_scaled : bool
        Whether the penalty shrinks when a row leaves.
    """

    loss: Loss
    metric: LinearMetric
    penalties: tuple[SeparablePenalty, ...]
    intercept: bool
    mean_scaled: bool

    def some(self, which: Index) -> Models:
        """Return those of some strengths."""
        return replace(self, penalties=tuple(self.penalties[j] for j in which))


class Points(NamedTuple):
    """Coefficients and intercepts of J strengths, for columns less ``centre``."""

    coefs: Array  # (J, p)
    levels: Array  # (J,)
    centre: Array  # (p,)

    def some(self, which: Index) -> Points:
        """Return those of some strengths."""
        return Points(self.coefs[which], self.levels[which], self.centre)

    def predictors(self, X: Array) -> Array:
        """η of some rows, whose columns are centred: (J, r)."""
        return product(X, self.coefs.T).T + self.levels[:, None]

    @property
    def intercepts(self) -> Array:
        """Intercepts for columns as they are: (J,)."""
        return self.levels - self.coefs @ self.centre


def pieces(block: Block, metric: LinearMetric, centre: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Cut a block into pieces that stay in cache: X less the centre, y as the loss takes it, and weights."""
    for part in block.parts():
        target = np.asarray(metric.target(part.y), dtype=np.float64)
        weights = np.ones(len(target)) if part.weights is None else part.weights
        yield np.subtract(part.X, centre, dtype=np.float64), target, weights


def null_points(models: Models, centre: Array, level: float) -> Points:
    """The constant model, for each strength."""
    J = len(models.penalties)
    return Points(np.zeros((J, len(centre))), np.full(J, level if models.intercept else 0.0), centre)

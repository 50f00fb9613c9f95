"""The families of models that are tuned, and which of them suit a task."""

from __future__ import annotations

from typing import Any

from onefit.estimators import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO

MIXES = (0.1, 0.5, 0.9)
STRENGTHS = 100  # along a path
FEWEST = 15  # two a decade
NUMBERS_A_PATH = (
    2e8  # strengths times cells of the table: beyond it neighbours on a path cannot be told apart
)


def n_strengths(cells: int) -> int:
    """How many strengths are tried on a table of so many cells.

    With very many rows the risk hardly depends on the strength, and a fine path would cost minutes for digits
    that its own error hides.
    """
    return int(min(STRENGTHS, max(FEWEST, NUMBERS_A_PATH / max(cells, 1))))


def make(name: str, strengths: Any) -> Any:
    """An unfitted model of a family, with so many strengths or with those given."""
    match name:
        case "ridge":
            return RidgeLOO(strengths)
        case "lasso":
            return LassoLOO(strengths)
        case "elasticnet":
            return ElasticNetLOO(strengths, l1_ratio=MIXES)
        case "logistic":
            return LogisticLOO(strengths)
        case "logistic-l1":
            return LogisticLOO(strengths, l1_ratio=1.0)
        case "poisson":
            return PoissonLOO(strengths)
    raise ValueError(f"there is no family {name!r}")

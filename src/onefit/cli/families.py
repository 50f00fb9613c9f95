"""The families of models that are tuned, and which of them suit a task."""

from __future__ import annotations

from typing import Any

from onefit.cli.choices import SUITED
from onefit.cli.errors import TableError
from onefit.displays.strengths import strengths_of
from onefit.estimators import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit.wording import to_digits

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


MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    "ridge": (RidgeLOO, {}),
    "lasso": (LassoLOO, {}),
    "elasticnet": (ElasticNetLOO, {"l1_ratio": MIXES}),
    "logistic": (LogisticLOO, {}),
    "logistic-l1": (LogisticLOO, {"l1_ratio": 1.0}),
    "poisson": (PoissonLOO, {}),
}


def refuse_unsuited(name: str, task: str) -> None:
    """Refuse a family that does not suit the task, where both were asked for."""
    if "auto" not in (name, task) and task not in SUITED[name]:
        suited = [other for other, tasks in SUITED.items() if task in tasks]
        raise TableError(f"{name} does not suit {task}: use --model {' or '.join(suited)}")


def make(name: str, strengths: Any) -> Any:
    """An unfitted model of a family, with so many strengths or with those given."""
    family, options = MADE[name]
    return family(strengths, **options)


def chosen(model: Any) -> str:
    """What was chosen, in words."""
    name, _, strength = strengths_of(model)
    ratio = getattr(model, "l1_ratio_", 0.0)
    mixed = f" l1_ratio={ratio:.3g}" if ratio not in (0.0, 1.0) else ""
    return f"{name}={to_digits(strength, 4)}{mixed}"

"""``cv_results_`` of a search, as ``GridSearchCV`` has it: a table with a row for each evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onefit._typing import Array


def cv_results(
    params: Sequence[dict[str, Any]], scores: Array, by_set: Sequence[Array | None]
) -> dict[str, Any]:
    """Columns of the table.

    Parameters
    ----------
    params : list of dict
        Hyperparameters of each evaluation by name; those of one grid of several may lack in another.
    scores : (e,) array
        Larger is better; NaN or infinite where there is none.
    by_set : list of (f,) arrays or None
        The same on each set that was left out; None where rows leave alone, or nothing was judged.
    """
    found: dict[str, Any] = {"params": list(params), "mean_test_score": scores}
    sets = max((len(own) for own in by_set if own is not None), default=0)
    if sets:
        missing = np.full(sets, np.nan)
        of_each = np.array([missing if own is None else own for own in by_set])
        found["std_test_score"] = of_each.std(axis=1)
        found |= {f"split{k}_test_score": of_each[:, k] for k in range(sets)}
    found["rank_test_score"] = np.argsort(np.argsort(-scores, kind="stable")) + 1
    for name in dict.fromkeys(name for one in params for name in one):
        found[f"param_{name}"] = _column(
            [one.get(name) for one in params], [name not in one for one in params]
        )
    return found


def _column(values: list[Any], missing: list[bool]) -> Any:
    """Values of any kind, arrays among them, and where there are none."""
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        column[i] = value
    return np.ma.MaskedArray(column, missing, fill_value="?")

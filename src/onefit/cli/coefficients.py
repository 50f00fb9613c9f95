"""Coefficients in the units of the table, with jackknife errors: what people read first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from onefit._typing import Array
from onefit.risk.coefficients import CoefficientTable
from onefit.risk.estimate import RiskEstimate

TOP = 10  # on the terminal


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A table of coefficients for people, the most important first.

    Attributes
    ----------
    frame : (p c, ·) DataFrame
        feature, class (for several), coefficient, std_error (by unit of the column), effect (of a standard
        deviation of the column), same_sign, selected.
    by : str
        What was left out for the errors.
    """

    frame: pd.DataFrame
    by: str

    @property
    def kept(self) -> pd.DataFrame:
        """Those that are not zero."""
        return self.frame[self.frame["coefficient"] != 0]


def coefficients(
    est: RiskEstimate, names: list[str], scale: Array, centre: Array, spread: Array
) -> Coefficients:
    """From the leave-one-out of a model on standardised features.

    Parameters
    ----------
    est : RiskEstimate
    names : list of str
        p names.
    scale, centre : (p,) array
        The features are (x − centre) / scale.
    spread : (p,) array
        Standard deviation of each x.
    """
    table = est.coef_table(names, scale=scale, centre=centre)
    labels = None if est.classes is None or np.ndim(table.coef) == 1 else list(map(str, est.classes))
    return Coefficients(as_frame(table, spread, labels), "each row left out in turn")


def as_frame(table: CoefficientTable, spread: Array, labels: list[str] | None) -> pd.DataFrame:
    """One line a coefficient, the largest effect first."""
    columns: dict[str, Any] = {
        "coefficient": table.coef,
        "std_error": table.std_error,
        "effect": table.coef * spread,
        "same_sign": table.same_sign,
        "selected": table.selected,
    }
    outputs = 1 if labels is None else len(labels)
    made = {"feature": list(table.names) * outputs}
    if labels is not None:
        made["class"] = [label for label in labels for _ in table.names]
    frame = pd.DataFrame(made | {name: np.ravel(column) for name, column in columns.items()})
    order = np.argsort(-np.abs(frame["effect"].to_numpy()), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


class GroupRefit(NamedTuple):
    """A refit without some of the groups, in the units of the columns.

    Attributes
    ----------
    names : list of str
        Its features may differ: a level can be rare in one part and not in another.
    coef : (p,) or (c, p) array
        Along a path, one for each strength.
    """

    names: list[str]
    coef: Array


def by_parts(
    parts: Sequence[GroupRefit], full: GroupRefit, spread: Array, labels: list[str] | None, words: str
) -> Coefficients:
    """Coefficients with errors from K refits that each leave a part of the groups out.

    se² = (K − 1)/K Σ_k (β_k − β̄)², the jackknife that deletes groups; a feature that a part does not have
    counts as 0 there.
    """
    each = np.stack([_aligned(part, full.names) for part in parts])
    k = len(parts)
    error = np.sqrt((k - 1) / k * np.square(each - each.mean(axis=0)).sum(axis=0))
    table = CoefficientTable(
        tuple(full.names),
        full.coef,
        error,
        (np.sign(each) == np.sign(full.coef)).mean(axis=0),
        (each != 0).mean(axis=0),
        np.zeros(full.coef.shape[:-1]),
        np.zeros(full.coef.shape[:-1]),
    )
    return Coefficients(as_frame(table, spread, labels), words)


def _aligned(part: GroupRefit, names: list[str]) -> Array:
    place = {name: j for j, name in enumerate(part.names)}
    padded = np.concatenate([part.coef, np.zeros((*part.coef.shape[:-1], 1))], axis=-1)
    return padded[..., [place.get(name, -1) for name in names]]

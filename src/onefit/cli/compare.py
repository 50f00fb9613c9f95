"""``onefit compare``: two or more results of ``onefit tune``, row by row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from onefit._typing import Array
from onefit.cli.errors import RowError, TableError, cited
from onefit.cli.printed import say
from onefit.cli.words import aligned
from onefit.risk.means import clustered, mean_and_error
from onefit.risk.presentation import with_error

NEEDED = ("summary.json", "predictions.csv")
OF_PASSES = "predictions.parquet"  # in place of the second, where a table was read in passes
A_RESULT = "name a folder that onefit tune --out has made"
TOLD, COLUMNS = ("target", "loss", "best", "left_out", "column"), ("row", "y", "loss")


@dataclass(frozen=True, eq=False)
class Result:
    """A folder that ``onefit tune`` has written.

    Attributes
    ----------
    name : str
    about : dict
        summary.json.
    rows : DataFrame
        predictions.csv, by row of the file.
    """

    name: str
    about: dict[str, Any]
    rows: pd.DataFrame


def compare_folders(places: tuple[str, ...]) -> None:
    """Compare the left-out losses on the rows that all have, by paired differences."""
    resolved = [Path(place).resolve() for place in places]
    for k, place in enumerate(places):
        if resolved[k] in resolved[:k]:
            first = places[resolved.index(resolved[k])]
            as_ = "" if first == place else f", as {first} too"
            raise TableError(f"{place} is named twice{as_}: there is nothing to compare")
    found = [read_result(place) for place in places]
    if len(found) < 2:
        raise TableError(f"name at least two folders: there is none to compare {places[0]} with")
    alike = _are_left_out_alike(found)
    common = reduce(pd.Index.intersection, [one.rows.index for one in found])
    if len(common) < 2:
        raise TableError(f"{places[0]} and {places[1]} have {len(common)} rows in common: nothing to compare")
    _check_target(found, common)
    losses = {one.name: one.rows.loc[common, "loss"].to_numpy(np.float64) for one in found}
    weights, groups = _weights(found, common), _groups(found, common)

    def risk(own: Array) -> tuple[float, float]:
        return mean_and_error(*((own, weights) if groups is None else clustered(own, weights, groups)))

    best = min(losses, key=lambda name: risk(losses[name])[0])
    above = {name: risk(other - losses[best]) for name, other in losses.items()}
    loss_name = found[0].about["loss"]
    say(f"{cited(found[0].about['target'])}: left-out {loss_name} on {len(common)} common rows")
    lines = [
        [
            "*" if one.name == best and alike else "",
            one.name,
            one.about["best"],
            one.about["column"] or one.about["left_out"],
            with_error(*risk(losses[one.name])),
            "" if one.name == best else "+" + with_error(*above[one.name]),
        ]
        for one in found
    ]
    say(aligned(["", "folder", "model", "left out", loss_name, "above the best"], lines, left=4))
    if not alike:
        ways = "; ".join(f"{one.name} by {one.about['column'] or one.about['left_out']}" for one in found)
        say(
            f"Not to be compared: rows were left out in different ways ({ways}), and the risks answer "
            "different questions. Tune all with the same --groups or --time."
        )
        return
    say(_verdict(best, losses, above))


def _verdict(best: str, losses: dict[str, Array], above: dict[str, tuple[float, float]]) -> str:
    """Say whether one is better than all others by these rows."""
    if all(np.array_equal(own, losses[best]) for own in losses.values()):
        return f"{' and '.join(losses)} have the same loss in every row."
    tied = [name for name, (more, error) in above.items() if name != best and more <= 2.0 * error]
    if tied:
        return (
            f"{best} has the smallest risk; {' and '.join(tied)} cannot be told apart from it by these rows."
        )
    return f"{best} is clearly better."


def read_result(place: str) -> Result:
    """Read the results of a folder.

    Raises
    ------
    TableError
        If a file is missing, or is not what ``onefit tune`` writes.
    """
    folder = Path(place)
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing == [NEEDED[1]] and (folder / OF_PASSES).is_file():
        raise TableError(
            f"{place} holds a model that was tuned in passes, whose {OF_PASSES} numbers no rows to compare: "
            "tune on a table in memory (a sample of the rows, or a larger --memory-limit)"
        )
    if missing:
        raise TableError(f"{place} holds no {' and no '.join(missing)}: {A_RESULT}")
    name = NEEDED[0]
    try:
        about = json.loads((folder / name).read_text(encoding="utf-8"))
        lacking = [key for key in TOLD if not isinstance(about, dict) or key not in about]
        if not lacking:
            name = NEEDED[1]
            rows = pd.read_csv(folder / name, keep_default_na=False, na_values={"loss": ["", "nan"]})
            lacking = [key for key in COLUMNS if key not in rows.columns]
    except ValueError as error:
        raise TableError(f"{folder / name} is not a result of onefit tune: {error}") from error
    if lacking:
        raise TableError(
            f"{folder / name} is not a result of onefit tune: it holds no {', no '.join(lacking)}; {A_RESULT}"
        )
    every = None if about["left_out"] == "time" else about.get("rows")
    judged = about.get("judged", every)  # which earlier versions have not counted
    if judged not in (None, len(rows)):
        raise TableError(
            f"{folder / name} has {len(rows)} rows where {judged} were judged: it was cut or changed; run "
            "onefit tune again"
        )
    return Result(place, about, rows.set_index("row"))


def _weights(found: list[Result], common: Any) -> Array:
    """Weights of the common rows, ones where there were none."""
    each = [one.rows.loc[common].get("weight", pd.Series(1.0, common)).to_numpy(np.float64) for one in found]
    for one, own in zip(found[1:], each[1:], strict=True):
        if not np.allclose(own, each[0]):
            raise TableError(
                f"{found[0].name} and {one.name} have different weights: they cannot be compared"
            )
    return each[0]


def _groups(found: list[Result], common: Any) -> Any | None:
    """Numbers of the rows that are not independent, by the first result that has any."""
    names = ("group", "part")  # the second is what earlier versions have called it
    known = [one.rows.loc[common, name].to_numpy() for name in names for one in found if name in one.rows]
    return known[0] if known else None


def _are_left_out_alike(found: list[Result]) -> bool:
    """Whether rows were left out in the same way, of the same target and by the same loss.

    Raises
    ------
    TableError
        If target or loss differ.
    """
    first = found[0]
    for one in found[1:]:
        for key in ("target", "loss"):
            if one.about[key] != first.about[key]:
                raise TableError(
                    f"{first.name} and {one.name} differ in their {key}, {first.about[key]!r} and "
                    f"{one.about[key]!r}: they cannot be compared"
                )
    return len({(one.about["left_out"], one.about["column"]) for one in found}) == 1


def _check_target(found: list[Result], common: Any) -> None:
    first = found[0].rows.loc[common, "y"]
    for one in found[1:]:
        other = one.rows.loc[common, "y"]
        same = (
            np.isclose(first, other)
            if first.dtype.kind in "if" and other.dtype.kind in "if"
            else first == other
        )
        if not np.all(same):
            row = common[int(np.argmin(np.asarray(same)))]
            raise RowError(
                f"{found[0].name} and {one.name} have different targets in row {row} ({first[row]} and "
                f"{other[row]}): they are not of the same table"
            )

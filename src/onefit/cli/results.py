"""What is written about tuned models, beside the report: rows, coefficients, a summary."""

from __future__ import annotations

import io
import json
from csv import writer
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from onefit._scoring import decided
from onefit._typing import Array
from onefit.cli.comparison import Ranking
from onefit.cli.judged import LeftOutTable
from onefit.cli.table import Table
from onefit.risk.estimate import RiskEstimate


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """A table as CSV."""
    header = io.StringIO()
    writer(header, lineterminator="\n").writerow(frame.columns)  # Arrow would quote every name
    buffer = io.BytesIO()
    buffer.write(header.getvalue().encode())
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), buffer, options)
    return buffer.getvalue()


def predictions(
    table: Table, judged: LeftOutTable | RiskEstimate, est: RiskEstimate, *, together: bool = False
) -> pd.DataFrame:
    """Left-out predictions row by row.

    Parameters
    ----------
    table : Table
    judged : LeftOutTable or RiskEstimate
        What was left out.
    est : RiskEstimate
        Of the same model with rows left out one by one.
    together : bool
        Whether rows left together, not one by one.

    Returns
    -------
    (m, ·) DataFrame
        row (counted from 0 below the header of the file), y, left_out (and one column a class), loss; weight
        if there are any; group and part, the numbers of the group and of what left together, where groups
        did; and for rows that were left out one by one leverage, flagged, certified.
    """
    columns = {
        "row": table.rows[judged.rows],
        "y": np.asarray(table.y)[judged.rows],
        **predicted(judged.predictions, est.classes, "left_out"),
        "loss": judged.losses,
    }
    if table.weights is not None:
        columns["weight"] = table.weights[judged.rows]
    if isinstance(judged, LeftOutTable) and judged.clusters is not None:
        columns |= {"group": judged.clusters, "part": judged.parts}
    if not together:
        flagged = np.isin(np.arange(len(est.losses)), est.flagged)
        columns |= {"leverage": est.leverages, "flagged": flagged, "certified": est.certified}
    return pd.DataFrame(columns).sort_values("row", kind="stable")


def predicted(values: Array, classes: Any | None, name: str) -> dict[str, Any]:
    """Columns of predictions: a number; or the class, and a column for each class if there are several."""
    if classes is None:
        outputs = values.reshape(len(values), -1).T
        return {name: outputs[0]} if len(outputs) == 1 else {f"{name}_{k}": o for k, o in enumerate(outputs)}
    labels = np.asarray(classes)
    if values.ndim == 1:
        return {name: labels[decided(values)], "decision": values}
    each = {f"{name}_{label}": values[:, k] for k, label in enumerate(labels)}
    return {name: labels[decided(values)], **each}


def summary(comparison: Ranking, version: str) -> bytes:
    """What a program may want to know, as JSON."""
    table, cuts = comparison.table, comparison.cuts
    audit = comparison.audit
    found = {
        "onefit": version,
        "source": comparison.source,
        "target": table.target,
        "task": table.task,
        "rows": len(table.y),
        "judged": len(comparison.best.judged.rows),
        "features": len(comparison.feature_names),
        "left_out": "rows" if cuts is None else cuts.kind,
        "column": None if cuts is None else cuts.column,
        "loss": comparison.loss_name,
        "best": comparison.best.name,
        "models": [
            {"name": one.name, "chosen": one.chosen, "risk": _pair(one.risk)} for one in comparison.candidates
        ],
        "constant": _pair(comparison.constant_risk),
        "clearly_better_than_constant": comparison.is_clear,
        "scores": {one.name: _pair((one.value, one.std_error)) for one in comparison.scores},
        "audit": None if audit is None else {"value": audit.value, "interval": list(audit.interval)},
        "if_together": [
            {"column": one.cuts.column, "kind": one.cuts.kind, one.scores[0].name: _pair(one.scores[0][1:])}
            for one in comparison.suspicions
        ],
    }
    return (json.dumps(found, indent=2, allow_nan=False, default=str) + "\n").encode()


def _pair(pair: tuple[float, ...]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in pair]

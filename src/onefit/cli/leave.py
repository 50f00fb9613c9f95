"""``onefit loo``: rows, or groups of rows, left out of a saved model."""

from __future__ import annotations

from typing import Any

import pandas as pd

from onefit.api import loo
from onefit.cli import files, results, saved, trust
from onefit.cli.errors import TableError, naming, require_column
from onefit.cli.meaning import Format
from onefit.cli.predict import features_of, other_units, read_like
from onefit.cli.printed import say
from onefit.cli.table import Roles, Table, split
from onefit.cli.tuning import Told


def loo_file(
    model_file: str,
    file: str,
    roles: Roles,
    asked: Format,
    *,
    audit: int,
    exact: bool,
    out: str | None,
    force: bool,
) -> None:
    """Leave rows or groups out of a saved model, and tell."""
    with files.writable(out, force=force) as path:
        pipeline = saved.load(model_file)
        card = saved.card_of(pipeline)
        source = read_like(file, asked, card, roles.target)
        with naming(file):
            table = _as_fitted(pipeline, source.frame, roles)
        with naming(file), Told().about("loo"):
            frame = features_of(pipeline, table.features)
            groups = None if table.groups is None else table.groups.to_numpy()
            est = loo(pipeline, frame, table.y, table.weights, groups, exact=exact, audit=audit, rng=0)
        for note in (*source.notes, *other_units(source, card)):
            say(f"note: {note}")
        together = card.get("together")
        if together and table.groups is None:
            say(
                f"note: this model was tuned for {together}, and single rows are easier to predict: leave "
                "out together what belongs together by --groups COLUMN"
            )
        if table.groups is not None:
            say(f"each of the {table.groups.nunique()} {table.groups.name} left out with all its rows")
        say(est)
        for line in [] if est.audit is None else trust.audited(est.audit, est.loss_name, est.std_error):
            say(line)
        if path is not None:
            files.write(path, results.csv_bytes(results.predictions(table, est, est)))


def _as_fitted(pipeline: Any, frame: pd.DataFrame, roles: Roles) -> Table:
    """Rows and target as a saved model takes them."""
    require_column(frame.columns, roles.target)
    if roles.target in getattr(pipeline, "feature_names_in_", ()):
        raise TableError(f"{roles.target!r} is a feature of the model, not what it predicts")
    classes = getattr(pipeline, "classes_", None)
    task = "regression" if classes is None else ("binary" if len(classes) == 2 else "multiclass")
    roles.check(frame)
    used = [name for name in features_of(pipeline, frame).columns if name not in roles.special]
    wanted = [*used, *roles.special]
    return split(frame[wanted], Roles(roles.target, roles.weights, roles.groups, keep=used), task)

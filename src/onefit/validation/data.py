"""Checks of models, rows, responses and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from onefit._linalg import as_columns
from onefit._typing import Array, Design
from onefit.wording import shown

MAGNITUDES = (1e-140, 1e140)  # of columns: sums of their squares, over any number of rows, are in range


def check_fitted(model: Any) -> None:
    """Refuse an estimator that was not fitted, and what is no estimator at all."""
    if hasattr(model, "params") and hasattr(model, "fittedvalues"):  # results, as statsmodels has them
        return
    if isinstance(model, type) or not hasattr(model, "get_params"):
        is_network = any(one.__module__.startswith("torch.nn") for one in type(model).__mro__)
        remedy = "networks have onefit.torch.loo" if is_network else "the order is model, X, y"
        raise TypeError(f"model must be a fitted scikit-learn estimator, got {shown(model)}: {remedy}")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted: call model.fit(X, y) first, then "
            "onefit.loo(model, X, y)"
        ) from error


def check_rows(
    model: Any, X: Any, y: Any, *, several_outputs: bool = False, numeric: bool = True
) -> tuple[Design, Array]:
    """Check X and y against what the model was fitted on; X in float64, its memory order kept."""
    check_table(X)
    check_order(X, y, "model, X, y")
    check_response(y, of_classes=not numeric)
    X, y = validated(
        model,
        _as_the_model_knows_them(model, X),
        y,
        reset=False,
        accept_sparse=("csr", "csc"),
        dtype=np.float64,
        multi_output=several_outputs,
        y_numeric=numeric,
    )
    if X.shape[0] < 2:
        raise ValueError(f"leave-one-out needs at least 2 rows, got n_samples={X.shape[0]}")
    check_magnitude(X)
    return X, np.asarray(y, dtype=np.float64) if numeric else y


def check_new_rows(model: Any, X: Any) -> Design:
    """Check rows that the model was not fitted on."""
    check_table(X)
    X = _as_the_model_knows_them(model, X)
    return validated(model, X, reset=False, accept_sparse=("csr", "csc"), dtype=np.float64)


def validated(model: Any, X: Any, y: Any = "no_validation", **settings: Any) -> Any:
    """What scikit-learn's ``validate_data`` makes of X, and y; its error names the entry that is missing.

    Raises
    ------
    TypeError, ValueError
    """
    try:
        found = validate_data(model, X, y, **settings)
    except ValueError as error:
        is_of_one = "contains NaN" in str(error) or "contains infinity" in str(error)
        if not is_of_one or (said := _first_missing(X, y)) is None:
            raise
        raise ValueError(said) from None
    return (_canonical(found[0]), *found[1:]) if isinstance(found, tuple) else _canonical(found)


def _canonical(X: Any) -> Any:
    """Rows whose sparse entries are in order, each stored once; SciPy would reorder those of the user."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def check_magnitude(X: Design) -> None:
    """Refuse columns whose squares leave the range of float64.

    Raises
    ------
    ValueError
    """
    check_column_sizes(as_columns(X).column_sizes())


def check_column_sizes(largest: Array, names: Sequence[Any] | None = None) -> None:
    """Refuse columns whose largest entries leave the range of float64 when they are squared."""
    low, high = MAGNITUDES
    outside = (largest > high) | ((largest > 0) & (largest < low))
    if np.any(outside):
        column = int(np.flatnonzero(outside)[0])
        name = column if names is None else repr(names[column])
        raise ValueError(
            f"column {name} of X has entries of up to {largest[column]:.1g}, whose squares leave the "
            f"range of float64: scale it to between {low:g} and {high:g}, with StandardScaler() for instance"
        )


# --- what arrives ------------------------------------------------------------------------------------


def _first_missing(X: Any, y: Any) -> str | None:
    """Which entry of X or y is not finite, and what to do; None where none is or that cannot be told."""
    if (found := _not_finite(X)) is not None:
        what, row, column = found
        names = getattr(X, "columns", None)
        name = column if names is None else repr(names[column])
        remedy = "fill such entries, with SimpleImputer() for instance, or leave out the rows"
        return f"Input X contains {what}: column {name}, row {row}; {remedy}"
    if not isinstance(y, str) and (found := _not_finite(y)) is not None:
        return f"Input y contains {found[0]}: row {found[1]}; leave out rows without a response"
    return None


def _not_finite(values: Any) -> tuple[str, int, int] | None:
    """What the first entry is that is missing or infinite, its row, and its column."""
    if sp.issparse(values):
        own = values.tocoo()
        rows, columns, entries = own.row, own.col, own.data
    else:
        try:
            frame = hasattr(values, "iloc")  # of pandas, whose missing values are of many kinds
            table = values.to_numpy(np.float64, na_value=np.nan) if frame else np.asarray(values, np.float64)
        except (TypeError, ValueError):
            return None
        rows, columns = np.indices(table.reshape(len(table), -1).shape).reshape(2, -1)
        entries = table.ravel()
    wrong = np.flatnonzero(~np.isfinite(entries))
    if not wrong.size:
        return None
    k = int(wrong[0])
    return "NaN" if np.isnan(entries[k]) else "infinity", int(rows[k]), int(columns[k])


def check_given(X: Any) -> None:
    """Refuse rows that are missing or masked, whatever a pipeline may make of the others.

    Raises
    ------
    TypeError, ValueError
    """
    if X is None:
        raise TypeError("X is None: pass the rows, an array of shape (n_samples, n_features)")
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which has no rows yet: pass X.collect()")
    check_unmasked("X", X)


def check_table(X: Any) -> None:
    """Refuse rows that no number of ours would be right for, by the name of the column.

    Missing tables, text, dates, masked entries, and columns of one name.

    Raises
    ------
    TypeError, ValueError
    """
    check_given(X)
    names = getattr(X, "columns", None)
    if names is not None and hasattr(X, "dtypes"):
        _check_columns(X, list(names))
    elif isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise TypeError(f"X holds {X.dtype}, not numbers: write dates as days since a day, for instance")
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OUST" and X.ndim == 2:
        for j, column in enumerate(X.T):
            _check_text(f"column {j}", column)


def _check_columns(X: Any, names: list[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"X has more than one column named {name!r}: rename or drop one")
        seen.add(name)
    for name, dtype in zip(names, list(X.dtypes), strict=True):
        written = str(dtype).lower()
        if written.startswith(("datetime", "timedelta", "date", "duration", "period")):
            raise TypeError(
                f"column {name!r} of X holds {dtype}, not numbers: write dates as days since a day, for "
                "instance"
            )
        if written in ("object", "str", "string") or written.startswith(("categor", "enum")):
            _check_text(f"column {name!r}", X[name])


def _check_text(name: str, values: Any) -> None:
    text = _first_text(values)
    if text is not None:
        raise ValueError(
            f"could not convert string to float: {name} of X holds text such as {text!r}; encode it, with "
            "OneHotEncoder() for instance, or leave it out"
        )


def _first_text(values: Any) -> str | None:
    """First entry that is text and no number."""
    for value in np.asarray(values, dtype=object):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                return str(value)
    return None


def check_unmasked(name: str, values: Any) -> None:
    """Refuse masked arrays whose mask hides something: what is below it is not missing to anybody else."""
    if isinstance(values, np.ma.MaskedArray) and np.any(np.ma.getmaskarray(values)):
        where = np.argwhere(np.ma.getmaskarray(values))[0]
        raise ValueError(
            f"{name} is a masked array with masked entries, the first in row {where[0]}: fill them, "
            f"with {name}.filled(…) or SimpleImputer(), or drop the rows"
        )


def check_unnamed(y: Any) -> None:
    """Refuse the name of a response."""
    if isinstance(y, str):
        raise TypeError(
            f"y is {y!r}, a name, as only columns of tables in files are given: of a frame pass "
            f"frame.drop(columns={y!r}) and frame[{y!r}]"
        )


def check_order(X: Any, y: Any, order: str) -> None:
    """Refuse rows and a response that were taken for one another, and say how they are given."""
    if getattr(y, "ndim", 1) == 2 and getattr(X, "ndim", 2) == 1:
        raise ValueError(f"X has one dimension and y has two: are they swapped? The order is {order}")


def check_response(y: Any, *, of_classes: bool) -> None:
    """Refuse responses that are no numbers for a model of numbers, and what is masked or out of range.

    Raises
    ------
    TypeError, ValueError
    """
    check_unmasked("y", y)
    check_unnamed(y)
    values = np.asarray(y)
    if values.ndim == 0:
        return
    if of_classes:
        _check_labels(values)
        return
    if values.dtype.kind in "mM":
        raise TypeError(f"y holds {values.dtype}, not numbers: write it as days since a day, for instance")
    text = _first_text(values.ravel()) if values.dtype.kind in "OUST" else None
    if text is not None:
        raise ValueError(
            f"could not convert string to float: y holds text such as {text!r}, and this model predicts "
            "numbers: take a classifier, or encode y"
        )
    if values.dtype.kind == "O":
        _check_none_missing(values, "a target")
    if values.dtype.kind in "fiu" and values.size:
        _check_targets(y, values)
        _check_size("y", values)


def _check_labels(values: Any) -> None:
    """Refuse labels that have no order: those that are missing, and text beside numbers."""
    labels = values.ravel().tolist() if values.dtype.kind == "O" else []
    if labels:
        _check_none_missing(values, "a label")
    kinds = {isinstance(label, str): label for label in reversed(labels)}
    if len(kinds) > 1:
        text, other = kinds[True], kinds[False]
        raise ValueError(f"y mixes text and numbers, such as {text!r} and {other!r}: write all as text")


def _check_none_missing(values: Any, what: str) -> None:
    for row, own in enumerate(values.reshape(len(values), -1).tolist()):
        for value in filter(_is_missing, own):
            raise ValueError(f"y holds {value} in row {row}: leave out rows without {what}")


def _is_missing(label: Any) -> bool:
    """Whether it is None, or what pandas writes for it."""
    is_nan = isinstance(label, float) and label != label
    return label is None or is_nan or type(label).__name__ in ("NAType", "NaTType")


def _check_targets(y: Any, values: Any) -> None:
    """Refuse several targets where one of them is not finite, by its name."""
    if values.ndim != 2 or values.shape[1] < 2 or np.isfinite(values.sum()):
        return
    rows, columns = np.nonzero(~np.isfinite(values))
    if rows.size:
        column = int(columns[0])
        names = getattr(y, "columns", None)
        name = column if names is None else repr(names[column])
        what = "NaN" if np.isnan(values[rows[0], column]) else "infinity"
        raise ValueError(
            f"Input y contains {what}: target {name}, row {rows[0]}. Leave such rows out, or fit such "
            "targets on the rows that they have"
        )


def _check_size(name: str, values: Any) -> None:
    """Refuse numbers whose squares leave the range of float64."""
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if not np.isfinite(largest):  # what is missing or infinite is told of elsewhere
        finite = np.abs(values[np.isfinite(values)].astype(np.float64))
        largest = float(finite.max(initial=0.0))
    low, high = MAGNITUDES
    if largest > high or 0 < largest < low:
        raise ValueError(
            f"{name} has entries of up to {largest:.1g}, whose squares leave the range of float64: scale it "
            f"to between {low:g} and {high:g}"
        )


def labels_of(X: Any, y: Any) -> Any | None:
    """Labels of the rows, of a table or of a response that has them."""
    for given in (X, y):
        if hasattr(given, "iloc"):
            return np.asarray(given.index)
    return None


def columns_of(model: Any) -> Any | None:
    """Names of the columns that a fitted model has coefficients for; None if it was fitted without any."""
    steps = model[:-1] if hasattr(model, "steps") else None
    if not steps:
        return getattr(model, "feature_names_in_", None)
    try:
        return steps.get_feature_names_out()
    except (AttributeError, ValueError):  # a step that does not say
        return None


def _as_the_model_knows_them(model: Any, X: Any) -> Any:
    """Rows without names where the model has kept none, as machines with a function as kernel do."""
    own_kernel = callable(getattr(model, "kernel", None)) and not hasattr(model, "feature_names_in_")
    return np.asarray(X) if own_kernel and hasattr(X, "columns") else X


def check_weights(sample_weight: Any, X: Design) -> Array:
    """Return weights, (n,) and at least 0: all ones if None."""
    check_unmasked("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weights > 0):
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    _check_size("sample_weight", weights)
    return np.asarray(weights)


def check_several_rows(count: int) -> None:
    """Refuse a single row: nothing is left without it."""
    if count < 2:
        raise ValueError(f"leave-one-out needs at least 2 rows with weight, there are {count}")

"""What every block is checked for.  Messages name the block, the column and the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index
from onefit.blocks import Block


class _Called(NamedTuple):
    """How messages call the rows of a block: by their numbers in the whole, where these are known."""

    rows: Sequence[int] | Index | None

    def row(self, place: int) -> str:
        return f"row {place} of the block" if self.rows is None else f"row {self.rows[place]}"


@final
@dataclass(frozen=True)
class Layout:
    """What all blocks must have in common.

    Attributes
    ----------
    width : int
    names : tuple of str or None
        Names of the columns, where blocks have names.
    first : str
        The block that they were read from.
    """

    width: int
    names: tuple[str, ...] | None
    first: str

    @classmethod
    def of(cls, name: str, X: Any) -> Layout:
        """Read it off the first block."""
        return cls(as_matrix(name, X).shape[1], column_names(X), name)

    def column(self, j: int) -> str:
        """Return how messages call a column."""
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def named(
        self, name: str, X: Any, y: Any, weights: Any = None, rows: Sequence[int] | Index | None = None
    ) -> tuple[str, Block]:
        """Check a block, and name it.

        Parameters
        ----------
        name : str
        X, y, weights : arrays
        rows : sequence of int, optional
            Numbers of the rows in the whole table or file, by which messages call them.

        Raises
        ------
        ValueError
            It is not as wide as the others, lengths differ, or a number is missing or infinite.
        """
        matrix = as_matrix(name, X)
        self._check_shape(name, matrix, column_names(X))
        count, called = len(matrix), _Called(rows)
        target = _vector(name, "y", y, count)
        if weights is not None:
            weights = _checked_weights(name, _vector(name, "sample_weight", weights, count), called)
        self._check_numbers(name, matrix, called)
        _check_target(name, target, called)
        return name, Block(matrix, target, weights)

    def _check_shape(self, name: str, X: Array, names: tuple[str, ...] | None) -> None:
        if X.shape[1] != self.width:
            raise ValueError(f"{name} has {X.shape[1]} columns, {self.first} has {self.width}")
        if names is not None and self.names is not None and names != self.names:
            j = next(j for j in range(self.width) if names[j] != self.names[j])
            raise ValueError(
                f"{name} has column {names[j]!r} where {self.first} has {self.names[j]!r}: blocks must have "
                "the same columns in the same order"
            )

    def _check_numbers(self, name: str, X: Array, called: _Called) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(X.sum()):
                return
        wrong = np.argwhere(~np.isfinite(X))
        if len(wrong):
            row, column = wrong[0].tolist()
            kind = "NaN" if np.isnan(X[row, column]) else "infinity"
            raise ValueError(
                f"{name} has {kind} in {self.column(column)}, {called.row(row)}: drop such rows, or fill "
                "them in"
            )


def column_names(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a data frame."""
    return tuple(str(name) for name in X.columns) if hasattr(X, "columns") else None


def as_matrix(name: str, X: Any) -> Array:
    """Return a block of X, dense, in float64 or as it is in float32: (r, p).

    Raises
    ------
    ValueError
        It has no two axes, or holds what is no number.
    """
    if sp.issparse(X):
        X = X.toarray()
    try:
        kinds = set(X.dtypes) if hasattr(X, "columns") else {getattr(X, "dtype", None)}
        kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
        matrix: Array = X.to_numpy(dtype=kind) if hasattr(X, "to_numpy") else np.asarray(X, dtype=kind)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds what is no number{_where(X)}: encode it first") from None
    if matrix.ndim != 2:
        raise ValueError(f"{name} of X must have rows and columns, got shape {matrix.shape}")
    return matrix


def _where(X: Any) -> str:
    """Name the column of a data frame that holds what is no number."""
    for name in column_names(X) or ():
        try:
            X[name].to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            return f" in column {name!r}"
    return ""


def _vector(name: str, what: str, values: Any, rows: int) -> Any:
    vector = np.asarray(values)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise ValueError(f"{what} of {name} must have one axis, got shape {vector.shape}")
    if len(vector) != rows:
        raise ValueError(f"{what} of {name} has {len(vector)} entries, X has {rows} rows")
    return vector


def _check_target(name: str, y: Any, called: _Called) -> None:
    missing = y != y  # NaN, NaT
    if y.dtype == object:
        missing = np.array([value is None or value != value for value in y.tolist()])
    elif y.dtype.kind == "f":
        missing = ~np.isfinite(y)
    if np.any(missing):
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"the target of {name} is missing or infinite in {called.row(row)}: drop rows without one"
        )


def _checked_weights(name: str, weights: Any, called: _Called) -> Array:
    try:
        own = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight of {name} holds what is no number") from None
    wrong = ~np.isfinite(own) | (own < 0)
    if np.any(wrong):
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"sample_weight of {name} is {own[row]:g} in {called.row(row)}: weights must be finite and not "
            "negative"
        )
    return own

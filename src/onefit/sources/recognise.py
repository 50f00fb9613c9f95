"""What estimators are given, as a source, where it comes in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from os import PathLike
from typing import Any

from onefit.blocks import Rows
from onefit.sources.generated import GeneratedSource

# Libraries whose tables come in blocks, and the class that reads them; imported when the first one comes.
LIBRARIES = {
    "dask": ("onefit.dask", "DaskSource"),
    "pyarrow": ("onefit.sources.table", "TableSource"),
}


def as_source(X: Any, y: Any = None, sample_weight: Any = None) -> Rows | None:
    """Return X, y and weights as a source; None if X is an ordinary array, which is held in memory.

    Parameters
    ----------
    X : Rows, path, pyarrow.dataset.Dataset, Dask array or DataFrame, callable, or anything else
        A path is that of a Parquet file or folder; a callable returns an iterator of (X, y).
    y : str or Dask collection, optional
        Name of the target's column in a table, or a collection partitioned like X.
    sample_weight : str or Dask collection, optional

    Raises
    ------
    TypeError
        y or weights were given beside blocks that bring their own; or X is an iterator.
    """
    if isinstance(X, Rows | Iterator) or (callable(X) and not hasattr(X, "shape")):
        if y is not None or sample_weight is not None:
            raise TypeError("blocks bring their own target and weights: leave y and sample_weight out")
        return X if isinstance(X, Rows) else GeneratedSource(X)
    is_path = isinstance(X, str | PathLike)
    library = "pyarrow" if is_path else type(X).__module__.partition(".")[0]
    in_memory = library == "pyarrow" and not (is_path or hasattr(X, "get_fragments"))  # a pyarrow.Table
    if library not in LIBRARIES or in_memory:
        return None
    if y is None:
        raise TypeError("fit() of a table needs y, the name of its target's column: fit(table, 'price')")
    module, name = LIBRARIES[library]
    source: Rows = getattr(import_module(module), name)(X, y, sample_weight)
    return source

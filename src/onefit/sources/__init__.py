"""Tables larger than memory: sources of rows in blocks, which estimators and ``onefit.loo`` take."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from onefit.sources.arrays import ArraySource
from onefit.sources.base import LocalSource
from onefit.sources.generated import GeneratedSource
from onefit.sources.recognise import as_source

__all__ = [
    "ArraySource",
    "GeneratedSource",
    "LocalSource",
    "as_source",
]


def __getattr__(name: str) -> Any:
    if name == "TableSource":  # which needs pyarrow
        return import_module("onefit.sources.table").TableSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "TableSource"])

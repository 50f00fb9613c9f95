"""Saved models: a pipeline, and a card that says where it comes from and how sure it is."""

from __future__ import annotations

import copy
import importlib
import sys
import zipfile
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from onefit.cli.errors import TableError
from onefit.estimators import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO

CARD = "onefit_card_"  # attribute of a pipeline
TRUSTED = frozenset(  # what our own files hold beside what skops trusts by itself
    [
        *(
            f"{cls.__module__}.{cls.__name__}"
            for cls in (ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO)
        ),
        "onefit.cli.dates.Calendar",
        "onefit.cli.preprocessing.as_levels",
        "onefit.cli.preprocessing.as_numbers",
        "onefit.cli.preprocessing.level_name",
        "onefit.risk.estimate.RiskEstimate",
        "numpy.dtype",
    ]
)
HEAVY = frozenset({"dask", "torch"})  # libraries that a model is read and written without: seconds of imports
A_MODEL = "a model is the model.skops that onefit tune --out DIR writes"
UNREADABLE = (zipfile.BadZipFile, LookupError, ValueError, TypeError, AttributeError, ImportError)


def dumps(pipeline: Pipeline, card: dict[str, Any]) -> bytes:
    """A pipeline with its card as bytes; what is known of each row stays behind."""
    model = copy.copy(pipeline[-1])
    del model.loo_
    light = Pipeline([*pipeline.steps[:-1], (pipeline.steps[-1][0], model)])
    setattr(light, CARD, card)
    return bytes(_skops().dumps(light))


class _Absent(MetaPathFinder):
    """Libraries that cannot be imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname in HEAVY:
            raise ModuleNotFoundError(f"{fullname} is not needed", name=fullname)


@cache
def _skops() -> Any:
    """``skops.io``, without what scikit-learn's list of its estimators, which that asks for, would import."""
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        return importlib.import_module("skops.io")
    finally:
        sys.meta_path.remove(absent)


def card_of(pipeline: Any) -> dict[str, Any]:
    """The card of a model that onefit has saved; empty for others."""
    return getattr(pipeline, CARD, {})


def load(path: str) -> Any:
    """Load a saved model that holds nothing but types of onefit, scikit-learn and NumPy.

    Raises
    ------
    TableError
        If there is no such file, or it holds anything else.
    """
    content, skops = _model_bytes(Path(path)), _skops()
    try:
        foreign = sorted(set(skops.get_untrusted_types(data=content)) - TRUSTED)
        model = None if foreign else skops.loads(content, trusted=sorted(TRUSTED))
    except UNREADABLE as error:
        raise TableError(f"{path} is not a model saved by skops: {error}; {A_MODEL}") from error
    if foreign:
        raise TableError(
            f"{path} holds types that are neither scikit-learn's nor onefit's: {', '.join(foreign)}. They "
            "could run any code, so it was not loaded; save a pipeline without them"
        )
    if not hasattr(model, "predict"):
        raise TableError(f"{path} holds a {type(model).__name__}, which cannot predict")
    return model


def _model_bytes(path: Path) -> bytes:
    path = path / "model.skops" if path.is_dir() else path
    if not path.is_file():
        raise TableError(f"{path}: no such file; {A_MODEL}")
    content = path.read_bytes()
    if not content:
        raise TableError(f"{path} is empty: write the model anew, with onefit tune --out DIR")
    return content

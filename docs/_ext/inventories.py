"""Inventories for intersphinx, written from a table: what the pages and docstrings link to elsewhere.

The build must not need a network, and the full inventories are large.  A line is a name and its page.
"""

from __future__ import annotations

import zlib
from pathlib import Path

_SCIKIT_LEARN = [
    "linear_model.LinearRegression",
    "linear_model.Ridge",
    "linear_model.RidgeCV",
    "linear_model.RidgeClassifier",
    "linear_model.Lasso",
    "linear_model.LassoCV",
    "linear_model.LassoLars",
    "linear_model.ElasticNet",
    "linear_model.ElasticNetCV",
    "linear_model.LogisticRegression",
    "linear_model.LogisticRegressionCV",
    "linear_model.PoissonRegressor",
    "linear_model.GammaRegressor",
    "linear_model.TweedieRegressor",
    "linear_model.HuberRegressor",
    "linear_model.QuantileRegressor",
    "kernel_ridge.KernelRidge",
    "svm.SVC",
    "svm.SVR",
    "svm.LinearSVC",
    "svm.LinearSVR",
    "model_selection.GridSearchCV",
    "model_selection.LeaveOneOut",
    "model_selection.KFold",
    "model_selection.TimeSeriesSplit",
    "pipeline.Pipeline",
    "ensemble.RandomForestRegressor",
    "preprocessing.StandardScaler",
]

TABLES = {
    "sklearn": (
        "https://scikit-learn.org/stable/",
        [
            (f"sklearn.{name}", "py:class", f"modules/generated/sklearn.{name}.html#$")
            for name in _SCIKIT_LEARN
        ]
        + [
            (
                "sklearn.model_selection.cross_val_predict",
                "py:function",
                "modules/generated/sklearn.model_selection.cross_val_predict.html#$",
            )
        ],
    ),
    "numpy": (
        "https://numpy.org/doc/stable/",
        [
            ("numpy.ndarray", "py:class", "reference/generated/numpy.ndarray.html#$"),
            ("numpy.random.Generator", "py:class", "reference/random/generator.html#$"),
        ],
    ),
}


def write_inventories(folder: Path) -> dict[str, tuple[str, Path]]:
    """Write every table as an inventory of version 2: name -> (address of the site, file)."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for project, (url, entries) in TABLES.items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: stable\n"
        head += "# The remainder of this file is compressed using zlib.\n"
        body = "\n".join(f"{name} {role} 1 {page} -" for name, role, page in entries) + "\n"
        file = folder / f"{project}.inv"
        file.write_bytes(head.encode() + zlib.compress(body.encode()))
        found[project] = url, file
    return found

"""Names that can be chosen on the command line: they are known before anything heavy is imported."""

from __future__ import annotations

TASKS = ("regression", "binary", "multiclass", "counts")
NUMBERS, CLASSES, COUNTS = ("regression",), ("binary", "multiclass"), ("counts",)
SUITED = {  # tasks of each family
    "ridge": NUMBERS + COUNTS,
    "lasso": NUMBERS + COUNTS,
    "elasticnet": NUMBERS + COUNTS,
    "logistic": CLASSES,
    "logistic-l1": CLASSES,
    "poisson": COUNTS,
}
COMPARED = {
    "regression": ("ridge", "lasso", "elasticnet"),
    "binary": ("logistic", "logistic-l1"),
    "multiclass": ("logistic", "logistic-l1"),
    "counts": ("poisson", "ridge"),  # compared by squared error, which both can be judged by
}

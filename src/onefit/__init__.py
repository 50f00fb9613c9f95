"""Leave-one-out accuracy for the price of one fit, and every hyperparameter tuned by its gradient.

What a fitted model is worth on rows that it has not seen::

    est = onefit.loo(model, X, y)       # a fitted model of scikit-learn, skglm, celer, glum ...: not refitted
    est.value, est.std_error            # its risk, and the sampling error of that
    est.approx_error, est.guarantee     # how far it may be from n refits
    est.predictions, est.score("r2")    # left-out predictions, and what they are worth
    onefit.evaluate(model, X, y, onefit.risk.KFold(10))  # other risks: folds, groups, GCV, SURE ...

Models that choose their own strength, in place of scikit-learn's:

=======================  ================================================================
``RidgeLOO``             ``RidgeCV``
``LassoLOO``             ``LassoCV``
``ElasticNetLOO``        ``ElasticNetCV``
``LogisticLOO``          ``LogisticRegressionCV``
``PoissonLOO``           ``GridSearchCV(PoissonRegressor(), ...)``
``GeneralizedLinearLOO``  any loss of ``onefit.losses`` with any penalty of ``onefit.penalties``
``GradientSearchCV``     ``GridSearchCV``, for one to hundreds of hyperparameters, by gradients
=======================  ================================================================

``from_cvxpy`` takes convex programs, ``onefit.torch`` networks; on the command line,
``onefit tune table.csv --target y`` needs no program.  ``help(onefit.loo)`` is a good place to begin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onefit import losses, penalties, risk, sources, testing
    from onefit.api import evaluate, loo
    from onefit.convex_program import from_cvxpy
    from onefit.displays import CoefficientPathDisplay, LeftOutDisplay, RiskPathDisplay
    from onefit.estimators import (
        ElasticNetLOO,
        GeneralizedLinear,
        GeneralizedLinearLOO,
        LassoLOO,
        LogisticLOO,
        PoissonLOO,
        RidgeLOO,
    )
    from onefit.estimators.permutation import PermutationRegressor
    from onefit.estimators.search import GradientSearchCV, PerFeature, PerGroup, Simplex
    from onefit.exceptions import (
        NotFittedToDataError,
        NotOptimalWarning,
        OnefitWarning,
        ShortPathWarning,
        SolverError,
        UnreliableWarning,
        UnsupportedModelError,
    )
    from onefit.risk.comparison import Comparison, compare
    from onefit.risk.estimate import RiskEstimate

__version__ = "0.1.0"

__all__ = [
    "CoefficientPathDisplay",
    "Comparison",
    "ElasticNetLOO",
    "GeneralizedLinear",
    "GeneralizedLinearLOO",
    "GradientSearchCV",
    "LassoLOO",
    "LeftOutDisplay",
    "LogisticLOO",
    "NotFittedToDataError",
    "NotOptimalWarning",
    "OnefitWarning",
    "PerFeature",
    "PerGroup",
    "PermutationRegressor",
    "PoissonLOO",
    "RidgeLOO",
    "RiskEstimate",
    "RiskPathDisplay",
    "ShortPathWarning",
    "Simplex",
    "SolverError",
    "UnreliableWarning",
    "UnsupportedModelError",
    "compare",
    "evaluate",
    "from_cvxpy",
    "loo",
    "losses",
    "penalties",
    "risk",
    "sources",
    "testing",
]

# Where each name lives: it is imported when it is first used, so that the command line can answer at once.
_HOMES = {
    "onefit.api": ["evaluate", "loo"],
    "onefit.convex_program": ["from_cvxpy"],
    "onefit.displays": [name for name in __all__ if name.endswith("Display")],
    "onefit.estimators": [
        "GeneralizedLinear",
        *(name for name in __all__ if name.endswith("LOO")),
    ],
    "onefit.estimators.permutation": ["PermutationRegressor"],
    "onefit.estimators.search": ["GradientSearchCV", "PerFeature", "PerGroup", "Simplex"],
    "onefit.exceptions": [name for name in __all__ if name.endswith(("Error", "Warning"))],
    "onefit.risk.comparison": ["Comparison", "compare"],
    "onefit.risk.estimate": ["RiskEstimate"],
}


def __getattr__(name: str) -> Any:
    if name in ("losses", "penalties", "risk", "sources", "testing"):
        return import_module(f"onefit.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

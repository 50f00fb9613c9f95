"""Leave-one-out accuracy for the price of one fit."""

from onefit import penalties
from onefit.api import loo
from onefit.estimators import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit.exceptions import (
    NotFittedToDataError,
    NotOptimalWarning,
    OnefitWarning,
    UnreliableWarning,
    UnsupportedModelError,
)
from onefit.risk.estimate import RiskEstimate

__version__ = "0.1.0"

__all__ = [
    "ElasticNetLOO",
    "LassoLOO",
    "LogisticLOO",
    "NotFittedToDataError",
    "NotOptimalWarning",
    "OnefitWarning",
    "PoissonLOO",
    "RidgeLOO",
    "RiskEstimate",
    "UnreliableWarning",
    "UnsupportedModelError",
    "loo",
    "penalties",
]

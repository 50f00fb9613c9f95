"""Leave-one-out accuracy for the price of one fit."""

from onefit import penalties
from onefit.api import loo
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
    "NotFittedToDataError",
    "NotOptimalWarning",
    "OnefitWarning",
    "RiskEstimate",
    "UnreliableWarning",
    "UnsupportedModelError",
    "loo",
    "penalties",
]

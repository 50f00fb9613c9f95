"""Estimators that tune themselves: scikit-learn classes, a file for each family.

They take the scale of their scikit-learn namesake and can stand in for its ``CV`` class.
"""

from onefit.estimators.generalized import GeneralizedLinear, GeneralizedLinearLOO
from onefit.estimators.namesakes import ElasticNetLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO

__all__ = [
    "ElasticNetLOO",
    "GeneralizedLinear",
    "GeneralizedLinearLOO",
    "LassoLOO",
    "LogisticLOO",
    "PoissonLOO",
    "RidgeLOO",
]

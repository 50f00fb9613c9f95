"""Estimators that tune themselves: scikit-learn classes, a file for each family.

They take the scale of their scikit-learn namesake and can stand in for its ``CV`` class.
"""

from onefit.estimators.generalized import GeneralizedLinear, GeneralizedLinearLOO
from onefit.estimators.glm import LogisticLOO, PoissonLOO
from onefit.estimators.least_squares import ElasticNetLOO, LassoLOO, RidgeLOO

__all__ = [
    "ElasticNetLOO",
    "GeneralizedLinear",
    "GeneralizedLinearLOO",
    "LassoLOO",
    "LogisticLOO",
    "PoissonLOO",
    "RidgeLOO",
]

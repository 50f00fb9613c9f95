"""Estimators that tune themselves: scikit-learn classes, thin clients of ``search``.

They take the scale of their scikit-learn namesake and can stand in for its ``CV`` class.
"""

from onefit.estimators.generalized_linear import GeneralizedLinear, GeneralizedLinearLOO
from onefit.estimators.least_squares import ElasticNetLOO, LassoLOO, RidgeLOO
from onefit.estimators.likelihood import LogisticLOO, PoissonLOO
from onefit.estimators.permutation import PermutationRegressor

__all__ = [
    "ElasticNetLOO",
    "GeneralizedLinear",
    "GeneralizedLinearLOO",
    "LassoLOO",
    "LogisticLOO",
    "PermutationRegressor",
    "PoissonLOO",
    "RidgeLOO",
]

"""Penalties: value, proximal operator, and the smooth piece through a point.

Every penalty is described locally by its *tangent*: the directions in which the coefficients can move
while the active pattern stays as it is, with the gradient and the curvature of the penalty there.
Leave-one-out, degrees of freedom and hyperparameter gradients need no more than that.
"""

from onefit.penalties.base import Coordinates, Penalty, Subspace, Tangent
from onefit.penalties.separable import L1, L2, ElasticNet, SeparablePenalty

__all__ = [
    "L1",
    "L2",
    "Coordinates",
    "ElasticNet",
    "Penalty",
    "SeparablePenalty",
    "Subspace",
    "Tangent",
]

"""Penalties: value, proximal operator, and the smooth piece through a point.

Every penalty is described locally by its *tangent*: the directions in which the coefficients can move
while the active pattern stays as it is, with the gradient and the curvature of the penalty there.
Leave-one-out, degrees of freedom and hyperparameter gradients need no more than that.
"""

from collections.abc import Callable

from onefit.penalties.base import Penalty
from onefit.penalties.generalized import AnalysisPenalty, FusedLasso, GeneralizedLasso, TrendFilter
from onefit.penalties.groups import GroupLasso, GroupPenalty, SparseGroupLasso
from onefit.penalties.programs import Cone, Conic, ConicForm, Coordinatewise, PiecewiseRows, Polyhedral
from onefit.penalties.separable import L1, L2, Box, ElasticNet, SeparablePenalty, Strengths
from onefit.penalties.slope import LInfinity, Slope
from onefit.penalties.spectral import NuclearNorm, SmoothNuclearNorm
from onefit.penalties.sum import Sum
from onefit.pieces import Coordinates, Pieces, Subspace, Tangent

# By name: what ``GeneralizedLinear(penalty="…")`` takes.  A new one without parameters adds a line.
PENALTIES: dict[str, Callable[[], Penalty]] = {
    "l2": L2,
    "l1": L1,
    "elasticnet": ElasticNet,
    "fused_lasso": FusedLasso,
    "linfinity": LInfinity,
}

__all__ = [
    "L1",
    "L2",
    "PENALTIES",
    "AnalysisPenalty",
    "Box",
    "Cone",
    "Conic",
    "ConicForm",
    "Coordinates",
    "Coordinatewise",
    "ElasticNet",
    "FusedLasso",
    "GeneralizedLasso",
    "GroupLasso",
    "GroupPenalty",
    "LInfinity",
    "NuclearNorm",
    "Penalty",
    "Pieces",
    "PiecewiseRows",
    "Polyhedral",
    "SeparablePenalty",
    "Slope",
    "SmoothNuclearNorm",
    "SparseGroupLasso",
    "Strengths",
    "Subspace",
    "Sum",
    "Tangent",
    "TrendFilter",
]

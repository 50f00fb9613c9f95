"""The curvature K = Zᵀ D Z + C of a fit on its tangent, factored once.

Z holds the free columns of X and a column of ones for the intercept, D the second derivatives of the loss
in the linear predictor, C the penalty's curvature.  Leave-one-out, degrees of freedom, certificates,
Newton steps and hyperparameter gradients all come from two methods:

* ``quadratic_forms()``: h_i = z_iᵀ K⁻¹ z_i,
* ``solve(...)``: K⁻¹ times directions.

``factor`` picks the side: k × k (``Primal``), n × n when there are more free columns than rows and all of
them are curved by the penalty (``Dual``), and one block matrix for coupled outputs (``CoupledBlock``).  The
intercept is profiled out by D-weighted centring: with ã = a − ā, K is block diagonal in (β, b + āᵀβ).
Free directions that are not coordinates are made so (``Along``), and rows on a kink of the loss are held
there (``Pinned``).  Where X is large and sparse, products take the place of a factor (``Iterated``).
"""

from onefit.curvature.averaged import (
    AverageCurvature,
    cost_of_average,
    cost_of_solving_with_average,
    has_average,
    share_of_average,
)
from onefit.curvature.base import Curvature, Direction, Sandwich, ScalarCurvature, Wrapped, curved_along
from onefit.curvature.choose import factor, factor_scalar
from onefit.curvature.constrained import Along, Pinned
from onefit.curvature.dual import Dual
from onefit.curvature.iterated import Iterated, by_products
from onefit.curvature.outputs import CoupledBlock, Independent
from onefit.curvature.primal import OfFactor, Primal
from onefit.curvature.products import (
    Counted,
    CoupledProducts,
    Products,
    conjugate_gradients,
    conjugate_gradients_of_one,
)
from onefit.curvature.reduction import coordinates, has_common
from onefit.curvature.single import CoupledInSingle, InSingle, in_single

__all__ = [
    "Along",
    "AverageCurvature",
    "Counted",
    "CoupledBlock",
    "CoupledInSingle",
    "CoupledProducts",
    "Curvature",
    "Direction",
    "Dual",
    "InSingle",
    "Independent",
    "Iterated",
    "OfFactor",
    "Pinned",
    "Primal",
    "Products",
    "Sandwich",
    "ScalarCurvature",
    "Wrapped",
    "by_products",
    "conjugate_gradients",
    "conjugate_gradients_of_one",
    "coordinates",
    "cost_of_average",
    "cost_of_solving_with_average",
    "curved_along",
    "factor",
    "factor_scalar",
    "has_average",
    "has_common",
    "in_single",
    "share_of_average",
]

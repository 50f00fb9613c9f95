"""PyTorch (pip install torch): any loss and penalty, learned features, bilevel search.

``FunctionalProblem`` fits, leaves out and tunes any loss and penalties given as functions (2017), ``loo`` is
leave-one-out of a trained module.  ``ConvexHead`` is a layer that solves a regression exactly,
``FeatureMapClassifier`` and ``FeatureMapRegressor`` train a feature map through the cross-validation risk of
such a head (2019), ``ValueFunctionSearch`` tunes the penalties of any module through the optimal value of its
training problem (2020).

Raises
------
ImportError
    Without PyTorch.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("onefit.torch needs PyTorch: pip install torch") from error

from onefit.torch.features.embedding import embedded_rows
from onefit.torch.features.head import ConvexHead
from onefit.torch.features.loo_head import LeaveOneOutHead
from onefit.torch.features.maps import FeatureMapClassifier, FeatureMapRegressor
from onefit.torch.functional.fit import FunctionalFit
from onefit.torch.functional.problem import FunctionalProblem
from onefit.torch.functional.tuning import Tuning
from onefit.torch.networks.influence import Influence, influence
from onefit.torch.networks.loo import loo
from onefit.torch.numerics.objective import L1Norm
from onefit.torch.risk import LeftOutRisk
from onefit.torch.value_function.search import ValueFunctionSearch

__all__ = [
    "ConvexHead",
    "FeatureMapClassifier",
    "FeatureMapRegressor",
    "FunctionalFit",
    "FunctionalProblem",
    "Influence",
    "L1Norm",
    "LeaveOneOutHead",
    "LeftOutRisk",
    "Tuning",
    "ValueFunctionSearch",
    "embedded_rows",
    "influence",
    "loo",
]

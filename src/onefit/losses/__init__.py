"""Losses: a value and three derivatives in the linear predictor.

A loss knows no data and no weights: it maps responses ``y`` (n,) and linear predictors ``eta`` to one
number a row.  The derivatives are the *observed* ones: with a non-canonical link the expected (Fisher)
curvature gives wrong leave-one-out values.

Two shapes of linear predictor exist.  A *separable* loss has one number a row, or several independent
ones, and its derivatives have the shape of ``eta``.  A *coupled* loss ties ``c`` outputs of a row
together: ``eta`` is (n, c), the gradient (n, c), the Hessian (n, c, c), the third derivative
(n, c, c, c).
"""

from collections.abc import Callable

from onefit.losses.base import CoupledLoss, Loss, PiecewiseLoss, UnitDispersion
from onefit.losses.composed import Mixture, Offset
from onefit.losses.piecewise import EpsilonInsensitive, Hinge, PiecewiseLinear, Quantile
from onefit.losses.rounded import (
    ConcomitantHuber,
    Huber,
    SmoothedHinge,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.losses.smooth import (
    Exponential,
    Gamma,
    Logistic,
    Multinomial,
    Poisson,
    Squared,
    Tweedie,
)

# By name, from the number of classes: what ``GeneralizedLinear(loss="…")`` takes.  A new loss adds its line.
LOSSES: dict[str, Callable[[int], Loss]] = {  # from the number of classes
    "squared": lambda _: Squared(),
    "huber": lambda _: Huber(),
    "absolute": lambda _: EpsilonInsensitive(0.0),
    "quantile": lambda _: Quantile(),
    "epsilon_insensitive": lambda _: EpsilonInsensitive(),
    "squared_epsilon_insensitive": lambda _: SquaredEpsilonInsensitive(),
    "poisson": lambda _: Poisson(),
    "gamma": lambda _: Gamma(),
    "logistic": lambda _: Logistic(),
    "multinomial": Multinomial,
    "hinge": lambda _: Hinge(),
    "squared_hinge": lambda _: SquaredHinge(),
    "exponential": lambda _: Exponential(),
}

__all__ = [
    "LOSSES",
    "ConcomitantHuber",
    "CoupledLoss",
    "EpsilonInsensitive",
    "Exponential",
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Mixture",
    "Multinomial",
    "Offset",
    "PiecewiseLinear",
    "PiecewiseLoss",
    "Poisson",
    "Quantile",
    "SmoothedHinge",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "Tweedie",
    "UnitDispersion",
]

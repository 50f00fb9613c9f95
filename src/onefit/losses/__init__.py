"""Losses: a value and three derivatives in the linear predictor.

A loss knows no data and no weights: it maps responses ``y`` (n,) and linear predictors ``eta`` to one
number a row.  The derivatives are the *observed* ones: with a non-canonical link the expected (Fisher)
curvature gives wrong leave-one-out values.

Two shapes of linear predictor exist.  A *separable* loss has one number a row, or several independent
ones, and its derivatives have the shape of ``eta``.  A *coupled* loss ties ``c`` outputs of a row
together: ``eta`` is (n, c), the gradient (n, c), the Hessian (n, c, c), the third derivative
(n, c, c, c).
"""

from onefit.losses.base import CoupledLoss, Loss, PiecewiseLoss, UnitDispersion
from onefit.losses.mixture import Mixture
from onefit.losses.piecewise import (
    EpsilonInsensitive,
    Hinge,
    PiecewiseLinear,
    Quantile,
    SmoothedHinge,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from onefit.losses.smooth import (
    ConcomitantHuber,
    Exponential,
    Gamma,
    Huber,
    Logistic,
    Multinomial,
    Poisson,
    Squared,
    Tweedie,
)

__all__ = [
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

"""Losses of Tweedie distributions: Poisson, gamma and those between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import xlogy

from onefit._typing import Array
from onefit.losses.base import Loss, UnitDispersion
from onefit.pieces import Pieces


@dataclass(frozen=True)
class Tweedie(Loss):
    """Half the unit deviance of a Tweedie family, with mean μ = exp(η) or μ = η.

    ``power`` 0 is the normal, 1 the Poisson, 2 the gamma, 3 the inverse Gaussian family; with
    1 < power < 2 the response may be zero.

    Parameters
    ----------
    power : float
        Of the mean in the variance.
    link : {"log", "identity"}, default "log"
        Of the linear predictor to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Tweedie
    >>> Tweedie(1.5).value(np.array([0.0, 1.0]), np.zeros(2))
    array([2., 0.])
    """

    power: float
    link: Literal["log", "identity"] = "log"
    pieces = Pieces.SMOOTH

    def mean(self, eta: Array) -> Array:
        """Return the mean response μ, of the shape of ``eta``."""
        return _power_of_mean(1.0, eta, 1.0, self.link)

    def value(self, y: Array, eta: Array) -> Array:
        q = self.power
        if q == 0:
            return 0.5 * (y - self.mean(eta)) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):  # no mean is negative: NaN there
            log_mean = eta if self.link == "log" else np.log(eta)
        if q == 1:
            return xlogy(y, y) - y * log_mean - y + self.mean(eta)
        if q == 2:
            return log_mean - np.log(y) + self._term(y, eta, -1.0) - 1
        at_y = np.maximum(y, 0) ** (2 - q) / ((1 - q) * (2 - q))
        return at_y - self._term(y / (1 - q), eta, 1 - q) + self._term(1 / (2 - q), eta, 2 - q)

    def gradient(self, y: Array, eta: Array) -> Array:
        q = self.power
        shift = 0.0 if self.link == "log" else -1.0  # dμ/dη is μ or 1
        return self._term(1.0, eta, 2 - q + shift) - self._term(y, eta, 1 - q + shift)

    def hessian(self, y: Array, eta: Array) -> Array:
        q = self.power
        if self.link == "log":
            return self._term(2 - q, eta, 2 - q) - self._term((1 - q) * y, eta, 1 - q)
        return self._term(1 - q, eta, -q) + self._term(q * y, eta, -q - 1)

    def third(self, y: Array, eta: Array) -> Array:
        q = self.power
        if self.link == "log":
            return self._term((2 - q) ** 2, eta, 2 - q) - self._term((1 - q) ** 2 * y, eta, 1 - q)
        return -self._term(q * (1 - q), eta, -q - 1) - self._term(q * (q + 1) * y, eta, -q - 2)

    def _term(self, factor: Array | float, eta: Array, power: float) -> Array:
        return _power_of_mean(factor, eta, power, self.link)

    def start(self, y: Array, weights: Array) -> Array:
        mean = np.average(y, weights=weights)
        return np.log(np.maximum(mean, 1e-30)) if self.link == "log" else np.asarray(mean)

    def self_concordance(self) -> float | None:
        if self.link == "identity":
            return 0.0 if self.power == 0 else None
        return max(2.0 - self.power, self.power - 1.0) if 1 <= self.power <= 2 else None


def _power_of_mean(
    factor: Array | float, eta: Array, power: float, link: Literal["log", "identity"]
) -> Array:
    """Factor · μ^power, 0 where the factor is 0 whatever μ is; infinite, without a word, out of range.

    A solver that tries too long a step sees an objective that is infinite, and shortens the step.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        powers = np.exp(power * eta) if link == "log" else eta**power
    if np.all(factor == 1.0):
        return powers
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(factor == 0.0, 0.0, factor * powers)


@dataclass(frozen=True)
class Poisson(Tweedie, UnitDispersion):
    """μ − y log μ up to a constant, μ = exp(η): half the Poisson deviance.

    Parameters
    ----------
    power : float, default 1.0
        Of the mean in the variance, which makes it this family.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Poisson
    >>> Poisson().value(np.array([0.0, 1.0]), np.zeros(2))
    array([1., 0.])
    """

    power: float = 1.0


@dataclass(frozen=True)
class Gamma(Tweedie):
    """log(μ / y) + y / μ − 1, μ = exp(η): half the gamma deviance.

    Parameters
    ----------
    power : float, default 2.0
        Of the mean in the variance, which makes it this family.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Gamma
    >>> Gamma().value(np.array([1.0, 2.0]), np.zeros(2)).round(3)
    array([0.   , 0.307])
    """

    power: float = 2.0

"""Losses with two continuous derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.losses.base import Bending, CoupledLoss, Loss, UnitDispersion
from onefit.numerics import LARGEST_EXPONENT
from onefit.pieces import Pieces


@dataclass(frozen=True)
class Squared(Loss):
    """½ (y − η)²; several outputs are independent.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Squared
    >>> Squared().value(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    array([0., 2.])
    """

    pieces = Pieces.QUADRATIC

    def value(self, y: Array, eta: Array) -> Array:
        return 0.5 * (y - eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return eta - y

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.ones_like(eta)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return np.average(y, axis=0, weights=weights)

    def self_concordance(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Logistic(UnitDispersion):
    """log(1 + exp(η)) − y η, with y in {0, 1}.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Logistic
    >>> Logistic().value(np.array([1.0, 0.0]), np.zeros(2)).round(3)
    array([0.693, 0.693])
    >>> Logistic().gradient(np.array([1.0, 0.0]), np.zeros(2))
    array([-0.5,  0.5])
    """

    of_two_classes = True
    pieces = Pieces.SMOOTH

    def value(self, y: Array, eta: Array) -> Array:
        return np.log1p(_decay(eta)) + (np.maximum(eta, 0.0) - y * eta)  # that is 0 or |η| exactly

    def gradient(self, y: Array, eta: Array) -> Array:
        odds = np.exp(-np.maximum(eta, -LARGEST_EXPONENT))  # against the second class
        return (1.0 - y - y * odds) / (1.0 + odds)  # to full relative precision where the loss is small

    def hessian(self, y: Array, eta: Array) -> Array:
        decay = _decay(eta)
        return decay / (1.0 + decay) ** 2

    def third(self, y: Array, eta: Array) -> Array:
        return self.hessian(y, eta) * -np.tanh(0.5 * eta)

    def has_constant(self, y: Array, weights: Array) -> Mask:
        held = (weights > 0).T.astype(np.float64)
        return (held @ (y > 0) > 0) & (held @ (y < 1) > 0)

    def start(self, y: Array, weights: Array) -> Array:
        share = np.clip(np.average(y, axis=0, weights=weights), 1e-6, 1 - 1e-6)
        return np.log(share / (1 - share))

    def self_concordance(self) -> float:
        return 1.0


def _decay(eta: Array) -> Array:
    """exp(−|η|), of which the logistic loss and its derivatives are made without a number too large."""
    return np.exp(-np.abs(eta))


@dataclass(frozen=True)
class Exponential(Loss):
    """exp(−s η), with s = 2y − 1 for y in {0, 1}: boosting's loss, smallest in the mean at half the log odds.

    Examples
    --------
    >>> import numpy as np
    >>> Exponential().value(np.array([1.0, 0.0]), np.zeros(2))
    array([1., 1.])
    """

    of_two_classes = True
    pieces = Pieces.SMOOTH

    def value(self, y: Array, eta: Array) -> Array:
        return np.exp(-(2.0 * y - 1.0) * eta)

    def gradient(self, y: Array, eta: Array) -> Array:
        return -(2.0 * y - 1.0) * self.value(y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return self.value(y, eta)

    def third(self, y: Array, eta: Array) -> Array:
        return self.gradient(y, eta)

    def has_constant(self, y: Array, weights: Array) -> Mask:
        return Logistic().has_constant(y, weights)

    def start(self, y: Array, weights: Array) -> Array:
        return 0.5 * Logistic().start(y, weights)

    def self_concordance(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Multinomial(CoupledLoss, UnitDispersion):
    """−log softmax(η)_y, with y the number of the class, 0 … c − 1, and symmetric parameters.

    Parameters
    ----------
    n_classes : int
        c, the number of linear predictors of a row.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Multinomial
    >>> Multinomial(3).value(np.array([0.0, 2.0]), np.zeros((2, 3))).round(3)
    array([1.099, 1.099])
    """

    n_classes: int
    pieces = Pieces.SMOOTH
    ignores_shifts = True

    def value(self, y: Array, eta: Array) -> Array:
        by_class = np.ascontiguousarray(eta.T)
        top = by_class.max(axis=0)
        beside, highest = np.exp(by_class - top), by_class == top
        beside[highest] = 0.0  # to full relative precision where the loss is small
        others = beside.sum(axis=0) + (highest.sum(axis=0) - 1)
        return np.log1p(others) + (top - by_class[y.astype(np.intp), np.arange(len(eta))])

    def gradient(self, y: Array, eta: Array) -> Array:
        share, own = _shares(eta).T, (y.astype(np.intp), np.arange(len(eta)))
        share[own] = 0.0
        share[own] = -share.sum(axis=0)  # its share less 1, to full relative precision
        return _laid_out(share.T, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        share = _shares(eta).T
        matrices = share[:, None] * -share
        np.einsum("aan->an", matrices)[...] += share
        return _laid_out(matrices.transpose(2, 0, 1), eta)

    def bending(self, y: Array, eta: Array) -> Bending:
        shares = _shares(eta)
        return CovarianceOfClasses(shares, shares)

    def third(self, y: Array, eta: Array) -> Array:
        p = _shares(eta)
        eye = np.eye(self.n_classes)
        centred = eye[None] - p[:, None, :]  # (n, category, c): one-hot minus mean
        return np.einsum("na,nab,nac,nad->nbcd", p, centred, centred, centred)  # third cumulant

    def has_constant(self, y: Array, weights: Array) -> Mask:
        return (weights > 0).T.astype(np.float64) @ (y[:, None] == np.arange(self.n_classes)) > 0

    def start(self, y: Array, weights: Array) -> Array:
        share = np.bincount(y.astype(np.intp), weights, self.n_classes) / weights.sum()
        logits = np.log(np.clip(share, 1e-6, None))
        return logits - logits.mean()

    def self_concordance(self) -> float:
        return 1.0


@dataclass(frozen=True, eq=False)
class CovarianceOfClasses(Bending):
    """w (diag p − p pᵀ) times changes of the linear predictors of each row.

    Attributes
    ----------
    shares : (n, c) array
        p, of each class.
    held : (n, c) array
        w p.
    """

    shares: Array
    held: Array

    def __call__(self, change: Array) -> Array:
        moved = np.asarray(change * _linalg.with_axes(self.held, change))
        moved -= _linalg.with_axes(self.shares, change) * _linalg.row_sums(moved)
        return moved

    def weighted(self, weights: Array) -> Bending:
        counts = weights != 0.0  # where there is no weight there may be no shares either
        shares = self.shares if counts.all() else np.where(counts[:, None], self.shares, 0.0)
        return CovarianceOfClasses(shares, weights[:, None] * shares)

    def total(self) -> Array:
        return np.diag(self.held.sum(axis=0)) - _linalg.product(self.shares.T, self.held)

    def traces(self) -> Array:
        return np.sum(self.held * (1.0 - self.shares), axis=1)


def _rise(power: float, far: Array, drawn: Mask) -> Array:
    """(exp(power · far) − 1) / power with the digits of a short distance, and without − 1 where y is 0."""
    if power == 0:
        return far
    distance = power * far
    risen = np.expm1(distance) if drawn.all() else np.where(drawn, np.expm1(distance), np.exp(distance))
    return np.asarray(risen if power == 1 else risen / power)


def _laid_out(values: Array, eta: Array) -> Array:
    """Values computed class by class: row by row in memory, unless the linear predictors are not."""
    return values if eta.flags.f_contiguous else np.ascontiguousarray(values)


def _shares(eta: Array) -> Array:
    """Softmax of each row, computed class by class, since there are few of them."""
    by_class = np.ascontiguousarray(eta.T)
    shares = np.exp(by_class - by_class.max(axis=0))
    shares /= shares.sum(axis=0)
    return shares.T


@dataclass(frozen=True)
class Tweedie(Loss):
    """Half the unit deviance of a Tweedie family, with mean μ = exp(η) or μ = η.

    ``power`` 0 is the normal, 1 the Poisson, 2 the gamma, 3 the inverse Gaussian family; with
    1 < power < 2 the response may be zero.

    Parameters
    ----------
    power : float
        Of the mean in the variance; no family has one between 0 and 1.
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

    def __post_init__(self) -> None:
        if not np.isfinite(self.power) or 0 < self.power < 1:
            raise ValueError(
                f"power must be a number outside of (0, 1), where no family has one, got {self.power!r}: "
                "take 0 (normal), 1 (Poisson), 2 (gamma), 3 (inverse Gaussian) or any between 1 and 2"
            )

    @property
    def is_convex(self) -> bool:
        return 1 <= self.power <= 2 if self.link == "log" else self.power in (0, 1)

    def mean(self, eta: Array) -> Array:
        """Return the mean response μ, of the shape of ``eta``."""
        return self._term(1.0, eta, 1.0)

    def value(self, y: Array, eta: Array) -> Array:
        q = self.power
        if q == 0:
            return 0.5 * (y - self.mean(eta)) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):  # no mean is negative: NaN there
            log_mean = eta if self.link == "log" else np.log(eta)
        drawn = y > 0
        unit = np.where(drawn, y, 1.0)
        far = log_mean - np.log(unit)
        with np.errstate(over="ignore", invalid="ignore"):
            rises, falls = (_rise(a, far, drawn) for a in (2 - q, 1 - q))
            size = unit if q == 1 else unit ** (2 - q)
            held = np.where(drawn, size, y)
            return np.asarray(size * rises - np.where(held == 0.0, 0.0, held * falls))

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
        """Factor · μ^power, 0 where the factor is 0 whatever μ is; infinite, without a word, out of range.

        A solver that tries too long a step sees an objective that is infinite, and shortens the step.
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            powers = np.exp(power * eta) if self.link == "log" else eta**power
        if np.all(factor == 1.0):
            return powers
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(factor == 0.0, 0.0, factor * powers)

    def has_constant(self, y: Array, weights: Array) -> Mask:
        return (
            (weights > 0).T.astype(np.float64) @ (y > 0) > 0
            if self.link == "log"
            else super().has_constant(y, weights)
        )

    def start(self, y: Array, weights: Array) -> Array:
        mean = np.average(y, weights=weights)
        return np.log(np.maximum(mean, 1e-30)) if self.link == "log" else np.asarray(mean)

    def self_concordance(self) -> float | None:
        if self.link == "identity":
            return 0.0 if self.power == 0 else None
        return max(2.0 - self.power, self.power - 1.0) if 1 <= self.power <= 2 else None


@dataclass(frozen=True)
class Poisson(Tweedie, UnitDispersion):
    """μ − y log μ up to a constant, μ = exp(η): half the Poisson deviance.

    Parameters
    ----------
    power : float, default 1.0
        Of the mean in the variance, which makes it this family.
    link : {"log", "identity"}, default "log"
        Of the linear predictor to the mean.

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
    link : {"log", "identity"}, default "log"
        Of the linear predictor to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Gamma
    >>> Gamma().value(np.array([1.0, 2.0]), np.zeros(2)).round(3)
    array([0.   , 0.307])
    """

    power: float = 2.0

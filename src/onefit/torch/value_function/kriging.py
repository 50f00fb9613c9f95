"""Kriging: interpolation of a function of a few variables by a Gaussian process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg as la
from scipy.optimize import minimize
from scipy.special import xlogy

from onefit._typing import Array, Mask

LOG_THETA = (-7.0, 5.0)  # of the unit cube: from all but constant to all but independent
POWER = (1.0, 2.0)
LOG_NUGGET = (np.log(1e-13), np.log(1e-2))
STARTS = (
    (-1.0, 1.95, -25.0),
    (1.0, 1.95, -25.0),
    (-3.0, 1.95, -25.0),
    (1.0, 1.5, -10.0),
)  # of each parameter
LOG_SHIFT = (-7.0, 3.0)
TANGENT_STARTS = ((1.0, 0.0, -25.0), (1.0, -4.0, -25.0), (-1.0, 1.0, -20.0))
STEEPEST = 100.0  # slope over the range of the values, across the whole range of the variable


@dataclass(frozen=True, eq=False)
class _UnitCube:
    """The variables of a sample scaled to [0, 1], and the level and spread of the values."""

    low: Array
    width: Array
    level: float
    spread: float

    @classmethod
    def of(cls, x: Array, values: Array) -> Self:
        """Of points (L, m) and values (L,).

        Raises
        ------
        ValueError
            If there are fewer than 3 points, or if values are not finite.
        """
        if len(x) < 3 or not np.all(np.isfinite(values)):
            raise ValueError("Kriging needs at least 3 points with finite values")
        low, high = x.min(axis=0), x.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        return cls(low, width, float(values.mean()), float(values.std()) or 1.0)

    def units(self, at: Array) -> Array:
        """Points in [0, 1]."""
        return (at - self.low) / self.width


@dataclass(frozen=True, eq=False)
class _Concentrated:
    """What maximises the likelihood given the correlations R of N data.

    Attributes
    ----------
    mean : float
        m.
    weights : (N,) array
        R⁻¹(data − m).
    variance : float
        (data − m)ᵀR⁻¹(data − m) / N.
    deviance : float
        −2 log-likelihood, constants dropped: N log variance + log|R|.
    """

    mean: float
    weights: Array
    variance: float
    deviance: float

    @classmethod
    def of(cls, factor: tuple[Array, bool], data: Array, level: Array) -> Self:
        """From the lower Cholesky factor of R, where m adds ``level`` to the data."""
        solved = la.cho_solve(factor, level)
        mean = float(solved @ data / (solved @ level))
        weights = la.cho_solve(factor, data - mean * level)
        variance = max(float((data - mean * level) @ weights) / len(data), 1e-300)
        determinant = 2.0 * float(np.log(np.diag(factor[0])).sum())
        return cls(mean, weights, variance, len(data) * np.log(variance) + determinant)


@dataclass(frozen=True, eq=False)
class Kriging:
    """Ordinary Kriging with a power-exponential correlation, by maximum likelihood.

    φ(x) = m + ε(x) with Corr[ε(x), ε(x')] = exp(−Σ_k θ_k |x_k − x'_k|^{p_k}).  The variance and m have closed
    forms and are concentrated out of the likelihood.  A nugget, estimated too, stands for values that were
    computed inexactly; it is next to nothing where they are exact.  Sources: A gradient-based bilevel
    optimization approach (2020), section 3.1; Jones, Schonlau and Welch (1998), eqs 1 to 7.

    Attributes
    ----------
    x : (L, m) array
        Where the function was evaluated.
    theta, power : (m,) arrays
        θ, for variables scaled to the range of x, and p.
    nugget : float
        Share of the variance.
    mean : float
        m.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.torch.value_function.kriging import Kriging
    >>> x = np.linspace(0, 3, 10)[:, None]
    >>> model = Kriging.fit(x, np.sin(x[:, 0]))
    >>> at = np.array([1.45])
    >>> bool(abs(model.value(at) - np.sin(1.45)) < 1e-5)
    True
    >>> bool(abs(model.gradient(at)[0] - np.cos(1.45)) < 1e-4)
    True
    """

    x: Array
    theta: Array
    power: Array
    nugget: float
    mean: float
    weights: Array
    cube: _UnitCube

    @classmethod
    def fit(cls, x: Array, values: Array) -> Self:
        """Estimate the parameters.

        Parameters
        ----------
        x : (L, m) array
        values : (L,) array

        Raises
        ------
        ValueError
            If there are fewer than 3 points, or if values are not finite.
        """
        cube, m = _UnitCube.of(x, values), x.shape[1]
        likelihood = _Likelihood(cube.units(x), (values - cube.level) / cube.spread)
        theta, power, nugget = _likeliest(
            likelihood.deviance, STARTS, (LOG_THETA, POWER, LOG_NUGGET), m, method="L-BFGS-B", jac=True
        )
        factor = la.cho_factor(likelihood.correlation(theta, power, nugget), lower=True)
        at = _Concentrated.of(factor, likelihood.values, np.ones(len(x)))
        mean, weights = cube.level + cube.spread * at.mean, cube.spread * at.weights
        return cls(x, theta, power, nugget, mean, weights, cube)

    def _scaled_distance(self, at: Array) -> Array:
        return self.cube.units(at) - self.cube.units(self.x)

    def value(self, at: Array) -> float:
        """Prediction at a point (m,)."""
        apart = np.abs(self._scaled_distance(at.astype(np.longdouble)))
        # large weights cancel: the sum would be rough in float64
        return float(self.mean + np.exp(-(apart**self.power) @ self.theta) @ self.weights)

    def gradient(self, at: Array) -> Array:
        """Derivative of the prediction: (m,)."""
        apart = self._scaled_distance(at.astype(np.longdouble))
        correlation = np.exp(-(np.abs(apart) ** self.power) @ self.theta)
        slopes = (
            np.sign(apart) * self.power * np.abs(apart) ** (self.power - 1) * self.theta / self.cube.width
        )
        return np.asarray(-(correlation * self.weights) @ slopes, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Likelihood of the parameters, with m and the variance concentrated out.

    Attributes
    ----------
    x : (L, m) array
    values : (L,) array
    """

    x: Array
    values: Array

    def correlation(self, theta: Array, power: Array, nugget: float) -> Array:
        """R: (L, L)."""
        R = np.exp(-(self._apart**power) @ theta)
        return R + nugget * np.eye(len(R))

    def deviance(self, parameters: Array) -> tuple[float, Array]:
        """Return −2 log-likelihood, constants dropped, and its gradient.

        d = L log σ² + log|R|, σ² = rᵀR⁻¹r / L, and ∂d = tr(R⁻¹∂R) − (R⁻¹r)ᵀ∂R(R⁻¹r) / σ².
        """
        theta, power, nugget = split(parameters)
        R = self.correlation(theta, power, nugget)
        try:
            factor = la.cho_factor(R, lower=True)
        except la.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        at = _Concentrated.of(factor, self.values, np.ones(len(R)))
        inner = la.cho_solve(factor, np.eye(len(R))) - np.outer(at.weights, at.weights) / at.variance
        in_distance = -(inner * (R - nugget * np.eye(len(R))))[..., None] * self._apart**power * theta
        in_power = xlogy(in_distance, self._apart).sum((0, 1))
        return at.deviance, np.r_[in_distance.sum((0, 1)), in_power, nugget * np.trace(inner)]

    @cached_property
    def _apart(self) -> Array:
        return np.abs(self.x[:, None, :] - self.x[None, :, :])


def _likeliest(
    deviance: Callable[[Array], Any], starts: Any, bounds: tuple[Any, Any, Any], m: int, **how: Any
) -> tuple[Array, Array, float]:
    """Minimise a deviance of m, m and one parameters from several starts: what ``split`` makes of them."""
    box = np.repeat(bounds, [m, m, 1], axis=0)
    found = [minimize(deviance, np.repeat(start, [m, m, 1]), bounds=box, **how) for start in starts]
    return split(min(found, key=lambda one: float(one.fun)).x)


def split(parameters: Array) -> tuple[Array, Array, float]:
    """Return θ, p and the nugget."""
    m = len(parameters) // 2
    return np.exp(parameters[:m]), parameters[m : 2 * m], float(np.exp(parameters[-1]))


@dataclass(frozen=True, eq=False)
class TangentKriging:
    """Kriging of a function of which the slopes are known too.

    By the envelope theorem the slopes of an optimal value come with it: ∂φ/∂λ_k = R_k(w(λ)), the penalty at
    the solution.  The correlation is Gaussian (p_k = 2), that slopes be defined, in log(u_k + κ_k), where u_k
    is the variable scaled to [0, 1] and κ_k is estimated with θ_k: φ may be steep at one end.  Slopes too
    steep for that are left out.  Source of the correlations with slopes: Morris, Mitchell and Ylvisaker
    (1993).

    Attributes
    ----------
    x : (L, m) array
    theta, shift : (m,) arrays
        θ and κ.
    nugget : float

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.torch.value_function.kriging import TangentKriging
    >>> x = np.linspace(0, 3, 6)[:, None]
    >>> model = TangentKriging.fit(x, np.sin(x[:, 0]), np.cos(x))
    >>> at = np.array([1.45])
    >>> bool(abs(model.value(at) - np.sin(1.45)) < 1e-4)
    True
    >>> bool(abs(model.gradient(at)[0] - np.cos(1.45)) < 1e-3)
    True
    """

    x: Array
    theta: Array
    shift: Array
    nugget: float
    mean: float
    weights: Array
    cube: _UnitCube

    @classmethod
    def fit(cls, x: Array, values: Array, slopes: Array) -> Self:
        """Estimate the parameters.

        Parameters
        ----------
        x : (L, m) array
        values : (L,) array
        slopes : (L, m) array

        Raises
        ------
        ValueError
            If there are fewer than 3 points, or if values are not finite.
        """
        cube, m = _UnitCube.of(x, values), x.shape[1]
        level, spread = cube.level, cube.spread
        data = _Tangents(cube.units(x), (values - level) / spread, slopes * cube.width / spread)
        theta, log_shift, nugget = _likeliest(
            data.deviance,
            TANGENT_STARTS,
            (LOG_THETA, LOG_SHIFT, LOG_NUGGET),
            m,
            method="Nelder-Mead",
            options={"maxfev": 250 * (m + 1), "xatol": 1e-3, "fatol": 1e-3},
        )
        shift = np.exp(log_shift)
        at = data.solved(theta, shift, nugget)[1]
        full = np.zeros(data.known.shape)
        full[data.known] = at.weights
        weights = spread * full.reshape(m + 1, -1)
        return cls(x, theta, shift, nugget, level + spread * at.mean, weights, cube)

    def _apart(self, at: Array) -> Array:
        here, there = self.cube.units(at), self.cube.units(self.x)
        return _warped(here, self.shift)[0] - _warped(there, self.shift)[0]

    def value(self, at: Array) -> float:
        """Prediction at a point (m,)."""
        D = self._apart(at.astype(np.longdouble))  # as above
        E = np.exp(-(D**2) @ self.theta)
        in_slopes = 2.0 * (self.theta * D).T * E
        return float(self.mean + E @ self.weights[0] + (in_slopes * self.weights[1:]).sum())

    def gradient(self, at: Array) -> Array:
        """Derivative of the prediction: (m,)."""
        D = self._apart(at.astype(np.longdouble))
        E = np.exp(-(D**2) @ self.theta)
        pull = 2.0 * (self.theta * D).T  # (m, L)
        along = (pull * self.weights[1:]).sum(0)
        in_warped = -(pull * E) @ (self.weights[0] + along) + 2.0 * self.theta * (self.weights[1:] @ E)
        in_unit = in_warped * _warped(self.cube.units(at), self.shift)[1]
        return np.asarray(in_unit / self.cube.width, dtype=np.float64)


def _warped(u: Array, shift: Array) -> tuple[Array, Array]:
    """log(u + κ) scaled to [0, 1], and its derivative in u."""
    width = np.log1p(1.0 / shift)
    inside = np.maximum(u, -0.5 * shift) + shift  # a point outside the sample may come near the pole
    return (np.log(inside) - np.log(shift)) / width, 1.0 / (inside * width)


@dataclass(frozen=True, eq=False)
class _Tangents:
    """Likelihood of values and slopes on the unit cube.

    Attributes
    ----------
    x : (L, m) array
    values : (L,) array
    slopes : (L, m) array
    """

    x: Array
    values: Array
    slopes: Array

    @cached_property
    def known(self) -> Mask:
        """Values, then slopes of each variable that are not too steep: ((m + 1) L,)."""
        gentle = np.abs(self.slopes) <= STEEPEST * np.ptp(self.values)  # no NaN either
        return np.r_[np.ones(len(self.x), dtype=bool), gentle.T.ravel()]

    def correlation(self, theta: Array, warped: Array, nugget: float) -> Array:
        """Correlations of values and slopes in the warped variables."""
        (L, m), D = warped.shape, warped[:, None, :] - warped[None, :, :]
        E = np.exp(-(D**2) @ theta)
        pull = 2.0 * theta * D
        R = np.empty((m + 1, L, m + 1, L))
        R[0, :, 0] = E
        R[0, :, 1:] = (pull * E[..., None]).transpose(0, 2, 1)
        R[1:, :, 0] = -(pull * E[..., None]).transpose(2, 0, 1)
        R[1:, :, 1:] = -np.einsum("ijk,ijl,ij->kilj", pull, pull, E)
        for k in range(m):
            R[1 + k, :, 1 + k] += 2.0 * theta[k] * E
        scale = np.repeat(np.r_[1.0, 2.0 * theta], L)
        R = R.reshape(len(scale), -1) + nugget * np.diag(scale)
        return R[np.ix_(self.known, self.known)]

    def solved(self, theta: Array, shift: Array, nugget: float) -> tuple[float, _Concentrated]:
        """Return the deviance, and the parameters that are concentrated out of it.

        Raises
        ------
        scipy.linalg.LinAlgError
            If the correlations are singular to working precision.
        """
        warped, stretch = _warped(self.x, shift)
        data = np.r_[self.values, (self.slopes / stretch).T.ravel()][self.known]
        level = np.r_[np.ones(len(self.x)), np.zeros(self.slopes.size)][self.known]
        factor = la.cho_factor(self.correlation(theta, warped, nugget), lower=True)
        at = _Concentrated.of(factor, data, level)
        # slopes in the warped variables change with κ: the Jacobian makes likelihoods comparable
        jacobian = 2.0 * float(np.log(stretch.T.ravel()[self.known[len(self.x) :]]).sum())
        return at.deviance + jacobian, at

    def deviance(self, parameters: Array) -> float:
        """Return −2 log-likelihood of log θ, log κ and the logarithm of the nugget."""
        theta, log_shift, nugget = split(parameters)
        try:
            return self.solved(theta, np.exp(log_shift), nugget)[0]
        except la.LinAlgError:
            return 1e10

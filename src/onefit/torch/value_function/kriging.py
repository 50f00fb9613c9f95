"""Kriging: interpolation of a function of a few variables by a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

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


class Correlation(NamedTuple):
    """Parameters of exp(−Σ_k θ_k |x_k − x'_k|^{p_k}), for variables scaled to [0, 1], or warped.

    Attributes
    ----------
    theta : (m,) array
        θ.
    power : (m,) array or float
        p.
    shift : (m,) array or None
        κ of the warped variables; None where they are not.
    nugget : float
        Share of the variance.
    """

    theta: Array
    power: Array | float
    shift: Array | None
    nugget: float

    def between(self, D: Array, *, slopes: bool) -> Array:
        """Correlations of values, and slopes in each variable, at points that are D (n, L, m) apart.

        Returns
        -------
        (1, n, 1, L) or (m + 1, n, m + 1, L) array
            Of slopes for p = 2 only.
        """
        E = np.exp(-(np.abs(D) ** self.power) @ self.theta)
        if not slopes:
            return np.asarray(E[None, :, None])
        pull = self.theta * self.power * np.sign(D) * np.abs(D) ** (self.power - 1.0)
        one = np.ones_like(pull[..., :1])
        left, right = np.concatenate([one, -pull], -1), np.concatenate([one, pull], -1)
        bent = np.diag(np.r_[0.0, 2.0 * self.theta])
        products = np.einsum("ijk,ijl->kilj", left * E[..., None], right)
        return np.asarray(products + bent[:, None, :, None] * E[:, None, :])


@dataclass(frozen=True, eq=False)
class Kriging:
    """Ordinary Kriging by maximum likelihood, of values, or of values and slopes.

    φ(x) = m + ε(x) with Corr[ε(x), ε(x')] = exp(−Σ_k θ_k |x_k − x'_k|^{p_k}).  The variance and m have closed
    forms and are concentrated out of the likelihood.  A nugget, estimated too, stands for values that were
    computed inexactly; it is next to nothing where they are exact.  Sources: A gradient-based bilevel
    optimization approach (2020), section 3.1; Jones, Schonlau and Welch (1998), eqs 1 to 7.

    By the envelope theorem the slopes of an optimal value come with it: ∂φ/∂λ_k = R_k(w(λ)), the penalty at
    the solution.  With slopes the correlation is Gaussian (p_k = 2), that they be defined, in log(u_k + κ_k),
    where u_k is the variable scaled to [0, 1] and κ_k is estimated with θ_k: φ may be steep at one end.
    Slopes too steep for that are left out.  Source of the correlations with slopes: Morris, Mitchell and
    Ylvisaker (1993).

    Attributes
    ----------
    x : (L, m) array
        Where the function was evaluated.
    correlation : Correlation
    mean : float
        m.
    weights : ((m + 1) L,) array
        Of the values, and then of the slopes in each variable.
    low, width : (m,) arrays
        Range of x.

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

    With slopes fewer points do:

    >>> x = np.linspace(0, 3, 6)[:, None]
    >>> model = Kriging.fit(x, np.sin(x[:, 0]), np.cos(x))
    >>> bool(abs(model.value(at) - np.sin(1.45)) < 1e-4)
    True
    """

    x: Array
    correlation: Correlation
    mean: float
    weights: Array
    low: Array
    width: Array

    @classmethod
    def fit(cls, x: Array, values: Array, slopes: Array | None = None) -> Self:
        """Estimate the parameters.

        Parameters
        ----------
        x : (L, m) array
        values : (L,) array
        slopes : (L, m) array, optional

        Raises
        ------
        ValueError
            If there are fewer than 3 points, or if values are not finite.
        """
        if len(x) < 3 or not np.all(np.isfinite(values)):
            raise ValueError("Kriging needs at least 3 points with finite values")
        low, high = x.min(axis=0), x.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        level, spread = float(values.mean()), float(values.std()) or 1.0
        scaled = None if slopes is None else slopes * width / spread
        likelihood = Likelihood((x - low) / width, (values - level) / spread, scaled)
        correlation = likelihood.likeliest()
        at, weights = likelihood.concentrated(correlation), np.zeros(len(likelihood.known))
        weights[likelihood.known] = spread * at.weights
        return cls(x, correlation, level + spread * at.mean, weights, low, width)

    def value(self, at: Array) -> float:
        """Prediction at a point (m,)."""
        return float(self.mean + self._departure(at)[0])

    def gradient(self, at: Array) -> Array:
        """Derivative of the prediction: (m,)."""
        return np.asarray(self._departure(at)[1:], dtype=np.float64)

    def _departure(self, at: Array) -> Array:
        """Departure from the mean at a point, and its derivatives: (m + 1,)."""
        # large weights cancel: the sum would be rough in float64
        units = ((one - self.low) / self.width for one in (at.astype(np.longdouble), self.x))
        (here, stretch), (there, _) = (warped(one, self.correlation.shift) for one in units)
        R = self.correlation.between((here - there)[None], slopes=True)
        found: Array = R.reshape(len(R), -1) @ self.weights * np.r_[1.0, stretch / self.width]
        return found


class Concentrated(NamedTuple):
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
    matrix : (N, N) array
        R.
    factor : (array, bool)
        Its lower Cholesky factor.
    """

    mean: float
    weights: Array
    variance: float
    deviance: float
    matrix: Array
    factor: tuple[Array, bool]


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The likelihood of correlations, given values on the unit cube, and slopes if there are any.

    Attributes
    ----------
    x : (L, m) array
    values : (L,) array
    slopes : (L, m) array or None
    """

    x: Array
    values: Array
    slopes: Array | None = None

    @cached_property
    def known(self) -> Mask:
        """Values, then slopes of each variable that are not too steep: ((m + 1) L,)."""
        slopes = np.full(self.x.shape, np.nan) if self.slopes is None else self.slopes
        gentle = np.abs(slopes) <= STEEPEST * np.ptp(self.values)  # no NaN either
        return np.r_[np.ones(len(self.x), dtype=bool), gentle.T.ravel()]

    def likeliest(self) -> Correlation:
        """Minimise the deviance from several starts."""
        m, has_slopes = self.x.shape[1], self.slopes is not None
        how: dict[str, Any] = {"method": "L-BFGS-B", "jac": True}
        if has_slopes:
            limits = {"maxfev": 250 * (m + 1), "xatol": 1e-3, "fatol": 1e-3}
            how = {"method": "Nelder-Mead", "options": limits}
        box = np.repeat([LOG_THETA, LOG_SHIFT if has_slopes else POWER, LOG_NUGGET], [m, m, 1], axis=0)
        starts = (np.repeat(one, [m, m, 1]) for one in (TANGENT_STARTS if has_slopes else STARTS))
        deviance = self.deviance if has_slopes else self.deviance_and_gradient
        found = [minimize(deviance, start, bounds=box, **how) for start in starts]
        return self.split(min(found, key=lambda one: float(one.fun)).x)

    def split(self, parameters: Array) -> Correlation:
        """Correlation of log θ, p or log κ, and the logarithm of the nugget."""
        m = self.x.shape[1]
        theta, second, nugget = np.exp(parameters[:m]), parameters[m : 2 * m], float(np.exp(parameters[-1]))
        if self.slopes is None:
            return Correlation(theta, second, None, nugget)
        return Correlation(theta, 2.0, np.exp(second), nugget)

    def matrix(self, correlation: Correlation, x: Array) -> Array:
        """R of the data in the warped variables: (N, N)."""
        R = correlation.between(x[:, None] - x[None], slopes=self.slopes is not None)
        scale = np.repeat(np.r_[1.0, 2.0 * correlation.theta][: len(R)], len(x))
        R = R.reshape(len(scale), -1) + correlation.nugget * np.diag(scale)
        known = self.known[: len(scale)]
        return R[np.ix_(known, known)]

    def concentrated(self, correlation: Correlation) -> Concentrated:
        """What is left once m and the variance are those that maximise the likelihood.

        Raises
        ------
        scipy.linalg.LinAlgError
            If the correlations are singular to working precision.
        """
        x, stretch = warped(self.x, correlation.shift)
        slopes = np.zeros_like(x) if self.slopes is None else self.slopes / stretch
        data = np.r_[self.values, slopes.T.ravel()][self.known]
        level = np.r_[np.ones(len(x)), np.zeros(x.size)][self.known]
        R = self.matrix(correlation, x)
        factor = la.cho_factor(R, lower=True)
        solved = la.cho_solve(factor, level)
        mean = float(solved @ data / (solved @ level))
        weights = la.cho_solve(factor, data - mean * level)
        variance = max(float((data - mean * level) @ weights) / len(data), 1e-300)
        deviance = len(data) * np.log(variance) + 2.0 * float(np.log(np.diag(factor[0])).sum())
        # slopes in the warped variables change with κ: the Jacobian makes likelihoods comparable
        deviance += 2.0 * float(np.log(stretch.T.ravel()[self.known[len(x) :]]).sum())
        return Concentrated(mean, weights, variance, deviance, R, factor)

    def deviance(self, parameters: Array) -> float:
        """−2 log-likelihood, constants dropped."""
        try:
            return self.concentrated(self.split(parameters)).deviance
        except la.LinAlgError:
            return 1e10

    def deviance_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """The same of values alone, with its gradient.

        d = L log σ² + log|R|, σ² = rᵀR⁻¹r / L, and ∂d = tr(R⁻¹∂R) − (R⁻¹r)ᵀ∂R(R⁻¹r) / σ².
        """
        correlation = self.split(parameters)
        try:
            at = self.concentrated(correlation)
        except la.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        theta, power, _, nugget = correlation
        apart, eye = np.abs(self.x[:, None] - self.x[None]), np.eye(len(self.x))
        inner = la.cho_solve(at.factor, eye) - np.outer(at.weights, at.weights) / at.variance
        in_distance = -(inner * (at.matrix - nugget * eye))[..., None] * apart**power * theta
        in_power = xlogy(in_distance, apart).sum((0, 1))
        return at.deviance, np.r_[in_distance.sum((0, 1)), in_power, nugget * np.trace(inner)]


def warped(u: Array, shift: Array | None) -> tuple[Array, Array]:
    """log(u + κ) scaled to [0, 1], and its derivative in u; u itself without a shift."""
    if shift is None:
        return u, np.ones_like(u)
    width = np.log1p(1.0 / shift)
    inside = np.maximum(u, -0.5 * shift) + shift  # a point outside the sample may come near the pole
    return (np.log(inside) - np.log(shift)) / width, 1.0 / (inside * width)

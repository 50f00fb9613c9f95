"""Losses: a value and three derivatives in the linear predictor.

A loss knows no data and no weights: it maps responses ``y`` (n,) and linear predictors ``eta`` to one
number a row.  The derivatives are the *observed* ones: with a non-canonical link the expected (Fisher)
curvature gives wrong leave-one-out values.

Two shapes of linear predictor exist.  A *separable* loss has one number a row, or several independent
ones, and its derivatives have the shape of ``eta``.  A *coupled* loss ties ``c`` outputs of a row
together: ``eta`` is (n, c), the gradient (n, c), the Hessian (n, c, c), the third derivative
(n, c, c, c).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_softmax, softmax, xlogy

from onefit._typing import Array, Index, Mask

LEAST_WIDTH = 0.05  # of a corner that is rounded


class Loss(ABC):
    """A convex function of the linear predictor, one value a row.

    Concrete losses are frozen dataclasses whose fields are kept as they were given.  ``get_params`` and
    ``set_params`` follow scikit-learn, so that ``clone`` and ``loss__delta`` work.
    """

    of_two_classes: bool = False  # whether y is in {0, 1} and the sign of η decides
    coupled: bool = False  # whether the outputs of a row are tied together
    quadratic: bool = False  # whether the third derivative is zero everywhere, corners aside
    jumps: bool = False  # whether the second derivative does
    has_corners: bool = False  # whether the first derivative jumps
    unit_dispersion: bool = False  # whether the variance follows from the mean

    @abstractmethod
    def value(self, y: Array, eta: Array) -> Array:
        """Loss of each row: (n,), or the shape of ``eta`` for a separable loss."""

    @abstractmethod
    def gradient(self, y: Array, eta: Array) -> Array:
        """First derivative in ``eta``, of its shape."""

    @abstractmethod
    def hessian(self, y: Array, eta: Array) -> Array:
        """Second derivative in ``eta``: its shape, or (n, c, c) for a coupled loss."""

    @abstractmethod
    def third(self, y: Array, eta: Array) -> Array:
        """Third derivative in ``eta``: its shape, or (n, c, c, c) for a coupled loss."""

    @abstractmethod
    def start(self, y: Array, weights: Array) -> Array:
        """Linear predictor of a constant model to start a solver from: a number, or (c,)."""

    def __sklearn_clone__(self) -> Self:
        return deepcopy(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in _names(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place, as scikit-learn's ``set_params`` does.

        Raises
        ------
        ValueError
            An unknown name, or a value that the constructor refuses.
        """
        for name in params:
            if name not in _names(self):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {_names(self)}")
        changed: Any = replace(self, **params)  # type: ignore[type-var]
        self.__dict__.clear()
        self.__dict__.update(vars(changed))
        return self


def _names(loss: Any) -> list[str]:
    return [field.name for field in fields(loss)] if is_dataclass(loss) else []


@dataclass(frozen=True)
class Squared(Loss):
    """½ (y − η)²; several outputs are independent."""

    quadratic = True

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


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(η)) − y η, with y in {0, 1}."""

    of_two_classes = True
    unit_dispersion = True

    def value(self, y: Array, eta: Array) -> Array:
        return np.logaddexp(0.0, eta) - y * eta

    def gradient(self, y: Array, eta: Array) -> Array:
        return expit(eta) - y

    def hessian(self, y: Array, eta: Array) -> Array:
        return expit(eta) * expit(-eta)

    def third(self, y: Array, eta: Array) -> Array:
        return expit(eta) * expit(-eta) * (expit(-eta) - expit(eta))

    def start(self, y: Array, weights: Array) -> Array:
        share = np.clip(np.average(y, weights=weights), 1e-6, 1 - 1e-6)
        return np.log(share / (1 - share))


class PiecewiseLinear(Loss):
    """Straight pieces that meet in corners, where the derivative jumps: a row may sit in one.

    The first corner has the value zero.
    """

    quadratic = True
    has_corners = True

    @abstractmethod
    def corners(self, y: Array) -> Array:
        """Linear predictors of the corners, ascending: (n, q)."""

    @abstractmethod
    def slopes(self, y: Array) -> Array:
        """Derivatives on the pieces, ascending: (n, q + 1)."""

    def piece(self, y: Array, eta: Array) -> Index:
        """Number of the piece that each row is on, 0 … q; the one before where it sits in a corner."""
        return np.asarray((eta[:, None] > self.corners(y)).sum(axis=1))

    def value(self, y: Array, eta: Array) -> Array:
        corners, slopes = self.corners(y), self.slopes(y)
        beyond = np.maximum(eta[:, None] - corners, 0.0)
        return slopes[:, 0] * (eta - corners[:, 0]) + np.sum(np.diff(slopes, axis=1) * beyond, axis=1)

    def gradient(self, y: Array, eta: Array) -> Array:
        """Derivative on the piece; the one before a corner in a corner."""
        return np.take_along_axis(self.slopes(y), self.piece(y, eta)[:, None], axis=1)[:, 0]

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)


@dataclass(frozen=True)
class Hinge(PiecewiseLinear):
    """max(0, 1 − s η), with s = 2y − 1 for y in {0, 1}: the support vector machine."""

    of_two_classes = True

    def corners(self, y: Array) -> Array:
        return (2.0 * y - 1.0)[:, None]

    def slopes(self, y: Array) -> Array:
        return np.stack([-y, 1.0 - y], axis=1)

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(np.sign(2.0 * np.average(y, weights=weights) - 1.0))


@dataclass(frozen=True)
class Quantile(PiecewiseLinear):
    """Pinball loss: level · (y − η) below the response, (1 − level) · (η − y) above it."""

    level: float = 0.5

    def corners(self, y: Array) -> Array:
        return y[:, None]

    def slopes(self, y: Array) -> Array:
        return np.tile(np.array([-self.level, 1.0 - self.level]), (len(y), 1))

    def start(self, y: Array, weights: Array) -> Array:
        order = np.argsort(y)
        below = np.cumsum(weights[order]) < self.level * weights.sum()
        return np.asarray(y[order][min(int(below.sum()), len(y) - 1)])


@dataclass(frozen=True)
class EpsilonInsensitive(PiecewiseLinear):
    """max(0, |y − η| − epsilon): support vector regression; the absolute loss where epsilon is 0."""

    epsilon: float = 0.1

    def corners(self, y: Array) -> Array:
        return y[:, None] if self.epsilon == 0 else np.stack([y - self.epsilon, y + self.epsilon], axis=1)

    def slopes(self, y: Array) -> Array:
        return np.tile(np.array([-1.0, 1.0] if self.epsilon == 0 else [-1.0, 0.0, 1.0]), (len(y), 1))

    def start(self, y: Array, weights: Array) -> Array:
        return Quantile(0.5).start(y, weights)


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 − s η)², with s = 2y − 1 for y in {0, 1}."""

    of_two_classes = True
    jumps = True

    def _short(self, y: Array, eta: Array) -> Array:
        return np.maximum(1.0 - (2.0 * y - 1.0) * eta, 0.0)

    def value(self, y: Array, eta: Array) -> Array:
        return self._short(y, eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return -2.0 * (2.0 * y - 1.0) * self._short(y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.where(self._short(y, eta) > 0, 2.0, 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(2.0 * np.average(y, axis=0, weights=weights) - 1.0)


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge with its corner rounded: for m = 1 − s η it is 0, m²/(2 width) up to ``width``, m − width/2.

    It has the slopes of the hinge outside 0 < m < width.

    Parameters
    ----------
    width : float, default 0.5
        At least 0.05: Newton's method does not settle on sharper corners.

    Examples
    --------
    >>> import numpy as np
    >>> SmoothedHinge(1.0).value(np.ones(3), np.array([2.0, 0.5, -1.0]))
    array([0.   , 0.125, 1.5  ])
    """

    width: float = 0.5
    of_two_classes = True
    jumps = True

    def __post_init__(self) -> None:
        if not LEAST_WIDTH <= self.width < np.inf:
            raise ValueError(
                f"width must be a number from {LEAST_WIDTH:g} on, got {self.width!r}: for a sharper corner "
                "take Hinge(), which has a solver of its own"
            )

    def _short(self, y: Array, eta: Array) -> Array:
        return np.maximum(1.0 - (2.0 * y - 1.0) * eta, 0.0)

    def value(self, y: Array, eta: Array) -> Array:
        short = self._short(y, eta)
        return np.where(short < self.width, short**2 / (2.0 * self.width), short - 0.5 * self.width)

    def gradient(self, y: Array, eta: Array) -> Array:
        return -(2.0 * y - 1.0) * np.minimum(self._short(y, eta) / self.width, 1.0)

    def hessian(self, y: Array, eta: Array) -> Array:
        short = self._short(y, eta)
        return np.where((short > 0) & (short < self.width), 1.0 / self.width, 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return SquaredHinge().start(y, weights)


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

    def value(self, y: Array, eta: Array) -> Array:
        return np.exp(-(2.0 * y - 1.0) * eta)

    def gradient(self, y: Array, eta: Array) -> Array:
        return -(2.0 * y - 1.0) * self.value(y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return self.value(y, eta)

    def third(self, y: Array, eta: Array) -> Array:
        return self.gradient(y, eta)

    def start(self, y: Array, weights: Array) -> Array:
        return 0.5 * Logistic().start(y, weights)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """max(0, |y − η| − epsilon)²."""

    epsilon: float = 0.1
    jumps = True

    def _beyond(self, y: Array, eta: Array) -> Array:
        return np.maximum(np.abs(eta - y) - self.epsilon, 0.0)

    def value(self, y: Array, eta: Array) -> Array:
        return self._beyond(y, eta) ** 2

    def gradient(self, y: Array, eta: Array) -> Array:
        return 2.0 * np.sign(eta - y) * self._beyond(y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return np.where(self._beyond(y, eta) > 0, 2.0, 0.0)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(np.average(y, weights=weights))


@dataclass(frozen=True)
class Multinomial(Loss):
    """−log softmax(η)_y, with y the number of the class, 0 … c − 1, and symmetric parameters."""

    unit_dispersion = True

    n_classes: int
    coupled = True

    def _one_hot(self, y: Array) -> Array:
        return np.eye(self.n_classes)[y.astype(np.intp)]

    def value(self, y: Array, eta: Array) -> Array:
        return -np.take_along_axis(log_softmax(eta, axis=1), y.astype(np.intp)[:, None], 1)[:, 0]

    def gradient(self, y: Array, eta: Array) -> Array:
        return softmax(eta, axis=1) - self._one_hot(y)

    def hessian(self, y: Array, eta: Array) -> Array:
        share = softmax(eta, axis=1)
        return share[:, :, None] * (np.eye(self.n_classes) - share[:, None, :])

    def third(self, y: Array, eta: Array) -> Array:
        p = softmax(eta, axis=1)
        eye = np.eye(self.n_classes)
        centred = eye[None] - p[:, None, :]  # (n, category, c): one-hot minus mean
        return np.einsum("na,nab,nac,nad->nbcd", p, centred, centred, centred)  # third cumulant

    def start(self, y: Array, weights: Array) -> Array:
        share = np.bincount(y.astype(np.intp), weights, self.n_classes) / weights.sum()
        logits = np.log(np.clip(share, 1e-6, None))
        return logits - logits.mean()


@dataclass(frozen=True)
class Tweedie(Loss):
    """Half the unit deviance of a Tweedie family, with mean μ = exp(η) or μ = η.

    ``power`` 0 is the normal, 1 the Poisson, 2 the gamma, 3 the inverse Gaussian family; with
    1 < power < 2 the response may be zero.
    """

    power: float
    link: Literal["log", "identity"] = "log"

    def mean(self, eta: Array) -> Array:
        """Return the mean response μ, of the shape of ``eta``."""
        return np.exp(eta) if self.link == "log" else eta

    def value(self, y: Array, eta: Array) -> Array:
        mu, q = self.mean(eta), self.power
        if q == 0:
            return 0.5 * (y - mu) ** 2
        if q == 1:
            return xlogy(y, y / mu) - y + mu
        if q == 2:
            return np.log(mu / y) + y / mu - 1
        at_y = np.maximum(y, 0) ** (2 - q) / ((1 - q) * (2 - q))
        return at_y - y * mu ** (1 - q) / (1 - q) + mu ** (2 - q) / (2 - q)

    def gradient(self, y: Array, eta: Array) -> Array:
        mu, q = self.mean(eta), self.power
        slope = (mu - y) * mu ** (-q)  # dℓ/dμ
        return slope * mu if self.link == "log" else slope

    def hessian(self, y: Array, eta: Array) -> Array:
        mu, q = self.mean(eta), self.power
        if self.link == "log":
            return (2 - q) * mu ** (2 - q) - (1 - q) * y * mu ** (1 - q)
        return (1 - q) * mu ** (-q) + q * y * mu ** (-q - 1)

    def third(self, y: Array, eta: Array) -> Array:
        mu, q = self.mean(eta), self.power
        if self.link == "log":
            return (2 - q) ** 2 * mu ** (2 - q) - (1 - q) ** 2 * y * mu ** (1 - q)
        return -q * (1 - q) * mu ** (-q - 1) - q * (q + 1) * y * mu ** (-q - 2)

    def start(self, y: Array, weights: Array) -> Array:
        mean = np.average(y, weights=weights)
        return np.log(np.maximum(mean, 1e-30)) if self.link == "log" else np.asarray(mean)


@dataclass(frozen=True)
class Poisson(Tweedie):
    """μ − y log μ up to a constant, μ = exp(η): half the Poisson deviance."""

    unit_dispersion = True

    power: float = 1.0


@dataclass(frozen=True)
class Gamma(Tweedie):
    """log(μ / y) + y / μ − 1, μ = exp(η): half the gamma deviance."""

    power: float = 2.0


@dataclass(frozen=True)
class Huber(Loss):
    """½ r² for |r| ≤ delta, delta (|r| − ½ delta) beyond, with r = y − η."""

    delta: float = 1.35
    jumps = True

    def value(self, y: Array, eta: Array) -> Array:
        r = np.abs(y - eta)
        return np.where(r <= self.delta, 0.5 * r**2, self.delta * (r - 0.5 * self.delta))

    def gradient(self, y: Array, eta: Array) -> Array:
        return np.clip(eta - y, -self.delta, self.delta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return (np.abs(y - eta) <= self.delta).astype(np.float64)

    def third(self, y: Array, eta: Array) -> Array:
        return np.zeros_like(eta)

    def start(self, y: Array, weights: Array) -> Array:
        return np.asarray(np.average(y, weights=weights))


@dataclass(frozen=True)
class ConcomitantHuber(Loss):
    """σ + σ H((y − μ)/σ), jointly in η = (μ, σ), with H(z) = z² or 2 epsilon |z| − epsilon².

    The scale is estimated with the coefficients (Owen 2007), so it is one more smooth coordinate
    and moves too when a row leaves.
    """

    epsilon: float = 1.35
    coupled = True
    jumps = True

    def _inside(self, y: Array, eta: Array) -> Mask:
        return np.abs(y - eta[:, 0]) <= self.epsilon * eta[:, 1]

    def value(self, y: Array, eta: Array) -> Array:
        r, s, e = y - eta[:, 0], eta[:, 1], self.epsilon
        inner, outer = r**2 / s, 2 * e * np.abs(r) - e**2 * s
        return np.where(s > 0, s + np.where(self._inside(y, eta), inner, outer), np.inf)

    def gradient(self, y: Array, eta: Array) -> Array:
        r, s, e = y - eta[:, 0], eta[:, 1], self.epsilon
        inside = self._inside(y, eta)
        in_mean = np.where(inside, -2 * r / s, -2 * e * np.sign(r))
        in_scale = np.where(inside, 1 - (r / s) ** 2, 1 - e**2)
        return np.stack([in_mean, in_scale], axis=1)

    def hessian(self, y: Array, eta: Array) -> Array:
        r, s = y - eta[:, 0], eta[:, 1]
        z = r / s
        quadratic = np.stack([np.ones_like(z), z, z, z**2], axis=1).reshape(-1, 2, 2)
        return quadratic * (2 * self._inside(y, eta) / s)[:, None, None]

    def third(self, y: Array, eta: Array) -> Array:
        r, s = y - eta[:, 0], eta[:, 1]
        scale = -2 * self._inside(y, eta) / s**2
        n_sigma = np.indices((2, 2, 2)).sum(axis=0)  # how often σ is differentiated
        factor = np.array([0.0, 1.0, 2.0, 3.0])[n_sigma]
        z = (r / s)[:, None, None, None]
        power = np.where(n_sigma > 0, z ** np.maximum(n_sigma - 1, 0), 0.0)
        return scale[:, None, None, None] * factor * power

    def start(self, y: Array, weights: Array) -> Array:
        mean = np.average(y, weights=weights)
        return np.array([mean, np.sqrt(np.average((y - mean) ** 2, weights=weights)) + 1e-12])


# --- mixtures --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixture(Loss):
    """A convex mixture Σ_k weights_k ℓ_k of smooth losses, whose weights can be learned.

    Wang et al. (2019, appendix B) mix surrogates of the misclassification loss and choose the weights by the
    gradient of a cross-validated risk, projected onto the simplex: ``GradientSearchCV`` with
    ``{"loss__weights": onefit.Simplex()}``.  The yardstick of that risk does not depend on the weights: it is
    the hinge loss for two classes and the squared error for numbers, whatever is mixed.

    Parameters
    ----------
    losses : sequence of Loss
        All for two classes (``Logistic``, ``SquaredHinge``, ``SmoothedHinge``, ``Exponential``), or all for
        numbers (``Squared``, ``Huber``, ``SquaredEpsilonInsensitive``).
    weights : (k,) array-like, optional
        At least 0, with sum 1; equal if None.

    Raises
    ------
    TypeError
        For a loss with corners, with several outputs or with a mean other than η, and for losses of different
        kinds of response.
    ValueError
        For weights that are none.

    Notes
    -----
    A mixture of losses for two classes is a margin classifier: it has a decision function and no
    probabilities, since no link belongs to all of them.  The paper's logistic loss is ln(1 + exp(−2 s η)),
    ``Logistic`` at twice the margin.

    References
    ----------
    Wang et al. (2019), Optimizing for generalization in machine learning with cross-validation gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import onefit
    >>> from onefit.losses import Exponential, Logistic, Mixture
    >>> Mixture([Exponential(), Logistic()], [0.25, 0.75]).value(np.ones(1), np.zeros(1)).round(3)
    array([0.77])
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 3))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=80) > 0
    >>> model = onefit.GeneralizedLinear(Mixture([Exponential(), Logistic()]), onefit.penalties.L2(1.0))
    >>> folds = onefit.risk.KFold(5)
    >>> search = onefit.GradientSearchCV(model, {"loss__weights": onefit.Simplex()}, risk=folds).fit(X, y)
    >>> float(search.best_params_["loss__weights"].sum().round(9))
    1.0
    """

    losses: Sequence[Loss]
    weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not len(self.losses):
            raise ValueError("Mixture needs at least one loss")
        for loss in self.losses:
            _check_mixable(loss)
        kinds = {loss.of_two_classes for loss in self.losses}
        if len(kinds) > 1:
            shown = ", ".join(type(loss).__name__ for loss in self.losses)
            raise TypeError(f"Mixture takes losses for two classes or losses for numbers, not both: {shown}")
        given = self.shares
        if given.shape != (len(self.losses),) or not np.all(given >= 0) or abs(given.sum() - 1.0) > 1e-8:
            raise ValueError(
                f"weights must be {len(self.losses)} numbers, one a loss, at least 0 and with sum 1, got "
                f"{self.weights!r}"
            )
        for name in ("quadratic", "jumps"):
            judge = all if name == "quadratic" else any
            self.__dict__[name] = judge(getattr(loss, name) for loss in self.losses)
        self.__dict__["of_two_classes"] = kinds.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mixture):
            return NotImplemented
        return list(self.losses) == list(other.losses) and np.array_equal(self.shares, other.shares)

    def __hash__(self) -> int:
        return hash((*self.losses, *self.shares.tolist()))

    @property
    def shares(self) -> Array:
        """Weights as an array: (k,)."""
        k = len(self.losses)
        return np.full(k, 1.0 / k) if self.weights is None else np.asarray(self.weights, dtype=np.float64)

    def _mixed(self, method: str, *data: Array) -> Array:
        total: Array = np.zeros(())
        for share, loss in zip(self.shares, self.losses, strict=True):
            if share > 0:  # exp may overflow where it has no weight
                total = total + share * getattr(loss, method)(*data)
        return total

    def value(self, y: Array, eta: Array) -> Array:
        return self._mixed("value", y, eta)

    def gradient(self, y: Array, eta: Array) -> Array:
        return self._mixed("gradient", y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return self._mixed("hessian", y, eta)

    def third(self, y: Array, eta: Array) -> Array:
        return self._mixed("third", y, eta)

    def start(self, y: Array, weights: Array) -> Array:
        """Near the best constant: the mean of those of the parts."""
        return self._mixed("start", y, weights)


def _check_mixable(loss: Any) -> None:
    """Refuse what a mixture cannot be solved with, or has no yardstick for."""
    if not isinstance(loss, Loss):
        raise TypeError(f"Mixture takes losses of onefit.losses, got {loss!r}")
    name = type(loss).__name__
    if loss.has_corners:
        instead = (
            "SmoothedHinge() or SquaredHinge()"
            if loss.of_two_classes
            else "Huber() or SquaredEpsilonInsensitive()"
        )
        raise TypeError(f"Mixture takes smooth losses, and {name} has corners: take {instead}")
    if loss.coupled or isinstance(loss, Tweedie | Mixture):
        raise TypeError(
            f"Mixture takes losses of one linear predictor that is itself the prediction, not {name}"
        )

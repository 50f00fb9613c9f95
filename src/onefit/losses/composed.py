"""Losses made of others: mixtures, whose weights may be learned, known offsets, rows of a ridge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from onefit._typing import Array, Mask
from onefit.losses.base import CoupledLoss, Loss, PiecewiseLoss
from onefit.losses.piecewise import PiecewiseLinear
from onefit.losses.smooth import Squared, Tweedie
from onefit.pieces import Pieces

STEPS = 50  # of Newton's method for the constant model, which halves an interval where it fails
WIDEST = 50.0  # that the constant may be away from where it starts


@dataclass(frozen=True)
class StraightSum(PiecewiseLinear):
    """A sum of losses of straight pieces, which has the kinks of all of them.

    Parameters
    ----------
    losses : tuple of PiecewiseLinear
    factors : tuple of float
        What each is multiplied with.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Quantile
    >>> from onefit.losses.composed import StraightSum
    >>> StraightSum((Quantile(0.2), Quantile(0.6)), (0.5, 0.5)).slopes(np.array([3.0]))
    array([[-0.4,  0.6]])
    """

    losses: tuple[PiecewiseLinear, ...]
    factors: tuple[float, ...]

    def kinks(self, y: Array) -> Array:
        kinks, _, first = self._ordered(y)
        return kinks[:, first]

    def slopes(self, y: Array) -> Array:
        _, steps, first = self._ordered(y)
        parts = zip(self.factors, self.losses, strict=True)
        lowest = np.sum([factor * loss.slopes(y)[:, 0] for factor, loss in parts], axis=0)
        together = np.add.reduceat(steps, np.flatnonzero(first), axis=1)
        return np.column_stack([lowest, lowest[:, None] + np.cumsum(together, axis=1)])

    def _ordered(self, y: Array) -> tuple[Array, Array, Mask]:
        """Kinks in ascending order, what the slope gains in each, and the first of those that coincide."""
        parts = list(zip(self.factors, self.losses, strict=True))
        kinks = np.hstack([loss.kinks(y) for loss in self.losses])
        steps = np.hstack([factor * np.diff(loss.slopes(y), axis=1) for factor, loss in parts])
        order = np.argsort(kinks, axis=1, kind="stable")
        kinks = np.take_along_axis(kinks, order, axis=1)
        first = np.append(True, np.any(np.diff(kinks, axis=1) > 0, axis=0))
        return kinks, np.take_along_axis(steps, order, axis=1), first

    def start(self, y: Array, weights: Array) -> Array:
        starts = [loss.start(y, weights) for loss in self.losses]
        return np.asarray(np.average(starts, axis=0, weights=self.factors))


class Composed(Loss):
    """A loss whose value and derivatives come from those of other losses by one rule."""

    @abstractmethod
    def _of_parts(self, method: str, y: Array, eta: Array) -> Array:
        """What a method gives, from what it gives for the parts."""

    def value(self, y: Array, eta: Array) -> Array:
        return self._of_parts("value", y, eta)

    def gradient(self, y: Array, eta: Array) -> Array:
        return self._of_parts("gradient", y, eta)

    def hessian(self, y: Array, eta: Array) -> Array:
        return self._of_parts("hessian", y, eta)

    def third(self, y: Array, eta: Array) -> Array:
        return self._of_parts("third", y, eta)


@dataclass(frozen=True, eq=False)
class Mixture(Composed):
    """A convex mixture Σ_k weights_k ℓ_k of losses, whose weights can be learned.

    Wang et al. (2019, appendix B) mix surrogates of the misclassification loss and choose the weights by the
    gradient of a cross-validated risk, projected onto the simplex: ``GradientSearchCV`` with
    ``{"loss__weights": onefit.Simplex()}``.  The yardstick of that risk does not depend on the weights: it is
    the hinge loss for two classes and the squared error for numbers, whatever is mixed.

    Parameters
    ----------
    losses : sequence of Loss
        All for two classes (``Logistic``, ``Hinge``, ``SquaredHinge``, ``SmoothedHinge``, ``Exponential``),
        or all for numbers (``Squared``, ``Huber``, ``Quantile``, ``EpsilonInsensitive``,
        ``SquaredEpsilonInsensitive``).
    weights : (k,) array-like, optional
        At least 0, with sum 1; equal if None.

    Raises
    ------
    TypeError
        For a loss with several outputs or with a mean other than η, and for losses of different kinds of
        response.
    ValueError
        For weights that are none.

    Notes
    -----
    A mixture of losses for two classes is a margin classifier: it has a decision function and no
    probabilities, since no link belongs to all of them.  The paper's logistic loss is ln(1 + exp(−2 s η)),
    ``Logistic`` at twice the margin.

    With a part that has kinks, such as the hinge, rows sit in them as in those of the part alone.  Every
    left-out problem is solved anew then, from the fit, and a search has the exact gradient of each.

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
        self.__dict__["of_two_classes"] = kinds.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mixture):
            return NotImplemented
        return list(self.losses) == list(other.losses) and np.array_equal(self.shares, other.shares)

    def __hash__(self) -> int:
        return hash((*self.losses, *self.shares.tolist()))

    @property
    def pieces(self) -> Pieces:
        """What all parts are made of, if it is the same; smooth ones together are smooth."""
        if any(loss.has_kinks for loss in self.losses):
            return Pieces.KINKED
        if all(loss.pieces is self.losses[0].pieces for loss in self.losses):
            return self.losses[0].pieces
        return Pieces.SMOOTH if all(loss.is_smooth for loss in self.losses) else Pieces.UNKNOWN

    @property
    def shares(self) -> Array:
        """Weights as an array: (k,)."""
        k = len(self.losses)
        return np.full(k, 1.0 / k) if self.weights is None else np.asarray(self.weights, dtype=np.float64)

    @property
    def _acting(self) -> list[tuple[float, Loss]]:
        """Parts that have a weight: exp may overflow where it has none."""
        return [(share, loss) for share, loss in zip(self.shares, self.losses, strict=True) if share > 0]

    @property
    def straight(self) -> StraightSum | None:
        """The sum of the parts that have kinks and a weight; None where there is no such part."""
        parts = [(share, loss) for share, loss in self._acting if isinstance(loss, PiecewiseLinear)]
        return StraightSum(tuple(loss for _, loss in parts), tuple(s for s, _ in parts)) if parts else None

    def curved_gradient(self, y: Array, eta: Array) -> Array:
        """Derivative of the parts without kinks: of the shape of ``eta``."""
        parts = [share * loss.gradient(y, eta) for share, loss in self._acting if not loss.has_kinks]
        return np.sum([np.zeros_like(eta), *parts], axis=0)

    def _of_parts(self, method: str, y: Array, eta: Array) -> Array:
        return sum((share * getattr(loss, method)(y, eta) for share, loss in self._acting), np.zeros(()))

    def start(self, y: Array, weights: Array) -> Array:
        """Near the best constant: the mean of those of the parts."""
        return self._of_parts("start", y, weights)

    def self_concordance(self) -> float | None:
        if self.has_kinks:  # the first derivative jumps, too
            return None
        parts = [loss.self_concordance() for _, loss in self._acting]
        known = [part for part in parts if part is not None]
        return max(known) if len(known) == len(parts) else None


def straight_part(loss: Loss) -> PiecewiseLinear | None:
    """The part of a loss that has kinks, which is the loss itself where it is piecewise linear."""
    if isinstance(loss, Mixture):
        return loss.straight
    return loss if isinstance(loss, PiecewiseLinear) else None


def _check_mixable(loss: Any) -> None:
    """Refuse what a mixture cannot be solved with, or has no yardstick for."""
    if not isinstance(loss, Loss):
        raise TypeError(f"Mixture takes losses of onefit.losses, got {loss!r}")
    name = type(loss).__name__
    if isinstance(loss, CoupledLoss | Tweedie | Mixture):
        raise TypeError(
            f"Mixture takes losses of one linear predictor that is itself the prediction, not {name}"
        )


@dataclass(frozen=True)
class OfOneLoss(Composed):
    """A loss that is another one, of other linear predictors or on some of the rows."""

    loss: Loss

    @property
    def pieces(self) -> Pieces:
        return self.loss.pieces

    def self_concordance(self) -> float | None:
        return self.loss.self_concordance()


@dataclass(frozen=True)
class Offset(OfOneLoss):
    """ℓ(y, η + o): the response and the offset of a row are the two columns of ``y``, (n, 2).

    Whoever takes rows, or leaves some out, takes their offsets along, so that nothing else has to know.

    Parameters
    ----------
    loss : Loss
        Of one output, smooth, and not quadratic.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Poisson
    >>> counts, years = np.array([2.0, 6.0]), np.array([1.0, 3.0])
    >>> loss = Offset(Poisson())
    >>> float(np.exp(loss.start(np.stack([counts, np.log(years)], axis=1), np.ones(2))).round(6))  # a year
    2.0
    """

    def __post_init__(self) -> None:
        inner: Any = self.loss
        if isinstance(inner, CoupledLoss | PiecewiseLoss) or not inner.is_smooth or inner.is_quadratic:
            raise ValueError(
                f"an offset is for smooth, curved losses of one output, not for {type(inner).__name__}: for "
                "a loss of y − η subtract it from y"
            )

    @property
    def of_two_classes(self) -> bool:  # type: ignore[override]
        return self.loss.of_two_classes

    def _of_parts(self, method: str, y: Array, eta: Array) -> Array:
        return getattr(self.loss, method)(y[:, 0], eta + y[:, 1])

    def start(self, y: Array, weights: Array) -> Array:
        """Level of the constant model: Newton's method on Σ w ℓ(y, b + o), kept within a bracket."""
        level = float(self.loss.start(y[:, 0], weights)) - float(np.average(y[:, 1], weights=weights))
        low, high = level - WIDEST, level + WIDEST
        for _ in range(STEPS):
            eta = np.full(len(y), level)
            with np.errstate(over="ignore"):
                slope = float(weights @ self.gradient(y, eta))
                curvature = float(weights @ self.hessian(y, eta))
            low, high = (low, level) if slope > 0 else (level, high)
            step = level - slope / curvature if curvature > 0 and np.isfinite(slope) else np.nan
            last, level = level, step if low < step < high else 0.5 * (low + high)
            if abs(level - last) <= 1e-12 * max(1.0, abs(level)):
                break
        return np.asarray(level)


@dataclass(frozen=True)
class WithRidgeRows(OfOneLoss):
    """A loss on the first n rows, and ½ (y − η)² on those that stand for an ℓ2 penalty.

    Parameters
    ----------
    loss : Loss
    n : int
    """

    n: int

    def start(self, y: Array, weights: Array) -> Array:
        return np.zeros(())

    def _of_parts(self, method: str, y: Array, eta: Array) -> Array:
        rows = getattr(self.loss, method)(y[: self.n], eta[: self.n])
        return np.concatenate([rows, getattr(Squared(), method)(y[self.n :], eta[self.n :])])

"""A convex mixture of losses, whose weights may be learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from onefit._typing import Array
from onefit.losses.base import CoupledLoss, Loss
from onefit.losses.tweedie import Tweedie
from onefit.pieces import Pieces


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
        For a loss with kinks, with several outputs or with a mean other than η, and for losses of different
        kinds of response.
    ValueError
        For weights that are none.

    Notes
    -----
    A mixture of losses for two classes is a margin classifier: it has a decision function and no
    probabilities, since no link belongs to all of them.  The paper's logistic loss is ln(1 + exp(−2 s η)),
    ``Logistic`` at twice the margin.  With the hinge loss, which has a kink, write the sum of losses in
    cvxpy: ``GradientSearchCV`` tunes weights that are a ``cvxpy.Parameter`` of ``onefit.from_cvxpy``.

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
        if all(loss.pieces is self.losses[0].pieces for loss in self.losses):
            return self.losses[0].pieces
        return Pieces.SMOOTH if all(loss.is_smooth for loss in self.losses) else Pieces.UNKNOWN

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

    def self_concordance(self) -> float | None:
        parts = [
            loss.self_concordance() for share, loss in zip(self.shares, self.losses, strict=True) if share > 0
        ]
        known = [part for part in parts if part is not None]
        return max(known) if len(known) == len(parts) else None


def _check_mixable(loss: Any) -> None:
    """Refuse what a mixture cannot be solved with, or has no yardstick for."""
    if not isinstance(loss, Loss):
        raise TypeError(f"Mixture takes losses of onefit.losses, got {loss!r}")
    name = type(loss).__name__
    if loss.is_kinked:
        instead = (
            "SmoothedHinge() or SquaredHinge()"
            if loss.of_two_classes
            else "Huber() or SquaredEpsilonInsensitive()"
        )
        raise TypeError(
            f"Mixture takes smooth losses, and {name} has kinks: take {instead}, or write the sum of losses "
            "in cvxpy, with cvxpy.Parameters as weights, and tune onefit.from_cvxpy(...)"
        )
    if isinstance(loss, CoupledLoss | Tweedie | Mixture):
        raise TypeError(
            f"Mixture takes losses of one linear predictor that is itself the prediction, not {name}"
        )

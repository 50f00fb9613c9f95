"""What every loss says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from typing import Self

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.parameters import Parametrised
from onefit.pieces import Interval, Pieces


class Loss(Parametrised, ABC):
    """A function of the linear predictor, convex unless it says otherwise, one value a row.

    Concrete losses are frozen dataclasses whose fields are kept as they were given.  ``get_params`` and
    ``set_params`` follow scikit-learn, so that ``clone`` and ``loss__delta`` work.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from onefit.losses import Loss
    >>> from onefit.pieces import Pieces
    >>> @dataclass(frozen=True)
    ... class Exponential(Loss):
    ...     "exp(η) − y η: Poisson regression but for a constant."
    ...
    ...     pieces = Pieces.SMOOTH
    ...
    ...     def value(self, y, eta):
    ...         return np.exp(eta) - y * eta
    ...
    ...     def gradient(self, y, eta):
    ...         return np.exp(eta) - y
    ...
    ...     def hessian(self, y, eta):
    ...         return np.exp(eta)
    ...
    ...     def third(self, y, eta):
    ...         return np.exp(eta)
    ...
    ...     def start(self, y, weights):
    ...         return np.log(np.average(y, weights=weights))
    ...
    ...     def self_concordance(self):
    ...         return 1.0
    >>> Exponential().gradient(np.array([0.0, 1.0]), np.zeros(2))
    array([1., 0.])
    """

    of_two_classes: bool = False  # whether y is in {0, 1} and the sign of η decides
    ignores_shifts: bool = False  # whether a constant added to all outputs of a row changes nothing
    if_endless: str = (  # what it means that a solver finds no minimum, and what to do
        "the problem may have no finite minimum, as with perfectly separable classes and no penalty, or "
        "leave the range of its loss; add a penalty"
    )

    @property
    def is_convex(self) -> bool:
        """Whether a minimum is the only one, as all but some Tweedie families say."""
        return True

    @property
    @abstractmethod
    def pieces(self) -> Pieces:
        """What it is made of.

        * ``QUADRATIC``: one parabola, the second derivative is constant;
        * ``SMOOTH``: three continuous derivatives;
        * ``JUMPING``: the second derivative jumps;
        * ``STRAIGHT``: straight pieces that meet in kinks, see ``PiecewiseLinear``;
        * ``KINKED``: curved ones that do, see ``Mixture``;
        * ``UNKNOWN``: two derivatives, of which nothing is assumed.
        """

    @property
    def is_kinked(self) -> bool:
        """Whether it is made of straight pieces that meet in kinks."""
        return self.pieces is Pieces.STRAIGHT

    @property
    def has_kinks(self) -> bool:
        """Whether the first derivative jumps: straight or curved pieces meet in kinks."""
        return self.pieces in (Pieces.STRAIGHT, Pieces.KINKED)

    @property
    def is_quadratic(self) -> bool:
        """Whether a Newton step is exact, as long as all rows stay on their pieces or kinks."""
        return self.pieces in (Pieces.QUADRATIC, Pieces.STRAIGHT)

    @property
    def is_smooth(self) -> bool:
        """Whether the second derivative is known to be continuous."""
        return self.pieces in (Pieces.QUADRATIC, Pieces.SMOOTH)

    @property
    def jumps(self) -> bool:
        """Whether the second derivative does, between curved pieces."""
        return not (self.is_smooth or self.is_kinked)

    @abstractmethod
    def value(self, y: Array, eta: Array) -> Array:
        """Loss of each row: (n,), or the shape of ``eta`` for a separable loss."""

    @abstractmethod
    def gradient(self, y: Array, eta: Array) -> Array:
        """First derivative in ``eta``, of its shape."""

    @abstractmethod
    def hessian(self, y: Array, eta: Array) -> Array:
        """Second derivative in ``eta``: its shape, or (n, c, c) for a coupled loss."""

    def rank(self, n_outputs: int) -> int:
        """Largest rank of the second derivatives of a row in what it couples, above which no leverage is."""
        return 1

    @abstractmethod
    def third(self, y: Array, eta: Array) -> Array:
        """Third derivative in ``eta``: its shape, or (n, c, c, c) for a coupled loss."""

    @abstractmethod
    def self_concordance(self) -> float | None:
        """R with |ℓ‴| ≤ R ℓ″ on every smooth piece, 0 where ℓ″ is constant there; None if there is none.

        For a coupled loss |D³ℓ[u, v, v]| ≤ R (max u − min u) D²ℓ[v, v].  With it a left-out solution has a
        bound (Bach 2010; Sun and Tran-Dinh 2019); without it none is claimed.
        """

    @abstractmethod
    def start(self, y: Array, weights: Array) -> Array:
        """Linear predictor of a constant model to start a solver from: a number, or (c,)."""

    def has_constant(self, y: Array, weights: Array) -> Mask:
        """Whether a constant attains the smallest loss under each of f weightings, (n, f): (f,) or (f, c).

        Rows of one class alone, or counts that are all zero, have none: what is nearer is always better.
        """
        return np.ones(weights.shape[1], dtype=bool)

    def __sklearn_clone__(self) -> Self:
        return deepcopy(self)


class Bending(ABC):
    """Second derivatives of coupled outputs, by what they make of changes of the linear predictors."""

    @abstractmethod
    def __call__(self, change: Array) -> Array:
        """D times changes: (n, c), and perhaps more axes."""

    @abstractmethod
    def weighted(self, weights: Array) -> Bending:
        """The same of weighted rows, (n,), where 0 times what is infinite is 0."""

    @abstractmethod
    def total(self) -> Array:
        """Σ D: (c, c)."""

    @abstractmethod
    def traces(self) -> Array:
        """Of each row's: (n,)."""


@dataclass(frozen=True, eq=False)
class BendingByMatrices(Bending):
    """Second derivatives that are at hand.

    Attributes
    ----------
    matrices : (n, c, c) array
    """

    matrices: Array

    def __call__(self, change: Array) -> Array:
        return _linalg.row_times(self.matrices, change)

    def weighted(self, weights: Array) -> Bending:
        return BendingByMatrices(_linalg.weighted_rows(weights, self.matrices))

    def total(self) -> Array:
        return self.matrices.sum(axis=0)

    def traces(self) -> Array:
        return np.einsum("naa->n", self.matrices)


class CoupledLoss(Loss):
    """A loss that ties the c outputs of a row together: its second derivatives are matrices (c, c).

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import CoupledLoss, Multinomial
    >>> isinstance(Multinomial(3), CoupledLoss)
    True
    >>> Multinomial(3).hessian(np.array([0.0]), np.zeros((1, 3))).shape
    (1, 3, 3)
    """

    def bending(self, y: Array, eta: Array) -> Bending:
        """What second derivatives make of changes of ``eta``: (n, c), and perhaps more axes."""
        return BendingByMatrices(self.hessian(y, eta))

    def rank(self, n_outputs: int) -> int:
        """Largest rank of the second derivatives of a row: c, or c − 1 where shifts change nothing."""
        return n_outputs - self.ignores_shifts


class UnitDispersion(Loss):
    """Minus a log-likelihood whose variance follows from the mean.

    Examples
    --------
    >>> from onefit.losses import Poisson, Squared, UnitDispersion
    >>> isinstance(Poisson(), UnitDispersion), isinstance(Squared(), UnitDispersion)
    (True, False)
    """


class PiecewiseLoss(Loss):
    """A loss of one output whose pieces, each a smooth function, meet in known places.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.losses import Huber
    >>> Huber(delta=1.0).breaks(np.array([0.0, 5.0]))
    array([[-1.,  1.],
           [ 4.,  6.]])
    """

    @abstractmethod
    def breaks(self, y: Array) -> Array:
        """Linear predictors where the pieces meet, ascending: (n, q)."""

    def interval(self, y: Array, eta: Array) -> Interval:
        """Return the piece that each row is on."""
        return Interval.between(self.breaks(y), eta)

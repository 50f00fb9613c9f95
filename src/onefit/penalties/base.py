"""What every penalty says of itself, and checks of parameters, which refuse and convert nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import singledispatch
from typing import Any, Self

import numpy as np

from onefit._typing import Array, Mask
from onefit.parameters import Parametrised
from onefit.pieces import Pieces, Tangent
from onefit.validation import check_strength

ROUNDING = 1e-13  # error of a proximal operator, relative to its argument
ZERO = 1e-9  # what is smaller, relative to the largest of its kind, is zero: solvers leave such remnants


class Penalty(Parametrised, ABC):
    """A convex function of the coefficients; the intercept is never penalised.

    Concrete penalties are frozen dataclasses whose fields are kept as they were given.  ``get_params`` and
    ``set_params`` follow scikit-learn, so that ``clone`` and ``penalty__alpha`` work.

    Examples
    --------
    >>> from onefit.penalties import L1, L2, Penalty
    >>> isinstance(L1(1.0), Penalty)
    True
    >>> (L1(1.0) + L2(2.0)).value(np.array([1.0, -2.0]))  # sums are penalties too
    8.0
    """

    @property
    @abstractmethod
    def pieces(self) -> Pieces:
        """What it is made of.

        * ``QUADRATIC``: on each piece the curvature C is constant, as for polyhedral penalties and ℓ2 parts;
        * ``SMOOTH``: C moves with the coefficients, along free directions that stay;
        * ``TURNING``: the free directions turn, and C depends on the subgradient, minus the gradient of the
          loss;
        * ``UNKNOWN``: all of that may be so; gradients are then differences of the risk.
        """

    @property
    def turns(self) -> bool:
        """Whether its free directions may turn with the coefficients."""
        return self.pieces in {Pieces.TURNING, Pieces.UNKNOWN}

    @abstractmethod
    def value(self, coef: Array) -> float:
        """Penalty at ``coef``."""

    @abstractmethod
    def prox(self, coef: Array, step: float) -> Array:
        """Argmin over z of ½‖z − coef‖² + step · P(z)."""

    @abstractmethod
    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Tangent:
        """Smooth piece through ``coef``.

        Parameters
        ----------
        coef : (p,) or (p, c) array
        loss_gradient : array of the shape of ``coef``, optional
            Gradient of the loss there, for penalties whose curvature depends on the subgradient; without it
            the coupling is left out.
        """

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """``factor`` times this penalty."""

    @abstractmethod
    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        """Whether it has kinks, which make an active pattern, on coefficients of this shape."""

    def has_growing_kinks(self, shape: tuple[int, ...]) -> bool:
        """Whether it has kinks that grow with its strength, as those of bounds do not."""
        return self.has_kinks(shape)

    @abstractmethod
    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        """Whether some direction has no penalty at all, so that a few rows may leave it undetermined."""

    def ridge(self, shape: tuple[int, ...]) -> Array:
        """Strengths of its ℓ2 part, ½ Σ l2_j β_j²: of this shape; ``without_ridge`` is the rest."""
        return np.zeros(shape)

    def is_ridge(self, shape: tuple[int, ...]) -> bool:
        """Whether it is known to be its ℓ2 part and nothing else, on coefficients of this shape."""
        return False

    @abstractmethod
    def third(self, coef: Array, owed: Array) -> Array:
        """Derivative of ⟨owed, C(β)⟩ in β along the free directions: the shape of the coefficients.

        ``third_by_differences`` serves a penalty that has no formula for it.

        Parameters
        ----------
        coef : (p,) or (p, c) array
        owed : array of the shape of the tangent's Hessian

        Raises
        ------
        TypeError
            If the free directions turn: then C is not known in one set of coordinates.
        """

    def without_ridge(self) -> Penalty:
        """Return the penalty without its ℓ2 part."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse coefficients of a shape that the penalty is not made for.

        Raises
        ------
        ValueError
        """

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        """Whether −∇loss is a subgradient of the penalty at the coefficients.

        Parameters
        ----------
        coef, loss_gradient : (p, r) arrays
            Of r problems with this penalty.
        rtol : float, default 1e-7
            Error of a subgradient that is none, relative to ``size``.
        size : (r,) or (p, r) array, optional
            Size of gradients: by default the largest of ``loss_gradient``, which is rounding where nothing is
            penalised.  One a coefficient, for columns of different size, matters to sums over coefficients
            and to norms of groups and clusters of them.

        Returns
        -------
        (r,) bool array

        Notes
        -----
        −g ∈ ∂P(β) if and only if β = prox_tP(β − t g) for some, and then for every, t > 0.
        """
        found = np.zeros(coef.shape[1], dtype=bool)
        allowed = largest_gradient(loss_gradient, size)
        for j, (beta, slope) in enumerate(zip(coef.T, loss_gradient.T, strict=True)):
            largest, extent = allowed[j], np.abs(beta).max(initial=0.0)
            step = extent / largest if largest > 0 and extent > 0 else 1.0
            error = np.abs(self.prox(beta - step * slope, step) - beta).max(initial=0.0)
            found[j] = error <= rtol * largest * step + ROUNDING * extent
        return found

    def __add__(self, other: object) -> Penalty:
        return add(self, other) if isinstance(other, Penalty) else NotImplemented

    def __getstate__(self) -> dict[str, Any]:
        return self.get_params(deep=False)


class OfOneStrength(Penalty):
    """A penalty that is proportional to its strength.

    Attributes
    ----------
    alpha : float
    """

    alpha: float

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)

    def scaled(self, factor: float) -> Self:
        return replace(self, alpha=self.alpha * factor)  # type: ignore[type-var]

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        return self.alpha > 0

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 1:
            raise ValueError(
                f"{type(self).__name__} is for models with one output, got coefficients of shape {shape}"
            )


@singledispatch
def add(one: Any, other: Any) -> Penalty:
    """``one + other``: ``sum`` registers how."""
    raise TypeError(f"{type(one).__name__} and {type(other).__name__} cannot be added")


def size_of(loss_gradient: Array, size: Array | None) -> Array:
    """Size of r gradients, as ``is_stationary`` takes it: (r,) or (p, r)."""
    return np.max(np.abs(loss_gradient), axis=0, initial=0.0) if size is None else size


def largest_gradient(loss_gradient: Array, size: Array | None) -> Array:
    """The largest size of each of them: (r,)."""
    return np.max(np.atleast_2d(size_of(loss_gradient, size)), axis=0, initial=0.0)


def check_not_negative(name: str, given: Any) -> None:
    """Refuse what is not a number, or an array of numbers, that is at least 0; infinity is allowed."""
    strength = np.asarray(given)
    if strength.dtype.kind not in "fiu" or not np.all(strength >= 0):
        raise ValueError(f"{name} must be a number that is at least 0, or an array of them, got {given!r}")


def check_one_each(name: str, given: Any, count: int, what: str) -> None:
    """Refuse what is not so many finite numbers that are at least 0."""
    weights = np.asarray(given)
    if weights.dtype.kind not in "fiu" or weights.shape != (count,):
        raise ValueError(f"{name} must be {count} numbers, {what}, got {given!r}")
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if wrong.size:
        raise ValueError(
            f"{name} must be finite and at least 0, but {name}[{wrong[0]}] = {weights[wrong[0]]}"
        )

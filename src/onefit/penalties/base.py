"""What every penalty says of itself, and the two kinds of tangent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask

ROUNDING = 1e-13  # error of a proximal operator, relative to its argument
ZERO = 1e-9  # what is smaller, relative to the largest of its kind, is zero: solvers leave such remnants


@dataclass(frozen=True, eq=False)
class Tangent(ABC):
    """The smooth piece of a penalty through a point: free directions B, gradient and curvature C there.

    Attributes
    ----------
    support : bool array of the shape of the coefficients
        Coordinates that move along some free direction.
    gradient : array of the shape of the coefficients
        Gradient of the penalty on the piece: its inner products with the free directions are what counts.
    hessian : array
        Curvature C of the penalty on the piece.
    """

    support: Mask
    gradient: Array
    hessian: Array

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of free directions, over all outputs."""

    @abstractmethod
    def curve(self, change: Array) -> Array:
        """B C Bᵀ times changes of the coefficients, (p, …) or (p, c, …): what they add to the gradient."""

    @property
    def is_curved(self) -> bool:
        """Whether the penalty bends anywhere on the piece."""
        return bool(np.any(self.hessian))

    @abstractmethod
    def with_ridge(self, l2: Array, coef: Array) -> Self:
        """Return the tangent of the penalty plus ½ Σ l2_j β_j²; ``coef`` is the point of tangency."""

    def shrunk(self, factor: float) -> Self:
        """Return the tangent of ``factor`` times the penalty."""
        return replace(self, gradient=self.gradient * factor, hessian=self.hessian * factor)


@dataclass(frozen=True, eq=False)
class Coordinates(Tangent):
    """Free directions that are coordinates; C is diagonal.

    Attributes
    ----------
    support : bool array of the shape of the coefficients
        Coordinates that are free to move; the columns of B are their unit vectors.
    gradient, hessian : arrays of the shape of the coefficients
        Gradient, and diagonal of C; zero off the support.
    """

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.support))

    def curve(self, change: Array) -> Array:
        return self.hessian.reshape(*self.hessian.shape, *(1,) * (change.ndim - self.hessian.ndim)) * change

    def with_ridge(self, l2: Array, coef: Array) -> Self:
        l2 = np.where(self.support, l2, 0.0)
        return replace(self, gradient=self.gradient + l2 * coef, hessian=self.hessian + l2)


@dataclass(frozen=True, eq=False)
class Subspace(Tangent):
    """Free directions in any position, for a single output.

    Attributes
    ----------
    support : (p,) bool array
    gradient : (p,) array
    hessian : (k, k) array
        C in the coordinates of the basis.
    basis : (p, k) array or sparse array
        Orthonormal columns.
    """

    basis: Any

    @classmethod
    def along(cls, basis: Any, gradient: Array, hessian: Array | None = None) -> Subspace:
        """Return the piece along some orthonormal columns, flat where no curvature is given."""
        held = abs(basis).sum(axis=1) if _linalg.is_sparse(basis) else np.abs(basis).sum(axis=1)
        k = basis.shape[1]
        return cls(np.ravel(held) > 0, gradient, np.zeros((k, k)) if hessian is None else hessian, basis)

    @property
    def size(self) -> int:
        return int(self.basis.shape[1])

    def curve(self, change: Array) -> Array:
        if not self.is_curved:
            return np.zeros_like(change)
        inner = _linalg.transposed_times(self.basis, change)
        return _linalg.times(self.basis, np.tensordot(self.hessian, inner, 1))

    def with_ridge(self, l2: Array, coef: Array) -> Self:
        if np.ptp(l2) == 0:  # the basis is orthonormal
            curved = l2[0] * np.eye(self.size)
        elif _linalg.is_sparse(self.basis):
            curved = (self.basis.T @ self.basis.multiply(l2[:, None])).toarray()
        else:
            curved = _linalg.product(self.basis.T, self.basis * l2[:, None])
        return replace(self, gradient=self.gradient + l2 * coef, hessian=self.hessian + curved)

    @cached_property
    def components(self) -> Array:
        """Bᵀ ∇P, the gradient along the free directions: (k,)."""
        return _linalg.transposed_times(self.basis, self.gradient)


class Penalty(ABC):
    """A convex function of the coefficients; the intercept is never penalised.

    Concrete penalties are frozen dataclasses whose fields are kept as they were given.  ``get_params`` and
    ``set_params`` follow scikit-learn, so that ``clone`` and ``penalty__alpha`` work.
    """

    @property
    def polyhedral(self) -> bool:
        """Whether it is piecewise linear, but for an ℓ2 part."""
        return False

    @property
    def coordinatewise(self) -> bool:
        """Whether it is a sum over coefficients; the step of ``prox`` may then be one a coefficient."""
        return False

    @property
    def bends_with_subgradient(self) -> bool:
        """Whether its curvature depends on the subgradient, which is minus the gradient of the loss."""
        return False

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
            Gradient of the loss there, for penalties whose curvature depends on the subgradient
            (``bends_with_subgradient``); without it the coupling is left out.
        """

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """``factor`` times this penalty."""

    @abstractmethod
    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        """Whether it has kinks, which make an active pattern, on coefficients of this shape."""

    @abstractmethod
    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        """Whether some direction has no penalty at all, so that a few rows may leave it undetermined."""

    def ridge(self, shape: tuple[int, ...]) -> Array:
        """Strengths of its ℓ2 part, ½ Σ l2_j β_j²: of this shape."""
        return np.zeros(shape)

    def without_ridge(self) -> Penalty:
        """Return the penalty without its ℓ2 part."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:  # noqa: B027 (most fit any shape)
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
        size : (r,) array, optional
            Size of gradients: by default the largest of ``loss_gradient``, which is rounding where nothing is
            penalised.

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
        from onefit.penalties.sum import add

        return add(self, other) if isinstance(other, Penalty) else NotImplemented

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, those of a nested penalty as ``name__parameter``."""
        own = {name: getattr(self, name) for name in _names(self)}
        nested = {
            f"{name}__{key}": value
            for name, part in own.items()
            if deep and isinstance(part, Penalty)
            for key, value in part.get_params().items()
        }
        return own | nested

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place, as scikit-learn's ``set_params`` does.

        Raises
        ------
        ValueError
            An unknown name, or a value that the constructor refuses.
        """
        own, nested = dict[str, Any](), dict[str, dict[str, Any]]()
        for name, value in params.items():
            field, _, key = name.partition("__")
            if field not in _names(self) or (key and not isinstance(getattr(self, field), Penalty)):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {_names(self)}")
            if key:
                nested.setdefault(field, {})[key] = value
            else:
                own[field] = value
        changed: Any = replace(self, **own)  # type: ignore[type-var]
        for field, values in nested.items():
            getattr(changed, field).set_params(**values)
        for name in [name for name in vars(self) if name not in _names(self)]:
            del self.__dict__[name]  # what was computed from the old parameters
        self.__dict__.update({name: getattr(changed, name) for name in _names(self)})
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.get_params(deep=False)


def largest_gradient(loss_gradient: Array, size: Array | None) -> Array:
    """Size of r gradients, as ``is_stationary`` takes it: (r,)."""
    return np.abs(loss_gradient).max(axis=0, initial=0.0) if size is None else size


def _names(penalty: Any) -> list[str]:
    return [field.name for field in fields(penalty)]

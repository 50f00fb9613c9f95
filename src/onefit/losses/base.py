"""What every loss says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

from onefit._typing import Array


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
    def self_concordance(self) -> float | None:
        """R with |ℓ‴| ≤ R ℓ″ on every smooth piece, 0 where ℓ″ is constant there; None if there is none.

        For a coupled loss |D³ℓ[u, v, v]| ≤ R (max u − min u) D²ℓ[v, v].  With it a left-out solution has a
        bound (Bach 2010; Sun and Tran-Dinh 2019); without it none is claimed.
        """

    @abstractmethod
    def start(self, y: Array, weights: Array) -> Array:
        """Linear predictor of a constant model to start a solver from: a number, or (c,)."""

    def __sklearn_clone__(self) -> Self:
        return deepcopy(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in parameter_names(self)}

    def set_params(self, **params: Any) -> Self:
        """Change parameters in place, as scikit-learn's ``set_params`` does.

        Raises
        ------
        ValueError
            An unknown name, or a value that the constructor refuses.
        """
        for name in params:
            if name not in parameter_names(self):
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}: it has {parameter_names(self)}"
                )
        changed: Any = replace(self, **params)  # type: ignore[type-var]
        self.__dict__.clear()
        self.__dict__.update(vars(changed))
        return self


def parameter_names(loss: Any) -> list[str]:
    """Names of the fields that a loss was made with."""
    return [field.name for field in fields(loss)] if is_dataclass(loss) else []

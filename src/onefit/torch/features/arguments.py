"""Arguments of a module class as parameters of an estimator, ``module__hidden=32``, as skorch has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sklearn.base import BaseEstimator
from torch import nn

PREFIX = "module__"


class HasModuleArguments(BaseEstimator):
    """Estimators with parameters ``module__*``: they are set, read, cloned and searched like the others."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, those of the module class among them."""
        given = {name: value for name, value in vars(self).items() if name.startswith(PREFIX)}
        own: dict[str, Any] = super().get_params(deep)
        return own | given

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the module class among them."""
        self._take_arguments({name: value for name, value in params.items() if name.startswith(PREFIX)})
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(PREFIX)})
        return self

    def _take_arguments(self, given: Mapping[str, Any]) -> None:
        """Keep arguments of the module class.

        Raises
        ------
        TypeError
            For names that are no parameter.
        """
        for name, value in given.items():
            if not name.startswith(PREFIX) or name == PREFIX:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
            setattr(self, name, value)

    def _made(self, module: Any, p: int) -> nn.Module:
        """A module from its class and arguments, or from a function of the number of features.

        Raises
        ------
        TypeError
            If the class does not take the arguments.
        """
        given = {
            name.removeprefix(PREFIX): value for name, value in vars(self).items() if name.startswith(PREFIX)
        }
        is_class = isinstance(module, type)
        try:
            made: nn.Module = module(**given) if is_class else module(p, **given)
        except TypeError as error:
            how = f"{PREFIX}* are its arguments" if is_class else "it is called with the number of features"
            raise TypeError(f"module could not be made ({how}): {error}") from error
        return made

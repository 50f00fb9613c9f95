"""Parameters of losses and penalties by name, as scikit-learn reads and sets them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Self


class Parametrised:
    """A frozen dataclass whose fields, and those of parts of its kind, are read and changed by name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, those of a nested part as ``name__parameter``."""
        own = {name: getattr(self, name) for name in _names(self)}
        nested = {
            f"{name}__{key}": value
            for name, part in own.items()
            if deep and isinstance(part, Parametrised)
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
            if field not in _names(self) or (key and not isinstance(getattr(self, field), Parametrised)):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {_names(self)}")
            if key:
                nested.setdefault(field, {})[key] = value
            else:
                own[field] = value
        changed: Any = replace(self, **own)  # type: ignore[type-var]
        for field, values in nested.items():
            getattr(changed, field).set_params(**values)
        self.__dict__.clear()  # with what was computed from the old parameters
        self.__dict__.update(vars(changed))
        return self


def _names(part: Any) -> list[str]:
    return [field.name for field in fields(part)] if is_dataclass(part) else []

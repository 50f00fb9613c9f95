"""Whether a module, a function or some data is what it was when something was kept of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SETTINGS = (bool, float, str, tuple)  # attributes that tell what a module does: whole numbers may be counters


def digest_of(*things: Any) -> str:
    """64 digits, the same in another process for the same modules, functions, arrays and settings.

    Of a module they tell the architecture as it is printed, the code of each part, its settings and all
    weights; of a function its code, and what it holds of its own.  What code takes from where it is written
    is not looked at.
    """
    digest, seen = hashlib.sha256(), dict[int, Any]()
    for part in _parts(things, seen):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(thing: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    """What an object is made of, as bytes; what was ``seen`` before, by its identity, is passed over."""
    yield type(thing).__qualname__.encode()
    if isinstance(thing, Tensor | np.ndarray):
        values = thing.detach().cpu().numpy() if isinstance(thing, Tensor) else thing
        yield f"{values.dtype} {values.shape}".encode()
        yield np.ascontiguousarray(values).tobytes()
    elif isinstance(thing, tuple | list):
        for value in thing:
            yield from _parts(value, seen)
    elif id(thing) not in seen:
        held = _held(thing)
        if held is None:
            yield ADDRESS.sub("", repr(thing)).encode()
        else:
            seen[id(thing)] = thing
            yield from _parts(held, seen)


def _held(thing: Any) -> tuple[Any, ...] | None:
    """What an object consists of; None where its text says that."""
    if isinstance(thing, Mapping):
        return tuple(thing.items())
    if isinstance(thing, set | frozenset):  # in an order that does not depend on the process
        return tuple(sorted(digest_of(one) for one in thing))
    if isinstance(thing, nn.Module):
        return repr(thing), dict(thing.state_dict()), [_settings(part) for part in thing.modules()]
    if isinstance(thing, CodeType):
        return thing.co_code, thing.co_names, thing.co_consts
    if isinstance(thing, FunctionType | MethodType | partial):
        return _of_function(thing)
    return None if isinstance(thing, type) or not hasattr(thing, "__dict__") else (vars(thing),)


def _of_function(thing: Any) -> tuple[Any, ...]:
    """Code of a function, and what it holds."""
    if isinstance(thing, partial):
        return thing.func, thing.args, thing.keywords
    if isinstance(thing, MethodType):
        return thing.__func__, thing.__self__
    cells = [cell.cell_contents for cell in thing.__closure__ or ()]
    return thing.__qualname__, thing.__code__, thing.__defaults__, cells


def _settings(module: nn.Module) -> tuple[Any, ...]:
    """Attributes of a part of a module that are no weights, and its code."""
    own = {name: value for name, value in vars(module).items() if type(value) in SETTINGS}
    own.pop("training", None)
    return own, getattr(type(module).forward, "__code__", None)

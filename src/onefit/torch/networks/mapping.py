"""Functions of one row, mapped over rows: by ``vmap`` where every operation has a rule, else by a loop.

Their derivatives are by reverse mode, which every operation has.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map

REFUSALS = (RuntimeError, NotImplementedError, ValueError, UserWarning)  # of vmap
ONCE = (NotImplementedError, RuntimeError)  # of operations without a second derivative


def mapped(f: Callable[..., Tensor], trees: tuple[Any, ...], chunk: int | None = None) -> Tensor:
    """Apply a function to every row of some trees of tensors and stack what it returns.

    The warning that an operation has no batching rule counts as a refusal: its fallback is a loop too, one
    operation at a time.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return vmap(f, chunk_size=chunk)(*trees)
    except REFUSALS:
        return looped(f, trees)


def looped(f: Callable[..., Tensor], trees: tuple[Any, ...]) -> Tensor:
    """Apply a function to every row, one after the other."""
    n = len(tree_flatten(trees)[0][0])
    return torch.stack([f(*(tree_map(lambda leaf, i=i: leaf[i], tree) for tree in trees)) for i in range(n)])


def jacobian_of(f: Callable[[Tensor], Tensor], theta: Tensor, maps: bool) -> Tensor:
    """Derivatives of a vector in another: (c, k)."""
    if maps:
        return jacrev(f)(theta)
    at = theta.detach().requires_grad_()
    outputs = f(at)
    return torch.stack([derivative(output, at) for output in outputs])


def derivative(value: Tensor, variable: Tensor) -> Tensor:
    """Derivative that is zero where nothing depends on the variable."""
    if not value.requires_grad:
        return torch.zeros_like(variable)
    (found,) = torch.autograd.grad(
        value, variable, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return found


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Attention and recurrent layers by operations that can be differentiated twice, in any precision."""
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        yield

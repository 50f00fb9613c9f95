"""What a row leaves behind in the layers of a network: its Jacobian, factored.

For a layer s = W a, applied at one or more positions t (once in a perceptron, at every patch in a
convolution), the Jacobian of the outputs of a row in W is Σ_t g_t ⊗ a_t, with g_t the derivative of the
outputs in s_t.  The bias is the weight of an input that is always 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn.functional import pad, unfold
from torch.utils._pytree import tree_map

from onefit.exceptions import UnsupportedModelError
from onefit.torch.networks.data import Tree, called, taken

Parts: TypeAlias = dict[str, Tensor]  # of parameters, by name
Calls: TypeAlias = dict[str, list[Tensor]]  # inputs or outputs of a layer, one for each time it is called

SMALL = 2000  # parameters up to which a module of no known kind has a matrix of its own
SAME = 1e-6  # relative accuracy to which factors have to give the Jacobian


# --- layers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layer(ABC):
    """A module that applies one matrix, or one for each group of channels, at its positions.

    Attributes
    ----------
    name : str
    module : nn.Module
    weight, bias : str or None
        Names of its trainable parameters.

    Notes
    -----
    In shapes: b rows, c outputs, T positions, g groups, q outputs and p inputs of the matrix of a group, the
    1 of the bias among them.
    """

    name: str
    module: Any
    weight: str | None
    bias: str | None

    @property
    def groups(self) -> int:
        return 1

    @abstractmethod
    def patches(self, seen: Tensor) -> Tensor:
        """What the matrix is applied to, from what the module was given: (b, …) to (b, T, g, p)."""

    @abstractmethod
    def slopes(self, seen: Tensor) -> Tensor:
        """Derivatives in what it returned, by position: (b, c, …) to (b, c, T, g, q)."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the trainable ones."""
        return tuple(name for name in (self.weight, self.bias) if name is not None)

    def inputs(self, seen: Tensor) -> Tensor:
        """Coordinates of the trainable columns at each position: (b, T, g, p)."""
        patches = self.patches(seen)
        ones = torch.ones_like(patches[..., :1])
        held = [patches] * (self.weight is not None) + [ones] * (self.bias is not None)
        return torch.cat(held, -1)

    def joined(self, parts: Parts) -> Tensor:
        """Weights and bias as matrices: (g, q, p)."""
        columns = []
        if self.weight is not None:
            weight = parts[self.weight]
            columns.append(weight.reshape(self.groups, len(weight) // self.groups, -1))
        if self.bias is not None:
            columns.append(parts[self.bias].reshape(self.groups, -1, 1))
        return torch.cat(columns, -1)

    def parted(self, matrices: Tensor) -> Parts:
        """The inverse of ``joined``, of several: (b, g, q, p) to (b, number of parameters) by name."""
        parts = {}
        if self.bias is not None:
            parts[self.bias] = matrices[..., -1].flatten(1)
            matrices = matrices[..., :-1]
        if self.weight is not None:
            parts[self.weight] = matrices.flatten(1)
        return parts


class Perceptrons(Layer):
    """``nn.Linear``, of vectors or of sequences of them."""

    def patches(self, seen: Tensor) -> Tensor:
        return seen.reshape(len(seen), -1, 1, seen.shape[-1])

    def slopes(self, seen: Tensor) -> Tensor:
        return seen.reshape(*seen.shape[:2], -1, 1, seen.shape[-1])


class Convolution(Layer):
    """``nn.Conv2d``: a linear layer at each patch (Grosse & Martens 2016, section 3)."""

    @property
    def groups(self) -> int:
        return int(self.module.groups)

    def patches(self, seen: Tensor) -> Tensor:
        conv = self.module
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        images = pad(seen.reshape(-1, *seen.shape[-3:]), conv._reversed_padding_repeated_twice, mode=mode)
        found = unfold(images, conv.kernel_size, dilation=conv.dilation, stride=conv.stride)
        by_group = found.reshape(len(seen), -1, self.groups, found.shape[1] // self.groups, found.shape[2])
        return by_group.permute(0, 1, 4, 2, 3).flatten(1, 2)

    def slopes(self, seen: Tensor) -> Tensor:
        b, c = seen.shape[:2]
        channels, height, width = seen.shape[-3:]
        by_group = seen.reshape(b, c, -1, self.groups, channels // self.groups, height * width)
        return by_group.permute(0, 1, 2, 5, 3, 4).flatten(2, 3)


KINDS: dict[type, type[Layer]] = {nn.Linear: Perceptrons, nn.Conv2d: Convolution}


def flat_rows(outputs: Tensor) -> Tensor:
    """Outputs of rows, flat: (n, c)."""
    return outputs.flatten(1)


# --- traces --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Traces:
    """What some rows left behind.

    Attributes
    ----------
    inputs : dict of (b, T, g, p) tensors
        By layer.
    slopes : dict of (b, c, T, g, q) tensors
        Likewise.
    jacobians : dict of (b, c, m) tensors
        By parameter, of those that belong to no layer.
    """

    inputs: Parts
    slopes: Parts
    jacobians: Parts

    def jacobian(self, layer: Layer) -> Parts:
        """The Jacobian that the factors stand for, by parameter: (b, c, m)."""
        whole = torch.einsum("bctgq,btgp->bcgqp", self.slopes[layer.name], self.inputs[layer.name])
        parts = layer.parted(whole.flatten(0, 1))
        return {name: part.reshape(*whole.shape[:2], -1) for name, part in parts.items()}


@dataclass(frozen=True, eq=False)
class Tracer:
    """Runs rows through a module, one at a time as far as it knows, and keeps what they leave in its layers.

    Attributes
    ----------
    module : nn.Module
    parts : dict of tensors
        All trainable parameters.
    layers : tuple of Layer
    flatten : callable
        From what the module returns to (n, c).
    """

    module: nn.Module
    parts: Parts
    layers: tuple[Layer, ...]
    flatten: Callable[[Any], Tensor]

    @classmethod
    def of(
        cls, module: nn.Module, parts: Parts, X: Tree, flatten: Callable[[Any], Tensor] = flat_rows
    ) -> Tracer:
        """Find the layers whose factors give their Jacobian, as they do in the first rows."""
        known = (_layer(name, part, parts) for name, part in module.named_modules())
        every = cls(module, parts, tuple(layer for layer in known if layer is not None), flatten)
        reached = every._probes(taken(X, 0))
        every = replace(every, layers=tuple(layer for layer in every.layers if layer.name in reached))
        traces = every.trace(taken(X, slice(2)), parts)
        sound = (layer for layer in every.layers if _explains(layer, traces))
        return replace(every, layers=tuple(sound))

    @cached_property
    def others(self) -> dict[str, tuple[str, ...]]:
        """Parameters that belong to no layer, by module.

        Raises
        ------
        UnsupportedModelError
            If a module has too many of them for a matrix.
        """
        held = {name for layer in self.layers for name in layer.parameters}
        grouped: dict[str, list[str]] = {}
        for name in self.parts:
            if name not in held:
                grouped.setdefault(name.rpartition(".")[0], []).append(name)
        modules = dict(self.module.named_modules())
        for owner, names in grouped.items():
            size = sum(self.parts[name].numel() for name in names)
            if size > SMALL:
                raise UnsupportedModelError(_no_factors(owner, modules[owner], size))
        return {owner: tuple(names) for owner, names in grouped.items()}

    def trace(self, X: Tree, others: Mapping[str, Tensor] | None = None) -> Traces:
        """Trace some rows; ``others`` are the parameters whose Jacobian is taken as a whole."""
        if others is None:
            others = {name: self.parts[name] for names in self.others.values() for name in names}
        probes = self._probes(taken(X, 0))

        def outputs(probes: Calls, others: Parts, x: Tree) -> tuple[Tensor, Calls]:
            result, seen, _ = self._run(x, probes, others)
            return result, seen

        differentiate = jacrev(outputs, argnums=(0, 1), has_aux=True)
        (slopes, whole), seen = vmap(differentiate, in_dims=(None, None, 0))(probes, dict(others), X)
        return Traces(
            {la.name: torch.cat([la.inputs(part) for part in seen[la.name]], 1) for la in self.layers},
            {la.name: torch.cat([la.slopes(part) for part in slopes[la.name]], 2) for la in self.layers},
            {name: part.flatten(2) for name, part in whole.items()},
        )

    def numbers(self, X: Tree) -> int:
        """How many numbers the trace of one row holds, for each output: a bound."""
        traces = self.trace(taken(X, slice(1)))
        every = (*traces.inputs.values(), *traces.slopes.values(), *traces.jacobians.values())
        return sum(part.numel() for part in every)

    def _probes(self, x: Tree) -> Calls:
        """Zeros that can be added to what the layers return, in which to differentiate."""
        with torch.no_grad():
            _, _, returned = self._run(x, {}, {})
        return {name: [torch.zeros_like(part) for part in calls] for name, calls in returned.items()}

    def _run(self, x: Tree, probes: Calls, others: Parts) -> tuple[Tensor, Calls, Calls]:
        """Outputs of one row, what each layer was given, and what it returned."""
        seen: Calls = {}
        returned: Calls = {}

        def watch(name: str, module: nn.Module) -> Any:
            def hook(_: nn.Module, args: Any, given: Any, result: Tensor) -> Tensor:
                seen.setdefault(name, []).append(args[0] if args else given["input"])
                returned.setdefault(name, []).append(result)
                return result + probes[name][len(returned[name]) - 1] if name in probes else result

            return module.register_forward_hook(hook, with_kwargs=True)

        handles = [watch(layer.name, layer.module) for layer in self.layers]
        try:
            outputs = called(self.module, self.parts | others, tree_map(lambda leaf: leaf[None], x))
        finally:
            for handle in handles:
                handle.remove()
        return self.flatten(outputs)[0], seen, returned


def _layer(name: str, module: nn.Module, parts: Parts) -> Layer | None:
    """A layer if the module is exactly of a known kind, and has trainable parameters of its own."""
    kind = KINDS.get(type(module))
    own = {short: f"{name}.{short}" if name else short for short, _ in module.named_parameters(recurse=False)}
    trained = {short: full for short, full in own.items() if full in parts}
    if kind is None or not trained or not set(trained) <= {"weight", "bias"}:
        return None
    return kind(name, module, trained.get("weight"), trained.get("bias"))


def _explains(layer: Layer, traces: Traces) -> bool:
    """Whether the factors give the Jacobian: not where a weight is also used outside its module."""
    for name, found in traces.jacobian(layer).items():
        expected = traces.jacobians[name]
        if float((found - expected).abs().max()) > SAME * float(expected.abs().max()):
            return False
    return True


def _no_factors(name: str, module: nn.Module, size: int) -> str:
    return (
        f"the curvature of {name or 'the module itself'!r} ({type(module).__name__}, {size} parameters) has "
        "no Kronecker factors, which nn.Linear and nn.Conv2d have where their weights are not shared, and it "
        f"is too large for a matrix of its own ({SMALL} parameters at most): freeze it "
        "(requires_grad_(False)), or take curvature='gauss_newton', with fewer rows if need be, or "
        "curvature='last_layer'"
    )

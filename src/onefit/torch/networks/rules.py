"""How the weights of a network move when rows leave: which parameters, with which curvature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from onefit.exceptions import SolverError, UnsupportedModelError
from onefit.torch.functional.left_out import Sets, Steps
from onefit.torch.networks.data import called
from onefit.torch.networks.gauss_newton import EQUAL, curved_derivatives, matrix_of, n_bytes, without_sets
from onefit.torch.networks.kronecker import KroneckerCurvature
from onefit.torch.networks.network import Network
from onefit.torch.numerics.objective import BUDGET, PenalisedSum

Kind: TypeAlias = Literal["auto", "gauss_newton", "kronecker", "last_layer"]
AUTO = "auto"
ROOM = 2**31  # bytes that a curvature may take


class Moved(NamedTuple):
    """Steps of the weights without some sets of rows.

    Attributes
    ----------
    sets : (b, q) int tensor
    steps : (b, k) tensor
    leverages : (b,) tensor
    """

    sets: Tensor
    steps: Tensor
    leverages: Tensor


class Rule(ABC):
    """Steps of the weights of a network."""

    name: str

    def __init__(self, network: Network) -> None:
        self.network = network

    @abstractmethod
    def moved(self, sets: Tensor) -> Iterator[Moved]:
        """Steps without each of some sets of as many rows, a few at a time: (s, q)."""

    def left_out(self) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, leverages and outputs of each row without itself: (n,), (n,), (n, c)."""
        network = self.network
        rows = torch.arange(len(network.rows), device=network.theta.device)
        parts = []
        for part in self.moved(rows[:, None]):
            own = part.sets[:, 0]
            outputs = network.outputs_at(network.theta + part.steps, own)
            parts.append((network.values_of(outputs, own), part.leverages, outputs))
        losses, leverages, decision = (torch.cat(part) for part in zip(*parts, strict=True))
        return losses, leverages, decision


class GaussNewton(Rule):
    """All parameters move, with the Gauss–Newton matrix."""

    name = "all layers, Gauss-Newton curvature"

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        if not fits(network):
            raise ValueError(f"{_demand(network)}: take curvature='kronecker' or 'last_layer', or fewer rows")
        self.leaving = float(network.leaving_share)
        self.matrix = matrix_of(network, self.leaving)

    def moved(self, sets: Tensor) -> Iterator[Moved]:
        n, r, k = self.matrix.J.shape
        size = max(1, BUDGET // (max(k, n) * (sets.shape[1] * r + 3)))
        shares = self.network.leaving(sets.flatten()).reshape(sets.shape).sum(1)
        matrix, leaving = self.matrix, self.leaving
        if sets.shape[1] > 1 and abs(float(shares.mean()) - leaving) > EQUAL * self.network.total:
            leaving = float(shares.mean())  # with many rows much of the decay leaves, too
            matrix = matrix.with_ridge(self.network.decay * (self.network.total - leaving))
        stays = self.network.total - leaving
        for few, own in zip(torch.split(sets, size), torch.split(shares, size), strict=True):
            yield Moved(few, *without_sets(matrix, few, own, (own - leaving) / stays))


class Kronecker(Rule):
    """All parameters move, with the Kronecker factors of the Gauss–Newton matrix, layer by layer."""

    name = "all layers, Kronecker-factored curvature"

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        if not network.maps:
            raise UnsupportedModelError(
                "Kronecker factors need a module that torch.func.vmap can map over rows: take "
                "curvature='gauss_newton', with fewer rows if need be, or curvature='last_layer'"
            )
        ridge = network.decay * (network.total - float(network.leaving_share))
        slopes, bends = curved_derivatives(network)
        self.curvature = KroneckerCurvature.of(
            network.module,
            network.parts(network.theta),
            network.rows.inputs,
            network.shares[:, None] * slopes,
            network.shares[:, None, None] * bends,
            network.parts(ridge),
            network.parts(float(network.leaving_share) * network.decay * network.theta),
            flatten=network.layout.flat,
        )

    def moved(self, sets: Tensor) -> Iterator[Moved]:
        if sets.shape[1] != 1:
            raise UnsupportedModelError(
                "Kronecker factors leave out one row at a time: take curvature='gauss_newton' or 'last_layer'"
            )
        for few in torch.split(sets, self.curvature.size):
            yield Moved(few, *self.curvature.left_out(few[:, 0]))


class LastLayer(Rule):
    """The last layer moves, with its exact Hessian."""

    name = "the last layer, exact curvature"

    def moved(self, sets: Tensor) -> Iterator[Moved]:
        network, last = self.network, last_layer(self.network)
        weights = network.shares[sets]
        leaving = Sets(sets, weights, sets, weights / network.shares.sum())
        steps = Steps(self._objective(last), network.theta[last], leaving)
        try:
            moves, leverages, _ = steps.left_out(steps.gradients())
        except SolverError as error:
            raise SolverError(f"{error}; here that may be weight decay") from error
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            raise UnsupportedModelError(
                "the Hessian of the last layer needs a loss that torch.func.vmap can map over rows, "
                f"{error}: take curvature='gauss_newton'"
            ) from error
        for few in torch.split(
            torch.arange(len(sets), device=last.device), max(1, BUDGET // len(network.theta))
        ):
            whole = network.theta.new_zeros((len(few), len(network.theta)))
            whole[:, last] = moves[few]
            yield Moved(sets[few], whole, leverages[few])

    def _objective(self, last: Tensor) -> PenalisedSum:
        """The objective of the parameters of the last layer, those below held fixed."""
        network = self.network
        if not network.maps:
            raise UnsupportedModelError(
                "the Hessian of the last layer needs a module that torch.func.vmap can map over rows: take "
                "curvature='gauss_newton'"
            )
        numbers = torch.arange(len(network.rows), device=last.device)
        first, decay = int(last[0]), network.decay[last]

        def ridge(own: Tensor) -> Tensor:
            return (decay * own**2).sum() / 2

        def loss(own: Tensor, row: Tensor, _: Tensor) -> Tensor:
            few = network.rows.take(row[None])
            outputs = network.layout.flat(called(network.module, _with_last(network, own, first), few.inputs))
            others = network.outputs(network.theta, few)  # for what the loss does not depend on
            value = network.losses.values(network.layout.tree(outputs, others), few.target)[0]
            return value + ridge(own) if network.mean else value  # each row brings its share of the decay

        penalties = () if network.mean else (ridge,)
        ones = torch.ones_like(network.shares[: len(penalties)])
        return PenalisedSum(loss, penalties, numbers, numbers, network.shares, ones)


def _with_last(network: Network, own: Tensor, first: int) -> dict[str, Tensor]:
    """The parameters by name, some from ``first`` on replaced: no others are differentiated."""
    parts, begin = network.parts(network.theta), -first
    for name, shape in network.shapes.items():
        if 0 <= begin < len(own):
            parts[name] = own[begin : begin + shape.numel()].reshape(shape)
        begin += shape.numel()
    return parts


def last_layer(network: Network) -> Tensor:
    """Which coordinates belong to the module with parameters that is called last: a contiguous range.

    Raises
    ------
    UnsupportedModelError
        If it shares its weights with another module, so that its features move with them.
    """
    order = _order_of_calls(network)
    last = order[-1]
    own = {id(part) for part in last.parameters(recurse=False) if part.requires_grad}
    each = network.module.named_parameters(remove_duplicate=False)
    uses = [name for name, part in each if id(part) in own]
    users = [network.module.get_submodule(name.rpartition(".")[0]) for name in uses]
    if order.count(last) > 1 or any(user is not last for user in users):
        raise UnsupportedModelError(
            f"the last layer shares its weights with what is below it ({', '.join(uses)}): take "
            "curvature='gauss_newton' or 'kronecker'"
        )
    chosen = np.repeat(
        [name in uses for name in network.shapes], [s.numel() for s in network.shapes.values()]
    )
    return torch.as_tensor(np.flatnonzero(chosen), device=network.theta.device)


def _order_of_calls(network: Network) -> list[nn.Module]:
    """Modules with parameters of their own that are trained, as often and in the order as they are called."""
    order: list[nn.Module] = []
    trained = [
        module
        for module in network.module.modules()
        if any(part.requires_grad for part in module.parameters(recurse=False))
    ]
    hooks = [module.register_forward_pre_hook(lambda one, _: order.append(one)) for module in trained]
    first_two = torch.arange(min(2, len(network.rows)), device=network.theta.device)
    try:
        with torch.no_grad():
            called(network.module, network.parts(network.theta), network.rows.take(first_two).inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return order


RULES: dict[str, type[Rule]] = {
    "gauss_newton": GaussNewton,
    "kronecker": Kronecker,
    "last_layer": LastLayer,
}


def rule_for(curvature: str, network: Network) -> tuple[Rule, tuple[str, ...]]:
    """The rule of a name, and a note where the size of the network decided."""
    if curvature != AUTO:
        return RULES[curvature](network), ()
    if fits(network):
        return GaussNewton(network), ()
    return Kronecker(network), (f"Kronecker factors were taken: {_demand(network)}",)


def fits(network: Network) -> bool:
    """Whether there is room for the Gauss–Newton matrix."""
    return _bytes(network) <= ROOM


def _bytes(network: Network) -> int:
    return n_bytes(len(network.rows), sum(network.layout.sizes), len(network.theta))


def _demand(network: Network) -> str:
    outputs, k = len(network.rows) * sum(network.layout.sizes), len(network.theta)
    room = _bytes(network) / 2**30
    return f"the Gauss-Newton matrix of {outputs} outputs in {k} parameters would take {room:.1f} GB"

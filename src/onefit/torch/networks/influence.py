"""What training rows are worth: how the losses of other rows change when they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from onefit._typing import Array, Index
from onefit.risk.judging import shown
from onefit.torch.networks.data import read_rows
from onefit.torch.networks.decay import Decay
from onefit.torch.networks.mapping import plain_kernels
from onefit.torch.networks.network import Network
from onefit.torch.networks.rules import AUTO, RULES, Kind, Rule, rule_for
from onefit.torch.networks.training import UNFINISHED, missing
from onefit.torch.numerics.devices import as_device, on_host
from onefit.torch.numerics.objective import BUDGET
from onefit.validation import check_choice


class Removed(NamedTuple):
    """A network without a group of rows, by one step from all.

    Attributes
    ----------
    rows : int array
        The group.
    losses : (m,) array
        Losses of the test rows.
    change : float
        Of their mean: positive where the group helps.
    module : nn.Module
        With the weights after the step, in float64.
    """

    rows: Index
    losses: Array
    change: float
    module: nn.Module


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence of training rows on test rows.

    Attributes
    ----------
    values : (m, n) array
        By how much the loss of each test row grows when each training row leaves, to first order in the step
        of the weights: positive where the training row helps.
    mean : (n,) array
        Over the test rows: what a training row is worth.  Wrong labels come lowest.
    test_losses : (m,) array
        With all rows in.
    method : str
    notes : tuple of str

    Examples
    --------
    >>> import torch
    >>> from onefit.torch import influence
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(40, 2)
    >>> y = X @ torch.tensor([[1.0], [-1.0]])
    >>> net = torch.nn.Linear(2, 1)
    >>> found = influence(net, torch.nn.MSELoss(), (X[:30], y[:30]), (X[30:], y[30:]))
    >>> found.values.shape, found.mean.shape
    ((10, 30), (30,))
    """

    values: Array
    mean: Array
    test_losses: Array
    method: str
    notes: tuple[str, ...]
    _rule: Rule = field(repr=False)
    _test: Network = field(repr=False)

    def ranking(self) -> Index:
        """Training rows, the most harmful first: (n,)."""
        return np.argsort(self.mean, kind="stable")

    def remove(self, groups: Sequence[Any]) -> tuple[Removed, ...]:
        """Take each of some groups of training rows away, by one step from the same factors.

        Parameters
        ----------
        groups : sequence of int arrays
            Row numbers; or one array of n labels, each value of which is a group.

        Returns
        -------
        tuple of Removed

        Raises
        ------
        ValueError
            If a group is not of row numbers, or has all the weight there is.
        """
        given = _as_groups(groups, len(self.mean))
        for rows in given:
            self._check_others(rows)
        return tuple(self._without(rows) for rows in given)

    def _check_others(self, rows: Index) -> None:
        """Refuse a group without which nothing is fitted; the decay of a sum is, and takes weights to 0."""
        network = self._rule.network
        others = network.shares.clone()
        others[torch.as_tensor(rows, device=others.device)] = 0.0
        if not bool(others.any()) and (network.mean or bool((network.decay == 0).any())):
            raise ValueError(
                f"without the group of rows {shown(rows)} no row with weight is left, so that nothing is "
                "left to fit: take a smaller group"
            )

    def _without(self, rows: Index) -> Removed:
        network = self._rule.network
        own = torch.as_tensor(rows, device=network.theta.device)
        with plain_kernels():
            step = next(iter(self._rule.moved(own[None]))).steps[0]
            losses = self._test.row_values(network.theta + step).cpu().numpy()
        change = float(losses.mean() - self.test_losses.mean())
        return Removed(rows, losses, change, network.as_module(network.theta + step))


def influence(
    module: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    train: Any,
    test: Any,
    *,
    weight_decay: Decay = 0.0,
    curvature: Kind = "auto",
    sample_weight: Any = None,
    device: Any = "cpu",
) -> Influence:
    """Influence of training rows on the losses of test rows, from the weights as they are.

    Parameters
    ----------
    module, loss, weight_decay, curvature, sample_weight, device
        As in ``onefit.torch.loo``.  The formula is meant for weights near a minimum of the penalised loss.
    train, test : (X, y), Dataset, list of pairs, or DataLoader
        There may be a single test row.

    Returns
    -------
    Influence

    Notes
    -----
    ∇ℓ_testᵀ(θ̃⁽ⁱ⁾ − θ̂) with the left-out step of Beirami et al. (2017), Theorem 1: Koh and Liang (2017) with
    the curvature of the other rows, which matters for rows of high leverage.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(40, 2)
    >>> y = X @ torch.tensor([[1.0], [-1.0]]) + 0.1 * torch.randn(40, 1)
    >>> y[3] = 5.0  # wrong
    >>> net = torch.nn.Linear(2, 1)
    >>> optimiser = torch.optim.LBFGS(net.parameters(), max_iter=100)
    >>> def closure():
    ...     optimiser.zero_grad()
    ...     value = torch.nn.functional.mse_loss(net(X[:30]), y[:30])
    ...     value.backward()
    ...     return value
    >>> _ = optimiser.step(closure)
    >>> found = influence(net, torch.nn.MSELoss(), (X[:30], y[:30]), (X[30:], y[30:]))
    >>> int(found.ranking()[0])
    3
    >>> without = found.remove([[3], [4, 5]])
    >>> without[0].change < 0
    True
    """
    check_choice("curvature", curvature, (AUTO, *RULES))
    place = as_device(device)
    with plain_kernels():
        network = Network.read(module, loss, read_rows(train, place), weight_decay, sample_weight)
        with _of_test_rows():
            judged = network.judging(loss, read_rows(test, place, least=1))
        network.check_twice_differentiable()
        rule, notes = rule_for(curvature, network)
        if (gradient := missing(network)) > UNFINISHED:
            notes = (*notes, f"the weights are at no minimum: their gradient is {gradient:.1g} of the rows'")
        values = _values(rule, judged)
        losses = judged.row_values(network.theta).cpu().numpy()
    return Influence(values, values.mean(0), losses, rule.name, notes, rule, judged)


@contextmanager
def _of_test_rows() -> Iterator[None]:
    """Errors say that they are about the test rows."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"of the test rows: {error}") from error


def _values(rule: Rule, test: Network) -> Array:
    """∇ℓ_testᵀ s_i of every pair: (m, n)."""
    numbers = torch.arange(len(rule.network.rows), device=test.theta.device)
    size = max(1, BUDGET // len(test.theta))
    slopes = [test.gradients(few) for few in test.rows.batches(size)]
    moved = rule.moved(numbers[:, None])
    parts = [torch.cat([slope @ part.steps.T for slope in slopes]) for part in moved]
    values: Array = torch.cat(parts, 1).cpu().numpy()
    return values


def _as_groups(groups: Any, n: int) -> list[Index]:
    """Row numbers of each group.

    Raises
    ------
    ValueError
    """
    given = [np.atleast_1d(np.asarray(on_host(rows))) for rows in groups]
    if len(given) == n and all(len(rows) == 1 for rows in given) and not isinstance(groups, list | tuple):
        labels = np.asarray(on_host(groups))
        return [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for rows in given:
        whole = np.issubdtype(rows.dtype, np.integer)
        if (
            not whole
            or not len(rows)
            or len(np.unique(rows)) != len(rows)
            or rows.min() < 0
            or rows.max() >= n
        ):
            raise ValueError(
                f"each group must be distinct row numbers from 0 to {n - 1}, got {rows.tolist()}"
            )
    return given

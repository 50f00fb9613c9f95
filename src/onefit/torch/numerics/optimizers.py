"""Minimising over the parameters of a module, and over hyperparameters in a box with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from scipy.optimize import Bounds, OptimizeResult, minimize
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from onefit._typing import Array, Index

Rows: TypeAlias = tuple[Index, Index] | None  # of the training and the validation data; all of them if None
Goal: TypeAlias = Callable[[Rows], Tensor]  # what is minimised, of all rows or of a batch, with its graph


@dataclass(frozen=True)
class Lbfgs:
    """L-BFGS-B on all rows (SciPy), in the precision of the variables.

    Attributes
    ----------
    max_iter : int
    tol : float
        Largest entry of the projected gradient at the end.
    """

    max_iter: int
    tol: float

    is_stochastic = False

    def run(
        self,
        goal: Goal,
        variables: Sequence[Tensor],
        bounded: Tensor | None,
        seed: int,
        begin: Callable[[], object],
    ) -> None:
        """Minimise in place.

        Parameters
        ----------
        goal : callable
        variables : sequence of tensors
            Leaves that require gradients.
        bounded : tensor, optional
            One more variable, whose entries are kept in [0, 1].
        seed : int
            Of the batches.
        begin : callable
            Called before each pass over the data in batches.
        """
        every = [*variables] if bounded is None else [*variables, bounded]

        def value_and_slope(flat: Array) -> tuple[float, Array]:
            vector_to_parameters(like(flat.copy(), every[0]), every)
            value = goal(None)
            slopes = torch.autograd.grad(value, every, allow_unused=True, materialize_grads=True)
            return value.item(), _flat(slopes)

        free = sum(variable.numel() for variable in variables)
        boxed = bounded.numel() if bounded is not None else 0
        bounds = np.repeat([-np.inf, 0.0], [free, boxed]), np.repeat([np.inf, 1.0], [free, boxed])
        found = lbfgs_b(value_and_slope, _flat(every), max_iter=self.max_iter, tol=self.tol, bounds=bounds)
        vector_to_parameters(like(found, every[0]), every)


@dataclass(frozen=True)
class Adam:
    """Adam on batches of rows, with a learning rate that falls to zero.

    Attributes
    ----------
    epochs : int
    batch_size : int
    learning_rate : float
    sizes : tuple of int
        Numbers of training and validation rows.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    sizes: tuple[int, int]

    is_stochastic = True

    def run(
        self,
        goal: Goal,
        variables: Sequence[Tensor],
        bounded: Tensor | None,
        seed: int,
        begin: Callable[[], object],
    ) -> None:
        """The same."""
        every = [*variables] if bounded is None else [*variables, bounded]
        adam = torch.optim.Adam(every, lr=self.learning_rate)
        rng = np.random.default_rng(seed)
        for epoch in range(self.epochs):
            begin()
            for group in adam.param_groups:
                group["lr"] = self.learning_rate * (1 - epoch / self.epochs)
            for rows in self._batches(rng):
                adam.zero_grad()
                goal(rows).backward()  # type: ignore[no-untyped-call]
                adam.step()
                if bounded is not None:
                    bounded.data.clamp_(0.0, 1.0)
        adam.zero_grad()

    @property
    def smallest(self) -> int:
        """Rows of the smallest batch."""
        return int(np.diff(self._bounds()).min())

    def _bounds(self) -> list[int]:
        """Where batches begin and end; a single row that is left goes with the batch before it."""
        n = self.sizes[0]
        ends = [*range(0, n, self.batch_size), n]
        alone = len(ends) > 2 and self.batch_size > 1 and n - ends[-2] == 1
        return [*ends[:-2], n] if alone else ends

    def _batches(self, rng: np.random.Generator) -> list[tuple[Index, Index]]:
        """All training rows in random order, and as many random validation rows beside each batch."""
        n, n_validation = self.sizes
        order = rng.permutation(n)
        cuts = [order[first:end] for first, end in pairwise(self._bounds())]
        size = min(self.batch_size, n_validation)
        return [(cut, rng.choice(n_validation, size, replace=False)) for cut in cuts]


Descent: TypeAlias = Lbfgs | Adam


def lbfgs_b(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    max_iter: int,
    tol: float = 1e-9,
    gain: float = 0.0,
    bounds: tuple[Array, Array] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Array:
    """Minimise by SciPy's L-BFGS-B: (k,).

    Parameters
    ----------
    value_and_gradient : callable
    start : (k,) array
    max_iter : int
    tol : float
        Largest entry of the projected gradient at the end.
    gain : float
        Decrease, relative to the value, below which a step is the last.
    bounds : pair of (k,) arrays, optional
    stop : callable, optional
        Asked after each step whether it is to be the last.
    """

    def ask(intermediate_result: OptimizeResult) -> None:
        if stop():
            raise StopIteration

    options = {"maxiter": max_iter, "maxfun": 3 * max_iter, "gtol": tol, "ftol": gain, "maxcor": 30}
    box = None if bounds is None else Bounds(*bounds)
    found = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=box, options=options, callback=ask
    )
    point: Array = found.x
    return point


def as_array(theta: Tensor) -> Array:
    """Copy a tensor to float64 on the host."""
    return theta.detach().cpu().numpy().astype(np.float64)


def like(values: Array, tensor: Tensor) -> Tensor:
    """Return values with the type and on the device of a tensor."""
    return torch.as_tensor(values, dtype=tensor.dtype, device=tensor.device)


def _flat(tensors: Sequence[Tensor]) -> Array:
    return as_array(torch.cat([tensor.reshape(-1) for tensor in tensors]))

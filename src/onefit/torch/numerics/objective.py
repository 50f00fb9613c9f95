"""The objective Σ_i w_i ℓ(θ; x_i, y_i) + Σ_m λ_m r_m(θ) and its derivatives, by automatic differentiation.

Every product with a second derivative is a gradient of a gradient, so that a loss needs reverse mode only,
which all of PyTorch's operations have:

    ∇²f v = ∇(∇f · v),        Gauss–Newton of Σ ℓ(f_i(θ), y_i):  Jᵀ L J v  with  L = ∇²_f ℓ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vjp, vmap

from onefit.torch.numerics.devices import on_host

RowLoss: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # of theta, x, y
Penalty: TypeAlias = Callable[[Tensor], Tensor]  # of theta
BUDGET = 2**23  # numbers that one batch of vectors may hold per copy


@dataclass(frozen=True, eq=False)
class L1Norm:
    """The ℓ1 norm, Σ_j w_j |θ_j|: the one kind of kink that a penalty may have, and has to name.

    Parameters
    ----------
    weights : sequence of float, optional
        w, at least 0, one a parameter; 0 leaves a parameter (an intercept) free.  All ones if missing.

    Notes
    -----
    Beirami et al. (2017), section 3: derivatives are taken on the support of θ, where the norm is linear,
    and the support is held fixed.

    Examples
    --------
    >>> import torch
    >>> float(L1Norm([1.0, 1.0, 0.0])(torch.tensor([1.0, -2.0, 5.0])))
    3.0
    """

    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            weights = np.asarray(on_host(self.weights), dtype=np.float64)
            if weights.ndim != 1 or not np.all(np.isfinite(weights)) or np.any(weights < 0):
                raise ValueError("weights of the l1 norm must be finite, at least 0, one a parameter")
            object.__setattr__(self, "weights", weights)  # on the host, wherever they were given

    def kinks(self, theta: Tensor) -> Tensor:
        """Slope on either side of zero in each parameter, by which a kinked penalty is known: (k,)."""
        if self.weights is None:
            return torch.ones_like(theta)
        weights = torch.as_tensor(self.weights, dtype=theta.dtype, device=theta.device)
        if weights.shape != theta.shape:
            raise ValueError(f"the l1 norm has {len(weights)} weights for {theta.numel()} parameters")
        return weights

    def __call__(self, theta: Tensor) -> Tensor:
        return (self.kinks(theta) * theta.abs()).sum()


class Smooth(ABC):
    """A function of θ that Newton's method can minimise."""

    def value(self, theta: Tensor) -> Tensor:
        """The value: ()."""
        return self.value_and_gradient(theta)[0]

    @abstractmethod
    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the gradient: (), (k,)."""

    def gradient(self, theta: Tensor) -> Tensor:
        """∇, with 0 as the derivative of |·| at 0: (k,)."""
        return self.value_and_gradient(theta)[1]

    @abstractmethod
    def gradient_size(self, theta: Tensor) -> Tensor:
        """Sum of the norms of what the gradient is a sum of, against which it is judged: ()."""

    @abstractmethod
    def product(self, theta: Tensor, v: Tensor) -> Tensor:
        """Hessian, or a curvature in its place, times v: (k,)."""

    @abstractmethod
    def curvature(self, theta: Tensor) -> Tensor:
        """The same as a matrix: (k, k)."""

    def kinks(self, theta: Tensor) -> Tensor:
        """Slope of an ℓ1 norm in each coordinate: (k,)."""
        return torch.zeros_like(theta)

    def restricted(self, theta: Tensor, free: Tensor) -> Smooth:
        """The function of some coordinates, the others held at ``theta``: of all where there are no kinks."""
        return self


@dataclass(frozen=True, eq=False)
class PredictorLoss:
    """A loss of the output of a predictor: ℓ(θ; x, y) = loss(predict(θ, x), y).

    Attributes
    ----------
    predict : callable
        Of θ (k,) and one row x: a tensor of any shape.
    loss : callable
        Of that and y: a scalar.
    """

    predict: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.predict(theta, x), y)


@dataclass(frozen=True, eq=False)
class PenalisedSum(Smooth):
    """A penalised sum of losses at given data and strengths.

    Attributes
    ----------
    loss : callable
        Loss of one row, ``loss(theta, x, y)``; a ``PredictorLoss`` if Gauss–Newton curvature is wanted.
    penalties : tuple of callables
        r_m(theta).
    X, y : tensors
        Rows along the first axis.
    weights : (n,) tensor
    strengths : (m,) tensor
        λ.
    gauss_newton : bool
        Whether products with the curvature leave out the second derivatives of the predictor.
    """

    loss: RowLoss
    penalties: tuple[Penalty, ...]
    X: Tensor
    y: Tensor
    weights: Tensor
    strengths: Tensor
    gauss_newton: bool = False

    def __len__(self) -> int:
        return len(self.weights)

    # --- values ----------------------------------------------------------------------------------------

    def losses(self, theta: Tensor) -> Tensor:
        """Loss of every row, without weights: (n,)."""
        return vmap(self.loss, in_dims=(None, 0, 0))(theta, self.X, self.y)

    def losses_at(self, points: Tensor, rows: Tensor) -> Tensor:
        """Loss of row ``rows[t]`` at ``points[t]``: (t,)."""
        size = self._chunk(points.shape[1])
        return vmap(self.loss, chunk_size=size)(points, self.X[rows], self.y[rows])

    def penalty(self, theta: Tensor, strengths: Tensor) -> Tensor:
        """Σ_m λ_m r_m(θ)."""
        terms = zip(strengths, self.penalties, strict=True)
        return sum((strength * term(theta) for strength, term in terms), theta.new_zeros(()))

    def value(self, theta: Tensor) -> Tensor:
        """The objective."""
        return self._sum(theta, self.X, self.y, self.weights) + self.penalty(theta, self.strengths)

    def _sum(self, theta: Tensor, X: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        return (weights * vmap(self.loss, in_dims=(None, 0, 0))(theta, X, y)).sum()

    # --- first derivatives -----------------------------------------------------------------------------

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        gradient, value = grad_and_value(self.value)(theta)
        return value, gradient

    def set_gradient(self, theta: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        """Σ over some rows of w ∇ℓ: (k,)."""
        return grad(self._sum)(theta, self.X[rows], self.y[rows], weights)

    def gradient_size(self, theta: Tensor) -> Tensor:
        """Σ_i w_i ‖∇ℓ_i‖ + Σ_m λ_m ‖∇r_m‖, against which the whole gradient is judged."""
        rows = torch.arange(len(self), device=theta.device)[:, None]
        few = max(1, min(self._chunk(1), BUDGET // len(theta)))  # their gradients are held at once
        size = vmap(lambda row, weight: self.set_gradient(theta, row, weight).norm(), chunk_size=few)
        terms = zip(self.strengths, self.penalties, strict=True)
        sizes = (strength * grad(term)(theta).norm() for strength, term in terms)
        return sum(sizes, size(rows, self.weights[:, None]).sum())

    def penalty_gradients(self, theta: Tensor) -> Tensor:
        """∇r_m of every penalty: (m, k)."""
        return torch.stack([grad(term)(theta) for term in self.penalties])

    def kinks(self, theta: Tensor) -> Tensor:
        """Slope of the ℓ1 norm in each coordinate, Σ λ_m w_j over such penalties: (k,)."""
        terms = zip(self.strengths, self.penalties, strict=True)
        slopes = (strength * term.kinks(theta) for strength, term in terms if hasattr(term, "kinks"))
        return sum(slopes, torch.zeros_like(theta))

    # --- products with the curvature -------------------------------------------------------------------

    def product(self, theta: Tensor, v: Tensor) -> Tensor:
        """Curvature of the objective times v: (k,)."""
        return self.product_of(theta, self.strengths, v)

    def product_of(self, theta: Tensor, strengths: Tensor, v: Tensor) -> Tensor:
        """The same for other strengths, with respect to which it may be differentiated."""
        smooth = _hessian_product(lambda t: self.penalty(t, strengths), theta, v)
        return self._sum_product(theta, self.X, self.y, self.weights, v) + smooth

    def set_product(self, theta: Tensor, rows: Tensor, weights: Tensor, v: Tensor) -> Tensor:
        """Curvature of the losses of some rows times v: (k,)."""
        return self._sum_product(theta, self.X[rows], self.y[rows], weights, v)

    def _sum_product(self, theta: Tensor, X: Tensor, y: Tensor, weights: Tensor, v: Tensor) -> Tensor:
        if not self.gauss_newton:
            return _hessian_product(lambda t: self._sum(t, X, y, weights), theta, v)
        assert isinstance(self.loss, PredictorLoss)
        predict, loss = self.loss.predict, self.loss.loss
        linearised: Any = vjp(lambda t: vmap(predict, in_dims=(None, 0))(t, X), theta)
        outputs, pull = linearised
        moved = grad(lambda u: (pull(u)[0] * v).sum())(torch.zeros_like(outputs))  # J v
        bent = _hessian_product(lambda out: (weights * vmap(loss)(out, y)).sum(), outputs, moved)
        return pull(bent)[0]

    def products(self, theta: Tensor, V: Tensor) -> Tensor:
        """Curvature of the objective times each row of V: (t, k)."""
        return vmap(self.product, in_dims=(None, 0), chunk_size=self._chunk(len(self)))(theta, V)

    def products_at(self, points: Tensor, V: Tensor) -> Tensor:
        """The same with a point of its own for each row."""
        return vmap(self.product, chunk_size=self._chunk(len(self)))(points, V)

    def curvature(self, theta: Tensor) -> Tensor:
        """The curvature as a matrix: (k, k)."""
        if len(theta) == 0:
            return theta.new_zeros((0, 0))
        dense = self.products(theta, torch.eye(len(theta), dtype=theta.dtype, device=theta.device))
        return 0.5 * (dense + dense.T)

    def _chunk(self, rows: int) -> int:
        """How many vectors go through at a time, where each touches so many rows."""
        width = max(1, self.X[:1].numel())
        return max(1, BUDGET // (rows * width))

    # --- parts -----------------------------------------------------------------------------------------

    def restricted(self, theta: Tensor, free: Tensor) -> PenalisedSum:
        """The objective of some coordinates, the others held at ``theta``."""
        if len(free) == len(theta):
            return self

        def lift(u: Tensor) -> Tensor:
            return theta.scatter(0, free, u)

        return replace(
            self,
            loss=_on(self.loss, lift),
            penalties=tuple(_penalty_on(term, lift) for term in self.penalties),
        )

    def without(self, rows: Tensor) -> PenalisedSum:
        """The objective of the other rows."""
        kept = torch.ones(len(self), dtype=torch.bool, device=self.weights.device)
        kept[rows] = False
        return replace(self, X=self.X[kept], y=self.y[kept], weights=self.weights[kept])


def _hessian_product(f: Callable[[Tensor], Tensor], theta: Tensor, v: Tensor) -> Tensor:
    return grad(lambda t: (grad(f)(t) * v).sum())(theta)


def _on(loss: RowLoss, lift: Callable[[Tensor], Tensor]) -> RowLoss:
    if isinstance(loss, PredictorLoss):
        predict = loss.predict
        return PredictorLoss(lambda u, x: predict(lift(u), x), loss.loss)
    return lambda u, x, y: loss(lift(u), x, y)


def _penalty_on(term: Penalty, lift: Callable[[Tensor], Tensor]) -> Penalty:
    return lambda u: term(lift(u))

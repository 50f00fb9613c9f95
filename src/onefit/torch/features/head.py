"""A convex head on learned features: solved exactly, on many training sets at once, with its derivative.

For each split s, with weights w_s over the rows (zero: held out),

    θ_s = argmin over (β, b):   ½‖β‖² + C Σ_i w_si ℓ(y_i, η_i),     η = V β + b.

The optimality condition F(θ; V) = Λθ + C Zᵀ(w∘ℓ') = 0, Z = [V, 1], defines θ as a function of the features V.
Its derivative (``onefit``'s only use of the implicit function theorem on features) needs one solve with the
Hessian H = ∂F/∂θ: for an outer gradient v in θ, u = H⁻¹v and the gradient in V is −∂(uᵀF)/∂V.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from onefit.exceptions import SolverError

SMALL_DECREMENT = 1e-16  # squared Newton decrement, relative: the step taken then is the last, by its square
STEPS = 200
HALVINGS = 40
ENTRIES = 2**24  # of the Hessians, or of the products of columns, that are held at once

LossName: TypeAlias = Literal["squared", "logistic", "multinomial"]


@dataclass(frozen=True)
class HeadLoss(ABC):
    """Loss of a head with c outputs, and its derivatives in the linear predictors."""

    n_outputs: int
    is_classifier = True
    ignores_common_shift = False  # of the linear predictors of a row

    @abstractmethod
    def coded(self, y: Tensor) -> Tensor:
        """Targets as a float64 array, one column an output: (n, c).

        Raises
        ------
        ValueError
        """

    @abstractmethod
    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        """Losses of (..., n, c) linear predictors: (..., n)."""

    @abstractmethod
    def mean(self, eta: Tensor) -> Tensor:
        """Expected target, or probabilities: (..., n, c).  The derivative of each loss is this minus y."""

    @abstractmethod
    def curvature(self, eta: Tensor) -> Tensor:
        """Second derivatives: (..., n, c, c)."""


@dataclass(frozen=True)
class _Squared(HeadLoss):
    is_classifier = False

    def coded(self, y: Tensor) -> Tensor:
        return y.double().reshape(len(y), -1)

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return 0.5 * (y - eta).square().sum(-1)

    def mean(self, eta: Tensor) -> Tensor:
        return eta

    def curvature(self, eta: Tensor) -> Tensor:
        return torch.eye(self.n_outputs, dtype=eta.dtype, device=eta.device).expand(*eta.shape, -1)


@dataclass(frozen=True)
class _Logistic(HeadLoss):
    def coded(self, y: Tensor) -> Tensor:
        if y.ndim != 1 or not torch.all((y == 0) | (y == 1)):
            raise ValueError("a logistic head needs labels 0 and 1, (n,); use loss='multinomial' for more")
        return y.double()[:, None]

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return nn.functional.softplus((1 - 2 * y) * eta)[..., 0]

    def mean(self, eta: Tensor) -> Tensor:
        return torch.sigmoid(eta)

    def curvature(self, eta: Tensor) -> Tensor:
        return (torch.sigmoid(eta) * torch.sigmoid(-eta))[..., None]


@dataclass(frozen=True)
class _Multinomial(HeadLoss):
    ignores_common_shift = True

    def coded(self, y: Tensor) -> Tensor:
        if y.ndim != 1 or y.is_floating_point() or not torch.all((y >= 0) & (y < self.n_outputs)):
            raise ValueError(f"a multinomial head needs whole labels from 0 to {self.n_outputs - 1}, (n,)")
        return nn.functional.one_hot(y.long(), self.n_outputs).double()

    def value(self, y: Tensor, eta: Tensor) -> Tensor:
        return torch.logsumexp(eta, -1) - (y * eta).sum(-1)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.softmax(eta, -1)

    def curvature(self, eta: Tensor) -> Tensor:
        share = self.mean(eta)
        return torch.diag_embed(share) - share[..., :, None] * share[..., None, :]


LOSSES: dict[str, type[HeadLoss]] = {
    "squared": _Squared,
    "logistic": _Logistic,
    "multinomial": _Multinomial,
}


def loss_of(name: str, y: Tensor, n_classes: int | None = None) -> HeadLoss:
    """Return the loss of a name, with as many outputs as the targets ask for.

    Raises
    ------
    ValueError
    """
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    if name == "multinomial":
        return _Multinomial(n_classes or int(y.max()) + 1)
    return LOSSES[name](y.shape[1] if name == "squared" and y.ndim == 2 else 1)


@dataclass(frozen=True, eq=False)
class _Heads:
    """The problems of some splits.

    Attributes
    ----------
    Z : (n, q) tensor
        Features, and a column of ones if there is an intercept.
    y : (n, c) tensor
    weights : (S, n) tensor
        C w.
    ridge : (q,) tensor
        1, and 0 for the intercept.
    loss : HeadLoss
    """

    Z: Tensor
    y: Tensor
    weights: Tensor
    ridge: Tensor
    loss: HeadLoss

    def objective(self, theta: Tensor) -> Tensor:
        """Value of each problem: (S,)."""
        losses = self.weights * self.loss.value(self.y, self.Z @ theta)
        return losses.sum(-1) + 0.5 * (self.ridge[:, None] * theta.square()).sum((-2, -1))

    def slopes(self, theta: Tensor) -> Tensor:
        """Derivatives C w ℓ' in the linear predictors: (S, n, c)."""
        return self.weights[..., None] * (self.loss.mean(self.Z @ theta) - self.y)

    def gradient(self, theta: Tensor) -> Tensor:
        """F(θ): (S, q, c)."""
        return self.Z.mT @ self.slopes(theta) + self.ridge[:, None] * theta

    def curvatures(self, theta: Tensor) -> Tensor:
        """Second derivatives C w ℓ'' in the linear predictors: (S, n, c, c)."""
        return self.weights[..., None, None] * self.loss.curvature(self.Z @ theta)

    def factor(self, theta: Tensor) -> Tensor:
        """Cholesky factor of H: (S, qc, qc).

        A common shift of all intercepts leaves a multinomial loss as it is; there H gets the curvature that
        keeps their sum at zero.
        """
        (n, q), c = self.Z.shape, self.loss.n_outputs
        flat = self.curvatures(theta).permute(0, 2, 3, 1).reshape(-1, n)
        H = torch.cat([flat @ products for products in self._products(c)], 1)
        H = H.reshape(-1, c, c, q, q).permute(0, 3, 1, 4, 2).reshape(-1, q * c, q * c)
        H.diagonal(dim1=-2, dim2=-1).add_(self.ridge.repeat_interleave(c))
        if self.loss.ignores_common_shift:
            free = (self.ridge == 0).to(H).repeat_interleave(c)
            H += free[:, None] * free
        return _cholesky(H)

    def _products(self, c: int) -> Iterator[Tensor]:
        """Products of the columns of Z, some columns at a time: (n, ·q)."""
        n, q = self.Z.shape
        width = max(1, ENTRIES // (n * q))
        for first in range(0, q, width):
            yield (self.Z[:, first : first + width, None] * self.Z[:, None, :]).reshape(n, -1)

    def solved(self, start: Tensor) -> Tensor:
        """Minimise by damped Newton steps.

        Raises
        ------
        SolverError
        """
        theta = self._begun(start)
        value = self.objective(theta)
        for _ in range(STEPS):
            gradient = self.gradient(theta)
            step = _solve(self.factor(theta), gradient)
            decrement = (gradient * step).sum((-2, -1))
            last = bool((decrement <= SMALL_DECREMENT * (1 + value.abs())).all())
            if last:
                return theta - step
            theta, value = self._descended(theta, value, step, decrement)
        raise SolverError(f"the convex head was not solved in {STEPS} Newton steps: scale the features")

    def _begun(self, start: Tensor) -> Tensor:
        """Each start, or zero where that is better: far on the wrong side no curvature is left to go by."""
        zero = torch.zeros_like(start)
        worse = ~(self.objective(start) <= self.objective(zero))
        return torch.where(worse[:, None, None], zero, start)

    def _descended(
        self, theta: Tensor, value: Tensor, step: Tensor, decrement: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take each step, halved until the objective falls by its share, rounding allowed for."""
        length = torch.ones_like(value)
        for _ in range(HALVINGS):
            new = theta - length[:, None, None] * step
            reached = self.objective(new)
            room = 1e-13 * (1 + value.abs())
            rising = ~(reached <= value - 1e-4 * length * decrement + room)
            if not rising.any():
                break
            length = torch.where(rising, length / 2, length)
        return new, reached

    def pulled_back(self, theta: Tensor, outer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients −∂(uᵀF)/∂· with u = H⁻¹ outer.

        Returns
        -------
        in Z : (n, q) tensor
        in the weights C w : (S, n) tensor
        in y : (n, c) tensor
        """
        u = _solve(self.factor(theta), outer)
        moved = self.Z @ u
        bent = (self.curvatures(theta) @ moved[..., None])[..., 0]
        in_Z = torch.einsum("snc,sqc->nq", bent, theta) + torch.einsum("snc,sqc->nq", self.slopes(theta), u)
        residual = self.loss.mean(self.Z @ theta) - self.y
        in_y = (self.weights[..., None] * moved).sum(0)
        return -in_Z, -(residual * moved).sum(-1), in_y


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    """H⁻¹ times right, (S, q, c) both."""
    return torch.cholesky_solve(right.reshape(len(right), -1, 1), factor).reshape(right.shape)


def _cholesky(H: Tensor) -> Tensor:
    """Cholesky factors; an intercept without curvature left, far from the optimum, gets a trace of it."""
    factor, failed = torch.linalg.cholesky_ex(H)
    if bool(failed.any()):
        trace = 1e-12 * H.diagonal(dim1=-2, dim2=-1).mean(-1)
        factor = torch.linalg.cholesky(H + torch.diag_embed(trace[:, None].expand(H.shape[:2])))
    return factor


class _Solution(torch.autograd.Function):
    """Coefficients θ (S, q, c) of the heads, as a function of features, targets, weights and C."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        y: Tensor,
        weights: Tensor,
        C: Tensor,
        start: Tensor,
        loss: HeadLoss,
        fit_intercept: bool,
    ) -> Tensor:
        heads = _heads(features, y, weights, C, loss, fit_intercept)
        parts = _parts(heads)
        theta = torch.cat([part.solved(start[where]) for where, part in parts])
        ctx.save_for_backward(features, y, weights, C, theta)
        ctx.loss, ctx.fit_intercept = loss, fit_intercept
        return theta

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        features, y, weights, C, theta = ctx.saved_tensors
        parts = _parts(_heads(features, y, weights, C, ctx.loss, ctx.fit_intercept))
        pulled = [part.pulled_back(theta[where], outer[where]) for where, part in parts]
        in_Z, in_y = (torch.stack([one[k] for one in pulled]).sum(0) for k in (0, 2))
        in_weights = torch.cat([one[1] for one in pulled])
        in_features = in_Z[:, : features.shape[1]].to(features.dtype)
        return in_features, in_y, C * in_weights, (weights * in_weights).sum(), None, None, None


def _heads(
    features: Tensor, y: Tensor, weights: Tensor, C: Tensor, loss: HeadLoss, fit_intercept: bool
) -> _Heads:
    Z = features.double()
    ridge = Z.new_ones(Z.shape[1] + fit_intercept)
    if fit_intercept:
        Z = torch.cat([Z, Z.new_ones(len(Z), 1)], 1)
        ridge[-1] = 0
    return _Heads(Z, y, C * weights, ridge, loss)


def _parts(heads: _Heads) -> list[tuple[slice, _Heads]]:
    """Splits a few at a time, as memory allows."""
    (n, q), c = heads.Z.shape, heads.loss.n_outputs
    size = max(1, ENTRIES // max((q * c) ** 2, n * c * c))
    cuts = [slice(first, first + size) for first in range(0, len(heads.weights), size)]
    return [(cut, _Heads(heads.Z, heads.y, heads.weights[cut], heads.ridge, heads.loss)) for cut in cuts]


class ConvexHead(nn.Module):
    """Ridge or ℓ2 logistic regression as a layer: fitted inside the forward pass, differentiable in all.

    Minimises ½‖β‖² + C Σ_i w_i ℓ(y_i, v_i·β + b) for each row of weights, exactly, in float64 and all at once
    (Newton), and passes gradients to the features, the targets of a squared loss, the weights and C by the
    implicit function theorem.  Source: Optimizing for generalization in machine learning with
    cross-validation gradients (2019), example 3.1; the head of its section 5.2 has no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "multinomial"}, default "logistic"
        Log-loss of labels 0 and 1, ½(y − η)², or log-loss of labels 0 to c − 1 (softmax, symmetric).
    C : float or torch.Tensor, default 10.0
        Weight of the losses.  A tensor with ``requires_grad`` receives its gradient; a parameter is trained.
    fit_intercept : bool, default True
        b is not penalised.  Without it, a split may hold a single class.
    n_classes : int, optional
        c of a multinomial loss; the largest label plus one if not given.

    Examples
    --------
    >>> import torch
    >>> from onefit.torch import ConvexHead
    >>> features = torch.tensor([[0.0], [1.0], [2.0], [3.0]], requires_grad=True)
    >>> y = torch.tensor([0, 1, 0, 1])
    >>> weights = 1 - torch.eye(4)  # each row is held out once
    >>> decision = ConvexHead(C=1.0)(features, y, weights, features)
    >>> decision.shape  # of each row by each head
    torch.Size([4, 4])
    >>> held_out = decision.diagonal()
    >>> loss = torch.nn.functional.binary_cross_entropy_with_logits(held_out, y.double())
    >>> loss.backward()
    >>> features.grad.shape
    torch.Size([4, 1])
    """

    def __init__(
        self,
        loss: LossName = "logistic",
        *,
        C: float | Tensor = 10.0,
        fit_intercept: bool = True,
        n_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.C = C
        self.fit_intercept = fit_intercept
        self.n_classes = n_classes

    def coefficients(
        self, features: Tensor, y: Tensor, weights: Tensor, start: Tensor | None = None
    ) -> Tensor:
        """Solve.

        Parameters
        ----------
        features : (n, d) tensor
        y : (n,) tensor, or (n, c) for a squared loss
        weights : (S, n) tensor
            At least 0; a row of weights for each training set.
        start : (S, q, c) tensor, optional
            Coefficients of a similar problem; zero if not given.

        Returns
        -------
        (S, q, c) float64 tensor
            q is d, or d + 1: the intercepts come last.  c is 1 but for several targets or classes.

        Raises
        ------
        ValueError
        onefit.exceptions.SolverError
        """
        _check_features(features, y, weights)
        loss = loss_of(self.loss, y, self.n_classes)
        coded, weights = loss.coded(y), weights.to(features.device, torch.float64)
        if self.fit_intercept:
            _check_splits(loss, coded, weights)
        C = torch.as_tensor(self.C, dtype=torch.float64, device=features.device)
        if C.ndim or not (torch.isfinite(C) and C > 0):
            raise ValueError(f"C must be one positive number, got {self.C}")
        shape = len(weights), features.shape[1] + self.fit_intercept, loss.n_outputs
        start = weights.new_zeros(shape) if start is None else start.detach()
        return _Solution.apply(  # type: ignore[no-untyped-call]
            features, coded, weights, C, start, loss, self.fit_intercept
        )

    def forward(self, features: Tensor, y: Tensor, weights: Tensor, features_new: Tensor) -> Tensor:
        """Fit each head and return its linear predictors of other rows.

        Parameters
        ----------
        features : (n, d) tensor
        y : (n,) tensor, or (n, c) for a squared loss
        weights : (S, n) tensor
        features_new : (m, d) tensor

        Returns
        -------
        (S, m) float64 tensor, or (S, m, c) for several targets or classes
        """
        return self.decision(self.coefficients(features, y, weights), features_new)

    def decision(self, theta: Tensor, features_new: Tensor) -> Tensor:
        """Linear predictors of heads that are solved: (S, m), or (S, m, c)."""
        eta = features_new.double() @ theta[:, : features_new.shape[1]]
        if self.fit_intercept:
            eta = eta + theta[:, -1:]
        return eta[..., 0] if theta.shape[-1] == 1 else eta

    def extra_repr(self) -> str:
        return f"{self.loss!r}, C={self.C}, fit_intercept={self.fit_intercept}"


def _check_features(features: Tensor, y: Tensor, weights: Tensor) -> None:
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(
            f"features must be a floating point tensor (n, d), got {tuple(features.shape)} of "
            f"{features.dtype}"
        )
    n = len(features)
    if len(y) != n or weights.ndim != 2 or weights.shape[1] != n:
        raise ValueError(
            f"{n} rows of features need n targets and weights (splits, n), got {tuple(y.shape)} and "
            f"{tuple(weights.shape)}"
        )
    if not torch.isfinite(features).all():
        raise ValueError("features hold NaN or infinity: has the training of the feature map diverged?")
    if not (torch.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("weights must be finite and at least 0")


def _check_splits(loss: HeadLoss, coded: Tensor, weights: Tensor) -> None:
    """Refuse splits whose intercept is not finite: without rows, or without rows of a class."""
    held = torch.cat([coded, 1 - coded], 1) if loss.n_outputs == 1 else coded
    held = held if loss.is_classifier else torch.ones_like(coded)
    empty = torch.nonzero(weights @ held == 0)
    if len(empty):
        what = "a class" if loss.is_classifier else "the data"
        raise ValueError(
            f"split {int(empty[0, 0])} has no training row of {what}, so that its intercept is infinite: "
            "give the row some weight, or use fit_intercept=False"
        )

"""A convex head on learned features: solved exactly, on many training sets at once, with its derivative.

For each split s, with weights w_s over the rows (zero: held out),

    θ_s = argmin over (β, b):   ½‖β‖² + C Σ_i w_si ℓ(y_i, η_i),     η = V β + b.

The optimality condition F(θ; V) = Λθ + C Zᵀ(w∘ℓ') = 0, Z = [V, 1], defines θ as a function of the features V.
Its derivative (``onefit``'s only use of the implicit function theorem on features) needs one solve with the
Hessian H = ∂F/∂θ: for an outer gradient v in θ, u = H⁻¹v and the gradient in V is −∂(uᵀF)/∂V.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefit.torch.features.losses import HeadLoss, LossName, loss_of
from onefit.torch.features.newton import solution


class ConvexHead(nn.Module):
    """Ridge or ℓ2 logistic regression as a layer: fitted inside the forward pass, differentiable in all.

    Minimises ½‖β‖² + C Σ_i w_i ℓ(y_i, v_i·β + b) for each row of weights, exactly, in float64 and all at once
    (Newton), and passes gradients to the features, the targets of a squared loss, the weights and C by the
    implicit function theorem.  Source: Optimizing for generalization in machine learning with
    cross-validation gradients (2019), example 3.1; the head of its section 5.2 has no intercept.

    Parameters
    ----------
    loss : {"logistic", "squared", "multinomial", "squared_hinge"}, default "logistic"
        Log-loss of labels 0 and 1, ½(y − η)², log-loss of labels 0 to c − 1 (softmax, symmetric), or
        max(0, 1 − (2y − 1)η)² of labels 0 and 1, a support vector machine.
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
        coded, weights = loss.coded(y.to(features.device)), weights.to(features.device, torch.float64)
        if self.fit_intercept:
            _check_splits(loss, coded, weights)
        C = torch.as_tensor(self.C, dtype=torch.float64, device=features.device)
        if C.ndim or not (torch.isfinite(C) and C > 0):
            raise ValueError(f"C must be one positive number, got {self.C}")
        shape = len(weights), features.shape[1] + self.fit_intercept, loss.n_outputs
        start = weights.new_zeros(shape) if start is None else start.detach().to(weights)
        return solution(features, coded, C * weights, start, loss, self.fit_intercept)

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
        eta = self.predictors(theta, features_new)
        return eta[..., 0] if theta.shape[-1] == 1 else eta

    def predictors(self, theta: Tensor, features_new: Tensor) -> Tensor:
        """The same as (S, m, c) whatever c is."""
        eta = features_new.double() @ theta[:, : features_new.shape[1]]
        return eta + theta[:, -1:] if self.fit_intercept else eta

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

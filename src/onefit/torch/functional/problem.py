"""Any loss and any penalties, given as functions: fit, leave-one-out, gradients in all strengths, tuning.

The problem of Beirami, Razaviyayn, Shahrampour and Tarokh (2017), On Optimal Generalizability in Parametric
Learning, eq. 2, as a sum:

    θ̂(λ) = argmin_θ  Σ_i w_i ℓ(θ; x_i, y_i) + Σ_m λ_m r_m(θ)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from onefit._typing import Array
from onefit.torch.functional.fit import FunctionalFit
from onefit.torch.functional.tuning import Scale, StepSize, Tuning, descend
from onefit.torch.numerics.devices import as_device, on_host
from onefit.torch.numerics.minimum import minimise
from onefit.torch.numerics.objective import PenalisedSum, Penalty, PredictorLoss, RowLoss
from onefit.torch.numerics.rows import as_rows, as_weights, check_objective
from onefit.validation import check_choice


@dataclass(frozen=True, eq=False)
class FunctionalProblem:
    """A loss and penalties, given as functions of PyTorch tensors.

    Parameters
    ----------
    loss : callable
        ``loss(theta, x, y)``: loss of one row, a tensor of shape (), for θ of shape (k,), a row ``x`` and its
        response ``y``.  It is mapped over rows by ``torch.func.vmap``, and has to be twice differentiable in
        θ by reverse mode; three times for gradients in λ.
    penalties : sequence of callables
        r_m(θ), tensors of shape ().  All have to be smooth but ``onefit.torch.numerics.objective.L1Norm``.
    start : int or array of shape (k,)
        Where the fit begins; an int means so many zeros.

    Notes
    -----
    Everything is computed in float64.  With a loss that is not convex in θ the fit is the local minimum that
    the start leads to, and left-out fits are those nearest to it.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> def squared(theta, x, y):
    ...     return (y - theta[0] - x @ theta[1:]) ** 2
    >>> def ridge(theta):
    ...     return (theta[1:] ** 2).sum()
    >>> fit = FunctionalProblem(squared, [ridge], start=11).fit(X, y, [0.1])
    >>> print(f"{fit.loo().value:.0f}")
    3005
    >>> fit.gradient().shape
    (1,)
    """

    loss: RowLoss
    penalties: Sequence[Penalty] = ()
    start: int | Any = field(kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise TypeError(f"loss must be a function of (theta, x, y), got {self.loss!r}")
        for m, term in enumerate(self.penalties):
            if not callable(term):
                raise TypeError(f"penalty {m} must be a function of theta, got {term!r}")

    @classmethod
    def of_predictor(
        cls,
        predict: Callable[[Tensor, Tensor], Tensor],
        loss: Callable[[Tensor, Tensor], Tensor],
        penalties: Sequence[Penalty] = (),
        *,
        start: int | Any,
    ) -> FunctionalProblem:
        """A loss of the output of a predictor, which has Gauss–Newton curvature too.

        Parameters
        ----------
        predict : callable
            ``predict(theta, x)``: output for one row, a tensor of any shape.
        loss : callable
            ``loss(output, y)``: a tensor of shape ().
        penalties, start
            As for the class.

        Examples
        --------
        >>> import torch
        >>> from onefit.torch.numerics.objective import L1Norm
        >>> problem = FunctionalProblem.of_predictor(
        ...     lambda theta, x: torch.tanh(x @ theta), lambda out, y: (out - y) ** 2, [L1Norm()], start=3
        ... )
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(30, 3))
        >>> fit = problem.fit(X, np.tanh(X[:, 0]) + 0.1 * rng.normal(size=30), [1.0])
        >>> fit.support
        array([0])
        >>> print(f"{fit.loo(curvature='gauss_newton').value:.3f}")
        0.011
        """
        return cls(PredictorLoss(predict, loss), penalties, start=start)

    def fit(
        self,
        X: Any,
        y: Any,
        strengths: Any = (),
        *,
        sample_weight: Any = None,
        start: Any = None,
        device: Any = "cpu",
    ) -> FunctionalFit:
        """Minimise to high accuracy: L-BFGS, then Newton steps on the support until they are below rounding.

        Parameters
        ----------
        X, y : array-like or tensors
            Rows along the first axis, of any shape.  Real numbers become float64, whole numbers (labels,
            tokens) stay as they are.
        strengths : sequence of float
            λ, at least 0, one a penalty.
        sample_weight : (n,) array-like, optional
        start : (k,) array-like, optional
            Instead of that of the problem.
        device : str or torch.device, default "cpu"
            Where it is computed.  Tensors of the fit, such as ``theta``, stay there; arrays are on the host.

        Returns
        -------
        FunctionalFit

        Raises
        ------
        ValueError
            For data, losses or penalties of the wrong kind, or values that are not finite.
        SolverError
            If no minimum is reached.
        """
        place = as_device(device)
        rows, response = as_rows("X", X, place), as_rows("y", y, place)
        if len(rows) != len(response):
            raise ValueError(f"X has {len(rows)} rows, y has {len(response)}")
        objective = PenalisedSum(
            loss=self.loss,
            penalties=tuple(self.penalties),
            X=rows,
            y=response,
            weights=as_weights(sample_weight, len(rows), place),
            strengths=torch.as_tensor(self._strengths(strengths), device=place),
        )
        first = self._start(self.start if start is None else start, place)
        check_objective(objective, first)
        return FunctionalFit(self, objective, minimise(objective, first, warm=start is not None))

    def tune(
        self,
        X: Any,
        y: Any,
        strengths: Any,
        *,
        algorithm: Literal[1, 2] = 1,
        n_steps: int = 50,
        step_size: StepSize = None,
        scale: Scale = "log",
        gradient: Literal["exact", "paper"] = "paper",
        sample_weight: Any = None,
        rng: int | np.random.Generator | None = None,
        device: Any = "cpu",
    ) -> Tuning:
        """Choose the strengths by descent on the leave-one-out risk: Algorithms 1 and 2 of the 2017 paper.

        Parameters
        ----------
        X, y, sample_weight, device
            As for ``fit``.
        strengths : sequence of float
            λ₀; positive if ``scale="log"``.  From zeros, where fits are not determined without a penalty
            (more parameters than rows), descent begins at the least of 10⁻⁶, 10⁻⁵, … at which they are.
        algorithm : {1, 2}
            1 takes the gradient over all rows, 2 that of one row drawn at random a step (with probability in
            proportion to its weight).
        n_steps : int, default 50
            At most.
        step_size : float, callable of the number of the step, or None
            α_t.  None: Algorithm 1 halves its step until the risk decreases, and ends when it does not;
            Algorithm 2 divides each entry of the gradient by the root of the sum of its squares so far
            (AdaGrad, Duchi et al. 2011).
        scale : {"log", "linear"}, default "log"
            Whether steps are taken in log λ, or in λ itself as in the paper, cut off at 0.
        gradient : {"paper", "exact"}, default "paper"
            Eq. 16, or the exact gradient of the approximate risk.  Algorithm 2 knows the former only.
        rng : int, Generator or None
            Of the rows of Algorithm 2.

        Returns
        -------
        Tuning

        Examples
        --------
        >>> import torch
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 8))
        >>> y = X[:, :2].sum(1) + 0.5 * rng.normal(size=60)
        >>> terms = [lambda theta: (theta[:2] ** 2).sum(), lambda theta: (theta[2:] ** 2).sum()]
        >>> problem = FunctionalProblem(lambda theta, x, y: (y - x @ theta) ** 2, terms, start=8)
        >>> found = problem.tune(X, y, [1.0, 1.0], n_steps=5)
        >>> bool(found.strengths[1] > 10 * found.strengths[0])
        True
        """
        if not self.penalties:
            raise ValueError("there is no penalty, so no strength to tune")
        check_choice("gradient", gradient, ("paper", "exact"))
        check_choice("algorithm", str(algorithm), ("1", "2"))

        def fit(at: Array, start: Tensor | None) -> FunctionalFit:
            return self.fit(X, y, at, sample_weight=sample_weight, start=start, device=device)

        generator = np.random.default_rng(rng)
        return descend(
            fit,
            self._strengths(strengths),
            (lambda found: found.gradient(gradient))
            if algorithm == 1
            else (lambda found: found.gradient_of_row(found.draw_row(generator))),
            n_steps=n_steps,
            step_size=step_size,
            scale=scale,
            stochastic=algorithm == 2,
        )

    def _strengths(self, given: Any) -> Array:
        strengths = np.atleast_1d(np.array(on_host(given), dtype=np.float64))
        count = len(self.penalties)
        if strengths.shape != (count,) or not np.all(np.isfinite(strengths)) or np.any(strengths < 0):
            raise ValueError(f"strengths must be {count} finite numbers of at least 0, got {given!r}")
        return strengths

    def _start(self, given: Any, device: torch.device) -> Tensor:
        if isinstance(given, int | np.integer):
            if given < 1:
                raise ValueError(f"there must be at least 1 parameter, got start={given}")
            return torch.zeros(int(given), dtype=torch.float64, device=device)
        start = torch.as_tensor(given).detach().to(device=device, dtype=torch.float64).clone()
        if start.ndim != 1 or len(start) == 0 or not bool(torch.isfinite(start).all()):
            raise ValueError(f"start must be finite numbers of shape (k,), got shape {tuple(start.shape)}")
        return start

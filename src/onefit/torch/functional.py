"""Any loss and any penalties, given as functions: fit, leave-one-out, gradients in all strengths, tuning.

The problem of Beirami, Razaviyayn, Shahrampour and Tarokh (2017), On Optimal Generalizability in Parametric
Learning, eq. 2, as a sum:

    θ̂(λ) = argmin_θ  Σ_i w_i ℓ(θ; x_i, y_i) + Σ_m λ_m r_m(θ)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from onefit._typing import Array, Index
from onefit.exceptions import SolverError
from onefit.leave_out.sets import Folds
from onefit.risk.audit import Audit, audit, draw
from onefit.risk.estimate import clustered, mean_and_error
from onefit.risk.folds import as_folds
from onefit.torch import hypergradient
from onefit.torch.left_out import STRAINED, LeftOutRisk, Sets, Steps
from onefit.torch.minimum import minimise
from onefit.torch.objective import (
    Objective,
    Penalty,
    RowLoss,
    Split,
    as_device,
    as_rows,
    as_weights,
    check_objective,
)
from onefit.torch.tuning import Scale, StepSize, Tuning, descend
from onefit.validation import check_audit

Method: TypeAlias = Literal["newton", "influence", "linear"]
Curvature: TypeAlias = Literal["hessian", "gauss_newton"]
Solver: TypeAlias = Literal["dense", "matrix_free"]
GradientMethod: TypeAlias = Literal["exact", "paper", "refits"]

NAMES = {
    "newton": "a Newton step (Theorem 1)",
    "influence": "the infinitesimal jackknife",
    "linear": "the first-order expansion (Lemma 3)",
}


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
        r_m(θ), tensors of shape ().  All have to be smooth but ``onefit.torch.objective.L1Norm``.
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
        >>> from onefit.torch.objective import L1Norm
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
        return cls(Split(predict, loss), penalties, start=start)

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
        objective = Objective(
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
    ) -> Tuning[FunctionalFit]:
        """Choose the strengths by descent on the leave-one-out risk: Algorithms 1 and 2 of the 2017 paper.

        Parameters
        ----------
        X, y, sample_weight, device
            As for ``fit``.
        strengths : sequence of float
            λ₀; positive if ``scale="log"``.
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
        if algorithm not in (1, 2) or gradient not in ("paper", "exact"):
            raise ValueError("algorithm must be 1 or 2, gradient 'paper' or 'exact'")

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
        strengths = np.atleast_1d(np.array(given, dtype=np.float64))
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


@dataclass(frozen=True, eq=False)
class LeftOutPoints:
    """Parameters without each set.

    Attributes
    ----------
    points : (s, k) tensor
        θ̃; the fit itself where neither a step nor a refit gave anything.
    leverages : (s,) array
        Infinite where the refit failed.
    anew, failed : int arrays
        Sets that were solved anew, and those of them without a solution.
    """

    points: Tensor
    leverages: Array
    anew: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    failed: Index = field(default_factory=lambda: np.empty(0, dtype=np.intp))

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        if not self.failed.size:
            return ()
        shown = ", ".join(map(str, self.failed[:8])) + (", …" if self.failed.size > 8 else "")
        return (f"without {self.failed.size} of the sets ({shown}) there is no minimum: flagged",)


@dataclass(frozen=True, eq=False)
class FunctionalFit:
    """A minimum, what leaving rows out does to it, and how that depends on the strengths.

    Attributes
    ----------
    problem : FunctionalProblem
    objective : Objective
        With its data and strengths.
    theta : (k,) tensor
        The minimum.
    """

    problem: FunctionalProblem
    objective: Objective = field(repr=False)
    theta: Tensor

    @property
    def support(self) -> Index:
        """Coordinates that are free to move: all but those that an ℓ1 norm holds at zero."""
        return self._free.cpu().numpy()

    @property
    def strengths(self) -> Array:
        """λ: (m,)."""
        return self.objective.strengths.cpu().numpy()

    @cached_property
    def _free(self) -> Tensor:
        held = (self.theta == 0) & (self.objective.kinks(self.theta) > 0)
        return torch.nonzero(~held)[:, 0]

    # --- risk ------------------------------------------------------------------------------------------

    def loo(
        self,
        *,
        groups: Any = None,
        method: Method = "newton",
        curvature: Curvature = "hessian",
        solver: Solver = "dense",
        exact: bool = False,
        audit: int = 0,
        rng: int | np.random.Generator | None = None,
    ) -> LeftOutRisk:
        """Leave every row out, or sets of rows.

        Parameters
        ----------
        groups : array of shape (n,), splitter, iterable of (train, test), or Folds, optional
            What leaves together, for instance ``onefit.risk.folds.leave_q_out(n, q, draws, seed)``.
        method : {"newton", "influence", "linear"}
            θ̃ = θ̂ + H₋ₛ⁻¹g (Theorem 1, eq. 4); the infinitesimal jackknife θ̂ + H⁻¹g; or the first-order
            expansion of the loss, ℓ + ∇ℓᵀH₋ₛ⁻¹g (Lemma 3, eqs. 12 and 13).  The last two are for comparison:
            they underestimate overfitting.
        curvature : {"hessian", "gauss_newton"}
            The latter leaves out the second derivatives of the predictor; see ``of_predictor``.
        solver : {"dense", "matrix_free"}
            Whether the curvature is formed, (k, k), or only multiplied with, by conjugate gradients.
        exact : bool, default False
            Solve anew without every set, from θ̃.
        audit : int, default 0
            Number of sets to solve anew at random, for an unbiased estimate and its error.
        rng : int, Generator or None
            Of the audit.

        Returns
        -------
        LeftOutRisk

        Examples
        --------
        >>> import torch
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> X = (X[:, :5] - X[:, :5].mean(0)) / X[:, :5].std(0)
        >>> def logistic(theta, x, y):
        ...     return torch.nn.functional.softplus(-(2 * y - 1) * (x @ theta))
        >>> problem = FunctionalProblem(logistic, [lambda theta: (theta**2).sum() / 2], start=5)
        >>> print(problem.fit(X, y, [1.0]).loo(audit=10, rng=0))
        leave-one-out loss         0.177803 ± 0.017
        training loss              0.17314
        rows                       569
        by                         a Newton step (Theorem 1)
        largest leverage           0.163
        audited, 95 %              0.177881 [0.177703, 0.178059] by 10 refits, +7.8e-05 from the approximation
        not to be trusted blindly  0 rows
        """
        check_audit(audit)
        folds = self._folds(groups)
        steps = self._steps(folds, curvature, solver)
        left = self._left_out(steps, folds, method, exact=exact)
        expanded = method == "linear" and not exact
        losses = self._expanded(steps, folds, left.points) if expanded else self._losses(folds, left.points)
        result = self._risk(folds, losses, left, "refits" if exact else NAMES[method])
        return replace(result, audit=self._audited(result, folds, audit, rng)) if audit else result

    def _left_out(self, steps: Steps, folds: Folds, method: Method, *, exact: bool) -> LeftOutPoints:
        if method not in NAMES:
            raise ValueError(f"method must be one of {', '.join(NAMES)}, got {method!r}")
        gradients = steps.gradients()
        if method == "influence" and not exact:
            points = self._lift(steps.theta + steps.solve_whole(gradients))
            return LeftOutPoints(points, np.full(len(folds), np.nan))
        moves, positive = steps.solve(gradients)
        leverages = torch.where(positive, steps.leverages(moves, gradients), 1.0).cpu().numpy()
        points = self._lift(steps.theta + torch.where(positive[:, None], moves, 0.0))
        anew = np.arange(len(folds)) if exact else np.flatnonzero(~positive.cpu().numpy())
        refits = self._refits(folds, anew, points[anew])
        solved = torch.isfinite(refits).all(1)
        points[anew[solved.cpu().numpy()]] = refits[solved]
        failed = anew[~solved.cpu().numpy()]
        leverages[failed] = np.inf
        if not exact and steps.fits_without_error(gradients):
            leverages = np.maximum(leverages, 1.0)
        return LeftOutPoints(points, leverages, anew, failed)

    def _losses(self, folds: Folds, points: Tensor) -> Array:
        """Loss of each of ``folds.rows`` at the point of its set: (t,)."""
        rows, sets = (torch.as_tensor(part, device=points.device) for part in (folds.rows, folds.fold))
        return self.objective.losses_at(points[sets], rows).cpu().numpy()

    def _expanded(self, steps: Steps, folds: Folds, points: Tensor) -> Array:
        """ℓ + ∇ℓᵀ(θ̃ − θ̂) of each of ``folds.rows``: (t,)."""
        rows, sets = (torch.as_tensor(part, device=points.device) for part in (folds.rows, folds.fold))
        moves = points[:, self._free][sets] - steps.theta
        pull = vmap(steps.objective.set_gradient, in_dims=(None, 0, 0))
        slopes = pull(steps.theta, rows[:, None], torch.ones_like(moves[:, :1]))
        return (self.objective.losses(self.theta)[rows] + (slopes * moves).sum(1)).cpu().numpy()

    def _lift(self, points: Tensor) -> Tensor:
        """Points in all coordinates."""
        if points.shape[1] == len(self.theta):
            return points
        lifted = self.theta.expand(len(points), -1).clone()
        lifted[:, self._free] = points
        return lifted

    def _risk(self, folds: Folds, losses: Array, left: LeftOutPoints, method: str) -> LeftOutRisk:
        weights = self._weights()[folds.rows]
        value, std_error = mean_and_error(*clustered(losses, weights, folds.rows))
        largest = np.inf if method == "refits" else STRAINED
        return LeftOutRisk(
            value=value,
            std_error=std_error,
            losses=losses,
            rows=folds.rows,
            training=self.objective.losses(self.theta).cpu().numpy()[folds.rows],
            leverages=np.minimum(left.leverages, 1.0)[folds.fold],
            flagged=np.flatnonzero((left.leverages >= largest)[folds.fold] | ~np.isfinite(losses)),
            method=method,
            parameters=left.points,
            refitted=len(left.anew),
            notes=left.notes(),
        )

    def _audited(self, result: LeftOutRisk, folds: Folds, m: int, rng: Any) -> Audit:
        weights = self._weights()[folds.rows]
        losses, totals = clustered(result.losses, weights, folds.fold)
        before, _ = clustered(result.training, weights, folds.fold)
        drawn = draw(losses - before, totals, m, np.random.default_rng(rng))
        assert result.parameters is not None
        refits = self._refits(folds, drawn.rows, result.parameters[drawn.rows])
        removed, tested = (tuple(part[k] for k in drawn.rows) for part in (folds.removed, folds.tested))
        some = Folds(removed, tested, folds.n)
        exact = clustered(self._losses(some, refits), self._weights()[some.rows], some.fold)[0]
        return audit(losses, drawn, exact, totals)

    def _weights(self) -> Array:
        return self.objective.weights.cpu().numpy()

    def _refits(self, folds: Folds, which: Index, starts: Tensor) -> Tensor:
        """Minima without some of the sets, in all coordinates; NaN where there is none: (len(which), k)."""
        found = torch.full(
            (len(which), len(self.theta)), torch.nan, dtype=torch.float64, device=self.theta.device
        )
        for place, k in enumerate(which):
            rows = torch.as_tensor(folds.removed[k], device=self.theta.device)
            try:
                found[place] = minimise(self.objective.without(rows), starts[place], warm=True)
            except SolverError:
                continue  # reported as flagged, or by the audit as failed
        return found

    def _folds(self, groups: Any) -> Folds:
        n = len(self.objective)
        if groups is None:
            rows = tuple(np.arange(n)[:, None])
            return Folds(rows, rows, n)
        return as_folds(groups, self.objective.X.cpu().numpy(), self.objective.y.cpu().numpy())

    def _steps(self, folds: Folds, curvature: Curvature, solver: Solver) -> Steps:
        if curvature not in ("hessian", "gauss_newton"):
            raise ValueError(f"curvature must be 'hessian' or 'gauss_newton', got {curvature!r}")
        if solver not in ("dense", "matrix_free"):
            raise ValueError(f"solver must be 'dense' or 'matrix_free', got {solver!r}")
        if curvature == "gauss_newton" and not isinstance(self.objective.loss, Split):
            raise ValueError(
                "Gauss-Newton curvature needs a predictor: make the problem by "
                "FunctionalProblem.of_predictor(predict, loss, ...)"
            )
        part = self.objective.restricted(self.theta, self._free)
        part = replace(part, gauss_newton=curvature == "gauss_newton")
        sets = Sets.of(folds, self.objective.weights)
        return Steps(part, self.theta[self._free], sets, dense=solver == "dense")

    # --- gradients -------------------------------------------------------------------------------------

    def gradient(
        self,
        method: GradientMethod = "exact",
        *,
        groups: Any = None,
        curvature: Curvature = "hessian",
        solver: Solver = "dense",
    ) -> Array:
        """Gradient of the leave-one-out risk in all strengths: (m,).

        Parameters
        ----------
        method : {"exact", "paper", "refits"}
            The exact gradient of ``loo().value``, by implicit differentiation of the whole formula; the
            paper's approximate gradient of leave-one-out (eq. 16); or its exact gradient, with every row's
            problem solved anew (eqs. 14 and 15).
        groups, curvature, solver
            As for ``loo``.

        Examples
        --------
        >>> import torch
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(30, 4))
        >>> y = np.sign(X[:, 0] + rng.normal(size=30))
        >>> problem = FunctionalProblem(
        ...     lambda theta, x, y: torch.nn.functional.softplus(-y * (x @ theta)),
        ...     [lambda theta: (theta[:2] ** 2).sum(), lambda theta: (theta[2:] ** 2).sum()],
        ...     start=4,
        ... )
        >>> fit = problem.fit(X, y, [1.0, 1.0])
        >>> for method in ("exact", "paper", "refits"):
        ...     print(fit.gradient(method).round(4))
        [ 0.0003 -0.0214]
        [-0.0002 -0.022 ]
        [-0.0007 -0.0223]
        """
        if not self.objective.penalties:
            raise ValueError("there is no penalty, so no strength to differentiate in")
        folds = self._folds(groups)
        steps = self._steps(folds, curvature, solver)
        if method == "exact":
            return hypergradient.exact(steps).cpu().numpy()
        if method not in ("paper", "refits"):
            raise ValueError(f"method must be 'exact', 'paper' or 'refits', got {method!r}")
        points = self._left_out(steps, folds, "newton", exact=method == "refits").points
        if method == "paper":
            return hypergradient.at_points(steps, points[:, self._free]).cpu().numpy()
        return self._gradient_of_refits(folds, points, curvature, solver)

    def gradient_of_row(self, row: int) -> Array:
        """g⁽ⁱ⁾ of eq. 16, the approximate gradient of the left-out loss of one row: (m,)."""
        alone = (np.array([row]),)
        folds = Folds(alone, alone, len(self.objective))
        steps = self._steps(folds, "hessian", "dense")
        points = self._left_out(steps, folds, "newton", exact=False).points
        return hypergradient.at_points(steps, points[:, self._free]).cpu().numpy()

    def draw_row(self, rng: np.random.Generator) -> int:
        """Draw a row with probability in proportion to its weight."""
        weights = self._weights()
        return int(rng.choice(len(weights), p=weights / weights.sum()))

    def _gradient_of_refits(
        self, folds: Folds, points: Tensor, curvature: Curvature, solver: Solver
    ) -> Array:
        """Eq. 14, each set on the support of its own refit."""
        total = np.zeros(len(self.objective.penalties))
        for k, point in enumerate(points):
            own = FunctionalFit(self.problem, self.objective, point)
            steps = own._steps(folds, curvature, solver)
            one = replace(steps, sets=steps.sets.only(torch.tensor([k], device=point.device)))
            total += hypergradient.at_points(one, steps.theta[None]).cpu().numpy()
        return total

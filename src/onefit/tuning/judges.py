"""Risks by which hyperparameters are judged, each with its derivative in what makes up the problem.

Every fit is solved to machine precision from the last solution, so that gradients are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from onefit import _linalg, gradients
from onefit._typing import Array, Index
from onefit.exceptions import UnsupportedModelError
from onefit.fit import Fit
from onefit.gradients import Cotangent
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.draws import alike
from onefit.leave_out.engine import begin, leave_some_out
from onefit.leave_out.patterns import leaves_nothing
from onefit.leave_out.step import leave_kinks_out, one_step
from onefit.metrics import LinearMetric, SquaredError
from onefit.problem import Problem
from onefit.readers import Reading
from onefit.risk.judging import yardstick
from onefit.risk.leverages import with_own_leverages
from onefit.risk.named import Permutation
from onefit.risk.permutation import draw_permutations
from onefit.solvers.newton import Solution
from onefit.solvers.solve import solve
from onefit.tuning.sample import from_sample


class Part(NamedTuple):
    """A fit that the risk depends on, by its cotangent, and the share of the penalty that it keeps."""

    fit: Fit
    cotangent: Cotangent
    share: float


class Judged(NamedTuple):
    """A risk, what it depends on, and the fits to go on from; and the mean loss of each set of rows."""

    value: float
    parts: list[Part]
    fits: list[Fit]
    by_set: Array | None = None


@dataclass(frozen=True, eq=False)
class Judge(ABC):
    """How the hyperparameters are judged.

    Attributes
    ----------
    metric, target
        How predictors are judged.
    weights : (n,) array
        Share of each row in the risk.
    """

    metric: LinearMetric
    target: Array
    weights: Array

    @property
    def in_loss(self) -> bool:
        """Whether gradients cover changes of the loss."""
        return True

    @abstractmethod
    def has_gradient(self, problem: Problem) -> bool:
        """Whether the cotangents are known for this problem; differences of the risk serve where not."""

    @abstractmethod
    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        """Solve from earlier fits, or from the constant model where there are none."""

    def of_some(self, count: int) -> Judge:
        """One that tells hyperparameters apart by so many held-out rows; itself where that saves nothing."""
        return self


def _is_ridge(problem: Problem) -> bool:
    """Whether the penalty is an ℓ2 one on every coefficient."""
    shape = problem.coef_shape
    return problem.penalty.is_ridge(shape) and bool(np.all(problem.penalty.ridge(shape) > 0))


def solved_from(problem: Problem, starts: list[Fit]) -> Solution:
    """Solve from an earlier fit of the same rows, if any; with kinks in the loss, from where each row was."""
    if not starts:
        return solve(Fit.at_start(problem))
    start = starts[0]
    moved = Fit(problem, start.coef, start.intercept)
    if problem.loss.has_kinks and not start.is_kinked:
        moved.known(eta=start.eta, gradient=start.gradient)
    return solve(moved)


def weighted_slopes(metric: LinearMetric, target: Array, eta: Array, weights: Array) -> Array:
    """Derivative of the weighted sum of losses in every predictor: the shape of ``eta``."""
    return _linalg.row_times(weights, metric.slopes(target, eta))


@dataclass(frozen=True, eq=False)
class LeaveOneOutJudge(Judge):
    """Every row on its own.

    Smooth problems take one Newton step a row.  Where the penalty has kinks, or the loss, rows whose
    pattern changes are taken from their refits, so that the risk does not jump with the pattern, and each has
    its own gradient.

    Attributes
    ----------
    exact : bool
        Whether the gradient is that of the risk, or eq. 16 of Beirami et al. 2017.
    batch : (b,) int array or None
        Rows that the gradient is estimated from (their Algorithm 2); None for all.
    sample : int or None
        Rows that values without a gradient are estimated from where steps do not serve; None for all.
    """

    exact: bool = True
    batch: Index | None = None
    sample: int | None = None

    @property
    def in_loss(self) -> bool:
        return self.exact

    def has_gradient(self, problem: Problem) -> bool:
        loss, penalty = problem.loss, problem.penalty
        formula = loss.is_smooth or loss.has_kinks or not penalty.has_kinks(problem.coef_shape)
        if penalty.turns or not formula:  # else steps are repeated with a factor that is none of them
            return False
        if _linalg.has_columns(problem.X) and not loss.is_kinked:
            return self.exact or not loss.has_kinks  # each left-out problem has its own
        return self.exact and problem.refits_keep_the_rest and _is_ridge(problem)

    def of_some(self, count: int) -> Judge:
        return replace(self, sample=count)

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        solution = solved_from(problem, starts)
        fit = solution.fit
        jumps = fit.is_kinked or fit.problem.loss.has_kinks  # by a step, from one pattern to the next
        if self.sample is not None and not gradient and jumps:
            return Judged(self._of_sample(fit, self.sample), [], [fit])
        left_out = leave_out(fit, None, 0.0, curvature=solution.curvature) if jumps else one_step(*solution)
        value = float(self.weights @ self.metric.losses(self.target, left_out.eta))
        if not gradient:
            return Judged(value, [], [fit])
        if self.exact:
            return Judged(value, self._parts(solution, left_out), [fit])
        cotangent = gradients.gradient_2017(fit, self._slopes, self.batch)
        if self.batch is not None:
            grown = len(self.weights) / len(self.batch)
            cotangent = Cotangent(grown * cotangent.gradient, grown * np.asarray(cotangent.hessian))
        return Judged(value, [Part(fit, cotangent, 1.0)], [fit])

    def _parts(self, solution: Solution, left_out: LeftOut) -> list[Part]:
        fit, parts = solution.fit, list[Part]()
        problem, moved = fit.problem, left_out.refitted
        if len(moved) < problem.n:
            parts.append(Part(fit, self._of_the_others(solution, left_out, moved), 1.0))
        slopes = self._slopes(left_out)
        if gradients.stand_side_by_side(fit):
            pieces = np.array_split(moved, 1 + moved.size * max(problem.X.shape) // _linalg.BLOCK_SIZE)
            return parts + [self._side_by_side(left_out, rows, slopes) for rows in pieces if rows.size]
        for i in moved.tolist():
            one = left_out.solved[i]
            own = Fit(problem.without(i), one.coef, one.intercept)
            rows = np.array([i])
            parts.append(Part(own, gradients.held_out(own, rows, slopes[rows]), problem.kept_share(i)))
        return parts

    @staticmethod
    def _side_by_side(left_out: LeftOut, rows: Index, slopes: Array) -> Part:
        """What single rows owe at their own solutions, together."""
        solved = [left_out.solved[i] for i in rows.tolist()]
        coef = np.stack([one.coef for one in solved], axis=1)
        level = np.array([one.intercept for one in solved], dtype=np.float64)
        return Part(*gradients.held_out_alone(left_out.fit, rows, coef, level, slopes[rows]), 1.0)

    def _of_the_others(self, solution: Solution, left_out: LeftOut, moved: Index) -> Cotangent:
        """Cotangent of the rows for which one step was enough."""
        fit = solution.fit
        unmoved = leaves_nothing(fit)
        unmoved[moved] = True
        if unmoved.all():  # their refits are the fit
            rest = np.setdiff1d(left_out.rows, moved)
            return gradients.held_out(fit, rest, self._slopes(left_out)[rest], solution.curvature)

        def of_the_others(step: LeftOut) -> Array:
            slopes = self._slopes(step)
            slopes[moved] = 0.0
            return slopes

        return gradients.leave_one_out(fit, of_the_others, solution.curvature)[1]

    def _of_sample(self, fit: Fit, count: int) -> float:
        """The risk by some rows, the same ones for every fit."""
        rows = np.random.default_rng(0).permutation(np.flatnonzero(self.weights > 0))[:count]
        measure = yardstick(self.metric, self.target, self.weights)
        known = self.metric.losses(
            self.target[rows], leave_some_out(begin(fit, None, measure), rows, measure).eta
        )
        inside = self.metric.losses(self.target, fit.eta)[:, None]
        chance = alike(self.weights, rows)
        return float(self.weights @ from_sample(known, rows, chance, inside, self.weights).losses)

    def _slopes(self, left_out: LeftOut) -> Array:
        return weighted_slopes(self.metric, self.target, left_out.eta, self.weights)


@dataclass(frozen=True, eq=False)
class GeneralisedJudge(Judge):
    """GCV: training loss / (1 − df/n)², with n (c − 1) for c classes, as ``risk.GCV``."""

    def has_gradient(self, problem: Problem) -> bool:
        if not _linalg.has_columns(problem.X) and not problem.refits_keep_the_rest:
            return False
        special = problem.loss.has_kinks or problem.penalty.turns
        return problem.has_one_output and not special

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        fit, curvature = solved_from(problem, starts)
        n = int(np.count_nonzero(problem.weights)) * problem.loss.rank(problem.n_outputs)
        if self.has_gradient(problem):
            df = float(np.sum(fit.hessian * curvature.quadratic_forms()))
        else:  # kinks of the loss and several outputs have degrees of freedom of their own
            step = leave_kinks_out if problem.loss.has_kinks else one_step
            df = with_own_leverages(step(fit)).effective_df
        slack = 1.0 - df / n
        training = float(self.weights @ self.metric.losses(self.target, fit.eta))
        value = training / slack**2 if slack > 0 else np.inf
        if not gradient or slack <= 0:
            return Judged(value, [], [fit])
        by_eta = self.weights * self.metric.slopes(self.target, fit.eta) / slack**2
        owed = 2.0 * training / (n * slack**3)
        cotangent = gradients.degrees_of_freedom(fit, curvature, owed, by_eta)
        return Judged(value, [Part(fit, cotangent, 1.0)], [fit])


@dataclass(frozen=True, eq=False)
class PermutedJudge(Judge):
    """The criterion of Lounici, Meziani and Riu (2020, eq. 5), for any loss: see ``risk.Permutation``.

    Attributes
    ----------
    orders : (T + 1, n) int array
        The rows as they are, and permuted.
    """

    orders: Index

    @property
    def in_loss(self) -> bool:  # the constant model that it compares with moves too
        return False

    @classmethod
    def of(cls, risk: Permutation, reading: Reading, shares: Array) -> Self:
        """Draw the permutations of a named risk.

        Raises
        ------
        UnsupportedModelError
            For balanced classes.
        """
        if reading.fit.problem.balance is not None:
            raise UnsupportedModelError(
                "risk=Permutation() is not for class_weight='balanced': permuted rows would keep the weights "
                "of others; pass sample_weight"
            )
        held, rng = np.flatnonzero(shares > 0), np.random.default_rng(risk.random_state)
        moved = held[draw_permutations(len(held), risk.n_permutations, rng)]
        orders = np.tile(np.arange(len(shares)), (1 + len(moved), 1))
        orders[1:, held] = moved  # a response without weight stays where it is
        return cls(reading.metric, reading.target, shares, orders)

    def has_gradient(self, problem: Problem) -> bool:
        return True

    def judge(self, problem: Problem, starts: list[Fit], *, gradient: bool) -> Judged:
        value, parts, fits = 0.0, [], []
        for t, order in enumerate(self.orders):
            own = replace(problem, y=problem.y[order])
            fit, curvature = solved_from(own, starts[t : t + 1])
            share, by_row = self._explained(fit, order)
            # the response is to be fitted; of a permuted one nothing is to be explained
            sign = 1.0 if t == 0 else float(np.sign(share - 1.0)) / (len(self.orders) - 1)
            value += share if t == 0 else abs(1.0 - share) / (len(self.orders) - 1)
            fits.append(fit)
            if gradient:
                v = gradients.of_rows(fit, sign * by_row)
                parts.append(Part(fit, gradients.implicit(fit, curvature, v), 1.0))
        return Judged(value, parts, fits)

    def _explained(self, fit: Fit, order: Index) -> tuple[float, Array]:
        """L/L₀ of a fit, or its root for squared error, and the slope in the linear predictors."""
        target = self.target[order]
        loss = float(self.weights @ self.metric.losses(target, fit.eta))
        null = float(self.weights @ self.metric.losses(target, Fit.at_start(fit.problem).eta))
        slopes = weighted_slopes(self.metric, target, fit.eta, self.weights)
        if not null > 0:
            return 1.0, 0.0 * slopes
        if not isinstance(self.metric, SquaredError):
            return loss / null, slopes / null
        root = max(float(np.sqrt(loss / null)), np.finfo(float).tiny)
        return root, slopes / (2.0 * root * null)

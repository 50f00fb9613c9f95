"""Rows of coupled outputs that are left out alone without a factor, each by a fit from that with all rows.

K is only multiplied with.  Leverages are estimated: with D_i = B_i B_iᵀ and random signs ε the mean of
⟨B_i ε_i, (Z K⁻¹ Zᵀ B ε)_i⟩ is tr D_i H_i (Hutchinson 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import UNMINDED
from onefit.curvature import AverageCurvature, Direction, factor
from onefit.fit import Fit
from onefit.leave_out.chords import MAX_STEPS, FoldProblems
from onefit.leave_out.coef_steps import OfFit, Roughly, steps_in_coefficients
from onefit.leave_out.factor_free import PARTS, fit_of_others, goes_by_column, near_by, rough_cost
from onefit.leave_out.parts import FIRST_SAMPLE
from onefit.leave_out.refit import refit_cost
from onefit.leave_out.result import SolvedWithout
from onefit.leave_out.row_order import random_order
from onefit.leave_out.ways import cost_of_chords
from onefit.solvers import coordinate_descent
from onefit.solvers.truncated import ROUGH, Seconds, WithoutFactor, answered, approach

MARGIN = 1.2  # for an error that is known roughly
TRIED = 3  # rows that tell what others take
BESIDE = 4.0  # products with K, about as long as which the rest of a row's steps takes
SHARE = 0.25  # of the rows, that tell the mean of the others where no step of theirs is known
SIDE_BY_SIDE = 16  # rows that go together by the average curvature, so that products of matrices are large
COEFFICIENTS = 2**18  # of all of them: steps before are kept, too
MIXED = 20  # steps of these, about as many as conjugate gradients take
NEAR = 5e-3  # of a row's first step, that its last may be: it leaves as much as a rough fit does
LITTLE = 0.01  # of the way of a row's predictors that may be left, where columns move one at a time
PROBES = 16  # that tell leverages
LOOSELY = 0.03  # error of what they are multiplied by, relative


class RowsAlone:
    """Rows that are left out alone, each once, and what K is multiplied with tells of all of them."""

    def __init__(self, fit: Fit) -> None:
        self.fit, self._solve, self.solved = fit, WithoutFactor(fit), dict[int, SolvedWithout]()
        self._products = 0  # with K, that these took

    @cached_property
    def pulled(self) -> Index:
        """The output that each row pulls up, its class: (n,)."""
        return self.fit.gradient.argmin(axis=1)

    @cached_property
    def lone(self) -> Index:
        """Rows without which there is no solution: nothing else pulls up an output that has an intercept."""
        problem, held = self.fit.problem, self.fit.problem.weights > 0
        only = np.flatnonzero(held & (np.bincount(self.pulled, held)[self.pulled] == 1))
        return only[~problem.attains_levels(problem.weights_without(list(only[:, None])))]

    @classmethod
    def where_they_pay(cls, fit: Fit) -> RowsAlone | None:
        """Them where tenths and a sample of rows take less than a factor and what is done with it.

        As many rows repeat their steps by it.  Where penalties have kinks those without which the pattern is
        another are solved anew; without kinks some rows are tried.
        """
        n, by_factor = fit.problem.n, Seconds.of(fit).with_forms
        if not fit.problem.is_coupled or n <= FIRST_SAMPLE or (fit.is_kinked and not goes_by_column(fit)):
            return None
        rows = cls(fit)
        if fit.is_kinked:
            return rows if rows.seconds < by_factor + rows.many * refit_cost(fit).seconds else None
        by_factor += FIRST_SAMPLE * cost_of_chords(fit, None).seconds
        if rows.seconds < by_factor:
            rows.taken(fit.eta, random_order(fit)[:TRIED])
        return rows if rows.seconds < by_factor else None

    @property
    def many(self) -> float:
        """How many tell the mean where no step of theirs predicts what they lose, about."""
        return max(FIRST_SAMPLE, SHARE * self.fit.problem.n)

    @property
    def seconds(self) -> float:
        """What tenths and a sample of rows take, about."""
        if self.fit.is_kinked:
            return PARTS * rough_cost(self.fit) + self.many * self.seconds_each
        return (PARTS + PROBES + FIRST_SAMPLE) * self.seconds_each

    @property
    def seconds_each(self) -> float:
        """What a row takes, about: as those before it."""
        if self.fit.is_kinked:
            return coordinate_descent.work(self.fit, self.fit.tangent.size, closely=True).seconds
        products = self._products / len(self.solved) if self.solved else 0.0
        return (BESIDE + products) * self._solve.each

    def enough(self, error: float, m: int, errors: Sequence[float]) -> int:
        """Rows for one of some errors of the mean, in standard errors, where m rows have left another one.

        For the first of them that takes no more than users mind, or else the last.
        """
        for wanted in errors:
            more = max(2 * m, int(MARGIN * m * (error / wanted) ** 2)) if error > wanted else m
            if self.seconds_each * (more - m) <= UNMINDED:
                break
        return more

    def taken(self, eta: Array, which: Index) -> Array:
        """Predictors, those of some rows by fits without them, or by a step where there is none."""
        found, todo = eta.copy(), np.setdiff1d(which, list(self.solved))
        together = min(SIDE_BY_SIDE, COEFFICIENTS // self.fit.coef.size)
        if self._solve.by_average and together > 1:
            regular = np.setdiff1d(todo, self.lone)
            for rows in np.array_split(regular, -(-regular.size // together)) if regular.size else ():
                self._go_together(rows)
        for i in np.setdiff1d(todo, list(self.solved)).tolist():
            near = self._without(i)
            self.solved[i] = SolvedWithout(near.eta[i], near.coef, near.intercept)
        for i, one in self.solved.items():
            found[i] = one.eta
        return found

    @cached_property
    def _average(self) -> AverageCurvature:
        """Of many rows the nearest one takes little, whatever others share."""
        return AverageCurvature.by_curved_rows(self.fit)

    def _go_together(self, rows: Index) -> None:
        """Fits without each of some rows, side by side, as far as steps by the average curvature settle."""
        fit, f = self.fit, rows.size
        begun = Direction(*(np.repeat(part[..., None], f, axis=-1) for part in (fit.coef, fit.intercept)))
        refits = FoldProblems.without(fit, factor(fit), rows[:, None])
        close = Roughly.of_folds(NEAR, np.zeros(f))
        about = OfFit(self._average)
        end = steps_in_coefficients(refits, about, close, begun, MAX_STEPS, mix=MIXED, patience=MIXED)
        self._products += sum(end.passes)
        eta = end.predictors(fit.problem.X, rows, np.arange(f))
        for j in np.flatnonzero(end.settled).tolist():
            self.solved[int(rows[j])] = SolvedWithout(eta[j], end.coef[..., j], end.intercept[..., j])

    def _without(self, i: int) -> Fit:
        start = fit_of_others(self.fit, i)
        if self.fit.is_kinked and i not in self.lone:
            return near_by(start, np.array([i]), LITTLE)
        near, _, _, products = approach(start, self._solve, np.inf if i in self.lone else ROUGH)
        self._products += products
        return near

    @cached_property
    def leverages(self) -> Array:
        """Traces of D_i H_i, estimated: (n,)."""
        fit, rng = self.fit, np.random.default_rng(0)
        values, vectors = np.linalg.eigh(fit.hessian)
        roots, total = vectors * np.sqrt(np.maximum(values, 0.0))[:, None], np.zeros(fit.problem.n)
        for _ in range(PROBES):
            signs = _linalg.row_times(roots, rng.choice([-1.0, 1.0], fit.eta.shape))
            gradient = Direction(*fit.problem.gradient_of(signs))
            answer, _ = answered(fit, gradient, self._solve, LOOSELY)
            total += np.sum(signs * fit.problem.linear_predictor(*answer), axis=1)
        return np.clip(total / PROBES, 0.0, fit.problem.n_outputs)

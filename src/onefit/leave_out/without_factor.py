"""Rows of coupled outputs without a factor of K, where that takes far longer than fits.

Every row is told by a fit without its tenth, and the mean is corrected by a sample of rows that are left out
alone, each by a fit from the one with all rows: K is only multiplied with, or columns move one at a time.
What the other rows lose is predicted from that, and from steps by the average curvature of the rows, as long
as makes them lose on average what they do without their tenths.  Leverages are estimated: with D_i = B_i B_iᵀ
and random signs ε the mean of ⟨B_i ε_i, (Z K⁻¹ Zᵀ B ε)_i⟩ is tr D_i H_i (Hutchinson 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import UNMINDED, memory
from onefit.curvature import Direction, coordinates, cost_of_average, has_average
from onefit.fit import Fit
from onefit.leave_out.averaged import step_by_average
from onefit.leave_out.draws import LOOKS, MOST, Draw
from onefit.leave_out.factor_free import (
    PARTS,
    complete,
    fit_of_others,
    goes_by_column,
    moved_by_column,
    parts_of,
    rough_cost,
)
from onefit.leave_out.parts import FIRST
from onefit.leave_out.refit import refit_cost
from onefit.leave_out.regression import ENOUGH, regression_estimate
from onefit.leave_out.result import Correction, Drawn, LeftOut, SolvedWithout
from onefit.leave_out.yardstick import Yardstick, allowed
from onefit.numerics import UNRELIABLE, resolution
from onefit.solvers.truncated import ROUGH, Seconds, answered, approach, by_diagonal

FACTORS_HELD = 4.0  # matrices as large as K that have to fit
MARGIN = 1.2  # for an error that is known roughly
FACTORS = 2.0  # times a factor that its inverse, the forms of all rows and steps from these take, about
TRIED = 3  # rows that tell what others take
BESIDE = 4.0  # products with K, about as long as which the rest of a row's steps takes
SHARE = 0.25  # of the rows, that tell the mean of the others where no step of theirs is known
LITTLE = 0.01  # of the way of a row's predictors that may be left, where columns move one at a time
LENGTHS = np.geomspace(0.5, 8.0, 17)  # of steps by the average curvature, which is too stiff for most rows
PROBES = 16  # that tell leverages
LOOSELY = 0.03  # error of what they are multiplied by, relative


def goes_without_factor(fit: Fit) -> bool:
    """Whether tenths and a sample of rows take less than a factor and what is done with it."""
    return RowsAlone.where_they_pay(fit) is not None


def told_without_factor(
    fit: Fit,
    yardstick: Yardstick | None,
    max_error: float,
    apart: Array | None = None,
    *,
    of_mean: bool = False,
) -> LeftOut | None:
    """Left-out predictors of all rows, and a correction of the mean by a sample of them.

    None where a factor takes less or every row is asked for, or where half of the rows would not tell the
    mean, and the machine holds a factor.

    Parameters
    ----------
    fit : Fit
    yardstick : Yardstick
    max_error : float
        Standard errors of the risk by which it may be off.
    apart : (n, c) array, optional
        Predictors without tenths, by ``factor_free.parts_of``, that are at hand; NaN elsewhere.
    of_mean : bool, default False
        Whether an error that needs no warning will do, where less takes more than users mind.
    """
    rows = RowsAlone.where_they_pay(fit) if yardstick is not None and 0 < max_error < np.inf else None
    if rows is None or yardstick is None:
        return None
    without = np.full(fit.eta.shape, np.nan) if apart is None else apart.copy()
    complete(without, fit, None, parts_of(fit.problem.n))
    known = _covariates(rows, yardstick, without)
    order = np.random.default_rng(0).permutation(np.flatnonzero(yardstick.weights > 0))
    m, most = min(FIRST, ENOUGH * known.shape[1]), len(order) if fit.is_kinked else int(MOST * len(order))
    for _ in range(LOOKS):
        drawn = np.sort(order[: min(m, most)])
        eta = rows.taken(without, drawn)
        found = LeftOut(fit, eta, np.full(len(eta), np.inf), rows.leverages, np.ones(len(eta)))
        chance = np.full(len(drawn), len(drawn) / len(order))
        told = _correction(found, yardstick, known, Draw(drawn, chance), without)
        off = told.error / allowed(found, yardstick, 1.0, np.ones(len(eta)))
        wanted = rows.enough(off, m, (max_error, max(max_error, UNRELIABLE * of_mean)))
        m = min(wanted, len(order))
        if m <= len(drawn):
            break
        if m > most and _holds_factor(fit):
            return None
    return replace(found, correction=told, solved=rows.solved, stepped=drawn)


def _holds_factor(fit: Fit) -> bool:
    """Whether there is memory for K, its factor and its inverse."""
    return FACTORS_HELD * 8.0 * float(coordinates(fit)) ** 2 < memory()


def _covariates(rows: RowsAlone, yardstick: Yardstick, without: Array) -> Array:
    """Losses of all rows in the fit, without tenths and after steps; and which output each pulls up."""
    fit = rows.fit
    everyone = np.arange(fit.problem.n)
    pulled = fit.gradient.argmin(axis=1)
    known = [yardstick.losses(everyone, eta) for eta in (fit.eta, without)]
    if has_average(fit) and cost_of_average(fit).seconds < rows.many * rows.seconds_each:
        step = step_by_average(fit) - fit.eta
        known.append(_as_long_as_tenths(fit, yardstick, step, known[1], pulled))
    return np.column_stack([*known, pulled[:, None] == np.unique(pulled)[1:]])


def _as_long_as_tenths(fit: Fit, yardstick: Yardstick, step: Array, tenths: Array, pulled: Index) -> Array:
    """Losses after steps of such lengths that each class loses on average what it does without its tenths."""
    everyone, lengths = np.arange(len(step)), np.ones(len(step))
    lost = np.array([yardstick.losses(everyone, fit.eta + length * step) for length in LENGTHS])
    for k in np.unique(pulled):
        of_class = pulled == k
        own = np.where(of_class, yardstick.weights, 0.0)
        lengths[of_class] = np.interp(own @ tenths, np.maximum.accumulate(lost @ own), LENGTHS)
    return yardstick.losses(everyone, fit.eta + lengths[:, None] * step)


def _correction(found: LeftOut, yardstick: Yardstick, known: Array, drawn: Draw, before: Array) -> Correction:
    """What rows that were left out alone say about the mean, by regression on what is known of all."""
    everyone = np.arange(len(found.eta))
    weights, losses = yardstick.weights / yardstick.weights.sum(), yardstick.losses(everyone, found.eta)
    mean, error, reach = regression_estimate(losses[drawn.rows], drawn, known, weights)
    finest = resolution(mean, allowed(found, yardstick, 1.0, np.ones(len(losses))))
    if found.fit.is_kinked:  # fits that end short of where they go
        error, reach = reach * error + LITTLE * float(weights @ np.abs(losses - known[:, 0])), 1.0
    rows = Drawn(drawn.rows, drawn.probabilities, before)
    return Correction(mean - float(weights @ losses), max(reach * error, finest), 1.0, drawn=rows)


class RowsAlone:
    """Rows that are left out alone, each once, and what K is multiplied with tells of all of them."""

    def __init__(self, fit: Fit) -> None:
        self.fit, self._solve, self.solved = fit, by_diagonal(fit), dict[int, SolvedWithout]()
        self._products = 0  # with K, that these took

    @classmethod
    def where_they_pay(cls, fit: Fit) -> RowsAlone | None:
        """Them where tenths and a sample of rows take less than a factor and what is done with it.

        Where penalties have kinks that is also to solve anew for rows without which the pattern is another;
        without kinks some rows are tried.
        """
        n, by_factor = fit.problem.n, FACTORS * Seconds.of(fit).factored
        if not fit.problem.is_coupled or n <= FIRST or (fit.is_kinked and not goes_by_column(fit)):
            return None
        rows = cls(fit)
        if fit.is_kinked:
            by_factor += rows.many * refit_cost(fit).seconds
        elif rows.seconds < by_factor:
            rows.taken(fit.eta, np.random.default_rng(0).choice(n, TRIED, replace=False))
        return rows if rows.seconds < by_factor else None

    @property
    def many(self) -> float:
        """How many tell the mean where no step of theirs predicts what they lose, about."""
        return max(FIRST, SHARE * self.fit.problem.n)

    @property
    def seconds(self) -> float:
        """What tenths and a sample of rows take, about."""
        return (PARTS + (self.many if self.fit.is_kinked else PROBES + FIRST)) * self.seconds_each

    @property
    def seconds_each(self) -> float:
        """What a row takes, about: as those before it."""
        if self.fit.is_kinked:
            return rough_cost(self.fit)
        products = self._products / len(self.solved) if self.solved else 0.0
        return (BESIDE + products) * Seconds.of(self.fit).product

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
        """Predictors, those of some rows by fits without them."""
        fit, found = self.fit, eta.copy()
        for i in np.setdiff1d(which, list(self.solved)).tolist():
            start = fit_of_others(fit, i)
            if goes_by_column(start):
                near = moved_by_column(start, np.array([i]), LITTLE)
            else:
                near, _, _, products = approach(start, self._solve, ROUGH)
                self._products += products
            self.solved[i] = SolvedWithout(near.eta[i], near.coef, near.intercept)
        for i, one in self.solved.items():
            found[i] = one.eta
        return found

    @cached_property
    def leverages(self) -> Array:
        """Traces of D_i H_i, estimated: (n,)."""
        fit, rng = self.fit, np.random.default_rng(0)
        values, vectors = np.linalg.eigh(fit.hessian)
        roots, total = vectors * np.sqrt(np.maximum(values, 0.0))[:, None], np.zeros(fit.problem.n)
        for _ in range(PROBES):
            signs = _linalg.row_times(roots, rng.choice([-1.0, 1.0], fit.eta.shape))
            gradient = Direction(*fit.problem.gradient_of(signs))
            answer = fit.problem.linear_predictor(*answered(fit, gradient, self._solve, LOOSELY))
            total += np.sum(signs * answer, axis=1)
        return np.clip(total / PROBES, 0.0, fit.problem.n_outputs)

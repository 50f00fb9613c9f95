"""What all rows of coupled outputs lose without a factor of K, where that takes far longer than fits.

Every row is told by a fit without its tenth, and the mean is corrected by a sample of rows that are left out
alone.  What the other rows lose is predicted from that, from their class, and from steps by the average
curvature of the rows, as long as makes each class lose on average what it does without its tenths.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit._typing import Array, Index
from onefit.cost import memory
from onefit.curvature import coordinates, cost_of_average, has_average
from onefit.fit import Fit
from onefit.leave_out.averaged import step_by_average, step_by_diagonal
from onefit.leave_out.draws import LOOKS, MOST, Draw, drawn_by
from onefit.leave_out.factor_free import without_tenths
from onefit.leave_out.parts import FIRST_SAMPLE
from onefit.leave_out.regression import ENOUGH, regression_estimate
from onefit.leave_out.result import Correction, Drawn, LeftOut
from onefit.leave_out.row_order import random_order
from onefit.leave_out.rows_alone import RowsAlone
from onefit.leave_out.yardstick import Yardstick, allowed_by_all
from onefit.numerics import UNRELIABLE, resolution

FACTORS_HELD = 4.0  # matrices as large as K that have to fit
LENGTHS = np.geomspace(0.5, 8.0, 17)  # of steps by the average curvature, which is too stiff for most rows


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
    without = without_tenths(fit, apart=apart)
    known = _covariates(rows, yardstick, without)
    held = int(np.count_nonzero(yardstick.weights))
    m, most = min(FIRST_SAMPLE, ENOUGH * known.shape[1]), held if fit.is_kinked else int(MOST * held)
    for _ in range(LOOKS):
        drawn = _drawn(rows, yardstick, known, min(m, most))
        eta = rows.taken(without, drawn.rows)
        found = LeftOut(fit, eta, np.full(len(eta), np.inf), rows.leverages, np.ones(len(eta)))
        told = _correction(found, yardstick, known, drawn, without)
        off = told.error / allowed_by_all(found, yardstick)
        wanted = rows.enough(off, m, (max_error, max(max_error, UNRELIABLE * of_mean)))
        m = min(wanted, held)
        if m <= len(drawn.rows):
            break
        if m > most and _holds_factor(fit):
            return None
    alone = np.setdiff1d(drawn.rows, rows.lone)
    return replace(found, correction=told, solved=rows.solved, stepped=alone, failed=rows.lone)


def _drawn(rows: RowsAlone, yardstick: Yardstick, known: Array, m: int) -> Draw:
    """So many rows or a few more: those without which there is no solution are among them."""
    which, chance = drawn_by(known[:, :2], yardstick.weights, random_order(rows.fit), m)
    chance[rows.lone] = 1.0
    which = np.union1d(which, rows.lone[yardstick.weights[rows.lone] > 0])
    return Draw(which, chance[which])


def _holds_factor(fit: Fit) -> bool:
    """Whether there is memory for K, its factor and its inverse."""
    return FACTORS_HELD * 8.0 * float(coordinates(fit)) ** 2 < memory()


def _covariates(rows: RowsAlone, yardstick: Yardstick, without: Array) -> Array:
    """Losses of all rows in the fit, without tenths and after steps; and which output each pulls up."""
    fit, pulled, everyone = rows.fit, rows.pulled, np.arange(rows.fit.problem.n)
    known = [yardstick.losses(everyone, eta) for eta in (fit.eta, without)]
    if has_average(fit):
        known.append(_as_long_as_tenths(fit, yardstick, _stepped(rows) - fit.eta, known[1], pulled))
    return np.column_stack([*known, pulled[:, None] == np.unique(pulled)[1:]])


def _stepped(rows: RowsAlone) -> Array:
    """Predictors after steps by the average curvature, where that takes less than the rows it saves."""
    takes_less = cost_of_average(rows.fit).seconds < FIRST_SAMPLE * rows.seconds_each
    return step_by_average(rows.fit) if takes_less else step_by_diagonal(rows.fit)


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
    finest = resolution(mean, allowed_by_all(found, yardstick))
    rows = Drawn(drawn.rows, drawn.probabilities, before)
    return Correction(mean - float(weights @ losses), max(reach * error, finest), 1.0, drawn=rows)

"""What is too dear to refine is sampled: a few sets solved anew, drawn at random, correct the mean.

Every set that is not bounded well enough has a chance of being drawn, in proportion to what it may change;
those of the largest effect are taken for certain.  The difference estimator (``audit``) gives the mean and
its 95 % interval, whatever the approximation is worth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onefit._typing import Array
from onefit.curvature import Direction
from onefit.leave_out import LeftOut
from onefit.leave_out.refit import Anew, refit_cost, refit_sets
from onefit.leave_out.result import Correction
from onefit.leave_out.yardstick import Yardstick
from onefit.risk.audit import audit, draw

FEWEST, MOST = 30, 400  # sets that a sample takes
SECONDS = 4.0  # that it may take beyond the fewest


def sampled(left_out: LeftOut, yardstick: Yardstick, rng: int = 0) -> LeftOut:
    """Correct the mean loss where values are left of which nothing is known.

    Values that were drawn become those of their refits.
    """
    fit, bounds = left_out.fit, left_out.bounds.copy()
    unknown = np.zeros(left_out.count, dtype=bool)
    unknown[left_out.fold[~np.isfinite(bounds)]] = True
    unknown[left_out.failed] = False
    rough = np.flatnonzero(unknown)
    if rough.size < 2 or fit.problem.self_concordance() is None:
        return left_out
    weights = yardstick.weights[left_out.rows]
    totals = np.bincount(left_out.fold, weights, left_out.count).astype(np.float64)
    before = _means(left_out, yardstick, fit.eta[left_out.rows], totals)
    after = _means(left_out, yardstick, left_out.eta, totals)
    m = int(np.clip(SECONDS / refit_cost(fit).seconds, FEWEST, min(MOST, rough.size)))
    drawn = draw(np.where(unknown, after - before, 0.0)[rough], totals[rough], m, np.random.default_rng(rng))
    numbers = rough[drawn.rows].tolist()
    anew = _refits(left_out, numbers)
    eta = left_out.eta.copy()
    for k, one in anew.items():
        eta[left_out.values_of(k)], bounds[left_out.values_of(k)] = one.eta, one.bounds
    refitted = _means(left_out, yardstick, eta, totals)[numbers]
    refitted[[k not in anew for k in numbers]] = np.nan
    found = audit(after[rough], drawn, refitted, totals[rough])
    share = float(totals[rough].sum() / totals.sum())
    known = _means(left_out, yardstick, eta, totals) - after  # what is in the corrected values already
    already = float(totals @ np.where(np.isfinite(known), known, 0.0) / totals.sum())
    half = 0.5 * (found.interval[1] - found.interval[0])
    rest = np.where(np.isfinite(bounds), bounds, 0.0)
    proven = float(weights @ yardstick.spread(left_out.rows, eta, rest) / weights.sum())
    correction = Correction(share * found.difference - already, share * half + proven, len(anew))
    done = np.union1d(left_out.anew, np.array(sorted(anew), dtype=np.intp)).astype(np.intp)
    return replace(left_out, eta=eta, bounds=bounds, anew=done, correction=correction)


def _refits(left_out: LeftOut, numbers: list[int]) -> dict[int, Anew]:
    sets = left_out.sets
    removed = {k: np.array([k]) if sets is None else sets.removed[k] for k in numbers}
    judged = {k: np.array([k]) if sets is None else sets.tested[k] for k in numbers}
    starts = {k: Direction(one.coef, one.intercept) for k, one in left_out.solved.items()}
    return refit_sets(left_out.fit, removed, judged, starts)


def _means(left_out: LeftOut, yardstick: Yardstick, eta: Array, totals: Array) -> Array:
    """Mean loss of each set at some linear predictors: (f,)."""
    weights = yardstick.weights[left_out.rows]
    losses = yardstick.losses(left_out.rows, eta)
    sums = np.bincount(left_out.fold, np.where(weights > 0, weights * losses, 0.0), left_out.count)
    return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)

"""Steps whose leverages are estimates: what these leave open, by the jackknife over the probes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from onefit._typing import Array, Index
from onefit.curvature import Iterated
from onefit.curvature.iterated import PROBES
from onefit.curvature.products import CLOSELY, SHARPLY
from onefit.fit import Fit
from onefit.leave_out.draws import NEGLIGIBLE
from onefit.leave_out.result import LeftOut
from onefit.leave_out.step import Step
from onefit.leave_out.yardstick import Yardstick
from onefit.numerics import CONFIDENCE, TINY

GROUPS = 16  # of probes, that are left out in turn
BY_PROBES = 0.5  # share of the error that may be left which probes may make up: the rest is for a sample
SHARE = 0.25  # of what an error may be: by the penalty alone it is told as some times as large


class Doubt(NamedTuple):
    """What is off since leverages are estimates."""

    bias: float  # of the mean
    error: float  # of the mean, one standard error
    values: Array  # the same of each linear predictor: (n,)

    @property
    def half(self) -> float:
        """Of the interval; where leverages are near 1 the jackknife tells the bias too large."""
        return abs(self.bias) + float(stdtrit(GROUPS - 1, 0.5 + 0.5 * CONFIDENCE)) * self.error


def estimate_of(step: Step | None) -> Iterated | None:
    """The curvature of a step whose leverages are estimates."""
    known = None if step is None else step.curvature
    return known if isinstance(known, Iterated) else None


def doubt_of_probes(fit: Fit, step: Step, found: LeftOut, yardstick: Yardstick) -> Doubt:
    """What steps by estimates are off by (Efron and Stein 1981), but for rows that were solved."""
    estimate = estimate_of(step)
    assert estimate is not None
    group, share = np.arange(estimate.probes) % GROUPS, GROUPS - 1.0
    steps = (step._replace(forms=estimate.forms_by(group != k)) for k in range(GROUPS))
    solved = np.isin(np.arange(fit.problem.n), np.union1d(found.stepped, found.anew))
    etas = np.array([np.where(solved, found.eta, one.taken(fit).eta) for one in steps])
    means = np.array([_mean(eta, yardstick) for eta in etas])
    bias = share * (means.mean() - _mean(found.eta, yardstick))
    return Doubt(float(bias), float(np.sqrt(share * means.var())), np.sqrt(share * etas.var(axis=0)))


def as_close_as_asked(
    fit: Fit, step: Step, found: LeftOut, yardstick: Yardstick, room: float
) -> tuple[Step, LeftOut]:
    """The step by more probes, where few leave too much of the room open, but for rows that were solved.

    Single rows are then solved for as closely as what all of them change of the mean asks for.
    """
    estimate, doubt = estimate_of(step), doubt_of_probes(fit, step, found, yardstick)
    assert estimate is not None
    changed = abs(_mean(found.eta, yardstick) - _mean(fit.eta, yardstick))
    error = SHARE * NEGLIGIBLE * room / max(changed, TINY)
    error = min(CLOSELY, max(SHARPLY, error))
    times = (doubt.half / max(BY_PROBES * room, TINY)) ** 2
    if estimate.probes >= PROBES or times <= 1.0:
        return step._replace(curvature=estimate.with_probes(estimate.probes, error)), found
    probes = GROUPS * int(np.ceil(min(times * estimate.probes, PROBES) / GROUPS))
    anew = Step.of(fit, estimate.with_probes(probes, error))
    taken, once = anew.taken(fit), found.stepped_once(found.solved)
    eta = np.where(once, taken.eta, found.eta)
    return anew, replace(found, eta=eta, leverages=taken.leverages, slack=taken.slack)


def _mean(eta: Array, yardstick: Yardstick) -> float:
    weights = yardstick.weights
    losses = yardstick.losses(np.arange(len(eta)), eta)
    return float(weights @ np.where(weights > 0, losses, 0.0) / weights.sum())


def sharpened(fit: Fit, step: Step, found: LeftOut, which: Index) -> LeftOut:
    """Steps of some rows with leverages that are solved for."""
    estimate = estimate_of(step)
    assert estimate is not None
    forms, eta = step.forms.copy(), found.eta.copy()
    response = estimate.answers_of(which)
    forms[which] = estimate.predict(response)[which, np.arange(len(which))]
    anew = step._replace(forms=forms).taken(fit)
    eta[which] = anew.eta[which]
    return replace(found, eta=eta, leverages=anew.leverages, slack=anew.slack)

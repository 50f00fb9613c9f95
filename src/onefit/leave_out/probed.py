"""Steps whose leverages are estimates: what these leave open, by the jackknife over the probes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index
from onefit.curvature import Iterated
from onefit.curvature.iterated import PROBES
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut
from onefit.leave_out.step import Step
from onefit.leave_out.yardstick import Yardstick

GROUPS = 16  # of probes, that are left out in turn


class Doubt(NamedTuple):
    """What is off since leverages are estimates."""

    bias: float  # of the mean
    error: float  # of the mean, one standard error
    values: Array  # the same of each linear predictor: (n,)


def estimate_of(step: Step | None) -> Iterated | None:
    """The curvature of a step whose leverages are estimates."""
    known = None if step is None else step.curvature
    return known if isinstance(known, Iterated) else None


def doubt_of_probes(fit: Fit, step: Step, found: LeftOut, yardstick: Yardstick) -> Doubt:
    """What steps by estimates are off by (Efron and Stein 1981), but for rows that were solved."""
    estimate = estimate_of(step)
    assert estimate is not None
    group, share = np.arange(PROBES) % GROUPS, GROUPS - 1.0
    steps = (step._replace(forms=estimate.forms_by(group != k)) for k in range(GROUPS))
    solved = np.isin(np.arange(fit.problem.n), np.union1d(found.stepped, found.anew))
    etas = np.array([np.where(solved, found.eta, one.taken(fit).eta) for one in steps])
    means = np.array([_mean(eta, yardstick) for eta in etas])
    bias = share * (means.mean() - _mean(found.eta, yardstick))
    return Doubt(float(bias), float(np.sqrt(share * means.var())), np.sqrt(share * etas.var(axis=0)))


def _mean(eta: Array, yardstick: Yardstick) -> float:
    weights = yardstick.weights
    losses = yardstick.losses(np.arange(len(eta)), eta)
    return float(weights @ np.where(weights > 0, losses, 0.0) / weights.sum())


def sharpened(fit: Fit, step: Step, found: LeftOut, which: Index) -> LeftOut:
    """Steps of some rows with leverages that are solved for."""
    estimate = estimate_of(step)
    assert estimate is not None
    forms, eta = step.forms.copy(), found.eta.copy()
    forms[which] = estimate.forms_of(which)
    anew = step._replace(forms=forms).taken(fit)
    eta[which] = anew.eta[which]
    return replace(found, eta=eta, leverages=anew.leverages, slack=anew.slack)

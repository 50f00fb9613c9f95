"""Losses of a fit as bounds of what they are without each row: no factor, no leverages.

If θ minimises F and θ̃ does without the loss ℓ of a row, F(θ) ≤ F(θ̃) and F(θ̃) − ℓ(θ̃) ≤ F(θ) − ℓ(θ), so that
ℓ(θ) ≤ ℓ(θ̃), whatever loss and penalty are.  A strength whose losses are far above the smallest risk as they
are is none to choose, and asks for nothing else.
"""

from __future__ import annotations

import numpy as np

from onefit._typing import Array
from onefit.curvature import CoupledBlock, cost_of_average
from onefit.leave_out.factor_free import TENTHS, go_together, rough_cost
from onefit.metrics import LinearMetric
from onefit.metrics.base import LossMetric
from onefit.solvers.newton import Solution
from onefit.solvers.truncated import Seconds
from onefit.tuning.sample import Verdict


def is_bounded_from_below(solution: Solution, metric: LinearMetric, target: Array) -> bool:
    """Whether rows leave nothing but their losses, as the metric has them, and a factor takes longer.

    About what they are the average curvature of coupled outputs tells.
    """
    (fit, K), problem = solution, solution.fit.problem
    if not isinstance(K, CoupledBlock) or K.is_factored or not problem.refits_keep_the_rest:
        return False
    same = isinstance(metric, LossMetric) and metric.loss(fit.eta) == problem.loss
    tenths = np.inf if go_together(fit) else TENTHS * rough_cost(fit)  # which go by the factor
    otherwise = min(Seconds.of(fit).factored, tenths)
    return same and cost_of_average(fit).seconds < otherwise and np.array_equal(target, problem.y)


def from_below(inside: Array, about: Array) -> Verdict:
    """What losses of rows in the fit, and about those without them, (n,) each, say of a strength."""
    return Verdict(np.maximum(inside, about), np.zeros(len(inside)), np.inf, least=inside)

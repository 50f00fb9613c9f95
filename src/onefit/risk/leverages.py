"""Leverages d_i h_i of a fit by its own curvature, whose sum are its degrees of freedom.

A refit may have less of the penalty than the fit, the share s = 1 − 1/n of it beside a mean loss, and steps
of single rows rest on K_s = Zᵀ D Z + s C for that.  Degrees of freedom of the fit are with all of C (Hastie,
Tibshirani and Friedman 2009, section 7.6).  By K_s ⪯ K ⪯ K_s/s no leverage with K_s is below that with K, or
exceeds it by more than a share 1/(n − 1).
"""

from __future__ import annotations

from dataclasses import replace

from onefit._typing import Array
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out import LeftOut
from onefit.leave_out.step import leverages_of

TOLD = 1e-4  # share of a leverage that makes no difference


def with_own_leverages(left_out: LeftOut) -> LeftOut:
    """The same with the leverages of the fit, where those of single rows are of refits.

    They are left as they are where the difference is less than what they are told to: with very many rows,
    or as estimates.

    Parameters
    ----------
    left_out : LeftOut
    """
    fit = left_out.fit
    shrink = fit.curvature_shrink
    are_own = left_out.sets is not None or shrink == 1.0 or fit.problem.loss.has_kinks
    if are_own or left_out.doubt is not None or 1.0 - shrink < TOLD:
        return left_out
    return replace(left_out, leverages=own_leverages(fit))


def own_leverages(fit: Fit) -> Array:
    """Those with all of the penalty: (n,)."""
    return leverages_of(fit, factor(fit).quadratic_forms())

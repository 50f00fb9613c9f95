"""Losses and penalties in the words of cvxpy."""

from __future__ import annotations

import numpy as np

from onefit.losses import (
    EpsilonInsensitive,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Mixture,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    Tweedie,
)
from onefit.penalties import (
    AnalysisPenalty,
    Box,
    GroupPenalty,
    LInfinity,
    NuclearNorm,
    SeparablePenalty,
    Slope,
    Sum,
)


def _sign(y):
    return 2.0 * y - 1.0


def _saturated(y):
    """What the loss of counts is at its least."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(y > 0, y * np.log(y) - y, 0.0)


LOSSES = {
    Squared: lambda cp, _, y, eta: 0.5 * cp.square(y - eta),
    Logistic: lambda cp, _, y, eta: cp.logistic(cp.multiply(-_sign(y), eta)),
    Poisson: lambda cp, _, y, eta: cp.exp(eta) - cp.multiply(y, eta) + _saturated(y),
    Gamma: lambda cp, _, y, eta: eta + cp.multiply(y, cp.exp(-eta)),
    Hinge: lambda cp, _, y, eta: cp.pos(1 - cp.multiply(_sign(y), eta)),
    SquaredHinge: lambda cp, _, y, eta: cp.square(cp.pos(1 - cp.multiply(_sign(y), eta))),
    SmoothedHinge: lambda cp, loss, y, eta: (
        cp.huber(cp.pos(1 - cp.multiply(_sign(y), eta)), loss.width) / (2 * loss.width)
    ),
    Huber: lambda cp, loss, y, eta: 0.5 * cp.huber(y - eta, loss.delta),
    Quantile: lambda cp, loss, y, eta: cp.maximum(loss.level * (y - eta), (loss.level - 1) * (y - eta)),
    EpsilonInsensitive: lambda cp, loss, y, eta: cp.pos(cp.abs(y - eta) - loss.epsilon),
    SquaredEpsilonInsensitive: lambda cp, loss, y, eta: cp.square(cp.pos(cp.abs(y - eta) - loss.epsilon)),
    Mixture: lambda cp, loss, y, eta: sum(
        w * losses_of(cp, own, y, eta) for w, own in zip(loss.shares, loss.losses, strict=True)
    ),
}


def _kind(loss):
    if isinstance(loss, Tweedie):
        return {(1.0, "log"): Poisson, (2.0, "log"): Gamma, (0.0, "identity"): Squared}.get(
            (loss.power, loss.link), Tweedie
        )
    return type(loss)


def is_written(loss):
    """Whether a loss is among them."""
    return _kind(loss) in LOSSES


def losses_of(cp, loss, y, eta):
    """Losses of rows."""
    return LOSSES[_kind(loss)](cp, loss, y, eta)


def terms_of(cp, penalty, coef):
    """Terms of the objective, and constraints."""
    if isinstance(penalty, Sum):
        terms, constraints = terms_of(cp, penalty.rest, coef)
        return terms + terms_of(cp, penalty.quadratic, coef)[0], constraints
    if isinstance(penalty, Box):
        l1 = np.broadcast_to(np.asarray(penalty.l1, dtype=np.float64), coef.shape)
        return l1 @ cp.abs(coef), _bounds(coef, *penalty.bounds(coef.shape))
    return _term(cp, penalty, coef), []


def _bounds(coef, lower, upper):
    below, above = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
    constraints = [coef[below] >= lower[below]] if below.size else []
    return [*constraints, *([coef[above] <= upper[above]] if above.size else [])]


def _term(cp, penalty, coef):
    p = coef.shape[0]
    match penalty:
        case SeparablePenalty():
            l1, l2 = penalty.strengths((p,))
            return l1 @ cp.abs(coef) + 0.5 * (l2 @ cp.square(coef))
        case AnalysisPenalty():
            return penalty.alpha * cp.norm1(penalty.matrix(p).toarray() @ coef)
        case Slope():
            falls = -np.diff(np.append(penalty.weights, 0.0))
            largest = [cp.sum_largest(cp.abs(coef), k + 1) * f for k, f in enumerate(falls) if f > 0]
            return penalty.alpha * sum(largest)
        case LInfinity():
            return penalty.alpha * cp.norm_inf(coef)
        case NuclearNorm():
            return penalty.alpha * cp.normNuc(cp.reshape(coef, penalty.shape, order="C"))
        case GroupPenalty():
            l1, strengths = penalty.strengths()
            norms = [cp.norm2(coef[np.flatnonzero(penalty.membership == g)]) for g in range(penalty.count)]
            return l1 * cp.norm1(coef) + sum(s * n for s, n in zip(strengths, norms, strict=True))
    raise TypeError(penalty)

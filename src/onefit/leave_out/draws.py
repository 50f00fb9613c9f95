"""Sets drawn at random with known probabilities, and what differences at them say about a sum over all.

With losses φ̃_i known for every row and exact ones φ_i for the rows drawn, row i with probability π_i,

    R̂ = (1/W) Σ_i w_i φ̃_i + (1/W) Σ_{i drawn} w_i (φ_i − φ̃_i) / π_i,      W = Σ w

is the difference estimator (Särndal, Swensson and Wretman 1992, Model Assisted Survey Sampling, §6.3): its
mean over all draws is the exact risk however wrong φ̃ is, and its error shrinks with that of φ̃.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from onefit._typing import Array, Index, Mask
from onefit.numerics import CONFIDENCE, EPS, TINY

FEWEST_DF = 2.0  # degrees of freedom that a variance is granted even if one draw makes it
NEGLIGIBLE = 0.1  # share of the error that is wanted which sets outside a sample may make up
SIZES = 20  # of a sample between which one is chosen
LOOKS = 3  # at a sample, which grows twice if it turns out too small
AT_A_LOOK = 1.0 - (1.0 - CONFIDENCE) / LOOKS  # confidence of each, so that all of them together have it
MOST = 0.5  # share of the sets beyond which a sample does not grow: all are solved
REACH = 3.0  # errors that the interval of a larger sample reaches, and room for an error known roughly


@dataclass(frozen=True)
class Draw:
    """Rows to refit.

    Attributes
    ----------
    rows : (r,) int array
        Distinct, in ascending order.
    probabilities : (r,) array
        With which probability each was to be drawn: 1 for a row that every draw contains.
    """

    rows: Index
    probabilities: Array


def draw(correction: Array, weights: Array, m: int, rng: np.random.Generator) -> Draw:
    """Draw m rows without replacement, half in proportion to the size of their correction.

    The probability of row i is proportional to w_i (|correction_i| + mean |correction|), capped at 1: no row
    counts more than about twice what it would in a uniform draw (the defensive mixture of Hesterberg
    1995), and rows that matter most are refitted for certain.  Systematic sampling in random order keeps
    these probabilities exactly and never draws a row twice (Madow 1949; Särndal et al. 1992, §3.6).

    Parameters
    ----------
    correction : (n,) array
        By how much leaving the row out is thought to change its loss, φ(η̃_i) − φ(η_i); for a model without
        a formula the training loss φ(η_i) itself.  A row without a finite value is drawn if m allows it.
    weights : (n,) array
        Rows of weight 0 are never drawn.
    m : int
        At least 2; if it is the number of weighted rows or more, all of them are drawn.
    rng : numpy.random.Generator

    Returns
    -------
    Draw

    Raises
    ------
    ValueError
        If m is less than 2.
    """
    if m < 2:
        raise ValueError(f"an audit needs at least 2 rows to tell its error, got {m}")
    held, probabilities = _probabilities(correction, weights, m)
    certain = np.flatnonzero(probabilities == 1.0)
    order = rng.permutation(np.flatnonzero(probabilities < 1.0))
    ends = np.concatenate([[0.0], np.cumsum(probabilities[order])])
    ends[-1] = np.rint(ends[-1])
    chosen = np.sort(np.concatenate([certain, order[np.diff(np.floor(ends + rng.random())) > 0]]))
    return Draw(held[chosen], probabilities[chosen])


def draw_alike(correction: Array, weights: Array, m: int, lots: Array) -> Draw:
    """Draw m rows as ``draw`` does, nearly the same as any other draw by the same lots.

    Of a small draw and a larger one, or of draws by corrections that differ little, most rows are then in
    both, and what was solved for one serves the other.  Row i comes before others by its lot u_i in the
    order of u/(1 − u) · (1 − π)/π (Pareto sampling; Rosén 1997, with the permanent random numbers of Brewer,
    Early and Joyce 1972): it is then drawn with probability π_i but for terms of order 1/m, of which the
    interval of a sample takes no notice.

    Parameters
    ----------
    correction, weights, m
        As ``draw`` takes them.
    lots : (n,) array
        Uniform random numbers between 0 and 1.
    """
    held, probabilities = _probabilities(correction, weights, m)
    lots, chance = np.clip(lots[held], EPS, 1.0 - EPS), np.clip(probabilities, TINY, 1.0)
    late = lots / (1.0 - lots) * ((1.0 - chance) / chance)
    chosen = np.sort(np.argsort(late, kind="stable")[: min(m, len(held))])
    return Draw(held[chosen], probabilities[chosen])


def _probabilities(correction: Array, weights: Array, m: int) -> tuple[Index, Array]:
    """Rows that can be drawn, and with which probability each is one of m."""
    held = np.flatnonzero(weights > 0)
    return held, _chances_by(_size(np.abs(correction[held]), weights[held], m), m)


def expected_spread(correction: Array, weights: Array, m: int) -> float:
    """Standard error of the sum over m rows drawn by ``draw``, if each changes by what that is drawn by.

    √Σ (1 − π_i)/π_i (w_i Δ_i)²: 0 where all rows are drawn, and that of rows drawn for certain is none.
    """
    held = np.flatnonzero(weights > 0)
    size = _size(np.abs(correction[held]), weights[held], m)
    probabilities = _chances_by(size, m)
    return float(np.sqrt(np.sum((1.0 - probabilities) / probabilities * size**2)))


def _size(correction: Array, weights: Array, m: int) -> Array:
    """What each row is thought to contribute to the error of the risk, and a floor: (n,), positive."""
    finite = np.isfinite(correction)
    total = weights[finite] @ correction[finite]
    floor = total / weights[finite].sum() if total > 0 else 1.0
    size = weights * (np.where(finite, correction, 0.0) + floor)
    size[~finite] = m * size.sum()
    return size


def _chances_by(size: Array, m: int) -> Array:
    return chances((size,), np.ones(len(size)), m)


def wanting(errors: Array, room: float) -> Mask:
    """Sets of which a sample is drawn: all but those that together leave next to nothing: (t,)."""
    order = np.argsort(errors, kind="stable")
    found = np.empty(len(errors), dtype=bool)
    found[order] = ~(np.cumsum(errors[order]) <= NEGLIGIBLE * room)
    return found


def size_for(error: float, expected: Callable[[int], float], fewest: int, most: int) -> int:
    """How many sets to draw until an interval is expected to reach no farther than an error, at most all."""
    sizes = np.unique(np.geomspace(fewest, most, SIZES).astype(int)).tolist()
    return int(next((m for m in sizes if REACH * expected(m) <= error), sizes[-1]))


def alike(weights: Array, rows: Index) -> Array:
    """Probabilities with which some of the rows with weight were drawn, all alike: (n,)."""
    return np.where(weights > 0, np.count_nonzero(weights[rows]) / np.count_nonzero(weights), 0.0)


def chances(parts: Sequence[Array], weights: Array, m: int) -> Array:
    """Probabilities with which m rows are drawn where several things may say how much each matters: (n,).

    Each part has an equal share of the draws, in proportion to itself and the weights, among the rows that
    are not certain to be drawn: one that is far out takes nothing from the others.
    """
    probabilities = np.where(weights > 0, 1.0, 0.0)
    rest = weights > 0
    while (left := m - np.count_nonzero((probabilities == 1.0) & ~rest)) < rest.sum():
        size = np.zeros(len(weights))
        for part in parts:
            own = np.where(rest, weights * part, 0.0)
            size += own / max(float(own.sum()), TINY)
        share = left * size / max(float(size.sum()), TINY)
        certain = rest & (share >= 1.0 - 1e-9)
        if not certain.any():
            return np.where(rest, share, probabilities)
        rest &= ~certain
    return probabilities


def drawn_by(covariates: Array, weights: Array, order: Index, count: int) -> tuple[Index, Array]:
    """So many rows as a sample takes them, (m,), and with which chance each row was to be drawn, (n,).

    A third of the draws is for what a step changes, one for what the risk is made of, and one for all rows
    alike.  Rows are in the same order at every strength but for what they matter there.
    """
    inside, stepped = covariates.T
    change = np.abs(stepped - inside)
    largest = np.max(change, where=np.isfinite(change), initial=0.0)
    change = np.where(np.isfinite(change), change, len(change) * max(largest, TINY))
    chance = chances((change, inside, np.ones(len(change))), weights, count)
    late = (np.argsort(order) + 0.5) / np.maximum(chance, EPS)
    return np.argsort(np.where(chance == 1.0, 0.0, late), kind="stable")[:count], chance


def deviations(expanded: Array, chance: Array) -> Array:
    """Share of each draw in the error of a sum of expanded differences: their norm is its standard error.

    ``chance`` is 1 − π.  A single draw by chance tells no variance; its square is too large a one on average.
    """
    free = chance > 0
    q = int(np.count_nonzero(free))
    if q < 2:
        return np.where(free, expanded, 0.0)
    middle = float(chance[free] @ expanded[free] / chance[free].sum())
    return np.where(free, np.sqrt(chance * (q / (q - 1))) * (expanded - middle), 0.0)


def spread(expanded: Array, chance: Array, confidence: float) -> tuple[float, float]:
    """Standard error of a sum of expanded differences, and the quantile that goes with it."""
    own = deviations(expanded, chance)
    error = float(np.linalg.norm(own))
    if not error > 0:
        return 0.0, 0.0
    shares = (own / error) ** 2
    df = max(1.0 / float(shares @ shares), FEWEST_DF)
    return error, float(stdtrit(df, 0.5 + 0.5 * confidence))


def lean(expanded: Array, chance: Array, quantile: float) -> float:
    """By how many standard errors more a sum may be off on the side to which differences are skewed.

    (2q² + 1) κ/6, positive upwards: of t the next term after the normal one (Hall 1992, section 2.4), with κ
    the third moment of the sum over the cube of its standard error.
    """
    own = deviations(expanded, chance)
    error = float(np.linalg.norm(own))
    return float(np.sum((own / error) ** 3)) * (2.0 * quantile**2 + 1.0) / 6.0 if error > 0 else 0.0


def unseen(off: Array, effect: Array, drawn: Draw, confidence: float) -> float:
    """What rows that were not drawn may change: a small share of what is thought, as wrong as any that was.

    Parameters
    ----------
    off : (r,) array
        How far those drawn were off, as shares of the mean.
    effect : (n,) array
        By how much each may be off, as shares of the mean.
    """
    by_chance = int(np.count_nonzero(drawn.probabilities < 1.0))
    if by_chance == 0:
        return 0.0
    others = np.ones(len(effect), dtype=bool)
    others[drawn.rows] = False
    off, thought = np.abs(off), effect[drawn.rows]
    wrong = np.divide(np.minimum(off, thought), thought, out=(off > 0).astype(float), where=thought > 0)
    share = 1.0 - (1.0 - confidence) ** (1.0 / by_chance)
    return share * float(np.max(wrong, initial=0.0)) * float(effect[others].sum())

"""The strengths of a path, and how far it goes beyond them.

An automatic path begins where the data say that a penalty starts to matter, and ends where the risk ends:
while the risk still falls at one of its ends, strengths are added there.  A path that was given is taken as
it is, with a warning where it was too short.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Mask
from onefit.exceptions import ShortPathWarning
from onefit.tuning.selection import smallest_of_each

PATIENCE, DECADES = 5, 1.0  # strengths, or decades, past the best one before a path may stop
# Decades between strengths at first where neither loss nor penalty has kinks: the risk goes from one limit
# to the other within two to four, and what is beside the smallest is visited all the same.
SMOOTH = 0.8
APART = 0.3  # the same where it jumps as columns come and go, and a judgement takes more than the fit
FAR = 2.0  # decades past the best one from which on a coarse path gains no more strengths
CLEARLY_WORSE = 2.0  # paired standard errors by which the risk must have risen by then
WORTH_STOPPING = 0.1  # share of the risk by which it must have risen where no strength beats the strongest
# The risk falls at an end if the last decade took this share off it.  Near its limit, with no penalty or
# nothing but the penalty, it goes like the strength or faster, so that a ninth of that share is left.
FALL = 1e-3
NOTHING_LEFT = 1e-6  # of the largest risk: what is left of it is noise of the arithmetic, not of the data
MOST_DECADES = 8.0  # that are added at an end while the risk falls
# The same while columns have more to say: squares of some in thousandths and in millions are as far apart.
DECADES_OF_UNITS = 16.0
# Share of the risk that the last decade of a given path must have taken off it for a warning.
WORTH_A_WARNING = 1e-2
BEYOND_CHANCE = 2.0  # paired standard errors, for the same
BY_CHANCE = 0.05  # share of many responses whose risk may fall so far without a warning


@dataclass(frozen=True)
class Grid:
    """Strengths of a path, strongest penalty first, on whatever scale the estimator has.

    Attributes
    ----------
    values : (J,) array
        Evenly spaced in the logarithm unless they were given.
    automatic : bool
        Whether strengths may be added.
    strongest : float or None
        What no strength that is added may go beyond: where all coefficients are zero.
    apart : float
        Decades between strengths that are visited at first, where the risk between them is smooth.
    """

    values: Array
    automatic: bool = False
    strongest: float | None = None
    apart: float = 0.0

    @property
    def step(self) -> float:
        """Strengths per decade, the inverse of the spacing of their logarithms; 1 where none may be added."""
        if not self._may_grow:
            return 1.0
        return (len(self.values) - 1) / max(abs(float(np.log10(self.values[-1] / self.values[0]))), 1e-12)

    @property
    def decade(self) -> int:
        """Strengths that are added at a time: those of a decade."""
        return max(int(np.ceil(self.step)), 1)

    @property
    def _may_grow(self) -> bool:
        return self.automatic and len(self.values) > 1

    @property
    def weaker(self) -> Array:
        """Strengths that may be added past the weakest, going on from it."""
        return self.values[-1] * self._ratios(DECADES_OF_UNITS)

    @property
    def stronger(self) -> Array:
        """Strengths that may be added past the strongest, going on from it."""
        decades = MOST_DECADES
        if self.strongest is not None:
            decades = min(decades, abs(float(np.log10(self.strongest / self.values[0]))))
        return self.values[0] / self._ratios(decades)

    def _ratios(self, decades: float) -> Array:
        """Ratios of strengths that are added to the one at the end: so many decades of them, or none."""
        if not self._may_grow:
            return np.empty(0)
        ratio = float((self.values[-1] / self.values[0]) ** (1.0 / (len(self.values) - 1)))
        return np.asarray(ratio ** np.arange(1, int(decades * self.step + 1e-9) + 1))

    def reaching(self, above: int, below: int) -> Array:
        """All strengths, with so many more past the strongest and past the weakest."""
        return np.concatenate([self.stronger[:above][::-1], self.values, self.weaker[:below]])

    def falls_below(self, risks: Array) -> Mask:
        """Whether the risk, (..., J), still falls at the weak end of a path that has come this far: (...)."""
        added = risks.shape[-1] - len(self.values)
        return _falls(risks, self.step) & (self.weaker.size > 0) & (added < MOST_DECADES * self.step)

    def has_more_below(self, risks: Array) -> Mask:
        """Whether it may go on from there for another reason: more than noise is left of the risk: (...)."""
        return (risks[..., -1] > _nothing(risks)[..., 0]) & (self.weaker.size > 0)

    def falls_above(self, risks: Array) -> Mask:
        """Whether the risk still falls at the strong end."""
        return _falls(risks[..., ::-1], self.step) & (self.stronger.size > 0)


def _falls(risks: Array, step: float) -> Mask:
    """Whether the risk falls at the end of the last axis, or has not risen for long enough to tell."""
    best = smallest_of_each(risks)[..., None]
    least = np.take_along_axis(risks, best, axis=-1)
    before = np.take_along_axis(risks, np.maximum(best - max(round(step), 1), 0), axis=-1)
    near = risks.shape[-1] - 1 - best < min(PATIENCE, max(FAR * step, 1.0))
    return (near & (before - least > np.maximum(FALL * least, _nothing(risks))))[..., 0]


def _nothing(risks: Array) -> Array:
    """What is noise of the arithmetic beside the largest of the last axis, which is kept."""
    return np.asarray(NOTHING_LEFT * np.where(np.isnan(risks), -np.inf, risks).max(axis=-1, keepdims=True))


def warn_if_short(name: str, strengths: Array, risks: Array, paired_errors: Array) -> None:
    """Warn if the risk falls beyond chance at an end of strengths that were given.

    Parameters
    ----------
    name : str
        What the strengths are called.
    strengths : (J,) array
        Strongest penalty first.
    risks, paired_errors : (J,) or (J, t) arrays
        Of several responses, more than chance alone would give must fall at an end.
    """
    for end, at in (("strongest", 0), ("weakest", -1)):
        short = _is_short(strengths, risks.T, paired_errors.T, at)
        if np.mean(short) <= BY_CHANCE:
            continue
        own = strengths[at]
        which = "" if short.ndim == 0 else f" for {np.count_nonzero(short)} of {short.size} targets"
        warnings.warn(
            f"the risk still falls at the {end} penalty of the {name} given, {own:.3g}{which}: add "
            f"{'larger' if own == strengths.max() else 'smaller'} values, or give {name} as a "
            "whole number for a path that ends where the risk does",
            ShortPathWarning,
            stacklevel=5,
        )


def _is_short(strengths: Array, risks: Array, paired_errors: Array, at: int) -> Mask:
    """Whether risks (..., J) fall beyond chance at the first or the last strength: (...)."""
    inner = 1 if at == 0 else -2
    if len(strengths) < 2:
        return np.zeros(risks.shape[:-1], dtype=bool)
    decades = abs(float(np.log10(strengths[inner] / strengths[at]))) if strengths.min() > 0 else np.inf
    fall, own = risks[..., inner] - risks[..., at], risks[..., at]
    at_end = smallest_of_each(risks) == at % len(strengths)
    beyond = (fall > BEYOND_CHANCE * paired_errors[..., inner]) & (
        fall > WORTH_A_WARNING * max(decades, 1e-12) * own
    )
    return at_end & beyond & np.isfinite(risks).all(axis=-1)

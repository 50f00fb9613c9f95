"""The strengths of a path, and how far it goes beyond them.

An automatic path begins where the data say that a penalty starts to matter, and ends where the risk ends:
while the risk still falls at one of its ends, strengths are added there.  A path that was given is taken as
it is, with a warning where it was too short.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from onefit._typing import Array
from onefit.exceptions import ShortPathWarning

PATIENCE, DECADES = 5, 1.0  # strengths, or decades, past the best one before a path may stop
FAR = 2.0  # decades past the best one from which on a coarse path gains no more strengths
CLEARLY_WORSE = 2.0  # paired standard errors by which the risk must have risen by then
# The risk falls at an end if the last decade took this share off it.  Near its limit, with no penalty or
# nothing but the penalty, it goes like the strength or faster, so that a ninth of that share is left.
FALL = 1e-3
NOTHING_LEFT = 1e-6  # of the largest risk: what is left of it is noise of the arithmetic, not of the data
MOST_DECADES = 8.0  # that are added at an end
# Share of the risk that the last decade of a given path must have taken off it for a warning.
WORTH_A_WARNING = 1e-2
BEYOND_CHANCE = 2.0  # paired standard errors, for the same


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
    """

    values: Array
    automatic: bool = False
    strongest: float | None = None

    @property
    def step(self) -> float:
        """Strengths per decade, the inverse of the spacing of their logarithms; 1 where none may be added."""
        if not self._may_grow:
            return 1.0
        return (len(self.values) - 1) / max(abs(float(np.log10(self.values[-1] / self.values[0]))), 1e-12)

    @property
    def _may_grow(self) -> bool:
        return self.automatic and len(self.values) > 1

    @property
    def room_below(self) -> int:
        """How many strengths may be added past the weakest."""
        return int(MOST_DECADES * self.step) if self._may_grow else 0

    @property
    def room_above(self) -> int:
        """How many strengths may be added past the strongest."""
        decades = MOST_DECADES
        if self.strongest is not None:
            decades = min(decades, abs(float(np.log10(self.strongest / self.values[0]))))
        return int(decades * self.step + 1e-9) if self._may_grow else 0

    def below(self, count: int) -> Array:
        """So many strengths past the weakest, going on from it."""
        return self.values[-1] * self._ratio ** np.arange(1, count + 1)

    def above(self, count: int) -> Array:
        """So many strengths past the strongest, going on from it."""
        return self.values[0] / self._ratio ** np.arange(1, count + 1)

    @property
    def _ratio(self) -> float:
        """Of one strength to the one before; 1 where none may be added."""
        if not self._may_grow:
            return 1.0
        return float((self.values[-1] / self.values[0]) ** (1.0 / (len(self.values) - 1)))

    def falls_below(self, risks: Array) -> bool:
        """Whether the risk still falls at the weak end of a path that has come this far."""
        return self.room_below > 0 and _falls(risks, self.step)

    def falls_above(self, risks: Array) -> bool:
        """Whether the risk still falls at the strong end."""
        return self.room_above > 0 and _falls(risks[::-1], self.step)


def _falls(risks: Array, step: float) -> bool:
    """Whether the risk falls at the end of this list, or has not risen for long enough to tell."""
    if len(risks) < 2 or np.all(np.isnan(risks)):
        return False
    best = int(np.nanargmin(risks))
    if len(risks) - 1 - best >= min(PATIENCE, max(FAR * step, 1.0)):
        return False
    fall = risks[max(best - max(round(step), 1), 0)] - risks[best]
    return bool(fall > max(FALL * risks[best], NOTHING_LEFT * np.nanmax(risks)))


def warn_if_short(name: str, strengths: Array, risks: Array, paired_errors: Array) -> None:
    """Warn if the risk falls beyond chance at an end of strengths that were given.

    Parameters
    ----------
    name : str
        What the strengths are called.
    strengths, risks, paired_errors : (J,) arrays
        Strongest penalty first.
    """
    if len(risks) < 2 or not np.all(np.isfinite(risks)):
        return
    best = int(risks.argmin())
    if 0 < best < len(risks) - 1:
        return
    inner = 1 if best == 0 else best - 1
    decades = abs(float(np.log10(strengths[inner] / strengths[best]))) if strengths.min() > 0 else np.inf
    fall = float(risks[inner] - risks[best])
    if fall > BEYOND_CHANCE * paired_errors[inner] and fall > WORTH_A_WARNING * max(decades, 1e-12) * float(
        risks[best]
    ):
        end = "strongest" if best == 0 else "weakest"
        warnings.warn(
            f"the risk still falls at the {end} penalty of the {name} given, {strengths[best]:.3g}: add "
            f"{'larger' if strengths[best] == strengths.max() else 'smaller'} values, or give {name} as a "
            "whole number for a path that ends where the risk does",
            ShortPathWarning,
            stacklevel=5,
        )

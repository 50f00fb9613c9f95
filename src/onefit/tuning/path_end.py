"""Where a path ends: once its risk is clearly past the minimum, or the rest takes next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit.cost import UNNOTICED
from onefit.curvature.iterated import cost_along_path
from onefit.leave_out.factor_free import apart_cost
from onefit.numerics import TINY
from onefit.risk.means import mean_and_error
from onefit.solvers.path import goes_through
from onefit.solvers.solve import solve
from onefit.solvers.truncated import Seconds
from onefit.tuning.grid import (
    APART,
    CLEARLY_WORSE,
    DECADES,
    PATIENCE,
    WORTH_STOPPING,
    Grid,
)
from onefit.tuning.looks import FIRST_ROWS, Looks
from onefit.tuning.pulls import largest_by_chance, largest_pull, usual_by_chance
from onefit.tuning.sample import judged
from onefit.tuning.seen_path import SeenPath


@dataclass(eq=False)
class PathEnd:
    """Whether a path has gone far enough.

    Attributes
    ----------
    grid : Grid
    seen : SeenPath
    judge : callable
        Judges strengths, by their places, of which nothing but bounds is known.
    """

    grid: Grid
    seen: SeenPath
    judge: Callable[[list[int]], None]
    is_past: bool = False  # as it was when that was last asked

    @property
    def apart(self) -> float:
        """Decades to the next strength that is visited: none on a path that goes through all of them."""
        visited = self.seen.visited
        return 0.0 if visited and goes_through(visited[-1]) else self.grid.apart

    @cached_property
    def _looks(self) -> Looks:
        return self.seen.looks

    def is_past_minimum(self) -> bool:
        """Whether the last risk is clearly above the smallest one."""
        last = len(self.seen.risks) - 1
        told = [j for j in judged(self.seen.verdicts) if j not in self.seen.bracketed]
        best = min(told, key=self.seen.risks.__getitem__) if last in told else self.seen.least
        far = last >= best + PATIENCE or self.seen.decades(best, last) >= DECADES
        far = far and not self._is_nearly_through(last - best)
        guessed = best == last and self.seen.decades(max(told, default=0), last) >= DECADES  # by bounds
        if (far or guessed) and (loose := [j for j in {best, last} if j in self.seen.bracketed]):
            self.judge(loose)
            return self.is_past_minimum()
        if self.seen.verdicts[last] is not None and not self.is_past and far:
            rise, error, miss = self.seen.rise(best, last)
            is_clear = bool(rise > CLEARLY_WORSE * np.hypot(error, miss))
            wanting = [j for j in (best, last) if self._is_wanting(j, is_clear=is_clear)]
            if rise > CLEARLY_WORSE * error and wanting:
                return self._closer(wanting) and self.is_past_minimum()
            self.is_past = is_clear and self._matters(best, rise)
        return self.is_past

    def _is_nearly_through(self, waited: int) -> bool:
        """Whether the rest of the grid is no more than what was waited past the best, or next to nothing.

        A risk may fall again, as past the strength at which there are as many parameters as rows.
        """
        rest = len(self.grid.values) - len(self.seen.fits)
        return rest > 0 and (rest <= waited or self._cost_of_the_rest() <= UNNOTICED)

    def _matters(self, best: int, rise: float) -> bool:
        """Whether something better than the strongest penalty was found, or the risk rose by a share of it.

        Near the constant model all strengths predict alike, and a rise is certain long before it matters:
        columns of smaller size may have all of their say yet.  As they may have elsewhere, which shows where
        one is far more like the residuals than by chance.
        """
        gain, error, miss = self.seen.rise(best, 0)
        found = gain > CLEARLY_WORSE * np.hypot(error, miss)
        matters = found or rise > WORTH_STOPPING * self.seen.risks[best]
        return bool(matters) and self._largest_pull() <= largest_by_chance(self.seen.visited[-1].coef.size)

    def _largest_pull(self) -> float:
        """Largest product of a column with the gradient of the last fit, in standard errors."""
        fit = self.seen.visited[-1]
        own = mean_and_error(self._looks.judgement.losses_in(fit), self.seen.weights)[0]
        return largest_pull(fit, float(np.sqrt(min(max(own, 0.0) / max(self.seen.risks[-1], TINY), 1.0))))

    def is_at(self) -> bool:
        """Whether a path that may go on need not."""
        if self.is_past:
            return True
        risks = np.array(self.seen.risks)
        if self.grid.falls_below(risks):
            return False
        return not (self.grid.has_more_below(risks) and self._has_more_to_say())

    def _has_more_to_say(self) -> bool:
        """Whether a column may have, on which the penalty lies heavier than on others in larger units."""
        return self._largest_pull() > usual_by_chance(self.seen.visited[-1].coef.size)

    def _cost_of_the_rest(self) -> float:
        """Seconds that the strengths of the grid take that are still to come, and judging them, about."""
        visited = self.seen.visited
        before, fit = [*visited[:1], *visited][-2:]
        rest = self.grid.values[len(self.seen.fits) :]
        decades = abs(float(np.log10(rest[-1] / self.seen.strengths[-1]))) if rest.size else 0.0
        judging = min(rest.size, np.ceil(decades / max(APART, self.grid.apart)))
        visits = min(rest.size, np.ceil(decades / self.apart)) if self.apart else rest.size
        fits = visits * min(cost_along_path(fit, before.coef).seconds, apart_cost(fit))
        return fits + judging * self._looks.seconds_at_first(fit)

    def _is_wanting(self, place: int, *, is_clear: bool) -> bool:
        """Whether a strength is to be judged better before a path ends by it, even if a rise seems clear.

        What a step alone tells, of which nothing is known, ends no path where some rows tell.
        """
        known = self.seen.verdicts[place]
        if known is None:
            return False
        if known.left_out:
            return not is_clear and 0 < known.seen < len(known.losses)
        return not np.isfinite(known.error) and self._looks.is_sampled(self.seen.fit(place))

    def _closer(self, places: list[int]) -> bool:
        """Judge strengths better, where that takes less than the rest of the path; whether it did."""
        if sum(map(self._unseen_cost, places)) >= self._cost_of_the_rest():
            return False
        for place in places:
            self._see_more(place)
        return True

    def _unseen_cost(self, place: int) -> float:
        """Seconds that the rows take which were not left out in tenths, or those of a sample."""
        known, fit = self.seen.verdicts[place], self.seen.fit(place)
        if known is None or not known.seen:
            return Seconds.of(fit).with_forms + self._looks.seconds(fit, FIRST_ROWS)
        return self._looks.seconds_by_tenths(fit, known)

    def _see_more(self, place: int) -> None:
        """Leave out what is left of the rows, where they leave in tenths; else a sample."""
        known, fit = self.seen.verdicts[place], self.seen.fit(place)
        if known is not None and known.seen:
            closer = self._looks.by_tenths(fit, None, len(known.losses), known)
        else:
            closer = self._looks.sample(solve(fit), FIRST_ROWS)
        self.seen.learn(place, closer)

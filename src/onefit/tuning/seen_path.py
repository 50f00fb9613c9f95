"""A path of strengths as far as it has come: the fit at each, and what is known of its risk."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onefit._typing import Array
from onefit.fit import Fit
from onefit.risk.means import mean_and_error
from onefit.solvers.newton import Solution
from onefit.tuning.looks import Looks
from onefit.tuning.sample import Verdict, judged
from onefit.tuning.selection import BAGGINGS, Selection, smallest


@dataclass
class SeenPath:
    """Strengths from the strongest to the weakest so far, and what was found there.

    Attributes
    ----------
    looks : Looks
        By which risks are told.
    selection : "bagged_se", "bagged", "min" or "1se"
        A bagged choice adds what is unseen to each risk.
    strengths : list of float
        One more than the others while a strength is solved and judged.
    fits : list of Fit or None
        None where a strength was passed over.
    verdicts : list of Verdict or None
        None where the strength before speaks for one.
    risks : list of float
        Of the last strength that was judged, where one was not; with what the choice adds.
    bracketed : dict
        By place, solutions of whose risk no more is known than bounds.
    """

    looks: Looks
    strengths: list[float] = field(default_factory=list)
    fits: list[Fit | None] = field(default_factory=list)
    verdicts: list[Verdict | None] = field(default_factory=list)
    risks: list[float] = field(default_factory=list)
    bracketed: dict[int, Solution] = field(default_factory=dict)
    selection: Selection = "min"

    def add(self, fit: Fit | None, verdict: Verdict | None, *, strongest: bool = False) -> None:
        """Take in what was found at the weakest strength so far, or at the strongest."""
        place = 0 if strongest else len(self.fits)
        self.bracketed = {j + strongest: solution for j, solution in self.bracketed.items()}
        self.fits.insert(place, fit)
        self.verdicts.insert(place, verdict)
        self.risks.insert(place, self.risks[-1] if verdict is None else self._risk(verdict))

    def learn(self, place: int, verdict: Verdict) -> None:
        """Take in what is known of a strength, and of those that it speaks for."""
        self.verdicts[place] = verdict
        stop = min((j for j in judged(self.verdicts) if j > place), default=len(self.risks))
        self.risks[place:stop] = [self._risk(verdict)] * (stop - place)

    def drop(self) -> None:
        """Forget the weakest strength, and what was found there."""
        self.strengths.pop()
        last = len(self.strengths)
        self.bracketed.pop(last, None)
        for known in (self.fits, self.verdicts, self.risks):
            del known[last:]

    def _risk(self, verdict: Verdict) -> float:
        risk = mean_and_error(verdict.losses, self.weights)[0]
        if self.selection not in BAGGINGS:
            return risk
        return risk + float(self.looks.judgement.unseen(verdict.losses[:, None])[0])

    @property
    def weights(self) -> Array:
        """Of what counts in a risk."""
        return self.looks.judgement.unit_weights

    @property
    def least(self) -> int:
        """Where the risk is smallest."""
        return smallest(np.array(self.risks))

    @property
    def least_but_bounds(self) -> int:
        """The same of strengths of which more is known than bounds: those may be anywhere between."""
        risks = np.array(self.risks)
        risks[list(self.bracketed)] = np.inf
        return smallest(risks)

    @property
    def visited(self) -> list[Fit]:
        """Fits at the strengths that were visited."""
        return [fit for fit in self.fits if fit is not None]

    def fit(self, place: int) -> Fit:
        """That of a strength that was visited."""
        fit = self.fits[place]
        assert fit is not None
        return fit

    @property
    def coefficients(self) -> tuple[Array, Array]:
        """Coefficients and intercepts of all strengths, (J, p) or (J, p, c) and (J,) or (J, c)."""
        one = self.visited[0]
        missing = np.full(one.coef.shape, np.nan), np.full(np.shape(one.intercept), np.nan)
        known = [missing if fit is None else (fit.coef, fit.intercept) for fit in self.fits]
        coefs, levels = (np.stack(each) for each in zip(*known, strict=True))
        return coefs, levels

    def rise(self, best: int, last: int, losses: Array | None = None) -> tuple[float, float, float]:
        """How far a risk, or that of other losses, is above another, its error, and that of rows not seen."""
        known = judged(self.verdicts)  # the first of several that share a risk is
        held, other = known[best], known[last]
        own = other.losses if losses is None else losses
        rise, error = mean_and_error(own - held.losses, self.weights)
        return rise, error, float(np.linalg.norm(other.misses - held.misses))

    def decades_since_judged(self) -> float:
        """How far the last strength is from the last one that was judged; infinite where none was."""
        places = list(judged(self.verdicts))
        return self.decades(places[-1], -1) if places else np.inf

    def decades(self, one: int, other: int) -> float:
        """How far two strengths are apart."""
        return abs(float(np.log10(self.strengths[one] / self.strengths[other])))

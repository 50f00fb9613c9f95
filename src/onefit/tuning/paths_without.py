"""Sets of rows that leave every fit of a path of the lasso: each set has a path of its own.

The next fit without a set begins at the last one without it, with its factor, and few columns come and go
between two strengths.  From the fit with all rows as many may as a set of rows changes, and where the
support is nearly as large as the sample they go round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onefit import _linalg, cost
from onefit.cost import Work
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.leave_out.engine import affordable_for
from onefit.leave_out.refit import judged_at
from onefit.leave_out.sets import Folds
from onefit.penalties import SeparablePenalty
from onefit.solvers.path import LeastSquaresPath
from onefit.solvers.solve import solve
from onefit.tuning.judgement import Judgement
from onefit.tuning.sample import Verdict

PRODUCTS = 8.0  # with X, of one more fit of a path and its proof
CALLS = 1000.0  # of NumPy, the same
HELD = 0.25  # share of the memory that active sets may fill


@dataclass(eq=False)
class PathsWithout:
    """Fits without each of some sets of rows, each from the one at the strength before.

    Attributes
    ----------
    judgement : Judgement
        With sets.
    at : list of LeastSquaresPath
        Where the path without each set has come to.
    """

    judgement: Judgement
    at: list[LeastSquaresPath] = field(default_factory=list)

    def judged(self, fit: Fit) -> Verdict:
        """What all sets say of a strength, by ``fit`` or from there."""
        return self.verdict(fit) or self.judgement.verdict(self.judgement.thoroughly(solve(fit)))

    def verdict(self, fit: Fit) -> Verdict | None:
        """What refits without all sets say of a strength; None where these are others' business."""
        sets = self.judgement.sets
        if sets is None or not self._serve(fit, sets):
            return None
        self.at = self.at or [LeastSquaresPath() for _ in range(len(sets))]
        eta, bounds = np.empty((2, len(sets.rows)))
        for k, path in enumerate(self.at):
            try:
                one = judged_at(path.next(fit.problem.without(sets.removed[k])), sets.tested[k])
            except SolverError:
                return None
            if one.several or not np.isfinite(one.bounds).all():
                return None
            eta[sets.place(k)], bounds[sets.place(k)] = one.eta, one.bounds
        losses, off = self.judgement.losses_of(sets.rows, eta), self.judgement.spread(sets.rows, eta, bounds)
        return Verdict(losses, np.zeros(len(losses)), off, proven=True) if np.isfinite(off) else None

    def _serve(self, fit: Fit, sets: Folds) -> bool:
        """Whether refits are least squares with kinks, of single coefficients, and not too many."""
        problem = fit.problem
        separable = isinstance(problem.penalty, SeparablePenalty) and _linalg.has_columns(problem.X)
        if not separable or not problem.loss.is_quadratic or problem.loss.is_kinked:
            return False
        if not problem.has_one_output or not fit.is_kinked or fit.has_free_directions:
            return False
        k = min(problem.X.shape)
        held = 8.0 * len(sets) * k * (problem.n + k)
        return held <= HELD * cost.memory() and self._seconds(fit, sets) <= affordable_for(fit)

    def _seconds(self, fit: Fit, sets: Folds) -> float:
        """About what one more strength takes."""
        k, stored = max(1, fit.tangent.size), _linalg.as_columns(fit.problem.X).n_stored
        return Work(PRODUCTS * stored + 2.0 * k**2, CALLS).times(len(sets)).seconds

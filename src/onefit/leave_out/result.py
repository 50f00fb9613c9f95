"""What is known of every row's left-out linear predictor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._linalg import FewerColumns
from onefit._typing import Array, Index, Mask, Sets
from onefit.fit import Fit
from onefit.leave_out.sets import Folds
from onefit.numerics import CERTIFIED, LITTLE_SLACK
from onefit.problem import Problem


class SolvedWithout(NamedTuple):
    """What solves the problem without a row."""

    eta: Array  # the left-out value of the row: () or (c,)
    coef: Array  # (p,) or (p, c)
    intercept: Array  # () or (c,)


class SolvedWithoutSet(NamedTuple):
    """What solves the problem without a set of rows."""

    eta: Array  # of the rows that are judged: (b,) or (b, c)
    bounds: Array  # how far each of these may be off: (b,)
    coef: Array
    intercept: Array
    several: bool = False  # others are as good

    def of_rows(self, judged: Index) -> SolvedWithoutSet:
        """The same of which fewer rows are judged."""
        return self._replace(eta=self.eta[judged], bounds=self.bounds[judged])


@dataclass(frozen=True)
class Refinement:
    """How left-out values were found, in rows (or sets).

    Attributes
    ----------
    certified : int
        The first step was proven to be the refit, to numerical precision.
    bounded : int
        The first step has an error bound, and nothing more was needed.
    pivoted : int
        Followed along the exact path, one pivot a change of the active pattern.
    stepped : int
        Steps were repeated.
    refitted : int
        Solved anew.
    rough : int
        The first step, of which nothing is known.
    failed : int
        Without which the problem has no solution: they keep the approximation.
    """

    certified: int
    bounded: int = 0
    pivoted: int = 0
    stepped: int = 0
    refitted: int = 0
    rough: int = 0
    failed: int = 0

    def __str__(self) -> str:
        counts = {name: count for name, count in self.__dict__.items() if count}
        return ", ".join(f"{count} {name}" for name, count in counts.items())


def _no_rows() -> Index:
    return np.empty(0, dtype=np.intp)


class Drawn(NamedTuple):
    """Sets that were drawn at random and solved, and what was known of all values before."""

    sets: Index  # (m,), numbers of the sets
    chances: Array  # (m,), with which each was drawn
    before: Array  # (t,) or (t, c), linear predictors


class Correction(NamedTuple):
    """What refits of a few rows, drawn at random, say about the mean loss of all."""

    difference: float  # to be added to the mean
    error: float  # half the width of its 95 % confidence interval
    tightness: float  # the largest share of its bound that a value was off by
    step_error: float = np.inf  # the largest share of a step, of which nothing was known, that it was off by
    drawn: Drawn | None = None


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The linear predictor of every judged row when its set of rows is left out.

    Attributes
    ----------
    fit : Fit
    eta : (t,) or (t, c) array
        Left-out linear predictors η̃.
    bounds : (t,) array
        How far each may be off; infinite where nothing is known.
    leverages : (n,) array
        d_i h_i in [0, 1] of single rows, the mean over independent outputs; the trace of D_i H_i, in [0, c],
        for coupled ones.
    slack : (f,) array
        1 − d_i h_i of each set; the smallest eigenvalue of I − D_G H_GG; 1 where none was divided by.
    sets : Folds or None
        None where every row leaves alone.
    solved : dict of int to SolvedWithout
        Left-out parameters of the single rows that were solved anew, iterated or followed.
    pivoted, stepped, anew, failed : int arrays
        Numbers of the sets that were followed, iterated, solved anew, or that have no refit.
    several : int array
        Numbers of the sets whose refit has several optima: the middle one, and bounds that reach to all.
    correction : Correction or None
        Set where what was too dear to refine was sampled.
    doubt : (t,) array or None
        Standard errors of steps whose leverages are estimates.
    """

    fit: Fit
    eta: Array
    bounds: Array
    leverages: Array
    slack: Array
    sets: Folds | None = None
    solved: dict[int, SolvedWithout] = field(default_factory=dict)
    pivoted: Index = field(default_factory=_no_rows)
    stepped: Index = field(default_factory=_no_rows)
    anew: Index = field(default_factory=_no_rows)
    failed: Index = field(default_factory=_no_rows)
    several: Index = field(default_factory=_no_rows)
    correction: Correction | None = None
    doubt: Array | None = None

    @property
    def count(self) -> int:
        """Number of sets."""
        return len(self.eta) if self.sets is None else len(self.sets)

    @cached_property
    def rows(self) -> Index:
        """The row that each value is for: (t,)."""
        return np.arange(len(self.eta)) if self.sets is None else self.sets.rows

    @property
    def removed(self) -> Sets | None:
        """Rows of each set, or None where every row leaves alone."""
        return None if self.sets is None else self.sets.removed

    @property
    def fold(self) -> Index:
        """Number of the set that each value's row leaves with: (t,)."""
        return self.rows if self.sets is None else self.sets.fold

    @property
    def refitted(self) -> Index:
        """Single rows whose left-out parameters are known: (r,)."""
        return np.array(sorted(self.solved), dtype=np.intp)

    @property
    def effective_df(self) -> float:
        """Σ d_i h_i, the effective degrees of freedom; the mean over independent outputs."""
        return float(self.leverages.sum())

    @cached_property
    def size(self) -> float:
        """Size of linear predictors: the largest in the fit, or of a Newton step where they vanish."""
        eta = self.fit.eta
        if (largest := float(max(eta.max(initial=0.0), -eta.min(initial=0.0)))) > 0:
            return largest
        bend = float(np.linalg.norm(self.fit.hessian))
        return float(np.linalg.norm(self.fit.gradient)) / bend if bend > 0 else 0.0

    @cached_property
    def certified(self) -> Mask:
        """Values whose bound is within numerical precision: (t,)."""
        return self.bounds <= CERTIFIED * self.size

    @property
    def likely_bounds(self) -> Array:
        """Bounds, as tight as a sample found the ones that it could check: (t,).

        Where nothing bounds a step it is as wrong as a sample found others to be, if that tells.
        """
        if self.correction is None:
            return self.bounds
        known, step = np.isfinite(self.bounds), self.eta - self.fit.eta[self.rows]
        share = self.correction.step_error
        off = share * np.abs(step).reshape(len(step), -1).max(axis=1) if share < np.inf else np.inf
        return np.where(known, self.correction.tightness * np.where(known, self.bounds, 0.0), off)

    def in_far_columns(self, fit: Fit, means: Array) -> LeftOut:
        """The same of columns that are so far from zero.

        Parameters
        ----------
        fit : Fit
            That in those columns.
        means : (p,) array
        """
        solved = {
            i: one._replace(intercept=one.intercept - means @ one.coef) for i, one in self.solved.items()
        }
        return replace(self, fit=fit, solved=solved)

    def in_columns(self, problem: Problem, fewer: FewerColumns) -> LeftOut:
        """The same of coefficients of all columns, from fewer coordinates.

        Parameters
        ----------
        problem : Problem
            That of the columns.
        fewer : FewerColumns
        """
        coef = fewer.coefficients(self.fit.coef)
        fit = Fit(problem, coef, self.fit.intercept).known(eta=self.fit.eta)
        solved = {i: one._replace(coef=fewer.coefficients(one.coef)) for i, one in self.solved.items()}
        return replace(self, fit=fit, solved=solved)

    def stepped_once(self, iterated: Iterable[int]) -> Mask:
        """Values after a first step alone, where besides what is told here these sets were iterated: (t,)."""
        done = [self.stepped, self.anew, self.pivoted, self.failed, np.array([*iterated], dtype=np.intp)]
        return ~np.isin(self.fold, np.concatenate(done))

    @property
    def trusted(self) -> Array:
        """Share of the step of each set that is trusted: (f,), as if none had less slack than a little."""
        return np.clip(self.slack / LITTLE_SLACK, 0.0, 1.0)

    def shortened(self, shares: Array) -> Array:
        """Values had steps been shares, (t,), as long: (t,) or (t, c)."""
        step = self.eta - self.fit.eta[self.rows]
        return self.eta - _linalg.row_times(1.0 - shares, step)

    @property
    def refinement(self) -> Refinement:
        """How the values were found."""
        worst = np.zeros(self.count)
        np.maximum.at(worst, self.fold, self.bounds)
        rest = np.ones(self.count, dtype=bool)
        rest[np.concatenate([self.pivoted, self.stepped, self.anew, self.failed])] = False
        certified = rest & (worst <= CERTIFIED * self.size)
        bounded = rest & ~certified & np.isfinite(worst)
        rough = int(rest.sum() - certified.sum() - bounded.sum())
        return Refinement(
            certified=int(certified.sum()),
            bounded=int(bounded.sum()),
            pivoted=len(self.pivoted),
            stepped=len(self.stepped),
            refitted=len(self.anew),
            rough=rough,
            failed=len(self.failed),
        )

    def values_of(self, k: int) -> slice | int | Index:
        """Where the values of set k stand."""
        if self.sets is None:
            return slice(k, k + 1)
        return self.sets.place(k)

    @property
    def order(self) -> Index | slice:
        """Order of the values: that of the rows, where each row is judged once."""
        return slice(None) if self.sets is None else self.sets.order


def joined(known: Index, more: Sequence[int] | Index) -> Index:
    """Numbers of sets, and those of others."""
    return np.union1d(known, np.asarray(more, dtype=np.intp)).astype(np.intp)

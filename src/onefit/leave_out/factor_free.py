"""Rows that leave together, by fits without a factor of their own: rough values, where a factor takes longer.

Where coefficients are far fewer than rows, all such fits go on together from the one with all rows, by its
factor: a step of each is a product with X and one with Xᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index
from onefit.cost import IN_A_SOLVER, Work
from onefit.curvature import Curvature, Direction, factor
from onefit.fit import Fit, once
from onefit.leave_out.chords import MAX_STEPS, USUAL_STEPS, FoldProblems, goes_by_coefficients
from onefit.leave_out.coef_steps import EndsOfSteps, OfFit, Roughly, steps_in_coefficients
from onefit.leave_out.row_order import random_order
from onefit.problem import Problem
from onefit.solvers import by_column, coordinate_descent, on_pattern
from onefit.solvers.by_column import SomeColumns
from onefit.solvers.path import approached, are_apart_squares
from onefit.solvers.solve import solve
from onefit.solvers.truncated import FITS, ROUGH, Seconds, ServingFactor, WithoutFactor, approach

# Times that a factor must take longer than fits without one: what these tell is rougher.  Of one output it is
# made in single precision from products of the rows that all strengths share, in a fifth of what is told.
DEARER, DEARER_OF_SEVERAL = 20.0, 2.0
LITTLE = 0.05  # of the way of predictors, that may be left: in the mean loss it is far less than rows differ
SHARP_ENOUGH = 1e-8  # error of steps that fits of parts may still wait for
SWEEPS = 100  # of a step, at most, where the next one has a better model
SHARE = 1e-3  # of the longest step, that the last one of fits that go on together may be
MIXED = 12  # of their steps, which a factor that is off by a tenth of the rows makes slow
MOST_HELD = 2**22  # coefficients of fits without parts that are kept: 64 MiB with their places
USUAL_PASSES = 12.0  # over all rows, in which these settle
PARTS = 10  # of the rows, each of which leaves together
TENTHS = 2  # of them, by which a strength is looked at first
USUAL_TENTHS = 4.0  # by which it is told in the end: most are out of the race after the first


def parts_of(order: Index) -> list[Index]:
    """Tenths of the rows in their random order: the same ones for all fits to these rows."""
    return np.array_split(order, PARTS)


def is_dear_to_factor(fit: Fit, fits: int) -> bool:
    """Whether a factor of K, and with it a step for every row, takes far longer than so many fits without."""
    times = DEARER_OF_SEVERAL if fit.problem.is_coupled else DEARER
    takes = Seconds.of(fit)
    return takes.factored > times * fits * takes.factor_free


@once
def goes_by_column(fit: Fit) -> bool:
    """Whether ``left_out_roughly`` goes by coordinate descent, which asks for no curvature."""
    return coordinate_descent.is_possible(fit)


def go_together(fit: Fit) -> bool:
    """Whether fits without some rows each go on together from the one with all, by a factor for some fits."""
    if not fit.is_smooth or not goes_by_coefficients(fit):
        return False
    apart = apart_cost(fit) + Work(calls=USUAL_STEPS * IN_A_SOLVER).seconds
    return Seconds.of(fit).factored / FITS + PARTS * together_cost(fit) < USUAL_TENTHS * apart


def together_cost(fit: Fit) -> float:
    """Seconds of the steps of a fit that goes together with others, with a factor at hand, about."""
    problem, k = fit.problem, max(1, fit.tangent.size)
    stored, outputs = _linalg.as_columns(problem.X).n_stored, problem.n_outputs
    return USUAL_PASSES * Work(2.0 * stored * outputs + float(k) ** 2, 0.0, 1.2 * problem.n * outputs).seconds


def apart_cost(fit: Fit) -> float:
    """Seconds that a fit from one with other rows takes, without a factor where there is a way."""
    takes = Seconds.of(fit)
    return min(takes.factor_free, takes.by_factor, takes.factored)


@once
def rough_cost(fit: Fit) -> float:
    """Seconds that ``left_out_roughly`` takes for each part, about."""
    if are_apart_squares(fit):
        return sum(map(rough_cost, fit.apart))
    if goes_by_column(fit):
        return coordinate_descent.work(fit, fit.tangent.size).seconds
    return together_cost(fit) if go_together(fit) else apart_cost(fit)


def take_less_than_bounds(fit: Fit) -> bool:
    """Whether fits without each of all parts take less than a bound for every row.

    Both ask for a factor; bounds for the optimum to machine precision, too, and for the form of every row.
    """
    k = max(1, fit.tangent.size)
    bounds = Seconds.of(fit).factored + Work(float(fit.problem.n) * k * k).seconds
    return go_together(fit) and PARTS * rough_cost(fit) < bounds


class _Shift(NamedTuple):
    """How far a fit without a part is from the one with all rows.

    Attributes
    ----------
    inside : (k,) int array
        Places of the coefficients that differ.
    values : (k,) array
        By how much.
    level : array
        The same of the intercept.
    length : float
        In the norm of K, about; zero where nobody told.
    """

    inside: Index
    values: Array
    level: Array
    length: float = 0.0

    @classmethod
    def of(cls, coef: Array, level: Array) -> _Shift:
        """That of coefficients and intercepts."""
        inside = np.flatnonzero(coef)
        return cls(inside, coef.flat[inside], level)

    @classmethod
    def to_end(cls, refits: FoldProblems, end: EndsOfSteps, j: int, eta: Array) -> _Shift:
        """To where steps without a fold came, and the predictors of its rows."""
        fit, rows = refits.fit, refits.removed[j]
        coef, level = end.coef[..., j] - fit.coef, end.intercept[..., j] - fit.intercept
        of_penalty = (1.0 - refits.keeps[j]) * np.vdot(fit.tangent.gradient, coef)
        square = np.vdot(fit.gradient[rows], eta - fit.eta[rows]) + of_penalty  # −∇F(fit) along it
        return cls.of(coef, level)._replace(length=float(np.sqrt(max(square, 0.0))))

    def coef(self, shape: tuple[int, ...]) -> Array:
        """Of all coefficients."""
        coef = np.zeros(shape)
        coef.flat[self.inside] = self.values
        return coef


NO_SHIFT = _Shift(np.array([], dtype=np.intp), np.array([]), np.array(0.0))


@dataclass(eq=False)
class FitsWithout:
    """Fits without parts of the rows along a path, as near to their optima as a risk asks for.

    The next one without a part begins as far from the fit with all rows as the last one was: between
    strengths that changes little, while all fits bend to a weaker penalty together.

    Attributes
    ----------
    last : dict
        By their rows, how far the last fit without each part was from the one with all rows, where all these
        take little room.
    design : object
        X of the fits: what was found in other columns or coordinates is forgotten.
    columns : SomeColumns or None
        Its columns, where steps on patterns go by products of them.
    serving : ServingFactor
        By which the last parts that left together went.
    outputs : list of FitsWithout
        Those of each output, where nothing ties them together.
    """

    last: dict[bytes, _Shift] = field(default_factory=dict)
    design: Any = None
    columns: SomeColumns | None = None
    serving: ServingFactor | None = None
    outputs: list[FitsWithout] = field(default_factory=list)

    def complete(
        self, apart: Array, fit: Fit, curvature: Curvature | None, parts: Sequence[Index], least: int = PARTS
    ) -> None:
        """Put in the linear predictors of parts, each of which leaves together, that are missing.

        Those of the first ones at least, and of the others if steps take all of them there together.
        """
        missing = [bool(np.isnan(apart[part]).any()) for part in parts]
        todo = [part for part, is_missing in zip(parts, missing, strict=True) if is_missing]
        found = self.left_out_roughly(fit, curvature, todo, least=sum(missing[:least]))
        for part, eta in zip(todo, found, strict=False):
            apart[part] = eta

    def left_out_roughly(
        self,
        fit: Fit,
        curvature: Curvature | None,
        parts: Sequence[Index],
        little: float = LITTLE,
        least: int | None = None,
    ) -> list[Array]:
        """Linear predictors of parts of the rows, each of which leaves together: of all, or of the first."""
        if self.design is not fit.problem.X:
            self.design, self.last, self.serving, self.columns = fit.problem.X, {}, None, None
        if are_apart_squares(fit):
            return self._left_out_by_output(fit, parts[:least], little)
        if parts and go_together(fit):
            return self._left_out_together(fit, curvature or factor(fit), parts, least)
        return [self._left_out_apart(fit, curvature, part, little) for part in parts[:least]]

    def _left_out_by_output(self, fit: Fit, parts: Sequence[Index], little: float) -> list[Array]:
        """The same of outputs that nothing ties together."""
        self.outputs = self.outputs or [FitsWithout() for _ in fit.apart]
        pairs = zip(self.outputs, fit.apart, strict=True)
        each = [own.left_out_roughly(one, None, parts, little) for own, one in pairs]
        return [np.stack(etas, axis=1) for etas in zip(*each, strict=True)]

    def _left_out_apart(
        self, fit: Fit, curvature: Curvature | None, rows: Index, little: float = LITTLE
    ) -> Array:
        """Predictors of rows that leave together, by a fit without a factor where there is a way."""
        start = coordinate_descent.levelled(fit_of_others(fit, rows))
        if self.columns is None and by_column.pays(start):
            self.columns = SomeColumns.of(fit.problem.X)
        found = _approached(start, self._begun(start, rows), curvature, rows, little, self.columns)
        shift = _Shift.of(found.coef - fit.coef, found.intercept - fit.intercept)
        self._keep(found.problem, rows.tobytes(), shift)
        return found.eta[rows]

    def _keep(self, problem: Problem, part: bytes, shift: _Shift) -> None:
        """Keep how far the fit of a part is from that of all rows, where it has an end."""
        if not _has_optimum(problem):
            return
        self.last.pop(part, None)
        held = sum(len(one.values) for one in self.last.values())
        if held + len(shift.values) <= MOST_HELD:
            self.last[part] = shift

    def _begun(self, start: Fit, rows: Index) -> Fit:
        """A fit with all rows, or as far from there as the last one without some, if that is better."""
        known = self.last.get(rows.tobytes())
        if known is None:
            return start
        ahead = Fit(start.problem, start.coef + known.coef(start.coef.shape), start.intercept + known.level)
        ahead = coordinate_descent.levelled(ahead)
        return ahead if ahead.objective < start.objective else start

    def _left_out_together(
        self, fit: Fit, curvature: Curvature, parts: Sequence[Index], least: int | None
    ) -> list[Array]:
        """Predictors of parts by steps with a factor; one by one where these do not settle."""
        refits, serving = FoldProblems.without(fit, curvature, parts), self._factor_for(fit, curvature)
        known = [self.last.get(part.tobytes(), NO_SHIFT) for part in parts]
        end = self._stepped(refits, serving, curvature, known)
        if not end.settled.all() and not curvature.is_factored:  # by its own they may
            own = curvature.without_loan
            end = self._stepped(refits, ServingFactor(own), own, [NO_SHIFT] * len(parts))
        found = []
        for j, rows in enumerate(parts if end.settled.all() else parts[:least]):
            if end.settled[j]:
                found.append(end.predictors_of(fit.problem.X, rows, j))
                others = fit_of_others(fit, rows).problem
                self._keep(others, rows.tobytes(), _Shift.to_end(refits, end, j, found[-1]))
            else:
                found.append(self._left_out_apart(fit, curvature, rows))
        return found

    def _factor_for(self, fit: Fit, curvature: Curvature) -> ServingFactor:
        """That of a fit before while it pays; that of this one, which may have to be made."""
        if self.serving is None:
            return ServingFactor(curvature)
        pays = self.serving.pays(Seconds.of(fit))
        return self.serving if pays else ServingFactor(curvature.without_loan)

    def _stepped(
        self, refits: FoldProblems, serving: ServingFactor, curvature: Curvature, known: list[_Shift]
    ) -> EndsOfSteps:
        """Where steps lead from shifts of the fit, by a factor that serves it."""
        fit, K = refits.fit, serving.curvature.lend_to(curvature)
        begun = Direction(
            np.stack([fit.coef + shift.coef(fit.coef.shape) for shift in known], axis=-1),
            np.stack([fit.intercept + shift.level for shift in known], axis=-1),
        )
        close = Roughly.of_folds(SHARE, np.array([shift.length for shift in known]))
        about = OfFit(K.for_steps)
        end = steps_in_coefficients(refits, about, close, begun, MAX_STEPS, mix=MIXED, in_single=True)
        serving.products.append(sum(end.passes))
        self.serving = serving
        return end


def without_tenths(fit: Fit, curvature: Curvature | None = None, apart: Array | None = None) -> Array:
    """Predictors of all rows, each by a fit without its tenth: of the shape of η.

    ``apart`` are those that are at hand, NaN elsewhere.
    """
    eta = np.full(fit.eta.shape, np.nan) if apart is None else apart.copy()
    FitsWithout().complete(eta, fit, curvature, parts_of(random_order(fit)))
    return eta


def _approached(
    start: Fit,
    begun: Fit,
    curvature: Curvature | None,
    rows: Index,
    little: float,
    columns: SomeColumns | None,
) -> Fit:
    """A fit near its optimum, without a factor where there is a way."""
    if columns is not None and by_column.pays(start):
        near = _by_patterns(start, begun, little, columns)
        if near is not None:
            return near
    sweeps = goes_by_column(start)
    if on_pattern.serves(curvature, start) and not (sweeps and _sweeps_take_less(start)):
        led = on_pattern.approach(begun, curvature, ROUGH)
        return solve(led.fit).fit if led.is_spent else led.fit
    if sweeps:
        return moved_by_column(start, rows, little, begun)
    near = approached(begun, curvature, ROUGH).fit
    return _ended(begun) if near is begun else near


def _has_optimum(problem: Problem) -> bool:
    """Whether something is left of every class: else fits run off for ever, the farther the more steps."""
    return bool(problem.attains_levels(problem.weights[:, None]).all())


def _ended(start: Fit) -> Fit:
    """The optimum, or, where there is none, where columns or steps lead."""
    if _has_optimum(start.problem):
        return solve(start).fit
    if goes_by_column(start):
        return start
    by_steps = Seconds.of(start).factor_free < np.inf
    return approach(start, WithoutFactor(start), ROUGH).fit if by_steps else solve(start).fit


def _sweeps_take_less(fit: Fit) -> bool:
    """Whether coordinate descent takes less than steps by the factor of a neighbour."""
    return coordinate_descent.work(fit, fit.tangent.size).seconds < on_pattern.cost_of_steps(fit).seconds


def fit_of_others(fit: Fit, rows: int | Index) -> Fit:
    """Where fits without some rows begin."""
    return Fit(fit.problem.without(rows), fit.coef, fit.intercept).known(eta=fit.eta)


def near_by(start: Fit, rows: Index, little: float) -> Fit:
    """A fit of coupled outputs with kinks, by Newton steps on patterns if these settle, else by columns."""
    near, is_there, *_ = on_pattern.approach(start, None, ROUGH)
    return near if is_there else moved_by_column(near, rows, little)


def _by_patterns(start: Fit, begun: Fit, little: float, columns: SomeColumns) -> Fit | None:
    """A fit of least squares with an ℓ2 part, by sweeps and steps on patterns: the gap tells."""
    close = little**2 * coordinate_descent.gap(start)

    def enough(fit: Fit) -> bool:
        return coordinate_descent.gap(fit) <= close

    return begun if enough(begun) else by_column.approach(begun, enough, columns)


def moved_by_column(start: Fit, rows: Index, little: float, begun: Fit | None = None) -> Fit:
    """A fit by sharper and sharper steps, until little of the way of some rows is left.

    Beside an ℓ2 part the duality gap tells.  Else it is how steps shrink, once they are nearer to the optimum
    than to the start by the gap, which is far too large there.  Coupled outputs move in turn, and go on until
    little of the gap is left, too: how they shrink does not tell.

    Parameters
    ----------
    start : Fit
        From where the way is measured.
    rows : (m,) int array
    little : float
    begun : Fit, optional
        A nearer one of the same problem, if there is one: it may do as it is.
    """
    begun = start if begun is None else begun
    gap = coordinate_descent.gap(start)
    close = little**2 * gap  # which goes as the square of the way
    if begun is not start and coordinate_descent.gap(begun) <= close:
        return begun
    before, here = start.eta[rows], begun.eta[rows]
    last = 0.0 if begun is start else None  # from a nearer one no more than a step is left
    near = gap * (little if start.problem.is_coupled else 0.5)
    tells = coordinate_descent.gap_tells(start)
    first = (
        coordinate_descent.FIRST_ERROR if begun is start else coordinate_descent.error_of_gap(begun, close)
    )
    sweeps = coordinate_descent.MOST_SWEEPS if start.problem.loss.is_quadratic else SWEEPS
    for _, fit in coordinate_descent.nearer(begun, SHARP_ENOUGH, sweeps, first):
        way, here = fit.eta[rows] - here, fit.eta[rows]
        step = float(np.linalg.norm(way))
        last = 2.0 * step if last is None else last
        left = step * step / (last - step) if last > step else np.inf  # a geometric series
        is_little = not tells and left <= little * np.linalg.norm(here - before)
        if coordinate_descent.gap(fit) <= (near if is_little else close):
            return fit
        last = step
    return _ended(Fit(start.problem, fit.coef, fit.intercept))

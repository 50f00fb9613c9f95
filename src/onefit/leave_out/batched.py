"""Newton's method on the problems without each of some sets, all at once, each with its own curvature.

For fits of few coefficients a step of one problem costs less than the calls it is made of, so that all
problems take their steps in the same calls.  The parameters of a problem are a row of x (m × q), output by
output; kinks of single coefficients are gone through by an active-set method on every quadratic model,

    ½ xᵀ K_k x − f_kᵀ x + Σ_j l1_j |x_j|,

and what norms of groups add to K_k and f_k; the true objective says how long a step may be.  A problem is
solved when its next step is short beside its linear predictors, and where nothing but that step is left it is
the error, twice taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out.pattern_models import PatternModels, times_each
from onefit.leave_out.penalty_parts import PenaltyParts, has_parts
from onefit.leave_out.result import SolvedWithoutSet
from onefit.leave_out.tableau import JOINED, NEARBY
from onefit.leave_out.watched_columns import WatchedColumns
from onefit.leave_out.watched_groups import TURNED, begun, is_on, pulls
from onefit.leave_out.watched_kinks import KinkPattern, WatchedKinks
from onefit.numerics import CERTIFIED, ON_BOUND
from onefit.solvers.line_search import CALM, falling

ROUNDS, USUAL_ROUNDS = 30, 7  # of steps: at most, and in most problems
PATTERNS, USUAL_PATTERNS = 8, 2  # changes of the pattern in a step: at most, and in most problems
IS_SHORT = 1e-3 * CERTIFIED  # step, beside the linear predictors, that is the last
AT_ONCE = 2**20  # numbers in an array of problems and rows


def applies(fit: Fit) -> bool:
    """Whether the penalty is of single coefficients or norms of groups, and the loss bends everywhere."""
    problem = fit.problem
    if not has_parts(problem.penalty) or not _linalg.has_columns(problem.X):
        return False
    loss = problem.loss
    bends = loss.self_concordance() is not None and not loss.is_kinked and not loss.jumps
    return bends and (problem.has_one_output or problem.is_coupled)


def cost(fit: Fit) -> Work:
    """What a problem takes, about, where there are many."""
    n, c = fit.problem.n, fit.problem.n_outputs
    each = 1 + int(_watched(fit, PenaltyParts.of(fit)).sum())
    q = c * each
    system = q**3 / 3.0 * (USUAL_PATTERNS if fit.is_kinked else 1)
    products = float(n) * each * (each + 1) / 2 * c * (c + 1) / 2 + 2.0 * float(n) * q
    moved = 30.0 * n * c * (c + 1) + 40.0 * q**2  # numbers that are only read and written
    return Work(products + system + moved, 20.0, 4.0 * n * c).times(USUAL_ROUNDS)


def _watched(fit: Fit, parts: PenaltyParts) -> Mask:
    """Columns that have a coefficient, or may soon: (p,)."""
    kinks = WatchedKinks(parts.l1, parts.lower, parts.upper)
    near = kinks.pulls_off(fit.coef, -fit.loss_gradient, NEARBY - 1.0) | ~kinks.hold(fit.coef)
    near |= fit.coef != 0
    near &= np.isfinite(parts.l1) & np.isfinite(parts.l2)
    by_column = near.reshape(len(near), -1)
    return np.asarray((by_column & is_on(parts.groups, fit.coef.reshape(by_column.shape))).any(axis=1))


def solve_without(
    fit: Fit, removed: Sequence[Index], starts: Sequence[Direction | None]
) -> list[SolvedWithoutSet | None]:
    """Solve the problems without each of some sets of rows; None for those that one has to look at alone.

    All rows are judged.

    Parameters
    ----------
    fit : Fit
        To which this ``applies``.
    removed : sequence of int arrays
        Rows that leave together.
    starts : sequence of Direction or None
        Where each begins, the fit where nothing is given.
    """
    at = [Direction(fit.coef, fit.intercept) if start is None else start for start in starts]
    ends: list[SolvedWithoutSet | None] = [None] * len(removed)
    parts = PenaltyParts.of(fit)
    watched = _watched(fit, parts)
    todo = np.arange(len(removed))
    for _ in range(JOINED):
        columns = WatchedColumns.of(fit, parts, np.flatnonzero(watched))
        each = (fit.problem.n + columns.Z.shape[1] ** 2) * columns.outputs**2
        missed = []
        for some in np.array_split(todo, min(todo.size, 1 + todo.size * each // AT_ONCE)):
            run = _Problems.of(columns, [removed[k] for k in some], [at[k] for k in some])
            run.go()
            violated, alone = run.violated, run.tied
            for place, k in enumerate(some.tolist()):
                at[k] = run.parameters(place)
                if run.solved[place] and not alone[place] and not violated[:, place].any():
                    ends[k] = SolvedWithoutSet(*run.values(place), *at[k])
            watched |= violated[:, run.solved].any(axis=1)
            missed.append(some[run.solved & violated.any(axis=0)])
        todo = np.concatenate(missed)
        if todo.size == 0:
            break
    return ends


@dataclass(eq=False)
class _Problems:
    """The problems without each of some sets: parameters x (m, c, e), linear predictors (c, m, n)."""

    columns: WatchedColumns
    removed: Sequence[Index]
    weights: Array  # (m, n)
    keep: Array  # (m, 1, 1), factor on the penalty
    x: Array
    eta: Array
    open: Mask  # (m,), whether columns of the last pattern depend on each other
    solved: Mask  # (m,)
    off: Array  # (m, n)

    @classmethod
    def of(cls, columns: WatchedColumns, removed: Sequence[Index], starts: Sequence[Direction]) -> _Problems:
        problem, m = columns.fit.problem, len(removed)
        weights = np.ascontiguousarray(problem.weights_without(removed).T)
        keep = problem.kept_shares(removed).reshape(m, 1, 1)
        shape = len(columns.watched), columns.outputs
        coef = np.stack([one.coef[columns.watched].reshape(shape).T for one in starts])
        level = np.stack([np.reshape(one.intercept, -1) for one in starts]) + coef @ columns.means
        x = np.clip(np.concatenate([coef, level[..., None]], axis=2), columns.lower, columns.upper)
        nothing = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool), np.full((m, problem.n), np.inf)
        run = cls(columns, removed, weights, keep, x, np.empty(0), *nothing)
        run.eta = run.predict(x)
        return run

    def predict(self, x: Array) -> Array:
        """Linear predictors, (c, m, n)."""
        m, c, e = x.shape
        by_output = np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(c * m, e)
        return np.ascontiguousarray(_linalg.product(by_output, self.columns.Z.T)).reshape(c, m, -1)

    # --- the steps -----------------------------------------------------------------------------------

    def go(self) -> None:
        """Take steps until every problem is solved, or does not get on."""
        active, problem, groups = np.arange(len(self.x)), self.columns.fit.problem, self.columns.groups
        R = problem.loss.self_concordance() or 0.0
        R *= 1 + problem.is_coupled  # ranges are up to twice as far
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for _ in range(ROUNDS):
                target, definite = self._target(active)
                back = groups.turned_round(self.x[active], target)
                ends = back.any(axis=(1, 2))
                target[ends] = np.where(back, 0.0, self.x[active])[ends]
                change = self.predict(target) - self.eta[:, active]
                moved = np.abs(change).max(axis=0)
                size = np.abs(self.eta[:, active]).max(axis=(0, 2)) + problem.unit
                held = np.where(self.weights[active] > 0, moved, 0.0).max(axis=1)
                calm = definite & (groups.turned(self.x[active], target) <= TURNED)
                there = calm & (held <= IS_SHORT * size)
                self.solved[active[there]] = True
                self.off[active[there]] = 2.0 * moved[there]
                length = np.ones(active.size)
                far = np.flatnonzero(~(there | ends | (calm & (R * held <= CALM))))
                if far.size:
                    length[far] = self._lengths(active[far], target[far], change[:, far])
                self.x[active] += length[:, None, None] * (target - self.x[active])
                self.eta[:, active] += length[:, None] * change
                active = active[~there & (length > 0)]
                if active.size == 0:
                    break

    def _weighted(self, name: str, eta: Array, which: Index) -> Array:
        """Weighted values or derivatives of the loss at (c, a, n): (a, n), (c, a, n) or (c, c, a, n)."""
        problem, (c, a, n) = self.columns.fit.problem, eta.shape
        eta = np.ascontiguousarray(eta)  # picked problems are not
        found = problem.loss_at(name, eta.transpose(2, 0, 1).reshape(n, *problem.outputs, a))
        order = ("value", "gradient", "hessian").index(name)
        found = self.weights[which] * np.moveaxis(found, 0, -1).reshape(*(c,) * order, a, n)
        found[..., self.weights[which] == 0] = 0.0  # where the loss may be infinite
        return found

    def _model(self, active: Index) -> tuple[Array, Array]:
        """Gradient (a, c, e) of loss and ℓ2 part, and K (a, q, q)."""
        columns, Z = self.columns, self.columns.Z
        eta, l2 = self.eta[:, active], columns.l2 * self.keep[active]
        (c, a, n), e = eta.shape, Z.shape[1]
        slope = self._weighted("gradient", eta, active).reshape(c * a, n)
        gradient = _linalg.product(slope, Z).reshape(c, a, e).transpose(1, 0, 2) + l2 * self.x[active]
        left, right = np.tril_indices(c)
        blocks = columns.sums_of_pairs(self._weighted("hessian", eta, active)[left, right].reshape(-1, n))
        K = np.empty((a, c, e, c, e))
        for one, other, block in zip(left, right, blocks.reshape(len(left), a, e, e), strict=True):
            K[:, one, :, other] = K[:, other, :, one] = block
        np.einsum("acece->ace", K)[...] += l2
        if columns.groups.count:
            x, keep = self.x[active], self.keep[active]
            gradient += keep * columns.groups.slope(x)
            K[:, 0, :, 0] += keep * columns.groups.bend(x)
        return gradient, K.reshape(a, c * e, c * e)

    def _target(self, active: Index) -> tuple[Array, Mask]:
        """Minimum of each quadratic model (a, c, e), and whether it is one that K is definite at."""
        gradient, K = self._model(active)
        a, shape = len(active), gradient.shape
        x, gradient = self.x[active].reshape(a, -1), gradient.reshape(a, -1)
        free = (self.columns.free & self.columns.groups.on(self.x[active])).reshape(x.shape)
        kinks = self.columns.kinks(self.keep[active])
        pattern = kinks.pattern(x, free)
        target, definite = np.full_like(x, np.nan), np.zeros(a, dtype=bool)
        todo = np.arange(a)
        for _ in range(PATTERNS):
            on, some = pattern.take(todo), kinks.take(todo)
            model = PatternModels(self.columns.pinned(K[todo], on.own), gradient[todo], x[todo], some.l1)
            depend = self.open[active[todo]]
            value, pull, sure = model.minimum(on, depend)
            self.open[active[todo]] = depend
            found = some.exchange(on, value, pull, free[todo])
            target[todo] = found.target
            for part, after in zip(pattern, found.after, strict=True):
                part[todo] = after
            changes = found.moved.any(axis=1)
            definite[todo] = sure & ~changes
            todo = todo[changes & sure]
            if todo.size == 0:
                break
        if todo.size:  # patterns may go round in circles
            target[todo] = self._within_pieces(
                K[todo], gradient[todo], x[todo], kinks.take(todo), free[todo], self.open[active[todo]]
            )
        return target.reshape(shape), definite

    def _within_pieces(
        self, K: Array, gradient: Array, x: Array, kinks: WatchedKinks, free: Mask, depend: Mask
    ) -> Array:
        """Newton steps (a, q) within the pieces that x is on, and those that it is pulled to from a kink.

        What would leave a kink to the other side stays.  What leaves its piece stops at the end of it, if the
        model is lower at that point; else the step ends where the first one is at an end.
        """
        (own, at, sign), way = kinks.pulled(x, -gradient, free)
        slope, (low, high) = kinks.l1 * sign, kinks.ends(sign)
        for _ in range(PATTERNS):
            model = PatternModels(self.columns.pinned(K, own), gradient, x, kinks.l1)
            value = model.minimum(KinkPattern(own, at, sign), depend)[0]
            wrong = own & ((value - x) * way < 0)
            if not wrong.any():
                break
            own = own & ~wrong
        value = np.where(own, value, x)
        ends = np.clip(value, low, high)
        crosses, way = own & (ends != value), value - x
        until = np.where(crosses, (ends - x) / np.where(crosses, way, 1.0), 1.0).min(axis=1)[:, None]
        short = np.where(crosses & (np.abs(ends - x) <= until * np.abs(way)), ends, x + until * way)
        change = np.where(own, ends, x) - x
        falls = np.sum(change * (gradient + slope + 0.5 * times_each(K, change)), axis=1) < 0
        return np.where(falls[:, None], x + change, short)

    def _objective(self, which: Index, x: Array, eta: Array) -> Array:
        columns = self.columns
        penalty = (columns.l1 * np.abs(x) + 0.5 * columns.l2 * x**2).sum(axis=(1, 2))
        penalty += columns.groups.value(x)
        return self._weighted("value", eta, which).sum(axis=1) + self.keep[which, 0, 0] * penalty

    def _lengths(self, active: Index, target: Array, change: Array) -> Array:
        """Halve the steps along which the objective does not fall: (a,), 0 where none is short enough."""

        def objective(todo: Index, length: Array) -> Array:
            own, x = active[todo], self.x[active[todo]]
            eta = self.eta[:, own] + length[:, None] * change[:, todo]
            return self._objective(own, x + length[:, None, None] * (target[todo] - x), eta)

        return falling(objective, len(active))

    # --- the end -------------------------------------------------------------------------------------

    @cached_property
    def _slopes(self) -> Array:
        """Correlations of columns with the slopes of the loss: (p, c, m)."""
        fit, (c, m, n) = self.columns.fit, self.eta.shape
        with np.errstate(over="ignore", invalid="ignore"):
            slope = self._weighted("gradient", self.eta, np.arange(m))
        return _linalg.transposed_times(fit.problem.X, slope.reshape(c * m, n).T).reshape(-1, c, m)

    @cached_property
    def _kinks(self) -> WatchedKinks:
        """Of all columns: (p, c, m)."""
        parts, shape = self.columns.parts, (len(self.columns.fit.coef), -1, 1)
        l1, lower, upper = (one.reshape(shape) for one in (parts.l1, parts.lower, parts.upper))
        return WatchedKinks(l1 * self.keep[:, 0, 0], lower, upper)

    @cached_property
    def _coef(self) -> Array:
        """(p, c, m)."""
        found = np.zeros((len(self.columns.fit.coef), *self.x.shape[1::-1]))
        found[self.columns.watched] = self.x[..., :-1].transpose(2, 1, 0)
        return found

    @cached_property
    def _pulls(self) -> Array:
        """How hard groups that are zero are pulled at, in their strengths: (p, m)."""
        keep = self.keep[:, 0, 0]
        return pulls(self.columns.parts.groups, self._coef[:, 0], self._slopes[:, 0], keep)

    @cached_property
    def violated(self) -> Mask:
        """Columns off the watched ones, or in groups that are zero, that are pulled at too hard: (p, m)."""
        p, groups = len(self.columns.fit.coef), self.columns.parts.groups
        if len(self.columns.watched) == p and groups is None:
            return np.zeros((p, len(self.x)), dtype=bool)
        found = np.asarray(self._kinks.pulls_off(self._coef, -self._slopes).any(axis=1))
        found[self.columns.watched] = False
        return found & is_on(groups, self._coef[:, 0]) | (self._pulls > 1.0 + ON_BOUND)

    @cached_property
    def _sizes(self) -> Array | float:
        """How large the terms of slopes are, which a bound may hold at 0: (p, 1, m), or 0 without bounds."""
        parts, problem = self.columns.parts, self.columns.fit.problem
        if not np.isfinite([parts.lower, parts.upper]).any():
            return 0.0
        norms = _linalg.column_lengths(problem.X)
        with np.errstate(over="ignore", invalid="ignore"):
            slope = self._weighted("gradient", self.eta, np.arange(len(self.x)))
        return norms[:, None, None] * np.linalg.norm(slope, axis=(0, 2))

    @cached_property
    def tied(self) -> Mask:
        """Problems with columns that are all but pulled off their kink: there may be other optima: (m,).

        So where columns inside depend on each other; but not among the watched ones where the rows that left
        are determined by the others.
        """
        if not self.columns.fit.is_kinked:
            return self.open
        tied = self._kinks.is_tied(self._coef, -self._slopes, self._sizes)
        tied &= is_on(self.columns.parts.groups, self._coef[:, 0])[:, None]
        tied &= self.columns.may_be_tied if tied.any() else False
        by_column, near = np.asarray(tied.any(axis=1)), np.abs(self._pulls - 1.0) <= ON_BOUND
        inside = self.open | by_column[self.columns.watched].any(axis=0)
        if inside.any():
            inside &= ~self.columns.are_determined(self.removed)
        by_column[self.columns.watched] = False
        return np.asarray(inside | by_column.any(axis=0) | near.any(axis=0))

    @cached_property
    def levels(self) -> Array:
        """What keeps the sum of the intercepts, where no loss knows it: (m,)."""
        columns, fit = self.columns, self.columns.fit
        if not columns.may_shift[-1] or not columns.free[:, -1].all():
            return np.zeros(len(self.x))
        now = self.x[..., -1] - self.x[..., :-1] @ columns.means
        return float(fit.intercept.mean()) - now.mean(axis=1)

    def parameters(self, place: int) -> Direction:
        """Coefficients and intercepts of a problem, with the groups that are pulled at as they may begin."""
        fit, columns, coef = self.columns.fit, self.columns, self._coef[..., place]
        if (groups := columns.parts.groups) is not None:
            slope = np.where(self._pulls[:, place] > 1.0 + ON_BOUND, self._slopes[:, 0, place], 0.0)
            coef = coef[:, 0] + begun(groups, fit, slope, float(self.keep[place, 0, 0]))
        level = self.x[place, :, -1] - self.x[place, :, :-1] @ columns.means + self.levels[place]
        return Direction(coef.reshape(fit.coef.shape), level.reshape(fit.intercept.shape))

    def values(self, place: int) -> tuple[Array, Array]:
        """Linear predictors of a problem, and how far they may be off."""
        eta = self.eta[:, place].T + self.levels[place]
        return eta.reshape(self.columns.fit.eta.shape), self.off[place]

"""All rows whose pattern changes, solved together: chord proximal Newton on every left-out problem at once.

One row of B (m × k) is a problem, its predictors are a row of E = B Zᵀ, and each has its own row masked.  A
round minimises the quadratic model of every problem with the common K less the row's own rank-one term,

    ½ xᵀ (K − d_i z_i z_iᵀ) x − f_iᵀ x + Σ_j l1_j |x_j|,

by a primal–dual active-set method on one tableau: with the support S of the fit eliminated, a problem whose
pattern differs from it in Q coordinates takes a system of |Q| + 1 equations (as in ``follow_lasso``).  Then
the true objective is asked for the length of the step.  Columns off the working set are looked at in one
product; those that should enter join it.

At the end every problem is bounded (``prove``) over the columns of the working set, and what is off it is
checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.cost import Work
from onefit.fit import Fit
from onefit.leave_out import prove
from onefit.numerics import LEAST_SLACK, TINY
from onefit.penalties import SeparablePenalty

FLOORS = (0.0, 0.02, 0.5)  # bends that rows count with at least, of the largest: slower, but surer
DAMPED = 1e-6  # ridge with them, relative to the diagonal: columns may depend on each other
NEARBY = 0.8  # share of its bound from which on a correlation is watched
ROUNDS = 30  # of steps
PATTERNS = 10  # changes of the pattern in a step
JOINED = 4  # times that columns may join
HALVINGS = 12  # of a step along which the objective does not fall
SETTLED = 1e-10  # last change of a linear predictor, relative to their size
LOOSE = 1e-5  # the same where a bound is all that is asked for
AT_ONCE = 2**22  # numbers in an array of rows by problems


class Ends(NamedTuple):
    """Where the iterations of some rows ended."""

    eta: Array  # (m,), the row's own predictor
    bounds: Array  # (m,)
    coef: Array  # (m, p)
    intercept: Array  # (m,)
    settled: Mask  # (m,)


def applies(fit: Fit) -> bool:
    """Whether single rows of this fit can be iterated: one output, and kinks in single coefficients."""
    problem = fit.problem
    if not isinstance(problem.penalty, SeparablePenalty) or fit.coef.ndim == 2 or not fit.is_kinked:
        return False
    curved = problem.self_concordance() is not None and not problem.loss.is_kinked
    return curved and not isinstance(problem.X, _linalg.RowGram) and bool(fit.hessian.min() >= 0)


def cost_of(fit: Fit) -> Work:
    """What a row takes, about."""
    n, k = fit.problem.n, 1.3 * fit.tangent.size + 1
    looking = Work(2.0 * _linalg.n_stored(fit.problem.X), 2.0)
    return Work(*(a + b for a, b in zip(_round(n, k).times(8.0), looking, strict=True)))


def _round(n: int, k: float) -> Work:
    """What a row takes in a round."""
    return Work(2.0 * n * k + 3.0 * k * k, 0.0, 2.0 * n)


def iterate(fit: Fit, rows: Index, tol: float, affordable: float) -> Ends:
    """Left-out solutions of some rows, each on its own.

    Parameters
    ----------
    fit : Fit
    rows : (m,) int array
    tol : float
        At most 1: full precision; above, only as far as a useful bound needs.
    affordable : float
        Seconds after which rows are left where they have come to.
    """
    p, m = len(fit.coef), len(rows)
    at_fit = np.repeat(fit.coef[None], m, axis=0), np.full(m, float(fit.intercept))
    ends = Ends(fit.eta[rows], np.full(m, np.inf), *at_fit, np.zeros(m, dtype=bool))
    l1, l2 = fit.problem.separable.strengths(fit.coef.shape)
    near = np.abs(fit.loss_gradient) >= NEARBY * l1
    columns = np.flatnonzero((fit.tangent.support | near) & np.isfinite(l1) & np.isfinite(l2))
    size = max(1, AT_ONCE // max(fit.problem.n, p))
    tol = SETTLED if tol <= 1.0 else LOOSE
    for start in range(0, m, size):
        part = np.arange(start, min(start + size, m))
        for floor in FLOORS:
            columns, spent = _iterate_some(fit, rows, part, columns, tol, floor, affordable, ends)
            affordable -= spent
            part = part[~ends.settled[part]]
            if part.size == 0 or affordable <= 0:
                break
    return ends


def _iterate_some(
    fit: Fit,
    rows: Index,
    part: Index,
    columns: Index,
    tol: float,
    floor: float,
    affordable: float,
    ends: Ends,
) -> tuple[Index, float]:
    """Fill in some of the ends, from where they are.

    Returns
    -------
    columns : (k,) int array
        Those that were watched in the end.
    spent : float
        Seconds, about.
    """
    spent = 0.0
    for _ in range(JOINED):
        table = _Table.of(fit, columns, floor)
        if table is None:
            break
        run = _Run.of(table, rows[part], ends, part)
        spent += run.go(tol, affordable - spent)
        joining, fine = run.judge()
        finite = np.isfinite(run.eta).all(axis=0)
        there, which = part[finite], np.flatnonzero(finite)
        ends.coef[np.ix_(there, columns)] = run.beta.T[which]
        ends.intercept[there] = (run.intercept - table.means @ run.beta)[which]
        ends.eta[there] = run.eta[rows[there], which]
        ends.settled[part] = fine & finite
        ends.bounds[part] = np.where(fine & finite, run.bounds(), np.inf)
        missed = run.settled & ~fine
        if not missed.any() or not joining.any() or spent >= affordable:
            break
        part = part[missed]
        columns = np.flatnonzero(joining | np.isin(np.arange(len(fit.coef)), columns))
    return columns, spent


@dataclass(frozen=True, eq=False)
class _Table:
    """What all problems share: the working set, and K with the support of the fit eliminated.

    The last coordinate is the intercept, where there is one; columns are centred by D.
    """

    fit: Fit
    d: Array  # (n,), by which rows bend
    is_true: bool  # whether that is the Hessian of the fit
    columns: Index  # (k,)
    Z: Array  # (n, q), q = k or k + 1
    means: Array  # (k,)
    l1: Array  # (q,)
    l2: Array  # (q,)
    sign: Array  # (q,), of the fit
    inside: Mask  # (q,), the support and the intercept
    K: Array  # (q, q)
    H: Array  # (q, q), minus the derivative of the outputs in the inputs
    inverse: Array  # (s, s), of K on the support

    @classmethod
    def of(cls, fit: Fit, columns: Index, floor: float) -> _Table | None:
        """None where K is singular on the support; rows bend at least by ``floor`` times the most of any."""
        problem, d = fit.problem, np.maximum(fit.hessian, floor * fit.hessian.max())
        l1, l2 = (part[columns] for part in problem.separable.strengths(fit.coef.shape))
        X = np.ascontiguousarray(_linalg.columns_as_rows(problem.X, columns)).T
        means = d @ X / d.sum() if problem.intercept and d.sum() > 0 else np.zeros(len(columns))
        extra = int(bool(problem.intercept))
        Z = np.hstack([X - means, np.ones((problem.n, extra))])
        free = np.zeros(extra)
        l1, l2 = np.concatenate([l1, free]), np.concatenate([l2, free])
        K = _linalg.product(Z.T, d[:, None] * Z)
        shrink = problem.usual_shrink if problem.mean_scaled else 1.0
        ridge = DAMPED * K.diagonal() if floor > 0 else 0.0
        K[np.diag_indices_from(K)] += shrink * l2 + ridge
        inside = np.concatenate([fit.tangent.support[columns], np.ones(extra, dtype=bool)])
        L = _linalg.cholesky(np.asfortranarray(K[np.ix_(inside, inside)]))
        if L is None:
            return None
        inverse = _linalg.factor_solve(L, np.eye(int(inside.sum()), order="F"))
        across = K[np.ix_(inside, ~inside)]
        H = np.empty_like(K)
        H[np.ix_(inside, inside)] = inverse
        H[np.ix_(inside, ~inside)] = solved = inverse @ across
        H[np.ix_(~inside, inside)] = -solved.T
        H[np.ix_(~inside, ~inside)] = K[np.ix_(~inside, ~inside)] - across.T @ solved
        sign = np.concatenate([np.sign(fit.coef[columns]), free])
        return cls(fit, d, floor == 0.0, columns, Z, means, l1, l2, sign, inside, K, H, inverse)


@dataclass(eq=False)
class _Run:
    """The problems without each of some rows, one a column."""

    table: _Table
    rows: Index  # (m,)
    weights: Array  # (n, m)
    keep: Array  # (m,), factor on the penalty
    beta: Array  # (k, m)
    intercept: Array  # (m,), of centred columns
    eta: Array  # (n, m)
    settled: Mask = field(init=False)
    failed: Mask = field(init=False)

    @classmethod
    def of(cls, table: _Table, rows: Index, ends: Ends, part: Index) -> _Run:
        """Start where the iterations have come to."""
        problem, m = table.fit.problem, len(rows)
        if problem.balance is None:
            weights = np.repeat(problem.weights[:, None], m, axis=1)
            weights[rows, np.arange(m)] = 0.0
        else:
            weights = np.stack([problem.without(int(i)).weights for i in rows], axis=1)
        keep = np.array([problem.kept_share(int(i)) for i in rows])
        beta = np.ascontiguousarray(ends.coef[np.ix_(part, table.columns)].T)
        run = cls(table, rows, weights, keep, beta, ends.intercept[part] + table.means @ beta, np.empty(0))
        run.eta = run.predict(run.stacked)
        return run

    def __post_init__(self) -> None:
        self.settled = np.zeros(len(self.rows), dtype=bool)
        self.failed = np.zeros(len(self.rows), dtype=bool)

    @property
    def stacked(self) -> Array:
        """All parameters: (q, m)."""
        return np.vstack([self.beta, self.intercept]) if self.table.fit.problem.intercept else self.beta

    def predict(self, x: Array) -> Array:
        """Linear predictors, (n, m)."""
        level = 0.0 if self.table.fit.problem.intercept else float(self.table.fit.intercept)
        return _linalg.product(self.table.Z, x) + level

    def go(self, tol: float, affordable: float) -> float:
        """Iterate until every problem has settled, or does not, or time is up; returns the time, about."""
        spent, each = 0.0, _round(*self.table.Z.shape).seconds
        unit = float(np.max(np.abs(self.table.fit.eta), initial=0.0)) + 1e-3
        for _ in range(ROUNDS):
            active = np.flatnonzero(~self.settled & ~self.failed)
            if active.size == 0 or spent >= affordable:
                break
            spent += each * active.size
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                moved = self._round(active)
            self.settled[active] |= moved <= tol * unit
        self.failed |= ~self.settled
        return spent

    def gradient(self, active: Index) -> Array:
        """Gradient of loss and ℓ2 part: (q, a)."""
        problem = self.table.fit.problem
        slope = self.weights[:, active] * problem.loss.gradient(problem.y[..., None], self.eta[:, active])
        smooth = (self.table.l2[:, None] * self.keep[active]) * self.stacked[:, active]
        return _linalg.product(self.table.Z.T, slope) + smooth

    def _round(self, active: Index) -> Array:
        """One step of some problems; by how much their predictors moved."""
        x = self.stacked[:, active]
        target = self._model_minimum(active, x, self.gradient(active))
        bad = ~np.isfinite(target).all(axis=0)
        target[:, bad] = x[:, bad]
        ahead = self.predict(target)
        length = self._lengths(active, x, target, ahead)
        self.failed[active] |= bad | (length == 0.0)
        moved = length * np.abs(ahead - self.eta[:, active]).max(axis=0)
        new = x + length * (target - x)
        k = len(self.beta)
        self.beta[:, active] = new[:k]
        if self.table.fit.problem.intercept:
            self.intercept[active] = new[k]
        self.eta[:, active] += length * (ahead - self.eta[:, active])
        return np.where(length == 1.0, moved, np.inf)

    def _objective(self, active: Index, x: Array, eta: Array) -> Array:
        problem, table = self.table.fit.problem, self.table
        weights = self.weights[:, active]
        losses = np.where(weights > 0, problem.loss.value(problem.y[..., None], eta), 0.0)
        penalty = table.l1 @ np.abs(x) + 0.5 * (table.l2 @ x**2)
        return np.einsum("nm,nm->m", weights, losses) + self.keep[active] * penalty

    def _lengths(self, active: Index, x: Array, target: Array, ahead: Array) -> Array:
        """Halve the steps along which the objective does not fall: (a,), 0 where none is short enough."""
        here = self._objective(active, x, self.eta[:, active])
        slack = 1e-12 * np.abs(here) + TINY
        length = np.ones(len(active))
        todo = np.flatnonzero(~(self._objective(active, target, ahead) <= here + slack))
        for _ in range(HALVINGS):
            if todo.size == 0:
                return length
            length[todo] *= 0.5
            share, own = length[todo], active[todo]
            between = self.eta[:, own] + share * (ahead[:, todo] - self.eta[:, own])
            point = x[:, todo] + share * (target[:, todo] - x[:, todo])
            todo = todo[~(self._objective(own, point, between) <= here[todo] + slack[todo])]
        length[todo] = 0.0
        return length

    # --- the quadratic model -------------------------------------------------------------------------

    def _model_minimum(self, active: Index, x: Array, gradient: Array) -> Array:
        """Minimum of each model, by changes of the pattern from that of x: (q, a)."""
        table, own = self.table, self.rows[active]
        z, d = table.Z[own].T, table.d[own]  # (q, a), (a,)
        f = _linalg.product(table.K, x) - z * (d * np.einsum("qa,qa->a", z, x)) - gradient
        l1 = table.l1[:, None] * self.keep[active]
        tableau = _Tableau.of(table, f, l1, z, d)
        signs = np.where(table.l1[:, None] > 0, np.sign(x), 0.0)
        on = (x != 0) | (table.l1[:, None] == 0)
        best = np.full_like(x, np.nan)
        todo = np.arange(len(active))
        for _ in range(PATTERNS):
            value, gamma = tableau.solve(todo, on[:, todo], signs[:, todo])
            own_on, own_signs, bound = on[:, todo], signs[:, todo], l1[:, todo]
            leaves = own_on & (bound > 0) & (value * own_signs < 0)
            enters = ~own_on & (np.abs(gamma) > bound * (1.0 + 1e-11))
            best[:, todo] = np.where(leaves, 0.0, value)
            changes = (leaves | enters).any(axis=0) & np.isfinite(value).all(axis=0)
            on[:, todo] = (own_on & ~leaves) | enters
            signs[:, todo] = np.where(enters, np.sign(gamma), np.where(leaves, 0.0, own_signs))
            todo = todo[changes]
            if todo.size == 0:
                break
        return best

    # --- the end -------------------------------------------------------------------------------------

    def judge(self) -> tuple[Mask, Mask]:
        """Columns off the working set that should join, and problems that have settled without them."""
        fit, problem, table = self.table.fit, self.table.fit.problem, self.table
        l1, l2 = problem.separable.strengths(fit.coef.shape)
        slope = self.weights * problem.loss.gradient(problem.y[..., None], self.eta)
        correlations = np.abs(_linalg.transposed_times(problem.X, slope))
        correlations[table.columns] = 0.0
        drift = self._drift()
        known = np.isfinite(drift)
        norms = _linalg.column_norms(problem.X, fit.hessian, centred=False)
        slack = np.where(known, np.multiply.outer(norms, np.where(known, drift, 0.0)), np.inf)
        held = np.isfinite(l1) & np.isfinite(l2)
        bound = l1[:, None] * self.keep
        violated = (correlations > bound * (1.0 + 1e-9)) & held[:, None]
        near = (correlations + slack > bound) & held[:, None]
        near[table.columns] = False
        self._unsure = near.any(axis=0)
        joining = (violated & self.settled).any(axis=1)
        return np.asarray(joining), self.settled & ~violated.any(axis=0)

    def _lengths_of_errors(self) -> tuple[Array, Array, Array, Array]:
        """Radius, ρ, M, and the row's own norm in A⁻¹, over the columns in use: (m,) each."""
        if not hasattr(self, "_measured"):
            self._measured = _measure(self)
        return self._measured

    def _drift(self) -> Array:
        R = self.table.fit.problem.self_concordance()
        length, travelled, widest, _ = self._lengths_of_errors()
        return prove.drift(float(R or 0.0), length, travelled, widest)

    def bounds(self) -> Array:
        """How far each row's own predictor may be off: (m,)."""
        length, _, _, own = self._lengths_of_errors()
        with np.errstate(invalid="ignore"):
            found = own * length
        return np.where(np.isfinite(found) & ~self._unsure, found, np.inf)


def _measure(run: _Run) -> tuple[Array, Array, Array, Array]:
    """Radius of the error, ρ, M and own norms of a run's ends."""
    table, fit = run.table, run.table.fit
    problem, m = fit.problem, len(run.rows)
    nothing = tuple(np.full(m, np.inf) for _ in range(4))
    used = np.any(run.stacked != 0, axis=1) | table.inside
    used[len(table.columns) :] = True
    Z = table.Z[:, used]
    L = _linalg.cholesky(np.asfortranarray(table.K[np.ix_(used, used)]))
    if L is None or problem.loss.jumps or not table.is_true:
        return nothing  # type: ignore[return-value]
    half = _linalg.half_solve(L, np.array(Z, order="C"))
    forms = np.einsum("ij,ij->i", half, half)
    x, everyone = run.stacked, np.arange(m)
    gradient, l1 = run.gradient(everyone), table.l1[:, None] * run.keep
    excess = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    left = np.where(x != 0, gradient + l1 * np.sign(x), excess)[used]
    own = forms[run.rows]
    slack = 1.0 - fit.hessian[run.rows] * own
    solved = _linalg.factor_solve(L, left)
    along = np.einsum("qm,qm->m", Z[run.rows].T, solved)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.einsum("qm,qm->m", left, solved) + fit.hessian[run.rows] * along**2 / slack
        norm = np.sqrt(np.maximum(squares, 0.0))
        widest = np.sqrt(forms[problem.weights > 0].max() / slack)
        travelled = np.where(run.weights > 0, np.abs(run.eta - fit.eta[:, None]), 0.0).max(axis=0)
        low = _lowest(run, curved=bool(np.any(table.l2)))
        R = float(problem.self_concordance() or 0.0)
        length = prove.radius(R, norm, travelled, widest, low)
        length = np.where(run.settled & (slack >= LEAST_SLACK), length, np.inf)
        return length, travelled, widest, np.sqrt(own / slack)


def _lowest(run: _Run, *, curved: bool) -> Array:
    """Least factor of the Hessians on that of the fit: (m,)."""
    problem = run.table.fit.problem
    low = np.minimum(run.keep / problem.usual_shrink, 1.0) if curved and problem.mean_scaled else 1.0
    if problem.balance is None:
        return np.broadcast_to(low, run.keep.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.where(run.weights > 0, run.weights / problem.weights[:, None], 1.0).min(axis=0)
    return np.minimum(low, grown)


@dataclass(frozen=True, eq=False)
class _Tableau:
    """Solutions of the models on any pattern, from that on the support of the fit.

    With S eliminated, (x_S, γ_N) = base + τ q − H (Δγ_S, x_N), where γ is what the kinks hold,
    τ = d zᵀ x the row's own term, and Δγ_S = γ_S − l1 sign β_S.
    """

    table: _Table
    base: Array  # (q, a)
    pull: Array  # (q, a)
    l1: Array  # (q, a)
    d: Array  # (a,)
    at_base: Array  # (a,), z_S · base_S
    leverage: Array  # (a,), z_S · pull_S

    @classmethod
    def of(cls, table: _Table, f: Array, l1: Array, z: Array, d: Array) -> _Tableau:
        inside, inverse = table.inside, table.inverse
        across = table.H[np.ix_(~inside, inside)]  # −K_NS K_SS⁻¹
        base, pull = np.empty_like(f), np.empty_like(f)
        held = f[inside] - l1[inside] * table.sign[inside, None]
        base[inside], pull[inside] = _linalg.product(inverse, held), _linalg.product(inverse, z[inside])
        base[~inside] = f[~inside] + _linalg.product(across, held)
        pull[~inside] = z[~inside] + _linalg.product(across, z[inside])
        at_base = np.einsum("qa,qa->a", z[inside], base[inside])
        leverage = np.einsum("qa,qa->a", z[inside], pull[inside])
        return cls(table, base, pull, l1, d, at_base, leverage)

    def solve(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array]:
        """Values x and what the kinks hold, γ, on the patterns of some problems: (q, b) each."""
        table, inside = self.table, self.table.inside[:, None]
        base, pull, l1, d = self.base[:, which], self.pull[:, which], self.l1[:, which], self.d[which]
        known = np.where(inside & on, l1 * (signs - table.sign[:, None]), 0.0)
        flipped = np.flatnonzero(known.any(axis=0))
        at_base = self.at_base[which]
        if flipped.size:
            moved = _linalg.product(table.H, known[:, flipped])
            base = base.copy()
            base[:, flipped] -= moved
            at_base = at_base.copy()
            at_base[flipped] -= np.einsum(
                "qa,qa->a", pull[:, flipped], np.where(inside, known[:, flipped], 0.0)
            )
        exchanged = on != inside
        inputs, tau = self._inputs(base, pull, l1 * signs, d, at_base, self.leverage[which], exchanged)
        out = base + tau * pull - _linalg.product(table.H, inputs)
        value = np.where(on, np.where(inside, out, inputs), 0.0)
        held = np.where(inside, table.sign[:, None] * l1 + inputs, out)
        return value, np.where(on, l1 * signs, held)

    def _inputs(
        self,
        base: Array,
        pull: Array,
        held: Array,
        d: Array,
        at_base: Array,
        leverage: Array,
        exchanged: Mask,
    ) -> tuple[Array, Array]:
        """Inputs of the exchanged coordinates and τ, a small system a problem."""
        table, (q, b) = self.table, base.shape
        count = exchanged.sum(axis=0)
        inputs, tau = np.zeros((q, b)), np.empty(b)
        for some in _of_similar_size(count):
            size = int(count[some].max())
            Q = np.argsort(~exchanged[:, some].T, axis=1, kind="stable")[:, :size]  # (r, size)
            padding = np.arange(size) >= count[some][:, None]
            own, at = pull[:, some].T, base[:, some].T
            own, at = np.take_along_axis(own, Q, 1), np.take_along_axis(at, Q, 1)
            within = table.inside[Q]
            system = np.empty((len(some), size + 1, size + 1))
            system[:, :size, :size] = table.H[Q[:, :, None], Q[:, None, :]]
            system[:, :size, size] = -own
            system[:, size, :size] = d[some, None] * np.where(within, own, -own)
            system[:, size, size] = 1.0 - d[some] * leverage[some]
            system[:, :size][padding] = 0.0
            system[:, size, :size][padding] = 0.0
            system[:, np.arange(size), np.arange(size)] += padding
            rhs = np.empty((len(some), size + 1, 1))
            wanted = np.where(within, 0.0, np.take_along_axis(held[:, some].T, Q, 1))
            rhs[:, :size, 0] = np.where(padding, 0.0, at - wanted)
            rhs[:, size, 0] = d[some] * at_base[some]
            x = _solve_each(system, rhs)[:, :, 0]
            own_inputs = np.zeros((len(some), q))
            np.put_along_axis(own_inputs, Q, x[:, :size], axis=1)
            inputs[:, some], tau[some] = own_inputs.T, x[:, size]
        return inputs, tau


def _of_similar_size(count: Array) -> list[Index]:
    """Problems whose systems are padded to the same size."""
    order = np.argsort(count, kind="stable")
    edges = np.searchsorted(count[order], [5, 10, 20, 40, 80, 160])
    return [part for part in np.split(order, edges) if part.size]


def _solve_each(systems: Array, rhs: Array) -> Array:
    """Solve many small systems; NaN where one is singular."""
    try:
        return np.asarray(np.linalg.solve(systems, rhs), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(systems) == 1:
            return np.full_like(rhs, np.nan)
        half = len(systems) // 2
        parts = [_solve_each(systems[part], rhs[part]) for part in (slice(half), slice(half, None))]
        return np.concatenate(parts)

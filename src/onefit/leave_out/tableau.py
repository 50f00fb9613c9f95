"""The quadratic model that all left-out problems of a kinked fit share, and its minimum on any pattern.

With the support S of the fit eliminated, a problem whose pattern differs from it in Q coordinates takes a
system of |Q| + 1 equations, the last for its own row (as in ``follow_lasso``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.vertex import at_vertex, copies

NEARBY = 0.8  # share of its bound from which on a correlation is watched
DAMPED = 1e-6  # ridge where rows bend at least by a floor, relative to the diagonal


@dataclass(frozen=True, eq=False)
class WorkingSet:
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

    @cached_property
    def across(self) -> Array:
        """−K_NS K_SS⁻¹."""
        return self.H[np.ix_(~self.inside, self.inside)]

    @classmethod
    def of(cls, fit: Fit, columns: Index, floor: float) -> WorkingSet | None:
        """None where K is singular on the support; rows bend at least by ``floor`` times the most of any."""
        problem, d = fit.problem, np.maximum(fit.hessian, floor * fit.hessian.max())
        l1, l2 = (part[columns] for part in problem.separable.strengths(fit.coef.shape))
        X = np.ascontiguousarray(_linalg.as_columns(problem.X).columns_as_rows(columns)).T
        means = d @ X / d.sum() if problem.intercept and d.sum() > 0 else np.zeros(len(columns))
        extra = int(bool(problem.intercept))
        Z = np.hstack([X - means, np.ones((problem.n, extra))])
        free = np.zeros(extra)
        l1, l2 = np.concatenate([l1, free]), np.concatenate([l2, free])
        K = _linalg.product(Z.T, d[:, None] * Z)
        shrink = problem.usual_shrink
        ridge = DAMPED * K.diagonal() if floor > 0 else 0.0
        K[np.diag_indices_from(K)] += shrink * l2 + ridge
        kept = (fit.coef != 0)[columns] | (l1[: len(columns)] == 0)
        inside = np.concatenate([kept, np.ones(extra, dtype=bool)])
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
class Watched:
    """The columns that left-out problems of a fit are solved on, and what is known of them."""

    fit: Fit
    eligible: Mask  # columns that may enter: a copy of another one need not
    columns: Index
    tables: dict[float, WorkingSet | None] = field(default_factory=dict)

    @classmethod
    def of(cls, fit: Fit) -> Watched:
        """Begin with the columns that are in the fit, or nearly."""
        fit = at_vertex(fit)
        l1, l2 = fit.problem.separable.strengths(fit.coef.shape)
        near = (fit.coef != 0) | (np.abs(fit.loss_gradient) >= NEARBY * l1)
        eligible = np.isfinite(l1) & np.isfinite(l2) & ~copies(fit)
        return cls(fit, eligible, np.flatnonzero(near & eligible))

    def table(self, floor: float) -> WorkingSet | None:
        """That of the columns that are watched at present."""
        if floor not in self.tables:
            self.tables[floor] = WorkingSet.of(self.fit, self.columns, floor)
        return self.tables[floor]

    def join(self, joining: Mask) -> None:
        """Watch more columns."""
        self.columns = np.union1d(self.columns, np.flatnonzero(joining))
        self.tables.clear()


def exchanged(
    on: Mask, signs: Array, value: Array, gamma: Array, bound: Array, tie: float
) -> tuple[Array, Mask, Array, Mask]:
    """Go on from the minima of quadratic models on some patterns: one round of an active-set method.

    Coordinates whose sign has changed leave, and those off the pattern that the kink does not hold enter.

    Parameters
    ----------
    on, signs : arrays
        The patterns: what is free, and with which sign.
    value, gamma : arrays
        The minima on them, and what the kinks hold there.
    bound : array
        What the kinks can hold.
    tie : float
        Relative excess over it that is none.

    Returns
    -------
    value : array
        0 where a coordinate leaves.
    on, signs : arrays
        The next patterns.
    moved : bool array
        What leaves or enters.
    """
    leaves = on & (bound > 0) & (value * signs < 0)
    enters = ~on & (np.abs(gamma) > bound * (1.0 + tie))
    signs = np.where(enters, np.sign(gamma), np.where(leaves, 0.0, signs))
    return np.where(leaves, 0.0, value), (on & ~leaves) | enters, signs, leaves | enters


@dataclass(frozen=True, eq=False)
class Tableau:
    """Solutions of the models on any pattern, from that on the support of the fit.

    With S eliminated, (x_S, γ_N) = base + τ q − H (Δγ_S, x_N), where γ is what the kinks hold,
    τ = d zᵀ x the row's own term, and Δγ_S = γ_S − l1 sign β_S.
    """

    table: WorkingSet
    base: Array  # (q, a)
    pull: Array  # (q, a)
    l1: Array  # (q, a)
    d: Array  # (a,)
    at_base: Array  # (a,), z_S · base_S
    leverage: Array  # (a,), z_S · pull_S

    @classmethod
    def of(cls, table: WorkingSet, f: Array, l1: Array, z: Array, d: Array) -> Tableau:
        inside, inverse = table.inside, table.inverse
        across = table.across
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
            x = _linalg.solve_each(system, rhs)[:, :, 0]
            own_inputs = np.zeros((len(some), q))
            np.put_along_axis(own_inputs, Q, x[:, :size], axis=1)
            inputs[:, some], tau[some] = own_inputs.T, x[:, size]
        return inputs, tau


def _of_similar_size(count: Array) -> list[Index]:
    """Problems whose systems are padded to the same size."""
    order = np.argsort(count, kind="stable")
    edges = np.searchsorted(count[order], [5, 10, 20, 40, 80, 160])
    return [part for part in np.split(order, edges) if part.size]

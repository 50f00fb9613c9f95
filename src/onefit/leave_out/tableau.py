"""The quadratic model that all left-out problems of a kinked fit share, and its minimum on any pattern.

With the support S of the fit eliminated, a problem whose pattern differs from it in Q coordinates takes a
system of |Q| + 1 equations, the last for its own row (as in ``follow_lasso``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    shrink: float  # factor on the ℓ2 part
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

    @cached_property
    def held(self) -> Array:
        """What the kinks hold in the fit of the coordinates of its support: (q,)."""
        return np.where(self.inside, self.l1 * self.sign, 0.0)

    def eliminated(self, v: Array) -> Array:
        """What a right-hand side v (q, a) does to the outputs."""
        inside, out = self.inside, np.empty_like(v)
        out[inside] = _linalg.product(self.inverse, v[inside])
        out[~inside] = v[~inside] + _linalg.product(self.across, v[inside])
        return out

    def moved(self, inputs: Array) -> Array:
        """What inputs (m, q, a), zero in most coordinates, take off the outputs."""
        problems = inputs.swapaxes(1, 2)  # one product for all cases
        used = np.flatnonzero(inputs.any(axis=(0, 2)))
        flat = np.concatenate(problems)[:, used]
        return _linalg.product(flat, self.H[:, used].T).reshape(problems.shape).swapaxes(1, 2)

    def parameters(self, coef: Array, intercept: float) -> Array:
        """Coefficients of the columns and, where it is free, the intercept of the centred ones: (q,)."""
        own = coef[self.columns]
        return np.append(own, intercept + self.means @ own)[: len(self.inside)]

    def coefficients(self, x: Array) -> tuple[Array, Array]:
        """Coefficients (a, k) and intercepts (a,) that parameters (q, a) stand for."""
        coef = x[: len(self.columns)].T
        free = len(self.inside) > len(self.columns)
        level = x[-1] - coef @ self.means if free else np.full(len(coef), float(self.fit.intercept))
        return coef, level

    @classmethod
    def of(cls, fit: Fit, columns: Index, floor: float, shrink: float) -> WorkingSet | None:
        """None where K is singular on the support.

        Rows bend at least by ``floor`` times the most of any; ``shrink`` is a factor on the ℓ2 part.  The
        columns of the support come first.
        """
        d = np.maximum(fit.hessian, floor * fit.hessian.max())
        l1, _ = fit.problem.separable.strengths(fit.coef.shape)
        inside = (fit.coef[columns] != 0) | (l1[columns] == 0)
        support = cls._of_support(fit, d, columns[inside], shrink, is_true=floor == 0.0)
        return None if support is None else support.joined(columns[~inside])

    @classmethod
    def _of_support(
        cls, fit: Fit, d: Array, columns: Index, shrink: float, *, is_true: bool
    ) -> WorkingSet | None:
        X, means, l1, l2 = _centred(fit, d, columns)
        free = np.zeros(int(bool(fit.problem.intercept)))
        Z = np.hstack([X, np.ones((len(X), len(free)))])
        l1, l2 = np.concatenate([l1, free]), np.concatenate([l2, free])
        K = _bent(d, Z, shrink * l2, is_true=is_true)
        L = _linalg.cholesky(np.asfortranarray(K))
        if L is None:
            return None
        inverse = _linalg.factor_solve(L, np.eye(len(K), order="F"))
        sign, inside = np.concatenate([np.sign(fit.coef[columns]), free]), np.ones(len(K), dtype=bool)
        return cls(fit, d, shrink, is_true, columns, Z, means, l1, l2, sign, inside, K, inverse, inverse)

    def joined(self, columns: Index) -> WorkingSet:
        """The same with more columns, which are off the support."""
        X, means, l1, l2 = _centred(self.fit, self.d, columns)
        inside, (q, e), k = self.inside, (len(self.K), len(columns)), len(self.columns)
        across = _linalg.product(self.Z.T, self.d[:, None] * X)
        corner = _bent(self.d, X, self.shrink * l2, is_true=self.is_true)
        side, solved = across.copy(), _linalg.product(self.inverse, across[inside])
        side[inside] = solved
        side[~inside] += _linalg.product(-self.K[np.ix_(~inside, inside)], solved)
        under = np.where(inside[:, None], -side, side).T
        place = np.concatenate([np.arange(k), np.arange(q, q + e), np.arange(k, q)])  # the intercept is last
        H = np.block([[self.H, side], [under, corner - _linalg.product(across[inside].T, solved)]])
        nothing = np.zeros(e)
        return replace(
            self,
            columns=np.concatenate([self.columns, columns]),
            Z=np.hstack([self.Z, X])[:, place],
            means=np.concatenate([self.means, means]),
            l1=np.concatenate([self.l1, l1])[place],
            l2=np.concatenate([self.l2, l2])[place],
            sign=np.concatenate([self.sign, nothing])[place],
            inside=np.concatenate([inside, nothing > 0])[place],
            K=np.block([[self.K, across], [across.T, corner]])[np.ix_(place, place)],
            H=H[np.ix_(place, place)],
        )


def _centred(fit: Fit, d: Array, columns: Index) -> tuple[Array, Array, Array, Array]:
    """Some columns less their means by D, these means, and the strengths of the penalty."""
    X = np.ascontiguousarray(_linalg.as_columns(fit.problem.X).columns_as_rows(columns)).T
    centred = fit.problem.intercept and d.sum() > 0
    means = d @ X / d.sum() if centred else np.zeros(len(columns))
    l1, l2 = (part[columns] for part in fit.problem.separable.strengths(fit.coef.shape))
    return X - means, means, l1, l2


def _bent(d: Array, Z: Array, l2: Array, *, is_true: bool) -> Array:
    """K of some columns; with a little more where that is not the Hessian of the fit."""
    K = _linalg.product(Z.T, d[:, None] * Z)
    K[np.diag_indices_from(K)] += l2 + (0.0 if is_true else DAMPED * K.diagonal())
    return K


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
            self.tables[floor] = WorkingSet.of(self.fit, self.columns, floor, self.fit.problem.usual_shrink)
        return self.tables[floor]

    def join(self, joining: Mask) -> None:
        """Watch more columns."""
        more = np.setdiff1d(np.flatnonzero(joining), self.columns)
        self.columns = np.concatenate([self.columns, more])
        self.tables = {floor: table and table.joined(more) for floor, table in self.tables.items()}


def exchanged(
    on: Mask, signs: Array, free: Array, bound: Array, tie: float
) -> tuple[Array, Mask, Array, Mask]:
    """Go on from the minima of quadratic models on some patterns: one round of an active-set method.

    Coordinates whose sign has changed leave, and those off the pattern that the kink does not hold enter.

    Parameters
    ----------
    on, signs : arrays
        The patterns: what is free, and with which sign.
    free : array
        The minima on them, and off them what the kinks hold there.
    bound : array
        What the kinks can hold.
    tie : float
        Relative excess over it that is none.

    Returns
    -------
    value : array
        The minima; 0 where a coordinate is off the pattern, or leaves.
    on, signs : arrays
        The next patterns.
    moved : bool array
        What leaves or enters.
    """
    leaves = on & (bound > 0) & (free * signs < 0)
    enters = ~on & (np.abs(free) > bound * (1.0 + tie))
    signs = np.where(enters, np.sign(free), np.where(leaves, 0.0, signs))
    stays = on & ~leaves
    return np.where(stays, free, 0.0), stays | enters, signs, leaves | enters


@dataclass(frozen=True, eq=False)
class Tableau:
    """Solutions of the models on any pattern, from that on the support of the fit.

    With S eliminated, (x_S, γ_N) = base + τ q − H (Δγ_S, x_N), where γ is what the kinks hold,
    τ = d zᵀ x the row's own term, and Δγ_S = γ_S − l1 sign β_S.  Problems that differ in their constants
    alone are cases of one.
    """

    table: WorkingSet
    base: Array  # (m, q, a), m cases of a problems
    pull: Array  # (q, a)
    keep: Array  # (m, a), factor on l1
    d: Array  # (a,)
    at_base: Array  # (m, a), z_S · base_S
    leverage: Array  # (a,), z_S · pull_S

    @classmethod
    def of(cls, table: WorkingSet, f: Array, keep: Array, z: Array, d: Array) -> Tableau:
        """One case of problems with the right-hand sides f (q, a)."""
        inside = table.inside
        base = table.eliminated(f - np.multiply.outer(table.held, keep))
        pull = table.eliminated(z)
        at_base = np.einsum("qa,qa->a", z[inside], base[inside])
        leverage = np.einsum("qa,qa->a", z[inside], pull[inside])
        return cls(table, base[None], pull, keep[None], d, at_base[None], leverage)

    def solve(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array]:
        """What the patterns (q, b) of some problems leave free: x on them, γ off them (m, q, b); τ (m, b)."""
        table, inside, keep = self.table, self.table.inside[:, None], self.keep[:, which]
        base, pull, at_base = self.base[..., which], self.pull[:, which], self.at_base[:, which]
        turned = inside & on & (signs != table.sign[:, None])
        flipped = np.flatnonzero(turned.any(axis=0))
        if flipped.size:
            other = table.l1[:, None] * signs[:, flipped] - table.held[:, None]
            known = np.where(turned[:, flipped], other, 0.0) * keep[:, None, flipped]
            base[..., flipped] -= table.moved(known)
            at_base[:, flipped] -= np.einsum("qa,mqa->ma", pull[:, flipped], known)
        exchanged = on != inside
        problems = pull, self.d[which], self.leverage[which], exchanged
        inputs, tau = self._inputs(base, signs, keep, at_base, *problems)
        free = base  # which is a copy
        free += tau[:, None] * pull
        free -= table.moved(inputs)
        j, k = np.nonzero(exchanged)
        free[:, j, k] = inputs[:, j, k] + table.held[j] * keep[:, k]
        return free, tau

    def _inputs(
        self,
        base: Array,
        signs: Array,
        keep: Array,
        at_base: Array,
        pull: Array,
        d: Array,
        leverage: Array,
        exchanged: Mask,
    ) -> tuple[Array, Array]:
        """Inputs of the exchanged coordinates and τ, a small system a problem."""
        table, (cases, q, b) = self.table, base.shape
        count = exchanged.sum(axis=0)
        inputs, tau = np.zeros((cases, b, q)).swapaxes(1, 2), np.empty((cases, b))
        for some in _of_similar_size(count):
            size = int(count[some].max())
            Q = np.argsort(~exchanged[:, some].T, axis=1, kind="stable")[:, :size]  # (r, size)
            padding = np.arange(size) >= count[some][:, None]
            here, own = (Q, some[:, None]), pull[Q, some[:, None]]
            within = table.inside[Q]
            system = np.empty((len(some), size + 1, size + 1))
            system[:, :size, :size] = table.H[Q[:, :, None], Q[:, None, :]]
            system[:, :size, size] = -own
            system[:, size, :size] = d[some, None] * np.where(within, own, -own)
            system[:, size, size] = 1.0 - d[some] * leverage[some]
            system[:, :size][padding] = 0.0
            system[:, size, :size][padding] = 0.0
            system[:, np.arange(size), np.arange(size)] += padding
            rhs = np.empty((cases, len(some), size + 1))
            wanted = np.where(within, 0.0, table.l1[Q] * signs[here]) * keep[:, some, None]
            rhs[..., :size] = np.where(padding, 0.0, base[:, *here] - wanted)
            rhs[..., size] = d[some] * at_base[:, some]
            x = np.moveaxis(_linalg.solve_each(system, np.moveaxis(rhs, 0, 2)), 2, 0)
            inputs[:, *here] = x[..., :size]
            tau[:, some] = x[..., size]
        return inputs, tau


def _of_similar_size(count: Array) -> list[Index]:
    """Problems whose systems are padded to the same size."""
    order = np.argsort(count, kind="stable")
    edges = np.searchsorted(count[order], [5, 10, 20, 40, 80, 160])
    return [part for part in np.split(order, edges) if part.size]

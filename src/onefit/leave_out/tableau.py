"""The quadratic model that all left-out problems of a kinked fit share, and its minimum on any pattern.

With the support S of the fit eliminated, a problem whose pattern differs from it in Q coordinates takes a
system of |Q| + 1 equations, the last for its own row (as in ``follow_lasso``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._linalg.design import Columns
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out.elimination import (
    Elimination,
    Group,
    PartedResponses,
    Responses,
    of_parts,
    padded,
    places,
)
from onefit.leave_out.vertex import at_vertex, copies

IN_ONE_PIECE = 2**19  # numbers of a matrix
NEARBY = 0.8  # share of its bound from which on a correlation is watched
JOINED = 4  # times that columns may join those that are


class Bent(NamedTuple):
    """K of the working set, in parts: on the support (s, s), off it beside it (e, s), and off it (e, e)."""

    inside: Array
    across: Array
    corner: Array


@dataclass(frozen=True, eq=False)
class WorkingSet:
    """What all problems share: the working set, and K with the support of the fit eliminated.

    The last coordinate is the intercept, where there is one; columns are centred by D.
    """

    fit: Fit
    d: Array  # (n,), by which rows bend
    shrink: float  # factor on the ℓ2 part
    columns: Index  # (k,)
    Z: Array  # (n, q), q = k or k + 1
    means: Array  # (k,)
    l1: Array  # (q,)
    l2: Array  # (q,)
    sign: Array  # (q,), of the fit
    inside: Mask  # (q,), the support and the intercept
    bent: Bent
    parts: PartedResponses

    @cached_property
    def K(self) -> Array:
        """By which the loss and the ℓ2 part bend: (q, q)."""
        across = self.bent.across
        return of_parts(self.inside, (self.bent.inside, across.T), (across, self.bent.corner))

    @cached_property
    def responses(self) -> Responses:
        """In one piece where that is small, which is quicker to read and slower to make."""
        return self.parts.whole if len(self.inside) ** 2 <= IN_ONE_PIECE else self.parts

    @property
    def inverse(self) -> Array:
        """That of K on the support: (s, s)."""
        return self.parts.inverse

    @property
    def across(self) -> Array:
        """−K_NS K_SS⁻¹."""
        return self.parts.across

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

    def eliminated_rows(self, rows: Index) -> Array:
        """What some rows of Z, as right-hand sides, do to the outputs: (q, r)."""
        if self._stored.is_nearly_full:
            return self.eliminated(self.Z[rows].T)
        z = self.Z[rows].T
        of_rows, means = self._of_support.some_rows(rows), self.means[self.inside[: len(self.columns)]]
        k, out = len(means), np.empty((len(rows), len(self.inside))).T
        for where, onto in ((self.inside, self.inverse), (~self.inside, self.across.T)):
            out[where] = (of_rows.times(onto[:k]) + (onto[k:].sum(axis=0) - means @ onto[:k])).T
        out[~self.inside] += z[~self.inside]
        return out

    @cached_property
    def _of_support(self) -> Columns:
        """The columns of the support, not centred."""
        own = self.columns[self.inside[: len(self.columns)]]
        return _linalg.as_columns(_linalg.active_columns(self.fit.problem.X, own))

    @cached_property
    def _stored(self) -> Columns:
        """The columns, not centred."""
        return _linalg.as_columns(_linalg.active_columns(self.fit.problem.X, self.columns))

    def times(self, x: Array) -> Array:
        """Z x for some x (q, a): (n, a)."""
        if self._stored.is_nearly_full:
            return _linalg.product(self.Z, x)
        k = len(self.columns)
        eta = np.asfortranarray(self._stored.times(x[:k]))  # in the order of dense products
        return np.add(eta, x[k:].sum(axis=0) - self.means @ x[:k], out=eta)

    def transposed_times(self, slopes: Array) -> Array:
        """Zᵀ s for some s (n, a): (q, a)."""
        if self._stored.is_nearly_full:
            return _linalg.product(self.Z.T, slopes)
        k, level = len(self.columns), slopes.sum(axis=0)
        along = np.empty((slopes.shape[1], len(self.inside))).T
        along[:k] = self._stored.transposed_times(slopes) - np.multiply.outer(self.means, level)
        along[k:] = level
        return along

    @property
    def elimination(self) -> Elimination:
        """That of the support, which all problems share."""
        columns = self.inside[:, None], self.sign[:, None], self.l1[:, None]
        return Elimination(*columns, self.responses, np.zeros(1, dtype=np.intp))

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
    def of(cls, fit: Fit, columns: Index, shrink: float) -> WorkingSet | None:
        """None where K is singular on the support.

        ``shrink`` is a factor on the ℓ2 part.  The columns of the support come first.
        """
        l1, _ = fit.strengths
        inside = (fit.coef[columns] != 0) | (l1[columns] == 0)
        support = cls._begun(fit, columns[inside], shrink)
        return None if support is None else support.joined(columns[~inside])

    @classmethod
    def _begun(cls, fit: Fit, columns: Index, shrink: float) -> WorkingSet | None:
        d = fit.hessian
        X, means, l1, l2 = _centred(fit, d, columns)
        free = np.zeros(int(bool(fit.problem.intercept)))
        Z = np.hstack([X, np.ones((len(X), len(free)))])
        l1, l2 = np.concatenate([l1, free]), np.concatenate([l2, free])
        K, k = np.zeros((Z.shape[1], Z.shape[1]), order="F"), len(columns)
        K[:k, :k], K[k:, k:] = _bent(fit, d, columns, means, shrink * l2[:k]), d.sum()
        L = _linalg.cholesky(K)
        if L is None:
            return None
        sign, inside = np.concatenate([np.sign(fit.coef[columns]), free]), np.ones(len(K), dtype=bool)
        none, nothing = np.zeros((0, len(K))), np.zeros((0, 0))
        parts = PartedResponses(inside, _linalg.factor_inverse(L).T, none, nothing)
        return cls(fit, d, shrink, columns, Z, means, l1, l2, sign, inside, Bent(K, none, nothing), parts)

    def joined(self, columns: Index) -> WorkingSet:
        """The same with more columns, which are off the support."""
        X, means, l1, l2 = _centred(self.fit, self.d, columns)
        inside, e, k = self.inside, len(columns), len(self.columns)
        across = self.transposed_times(self.d[:, None] * X)
        corner = _bent(self.fit, self.d, columns, means, self.shrink * l2)
        on, off = across[inside], across[~inside]
        solved = _linalg.product(self.inverse, on)
        side = off + _linalg.product(self.across, on)
        apart = corner - _linalg.product(on.T, solved)
        new = X, means, l1, l2, np.zeros(e), np.zeros(e, dtype=bool)
        old = self.Z, self.means, self.l1, self.l2, self.sign, inside
        Z, means, l1, l2, sign, inside = (
            np.concatenate([a[..., :k], b, a[..., k:]], axis=-1) for a, b in zip(old, new, strict=True)
        )
        return replace(
            self,
            columns=np.concatenate([self.columns, columns]),
            Z=Z,
            means=means,
            l1=l1,
            l2=l2,
            sign=sign,
            inside=inside,
            bent=Bent(
                self.bent.inside,
                np.vstack([self.bent.across, on.T]),
                _linalg.bordered(self.bent.corner, off, corner),
            ),
            parts=PartedResponses(
                inside,
                self.inverse,
                np.vstack([self.across, -solved.T]),
                _linalg.bordered(self.parts.corner, side, apart),
            ),
        )


def _centred(fit: Fit, d: Array, columns: Index) -> tuple[Array, Array, Array, Array]:
    """Some columns less their means by D, these means, and the strengths of the penalty."""
    X = np.ascontiguousarray(_linalg.as_columns(fit.problem.X).columns_as_rows(columns)).T
    centred = fit.problem.intercept and d.sum() > 0
    means = d @ X / d.sum() if centred else np.zeros(len(columns))
    l1, l2 = (part[columns] for part in fit.strengths)
    return X - means, means, l1, l2


def _bent(fit: Fit, d: Array, columns: Index, means: Array, l2: Array) -> Array:
    """K of some columns."""
    own = _linalg.active_columns(fit.problem.X, columns)
    K = _linalg.full_gram(own, means if np.any(means) else None, d)
    K[np.diag_indices_from(K)] += l2
    return K


@dataclass(eq=False)
class Watched:
    """The columns that left-out problems of a fit are solved on, and what is known of them."""

    fit: Fit
    eligible: Mask  # columns that may enter: a copy of another one need not
    columns: Index
    kept: WorkingSet | None  # on these columns, where the penalty shrinks as usual

    @classmethod
    def of(cls, fit: Fit) -> Watched:
        """Begin with the columns that are in the fit, or nearly."""
        fit = at_vertex(fit)
        l1, l2 = fit.strengths
        near = (fit.coef != 0) | (np.abs(fit.loss_gradient) >= NEARBY * l1)
        eligible = np.isfinite(l1) & np.isfinite(l2) & ~copies(fit)
        columns = np.flatnonzero(near & eligible)
        return cls(fit, eligible, columns, WorkingSet.of(fit, columns, fit.problem.usual_shrink))

    @property
    def may_be_tied(self) -> Mask:
        """As ``vertex.may_be_tied`` has it: nothing but an ℓ1 part is on them, and they are no copies."""
        l1, l2 = self.fit.strengths
        return np.asarray(self.eligible & (l2 == 0) & (l1 > 0))

    def table(self, shrink: float | None = None) -> WorkingSet | None:
        """That of the columns that are watched at present, kept where the penalty shrinks as usual."""
        if shrink in (None, self.fit.problem.usual_shrink) or not np.any(self.fit.tangent.hessian):
            return self.kept
        return WorkingSet.of(self.fit, self.columns, shrink)

    def join(self, joining: Mask) -> None:
        """Watch more columns."""
        more = np.setdiff1d(np.flatnonzero(joining), self.columns)
        if more.size == 0:
            return
        self.columns = np.concatenate([self.columns, more])
        self.kept = self.kept and self.kept.joined(more)


@dataclass(frozen=True, eq=False)
class Tableau:
    """Solutions of the models on any pattern, from that on the support of the fit.

    With S eliminated, (x_S, γ_N) = base + τ q − H (Δγ_S, x_N), where γ is what the kinks hold,
    τ = d zᵀ x the row's own term, and Δγ_S = γ_S − l1 sign β_S.  Problems that differ in their constants
    alone are cases of one.
    """

    eliminated: Elimination
    base: Array  # (m, q, a), m cases of a problems
    pull: Array  # (q, a)
    keep: Array  # (m, a), factor on l1
    d: Array  # (a,)
    at_base: Array  # (m, a), z_S · base_S, less the row's own response where it is not in base
    leverage: Array  # (a,), z_S · pull_S

    @classmethod
    def of(cls, table: WorkingSet, f: Array, keep: Array, z: Array, d: Array) -> Tableau:
        """One case of problems with the right-hand sides f (q, a)."""
        inside = table.inside
        base = table.eliminated(f - np.multiply.outer(table.held, keep))
        pull = table.eliminated(z)
        at_base = np.einsum("qa,qa->a", z[inside], base[inside])
        leverage = np.einsum("qa,qa->a", z[inside], pull[inside])
        return cls(table.elimination, base[None], pull, keep[None], d, at_base[None], leverage)

    def solve(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array, Array]:
        """What the patterns (q, b) of some problems leave free: x on them, γ off them (m, q, b).

        And τ (m, b), and 1 / (1 − w h) of the rows there (b,).
        """
        own = which if which.size < len(self.d) else slice(None)
        table, keep, d = self.eliminated.of(own), self.keep[:, own], self.d[own]
        base, pull, at_base = self.base[..., own], self.pull[:, own], self.at_base[:, own]
        turned = table.inside & on & (signs != table.sign)
        if turned.any():
            known = np.where(turned, table.l1 * signs - table.held, 0.0) * keep[:, None]
            base = base - table.moved(known, list(padded(turned)))
            at_base = at_base - np.einsum("qa,mqa->ma", pull, known)
        leverage, exchanged = self.leverage[own], on != table.inside
        if not exchanged.any():
            inverse_slack = 1.0 / (1.0 - d * leverage)
            tau = d * at_base * inverse_slack
            return base + tau[:, None] * pull, tau, inverse_slack
        groups = list(padded(exchanged))
        inputs, tau, slack = _inputs(table, base, signs, keep, at_base, pull, d, leverage, exchanged, groups)
        free = tau[:, None] * pull
        free += base
        free -= table.moved(inputs, groups)
        j, k = places(exchanged)
        free[:, j, k] = inputs[:, j, k] + table.held_at(j, k) * keep[:, k]
        return free, tau, slack


def _inputs(
    table: Elimination,
    base: Array,
    signs: Array,
    keep: Array,
    at_base: Array,
    pull: Array,
    d: Array,
    leverage: Array,
    exchanged: Mask,
    groups: list[Group],
) -> tuple[Array, Array, Array]:
    """Inputs of the exchanged coordinates, τ and 1 / (1 − w h), a small system a problem."""
    cases, q, b = base.shape
    inputs, tau = np.zeros((cases, b, q)).swapaxes(1, 2), np.empty((cases + 1, b))
    inside: Mask = np.broadcast_to(table.inside, exchanged.shape)
    l1: Array = np.broadcast_to(table.l1, exchanged.shape)
    for some, Q, padding in groups:
        size = Q.shape[1]
        here, own = (Q, some[:, None]), pull[Q, some[:, None]]
        on_support = inside[here]
        place = table.at if table.is_shared else table.at[some]
        system = np.empty((len(some), size + 1, size + 1))
        system[:, :size, :size] = table.responses.corners(place, Q)
        system[:, :size, size] = -own
        system[:, size, :size] = d[some, None] * np.where(on_support, own, -own)
        system[:, size, size] = 1.0 - d[some] * leverage[some]
        system[:, :size][padding] = 0.0
        system[:, size, :size][padding] = 0.0
        system[:, np.arange(size), np.arange(size)] += padding
        rhs = np.zeros((cases + 1, len(some), size + 1))  # the last for the slack
        wanted = keep[:, some, None] * np.where(on_support, 0.0, l1[here] * signs[here])
        rhs[:-1, :, :size] = np.where(padding, 0.0, base[:, *here] - wanted)
        rhs[:-1, :, size], rhs[-1, :, size] = d[some] * at_base[:, some], 1.0
        x = np.moveaxis(_linalg.solve_each(system, np.moveaxis(rhs, 0, 2)), 2, 0)
        k, m = np.nonzero(~padding)
        inputs[:, Q[k, m], some[k]] = x[:-1, k, m]
        tau[:, some] = x[..., size]
    return inputs, tau[:-1], tau[-1]

"""Lasso and elastic net on sums over the rows, from the strongest penalty to the weakest.

Beside a small support the arithmetic is nothing: it is factored anew for each pattern, and patterns are
exchanged in blocks, until no sign is wrong and no correlation exceeds its bound.  Where that goes round in
circles, columns depend on one another or supports are large, the active-set method, which updates its factor
and keeps every digit, goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from onefit import _linalg, cost
from onefit._linalg import factor_solve, positive_eigenpairs
from onefit._typing import Array, Index, Mask
from onefit.blocks.left_out_path import Directions
from onefit.blocks.sums import RowSums
from onefit.exceptions import SolverError
from onefit.leave_out.exchange import PATIENCE, KinkedModels
from onefit.numerics import EPS
from onefit.solvers.active_set import ActiveSet

EXCESS = 1e-12  # relative excess of a correlation over its bound that still counts as optimal
APART = 1e-6  # squared distance from the other columns, as a share of its length, of a column taken out
UNSAFE = 1e-4  # relative squared length below which a direction that joined or left is not followed
WORTH_UPDATING = cost.Work(calls=cost.IN_A_SOLVER).seconds  # a factor, in place of computing it anew


class Optimum(NamedTuple):
    """The optimum at one strength.

    Attributes
    ----------
    support : (k,) int array
    signs, beta : (k,) arrays
    factor : (k, k) array
        L with L Lᵀ = K on the support.
    """

    support: Index
    signs: Array
    beta: Array
    factor: Array

    def solved(self, rhs: Array) -> Array:
        """K⁻¹ of a vector or of columns."""
        return factor_solve(self.factor, rhs)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelsOfSums(KinkedModels):
    """Quadratic models that share nothing.

    Attributes
    ----------
    K : (a, q, q) array
    f : (q, a) array
        Each minimises ½ xᵀKx − fᵀx + Σ bound |x|.
    """

    K: Array
    f: Array

    def _free(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array, Array]:
        own, inside, f = self.K[which], on.T, self.f[:, which]
        rhs = np.where(on, f - self.bound[:, which] * signs, 0.0).T
        system = np.where(inside[:, :, None] & inside[:, None, :], own, 0.0)
        np.einsum("aqq->aq", system)[...] += ~inside
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            x = _linalg.solve_each(system, rhs[..., None])
            free = np.where(on, x[..., 0].T, f - (own @ x)[..., 0].T)
        return free, np.zeros(which.size), np.ones(which.size)  # no row of their own

    def solved(self) -> tuple[Array, Mask]:
        """Minima (q, a), and where they are sure: settled on a pattern that is definite."""
        found = self.minima()
        on = (found.x != 0) | (self.bound == 0)
        rhs = np.where(on, self.f - self.bound * np.sign(found.x), 0.0)
        _, sure = _linalg.solve_inside(self.K, rhs.T, on.T)
        return found.x, found.settled & sure


def optima(sums: RowSums, l1: Array, l2: Array, *, nonnegative: bool = False) -> Iterator[Optimum]:
    """Optima at every strength, with one response.

    Parameters
    ----------
    sums : RowSums
        Centred where there is an intercept.
    l1, l2 : (J,) arrays
        On the scale of the sum, strongest first.
    nonnegative : bool, default False
        Whether no coefficient goes below zero.

    Raises
    ------
    SolverError
        If nonnegative coefficients are not found, where columns depend on one another.
    """
    gram, cross = sums.gram, sums.cross[:, 0]
    nothing = np.zeros(0)
    last = Optimum(nothing.astype(np.intp), nothing, nothing, np.zeros((0, 0)))
    found: Optimum | None = last
    active: ActiveSet | None = None
    for one, two in zip(l1.tolist(), l2.tolist(), strict=True):
        found = found and _exchanged(sums, one, two, found, nonnegative=nonnegative)
        if found is None and nonnegative:
            found = _one_by_one(sums, one, two, last)
        if found is not None:
            last = found
            yield found
            continue
        if active is None:
            active = ActiveSet(*_equations(gram, cross), fit_intercept=False)
        if not active.solve(one, two):
            active.warn()
        support, signs = active.support.copy(), active.signs.copy()
        yield Optimum(support, signs, active.coef[support], np.tril(active.factor.upper.T))


def _one_by_one(sums: RowSums, l1: float, l2: float, last: Optimum) -> Optimum:
    """The optimum without coefficients below zero, down from the pattern of another one."""
    start = np.zeros((len(sums.means), 1))
    start[last.support, 0] = last.beta
    K = sums.gram + l2 * np.eye(len(start))
    models = ModelsOfSums(
        start=start, bound=np.full_like(start, l1), nonnegative=True, K=K[None], f=sums.cross[:, [0]]
    )
    x, sure = models.solved()
    if not sure.all():
        raise SolverError("columns that depend on one another: no nonnegative coefficients were found")
    support = np.flatnonzero(x[:, 0])
    factor = np.linalg.cholesky(K[np.ix_(support, support)])
    return Optimum(support, np.ones(support.size), x[support, 0], np.asfortranarray(factor))


def _exchanged(
    sums: RowSums, l1: float, l2: float, start: Optimum, *, nonnegative: bool = False
) -> Optimum | None:
    """The optimum from the pattern of another one; None where it is not found at little cost."""
    cross, lengths, length = sums.cross[:, 0], np.sqrt(sums.gram.diagonal()), float(np.sqrt(sums.squares[0]))
    support, signs = start.support, start.signs
    least, waited = len(cross) + 1, 0
    while waited < PATIENCE:
        if not nonnegative and cost.Work(len(support) ** 3 / 3.0).seconds >= WORTH_UPDATING:
            return None
        rows = sums.gram[support]
        K = rows[:, support]
        K.flat[:: len(K) + 1] += l2
        L = np.array(K, order="F")
        failed = lapack.dpotrf(L, lower=1, overwrite_a=1)[1] if len(K) else 0
        if failed or np.any(L.diagonal() ** 2 <= APART * K.diagonal()):
            return None
        beta = factor_solve(L, cross[support] - l1 * signs)
        stays = (beta * signs > 0) | (l1 == 0)
        if not stays.all():
            support, signs = support[stays], signs[stays]
            continue
        correlations = cross - beta @ rows
        rounding = 8.0 * EPS * lengths * (length + float(lengths[support] @ np.abs(beta)))
        pull = correlations if nonnegative else np.abs(correlations)
        beyond = pull > l1 * (1.0 + EXCESS) + rounding
        beyond[support] = False
        enters = np.flatnonzero(beyond)
        if enters.size == 0:
            beta = beta + factor_solve(L, correlations[support] - l2 * beta - l1 * signs)
            return Optimum(support, signs, np.where(beta * signs > 0, beta, 0.0), L)
        waited = 0 if enters.size < least else waited + 1
        least = min(least, enters.size)
        support = np.concatenate([support, enters])
        signs = np.concatenate([signs, np.sign(correlations[enters])])
    return None


def _equations(gram: Array, cross: Array) -> tuple[Array, Array]:
    """P rows and responses that have the sums of all rows, Σ w z zᵀ and Σ w z y."""
    upper, failed = lapack.dpotrf(gram, lower=0, clean=1)
    if failed == 0 and np.all(upper.diagonal() ** 2 > 1e3 * EPS * gram.diagonal()):
        return np.asfortranarray(upper), lapack.dtrtrs(upper, cross, trans=1)[0]
    root = np.sqrt(gram.diagonal())
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, vectors = positive_eigenpairs(gram * np.outer(scale, scale))
    halves = np.sqrt(values)
    R = np.asfortranarray(halves[:, None] * vectors.T * root)
    return R, vectors.T @ (scale * cross) / halves


@dataclass(eq=False)
class PathLeverages:
    """Leverages of a lasso path: what joined and what left, from one strength to the next.

    Columns J that joined add the squares along K⁻¹ E_J M^−½, M = (K⁻¹)_JJ: they are what z has of them that
    the others do not.  Columns that left take off what they would add to what stayed.
    """

    p: int

    def __post_init__(self) -> None:
        self._last: Optimum | None = None
        self._parts: list[tuple[int, list[Array], list[Array]]] = []
        self._count = 0

    def add(self, found: Optimum) -> None:
        """Take in the support at the next strength."""
        changed = self._changed(found)
        if changed is None:
            self._parts.append((self._count, [], []))
            inverse = lapack.dtrtri(found.factor, lower=1)[0] if found.factor.size else found.factor
            changed = [(found.support, inverse.T, 1.0)]
        start, columns, steps = self._parts[-1]
        for support, directions, sign in changed:
            own = np.zeros((self.p, directions.shape[1]))
            own[support] = directions
            columns.append(own)
            steps.append(np.tile([self._count - start, sign], (own.shape[1], 1)))
        self._last = found
        self._count += 1

    def _changed(self, found: Optimum) -> list[tuple[Index, Array, float]] | None:
        """Directions that joined and left; None where all of them afresh are cheaper or safer."""
        last = self._last
        if last is None:
            return None
        was, now = np.zeros((2, self.p), dtype=bool)
        was[last.support] = now[found.support] = True
        sides = [(found, ~was[found.support], 1.0), (last, ~now[last.support], -1.0)]
        if 2 * sum(np.count_nonzero(own) for _, own, _ in sides) > len(found.support):
            return None
        changed = []
        for optimum, own, sign in sides:
            if own.any():
                directions = _own_directions(optimum, np.flatnonzero(own))
                if directions is None:
                    return None
                changed.append((optimum.support, directions, sign))
        return changed

    def leverages(self) -> Iterator[Directions]:
        """Directions, and their shares at each strength from where they turn up."""
        stops = [part[0] for part in self._parts[1:]] + [self._count]
        for (start, columns, steps), stop in zip(self._parts, stops, strict=True):
            at = np.vstack(steps)
            shares = np.where(at[:, [0]] <= np.arange(stop - start), at[:, [1]], 0.0)
            yield Directions(slice(start, stop), np.hstack(columns), shares)


def _own_directions(found: Optimum, which: Index) -> Array | None:
    """Directions that some columns alone have; None where one is too short to be told from rounding."""
    own = np.zeros((len(found.support), len(which)), order="F")
    own[which, np.arange(len(which))] = 1.0
    own = found.solved(own)
    root, failed = lapack.dpotrf(own[which], lower=1)
    if failed or np.any(root.diagonal() ** 2 <= UNSAFE * own[which].diagonal()):
        return None
    return lapack.dtrtrs(root, own.T, lower=1)[0].T

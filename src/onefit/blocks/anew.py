"""Rows whose bounds say too little, solved without themselves, all of them in the same passes.

A pass that judges rows keeps some of those that may be off, by priority sampling (Duffield, Lund and Thorup
2007): those of the largest s/u, with u uniform and s what the row may change.  Let τ be the largest s/u of
the others.  A row with s ≥ τ was kept for certain and any other with probability s/τ, in whatever order the
blocks come.

A problem without a row is the problem of all rows less a term.  So is its second-order model at the fit,
whose minimum is the row's Newton step; from there on the problems are solved side by side like the strengths
of a path (``newton``), with the curvature that they have at the fit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, final

import numpy as np

from onefit import cost
from onefit._linalg import Factorization, dense
from onefit._typing import Array, Index
from onefit.blocks.models import Knots, Points, Quadratic, RemovedRows
from onefit.blocks.newton import SETTLED, Start, solve_all
from onefit.blocks.rows import Block, Rows
from onefit.blocks.step import StepPath
from onefit.leave_out.frame import FEWEST as LEAST_SAMPLE
from onefit.leave_out.loose import not_held
from onefit.leave_out.prove import SEEN
from onefit.numerics import TINY
from onefit.penalties import SeparablePenalty

FEWEST = 64  # rows that are kept, where their curvatures fit in memory
HELD = 2**28  # bytes of their curvatures, the same on each machine, since it decides which rows are solved
SHORT = 0.25  # 1/R, a step in which Newton's method is sure to converge
CUT_ANEW = 1e-9  # relative difference of the linear predictors of equal rows, cut into other blocks


def most_rows(n: int, p: int) -> int:
    """How many rows are solved without themselves, at most.

    With as many as columns a pass takes no longer than one that sums a curvature; short passes may take more.
    """
    p = max(p, 1)
    unnoticed = int(cost.UNNOTICED / cost.gradient(n, p).seconds)
    return max(1, min(max(FEWEST, p, unnoticed), HELD // (8 * p**2)))


@final
@dataclass(frozen=True)
class DoubtfulRows:
    """Some of the rows that may be off; a sum of two keeps as many as each may.

    Attributes
    ----------
    most : int
        One more than are drawn.
    total : float
        Sum of the sizes of all rows.
    X : (m, p) array
        Less the centre.
    y, weights, losses, sizes, priorities : (m,) arrays
        Target, weight, loss by the step, w times what may change of it, and s/u; the largest first.
    """

    most: int
    total: float
    X: Array
    y: Array
    weights: Array
    losses: Array
    sizes: Array
    priorities: Array

    @classmethod
    def of(cls, most: int, block: Block, centre: Array, losses: Array, sizes: Array) -> Self:
        """Keep some of a block whose y is the target of the loss.

        Parameters
        ----------
        most : int
        block : Block
        centre : (p,) array
        losses, sizes : (b,) arrays
        """
        y, held = np.asarray(block.y, dtype=np.float64), np.flatnonzero(sizes)
        lots = np.random.default_rng(zlib.crc32(y.tobytes(), zlib.crc32(dense(block.X[:1]).tobytes())))
        priorities = sizes / (1.0 - lots.random(len(y)))
        kept = held[np.argsort(-priorities[held], kind="stable")[:most]]
        X = np.subtract(dense(block.X[kept]), centre, dtype=np.float64)
        weights = block.row_weights
        own = (part[kept] for part in (y, weights, losses, sizes, priorities))
        return cls(most, float(sizes.sum()), X, *own)

    def __add__(self, other: Self) -> Self:
        both = [np.concatenate(own) for own in zip(self._parts, other._parts, strict=True)]
        order = np.argsort(-both[-1], kind="stable")[: self.most]
        return type(self)(self.most, self.total + other.total, *(part[order] for part in both))

    @property
    def _parts(self) -> tuple[Array, ...]:
        return self.X, self.y, self.weights, self.losses, self.sizes, self.priorities

    @property
    def is_worth_solving(self) -> bool:
        """Whether these are all rows that may be off, or as many as tell of the others."""
        return 0 < len(self.y) < self.most or len(self.y) > LEAST_SAMPLE

    def drawn(self) -> tuple[Self, Array]:
        """All but the last of as many as there may be, and the probability of each: (m,)."""
        if len(self.y) < self.most:
            return self, np.ones(len(self.y))
        kept = type(self)(self.most, self.total, *(part[:-1] for part in self._parts))
        return kept, np.minimum(kept.sizes / self.priorities[-1], 1.0)


@final
@dataclass(frozen=True, eq=False)
class SolvedRows:
    """Rows that were solved without themselves.

    Attributes
    ----------
    X : (m, p) array
        Less the centre.
    y, weights, losses, fitted : (m,) arrays
        Target, weight, loss by the step, and linear predictor with the row.
    left_out, bounds : (m,) arrays
        Linear predictor without the row, and how far it may be off: infinite where others are as good.
    """

    X: Array
    y: Array
    weights: Array
    losses: Array
    fitted: Array
    left_out: Array
    bounds: Array

    def among(self, X: Array, y: Array, weights: Array, fitted: Array) -> tuple[Index, Index]:
        """Which of some rows these are: numbers of the former and of the latter."""
        order = np.argsort(self.fitted)
        known, room = self.fitted[order], CUT_ANEW * (1.0 + np.abs(fitted))
        near = np.searchsorted(known, fitted - room) < np.searchsorted(known, fitted + room, side="right")
        rows = np.flatnonzero(near)
        own = np.array(
            [self._numbers.get(self._mark(X, y, weights, i), -1) for i in rows.tolist()], dtype=np.intp
        )
        return rows[own >= 0], own[own >= 0]

    @cached_property
    def _numbers(self) -> dict[tuple[bytes, float, float], int]:
        return {self._mark(self.X, self.y, self.weights, k): k for k in range(len(self.y))}

    @staticmethod
    def _mark(X: Array, y: Array, weights: Array, row: int) -> tuple[bytes, float, float]:
        return X[row].tobytes(), float(y[row]), float(weights[row])


def _forms(x: Array, coef: Array, penalty: SeparablePenalty, found: Quadratic) -> tuple[float, float]:
    """Squared length of a row in the inverse Hessian at a solution, infinite where nothing holds it.

    First among coefficients on the support, then with those that no kink strictly holds at zero: these may
    move where other solutions are as good.
    """
    l1, l2 = penalty.strengths(coef.shape)
    support, open_ones = (coef != 0) | (l1 == 0), not_held(coef, found.slope + l2 * coef, l1)
    here, there = (_form(np.flatnonzero(moves), x, l2, found) for moves in (support, open_ones))
    return here, there


def _form(moves: Index, x: Array, l2: Array, found: Quadratic) -> float:
    K, z = found.gram[np.ix_(moves, moves)] + np.diag(l2[moves]), (x - found.means)[moves]
    factored = Factorization.of(K)
    half = z @ factored.inverse_root
    missed = np.abs(K @ (factored.inverse_root @ half) - z)
    if not factored.is_definite and np.any(missed > SEEN * np.sqrt(K.diagonal())):
        return np.inf
    return float(half @ half) + 1.0 / found.mass


def _off(R: float | None, moved: Array, left: Array) -> Array:
    """How far predictors may be off, which the last step moved by as much and which settled to what is left.

    A Newton step leaves about R times its square, where it is short.  Where it is not nothing is known: a
    coefficient may have no end without the row that alone held it.
    """
    if R is None:
        return np.full(moved.shape, np.inf)
    known = np.isfinite(moved)
    moved = np.where(known, moved, 0.0)
    return np.where(known & (R * moved < SHORT), R * moved**2 + left, np.inf)


def solve_without(rows: Rows, path: StepPath, found: Quadratic, some: DoubtfulRows, *, n: int) -> SolvedRows:
    """Solve some rows without themselves, in passes over all.

    Parameters
    ----------
    rows : Rows
    path : StepPath
        Of one strength.
    found : Quadratic
        The second-order model at its solution.
    some : DoubtfulRows
    n : int
        Rows that each pass must see.
    """
    m, models, points = len(some.y), path.models, path.points
    loss, (penalty,) = models.loss, models.penalties
    shares = some.weights / path.weight * models.mean_scaled
    each = replace(models, penalties=tuple(penalty.scaled(1.0 - share) for share in shares.tolist()))
    fitted = points.predictors(some.X)[0]
    terms = some.weights * np.stack([of(some.y, fitted) for of in (loss.value, loss.gradient, loss.hessian)])
    without = tuple(found.without(x, *own) for x, own in zip(some.X, terms.T.tolist(), strict=True))
    here = Points(np.tile(points.coefs, (m, 1)), np.tile(points.levels, m), points.centre)
    start = Start(here, without, Knots.all(m), is_model_there=True)
    solved, last = solve_all(rows, each, start, n=n, removed=RemovedRows(some.X, some.y, some.weights))
    eta = np.einsum("ij,ij->i", some.X, solved.points.coefs) + solved.points.levels
    own = zip(some.X, solved.points.coefs, each.penalties, solved.quadratics, strict=True)
    forms = max(found.value, TINY) * np.array([_forms(*parts) for parts in own]).T
    on_support, off = _off(loss.self_concordance(), np.sqrt(last * forms), np.sqrt(SETTLED * forms))
    values = some.X, some.y, some.weights, some.losses, fitted, eta, off
    return SolvedRows(*(part[np.isfinite(eta + on_support)] for part in values))

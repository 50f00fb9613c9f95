"""Minima of quadratic models with an ℓ1 part, one for each left-out problem, from the nearest known pattern.

At first all coordinates that should leave or enter do so at once (Kostreva 1978), until for some rounds there
were no fewer of them (Júdice and Pires 1994); patterns may go round in circles.  What has not ended goes
down: to the minimum on the signs, or to the first zero on the way; where there is none, the coordinate that
violates its bound most enters.  The objective falls from one pattern to the next, so none comes again
(Osborne, Presnell and Turlach 2000).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from onefit._typing import Array, Index, Mask
from onefit.leave_out.elimination import places
from onefit.leave_out.tableau import Tableau, WorkingSet
from onefit.numerics import LITTLE_SLACK, ON_BOUND

LETS_GO = 1e-11  # slack 1 − w h of a row that keeps none, so that what it holds alone has a direction
HELD_ALONE = 1e-8  # slack of a row on a pattern below which nothing else determines that
PATIENCE = 3  # rounds that may pass without fewer exchanges than ever before
ROUNDS = 400  # in which one coordinate does


@dataclass(frozen=True, eq=False)
class Minima:
    """Minima of some models.

    Attributes
    ----------
    free : (q, a) array
        On their patterns, and off these what the kinks hold.
    on : (q, a) bool array
        The patterns.
    tau : (a,) array
        Each row's own term.
    inverse_slack : (a,) array
        1 / (1 − w h) of each row on its pattern.
    exchanges : (a,) int array
        Rounds in which the pattern changed.
    settled : (a,) bool array
        Whether no coordinate should leave or enter.
    """

    free: Array
    on: Mask
    tau: Array
    inverse_slack: Array
    exchanges: Index
    settled: Mask

    @cached_property
    def x(self) -> Array:
        """The minima, to be asked for once all are found: (q, a)."""
        return np.where(self.on, self.free, 0.0)


class PatternRound(NamedTuple):
    """Some models on patterns of theirs.

    Attributes
    ----------
    free : (q, b) array
        Minima there, and off the patterns what the kinks hold.
    tau, inverse_slack : (b,) arrays
        Of ``Minima``.
    moved : (q, b) bool array
        What should leave or enter.
    """

    free: Array
    tau: Array
    inverse_slack: Array
    moved: Mask

    @property
    def changes(self) -> Array:
        """How many coordinates should leave or enter, without end where there is no minimum: (b,)."""
        finite = np.isfinite(self.free).all(axis=0)
        return np.where(finite, np.count_nonzero(self.moved, axis=0), np.inf)


@dataclass(frozen=True, eq=False, kw_only=True)
class KinkedModels(ABC):
    """Quadratic models with an ℓ1 part, however they are solved on a pattern.

    Attributes
    ----------
    start : (q, a) array
        Their signs are those to start with.
    bound : (q, a) array
        What the kinks can hold; zero where there is none.
    nonnegative : bool
        Whether kinks hold whatever would go below zero.
    first : PatternRound or None
        All models on the patterns that they start with, where they were looked at.
    """

    start: Array
    bound: Array
    nonnegative: bool = False
    first: PatternRound | None = None

    @abstractmethod
    def _free(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array, Array]:
        """Minima of some models on patterns (q, b), with what the kinks hold off them; τ and 1/(1 − w h)."""

    def minima(self) -> Minima:
        """Minima of all models."""
        found = self._exchange()
        left = np.flatnonzero(~found.settled)
        if left.size == 0:
            return found
        again = self._descend(left)
        found.free[:, left], found.on[:, left] = again.free, again.on
        found.tau[left], found.settled[left] = again.tau, again.settled
        found.inverse_slack[left] = again.inverse_slack
        found.exchanges[left] += again.exchanges
        return found

    def nearer(self, start: Array) -> Self:
        """The same models from another start (q, a), where fewer coordinates should move from there."""
        every = np.arange(self.start.shape[1])
        here, there = (
            one._round(every, *one._at_start(every)[1:]) for one in (self, replace(self, start=start))
        )
        fewer = there.changes < here.changes
        nearest = PatternRound(*(np.where(fewer, *parts) for parts in zip(there, here, strict=True)))
        return replace(self, start=np.where(fewer, start, self.start), first=nearest)

    def _round(self, which: Index, on: Mask, signs: Array) -> PatternRound:
        """Some models on patterns, and what should leave or enter these."""
        free, tau, inverse_slack = self._free(which, on, signs)
        moved = exchanges(on, signs, free, self.bound[:, which], nonnegative=self.nonnegative)
        return PatternRound(free, tau, inverse_slack, moved)

    def determined(self, found: Minima) -> Mask:
        """Problems that have settled on a pattern of which their own row does not hold a direction alone.

        Where it does, the slack 1 − w h of the row on that pattern is nothing but what ``LETS_GO`` leaves.
        """
        with np.errstate(invalid="ignore"):
            return np.asarray(found.settled & (np.abs(found.inverse_slack) * HELD_ALONE <= 1.0))

    def tied(self, found: Minima) -> Mask:
        """Zeros whose kinks hold all that they can, and which may therefore move at no cost: (q, a)."""
        pull = found.free if self.nonnegative else np.abs(found.free)
        held = pull >= self.bound * (1.0 - ON_BOUND)
        return np.where(found.on, (pull == 0) & (self.bound > 0), held)

    def _at_start(self, which: Index) -> tuple[Minima, Mask, Array]:
        """Nothing found yet, and the patterns and signs where the models start."""
        x, held = self.start[:, which], self.bound[:, which] > 0
        none = np.zeros(which.size, dtype=np.intp)
        tau, inverse_slack = np.full((2, which.size), np.nan)
        on = (x != 0) | ~held
        unknown = Minima(np.empty_like(x), np.empty_like(on), tau, inverse_slack, none, none > 0)
        return unknown, on, np.where(held, np.sign(x), 0.0)

    def _exchange(self) -> Minima:
        todo, now = np.arange(self.start.shape[1]), self.first
        found, on, signs = self._at_start(todo)
        least, waited = np.full(todo.size, np.inf), np.zeros(todo.size)
        while todo.size:
            now = now or self._round(todo, on, signs)
            free, found.tau[todo], found.inverse_slack[todo], moved = now
            changes, now = now.changes, None
            waited = np.where(changes < least, 0, waited + 1)
            least = np.minimum(least, changes)
            goes_on = np.isfinite(changes) & (changes > 0) & (waited < PATIENCE)
            found.exchanges[todo] += changes > 0
            if not goes_on.all():
                done, ended = todo[~goes_on], ~goes_on
                found.free[:, done], found.on[:, done] = free[:, ended], on[:, ended]
                found.settled[done] = changes[ended] == 0
                todo, least, waited = todo[goes_on], least[goes_on], waited[goes_on]
                on, signs = on[:, goes_on], signs[:, goes_on]
                free, moved = free[:, goes_on], moved[:, goes_on]
            on, signs = exchanged(on, signs, free, moved)
        return found

    def _descend(self, which: Index) -> Minima:
        found, on, signs = self._at_start(which)
        x, bound, todo = np.where(on, self.start[:, which], 0.0), self.bound[:, which], np.arange(which.size)
        entered = np.full(which.size, -1)
        for _ in range(ROUNDS):
            if todo.size == 0:
                break
            now = self._free(which[todo], on[:, todo], signs[:, todo])
            free, found.tau[todo], found.inverse_slack[todo] = now
            finite, here = np.isfinite(free).all(axis=0), np.arange(todo.size)
            back = _goes_back(free, x[:, todo], signs[:, todo], entered[todo])
            target = np.where(back, 2.0 * x[:, todo] - free, free)
            crosses = on[:, todo] & (bound[:, todo] > 0) & (target * signs[:, todo] < 0)
            share = np.divide(x[:, todo], x[:, todo] - target, out=np.ones_like(free), where=crosses)
            first = share.argmin(axis=0)
            stops = crosses.any(axis=0) & finite
            finite &= stops | ~back
            length = np.where(stops, share[first, here], 1.0)
            x[:, todo] += length * (np.where(on[:, todo], target, 0.0) - x[:, todo])
            left = first[stops], todo[stops]
            x[left], on[left] = 0.0, False
            pull = free if self.nonnegative else np.abs(free)
            beyond = np.where(on[:, todo], 0.0, pull - bound[:, todo] * (1.0 + ON_BOUND))
            most = beyond.argmax(axis=0)
            enters = finite & ~stops & (beyond[most, here] > 0)
            joined = most[enters], todo[enters]
            signs[joined], on[joined] = np.sign(free[most[enters], here[enters]]), True
            entered[todo] = np.where(enters, most, -1)
            found.free[:, todo], found.on[:, todo] = free, on[:, todo]
            found.settled[todo] = finite & ~stops & ~enters
            found.exchanges[todo] += stops | enters
            todo = todo[stops | enters]
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class QuadraticModels(KinkedModels):
    """Those that are problems of a tableau, one each."""

    tableau: Tableau

    @classmethod
    def at_fit(cls, table: WorkingSet, rows: Index) -> QuadraticModels:
        """The problems without each of some rows, expanded at the fit, whose pattern they start from."""
        fit, inside, z = table.fit, table.inside, table.Z[rows].T
        # where the row alone holds a direction up it has leverage one, and lets go of it at once
        d, slopes = (1.0 - LETS_GO) * fit.hessian[rows], fit.gradient[rows]
        x, held = table.parameters(fit.coef, float(fit.intercept)), np.zeros(len(inside))
        held[: len(table.columns)] = -fit.loss_gradient[table.columns]
        pull, f = table.eliminated_rows(rows), fit.problem.lost_shares(rows)
        kept = fit.problem.kept_alone(rows)
        change = slopes * pull
        if np.any(f):
            drift = table.eliminated(np.where(inside, table.held + table.l2 * x, 0.0)[:, None])
            change += drift * f
        own, leverage = (np.einsum("qa,qa->a", z[inside], part[inside]) for part in (change, pull))
        change += np.where(inside, x, held)[:, None]
        tableau = Tableau(table.elimination, change[None], pull, kept[None], d, own[None], leverage)
        start = np.repeat(np.where(inside, x, 0.0)[None], len(rows), axis=0).T  # in the order of products
        return cls(tableau=tableau, start=start, bound=np.multiply.outer(kept, table.l1).T)

    def without_the_rows(self, found: Minima) -> Minima:
        """Minima on the same patterns without all of the rows: not even with what ``LETS_GO`` keeps.

        With v = 1 / (1 − w h) they are x' + (v − 1) u, where x' are those of all rows.  Rows with more than a
        little slack move by no more than rounding, and what a row holds alone has no minimum without it.
        """
        v, held = found.inverse_slack, self.bound > 0
        tied = (found.on & held & (found.free == 0)).any(axis=0)
        which = np.flatnonzero(self.determined(found) & ~tied & (v * LITTLE_SLACK > 1.0))
        if which.size == 0:
            return found
        on, free = found.on[:, which], found.free[:, which]
        models = replace(self, tableau=replace(self.tableau, d=np.zeros_like(self.tableau.d)))
        kept, _, _ = models._free(which, on, np.where(on & held[:, which], np.sign(free), 0.0))
        x, inverse_slack = found.free.copy(), v.copy()
        inverse_slack[which] = of_whole_rows(v[which])
        x[:, which] += (inverse_slack[which] * LETS_GO / (1.0 - LETS_GO)) * np.where(on, free - kept, 0.0)
        return replace(found, free=x, inverse_slack=inverse_slack)

    def _free(self, which: Index, on: Mask, signs: Array) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            (free,), (tau,), inverse_slack = self.tableau.solve(which, on, signs)
        return free, tau, inverse_slack


def of_whole_rows(inverse_slack: Array) -> Array:
    """1 / (1 − w h) from that of (1 − ``LETS_GO``) w, for rows that hold no direction alone."""
    return np.asarray(inverse_slack / (1.0 - LETS_GO / (1.0 - LETS_GO) * (inverse_slack - 1.0)))


def _goes_back(free: Array, x: Array, signs: Array, entered: Index) -> Mask:
    """Problems whose coordinate that entered would leave at once, against its sign: (a,).

    It depends on the others, so that nothing curves the objective along it but rounding, here downwards.  The
    objective falls in a straight line along the opposite direction, up to the first zero.
    """
    here = np.arange(len(entered))
    return np.asarray(
        (entered >= 0) & (x[entered, here] == 0) & (free[entered, here] * signs[entered, here] < 0)
    )


def exchanges(on: Mask, signs: Array, free: Array, bound: Array, *, nonnegative: bool = False) -> Mask:
    """What leaves or enters the patterns of quadratic models next: one round of an active-set method.

    Coordinates whose sign has changed leave, and those off the pattern that the kink does not hold enter.

    Parameters
    ----------
    on, signs : arrays
        The patterns: what is free, and with which sign.
    free : array
        The minima on them, and off them what the kinks hold there.
    bound : array
        What the kinks can hold.
    nonnegative : bool, default False
        Whether they hold whatever would go below zero.
    """
    pull = free if nonnegative else np.abs(free)
    moved: Mask = pull > bound * (1.0 + ON_BOUND)
    moved &= ~on
    moved |= on & (free * signs < 0) & (bound > 0)
    return moved


def exchanged(on: Mask, signs: Array, free: Array, moved: Mask) -> tuple[Mask, Array]:
    """The next patterns and signs, after what has moved: few."""
    j, k = places(moved)
    signs = signs.copy(order="K")
    signs[j, k] = np.where(on[j, k], 0.0, np.sign(free[j, k]))
    return on ^ moved, signs

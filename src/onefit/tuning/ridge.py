"""Ridge at every strength from one eigendecomposition, of one response or of many.

With X̃ = W^½ (X − 1 x̄ᵀ) = Q S^½ Vᵀ and ỹ = W^½ (y − ȳ), at every strength alpha

    1 − leverage_i = (1 − Σ_j Q_ij² − w_i/Σw) + Σ_j Q_ij² alpha/(s_j + alpha),
    residual       = (ỹ − Q Qᵀỹ) + Q diag(alpha/(s + alpha)) Qᵀỹ,
    coefficients   = X̃ᵀ Q diag(1/(s + alpha)) Qᵀỹ,

none of which loses digits as alpha goes to zero (Golub, Heath and Wahba 1979).  Responses are gone through in
blocks, so that left-out values of all of them at all strengths are never held.  A path goes on beyond its
grid while the risk falls, and ends in one choice for all responses, or one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.numerics import LEAST_SLACK, rounding_of_slack
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.risk.means import means
from onefit.tuning.contest import Chosen, Contests, choose_each
from onefit.tuning.grid import Grid
from onefit.tuning.path import JudgedPath, SearchResult
from onefit.tuning.ridge_coordinates import CentredDesign
from onefit.tuning.selection import Selection

Judge: TypeAlias = Callable[[Index, Array], Array]  # of responses and strengths: losses (t, J, n)

AT_ONCE = 2**19  # left-out values of all strengths that are looked at together: 4 MiB, half a cache


class Shrinkage(NamedTuple):
    """What strengths do to residuals, whatever the response.

    Attributes
    ----------
    shares : (J, r) array
        alpha / (s + alpha).
    slack : (J, n) array
        1 − leverage.
    factors : (J, n) array
        From a residual of ỹ to the left-out one of y; NaN where a row alone fixes a direction.
    """

    shares: Array
    slack: Array
    factors: Array


@dataclass(frozen=True)
class RidgeSpectrum:
    """The eigendecomposition of a ridge problem, of the smaller of its two Gram matrices.

    Attributes
    ----------
    problem : Problem
        Its penalty is not looked at; ``y`` may have several columns.
    """

    problem: Problem

    @cached_property
    def design(self) -> CentredDesign:
        """X̃."""
        return CentredDesign(self.problem.X, self.problem.weights, bool(np.all(self.problem.intercept)))

    @cached_property
    def _level(self) -> Array:
        """Weighted mean of y, or 0."""
        return self.design.level(self.problem.y)

    @cached_property
    def _decomposition(self) -> tuple[Array, Array, Array | None]:
        """Q (n, r), s (r,) and, of the smaller Gram matrix, V (p, r)."""
        n, p = self.problem.X.shape
        if p <= n:
            s, V = _linalg.positive_eigenpairs(self.design.gram())
            return self.design.times(V / np.sqrt(s)), s, V
        known = self.problem.known_inner
        gram = self.design.row_gram(np.ones(p)) if known is None else self.design.from_products(known.gram)
        s, Q = _linalg.positive_eigenpairs(gram)
        return Q, s, None

    @property
    def largest(self) -> float:
        """Largest eigenvalue of X̃ᵀX̃."""
        s = self._decomposition[1]
        return float(s.max(initial=0.0))

    def _response(self, targets: slice | Index) -> Array:
        """ỹ of some responses: (n, t)."""
        y = self.problem.y.reshape(self.problem.n, -1)[:, targets]
        return self.design.root[:, None] * (y - self._level.reshape(-1)[targets])

    @cached_property
    def _projected(self) -> Array:
        """Qᵀ ỹ: (r, t)."""
        Q = self._decomposition[0]
        parts = [_linalg.product(Q.T, self._response(part)) for part in self.blocks(1)]
        return np.hstack(parts)

    @property
    def n_targets(self) -> int:
        """Number of responses."""
        return self.problem.n_outputs

    def blocks(self, count: int) -> Iterator[slice]:
        """Responses in blocks whose left-out values at so many strengths stay in a fast cache."""
        size = max(1, AT_ONCE // (self.problem.n * count))
        for start in range(0, self.n_targets, size):
            yield slice(start, min(start + size, self.n_targets))

    @cached_property
    def _is_saturated(self) -> bool:
        """Whether the columns explain any response: residual and slack vanish with alpha, which cancels."""
        rows = np.count_nonzero(self.problem.weights > 0) - self.design.centred
        return bool(len(self._decomposition[1]) >= rows)

    @cached_property
    def _squares(self) -> Array:
        return self._decomposition[0] ** 2

    def shrinkage(self, alphas: Array) -> Shrinkage:
        """What these strengths do."""
        s = self._decomposition[1]
        held, saturated = self.problem.weights > 0, self._is_saturated
        unit = np.ones((len(alphas), 1)) if saturated else alphas[:, None]
        shares = unit / (s + alphas[:, None])
        beyond = np.maximum(1.0 - self._squares.sum(axis=1) - self.design.share, 0.0) * (not saturated)
        slack = beyond + _linalg.product(shares, self._squares.T)
        least = 0.0 if saturated else FULL_LEVERAGE
        # a row that alone fixes a direction: what is left of residual and slack is rounding
        root = np.where(held, self.design.root, 1.0)
        factors = np.where(slack > least, 1.0 / (np.where(slack > least, slack, 1.0) * root), np.nan)
        factors[:, ~held] = 1.0
        slack = slack * alphas[:, None] if saturated else slack
        return Shrinkage(shares, np.where(held, slack, 1.0), factors)

    def rounding(self, alphas: Array, slack: Array) -> Array:
        """What rounding leaves of each left-out residual, as a share of it: (J, n).

        Directions that the decomposition dropped have only alpha to curve them.
        """
        s, has_all = self._decomposition[1], len(self._decomposition[1]) == self.problem.X.shape[1]
        least = float(s.min(initial=np.inf)) if has_all or self._is_saturated else 0.0
        condition = (self.largest + alphas) / (least + alphas)
        moved = (1.0 - slack) / np.maximum(slack, LEAST_SLACK)
        return rounding_of_slack(1.0) * condition[:, None] * moved

    def left_out_residuals(self, shrinkage: Shrinkage, targets: slice | Index = slice(None)) -> Array:
        """Y − η̃ of some responses at each strength: (t, J, n)."""
        projected = self._projected.T[targets]
        kept = projected[:, None, :] * shrinkage.shares
        return self._rescaled(kept, projected, targets, shrinkage.factors)

    def _rescaled(self, kept: Array, projected: Array, targets: slice | Index, factors: Array) -> Array:
        """Left-out residuals from those that are kept of Qᵀ ỹ, (t, J, r): (t, J, n)."""
        Q = self._decomposition[0]
        residual = _linalg.product(Q, np.concatenate(kept).T).T.reshape(*kept.shape[:2], len(Q))
        if not self._is_saturated:
            rest = self._response(targets).T - _linalg.product(Q, projected.T).T
            residual += rest[:, None, :]
        residual *= factors
        return residual

    def _from_dual(self, dual: Array) -> Array:
        """X̃ᵀ Q dual: (p, m) for (r, m)."""
        Q, s, V = self._decomposition
        if V is not None:
            return _linalg.product(V * np.sqrt(s), dual)
        return self.design.transposed_times(_linalg.product(Q, dual))

    def coefficients(self, alphas: Array) -> Array:
        """β at each strength: (p, t, J)."""
        s, (r, t) = self._decomposition[1], self._projected.shape
        dual = self._projected[:, :, None] / (s[:, None] + alphas)[:, None, :]
        return self._from_dual(dual.reshape(r, t * len(alphas))).reshape(-1, t, len(alphas))

    def levels(self, coefs: Array) -> Array:
        """Intercepts that belong to coefficients (p, t, ...): (t, ...)."""
        along = np.tensordot(self.design.means, coefs, (0, 0))
        return _linalg.with_axes(self._level.ravel(), along) - along

    def fit(self, alpha: float | Array) -> Fit:
        """The fit at one strength, or at one for each response, (t,)."""
        shape = self.problem.coef_shape
        coef = self._from_dual(self._projected / (self._decomposition[1][:, None] + alpha))
        penalty = L2(alpha if np.ndim(alpha) == 0 else np.broadcast_to(alpha, shape))
        level = np.asarray(self.levels(coef)).reshape(self.problem.outputs)
        return Fit(replace(self.problem, penalty=penalty), coef.reshape(shape), level)

    def left_out(self, alpha: float | Array) -> LeftOut:
        """Leave-one-out at one strength, or at one for each response, (t,)."""
        fit, t = self.fit(alpha), self.n_targets
        strengths, which = np.unique(np.broadcast_to(alpha, t), return_inverse=True)
        shares, slacks, factors = self.shrinkage(strengths)
        eta, bounds = np.empty((self.problem.n, t)), np.zeros(self.problem.n)
        y, rounding = self.problem.y.reshape(eta.shape), self.rounding(strengths, slacks)
        for part in self.blocks(1):
            own, projected = which[part], self._projected.T[part]
            kept = projected * shares[own]
            residual = self._rescaled(kept[:, None], projected, part, factors[own][:, None])[:, 0]
            np.subtract(y[:, part], residual.T, out=eta[:, part])
            np.maximum(bounds, (rounding[own] * np.abs(residual)).max(axis=0), out=bounds)
        slack = np.bincount(which, minlength=len(strengths)) @ slacks / t
        if np.isnan(eta).any():  # a row alone fixes a direction: it has to be refitted
            return leave_out(fit)
        left_out, gone = eta.reshape(self.problem.y.shape), self.problem.weights == 0
        left_out[gone] = fit.eta[gone]
        ones = np.ones(self.problem.n)  # nothing was divided by a vanishing slack, to be wary of
        return LeftOut(fit, left_out, np.where(gone, 0.0, bounds), np.where(gone, 0.0, 1.0 - slack), ones)

    def losses(self, targets: Index, alphas: Array, shrinkage: Shrinkage) -> Array:
        """Squared left-out error of each row of some responses at each strength: (t, J, n)."""
        losses = self.left_out_residuals(shrinkage, targets)
        np.square(losses, out=losses)
        lost = np.flatnonzero(np.isnan(shrinkage.factors).any(axis=1))
        some = self._of(targets) if lost.size else self
        for j in lost:
            losses[:, j] = ((some.problem.y - some.left_out(float(alphas[j])).eta) ** 2).T
        return losses

    def _of(self, targets: Index) -> RidgeSpectrum:
        """The same with some of the responses."""
        y = self.problem.y.reshape(self.problem.n, -1)[:, targets]
        some = RidgeSpectrum(replace(self.problem, y=y, intercept=np.full(y.shape[1], self.design.centred)))
        some.__dict__["_decomposition"] = self._decomposition
        return some


# --- the path ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EachTarget(JudgedPath):
    """Risks of t responses at every strength, and a choice for each.

    Risks and their errors are (J, t) arrays, missing (NaN) where a response was not judged: its risk fell no
    longer.  Of the chosen strengths only, coefficients and intercepts are kept, and not here.

    Attributes
    ----------
    best : (t,) int array
    contests : Contests
    """

    contests: Contests


class Tried(NamedTuple):
    """Responses that were judged at the same strengths.

    Attributes
    ----------
    targets : (t,) int array
    above, below : int
        How many of the strengths are beyond those of the grid, at either end.
    losses : (t, J, n) array
    """

    targets: Index
    above: int
    below: int
    losses: Array

    def of(self, which: Mask) -> Tried:
        """Some of the responses."""
        return self if which.all() else self._replace(targets=self.targets[which], losses=self.losses[which])


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The strengths of a grid, and what they do to the residuals of a ridge problem."""

    spectrum: RidgeSpectrum
    grid: Grid
    known: dict[bytes, Shrinkage]

    @property
    def weights(self) -> Array:
        return self.spectrum.problem.weights

    def losses(self, targets: Index, alphas: Array) -> Array:
        """Left-out losses of some responses: (t, J, n)."""
        key = alphas.tobytes()
        if key not in self.known:
            self.known[key] = self.spectrum.shrinkage(alphas)
        return self.spectrum.losses(targets, alphas, self.known[key])

    def rounding(self, alphas: Array) -> Array:
        """What rounding leaves of each squared error, as a share, at strengths that were judged: (J, n)."""
        slack = dict[float, Array]()
        for key, known in self.known.items():
            slack |= zip(np.frombuffer(key).tolist(), known.slack, strict=True)
        share = self.spectrum.rounding(alphas, np.array([slack[alpha] for alpha in alphas.tolist()]))
        return np.where(self.weights > 0, (2.0 + share) * share, 0.0)

    def mean_losses(self, targets: Index, alphas: Array) -> Array:
        """Their mean over all responses, as one response: (1, J, n)."""
        total = np.zeros((1, len(alphas), len(self.weights)))
        for part in self.spectrum.blocks(len(alphas)):
            total[0] += self.losses(np.arange(part.start, part.stop), alphas).sum(axis=0)
        return total / self.spectrum.n_targets

    def tried(self, targets: Index, judge: Judge) -> Iterator[Tried]:
        """Judge responses at the strengths of the grid, then on at either end while the risk falls."""
        whole = Tried(targets, 0, 0, judge(targets, self.grid.values))
        below = self._extended([whole], self.grid.weaker, judge, weaker=True)
        yield from self._extended(below, self.grid.stronger, judge, weaker=False)

    def _extended(
        self, tried: Iterable[Tried], room: Array, judge: Judge, *, weaker: bool
    ) -> Iterator[Tried]:
        """Go a decade further at a time with those whose risk falls at an end."""
        falls = self.grid.falls_below if weaker else self.grid.falls_above
        decades = np.split(room, range(self.grid.decade, len(room), self.grid.decade)) if room.size else []
        for some in tried:
            for more in decades:
                on = falls(means(some.losses, self.weights))
                if not on.any():
                    break
                if not on.all():
                    yield some.of(~on)
                some = self._further(some.of(on), more, judge, weaker=weaker)
            yield some

    def _further(self, some: Tried, more: Array, judge: Judge, *, weaker: bool) -> Tried:
        """The same at more strengths, which go on from the end."""
        added = judge(some.targets, more if weaker else more[::-1])
        losses = np.concatenate([some.losses, added] if weaker else [added, some.losses], axis=1)
        above, below = (0, len(more)) if weaker else (len(more), 0)
        return Tried(some.targets, some.above + above, some.below + below, losses)


def search_ridge(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> SearchResult:
    """Judge every strength by the mean loss over the responses, and choose one for all."""
    path = RidgePath(spectrum, grid, {})
    (tried,) = path.tried(np.zeros(1, dtype=np.intp), path.mean_losses)
    chosen = choose_each(tried.losses.copy(), path.weights, selection)
    strengths, shape = grid.reaching(tried.above, tried.below), spectrum.problem.outputs
    coefs = spectrum.coefficients(strengths)
    return SearchResult(
        strengths,
        chosen.risks[0],
        chosen.std_errors[0],
        chosen.paired_errors[0],
        means(tried.losses * path.rounding(strengths), path.weights)[0],
        np.moveaxis(coefs, 2, 0).reshape(len(strengths), -1, *shape),
        spectrum.levels(coefs).T.reshape(len(strengths), *shape),
        int(chosen.best[0]),
        tried.losses[0].T,
        next(chosen.contests.each()),
    )


def search_ridge_each(spectrum: RidgeSpectrum, grid: Grid, selection: Selection) -> EachTarget:
    """Judge every strength by the loss of each response, block by block, and choose one for each."""
    path, found = RidgePath(spectrum, grid, {}), list[tuple[Index, int, int, Array, Chosen]]()
    for part in spectrum.blocks(len(grid.values)):
        for tried in path.tried(np.arange(part.start, part.stop), path.losses):
            chosen = choose_each(tried.losses, path.weights, selection)
            most = path.rounding(grid.reaching(tried.above, tried.below)).max(axis=1)  # of any row
            found.append((*tried[:3], most * chosen.risks, chosen))
    return _joined(grid, found)


def _joined(grid: Grid, found: list[tuple[Index, int, int, Array, Chosen]]) -> EachTarget:
    """All responses on the strengths that any of them was judged at."""
    above = max(part[1] for part in found)
    strengths = grid.reaching(above, max(part[2] for part in found))
    t = sum(len(part[0]) for part in found)
    paths, best, contests = np.full((4, len(strengths), t), np.nan), np.empty(t, dtype=np.intp), []
    for own, more, _, off, chosen in found:
        first = above - more
        at = slice(first, first + chosen.risks.shape[1])
        for path, values in zip(paths, (*chosen[:3], off), strict=True):
            path[at, own] = values.T
        best[own] = chosen.best + first
        contests.append(chosen.contests.shifted(first))
    risks, errors, paired, off = paths
    held = Contests.joined(contests, np.concatenate([part[0] for part in found]))
    return EachTarget(strengths, risks, errors, paired, off, None, None, best, held)

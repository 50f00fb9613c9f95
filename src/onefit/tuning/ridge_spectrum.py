"""Ridge from one eigendecomposition, at any strength, of one response or of many.

With X̃ = W^½ (X − 1 x̄ᵀ) = Q S^½ Vᵀ and ỹ = W^½ (y − ȳ), at every strength alpha

    1 − leverage_i = (1 − Σ_j Q_ij² − w_i/Σw) + Σ_j Q_ij² alpha/(s_j + alpha),
    residual       = (ỹ − Q Qᵀỹ) + Q diag(alpha/(s + alpha)) Qᵀỹ,
    coefficients   = X̃ᵀ Q diag(1/(s + alpha)) Qᵀỹ,

none of which loses digits as alpha goes to zero (Golub, Heath and Wahba 1979).  Of rows S that leave together
the residuals are, with the same for several rows,

    r_S = (I − H_SS)⁻¹ e_S,        I − H_SS = (I − Q Qᵀ − level)_SS + Q_S diag(alpha/(s + alpha)) Q_Sᵀ

(Cook and Weisberg 1982, section 3.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.fit import Fit
from onefit.leave_out import LeftOut, leave_out
from onefit.leave_out.step import FULL_LEVERAGE
from onefit.numerics import EPS, LEAST_SLACK, TINY, rounding_of_slack
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.tuning.pulls import in_errors, squares_of_products, usual_by_chance
from onefit.tuning.ridge_coordinates import CentredDesign

# Ratio of squared lengths of columns from which on the products of rows tell too little of the shorter: below
# it errors are 1e-7 of what these explain, and the rows themselves take five times as long.
GRADED_ROWS = 1e8
AT_ONCE = 2**19  # left-out values of all strengths that are looked at together: 4 MiB, half a cache
ALL = slice(None)


def in_blocks(count: int, each: int) -> Iterator[slice]:
    """So many things of so many values each, in blocks whose values stay in a fast cache."""
    size = max(1, AT_ONCE // each)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _sizes(residuals: Array, rows: int) -> Array:
    """What rounding is a share of, with the rows along an axis: all rows share that of the coefficients."""
    sizes = np.abs(residuals)
    usual = np.linalg.norm(np.nan_to_num(sizes), axis=rows, keepdims=True) / np.sqrt(sizes.shape[rows])
    return np.maximum(sizes, usual, out=sizes)


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
        """Q (n, r), s (r,) and, of the smaller Gram matrix, V (p, r).

        Where the columns explain any response Q has to be orthogonal to rounding, as that of the rows is.
        """
        n, p = self.problem.X.shape
        if p < n - self.design.centred:
            s, V = _linalg.positive_eigenpairs(self.design.gram())
            return self.design.times(V / np.sqrt(s)), s, V
        if _linalg.is_full(self.problem.X) and _linalg.is_graded(self.design.column_squares(), GRADED_ROWS):
            s, Q, V = _linalg.graded_rows(self.design.rows(), self._null)
            return Q, s, V
        known = self.problem.known_inner
        gram = self.design.row_gram(np.ones(p)) if known is None else self.design.from_products(known)
        if self._null is None:
            s, Q = _linalg.positive_eigenpairs(gram)
        else:
            s, Q = _linalg.eigenpairs_beside(gram, self._null)
        return Q, s, None

    @property
    def _null(self) -> Array | None:
        """Unit vector that is orthogonal to centred columns."""
        return self.design.root / np.linalg.norm(self.design.root) if self.design.centred else None

    @property
    def largest(self) -> float:
        """Largest eigenvalue of X̃ᵀX̃."""
        s = self._decomposition[1]
        return float(s.max(initial=0.0))

    def _response(self, targets: slice | Index, rows: slice = ALL) -> Array:
        """ỹ of some responses and rows: (n, t)."""
        y = self.problem.y.reshape(self.problem.n, -1)[rows][:, targets]
        return self.design.root[rows, None] * (y - self._level.reshape(-1)[targets])

    @cached_property
    def _projected(self) -> Array:
        """Qᵀ ỹ: (r, t)."""
        Q = self._decomposition[0]
        parts = [_linalg.product(Q.T, self._response(part)) for part in in_blocks(self.n_targets, len(Q))]
        return np.hstack(parts)

    @property
    def n_targets(self) -> int:
        """Number of responses."""
        return self.problem.n_outputs

    @cached_property
    def _is_saturated(self) -> bool:
        """Whether the columns explain any response: residual and slack vanish with alpha, which cancels."""
        rows = np.count_nonzero(self.problem.weights > 0) - self.design.centred
        return bool(len(self._decomposition[1]) >= rows)

    def shrinkage(self, alphas: Array, rows: slice = ALL) -> Shrinkage:
        """What these strengths do to some rows."""
        Q, s, _ = self._decomposition
        squares, held, saturated = Q[rows] ** 2, self.problem.weights[rows] > 0, self._is_saturated
        unit = np.ones((len(alphas), 1)) if saturated else alphas[:, None]
        shares = unit / (s + alphas[:, None])
        slack = np.ascontiguousarray(_linalg.product(shares, squares.T))
        if not saturated:
            slack += np.maximum(1.0 - squares.sum(axis=1) - self.design.share[rows], 0.0)
        # a row that alone fixes a direction: what is left of residual and slack is rounding
        lost = slack <= (0.0 if saturated else FULL_LEVERAGE)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.divide(1.0, slack * self.design.root[rows])
        if lost.any():
            factors[lost] = np.nan
        factors[:, ~held] = 1.0
        if saturated:
            slack *= alphas[:, None]
        slack[:, ~held] = 1.0
        return Shrinkage(shares, slack, factors)

    def rounding(self, alphas: Array, slack: Array) -> Array:
        """What rounding leaves of each left-out residual, as a share of it: (J, n)."""
        moved = (1.0 - slack) / np.maximum(slack, LEAST_SLACK)
        moved *= self.rounding_of_fits(alphas)[:, None]
        return moved

    def rounding_of_fits(self, alphas: Array) -> Array:
        """What rounding leaves of what a fit explains, as a share of it: (J,).

        Directions that the decomposition dropped have only alpha to curve them.  Where units are so different
        that it goes by the condition of the columns in units of their own, Q takes the root of the ratio; not
        where it comes from the rows themselves.
        """
        _, s, V = self._decomposition
        has_all, saturated = len(s) == self.problem.X.shape[1], self._is_saturated
        least = float(s.min(initial=np.inf)) if has_all or saturated else 0.0
        by_columns = V is not None and has_all
        added = alphas * (not by_columns or not saturated)  # else what Q lacks in orthogonality is not shrunk
        ratio = (self.largest + added) / (least + added)
        if (has_all or saturated) and self._graded is not None:
            inverses = _linalg.product(self._graded, 1.0 / (s[:, None] + alphas))
            inflation = ((self._graded @ s)[:, None] * inverses).max(axis=0)
            ratio = np.minimum(ratio, inflation * np.sqrt(ratio) if has_all else inflation)
            if has_all:  # of Q itself, at any strength
                ratio = np.maximum(ratio, np.sqrt(self.largest / s.min()))
        return rounding_of_slack(1.0) * ratio

    @cached_property
    def _graded(self) -> Array | None:
        """Squares of V, where columns are in very different units."""
        _, s, V = self._decomposition
        squares = None if V is None else V**2
        return squares if squares is not None and _linalg.is_graded(squares @ s) else None

    def left_out_residuals(
        self, shrinkage: Shrinkage, targets: slice | Index = ALL, rows: slice = ALL
    ) -> Array:
        """Y − η̃ of some responses and rows at each strength: (t, J, n)."""
        projected = self._projected.T[targets]
        kept = projected[:, None, :] * shrinkage.shares
        return self._rescaled(kept, projected, targets, shrinkage.factors, rows)

    def _rescaled(
        self, kept: Array, projected: Array, targets: slice | Index, factors: Array, rows: slice = ALL
    ) -> Array:
        """Left-out residuals from those that are kept of Qᵀ ỹ, (t, J, r): (t, J, n)."""
        Q = self._decomposition[0][rows]
        residual = _linalg.product(Q, np.concatenate(kept).T).T.reshape(*kept.shape[:2], len(Q))
        if not self._is_saturated:
            rest = self._response(targets, rows).T - _linalg.product(Q, projected.T).T
            residual += rest[:, None, :]
        residual *= factors
        return residual

    def are_pulled_at(self, targets: Index, alpha: float) -> Mask:
        """Whether a column has more to say of each response than by chance: (t,).

        As ``pulls.largest_pull`` tells of a fit; false where there are no columns.
        """
        if not _linalg.has_columns(self.problem.X):
            return np.zeros(len(targets), dtype=bool)
        known, weights = self.shrinkage(np.array([alpha])), self.problem.weights[:, None]
        left_out = np.nan_to_num(self.left_out_residuals(known, targets)[:, 0].T)
        residuals = left_out * known.slack[0][:, None]
        share = np.sqrt(np.sum(weights * residuals**2, axis=0))
        share /= np.sqrt(np.maximum(np.sum(weights * left_out**2, axis=0), TINY))
        means = self.design.means if self.design.centred else None
        squares = squares_of_products(self.problem.X, means, (weights * residuals) ** 2)
        kept = self._projected[:, targets] / (self._decomposition[1][:, None] + alpha)
        pull = alpha * np.abs(self._from_dual(kept))
        pulls = np.minimum(share, 1.0) * in_errors(pull, squares).max(axis=0, initial=0.0)
        return np.asarray(pulls > usual_by_chance(len(pull)))

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

    @property
    def rows(self) -> Index:
        """Rows that are judged: all, (n,)."""
        return np.arange(self.problem.n)

    def predictors(self, alphas: Array) -> tuple[Array, Array]:
        """Left-out η of single rows at each strength, (J, n, t), and what rounding leaves of it, (J, n).

        Missing where a row alone fixes a direction; of rows without weight those of the fits.
        """
        known, y = self.shrinkage(alphas), self.problem.y.reshape(self.problem.n, -1)
        residuals = self.left_out_residuals(known).transpose(1, 2, 0)
        bounds = self.rounding(alphas, known.slack) * _sizes(residuals, 1).max(axis=2)
        eta, gone = y - residuals, self.problem.weights == 0
        if gone.any():
            eta[:, gone] = self.predict(_linalg.some_rows(self.problem.X, np.flatnonzero(gone)), alphas)[0]
        return eta, np.where(gone, 0.0, bounds)

    def left_out(self, alpha: float | Array) -> LeftOut:
        """Leave-one-out at one strength, or at one for each response, (t,)."""
        fit, t = self.fit(alpha), self.n_targets
        strengths, which = np.unique(np.broadcast_to(alpha, t), return_inverse=True)
        shares, slacks, factors = self.shrinkage(strengths)
        eta, bounds = np.empty((self.problem.n, t)), np.zeros(self.problem.n)
        y, rounding = self.problem.y.reshape(eta.shape), self.rounding(strengths, slacks)
        for part in in_blocks(t, self.problem.n):
            own, projected = which[part], self._projected.T[part]
            kept = projected * shares[own]
            residual = self._rescaled(kept[:, None], projected, part, factors[own][:, None])[:, 0]
            np.subtract(y[:, part], residual.T, out=eta[:, part])
            np.maximum(bounds, (rounding[own] * _sizes(residual, 1)).max(axis=0), out=bounds)
        slack = np.bincount(which, minlength=len(strengths)) @ slacks / t
        if np.isnan(eta).any():  # a row alone fixes a direction: it has to be refitted
            return leave_out(solve(fit).fit)
        left_out, gone = eta.reshape(self.problem.y.shape), self.problem.weights == 0
        left_out[gone] = fit.eta[gone]
        ones = np.ones(self.problem.n)  # nothing was divided by a vanishing slack, to be wary of
        return LeftOut(fit, left_out, np.where(gone, 0.0, bounds), np.where(gone, 0.0, 1.0 - slack), ones)

    def without_sets(self, alpha: float, batches: Iterable[Index]) -> Iterator[tuple[Array, Array]]:
        """Left-out predictors of sets of rows that leave together, some sets of one size at a time.

        Each of ``batches`` holds the rows of its sets, (f, m), all of positive weight.  Yields η̃, (f, m, t),
        missing where a set alone fixes a direction, and how far rounding may have moved any of a set, (f,).
        """
        Q, s, _ = self._decomposition
        saturated, y = self._is_saturated, self.problem.y.reshape(self.problem.n, -1)
        shares = 1.0 / (s + alpha) if saturated else s / (s + alpha)  # of slack over alpha, or of leverage
        along = _linalg.product(Q, shares[:, None] * self._projected)
        residual = along if saturated else self._response(ALL) - along
        for rows in batches:
            own, root = Q[rows], self.design.root[rows]
            slack = np.matmul(own * shares, own.transpose(0, 2, 1))
            if not saturated:
                level = self.design.share[rows] / root
                slack = np.eye(rows.shape[1]) - root[:, :, None] * level[:, None] - slack
            sizes = np.linalg.eigvalsh(slack)
            least = sizes[:, 0] * (alpha if saturated else 1.0)
            is_held = least > (EPS * alpha / (self.largest + alpha) if saturated else FULL_LEVERAGE)
            slack[~is_held] = np.nan
            left = np.linalg.solve(slack, residual[rows]) / root[:, :, None]
            share = self.rounding(np.array([alpha]), least[None])[0]
            share += rounding_of_slack(1.0) * sizes[:, -1] / np.maximum(sizes[:, 0], TINY)  # of the solution
            yield y[rows] - left, share * _sizes(left, 0).max(axis=(1, 2))

    def of_rows(self, rows: Index) -> RidgeSpectrum:
        """That of some of the rows."""
        problem = self.problem
        X, y, weights = _linalg.some_rows(problem.X, rows), problem.y[rows], problem.weights[rows]
        return RidgeSpectrum(replace(problem, X=X, y=y, weights=weights))

    def predict(self, X: Design, alphas: Array) -> tuple[Array, Array]:
        """η of other rows at each strength, (J, m, t), and how far rounding may have moved it, (J, m)."""
        coefs = self.coefficients(alphas)
        moved = _linalg.times(X, coefs)
        levels = self.levels(coefs)
        largest = np.abs(moved + (levels - self._level.reshape(-1, 1))).max(axis=(0, 1))
        off = self.rounding_of_fits(alphas) * largest
        return (moved + levels).transpose(2, 0, 1), np.broadcast_to(off[:, None], (len(off), len(moved)))

    def losses(self, shrinkage: Shrinkage, targets: slice | Index, rows: slice = ALL) -> Array:
        """Squared left-out errors of some responses and rows at each strength: (t, J, n)."""
        losses = self.left_out_residuals(shrinkage, targets, rows)
        return np.square(losses, out=losses)

    def refitted_losses(self, targets: slice | Index, alphas: Array) -> Iterator[Array]:
        """Those of all rows at strengths where rows alone fix directions, by refits: (t, n) each."""
        some = self._of(targets)
        for alpha in alphas.tolist():
            yield ((some.problem.y - some.left_out(alpha).eta) ** 2).T

    def _of(self, targets: slice | Index) -> RidgeSpectrum:
        """The same with some of the responses."""
        y = self.problem.y.reshape(self.problem.n, -1)[:, targets]
        some = RidgeSpectrum(replace(self.problem, y=y, intercept=np.full(y.shape[1], self.design.centred)))
        some.__dict__["_decomposition"] = self._decomposition
        return some

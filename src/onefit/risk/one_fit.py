"""Leave-one-out from one fit: a Newton step for each row that leaves, all with the same factor.

With K = Zᵀ D Z + C, h_i = z_iᵀ K⁻¹ z_i, and ``s`` for what a refit rescales besides dropping the row,

    η̃_i = η_i + (h_i g_i + s_i) / (1 − d_i h_i)

(Rad & Maleki 2020; Wang et al. 2018, Theorem 3.1 and eq. 17; Beirami et al. 2017, Theorem 1).  Derivation:
at the optimum the gradient of the objective without row i is −g_i z_i (plus what is rescaled), its
Hessian K − d_i z_i z_iᵀ; Sherman–Morrison inverts the latter.  It is exact when the loss is quadratic and
the active pattern does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.curvature import Curvature
from onefit.fit import Fit
from onefit.penalties import SeparablePenalty
from onefit.risk import full_leverage
from onefit.risk.certificate import leaves_nothing, pattern_stays, step_is_exact
from onefit.risk.paths import cost, follow, has_paths
from onefit.risk.refinement import refine
from onefit.risk.refit import Solved, refit_rows
from onefit.risk.rescaling import Rescaling, curvature_of_refits, rescaling

FULL_LEVERAGE = 1e-8  # slack 1 − d h below which a row determines its own fit
INFLUENTIAL = 2e-3  # change of a row's loss, relative to the objective, that is worth a refit
SAFE_SLACK = 1e-6  # slack below which rounding shows, even where the step is exact
THOROUGH, IN_PASSING = 2.5e8, 1e8  # multiplications that following rows out of the fit may cost
STRAINED_IN_PASSING = 3e7  # the same for rows of high leverage on a path, which looks again before it stops
LITTLE_SLACK = 0.2  # slack below which one step is not to be trusted where it is not exact


@dataclass(frozen=True)
class Refinement:
    """What it took to make every left-out value that of the refit, in rows (or folds).

    Attributes
    ----------
    certified : int
        The first step was proven to be the refit.
    pivoted : int
        Followed along the exact path, one pivot a change of the active pattern.
    stepped : int
        Newton and chord steps were repeated.
    refitted : int
        Solved anew.
    failed : int
        Without which the problem has no solution: they keep the approximation.
    """

    certified: int
    pivoted: int = 0
    stepped: int = 0
    refitted: int = 0
    failed: int = 0

    def __str__(self) -> str:
        counts = {name: count for name, count in self.__dict__.items() if count}
        return ", ".join(f"{count} {name}" for name, count in counts.items())


def _no_rows() -> Index:
    return np.empty(0, dtype=np.intp)


@dataclass(frozen=True)
class LeftOut:
    """The linear predictor of every row when that row is left out.

    Attributes
    ----------
    fit : Fit
    eta : (n,) or (n, c) array
        Left-out linear predictors η̃.
    leverages : (n,) array
        d_i h_i in [0, 1]; the trace of D_i H_i, in [0, c], for coupled outputs.
    slack : (n,) array
        1 − d_i h_i; the smallest singular value of I − D_i H_i for coupled outputs; 1 where the row needs
        none, because it was refitted.
    solved : dict of int to Solved
        Left-out parameters of the rows that were solved anew.
    pivoted : (v,) int array
        Those of them that were followed along their path.
    stepped : (r,) int array
        Rows whose steps were repeated until they solved the problem without the row, pattern and all.
    skipped : int
        How many more rows should have been solved anew, had that been cheap.
    refinement : Refinement or None
        Set where every row was made exact.
    """

    fit: Fit
    eta: Array
    leverages: Array
    slack: Array
    solved: dict[int, Solved] = field(default_factory=dict)
    pivoted: Index = field(default_factory=_no_rows)
    stepped: Index = field(default_factory=_no_rows)
    skipped: int = 0
    refinement: Refinement | None = None

    @property
    def rows(self) -> Index:
        """The row that each value is for: (n,)."""
        return np.arange(len(self.eta))

    @property
    def removed(self) -> None:
        """Every row leaves alone: there are no sets."""

    @property
    def fold(self) -> Index:
        """Number of the set that each row leaves with: its own."""
        return self.rows

    @property
    def refitted(self) -> Index:
        """Rows that were solved anew: (r,)."""
        return np.array(sorted(self.solved), dtype=np.intp)

    @property
    def effective_df(self) -> float:
        """Σ d_i h_i, the effective degrees of freedom; the mean over independent outputs."""
        return float(self.leverages.sum())

    @cached_property
    def certified(self) -> Mask:
        """Rows whose left-out value is proven equal to the refit."""
        exact = step_is_exact(self.fit) & ~self.changing & (self.slack >= SAFE_SLACK)
        proven = exact | leaves_nothing(self.fit)
        proven[self.refitted] = proven[self.stepped] = True
        return proven

    @cached_property
    def changing(self) -> Mask:
        """Rows of a quadratic loss without which the active pattern is another one."""
        known = np.isin(self.rows, np.concatenate([self.refitted, self.stepped]))
        eta = self.eta.copy()
        eta[known] = np.nan
        return ~(known | pattern_stays(self.fit, eta))

    @property
    def strained(self) -> Mask:
        """Rows on which one Newton step is asked for too much, judged by their leverage alone."""
        return self.slack < _least_slack(self.fit)

    def with_solved(self, solved: dict[int, Solved], *, pivoted: bool = False) -> LeftOut:
        """Return this with some more rows solved anew."""
        eta, slack = self.eta.copy(), self.slack.copy()
        for i, one in solved.items():
            eta[i], slack[i] = one.eta, 1.0
        followed = np.fromiter(solved, dtype=np.intp) if pivoted else _no_rows()
        followed = np.concatenate([self.pivoted, followed])
        return replace(self, eta=eta, slack=slack, solved=self.solved | solved, pivoted=followed)

    def without_slack(self, rows: Index) -> LeftOut:
        """Return this with some rows not to be trusted."""
        slack = self.slack.copy()
        slack[rows] = 0.0
        return replace(self, slack=slack)


def loo(fit: Fit, curvature: Curvature | None = None, *, thorough: bool = True) -> LeftOut:
    """Leave every row out of a fit that is optimal on its pattern.

    Parameters
    ----------
    fit : Fit
    curvature : Curvature, optional
        That of the fit, if it is at hand; factored here when missing, or when a refit shrinks it.
    thorough : bool, default True
        Whether the few rows that no step from the fit reaches may be solved anew; along a path they
        are not.
    """
    if is_wide_ridge(fit):
        left_out = _leave_out_in_dual(fit)
        if left_out is not None:
            return left_out
    if fit.problem.loss.has_corners:
        left_out = _leave_out_of_corners(fit)
        left_out = _followed(left_out, ~leaves_nothing(fit), THOROUGH if thorough else IN_PASSING)
        return _made_sure(left_out) if thorough else left_out
    curvature = curvature_of_refits(fit, curvature)
    step = Step.of(fit, curvature)
    left_out = step.taken(fit)
    alone = np.flatnonzero((left_out.slack < FULL_LEVERAGE) & (fit.problem.weights > 0))
    if alone.size and full_leverage.applies(fit):
        left_out.eta[alone] = full_leverage.let_go(fit, curvature, step.forms, step.shift, alone)
    if not fit.problem.loss.quadratic:
        eta, unsettled = refine(
            fit, curvature, left_out.eta, step.forms, step.gradient, step.shift, thorough=thorough
        )
        left_out = replace(left_out, eta=eta).without_slack(unsettled)
    return _made_sure(left_out) if thorough else _followed(left_out, left_out.strained, STRAINED_IN_PASSING)


def one_step(fit: Fit, curvature: Curvature | None = None) -> LeftOut:
    """One Newton step for every row of a smooth loss, and nothing more."""
    return Step.of(fit, curvature_of_refits(fit, curvature)).taken(fit)


class Step(NamedTuple):
    """The ingredients of the Newton step of a smooth loss."""

    forms: Array  # h, in the shape that ``quadratic_forms`` has
    gradient: Array  # g, grown by what the refit rescales: the shape of ``eta``
    shift: Array  # s
    rescaled: Rescaling

    @classmethod
    def of(cls, fit: Fit, curvature: Curvature) -> Step:
        """Read them off a fit and the curvature of its refits."""
        rescaled = rescaling(fit, curvature)
        slope = (fit.gradient.T * (1.0 + rescaled.growth)).T
        return cls(curvature.quadratic_forms(), slope, rescaled.shift(curvature, fit), rescaled)

    def taken(self, fit: Fit) -> LeftOut:
        """One step for every row, and nothing more."""
        step = _coupled if fit.problem.loss.coupled else _separable
        return step(fit, self.forms, self.gradient, self.shift)


def _least_slack(fit: Fit) -> float:
    """Slack below which the step is not to be trusted: any row may be far out where the step is exact."""
    return SAFE_SLACK if step_is_exact(fit) and not fit.is_kinked else LITTLE_SLACK


def _out_of_reach(left_out: LeftOut) -> Index:
    """Rows that no step on the pattern of the fit gets right: most important first.

    They are those that determine their own fit, those whose steps did not settle and, where the pattern
    changes or may change, those that weigh most in the correction of the risk.
    """
    fit = left_out.fit
    problem = fit.problem
    known = np.isin(left_out.rows, left_out.refitted)
    change = problem.per_row(problem.loss.value(problem.y, left_out.eta))
    change = np.abs(change - problem.per_row(problem.loss.value(problem.y, fit.eta)))
    change = change.reshape(problem.n, -1).sum(axis=1)
    lost = (left_out.slack < _least_slack(fit)) & (problem.weights > 0)
    if fit.is_kinked or problem.loss.has_corners:
        doubtful = (change > INFLUENTIAL * abs(fit.objective)) & ~known
        if problem.loss.has_corners and (fit.is_kinked or not has_paths(fit)):  # it moves in jumps, or may
            doubtful = ~leaves_nothing(fit)
        lost |= doubtful & ~_keeps_its_pattern(left_out, doubtful)
    rows = np.flatnonzero(lost & ~known)
    return rows[np.argsort(-change[rows])]


def _made_sure(left_out: LeftOut) -> LeftOut:
    """Follow or solve anew the few rows that need it."""
    fit, rows = left_out.fit, _out_of_reach(left_out)
    rest = rows
    if has_paths(fit):
        tried = rows[: _affordable(fit, rows.size)]
        left_out = left_out.with_solved(follow(fit, tried), pivoted=True)
        rest = tried[~np.isin(tried, left_out.refitted)]
    left_out = left_out.with_solved(refit_rows(fit, rest, warm=not fit.has_free_directions))
    return replace(left_out, skipped=int(np.sum(~np.isin(rows, left_out.refitted))))


def _affordable(fit: Fit, rows: int) -> int:
    """How many of some rows may be followed."""
    first = cost(fit, 1)
    each = max(cost(fit, 2) - first, 1.0)
    return max(0, min(rows, int((THOROUGH - first) / each) + 1))


def _followed(left_out: LeftOut, which: Mask, budget: float) -> LeftOut:
    """Follow rows of which a single step is a poor guess, where that is cheap."""
    fit, rows = left_out.fit, np.flatnonzero(which)
    if rows.size == 0 or not has_paths(fit) or cost(fit, rows.size) > budget:
        return left_out
    left_out = left_out.with_solved(follow(fit, rows), pivoted=True)
    return left_out.without_slack(rows[~np.isin(rows, left_out.refitted)])  # they did not arrive


def _keeps_its_pattern(left_out: LeftOut, rows: Mask) -> Mask:
    """Rows, of some, that are known to keep the pattern: (n,)."""
    fit = left_out.fit
    if not rows.any() or not fit.is_kinked or not step_is_exact(fit):
        return np.zeros(len(rows), dtype=bool)
    eta = left_out.eta.copy()
    eta[~rows] = np.nan
    return rows & pattern_stays(fit, eta)


def _separable(fit: Fit, h: Array, g: Array, shift: Array) -> LeftOut:
    h = h.reshape(len(h), -1) if g.ndim == 2 else h
    leverages = fit.hessian * h
    slack = 1.0 - leverages
    eta = fit.eta + (h * g + shift) / np.maximum(slack, FULL_LEVERAGE)
    if g.ndim == 2:
        leverages, slack = leverages.mean(axis=1), slack.min(axis=1)
    return LeftOut(fit, eta, np.clip(leverages, 0.0, 1.0), slack)


def _leave_out_of_corners(fit: Fit) -> LeftOut:
    """One step for a piecewise linear loss; rows without a slope leave nothing behind."""
    problem = fit.problem
    if problem.mean_scaled or problem.balance is not None:
        return _released(fit)
    acting = np.flatnonzero((fit.gradient != 0) | fit.pinned)
    few = _released(fit.of_rows(acting))
    eta, leverages, slack = fit.eta.copy(), np.zeros(problem.n), np.ones(problem.n)
    eta[acting], leverages[acting], slack[acting] = few.eta, few.leverages, few.slack
    return LeftOut(fit, eta, leverages, slack)


def _released(fit: Fit) -> LeftOut:
    """Rows in a corner of the loss hold it themselves, and are released: η̃_i = η_i + g_i / T_ii.

    Without some of them the fit is not determined on its pattern: they have no slack.
    """
    curvature = curvature_of_refits(fit)
    h, rescaled = curvature.quadratic_forms(), rescaling(fit, curvature)
    g, shift = fit.gradient * (1.0 + rescaled.growth), rescaled.shift(curvature, fit)
    loose = np.isinf(h)
    h = np.where(loose, 0.0, h)
    leverages = np.where(fit.pinned, 1.0, fit.hessian * h)
    slack = np.where(fit.pinned, 1.0, 1.0 - leverages)
    eta = fit.eta + (h * g + shift) / np.maximum(slack, FULL_LEVERAGE)
    return LeftOut(fit, eta, np.clip(leverages, 0.0, 1.0), np.where(loose, 0.0, slack))


def _coupled(fit: Fit, H: Array, g: Array, shift: Array) -> LeftOut:
    D, eye = fit.hessian, np.eye(g.shape[1])
    kept = eye - D @ H
    slack: Array = np.linalg.svd(kept, compute_uv=False)[:, -1].astype(np.float64)
    kept = np.where(slack[:, None, None] < FULL_LEVERAGE, eye * FULL_LEVERAGE, kept)
    # (K − ZᵀDZ)⁻¹ = K⁻¹ + K⁻¹Zᵀ (I − D H)⁻¹ D Z K⁻¹, applied to Zᵀg and to the rescaling
    step = np.linalg.solve(kept, g[:, :, None] + D @ shift[:, :, None])
    eta = fit.eta + (H @ step)[:, :, 0] + shift
    leverages = np.einsum("nab,nba->n", D, H)
    return LeftOut(fit, eta, np.maximum(leverages, 0.0), slack)


def is_wide_ridge(fit: Fit) -> bool:
    """Whether the fit is least squares with an ℓ2 penalty or none, and enough columns to interpolate."""
    problem = fit.problem
    if not problem.loss.quadratic or problem.loss.has_corners or problem.mean_scaled:
        return False
    if problem.balance is not None or not isinstance(problem.penalty, SeparablePenalty):
        return False
    wide = fit.coef.shape[0] + 1 >= np.count_nonzero(problem.weights)
    return wide and not fit.is_kinked and bool(np.all(fit.tangent.support))


def _leave_out_in_dual(fit: Fit) -> LeftOut | None:
    """Left-out predictions of wide ridge fits and their limit, the interpolating one of minimum norm.

    As the strength goes to zero, g and 1 − d h vanish together.  Their ratio does not: with
    A = W⁻¹ + X C⁻¹ Xᵀ (or X Xᵀ where C = 0) and Q = A⁻¹ − A⁻¹1 1ᵀA⁻¹/(1ᵀA⁻¹1), the second term only with an
    intercept,

        y_i − η̃_i = (Q y)_i / Q_ii,      1 − d_i h_i = Q_ii / w_i    (0 where C = 0).

    None if the minimum-norm fit does not interpolate, or the strengths differ over outputs or vanish in part.
    """
    problem = fit.problem
    Q = residual_form(fit)
    if Q is None:
        return None
    rows = np.flatnonzero(problem.weights)
    weights, penalised = problem.weights[rows], bool(np.any(fit.tangent.hessian))
    diagonal = Q.diagonal()
    eta, slack, leverages = fit.eta.copy(), np.ones(problem.n), np.zeros(problem.n)
    eta[rows] = problem.y[rows] - (_linalg.product(Q, problem.y[rows]).T / diagonal).T
    leverages[rows] = 1.0 - diagonal / weights if penalised else 1.0
    return LeftOut(fit, eta, np.clip(leverages, 0.0, 1.0), slack)


def residual_form(fit: Fit) -> Array | None:
    """Q of the rows with weight, or None where ``_leave_out_in_dual`` has none."""
    problem = fit.problem
    curved = fit.tangent.hessian.reshape(len(fit.coef), -1)
    if np.ptp(curved, axis=1).max() > 0 or (np.any(curved) and not np.all(curved)):
        return None
    rows = np.flatnonzero(problem.weights)
    penalised = bool(np.any(curved))
    scale = np.where(penalised, curved[:, 0], 1.0)
    G = _linalg.row_gram(problem.X, 1.0 / scale)[np.ix_(rows, rows)]
    noise = 1.0 / problem.weights[rows] if penalised else np.zeros(len(rows))
    return _inverse_form(G, noise, bool(np.all(problem.intercept)))


def _inverse_form(G: Array, noise: Array, intercept: bool) -> Array | None:
    """Q of ``_leave_out_in_dual``; None if A has no inverse.

    With an intercept G may be centred and any multiple of 1 1ᵀ be added: neither changes Q, and both keep A
    well conditioned.
    """
    A = G
    if intercept:
        A = _linalg.centred_gram(G, np.full(len(G), 1.0 / len(G)))
        A += max(float(np.trace(A)) / len(A), float(noise.mean()), np.finfo(float).tiny)
    A = np.asarray(A, order="F")
    A[np.diag_indices_from(A)] += noise
    L = _linalg.cholesky(A)
    if L is None:
        return None
    Q = _linalg.factor_solve(L, np.eye(len(A), order="F"))
    if not intercept:
        return Q
    ones = Q.sum(axis=0)
    return Q - np.outer(ones, ones) / ones.sum()

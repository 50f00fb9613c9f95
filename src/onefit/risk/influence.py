"""How much each row moves a penalised fit: Cook's distance and DFBETAS, from the factor of leave-one-out.

With Δθ⁽ⁱ⁾ = θ̃⁽ⁱ⁾ − θ and the dispersion φ,

    D_i = Σ_j d_j (z_jᵀ Δθ⁽ⁱ⁾)² / (φ df),        DFBETAS_ij = −Δβ_j⁽ⁱ⁾ / √(φ⁽ⁱ⁾ (K⁻¹ Zᵀ D Z K⁻¹)_jj)

(Cook 1977; Belsley, Kuh and Welsch 1980; Pregibon 1981 for generalised linear models).  For least squares
φ⁽ⁱ⁾ is without the row, from the residuals of the fit without it, and without a penalty both are those of
``OLSInfluence`` in statsmodels; for other losses φ⁽ⁱ⁾ is φ.  Both measures rest on the curvature of the
loss: one with kinks has neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Design, Index
from onefit.curvature import Direction
from onefit.fit import Fit
from onefit.leave_out.departure import RowDepartures
from onefit.losses import Tweedie, UnitDispersion
from onefit.pieces import Pieces
from onefit.risk.leverages import own_leverages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onefit.displays import InfluenceDisplay


SHOWN = 5  # rows of a table
ROUNDED = 1e-9  # degrees of freedom that are none: df is a sum of leverages


@dataclass(frozen=True, eq=False, repr=False)
class RowInfluence:
    """Influence of each row on the fit; prints the rows that decide most.

    Attributes
    ----------
    cooks_distance : (n,) array
        Squared change of all fitted values, in units of their uncertainty: above 1 a row decides the fit.
    dfbetas : (n, p) or (n, c, p) array
        β_j − β_j⁽ⁱ⁾ in units of the standard error of β_j, for least squares that which the other rows
        tell; 0 for coefficients that are not in the model, and NaN where there are too few rows to tell any
        error.  Where only the top rows were asked for: of ``rows[:top]``, in this order.
    leverages : (n,) array
    """

    cooks_distance: Array
    dfbetas: Array
    leverages: Array

    @cached_property
    def rows(self) -> Index:
        """Row numbers, most influential first: (n,)."""
        return np.argsort(-self.cooks_distance, kind="stable")

    def __repr__(self) -> str:
        lines = [
            f"{row:>6}  {self.cooks_distance[row]:>15.3g}  {self.leverages[row]:>8.3f}"
            for row in self.rows[:SHOWN].tolist()
        ]
        return "\n".join([f"{'row':>6}  Cook's distance  leverage", *lines])

    def plot(self, ax: Axes | None = None) -> InfluenceDisplay:
        """Cook's distance of each row, the largest with their numbers."""
        from onefit.displays import InfluenceDisplay

        return InfluenceDisplay(self.cooks_distance, self.leverages).plot(ax)


class _Moves(NamedTuple):
    """What one output says of every row.

    Attributes
    ----------
    distance : (n,) array
        Cook's.
    variance : array
        Of each coefficient, but for the dispersion: the shape of ``coef``.
    dispersions : (n,) array
        Without each row.
    changes : list of arrays
        Of the coefficients without each row, blocks along the last axis; none where they are not kept.
    """

    distance: Array
    variance: Array
    dispersions: Array
    changes: list[Array]


def influence(
    departures: RowDepartures, df: float, *, constant: bool = False, top: int | None = None
) -> RowInfluence:
    """Cook's distance of every row, and DFBETAS.

    Outputs that nothing ties together each have their own errors; their Cook's distances are averaged.

    Parameters
    ----------
    departures : RowDepartures
    df : float
        Effective degrees of freedom.
    constant : bool, default False
        Whether the last column stands for the intercept.
    top : int, optional
        DFBETAS only of so many rows, those of the largest Cook's distance: nothing of n x p is held then.

    Raises
    ------
    ValueError
        If the loss has kinks.
    """
    fit = departures.fit
    _check_curved(fit)
    leverages, parts, are_apart = departures.left_out.leverages, [(departures, df)], False
    if fit.problem.is_apart and fit.problem.n_outputs > 1:
        outputs, are_apart = [departures.of_output(k) for k in range(fit.problem.n_outputs)], True
        parts = [(own, float(own_leverages(own.fit).sum())) for own in outputs]
    each = [_moves(own, own_df, keep=top is None) for own, own_df in parts]
    distance = np.mean([moves.distance for moves in each], axis=0)
    rows = None if top is None else np.argsort(-distance, kind="stable")[:top]
    pairs = zip(parts, each, strict=True)
    dfbetas = [_dfbetas(own, moves, rows, constant=constant) for (own, _), moves in pairs]
    return RowInfluence(distance, np.stack(dfbetas, axis=1) if are_apart else dfbetas[0], leverages)


def _moves(departures: RowDepartures, df: float, *, keep: bool) -> _Moves:
    """Go over all rows, and ``keep`` how the coefficients change without each."""
    fit, changes = departures.fit, list[Array]()
    squares, slopes = np.empty(fit.problem.n), np.empty(fit.problem.n)
    variance = np.zeros_like(fit.coef)
    curved, width = _curved_squares(fit)
    for rows in departures.blocks(width):
        change = departures.changes(rows)
        squares[rows] = curved(change)
        slopes[rows] = np.tensordot(fit.loss_gradient, change.coef, axes=fit.coef.ndim)
        if keep:
            changes.append(change.coef)
        variance += _variance(departures, rows)
    distance = squares / max(_dispersion(fit, df) * df, np.finfo(float).tiny)
    return _Moves(distance, variance, _dispersions_without(departures, df, slopes + squares / 2.0), changes)


def _dfbetas(departures: RowDepartures, moves: _Moves, rows: Index | None, *, constant: bool) -> Array:
    """Of all rows, or of some: (r, p), or (r, c, p)."""
    coef, changes, without = departures.fit.coef, moves.changes, moves.dispersions
    if rows is not None:
        changes = [departures.changes(slice(i, i + 1)).coef for i in rows.tolist()]
        without = without[rows]
    moved = -np.concatenate(changes, axis=-1) if changes else np.empty((*coef.shape, 0))
    scale = np.sqrt(np.multiply.outer(moves.variance, without))
    dfbetas: Array = np.divide(moved, scale, out=np.zeros_like(moved), where=scale != 0)
    return dfbetas[: len(coef) - constant].T


def _check_curved(fit: Fit) -> None:
    """Refuse losses with kinks: where rows sit on these, the second derivative says nothing of a move."""
    if fit.problem.loss.has_kinks:
        raise ValueError(
            f"influence() measures by the curvature of the loss, and {type(fit.problem.loss).__name__} has "
            "kinks instead: coef() gives the coefficients without each row, losses how far it is off then"
        )


def _dispersion(fit: Fit, df: float) -> float:
    """φ: 1 for families that have none, else the residual deviance over its degrees of freedom."""
    problem = fit.problem
    counts = isinstance(problem.loss, Tweedie) and problem.loss.power == 1  # Poisson's
    if counts or isinstance(problem.loss, UnitDispersion):
        return 1.0
    losses = problem.per_row(problem.loss.value(problem.y, fit.eta))
    free = float(np.count_nonzero(problem.weights)) - df
    return 2.0 * float(losses.sum()) / losses[0].size / free if free > ROUNDED else float("nan")


def _dispersions_without(departures: RowDepartures, df: float, rise: Array) -> Array:
    """φ⁽ⁱ⁾: of the other rows at the fit without row i for least squares, else that of all rows: (n,).

    A sum of squares rises by its slope and its curvature along the change, and by no more; what is left of
    it without the row's own part is as exact as the change, to the rounding of the whole.
    """
    fit, problem = departures.fit, departures.fit.problem
    if problem.loss.pieces is not Pieces.QUADRATIC:
        return np.full(problem.n, _dispersion(fit, df))
    losses, own = (
        problem.per_row(problem.loss.value(problem.y, eta)) for eta in (fit.eta, departures.left_out.eta)
    )
    total, own = losses.sum(), own.reshape(problem.n, -1).sum(axis=1)
    others = np.maximum(total + rise - own, np.finfo(float).eps * total)
    free = np.count_nonzero(problem.weights) - (problem.weights > 0) - df
    return np.divide(
        2.0 * others / losses[0].size, free, out=np.full(problem.n, np.nan), where=free > ROUNDED
    )


def _curved_squares(fit: Fit) -> tuple[Callable[[Direction], Array], int]:
    """From changes of the parameters, along the last axis, to Σ_j Δη_jᵀ D_j Δη_j; and what it holds a row.

    With as many rows as parameters or more it is a form in Zᵀ D Z, so that its cost for all rows is linear
    in their number; with fewer the Δη_j themselves are the shorter vectors.
    """
    if fit.coef.size + fit.problem.n_outputs > fit.eta.size:
        return lambda change: _by_rows(fit, change), fit.eta.size
    D = _linalg.row_matrices(fit.hessian, fit.problem.n_outputs)
    total = np.einsum("naa->n", D)
    centre = _linalg.transposed_times(fit.problem.X, total) / max(total.sum(), np.finfo(float).tiny)
    outputs = range(D.shape[1])
    moments = {
        (a, b): _moments(fit.problem.X, centre, np.ascontiguousarray(D[:, a, b]))
        for a in outputs
        for b in outputs
        if np.any(D[:, a, b])
    }
    return lambda change: _by_moments(moments, centre, change), 0


def _by_rows(fit: Fit, change: Direction) -> Array:
    eta = fit.problem.linear_predictor(*change)
    return (eta * fit.bent(eta)).reshape(-1, eta.shape[-1]).sum(axis=0)


def _moments(X: Design, centre: Array, d: Array) -> tuple[Array, Array, float]:
    """Σ d x xᵀ, Σ d x and Σ d for rows x less a centre."""
    along, total = _linalg.transposed_times(X, d), float(d.sum())
    return _linalg.full_gram(X, centre, d), along - total * centre, total


def _by_moments(
    moments: dict[tuple[int, int], tuple[Array, Array, float]], centre: Array, change: Direction
) -> Array:
    """Σ_ab β_aᵀ G_ab β_b + t_a g_abᵀ β_b + t_b g_abᵀ β_a + s_ab t_a t_b, with t the change at the centre."""
    coef = change.coef.reshape(len(centre), -1, change.coef.shape[-1])
    t = np.reshape(change.intercept, coef.shape[1:]) + np.tensordot(centre, coef, axes=1)
    found = np.zeros(coef.shape[-1])
    for (a, b), (gram, along, total) in moments.items():
        found += np.sum(coef[:, a] * (gram @ coef[:, b]), axis=0) + total * t[a] * t[b]
        found += t[a] * (along @ coef[:, b]) + t[b] * (along @ coef[:, a])
    return found


def _variance(departures: RowDepartures, rows: slice) -> Array:
    """Part of some rows in diag K⁻¹ Zᵀ D Z K⁻¹: the shape of the coefficients."""
    fit = departures.fit
    bend = fit.hessian[rows]
    if fit.problem.has_one_output:
        return departures.answers(rows, np.ones(len(bend))).coef ** 2 @ bend
    c = fit.problem.n_outputs
    D = _linalg.row_matrices(bend, c)
    unit = [departures.answers(rows, np.tile(np.eye(c)[a], (len(D), 1))).coef for a in range(c)]
    return np.einsum("apkr,rab,bpkr->pk", unit, D, unit, optimize=True)

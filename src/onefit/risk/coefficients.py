"""Coefficients with jackknife errors, from the fits without each row, or group: sums over blocks of these.

With β⁽ⁱ⁾ the coefficients without row i and m rows of positive weight,

    se² = (m − 1)/m Σ_i (β⁽ⁱ⁾ − β̄)²,        β̄ = Σ_i β⁽ⁱ⁾ / m

(Tukey 1958; Efron and Stein 1981).  For least squares it is the error that is robust to unequal variances
(MacKinnon and White 1985, HC3 up to the centring); with groups in the place of rows, to any dependence
within these (CV3; MacKinnon, Nielsen and Webb 2023).  For a penalised fit it is the error of the penalised
coefficient, not of its distance from the truth; for the lasso it ignores that the choice of columns varies
more between samples than between a sample and itself less one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit import _linalg
from onefit._typing import Array, Mask
from onefit.leave_out.departure import Departures
from onefit.risk.presentation import frame

COLUMNS = ("coef", "std_error", "same_sign", "selected")


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientTable:
    """Coefficients of a fit, and what leaving each row out, or each group, does to them.

    Attributes
    ----------
    names : tuple of str
        p names.
    coef, std_error : (p,) or (c, p) array
        In units of the response by unit of the column, and the jackknife error.
    same_sign : (p,) or (c, p) array
        Share of the left-out fits in which the coefficient has the sign that it has in the fit; for a
        coefficient of 0, in which it is 0 too.
    selected : (p,) or (c, p) array
        Share of the left-out fits in which the coefficient is not 0.
    intercept, intercept_error : () or (c,) array
    """

    names: tuple[str, ...]
    coef: Array
    std_error: Array
    same_sign: Array
    selected: Array
    intercept: Array
    intercept_error: Array

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a coefficient; of several outputs a column says which.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        shape = np.atleast_2d(self.coef).T.shape
        columns = {name: np.atleast_2d(getattr(self, name)).T.ravel() for name in COLUMNS}
        if self.coef.ndim > 1:
            columns["output"] = np.indices(shape)[1].ravel()
        return frame(columns, np.repeat(self.names, shape[1]))

    def __repr__(self) -> str:
        width = max([len(name) for name in self.names] + [9])
        head = f"{'':<{width}}  {'coef':>11}  {'std. error':>11}  {'same sign':>9}  {'selected':>8}"
        every = np.stack([np.atleast_2d(getattr(self, name)).T for name in COLUMNS], axis=-1)
        lines = [
            f"{name:<{width}}  {b:>11.5g}  {se:>11.3g}  {same:>9.1%}  {chosen:>8.1%}"
            for name, outputs in zip(self.names, every, strict=True)
            for b, se, same, chosen in outputs
        ]
        return "\n".join([head, *lines])


def coefficient_table(
    departures: Departures,
    names: Sequence[str] | None = None,
    *,
    constant: float = 0.0,
    scale: Any = 1.0,
    centre: Any = 0.0,
    has_scale: bool = False,
) -> CoefficientTable:
    """Coefficients with jackknife errors, in blocks of rows.

    Parameters
    ----------
    departures : Departures
    names : sequence of str, optional
        p names.
    constant : float
        Value of the last column of X where that stands for the intercept, else 0.
    scale, centre : float or (p,) array
        Where X holds (x − centre) / scale, the table is in the units of x.
    has_scale : bool
        Whether the second of two outputs is a scale, which users do not know as an output.

    Raises
    ------
    ValueError
        If there is not one name, scale or centre a column.
    """
    fit = departures.fit
    p = len(fit.coef) - bool(constant)
    scale, centre = (np.broadcast_to(np.asarray(v, dtype=np.float64), (p,)) for v in (scale, centre))
    names = tuple(f"column {j}" for j in range(p)) if names is None else tuple(map(str, names))
    if len(names) != p:
        raise ValueError(f"names must hold one name a column, {p}, got {len(names)}")
    full = _parameters(fit.coef[..., None], fit.intercept[..., None], constant, scale, centre)
    known = departures.counts
    changes = (
        _parameters(change.coef[..., held], change.intercept[..., held], constant, scale, centre)
        for change, held in _held_changes(departures, known)
    )
    error, same, selected = _jackknife(full[..., 0], changes, int(known.sum()))
    columns = [full[..., 0], error, same, selected]
    coef, error, same, selected = (column[:, 0] if has_scale else column.T for column in columns)
    return CoefficientTable(
        names, coef[..., :p], error[..., :p], same[..., :p], selected[..., :p], coef[..., p], error[..., p]
    )


def _held_changes(departures: Departures, known: Mask) -> Iterator[tuple[Any, Mask]]:
    for units in departures.blocks():
        yield departures.changes(units), known[units]


def _parameters(coef: Array, level: Array, constant: float, scale: Array, centre: Array) -> Array:
    """Coefficients and, as the last, the intercept, in the units of x: linear in what the fit holds."""
    if constant:
        coef, level = coef[:-1], level + constant * coef[-1]
    coef = coef / _linalg.with_axes(scale, coef)
    return np.concatenate([coef, (level - np.tensordot(centre, coef, axes=1))[None]])


def _jackknife(full: Array, changes: Iterator[Array], m: int) -> tuple[Array, Array, Array]:
    """Error, share of the same sign and share that is not 0, from the changes without each of m rows."""
    total, squares = np.zeros_like(full), np.zeros_like(full)
    same, selected = np.zeros_like(full), np.zeros_like(full)
    for change in changes:
        total += change.sum(axis=-1)
        squares += np.square(change).sum(axis=-1)
        without = full[..., None] + change
        same += np.count_nonzero(np.sign(without) == np.sign(full)[..., None], axis=-1)
        selected += np.count_nonzero(without, axis=-1)
    spread = np.maximum(squares - total**2 / m, 0.0)
    return np.sqrt((m - 1) / m * spread), same / m, selected / m

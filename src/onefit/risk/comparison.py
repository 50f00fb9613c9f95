"""Risks of several models on the same rows, held against the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.stats import t as student

from onefit._typing import Array
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import mean_and_error
from onefit.risk.presentation import frame, to_the_error

HEAD = ("risk", "std_error", "difference", "difference_error", "p_better")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Models by their risk, the best first.

    Attributes
    ----------
    names : tuple of str
    risk, std_error : (m,) arrays
    difference, difference_error : (m,) arrays
        To the best, and the standard error of that difference.  Losses of a row under two models move
        together, so it is known better than either risk.  Rows of a group count as one, and so do those of a
        row that several splits leave out.
    p_better : (m,) array
        How sure the rows make it that the best is better than this model: Student's t of the difference, one
        side.  The best was chosen for its rank, so near one half this says little.
    loss_name : str

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso, Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> models = {"lasso": Lasso(0.05), "ridge": Ridge(0.1)}
    >>> risks = {name: onefit.loo(model.fit(X, y), X, y) for name, model in models.items()}
    >>> found = onefit.compare(**risks)
    >>> found.names[0], bool(found.difference_error[1] < found.std_error[1] / 5)
    ('lasso', True)
    """

    names: tuple[str, ...]
    risk: Array
    std_error: Array
    difference: Array
    difference_error: Array
    p_better: Array
    loss_name: str

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a model."""
        return frame({name: getattr(self, name) for name in HEAD}, list(self.names))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (name, *_cells(risk, error), *_cells(rise, paired), f"{sure:.1%}")
            for name, risk, error, rise, paired, sure in zip(
                self.names,
                self.risk,
                self.std_error,
                self.difference,
                self.difference_error,
                self.p_better,
                strict=True,
            )
        ]

    def __str__(self) -> str:
        lines = [("", *HEAD), *self._rows()]
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        shown = ["  ".join(f"{text:>{w}}" for text, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([f"left-out {self.loss_name}", *shown])

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.names)} models by {self.loss_name}: {self.names[0]} is best>"

    def _repr_html_(self) -> str:
        rows = [("", *HEAD), *self._rows()]
        cells = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _cells(value: float, error: float) -> tuple[str, str]:
    """A number and its error, to the digits that the error leaves."""
    cell, of_error = to_the_error(value, error)
    return cell, of_error or "0"


def compare(*models: Any, names: Sequence[str] | None = None, **named: Any) -> Comparison:
    """Hold risks of models against the best, by paired differences of their rows.

    Parameters
    ----------
    *models : RiskEstimate, or fitted estimators that have one as ``loo_``
        Or one mapping of name to such.  Those of rows in blocks take one more pass over them.
    names : sequence of str, optional
        Of ``models``; their classes, numbered, if missing.
    **named
        More of them, by name.

    Returns
    -------
    Comparison
        As ``arviz.compare``: the best first, differences with their standard errors.

    Raises
    ------
    ValueError
        If there are fewer than two, or they are not of the same rows, left out alike, and the same loss.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> found = onefit.compare(lasso=onefit.LassoLOO().fit(X, y), mean=onefit.RidgeLOO([1e9]).fit(X, y))
    >>> found.names
    ('lasso', 'mean')
    """
    given = _by_name(models, names, named)
    estimates = {name: _estimate(name, one) for name, one in given.items()}
    if len(estimates) < 2:
        raise ValueError(f"compare needs at least two models, got {len(estimates)}")
    _check_same_rows(estimates)
    order = sorted(estimates, key=lambda name: estimates[name].value)
    best = estimates[order[0]]
    units = [best._units(estimates[name].losses - best.losses) for name in order]
    rise = np.array([estimates[name].value - best.value for name in order])
    error = np.array([mean_and_error(*own)[1] for own in units])
    ratio = np.divide(rise, error, out=np.zeros(len(order)), where=error > 0)
    n = int(np.count_nonzero(units[0][1]))
    return Comparison(
        tuple(order),
        np.array([estimates[name].value for name in order]),
        np.array([estimates[name].std_error for name in order]),
        rise,
        error,
        np.asarray(student.cdf(ratio, max(n - 1, 1))),
        best.loss_name,
    )


def _by_name(models: tuple[Any, ...], names: Sequence[str] | None, named: dict[str, Any]) -> dict[str, Any]:
    if len(models) == 1 and isinstance(models[0], Mapping):
        return dict(models[0]) | named
    if names is None:
        names = [f"{type(model).__name__} {k}" for k, model in enumerate(models)]
    if len(names) != len(models) or len(set(names) | set(named)) < len(models) + len(named):
        raise ValueError(f"names must hold one name a model, all different, got {list(names)!r}")
    return dict(zip(names, models, strict=True)) | named


def _estimate(name: str, model: Any) -> RiskEstimate:
    found = getattr(model, "loo_", getattr(model, "best_risk_", model))
    if hasattr(found, "in_memory"):  # of rows in blocks
        found = found.in_memory()
    if not isinstance(found, RiskEstimate):
        raise TypeError(
            f"{name} must be a result of onefit.loo, or a fitted estimator that has one as loo_, got "
            f"{type(model).__name__}: write onefit.loo(model, X, y)"
        )
    return found


def _check_same_rows(estimates: dict[str, RiskEstimate]) -> None:
    (first, one), *others = estimates.items()
    for name, other in others:
        if other.loss_name != one.loss_name:
            raise ValueError(
                f"{first} is judged by {one.loss_name} and {name} by {other.loss_name}: compare models of "
                "one loss"
            )
        same = np.array_equal(one.rows, other.rows) and np.array_equal(np.asarray(one.y), np.asarray(other.y))
        if not same:
            raise ValueError(f"{first} and {name} were judged on other rows: leave the same rows out of each")
        own, theirs = (np.ones(1) if e.sample_weight is None else e.sample_weight for e in (one, other))
        if not np.array_equal(own, theirs):
            raise ValueError(f"{first} and {name} have other weights of the rows: pass the same ones to each")
        if _leaving(one) != _leaving(other):
            raise ValueError(
                f"{first} and {name} leave other rows out together, and so train on different numbers "
                "of them: give both the same groups or folds, or leave single rows out of both"
            )


def _leaving(estimate: RiskEstimate) -> frozenset[tuple[int, ...]] | None:
    """The sets of rows that were left out; None where every row was on its own, or after saving."""
    removed = None if estimate._left_out is None else estimate._left_out.removed
    return None if removed is None else frozenset(tuple(np.sort(rows).tolist()) for rows in removed)

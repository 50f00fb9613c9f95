"""Risks of several models on the same rows, held against the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student

from onefit._typing import Array, Mask
from onefit.numerics import CONFIDENCE
from onefit.risk.estimate import RiskEstimate
from onefit.risk.means import mean_and_error
from onefit.risk.presentation import effective_rows, frame, to_the_error

TOLD = 10  # rows that tell how losses of two models move together
HEAD = ("risk", "std_error", "difference", "difference_error", "p_worse")


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
        row that several splits leave out.  Of a risk that is "sampled" the error of its sample is in it.
    p_worse : (m,) array
        How sure the rows make it that this model is worse than the best: Student's t of the difference, one
        side; NaN for the best.  The best was chosen for its rank, so near one half this says little.
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
    p_worse: Array
    loss_name: str

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a model."""
        return frame({name: getattr(self, name) for name in HEAD}, list(self.names))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (name, *_cells(risk, error), *_cells(rise, paired), "" if np.isnan(sure) else f"{sure:.1%}")
            for name, risk, error, rise, paired, sure in zip(
                self.names,
                self.risk,
                self.std_error,
                self.difference,
                self.difference_error,
                self.p_worse,
                strict=True,
            )
        ]

    def __str__(self) -> str:
        lines = [("", *HEAD), *self._rows()]
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        shown = ["  ".join(f"{text:>{w}}" for text, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([f"left-out {self.loss_name}", *(line.rstrip() for line in shown)])

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
    rise = np.array([estimates[name].value - best.value for name in order])
    errors, counts = zip(*(_paired(estimates[name], best) for name in order), strict=True)
    error = np.array(errors)
    return Comparison(
        tuple(order),
        np.array([estimates[name].value for name in order]),
        np.array([estimates[name].std_error for name in order]),
        rise,
        error,
        _chance_worse(rise, error, np.array(counts)),
        best.loss_name,
    )


def _chance_worse(rise: Array, error: Array, counts: Array) -> Array:
    """Student's t of each difference to the first, one side; one half of rows whose losses are equal."""
    equal = error <= 0
    ratio = np.divide(rise, error, out=np.where(rise > 0, np.inf, 0.0), where=~equal)
    worse = np.asarray(student.cdf(ratio, np.maximum(counts - 1, 1)), dtype=np.float64)
    worse[0] = np.nan
    return worse


def _paired(one: RiskEstimate, best: RiskEstimate) -> tuple[float, int]:
    """Standard error of the difference of two risks, and how many rows, or groups of them, tell it.

    That of the data, by the rows whose losses without themselves are known of both models, and those of the
    samples that risks rest on.
    """
    if one is best:
        return 0.0, len(one.losses)
    (own, _), (other, _) = each = [_share(estimate) for estimate in (one, best)]
    both, chances = own & other, np.prod([chance for _, chance in each], axis=0)
    if both.all():
        losses, weights = best._units(one.losses - best.losses)
        data, count = mean_and_error(losses, weights)[1], int(np.count_nonzero(weights))
    elif len(one._units(one.losses)[0]) == len(both) and np.count_nonzero(both) >= TOLD:
        weights = one._row_weights[both] / chances[both]
        losses, count = (one.losses - best.losses)[both], int(np.count_nonzero(weights))
        data = mean_and_error(losses, weights)[1] * np.sqrt(count / effective_rows(*one._counted))
    else:  # as if they moved apart
        data, count = float(np.hypot(one.std_error, best.std_error)), min(own.sum(), other.sum())
    return float(np.linalg.norm([data, *(_of_sample(estimate) for estimate in (one, best))])), int(count)


def _share(estimate: RiskEstimate) -> tuple[Mask, Array]:
    """Rows whose losses without themselves are known, or about, and the chance that each had: (t,) each."""
    every, drawn = np.ones(len(estimate.losses)), estimate.sampled
    if drawn is None or not drawn.has_seen:
        return every > 0, every
    told = drawn.draw >= 0
    return told, np.where(told, drawn.chances[drawn.draw], 1.0)


def _of_sample(estimate: RiskEstimate) -> float:
    """Standard error that a risk has from the sample that it rests on."""
    if estimate.guarantee != "sampled":
        return 0.0
    return estimate.approx_error / float(normal.ppf(0.5 + 0.5 * CONFIDENCE))


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
        if not np.array_equal(one.rows, other.rows):
            raise ValueError(f"{first} and {name} were judged on other rows: leave the same ones out of each")
        if not np.array_equal(np.asarray(one.y), np.asarray(other.y)):
            raise ValueError(
                f"{first} was judged by another y than {name}, or by its rows in another order: give both "
                "the same y"
            )
        own, theirs = (np.ones(1) if e.sample_weight is None else e.sample_weight for e in (one, other))
        if not np.array_equal(own, theirs):
            raise ValueError(f"{first} and {name} have other weights of the rows: pass the same ones to each")
        if _leaving(one) != _leaving(other):
            raise ValueError(
                f"{first} and {name} leave other rows out together, and so train on different numbers "
                "of them: give both the same groups or folds, or leave single rows out of both"
            )


def _leaving(estimate: RiskEstimate) -> frozenset[tuple[int, ...]] | None:
    """The sets of rows that were left out; None where every row was on its own."""
    removed = estimate._removed
    if removed is None or (len(removed) == len(estimate.rows) and all(len(rows) == 1 for rows in removed)):
        return None
    return frozenset(tuple(np.sort(rows).tolist()) for rows in removed)

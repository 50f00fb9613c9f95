"""Penalties of appendix A that no figure of the paper shows, SLOPE and ℓ∞: refits, and ALO by both routes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import curves
import numpy as np
import plotting
import results
import settings
from curves import Curves, Stopwatch

import onefit
from onefit.penalties import LInfinity, Penalty, Slope
from onefit.risk import ALO

Array = np.ndarray
N = results.pick("rows", full=150, quick=75)  # n Clarabel refits a strength, of P² constraints for SLOPE
P = results.pick("columns", full=60, quick=30)
STRENGTHS = results.pick("strengths", full=25, quick=3)


def by_cvxpy(X: Array, y: Array, strengths: Array, norm: Callable[..., object]) -> Array:
    """Left-out predictions at all strengths by Clarabel: (J, n)."""
    import cvxpy as cp

    beta, strength = cp.Variable(X.shape[1]), cp.Parameter(nonneg=True)
    kept = cp.Parameter(len(y), nonneg=True)
    loss = 0.5 * cp.sum_squares(cp.multiply(kept, y - X @ beta))
    problem = cp.Problem(cp.Minimize(loss + strength * norm(cp, beta)))
    found = np.empty((len(strengths), len(y)))
    for j, strength.value in enumerate(strengths):
        for i in range(len(y)):
            kept.value = np.where(np.arange(len(y)) == i, 0.0, 1.0)
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
            found[j, i] = X[i] @ beta.value
    return found


def panel(
    title: str, penalty: Callable[[float], Penalty], norm: Callable[..., object], strengths: Array
) -> tuple[Curves, float]:
    """One penalty, and how far both routes of the formula are apart."""
    sample, watch, found, apart = settings.lasso(1, N, P, 10), Stopwatch(), [], 0.0
    X, y = sample.X, sample.y
    by_hand = watch.time("refits", partial(by_cvxpy, X, y, strengths, norm))
    for strength in strengths:
        model = onefit.GeneralizedLinear("squared", penalty(strength), fit_intercept=False).fit(X, y)
        plain = watch.time("plain", partial(onefit.evaluate, model, X, y, ALO())).value
        apart = max(apart, abs(onefit.evaluate(model, X, y, ALO("dual")).value / plain - 1.0))
        exact = watch.time("ours", partial(onefit.loo, model, X, y, exact=True)).value
        found.append((plain, exact))
    risks = np.mean((y - by_hand) ** 2, axis=1)
    return Curves(title, X.shape, strengths, risks, *np.transpose(found), "Clarabel", watch.seconds), apart


def main() -> None:
    """Both panels."""
    warnings.simplefilter("ignore", onefit.UnreliableWarning)
    weights = np.linspace(2.0, 1.0, P)

    def sorted_norm(cp: object, beta: object) -> object:
        falls = -np.diff(np.append(weights, 0.0))
        return sum(fall * cp.sum_largest(cp.abs(beta), k + 1) for k, fall in enumerate(falls))

    slope, apart = panel("SLOPE", partial(Slope, weights), sorted_norm, np.geomspace(1.0, 20.0, STRENGTHS))
    largest, other = panel(
        "ℓ∞", LInfinity, lambda cp, beta: cp.norm_inf(beta), np.geomspace(5.0, 200.0, STRENGTHS)
    )
    figure, axes = plotting.panels(1, 2)
    for ax, one in zip(axes.flat, (slope, largest), strict=True):
        plotting.draw_risks(ax, one.strengths, one.refits, one.plain, one.ours)
        ax.set_title(f"{one.title} (n = {N}, p = {P})")
    plotting.label(axes, strength="strength λ", risk="risk (squared error)")
    plotting.legend_below(figure, list(axes.flat))
    plotting.save(figure, settings.FOLDER, "figure_3")
    curves.report([slope, largest], "figure_3", "SLOPE and ℓ∞, which no figure of the paper shows.")
    results.save(
        settings.FOLDER,
        "routes",
        ("penalty", "primal and dual route apart, largest"),
        [("SLOPE", f"{apart:.1e}"), ("ℓ∞", f"{other:.1e}")],
        caption="Theorems 5.1 and 5.2: approximate leave-one-out by both routes, relative difference.",
        seeds="1",
        numbers={"below 1e-6": float(max(apart, other) < 1e-6)},
    )


if __name__ == "__main__":
    main()

"""Figure 2: (a) support vector machine, fused lasso and nuclear norm, n > p and n < p; (b) three lassos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import curves
import numpy as np
import plain
import plotting
import refits
import results
import settings
from curves import Curves, Stopwatch
from sklearn.svm import LinearSVC

import onefit
from onefit.penalties import L1, L2, FusedLasso, NuclearNorm, Penalty

Array = np.ndarray
SHARE = settings.SHARE
SIDE = results.pick("side of the matrices", full=20, quick=8)


def squared(y: Array, eta: Array) -> float:
    """Mean squared error."""
    return float(np.mean((y - eta) ** 2))


def least_squares(
    title: str,
    sample: settings.Sample,
    penalty: Callable[[float], Penalty],
    strengths: Array,
    all_refits: Callable[[Array, Array, Array], Array],
    reference: str = "scikit-learn LARS",
) -> Curves:
    """Squared loss, no intercept, and any penalty, with the refits of someone else at all strengths."""
    X, y, watch, found = sample.X, sample.y, Stopwatch(), []
    by_hand = watch.time("refits", lambda: all_refits(X, y, strengths))
    for strength in strengths:
        model = onefit.GeneralizedLinear("squared", penalty(strength), fit_intercept=False)
        for name in ("plain", "ours"):  # each pays for its fit
            watch.time(name, partial(model.fit, X, y))
        eta = watch.time("plain", partial(plain.smooth_loss, model, X, y))
        exact = watch.time("ours", partial(onefit.loo, model, X, y, exact=True))
        found.append((squared(y, eta), exact.value))
    risks = np.array([squared(y, eta) for eta in by_hand])
    return Curves(title, X.shape, strengths, risks, *np.transpose(found), reference, watch.seconds)


def support_vectors(title: str, sample: settings.Sample, strengths: Array) -> Curves:
    """Hinge loss without an intercept: the refits are scikit-learn's LinearSVC, as in the paper.

    A row beyond its margin has no part in the fit, which is then its refit too: only the others are refitted.
    """
    X, y, watch, found = sample.X, sample.y, Stopwatch(), []
    signs = 2.0 * y - 1.0

    def risk(eta: Array) -> float:
        return float(np.mean(np.maximum(0.0, 1.0 - signs * eta)))

    for strength in strengths:
        model = onefit.GeneralizedLinear("hinge", L2(strength), fit_intercept=False)
        for name in ("plain", "ours"):
            watch.time(name, partial(model.fit, X, y))
        eta, gram = model.decision_function(X), X @ X.T
        one_step = watch.time("plain", partial(plain.hinge, gram, eta, signs, strength, intercept=False))
        exact = watch.time("ours", partial(onefit.loo, model, X, y, exact=True))
        machine = LinearSVC(
            loss="hinge", C=1.0 / strength, fit_intercept=False, tol=1e-7, max_iter=200_000, random_state=0
        )
        inside = np.flatnonzero(signs * eta < 1.0 + plain.ON_THE_MARGIN)
        left_out = eta.copy()
        left_out[inside] = watch.time(
            "refits", partial(refits.of_estimator, machine, X, y, LinearSVC.decision_function, inside)
        )
        found.append((risk(left_out), risk(one_step), exact.value))
    return Curves(title, X.shape, strengths, *np.transpose(found), "scikit-learn LinearSVC", watch.seconds)


def low_rank(title: str, n: int, strengths: Array) -> Curves:
    """Square matrices, of 20 × 20 in the paper."""
    shape = (SIDE, SIDE)
    return least_squares(
        title,
        settings.nuclear_norm(n, *shape, seed=1),
        partial(NuclearNorm, shape),
        strengths * (SIDE / 20) ** 3,  # as the correlations of y with the matrices grow
        partial(refits.nuclear_norm, shape=shape),
        "ADMM in NumPy",
    )


def part_a() -> list[Curves]:
    """Three models, n > p above n < p."""
    machines = results.pick("strengths of SVM", full=40, quick=4)
    fused, ranks = (
        results.pick("strengths of fused lasso", full=40, quick=4),
        results.pick("strengths of nuclear norm", full=30, quick=2),
    )
    above, below = np.geomspace(1.0, 1e3, machines), np.geomspace(30.0, 5e3, machines)
    return [
        support_vectors("SVM, n > p", settings.svm(300 // SHARE, 80 // SHARE, seed=1), above),
        least_squares(
            "fused lasso, n > p",
            settings.fused_lasso(200 // SHARE, 100 // SHARE, seed=1),
            FusedLasso,
            np.geomspace(0.1, 100.0, fused),
            refits.fused_lasso,
        ),
        low_rank("nuclear norm, n > p", 3 * SIDE**2 // 2, np.geomspace(20.0, 500.0, ranks)),
        support_vectors("SVM, n < p", settings.svm(300 // SHARE, 600 // SHARE, seed=1), below),
        least_squares(
            "fused lasso, n < p",
            settings.fused_lasso(200 // SHARE, 400 // SHARE, seed=1),
            FusedLasso,
            np.geomspace(0.3, 100.0, fused),
            refits.fused_lasso,
        ),
        low_rank("nuclear norm, n < p", SIDE**2 // 2, np.geomspace(5.0, 300.0, ranks)),
    ]


def part_b() -> list[Curves]:
    """The lasso where the model is wrong, the noise heavy-tailed, or the design correlated."""
    samples = {
        "misspecification": settings.misspecified(seed=1),
        "heavy-tailed noise": settings.heavy_tailed(seed=1),
        "correlated design": settings.correlated(seed=1),
    }
    strengths = np.geomspace(1.0, 60.0, results.pick("strengths of lasso", full=25, quick=4))
    return [least_squares(title, sample, L1, strengths, refits.lasso) for title, sample in samples.items()]


def picture(panels: list[Curves], rows: int, name: str, risks: list[str], caption: str) -> None:
    """Draw the panels, row by row."""
    figure, axes = plotting.panels(rows, len(panels) // rows)
    for ax, one in zip(axes.flat, panels, strict=True):
        plotting.draw_risks(ax, one.strengths, one.refits, one.plain, one.ours)
        ax.set_title(f"{one.title} (n = {one.size[0]}, p = {one.size[1]})")
    plotting.label(axes, strength="strength λ", risk="")
    for ax, risk in zip(axes.flat, risks * rows, strict=True):
        ax.set_ylabel(risk)
    plotting.legend_below(figure, list(axes.flat))
    plotting.save(figure, settings.FOLDER, name)
    curves.report(panels, name, caption)


def main() -> None:
    """Both parts."""
    squares = ["risk (squared error)"] * 2
    wrong = "Figure 2b: lassos where the model is wrong, the noise heavy-tailed, the design correlated."
    picture(part_b(), 1, "figure_2b", ["risk (squared error)", *squares], wrong)
    models = "Figure 2a: SVM, fused lasso and nuclear norm, n > p and n < p."
    picture(part_a(), 2, "figure_2a", ["risk (hinge loss)", *squares], models)


if __name__ == "__main__":
    main()

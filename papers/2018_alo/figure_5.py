"""Figure 5: arcene (for gisette) by a linear SVM, heart disease and colon tumour by logistic lassos."""

from __future__ import annotations

import warnings
from functools import partial

import curves
import numpy as np
import plain
import plotting
import refits
import results
import settings
from curves import Curves, Stopwatch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import onefit
from onefit.penalties import L1

Array = np.ndarray


def log_loss(y: Array, eta: Array) -> float:
    """Mean log-loss of linear predictors."""
    return float(np.mean(np.logaddexp(0.0, eta) - y * eta))


def support_vectors(title: str, sample: settings.Sample, strengths: Array) -> Curves:
    """Linear SVC with an intercept, by its Gram matrix; fit and refits are scikit-learn's."""
    X, y, watch, found = sample.X, sample.y, Stopwatch(), []
    signs, gram = 2.0 * y - 1.0, X @ X.T

    def risk(eta: Array) -> float:
        return float(np.mean(np.maximum(0.0, 1.0 - signs * eta)))

    def fit_without(machine: SVC, i: int) -> float:
        rest = np.delete(np.arange(len(y)), i)
        machine.fit(gram[np.ix_(rest, rest)], y[rest])
        return float(machine.decision_function(gram[[i]][:, rest])[0])

    for strength in strengths:
        machine = SVC(kernel="precomputed", C=1.0 / strength, tol=1e-9)
        for name in ("plain", "ours"):
            watch.time(name, partial(machine.fit, gram, y))
        eta = _on_the_margin(machine, gram, signs)
        one_step = watch.time("plain", partial(plain.hinge, gram, eta, signs, strength, intercept=True))
        exact = watch.time("ours", partial(onefit.loo, machine, gram, y, exact=True))
        again = SVC(**machine.get_params())
        left_out = watch.time(
            "refits", lambda again=again: np.array([fit_without(again, i) for i in range(len(y))])
        )
        found.append((risk(left_out), risk(one_step), exact.value))
    return Curves(title, X.shape, strengths, *np.transpose(found), "scikit-learn SVC", watch.seconds)


def _on_the_margin(machine: SVC, gram: Array, signs: Array) -> Array:
    """Decision values with the free support vectors exactly on their margin: LibSVM misses it a little."""
    eta = machine.decision_function(gram)
    dual = np.zeros(len(eta))
    dual[machine.support_] = np.abs(machine.dual_coef_[0])
    free = (dual > 1e-9 * machine.C) & (dual < (1.0 - 1e-9) * machine.C)
    return np.where(free, signs, eta)


def logistic_lasso(title: str, sample: settings.Sample, strengths: Array) -> Curves:
    """Logistic loss, ℓ1 penalty, an intercept; the refits are liblinear's."""
    X, y, watch, found = sample.X, sample.y, Stopwatch(), []
    for strength in strengths:
        model = onefit.GeneralizedLinear("logistic", L1(strength))
        for name in ("plain", "ours"):
            watch.time(name, partial(model.fit, X, y))
        eta = watch.time("plain", partial(plain.smooth_loss, model, X, y))
        exact = watch.time("ours", partial(onefit.loo, model, X, y, exact=True))
        found.append((log_loss(y, eta), exact.value))
    by_hand = watch.time("refits", partial(_logistic_refits, X, y, strengths))
    risks = np.array([log_loss(y, eta) for eta in by_hand])
    return Curves(
        title, X.shape, strengths, risks, *np.transpose(found), "scikit-learn liblinear", watch.seconds
    )


def _logistic_refits(X: Array, y: Array, strengths: Array) -> Array:
    """Left-out linear predictors at all strengths: (J, n).

    Liblinear penalises its intercept; a column of 1e5 in place of ones makes that 1e-5 of what it would be.
    """
    found = np.empty((len(strengths), len(y)))
    for j, strength in enumerate(strengths):
        model = LogisticRegression(
            C=1.0 / strength,
            l1_ratio=1.0,
            solver="liblinear",
            tol=1e-10,
            max_iter=10_000,
            intercept_scaling=1e5,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a few stop just short of tol
            found[j] = refits.of_estimator(
                model, X, y, LogisticRegression.decision_function, np.arange(len(y))
            )
    return found


def main() -> None:
    """All three panels."""
    many = results.pick("strengths", full=17, quick=3)
    panels = [
        support_vectors("arcene", settings.arcene(), np.geomspace(1e-3, 10.0, many)),
        logistic_lasso("heart disease", settings.heart_disease(), np.geomspace(0.1, 60.0, many)),
        logistic_lasso("colon tumour", settings.colon_tumour(), np.geomspace(0.05, 10.0, many)),
    ]
    figure, axes = plotting.panels(1, 3)
    for ax, one, risk in zip(axes.flat, panels, ["hinge loss", "log-loss", "log-loss"], strict=True):
        plotting.draw_risks(ax, one.strengths, one.refits, one.plain, one.ours)
        ax.set_title(f"{one.title} (n = {one.size[0]}, p = {one.size[1]})")
        ax.set_ylabel(f"risk ({risk})")
        ax.set_xlabel("strength λ")
    plotting.legend_below(figure, list(axes.flat))
    plotting.save(figure, settings.FOLDER, "figure_5")
    curves.report(
        panels, "figure_5", "Figure 5: real data; arcene in place of gisette, which could not be had."
    )


if __name__ == "__main__":
    main()

"""Figure 1: five folds are biased where p is near n or above, leave-one-out is not."""

from __future__ import annotations

import numpy as np
import plain
import plotting
import refits
import results
import settings
from curves import Curves, Stopwatch, report
from sklearn.linear_model import lasso_path
from sklearn.model_selection import KFold

import onefit
from onefit.penalties import L1

Array = np.ndarray
STRENGTHS = np.geomspace(3.0, 60.0, results.pick("strengths", full=25, quick=4))
SAMPLES = results.pick("data sets", full=40, quick=200)  # small ones are cheap, and their means noisy
FOLDS = (3, 5, 10)


def left_out(sample: settings.Sample) -> tuple[Curves, Array]:
    """Leave-one-out in three ways, and the error on new data, which is known: ‖β̂ − β‖² + σ², as Σ = I."""
    X, y, watch, found, new = sample.X, sample.y, Stopwatch(), [], []
    by_hand = watch.time("refits", lambda: refits.lasso(X, y, STRENGTHS))
    for strength in STRENGTHS:
        model = onefit.GeneralizedLinear("squared", L1(strength), fit_intercept=False)
        for name in ("plain", "ours"):
            watch.time(name, lambda model=model: model.fit(X, y))
        eta = watch.time("plain", lambda model=model: plain.smooth_loss(model, X, y))
        exact = watch.time("ours", lambda model=model: onefit.loo(model, X, y, exact=True))
        found.append((np.mean((y - eta) ** 2), exact.value))
        new.append(np.sum((model.coef_ - sample.truth) ** 2) + settings.NOISE**2)
    risks = np.mean((y - by_hand) ** 2, axis=1)
    curves = Curves(
        "lasso", X.shape, STRENGTHS, risks, *np.transpose(found), "scikit-learn LARS", watch.seconds
    )
    return curves, np.array(new)


def folds(sample: settings.Sample, k: int) -> Array:
    """K-fold cross-validation by scikit-learn with the same total penalty in every fold: (J,)."""
    X, y = sample.X, sample.y
    losses = np.empty((len(STRENGTHS), len(y)))
    for train, test in KFold(k, shuffle=True, random_state=0).split(X):
        alphas = STRENGTHS[::-1] / len(train)
        coefs = lasso_path(X[train], y[train], alphas=alphas, tol=1e-8, max_iter=100_000)[1]
        losses[:, test] = ((y[test, None] - X[test] @ coefs) ** 2).T[::-1]
    return losses.mean(axis=1)


def many() -> dict[str, Array]:
    """The folds', our leave-one-out's and the true risks of many data sets: (SAMPLES, J) each."""
    risks: dict[str, list[Array]] = {}
    for seed in range(SAMPLES):
        sample = settings.lasso(seed)
        models = [
            onefit.GeneralizedLinear("squared", L1(strength), fit_intercept=False).fit(sample.X, sample.y)
            for strength in STRENGTHS
        ]
        found = {f"{k} folds": folds(sample, k) for k in FOLDS}
        found["leave-one-out"] = np.array(
            [onefit.loo(model, sample.X, sample.y, exact=True).value for model in models]
        )
        found["new data"] = np.array([np.sum((m.coef_ - sample.truth) ** 2) for m in models])
        found["new data"] += settings.NOISE**2
        for name, risk in found.items():
            risks.setdefault(name, []).append(risk)
    return {name: np.array(found) for name, found in risks.items()}


def main() -> None:
    """Left one data set, right the mean over many."""
    sample = settings.lasso(seed=1)
    one, new = left_out(sample)
    all_risks = many()
    mean = {name: risk.mean(axis=0) for name, risk in all_risks.items()}
    figure, axes = plotting.panels(1, 2, width=4.0, height=3.2)
    left, right = axes[0]
    for ax in (left, right):
        truth = new if ax is left else mean["new data"]
        ax.plot(STRENGTHS, truth, "-", color="#4d9221", lw=4, alpha=0.4, label="new data (true risk)")
    for k, colour in zip(FOLDS, ("#b8a3c9", "#7a3e9d", "#3f1d54"), strict=True):
        for ax, risk in ((left, folds(sample, k)), (right, mean[f"{k} folds"])):
            ax.plot(STRENGTHS, risk, ":", color=colour, lw=1.6, label=f"{k} folds")
    plotting.draw_risks(left, STRENGTHS, one.refits, one.plain, one.ours)
    right.plot(STRENGTHS, mean["leave-one-out"], "-", color=plotting.OURS, lw=1.6)
    plotting.logarithmic(right)
    left.set_ylim(0.35, 1.4)
    right.set_ylim(0.35, 1.4)
    left.set_title(f"one data set (n = {len(sample.y)}, p = {sample.X.shape[1]})")
    right.set_title(f"mean of {SAMPLES} data sets")
    plotting.label(axes, strength="strength λ", risk="risk (squared error)")
    plotting.legend_below(figure, [left, right])
    plotting.save(figure, settings.FOLDER, "figure_1")
    report(
        [one], "figure_1", f"Figure 1, left: leave-one-out of a lasso, n = {settings.N}, p = {settings.P}."
    )
    best = int(np.argmin(mean["new data"]))
    rows, numbers = [], dict[str, float]()
    for name, risk in all_risks.items():
        above = 100 * (risk - all_risks["new data"])[:, best] / mean["new data"][best]
        error = above.std(ddof=1) / np.sqrt(SAMPLES)
        rows.append((name, f"{mean[name][best]:.3f}", f"{above.mean():+.1f} ± {error:.1f} %"))
        numbers |= {f"{name}: above": float(above.mean()), f"{name}: error": float(error)}
    results.save(
        settings.FOLDER,
        "figure_1_bias",
        (f"mean at λ = {STRENGTHS[best]:.3g}", "risk", "above that on new data"),
        rows,
        caption="Figure 1, right: folds and leave-one-out against new data, at the best strength.",
        seeds=f"0 to {SAMPLES - 1}",
        numbers=numbers,
    )


if __name__ == "__main__":
    main()

"""The bootstrap, to which the paper expects its approximation to extend: out-of-bag risk by one Newton step.

A bootstrap sample weighs row i by w_i, how often it was drawn.  From the fit of all rows, with gradients g_i
and curvatures d_i, one step leads to θ − K⁻¹ Zᵀ((w − 1) g), with K that of the sample, Zᵀ diag(w d) Z + Λ,
which is factored anew, or that of the fit, which is factored once.
"""

from __future__ import annotations

import time

import numpy as np
import results
import settings
from logistic import Logistic, log_losses
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import LogisticRegression

Array = np.ndarray
STRENGTHS = (10 / 3, 5 / 6, 5 / 24, 5 / 96)
DRAWS = results.pick("bootstrap samples", full=500, quick=40)
NAMES = ("refits", "one step, K of the sample", "one step, K of the fit")


def fitted(data: settings.Images, strength: float, weights: Array) -> Logistic:
    """The fit of weighted rows."""
    model = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", tol=1e-10, max_iter=500)
    return Logistic.of(model.fit(data.X, data.y, weights), data.X, data.y)


def stepped(fit: Logistic, weights: Array, *, anew: bool) -> Array:
    """Parameters one step from the fit of all rows."""
    pull = fit.Z.T @ ((weights - 1.0) * fit.slope)
    if not anew:
        return fit.parameters - cho_solve(fit.factor, pull)
    hessian = fit.Z.T @ ((weights * fit.bend)[:, None] * fit.Z) + np.diag(fit.ridge)
    return fit.parameters - cho_solve(cho_factor(hessian, lower=True), pull)


def at_strength(data: settings.Images, strength: float) -> tuple[Array, Array]:
    """Out-of-bag risks (draws, 3), and seconds (3,)."""
    rng, n = np.random.default_rng(0), len(data.y)
    fit, risks, seconds = fitted(data, strength, np.ones(n)), [], np.zeros(len(NAMES))
    for _ in range(DRAWS):
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(float)
        out = weights == 0
        runs = (
            lambda w=weights: fitted(data, strength, w).parameters,
            lambda w=weights: stepped(fit, w, anew=True),
            lambda w=weights: stepped(fit, w, anew=False),
        )
        found = []
        for k, run in enumerate(runs):
            start = time.process_time()
            parameters = run()
            seconds[k] += time.process_time() - start
            found.append(log_losses(data.y[out], fit.Z[out] @ parameters).mean())
        risks.append(found)
    return np.array(risks), seconds


def main() -> None:
    """One row a strength."""
    images = settings.mnist(0)
    basis = np.linalg.svd(images.X, full_matrices=False)[2].T  # a ridge penalty does not notice
    data = settings.Images(images.X @ basis, images.y, images.X_new @ basis, images.y_new)
    rows, numbers, timings = [], dict[str, float](), dict[str, float]()
    for strength in STRENGTHS:
        risks, seconds = at_strength(data, strength)
        means = risks.mean(axis=0)
        rows.append((f"{strength:.4f}", *(f"{one:.4f}" for one in means), *(f"{one:.2f}" for one in seconds)))
        for name, one, taken in zip(NAMES, means, seconds, strict=True):
            numbers[f"{strength:.4f}, {name}"] = float(one)
            numbers[f"{strength:.4f}, {name}: off"] = float(abs(one / means[0] - 1.0))
            timings[f"{strength:.4f}, {name}: seconds"] = float(taken)
        print(*rows[-1], flush=True)
    results.save(
        settings.FOLDER,
        "table_4",
        ("λ", *NAMES, *(f"{name}, s" for name in NAMES)),
        rows,
        caption="Out-of-bag risk of the bootstrap: logistic regression on MNIST, 2 against 3, n = 200.",
        seeds="0",
        numbers=numbers,
        timings=timings,
    )


if __name__ == "__main__":
    main()

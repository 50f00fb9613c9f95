"""Tables 1 and 3 and figure 3: MNIST, 2 against 3, n = 200 and p = 400, twenty draws of the rows."""

from __future__ import annotations

import time

import numpy as np
import plotting
import results
import settings
import tables
from logistic import Logistic, log_losses
from sklearn.linear_model import LogisticRegression

import onefit

Array = np.ndarray
RUNS = results.pick("draws of the rows", full=20, quick=2)
OUTLIERS, CHECKED = 8, 5
PAPER = {  # λ: in-sample, new data, CV, ACV, influence function, each with its standard error
    10 / 3: ("0.0637 (0.0064)", "0.1095 (0.0168)", "0.1077 (0.0151)", "0.1080 (0.0152)", "0.0906 (0.0113)"),
    5 / 3: ("0.0468 (0.0051)", "0.1021 (0.0182)", "0.1056 (0.0179)", "0.1059 (0.0179)", "0.0734 (0.0100)"),
    5 / 6: ("0.0327 (0.0038)", "0.0996 (0.0201)", "0.1085 (0.0214)", "0.1087 (0.0213)", "0.0559 (0.0079)"),
    5 / 12: ("0.0218 (0.0026)", "0.1011 (0.0226)", "0.1158 (0.0256)", "0.1155 (0.0254)", "0.0397 (0.0056)"),
    5 / 24: ("0.0139 (0.0017)", "0.1059 (0.0256)", "0.1264 (0.0304)", "0.1258 (0.0300)", "0.0267 (0.0038)"),
    5 / 48: ("0.0086 (0.0011)", "0.1131 (0.0291)", "0.1397 (0.0356)", "0.1386 (0.0349)", "0.0171 (0.0024)"),
    5 / 96: ("0.0051 (0.0006)", "0.1219 (0.0330)", "0.1549 (0.0411)", "0.1534 (0.0402)", "0.0106 (0.0015)"),
}
WEAKEST = min(PAPER)
NAMES = ("in-sample", "new data", "refits (CV)", "one step (ACV)", "ours, exact", "influence function")


def losses_at(strength: float, data: settings.Images, seconds: dict[str, float]) -> dict[str, Array]:
    """Losses of each row by every method, and those of new rows."""
    model = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", tol=1e-10, max_iter=500)
    model.fit(data.X, data.y)
    logistic = Logistic.of(model, data.X, data.y)
    start = time.process_time()
    refits = logistic.refits(np.arange(len(data.y)))
    middle = time.process_time()
    ours = onefit.loo(model, data.X, data.y, exact=True)
    seconds["refits"] += middle - start
    seconds["ours"] += time.process_time() - middle
    etas = (logistic.eta, refits, logistic.one_step(), logistic.influence())
    inside, left_out, step, influence = (log_losses(data.y, eta) for eta in etas)
    new = log_losses(data.y_new, model.decision_function(data.X_new))
    return dict(zip(NAMES, (inside, new, left_out, step, ours.losses, influence), strict=True))


def rotated(data: settings.Images) -> settings.Images:
    """The same in the coordinates of the row space, which a ridge penalty does not notice: p = n."""
    basis = np.linalg.svd(data.X, full_matrices=False)[2].T
    return settings.Images(data.X @ basis, data.y, data.X_new @ basis, data.y_new)


def by_scikit_learn(data: settings.Images, strength: float) -> Array:
    """Losses of the first rows by refits of scikit-learn, to check ours in NumPy."""
    found = np.empty(CHECKED)
    for i in range(CHECKED):
        kept = np.arange(len(data.y)) != i
        model = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", tol=1e-12, max_iter=1000)
        eta = model.fit(data.X[kept], data.y[kept]).decision_function(data.X[[i]])
        found[i] = log_losses(data.y[[i]], eta)[0]
    return found


def histograms(runs: dict[float, list[dict[str, Array]]]) -> None:
    """Figure 3: one step and ours less the refits, relative to them, over all rows, runs and strengths."""
    every = [one for found in runs.values() for one in found]
    exact = np.concatenate([one["refits (CV)"] for one in every])
    off = {name: np.concatenate([one[name] for one in every]) / exact - 1.0 for name in NAMES[3:]}
    figure, axes = plotting.panels(1, 2, width=4.4, height=3.0)
    left, right = axes[0]
    colours = dict(zip(NAMES[3:], (plotting.PLAIN, plotting.OURS, "#7a3e9d"), strict=True))
    left.hist(np.clip(off["one step (ACV)"], -0.2, 0.2), bins=81, color=plotting.PLAIN)
    left.set_yscale("log")
    left.set_title(f"one step: {np.mean(np.abs(off['one step (ACV)']) < 0.05):.0%} of rows within 5 %")
    left.set_xlabel("ACV / CV − 1")
    left.set_ylabel("rows")
    for name, shares in off.items():
        sizes = np.log10(np.maximum(np.abs(shares), 1e-16))
        right.hist(sizes, bins=np.arange(-16, 1.01, 0.25), color=colours[name], alpha=0.7, label=name)
    right.set_xlabel("log₁₀ |loss / CV − 1|")
    right.set_title(f"{len(exact)} rows: {RUNS} runs, {len(runs)} strengths")
    plotting.legend_below(figure, right)
    plotting.save(figure, settings.FOLDER, "figure_3")
    for name, shares in off.items():
        median, most, largest = np.quantile(np.abs(shares), [0.5, 0.95, 1.0])
        print(f"{name}: median {median:.1e}, 95 % {most:.1e}, largest {largest:.1e}")


def outliers(found: dict[str, Array]) -> None:
    """Table 3: the rows of the highest in-sample loss, at the weakest penalty."""
    rows = np.argsort(-found["in-sample"])[:OUTLIERS]
    names = (NAMES[0], *NAMES[2:])
    cells = [[f"{found[name][i]:.4f}" for name in names] for i in rows]
    results.save(
        settings.FOLDER,
        "table_3",
        names,
        cells,
        caption=f"Table 3: the {OUTLIERS} rows of the highest in-sample loss, first draw, weakest penalty.",
        seeds="0",
        numbers=_worst(found, rows),
    )


def _worst(found: dict[str, Array], rows: Array) -> dict[str, float]:
    """Of the outliers: leave-one-out over the in-sample loss, and how far the approximations are off."""
    exact, inside = found["refits (CV)"][rows], found["in-sample"][rows]
    step, influence = found["one step (ACV)"][rows], found["influence function"][rows]
    return {
        "refits / in-sample": float(np.median(exact / inside)),
        "one step off": float(np.max(np.abs(step / exact - 1.0))),
        "influence / refits": float(np.median(influence / exact)),
    }


def _compared(runs: dict[float, list[dict[str, Array]]]) -> dict[str, float]:
    """Means at the weakest penalty, the share of rows within 5 %, and the largest error of ours."""
    every = [one for found in runs.values() for one in found]
    exact, step, ours = (
        np.concatenate([one[name] for one in every])
        for name in ("refits (CV)", "one step (ACV)", "ours, exact")
    )
    last = {f"weakest: {name}": np.mean([one[name].mean() for one in runs[WEAKEST]]) for name in NAMES}
    return last | {
        "within 5 %": float(np.mean(np.abs(step / exact - 1.0) < 0.05)),
        "median error of one step": float(np.median(np.abs(step / exact - 1.0))),
        "largest error of the mean": max(_off(found) for found in runs.values()),
        "largest error of ours": float(np.max(np.abs(ours / exact - 1.0))),
    }


def _off(found: list[dict[str, Array]]) -> float:
    """Relative error of one step in the mean loss at one strength."""
    exact, step = (np.mean([one[name].mean() for one in found]) for name in ("refits (CV)", "one step (ACV)"))
    return abs(float(step / exact) - 1.0)


def main() -> None:
    """Print the tables, draw the histogram."""
    samples = [rotated(settings.mnist(seed)) for seed in range(RUNS)]
    seconds = {"refits": 0.0, "ours": 0.0}
    runs = {strength: [losses_at(strength, data, seconds) for data in samples] for strength in PAPER}
    exact = by_scikit_learn(samples[0], WEAKEST)
    apart = np.max(np.abs(runs[WEAKEST][0]["refits (CV)"][:CHECKED] / exact - 1.0))
    print(f"refits in NumPy and by scikit-learn: {apart:.1e} apart")
    rows = []
    for strength, found in runs.items():
        means = [tables.mean_and_error([float(one[name].mean()) for one in found]) for name in NAMES]
        rows.append((f"{strength:.4f}", *means, *PAPER[strength]))
    head = ("λ", *NAMES, *(f"paper: {name}" for name in NAMES if name != "ours, exact"))
    results.save(
        settings.FOLDER,
        "table_1",
        head,
        rows,
        caption="Table 1: logistic regression on MNIST, 2 against 3, n = 200, p = 400, with standard errors.",
        seeds=f"0 to {RUNS - 1}",
        numbers=_compared(runs),
        timings={name: one / (RUNS * len(PAPER)) for name, one in seconds.items()},
    )
    histograms(runs)
    outliers(runs[WEAKEST][0])
    fits = RUNS * len(PAPER)
    print(f"seconds a strength: refits {seconds['refits'] / fits:.2f}, ours {seconds['ours'] / fits:.3f}")


if __name__ == "__main__":
    main()

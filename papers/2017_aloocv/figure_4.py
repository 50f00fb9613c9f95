"""Figure 4: an elastic net tuned by Algorithms 1 and 2, and the seconds of leave-one-out over n and p."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotting
import results
import settings
import tables
from settings import Linear
from sklearn.linear_model import ElasticNet, LinearRegression

import onefit
from onefit.penalties import L1, L2

Array = np.ndarray
STEPS = 20  # of Algorithms 1 and 2
STRETCH, LONGEST = np.array([4.0, 1e-3]), np.array([20.0, 1.0])  # of a step in λ₁ and λ₂ (assumed)
STRENGTHS = (100.0, 10.0)  # at which seconds are taken
BY_COLUMNS = [(200, p) for p in results.pick("numbers of columns", (70, 90, 110, 130, 150), (70, 150))]
BY_ROWS = [(n, 100) for n in results.pick("numbers of rows", (125, 250, 500, 1000), (125, 500))]
SAMPLES = results.pick("data sets", full=10, quick=2)


@dataclass
class Trace:
    """Strengths and risks at every step."""

    strengths: list[Array] = field(default_factory=list)
    one_step: list[float] = field(default_factory=list)
    refits: list[float] = field(default_factory=list)
    new_data: list[float] = field(default_factory=list)


def fit(sample: Linear, strengths: Array) -> Any:
    """min over θ of ½‖y − Xθ‖² + λ₁‖θ‖₁ + ½λ₂‖θ‖²."""
    l1, l2 = (float(one) for one in strengths)
    return onefit.GeneralizedLinear("squared", L1(l1) + L2(l2), fit_intercept=False).fit(sample.X, sample.y)


def one_step(sample: Linear, coef: Array, l2: float) -> tuple[Array, Array, Array]:
    """Left-out residuals on the support (Theorem 1), left-out coefficients (s, n), and x_iᵀH⁻¹ (s, n)."""
    X = sample.X[:, coef != 0]
    reach = np.linalg.solve(X.T @ X + l2 * np.eye(X.shape[1]), X.T)
    slack = 1.0 - np.sum(X.T * reach, axis=0)
    residual = (sample.y - sample.X @ coef) / slack
    return residual, coef[coef != 0][:, None] - reach * residual, reach / slack


def gradient(sample: Linear, coef: Array, l2: float, rows: Array) -> Array:
    """Mean of eq. 16 over some rows: (2,)."""
    residual, left_out, reach = one_step(sample, coef, l2)
    by_l1 = reach * np.sign(coef[coef != 0])[:, None]
    both = np.stack([by_l1.sum(axis=0), np.sum(reach * left_out, axis=0)])
    return 2.0 * np.mean(both[:, rows] * residual[rows], axis=1)


def refits(sample: Linear, strengths: Array) -> Array:
    """Left-out predictions by scikit-learn: (n,)."""
    l1, l2 = strengths
    n, found = len(sample.y), np.empty(len(sample.y))
    for i in range(n):
        kept = np.arange(n) != i
        model: Any = LinearRegression(fit_intercept=False)
        if l1 + l2 > 0:
            model = ElasticNet(
                (l1 + l2) / (n - 1), l1_ratio=l1 / (l1 + l2), fit_intercept=False, tol=1e-8, max_iter=100_000
            )
        found[i] = model.fit(sample.X[kept], sample.y[kept]).predict(sample.X[[i]])[0]
    return found


def descend(sample: Linear, rng: np.random.Generator | None) -> Trace:
    """Algorithm 1, or with a generator Algorithm 2, from λ₁ = λ₂ = 0."""
    trace, strengths, n = Trace(), np.zeros(2), len(sample.y)
    for step in range(STEPS + 1):
        coef = fit(sample, strengths).coef_
        residual = one_step(sample, coef, strengths[1])[0]
        trace.strengths.append(strengths)
        trace.one_step.append(float(np.mean(residual**2)))
        trace.refits.append(float(np.mean((sample.y - refits(sample, strengths)) ** 2)))
        trace.new_data.append(sample.risk(coef))
        rows = np.arange(n) if rng is None else rng.integers(n, size=1)
        length = 1.0 if rng is None else 1.0 / np.sqrt(1.0 + step)
        move = np.clip(STRETCH * gradient(sample, coef, strengths[1], rows), -LONGEST, LONGEST)
        strengths = np.maximum(strengths - length * move, 0.0)
    return trace


def ours(sample: Linear) -> tuple[float, float, int]:
    """Leave-one-out, exact, at what GradientSearchCV chooses, the risk on new data, and evaluations."""
    search = onefit.GradientSearchCV(
        onefit.GeneralizedLinear(penalty=onefit.penalties.ElasticNet(), fit_intercept=False),
        {"penalty__alpha": (1e-1, 1e4), "penalty__l1_ratio": (0.0, 1.0, "linear")},
    ).fit(sample.X, sample.y)
    best = search.best_estimator_
    exact = onefit.loo(best, sample.X, sample.y, exact=True).value
    return exact, sample.risk(best.coef_), len(search.cv_results_["params"])


def seconds(n: int, p: int) -> tuple[float, float, float]:
    """Processor time of the refits, of one step for all rows, and of the exact leave-one-out."""
    sample = settings.elastic_net(0, n, p)
    model, strengths = fit(sample, STRENGTHS), np.array(STRENGTHS)
    times = []
    for run, again in (
        (lambda: refits(sample, strengths), 1),
        (lambda: one_step(sample, model.coef_, strengths[1]), 20),
        (lambda: onefit.loo(model, sample.X, sample.y, exact=True), 5),
    ):
        start = time.process_time()
        for _ in range(again):
            run()
        times.append((time.process_time() - start) / again)
    return times[0], times[1], times[2]


def draw_traces(ax: Any, traces: dict[str, Trace], reached: tuple[float, float, int]) -> None:
    """Refits as rings, one step as lines, new data dotted."""
    for (name, trace), colour in zip(traces.items(), (plotting.PLAIN, "#4d9221"), strict=True):
        steps = np.arange(len(trace.refits))
        ax.plot(steps, trace.refits, "o", color=colour, mfc="none", ms=5, label=f"{name}: refits")
        ax.plot(steps, trace.one_step, "-", color=colour, lw=1.2, label=f"{name}: one step")
        ax.plot(steps, trace.new_data, ":", color=colour, lw=1.5, label=f"{name}: new data")
    ax.axhline(reached[0], color=plotting.OURS, lw=1.5, label="ours, exact, at the end")
    ax.axhline(reached[1], color=plotting.OURS, lw=1.5, ls=":", label="ours: new data")
    ax.set_xticks(np.arange(0, STEPS + 1, 5))
    ax.set_xlabel("steps")
    ax.set_ylabel("mean squared error")


def draw_seconds(middle: Any, right: Any) -> None:
    """Seconds over p and n, and their table."""
    timings = dict[str, float]()
    kinds = (("refits", plotting.REFITS), ("one step, NumPy", plotting.PLAIN), ("ours, exact", plotting.OURS))
    rows = []
    for ax, sizes, at in ((middle, BY_COLUMNS, 1), (right, BY_ROWS, 0)):
        times = np.array([seconds(*size) for size in sizes])
        for (name, colour), column in zip(kinds, times.T, strict=True):
            ax.plot([size[at] for size in sizes], column, "o-", color=colour, label=name)
        ax.set_yscale("log")
        for (n, p), (by_hand, step, exact) in zip(sizes, times, strict=True):
            cells = (f"{by_hand:.2f}", f"{step:.4f}", f"{exact:.4f}")
            timings |= {
                f"{n} × {p}: {kind}": float(by_hand / one)
                for kind, one in (("one step", step), ("ours", exact))
            }
            rows.append((str(n), str(p), *cells, f"{by_hand / step:.0f}", f"{by_hand / exact:.0f}"))
    middle.set_title(f"n = {BY_COLUMNS[0][0]}")
    middle.set_xlabel("p")
    middle.set_ylabel("seconds of leave-one-out")
    right.set_title(f"p = {BY_ROWS[0][1]}")
    right.set_xlabel("n")
    head = ("n", "p", "refits s", "one step s", "ours, exact s", "refits / one step", "refits / ours")
    results.save(
        settings.FOLDER,
        "figure_4_seconds",
        head,
        rows,
        caption="Figure 4, right: seconds of leave-one-out of an elastic net.",
        seeds="0",
        timings=timings,
    )


def report(found: dict[str, list[Trace]], reached: list[tuple[float, float, int]]) -> None:
    """Risks at the start, after five steps and at the end."""
    rows = []
    for name, traces in found.items():
        for when, at in (("start", 0), ("5 steps", 5), (f"{STEPS} steps", -1)):
            columns = ([getattr(t, kind)[at] for t in traces] for kind in ("refits", "one_step", "new_data"))
            rows.append((f"{name}, {when}", *(tables.mean_and_error(column, 0) for column in columns)))
    exact, new, evaluations = (list(column) for column in zip(*reached, strict=True))
    cells = ("", tables.mean_and_error(exact, 0), tables.mean_and_error(new, 0))
    rows.append((f"ours, {np.mean(evaluations):.0f} evaluations", *cells))
    head = (f"mean of {SAMPLES} data sets", "refits", "one step; ours: exact", "new data")
    end = {name: np.mean([t.refits[-1] for t in traces]) for name, traces in found.items()}
    start = np.mean([trace.refits[0] for trace in found["Algorithm 1"]])
    results.save(
        settings.FOLDER,
        "figure_4",
        head,
        rows,
        caption="Figure 4, left: an elastic net, n = 70, p = 50, tuned from λ₁ = λ₂ = 0.",
        seeds=f"0 to {SAMPLES - 1}",
        numbers={"start": start, **end, "ours": np.mean(exact)},
    )


def main() -> None:
    """One data set drawn, means of ten, and seconds."""
    samples = [settings.elastic_net(seed) for seed in range(SAMPLES)]
    reached = [ours(sample) for sample in samples]
    found = {
        "Algorithm 1": [descend(sample, None) for sample in samples],
        "Algorithm 2": [descend(one, np.random.default_rng(seed)) for seed, one in enumerate(samples)],
    }
    figure, axes = plotting.panels(1, 3, width=3.3, height=3.2)
    left, middle, right = axes[0]
    draw_traces(left, {name: traces[0] for name, traces in found.items()}, reached[0])
    left.set_title(f"n = {samples[0].X.shape[0]}, p = {samples[0].X.shape[1]}")
    draw_seconds(middle, right)
    plotting.legend_below(figure, [left, middle])
    plotting.save(figure, settings.FOLDER, "figure_4")
    report(found, reached)


if __name__ == "__main__":
    warnings.simplefilter("ignore", onefit.UnreliableWarning)  # of the start without a penalty
    main()

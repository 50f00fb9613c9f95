"""Figures 1 and 2: ridge regression with a strength for each of 50 features, tuned by gradient."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import plotting
import results
import settings
import tables
from matplotlib.ticker import NullFormatter
from settings import FIRST_STRENGTH, RELEVANT, Linear

import onefit

Array = np.ndarray
STEPS = 800
LENGTH = 0.02  # of a plain step (assumed)
SAMPLES = results.pick("data sets", full=10, quick=2)
DECADES = 1e4  # bounds, either side of the first strength

WAYS = {
    "Algorithm 1, plain steps": ("#d95f02", "--"),
    "Algorithm 1, adaptive steps": ("#7a3e9d", "-"),
    "Algorithm 2": ("#4d9221", "-"),
    "ours, L-BFGS": (plotting.OURS, "-"),
}
SETTINGS = {
    "Algorithm 1, adaptive steps": {"optimizer": "projected", "gradient": "2017", "max_iter": STEPS},
    "Algorithm 2": {
        "optimizer": "stochastic",
        "gradient": "2017",
        "max_iter": STEPS,
        "learning_rate": 2.0,  # of the largest component in log λ; falls with the root of the step (assumed)
    },
    "ours, L-BFGS": {"optimizer": "lbfgs", "max_iter": STEPS},
}


@dataclass
class Trace:
    """Where a search went: at every step the strengths in the paper's scale and leave-one-out.

    The risk is the mean squared error; λ multiplies ½θ² beside the *mean* of ½(y − η)².
    """

    sample: Linear
    strengths: list[Array] = field(default_factory=list)
    left_out: list[float] = field(default_factory=list)
    seconds: float = np.nan
    gradient: float = np.nan

    def take(self, strengths: Array, risk: float) -> None:
        self.strengths.append(strengths)
        self.left_out.append(risk)

    def new_data(self) -> Array:
        """Risk on new data at every step."""
        X, y = self.sample.X, self.sample.y
        gram, right = X.T @ X / len(y), X.T @ y / len(y)
        coefs = (np.linalg.solve(gram + np.diag(one), right) for one in self.strengths)
        return np.array([self.sample.risk(coef) for coef in coefs])


def plain_gradient(sample: Linear, strengths: Array) -> tuple[float, Array]:
    """ALOOCV, and its gradient by eq. 16: exact for least squares."""
    X, y = sample.X, sample.y
    n = len(y)
    reach = np.linalg.solve(X.T @ X + n * np.diag(strengths), X.T)  # K⁻¹ x_i: (p, n)
    coef = reach @ y
    slack = 1.0 - np.sum(X.T * reach, axis=0)
    residual = (y - X @ coef) / slack  # of the row left out
    left_out = coef[:, None] - reach * residual
    return float(np.mean(residual**2)), 2.0 * (left_out * (reach / slack)) @ residual


def plain_steps(sample: Linear) -> Trace:
    """Algorithm 1: λ ← λ − α g(λ), never below 0."""
    trace, strengths = Trace(sample), np.full(sample.X.shape[1], FIRST_STRENGTH)
    start = time.process_time()
    for _ in range(STEPS):
        risk, gradient = plain_gradient(sample, strengths)
        trace.take(strengths, risk)
        strengths = np.maximum(strengths - LENGTH * gradient, 0.0)
    risk, gradient = plain_gradient(sample, strengths)
    trace.take(strengths, risk)
    trace.seconds = time.process_time() - start
    trace.gradient = float(np.abs(gradient * strengths).max())
    return trace


def search(name: str, sample: Linear) -> Trace:
    """A search of onefit's over log λ, from the same strengths."""
    trace, n = Trace(sample), len(sample.y)
    first = n * FIRST_STRENGTH
    tuner = onefit.GradientSearchCV(
        onefit.GeneralizedLinear(penalty=onefit.penalties.L2(), fit_intercept=False),
        {"penalty__alpha": onefit.PerFeature(first / DECADES, first * DECADES)},
        **SETTINGS[name],
        callback=lambda values, risk: trace.take(values["penalty__alpha"] / n, risk),
        refit=False,
        random_state=0,
    )
    start = time.process_time()
    tuner.fit(sample.X, sample.y)
    trace.seconds = time.process_time() - start
    trace.take(tuner.best_params_["penalty__alpha"] / n, -tuner.best_score_)
    trace.gradient = float(np.abs(tuner.gradient_).max())
    return trace


def _ordered(traces: list[Trace]) -> float:
    """Mean strength of the irrelevant features over that of the relevant ones, of all data sets."""
    last = np.mean([trace.strengths[-1] for trace in traces], axis=0)
    return float(last[: RELEVANT.start].mean() / last[RELEVANT].mean())


def draw(traces: dict[str, Trace]) -> None:
    """Left the risks, right the mean strengths of the irrelevant and the relevant features."""
    figure, axes = plotting.panels(1, 2, width=4.6, height=3.6)
    left, right = axes[0]
    irrelevant = np.arange(RELEVANT.start)
    for name, trace in traces.items():
        colour, line = WAYS[name]
        steps = np.arange(1, len(trace.left_out) + 1)
        left.plot(steps, trace.left_out, line, color=colour, lw=1.5, label=name)
        left.plot(steps, trace.new_data(), ":", color=colour, lw=1.5)
        strengths = np.array(trace.strengths)
        for columns in (irrelevant, RELEVANT):
            right.plot(steps, strengths[:, columns].mean(axis=1), line, color=colour, lw=1.5)
    left.set_title("leave-one-out (lines), new data (dotted)")
    left.set_ylabel("mean squared error")
    left.set_yscale("log")
    left.set_yticks([0.1, 0.2, 0.4, 0.8], ["0.1", "0.2", "0.4", "0.8"])
    left.yaxis.set_minor_formatter(NullFormatter())
    right.set_title("strengths: 40 irrelevant features (up), 10 relevant (down)")
    right.set_ylabel("mean of λ")
    right.set_yscale("log")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xlabel("evaluations of the gradient")
    plotting.legend_below(figure, left)
    plotting.save(figure, settings.FOLDER, "figure_1")


def main() -> None:
    """One data set drawn, and the means of ten."""
    ways = {name: partial(search, name) for name in SETTINGS}
    ways = {next(iter(WAYS)): plain_steps, **ways}
    found: dict[str, list[Trace]] = {name: [] for name in ways}
    single = []
    for seed in range(SAMPLES):
        sample = settings.ridge(seed)
        for name, run in ways.items():
            found[name].append(run(sample))
        one = onefit.RidgeLOO(fit_intercept=False).fit(sample.X, sample.y)
        single.append((one.loo_.value, sample.risk(one.coef_)))
    draw({name: traces[0] for name, traces in found.items()})
    head = (
        f"mean of {SAMPLES} data sets", "leave-one-out", "new data", "evaluations", "seconds",
        "largest gradient in log λ",
    )  # fmt: skip
    rows, numbers, timings = [], dict[str, float](), dict[str, float]()
    for name, traces in found.items():
        last = [float(trace.new_data()[-1]) for trace in traces]
        cells = (tables.mean_and_error([t.left_out[-1] for t in traces]), tables.mean_and_error(last))
        means = (np.mean([len(t.left_out) for t in traces]), np.mean([t.seconds for t in traces]))
        steepest = max(t.gradient for t in traces)
        rows.append((name, *cells, f"{means[0]:.0f}", f"{means[1]:.2f}", f"{steepest:.1e}"))
        numbers |= {
            f"{name}: start": traces[0].left_out[0],
            f"{name}: end": np.mean([t.left_out[-1] for t in traces]),
        }
        numbers |= {f"{name}: strengths": _ordered(traces)}
        timings[name] = float(means[1])
    cells = tuple(tables.mean_and_error(list(column)) for column in zip(*single, strict=True))
    rows.append(("one strength for all: RidgeLOO", *cells, "", "", ""))
    results.save(
        settings.FOLDER,
        "figure_1",
        head,
        rows,
        caption="Figures 1 and 2: ridge regression with a strength for each of 50 features, n = 150.",
        seeds=f"0 to {SAMPLES - 1}",
        numbers=numbers,
        timings=timings,
    )


if __name__ == "__main__":
    main()

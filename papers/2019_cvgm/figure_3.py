"""Table 1 and figure 3: an elastic net tuned by the gradient of Monte-Carlo cross-validation."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

import numpy as np
import plotting
import results
import settings
import tables
from elastic_nets import Splits, test_losses
from sklearn.linear_model import ElasticNet

import onefit

Array = np.ndarray
SEEDS = results.pick("seeds", full=50, quick=3)
PAPER = {"CVGM": 1.080, "grid search": 1.207, "random search": 1.084}

COLOURS = {
    "CVGM": "#d95f02",
    "grid search": "#4d9221",
    "random search": "#7a3e9d",
    "ours, L-BFGS": plotting.OURS,
}


@dataclass
class Search:
    """What a search looked at, in order: strengths (m, 2) and cross-validation risks (m,)."""

    strengths: list[Array] = field(default_factory=list)
    risks: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def best(self) -> Array:
        """Number of the best point so far, at every step: (m,)."""
        lowest = np.minimum.accumulate(self.risks)
        return np.searchsorted(-lowest, -lowest, side="left")


def cvgm(splits: Splits) -> Search:
    """Algorithm 1: a hundred projected gradient steps of constant length."""
    found, at, coefs = Search(), np.array(settings.FIRST), None
    for _ in range(settings.STEPS):
        risk, gradient, coefs = splits.risk_and_gradient(at, coefs)
        found.strengths.append(at)
        found.risks.append(risk)
        at = np.maximum(at - settings.LENGTH * gradient, [0.0, settings.LEAST_L2])
    return found


def ours(data: settings.Regression) -> Search:
    """GradientSearchCV over log(λ₁ + λ₂) and λ₁ / (λ₁ + λ₂), from the best of a coarse grid of 25."""
    found = Search()
    search = onefit.GradientSearchCV(
        ElasticNet(fit_intercept=False, tol=1e-8, max_iter=100_000),
        {"alpha": settings.WIDE, "l1_ratio": (0.0, 1.0, "linear")},
        risk=data.risk,
        refit=False,
        max_iter=6,  # the risk has kinks where a support changes: more steps gain next to nothing
        tol=1e-3,
    )
    search.fit(data.X, data.y)
    for values, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        alpha, ratio = values["alpha"], values["l1_ratio"]
        found.strengths.append(np.array([alpha * ratio, alpha * (1.0 - ratio)]))
        found.risks.append(-score)
    return found


def literal() -> None:
    """The paper's three on new rows with coefficients of their own, and a response that is standardised."""
    ends: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        data = settings.regression(seed, literal=True)
        splits, rng = Splits.of(data), np.random.default_rng(seed)
        runs = {
            "CVGM": cvgm(splits),
            "grid search": looked_up(splits, points(settings.NARROW)),
            "random search": looked_up(splits, points(settings.NARROW, rng)),
        }
        for name, search in runs.items():
            ends.setdefault(name, []).append(along(data, name, search)[0, -1])
        ends.setdefault("the mean", []).append(float(np.mean(data.y_new**2)))
    rows = [
        (
            name,
            f"{PAPER[name]:.3f}" if name in PAPER else "",
            tables.mean_and_error(one, 3),
            f"{min(one):.3f}",
        )
        for name, one in ends.items()
    ]
    results.save(
        settings.FOLDER,
        "table_1_literal",
        ("search", "paper", f"test loss, {SEEDS} seeds", "least"),
        rows,
        caption="Table 1 read literally: new rows with new coefficients, a standardised response.",
        seeds=f"0 to {SEEDS - 1}",
        numbers={
            f"{name}: {what}": f(one)
            for name, one in ends.items()
            for what, f in (("mean", np.mean), ("least", min))
        },
    )


def points(bounds: tuple[float, float], rng: np.random.Generator | None = None) -> Array:
    """A hundred pairs: a grid in the logarithm, in the order of its rows, or a random draw."""
    low, high = np.log(bounds)
    if rng is not None:
        return np.exp(rng.uniform(low, high, size=(settings.STEPS, 2)))
    side = np.exp(np.linspace(low, high, round(settings.STEPS**0.5)))
    return np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)


def looked_up(splits: Splits, strengths: Array) -> Search:
    """The risks of given strengths."""
    return Search(list(strengths), splits.risks(strengths).tolist())


def searches(seed: int) -> tuple[settings.Regression, dict[str, Search]]:
    """All searches on one data set."""
    data = settings.regression(seed)
    splits, rng = Splits.of(data), np.random.default_rng(seed)
    runs = {"CVGM": lambda: cvgm(splits)}
    for where, bounds in (("", settings.NARROW), (", wide", settings.WIDE)):
        runs[f"grid search{where}"] = lambda bounds=bounds: looked_up(splits, points(bounds))
        runs[f"random search{where}"] = lambda bounds=bounds: looked_up(splits, points(bounds, rng))
    runs["ours, L-BFGS"] = lambda: ours(data)
    found = {}
    for name, run in runs.items():
        start = time.process_time()
        found[name] = run()
        found[name].seconds = time.process_time() - start
    return data, found


def along(data: settings.Regression, name: str, search: Search) -> Array:
    """Test loss and risk after each of a hundred steps: of CVGM's last point, of the others' best: (2, m)."""
    both = np.array([test_losses(data, np.array(search.strengths)), search.risks])
    both = both if name == "CVGM" else both[:, search.best()]
    more = max(0, settings.STEPS - both.shape[1])
    return np.pad(both, ((0, 0), (0, more)), mode="edge")[:, : settings.STEPS]


def draw(curves: dict[str, Array]) -> None:
    """Mean over the seeds; grid and random search in the paper's bounds and in wide ones."""
    figure, axes = plotting.panels(2, 2, width=4.2, height=2.4)
    steps = np.arange(1, settings.STEPS + 1)
    for column, where in zip(axes.T, ("", ", wide"), strict=True):
        for name, colour in COLOURS.items():
            mean = curves[name + where if name + where in curves else name].mean(axis=0)
            for ax, values in zip(column, mean, strict=True):
                ax.plot(steps, values, color=colour, lw=1.5, label=name)
        low, high = settings.WIDE if where else settings.NARROW
        column[0].set_title(f"grid and random search from {low:g} to {high:g}")
        column[0].set_ylim(1.46, 1.6)
        column[1].set_ylim(1.25, 1.45)
        column[1].set_xlabel("evaluations of the cross-validation risk")
    axes[0, 0].set_ylabel("test loss")
    axes[1, 0].set_ylabel("cross-validation")
    plotting.legend_below(figure, axes[0, 0])
    plotting.save(figure, settings.FOLDER, "figure_3")


def _is_best(ends: dict[str, list[tuple[float, float, float, int]]], name: str, k: int) -> bool:
    """Whether a search has the smallest test loss of the paper's three, on one seed."""
    return ends[name][k][0] <= min(ends[one][k][0] for one in PAPER)


def main() -> None:
    """Figure and table over all seeds."""
    warnings.simplefilter("ignore", onefit.UnreliableWarning)  # of the best value at a bound
    curves: dict[str, list[Array]] = {}
    ends: dict[str, list[tuple[float, float, float, int]]] = {}
    for seed in range(SEEDS):
        data, found = searches(seed)
        for name, search in found.items():
            both = along(data, name, search)
            curves.setdefault(name, []).append(both)
            ends.setdefault(name, []).append((*both[:, -1], search.seconds, len(search.risks)))
    last = found["ours, L-BFGS"]
    apart = np.abs(Splits.of(data).risks(np.array(last.strengths)) / np.array(last.risks) - 1.0)
    print(f"risks by onefit and in NumPy: {apart.max():.1e} apart")
    draw({name: np.array(rows) for name, rows in curves.items()})
    rows, numbers, timings = [], dict[str, float](), dict[str, float]()
    reference = np.array([loss for loss, *_ in ends["grid search"]])
    for name, found in ends.items():
        loss, risk, seconds, count = np.array(found).T
        mean, mean_risk = (tables.mean_and_error(list(one), 3) for one in (loss, risk))
        cells = (mean, f"{loss.min():.3f} to {loss.max():.3f}", mean_risk)
        less = tables.mean_and_error(list(loss - reference), 3)
        paper = f"{PAPER[name]:.3f}" if name in PAPER else ""
        numbers |= {
            f"{name}: test": loss.mean(),
            f"{name}: risk": risk.mean(),
            f"{name}: least test": loss.min(),
        }
        numbers |= {f"{name}: best in": float(np.mean([_is_best(ends, name, k) for k in range(SEEDS)]))}
        timings[name] = seconds.mean()
        rows.append((name, paper, *cells, less, f"{count.mean():.0f}", f"{seconds.mean():.2f}"))
    head = (
        f"mean of {SEEDS} seeds", "paper, one seed", "test loss", "from … to", "cross-validation",
        "test loss less grid's", "evaluations", "seconds",
    )  # fmt: skip
    results.save(
        settings.FOLDER,
        "table_1",
        head,
        rows,
        caption="Table 1 and figure 3: an elastic net tuned on 128 splits; test loss in noise variances.",
        seeds=f"0 to {SEEDS - 1}",
        numbers=numbers,
        timings=timings,
    )


if __name__ == "__main__":
    main()
    literal()

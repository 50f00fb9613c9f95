"""Figures 1 and 2, and the first column of table 2: ridge regression on Communities and Crime."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import plotting
import results
import settings
import tables
import torch
from settings import Split
from torch import nn

import onefit.torch

Array = np.ndarray
FINE = np.round(np.arange(0.0, settings.MOST + settings.STEP / 2, settings.STEP), 10)  # 0 to 10: 101 points
PAPER = {"λ*": 8.8, "training": 0.0095, "validation": 0.0088, "test": 0.0088}

torch.set_num_threads(1)


class Curve(NamedTuple):
    """Refits on a grid, in closed form: φ(λ) = min Σ (y − η)² + λ‖β‖², and mean squared errors elsewhere."""

    values: Array
    validation: Array
    test: Array


class Found(NamedTuple):
    """What a search came to: λ*, inner solves, and processor seconds."""

    strength: float
    solves: int
    seconds: float
    search: onefit.torch.ValueFunctionSearch


def curve(split: Split, strengths: Array) -> Curve:
    """Ridge regression at each strength."""
    level, rows = split.y.mean(), []
    values, vectors = np.linalg.eigh(split.X.T @ split.X)
    along = vectors.T @ (split.X.T @ (split.y - level))
    for strength in strengths:
        size = values + strength
        known = size > 1e-10 * values.max()
        coef = vectors @ np.where(known, along / np.where(known, size, 1.0), 0.0)
        inside = np.sum((split.y - level - split.X @ coef) ** 2) + strength * coef @ coef
        outside = [(split.X_val, split.y_val), (split.X_test, split.y_test)]
        rows.append([inside, *(np.mean((y - level - X @ coef) ** 2) for X, y in outside)])
    return Curve(*np.array(rows).T)


def linear() -> tuple[Any, dict[str, Any]]:
    """GeneralizedLinear: both levels solved exactly."""
    model = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    return model, {"bounds": {"penalty__alpha": (0.0, settings.MOST)}}


def printed() -> tuple[Any, dict[str, Any]]:
    """The algorithm as printed: Kriging of values alone, and the λ of the last round is the answer."""
    model, given = linear()
    return model, {**given, "slopes": False, "check_rounds": False}


def unchecked() -> tuple[Any, dict[str, Any]]:
    """Kriging with slopes, and no checks."""
    model, given = linear()
    return model, {**given, "check_rounds": False}


def modular() -> tuple[Any, dict[str, Any]]:
    """The same regression as a module of PyTorch, by L-BFGS."""
    torch.manual_seed(0)
    settled = {"penalties": {"ridge": "weight"}, "bounds": {"ridge": (0.0, settings.MOST)}}
    return nn.Linear(122, 1), {
        "loss": nn.MSELoss(reduction="sum"),
        "validation_loss": nn.MSELoss(),
        **settled,
    }


def search(split: Split, build: Any) -> Found:
    """Ten samples of λ and four rounds, with the paper's R, μ and η."""
    model, given = build()
    target = split.y, split.y_val
    if isinstance(model, nn.Module):
        target = split.y[:, None], split.y_val[:, None]
    start = time.process_time()
    found = onefit.torch.ValueFunctionSearch(model, scale="linear", **given)
    found.fit(split.X, target[0], split.X_val, target[1])
    (strength,) = found.lambda_.values()
    return Found(strength, found.n_solves_, time.process_time() - start, found)


def draw(fine: Curve, found: Found) -> None:
    """φ and its interpolation, and the validation loss, of one split."""
    figure, axes = plotting.panels(1, 1, width=4.6, height=2.8)
    (ax,) = axes[0]
    factor = 2.0  # a GeneralizedLinear minimises half of it
    model, units = found.search.surrogate_, FINE / settings.MOST
    ax.plot(FINE, fine.values, "-", color="black", lw=3, alpha=0.35, label="φ, refits on a grid of 0.1")
    predicted = [factor * model.value(np.array([unit])) for unit in units]
    ax.plot(FINE, predicted, "-", color=plotting.OURS, lw=1.2, label="φ̂, Kriging")
    sampled = found.search.strengths_[:10, 0], factor * found.search.values_[:10]
    ax.plot(*sampled, "o", color=plotting.OURS, ms=5, label="10 samples")
    ax.set_xlabel("λ")
    ax.set_ylabel("optimal value")
    plotting.legend_below(figure, ax)
    plotting.save(figure, settings.FOLDER, "figure_1")
    print(f"largest error of φ̂: {np.max(np.abs(np.array(predicted) / fine.values - 1.0)):.1e} of φ")

    figure, axes = plotting.panels(1, 1, width=4.6, height=2.8)
    (ax,) = axes[0]
    ax.plot(FINE, fine.validation, ".-", color="black", lw=1, ms=3, label="refits on a grid of 0.1")
    ax.axvline(found.strength, color=plotting.OURS, lw=1.5, label=f"λ* = {found.strength:.2f}")
    ax.set_xlabel("λ")
    ax.set_ylabel("validation loss")
    plotting.legend_below(figure, ax)
    plotting.save(figure, settings.FOLDER, "figure_2")


def main() -> None:
    """Twenty splits; the first whose best grid point is inside [0, 10] is drawn."""
    builds = {"ours": linear, "slopes, no checks": unchecked, "as printed": printed}
    if results.pick("ours by torch.nn.Linear too", full=True, quick=False):
        builds["ours, torch.nn.Linear"] = modular
    drawn = False
    apart: dict[str, list[float]] = {name: [] for name in builds}
    solves: dict[str, list[int]] = {name: [] for name in builds}
    seconds: dict[str, list[float]] = {name: [] for name in builds}
    losses: dict[str, list[Array]] = {name: [] for name in [*builds, "grid"]}
    for seed in range(settings.SPLITS):
        split = settings.communities(seed)
        fine = curve(split, FINE)
        best = int(fine.validation.argmin())
        losses["grid"].append(
            np.array([fine.values[best] / len(split.y), fine.validation[best], fine.test[best]])
        )
        inside = 0 < best < len(FINE) - 1
        for name, build in builds.items():
            found = search(split, build)
            at = curve(split, np.array([found.strength]))
            losses[name].append(np.array([at.values[0] / len(split.y), at.validation[0], at.test[0]]))
            apart[name].append(abs(found.strength - FINE[best]) / settings.STEP)
            solves[name].append(found.solves)
            seconds[name].append(found.seconds)
            print(seed, name, f"grid {FINE[best]:.1f}, λ* {found.strength:.3f}", found.solves, flush=True)
            if inside and not drawn:
                draw(fine, found)
                drawn = True
    report(apart, solves, seconds, losses)


def report(
    apart: dict[str, list[float]],
    solves: dict[str, list[int]],
    seconds: dict[str, list[float]],
    losses: dict[str, list[Array]],
) -> None:
    """Beside the paper's one split."""
    paper = (
        "10 (+4)",
        "8.80; 8.8 by grid",
        "",
        *(f"{PAPER[k]:.4f}" for k in ("training", "validation", "test")),
    )
    rows, numbers = [("paper, one split", *paper, "")], dict[str, float]()
    for name, values in losses.items():
        means = [tables.mean_and_error(list(column), 5) for column in np.array(values).T]
        if name == "grid":
            rows.append((f"grid, {len(FINE)} refits", str(len(FINE)), "", "", *means, ""))
            continue
        near = sum(one <= 1.0 + 1e-9 for one in apart[name])
        counted = f"{min(solves[name])} to {max(solves[name])}"
        within = f"{near} of {len(values)}", f"{max(apart[name]):.1f}"
        rows.append((name, counted, *within, *means, f"{np.mean(seconds[name]):.2f}"))
        numbers |= {f"{name}: within a step": float(near), f"{name}: farthest": float(max(apart[name]))}
        tests = [np.array(losses[kind])[:, 2] for kind in (name, "grid")]
        numbers |= {
            f"{name}: solves": float(np.mean(solves[name])),
            f"{name}: test less grid's": float(np.mean(tests[0] - tests[1])),
        }
    head = (
        f"mean of {settings.SPLITS} splits", "solves", "within one grid step", "farthest, steps",
        "training loss", "validation loss", "test loss", "seconds",
    )  # fmt: skip
    caption = "Figures 1 and 2, and table 2: ridge regression on Communities and Crime, λ in [0, 10]."
    results.save(
        settings.FOLDER,
        "table_2_communities",
        head,
        rows,
        caption=caption,
        seeds=f"0 to {settings.SPLITS - 1}",
        numbers=numbers,
        timings={name: float(np.mean(one)) for name, one in seconds.items()},
    )


if __name__ == "__main__":
    main()

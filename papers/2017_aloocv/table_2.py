"""Table 2: CIFAR-10, bird against cat, n = 9600 and p = 3072; the refits are those of 50 random rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import results
import settings
from logistic import Logistic, log_losses
from sklearn.linear_model import LogisticRegression

import onefit

T = TypeVar("T")
PAPER = {  # λ: in-sample loss, loss on new data, ACV
    1e5: (0.6578, 0.6591, 0.6578),
    1e4: (0.5810, 0.6069, 0.5841),
    1e3: (0.5318, 0.5832, 0.5444),
    1e2: (0.5152, 0.5675, 0.5379),
    1e1: (0.4859, 0.5977, 0.5560),
    1e0: (0.4456, 0.6623, 0.6132),
}
ROWS = 50
N = results.pick("rows", full=9600, quick=600)
STRENGTHS = results.pick("strengths", full=tuple(PAPER), quick=(1e4, 1e2))

HEAD = (
    "λ", "in-sample", "new data", "ACV, one step", "ours", "influence function",
    "paper: in-sample", "paper: new data", "paper: ACV",
)  # fmt: skip
HEAD_ROWS = (
    "λ", "refits", "one step", "ours", "influence function", "one step off by, largest",
    "ours off by, largest", "fit s", "ours, all rows, s", "ours, ms a row", "50 refits side by side, s",
)  # fmt: skip


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Result of a call, and its seconds of processor time."""
    start = time.process_time()
    found = run()
    return found, time.process_time() - start


def off(found: np.ndarray, exact: np.ndarray) -> str:
    """Largest relative difference of two vectors of losses."""
    return f"{np.max(np.abs(found / exact - 1.0)):.2g}"


def main() -> None:
    """Print both tables."""
    data = settings.cifar(N)
    rows = np.random.default_rng(0).choice(len(data.y), ROWS, replace=False)
    model = LogisticRegression(solver="newton-cholesky", tol=1e-8, max_iter=100, warm_start=True)
    whole, some, numbers, timings = [], [], dict[str, float](), dict[str, float]()
    for strength in STRENGTHS:
        printed = PAPER[strength]
        model.set_params(C=1.0 / strength)
        _, fit_s = timed(lambda: model.fit(data.X, data.y))
        ours, ours_s = timed(lambda: onefit.loo(model, data.X, data.y))
        logistic = Logistic.of(model, data.X, data.y)
        one_step = logistic.one_step()
        refits, refit_s = timed(lambda logistic=logistic: logistic.refits(rows))
        losses = {
            "refits": log_losses(data.y[rows], refits),
            "one step": log_losses(data.y, one_step),
            "ours": ours.losses,
            "influence": log_losses(data.y, logistic.influence()),
        }
        new = log_losses(data.y_new, model.decision_function(data.X_new)).mean()
        means = [log_losses(data.y, logistic.eta).mean(), new, *(losses[k].mean() for k in list(losses)[1:])]
        whole.append((f"{strength:g}", *(f"{mean:.4f}" for mean in means), *(f"{x:.4f}" for x in printed)))
        same = [losses["refits"], *(losses[name][rows] for name in ("one step", "ours", "influence"))]
        offs = (off(same[1], same[0]), off(same[2], same[0]))
        seconds = (f"{fit_s:.0f}", f"{ours_s:.0f}", f"{1000 * ours_s / len(data.y):.1f}")
        some.append(
            (f"{strength:g}", *(f"{loss.mean():.6f}" for loss in same), *offs, *seconds, f"{refit_s:.0f}")
        )
        numbers[f"{strength:g}: one step off"] = float(np.max(np.abs(same[1] / same[0] - 1.0)))
        numbers[f"{strength:g}: ours off"] = float(np.max(np.abs(same[2] / same[0] - 1.0)))
        numbers[f"{strength:g}: one step"] = float(losses["one step"].mean())
        timings[f"{strength:g}: ms a row"] = 1000.0 * ours_s / len(data.y)
        print(*whole[-1], *some[-1], flush=True)
    caption = f"Table 2: CIFAR-10, bird against cat, n = {N}, p = 3072"
    results.save(
        settings.FOLDER,
        "table_2",
        HEAD,
        whole,
        caption=f"{caption}; new data are the other rows.",
        seeds="0",
        numbers=numbers,
    )
    results.save(
        settings.FOLDER,
        "table_2_rows",
        HEAD_ROWS,
        some,
        caption=f"{caption}: refits of {ROWS} random rows.",
        seeds="0",
        timings=timings,
    )


if __name__ == "__main__":
    main()

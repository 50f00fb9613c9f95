"""Table 1: seconds of one lasso path, of leave-one-out beside it, and of leave-one-out by refits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass

import numpy as np
import plain
import results
import settings
from sklearn.linear_model import lasso_path

import onefit
from onefit.losses import Squared
from onefit.penalties import L1
from onefit.problem import Problem
from onefit.solvers import newton
from onefit.solvers.path import least_squares_path

Array = np.ndarray
GRID = [*((800, p) for p in (200, 400, 800, 1600)), *((n, 800) for n in (200, 400, 1600))]
SIZES = results.pick("sizes", full=GRID, quick=[(800, 200), (200, 800), (400, 800)])
STRENGTHS, SHARE = 50, 0.01  # from the smallest that leaves no column, down to so much of it
SEEDS, TIGHT = results.pick("seeds", full=10, quick=1), 1e-8
ROWS_LEFT_OUT = results.pick(
    "refits that are timed", full=5, quick=1
)  # their mean times n is the price of all
AGAIN = 2  # times that a path is run; the fastest counts

HEAD = (
    "n × p", "path, scikit-learn", "plain ALO of each fit, besides", "our path alone", "with plain ALO",
    "with exact left-out values", "plain ALO / our path", "exact / our path", "exact / scikit-learn's path",
    "refits (LOOCV)", "refits / exact", "active at the end",
)  # fmt: skip


@dataclass(frozen=True)
class Seconds:
    """Processor seconds of one data set, and how many columns are active at the end."""

    single: float
    formula: float
    alone: float
    plain: float
    whole: float
    refits: float
    active: float


def seconds(run: Callable[[], object]) -> float:
    """Seconds of processor time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def strengths(X: Array, y: Array) -> Array:
    """Fifty alphas in scikit-learn's scaling."""
    top = np.abs(X.T @ y).max() / len(y)
    return np.geomspace(top, SHARE * top, STRENGTHS)


def single(X: Array, y: Array, alphas: Array) -> Array:
    """scikit-learn's coordinate descent along the path: (p, J)."""
    return lasso_path(X, y, alphas=alphas, tol=TIGHT, max_iter=100_000)[1]


def formula(X: Array, y: Array, alphas: Array, coefs: Array) -> None:
    """Apply the paper's formula to every fit of a path."""
    for alpha, coef in zip(alphas[1:], coefs.T[1:], strict=True):
        model = onefit.GeneralizedLinear("squared", L1(alpha * len(y)), fit_intercept=False)
        model.coef_, model.intercept_ = coef, 0.0
        plain.smooth_loss(model, X, y)


def our_path(X: Array, y: Array, alphas: Array) -> Iterator[newton.Solution]:
    """Our path to machine precision, with its factor at every strength, and without any risk."""
    ones, none = np.ones(len(y)), np.array(False)
    return least_squares_path(Problem(Squared(), L1(a * len(y)), X, y, ones, none) for a in alphas)


def alone(X: Array, y: Array, alphas: Array) -> None:
    """Go along our path."""
    for _ in our_path(X, y, alphas):
        pass


def with_plain(X: Array, y: Array, alphas: Array) -> Array:
    """Our path, and the paper's formula (eq. 17) from the factor that is there: the risks, (J,)."""
    risks = []
    for at in our_path(X, y, alphas):
        leverages = at.curvature.quadratic_forms()
        risks.append(np.mean(((y - at.fit.eta) / (1.0 - leverages)) ** 2))
    return np.array(risks)


def measure(n: int, p: int, seed: int) -> Seconds:
    """Time everything on one data set, ours in turn."""
    sample = settings.timing(n, p, seed)
    X, y = np.asfortranarray(sample.X), sample.y
    alphas = strengths(X, y)
    path = min(seconds(lambda: single(X, y, alphas)) for _ in range(AGAIN))
    step = seconds(lambda: formula(X, y, alphas, single(X, y, alphas))) - path
    model = onefit.LassoLOO(alphas=alphas, fit_intercept=False, early_stopping=False)
    ways = (lambda: alone(X, y, alphas), lambda: with_plain(X, y, alphas), lambda: model.fit(X, y))
    by_itself, with_step, whole = np.min([[seconds(way) for way in ways] for _ in range(AGAIN)], axis=0)
    rest = np.asfortranarray(np.delete(X, 0, axis=0)), np.delete(y, 0)
    refit = np.mean([seconds(lambda: single(*rest, alphas)) for _ in range(ROWS_LEFT_OUT)])
    active = np.count_nonzero(model.coef_path_[-1])
    return Seconds(path, step, by_itself, with_step, whole, n * float(refit), active)


def main() -> None:
    """Write the table."""
    warnings.simplefilter("ignore", onefit.OnefitWarning)  # it is time that counts
    rows, timings = [], {}
    for n, p in SIZES:
        mean = Seconds(*np.mean([astuple(measure(n, p, seed)) for seed in range(SEEDS)], axis=0))
        costs = (mean.single, mean.formula, mean.alone, mean.plain, mean.whole)
        shares = {
            "plain ALO / our path": (mean.plain - mean.alone) / mean.alone,
            "exact / our path": (mean.whole - mean.alone) / mean.alone,
            "exact / scikit-learn": (mean.whole - mean.alone) / mean.single,
        }
        ends = (f"{mean.refits:.0f}", f"{mean.refits / mean.whole:.0f}", f"{mean.active:.0f}")
        rows.append((f"{n} × {p}", *(f"{one:.2f}" for one in (*costs, *shares.values())), *ends))
        shares |= {"our path": mean.alone, "refits / exact": mean.refits / mean.whole}
        shares |= {"path and plain ALO / scikit-learn": mean.plain / mean.single}
        timings |= {f"{n} × {p}: {name}": share for name, share in shares.items()}
        print(*rows[-1], flush=True)
    results.save(
        settings.FOLDER,
        "table_1",
        HEAD,
        rows,
        caption=f"Table 1: processor seconds of a lasso path ({STRENGTHS} strengths) and its leave-one-out.",
        seeds=f"0 to {SEEDS - 1}",
        timings=timings,
    )


if __name__ == "__main__":
    main()

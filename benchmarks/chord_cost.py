"""What steps with one factor take a row, and what the cost model says: python benchmarks/chord_cost.py"""

import time

import numpy as np
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.leave_out.chords import USUAL_STEPS, chord_cost
from onefit.leave_out.stages import LOOSELY, State
from onefit.losses import Logistic, Multinomial
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

SHAPES = ((150, 4), (500, 20), (2000, 200), (5000, 50), (1000, 500), (300, 2000), (1500, 3000))
SPARSE = ((1300, 3300, 0.02), (3000, 5000, 0.02))  # and the share of numbers that are not zero
STRENGTHS = (1.0, 0.01)
ROWS = (30, 300)


def problems(rng: np.random.Generator):
    """Tables, with two classes and with five, and the strengths of a ridge penalty."""
    for n, p in SHAPES:
        yield rng.normal(size=(n, p)), 2
    for n, p in ((150, 4), (2000, 20), (5000, 50)):
        yield rng.normal(size=(n, p)), 5
    for n, p, share in SPARSE:
        yield sp.random_array((n, p), density=share, rng=rng, format="csr", data_sampler=rng.normal), 2


def fitted(X, classes: int, strength: float, rng: np.random.Generator) -> Fit:
    """A ridge of classes that some columns tell."""
    n, p = X.shape
    eta = X @ rng.normal(size=(p, classes)) * 3.0 / np.sqrt(p if not sp.issparse(X) else X.nnz / n)
    y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1).astype(float)
    several = classes > 2
    loss = Multinomial(classes) if several else Logistic()
    intercept = np.ones(classes, dtype=bool) if several else np.array(True)
    return solve(Fit.at_start(Problem(loss, L2(strength), X, y, np.ones(n), intercept))).fit


def main() -> None:
    """Print one line for each problem and number of rows."""
    rng = np.random.default_rng(0)
    print("  rows columns classes strength   of   ms a row  estimate  ratio")
    for X, classes in problems(rng):
        for strength in STRENGTHS:
            fit = fitted(X, classes, strength, rng)
            for count in ROWS:
                which = np.arange(min(count, fit.problem.n))
                state = State.of(fit, None, None, None, 0.1)
                blocks = state._singles
                start = time.process_time()
                blocks.iterate(which, LOOSELY, int(USUAL_STEPS))
                taken, told = (time.process_time() - start) / len(which), chord_cost(fit).seconds
                n, p = X.shape
                print(
                    f"{n:6d}{p:8d}{classes:8d}{strength:9.2f}{len(which):5d}{1e3 * taken:11.3f}"
                    f"{1e3 * told:10.3f}{told / taken:7.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

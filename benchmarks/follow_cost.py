"""What following the rows of a lasso takes, and what the cost model says: python benchmarks/follow_cost.py"""

import time

import numpy as np

from onefit.fit import Fit
from onefit.leave_out.follow import Paths, cost
from onefit.losses import Squared
from onefit.penalties import L1
from onefit.problem import Problem
from onefit.solvers.solve import solve

SHAPES = ((200, 800), (400, 800), (800, 200), (100, 1000), (500, 1000), (442, 10), (73, 74), (200, 150))
SHARES = (0.3, 0.1, 0.03, 0.01, 0.001)  # strengths, relative to that at which the first column enters


def main() -> None:
    """Print one line for each shape and strength."""
    rng = np.random.default_rng(0)
    print("  rows columns support   seconds  estimate  left")
    for n, p in SHAPES:
        X = rng.normal(size=(n, p))
        y = X[:, :20].sum(axis=1) + 2.0 * rng.normal(size=n)
        top = np.abs(X.T @ (y - y.mean())).max()
        for share in SHARES:
            problem = Problem(Squared(), L1(share * top), X, y, np.ones(n), np.array(True))
            fit = solve(Fit.at_start(problem)).fit
            start = time.process_time()
            done = len(Paths(fit).follow(np.arange(n)).solved)
            taken = time.process_time() - start
            print(
                f"{n:6d}{p:8d}{fit.tangent.size:8d}{taken:10.3f}{cost(fit, n).seconds:10.3f}{n - done:6d}",
                flush=True,
            )


if __name__ == "__main__":
    main()

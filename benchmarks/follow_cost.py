"""What following rows takes, of a lasso and of a loss with kinks, and what the cost model says.

python benchmarks/follow_cost.py
"""

import time

import numpy as np

from onefit.fit import Fit
from onefit.leave_out.follow import Paths, cost
from onefit.losses import Hinge, Squared
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

SHAPES = ((200, 800), (400, 800), (800, 200), (100, 1000), (500, 1000), (442, 10), (73, 74), (200, 150))
SHARES = (0.3, 0.1, 0.03, 0.01, 0.001)  # strengths, relative to that at which the first column enters


STRENGTHS = (10.0, 0.1)  # beside a hinge


def main() -> None:
    """Print one line for each shape and strength."""
    rng = np.random.default_rng(0)
    print("loss    rows columns support   seconds  estimate  left")
    for n, p in SHAPES:
        X = rng.normal(size=(n, p))
        y = X[:, :20].sum(axis=1) + 2.0 * rng.normal(size=n)
        top = np.abs(X.T @ (y - y.mean())).max()
        for share in SHARES:
            _line(Problem(Squared(), L1(share * top), X, y, np.ones(n), np.array(True)))
        for strength in STRENGTHS:
            _line(Problem(Hinge(), L2(strength), X, (y > 0).astype(float), np.ones(n), np.array(True)))


def _line(problem: Problem) -> None:
    fit, n = solve(Fit.at_start(problem)).fit, problem.n
    start = time.process_time()
    done = len(Paths(fit).follow(np.arange(n)).solved)
    taken, size = time.process_time() - start, int(fit.pinned.sum()) or fit.tangent.size
    kind = type(problem.loss).__name__
    print(
        f"{kind:8s}{n:4d}{problem.X.shape[1]:8d}{size:8d}"
        f"{taken:10.3f}{cost(fit, n).seconds:10.3f}{n - done:6d}",
        flush=True,
    )


if __name__ == "__main__":
    main()

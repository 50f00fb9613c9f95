"""What whole steps and steps of a measured length are off by on texts, and what a sample of 30 rows would be.

    OPENBLAS_NUM_THREADS=1 python benchmarks/step_lengths.py

In standard errors of the exact leave-one-out risk: what the mean is off by before a sample corrects it, and
the standard deviation of a sample that is drawn by what steps change, and by what their lengths do.
"""

from __future__ import annotations

import numpy as np

from onefit import LogisticLOO
from onefit.leave_out import leave_out
from onefit.leave_out.frame import FEWEST
from onefit.leave_out.lengths import farthest, step_lengths
from onefit.leave_out.step import Step
from onefit.solvers.solve import solve_path
from text_choice import texts

SETS = (("pcmac", "tfidf"), ("basehock", "tfidf"), ("movie", "tfidf"))
ROWS, CS = 500, np.logspace(0, 3, 4)


def spread_of(off, by) -> float:
    """Standard deviation of the sum that a sample of rows drawn ``by`` something tells."""
    n = len(off)
    share = by / n + by.mean() / n
    chance = np.minimum(FEWEST * share / share.sum(), 1.0)
    return float(np.sqrt(np.sum((1.0 - chance) / chance * (off / n) ** 2)))


def main() -> None:
    """Print a row for each set and strength."""
    for name, words in SETS:
        X, y, *_ = texts(name, words, ROWS)
        model = LogisticLOO(Cs=CS)
        sample = model._sample(X, y, None, None, None)
        for one, C in zip(solve_path(model._problem(sample, C, 0.0) for C in CS), CS, strict=True):
            fit, K = one
            loss = fit.problem.loss
            exact = loss.value(fit.problem.y, leave_out(fit, max_error=0.0, curvature=K).eta)
            step = Step.of(fit, K)
            eta, lengths = step.taken(fit).eta, step_lengths(fit, step, np.arange(fit.problem.n))
            whole, measured, far = (
                loss.value(fit.problem.y, fit.eta + t * (eta - fit.eta))
                for t in (1.0, lengths, farthest(np.abs(eta - fit.eta)))
            )
            unit = exact.std() / np.sqrt(len(exact))
            plain = spread_of(whole - exact, np.abs(far - whole))
            drawn = spread_of(measured - exact, np.sqrt(np.abs(far - whole) * np.abs(measured - whole)))
            print(
                f"{name:9} C = {C:6.0f}  mean {(whole - exact).mean() / unit:6.3f} "
                f"{(measured - exact).mean() / unit:6.3f}   sample {plain / unit:.3f} {drawn / unit:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

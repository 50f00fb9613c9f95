"""What estimators that tune themselves choose, beside exact paths: ``python -m zoo.choice --problems 200``.

The exact path is that of refits: without each row the whole path is solved anew, to machine precision, and at
the strength that was chosen and at the best one a cold start has to find the same objectives.  The choice is
right if it is the best of the path, or if its exact risk is within a tenth of the standard error of the
difference between the two.

Every risk of the path is held against its stated error, ``approx_error_path_``: where ``guarantee_path_``
says "exact" or "bounded" it is proven, and one risk beyond it is wrong; where it says "sampled" it holds at
95 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import onefit
from onefit.exceptions import OnefitWarning, SolverError
from onefit.fit import Fit
from onefit.leave_out.loose import with_middle_intercept
from onefit.problem import Problem
from onefit.readers import Reading, read
from onefit.risk.means import paired_errors
from onefit.solvers.solve import solve, solve_path
from zoo.draw import SEED, unequal_weights
from zoo.tables import REAL, random_table, real_table, response, troubled
from zoo.verdicts import ROUNDING

ROWS, COLUMNS = (30, 100), 60
STRENGTHS = 20
WITHIN = 0.1  # standard errors of the difference to the best risk that a choice may cost
LIMIT = 100.0  # seconds for a fit, or for the refits of a problem
CHECKED = 5  # of so many refits one is held against a cold start
SAME = 1e-8  # difference of objectives, relative, of a refit along a path and one from a cold start


def _generalised(loss: str, penalty: str) -> Callable[[], Any]:
    return lambda: onefit.GeneralizedLinearLOO(loss, penalty, STRENGTHS, selection="min")


@dataclass(frozen=True)
class Kind:
    """An estimator that tunes itself, and the response it is for."""

    response: str
    make: Callable[[], Any]


KINDS = {
    "LassoLOO": Kind("number", lambda: onefit.LassoLOO(STRENGTHS, selection="min")),
    "ElasticNetLOO": Kind("number", lambda: onefit.ElasticNetLOO(STRENGTHS, selection="min")),
    "RidgeLOO": Kind("number", lambda: onefit.RidgeLOO(STRENGTHS, selection="min")),
    "LogisticLOO, l2": Kind("two classes", lambda: onefit.LogisticLOO(STRENGTHS, selection="min")),
    "LogisticLOO, l1": Kind(
        "two classes", lambda: onefit.LogisticLOO(STRENGTHS, l1_ratio=1.0, selection="min")
    ),
    "PoissonLOO": Kind("count", lambda: onefit.PoissonLOO(STRENGTHS, selection="min")),
    "huber + l1": Kind("number", _generalised("huber", "l1")),
    "absolute + l2": Kind("number", _generalised("absolute", "l2")),
    "poisson + l1": Kind("count", _generalised("poisson", "l1")),
    "gamma + l2": Kind("positive", _generalised("gamma", "l2")),
    "squared_hinge + l2": Kind("two classes", _generalised("squared_hinge", "l2")),
    "multinomial + l2": Kind("three classes", _generalised("multinomial", "l2")),
}


@dataclass(frozen=True)
class Choice:
    """What was chosen for one problem, and what it costs.

    ``status`` is "judged", "refused" (a clear error of ours), "crash", "too slow" (a fit), or "no path" where
    refits have no solution or take too long.
    """

    number: int
    kind: str
    n: int = 0
    p: int = 0
    tags: tuple[str, ...] = ()
    status: str = "judged"
    message: str = ""
    chosen: float = np.nan
    best: float = np.nan
    risk: float = np.nan  # exact, at the choice
    least: float = np.nan  # the smallest exact one
    paired_error: float = np.nan  # standard error of the difference of the two
    said: float = np.nan  # the risk that the estimator reports for its choice
    approx_error: float = np.nan
    proven: int = 0  # risks with a proven error, the reported one among them
    false: int = 0  # of these, beyond it
    sampled: int = 0  # risks with an error at 95 %
    missed: int = 0  # of these, beyond it
    disputes: int = 0  # refits that a cold start beats
    seconds: float = np.nan
    fit_seconds: float = np.nan

    @property
    def is_right(self) -> bool:
        """Whether the choice is the best, or as good to a tenth of a standard error."""
        return self.risk - self.least <= WITHIN * self.paired_error

    @property
    def is_wrong(self) -> bool:
        if self.status == "judged":
            return not self.is_right or self.disputes > 0 or self.false > 0
        return self.status in ("crash", "too slow")


@dataclass(frozen=True)
class Drawn:
    """A table, and an estimator for it."""

    number: int
    kind: str
    X: np.ndarray
    y: np.ndarray
    sample_weight: np.ndarray | None
    tags: tuple[str, ...]


def draw(number: int, rows: tuple[int, int] = ROWS, columns: int = COLUMNS, real: Any = REAL) -> Drawn:
    """Draw a table of the zoo for an estimator; they take turns."""
    rng = np.random.default_rng([SEED, number, 1])
    kind = list(KINDS)[number % len(KINDS)]
    if rng.uniform() < 0.3:
        table = real_table(rng, str(rng.choice(real)), rows, columns)
    else:
        table = random_table(rng, rows, columns)
    table = troubled(rng, table)
    y, special = response(rng, KINDS[kind].response, table.score)
    weights, weighing = unequal_weights(rng, y)
    tags = tuple(word for word in (table.name, *table.tags, special, weighing) if word)
    return Drawn(number, kind, table.X, y, weights, tags)


def judge(drawn: Drawn) -> Choice:
    """Tune, refit the whole path without each row, and compare."""
    found = Choice(drawn.number, drawn.kind, *drawn.X.shape, drawn.tags)
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", OnefitWarning)
            tuned = KINDS[drawn.kind].make().fit(drawn.X, drawn.y, sample_weight=drawn.sample_weight)
    except SolverError as error:
        return replace(found, status="refused", message=f"{type(error).__name__}: {error}")
    except Exception as error:  # whatever it may be: that is what is looked for
        return replace(found, status="crash", message=f"{type(error).__name__}: {error}")
    found = replace(found, seconds=time.process_time() - start)
    return _compared(found, tuned, drawn) if found.seconds < LIMIT else replace(found, status="too slow")


def _compared(found: Choice, tuned: Any, drawn: Drawn) -> Choice:
    reading = read(tuned, drawn.X, drawn.y, sample_weight=drawn.sample_weight)
    weights = np.ones(len(drawn.y)) if drawn.sample_weight is None else drawn.sample_weight
    visited, place = _path_of(tuned)
    start = time.process_time()
    problems = [_problem_at(reading, strength / visited[place]) for strength in visited]
    try:
        losses, fits = _exact_path(reading, problems, np.flatnonzero(weights))
    except (SolverError, TimeoutError) as error:
        return replace(found, status="no path", message=f"{type(error).__name__}: {error}")
    risks = losses @ weights / weights.sum()
    best = int(risks.argmin())
    return replace(
        found,
        chosen=visited[place],
        best=visited[best],
        risk=float(risks[place]),
        least=float(risks[best]),
        paired_error=float(paired_errors(losses.T, weights, best)[place]),
        said=tuned.loo_.value,
        approx_error=tuned.loo_.approx_error,
        disputes=_disputes([fits[place], fits[best]]),
        fit_seconds=(time.process_time() - start) / np.count_nonzero(weights),
        **_beyond_their_errors(tuned, [*risks[: len(tuned.risk_path_)], risks[place]]),
    )


def _beyond_their_errors(tuned: Any, exact: Sequence[float]) -> dict[str, int]:
    """How many risks of a path, and the one that is reported last, are not within what is stated."""
    loo = tuned.loo_
    said = np.append(tuned.risk_path_, loo.value)
    stated = np.append(tuned.approx_error_path_, loo.approx_error)
    sizes = np.maximum(np.abs(exact), np.append(tuned.std_error_path_, loo.std_error))
    beyond = np.abs(said - exact) > stated + ROUNDING * sizes
    kinds = np.append(tuned.guarantee_path_, loo.guarantee)
    proven, sampled = np.isin(kinds, ("exact", "bounded")), kinds == "sampled"
    counts = (proven, proven & beyond, sampled, sampled & beyond)
    return dict(
        zip(("proven", "false", "sampled", "missed"), (int(one.sum()) for one in counts), strict=True)
    )


def _path_of(tuned: Any) -> tuple[list[float], int]:
    """Strengths of a path as they multiply the penalty, those that it stopped before too; and the choice."""
    visited = 1.0 / tuned.Cs_ if hasattr(tuned, "Cs_") else tuned.alphas_
    chosen = 1.0 / tuned.C_ if hasattr(tuned, "C_") else tuned.alpha_
    missing = STRENGTHS - len(visited)
    onwards = visited[-1] * (visited[-1] / visited[0]) ** (np.arange(1, missing + 1) / (len(visited) - 1))
    return [*visited.tolist(), *onwards.tolist()], int(np.abs(visited - chosen).argmin())


def _problem_at(reading: Reading, factor: float) -> Problem:
    problem = reading.fit.problem
    return replace(problem, penalty=problem.penalty.scaled(factor))


def _exact_path(
    reading: Reading, problems: Sequence[Problem], rows: np.ndarray
) -> tuple[np.ndarray, list[list[Fit]]]:
    """Left-out losses of some rows at each strength, (J, n), and the refits."""
    metric, target, start = reading.metric, reading.target, time.process_time()
    losses = np.zeros((len(problems), len(target)))
    fits: list[list[Fit]] = [[] for _ in problems]
    for i in rows.tolist():
        for j, solution in enumerate(solve_path(problem.without(i) for problem in problems)):
            refit, _ = with_middle_intercept(solution.fit)  # as our estimators take it
            losses[j, i] = metric.losses(target, refit.eta)[i]
            fits[j].append(refit)
            if time.process_time() - start > LIMIT:
                raise TimeoutError(f"refits take over {LIMIT:g} s")
    return losses, fits


def _disputes(columns: Sequence[Sequence[Fit]]) -> int:
    """Refits along a path that a cold start beats."""
    beaten = 0
    for fit in (fit for column in columns for fit in column[::CHECKED]):
        start = Fit.at_start(fit.problem)
        slack = SAME * abs(fit.objective) + 1e-13 * abs(start.objective)
        beaten += solve(start).fit.objective < fit.objective - slack
    return beaten


def choices(numbers: Sequence[int], **size: Any) -> Iterator[Choice]:
    """Judge some problems of a size."""
    with threadpool_limits(1):
        for number in numbers:
            try:
                drawn = draw(number, **size)
            except FileNotFoundError as error:
                kind = list(KINDS)[number % len(KINDS)]
                yield Choice(number, kind, status="no data", message=str(error))
            else:
                yield judge(drawn)


def as_text(found: Sequence[Choice]) -> str:
    """A line a kind, and one for each choice that is wrong or was not made.

    Stated errors are counted in strengths: how many risks are beyond theirs, of those that are proven and of
    those that are sampled.
    """
    heads = (
        "problems",
        "the best",
        f"within {WITHIN}",
        "wrong",
        "no path",
        "beyond proven",
        "beyond sampled",
    )
    lines = [f"{'kind':<22} " + "  ".join(heads)]
    for kind in KINDS:
        own = [one for one in found if one.kind == kind]
        judged = [one for one in own if one.status == "judged"]
        same = sum(one.chosen == one.best for one in judged)
        near = sum(one.is_right for one in judged) - same
        wrong, unjudged = sum(one.is_wrong for one in own), len(own) - len(judged)
        shares = _share(judged, "false", "proven"), _share(judged, "missed", "sampled")
        cells = (len(own), same, near, wrong, unjudged, *shares)
        lines.append(
            f"{kind:<22} "
            + "  ".join(f"{cell:>{len(head)}}" for cell, head in zip(cells, heads, strict=True))
        )
    return "\n".join([*lines, *(_shown(one) for one in found if one.is_wrong or one.status != "judged")])


def _share(judged: Sequence[Choice], some: str, every: str) -> str:
    return " / ".join(str(sum(getattr(one, name) for one in judged)) for name in (some, every))


def _shown(one: Choice) -> str:
    return (
        f"{one.number} {one.kind} {one.n} x {one.p} {', '.join(one.tags)}: {one.status} {one.message} chosen "
        f"{one.chosen:.3g}, risk {one.risk:.6g}; best {one.best:.3g}, {one.least:.6g}; paired error "
        f"{one.paired_error:.2g}, said {one.said:.6g} within {one.approx_error:.2g}, "
        f"{one.disputes} disputes, {one.false} of {one.proven} beyond proven errors"
    )


def main() -> int:
    """Run, write, print; 1 if a choice is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("onefit-out/choice.jsonl"))
    given = parser.parse_args()
    found = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w") as file:
        for one in choices(range(given.first, given.first + given.problems)):
            found.append(one)
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
    print(as_text(found))
    return int(any(one.is_wrong for one in found))


if __name__ == "__main__":
    sys.exit(main())

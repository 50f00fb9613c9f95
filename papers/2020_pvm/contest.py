"""All searches on one case, what each came to, and its best point after every inner solve."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import networks
import numpy as np
import results
from networks import Trained, Trainer
from settings import Case

import onefit

OURS, SCRATCH, PRINTED = "PVM, ours", "PVM, ours, from scratch", "PVM, as printed"
NAMES = results.pick(
    "searches",
    full=("grid", "random", "Bayesian", OURS, SCRATCH, PRINTED),
    quick=("grid", OURS, PRINTED),
)
OPTIONS = {
    OURS: {},
    SCRATCH: {"warm_start": False},
    PRINTED: {"slopes": False, "check_rounds": False, "warm_start": False},
}


MORE = 6  # solves of random and Bayesian search beyond the samples of PVM, as its rounds and checks take


class End(NamedTuple):
    """What a search came to.

    Attributes
    ----------
    at : tuple of float
        ξ.
    solves : int
    training, validation, test : float
        Losses of the weights that the search leaves, which saw the training rows only.
    afresh : float
        Test loss of weights trained at ξ from the first ones, as the grid's are.
    all_rows : float
        Test loss of weights trained at ξ on training and validation rows.
    joint : float
        Test loss of the weights that PVM fits jointly with λ; NaN for the others.
    """

    at: tuple[float, ...]
    solves: int
    training: float
    validation: float
    test: float
    afresh: float
    all_rows: float
    joint: float = float("nan")


def plain(trainer: Trainer, name: str) -> list[Trained]:
    """The points of a search that trains once a point, in order."""
    if name == "grid":
        return networks.grid(trainer)
    run = networks.random_search if name == "random" else networks.bayesian
    return run(trainer, trainer.size.samples + MORE)


def end(case: Case, name: str) -> End:
    """What a search came to on a case."""
    trainer = Trainer(case)
    if name not in OPTIONS:
        found = plain(trainer, name)
        one = networks.best(found)
        all_rows = trainer.at(one.at, all_rows=True).test
        return End(one.at, len(found), one.training, one.validation, one.test, one.test, all_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)  # of the algorithm as printed
        search = networks.pvm(trainer, **OPTIONS[name])
    afresh = trainer.at(search["at"]).test
    all_rows = trainer.at(search["at"], all_rows=True).test
    return End(
        tuple(search["at"]), search["solves"], *search["retrained"], afresh, all_rows, search["joint"][2]
    )


def course(case: Case, name: str) -> np.ndarray:
    """Test loss, trained afresh, of the best point after each solve: (solves,)."""
    trainer = Trainer(case)
    if name not in OPTIONS:
        found = plain(trainer, name)
        losses = [one.validation for one in found]
        return np.array([found[number].test for number in leaders(losses)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onefit.UnreliableWarning)
        search = networks.pvm(trainer, **OPTIONS[name])
    leading = leaders(search["validation"])
    tests = {number: trainer.at(search["samples"][number]).test for number in set(leading)}
    after = [tests[number] for number in leading]
    rounds = [after[trainer.size.samples - 1]] * len(search["rounds"])  # train no weights that count here
    after[trainer.size.samples : trainer.size.samples] = rounds
    return np.array(after + [after[-1]] * (search["solves"] - len(after)))


def leaders(losses: Sequence[float]) -> list[int]:
    """Number of the smallest so far, at every step."""
    return [int(np.argmin(losses[: step + 1])) for step in range(len(losses))]

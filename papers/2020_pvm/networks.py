"""The network of section 4.2, and searches for its penalties that train it once a point.

Adam on batches, always from the same weights, with a learning rate that falls to zero.  Only ``pvm`` is of
onefit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import results
import settings
import torch
from joblib import Parallel, delayed
from settings import Case, Size, Split
from torch import Tensor, nn

import onefit.torch

Array = np.ndarray
Point = tuple[float, ...]  # ξ

PATTERNS = {1: {"all": "*weight"}, 2: {"first": "0.weight", "last": "2.weight"}}  # of the penalised weights

torch.set_num_threads(1)


class Trained(NamedTuple):
    """What came of a training at ξ: the regularised loss, and losses on validation and test rows."""

    at: Point
    training: float
    validation: float
    test: float


def network(inputs: int, seed: int) -> nn.Sequential:
    """One hidden layer of 100."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, settings.HIDDEN), nn.ReLU(), nn.Linear(settings.HIDDEN, 10))


@dataclass(frozen=True)
class Trainer:
    """Trains the network of a case, and keeps what was trained before."""

    case: Case

    @property
    def size(self) -> Size:
        return settings.SIZES[self.case.rows, self.case.strengths]

    @cached_property
    def split(self) -> Split:
        return settings.mnist(self.case)

    def start(self) -> nn.Sequential:
        """The network before any training."""
        return network(self.split.X.shape[1], self.case.seed)

    def kept(self, name: str, compute: Callable[[], object]) -> list:
        """What was computed under a name, or compute it."""
        case, size = self.case, self.size
        recipe = f"{size.epochs}-{size.batch}-{settings.LEARNING_RATE:g}"
        folder = (
            settings.KEPT
            / results.digest("src/onefit/torch", "papers/2020_pvm")
            / f"{case.rows}-{case.strengths}-{case.seed}-{recipe}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        (settings.KEPT / ".gitignore").write_text("*\n")
        file = folder / f"{name}.json"
        if not file.exists():
            partial = file.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(compute()))
            partial.replace(file)  # whole or not at all
        return json.loads(file.read_text())

    def at(self, point: Sequence[float], *, all_rows: bool = False) -> Trained:
        """Train at ξ on the training rows, or on those and the validation rows."""
        point = tuple(round(float(xi), 6) for xi in point)
        name = "_".join(f"{xi:.6f}" for xi in point) + ("_all" if all_rows else "")
        saved = self.kept(name, lambda: self._trained(point, all_rows=all_rows))
        return Trained(tuple(saved[0]), *saved[1:])

    def _trained(self, point: Point, *, all_rows: bool) -> Trained:
        split = self.split
        X, y = split.X, split.y
        if all_rows:
            X, y = np.concatenate([X, split.X_val]), np.concatenate([y, split.y_val])
        X, y = torch.as_tensor(X), torch.as_tensor(y)
        model, strengths = self.start(), torch.as_tensor(np.exp(point), dtype=torch.float32)

        def loss(X: Tensor, y: Tensor) -> Tensor:
            squares = torch.stack([layer.weight.square().sum() for layer in (model[0], model[2])])
            return nn.functional.cross_entropy(model(X), y) + strengths.expand(2) @ squares

        self._descend(model, loss, X, y)
        with torch.no_grad():
            held = [(split.X_val, split.y_val), (split.X_test, split.y_test)]
            outside = [
                nn.functional.cross_entropy(model(torch.as_tensor(one)), torch.as_tensor(labels)).item()
                for one, labels in held
            ]
            return Trained(point, loss(X, y).item(), *outside)

    def _descend(
        self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], X: Tensor, y: Tensor
    ) -> None:
        adam = torch.optim.Adam(model.parameters(), lr=settings.LEARNING_RATE)
        random = torch.Generator().manual_seed(self.case.seed)
        for epoch in range(self.size.epochs):
            for group in adam.param_groups:
                group["lr"] = settings.LEARNING_RATE * (1 - epoch / self.size.epochs)
            order = torch.randperm(len(X), generator=random)
            for rows in order.split(self.size.batch):
                adam.zero_grad()
                loss(X[rows], y[rows]).backward()
                adam.step()


def grid(trainer: Trainer) -> list[Trained]:
    """Equally spaced ξ along each strength."""
    side = np.linspace(*settings.RANGE, trainer.size.side)
    points = np.stack(np.meshgrid(*[side] * trainer.case.strengths, indexing="ij"), axis=-1)
    jobs = (delayed(at)(trainer, point) for point in points.reshape(-1, trainer.case.strengths))
    return Parallel(n_jobs=settings.JOBS)(jobs)


def at(trainer: Trainer, point: Array) -> Trained:
    """Train at ξ, on one thread in whatever process."""
    torch.set_num_threads(1)
    return trainer.at(point)


def random_search(trainer: Trainer, solves: int) -> list[Trained]:
    """Uniform draws of ξ."""
    rng = np.random.default_rng([trainer.case.seed, trainer.case.strengths])
    return [trainer.at(point) for point in rng.uniform(*settings.RANGE, (solves, trainer.case.strengths))]


def bayesian(trainer: Trainer, solves: int) -> list[Trained]:
    """Optuna's tree-structured Parzen estimator, as it comes."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=trainer.case.seed))
    found = []
    for _ in range(solves):
        trial = study.ask()
        point = [trial.suggest_float(f"xi_{k}", *settings.RANGE) for k in range(trainer.case.strengths)]
        found.append(trainer.at(point))
        study.tell(trial, found[-1].validation)
    return found


def best(found: Sequence[Trained]) -> Trained:
    """The one with the smallest validation loss."""
    return min(found, key=lambda one: one.validation)


def pvm(trainer: Trainer, **options: bool) -> dict:
    """Algorithm 1 by ``ValueFunctionSearch``, with the batches, epochs and learning rate of the others."""
    name = "-".join(["pvm", str(trainer.size.samples), *(f"{key}-{one}" for key, one in options.items())])
    return trainer.kept(name, lambda: _searched(trainer, options))


def _searched(trainer: Trainer, options: dict[str, bool]) -> dict:
    size, split = trainer.size, trainer.split
    patterns = (
        {"all": "*weight"} if trainer.case.strengths == 1 else {"first": "0.weight", "last": "2.weight"}
    )
    low, high = np.exp(settings.RANGE).tolist()
    search = onefit.torch.ValueFunctionSearch(
        trainer.start(),
        nn.CrossEntropyLoss(),
        patterns,
        dict.fromkeys(patterns, (low, high)),
        n_samples=size.samples,
        **options,
        max_iter=size.epochs,
        batch_size=size.batch,
        learning_rate=settings.LEARNING_RATE,
        random_state=trainer.case.seed,
    ).fit(split.X, split.y, split.X_val, split.y_val)
    test = search.losses(split.X_test, split.y_test)
    return {
        "at": np.log(list(search.lambda_.values())).tolist(),
        "origin": search.origin_,
        "solves": search.n_solves_,
        "joint": [search.training_loss_.joint, search.validation_loss_.joint, test.joint],
        "retrained": [search.training_loss_.retrained, search.validation_loss_.retrained, test.retrained],
        "samples": np.log(search.strengths_).tolist(),
        "values": search.values_.tolist(),
        "validation": search.validation_losses_.tolist(),
        "rounds": [[np.log(one.strengths).tolist(), *one[1:]] for one in search.rounds_],
    }

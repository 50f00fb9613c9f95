"""Several responses with one strength: a path each on the same columns, judged by their mean loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import numpy as np

from onefit._typing import Array
from onefit.blocks.left_out_path import JudgedLosses, JudgedRows, KnownRefits, LeftOutPath, SolvedAnew, joined
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.rows import Block


@dataclass(frozen=True, eq=False)
class JudgedOutputs:
    """A piece of rows, and what passes have found out about it, one response after the other."""

    part: Block
    outputs: tuple[JudgedRows, ...]

    def refits(self, at: int) -> KnownRefits | None:
        """Those without each row at a strength, (b, t), where all of them are known."""
        known = [found for one in self.outputs if (found := one.refits(at)) is not None]
        if len(known) < len(self.outputs):
            return None
        return KnownRefits(*(np.stack(own, axis=1) for own in zip(*known, strict=True)))


@dataclass(frozen=True, eq=False)
class OutputsPath:
    """What it takes to judge rows of several responses at every strength.

    Attributes
    ----------
    outputs : tuple of LeftOutPath
        Paths of the responses, which compare losses with those of the same strength.
    """

    outputs: tuple[LeftOutPath, ...]

    @classmethod
    def of(cls, outputs: Sequence[LeftOutPath]) -> OutputsPath:
        """Join the paths of the responses, each with the same strengths."""
        least = int(np.sum([one.guessed_risks for one in outputs], axis=0).argmin())
        return cls(tuple(replace(one, reference=least) for one in outputs))

    @cached_property
    def coefs(self) -> Array:
        """Coefficients: (p, J, t)."""
        return np.stack([one.coefs for one in self.outputs], axis=2)

    @property
    def intercepts(self) -> Array:
        """Intercepts of each strength: (J, t)."""
        return np.stack([one.intercepts for one in self.outputs], axis=1)

    @property
    def guessed_risks(self) -> Array:
        """By generalised cross-validation: (J,)."""
        return np.mean([one.guessed_risks for one in self.outputs], axis=0)

    def judge(self, block: Block) -> LossSums:
        """Sum the left-out losses of the rows of a block of any size."""
        return reduce(add, (self.judge_further(self.judged(part)) for part in block.parts()))

    def judged(self, part: Block) -> JudgedOutputs:
        """What is known of a piece of rows before a pass."""
        return JudgedOutputs(part, tuple(JudgedRows(part._replace(y=own)) for own in part.y.T))

    def judge_further(self, known: JudgedOutputs) -> LossSums:
        """Sum the left-out losses of some rows, and take down what has come to be known of them."""
        each = [path.losses(own) for path, own in zip(self.outputs, known.outputs, strict=True)]
        losses, differences, exact, doubtful = _mean_of(each)
        return LossSums.of(losses, differences, known.part.weights, exact, doubtful)

    def anew(self, exactly: Sequence[list[SolvedAnew]]) -> OutputsPath:
        """Return the path that solves rows of each response anew at more strengths."""
        each = zip(self.outputs, exactly, strict=True)
        return OutputsPath(tuple(path.anew(own) for path, own in each))


def joined_outputs(paths: Sequence[OutputsPath]) -> OutputsPath:
    """Several paths on the same rows, to be judged in one pass."""
    return OutputsPath.of([joined(own) for own in zip(*(path.outputs for path in paths), strict=True)])


def _mean_of(each: Sequence[JudgedLosses]) -> JudgedLosses:
    losses, differences, exact, doubtful = zip(*each, strict=True)
    means = (sum(own) / len(own) for own in (losses, differences, doubtful))
    at_reference, apart, in_doubt = map(np.asarray, means)
    return JudgedLosses(at_reference, apart, np.logical_and.reduce(exact), in_doubt)

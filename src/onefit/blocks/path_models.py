"""Squared-loss models on sums over the rows: their paths, and what solves rows anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from onefit import cost
from onefit._typing import Array, Index
from onefit.blocks.left_out_path import LeftOutPath, SolvedAnew, joined
from onefit.blocks.outputs import OutputsPath, joined_outputs
from onefit.blocks.paths import Spectrum, net_path, ridge_path, solved_anew
from onefit.blocks.sums import RowSums
from onefit.numerics import TINY


class Places(NamedTuple):
    """Strengths at which all rows whose pattern changes are solved anew, and those with little slack only."""

    all: Index
    strained: Index

    def plus(self, more: Places) -> Places:
        """Return these and more."""
        return Places(*(np.union1d(one, other) for one, other in zip(self, more, strict=True)))


P = TypeVar("P", LeftOutPath, OutputsPath)


class PathModels(Protocol[P]):
    """What is judged along some paths."""

    @property
    def sums(self) -> RowSums:
        """Over the rows."""

    def paths(self, strengths: list[Array], surely: float) -> list[P]:
        """Solve each at its strengths, or at the first ones, past which nothing matters: ``guessed``."""

    def joined(self, paths: list[P]) -> P:
        """All of them, to be judged in one pass."""

    def anew(self, path: P, paths: list[P], strengths: list[Array], at: list[Places]) -> P:
        """All of them, with rows solved anew at places of each; the same if there is only the formula."""

    def seconds_anew(self, count: float) -> float:
        """What it takes to solve rows anew at so many strengths."""

    def pulls(self, path: P, risks: Array) -> Array:
        """How hard a column pulls at models with such risks, in standard errors: (J,)."""


class RidgeModels(NamedTuple):
    """Ridge of one response on sums over the rows, which are decomposed once."""

    spectrum: Spectrum

    @property
    def sums(self) -> RowSums:
        return self.spectrum.sums

    def paths(self, strengths: list[Array], surely: float) -> list[LeftOutPath]:
        return [ridge_path(self.spectrum, alphas) for alphas in strengths]

    def joined(self, paths: list[LeftOutPath]) -> LeftOutPath:
        return joined(paths)

    def anew(
        self, path: LeftOutPath, paths: list[LeftOutPath], strengths: list[Array], at: list[Places]
    ) -> LeftOutPath:
        return path

    def seconds_anew(self, count: float) -> float:
        return np.inf

    def pulls(self, path: LeftOutPath, risks: Array) -> Array:
        return self.sums.largest_pull(path.coefs, risks)


class NetModels(NamedTuple):
    """Lassos or elastic nets on sums over the rows, one for each share of the ℓ1 part."""

    sums: RowSums
    ratios: tuple[float, ...]
    nonnegative: bool

    def paths(self, strengths: list[Array], surely: float) -> list[LeftOutPath]:
        return [
            net_path(self.sums, alphas, ratio, nonnegative=self.nonnegative, surely=surely)
            for alphas, ratio in zip(strengths, self.ratios, strict=True)
        ]

    def joined(self, paths: list[LeftOutPath]) -> LeftOutPath:
        return joined(paths)

    def anew(
        self, path: LeftOutPath, paths: list[LeftOutPath], strengths: list[Array], at: list[Places]
    ) -> LeftOutPath:
        more = self.solved_anew(paths, strengths, at)
        return path.anew(more) if more else path

    def solved_anew(
        self, paths: Sequence[LeftOutPath], strengths: list[Array], at: list[Places]
    ) -> list[SolvedAnew]:
        """What solves rows anew at places of each path, numbered as in all paths one after the other."""
        found, start = list[SolvedAnew](), 0
        for path, alphas, ratio, places in zip(paths, strengths, self.ratios, at, strict=True):
            for which, are_all in ((places.strained, False), (places.all, True)):
                own = path, self.sums, alphas, ratio, which
                one = solved_anew(*own, are_all=are_all, nonnegative=self.nonnegative)
                if one is not None:
                    found.append(one._replace(strengths=which + start))
            start += len(alphas)
        return found

    def seconds_anew(self, count: float) -> float:
        return cost.patterns(self.sums.count, len(self.sums.means), count).seconds

    def pulls(self, path: LeftOutPath, risks: Array) -> Array:
        return self.sums.largest_pull(path.coefs, risks, nonnegative=self.nonnegative)


class OutputModels(NamedTuple):
    """The same of several responses with one strength."""

    sums: RowSums
    outputs: tuple[NetModels, ...]

    @classmethod
    def of(cls, models: NetModels) -> OutputModels:
        """Take the responses apart."""
        each = (models._replace(sums=models.sums.of_response(k)) for k in range(len(models.sums.squares)))
        return cls(models.sums, tuple(each))

    def paths(self, strengths: list[Array], surely: float) -> list[OutputsPath]:
        each = (models.paths(strengths, np.inf) for models in self.outputs)  # all as far as the others
        return [OutputsPath.of(own) for own in zip(*each, strict=True)]

    def joined(self, paths: list[OutputsPath]) -> OutputsPath:
        return joined_outputs(paths)

    def anew(
        self, path: OutputsPath, paths: list[OutputsPath], strengths: list[Array], at: list[Places]
    ) -> OutputsPath:
        outputs = zip(*(one.outputs for one in paths), strict=True)
        pairs = zip(self.outputs, outputs, strict=True)
        more = [models.solved_anew(own, strengths, at) for models, own in pairs]
        return path.anew(more) if any(more) else path

    def seconds_anew(self, count: float) -> float:
        return sum(models.seconds_anew(count) for models in self.outputs)

    def pulls(self, path: OutputsPath, risks: Array) -> Array:
        """The risk of each response is taken to be the share of all that is guessed to be its own."""
        of_all = risks / np.maximum(path.guessed_risks, TINY)
        pairs = zip(self.outputs, path.outputs, strict=True)
        pulls = [models.pulls(own, own.guessed_risks * of_all) for models, own in pairs]
        return np.asarray(np.max(pulls, axis=0))

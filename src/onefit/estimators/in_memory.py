"""Estimators that tune themselves on rows in memory: the path of each share of ℓ1, and the best of all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onefit._typing import Array, Design
from onefit.blocks import NetWithoutSets, search_net_without_sets
from onefit.blocks.rows import Block
from onefit.estimators.in_blocks import goes_on_sums, kinked_grid
from onefit.estimators.penalized import decades
from onefit.exceptions import SolverError
from onefit.fit import Fit
from onefit.inner_products import InnerProducts
from onefit.leave_out import LeftOut
from onefit.losses import Squared
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.tuning.contest import Contests, contest
from onefit.tuning.grid import Grid
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks
from onefit.tuning.path import JudgedPath, SearchResult
from onefit.tuning.paths_without import PathsWithout
from onefit.tuning.race import race
from onefit.tuning.ridge import search_ridge
from onefit.tuning.ridge_spectrum import RidgeSpectrum
from onefit.tuning.ridge_without import RidgeWithoutSets
from onefit.tuning.walk import search_path

if TYPE_CHECKING:
    from onefit.estimators.sample import Sample
    from onefit.estimators.self_tuned import SelfTuned


class Candidate(NamedTuple):
    """A path, and how to judge its choice thoroughly."""

    ratio: float
    result: SearchResult
    raced: Callable[[], tuple[SearchResult, LeftOut]]

    @property
    def risk(self) -> float:
        """Risk of its choice, with what is unseen."""
        return float(self.result.criterion[self.result.best])


class BestPath(NamedTuple):
    """The best of the paths, and every row left out at its choice."""

    ratio: float
    path: JudgedPath
    left_out: LeftOut


def tuned_in_memory(model: SelfTuned, sample: Sample, judgement: Judgement) -> BestPath:
    """The path of each share of ℓ1, a fit at a time, and the best strength of all."""
    paths = [_candidate(model, sample, judgement, ratio) for ratio in model._ratios(sample.spread)]
    best = min(paths, key=lambda path: path.risk)
    result, left_out = best.raced()
    sample.inner.forget()
    others = [path.result for path in paths if path is not best]
    if result.contests is None or others:
        seen = [(path.losses, path.criterion, path.paired_errors) for path in (result, *others)]
        unseen = [path.criterion - path.risks for path in (result, *others)]
        held = contest(seen, judgement.unit_weights, model.selection, unseen=unseen)
        result = replace(result, contests=Contests.of_one(held))
    return BestPath(best.ratio, result.visited(), left_out)


def _candidate(model: SelfTuned, sample: Sample, judgement: Judgement, ratio: float) -> Candidate:
    """Solve and judge a path."""
    if isinstance(model._fitted_loss(), Squared) and not model._mean_scaled and model._is_plain_ridge(ratio):
        return _by_spectrum(model, sample, judgement, ratio)
    if goes_on_sums(model, sample):
        with suppress(SolverError):  # nonnegative coefficients of dependent columns
            return _on_sums(model, sample, judgement, ratio)
    return _by_fits(model, sample, judgement, ratio)


def _by_fits(model: SelfTuned, sample: Sample, judgement: Judgement, ratio: float) -> Candidate:
    """Every strength by a fit of its own, in the columns or in as few coordinates as it has.

    In the latter the race goes on; what a Gram matrix tells of one output goes on in columns.
    """
    fewer = model._fewer_columns(sample, ratio)
    X, kept = (sample.X, None) if fewer is None else (fewer.X, fewer.kept)
    in_dual = model._is_in_dual(sample, ratio)
    inner = sample.inner if fewer is None else InnerProducts(X)
    looks = Looks(judgement)

    def problem_at(strength: float, design: Design = X) -> Problem:
        problem = replace(model._problem(sample, strength, ratio), X=design, inner=inner)
        return problem if kept is None else replace(problem, penalty=problem.separable.on_columns(kept))

    result = search_path(
        model._grid(sample, ratio),
        partial(problem_at, design=sample.in_dual(model.fit_intercept)) if in_dual else problem_at,
        looks,
        selection=model.selection,
        early_stopping=model.early_stopping,
    )
    if in_dual:
        coefs, levels = sample.in_columns(result.coefs, result.levels, model.fit_intercept)
        result = replace(result, coefs=coefs, levels=levels, solved={}, last=None)

    def raced() -> tuple[SearchResult, LeftOut]:
        found, left_out = race(result, problem_at, looks, model.selection)
        if fewer is None:
            return found, left_out
        problem = model._problem(sample, float(found.strengths[found.best]), ratio)
        coefs = np.stack([fewer.coefficients(own) for own in found.coefs])
        return replace(found, coefs=coefs, solved={}, last=None), left_out.in_columns(problem, fewer)

    return Candidate(ratio, result, raced)


def _on_sums(model: SelfTuned, sample: Sample, judgement: Judgement, ratio: float) -> Candidate:
    """Every strength by refits without the sets, on sums over the rows."""
    assert sample.sets is not None
    rows = Block(sample.X, sample.target, sample.given_weights)
    models = NetWithoutSets(rows, sample.sets, ratio, bool(model.fit_intercept), model.positive)

    without = PathsWithout(judgement)

    def fit_at(strength: float, coef: Array, level: Array | float) -> Fit:
        return Fit(model._problem(sample, strength, ratio), coef, np.asarray(level))

    result = search_net_without_sets(
        models,
        kinked_grid(model, models.whole, ratio),
        judgement,
        lambda *at: without.judged(fit_at(*at)),
        model.selection,
        early_stopping=model.early_stopping,
    )

    def at_choice() -> tuple[SearchResult, LeftOut]:
        best = result.best
        fit = fit_at(float(result.strengths[best]), result.coefs[best], result.levels[best])
        return result, judgement.thoroughly(solve(fit), 0.0)

    return Candidate(ratio, result, at_choice)


def spectrum_of(model: SelfTuned, sample: Sample) -> tuple[RidgeSpectrum, Grid]:
    """The eigendecomposition of a ridge problem, and the strengths."""
    spectrum = RidgeSpectrum(model._problem(sample, 1.0, 0.0))
    return spectrum, model._grid_between(lambda: decades(spectrum.largest))


def _by_spectrum(model: SelfTuned, sample: Sample, judgement: Judgement, ratio: float) -> Candidate:
    """Every strength from one eigendecomposition."""
    spectrum, grid = spectrum_of(model, sample)
    sets = judgement.sets
    rows = spectrum if sets is None else RidgeWithoutSets(spectrum, sets, len(grid.values))
    result = search_ridge(rows, grid, judgement, model.selection)
    return Candidate(ratio, result, lambda: (result, rows.left_out(float(result.strengths[result.best]))))

"""How far strengths shift when all rows are judged, and what others are held against then."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from onefit.fit import Fit
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.tuning.judgement import Judgement, ScoredLosses
from onefit.tuning.looks import Looks
from onefit.tuning.path import of_verdicts
from onefit.tuning.race import _Entrant, _Race
from onefit.tuning.sample import Verdict
from onefit.tuning.shifts import Shifts

RNG = np.random.default_rng(0)
N = 30
LOSSES = RNG.exponential(size=N)


def _fit(level=0.0):
    """A constant model whose losses are (level − y)²/2, of responses of the squared LOSSES."""
    y = np.sqrt(LOSSES)
    return Fit(Problem(Squared(), L2(1.0), np.ones((N, 1)), y, np.ones(N)), np.zeros(1), np.array(level))


def _verdict(excess, seen=0, error=np.inf):
    """Losses above those in the fit."""
    return Verdict(LOSSES + excess, np.zeros(N), error, seen=seen)


def _shifts():
    return Shifts(Judgement(SquaredError(), np.sqrt(LOSSES), np.ones(N)))


def test_nothing_is_known_of_other_strengths_at_first():
    shifts, verdict = _shifts(), _verdict(0.4)
    assert shifts.of(3, _fit(), verdict) is verdict
    assert shifts.doubt(3, _fit(), verdict) == np.inf


@pytest.mark.parametrize(("excess", "share"), [(0.4, 1.0), (0.2, 0.5), (0.8, 1.0), (0.0, 0.0), (-0.1, 0.0)])
def test_a_strength_shifts_as_the_nearest_in_proportion_to_what_leaving_out_does(excess, share):
    shifts, change = _shifts(), np.random.default_rng(1).normal(size=N)
    shifts.add(9, _fit(), _verdict(0.4), _verdict(5.0))
    shifts.add(5, _fit(), _verdict(0.4), _verdict(0.4 + change))
    found = shifts.of(4, _fit(), _verdict(excess, error=0.1))
    np.testing.assert_allclose(found.losses, LOSSES + excess + share * change, atol=1e-12)
    assert found.error == pytest.approx(0.1 + share * abs(change.mean()))
    assert shifts.of(4, _fit(), _verdict(excess)).error == np.inf


def test_tenths_say_nothing_of_steps():
    shifts = _shifts()
    shifts.add(5, _fit(), _verdict(0.4, seen=N), _verdict(0.9))
    assert shifts.of(4, _fit(), _verdict(0.4)).losses.mean() == pytest.approx(LOSSES.mean() + 0.4)
    assert shifts.of(4, _fit(), _verdict(0.4, seen=6)).losses.mean() == pytest.approx(LOSSES.mean() + 0.9)


def test_doubt_is_how_far_the_two_nearest_differ_and_grows_beyond_them():
    shifts = _shifts()
    shifts.add(5, _fit(), _verdict(0.4), _verdict(0.5))
    assert shifts.doubt(4, _fit(), _verdict(0.4)) == pytest.approx(0.1)
    shifts.add(6, _fit(), _verdict(0.4), _verdict(0.52))
    assert shifts.doubt(4, _fit(), _verdict(0.4)) == pytest.approx(0.02)
    assert shifts.doubt(9, _fit(), _verdict(0.4)) == pytest.approx(0.06)


def test_a_risk_without_bound_says_nothing_of_others():
    shifts = _shifts()
    shifts.add(5, _fit(), _verdict(0.4), _verdict(np.inf))
    assert not shifts.known


@pytest.mark.parametrize("selection", ["min", "bagged_se"])
@pytest.mark.parametrize(("slope", "most"), [(0.0, 3), (0.002, 4), (0.2, 9)])
def test_strengths_that_shift_alike_need_not_all_be_judged(monkeypatch, selection, slope, most):
    """Of nine that can hardly be told apart, where steps miss much and ``slope`` more at each next one."""
    strengths = np.geomspace(10.0, 1.0, 9)
    bowl = 0.5 + 0.002 * (np.arange(9) - 4) ** 2
    losses = LOSSES[:, None] + bowl + 0.02 * np.random.default_rng(1).normal(size=(N, 9))
    missed = 1.0 + slope * np.arange(9)
    judgement = _shifts().judgement
    verdicts = [Verdict(column, np.zeros(N), np.inf) for column in losses.T]
    coefs, levels = np.zeros((9, 1)), np.zeros(9)
    result = of_verdicts(strengths, verdicts, judgement, coefs, levels, selection)
    entrants = [_Entrant(j, result, lambda _: _fit().problem, Looks(judgement)) for j in range(9)]
    running = _Race(result, Looks(judgement), selection, verdicts, entrants)
    monkeypatch.setattr(_Race, "_is_in_part", lambda *_: False)
    asked = []

    def thorough(race, j):
        asked.append(j)
        race.finished[j] = SimpleNamespace(fit=_fit())
        return Verdict(losses[:, j] + missed[j], np.zeros(N), 0.0, N)

    monkeypatch.setattr(_Race, "_thorough", thorough)
    running.run()
    running.finish()
    exact = of_verdicts(
        strengths, [thorough(running, j) for j in range(9)], judgement, coefs, levels, selection
    )
    del asked[-9:]
    assert len(set(asked)) == len(asked) <= most
    assert running.result.best == exact.best


def test_a_mean_in_a_fit_is_asked_for_once():
    """A score of users may take long, and every look at a strength asks again."""
    asked = []

    def mean(rows, eta):
        asked.append(len(rows))
        return float(np.mean((np.sqrt(LOSSES)[rows] - eta) ** 2))

    def losses(_rows, _eta):
        raise AssertionError("the losses of rows take many scores, their mean one")

    score = ScoredLosses(losses, mean)
    shifts, fit = Shifts(Judgement(SquaredError(), np.sqrt(LOSSES), np.ones(N), score=score)), _fit()
    shifts.add(5, fit, _verdict(0.4), _verdict(0.9))
    for _ in range(3):
        shifts.of(4, fit, _verdict(0.4))
    assert len(asked) == 1
    shifts.of(4, _fit(0.1), _verdict(0.4))
    assert len(asked) == 2

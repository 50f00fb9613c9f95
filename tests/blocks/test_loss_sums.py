"""What sums over blocks of rows say of a choice is what the rows themselves say."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

from onefit import RidgeLOO
from onefit.blocks import LossSums
from onefit.metrics import LogLoss
from onefit.risk.means import paired_errors
from onefit.sources import ArraySource
from onefit.tuning.contest import contest, within_reach
from onefit.tuning.judgement import Judgement
from onefit.tuning.selection import smallest


@pytest.mark.parametrize("kept", [1000, 40])
def test_contests_cut_the_same_tail(monkeypatch, kept):
    monkeypatch.setattr("onefit.blocks.loss_sums.KEPT", kept)
    rng, n, J = np.random.default_rng(0), 300, 8
    losses = rng.normal(size=(n, 1)) ** 2 + rng.normal(0.2, 1.0, (n, 1)) * np.linspace(0.2, 0.0, J)
    losses[::60] += 20.0 * np.arange(J) ** 2 / J**2  # few rows are far out where penalties are weak
    weights = rng.integers(0, 3, n).astype(float)
    blocks = np.array_split(np.arange(n), 7)
    sums = reduce(add, [LossSums.of(losses[b, 0], (losses[b] - losses[b, :1]).T, weights[b]) for b in blocks])
    found = sums.contest(np.zeros(J, dtype=np.intp), "bagged_se")
    np.testing.assert_allclose(sums.risks, np.average(losses, weights=weights, axis=0))
    paired = sums.paired_errors(smallest(sums.risks))
    expected = contest([(losses, sums.risks, paired)], weights, "bagged_se")
    assert np.any(expected.risks < sums.risks[expected.positions] - 0.1)  # something was cut
    np.testing.assert_array_equal(found.positions, np.flatnonzero(within_reach(sums.risks, paired)))
    np.testing.assert_allclose(found.risks, expected.risks, rtol=1e-10)
    np.testing.assert_allclose(found.root @ found.root.T, expected.root @ expected.root.T, atol=1e-12)
    assert found.bagged() == expected.bagged()


@pytest.mark.parametrize("rows", [7, 1000])
def test_the_choice_is_that_of_rows_in_memory(rows):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(25, 6))
    X[:, 0] += 50.0
    y = X[:, 1] - 0.5 * X[:, 2] + 0.7 * rng.normal(size=25)
    in_memory = RidgeLOO(fit_intercept=False).fit(X, y)
    in_blocks = RidgeLOO(fit_intercept=False).fit(ArraySource(X, y, rows=rows))
    np.testing.assert_allclose(in_blocks.risk_path_, in_memory.risk_path_, rtol=1e-5)
    assert in_blocks.alpha_ == pytest.approx(in_memory.alpha_, rel=1e-9)
    assert in_blocks.corrected_risk_ == pytest.approx(in_memory.corrected_risk_, rel=1e-5)


@pytest.mark.parametrize("selection", ["bagged_se", "min"])
def test_contests_of_labels_are_those_of_losses(selection):
    """With what labels that were not seen add, from sums over blocks as from all losses."""
    rng = np.random.default_rng(0)
    margins = rng.normal(1.0, 0.6, size=60)[:, None] * np.linspace(0.0, 4.0, 9)
    losses, weights = np.logaddexp(0.0, -margins), rng.integers(0, 3, 60).astype(float)
    metric = LogLoss(np.arange(2))
    held = Judgement(metric, np.zeros(60), weights)
    parts = []
    for rows in np.array_split(np.arange(60), 4):
        own = losses[rows].T
        other = metric.contradicted(own)
        parts.append(LossSums.of(own[3], own - own[3], weights[rows], contradicted=other))
    sums = reduce(add, parts)
    np.testing.assert_allclose(sums.unseen, held.unseen(losses), rtol=1e-9)
    added = held.unseen(losses) if selection == "bagged_se" else 0.0
    criterion = np.average(losses, axis=0, weights=weights) + added
    paired = paired_errors(losses, weights, int(criterion.argmin()))
    expected = contest(
        [(losses, criterion, paired)],
        weights,
        selection,
        unseen=[held.unseen(losses) * (selection == "bagged_se")],
    )
    found = sums.contest(np.zeros(9, dtype=int), selection)
    np.testing.assert_array_equal(found.positions, expected.positions)
    np.testing.assert_allclose(found.risks, expected.risks, rtol=1e-9)
    np.testing.assert_allclose(found.unseen, expected.unseen, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6, atol=1e-12)
    if selection == "bagged_se":
        assert found.bagged() == expected.bagged()

"""What labels that were not seen may add to the risks that strengths are chosen by."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from onefit import LogisticLOO
from onefit.metrics import LogLoss, SquaredError
from onefit.tuning.contest import contest
from onefit.tuning.judgement import Judgement
from onefit.tuning.selection import smallest


def judgement(metric, target, weights=None, **more):
    return Judgement(metric, target, np.ones(len(target)) if weights is None else weights, **more)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_by_their_predictors(weighted):
    rng = np.random.default_rng(0)
    eta, y = 3.0 * rng.normal(size=(30, 4)), rng.integers(0, 2, 30)
    w = rng.integers(0, 3, 30).astype(float) if weighted else np.ones(30)
    own, other = (np.logaddexp(0.0, side * (2 * y[:, None] - 1) * eta) for side in (-1.0, 1.0))
    found = judgement(LogLoss(np.arange(2)), y, w).unseen(own)
    np.testing.assert_allclose(found, np.average(other - own, axis=0, weights=w) / np.sum(w > 0), rtol=1e-9)


def test_other_classes_are_equally_likely():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.1, 0.9, size=(20, 3))
    losses = -np.log(share)
    expected = (-np.log((1.0 - share) / 3.0) - losses).mean(axis=0) / 20
    found = judgement(LogLoss(np.arange(4)), np.zeros(20)).unseen(losses)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_is_no_label_adds_nothing():
    losses = np.random.default_rng(0).uniform(size=(20, 3))
    assert not judgement(SquaredError(), np.zeros(20)).unseen(losses).any()
    scored = judgement(LogLoss(np.arange(2)), np.zeros(20), score=lambda _rows, eta: eta)
    assert not scored.unseen(losses).any()


def test_certain_and_lost_rows_are_finite():
    losses = np.array([[0.0, 1e-300], [np.inf, 800.0], [1e-17, 0.1]])
    assert np.isfinite(judgement(LogLoss(np.arange(2)), np.zeros(3)).unseen(losses)).all()


def falling(n=40):
    """Rows that are told right ever more surely from one strength to the next."""
    margins = np.linspace(0.5, 1.5, n)[:, None] * np.linspace(0.0, 30.0, 16)
    return np.logaddexp(0.0, -margins)


@pytest.mark.parametrize("selection", ["bagged_se", "bagged", "min", "1se"])
def test_choices_that_are_bagged_add_it(selection):
    losses = falling()
    held = judgement(LogLoss(np.arange(2)), np.zeros(len(losses)))
    is_bagged = selection.startswith("bagged")
    criterion = losses.mean(axis=0) + is_bagged * held.unseen(losses)
    assert smallest(losses.mean(axis=0)) == 15
    weights = np.ones(len(losses))
    found = contest([(losses, criterion, np.full(16, 0.05))], weights, selection, unseen=held.unseen)
    assert found.unseen.any() == is_bagged
    np.testing.assert_allclose(found.risks, losses.mean(axis=0)[found.positions], atol=1e-12)
    if is_bagged:
        assert 1 <= found.bagged() <= 4
        assert found.corrected_risk() == pytest.approx(losses.mean(axis=0)[found.bagged()], rel=0.5)


def test_few_rows_that_a_plane_all_but_separates(monkeypatch):
    """As before it was counted: choices that end at a penalty that is next to none."""
    X, y = load_breast_cancer(return_X_y=True)
    found = {"with": [], "without": []}
    for seed in range(6):
        rows = np.random.default_rng(seed).permutation(len(y))
        scaler = StandardScaler().fit(X[rows[:40]])
        own, new = (scaler.transform(X[part]) for part in (rows[:40], rows[40:]))
        for kind, losses in found.items():
            if kind == "without":
                monkeypatch.setattr(LogLoss, "contradicted", lambda *_: None)
            model = LogisticLOO().fit(own, y[rows[:40]])
            losses.append(log_loss(y[rows[40:]], model.predict_proba(new)))
            monkeypatch.undo()
    assert np.max(found["with"]) < 0.3
    assert np.mean(found["with"]) < 0.95 * np.mean(found["without"])

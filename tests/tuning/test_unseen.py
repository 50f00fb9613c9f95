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
from onefit.tuning.judgement import Judgement, ScoredLosses
from onefit.tuning.path import of_verdicts
from onefit.tuning.sample import Verdict
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
    more = np.maximum(other - own, 0.0)  # a row that is told wrong has been seen
    np.testing.assert_allclose(found, np.average(more, axis=0, weights=w) / np.sum(w > 0), rtol=1e-9)


def test_other_classes_are_equally_likely():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.1, 0.9, size=(20, 3))
    losses = -np.log(share)
    expected = np.maximum(-np.log((1.0 - share) / 3.0) - losses, 0.0).mean(axis=0) / 20
    found = judgement(LogLoss(np.arange(4)), np.zeros(20)).unseen(losses)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_is_no_label_adds_nothing():
    losses = np.random.default_rng(0).uniform(size=(20, 3))
    assert not judgement(SquaredError(), np.zeros(20)).unseen(losses).any()
    score = ScoredLosses(lambda _rows, eta: eta, lambda _rows, eta: float(eta.mean()))
    scored = judgement(LogLoss(np.arange(2)), np.zeros(20), score=score)
    assert not scored.unseen(losses).any()


def test_what_a_sample_completes_below_zero_is_next_to_nothing():
    losses = np.full((1000, 2), 0.2)
    losses[:, 1] = np.linspace(0.0, 0.4, 1000)
    exact = judgement(LogLoss(np.arange(2)), np.zeros(1000)).unseen(losses)
    losses[:20, 1] -= 0.01
    found = judgement(LogLoss(np.arange(2)), np.zeros(1000)).unseen(losses)
    assert found[1] == pytest.approx(exact[1], rel=0.2)


def test_strengths_that_were_not_judged_are_on_a_line():
    """The smallest criterion is that of one that was judged, as the smallest risk is."""
    rng = np.random.default_rng(0)
    own = [np.logaddexp(0.0, -scale * rng.normal(1.0, 0.3, size=30)) for scale in (1.0, 9.0)]
    known = [Verdict(one, np.zeros(30), 0.0) for one in own]
    held = judgement(LogLoss(np.arange(2)), np.zeros(30))
    verdicts = [known[0], None, None, known[1]]
    path = np.geomspace(1.0, 1e-3, 4), verdicts, held, np.zeros((4, 2)), np.zeros(4)
    found = of_verdicts(*path, "bagged_se")
    np.testing.assert_allclose(np.diff(found.criterion, 2), 0.0, atol=1e-12)
    assert smallest(found.criterion) in (0, 3)


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
    added = [is_bagged * held.unseen(losses)]
    found = contest([(losses, criterion, np.full(16, 0.05))], weights, selection, unseen=added)
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


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(8))
def test_no_choice_of_few_rows_is_far_above_the_smallest_risk(seed):
    """Rows that are told wrong for certain do not speak for weak penalties."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 5)), np.repeat([0, 1, 2], [9, 6, 5])
    model = LogisticLOO().fit(X, y)
    assert model.loo_.value < 1.5 * model.risk_path_.min()

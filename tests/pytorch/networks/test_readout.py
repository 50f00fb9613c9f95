"""Scores of left-out predictions of networks are those of scikit-learn on what the outputs mean."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from onefit.risk.base import LeftOutLosses  # noqa: E402
from onefit.torch import FunctionalProblem, loo  # noqa: E402

N = 30
rng = np.random.default_rng(0)
X = torch.tensor(rng.normal(size=(N, 3)))


def judged(c, loss, y):
    torch.manual_seed(0)
    net = nn.Linear(3, c).double()
    return loo(net, loss, (X, y), weight_decay=0.1, train_on=False)


def test_numbers():
    y = X[:, :1] + 0.5
    risk = judged(1, nn.MSELoss(), y)
    assert isinstance(risk, LeftOutLosses)
    assert risk.score("r2") == pytest.approx(r2_score(y, risk.decision))
    assert -risk.score("neg_mean_squared_error") == pytest.approx(risk.value)
    several = judged(2, nn.MSELoss(), X[:, :2])
    assert several.score("r2") == pytest.approx(r2_score(X[:, :2], several.decision))


@pytest.mark.parametrize("c", [2, 3])
def test_classes(c):
    y = torch.tensor(rng.permutation(np.arange(N) % c))
    risk = judged(c, nn.CrossEntropyLoss(), y)
    shares = softmax(risk.decision, axis=1) if c > 2 else expit(np.c_[-risk.decision, risk.decision])
    np.testing.assert_allclose(risk.predictions, shares)
    assert -risk.score("neg_log_loss") == pytest.approx(risk.value) == log_loss(y, shares)
    assert risk.score("accuracy") == pytest.approx(accuracy_score(y, shares.argmax(1)))
    if c == 2:
        assert risk.score("roc_auc") == pytest.approx(roc_auc_score(y, risk.decision))


def test_two_classes_by_one_output():
    y = torch.tensor(rng.integers(0, 2, (N, 1))).double()
    risk = judged(1, nn.BCEWithLogitsLoss(), y)
    assert -risk.score("neg_log_loss") == pytest.approx(risk.value)
    assert risk.score("roc_auc") == pytest.approx(roc_auc_score(y.ravel(), risk.decision))


def test_no_predictions_are_said():
    y = torch.tensor(rng.integers(0, 2, N))
    y[3] = -100  # ignored
    with pytest.raises(ValueError, match="losses only"):
        judged(2, nn.CrossEntropyLoss(), y).score("accuracy")
    fit = FunctionalProblem(lambda t, x, z: (z - x @ t) ** 2, start=3).fit(X, X[:, 0], [])
    with pytest.raises(ValueError, match="losses only"):
        fit.loo().score("r2")


def test_the_summary_says_what_to_trust():
    text = str(judged(1, nn.MSELoss(), X[:, :1]))
    assert text.splitlines()[0].startswith("leave-one-out loss")
    assert "rough: some rows could not be checked; an audit tells" in text

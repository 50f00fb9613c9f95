"""Audits of networks that end early, or contradict what a loss can be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from onefit.exceptions import UnreliableWarning  # noqa: E402
from onefit.risk.audit import Draw  # noqa: E402
from onefit.torch import LeftOutRisk, loo  # noqa: E402
from onefit.torch.networks.auditing import possible  # noqa: E402

N = 20
X = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] + 0.5 * torch.randn(N, 1, generator=torch.Generator().manual_seed(1))


def retrained_for(calls):
    """A recipe that is interrupted after so many calls."""
    done = []

    def retrain(rows):
        if len(done) == calls:
            raise KeyboardInterrupt
        done.append(np.setdiff1d(np.arange(N), rows))
        torch.manual_seed(0)
        return nn.Linear(3, 1)

    return retrain, done


def judged(**given):
    return loo(nn.Linear(3, 1), nn.MSELoss(), (X, Y), weight_decay=0.1, train_on=False, rng=0, **given)


@pytest.mark.parametrize("calls", [0, 1, 4])
def test_what_was_done_before_ctrl_c_is_kept(calls):
    retrain, done = retrained_for(calls)
    with pytest.warns(UnreliableWarning) if calls == 4 else pytest.MonkeyPatch.context():
        risk = judged(retrain=retrain, audit=6)
    assert f"{calls} of 6 retrainings were done: the others were interrupted" in risk.notes
    assert sorted(risk.retrained) == sorted(int(rows[0]) for rows in done)
    if calls < 2:
        assert risk.audit is None
        assert risk.guarantee == "rough"
    else:
        assert risk.audit.m == calls
        np.testing.assert_array_equal(risk.audit.rows, sorted(risk.retrained))


def test_a_limit_on_the_time_ends_the_audit():
    retrain, done = retrained_for(99)
    risk = judged(retrain=retrain, audit=6, max_seconds=1e-6)
    assert len(done) == 1
    assert "1 of 6 retrainings were done: max_seconds=" in risk.notes[-1]


def test_draws_that_were_cut_short_are_unbiased():
    """The mean over many orders of the retrainings is the exact risk."""
    rng = np.random.default_rng(0)
    exact, formula = rng.exponential(size=N), rng.exponential(size=N)
    result = as_risk(formula, exact)
    values = []
    for _ in range(4000):
        rows = rng.permutation(N)[:8]  # a draw of 8, of which the first 5 were done
        drawn = Draw(np.sort(rows[:5]), np.full(5, 8 / N * 5 / 8))
        values.append(possible(result, drawn, exact[drawn.rows], np.ones(N))[0].value)
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - exact.mean()) < 4 * error


def as_risk(losses, training):
    nothing = np.zeros(len(losses))
    return LeftOutRisk(
        value=float(losses.mean()),
        std_error=0.0,
        losses=losses,
        rows=np.arange(len(losses)),
        training=training,
        leverages=nothing,
        flagged=np.array([], dtype=int),
        by="a formula",
    )


def test_a_risk_that_the_loss_cannot_have_is_replaced():
    exact = np.full(N, 1.0)
    losses = np.r_[np.full(N - 4, 0.5), np.full(4, 50.0)]
    drawn = Draw(np.array([0, 17, 18]), np.array([0.1, 0.2, 0.2]))
    checked, notes = possible(as_risk(losses, np.full(N, 0.9)), drawn, exact[drawn.rows], np.ones(N))
    assert checked.value == pytest.approx(0.9 + 0.1 * (10 + 5 + 5) / N)  # from the training losses
    assert checked.interval[0] >= 0
    assert checked.approximate == losses.mean()
    assert "negative mean loss, which is impossible: training losses stood" in notes[0]
    sound, notes = possible(as_risk(exact, exact), drawn, exact[drawn.rows], np.ones(N))
    assert (sound.value, notes) == (pytest.approx(1.0), ())
    below = possible(as_risk(-losses, -losses), drawn, -exact[drawn.rows], np.ones(N))
    assert below[1] == ()  # a log-density may be negative: nothing is impossible


def test_a_long_run_says_how_long_it_takes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("onefit._progress.PATIENCE", -1.0)
    monkeypatch.setattr("onefit._progress.PAUSE", 0.0)
    torch.manual_seed(0)
    X = torch.randn(N, 3).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loo(torch.nn.Linear(3, 1), torch.nn.MSELoss(), (X, X[:, :1]), weight_decay=0.1, audit=3, rng=0)
    told = capsys.readouterr().err
    assert "training on, steps at most: 1 of 2000, about" in told
    assert "retraining: about" in told
    assert "retraining: 1 of 3, about" in told
    assert told.endswith("retraining: 3 of 3\n")


def test_a_recipe_may_return_one_module_again_and_again():
    own = nn.Linear(3, 1)

    def retrain(rows):
        nn.init.constant_(own.weight, float(rows.sum()))
        return own

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        risk = judged(retrain=retrain, audit=4)
    assert own.training
    assert own.weight.dtype == torch.float32
    for row, module in risk.retrained.items():
        assert module.weight[0, 0] == N * (N - 1) / 2 - row

"""Elastic nets of rows of unequal weights: each refit keeps a share of the ℓ2 part of its own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

from onefit import ElasticNetLOO
from onefit.estimators.self_tuned import SelfTuned
from onefit.sources import ArraySource


def table(seed, n=60, p=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = X @ (rng.normal(size=p) * (rng.random(p) < 0.5)) + rng.normal(size=n)
    return X, y, [rng.uniform(0.2, 3.0, n), rng.exponential(size=n), rng.integers(0, 4, n) * 1.0][seed % 3]


def refitted_losses(X, y, weights, alpha, l1_ratio):
    losses = []
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        model = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-12, max_iter=100_000)
        model.fit(X[others], y[others], sample_weight=weights[others])
        losses.append(float((y[row] - model.predict(X[[row]])[0]) ** 2))
    return np.array(losses)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("of_source", [False, True])
def test_risks_along_the_path_are_those_of_refits_to_a_hundredth_of_their_errors(seed, of_source):
    X, y, weights = table(seed)
    model = ElasticNetLOO(l1_ratio=0.5)
    model = model.fit(ArraySource(X, y, weights, rows=17)) if of_source else model.fit(X, y, weights)
    for j in range(0, len(model.alphas_), 12):
        losses = refitted_losses(X, y, weights, model.alphas_[j], model.l1_ratio_)
        risk = np.average(losses, weights=weights)
        error = np.sqrt(np.sum(weights**2 * (losses - risk) ** 2)) / weights.sum()
        assert model.risk_path_[j] == pytest.approx(risk, abs=0.01 * error)
    assert set(model.guarantee_path_[model.alphas_ != model.alpha_]) == {"rough"}  # near, but not proven


def test_the_risk_of_the_choice_is_that_of_refits():
    X, y, weights = table(0)
    model = ElasticNetLOO(l1_ratio=0.5).fit(X, y, weights)
    risk = np.average(refitted_losses(X, y, weights, model.alpha_, model.l1_ratio_), weights=weights)
    assert model.loo_.value == pytest.approx(risk, abs=1e-6 * risk + 1.01 * model.loo_.approx_error)


def test_few_rows_go_in_passes(monkeypatch):
    X, y, weights = table(1, n=300)
    begun = []
    passes = SelfTuned._tune_in_blocks
    monkeypatch.setattr(SelfTuned, "_tune_in_blocks", lambda self, *own: begun.append(passes(self, *own)))
    ElasticNetLOO(l1_ratio=0.5).fit(X, y, weights)
    assert len(begun) == 1

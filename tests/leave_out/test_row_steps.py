"""Steps towards refits that are told by the rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.leave_out.blocks import Blocks
from onefit.leave_out.forms import WithoutFolds
from onefit.leave_out.sets import Folds
from onefit.losses import Logistic, Multinomial
from onefit.penalties import L2
from onefit.problem import Problem
from onefit.solvers.solve import solve

N = 90


def fitted(classes: int) -> Fit:
    rng = np.random.default_rng(0)
    X = sp.random(N, 40 if classes > 2 else 200, density=0.2, format="csr", random_state=0)
    y = rng.integers(0, classes, N).astype(float)
    loss = Multinomial(classes) if classes > 2 else Logistic()
    intercept = np.ones(classes, dtype=bool) if classes > 2 else np.array(True)
    return solve(Fit.at_start(Problem(loss, L2(0.02), X, y, np.ones(N), intercept))).fit


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_sets_that_have_settled_are_left_behind_and_end_at_their_refits(classes, size, monkeypatch):
    fit, seen, respond = fitted(classes), [], WithoutFolds.respond

    def watched(self, rows):
        seen.append(rows.shape[-1])
        return respond(self, rows)

    monkeypatch.setattr(WithoutFolds, "respond", watched)
    sets = tuple(np.arange(N).reshape(-1, size))
    blocks = Blocks.of(fit, None, Folds(sets, sets, N))
    blocks.step()
    blocks.iterate(np.arange(len(sets)), 1.0)
    assert seen[0] == np.count_nonzero(blocks.reached)
    assert 0 < seen[-1] < seen[0]
    ended = list(blocks.ends)
    assert len(ended) > 0.7 * seen[0]
    for k in ended[::5]:
        refit = solve(Fit(fit.problem.without(sets[k]), fit.coef, fit.intercept)).fit
        np.testing.assert_allclose(blocks.eta[blocks.tested(k)], refit.eta[sets[k]], rtol=1e-6, atol=1e-6)

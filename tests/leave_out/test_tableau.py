"""The tableau that left-out problems share: what rows do to it, and what is asked of a fit beside it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from onefit.fit import Fit
from onefit.leave_out import leave_out, tableau
from onefit.leave_out.engine import begin, leave_some_out
from onefit.leave_out.tableau import Watched, WorkingSet
from onefit.leave_out.ways import looking_pays
from onefit.losses import Squared
from onefit.metrics import SquaredError
from onefit.penalties import L1, ElasticNet
from onefit.problem import Problem
from onefit.solvers.solve import solve
from onefit.tuning.judgement import Judgement
from onefit.tuning.looks import Looks


def _fit(n, p, penalty, store=sp.csr_array, *, intercept=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.06)
    y = X[:, :5].sum(axis=1) + 0.3 * rng.normal(size=n)
    weights = rng.uniform(0.5, 2.0, n)
    problem = Problem(Squared(), penalty, store(X), y, weights, np.asarray(intercept), mean_scaled=True)
    return solve(Fit.at_start(problem)).fit


@pytest.mark.parametrize("penalty", [L1(0.3), ElasticNet(0.3, 0.5)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("store", [sp.csr_array, np.asarray])
def test_rows_do_to_the_outputs_what_their_dense_copies_do(penalty, intercept, store):
    table = Watched.of(_fit(90, 120, penalty, store, intercept=intercept)).table()
    rows = np.array([3, 80, 41])
    np.testing.assert_allclose(table.eliminated_rows(rows), table.eliminated(table.Z[rows].T), atol=1e-10)


@pytest.mark.parametrize("penalty", [L1(0.3), ElasticNet(0.3, 0.5)])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_tableau_in_parts_is_that_in_one_piece(penalty, intercept, monkeypatch):
    fit = _fit(90, 120, penalty, intercept=intercept)
    few, more = np.split(Watched.of(fit).columns, [-4])
    table = WorkingSet.of(fit, few, 0.9).joined(more)
    whole, parts = table.parts.whole, table.parts
    Q, at = np.random.default_rng(0).integers(0, len(table.inside), (7, 3)), np.zeros(1, dtype=np.intp)
    np.testing.assert_array_equal(parts.corners(at, Q), whole.corners(at, Q))
    some = np.zeros((5, len(table.inside)))
    some[np.arange(5), Q[:5, 0]] = 2.0
    np.testing.assert_allclose(parts.of_shared(some), whole.of_shared(some), atol=1e-12)
    on, off = np.flatnonzero(table.inside), np.flatnonzero(~table.inside)
    inverse = np.linalg.inv(table.K[np.ix_(on, on)])
    np.testing.assert_allclose(whole.H[0][np.ix_(off, on)], -table.K[np.ix_(off, on)] @ inverse, atol=1e-10)
    monkeypatch.setattr(tableau, "IN_ONE_PIECE", 0)
    found = leave_out(fit, max_error=0.0)
    refits = [solve(Fit.at_start(fit.problem.without(i))).fit.eta[i] for i in range(0, 90, 9)]
    np.testing.assert_allclose(found.eta[::9], refits, atol=1e-7)


def test_patterns_are_looked_at_where_rows_keep_theirs():
    assert looking_pays(_fit(200, 20, L1(1.0)))
    full = _fit(60, 300, L1(0.01))
    assert not looking_pays(full)
    found = leave_out(full, max_error=0.0)
    refits = [solve(Fit.at_start(full.problem.without(int(i)))).fit.eta[i] for i in range(0, 60, 7)]
    np.testing.assert_allclose(found.eta[::7], refits, atol=1e-6)
    assert found.certified.all()


def test_samples_of_a_fit_go_on_from_one_tableau(monkeypatch):
    built, of = [], Watched.of.__func__
    monkeypatch.setattr(Watched, "of", classmethod(lambda cls, fit: built.append(fit) or of(cls, fit)))
    solution = solve(_fit(90, 200, L1(0.1)))
    judgement = Judgement(SquaredError(), solution.fit.problem.y, solution.fit.problem.weights)
    looks = Looks(judgement)
    stepped = looks.stepped(solution)
    one = looks.sample(solution, 48, stepped=stepped)
    two = looks.sample(solution, 70, one, stepped=stepped)
    whole = judgement.thoroughly(solution, begun=stepped.state)
    assert len(built) == 1
    fresh = begin(*solution, judgement.yardstick)
    rows = np.flatnonzero(np.isfinite(two.off))
    assert rows.size >= 70
    np.testing.assert_allclose(
        two.losses[rows], judgement.losses_of(rows, leave_some_out(fresh, rows, judgement.yardstick).eta)
    )
    refits = [solve(Fit.at_start(solution.fit.problem.without(i))).fit.eta[i] for i in range(90)]
    np.testing.assert_allclose(whole.eta[whole.certified], np.array(refits)[whole.certified], atol=1e-7)

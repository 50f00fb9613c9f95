"""Fits without folds that are near their optima, and where these tell strengths apart."""

import numpy as np
import pytest
import scipy.sparse as sp

from builders import without
from onefit import LogisticLOO
from onefit.fit import Fit
from onefit.leave_out.factor_free import FitsWithout
from onefit.leave_out.fold_fits import have_to_be_solved, pay_roughly, sets_left_out_roughly
from onefit.leave_out.sets import Folds
from onefit.losses import Logistic, Multinomial
from onefit.penalties import L1, L2
from onefit.problem import Problem
from onefit.solvers.solve import solve


def _classes(seed, n=120, p=30, c=6):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(c, p)) * (np.arange(p) < 8)
    y = np.arange(n) % c
    return centres[y] + 2.0 * rng.normal(size=(n, p)), y


def _folds(n, *, judged=slice(None)):
    removed = np.array_split(np.random.default_rng(1).permutation(n), 5)
    return Folds(tuple(removed), tuple(rows[judged] for rows in removed), n)


def _several(strength, *, sparse=False, seed=0):
    X, y = _classes(seed)
    weights = np.random.default_rng(2).uniform(0.5, 1.5, size=len(y))
    design = sp.csc_array(X) if sparse else X
    return solve(
        Fit.at_start(Problem(Multinomial(6), L2(strength), design, y, weights, np.ones(6, bool)))
    ).fit


def _kinked(strength, *, sparse=False):
    X, y = _classes(3, n=70, p=200, c=2)
    design = sp.csc_array(X) if sparse else X
    weights = np.random.default_rng(2).uniform(0.5, 1.5, size=len(y))
    problem = Problem(Logistic(), L1(strength), design, y.astype(float), weights, np.array(True))
    return solve(Fit.at_start(problem)).fit


@pytest.mark.costly
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("fit_of", "strengths"), [(_several, (30.0, 1.0, 0.05)), (_kinked, (4.0, 1.0))])
@pytest.mark.parametrize("judged", [slice(None), slice(3, None)])
def test_near_optima_predict_like_them(fit_of, strengths, judged, sparse):
    near = FitsWithout()
    for strength in strengths:
        fit = fit_of(strength, sparse=sparse)
        sets = _folds(fit.problem.n, judged=judged)
        exact = np.concatenate(
            [without(fit, rows).eta[own] for rows, own in zip(sets.removed, sets.tested, strict=True)]
        )
        found = sets_left_out_roughly(fit, None, sets, near)
        way = exact - fit.eta[sets.rows]
        assert np.linalg.norm(found - exact) <= 0.02 * np.linalg.norm(way)


def test_they_pay_where_forms_of_many_outputs_or_patterns_take_long():
    several, kinked = _several(1.0), _kinked(1.0)
    assert pay_roughly(several, _folds(several.problem.n))
    assert pay_roughly(kinked, _folds(kinked.problem.n))
    assert not have_to_be_solved(kinked, _folds(kinked.problem.n))
    single = Fit.at_start(Problem(Logistic(), L2(1.0), *_two_classes(), np.ones(120), np.array(True)))
    assert not pay_roughly(solve(single).fit, _folds(120))


def test_where_columns_cannot_move_one_at_a_time_sets_have_to_be_solved():
    X, y = _classes(0)
    free = L1(np.r_[0.0, np.full(X.shape[1] - 1, 3.0)])  # a column without a kink

    def fit_at(penalty):
        problem = Problem(Multinomial(6), penalty, X, y, np.ones(len(y)), np.ones(6, bool))
        return solve(Fit.at_start(problem)).fit

    assert have_to_be_solved(fit_at(free), _folds(len(y)))
    assert not have_to_be_solved(fit_at(L1(3.0)), _folds(len(y)))
    assert not have_to_be_solved(_several(1.0), _folds(len(y)))


def _two_classes():
    X, y = _classes(1, c=2)
    return X, y.astype(float)


@pytest.mark.parametrize(("c", "l1_ratio"), [(6, 0.0), (2, 1.0), (6, 1.0)])
def test_the_choice_is_that_of_optima_and_its_risk_is_exact(c, l1_ratio, monkeypatch):
    X, y = _classes(5, n=120, p=30 if c == 6 else 150, c=c)
    rough = LogisticLOO(cv=5, l1_ratio=l1_ratio).fit(X, y)
    monkeypatch.setattr("onefit.tuning.looks.pay_roughly", lambda *_: False)
    exact = LogisticLOO(cv=5, l1_ratio=l1_ratio).fit(X, y)
    assert pytest.approx(exact.C_) == rough.C_
    assert rough.best_score_ == pytest.approx(exact.best_score_, rel=1e-3)
    assert "rough" in rough.guarantee_path_
    shared = min(len(rough.risk_path_), len(exact.risk_path_))
    near = exact.risk_path_[:shared] < 2.0 * exact.risk_path_.min()  # far off nobody chooses
    np.testing.assert_allclose(rough.risk_path_[:shared][near], exact.risk_path_[:shared][near], rtol=0.01)

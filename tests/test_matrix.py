"""Every kind of model with every operation: a cell works and agrees with refits, or says why it cannot."""

from __future__ import annotations

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import onefit
from builders import MODELS, weights

N_GROUPS = 8
LOOSE = 2e-4  # of the spread of the predictions: what is left to the solvers of other libraries

# --- cells that cannot work, each with its reason ----------------------------------------------------

NO_FORMULA = (onefit.UnsupportedModelError, "audit=30 estimates the risk from 30 refits")
NO_WEIGHTS = (TypeError, "unexpected keyword argument 'sample_weight'")  # the library's own word
REFUSED = {
    ("LassoLars", "weights"): NO_WEIGHTS,
    ("LassoLars", "sparse"): (TypeError, "Sparse data was passed"),
    ("sortedl1.Slope", "weights"): NO_WEIGHTS,
    ("celer.Lasso", "weights"): (ValueError, "celer knows no sample_weight"),
    ("Pipeline", "weights"): (ValueError, "does not accept the sample_weight"),
    ("Pipeline", "sparse"): (ValueError, "Cannot center sparse"),
}
for name, case in MODELS.items():
    if name in ("QuantileRegressor", "SVC", "SVR", "quantile, ridge", "hinge, l1"):
        REFUSED[name, "influence"] = (ValueError, "has kinks instead")
    if case.kind in ("labels", "three"):
        REFUSED[name, "interval"] = (ValueError, "interval.. is for regressors")
    if not case.formula:
        for operation in ("loo", "groups", "sparse", "weights", "pickle"):
            REFUSED[name, operation] = NO_FORMULA
        for operation in ("coef", "influence", "interval"):
            REFUSED[name, operation] = (ValueError, "there is no formula for this model")


# --- fits, made once ---------------------------------------------------------------------------------


def _fit(model, X, y, **fit_params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the other libraries say of their own solvers
        return model.fit(X, y, **fit_params)


@cache
def _fitted(name):
    case = MODELS[name]
    return _fit(case.make(), *case.data())


@cache
def _estimate(name):
    """By the formula, or from a few refits where there is none."""
    case = MODELS[name]
    return onefit.loo(_fitted(name), *case.data(), **({} if case.formula else {"audit": 3, "rng": 0}))


def _refitted(name, removed, est):
    """What a clone that was fitted without some rows predicts for them."""
    X, y = MODELS[name].data()
    kept = np.setdiff1d(np.arange(len(X)), removed)
    return getattr(_fit(MODELS[name].refit(_fitted(name)), X[kept], y[kept]), est.method)(X[removed])


def _close(found, wanted, rtol=LOOSE):
    spread = max(np.std(wanted), np.ptp(wanted) / 4, 0.1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * spread)


def _sound(est, n, *, unit=True):
    assert est.losses.shape == (n,)
    assert len(est.predictions) == n
    assert np.isfinite(est.losses).all()
    assert est.std_error > 0
    share = None if est.sample_weight is None else est.sample_weight[est.rows]
    assert est.value == pytest.approx(np.average(est.losses, weights=share), rel=1e-9)
    if unit:
        assert est.leverages.min() >= -1e-9
        assert est.leverages.sum() == pytest.approx(est.effective_df)


# --- operations --------------------------------------------------------------------------------------


def _loo(name, X, y):
    est = onefit.loo(_fitted(name), X, y)
    _sound(est, len(X))
    assert str(len(X)) in str(est)


def _exact(name, X, y):
    est = onefit.loo(_fitted(name), X, y, exact=True)
    for i in (0, 7, 11):
        _close(est.predictions[[i]], _refitted(name, [i], est))


def _audit(name, X, y):
    found = onefit.loo(_fitted(name), X, y, audit=3, rng=0).audit
    low, high = found.interval
    assert low <= found.value <= high
    assert np.isin(found.rows, np.arange(len(X))).all()


def _groups(name, X, y):
    groups = np.arange(len(X)) % N_GROUPS
    _sound(onefit.loo(_fitted(name), X, y, groups=groups), len(X), unit=False)
    est = onefit.loo(_fitted(name), X, y, groups=groups, exact=True)
    third = np.flatnonzero(groups == 3)
    order = np.argsort(est.rows)
    _close(est.predictions[order][third], _refitted(name, third, est))


def _sparse(name, X, y):
    X = sp.csr_array(X)
    est = onefit.loo(_fit(clone(_fitted(name)), X, y), X, y)
    _close(est.predictions, _estimate(name).predictions)


def _weights(name, X, y):
    given = weights(len(X))
    model = _fit(clone(_fitted(name)), X, y, sample_weight=given)
    est = onefit.loo(model, X, y, sample_weight=given)
    _sound(est, len(X))
    without = int(np.flatnonzero(given == 0)[0])  # what leaves changes nothing
    _close(est.predictions[[without]], getattr(model, est.method)(X[[without]]))


def _coef(name, X, _):
    est = _estimate(name)
    coef, intercept = est.coef(), est.intercept()
    assert len(coef) == len(intercept) == len(X)
    if coef.shape[1:] == (X.shape[1],) and name != "Pipeline":  # neither several outputs nor dual
        eta = (coef * X).sum(axis=1) + intercept
        if est.certified.any():
            _close(eta[est.certified], est.decision[est.certified])
        assert np.corrcoef(eta, est.decision)[0, 1] > 0.99


def _influence(name, X, _):
    found = _estimate(name).influence()
    assert np.sort(found.rows).tolist() == list(range(len(X)))
    assert np.isfinite(found.cooks_distance).all()
    assert found.cooks_distance.min() >= 0


def _interval(name, X, _):
    narrow, wide = (_estimate(name).interval(X[:3], coverage=share) for share in (0.5, 0.9))
    assert narrow.shape[0] == 3
    assert (narrow[..., 0] < narrow[..., 1]).all()
    assert (wide[..., 0] <= narrow[..., 0]).all()
    assert (wide[..., 1] >= narrow[..., 1]).all()


def _plot(name, *_):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    display = _estimate(name).plot()
    assert display.ax_.get_xlabel()
    pyplot.close("all")


def _pickle(name, X, y):
    est = _estimate(name)
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(again.losses, est.losses)
    model = pickle.loads(pickle.dumps(_fitted(name)))
    np.testing.assert_array_equal(onefit.loo(model, X, y).losses, est.losses)


def _clone(name, X, y):
    copy = clone(_fitted(name))
    assert repr(copy) == repr(clone(MODELS[name].make()))
    with pytest.raises(NotFittedError, match="is not fitted"):
        onefit.loo(copy, X, y)


OPERATIONS = {
    function.__name__.removeprefix("_"): function
    for function in (
        *(_loo, _exact, _audit, _groups, _sparse, _weights),
        *(_coef, _influence, _interval, _plot, _pickle, _clone),
    )
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_cell(name, operation):
    work, data = OPERATIONS[operation], MODELS[name].data()
    MODELS[name].make()  # skips where a library is not installed
    if (name, operation) not in REFUSED:
        work(name, *data)
        return
    error, reason = REFUSED[name, operation]
    with pytest.raises(error, match=reason):
        work(name, *data)

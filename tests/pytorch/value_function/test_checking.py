"""What a search found beside simpler models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from torch import nn  # noqa: E402

import onefit  # noqa: E402
from onefit.exceptions import UnreliableWarning  # noqa: E402
from onefit.torch import ValueFunctionSearch  # noqa: E402
from onefit.torch.value_function.checking import SearchCheck, linear_loss  # noqa: E402


def numbers(n, seed, p=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def tensors(*arrays):
    return tuple(map(torch.as_tensor, arrays))


def test_of_numbers_it_is_ridge_tuned_by_leave_one_out():
    (X, y), (X_new, y_new) = numbers(40, 0), numbers(30, 1)
    middle, spread = X.mean(0), X.std(0)
    ridge = onefit.RidgeLOO().fit((X - middle) / spread, y)
    expected = np.mean((y_new - ridge.predict((X_new - middle) / spread)) ** 2)
    for shape in ((30,), (30, 1)):
        held = tensors(X_new, y_new.reshape(shape))
        found = linear_loss(tensors(X, y), held, torch.zeros(shape, dtype=torch.float64), nn.MSELoss())
        assert found == pytest.approx(expected, rel=1e-9)


def test_of_classes_it_is_logistic_regression():
    (X, y), (X_new, y_new) = numbers(90, 0), numbers(60, 1)
    train, held = (tensors(A, (b > 0).astype(int)) for A, b in ((X, y), (X_new, y_new)))
    found = linear_loss(train, held, torch.zeros(60, 2, dtype=torch.float64), nn.CrossEntropyLoss())
    best = min(
        -np.mean(np.log(model.predict_proba(X_new)[np.arange(60), (y_new > 0).astype(int)]))
        for model in (LogisticRegression(C=C).fit(X, y > 0) for C in np.logspace(-3, 2, 6))
    )
    assert best <= found * 1.001
    assert found < 1.2 * best


@pytest.mark.parametrize(
    ("y", "shape"),
    [(np.zeros(8, dtype=int), (8, 5)), (np.zeros(8), (8, 3)), (np.zeros((8, 2), dtype=int), (8, 2))],
)
def test_other_targets_have_none(y, shape):
    X = np.random.default_rng(0).normal(size=(8, 3))
    assert np.isnan(linear_loss(tensors(X, y), tensors(X, y), torch.zeros(shape), nn.MSELoss()))


@pytest.mark.parametrize(
    ("comparison", "told"),
    [
        (SearchCheck(1.0, 0.9, 2.0, 1.5), None),
        (SearchCheck(1.0, 0.9, 2.0, np.nan), None),
        (SearchCheck(1.0, 0.1, 2.0, 1.5), None),  # it is clearly better than a linear model
        (SearchCheck(1.2, 0.9, 2.0, 1.0), "worse than a simpler one"),
        (SearchCheck(2.2, 0.9, 2.0, np.nan), "worse than a simpler one"),
        (SearchCheck(1.0, 0.1, 2.0, 1.0), "fallen below the noise"),
        (SearchCheck(1.0, 0.1, 2.0, np.nan), "fallen below the noise"),
    ],
)
def test_what_is_warned_of(comparison, told):
    if told is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            comparison.warn(of_round=True)
        return
    with pytest.warns(UnreliableWarning, match=told):
        comparison.warn(of_round=True)
    if "noise" in told:  # what was checked is no chance minimum
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            comparison.warn(of_round=False)


def test_a_search_reports_it():
    (X, y), (X_val, y_val) = numbers(40, 0), numbers(40, 1)
    torch.manual_seed(0)
    search = ValueFunctionSearch(
        nn.Linear(4, 1),
        nn.MSELoss(reduction="sum"),
        {"ridge": "weight"},
        {"ridge": (1e-2, 1e2)},
        validation_loss=nn.MSELoss(),
        n_samples=4,
        n_rounds=1,
    ).fit(X, y[:, None], X_val, y_val[:, None])
    found = search.check_
    assert found.retrained == search.validation_loss_.retrained
    assert found.joint == search.validation_loss_.joint
    with torch.no_grad():
        before = search.module(torch.as_tensor(X_val).float())
    assert found.initial == pytest.approx(
        float(((before.double().numpy()[:, 0] - y_val) ** 2).mean()), rel=1e-5
    )
    assert found.linear == pytest.approx(found.retrained, rel=0.05)

"""Sources that fit into memory: strengths are told as those of arrays are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from onefit import ElasticNetLOO, GeneralizedLinearLOO, LassoLOO, LogisticLOO, PoissonLOO, RidgeLOO
from onefit.blocks import BlocksEstimate, rows
from onefit.estimators import of_sources
from onefit.sources import ArraySource


@pytest.fixture
def in_passes():
    """None, as in use."""


def data(kind, n=120, p=5):
    rng = np.random.default_rng(4)
    X = rng.standard_t(3, size=(n, p)) * 10.0 ** np.arange(p)
    eta = np.clip(X[:, 0] - X[:, 1] / 10, -2, 2)
    y = (
        rng.poisson(np.exp(eta))
        if kind == "counts"
        else np.where(eta + rng.logistic(size=n) > 0, "yes", "no")
    )
    return X, y, rng.integers(0, 3, n) * 0.7


@pytest.mark.costly
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("model", "kind"),
    [(LogisticLOO(), "labels"), (LogisticLOO(l1_ratio=[0.5, 1.0]), "labels"), (PoissonLOO(), "counts")],
)
def test_the_choice_is_that_of_arrays(model, kind, weighted):
    X, y, weights = data(kind)
    own = weights if weighted else None
    arrays = type(model)(**model.get_params()).fit(X, y, sample_weight=own)
    source = type(model)(**model.get_params()).fit(ArraySource(X, y, own, rows=37))
    name = f"{model._strength}s_"
    np.testing.assert_allclose(getattr(source, name), getattr(arrays, name))
    np.testing.assert_allclose(source.coef_, arrays.coef_, rtol=1e-5)
    np.testing.assert_allclose(source.intercept_, arrays.intercept_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(source.risk_path_, arrays.risk_path_, rtol=2e-2)
    assert source.corrected_risk_ == pytest.approx(arrays.corrected_risk_, rel=1e-9)
    assert isinstance(source.loo_, BlocksEstimate)
    assert source.loo_.value == pytest.approx(arrays.loo_.value, abs=0.1 * arrays.loo_.std_error)
    assert source.n_features_in_ == X.shape[1]
    assert np.array_equal(source.predict(X), arrays.predict(X))


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")
def test_where_passes_do_not_settle_at_the_choice_they_choose():
    X, y = load_iris(return_X_y=True)
    model = LogisticLOO(l1_ratio=1.0).fit(ArraySource(X, y == 0))
    assert model.loo_.value < 0.02
    assert model.score(X, y == 0) == 1.0


def test_larger_ones_are_tuned_in_passes(monkeypatch):
    X, y, _ = data("labels")
    monkeypatch.setattr(rows, "SAMPLE", len(X) * max(X.shape[1], rows.NARROWEST) - 1)
    monkeypatch.setattr(of_sources, "_tune_held", None)
    assert LogisticLOO(Cs=[0.1]).fit(ArraySource(X, y)).C_ == 0.1


def test_rows_of_a_choice_in_memory_are_written_in_their_order(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, _ = data("labels")
    model = LogisticLOO().fit(ArraySource(X, y, rows=50))
    model.loo_.rows_to(tmp_path / "rows.parquet")
    written = pandas.read_parquet(tmp_path / "rows.parquet")
    assert written["y"].tolist() == y.tolist()
    rest = np.arange(len(y)) != 3
    refit = LogisticRegression(C=model.C_, tol=1e-10, max_iter=10**5).fit(X[rest], y[rest])
    off = abs(written["decision"][3] - refit.decision_function(X[[3]])[0])
    assert off <= written["bound"][3] + 1e-3


@pytest.mark.filterwarnings("ignore::onefit.exceptions.UnreliableWarning")
@pytest.mark.parametrize(("seed", "fit_intercept"), [(56, True), (86, True), (36, False)])
def test_rows_of_separable_classes_are_told_as_those_of_arrays(seed, fit_intercept):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(26, 1) if not fit_intercept else (int(rng.integers(8, 30)), 3))
    y = X[:, 0] > (0.5 if fit_intercept else 0.0)
    model = LogisticLOO(l1_ratio=1.0, fit_intercept=fit_intercept, selection="min")
    source, arrays = (clone(model).fit(*rows) for rows in ((ArraySource(X, y, rows=7),), (X, y)))
    assert source.C_ == arrays.C_
    assert source.loo_.value == arrays.loo_.value
    assert source.loo_.guarantee == arrays.loo_.guarantee
    assert source.loo_.approx_error == arrays.loo_.approx_error


def test_columns_that_do_not_vary_and_labels_that_are_none():
    y = np.arange(30) % 2
    source, arrays = (
        LogisticLOO(l1_ratio=1.0).fit(*own)
        for own in ((ArraySource(np.ones((30, 2)), y),), (np.ones((30, 2)), y))
    )
    assert source.loo_.value == arrays.loo_.value
    for size in (30, rows.SAMPLE):
        with pytest.raises(ValueError, match="Unknown label type"):
            LogisticLOO().fit(ArraySource(np.ones((size, 2)), np.arange(size) % 2 + 0.5))


@pytest.mark.costly
@pytest.mark.parametrize("shape", [(40, 30), (60, 5), (150, 12), (20, 40)])
@pytest.mark.parametrize("model", [RidgeLOO(), LassoLOO(), ElasticNetLOO()])
def test_the_choice_of_squared_losses_is_that_of_arrays(model, shape):
    """An ℓ2 part keeps another share without each row, which passes take to be the same of all."""
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=shape), rng.uniform(0.2, 2.0, shape[0])
    weights[:3] = 0.0
    y = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=shape[0])
    arrays = clone(model).fit(X, y, sample_weight=weights)
    source = clone(model).fit(ArraySource(X, y, weights, rows=17))
    np.testing.assert_allclose(source.alphas_, arrays.alphas_, rtol=1e-9)
    assert source.alpha_ == pytest.approx(arrays.alpha_, rel=1e-9)
    np.testing.assert_allclose(source.coef_, arrays.coef_, rtol=1e-6, atol=1e-9)
    assert source.loo_.value == pytest.approx(arrays.loo_.value, rel=1e-6)


@pytest.mark.parametrize("eps", [2, 0.0, "a tenth"])
def test_shares_of_a_strength_are_refused_by_name(eps):
    X, y, _ = data("counts")
    with pytest.raises(ValueError, match=r"eps must lie in \(0, 1\)"):
        GeneralizedLinearLOO("poisson", "l1", eps=eps).fit(ArraySource(X, y))

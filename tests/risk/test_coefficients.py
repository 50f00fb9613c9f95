"""Coefficients with jackknife errors, against refits; and influence in one pass."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import onefit
from onefit.risk import influence as influence_module


def data(n=30, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * [1.0, 3.0, 0.2][:p] + 1.0
    return X, X @ [1.0, -0.5, 0.0][:p] + rng.normal(size=n)


def left_out_parameters(model, X, y, weights=None):
    """(n, ·) coefficients and intercepts of refits without each row that has weight."""
    found = []
    for i in np.flatnonzero(np.ones(len(y)) if weights is None else weights):
        kept = np.arange(len(y)) != i
        w = {} if weights is None else {"sample_weight": weights[kept]}
        one = clone(model).fit(X[kept], y[kept], **w)
        found.append(
            np.concatenate(
                [one.coef_.T, np.reshape(one.intercept_, (1, -1)).squeeze(0)[None]]
                if one.coef_.ndim == 2
                else [one.coef_, [one.intercept_]]
            )
        )
    return np.array(found)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("model", [Ridge(1.0), Ridge(1.0, fit_intercept=False)], ids=str)
def test_jackknife_errors_are_those_of_refits(model, weighted, sparse):
    X, y = data()
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float) if weighted else None
    given = sp.csr_array(X) if sparse else X
    fitted = clone(model).fit(given, y, sample_weight=weights)
    table = onefit.loo(fitted, given, y, weights).coef_table(["a", "b", "c"])
    each = left_out_parameters(model, X, y, weights)
    m = len(each)
    expected = np.sqrt((m - 1) / m * np.sum((each - each.mean(axis=0)) ** 2, axis=0))
    np.testing.assert_allclose(table.std_error, expected[:3], rtol=1e-6)
    np.testing.assert_allclose(table.intercept_error, expected[3], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(table.coef, fitted.coef_, rtol=1e-8)
    same = np.mean(np.sign(each[:, :3]) == np.sign(fitted.coef_), axis=0)
    np.testing.assert_allclose(table.same_sign, same)


def test_several_classes_have_a_line_each():
    X, y = data(60)
    labels = np.digitize(y, [-0.5, 1.0])
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=2000).fit(X, labels)
    est = onefit.loo(model, X, labels, exact=True)
    table = est.coef_table()
    assert table.coef.shape == table.std_error.shape == (3, 3)
    each = np.array([clone(model).fit(np.delete(X, i, 0), np.delete(labels, i)).coef_ for i in range(60)])
    expected = np.sqrt(59 / 60 * np.sum((each - each.mean(axis=0)) ** 2, axis=0))
    np.testing.assert_allclose(table.std_error, expected, rtol=1e-3)
    frame = table.to_frame()
    assert list(frame.index[:3]) == [table.names[0]] * 3
    np.testing.assert_array_equal(frame["coef"][:3], table.coef[:, 0])
    np.testing.assert_array_equal(frame["output"][:3], [0, 1, 2])


def test_selection_is_counted():
    X, y = data(40)
    model = Lasso(0.5, tol=1e-10).fit(X, y)
    table = onefit.loo(model, X, y).coef_table()
    assert list(table.to_frame().columns) == ["coef", "std_error", "same_sign", "selected"]
    np.testing.assert_array_equal(table.to_frame()["selected"], table.selected)
    assert np.all(table.selected[model.coef_ != 0] > 0.5)
    assert np.all((table.selected >= 0) & (table.selected <= 1))
    zero = model.coef_ == 0
    np.testing.assert_allclose(table.same_sign[zero], 1.0 - table.selected[zero])


@pytest.mark.parametrize(
    "model", [LinearRegression(), PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=500)], ids=str
)
def test_units_are_those_of_the_columns(model):
    X, y = data()
    y = np.abs(np.round(y)) if isinstance(model, PoissonRegressor) else y
    scaler = StandardScaler().fit(X)
    Z = scaler.transform(X)
    raw = onefit.loo(clone(model).fit(X, y), X, y).coef_table()
    scaled = onefit.loo(clone(model).fit(Z, y), Z, y).coef_table(scale=scaler.scale_, centre=scaler.mean_)
    for name in ("coef", "std_error", "intercept", "intercept_error"):
        np.testing.assert_allclose(getattr(scaled, name), getattr(raw, name), rtol=1e-4)


def test_names_are_counted():
    X, y = data()
    with pytest.raises(ValueError, match="one name a column, 3, got 2"):
        onefit.loo(Ridge().fit(X, y), X, y).coef_table(["a", "b"])


def test_printed():
    X, y = data()
    text = str(onefit.loo(Ridge().fit(X, y), X, y).coef_table(["a", "b", "c"]))
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["a", "b", "c"]


# --- influence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["squared", "binary", "several", "outputs", "sparse"])
def test_forms_are_the_sums_over_rows(kind, monkeypatch):
    """The form in Zᵀ D Z against the changes of all predictors, row by row."""
    X, y = data(50)
    if kind in ("binary", "several"):
        y = np.digitize(y, [0.0] if kind == "binary" else [-0.5, 1.0])
        model = LogisticRegression(C=0.7).fit(X, y)
    else:
        y = np.column_stack([y, X[:, 0] ** 2]) if kind == "outputs" else y
        model = Ridge(0.5).fit(X, y)
    X = sp.csr_array(X) if kind == "sparse" else X
    est = onefit.loo(model, X, y)
    found = est.influence().cooks_distance
    monkeypatch.setattr(
        influence_module,
        "_curved_squares",
        lambda fit: (lambda change: influence_module._by_rows(fit, change), fit.eta.size),
    )
    np.testing.assert_allclose(found, est.influence().cooks_distance, rtol=1e-9)


def test_the_top_rows_alone():
    X, y = data(50)
    est = onefit.loo(Ridge(0.5).fit(X, y), X, y)
    every, some = est.influence(), est.influence(top=4)
    np.testing.assert_allclose(some.cooks_distance, every.cooks_distance)
    np.testing.assert_allclose(some.dfbetas, every.dfbetas[every.rows[:4]], rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        Ridge(),
        make_pipeline(StandardScaler(), Lasso(0.01)),
        onefit.LassoLOO(20),
        make_pipeline(FunctionTransformer(np.asarray), Ridge()),  # does not say what its columns are
    ],
    ids=["ridge", "pipeline", "tuned", "nameless step"],
)
def test_coefficients_have_the_names_of_the_table(model):
    pd = pytest.importorskip("pandas")
    X, y = data()
    table = pd.DataFrame(X, columns=["age", "size", "floor"])
    fitted = clone(model).fit(table, y)
    names = (
        ("column 0", "column 1", "column 2") if "functiontransformer" in str(model).lower() else tuple(table)
    )
    assert onefit.loo(fitted, table, y).coef_table().names == names
    if hasattr(fitted, "loo_"):
        assert fitted.loo_.coef_table().names == names

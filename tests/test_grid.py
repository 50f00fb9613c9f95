"""GradientSearchCV with lists of values, and with cv=: against GridSearchCV and cross_val_score."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onefit
from onefit import GradientSearchCV, risk

N, P = 40, 5
ALPHAS = {"alpha": [0.1, 1.0, 10.0, 100.0]}
SQUARED = "neg_mean_squared_error"


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=N), rng.uniform(0.5, 2.0, N)


@pytest.fixture(scope="module")
def labels(sample):
    y = sample[1]
    return np.where(y > np.median(y), "high", "low")


class TestGrid:
    @pytest.mark.parametrize("cv", [5, KFold(4, shuffle=True, random_state=0)], ids=["5", "KFold"])
    def test_of_folds_is_grid_search(self, sample, cv):
        X, y, _ = sample
        grid = {"alpha": [0.01, 0.1, 1.0], "l1_ratio": [0.2, 0.5, 0.9]}
        model = ElasticNet(tol=1e-10, max_iter=100_000)
        found = GradientSearchCV(model, grid, cv=cv).fit(X, y)
        wanted = GridSearchCV(model, grid, cv=cv, scoring=SQUARED).fit(X, y)
        assert found.best_params_ == wanted.best_params_
        assert found.best_index_ == wanted.best_index_
        assert found.cv_results_["params"] == wanted.cv_results_["params"]
        np.testing.assert_allclose(
            found.cv_results_["mean_test_score"], wanted.cv_results_["mean_test_score"], rtol=1e-6
        )
        np.testing.assert_array_equal(
            found.cv_results_["rank_test_score"], wanted.cv_results_["rank_test_score"]
        )
        np.testing.assert_allclose(found.predict(X), wanted.predict(X), rtol=1e-6)

    @pytest.mark.parametrize("scoring", [None, "r2"])
    def test_of_each_split_it_says_what_grid_search_says(self, sample, scoring):
        X, y, _ = sample
        grids = [{"alpha": [0.1, 1.0]}, {"alpha": [5.0, 2.0], "fit_intercept": [True, False]}]
        found = GradientSearchCV(Ridge(), grids, cv=5, scoring=scoring).fit(X, y)
        wanted = GridSearchCV(Ridge(), grids, cv=5, scoring=scoring or SQUARED).fit(X, y)
        assert found.cv_results_["params"] == wanted.cv_results_["params"]
        for name in ["std_test_score", *(f"split{k}_test_score" for k in range(5))]:
            np.testing.assert_allclose(found.cv_results_[name], wanted.cv_results_[name])
        for name in ("param_alpha", "param_fit_intercept"):
            own, theirs = (one.cv_results_[name] for one in (found, wanted))
            np.testing.assert_array_equal(own.mask, theirs.mask)
            assert own.compressed().tolist() == theirs.compressed().tolist()
        assert found.n_splits_ == wanted.n_splits_ == 5
        assert not found.multimetric_

    def test_splits_of_a_search_between_bounds(self, sample):
        X, y, weights = sample
        sets = [np.arange(0, 10), np.arange(10, 25), np.arange(25, N)]
        cv = [(np.setdiff1d(np.arange(N), rows), rows) for rows in sets]
        found = GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e2)}, cv=cv).fit(X, y, weights)
        for k, (training, rows) in enumerate(cv):
            model = Ridge(**found.best_params_).fit(X[training], y[training], weights[training])
            own = np.average((y[rows] - model.predict(X[rows])) ** 2, weights=weights[rows])
            assert found.cv_results_[f"split{k}_test_score"][found.best_index_] == pytest.approx(-own)
        of_rows = GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e2)}).fit(X, y)
        assert of_rows.n_splits_ == N
        assert "std_test_score" not in of_rows.cv_results_

    def test_a_split_of_one_class_has_no_area(self, sample, labels):
        X = sample[0]
        order = np.argsort(labels, kind="stable")
        few = order[:5], order[5:]  # of one class alone, and the others
        cv = [(np.setdiff1d(order, rows), rows) for rows in (few[0], few[1][::2], few[1][1::2])]
        found = GradientSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=cv, scoring="roc_auc")
        results = found.fit(X, labels).cv_results_
        assert np.isnan(results["split0_test_score"]).all()
        assert np.isfinite(results["split1_test_score"]).all()
        assert np.isfinite(results["mean_test_score"]).all()

    def test_of_two_values_that_are_no_numbers(self, sample):
        X, y, _ = sample
        found = GradientSearchCV(Ridge(), {"fit_intercept": [True, False]}).fit(X + 3.0, y)
        assert found.best_params_ == {"fit_intercept": True}
        assert len(found.cv_results_["params"]) == 2

    @pytest.mark.parametrize("values", [[0.1, 10.0], np.array([0.1, 10.0]), [3.0]])
    def test_of_few_numbers(self, sample, values):
        X, y, _ = sample
        found = GradientSearchCV(Ridge(), {"alpha": values}).fit(X, y)
        assert [one["alpha"] for one in found.cv_results_["params"]] == list(values)
        assert found.best_params_["alpha"] in values

    def test_of_single_rows_is_grid_search(self, sample):
        X, y, _ = sample
        wanted = GridSearchCV(Ridge(), ALPHAS, cv=LeaveOneOut(), scoring=SQUARED).fit(X, y)
        for settings in ({}, {"cv": LeaveOneOut()}, {"risk": risk.LeaveOneOut()}):
            found = GradientSearchCV(Ridge(), ALPHAS, **settings).fit(X, y)
            np.testing.assert_allclose(
                found.cv_results_["mean_test_score"], wanted.cv_results_["mean_test_score"]
            )
            assert found.best_params_ == wanted.best_params_

    def test_scoring_chooses(self, sample, labels):
        """Accuracy and area choose by what they say of the left-out predictions, folds being of one size."""
        X = sample[0]
        grid = {"C": [1e-4, 1e-2, 1.0, 100.0]}
        model = LogisticRegression(tol=1e-8)
        found = GradientSearchCV(model, grid, cv=5, scoring="accuracy").fit(X, labels)
        wanted = GridSearchCV(model, grid, cv=5, scoring="accuracy").fit(X, labels)
        np.testing.assert_allclose(
            found.cv_results_["mean_test_score"], wanted.cv_results_["mean_test_score"]
        )
        assert found.best_params_ == wanted.best_params_
        by_area = GradientSearchCV(model, grid, cv=5, scoring="roc_auc").fit(X, labels)
        of_each = [
            GradientSearchCV(model, {"C": [C] * 3}, cv=5).fit(X, labels).best_risk_.score("roc_auc")
            for C in grid["C"]
        ]
        np.testing.assert_allclose(by_area.cv_results_["mean_test_score"], of_each)
        assert by_area.best_score_ == pytest.approx(max(of_each))

    def test_the_first_of_equal_points_is_taken(self, sample):
        X, y, _ = sample
        grid = {"tol": [1e-3, 1e-4, 1e-5]}  # which changes nothing here
        found = GradientSearchCV(Ridge(), grid, cv=5).fit(X, y)
        assert found.best_index_ == 0
        np.testing.assert_array_equal(found.cv_results_["rank_test_score"], [1, 2, 3])

    def test_weights_and_their_risk(self, sample):
        X, y, weights = sample
        found = GradientSearchCV(Ridge(), ALPHAS).fit(X, y, weights)
        of_each = [
            -onefit.loo(Ridge(alpha).fit(X, y, weights), X, y, weights).value for alpha in ALPHAS["alpha"]
        ]
        np.testing.assert_allclose(found.cv_results_["mean_test_score"], of_each)
        assert found.best_risk_.value == pytest.approx(-max(of_each))

    def test_generalised_cross_validation(self, sample):
        X, y, _ = sample
        found = GradientSearchCV(Ridge(), ALPHAS, risk=risk.GCV()).fit(X, y)
        of_each = [
            -onefit.evaluate(Ridge(alpha).fit(X, y), X, y, risk.GCV()).value for alpha in ALPHAS["alpha"]
        ]
        np.testing.assert_allclose(found.cv_results_["mean_test_score"], of_each)

    def test_values_that_are_no_numbers(self, sample, labels):
        X = sample[0]
        grid = {"C": [0.1, 1.0, 10.0], "class_weight": [None, "balanced", {"high": 2.0, "low": 1.0}]}
        found = GradientSearchCV(LogisticRegression(), grid).fit(X, labels)
        assert len(found.cv_results_["params"]) == 9
        assert found.cv_results_["param_class_weight"][1] == found.cv_results_["params"][1]["class_weight"]

    def test_last_step_of_a_pipeline(self, sample):
        X, y, _ = sample
        steps = make_pipeline(StandardScaler(), Ridge())
        found = GradientSearchCV(steps, {"ridge__alpha": ALPHAS["alpha"]}).fit(X, y)
        inner = StandardScaler().fit_transform(X)
        plain = GradientSearchCV(Ridge(), ALPHAS).fit(inner, y)
        assert found.best_score_ == pytest.approx(plain.best_score_)
        with pytest.raises(ValueError, match="a step before the last"):
            GradientSearchCV(make_pipeline(PCA(), Ridge()), {"pca__n_components": [1, 2, 3]}).fit(X, y)

    def test_callback_refit_and_clone(self, sample):
        X, y, _ = sample
        heard = []
        search = GradientSearchCV(
            Ridge(), ALPHAS, refit=False, callback=lambda params, value: heard.append((params, value))
        )
        found = clone(search).fit(X, y)
        assert [params for params, _ in heard] == found.cv_results_["params"]
        np.testing.assert_allclose([-value for _, value in heard], found.cv_results_["mean_test_score"])
        assert not hasattr(found, "best_estimator_")

    def test_refusals_say_why(self, sample):
        X, y, _ = sample
        cases = [
            ({"alpha": [1, 2, 3], "tol": (1e-4, 1e-2)}, {}, "'tol' is not"),
            ({"alpha": []}, {}, "names no value of 'alpha': give a list of values for a grid, or a pair"),
            ([{"alpha": [1, 2]}, {"alpha": ()}], {}, "names no value of 'alpha'"),
            ({"beta": [1, 2, 3]}, {}, "no hyperparameter 'beta'"),
            (ALPHAS, {"risk": risk.Permutation()}, "give bounds"),
            (ALPHAS, {"scoring": "r2", "risk": risk.GCV()}, "other than GCV"),
            ({"alpha": (1.0, 10.0)}, {"cv": 5, "risk": risk.KFold(3)}, "give one"),
            (ALPHAS, {"cv": 1}, "cv must be from 2"),
            (ALPHAS, {"cv": "5"}, "cv must be None"),
        ]
        for grid, settings, said in cases:
            with pytest.raises((ValueError, TypeError), match=said):
                GradientSearchCV(Ridge(), grid, **settings).fit(X, y)


class TestFoldsOfBounds:
    def test_a_number_of_folds_is_k_fold(self, sample):
        X, y, _ = sample
        bounds = {"alpha": (1e-2, 1e3)}
        found = GradientSearchCV(Ridge(), bounds, cv=5).fit(X, y)
        wanted = GradientSearchCV(Ridge(), bounds, risk=risk.KFold(5)).fit(X, y)
        assert found.best_params_ == wanted.best_params_
        assert found.best_risk_.value == pytest.approx(wanted.best_risk_.value)

    def test_stratified_for_classifiers(self, sample, labels):
        X, bounds = sample[0], {"C": (1e-3, 1e3)}
        order = np.argsort(labels, kind="stable")  # one class after the other
        X, labels = X[order], labels[order]
        found = GradientSearchCV(LogisticRegression(), bounds, cv=4).fit(X, labels)
        wanted = GradientSearchCV(LogisticRegression(), bounds, risk=risk.Split(StratifiedKFold(4)))
        assert found.best_score_ == pytest.approx(wanted.fit(X, labels).best_score_)

    def test_pairs_of_rows(self, sample):
        X, y, _ = sample
        splits = list(KFold(4).split(X))
        found = GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e3)}, cv=splits).fit(X, y)
        wanted = GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e3)}, cv=4).fit(X, y)
        assert found.best_params_ == wanted.best_params_


class TestAround:
    """What goes round a search: an interruption, another search before, weights of new rows."""

    def test_an_interrupted_grid_keeps_the_best_so_far(self, sample):
        X, y, _ = sample
        heard = []

        def stop(values, _):
            heard.append(values)
            if len(heard) == 2:
                raise KeyboardInterrupt

        search = GradientSearchCV(Ridge(), ALPHAS, cv=5, callback=stop).fit(X, y)
        assert search.message_ == "interrupted"
        assert search.cv_results_["params"] == heard
        assert search.best_params_ in heard
        assert search.predict(X).shape == (N,)

    def test_an_interruption_before_anything_is_judged_goes_on(self, sample, monkeypatch):
        def stop(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("onefit.estimators.searched.fit_weighted", stop)
        with pytest.raises(KeyboardInterrupt):
            GradientSearchCV(Ridge(), ALPHAS, cv=5).fit(*sample[:2])

    def test_nothing_is_left_of_a_search_before(self, sample):
        X, y, _ = sample
        search = GradientSearchCV(Ridge(), {"alpha": (0.1, 100.0)}).fit(X, y)
        assert search.gradient_.shape == (1,)
        search.set_params(param_bounds=ALPHAS, refit=False).fit(X[:, :3], y)
        for name in ("gradient_", "best_estimator_", "best_risk_", "n_features_in_"):
            assert not hasattr(search, name)

    def test_a_score_of_new_rows_is_weighted(self, sample):
        X, y, weights = sample
        search = GradientSearchCV(Ridge(), ALPHAS, scoring="r2").fit(X, y)
        assert search.score(X, y, weights) == pytest.approx(search.best_estimator_.score(X, y, weights))
        assert search.score(X, y, weights) != pytest.approx(search.score(X, y))

    def test_between_bounds_pipelines_may_hold_pipelines(self, sample):
        X, y, _ = sample
        inner = make_pipeline(PCA(3, svd_solver="full"), Ridge())
        one = make_pipeline(StandardScaler(), PCA(3, svd_solver="full"), Ridge())
        nested = GradientSearchCV(
            make_pipeline(StandardScaler(), inner), {"pipeline__ridge__alpha": (0.1, 100.0)}
        )
        flat = GradientSearchCV(one, {"ridge__alpha": (0.1, 100.0)})
        alphas = [next(iter(search.fit(X, y).best_params_.values())) for search in (nested, flat)]
        assert alphas[0] == pytest.approx(alphas[1])
        assert nested.best_score_ == pytest.approx(flat.best_score_)

"""statsmodels: results of least squares and generalised linear models, with or without ``fit_regularized``.

A constant is a column of its design matrix, and penalised like others where ``alpha`` is one number: there is
no intercept here.  Likelihoods are divided by the number of rows where there is a penalty.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import statsmodels.api as sm
from sklearn.base import BaseEstimator
from statsmodels.base import elastic_net
from statsmodels.genmod import generalized_linear_model
from statsmodels.regression import linear_model

from onefit._typing import Array
from onefit.exceptions import NotFittedToDataError, UnsupportedModelError
from onefit.losses import Logistic, Loss, Squared, Tweedie
from onefit.metrics import ShareLogLoss
from onefit.penalties import Strengths
from onefit.readers.reading import Reading
from onefit.readers.refitting import Refit
from onefit.readers.translation import CheckedData, checked, reading_of

PASSES = 10_000  # of coordinate descent in a refit, which stops far earlier where it can
TOLERANCE = 1e-12  # of a refit


class _Coefficients(BaseEstimator):
    """``params`` under the names of scikit-learn."""

    intercept_ = 0.0

    def __init__(self, params: Any) -> None:
        self.params = params
        self.coef_ = np.asarray(params, dtype=np.float64)
        self.n_features_in_ = len(self.coef_)


def _results(results: Any, X: Any, y: Any, sample_weight: Any) -> Reading:
    """Σ w loss, and with a penalty also n alpha (L1_wt ‖β‖₁ + ½ (1 − L1_wt) ‖β‖²)."""
    _refuse(results.model)
    loss = _loss(results.model)
    penalised = isinstance(results, PENALISED)
    alpha, ratio = _penalty(results) if penalised else (0.0, 1.0)
    if penalised and ratio == 0 and _estimates_dispersion(results.model):
        raise UnsupportedModelError(
            "GLM.fit_regularized(L1_wt=0) divides the likelihood by a dispersion that it estimates along, so "
            "that alpha is no fixed strength: take onefit.GeneralizedLinear with onefit.penalties.L2(alpha)"
        )
    data = _checked(results, X, y, loss, sample_weight)
    strengths = np.broadcast_to(np.asarray(alpha, dtype=np.float64), len(results.params))
    penalty = Strengths(data.total, l1=ratio * strengths, l2=(1.0 - ratio) * strengths)
    reading = reading_of(_Coefficients(results.params), data, loss, penalty, intercept=False)
    reading = replace(reading, names=results.model.exog_names)
    return replace(reading, metric=ShareLogLoss()) if isinstance(loss, Logistic) else reading


def _refuse(model: Any) -> None:
    if type(model) not in MODELS:
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise UnsupportedModelError(
            f"no leave-one-out formula for results of statsmodels' {type(model).__name__}: supported are "
            f"{names}"
        )
    for name in ("offset", "exposure"):
        if np.any(getattr(model, name, 0.0)):
            raise UnsupportedModelError(
                f"results of a GLM with {name} are not read: take onefit.PoissonLOO().fit(X, y, offset=…)"
            )
    if np.any(getattr(model, "n_trials", 1) != 1):
        raise UnsupportedModelError(
            "a GLM of successes and failures is not read: fit the shares of successes with var_weights=trials"
        )


def _loss(model: Any) -> Loss:
    if type(model) is not sm.GLM:
        return Squared()
    family, link = model.family, type(model.family.link).__name__
    links: dict[str, Literal["log", "identity"]] = {"Log": "log", "Identity": "identity"}
    powers = {"Gaussian": 0.0, "Poisson": 1.0, "Gamma": 2.0, "InverseGaussian": 3.0}
    name = type(family).__name__
    if name == "Binomial" and link == "Logit":
        return Logistic()
    power = getattr(family, "var_power", None) if name == "Tweedie" else powers.get(name)
    if power is None or link not in links:
        raise UnsupportedModelError(
            f"a GLM with family {name} and link {link} has no leave-one-out formula: supported are Gaussian, "
            f"Poisson, Gamma, InverseGaussian and Tweedie with Log or Identity, and Binomial with Logit"
        )
    return Squared() if power == 0 and links[link] == "identity" else Tweedie(float(power), links[link])


def _estimates_dispersion(model: Any) -> bool:
    """Whether the ridge of a GLM has a dispersion in its likelihood."""
    return type(model) is sm.GLM and type(model.family).__name__ not in ("Poisson", "Binomial")


def _penalty(results: Any) -> tuple[Any, float]:
    """What was passed to ``fit_regularized``, which statsmodels does not keep."""
    alpha = getattr(results, "alpha", None)
    if alpha is None:
        raise UnsupportedModelError(
            "results of fit_regularized do not keep its penalty: write results.alpha = … and "
            "results.L1_wt = … (1 if missing), what you passed to fit_regularized, before onefit.loo"
        )
    return alpha, float(getattr(results, "L1_wt", 1.0))


def _checked(results: Any, X: Any, y: Any, loss: Loss, sample_weight: Any) -> CheckedData:
    own = np.asarray(results.model.exog)
    if np.shape(X) != own.shape:
        raise NotFittedToDataError(
            f"the model was fitted on {own.shape[0]} rows of {own.shape[1]} columns, with the constant, but "
            f"X has the shape {np.shape(X)}: pass results.model.exog and results.model.endog"
        )
    data = checked(_Coefficients(results.params), X, y, sample_weight, loss, weighted=True)
    _check_weights(results, data.weights)
    return data


def _check_weights(results: Any, given: Array) -> None:
    """Refuse other weights of the rows than statsmodels keeps in its model."""
    model = results.model
    generalised = type(model) is sm.GLM
    own = np.broadcast_to(model.iweights if generalised else getattr(model, "weights", 1.0), len(given))
    if not np.allclose(given, own, rtol=1e-12):
        name = "results.model.iweights" if generalised else "results.model.weights"
        raise ValueError(f"pass sample_weight={name}, the weights that the model was fitted with")
    if generalised and isinstance(results, PENALISED) and np.ptp(own) > 0:
        raise UnsupportedModelError(
            "GLM.fit_regularized divides a weighted likelihood by the number of rows, not by their weight: "
            "fit without freq_weights and var_weights"
        )


def _refit(results: Any) -> Refit:
    penalty = _penalty(results) if isinstance(results, PENALISED) else None
    family = getattr(results.model, "family", None)
    return Refit(partial(_fitted, family, penalty), None if family is None else family.link.inverse)


def _fitted(family: Any, penalty: Any, X: Any, y: Any, weights: Any) -> Any:
    X, y, weights = np.asarray(X), np.asarray(y), np.ones(len(y)) if weights is None else weights
    if family is None:
        model, closer = sm.WLS(y, X, weights=weights), {}
    else:
        model, closer = sm.GLM(y, X, family=family, var_weights=weights), {"tol": TOLERANCE, "maxiter": 1000}
    if penalty is None:
        return _Coefficients(model.fit(**closer).params)
    alpha, ratio = penalty
    settings = {} if ratio == 0 else {"maxiter": PASSES, "cnvrg_tol": TOLERANCE, "zero_tol": 0.0}
    return _Coefficients(model.fit_regularized(alpha=alpha, L1_wt=ratio, **settings).params)


MODELS = (sm.OLS, sm.WLS, sm.GLM)
PENALISED = (elastic_net.RegularizedResults, elastic_net.RegularizedResultsWrapper)
READINGS = dict.fromkeys(
    (linear_model.RegressionResultsWrapper, generalized_linear_model.GLMResultsWrapper, *PENALISED), _results
)
REFERENCES = dict.fromkeys(READINGS, _refit)

"""In-sample criteria that stand for leaving rows out: GCV, Cp, one step, the infinitesimal jackknife.

They are here for comparison: all they need is a by-product of leave-one-out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onefit._typing import Array
from onefit.curvature import factor
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut
from onefit.metrics import LinearMetric
from onefit.risk.dual_route import left_out_by_dual
from onefit.risk.means import mean_and_error


@dataclass(frozen=True)
class Criterion:
    """An estimate of the risk from the training rows.

    Attributes
    ----------
    name : str
    value : float
        In the units of the per-row loss: squared error, log-loss or deviance.
    training : float
        Mean loss of the training rows.
    effective_df : float
        Degrees of freedom, the intercept included.
    """

    name: str
    value: float
    training: float
    effective_df: float

    def __str__(self) -> str:
        return f"{self.name} {self.value:.6g} (training {self.training:.6g}, df {self.effective_df:.4g})"


def _training(
    left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None
) -> tuple[float, int]:
    """Mean loss of the training rows and how many of them count."""
    losses = response.losses(target, left_out.fit.eta)
    return _mean(losses, weights), len(losses) if weights is None else int(np.count_nonzero(weights))


def _mean(losses: Array, weights: Array | None) -> float:
    return mean_and_error(losses, np.ones(len(losses)) if weights is None else weights)[0]


@dataclass(frozen=True)
class GCV:
    """Generalised cross-validation: training loss / (1 − df/n)² (Golub, Heath and Wahba 1979).

    For other losses than the squared one the same with the deviance (Wood 2008).  Infinite where the fit
    has as many degrees of freedom as rows.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.GCV())
    >>> round(est.value), round(onefit.loo(model, X, y).value)
    (3007, 3005)
    """

    def of(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None = None
    ) -> Criterion:
        """Estimate the risk of a fit.

        Parameters
        ----------
        left_out : LeftOut
        response : LinearMetric
        target : (n,) array
            The response in its terms.
        weights : (n,) array, optional
            Of the mean.
        """
        training, n = _training(left_out, response, target, weights)
        df = left_out.effective_df
        kept = 1.0 - df / n
        return Criterion("GCV", training / kept**2 if kept > 0 else np.inf, training, df)


@dataclass(frozen=True)
class SURE:
    """Training error + 2 σ² df / n: Mallows' Cp, Stein's unbiased estimate of the in-sample risk.

    The degrees of freedom of the lasso are those of Zou, Hastie and Tibshirani (2007).  For squared error
    only.

    Parameters
    ----------
    noise_variance : float, optional
        σ²; RSS / (n − df) of the fit itself if missing.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.SURE())
    >>> round(est.value), round(est.training)
    (3006, 2890)
    """

    noise_variance: float | None = None

    def __post_init__(self) -> None:
        if self.noise_variance is not None and not self.noise_variance >= 0:
            raise ValueError(f"noise_variance must be at least 0, got {self.noise_variance!r}")

    def of(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None = None
    ) -> Criterion:
        """Estimate the risk of a fit; parameters as for ``GCV.of``.

        Raises
        ------
        ValueError
            For a loss that is not the squared error, or if σ² cannot be estimated: n ≤ df.
        """
        if not left_out.fit.problem.loss.is_quadratic or response.loss_name != "squared error":
            raise ValueError("SURE is for squared error: take onefit.loo, or GCV()")
        training, n = _training(left_out, response, target, weights)
        df = left_out.effective_df
        variance = self.noise_variance
        if variance is None:
            if df >= n:
                raise ValueError(f"the fit has {df:.0f} degrees of freedom on {n} rows: give noise_variance")
            variance = training * n / (n - df)
        return Criterion("SURE", training + 2.0 * variance * df / n, training, df)


@dataclass(frozen=True)
class ALO:
    """Approximate leave-one-out: one Newton step for each row, and nothing more.

    η_i + h_i g_i / (1 − d_i h_i) (Rad and Maleki 2020; Wang et al. 2018, eq. 17; Beirami et al. 2017,
    Theorem 1), for comparison with papers.  ``onefit.loo`` starts from it, and checks every row.

    Parameters
    ----------
    route : {"primal", "dual"}, default "primal"
        "dual" is section 3 of Wang et al. (2018), from the Jacobian of the proximal operator of the penalty:
        the same values (their Theorems 5.1 and 5.2) by another way, for smooth losses with one output and any
        penalty or constraint that has a proximal operator.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.preprocessing import scale
    >>> import onefit
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression(tol=1e-8, max_iter=1000).fit(scale(X), y)
    >>> est = onefit.evaluate(model, scale(X), y, onefit.risk.ALO())
    >>> round(est.value, 3), round(onefit.loo(model, scale(X), y).value, 3)
    (0.076, 0.076)
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 8))
    >>> y = X[:, :3].sum(axis=1) + rng.normal(size=60)
    >>> model = onefit.GeneralizedLinear("squared", onefit.penalties.LInfinity(20.0)).fit(X, y)
    >>> one, other = (onefit.evaluate(model, X, y, onefit.risk.ALO(route)) for route in ("primal", "dual"))
    >>> bool(abs(one.value / other.value - 1.0) < 1e-9)
    True
    """

    route: Literal["primal", "dual"] = "primal"

    def __post_init__(self) -> None:
        if self.route not in ("primal", "dual"):
            raise ValueError(f"route must be 'primal' or 'dual', got {self.route!r}")

    def of(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None = None
    ) -> Criterion:
        """Estimate the risk of a fit; parameters as for ``GCV.of``.

        Raises
        ------
        ValueError
            By ``route="dual"`` for a loss that is flat or has a kink at some row, for several outputs, for
            kernels, and where the penalty or the weights change when a row leaves.
        """
        eta = left_out_by_dual(left_out.fit) if self.route == "dual" else left_out.eta
        losses = response.losses(target, eta)
        training, _ = _training(left_out, response, target, weights)
        return Criterion("approximate leave-one-out", _mean(losses, weights), training, left_out.effective_df)


@dataclass(frozen=True)
class InfluenceFunction:
    """The infinitesimal jackknife: η_i + h_i g_i in place of η̃_i (Jaeckel 1972; Koh and Liang 2017).

    First order in the leverage, where leave-one-out divides by 1 − d_i h_i: it underestimates overfitting.
    ``LinearizedALO`` is first order in the loss instead: the two differ.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.InfluenceFunction())
    >>> est.value < onefit.loo(model, X, y).value
    True
    """

    def of(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None = None
    ) -> Criterion:
        """Estimate the risk of a fit; parameters as for ``GCV.of``."""
        fit = left_out.fit
        losses = response.losses(target, fit.eta + first_order_change(fit))
        training, _ = _training(left_out, response, target, weights)
        return Criterion("influence function", _mean(losses, weights), training, left_out.effective_df)


@dataclass(frozen=True)
class LinearizedALO:
    """ℓ_i + (∂ℓ_i/∂η)(η̃_i − η_i): the loss followed along its slope (Beirami et al. 2017, Lemma 3, eq. 12).

    The step is that of leave-one-out, as in ``ALO``, and the loss is its first-order expansion at the fit,
    which is below a convex loss.  ``InfluenceFunction`` is first order in the leverage instead.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(0.1).fit(X, y)
    >>> for risk in (onefit.risk.LinearizedALO(), onefit.risk.InfluenceFunction(), onefit.risk.ALO()):
    ...     print(round(onefit.evaluate(model, X, y, risk).value))
    3003
    3002
    3005
    """

    def of(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array | None = None
    ) -> Criterion:
        """Estimate the risk of a fit; parameters as for ``GCV.of``."""
        fit = left_out.fit
        along = response.slopes(target, fit.eta) * (left_out.eta - fit.eta)
        losses = response.losses(target, fit.eta) + along.reshape(len(along), -1).sum(axis=1)
        training, _ = _training(left_out, response, target, weights)
        return Criterion("linearised leave-one-out", _mean(losses, weights), training, left_out.effective_df)


def first_order_change(fit: Fit) -> Array:
    """h_i g_i, the derivative of a row's own predictor as its weight goes to zero: the shape of ``eta``."""
    forms = factor(fit).quadratic_forms()
    if forms.ndim == 3:
        return np.einsum("nab,nb->na", forms, fit.gradient)
    return (
        forms.reshape(len(forms), *(1,) * (fit.gradient.ndim - forms.ndim), *forms.shape[1:]) * fit.gradient
    )

"""In-sample criteria that stand for leaving rows out: GCV, Cp, one step, the infinitesimal jackknife.

They are here for comparison: all they need is a by-product of leave-one-out.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from onefit import _linalg
from onefit._typing import Array
from onefit.curvature import factor
from onefit.exceptions import UnreliableWarning
from onefit.fit import Fit
from onefit.leave_out.result import LeftOut
from onefit.metrics import LinearMetric
from onefit.risk.dual_route import left_out_by_dual
from onefit.risk.leverages import with_own_leverages
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


class InSample(ABC):
    """A risk from what leave-one-out knows of the training rows.

    A loss with kinks has no step that leads near its refits: a row on a kink moves by what its own slope says
    of a parabola that is not there (Wang et al. 2018, Theorem 4.1), and where nothing is curved none moves.
    """

    _name: ClassVar[str]
    _rests_on: ClassVar[str] = "takes one step from the fit"

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

        Raises
        ------
        ValueError
            Where the criterion is not for this fit, as its class says.

        Warns
        -----
        UnreliableWarning
            If the loss has kinks.
        """
        weights = np.ones(len(left_out.fit.eta)) if weights is None else weights
        left_out, training = at_fit(left_out, response, target, weights)
        value = self._value(left_out, response, target, weights, training)
        loss = left_out.fit.problem.loss
        if loss.has_kinks:
            warnings.warn(
                f"{self._name} {self._rests_on}, which may be far from any refit, since the loss "
                f"{type(loss).__name__} has kinks: take onefit.loo, or LeaveOneOut(), which look where each "
                "row ends",
                UnreliableWarning,
                stacklevel=3,
            )
        return Criterion(self._name, value, training, left_out.effective_df)

    @abstractmethod
    def _value(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array, training: float
    ) -> float:
        """The risk, where ``training`` is the mean loss of the training rows."""


def at_fit(left_out: LeftOut, response: LinearMetric, target: Array, weights: Array) -> tuple[LeftOut, float]:
    """What is left out with the leverages of the fit, and the mean loss of the training rows."""
    training = mean_and_error(response.losses(target, left_out.fit.eta), weights)[0]
    return with_own_leverages(left_out), training


class _OfRows(InSample):
    """The mean of a loss of each row after one step."""

    def _value(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array, training: float
    ) -> float:
        return mean_and_error(self._losses(left_out, response, target), weights)[0]

    @abstractmethod
    def _losses(self, left_out: LeftOut, response: LinearMetric, target: Array) -> Array:
        """Loss of each row: (n,)."""


@dataclass(frozen=True)
class GCV(InSample):
    """Generalised cross-validation: training loss / (1 − df/n)² (Golub, Heath and Wahba 1979).

    For other losses than the squared one the same with the deviance (Wood 2008).  df/n is the mean leverage
    as a share of the largest that there can be.  That is 1, for several targets too, whose df is the mean
    over them; c classes have c − 1 free outputs, over which df is summed, and it is df/(n (c − 1)).  Infinite
    where the fit has as many degrees of freedom as that allows.

    One mean stands for the leverages of all rows and the losses of all outputs, which is cruder than a step
    for each row: of classes above all, where loss and leverage differ most, ``ALO()`` and ``onefit.loo`` are
    closer to refits.  Of losses with kinks, as hinge and pinball, it may be far off, and a warning says so.

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

    _name = "GCV"
    _rests_on = "takes one mean leverage for the steps of all rows"

    def _value(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array, training: float
    ) -> float:
        problem = left_out.fit.problem
        most = np.count_nonzero(weights) * problem.loss.rank(problem.n_outputs)
        kept = 1.0 - left_out.effective_df / most
        return float(training / kept**2) if kept > 0 else np.inf


@dataclass(frozen=True)
class SURE(InSample):
    """Training error + 2 σ² df / n: Mallows' Cp, Stein's unbiased estimate of the in-sample risk.

    The degrees of freedom of the lasso are those of Zou, Hastie and Tibshirani (2007).  For squared error
    only.

    Parameters
    ----------
    noise_variance : float, optional
        σ²; RSS / (n − df) of the fit itself if missing, which needs n > df.

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

    _name = "SURE"

    noise_variance: float | None = None

    def __post_init__(self) -> None:
        if self.noise_variance is not None and not self.noise_variance >= 0:
            raise ValueError(f"noise_variance must be at least 0, got {self.noise_variance!r}")

    def _value(
        self, left_out: LeftOut, response: LinearMetric, target: Array, weights: Array, training: float
    ) -> float:
        if not left_out.fit.problem.loss.is_quadratic or response.loss_name != "squared error":
            raise ValueError("SURE is for squared error: take onefit.loo, or GCV()")
        df, n = left_out.effective_df, int(np.count_nonzero(weights))
        variance = self.noise_variance
        if variance is None:
            if df >= n:
                raise ValueError(f"the fit has {df:.0f} degrees of freedom on {n} rows: give noise_variance")
            variance = training * n / (n - df)
        return training + 2.0 * variance * df / n


@dataclass(frozen=True)
class ALO(_OfRows):
    """Approximate leave-one-out: one Newton step for each row, and nothing more.

    η_i + h_i g_i / (1 − d_i h_i) (Rad and Maleki 2020; Wang et al. 2018, eq. 17; Beirami et al. 2017,
    Theorem 1), for comparison with papers.  Beside a mean loss, as a lasso of scikit-learn has it, a refit
    keeps the share 1 − 1/n of the penalty: that is in the step and in h.  ``onefit.loo`` starts from it, and
    checks every row.  Of losses with kinks, as hinge and pinball, a row on a kink moves by g_i / T_ii (Wang
    et al. 2018, Theorem 4.1), not at all where nothing else is curved either, and a warning says so.

    Parameters
    ----------
    route : {"primal", "dual"}, default "primal"
        "dual" is section 3 of Wang et al. (2018), from the Jacobian of the proximal operator of the penalty:
        the same values (their Theorems 5.1 and 5.2) by another way, for smooth losses with one output and any
        penalty or constraint that has a proximal operator.  It refuses a loss that is flat or has a kink at
        some row, several outputs, kernels, and what changes the penalty or the weights when a row leaves.

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

    _name = "approximate leave-one-out"

    route: Literal["primal", "dual"] = "primal"

    def __post_init__(self) -> None:
        if self.route not in ("primal", "dual"):
            raise ValueError(f"route must be 'primal' or 'dual', got {self.route!r}")

    def _losses(self, left_out: LeftOut, response: LinearMetric, target: Array) -> Array:
        eta = left_out_by_dual(left_out.fit) if self.route == "dual" else left_out.eta
        return response.losses(target, eta)


@dataclass(frozen=True)
class InfluenceFunction(_OfRows):
    """The infinitesimal jackknife: η_i + h_i g_i in place of η̃_i (Jaeckel 1972; Koh and Liang 2017).

    First order in the leverage, where leave-one-out divides by 1 − d_i h_i: it underestimates overfitting.
    Rows on a kink of the loss do not move at first, and a warning says so.  ``LinearizedALO`` is first order
    in the loss instead: the two differ.

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

    _name = "influence function"

    def _losses(self, left_out: LeftOut, response: LinearMetric, target: Array) -> Array:
        fit = left_out.fit
        return response.losses(target, fit.eta + first_order_change(fit))


@dataclass(frozen=True)
class LinearizedALO(_OfRows):
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

    _name = "linearised leave-one-out"

    def _losses(self, left_out: LeftOut, response: LinearMetric, target: Array) -> Array:
        fit = left_out.fit
        along = response.slopes(target, fit.eta) * (left_out.eta - fit.eta)
        return np.asarray(response.losses(target, fit.eta) + along.reshape(len(along), -1).sum(axis=1))


def first_order_change(fit: Fit) -> Array:
    """h_i g_i, the derivative of a row's own predictor as its weight is taken off: the shape of ``eta``.

    0 of rows on a kink of the loss, which hold on to it.
    """
    forms = factor(fit).quadratic_forms()
    return _linalg.row_times(np.where(fit.pinned, 0.0, forms) if fit.pinned.any() else forms, fit.gradient)

"""What onefit warns of and what it refuses."""

from __future__ import annotations


class OnefitWarning(UserWarning):
    """Base class of every warning of this library.

    Examples
    --------
    >>> import warnings
    >>> import onefit
    >>> warnings.simplefilter("error", onefit.OnefitWarning)  # any of ours ends the program
    >>> warnings.resetwarnings()
    """


class NotOptimalWarning(OnefitWarning):
    """The fitted coefficients are not the minimum that they claim to be.

    The library polishes them to optimality before it reads anything from them; this warning says how
    far they moved.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     model = Lasso(alpha=0.1, max_iter=3).fit(X, y)
    ...     est = onefit.loo(model, X, y)
    >>> [one.category.__name__ for one in said]
    ['ConvergenceWarning', 'NotOptimalWarning']
    """


class UnreliableWarning(OnefitWarning):
    """A number is returned that should not be trusted; the message names the rows.

    Examples
    --------
    >>> import warnings
    >>> import onefit
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", onefit.UnreliableWarning)  # an error instead
    ...     # est = onefit.loo(model, X, y)
    """


class ShortPathWarning(OnefitWarning):
    """The risk still falls at an end of the strengths that were given.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_diabetes
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     model = onefit.LassoLOO(alphas=[1.5, 1.0]).fit(X, y)  # too strong
    >>> [one.category.__name__ for one in said]
    ['ShortPathWarning']
    """


class UnsupportedModelError(TypeError):
    """No formula is known for this estimator, or for one of its parameters.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> try:
    ...     onefit.loo(KNeighborsRegressor().fit(X, y), X, y)
    ... except onefit.UnsupportedModelError:
    ...     est = onefit.loo(KNeighborsRegressor().fit(X, y), X, y, audit=20, rng=0)  # by refits
    >>> est.audit.rows.shape
    (20,)
    """


class NotFittedToDataError(ValueError):
    """The data given are not the data that the model was fitted on.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> try:
    ...     onefit.loo(Lasso(alpha=0.1).fit(X, y), X, y[::-1])
    ... except onefit.NotFittedToDataError as error:
    ...     print(str(error)[:54])
    the coefficients of this Lasso are far from optimal on
    """


class SolverError(RuntimeError):
    """A solver of ours did not reach the optimum.

    Examples
    --------
    >>> import onefit
    >>> issubclass(onefit.SolverError, RuntimeError)
    True
    """

"""The estimator that a convex program is to scikit-learn and to ``onefit.loo``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from onefit import _linalg
from onefit._typing import Array
from onefit.convex_program.local import ProgramLoss, solution
from onefit.convex_program.program import SplitProgram
from onefit.convex_program.splitting import WrittenProgram, check_form
from onefit.exceptions import NotFittedToDataError
from onefit.fit import Fit
from onefit.metrics import HingeLoss, SquaredError
from onefit.readers import Reading, as_fit
from onefit.validation import check_choice, check_new_rows, check_rows, class_numbers

if TYPE_CHECKING:
    import cvxpy as cp

Kind = Literal["regressor", "classifier"]


def from_cvxpy(
    problem: cp.Problem,
    eta: cp.Expression,
    coef: cp.Variable,
    intercept: cp.Variable | None = None,
    kind: Kind = "regressor",
) -> ConvexProgram:
    """Make a model for ``onefit.loo`` of a convex program, a sum of losses over rows plus a penalty.

    What leaves with a row is its term of the loss; the rest of the program stays as it is, a factor 1/n
    included.  The program itself is not touched: a copy of it is solved to high accuracy (by Clarabel).

    Parameters
    ----------
    problem : cvxpy.Problem
        Minimises loss(eta) + penalty(coef), with constraints on the coefficients alone.  The loss is any
        convex sum over rows, the penalty anything convex.  Parameters must have values, which are taken over;
        by their names they are hyperparameters for ``GradientSearchCV``.
    eta : cvxpy.Expression of shape (n,) or (n, 1)
        The linear predictor X @ coef + intercept: the very object that the objective was written with.
    coef : cvxpy.Variable
        Of shape (p,), or a matrix: then columns of X are its entries in C order.
    intercept : scalar cvxpy.Variable, optional
        Neither penalised nor constrained.
    kind : {"regressor", "classifier"}, default "regressor"
        How ``onefit.loo(model, X, y)`` judges left-out predictions: of regressors by squared error, of
        classifiers, which have two classes, the larger with positive margins eta, by the hinge loss.

    Returns
    -------
    ConvexProgram

    Raises
    ------
    TypeError, ValueError
        If the program is not of this form, or not convex by cvxpy's rules; the message names the term.
    SolverError
        If it is infeasible, unbounded, or cannot be solved accurately.
    ImportError
        If cvxpy is not installed.

    Notes
    -----
    The local model is numerical, from 2p solutions of the penalty's proximal operator, so that no row is
    certified but those that were refitted, or leave nothing behind.  ``exact=True`` refits for all others;
    ``audit`` refits too, and needs rows of X that are all different.  The model cannot be pickled,
    its estimates can; refits run in one process.

    References
    ----------
    Wang, Zhou, Lu, Maleki and Mirrokni (2018), Approximate leave-one-out for fast parameter tuning in
    high dimensions, section 3.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import numpy as np
    >>> import onefit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 6))
    >>> y = X @ [0.0, 0.0, 1.0, 1.0, 1.0, 0.0] + 0.5 * rng.normal(size=50)
    >>> beta, b = cp.Variable(6), cp.Variable()
    >>> eta = X @ beta + b
    >>> loss = 0.5 * cp.sum_squares(y - eta)
    >>> problem = cp.Problem(cp.Minimize(loss + 3 * cp.tv(beta)), [beta >= 0])
    >>> model = onefit.from_cvxpy(problem, eta, coef=beta, intercept=b)
    >>> est = onefit.loo(model, X, y)
    >>> print(f"{est.value:.3f}, {est.effective_df:.1f} degrees of freedom")
    0.251, 3.0 degrees of freedom
    >>> a, c = cp.Parameter(nonneg=True, value=1.0, name="a"), cp.Parameter(nonneg=True, value=1.0, name="c")
    >>> problem = cp.Problem(cp.Minimize(loss + a * cp.tv(beta) + c * cp.norm1(beta)))
    >>> model = onefit.from_cvxpy(problem, eta, coef=beta, intercept=b)
    >>> bounds = {"a": (1e-1, 1e1, "log"), "c": (1e-3, 1e1, "log")}
    >>> search = onefit.GradientSearchCV(model, bounds, risk=onefit.risk.KFold(3), max_iter=3).fit(X, y)
    >>> sorted(search.best_params_)
    ['a', 'c']
    """
    check_choice("kind", kind, get_args(Kind))
    check_form(problem, eta, coef, intercept)
    written = WrittenProgram(problem, eta, coef, intercept)
    model = ConvexProgram(written, kind, written.values())
    return model._take(model.solution)


class ConvexProgram(BaseEstimator):
    """A solved convex program, as ``onefit.from_cvxpy`` makes it.

    Parameters
    ----------
    written : WrittenProgram
        The program as it was written.
    kind : {"regressor", "classifier"}
    values : dict
        Values of its parameters by name, which are hyperparameters: ``set_params`` changes them.

    Attributes
    ----------
    solution : Fit
        With all rows.
    coef_ : (p,) array
        Entries of the coefficients in C order.
    intercept_ : float
    X_ : (n, p) array
        The design that was read off eta: what ``onefit.loo`` expects as X.
    n_features_in_ : int
    """

    def __init__(
        self, written: WrittenProgram, kind: Kind = "regressor", values: Mapping[str, Any] | None = None
    ) -> None:
        self.written = written
        self.kind = kind
        self.values = written.values() if values is None else dict(values)

    def __sklearn_clone__(self) -> Self:
        copied = type(self)(self.written, self.kind, self.values)
        if "solution" in vars(self):
            copied.__dict__["solution"] = self.solution
        return copied

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Values of the parameters of the program by name."""
        return dict(self.values)

    def set_params(self, **params: Any) -> Self:
        """Change values of parameters.

        Raises
        ------
        ValueError
            If the program has no parameter of a name.
        """
        for name in params:
            if name not in self.values:
                known = ", ".join(self.values) or "none"
                raise ValueError(f"the program has no parameter {name!r}: it has {known}")
        if params:
            self.values |= params
            self.__dict__.pop("solution", None)
        return self

    @cached_property
    def solution(self) -> Fit:
        """The program solved with all rows."""
        return solution(self.written.at(self.values))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self.kind
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Solve the program on some of its rows.

        Parameters
        ----------
        X : (m, p) array
            Rows of the program, told by their values.
        y : ignored
            The program knows the responses.

        Raises
        ------
        NotFittedToDataError
            If a row is not one of the program, or if it cannot be told which one.
        """
        program, whole = self._program, self.solution
        if np.shape(X) == program.X.shape and np.array_equal(_linalg.as_columns(X).dense(), program.X):
            return self._take(whole)
        kept = np.zeros(program.n, dtype=bool)
        kept[program.numbers_of(X)] = True
        found = program.solve(kept, whole.eta)
        return self._take(Fit(whole.problem, found.coef, found.intercept))

    @property
    def _program(self) -> SplitProgram:
        loss = self.solution.problem.loss
        assert isinstance(loss, ProgramLoss)
        return loss.program

    def _take(self, fit: Fit) -> Self:
        self.coef_, self.intercept_, self.X_ = fit.coef, float(fit.intercept), self.solution.problem.X
        self.n_features_in_ = len(fit.coef)
        return self

    def decision_function(self, X: Any) -> Array:
        """Linear predictors: (m,)."""
        return _linalg.times(check_new_rows(self, X), self.coef_) + self.intercept_

    @available_if(lambda model: model.kind == "regressor")
    def predict(self, X: Any) -> Array:
        """Linear predictors: (m,)."""
        return self.decision_function(X)


@as_fit.register(ConvexProgram)
def _read(model: ConvexProgram, X: Any, y: Any, sample_weight: Any) -> Reading:
    if sample_weight is not None:
        raise ValueError("a convex program has its weights in the loss: leave sample_weight out")
    program = model._program
    if len(y) != program.n:
        raise ValueError(f"y has {len(y)} values, but eta has {program.n}: one for each row")
    is_classifier = model.kind == "classifier"
    X, y = check_rows(model, X, y, numeric=not is_classifier)
    if not np.allclose(
        _linalg.as_columns(X).dense(), program.X, rtol=1e-9, atol=1e-9 * np.abs(program.X).max(initial=0.0)
    ):
        raise NotFittedToDataError(
            "X is not the matrix that eta was written with: pass that one, or the copy in model.X_"
        )
    fit = model.solution
    if not is_classifier:
        return Reading(fit, SquaredError(), y)
    classes = np.unique(y)
    if len(classes) != 2:
        raise ValueError(f"a classifier of margins has 2 classes, but y has {len(classes)}")
    target = class_numbers(y, classes).astype(np.float64)
    return Reading(fit, HingeLoss(classes), target, classes=classes)

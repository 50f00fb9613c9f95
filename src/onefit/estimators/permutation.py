"""Regression that regularises itself by permutations of its own response: no row is ever left out."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.estimators.linear_model import LinearModel
from onefit.exceptions import NotOptimalWarning, UnreliableWarning
from onefit.losses import Loss, Squared
from onefit.risk.permutation import (
    draw_permutations,
    gains,
    p_value,
    permuted_targets,
    varying_outputs,
)
from onefit.tuning.closed_form import FAMILIES, Family
from onefit.tuning.optimizers import Minimum
from onefit.tuning.permutation_descent import bounded_bfgs, papers_adam
from onefit.tuning.ridge_coordinates import CentredDesign, RidgeCoordinates, coordinates
from onefit.validation import check_choice, check_count, check_positive

INITIAL_LAMBDA = 1e3  # the paper's table 1


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of positive weight, and what scales their response back."""

    design: CentredDesign
    y: Array  # (n, t)

    @property
    def level(self) -> Array:
        """Mean of each output, or 0: (t,)."""
        return self.design.level(self.y)

    @property
    def varies(self) -> Mask:
        return varying_outputs(self.y, self.design.weights, centred=self.design.centred)

    @property
    def lengths(self) -> Array:
        """How long each output is for one of the same share in a target of length 1: (t,)."""
        squares = np.einsum("i,it->t", self.design.weights, (self.y - self.level) ** 2)
        return np.sqrt(squares * max(1, self.varies.sum()))


@dataclass(eq=False, repr=False)
class PermutationRegressor(SelectorMixin, LinearModel):
    """Linear regression that is regularised by permutations of its response, without validation data.

    The parameters θ of a closed-form family β(θ, X, Y) minimise the BKK criterion of Lounici, Meziani and Riu
    (2020, eq. 5), where Y is centred and scaled, ‖·‖ is the root mean square and the π_t are T random
    permutations of the rows:

        ‖Y − Xβ(θ, X, Y)‖ + (1/T) Σ_t | 1 − ‖π_t(Y) − Xβ(θ, X, π_t(Y))‖ |

    The family is ridge (BKK, eq. 8), ridge on columns that are each multiplied by a number s_j in (0, 1)
    (SBKK, definition 1), or a mixture of the two (ABKK, definition 2).  All T + 1 fits are solved together;
    gradients are in closed form.  The columns should have comparable scales: the paper's start is made for
    standardised ones.

    Stands in for ``RidgeCV`` (and, with ``structure="sparse"``, for ``LassoCV``) where rows are too few to
    hold any out.  What differs: no row is left out, so that there is no ``loo_``; ``p_value_`` says whether
    there is any signal.

    Parameters
    ----------
    structure : {"ridge", "sparse", "aggregate"}, default "ridge"
    n_permutations : int, default 30
        T.  With 0 the criterion is the training error, and the fit overfits (the paper's figure 3).  If there
        are no more than this many permutations of the rows, all are taken, once each.
    optimizer : {"adam", "lbfgs"}, default "adam"
        The paper's Adam (table 1: steps of 0.5, β₁ = 0.5, β₂ = 0.9), which stops after a step that changes
        the criterion by less than ``tol``; or L-BFGS, which goes on to the minimum.  λ and κ are moved in
        their logarithm.  The criterion is not convex: that of ridge may have a second minimum, close to
        interpolation, and those of "sparse" and "aggregate" have many, so that the two optimizers may end in
        different ones.
    initial_lambda : float, optional
        Where λ starts.  By default at 10³ for Adam (table 1).  L-BFGS would not leave a place so far above
        the eigenvalues of XᵀX that nothing changes there: it starts at the largest eigenvalue, and for ridge
        at the first minimum on a grid of strengths, counted from the strongest.
    learning_rate : float, default 0.5
        For Adam.
    max_iter : int, default 1000
    tol : float, optional
        By default 1e-4 for Adam, as in the paper, and 1e-9 for L-BFGS.
    threshold : float, default 0.1
        A column counts as selected if at least this share of what is let through of the most favoured
        column is let through of it.
    fit_intercept : bool, default True
    random_state : int, RandomState or None, default None
        Of the permutations.

    Attributes
    ----------
    coef_ : (p,) or (t, p) array
        β(θ) at the fitted parameters.  An s_j is small but seldom exactly 0, so coefficients are too;
        ``transform`` keeps the selected columns only.
    intercept_ : float or (t,) array
    lambda_ : float
        Strength, on the scale of ``sklearn.linear_model.Ridge(alpha)``.
    kappa_ : float or None
    gamma_ : (p,) array or None
        Parameters of s (None for ridge).
    mu_ : float or None
        The mixture is σ(μ) ridge + (1 − σ(μ)) sparse (None except for "aggregate").
    scaling_ : (p,) array
        Share of each column that is let through: 1 for ridge, s_j, or σ(μ) + (1 − σ(μ)) s_j.
    support_ : (p,) bool array
        ``scaling_ >= threshold * scaling_.max()``.
    criterion_path_ : (n_iter_ + 1,) array
        The criterion at the start and after each iteration.
    n_iter_ : int
    n_permutations_ : int
        How many permutations were used.
    p_value_ : float
        Of the test that X says nothing about y; see the notes.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.

    Notes
    -----
    The parameters are chosen so that y is fitted well and its permutations are not.  Comparing the fits at
    these parameters therefore favours y, even with fresh permutations: for "sparse" on 30 rows of pure noise
    in 10 columns, that "finds" something at the 5 % level three times in ten.  ``p_value_`` treats all T + 1
    targets alike: for each of them, the smallest ridge criterion over a grid of strengths that depends on X
    only, with this target as the response and the others as its permutations; p is the share of targets that
    do at least as well as y, itself included.  If the rows of y are exchangeable given X (and the weights),
    then P(p ≤ a) ≤ a, for any n and T.  The smallest possible value is 1/(T + 1): take
    ``n_permutations=999`` for small ones.  The test is that of ridge for every structure: it asks whether
    there is anything to be found, not whether the selected columns are right.

    A smaller criterion is not always a better model.  With hardly more rows than columns and little signal,
    its minimum may lie close to interpolation, or at columns that were selected by chance, and a strength
    chosen by leave-one-out (``RidgeLOO``) predicts better.

    Several outputs share θ; a row moves as a whole, and ‖·‖ is taken over all outputs, each scaled to the
    same variance.  Weights stay with the rows of X, and each permuted response is centred and scaled by its
    own weighted moments; rows of weight 0 take no part.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from onefit.estimators.permutation import PermutationRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = PermutationRegressor("sparse", random_state=0).fit(scale(X), y)
    >>> model.n_iter_ < 100, round(model.p_value_, 3)
    (True, 0.032)
    >>> model.transform(X).shape[1] == int(model.support_.sum())
    True
    """

    structure: Literal["ridge", "sparse", "aggregate"] = "ridge"
    n_permutations: int = 30
    _: KW_ONLY
    optimizer: Literal["adam", "lbfgs"] = "adam"
    initial_lambda: float | None = None
    learning_rate: float = 0.5
    max_iter: int = 1000
    tol: float | None = None
    threshold: float = 0.1
    fit_intercept: bool = True
    random_state: Any = None

    _several_targets = True

    def _loss(self, n_classes: int) -> Loss:
        return Squared()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find the parameters and the coefficients.

        Parameters
        ----------
        X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,) or (n, t)
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        PermutationRegressor
            Itself.
        """
        self._check_parameters()
        X, _, y, weights = self._check(X, y, sample_weight)
        rows = self._rows(X, y, weights)
        with _linalg.one_thread_if_small(X):
            coef, level = self._fit(rows)
        self.coef_ = coef if y.ndim == 2 else coef[0]
        self.intercept_ = level if y.ndim == 2 else float(level[0])
        return self

    def _rows(self, X: Design, y: Array, weights: Array) -> _Rows:
        y = y.reshape(len(y), -1)
        held = np.flatnonzero(weights > 0)
        if len(held) < 2:
            raise ValueError("a fit needs at least 2 rows of positive weight, sample_weight has 1")
        if len(held) < len(y):
            X, y, weights = _linalg.some_rows(X, held), y[held], weights[held]
        return _Rows(CentredDesign(X, weights, bool(self.fit_intercept)), y)

    def _fit(self, rows: _Rows) -> tuple[Array, Array]:
        """Set all other fitted attributes; return coefficients (t, p) and intercepts (t,)."""
        orders = self._draw(len(rows.y))
        design = rows.design
        targets = permuted_targets(rows.y, design.weights, orders, centred=design.centred)
        space = coordinates(design, targets)
        family = FAMILIES[self.structure](space)
        start = family.start(self._start(space))
        if np.any(rows.varies):
            minimum = self._minimised(family, start)
            self.p_value_ = p_value(gains(space.grid_norms))
            self._warn(minimum)
        else:
            minimum = Minimum(start, 1.0, np.zeros_like(start), np.ones(1), True, "y is constant")
            self.p_value_ = 1.0
            warnings.warn(
                "y is constant: there is nothing to explain, and all coefficients are 0",
                UnreliableWarning,
                stacklevel=3,
            )
        self._take_parameters(minimum, family, space)
        coef = family.coefficients(minimum.t).T * rows.lengths[:, None]
        return coef, rows.level - coef @ design.means

    def _draw(self, n: int) -> Index:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return draw_permutations(n, self.n_permutations, np.random.default_rng(seed))

    def _start(self, space: RidgeCoordinates) -> float:
        if self.initial_lambda is not None:
            return float(self.initial_lambda)
        if self.optimizer == "adam":
            return INITIAL_LAMBDA
        return space.next_to_the_null_model() if self.structure == "ridge" else space.scale

    def _minimised(self, family: Family, start: Array) -> Minimum:
        settings: dict[str, Any] = {"max_iter": self.max_iter}
        if self.tol is not None:
            settings["tol"] = self.tol
        if self.optimizer == "adam":
            return papers_adam(family, start, learning_rate=self.learning_rate, **settings)
        return bounded_bfgs(family, start, **settings)

    def _take_parameters(self, minimum: Minimum, family: Family, space: RidgeCoordinates) -> None:
        """Set the fitted attributes that the parameters determine."""
        theta = minimum.t
        self.lambda_ = float(np.exp(theta[0]))
        self.kappa_ = None if self.structure == "ridge" else float(np.exp(theta[1]))
        self.gamma_ = None if self.structure == "ridge" else theta[2 : 2 + self.n_features_in_].copy()
        self.mu_ = float(theta[-1]) if self.structure == "aggregate" else None
        self.scaling_ = family.selection(theta)
        self.support_ = self.scaling_ >= self.threshold * self.scaling_.max()
        self.criterion_path_ = minimum.values
        self.n_iter_ = minimum.n_iter
        self.n_permutations_ = space.targets.shape[1] - 1

    def _warn(self, minimum: Minimum) -> None:
        if not minimum.converged:
            warnings.warn(
                f"the criterion was still changing after {minimum.n_iter} iterations: raise max_iter or tol",
                NotOptimalWarning,
                stacklevel=4,
            )

    def _check_parameters(self) -> None:
        check_choice("structure", self.structure, FAMILIES)
        check_choice("optimizer", self.optimizer, ("adam", "lbfgs"))
        check_count("n_permutations", self.n_permutations, 0)
        check_count("max_iter", self.max_iter)
        check_positive("learning_rate", self.learning_rate)
        check_positive("threshold", self.threshold)
        if self.threshold > 1:
            raise ValueError(f"threshold must lie in (0, 1], got {self.threshold!r}")
        for name in ("tol", "initial_lambda"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def _get_support_mask(self) -> Mask:
        check_is_fitted(self)
        return self.support_

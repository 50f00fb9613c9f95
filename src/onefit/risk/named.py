"""Risks by name: how rows are left out, or which in-sample criterion stands for that.

They are plain descriptions; ``onefit.evaluate(model, X, y, risk)`` carries them out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from onefit.leave_out.sets import Folds
from onefit.risk import folds
from onefit.risk.criteria import ALO, GCV, SURE, InfluenceFunction, InSample, LinearizedALO
from onefit.validation import check_count, check_flag, check_inside, check_rng


class Splits(ABC):
    """Sets of rows that are left out in turn.

    ``approximate=True`` takes steps from one fit, ``False`` solves without each set.
    """

    approximate: bool

    @abstractmethod
    def splits(self, n: int) -> Any:
        """What ``onefit.loo`` takes as ``groups`` for n rows: None for single rows."""


@dataclass(frozen=True)
class LeaveOneOut(Splits):
    """Every row on its own.

    Parameters
    ----------
    approximate : bool, default True

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.LeaveOneOut())
    >>> est.value == onefit.loo(model, X, y).value
    True
    """

    approximate: bool = True

    def splits(self, n: int) -> None:
        return None


@dataclass(frozen=True, eq=False)
class LeaveGroupOut(Splits):
    """Every group of rows on its own.

    Parameters
    ----------
    groups : array-like of shape (n,)
    approximate : bool, default True

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> import numpy as np
    >>> groups = np.arange(len(y)) // 10  # ten rows in a row
    >>> est = onefit.evaluate(model, X, y, onefit.risk.LeaveGroupOut(groups))
    >>> est.losses.shape
    (442,)
    """

    groups: Any
    approximate: bool = True

    def __post_init__(self) -> None:
        if self.groups is None:
            raise ValueError("groups must have one value a row, got None")

    def splits(self, n: int) -> Any:
        return self.groups


@dataclass(frozen=True)
class KFold(Splits):
    """K folds of about equal size.

    Parameters
    ----------
    n_splits : int, default 5
    approximate : bool, default True
    shuffle : bool, default False
        Whether the folds are drawn at random; else they are runs of rows.
    random_state : int, optional
        Of the draw.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.KFold(10))
    >>> est.guarantee
    'exact'
    """

    n_splits: int = 5
    approximate: bool = True
    shuffle: bool = False
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_count("n_splits", self.n_splits, 2)
        check_flag("shuffle", self.shuffle)
        check_rng(self.random_state, "random_state")

    def splits(self, n: int) -> Folds:
        seed = np.random.default_rng(self.random_state) if self.shuffle else None
        return folds.k_fold(n, self.n_splits, seed)


@dataclass(frozen=True)
class MonteCarlo(Splits):
    """Random splits into training and test rows (2019 paper, section 2).

    Parameters
    ----------
    n_splits : int, default 128
    train_size : float, default 0.95
        Share of the rows that is trained on.
    approximate : bool, default True
    random_state : int, optional

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> risk = onefit.risk.MonteCarlo(20, train_size=0.8, random_state=0)
    >>> est = onefit.evaluate(model, X, y, risk)
    >>> est.rows.shape  # 88 test rows each
    (1760,)
    """

    n_splits: int = 128
    train_size: float = 0.95
    approximate: bool = True
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_count("n_splits", self.n_splits)
        check_inside("train_size", self.train_size)
        check_rng(self.random_state, "random_state")

    def splits(self, n: int) -> Folds:
        return folds.monte_carlo(n, self.n_splits, self.train_size, self.random_state)


@dataclass(frozen=True)
class LeaveQOut(Splits):
    """Random sets of q rows (Beirami et al. 2017, leave-q-out).

    Parameters
    ----------
    q : int
    n_draws : int, default 200
    approximate : bool, default True
    random_state : int, optional

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.LeaveQOut(5, n_draws=100, random_state=0))
    >>> est.rows.shape
    (500,)
    """

    q: int
    n_draws: int = 200
    approximate: bool = True
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_count("q", self.q)
        check_count("n_draws", self.n_draws)
        check_rng(self.random_state, "random_state")

    def splits(self, n: int) -> Folds:
        return folds.leave_q_out(n, self.q, self.n_draws, self.random_state)


@dataclass(frozen=True)
class HeldOut(Splits):
    """One random set of test rows.

    Parameters
    ----------
    test_size : float, default 0.25
        Its share of the rows.
    approximate : bool, default True
    random_state : int, optional

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = Ridge(alpha=0.1).fit(X, y)
    >>> est = onefit.evaluate(model, X, y, onefit.risk.HeldOut(0.25, random_state=0))
    >>> est.losses.shape
    (110,)
    """

    test_size: float = 0.25
    approximate: bool = True
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_inside("test_size", self.test_size)
        check_rng(self.random_state, "random_state")

    def splits(self, n: int) -> Folds:
        return folds.held_out(n, self.test_size, self.random_state)


@dataclass(frozen=True)
class Permutation:
    """No data held out: fit the response, and do no better than a constant on permuted ones.

    L/L₀ + (1/T) Σ_t |1 − L_t/L₀|, with the training loss L of the fit, that of a constant model, and those
    of fits to T random permutations of the response; square roots of both for squared error, which is the
    criterion of Lounici, Meziani and Riu (2020, eq. 5).  Other losses, log-loss against the base rate among
    them, are our extension.  For ``GradientSearchCV`` and ``evaluate``.

    Parameters
    ----------
    n_permutations : int, default 30
    random_state : int, optional

    References
    ----------
    Lounici, Meziani and Riu (2020), Optimizing generalization on the train set, eq. 5.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.preprocessing import scale
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> risk = onefit.risk.Permutation(20, random_state=0)
    >>> search = onefit.GradientSearchCV(Ridge(), {"alpha": (1e-2, 1e5)}, risk=risk).fit(scale(X), y)
    >>> 1e-2 < search.best_params_["alpha"] < 1e5
    True
    """

    n_permutations: int = 30
    random_state: int | None = None

    def __post_init__(self) -> None:
        check_count("n_permutations", self.n_permutations)
        check_rng(self.random_state, "random_state")


@dataclass(frozen=True, eq=False)
class Split(Splits):
    """The splits of a scikit-learn splitter, or of a list of (train, test) pairs.

    Parameters
    ----------
    cv : object with ``split``, or iterable of (train, test)
    approximate : bool, default True

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import ShuffleSplit
    >>> import onefit
    >>> X, y = load_diabetes(return_X_y=True)
    >>> splits = onefit.risk.Split(ShuffleSplit(5, test_size=0.2, random_state=0))
    >>> onefit.evaluate(Ridge(alpha=0.1).fit(X, y), X, y, splits).rows.shape
    (445,)
    """

    cv: Any
    approximate: bool = True

    def splits(self, n: int) -> Any:
        return self.cv


__all__ = [
    "ALO",
    "GCV",
    "SURE",
    "HeldOut",
    "InSample",
    "InfluenceFunction",
    "KFold",
    "LeaveGroupOut",
    "LeaveOneOut",
    "LeaveQOut",
    "LinearizedALO",
    "MonteCarlo",
    "Permutation",
    "Split",
    "Splits",
]

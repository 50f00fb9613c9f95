"""Penalties of any module tuned through the optimal value of its training problem."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from onefit._progress import progress_line
from onefit._typing import Array
from onefit.estimators import GeneralizedLinear
from onefit.exceptions import UnreliableWarning
from onefit.torch.numerics.devices import as_device
from onefit.torch.numerics.optimizers import Adam, Descent, Lbfgs
from onefit.torch.numerics.rows import trained_parameters
from onefit.torch.value_function.checking import SearchCheck
from onefit.torch.value_function.kriging import Kriging
from onefit.torch.value_function.levels import Levels, SearchBox, Solved
from onefit.torch.value_function.linear_levels import LinearLevels
from onefit.torch.value_function.module_levels import (
    Loss,
    ModuleLevels,
    Penalty,
    SumOfSquares,
    as_data,
    state_of,
)
from onefit.torch.value_function.rounds import Outcome, Report, Run, Store, is_worse
from onefit.validation import check_count, check_positive

__all__ = ["Losses", "ValueFunctionSearch"]

OF_MODULES = ("loss", "penalties", "validation_loss", "batch_size", "dtype")
DECISIVE = (
    *("n_rounds", "weight", "multiplier", "growth", "slopes", "max_iter", "tol", "batch_size"),
    *("learning_rate", "n_samples", "n_jobs", "check_rounds", "warm_start"),
)  # settings that the results depend on


class Losses(NamedTuple):
    """Losses on some data.

    Attributes
    ----------
    joint : float
        Of the weights that were fitted jointly with λ*.
    retrained : float
        Of the weights retrained at λ* on the training data alone.
    """

    joint: float
    retrained: float


@dataclass(eq=False, repr=False)
class ValueFunctionSearch(BaseEstimator):
    """Search for the strengths of the penalties of a model, without gradients of the training in them.

    φ(λ) = min_w f(λ, w), the optimal value of the training problem, is computed at a few λ and interpolated
    by Kriging.  Then λ and w are found together: minimise the validation loss F(w) subject to
    f(λ, w) = φ̂(λ), by an augmented Lagrangian.  No second derivatives, and the training may have many optima.
    After each round, λ is checked by weights that are retrained there.  Source: A gradient-based bilevel
    optimization approach for tuning hyperparameters in machine learning (2020), algorithm 1, eqs 2 to 4; the
    check is ours.

    Parameters
    ----------
    module : torch.nn.Module or GeneralizedLinear
        It is copied, not changed.  A linear model is solved exactly in both levels.
    loss : callable(output, target) -> scalar tensor
        Training loss of a module.  With batches, a mean over rows.  A linear model has its own: the sum of
        its loss over the rows.
    penalties : dict of str to callable(module) -> scalar tensor, or to str
        R_k by name; f = loss + Σ λ_k R_k.  A text stands for the sum of squares of the parameters whose names
        match it: ``"*"`` for all, ``"0.*"`` for those of the first layer, ``"*weight"`` without biases;
        those that are frozen (``requires_grad=False``) do not count.  Of modules only.
    bounds : dict of str to (float, float)
        Range of each λ_k.  Of a linear model "penalty__alpha", and others that the penalty is linear in.
    scale : {"log", "linear"}, default "log"
        λ = exp(ξ) with ξ in a box, or λ itself.
    validation_loss : callable(output, target) -> scalar tensor, optional
        ``loss`` if not given; of a linear model its mean loss.  How tightly the constraint holds depends on
        the scale of f beside that of F: a training loss that is a sum over rows holds it tighter than a mean
        does, and λ* is then closer to the best λ for weights that see training data only.
    n_samples : int, optional
        Inner solves: by default 10 for one strength (a grid), 25 for each of several (a Latin hypercube).
    n_rounds : int, default 4
    weight, multiplier, growth : float, defaults 2.0, 2.0, 1.5
        R₀, μ₀ and η: μ grows by R (f − φ̂) and R by the factor η after each round.  The defaults are those of
        the paper.
    slopes : bool, default True
        Interpolate φ with its slopes R_k(w(λ)), which come for free; False is the Kriging of the paper.
    check_rounds : bool, default True
        Retrain on the training data at λ of each round, which gives φ̂ one more sample.  Once the validation
        loss is clearly above the best so far, as it is where a network can fit training and validation rows
        at once, what is left of the rounds is spent on minima of a Kriging of the validation losses; λ* is
        the best of all λ that were trained at.  False is the algorithm of the paper, whose last round has λ*.
    warm_start : bool, default True
        Begin a solve with the best of the weights that were found at other λ.  False: with those that the
        module comes with, so that λ* is chosen for weights which are trained from there.
    max_iter : int, default 2000
        Iterations of L-BFGS on all rows, or epochs of Adam on batches, in each solve and each round.
    tol : float, default 1e-8
        Largest entry of the gradient at which L-BFGS stops.
    batch_size : int, optional
        Rows in a batch; all at once if not given.  A single row that is left goes with the batch before it.
        Needed where the module has dropout, which L-BFGS
        evaluates without.  Solves on batches are inexact, and φ̂ and λ* with them.
    learning_rate : float, default 1e-3
        Of Adam; it falls to zero.
    dtype : torch.dtype, optional
        float64 without batches, else that of the module.
    checkpoint : str or Path, optional
        Folder in which each inner solve and each round is saved.  The same search goes on from there.
    n_jobs : int, optional
        Inner solves at a time (joblib).  On a GPU each process needs seconds for a context of its own.
    callback : callable(stage, done, total), optional
        Stage is "solve", "round" or "interpolate".
    device : str or torch.device, default "cpu"
        Of modules; linear models are solved on the host.
    random_state : int or RandomState, default 0
        Of the design, the batches and dropout.

    Attributes
    ----------
    lambda_ : dict of str to float
        λ*.
    origin_ : {"sample", "round", "interpolation"}
        What λ* comes from.
    module_ : torch.nn.Module or GeneralizedLinear
        Retrained at λ* on the training data.
    joint_module_ : torch.nn.Module or GeneralizedLinear
        Fitted jointly with λ*.  It has seen the validation data: its validation loss is not comparable.
    strengths_ : (L, m) array
        Where weights were trained on the training data: the samples, and then what was checked.
    values_, validation_losses_ : (L,) arrays
        φ and F there.
    surrogate_ : Kriging
        φ̂ on the unit cube.
    rounds_ : tuple of Round
    n_solves_ : int
        Trainings on the training data, and joint ones.
    training_loss_, validation_loss_ : Losses
        f(λ*, w) and F(w) of both modules.
    check_ : SearchCheck
        Validation losses ``retrained``, ``joint``, ``initial`` (of the module as it was given) and ``linear``
        (of ridge or logistic regression); a warning says where the simpler ones are better.

    Examples
    --------
    >>> import torch
    >>> from onefit.torch import ValueFunctionSearch
    >>> _ = torch.manual_seed(0)
    >>> X, coef = torch.randn(60, 5), torch.tensor([[1.0], [0.5], [0.0], [0.0], [0.0]])
    >>> y = X @ coef + torch.randn(60, 1)
    >>> search = ValueFunctionSearch(
    ...     torch.nn.Linear(5, 1),
    ...     torch.nn.MSELoss(reduction="sum"),
    ...     penalties={"ridge": "weight"},
    ...     bounds={"ridge": (1e-2, 1e3)},
    ...     validation_loss=torch.nn.MSELoss(),
    ... )
    >>> search = search.fit(X[:30], y[:30], X[30:], y[30:])
    >>> bool(1.0 < search.lambda_["ridge"] < 100.0)
    True
    >>> bool(search.validation_loss_.retrained <= search.validation_losses_.min())
    True

    A linear model has its loss and its penalty with it.

    >>> import onefit
    >>> model = onefit.GeneralizedLinear("squared", onefit.penalties.L2())
    >>> exact = ValueFunctionSearch(model, bounds={"penalty__alpha": (1e-2, 1e3)})
    >>> exact = exact.fit(X[:30], y[:30, 0], X[30:], y[30:, 0])
    >>> bool(1.0 < exact.lambda_["penalty__alpha"] < 100.0)
    True
    """

    module: nn.Module | GeneralizedLinear
    loss: Loss | None = None
    penalties: Mapping[str, Penalty | str] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None
    _: KW_ONLY
    scale: Literal["log", "linear"] = "log"
    validation_loss: Loss | None = None
    n_samples: int | None = None
    n_rounds: int = 4
    weight: float = 2.0
    multiplier: float = 2.0
    growth: float = 1.5
    slopes: bool = True
    check_rounds: bool = True
    warm_start: bool = True
    max_iter: int = 2000
    tol: float = 1e-8
    batch_size: int | None = None
    learning_rate: float = 1e-3
    dtype: torch.dtype | None = None
    checkpoint: str | Path | None = None
    n_jobs: int | None = None
    callback: Report | None = None
    device: str | torch.device = "cpu"
    random_state: Any = 0

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Search.

        Parameters
        ----------
        X, y : tensors or arrays with n rows
            Training data.
        X_val, y_val : tensors or arrays
            Validation data, which must be given.
        """
        self._check_settings()
        _check_held(X_val=X_val, y_val=y_val)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        levels = self._levels(X, y, X_val, y_val)
        store = Store.opened(self.checkpoint, self._key(levels, seed))
        design = levels.space.design(self.n_samples, seed)
        run = Run(levels, store, seed, self.n_jobs, self.warm_start, self._reporter(len(design)))
        run.sample(design)
        weights = [self.weight * self.growth**number for number in range(self.n_rounds)]
        outcome = run.rounds(self._interpolated, weights, self.multiplier, checks=self.check_rounds)
        self._keep(run, outcome)
        self._warn()
        return self

    # --- what was given ------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        """Refuse settings out of their range."""
        for name, least in (("n_rounds", 1), ("max_iter", 1), ("n_samples", 3), ("batch_size", 1)):
            if name in ("n_rounds", "max_iter") or getattr(self, name) is not None:
                check_count(name, getattr(self, name), least)
        for name in ("weight", "multiplier", "growth", "learning_rate"):
            check_positive(name, getattr(self, name))

    def _levels(self, *data: Any) -> Levels:
        """Both levels: those of a linear model are solved exactly."""
        if isinstance(self.module, nn.Module):
            return self._modular(*data)
        if not isinstance(self.module, GeneralizedLinear):
            raise TypeError(
                f"module must be a torch.nn.Module or a GeneralizedLinear, got {type(self.module).__name__}"
            )
        for name in OF_MODULES:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for modules: a GeneralizedLinear has its own loss and penalty, and is solved "
                    "on all rows"
                )
        plan = {"max_iter": self.max_iter, "tol": self.tol}
        return LinearLevels.of(self.module, data, self.bounds, self.scale, **plan)

    def _modular(self, X: Any, y: Any, X_val: Any, y_val: Any) -> ModuleLevels:
        """Check what was given for a module."""
        like = trained_parameters(self.module)[0].dtype
        if self.loss is None:
            raise ValueError("loss must be given for a module")
        if not isinstance(self.penalties, Mapping) or not self.penalties:
            raise ValueError("penalties must be a dictionary of names and penalties, at least one")
        functions = {"loss": self.loss, "validation_loss": self.validation_loss or self.loss}
        texts = {f"penalties[{name!r}]": one for name, one in self.penalties.items()}
        for name, one in (functions | texts).items():
            if not callable(one) and not (name in texts and isinstance(one, str)):
                raise TypeError(f"{name} must be a function that returns a tensor, got {one!r}")
        if self.dtype is not None and not isinstance(self.dtype, torch.dtype):
            raise TypeError(f"dtype must be one of torch, such as torch.float32, got {self.dtype!r}")
        device, dtype = (
            as_device(self.device),
            self.dtype or (torch.float64 if self.batch_size is None else like),
        )
        train = as_data("X and y", X, y, device, dtype)
        held = as_data("X_val and y_val", X_val, y_val, device, dtype)
        if self.batch_size is None:
            descent: Descent = Lbfgs(self.max_iter, self.tol)
        else:
            sizes = len(train.X), len(held.X)
            descent = Adam(self.max_iter, self.batch_size, self.learning_rate, sizes)
        module = copy.deepcopy(self.module).to(device, dtype).eval()
        levels = ModuleLevels(
            module,
            self.loss,
            self.validation_loss or self.loss,
            tuple(SumOfSquares(one) if isinstance(one, str) else one for one in self.penalties.values()),
            SearchBox.of(self.penalties, self.bounds, self.scale),
            train,
            held,
            descent,
            state_of(module),
        )
        levels.check()
        return levels

    # --- what came of it -----------------------------------------------------------------------------

    def _interpolated(self, solved: list[Solved]) -> Kriging:
        x, values = np.array([one.unit for one in solved]), np.array([one.value for one in solved])
        return Kriging.fit(x, values, np.array([one.slopes for one in solved]) if self.slopes else None)

    def _key(self, levels: Levels, seed: int) -> str:
        settings = [getattr(self, name) for name in DECISIVE]
        digest = hashlib.sha256(repr((levels.space, settings, seed)).encode())
        digest.update(levels.key)
        return digest.hexdigest()

    def _reporter(self, n_samples: int) -> Report:
        show, total = progress_line(type(self).__name__), n_samples + self.n_rounds
        before = {"solve": 0, "round": n_samples}

        def report(stage: str, done: int, of: int) -> object:
            show(before.get(stage, total - of) + done, total)
            return self.callback(stage, done, of) if self.callback is not None else None

        return report

    def _keep(self, run: Run, outcome: Outcome) -> None:
        levels, best, joint = run.levels, outcome.best, outcome.joint
        self.strengths_ = np.array([levels.space.listed(one.unit) for one in run.solved])
        self.values_ = np.array([one.value for one in run.solved])
        self.validation_losses_ = np.array([one.validation for one in run.solved])
        self.rounds_, self.origin_, self.surrogate_ = outcome.rounds, outcome.origin, outcome.surrogate
        self.n_solves_ = len(run.solved) + run.n_descents
        self.lambda_ = dict(zip(levels.space.names, levels.space.listed(best.unit), strict=True))
        self.training_loss_ = Losses(levels.training(*joint), best.value)
        self.validation_loss_ = Losses(levels.validation(joint.state), best.validation)
        self.module_ = levels.model(best.unit, best.state)
        self.joint_module_ = levels.model(*joint)
        self._judge = levels.judge
        initial = levels.validation(levels.start)
        self.check_ = SearchCheck(best.validation, self.validation_loss_.joint, initial, levels.linear())

    def _warn(self) -> None:
        """Warn if weights trained at λ* do worse than those of a sample, or than simpler models."""
        best = int(self.validation_losses_.argmin())
        if not is_worse(self.validation_loss_.retrained, self.validation_losses_[best]):
            self.check_.warn(of_round=self.origin_ == "round")
            return
        warnings.warn(
            "retrained at lambda_, the module has validation loss "
            f"{self.validation_loss_.retrained:.4g}, but {self.validation_losses_[best]:.4g} at "
            f"strengths_[{best}] = {self.strengths_[best].tolist()}: leave check_rounds=True, solve more "
            "accurately (max_iter, no batches), or raise multiplier and weight",
            UnreliableWarning,
            stacklevel=3,
        )

    def losses(self, X: Any, y: Any) -> Losses:
        """Validation loss on other data, as of a test, of the jointly fitted and of the retrained weights.

        Parameters
        ----------
        X, y : tensors or arrays
        """
        check_is_fitted(self)
        return Losses(*(self._judge.loss(one, X, y) for one in (self.joint_module_, self.module_)))

    def predict(self, X: Any) -> Array:
        """Output of the retrained module, or what the refitted linear model predicts."""
        check_is_fitted(self)
        return self._judge.predict(self.module_, X)


def _check_held(**held: Any) -> None:
    """Refuse a search without validation rows."""
    for name, given in held.items():
        shape = () if given is None else given.shape if hasattr(given, "shape") else np.shape(given)
        if given is None or tuple(shape[:1]) == (0,):
            raise ValueError(
                f"{name} has no rows: give validation data, rows that are not among X and y, by whose loss "
                "strengths are chosen: fit(X, y, X_val, y_val)"
            )

"""Leave-one-out of a trained ``nn.Module`` with weight decay, checked by retraining without a few rows.

For a network no theorem says that one Newton step is a refit: it has many minima, and its curvature is known
in part only.  So the formula is never returned alone: some rows are drawn at random, the network is trained
on without each of them from its own weights, and their losses correct the mean of all (an unbiased estimate,
``onefit.risk.audit``).  A warning says where the two disagree.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.utils.data import DataLoader

from onefit._typing import Array
from onefit.exceptions import NotOptimalWarning, SolverError, UnreliableWarning
from onefit.leave_out.sets import Folds
from onefit.risk.audit import Audit, audit, draw
from onefit.risk.estimate import mean_and_error
from onefit.torch.kronecker import KroneckerCurvature
from onefit.torch.left_out import STRAINED, LeftOutRisk, Sets, Steps
from onefit.torch.minimum import DENSE, newton, quasi_newton
from onefit.torch.objective import BUDGET, Objective, Split, as_device, as_rows, as_weights, check_scalar
from onefit.validation import check_audit

Decay: TypeAlias = float | Mapping[str, float]
Kind: TypeAlias = Literal["auto", "gauss_newton", "kronecker", "last_layer"]
RowLosses: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of outputs and responses

AUTO = "auto"
ROOM = 2**28  # numbers that a Jacobian may have: 2 GiB
LITTLE_GAIN = 1e-10  # of the objective, at which L-BFGS ends
UNFINISHED = 1e-2  # gradient at the given weights, relative to those of the rows, that is worth a warning
DISAGREES = 0.05  # of the risk: what the audit has to correct before we warn
BLURRED = 0.5  # of the risk: half an interval of the audit that confirms nothing


def loo(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: Any,
    *,
    weight_decay: Decay = 0.0,
    curvature: Kind = "auto",
    audit: int = 8,
    rng: int | np.random.Generator | None = None,
    device: Any = "cpu",
    max_steps: int = 2000,
) -> LeftOutRisk:
    """Leave-one-out risk of a trained network, from its weights and a few short runs of training.

    Parameters
    ----------
    module : nn.Module
        Trained; it is not changed.  It is evaluated in ``eval()`` mode: dropout is off, batch norms hold.
    loss : callable
        ``loss(output, y)`` of a batch, such as ``nn.CrossEntropyLoss()``: the mean or the sum of the losses
        of its rows.
    data : (X, y), Dataset or DataLoader
        The training rows.  Of a loader its dataset is read, in order.
    weight_decay : float or dict of float, default 0.0
        As in PyTorch's optimisers: ½ weight_decay ‖θ‖² is added to ``loss`` of all rows, whose mean or sum it
        is.  A dict gives it by parameter name (missing names: 0).
    curvature : {"auto", "gauss_newton", "kronecker", "last_layer"}, default "auto"
        What moves when a row leaves: all parameters, with the Gauss–Newton matrix, which needs weight decay;
        all parameters, with its Kronecker factors, layer by layer, which never holds more than a batch of
        rows of the Jacobian; or those of the last layer alone, with their exact Hessian, the features below
        held fixed.  The last is cheaper and tells too low a risk as soon as the features have adapted to the
        rows.  The Kronecker factors are coarser than the Gauss–Newton matrix, the less rows there are for a
        parameter and the weaker the decay.  "auto" takes the Gauss–Newton matrix where the Jacobian fits into
        2 GiB, and its Kronecker factors where it does not; ``method`` and ``notes`` of the result say which.
    audit : int, default 8
        Number of rows to retrain without, at least 2.
    rng : int, Generator or None
        Of the rows of the audit.
    device : str or torch.device, default "cpu"
    max_steps : int, default 2000
        Steps of L-BFGS at most, in the training that is described below.

    Returns
    -------
    LeftOutRisk
        ``audit`` is never None.

    Warns
    -----
    NotOptimalWarning
        If the weights were far from a minimum of the penalised training loss.
    UnreliableWarning
        If the audit disagrees with the formula.

    Raises
    ------
    UnsupportedModelError
        If Kronecker factors are asked for, or needed, and a module other than ``nn.Linear`` and ``nn.Conv2d``
        (or one that shares its weights) has more than 2000 parameters: it is named.
    SolverError
        If the curvature is singular.

    Notes
    -----
    A row can be left out of a minimum only.  A copy of the network is first trained on by L-BFGS in float64
    until its gradient vanishes (and by Newton steps where it is small); the risk is that of this copy.  The
    audit trains all parameters in the same way, from the same weights, without each row drawn.  The steps
    are those of Beirami et al. (2017), Theorem 1, with the stated curvature.  Where the loss is a mean, the
    weight of the decay shrinks with the number of rows, as it does in a refit.

    Kronecker factors are those of Martens & Grosse (2015), of Grosse & Martens (2016) for convolutions, with
    the Hessian of the loss in the outputs in place of sampled labels; other modules have their own block of
    the Gauss–Newton matrix.  The decay is not approximated, and may differ between weights and biases.  A row
    leaves the factors themselves, so that what remains is positive definite: see
    ``onefit.torch.kronecker``.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X, y = torch.tensor(20 * X[:60]), torch.tensor((y[:60] - 150) / 77)[:, None]
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    >>> optimiser = torch.optim.LBFGS(net.parameters(), max_iter=200, line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimiser.zero_grad()
    ...     decay = 0.05 * sum((p**2).sum() for p in net.parameters()) / 2
    ...     value = torch.nn.functional.mse_loss(net(X), y) + decay
    ...     value.backward()
    ...     return value
    >>> _ = optimiser.step(closure)
    >>> risk = loo(net, torch.nn.MSELoss(), (X, y), weight_decay=0.05, audit=4, rng=0)
    >>> print(f"{risk.value:.2f}, audited {risk.audit.value:.2f}, training {risk.training.mean():.2f}")
    0.61, audited 0.65, training 0.38

    The same with Kronecker factors, which a larger network would need:

    >>> risk = loo(net, torch.nn.MSELoss(), (X, y), weight_decay=0.05, curvature="kronecker", audit=4, rng=0)
    >>> print(f"{risk.value:.2f}, by {risk.method}")
    0.63, by all layers, Kronecker-factored curvature
    """
    if check_audit(audit) == 0:
        raise ValueError("the formula for a network is always audited: give audit=2 or more rows to retrain")
    if curvature not in (AUTO, *RULES):
        raise ValueError(f"curvature must be one of {', '.join((AUTO, *RULES))}, got {curvature!r}")
    network = _read(module, loss, data, weight_decay, as_device(device))
    chosen, why = _chosen(curvature, network)
    network, notes = _finished(network, max_steps)
    result = _by_formula(network, RULES[chosen](network))
    checked = _audited(network, result, audit, np.random.default_rng(rng), max_steps)
    _warn_if_wrong(result, checked)
    return replace(result, audit=checked, notes=why + notes)


# --- the network ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Network:
    """A module as a function of a flat vector of its trainable parameters, with its data.

    Attributes
    ----------
    module : nn.Module
        A copy in float64, in ``eval()`` mode.
    loss : callable
        Of a batch.
    X, y : tensors
    decay : (k,) tensor
        Weight decay of each parameter.
    mean : bool
        Whether the loss is a mean over rows, and not their sum.
    theta : (k,) tensor
        The parameters.
    """

    module: nn.Module
    loss: RowLosses
    X: Tensor
    y: Tensor
    decay: Tensor
    mean: bool
    theta: Tensor

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """Names and shapes of the parameters, in the order of ``theta``."""
        return {name: p.shape for name, p in self.module.named_parameters() if p.requires_grad}

    def parts(self, theta: Tensor) -> dict[str, Tensor]:
        """The parameters by name."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        pieces = torch.split(theta, sizes)
        return {
            name: piece.reshape(self.shapes[name]) for name, piece in zip(self.shapes, pieces, strict=True)
        }

    @cached_property
    def last_layer(self) -> Tensor:
        """Which coordinates belong to the last layer that has parameters: a contiguous range."""
        last = next(reversed(self.shapes)).rpartition(".")[0]
        held = [name.rpartition(".")[0] == last for name in self.shapes]
        sizes = [shape.numel() for shape in self.shapes.values()]
        chosen = np.repeat(held, sizes)
        first = int(np.flatnonzero(~chosen)[-1]) + 1 if not chosen.all() else 0
        return torch.arange(first, len(self.theta), device=self.theta.device)

    def predict(self, theta: Tensor, x: Tensor) -> Tensor:
        """Output for one row."""
        return functional_call(self.module, self.parts(theta), (x[None],))[0]

    def predict_from_last(self, last: Tensor, x: Tensor) -> Tensor:
        """The same of the parameters of the last layer, so that nothing below is differentiated."""
        parts = self.parts(self.theta)
        first = len(self.theta) - len(last)
        for name, piece in self._pieces(first):
            parts[name] = last[piece].reshape(self.shapes[name])
        return functional_call(self.module, parts, (x[None],))[0]

    def _pieces(self, first: int) -> Iterator[tuple[str, slice]]:
        """Parameters that begin at ``first`` or later, and where they lie from there on."""
        begin = -first
        for name, shape in self.shapes.items():
            if begin >= 0:
                yield name, slice(begin, begin + shape.numel())
            begin += shape.numel()

    def row_loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Loss of one row."""
        return self.loss(output[None], y[None]).reshape(())

    def losses(self) -> Objective:
        """The objective without weight decay, which has the losses of the rows."""
        return self._objective(Split(self.predict, self.row_loss), ())

    def objective(self) -> Objective:
        """The penalised sum of the losses of all parameters."""
        return self._penalised(self.predict, self.decay)

    def objective_of_last(self) -> Objective:
        """The same of the parameters of the last layer."""
        return self._penalised(self.predict_from_last, self.decay[self.last_layer])

    def _penalised(self, predict: Callable[[Tensor, Tensor], Tensor], decay: Tensor) -> Objective:
        """A mean of n losses is decayed n times as much as their sum: each row brings its share."""
        if not self.mean:
            return self._objective(Split(predict, self.row_loss), (lambda t: (decay * t**2).sum() / 2,))

        def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.row_loss(predict(theta, x), y) + (decay * theta**2).sum() / 2

        return self._objective(loss, ())

    def _objective(self, loss: Any, penalties: tuple[Callable[[Tensor], Tensor], ...]) -> Objective:
        weights = as_weights(None, len(self.X), self.X.device)
        return Objective(loss, penalties, self.X, self.y, weights, torch.ones_like(weights[: len(penalties)]))


def _read(module: Any, loss: Any, data: Any, weight_decay: Decay, device: torch.device) -> Network:
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if not callable(loss):
        raise TypeError(f"loss must be a function of (output, y), got {loss!r}")
    X, y = _rows_of(data)
    X, y = as_rows("X", X, device), as_rows("y", y, device)
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} rows, y has {len(y)}")
    own = copy.deepcopy(module).to(device=device, dtype=torch.float64).eval()
    trainable = [p.detach().reshape(-1) for p in own.parameters() if p.requires_grad]
    if not trainable:
        raise ValueError(
            f"this {type(module).__name__} has no trainable parameters: nothing depends on the rows"
        )
    theta = torch.cat(trainable).clone()
    if not bool(torch.isfinite(theta).all()):
        raise ValueError("the parameters of the module are not all finite: train it again")
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss).to(device=device, dtype=torch.float64)
    network = Network(own, loss, X, y, torch.zeros_like(theta), True, theta)
    return replace(network, decay=_decay(weight_decay, network), mean=_is_mean(network))


def _rows_of(data: Any) -> tuple[Any, Any]:
    """X and y of a pair, a dataset or a loader."""
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise ValueError(f"data must be (X, y), a Dataset or a DataLoader, got {len(data)} parts")
        return data[0], data[1]
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise TypeError(f"data must be (X, y), a Dataset with a length, or a DataLoader, got {data!r}")
    pairs = [data[i] for i in range(len(data))]
    X, y = (torch.stack([torch.as_tensor(pair[part]) for pair in pairs]) for part in (0, 1))
    return X, y


def _decay(given: Decay, network: Network) -> Tensor:
    """Weight decay of each parameter: (k,)."""
    by_name = dict(given) if isinstance(given, Mapping) else dict.fromkeys(network.shapes, given)
    unknown = sorted(set(by_name) - set(network.shapes))
    if unknown:
        raise ValueError(f"weight_decay names {unknown[0]!r}, which is none of {', '.join(network.shapes)}")
    values = [float(by_name.get(name, 0.0)) for name in network.shapes]
    if not np.all(np.isfinite(values)) or min(values) < 0:
        raise ValueError(f"weight_decay must be finite and at least 0, got {given!r}")
    parts = [
        network.theta.new_full((shape.numel(),), v)
        for v, shape in zip(values, network.shapes.values(), strict=True)
    ]
    return torch.cat(parts)


def _is_mean(network: Network) -> bool:
    """Whether the loss of a batch is the mean of those of its rows; refuse what is neither that nor a sum."""
    with torch.no_grad():
        outputs = network.module(network.X)
        batch = network.loss(outputs, network.y)
        check_scalar("the loss of a batch (take reduction='mean' or 'sum')", batch)
        rows = network.losses().losses(network.theta)
    if not bool(torch.isfinite(rows).all()):
        row = int(torch.nonzero(~torch.isfinite(rows))[0])
        raise ValueError(f"the loss of row {row} is not finite at the given weights")
    slack = 1e-6 * float(rows.abs().sum()) + 1e-12
    if abs(float(batch - rows.mean())) <= slack / len(rows):
        return True
    if abs(float(batch - rows.sum())) <= slack:
        return False
    raise ValueError(
        f"the loss of all rows is {float(batch):.6g}, which is neither the mean, {float(rows.mean()):.6g}, "
        f"nor the sum, {float(rows.sum()):.6g}, of the losses of the rows: no row can be left out of it"
    )


# --- training ------------------------------------------------------------------------------------------


def _trained(objective: Objective, theta: Tensor, max_steps: int) -> Tensor:
    """Train on from some weights: L-BFGS, then Newton steps if there are few parameters: (k,)."""
    theta = quasi_newton(objective, theta, max_steps, gain=LITTLE_GAIN)
    if len(theta) > DENSE:
        return theta
    try:
        return newton(objective, theta, steps=20)
    except SolverError:
        return theta  # a kink (ReLU) or a flat direction: what L-BFGS reached stands


def _missing(network: Network, theta: Tensor) -> float:
    """Gradient at some weights, relative to those of the rows and the decay."""
    objective, one = network.objective(), torch.ones_like(theta[:1])
    rows = torch.arange(len(objective), device=theta.device)[:, None]
    size = 0.0 if network.mean else float((network.decay * theta).norm())
    for few in torch.split(rows, max(1, BUDGET // len(theta))):  # their gradients are held at once
        slopes = vmap(objective.set_gradient, in_dims=(None, 0, None))(theta, few, one)
        size += float(slopes.norm(dim=1).sum())
    return float(objective.gradient(theta).norm()) / max(size, np.finfo(float).tiny)


def _finished(network: Network, max_steps: int) -> tuple[Network, tuple[str, ...]]:
    """Train a network to a minimum; a warning where that was far, a note where it was not reached."""
    before = _missing(network, network.theta)
    theta = _trained(network.objective(), network.theta, max_steps)
    value = network.losses().losses
    if before > UNFINISHED:
        moved = float((theta - network.theta).norm() / network.theta.norm().clamp(min=1e-300))
        warnings.warn(
            f"the module was not trained to a minimum (its gradient is {before:.2g} of those of the rows): "
            f"training on moved the weights by {moved:.2g} (relative) and the mean training loss from "
            f"{float(value(network.theta).mean()):.6g} to {float(value(theta).mean()):.6g}. The result is "
            "for the weights after that; see that weight_decay is the one it was trained with",
            NotOptimalWarning,
            stacklevel=3,
        )
    network = replace(network, theta=theta)
    after = _missing(network, theta)
    notes = () if after < UNFINISHED / 100 else (f"training did not converge: gradient {after:.1g}",)
    return network, notes


# --- left-out weights ----------------------------------------------------------------------------------


class Rule(ABC):
    """How the weights move when a row leaves."""

    name: str

    def __init__(self, network: Network) -> None:
        self.network = network

    @abstractmethod
    def left_out(self) -> tuple[Tensor, Tensor]:
        """Loss of each row without it, and leverages: (n,), (n,)."""


class LastLayer(Rule):
    """The last layer moves, with its exact Hessian."""

    name = "the last layer, exact curvature"

    def left_out(self) -> tuple[Tensor, Tensor]:
        network, objective = self.network, self.network.objective_of_last()
        rows = tuple(np.arange(len(objective))[:, None])
        sets = Sets.of(Folds(rows, rows, len(rows)), objective.weights)
        steps = Steps(objective, network.theta[network.last_layer], sets)
        gradients = steps.gradients()
        try:
            moves, positive = steps.solve(gradients)
        except SolverError as error:
            raise SolverError(f"{error}; here that may be weight decay") from error
        leverages = torch.where(positive, steps.leverages(moves, gradients), 1.0)
        pure = replace(objective, loss=Split(network.predict_from_last, network.row_loss), penalties=())
        index = torch.arange(len(rows), device=moves.device)
        return pure.losses_at(steps.theta + torch.where(positive[:, None], moves, 0.0), index), leverages


class GaussNewton(Rule):
    """All parameters move, with the Gauss–Newton matrix K = JᵀLJ + decay.

    With h_i = J_i K⁻¹J_iᵀ, l_i and L_i the first two derivatives of the loss in the output, and a the decay
    that leaves with a row,

        θ̃ = θ̂ + K⁻¹J_iᵀ(I − L_i h_i)⁻¹(l_i + L_i J_i K⁻¹aθ̂) + K⁻¹aθ̂

    by Woodbury's identity (Theorem 1 with the curvature JᵀLJ).  K is inverted on the side of the
    parameters or on that of the outputs, whichever is smaller.
    """

    name = "all layers, Gauss-Newton curvature"

    def left_out(self) -> tuple[Tensor, Tensor]:
        network, theta = self.network, self.network.theta
        J, slopes, bends = self._derivatives()
        n, c = slopes.shape
        ridge = network.decay * (n - 1.0 if network.mean else 1.0)
        leaving = network.decay * theta if network.mean else torch.zeros_like(theta)
        A, shift = _spread(J, bends, ridge, leaving)  # K⁻¹J_iᵀ, K⁻¹aθ̂
        h = torch.einsum("iak,ibk->iab", J, A)
        moved = torch.einsum("iak,k->ia", J, shift)
        slack = torch.eye(c, dtype=theta.dtype, device=theta.device) - bends @ h
        pulled = torch.linalg.solve(slack, slopes + (bends @ moved[..., None])[..., 0])
        points = theta + torch.einsum("iak,ia->ik", A, pulled) + shift
        leverages = torch.linalg.eigvals(bends @ h).real.amax(1)
        rows = torch.arange(n, device=theta.device)
        return network.losses().losses_at(points, rows), leverages.clamp(0.0, 1.0)

    def _derivatives(self) -> tuple[Tensor, Tensor, Tensor]:
        """J (n, c, k), and the derivatives of the loss in the output: (n, c), (n, c, c)."""
        network, theta = self.network, self.network.theta
        if not _fits(network):
            raise ValueError(
                f"the Jacobian of {_outputs(network)} outputs in {len(theta)} parameters does not fit: take "
                "curvature='kronecker' or 'last_layer', or fewer rows"
            )
        slopes, bends = _loss_derivatives(network)
        J = vmap(jacrev(network.predict), in_dims=(None, 0), chunk_size=64)(theta, network.X)
        return J.reshape(*slopes.shape, -1), slopes, bends


class Kronecker(Rule):
    """All parameters move, with the Kronecker factors of the Gauss–Newton matrix, layer by layer."""

    name = "all layers, Kronecker-factored curvature"

    def left_out(self) -> tuple[Tensor, Tensor]:
        network, theta = self.network, self.network.theta
        ridge = network.decay * (len(network.X) - 1.0 if network.mean else 1.0)
        leaving = network.decay * theta if network.mean else torch.zeros_like(theta)
        slopes, bends = _loss_derivatives(network)
        parts = network.parts
        curvature = KroneckerCurvature.of(
            network.module, parts(theta), network.X, slopes, bends, parts(ridge), parts(leaving)
        )
        losses, leverages = [], []
        for rows in curvature.batches():
            steps, own = curvature.left_out(rows)
            losses.append(network.losses().losses_at(theta + steps, rows))
            leverages.append(own)
        return torch.cat(losses), torch.cat(leverages)


def _loss_derivatives(network: Network) -> tuple[Tensor, Tensor]:
    """First two derivatives of the loss in the output, flat: (n, c), (n, c, c)."""
    with torch.no_grad():
        outputs = vmap(network.predict, in_dims=(None, 0))(network.theta, network.X)
    shape = outputs.shape[1:]

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return network.row_loss(output.reshape(shape), y)

    flat = outputs.reshape(len(outputs), -1)
    return vmap(grad(loss))(flat, network.y), vmap(jacrev(grad(loss)))(flat, network.y)


def _outputs(network: Network) -> int:
    """Number of outputs of all rows."""
    with torch.no_grad():
        return len(network.X) * network.predict(network.theta, network.X[0]).numel()


def _fits(network: Network) -> bool:
    """Whether there is room for the Jacobian of all outputs in all parameters."""
    return _outputs(network) * len(network.theta) <= ROOM


def _chosen(curvature: Kind, network: Network) -> tuple[str, tuple[str, ...]]:
    """Which rule, and a note where the size of the network decided."""
    if curvature != AUTO:
        return curvature, ()
    if _fits(network):
        return "gauss_newton", ()
    size = f"{_outputs(network)} outputs in {len(network.theta)} parameters"
    return "kronecker", (f"Kronecker factors were taken: the Jacobian of {size} does not fit",)


def _spread(J: Tensor, bends: Tensor, ridge: Tensor, leaving: Tensor) -> tuple[Tensor, Tensor]:
    """K⁻¹J_iᵀ and K⁻¹ leaving, for K = Σ J_iᵀL_iJ_i + diag(ridge): (n, c, k), (k,)."""
    n, c, k = J.shape
    rows = J.reshape(n * c, k)
    if k <= n * c or bool((ridge == 0).any()):
        K = torch.diag(ridge) + rows.T @ (bends @ J).reshape(n * c, k)
        lower, failed = torch.linalg.cholesky_ex(0.5 * (K + K.T))
        if int(failed):
            raise SolverError(
                "the Gauss-Newton matrix is singular: give all parameters a weight decay, or take "
                "curvature='last_layer'"
            )
        solved = torch.cholesky_solve(torch.cat([rows, leaving[None]]).T, lower).T
        return solved[:-1].reshape(n, c, k), solved[-1]
    scaled = rows / ridge
    # (K⁻¹Jᵀ)ᵀ = (I + G L)⁻¹ J Λ⁻¹ with G = J Λ⁻¹Jᵀ; K⁻¹v = Λ⁻¹(v − Jᵀ L (I + G L)⁻¹ J Λ⁻¹v)
    GL = ((rows @ scaled.T).reshape(n * c, n, 1, c) @ bends).reshape(n * c, n * c)
    eye = torch.eye(n * c, dtype=J.dtype, device=J.device)
    A = torch.linalg.solve(eye + GL, scaled)
    back = (bends @ (A @ leaving).reshape(n, c, 1)).reshape(n * c)
    return A.reshape(n, c, k), (leaving - rows.T @ back) / ridge


RULES: dict[str, type[Rule]] = {
    "gauss_newton": GaussNewton,
    "kronecker": Kronecker,
    "last_layer": LastLayer,
}


# --- the result ----------------------------------------------------------------------------------------


def _by_formula(network: Network, rule: Rule) -> LeftOutRisk:
    with torch.no_grad():
        training = network.losses().losses(network.theta).cpu().numpy()
    losses, leverages = (part.detach().cpu().numpy() for part in rule.left_out())
    value, std_error = mean_and_error(losses, np.ones(len(losses)))
    return LeftOutRisk(
        value=value,
        std_error=std_error,
        losses=losses,
        rows=np.arange(len(losses)),
        training=training,
        leverages=leverages,
        flagged=np.flatnonzero((leverages > STRAINED) | ~np.isfinite(losses)),
        method=rule.name,
    )


def _audited(
    network: Network, result: LeftOutRisk, m: int, rng: np.random.Generator, max_steps: int
) -> Audit:
    """Losses of a few rows by training without them, from the weights of all."""
    weights = np.ones(len(result.losses))
    drawn = draw(result.losses - result.training, weights, m, rng)
    objective, pure = network.objective(), network.losses()
    found = np.full(len(drawn.rows), np.nan)
    for place, row in enumerate(drawn.rows):
        own = torch.tensor([row], device=network.theta.device)
        theta = _trained(objective.without(own), network.theta, max_steps)
        found[place] = float(pure.losses_at(theta[None], own)[0])
    return audit(result.losses, drawn, _finite(found), weights)


def _finite(losses: Array) -> Array:
    return np.where(np.isfinite(losses), losses, np.nan)


def _warn_if_wrong(result: LeftOutRisk, checked: Audit) -> None:
    """Warn where the audit contradicts the formula, or is too noisy to confirm it."""
    low, high = checked.interval
    scale = DISAGREES * abs(checked.value)
    wrong = not low <= checked.approximate <= high and abs(checked.difference) > scale
    if not (wrong or high - low > 2 * BLURRED * abs(checked.value) or checked.failed.size):
        return
    shown = ", ".join(map(str, checked.rows[:8])) + (", …" if checked.m > 8 else "")
    what = "contradicts" if wrong else "does not confirm"
    warnings.warn(
        f"retraining without rows {shown} {what} the formula: it says {result.value:.4g}, the audit "
        f"{checked.value:.4g} [{low:.4g}, {high:.4g}]. Trust the audit, with more rows if it is too wide; "
        "more weight decay or another curvature may help",
        UnreliableWarning,
        stacklevel=3,
    )

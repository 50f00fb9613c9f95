"""A few rows that the network is retrained without correct the mean of the formula: an unbiased estimate."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import nn

from onefit._progress import progress_line
from onefit._typing import Array, Index
from onefit.exceptions import UnreliableWarning
from onefit.risk.audit import Audit, Draw, audit, draw
from onefit.risk.judging import shown
from onefit.torch.networks.network import Network
from onefit.torch.networks.training import Clock, Retraining, loss_of
from onefit.torch.risk import LeftOutRisk

DISAGREES = 0.05  # of the risk: what the audit has to correct before we warn
BLURRED = 0.5  # of the risk: half an interval of the audit that confirms nothing


@dataclass(eq=False)
class Retrained:
    """Networks without a row each, as far as they were trained.

    Attributes
    ----------
    losses : dict of float
        Of the row that was left out, by row.
    modules : dict of nn.Module
    stopped : str
        Why not all were trained; empty if they were.
    unfinished : int
        How many were still on their way when their steps were used up.
    """

    losses: dict[int, float] = field(default_factory=dict)
    modules: dict[int, nn.Module] = field(default_factory=dict)
    stopped: str = ""
    unfinished: int = 0


def retrained(
    network: Network, rows: Index, retraining: Retraining, clock: Clock, expected: float = 0.0
) -> Retrained:
    """Train without each of some rows, in the order given, until the time is up or Ctrl-C is pressed.

    ``expected`` is how many seconds each is thought to take, 0 where that is not known.
    """
    done, each = Retrained(), 0.0
    show = progress_line("onefit.torch.loo, retraining", expected * len(rows))
    for number, row in enumerate(rows):
        if number and not clock.has_room_for(each):
            done.stopped = f"max_seconds={clock.limit:g} left no time for the others"
            return done
        own = torch.tensor([row], device=network.theta.device)
        try:
            module, is_done = retraining(own)
        except KeyboardInterrupt:
            done.stopped = "the others were interrupted"
            return done
        done.unfinished += not is_done
        done.modules[int(row)], done.losses[int(row)] = module, float(loss_of(network, module, own)[0])
        each = (clock.spent + each * number) / (number + 1) if number else clock.spent
        show(number + 1, len(rows))
    return done


def audited(
    network: Network,
    result: LeftOutRisk,
    retraining: Retraining,
    m: int,
    rng: np.random.Generator,
    limit: float | None,
    expected: float = 0.0,
) -> LeftOutRisk:
    """Add an audit to a risk by formula.

    Rows are drawn for m retrainings and retrained in random order: those that were done when it was stopped
    are a simple random sample of them, so that their probabilities fall by the share that was done.
    """
    weights = network.shares.cpu().numpy()
    drawn = draw(result.losses - result.training, weights, m, rng)
    order = rng.permutation(len(drawn.rows))
    done = retrained(network, drawn.rows[order], retraining, Clock(limit), expected)
    notes = result.notes
    if done.stopped:
        notes = (*notes, f"{len(done.losses)} of {len(drawn.rows)} retrainings were done: {done.stopped}")
    result = replace(result, notes=notes, retrained=done.modules)
    if len(done.losses) < 2:
        return result
    some = np.array([int(row) in done.losses for row in drawn.rows])
    drawn = Draw(drawn.rows[some], drawn.probabilities[some] * some.mean())
    found = np.array([done.losses[int(row)] for row in drawn.rows])
    checked, more = possible(result, drawn, np.where(np.isfinite(found), found, np.nan), weights)
    if done.unfinished:
        more = (*more, _unfinished(done))
        warnings.warn(more[-1], UnreliableWarning, stacklevel=3)
    else:
        warn_if_wrong(result, checked)
    return replace(result, audit=checked, notes=(*result.notes, *more))


def _unfinished(done: Retrained) -> str:
    return (
        f"{done.unfinished} of {len(done.losses)} retrainings had not come to a minimum when their steps "
        "were used up: what they say of their rows is too near to the training loss, and the audit tells "
        "nothing; raise max_steps"
    )


def possible(result: LeftOutRisk, drawn: Draw, found: Array, weights: Array) -> tuple[Audit, tuple[str, ...]]:
    """An audit whose value is one that the loss can have.

    A mean of losses that are never negative is not: where the formula is so far off that its corrected mean
    is, the training losses stand in its place, or nothing (Horvitz and Thompson 1952).
    """
    estimate = partial(audit, draw=drawn, refitted_losses=found, weights=weights)
    if np.nanmin(np.concatenate([found, result.training])) < 0:
        return estimate(result.losses), ()
    nothing = np.zeros_like(result.losses)
    bases = (("", result.losses), ("training losses", result.training), ("zeros", nothing))
    tried = [(instead, estimate(losses)) for instead, losses in bases]
    instead, checked = next(pair for pair in tried if np.isfinite(pair[1].value) and pair[1].value >= 0)
    low, high = checked.interval
    checked = replace(checked, interval=(max(low, 0.0), high), approximate=result.value)
    if not instead:
        return checked, ()
    return checked, (
        "corrected by its audit the formula gives a negative mean loss, which is impossible: "
        f"{instead} stood in its place",
    )


def warn_if_wrong(result: LeftOutRisk, checked: Audit) -> None:
    """Warn where the audit contradicts the formula, or is too noisy to confirm it."""
    low, high = checked.interval
    scale = DISAGREES * abs(checked.value)
    wrong = not low <= checked.approximate <= high and abs(checked.difference) > scale
    if not (wrong or high - low > 2 * BLURRED * abs(checked.value) or checked.failed.size):
        return
    what = "contradicts" if wrong else "does not confirm"
    warnings.warn(
        f"retraining without rows {shown(checked.rows)} {what} the formula: it says {result.value:.4g}, the "
        f"audit {checked.value:.4g} [{low:.4g}, {high:.4g}]. Trust the audit, with more rows if it is too "
        "wide; more weight decay or another curvature may help",
        UnreliableWarning,
        stacklevel=4,
    )

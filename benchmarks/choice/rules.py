"""Rules that choose a strength from the losses of a path.

A rule takes the left-out losses of the rows at all strengths, strongest penalty first, and what 5 and 10
folds say, and gives a weight to each strength: one for the choice, or several that sum to one where the
coefficients are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onefit.tuning.contest import choose_strength
from onefit.tuning.selection import paired_errors, smallest

Array = np.ndarray
Record = Mapping[str, Array]
Rule = Callable[[Record], Array]
DRAWS = 1000


def one(position: float, count: int) -> Array:
    """All weight on the nearest strength; half-way, on the stronger penalty."""
    weights = np.zeros(count)
    weights[int(np.clip(np.ceil(position - 0.5), 0, count - 1))] = 1.0
    return weights


def minimum(losses: Array) -> Array:
    return one(float(losses.mean(axis=0).argmin()), losses.shape[1])


def within(losses: Array, errors: float) -> Array:
    """The strongest penalty whose risk is within so many paired standard errors of the smallest."""
    risks = losses.mean(axis=0)
    best = risks.argmin()
    paired = (losses - losses[:, [best]]).std(axis=0, ddof=1) / np.sqrt(len(losses))
    return one(float(np.flatnonzero(risks <= risks[best] + errors * paired)[0]), losses.shape[1])


def gaussian(losses: Array, scale: float = 1.0) -> Array:
    """Positions of the minimum in draws from N(risks, scale² C), C the covariance of the risks: (B,)."""
    risks = losses.mean(axis=0)
    differences = losses - losses[:, [risks.argmin()]]
    covariance = np.cov(differences.T) / len(losses)
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, len(root))) @ root
    return (risks + scale * np.vstack([half, -half])).argmin(axis=1)


def bayesian(losses: Array, draws: int = 300) -> Array:
    """Positions of the minimum under Dirichlet weights of the rows: (B,)."""
    weights = np.random.default_rng(0).exponential(size=(draws, len(losses)))
    return (weights @ losses).argmin(axis=1)


def bagged(losses: Array) -> Array:
    """What ``selection="bagged"`` chooses: Gaussian draws, tails capped, strengths out of reach left out."""
    weights, risks = np.ones(len(losses)), losses.mean(axis=0)
    paired = paired_errors(losses, weights, smallest(risks))
    return one(float(choose_strength(losses, weights, risks, paired, "bagged")[0]), losses.shape[1])


def winsorised(losses: Array, share: float = 0.02) -> Array:
    """Differences to the best of the means, the extreme ones of each strength pulled in."""
    differences = losses - losses[:, [losses.mean(axis=0).argmin()]]
    low, high = np.quantile(differences, [share, 1.0 - share], axis=0)
    return np.clip(differences, low, high)


def capped(losses: Array, share: float = 0.98) -> Array:
    """No loss above this quantile of the losses at the best strength."""
    return np.minimum(losses, np.quantile(losses[:, losses.mean(axis=0).argmin()], share))


def mean_position(positions: Array, count: int) -> Array:
    return one(float(positions.mean()), count)


def median_position(positions: Array, count: int) -> Array:
    return one(float(np.median(positions)), count)


def averaged(positions: Array, count: int) -> Array:
    """The coefficients averaged over the draws."""
    return np.bincount(positions, minlength=count) / len(positions)


def _folds(record: Record, count: int) -> Array:
    """Risk of each fold, as the CV classes average them: (count, J)."""
    table = record[f"folds{count}"]
    losses, number = table[:, :-1], table[:, -1]
    return np.stack([losses[number == k].mean(axis=0) for k in np.unique(number)])


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {
        "minimum": lambda r: minimum(r["loo"]),
        "bagged (the default)": lambda r: bagged(r["loo"]),
        "Bayesian bootstrap, mean position": lambda r: mean_position(bayesian(r["loo"]), r["loo"].shape[1]),
        "Bayesian bootstrap, coefficients averaged": lambda r: averaged(
            bayesian(r["loo"]), r["loo"].shape[1]
        ),
        "Bayesian bootstrap of 10 folds, mean position": lambda r: mean_position(
            bayesian(r["folds10"][:, :-1]), r["loo"].shape[1]
        ),
        "Bayesian bootstrap of loo and 10 folds, mean position": lambda r: mean_position(
            bayesian(r["loo"] + r["folds10"][:, :-1]), r["loo"].shape[1]
        ),
        "winsorised minimum": lambda r: minimum(winsorised(r["loo"])),
        "capped minimum": lambda r: minimum(capped(r["loo"])),
        "capped draws x 1, mean position": lambda r: mean_position(
            gaussian(capped(r["loo"])), r["loo"].shape[1]
        ),
        "winsorised draws x 1, mean position": lambda r: mean_position(
            gaussian(winsorised(r["loo"])), r["loo"].shape[1]
        ),
        "minimum of loo and 10 folds": lambda r: minimum(r["loo"] + r["folds10"][:, :-1]),
        "draws x 1 of loo and 10 folds, mean position": lambda r: mean_position(
            gaussian(r["loo"] + r["folds10"][:, :-1]), r["loo"].shape[1]
        ),
        "5 folds": lambda r: minimum(_folds(r, 5)),
        "10 folds": lambda r: minimum(_folds(r, 10)),
    }
    for errors in (0.1, 0.25, 0.5, 1.0):
        rules[f"within {errors:g} paired errors"] = lambda r, c=errors: within(r["loo"], c)
    for scale in (0.5, 1.0, 1.5, 2.0, 3.0):
        for name, rule in (("mean", mean_position), ("median", median_position), ("averaged", averaged)):
            label = "coefficients averaged" if name == "averaged" else f"{name} position"
            rules[f"draws x {scale:g}, {label}"] = lambda r, c=scale, f=rule: f(
                gaussian(r["loo"], c), r["loo"].shape[1]
            )
    return rules


RULES = _rules()
PEERS = ("5 folds", "10 folds")


def excess(record: Record, weights: Array) -> float:
    """Held-out loss above that of the best strength of the path, relatively; nan where it is not known."""
    best = record["held_out"].min()
    if np.count_nonzero(weights) == 1:
        return float(record["held_out"][weights.argmax()] / best - 1.0)
    if "residual_gram" not in record:
        return float("nan")
    return float(weights @ record["residual_gram"] @ weights / best - 1.0)

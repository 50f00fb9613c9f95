"""Rules that choose a strength from the losses of a path, or average over its strengths.

A rule takes the left-out losses of the rows at all strengths, strongest penalty first, what 5 and 10
folds say, and the fits' own losses and degrees of freedom, and gives the position of a strength or the
share of each strength in an average of all coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onefit.risk.means import paired_errors
from onefit.tuning.contest import contest
from onefit.tuning.selection import BAGGINGS, Bagging, bagged, smallest

Array = np.ndarray
Record = Mapping[str, Array]
Rule = Callable[[Record], int]
Averaging = Callable[[Record], Array]
Losses = Callable[[Record], Array]
NAMES = {bagging[:2]: f"selection={name!r}" for name, bagging in BAGGINGS.items()}


def minimum(losses: Array) -> int:
    return int(losses.mean(axis=0).argmin())


def within(losses: Array, errors: float) -> int:
    """The strongest penalty whose risk is within so many paired standard errors of the smallest."""
    risks = losses.mean(axis=0)
    paired = paired_errors(losses, np.ones(len(losses)), smallest(risks))
    return int(np.flatnonzero(risks <= risks.min() + errors * paired)[0])


def bagging(losses: Array, spread: float, errors: float) -> int:
    """Gaussian draws, tails capped, strengths out of reach left out: as the library does it."""
    weights, risks = np.ones(len(losses)), losses.mean(axis=0)
    found = contest([(losses, risks, paired_errors(losses, weights, smallest(risks)))], weights)
    held = {tuple(one[:2]): one for one in BAGGINGS.values()}
    own = held.get((spread, errors), Bagging(spread, errors))
    return bagged(found.risks, found.covariance, found.positions, own)


def shares(losses: Array, spread: float, errors: float, weaker: float = 1.0, draws: int = 400) -> Array:
    """How often each strength is the choice of a draw: (J,), in all 1.

    As ``bagging``, without its mean position; a draw that chooses a penalty clearly too weak counts for the
    weakest one that is not.
    """
    weights, risks = np.ones(len(losses)), losses.mean(axis=0)
    found = contest([(losses, risks, paired_errors(losses, weights, smallest(risks)))], weights)
    values, vectors = np.linalg.eigh(found.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    half = np.random.default_rng(0).standard_normal((draws // 2, len(root))) @ root.T
    drawn = found.risks + spread * np.vstack([half, -half])
    variances = found.covariance.diagonal()
    apart = np.sqrt(np.maximum(np.add.outer(variances, variances) - 2.0 * found.covariance, 0.0))
    same = 1e-4 * np.sqrt(variances.max())
    best, least = drawn.argmin(axis=1), drawn.min(axis=1, keepdims=True)
    chosen = (drawn <= least + same + errors * apart[best]).argmax(axis=1)
    at = int(found.risks.argmin())
    weakest = np.flatnonzero(found.risks <= found.risks[at] + weaker * apart[at])[-1]
    places = found.positions[np.minimum(chosen, weakest)]
    return np.bincount(places, minlength=len(risks)) / len(places)


def weighted(losses: Array, shape: float = 1.0, draws: int = 300) -> Array:
    """Positions of the minimum under random weights of the rows, 1 for the Bayesian bootstrap: (B,)."""
    weights = np.random.default_rng(0).gamma(shape, size=(draws, len(losses)))
    return (weights @ losses).argmin(axis=1)


def nearest(position: float, count: int) -> int:
    """The nearest strength; half-way, the stronger penalty."""
    return int(np.clip(np.ceil(position - 0.5), 0, count - 1))


def mean_position(losses: Array, shape: float = 1.0) -> int:
    return nearest(float(weighted(losses, shape).mean()), losses.shape[1])


def median_position(losses: Array) -> int:
    return nearest(float(np.median(weighted(losses))), losses.shape[1])


def winsorised(losses: Array, share: float) -> Array:
    """Differences to the best of the means, the extreme ones of each strength pulled in."""
    differences = losses - losses[:, [losses.mean(axis=0).argmin()]]
    low, high = np.quantile(differences, [share, 1.0 - share], axis=0)
    return np.clip(differences, low, high)


def capped(losses: Array, share: float) -> Array:
    """No loss above this quantile of the losses at the best strength."""
    return np.minimum(losses, np.quantile(losses[:, losses.mean(axis=0).argmin()], share))


def huber(losses: Array, spreads: float) -> Array:
    """Squared errors beyond so many spreads made linear, spreads being robust."""
    errors = np.sqrt(losses)
    edge = spreads * 1.4826 * float(np.median(errors[:, losses.mean(axis=0).argmin()]))
    return np.where(errors <= edge, losses, 2.0 * edge * errors - edge**2)


def on_fewer(record: Record, share: float) -> Array:
    """Left-out losses as they would be on a share of the rows: df σ² (1/m − 1/n) more, σ² at the best."""
    losses = record["loo"]
    n, J = losses.shape
    df = record["parameters"][:J]
    noise = record["train"].sum(axis=0) / np.maximum(n - df, 1.0)
    return losses + df * noise[minimum(losses)] * (1.0 / (share * n) - 1.0 / n)


def gcv(record: Record) -> Array:
    n, J = record["train"].shape
    return record["train"] / (1.0 - np.minimum(record["parameters"][:J] / n, 0.99)) ** 2


def loo(record: Record) -> Array:
    return record["loo"]


def of_folds(count: int, repeats: int = 1) -> Losses:
    """Losses of each row by the fits on the other folds, averaged over repeats."""
    return lambda record: record[f"folds{count}"][:repeats].mean(axis=0)


def with_folds(count: int) -> Losses:
    return lambda record: 0.5 * (record["loo"] + record[f"folds{count}"][0])


def near(count: int, repeats: int = 1) -> Losses:
    """Losses of each row without its fold by one Newton step from the fit to all rows."""
    return lambda record: record[f"near{count}"][:repeats].mean(axis=0)


def with_near(count: int, repeats: int = 1) -> Losses:
    return lambda record: 0.5 * (record["loo"] + near(count, repeats)(record))


def like_cv(count: int, repeats: int = 1) -> Rule:
    """The smallest mean over folds of the folds' means, as the CV classes choose."""

    def rule(record: Record) -> int:
        risks = []
        for losses, number in zip(record[f"folds{count}"], record[f"fold_numbers{count}"], strict=True):
            risks.append(np.mean([losses[number == k].mean(axis=0) for k in np.unique(number)], axis=0))
        return int(np.mean(risks[:repeats], axis=0).argmin())

    return rule


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {
        "minimum": lambda r: minimum(loo(r)),
        "Bayesian bootstrap, mean position": lambda r: mean_position(loo(r)),
        "Bayesian bootstrap, median position": lambda r: median_position(loo(r)),
        "gamma(1/4) weights, mean position": lambda r: mean_position(loo(r), 0.25),
        "generalised cross-validation": lambda r: minimum(gcv(r)),
        "5 folds": like_cv(5),
        "10 folds": like_cv(10),
        "5 folds, 4 times": like_cv(5, 4),
        "10 folds, twice": like_cv(10, 2),
    }
    for errors in (0.25, 0.5, 1.0):
        rules[f"within {errors:g} paired errors"] = lambda r, c=errors: within(loo(r), c)
    sources: dict[str, Losses] = {
        "10 folds": of_folds(10),
        "5 folds, 4 times": of_folds(5, 4),
        "loo and 5 folds": with_folds(5),
        "loo and 10 folds": with_folds(10),
        "loo and near 5 folds": with_near(5),
        "loo and near 5 folds, 4 times": with_near(5, 4),
        "loo and near 10 folds, twice": with_near(10, 2),
        "near 5 folds, 4 times": near(5, 4),
        "loo as on 0.8 n rows": lambda r: on_fewer(r, 0.8),
        "loo as on 0.65 n rows": lambda r: on_fewer(r, 0.65),
        "loo winsorised at 2 %": lambda r: winsorised(loo(r), 0.02),
        "loo winsorised at 5 %": lambda r: winsorised(loo(r), 0.05),
        "loo capped at 98 %": lambda r: capped(loo(r), 0.98),
        "loo as Huber's, 3 spreads": lambda r: huber(loo(r), 3.0),
    }
    for name, source in sources.items():
        if "folds" not in name:
            rules[f"minimum of {name}"] = lambda r, f=source: minimum(f(r))
        rules[f"draws x 1 of {name}"] = lambda r, f=source: bagging(f(r), 1.0, 0.0)
    for name in (source for source in sources if "folds" in source):
        rules[f"draws x 2 within 0.5 of {name}"] = lambda r, f=sources[name]: bagging(f(r), 2.0, 0.5)
    for spread in (1.0, 1.5, 2.0, 3.0):
        for errors in (0.0, 0.25, 0.5, 0.75, 1.0):
            rules[NAMES.get((spread, errors), f"draws x {spread:g} within {errors:g}")] = (
                lambda r, s=spread, c=errors: bagging(loo(r), s, c)
            )
    return rules


def _averages() -> dict[str, Averaging]:
    averages: dict[str, Averaging] = {
        "averaged over Bayesian bootstrap": lambda r: (
            np.bincount(weighted(loo(r)), minlength=r["loo"].shape[1]) / 300.0
        ),
    }
    for spread in (1.0, 2.0, 3.0):
        for errors in (0.0, 0.5, 0.75):
            averages[f"averaged over draws x {spread:g} within {errors:g}"] = lambda r, s=spread, c=errors: (
                shares(loo(r), s, c)
            )
    for name, source in (
        ("loo and near 5 folds, 4 times", with_near(5, 4)),
        ("loo and 5 folds", with_folds(5)),
    ):
        averages[f"averaged over draws x 2 within 0.5 of {name}"] = lambda r, f=source: shares(f(r), 2.0, 0.5)
    return averages


def _of_model() -> dict[str, dict[str, Rule]]:
    """Rules on losses that one model alone has."""
    return {
        "ridge": {
            f"draws x {spread:g} within {errors:g} of {name}": (
                lambda r, k=key, s=spread, c=errors: bagging(r[k], s, c)
            )
            for key, name in (("expected5", "5 folds in the mean"), ("spread5", "loo with spread errors"))
            for spread, errors in ((1.0, 0.0), (2.0, 0.5))
        }
    }


RULES = _rules()
OF_MODEL = _of_model()
AVERAGES = _averages()
PEERS = ("5 folds", "10 folds")


def excess(record: Record, position: int) -> float:
    """Held-out loss above that of the best strength of the path, relatively."""
    return float(record["held_out"][position] / record["held_out"].min() - 1.0)


def excess_of_average(record: Record, own: Array, losses: Callable[[Array, Array], Array]) -> float:
    """The same of the fit whose coefficients are the average of the path's."""
    loss = losses(record["response"], record["others"] @ own[:, None]).mean()
    return float(loss / record["held_out"].min() - 1.0)

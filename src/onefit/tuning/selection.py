"""Which strength to choose, which others might be the best, and what the choice does to its own estimate.

Everything follows from the losses of the rows at all strengths, without refits.  Losses at two strengths are
strongly correlated, so their difference is known far better than either; and the smallest of many
estimates is too small.

The errors of J risks are jointly normal in the limit, with the covariance C of the losses' weighted means.
A Gaussian multiplier bootstrap of the rows has exactly this distribution, given the losses, so that errors
are drawn from N(0, C) itself, at a cost that does not depend on n.  All draws are from ``default_rng(0)``:
same data, same answer.

Rows count as independent given the fits, as for every standard error here.  For differences that is right
where the comparison is stable, as for ridge.  The lasso is not: its risk at one strength jumps against that
at the next as columns come and go, for all rows at once (Bayle, Janson and Mackey 2025, "The relative
instability of model comparison with cross-validation").  There the errors of differences are too small, by a
factor of two or so on few rows, and the correction removes only about half of the optimism.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from onefit import _linalg
from onefit._typing import Array, Index, Mask
from onefit.numerics import CONFIDENCE

Selection = Literal["bagged_se", "bagged", "min", "1se"]
SELECTIONS = ("bagged_se", "bagged", "min", "1se")
N_DRAWS = 1000
N_BAGGED = 100  # draws of a choice, which has to cost little beside the fit
ROUNDING = 1e-10  # of the largest variance: what is less is not drawn
EQUAL = 1e-9  # relatively: one row makes a difference of one standard error, but for rounding
SAME = 1e-4  # of the largest error: risks that differ by less are those of the same model


class Bagging(NamedTuple):
    """How a choice is bagged.

    Attributes
    ----------
    spread : float
        Errors that are drawn, relative to those that the rows show.
    errors : float
        Standard errors of a paired difference, as the rows show them, by which each draw prefers the
        stronger penalty.
    beyond : float
        Standard errors by which the risk of the choice may exceed the smallest risk.
    """

    spread: float
    errors: float
    beyond: float = np.inf


# Twice the errors that rows show, which are too small for paths that jump (above), and no penalty that is
# clearly too weak, where a few rows make errors so large that any strength may be the best, or too strong,
# where the risk has a hump between strengths that may be: docs/choice.md.
BAGGINGS = {"bagged_se": Bagging(2.0, 0.5, 1.0), "bagged": Bagging(1.0, 0.0)}


def smallest(risks: Array) -> int:
    """Position of the smallest risk, the first of several; 0 if all are unknown."""
    return int(smallest_of_each(risks))


def smallest_of_each(risks: Array) -> Index:
    """The same along the last axis: (..., J) risks give (...) positions."""
    return np.where(np.isnan(risks), np.inf, risks).argmin(axis=-1)


def bagged(risks: Array, roots: Array, positions: Index, bagging: Bagging) -> Index:
    """Mean position of each choice, had other rows been drawn: the one of ``positions`` nearest to it.

    The smallest of many risks moves a lot from one sample of rows to the next, most of all where the path is
    flat or a few rows decide.  Its mean over resampled rows (bootstrap aggregation, Breiman 1996, of the
    choice) moves less.  With ``errors``, each draw takes the strongest penalty within so many standard errors
    of its smallest risk: a penalty too strong costs little and at most what the null model does, one too weak
    may cost any multiple.  Half-way between two, the stronger penalty is taken.

    Parameters
    ----------
    risks : (t, J) array
        Of one response or several, strongest penalty first; infinite where a strength takes no part.
    roots : (t, J, k) array
        Of the covariances of their errors, or of those of their differences to one of them: ``roots_of``.
        Where they are not known, the smallest risk is chosen.
    positions : (J,) int array
        Their places on the path.
    bagging : Bagging
    """
    roots = np.where(np.isfinite(roots).all(axis=(1, 2), keepdims=True), roots, 0.0)
    covariance = np.matmul(roots, roots.transpose(0, 2, 1))
    pairs = _errors_of_pairs(covariance)
    drawn = risks[:, None] + bagging.spread * _cheap_draws(roots)
    choices = positions[_strongest(drawn, bagging.errors * pairs + _same(covariance)[:, None, None])]
    chosen = _nearest(choices.mean(axis=1), positions, np.isfinite(risks))
    return positions[_not_clearly_worse(chosen, risks, pairs, bagging.beyond)]


def roots_of(covariance: Array) -> Array:
    """B (t, J, k) with B Bᵀ = covariance (t, J, J) but for rounding; NaN where that is not known.

    From pivoted Cholesky factors, which end where what is left is rounding: the risks of a ridge path,
    be it of a hundred strengths, err in less than ten ways.
    """
    known = np.isfinite(covariance).all(axis=(1, 2), keepdims=True)
    roots = _linalg.low_rank_roots(np.where(known, covariance, 0.0), ROUNDING)
    return roots if known.all() else np.where(known, np.pad(roots, ((0, 0), (0, 0), (0, 1))), np.nan)


def _same(covariance: Array) -> Array:
    """How far risks of the same model may be apart, by rounding: (t, J, J) gives (t,)."""
    return SAME * np.sqrt(_diagonals(covariance).max(axis=-1, initial=0.0))


def _not_clearly_worse(chosen: Index, risks: Array, pairs: Array, errors: float) -> Index:
    """In each row of risks (B, J) the choice, or the next one on the way to the best within so many errors.

    ``pairs`` are standard errors of differences, (B, J, J), or (1, J, J) for all rows: (B,).
    """
    if np.isinf(errors):
        return chosen
    best, at = risks.argmin(axis=1), np.arange(risks.shape[1])
    least = np.take_along_axis(risks, best[:, None], axis=1)
    error = errors * pairs[np.arange(len(best)) % len(pairs), best]
    fair = risks <= least + error + EQUAL * (np.abs(least) + error)
    weaker, stronger = fair & (at <= chosen[:, None]), fair & (at >= chosen[:, None])
    ends = len(at) - 1 - weaker[:, ::-1].argmax(axis=1), stronger.argmax(axis=1)
    return np.where(chosen > best, ends[0], np.where(chosen < best, ends[1], chosen))


def _strongest(risks: Array, tolerances: Array) -> Index:
    """In each row of risks (t, B, J) the strongest penalty within tolerance of the smallest risk: (t, B).

    The second index of the tolerances (t, J, J) is the strength of the smallest risk.
    """
    best = risks.argmin(axis=2)
    least = np.take_along_axis(risks, best[..., None], axis=2)
    least = least + tolerances[np.arange(len(best))[:, None], best]
    return (risks <= least).argmax(axis=2)


def _nearest(means: Array, positions: Index, allowed: Mask) -> Index:
    """For each mean the index of the nearest of the positions that are allowed (t, J), of two the first."""
    distances = np.where(allowed, np.abs(means[:, None] - positions), np.inf)
    return (distances <= distances.min(axis=1, keepdims=True) + 1e-9).argmax(axis=1)


def choose(risks: Array, paired: Array, selection: Selection) -> Index:
    """Position of the chosen strength by a rule that needs nothing but errors of differences: (...).

    Parameters
    ----------
    risks : (..., J) array
        Strongest penalty first.
    paired : (..., J) array
        Standard errors of the differences to the smallest risk: ``paired_errors``.
    selection : "min" or "1se"
        The smallest risk; or the strongest penalty whose risk exceeds the smallest by no more than one
        standard error of that difference.  The classical rule (Breiman et al. 1984; ``lambda.1se`` of
        glmnet) takes the standard error of the smallest risk itself.  All strengths share most of that error,
        so it says little about which one is better, and the rule regularises too much.  The paired one is
        the modified rule of Yates et al. (2021), "Parsimonious model selection using information theory".
    """
    best = smallest_of_each(risks)[..., None]
    beyond = np.nan_to_num(paired) if selection == "1se" else 0.0
    return (risks <= np.take_along_axis(risks, best, axis=-1) + beyond).argmax(axis=-1)


def confidence_set(risks: Array, covariance: Array, n: int) -> Mask:
    """Strengths that cannot be told from the best: (J,) bool, the smallest risk always among them.

    Strength m leaves the set if it is worse than some other beyond chance, that is if the largest of the
    studentised paired differences, max_k (risk_m − risk_k)/se_mk, exceeds the 95 % quantile of its bootstrap
    distribution.  The set holds the truly best strength with 95 % confidence, however many there are (Lei
    2020, "Cross-validation with confidence"; Hansen, Lunde and Nason 2011, "The model confidence set").  The
    quantile lies between those for one difference and for J − 1 of them (Bonferroni), so only what falls
    between the two is drawn.  As the covariance is estimated from n rows, the differences are judged by
    Student's t with n − 1 degrees of freedom.

    Parameters
    ----------
    risks : (J,) array
    covariance : (J, J) array
        Of the errors of the risks, or of their differences to one of them: ``covariance_of_means``.
    n : int
        Rows with weight.
    """
    least = np.nan_to_num(_same(covariance))  # differences of the same model are rounding
    errors = np.maximum(_errors_of_pairs(covariance), least)
    rises = risks[:, None] - risks
    statistics = _normal(np.nan_to_num(_ratio(rises, errors)).max(axis=1, initial=0.0), n)
    one, every = ndtri(CONFIDENCE), -ndtri((1.0 - CONFIDENCE) / max(len(risks) - 1, 1))
    members = statistics <= one
    doubtful = np.flatnonzero((statistics > one) & (statistics <= every))
    drawn = _draws(covariance) if doubtful.size else np.empty((0, len(risks)))
    for m in doubtful:
        highest = _ratio(drawn[:, [m]] - drawn, errors[m]).max(axis=1)
        members[m] = statistics[m] <= np.quantile(highest, CONFIDENCE)
    return members


def corrected_risk(
    risks: Array,
    covariance: Array,
    selection: Selection,
    paths: Index | None = None,
    unseen: Array | float = 0.0,
) -> float:
    """Risk of the model that is chosen, corrected for having been chosen.

    The bootstrap bias corrected cross-validation of Tsamardinos, Greasidou and Borboudakis (2018) chooses on
    resampled rows and judges on the rows that were not drawn.  In the limit, with δ ~ N(0, C) the error of
    the resampled risks, the rows that were not drawn err by −δ: risk + δ chooses and risk − δ judges.  The
    two are independent (the coupled bootstrap of Oliveira, Lei and Tibshirani 2021), so the mean over δ is
    unbiased for a choice made on twice the variance: exact where all strengths are equally good, and a
    little too large elsewhere.

    Parameters
    ----------
    risks : (J,) array
        Strongest penalty first.
    covariance : (J, J) array
        Of the errors of the risks, or of their differences to one of them: ``covariance_of_means``.
    selection : "bagged_se", "bagged", "min" or "1se"
    paths : (J,) int array, optional
        Which path a strength belongs to, if there are several: of their choices the smallest risk is taken.
    unseen : (J,) array, optional
        What the choice adds to the risks.
    """
    if not np.all(np.isfinite(covariance)):
        return float("nan")
    drawn = _draws(covariance)
    own = np.zeros(len(risks), dtype=np.intp) if paths is None else paths
    chosen = _choices(risks + unseen + drawn, covariance, selection, own)
    return float(np.mean(risks[chosen] - drawn[np.arange(len(drawn)), chosen]))


def _choices(risks: Array, covariance: Array, selection: Selection, paths: Index) -> Index:
    """Chosen strength in each row of risks (B, J): (B,)."""
    rows = np.arange(len(risks))
    candidates = []
    for path in np.unique(paths):
        at = np.flatnonzero(paths == path)
        own, its = risks[:, at], covariance[np.ix_(at, at)]
        if selection in BAGGINGS:
            candidates.append(at[_bagged_choices(own, its, BAGGINGS[selection])])
        else:
            tolerances = float(selection == "1se") * _errors_of_pairs(its)
            candidates.append(at[_strongest(own[None], tolerances[None])[0]])
    at_choice = np.stack([risks[rows, best] for best in candidates])
    return np.stack(candidates)[at_choice.argmin(axis=0), rows]


def _bagged_choices(risks: Array, covariance: Array, bagging: Bagging) -> Index:
    pairs = _errors_of_pairs(covariance)[None]
    total, tolerances = np.zeros(len(risks)), bagging.errors * pairs + _same(covariance)
    drawn = bagging.spread * _cheap_draws(roots_of(covariance[None]), seed=1)[0]
    for error in drawn:
        total += _strongest(risks[None] + error, tolerances)[0]
    chosen = _nearest(total / len(drawn), np.arange(risks.shape[1]), np.isfinite(risks))
    return _not_clearly_worse(chosen, risks, pairs, bagging.beyond)


def _normal(statistics: Array, n: int) -> Array:
    """Normal scores that are as rare as Student's t on n − 1 degrees of freedom."""
    return -ndtri(stdtr(max(n - 1, 1), -statistics))


def _errors_of_pairs(covariance: Array) -> Array:
    """Standard errors of all differences: (..., J, J), not below the rounding of the covariance."""
    variances = _diagonals(covariance)
    scale = variances[..., :, None] + variances[..., None, :]
    return np.sqrt(np.maximum(scale - 2.0 * covariance, np.finfo(float).eps * scale))


def _diagonals(covariance: Array) -> Array:
    return np.diagonal(covariance, axis1=-2, axis2=-1)


def _ratio(rises: Array, errors: Array) -> Array:
    """Studentised differences; 0/0, of two strengths that are the same, is 0."""
    return np.divide(rises, errors, out=np.where(rises > 0, np.inf, 0.0), where=errors != 0)


def _draws(covariance: Array) -> Array:
    """Errors from N(0, covariance), each with its opposite: (B, J).

    The symmetric root is the only one that does not depend on how eigenvectors were chosen.
    """
    values, vectors = _linalg.eigh(covariance)
    root = _linalg.product(vectors * np.sqrt(np.maximum(values, 0.0)), vectors.T)
    half = _linalg.product(np.random.default_rng(0).standard_normal((N_DRAWS // 2, len(root))), root)
    return np.vstack([half, -half])


@cache
def _normals(count: int, seed: int) -> Array:
    """Of which the first do not depend on how many there are: (B / 2, count)."""
    return np.random.default_rng(seed).standard_normal((count, N_BAGGED // 2)).T


def _cheap_draws(roots: Array, seed: int = 0) -> Array:
    """Errors from N(0, B Bᵀ) for roots B (t, J, k), each with its opposite: (t, B, J).

    The same normals for all roots, so that a column of next to nothing changes next to nothing.
    """
    half = np.matmul(_normals(roots.shape[2], seed), roots.transpose(0, 2, 1))
    return np.concatenate([half, -half], axis=1)

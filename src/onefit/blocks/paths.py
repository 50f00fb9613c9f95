r"""From sums over rows to what rows are judged by: ridge, lasso and elastic-net paths.

The sums of ½ Σ w (y − Xβ − b)² are those of p rows R with RᵀR = Σ w z zᵀ, on which the exact active-set
method runs as on any data.  Leverages of the lasso follow the support: one direction for each column that
joined or left.  With an ℓ2 part K = G_SS + ℓ2 I moves with the strength, and neighbouring strengths share the
eigenvectors of the union U of their supports:  with M = K_UU⁻¹ and L = U \\ S,

    z_Sᵀ K_SS⁻¹ z_S = z_Uᵀ M z_U − ‖M_LL^{−½} M_L z_U‖².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from onefit._linalg import Factorization, eigh, is_graded, positive_eigenpairs, product
from onefit._typing import Array, Index
from onefit.blocks.guessed import GuessedRisks
from onefit.blocks.left_out_path import Directions, LeftOutPath, SolvedAnew
from onefit.blocks.optima import APART, PathLeverages, optima
from onefit.blocks.patterns import Patterns
from onefit.blocks.sums import RowSums
from onefit.numerics import EPS_SINGLE

# What single precision may take off a residual of usual size, relatively: the mean of n squares is right to
# about twice that over √n, and never worse than twice that.
SINGLE = 2e-5
FARTHEST = 1e15  # ratio of squared lengths of columns up to which shared eigenvectors leave eight digits


def solve_net(
    sums: RowSums, alphas: Array, l1_ratio: float, *, nonnegative: bool = False, surely: float = np.inf
) -> tuple[Array, Array, tuple[Directions, ...]]:
    """Coefficients, what refits take off them, and leverages at every strength.

    Parameters
    ----------
    sums : RowSums
        Centred where there is an intercept, with one response.
    alphas : (J,) array
        On the scale of ``sklearn.linear_model.ElasticNet``, strongest first.
    l1_ratio : float
    nonnegative : bool, default False
        Whether no coefficient goes below zero.
    surely : float, default inf
        How many times as far as its error the guessed risk rises past its minimum before the path ends.
    """
    p, J = len(sums.means), len(alphas)
    l1, l2 = sums.weight * l1_ratio * alphas, sums.weight * (1.0 - l1_ratio) * alphas
    coefs, drifts, slopes = np.zeros((3, p, J))
    shrink = 1.0 - 1.0 / sums.count  # what a refit without a row of mean weight keeps of the penalty
    supports, follow, guessed = list[Index](), PathLeverages(p), GuessedRisks(sums, surely)
    for j, found in enumerate(optima(sums, l1, l2, nonnegative=nonnegative)):
        support = found.support
        supports.append(np.sort(support))
        coefs[support, j] = found.beta
        slopes[support, j] = l1[j] * found.signs + l2[j] * found.beta
        if l2[j] == 0:
            drifts[support, j] = found.solved(slopes[support, j]) / sums.weight
            follow.add(found)
        if guessed.ends_by(found, l1[j], l2[j]):
            break
    stop = len(supports)
    coefs, drifts, slopes = coefs[:, :stop], drifts[:, :stop], slopes[:, :stop]
    if l1_ratio == 1.0:
        return coefs, drifts, tuple(follow.leverages())
    leverages = tuple(_shared(sums.gram, shrink * l2[:stop], supports))
    for strengths, directions, shares in leverages:
        along = shares * product(directions.T, slopes[:, strengths])
        drifts[:, strengths] = product(directions, along) / sums.weight
    return coefs, np.where(slopes != 0, drifts, 0.0), leverages  # off the support rounding


def _shared(gram: Array, l2: Array, supports: list[Index]) -> Iterator[Directions]:
    """Leverages of neighbouring strengths from the eigenvectors of the union of their supports."""
    start, J, sizes = 0, len(supports), [len(own) for own in supports]
    while start < J:
        union, stop, held = supports[start], start + 1, sizes[start]
        work = _work(1, held, held)
        while stop < J:
            larger, held = _union(len(gram), union, supports[stop]), held + sizes[stop]
            joined = _work(stop + 1 - start, held, len(larger))
            if joined > work + _work(1, sizes[stop], sizes[stop]):
                break
            union, stop, work = larger, stop + 1, joined
        made = _on_union(gram, l2[start:stop], supports[start:stop], union)
        if made is None:  # the first one on its own
            stop = start + 1
            made = _alone(gram, float(l2[start]), supports[start])
        yield Directions(slice(start, stop), *made)
        start = stop


def _union(p: int, one: Index, other: Index) -> Index:
    """Columns that are in one or the other, ascending."""
    inside = np.zeros(p, dtype=bool)
    inside[one] = inside[other] = True
    return np.flatnonzero(inside)


def _work(count: int, held: int, k: int) -> int:
    """Multiplications a row, of so many strengths that together hold so many columns of k."""
    apart = count * k - held
    return (k + apart) * (k + count)


def _on_union(gram: Array, l2: Array, supports: list[Index], union: Index) -> tuple[Array, Array] | None:
    """Directions (p, m) and shares (m, J).

    None where a column that is not there depends on the others, or units are so different that eigenvectors
    know nothing of some.
    """
    p, k = len(gram), len(union)
    own = gram[np.ix_(union, union)]
    lengths = own.diagonal() + l2.min()
    if is_graded(lengths, FARTHEST):
        return None
    values, vectors = positive_eigenpairs(own) if is_graded(lengths) else eigh(own)
    values = np.maximum(values, 0.0)
    if len(values) < k:
        return None
    inside, shares = [vectors], [1.0 / (values[:, None] + l2)]
    for j, support in enumerate(supports):
        apart = np.ones(k, dtype=bool)
        apart[np.searchsorted(union, support)] = False
        gone = np.flatnonzero(apart)
        if gone.size == 0:
            continue
        inverse = product(vectors * shares[0][:, j], vectors[gone].T)  # M_L
        corner, failed = lapack.dpotrf(inverse[gone], lower=0, clean=1)
        lengths = gram[union[gone], union[gone]] + l2[j]
        if failed or np.any(inverse[gone].diagonal() * lengths * APART > 1.0):
            return None
        inside.append(lapack.dtrtrs(corner, inverse.T, trans=1)[0].T)
        own = np.zeros((gone.size, len(l2)))
        own[:, j] = -1.0
        shares.append(own)
    directions = np.zeros((p, sum(part.shape[1] for part in inside)))
    directions[union] = np.hstack(inside)
    return directions, np.vstack(shares) if k else np.zeros((0, len(l2)))


def _alone(gram: Array, l2: float, support: Index) -> tuple[Array, Array]:
    """The same of one strength, by a Cholesky factor, which units do not matter to."""
    root = Factorization.of(gram[np.ix_(support, support)] + l2 * np.eye(len(support))).inverse_root
    directions = np.zeros((len(gram), root.shape[1]))
    directions[support] = root
    return directions, np.ones((root.shape[1], 1))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of Σ w z zᵀ above rounding, and their vectors (Golub, Heath and Wahba 1979).

    Attributes
    ----------
    sums : RowSums
    values : (r,) array
    vectors : (p, r) array
    """

    sums: RowSums
    values: Array
    vectors: Array

    @classmethod
    def of(cls, sums: RowSums) -> Spectrum:
        """Decompose."""
        return cls(sums, *positive_eigenpairs(sums.gram))

    @property
    def largest(self) -> float:
        """Largest eigenvalue."""
        return float(self.values.max(initial=0.0))

    def coefs(self, alphas: Array) -> Array:
        """Coefficients of one response at every strength: (p, J)."""
        along = product(self.vectors.T, self.sums.cross)
        return product(self.vectors, along / (self.values[:, None] + alphas))

    def leverages(self, alphas: Array) -> Directions:
        """Leverages at every strength."""
        return Directions(slice(0, len(alphas)), self.vectors, 1.0 / (self.values[:, None] + alphas))


def ridge_path(spectrum: Spectrum, alphas: Array) -> LeftOutPath:
    """Ridge of one response at every strength.

    Parameters
    ----------
    spectrum : Spectrum
        Of the sums over all rows; about zero for models without an intercept.
    alphas : (J,) array
        On the scale of ``sklearn.linear_model.Ridge``.
    """
    coefs = spectrum.coefs(alphas)
    path = _path(spectrum.sums, coefs, np.zeros_like(coefs), (spectrum.leverages(alphas),))
    return replace(path, is_smooth=True)


def net_path(
    sums: RowSums,
    alphas: Array,
    l1_ratio: float = 1.0,
    *,
    nonnegative: bool = False,
    surely: float = np.inf,
) -> LeftOutPath:
    """Lasso or elastic net at every strength, exactly.

    Parameters
    ----------
    sums : RowSums
        Of all rows; about zero for models without an intercept.
    alphas : (J,) array
        On the scale of ``sklearn.linear_model.ElasticNet``, strongest first.
    l1_ratio : float
        In (0, 1].
    nonnegative : bool, default False
        Whether no coefficient goes below zero.
    surely : float, default inf
        How many times as far as its error the guessed risk rises past its minimum before the path ends.
    """
    own = sums, alphas, l1_ratio
    return _path(sums, *solve_net(*own, nonnegative=nonnegative, surely=surely))


def solved_anew(
    path: LeftOutPath,
    sums: RowSums,
    alphas: Array,
    l1_ratio: float,
    which: Index,
    *,
    are_all: bool = True,
    nonnegative: bool = False,
) -> SolvedAnew | None:
    """What solves rows whose pattern changes anew, at some strengths of a path.

    Either all of them or those with little slack only, which the formula may take for far too much.  A refit
    without row i keeps the share 1 − w_i/W of an ℓ2 part; of unequal weights the mean share is taken, which
    changes how far the refit is from the fit by a share |w_i/W − 1/n| of it at most.
    """
    if which.size == 0:
        return None
    own = sums.weight * alphas[which]
    kept = (1.0 - l1_ratio) * (1.0 - 1.0 / sums.count) * own
    coefs, drifts = path.coefs[:, which], path.drifts[:, which]
    patterns = Patterns.of(sums, coefs, drifts, l1_ratio * own, kept, nonnegative=nonnegative)
    return SolvedAnew(which, patterns, are_all, l1_ratio == 1.0 or sums.has_equal_weights)


def _path(sums: RowSums, coefs: Array, drifts: Array, leverages: tuple[Directions, ...]) -> LeftOutPath:
    left = _left(sums, coefs)
    guessed = left / sums.weight / np.maximum(1.0 - _freedom(sums, leverages) / sums.count, 1e-8) ** 2
    reference = int(guessed.argmin())
    spread = np.sqrt(sums.gram.diagonal())
    apart = spread @ np.abs(coefs - coefs[:, [reference]])
    off = EPS_SINGLE * apart / np.sqrt(np.maximum(left, np.finfo(float).tiny))
    return LeftOutPath(
        means=sums.means,
        y_mean=float(sums.y_means[0]),
        base=sums.base_leverage,
        coefs=coefs,
        drifts=drifts,
        leverages=leverages,
        reference=reference,
        weight=sums.largest_weight if sums.has_equal_weights else None,
        single=bool(off.max(initial=0.0) <= SINGLE),
        guessed_risks=guessed,
    )


def _left(sums: RowSums, coefs: Array) -> Array:
    """Σ w r² of each fit: (J,)."""
    fitted = np.einsum("pj,pj->j", coefs, sums.gram @ coefs) - 2.0 * sums.cross[:, 0] @ coefs
    return np.maximum(sums.squares[0] + fitted, 0.0)


def _freedom(sums: RowSums, leverages: tuple[Directions, ...]) -> Array:
    """Degrees of freedom of each fit beside the intercept: (J,)."""
    own = [(T * product(sums.gram, T)).sum(axis=0) @ shares for _, T, shares in leverages]
    return np.concatenate(own)

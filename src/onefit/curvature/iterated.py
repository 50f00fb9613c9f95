"""K of which only products are taken: probes in place of the forms of a factor.

For random signs ε

    E[ε_i · √d_i z_iᵀ K⁻¹ Zᵀ D^½ ε] = d_i h_i        (Hutchinson 1990; Bekas, Kokiopoulou and Saad 2007)

and the same with the diagonal P of K in place of K, where the right side is known without probes.  The two
are nearly in proportion off the diagonal, so that what the second is off by tells most of what the first is
(a control variate).  Forms of the rows for which the rest matters most are solved for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from onefit import _linalg, cost
from onefit._typing import Array, Design, Index, Mask
from onefit.cost import Work
from onefit.curvature.base import Curvature, Direction, OfColumns, ScalarCurvature, WrappedScalar
from onefit.curvature.products import CLOSELY, Products, pairing
from onefit.fit import Fit
from onefit.numerics import TINY
from onefit.penalties import Coordinates

PROBES = 64  # of random signs, where the risk is told to a share of its standard error
FEW_PROBES = 16  # where strengths are compared, all by the same signs
USUAL_PRODUCTS = 10.0  # with K that a rough solution takes, about, before any is known
FAINT = 1e-4  # curvature of a row, relative to the largest, that counts for none
MEMORY = 12.0  # multiply-adds in a product of matrices that fetching a number of a sparse one takes, about
PRODUCTS_OF_A_FIT = 100.0  # with K, one direction at a time
DEARER = 1.0  # times as long as the probes that a factor must take: what rests on these is sampled
ROUGHLY = 3e-3  # error of solutions for probes, relative, whose sum is off by the square of it
COARSELY = 1e-2  # the same where strengths are compared, which is less than so few probes leave


@dataclass(frozen=True)
class Iterated(WrappedScalar):
    """K that is solved with by conjugate gradients; forms are estimates, and the rest asks for a factor."""

    inner: ScalarCurvature  # the same, to be factored
    X: Design
    products: Products
    probes: int = PROBES
    seen: tuple[Array, Array] | None = None  # what fewer of these probes say, if somebody has it
    error: float = CLOSELY  # of responses, relative
    is_estimated: ClassVar[bool] = True

    @property
    def is_definite(self) -> bool:
        return True

    @property
    def condition(self) -> float:
        """At most: its trace, scaled to a unit diagonal, over the least that the penalty adds."""
        return float(len(self.products.diagonal) * np.max(self.products.diagonal / self.products.curved))

    @property
    def usual_products(self) -> float:
        """With K, that a solution takes, as far as that has been seen."""
        return float(np.mean(self.products.taken)) if self.products.taken else USUAL_PRODUCTS

    def solve(self, gradient: Direction) -> Direction:
        return self.products.solve(gradient)

    def hat(self, rows: Array) -> Array:
        return self.predict(self.solve(Direction(_linalg.transposed_times(self.X, rows), rows.sum(axis=0))))

    def quadratic_forms(self) -> Array:
        return self.forms_by(np.ones(self.probes, dtype=bool))

    def forms_by(self, probes: Mask) -> Array:
        """Estimates of h by some of the probes: (n,)."""
        own = np.where(self._is_faint, self._most, self._by_probe[:, probes].mean(axis=1))
        own[self._picked] = self._exact
        return np.clip(own, 0.0, self._most)

    def forms_of(self, rows: Index) -> Array:
        """Forms h of some rows, solved for: (r,)."""
        gradient = self._of_rows(rows)
        step, _ = self.products.approached(gradient, CLOSELY)
        return 2.0 * pairing(step, gradient) - pairing(step, self.products.times(step))  # off by its square

    def answers_of(self, rows: Index) -> Direction:
        """K⁻¹ z of some rows, kept for those who ask again."""
        new = np.setdiff1d(rows, list(self.answers))
        found, _ = self.products.approached(self._of_rows(new), self.error)
        own = zip(new.tolist(), found.coef.T, found.intercept, strict=True)
        self.answers.update({k: Direction(coef, level) for k, coef, level in own})
        known = [self.answers[k] for k in rows.tolist()]
        return Direction(*(np.stack(parts, axis=-1) for parts in zip(*known, strict=True)))

    @cached_property
    def answers(self) -> dict[int, Direction]:
        """K⁻¹ z by row, of those that were asked for."""
        return {}

    def _of_rows(self, rows: Index) -> Direction:
        columns = _linalg.as_columns(self.X).basis_of_rows(rows)
        return Direction(columns, np.full(len(rows), self.products.intercept))

    @property
    def _bends(self) -> Array:
        return np.maximum(self.products.bends, 0.0)

    @cached_property
    def _is_faint(self) -> Mask:
        """Rows that bend so little that probes tell little of them: the most that h may be stands there."""
        return self._bends <= FAINT * self._bends.max()

    @cached_property
    def _most(self) -> Array:
        """Forms at most, as K ≥ C + d z zᵀ: (n,)."""
        most = self.products.forms_at_most()
        return np.asarray(most / (1.0 + self._bends * most))

    def with_probes(self, probes: int, error: float) -> Iterated:
        """The same by as many probes or more, of which the first are these, and responses to an error."""
        return replace(self, probes=probes, seen=self._of_signs, error=error)

    @cached_property
    def _of_signs(self) -> tuple[Array, Array]:
        """ε_i √d_i z_iᵀ K⁻¹ Zᵀ D^½ ε of each probe, and the same by P, less its mean: (n, probes) each."""
        root = np.sqrt(self._bends)[:, None]
        signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), size=(self.probes, len(root))).T
        if self.seen is not None and (begun := self.seen[0].shape[1]) == self.probes:
            return self.seen
        begun = 0 if self.seen is None else begun
        signs, products = signs[:, begun:], self.products
        rows = root * signs
        gradient = Direction(_linalg.transposed_times(self.X, rows), rows.sum(axis=0) * products.intercept)
        error = ROUGHLY if self.probes > FEW_PROBES else COARSELY
        first = rows * self.predict(products.solve(gradient, error))
        beside = rows * products.beside(gradient) - (self._bends * products.forms_beside())[:, None]
        if self.seen is None:
            return first, beside
        return np.hstack([self.seen[0], first]), np.hstack([self.seen[1], beside])

    @cached_property
    def _by_probe(self) -> Array:
        """What each probe says of h: (n, probes)."""
        first, beside = self._of_signs
        off = first - first.mean(axis=1, keepdims=True)
        share = float(np.sum(off * beside)) / max(float(np.sum(beside**2)), TINY)
        return (first - share * beside) / np.where(self._is_faint, 1.0, self._bends)[:, None]

    @cached_property
    def _picked(self) -> Index:
        """Rows whose predictors probes leave most in doubt; none where these are few."""
        open_to = np.where(self._is_faint, self._most, self._by_probe.std(axis=1))
        doubt = np.abs(self.products.fit.gradient) * open_to
        return np.argsort(-doubt, kind="stable")[: self.probes if self.probes > FEW_PROBES else 0]

    @cached_property
    def _exact(self) -> Array:
        return self.forms_of(self._picked)


def takes_far_less(fit: Fit) -> bool:
    """Whether probes of a fit take far less than a factor of its curvature, and tell all that a step needs.

    For smooth losses of one output that do not bend down, and penalties that curve every coefficient.
    """
    problem, tangent = fit.problem, fit.tangent
    smooth = fit.is_smooth and not problem.loss.is_quadratic
    if not smooth or fit.coef.ndim > 1 or not _linalg.has_columns(problem.X) or not tangent.size:
        return False
    if not isinstance(tangent, Coordinates) or tangent.hessian[tangent.support].min() <= 0:
        return False
    if fit.hessian.min() < 0 or not fit.hessian.any():
        return False
    factored = cost.newton_step(problem.n, 0, min(tangent.size, problem.n)).seconds
    return factored > DEARER * product_cost(fit).times(PROBES * (USUAL_PRODUCTS + 2.0)).seconds


def product_cost(fit: Fit) -> cost.Work:
    """A product with K, of one of several directions at once: memory is what takes the time."""
    n, p = fit.problem.X.shape
    return cost.Work(MEMORY * _linalg.as_columns(fit.problem.X).n_stored + MEMORY * (n + p))


def fit_cost(fit: Fit) -> cost.Work:
    """To solve a smooth problem from a point near its solution, by products where they take far less."""
    if takes_far_less(fit):
        return product_cost(fit).times(PRODUCTS_OF_A_FIT)
    n, p = fit.problem.X.shape
    k, quadratic = max(1, fit.tangent.size), fit.problem.loss.is_quadratic
    return cost.fit(n, p, k, fit.problem.n_coupled, quadratic=quadratic)


def cost_along_path(fit: Fit, before: Array) -> Work:
    """What a fit takes from coefficients near by, about: for least squares, what enters and leaves."""
    problem, inside = fit.problem, fit.coef != 0
    if not problem.loss.is_quadratic:
        return fit_cost(fit)
    (n, p), k = problem.X.shape, max(1, int(np.count_nonzero(inside)))
    changes = np.count_nonzero(inside != (before != 0))
    return Work(4.0 * n * p + 2.0 * n * k * (1.0 + changes), 60.0 + 20.0 * changes)


def by_products(fit: Fit, K: Curvature, share: float, probes: int) -> Curvature:
    """K by its products, where they take far less than a factor that nobody has made yet.

    Parameters
    ----------
    fit : Fit
    K : Curvature
        Of the fit.
    share : float
        Factor on the penalty's curvature in it.
    probes : int
    """
    if not isinstance(K, OfColumns) or K.is_factored or not takes_far_less(fit):
        return K
    return Iterated(K, fit.problem.X, Products(fit, fit.hessian, np.array(share)), probes)

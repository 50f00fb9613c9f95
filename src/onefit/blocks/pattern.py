"""How far left-out predictors may be off because an ℓ1 penalty changes its pattern when a row leaves.

The step keeps the signs of the fit.  Coefficients that it takes through zero are put back there, and what
then is left of the smallest subgradient r of the left-out problem bounds the distance to its solution: with A
the Hessian over all columns, less the row's own part, ‖error‖_A ≤ ‖r‖ in A⁻¹, as the penalty is convex
(``leave_out.prove``).  Where the pattern stays nothing is left, and the step is exact for squared loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self, final

import numpy as np

from onefit._linalg import cholesky, product
from onefit._typing import Array
from onefit.blocks.models import Quadratic
from onefit.numerics import ON_BOUND


class Checked(NamedTuple):
    """What was found for some rows: (r,) each.

    Attributes
    ----------
    forms
        Squared length of each row in the inverse Hessian over all columns.
    off
        What putting coefficients back to zero does to the row's predictor.
    moved
        Length of that in the Hessian.
    residual
        Norm of the gradient that is left; infinite where there is no bound.
    """

    forms: Array
    off: Array
    moved: Array
    residual: Array


@final
@dataclass(frozen=True)
class Pattern:
    """The support of a fit with an ℓ1 part, and what tells whether it stays.

    Attributes
    ----------
    coef : (p,) array
    l1 : (p,) array
    slope : (p,) array
        Gradient of the loss along the centred columns.
    means : (p,) array
    gram : (p, p) array
        Hessian of the loss, and the ℓ2 part.
    root : (p, p) array or None
        W with W Wᵀ its inverse; None where it has none.
    level : float
        1/Σd, or 0.
    """

    coef: Array
    l1: Array
    slope: Array
    means: Array
    gram: Array
    root: Array | None
    level: float

    @classmethod
    def of(cls, found: Quadratic, coef: Array, l1: Array, l2: Array) -> Self:
        """Read it off the second-order model at a fit."""
        gram = found.gram + np.diag(l2)
        factor = cholesky(gram)
        root = None if factor is None else np.asarray(np.linalg.inv(factor).T, dtype=np.float64)
        slope = found.slope + l2 * coef
        return cls(coef, l1, slope, found.means, gram, root, 1.0 / found.mass)

    def widest(self, X: Array) -> Array:
        """Squared length of each of some rows in the inverse Hessian over all columns: (r,)."""
        if self.root is None:
            return np.full(len(X), np.inf)
        half = product(X - self.means, self.root)
        return np.einsum("ij,ij->i", half, half) + self.level

    def check(self, X: Array, changes: Array, slopes: Array, hessian: Array, shares: Array) -> Checked:
        """Look for changes of the pattern without each of some rows.

        Parameters
        ----------
        X : (r, p) array
        changes : (r, k) array
            Of the coefficients on the support.
        slopes : (r,) array
            The row's own gradient where the step ends.
        hessian, shares : (r,) arrays
            d, and the share of the penalty that leaves with a row.
        """
        if self.root is None:
            nothing = np.full(len(X), np.inf)
            return Checked(np.zeros(len(X)), nothing, nothing, nothing)
        Z = X - self.means
        support = np.flatnonzero(self.coef)
        kept = self.l1 * (1.0 - shares[:, None])
        crossed = np.sign(self.coef[support] + changes) != np.sign(self.coef[support])
        back = np.where(crossed, -(self.coef[support] + changes), 0.0)
        # at the end of the step the gradient on the support balances the penalty, but for what is put back
        gradient = self.slope + product(changes + back, self.gram[support]) - slopes[:, None] * Z
        zero = np.ones(gradient.shape, dtype=bool)
        zero[:, support] = crossed
        excess = np.sign(gradient) * np.maximum(np.abs(gradient) - kept * (1.0 + ON_BOUND), 0.0)
        put_back = np.zeros_like(gradient)
        put_back += product(back, self.gram[support])
        left = np.where(zero, excess, put_back)
        half, along = product(Z, self.root), product(left, self.root)
        forms = np.einsum("ij,ij->i", half, half) + self.level
        slack = np.maximum(1.0 - hessian * forms, 1e-8)
        squares = np.einsum("ij,ij->i", along, along)
        squares += hessian * np.einsum("ij,ij->i", half, along) ** 2 / slack
        off = np.abs(np.einsum("ij,ij->i", Z[:, support], back))
        moved = np.einsum("ij,ij->i", product(back, self.gram[np.ix_(support, support)]), back)
        return Checked(forms, off, np.sqrt(np.maximum(moved, 0.0)), np.sqrt(squares))

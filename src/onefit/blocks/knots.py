"""The few strengths at which rows are measured, and how the others follow from them.

Along a path the leverages h of a row change smoothly with the strength, and those of all rows in the same
few ways.  On a sample of rows, a column-pivoted QR of h (rows times strengths) finds strengths, the knots,
whose columns span the others to a tolerance: an interpolative decomposition (Cheng, Gimbutas, Martinsson and
Rokhlin 2005).  Only at the knots is the curvature summed over all rows, and h computed.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import scipy.linalg

from onefit._typing import Array, Index


class Knots(NamedTuple):
    """Strengths that stand for all.

    Attributes
    ----------
    at : (K,) int array
        Their positions among J.
    shares : (J, K) array
        What makes the h of all strengths of those of the knots.
    nearest : (J,) int array
        Position of the knot that is nearest to each strength.
    """

    at: Index
    shares: Array
    nearest: Index

    @classmethod
    def all(cls, J: int) -> Self:
        """Every strength is one."""
        every = np.arange(J)
        return cls(every, np.eye(J), every)

    @classmethod
    def of(cls, forms: Array, tolerance: float) -> Self:
        """Choose as few as the tolerance allows.

        Parameters
        ----------
        forms : (r, J) array
            h of some rows.
        tolerance : float
            Root mean square of the error of h, relative to what a row has at the average strength.
        """
        relative = forms / forms.mean(axis=1, keepdims=True)
        R, order = scipy.linalg.qr(relative, mode="r", pivoting=True)
        J = relative.shape[1]
        left = [float(np.linalg.norm(R[k:, k:], axis=0).max(initial=0.0)) for k in range(J)]
        enough = [k for k in range(1, J) if left[k] <= tolerance * np.sqrt(len(forms))]
        K = enough[0] if enough else J
        shares = np.zeros((J, K))
        shares[order[:K]] = np.eye(K)
        shares[order[K:]] = scipy.linalg.solve_triangular(R[:K, :K], R[:K, K:]).T
        at = order[:K]
        sort = np.argsort(at)
        at, shares = at[sort], shares[:, sort]
        nearest = at[np.abs(np.arange(J)[:, None] - at).argmin(axis=1)]
        return cls(at, shares, nearest)

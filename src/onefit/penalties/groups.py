"""Penalties on the length of groups of coefficients: whole groups enter or stay out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from onefit._typing import Array, Index, Mask
from onefit.penalties.base import ZERO, OfOneStrength, check_one_each, size_of
from onefit.penalties.programs import Cone, Conic, ConicForm
from onefit.pieces import Pieces, Subspace, unit_vectors
from onefit.validation import check_share


@dataclass(frozen=True, eq=False)
class GroupPenalty(OfOneStrength, Conic):
    """l1 ‖β‖₁ + Σ_g s_g ‖β_g‖₂: everything follows from the strengths and the group of each feature.

    Parameters
    ----------
    groups : (p,) array-like of int, or sequence of index arrays
        Group of each feature.
    alpha : float, default 1.0
        Strength.

    Examples
    --------
    >>> import numpy as np
    >>> from onefit.penalties import GroupLasso
    >>> GroupLasso([0, 0, 1], alpha=1.0, weights=[1.0, 1.0]).value(np.array([3.0, 4.0, -1.0]))
    6.0
    """

    groups: Any
    alpha: float = 1.0
    pieces = Pieces.SMOOTH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._given_weights is not None:
            check_one_each("weights", self._given_weights, self.count, "one a group")
        _ = self.membership  # refuses bad groups

    @property
    @abstractmethod
    def _given_weights(self) -> Any:
        """Weights of the groups as they were given, or None."""

    @abstractmethod
    def strengths(self) -> tuple[float, Array]:
        """Return l1, and s_g of each group: (G,)."""

    @cached_property
    def membership(self) -> Index:
        """Group number of each feature: (p,).  Labels are numbered in sorted order, lists as they come."""
        return _from_lists(self.groups) if _are_lists(self.groups) else _from_labels(self.groups)

    @property
    def count(self) -> int:
        """Number of groups, G."""
        return int(self.membership.max()) + 1

    @cached_property
    def weights_of_groups(self) -> Array:
        """w_g: those given, or the square roots of the group sizes; (G,)."""
        if self._given_weights is None:
            return np.sqrt(np.bincount(self.membership))
        return np.asarray(self._given_weights, dtype=np.float64)

    def norms(self, coef: Array) -> Array:
        """‖β_g‖₂ of each group: (G,) or, of several coefficient vectors (p, r), (G, r)."""
        if coef.ndim == 1:
            return np.sqrt(np.bincount(self.membership, coef**2))
        return np.sqrt(self._incidence @ coef**2)

    @cached_property
    def _incidence(self) -> sp.csr_array:
        p = len(self.membership)
        return sp.csr_array((np.ones(p), (self.membership, np.arange(p))))

    def value(self, coef: Array) -> float:
        l1, strengths = self.strengths()
        return float(l1 * np.abs(coef).sum() + strengths @ self.norms(coef))

    def prox(self, coef: Array, step: float) -> Array:
        """Shrink every coefficient, then every group: the prox of the sum is that composition."""
        l1, strengths = self.strengths()
        coef = _shrink(coef, step * l1)
        norms = self.norms(coef)
        kept = np.maximum(norms - step * strengths, 0.0) / np.where(norms > 0, norms, 1.0)
        return kept[self.membership] * coef

    def tangent(self, coef: Array, loss_gradient: Array | None = None) -> Subspace:
        """Coordinates of the active groups, those at zero excepted where they are penalised one by one.

        On a group, ∇²‖β_g‖ = I/‖β_g‖ − β_g β_gᵀ/‖β_g‖³.
        """
        (l1, strengths), norms = self.strengths(), self.norms(coef)
        active = norms > ZERO * norms.max(initial=0.0)
        whole = active | (strengths == 0)
        support = whole[self.membership] & ((coef != 0) | (l1 == 0))  # at no kink
        s = np.where(active, strengths / np.where(active, norms, 1.0), 0.0)  # s_g / ‖β_g‖
        gradient = np.where(support, l1 * np.sign(coef) + s[self.membership] * coef, 0.0)
        columns = np.flatnonzero(support)
        own, k = self.membership[columns], len(columns)
        unit = coef[columns] / np.where(active, norms, 1.0)[own]
        hessian = np.where(own[:, None] == own, -np.outer(s[own] * unit, unit), 0.0)
        hessian[np.diag_indices(k)] += s[own]
        return Subspace.along(unit_vectors(len(coef), columns), gradient, hessian)

    def conic_form(self, p: int) -> ConicForm:
        """A second-order cone a group of positive strength, and 2p rows for ‖β‖₁."""
        l1, strengths = self.strengths()
        kept = np.flatnonzero(strengths > 0)
        members = [np.flatnonzero(self.membership == g) for g in kept]
        sizes = np.array([len(group) for group in members], dtype=np.intp)
        tops = np.cumsum(sizes + 1) - sizes - 1  # first row of each cone
        within = np.arange(int(sizes.sum())) + np.repeat(np.arange(len(kept)) + 1, sizes)
        columns = np.concatenate([np.empty(0, dtype=np.intp), *members])
        total = int(np.sum(sizes + 1))
        A = sp.csr_array((np.ones(len(within)), (within, columns)), shape=(total, p))
        E = sp.csr_array((np.ones(len(kept)), (tops, np.arange(len(kept)))), shape=(total, len(kept)))
        cones = [(Cone.SECOND_ORDER, int(size) + 1) for size in sizes]
        if l1 == 0:
            return ConicForm(A, E, strengths[kept], cones)
        eye = sp.csr_array(sp.eye_array(p))
        return ConicForm(
            sp.vstack([eye, -eye, A], format="csr"),
            sp.block_diag([sp.vstack([eye, eye]), E], format="csr"),
            np.concatenate([np.full(p, l1), strengths[kept]]),
            [(Cone.NONNEGATIVE, 2 * p), *cones],
        )

    def third(self, coef: Array, owed: Array) -> Array:
        """Derivative of s_g (tr E/‖β_g‖ − β_gᵀ E β_g/‖β_g‖³), E what is owed to the block of a group."""
        support = np.flatnonzero(self.tangent(coef).support)
        (_, strengths), norms = self.strengths(), self.norms(coef)[self.membership[support]]
        own = self.membership[support]
        E = np.where(own[:, None] == own, 0.5 * (owed + owed.T), 0.0)
        beta, s = coef[support], strengths[own]
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        trace, form = (np.bincount(own, one, self.count)[own] for one in (E.diagonal(), beta * (E @ beta)))
        total = np.zeros_like(coef)
        total[support] = s * inverse**3 * ((3.0 * form * inverse**2 - trace) * beta - 2.0 * (E @ beta))
        return total

    def has_kinks(self, shape: tuple[int, ...]) -> bool:
        l1, strengths = self.strengths()
        return bool(l1 > 0 or np.any(strengths > 0))

    def has_free_directions(self, shape: tuple[int, ...]) -> bool:
        l1, strengths = self.strengths()
        return bool(l1 == 0 and np.any(strengths == 0))

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        if shape[0] > len(self.membership) and _are_lists(self.groups):
            raise ValueError(
                f"feature {len(self.membership)} is in no group: groups list {len(self.membership)} features "
                f"and the coefficients are {shape[0]}"
            )
        if shape[0] != len(self.membership):
            raise ValueError(
                f"groups are of {len(self.membership)} features, but the coefficients are {shape[0]}"
            )

    def is_stationary(
        self, coef: Array, loss_gradient: Array, rtol: float = 1e-7, size: Array | None = None
    ) -> Mask:
        """Equality with the gradient where the penalty has one; ‖shrunk slope‖ ≤ s_g on groups at zero."""
        (l1, strengths), norms = self.strengths(), self.norms(coef)
        active = norms > ZERO * norms.max(axis=0, initial=0.0)
        s = np.where(active, strengths[:, None] / np.where(active, norms, 1.0), 0.0)
        slope = -loss_gradient - s[self.membership] * coef
        wrong = np.where(coef != 0, np.abs(slope - l1 * np.sign(coef)), np.abs(_shrink(slope, l1)))
        wrong = np.where(active[self.membership], wrong, 0.0)
        excess = self.norms(np.where(active[self.membership], 0.0, _shrink(slope, l1))) - strengths[:, None]
        size = np.broadcast_to(size_of(loss_gradient, size), coef.shape)
        holds = np.all(wrong <= rtol * size, axis=0) & np.all(excess <= rtol * self.norms(size), axis=0)
        return np.asarray(holds)


@dataclass(frozen=True, eq=False)
class GroupLasso(GroupPenalty):
    """alpha Σ_g w_g ‖β_g‖₂: group lasso.

    Parameters
    ----------
    groups : (p,) labels, or list of lists of int
        Group of each feature; or the columns of each group, which must not overlap.
    alpha : float, default 1.0
        Strength.
    weights : (G,) array, optional
        Weight of each group, labels in sorted order, lists as given; by default the square root of its
        size.  A group of weight 0 is not penalised.

    References
    ----------
    Yuan and Lin (2006), Model selection and estimation in regression with grouped variables.

    Examples
    --------
    >>> import numpy as np
    >>> GroupLasso(["a", "a", "b"], weights=[1.0, 2.0]).value(np.array([3.0, 4.0, -1.0]))
    7.0
    """

    weights: Any = None

    @property
    def _given_weights(self) -> Any:
        return self.weights

    def strengths(self) -> tuple[float, Array]:
        return 0.0, self.alpha * self.weights_of_groups


@dataclass(frozen=True, eq=False)
class SparseGroupLasso(GroupPenalty):
    """alpha (l1_ratio ‖β‖₁ + (1 − l1_ratio) Σ_g w_g ‖β_g‖₂): few groups, and few features in each.

    Parameters
    ----------
    groups : (p,) labels, or list of lists of int
        Group of each feature; or the columns of each group, which must not overlap.
    alpha : float, default 1.0
        Strength.
    l1_ratio : float, default 0.5
        1 is the lasso, 0 the group lasso.
    weights : (G,) array, optional
        Weight of each group, labels in sorted order, lists as given; by default the square root of its
        size.

    References
    ----------
    Simon, Friedman, Hastie and Tibshirani (2013), A sparse-group lasso.

    Examples
    --------
    >>> import numpy as np
    >>> SparseGroupLasso([[0, 1], [2]], weights=[1.0, 2.0]).value(np.array([3.0, 4.0, -1.0]))
    7.5
    """

    l1_ratio: float = 0.5
    weights: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("l1_ratio", self.l1_ratio)

    @property
    def _given_weights(self) -> Any:
        return self.weights

    def strengths(self) -> tuple[float, Array]:
        return self.alpha * self.l1_ratio, self.alpha * (1.0 - self.l1_ratio) * self.weights_of_groups


def _shrink(values: Array, by: float) -> Array:
    return np.sign(values) * np.maximum(np.abs(values) - by, 0.0)


def _are_lists(groups: Any) -> bool:
    """Whether groups are lists of columns, and not one label a feature."""
    several = isinstance(groups, Sequence) and not isinstance(groups, str)
    return several and any(
        isinstance(group, Sequence | np.ndarray | set | range) and not isinstance(group, str)
        for group in groups
    )


def _from_labels(groups: Any) -> Index:
    labels = np.asarray(groups)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"groups must be one label a feature, or a list of lists of columns, got {groups!r}")
    if labels.dtype.kind == "f" and np.any(np.isnan(labels)):
        raise ValueError(f"groups[{np.flatnonzero(np.isnan(labels))[0]}] is missing (NaN): give it a label")
    return np.unique(labels, return_inverse=True)[1]


def _from_lists(groups: Any) -> Index:
    members = [_columns(g, group) for g, group in enumerate(groups)]
    columns = np.concatenate(members)
    times = np.bincount(columns)
    if np.any(times > 1):
        raise ValueError(
            f"feature {np.argmax(times > 1)} is in more than one place of groups: they must not overlap"
        )
    if np.any(times == 0):
        raise ValueError(
            f"feature {np.argmax(times == 0)} is in no group: give it one of its own, of weight 0"
        )
    membership = np.empty(len(columns), dtype=np.intp)
    membership[columns] = np.repeat(np.arange(len(members)), [len(group) for group in members])
    return membership


def _columns(g: int, group: Any) -> Index:
    columns = np.asarray(list(group) if isinstance(group, set | range) else group)
    if columns.shape == (0,):
        raise ValueError(f"groups[{g}] is empty")
    if columns.dtype.kind not in "iu" or columns.ndim != 1 or np.any(columns < 0):
        raise ValueError(f"groups[{g}] must be a list of column numbers from 0, got {group!r}")
    return columns.astype(np.intp)

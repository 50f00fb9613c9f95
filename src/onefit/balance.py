"""Classes whose weights depend on which rows there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onefit._typing import Array, Index, Sets


@dataclass(frozen=True)
class Balance:
    """Classes whose weights a refit computes anew, ω_k = W / (c W_k) (``class_weight="balanced"``).

    Attributes
    ----------
    classes : (n,) int array
        Class of each row, 0 … c − 1.
    raw_weights : (n,) array
        Weights before balancing; W_k is their sum over class k.
    """

    classes: Index
    raw_weights: Array

    def growth(self, k: int) -> Array:
        """By how much the weights of class k grow, relatively, when row i is not there: (n,)."""
        raw, own = self.raw_weights, self.classes == k
        share_of_class = np.where(own, raw / raw[own].sum(), 0.0)
        return (1.0 - raw / raw.sum()) / np.maximum(1.0 - share_of_class, 1e-8) - 1.0

    def growths(self, removed: Sets | None = None) -> Array:
        """By how much the weights of each class grow in each refit: (c, f)."""
        count = int(self.classes.max()) + 1
        if removed is None:
            return np.stack([self.growth(k) for k in range(count)])
        return np.reshape([self.growth_without(rows) for rows in removed], (-1, count)).T

    def growth_without(self, rows: int | Index) -> Array:
        """By how much the weights of each class grow, relatively, when these rows are not there: (c,).

        0 for a class that leaves as a whole: no weight of it is left to grow.
        """
        held = self.raw_weights.copy()
        held[rows] = 0.0
        whole, left = np.bincount(self.classes, self.raw_weights), np.bincount(self.classes, held)
        stays = left > 0
        shares = np.divide(left, whole, out=np.ones_like(left), where=stays)
        return np.where(stays, held.sum() / self.raw_weights.sum() / shares - 1.0, 0.0)

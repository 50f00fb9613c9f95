"""Steps that one curvature makes slow, mixed (Anderson 1965; Walker and Ni 2011).

Of all sums of the last steps with weights that add up to one, that is taken which is the shortest in the
norm of a curvature A; errors of the curvature by which they were found go then as they do by conjugate
gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onefit._typing import Array, Index

MIXED = 3  # steps that are worth it where each is as long as the rows: more take longer than they save
LEAVE = 0.25  # share of problems that are done before these are left behind: others are copied for that
DEPENDENT = 1e-12  # of differences of length one: an eigenvalue below it tells nothing


class ChordStep(NamedTuple):
    """A step by that curvature of each of some problems, along the last axis."""

    target: Array  # (…, f), where it leads, in any coordinates that depend on it linearly
    step: Array  # (…, f)
    image: Array  # A times the step: (…, f)

    def of(self, which: Index) -> ChordStep:
        """That of some of the problems."""
        return ChordStep(*(part[..., which] for part in self))


def mixed(steps: Sequence[ChordStep]) -> Array:
    """Where steps, oldest first, together lead to; where they do not tell, where the last one does.

    Parameters
    ----------
    steps : sequence of ChordStep
        Of the same problems, and at least one.
    """
    *before, last = steps
    found = last.target.copy()
    if not before:
        return found
    A, b = _products(before, last)
    lengths = np.einsum("fii->fi", A)
    known = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(b).all(axis=1) & (lengths > 0).all(axis=1)
    scale, shares = 1.0 / np.sqrt(lengths[known]), np.zeros_like(b)
    inside = scale[:, :, None] * A[known] * scale[:, None, :]
    values, axes = np.linalg.eigh(inside)
    told = np.abs(values) > DEPENDENT * np.abs(values).max(axis=1, keepdims=True)
    along = (axes.swapaxes(1, 2) @ (scale * b[known])[..., None])[..., 0]
    along = np.divide(along, values, out=np.zeros_like(along), where=told)
    shares[known] = scale * (axes @ along[..., None])[..., 0]
    for share, one in zip(shares.T, before, strict=True):
        found -= share * np.where(known, last.target - one.target, 0.0)
    return found


def _products(before: Sequence[ChordStep], last: ChordStep) -> tuple[Array, Array]:
    """Inner products of differences of steps with those of images and with the last: (f, s, s), (f, s)."""
    s, f = len(before), last.step.shape[-1]
    apart, images = np.empty((2, f, s + 1, last.step.size // f))  # problem by problem, for a product of each
    for k, one in enumerate(before):
        apart[:, k] = (last.step - one.step).reshape(-1, f).T
        images[:, k] = (last.image - one.image).reshape(-1, f).T
    images[:, s] = last.image.reshape(-1, f).T
    inner = apart[:, :s] @ images.swapaxes(1, 2)
    return inner[..., :s], inner[..., s]

"""Products of X with itself, which problems with the same rows share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from onefit import _linalg
from onefit._linalg import Covariance, RowSpan, row_span
from onefit._linalg.design import RowsInSingle
from onefit._typing import Array, Design


@dataclass(frozen=True, eq=False)
class InnerProducts:
    """Products of X with itself, for one who solves many ridge problems: formed when asked for.

    Attributes
    ----------
    X : Design
        Whose rows they are of.
    """

    X: Design

    @classmethod
    def of(cls, X: Design, gram: Array) -> Self:
        """Those that are known."""
        known = cls(X)
        known.__dict__["gram"] = gram
        return known

    @cached_property
    def gram(self) -> Array:
        """All pairs of rows: (n, n)."""
        return _linalg.as_design(self.X).row_gram(np.ones(self.X.shape[1]))

    @cached_property
    def about_mean(self) -> Array:
        """Those of rows less their mean, for models with an intercept: (n, n)."""
        share = np.full(self.X.shape[0], 1.0 / self.X.shape[0])
        if "gram" in self.__dict__:
            return _linalg.centred_gram(self.gram, share)
        return _linalg.as_design(self.X).centred_row_gram(np.ones(self.X.shape[1]), share)

    @cached_property
    def single(self) -> Array:
        """The same in single precision: what their length hides would be lost there."""
        return self.about_mean.astype(np.float32)

    @cached_property
    def rows_in_single(self) -> RowsInSingle | None:
        """Those of X for rough products, where it is dense."""
        return RowsInSingle.of(self.X)

    @cached_property
    def span(self) -> RowSpan:
        """The rows in coordinates of their span."""
        return row_span(self.X)

    @property
    def own(self) -> Design:
        """The rows in as few coordinates as there are: the columns, or those of their span."""
        n, p = self.X.shape
        return self.span.X if n < p else self.X

    @cached_property
    def covariance(self) -> Covariance:
        """Of the rows in these coordinates, all alike."""
        return Covariance.of(self.own, centred=True)

    @cached_property
    def about_zero(self) -> Covariance:
        """The same without means."""
        return Covariance.of(self.own, centred=False)

    @property
    def has_covariance(self) -> bool:
        """Whether one of these two is at hand."""
        return "covariance" in self.__dict__ or "about_zero" in self.__dict__

    def forget(self) -> None:
        """Drop what only paths need, which is as large as X."""
        for name in ("covariance", "about_zero", "rows_in_single"):
            self.__dict__.pop(name, None)

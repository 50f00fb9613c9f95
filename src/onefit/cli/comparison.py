"""Models on the same rows, compared by left-out risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from onefit._scoring import Pooled, by_row
from onefit._typing import Array
from onefit.cli import families
from onefit.cli.coefficients import Coefficients
from onefit.cli.cuts import Cuts
from onefit.cli.judged import LeftOutTable, class_numbers, response
from onefit.cli.table import Table
from onefit.numerics import EXACT
from onefit.risk.audit import Audit
from onefit.risk.estimate import RiskEstimate

# scores beside the loss: their sign, and values of each row whose mean they are but for that
NUMBERS = {"R²": (-1.0, by_row.unexplained), "RMSE": (1.0, by_row.root), "MAE": (1.0, by_row.absolute)}
PRECISION = "average precision"
CLASSES = {
    "AUC": (-1.0, by_row.area),
    PRECISION: (-1.0, by_row.precision),
    "Brier": (1.0, by_row.brier),
    "accuracy": (-1.0, by_row.missed),
}


class Score(NamedTuple):
    """A score and its standard error."""

    name: str
    value: float
    std_error: float


@dataclass(frozen=True, eq=False)
class TunedModel:
    """A model that has tuned itself.

    Attributes
    ----------
    name : str
    model : fitted estimator
        One of ``onefit.estimators``, fitted on all rows at the chosen strength.
    judged : LeftOutTable
        The left-out predictions that it was chosen by.
    """

    name: str
    model: Any
    judged: LeftOutTable

    @property
    def estimate(self) -> RiskEstimate:
        """Leave-one-out at the chosen strength."""
        return self.model.loo_

    @property
    def chosen(self) -> str:
        """The chosen hyperparameters."""
        return families.chosen(self.model)

    @cached_property
    def corrected_risk(self) -> float:
        """Risk, corrected for the choice of the strength."""
        return float(self.model.corrected_risk_)

    @property
    def risk(self) -> tuple[float, float]:
        """Mean of the losses that it is compared by, and its standard error."""
        return self.judged.own_risk

    @property
    def n_nonzero(self) -> int:
        """How many columns have a coefficient other than zero."""
        return int(np.any(np.atleast_2d(self.model.coef_) != 0, axis=0).sum())


@dataclass(frozen=True, eq=False)
class Suspicion:
    """A column whose values may hold rows together, and what happens to the best model if they do.

    Attributes
    ----------
    cuts : Cuts
    judged : LeftOutTable
        Of the best model, at the strength chosen without the cuts; without the column if it names groups.
    scores : list of Score
    """

    cuts: Cuts
    judged: LeftOutTable
    scores: list[Score]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates on the same rows, compared by left-out risk.

    Attributes
    ----------
    table : Table
    source : str
        Where the table came from.
    candidates : tuple of TunedModel
        In rising order of risk.
    feature_names : tuple of str
        Names after preprocessing.
    n_strengths : int
        How many strengths were tried for each.
    coefficients : Coefficients
        Of the best candidate.
    cuts : Cuts or None
        Rows that left together; None where each left alone.
    audit : Audit or None
        Of the best candidate, by refits with all of its preprocessing: of what it was chosen by where rows
        left together, else of leave-one-out in its own loss.
    suspicions : tuple of Suspicion
    read : tuple of str
        How the file was read.
    """

    table: Table
    source: str
    candidates: tuple[TunedModel, ...]
    feature_names: tuple[str, ...]
    n_strengths: int
    coefficients: Coefficients
    cuts: Cuts | None = None
    audit: Audit | None = None
    suspicions: tuple[Suspicion, ...] = ()
    read: tuple[str, ...] = ()

    @property
    def best(self) -> TunedModel:
        """The candidate of smallest risk."""
        return self.candidates[0]

    @property
    def loss_name(self) -> str:
        """What all candidates are judged by."""
        return self.best.judged.loss_name

    @property
    def audited_loss(self) -> tuple[str, float]:
        """The loss that an audit of the best candidate is in, and the standard error of its mean."""
        judged, est = self.best.judged, self.best.estimate
        return (est.loss_name, est.std_error) if self.cuts is None else (judged.loss_name, self.best.risk[1])

    def above_best(self, judged: LeftOutTable) -> tuple[float, float]:
        """Risk above that of the best, and the standard error of the paired difference."""
        return judged.above(self.best.judged)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, in sorted order; none for numbers."""
        return [str(label) for label in np.unique(self.table.y)] if self.table.is_classification else []

    @cached_property
    def prevalence(self) -> Array:
        """Share of each class among the judged rows: (c,)."""
        judged = self.best.judged
        of_rows = class_numbers(self.table.y)[judged.rows]
        return np.bincount(of_rows, judged.weights, len(self.classes)) / judged.weights.sum()

    @property
    def rarest(self) -> int:
        """Number of the class with the fewest rows; of several the last, the positive one of two."""
        return len(self.prevalence) - 1 - int(np.argmin(self.prevalence[::-1]))

    def scores_of(self, judged: LeftOutTable) -> list[Score]:
        """All scores that suit the task, with their errors; for classes the loss comes first.

        The average precision of two classes is that of the rarer one.
        """
        y, of_classes = response(self.table)[judged.rows], self.table.is_classification
        classes = np.arange(len(self.classes)) if of_classes else None
        if len(self.classes) == 2 and self.rarest == 0:  # precision is of the class that is looked for
            y, judged = 1.0 - y, judged.mirrored()
        p = judged.predictions
        pooled = Pooled(y, p, p, "", classes, judged.weights)
        found = [Score(judged.loss_name, *judged.own_risk)] if of_classes else []
        for name, (sign, of_rows) in (CLASSES if of_classes else NUMBERS).items():
            value, (_, error) = judged.value(of_rows, pooled), judged.risk(of_rows(pooled))
            found.append(Score(name, sign * value + 0.0, error))  # −0 is 0
        return found

    @cached_property
    def scores(self) -> list[Score]:
        """Scores of the best candidate on its left-out predictions."""
        return self.scores_of(self.best.judged)

    def score(self, name: str) -> float:
        """One of them; nan if the task has no such score."""
        return next((one.value for one in self.scores if one.name == name), float("nan"))

    @cached_property
    def alike(self) -> float:
        """Share of the pairs of a row of each of two classes that have the same features."""
        hashes = pd.util.hash_pandas_object(self.table.features, index=False).to_numpy()
        same, w, y = np.unique(hashes, return_inverse=True)[1], self.table.row_weights, response(self.table)
        of_each = [np.bincount(same, w * (y == one)) for one in (0.0, 1.0)]
        return float(of_each[0] @ of_each[1] / (of_each[0].sum() * of_each[1].sum()))

    @property
    def constant_risk(self) -> tuple[float, float]:
        """Risk of a constant on the rows of the best candidate, and its standard error."""
        return self.best.judged.risk(self.best.judged.baseline)

    @cached_property
    def gain(self) -> tuple[float, float]:
        """How much better the best is than a constant, and the standard error of that."""
        return self.above_best(self.best.judged.constant)

    def helps(self, one: Suspicion) -> bool:
        """Whether the best is better than a constant too where the rows of a column are together."""
        above, error = one.judged.constant.above(one.judged)
        return above > 2.0 * error

    @property
    def is_clear(self) -> bool:
        """Whether the best is better than a constant beyond doubt."""
        above, error = self.gain
        return above > 2.0 * error and not self.table.is_small and not self.is_level(self.gain)

    def is_level(self, above: tuple[float, float]) -> bool:
        """Whether a risk above the best is so by no more than risks are known to, beside its own size."""
        risk = self.best.risk[0]
        return abs(above[0]) <= EXACT * abs(risk + above[0])

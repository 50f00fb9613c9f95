"""Near the optimum of a curved loss with an ℓ1 part, by coordinate descent: ``newton`` ends what it begins.

Where many coefficients enter, each Newton step on a pattern factors a matrix of all of them, and most steps
only find the pattern.  A proximal Newton step minimises the quadratic model of the loss together with the
penalty itself (Lee, Sun and Saunders 2014), which is a weighted lasso or elastic net: scikit-learn's
coordinate descent solves it, on the columns that are in or want to enter, ever more exactly.  Where second
derivatives jump, rows change pieces from one such step to the next, but the columns have settled in between:
steps on the patterns of rows and columns at once are many times as many.

Columns that depend on each other (words that only ever come together) leave coefficients undetermined, and K
without a factor.  Along a combination of them that changes no linear predictor the penalty is the same
as long as no sign changes, so that one of them can be taken to zero: what is left is independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from onefit import _linalg, cost
from onefit._linalg.design import Columns
from onefit._typing import Array, Index
from onefit.cost import Work
from onefit.fit import Fit, once
from onefit.numerics import TINY
from onefit.penalties import SeparablePenalty
from onefit.solvers.line_search import ROUNDING, as_low_as, toward
from onefit.solvers.net_on_products import NetOnProducts
from onefit.solvers.one_output import curved, model_of, shifted, with_output
from onefit.solvers.sweeps import gap_of_net, swept

MOST_STEPS = 20
STEPS, SWEEPS = 5.0, 20.0  # usual steps, and sweeps over the columns in each
IN_A_SWEEPER = 3e3  # calls around each, several times as many as there are: what stands against it tells more
# The same of one of several outputs that are coupled, how often each of them moves while the others stay, and
# times as often to an optimum (150 to 5000 rows, 20 to 200 columns, 3 to 10 classes; a third to three times).
OF_ONE, TURNS, CLOSELY = 5e2, 20.0, 1.5
NEWTON_STEPS = 10.0  # that find a pattern and end there, about
FIRST_ERROR, LAST_ERROR, SHARPER = 1e-2, 1e-5, 0.1  # error of the steps, relative: each a tenth of the last
SHARPEST_BY_GAP = 1e-14  # the same, as long as a gap asks for it
NEAR = 1e-6  # fall of the objective, relative to it, that ends the steps
MOST_SWEEPS = 1000  # of a step
CLOSE = 1e-2  # gradient of all columns, in kinks, from which on only Newton steps are missing
MOST_PRODUCTS = 4000  # columns, up to which their products are held
FREE = 1e6  # times its share of the gradient that the penalty on an intercept's column leaves out


def is_possible(start: Fit) -> bool:
    """Whether a problem is a weighted lasso or elastic net, step by step, and steps shrink as Newton's do."""
    return start.problem.loss.is_smooth and leads_near(start)


def leads_near(start: Fit) -> bool:
    """Whether a problem is a weighted lasso or elastic net, step by step."""
    problem = start.problem
    of_one = (problem.has_one_output or problem.is_coupled) and _linalg.has_columns(problem.X)
    separable = isinstance(problem.penalty, SeparablePenalty)
    if not of_one or not separable or not start.is_kinked or problem.loss.has_kinks:
        return False
    l1, l2 = start.strengths
    return bool(np.all((l1 > 0) & np.isfinite(l1) & np.isfinite(l2)) and np.ptp(l2 / l1**2) == 0)


def applies(start: Fit) -> bool:
    """Whether an optimum is better approached like this than by Newton's method on the pattern alone."""
    problem = start.problem
    if problem.loss.is_quadratic or not is_possible(start):
        return False
    if _has_pattern(start, *start.strengths):
        return False
    k = sum(map(len, _open(start)))
    step = cost.newton_step(problem.n, 0, k, problem.n_coupled)
    return work(start, k, closely=True).seconds < step.times(NEWTON_STEPS).seconds


def work(fit: Fit, k: int, *, closely: bool = False) -> Work:
    """What it takes to go near an optimum of so many coefficients, or closely, about."""
    X = _linalg.as_columns(fit.problem.X)
    stored, outputs = float(X.n_stored) / X.shape[1], fit.problem.n_coupled
    if outputs == 1:
        return Work(2.0 * stored * k * SWEEPS, IN_A_SWEEPER).times(STEPS)
    own = k / outputs  # one moves at a time
    products = 8.0 * X.n_stored + 0.5 * stored * own**2 + SWEEPS * own**2
    turns = TURNS * (CLOSELY if closely else 1.0)
    return Work(products, OF_ONE, 3.0 * fit.problem.n * outputs).times(turns * outputs)


def _has_pattern(fit: Fit, l1: Array, l2: Array) -> bool:
    """Whether a point is so near to the optimum that steps on its pattern end there."""
    pull = fit.loss_gradient + l2 * fit.coef + l1 * np.sign(fit.coef)
    return bool(np.all(np.abs(pull) <= np.where(fit.coef != 0, CLOSE, 1.0 + CLOSE) * l1))


def approach(start: Fit, sweeps: int = MOST_SWEEPS, *, to_pattern: bool = False) -> Fit:
    """Go near the optimum of a problem with steps that ``leads_near``, on independent columns.

    Only so near ``to_pattern`` that most coefficients are in that are to be, where other steps go on.
    """
    fit, told = start, gap_tells(start)
    for error, moved in nearer(start, SHARPEST_BY_GAP if told else LAST_ERROR, sweeps):
        fall, fit = fit.objective - moved.objective, moved
        is_there = (gap(fit) if told else max(fall, 0.0)) <= NEAR * abs(fit.objective)
        if (error <= LAST_ERROR and to_pattern) or (is_there and (told or error <= LAST_ERROR)):
            break
    return _on_independent_columns(fit)


def is_near(fit: Fit) -> bool:
    """Whether next to nothing of the objective is left to fall, as far as the gap tells."""
    return gap(fit) <= NEAR * abs(fit.objective)


def gap_tells(fit: Fit) -> bool:
    """Whether the duality gap is near to what is left to fall: with ℓ2 parts, and outputs not in turn."""
    return not fit.problem.is_coupled and bool(np.all(fit.strengths[1] > 0))


def nearer(
    start: Fit, last: float, sweeps: int = MOST_SWEEPS, first: float = FIRST_ERROR
) -> Iterator[tuple[float, Fit]]:
    """Fits ever nearer to the optimum, each with the error of its step, from the first to the last."""
    fit, error, step = start, max(first, last), _stepping(start, sweeps)
    for _ in range(MOST_STEPS):
        fit = step(fit, error)
        yield error, fit
        error = max(error * SHARPER, last)


def _stepping(start: Fit, sweeps: int) -> Callable[[Fit, float], Fit]:
    """What goes on from a fit by a step of an error: products of dense columns serve all steps."""
    problem, columns = start.problem, _linalg.as_columns(start.problem.X)
    if problem.is_coupled:
        X = columns.by_column()
        return lambda fit, error: _in_turn(fit, X, error, sweeps)
    few = np.count_nonzero(start.coef) <= MOST_PRODUCTS
    if not problem.loss.is_quadratic or not columns.is_nearly_full or not few:
        X = columns.by_column()
        return lambda fit, error: toward(fit, model_minimum(fit, X, error, sweeps))
    held = NetOnProducts(problem)

    def on_products(fit: Fit, error: float) -> Fit:
        held.join(_of_step(fit))
        return held.minimum(fit, error, sweeps)

    return on_products


def _in_turn(fit: Fit, X: Array, error: float, sweeps: int) -> Fit:
    """A step of each of the coupled outputs, and of what they share."""
    for k in range(fit.problem.n_outputs):
        moved = with_output(fit, k, model_minimum(model_of(fit, k), X, error, sweeps))
        fit = moved if moved.objective <= fit.objective else toward(fit, moved)
    return shifted(fit)


def levelled(fit: Fit) -> Fit:
    """The same coefficients of a quadratic loss with the best intercept beside them; others as they are."""
    problem, loss = fit.problem, fit.problem.loss
    squares = loss.is_quadratic and not loss.is_kinked and problem.has_one_output
    if not squares or not problem.intercept or not np.any(fit.hessian):
        return fit
    shift = fit.intercept_gradient / fit.hessian.sum()
    return fit.moved(fit.coef, fit.intercept - shift).known(eta=fit.eta - shift)


def error_of_gap(fit: Fit, left: float) -> float:
    """Error of a step from a fit that leaves so much of the duality gap, or the usual first one."""
    models = [model_of(fit, k) for k in range(fit.problem.n_outputs)] if fit.problem.is_coupled else [fit]
    return min(FIRST_ERROR, left / max(sum(map(_squares, models)), TINY))


def _squares(fit: Fit) -> float:
    """What errors of steps are relative to: squares of the model's response, less those of a constant."""
    d = curved(fit.hessian)
    response = _response(fit, d)
    if fit.problem.intercept:
        response = response - float(response @ d / d.sum())
    return float(response @ (d * response))


def _response(fit: Fit, d: Array) -> Array:
    """Response of the loss's quadratic model."""
    return np.asarray(fit.eta - fit.gradient / d - (0.0 if fit.problem.intercept else fit.intercept))


@once
def gap(fit: Fit) -> float:
    """Duality gap of the problem's quadratic model in a fit: by how much the objective may fall, about.

    Of coupled outputs it is the sum of what each may bring on its own.
    """
    if fit.problem.is_coupled:
        return sum(_gap(model_of(fit, k)) for k in range(fit.problem.n_outputs))
    return _gap(fit)


def _gap(fit: Fit) -> float:
    """The same of one output: what the best intercept beside the coefficients brings, and the gap then."""
    problem, d = fit.problem, curved(fit.hessian)
    l1, l2 = fit.strengths
    level, g, along = float(fit.intercept_gradient), fit.gradient, fit.loss_gradient
    by_level = 0.5 * level**2 / float(d.sum())
    if abs(level) > ROUNDING * float(np.abs(g).sum()):
        g = g - d * (level / d.sum())
        along = _linalg.transposed_times(problem.X, g)
    return by_level + gap_of_net(fit.coef, -along, float(g @ (g / d)), l1, l2)


def _open(fit: Fit) -> tuple[Index, Index]:
    """Coefficients that are in, and those that want to enter, by how much."""
    l1, _ = fit.strengths
    pull = np.where(fit.coef == 0, np.abs(fit.loss_gradient) / l1, 0.0).ravel()
    wanting = np.flatnonzero(pull > 1.0)
    return np.flatnonzero(fit.coef), wanting[np.argsort(-pull[wanting], kind="stable")]


def _of_step(fit: Fit) -> Index:
    """Columns that a step is taken on.

    Far from the optimum many want to enter that will not stay: no more are in a step than half as many as
    there are rows, or a quarter of new ones.
    """
    n, (inside, wanting) = fit.problem.n, _open(fit)
    return np.sort(np.concatenate([inside, wanting[: max(n // 2 - inside.size, n // 4, 1)]]))


def model_minimum(fit: Fit, X: Array, error: float, sweeps: int) -> Fit:
    """Minimum of the loss's quadratic model and the penalty, in units of the columns in which ℓ1 is one."""
    problem, which = fit.problem, _of_step(fit)
    if not which.size:
        return fit
    l1, l2 = (strength[which] for strength in fit.strengths)
    d = curved(fit.hessian)
    columns = _linalg.as_columns(_linalg.as_columns(X).scaled_columns(which, 1.0 / l1))
    model = _WeightedNet(columns, d, _response(fit, d), float(l2[0] / l1[0] ** 2), bool(problem.intercept))
    scaled, level = model.way(fit.coef[which] * l1, float(fit.intercept), error, sweeps)
    coef = np.zeros_like(fit.coef)
    coef[which] = scaled / l1
    return Fit(problem, coef, np.asarray(level if problem.intercept else fit.intercept, dtype=np.float64))


class _WeightedNet(NamedTuple):
    """A weighted elastic net: ``ridge`` is ℓ2 beside an ℓ1 of one."""

    columns: Columns
    d: Array  # (n,), weights
    response: Array  # (n,)
    ridge: float
    intercept: bool

    @property
    def has_gram(self) -> bool:
        """Whether sweeps take less over products of columns than over rows: over all where they centre."""
        n, k = self.columns.shape
        touched = n * k if self.intercept and self.columns.is_nearly_full else self.columns.n_stored
        return k <= MOST_PRODUCTS and k**2 <= touched

    @property
    def way(self) -> Callable[[Array, float, float, int], tuple[Array, float]]:
        """What takes least."""
        if self.has_gram:
            return self.by_gram
        return self.by_border if self.intercept and not self.columns.is_nearly_full else self.by_row

    @property
    def mean(self) -> float:
        """Intercept of the constant model."""
        return float(self.response @ self.d / self.d.sum()) if self.intercept else 0.0

    def by_gram(self, start: Array, _: float, error: float, sweeps: int) -> tuple[Array, float]:
        """Coefficients, and the intercept."""
        d, columns, level = self.d, self.columns, self.mean
        means = _linalg.column_means(columns.X, d) if self.intercept else None
        centred = self.response - level
        coef = swept(
            np.broadcast_to(0.0, columns.shape),  # nothing but its shape is asked for beside the products
            np.sqrt(d) * centred,
            start,
            self.ridge,
            error,
            sweeps,
            precompute=_linalg.full_gram(columns.X, means, d).T,  # symmetric, in the order of C
            Xy=columns.transposed_times(d * centred),
        )
        return coef, level - (0.0 if means is None else float(means @ coef))

    def by_border(self, start: Array, start_level: float, error: float, sweeps: int) -> tuple[Array, float]:
        """The same, on columns as they are stored, beside a last one for the intercept.

        That column is so long that its coefficient is as good as free.  None is centred then, and steps take
        as long as there are stored numbers, not rows.
        """
        root, level = np.sqrt(self.d), self.mean
        rest = root * (self.response - level)
        long = FREE * (1.0 / max(float(root @ np.abs(rest)), TINY) + np.sqrt(self.ridge / self.d.sum()))
        X = _linalg.as_columns(self.columns.with_column(long)).by_column()
        X.data *= root[X.indices]
        begun = np.append(start, (start_level - level) / long)
        coef = swept(X, rest, begun, self.ridge, error, sweeps, border=long * root)
        return coef[:-1], level + long * float(coef[-1])

    def by_row(self, start: Array, _: float, error: float, sweeps: int) -> tuple[Array, float]:
        """The same, with centred columns: nearly full ones beside a border would take far more sweeps."""
        root, d, level = np.sqrt(self.d), self.d, self.mean
        rows = self.columns.columns_as_rows(np.arange(self.columns.shape[1]))  # each is a column
        means = _linalg.product(rows, d / d.sum() * self.intercept)
        X = ((rows - means[:, None]) * root).T  # in the order of Fortran
        coef = swept(X, root * (self.response - level), start, self.ridge, error, sweeps)
        return coef, level - float(means @ coef)


def _on_independent_columns(fit: Fit) -> Fit:
    """Take coefficients to zero that others can stand for, one after the other, at the same objective.

    Where no row curves, none is known to: what is straight changes along all combinations.
    """
    support = np.flatnonzero(fit.coef)
    ridge = np.any(fit.strengths[1])
    if not support.size or ridge or fit.problem.is_coupled or not fit.hessian.any():
        return fit
    columns = _linalg.active_columns(fit.problem.X, support)
    means = _linalg.column_means(columns, fit.hessian) if fit.problem.intercept else None
    null = _linalg.null_space(_linalg.as_columns(columns).weighted_gram(means, fit.hessian))
    while null.shape[1]:
        moved, gone = _without_one(fit, support, null[:, 0])
        if moved.objective > as_low_as(fit):
            break
        fit = moved
        null = null[:, 1:] - np.outer(null[:, 0], null[gone, 1:] / null[gone, 0])
        null[gone] = 0.0
    return fit


def _without_one(fit: Fit, support: Index, along: Array) -> tuple[Fit, int]:
    """Go along, where the ℓ1 norm does not rise, until the first coefficient is zero: its place, too."""
    l1, _ = fit.strengths
    held = fit.coef[support]
    if np.sign(held) * l1[support] @ along > 0:
        along = -along
    with np.errstate(divide="ignore", invalid="ignore"):
        until = np.where(held * along < 0, -held / along, np.inf)
    gone = int(np.argmin(until))
    if not np.isfinite(until[gone]):  # no sign is against it: the norm would rise
        return fit.moved(fit.coef, fit.intercept), gone
    coef = fit.coef.copy()
    coef[support] = held + until[gone] * along
    coef[support[gone]] = 0.0
    change = _linalg.times(fit.problem.X, coef - fit.coef)
    level = float(fit.hessian @ change / fit.hessian.sum()) if fit.problem.intercept else 0.0
    return fit.moved(coef, fit.intercept - level), gone

"""The risk of a program as a function of its parameters, with its gradient (Wang et al. 2019, section 3).

Derivatives of the solution of a conic program in its data, by its differentiated optimality conditions.

    minimise ½ xᵀP x + qᵀx   subject to   A x + s = b,   s in K

is solved where P x + q + Aᵀz = 0 and A x + s = b with z in the dual cone, orthogonal to s.  With v = z − s
these are equations of (x, v), as z = Π(v) and s = Π(v) − v for the projection Π on the dual cone (Agrawal,
Barratt, Boyd, Busseti and Moursi 2019; Wang et al. 2019, eqs 4 to 6).  Their derivative is linear in the
change of the data:

    [ P   AᵀJ   ] [dx]     [ −(dP x + dq + dAᵀz) ]
    [ A   J − I ] [dv]  =  [ db − dA x           ],      J the derivative of Π at v,

so that one solve with the transposed matrix gives the derivative of any function of x in all of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsmr, splu

from onefit import _linalg
from onefit._typing import Array, Design, Index, Mask
from onefit.convex_program.model import ConvexProgram
from onefit.convex_program.program import SplitProgram, solved_data
from onefit.exceptions import SolverError, UnsupportedModelError
from onefit.leave_out.sets import Folds
from onefit.problem import Problem
from onefit.tuning.held_out import HeldOutJudge
from onefit.tuning.judges import Judge, LeaveOneOutJudge
from onefit.tuning.objective import Objective, RiskObjective, Visited, objective_of
from onefit.tuning.space import Domain, Space

STEP = 1e-4  # by which a parameter is moved to see what it does to the data, relative to its value
LEAST = 1e-3  # what counts as the value of a parameter that is zero, relative to its bounds
INSIDE = 1e-5  # distance from the boundary of a cone, relative to the length, from which a point is inside
SOLVED = 1e-8  # relative residual of the linear system


@dataclass(eq=False)
class ProgramObjective(Objective):
    """The risk over splits: every training set is solved, and its solution differentiated.

    Attributes
    ----------
    space : Space
    model : ConvexProgram
    judge : HeldOutJudge or LeaveOneOutJudge
        Of the latter every row is a split.
    """

    space: Space
    model: ConvexProgram
    judge: Judge
    folds: Folds
    weights: Array
    visited: list[Visited] = field(default_factory=list)

    def has_kinks(self) -> bool:
        return True  # where a support changes

    def without_effect(self) -> list[str]:
        return []

    def value(self, t: Array) -> float:
        return self._solved(t)[0]

    def value_and_gradient(self, t: Array) -> tuple[float, Array]:
        value, solutions = self._solved(t)
        gradient = np.zeros(len(t))
        if not np.isfinite(value):
            return value, gradient
        adjoints = [(one, one.adjoint(self._slopes(k, one))) for k, one in enumerate(solutions)]
        for domain, s in self.space.parts():
            assert isinstance(domain, Domain), domain.name
            gradient[s] = [self._along(t, domain, unit, adjoints) for unit in np.eye(domain.size)]
        return value, gradient

    def _solved(self, t: Array) -> tuple[float, list[ConicSolution]]:
        program = self._program(self.space.values(t))
        solutions, of_each = list[ConicSolution](), list[float]()
        try:
            for k in range(len(self.folds)):
                solutions.append(ConicSolution.of(program, self._kept(k)))
                of_each.append(self._risk(k, solutions[-1]))
            value, by_set = float(sum(of_each)), self._of_sets(of_each)
        except SolverError:
            value, by_set = np.inf, None
        self.visited.append(Visited(t.copy(), value, by_set))
        return value, solutions

    def _of_sets(self, values: list[float]) -> Array | None:
        return self.judge.of_sets(values) if isinstance(self.judge, HeldOutJudge) else None

    def _program(self, values: dict[str, Any]) -> SplitProgram:
        return self.model.written.at({**self.model.values, **values})

    def _kept(self, k: int) -> Mask:
        kept = np.ones(len(self.weights), dtype=bool)
        kept[self.folds.removed[k]] = False
        return kept

    def _shares(self, k: int) -> Array:
        return self.weights[self.folds.tested[k]] / self.weights[self.folds.rows].sum()

    def _risk(self, k: int, one: ConicSolution) -> float:
        tested = self.folds.tested[k]
        losses = self.judge.metric.losses(self.judge.target[tested], one.predictors[tested])
        return float(self._shares(k) @ losses)

    def _slopes(self, k: int, one: ConicSolution) -> Array:
        tested, slopes = self.folds.tested[k], np.zeros(len(self.weights))
        found = self.judge.metric.slopes(self.judge.target[tested], one.predictors[tested])
        slopes[tested] = self._shares(k) * found
        return slopes

    def _along(
        self, t: Array, domain: Domain, unit: Array, adjoints: list[tuple[ConicSolution, tuple[Array, Array]]]
    ) -> float:
        """Derivative in one component: all splits' data, a little above its value and a little below."""
        values = self.space.values(t)
        own = np.asarray(values[domain.name], dtype=np.float64)
        at = unit if domain.groups is None else unit[domain.groups]
        size = float(np.abs(own * at).max())
        step = STEP * max(size, LEAST * (domain.high - domain.low))
        low = step if np.min(own[at > 0] if own.ndim else own) - step >= domain.low else 0.0
        high = step if low else 2.0 * step
        shift = at[0] if domain.groups is None else at
        ahead = self._program({**values, domain.name: own + high * shift})
        behind = self._program({**values, domain.name: own - low * shift})
        total = sum(
            one.along(adjoint, self._data(ahead, k), self._data(behind, k), high + low)
            for k, (one, adjoint) in enumerate(adjoints)
        )
        return total * (size if domain.scale == "log" else 1.0)

    def _data(self, program: SplitProgram, k: int) -> ConicData:
        data = program.by_rows(self._kept(k)).get_problem_data("CLARABEL")[0]
        return ConicData.of(data, program.places(data))


@objective_of.register(ConvexProgram)
def _of_program(
    model: ConvexProgram,
    space: Space,
    problem_at: Callable[[dict[str, Any]], Problem],
    judge: Judge,
    in_gram: Callable[[Design, str, Array], Array | None] | None = None,
) -> Objective:
    if isinstance(judge, HeldOutJudge):
        return ProgramObjective(space, model, judge, judge.folds, judge.weights)
    if isinstance(judge, LeaveOneOutJudge):
        rows = tuple(np.arange(len(judge.weights))[:, None])
        return ProgramObjective(space, model, judge, Folds(rows, rows, len(rows)), judge.weights)
    return RiskObjective(space, problem_at, judge)


@dataclass(frozen=True, eq=False)
class ConicData:
    """Data of a conic program, and where the linear predictors are among its variables.

    Attributes
    ----------
    P, A : sparse arrays
    q, b : arrays
    cones : object
        Numbers of rows in each cone, as cvxpy has them.
    predictors : (n,) int array
        Variables that are the linear predictors.
    """

    P: Any
    q: Array
    A: Any
    b: Array
    cones: Any
    predictors: Index

    @classmethod
    def of(cls, data: dict[str, Any], predictors: Index) -> ConicData:
        """Take what cvxpy hands to a solver."""
        q = np.asarray(data["c"], dtype=np.float64)
        P = sp.csc_array(data["P"]) if data.get("P") is not None else sp.csc_array((len(q), len(q)))
        return cls(P, q, sp.csc_array(data["A"]), np.asarray(data["b"]), data["dims"], predictors)


@dataclass(frozen=True, eq=False)
class ConicSolution:
    """A solved conic program: variables x, slacks s and duals z."""

    data: ConicData
    x: Array
    s: Array
    z: Array

    @classmethod
    def of(cls, program: SplitProgram, kept: Mask) -> ConicSolution:
        """Solve a program on some of its rows.

        Raises
        ------
        SolverError
        """
        data, raw = solved_data(program.by_rows(kept))
        return cls(
            ConicData.of(data, program.places(data)), *(np.asarray(one) for one in (raw.x, raw.s, raw.z))
        )

    @property
    def predictors(self) -> Array:
        """Linear predictors of all rows, of those that were left out too: (n,)."""
        return self.x[self.data.predictors]

    def adjoint(self, slopes: Array) -> tuple[Array, Array]:
        """What a change of the data is worth to a function of the linear predictors with these slopes, (n,).

        By its optimality conditions, one a variable, and by those of feasibility, one a row.
        """
        data, J = self.data, self._projected()
        eye = sp.eye_array(len(self.z), format="csc")
        M = sp.block_array([[data.P, data.A.T @ J], [data.A, J - eye]], format="csc")
        owed = np.zeros(M.shape[0])
        owed[data.predictors] = slopes
        w = _transposed_solve(M, owed)
        return w[: len(self.x)], w[len(self.x) :]

    def _projected(self) -> Any:
        """Derivative of the projection on the dual cone: I minus that of the projection on K at s − z."""
        dims = self.data.cones
        if dims.p3d or getattr(dims, "pnd", None):
            raise UnsupportedModelError("no gradients for programs with powers other than squares")
        sizes = [(_zero, 1)] * dims.zero + [(_nonnegative, 1)] * dims.nonneg
        sizes += [(_second_order, size) for size in dims.soc]
        sizes += [(_semidefinite, order * (order + 1) // 2) for order in dims.psd]
        sizes += [(_exponential, 3)] * dims.exp
        ends = np.cumsum([size for _, size in sizes])[:-1]
        parts = zip(sizes, np.split(self.s, ends), np.split(self.z, ends), strict=True)
        blocks = [sp.csc_array(np.eye(size) - derivative(s, z)) for (derivative, size), s, z in parts]
        return sp.block_diag(blocks, format="csc")

    def along(
        self, adjoint: tuple[Array, Array], ahead: ConicData, behind: ConicData, distance: float
    ) -> float:
        """Derivative along data that change from ``behind`` to ``ahead`` over a distance.

        Raises
        ------
        UnsupportedModelError
            If the programs differ in more than numbers.
        """
        if ahead.A.shape != behind.A.shape or vars(ahead.cones) != vars(behind.cones):
            raise UnsupportedModelError("a parameter changes the form of the program: it has no gradient")
        dP, dA = ahead.P - behind.P, ahead.A - behind.A
        optimality = dP @ self.x + (ahead.q - behind.q) + dA.T @ self.z
        feasibility = (ahead.b - behind.b) - dA @ self.x
        return float(adjoint[1] @ feasibility - adjoint[0] @ optimality) / distance


def _transposed_solve(M: Any, owed: Array) -> Array:
    """Solve Mᵀw = owed: by elimination, or in the sense of least squares where the solution is not unique."""
    try:
        w = np.asarray(splu(sp.csc_matrix(M)).solve(owed, trans="T"))
        if np.abs(M.T @ w - owed).max() <= SOLVED * np.abs(owed).max(initial=0.0):
            return w
    except RuntimeError:  # exactly singular
        pass
    return np.asarray(lsmr(M.T, owed, atol=1e-14, btol=1e-14, maxiter=20 * len(owed))[0])


# --- derivatives of projections on cones, at s − z, whose projection is s ----------------------------


def _zero(s: Array, z: Array) -> Array:
    return np.zeros((1, 1))


def _nonnegative(s: Array, z: Array) -> Array:
    return np.array([[1.0 if s[0] > z[0] else 0.0]])


def _second_order(s: Array, z: Array) -> Array:
    def room(point: Array) -> float:
        return float(point[0] - np.linalg.norm(point[1:]))

    def boundary() -> Array:
        size = float(np.linalg.norm(s[1:]))
        unit = s[1:] / size
        bend = np.zeros((len(s), len(s)))
        bend[1:, 1:] = (np.eye(len(unit)) - np.outer(unit, unit)) / size
        return _on_surface(np.concatenate([[-1.0], unit]), bend, float(z[0]))

    return _by_place(s, room(s), z, room(z), boundary)


def _exponential(s: Array, z: Array) -> Array:
    """Of {y e^(x/y) ≤ z}, in the order x, y, z."""

    def boundary() -> Array:
        ratio = s[0] / s[1]
        grown = np.exp(ratio)
        normal = np.array([grown, grown * (1.0 - ratio), -1.0])
        along = np.array([1.0, -ratio, 0.0])
        return _on_surface(normal, grown / s[1] * np.outer(along, along), float(z[2]))

    with np.errstate(all="ignore"):
        room = float(s[2] - s[1] * np.exp(s[0] / s[1])) if s[1] > 0 else -np.inf
        dual = float(np.e * z[2] + z[0] * np.exp(z[1] / z[0])) if z[0] < 0 else -np.inf
    return _by_place(s, room, z, dual, boundary)


def _by_place(s: Array, room: float, z: Array, dual_room: float, boundary: Callable[[], Array]) -> Array:
    """Inside the cone nothing is projected, inside the polar one everything to 0; else onto the surface."""
    if room > INSIDE * np.linalg.norm(s):
        return np.eye(len(s))
    if dual_room > INSIDE * np.linalg.norm(z):
        return np.zeros((len(s), len(s)))
    return boundary()


def _on_surface(normal: Array, bend: Array, multiplier: float) -> Array:
    """Of {g ≤ 0} at a point of g = 0, from the gradient and Hessian of g, and μ with z = −μ ∇g."""
    system = _linalg.bordered(np.eye(len(normal)) + multiplier * bend, normal[:, None], np.zeros((1, 1)))
    return np.asarray(np.linalg.inv(system)[:-1, :-1])


def _semidefinite(s: Array, z: Array) -> Array:
    """V (L ∘ (Vᵀ dM V)) Vᵀ with the divided differences L of max(0, ·); upper triangles by columns."""
    order = int((np.sqrt(8 * len(s) + 1) - 1) / 2)
    column, row = np.tril_indices(order)
    scale = np.where(row == column, 1.0, np.sqrt(2.0))

    def matrix(packed: Array) -> Array:
        full = np.zeros((order, order))
        full[row, column] = full[column, row] = packed / scale
        return full

    values, vectors = np.linalg.eigh(matrix(s - z))
    high, gap = np.maximum(values, 0.0), values[:, None] - values
    flat = np.abs(gap) <= 1e-12 * np.abs(values).max(initial=0.0)
    shares = np.where(flat, (values > 0)[:, None], (high[:, None] - high) / np.where(flat, 1.0, gap))
    columns = []
    for unit in np.eye(len(s)):
        moved = vectors @ (shares * (vectors.T @ matrix(unit) @ vectors)) @ vectors.T
        columns.append(moved[row, column] * scale)
    return np.column_stack(columns)

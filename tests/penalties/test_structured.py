"""Structured penalties: prox, tangent and subgradients by definition, by differences and by Clarabel."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from onefit.penalties import (
    L1,
    L2,
    Box,
    Coordinates,
    Coordinatewise,
    ElasticNet,
    FusedLasso,
    GeneralizedLasso,
    GroupLasso,
    LInfinity,
    NuclearNorm,
    Pieces,
    Polyhedral,
    Slope,
    SmoothNuclearNorm,
    SparseGroupLasso,
    Strengths,
    Sum,
    TrendFilter,
)

P = 12
LABELS = np.array([2, 0, 0, 1, 1, 1, 2, 3, 3, 0, 4, 4])
LISTS = [[1, 2, 9], [3, 4, 5], [0, 6], [7, 8], [10, 11]]
GRID = [(i, i + 1) for i in range(P) if i % 4 < 3] + [(i, i + 4) for i in range(P - 4)]
TREE = [(0, 3), (3, 1), (5, 3), (2, 6), (6, 7), (9, 8)]
SOME_ROWS = np.random.default_rng(3).normal(size=(7, P))
MANY_ROWS = np.random.default_rng(4).normal(size=(15, P))
WEIGHTS = np.linspace(2.0, 0.1, P)

POLYHEDRAL = {
    "generalised, independent rows": GeneralizedLasso(SOME_ROWS, 0.4),
    "generalised, sparse": GeneralizedLasso(sp.csr_array(np.round(SOME_ROWS)), 0.3),
    "generalised, dependent rows": GeneralizedLasso(MANY_ROWS, 0.1),
    "fused chain": FusedLasso(0.8),
    "fused tree": FusedLasso(0.6, edges=TREE),
    "fused grid": FusedLasso(0.4, edges=GRID),
    "trend of order 0": TrendFilter(0, 0.8),
    "trend of order 1": TrendFilter(1, 0.7),
    "trend of order 2": TrendFilter(2, 1.1),
    "slope": Slope(WEIGHTS, 0.5),
    "slope with equal weights": Slope(np.repeat([2.0, 1.0, 0.0], 4), 0.6),
    "slope that is a lasso": Slope(np.ones(P), 0.6),
    "largest": LInfinity(2.0),
    "box": Box(-0.5, np.linspace(0.1, 1.0, P)),
    "half-line": Box(lower=0.0),
    "a box of half-lines with l1": L1(WEIGHTS) + Box(lower=0.0),
    "l1 within a box": Box(-0.3, 0.5, l1=0.4),
    "elastic net within a box": ElasticNet(1.0, 0.5) + Box(-0.3, 0.5),
    "ridge plus box": L2(WEIGHTS) + Box(0.0, 0.4),
    "ridge plus chain": FusedLasso(0.8) + L2(0.5),
    "ridge plus slope": L2(0.5) + Slope(WEIGHTS, 0.4),
    "ridge plus largest": L2(0.5) + LInfinity(1.0),
}
CURVED = {
    "group lasso": GroupLasso(LABELS, 0.7),
    "group lasso of lists": GroupLasso(LISTS, 0.7),
    "group lasso with weights": GroupLasso(LABELS, 0.7, weights=[1.0, 0.0, 3.0, 0.5, 1.0]),
    "sparse group lasso": SparseGroupLasso(LABELS, 0.8, 0.6),
    "nuclear norm": NuclearNorm((3, 4), 0.9),
    "nuclear norm, tall": NuclearNorm((6, 2), 1.2),
    "ridge plus group lasso": L2(0.5) + GroupLasso(LABELS, 0.7),
    "ridge plus nuclear norm": L2(0.5) + NuclearNorm((3, 4), 0.7),
}
PENALTIES = POLYHEDRAL | CURVED
every = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())


def _start(seed=0):
    return 1.5 * np.random.default_rng(seed).normal(size=P)


def _dense(basis):
    return basis.toarray() if sp.issparse(basis) else basis


def _basis(tangent):
    if isinstance(tangent, Coordinates):
        return np.eye(P)[:, tangent.support], np.diag(tangent.hessian[tangent.support])
    return _dense(tangent.basis), tangent.hessian


def _matrix(p, order):
    return np.diff(np.eye(p), order, axis=0)


def _groups_by_hand(penalty, coef):
    members = [np.flatnonzero(g == LABELS) for g in range(5)]
    weights = np.sqrt([len(group) for group in members]) if penalty.weights is None else penalty.weights
    norms = [np.linalg.norm(coef[group]) for group in members]
    ratio = getattr(penalty, "l1_ratio", 0.0)
    return ratio * np.abs(coef).sum() + (1 - ratio) * np.dot(weights, norms)


def _fused_by_hand(penalty, coef):
    pairs = penalty.edges if penalty.edges is not None else [(j, j + 1) for j in range(P - 1)]
    return sum(abs(coef[i] - coef[j]) for i, j in pairs)


BY_HAND = {
    GeneralizedLasso: lambda penalty, coef: np.abs(_dense(penalty.D) @ coef).sum(),
    FusedLasso: _fused_by_hand,
    TrendFilter: lambda penalty, coef: np.abs(np.diff(coef, penalty.order + 1)).sum(),
    Slope: lambda penalty, coef: np.dot(penalty.weights, sorted(abs(coef), reverse=True)),
    LInfinity: lambda _, coef: max(abs(coef)),
    NuclearNorm: lambda penalty, coef: np.linalg.norm(coef.reshape(penalty.shape), "nuc"),
    Box: lambda penalty, coef: (
        np.sum(penalty.l1 * np.abs(coef))
        if np.all((coef >= penalty.lower) & (coef <= penalty.upper))
        else np.inf
    ),
    GroupLasso: _groups_by_hand,
    SparseGroupLasso: _groups_by_hand,
}


def _by_hand(penalty, coef):
    if isinstance(penalty, Sum):
        return 0.5 * np.sum(np.asarray(penalty.quadratic.alpha) * coef**2) + _by_hand(penalty.rest, coef)
    return getattr(penalty, "alpha", 1.0) * BY_HAND[type(penalty)](penalty, coef)


@every
def test_value_by_its_definition(penalty):
    for coef in (_start(), np.clip(_start(), 0.0, 0.1), np.zeros(P)):
        np.testing.assert_allclose(penalty.value(coef), _by_hand(penalty, coef), rtol=1e-12, atol=1e-14)


@every
@pytest.mark.parametrize("step", [0.3, 1.0, 40.0])
def test_prox_is_a_minimum(penalty, step):
    start, rng = _start(1), np.random.default_rng(2)
    z = penalty.prox(start, step)

    def objective(at):
        return 0.5 * np.sum((at - start) ** 2) + step * penalty.value(at)

    best = objective(z)
    for scale in (1e-3, 1e-2, 0.3, 3.0):
        for _ in range(20):
            change = scale * rng.normal(size=P) * rng.integers(0, 2, P)
            assert objective(z + change) >= best + 0.4999 * change @ change - 1e-12


def _by_clarabel(penalty, start, step):
    cp = pytest.importorskip("cvxpy")
    z = cp.Variable(P)
    rest, ridge = (penalty.rest, penalty.quadratic.alpha) if isinstance(penalty, Sum) else (penalty, 0.0)
    objective = 0.5 * cp.sum_squares(z - start)
    objective += 0.5 * step * cp.sum_squares(cp.multiply(np.sqrt(np.broadcast_to(ridge, P)), z))
    bounds = []
    match rest:
        case GeneralizedLasso() | FusedLasso() | TrendFilter():
            term = cp.norm1(rest.matrix(P).toarray() @ z)
        case Slope():
            steps = -np.diff(rest.weights, append=0.0)
            term = sum(cp.sum_largest(cp.abs(z), k + 1) * gain for k, gain in enumerate(steps) if gain > 0)
        case LInfinity():
            term = cp.norm_inf(z)
        case NuclearNorm():
            term = cp.normNuc(cp.reshape(z, rest.shape, order="C"))
        case Box():
            term = cp.norm1(cp.multiply(np.broadcast_to(rest.l1, P), z))
            bounds = [z[np.isfinite(rest.bounds((P,))[0])] >= rest.bounds((P,))[0]]
            upper = rest.bounds((P,))[1]
            bounds += (
                [z[np.isfinite(upper)] <= upper[np.isfinite(upper)]] if np.any(np.isfinite(upper)) else []
            )
        case _:
            l1, strengths = rest.strengths()
            norms = [cp.norm2(z[np.flatnonzero(rest.membership == g)]) for g in range(rest.count)]
            term = (
                l1 * cp.norm1(z) + sum(s * norm for s, norm in zip(strengths, norms, strict=True))
            ) / rest.alpha
    strength = getattr(rest, "alpha", 1.0)
    cp.Problem(cp.Minimize(objective + step * strength * term), bounds).solve(
        solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return z.value


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")
@every
def test_prox_by_an_independent_solver(penalty):
    start = _start(5)
    np.testing.assert_allclose(penalty.prox(start, 0.7), _by_clarabel(penalty, start, 0.7), atol=2e-5)


@pytest.mark.costly
@every
@pytest.mark.parametrize("seed", range(4))
def test_tangent_is_the_derivative_of_the_prox(penalty, seed):
    """On a piece B, β = prox_s(v) has dβ/dv = B (I + s C)⁻¹ Bᵀ, with −∇loss = (v − β)/s."""
    start, step = _start(seed), 0.7
    beta = penalty.prox(start, step)
    tangent = penalty.tangent(beta, (beta - start) / step)
    B, C = _basis(tangent)
    assert tangent.size == B.shape[1]
    assert tangent.support.dtype == bool
    np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=1e-12)
    np.testing.assert_allclose(C, C.T, atol=1e-12)
    np.testing.assert_allclose(B.T @ tangent.gradient, B.T @ (start - beta) / step, atol=1e-9)
    eps = 1e-6
    derivative = np.column_stack(
        [
            (penalty.prox(start + eps * e, step) - penalty.prox(start - eps * e, step)) / (2 * eps)
            for e in np.eye(P)
        ]
    )
    expected = B @ np.linalg.solve(np.eye(len(C)) + step * C, B.T)
    np.testing.assert_allclose(derivative, expected, atol=2e-7)


def _on_piece(penalty, at, tangent):
    """The nearest point of the same rank, for penalties whose piece is bent; else the point itself."""
    if not penalty.turns:
        return at
    rows, columns = penalty.without_ridge().shape
    rank = next(r for r in range(min(rows, columns) + 1) if r * (rows + columns - r) == tangent.size)
    U, sizes, Vt = np.linalg.svd(at.reshape(rows, columns), full_matrices=False)
    return ((U[:, :rank] * sizes[:rank]) @ Vt[:rank]).ravel()


@every
@pytest.mark.parametrize("seed", range(3))
def test_tangent_by_differences_of_the_value(penalty, seed):
    """Along the piece P less its subgradient S has no slope, and the curvature C, which S may be part of."""
    start = _start(seed)
    beta = penalty.prox(start, 0.7)
    S = (start - beta) / 0.7
    tangent = penalty.tangent(beta, -S)
    B, C = _basis(tangent)
    eps = 1e-3
    rng = np.random.default_rng(seed)

    def along(t, d):
        at = _on_piece(penalty, beta + t * d, tangent)
        return penalty.value(at) - S @ at

    for d in (B @ rng.normal(size=(B.shape[1], 5))).T:
        slope = (along(1e-5, d) - along(-1e-5, d)) / 2e-5
        np.testing.assert_allclose(slope, (tangent.gradient - S) @ d, atol=1e-6)
        low, middle, high = (along(t, d) for t in (-0.3 * eps, 0.0, 0.3 * eps))
        second = (low + high - 2 * middle) / (0.3 * eps) ** 2
        np.testing.assert_allclose(d @ (B @ (C @ (B.T @ d))), second, rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(tangent.curve(d), B @ (C @ (B.T @ d)), atol=1e-12)
    at, across = penalty.value(beta), rng.normal(size=(P, 5))
    across -= B @ (B.T @ across)
    for d in across.T if B.shape[1] < P else ():
        kink = penalty.value(beta + eps * d) + penalty.value(beta - eps * d) - 2 * at
        assert kink > 1e-2 * eps * np.linalg.norm(d)


@every
@pytest.mark.parametrize("step", [0.2, 0.7, 5.0])
def test_a_prox_is_stationary_and_its_neighbours_are_not(penalty, step):
    rng = np.random.default_rng(8)
    starts = [_start(seed) for seed in range(6)]
    beta = np.column_stack([penalty.prox(start, step) for start in starts])
    gradient = (beta - np.column_stack(starts)) / step
    assert penalty.is_stationary(beta, gradient).all()
    moves = np.any(np.abs(beta) > 0, axis=0) & [penalty.tangent(one).size > 0 for one in beta.T]
    for scale in (1e-3, 1.0):
        noise = scale * rng.normal(size=beta.shape)
        own = np.abs(beta) > 0 if scale < 1 else np.ones(beta.shape, dtype=bool)
        off = penalty.is_stationary(beta, gradient + noise * own)
        assert not np.any(off & moves)


def _other_gradients(penalty, gradient):
    """Gradients that are sometimes those of a solution: changed as a whole, or along the rows of D."""
    changed = gradient + 0.5 * gradient * (np.arange(gradient.shape[1]) % 2)
    if hasattr(penalty, "matrix"):
        D = penalty.matrix(P)
        u = np.random.default_rng(9).normal(size=D.shape[0])
        changed += np.outer(D.T @ u, np.geomspace(1e-2, 1.0, gradient.shape[1]))
    return changed


@every
def test_stationarity_as_the_prox_has_it(penalty):
    """−g ∈ ∂P(β) if and only if β = prox(β − g)."""
    step, starts = 0.7, np.column_stack([_start(seed) for seed in range(10)])
    beta = np.column_stack([penalty.prox(start, step) for start in starts.T])
    gradient = _other_gradients(penalty, (beta - starts) / step)
    fixed = [
        np.abs(penalty.prox(b - g, 1.0) - b).max() <= 1e-8 for b, g in zip(beta.T, gradient.T, strict=True)
    ]
    np.testing.assert_array_equal(penalty.is_stationary(beta, gradient), fixed)


@every
def test_stationarity_at_zero(penalty):
    """The subgradients at 0 are a ball of the dual norm, or a cone of bounds."""
    zero = np.zeros((P, 1))
    assert penalty.is_stationary(zero, zero) == (penalty.value(zero[:, 0]) == 0)
    assert not penalty.is_stationary(zero, 1e3 * np.random.default_rng(4).normal(size=(P, 1)))


@every
def test_scaled_scales_everything(penalty):
    coef, twice = penalty.prox(_start(), 0.7), penalty.scaled(2.5)
    assert type(twice) is type(penalty)
    np.testing.assert_allclose(twice.value(coef), 2.5 * penalty.value(coef))
    np.testing.assert_allclose(twice.prox(coef, 1.0), penalty.prox(coef, 2.5), atol=1e-12)
    slope = np.random.default_rng(0).normal(size=P)
    one, other = penalty.tangent(coef, slope), twice.tangent(coef, 2.5 * slope)
    np.testing.assert_allclose(other.gradient, 2.5 * one.gradient, atol=1e-12)
    np.testing.assert_allclose(other.hessian, 2.5 * one.hessian, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in PENALTIES if "box" not in name and name != "half-line"])
def test_no_strength_is_no_penalty(name):
    penalty = PENALTIES[name]
    nothing, coef = penalty.scaled(0.0), _start()
    assert nothing.value(coef) == 0
    np.testing.assert_allclose(nothing.prox(coef, 1.0), coef, atol=1e-14)
    assert nothing.tangent(coef).size == P
    assert nothing.tangent(np.zeros(P)).size == P
    assert not nothing.has_kinks((P,))
    assert nothing.has_free_directions((P,))
    found = nothing.is_stationary(np.column_stack([coef, coef]), np.column_stack([np.zeros(P), np.ones(P)]))
    np.testing.assert_array_equal(found, [True, False])


@every
def test_kinks_and_free_directions(penalty):
    assert penalty.has_kinks((P,))
    rest = penalty.rest if isinstance(penalty, Sum) else penalty
    directions = np.random.default_rng(0).normal(size=(P, 200))
    if hasattr(rest, "matrix"):
        D = rest.matrix(P).toarray()
        free = np.linalg.matrix_rank(D) < P
    elif isinstance(rest, GroupLasso | SparseGroupLasso):
        free = rest.weights is not None and 0.0 in rest.weights
    else:
        free = isinstance(rest, Box) and not np.any(rest.l1)
        assert isinstance(rest, Box) or all(rest.value(d) > 0 for d in directions.T)
    assert penalty.has_free_directions((P,)) == (free and not isinstance(penalty, Sum))


@every
def test_polyhedral_ones_are_flat_but_for_ridge(penalty):
    flat = penalty.pieces is Pieces.QUADRATIC
    assert flat == any(penalty is one for one in POLYHEDRAL.values())
    assert flat == isinstance(penalty.without_ridge(), Polyhedral)
    rest = penalty.without_ridge()
    assert not np.any(rest.ridge((P,)))
    assert np.any(penalty.ridge((P,))) == isinstance(penalty, Sum)
    if flat:
        assert not rest.tangent(penalty.prox(_start(), 0.7)).is_curved


@every
def test_copies_and_parameters(penalty):
    penalty.tangent(_start())
    for again in (pickle.loads(pickle.dumps(penalty)), copy.deepcopy(penalty)):
        assert set(vars(again)) == set(penalty.get_params(deep=False))  # not what was computed from them
        assert again.value(_start()) == penalty.value(_start())
    again = clone(penalty)
    assert type(again) is type(penalty)
    assert again.value(_start()) == penalty.value(_start())
    params = penalty.get_params(deep=False)
    rebuilt = type(penalty)(**params)
    assert all(value is params[name] for name, value in rebuilt.get_params(deep=False).items())


# ---------------------------------------------------------------------------------------------------------
# Lasso coordinates
# ---------------------------------------------------------------------------------------------------------

INDEPENDENT = [
    "generalised, independent rows",
    "generalised, sparse",
    "fused chain",
    "fused tree",
    "trend of order 0",
    "trend of order 1",
    "trend of order 2",
]


@pytest.mark.parametrize("name", INDEPENDENT)
def test_lasso_coordinates(name):
    penalty = PENALTIES[name]
    D, T = penalty.matrix(P).toarray(), penalty.lasso_coordinates(P)
    m = len(D)
    np.testing.assert_allclose(D @ T, np.eye(m, P), atol=1e-11)
    np.testing.assert_allclose(T[:, m:].T @ T[:, m:], np.eye(P - m), atol=1e-12)
    np.testing.assert_allclose(T[:, :m], np.linalg.pinv(D), atol=1e-11)


@pytest.mark.parametrize("name", ["generalised, dependent rows", "fused grid"])
def test_dependent_rows_have_no_lasso_coordinates(name):
    assert PENALTIES[name].lasso_coordinates(P) is None
    rows = np.vstack([SOME_ROWS[:3], SOME_ROWS[0] + SOME_ROWS[1]])
    assert GeneralizedLasso(rows).lasso_coordinates(P) is None


@pytest.mark.parametrize("penalty", [FusedLasso(1.0), TrendFilter(1, 1.0)], ids=["chain", "trend"])
def test_lasso_coordinates_of_many_features(penalty):
    p = 700
    D, T = penalty.matrix(p), penalty.lasso_coordinates(p)
    np.testing.assert_allclose(D @ T, np.eye(D.shape[0], p), atol=1e-9)
    theta = np.zeros(p)
    theta[[3, 50, 51, 400, p - 1]] = [1.0, -0.5, 2.0, 3.0, 1.0]
    tangent = penalty.tangent(T @ theta)
    free = p - D.shape[0]
    assert tangent.size == 4 + free
    off = np.setdiff1d(np.arange(D.shape[0]), [3, 50, 51, 400])
    assert np.abs(D[off] @ _dense(tangent.basis)).max() < 1e-10


def test_fused_tangent_is_sparse_and_counts_components():
    coef = np.repeat([1.0, 3.0, 1.0], 4)
    tangent = FusedLasso(1.0).tangent(coef + 1e-13 * _start())
    assert tangent.size == 3
    assert sp.issparse(FusedLasso(1.0).tangent(np.arange(100.0)).basis)
    grid = FusedLasso(1.0, edges=GRID).tangent(np.tile([0.0, 1.0, 1.0, 0.0], 3))
    assert grid.size == 3  # the two outer columns of the grid are not connected


def test_stationarity_with_dependent_rows_needs_the_right_dual():
    """On a cycle the least-norm dual may leave the box where another one does not."""
    cycle = FusedLasso(1.0, edges=[(0, 1), (1, 2), (0, 2)])
    beta = np.ones((3, 1))
    u = np.array([1.0, 1.0, 1.0])
    gradient = -(cycle.matrix(3).T @ u)[:, None]
    assert cycle.is_stationary(beta, gradient).all()
    heavy = FusedLasso(1.0, edges=[(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)])
    rng = np.random.default_rng(0)
    inside = -(heavy.matrix(4).T @ rng.choice([-1.0, 1.0], (5, 40)))
    assert heavy.is_stationary(np.ones((4, 40)), inside).all()
    assert not heavy.is_stationary(np.ones((4, 1)), np.array([[3.1], [-3.1], [0.0], [0.0]])).any()


# ---------------------------------------------------------------------------------------------------------
# Groups, SLOPE, matrices
# ---------------------------------------------------------------------------------------------------------


def test_labels_and_lists_are_the_same_groups():
    names = np.array(list("cabdef"))[LABELS]
    for groups in (LISTS, LABELS.tolist(), names, [set(group) for group in LISTS]):
        assert GroupLasso(groups, 0.7).value(_start()) == pytest.approx(
            GroupLasso(LABELS, 0.7).value(_start())
        )


def test_ends_of_the_sparse_group_lasso():
    coef = GroupLasso(LABELS, 0.7).prox(_start(), 1.0)
    for ratio, end in ((0.0, GroupLasso(LABELS, 0.7)), (1.0, L1(0.7))):
        mixed = SparseGroupLasso(LABELS, 0.7, ratio)
        np.testing.assert_allclose(mixed.value(coef), end.value(coef))
        np.testing.assert_allclose(mixed.prox(coef, 0.4), end.prox(coef, 0.4))
        np.testing.assert_array_equal(mixed.tangent(coef).support, end.tangent(coef).support)


def test_slope_clusters():
    coef = np.array([2.0, -2.0, 0.5, 0.0, 2.0 + 1e-13, 0.0, -0.5, 3.0])
    tangent = Slope(np.arange(8.0, 0.0, -1.0), 0.5).tangent(coef)
    assert sp.issparse(Slope(np.arange(100.0, 0.0, -1.0), 0.5).tangent(np.arange(100.0)).basis)
    s3, s2 = 3**-0.5, 2**-0.5
    columns = {tuple(np.round(column, 12)) for column in tangent.basis.T}
    assert columns == {
        tuple(np.round(column, 12))
        for column in ([0, 0, 0, 0, 0, 0, 0, 1.0], [s3, -s3, 0, 0, s3, 0, 0, 0], [0, 0, s2, 0, 0, 0, -s2, 0])
    }
    np.testing.assert_allclose(tangent.gradient, 0.5 * np.array([6, -6, 3.5, 0, 6, 0, -3.5, 8.0]))


def test_slope_with_equal_weights_is_the_lasso():
    coef = np.round(L1(0.6).prox(_start(), 1.0), 1)
    coef[:3] = 0.5  # equal, yet free one by one
    one, other = Slope(np.ones(P), 0.6), L1(0.6)
    np.testing.assert_array_equal(one.tangent(coef).support, other.tangent(coef).support)
    assert one.tangent(coef).size == np.count_nonzero(coef)
    np.testing.assert_allclose(one.tangent(coef).gradient, other.tangent(coef).gradient)


def test_nuclear_norm_needs_the_loss_gradient():
    penalty, start = NuclearNorm((3, 4), 0.9), _start(1)
    beta = penalty.prox(start, 1.0)
    assert penalty.turns
    rank = np.linalg.matrix_rank(beta.reshape(3, 4), tol=1e-9)
    assert 0 < rank < 3
    assert penalty.tangent(beta).size == rank * (7 - rank)
    coupled, apart = penalty.tangent(beta, beta - start).hessian, penalty.tangent(beta).hessian
    assert np.abs(coupled - apart).max() > 1e-3
    np.testing.assert_allclose(np.diag(coupled), np.diag(apart))
    assert np.linalg.eigvalsh(coupled).min() > -1e-12
    assert penalty.tangent(np.zeros(P), start).size == 0


# ---------------------------------------------------------------------------------------------------------
# Sums and parameters
# ---------------------------------------------------------------------------------------------------------


def test_ridge_plus_separable_is_separable():
    coef = _start()
    for other in (L1(WEIGHTS), L2(0.3), ElasticNet(0.8, 0.3)):
        total = L2(0.5) + other
        assert isinstance(total, Strengths)
        assert isinstance(other + L2(0.5), Strengths)
        np.testing.assert_allclose(total.value(coef), L2(0.5).value(coef) + other.value(coef))
        np.testing.assert_allclose(total.scaled(2.0).value(coef), 2 * total.value(coef))
    elastic = L2(0.5 * 0.7) + L1(0.5 * 0.3)
    np.testing.assert_allclose(elastic.prox(coef, 0.7), ElasticNet(0.5, 0.3).prox(coef, 0.7))
    fixed = L1(np.array([np.inf, 1.0])) + L2(2.0)
    np.testing.assert_array_equal(fixed.tangent(np.array([0.0, 1.0])).support, [False, True])
    np.testing.assert_array_equal(fixed.scaled(0.0).prox(np.ones(2), 1.0), np.ones(2))


def test_without_ridge_leaves_the_kinks():
    coef = _start()
    np.testing.assert_allclose(ElasticNet(0.8, 0.3).without_ridge().value(coef), L1(0.24).value(coef))
    assert (L2(0.5) + FusedLasso(0.3)).without_ridge().value(coef) == FusedLasso(0.3).value(coef)
    assert ElasticNet(np.array([np.inf, 1.0])).without_ridge().value(np.array([1.0, 0.0])) == np.inf


@pytest.mark.parametrize("pair", [(L1(), FusedLasso()), (L2() + FusedLasso(), L2()), (L1(), L1())])
def test_other_sums_are_refused(pair):
    with pytest.raises(TypeError, match="only an L2 penalty and one other"):
        _ = pair[0] + pair[1]


def test_sums_with_what_is_no_penalty_are_refused():
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = L2() + 1.0
    with pytest.raises(TypeError, match="L2 penalty and one other"):
        Sum(L1(), FusedLasso())
    with pytest.raises(ValueError, match="finite"):
        _ = L2(np.inf) + FusedLasso()


def test_prox_of_a_sum_with_strengths_for_each_feature():
    with pytest.raises(ValueError, match="L2 with a strength for each feature"):
        (L2(WEIGHTS) + FusedLasso()).prox(_start(), 1.0)
    same = (L2(np.full(P, 0.5)) + FusedLasso()).prox(_start(), 1.0)
    np.testing.assert_allclose(same, (L2(0.5) + FusedLasso()).prox(_start(), 1.0))


@pytest.mark.parametrize(
    "rest", [FusedLasso(0.5), GroupLasso(LABELS, 0.3), TrendFilter(1, 0.4), Slope(WEIGHTS)]
)
def test_ridge_with_strengths_for_each_feature_bends_the_piece(rest):
    coef = rest.prox(_start(), 1.0)
    tangent, own = (L2(WEIGHTS) + rest).tangent(coef), rest.tangent(coef)
    B, C = _basis(own)
    np.testing.assert_allclose(tangent.hessian, C + B.T @ np.diag(WEIGHTS) @ B, atol=1e-12)
    np.testing.assert_allclose(tangent.gradient, own.gradient + WEIGHTS * coef)


def test_set_params_follows_scikit_learn():
    total = L2(0.5) + GroupLasso(LABELS, 0.7)
    assert set(total.get_params()) == {
        "quadratic", "quadratic__alpha", "rest", "rest__groups", "rest__alpha", "rest__weights",
    }  # fmt: skip
    assert total.set_params(rest__alpha=2.0, quadratic__alpha=1.5) is total
    assert total.rest.alpha == 2.0
    assert total.quadratic.alpha == 1.5
    assert total.set_params(quadratic=L2(3.0)).quadratic.alpha == 3.0
    assert L1(2.0).set_params(alpha=3.0).alpha == 3.0
    assert ElasticNet().set_params(alpha=3.0, l1_ratio=0.1) == ElasticNet(3.0, 0.1)


def test_set_params_forgets_what_it_had_computed():
    penalty, coef = GroupLasso([0, 0, 1]), np.array([3.0, 4.0, 1.0])
    penalty.value(coef)
    penalty.set_params(groups=[0, 1, 1], weights=[1.0, 1.0])
    np.testing.assert_allclose(penalty.value(coef), 3.0 + 17**0.5)
    rows = GeneralizedLasso(np.eye(3))
    assert rows.tangent(coef).size == 3
    rows.set_params(D=_matrix(3, 1))
    assert rows.tangent(np.ones(3)).size == 1


def test_set_params_refuses_and_changes_nothing():
    penalty = FusedLasso(2.0)
    for wrong in ({"beta": 1.0}, {"alpha__x": 1.0}, {"alpha": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            penalty.set_params(**wrong)
    assert penalty.alpha == 2.0


ALPHAS = {
    "group": lambda alpha: GroupLasso(LABELS, alpha),
    "sparse group": lambda alpha: SparseGroupLasso(LABELS, alpha),
    "generalised": lambda alpha: GeneralizedLasso(SOME_ROWS, alpha),
    "fused": FusedLasso,
    "trend": lambda alpha: TrendFilter(1, alpha),
    "slope": lambda alpha: Slope(WEIGHTS, alpha),
    "nuclear": lambda alpha: NuclearNorm((3, 4), alpha),
}


@pytest.mark.parametrize("family", ALPHAS.values(), ids=ALPHAS.keys())
@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, "1", None, [1.0, 2.0]], ids=str)
def test_bad_strengths(family, alpha):
    with pytest.raises(ValueError, match="alpha must be a finite number that is at least 0"):
        family(alpha)


@pytest.mark.parametrize("family", [L1, L2, ElasticNet, Strengths])
@pytest.mark.parametrize("alpha", [-1.0, np.nan, "1", None, [1.0, -2.0]], ids=str)
def test_bad_separable_strengths(family, alpha):
    with pytest.raises(ValueError, match="alpha must be a number that is at least 0"):
        family(alpha)


BAD_PARAMETERS = [
    (lambda: GroupLasso([[0, 1], [1, 2]]), "feature 1 is in more than one place"),
    (lambda: GroupLasso([[0, 1], [1, 1, 2]]), "feature 1 is in more than one place"),
    (lambda: GroupLasso([[0, 1], []]), r"groups\[1\] is empty"),
    (lambda: GroupLasso([[0, 1], [3]]), "feature 2 is in no group"),
    (lambda: GroupLasso([[0, 1], [-1]]), r"groups\[1\] must be a list of column numbers"),
    (lambda: GroupLasso([[0, 1], ["a"]]), r"groups\[1\] must be a list of column numbers"),
    (lambda: GroupLasso([[0, 1], 2]), r"groups\[1\] must be a list of column numbers"),
    (lambda: GroupLasso([0.0, np.nan]), r"groups\[1\] is missing"),
    (lambda: GroupLasso("abc"), "groups must be one label a feature"),
    (lambda: GroupLasso([]), "groups must be one label a feature"),
    (lambda: GroupLasso(np.zeros((2, 2))), "groups must be one label a feature"),
    (lambda: GroupLasso([0, 1], weights=[1.0]), "weights must be 2 numbers"),
    (lambda: GroupLasso([0, 1], weights=[1.0, -1.0]), r"weights\[1\] = -1"),
    (lambda: GroupLasso([0, 1], weights=[np.nan, 1.0]), r"weights\[0\] = nan"),
    (lambda: SparseGroupLasso([0, 1], weights=["a", "b"]), "weights must be 2 numbers"),
    (lambda: SparseGroupLasso([0, 1], 1.0, 1.5), r"l1_ratio must be a number in \[0, 1\]"),
    (lambda: ElasticNet(1.0, -0.1), r"l1_ratio must be a number in \[0, 1\]"),
    (lambda: Strengths(l1=-1.0), "l1 must be"),
    (lambda: GeneralizedLasso(np.ones(3)), "D must be a matrix"),
    (lambda: GeneralizedLasso([["a"]]), "D must be a matrix"),
    (lambda: GeneralizedLasso(np.zeros((0, 3))), "D must be a matrix"),
    (lambda: GeneralizedLasso([[1.0, np.nan]]), "NaN or infinite"),
    (lambda: GeneralizedLasso([[1.0, 0.0], [0.0, 0.0]]), "row 1 of D is zero"),
    (lambda: GeneralizedLasso(sp.csr_array([[1.0, 0.0], [0.0, 0.0]])), "row 1 of D is zero"),
    (lambda: FusedLasso(1.0, edges=[(0, 1, 2)]), "edges must be pairs"),
    (lambda: FusedLasso(1.0, edges=[]), "edges must be pairs"),
    (lambda: FusedLasso(1.0, edges=[(0.0, 1.0)]), "edges must be pairs"),
    (lambda: FusedLasso(1.0, edges=[(0, 1), (2, 2)]), r"edges\[1\] joins column 2 to itself"),
    (lambda: FusedLasso(1.0, edges=[(0, -1)]), r"edges\[0\] names a negative column"),
    (lambda: FusedLasso(1.0, edges=[(0, 1), (1, 2), (1, 0)]), r"edges\[2\] = \[1, 0\] is given twice"),
    (lambda: TrendFilter(-1), "order must be a whole number"),
    (lambda: TrendFilter(1.5), "order must be a whole number"),
    (lambda: Slope([1.0, 2.0]), r"weights must be sorted.*np.sort\(weights\)\[::-1\]"),
    (lambda: Slope([1.0, -2.0]), r"weights\[1\] = -2"),
    (lambda: Slope(["a"]), "weights must be 1 numbers"),
    (lambda: SmoothNuclearNorm((2, 3), smoothing=0.0), "smoothing must be a positive number"),
    (lambda: NuclearNorm(6), "shape must be two positive whole numbers"),
    (lambda: NuclearNorm((2, 0)), "shape must be two positive whole numbers"),
    (lambda: NuclearNorm((2.0, 3.0)), "shape must be two positive whole numbers"),
    (lambda: Box(1.0, 0.0), "lower must not be above upper"),
    (lambda: Box(np.zeros(2), np.array([1.0, -1.0])), "feature 1"),
    (lambda: Box(np.zeros(2), np.ones(3)), "lower and upper must be of one shape"),
    (lambda: Box(np.inf), "lower must be below infinity"),
    (lambda: Box(np.nan), "lower must be a number"),
    (lambda: Box(upper="a"), "upper must be a number"),
]


@pytest.mark.parametrize(
    ("make", "message"), BAD_PARAMETERS, ids=[str(k) for k in range(len(BAD_PARAMETERS))]
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("penalty", "p", "message"),
    [
        (GroupLasso([0, 0, 1]), 4, "groups are of 3 features, but the coefficients are 4"),
        (GroupLasso([[0, 1], [2]]), 4, "feature 3 is in no group"),
        (GroupLasso([[0, 1], [2]]), 2, "groups are of 3 features, but the coefficients are 2"),
        (GeneralizedLasso(np.eye(3)), 4, "D has 3 columns, but the coefficients are 4"),
        (FusedLasso(1.0, edges=[(0, 4)]), 4, "edges name column 4"),
        (FusedLasso(), 1, "need more than 1 features, got 1"),
        (TrendFilter(2), 3, "need more than 3 features, got 3"),
        (Slope([2.0, 1.0]), 3, "weights are 2, but the coefficients are 3"),
        (NuclearNorm((2, 3)), 5, r"shape \(2, 3\) has 6 entries, got 5"),
        (Box(np.zeros(3)), 4, r"lower has shape \(3,\)"),
        (L1(np.ones(3)), 4, r"L1 has strengths of shape \(3,\)"),
        (L2(1.0) + Slope([2.0, 1.0]), 3, "weights are 2"),
        (L2(np.ones(2)) + Slope([3.0, 2.0, 1.0]), 3, r"L2 has strengths of shape \(2,\)"),
    ],
)
def test_coefficients_that_do_not_fit(penalty, p, message):
    with pytest.raises(ValueError, match=message):
        penalty.check((p,))


@every
def test_check(penalty):
    penalty.check((P,))
    if not isinstance(penalty.without_ridge(), Coordinatewise):
        with pytest.raises(ValueError, match="one output"):
            penalty.check((P, 3))


def test_box_of_several_outputs():
    box = Box(np.zeros(3), 1.0)
    coef = np.array([[0.5, -1.0], [2.0, 0.0], [1.0, 0.2]])
    box.check(coef.shape)
    np.testing.assert_array_equal(box.prox(coef, 1.0), np.clip(coef, 0.0, 1.0))
    tangent = box.tangent(box.prox(coef, 1.0))
    np.testing.assert_array_equal(tangent.support, [[True, False], [False, False], [False, True]])
    assert box.value(coef) == np.inf


@pytest.mark.parametrize(
    ("penalty", "coef", "slope"),
    [
        (LInfinity(1.0), [1.0, -1.0, 1.0], [0.6, -0.4, 0.0]),
        (Slope([2.0, 1.0, 0.5]), [1.0, -1.0, 1.0], [1.5, -1.5, 0.5]),
        (GroupLasso([0, 0, 1], weights=[1.0, 1.0]), [3.0, -4.0, 0.0], [0.6, -0.8, 1.0]),
        (SparseGroupLasso([0, 0, 1], l1_ratio=0.0, weights=[1.0, 1.0]), [3.0, -4.0, 0.0], [0.6, -0.8, 1.0]),
    ],
)
def test_a_small_column_beside_large_ones_has_to_be_stationary_itself(penalty, coef, slope):
    """What is rounding in the gradient of a column of size a thousand is not in one of a thousandth."""
    coef, slope, size = (np.array(part)[:, None] for part in (coef, slope, [1e3, 1e3, 1e-3]))
    beyond = np.array([[0.0], [0.0], [1e-6 if coef[2] == 0 else -1e-6]])
    assert penalty.is_stationary(coef, -slope, 1e-7, size).all()
    assert penalty.is_stationary(coef, -(slope + beyond), 1e-7, np.full_like(size, 1e3)).all()
    assert not penalty.is_stationary(coef, -(slope + beyond), 1e-7, size).any()

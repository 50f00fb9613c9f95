"""Sources of rows: what they yield, and what they say of bad input."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from onefit import LassoLOO
from onefit.blocks import Block, Rows
from onefit.sources import ArraySource, GeneratedSource, as_source

N, P = 700, 4


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P))
    return X, X[:, 0] + rng.normal(size=N), rng.uniform(0.5, 2.0, N)


def whole(source: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """All rows of a source, in their order."""
    blocks = list(source.each(lambda block: block))
    weights = [block.weights for block in blocks]
    return (
        np.concatenate([block.X for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        None if weights[0] is None else np.concatenate(weights),
    )


def same(source: Rows, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
    found = whole(source)
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], y)
    assert (found[2] is None) == (weights is None)
    assert weights is None or np.array_equal(found[2], weights)


def count(block: Block) -> int:
    return len(block.y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_matrix, np.asfortranarray])
def test_arrays_are_cut_into_blocks(kind, weighted):
    X, y, w = table()
    w = w if weighted else None
    source = ArraySource(kind(X), y, w, rows=300)
    same(source, X, y, w)
    assert [count(block) for block in source.each(lambda block: block)] == [300, 300, 100]
    assert source.total(count) == N
    assert source.shape == (N, P)


def test_a_memory_map_is_read_in_blocks(tmp_path):
    X, y, _ = table()
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="w+", shape=X.shape)
    mapped[:] = X
    source = ArraySource(
        np.memmap(tmp_path / "X.bin", dtype=np.float32, mode="r", shape=X.shape), y, rows=200
    )
    same(source, X.astype(np.float32), y, None)


def test_a_data_frame_keeps_its_names():
    pd = pytest.importorskip("pandas", reason="data frames need pandas")
    X, y, _ = table()
    source = ArraySource(pd.DataFrame(X, columns=list("abcd")), pd.Series(y), rows=100)
    same(source, X, y, None)
    assert source.names == ("a", "b", "c", "d")


def test_a_function_makes_blocks():
    X, y, w = table()

    def make() -> Iterator[tuple[np.ndarray, ...]]:
        for start in range(0, N, 250):
            yield X[start : start + 250], y[start : start + 250], w[start : start + 250]

    same(GeneratedSource(make), X, y, w)
    source = as_source(make)
    assert isinstance(source, GeneratedSource)
    same(source, X, y, w)


def test_arrays_in_memory_are_no_source():
    X, y, w = table()
    assert as_source(X, y, w) is None
    assert as_source(sp.csr_array(X), y) is None
    assert as_source(X.tolist(), y.tolist()) is None


def broken(change) -> GeneratedSource:
    """Eight blocks of which one was changed."""
    X, y, _ = table()

    def make() -> Iterator[tuple[np.ndarray, ...]]:
        for k in range(7):
            rows = slice(100 * k, 100 * k + 100)
            block = X[rows].copy(), y[rows].copy(), np.ones(100)
            yield change(*block) if k == 5 else block

    return GeneratedSource(make)


def set_at(which: int, value: float):
    def change(*block):
        block[which][(3, 2) if which == 0 else 3] = value
        return block

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at(0, np.nan), r"block 5 has NaN in column 2, row 3"),
        (set_at(0, np.inf), r"block 5 has infinity in column 2, row 3"),
        (set_at(1, np.nan), r"target of block 5 is missing or infinite in row 3"),
        (set_at(2, -1.0), r"sample_weight of block 5 is -1 in row 3"),
        (lambda X, y, w: (X[:, :3], y, w), r"block 5 has 3 columns, block 0 has 4"),
        (lambda X, y, w: (X, y[:9], w), r"y of block 5 has 9 entries, X has 100 rows"),
        (lambda X, y, w: (np.full(X.shape, "a"), y, w), r"block 5 holds what is no number"),
        (lambda *block: block[0], r"block 5 must be \(X, y\)"),
        (lambda X, y, w: (X[0], y, w), r"block 5 of X must have rows and columns"),
    ],
    ids=["nan", "infinity", "target", "weight", "width", "lengths", "text", "no tuple", "one axis"],
)
def test_bad_blocks_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        broken(change).total(count)


def test_complaints_about_the_response_name_the_block():
    X, y, _ = table()

    def positive(block: Block) -> int:
        if block.y.min() < -2.0:
            raise ValueError("y is negative")
        return 1

    with pytest.raises(ValueError, match=r"block \d \(rows \d+ to \d+\): y is negative"):
        ArraySource(X, y, rows=100).total(positive)


def test_missing_labels_are_named():
    X, y, _ = table()
    labels = np.where(y > 0, "yes", "no").astype(object)
    labels[207] = None
    with pytest.raises(ValueError, match=r"target of block 2 .* row 207:"):
        ArraySource(X, labels, rows=100).total(count)


def test_names_of_columns_must_stay():
    pd = pytest.importorskip("pandas", reason="data frames need pandas")
    X, y, _ = table()

    def make():
        yield pd.DataFrame(X, columns=list("abcd")), y
        yield pd.DataFrame(X, columns=list("abdc")), y

    with pytest.raises(ValueError, match=r"block 1 has column 'd' where block 0 has 'c'"):
        GeneratedSource(make).total(count)


def test_text_in_a_data_frame_is_named():
    pd = pytest.importorskip("pandas", reason="data frames need pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    with pytest.raises(ValueError, match=r"no number in column 'b'"):
        ArraySource(frame, [1.0, 2.0]).total(count)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GeneratedSource(iter([])), TypeError, "passed over several times"),
        (lambda: as_source(iter([])), TypeError, "give a function that returns an iterator"),
        (lambda: GeneratedSource(lambda: iter([])), ValueError, "yields no block"),
        (lambda: ArraySource(np.ones((3, 2)), np.ones(2)), ValueError, "y has 2 entries, X has 3 rows"),
        (lambda: ArraySource(np.ones((0, 2)), np.ones(0)), ValueError, "no rows"),
        (lambda: ArraySource(np.ones((3, 2)), np.ones(3), rows=0), ValueError, "rows must be at least 1"),
        (lambda: ArraySource(np.ones((3, 2)), None), ValueError, "y has no entries"),
        (lambda: as_source("nowhere.parquet"), TypeError, "needs y, the name"),
        (lambda: as_source(lambda: iter([]), [1.0]), TypeError, "bring their own target"),
    ],
)
def test_bad_sources_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_columns_and_labels_that_change_between_passes():
    """As noise that is drawn anew does, or a file of strings that is written to."""
    rng = np.random.default_rng(0)
    y, numbers = rng.normal(size=60), iter(range(99))
    drawn = [
        lambda: (rng.normal(size=(60, 2)), y),
        lambda: (np.ones((60, 2)), np.roll(np.repeat(["a", "b"], 30), next(numbers))),
    ]
    for one in drawn:
        source = GeneratedSource(lambda one=one: iter([one()]))
        list(source.named_blocks())
        with pytest.raises(ValueError, match="other rows, or in another order"):
            list(source.named_blocks())


def test_blocks_without_rows_are_passed_over():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), rng.normal(size=90)

    def make():
        for rows in (slice(0, 30), slice(30, 30), slice(30, 60), slice(60, 90), slice(90, 90)):
            yield X[rows], y[rows]

    found, whole = LassoLOO().fit(GeneratedSource(make)), LassoLOO().fit(X, y)
    assert found.alpha_ == pytest.approx(whole.alpha_)
    np.testing.assert_allclose(found.coef_, whole.coef_, atol=1e-10)
    with pytest.raises(ValueError, match="the source has no rows"):
        LassoLOO().fit(GeneratedSource(lambda: iter([(X[:0], y[:0])])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda call, y: y[: 60 - 10 * call], "saw 50 of them where the first saw 60"),
        (lambda call, y: np.roll(y, call), "other rows, or in another order"),
        (lambda call, y: y + call, "other rows, or in another order"),
    ],
    ids=["fewer", "in another order", "others"],
)
def test_rows_that_change_between_passes(change, message):
    X, calls = np.random.default_rng(0).normal(size=(60, 2)), iter([0, 0, 1])  # the first looks at a block

    def make():
        y = change(next(calls), X[:, 0] ** 2)
        yield X[: len(y)], y

    source = GeneratedSource(make)
    list(source.named_blocks())
    with pytest.raises(ValueError, match=message):
        list(source.named_blocks())

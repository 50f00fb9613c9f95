"""What leaves together: groups, splits, and splits drawn here."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from onefit.leave_out.sets import Folds, removed_share
from onefit.risk.folds import (
    as_folds,
    by_group,
    by_split,
    held_out,
    k_fold,
    leave_q_out,
    monte_carlo,
)

X = np.arange(24.0).reshape(12, 2)
Y = np.tile([0, 0, 1], 4)


def same(folds, splits):
    """The folds are those of pairs (train, test)."""
    splits = list(splits)
    assert len(folds) == len(splits)
    for k, (train, test) in enumerate(splits):
        np.testing.assert_array_equal(np.sort(folds.removed[k]), np.setdiff1d(np.arange(folds.n), train))
        np.testing.assert_array_equal(folds.tested[k], test)


@pytest.mark.parametrize(
    "groups",
    [
        [3, 1, 3, 2],
        ["c", "a", "c", "b"],
        np.array([3.0, 1.0, 3.0, 2.0]),
        pd.Series(["c", "a", "c", "b"], index=[7, 5, 3, 1]),
        pd.Series(["c", "a", "c", "b"], dtype="category"),
        pd.to_datetime(pd.Series(["2003", "2001", "2003", "2002"])),
        np.array([3, "one", 3, (2,)], dtype=object),
        np.array([True, False, True, False]),
    ],
    ids=["ints", "text", "floats", "series", "categories", "dates", "objects", "booleans"],
)
def test_every_group_leaves_once(groups):
    folds = as_folds(groups, np.zeros((4, 1)))
    assert folds.is_partition
    parts = {tuple(rows) for rows in folds.removed}
    assert (0, 2) in parts
    assert parts == {(0, 2), (1, 3)} if len(parts) == 2 else {(0, 2), (1,), (3,)}
    assert folds.removed == folds.tested


@pytest.mark.parametrize(
    "groups",
    [
        np.array([1.0, np.nan, 2.0]),
        np.array(["a", None, "b"], dtype=object),
        np.array(["a", np.nan, "b"], dtype=object),
        pd.Series(["a", None, "b"], dtype="string"),
        np.array(["2001", "NaT", "2003"], dtype="datetime64[Y]"),
    ],
    ids=["floats", "None", "objects", "pandas.NA", "NaT"],
)
def test_a_missing_group_is_refused(groups):
    with pytest.raises(ValueError, match="1 missing values, the first in row 1"):
        by_group(groups, 3)


@pytest.mark.parametrize(
    ("groups", "n", "message"),
    [
        ([1, 2, 3], 4, r"shape \(4,\), got shape \(3,\)"),
        (np.ones((4, 1)), 4, r"got shape \(4, 1\)"),
        (["a", "a", "a"], 3, "all rows are in one group"),
    ],
)
def test_groups_that_leave_nothing_or_do_not_fit_are_refused(groups, n, message):
    with pytest.raises(ValueError, match=message):
        by_group(groups, n)


@pytest.mark.parametrize(
    "splitter",
    [
        KFold(5),
        StratifiedKFold(4, shuffle=True, random_state=0),
        LeaveOneOut(),
        TimeSeriesSplit(3),
        TimeSeriesSplit(3, gap=1, test_size=2),
        ShuffleSplit(6, test_size=0.2, train_size=0.5, random_state=0),
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        PredefinedSplit([-1, 0, 0, 1, 1, 2, 2, 0, 1, -1, 2, 0]),
    ],
    ids=repr,
)
def test_a_splitter_is_followed(splitter):
    folds = as_folds(splitter, X, Y)
    same(folds, splitter.split(X, Y))
    assert folds.is_partition == isinstance(splitter, KFold | StratifiedKFold | LeaveOneOut)
    for row, k in zip(folds.rows, folds.fold, strict=True):
        assert row in folds.tested[k]


def test_a_splitter_is_given_the_groups():
    groups = np.repeat([0, 1, 2, 3], 3)
    same(as_folds(GroupKFold(2), sp.csr_array(X), Y, groups), GroupKFold(2).split(X, Y, groups))


def test_row_numbers_and_masks_say_the_same():
    splits = list(ShuffleSplit(3, test_size=0.3, train_size=0.4, random_state=1).split(X))
    masks = [tuple(np.isin(np.arange(12), np.sort(part)) for part in pair) for pair in splits]
    by_mask = as_folds(masks, X)
    for k, rows in enumerate(as_folds(splits, X).removed):
        np.testing.assert_array_equal(by_mask.removed[k], rows)
        np.testing.assert_array_equal(by_mask.tested[k], np.sort(splits[k][1]))


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([], "no fold"),
        ([([0, 1], [1, 2])], "fold 0 tests rows that it is trained on, such as row 1"),
        ([([0, 1], [2]), ([], [2])], "fold 1 has no training rows"),
        ([([0, 1], [])], "no test rows"),
        ([([0, 0, 1], [2])], "training rows that occur more than once"),
        ([([0, 1], [2, 2])], "tested rows that occur more than once"),
        ([([0, 1], [4])], "outside 0 … 3"),
        ([([-1], [0])], "outside 0 … 3"),
        ([(np.array([True, False]), [2])], r"one value a row, \(4,\), got \(2,\)"),
    ],
)
def test_splits_that_make_no_sense_are_refused(splits, message):
    with pytest.raises(ValueError, match=message):
        by_split(splits, 4)


@pytest.mark.parametrize("given", ["groups", 5, [([0.5], [1])], [([0], [1], [2])]], ids=repr)
def test_what_is_neither_groups_nor_splits_is_refused(given):
    with pytest.raises(TypeError, match="expected"):
        as_folds(given, X)


def test_a_fold_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="removed rows outside"):
        Folds((np.array([4]),), (np.array([4]),), 4)


# --- splits drawn here -----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_splits"), [(12, 5), (10, 10), (7, 2)])
def test_k_folds_are_those_of_scikit_learn(n, n_splits):
    same(k_fold(n, n_splits), KFold(n_splits).split(np.zeros(n)))
    shuffled = k_fold(n, n_splits, rng=3)
    assert shuffled.is_partition
    assert sorted(map(len, shuffled.removed)) == sorted(map(len, k_fold(n, n_splits).removed))
    np.testing.assert_array_equal(shuffled.rows, k_fold(n, n_splits, np.random.default_rng(3)).rows)


def test_draws_have_the_size_that_was_asked_for():
    for folds, q, draws in [
        (leave_q_out(20, 3, 50, rng=0), 3, 50),
        (monte_carlo(20, 40, train_size=0.95, rng=0), 1, 40),
        (held_out(20, test_size=0.25, rng=0), 5, 1),
    ]:
        assert len(folds) == draws
        assert {len(rows) for rows in folds.removed} == {q}
        assert folds.removed == folds.tested
    assert len(np.unique(leave_q_out(20, 3, 50, rng=0).rows)) == 20


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: k_fold(5, 1), "n_splits must be from 2"),
        (lambda: k_fold(5, 6), "n_splits must be from 2"),
        (lambda: leave_q_out(5, 5, 1), "q must be from 1"),
        (lambda: leave_q_out(5, 1, 0), "at least 1 draw"),
        (lambda: held_out(5, 0.0), "test_size must be a share"),
        (lambda: monte_carlo(5, 3, 1.0), "train_size must be a share"),
    ],
    ids=["one fold", "too many folds", "all rows", "no draw", "no test rows", "no rows left"],
)
def test_sizes_that_do_not_exist_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_the_share_of_the_weights_that_leaves():
    folds = by_group([0, 0, 1, 2], 4)
    np.testing.assert_allclose(removed_share(folds, np.array([1.0, 2.0, 0.0, 5.0])), [3 / 8, 0, 5 / 8])
    with pytest.raises(ValueError, match="fold 0 removes all rows of positive weight"):
        removed_share(folds, np.array([1.0, 2.0, 0.0, 0.0]))


def test_sets_of_one_size_may_be_an_array():
    rows = np.array([[3, 1], [0, 2], [5, 4]])
    folds, apart = Folds(rows, rows, 6), Folds(tuple(rows), tuple(rows), 6)
    np.testing.assert_array_equal(folds.rows, apart.rows)
    np.testing.assert_array_equal(folds.fold, apart.fold)
    for which in (np.array([2, 0]), np.array([1]), np.array([], dtype=int)):
        for found, expected in zip(folds.judged(which), apart.judged(which), strict=True):
            np.testing.assert_array_equal(found, expected)
    own, judged, place = folds.judged(np.array([2, 0]))
    assert (own.tolist(), judged.tolist(), place.tolist()) == ([0, 0, 1, 1], [5, 4, 3, 1], [4, 5, 0, 1])
    with pytest.raises(ValueError, match="more than once"):
        Folds(np.array([[0, 0]]), np.array([[0, 0]]), 6)


def test_of_some_folds_the_values_that_they_judge():
    splits = [
        (np.arange(4, 8), np.array([0])),
        (np.arange(3), np.array([3, 6])),
        (np.arange(5), np.array([5])),
    ]
    folds = as_folds(splits, np.zeros((8, 1)))
    own, rows, place = folds.judged(np.array([1, 2]))
    assert (own.tolist(), rows.tolist(), place.tolist()) == ([0, 0, 1], [3, 6, 5], [1, 2, 3])

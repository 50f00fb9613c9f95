"""Numbers and counts as messages and tables write them."""

from __future__ import annotations

import pytest

from onefit.displays.style import plain_axes
from onefit.wording import counted, to_digits


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (277_110.0, 5, "277110"),
        (21_054.4, 4, "21050"),
        (999_999.9, 4, "1000000"),
        (2.641e9, 4, "2.641e+09"),
        (-12_345.0, 3, "-12300"),
        (0.05647, 4, "0.05647"),
        (3.2e-7, 2, "3.2e-07"),
        (0.0, 4, "0"),
        (float("inf"), 4, "inf"),
        (float("nan"), 4, "nan"),
    ],
)
def test_exponents_stand_where_digits_would_be_many(value, digits, written):
    assert to_digits(value, digits) == written


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_000, "12,000 rows")]
)
def test_one_row_is_a_row(count, said):
    assert counted(count, "row") == said


def test_large_numbers_leave_the_room_above_the_axes_to_the_legend():
    pytest.importorskip("matplotlib").use("Agg")
    ax = plain_axes(None, (4.0, 3.0))
    ax.plot([0.0, 1.0], [-4e8, 9e8])
    ax.figure.draw_without_rendering()
    assert ax.yaxis.get_offset_text().get_text() == ""
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "8e+08" in labels
    assert any(label.startswith("\N{MINUS SIGN}") for label in labels)

"""A small part of the choices beside exact paths, and that the keepers see a wrong one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zoo.choice import Choice, as_text, choices
from zoo.tables import SHIPPED

NUMBERS = (0, 2, 4, 9)  # lasso, ridge, ℓ1 logistic, gamma
SMALL = {"rows": (30, 34), "columns": 6, "real": tuple(SHIPPED)}


@pytest.fixture(scope="module")
def found():
    return list(choices(NUMBERS, **SMALL))


def test_choices_are_those_of_exact_paths(found):
    assert not any(one.is_wrong for one in found), as_text(found)
    assert all(one.status == "judged" for one in found)


@pytest.mark.parametrize(("cost", "wrong"), [(0.0, False), (0.05, False), (0.2, True)])
def test_a_tenth_of_a_standard_error_may_be_lost(cost, wrong):
    one = Choice(0, "LassoLOO", risk=1.0 + cost, least=1.0, paired_error=1.0)
    assert one.is_wrong is wrong
    assert replace(one, status="crash").is_wrong

"""A small part of the choices beside exact paths, and that the keepers see a wrong one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from zoo.choice import Choice, as_text, choices, draw, judge
from zoo.tables import SHIPPED

NUMBERS = (0, 2, 4, 9)  # lasso, ridge, ℓ1 logistic, gamma
SMALL = {"rows": (30, 34), "columns": 6, "real": tuple(SHIPPED)}


@pytest.fixture(scope="module")
def found():
    return list(choices(NUMBERS, **SMALL))


@pytest.mark.slow
def test_choices_are_those_of_exact_paths(found):
    assert not any(one.is_wrong for one in found), as_text(found)
    assert all(one.status == "judged" for one in found)


@pytest.mark.parametrize(("cost", "wrong"), [(0.0, False), (0.05, False), (0.2, True)])
def test_a_tenth_of_a_standard_error_may_be_lost(cost, wrong):
    one = Choice(0, "LassoLOO", risk=1.0 + cost, least=1.0, paired_error=1.0)
    assert one.is_wrong is wrong
    assert replace(one, status="crash").is_wrong


def test_risks_of_paths_with_unequal_weights_are_within_their_errors():
    rng = np.random.default_rng(0)
    drawn = draw(13, rows=(30, 34), columns=20, real=tuple(SHIPPED))  # an elastic net
    n = len(drawn.y)
    for weights in (rng.uniform(0.2, 3.0, n), rng.integers(0, 3, n).astype(float)):
        one = judge(replace(drawn, sample_weight=weights))
        assert one.status == "judged"
        assert one.proven > 0
        assert one.false == 0


def test_a_risk_beyond_a_proven_error_is_wrong():
    one = Choice(0, "LassoLOO", risk=1.0, least=1.0, paired_error=0.0, proven=20)
    assert not one.is_wrong
    assert replace(one, false=1).is_wrong
    assert not replace(one, sampled=20, missed=1).is_wrong

"""The tutorial that exchanges names alone runs, cell by cell."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "examples" / "tutorials" / "only_the_names.md"


def test_every_cell_runs_with_only_the_names_changed():
    if not PAGE.exists():
        pytest.skip("the examples are not part of this checkout")
    cells = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(cells) >= 12
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=Warning, module="onefit")
        for cell in cells:
            exec(compile(cell, PAGE.name, "exec"), names)
    assert names["lasso"].coef_.shape == (10,)
    assert 0.3 < names["ridge"].score(names["X_test"], names["y_test"]) < 0.6
    assert np.isfinite(names["net"].alpha_)

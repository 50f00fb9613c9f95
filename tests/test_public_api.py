"""What ``import onefit`` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onefit

OPTIONAL = ["torch", "dask", "matplotlib", "pandas", "pyarrow", "click", "jinja2", "skops"]


def test_the_public_names_exist():
    assert len(set(onefit.__all__)) == len(onefit.__all__)
    for name in onefit.__all__:
        assert getattr(onefit, name) is not None
    public = {name for name in vars(onefit) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(onefit, name)).__name__ == "module"}
    assert public - modules <= set(onefit.__all__) | {"annotations"}


def test_the_names_that_other_work_relies_on():
    expected = {"loo", "RiskEstimate", "penalties", "NotOptimalWarning", "UnreliableWarning", "UnsupportedModelError"}
    assert expected <= set(onefit.__all__)


def test_every_public_name_is_documented():
    for name in onefit.__all__:
        assert (getattr(onefit, name).__doc__ or "").strip(), name


def test_warnings_and_errors_have_families():
    assert issubclass(onefit.NotOptimalWarning, onefit.OnefitWarning)
    assert issubclass(onefit.UnreliableWarning, onefit.OnefitWarning)
    assert issubclass(onefit.OnefitWarning, UserWarning)
    assert issubclass(onefit.UnsupportedModelError, TypeError)
    assert issubclass(onefit.NotFittedToDataError, ValueError)


@pytest.fixture(scope="module")
def loaded():
    code = "import sys, onefit; print('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("package", OPTIONAL)
def test_import_loads_nothing_optional(loaded, package):
    assert "onefit.api" in loaded
    assert package not in loaded

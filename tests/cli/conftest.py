"""What most tests of the command line do without: to draw pictures, and to try a hundred strengths."""

import pytest

from onefit.cli import families
from onefit.cli.pictures import pictures

FEW = 15  # strengths along a path


@pytest.fixture(autouse=True, scope="module")
def _quick(request):
    """No pictures, unless the module says that it looks at them, and short paths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "STRENGTHS", FEW)
        if not getattr(request.module, "LOOKS_AT_PICTURES", False):
            patch.setattr("onefit.cli.report.pictures", lambda _: [])
        yield


@pytest.fixture
def with_pictures(monkeypatch):
    monkeypatch.setattr("onefit.cli.report.pictures", pictures)

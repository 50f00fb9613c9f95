"""Most reports of the tests have no pictures: to draw them takes longer than all else."""

import pytest

from onefit.cli.pictures import pictures


@pytest.fixture(autouse=True, scope="module")
def _no_pictures(request):
    """None are drawn, unless the module says that it looks at them."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "LOOKS_AT_PICTURES", False):
            patch.setattr("onefit.cli.report.pictures", lambda _: [])
        yield


@pytest.fixture
def with_pictures(monkeypatch):
    monkeypatch.setattr("onefit.cli.report.pictures", pictures)

"""What tests of the command line share: results; and what most do without: pictures, a hundred strengths."""

import pytest

from builders import town_table
from onefit.cli import families, run
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


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder with a table and the results of two models."""
    folder = tmp_path_factory.mktemp("done")
    town_table().to_csv(folder / "t.csv", index=False)
    for name, more in (("full", []), ("poor", ["--drop", "x"])):
        words = ["tune", str(folder / "t.csv"), "--target", "y", "--model", "ridge", "--audit", "0", *more]
        assert run([*words, "--out", str(folder / name)]) == 0
    return folder

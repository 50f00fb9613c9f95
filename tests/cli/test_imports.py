"""What a command does not import, which would cost seconds."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from onefit.cli import run
assert run(["predict", sys.argv[1], sys.argv[2], "--out", sys.argv[3]]) == 0
print(sorted({"dask", "torch"} & set(sys.modules)))
"""


def test_a_model_is_read_without_libraries_that_it_does_not_hold(done, tmp_path):
    for name in ("dask", "torch"):
        pytest.importorskip(name, reason=f"{name} is not here to be imported")
    where = [str(done / "full"), str(done / "t.csv"), str(tmp_path / "p.csv")]
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *where], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "[]"

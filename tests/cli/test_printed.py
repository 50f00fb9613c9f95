"""Commands whose output nobody reads, or cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from onefit.cli import files, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other pipes")
FULL = Path("/dev/full")
NAMES = sorted(files.IN_MEMORY)


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    path = tmp_path / "t.csv"
    pd.DataFrame({"größe_λ": x[:, 0], "b": x[:, 1], "y": x[:, 0] + rng.normal(size=40)}).to_csv(
        path, index=False
    )
    return path


def onefit(*arguments, stdout, **more):
    command = [sys.executable, "-m", "onefit", *map(str, arguments)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, **more)


@pytest.fixture
def broken():
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def ridge(csv, out):
    return ["tune", csv, "--target", "y", "--model", "ridge", "--audit", "2", "--out", out]


class TestReaderThatLeaves:
    def test_all_is_written(self, csv, tmp_path, broken):
        done = onefit(*ridge(csv, tmp_path / "o"), stdout=broken)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(path.name for path in (tmp_path / "o").iterdir()) == NAMES
        model, rows = tmp_path / "o" / "model.skops", tmp_path / "rows.csv"
        done = onefit("loo", model, csv, "--target", "y", "--out", rows, stdout=broken)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(pd.read_csv(rows)) == 40
        for quiet in (["predict", model, csv], ["--help"], ["tune", "--help"], ["--version"]):
            done = onefit(*quiet, stdout=broken)
            assert (done.returncode, done.stderr) == (0, "")

    def test_of_a_comparison(self, csv, tmp_path, broken):
        for name in ("one", "two"):
            assert run([*map(str, ridge(csv, tmp_path / name))]) == 0
        done = onefit("compare", tmp_path / "one", tmp_path / "two", stdout=broken)
        assert (done.returncode, done.stderr) == (0, "")

    def test_of_warnings_too(self, csv, tmp_path, broken):
        frame = pd.read_csv(csv)
        frame.assign(b=np.where(frame.index == 3, "12x", frame["b"].round(2).astype(str))).to_csv(
            csv, index=False
        )
        command = [sys.executable, "-m", "onefit", *map(str, ridge(csv, tmp_path / "o"))]
        done = subprocess.run(command, stdout=broken, stderr=broken, check=False)
        assert done.returncode == 0
        assert sorted(path.name for path in (tmp_path / "o").iterdir()) == NAMES


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is full")
def test_a_full_disk_is_told_after_the_work(csv, tmp_path):
    with FULL.open("w") as full:
        done = onefit(*ridge(csv, tmp_path / "o"), stdout=full)
    assert done.returncode == 2
    assert done.stderr == "onefit: error: not all could be printed: No space left on device\n"
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == NAMES


def test_characters_that_the_terminal_does_not_have(csv, tmp_path):
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "onefit", *map(str, ridge(csv, tmp_path / "o"))]
    done = subprocess.run(command, capture_output=True, env=latin, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "größe_?".encode("latin-1") in done.stdout
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == NAMES

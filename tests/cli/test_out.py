"""Results of one folder are those of one run, however it ends and whoever else writes."""

import errno
import os
import subprocess
import sys

import pytest

from builders import town_table
from onefit._whole_file import BEGUN
from onefit.cli import files, run, tune
from onefit.cli.errors import WriteError

FIRST = ["coefficients.csv", "model.skops", "predictions.csv"]


def tuned(place, out, model, *more):
    table = str(place / "t.csv")
    return run(["tune", table, "--target", "y", "--model", model, "--audit", "0", "--out", str(out), *more])


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def old(tmp_path):
    """A folder with results of ridge, beside its table."""
    town_table().to_csv(tmp_path / "t.csv", index=False)
    assert tuned(tmp_path, tmp_path / "o", "ridge") == 0
    return tmp_path / "o"


def full_at(monkeypatch, count):
    """A disk that has no space left for the file of that number."""
    calls, sync = [], os.fsync

    def fsync(handle):
        calls.append(handle)
        if len(calls) == count:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)


class TestForce:
    def test_an_interrupted_run_leaves_nothing_of_the_earlier_one(self, old, done, capsys, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(tune.tuning, "audited", interrupt)
        before = held(old)
        assert tuned(old.parent, old, "lasso", "--force") == 130
        after = held(old)
        assert sorted(after) == FIRST
        assert not set(after.values()) & set(before.values())
        assert "summary.json, report.html not written" in capsys.readouterr().err
        assert run(["compare", str(old), str(done / "full")]) == 2
        assert "holds no summary.json" in capsys.readouterr().err

    def test_neither_does_one_in_passes(self, old, capsys, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("onefit.blocks.estimate.BlocksEstimate.rows_to", interrupt)
        assert tuned(old.parent, old, "ridge", "--drop", "place", "--memory-limit", "1K", "--force") == 130
        assert sorted(held(old)) == FIRST[:2]
        assert "predictions.parquet, summary.json not written" in capsys.readouterr().err

    def test_a_full_disk_neither(self, old, capsys, monkeypatch):
        full_at(monkeypatch, 3)
        assert tuned(old.parent, old, "lasso", "--force") == 2
        assert sorted(held(old)) == FIRST[:2]
        error = f"cannot write {old / 'predictions.csv'}: No space left on device; {old} holds model.skops, "
        assert error + "coefficients.csv; predictions.csv, summary.json" in capsys.readouterr().err

    def test_what_cannot_begin_removes_nothing(self, old, capsys, monkeypatch):
        full_at(monkeypatch, 1)
        before = held(old)
        assert tuned(old.parent, old, "lasso", "--force") == 2
        assert held(old) == before
        assert "model.skops: No space left on device; nothing was written" in capsys.readouterr().err

    def test_a_folder_in_place_of_a_file_is_found_before_all_work(self, old, capsys, monkeypatch):
        (old / "model.skops").unlink()
        (old / "model.skops").mkdir()
        monkeypatch.setattr(tune, "read_table", None)
        assert tuned(old.parent, old, "lasso", "--force") == 2
        assert "model.skops: it is a folder" in capsys.readouterr().err


class TestTwoRuns:
    def test_the_later_one_does_not_overwrite(self, tmp_path):
        with files.folder(str(tmp_path), files.IN_MEMORY, force=False) as one:
            with files.folder(str(tmp_path), files.IN_MEMORY, force=False) as other:
                one.write("model.skops", b"one")
                with pytest.raises(WriteError, match=r"another run has written model\.skops into .* --out"):
                    other.write("model.skops", b"other")
            one.write("summary.json", b"one")
        assert set(held(tmp_path).values()) == {b"one"}

    def test_at_the_same_moment_neither(self, tmp_path, monkeypatch):
        with files.folder(str(tmp_path), files.IN_MEMORY, force=False) as one:
            (tmp_path / "model.skops").write_bytes(b"other")
            monkeypatch.setattr(files, "_results_in", lambda _: [])
            with pytest.raises(WriteError, match="each run an --out of its own"):
                one.write("model.skops", b"one")
        assert held(tmp_path) == {"model.skops": b"other"}

    def test_without_links(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise PermissionError

        monkeypatch.setattr(os, "link", refuse)
        with files.folder(str(tmp_path), files.IN_MEMORY, force=False) as one:
            one.write("model.skops", b"one")
        assert held(tmp_path) == {"model.skops": b"one"}

    def test_by_force_the_earlier_one_stops(self, tmp_path):
        with files.folder(str(tmp_path), files.IN_MEMORY, force=True) as one:
            one.write("model.skops", b"one")
            with files.folder(str(tmp_path), files.IN_MEMORY, force=True) as other:
                other.write("model.skops", b"other")
                with pytest.raises(WriteError, match=r"another model\.skops"):
                    one.write("summary.json", b"one")
                other.write("summary.json", b"other")
        assert set(held(tmp_path).values()) == {b"other"}

    def test_a_folder_that_the_other_has_taken_back_is_made_again(self, tmp_path):
        place = tmp_path / "o"
        with files.folder(str(place), files.IN_MEMORY, force=False) as one:
            place.rmdir()
            one.write("model.skops", b"one")
        assert held(place) == {"model.skops": b"one"}

    def test_what_another_is_writing_stays(self, tmp_path):
        part = tmp_path / f"{BEGUN}x.part"
        part.write_bytes(b"half")
        files.write(tmp_path / "a", b"whole")
        assert part.exists()
        os.utime(part, (0, 0))
        files.write(tmp_path / "a", b"whole")
        assert not part.exists()

    def test_one_in_place_of_the_other_all_the_time(self, tmp_path):
        program = (
            "import sys\nfrom pathlib import Path\nfrom onefit.cli import files\n"
            "for _ in range(150): files.write(Path(sys.argv[1]), b'x')\n"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "a")]
        runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        assert [one.communicate()[1] for one in runs] == ["", ""]


class TestOneFile:
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows counts the whole path")
    def test_the_longest_name(self, done, tmp_path):
        name = tmp_path / ("p" * 251 + ".csv")
        assert run(["predict", str(done / "full"), str(done / "t.csv"), "--out", str(name)]) == 0
        assert name.exists()

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows counts the whole path")
    def test_too_long_a_name_is_found_before_all_work(self, done, tmp_path, capsys):
        name = tmp_path / ("p" * 256)
        assert run(["predict", "no model", str(done / "t.csv"), "--out", str(name)]) == 2
        assert f"cannot write {name}: File name too long" in capsys.readouterr().err
        assert tuned(done, name, "ridge") == 2
        assert f"cannot write into {name}: File name too long" in capsys.readouterr().err

    def test_a_full_disk_is_told_with_the_name(self, done, tmp_path, capsys, monkeypatch):
        full_at(monkeypatch, 1)
        command = ["predict", str(done / "full"), str(done / "t.csv"), "--out", str(tmp_path / "p.csv")]
        assert run(command) == 2
        error = f"onefit: error: cannot write {tmp_path / 'p.csv'}: No space left on device\n"
        assert capsys.readouterr().err == error
        assert not held(tmp_path)

"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlane.errors import RecordError
from memlane.record import check_output, replacing, replacing_directory
from tests.synthetic import transpose


def write(path: Path, data: bytes, force: bool = False) -> None:
    with replacing(path, force) as stream:
        stream.write(data)


def test_the_file_appears_at_the_end_and_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with replacing(target) as stream:
        stream.write(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target, b"old")
    with pytest.raises(RecordError, match="out exists; pass --force"):
        write(target, b"new")
    with pytest.raises(RecordError, match="out exists; pass --force"):
        check_output(target)
    assert target.read_bytes() == b"old"
    write(target, b"new", force=True)
    assert target.read_bytes() == b"new"


def test_a_bug_in_the_middle_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target, b"old")

    def fail() -> None:
        with replacing(target, force=True) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_end_in_the_middle_leaves_the_old_file_and_no_litter(tmp_path: Path, end: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def write_file() -> None:
        with replacing(path, force=True) as stream:
            stream.write(b"half")
            raise end

    def write_folder() -> None:
        with replacing_directory(tmp_path / "folder", "anchor") as folder:
            (folder / "anchor").write_bytes(b"half")
            raise end

    with pytest.raises(end):
        write_file()
    with pytest.raises(end):
        write_folder()
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_no_space_left_leaves_the_old_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    write(target, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="out cannot be written: No space left on device; the file that was there is unchanged"):
        write(target, b"new", force=True)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


LIMITED = """
import resource, sys
sys.path.insert(0, {tests!r})
from tests.synthetic import transpose
from memlane.errors import RecordError
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    transpose().save({path!r}, force=True)
except RecordError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes")
def test_the_system_refuses_in_the_middle_of_a_record(tmp_path: Path) -> None:
    target = tmp_path / "trace.parquet"
    target.write_bytes(b"old")
    script = LIMITED.format(tests=str(Path(__file__).parents[1]), path=str(target))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.stderr == ""
    assert done.stdout == f"{target} cannot be written: File too large; the file that was there is unchanged\n"
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["trace.parquet"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_device() -> None:
    with pytest.raises(RecordError, match="/dev/full cannot be written: No space left on device; no incomplete file was left"):
        transpose().save("/dev/full")
    assert Path("/dev/full").is_char_device()


def test_a_link_keeps_pointing_at_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", b"new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_directory_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is a directory; name a file"):
        write(tmp_path, b"")
    with pytest.raises(RecordError, match=r"cannot be written: there is no directory .*nowhere"):
        write(tmp_path / "nowhere" / "out", b"")


def test_a_pipe_is_written_to() -> None:
    reading, writing = os.pipe()
    with replacing(f"/dev/fd/{writing}") as stream:  # which leads to a name that no file has
        stream.write(b"rows")
    os.close(writing)
    with open(reading, "rb") as read:
        assert read.read() == b"rows"

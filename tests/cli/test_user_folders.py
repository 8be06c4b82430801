"""Folders of the user that are missing, closed or no folders: commands go without them, or say so in one sentence."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlane import chip
from memlane.chip import Chip
from memlane.emulate.code.store import Entry, Store, default_folder, present_store
from memlane.errors import ChipError, CommandError
from memlane.lab.chip_file import chip_file, chip_path, latency_facts, write_chip
from memlane.targets.names import available
from tests.cli.conftest import Command
from tests.cli.test_broken_off import START

FOLDERS = ("HOME", "XDG_CACHE_HOME", "MEMLANE_CACHE_DIR", "MEMLANE_CHIPS", "TMPDIR")


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that exists and lets nobody in. The superuser may enter any, so the operating system's answer is made up."""
    folder = tmp_path / "closed"
    folder.mkdir()

    def refusing(name: str) -> None:
        real = getattr(os, name)

        def call(path: object = ".", *args: object, **options: object) -> object:
            # Its name is in the folder above, which anybody may read.
            is_there = name in ("stat", "lstat") and path in (folder, str(folder))
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder) and not is_there:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *args, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("stat", "lstat", "listdir", "scandir", "open", "mkdir"):
        refusing(name)
    real_access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(folder) and real_access(path, mode))
    return folder


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom nobody knows, as in a container that runs under any number."""

    def expand(path: str | os.PathLike[str]) -> str:
        return os.fspath(path)

    for name in FOLDERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", expand)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("below", ["file/sub", "closed/sub", "nowhere/sub", "file"])
def test_commands_go_without_a_folder(memlane: Command, closed: Path, monkeypatch: pytest.MonkeyPatch, name: str, below: str) -> None:
    Path("file").write_text("")
    Path("job.py").write_text(START)
    monkeypatch.setenv(name, str(closed.parent / below))
    answer = memlane("count", "job.py")
    assert (answer.code, answer.err) == (0, "")
    assert "128 moved (4 sectors" in answer.out
    assert chip.load("h200").name == "h200"
    if name in ("HOME", "XDG_CACHE_HOME", "MEMLANE_CACHE_DIR"):
        monkeypatch.delenv("MEMLANE_CACHE_DIR") if name != "MEMLANE_CACHE_DIR" else None
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False) if name == "HOME" else None
        store = present_store()
        assert store is not None
        assert store.is_writable() == below.startswith("nowhere")


def test_commands_start_without_a_home() -> None:
    """What the help of a command needs is loaded before errors are lines."""
    environment = {name: value for name, value in os.environ.items() if name not in FOLDERS} | {"HOME": f"{__file__}/sub"}
    command = [sys.executable, "-c", "from memlane.cli import main; main(['count', '--help'])"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: memlane count")


def test_a_user_without_a_home_has_neither_cache_nor_chips(memlane: Command, homeless: None) -> None:
    assert default_folder() is None
    assert chip.user_directory() is None
    assert chip.directories() == (chip.SHIPPED,)
    assert "h200" in chip.names()
    with pytest.raises(
        CommandError, match=r"^there is no home directory for a chip file of your own; name a directory for it in MEMLANE_CHIPS$"
    ):
        chip_path(chip.load("h200"))
    Path("job.py").write_text(START)
    assert memlane("count", "job.py").code == 0
    assert "no  cache: the emulator recompiles each kernel" in memlane("doctor").out


def test_a_chip_that_is_not_found_names_the_folder_that_was_not_read(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CHIPS", str(closed))
    said = f"; chip files in {closed} cannot be read: Permission denied"
    with pytest.raises(ChipError) as raised:
        chip.load("mine")
    assert str(raised.value).endswith(said)
    assert available().endswith(said)
    monkeypatch.delenv("MEMLANE_CHIPS")
    monkeypatch.setenv("HOME", str(closed.parent))
    assert chip.unread_directory() == "", "most users have no chip files"


@pytest.mark.parametrize("below", ["file/sub", "closed/sub"])
def test_a_chip_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    closed: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (closed.parent / "file").write_text("")
    folder = closed.parent / below
    monkeypatch.setenv("MEMLANE_CHIPS", str(folder))
    h200: Chip = chip.load("h200")
    with pytest.raises(CommandError, match=f"^cannot write the chip file {folder}/h200.toml: "):
        write_chip(h200, chip_file(h200, latency_facts({"l2": 1.0}, "measured: here")), force=True)


@pytest.mark.parametrize(("said", "wanted"), [("0", False), ("off", False), ("No", False), ("1", True), ("", True), ("true", True)])
def test_the_cache_may_be_switched_off(monkeypatch: pytest.MonkeyPatch, said: str, wanted: bool) -> None:
    monkeypatch.setenv("MEMLANE_CACHE", said)
    assert (present_store() is not None) == wanted


def test_a_folder_in_the_place_of_yes_or_no_is_told(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CACHE", "/tmp/cache")
    said = "MEMLANE_CACHE=/tmp/cache: set it to 0 (no cache) or 1; MEMLANE_CACHE_DIR names the cache directory"
    assert f"no  cache: {said}" in memlane("doctor").out
    never_seen = "mov.u32 %r1, %tid.x;\n    add.u32 %r1, %r1, 77;"
    Path("job.py").write_text(START.replace("mov.u32 %r1, %tid.x;", never_seen))
    answer = memlane("count", "job.py")
    assert (answer.code, answer.err.splitlines()[0]) == (1, f"memlane: {said}")


def test_a_cache_whose_disk_is_full_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store = Store(tmp_path / "cache")
    store.put("key", Entry({}, b"code"))
    assert store.get("key") is None
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("count", "closed/job.py"),
        ("trace", "job.py", "-o", "closed/job.parquet"),
        ("count", "job.py", "-o", "closed/job.json"),
        ("explain", "closed/job.parquet"),
        ("compare", "closed/a.parquet", "closed/b.parquet"),
        ("export", "closed/job.parquet", "--to", "csv"),
        ("show", "k.cu:1", "closed/job.parquet"),
        ("lab", "shift", "--quick", "--out", "closed/out"),
    ],
)
def test_a_file_that_may_not_be_looked_at_is_named_in_one_sentence(memlane: Command, closed: Path, words: tuple[str, ...]) -> None:
    Path("job.py").write_text("print('ran')\n")
    answer = memlane(*(str(closed.parent / word) if word.startswith("closed/") else word for word in words))
    assert answer.code in (1, 2)
    assert answer.out == ""
    assert answer.err.startswith(f"memlane: {closed}/")
    assert answer.err.endswith(" is not accessible: Permission denied\n")
    assert answer.err.count("\n") == 1


def test_a_working_directory_that_is_gone(memlane: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    answer = memlane("count", "job.py")
    assert (answer.code, answer.err) == (2, "memlane: the working directory was deleted or cannot be read; change to another one\n")


def test_a_home_that_cannot_be_written_gets_no_completion(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("HOME", str(Path("file/home").absolute()))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    answer = memlane("--install-completion")
    assert answer.code == 1
    assert answer.err.startswith(f"memlane: {Path('file/home').absolute()}")
    assert answer.err.endswith(" cannot be written: Not a directory; memlane --show-completion prints the completion\n")

"""Whoever is killed while it writes leaves the old file or the new one, never half of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from memlane.export import export
from memlane.record import Trace, load
from tests.synthetic import transpose

WRITER = """\
import sys
from memlane.export import export
from memlane.record import load
trace = load(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] == "parquet":
    trace.save(sys.argv[3], force=True)
else:
    export(trace, sys.argv[2], sys.argv[3], force=True)
"""


def content(path: Path) -> dict[str, bytes]:
    """The file, or the files of the directory."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {one.relative_to(path.parent).as_posix(): one.read_bytes() for one in files}


def enlarged(trace: Trace, times: int) -> Trace:
    return replace(trace, table=pa.concat_tables([trace.table] * times).combine_chunks())


def killed_while_it_writes(source: Path, name: str, target: Path) -> bool:
    """Start a writer and kill it as soon as something of the new file is there; whether it was still at it."""
    folder, before = target.parent, set(os.listdir(target.parent))
    command = [sys.executable, "-c", WRITER, str(source), name, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.write("go\n")
        writer.stdin.flush()
        limit = time.monotonic() + 60
        while set(os.listdir(folder)) == before and writer.poll() is None and time.monotonic() < limit:
            pass
        writer.send_signal(signal.SIGKILL)
        return writer.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("name", "times"), [("parquet", 4000), ("csv", 2000), ("otf2", 50)])
def test_the_old_one_stays_whole(tmp_path: Path, name: str, times: int) -> None:
    target = tmp_path / "out" / f"t.{name}"
    target.parent.mkdir()
    if name == "parquet":
        transpose().save(target)
    else:
        export(transpose(), name, target)
    old = content(target)
    enlarged(transpose(), times).save(tmp_path / "large.parquet")
    assert killed_while_it_writes(tmp_path / "large.parquet", name, target)
    assert content(target) == old
    left = set(os.listdir(target.parent)) - {target.name}
    assert all(one.startswith(".memlane-") and one.endswith(".part") for one in left)
    if name == "parquet":
        assert load(target).table.num_rows == transpose().table.num_rows

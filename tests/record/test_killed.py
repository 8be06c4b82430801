"""Whoever is killed while it writes leaves the old file or the new one, never half of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from memlane.export import export
from memlane.record import Trace, load
from tests.synthetic import transpose

WRITER = """\
import os, resource, signal, sys
from memlane.export import export
from memlane.record import load

sys.dont_write_bytecode = True
trace, whole = load(sys.argv[1]), sys.argv[4] == "whole"
if whole:
    # All is written, and nothing has its name yet: the moment before the rename.
    os.fsync = os.sync = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    # The system kills whoever goes on writing where a file has so many bytes.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
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


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on file sizes")
@pytest.mark.parametrize("moment", ["half", "whole"])
@pytest.mark.parametrize(("name", "times"), [("parquet", 50), ("csv", 50), ("otf2", 1)])
def test_the_old_one_stays_whole(tmp_path: Path, name: str, times: int, moment: str) -> None:
    target = tmp_path / "out" / f"t.{name}"
    target.parent.mkdir()
    if name == "parquet":
        transpose().save(target)
    else:
        export(transpose(), name, target)
    old = content(target)
    enlarged(transpose(), times).save(tmp_path / "large.parquet")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "large.parquet"), name, str(target), moment]
    writer = subprocess.run(command, capture_output=True, text=True)
    assert writer.returncode == -(signal.SIGKILL if moment == "whole" else signal.SIGXFSZ), writer.stderr
    assert content(target) == old
    (left,) = set(os.listdir(target.parent)) - {target.name}
    assert left.startswith(".memlane-")
    assert left.endswith(".part")
    assert sum(map(len, content(target.parent / left).values())) > 0
    if name == "parquet":
        assert load(target).table.num_rows == transpose().table.num_rows

"""Machine code on disk: it serves the next process, is told apart by all that decides it, and never gets in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

import memlane
from memlane.chip import load
from memlane.emulate.code import jit, store
from memlane.emulate.code.store import Entry, Store, default_folder, digest, present_store
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower import kernel as kernels
from memlane.ptx import parse
from tests.emulate.running import program

SCRIPT = """
import sys
import numpy as np
from memlane.emulate.lower import kernel
from memlane.emulate.runtime import helper
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.running import emulator
from tests.emulate.test_layers import observe

def never(*arguments):
    raise AssertionError("compiled again")

if "stored" in sys.argv:
    kernel.link = kernel.Lowering = kernel.compile_text = helper.compile_optimised = helper.Program = never
target = emulator()
loaded = target.load(parse(open(sys.argv[1]).read(), "stored.ptx"))
every = (Layers(), Layers(counts=True, accesses=True, clock=True), Layers(check=True))
for layers in every[:1] if "plain" in sys.argv else every:
    out = target.zeros(64, "u4")
    seen = observe(loaded["k"][2, 32], out, layers=layers)
    counts = {index: row.tolist() for index, row in seen.counts.items()}
    reports = None if seen.reports is None else list(map(str, seen.reports))
    print(out.numpy().tolist(), counts, seen.thread_instructions, seen.cycles, reports)
"""

TEXT = """
.version 9.0
.target sm_90
.address_size 64
.global .align 4 .u32 added = 1000;
.func (.param .b32 result) twice(.param .b32 given)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [given];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<10>;
    .reg .b64 %rd<10>;
    .reg .pred %p<3>;
    .shared .align 4 .b8 cells[128];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, cells;
    add.u32 %r4, %r4, %r3;
    {
    .param .b32 given;
    .param .b32 result;
    st.param.b32 [given], %r1;
    call.uni (result), twice, (given);
    ld.param.b32 %r5, [result];
    }
    st.shared.u32 [%r4], %r5;
    bar.sync 0;
    ld.shared.u32 %r6, [%r4];
    ld.global.u32 %r7, [added];
    add.u32 %r6, %r6, %r7;
    setp.gt.u32 %p1, %r1, 20;
    @%p1 add.u32 %r6, %r6, 500;
    ld.param.u64 %rd1, [out];
    shl.b32 %r8, %r2, 5;
    add.u32 %r8, %r8, %r1;
    mul.wide.u32 %rd2, %r8, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r6;
    ret;
}
"""
EXPECTED = 2 * [2 * lane + 1000 + (500 if lane > 20 else 0) for lane in range(32)]
ENTRY = Entry({"warp_bytes": 64, "weights": [[0, 3]]}, b"\x00machine\ncode\xff" * 50)
KEY = digest("a key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "code"


def _start(folder: Path, *words: str, text: str = TEXT) -> subprocess.Popen[str]:
    path = folder.parent / "stored.ptx"
    path.write_text(text)
    environment = {**os.environ, "MEMLANE_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT, str(path), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    lines = out.splitlines()
    assert [line.partition("]")[0] + "]" for line in lines] == [str(EXPECTED)] * len(lines)
    assert lines
    return out


# -- across processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_next_process_compiles_nothing_and_sees_the_same(folder: Path) -> None:
    first = _output(_start(folder))
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert _output(_start(folder, "stored")) == first
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written


@pytest.mark.slow
def test_two_processes_at_once_do_not_disturb_each_other_and_damage_is_repaired(folder: Path) -> None:
    first, second = _start(folder, "plain"), _start(folder, "plain")
    assert _output(first) == _output(second)
    files = sorted(folder.iterdir())
    assert files
    assert all(path.suffix == ".code" for path in files)
    whole = {path: path.read_bytes() for path in files}
    for number, path in enumerate(files):
        content = whole[path]
        path.write_bytes(content[: len(content) // 2] if number % 2 else content[:-9] + b"\x00" + content[-8:])
    _output(_start(folder, "plain"))
    assert {path.name: _facts(path) for path in folder.iterdir()} == {path.name: _facts(path) for path in files}
    assert sorted(folder.iterdir()) == files
    _output(_start(folder, "plain", "stored"))


def _facts(path: Path) -> dict[str, object]:
    entry = Store(path.parent).get(path.stem)
    assert entry is not None, path
    return entry.facts


def test_what_is_known_of_a_kernel_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(folder))
    monkeypatch.setattr(store, "_LOADED", store._changes())
    module = parse(TEXT, "k.ptx")
    arguments = module, module.kernels["k"], CompiledLayers(True, True, False), load("h200")
    built, restored = kernels.compile_kernel(*arguments), kernels.compile_kernel(*arguments)
    for one in fields(built):
        if one.name != "code":
            assert getattr(restored, one.name) == getattr(built, one.name), one.name
    assert restored.code is not built.code
    assert built.frame.symbols == ("added",)
    assert built.weights


# -- keys ------------------------------------------------------------------------------------------------------------------------


def test_keys_of_kernels_differ_where_the_code_may() -> None:
    def key(text: str = TEXT, layers: CompiledLayers = CompiledLayers(False, False, False), chip: str = "h200") -> str:  # noqa: B008
        module = parse(text, "k.ptx")
        return kernels._key(module, module.kernels["k"], layers, load(chip))

    counts, clock = CompiledLayers(True, False, False), CompiledLayers(False, False, True)
    plain = key()
    assert key() == plain
    assert key(chip="v100") == plain  # a kernel without layers is the same on every chip
    others = [
        key(TEXT.replace("%r1, 20", "%r1, 21")),
        key(TEXT.replace("%r2, %r1, %r1", "%r2, %r1, 7")),  # in the function that it calls
        key(TEXT.replace("cells[128]", "cells[256]")),
        key(TEXT.replace(".global .align 4", ".global .align 8")),
        key(TEXT.replace(".func (", ".func before() { ret; }\n.func (")),  # functions have addresses, in their order
        key(layers=counts),
        key(layers=counts, chip="v100"),
        key(layers=clock),
        key(layers=CompiledLayers(False, False, False, True)),
        key(layers=CompiledLayers(False, False, True, quick=True)),
    ]
    assert len({plain, *others}) == 1 + len(others)


def test_a_kernel_that_is_not_called_has_no_part_in_the_key() -> None:
    longer = TEXT + ".visible .entry other() { ret; }"
    keys = []
    for text in (longer, longer.replace("{ ret; }", "{ bar.sync 0; ret; }")):
        module = parse(text, "k.ptx")
        keys.append(kernels._key(module, module.kernels["k"], CompiledLayers(False, False, False), load("h200")))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (jit.llvm, "get_host_cpu_name", lambda: "another"),
        (jit.llvm, "get_host_cpu_features", None),
        (jit.llvm, "llvm_version_info", (1, 2, 3)),
        (jit.llvmlite, "__version__", "0.0.1"),
        (jit, "SOURCES", "of other sources"),
    ],
)
def test_the_fingerprint_tells_processors_and_versions_apart(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, value: object
) -> None:
    class Features(dict[str, bool]):
        def flatten(self) -> str:
            return "+none"

    before = jit.fingerprint.__wrapped__()
    assert jit.fingerprint.__wrapped__() == before
    monkeypatch.setattr(place, name, Features if name == "get_host_cpu_features" else value)
    assert jit.fingerprint.__wrapped__() != before


def test_the_digest_covers_all_code_that_the_emulator_imports() -> None:
    command = "import sys, memlane.emulate; print(*(one.__file__ for name, one in sys.modules.items() if name.startswith('memlane.')))"
    paths = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.split()
    package = Path(memlane.__file__).parent
    imported = {Path(path).relative_to(package).parts[0] for path in paths}
    assert {"emulate", "ptx", "chip"} <= imported <= set(store._COVERED)


def test_a_changed_source_file_changes_the_digest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = tmp_path / "memlane" / "emulate" / "code"
    here.mkdir(parents=True)
    monkeypatch.setattr(store, "__file__", str(here / "store.py"))
    assert store.sources_digest() == ""  # code without its source, which cannot be told from other code
    (here.parent / "one.py").write_text("a = 1\n")
    first = store.sources_digest()
    (here.parent / "one.py").write_text("a = 2\n")
    second = store.sources_digest()
    (here.parent / "one.py").rename(here.parent / "two.py")
    assert len({"", first, second, store.sources_digest()}) == 4


def test_nothing_is_kept_once_the_sources_have_changed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(folder))
    monkeypatch.setattr(store, "_LOADED", [(name, changed - 1) for name, changed in store._LOADED])
    store.keep(KEY, ENTRY)
    assert not folder.exists()
    monkeypatch.undo()
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(folder))
    monkeypatch.setattr(store, "_LOADED", store._changes())
    store.keep(KEY, ENTRY)
    assert Store(folder).get(KEY) == ENTRY


def test_a_digest_knows_where_its_parts_end() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("ab", "c", "")}) == 4


# -- one entry -------------------------------------------------------------------------------------------------------------------


def test_what_is_kept_comes_back(folder: Path) -> None:
    Store(folder).put(KEY, ENTRY)
    assert Store(folder).get(KEY) == ENTRY
    assert Store(folder).get(digest("another")) is None


@pytest.mark.parametrize("end", [0, 10, 30, 100, -1])
def test_a_truncated_entry_is_none_and_is_written_again(folder: Path, end: int) -> None:
    kept = Store(folder)
    kept.put(KEY, ENTRY)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:end])
    assert kept.get(KEY) is None
    kept.put(KEY, ENTRY)
    assert kept.get(KEY) == ENTRY


def test_no_byte_of_an_entry_may_change(folder: Path) -> None:
    kept = Store(folder)
    kept.put(KEY, replace(ENTRY, code=b"few"))
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert kept.get(KEY) is None, place


def test_an_entry_under_another_name_is_none(folder: Path) -> None:
    kept = Store(folder)
    kept.put(KEY, ENTRY)
    (path,) = folder.iterdir()
    other = digest("another")
    path.rename(folder / path.name.replace(KEY, other))
    assert kept.get(other) is None


def test_an_entry_of_another_user_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Store(folder)
    kept.put(KEY, ENTRY)
    monkeypatch.setattr(os, "getuid", lambda: 12345, raising=False)
    assert kept.get(KEY) is None


# -- the folder ------------------------------------------------------------------------------------------------------------------


def test_the_bound_is_kept_and_what_was_used_last_stays(folder: Path) -> None:
    kept = Store(folder, most_bytes=20_000)
    keys = [digest(str(number)) for number in range(60)]
    for number, key in enumerate(keys):
        kept.put(key, Entry({}, b"x" * 1000))
        os.utime(folder / f"{key}.code", (time.time() - 10_000 + number,) * 2)
        assert kept.get(keys[0]) is not None  # which notes that it is used
        assert kept.usage()[1] <= 20_000
    assert kept.get(keys[-1]) is not None
    assert kept.get(keys[30]) is None
    assert 8 <= kept.usage()[0] <= 20


def test_what_a_dead_writer_left_goes_and_what_is_being_written_stays(folder: Path) -> None:
    folder.mkdir()
    for name, age in (("tmpdead", 90_000), ("tmpalive", 1)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    Store(folder).put(KEY, ENTRY)
    assert {path.name for path in folder.iterdir()} == {"tmpalive", f"{KEY}.code"}


def test_a_folder_that_cannot_be_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = Store(tmp_path / "file" / "code")
    kept.put(KEY, ENTRY)
    assert kept.get(KEY) is None
    assert kept.usage() == (0, 0)
    assert not kept.is_writable()
    assert Store(tmp_path / "new" / "code").is_writable()


def test_the_environment_names_the_folder_or_does_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = Path(os.environ["MEMLANE_CACHE_DIR"])
    assert present_store() is present_store()
    assert default_folder() == mine
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path))
    found = present_store()
    assert found is not None
    assert found.folder == tmp_path
    monkeypatch.setenv("MEMLANE_CACHE", "0")
    assert present_store() is None


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these have places of their own")
def test_without_a_name_it_is_among_the_caches_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMLANE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/caches")
    assert default_folder() == Path("/somewhere/caches/memlane")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_folder() == Path("/home/someone/.cache/memlane")


def test_a_kernel_that_is_switched_off_leaves_nothing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    module = parse(program("add.u32 %r1, %tid, 91;"), "off.ptx")
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(folder))
    arguments = module, module.kernels["k"], CompiledLayers(False, False, False), load("h200")
    monkeypatch.setenv("MEMLANE_CACHE", "0")
    kernels.compile_kernel(*arguments)
    assert not folder.exists()
    monkeypatch.setattr(store, "_LOADED", store._changes())  # whoever edits memlane while its tests run is not the point here
    monkeypatch.setenv("MEMLANE_CACHE", "1")
    kernels.compile_kernel(*arguments)
    assert folder.exists()

"""Verdicts on disk: they serve the next process, are those of what was asked for, and are worked out again where they are damaged."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from memlane.audit import SiteProof
from memlane.chip import load
from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.emulate.code import store
from memlane.emulate.code.store import Sources
from memlane.instrument import Selection, Traced, TraceOptions
from memlane.launch import Target
from memlane.measure import verdicts
from memlane.measure.instrumented_module import probe
from memlane.ptx import Module, parse
from memlane.record import EXACT, MERGED, PROVED, Exactness, Site
from memlane.targets import target

pytestmark = pytest.mark.slow

TEXT = """
.version 9.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
    .reg .b64 %rd<5>;
    .reg .b32 %r<4>;
    .shared .align 16 .b8 cells[1024];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    shl.b32 %r1, %r1, 3;
    mov.u32 %r2, cells;
    add.u32 %r1, %r1, %r2;
    ld.shared.u32 %r2, [%r1];
    ld.shared.u32 %r3, [%r1+OFFSET];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMLANE_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("MEMLANE_CACHE", raising=False)
    monkeypatch.setattr(verdicts, "_DECIDING", Sources("errors.py"))  # whoever edits memlane while its tests run is not the point here
    return tmp_path / "kept"


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures for which verdicts were worked out."""
    asked: list[str] = []
    real = verdicts._compute_verdicts

    def noting(module: Module, assembled: bytes | None, arch: str) -> Mapping[int, Exactness]:
        asked.append(arch)
        return real(module, assembled, arch)

    monkeypatch.setattr(verdicts, "_compute_verdicts", noting)
    return asked


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The codes on which something was proved."""
    asked: list[bytes] = []
    real = verdicts.prove

    def noting(traced: Traced, code: bytes) -> tuple[SiteProof, ...]:
        asked.append(code)
        return real(traced, code)

    monkeypatch.setattr(verdicts, "prove", noting)
    return asked


def _on_a_gpu(options: tuple[str, ...] = ()) -> Target:
    """A GPU as far as it matters here: it does not observe, and hands out the code that it was given."""
    found = Emulator(load("h200"))
    found.observes = False
    found.assembled = lambda loaded: assemble(loaded.module, options=options).data  # type: ignore[method-assign]
    return found


def _sites(chip: Target, scheme: str = "dependent", sites: frozenset[int] | None = None) -> tuple[Site, ...]:
    """The sites of the traced kernel with what is proved of them, as a process sees it that has not seen the module before."""
    loaded = chip.load(parse(TEXT.replace("OFFSET", "64")))
    return verdicts.sites_with_evidence(probe(loaded, TraceOptions(scheme, Selection(sites=sites))))


def _verdicts(offset: int = 64, chip: str = "emulator:h200") -> Mapping[int, Exactness]:
    """As a process sees it that has not seen the module before."""
    return verdicts.judge_of(target(chip).load(parse(TEXT.replace("OFFSET", str(offset)))))()


def test_verdicts_are_worked_out_once_for_a_text_and_an_architecture(folder: Path, worked_out: list[str]) -> None:
    first = _verdicts()
    assert [one.exactness for one in first.values()] == [EXACT] * 3
    assert _verdicts() == _verdicts(chip="emulator:h100") == first
    assert worked_out == ["sm_90"]
    assert len(list(folder.glob("*.code"))) == 1
    merged = _verdicts(4)
    assert [one.exactness for one in merged.values()] == [MERGED, MERGED, EXACT]
    assert merged[0].merged == (0, 1)
    assert _verdicts(4) == merged
    _verdicts(chip="emulator:rtx4090")
    assert worked_out == ["sm_90", "sm_90", "sm_89"]


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: content[:-9] + b"0" + content[-8:]])
def test_a_damaged_entry_is_worked_out_again(folder: Path, worked_out: list[str], damage: object) -> None:
    assert callable(damage)
    first = _verdicts()
    (path,) = folder.glob("*.code")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    assert _verdicts() == first
    assert len(worked_out) == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("off", [True, False])
def test_nothing_is_kept_where_the_cache_is_off_or_the_sources_were_changed(
    folder: Path, worked_out: list[str], monkeypatch: pytest.MonkeyPatch, off: bool
) -> None:
    if off:
        monkeypatch.setenv("MEMLANE_CACHE", "0")
    else:
        monkeypatch.setattr(Sources, "are_loaded", lambda _: False)
    assert _verdicts() == _verdicts()
    assert not folder.exists()
    assert len(worked_out) == 2


# -- times -----------------------------------------------------------------------------------------------------------------------


def test_times_are_proved_once_for_a_code(folder: Path, proved: list[bytes]) -> None:
    chip = _on_a_gpu()
    first = _sites(chip)
    assert {site.evidence for site in first} == {PROVED}
    assert [site.copies for site in first] == [1, 1, 1]
    assert _sites(chip) == _sites(_on_a_gpu()) == first
    assert len(proved) == 1
    assert len(list(folder.glob("*.code"))) == 1


@pytest.mark.slow
def test_other_code_other_probes_and_other_sites_are_proved_anew(folder: Path, proved: list[bytes]) -> None:
    _sites(_on_a_gpu())
    _sites(_on_a_gpu(("-Xptxas=-O0",)))
    assert len(set(proved)) == len(proved) == 2
    assert _sites(_on_a_gpu(), "simple")[0].completeness != _sites(_on_a_gpu())[0].completeness
    assert len(proved) == 3
    assert [bool(site.scheme) for site in _sites(_on_a_gpu(), sites=frozenset({1}))] == [False, True, False]
    assert len(proved) == 4


_SECOND = """
from tests.measure import test_kept_verdicts as kept
from memlane.emulate.code.store import Sources
from memlane.measure import verdicts
def fails(*_): raise AssertionError("proved again")
verdicts._DECIDING = Sources("errors.py")
verdicts.prove = fails
print([(site.evidence, site.completeness, site.reason, site.copies) for site in kept._sites(kept._on_a_gpu())])
"""


def test_a_second_process_does_not_prove_again(folder: Path, proved: list[bytes]) -> None:
    first = [(site.evidence, site.completeness, site.reason, site.copies) for site in _sites(_on_a_gpu())]
    told = subprocess.run([sys.executable, "-c", _SECOND], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert told.stdout.strip() == str(first)
    assert len(proved) == 1


@pytest.mark.parametrize("foreign", [False, True])
def test_a_proof_that_is_damaged_or_of_another_user_is_worked_out_again(
    folder: Path, proved: list[bytes], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], foreign: bool
) -> None:
    first = _sites(_on_a_gpu())
    (path,) = folder.glob("*.code")
    whole = path.read_bytes()
    if foreign:
        monkeypatch.setattr(store, "_is_ours", lambda _: False)
    else:
        path.write_bytes(whole.replace(b"complete", b"issue-on", 1))
        assert path.read_bytes() != whole
    assert _sites(_on_a_gpu()) == first
    assert len(proved) == 2
    assert path.read_bytes() == whole
    assert capfd.readouterr() == ("", "")


def test_what_decides_verdicts_covers_what_works_them_out() -> None:
    known = {one.partition("/")[0].removesuffix(".py") for one in verdicts._DECIDING._covered}
    root = Path(verdicts.__file__).parents[1]
    imported = {
        found[1]
        for package in ("audit", "compile", "instrument", "ptx", "record", "sass")
        for path in (root / package).rglob("*.py")
        for found in re.finditer(r"^from memlane\.(\w+)", path.read_text(), re.MULTILINE)
    }
    assert {"sass", "walks"} <= imported <= known

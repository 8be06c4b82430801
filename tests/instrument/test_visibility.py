"""Stores that are timed until others see them: what stands behind the store, what is said of it, and what the proof sees through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from memlane import chip
from memlane.audit import prove
from memlane.emulate import Emulator
from memlane.errors import MemlaneError
from memlane.instrument import Traced, TraceOptions
from memlane.instrument import trace as instrument
from memlane.launch import LoadedModule, Target
from memlane.measure import trace
from memlane.ptx import Module, parse, print_module
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE, ISSUE_ONLY, Trace, load, summarise
from memlane.report import render_trace, to_text
from memlane.sass import Instruction, disassemble
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of, mutated, nop_of, without_wait

pytestmark = pytest.mark.slow

BODY = """
    .local .align 4 .b32 own;
    .reg .pred %p<3>; .reg .b16 %h<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x; cvt.u16.u32 %h1, %r1;
    mul.wide.u32 %rd2, %r1, 64; add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r2, words; mad.lo.u32 %r3, %r1, 4, %r2;
    st.global.v4.u32 [%rd3+16], {%r1, %r1, %r3, %r2};
    st.global.u8 [%rd3+1], %h1;
    st.global.b64 [%rd3+40], %rd2;
    st.shared.u32 [%r3], %r1;
    st.u32 [%rd3+4], %r1;
    red.global.add.u32 [%rd3+8], %r3;
    red.shared.add.u32 [%r3], 3;
    ld.shared.u32 %r4, [%r3];
    st.local.u32 [own], %r4; ld.local.u32 %r5, [own];
    setp.lt.u32 %p1, %r1, 9;
    @%p1 st.global.u32 [%rd3+12], %r5;
    ret;
"""
"""Stores of several widths and spaces, reductions, a guard."""


FEW = """
    .reg .b32 %r<5>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 64; add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r2, words; mad.lo.u32 %r3, %r1, 4, %r2;
    st.global.u32 [%rd3], %r3;
    st.shared.u32 [%r3], %r1;
    red.global.add.u32 [%rd3+8], %r3;
    ld.shared.u32 %r4, [%r3];
    st.local.u32 [own], %r4;
    ret;
"""


@cache
def module() -> Module:
    return kernel(BODY, ".param .u64 out", ".shared .align 16 .b8 words[128];")


@pytest.fixture(scope="module")
def target() -> Target:
    return Emulator(chip.load("h200"))


@pytest.fixture(scope="module")
def loaded(target: Target) -> LoadedModule:
    return target.load(kernel(".local .align 4 .b32 own;" + FEW, ".param .u64 out", ".shared .align 16 .b8 words[128];"))


def ends(stores: str, label: str) -> list[str]:
    """The label of each site: global ones get `label`."""
    reduction = label if stores == "device" else ISSUE_ONLY
    return [label] * 3 + [BLOCK_VISIBLE, label, reduction, BLOCK_VISIBLE, COMPLETE, ISSUE_ONLY, COMPLETE, label]


LABELS = {"block": BLOCK_VISIBLE, "device": DEVICE_VISIBLE}


@cache
def traced(stores: str, scheme: str = "dependent") -> Traced:
    return instrument(module(), TraceOptions(scheme, stores=stores))


@cache
def assembled(stores: str, scheme: str = "dependent") -> bytes:
    return cubin_of(traced(stores, scheme).module)


# -- on the emulator ------------------------------------------------------------------------------------------------------------------


def recorded(loaded: LoadedModule, stores: str) -> tuple[Trace, list[int]]:
    out = loaded.target.zeros(32 * 16, np.uint32)
    return trace(loaded["k"][1, 32], out, stores=stores), out.numpy().tolist()


@pytest.mark.slow
def test_times_grow_with_those_who_see_it_and_the_outcome_stays(loaded: LoadedModule) -> None:
    out = loaded.target.zeros(32 * 16, np.uint32)
    loaded["k"][1, 32](out)
    durations = {}
    for stores in ("issued", "block", "device"):
        made, found = recorded(loaded, stores)
        assert found == out.numpy().tolist()
        rows = {row["site"]: row["end"] - row["start"] for row in made.table.to_pylist()}
        durations[stores] = [rows[number] for number in range(3)]
        labels = [site.completeness for site in made.sites]
        assert labels[3:] == [COMPLETE, ISSUE_ONLY]
        assert (
            labels[:3]
            == {
                "issued": [ISSUE_ONLY] * 3,
                "block": [BLOCK_VISIBLE, BLOCK_VISIBLE, ISSUE_ONLY],
                "device": [DEVICE_VISIBLE, BLOCK_VISIBLE, DEVICE_VISIBLE],
            }[stores]
        )
    issued, block, device = (durations[stores] for stores in ("issued", "block", "device"))
    assert issued[0] < block[0] < device[0]
    assert issued[1] < block[1] == device[1]
    assert issued[2] == block[2] < device[2]
    assert device[0] > chip.load("h200").latency.l2, "the read-back goes past L1"


def test_reports_and_files_tell_them_apart(loaded: LoadedModule, tmp_path: Path) -> None:
    made, _ = recorded(loaded, "device")
    by_op = {line.op: line for line in summarise(made)}
    assert [(by_op[op].complete, by_op[op].visible, by_op[op].issue_only) for op in ("ld.shared.u32", "st.global.u32", "st.local.u32")] == [
        (1, 0, 0), (0, 1, 0), (0, 0, 1),
    ]  # fmt: skip
    text = " ".join(to_text(render_trace(made), 200).split())
    assert "Timed until every thread of the device sees the stored value, as confirmed by the load or fence listed: k.ptx:" in text
    assert "visible" in text
    path = tmp_path / "t.parquet"
    made.save(path)
    assert set(load(path).table["completeness"].to_pylist()) == {COMPLETE, ISSUE_ONLY, BLOCK_VISIBLE, DEVICE_VISIBLE}


# -- on the assembled code -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["dependent", "consume"])
@pytest.mark.parametrize("stores", ["block", "device"])
def test_what_is_said_is_proved(stores: str, scheme: str) -> None:
    proofs = prove(traced(stores, scheme), assembled(stores, scheme))
    found = [proof.completeness for proof in proofs if traced(stores).sites[proof.site].space != "local"]  # kept in a register
    assert found == [label for label, site in zip(ends(stores, LABELS[stores]), traced(stores).sites, strict=True) if site.space != "local"]
    assert not any(proof.also_waits for proof in proofs), "the read-back is part of what is timed"


def reasons(found: Traced, data: bytes) -> list[str]:
    return [proof.reason for proof in prove(found, data) if found.sites[proof.site].op == "st.global.v4.u32"]


def test_a_claim_without_anything_behind_the_store_is_refused() -> None:
    found = traced("issued")
    sites = tuple(replace(site, completeness=DEVICE_VISIBLE, reason="") for site in found.sites)
    (reason,) = reasons(replace(found, sites=sites), assembled("issued"))
    assert "can execute without the load or fence that confirms the store" in reason


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ld.relaxed.gpu.global.u32 %ml_back, [%rd3+16]", "ld.relaxed.gpu.global.u32 %ml_back, [%rd3+20]", "does not read the address"),
        (
            "ld.relaxed.gpu.global.u32 %ml_back, [%rd3+16]",
            "ld.relaxed.cta.global.u32 %ml_back, [%rd3+16]",
            "does not read from a level that the whole device",
        ),
    ],
)
def test_a_load_of_another_address_or_of_a_narrower_scope_tells_nothing(old: str, new: str, message: str) -> None:
    text = print_module(traced("device").module)
    assert text.count(old) == 1
    changed = replace(traced("device"), module=parse(text.replace(old, new), "k.ptx"))
    (reason,) = reasons(changed, cubin_of(changed.module))
    assert message in reason


def is_read_back(one: Instruction) -> bool:
    return one.opcode == "LDG" and "GPU" in one.modifiers


def is_fence(one: Instruction) -> bool:
    return one.opcode == "MEMBAR"


@pytest.mark.parametrize(("stores", "witness"), [("device", is_read_back), ("block", is_fence)])
def test_code_without_the_witness_or_without_the_wait_for_it_is_caught(stores: str, witness: Callable[[Instruction], bool]) -> None:
    (function,) = (one for one in disassemble(assembled(stores)).functions.values() if one.name == "k")
    code = function.instructions
    first = next(index for index, one in enumerate(code) if witness(one))
    gone = mutated(assembled(stores), function, {first: nop_of(function)})
    (reason,) = reasons(traced(stores), gone)
    assert "can execute without the load or fence that confirms the store" in reason or "does not read the address" in reason
    control = code[first].control
    board = control.write_scoreboard if stores == "device" else control.read_scoreboard
    assert board is not None
    waiting = next(index for index in range(first + 1, len(code)) if board in code[index].control.waits)
    deaf = mutated(assembled(stores), function, {waiting: without_wait(code[waiting], board)})
    (reason,) = reasons(traced(stores), deaf)
    assert "wait for" in reason or "control words are wrong" in reason


# -- refusals ------------------------------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(MemlaneError, match="stores cannot be timed until 'system'; choose from issued, block, device"):
        TraceOptions(stores="system")
    with pytest.raises(
        MemlaneError, match="the scheme simple does not wait for anything, so it cannot time stores until device; choose from dependent, "
    ):
        TraceOptions("simple", stores="device")
    old = kernel("ret;", head=".version 8.0\n.target sm_61\n.address_size 64")
    with pytest.raises(
        MemlaneError, match=r"timing stores until they are visible needs loads of sm_70, but k.ptx has .target sm_61; compile it for sm_70"
    ):
        instrument(old, TraceOptions(stores="block"))
    assert not TraceOptions().makes_the_same(TraceOptions(stores="block"))

"""The passes of a trace leave a valid module each, and the printer says where the parts of the probes stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memlane.instrument import TraceOptions, site_table, trace
from memlane.instrument.printing import print_draft
from memlane.instrument.tracing import passes, tasks, traced_module
from memlane.ptx import Immediate, Instruction, Module, Register, Special, Vector, parse, print_module, verify
from memlane.record.site import TIMED_KINDS
from tests.instrument.kernels import EXAMPLES, example, instructions, is_access, kernel

WAYS = {
    "one by one": TraceOptions.of("dependent", executions="1-3"),
    "runs": TraceOptions(tagged=True),
    "stages": TraceOptions.of("simple", staging="shared", every=3),
    "consumers": TraceOptions.of("exposed", blocks="0-3", warps="0,2"),
    "witnesses": TraceOptions.of("consume", stores="device"),
    "fences": TraceOptions.of("exposed", stores="block", executions="0-1", every=2, whole_blocks=True),
}
PASSES = {
    "one by one": ["probes"],
    "runs": ["probes", "batch_reservations"],
    "stages": ["probes", "batch_reservations", "dispatch_by_warp"],
    "consumers": ["probes", "batch_reservations", "dispatch_by_warp"],
    "witnesses": ["probes", "batch_reservations"],
    "fences": ["probes", "dispatch_by_warp"],
}

BARRIER = """
.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>; .shared .align 8 .b64 bar;
mov.u32 %r1, bar;
$again: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;
@!%p1 bra $again;
ld.param.u64 %rd1, [p];
setp.ne.u32 %p2, %r2, 0;
@%p2 ld.global.u32 %r3, [%rd1];
st.shared.u32 [%r1+8], %r3;
{ ld.global.u32 %r2, [%rd1+4]; st.global.u32 [%rd1+8], %r2; }
@%p2 exit;
ret;
"""
"""A wait that is asked again and again, an access under a guard, a block, and two ways out."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_pass_leaves_a_valid_module(path: Path, way: str) -> None:
    check_passes(print_module(example(path)), way)


@pytest.mark.parametrize("way", WAYS)
def test_every_pass_leaves_a_valid_module_of_waits_guards_and_blocks(way: str) -> None:
    check_passes(print_module(kernel(BARRIER)), way)


def check_passes(text: str, way: str) -> None:
    table = site_table(parse(text, "k.ptx"))
    for task in tasks(table, WAYS[way]):
        names = []
        for name, draft in passes(task):
            names.append(name)
            made = traced_module(table.module, {task.kernel.name: print_draft(draft).function}, WAYS[way])
            verify(made)
        assert names == PASSES[way]


# -- where the parts stand: read off the text again --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_parts_stand_where_the_printer_says(path: Path, way: str) -> None:
    check_lines(example(path), WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_parts_of_waits_and_under_guards_stand_where_the_printer_says(way: str) -> None:
    check_lines(kernel(BARRIER), WAYS[way])


def check_lines(module: Module, options: TraceOptions) -> None:
    traced, original = trace(module, options), site_table(module).module
    printed_module = parse(print_module(traced.module), "k.ptx")
    assert sum(map(len, traced.probes.values())) == sum(site.kind in TIMED_KINDS for site in traced.sites) > 0
    for name, found in traced.probes.items():
        code, originals, stamped = instructions(printed_module, name), instructions(original, name), set[int]()
        for number, lines in found.items():
            site = traced.sites[number]
            assert is_access(code[lines.access], replace(originals[site.instruction], guard=None))
            assert originals[site.instruction] == code[traced.plain[name][number]] if traced.plain else True
            ways = [(one.wait, one.end, one.times, one.labels) for one in lines.window_ends] or [
                (None, lines.end, lines.times, lines.labels)
            ]
            for wait, end, times, labels in ways:
                assert lines.start < lines.access
                assert [clock(code[at]) for at in (lines.start, end)] == ["%ml_start", "%ml_end"]
                assert wait is None or (clock(code[wait]) == "%ml_wait" and wait < end < times)
                assert recorded_site(code, times, labels) == number
                stamped |= {lines.start, end} | ({wait} if wait is not None else set())
            assert (lines.witness is not None) == site.completeness.endswith("visible")
            if lines.witness is not None:
                assert lines.access < lines.witness < lines.end
                assert code[lines.witness].name == "membar.cta" or code[lines.witness].has("relaxed")
        # No clock read of a window is left out: the others are those of the entry and of the exits.
        assert stamped == {at for at, one in enumerate(code) if clock(one) in ("%ml_start", "%ml_wait", "%ml_end")}


def clock(one: Instruction) -> str:
    """The register that an instruction reads the clock into."""
    target, *sources = one.operands or (None,)
    return target.name if sources == [Special("%clock64")] and isinstance(target, Register) else ""


def recorded_site(code: list[Instruction], times: int, labels: int) -> int:
    """The number of a site that a record has: beside a part of the start in its one store, plus one in the second of two."""
    vector = code[labels].operands[-1]
    assert isinstance(vector, Vector)
    assert code[times].has("cs")
    assert code[labels].opcode == "st"
    if times != labels:
        assert isinstance(vector.items[0], Immediate)
        return vector.items[0].value - 1
    packing = next(one for one in reversed(code[:times]) if one.opcode == "prmt" and one.operands[0] == vector.items[1])
    assert isinstance(packing.operands[2], Immediate)
    return packing.operands[2].value

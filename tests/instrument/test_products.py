"""Products of a warpgroup with probes around them: which sites there are, what their times mean, and that nothing else changes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from memlane.audit import exactness, prove
from memlane.audit.site_changes import access_changes
from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.instrument import Selection, TraceOptions, site_table, trace, uncounted
from memlane.instrument.consumers import TAKEN
from memlane.launch import Launch, observing, suspend_observers
from memlane.measure import Counter, count
from memlane.measure import trace as trace_call
from memlane.measure.device_counters import DeviceCounters
from memlane.ptx import Module, parse
from memlane.record import COMPLETE, Counts
from memlane.report import render_trace, to_text
from memlane.sass import disassemble
from tests.emulate.test_wgmma import CASES
from tests.emulate.warpgroup import TILE_BYTES, multiplied
from tests.instrument.running import CHIP
from tests.sass.code import inserted, instruction, mutated, nop_of

CASE = CASES["tf32"]
"""The assembler makes one of equal products of up to 16 columns, which these are not."""
PIPELINE = CASE.text().replace(
    f"""{CASE.line}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;""",
    f"""{CASE.line}
    ld.global.b32 %n, [%factors+8];
    {CASE.line.replace("%p,", "1,")}
    wgmma.commit_group.sync.aligned;
    ld.global.b32 %w0, [%factors+12];
    {CASE.line.replace("%p,", "1,")}
    {CASE.line.replace("%p,", "1,")}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 1;
    st.global.b32 [%factors+8], %n;
    wgmma.wait_group.sync.aligned 0;
    st.global.b32 [%factors+12], %w0;""",
)
"""Two groups of two products, with accesses while they are under way."""
SCHEMES = ("dependent", "paper", "exposed")


def test_waits_are_timed_and_products_are_named_with_the_reason() -> None:
    module = parse(PIPELINE, "wgmma.ptx")
    table = site_table(module)
    assert [(site.op, site.kind, site.nbytes, site.is_counted) for site in table.sites if site.op.startswith("wgmma")] == [
        *[("wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32", "product", 6, True)] * 4,
        *[("wgmma.wait_group.sync.aligned", "wait", 0, False)] * 2,
    ]
    assert not uncounted(table)
    assert {(one.op, one.reason) for one in trace(module).skipped} == {
        (
            "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32",
            "a warpgroup product (wgmma) is counted but not timed: it completes at wgmma.wait_group, which is timed as an access of its "
            "own",
        )
    }


SEVERAL = ("plain", "tf32", "32 by lines, and 64")
"""Of A in shared memory and in registers."""


def _several() -> Module:
    """A block of 128 threads that multiplies once by each of `SEVERAL`, in memory that nobody has written."""
    cases = [CASES[name] for name in SEVERAL]
    products = "\nwgmma.fence.sync.aligned;\n".join(re.sub(r"%p\b", "%yes", case.line) for case in cases)
    return parse(
        f""".version 8.4\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .b32 %d<20>, %a<4>; .reg .b64 %left, %right, %out; .reg .pred %yes;
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    ld.param.u64 %out, [out];
    mov.b64 %left, {0x100000:#x}; mov.b64 %right, {0x200000:#x}; setp.eq.u64 %yes, %out, %out;
    {" ".join(f"mov.b32 %d{number}, 0;" for number in range(20))} {" ".join(f"mov.b32 %a{number}, 0;" for number in range(4))}
    wgmma.fence.sync.aligned;
    {products}
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    {" ".join(f"st.global.b32 [%out+{4 * number}], %d{number};" for number in range(20))}
    ret;
}}
""",
        "several.ptx",
    )


def test_products_read_each_byte_of_their_operands_once() -> None:
    """On both roads: a wavefront is a row of 128 bytes. The bytes are those that the canonical layouts name."""
    expected = []
    for case in (CASES[name] for name in SEVERAL):
        element = 32 // case.depth
        operands = ((case.left, 64), (case.right, case.columns))
        nbytes = sum(
            np.unique(layout.places(lines, case.depth, element)).size * element for layout, lines in operands if layout is not None
        )
        expected.append((4, 128, nbytes, nbytes // 128, 0))
    for observer in (Counter(), _Counting()):
        target = Emulator(CHIP)
        with observing(observer):
            target.load(_several())["k"][1, 128](target.zeros(20, np.uint32))
        (counts,) = observer.finish()
        found = [one for one in counts.sites if one.site.kind == "product"]
        assert [(one.requests, one.lanes, one.bytes, one.wavefronts, one.conflicts) for one in found] == expected


class _Counting:
    """An observer that sends launches out with instructions that count, as on a GPU."""

    def launching(self, launch: Launch) -> Launch:
        with suspend_observers():
            self.tally = DeviceCounters(launch.kernel.loaded)
            return self.tally.counting_launch(0, launch)

    def finish(self) -> list[Counts]:
        return [counts for _, counts in self.tally.collect()]


def test_assembled_products_read_the_same() -> None:
    """Of A in registers and by a descriptor: the assembled code says which. Its lines are those of other instructions."""
    for module, bytes_a_lane in ((_several(), (18, 6, 26)), (parse(PIPELINE, "wgmma.ptx"), (6, 6, 6, 6))):
        sites = {site.id: site for site in site_table(module).sites if site.kind == "product"}
        assert tuple(site.nbytes for site in sites.values()) == bytes_a_lane
        found = [one for one in exactness(module, assemble(module, arch="sm_90a").data) if one.site in sites]
        assert [(one.verdict, one.assembled) for one in found] == [("exact", f"1 x {nbytes} B shared product") for nbytes in bytes_a_lane]


def test_products_that_the_assembler_made_one_of_are_hints() -> None:
    """Equal ones of up to 16 columns."""
    text = CASES["plain"].text().replace(CASES["plain"].line, 2 * f"{CASES['plain'].line}\n")
    module = parse(text, "wgmma.ptx")
    sites = [site.id for site in site_table(module).sites if site.kind == "product"]
    found = [one for one in exactness(module, assemble(module, arch="sm_90a").data) if one.site in sites]
    reason = "the assembled code has different products after its fence, or has them in a different order"
    assert [(one.verdict, one.reason) for one in found] == [("hint", reason)] * 2


def test_products_are_told_by_what_stands_between_their_fences() -> None:
    """An arrival at a barrier is none; a fence is one, and another product behind it makes all of them unknown."""
    module = parse(PIPELINE, "wgmma.ptx")
    sites = {site.id for site in site_table(module).sites if site.kind == "product"}
    program = disassemble(assemble(module, arch="sm_90a").data)
    ((name, function),) = program.functions.items()
    products = [at for at, one in enumerate(function.instructions) if one.opcode.endswith("GMMA") and "!UPT" not in one.text]
    assert len(products) == 4
    line = function.instructions[products[1]].ptx_line
    arrival, fence = (replace(instruction(f"{text}.ARRIVE"), ptx_line=line) for text in ("SYNCS", "WARPGROUP"))
    again = function.instructions[products[1]]
    verdicts = []
    for added in (arrival, fence, again):
        changed = inserted(program, name, products[1], added)
        verdicts.append({one.verdict for one in exactness(module, changed) if one.site in sites})
    assert verdicts == [{"exact"}, {"hint"}, {"hint"}]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_probes_leave_products_under_way_and_waits_are_proved(scheme: str) -> None:
    """The assembler would say so if it had to let each product wait for the one before, because of what stands between them."""
    traced = trace(parse(PIPELINE, "wgmma.ptx"), TraceOptions(scheme=scheme))
    plain, cubin = (assemble(module, arch="sm_90a") for module in (parse(PIPELINE, "wgmma.ptx"), traced.module))
    assert "wgmma" not in plain.log + cubin.log
    assert {traced.sites[one.site].completeness for one in prove(traced, cubin.data) if traced.sites[one.site].kind == "wait"} == {COMPLETE}
    assert not [
        one for one in access_changes(parse(PIPELINE, "wgmma.ptx"), plain.data, traced, cubin.data) if traced.sites[one.site].kind == "wait"
    ]


def test_loads_that_products_take_are_waited_for_at_once() -> None:
    """A window that closed in front of the product would touch its registers, in a loop while the product before is under way."""
    loop = PIPELINE.replace("wgmma.fence", "AGAIN: wgmma.fence", 1).replace(
        "wgmma.wait_group.sync.aligned 0;",
        "add.u32 %adds, %adds, 1; setp.lt.u32 %p, %adds, 9; @%p bra AGAIN;\n wgmma.wait_group.sync.aligned 0;",
    )
    traced = trace(parse(loop, "wgmma.ptx"), TraceOptions(scheme="exposed"))
    plain, cubin = (assemble(module, arch="sm_90a") for module in (parse(loop, "wgmma.ptx"), traced.module))
    assert "wgmma" not in cubin.log
    assert not [
        one for one in access_changes(parse(loop, "wgmma.ptx"), plain.data, traced, cubin.data) if traced.sites[one.site].kind == "wait"
    ]
    taken = [site for site in traced.sites if site.fallback == TAKEN]
    assert [(site.op, site.completeness) for site in taken] == [("ld.global.b32", COMPLETE)] * (12 + 4)


def test_products_that_wait_for_each_other_are_told() -> None:
    """Without optimisation the assembler puts a wait behind each product."""
    module = parse(PIPELINE, "wgmma.ptx")
    traced = trace(module)
    plain, slow = assemble(module, arch="sm_90a"), assemble(traced.module, arch="sm_90a", options=("-Xptxas=-O0",))
    assert "wgmma.mma_async instructions are serialized" in slow.log
    told = {str(one) for one in access_changes(module, plain.data, traced, slow.data) if traced.sites[one.site].kind == "wait"}
    message = "a wait after 0.0 % of the products in the original, a wait after 100 % of the products traced"
    assert told == {message}


def test_waits_that_do_not_wait_are_caught() -> None:
    traced = trace(parse(PIPELINE, "wgmma.ptx"))
    cubin = assemble(traced.module, arch="sm_90a").data
    (code,) = disassemble(cubin).functions.values()
    waits = [(at, one) for at, one in enumerate(code.instructions) if one.opcode == "WARPGROUP" and "DEPBAR" in one.modifiers]
    assert [one.operands[-1].value for _, one in waits] == [1, 0]
    (_, first), (last, _) = waits
    for instead, message in (
        (nop_of(code), "no such access"),
        (first.encoding, "leaves 1 of the groups of products pending, but the kernel leaves 0"),
    ):
        found = prove(traced, mutated(cubin, code, {last: instead}))
        assert any(message in one.reason for one in found if traced.sites[one.site].op.startswith("wgmma"))


def test_traced_and_counted_products_are_the_same() -> None:
    rng = np.random.default_rng(8)
    a, b, c = (rng.integers(-4, 5, shape) / 2 for shape in ((64, 8), (8, 24), (64, 24)))
    made = []
    for measured in (partial(trace_call, selection=Selection(kinds={"wait"})), count):
        found = multiplied(Emulator(CHIP), CASE, a, b, c, PIPELINE, lambda *given, how=measured: made.append(how(*given)))
        assert np.array_equal(found, c - 4 * (a @ b))
    traced, counts = made
    text = " ".join(to_text(render_trace(traced)).split())
    assert text.count("1 x wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32 in k (a warpgroup product (wgmma) is counted but not") == 4
    waits = [number for number, site in enumerate(traced.sites) if site.kind == "wait"]
    rows = traced.table["site"].to_numpy()
    assert [int((rows == number).sum()) for number in waits] == [4, 4], "one for each warp"
    assert [(one.wavefronts, one.conflicts) for one in counts.sites if one.site.op.startswith("wgmma.mma")] == [(6, 0)] * 4
    assert not counts.skipped

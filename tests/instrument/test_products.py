"""Products of a warpgroup with probes around them: which sites there are, what their times mean, and that nothing else changes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.instrument import Selection, TraceOptions, prove, site_table, trace
from memlane.instrument.altered_accesses import changes
from memlane.instrument.consumers import TAKEN
from memlane.measure import count
from memlane.measure import trace as trace_call
from memlane.ptx import parse
from memlane.record import COMPLETE
from memlane.report import render_trace, to_text
from memlane.sass import disassemble
from tests.emulate.test_wgmma import CASES
from tests.emulate.warpgroup import multiplied
from tests.instrument.running import CHIP
from tests.sass.code import mutated, nop_of

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


def test_waits_are_sites_and_products_are_named_with_the_reason() -> None:
    table = site_table(parse(PIPELINE, "wgmma.ptx"))
    waits = [site for site in table.sites if site.kind == "wait"]
    assert [(site.op, site.space, site.nbytes, site.is_counted) for site in waits] == [
        ("wgmma.wait_group.sync.aligned", "shared", 0, False)
    ] * 2
    assert [one.op for one in table.skipped] == ["wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32"] * 4
    assert {one.reason for one in table.skipped} == {
        "tensor cores read its operands in shared memory, in wavefronts that nobody publishes; it completes at its wait, wgmma.wait_group, "
        "which is an access of its own"
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_probes_leave_products_under_way_and_waits_are_proved(scheme: str) -> None:
    """The assembler would say so if it had to let each product wait for the one before, because of what stands between them."""
    traced = trace(parse(PIPELINE, "wgmma.ptx"), TraceOptions(scheme=scheme))
    plain, cubin = (assemble(module, arch="sm_90a") for module in (parse(PIPELINE, "wgmma.ptx"), traced.module))
    assert "wgmma" not in plain.log + cubin.log
    assert {traced.sites[one.site].completeness for one in prove(traced, cubin.data) if traced.sites[one.site].kind == "wait"} == {COMPLETE}
    assert not [
        one for one in changes(parse(PIPELINE, "wgmma.ptx"), plain.data, traced, cubin.data) if traced.sites[one.site].kind == "wait"
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
    assert not [one for one in changes(parse(loop, "wgmma.ptx"), plain.data, traced, cubin.data) if traced.sites[one.site].kind == "wait"]
    taken = [site for site in traced.sites if site.fallback == TAKEN]
    assert [(site.op, site.completeness) for site in taken] == [("ld.global.b32", COMPLETE)] * (12 + 4)


def test_products_that_wait_for_each_other_are_told() -> None:
    """Without optimisation the assembler puts a wait behind each product."""
    module = parse(PIPELINE, "wgmma.ptx")
    traced = trace(module)
    plain, slow = assemble(module, arch="sm_90a"), assemble(traced.module, arch="sm_90a", options=("-Xptxas=-O0",))
    assert "wgmma.mma_async instructions are serialized" in slow.log
    told = {str(one) for one in changes(module, plain.data, traced, slow.data) if traced.sites[one.site].kind == "wait"}
    message = (
        "0% of the products are waited for before the next in the original, 100% of the products are waited for before the next traced"
    )
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
        (first.encoding, "lets 1 of the groups of products go on, where the kernel lets 0"),
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
    assert text.count("1 x wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32 in k (tensor cores read its operands") == 4
    waits = [number for number, site in enumerate(traced.sites) if site.kind == "wait"]
    rows = traced.table["site"].to_numpy()
    assert [int((rows == number).sum()) for number in waits] == [4, 4], "one for each warp"
    assert not any(site.site.op.startswith("wgmma") for site in counts.sites)

"""Probes and counting code leave the carry flag as it is, and analyses follow values through it."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.instrument import SCHEMES, buffer_layout
from memlane.instrument.repeats import repeating
from memlane.ptx import parse
from memlane.ptx.origins import origins_of
from tests.emulate.carries import FIELDS, answers, inputs, module
from tests.instrument.running import Run


@pytest.fixture(scope="module")
def kernel() -> Run:
    return Run(module(), "k", 1, 64, (np.zeros((64, 8), np.uint32), inputs()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_probes_between_its_writer_and_its_reader_keep_the_carry(kernel: Run, scheme: str) -> None:
    result, decoded, traced = kernel.traced(scheme, buffer_layout(2, 64))
    assert {site.op for site in traced.sites} >= {"st.shared.u32", "ld.shared.u32"}
    assert len(decoded.records)
    assert np.array_equal(result[:, : len(FIELDS)], answers())


def test_counting_code_between_its_writer_and_its_reader_keeps_the_carry(kernel: Run) -> None:
    result, sites, branches = kernel.counted()
    assert len(sites) >= 10
    assert len(branches) >= 4
    assert np.array_equal(result[:, : len(FIELDS)], answers())


HALVES = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 low, .param .u32 high)
{
    .reg .pred %p; .reg .b32 %t, %n, %v, %low, %high, %sum; .reg .b64 %at, %out;
    ld.param.u64 %out, [out]; ld.param.u32 %low, [low]; ld.param.u32 %high, [high]; mov.u32 %t, %tid.x; mov.u32 %n, 0;
AGAIN:
    add.cc.u32 %sum, %low, %n;
    addc.u32 %high, 4, 0;
    mov.b64 %at, {%t, %high};
    ld.global.u32 %v, [%at];
    add.u32 %n, %n, 4; setp.lt.u32 %p, %n, 64; @%p bra AGAIN;
    st.global.u32 [%out], %v;
    ret;
}
"""
"""The address depends on the loop, and on a parameter, by the carry alone."""


def test_an_address_comes_also_from_what_its_carry_comes_from() -> None:
    function = parse(HALVES).functions["k"]
    body = list(function.body.instructions() if function.body else [])
    load = next(index for index, one in enumerate(body) if one.name == "ld.global.u32")
    assert 1 in origins_of(function)[load].parameters


@pytest.mark.parametrize(("added", "repeats"), [("%low", True), ("%n", False)])
def test_an_address_that_changes_by_the_carry_does_not_repeat(added: str, repeats: bool) -> None:
    function = parse(HALVES.replace("%low, %n;", f"%low, {added};")).functions["k"]
    body = list(function.body.instructions() if function.body else [])
    assert any(body[index].name == "ld.global.u32" for index in repeating(function)) == repeats

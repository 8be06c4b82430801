"""What the consumers of loads wait on a device: kernels whose overlap is known by construction, with bounds that today's chips keep."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.driver import Device
from memlane.instrument import Selection
from memlane.measure import trace
from memlane.record import COMPLETE, PROVED
from tests.instrument.kernels import kernel

pytestmark = pytest.mark.gpu

WORDS = 1 << 22
FAR = 300_000
"""Bytes from one load to the next: other lines, other pages."""
SOONEST = 25
"""Cycles that no load takes less than; one from L1 takes more."""
NOTHING = 60
"""More than the wait for a value that is there, and than what stands between a load and its consumer in the next line."""

# An address straight from a parameter is fetched again behind the first clock read, so 0 is added that nobody knows.
HEAD = """
    .reg .u32 %i, %n, %s, %v<9>; .reg .u64 %a, %b, %o, %out; .reg .pred %q;
    ld.param.u64 %out, [out];
    ld.param.u64 %a, [from];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %out, %out, %o;
    mov.u32 %n, %tid.y;
    mul.wide.u32 %o, %n, 4;
    add.u64 %a, %a, %o;
    mov.u32 %s, 0;
    mov.u32 %n, 0;
"""
TAIL = "st.global.u32 [%out], %s; ret;"


def loads(gpu: Device, body: str, memory: npt.NDArray[Any], scheme: str = "exposed") -> dict[str, npt.NDArray[Any]]:
    """The rows of the loads of one warp, with their `cycles`; all of them proved on the code that ran."""
    module = gpu.load(kernel(HEAD + body + TAIL, ".param .u64 out, .param .u64 from"))
    out, values = gpu.zeros(32, "u4"), gpu.array(memory)
    recorded = trace(module["k"][1, 32], out, values, scheme=scheme, selection=Selection(kinds={"load"}))
    assert recorded.lost == 0
    assert {(site.completeness, site.evidence) for site in recorded.sites} == {(COMPLETE, PROVED)}
    names = ("site", "start", "end", "exposed") if scheme == "exposed" else ("site", "start", "end")
    rows = {name: recorded.table[name].to_numpy().astype(np.int64) for name in names}
    return {**rows, "cycles": rows["end"] - rows["start"]}


def test_in_a_chain_everything_is_exposed(gpu: Device) -> None:
    """Each load brings the offset of the next one."""
    memory = np.zeros(WORDS, np.uint32)
    for step, following in pairwise(range(65)):
        memory[step * FAR // 4 % WORDS] = following * FAR % (4 * WORDS)
    body = """
        mov.u64 %b, %a;
    again:
        ld.global.u32 %v1, [%b]; cvt.u64.u32 %o, %v1; add.u64 %b, %a, %o; add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 50; @%q bra again;
        add.u32 %s, %s, %v1;"""
    rows = loads(gpu, body, memory)
    assert len(rows["cycles"]) == 50
    assert (rows["cycles"] > SOONEST).all()
    assert np.median(rows["cycles"]) > 200, "beyond L1"
    assert (rows["cycles"] - rows["exposed"] < NOTHING).all()
    assert (rows["exposed"] <= rows["cycles"]).all()


def test_independent_loads_overlap(gpu: Device) -> None:
    """Eight loads that are all under way when the first consumer comes: together they are exposed little longer than the slowest of them.
    Which that is depends on what L2 still holds of the upload."""
    body = "".join(f"ld.global.u32 %v{n}, [%a+{FAR * n}];" for n in range(8)) + "".join(f"add.u32 %s, %s, %v{n};" for n in range(8))
    memory = np.zeros(WORDS, np.uint32)
    rows, apart = loads(gpu, body, memory), loads(gpu, body, memory, "dependent")
    assert rows["site"].tolist() == list(range(8))
    assert (rows["start"][1:] < rows["end"][0]).all(), "all were sent out before the first came"
    assert rows["exposed"].sum() < rows["cycles"].max() + 8 * NOTHING
    assert rows["exposed"].sum() < apart["cycles"].sum() / 2
    assert rows["end"].max() - rows["start"].min() < (apart["end"].max() - apart["start"].min()) / 2


def test_long_arithmetic_hides_a_load(gpu: Device) -> None:
    body = "ld.global.u32 %v1, [%a];" + "mad.lo.u32 %i, %i, %i, 7;" * 1500 + "add.u32 %s, %i, %v1;"
    rows = loads(gpu, body, np.zeros(WORDS, np.uint32))
    assert rows["cycles"][0] > 1500 * 2
    assert rows["exposed"][0] < NOTHING


def test_what_overlaps_is_missing_from_the_wait(gpu: Device) -> None:
    """The same load with and without arithmetic of some 100 to 300 cycles before its consumer."""
    body, memory = "ld.global.u32 %v1, [%a];{}add.u32 %s, %i, %v1;", np.zeros(WORDS, np.uint32)
    bare, filled = (loads(gpu, body.format(text), memory) for text in ("", "mad.lo.u32 %i, %i, %i, 7;" * 50))
    hidden = [int(one["cycles"][0] - one["exposed"][0]) for one in (bare, filled)]
    assert hidden[0] < NOTHING
    assert 100 < hidden[1] - hidden[0] < 400


def ahead(operations: int, copied: bool) -> str:
    """A loop that fetches what its next turn needs, from another line each time, with so many operations in a turn."""
    begin = "ld.global.u32 %v2, [%b]; add.u32 %s, %s, %v1;" if copied else "add.u32 %s, %s, %v1; ld.global.u32 %v1, [%b];"
    return f"""
        mov.u64 %b, %a; ld.global.u32 %v1, [%b];
    again:
        add.u64 %b, %b, {FAR}; {begin} {"mad.lo.u32 %i, %i, %i, 7;" * operations} {"mov.u32 %v1, %v2;" if copied else ""}
        add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 12; @%q bra again;
        add.u32 %s, %s, %v1; add.u32 %s, %s, %i;"""


@pytest.mark.parametrize("copied", [True, False])
def test_what_is_fetched_a_turn_ahead_is_hidden_by_the_turn(gpu: Device, copied: bool) -> None:
    """A turn of 1500 operations is longer than any load, one of 20 is shorter: then a part is exposed."""
    memory = np.zeros(WORDS, np.uint32)
    far, near = (loads(gpu, ahead(operations, copied), memory) for operations in (1500, 20))
    for rows in (far, near):
        assert np.bincount(rows["site"]).tolist() == [1, 12]
    assert (far["exposed"][1:] < NOTHING).all()
    hidden = (near["cycles"] - near["exposed"])[1:]
    assert (hidden > 20 * 2).all()
    assert (hidden[1:] < 500).all(), "all but the first turn, whose code nobody has fetched yet"
    assert np.median(near["exposed"][1:]) > NOTHING, "the next turn comes before the value does"
    assert (near["exposed"][1:] < near["cycles"][1:]).all()


def test_a_sign_that_is_spread_is_not_read_before_the_wait(gpu: Device) -> None:
    """Negative words as numbers of 64 bits, and the sum of their upper halves."""
    body = """
        .reg .u64 %w1; .reg .u32 %low, %high;
        ld.global.s32 %w1, [%a]; mov.b64 {%low, %high}, %w1; sub.u32 %s, %s, %high; mad.lo.u32 %s, %low, 3, %s;"""
    module = gpu.load(kernel(HEAD + body + TAIL, ".param .u64 out, .param .u64 from"))
    out, values = gpu.zeros(32, "u4"), gpu.array(np.full(32, -5, np.int32))
    recorded = trace(module["k"][1, 32], out, values, scheme="exposed", selection=Selection(kinds={"load"}))
    assert [(site.scheme, site.completeness, site.evidence) for site in recorded.sites] == [("exposed", COMPLETE, PROVED)]
    assert out.numpy().tolist() == [(1 - 15) % (1 << 32)] * 32

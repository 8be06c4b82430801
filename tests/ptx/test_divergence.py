"""Which branches may part the lanes of a warp, against what the kernels say by hand."""

from __future__ import annotations

import pytest

from memlane.ptx import ControlFlow, flatten_scopes
from memlane.ptx.divergence import diverging_branches
from tests.instrument.kernels import kernel

HEAD = ".reg .u32 %i, %n, %k, %v; .reg .u64 %a, %o; .reg .pred %p, %q; ld.param.u64 %a, [p];"


def diverging(body: str) -> frozenset[int]:
    return diverging_branches(ControlFlow(flatten_scopes(kernel(f"{HEAD} {body}").kernels["k"])))


@pytest.mark.parametrize(
    ("condition", "varies"),
    [
        ("mov.u32 %n, %ctaid.x;", False),
        ("mov.u32 %n, %ntid.x;", False),
        ("mov.u32 %n, %tid.y;", True),
        ("mov.u32 %n, %laneid;", True),
        ("mov.u32 %n, %clock;", True),
        ("ld.global.u32 %n, [%a];", False),
        ("ld.volatile.global.u32 %n, [%a];", True),
        ("ld.u32 %n, [%a];", True),
        ("mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %o, %o, %a; ld.global.u32 %n, [%o];", True),
        ("atom.global.add.u32 %n, [%a], 1;", True),
        ("mov.u32 %i, %tid.x; setp.eq.u32 %p, %i, 0; mov.u32 %n, 1; @%p mov.u32 %n, 2;", True),
        ("addc.u32 %n, 1, 2;", True),
    ],
)
def test_where_a_condition_comes_from(condition: str, varies: bool) -> None:
    assert diverging(f"{condition} setp.eq.u32 %q, %n, 3; @%q bra done; st.global.u32 [%a], %n; done: ret;") == ({0} if varies else set())


LOOP = """
    mov.u32 %k, 0;
again: add.u32 %k, %k, 1; setp.lt.u32 %q, %k, {turns}; @%q bra again;
    setp.eq.u32 %q, %k, 5; @%q bra done; ret;
done: ret;
"""


def test_what_a_loop_counts_is_uniform_inside_and_may_vary_behind() -> None:
    assert diverging(LOOP.replace("{turns}", "7")) == set()
    assert diverging("mov.u32 %n, %tid.x;" + LOOP.replace("{turns}", "%n")) == {1, 2}


def test_values_that_lanes_bring_along_from_two_ways() -> None:
    """Only the constants differ; which of them a lane has depends on its way."""
    ways = "setp.eq.u32 %q, %n, 0; mov.u32 %v, 1; @%q bra join; mov.u32 %v, 2; join: setp.eq.u32 %q, %v, 1; @%q bra done; ret; done: ret;"
    assert diverging("mov.u32 %n, %tid.x;" + ways) == {0, 2}
    assert diverging("mov.u32 %n, %ctaid.x;" + ways) == set()


def test_lanes_that_left_bring_nothing_along() -> None:
    """A guard at the start, as most kernels have, does not make the loops behind it vary."""
    guard = "mov.u32 %n, %tid.x; setp.gt.u32 %p, %n, 9; @%p bra done;"
    assert diverging(guard + LOOP.replace("{turns}", "7")) == {0}

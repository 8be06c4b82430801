"""What the consumers of loads wait, as the emulator's clock has it: kernels whose overlap is known by construction."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.instrument import Decoded, Selection, TraceOptions, buffer_layout, trace
from memlane.instrument.consumers import consumers
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.instrument.running import Run
from tests.instrument.test_traced_runs import EARLY, LOOP, WITHOUT_LANE_0
from tests.steps import steps_of

HEAD = """
    .reg .u32 %i, %n, %s, %v<9>; .reg .u64 %a, %o; .reg .pred %q<3>;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    mov.u32 %s, 0;
"""
DRAM = 600
"""Less than a load from DRAM takes on the chip of the tests, by its file."""
WINDOW = 30
"""More than the wait for a value that is there; with an instruction for each line of the probe, as it is modelled."""


@lru_cache
def run(body: str) -> Run:
    return Run(kernel(HEAD + body), "k", 1, 32, (np.arange(1 << 16, dtype=np.uint32),))


def loads(body: str, scheme: str = "exposed") -> npt.NDArray[Any]:
    """The records of the loads, with their `cycles`; the outcome is that of the plain kernel."""
    launch = run(body)
    result, decoded, _ = launch.traced(scheme, buffer_layout(1, 64), Selection(kinds={"load"}))
    assert np.array_equal(result, launch.plain())
    assert decoded.lost == 0
    return decoded.records


def cycles(records: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.asarray(records["end"] - records["start"])


def test_independent_loads_overlap_and_the_first_consumer_waits_for_all() -> None:
    body = "".join(f"ld.global.u32 %v{n}, [%a+{4096 * n}];" for n in range(6))
    body += "".join(f"add.u32 %s, %s, %v{n};" for n in range(6)) + "st.global.u32 [%a], %s; ret;"
    found = loads(body)
    assert found["site"].tolist() == list(range(6))
    assert (cycles(found) > DRAM).all()
    assert 0 < found["exposed"][0] < cycles(found)[0], "the others were sent out in the meantime"
    assert (found["exposed"][1:] < WINDOW).all(), "they came while the first consumer waited"
    assert found["end"].max() - found["start"].min() < 2 * DRAM
    apart = loads(body, "dependent")
    assert apart["end"].max() - apart["start"].min() > 6 * DRAM, "one by one, with a wait behind each"
    assert not apart["exposed"].any()


def test_in_a_chain_everything_is_exposed() -> None:
    found = loads("""
        ld.global.u32 %v1, [%a]; and.b32 %v1, %v1, 1; mul.wide.u32 %o, %v1, 4096; add.u64 %a, %a, %o;
        ld.global.u32 %v2, [%a+65536]; and.b32 %v2, %v2, 1; mul.wide.u32 %o, %v2, 4096; add.u64 %a, %a, %o;
        ld.global.u32 %v3, [%a+131072]; st.global.u32 [%a], %v3; ret;""")
    assert len(found) == 3
    assert (cycles(found) > DRAM).all()
    assert (cycles(found) - found["exposed"] < WINDOW).all()


def test_long_arithmetic_hides_a_load() -> None:
    """600 multiplications, each needing the one before, take longer than the load, which nobody then waits for."""
    found = loads("ld.global.u32 %v1, [%a];" + "mad.lo.u32 %i, %i, %i, 7;" * 600 + "add.u32 %v1, %v1, %i; st.global.u32 [%a], %v1; ret;")
    assert cycles(found)[0] > 600 * 4
    assert found["exposed"][0] < WINDOW


def test_half_of_a_load_is_hidden() -> None:
    """What the arithmetic between takes by its own two clock reads is missing from the wait."""
    between = "mad.lo.u32 %i, %i, %i, 7;" * 60
    rest = "add.u32 %v1, %v1, %i; st.global.u32 [%a], %v1; ret;"
    bare, filled = (loads(f"ld.global.u32 %v1, [%a];{text}{rest}")[0] for text in ("", between))
    assert 59 * 4 <= bare["exposed"] - filled["exposed"] <= 60 * 5
    assert abs((filled["end"] - filled["start"]) - (bare["end"] - bare["start"])) < WINDOW, "the load itself took as long"


def test_moves_hand_a_value_on_and_do_not_consume_it() -> None:
    rest = "mad.lo.u32 %i, %i, %i, 7;" * 600 + "add.u32 %v2, %v2, %i; st.global.u32 [%a], %v2; ret;"
    assert loads("ld.global.u32 %v1, [%a]; mov.u32 %v2, %v1;" + rest)["exposed"][0] < WINDOW


def fetching(between: int, order: str = "load, use, copy") -> str:
    """A loop that fetches a turn ahead, with so many operations in each turn, each needing the one before; another line in each turn."""
    load, use, copy = "ld.global.u32 %v2, [%a+4096];", "add.u32 %s, %s, %v1;", "mov.u32 %v1, %v2;"
    steps = {"load": load, "use": use, "copy": copy, "load in place": load.replace("%v2", "%v1")}
    middle = "mad.lo.u32 %i, %i, %i, 7;" * between
    first, *others = (steps[name] for name in order.split(", "))
    return f"""
        ld.global.u32 %v1, [%a]; mov.u32 %n, 0;
    again:
        {first} {others[0]} {middle} {"".join(others[1:])}
        add.u64 %a, %a, 4096; add.u32 %n, %n, 1; setp.lt.u32 %q1, %n, 8; @%q1 bra again;
        add.u32 %s, %s, %v1; add.u32 %s, %s, %i; st.global.u32 [%a], %s; ret;"""


@pytest.mark.parametrize("order", ["load, use, copy", "use, load in place"])
def test_what_a_turn_takes_is_missing_from_the_wait_for_what_it_fetched(order: str) -> None:
    """A copy that needs a register of its own waits at the end of the turn, and without one the use in the next turn does: behind the same
    operations."""
    far, near = (loads(fetching(between, order)) for between in (190, 60))
    for found in (far, near):
        assert Counter(found["site"].tolist()) == {0: 1, 1: 8}
    far, near = (found[found["site"] == 1][1:-1] for found in (far, near))
    assert (far["exposed"] < WINDOW).all(), "far enough ahead"
    assert (cycles(near) > DRAM).all()
    hidden = cycles(near) - near["exposed"]
    assert (hidden >= 60 * 4).all(), "the next turn comes too soon"
    assert (hidden <= 60 * 4 + 4 * WINDOW).all()


def test_where_nothing_consumes_the_value_nothing_is_exposed() -> None:
    """All lanes go the way on which nothing reads it."""
    found = loads("""
        ld.global.u32 %v1, [%a]; setp.lt.u32 %q1, %i, 100; @%q1 bra over;
        add.u32 %v1, %v1, 1; st.global.u32 [%a], %v1;
    over:
        ret;""")
    assert (found["site"].tolist(), found["exposed"].tolist()) == ([0], [0])
    assert cycles(found)[0] > DRAM, "and its end is complete even so"


def test_a_value_from_either_of_two_loads_is_waited_for_once() -> None:
    """Half of the warp loads here, half there, and one instruction reads what either brought: a record for each half."""
    found = loads("""
        setp.lt.u32 %q1, %i, 16; @%q1 bra low;
        ld.global.u32 %v1, [%a+4096]; bra both;
    low:
        ld.global.u32 %v1, [%a+65536];
    both:
        add.u32 %v1, %v1, 1; st.global.u32 [%a], %v1; ret;""")
    assert Counter(found["active_mask"].tolist()) == {0xFFFF: 1, 0xFFFF0000: 1}
    assert len(set(found["end"].tolist())) == 1
    assert len(set(found["exposed"].tolist())) == 1
    assert found["exposed"][0] > DRAM // 2


BODIES = {
    "guarded load": """
        setp.lt.u32 %q1, %i, 7; mov.u32 %v1, 3; @%q1 ld.global.u32 %v1, [%a]; add.u32 %v1, %v1, 1; st.global.u32 [%a], %v1; ret;""",
    "lanes leave with the value": """
        ld.global.u32 %v1, [%a]; setp.lt.u32 %q1, %i, 7; @%q1 exit; add.u32 %v1, %v1, 1; st.global.u32 [%a], %v1; ret;""",
    "loaded before the loop": """
        ld.global.u32 %v1, [%a]; mov.u32 %n, 0;
    again:
        add.u32 %s, %s, %v1; ld.global.u32 %v2, [%a+4096]; add.u32 %s, %s, %v2; add.u32 %n, %n, 1; setp.lt.u32 %q1, %n, %i;
        @%q1 bra again;
        st.global.u32 [%a], %s; ret;""",
    "fetched ahead": """
        ld.global.u32 %v1, [%a]; mov.u32 %n, 0;
    again:
        add.u32 %s, %s, %v1; ld.global.u32 %v1, [%a+4096]; add.u64 %a, %a, 128; add.u32 %n, %n, 1; setp.lt.u32 %q1, %n, 9;
        @%q1 bra again;
        st.global.u32 [%a], %s; ret;""",
    "copied from turn to turn": """
        ld.global.u32 %v1, [%a]; mov.u32 %n, 0;
    again:
        ld.global.u32 %v2, [%a+4096]; add.u32 %s, %s, %v1; mov.u32 %v1, %v2; add.u64 %a, %a, 128; add.u32 %n, %n, 1;
        setp.lt.u32 %q1, %n, %i; @%q1 bra again;
        add.u32 %s, %s, %v1; st.global.u32 [%a], %s; ret;""",
    "two turns ahead, some lanes by themselves": """
        .reg .b16 %h<4>; ld.global.u16 %h1, [%a]; ld.global.u16 %h2, [%a+4096]; mov.u32 %n, 0;
    again:
        setp.lt.u32 %q2, %i, 9; @%q2 mov.b16 %h1, %h2;
        cvt.u32.u16 %v3, %h1; add.u32 %s, %s, %v3; mov.b16 %h1, %h2; ld.global.u16 %h2, [%a+8192];
        add.u64 %a, %a, 128; add.u32 %n, %n, 1; setp.lt.u32 %q1, %n, 5; @%q1 bra again;
        cvt.u32.u16 %v3, %h2; add.u32 %s, %s, %v3; st.global.u32 [%a], %s; ret;""",
    "signed bytes as 64 bits": """
        .reg .b64 %w<5>; mov.u64 %w3, 0; mov.u64 %w4, 0; mov.u32 %n, 0;
    again:
        ld.global.s8 %w1, [%a+512]; add.s64 %w4, %w4, %w3; mov.b64 %w3, %w1; add.u64 %a, %a, 4; add.u32 %n, %n, 1;
        setp.lt.u32 %q1, %n, 40; @%q1 bra again;
        add.s64 %w4, %w4, %w3; mov.b64 {%v1, %v2}, %w4; mad.lo.u32 %s, %v2, 77, %v1; st.global.u32 [%a], %s; ret;""",
    "read in one branch only": """
        ld.global.u32 %v1, [%a]; setp.lt.u32 %q1, %i, 7; @%q1 bra over; add.u32 %s, %s, %v1;
    over:
        st.global.u32 [%a], %s; ret;""",
    "overwritten before it is read": """
        ld.global.u32 %v1, [%a]; setp.lt.u32 %q1, %i, 7; @%q1 bra over; add.u32 %s, %s, %v1;
    over:
        mov.u32 %v1, 5; add.u32 %s, %s, %v1; st.global.u32 [%a], %s; ret;""",
    "halves": WITHOUT_LANE_0.replace("[out]", "[p]"),
    "loop": LOOP.replace("[out]", "[p]"),
    "early": EARLY.replace("[out]", "[p]"),
}


@pytest.mark.parametrize("name", BODIES)
def test_there_is_a_record_for_every_access_as_with_a_wait_behind_it(name: str) -> None:
    launch = run(BODIES[name]) if "[%a" in BODIES[name] else Run(kernel(BODIES[name]), "k", 1, 32, (np.arange(64, dtype=np.uint32),))
    expected = launch.plain()

    def accesses(scheme: str, room: int) -> tuple[Counter[tuple[int, int]], int]:
        result, decoded, _ = launch.traced(scheme, buffer_layout(1, room, 200))
        assert np.array_equal(result, expected)
        rows = decoded.records
        assert (rows["end"] >= rows["start"]).all()
        return Counter(zip(rows["site"].tolist(), rows["active_mask"].tolist(), strict=True)), decoded.lost

    told, lost = accesses("dependent", 200)
    assert (accesses("exposed", 200), lost) == ((told, 0), 0)
    _, lost_apart = accesses("dependent", 1)
    assert accesses("exposed", 1)[1] == lost_apart, "losses as well"


def test_the_rows_of_a_warp_come_by_start() -> None:
    """The first load closes last."""
    found = loads("""
        ld.global.u32 %v1, [%a]; ld.global.u32 %v2, [%a+4096]; ld.global.u32 %v3, [%a+8192];
        add.u32 %s, %s, %v3; add.u32 %s, %s, %v2; add.u32 %s, %s, %v1; st.global.u32 [%a], %s; ret;""")
    assert found["site"].tolist() == [0, 1, 2]
    assert (np.diff(found["start"]) > 0).all()
    assert (np.diff(found["end"]) < 0).all()
    assert found["exposed"].argmax() == 2, "the first consumer waits"


def test_a_matrix_product_is_the_same_to_the_bit() -> None:
    module = example(next(path for path in EXAMPLES if path.stem == "matmul"))
    symbol = next(iter(module.kernels))
    values = np.random.default_rng(5).random((2, 32, 32), "f4")
    launch = Run(module, symbol, (2, 2), (16, 16), (np.zeros((32, 32), "f4"), values[0], values[1], 32))
    result, decoded, traced = launch.traced("exposed", buffer_layout(32, 400), Selection(kinds={"load"}))
    assert np.array_equal(result, launch.plain())
    assert decoded.lost == 0
    followed = {site for found in traced.probes.values() for site, lines in found.items() if lines.window_ends}
    assert set(decoded.records["site"].tolist()) <= followed == {site.id for site in traced.sites if site.kind == "load"}


def sites(body: str) -> list[tuple[str, str]]:
    found = trace(kernel(HEAD + body), TraceOptions("exposed", Selection(kinds={"load", "store"}))).sites
    return [(site.scheme, site.fallback) for site in found if site.kind == "load" or site.scheme == "exposed"]


def test_what_cannot_be_followed_is_waited_for_behind_the_access_with_the_reason() -> None:
    skipped = """
        mov.u32 %v1, 0;
    again:
        setp.lt.u32 %q1, %i, 7; @%q1 ld.global.u32 %v1, [%a]; add.u64 %a, %a, 128; add.u32 %i, %i, 1;
        setp.lt.u32 %q2, %i, 40; @%q2 bra again;
        add.u32 %s, %s, %v1; st.global.u32 [%a], %s; ret;"""
    assert sites(skipped) == [("dependent", "it may be executed again before its loaded value is read")]
    many = "".join(f".reg .u32 %w{n}; ld.global.u32 %w{n}, [%a+{4 * n}];" for n in range(10))
    many += "".join(f"add.u32 %s, %s, %w{n};" for n in range(10)) + "st.global.u32 [%a], %s; ret;"
    crowded = ("dependent", "more than 8 loads are in flight there")
    assert sites(many) == [("exposed", "")] * 8 + [crowded] * 2
    hidden = """
        { .reg .u32 %t; ld.global.u32 %t, [%a]; setp.lt.u32 %q1, %i, 7; @%q1 bra over; add.u32 %s, %s, %t; }
    over:
        st.global.u32 [%a], %s; ret;"""
    assert sites(hidden) == [("dependent", "its loaded value is not read before this function returns")]
    wide = sites("ld.global.s32 %o, [%a]; st.global.u64 [%a], %o; add.u64 %o, %o, 1; st.global.u64 [%a], %o; ret;")
    why = "the assembler widens its loaded value with a separate instruction, and other instructions write the same register"
    assert wide == [("dependent", why)]
    assert sites(".reg .u64 %w; ld.global.s32 %w, [%a]; st.global.u64 [%a], %w; ret;") == [("exposed", "")], "nobody else does"
    assert sites("ld.global.u32 %o, [%a]; st.global.u64 [%a], %o; ret;") == [("exposed", "")], "there is nothing to spread"
    assert sites("ld.global.u32 %v1, [%a]; st.global.u32 [%a], %s; ret;") == [("dependent", "")], "nothing reads it anywhere"
    acquired = sites("ld.acquire.gpu.global.u32 %v1, [%a]; st.global.u32 [%a], %v1; ret;")
    assert acquired == [("dependent", "it has acquire semantics, so the assembler itself waits for it immediately")]


def test_who_waits_first_is_named() -> None:
    def waiting(body: str, scheme: str = "exposed") -> list[list[str]]:
        found = trace(kernel(HEAD + body), TraceOptions(scheme, Selection(kinds={"load"}))).sites
        return [[one.partition(" ")[2] for one in site.consumers] for site in found if site.kind == "load"]

    copied = fetching(0)
    assert waiting(copied) == [["add.u32"], ["mov.u32"]], "the copy at the end of the turn"
    assert waiting(fetching(0, "use, load in place")) == [["add.u32"], ["add.u32"] * 2], "in the next turn, and behind the last"
    assert waiting(copied, "dependent") == [[], []]
    lines = trace(
        kernel(HEAD + "ld.global.u32 %v1, [%a];\nadd.u32 %s, %s, %v1;\nst.global.u32 [%a], %s; ret;"), TraceOptions("exposed")
    ).sites
    assert lines[0].consumers == (f"{lines[0].file}:{lines[0].line + 1} add.u32",)


def test_other_schemes_record_nothing_exposed() -> None:
    decoded: Decoded = run("ld.global.u32 %v1, [%a]; st.global.u32 [%a], %v1; ret;").traced("consume", buffer_layout(1, 8))[1]
    assert decoded.records["exposed"].tolist() == [0, 0]


def test_the_work_grows_with_the_number_of_loads_under_way() -> None:
    """Each load is read far behind it: an instruction looks at those only whose registers it names."""

    def text(number: int) -> str:
        registers = f".reg .b64 %a; .reg .b32 %n; .reg .b32 %r<{number}>;"
        loads = "".join(f"ld.global.u32 %r{one}, [%a+{4 * one}];\n" for one in range(number))
        sums = "".join(f"add.u32 %n, %n, %r{one};\n" for one in range(number))
        return f"{registers}\nld.param.u64 %a, [p];\nmov.u32 %n, 0;\n{loads}{sums}st.global.u32 [%a], %n;\nret;"

    steps = []
    for number in (40, 160):
        function = kernel(text(number)).kernels["k"]
        steps.append(steps_of(lambda function=function, number=number: consumers(function, range(2, number + 2))))
    assert 0 < steps[1] < 6 * steps[0]

"""The proof of windows that close in front of a consumer, and code that was changed or arranged so that the wait is not what is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from memlane.audit import SiteProof, prove
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.exposure import ExposedWindow, ExposedWindows
from memlane.instrument import Selection, Traced, TraceOptions, trace
from memlane.record import COMPLETE, ISSUE_ONLY
from memlane.sass import disassemble, effects, waits_for
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.sass.code import cubin_of, mutated, nop_of, reread, with_write_scoreboard, without_wait

BY_NAME = {path.stem: path for path in EXAMPLES}
EXPOSED = TraceOptions("exposed", Selection(kinds={"load"}))


@cache
def proved_example(name: str) -> tuple[Traced, bytes, tuple[SiteProof, ...]]:
    found = trace(example(BY_NAME[name]), EXPOSED)
    data = cubin_of(found.module)
    return found, data, prove(found, data)


@pytest.mark.parametrize("name", ["chase", "histogram", "transpose"])
def test_loads_of_the_examples_are_complete(name: str) -> None:
    found, _, proofs = proved_example(name)
    followed = {site for probes in found.probes.values() for site, lines in probes.items() if lines.window_ends}
    assert followed
    assert {(proof.completeness, proof.reason) for proof in proofs if proof.site in followed} == {(COMPLETE, "")}
    assert all(proof.copies for proof in proofs)


def test_a_value_that_is_moved_before_a_loop_is_consumed_by_the_move() -> None:
    """The first plane goes to where the loop wants it."""
    found, _, proofs = proved_example("stencil")
    reasons = [proof.reason for proof in proofs if proof.completeness != COMPLETE]
    assert not reasons
    assert len(proofs) == len([site for site in found.sites if site.kind == "load"])


INDEPENDENT = """
    .reg .u32 %i, %v, %w; .reg .u64 %a, %o;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a, %a, %o;
    ld.global.u32 %v, [%a];
    ld.global.u32 %w, [%a+4096];
    mad.lo.u32 %i, %i, %i, %v;
    mad.lo.u32 %i, %i, %i, %w;
    st.global.u32 [%a], %i;
    ret;
"""


def test_loads_overlap_in_the_assembled_code() -> None:
    found = trace(kernel(INDEPENDENT), EXPOSED)
    code = AssembledModule(found.module, disassemble(cubin_of(found.module)))
    windows = ExposedWindows(code, "k")
    first, second = (windows.window(found.sites[site], probe) for site, probe in sorted(found.probes["k"].items()))
    assert isinstance(first, ExposedWindow)
    assert isinstance(second, ExposedWindow)
    assert max(second.accesses) < min(first.waits), "the second is on its way before anybody waits for the first"
    assert max(first.ends) < min(second.waits)
    # The clock read before the wait, what waits, and the second clock read: nothing stands between.
    (wait,), (end,), (access,) = first.waits, first.ends, first.accesses
    board = windows.nodes[access].control.write_scoreboard
    assert [board in waits_for(windows.nodes[node]) for node in range(wait, end + 1)] == [False, True, False]


def changes(found: Traced, data: bytes) -> Iterator[tuple[str, int, dict[int, int]]]:
    """What the proof of the first load of a kernel `k` must not survive: label, site, and by index in the kernel another encoding."""
    code = AssembledModule(found.module, disassemble(data))
    windows, nodes = ExposedWindows(code, "k"), code.flow.nodes
    window = windows.window(found.sites[0], found.probes["k"][0])
    assert isinstance(window, ExposedWindow)
    (start,), (access,), (wait,), (end,) = window.starts, window.accesses, window.waits, window.ends
    board, nop = nodes[access].control.write_scoreboard, nop_of(code.program.functions["k"])
    assert board is not None
    waiter = next(node for node in range(wait, end) if board in waits_for(nodes[node]))
    yield "wait cleared", 0, {waiter: without_wait(nodes[waiter], board)}
    yield "access without a scoreboard", 0, {access: with_write_scoreboard(nodes[access], None)}
    yield "access removed", 0, {access: nop}
    for name, node in (("first clock read", start), ("clock read before the wait", wait), ("second clock read", end)):
        yield f"{name} removed", 0, {node: nop}
    yield "second clock read before the wait", 0, {waiter: nodes[end].encoding, end: nodes[waiter].encoding}
    yield "wait before its clock read", 0, {wait: nodes[waiter].encoding, waiter: nodes[wait].encoding}
    yield "clock read before the access", 0, {access: nodes[wait].encoding, wait: nodes[access].encoding}
    yield "first clock read behind the access", 0, {access: nodes[start].encoding, start: nodes[access].encoding}
    # Awaited by an instruction that has nothing to do with it, in front of the clock read.
    early = next(node for node in range(access + 1, wait) if not nodes[node].control.waits and nodes[node].control.write_scoreboard is None)
    yield "awaited early", 0, {early: nodes[early].encoding | 1 << (64 + 52 + board)}


def test_changed_code_is_caught() -> None:
    found = trace(kernel(INDEPENDENT), EXPOSED)
    data = cubin_of(found.module)
    program = disassemble(data)
    assert next(iter(prove(found, data))).completeness == COMPLETE
    caught = {}
    for label, site, changed in changes(found, data):
        proof = next(one for one in prove(found, reread(data, program, program.functions["k"], changed)) if one.site == site)
        assert proof.completeness == ISSUE_ONLY, label
        caught[label] = proof.reason
    assert len(caught) == 11
    assert all(caught.values())
    assert "the code waits for the access at" in caught["awaited early"]


AHEAD = """
    .reg .u32 %i, %n, %v, %w, %s; .reg .u64 %a, %o; .reg .pred %q;
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
    ld.global.u32 %v, [%a]; mov.u32 %n, 0; mov.u32 %s, 0;
again:
    {turn}
    add.u64 %a, %a, 4096; add.u32 %n, %n, 1; setp.lt.u32 %q, %n, %i; @%q bra again;
    mad.lo.u32 %s, %s, %s, %v; st.global.u32 [%a], %s; ret;
"""
TURNS = {
    "a copy": "ld.global.u32 %w, [%a+4096]; mad.lo.u32 %s, %s, %s, %v; mov.u32 %v, %w;",
    "a copy in the next turn": "mov.u32 %i, %v; mov.u32 %v, %w; ld.global.u32 %w, [%a+4096]; mad.lo.u32 %s, %s, %s, %i;",
    "a copy that is none": "mad.lo.u32 %s, %s, %s, %v; ld.global.u32 %w, [%a+4096]; add.u32 %s, %s, 7; mov.u32 %v, %w;",
    "in place": "mad.lo.u32 %s, %s, %s, %v; ld.global.u32 %v, [%a+4096];",
    "of 64 bits": """.reg .u64 %x, %y; ld.global.u64 %y, [%a+4096]; cvt.u32.u64 %w, %x; mad.lo.u32 %s, %s, %w, %v; shr.u64 %x, %x, 32;
        cvt.u32.u64 %w, %x; mad.lo.u32 %s, %s, %w, 5; mov.b64 %x, %y;""",
}


@pytest.mark.parametrize("turn", TURNS)
def test_what_is_fetched_a_turn_ahead_is_followed_and_proved(turn: str) -> None:
    found = trace(kernel(AHEAD.format(turn=TURNS[turn])), EXPOSED)
    assert [site.scheme for site in found.sites if site.kind == "load"] == ["exposed"] * 2
    data = cubin_of(found.module)
    assert [(proof.completeness, proof.reason) for proof in prove(found, data)] == [(COMPLETE, "")] * 2
    code = AssembledModule(found.module, disassemble(data))
    windows = ExposedWindows(code, "k")
    window = windows.window(found.sites[1], found.probes["k"][1])
    assert isinstance(window, ExposedWindow)
    (access,) = window.accesses
    behind = [access > wait for wait in window.waits]
    assert any(behind) == (turn not in ("a copy", "of 64 bits")), "the copy that cannot be left out ends the turn that fetched"


def test_signed_words_that_are_widened_are_proved() -> None:
    body = (
        INDEPENDENT.partition(".reg .u32")[0]
        + """
        .reg .u32 %i; .reg .u64 %a, %o; .reg .s64 %x, %y;
        ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
        ld.global.s32 %x, [%a]; ld.global.s16 %y, [%a+4096]; add.s64 %x, %x, %y; st.global.u32 [%a], %x; shr.u64 %x, %x, 32;
        st.global.u32 [%a+8192], %x; ret;"""
    )
    found = trace(kernel(body.replace("%x, %x, %y", "%o, %x, %y").replace("], %x", "], %o").replace("%x, %x, 32", "%o, %o, 32")), EXPOSED)
    assert [site.scheme for site in found.sites if site.kind == "load"] == ["exposed"] * 2
    assert {(proof.completeness, proof.reason) for proof in prove(found, cubin_of(found.module))} == {(COMPLETE, "")}


def hidden_load() -> tuple[Traced, bytes, ExposedWindows, ExposedWindow]:
    """A load with 12 operations between it and its consumer."""
    found = trace(
        kernel(INDEPENDENT.replace("%i, %i, %i, %v;", "%i, %i, %i, 7;" + "mad.lo.u32 %i, %i, %i, 7;" * 11 + "mad.lo.u32 %i, %i, %i, %v;")),
        EXPOSED,
    )
    data = cubin_of(found.module)
    windows = ExposedWindows(AssembledModule(found.module, disassemble(data)), "k")
    window = windows.window(found.sites[0], found.probes["k"][0])
    assert isinstance(window, ExposedWindow)
    assert [proof.completeness for proof in prove(found, data)] == [COMPLETE] * 2
    return found, data, windows, window


def test_what_is_done_between_the_clock_reads_of_a_wait_is_noticed() -> None:
    """Had the assembler drawn the operations that hide the load behind the clock read that begins the wait, they would count as exposed."""
    _, _, windows, window = hidden_load()
    (wait,) = window.waits
    assert windows.work_inside_wait(window) == ""
    earlier = replace(window, waits=frozenset({wait - 10}))
    assert "instructions lie in the wait that ends at 0x" in windows.work_inside_wait(earlier)


@pytest.mark.parametrize("waiting", [True, False])
def test_a_consumer_that_is_moved_before_the_clock_read_is_caught(waiting: bool) -> None:
    """One of the operations becomes a consumer of the value, with the wait that the assembler would give it, or without one."""
    found, data, windows, window = hidden_load()
    nodes, (access,), (wait,), (end,) = windows.nodes, window.accesses, window.waits, window.ends
    (board,) = {nodes[access].control.write_scoreboard} - {None}
    consumer = next(node for node in range(end, len(nodes)) if effects(nodes[node]).reads & effects(nodes[access]).writes)
    assert nodes[consumer].opcode == "IMAD"
    operation = next(node for node in range(wait, access, -1) if nodes[node].text.endswith(", 0x7") and not nodes[node].control.waits)
    target = 0xFF << 16  # where an instruction names the register that it writes: that of the operation stays
    encoding = (nodes[consumer].encoding & ~target) | (nodes[operation].encoding & target) | (waiting << (64 + 52 + board))
    proof = prove(found, mutated(data, windows.code.program.functions["k"], {operation: encoding}))[0]
    assert proof.completeness == ISSUE_ONLY
    assert ("the value is read at 0x" if waiting else "without a wait for the instruction that writes it") in proof.reason


def test_a_load_that_shares_its_scoreboard_says_so() -> None:
    """There are six scoreboards: of eight loads under way some share one, and who waits for the first of them waits for both."""
    body = INDEPENDENT.partition("ld.global")[0] + "".join(f".reg .u32 %x{n}; ld.global.u32 %x{n}, [%a+{4096 * n}];" for n in range(8))
    body += "".join(f"mad.lo.u32 %i, %i, %i, %x{n};" for n in range(8)) + "st.global.u32 [%a], %i; ret;"
    found = trace(kernel(body), EXPOSED)
    proofs = prove(found, cubin_of(found.module))
    assert {(proof.completeness, proof.reason) for proof in proofs} == {(COMPLETE, "")}
    assert any(proof.shared_waits for proof in proofs)


SHARED = """
    .reg .u32 %i, %s, %x<6>; .reg .u64 %a, %o; .shared .align 16 .b8 tile[4096];
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; shl.b32 %i, %i, 3; mov.u32 %s, 0;
    st.shared.u32 [%i], %i; bar.sync 0;
"""


def test_of_loads_from_shared_memory_the_last_may_speak_for_all() -> None:
    """They return in order, so the assembler has only the last of several raise a scoreboard: without it nothing is known of any."""
    body = SHARED + "".join(f"ld.shared.u32 %x{n}, [%i+{512 * n}];" for n in range(6))
    body += "".join(f"mad.lo.u32 %s, %s, %s, %x{n};" for n in reversed(range(6))) + "st.global.u32 [%a], %s; ret;"
    found = trace(kernel(body), EXPOSED)
    data = cubin_of(found.module)
    program = disassemble(data)
    loads = [index for index, one in enumerate(program.functions["k"].instructions) if one.opcode == "LDS"]
    boards = [program.functions["k"].instructions[index].control.write_scoreboard for index in loads]
    assert boards.count(None) == 5
    assert [(proof.completeness, bool(proof.shared_waits)) for proof in prove(found, data)] == [
        (COMPLETE, board is None) for board in boards
    ]
    last = next(index for index, board in zip(loads, boards, strict=True) if board is not None)
    changed = {last: with_write_scoreboard(program.functions["k"].instructions[last], None)}
    assert {proof.completeness for proof in prove(found, mutated(data, program.functions["k"], changed))} == {ISSUE_ONLY}

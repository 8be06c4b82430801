"""Kernels whose lanes add to a word that they share, as PTX, and their assembled code, changed on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.warp_aggregation import Aggregations
from memlane.audit.windows import Window, Windows
from memlane.instrument import Traced
from memlane.ptx import Module, parse
from memlane.sass import Instruction, Program, Register, disassemble, effects, waits_for
from tests.sass.code import mutated, nop_of, with_write_scoreboard, without_wait

FRAME = """
.visible .entry {name}(.param .u64 out, .param .u64 counter, .param .u32 n)
{{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .shared .align 8 .b64 {name}_sum;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [counter]; ld.param.u32 %r5, [n];
    cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 8; add.u64 %rd4, %rd1, %rd3;
    {body}
    ret;
}}
"""

BODIES: Mapping[str, str] = {
    "tickets": "atom.global.add.u32 %r2, [%rd2], 1; st.global.u32 [%rd4], %r2;",
    "tickets_shared": """
        mov.b64 %rd5, 0; st.shared.b64 [tickets_shared_sum], %rd5; bar.sync 0;
        atom.shared.add.u32 %r2, [tickets_shared_sum], 1; st.global.u32 [%rd4], %r2;""",
    "tickets_wide": "mov.b64 %rd5, 3; atom.global.add.u64 %rd6, [%rd2], %rd5; st.global.u64 [%rd4], %rd6;",
    "tickets_of_some": """
        and.b32 %r3, %r1, 3; setp.ne.u32 %p1, %r3, 0; @%p1 bra done;
        atom.global.add.u32 %r2, [%rd2], %r5; st.global.u32 [%rd4], %r2;
    done:""",
    "tickets_of_one": "atom.global.add.u32 %r2, [%rd2], 1; setp.eq.u32 %p1, %r1, 5; @%p1 st.global.u32 [%rd4], %r2;",
    "tickets_again": """
        mov.u32 %r3, 0;
    again:
        add.u32 %r4, %r1, %r3; and.b32 %r4, %r4, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra next;
        atom.global.add.u32 %r2, [%rd2], 1; mul.wide.u32 %rd5, %r2, 8; add.u64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r1;
    next:
        add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r5; @%p2 bra again;""",
    "places": "atom.global.add.u32 %r2, [%rd2], %r1; st.global.u32 [%rd4], %r2;",
    "places_of_some": """
        setp.gt.u32 %p1, %r1, 20; @%p1 bra done;
        atom.global.add.u32 %r2, [%rd2], %r1; st.global.u32 [%rd4], %r2;
    done:""",
}
"""One kernel each: what lanes add is a number, the same for all, or their own."""

BESIDE = "atom.global.add.u32 %r2, [%rd2], 1; atom.global.add.u32 %r3, [%rd2+4], 2; add.u32 %r2, %r2, %r3; st.global.u32 [%rd4], %r2;"
"""Two, of which the assembler lets the second do with the vote of the first."""


def module(names: tuple[str, ...] = tuple(BODIES), **more: str) -> Module:
    """The kernels of these names, and those of other bodies by name."""
    bodies = {name: BODIES[name] for name in names} | more
    kernels = "".join(FRAME.format(name=name, body=body) for name, body in bodies.items())
    return parse(f".version 8.0\n.target sm_90\n.address_size 64\n{kernels}", "aggregates.ptx")


def leading(found: Traced, data: bytes) -> dict[str, tuple[Window, int]]:
    """By kernel of `module`: the window of its atomic, and the node of the one that one lane does."""
    code = AssembledModule(found.module, disassemble(data))
    aggregations = Aggregations(code.flow, code.scoreboards)
    result = {}
    for name, of_kernel in found.probes.items():
        (site,) = (number for number in of_kernel if found.sites[number].kind == "atomic")
        window = Windows(code, name).window(found.sites[site], of_kernel[site])
        (leader,) = (one for one in window.accesses if aggregations.of(one, window.made).broadcasts)
        result[name] = window, leader
    return result


def changed(found: Traced, data: bytes, kinds: set[str]) -> Iterator[tuple[dict[str, str], bytes]]:
    """Cubins with a change in each kernel, that of each by its name, until all were made in all kernels; `kinds` receives their names."""
    code = AssembledModule(found.module, disassemble(data))
    made: dict[str, dict[str, dict[int, int]]] = {}
    for name, (window, leader) in leading(found, data).items():
        first, nop = code.flow.entry(name), nop_of(code.program.functions[name])
        of_kernel = changes(code, window, leader, nop)
        made[name] = {kind: {node - first: encoding for node, encoding in nodes.items()} for kind, nodes in of_kernel}
    kinds |= {kind for of_kernel in made.values() for kind in of_kernel}
    # As many turns as have no factor in common with the number of kernels, so that each kernel has each kind once.
    turns = next(count for count in range(len(kinds), 2 * len(kinds) + 1) if gcd(count, len(made)) == 1)
    ordered = [*sorted(kinds), *[""] * (turns - len(kinds))]
    for turn in range(turns):
        together, names = data, {}
        for place, (name, changes_of) in enumerate(made.items()):
            kind = ordered[(turn * len(made) + place) % turns]
            if kind in changes_of:
                together = mutated(together, code.program.functions[name], changes_of[kind])
                names[name] = kind
        yield names, together


def changes(code: AssembledModule, window: Window, access: int, nop: int) -> Iterator[tuple[str, dict[int, int]]]:
    """What a proof must not survive of an atomic that one lane does for all: by node another encoding. `access`: that lane's."""
    nodes = code.flow.nodes
    end = min(node for node in window.ends if node > access)
    (hand, *_) = (node for node in range(access, end) if nodes[node].opcode == "SHFL" and "IDX" in nodes[node].modifiers)
    board = nodes[access].control.write_scoreboard
    assert board is not None
    taker = next(node for node in range(access + 1, end) if board in waits_for(nodes[node]))
    yield "the hand-over does not wait for the atomic", {taker: without_wait(nodes[taker], board)}
    yield "atomic without a scoreboard", {access: with_write_scoreboard(nodes[access], None)}
    yield "hand-over removed", {hand: nop}
    yield "hand-over from another lane", {hand: _another_lane(nodes[hand])}
    yield "hand-over of another register", {hand: nodes[hand].encoding ^ 1 << 24}
    yield "hand-over within a part of the warp", {hand: _another_width(nodes[hand])}
    yield "hand-over to some", {hand: _guarded(nodes[hand], nodes[access])}
    waits = [node for node in range(hand + 1, end) if nodes[hand].control.write_scoreboard in waits_for(nodes[node])]
    for node in waits[:1] if nodes[hand].control.write_scoreboard is not None else ():
        yield "nobody waits for the hand-over", {node: without_wait(nodes[node], nodes[hand].control.write_scoreboard or 0)}
    yield "all but the leader", {access: nodes[access].encoding ^ 1 << 15}
    yield "every lane", {access: nodes[access].encoding | 7 << 12}
    yield "whom another predicate names", {access: nodes[access].encoding ^ 1 << 12}
    yield "atomic behind the hand-over", {access: nodes[hand].encoding, hand: nodes[access].encoding}
    yield from _of_the_leader(code, access, nop)


def _of_the_leader(code: AssembledModule, access: int, nop: int) -> Iterator[tuple[str, dict[int, int]]]:
    nodes, scoreboards = code.flow.nodes, code.scoreboards
    guard = nodes[access].guard
    assert guard is not None
    assert guard.register is not None
    (test,) = scoreboards.definitions(access, guard.register)
    yield "nobody asks who leads", {test: nop}
    yield "all but the leader, as it is asked", {test: nodes[test].encoding ^ (2 ^ 5) << 76}
    yield "one more condition", {test: nodes[test].encoding & ~(7 << 87)}
    for register in sorted(effects(nodes[test]).reads):
        for made in scoreboards.definitions(test, register):
            yield f"{nodes[made].opcode} removed", {made: nop}
            if nodes[made].opcode == "FLO":
                (vote,) = (one for source in effects(nodes[made]).reads for one in scoreboards.definitions(made, source))
                yield "vote removed", {vote: nop}
                yield "vote of some", {vote: _some(nodes[vote])}
            elif nodes[made].opcode == "S2R":
                yield "another special register than the lane", {made: nodes[made].encoding ^ 1 << 77}


def _another_lane(hand: Instruction) -> int:
    """Of a hand-over: the register or the number of the lane, made another."""
    return hand.encoding ^ (1 << 32 if isinstance(hand.operands[3].register, Register) else 1 << 53)


def _another_width(hand: Instruction) -> int:
    return hand.encoding ^ 1 << 40


def _guarded(hand: Instruction, like: Instruction) -> int:
    """Under the predicate of the atomic."""
    return hand.encoding & ~(15 << 12) | like.encoding & 15 << 12


def _some(vote: Instruction) -> int:
    return vote.encoding & ~(7 << 87)


def hoisted(program: Program, kernel: str, first: int, last: int) -> Program:
    """The program with the instruction at index `last` of a kernel in front of the one at `first`, as if the assembler had put it there.
    No label may stand in between."""
    function = program.functions[kernel]
    old = list(function.instructions)
    new = [*old[:first], old[last], *old[first:last], *old[last + 1 :]]
    placed = tuple(replace(one, offset=other.offset) for one, other in zip(new, old, strict=True))
    return replace(program, functions={**program.functions, kernel: replace(function, instructions=placed)})

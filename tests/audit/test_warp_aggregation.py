"""Atomics that the assembler lets one lane do for its warp: their proof, changed code, and what is recorded and counted of them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from memlane.audit import access_changes, exactness, prove
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.windows import Window
from memlane.compile import assemble
from memlane.instrument import Traced, buffer_layout, trace
from memlane.record import COMPLETE, HINT, ISSUE_ONLY
from memlane.sass import Instruction, Program, disassemble, effects
from tests.audit.aggregates import BESIDE, BODIES, changed, hoisted, leading, module
from tests.instrument.running import Run
from tests.sass.code import cubin_of, exchanged, inserted, instruction

ROUNDS = 4
"""Cubins with one change in each kernel; in so many each kind of change is made at least once."""


@cache
def traced(arch: str = "sm_90") -> tuple[Traced, bytes]:
    found = trace(module())
    cubin_of(found.module)
    return found, assemble(found.module, arch=arch).data


@cache
def windows() -> dict[str, tuple[Window, int]]:
    return leading(*traced())


def verdicts(found: Traced, assembled: bytes | Program) -> dict[str, tuple[str, str]]:
    """By kernel: what is proved of its atomic."""
    proofs = {proof.site: proof for proof in prove(found, assembled)}
    names = {site: kernel for kernel, positions in found.positions.items() for site in positions}
    return {
        names[site.id]: (proofs[site.id].completeness, proofs[site.id].reason)
        for site in found.sites
        if site.kind == "atomic" and site.id in names
    }


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_what_one_lane_does_for_all_is_complete(arch: str) -> None:
    found, data = traced(arch)
    assert verdicts(found, data) == dict.fromkeys(BODIES, (COMPLETE, ""))


def test_a_vote_may_be_that_of_the_atomic_before() -> None:
    found = trace(module((), beside=BESIDE))
    data = cubin_of(found.module)
    assert sum(one.opcode == "FLO" for one in disassemble(data).functions["beside"].instructions) == 1
    of_atomics = [proof for proof in prove(found, data) if found.sites[proof.site].kind == "atomic"]
    assert [(proof.completeness, proof.reason) for proof in of_atomics] == [(COMPLETE, "")] * 2


def test_what_lanes_agree_with_is_named() -> None:
    found, data = traced()
    waits = {proof.site: {text.split()[1] for text in proof.also_waits} for proof in prove(found, data)}
    of_kernel = {name: waits[window.site.id] for name, (window, _) in windows().items()}
    assert of_kernel["tickets"] == {"S2R", "FLO.U32", "POPC", "SHFL.IDX"}
    assert of_kernel["places"] == {"S2R", "SHFL.UP", "SHFL.IDX"}
    assert all("SHFL.IDX" in names for names in of_kernel.values())


# -- code that was changed --------------------------------------------------------------------------------------------------------


def test_changed_code_is_caught() -> None:
    found, data = traced()
    kinds, caught = set[str](), set[str]()
    for made, together in islice(changed(found, data, kinds), ROUNDS):
        of_atomic = verdicts(found, together)
        for name, kind in made.items():
            assert of_atomic[name][0] == ISSUE_ONLY, f"{kind} of {name} survives"
            assert of_atomic[name][1]
        caught.update(made.values())
    assert caught == kinds
    assert len(kinds) >= 20


def early(name: str, behind: int) -> tuple[str, int]:
    """What is said of the atomic of a kernel whose second clock read stands so many places behind the node that hands the result on, and
    waits for the atomic; and the offset of that node. Empty where the clock would overwrite the result."""
    found, data = traced()
    program = disassemble(data)
    code = AssembledModule(found.module, program)
    window, leading = windows()[name]
    nodes, first = code.flow.nodes, code.flow.entry(name)
    end = min(node for node in window.ends if node > leading)
    hand = max(node for node in range(leading, end) if nodes[node].name == "SHFL.IDX")
    if not behind and effects(nodes[end]).writes & effects(nodes[hand]).reads:
        return "", 0
    board = nodes[leading].control.write_scoreboard
    assert board is not None
    waiting = replace(nodes[end], control=replace(nodes[end].control, wait_mask=1 << board))
    patched = with_instruction(program, name, end - first, waiting)
    assert verdicts(found, patched)[name] == (COMPLETE, "")
    reason = verdicts(found, hoisted(patched, name, hand + behind - first, end - first))[name][1]
    return reason, nodes[hand + (not behind)].offset


STRAIGHT = [name for name in BODIES if not name.startswith("places")]
"""No branch leads to what stands between the atomic and the clock."""


def test_a_clock_that_is_read_before_the_result_is_handed_on_is_caught() -> None:
    found = [(reason, offset) for reason, offset in (early(name, 0) for name in STRAIGHT) if reason]
    assert len(found) >= 2
    for reason, offset in found:
        assert reason == f"a part of the atomic, at 0x{offset:04x}, comes after the second clock read"


@pytest.mark.parametrize("name", STRAIGHT)
def test_a_clock_that_is_read_before_all_have_the_result_is_caught(name: str) -> None:
    """The atomic is complete by then, and what hands its result on has begun."""
    reason, _ = early(name, 1)
    assert "can execute without a wait for a part of the atomic" in reason


@pytest.mark.parametrize("waits", [False, True])
def test_a_clock_behind_both_ways_of_an_atomic_waits_for_what_hands_the_result_on(waits: bool) -> None:
    """Lanes that are not a whole warp do the atomic each for itself, which nothing hands on. The clock is read where both ways meet, right
    behind what hands on the result of a whole warp."""
    found, data = traced()
    program, (window, leading) = disassemble(data), windows()["places"]
    flow = AssembledModule(found.module, program).flow
    first, own = flow.entry("places"), min(window.accesses)
    end = min(node for node in window.ends if node > leading)
    hand = next(node for node in range(leading, end) if flow.nodes[node].name == "SHFL.IDX")
    branch = next(node for node in range(own, leading) if flow.nodes[node].opcode == "BRA")
    boards = [flow.nodes[node].control.write_scoreboard for node in (own, leading, *([hand] if waits else []))]
    low, clock = flow.nodes[end].operands[0].register, instruction("CS2R R200, SR_CLOCKLO")
    assert low is not None
    clock = replace(
        clock, ptx_line=flow.nodes[end].ptx_line, control=replace(clock.control, wait_mask=sum(1 << (one or 0) for one in boards))
    )
    program = exchanged(program, "places", end - first, instruction(f"MOV R{low.number}, R200"))
    program = inserted(program, "places", end + 1 - first, instruction(f"MOV R{low.number + 1}, R201"))
    program = inserted(inserted(program, "places", hand + 1 - first, label=".L_met"), "places", hand + 1 - first, clock)
    jump = instruction(re.sub(r"\(.*\)", "(.L_met)", flow.nodes[branch].text))
    program = exchanged(program, "places", branch - first, replace(jump, control=flow.nodes[branch].control))
    completeness, reason = verdicts(found, program)["places"]
    assert completeness == (COMPLETE if waits else ISSUE_ONLY), reason
    assert ("can execute without a wait for a part of the atomic" in reason) == (not waits)


def with_instruction(program: Program, kernel: str, index: int, one: Instruction) -> Program:
    function = program.functions[kernel]
    code = tuple(one if at == index else old for at, old in enumerate(function.instructions))
    return replace(program, functions={**program.functions, kernel: replace(function, instructions=code)})


# -- what is recorded and counted -------------------------------------------------------------------------------------------------

BLOCK = 64


@cache
def run(name: str) -> Run:
    out, counter = np.full(BLOCK * 4, -1, np.int64), np.zeros(1, np.int64)
    return Run(module((name,)), name, 1, BLOCK, (out, counter, np.uint32(3)))


def lanes_of(name: str, warp: int) -> list[int]:
    """The lanes of each execution of the atomic by one warp, as masks, by the text of the kernel; none where no lane comes to it."""
    threads = range(32 * warp, 32 * warp + 32)
    wanted = {
        "tickets_of_some": [[thread & 3 == 0 for thread in threads]],
        "tickets_again": [[thread + turn & 1 == 1 for thread in threads] for turn in range(3)],
        "places_of_some": [[thread <= 20 for thread in threads]],
    }
    masks = (sum(1 << lane for lane, here in enumerate(one) if here) for one in wanted.get(name, [[True] * 32]))
    return [mask for mask in masks if mask]


@pytest.mark.parametrize("name", ["tickets_of_some", "tickets_again", "places_of_some"])
def test_records_are_of_all_lanes_and_one_for_each_execution(name: str) -> None:
    result, decoded, found = run(name).traced(layout=buffer_layout(1 << 6, 4))
    (site,) = (one.id for one in found.sites if one.kind == "atomic")
    records = decoded.records[decoded.records["site"] == site]
    masks = sorted(int(one) for one in records["active_mask"])
    assert masks == sorted(mask for warp in range(2) for mask in lanes_of(name, warp))
    assert sorted(result) == sorted(run(name).plain())


@pytest.mark.parametrize("name", ["tickets_of_some"])
def test_counts_are_those_of_the_lanes_and_a_hint(name: str) -> None:
    """One lane accesses where the PTX says all do: the count says what the PTX does, and that the hardware does otherwise."""
    _, counts, _ = run(name).counted()
    (counted,) = (one for one in counts if one.site.is_atomic)
    executions = [mask for warp in range(2) for mask in lanes_of(name, warp)]
    assert (counted.requests, counted.lanes) == (len(executions), sum(mask.bit_count() for mask in executions))
    plain = module((name,))
    (verdict,) = (one for one in exactness(plain, cubin_of(plain)) if one.accesses and one.accesses[0].kind == "atomic")
    assert (verdict.verdict, verdict.reason) == (HINT, "ptxas first combines the values of a warp's lanes")


def test_tracing_says_when_it_changes_who_does_the_atomic() -> None:
    found, data = traced()
    (site,) = (one for one in found.positions["tickets"] if found.sites[one].kind == "atomic")
    plain = module()
    assert site not in {one.site for one in access_changes(plain, cubin_of(plain), found, data)}
    apart = assemble(plain, options=("-Xptxas=-O0",)).data
    (told,) = (str(one) for one in access_changes(plain, apart, found, data) if one.site == site)
    assert told == "1 x 4 B in the original, 1 x 4 B by one lane for all traced"


@pytest.mark.parametrize(
    ("opcode", "old", "new"),
    [
        ("SHFL", r"(SHFL.IDX PT, R\d+), R\d+", r"\1, R201"),
        ("FLO", r"(U?FLO.U32 \w+), (\w+)", r"\1, ~\2"),
        ("SHFL", r"0x1f", "0x1e1f"),
    ],
)
def test_another_register_is_not_what_the_leader_has(opcode: str, old: str, new: str) -> None:
    """Another one handed over, the lanes that did not vote, or a hand-over to a part of the warp."""
    found, data = traced()
    program, (_, leader) = disassemble(data), windows()["tickets"]
    flow = AssembledModule(found.module, program).flow
    first = flow.entry("tickets")
    nodes = range(leader, len(flow.nodes)) if opcode == "SHFL" else range(leader, first, -1)
    node = next(node for node in nodes if opcode in flow.nodes[node].opcode)
    text, count = re.subn(old, new, flow.nodes[node].text)
    assert count == 1, flow.nodes[node].text
    other = replace(flow.nodes[node], text=text, operands=instruction(text).operands)
    assert verdicts(found, with_instruction(program, "tickets", node - first, other))["tickets"][0] == ISSUE_ONLY


def handed_over(*behind: str) -> tuple[str, str]:
    """What is proved of `tickets` with more instructions behind the hand-over. `OLD` stands for what the atomic gave, `.L_behind` leads
    past the first four of them."""
    found, data = traced()
    program, (_, leader) = disassemble(data), windows()["tickets"]
    flow = AssembledModule(found.module, program).flow
    first = flow.entry("tickets")
    hand = next(node for node in range(leader, len(flow.nodes)) if flow.nodes[node].name == "SHFL.IDX")
    old = str(flow.nodes[hand].operands[2].register)
    added = [instruction(text.replace("OLD", old)) for text in behind]
    program = inserted(program, "tickets", hand + 1 - first, *added[4:])
    program = inserted(program, "tickets", hand + 1 - first, *added[:4], label=".L_behind")
    return verdicts(found, program)["tickets"]


def test_who_reads_what_the_atomic_gave_by_another_way_is_found() -> None:
    """However far behind the hand-over, and on whatever way."""
    nop, told = ["NOP"] * 3, "it is not known which lane"
    assert handed_over() == (COMPLETE, "")
    assert handed_over("MOV OLD, RZ", *nop, "MOV R201, OLD") == (COMPLETE, "")
    assert told in handed_over("MOV R201, OLD")[1]
    assert told in handed_over("@P5 MOV OLD, RZ")[1]
    assert told in handed_over("@P5 BRA `(.L_behind)", "MOV OLD, RZ", *nop[1:], "MOV R201, OLD")[1]
    assert told in handed_over("@P5 BRA `(.L_behind)", "MOV OLD, RZ", *nop[1:], *nop, "MOV R201, OLD")[1]
    assert handed_over("@P5 BRA `(.L_behind)", "MOV OLD, RZ", *nop[1:], "MOV OLD, RZ", "MOV R201, OLD") == (COMPLETE, "")

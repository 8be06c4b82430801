"""Where lanes of a warp may be apart: in code written by hand, and in what ptxas makes of kernels that drive them apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.exact_accesses import EXACT, HINT, exactness
from memlane.audit.grouping import AHEAD
from memlane.audit.reconvergence import MAY_NOT_RECONVERGE, Reconvergence
from memlane.compile import cuda
from memlane.errors import MissingDependency
from memlane.instrument.sites import site_table
from memlane.ptx import Module
from memlane.sass import disassemble
from memlane.targets import target
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of, listing

DIVERGENCE = Path(__file__).parents[2] / "benchmarks" / "kernels" / "divergence.cu"
SERVED = "so they may be grouped differently"
RETURN = "RET.ABS.NODEC R20 0x0"


def compiled(source: str | Path) -> Module:
    try:
        return cuda(source, arch="sm_90")
    except MissingDependency as absent:
        pytest.skip(str(absent))


# -- written by hand -----------------------------------------------------------------------------------------------------------------


def apart(*bodies: str, of: str = "k") -> dict[int, str]:
    """By number, of the stores `ST n` at which lanes may be apart: from what they returned, in words; empty for a branch.

    `bodies`: of the kernel k and of functions f, g and so on. A line is an instruction or a label.
    """
    functions = []
    for name, body in zip("kfgh", bodies, strict=False):
        lines = [line.strip() for part in body.split(";") for line in part.strip().split("\n") if line.strip()]
        functions.append((name, "\n".join(line if line.endswith(":") else f"- - {_stored(line)}" for line in lines)))
    code = AssembledModule(kernel("ret;"), listing(*functions))
    found = Reconvergence(code).diverged(of)
    stores = {node: int(one.text.rpartition("R")[2]) for node, one in enumerate(code.flow.nodes) if one.opcode == "STG"}
    for reason in found.values():
        assert reason.endswith(f"{MAY_NOT_RECONVERGE}, {SERVED}")
    return {stores[node]: reason.partition(" from ")[2].partition(", and")[0] for node, reason in found.items() if node in stores}


def _stored(line: str) -> str:
    return f"STG.E desc[UR4][R2.64], R{line[3:]}" if line.startswith("ST ") else line


def branch(inside: str, behind: str = "BSYNC B0; .L_e:; ST 2; EXIT", before: str = "BSSY B0, `(.L_e)") -> dict[int, str]:
    """A branch around `inside`, which comes to L_j behind it."""
    return apart(f"ST 0; {before}; @P0 BRA `(.L_j); ST 1; {inside}; .L_j:; {behind}")


def test_lanes_wait_at_the_barrier_that_they_set_together() -> None:
    assert branch("NOP") == {}
    assert branch("NOP", "ST 3; BSYNC B0; .L_e:; ST 2; EXIT") == {3: ""}
    assert branch("BSSY B1, `(.L_i); @P1 BRA `(.L_n); ST 4; .L_n:; BSYNC B1; .L_i:; ST 5") == {}


def test_a_barrier_of_one_side_joins_one_side() -> None:
    inside = "BSSY B1, `(.L_i); @P1 BRA `(.L_n); ST 4; .L_n:; BSYNC B1; .L_i:; NOP"
    assert branch(inside, "ST 3; BSYNC B0; .L_e:; ST 2; EXIT") == {3: ""}


def test_a_branch_without_a_barrier_is_uniform_in_a_kernel() -> None:
    assert branch("NOP", "ST 2; EXIT", before="NOP") == {}


def test_in_a_function_it_is_not() -> None:
    function = "ST 0; @P0 BRA `(.L_j); ST 1; .L_j:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("CALL.ABS.NOINC `(f); ST 9; EXIT", function, of="f") == {2: ""}
    assert apart("CALL.ABS.NOINC `(f); ST 9; EXIT", function) == {9: "a call of f"}
    joined = "BSSY B0, `(.L_e); @P0 BRA `(.L_j); ST 1; .L_j:; BSYNC B0; .L_e:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("CALL.ABS.NOINC `(f); ST 9; EXIT", joined) == apart("CALL.ABS.NOINC `(f); ST 9; EXIT", joined, of="f") == {}


@pytest.mark.parametrize("predicate", ["ISETP.NE.AND P0, PT, R4, RZ, PT", "ISETP.GE.AND P0, PT, R4, c[0x0][0x210], PT"])
@pytest.mark.parametrize(
    ("value", "uniform"),
    [
        ("LDC R4, c[0x0][0x220]", True),
        ("S2R R4, SR_CTAID.X", True),
        ("S2R R4, SR_TID.X", False),
        ("MOV R6, UR8; IADD3 R4, R6, UR9, RZ", True),
        ("LDL R4, [UR6]", False),
        ("CS2R R4, SR_CLOCKLO", False),
        ("S2R R9, SR_LANEID; ISETP.NE.AND P3, PT, R9, RZ, PT; @P3 MOV R4, UR8", False),
        ("MOV R4, 0x1; .L_t:; IADD3 R4, R4, 0x1, RZ; @!UP0 BRA `(.L_t)", False),
    ],
)
def test_a_predicate_of_constants_is_uniform_in_a_function_too(value: str, uniform: bool, predicate: str) -> None:
    function = f"{value}; {predicate}; @P0 BRA `(.L_j); ST 1; .L_j:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("CALL.ABS.NOINC `(f); EXIT", function, of="f") == ({} if uniform else {2: ""})


def test_a_uniform_register_is_uniform() -> None:
    function = "@!UP0 BRA `(.L_j); ST 1; .L_j:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("CALL.ABS.NOINC `(f); EXIT", function, of="f") == {}


def test_a_jump_table_is_a_branch() -> None:
    table = 'BSSY B0, `(.L_e); BRX R8 -0x120 (*"BRANCH_TARGETS .L_1,.L_2,.L_3"*); .L_1:; ST 1; BRA `(.L_j); .L_2:; ST 2; .L_3:; ST 3; '
    assert apart(table + ".L_j:; BSYNC B0; .L_e:; ST 4; EXIT") == {3: ""}
    assert apart("EXIT", table.partition("; ")[2] + ".L_j:; ST 4; RET.ABS.NODEC R20 0x0", of="f") == {3: "", 4: ""}


def test_a_warp_takes_some_jumps_as_a_whole() -> None:
    assert apart("BSSY B0, `(.L_e); BRA.DIV UR4, `(.L_j); ST 1; .L_j:; ST 2; BSYNC B0; .L_e:; EXIT") == {}


def test_branches_of_a_function_that_do_not_diverge() -> None:
    """As ptxas has it: the turns of a loop are constant, and no barrier is around it."""
    source = """
    __device__ __noinline__ int sum(const int* a, int i) {
        int sum = 0;
    #pragma unroll 1
        for (int k = 0; k < TURNS; ++k) sum = sum * 3 + a[k * 32 + i];
        return sum;
    }
    extern "C" __global__ void k(int* out, const int* a) { out[threadIdx.x] = sum(a, threadIdx.x); }
    """
    module = compiled(source.replace("TURNS", "100"))
    program = disassemble(cubin_of(module))
    (function,) = (one for name, one in program.functions.items() if name != "k")
    assert any(one.opcode == "BRA" and one.guard is not None for one in function.instructions)
    assert not any(one.opcode == "BSSY" for one in function.instructions)
    assert {one.reason for one in exactness(module, program)} == {""}
    diverging = compiled(source.replace("TURNS", "i"))
    assert any(one.opcode == "BSSY" for _, one in disassemble(cubin_of(diverging)).instructions())
    assert {one.reason for one in exactness(diverging, cubin_of(diverging))} == {""}


@pytest.mark.parametrize(
    ("condition", "uniform"),
    [
        ("ISETP.NE.AND P0, PT, R9, RZ, PT", True),
        ("ISETP.NE.AND P0, PT, R9, RZ, P1", False),
        ("PLOP3.LUT P0, PT, P1, P2, PT, 0xa8, 0x0", False),
    ],
)
def test_a_branch_that_may_be_two_is_not_that_of_its_line(condition: str, uniform: bool) -> None:
    """The branch of the PTX does not diverge; the assembler may have joined another one with it."""
    function = """.func f() {
        .reg .pred %q; .reg .u32 %r; mov.u32 %r, %ctaid.x; setp.eq.u32 %q, %r, 0;
        @%q bra done;
        membar.gl;
    done: ret; }"""
    module = kernel("call f; ret;", before=function)
    program = listing(("k", "- - EXIT"), ("f", f"- - {condition}\n- - @P0 BRA `(.L_j)\n- - NOP\n.L_j:\n- - NOP\n- - {RETURN}"))
    lines, code = AssembledModule(module, program).lines("f"), list(program.functions["f"].instructions)
    code[1] = replace(code[1], ptx_line=lines[2])
    program = replace(program, functions={**program.functions, "f": replace(program.functions["f"], instructions=tuple(code))})
    found = Reconvergence(AssembledModule(module, program))
    assert found.may_diverge(2) is False
    assert (found.diverged("f") == {}) == uniform


# -- barriers that are left, set anew, moved -----------------------------------------------------------------------------------------

LEFT = (
    "BSSY B0, `(.L_e); BSSY B1, `(.L_i); @P0 BRA `(.L_n); ST 1; {}; .L_n:; BSYNC B1; .L_i:; ST 2;.L_o:; ST 3; BSYNC B0; .L_e:; ST 4; EXIT"
)


def test_lanes_that_break_out_of_a_barrier_are_not_waited_for() -> None:
    """They go around the store behind the barrier, and come to the one behind that before the others."""
    guarded, all_ = "@P1 BREAK B1; @P1 BRA `(.L_o); ST 5", "BREAK B1; BRA `(.L_o)"
    assert apart(LEFT.format(guarded)) == apart(LEFT.format(all_)) == {3: ""}
    assert apart(LEFT.format("ST 5")) == {}


def test_where_none_is_broken_out_of_lanes_go_on_together() -> None:
    assert apart(LEFT.format("@P1 EXIT")) == {}


def test_a_barrier_that_is_set_anew_joins_those_who_set_it() -> None:
    """Lanes leave B1 one after another and each group sets it for itself: it brings them together with nobody."""
    again = "BREAK B1; BRA `(.L_o)"
    body = LEFT.format(again).replace(".L_o:; ST 3;", ".L_o:; BSSY B1, `(.L_p); ST 3; BSYNC B1; .L_p:; ST 6;")
    assert apart(body) == {3: "", 6: ""}


def test_a_barrier_that_each_group_sets_for_itself_joins_nobody() -> None:
    body = "BSSY B1, `(.L_e); @P0 BRA `(.L_j); ST 1; .L_j:; BSSY B1, `(.L_e); ST 2; BSYNC B1; .L_e:; ST 3; EXIT"
    assert apart(body) == {2: "", 3: ""}


def test_a_barrier_must_be_set_on_every_way() -> None:
    function = "@!UP0 BRA `(.L_s); {} .L_s:; @P0 BRA `(.L_j); ST 1; .L_j:; BSYNC B0; .L_e:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("EXIT", function.format("BSSY B0, `(.L_e);"), of="f") == {2: ""}
    assert apart("EXIT", "BSSY B0, `(.L_e);" + function.format(""), of="f") == {}


def test_a_barrier_in_a_register_comes_back() -> None:
    """In front of a branch it is the same one, behind it the assembler may have put another one into the register."""
    moved = "BSSY B0, `(.L_e); BMOV.32.CLEAR R9, B0; NOP; BMOV.32 B0, R9; @P0 BRA `(.L_j); ST 1; .L_j:; {} BSYNC B0; .L_e:; ST 2; EXIT"
    assert apart(moved.format("")) == {}
    assert apart(moved.format("BMOV.32 B0, R9;")) == {2: ""}


def test_a_barrier_that_was_moved_into_a_register_joins_nobody() -> None:
    moved = "BSSY B0, `(.L_e); {} @P0 BRA `(.L_j); ST 1; .L_j:; BSYNC B0; .L_e:; ST 2; RET.ABS.NODEC R20 0x0"
    assert apart("EXIT", moved.format(""), of="f") == {}
    assert apart("EXIT", moved.format("BMOV.32.CLEAR R9, B0;"), of="f") == {2: ""}


@pytest.mark.parametrize(
    ("between", "joins"),
    [
        ("WARPSYNC.ALL", True),
        ("WARPSYNC.ALL; BAR.SYNC.DEFER_BLOCKING 0x0", True),
        ("WARPSYNC R5", False),
        ("WARPSYNC 0xffffffff", False),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", False),
        ("BRA.DIV UR4, `(.L_d); .L_c:; NOP", False),
        ("YIELD", False),
        ("NANOSLEEP 0x14", False),
        ("SHFL.BFLY PT, R9, R8, 0x1, 0x1f", False),
        ("VOTE.ANY R9, PT, PT", False),
    ],
)
def test_what_brings_the_lanes_of_a_warp_together(between: str, joins: bool) -> None:
    """Behind a call through a pointer."""
    slow = ".L_d:; WARPSYNC.COLLECTIVE R15, `(.L_x); NOP; ENDCOLLECTIVE; .L_x:; BRA `(.L_c)" if ".L_c" in between else ""
    found = apart(f"ST 0; CALL.ABS.NOINC R6; ST 1; {between}; ST 2; EXIT; {slow}")
    assert found == {1: "a call through a pointer"} | ({} if joins else {2: "a call through a pointer"})


# -- calls ---------------------------------------------------------------------------------------------------------------------------


def test_lanes_return_apart_from_a_call_through_a_pointer() -> None:
    assert apart("ST 0; CALL.ABS.NOINC R6; ST 1; EXIT") == {1: "a call through a pointer"}
    assert apart("BSSY B6, `(.L_e); CALL.ABS.NOINC R6; ST 1; BSYNC B6; .L_e:; ST 2; EXIT") == {1: "a call through a pointer"}
    assert apart("ST 0; .L_a:; ST 1; CALL.ABS.NOINC R6; @P0 BRA `(.L_a); ST 2; EXIT") == dict.fromkeys((1, 2), "a call through a pointer")


def test_a_predicated_call_is_a_call() -> None:
    assert apart("@P0 CALL.ABS.NOINC R6; ST 1; EXIT") == {1: "a call through a pointer"}
    assert apart("@P0 CALL.ABS.NOINC `(f); ST 1; EXIT", RETURN) == {}


@pytest.mark.parametrize(
    ("function", "together"),
    [
        (RETURN, True),
        (f"@P0 EXIT; {RETURN}", True),
        (f"@P0 {RETURN}; ST 9; {RETURN}", False),
        (f"@P0 BRA `(.L_a); {RETURN}; .L_a:; ST 9; {RETURN}", False),
        (f"@P0 BRA `(.L_a); EXIT; .L_a:; ST 9; {RETURN}", True),
        (f"@P0 BRA `(.L_a); BPT.TRAP 0x1; .L_a:; ST 9; {RETURN}", True),
        (f".L_b:; ST 9; @P0 BRA `(.L_b); {RETURN}", False),
        (f"BSSY B0, `(.L_e); @P0 BRA `(.L_a); EXIT; .L_a:; BSYNC B0; .L_e:; {RETURN}", True),
        (f"BSSY B0, `(.L_e); @P0 BRA `(.L_a); BREAK B0; {RETURN}; .L_a:; BSYNC B0; .L_e:; {RETURN}", False),
        (f"CALL.ABS.NOINC R6; {RETURN}", False),
        (f"CALL.ABS.NOINC R6; WARPSYNC.ALL; {RETURN}", True),
        (f"CALL.ABS.NOINC `(g); {RETURN}", True),
        (f"CALL.ABS.NOINC `(f); {RETURN}", False),
        (f"CALL.ABS.NOINC `(vprintf); {RETURN}", False),
    ],
)
def test_lanes_return_together_from_a_function_or_not(function: str, together: bool) -> None:
    assert apart("CALL.ABS.NOINC `(f); ST 1; EXIT", function, RETURN) == ({} if together else {1: "a call of f"})


def test_functions_that_call_each_other_come_to_an_end() -> None:
    bodies = f"CALL.ABS.NOINC `(g); {RETURN}", f"@P0 {RETURN}; CALL.ABS.NOINC `(f); {RETURN}"
    assert apart("CALL.ABS.NOINC `(f); ST 1; EXIT", *bodies) == {1: "a call of f"}


@pytest.mark.parametrize("back", ["YIELD", "NANOSLEEP 0x14", "NANOSLEEP R7"])
def test_lanes_that_step_back_are_not_waited_for(back: str) -> None:
    """Nor do the others wait for them; in front of the branch, and behind the barrier, they are together."""
    assert branch(back) == {2: ""}
    assert branch("NOP", "ST 3; BSYNC B0; .L_e:; ST 2; EXIT", before=f"{back}; BSSY B0, `(.L_e)") == {3: ""}
    assert branch("NOP", f"BSYNC B0; .L_e:; {back}; ST 2; EXIT") == {}
    loop = "BSSY B0, `(.L_e); .L_t:; {}; @!P0 BRA `(.L_t); ST 1; BSYNC B0; .L_e:; ST 2; EXIT"
    assert apart(loop.format(back)) == {1: "", 2: ""}
    assert apart(loop.format("NOP")) == {1: ""}


def test_code_that_is_not_there_may_do_anything() -> None:
    assert apart("CALL.ABS.NOINC `(vprintf); ST 1; EXIT") == {1: "a call of vprintf"}


def test_a_part_of_a_kernel_that_it_calls_is_a_function() -> None:
    called = "CALL.REL.NOINC `(.L_f); ST 1; EXIT; .L_f:; {} @P0 BRA `(.L_g); ST 2; .L_g:; {} ST 3; RET.REL.NODEC R2 `(k)"
    assert apart(called.format("", "")) == {1: "a call of .L_f", 3: ""}
    assert apart(called.format("BSSY B0, `(.L_h);", "BSYNC B0; .L_h:;")) == {}


# -- as ptxas writes it ---------------------------------------------------------------------------------------------------------------

POINTER, RECURSION, BRANCH = "a call through a pointer", "a call of fibonacci", ""
APART_IN: dict[str, list[tuple[str, str]]] = {
    "pointer": [("st.global.u32", POINTER)],
    "pointer_twice": [("st.global.u32", POINTER)],
    "pointer_in_turns": [("ld.global.u32", POINTER), ("ld.global.u64", POINTER)] * 3 + [("st.global.u32", POINTER)],
    "pointer_before_syncwarp": [("st.global.u32", POINTER)],
    "pointer_before_shuffle": [("st.global.u32", POINTER)],
    "pointer_in_function": [("st.global.u32", "a call of nested")],
    "method": [("st.global.u32", POINTER)],
    "recursion": [("st.global.u32", RECURSION)],
    "out_of_two_loops": [("ld.global.u32", BRANCH)],
    "out_through_store": [("ld.global.u32", BRANCH), ("st.global.u32", BRANCH)],
    "two_entrances": [("ld.global.u32", "")] * 2,
    "two_back_edges": [("st.global.u32", BRANCH)],
    "jump_table": [("ld.global.u32", BRANCH)],
    "sleeps": [("st.global.u32", BRANCH)] * 2,
    "lock": [("st.global.u32", BRANCH)],
}
"""By kernel its accesses at which lanes may be apart; all others are exact."""


@pytest.fixture(scope="module")
def divergence() -> Module:
    return compiled(DIVERGENCE)


def test_ways_in_which_the_assembler_keeps_lanes_apart(divergence: Module) -> None:
    verdicts = {one.site: one for one in exactness(divergence, cubin_of(divergence))}
    for name, sites in site_table(divergence).of_kernel.items():
        found = [(site, verdicts[site.id]) for site in sites.values() if site.space != "local"]
        assert any(one.verdict == EXACT for _, one in found), name
        told = [(site.op, one.reason) for site, one in found if one.verdict == HINT]
        assert all(reason.endswith(AHEAD if name == "two_entrances" else f"{MAY_NOT_RECONVERGE}, {SERVED}") for _, reason in told), name
        causes = [(op, reason.partition(" from ")[2].partition(" in line")[0]) for op, reason in told]
        assert causes == APART_IN.get(name, []), name


def test_the_reason_names_the_line_of_the_call(divergence: Module) -> None:
    verdicts = {one.site: one for one in exactness(divergence, cubin_of(divergence))}
    (*_, store) = site_table(divergence).of_kernel["pointer"].values()
    assert verdicts[store.id].reason == (
        "the lanes of a warp may return one after another from a call through a pointer in line 16, "
        "and the assembled code may not bring the lanes of a warp together before it, so they may be grouped differently"
    )


ARM = """
    .reg .u32 %i, %v<4>; .reg .u64 %a, %o; .reg .pred %q;
    mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 16; ld.param.u64 %a, [p]; add.u64 %a, %a, %o;
    mov.u32 %v0, {}; mul.lo.u32 %v0, %v0, 5; and.b32 %v0, %v0, 4; setp.eq.u32 %q, %v0, 0;
    @%q bra done;
    st.global.u32 [%a], %v0; membar.gl; st.global.u32 [%a+4], %v0; membar.gl;
done:
    st.global.u32 [%a+8], %v0; ret;
"""


@pytest.mark.parametrize(("register", "kept", "behind"), [("%tid.y", True, []), ("%tid.y", False, [""]), ("%ctaid.x", False, [])])
def test_a_branch_without_a_barrier_must_be_one_that_does_not_diverge(register: str, kept: bool, behind: list[str]) -> None:
    """The assembler has put a barrier around it where it may; here it is taken away."""
    module = kernel(ARM.format(register))
    program = disassemble(cubin_of(module))
    code = program.functions["k"]
    assert any(one.opcode == "BSSY" for one in code.instructions) == (register == "%tid.y")
    without = [replace(one, opcode="NOP", operands=()) if one.opcode in ("BSSY", "BSYNC") else one for one in code.instructions]
    if not kept:
        program = replace(program, functions={"k": replace(code, instructions=tuple(without))})
    reasons = [one.reason for one in exactness(module, program)]
    assert reasons[:2] == ["", ""]
    assert reasons[2:] == [f"{MAY_NOT_RECONVERGE}, {SERVED}" if behind else ""]


BACK = """
    .reg .u32 %i, %k, %x, %s, %t, %m; .reg .u64 %a, %o; .reg .pred %q;
    mov.u32 %i, {register}; mul.wide.u32 %o, %i, 4; ld.param.u64 %a, [p]; add.u64 %a, %a, %o; mov.u32 %k, 0; mov.u32 %s, 0;
    bra {entrance};
again:
    ld.global.u32 %x, [%a]; membar.gl; add.u64 %a, %a, 512; add.u32 %s, %s, %x; add.u32 %k, %k, 1; setp.ge.u32 %q, %k, 9;
    @%q bra done;
    and.b32 %m, %s, %i; setp.ne.u32 %q, %m, 0;
    @%q bra {back};
other:
    ld.global.u32 %x, [%a+8]; mad.lo.u32 %s, %x, 3, %s; membar.gl;
last:
    bra again;
done:
    st.global.u32 [%a], %s; ret;
"""


@pytest.mark.parametrize(
    ("register", "entrance", "back", "ahead"),
    [
        ("%tid.x", "again", "again", True),
        ("%tid.x", "again", "last", False),
        ("%ctaid.x", "again", "again", False),
    ],
)
def test_a_loop_with_several_ways_back(register: str, entrance: str, back: str, ahead: bool) -> None:
    """On PTX lanes that begin the next turn run ahead of those that have not ended the last; the assembler has one way back, and waits."""
    module = kernel(BACK.format(register=register, entrance=entrance, back=back))
    _, load, store = exactness(module, cubin_of(module))
    assert load.reason == (AHEAD if ahead else "")
    assert store.reason == ""


def test_lanes_run_ahead_on_ptx() -> None:
    """The second load is made by even numbers: by all lanes of one turn together if they wait at the way back."""
    rows = np.random.default_rng(3).integers(0, 8, (16, 128)).astype("i4")
    emulator = target("emulator:h200")
    sectors = {}
    for back in ("again", "last"):
        module = kernel(BACK.format(register="%tid.x", entrance="again", back=back).replace("and.b32 %m, %s, %i", "and.b32 %m, %s, 1"))
        _, load, _ = ml.count(emulator.load(module)["k"][1, 32], emulator.array(rows)).sites
        sectors[back] = load.lanes, load.sectors
    assert sectors["again"][0] == sectors["last"][0]
    assert sectors["again"][1] > sectors["last"][1] == _sectors_by_turn(rows)


def _sectors_by_turn(rows: np.ndarray) -> int:
    sums, found = np.zeros(32, "i8"), 0
    flat = rows.reshape(-1)
    for turn in range(8):
        words = np.arange(32) + turn * 128
        sums += flat[words]
        even = sums % 2 == 0
        found += len(set((words[even] + 130) // 8))
        sums[even] += 3 * flat[words[even] + 130]
    return found

"""Inner blocks taken out of a function: names stay apart, and mean what they meant."""

from __future__ import annotations

from memlane import ptx
from memlane.ptx import ControlFlow, Register, RegisterDecl, flatten_scopes, print_statements
from tests.ptx.modules import CASES, kernel


def flat(body: str, params: str = ".param .u64 a") -> list[str]:
    """The lines of a flattened body behind its registers."""
    function = flatten_scopes(kernel(body, params))
    assert function.body is not None
    return [line.strip() for line in print_statements(function.body.statements, "").splitlines()][6:]


def test_a_flat_function_is_left_alone() -> None:
    function = kernel("mov.u32 %r1, 1; ret;")
    assert flatten_scopes(function) is function


def test_siblings_that_use_the_same_names() -> None:
    assert flat("{ .reg .b32 t; mov.b32 t, 1; } { .reg .b32 t; mov.b32 t, 2; }") == [
        ".reg .b32 t;",
        "mov.b32 t, 1;",
        ".reg .b32 t__1;",
        "mov.b32 t__1, 2;",
    ]


def test_an_inner_name_hides_the_outer_one_inside_its_block_only() -> None:
    assert flat(".reg .b32 x; { .reg .b32 x; mov.b32 x, 1; { .reg .b32 x; @%p1 mov.b32 x, 2; } add.s32 x, x, 3; } mov.b32 x, 4;") == [
        ".reg .b32 x;",
        ".reg .b32 x__1;",
        "mov.b32 x__1, 1;",
        ".reg .b32 x__2;",
        "@%p1 mov.b32 x__2, 2;",
        "add.s32 x__1, x__1, 3;",
        "mov.b32 x, 4;",
    ]


def test_guards_labels_and_tables_follow() -> None:
    block = "{ .reg .pred p; @p bra done; T: .branchtargets done; brx.idx %r1, T; done: }"
    assert flat(block + block) == [
        ".reg .pred p;",
        "@p bra done;",
        "T:",
        ".branchtargets done;",
        "brx.idx %r1, T;",
        "done:",
        ".reg .pred p__1;",
        "@p__1 bra done__1;",
        "T__1:",
        ".branchtargets done__1;",
        "brx.idx %r1, T__1;",
        "done__1:",
    ]


def test_ranges_of_registers_keep_their_numbers_and_avoid_others() -> None:
    lines = flat(".reg .b32 t1__; { .reg .b32 t<2>; mov.b32 t0, t1; } { .reg .b32 t<2>; mov.b32 t0, t1; }")
    assert lines[1:] == [".reg .b32 t<2>;", "mov.b32 t0, t1;", ".reg .b32 t__1_<2>;", "mov.b32 t__1_0, t__1_1;"]


def test_parameters_of_calls() -> None:
    call = "{ .param .b32 param0; st.param.b32 [param0], %r1; call f, (param0); }"
    assert flat(call + call) == [
        ".param .b32 param0;",
        "st.param.b32 [param0], %r1;",
        "call f, (param0);",
        ".param .b32 param0__1;",
        "st.param.b32 [param0__1], %r1;",
        "call f, (param0__1);",
    ]


def test_a_name_that_means_something_outside_is_not_captured() -> None:
    """`a` is a parameter of the kernel: the block that declares its own `a` gives way, also if it stands first."""
    lines = flat("{ .reg .b64 a; mov.b64 a, 1; } { ld.param.u64 %rd1, [a]; }")
    assert lines == [".reg .b64 a__1;", "mov.b64 a__1, 1;", "ld.param.u64 %rd1, [a];"]
    lines = flat("{ .shared .b32 tile; st.shared.b32 [tile], 1; } { ld.global.u32 %r1, [tile]; }")
    assert lines == [".shared .b32 tile__1;", "st.shared.b32 [tile__1], 1;", "ld.global.u32 %r1, [tile];"]


def test_inline_assembly_as_compilers_write_it() -> None:
    text = next(path for path in CASES if path.stem == "generic").read_text()
    function = flatten_scopes(ptx.parse(text).kernels["kernel"])
    assert function.body is not None
    names = [statement.name for statement in function.body.statements if isinstance(statement, RegisterDecl | ptx.Label)]
    assert len(names) == len(set(names))
    assert {"alo", "alo__1", "ahi__1", "done", "done__1"} <= set(names)
    instructions = list(function.body.instructions())
    again = next(instruction for instruction in instructions if instruction.name == "mad.lo.cc.u32")
    assert again.operands[:3] == (Register("alo__1"), Register("alo__1"), Register("ahi__1"))
    assert len(ControlFlow(function).blocks) == 5

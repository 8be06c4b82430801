"""Functions in the place of their calls: against plain Python, and against the module that calls them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.compile import assemble
from memlane.ptx import Block, Directive, Instruction, Module, Variable, inline_calls, inlining, parse, print_module, verify
from memlane.sass import disassemble
from tests.emulate.running import HEAD, emulator, program

RESULT = "st.global.u64 [%mine], %rd1; ret;"


def module_of(body: str, before: str) -> Module:
    return parse(program(body, before=before), "calls.ptx")


def inlined(module: Module) -> Module:
    """The module with everything inlined, which makes sense, says the same when it is read again, and is left alone the second time."""
    found = inline_calls(module)
    assert not found.left
    assert "call" not in {one.opcode for one in found.module.kernels["k"].body.instructions()}  # type: ignore[union-attr]
    verify(found.module)
    assert parse(print_module(found.module), module.name) == found.module
    assert inline_calls(found.module).module is found.module
    return found.module


def left_by(module: Module) -> list[int]:
    target = emulator()
    out = target.zeros(32, np.uint64)
    target.load(module)["k"][1, 32](out)
    return [int(word) for word in out.numpy()]


def check(body: str, before: str, expected: list[int]) -> Module:
    """Both modules leave what is expected."""
    module = module_of(body, before)
    done = inlined(module)
    assert left_by(module) == expected
    assert left_by(done) == expected
    return done


# -- parameters: what is stored in some widths is loaded in others ----------------------------------------------------------------

STORED = "f1e2d3c4b5a69788"
BYTES = bytes.fromhex(STORED)[::-1]
WORD = f"0x{STORED}"


def of_bytes(offset: int, nbytes: int, signed: bool = False) -> int:
    return int.from_bytes(BYTES[offset : offset + nbytes], "little", signed=signed) & 0xFFFF_FFFF_FFFF_FFFF


LOADS = {
    "u64": ("ld.param.u64 %rd2, [s];", of_bytes(0, 8)),
    "u32": ("ld.param.u32 %r2, [s+4]; cvt.u64.u32 %rd2, %r2;", of_bytes(4, 4)),
    "wider": ("ld.param.u16 %rd2, [s+2];", of_bytes(2, 2)),
    "sign": ("ld.param.s16 %rd2, [s+6];", of_bytes(6, 2, signed=True)),
    "byte": ("ld.param.u8 %h2, [s+5]; cvt.u64.u16 %rd2, %h2;", of_bytes(5, 1)),
    "signed byte": ("ld.param.s8 %r2, [s+7]; cvt.s64.s32 %rd2, %r2;", of_bytes(7, 1, signed=True)),
    "floating": ("ld.param.f64 %fd2, [s]; mov.b64 %rd2, %fd2;", of_bytes(0, 8)),
    "vector": ("ld.param.v2.u32 {%r2, %r3}, [s]; mov.b64 %rd2, {%r3, %r2};", of_bytes(0, 4) << 32 | of_bytes(4, 4)),
    "part": ("ld.param.v4.u8 {_, _, %h2, _}, [s+4]; cvt.u64.u16 %rd2, %h2;", of_bytes(6, 1)),
}
STORES = {
    "whole": f"mov.b64 %rd1, {WORD}; st.param.b64 [a], %rd1;",
    "floating": f"mov.b64 %fd1, 0d{STORED}; st.param.f64 [a], %fd1;",
    "number": f"st.param.b64 [a], {WORD};",
    "halves": f"mov.b64 %rd1, {WORD}; mov.b64 {{%r1, %r2}}, %rd1; mov.b32 %f1, %r2; st.param.b32 [a], %r1; st.param.f32 [a+4], %f1;",
    "vector": f"mov.b64 %rd1, {WORD}; mov.b64 {{%h1, %h2, %h3, %h4}}, %rd1; st.param.v4.b16 [a], {{%h1, %h2, %h3, %h4}};",
    "bytes": f"mov.b64 %rd1, {WORD};" + "".join(f"st.param.b8 [a+{at}], %rd1; shr.u64 %rd1, %rd1, 8;" for at in range(8)),
    "numbers": "".join(f"st.param.b8 [a+{at}], {byte};" for at, byte in enumerate(BYTES)),
}
FORMAL = ".reg .b64 %rd<3>; .reg .f64 %fd<3>; .reg .b32 %r<4>; .reg .b16 %h<4>;"
TOUCH = "ld.global.u64 %rd1, [words]; add.u64 %rd2, %rd2, %rd1;"
"""An access, without which nothing is inlined; it loads a zero."""
ZERO = ".global .u64 words[1];"


@pytest.mark.parametrize("store", STORES)
def test_parts_of_a_structure_in_every_width(store: str) -> None:
    """One function loads all of it in one way, so that there is one for each; all are called with what was stored in one way."""
    names = list(LOADS)
    functions = "".join(
        f".func (.param .b64 r) f{number}(.param .align 8 .b8 s[8]) {{ {FORMAL} {LOADS[name][0]} {TOUCH} st.param.b64 [r], %rd2; ret; }}\n"
        for number, name in enumerate(names)
    )
    calls = "".join(
        f"{{ .param .align 8 .b8 a[8]; .param .b64 r; {STORES[store]} call (r), f{number}, (a); ld.param.b64 %rd3, [r]; "
        f"mad.lo.u64 %rd9, %rd9, 1000003, %rd3; }}\n"
        for number in range(len(names))
    )
    expected = 0
    for name in names:
        expected = (expected * 1000003 + LOADS[name][1]) % (1 << 64)
    check(f"mov.b64 %rd9, 0; {calls} st.global.u64 [%mine], %rd9; ret;", ZERO + functions, [expected] * 32)


def test_parameters_that_are_registers_and_numbers_that_are_passed() -> None:
    function = (
        ".func (.reg .b32 sum) add3(.reg .b32 a, .param .b32 b, .reg .b32 c)"
        " { .reg .b32 %r<3>; .reg .b64 x; ld.global.u64 x, [words]; cvt.u32.u64 sum, x; ld.param.u32 %r1, [b];"
        " add.u32 sum, sum, a; add.u32 sum, sum, %r1; add.u32 sum, sum, c; ret; }"
    )
    body = ".reg .b32 plain; add.u32 plain, %tid, 1; call (plain), add3, (plain, 100, %tid); cvt.u64.u32 %rd1, plain; " + RESULT
    check(body, ZERO + function, [2 * lane + 101 for lane in range(32)])


# -- control flow -----------------------------------------------------------------------------------------------------------------

EARLY = """
.func (.param .b32 r) steps(.param .b32 n) {
    .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<3>;
    ld.param.u32 %r1, [n];
    ld.global.u64 %rd1, [words];
    mov.u32 %r2, 0;
    st.param.b32 [r], %r2;
    setp.eq.u32 %p1, %r1, 3;
    @%p1 ret;
MORE:
    setp.ge.u32 %p2, %r2, %r1;
    @%p2 bra DONE;
    add.u32 %r2, %r2, 1;
    setp.eq.u32 %p1, %r2, 9;
    @!%p1 bra MORE;
    st.param.b32 [r], 1000;
    ret;
DONE:
    st.param.b32 [r], %r2;
}
"""


def steps(n: int) -> int:
    return 0 if n == 3 else 1000 if n >= 9 else n


def test_lanes_that_return_early_go_on_together_behind_the_call() -> None:
    body = """
        { .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; call (r), steps, (a); ld.param.b32 %r1, [r]; }
        activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 10000, %r1; cvt.u64.u32 %rd1, %r1; """
    check(body + RESULT, ZERO + EARLY, [320000 + steps(lane) for lane in range(32)])


@pytest.mark.parametrize("guard", ["@%p1", "@!%p1"])
def test_a_guarded_call(guard: str) -> None:
    """A call with that guard, and below it a plain call of the same function in a loop; the labels are the same ones each time."""
    body = f"""
        setp.lt.u32 %p1, %tid, 5; mov.u32 %r1, 7; mov.u32 %r4, 0;
    MORE:
        {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; {guard} call (r), steps, (a); {guard} ld.param.b32 %r1, [r]; }}
        {{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r4; call (r), steps, (a); ld.param.b32 %r3, [r]; }}
        add.u32 %r1, %r1, %r3; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra MORE;
        cvt.u64.u32 %rd1, %r1; """
    calls = (lambda lane: lane < 5) if guard == "@%p1" else (lambda lane: lane >= 5)
    # The guarded result is loaded anew in each turn.
    expected = [steps(lane) + 2 if calls(lane) else 7 + 0 + 1 + 2 for lane in range(32)]
    check(body + RESULT, ZERO + EARLY, expected)


CHAIN = """
.func (.param .b64 r) keep(.param .b32 n, .param .b64 x) {
    .local .align 16 .b64 depot[4];
    .reg .b64 %rd<6>; .reg .b32 %r<2>;
    ld.param.u32 %r1, [n]; ld.param.u64 %rd1, [x];
    and.b32 %r1, %r1, 3;
    mov.u64 %rd2, depot;
    mad.wide.u32 %rd3, %r1, 8, %rd2;
    st.local.u64 [%rd2], 1; st.local.u64 [%rd2+8], 2; st.local.u64 [%rd2+16], 3; st.local.u64 [%rd2+24], 4;
    st.local.u64 [%rd3], %rd1;
    ld.local.v2.u64 {%rd4, %rd5}, [%rd2];
    add.u64 %rd4, %rd4, %rd5;
    ld.local.u64 %rd5, [%rd2+24];
    add.u64 %rd4, %rd4, %rd5;
    st.param.b64 [r], %rd4;
    ret;
}
.func (.param .b64 r) twice(.param .b32 n, .param .b64 x) {
    .local .align 8 .b64 depot[1];
    .reg .b64 %rd<4>; .reg .b32 %r<2>;
    ld.param.u32 %r1, [n]; ld.param.u64 %rd1, [x];
    st.local.u64 [depot], %rd1;
    { .param .b32 n; .param .b64 x; .param .b64 r; st.param.b32 [n], %r1; st.param.b64 [x], %rd1; call (r), keep, (n, x);
      ld.param.b64 %rd2, [r]; }
    add.u32 %r1, %r1, 1;
    { .param .b32 n; .param .b64 x; .param .b64 r; st.param.b32 [n], %r1; st.param.b64 [x], %rd2; call (r), keep, (n, x);
      ld.param.b64 %rd2, [r]; }
    ld.local.u64 %rd3, [depot];
    add.u64 %rd2, %rd2, %rd3;
    st.param.b64 [r], %rd2;
}
"""


def keep(n: int, x: int) -> int:
    depot = [1, 2, 3, 4]
    depot[n & 3] = x
    return depot[0] + depot[1] + depot[3]


def test_functions_that_call_functions_with_arrays_of_their_own() -> None:
    call = "{{ .param .b32 n; .param .b64 x; .param .b64 r; st.param.b32 [n], {}; st.param.b64 [x], %rd1; call (r), {}, (n, x);"
    call += " ld.param.b64 %rd1, [r]; }}\n"
    body = "mul.wide.u32 %rd1, %tid, 100; " + call.format("%tid", "twice") + call.format("2", "keep") + call.format("%tid", "twice")
    expected = []
    for lane in range(32):
        x = 100 * lane
        for n, name in ((lane, "twice"), (2, "keep"), (lane, "twice")):
            x = keep(n, x) if name == "keep" else keep(n + 1, keep(n, x)) + x
        expected.append(x)
    done = check(body + RESULT, CHAIN, expected)
    assert list(done.functions) == ["k"], "nobody needs the others"
    names = [one.name for one in _variables(done.kernels["k"].body)]  # type: ignore[arg-type]
    assert names.count("depot") == 7, "an array for each call"


def _variables(block: Block) -> list[Variable]:
    inner = [one for statement in block.statements if isinstance(statement, Block) for one in _variables(statement)]
    return [one for one in block.statements if isinstance(one, Variable)] + inner


def test_copies_of_a_function_mean_the_one_shared_variable_that_it_has() -> None:
    """Each lane leaves its number, then 7, and gets back what its neighbour left the time before."""
    before = """
        .func (.param .b64 back) swap(.param .b64 value) {
            .shared .align 8 .b64 place[32]; .reg .b64 %a, %b, %v, %w; .reg .b32 %n;
            ld.param.u64 %v, [value];
            mov.u32 %n, %tid.x; xor.b32 %n, %n, 1; mov.u64 %b, place; mad.wide.u32 %a, %n, 8, %b; ld.shared.u64 %w, [%a];
            bar.warp.sync -1;
            xor.b32 %n, %n, 1; mad.wide.u32 %a, %n, 8, %b; st.shared.u64 [%a], %v;
            bar.warp.sync -1; st.param.u64 [back], %w; ret;
        }"""
    body = """
        { .param .b64 p, q; cvt.u64.u32 %rd2, %tid;
          st.param.u64 [p], %rd2; call (q), swap, (p); st.param.u64 [p], 7; call (q), swap, (p); ld.param.u64 %rd1, [q]; }"""
    done = check(f"{body} {RESULT}", before, [lane ^ 1 for lane in range(32)])
    assert [one.name for one in done.items if isinstance(one, Variable)] == ["place"]


def test_a_variable_stays_inside_where_its_name_means_something_else() -> None:
    function = f".func g() {{ .reg .b32 s; ret; }} .func f() {{ .shared .b32 s; {ACCESS} ret; }}"
    assert reasons(function, "call g; call f;") == {"f": "it has s in shared memory, which all its calls share"}


def test_where_each_instruction_comes_from() -> None:
    call = "{ .param .b32 n; .param .b64 x; .param .b64 r; st.param.b32 [n], 0; st.param.b64 [x], %rd1; call (r), twice, (n, x); }"
    module = module_of(f"mov.b64 %rd1, 5; {call} ret;", CHAIN)
    found = inline_calls(module)
    originals = {name: list(one.body.instructions()) for name, one in module.functions.items()}  # type: ignore[union-attr]
    now = list(found.module.kernels["k"].body.instructions())  # type: ignore[union-attr]
    origins = found.origins["k"]
    assert len(origins) == len(now)
    (in_kernel,) = (index for index, one in enumerate(originals["k"]) if one.opcode == "call")
    in_twice = [index for index, one in enumerate(originals["twice"]) if one.opcode == "call"]
    for one, origin in zip(now, origins, strict=True):
        was = originals[origin.function][origin.instruction]
        assert was.span == one.span or one.opcode == "bra"
        if was.opcode != "call" and "param" not in was.modifiers and was.opcode != "ret":
            assert (was.name, was.operands) == (one.name, one.operands)
    stored = [origin for one, origin in zip(now, origins, strict=True) if one.name == "st.local.u64" and origin.function == "keep"]
    assert [one.calls for one in stored] == [(("k", in_kernel), ("twice", first)) for first in in_twice for _ in range(5)]


# -- what is called still ---------------------------------------------------------------------------------------------------------


def reasons(function: str, call: str) -> dict[str, str]:
    return dict(inline_calls(module_of(f"{call} ret;", ZERO + function)).left)


ACCESS = ".reg .b64 %rd<3>; ld.global.u64 %rd1, [words];"


def test_what_stays_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = f".func f() {{ {ACCESS} ret; }}"
    assert reasons(plain, "call f;") == {}
    assert reasons(f".func f() {{ {ACCESS} call f; ret; }}", "call f;") == {"f": "it calls itself"}
    both = f".func g(); .func f() {{ {ACCESS} call g; ret; }} .func g() {{ call f; ret; }}"
    assert reasons(both, "call f;") == {"f": "it calls itself"}
    assert reasons(f".func f() {{ {{ .shared .b32 s; {ACCESS} }} ret; }}", "call f;") == {
        "f": "it has s in shared memory, which all its calls share"
    }
    address = f".func f(.param .b64 a) {{ {ACCESS} mov.b64 %rd2, a; ret; }}"
    passing = "{ .param .b64 x; st.param.b64 [x], 1; call f, (x); }"
    assert reasons(address, passing) == {"f": "it does more with a than load or store it"}
    assert reasons(f".func f(.param .b64 a, .param .b64 b) {{ {ACCESS} ret; }}", passing) == {
        "f": "a call passes it a different number of arguments"
    }
    assert reasons(f".func f(.param .b32 a) {{ {ACCESS} ret; }}", passing) == {"f": "a call passes x for its a"}
    assert reasons(plain, ".local .b64 words; call f;") == {"f": "its words has a different meaning in k"}
    monkeypatch.setattr(inlining, "MOST_INSTRUCTIONS", 12)
    assert reasons(plain, "call f; call f;") == {}
    many = f".func f() {{ {ACCESS * 5} ret; }}".replace(ACCESS * 5, ACCESS + "ld.global.u64 %rd1, [words];" * 5)
    assert reasons(many, "call f; call f;") == {"f": "the kernel would have more than 12 instructions"}


def test_reasons_name_what_the_programmer_wrote() -> None:
    shared = f".func f() {{ {{ .shared .b32 _ZZ3sumPfE4tile; {ACCESS} }} ret; }}"
    assert reasons(shared, "call f;") == {"f": "it has sum(float*)::tile in shared memory, which all its calls share"}
    second = f".func f(.param .b64 _Z3sumPf_param_1) {{ {ACCESS} mov.b64 %rd2, _Z3sumPf_param_1; ret; }}"
    passing = "{ .param .b64 x; st.param.b64 [x], 1; call f, (x); }"
    assert reasons(second, passing) == {"f": "it does more with parameter 2 than load or store it"}


def test_a_parameter_that_another_call_needs_stays_a_variable() -> None:
    functions = f".extern .func outside(.param .b64 a); .func f(.param .b64 a) {{ {ACCESS} ret; }}"
    found = reasons(functions, "{ .param .b64 x; st.param.b64 [x], 1; call f, (x); call outside, (x); }")
    assert found == {"f": "its call shares a parameter with a call that is not inlined"}


def test_functions_that_access_nothing_and_pointers_are_left_alone() -> None:
    quiet = ".func (.param .b32 r) q(.param .b32 a) { .reg .b32 %r<2>; ld.param.u32 %r1, [a]; st.param.b32 [r], %r1; ret; }"
    module = module_of("{ .param .b32 a; .param .b32 r; st.param.b32 [a], 1; call (r), q, (a); } ret;", quiet)
    assert inline_calls(module).module is module
    by_pointer = "mov.u64 %rd1, f; { proto: .callprototype _ (); call %rd1, (), proto; } call f; ret;"
    found = inline_calls(module_of(by_pointer, ZERO + f".func f() {{ {ACCESS} ret; }}"))
    assert [one.opcode for one in found.module.kernels["k"].body.instructions()].count("call") == 1  # type: ignore[union-attr]
    assert "f" in found.module.functions, "the pointer leads to it"


def test_functions_that_somebody_else_needs_stay() -> None:
    def kept(before: str, body: str = "call f; ret;") -> list[str]:
        return list(inline_calls(module_of(body, ZERO + before)).module.functions)

    plain = f"{{ {ACCESS} ret; }}"
    assert kept(f".func f() {plain}") == ["k"]
    assert kept(f".func f(); .func f() {plain}") == ["k"]
    assert kept(f".visible .func f() {plain}") == ["f", "k"]
    assert kept(f".func f() {plain} .func g() {{ {ACCESS} call f; call g; ret; }}", "call f; call g; ret;") == ["f", "g", "k"]
    debug = f".func f() {{ {ACCESS} here: ret; }}\n.section .debug_info {{ .b64 here }}\n"
    assert kept(debug) == ["f", "k"]


def test_a_kernel_stands_behind_what_it_names_now() -> None:
    function = ".func f() { .reg .u64 %a; ld.global.u64 %a, [late]; st.global.u64 [late], %a; call quiet; ret; }"
    kernel = ".func f();\n.visible .entry k() { call f; ret; }\n"
    text = f"{HEAD}{kernel}.func quiet() {{ ret; }}\n.global .u64 late;\n{function}\n.global .u64 last;\n"
    done = inline_calls(parse(text, "late.ptx")).module
    assert [one.name for one in done.items if not isinstance(one, Directive)] == ["quiet", "late", "k", "last"]
    assemble(done)


# -- lines ------------------------------------------------------------------------------------------------------------------------

LINES = """\
.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) inner(.param .b64 at) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    .loc 1 3 5
    ld.param.u64 %rd1, [at];
    ld.global.u32 %r1, [%rd1];
    st.param.b32 [r], %r1;
    ret;
}
.func (.param .b32 r) outer(.param .b64 at) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    .loc 1 7 5
    ld.param.u64 %rd1, [at];
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; call (b), inner, (a); ld.param.b32 %r1, [b]; }
    add.u32 %r1, %r1, 1;
    st.param.b32 [r], %r1;
    ret;
}
.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<2>; .reg .b32 %r<3>;
    .loc 1 11 5
    ld.param.u64 %rd1, [out];
    .loc 1 12 9
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; call (b), outer, (a); ld.param.b32 %r1, [b]; }
    st.global.u32 [%rd1+4], %r1;
    ret;
}
.file 1 "calls.cu"
"""


@pytest.mark.parametrize("strings", ["", ".section .debug_str\n{\n$L__info_string0:\n.b8 104,105,0\n}\n"], ids=["none", "own"])
def test_the_line_table_says_where_an_instruction_was_inlined(strings: str) -> None:
    module = parse(LINES + strings, "calls.ptx")
    done = inlined(module)
    lines = [_chain(one) for one in done.kernels["k"].body.instructions() if one.name.endswith("global.u32")]  # type: ignore[union-attr]
    assert lines == [[3, 7, 12], [12]]
    places = [one.place for one in disassemble(assemble(done).data).functions["k"].instructions if one.opcode in ("LDG", "STG")]
    assert [(one.line, [line for _, line in one.inlined_at]) for one in places if one] == [(3, [7]), (12, [])]
    assert strings.strip().removesuffix("}").strip() in print_module(done)
    assert [one.text.split()[0] for one in done.items if isinstance(one, Directive)].count(".section") == 1


def _chain(one: Instruction) -> list[int]:
    at, found = one.location, []
    while at is not None:
        found.append(at.line)
        at = at.inlined_into
    return found


def test_what_the_compiler_put_at_no_line_is_at_the_call_that_was_inlined() -> None:
    """NVRTC gives line 0 to a load that it made of two, one in each branch of a function."""
    body = """
    .loc 1 0 0, function_name $L__info_string0, inlined_at 1 30 3
    ld.global.u32 %r1, [%rd1];
    .loc 2 0 0, function_name $L__info_string0, inlined_at 1 0 5
    st.global.u32 [%rd1], %r1;
    .loc 2 7 1, function_name $L__info_string0, inlined_at 1 40 2
    st.global.u32 [%rd1+4], %r1;
    .loc 1 0 2
    st.global.u32 [%rd1+8], %r1;
"""
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k() {{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
{body}    ret;
}}
.file 1 "user.cu"
.file 2 "library.h"
.section .debug_str
{{
$L__info_string0:
.b8 104,105,0
}}
"""
    module = replace(parse(text, "k.ptx"), sources={"user.cu": ""})
    places = [module.users_location(one.location) for one in module.kernels["k"].body.instructions() if one.location]  # type: ignore[union-attr]
    assert [(module.files[one.file], one.line) for one in places[:4]] == [("user.cu", 30), ("user.cu", 0), ("user.cu", 40), ("user.cu", 0)]

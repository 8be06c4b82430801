"""Calls of device functions."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess, PtxTypeError, UnsupportedPtx
from memlane.launch import Layers
from memlane.ptx import called_functions, parse
from tests.emulate.running import emulator, program, run
from tests.emulate.test_layers import observe

FUNCTIONS = """
.func (.param .b32 result) twice(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 result) collatz(.param .b32 x) {
    .reg .b32 %r<6>; .reg .pred %p<3>;
    ld.param.u32 %r1, [x];
    mov.u32 %r2, 0;
LOOP:
    setp.le.u32 %p1, %r1, 1;
    @%p1 bra DONE;
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p2, %r3, 0;
    add.u32 %r2, %r2, 1;
    @%p2 bra HALVE;
    mad.lo.u32 %r1, %r1, 3, 1;
    bra LOOP;
HALVE:
    shr.u32 %r1, %r1, 1;
    bra LOOP;
DONE:
    st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 result) both(.param .b32 x, .param .b32 y) {
    .reg .b32 %r<8>; .reg .pred %p<2>;
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [y];
    setp.eq.u32 %p1, %r2, 0;
    st.param.b32 [result], %r1;
    @%p1 ret;
    { .param .b32 a; .param .b32 r;
      st.param.b32 [a], %r2;
      call.uni (r), twice, (a);
      ld.param.b32 %r3, [r]; }
    add.u32 %r4, %r1, %r3;
    st.param.b32 [result], %r4;
    ret;
}
.func store(.param .b64 where, .param .b32 value) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [where];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
}
"""


def call(name: str, result: str, *arguments: str) -> str:
    """A call as compilers write it."""
    stores = " ".join(f".param .b32 a{i}; st.param.b32 [a{i}+0], {value};" for i, value in enumerate(arguments))
    names = ", ".join(f"a{i}" for i in range(len(arguments)))
    return f"{{ {stores} .param .b32 r0; call.uni (r0), {name}, ({names}); ld.param.b32 {result}, [r0+0]; }}"


def collatz(x: int) -> int:
    steps = 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    return steps


def test_calls_with_results() -> None:
    body = f"{call('twice', '%r1', '%tid')} {call('twice', '%r1', '%r1')} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [4 * lane for lane in range(32)]


def test_parameters_that_are_wide_registers_keep_all_their_bits() -> None:
    """The function accesses nothing, so that it is called and not inlined."""
    function = ".func (.reg .b64 %back) times(.reg .b64 %value, .reg .f64 %by) { cvt.rn.f64.u64 %by, %value; mov.b64 %back, %by; ret; }"
    body = """mul.wide.u32 %rd1, %tid, 4000000; mul.lo.u64 %rd1, %rd1, 1000003; mov.f64 %fd1, 0d3FF0000000000000;
        call (%rd2), times, (%rd1, %fd1); st.global.u64 [%mine], %rd2; ret;"""
    target = emulator()
    out = target.zeros(32, np.float64)
    target.load(parse(program(body, before=function), "test.ptx"))["k"][1, 32](out)
    assert out.numpy().tolist() == [float(lane * 4000000 * 1000003) for lane in range(32)]


def test_a_called_function_may_loop_and_diverge() -> None:
    together = "activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 1000, %r1;"
    body = f"{call('collatz', '%r1', '%tid')} {together} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [32000 + collatz(lane) for lane in range(32)]


def test_calls_within_calls_and_early_returns() -> None:
    body = f"and.b32 %r5, %tid, 3; {call('both', '%r1', '%tid', '%r5')} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [lane + 2 * (lane % 4) for lane in range(32)]


def test_a_function_without_result() -> None:
    body = "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %mine; st.param.b32 [b], %tid; call store, (a, b); } ret;"
    assert run(body, before=FUNCTIONS).tolist() == list(range(32))


def test_a_bad_access_in_a_called_function_is_told_where_it_is() -> None:
    body = "{ .param .b64 a; .param .b32 b; st.param.b64 [a], 64; st.param.b32 [b], %tid; call store, (a, b); } ret;"
    with pytest.raises(BadAccess, match=r"kernel k, test\.ptx:51:5: .*thread \(0, 0, 0\) wrote 4 bytes at 0x40 \(st\.global\.u32\)"):
        run(body, before=FUNCTIONS)


def test_lanes_that_did_not_call_wait_behind_the_call() -> None:
    """Both sides of a branch call the same function; all lanes are together behind it."""
    body = f"""
        mov.u32 %r1, 0;
        and.b32 %r5, %tid, 1;
        setp.eq.u32 %p1, %r5, 0;
        setp.lt.u32 %p2, %tid, 8;
        @%p2 bra MEET;
        @%p1 bra EVEN;
        {call("collatz", "%r1", "%tid")}
        bra MEET;
    EVEN:
        {call("twice", "%r1", "%tid")}
        {call("collatz", "%r1", "%r1")}
    MEET:
        activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 1000, %r1;
        st.global.u32 [%mine], %r1; ret;"""
    expected = [32000 + (0 if i < 8 else collatz(i if i % 2 else 2 * i)) for i in range(32)]
    assert run(body, before=FUNCTIONS).tolist() == expected


BARRIER = """
.shared .b32 words[64];
.func swap(.param .b32 mine, .param .b32 other, .param .b64 where) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u32 %r1, [mine];
    ld.param.u32 %r2, [other];
    ld.param.u64 %rd1, [where];
    mov.u64 %rd2, words;
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    st.shared.u32 [%rd3], %r1;
    bar.sync 0;
    mad.wide.u32 %rd3, %r2, 4, %rd2;
    ld.shared.u32 %r3, [%rd3];
    st.global.u32 [%rd1], %r3;
    ret;
}
"""
SWAP = """{ .param .b32 a; .param .b32 b; .param .b64 c;
    st.param.b32 [a], %tid; sub.u32 %r1, 63, %tid; st.param.b32 [b], %r1; st.param.b64 [c], %mine;
    call swap, (a, b, c); }"""


def test_a_barrier_and_shared_memory_in_a_called_function() -> None:
    assert run(f"{SWAP} ret;", before=BARRIER, threads=64).tolist() == list(reversed(range(64)))


def test_warps_meet_at_the_barrier_of_a_function_called_from_two_places() -> None:
    body = f"setp.lt.u32 %p1, %tid, 32; @%p1 bra FIRST; {SWAP} ret; FIRST: {SWAP} ret;"
    assert run(body, before=BARRIER, threads=64).tolist() == list(reversed(range(64)))


@pytest.mark.parametrize(
    "layers", [Layers(counts=True, accesses=True), Layers(counts=True, accesses=True, clock=True)], ids=["counts", "clock"]
)
def test_accesses_of_a_called_function_are_counted_where_it_is_inlined(layers: Layers) -> None:
    target = emulator()
    kernel = target.load(parse(program(f"{SWAP} {SWAP} ret;", before=BARRIER), "test.ptx"))["k"]
    assert kernel.inlined.body is not None
    instructions = list(kernel.inlined.body.instructions())
    seen = observe(kernel[1, 64], target.zeros(64, np.uint64), layers=layers)
    counted = [(instructions[index].name, int(row[0])) for index, row in sorted(seen.counts.items())]
    assert counted == [("st.shared.u32", 2), ("ld.shared.u32", 2), ("st.global.u32", 2)] * 2
    assert seen.thread_instructions == 64 * len(instructions)
    assert seen.accesses is not None
    assert set(seen.accesses["instruction"]) == set(seen.counts)


def test_accesses_of_a_function_that_cannot_be_inlined_follow_those_of_the_kernel() -> None:
    again = BARRIER.replace("    ret;", "    setp.eq.u32 %p1, %r3, 99; @%p1 call swap, (mine, other, where);\n    ret;")
    module = parse(program(f"{SWAP} ret;", before=again.replace(".reg .b32 %r<4>;", ".reg .b32 %r<4>; .reg .pred %p<2>;")), "test.ptx")
    kernel = module.kernels["k"]
    (swap,) = called_functions(module, kernel)
    assert kernel.body is not None
    assert swap.body is not None
    instructions = [*kernel.body.instructions(), *swap.body.instructions()]
    target = emulator()
    seen = observe(target.load(module)["k"][1, 64], target.zeros(64, np.uint64), layers=Layers(counts=True))
    counted = {instructions[index].name: int(row[0]) for index, row in seen.counts.items()}
    assert counted == {"st.shared.u32": 2, "ld.shared.u32": 2, "st.global.u32": 2}
    assert min(seen.counts) >= len(list(kernel.body.instructions()))


def test_what_does_not_fit_is_refused() -> None:
    target = emulator()
    text = program("{ .param .b64 x; call (x), twice, (x); } ret;", before=FUNCTIONS)
    with pytest.raises(PtxTypeError, match="the arguments or results of this call do not match those of twice"):
        target.load(parse(text, "test.ptx"))["k"][1, 32](target.zeros(32, np.uint64))


@pytest.mark.parametrize("name", ["elsewhere", "cudaMalloc"])
def test_a_function_without_a_body_is_named(name: str) -> None:
    target = emulator()
    text = program(f"{{ .param .b64 x; call {name}, (x); }} ret;", before=f".extern .func {name}(.param .b64 size);")
    with pytest.raises(UnsupportedPtx, match=f"the emulator does not model {name}, a function without a body"):
        target.load(parse(text, "test.ptx"))["k"][1, 32](target.zeros(32, np.uint64))

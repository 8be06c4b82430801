"""How the work of linking a kernel with its called functions, and of finding the registers that are live, grows with their number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memlane.emulate.lower.body import LiveOut
from memlane.emulate.lower.linking import link
from memlane.ptx import parse
from tests.steps import steps_of

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def _function(number: int, callee: int | None = None) -> str:
    inside = "" if callee is None else _call(callee, "%r1")
    return f"""
.func (.param .b32 back) f{number}(.param .b32 x)
{{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [x];
    {inside}
    add.u32 %r2, %r1, {number};
    st.param.b32 [back], %r2;
    ret;
}}
"""


def _call(number: int, register: str = "%r0") -> str:
    passed = f"st.param.b32 [given], {register}; call.uni (taken), f{number}, (given); ld.param.b32 {register}, [taken];"
    return f"{{ .param .b32 given; .param .b32 taken; {passed} }}\n"


def _kernel(body: str, functions: str = "") -> str:
    registers = ".reg .pred %p<4>; .reg .b32 %r<4>;"
    return f"{HEAD}{functions}.visible .entry k(.param .u64 data)\n{{\n{registers}\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"


def one_function(number: int) -> str:
    return _kernel(_call(0) * number, _function(0))


def functions(number: int) -> str:
    return _kernel("".join(map(_call, range(number))), "".join(map(_function, range(number))))


def chain(number: int) -> str:
    """Each function calls the one before."""
    return _kernel(_call(number - 1), "".join(_function(one, one - 1 if one else None) for one in range(number)))


def exits(number: int) -> str:
    return _kernel("".join(f"setp.eq.u32 %p1, %r0, {one}; @%p1 bra END; add.u32 %r1, %r0, 1;\n" for one in range(number)) + "END:")


def _linked(text: str) -> int:
    module = parse(text)

    def run() -> None:
        body, _ = link(module, module.kernels["k"], (), stop_at_memory=False)
        assert LiveOut(body.segments).anywhere()

    return steps_of(run)


@pytest.mark.parametrize("shape", [one_function, functions, chain, exits], ids=lambda shape: shape.__name__)
def test_the_work_grows_with_the_number_of_calls_and_branches(shape: Callable[[int], str]) -> None:
    """Four times as many in less than six times the steps; sixteen would be those of the square."""
    short, long = (_linked(shape(number)) for number in (60, 240))
    assert 0 < long < 6 * short


def test_functions_may_call_each_other_as_deep_as_they_like() -> None:
    module = parse(chain(1_100))
    body, instructions = link(module, module.kernels["k"], (), stop_at_memory=False)
    assert len(instructions) > 1_100
    assert body.segments[-1].successors == ()

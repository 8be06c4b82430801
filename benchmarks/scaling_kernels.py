"""Write kernels of any size, each family large in another way, to find stages whose time grows faster than the kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

_HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
_REGISTERS = ("pred %p", "b32 %r", "f32 %f", "b64 %rd")


def _kernel(lines: list[str], before: str = "") -> str:
    largest = 2 * len(lines) + 16
    declared = "".join(f"    .reg .{one}<{largest}>;\n" for one in _REGISTERS)
    body = "\n".join(f"    {line}" for line in lines)
    return f"""{_HEAD}{before}.visible .entry k(.param .u64 data, .param .u32 turns)
{{
{declared}    .shared .align 16 .b8 cells[4096];
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r2, [turns];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd1, %rd1, %rd2;
    shl.b32 %r3, %r0, 2;
    mov.u32 %r1, cells;
    add.u32 %r3, %r3, %r1;
    ld.global.u32 %r4, [%rd1];
{body}
    st.global.u32 [%rd1], %r4;
    ret;
}}
"""


def _until(instructions: int, group: Callable[[int], list[str]]) -> list[str]:
    """Return groups of lines until the number of lines is reached; `group` returns the group of a number."""
    lines: list[str] = []
    for number in count():
        if len(lines) >= instructions:
            break
        lines += group(number)
    return lines


def straight(instructions: int) -> str:
    """Return arithmetic in one basic block, with one access in sixteen instructions."""

    def group(number: int) -> list[str]:
        r = 5 + 16 * number
        first = f"ld.global.u32 %r{r}, [%rd1+{4 * number}];"
        rest = [f"mad.lo.s32 %r{r + step}, %r{r + step - 1}, {number + step}, %r4;" for step in range(1, 14)]
        return [first, *rest, f"xor.b32 %r{r + 14}, %r{r + 13}, %r4;", f"mov.u32 %r4, %r{r + 14};"]

    return _kernel(_until(instructions, group))


def accesses(instructions: int) -> str:
    """Return accesses to global and shared memory with hardly any other instruction."""

    def group(number: int) -> list[str]:
        r = 5 + 4 * number
        return [
            f"ld.global.u32 %r{r}, [%rd1+{128 * number}];",
            f"st.shared.u32 [%r3+{4 * (number % 512)}], %r{r};",
            f"ld.shared.u32 %r{r + 1}, [%r3+{4 * (number * 7 % 512)}];",
            f"st.global.u32 [%rd1+{128 * number + 64}], %r{r + 1};",
        ]

    return _kernel(_until(instructions, group))


def branches(instructions: int) -> str:
    """Return consecutive divergent `if` statements, half of which contain an access."""

    def group(number: int) -> list[str]:
        r = 5 + 6 * number
        inside = f"ld.global.u32 %r{r + 2}, [%rd1+{4 * number}];" if number % 2 else f"mul.lo.u32 %r{r + 2}, %r{r}, {number + 3};"
        return [
            f"add.u32 %r{r}, %r4, {number + 1};",
            f"setp.lt.u32 %p{number + 1}, %r{r}, {2 * number + 5};",
            f"mov.u32 %r{r + 2}, %r{r};",
            f"@%p{number + 1} bra $L{number};",
            inside,
            f"st.shared.u32 [%r3+{4 * (number % 512)}], %r{r + 2};",
            f"$L{number}:",
            f"xor.b32 %r4, %r4, %r{r + 2};",
        ]

    return _kernel(_until(instructions, group))


def loops(instructions: int) -> str:
    """Return consecutive nests of three loops with an access in each loop."""

    def group(number: int) -> list[str]:
        r, p = 5 + 8 * number, 4 * number
        return [
            f"mov.u32 %r{r}, 0;",
            f"$A{number}:",
            f"ld.global.u32 %r{r + 4}, [%rd1+{12 * number}];",
            f"mov.u32 %r{r + 1}, 0;",
            f"$B{number}:",
            f"ld.shared.u32 %r{r + 5}, [%r3+{4 * (number % 512)}];",
            f"add.u32 %r4, %r4, %r{r + 5};",
            f"mov.u32 %r{r + 2}, 0;",
            f"$C{number}:",
            f"mad.lo.u32 %r4, %r4, %r{r + 4}, %r{r + 2};",
            f"st.shared.u32 [%r3+{4 * (number % 256)}], %r4;",
            f"add.u32 %r{r + 2}, %r{r + 2}, 1;",
            f"setp.lt.u32 %p{p}, %r{r + 2}, %r2;",
            f"@%p{p} bra $C{number};",
            f"add.u32 %r{r + 1}, %r{r + 1}, 1;",
            f"setp.lt.u32 %p{p + 1}, %r{r + 1}, %r2;",
            f"@%p{p + 1} bra $B{number};",
            f"add.u32 %r{r}, %r{r}, 1;",
            f"setp.lt.u32 %p{p + 2}, %r{r}, %r2;",
            f"@%p{p + 2} bra $A{number};",
        ]

    return _kernel(_until(instructions, group))


def one_loop(instructions: int) -> str:
    """Return a kernel with one loop around everything, with branches that skip an access each."""
    inside = branches(instructions - 6).split("ld.global.u32 %r4, [%rd1];\n", 1)[1].rsplit("    st.global.u32 [%rd1], %r4;", 1)[0]
    lines = [line.strip() for line in inside.splitlines() if line.strip()]
    last = f"%r{len(lines)}"
    around = [f"mov.u32 {last}, 0;", "$again:", *lines, f"add.u32 {last}, {last}, 1;", f"setp.lt.u32 %p0, {last}, %r2;", "@%p0 bra $again;"]
    return _kernel(around)


def calls(instructions: int) -> str:
    """Return calls of two functions, one of which accesses memory: as many as are inlined, and further calls."""
    functions = """.func (.param .b32 back) reads(.param .b64 at)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.global.u32 %r1, [%rd1];
    mul.lo.u32 %r2, %r1, 3;
    st.param.b32 [back], %r2;
    ret;
}
"""

    def group(number: int) -> list[str]:
        r, d = 5 + 2 * number, 4 + number
        return [
            f"add.u64 %rd{d}, %rd1, {4 * number};",
            "{",
            f".param .b64 given{number};",
            f".param .b32 taken{number};",
            f"st.param.b64 [given{number}], %rd{d};",
            f"call.uni (taken{number}), reads, (given{number});",
            f"ld.param.b32 %r{r}, [taken{number}];",
            "}",
            f"xor.b32 %r4, %r4, %r{r};",
        ]

    return _kernel(_until(9 * instructions // 5, group), functions)  # four lines of nine are no instructions


def tensor(instructions: int) -> str:
    """Return products on tensor cores, each with its matrix loads from shared memory."""

    def group(number: int) -> list[str]:
        r, f = 5 + 6 * number, 4 + 4 * (number % 8)
        return [
            f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{r}, %r{r + 1}, %r{r + 2}, %r{r + 3}}}, [%r1+{16 * (number % 64)}];",
            f"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r{r + 4}, %r{r + 5}}}, [%r1+{16 * (number * 5 % 64)}];",
            f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{f}, %f{f + 1}, %f{f + 2}, %f{f + 3}}}, "
            f"{{%r{r}, %r{r + 1}, %r{r + 2}, %r{r + 3}}}, {{%r{r + 4}, %r{r + 5}}}, {{%f{f}, %f{f + 1}, %f{f + 2}, %f{f + 3}}};",
        ]

    start = [f"mov.f32 %f{number}, 0f00000000;" for number in range(4, 36)]
    stored = [f"st.global.f32 [%rd1+{4 * number}], %f{number};" for number in range(4, 36)]
    return _kernel([*start, *_until(instructions, group), *stored])


FAMILIES: dict[str, Callable[[int], str]] = {
    one.__name__.replace("_", " "): one for one in (straight, accesses, branches, loops, one_loop, calls, tensor)
}
"""Functions that write the PTX of a kernel `k(data, turns)` of about so many instructions, by name."""

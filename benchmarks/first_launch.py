"""Time the first launch of kernels of any length, with branches and memory accesses mixed in.

    python benchmarks/first_launch.py 300 emulator:h200

prints, as JSON, the number of instructions and the seconds of the first launch and of the second, in this fresh process.
"""

from __future__ import annotations

import argparse
import json
import time

from memlane.ptx import parse
from memlane.targets import target


def synthetic(instructions: int, name: str = "synthetic", first: int = 0) -> str:
    """Return a kernel of about so many instructions: groups of a load, arithmetic, a branch over part of it, and a store.

    Every result has a register of its own, as compilers number them, from `first` on: no two lines of two kernels are alike if their
    numbers are not, and the speed of a parser that remembers lines is not flattered.
    """
    body: list[str] = []
    before = "%r0"
    for group in range(max(1, instructions // 12)):
        a, b, c, d, e = (f"%r{first + 5 * group + number}" for number in range(1, 6))
        f, g, p, place = f"%f{first + 2 * group}", f"%f{first + 2 * group + 1}", f"%p{first + group}", f"[%rd2+{4 * group}]"
        body += [
            f"ld.global.u32 {a}, {place};",
            f"add.s32 {b}, {a}, {before};",
            f"mad.lo.s32 {c}, {b}, {group + 3}, {a};",
            f"cvt.rn.f32.u32 {f}, {c};",
            f"fma.rn.f32 {g}, {f}, 0f3F000000, 0f3F800000;",
            f"xor.b32 {d}, {c}, {b};",
            f"cvt.rzi.u32.f32 {e}, {g};",
            f"setp.gt.s32 {p}, {d}, {e};",
            f"@{p} bra $L{name}_{group};",
            f"shl.b32 {e}, {d}, 1;",
            f"$L{name}_{group}:",
            f"min.s32 {d}, {e}, {c};",
            f"st.global.u32 {place}, {d};",
        ]
        before = d
    last = first + instructions
    lines = "\n    ".join(body)
    return f"""\
.visible .entry {name}(.param .u64 {name}_param_0)
{{
    .reg .pred %p<{last}>;
    .reg .b32 %r<{last}>;
    .reg .f32 %f<{last}>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [{name}_param_0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd2, %rd1, %rd3;
    {lines}
    ret;
}}
"""


def module_text(*kernels: str) -> str:
    return "\n".join([".version 9.0", ".target sm_90", ".address_size 64", *kernels])


def main() -> None:
    options = argparse.ArgumentParser(description="Seconds of the first launch of a kernel")
    options.add_argument("instructions", type=int)
    options.add_argument("target")
    chosen = options.parse_args()
    module = parse(module_text(synthetic(chosen.instructions)), "synthetic.ptx")
    body = module.kernels["synthetic"].body
    assert body is not None
    where = target(chosen.target)
    data = where.zeros(32 + chosen.instructions, "u4")
    kernel = where.load(module)["synthetic"]
    times = []
    for _ in range(2):
        began = time.perf_counter()
        kernel[1, 32](data)
        times.append(time.perf_counter() - began)
    print(json.dumps({"instructions": sum(1 for _ in body.instructions()), "first": times[0], "second": times[1]}))


if __name__ == "__main__":
    main()

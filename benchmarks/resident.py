"""Print the peak memory of this process after a launch of so many threads on the emulator.

    python benchmarks/resident.py 1048576 emulator:h200

prints the bytes, or nothing where the system does not tell. The threads write to an array of 4 KB, whatever their number.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from memlane.ptx import parse
from memlane.targets import target

BLOCK = 256
PTX = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry touch(.param .u64 out)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    .shared .align 4 .b8 cells[1024];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, cells;
    add.u32 %r4, %r4, %r3;
    st.shared.u32 [%r4], %r2;
    bar.sync 0;
    ld.shared.u32 %r5, [%r4];
    and.b32 %r6, %r5, 3;
    shl.b32 %r6, %r6, 8;
    add.u32 %r6, %r6, %r1;
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r6, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r5;
    ret;
}
"""


def peak_bytes() -> int | None:
    """Return the peak memory of this process, without that of the process that forked it, which `getrusage` includes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def main() -> None:
    options = argparse.ArgumentParser(description="Peak memory of a launch")
    options.add_argument("threads", type=int)
    options.add_argument("target")
    chosen = options.parse_args()
    where = target(chosen.target)
    out = where.zeros(1024, "u4")
    where.load(parse(PTX, "touch.ptx"))["touch"][chosen.threads // BLOCK, BLOCK](out)
    where.sync()
    if (found := peak_bytes()) is not None:
        print(found)


if __name__ == "__main__":
    main()

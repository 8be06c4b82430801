"""What kernels really read and write on the emulator, by its shadow memory, lies within what their text shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.launch import Declared, DeclaredBuffer, DeviceArray, Launch, Layers, Report
from memlane.ptx import parameter_use, parse

H200 = Emulator(load("h200"))
NAMES = "ABT"
HEAD = """
.version 8.6
.target sm_90
.address_size 64
.global .align 8 .u64 kept[8];
.func (.param .b64 back) pick(.param .b64 one, .param .b64 other)
{ .reg .b64 x, y, z; .reg .pred p; ld.param.u64 x, [one]; ld.param.u64 y, [other];
  setp.lt.u64 p, x, y; selp.b64 z, x, y, p; st.param.b64 [back], z; ret; }
.func (.param .b64 back) open(.param .b64 where)
{ .reg .b64 x, y; ld.param.u64 x, [where]; ld.u64 y, [x]; st.param.b64 [back], y; ret; }
.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 T, .param .u64 N, .param .align 8 .b8 S[16])
{
  .shared .align 16 .b64 there[4]; .local .align 8 .b64 own[4];
  .reg .b64 %rd<999>; .reg .b32 %r<999>; .reg .pred p; .reg .b32 number, index; .reg .f64 %fd<99>;
  .param .b64 one; .param .b64 other; .param .b64 back;
  ld.param.u64 %rd0, [A]; ld.param.u64 %rd1, [B]; ld.param.u64 %rd2, [T]; ld.param.u32 number, [N]; mov.u32 index, %tid.x;
"""
# Each makes a pointer of one or two others, without a change of where it leads: {d} of {a}, or of one of {a} and {b}.
PLAIN = [
    "mov.u64 {d}, {a};",
    "cvta.to.global.u64 {x}, {a}; cvta.global.u64 {d}, {x};",
    "add.s64 {x}, {a}, 64; sub.s64 {d}, {x}, 64;",
    "mad.wide.u32 {d}, index, 4, {a};",
    "mul.wide.s32 {x}, index, 8; add.s64 {d}, {a}, {x};",
    "setp.eq.u32 p, number, 1; selp.b64 {d}, {a}, {b}, p;",
    "setp.eq.u32 p, number, 1; mov.u64 {d}, {a}; @p mov.u64 {d}, {b};",
    "and.b64 {d}, {a}, -256;",
    "ld.global.u32 {v}, [%rd2+64]; mad.wide.u32 {d}, {v}, 4, {a};",  # an index from memory: 0
    "ld.global.u64 {x}, [%rd2+72]; shl.b64 {y}, {x}, 3; add.s64 {d}, {y}, {a};",
]
LAUNDERED = [
    "st.global.u64 [kept], {a}; ld.global.u64 {d}, [kept];",
    "st.shared.u64 [there], {a}; ld.shared.u64 {d}, [there];",
    "st.local.u64 [own+8], {a}; ld.local.u64 {d}, [own+8];",
    "st.shared.v2.u64 [there], {{{a}, {b}}}; ld.shared.v2.u64 {{{x}, {d}}}, [there];",
    "mov.u64 {x}, own; cvta.local.u64 {y}, {x}; st.u64 [{y}], {a}; ld.u64 {d}, [{y}];",
    "mov.b64 {{{v}, {w}}}, {a}; mov.b64 {d}, {{{v}, {w}}};",
    "cvt.u32.u64 {v}, {a}; shr.u64 {x}, {a}, 32; shl.b64 {y}, {x}, 32; cvt.u64.u32 {z}, {v}; or.b64 {d}, {y}, {z};",
    "mov.b64 {{{v}, {w}}}, {a}; add.cc.u32 {v}, {v}, 0; addc.u32 {w}, {w}, 0; mov.b64 {d}, {{{v}, {w}}};",
    "st.shared.u64 [there], {a}; ld.shared.u32 {v}, [there]; ld.shared.u32 {w}, [there+4]; mov.b64 {d}, {{{v}, {w}}};",
    "ld.param.u64 {d}, [B+8];",
    "ld.param.u32 {v}, [A]; ld.param.u32 {w}, [A+4]; mov.b64 {d}, {{{v}, {w}}};",
    "mov.u64 {x}, A; ld.param.u64 {d}, [{x}+8];",
    "ld.param.u64 {d}, [S+8];",
    "ld.global.u64 {d}, [%rd2];",
    "mad.wide.u32 {x}, number, 8, %rd2; ld.global.u64 {d}, [{x}];",
    "atom.global.exch.b64 {x}, [kept], {a}; atom.global.add.u64 {d}, [kept], 0;",
    "sub.s64 {x}, {b}, {a}; add.s64 {d}, {a}, {x};",
    "sub.s64 {x}, {b}, {a}; st.shared.u64 [there], {x}; ld.shared.u64 {y}, [there]; add.s64 {d}, {a}, {y};",
    "ld.global.u64 {x}, [%rd2]; sub.s64 {y}, {a}, {x}; add.s64 {d}, {y}, {x};",
    "ld.global.u64 {x}, [%rd2]; sub.s64 {y}, {a}, {a}; add.s64 {d}, {y}, {x};",
    "ld.global.u64 {x}, [%rd2+8]; and.b64 {y}, {a}, 3; add.s64 {d}, {y}, {x};",
    "xor.b64 {x}, {a}, {b}; xor.b64 {d}, {x}, {a};",
    "mov.b64 {{{v}, {w}}}, {a}; shfl.sync.idx.b32 {v}, {v}, 0, 31, -1; shfl.sync.idx.b32 {w}, {w}, 0, 31, -1; mov.b64 {d}, {{{v}, {w}}};",
    "brev.b64 {x}, {a}; brev.b64 {d}, {x};",
    "cvt.rn.f64.u64 {f}, {a}; cvt.rzi.u64.f64 {d}, {f};",
    "st.param.b64 [one], {a}; st.param.b64 [other], {b}; call (back), pick, (one, other); ld.param.b64 {d}, [back];",
    "st.local.u64 [own], {a}; mov.u64 {x}, own; cvta.local.u64 {y}, {x}; st.param.b64 [one], {y}; call (back), open, (one);"
    " ld.param.b64 {d}, [back];",
    "st.shared.v2.u64 [there], {{{a}, {b}}}; mov.u64 {x}, kept; cp.async.bulk.global.shared::cta.bulk_group [{x}], [there], 16;"
    " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ld.global.u64 {d}, [kept];",
]
ACCESSES = ["ld.global.u32 {v}, [{a}];", "ld.u32 {v}, [{a}+4];", "st.global.u32 [{a}+16], index;", "red.global.add.u32 [{a}+8], 1;"]


@dataclass
class Writer:
    """A kernel that is written line by line."""

    lines: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=lambda: ["%rd0", "%rd1", "%rd2"])
    used: int = 3

    def write(self, form: str, a: str, b: str, *, gives: bool) -> None:
        self.used += 4
        d, x, y, z = (f"%rd{self.used + place}" for place in range(4))
        v, w = f"%r{self.used}", f"%r{self.used + 1}"
        self.lines.append(form.format(d=d, x=x, y=y, z=z, v=v, w=w, a=a, b=b, f=f"%fd{self.used // 4}"))
        if gives:
            self.pointers.append(d)

    @property
    def text(self) -> str:
        return "\n".join([HEAD, *self.lines, "ret;\n}"])


@st.composite
def kernels(draw: st.DrawFn, forms: list[str]) -> str:
    writer = Writer()
    for _ in range(draw(st.integers(1, 5))):
        one, other = draw(st.sampled_from(writer.pointers)), draw(st.sampled_from(writer.pointers))
        writer.write(draw(st.sampled_from(forms)), one, other, gives=True)
    made = writer.pointers[3:] or writer.pointers
    for _ in range(draw(st.integers(1, 3))):
        writer.write(draw(st.sampled_from(ACCESSES)), draw(st.sampled_from(made)), "", gives=False)
    return writer.text


def touched(text: str, number: int) -> tuple[set[int], set[int]]:
    """The parameters of whose arrays a launch of one thread read, and wrote, bytes."""
    arrays = [H200.zeros(64, "u4") for _ in NAMES]
    table = np.zeros(32, "u8")
    table[:3] = [one.address for one in arrays]
    arrays[2].copy_from(table.view("u4"))
    inside = np.array([0, arrays[1].address], "u8").tobytes()
    launch = H200.load(parse(text))["k"][1, 1].bind(*arrays, number, inside)
    verbs = [(report.memory[0], " read byte " in report.what) for report in undeclared(launch, arrays)]
    return tuple({NAMES.index(name) for name, read in verbs if read is wanted} for wanted in (True, False))  # type: ignore[return-value]


def undeclared(launch: Launch, arrays: list[DeviceArray]) -> list[Report]:
    """What the checker says of a launch that declares that it touches nothing."""
    buffers = tuple(DeclaredBuffer(name, one.address, one.nbytes, (), ()) for name, one in zip(NAMES, arrays, strict=True))
    seen: list[Report] = []
    layers = Layers(check=True, declared=Declared("the step", buffers, False), report=lambda found: seen.extend(found.reports or ()))
    launch.kernel.target.launch(Launch(launch.kernel, launch.grid, launch.block, launch.arguments, layers=layers))
    assert {one.kind for one in seen} <= {"undeclared access"}
    return seen


@given(text=kernels(PLAIN + LAUNDERED), number=st.integers(0, 1))
@settings(max_examples=40, deadline=None)
def test_random_kernels_touch_what_their_text_shows(text: str, number: int) -> None:
    reads, writes = touched(text, number)
    found = parameter_use(parse(text), "k", range(3))
    assert reads <= found.reads, text
    assert writes <= found.writes, text


@given(text=kernels([form for form in PLAIN if "{b}" not in form]))
@settings(max_examples=15, deadline=None)
def test_and_no_more_where_pointers_are_kept_in_registers(text: str) -> None:
    found = parameter_use(parse(text), "k", range(3))
    assert touched(text, 0) == (found.reads, found.writes), text


@pytest.mark.parametrize("form", LAUNDERED)
def test_each_way_to_launder_a_pointer_is_seen_through(form: str) -> None:
    """Through each a store reaches an array, and the text shows that it may."""
    writer = Writer()
    writer.write(form, "%rd0", "%rd1", gives=True)
    writer.write(ACCESSES[2], writer.pointers[-1], "", gives=False)
    reads, writes = touched(writer.text, 1)
    found = parameter_use(parse(writer.text), "k", range(3))
    assert writes
    assert writes <= found.writes
    assert reads <= found.reads

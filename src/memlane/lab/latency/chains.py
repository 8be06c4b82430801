"""Generate chains of dependent accesses as PTX, each in a kernel of its own.

    chain.module()                 # entries `walk`, `link` (the ring in global memory) and `where` (the address of the ring in constants)

One thread walks a ring. Every access needs the result of the one before, so that the cycles of the whole walk divided by its steps are the
latency of one. Rings hold absolute addresses, so that no instruction lies between two accesses. The clock is read before and after the walk
under a predicate on the address, so the first read waits for the address and the last for the last value.

A store or a reduction returns nothing, so nothing can depend on it: there a step is only issued, and the average is the time from issue to
issue. A pair stores and loads the same address again; its average is the time of both together.

The walk in constants begins at an address to which a 0 from memory was added, or ptxas would find it uniform and use other instructions
(ULDC).

`walk` takes `times` (u64[4]: begin, end, the final address, and a sum that steps may add to), `at` (where a walk in global memory or of
texels begins), `handle` (of the texture), `warm` and `steps` (loop iterations of `TURN` steps each before and in the walk) and `zero`,
which is 0, unknown to ptxas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from memlane.ptx import Module, parse

TURN = 16
"""Steps in one iteration of the loop.

In a chain of atomics ptxas moves the address between registers at the end of an iteration and branches behind that, which takes 26 cycles
by the control words for sm_90: less than 2 per step for 16 steps.
"""
TIMED = "// timed"
SHARED_ROWS, SHARED_ROW_BYTES = 64, 256
LOCAL_ROWS, CONSTANT_BYTES = 64, 32 << 10
SLOT_BYTES = 256
_HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n"
_PARAMETERS = """\
    .param .u64 times,
    .param .u64 at,
    .param .u64 handle,
    .param .u32 warm,
    .param .u32 steps,
    .param .u32 zero"""


@dataclass(frozen=True)
class Chain:
    """One kind of access."""

    name: str
    kind: str
    """`load`, `atomic`, `store then load`, `store` or `reduction`."""
    step: tuple[str, ...]
    """Instructions of one step.

    `%at` (64 bits) or `%it` (32 bits) is the address, or the value; `{slot}` is a separate offset for each step of an iteration.
    """
    setup: str = ""
    """PTX that makes the ring, and sets the start of the walk."""
    variable: str = ""
    """Declaration at module scope."""
    start: str = ""
    """Meaning of `at`: `ring` and `slots` in global memory, a `texel`, a ring in `constant` memory; empty if the kernel has its own start.
    """

    @property
    def fixed(self) -> str:
        """Register that a step passes on, if it is not the address, which stays the same; else empty."""
        return "%at" if self.kind == "store then load" else ""

    @property
    def waits(self) -> bool:
        """Whether a step needs the result of the one before."""
        return self.kind not in ("store", "reduction")

    @cached_property
    def text(self) -> str:
        """PTX of the module."""
        return f"{_HEAD}{self.variable}{_walk(self.setup, self.turn(''), self.turn(TIMED))}{_LINK}{_where(bool(self.variable))}"

    def turn(self, mark: str) -> str:
        """Return one iteration of the loop, each access marked."""
        steps = [line.format(slot=number * SLOT_BYTES) for number in range(TURN) for line in self.step]
        return "".join(f"    {step} {mark}\n" for step in steps)

    def module(self) -> Module:
        return parse(self.text, "latency.ptx")

    @cached_property
    def timed_lines(self) -> frozenset[tuple[str, int]]:
        """Lines of the timed accesses, for a selection of sites."""
        return frozenset(("latency.ptx", number) for number, line in enumerate(self.text.splitlines(), 1) if line.endswith(TIMED))


def clock_after(register: str, clock: str) -> str:
    """Return PTX that reads the clock into `clock` once the 64-bit `register` has arrived."""
    return f"    setp.ne.u64 %there, {register}, -1;\n    @%there mov.u64 {clock}, %clock64;\n"


def _walk(setup: str, warm: str, timed: str) -> str:
    return f"""
.visible .entry walk(
{_PARAMETERS}
)
{{
    .reg .pred %other, %more, %there, %linking;
    .reg .b32 %thread, %left, %it, %none, %word, %next, %n1, %n2, %n3;
    .reg .b64 %at, %begin, %end, %times, %ring, %handle, %nothing, %entry, %target, %slot, %first, %second, %sum;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %other, %thread, 0;
    @%other ret;
    ld.param.u64 %times, [times];
    ld.param.u64 %at, [at];
    ld.param.u64 %handle, [handle];
    ld.param.u32 %none, [zero];
    cvt.u64.u32 %nothing, %none;
    cvt.u32.u64 %it, %at;
{setup}
    ld.param.u32 %left, [warm];
    setp.eq.u32 %more, %left, 0;
    @%more bra $timed;
$warm:
    .pragma "nounroll";
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
{warm}    @%more bra $warm;
$timed:
    ld.param.u32 %left, [steps];
    mov.u64 %begin, 0;
    mov.u64 %end, 0;
    mov.u64 %first, 0;
    mov.u64 %second, 0;
    mov.u64 %sum, 0;
{_joined()}{clock_after("%target", "%begin")}
$turn:
    .pragma "nounroll";
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
{timed}    @%more bra $turn;
{_joined()}{clock_after("%target", "%end")}    st.global.u64 [%times], %begin;
    st.global.u64 [%times+8], %end;
    st.global.u64 [%times+16], %target;
    st.global.u64 [%times+24], %sum;
    ret;
}}
"""


def _joined() -> str:
    """Return PTX that computes `%target` from both registers that a chain may use; a chain leaves the other unchanged."""
    return "    cvt.u64.u32 %target, %it;\n    add.u64 %target, %target, %at;\n"


_LINK = """
.visible .entry link(
    .param .u64 ring,
    .param .u64 row_bytes,
    .param .u32 rows,
    .param .u32 stride
)
{
    .reg .pred %beyond;
    .reg .b32 %i, %n, %size, %rows, %stride;
    .reg .b64 %ring, %bytes, %here, %next;
    mov.u32 %n, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %n, %size, %i;
    ld.param.u32 %rows, [rows];
    setp.ge.u32 %beyond, %i, %rows;
    @%beyond ret;
    ld.param.u64 %ring, [ring];
    ld.param.u64 %bytes, [row_bytes];
    ld.param.u32 %stride, [stride];
    cvt.u64.u32 %here, %i;
    mad.lo.u64 %here, %here, %bytes, %ring;
    add.u32 %n, %i, %stride;
    rem.u32 %n, %n, %rows;
    cvt.u64.u32 %next, %n;
    mad.lo.u64 %next, %next, %bytes, %ring;
    st.global.u64 [%here], %next;
    ret;
}
"""


def _where(constant: bool) -> str:
    if not constant:
        return ""
    return """
.visible .entry where(
    .param .u64 out
)
{
    .reg .b64 %out, %ring;
    ld.param.u64 %out, [out];
    mov.u64 %ring, words;
    st.global.u64 [%out], %ring;
    ret;
}
"""


def _ring(declaration: str, space: str, rows: int, row_bytes: int, bits: int = 64) -> str:
    """Return PTX that links a ring in a variable of the kernel, each row to the third next."""
    address, value = ("%ring", "%target") if bits == 64 else ("%ring", "%next")
    narrow = "" if bits == 64 else "    cvt.u32.u64 %next, %target;\n"
    start = "    mov.u64 %at, %ring;\n" if bits == 64 else "    cvt.u32.u64 %it, %ring;\n"
    return f"""\
    {declaration}
    mov.u64 {address}, place;
    mov.u32 %left, 0;
$link:
    mul.wide.u32 %entry, %left, {row_bytes};
    add.u64 %entry, %entry, %ring;
    add.u32 %word, %left, 3;
    rem.u32 %word, %word, {rows};
    mul.wide.u32 %target, %word, {row_bytes};
    add.u64 %target, %target, %ring;
{narrow}    st.{space}.u{bits} [%entry], {value};
    add.u32 %left, %left, 1;
    setp.ne.u32 %linking, %left, {rows};
    @%linking bra $link;
{start}"""


_SHARED = f".shared .align 256 .b8 place[{SHARED_ROWS * SHARED_ROW_BYTES}];"
_LOCAL = f".local .align 8 .b8 place[{LOCAL_ROWS * 8}];"
_SLOTS = f".shared .align 256 .b8 place[{TURN * SLOT_BYTES}];\n    mov.u64 %slot, place;\n    mov.u64 %at, 0;\n"
_GLOBAL_SLOTS = "    mov.u64 %slot, %at;\n    mov.u64 %at, 0;\n"

SHARED = Chain("shared load", "load", ("ld.shared.u64 %at, [%at];",), _ring(_SHARED, "shared", SHARED_ROWS, SHARED_ROW_BYTES))
GLOBAL = Chain("global load", "load", ("ld.global.u64 %at, [%at];",), start="ring")
CONSTANT = Chain(
    "constant load",
    "load",
    ("ld.const.u64 %at, [%at];",),
    "    ld.global.u64 %at, [%times+24];\n    mov.u64 %ring, words;\n    add.u64 %at, %at, %ring;\n",
    variable=f".visible .const .align 256 .b8 words[{CONSTANT_BYTES}];\n",
    start="constant",
)
LOCAL = Chain("local load", "load", ("ld.local.u64 %at, [%at];",), _ring(_LOCAL, "local", LOCAL_ROWS, 8))
TEXTURE = Chain("texture load", "load", ("tex.1d.v4.s32.s32 {{%it, %n1, %n2, %n3}}, [%handle, {{%it}}];",), start="texel")
SHARED_ATOMIC = Chain(
    "shared atomic", "atomic", ("atom.shared.add.u32 %it, [%it], %none;",), _ring(_SHARED, "shared", SHARED_ROWS, SHARED_ROW_BYTES, 32)
)
GLOBAL_ATOMIC = Chain("global atomic", "atomic", ("atom.global.add.u64 %at, [%at], %nothing;",), start="ring")
SHARED_PAIR = Chain(
    "shared store then load",
    "store then load",
    ("st.volatile.shared.u64 [%slot+{slot}], %at;", "ld.volatile.shared.u64 %at, [%slot+{slot}];"),
    _SLOTS,
)
GLOBAL_PAIR = Chain(
    "global store then load",
    "store then load",
    ("st.volatile.global.u64 [%slot+{slot}], %at;", "ld.volatile.global.u64 %at, [%slot+{slot}];"),
    _GLOBAL_SLOTS,
    start="slots",
)
SHARED_STORE = Chain("shared store", "store", ("st.shared.u64 [%slot+{slot}], %at;",), _SLOTS)
GLOBAL_STORE = Chain("global store", "store", ("st.global.u64 [%slot+{slot}], %at;",), _GLOBAL_SLOTS, start="slots")
SHARED_REDUCTION = Chain("shared reduction", "reduction", ("red.shared.add.u32 [%slot+{slot}], %thread;",), _SLOTS)
GLOBAL_REDUCTION = Chain("global reduction", "reduction", ("red.global.add.u32 [%slot+{slot}], %thread;",), _GLOBAL_SLOTS, start="slots")


FENCES = {
    "nothing": "",
    "membar.cta": "membar.cta;",
    "fence.acq_rel.cta": "fence.acq_rel.cta;",
    "membar.gl": "membar.gl;",
    "a predicate on the value": "setp.ne.u64 %there, %at, -1;",
}
"""Code between an access and the second clock read, by name."""


def fenced(chain: Chain, fence: str, empty: bool = False) -> Chain:
    """Return `chain`, a chain of 64-bit loads, with each load timed by itself and followed by a fence.

    A clock read in front of each load is ordered after its address; a second one follows the fence; their differences are added up. With
    `empty` there is no load.
    """
    guard = "@%there " if "setp" in FENCES[fence] else ""
    step = (
        "setp.ne.u64 %there, %at, -1;",
        "@%there mov.u64 %first, %clock64;",
        *(() if empty else chain.step),
        *((FENCES[fence],) if FENCES[fence] else ()),
        f"{guard}mov.u64 %second, %clock64;",
        "sub.u64 %second, %second, %first;",
        "add.u64 %sum, %sum, %second;",
    )
    return replace(chain, name=f"{chain.name}, {fence}", step=step)

"""What must not be called exact: assembled code with one thing changed, and what `exactness` must then say of an access.

As in `test_soundness`: each row begins with code that the assembler made and of which the access is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest

from memlane.audit import exactness
from memlane.audit.assembled_module import AssembledModule
from memlane.ptx import Module
from memlane.record import EXACT
from memlane.sass import Instruction, Program, disassemble
from tests.instrument.kernels import instructions, kernel
from tests.sass.code import cubin_of, exchanged, inserted, instruction

HEAD = """
    .reg .u32 %i, %n, %v<9>; .reg .u64 %a, %o; .reg .pred %q;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 16; add.u64 %a, %a, %o;
"""
SLOW = "membar.gl; st.global.u32 [%a+16], %v0; membar.gl; st.global.u32 [%a+20], %v0; membar.gl;"
"""What the assembler does not make conditional instruction by instruction."""
KERNELS = {
    "straight": "ld.global.u32 %v0, [%a]; ld.global.u32 %v1, [%a+64]; add.u32 %v0, %v0, %v1; st.global.u32 [%a+8], %v0; ret;",
    "reduction": "ld.global.u32 %v0, [%a]; red.global.add.u32 [%a+8], %v0; ret;",
    "branch": "ld.global.u32 %v0, [%a]; setp.eq.u32 %q, %v0, 7; @%q bra done; " + SLOW + " done: st.global.u32 [%a+8], %v0; ret;",
    "loop": """mov.u32 %n, %ctaid.x; mov.u32 %v2, 0;
        again: ld.global.u32 %v1, [%a]; mad.lo.u32 %v2, %v2, 3, %v1; membar.gl; sub.u32 %n, %n, 1; setp.gt.s32 %q, %n, 0; @%q bra again;
        st.global.u32 [%a+8], %v2; ret;""",
    "labelled": "ld.global.u32 %v0, [%a]; on: ld.global.u32 %v1, [%a+64]; add.u32 %v0, %v0, %v1; st.global.u32 [%a+8], %v0; ret;",
    "off its end": "ld.global.u32 %v0, [%a]; setp.eq.u32 %q, %v0, 7; @%q bra done; " + SLOW
    + "st.global.u32 [%a+8], %v0; ret; done: add.u32 %v0, %v0, 1;",
    "guarded in a loop": """mov.u32 %n, %ctaid.x; mov.u32 %v2, 0;
        again: ld.global.u32 %v1, [%a]; mad.lo.u32 %v2, %v2, 3, %v1; membar.gl; setp.gt.u32 %q, %v1, 9; @%q st.global.u32 [%a+8], %v2;
        membar.gl; sub.u32 %n, %n, 1; setp.gt.s32 %q, %n, 0; @%q bra again; ret;""",
    "before a switch": """mov.u32 %n, %ctaid.x; setp.gt.u32 %q, %n, 100; @%q bra done;
        ld.global.u32 %v0, [%a]; membar.gl; and.b32 %n, %i, 3; ways: .branchtargets l0, l1, l2, l3; brx.idx %n, ways;"""
    + "".join(f"l{way}: membar.gl; st.global.u32 [%a+{16 + 4 * way * way}], %v0; membar.gl; bra done;" for way in range(4)) + "done: ret;",
    "before a branch": "mov.u32 %n, %ctaid.x; setp.gt.u32 %q, %n, 100; @%q bra end; ld.global.u32 %v0, [%a]; membar.gl;"
    "ld.global.u32 %v1, [%a+64]; setp.eq.u32 %q, %v1, 7; @%q bra done; " + SLOW + " done: st.global.u32 [%a+8], %v1; end: ret;",
}  # fmt: skip
PLACES = {"straight": (0, "ld"), "reduction": (0, "red"), "branch": (-1, "st"), "loop": (0, "ld")}
PLACES |= {"labelled": (1, "ld"), "off its end": (-1, "st"), "guarded in a loop": (0, "st")}
PLACES |= {"before a switch": (0, "ld"), "before a branch": (0, "ld")}
"""The access that is asked about: which of its opcode in the text."""


@dataclass(frozen=True)
class Code:
    """An assembled kernel `k` and the access in question. Instructions are named by their index."""

    module: Module
    program: Program
    access: int
    site: int

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.program.functions["k"].instructions

    @property
    def line(self) -> int | None:
        """That of the PTX from which the access was made."""
        return self.instructions[self.access].ptx_line

    def at(self, opcode: str) -> int:
        """The last instruction of an opcode before the access."""
        return max(place for place in range(self.access) if self.instructions[place].opcode == opcode)

    def text(self, index: int) -> str:
        return self.instructions[index].text

    def before(self, index: int, *texts: str | Instruction, label: str = "") -> Code:
        added = [instruction(one) if isinstance(one, str) else one for one in texts]
        return replace(self, program=inserted(self.program, "k", index, *added, label=label))

    def made_too(self, text: str) -> Code:
        """With one more instruction that was made from the access's."""
        return self.before(self.access, replace(instruction(text), ptx_line=self.line))

    def instead(self, index: int, text: str) -> Code:
        return replace(self, program=exchanged(self.program, "k", index, instruction(text)))

    def by_branch(self) -> Code:
        """With a branch over the access in the place of its guard."""
        guard, _, bare = self.text(self.access).partition(" ")
        over = f"@{guard[2:] if guard.startswith('@!') else f'!{guard[1:]}'} BRA `(.L_skip)"
        made = replace(instruction(bare), ptx_line=self.line, control=self.instructions[self.access].control)
        code = self.before(self.access + 1, label=".L_skip")
        code = replace(code, program=exchanged(code.program, "k", code.access, made))
        return code.before(code.access, replace(instruction(over), ptx_line=self.line))

    def moved_behind(self, opcode: str) -> Code:
        """With the access two instructions behind the next one of an opcode: where it falls through, or where its table leads first."""
        jump = self._next(opcode)
        return self.before(jump + 2, self.instructions[self.access]).instead(self.access, "NOP")

    def jumping(self, opcode: str, text: str) -> Code:
        """With another text of the next instruction of an opcode behind the access. `{}` stands for what it names."""
        jump = self._next(opcode)
        return self.instead(jump, text.format(self.text(jump).partition(f"{opcode} ")[2]))

    def _next(self, opcode: str) -> int:
        return next(place for place in range(self.access, len(self.instructions)) if self.instructions[place].opcode == opcode)

    def verdict(self) -> tuple[str, str]:
        (found,) = (one for one in exactness(self.module, self.program) if one.site == self.site)
        return found.verdict, found.reason


@cache
def assembled(name: str) -> Code:
    module = kernel(HEAD + KERNELS[name])
    program = disassemble(cubin_of(module))
    which, opcode = PLACES[name]
    index = [place for place, one in enumerate(instructions(module)) if one.opcode == opcode and "param" not in one.modifiers][which]
    if opcode == "ld":  # The first is that of the parameter.
        index = [place for place, one in enumerate(instructions(module)) if one.name.startswith("ld.global")][which]
    code = AssembledModule(module, program)
    (access,) = code.accesses("k", index, "global")
    sites = [place for place, one in enumerate(instructions(module)) if one.opcode in ("ld", "st", "red") and "param" not in one.name]
    return Code(module, program, access, sites.index(index))


BEHIND = "ptxas moved it behind a branch"
LESS = "ptxas moved it to where it is executed less often"
NONE = "ptxas made no access for it"
UNJOINED = "the assembled code may not bring the lanes of a warp together before it"
Row = tuple[str, Callable[[Code], Code], str]
ROWS: Mapping[str, Row] = {
    "as it is": ("straight", lambda code: code, ""),
    "left out": ("straight", lambda code: code.instead(code.access, "NOP"), NONE),
    "in another space": ("straight", lambda code: code.instead(code.access, "LDS R0, [R2]"), NONE),
    "made twice": ("straight", lambda code: code.made_too(code.text(code.access)), "some of which run one after another"),
    "twice as wide": ("straight", lambda code: code.instead(code.access, code.text(code.access).replace("LDG.E", "LDG.E.64")), "8 B"),
    "a quarter as wide": ("straight", lambda code: code.instead(code.access, code.text(code.access).replace("LDG.E", "LDG.E.U8")), "1 B"),
    "a load made of a store": (
        "branch",
        lambda code: code.instead(code.access, "LDG.E R200, desc[UR4][R2.64+0x8]"),
        "ptxas turned the store into 1 x 4 B global load",
    ),
    "under a condition": ("straight", lambda code: code.instead(code.access, f"@P5 {code.text(code.access)}"), "put a condition on it"),
    "under a condition behind a label": (
        "labelled",
        lambda code: code.instead(code.access, f"@P5 {code.text(code.access)}"),
        "put a condition on it",
    ),
    "under a condition that always holds": ("straight", lambda code: code.instead(code.access, f"@PT {code.text(code.access)}"), ""),
    "jumped over by some": (
        "straight",
        lambda code: code.before(code.access + 1, label=".L_over").before(code.access, "@P5 BRA `(.L_over)"),
        "put a branch around it",
    ),
    "jumped over by lanes that trap": (
        "straight",
        lambda code: code.before(len(code.instructions) - 1, "BPT.TRAP 0x1", label=".L_end")
        .before(len(code.instructions) - 1, label=".L_trap")
        .before(code.access, "@P5 BRA `(.L_trap)"),
        "",
    ),
    "made on each of two ways": (
        "straight",
        lambda code: code.before(code.access + 1, label=".L_behind")
        .before(code.access, label=".L_other")
        .before(code.access, "@P5 BRA `(.L_other)", code.instructions[code.access], "BRA `(.L_behind)"),
        "",
    ),
    "left by some before it": ("straight", lambda code: code.before(code.access, "@P5 EXIT"), "put a branch around it"),
    "behind a label, as it is": ("labelled", lambda code: code, ""),
    "behind a label, left by some before it": ("labelled", lambda code: code.before(code.access, "@P5 EXIT"), "put a branch around it"),
    "in a kernel that some lanes leave by its end": ("off its end", lambda code: code, ""),
    "guarded in a loop, as it is": ("guarded in a loop", lambda code: code, ""),
    "guarded in a loop, by a branch": ("guarded in a loop", lambda code: code.by_branch(), ""),
    "guarded in a loop, by a branch and a guard": (
        "guarded in a loop",
        lambda code: code.by_branch().before(code.access + 2, label=".L_more").before(code.access + 1, "@P5 BRA `(.L_more)"),
        LESS,
    ),
    "a reduction as it is": ("reduction", lambda code: code, ""),
    "lanes that agree first": ("reduction", lambda code: code.made_too("VOTE.ANY R200, PT, PT"), "first combines the values"),
    "a reduction with a load": ("reduction", lambda code: code.made_too("LDG.E R200, desc[UR4][R2.64]"), "until it succeeds"),
    "behind a branch, as it is": ("branch", lambda code: code, ""),
    "lanes that do not wait for each other": ("branch", lambda code: code.instead(code.at("BSYNC"), "NOP"), UNJOINED),
    "lanes that wait behind it": (
        "branch",
        lambda code: code.before(code.access + 1, code.instructions[code.at("BSYNC")]).instead(code.at("BSYNC"), "NOP"),
        UNJOINED,
    ),
    "before a switch, as it is": ("before a switch", lambda code: code, ""),
    "before a switch, moved behind it": ("before a switch", lambda code: code.moved_behind("BRX"), BEHIND),
    "before a switch of some, moved behind it": (
        "before a switch",
        lambda code: code.jumping("BRX", "@P5 BRX {}").moved_behind("BRX"),
        BEHIND,
    ),
    "before a switch by a uniform register, moved behind it": (
        "before a switch",
        lambda code: code.moved_behind("BRX").jumping("BRX", "BRXU {}"),
        BEHIND,
    ),
    "before a branch, as it is": ("before a branch", lambda code: code, ""),
    "before a branch, moved behind it": ("before a branch", lambda code: code.moved_behind("BRA"), BEHIND),
    "before a branch by a uniform predicate, moved behind it": (
        "before a branch",
        lambda code: code.moved_behind("BRA").jumping("BRA", "BRA.U UP0, {}"),
        BEHIND,
    ),
    "in a loop, as it is": ("loop", lambda code: code, ""),
    "jumped over in a loop": (
        "loop",
        lambda code: code.before(code.access + 1, label=".L_over").before(code.access, "@P5 BRA `(.L_over)"),
        LESS,
    ),
}  # fmt: skip


CALLED = """.func f(.param .u64 q) {
    .reg .u64 %b; .reg .u32 %c; ld.param.u64 %b, [q]; ld.global.u32 %c, [%b]; st.global.u32 [%b+4], %c; ret;
}"""


def test_a_function_of_which_the_kernel_has_code_too() -> None:
    """A part of it was inlined somewhere: of its accesses nobody knows for which of its calls they stand."""
    call = "{ .param .u64 a; st.param.u64 [a], %a; call f, (a); } { .param .u64 a; st.param.u64 [a], %o; call f, (a); } ret;"
    module = kernel(HEAD + call, before=CALLED)
    program = disassemble(cubin_of(module))
    assert [one.verdict for one in exactness(module, program)] == [EXACT] * 4
    line = next(one.ptx_line for one in program.functions["f"].instructions if one.opcode == "LDG")
    moved = inserted(program, "k", 4, replace(instruction("NOP"), ptx_line=line))
    assert {one.reason for one in exactness(module, moved)} == {
        "ptxas inlined the function, so the accesses of its calls cannot be told apart"
    }


CALLING = """.func g(.param .u64 q) {
    .reg .u64 %b; ld.param.u64 %b, [q]; { .param .u64 a; st.param.u64 [a], %b; call.uni f, (a); } st.global.u32 [%b+8], 1; ret;
}"""


def test_a_function_that_is_called_by_one_of_which_the_kernel_has_code() -> None:
    """Where the caller was inlined, a call that was made of its call stands in the kernel: nothing says where lanes come to it."""
    call = "{ .param .u64 a; st.param.u64 [a], %a; call.uni g, (a); } ret;"
    module = kernel(HEAD + call, before=CALLED + CALLING)
    program = disassemble(cubin_of(module))
    assert [one.verdict for one in exactness(module, program)] == [EXACT] * 3
    made = next(one for one in program.functions["g"].instructions if one.opcode == "CALL")
    moved = inserted(program, "k", 4, replace(instruction("NOP"), ptx_line=made.ptx_line))
    gone = replace(program, functions={name: one for name, one in program.functions.items() if name != "g"})
    placed = next(place for place, one in enumerate(gone.functions["k"].instructions) if one.opcode == "CALL")
    gone = exchanged(gone, "k", placed, instruction("NOP"))
    for changed in (moved, gone):
        assert "inlined g, which calls it" in exactness(module, changed)[0].reason
        assert "inlined the function" in exactness(module, changed)[2].reason


@pytest.mark.parametrize("name", ROWS)
def test_what_is_exact(name: str) -> None:
    of, change, reason = ROWS[name]
    verdict, said = change(assembled(of)).verdict()
    assert (verdict == EXACT) == (not reason), said
    assert reason in said

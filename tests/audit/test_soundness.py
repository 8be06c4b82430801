"""What must not be concluded: assembled code with one thing changed, and what `prove` must then say of the time of its access.

Each row begins with code that the assembler made and that is proved, changes it in one way, and states what is left of the proof: nothing
(`complete`) or a part of the reason. Rows that stay complete are as important: they show that the neighbouring row fails for what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest

from memlane.audit import SiteProof, prove
from memlane.audit.assembled_module import AssembledModule
from memlane.audit.exposure import ExposedWindow, ExposedWindows
from memlane.instrument import Selection, Traced, TraceOptions, trace
from memlane.record import COMPLETE, ISSUE_ONLY
from memlane.sass import Instruction, Program, disassemble, waits_for
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of, exchanged, inserted, instruction

HEAD = """
    .reg .u32 %i, %v<5>; .reg .u64 %a, %o;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
"""
KERNELS = {
    "load": "ld.global.u32 %v0, [%a]; mad.lo.u32 %i, %i, 3, 7; mad.lo.u32 %i, %i, %i, %v0; st.global.u32 [%a], %i; ret;",
    "fetch": "tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [texture, {%i}]; add.u32 %i, %v0, %v2; st.global.u32 [%a], %i; ret;",
    "shared load": """{ .shared .align 4 .u32 tile[64]; shl.b32 %i, %i, 2; ld.shared.u32 %v0, [%i]; }
        mad.lo.u32 %i, %i, %i, %v0; st.global.u32 [%a], %i; ret;""",
    "load far from its consumer": "ld.global.u32 %v0, [%a];" + "mad.lo.u32 %i, %i, %i, 7;" * 12 + "mad.lo.u32 %i, %i, %i, %v0;"
    "st.global.u32 [%a], %i; ret;",
}  # fmt: skip


@dataclass(frozen=True)
class Code:
    """An assembled kernel `k` with one timed access. Instructions are named by their index."""

    traced: Traced
    program: Program
    window: ExposedWindow

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.program.functions["k"].instructions

    @property
    def access(self) -> int:
        return self.window.accesses[0]

    @property
    def start(self) -> int:
        return min(self.window.starts)

    @property
    def end(self) -> int:
        return min(self.window.ends)

    @property
    def wait(self) -> int:
        """The clock read before the wait, of a window that closes in front of a consumer."""
        return min(self.window.waits)

    @property
    def store(self) -> int:
        """That of the record."""
        return self.window.times[0]

    @property
    def board(self) -> int:
        """The scoreboard of the access."""
        found = self.instructions[self.access].control.write_scoreboard
        assert found is not None
        return found

    @property
    def waiter(self) -> int:
        """What waits for the access."""
        return next(place for place in range(self.access + 1, self.end + 1) if self.board in waits_for(self.instructions[place]))

    def before(self, index: int, *texts: str | Instruction, label: str = "") -> Code:
        """With instructions in front of one."""
        added = [instruction(text) if isinstance(text, str) else text for text in texts]
        return replace(self, program=inserted(self.program, "k", index, *added, label=label))

    def with_text(self, index: int, text: str) -> Code:
        """With another instruction, which waits and raises as the one there did."""
        control = self.instructions[index].control
        return replace(self, program=exchanged(self.program, "k", index, replace(instruction(text), control=control)))

    def with_control(self, index: int, **fields: int | None) -> Code:
        one = self.instructions[index]
        return replace(self, program=exchanged(self.program, "k", index, replace(one, control=replace(one.control, **fields))))  # type: ignore[arg-type]

    def unwaited(self) -> Code:
        """Where what waits for the access stands behind the second clock read, and nothing reads its value before."""
        return replace(self, program=exchanged(self.program, "k", self.waiter, instruction("NOP"))).awaited_late()

    def awaited_late(self) -> Code:
        """Where the code waits for the access behind the second clock read, too, so that nothing takes its value before it is there."""
        return self.before(self.end + 1, instruction("NOP", wait=self.board))

    def words(self, index: int, text: str) -> str:
        """A text with the registers of the record in it: `{0}` to `{3}`."""
        first = self.instructions[index].operands[-1].register
        assert first is not None
        return text.format(*(f"R{first.number + word}" for word in range(4)))

    def stored(self, *texts: str) -> Code:
        """With instructions in front of the store of the record."""
        return self.before(self.store, *(self.words(self.store, text) for text in texts))

    def packed_by(self, register: str) -> Code:
        """Where the selector that puts the number of the site beside the start is in a register."""
        index, text = packing(self, register)
        return self.with_text(index, text).before(self.end + 1, constant(f"MOV {register}, 0x1054"))

    def proof(self) -> SiteProof:
        (found,) = prove(self.traced, self.program)
        return found


def constant(text: str) -> Instruction:
    """A move of a constant, which the encoding holds in full."""
    return replace(instruction(text), encoding=int(text.rpartition("0x")[2], 16) << 32)


def packing(code: Code, selector: str) -> tuple[int, str]:
    """What puts the number of the site beside the start in the record, and its text with another selector."""
    index = max(place for place in range(code.store) if code.instructions[place].opcode == "PRMT")
    return index, code.instructions[index].text.replace("0x1054", selector)


@cache
def assembled(name: str, scheme: str = "dependent") -> Code:
    module = kernel(HEAD + KERNELS[name], before=".global .texref texture;")
    traced = trace(module, TraceOptions(scheme, Selection(kinds={"load"})))
    program = disassemble(cubin_of(traced.module))
    window = ExposedWindows(AssembledModule(traced.module, program), "k").window(traced.sites[0], traced.probes["k"][0])
    return Code(traced, program, window)  # type: ignore[arg-type]


Row = tuple[Callable[[Code], Code], str]
"""A change, and a part of the reason why nothing is known then; empty if the proof holds."""


def check(code: Code, change: Callable[[Code], Code], reason: str) -> None:
    found = change(code).proof()
    assert (found.completeness, found.reason) == (COMPLETE, "") if not reason else found.completeness == ISSUE_ONLY, found.reason
    assert reason in found.reason


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("scheme", ["dependent", "exposed"])
def test_the_code_itself_is_proved(name: str, scheme: str) -> None:
    check(assembled(name, scheme), lambda code: code, "")


# -- 2. the end waits -----------------------------------------------------------------------------------------------------------------

UNWAITED = "can execute without a wait for scoreboard"


def depbar(code: Code, count: int, board: int = 0, others: str = "") -> str:
    return f"DEPBAR.LE SB{code.board + board}, {count:#x}" + (f", {{{others}}}" if others else "")


def counted(code: Code, wait: str, *behind: str, board: int = 0) -> Code:
    """A counted wait instead of the mask's, and more under way behind the access, which raise its scoreboard too, or the next."""
    access, waiter = code.access, code.waiter
    code = code.unwaited().before(waiter, wait)
    return code.before(access + 1, *(instruction(text, (code.board + board) % 6) for text in behind))


SURFACE = "SULD.D.1D.STRONG.SM R200, [R202], UR8"
GLOBAL = "LDG.E R204, desc[UR8][R206.64]"
COUNTED: Mapping[str, Row] = {
    "none may be outstanding": (lambda code: counted(code, depbar(code, 0)), ""),
    "the fetch may be outstanding": (lambda code: counted(code, depbar(code, 1)), UNWAITED),
    "one more of its pipe behind it may be": (lambda code: counted(code, depbar(code, 1), SURFACE), ""),
    "two may be, and one is behind it": (lambda code: counted(code, depbar(code, 2), SURFACE), UNWAITED),
    "two may be, and two are behind it": (lambda code: counted(code, depbar(code, 2), SURFACE, SURFACE), ""),
    "one of another pipe may be": (lambda code: counted(code, depbar(code, 1), GLOBAL), UNWAITED),
    "one of each pipe behind it, one may be": (lambda code: counted(code, depbar(code, 1), GLOBAL, SURFACE), UNWAITED),
    "the other way round": (lambda code: counted(code, depbar(code, 1), SURFACE, GLOBAL), UNWAITED),
    "one of another pipe, then two of its own": (lambda code: counted(code, depbar(code, 1), GLOBAL, SURFACE, SURFACE), UNWAITED),
    "one with another scoreboard": (lambda code: counted(code, depbar(code, 1), SURFACE, board=1), UNWAITED),
    "for another scoreboard": (lambda code: counted(code, depbar(code, 1, board=-1), SURFACE), UNWAITED),
    "for another one, and for its own at zero": (lambda code: counted(code, depbar(code, 1, -1, str(code.board))), ""),
    "for another one at zero": (lambda code: counted(code, depbar(code, 0, -1, str(code.board - 2))), UNWAITED),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counted_waits(name: str) -> None:
    """Fetches complete in their order, so that the assembler counts; what goes another way completes whenever it does."""
    check(assembled("fetch"), *COUNTED[name])


def test_of_loads_from_global_memory_nothing_can_be_counted() -> None:
    check(assembled("load"), lambda code: counted(code, depbar(code, 1), GLOBAL), UNWAITED)
    check(assembled("load"), lambda code: counted(code, depbar(code, 0), GLOBAL), "")


def spoken_for(code: Code, by: str) -> Code:
    """The access raises no scoreboard, something behind it raises one instead."""
    access, board = code.access, code.board
    return code.with_control(access, write_scoreboard=None).before(access + 1, instruction(by, board))


def test_who_speaks_for_an_access_without_a_scoreboard() -> None:
    """A later one of its pipe, where results return in order."""
    check(assembled("shared load"), lambda code: spoken_for(code, "LDS R200, [R202]"), "")
    check(assembled("shared load"), lambda code: spoken_for(code, "SHFL.IDX PT, R200, R202, RZ, 0x1f"), "")
    silent = "without a wait for the instruction that writes it"
    check(assembled("shared load"), lambda code: spoken_for(code, GLOBAL), silent)
    check(assembled("load"), lambda code: spoken_for(code, GLOBAL), silent)


def first_of_all(code: Code) -> Code:
    """The access and its second clock read are the first instructions of the kernel: nothing comes before them on any path."""
    access, end = (code.instructions[place] for place in (code.access, code.end))
    low, clock = end.operands[0].register, instruction("CS2R R200, SR_CLOCKLO", wait=code.board)
    assert low is not None
    moved = code.with_text(code.access, "NOP").with_text(code.end, f"MOV {low}, R200")
    moved = moved.before(code.end + 1, f"MOV R{low.number + 1}, R201")
    return moved.before(0, access, replace(clock, ptx_line=end.ptx_line))


PATHS: Mapping[str, Row] = {
    "an access that is the first instruction": (first_of_all, "can be reached without its first clock read"),
    "a second clock read that is the first instruction too": (
        lambda code: code.before(0, code.instructions[code.end]).before(1, "NOP"),
        "can be reached without the access",
    ),
    "a way around what waits": (
        lambda code: code.awaited_late().before(code.end, label=".L_over").before(code.waiter, "@P5 BRA `(.L_over)"),
        UNWAITED,
    ),
    "a way around it that waits too": (
        lambda code: code.before(code.end, label=".L_over").before(code.waiter, instruction("@P5 BRA `(.L_over)", wait=code.board)),
        "",
    ),
    "a jump that no lane takes around it": (
        lambda code: code.awaited_late().before(code.end, label=".L_over").before(code.waiter, "@!PT BRA `(.L_over)"),
        UNWAITED,
    ),
    "a way into the window": (
        lambda code: code.before(code.access, label=".L_in").before(code.start, "@P5 BRA `(.L_in)"),
        "can be reached without its first clock read",
    ),
    "a way out of the window, back to its beginning": (
        lambda code: code.awaited_late().before(code.start, label=".L_back").before(code.end, "@P5 BRA `(.L_back)"),
        "is not followed by its second clock read on every path",
    ),
    "a way out of the window to a record with the end of the last turn": (
        lambda code: (
            code.before(code.store + 1, "EXIT")
            .stored("MOV R200, {2}", "MOV R201, {1}", "NOP", "@P6 BRA `(.L_again)", "MOV {2}, R200", "MOV {1}, R201")
            .with_control(code.store + 2, wait_mask=63)
            .before(code.store + 4, label=".L_out")
            .awaited_late()
            .before(code.end, "@P5 BRA `(.L_out)")
            .before(code.start, label=".L_again")
        ),
        "can be written without the second clock read",
    ),
    "a way around the access": (
        lambda code: code.before(code.access + 1, label=".L_by").before(code.access, "@P5 BRA `(.L_by)"),
        "can be reached without the access",
    ),
    "an end of the kernel behind the access, and another way to the clock": (
        lambda code: code.before(code.access + 1, "EXIT").before(code.access + 2, label=".L_by").before(code.start, "@P5 BRA `(.L_by)"),
        "is not followed by its second clock read on every path",
    ),
    "no second clock read": (lambda code: code.with_text(code.end, "NOP"), "does not have the second clock read"),
    "no first clock read": (lambda code: code.with_text(code.start, "NOP"), "does not have the first clock read"),
    "an end of the kernel in the window": (
        lambda code: code.before(code.access + 1, "@P5 EXIT"),
        "",
    ),
    "another copy of the access behind the window": (
        lambda code: code.before(code.end + 1, code.instructions[code.access], instruction("NOP", wait=code.board)),
        "can be reached without its first clock read",
    ),
    "another copy of the access before the window": (
        lambda code: code.before(code.start, code.instructions[code.access], instruction("NOP", wait=code.board)),
        "can be reached without its first clock read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_ways_through_the_window(name: str) -> None:
    check(assembled("load"), *PATHS[name])


# -- 3. the start waits ---------------------------------------------------------------------------------------------------------------


def address_of(code: Code) -> str:
    ((register, _),) = (one for one in code.instructions[code.access].operands[1].address if one[0].bank == "R")
    return str(register)


def late_address(code: Code, waiter: int, by: str = "LDC {}, c[0x0][0x220]", at: int | None = None) -> Code:
    """A part of the address that comes late, made in front of the first clock read, or of `at`, and awaited by `waiter`."""
    board = next(one for one in range(6) if one != code.board and one not in code.instructions[waiter].control.waits)
    mask = code.instructions[waiter].control.wait_mask | 1 << board
    return code.with_control(waiter, wait_mask=mask).before(at or code.start, instruction(by.format(address_of(code)), board))


ADDRESSES: Mapping[str, Row] = {
    "a number added in the window": (lambda code: code.before(code.access, f"VIADD {address_of(code)}, {address_of(code)}, 0x40"), ""),
    "loaded before it, awaited by the clock read": (lambda code: late_address(code, code.start), ""),
    "loaded before it, awaited by the access": (lambda code: late_address(code, code.access), "the first clock read does not wait for"),
    "loaded in the window": (lambda code: late_address(code, code.access, at=code.access), "after the first clock read"),
    "asked from another lane in the window": (
        lambda code: late_address(code, code.access, "SHFL.IDX PT, {0}, {0}, RZ, 0x1f", code.access),
        "after the first clock read",
    ),
    "moved in the window from what was loaded before it": (
        lambda code: late_address(code, code.access, "LDC R200, c[0x0][0x220]").before(
            code.access + 1, instruction(f"MOV {address_of(code)}, R200", wait=next(
                one for one in range(6) if one != code.board and one not in code.instructions[code.access].control.waits)),
        ),
        "the first clock read does not wait for R200",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADDRESSES)
def test_what_the_address_is_made_of(name: str) -> None:
    check(assembled("load"), *ADDRESSES[name])


# -- 4. the record --------------------------------------------------------------------------------------------------------------------

START, END = "the start in the record", "the end in the record"
RECORDS: Mapping[str, Row] = {
    "a word that goes by another register": (lambda code: code.stored("MOV R200, {0}", "MOV {0}, R200"), ""),
    "the end for the start": (lambda code: code.stored("MOV {0}, {2}"), START),
    "the start for the end": (lambda code: code.stored("MOV {2}, {0}"), END),
    "a constant for the start": (lambda code: code.stored("MOV {0}, 0x1"), START),
    "zero for the start of some": (lambda code: code.stored("@P5 MOV {0}, RZ"), START),
    "zero for the end of some": (lambda code: code.stored("@P5 CS2R {2}, SRZ"), END),
    "zero for the end by a choice that nobody makes": (lambda code: code.stored("SEL {2}, {2}, RZ, !P5"), ""),
    "the start plus one": (lambda code: code.stored("VIADD {0}, {0}, 0x1"), START),
    "one more at the end for some": (lambda code: code.stored("@P5 VIADD {2}, {2}, 0x1"), END),
    "exchanged by exclusive ors": (
        lambda code: code.stored(*(f"LOP3.LUT {to}, {{0}}, {{2}}, RZ, 0x3c, !PT" for to in ("{0}", "{2}", "{0}"))),
        START,
    ),
    "exchanged by exclusive ors, and back by moves": (
        lambda code: code.stored(
            *(f"LOP3.LUT {to}, {{0}}, {{2}}, RZ, 0x3c, !PT" for to in ("{0}", "{2}", "{0}")),
            *("MOV R200, {0}", "MOV {0}, {2}", "MOV {2}, R200"),
        ),
        "",
    ),
    "an exclusive or with something else": (lambda code: code.stored("LOP3.LUT {0}, {0}, R200, RZ, 0x3c, !PT"), START),
    "another number beside the start": (
        lambda code: code.stored("PRMT {1}, {1}, 0x1054, 0x1"),
        START,
    ),
    "halves the other way round": (lambda code: code.stored("PRMT {1}, {1}, 0x5410, RZ"), START),
    "put together by another selector": (lambda code: code.with_text(*packing(code, "0x5410")), START),
    "put together by one of two selectors": (
        lambda code: code.before(packing(code, "")[0], constant("@P5 MOV R210, 0x5417")).packed_by("R210"),
        START,
    ),
    "put together by the same selector in a register": (lambda code: code.packed_by("R210"), ""),
    "in two pieces": (
        lambda code: code.with_text(code.store, code.instructions[code.store].text.replace(".128", ".64")),
        "is not written in one piece",
    ),
    "not at all": (lambda code: code.with_text(code.store, "NOP"), "does not write the record of the site"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_in_the_record(name: str) -> None:
    check(assembled("load"), *RECORDS[name])


def kept_for(code: Code, first: str, second: str, guard: str = "@P5", between: str = "NOP") -> Code:
    """A word of the record that is spoilt and put right again for the lanes of P5, which alone store it; the predicate is made once more in
    between, as the assembler does where it has no room for it."""
    store = code.instructions[code.store].text
    bare = store.partition(" ")[2] if store.startswith("@") else store
    right = f"{guard} MOV {{0}}, R201"
    code = code.with_text(code.store, f"@P5 {bare}")
    return code.stored("MOV R201, {0}", "VIADD {0}, {0}, 0x1", first, right, between, second)


SAME = "ISETP.EQ.U32.AND P5, PT, R200, RZ, PT"
PREDICATES: Mapping[str, Row] = {
    "made once": (lambda code: kept_for(code, SAME, "NOP"), ""),
    "made again": (lambda code: kept_for(code, SAME, SAME), ""),
    "made again of another register": (lambda code: kept_for(code, SAME, SAME.replace("R200", "R202")), START),
    "made again of a number that changed": (lambda code: kept_for(code, SAME, SAME, between="VIADD R200, R200, 0x1"), START),
    "made for some lanes at first": (lambda code: kept_for(code, f"@P4 {SAME}", f"@P4 {SAME}"), START),
    "made again for some lanes": (lambda code: kept_for(code, SAME, f"@P4 {SAME}"), START),
    "made of itself": (lambda code: kept_for(code, *[SAME[:-2] + "P5"] * 2), START),
    "made by another instruction": (lambda code: kept_for(code, *["PLOP3.LUT P5, PT, PT, PT, P5, 0x80, 0x8"] * 2), START),
    "put right for the others": (lambda code: kept_for(code, SAME, SAME, guard="@!P5"), START),
    "put right for the lanes of another predicate": (lambda code: kept_for(code, SAME, SAME, guard="@P4"), START),
    "put right for all": (lambda code: kept_for(code, f"@P4 {SAME}", f"@P4 {SAME}", guard="@PT"), ""),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates_that_are_made_again(name: str) -> None:
    check(assembled("load"), *PREDICATES[name])


# -- 5. hazards -----------------------------------------------------------------------------------------------------------------------

USED = "the control words are wrong"
HAZARDS: Mapping[str, Row] = {
    "a result that is not awaited before it is read": (
        lambda code: code.before(code.end + 1, instruction("LDC R200, c[0x0][0x220]", 4), "MOV R201, R200"),
        USED,
    ),
    "or before it is overwritten": (
        lambda code: code.before(code.end + 1, instruction("LDC R200, c[0x0][0x220]", 4), "MOV R200, R201"),
        USED,
    ),
    "a result that is awaited": (
        lambda code: code.before(code.end + 1, instruction("LDC R200, c[0x0][0x220]", 4), instruction("MOV R201, R200", wait=4)),
        "",
    ),
    "a result that nobody reads": (lambda code: code.before(code.end + 1, instruction("LDC R200, c[0x0][0x220]", 4)), ""),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_code_that_does_not_wait_was_not_made_by_the_assembler(name: str) -> None:
    check(assembled("load"), *HAZARDS[name])


# -- windows that close in front of a consumer --------------------------------------------------------------------------------------

FAR = "load far from its consumer"
ROOM = 6
"""Instructions between the clock reads around a wait."""


def filled(code: Code, count: int) -> Code:
    there = code.end - code.wait - 1
    return code.before(code.end, *[f"VIADD R{200 + number}, R{200 + number}, 0x1" for number in range(count - there)])


def exposed_word(code: Code) -> str:
    """The third word of the other half of the record: how long the consumer waited."""
    first = code.instructions[code.window.labels[0]].operands[-1].register
    assert first is not None
    return f"R{first.number + 2}"


def exposed(code: Code, *texts: str) -> Code:
    return code.before(code.window.labels[0], *(text.format(exposed_word(code)) for text in texts))


def clocks(code: Code) -> dict[str, str]:
    """The registers in which the clock reads of the window stand where they are read."""
    return {
        name: str(code.instructions[place].operands[0].register)
        for name, place in (("start", code.start), ("wait", code.wait), ("end", code.end))
    }


WAITS: Mapping[str, Row] = {
    "as many instructions in the wait as there is room for": (lambda code: filled(code, ROOM), ""),
    "one more": (lambda code: filled(code, ROOM + 1), f"{ROOM + 1} instructions lie in the wait"),
    "an operation that reads the value before it": (
        lambda code: code.before(
            code.wait, instruction(f"MOV R200, {code.instructions[code.access].operands[0].register}", wait=code.board)
        ),
        "the value is read",
    ),
    "a wait before it that nothing needs": (
        lambda code: code.before(code.wait, instruction("MOV R200, R201", wait=code.board)),
        "the code waits for the access",
    ),
    "a wait before it for another load, which has the same scoreboard": (
        lambda code: code.before(code.wait, instruction(GLOBAL, code.board), instruction("MOV R200, R204", wait=code.board)),
        "",
    ),
    "no clock read before it": (
        lambda code: code.with_text(code.wait, "NOP"),
        "does not have the one before the wait",
    ),
    "nobody waits": (lambda code: code.unwaited(), UNWAITED),
    "a wait from the first clock read on": (
        lambda code: code.before(code.wait, f"MOV R200, {clocks(code)['start']}").before(code.start, "NOP"),
        "",
    ),
    "an exposed time from one clock read": (
        lambda code: exposed(code, "CS2R R200, SR_CLOCKLO", "MOV {}, R200"),
        "do not come from the clock reads",
    ),
    "an exposed time with a third clock read in it": (
        lambda code: exposed(code, "CS2R R200, SR_CLOCKLO", "IADD3 {0}, {0}, R200, RZ"),
        "do not come from the clock reads",
    ),
    "an exposed time with a number added": (lambda code: exposed(code, "VIADD {0}, {0}, 0x0"), ""),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_of_consumers(name: str) -> None:
    check(assembled(FAR, "exposed"), *WAITS[name])


def test_what_else_is_awaited_between_the_clock_reads_of_a_wait_is_named() -> None:
    """Wherever it stands between them."""
    code = assembled(FAR, "exposed")
    assert not code.proof().also_waits
    late, waits = instruction("LDC R200, c[0x0][0x220]", 5), instruction("NOP", wait=5)
    (also,) = code.before(code.end, waits, "NOP").before(code.wait, late).proof().also_waits
    assert "LDC" in also
    assert not code.before(code.end + 1, waits).before(code.wait, late).proof().also_waits

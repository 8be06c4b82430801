"""Reading listings: places, labels, operands, errors; and the tool behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.compile import assemble
from memlane.errors import CompileError, MissingDependency
from memlane.ptx import parse, print_module
from memlane.sass import INSTRUCTION_BYTES, Guard, Place, Register, disassemble, nvdisasm
from memlane.sass.listing import parse_listing
from memlane.sass.operands import parse_operands
from tests.sass.code import BREADTH, EXAMPLES, breadth, kernel, program

LISTING = """\
\t.target\tsm_90
\t.section\t.text.k,"ax",@progbits
k:
.text.k:
\t//## File "a.cu", line 2 inlined at "b.cu", line 6
\t//## File "b.cu", line 6
\t//## File ".nv_debug_ptx_txt.123", line 44
        /*0000*/              @!UP1 LDG.E.U8 R2, desc[UR4][R2.64+-0x8] ;    /* 0xfffff80402028981 */
                                                                            /* 0x004ea2000c1e1100 */
.L_x_7:
\t//## File ".nv_debug_ptx_txt.123", line 45
        /*0010*/                   BRX R8 -0x120  (*"BRANCH_TARGETS .L_x_7,.L_x_8"*);  /* 0x0000000000000947 */
                                                                            /* 0x000fea0003800000 */
.L_x_8:
"""


def test_places_labels_and_encodings() -> None:
    code = parse_listing(LISTING)
    assert code.target == "sm_90"
    load, branch = code.functions["k"].instructions
    assert (load.opcode, load.modifiers, load.guard) == ("LDG", ("E", "U8"), Guard(Register("UP", 1), negated=True))
    assert load.place == branch.place == Place("a.cu", 2, (("b.cu", 6),))
    assert (load.ptx_line, branch.ptx_line) == (44, 45)
    assert load.encoding == 0x004EA2000C1E1100_FFFFF80402028981
    assert branch.operands[-1].targets == (".L_x_7", ".L_x_8")
    assert code.functions["k"].labels == {"k": 0, ".text.k": 0, ".L_x_7": 1, ".L_x_8": 2}


def test_half_an_instruction_is_refused() -> None:
    cut = LISTING.split("\n")[:8]
    with pytest.raises(CompileError, match="the disassembler wrote half an instruction at k\\+0x0000"):
        parse_listing("\n".join(cut))


def test_operands() -> None:
    found = parse_operands("P0, RZ, -R5.reuse, c[0x0][0x28], desc[UR4][R2.64+0x20], 0x10, !PT, `(.L_x_3), SR_TID.X, UR6, B0, |R8|.H0_H0")
    assert [one.kind for one in found] == [
        *("predicate", "register", "register", "constant", "memory", "immediate", "predicate", "label", "special"),
        *("register", "barrier", "register"),
    ]
    assert [str(one.register) for one in found if one.register] == ["P0", "R5", "UR6", "B0", "R8"]
    assert found[4].address == ((Register("UR", 4), 2), (Register("R", 2), 2))
    assert (found[5].value, found[7].targets) == (16, (".L_x_3",))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_instruction_is_read(path: Path) -> None:
    for function in program(path.read_text()).functions.values():
        offsets = [one.offset for one in function.instructions]
        assert offsets == list(range(0, len(offsets) * INSTRUCTION_BYTES, INSTRUCTION_BYTES))
        assert all(0 <= index <= len(offsets) for index in function.labels.values())


def test_lines_of_source_and_ptx() -> None:
    """The load that stands alone in its line, found by both tables; inlined code keeps the line that it was inlined at."""
    code = disassemble(breadth()).functions["paths"].instructions
    lines = BREADTH.split("\n")
    inlined = next(number for number, text in enumerate(lines, 1) if "p[i] * 3.0f" in text)
    called = next(number for number, text in enumerate(lines, 1) if "inlined(in, i)" in text)
    places = [one.place for one in code if one.opcode == "LDG" and one.place is not None and one.place.line == inlined]
    assert len(places) == 1
    assert [line for _, line in places[0].inlined_at] == [called]


def test_ptx_lines_are_those_of_the_printed_module() -> None:
    module = parse(
        kernel(".reg .u64 %a; .reg .u32 %v;\nld.param.u64 %a, [p];\n\n\nld.global.u32 %v, [%a];\nst.global.u32 [%a+4], %v;\nret;")
    )
    text = print_module(module).split("\n")
    code = program(print_module(module)).functions["k"].instructions
    by_opcode = {one.opcode: text[one.ptx_line - 1].split()[0] for one in code if one.ptx_line}
    assert (by_opcode["LDG"], by_opcode["STG"], by_opcode["EXIT"]) == ("ld.global.u32", "st.global.u32", "ret;")


def test_what_is_left_out_of_the_analysis_is_where_indirect_branches_lead() -> None:
    program(kernel("ret;"))  # skips where there is no nvdisasm
    whole, indirect = assemble(parse(EXAMPLES[-1].read_text(), "last.ptx")).data, breadth()
    for data in (whole, indirect):
        assert disassemble(data) == parse_listing(nvdisasm.run_nvdisasm(data, nvdisasm._LISTING))
    assert any(one.kind == "label" for _, at in disassemble(indirect).instructions() if at.opcode == "BRX" for one in at.operands)


def test_what_is_no_cubin_is_refused() -> None:
    program(kernel("ret;"))  # skips where there is no nvdisasm
    with pytest.raises(CompileError, match="nvdisasm refuses the cubin"):
        disassemble(b"this is not a cubin")


def test_without_nvdisasm(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        data = assemble(kernel("exit;")).data
    except MissingDependency as absent:
        pytest.skip(str(absent))
    monkeypatch.setattr(nvdisasm, "_from_wheel", lambda: None)
    monkeypatch.setenv("PATH", "")
    nvdisasm._tool.cache_clear()
    try:
        with pytest.raises(MissingDependency, match=r"reading assembled code needs packages .* pip install 'memlane\[cuda\]'"):
            disassemble(data)
    finally:
        nvdisasm._tool.cache_clear()

"""Inputs that the fuzzer found, each with the message that it must give, or with what must come of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memlane.chip import from_file
from memlane.chip.catalogue import SHIPPED
from memlane.cli.specs import parse_argument, parse_extent
from memlane.compile.cubin import kernel_usage
from memlane.compile.sources import gather
from memlane.compile.tokens import tokenize
from memlane.diagnose import compare
from memlane.emulate.run.printf import formatted
from memlane.errors import (
    BadLaunch,
    BadPlan,
    ChipError,
    CommandError,
    CompileError,
    DeviceError,
    LayoutError,
    MemlaneError,
    PtxSyntaxError,
    PtxTypeError,
    RecordError,
    UnsupportedPtx,
)
from memlane.instrument import Sampling
from memlane.lab.profiler import parse as parse_profile
from memlane.launch.texture import texels_of
from memlane.layout.spec import read_spec
from memlane.plan import Buffer, Copy, Plan, Step, from_json, to_json
from memlane.ptx import Register, demangle, parse, print_module
from memlane.record import load
from memlane.sass.listing import parse_listing
from memlane.targets import target
from tests.fuzz.of_code import cubins, read_program
from tests.fuzz.of_files import full_trace
from tests.fuzz.of_ptx import lower
from tests.fuzz.of_words import _Memory
from tests.ptx.examples_of_rows import registers

# -- words -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (lambda text: parse_extent("--grid", text), "32,\u00b2", "--grid '32,\u00b2': write X, X,Y or X,Y,Z, for example --grid 32,32"),
        (lambda text: parse_extent("--grid", text), "9" * 5000, "write X, X,Y or X,Y,Z, for example --grid 32,32"),
        (parse_argument, "f4[" + "9" * 5000 + "]", "the extents of an array are whole numbers of at most 18 digits, as in f4[64,64]"),
        (parse_argument, f"f4[{','.join(['1'] * 40)}]", "an array has at most 32 axes, not 40"),
        (parse_argument, f"f4[{','.join(['9' * 18] * 32)}]", "bytes does not fit into the memory of this machine"),
        (parse_argument, "tensor_map(f4[4], box=\u00b2)", "write a box as 64x32, not '\u00b2'"),
        (parse_argument, "texture(f4[4], channels=" + "9" * 5000 + ")", "channels must be a number, not "),
        (parse_argument, "{1:i4}@" + "9" * 5000, "the alignment of a structure is a power of two up to 128 bytes, not 999"),
        (parse_argument, "{" * 30_000 + "1:i4" + "}" * 30_000, "structures may be nested at most 16 deep"),
        (parse_argument, "1e300:f4", "1e300 is not of type float32"),
        (parse_argument, "a[4]", "a is not a number type; use NumPy's names, for example f4, f8, i4, u8, i8, float32"),
    ],
)
def test_words_that_are_refused(read: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        read(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["0-" + "9" * 5000, "\u00b2"])
def test_windows_that_are_refused(text: str) -> None:
    with pytest.raises(MemlaneError, match="is not a block window; write numbers and ranges with both ends, such as 0-3,17"):
        Sampling.of(blocks=text)


@pytest.mark.parametrize("name", ["emulator:a\0b.toml", "cuda:" + "9" * 5000, "emulator:h200:" + "9" * 5000])
def test_targets_that_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=r"no (target|chip|chip file) '?"):
        target(name)


def test_an_image_longer_than_any() -> None:
    host = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), ((1 << 32),), (0,))
    with pytest.raises(BadLaunch, match=r"an axis of a texture has at most 268,435,456 texels; the array has shape \(4294967296,\)"):
        texels_of("a texture", host.shape, host.dtype, 1, False)


# -- names and formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "_ZN5space4kindIiEErun3v",  # `un3` is a name of -3 characters, which led back to where it stands, for ever
        "_Z25\u00b2v",
        f"_Z{'9' * 5000}v",
        "_Z1f" + "P" * 100_000 + "i",
        "_Z1f1aIiiE"
        + "".join(f"1aIS{place}_S{place}_E" for place in ["0", *"2468ACEGIKMOQSUWY", "10", "12", "14"]),  # twice as long each time
    ],
)
def test_a_name_that_is_no_name_stays_as_it_is(name: str) -> None:
    began = time.process_time()
    assert demangle(name) == name
    assert time.process_time() - began < 1


def test_a_conversion_is_never_wider_than_a_library_must_allow() -> None:
    assert formatted("%2147483647d|", 0, _Memory())[0].endswith("|")
    assert len(formatted("%2147483647d|%.99999999999d|%.999999f", 0, _Memory())[0]) < 3 * 5000


def _rule(table: str, name: str, value: str, unit: str = "") -> str:
    """A chip file with one entry of its own."""
    return f'like = "h200"\n[{table}]\n{name} = {{ value = {value}, unit = "{unit}", source = "cited: x" }}'


# -- files -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[\n" * 100_000, "its arrays or tables are nested too deeply"),
        ("x = " + "9" * 5000, "cannot read the chip file"),
        ('like = "mine"', "like names mine.toml, but there is no such file in its directory"),
        ('like = ["h200"]', "or a chip that comes with memlane, as in \"h200\", not ['h200']"),
        ('like = "a/b"', "like must name a chip file in the same directory"),
        (_rule("banks", "lanes_4", "5", "lanes"), "must divide 32, the number of lanes of a warp; 5 does not"),
        (_rule("banks", "banks", "4294967296"), "[banks] banks must be at most 1,024, not 4294967296"),
        (_rule("chip", "max_threads_per_sm", "31"), "[chip] max_threads_per_sm must be at least 32, the threads of a warp, not 31"),
        (_rule("banks", "banks", "3"), "banks times bank_bytes must be a multiple of 16 bytes"),
        (_rule("latency", "l1", "inf", "cycles"), "[latency] l1 must be at most 1,125,899,906,842,624, not inf"),
        (_rule("latency", "l1", "nan", "cycles"), "[latency] l1 must be a positive number, not nan"),
        (_rule("chip", "sm_count", "0x" + "f" * 3000), "not a number of 12,000 bits"),
        ('like = "h200"\n[chip]\nsm_count = { value = 7, source = ["x"] }', "[chip] sm_count: the source must be a string, not ['x']"),
    ],
)  # fmt: skip
def test_chip_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ChipError) as caught:
        from_file(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_chips_that_are_like_each_other(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.toml").write_text(f'like = "{other}"', encoding="utf-8")
    with pytest.raises(ChipError, match=r"c\.toml: like names a\.toml, but there is no such file in its directory"):
        from_file(tmp_path / "a.toml")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4" + b" " * 60 + b"\n", b"PK\x03\x04"],
)
def test_arrays_that_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=rf"--arg f4\[\]={path}: cannot read {path}: "):
        parse_argument(f"f4[]={path}")
    np.save(path, np.zeros(3, np.float32))
    assert parse_argument(f"f4[]={path}").text == f"f4[]={path}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "is neither a record file of memlane trace nor the output of memlane count --json"),
        ('{"kind": "counts", "launches": ' + "9" * 5000 + "}", "is neither a record file of memlane trace nor"),
        ('{"kind": "counts", "launches": [], "sources": 1.5}', "missing or unreadable: it.sources is not an object; write it again with"),
        ('{"kind": "counts", "launches": [], "sources": {"a": 1}}', "missing or unreadable: it.sources['a'] is not a string"),
        ('{"kind": "counts", "launches": [{"sites": [], "kernel": "k", "chip": "c", "grid": [Infinity, 1, 1], "block": [1, 1, 1]}]}',
         "missing or unreadable: launches[0].grid[0] is not a whole number from 0 on"),
    ],
)  # fmt: skip
def test_counts_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError) as caught:
        compare(path, path)
    assert message in str(caught.value)


# -- PTX on the emulator ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("add.s32 %r1, %r2, %r3;", "k.ptx:7:10: the register `%r1` is not declared"),
        ("lop3.and.b32 %b32_1|%pred_1, %b32_1, %b32_1, %b32_1, 0x80, %b32_1;", "`%b32_1` is declared as `.b32`, but `lop3.and.b32`"),
        ("bra nowhere;", "the name `nowhere` is not declared"),
    ],
)
def test_a_module_that_makes_no_sense_is_refused_where_it_is_loaded(statement: str, message: str) -> None:
    """What is lowered relies on it: the builder of machine code once said what it thought of such operands."""
    module = parse(
        f".version 9.0\n.target sm_90\n.address_size 64\n.entry k()\n{{\n.reg .b32 %b32_<3>; .reg .pred %pred_<3>;\n\t{statement}\n}}",
        "k.ptx",
    )
    with pytest.raises(PtxTypeError) as caught:
        target("emulator:h200").load(module)
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ptx:7:")


def test_a_relation_of_floats_between_integers_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CACHE", "0")
    head = ".version 9.0\n.target sm_90\n.address_size 64\n.entry k()\n{\n"
    text = f"{head}{registers()}\n\tset.equ.u32.s32 %u32_1, %s32_1, %s32_2;\n\tret;\n}}"
    with pytest.raises(UnsupportedPtx, match=r"k\.ptx:19:2: the emulator does not model set\.equ\.u32\.s32"):
        lower(parse(text, "k.ptx"))


# -- programs and assembled code -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "int a(" + "a(" * 30_000,
        "int a(" + "(" * 30_000 + "]" * 30_000,
        "struct S { " * 3000,
        "struct S { int a; " * 3000 + "};" * 3000,
        "#if 1\n" * 20_000 + "int a;\n" * 2000,
        "int main() {\n" + "".join(f"const int a{n} = {f'a{n - 1} + ' * 50}1;\n" for n in range(12)) + "k<a11><<<1, 1>>>();\n}",
        "int main() { k" + "> <<<" * 20_000 + "; }",
        "\n".join(f"#define M{n} M{n + 1}" for n in range(4000)),
        f'#include "{"x" * 5000}"\n#include <{"y" * 5000}>',
        '#include "a\0b"',
        "MAKE(a)\n" * 2000 + "#define MAKE(name) " + "int name; " * 300 + ";",
    ],
    ids=lambda text: text[:16],
)
def test_programs_that_took_long_or_were_too_deep(text: str) -> None:
    began = time.process_time()
    read_program(text)
    assert time.process_time() - began < 2


def test_a_header_with_a_name_that_no_file_has_is_absent() -> None:
    program = gather("a.cu", f"#include <{'y' * 5000}>\n", Path(), (Path(),))
    assert program.absent == ("y" * 5000,)
    assert len(tokenize("int a;")) == 3


@pytest.mark.parametrize("place", [0x28, 0x3A, 0x3C, 0x3E])
@pytest.mark.parametrize("number", [0xFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
def test_cubins_that_are_refused(place: int, number: int) -> None:
    """The place, size and number of the sections, and which of them has the names."""
    data = cubins()[0]
    size = 8 if place == 0x28 else 2
    damaged = data[:place] + (number & ((1 << 8 * size) - 1)).to_bytes(size, "little") + data[place + size :]
    with pytest.raises(CompileError, match="the assembler made no readable cubin"):
        kernel_usage(damaged)


def test_a_cubin_without_symbols() -> None:
    with pytest.raises(CompileError, match="the assembler made no readable cubin"):
        kernel_usage(cubins()[0].replace(b".symtab\0", b".symtaX\0"))


def test_numbers_beyond_all_measure_in_a_listing() -> None:
    line = f'\t//## File "a.cu", line {"9" * 5000}\n'
    code = f"        /*0000*/  MOV R{'1' * 5000}, R2 ;  /* 0x0000000000000000 */\n      /* 0x0000000000000000 */\n"
    program = parse_listing(f'\t.section\t.text.k,"ax",@progbits\n{line}{code}')
    (found,) = program.functions["k"].instructions
    assert (found.place, found.operands[0].register) == (None, None)


def test_a_cell_without_an_end_in_the_table_of_the_profiler() -> None:
    assert parse_profile('"ID","Kernel Name"\n"0","' + "k" * 200_000) == []


def test_counts_of_an_unknown_exactness() -> None:
    """Sites of one line are added up, and say the weakest of what is said of them."""
    with pytest.raises(ValueError, match="exactness is 'sure', not one of exact, merged, hint, not checked"):
        replace(full_trace().launches[0].counts[0], exactness="sure")


def test_a_directive_whose_name_begins_like_that_of_a_file() -> None:
    assert dict(parse('.version 9.0\n.target sm_90\n.address_size 64\n.file1 "a.cu"\n.file 2 "b.cu"\n').files) == {2: "b.cu"}


def test_an_element_without_end() -> None:
    elements = ".b" * 30_000
    with pytest.raises(PtxTypeError, match="has no element `") as raised:
        parse(f".version 9.0\n.target sm_90\n.address_size 64\n.entry k ()\n{{\n.reg .f32 %f;\nmov.f32 %f, %f.b{elements};\nret;\n}}")
    assert len(str(raised.value).split("\n", 1)[0]) < 300


def test_a_block_behind_a_directive_without_its_semicolon() -> None:
    text = ".version 9.0\n.target sm_90\n.address_size 64\n.entry k ()\n{\n.reqnctapercluster 2,1,1\n{\nret;\n}\n}"
    module = parse(text)
    (kernel,) = module.functions.values()
    assert kernel.body is not None
    assert [type(one).__name__ for one in kernel.body.statements] == ["Directive", "Block"]
    assert print_module(parse(print_module(module))) == print_module(module)
    section = ".version 9.0\n.target sm_90\n.address_size 64\n.section .debug_x\n{\n.b8 1\n}\n"
    assert len(parse(section).items) == 1


def test_an_array_whose_header_is_long(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"{'descr': '" + b"q" * 8989)
    with pytest.raises(CommandError, match=r"cannot read .*a\.npy: ") as raised:
        parse_argument(f"f4[]={path}")
    assert len(str(raised.value)) < 300 + len(str(path))


@pytest.mark.parametrize("view", [{"shape": [0], "strides": [1 << 62]}, {"shape": [0, 1 << 62], "strides": [4, 4]}, {"dtype": "zz"}])
def test_views_of_a_plan_that_no_array_is(view: dict[str, object]) -> None:
    text = to_json(Plan((Step(Copy(Buffer("a", 8).view(), Buffer("b", 8).view()), 0),)))
    whole = json.loads(text)
    whole["steps"][0]["action"]["source"] |= view
    with pytest.raises(BadPlan, match=r"^a view of b "):
        from_json(json.dumps(whole))


def test_a_register_hides_a_variable_around_it_and_shares_no_name_with_one_beside_it() -> None:
    head = ".version 9.0\n.target sm_90\n.address_size 64\n.global .u32 r1;\n.entry k ()\n{\n.reg .b32 r<4>;\n"
    module = parse(head + "mov.b32 r1, 5;\nret;\n}")
    (kernel,) = module.functions.values()
    assert [one.operands[0] for one in kernel.instructions() if one.opcode == "mov"] == [Register("r1")]
    with pytest.raises(PtxSyntaxError, match="`r2` is declared twice: as a register and as a variable"):
        parse(head + ".global .u32 r2;\nret;\n}")


def test_a_register_for_a_texture() -> None:
    with pytest.raises(PtxSyntaxError, match=r"a register cannot have the type `\.texref`"):
        parse(".version 9.0\n.target sm_90\n.address_size 64\n.entry k ()\n{\n.reg .texref %t<2>;\nret;\n}")


def test_no_message_is_endless() -> None:
    code = f"        /*0000*/  {'<' * 30_000} ;  /* 0x0000000000000000 */\n      /* 0x0000000000000000 */\n"
    with pytest.raises(CompileError, match="the disassembler wrote an unknown instruction") as raised:
        parse_listing(f'\t.section\t.text.k,"ax",@progbits\n{code}')
    assert len(str(raised.value)) < 300
    error = ChipError("a" * 12_000 + "b" * 90_000 + "c" * 4000)
    assert str(error) == "a" * 12_000 + " ... " + "c" * 4000
    assert len(error.args[0]) == 106_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bank_bytes = { value = 4,", "bank_bytes = { value = 10,", r"\[banks\] bank_bytes must be one of 1, 2, 4, 8, 16, not 10"),
        (
            "line_bytes               = { value = 128,",
            "line_bytes = { value = 100,",
            r"line_bytes must be a multiple of the 32 bytes of a sector",
        ),
        (
            "transactions        = ",
            "load_bytes = { value = 2, unit = 'bytes', source = 'global' }\ntransactions = ",
            "load_bytes must be a multiple of",
        ),
        ("[coalescing]", "[coalescing" + ".b" * 60_000 + "]", "4,096 in a line"),
        ('source = "banks"', f'source = "{"-" * 4000}"', ": the source '-----"),
    ],
)
def test_numbers_of_a_chip_that_do_not_fit_each_other(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (SHIPPED / "gtx680.toml").read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ChipError, match=message) as raised:
        from_file(path)
    assert len(str(raised.value)) < 500 + len(str(path))


def test_a_site_of_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match="the kind of a site is '>', not one of load, store"):
        replace(full_trace().sites[0], kind=">")


def test_times_of_warps_that_no_clock_shows(tmp_path: Path) -> None:
    trace = full_trace()
    trace.warps["begin_cycles"][0] = -(1 << 63)
    try:
        trace.save(tmp_path / "a.parquet")
    finally:
        full_trace.cache_clear()
    with pytest.raises(RecordError, match="the begin_cycles of a warp is out of range"):
        load(tmp_path / "a.parquet")


@pytest.mark.parametrize("text", ["pad( 2\x1e)", "Swizzle<3,999999999,3>", "Swizzle<1,0,999999999>"])
def test_layouts_that_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match=r"integers with commas|at most 62"):
        read_spec(text).of(32, 32)

"""Texts with numbers, lines and ranges far beyond what anybody writes: refused in one sentence, or read in no time."""

from __future__ import annotations

import time

import pytest

from memlane.errors import PtxSyntaxError, UnsupportedPtx
from memlane.ptx import RegisterDecl, flatten_scopes, inline_calls, parse
from memlane.source import Source, Span
from tests.ptx.modules import HEAD, kernel


def test_a_range_of_registers_may_be_longer_than_memory() -> None:
    """The assembler reserves memory for what is used. Here the names of a range were once listed."""
    function = kernel(
        ".reg .b32 %q<4294967295>;\n{\n.reg .b32 %q<4294967295>;\n.reg .b32 %q7;\nmov.b32 %q4294967294, %r1;\n}\nmov.b32 %q9, %q4;"
    )
    flat = flatten_scopes(function)
    moves = [(one.operands[0].name, one.operands[1].name) for one in flat.instructions()]  # type: ignore[union-attr]
    assert moves == [("%q__1_4294967294", "%r1"), ("%q9", "%q4")]
    assert [one.name for one in flat.walk() if isinstance(one, RegisterDecl)][-2:] == ["%q__1_", "%q7__1"]


def test_names_of_inner_blocks_differ_from_every_name_of_a_range() -> None:
    body = ".reg .b32 t__1;\n{\n.reg .b32 t;\nmov.b32 t, 1;\n}\n{\n.reg .b32 t;\nmov.b32 t, %u12;\n}\n.reg .b32 t, %u<20>;\n"
    function = kernel(f"{body}{{ .reg .b32 %u1<2>;\nmov.b32 %u10, 1; }}")
    flat = flatten_scopes(function)
    assert [one.operands[0].name for one in flat.instructions()] == ["t__2", "t__3", "%u1__1_0"]  # type: ignore[union-attr]


def test_many_blocks_with_the_same_name_are_flattened_quickly() -> None:
    function = kernel("{\n.reg .b32 t;\n.reg .b32 t<3>;\nmov.b32 t, t1;\n}\n" * 4000)
    began = time.process_time()
    flatten_scopes(function)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f".version {'9' * 5000}", f"<ptx>:1:10: expected a version such as `9.0`, found `{'9' * 40}...{'9' * 20}`"),
        (".version .5", "<ptx>:1:10: expected a version such as `9.0`, found `.5`"),
        (f"{HEAD}.entry k() .maxntid . {{}}", "<ptx>:4:21: expected a number of threads or blocks, found `.`"),
        (f"{HEAD}.entry k() .maxntid 1.5 {{}}", "<ptx>:4:21: expected a number of threads or blocks, found `1.5`"),
        (f"{HEAD}.entry k() .reqntid 1, 2, 3, 4 {{}}", "<ptx>:4:30: `.reqntid` has one to three numbers, found 4"),
    ],
)  # fmt: skip
def test_numbers_of_directives(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert str(caught.value).split("\n")[0] == message


def test_numbers_of_directives_in_every_notation() -> None:
    (function,) = parse(f"{HEAD}.entry k() .maxntid 0x20, 010 .maxnreg 32 {{ ret; }}").kernels.values()
    assert (function.extents(".maxntid"), function.attributes) == ((32, 8, 1), (".maxntid 32, 8", ".maxnreg 32"))


def test_of_a_long_line_the_part_around_the_place_is_quoted() -> None:
    line = "a" * 5000 + "here" + "b" * 5000
    quoted, carets = Span(Source("k.ptx", f"first\n{line}\nlast"), 6 + 5000, 6 + 5004).quote().split("\n")
    assert len(quoted) < 450
    assert quoted.startswith("    ... aaa")
    assert quoted.endswith("bbb ...")
    assert quoted[carets.index("^") : carets.rindex("^") + 1] == "here"
    assert Span(Source("k.ptx", "c" * 900), 3, 5).quote().split("\n") == ["    " + "c" * 400 + " ...", "       ^^"]


def test_a_long_word_is_shortened() -> None:
    with pytest.raises(UnsupportedPtx) as caught:
        kernel(f"{'x' * 100_000} %r1;")
    assert len(str(caught.value)) < 1000


def test_blocks_are_nested_a_hundred_times_at_most() -> None:
    """What compares two modules goes into each block, and must not be stopped by Python."""
    nested = ["{\n" * depth + "mov.u32 %r1, %r2;\n" + "}" * depth for depth in (100, 101)]
    assert kernel(nested[0]) == kernel(nested[0])
    with pytest.raises(PtxSyntaxError, match=r"k\.ptx:106:1: braces are nested too deeply: more than 100 times"):
        kernel(nested[1])


@pytest.mark.slow
def test_a_function_may_be_inlined_thousands_of_times_into_itself() -> None:
    body = "".join(f".loc 1 {n + 1} 1, function_name L, inlined_at 1 {n} 1\nmov.u32 %r1, {n};\n" for n in range(1, 3000))
    one, two = (kernel(f".loc 1 1 1\n{body}") for _ in range(2))
    assert one == two
    assert len({move.location for move in one.instructions()}) == 2999
    assert one != kernel(f".loc 1 9999 1\n{body}".replace("inlined_at 1 1 1", "inlined_at 1 9999 1"))


def test_calls_through_hundreds_of_functions_are_not_inlined() -> None:
    call = "{{ .param .u64 q; st.param.u64 [q], %rd1; call f{}, (q); }}"
    head = "(.param .u64 a) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [a]; "
    functions = [f".func f{n}{head}st.u32 [%rd1], 1; {call.format(n - 1) if n else ''} ret; }}" for n in range(500)]
    inlined = inline_calls(parse("\n".join([HEAD, *functions, f".entry k{head}{call.format(499)} ret; }}"])))
    assert (inlined.origins, len(inlined.left)) == ({}, 500)
    assert set(inlined.left.values()) == {"it is called through hundreds of functions"}


def test_an_array_of_many_axes_is_read_quickly() -> None:
    began = time.process_time()
    parse(f"{HEAD}.global .u32 g{'[1]' * 20_000};")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("number", ["1", "0x1", "01", "0b1", "1U"])
@pytest.mark.parametrize("gap", [" ", "", "\t"])
def test_numbers_of_files_in_every_notation(number: str, gap: str) -> None:
    assert parse(f'{HEAD}.file {number}{gap}"a b.cu"').files == {1: "a b.cu"}

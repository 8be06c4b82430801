"""The instruction table: every row against the parser, against its own notation, and against the assembler of the CUDA toolkit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane import ptx
from memlane.compile import assemble
from memlane.ptx import SCALAR_TYPES, TABLE
from memlane.ptx.form_table import Table
from memlane.ptx.forms import EFFECTS, NoMatch, Op, Row, op
from memlane.ptx.types import SPACES
from tests.ptx.examples_of_rows import instruction_from, registers
from tests.ptx.modules import CASES, first

ROWS = [row for opcode in TABLE.opcodes for row in TABLE.rows(opcode)]

PRACTICE = """
abs activemask add addc and atom bar barrier bfe bfi bfind bmsk bra brev brx call clz copysign cos cp cvt cvta div dp2a dp4a ex2 exit
fence fma fns isspacep ld ldmatrix ldu lg2 lop3 mad madc match max mbarrier membar min mma mov mul mul24 nanosleep neg not or popc
prefetch prmt rcp red redux rem ret rsqrt sad selp set setp shf shfl shl shr sin slct sqrt st stmatrix sub subc suld sust tanh testp tex
trap vote wgmma wmma xor
"""
"""Opcodes that large collections of compiled CUDA, Triton and Numba code use, and some that are needed beside them."""


def test_every_opcode_of_practice_has_a_row() -> None:
    assert set(PRACTICE.split()) <= set(TABLE.opcodes)


@pytest.mark.parametrize("entry", TABLE.ops, ids=lambda entry: entry.name)
def test_every_op_names_its_section_of_the_manual(entry: Op) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*-instructions-[a-z0-9-]+", entry.manual)
    words = entry.manual.rpartition("instructions-")[2].split("-")
    assert entry.opcode in words or entry.opcode.rstrip("u") in words or entry.opcode == "barrier"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text.split(" ")[0])
def test_every_row_is_well_formed(row: Row) -> None:
    assert row.text.startswith(row.opcode)
    assert row.facts.get("effect", "") in EFFECTS
    letters = {place.name for place in row.places} | {place.second for place in row.places}
    for fact in ("updates", "wider"):
        assert set(row.facts.get(fact, "").split()) <= letters, fact
    assert all(word.words for word in row.words)


@given(st.data())
def test_an_instruction_written_from_a_row_is_read_as_that_row_and_printed_the_same(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(ROWS))
    text = instruction_from(row, lambda words: data.draw(st.sampled_from(words)))
    (statement,) = ptx.statements(text)
    assert isinstance(statement, ptx.Instruction)
    assert statement.opcode == row.opcode
    assert ptx.instruction_text(statement) == text.replace("+0]", "]")
    # Rows may overlap (`add.s32` is in two of them); the one that was found must fit all the same.
    same = [candidate for candidate in TABLE.rows(row.opcode) if candidate.text == statement.form.row]
    assert statement.form.slots in [candidate.fill(statement.modifiers) for candidate in same]
    for letter, place in statement.form.operands.items():
        assert 0 <= place < len(statement.operands), letter
    assert statement.form.writes <= statement.form.operands.keys()


@given(st.data())
def test_the_order_of_dotted_words_is_free_but_for_types_and_spaces_and_shared_values(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(ROWS))
    text = instruction_from(row, lambda words: data.draw(st.sampled_from(words)))
    modifiers = text.split(" ")[0].rstrip(";").split(".")[1:]
    shuffled = data.draw(st.permutations(modifiers))
    fits = [sum(modifier in word.words for word in row.words) for modifier in modifiers]
    types = [modifier for modifier in modifiers if modifier in SCALAR_TYPES]
    spaces = [modifier for modifier in modifiers if modifier.partition("::")[0] in SPACES]
    if max(fits, default=0) <= 1 and len(types) <= 1 and len(spaces) <= 1:
        assert row.fill(tuple(shuffled)) == row.fill(tuple(modifiers))


# -- the notation --------------------------------------------------------------------------------------------------------------

TOY = Table(
    {
        "toys": (
            op("toy", manual="toy-instructions-toy", types="c:u32", effect="load")
            .form("toy{.weak}{.sem.scope}{.ss}.atype.btype d{|p}, [a], {!}c{, e}")
            .form("toy.plain.type d", type="u16", types="d:type*2", effect="store")
            .where(sem="acquire", scope="cta gpu", ss="global shared::cta", atype="u8 u16", btype="u8 u16", type="u32"),
        )
    }
)
SHAPES = ("value", "address", "value")


def test_an_instruction_has_a_key_of_its_own() -> None:
    assert TOY.match("toy", ("plain", "u16"), ("value",)).key == "toys/toy"
    assert {form.key for form in (TABLE.match("add", ("f32",), ("value",) * 3), TABLE.match("add", ("u32",), ("value",) * 3))} == {
        "floating/add",
        "integer/add",
    }
    assert TABLE.match("add", ("f32", "f16"), ("value",) * 3).key == "half/add mixed"
    with pytest.raises(ValueError, match=r"two instructions of the table have the key 'toys/toy'; give one of them a variant"):
        Table({"toys": (op("toy", manual="one").form("toy d"), op("toy", manual="other").form("toy.b32 d"))})


def test_slots_that_share_values_are_filled_in_the_order_of_the_row() -> None:
    assert TOY.match("toy", ("u8", "u16"), SHAPES).slots == {"atype": "u8", "btype": "u16"}
    assert TOY.match("toy", ("u16", "u8"), SHAPES).slots == {"atype": "u16", "btype": "u8"}
    assert TOY.match("toy", ("u16", "global", "u8"), SHAPES).slots == {"atype": "u16", "ss": "global", "btype": "u8"}


def test_types_and_spaces_keep_the_order_of_the_row_also_where_one_is_literal() -> None:
    """`slct.s32.f32` selects words by the sign of a float; read as `slct.f32.s32` it would look at an integer."""
    shapes = ("value",) * 4
    assert dict(TABLE.match("slct", ("s32", "f32"), shapes).types) == {"d": "s32", "a": "s32", "b": "s32", "c": "f32"}
    assert dict(TABLE.match("slct", ("f32", "s32"), shapes).types) == {"d": "f32", "a": "f32", "b": "f32", "c": "s32"}
    mixed = TABLE.match("add", ("rz", "f32", "f16"), ("value",) * 3)
    assert mixed.types["a"] == "f16"
    copy = ("async", "bulk", "shared::cluster", "shared::cta", "mbarrier::complete_tx::bytes")
    assert TABLE.match("cp", copy, ("address", "address", "value", "address")).slots["src"] == "shared::cta"
    for opcode, words, operands in (
        ("slct", ("b16", "u32"), shapes),
        ("slct", ("f32", "b16"), shapes),
        ("add", ("f16", "f32"), ("value",) * 3),
        ("cvt", ("rn", "satfinite", "f32", "f16"), ("value",) * 2),
        ("cp", ("async", "bulk", "global", "shared::cta", copy[-1]), ("address", "address", "value", "address")),
    ):
        with pytest.raises(NoMatch) as caught:
            TABLE.match(opcode, words, operands)
        assert caught.value.reason == "modifiers"


def test_words_in_one_pair_of_braces_come_together() -> None:
    form = TOY.match("toy", ("acquire", "gpu", "u8", "u8"), SHAPES)
    assert (form.slots["sem"], form.slots["scope"]) == ("acquire", "gpu")
    with pytest.raises(NoMatch) as caught:
        TOY.match("toy", ("acquire", "u8", "u8"), SHAPES)
    assert caught.value.reason == "modifiers"


def test_an_absent_space_is_generic_and_a_sub_space_is_its_space() -> None:
    assert TOY.match("toy", ("u8", "u8"), SHAPES).addresses == {"a": "generic"}
    assert TOY.match("toy", ("shared::cta", "u8", "u8"), SHAPES).addresses == {"a": "shared"}


def test_optional_operands_and_why_nothing_matches() -> None:
    assert TOY.match("toy", ("u8", "u8"), (*SHAPES, "value")).operands == {"d": 0, "a": 1, "c": 2, "e": 3}
    for modifiers, shapes, reason in (
        (("u8", "u8"), ("value",), "operands"),
        (("u8", "u8"), (*SHAPES, "value", "value"), "operands"),
        (("u8",), SHAPES, "modifiers"),
        (("u8", "u8", "u8"), SHAPES, "modifiers"),
    ):
        with pytest.raises(NoMatch) as caught:
            TOY.match("toy", modifiers, shapes)
        assert caught.value.reason == reason
    with pytest.raises(NoMatch) as caught:
        TOY.match("toys", (), ())
    assert (caught.value.reason, caught.value.rows) == ("opcode", ())


def test_facts_of_a_row_come_before_those_of_the_op() -> None:
    form = TOY.match("toy", ("plain", "u16"), ("value",))
    assert (dict(form.types), set(form.writes), form.effect) == ({"d": "u32"}, {"d"}, "store")
    with pytest.raises(NoMatch):
        TOY.match("toy", ("plain", "u32"), ("value",))


@pytest.mark.parametrize(
    ("text", "types", "writes"),
    [
        ("mul.wide.u32 %rd1, %r1, %r2;", {"d": "u64", "a": "u32", "b": "u32"}, {"d"}),
        ("mad.wide.s16 %r1, %h1, %h2, %r2;", {"d": "s32", "a": "s16", "b": "s16", "c": "s32"}, {"d"}),
        ("cvt.rn.f32.s32 %f1, %r1;", {"d": "f32", "a": "s32"}, {"d"}),
        ("cvt.rn.f16x2.f32 %r1, %f1, %f2;", {"d": "f16x2", "a": "f32", "b": "f32"}, {"d"}),
        ("setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3;", {"p": "pred", "q": "pred", "a": "f32", "b": "f32", "c": "pred"}, {"p"}),
        ("set.gt.u32.f64 %r1, %fd1, %fd2;", {"d": "u32", "a": "f64", "b": "f64"}, {"d"}),
        ("shl.b64 %rd1, %rd2, %r1;", {"d": "b64", "a": "b64", "b": "u32"}, {"d"}),
        ("popc.b64 %r1, %rd1;", {"d": "u32", "a": "b64"}, {"d"}),
        ("bfi.b64 %rd1, %rd2, %rd3, %r1, %r2;", {"f": "b64", "a": "b64", "b": "b64", "c": "u32", "d": "u32"}, {"f"}),
        ("shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;", {"d": "b32", "p": "pred", "a": "b32", "b": "u32", "c": "u32", "mask": "b32"}, {"d"}),
        ("st.global.v2.f32 [%rd1], {%f1, %f2};", {"b": "f32"}, set()),
        ("atom.cas.b64 %rd1, [%rd2], %rd3, %rd4;", {"d": "b64", "b": "b64", "c": "b64"}, {"d"}),
        ("selp.f64 %fd1, %fd2, %fd3, %p1;", {"d": "f64", "a": "f64", "b": "f64", "c": "pred"}, {"d"}),
        ("add.rn.f32.f16 %f1, %h1, %f2;", {"d": "f32", "a": "f16", "b": "f32"}, {"d"}),
        ("bar.red.popc.u32 %r1, 0, %p1;", {"d": "u32", "a": "u32", "c": "pred"}, {"d"}),
    ],
)
def test_types_and_destinations(text: str, types: dict[str, str], writes: set[str]) -> None:
    form = first(text).form
    assert (dict(form.types), set(form.writes)) == (types, writes)


# -- the assembler as an oracle -------------------------------------------------------------------------------------------------

LATER_CHIPS = re.compile(
    r"\w+\.(\w+\.)?f32x2 |(add|sub|fma)\.(\w+\.)?f32\.b?f16 |(min|max)\.f32( \S+,){3}|cvt\.rs|redux\.sync\.\w+\.f32"
    r"|(st|red)\.async\.(mmio\.)?release"
)
"""Forms that only chips after sm_90 have."""
EARLIER_CHIPS = re.compile(r"(shfl|vote)\.(?!sync)")
"""Forms that only chips before sm_70 have."""
IN_CASE_FILES = ("call", "tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep", "mma", "wmma", "wgmma", "cp.async.bulk.tensor")
IN_CASE_FILES += ("cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor", "fence.proxy.tensormap::generic.acquire", "tensormap")
"""Rows whose operands need declarations of their own: tests/cases/ptx has them, and the assembler is asked below."""


def test_the_assembler_accepts_the_plainest_instruction_of_every_row() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    written = [instruction_from(row, _plainest) for row in ROWS]
    asked = [
        text
        for text in dict.fromkeys(written)
        if not (LATER_CHIPS.match(text) or EARLIER_CHIPS.match(text) or text.startswith(IN_CASE_FILES))
    ]
    assert len(asked) > 220
    body = "\n\t".join(asked)
    module = (
        f".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() {{\n{registers()}\nL:\nT: .branchtargets L;\n\t{body}\n\tret;\n}}\n"
    )
    assert assemble(module, arch="sm_90a").data


@pytest.mark.parametrize("name", ["calls", "generic", "matrix", "textures"])
def test_the_assembler_accepts_the_case_files_printed_and_flattened(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    path = next(path for path in CASES if path.stem == name)
    module = ptx.parse(path.read_text(), path.name)
    flat = replace(module, items=tuple(ptx.flatten_scopes(item) if isinstance(item, ptx.Function) else item for item in module.items))
    assert assemble(module, arch="sm_90a").data
    assert assemble(flat, arch="sm_90a").data


def _plainest(words: Sequence[str]) -> str:
    """Without what is optional; of several words one that goes with most others."""
    return next((word for word in ("without", "plain", "rn", "u64", "u32", "1d") if word in words), words[0])

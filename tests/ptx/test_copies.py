"""Which moves need an instruction: drawn by hand, and random straight code against registers given out by trying."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.ptx import ControlFlow, Copies, Function, Liveness, is_move, registers_read
from tests.ptx.modules import kernel


def kept(body: str) -> list[bool]:
    """Of each move, in the order of the text."""
    function: Function = kernel(body)
    flow = ControlFlow(function)
    copies = Copies(flow, Liveness(flow))
    moves = (one for block in flow.blocks for one in block.instructions if is_move(one))
    return [copies.needs_instruction(one, registers_read(one)) for one in moves]


def loop(*steps: str) -> str:
    text = {"load": "ld.global.u32 %r2, [%rd1];", "use": "add.u32 %r3, %r3, %r1;", "copy": "mov.u32 %r1, %r2;"}
    return f"""
    again:
        {" ".join(text[step] for step in steps)}
        setp.lt.u32 %p1, %r3, 9; @%p1 bra again;
        st.global.u32 [%rd1], %r3; ret;"""


def test_a_value_that_is_fetched_while_the_last_one_is_needed_is_copied() -> None:
    assert kept(loop("load", "use", "copy")) == [True]
    assert kept(loop("use", "load", "copy")) == [False], "the last one is not needed any more"
    assert kept(loop("copy", "load", "use")) == [True]
    assert kept(loop("copy", "use", "load")) == [False]


def test_a_copy_that_some_lanes_make_is_an_instruction() -> None:
    assert kept("ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1]; @%p1 mov.u32 %r1, %r2; st.global.u32 [%rd1], %r1; ret;") == [True]


def test_two_names_of_one_value_need_one_register() -> None:
    assert kept("ld.global.u32 %r1, [%rd1]; mov.u32 %r2, %r1; add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; ret;") == [False]
    assert kept(
        "ld.global.u32 %r1, [%rd1]; mov.u32 %r2, %r1; add.u32 %r1, %r1, 1; add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; ret;"
    ) == [True]


REGISTERS = ("%r1", "%r2", "%r3")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["new", "mov"]), st.sampled_from(REGISTERS), st.sampled_from(REGISTERS)), min_size=1, max_size=6))
def test_what_shares_a_register_gives_what_it_gave(steps: list[tuple[str, str, str]]) -> None:
    """One move alone made away, by calling both its registers the same: where the program then gives something else, it was needed."""
    steps = [(kind, to, of) for kind, to, of in steps if kind == "new" or to != of]
    moves = [place for place, (kind, _, _) in enumerate(steps) if kind == "mov"]
    text = " ".join(f"ld.global.u32 {to}, [%rd1];" if kind == "new" else f"mov.u32 {to}, {of};" for kind, to, of in steps)
    begin = " ".join(f"ld.global.u32 {name}, [%rd1];" for name in REGISTERS)
    for place, needed in zip(moves, kept(f"{begin} {text} st.global.u32 [%rd1], %r1; st.global.u32 [%rd1], %r2; ret;"), strict=True):
        _, to, of = steps[place]
        assert needed or results(steps, {}) == results(steps, {to: of})


def results(steps: list[tuple[str, str, str]], called: dict[str, str]) -> tuple[int, ...]:
    """What %r1 and %r2 hold at the end, with registers called otherwise: each load brings a new number."""
    held: dict[str, int] = {}
    fresh = iter(range(100))
    for kind, to, of in (*(("new", name, name) for name in REGISTERS), *steps):
        held[called.get(to, to)] = next(fresh) if kind == "new" else held[called.get(of, of)]
    return tuple(held[called.get(name, name)] for name in ("%r1", "%r2"))


def test_the_moves_of_a_value_through_another_register_are_seen_from_where_it_was_loaded() -> None:
    """No two that meet in a move are in the way of each other, but the first and the last are: one of the moves is an instruction."""
    body = """
    again:
        ld.global.u32 %r2, [%rd1]; add.u32 %r3, %r3, %r1; mov.u32 %r4, %r2; mov.u32 %r1, %r4;
        setp.lt.u32 %p1, %r3, 9; @%p1 bra again;
        st.global.u32 [%rd1], %r3; ret;"""
    assert kept(body) == [False, False]
    function = kernel(body)
    flow = ControlFlow(function)
    copies = Copies(flow, Liveness(flow))
    moves = [one for block in flow.blocks for one in block.instructions if is_move(one)]
    assert [copies.needs_instruction(one, ("%r2", "%r4")) for one in moves] == [False, True]

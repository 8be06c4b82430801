"""What is worked out once for a module."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import fields, replace

from memlane.instrument import site_table
from memlane.ptx import Module, inline_calls, once_for_each, parse

TEXT = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [a];
    st.global.u64 [%rd1], %rd1;
    ret;
}
"""


def test_each_module_is_asked_once_and_goes_with_what_it_keeps() -> None:
    asked: list[str] = []

    @once_for_each
    def itself(module: Module) -> list[Module]:
        asked.append(module.name)
        return [module]

    first, second = parse(TEXT, "first.ptx"), parse(TEXT, "second.ptx")
    assert [itself(one)[0] is one for one in (first, second, first, second)] == [True] * 4
    assert asked == ["first.ptx", "second.ptx"]
    assert itself(replace(first, name="third.ptx"))[0].name == "third.ptx"
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_arguments_behind_the_owner_count_by_their_value() -> None:
    asked: list[tuple[str, int]] = []

    class Row:
        def __init__(self, words: list[str]) -> None:
            self.words = words

        @once_for_each
        def word(self, place: int) -> str:
            asked.append((self.words[place], place))
            return self.words[place]

    @once_for_each
    def shouted(row: Row, place: int, times: int = 1) -> str:
        return row.word(place).upper() * times

    one, other = Row(["a", "b"]), Row(["a", "b"])
    assert [one.word(1), one.word(0), one.word(1), other.word(1)] == ["b", "a", "b", "b"]
    assert asked == [("b", 1), ("a", 0), ("b", 1)]
    assert [shouted(one, 1), shouted(one, 1, times=2), shouted(one, 1, times=3)] == ["B", "BB", "BBB"]


def test_results_that_a_module_keeps_are_neither_compared_nor_pickled() -> None:
    module, other = parse(TEXT), parse(TEXT)
    assert site_table(module) is site_table(module)
    assert inline_calls(module) is inline_calls(module)
    assert module == other
    copy = pickle.loads(pickle.dumps(module))
    assert copy == module
    assert list(vars(copy)) == [one.name for one in fields(Module)]

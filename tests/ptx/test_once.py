"""What is worked out once for a module."""

from __future__ import annotations

import gc
import pickle
import weakref
from dataclasses import fields, replace

from memlane.instrument import site_table
from memlane.ptx import Module, inline_calls, once_for_module, parse

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

    @once_for_module
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


def test_results_that_a_module_keeps_are_neither_compared_nor_pickled() -> None:
    module, other = parse(TEXT), parse(TEXT)
    assert site_table(module) is site_table(module)
    assert inline_calls(module) is inline_calls(module)
    assert module == other
    copy = pickle.loads(pickle.dumps(module))
    assert copy == module
    assert list(vars(copy)) == [one.name for one in fields(Module)]

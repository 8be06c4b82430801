"""The fuzzer finds what is wrong, and finds nothing in a short run of each reader."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random

import pytest

from memlane.errors import MemlaneError, MissingDependency, PtxSyntaxError
from memlane.source import Source, Span
from tests.fuzz import readers, watch
from tests.fuzz.engine import MOST_SECONDS, Reader, Tally, run, try_one
from tests.fuzz.mutations import mutate_tree, mutated_bytes, mutated_tokens, tokens
from tests.fuzz.readers import READERS

ENOUGH = 100
"""Inputs of which at least one should be accepted."""


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_CACHE", "0")


@pytest.mark.parametrize("name", READERS)
def test_a_short_run_of_a_reader_finds_nothing(name: str) -> None:
    reader = READERS[name]
    try:
        reader.corpus()
    except MissingDependency as absent:
        pytest.skip(str(absent))
    tally = run(reader, 1, 0, reader.short)
    assert {failure.key: failure.number for failure in tally.failures.values()} == {}
    assert tally.accepted > 0 or reader.short < ENOUGH


# -- the fuzzer itself -----------------------------------------------------------------------------------------------------------


def _raise(error: Exception) -> object:
    raise error


def _failures(read: Callable[[object], object], seconds: float = MOST_SECONDS) -> list[str]:
    tally = Tally()
    try_one(Reader("x", lambda: (), lambda random, corpus: "text", read, seconds=seconds), "text", 7, tally)
    assert all(failure.number == 7 for failure in tally.failures.values())
    return list(tally.failures)


def test_an_error_of_ours_is_no_failure() -> None:
    assert _failures(lambda text: _raise(MemlaneError("a.ptx is empty; write it again"))) == []
    assert _failures(lambda text: _raise(PtxSyntaxError("no", Span(Source("k.ptx", "text"), 0, 1)))) == []
    assert _failures(lambda text: text) == []


def test_any_other_error_is_a_failure() -> None:
    assert _failures(lambda text: int("x"))[0].startswith("ValueError in test_fuzz.py:")
    assert _failures(lambda text: _raise(RecursionError()))[0].startswith("RecursionError in test_fuzz.py:_raise")


def test_a_message_without_words_or_place_or_end_is_a_failure() -> None:
    assert _failures(lambda text: _raise(MemlaneError(" ")))[0].startswith("empty message: MemlaneError")
    assert _failures(lambda text: _raise(PtxSyntaxError("no")))[0].startswith("message without a place: PtxSyntaxError")
    assert _failures(lambda text: _raise(MemlaneError("x" * 30_000)))[0].startswith("message too long: MemlaneError")


def test_what_takes_long_or_much_memory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _failures(lambda text: sum(range(2_000_000)), seconds=0.01) == ["slow"]
    monkeypatch.setattr("tests.fuzz.engine.MOST_BYTES", -1)
    assert _failures(lambda text: text) == ["memory"]


def test_an_input_is_the_same_each_time_and_another_one_for_another_number() -> None:
    reader = READERS["ptx"]
    inputs = [reader.input(3, number) for number in range(20)]
    assert inputs == [reader.input(3, number) for number in range(20)]
    assert len(set(inputs)) > 15
    assert inputs != [reader.input(4, number) for number in range(20)]


def test_mutations_change_texts_bytes_and_trees() -> None:
    random, text = Random(1), "add.s32 %r1, %r2, 3;\n"
    assert "".join(tokens(text)) == text
    assert len({mutated_tokens(random, tokens(text), tokens(text)) for _ in range(50)}) > 30
    assert len({mutated_bytes(random, b"0123456789" * 5, b"abc") for _ in range(50)}) > 30
    trees = [{"a": [1, 2], "b": {"c": "x"}} for _ in range(50)]
    for tree in trees:
        mutate_tree(random, tree)
    assert len({repr(tree) for tree in trees}) > 20


def _dies(given: int) -> object:
    if given == 3:
        os._exit(5)
    if given == 5:
        time.sleep(60)
    return given


def test_a_process_that_dies_or_stands_still_is_a_failure_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader("deadly", lambda: (0,), lambda random, corpus: 0, _dies)
    monkeypatch.setattr(Reader, "input", lambda self, seed, number: number)
    monkeypatch.setitem(readers.READERS, "deadly", reader)
    monkeypatch.setattr(watch, "STANDSTILL_S", 1.0)
    monkeypatch.setattr(watch, "START", "fork")
    tally = watch.fuzz("deadly", 0, 8)
    assert {(failure.key, failure.number) for failure in tally.failures.values()} == {("process died with 5", 3), ("hangs", 5)}
    assert (tally.inputs, tally.accepted, tally.failed) == (8, 6, 2)

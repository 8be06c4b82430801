"""The emulator against the oracle in plain Python, on edge and random operands; and the oracle against values of the manual."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from application import applications, module, run
from differential import against_oracle, emulated_part, group_cases
from instructions import GROUPS
from oracle import BLOCK_THREADS, expected, knows

from cases import Case
from memlane.chip import load
from memlane.emulate import Emulator

pytestmark = pytest.mark.slow

STRIDES = {"memory": 24, "atomics": 12}
"""Of forms that differ in their state space only, few are enough here; `differential --quick` takes all."""
FORM_STRIDE = 5


def sample(group: str) -> Iterator[Case]:
    """Some cases of each row of the table, spread over its forms, and all of rows with few."""
    rows: dict[tuple[str, str], list[Case]] = {}
    for case in group_cases(group):
        rows.setdefault((case.spelling.row.manual, case.spelling.row.text), []).append(case)
    for cases in rows.values():
        yield from cases[:: STRIDES.get(group, FORM_STRIDE) if len(cases) > 4 else 1]


SLOW = ("half", "convert", "video", "compare", "atomics", "memory")


@pytest.mark.parametrize("group", [pytest.param(group, marks=pytest.mark.slow if group in SLOW else ()) for group in GROUPS])
def test_the_emulator_gives_what_the_oracle_says(group: str) -> None:
    target, compared = Emulator(load("h200")), 0
    for one in applications([case for case in sample(group) if knows(case)], quick=True):
        kept = replace(emulated_part(one), count=BLOCK_THREADS)
        if not kept.cases:
            continue
        rows = against_oracle(kept, kept.operands(), run(kept, target.load(module([kept])), target))
        assert [(row.case, row.metric, row.value, row.note) for row in rows if not row.holds] == []
        compared += len(rows)
    assert compared >= 15


@pytest.mark.parametrize("group", GROUPS)
def test_there_is_an_oracle_for_every_emulated_form(group: str) -> None:
    unknown = [case for case in group_cases(group) if not knows(case)]
    for one in applications(unknown, quick=True):
        assert emulated_part(one).cases == ()


def answer(name: str, *operands: int) -> list[int]:
    """What the oracle says of one tuple of operands."""
    (case,) = (case for group in GROUPS for case in group_cases(group) if case.name == name)
    found = expected(case, [np.full(BLOCK_THREADS, operand, np.uint64) for operand in operands])
    assert found is not None
    return [int(column[0]) for column in found]


@pytest.mark.parametrize(
    ("name", "operands", "results"),
    [
        # Examples of the manual.
        ("fns.b32", (0xAAAAAAAA, 3, 1), [3]),
        ("fns.b32", (0xAAAAAAAA, 3, 0xFFFFFFFF), [3]),
        ("fns.b32", (0xAAAAAAAA, 2, 1), [3]),
        ("fns.b32", (0xAAAAAAAA, 2, 0xFFFFFFFF), [1]),
        ("lop3.b32 0xe8", (0b1100, 0b1010, 0b0110), [0b1110]),
        # An f32 is (-1)^s 2^(e - 127) 1.f: 1 + 2^-23 is the next one after 1.
        ("add.rp.f32", (0x3F800000, 1), [0x3F800001]),
        ("div.rn.f32", (0x3F800000, 0x40400000), [0x3EAAAAAB]),
        ("cvt.rn.bf16.f32", (0x3F808000,), [0x3F80]),
        ("cvt.rn.bf16.f32", (0x3F818000,), [0x3F82]),
        ("cvt.rzi.s8.f32", (0xC3000000,), [0xFFFFFF80]),
        ("sqrt.rn.f64", (0x4000000000000000,), [0x3FF6A09E667F3BCD]),
        ("setp.ltu.f64", (0x7FF8000000000000, 0), [1, 0]),
    ],
)
def test_the_oracle_gives_published_values(name: str, operands: tuple[int, ...], results: list[int]) -> None:
    assert answer(name, *operands) == results

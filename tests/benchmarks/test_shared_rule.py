"""The patterns of addresses, their rules, and what the benchmark makes of the profiler's page of instructions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import ROOT
from ncu import Counted, Disassembled, Profiled, parse_source, tables_of, with_metrics
from patterns import ALL, patterns
from shared_rule import OPERATIONS, agrees

pytestmark = pytest.mark.slow

PAGE = """\
==PROF== Disconnected from process 4711
"Kernel Name","once_ld_4(const unsigned int *, unsigned int)"
"#","Address","Source","Instructions Executed","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal","Address Space"
"1","0x7f00","      @!P0 LDS.U.64 R4, [R2]","1","1,024","16","Shared"
"2","0x7f10","      IMAD R4, R2, R1, R0","1","-","-",""
"Kernel Name","twice(int *)"
"Address","Source","memory_l1_wavefronts_shared"
"0x8000","@UP0 ATOMS.POPC.INC.32 RZ, [R0]","3"
"""


def test_the_profilers_page_of_instructions_is_read_by_launch() -> None:
    numbers = {"inst_executed": 1, "memory_l1_wavefronts_shared": 1024, "memory_l1_wavefronts_shared_ideal": 16}
    first = Counted(0, "LDS.U.64", numbers, "@!P0 LDS.U.64 R4, [R2]")
    second = Counted(16, "IMAD", {"inst_executed": 1}, "IMAD R4, R2, R1, R0")
    once, twice = parse_source(PAGE)
    assert once == Disassembled("once_ld_4(const unsigned int *, unsigned int)", (first, second))
    assert twice.instructions == (Counted(0, "ATOMS.POPC.INC.32", {"memory_l1_wavefronts_shared": 3}, "@UP0 ATOMS.POPC.INC.32 RZ, [R0]"),)
    assert parse_source("==ERROR== nothing\n") == []


@pytest.mark.parametrize(
    ("text", "misread"),
    [
        ("@P0 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64]", True),
        ("@!P0 LDGSTS.E [R3], desc[UR4][R6.64]", True),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64], P0", True),
        ("@P1 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64]", False),
        ("@UP0 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64]", False),
        ("@P0 LDG.E R3, desc[UR4][R6.64]", False),
    ],
)
def test_copies_under_predicate_0_are_no_evidence(text: str, misread: bool) -> None:
    opcode = text.split()[1 if text.startswith("@") else 0]
    assert Counted(0, opcode, {}, text).is_misread == misread


def test_code_without_numbers_is_not_a_launch() -> None:
    listing = '"Kernel Name","twice(int *)"\n"Address","Source"\n"0x8000","RET"\n'
    assert with_metrics(parse_source(listing + PAGE)) == parse_source(PAGE)


def test_patterns_have_names_of_their_own_and_aligned_addresses() -> None:
    found = patterns()
    assert len({pattern.name for pattern in found}) == len(found) <= 132  # a block each, all at once on the smallest GPU that we measure
    for pattern in found:
        assert 0 < pattern.mask <= ALL, pattern.name
        for nbytes in (1, 2, 4, 8, 16):
            assert not (pattern.offsets(nbytes) % nbytes).any(), (pattern.name, nbytes)


def test_passes_in_banks_of_their_own_meet_only_themselves() -> None:
    """What makes joined passes cheaper than single ones: the joined ones need as many wavefronts as one alone."""
    for pattern in patterns():
        if pattern.name == "passes of 8 in banks of their own, as lane^2":
            words = pattern.offsets(16) // 4
            banks = [set(words[lane : lane + 8] % 32) for lane in (0, 8, 16, 24)]
            assert banks == [{0}, {4}, {0}, {4}]
            assert (words == words[np.arange(32) ^ 2]).all()
            return
    raise AssertionError("the pattern is gone")


def test_a_few_per_cent_are_forgiven_and_a_wavefront_is_not() -> None:
    assert all(agrees(*pair) for pair in ((1.08, 1), (33.2, 32)))
    assert not any(agrees(*pair) for pair in ((2.0, 1), (1.0, 2), (40.0, 32)))


@pytest.mark.slow
def test_one_operation_on_the_emulator(quick: Callable[..., list[dict[str, Any]]]) -> None:
    (row,) = quick("shared_rule", "ld_4")
    assert row["case"] == "ld_4"
    # Sixteen rows of one bank, each lane pair at one word: more wavefronts than the latency of the few warps hides.
    assert row["peer"]["lane%16, stride 32"] == pytest.approx(16, abs=0.5)
    assert row["peer"]["stride 1"] < 5


@pytest.mark.slow
def test_an_operation_that_does_not_exist_is_refused() -> None:
    command = [sys.executable, "benchmarks/shared_rule.py", "--target", "emulator:h200", "--quick", "--case", "ld_3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    assert f"there is no case 'ld_3'; choose among: {OPERATIONS[0].name}; " in done.stderr


def test_tables_of_called_functions_are_not_taken_for_launches() -> None:
    """The source page has a table for each function that a kernel calls, before that of the kernel or behind it."""

    def table(name: str) -> Disassembled:
        return Disassembled(name, (Counted(len(name), "RET", {}),))

    launches = [Profiled("void twice<int>(int *)", {}), Profiled("twice", {}), Profiled("once", {})]
    names = ["helper(int)", "void twice<int>(int *)", "helper(int)", "twice", "once", "helper(int)"]
    found = tables_of(launches, map(table, names))
    assert [one.kernel for one in found] == ["void twice<int>(int *)", "twice", "once"]
    with pytest.raises(RuntimeError, match="no table of instructions for once, launch 2"):
        tables_of(launches, map(table, names[:4]))

"""The lab of shifts, on the emulator: what the chip's rule gives is known beforehand, and so is what NumPy computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.compile import assemble, cuda
from memlane.errors import CommandError
from memlane.lab import LABS, Request
from memlane.lab.shift import kernels
from memlane.lab.shift.cases import LAYOUTS, NONE, PATTERNS, RAP, RAS, SEARCHED, accesses, drawn
from memlane.lab.shift.kernels import KERNELS, alignment, outcomes, walsh_hadamard
from memlane.lab.shift.lab import CASES
from memlane.lab.shift.measure import SOURCE, Bench, Case, Mean
from memlane.lab.shift.tables import speed_up
from memlane.launch import Target
from memlane.measure import count
from memlane.sass import disassemble
from memlane.targets import target

pytestmark = pytest.mark.slow

STRIDE = Case("stride", NONE, 4, "read", 1, 1)


@pytest.fixture(scope="module")
def emulator() -> Target:
    return target("emulator:h200", deterministic=True)


@pytest.fixture(scope="module")
def bench(emulator: Target) -> Bench:
    return Bench(emulator, 4, 4)


def test_the_wavefronts_are_those_of_the_layouts_page(bench: Bench) -> None:
    of = {layout: bench.wavefronts(replace(STRIDE, layout=layout, warps=32)) for layout in LAYOUTS}
    assert of == {NONE: 32, RAS: pytest.approx(3.53, abs=0.3), RAP: 1, "pad(1)": 1, "xor": 1, SEARCHED: 1}
    assert bench.wavefronts(replace(STRIDE, layout=SEARCHED, width=8, warps=32)) == 2
    assert bench.wavefronts(replace(STRIDE, pattern="antidiagonal", layout="pad(1)")) == 32


def test_one_access_without_a_shift_takes_31_wavefronts_more(bench: Bench) -> None:
    plain, rap = (bench.cycles(replace(STRIDE, layout=layout)).warp.value for layout in (NONE, RAP))
    assert plain - rap == 31


def test_many_accesses_of_many_warps_take_their_wavefronts(bench: Bench) -> None:
    """16 accesses of 32 warps at 32 wavefronts each, and a latency."""
    block = bench.cycles(replace(STRIDE, warps=32, count=16)).block
    assert block is not None
    assert 16 * 32 * 32 <= block.value <= 16 * 32 * 32 + 100


def test_the_address_costs_what_it_computes_only_if_it_is_included(bench: Bench) -> None:
    excluded, included = (replace(STRIDE, pattern="contiguous", layout=RAP, included=one) for one in (False, True))
    assert bench.cycles(excluded).warp.value + 20 < bench.cycles(included).warp.value
    assert bench.cycles(excluded).warp.value == bench.cycles(replace(excluded, layout=NONE)).warp.value


@pytest.mark.parametrize("table", ["global", "constant", "shared"])
def test_a_table_lies_where_it_is_wanted(bench: Bench, table: str) -> None:
    """A column under RAP is free of conflicts only if the kernel looks up the shifts that were drawn; under RAS it takes what the rule says
    of these very shifts."""
    for layout in (RAP, RAS):
        case = replace(STRIDE, layout=layout, included=True, table=table, warps=4)
        call, arguments = bench.bound(case, bench.target.empty((4, 4, 2), "i8"))
        timed = [one for one in count(call, *arguments).sites if "volatile" in one.site.op]
        passes, runs, warps = 2, 4, 4
        assert sum(one.wavefronts or 0 for one in timed) == bench.wavefronts(case) * passes * runs * warps
        assert sum(one.requests for one in timed) == passes * runs * warps


def test_random_layouts_are_drawn_anew_and_others_are_not(emulator: Target) -> None:
    assert len({layout.shifts for layout in drawn(RAS, 4, emulator.chip, 8).layouts}) == 8  # type: ignore[attr-defined]
    assert drawn(RAS, 4, emulator.chip, 8).shifts.shape == (8, 32)
    assert len(drawn("xor", 4, emulator.chip, 8).layouts) == 1
    assert accesses("stride", 2, 3, 8).rows.shape == (8, 3, 64)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_between_the_clock_reads_stand_the_accesses_and_no_other(kind: str, width: int) -> None:
    """In the assembled code, whatever the assembler moves: 16 accesses of the whole width; behind stores the one load that tells when they
    are done."""
    element = {4: "unsigned", 8: "unsigned long long"}[width]
    macros = {"ELEMENT": element, "WIDTH": width, "ROWS": 32, "ROOM": 1024, "COUNT": 16, "INCLUDED": 0, "TABLE": 0, "TABLE_WORDS": 1}
    module = cuda("".join(f"#define {name} {value}\n" for name, value in macros.items()) + SOURCE.read_text(encoding="utf-8"))
    code = disassemble(assemble(module).data).functions[kind].instructions
    clocks = [place for place, one in enumerate(code) if "SR_CLOCKLO" in one.text]
    assert len(clocks) == 2
    inside = [one.name for one in code[clocks[0] : clocks[1]] if one.opcode[:2] in ("LD", "ST", "AT", "RE")]
    wide = "" if width == 4 else ".64"
    assert inside == ([f"LDS{wide}"] * 16 if kind == "read" else [f"STS{wide}"] * 16 + [f"LDS{wide}"])


def test_the_interval_of_a_quotient() -> None:
    """A quotient of means with errors of 1 % and 2 % has one of sqrt(5) %."""
    assert Mean(300.0, 3.0).over(Mean(100.0, 2.0)) == Mean(3.0, pytest.approx(3 * 0.05**0.5 / 10))  # type: ignore[arg-type]
    spread = Mean.of(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (spread.value, spread.within) == (2.5, pytest.approx(1.96 * np.std([1, 2, 3, 4], ddof=1) / 2))


# -- whole kernels -------------------------------------------------------------------------------------------------------------


def test_the_references_of_the_kernels() -> None:
    word = np.array([[0, 1, 2, 3] * 8])
    assert alignment(word, word)[0, -1, -1] == 2 * 32
    assert alignment(word[:, :2], word[:, :2])[0].tolist() == [[2, 1], [1, 4]]
    matrix = np.array([[1]])
    for _ in range(10):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    row = np.random.default_rng(1).integers(-9, 9, (1, 1024), dtype=np.int32)
    assert (walsh_hadamard(row)[0] == matrix @ row[0]).all()


@pytest.mark.slow
def test_whole_kernels_compute_the_same_in_every_layout_and_take_what_the_rule_says(emulator: Target) -> None:
    """That outputs equal NumPy's, `outcomes` asks itself."""
    transpose, product, align, butterfly = KERNELS
    turned = {one.way: one.wavefronts for one in outcomes(emulator, transpose, 4, 1)}
    assert turned == {NONE: 4 * (32 + 32 * 32)} | dict.fromkeys(("pad(1)", "xor", SEARCHED), 4 * (32 + 32))
    for kernel in (product, butterfly):
        plain, best = outcomes(emulator, kernel, 2, 1, (NONE, SEARCHED))
        assert best.wavefronts < plain.wavefronts
        assert best.layout.size == 1024
    # The anti-diagonals of a tile without a shift have no conflicts, and neither have its rows; those of a padded tile lie in one bank.
    plain, padded, best = outcomes(emulator, align, 4, 1, (NONE, "pad(1)", SEARCHED))
    assert plain.wavefronts == best.wavefronts < padded.wavefronts / 4


def test_an_output_that_is_wrong_is_refused(emulator: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "walsh_hadamard", lambda rows: rows)
    with pytest.raises(Exception, match="butterfly with the tile none does not compute what NumPy does"):
        outcomes(emulator, KERNELS[-1], 1, 1, (NONE,))


# -- the lab -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_quick_run_of_one_pattern(emulator: Target) -> None:
    result = LABS["shift"].run(emulator, Request(quick=True, only=("stride",)))
    assert {"excluded-1", "excluded-16", "included-1", "included-16", "probes", "tables", "wavefronts", "all"} <= set(result.tables)
    rows = {row.case: row for row in result.rows}
    four = rows["stride, read of 4 bytes, 32 warps, 16 accesses"]
    assert four.reach is None  # stated for an H200, not for its model
    assert four.value is not None
    assert four.value > 15
    assert "read-4-excluded-16" in result.figures
    assert not result.tables["all"].printed


def test_a_pattern_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="--only zigzag: no such case; choose from: contiguous, stride"):
        LABS["shift"].run(target("emulator:h200"), Request(only=("zigzag",)))
    assert CASES[:5] == PATTERNS


def test_speed_up_is_over_the_same_accesses_without_a_shift(bench: Bench) -> None:
    case = replace(STRIDE, layout="xor")
    measured = {one: bench.cycles(one) for one in (STRIDE, case)}
    assert speed_up(measured, case).value == measured[STRIDE].warp.value / measured[case].warp.value

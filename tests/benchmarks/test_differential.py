"""The comparison of instructions: its kernels, its judgement, its way around what fails, and the page made of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import differential
import docs
import handmade
import numpy as np
import numpy.typing as npt
import pytest
import support
from application import HEAD, Application, applications, module, run, without
from comparison import approximate_rows, exact_row
from differential import KernelFailedError, assembled_part, compare, group_cases
from emulated import refusals
from harness import Row
from instructions import GROUPS, spell, spellings
from operands import UNARY, tuples

from cases import Case, cases
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import DeviceError
from memlane.launch import LoadedModule
from memlane.ptx import TABLE, Module, parse

pytestmark = pytest.mark.slow

NAMES = ("emulator", "GPU")


def case(name: str, label: str = "") -> Case:
    """The case of this name."""
    opcode = name.partition(".")[0]
    found = [one for row in TABLE.rows(opcode) for form in spell(row) if form.name == name for one in cases(form)]
    return next(one for one in found if one.name == (label or name))


def bits(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


# -- forms and operands ------------------------------------------------------------------------------------------------------------


def test_forms_are_spelled_once_and_only_where_the_manual_allows_them() -> None:
    names = [spelling.name for spelling in spellings()]
    known = set(names)
    for name in (
        "add.sat.s32",
        "fma.rn.ftz.sat.f32",
        "cvt.rzi.s32.f64",
        "setp.ltu.f64",
        "atom.shared.cas.b64",
        "shfl.sync.bfly.b32",
        "madc.hi.cc.u64",
    ):
        assert name in known
    for name in ("setp.lo.f32", "setp.ltu.s32", "cvt.rn.s32.u32", "cvt.f32.f64", "cvt.sat.u32.u16", "shfl.bfly.b32", "ld.v4.b64"):
        assert name not in known
    assert len(names) - len(known) == 4 * 3  # min and max of f32 with two operands and with three


@pytest.mark.parametrize("group", GROUPS)
def test_the_assembler_takes_every_form(group: str) -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    for one in applications(group_cases(group), quick=True):
        kept, refused = assembled_part(one, "sm_90")
        assert [row for row in refused if not row.holds] == []
        assert len(kept.cases) + len(refused) == len(one.cases)


def test_operands_are_edges_crossed_and_repeatable_random_ones() -> None:
    a, b = tuples(("s32", "s32"), 4096)
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    assert {(0x80000000, 0xFFFFFFFF), (0, 0), (0x7FFFFFFF, 1), (1, 0)} <= pairs
    assert len(pairs) > 3500
    assert all((x == y).all() for x, y in zip((a, b), tuples(("s32", "s32"), 4096), strict=True))
    assert sorted(tuples(("f16",), UNARY)[0].tolist()) == list(range(1 << 16))
    (c,) = tuples(("f32",), UNARY)
    assert {0, 0x80000000, 1, 0x7F800000, 0x7FC00000, 0x7F800001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF} <= set(c.tolist())
    shifts = tuples(("b32", "amount"), 4096)[1]
    assert {31, 32, 33, 255, 0xFFFFFFFF} <= set(shifts.tolist())


# -- kernels -----------------------------------------------------------------------------------------------------------------------


def results(one: Case, count: int = 256) -> tuple[list[npt.NDArray[np.uint64]], list[npt.NDArray[np.uint64]]]:
    """Operands and results of one form on the emulator."""
    target = Emulator(load("h200"))
    application = Application("k0", (one,), count)
    return application.operands(), run(application, target.load(module([application])), target)[0]


def test_a_carry_goes_in_and_out() -> None:
    (a, b, c), (low, carry) = results(case("addc.cc.u32"))
    total = a + b + (c != 0)
    assert (low == total & np.uint64(0xFFFFFFFF)).all()
    assert (carry == total >> np.uint64(32)).all()


def test_a_load_sees_what_the_neighbour_stored() -> None:
    (a, _), (found,) = results(case("ld.shared.s16"))
    other = a[np.arange(len(a)) ^ 1]
    assert (found == other.astype(np.int16).astype(np.int16).view(np.uint16)).all()


@pytest.mark.parametrize("name", ["ld.global.nc.v2.b64", "ld.global.nc.L1::no_allocate.v2.b64"])
def test_loads_that_need_not_see_the_stores_of_their_kernel_find_what_was_there_before(name: str) -> None:
    (a, b), found = results(one := handmade.case_of(name, 2))
    assert "st." not in one.code
    assert all((operand[np.arange(len(a)) ^ 1] == half).all() for operand, half in zip((a, b), found, strict=True))


def test_threads_that_meet_at_one_address_all_count() -> None:
    (a,), (found,) = results(case("red.global.add.u32", "red.global.add.u32, 16 threads an address"))
    expected = (12345 + a.reshape(-1, 16, 8).sum(axis=1)) & np.uint64(0xFFFFFFFF)
    assert (found.reshape(-1, 16, 8) == expected[:, None, :]).all()


def test_forms_without_operands_run_too() -> None:
    assert (results(case("activemask.b32"))[1][0] == 0xFFFFFFFF).all()


# -- judgement ---------------------------------------------------------------------------------------------------------------------


def test_the_first_operands_that_differ_are_named_with_both_results() -> None:
    row = exact_row(case("add.u32"), [bits(1, 2, 3), bits(4, 5, 6)], [bits(5, 7, 9)], [bits(5, 8, 8)], NAMES)
    assert (row.value, row.holds, row.peer) == (2.0, False, {"tuples": 3.0})
    assert row.note == "(0x00000002, 0x00000005): emulator 0x00000007, GPU 0x00000008"


def test_division_by_zero_is_left_out() -> None:
    row = exact_row(case("rem.s32"), [bits(7, 7), bits(0, 2)], [bits(7, 1)], [bits(9, 1)], NAMES)
    assert (row.value, row.peer) == (0.0, {"tuples": 1.0})
    assert "division by zero left out" in row.note


def test_bit_fields_beyond_the_manual_are_left_out_for_64_bits_only() -> None:
    field = [bits(7, 7, 7), bits(255, 256, 0), bits(1, 1, 1 << 20)]
    wide = exact_row(case("bfe.u64"), field, [bits(0, 1, 1)], [bits(0, 2, 2)], NAMES)
    assert (wide.value, wide.peer, wide.note) == (0.0, {"tuples": 1.0}, "positions and lengths beyond 255 left out")
    assert exact_row(case("bfe.u32"), field, [bits(0, 1, 1)], [bits(0, 2, 2)], NAMES).value == 2.0
    inserted = [bits(7, 7), bits(0, 0), bits(1, 300), bits(1, 1)]
    assert exact_row(case("bfi.b64"), inserted, [bits(2, 0)], [bits(3, 4)], NAMES).value == 1.0


def test_places_that_fns_does_not_know_are_left_out() -> None:
    operands = [bits(0, 0, 0, 0), bits(0, 31, 32, 0), bits(1 << 31, 1, 1, (1 << 31) - 1)]
    row = exact_row(case("fns.b32"), operands, [bits(1, 1, 1, 1)], [bits(0, 0, 0, 0)], NAMES)
    assert (row.value, row.peer) == (2.0, {"tuples": 2.0})
    assert "bases beyond 31 and the offset -2^31 left out" in row.note


def test_nans_are_equal_only_where_their_payload_is_open() -> None:
    wide, other = bits(0x7FF8000000000000), bits(0xFFF8000000000001)
    assert exact_row(case("add.rn.f64"), [wide, wide], [wide], [other], NAMES).holds
    assert exact_row(case("abs.f64"), [wide], [wide], [other], NAMES).holds
    assert not exact_row(case("abs.f64"), [wide], [wide], [bits(0x7FF0000000000000)], NAMES).holds
    canonical, quiet = bits(0x7FFFFFFF), bits(0x7FC00000)
    assert not exact_row(case("add.rn.f32"), [quiet, quiet], [canonical], [quiet], NAMES).holds
    assert exact_row(case("neg.f32"), [quiet], [canonical], [quiet], NAMES).holds
    assert not exact_row(case("neg.f16x2"), [bits(0x7E003C00)], [bits(0xFE00BC00)], [bits(0xFE003C00)], NAMES).holds
    assert exact_row(case("neg.f16x2"), [bits(0x7E003C00)], [bits(0xFE00BC00)], [bits(0x7FFFBC00)], NAMES).holds


def test_the_error_of_an_approximation_is_that_against_the_truth() -> None:
    third = int(np.float32(1 / 3).view(np.uint32))
    operands = [bits(0x40400000, 0x3F800000)]
    error, apart = approximate_rows(case("rcp.approx.f32"), operands, [bits(third, 0x3F800000)], [bits(third + 3, 0x3F800000)], NAMES)
    assert (error.unit, error.reach, error.holds) == ("ulp", 1.0, False)
    assert error.value == pytest.approx(3 + 1 / 3, abs=0.01)
    assert error.peer["emulator"] == pytest.approx(1 / 3, abs=0.01)
    assert error.note.startswith("at 3: GPU")
    assert apart.holds


def test_a_zero_for_a_number_is_no_small_error() -> None:
    one, zero, infinite = 0x3F800000, 0, 0x7F800000
    _, apart = approximate_rows(case("ex2.approx.f32"), [bits(0, zero, one)], [bits(one, one, one)], [bits(one, zero, infinite)], NAMES)
    assert (apart.value, apart.holds) == (2.0, False)
    assert apart.note == "(0): emulator 1, GPU 0"


def test_a_zero_within_the_absolute_error_is_no_other_kind_of_result() -> None:
    tiny, small, beyond, infinite, quiet = 0x00800000, 0x3A000000, 0x4B800000, 0x7F800000, 0x7FC00000
    given = [bits(tiny, small, beyond, infinite)]
    _, apart = approximate_rows(case("sin.approx.f32"), given, [bits(tiny, small, small, quiet)], [bits(0, 0, 0, 0)], NAMES)
    assert apart.value == 2.0  # 2^-11 is no zero, and the sine of infinity no number
    _, apart = approximate_rows(case("rcp.approx.f32"), [bits(1, 1)], [bits(tiny - 1, tiny)], [bits(tiny + 1, 0)], NAMES)
    assert apart.value == 1.0


# -- runs --------------------------------------------------------------------------------------------------------------------------


class Wrong(Emulator):
    """Stands for a GPU whose every result has the lowest bit of its third element turned."""

    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        super().read(address, host)
        host.reshape(-1, host.shape[-1])[:, 2] ^= np.uint64(1)


def test_a_gpu_that_errs_is_seen_in_every_form() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    applied = [replace(one, count=256) for one in applications(group_cases("logic"), quick=True)]
    chip = load("h200")
    right = compare(applied, Emulator(chip), Emulator(chip))
    wrong = compare(applied, Wrong(chip), Emulator(chip))
    assert [row.value for row in right] == [0.0] * len(right)
    assert [row.value for row in wrong] == [1.0] * len(right)
    assert len(right) > 50
    assert all(row.note.startswith("(0x") for row in wrong)


class Failing(Emulator):
    """Stands for a GPU that is lost when it meets a form."""

    def load(self, module: Module) -> LoadedModule:
        for kernel in module.kernels.values():
            if any(instruction.name == "shl.b32" for instruction in kernel.body.instructions()):  # type: ignore[union-attr]
                raise DeviceError("the kernel was lost")
        return super().load(module)


def test_a_kernel_that_fails_is_tried_in_halves_and_the_others_go_on() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    listed = group_cases("logic")
    applied = applications(listed, quick=True)
    with pytest.raises(KernelFailedError, match="the kernel was lost") as caught:
        compare(applied, Failing(load("h200")), Emulator(load("h200")))
    failure = caught.value
    assert "shl.b32" in [one.name for one in failure.at.cases]
    options = argparse.Namespace(target="emulator:h200", quick=True)
    rows = [*failure.done, *differential._in_parts("logic", listed, failure, options)]
    assert sorted(row.case for row in rows) == sorted(one.name for one in listed)
    alone = KernelFailedError([], without(failure.at, set(range(1, len(failure.at.cases)))), (), "lost")
    (row,) = differential._in_parts("logic", listed, alone, options)
    assert (row.case, row.value, row.holds, row.note) == (failure.at.cases[0].name, None, False, "lost")


def test_a_form_that_the_assembler_refuses_is_a_row_without_a_value() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    good = case("red.global.add.u64")
    bad = replace(good, code=good.code.replace("add.u64", "add.s64"), label="bad")
    kept, (row,) = assembled_part(Application("k0", (good, bad, good), 128), "sm_90")
    assert kept.cases == (good, good)
    assert (row.case, row.value, row.holds) == ("bad", None, False)
    assert "requires .u32" in row.note
    newer = next(one for one in group_cases("floating") if one.name == "add.f32.bf16")
    _, (row,) = assembled_part(Application("k0", (newer,), 128), "sm_90")
    assert row.value is None
    assert row.holds
    assert "sm_100" in row.note


def test_what_the_emulator_refuses_is_found_without_compiling() -> None:
    body = ".reg .b64 a; .reg .pred is; mov.b64 a, 1; istypep.texref is, a; not.b64 a, a; ret;"
    found = parse(f"{HEAD}.visible .entry k() {{ {body} }}", "k.ptx")
    assert list(refusals(found, found.kernels["k"])) == [1]
    assert "istypep" in refusals(found, found.kernels["k"])[1]


@pytest.mark.slow
def test_a_quick_run_compares_with_the_oracle(quick: Callable[..., list[dict[str, Any]]]) -> None:
    rows = {row["case"]: row for row in quick("differential", "logic")}
    assert all(row["holds"] for row in rows.values())
    assert {row["metric"] for row in rows.values()} == {"operands that differ"}
    assert rows["shf.l.wrap.b32"]["peer"] == {"tuples": 256.0}


# -- the page ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_of_instructions_is_what_the_table_and_the_emulator_say() -> None:
    path = docs.DOCS / support.PAGE
    assert path.read_text(encoding="utf-8") == support.page(), "docs/instructions.md is out of date: make tables"


@pytest.mark.slow
def test_the_page_tells_emulated_from_not_and_checked_from_not(tmp_path: Path) -> None:
    rows = [
        Row("not.pred", "operands that differ", 0.0, "", 0.0),
        Row("not.b32", "operands that differ", 0.0, "", 0.0),
        Row("shl.b64", "operands that differ", 3.0, "", 0.0, note="?"),
    ]
    document = {"chip": "h200", "driver": "580", "date": "2026-11-21", "commit": "0" * 40, "rows": [row.as_json() for row in rows]}
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "differential.json").write_text(json.dumps(document))
    lines = {line.partition("`")[2].partition("`")[0]: line for line in support.page(tmp_path).splitlines() if line.startswith("| [")}
    assert lines["not.type d, a"].endswith("| 4 forms | yes, 2 forms, 2026-11-21 |")
    assert lines["shl.type d, a, b"].endswith("| 3 forms | **differs** in 1 of 1 forms, 2026-11-21: `shl.b64` |")
    assert lines["and.type d, a, b"].endswith("| 4 forms | no |")
    assert lines["istypep.type p, a"].endswith("| no | no | no | no |")
    assert "3 forms, of which 1 differ" in support.page(tmp_path)


def test_the_page_counts_cases_by_hand_and_knows_programs() -> None:
    lines = {line.partition("`")[2].partition("`")[0]: line.split(" | ") for line in support.page().splitlines() if line.startswith("| [")}
    by_hand = [line for line in handmade.lines() if line.case.spelling.row.text == "cnot.type d, a"]
    assert lines["cnot.type d, a"][-3] == str(len(by_hand)) != "0"
    assert lines["bra{.uni} target"][-3] == "programs"
    assert lines["istypep.type p, a"][-3] == "no"


def test_the_page_shows_the_largest_error_of_approximate_instructions(tmp_path: Path) -> None:
    row = Row("rcp.approx.f32", "largest error", 0.927, "ulp", 1.0, peer={"emulator": 0.5, "tuples": 9.0})
    document = {"chip": "h200", "driver": "580", "date": "2026-11-21", "commit": "0" * 40, "rows": [row.as_json()]}
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "differential.json").write_text(json.dumps(document))
    assert support.page(tmp_path).endswith("| `rcp.approx.f32` | 0.927 | 0.5 | ulp | 1 |\n")

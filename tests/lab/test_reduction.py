"""The lab of reductions, on the emulator: sums are those of NumPy, and counts those of the course's pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch, CommandError, MemlaneError
from memlane.lab import LABS, Request
from memlane.lab.reduction import Reducer, reduce
from memlane.lab.reduction.counting import reasons
from memlane.lab.reduction.elements import ELEMENTS, OPS, WITH_INDEX
from memlane.lab.reduction.ladder import COURSE, STEPS, UNSAFE, passes
from memlane.lab.reduction.measure import floors, ladder, predicted_step, random_array
from memlane.lab.reduction.reducer import _PLANS, MOST_PLANS
from memlane.lab.reduction.settings import Settings, settings_of
from memlane.lab.reduction.shapes import PACKED, TICKET, Shape
from memlane.lab.reduction.tables import Measurements, figures, rows, tables
from memlane.launch import DeviceArray, Target, apply_observers, observing
from memlane.measure import Checker
from memlane.targets import target

pytestmark = pytest.mark.slow

SUM = Shape(128, 1, 5, PACKED)


@cache
def emulator(chip: str = "h200") -> Target:
    return target(f"emulator:{chip}", deterministic=True)


def numbers(n: int, dtype: str = "int32") -> np.ndarray:
    random = np.random.default_rng(n)
    if dtype.startswith("int"):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, n, dtype, endpoint=True)
    return (random.standard_normal(n) / 3 + 1).astype(dtype)


def expected(values: np.ndarray, op: str, axis: int | None = None) -> Any:
    """By NumPy; of floats sums and products in float64."""
    if op in ("sum", "product"):
        wide = values.dtype if values.dtype.kind == "i" else np.float64
        return getattr(np, "prod" if op == "product" else op)(values, axis=axis, dtype=wide)
    return getattr(np, op)(values, axis=axis)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.file)
def test_every_step_sums(step: Any) -> None:
    for n in (16, 1000, 20011):
        values = numbers(n)
        assert passes(step, emulator().array(values), 128).run() == values.sum(dtype=np.int32)


@pytest.mark.parametrize("block", [64, 1024])
def test_steps_take_every_block(block: int) -> None:
    values = numbers(9001)
    for step in (STEPS[0], STEPS[4], STEPS[6], STEPS[11]):
        assert passes(step, emulator().array(values), block).run() == values.sum(dtype=np.int32)


def test_steps_can_run_again_without_being_prepared() -> None:
    """The last block leaves the ticket, and the word, as it found them."""
    values = numbers(20011)
    for step in STEPS[10:]:
        found = passes(step, emulator().array(values), 128)
        assert found.run() == found.run() == values.sum(dtype=np.int32)


def races(step: Any) -> set[str]:
    found, checker = passes(step, emulator().array(numbers(3000)), 128), Checker()
    with observing(checker):
        for one in found.launches:
            emulator().launch(apply_observers(one))
    return {report.kind for report in checker.reports}


def test_only_the_unsafe_original_races() -> None:
    assert races(UNSAFE) == {"data race"}
    assert [step.number for step in STEPS[4:7] if races(step)] == []


# -- what the course says --------------------------------------------------------------------------------------------------------


def test_counts_on_the_chip_of_the_course() -> None:
    """Its profiler pages, blocks of 128 on a GPU of a Tesla S1070: step 2 serialises warps and step 3 none, and step 2 executes 604,485 and
    step 3 385,507 instructions of warps in 3,277 blocks; 26,216 segments loaded and one store for each block."""
    one, two, three, *_ = [reasons(emulator("s1070"), step, 1 << 14, 128) for step in COURSE[:3]]
    assert one.divergent_branches > 3.9 * two.divergent_branches
    assert (one.excess_wavefronts, three.excess_wavefronts) == (0, 0)
    assert two.excess_wavefronts > two.wavefronts / 2
    assert three.instructions < two.instructions
    assert three.idle_lanes is not None
    assert one.idle_lanes is not None
    assert three.idle_lanes < one.idle_lanes


def test_what_each_later_step_removes() -> None:
    found = {step.number: reasons(emulator("s1070"), step, 1 << 14, 128) for step in STEPS if step.number in (3, 4, 5, 6, 11)}
    assert found[4].blocks == found[3].blocks / 2
    assert (found[4].barriers, found[5].barriers) == (8, 2)
    assert found[6].instructions < found[5].instructions < found[4].instructions < found[3].instructions
    assert found[11].launches == 1 < found[6].launches


# -- reduce ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_every_operation_of_integers_is_numpys(op: str) -> None:
    values = numbers(5003)
    got = reduce(emulator().array(values), op)
    assert got.item() == expected(values, op)
    assert got.dtype == (np.int64 if op in WITH_INDEX else np.int32)
    assert got.shape == ()


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_every_type_within_the_bound_of_its_tree(dtype: str) -> None:
    values = numbers(3001, dtype)
    bound = Reducer(emulator().array(values))
    got = bound().item()
    if values.dtype.kind == "i":
        assert got == expected(values, "sum")
        return
    computed = np.float32 if dtype == "float16" else values.dtype
    error = bound.depth * np.finfo(computed).eps * np.abs(values.astype(np.float64)).sum()
    assert abs(got - expected(values, "sum")) <= error + np.finfo(values.dtype).eps / 2 * abs(got)


@pytest.mark.parametrize(("op", "dtype"), [("max", "float32"), ("argmin", "float16")])
def test_a_nan_wins(op: str, dtype: str) -> None:
    values = numbers(2000, dtype)
    values[[700, 1999]] = np.nan
    got = reduce(emulator().array(values), op).item()
    assert np.isnan(got) if op == "max" else got == 700


def test_of_equal_elements_the_first_is_the_place() -> None:
    values = np.zeros(3001, np.float16)
    values[[17, 2500]] = -1
    assert reduce(emulator().array(values), "argmin").item() == 17


@given(st.integers(0, 5000), st.integers(0, 3), st.integers(1, 9), st.sampled_from([PACKED, TICKET]))
@settings(max_examples=40, deadline=None)
def test_any_size_base_and_grid(n: int, offset: int, grid: int, finish: str) -> None:
    """Bases that are no multiple of 16 bytes included."""
    values = numbers(n + offset)
    whole = emulator().array(values)
    part = DeviceArray(whole.target, whole.address + 4 * offset, (n,), whole.dtype, whole)
    assert Reducer(part, shape=replace(SUM, grid=grid, finish=finish))().item() == values[offset:].sum(dtype=np.int32)


def test_the_same_bits_for_every_launch_shape_and_base() -> None:
    values = numbers(40_013, "float32")
    padded = emulator().array(np.concatenate([np.zeros(1, np.float32), values]))
    moved = DeviceArray(padded.target, padded.address + 4, values.shape, values.dtype, padded)
    shapes = [None, Shape(32, 1, 3)]
    found = {
        Reducer(array, reproducible=True, shape=shape)().numpy().tobytes()
        for array in (emulator().array(values), moved)
        for shape in shapes
    }
    assert len(found) == 1
    bound = Reducer(moved, reproducible=True)
    error = bound.depth * np.finfo(np.float32).eps * np.abs(values).sum(dtype=np.float64)
    assert abs(bound().item() - values.sum(dtype=np.float64)) <= error


@pytest.mark.parametrize(("shape", "axis"), [((3, 70, 33), 0), ((3, 70, 64), 1), ((40, 200), -1), ((2, 0), 1), ((0, 2), 1)])
def test_axes(shape: tuple[int, ...], axis: int) -> None:
    values = numbers(int(np.prod(shape))).reshape(shape)
    got = reduce(emulator().array(values), axis=axis).numpy()
    assert np.array_equal(got, expected(values, "sum", axis))


def test_columns_that_blocks_share() -> None:
    values = numbers(2000 * 64).reshape(2000, 64)
    bound = Reducer(emulator().array(values), "max", 0)
    assert bound.launch(bound.empty()).grid[1] > 1
    for _ in range(2):
        assert np.array_equal(bound().numpy(), values.max(0))


def test_results_are_used_again_only_when_nobody_holds_them() -> None:
    values = numbers(100)
    array = emulator().array(values)
    first, second = reduce(array), reduce(array)
    assert first.address != second.address
    array.copy_from(values + 1)
    third = reduce(array)
    assert first.item() == second.item() == values.sum(dtype=np.int32)
    assert third.item() == (values + 1).sum(dtype=np.int32)
    address = first.address
    del first
    assert reduce(array).address == address


def test_only_so_many_plans_are_remembered() -> None:
    array = emulator().array(numbers(400))
    for n in range(1, MOST_PLANS + 10):
        assert reduce(DeviceArray(array.target, array.address, (n,), array.dtype, array)).item() == numbers(400)[:n].sum(dtype=np.int32)
    assert len(_PLANS) == MOST_PLANS


def test_nothing_sums_to_nothing() -> None:
    assert reduce(emulator().zeros(0, np.int32)).item() == 0
    assert reduce(emulator().zeros(0, np.int32), "product").item() == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: reduce(t.zeros(0), "min"), "min of an empty array (shape (0,), axis None) is undefined"),
        (lambda t: reduce(t.zeros((3, 0)), "argmax", 1), "argmax of an empty array (shape (3, 0), axis 1) is undefined"),
        (lambda t: reduce(t.zeros(4, np.uint8)), "arrays of uint8 cannot be reduced; convert them to one of: int32"),
        (lambda t: reduce(t.zeros(4), "mean"), "choose from: sum, product"),
        (lambda t: reduce(t.zeros(4), axis=1), "axis 1 is out of range for an array of 1 dimension"),
        (lambda t: reduce(t.zeros(4), axis="rows"), "axis must be a whole number or None"),
        (lambda t: reduce(np.zeros(4)), "copy it to one with target.array"),
        (lambda t: reduce(t.zeros((4, 4)), axis=0, reproducible=True), "leave out the axis"),
        (lambda t: t.zeros(4).item(), "item() is for arrays of one element"),
        (lambda t: t.adopt(np.zeros(4)), "copy it there with target.array"),
        (lambda t: t.elapsed_ns(lambda: None), "its times are modelled"),
    ],
)
def test_bad_input(call: Callable[[Target], object], said: str) -> None:
    with pytest.raises(BadLaunch) as refusal:
        call(emulator())
    assert said in str(refusal.value)


# -- the lab ---------------------------------------------------------------------------------------------------------------------


def test_the_ladder_on_the_emulator() -> None:
    steps = (STEPS[0], STEPS[2], STEPS[6])
    array = emulator().array(numbers(5000))
    found = Measurements(emulator().chip, floors(emulator(), 1), ladder(emulator(), array, 1 << 12, 128, 1, steps))
    assert [row.case for row in rows(found)] == [f"2^12, block 128, {step.title}" for step in steps]
    assert [row.peer["all"] for row in rows(found)] == [pytest.approx(found.timed[0].us / one.us) for one in found.timed]
    assert list(figures(found)) == ["ladder-128"]
    assert [line[0] for line in tables(found)["ladder-2^12-128"].lines] == [step.title for step in steps]


def test_predicted_steps_stand_beside_the_course_on_its_chip() -> None:
    """Their order and their sizes are those of the course, by the model of its chip: samples of the blocks run."""
    target = Emulator(load("s1070"))
    array = random_array(target, 1 << 22, np.int32)
    found = Measurements(
        target.chip, floors(target, 1), predicted=[predicted_step(array, STEPS[number], 1 << 22, 128) for number in (0, 3, 6)]
    )
    first, fourth, seventh = rows(found)
    assert [row.peer["course us"] for row in (first, fourth, seventh)] == [3510, 470, 220]
    assert first.value > fourth.value > seventh.value  # type: ignore[operator]
    assert [row.case for row in rows(found) if not 0.5 < row.peer["over the course"] < 2] == []
    assert "the chip file has no rate of" in first.note
    assert [line[5] for line in tables(found)["predicted"].lines] == [3510, 470, 220]
    elsewhere = predicted_step(emulator().array(numbers(5000)), STEPS[0], 1 << 12, 128)
    assert rows(Measurements(emulator().chip, floors(emulator(), 1), predicted=[elsewhere]))[0].peer.get("course us") is None


def test_nothing_stands_beside_a_model() -> None:
    result = LABS["reduction"].run(emulator(), Request(quick=True, only=("peers", "axes", "beyond")))
    assert (result.rows, result.tables) == ((), {})


def test_options() -> None:
    assert settings_of(["2^20", "1000003"], [64, 256]) == Settings((1 << 20, 1000003), (64, 256))
    for sizes, blocks, said in (
        (["2^40"], [], "from 16 to 2^30"),
        (["many"], [], "--size many"),
        ([], [100], "--block 100: blocks have 64, 128"),
    ):
        with pytest.raises(CommandError, match=said.replace("^", r"\^")):
            settings_of(sizes, blocks)
    with pytest.raises(MemlaneError, match="--only stairs: no such case; choose from: ladder"):
        LABS["reduction"].run(emulator(), Request(only=("stairs",)))

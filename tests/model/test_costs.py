"""Predicted times of plans, against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlane.chip import Bandwidth, Chip, Links, load
from memlane.errors import BadPlan, ChipError
from memlane.model import predicted, roofline_ns
from memlane.plan import KernelRef, Launch, Plan, PlanBuilder

LINKS = Links(host_gb_per_s=50, host_us=2, pageable_gb_per_s=20, peer_gb_per_s=400, peer_us=3, device_us=1, launch_us=0.5)
MB = 1 << 20


@pytest.fixture
def chip() -> Chip:
    return replace(load("h200"), links=LINKS, copy_gb_per_s=4000.0)


def ten_us(launch: Launch, device: int) -> float:
    return 10_000.0


def one_copy(to: int | str, of: int | str) -> Plan:
    b = PlanBuilder()
    b.copy(b.array("to", MB, "u1", to), b.array("of", MB, "u1", of))  # type: ignore[arg-type]
    return b.plan()


@pytest.mark.parametrize(
    ("to", "of", "us"),
    [
        (0, "pinned", 2 + MB / 50e3),
        ("pinned", 0, 2 + MB / 50e3),
        (0, "host", 2 + MB / 20e3),
        (0, 1, 3 + MB / 400e3),
        (0, 0, 1 + 2 * MB / 4000e3),
    ],
)
def test_a_copy_takes_its_latency_and_its_bytes_over_the_rate(chip: Chip, to: int | str, of: int | str, us: float) -> None:
    assert predicted(one_copy(to, of), [chip, chip], ten_us).elapsed_ns == pytest.approx(1000 * us)


def test_copies_to_the_host_have_numbers_of_their_own_where_they_are_known(chip: Chip) -> None:
    own = replace(chip, links=replace(LINKS, to_host_gb_per_s=25, to_host_us=4, pageable_us=9, pageable_to_host_gb_per_s=5))
    for to, of, us in (("pinned", 0, 4 + MB / 25e3), ("host", 0, 9 + MB / 5e3), (0, "pinned", 2 + MB / 50e3), (0, "host", 9 + MB / 20e3)):
        assert predicted(one_copy(to, of), [own], ten_us).elapsed_ns == pytest.approx(1000 * us)


def test_an_upload_in_chunks_hides_the_kernels_but_for_the_last(chip: Chip) -> None:
    """Eight copies of 1 MiB, 22.97 us each, on one engine; a kernel of 10.5 us behind each. Without overlap the kernels would add up."""
    b = PlanBuilder()
    host, device = b.array("host", 8 * MB, "u1", "pinned"), b.array("device", 8 * MB, "u1", 0)
    for chunk in range(8):
        part = slice(chunk * MB, (chunk + 1) * MB)
        arrived = b.copy(device[part], host[part], queue=1)
        b.launch(KernelRef("m", "k"), 1, 1, device[part], after=[arrived], reads=[device[part]], writes=[device[part]])
    line = predicted(b.plan(), [chip], ten_us)
    copy = 1000 * (2 + MB / 50e3)
    assert line.elapsed_ns == pytest.approx(8 * copy + 10_500)
    assert [line.spans[number].kind for number in line.critical_path()] == ["copy"] * 8 + ["launch"]
    assert line.is_modelled


def test_copies_in_both_directions_go_on_at_the_same_time(chip: Chip) -> None:
    b = PlanBuilder()
    first, second = b.array("a", MB, "u1", 0), b.array("b", MB, "u1", 0)
    b.copy(first, b.array("up", MB, "u1", "pinned"), queue=0)
    b.copy(b.array("down", MB, "u1", "pinned"), second, queue=1)
    assert predicted(b.plan(), [chip], ten_us).elapsed_ns == pytest.approx(1000 * (2 + MB / 50e3))


def test_launches_together_take_as_long_as_the_longest(chip: Chip) -> None:
    b = PlanBuilder()
    launch = Launch(KernelRef("m", "k"), (1, 1, 1), (1, 1, 1), reads=(), writes=())
    b.together([(0, launch), (1, launch)])
    line = predicted(b.plan(), [chip, chip], lambda launch, device: 1000.0 * (1 + device))
    assert line.elapsed_ns == pytest.approx(2500)


def test_a_number_that_a_chip_file_lacks_is_named() -> None:
    with pytest.raises(ChipError, match=r"^the chip file of gtx480 has no \[links\] host_us, which a prediction"):
        predicted(one_copy(0, "pinned"), [replace(load("gtx480"), links=Links())], ten_us)
    with pytest.raises(ChipError, match=r"copy 1,048,576 B of -> to cannot be predicted$"):
        predicted(one_copy("host", "pinned"), [load("h200")], ten_us)


def test_a_chip_that_was_not_given_is_named(chip: Chip) -> None:
    with pytest.raises(BadPlan, match=r"^the plan uses device 1, but chips were given for devices 0 to 0 only$"):
        predicted(one_copy(0, 1), [chip], ten_us)


def test_a_kernel_takes_what_its_bytes_or_its_operations_take() -> None:
    h200 = load("h200")
    # Reads and writes at their rates together are what copies inside the device were measured to reach.
    assert h200.copy_gb_per_s is not None
    assert roofline_ns(h200, dram_read=1e9, dram_written=1e9) == pytest.approx(2e9 / h200.copy_gb_per_s, rel=0.01)
    assert roofline_ns(h200, l2_read=141 * 32 * 1980) == pytest.approx(1000)
    # 132 multiprocessors with 128 fused multiply-adds a clock: 66.9 Tflop/s at 1980 MHz, as the data sheet says.
    assert roofline_ns(h200, flops=66.9e12) == pytest.approx(1e9, rel=0.001)
    assert roofline_ns(h200, dram_read=4560, flops=1e9) == pytest.approx(roofline_ns(h200, flops=1e9))
    bare = replace(h200, bandwidth=Bandwidth())
    assert roofline_ns(bare, dram_read=4800, l2_read=1e12) == 1

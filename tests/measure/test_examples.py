"""The example accesses of a trace: their addresses are those that the lanes gave, their transactions those of `memlane.chip`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from memlane.chip import load
from memlane.chip.access import ideal_sectors, ideal_wavefronts, sectors, wavefronts
from memlane.emulate import Emulator
from memlane.errors import RecordError
from memlane.launch import ExampleOf, KernelCall, Layers, Observation
from memlane.measure import trace
from memlane.ptx import parse
from memlane.record import AccessExample, Trace

PTX = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry gather(.param .u64 data, .param .u64 index, .param .u64 rounds)
{
    .reg .pred %p;
    .reg .b64 %rd<9>;
    .reg .b32 %r<9>;
    .shared .align 16 .b8 tile[16384];
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [index];
    ld.param.u64 %rd3, [rounds];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 8, %rd2;
    mov.u32 %r3, %ctaid.x;
    mov.u64 %rd6, tile;
AGAIN:
    ld.global.u64 %rd4, [%rd2];
    add.u64 %rd5, %rd1, %rd4;
    ld.global.u32 %r2, [%rd5];
    add.u64 %rd7, %rd6, %rd4;
    atom.shared.add.u32 %r4, [%rd7], %r2;
    add.u64 %rd2, %rd2, 512;
    sub.u64 %rd3, %rd3, 1;
    setp.ne.u64 %p, %rd3, 0;
    @%p bra AGAIN;
    setp.lt.u32 %p, %r1, 40;
    @%p st.global.u32 [%rd1], %r4;
    ret;
}
"""
ROUNDS, WARPS = 12, 2
CHIP = load("h200")
EVERYONE = (1 << 32) - 1


@pytest.fixture(scope="module")
def index() -> npt.NDArray[np.uint64]:
    """Byte offsets by round, warp and lane: side by side in the first round, scattered over more or less in the others."""
    random = np.random.default_rng(5)
    reach = random.permutation(np.geomspace(32, 4096, ROUNDS - 1).astype(int))
    scattered = [random.integers(0, most, (WARPS, 32)) for most in reach]
    return np.stack([np.arange(WARPS * 32).reshape(WARPS, 32), *scattered]).astype(np.uint64) * np.uint64(4)


@pytest.fixture(scope="module")
def call(index: npt.NDArray[np.uint64]) -> tuple[KernelCall, tuple[object, ...]]:
    target = Emulator(CHIP)
    kernel = target.load(parse(PTX, "gather.ptx"))["gather"]
    return kernel[2, 32 * WARPS], (target.zeros(16384, "u1"), target.array(index), np.uint64(ROUNDS))


@pytest.fixture(scope="module")
def made(call: tuple[KernelCall, tuple[object, ...]]) -> Trace:
    return trace(call[0], *call[1])


def of_line(made: Trace, line: int) -> dict[bool, AccessExample]:
    return {one.worst: one for one in made.examples if made.sites[one.site].line == line}


def test_the_worst_and_the_first_have_the_addresses_that_the_lanes_gave(made: Trace, index: npt.NDArray[np.uint64]) -> None:
    for line, count in ((21, sectors), (23, wavefronts)):
        kind = "load" if line == 21 else "atomic"
        costs = np.array([[count(CHIP, list(map(int, lanes)), EVERYONE, 4, kind) for lanes in warps] for warps in index])
        found = of_line(made, line)
        assert found.keys() == {False, True}
        assert (found[True].transactions, found[True].access) == (costs.max(), kind)
        base = 0 if line == 23 else found[True].addresses[0] - int(index[found[True].execution, found[True].warp, 0])
        for one in found.values():
            lanes = index[one.execution, one.warp]
            assert np.array_equal(np.array(one.addresses, np.uint64) - np.uint64(base), lanes)
            assert one.transactions == costs[one.execution, one.warp]
            assert (one.active_mask, one.nbytes) == (EVERYONE, 4)


def test_transactions_are_those_of_the_chip_and_of_the_record(made: Trace) -> None:
    rows = made.table.to_pylist()
    for one in made.examples:
        numbers = (CHIP, one.addresses, one.active_mask, one.nbytes)
        if one.space == "shared":
            assert (one.transactions, one.ideal) == (wavefronts(*numbers, one.access), ideal_wavefronts(*numbers, one.access))
        else:
            assert (one.transactions, one.ideal) == (sectors(*numbers, one.access), ideal_sectors(*numbers))
        [row] = [row for row in rows if all(row[name] == getattr(one, name) for name in ("launch", "site", "block", "warp", "execution"))]
        assert row["wavefronts" if one.space == "shared" else "sectors"] == one.transactions
        assert row["active_mask"] == one.active_mask


def test_lanes_that_take_no_part_have_no_address(made: Trace) -> None:
    stores = of_line(made, 29)
    assert stores[True].active_mask == EVERYONE
    assert stores[True].warp == 0
    assert all(stores[True].addresses)


def observe(call: tuple[KernelCall, tuple[object, ...]], example: ExampleOf | None, rows: int | None = None) -> Observation:
    seen: list[Observation] = []
    launch = call[0].bind(*call[1])
    launch.kernel.target.launch(replace(launch, layers=Layers(accesses=True, max_accesses=rows, example=example, report=seen.append)))
    return seen[0]


def test_one_warp_and_one_execution_can_be_asked_for(call: tuple[KernelCall, tuple[object, ...]], index: npt.NDArray[np.uint64]) -> None:
    seen = observe(call, ExampleOf(block=1, warp=1, execution=7))
    assert seen.examples is not None
    [one] = [one for one in seen.examples if one["space"] == 1 and not one["worst"]]
    assert (one["block"], one["warp"], list(one["addresses"])) == (1, 1, list(index[7, 1]))
    assert {(int(one["block"]), int(one["warp"])) for one in seen.examples} == {(1, 1)}


def test_examples_are_kept_where_rows_are_not(call: tuple[KernelCall, tuple[object, ...]]) -> None:
    seen = observe(call, None, rows=3)
    assert seen.examples is not None
    assert set(seen.examples["row"]) == {-1, 0, 1, 2}
    assert len(seen.examples) == len(observe(call, None).examples)  # type: ignore[arg-type]


def test_the_record_file_keeps_them(made: Trace, tmp_path: Path) -> None:
    made.save(tmp_path / "one.parquet")
    assert Trace.load(tmp_path / "one.parquet").examples == made.examples != ()


@pytest.mark.parametrize(
    "damage", [{"site": 99}, {"addresses": (1, 2)}, {"space": "tex"}, {"active_mask": 0}, {"nbytes": 3}, {"access": "peek"}]
)
def test_damaged_examples_are_refused(made: Trace, tmp_path: Path, damage: dict[str, object]) -> None:
    replace(made, examples=(replace(made.examples[0], **damage),)).save(tmp_path / "bad.parquet")  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=r"bad\.parquet is damaged"):
        Trace.load(tmp_path / "bad.parquet")

"""Counting by instructions in the kernel, against the arithmetic of the chip and the emulator's own counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np
import pytest

from memlane import chip
from memlane.chip import AccessKind, access
from memlane.chip.copies import copy_cost
from memlane.errors import ChipError, MemlaneError, RecordError
from memlane.instrument import CountOptions, Selection, count, read_counters
from memlane.ptx import parse, print_module, verify
from memlane.record import SiteCounts
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.instrument.running import CHIP, Run, Shape

WORDS = 2048
ALL = 0xFFFFFFFF
WIDTHS = {1: ("u8", ""), 2: ("u16", ""), 4: ("b32", ""), 8: ("b64", ""), 16: ("b32", ".v4")}
OPERATIONS = [
    *((kind, nbytes) for kind in ("load", "store") for nbytes in WIDTHS),
    *((kind, nbytes) for kind in ("atomic", "compare_swap") for nbytes in (4, 8)),
    ("increment", 4),
]


def accessing(space: str, kind: str, nbytes: int) -> str:
    """A kernel whose lane i, if its place is not negative, accesses `nbytes` at that place; places are the second parameter."""
    type_, vector = WIDTHS[nbytes]
    register = "%rd6" if nbytes == 8 else "{%r4, %r5, %r6, %r7}" if nbytes == 16 else "%r4"
    base = "ld.param.u64 %rd1, [data];" if space in ("global", "global-volatile", "generic") else "mov.u64 %rd1, words;"
    if space == "local":
        base = "mov.u64 %rd1, own;"
    if space.startswith("generic-"):
        base = f"mov.u64 %rd1, {'own' if space == 'generic-local' else 'words'}; cvta.{space.removeprefix('generic-')}.u64 %rd1, %rd1;"
    named = "" if space.startswith("generic") else f".{space}"
    instruction = {
        "load": f"ld{named}{vector}.{type_} {register}, [%rd5];",
        "store": f"st{named}{vector}.{type_} [%rd5], {register};",
        "atomic": f"atom{named}.add.u{8 * nbytes} {register}, [%rd5], {register};",
        "compare_swap": f"atom{named}.cas.b{8 * nbytes} {register}, [%rd5], {register}, {register};",
        "increment": f"atom{named}.add.u32 %r3, [%rd5], 1;",
    }[kind]
    if kind == "load" and space == "global-volatile":
        instruction = f"ld.volatile.global{vector}.{type_} {register}, [%rd5];"
    return f"""
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
    .shared .align 16 .b8 words[{4 * WORDS}];
    .local .align 16 .b8 own[{4 * WORDS}];
    {base}
    ld.param.u64 %rd2, [places];
    mov.u32 %r1, %tid.x;
    mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u64 %rd6, 0;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd2, %rd3;
    ld.global.s32 %r2, [%rd4];
    setp.ge.s32 %p1, %r2, 0;
    cvt.s64.s32 %rd5, %r2;
    add.s64 %rd5, %rd1, %rd5;
    @%p1 {instruction}
    ret;
    """


_kernels: dict[tuple[str, str, int, bool], Run] = {}


def counted(space: str, kind: str, nbytes: int, places: np.ndarray[Any, Any], rules: chip.Chip = CHIP) -> list[SiteCounts]:
    """The counts of the access, if any lane made it."""
    key = (space, kind, nbytes, rules is CHIP)
    if key not in _kernels:
        body = accessing(space, kind, nbytes)
        _kernels[key] = Run(kernel(body, ".param .u64 data, .param .u64 places"), "k", 1, 32, (), rules)
    launch = _kernels[key]
    launch.arguments = (np.zeros(WORDS, "u4"), places.astype("i4"))
    return [one for one in launch.counted()[1] if one.site.op != "ld.global.s32"]


def patterns(nbytes: int) -> list[np.ndarray[Any, Any]]:
    """Places in bytes for 32 lanes; negative where a lane is to do nothing."""
    rng = np.random.default_rng(nbytes)
    lane = np.arange(32)
    wide = [lane * stride for stride in (0, 1, 2, 3, 4, 8, 32)]
    wide += [lane // 2, lane // 4, lane % 4, lane % 8, lane % 16, lane ^ 1]
    wide += [rng.integers(0, limit, 32) for limit in (4, 40, 200, 4 * WORDS // nbytes) for _ in range(3)]
    on = [np.full(32, True)] * len(wide)
    for _ in range(12):
        wide.append(rng.integers(0, rng.integers(2, 200), 32))
        on.append(rng.random(32) < rng.random())
    for pair in ((0, 31), (15, 16)):
        wide.append(lane)
        on.append(np.isin(lane, pair))
    wide += [lane, lane, np.repeat(rng.integers(0, 99, 16), 2)]
    on += [lane < 16, lane % 2 == 0, np.full(32, True)]
    return [np.where(active, place * nbytes % (4 * WORDS), -1) for place, active in zip(wide, on, strict=True)]


OTHER_BANKS = replace(CHIP.banks, banks=16, bank_bytes=8, lanes_4=16, lanes_8=8, merge="never", row_words=2)
OTHER = replace(
    CHIP,
    banks=OTHER_BANKS,
    store_banks=replace(OTHER_BANKS, lanes_8=16, merge="neighbours", extra_16=2),
    atomic_banks=replace(OTHER_BANKS, same_word="one by one"),
    coalescing=replace(CHIP.coalescing, lanes_4=16, lanes_8=8, load_bytes=128),
)
"""Rules that no chip has: the PTX follows the parameters."""

ACCESSES = pytest.mark.parametrize(
    ("kind", "nbytes", "rules"),
    [
        *(pytest.param(*operation, CHIP, id="-".join(map(str, operation))) for operation in OPERATIONS),
        *(
            pytest.param(*operation, OTHER, id=f"{operation[0]}-{operation[1]}-other")
            for operation in OPERATIONS
            if operation[1] in (4, 16)
        ),
    ],
)


@ACCESSES
def test_shared_memory_is_counted_as_the_chip_says(kind: AccessKind, nbytes: int, rules: chip.Chip) -> None:
    for places in patterns(nbytes)[:: 1 if kind == "load" and nbytes in (4, 16) else 4]:
        access_ = (rules, np.maximum(places, 0).astype("u8"), places >= 0, nbytes, kind)
        expected = (access.wavefronts(*access_), access.ideal_wavefronts(*access_))
        found = [(one.wavefronts, one.ideal_wavefronts) for one in counted("shared", kind, nbytes, places, rules)]
        assert found == ([expected] if (places >= 0).any() else []), places.tolist()


@ACCESSES
def test_global_memory_is_counted_as_the_chip_says(kind: AccessKind, nbytes: int, rules: chip.Chip) -> None:
    for places in patterns(nbytes)[:: 1 if kind == "load" and nbytes in (4, 16) else 4]:
        lanes, one = int((places >= 0).sum()), (rules, np.maximum(places, 0).astype("u8"), places >= 0, nbytes)
        expected = (1, lanes, lanes * nbytes, access.sectors(*one, kind), access.ideal_sectors(*one))
        seen = counted("global", kind, nbytes, places, rules)
        found = [(one.requests, one.lanes, one.bytes, one.sectors, one.ideal_sectors) for one in seen]
        assert found == ([expected] if lanes else []), places.tolist()


def test_a_load_past_the_first_level_moves_sectors() -> None:
    places = np.arange(32) * 256
    for space, moved in (("global", 4 * 32), ("global-volatile", 32)):
        (found,) = counted(space, "load", 4, places, OTHER)
        assert (found.sectors, found.bytes_moved) == (moved, 32 * moved)


@pytest.mark.parametrize("nbytes", WIDTHS)
@pytest.mark.parametrize("space", ["local", "generic-local"])
def test_local_memory_is_counted_as_its_copies_are_interleaved(space: str, nbytes: int) -> None:
    for places in patterns(nbytes)[::3]:
        one = (CHIP, np.maximum(places, 0).astype("u8"), places >= 0, nbytes)
        expected = (access.local_sectors(*one), access.ideal_local_sectors(CHIP, places >= 0, nbytes))
        found = [(entry.sectors, entry.ideal_sectors) for entry in counted(space, "store", nbytes, places)]
        assert found == ([expected] if (places >= 0).any() else []), places.tolist()


@pytest.mark.parametrize("space", ["global", "shared", "generic", "generic-shared"])
def test_lanes_of_an_atomic_that_meet(space: str) -> None:
    for places in patterns(4):
        distinct, most = access.distinct_addresses(np.maximum(places, 0).astype("u8"), places >= 0, 4)
        found = [(one.addresses, one.most_lanes_at_address) for one in counted(space, "atomic", 4, places)]
        assert found == ([(distinct, most)] if distinct else []), places.tolist()


def test_only_atomics_tell_of_lanes_that_meet() -> None:
    (found,) = counted("global", "load", 4, np.arange(32) * 4)
    assert (found.addresses, found.most_lanes_at_address, found.lanes_per_address) == (None, None, None)


def test_generic_addresses_are_counted_where_they_lead() -> None:
    places = np.arange(32) * 8
    (shared,) = counted("generic-shared", "load", 4, places)
    assert (shared.wavefronts, shared.ideal_wavefronts, shared.sectors, shared.ideal_sectors) == (2, 1, 0, 0)
    (device,) = counted("generic", "load", 4, places)
    assert (device.wavefronts, device.ideal_wavefronts, device.sectors, device.ideal_sectors) == (0, 0, 8, 4)
    (local,) = counted("generic-local", "load", 4, places)
    assert (local.wavefronts, local.ideal_wavefronts, local.sectors, local.ideal_sectors) == (0, 0, 32, 4)


CASES: dict[str, tuple[str, Shape, Shape, Callable[[np.random.Generator], tuple[Any, ...]]]] = {
    "naive": ("transpose", (2, 2), (32, 32), lambda rng: (np.zeros((50, 50), "f4"), rng.random((50, 50), "f4"), 50)),
    "tiled": ("transpose", (2, 2), (32, 32), lambda rng: (np.zeros((64, 64), "f4"), rng.random((64, 64), "f4"), 64)),
    "shared_atomics": ("histogram", 2, 96, lambda rng: (np.zeros(256, "u4"), rng.integers(0, 256, 700, "u1"), 700)),
    "vectors": ("copies", 2, 96, lambda rng: (np.zeros(800, "f4"), rng.random(800, "f4"), 200)),
}


@pytest.mark.parametrize("name", CASES)
def test_examples_are_counted_as_the_emulator_counts_them(name: str) -> None:
    file, grid, block, arguments = CASES[name]
    module = example(next(path for path in EXAMPLES if path.stem == file))
    symbol = next(one for one in module.kernels if name in one)
    launch = Run(module, symbol, grid, block, arguments(np.random.default_rng(5)))
    result, sites, branches = launch.counted()
    assert np.array_equal(result, launch.plain())
    seen = launch.observed()
    assert len(sites) >= 2
    for one in sites:
        own = seen[one.site.instruction]
        fields = (
            "requests",
            "lanes",
            "bytes",
            *(("wavefronts", "ideal_wavefronts") if one.site.space == "shared" else ("sectors", "ideal_sectors")),
            *(("addresses",) if one.site.is_atomic else ()),
        )
        assert {field: getattr(one, field) for field in fields} == {field: own[field] for field in fields}, one.site
        assert (one.most_lanes_at_address or 0) == own["most_lanes_at_address"]
    divergent = sorted((own["requests"], own["divergent"]) for index, own in seen.items() if index in conditional(launch))
    assert sorted((one.executions, one.divergent) for one in branches) == divergent


def conditional(launch: Run) -> list[int]:
    body = launch.module.kernels[launch.kernel].body
    assert body is not None
    return [index for index, one in enumerate(body.instructions()) if one.opcode == "bra" and one.guard is not None]


def test_without_counters_the_kernel_runs_all_the_same() -> None:
    counted("shared", "load", 4, np.arange(32) * 4)
    launch = _kernels["shared", "load", 4, True]
    quiet = Run(count(launch.module, CHIP).module, "k", 1, 32, launch.arguments)
    assert np.array_equal(quiet.plain(), launch.plain())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_counting_module_verifies_and_reads_back(path: Any) -> None:
    counted = count(example(path), CHIP)
    verify(counted.module)
    assert parse(print_module(counted.module), path.name) == counted.module


def test_an_atomic_in_the_shared_memory_of_a_neighbour_is_counted_by_its_address() -> None:
    body = ".reg .b32 %r<4>; mov.u32 %r1, 0; atom.shared::cluster.add.u32 %r2, [%r1], 1; st.shared.u32 [0], %r2; ret;"
    text = print_module(count(kernel(body), CHIP).module)
    assert text.index(".reg .b64 %ml_address;") < text.index("match.any.sync.b64 %ml_at_mine, %ml_address")
    verify(count(kernel(body), CHIP).module)


def test_lanes_that_fill_their_copy_with_zeros_load_no_sector() -> None:
    """Lane i reads i % 5 bytes of 16: the emulator counts as the kernel does, and the sectors are those of lanes that read some."""
    body = """
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 16 .b8 tile[512];
    ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; rem.u32 %r4, %r1, 5; mul.lo.u32 %r5, %r4, 0;
    cp.async.cg.shared.global [%r3], [%rd1], 16, %r4;
    cp.async.cg.shared.global [%r3], [%rd1], 16, %r5;
    cp.async.cg.shared.global [%r3], [%rd1], 16, 16;
    cp.async.wait_all; ret;"""
    launch = Run(kernel(body, ".param .u64 data"), "k", 1, 32, (np.zeros(WORDS, "u4"),))
    found = launch.counted()[1]
    some = len({lane // 2 for lane in range(32) if lane % 5})
    places, readers = 16 * np.arange(32), sum(1 << lane for lane in range(32) if lane % 5)
    costs = [copy_cost(CHIP, places, places, ALL, 16, reads, past_l1=True, whole=0) for reads in (readers, 0)]
    costs.append(copy_cost(CHIP, places, places, ALL, 16, past_l1=True))
    assert [cost.sectors for cost in costs] == [some, 0, 16]
    assert [(one.requests, one.lanes, one.sectors, one.wavefronts) for one in found] == [
        (1, 32, one.sectors, one.wavefronts) for one in costs
    ]
    seen = list(launch.observed().values())
    assert [(one["lanes"], one["sectors"], one["ideal_sectors"]) for one in seen] == [
        (one.lanes, one.sectors, one.ideal_sectors) for one in found
    ]


def copying(nbytes: int, cache: str, masked: bool) -> str:
    """A kernel whose lane i, if the mask has its bit, copies by row i of a table: its place in shared memory and in `data`, and the
    bytes that it reads."""
    return f"""
    .reg .b32 %r<8>; .reg .b64 %rd<6>; .reg .pred %p<2>; .shared .align 128 .b8 tile[16384];
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [table]; ld.param.u32 %r1, [mask];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 12; add.u64 %rd2, %rd2, %rd3;
    ld.global.u32 %r3, [%rd2]; ld.global.u32 %r4, [%rd2+4]; ld.global.u32 %r5, [%rd2+8];
    cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd1, %rd4; mov.u32 %r6, tile; add.u32 %r6, %r6, %r3;
    shr.u32 %r1, %r1, %r2; and.b32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;
    @%p1 cp.async.{cache}.shared.global [%r6], [%rd4], {nbytes}{", %r5" if masked else ""};
    cp.async.wait_all; ret;"""


def copy_places(random: np.random.Generator, nbytes: int) -> np.ndarray:
    """Where the lanes copy: side by side, in rows, exchanged in pairs, or anywhere in so many bytes."""
    lane, span = np.arange(32), int(random.choice([512, 1024, 4096, 16384]))
    places = [lane, lane * int(random.choice([2, 4, 8])), lane ^ int(random.choice([1, 2, 3, 7])), lane // 4 * 64 + lane % 4, lane + 1]
    anywhere = random.integers(0, span // nbytes, 32)
    return np.asarray([*places, anywhere, random.permutation(span // nbytes)[:32]][int(random.integers(7))]) * nbytes % 16384


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("nbytes", "cache"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
def test_asynchronous_copies_cost_what_the_chip_says(nbytes: int, cache: str, masked: bool) -> None:
    """Of random places: by the kernel that counts, on the emulator, and by the reference."""
    module = kernel(copying(nbytes, cache, masked), ".param .u64 data, .param .u64 table, .param .u32 mask")
    data = np.zeros(8 * WORDS, "u4")
    for seed in range(24):
        random = np.random.default_rng(seed)
        shared, far, full = copy_places(random, nbytes), copy_places(random, nbytes), int(random.integers(2))
        mask, reads = (int(random.integers(1, 1 << 32)) | (ALL if full else 0) for _ in range(2))
        parts = int(random.integers(1, 1 << 32)) if masked and seed % 3 == 0 else 0
        bits = np.arange(32)
        sizes = (reads >> bits & 1) * (nbytes - (parts >> bits & 1)) if masked else bits
        table = np.stack([shared, far, sizes], axis=1).astype("u4")
        launch = Run(module, "k", 1, 32, (data, table, np.uint32(mask)))
        cost = copy_cost(CHIP, far + 4096, shared, mask, nbytes, reads if masked else None, past_l1=cache == "cg", whole=~parts)
        [found] = [one for one in launch.counted()[1] if one.site.kind == "copy"]
        assert (found.sectors, found.ideal_sectors, found.wavefronts, found.ideal_wavefronts) == astuple(cost), seed
        [seen] = [one for one in launch.observed().values() if one["wavefronts"]]
        assert tuple(seen[one.name] for one in fields(cost)) == astuple(cost), seed


def test_selections_and_branches() -> None:
    module = kernel(accessing("shared", "load", 4), ".param .u64 data, .param .u64 places")
    assert count(module, CHIP, CountOptions(Selection(kernels={"other"}))).module.kernels == module.kernels
    assert print_module(count(module, CHIP, CountOptions(Selection(spaces={"shared"}), branches=False)).module).count("activemask") == 1


def test_refusals() -> None:
    module = kernel("ret;")
    with pytest.raises(MemlaneError, match=r"k.ptx is already instrumented \(it declares memlane_counts\)"):
        count(count(module, CHIP).module, CHIP)
    with pytest.raises(MemlaneError, match=r"needs instructions of sm_80, but k.ptx has .target sm_75; compile it for sm_80 or later"):
        count(kernel("ret;", head=".version 8.0\n.target sm_75\n.address_size 64"), CHIP)
    with pytest.raises(ChipError, match="groups its accesses by rules that only the emulator can count; use memlane"):
        count(module, replace(CHIP, name="old", banks=replace(CHIP.banks, broadcast="one word")))
    with pytest.raises(RecordError, match="the counters of this module have 0 bytes, got 8"):
        read_counters(count(module, CHIP), np.zeros(8, np.uint8), "k")


@pytest.mark.parametrize("space", ["shared", "local"])
def test_addresses_that_wrap_are_counted_as_those_they_stand_for(space: str) -> None:
    """In every second lane a register of 64 bits holds 2^32 more, and a base of 32 bits lies below 0."""
    for base, width, access_ in (("%rd1", 64, f"ld.{space}.u32 %r4, [%rd5];"), ("%r5", 32, f"ld.{space}.u32 %r4, [%r5+4096];")):
        narrow = "cvt.u32.u64 %r5, %rd1; sub.u32 %r5, %r5, 4096; mad.lo.u32 %r5, %r1, 64, %r5;"
        wide = "and.b32 %r2, %r1, 1; cvt.u64.u32 %rd5, %r2; shl.b64 %rd5, %rd5, 32; add.u64 %rd5, %rd5, %rd1;"
        body = f"""
            .reg .b32 %r<8>; .reg .b64 %rd<8>;
            .shared .align 128 .b8 words[{4 * WORDS}]; .local .align 16 .b8 own[{4 * WORDS}];
            mov.u64 %rd1, {"words" if space == "shared" else "own"}; mov.u32 %r1, %tid.x;
            {wide if width == 64 else narrow} {access_} ret;"""
        launch = Run(kernel(body, ".param .u64 data"), "k", 1, 32, (np.zeros(1, "u4"),))
        (found,) = launch.counted()[1]
        places = (np.zeros(32) if width == 64 else np.arange(32) * 64).astype("u8")
        if space == "shared":
            assert found.wavefronts == access.wavefronts(CHIP, places, np.full(32, True), 4, "load"), base
        else:
            (own,) = launch.observed().values()
            assert found.sectors == own["sectors"], base

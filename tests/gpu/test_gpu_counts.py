"""Counts on both roads: a kernel that counts on the device, and the plain one on the emulator as the same chip."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlane.chip import access
from memlane.driver import Device
from memlane.launch import Target
from memlane.measure import count
from memlane.ptx import parse
from memlane.record import Counts, SiteCounts
from tests.gpu.test_gpu_examples import CASES, Case, compiled
from tests.measure.test_counting import KERNEL

pytestmark = pytest.mark.gpu

_NUMBERS = [one.name for one in fields(SiteCounts) if one.name != "site" and not one.name.startswith(("exactness", "assembled"))]


def counted(case: Case, target: Target) -> Counts:
    values = case.arguments(np.random.default_rng(11))
    bound = [target.array(value) if isinstance(value, np.ndarray) else value for value in values]
    kernel = target.load(compiled(case.file))[case.kernel]
    return count(kernel[case.grid, case.block, None, case.shared_bytes], *bound)


def numbers(counts: Counts) -> dict[int, dict[str, Any]]:
    return {one.site.instruction: {name: getattr(one, name) for name in _NUMBERS} for one in counts.sites}


def branches(counts: Counts) -> list[tuple[int, int, int]]:
    return sorted((one.line, one.executions, one.divergent) for one in counts.branches)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{Path(case.file).stem}-{case.kernel}")
def test_the_device_counts_what_the_emulator_counts(case: Case, gpu: Device, emulator: Target) -> None:
    device, emulated = counted(case, gpu), counted(case, emulator)
    assert device.how == "counted on the device"
    assert numbers(device) == numbers(emulated)
    assert branches(device) == branches(emulated)
    assert device.sites


def test_local_memory_and_atomics_are_counted_alike(gpu: Device, emulator: Target) -> None:
    device, emulated = (
        count(target.load(parse(KERNEL, "mixed.ptx"))["mixed"][2, 32], target.zeros(2048, "u4")) for target in (gpu, emulator)
    )
    assert numbers(device) == numbers(emulated)
    assert device.total().local_requests == 2


SCATTER = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry scatter(.param .u64 places)
{{
    .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .shared .align 16 .b8 words[16384];
    ld.param.u64 %rd1, [places];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd1, %rd2;
    ld.global.u32 %r2, [%rd2];
    mov.u64 %rd3, words;
    cvt.u64.u32 %rd4, %r2;
    add.u64 %rd4, %rd3, %rd4;
    mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u64 %rd5, 0;
    {instruction}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("instruction", "kind", "nbytes"),
    [
        ("ld.volatile.shared.u64 %rd5, [%rd4];", "load", 8),
        ("ld.volatile.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%rd4];", "load", 16),
        ("st.volatile.shared.u64 [%rd4], %rd5;", "store", 8),
        ("st.volatile.shared.v4.u32 [%rd4], {%r3, %r4, %r5, %r6};", "store", 16),
        ("atom.shared.exch.b64 %rd5, [%rd4], %rd5;", "atomic", 8),
        ("atom.shared.cas.b32 %r3, [%rd4], %r4, %r5;", "compare_swap", 4),
        ("red.shared.add.u32 [%rd4], 1;", "increment", 4),
    ],
)
def test_shared_memory_is_counted_by_the_rules_of_the_chip(instruction: str, kind: access.AccessKind, nbytes: int, gpu: Device) -> None:
    kernel = gpu.load(parse(SCATTER.format(instruction=instruction), "scatter.ptx"))["scatter"]
    rng, lane = np.random.default_rng(3), np.arange(32)
    shapes = [lane, lane * 2, lane * 32, lane // 2, lane // 4 * 2 + lane % 2, lane % 8, np.where(lane == 31, 40, lane // 2)]
    shapes += [rng.integers(0, limit, 32) for limit in (4, 40, 1000)]
    for shape in shapes:
        places = (shape * nbytes % 16384).astype(np.uint32)
        (found,) = [one for one in count(kernel[1, 32], gpu.array(places)).sites if one.site.space == "shared"]
        expected = [fn(gpu.chip, places.astype("u8"), 0xFFFFFFFF, nbytes, kind) for fn in (access.wavefronts, access.ideal_wavefronts)]
        assert [found.wavefronts, found.ideal_wavefronts] == expected, shape.tolist()

"""Arrays laid out otherwise on the device: the same bits as on the emulator and by NumPy, and the wavefronts of the layout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.cli.programs import run_script
from memlane.driver import Device
from memlane.errors import RelayoutError
from memlane.launch import Target
from memlane.layout import Layout, count, pattern
from memlane.optimize import fix
from memlane.ptx import Module
from tests.emulate.test_programs import CASES as PROGRAM_CASES
from tests.rewrite.examples import EXAMPLES_WITH_ARRAYS, EachArray, some_layouts
from tests.rewrite.kernels import CASES, SOURCE, layouts, run
from tests.rewrite.programs import PROGRAMS, agrees

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def module(name: str) -> Module:
    """That kernel alone: whatever else is in a module is assembled anew for each layout."""
    (source,) = [f'extern "C"{text}' for text in SOURCE.split('extern "C"') if f"void {name}(" in text]
    return ml.cuda(source, name="kernels.cu")


@pytest.mark.parametrize("name", CASES)
def test_every_layout_gives_the_same_bits(gpu: Device, name: str) -> None:
    case, original = CASES[name], gpu.load(module(name))[name]
    tried = 0
    for layout in layouts(*case.shape):
        try:
            changed = ml.relayout(original, layout, shared=case.shared or None, element_bytes=4)
        except RelayoutError:
            continue
        found, expected = run(changed, name)
        assert np.array_equal(found, expected), layout
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("layout", layouts(32, 32)[:8], ids=str)
def test_wavefronts_are_those_of_the_layout(gpu: Device, emulator: Target, layout: Layout) -> None:
    for target in (gpu, emulator):
        changed = ml.relayout(target.load(module("turn"))["turn"], layout)
        counts = ml.count(changed[1, (32, 32)], target.zeros((32, 32)), target.array(np.zeros((32, 32), np.float32)))
        found = {site.site.op: site.wavefronts for site in counts.sites if site.site.space == "shared"}
        assert found["ld.shared.f32"] == round(32 * count(layout, pattern("column", 32, 32), target.chip, 4).mean)
        assert found["st.shared.f32"] == round(32 * count(layout, pattern("row", 32, 32), target.chip, 4, "store").mean)


@pytest.mark.parametrize(("name", "size", "columns"), EXAMPLES_WITH_ARRAYS)
def test_examples_leave_the_same_bytes(gpu: Device, name: str, size: int, columns: int) -> None:
    observer = EachArray(columns, some_layouts)
    run_script(EXAMPLES / f"{name}.py", [str(size)], gpu.name, observer)
    assert observer.tried >= 4


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_their_arrays_in_a_random_order(gpu: Device, name: str) -> None:
    assert agrees(PROGRAM_CASES[name](), name, gpu)


def test_fix_finds_the_quick_transpose(gpu: Device) -> None:
    n = 2048
    tiled = gpu.load(ml.cuda(EXAMPLES / "transpose.cu"))["tiled"]
    a = gpu.array(np.random.default_rng(1).random((n, n), np.float32))
    out = gpu.zeros((n, n))
    (found,) = fix(tiled[(n // 32, n // 32), (32, 32)], out, a, n)
    assert not out.numpy().any()
    assert all(one.same for one in found.tried)
    assert found.best is not None
    assert found.best.wavefronts == found.original.ideal_wavefronts

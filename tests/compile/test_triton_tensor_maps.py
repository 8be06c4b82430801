"""Triton kernels on arrays in blocks (`TensorDescriptor`), compiled without a GPU and run on the emulator."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from memlane.compile import triton
from memlane.errors import BadLaunch, CompileError
from memlane.launch import Target
from memlane.measure import trace
from memlane.ptx import Module, SpreadTensorMap
from tests.emulate.running import emulator

tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.triton


def added(a, b, c, height: tl.constexpr, width: tl.constexpr):
    y = tl.program_id(0) * height
    x = tl.program_id(1) * width
    total = a.load([y, x]).to(tl.float32) + b.load([y, x])
    c.store([y, x], total)


@cache
def compiled() -> Module:
    signature = "tensordesc<fp16[16, 64]>, tensordesc<fp32[16,64]>, tensordesc<fp32[16, 64]>"
    return triton(added, signature, {"height": 16, "width": 64}, num_warps=1)


@pytest.fixture(scope="module")
def target() -> Target:
    return emulator()


def test_arrays_are_passed_as_tensor_maps_and_tracing_changes_nothing(target: Target) -> None:
    """The last blocks reach beyond the arrays: what they load there is zero, and what they would store there is left out."""
    random = np.random.default_rng(1)
    a, b = random.integers(-5, 5, (50, 72)).astype(np.float16), random.integers(-5, 5, (50, 72)).astype(np.float32)
    kernel = target.load(compiled())["added"]
    plain, traced = target.zeros(b.shape, np.float32), target.zeros(b.shape, np.float32)
    kernel[(4, 2),](target.array(a), target.array(b), plain)
    assert np.array_equal(plain.numpy(), a.astype(np.float32) + b)
    made = trace(kernel[(4, 2),], target.array(a), target.array(b), traced)
    assert np.array_equal(traced.numpy(), plain.numpy())
    assert {site.kind for site in made.sites} >= {"copy", "wait"}
    assert all(site.reason.startswith("a copy completes at its wait: line") for site in made.sites if site.kind == "copy")


def test_boxes_and_swizzles_are_those_that_triton_chose(target: Target) -> None:
    kernel = target.load(compiled())["added"]
    forms = kernel.function.convention.arguments
    assert forms == (SpreadTensorMap("f16", (16, 64), "128B"), *[SpreadTensorMap("f32", (16, 32), "128B")] * 2)
    a, b, c = target.zeros((64, 32), np.float16), target.zeros((64, 32), np.float32), target.zeros((64, 32), np.float32)
    call = kernel[(1, 1),]
    launch = call.bind(target.tensor_map(a, (16, 64), swizzle="128B"), b, c)
    assert [argument.text for argument in launch.arguments[1:5]] == ["shape 64", "shape 32", "strides 32", "strides 1"]
    with pytest.raises(
        BadLaunch, match=r"swizzle none, but the kernel was compiled for f16\[:, :\] in boxes of 16 x 64 and swizzle 128B: create"
    ):
        call.bind(target.tensor_map(a, (16, 64)), b, c)
    with pytest.raises(BadLaunch, match=r"argument 1 of added is the number 3, but the kernel was compiled for an array, f16"):
        call.bind(3, b, c)
    with pytest.raises(BadLaunch, match=r"an array of float32 has elements of 4 bytes, but f16 has 2"):
        call.bind(c, b, c)
    with pytest.raises(BadLaunch, match=r"takes 3 arguments \(f16\[:, :\] in boxes of 16 x 64, f32"):
        call.bind(a)


def test_a_type_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(CompileError, match=r"and arrays in blocks such as 'tensordesc<fp16\[64, 32\]>'"):
        triton(added, "tensordesc<fp12[64, 32]>, *fp16, *fp32", {"height": 16, "width": 64})

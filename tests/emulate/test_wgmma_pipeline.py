"""Tensor maps, barriers in shared memory and products of a warpgroup together, as libraries for Hopper use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from memlane.compile import assemble, cuda
from memlane.instrument import trace
from memlane.launch import Target
from memlane.ptx import Module
from tests.emulate.checking import check
from tests.emulate.running import emulator

STAGES, TILE = 2, 64


@cache
def module() -> Module:
    path = Path(__file__).parent / "pipeline.cu"
    return cuda(path, name=path.name, arch="sm_90a")


def check_product(target: Target, measured: Callable[..., object]) -> None:
    """Several tiles in both directions, and more in depth than there are stages."""
    rng = np.random.default_rng(9)
    a, b = rng.integers(-4, 5, (128, 320)).astype(np.float16), rng.integers(-4, 5, (64, 320)).astype(np.float16)
    c = target.zeros((128, 64), np.float32)
    maps = [target.tensor_map(target.array(matrix), (TILE, TILE), swizzle="128B") for matrix in (a, b)]
    call = target.load(module())["pipeline"][(1, 2), 256, target.default_stream, 2 * STAGES * TILE * TILE * 2]
    measured(call, *maps, c, np.int32(64), np.int32(320))
    assert np.array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)


def test_a_pipeline_computes_the_product_and_keeps_the_rules() -> None:
    reports: list[object] = []
    check_product(emulator(), lambda *launch: reports.extend(check(*launch)))
    assert reports == []


def test_its_probes_let_products_follow_each_other() -> None:
    for one in (module(), trace(module()).module):
        assert "wgmma" not in assemble(one, arch="sm_90a").log

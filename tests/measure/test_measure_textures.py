"""Measurements leave surfaces as they leave arrays."""

from __future__ import annotations

import numpy as np

from memlane.measure.memory import Snapshot
from memlane.ptx import parse
from tests.emulate.running import emulator, program


def test_what_a_launch_did_to_a_surface_is_put_back() -> None:
    target = emulator()
    body = "ld.param.u64 %rd1, [image]; mov.u32 %r1, 0; sured.b.add.1d.u32.trap [%rd1, {%r1}], 1; ret;"
    module = target.load(parse(program(body, params=".param .u64 out, .param .u64 image"), "test.ptx"))
    surface = target.surface(np.array([10, 20], np.int32))
    launch = module["k"][1, 32].bind(target.zeros(1), surface)
    before = Snapshot(launch)
    target.launch(launch)
    assert surface.numpy().tolist() == [42, 20]
    before.restore()
    assert surface.numpy().tolist() == [10, 20]

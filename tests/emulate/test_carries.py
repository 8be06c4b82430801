"""The carry flag is kept for each thread, over branches, barriers and accesses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from memlane.launch import Layers
from tests.emulate.carries import FIELDS, answers, inputs, module, run
from tests.emulate.running import emulator


def assert_right(found: npt.NDArray[np.uint32]) -> None:
    wanted = answers()
    for place, name in enumerate(FIELDS):
        assert found[:, place].tolist() == wanted[:, place].tolist(), name


def test_each_thread_has_a_flag_that_only_instructions_with_cc_write() -> None:
    assert_right(run(emulator()))
    assert len({tuple(row) for row in answers()[:, :3].tolist()}) > 4


@pytest.mark.parametrize("layers", [Layers(clock=True), Layers(seed=3)], ids=["clock", "seed"])
def test_the_flag_is_kept_where_lanes_run_in_another_order(layers: Layers) -> None:
    target = emulator()
    out = target.zeros((64, 8), np.uint32)
    launch = target.load(module())["k"][1, 64].bind(out, target.array(inputs()))
    target.launch(replace(launch, layers=layers))
    assert_right(out.numpy())

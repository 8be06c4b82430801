"""What runs on several devices have to give: the bits of a run on one."""

from collections.abc import Iterable

import numpy as np
import pytest

from memlane.plan import races
from memlane.timeloop.run import Run
from memlane.timeloop.shared import SharedRun


def assert_bits_of_one_device(many: SharedRun, one: Run, counts: Iterable[int], *, planned: int = 0) -> None:
    """Make `counts` steps with both runs, one number after another; all fields but spare memory and all reductions have to be equal.

    Sums are added device by device, so they may be off by rounding unless they are exact. `planned` is a number of steps whose plan must
    have no race.
    """
    spare = {cycle[0] for cycle in one.problem.swap}
    fields = [name for name in one.problem.fields if name not in spare]
    for steps in counts:
        one.steps(steps)
        many.steps(steps)
        for name in fields:
            np.testing.assert_array_equal(many[name].gather(), one[name].gather(), err_msg=f"{name} after {one.step} steps of {many}")
        assert many.reductions.keys() == one.reductions.keys()
        for name, kind in one.problem.reductions.items():
            is_rounded = kind == "sum" and not one.problem.exact_sums
            assert many.reductions[name] == (pytest.approx(one.reductions[name], rel=1e-12) if is_rounded else one.reductions[name])
    if planned:
        assert races(many.plan(planned)) == []

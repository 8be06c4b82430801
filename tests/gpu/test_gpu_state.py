"""State between instructions, and addresses that wrap: what a GPU leaves, against plain integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from memlane.driver import Device
from memlane.launch import Target
from tests.emulate import carries, narrow_addresses

pytestmark = pytest.mark.gpu


Words = npt.NDArray[np.uint32]


@pytest.mark.parametrize(
    ("run", "wanted", "names"),
    [
        pytest.param(carries.run, carries.answers(), carries.FIELDS, id="carries"),
        pytest.param(narrow_addresses.run, narrow_addresses.answers(), narrow_addresses.FIELDS, id="addresses"),
    ],
)
def test_the_device_gives_what_plain_integers_say(gpu: Device, run: Callable[[Target], Words], wanted: Words, names: Sequence[str]) -> None:
    found = run(gpu)
    assert [name for place, name in enumerate(names) if not np.array_equal(found[:, place], wanted[:, place])] == []

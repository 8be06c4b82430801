"""Arrays on a target: shape, type, and copies there and back."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadLaunch
from memlane.launch import Launch, observing
from memlane.ptx import parse
from tests.launch.fake_target import PTX, FakeTarget


@pytest.mark.parametrize("host", [np.arange(6, dtype="i2").reshape(2, 3), np.array(2.5), np.zeros((0, 4)), np.eye(3)[:, ::2], np.eye(3).T])
def test_there_and_back(target: FakeTarget, host: np.ndarray) -> None:
    array = target.array(host)
    assert (array.shape, array.dtype, array.size, array.nbytes) == (host.shape, host.dtype, host.size, host.nbytes)
    assert array.address % 256 == 0
    if host.size:
        assert np.array_equal(array.numpy(), host)
        assert np.array_equal(np.asarray(array), host)


def test_numpy_sees_no_array_of_a_target_without_a_copy(target: FakeTarget) -> None:
    with pytest.raises(ValueError, match="NumPy cannot use an array of a target without a copy; leave out copy=False"):
        np.asarray(target.array([1.0, 2.0]), copy=False)


def test_empty_and_zeros(target: FakeTarget) -> None:
    assert target.empty(5).shape == (5,)
    assert target.empty(5).dtype == np.float32
    assert target.empty((2, 3), "u1").nbytes == 6
    assert not target.zeros((2, 3), np.int64).numpy().any()
    assert len(target.zeros((2, 3))) == 2


def test_copy_from_converts_as_numpy_does(target: FakeTarget) -> None:
    array = target.zeros(3, "f4")
    array.copy_from([1, 2, 3])
    assert array.numpy().tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="same_kind"):
        array.copy_from(np.array([1j, 2, 3]))


def test_refusals(target: FakeTarget) -> None:
    with pytest.raises(BadLaunch, match=r"^cannot copy an array of shape \(2,\) into one of shape \(3,\)$"):
        target.zeros(3).copy_from([1, 2])
    with pytest.raises(BadLaunch, match=r"^an array of dtype object contains Python objects and cannot be copied to fake$"):
        target.array(np.array([None]))
    with pytest.raises(BadLaunch, match=r"^an array cannot have the shape \(2, -1\)$"):
        target.empty((2, -1))
    with pytest.raises(TypeError, match="array without dimensions"):
        len(target.array(1.0))


def test_the_one_element_of_an_array(target: FakeTarget) -> None:
    assert target.array([7]).item() == 7
    assert target.array(np.float32(2.5)).item() == 2.5
    with pytest.raises(BadLaunch, match=r"item\(\) is for arrays of one element; this one has the shape \(2,\)"):
        target.array([1, 2]).item()


class Tensor:
    """An array of another library."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.shape = f"other.{dtype}", (2, 3)


def test_an_array_of_another_library_is_adopted_where_it_lies(target: FakeTarget) -> None:
    tensor = Tensor("float32")
    target.foreign[id(tensor)] = (0x5004, 24, "f4[2, 3]")
    adopted = target.adopt(tensor)
    assert (adopted.address, adopted.shape, adopted.dtype, adopted.owner) == (0x5004, (2, 3), np.float32, tensor)


def test_what_cannot_be_adopted_is_told(target: FakeTarget) -> None:
    with pytest.raises(BadLaunch, match="a list has no memory on fake: copy it there"):
        target.adopt([1, 2])
    tensor = Tensor("bfloat16")
    target.foreign[id(tensor)] = (0x5000, 12, "bfloat16[2, 3]")
    with pytest.raises(BadLaunch, match=r"NumPy has no type for the elements \(bfloat16\)"):
        target.adopt(tensor)


def test_a_prepared_launch_is_one_that_observers_see(target: FakeTarget) -> None:
    launch = target.load(parse(PTX))["plain"][1, 32].bind()
    seen: list[Launch] = []

    class Watch:
        def launching(self, launch: Launch) -> Launch:
            seen.append(launch)
            return launch

    prepared = target.prepared(launch)
    prepared()
    with observing(Watch()):
        prepared()
    assert seen == [launch]
    assert target.launches == [launch, launch]

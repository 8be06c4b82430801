"""`--arg`, `--grid` and `--block`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memlane.cli.specs import parse_argument, parse_extent
from memlane.errors import CommandError


def test_array_is_zeros_unless_told_otherwise() -> None:
    host = parse_argument("out:f4[4,3]").host
    assert host.dtype == np.float32
    assert np.array_equal(host, np.zeros((4, 3)))


def test_arange_counts_in_row_major_order() -> None:
    assert np.array_equal(parse_argument("i8[2,3]=arange").host, np.arange(6).reshape(2, 3))


def test_random_is_reproducible_by_its_seed() -> None:
    first, again, other = (parse_argument(f"x:f4[100]=random:{seed}").host for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert 0 <= first.min() < first.max() < 1


def test_random_integers_fit_the_type() -> None:
    host = parse_argument("i1[1000]=random:1").host
    assert host.dtype == np.int8
    assert 0 <= host.min() < host.max() <= 127


def test_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.arange(5, dtype=np.int32))
    assert np.array_equal(parse_argument(f"x:i4[5]={path}").host, np.arange(5))
    assert np.array_equal(parse_argument(f"x:i4[]={path}").host, np.arange(5))


def test_number_keeps_its_type() -> None:
    value = parse_argument("1024:i4").host
    assert isinstance(value, np.int32)
    assert value == 1024
    assert parse_argument("-0.5:f8").host == -0.5
    assert parse_argument("0x10:u8").host == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1024", r"--arg 1024: write \[NAME:\]DTYPE\[SHAPE\]"),
        ("x:q9[4]", "q9 is no number type"),
        ("x:f4[4]=ones", "fill with zeros, arange, random:SEED or a .npy file, not 'ones'"),
        ("300:i1", "300 is no int8"),
        ("x:f4[4]=missing.npy", "cannot read missing.npy"),
    ],
)
def test_wrong_argument_is_told_what_to_write(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        parse_argument(text)


def test_file_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.zeros((2, 2)))
    with pytest.raises(CommandError, match=r"holds f8\[2, 2\]"):
        parse_argument(f"x:f4[2,2]={path}")


def test_extents() -> None:
    assert parse_extent("--grid", "32,16") == (32, 16)
    with pytest.raises(CommandError, match=r"--grid 'a,2': write X, X,Y or X,Y,Z"):
        parse_extent("--grid", "a,2")
    with pytest.raises(CommandError, match="--block is missing"):
        parse_extent("--block", "")

"""Series of states: what HDF5 and Zarr read is what the run had, and what cannot be written is said where the run is."""

import sys

import numpy as np
import pytest

import memlane as ml
from memlane.errors import MissingDependency, RecordError, StencilError
from tests.stencils.test_shared import SWAP, SWAP3, heat, lopsided, prepared

GRID = ml.Grid((24, 20), boundary="periodic")


def read(path):
    """The arrays of a file by its library."""
    if path.suffix == ".zarr":
        group = pytest.importorskip("zarr").open_group(str(path), mode="r")
        return {name: group[name][:] for name in group.array_keys()}
    with pytest.importorskip("h5py").File(path) as file:
        return {name: file[name][:] for name in file}


@pytest.mark.parametrize("suffix", ["h5", "zarr"])
@pytest.mark.parametrize("devices", [1, 2])
def test_states_are_those_of_the_run(suffix, devices, tmp_path):
    pytest.importorskip("h5py" if suffix == "h5" else "zarr")
    run, seen = prepared(lopsided, GRID, devices, 1, swap=SWAP3, r=0.1), []
    path = tmp_path / f"states.{suffix}"
    with run.series(path) as series:
        series(run)
        run.steps(6, every=2, call=lambda run: (series(run), seen.append(run["u"].gather())))
    found = read(path)
    assert set(found) == {"step", "u", "old"}
    assert found["step"].tolist() == [0, 2, 4, 6]
    assert np.array_equal(found["u"][1:], seen)
    assert found["u"].dtype == np.float32
    with pytest.raises(RecordError, match=rf"states\.{suffix} exists already: give the series another name, or remove it"):
        run.series(path, "u")


@pytest.mark.parametrize("suffix", ["h5", "zarr"])
def test_what_cannot_be_written_is_raised_where_the_run_is(suffix, tmp_path):
    pytest.importorskip("h5py" if suffix == "h5" else "zarr")
    run = prepared(heat, GRID, swap=SWAP, r=0.1)
    series = run.series(tmp_path / f"states.{suffix}", "u")
    series._file.flush = full
    with pytest.raises(RecordError, match=r"a state cannot be written to .*: disk is full"), series:
        run.steps(8, every=1, call=series)
    assert 0 < run.step < 8
    series = run.series(tmp_path / f"more.{suffix}", "u")
    series._file.flush = full
    with pytest.raises(ZeroDivisionError), series:
        run.steps(1, every=1, call=lambda run: (series(run), 1 // 0))


def full():
    raise OSError("disk is full")


def test_a_series_in_a_folder_that_is_not_there(tmp_path):
    pytest.importorskip("h5py")
    run = prepared(heat, GRID, swap=SWAP, r=0.1)
    with pytest.raises(RecordError, match=r"the series .*none/states\.h5 cannot be created: .*No such file or directory"):
        run.series(tmp_path / "none" / "states.h5")


def test_what_is_no_series(tmp_path, monkeypatch):
    run = prepared(heat, GRID, swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"goes to a file of HDF5 \(\.h5\) or a directory of Zarr \(\.zarr\), not to .*states\.npz"):
        run.series(tmp_path / "states.npz")
    with pytest.raises(StencilError, match=r"no field 'v'; the run has new, u"):
        run.series(tmp_path / "states.h5", "v")
    for module, suffix, extra in (("h5py", "h5", "hdf5"), ("zarr", "zarr", "zarr")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingDependency, match=rf"needs packages that are not installed; install them with: .*memlane\[{extra}\]"):
            run.series(tmp_path / f"states.{suffix}")

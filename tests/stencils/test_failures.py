"""What goes wrong in a run on several devices, and what is left then."""

import gc
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import memlane as ml
from memlane.errors import DeviceError, RankError, RecordError, StencilError
from memlane.timeloop import distributed, sharing, snapshots
from tests.stencils.test_shared import SWAP, heat, prepared, values

ROOT = Path(__file__).parents[2]
GRID = ml.Grid((40, 32), boundary="periodic")


def alone(steps):
    return prepared(heat, GRID, swap=SWAP, r=0.1).steps(steps)["u"].gather()


@pytest.mark.parametrize("transport", ["peer", "host"])
def test_devices_of_different_kinds_have_slabs_by_their_speed(transport):
    targets = [ml.target("emulator:h200"), ml.target("emulator:h100:1")]
    where = heat.on(GRID, exchange_every=2, transport=transport)
    run = where.prepare(u=values("u", GRID.shape), r=0.1, swap=SWAP, targets=targets)
    rates = [target.chip.copy_gb_per_s or target.chip.dram_gb_per_s for target in targets]
    thick = round(40 * rates[0] / sum(rates))
    assert [subdomain.planes for subdomain in run.decomposition.subdomains] == [thick, 40 - thick]
    assert thick > 20
    assert np.array_equal(run.steps(5)["u"].gather(), alone(5))


def test_a_device_that_is_much_slower_is_said_to_have_too_few_planes():
    targets = [ml.target("emulator:h200"), ml.target("emulator:m2050")]
    with pytest.raises(
        StencilError, match=r"device 1 has 1 of the 40 planes, and its neighbours would need 2 of them .* use fewer devices"
    ):
        heat.on(GRID, exchange_every=2).prepare(u=values("u", GRID.shape), r=0.1, swap=SWAP, targets=targets)


def test_emulated_devices_and_gpus_do_not_share_a_grid():
    targets = [SimpleNamespace(name="cuda:0", modelled=False), SimpleNamespace(name="emulator:h200", modelled=True)]
    with pytest.raises(
        StencilError, match=r"emulated devices and GPUs cannot share a grid, and cuda:0, emulator:h200 were given: pass devices of one kind"
    ):
        sharing.check_targets(targets)


def test_without_peer_access_planes_go_through_the_host_or_it_is_an_error(monkeypatch):
    targets = ml.devices("emulator:h200", 2)
    for target in targets:
        monkeypatch.setattr(target, "enable_peer", refuse)
    run = heat.on(GRID, exchange_every=2).prepare(u=values("u", GRID.shape), r=0.1, swap=SWAP, targets=targets)
    assert "by copies through pinned memory of the host, because cuda:0 and cuda:1 have no peer access" in repr(run)
    assert np.array_equal(run.steps(3)["u"].gather(), alone(3))
    for transport in ("peer", "flags", "persistent"):
        with pytest.raises(
            StencilError,
            match=r"devices cannot .* each other.*: cuda:0 and cuda:1 have no peer access; leave out transport, or pass transport='host'",
        ):
            heat.on(GRID, exchange_every=2, transport=transport).prepare(u=values("u", GRID.shape), r=0.1, swap=SWAP, targets=targets)


def refuse(_):
    raise DeviceError("cuda:0 and cuda:1 have no peer access")


@pytest.mark.parametrize("transport", ["auto", "flags", "persistent"])
def test_control_c_leaves_the_last_complete_step_of_all_devices(tmp_path, transport):
    """It is pressed in the middle of a turn; what is left can be gathered, saved, and gone on from with the same bits."""
    run = prepared(heat, GRID, 3, 4, transport, swap=SWAP, r=0.1)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 6, whose fields can be read"):
        run.steps(100, every=6, call=lambda _: signal.raise_signal(signal.SIGINT))
    assert np.array_equal(run["u"].gather(), alone(6))
    run.save(tmp_path / "state.npz")
    again = prepared(heat, GRID, 2, 1, transport, swap=SWAP, r=0.3)
    again.restore(tmp_path / "state.npz")
    assert np.array_equal(again.steps(5)["u"].gather(), alone(11))
    assert np.array_equal(run.steps(5)["u"].gather(), alone(11))


KILLED = """
import os, signal, sys
import numpy as np
import memlane as ml
from memlane.timeloop import snapshots
from tests.stencils.test_shared import SWAP, heat, prepared
from tests.stencils.test_failures import GRID

run = prepared(heat, GRID, 2, 2, swap=SWAP, r=0.1)
run.steps(2).save(sys.argv[1])
run.steps(2)
snapshots.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # all is written, and nothing has been moved to its place
run.save(sys.argv[1])
"""


def test_a_kill_while_a_snapshot_is_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "state.npz"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = [one for one in tmp_path.iterdir() if one != path]
    assert left.name.startswith("state.npz.")  # says what it was to become
    run = prepared(heat, GRID, 2, 1, swap=SWAP, r=0.3)
    run.restore(path)
    assert run.step == 2
    assert np.array_equal(run.steps(3)["u"].gather(), alone(5))
    run.save(path)
    left.write_bytes(left.read_bytes()[:200])
    with pytest.raises(RecordError, match=r"state\.npz\.\w+\.partial is not a snapshot of a stencil"):
        run.restore(left)


def test_a_snapshot_of_another_grid_changes_nothing_on_any_device(tmp_path):
    prepared(heat, ml.Grid((24, 32)), 2, 1, swap=SWAP, r=0.1).steps(2).save(tmp_path / "state.npz")
    run = prepared(heat, GRID, 3, 2, swap=SWAP, r=0.1).steps(3)
    said = r"state\.npz was written by another stencil or grid: it has new f4\[24, 32\], u f4\[24, 32\], and this one new f4\[40, 32\]"
    with pytest.raises(StencilError, match=said):
        run.restore(tmp_path / "state.npz")
    assert run.step == 3
    assert np.array_equal(run.steps(4)["u"].gather(), alone(7))


@pytest.mark.parametrize(
    ("is_last", "said"),
    [
        (lambda _, dtype: dtype == "f4", "no memory left for 'u' on emulator:h200:1: it needs 2.75 KiB, and .* use a smaller grid"),
        (lambda shape, dtype: dtype == "u4" and np.size(shape) == 2, "no memory left for 'signals' on emulator:h200:1: it needs"),
        (
            lambda shape, dtype: dtype == "u4" and np.size(shape) == 1,
            "not enough memory on emulator:h200:1 for buffer '.*' of 128 bytes: full",
        ),
    ],
)
def test_memory_that_ends_on_the_second_device_is_said_and_given_back(monkeypatch, is_last, said):
    """For the fields, or for what kernels that stay signal each other with."""
    targets = ml.devices("emulator:h200", 2)
    gc.collect()
    free, zeros = targets[0].free_bytes(), targets[1].zeros

    def full(shape, dtype="f4"):
        if is_last(shape, dtype):
            raise MemoryError("full")
        return zeros(shape, dtype)

    monkeypatch.setattr(targets[1], "zeros", full)
    with pytest.raises(DeviceError, match=said):
        heat.on(GRID, transport="persistent").prepare(u=values("u", GRID.shape), r=0.1, swap=SWAP, targets=targets).steps(4)
    gc.collect()
    assert targets[0].free_bytes() == free


def test_ranks_with_emulated_devices_and_gpus_say_what_to_pass():
    alike = {"wanted": {"grid": "g"}, "rate": 1.0, "capability": (9, 0), "architecture": "sm_90"}
    about = [distributed._About(target=name, modelled="emulator" in name, **alike) for name in ("cuda:0", "emulator:h200")]
    said = (
        "emulated devices and GPUs cannot share a grid, and rank 0 has cuda:0, and rank 1 emulator:h200: "
        "pass targets of one kind on all ranks"
    )
    with pytest.raises(RankError, match=f"^{said}$"):
        distributed._check_same(about)


def test_a_snapshot_of_another_version_names_both(tmp_path, monkeypatch):
    run = prepared(heat, GRID, 2, 1, swap=SWAP, r=0.3)
    monkeypatch.setattr(snapshots, "_VERSION", 7)
    run.save(tmp_path / "state.npz")
    monkeypatch.undo()
    with pytest.raises(
        RecordError, match=r"is a snapshot of version 7; this memlane reads version 1: read it with the memlane that wrote it$"
    ):
        run.restore(tmp_path / "state.npz")

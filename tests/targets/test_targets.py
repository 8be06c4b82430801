"""Names of targets, which target is the default, and what `memlane doctor` finds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import memlane.chip
from memlane import driver, packages
from memlane.compile import toolkit
from memlane.driver import Probe
from memlane.emulate import Emulator
from memlane.errors import ChipError, DeviceError
from memlane.targets import describe, devices, names, override, target

NO_GPU = Probe(True, library=False, problem="there is no CUDA driver on this machine")
TWO_GPUS = Probe(True, driver=(13, 0), devices=("NVIDIA H200", "NVIDIA Unheard Of"))


class FakeDevice:
    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine without a GPU, which `having` changes."""
    monkeypatch.delenv(names.ENVIRONMENT, raising=False)
    monkeypatch.setitem(vars(driver), "Device", FakeDevice)
    having(monkeypatch, NO_GPU)
    names._device.cache_clear()
    yield monkeypatch
    names._device.cache_clear()


def having(monkeypatch: pytest.MonkeyPatch, found: Probe) -> None:
    monkeypatch.setattr(driver, "probe", lambda: found)


def test_the_emulator_stands_in_where_there_is_no_gpu() -> None:
    assert isinstance(target(), Emulator)
    assert target().name == "emulator:h200"


def test_the_first_gpu_is_the_default(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    assert target().name == "cuda:0"


def test_a_name_gives_the_same_target_each_time(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    assert target("emulator") is target("emulator:h200")
    assert target("emulator:a100") is target("emulator:a100")
    assert target("cuda") is target("cuda:0") is target()
    assert target("cuda:1") is not target("cuda:0")
    assert target("cuda:1").name == "cuda:1"


def test_threads_that_ask_at_once_get_the_same_target(machine: pytest.MonkeyPatch) -> None:
    class SlowDevice(FakeDevice):
        def __init__(self, index: int) -> None:
            time.sleep(0.05)
            super().__init__(index)

    machine.setitem(vars(driver), "Device", SlowDevice)
    having(machine, TWO_GPUS)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(target("cuda:1"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [target("cuda:1")] * 4


def test_a_deterministic_emulator_is_one_of_its_own_with_one_thread() -> None:
    one = target("emulator:h200", deterministic=True)
    assert isinstance(one, Emulator)
    assert one.threads == 1
    assert one is target("emulator", deterministic=True)
    assert one is not target("emulator:h200")


def test_an_emulator_with_less_memory_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    small = target("emulator:h200", memory_bytes=4096)
    assert small is target("emulator", memory_bytes=4096)
    assert small is not target("emulator:h200")
    assert small.free_bytes() == 4096
    array = small.empty(4000, "u1")
    with pytest.raises(DeviceError, match="not enough free device memory for 97 bytes: 96 of 4,096 bytes are free"):
        small.empty(97, "u1")
    del array
    with pytest.raises(DeviceError, match="a device with 0 bytes of memory is too small"):
        target("emulator", memory_bytes=0)
    monkeypatch.setattr(driver, "probe", lambda: TWO_GPUS)
    with pytest.raises(DeviceError, match="memory_bytes= limits the memory of emulators, not that of cuda:1: leave it out"):
        target("cuda:1", memory_bytes=4096)


def test_an_override_makes_emulators_deterministic() -> None:
    threads = {}
    with override("emulator:a100", everywhere=True, deterministic=True), override("emulator:v100"):
        threads["inner"] = target("emulator:h200")
    with override(None, deterministic=True), override("emulator:v100"):
        threads["outer"] = target()
    assert threads["inner"] is threads["outer"] is target("emulator:v100", deterministic=True)
    assert target() is target("emulator:h200")


def test_an_override_sets_the_patience_of_emulators_of_its_own() -> None:
    usual = target("emulator:a100")
    with override(None, everywhere=True, patience=7), override("emulator:a100", deterministic=True):
        asked = target()
        assert (asked.patience, asked.threads) == (7, 1)  # type: ignore[attr-defined]
    assert target("emulator:a100") is usual
    assert usual.patience == 65536  # type: ignore[attr-defined]


def test_devices_are_as_deterministic_as_the_first() -> None:
    with override(None, deterministic=True, patience=9):
        first, second = devices("emulator:a100", 2)
    assert (first.threads, second.threads) == (1, 1)  # type: ignore[attr-defined]
    assert (first.patience, second.patience) == (9, 9)  # type: ignore[attr-defined]


def test_a_gpu_has_no_patience(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    with override(None, patience=5), pytest.raises(DeviceError, match="cuda:0 runs every launch to its end, so it has no patience to set"):
        target("cuda:0")


def test_a_gpu_is_not_deterministic(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    message = "cuda:0 does not run blocks in a fixed order, so it cannot be deterministic; use the target emulator"
    with override(None, deterministic=True), pytest.raises(DeviceError, match=message):
        target()


def test_a_chip_of_a_file(tmp_path: Path) -> None:
    data = Path(memlane.chip.__file__).parent / "data" / "h200.toml"
    (tmp_path / "mine.toml").write_text(data.read_text(encoding="utf-8"), encoding="utf-8")
    mine = target(f"emulator:{tmp_path / 'mine.toml'}")
    assert mine.chip.name == "mine"
    assert mine is target(f"emulator:{tmp_path / '.' / 'mine.toml'}")


def test_unknown_names_list_what_there_is(machine: pytest.MonkeyPatch) -> None:
    listed = ", ".join(f"emulator:{chip}" for chip in memlane.chip.names())
    with pytest.raises(DeviceError) as raised:
        target("gpu")
    assert str(raised.value) == f"no target 'gpu'; this machine has {listed}, and emulator:FILE.toml"
    having(machine, TWO_GPUS)
    with pytest.raises(DeviceError) as raised:
        target("emulator:h9000")
    assert str(raised.value) == f"no chip 'h9000' to emulate; this machine has cuda:0, cuda:1, {listed}, and emulator:FILE.toml"
    with pytest.raises(DeviceError, match=r"^no target 'cuda:x'; "):
        target("cuda:x")
    with pytest.raises(ChipError, match=r"cannot read the chip file .*nothing\.toml"):
        target("emulator:nothing.toml")


def test_a_broken_driver_is_no_reason_to_emulate(machine: pytest.MonkeyPatch) -> None:
    having(machine, Probe(True, problem="the CUDA driver does not start (X)", broken=True))
    with pytest.raises(DeviceError) as raised:
        target()
    remedy = "ml.target('emulator'), or --target emulator, runs kernels without a GPU"
    assert str(raised.value) == f"the CUDA driver does not start (X); {remedy}"
    assert target("emulator").name == "emulator:h200"


def test_the_environment_names_the_default(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("MEMLANE_TARGET", "emulator:a100")
    assert target().name == "emulator:a100"
    assert target("emulator:h200").name == "emulator:h200"


def test_an_override_wins_over_everything(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    machine.setitem(os.environ, "MEMLANE_TARGET", "cuda:1")
    with override("emulator:a100"):
        assert target().name == target("cuda:1").name == "emulator:a100"
        with override(None):
            assert target().name == "emulator:a100"
        with override("cuda:0"):
            assert target().name == "cuda:0"
    assert target().name == "cuda:1"


def test_an_override_of_the_process_reaches_other_threads() -> None:
    def names_in_a_thread() -> list[str]:
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.extend([target().name, target("emulator:a100").name]))
        thread.start()
        thread.join()
        return found

    with override("emulator:h100"):
        assert names_in_a_thread() == ["emulator:h200", "emulator:a100"]
    with override("emulator:h100", everywhere=True):
        assert names_in_a_thread() == ["emulator:h100"] * 2
        assert target().name == "emulator:h100"
        with override(None, everywhere=True), override("emulator:a100"):
            assert target().name == "emulator:a100", "the nearest one counts"
    assert names_in_a_thread() == ["emulator:h200", "emulator:a100"]


def test_the_doctor_says_what_is_missing(machine: pytest.MonkeyPatch) -> None:
    lines = [str(finding) for finding in describe()]
    assert lines[0].startswith("yes Python: 3.")
    assert any(line.startswith("yes llvmlite: 0.") for line in lines)
    assert "no  GPU: there is no CUDA driver on this machine; kernels run on the emulator" in lines
    assert f"yes chips: the emulator knows {', '.join(memlane.chip.names())}" in lines


def test_the_doctor_says_where_machine_code_is_kept(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cache() -> str:
        return next(str(finding) for finding in describe() if finding.subject == "cache")

    folder = tmp_path / "code"
    machine.setenv("MEMLANE_CACHE_DIR", str(folder))
    assert cache() == f"yes cache: {folder} holds 0 pieces of machine code, 0 B of at most 256 MiB"
    folder.mkdir()
    (folder / "one.code").write_bytes(b"x" * 250_000)
    assert cache() == f"yes cache: {folder} holds 1 piece of machine code, 244 KiB of at most 256 MiB"
    machine.setenv("MEMLANE_CACHE_DIR", str(folder / "one.code"))
    assert cache() == f"no  cache: {folder / 'one.code'} cannot be written; set MEMLANE_CACHE_DIR to a folder that can be written"
    machine.setenv("MEMLANE_CACHE", "0")
    assert cache().startswith("no  cache: the emulator recompiles each kernel")


def test_the_doctor_lists_devices(machine: pytest.MonkeyPatch) -> None:
    having(machine, TWO_GPUS)
    found = {finding.subject: finding for finding in describe()}
    assert found["driver"].text == "the driver supports CUDA 13.0"
    assert found["cuda:0"].text == "NVIDIA H200"
    assert found["cuda:1"].text.startswith("NVIDIA Unheard Of, uncalibrated: ")


def test_the_doctor_says_which_linker_is_loaded(machine: pytest.MonkeyPatch) -> None:
    """The package in the environment is not what assembles where the loader finds another library first."""
    bindings = toolkit.nvjitlink_bindings()
    having_linker = next(finding for finding in describe() if finding.subject == "nvidia-nvjitlink")
    major, minor = bindings.version()
    assert having_linker.text.startswith(f"{major}.{minor}.")
    machine.setattr(bindings, "version", lambda: (12, 9))
    found = next(finding for finding in describe() if finding.subject == "nvidia-nvjitlink")
    assert found.text == f"{having_linker.text} is installed, but the library that is loaded has version 12.9"
    assert found.remedy == "see LD_LIBRARY_PATH, LD_PRELOAD and CUDA_HOME"


def test_the_doctor_gives_the_command_that_installs(machine: pytest.MonkeyPatch) -> None:
    absent = replace(packages.CUDA, distributions=("no-such-distribution",))
    machine.setattr("memlane.targets.doctor.CUDA", absent)
    lines = [str(finding) for finding in describe()]
    command = packages.install_command("cuda")
    assert f"no  no-such-distribution: not installed; {command}" in lines
    assert f"no  compiler: CUDA C++ does not compile; PTX files work; {command}" in lines


def test_the_doctor_covers_every_optional_part(machine: pytest.MonkeyPatch) -> None:
    """With nothing installed: one line for each package of each extra, with the command that installs it."""

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    machine.setattr("importlib.metadata.version", absent)
    machine.setattr("shutil.which", lambda name, path=None: None)
    machine.setattr("platform.system", lambda: "Linux")
    found = {finding.subject: finding for finding in describe()}
    for part in packages.PARTS:
        for name in part.distributions:
            assert not found[name].present
            assert found[name].remedy == packages.install_command(part.extra), name
    assert str(found["triton"]).startswith("no  triton: not installed, for kernels of Triton; ")
    assert found["mpiexec"].text == "not found; it starts the ranks of an MPI program"
    assert found["ipython"].remedy.endswith("pip install ipython")
    machine.setattr("platform.system", lambda: "Darwin")
    triton = next(finding for finding in describe() if finding.subject == "triton")
    assert str(triton) == "no  triton: for kernels of Triton; there is none for Darwin"

"""What is found on machines without a GPU, and what a user is told there."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import memlane.driver
from memlane.driver.probe import LIBRARY, Probe, driver_version, module_version, probe
from memlane.errors import DeviceError, MissingDependency
from memlane.packages import install_command


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    probe.cache_clear()
    yield
    probe.cache_clear()


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the driver's library, and only that, cannot be opened."""
    really = ctypes.CDLL

    def opened(name: str, *args: Any, **kwargs: Any) -> ctypes.CDLL:
        if name == LIBRARY:
            raise OSError(f"{name}: cannot open shared object file")
        return really(name, *args, **kwargs)

    monkeypatch.setattr(ctypes, "CDLL", opened)


class FakeDriver:
    """The calls of `cuda.bindings.driver` that probing makes."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)

    def __init__(self, answer: int = 0, name: str = "CUDA_SUCCESS", devices: int = 0) -> None:
        self.answer = Code(answer)
        self.answer.name = name
        self.devices = devices

    def cuInit(self, flags: int) -> tuple[Any]:  # noqa: N802
        return (self.answer,)

    def cuDriverGetVersion(self) -> tuple[int, int]:  # noqa: N802
        return 0, 13010

    def cuDeviceGetCount(self) -> tuple[int, int]:  # noqa: N802
        return 0, self.devices

    def cuDeviceGet(self, number: int) -> tuple[int, int]:  # noqa: N802
        return 0, number

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:  # noqa: N802
        return 0, f"GPU {device}".encode().ljust(length, b"\0")


class Code(int):
    name = ""


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> None:
    importlib.import_module("memlane.driver.device")  # while all that it imports finds the real packages
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    monkeypatch.setattr("cuda.bindings.driver", driver, raising=False)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    without_library(monkeypatch)
    found = probe()
    assert (found.devices, found.driver, found.broken) == ((), None, False)
    assert found.problem.startswith("there is no CUDA driver on this machine (")
    with pytest.raises(DeviceError) as raised:
        memlane.driver.Device(0)
    assert str(raised.value) == f"no cuda:0: {found.problem}; ml.target('emulator'), or --target emulator, runs kernels without a GPU"


def test_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(vars(memlane.driver), "Device", raising=False)
    found = probe()
    assert (found.packages, found.devices, found.broken) == (False, (), False)
    assert found.problem == f"the CUDA packages are not installed ({install_command('cuda')})"
    with pytest.raises(MissingDependency) as raised:
        memlane.driver.Device(0)
    assert (
        str(raised.value) == f"running kernels on a GPU needs packages that are not installed; install them with: {install_command('cuda')}"
    )


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, FakeDriver(devices=2))
    found = probe()
    assert (found.devices, found.driver, found.problem) == (("GPU 0", "GPU 1"), (13, 1), "")
    with pytest.raises(DeviceError) as raised:
        memlane.driver.Device(2)
    assert str(raised.value) == "no cuda:2 on this machine; it has cuda:0 (GPU 0), cuda:1 (GPU 1)"


@pytest.mark.parametrize(
    ("driver", "problem", "broken"),
    [
        (FakeDriver(100, "CUDA_ERROR_NO_DEVICE"), "the CUDA driver finds no device (CUDA_ERROR_NO_DEVICE)", False),
        (FakeDriver(devices=0), "the CUDA driver finds no device", False),
        (
            FakeDriver(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            "the CUDA driver does not start (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); see what nvidia-smi says",
            True,
        ),
    ],
)
def test_no_device_is_not_a_broken_driver(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver, problem: str, broken: bool) -> None:
    with_driver(monkeypatch, driver)
    found = probe()
    assert (found.devices, found.problem, found.broken) == ((), problem, broken)


def test_probing_without_a_driver_imports_no_cuda() -> None:
    script = (
        "import ctypes, sys\n"
        "def refuse(name): raise OSError\n"
        "ctypes.CDLL = refuse\n"
        "from memlane.driver import probe\n"
        "probe()\n"
        "sys.exit('cuda.bindings.driver' in sys.modules or 'cuda.core' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_version_of_the_driver_is_that_of_its_module_and_what_it_supports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "version"
    monkeypatch.setattr(sys.modules["memlane.driver.probe"], "_MODULE_VERSION", told)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version(Probe(True, driver=(13, 0))) == "CUDA 13.0"
    told.write_text("580.159.04\n")
    assert driver_version(Probe(True, driver=(13, 0))) == "580.159.04, CUDA 13.0"
    assert driver_version(Probe(True)) == "580.159.04"


def test_where_linux_does_not_tell_the_version_nvidia_smi_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["memlane.driver.probe"], "_MODULE_VERSION", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module_version() == ""
    asked = tmp_path / "nvidia-smi"
    asked.write_text("#!/bin/sh\n[ \"$1\" = --query-gpu=driver_version ] && printf '570.1\\n570.1\\n'\n")
    asked.chmod(0o755)
    assert module_version() == "570.1"
    (tmp_path / "version").write_text("580.159.04\n")
    assert module_version() == "580.159.04"

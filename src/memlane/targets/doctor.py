"""Describe what this machine can do, for `memlane doctor`."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from memlane import driver
from memlane.chip import load, names
from memlane.compile import toolkit
from memlane.emulate.code.store import present_store
from memlane.errors import MemlaneError, MissingDependency
from memlane.number_format import plural, size
from memlane.packages import CORE, CUDA, PARTS, Part, install_command, pip_install, programs

_LINKER = "nvidia-nvjitlink"


@dataclass(frozen=True)
class Condition:
    """One component that is present or missing."""

    subject: str
    present: bool
    text: str
    remedy: str = ""
    """How to install or repair it, if possible."""

    def __str__(self) -> str:
        mark = "yes" if self.present else "no "
        return f"{mark} {self.subject}: {self.text}{f'; {self.remedy}' if self.remedy else ''}"


def describe() -> tuple[Condition, ...]:
    """Return the conditions of Python and its required packages, the emulator's cache, the CUDA compiler, the other optional parts, the
    driver with its devices, and the chips to emulate."""
    core = (_package(name, install_command()) for name in CORE)
    optional = [condition for part in PARTS if part is not CUDA for condition in _part(part)]
    return (_python(), *core, _emulation(), _machine_code(), *_compilation(), *optional, _notebook(), *_driver(), _chips())


def _python() -> Condition:
    return Condition("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _package(name: str, command: str) -> Condition:
    try:
        return Condition(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Condition(name, False, "not installed", command)


def _emulation() -> Condition:
    return Condition("emulator", True, "runs PTX on this machine's CPU")


def _machine_code() -> Condition:
    """Return where the emulator's code is cached between processes."""
    try:
        store = present_store()
    except MemlaneError as error:
        return Condition("cache", False, str(error))
    if store is None:
        return Condition("cache", False, "the emulator recompiles each kernel in each process (MEMLANE_CACHE=0, or no home directory)")
    if not store.is_writable():
        return Condition("cache", False, f"{store.folder} cannot be written", "set MEMLANE_CACHE_DIR to a folder that can be written")
    count, nbytes = store.usage()
    text = f"{plural(count, 'piece')} of machine code, {size(nbytes)} of at most {size(store.most_bytes)}"
    return Condition("cache", True, f"{store.folder} holds {text}")


def _compilation() -> tuple[Condition, ...]:
    command = install_command(CUDA.extra)
    packages = tuple(_loaded(_package(name, command)) for name in CUDA.distributions)
    ready = all(package.present for package in packages)
    text = "CUDA C++ compiles" if ready else "CUDA C++ does not compile; PTX files work"
    return (*packages, Condition("compiler", ready, text, "" if ready else command))


def _part(part: Part) -> Iterator[Condition]:
    """Yield a condition for each package of an optional part; for MPI also for its launcher."""
    for name in part.distributions:
        try:
            yield Condition(name, True, f"{importlib.metadata.version(name)}, for {part.purpose}")
        except importlib.metadata.PackageNotFoundError:
            if part.linux_only and platform.system() != "Linux":
                yield Condition(name, False, f"for {part.purpose}; there is none for {platform.system()}")
            else:
                yield Condition(name, False, f"not installed, for {part.purpose}", install_command(part.extra))
    if part.extra == "mpi":
        found = shutil.which("mpiexec") or shutil.which("mpiexec", path=programs())
        remedy = "" if found else f"load the module of the cluster's MPI, or {pip_install('mpich')}"
        yield Condition("mpiexec", found is not None, found or "not found; it starts the ranks of an MPI program", remedy)


def _notebook() -> Condition:
    try:
        return Condition("ipython", True, f"{importlib.metadata.version('ipython')}, for notebooks")
    except importlib.metadata.PackageNotFoundError:
        return Condition("ipython", False, "not installed, for notebooks", pip_install("ipython"))


def _loaded(package: Condition) -> Condition:
    """Return the package; for the linker, the version actually loaded if it differs: a system library may take precedence."""
    if package.subject != _LINKER or not package.present:
        return package
    try:
        major, minor = toolkit.nvjitlink_bindings().version()
    except MissingDependency:
        return package
    if package.text.split(".")[:2] == [str(major), str(minor)]:
        return package
    other = f"{package.text} is installed, but the library that is loaded has version {major}.{minor}"
    return Condition(package.subject, True, other, "see LD_LIBRARY_PATH, LD_PRELOAD and CUDA_HOME")


def _driver() -> tuple[Condition, ...]:
    found = driver.probe()
    if not found.devices:
        return (Condition("GPU", False, found.problem, "kernels run on the emulator"),)
    version = f"the driver supports CUDA {found.driver[0]}.{found.driver[1]}" if found.driver else "the driver works"
    return (
        Condition("driver", True, version),
        *(Condition(f"cuda:{number}", True, f"{product}{_calibration(product)}") for number, product in enumerate(found.devices)),
    )


def _calibration(product: str) -> str:
    known = any(load(name).product == product for name in names())
    return "" if known else ", uncalibrated: memlane has no data file for it and uses the rules of the most similar chip"


def _chips() -> Condition:
    return Condition("chips", True, f"the emulator knows {', '.join(names())}")

"""Resolve names to targets."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from memlane import driver
from memlane.chip import from_file, load, names, unread_directory
from memlane.emulate import PATIENCE, Emulator
from memlane.errors import DeviceError
from memlane.launch import Target
from memlane.number_format import plural

DEFAULT_CHIP = "h200"
"""Chip that is emulated by default."""

ENVIRONMENT = "MEMLANE_TARGET"
"""Environment variable with the default target of scripts."""


@dataclass(frozen=True)
class _Settings:
    """Settings of an override; unset fields are falsy."""

    name: str = ""
    deterministic: bool = False
    patience: int = 0
    """Patience of emulators; 0 for their default."""
    memory_bytes: int = 0
    """Device memory of emulators; 0 for that of the chip."""

    def over(self, other: _Settings) -> _Settings:
        """Return these settings, with unset fields taken from `other`."""
        return _Settings(
            self.name or other.name,
            self.deterministic or other.deterministic,
            self.patience or other.patience,
            self.memory_bytes or other.memory_bytes,
        )


_UNSET = _Settings()
_override: ContextVar[_Settings] = ContextVar("memlane_target", default=_UNSET)
"""Override of the current thread or task."""
_override_everywhere: list[_Settings] = []
"""Overrides of the whole process, the last one counts: new threads do not inherit context variables."""
_override_lock = threading.Lock()
_target_lock = threading.Lock()
"""Lock held while a target is looked up or created, so that concurrent requests get the same one."""


def target(name: str | None = None, *, deterministic: bool = False, memory_bytes: int | None = None) -> Target:
    """Return the target called `name`, the same object each time. `ml.target("emulator:h200")`:

        cuda, cuda:1            a GPU by its number, the first without one
        emulator                the emulator, as an H200
        emulator:a100           the emulator, as another chip
        emulator:./chip.toml    the emulator, as the chip of a data file
        emulator:h200:1         one more emulated device; `devices` returns several that access each other's memory

    Without a name it is the value of `$MEMLANE_TARGET`, else the first GPU, else the emulator; `Target.name` tells which. Inside `override`
    it is the overriding target, whatever `name` is.

    The emulator runs large launches on several cores. Results that depend on the order of blocks, such as sums of floats by atomic
    additions, may then differ from run to run, as on a GPU. With `deterministic` it is another emulator, with memory of its own, that runs
    every launch on one core; with `memory_bytes` another one with so much device memory, to try what happens if an array does not fit.

    Raises DeviceError for an unknown target and for a GPU with `deterministic` or `memory_bytes`, MissingDependency if the packages for a
    GPU are not installed, ChipError for an unknown chip.
    """
    if memory_bytes is not None and memory_bytes < 1:
        raise DeviceError(f"a device with {plural(memory_bytes, 'byte')} of memory is too small: pass 1 or more, or leave memory_bytes out")
    settings = _current_settings().over(_Settings(name or "", deterministic, memory_bytes=memory_bytes or 0))
    return _resolve(settings.name or os.environ.get(ENVIRONMENT) or _default_name(), settings)


def target_of_process(number: int) -> Target:
    """Return the default target of one of several processes on this machine: the GPU of its number if there are several.

    It is the same for all processes if there is one GPU, or if a numbered GPU or an emulator is requested. Raises DeviceError if there are
    several GPUs, but fewer than processes.
    """
    settings = _current_settings()
    name = settings.name or os.environ.get(ENVIRONMENT) or _default_name().removesuffix(":0")
    count = len(driver.probe().devices) if name == "cuda" else 1
    if count > 1 and number >= count:
        raise DeviceError(
            f"process {number} of this machine has no GPU of its own, because there are only {count}: start {count} processes, or "
            "pass targets"
        )
    return _resolve(f"cuda:{number}" if count > 1 else name, settings)


def _current_settings() -> _Settings:
    """Return the combined overrides of this thread and of the process."""
    own = _override.get()
    return own.over(_override_everywhere[-1]) if _override_everywhere else own


def devices(name: str | None = None, count: int | None = None) -> tuple[Target, ...]:
    """Return several targets that can access each other's memory if possible: `ml.devices("emulator:h200", 4)`, `ml.devices("cuda")`.

    `name` is a target name without a number; by default that of `ml.target()`. `count` is their number; by default all GPUs of the machine,
    or one emulated device. GPUs without peer access are accepted: plans raise an error when they need it. Raises DeviceError if there are
    fewer, and for a count below 1.
    """
    first = target(name)
    family = re.sub(r":0$", "", first.name) if first.name.startswith("cuda") else first.name
    most = len(driver.probe().devices) if family == "cuda" else None
    count = (1 if most is None else most) if count is None else count
    if count < 1:
        raise DeviceError(f"got {plural(count, 'device')}: pass 1 or more")
    found = (first, *(_resolve(f"{family}:{number}", _current_settings()) for number in range(1, count)))
    for one in found:
        for other in found:
            with suppress(DeviceError):
                one.enable_peer(other)
    return found


@contextmanager
def override(name: str | None, *, everywhere: bool = False, deterministic: bool = False, patience: int = 0) -> Iterator[None]:
    """Make `target()` return `name` inside the `with` block, even for requests of another name.

    It applies to this thread, or with `everywhere` to all threads of the process without an override of their own. None changes nothing.
    With `deterministic` it returns emulators of one core, with `patience` emulators with this `Emulator.patience`.
    """
    settings = _Settings(name or "", deterministic, patience)
    if everywhere and settings != _UNSET:
        with _override_lock:
            _override_everywhere.append(settings)
        try:
            yield
        finally:
            with _override_lock:
                _override_everywhere.remove(settings)
        return
    before = _override.get()
    token = _override.set(settings.over(before))
    try:
        yield
    finally:
        _override.reset(token)


def _default_name() -> str:
    """Return the name of the default target. A broken GPU driver raises DeviceError instead of selecting the emulator."""
    found = driver.probe()
    if found.broken:
        raise DeviceError(f"{found.problem}; ml.target('emulator'), or --target emulator, runs kernels without a GPU")
    return "cuda:0" if found.devices else f"emulator:{DEFAULT_CHIP}"


def _resolve(name: str, how: _Settings) -> Target:
    """Return the target of this name, with the settings `how` except for its name. Raises DeviceError if there is none."""
    if match := re.fullmatch(r"cuda(?::(\d{1,9}))?", name):
        if how.patience:
            raise DeviceError(f"{name} runs every launch to its end, so it has no patience to set; use the target emulator")
        if how.deterministic:
            raise DeviceError(f"{name} does not run blocks in a fixed order, so it cannot be deterministic; use the target emulator")
        if how.memory_bytes:
            raise DeviceError(f"memory_bytes= limits the memory of emulators, not that of {name}: leave it out, or use the target emulator")
        with _target_lock:
            return _device(int(match[1] or 0))
    kind, _, chip = name.partition(":")
    if kind != "emulator":
        raise DeviceError(f"no target {name!r}; {available()}")
    if match := re.fullmatch(r"(.*):(\d{1,9})", chip):
        chip, number = match[1], int(match[2])
    else:
        number = 0
    chip = chip or DEFAULT_CHIP
    with _target_lock:
        if chip in names():
            return _emulator(chip, number, replace(how, name=""))
        if chip.endswith(".toml") or os.sep in chip:
            return _emulator(_chip_file(chip), number, replace(how, name=""))
    raise DeviceError(f"no chip {chip!r} to emulate; {available()}")


def _chip_file(text: str) -> Path:
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # invalid name, no home or working directory, or circular links
        raise DeviceError(f"no chip file {text}: {str(error).rstrip('.')}") from None


def available() -> str:
    """Return the names of this machine's targets, as the end of a sentence."""
    gpus = [f"cuda:{number}" for number in range(len(driver.probe().devices))]
    emulators = [f"emulator:{chip}" for chip in names()]
    return f"this machine has {', '.join([*gpus, *emulators])}, and emulator:FILE.toml{unread_directory()}"


@cache
def _device(index: int) -> Target:
    return driver.Device(index)


@cache
def _emulator(chip: str | Path, device: int, how: _Settings) -> Target:
    facts = from_file(chip) if isinstance(chip, Path) else load(chip)
    threads = 1 if how.deterministic else None
    return Emulator(facts, threads=threads, device=device, patience=how.patience or PATIENCE, memory_bytes=how.memory_bytes or None)

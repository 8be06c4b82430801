"""Implement puts and waits of a plan as launches on every target: devices signal each other through flags in their memory.

Order given by flags: a put follows its device's launches that computed the data; its last block raises the flags after a system-wide fence,
once all blocks have stored their data. The wait on the other device ends when it has seen the flag raised as often as it has waited, with
acquire order, and later launches see everything. So each put is ordered before the wait for its flag, turn by turn, and nothing else
between devices is. If every edge of a plan between devices leads from a put to its wait, no event of one device on another is needed, and
each device replays its own graph (`targets.plans`). `plan.races` decides whether these edges suffice; it knows no others. A device whose
neighbour is late waits; a device that is early raises flags ahead, which are counted.

Counts are kept in device memory and grow by one with each execution, so that one graph can be replayed. They wrap around at 2**32.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import gcd

import numpy as np

from memlane.compile import cuda
from memlane.errors import BadPlan, LaunchError, MemlaneError
from memlane.launch import Axis, BoundCopy, DeviceArray, Kernel, Launch, Target, offsets_of
from memlane.plan import Buffer, Execution, Put, View, Wait, raised_flags
from memlane.plan import Launch as PlannedLaunch
from memlane.ptx import Module

ARCH = "sm_80"
"""Architecture to compile for: every newer GPU accepts its code."""
LIMIT = "MEMLANE_WAIT_LIMIT_S"
"""Environment variable with the time limit of a wait for another device in seconds; 20 by default."""
_MOST_BOXES, _MOST_FLAGS, _MOST_BLOCKS = 32, 32, 128
_THREADS = 256
_WORDS = (16, 8, 4, 2, 1)
_POLLS = 1 << 20
"""Polls of a flag without pauses: most of a second."""
_PAUSES_PER_SECOND = 2000
_BOX = "<2Q4q4I"
_FAILURE = 4
"""Words in which a device records which of its waits timed out first."""


@lru_cache(maxsize=1)
def signal_module() -> Module:
    """Return the module with the kernels of puts and waits."""
    text = files(__package__).joinpath("signals.cu").read_text(encoding="utf-8")
    return cuda(text, name="memlane/targets/signals.cu", arch=ARCH, define=(f"BOXES={_MOST_BOXES}", f"FLAGS={_MOST_FLAGS}"))


def wait_limit_s() -> float:
    """Return the time limit of a wait for another device, in seconds. Raises BadPlan for a setting that is not a positive number."""
    text = os.environ.get(LIMIT, "20")
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < 1e6:
        raise BadPlan(f"{LIMIT} is {text!r}: give the seconds after which a device stops waiting for another one, such as 20")
    return limit


@dataclass(frozen=True)
class _Place:
    """A step that raises or awaits a flag."""

    device: int
    name: str


class Signals:
    """Kernels and counters of the puts and waits of one bound plan."""

    def __init__(self, order: Sequence[Execution], targets: Sequence[Target], flags: Mapping[Buffer, DeviceArray]) -> None:
        """Allocate the counters. `flags`: memory of the flags, filled with zeros."""
        self._targets, self._flags = targets, flags
        self._counts: dict[tuple[bool, View], DeviceArray] = {}
        """Whether the step waits, and its first flag, which identify it -> counters of its kernel."""
        self._raising: dict[View, _Place] = {}
        self._waiting: list[tuple[Wait, _Place]] = []
        self._failures: dict[int, DeviceArray] = {}
        steps = {execution.path: execution for execution in order}
        for execution in steps.values():
            action, device = execution.action, execution.step.device
            flags_of = action.flags if isinstance(action, Wait) else raised_flags(action)
            if not flags_of or device is None:
                continue
            place = _Place(device, f"step {'.'.join(map(str, execution.path))} ({execution.step.name})")
            self._counts[isinstance(action, Wait), flags_of[0]] = targets[device].zeros(2, "u4")
            if not isinstance(action, Wait):
                self._raising |= dict.fromkeys(flags_of, place)
                continue
            self._waiting.append((action, place))
            if device not in self._failures:
                self._failures[device] = targets[device].zeros(_FAILURE, "u4")
        self._waits = {action.flags: number for number, (action, _) in enumerate(self._waiting)}

    def put(self, put: Put, copies: Iterable[BoundCopy], kernel: Kernel) -> Launch:
        """Return the launch of a put. Raises BadPlan if it has too many pieces."""
        flags = [self._flags[flag.buffer] for flag in put.flags]
        boxes = [box for copy in copies for box in _boxes(copy)]
        if len(boxes) > _MOST_BOXES or len(flags) > _MOST_FLAGS:
            raise BadPlan(
                f"a put moves at most {_MOST_BOXES} blocks of three axes and raises {_MOST_FLAGS} flags, not {len(boxes)} and "
                f"{len(flags)}: use several puts"
            )
        word = next(one for one in _WORDS if all(box.granularity % one == 0 for box in boxes))
        packed, words = [], 0
        for box in boxes:
            packed.append(box.packed(word, words))
            words += box.words(word)
        data = struct.pack("<4I", len(boxes), len(flags), words, word)
        data += b"".join(packed) + bytes(struct.calcsize(_BOX) * (_MOST_BOXES - len(boxes))) + _addresses(flags)
        blocks = max(1, min(_MOST_BLOCKS, -(-words // _THREADS)))
        return kernel[blocks, _THREADS].bind(data, self._counts[False, put.flags[0]])

    def raised_by(self, launch: PlannedLaunch) -> list[DeviceArray]:
        """Return the additional arguments of a kernel that raises flags: memory for its counters, and the flags."""
        if not launch.raises:
            return []
        return [self._counts[False, launch.raises[0]], *(self._flags[flag.buffer] for flag in launch.raises)]

    def wait(self, wait: Wait, kernel: Kernel, device: int) -> Launch:
        """Return the launch of a wait. Raises BadPlan for too many flags."""
        flags = [self._flags[flag.buffer] for flag in wait.flags]
        if len(flags) > _MOST_FLAGS:
            raise BadPlan(f"a wait has at most {_MOST_FLAGS} flags, not {len(flags)}: use several waits")
        # On emulated devices the put has run when the wait begins: a flag not raised by then never will be.
        polls, pauses = (1, 1) if self._targets[device].modelled else (_POLLS, int(_PAUSES_PER_SECOND * wait_limit_s()))
        data = struct.pack("<4I", len(flags), self._waits[wait.flags], polls, pauses) + _addresses(flags)
        return kernel[1, 32].bind(data, self._counts[True, wait.flags[0]], self._failures[device])

    @contextmanager
    def counting(self, *, later: bool = False) -> Iterator[None]:
        """Run a plan, or wait for it, in the `with` block; reset the counters if that fails or a wait has timed out.

        Raises LaunchError for a timeout, unless `later` defers the check.
        """
        try:
            yield
        except BaseException:  # including Ctrl-C: the next run must start with fresh counters
            with suppress(MemlaneError):  # a failed device runs nothing
                self.reset()
            raise
        if not later:
            self.check()

    def check(self) -> None:
        """Raise LaunchError, naming the device, the step and the flag, if a wait has timed out since the plan was bound.

        The results in memory are undefined then. Counters are reset, so that the plan can run again.
        """
        found = ""
        for device, failure in self._failures.items():
            step, lane, seen, expected = (int(one) for one in failure.numpy())
            if not step or found:
                continue
            action, place = self._waiting[step - 1]
            of = self._raising[action.flags[lane]]
            waited = "" if self._targets[device].modelled else f" {wait_limit_s():g} s"
            here, there = (f"device {at} ({self._targets[at].name})" for at in (device, of.device))
            found = (
                f"{here} waited{waited} at {place.name} for flag {action.flags[lane].buffer.name!r}, which {there} raises at "
                f"{of.name}: it was raised {seen} times, but {expected} were expected. The results in memory are incomplete; set "
                f"{LIMIT} if steps take so long"
            )
        if found:
            self.reset()
            raise LaunchError(found)

    def reset(self) -> None:
        """Reset all counters, after a run that was aborted."""
        for array in (*self._flags.values(), *self._counts.values(), *self._failures.values()):
            array.copy_from(np.zeros(array.shape, array.dtype))


@dataclass(frozen=True)
class _Box:
    """Contiguous bytes of a copy, repeated along up to two axes."""

    to: int
    of: int
    width: int
    axes: tuple[Axis, Axis]
    """Layers and rows: extent and stride on each side."""

    @property
    def granularity(self) -> int:
        """Greatest common divisor of all addresses, strides and the width, in bytes."""
        return gcd(self.to, self.of, self.width, *(stride for axis in self.axes for stride in axis[1:]))

    def packed(self, word: int, before: int) -> bytes:
        """Return the box as the kernel reads it, in words of `word` bytes. `before`: total words of the boxes before it."""
        (_, *layers), (rows, *row) = self.axes
        return struct.pack(_BOX, self.to, self.of, *row, *layers, self.width // word, rows, before, 0)

    def words(self, word: int) -> int:
        return self.width // word * self.axes[0][0] * self.axes[1][0]


def _boxes(copy: BoundCopy) -> Iterator[_Box]:
    if 0 in copy.shape:
        return
    to, of, width, axes = copy.simplified()
    one = (1, 0, 0)
    layers, rows = ([one, one, *axes])[-2:]
    for to_offset, of_offset in offsets_of(axes[:-2]):
        yield _Box(to + to_offset, of + of_offset, width, (layers, rows))


def _addresses(flags: Sequence[DeviceArray]) -> bytes:
    return struct.pack(f"<{_MOST_FLAGS}Q", *(flag.address for flag in flags), *[0] * (_MOST_FLAGS - len(flags)))

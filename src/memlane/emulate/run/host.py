"""Serve kernels' requests to the host: printing, failed assertions and memory allocation.

Text is written to standard output when the launch ends, even if it fails: block by block, and within a block in execution order (warps in
turn between barriers, lanes in order).
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from memlane.chip import LANES
from memlane.emulate.layout import BLOCK, CONTEXT, LOCAL_WINDOW, SHARED_WINDOW, WARP, WINDOW_BYTES
from memlane.emulate.lower.kernel import CompiledKernel
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.interrupt import Halt
from memlane.emulate.run.printf import UnreadableError, formatted
from memlane.emulate.semantics.service import ALLOCATE, ASSERT_FAILED, FREE, PRINT
from memlane.number_format import plural

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
"""Signature of the callback: warp, service, lanes, address of the arguments. Each argument is 32 i64; results overwrite the first."""
_MAX_STRING_BYTES = 1 << 16
"""Maximum length of a string that is read, in bytes."""


class Host:
    """Host services of one launch."""

    def __init__(self, device: DeviceState, compiled: CompiledKernel, context: Any, halt: Halt) -> None:
        # Holds no reference to the launch: the callback and this object form a cycle, so its arrays would stay until garbage collection.
        self._device, self._compiled = device, compiled
        self._printed: list[tuple[int, str]] = []
        self.assertions: dict[tuple[int, int, int], str] = {}
        """Messages of failed assertions, by block, warp and lane."""
        self._callback = _CALLBACK(halt.guarded(self._serve))
        context["service"] = ctypes.cast(self._callback, ctypes.c_void_p).value

    def print(self) -> None:
        """Write the collected text to standard output."""
        text = "".join(text for _, text in sorted(self._printed, key=lambda entry: entry[0]))
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _serve(self, warp_address: int, service: int, lanes: int, arguments_address: int) -> None:
        """Serve one request; generated code calls this."""
        if service in (ALLOCATE, FREE):
            return self._serve_memory(service, lanes, arguments_address)
        warp = _record(warp_address, WARP)
        block = _record(int(warp["block"]), BLOCK)
        arguments = np.ctypeslib.as_array((ctypes.c_uint64 * (8 * LANES)).from_address(arguments_address)).reshape(8, LANES)
        for lane in range(LANES):
            if lanes >> lane & 1:
                thread = _Thread(self._device, self._compiled, warp, block, lane)
                values = [int(value) for value in arguments[:, lane]]
                if service == PRINT:
                    text, count = self._print(thread, values[0], values[1])
                    self._printed.append((int(block["number"]), text))
                    arguments[0, lane] = count & 0xFFFFFFFF
                elif service == ASSERT_FAILED:
                    self.assertions[int(block["number"]), int(warp["number"]), lane] = _assertion(thread, values)

    def _serve_memory(self, service: int, lanes: int, arguments_address: int) -> None:
        values = np.ctypeslib.as_array((ctypes.c_uint64 * LANES).from_address(arguments_address))
        for lane in range(LANES):
            if lanes >> lane & 1 and service == ALLOCATE:
                values[lane] = self._device.heap.allocate(int(values[lane]))
            elif lanes >> lane & 1:
                self._device.heap.free(int(values[lane]))

    @staticmethod
    def _print(thread: _Thread, pattern: int, values: int) -> tuple[str, int]:
        try:
            return formatted(thread.string(pattern), values, thread)
        except UnreadableError as error:
            return f"(printf: {error})", -1


def _assertion(thread: _Thread, values: list[int]) -> str:
    def text(address: int) -> str:
        try:
            return thread.string(address)
        except UnreadableError:
            return "?"

    message, file, line, function = text(values[0]), text(values[1]), values[2] & 0xFFFFFFFF, text(values[3])
    return f"assertion `{message}` failed in {function} ({file}:{line})"


def _record(address: int, dtype: np.dtype[np.void]) -> Any:
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]


class _Thread:
    """Read access to memory from one thread's view."""

    def __init__(self, device: DeviceState, compiled: CompiledKernel, warp: Any, block: Any, lane: int) -> None:
        self._device, self._compiled, self._block = device, compiled, block
        self._number = int(warp["number"]) * LANES + lane

    def read(self, address: int, nbytes: int) -> bytes:
        """Return bytes at a generic address. Raises UnreadableError."""
        return self._upto(address, nbytes, nbytes)

    def string(self, address: int) -> str:
        """Return the zero-terminated text at a generic address. Raises UnreadableError."""
        return self._upto(address, 1, _MAX_STRING_BYTES).partition(b"\0")[0].decode("utf-8", "replace")

    def _upto(self, address: int, least: int, most: int) -> bytes:
        """Return the available bytes at an address, at least `least` and at most `most`. Raises UnreadableError."""
        host, room = self._locate(address)
        if room < least:
            raise UnreadableError(f"no {plural(least, 'byte')} at {address:#x}")
        return ctypes.string_at(host, min(room, most))

    def _locate(self, address: int) -> tuple[int, int]:
        """Return the host address of a generic address, and the number of bytes that follow it there."""
        if SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_BYTES:
            context = _record(int(self._block["context"]), CONTEXT)
            return int(self._block["shared"]) + address - SHARED_WINDOW, int(context["shared_bytes"]) - (address - SHARED_WINDOW)
        if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW_BYTES:
            local = self._compiled.frame.local_bytes
            return int(self._block["local"]) + self._number * local + address - LOCAL_WINDOW, local - (address - LOCAL_WINDOW)
        found = self._device.memory.at(address)
        return (0, 0) if found is None else (found.host + address - found.low, found.high - address)

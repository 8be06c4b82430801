"""Make the context of a GPU current for each call, whatever other libraries have made current, and translate the driver's errors into
memlane's."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from cuda import core
from cuda.bindings import driver

from memlane.driver.calls import checked
from memlane.driver.failure import error_for, error_name


class TranslatedErrors:
    """A `with` block that translates the driver's errors into memlane's."""

    __slots__ = ("_context", "_doing")

    def __init__(self, context: Context, doing: str) -> None:
        self._context, self._doing = context, doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self._context.translate(error, self._doing)


class Current:
    """A `with` block in which a context is current and the driver's errors become memlane's."""

    __slots__ = ("_context", "_doing")

    def __init__(self, context: Context, doing: str) -> None:
        self._context, self._doing = context, doing

    def __enter__(self) -> None:
        (code,) = driver.cuCtxPushCurrent(self._context.handle)
        if code:
            with TranslatedErrors(self._context, self._doing):
                checked((code,))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        driver.cuCtxPopCurrent()
        if isinstance(error, Exception):
            self._context.translate(error, self._doing)


class Context:
    """The primary context of a device of this process, which CuPy, PyTorch and the CUDA runtime use too."""

    def __init__(self, name: str, index: int) -> None:
        """Open the context. `name`: the device's name in messages."""
        self.name = name
        self.running: dict[str, None] = {}
        """Titles of the kernels that may still be running."""
        with TranslatedErrors(self, "to open"):
            before = checked(driver.cuCtxGetCurrent())
            self.device = core.Device(index)
            self.device.set_current()
            self.handle: Any = checked(driver.cuCtxGetCurrent())
            if int(before):
                checked(driver.cuCtxSetCurrent(before))

    def current(self, doing: str) -> Current:
        """Return a `with` block in which the context is current. `doing` names the attempted operation in messages."""
        return Current(self, doing)

    def translated_errors(self, doing: str) -> TranslatedErrors:
        """Return a `with` block in which the driver's errors become memlane's."""
        return TranslatedErrors(self, doing)

    def translate(self, error: Exception, doing: str) -> None:
        """Raise memlane's error for an error of the driver; return for any other error.

        `cuda.core` and `cuda.bindings` have their own exception classes for these; the text contains the driver's name of the error.
        """
        name = error_name(str(error))
        if name is not None:
            raise error_for(self.name, name, doing, tuple(self.running), str(error)) from error


def release_with(owner: object, context: Any, destroy: Callable[[Any], Any], what: Any) -> None:
    """Register `destroy(what)` for when `owner` is collected. At the end of the process the driver frees everything itself."""
    weakref.finalize(owner, _destroy, context, destroy, what).atexit = False


def _destroy(context: Any, destroy: Callable[[Any], Any], what: Any) -> None:
    # Errors are ignored: whatever fails here has already failed in a call of the user.
    driver.cuCtxPushCurrent(context)
    driver.cuCtxSynchronize()
    destroy(what)
    driver.cuCtxPopCurrent()


def device_attributes(device: core.Device) -> dict[str, int]:
    """Return the device attributes by their names in `cuda.core`, and `total_memory` in bytes. Attributes newer than the driver are left
    out."""
    values = {}
    for name in dir(device.properties):
        if not name.startswith("_"):
            try:
                value = getattr(device.properties, name)
            except Exception as error:  # the driver does not know the attribute, and nothing requires such attributes
                if error_name(str(error)) is None:
                    raise
            else:
                if isinstance(value, int):
                    values[name] = int(value)
    values["total_memory"] = int(checked(driver.cuDeviceTotalMem(device.device_id)))
    return values

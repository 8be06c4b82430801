"""Launches of several emulated devices that run at the same time and may wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import PARTNER

T = TypeVar("T")


@dataclass(frozen=True)
class Partner:
    """One of some launches that run together, or a launch by itself."""

    number: int = 0
    records: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, PARTNER))

    @property
    def has_others(self) -> bool:
        return len(self.records) > 0

    @property
    def place(self) -> tuple[int, int, int]:
        """The fields of a CREW that say where the records of all are, how many, and which is its own."""
        return int(self.records.ctypes.data), len(self.records), self.number

    @property
    def facts(self) -> dict[str, object]:
        """The fields of a CONTEXT that are different: memory is shared with threads of other launches."""
        return {"parallel": True} if self.has_others else {}


_PRESENT: ContextVar[Partner | None] = ContextVar("memlane_partner", default=None)
_ALONE = Partner()


def present_partner() -> Partner:
    """Return which of the launches that run together the present thread makes."""
    return _PRESENT.get() or _ALONE


def run_together(launches: Sequence[Callable[[], T]]) -> list[T]:
    """Make some launches in a thread each, and return what each gave, or raise the first error, once all have ended.

    A launch that waits for another is not endless while that one is still prepared or gets on; when one ends, with an error or without, the
    others know that it does nothing more for them.
    """
    records = np.zeros(len(launches), PARTNER)
    records["working"] = 1

    def run(number: int, launch: Callable[[], T]) -> T:
        _PRESENT.set(Partner(number, records))
        try:
            return launch()
        finally:
            records["working"][number] = 0

    with ThreadPoolExecutor(len(launches)) as pool:
        running: list[Future[T]] = [pool.submit(copy_context().run, run, number, one) for number, one in enumerate(launches)]
    return [done.result() for done in running]

"""Run launches of several emulated devices concurrently; they may wait for each other."""

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
    """One of several launches that run together, or a single launch."""

    number: int = 0
    records: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, PARTNER))

    @property
    def has_others(self) -> bool:
        return len(self.records) > 0

    @property
    def pool_fields(self) -> tuple[int, int, int]:
        """The WORKERS fields for the partner records: their address, their number and this launch's index."""
        return int(self.records.ctypes.data), len(self.records), self.number

    @property
    def context_fields(self) -> dict[str, object]:
        """The CONTEXT fields that differ because threads of other launches share the memory."""
        return {"parallel": True} if self.has_others else {}


_CURRENT: ContextVar[Partner | None] = ContextVar("memlane_partner", default=None)
_ALONE = Partner()


def current_partner() -> Partner:
    """Return the partner record set for the current thread, or that of a single launch."""
    return _CURRENT.get() or _ALONE


def run_together(launches: Sequence[Callable[[], T]]) -> list[T]:
    """Run each launch in its own thread; return their results, or raise the first error, once all have ended.

    A launch that waits for another is not endless while that one is being prepared or makes progress. When a launch ends, with an error or
    without, the others learn that it will make no more progress.
    """
    records = np.zeros(len(launches), PARTNER)
    records["working"] = 1

    def run(number: int, launch: Callable[[], T]) -> T:
        _CURRENT.set(Partner(number, records))
        try:
            return launch()
        finally:
            records["working"][number] = 0

    with ThreadPoolExecutor(len(launches)) as pool:
        running: list[Future[T]] = [pool.submit(copy_context().run, run, number, one) for number, one in enumerate(launches)]
    return [done.result() for done in running]
